//! Which files processes have open, by the numbers that system calls name them by.
//!
//! A table belongs to a process: its threads share it, `fork` copies it, and another program gets what is
//! left of it. Only what was seen to be opened is in it, and nothing from before events were lost.

use std::collections::{BTreeMap, HashMap};

use super::calls::Fd;
use super::files::FileId;
use crate::answers::Tid;

/// Most open files in all tables.
const MOST_OPEN: usize = 1 << 17;

/// A table, by a number that no other gets.
pub(super) type TableId = u64;

/// An open file.
#[derive(Clone, Copy, Debug)]
struct Open {
    file: FileId,
    /// Whether it is known to stay open when the process runs another program.
    stays: bool,
    /// How often events had been lost.
    losses: u64,
}

#[derive(Clone, Debug)]
struct Table {
    /// The first thread that had it.
    owner: Tid,
    threads: u32,
    open: BTreeMap<Fd, Open>,
}

/// The tables of all processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    all: HashMap<TableId, Table>,
    next: TableId,
    /// Open files in all of them.
    open: usize,
    losses: u64,
    /// How many losses there were when all that came before was forgotten last.
    forgotten: u64,
    /// Open files for which there was no room.
    pub(super) left_out: u64,
}

impl Tables {
    /// A table of a thread of which nothing is known.
    pub(super) fn create(&mut self, owner: Tid) -> TableId {
        self.add(owner, BTreeMap::new())
    }

    fn add(&mut self, owner: Tid, open: BTreeMap<Fd, Open>) -> TableId {
        self.next += 1;
        self.open += open.len();
        self.all.insert(self.next, Table { owner, threads: 1, open });
        self.next
    }

    /// Another thread has the same table.
    pub(super) fn share(&mut self, id: TableId) -> TableId {
        if let Some(table) = self.all.get_mut(&id) {
            table.threads = table.threads.saturating_add(1);
        }
        id
    }

    /// A new process has a copy of a table.
    pub(super) fn copy(&mut self, id: TableId, owner: Tid) -> TableId {
        let losses = self.losses;
        let mut open = self.all.get(&id).map(|table| table.open.clone()).unwrap_or_default();
        open.retain(|_, open| open.losses == losses);
        if self.open + open.len() > MOST_OPEN {
            self.forget_lost();
        }
        if self.open + open.len() > MOST_OPEN {
            self.left_out += open.len() as u64;
            open.clear();
        }
        self.add(owner, open)
    }

    /// A thread has a table no more.
    pub(super) fn release(&mut self, id: TableId) {
        let Some(table) = self.all.get_mut(&id) else { return };
        table.threads = table.threads.saturating_sub(1);
        if table.threads == 0 {
            self.open -= table.open.len();
            self.all.remove(&id);
        }
    }

    /// A thread does not share its table any more: the one that it has from now on.
    pub(super) fn unshare(&mut self, id: TableId, owner: Tid) -> TableId {
        if self.all.get(&id).is_some_and(|table| table.threads <= 1) {
            return id;
        }
        let own = self.copy(id, owner);
        self.release(id);
        own
    }

    /// A process runs another program: the table that it has from now on.
    pub(super) fn exec(&mut self, id: TableId, owner: Tid) -> TableId {
        let own = self.unshare(id, owner);
        self.retain(own, |_, open| open.stays);
        own
    }

    /// The first thread that had a table.
    pub(super) fn owner(&self, id: TableId) -> Option<Tid> {
        self.all.get(&id).map(|table| table.owner)
    }

    /// The file that a number stands for, if that is known.
    pub(super) fn get(&self, id: TableId, fd: Fd) -> Option<FileId> {
        let open = self.all.get(&id)?.open.get(&fd)?;
        (open.losses == self.losses).then_some(open.file)
    }

    /// A number stands for a file from now on, or for one that is not known.
    pub(super) fn set(&mut self, id: TableId, fd: Fd, file: Option<FileId>, stays: bool) {
        let Some(file) = file else { return self.close(id, fd) };
        if self.open >= MOST_OPEN {
            self.forget_lost();
        }
        let (is_full, losses) = (self.open >= MOST_OPEN, self.losses);
        let Some(table) = self.all.get_mut(&id) else { return };
        let open = Open { file, stays, losses };
        if let Some(former) = table.open.get_mut(&fd) {
            *former = open;
        } else if is_full {
            self.left_out += 1;
        } else {
            table.open.insert(fd, open);
            self.open += 1;
        }
    }

    /// Whether a number stays open when the process runs another program.
    pub(super) fn set_stays(&mut self, id: TableId, fd: Fd, stays: bool) {
        if let Some(open) = self.all.get_mut(&id).and_then(|table| table.open.get_mut(&fd)) {
            open.stays = stays;
        }
    }

