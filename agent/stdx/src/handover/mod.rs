//! What goes from one process to the next one while programs in the kernel go on: descriptors, and a state in
//! plain data that names them by number.
//!
//! Whoever owns descriptors has a state of its own that can be serialised, gives its descriptors away with
//! `hand_over`, and is made of both again by `take_over`. Nothing is opened or copied for that, so giving
//! away cannot fail half-way.
//!
//! | file | subject |
//! |---|---|
//! | `moment` | points in time that both processes mean the same by |
//! | `parcels` | the way from one process to another that need not be there yet |

mod moment;
mod parcels;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use moment::Moment;
pub use parcels::{Parcels, Part};

/// Descriptors on their way.
#[derive(Debug, Default)]
pub struct Descriptors(Vec<Option<Held>>);

/// A descriptor, which others may have meanwhile.
#[derive(Debug)]
pub enum Held {
    /// Owned by the table.
    Owned(OwnedFd),
    /// Shared with its user.
    Shared(Arc<OwnedFd>),
    /// A file, shared with its user.
    File(Arc<File>),
}

impl Held {
    fn borrow(&self) -> BorrowedFd<'_> {
        match self {
            Self::Owned(fd) => fd.as_fd(),
            Self::Shared(fd) => fd.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }

    fn own(self) -> io::Result<OwnedFd> {
        match self {
            Self::Owned(fd) => Ok(fd),
            Self::Shared(fd) => Arc::try_unwrap(fd).or_else(|fd| fd.try_clone()),
            Self::File(file) => {
                Arc::try_unwrap(file).map(OwnedFd::from).or_else(|file| Ok(file.try_clone()?.into()))
            }
        }
    }
}

impl From<OwnedFd> for Held {
    fn from(fd: OwnedFd) -> Self {
        Self::Owned(fd)
    }
}

impl From<File> for Held {
    fn from(file: File) -> Self {
        Self::Owned(file.into())
    }
}

impl From<Arc<OwnedFd>> for Held {
    fn from(fd: Arc<OwnedFd>) -> Self {
        Self::Shared(fd)
    }
}

impl From<Arc<File>> for Held {
    fn from(file: Arc<File>) -> Self {
        Self::File(file)
    }
}

/// The number of a descriptor among those that go with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Number(u32);

/// A state names a descriptor that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("descriptor {number} of what was handed over cannot be used: {source}")]
pub struct Missing {
    number: u32,
    #[source]
    source: io::Error,
}

impl Descriptors {
    /// Those that were received, by their numbers.
    pub(crate) fn received(fds: Vec<OwnedFd>) -> Self {
        Self(fds.into_iter().map(|fd| Some(Held::Owned(fd))).collect())
    }

    /// Adds a descriptor.
    pub fn put(&mut self, fd: impl Into<Held>) -> Number {
        self.0.push(Some(fd.into()));
        Number((self.0.len() - 1) as u32)
    }

    /// Takes one, which can be taken once.
    ///
    /// # Errors
    /// There is no such descriptor, or it was taken.
    pub fn take(&mut self, number: Number) -> Result<OwnedFd, Missing> {
        let Number(number) = number;
        let held = self.0.get_mut(number as usize).and_then(Option::take);
        let held = held.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        held.and_then(Held::own).map_err(|source| Missing { number, source })
    }

    /// Those that were not taken.
    pub fn left(self) -> impl Iterator<Item = OwnedFd> {
        self.0.into_iter().flatten().filter_map(|held| held.own().ok())
    }

    /// All of them, by their numbers, if none was taken.
    pub(crate) fn all(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.0.iter().map(|held| held.as_ref().map(Held::borrow)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_descriptor_is_taken_once() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut all = Descriptors::default();
        let (own, shared) = (all.put(tempfile::tempfile().unwrap()), all.put(Arc::clone(&file)));
        assert_eq!(all.all().unwrap().len(), 2);
        all.take(own).unwrap();
        all.take(shared).unwrap();
        file.set_len(5).unwrap();
        assert!(all.all().is_none());
        assert!(all.take(own).is_err() && all.take(Number(7)).is_err());
    }
}
