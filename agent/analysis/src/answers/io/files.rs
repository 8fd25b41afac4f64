//! Files by their names, which stay when they are closed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::calls::{Fd, FileKind};
use super::descriptors::TableId;
use crate::answers::Tid;

/// Most files that are told apart.
const MOST: usize = 1 << 16;

/// Most bytes of all paths.
const MOST_BYTES: usize = 16 << 20;

/// Most bytes of a path: `PATH_MAX` (include/uapi/linux/limits.h).
pub(super) const PATH: usize = 4096;

/// A file, by its place in the order in which they were seen.
pub(super) type FileId = u32;

/// What tells a file without a path from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Nameless {
    pub(super) kind: FileKind,
    /// The table in which it is, which no other process has.
    pub(super) table: TableId,
    /// Its number there; `None` if that is not known either.
    pub(super) fd: Option<Fd>,
    /// The first thread that had the table.
    pub(super) owner: Tid,
}

/// What a file is told by.
#[derive(Clone, Debug)]
pub(super) enum FileName {
    Path(Arc<[u8]>),
    /// What the kernel calls it, with a number that no other has: `pipe:[7]`.
    Object(FileKind, Arc<[u8]>),
    Nameless(Nameless),
}

/// The files of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    all: Vec<FileName>,
    paths: HashMap<Arc<[u8]>, FileId>,
    objects: HashMap<Arc<[u8]>, FileId>,
    nameless: HashMap<Nameless, FileId>,
    bytes: usize,
    /// Files for which there was no room, as often as they were used.
    pub(super) left_out: u64,
}

impl Files {
    /// The file with a path. `None` if there is no room.
    pub(super) fn of_path(&mut self, path: &[u8]) -> Option<FileId> {
        let path = &path[..path.len().min(PATH)];
        let known = self.paths.get(path).copied();
        known.or_else(|| {
            let name = self.name(path)?;
            let id = self.add(FileName::Path(Arc::clone(&name)))?;
            self.paths.insert(name, id);
            Some(id)
        })
    }

    /// The file that the kernel calls so. `None` if there is no room.
    pub(super) fn of_object(&mut self, kind: FileKind, name: &[u8]) -> Option<FileId> {
        let name = &name[..name.len().min(PATH)];
        let known = self.objects.get(name).copied();
        known.or_else(|| {
            let name = self.name(name)?;
            let id = self.add(FileName::Object(kind, Arc::clone(&name)))?;
            self.objects.insert(name, id);
            Some(id)
        })
    }

    fn name(&mut self, name: &[u8]) -> Option<Arc<[u8]>> {
        if self.bytes + name.len() > MOST_BYTES {
            self.left_out += 1;
            return None;
        }
        self.bytes += name.len();
        Some(name.into())
    }

    /// A file without a path. `None` if there is no room.
    pub(super) fn of_nameless(&mut self, nameless: Nameless) -> Option<FileId> {
        if let Some(id) = self.nameless.get(&nameless) {
            return Some(*id);
        }
        let id = self.add(FileName::Nameless(nameless))?;
        self.nameless.insert(nameless, id);
        Some(id)
    }

    fn add(&mut self, name: FileName) -> Option<FileId> {
        if self.all.len() >= MOST {
            self.left_out += 1;
            return None;
        }
        self.all.push(name);
        Some((self.all.len() - 1) as FileId)
    }

    /// What a file is told by.
    pub(super) fn get(&self, id: FileId) -> Option<&FileName> {
        self.all.get(id as usize)
    }

    /// Its path, if it has one.
    pub(super) fn path(&self, id: FileId) -> Option<Arc<[u8]>> {
        match self.get(id)? {
            FileName::Path(path) => Some(Arc::clone(path)),
            FileName::Object(..) | FileName::Nameless(_) => None,
        }
    }

    /// Whether half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.all.len() >= MOST / 2 || self.bytes >= MOST_BYTES / 2
    }

    /// Keeps only these files, and gives them new numbers.
    pub(super) fn keep<'f>(&mut self, used: impl Iterator<Item = &'f mut FileId>) {
        let former = std::mem::take(self);
        let mut numbers: BTreeMap<FileId, FileId> = BTreeMap::new();
        for id in used {
            let new = numbers.get(id).copied().or_else(|| {
                let new = match former.get(*id)? {
                    FileName::Path(path) => self.of_path(path),
                    FileName::Object(kind, name) => self.of_object(*kind, name),
                    FileName::Nameless(nameless) => self.of_nameless(*nameless),
                }?;
                numbers.insert(*id, new);
                Some(new)
            });
            *id = new.unwrap_or(FileId::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_only_while_they_are_used() {
        let mut files = Files::default();
        let nameless = Nameless { kind: FileKind::Socket, table: 7, fd: Some(3), owner: 1 };
        assert_eq!(files.of_object(FileKind::Pipe, b"pipe:[7]"), Some(0));
        files = Files::default();
        let ids = [files.of_path(b"/a"), files.of_path(b"/b"), files.of_nameless(nameless)];
        assert_eq!(ids, [Some(0), Some(1), Some(2)]);
        assert_eq!((files.of_path(b"/b"), files.of_nameless(nameless)), (Some(1), Some(2)));
        let mut used = [2, 1, 2];
        files.keep(used.iter_mut());
        assert_eq!((used, files.all.len(), files.bytes), ([0, 1, 0], 2, 2));
        assert_eq!(files.path(1).as_deref(), Some(b"/b".as_slice()));
        assert_eq!(files.path(0), None);
    }

    #[test]
    fn names_are_bounded() {
        let mut files = Files::default();
        for number in 0..MOST_BYTES / PATH + 5 {
            files.of_path(format!("{number:0>9000}").chars().rev().collect::<String>().as_bytes());
        }
        assert_eq!((files.left_out, files.bytes), (5, MOST_BYTES));
        assert!(files.is_half_full());
        let mut files = Files::default();
        for number in 0..MOST + 5 {
            files.of_path(number.to_string().as_bytes());
        }
        assert_eq!((files.left_out, files.all.len()), (5, MOST));
    }
}