    /// Numbers are closed, or will be at the next program.
    pub(super) fn close_range(&mut self, id: TableId, first: u32, last: u32, at_exec: bool) {
        let has = |fd: Fd| (first..=last).contains(&fd.cast_unsigned());
        if at_exec {
            let open = self.all.get_mut(&id).into_iter().flat_map(|table| &mut table.open);
            for (_, open) in open.filter(|(fd, _)| has(**fd)) {
                open.stays = false;
            }
        } else {
            self.retain(id, |fd, _| !has(fd));
        }
    }

    /// A number is closed.
    pub(super) fn close(&mut self, id: TableId, fd: Fd) {
        if let Some(table) = self.all.get_mut(&id)
            && table.open.remove(&fd).is_some()
        {
            self.open -= 1;
        }
    }

    fn retain(&mut self, id: TableId, mut is_left: impl FnMut(Fd, &Open) -> bool) {
        let Some(table) = self.all.get_mut(&id) else { return };
        let before = table.open.len();
        table.open.retain(|fd, open| is_left(*fd, open));
        self.open -= before - table.open.len();
    }

    /// Events were lost: what was open may be closed, and numbers may stand for something else.
    pub(super) fn lose(&mut self) {
        self.losses += 1;
    }

    /// Makes room of what was open before events were lost.
    fn forget_lost(&mut self) {
        let losses = self.losses;
        if self.forgotten == losses {
            return;
        }
        self.forgotten = losses;
        for table in self.all.values_mut() {
            table.open.retain(|_, open| open.losses == losses);
        }
        self.open = self.all.values().map(|table| table.open.len()).sum();
    }

    /// The files that are open, to be numbered anew.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut FileId> {
        self.forget_lost();
        self.all.values_mut().flat_map(|table| table.open.values_mut()).map(|open| &mut open.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_table_and_processes_copy_it() {
        let mut tables = Tables::default();
        let one = tables.create(1);
        tables.set(one, 3, Some(30), true);
        tables.set(one, 4, Some(40), false);
        let thread = tables.share(one);
        let child = tables.copy(one, 9);
        tables.set(thread, 5, Some(50), true);
        tables.close(child, 3);
        assert_eq!([3, 4, 5].map(|fd| tables.get(one, fd)), [Some(30), Some(40), Some(50)]);
        assert_eq!([3, 4, 5].map(|fd| tables.get(child, fd)), [None, Some(40), None]);
        let program = tables.exec(thread, 2);
        assert_ne!(program, one);
        assert_eq!([3, 4, 5].map(|fd| tables.get(program, fd)), [Some(30), None, Some(50)]);
        assert_eq!(tables.exec(program, 2), program);
        assert_eq!((tables.owner(program), tables.owner(one)), (Some(2), Some(1)));
        tables.close_range(program, 4, u32::MAX, false);
        tables.close_range(program, 3, 3, true);
        assert_eq!((tables.get(program, 3), tables.get(program, 5)), (Some(30), None));
        tables.exec(program, 2);
        assert_eq!(tables.get(program, 3), None);
        for id in [one, child, program] {
            tables.release(id);
        }
        assert_eq!((tables.all.len(), tables.open), (0, 0));
    }

    #[test]
    fn what_was_open_over_a_loss_is_unknown() {
        let mut tables = Tables::default();
        let one = tables.create(1);
        tables.set(one, 3, Some(30), true);
        tables.lose();
        tables.set(one, 4, Some(40), true);
        assert_eq!([3, 4].map(|fd| tables.get(one, fd)), [None, Some(40)]);
        let copy = tables.copy(one, 2);
        assert_eq!([3, 4].map(|fd| tables.get(copy, fd)), [None, Some(40)]);
        tables.set(copy, 4, None, true);
        assert_eq!(tables.get(copy, 4), None);
        assert_eq!(tables.files_mut().map(|file| *file).collect::<Vec<_>>(), [40]);
        assert_eq!(tables.open, 1);
    }

    #[test]
    fn open_files_are_bounded() {
        let mut tables = Tables::default();
        let one = tables.create(1);
        for fd in 0..MOST_OPEN as Fd {
            tables.set(one, fd, Some(1), true);
        }
        tables.set(one, -1, Some(1), true);
        let copy = tables.copy(one, 2);
        assert_eq!((tables.get(one, -1), tables.get(copy, 0)), (None, None));
        assert_eq!(tables.left_out, 1 + MOST_OPEN as u64);
        tables.lose();
        tables.set(one, -1, Some(1), true);
        assert_eq!((tables.get(one, -1), tables.open), (Some(1), 1));
    }
}
