//! Which process a thread belongs to, as far as a recording tells it: by the state of the machine at its
//! begin, which recordings of this recorder have, and by `task:task_newtask`. What the threads of the state
//! were called then.

use super::{Recording, Snapshot};
use ftrace_event::{EventTable, FieldReader, Meaning};
use stdx::fast_map::FastMap;
use tracedat::reader::Record;

/// `CLONE_THREAD` (include/uapi/linux/sched.h).
const CLONE_THREAD: u64 = 0x10000;
/// Most threads of which it is kept: a kernel has no more at a time (`PID_MAX_LIMIT` of
/// include/linux/threads.h).
const MOST: usize = 1 << 22;

/// The processes of threads.
#[derive(Debug)]
pub struct Processes {
    /// By the ids of threads.
    found: FastMap<u32, u32>,
    /// Names at the begin.
    names: FastMap<u32, Box<str>>,
    new_task: Option<NewTask>,
}

/// Where the fields of `task:task_newtask` are.
#[derive(Clone, Copy, Debug)]
struct NewTask {
    id: u16,
    /// Who makes the new one.
    maker: FieldReader,
    child: FieldReader,
    flags: FieldReader,
}

impl Processes {
    /// Those of a recording that began with this state.
    pub fn new(state: Option<&Snapshot>, recording: &Recording<'_>) -> Self {
        let threads = || state.into_iter().flat_map(|state| &state.state.threads);
        let found = threads().filter(|thread| thread.tgid != 0).map(|thread| (thread.tid, thread.tgid));
        let named = threads().filter(|thread| !thread.comm.is_empty());
        let names = named.map(|thread| (thread.tid, thread.comm.as_str().into()));
        Self { found: found.collect(), names: names.collect(), new_task: NewTask::of(recording.events()) }
    }

    /// Learns from a record to which process a new thread belongs.
    pub fn look(&mut self, record: &Record<'_>) {
        let Some(event) = self.new_task.filter(|event| record.event_id() == Some(event.id)) else { return };
        let number = |field: FieldReader| field.number(record.data);
        let (Some(maker), Some(child), Some(flags)) =
            (number(event.maker), number(event.child), number(event.flags))
        else {
            return;
        };
        let (maker, child) = (maker as u32, child as u32);
        let process = if flags & CLONE_THREAD == 0 { child } else { self.of(maker) };
        if self.found.len() < MOST || self.found.contains_key(&child) {
            self.found.insert(child, process);
        }
    }

    /// The process of a thread; a thread of which nothing is known counts as one by itself.
    pub fn of(&self, thread: u32) -> u32 {
        self.found.get(&thread).copied().unwrap_or(thread)
    }

    /// The name that a thread had when the recording began; `None` if that is not known.
    pub fn first_name(&self, thread: u32) -> Option<&str> {
        self.names.get(&thread).map(|name| &**name)
    }
}

impl NewTask {
    fn of(events: &EventTable) -> Option<Self> {
        let event = events.iter().find(|event| event.system() == "task" && event.name() == "task_newtask")?;
        let field = |name: &str| event.typed(name, Meaning::Number);
        Some(Self {
            id: event.format().id,
            maker: field("common_pid")?,
            child: field("pid")?,
            flags: field("clone_flags")?,
        })
    }
}
