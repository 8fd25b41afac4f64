//! A recording that another process goes on with, while its programs go on recording.
//!
//! [`Session::hand_over`](super::Session::hand_over) ends the threads of a recording and nothing else: what
//! is attached stays attached, rings fill, the spool stays locked (the lock is that of an open file, whoever
//! has it). What is left is a state in plain data, and descriptors.
//! [`Session::take_over`](super::Session::take_over) makes the recording of both again, in any process.
//!
//! Whoever takes over must agree on what is in memory: the state says by which [`ABI`] it was written.
//!
//! | file | subject |
//! |---|---|
//! | `options` | what is recorded |
//! | `places` | directories and files |

mod options;
mod places;

use std::{
    io,
    path::{Path, PathBuf},
};

use agent_ebpf::ABI;
use serde::{Deserialize, Serialize};

pub(super) use self::{
    options::{ChannelState, HandedOptions, put_plans},
    places::{HandedDirectory, HandedName, HandedOutput},
};
use super::{CaptureError, Session, SpoolError, manifest::raw};
use attach::Attachment;
use attach::detach::detach_in_background;
use bpf::LoadError;
use stdx::handover::{Descriptors, Missing, Number, Parcels, Part};

/// The version of the state.
const VERSION: u32 = 5;

/// A recording without a process: its programs record, and nobody stores.
#[derive(Debug)]
pub struct HandOver {
    document: Vec<u8>,
    descriptors: Descriptors,
}

/// What is known of any version.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    abi: u64,
    /// The spool, for messages.
    #[serde(with = "raw::path")]
    spool: PathBuf,
    /// The descriptor of its lock.
    lock: Option<Number>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document<T> {
    head: Head,
    session: T,
}

/// The head of a document whose rest is of another version.
#[derive(Debug, Deserialize)]
struct OnlyHead {
    head: Head,
}

/// Why a recording cannot be handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// A reader has failed: the recording is at its end, and says why then.
    #[error("a reader has failed")]
    Reader,
    /// Somebody reads its maps at this moment.
    #[error("its maps are being read")]
    Maps,
    /// Another recording goes on where it has ended.
    #[error("another recording goes on for it already")]
    Continued,
    /// The state cannot be written.
    #[error("its state cannot be written: {0}")]
    State(String),
}

/// A recording that is not handed over.
#[derive(Debug, thiserror::Error)]
#[error("the recording cannot be handed over: {error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: HandOverError,
    /// The recording, which goes on here. `None` if it has ended, and what it had stored is in its spool.
    pub session: Option<Box<Session>>,
}

/// Why a recording does not go on. What was attached is being detached; what was stored is in the spool, for
/// [`recover`](super::recover).
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The state is of another version.
    #[error(
        "{} was handed over by a version of tracer-agent that this one cannot go on for (state {version} with \
         memory {abi:#x}, here {VERSION} with {ABI:#x}); it has ended{}",
        of_spool(spool).0, of_spool(spool).1
    )]
    OtherVersion {
        /// The spool.
        spool: PathBuf,
        /// The version of the state.
        version: u32,
        /// That of the memory.
        abi: u64,
    },
    /// It makes no sense.
    #[error("the state of a recording that was handed over cannot be read: {0}")]
    Damaged(String),
    /// A descriptor.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The programs, the readers or the spool.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

/// What was handed over, and what is left of it: maps alone have no spool.
fn of_spool(spool: &Path) -> (String, &'static str) {
    if spool.as_os_str().is_empty() {
        return ("the map".to_owned(), ", and what it had counted is lost");
    }
    (format!("the recording in {}", spool.display()), ", and what it had stored is in the spool")
}

impl From<SpoolError> for TakeOverError {
    fn from(error: SpoolError) -> Self {
        Self::Capture(error.into())
    }
}

impl From<LoadError> for TakeOverError {
    fn from(error: LoadError) -> Self {
        Self::Capture(error.into())
    }
}

