//! What is known of the time before a recording: the threads and open files that the recorder saw when it
//! began.
//!
//! It looks while events are recorded already, from one time to another. What a process has opened or closed
//! meanwhile is known from its events. What it had open before is known only once the recorder has looked at
//! everything.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::calls::{Call, Fd, FileKind, fd};
use super::descriptors::TableId;
use super::files::{FileId, Nameless};
use super::open_files::OpenFiles;
use crate::answers::Tid;
use crate::answers::known::Arguments;
use stdx::escapes;
use tracedat::initial_state::InitialState;

/// Most threads and open files that are taken from a file.
const MOST: usize = 1 << 17;

/// Most numbers that are remembered to have been closed while the recorder looked.
const MOST_CLOSED: usize = 1 << 16;

/// An open file, as /proc/PID/fd calls it.
type Named = (Fd, Box<[u8]>);

/// Where a process has its open files.
#[derive(Clone, Copy, Debug)]
struct Process {
    id: Tid,
    /// The table of those of its threads that were seen.
    table: Option<TableId>,
}

/// The threads and open files that there were.
#[derive(Clone, Debug)]
pub(super) struct Initial {
    /// When the recorder began to look.
    pub(super) began: u64,
    /// When it had seen everything.
    pub(super) ended: u64,
    /// Whether that has come.
    is_over: bool,
    /// The processes of threads.
    threads: HashMap<Tid, Tid>,
    processes: HashMap<Tid, Process>,
    files: HashMap<Tid, Vec<Named>>,
    /// What was closed meanwhile: it may have been seen before.
    closed: HashSet<(TableId, Fd)>,
    /// Tables of which it is not known what was closed meanwhile.
    changed: HashSet<TableId>,
}

impl Initial {
    /// Of a file's state, with what is added to its times.
    pub(super) fn of(state: &InitialState, added: i64) -> Self {
        let at = |time: u64| time.saturating_add_signed(added);
        let mut files: HashMap<Tid, Vec<Named>> = HashMap::new();
        for file in state.files.iter().take(MOST) {
            let name = escapes::unescaped(file.path.as_bytes());
            files.entry(file.tgid).or_default().push((file.fd.cast_signed(), name.as_ref().into()));
        }
        Self {
            began: at(state.began_ns),
            ended: at(state.ended_ns),
            is_over: false,
            threads: state.threads.iter().take(MOST).map(|thread| (thread.tid, thread.tgid)).collect(),
            processes: HashMap::new(),
            files,
            closed: HashSet::new(),
            changed: HashSet::new(),
        }
    }

    /// An id is another thread's from now on.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// A call may close something.
    pub(super) fn note(&mut self, time: u64, table: TableId, call: Call, arguments: &Arguments) {
        if self.is_over || time < self.began {
            return;
        }
        match (call, fd(arguments, 0)) {
            (Call::Close, Some(fd)) if self.closed.len() < MOST_CLOSED => {
                self.closed.insert((table, fd));
            }
            (Call::Close | Call::CloseRange, _) => self.note_all(table),
            _ => {}
        }
    }

    /// Anything of a table may be closed.
    pub(super) fn note_all(&mut self, table: TableId) {
        if !self.is_over {
            self.changed.insert(table);
        }
    }

    /// The table of a thread that is seen for the first time, if it was there before.
    pub(super) fn table(&mut self, tid: Tid, open: &mut OpenFiles) -> Option<TableId> {
        let id = *self.threads.get(&tid)?;
        let process = self.processes.entry(id).or_insert(Process { id, table: None });
        if let Some(table) = process.table {
            // If the threads that were seen are all gone, it is not known what they have left.
            return open.tables.owner(table).map(|_| open.tables.share(table));
        }
        let process = Process { id, table: Some(open.tables.create(id)) };
        self.processes.insert(id, process);
        if self.is_over {
            self.fill(process, open);
        }
        process.table
    }

    /// The recorder has seen everything, if it has by now.
    pub(super) fn advance(&mut self, now: u64, open: &mut OpenFiles) {
        if self.is_over || now < self.ended {
            return;
        }
        self.is_over = true;
        let processes: BTreeMap<Tid, Process> = self.processes.iter().map(|(id, of)| (*id, *of)).collect();
        for process in processes.into_values() {
            self.fill(process, open);
        }
        self.closed.clear();
        self.changed.clear();
    }

