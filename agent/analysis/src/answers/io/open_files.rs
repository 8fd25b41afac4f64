//! Which file a system call is about, and what calls change of which files are open.

use super::calls::{Call, CloseRange, Fcntl, Fd, FileKind, fd, unshares_files};
use super::descriptors::{TableId, Tables};
use super::files::{FileId, Files, Nameless, PATH};
use crate::answers::Tid;
use crate::answers::known::Arguments;

/// `AT_FDCWD` of include/uapi/linux/fcntl.h.
const CURRENT_DIRECTORY: Fd = -100;

/// The tables of all processes, and the files in them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFiles {
    pub(super) tables: Tables,
    pub(super) files: Files,
}

impl OpenFiles {
    /// The files that a call is about when it begins: one, or one that is read and one that is written.
    pub(super) fn of_call(
        &mut self,
        table: TableId,
        call: Call,
        arguments: &Arguments,
        path: Option<&[u8]>,
    ) -> [Option<FileId>; 2] {
        let of = |kind, nth| Nameless { kind, table, fd: fd(arguments, nth), owner: 0 };
        match call {
            Call::Open { is_at, .. } => {
                [path.and_then(|path| self.of_path(table, is_at.then_some(arguments), path)), None]
            }
            Call::Dup { .. } | Call::Fcntl => {
                [fd(arguments, 0).and_then(|fd| self.tables.get(table, fd)), None]
            }
            Call::Read | Call::Write | Call::Sync { has_file: true } => {
                [self.of_descriptor(of(FileKind::Unknown, 0)), None]
            }
            Call::Receive | Call::Send => {
                let file = self.of_descriptor(of(FileKind::Socket, 0));
                if let Some(fd) = fd(arguments, 0)
                    && self.tables.get(table, fd).is_none()
                {
                    self.tables.set(table, fd, file, false);
                }
                [file, None]
            }
            Call::Copy { from, to } => [from, to].map(|nth| self.of_descriptor(of(FileKind::Unknown, nth))),
            Call::Make { .. }
            | Call::Close
            | Call::CloseRange
            | Call::Sync { has_file: false }
            | Call::Unshare => [None; 2],
        }
    }

    /// The file with a path. One that does not begin at the root begins at a directory, which may be known.
    fn of_path(&mut self, table: TableId, at: Option<&Arguments>, path: &[u8]) -> Option<FileId> {
        let directory = at.and_then(|arguments| fd(arguments, 0));
        let directory = directory.filter(|fd| *fd != CURRENT_DIRECTORY && path.first() != Some(&b'/'));
        let directory = directory.and_then(|fd| self.files.path(self.tables.get(table, fd)?));
        let Some(directory) = directory else { return self.files.of_path(path) };
        let mut whole = directory.to_vec();
        if !whole.ends_with(b"/") {
            whole.push(b'/');
        }
        whole.extend_from_slice(&path[..path.len().min(PATH)]);
        self.files.of_path(&whole)
    }

    /// The file that a descriptor stands for, or one that is told by the descriptor.
    fn of_descriptor(&mut self, of: Nameless) -> Option<FileId> {
        let known = of.fd.and_then(|fd| self.tables.get(of.table, fd));
        known.or_else(|| self.nameless(of))
    }

    /// A file that is told by its descriptor.
    pub(super) fn nameless(&mut self, of: Nameless) -> Option<FileId> {
        let owner = self.tables.owner(of.table)?;
        self.files.of_nameless(Nameless { owner, ..of })
    }

    /// What a call changes as soon as it has begun: another thread can get a number that is closed before the
    /// end of the call is recorded. The table that the thread has from now on.
    pub(super) fn begin(&mut self, table: TableId, tid: Tid, call: Call, arguments: &Arguments) -> TableId {
        match call {
            Call::Close => {
                if let Some(fd) = fd(arguments, 0) {
                    self.tables.close(table, fd);
                }
                table
            }
            Call::CloseRange => {
                let range = CloseRange::of(arguments);
                let table = if range.unshares { self.tables.unshare(table, tid) } else { table };
                self.tables.close_range(table, range.first, range.last, range.at_exec);
                table
            }
            _ => table,
        }
    }

    /// What a call that succeeded has changed. The table that the thread has from now on.
    pub(super) fn end(
        &mut self,
        table: TableId,
        tid: Tid,
        (call, arguments): (Call, &Arguments),
        (file, result): (&mut Option<FileId>, i64),
    ) -> TableId {
        let new = result as Fd;
        match call {
            Call::Open { at_exec, .. } => {
                let of = Nameless { kind: FileKind::Unknown, table, fd: Some(new), owner: 0 };
                *file = file.or_else(|| self.nameless(of));
                self.tables.set(table, new, *file, at_exec.stays(arguments));
            }
            Call::Make { kind, at_exec } => {
                *file = self.nameless(Nameless { kind, table, fd: Some(new), owner: 0 });
                self.tables.set(table, new, *file, at_exec.stays(arguments));
            }
            Call::Dup { at_exec } => self.tables.set(table, new, *file, at_exec.stays(arguments)),
            Call::Fcntl => match Fcntl::of(arguments) {
                Fcntl::Dup { stays } => self.tables.set(table, new, *file, stays),
                Fcntl::Stays(stays) => {
                    if let Some(fd) = fd(arguments, 0) {
                        self.tables.set_stays(table, fd, stays);
                    }
                }
                Fcntl::Nothing => {}
            },
            Call::Unshare if unshares_files(arguments) => return self.tables.unshare(table, tid),
            _ => {}
        }
        table
    }

    /// The file of a call that failed to open one, whose path is not known.
    pub(super) fn unopened(&mut self, table: TableId) -> Option<FileId> {
        self.nameless(Nameless { kind: FileKind::Unknown, table, fd: None, owner: 0 })
    }

    /// A call has ended whose begin was not seen: a new number stands for something that is not known.
    pub(super) fn end_unseen(&mut self, table: TableId, call: Call, result: i64) {
        if call.is_new() {
            self.tables.close(table, result as Fd);
        }
    }
}