impl HandOver {
    /// That of a recording in the spool `spool`, whose lock has the number `lock`.
    pub(super) fn new(
        (spool, lock): (&Path, Option<Number>),
        session: &impl Serialize,
        descriptors: Descriptors,
    ) -> Result<Self, HandOverError> {
        let head = Head { version: VERSION, abi: ABI, spool: spool.to_owned(), lock };
        let document = serde_json::to_vec(&Document { head, session });
        let document = document.map_err(|error| HandOverError::State(error.to_string()))?;
        Ok(Self { document, descriptors })
    }

    /// Sends it to whoever receives next.
    ///
    /// # Errors
    /// The kernel has no room for it, and nothing that is in `parcels` can be used.
    pub fn send(&self, parcels: &Parcels) -> io::Result<()> {
        parcels.send(&[self.part()])
    }

    /// What is sent of it, as a part of a parcel.
    pub fn part(&self) -> (&[u8], &Descriptors) {
        (&self.document, &self.descriptors)
    }

    /// What was received.
    pub fn of_part((document, descriptors): Part) -> Self {
        Self { document, descriptors }
    }

    /// The next one that was sent; `None` if there is no more.
    ///
    /// # Errors
    /// Something else was sent, or not all of it is there.
    pub fn receive(parcels: &Parcels) -> io::Result<Option<Self>> {
        let Some(parts) = parcels.receive()? else { return Ok(None) };
        // More of them are something else.
        let part: Result<[_; 1], _> = parts.try_into();
        let [part] = part.map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Some(Self::of_part(part)))
    }

    /// Reads the state, if it is of this version.
    pub(super) fn read<T: for<'de> Deserialize<'de>>(&self) -> Result<T, TakeOverError> {
        let damaged = |error: serde_json::Error| TakeOverError::Damaged(error.to_string());
        let OnlyHead { head } = serde_json::from_slice(&self.document).map_err(damaged)?;
        if (head.version, head.abi) != (VERSION, ABI) {
            let Head { version, abi, spool, .. } = head;
            return Err(TakeOverError::OtherVersion { spool, version, abi });
        }
        let document: Document<T> = serde_json::from_slice(&self.document).map_err(damaged)?;
        Ok(document.session)
    }

    pub(super) fn descriptors(&mut self) -> &mut Descriptors {
        &mut self.descriptors
    }

    /// Ends the recording: what is attached is detached in the background, and what was stored is in the
    /// spool, which nobody locks any more when this returns. What the rings held is lost.
    pub fn give_up(mut self) {
        if let Ok(OnlyHead { head: Head { lock: Some(lock), .. } }) = serde_json::from_slice(&self.document) {
            drop(self.descriptors.take(lock));
        }
        let left = self.descriptors.left().map(|link| Attachment { link, carrier: None });
        // Without a child process the descriptors are closed right here, which only takes longer.
        let _ = detach_in_background(left.collect());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn written(version: u32, abi: u64) -> HandOver {
        let head = Head { version, abi, spool: "/t.dat.spool".into(), lock: None };
        let document = serde_json::to_vec(&Document { head, session: 7_u32 }).unwrap();
        HandOver::of_part((document, Descriptors::default()))
    }

    #[test]
    fn only_a_state_of_this_version_is_read() {
        assert_eq!(written(VERSION, ABI).read::<u32>().unwrap(), 7);
        for other in [written(VERSION + 1, ABI), written(VERSION, ABI ^ 1)] {
            let error = other.read::<u32>().unwrap_err();
            assert!(matches!(error, TakeOverError::OtherVersion { .. }), "{error}");
            assert!(error.to_string().contains("/t.dat.spool"), "{error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let HandOver { document: whole, .. } = written(VERSION, ABI);
        for len in 0..whole.len() {
            let cut = HandOver::of_part((whole[..len].to_vec(), Descriptors::default()));
            assert!(matches!(cut.read::<u32>(), Err(TakeOverError::Damaged(_))), "{len} bytes");
            cut.give_up();
        }
    }
}