    /// Puts what a process had open into its table, unless events know better.
    fn fill(&mut self, process: Process, open: &mut OpenFiles) {
        let Some(table) = process.table.filter(|table| !self.changed.contains(table)) else { return };
        for (fd, name) in self.files.remove(&process.id).unwrap_or_default() {
            if !self.closed.contains(&(table, fd)) && open.tables.get(table, fd).is_none() {
                let file = file(&name, table, fd, open);
                // Whether it is closed when another program runs was not seen.
                open.tables.set(table, fd, file, false);
            }
        }
    }
}

/// What /proc/PID/fd calls a file (`d_path` of fs/d_path.c, and what is behind it).
fn file(name: &[u8], table: TableId, fd: Fd, open: &mut OpenFiles) -> Option<FileId> {
    let starts = |text: &str| name.starts_with(text.as_bytes());
    let kind = match name {
        _ if starts("/memfd:") => FileKind::Memfd,
        [b'/', ..] => return open.files.of_path(name),
        _ if starts("pipe:[") => return open.files.of_object(FileKind::Pipe, name),
        _ if starts("socket:[") => return open.files.of_object(FileKind::Socket, name),
        b"anon_inode:[eventfd]" => FileKind::Eventfd,
        b"anon_inode:[timerfd]" => FileKind::Timerfd,
        b"anon_inode:[signalfd]" => FileKind::Signalfd,
        b"anon_inode:inotify" => FileKind::Inotify,
        _ => FileKind::Unknown,
    };
    open.nameless(Nameless { kind, table, fd: Some(fd), owner: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracedat::initial_state::{OpenFile, Thread};

    fn initial() -> Initial {
        let thread = |(tid, tgid)| Thread { tid, tgid, ..Thread::default() };
        let file = |(fd, path): (u32, &str)| OpenFile { tgid: 1, fd, path: path.to_owned() };
        let state = InitialState {
            began_ns: 100,
            ended_ns: 200,
            threads: [(1, 1), (2, 1), (3, 1), (9, 9)].map(thread).into(),
            files: [(3, "/a"), (4, "/b"), (5, "pipe:[77]"), (6, "anon_inode:[eventfd]")].map(file).into(),
            ..InitialState::default()
        };
        Initial::of(&state, 1000)
    }

    fn names(open: &OpenFiles, table: TableId) -> [Option<FileId>; 4] {
        [3, 4, 5, 6].map(|fd| open.tables.get(table, fd))
    }

    #[test]
    fn threads_of_a_process_have_what_it_had_open() {
        let (mut initial, mut open) = (initial(), OpenFiles::default());
        let table = initial.table(2, &mut open).unwrap();
        assert_eq!(names(&open, table), [None; 4]);
        initial.advance(1199, &mut open);
        assert_eq!(names(&open, table), [None; 4]);
        initial.advance(1200, &mut open);
        assert!(names(&open, table).iter().all(Option::is_some));
        assert_eq!(initial.table(1, &mut open), Some(table));
        assert_eq!(open.tables.owner(table), Some(1));
        initial.forget(9);
        assert_eq!((initial.table(9, &mut open), initial.table(8, &mut open)), (None, None));
        // The third one is seen when the others are gone: what they have left is unknown.
        open.tables.release(table);
        open.tables.release(table);
        assert_eq!(initial.table(3, &mut open), None);
    }

    #[test]
    fn a_process_that_is_seen_later_has_it_at_once() {
        let (mut initial, mut open) = (initial(), OpenFiles::default());
        initial.advance(5000, &mut open);
        let table = initial.table(1, &mut open).unwrap();
        assert!(names(&open, table).iter().all(Option::is_some));
    }

    #[test]
    fn events_know_better_than_what_the_recorder_saw_meanwhile() {
        let (mut initial, mut open) = (initial(), OpenFiles::default());
        let table = initial.table(1, &mut open).unwrap();
        let close = |fd| [Some(fd), None, None];
        initial.note(1050, table, Call::Close, &close(3));
        initial.note(1150, table, Call::Close, &close(4));
        let newer = open.files.of_path(b"/newer");
        open.tables.set(table, 5, newer, true);
        initial.advance(1300, &mut open);
        // It was closed before the recorder looked, so what it saw came later.
        assert!(open.tables.get(table, 3).is_some());
        assert_eq!((open.tables.get(table, 4), open.tables.get(table, 5)), (None, newer));
        let (mut initial, mut open) = (self::initial(), OpenFiles::default());
        let table = initial.table(1, &mut open).unwrap();
        initial.note(1150, table, Call::CloseRange, &close(0));
        initial.advance(1300, &mut open);
        assert_eq!(names(&open, table), [None; 4]);
    }
}
