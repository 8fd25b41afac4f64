//! Answers: what the threads, CPUs, system calls and interrupts of a recording did.
//!
//! | file | subject |
//! |---|---|
//! | `known` | events that are understood, with the fields that are used |
//! | `feed` | hands the records of a file on to an analysis |
//! | `evidence` | which events an answer is made of |
//! | `gaps` | which CPUs lack events at a time |
//! | `ids` | sets of events |
//! | `intervals` | one answer after the other about a recording that goes on |
//! | `parts` | stacks that are told apart by number |
//! | `threads` | the threads of a recording |
//! | `names` | names for what records have as numbers |
//! | `pauses` | times in which nothing was recorded |
//! | `recorded` | what a file says about which events were recorded |
//! | `pairs` | which events that begin something can be joined with those that end it |
//! | `lives` | whose a thread's number is |
//! | `schedule` | who has which CPU, and what threads do |
//! | `followed` | the threads of which a recording has every switch |
//! | `times`, `tally` | durations, and counts by their sizes |
//! | `who` | threads and interrupts as those who do something |
//! | `topic` | which analyses there are, and which events each of them uses |
//! | `state` | why a thread has no CPU |
//! | `sched` | how long threads ran, waited and slept |
//! | `offcpu` | where threads are without a CPU, what for, and who wakes them |
//! | `cpu` | what CPUs do, by samples |
//! | `stacks` | the stacks of any event |
//! | `calls` | system calls |
//! | `irqs` | interrupts |
//! | `io` | block devices and files |
//! | `summary` | all of it in short, and what is odd |
//! | `locks` | locks of the kernel and of processes |
//! | `memory` | pages, memory of the kernel, page faults |
//! | `churn` | tests of what analyses keep while they go on |
//! | `random` | numbers for tests |
//!
//! Each analysis is fed with records in the order of time, keeps what it knows of threads, CPUs and the like,
//! and gives its answer at the end. What it holds does not grow with the number of records.
//!
//! An answer says what it does not know: time before a thread was seen for the first time, and intervals in
//! which events were lost, are counted as such.

mod calls;
#[cfg(test)]
mod churn;
mod cpu;
mod evidence;
mod feed;
mod followed;
mod gaps;
mod ids;
mod intervals;
mod io;
mod irqs;
mod known;
mod lives;
mod locks;
mod memory;
#[cfg(test)]
mod metamorphic;
mod names;
mod nesting;
mod offcpu;
mod pairs;
mod parts;
mod pauses;
mod ran;
#[cfg(any(test, feature = "world"))]
mod random;
mod recorded;
mod sched;
mod schedule;
mod stacks;
mod state;
mod summary;
mod tally;
mod threads;
mod times;
mod topic;
mod who;

use std::{collections::BTreeSet, ops::ControlFlow};

use serde::Serialize;

#[cfg(any(test, feature = "world"))]
pub(crate) use self::random::Random;
pub use self::{
    calls::{Call, CallError, Calls, CallsAnswer, OfThread},
    cpu::{Cpu, CpuAnswer, CpuSamples},
    evidence::Evidence,
    feed::Feed,
    followed::Followed,
    gaps::{Gaps, PassedGap},
    intervals::Intervals,
    io::{
        FileKind, Io, IoAnswer, IoDevice, IoDone, IoFile, IoOfThread, IoRequester, IoRequests, IoSum,
        Operation,
    },
    irqs::{Irq, Irqs, IrqsAnswer, Softirq, TimeOfCpu},
    known::{Arguments, Context, Event, Follows, Known, KnownEvents, Request, Switch, Tid, Wakeup},
    lives::Lives,
    locks::{
        Futex, FutexCaller, FutexResult, FutexResults, FutexWait, FutexWaiter, FutexWaker, FutexesAnswer,
        KernelLock, KernelLockCaller, KernelLockWaiter, KernelLocksAnswer, LockKind, Locks, LocksAnswer,
        LocksOfThread,
    },
    memory::{
        AllocationSite, KernelCache, KernelMemory, Kill, Memory, MemoryAnswer, MemoryOfThread, PagesAnswer,
        PagesOfOrder, PagesPeak, Reclaim, SlabCounts,
    },
    names::Names,
    offcpu::{OffCpu, OffCpuAnswer, OffCpuOfThread, OffCpuStack, Reason, ReasonTime, WakerLink, Wakers},
    pairs::{Unjoined, Unseen},
    recorded::{Partly, followed_and_unjoined},
    sched::{CpuTime, Sched, SchedAnswer, ThreadTime, Waited},
    schedule::{Did, Does, Doing, Had, Moment, Observer, Schedule, Scheduled},
    stacks::{FunctionWeight, Pick, StackWeight, Stacks, StacksAnswer, Sum, ThreadWeight, Weight},
    state::Off,
    summary::{EventCount, Oddity, Summary, SummaryAnswer},
    tally::Room,
    times::{Times, TimesTold},
    topic::{Need, Topic},
};
pub use self::{
    io::{Completion, Place, Requests},
    irqs::softirq_name,
    nesting::{Interrupt, Nesting},
    threads::{Index, Thread, Threads},
};
use super::{Pace, Watch};
use ftrace_event::EventTable;
use report::TraceFile;
use stdx::input::glob;
use tracedat::reader::{Next, ReadError, Record, Source, each_record_ahead};

/// When and where a record is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Its time, in nanoseconds of the recording's clock.
    pub time: u64,
    /// Its CPU.
    pub cpu: u32,
}

/// The frames of a stack's part, the innermost first.
pub struct Frames<'f> {
    /// Whether they are of the kernel; otherwise of the process, and the last of several parts may follow.
    pub is_kernel: bool,
    /// Their addresses.
    pub addresses: &'f mut dyn Iterator<Item = u64>,
}

/// A record of any event, known or not.
#[derive(Clone, Copy)]
pub struct AnyRecord<'r> {
    /// The number of its event.
    pub id: u16,
    /// The events of its file.
    pub events: &'r EventTable,
    /// The record.
    pub record: &'r Record<'r>,
    /// Names that its file has.
    pub names: Names<'r>,
}

/// An analysis.
pub trait Analysis: Clone {
    /// What comes of it.
    type Answer: Serialize;

    /// Whether [`Analysis::stack`] is to be called.
    const WANTS_STACKS: bool = false;

    /// Whose events it looks at: those that the topic needs. `None` for all that are known.
    const TOPIC: Option<Topic> = None;

    /// Whether [`Analysis::look`] is to be called with all that is known, as [`Known::Seen`] where the topic
    /// does not need it: it shows who has a CPU.
    const SEES_ALL: bool = false;

    /// The recording begins at this time: that of its first record, whatever event that is of.
    fn begins(&mut self, _time: u64) {}

    /// Looks at a record. Times do not go back.
    fn look(&mut self, at: At, event: &Event<'_>);

    /// Looks at a record of any event, known or not, before [`Analysis::look`].
    fn count(&mut self, _at: At, _id: u16) {}

    /// Whether [`Analysis::pick`] is to be called with the records of an event, known or not.
    fn picks(&self, _id: u16) -> bool {
        false
    }

    /// Looks at a record of such an event, after [`Analysis::look`]. Returns whether it is used.
    fn pick(&mut self, _at: At, _record: &AnyRecord<'_>) -> bool {
        false
    }

    /// What the stack of the event that was looked at last is of: a number that comes back with it. `None` if
    /// it is not wanted.
    fn awaits_stack(&self) -> Option<u64> {
        None
    }

    /// The stack of an event, or the next part of it: of the kernel, of the process, or both one after the
    /// other.
    fn stack(&mut self, _of: u64, _frames: Frames<'_>) {}

    /// No more of a stack will come, if any of it has.
    fn stack_ended(&mut self, _of: u64, _names: &Names<'_>) {}

    /// Whether it looks at other events instead of these.
    fn does_without(&self, _need: &Need) -> bool {
        false
    }

    /// Events of this CPU were lost right before this time, or not recorded in a pause that begins or ends
    /// then.
    fn lost(&mut self, at: At);

    /// Forgets what was counted, but not what goes on, and counts from this time on.
    fn restart(&mut self, from: u64);

    /// Takes which events its answer is made of. What others would tell is unknown.
    fn rests_on(&mut self, _evidence: &Evidence) {}

    /// The answer, when the last record was looked at. `end` is when the recording ends, or what is asked of
    /// it.
    fn answer(self, end: u64, names: &Names<'_>) -> Self::Answer;
}

/// Which part of a recording is asked about.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// From this time on. What came before is looked at, as it says what is going on then.
    pub from: Option<u64>,
    /// Up to this time.
    pub to: Option<u64>,
    /// On these CPUs: all where nothing is said. A time is one of the CPU on which it ends.
    pub cpus: Option<BTreeSet<u32>>,
    /// The threads with these ids.
    pub tids: Option<BTreeSet<Tid>>,
    /// The threads whose names match one of these patterns ([`glob::bytes`]). A thread has the last of its
    /// names.
    pub names: Vec<String>,
    /// Also threads that were not recorded, but switched with ones that were, or woken by them.
    pub others: bool,
    /// The buffer with this name. Where nothing is said, an event is taken from the first buffer that has it.
    pub buffer: Option<String>,
}

impl Scope {
    /// How much of an interval is asked about.
    fn part(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(self.from.unwrap_or(0)), to.min(self.to.unwrap_or(u64::MAX)));
        to.saturating_sub(from)
    }

    /// Whether it is asked what happens at this time and place.
    fn has(&self, at: At) -> bool {
        self.has_cpu(at.cpu) && self.from.is_none_or(|from| at.time >= from)
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Whether it is asked about the whole recording.
    fn is_all(&self) -> bool {
        let Self { from, to, cpus, tids, names, others: _, buffer } = self;
        let is_any_time = from.is_none() && to.is_none();
        is_any_time && cpus.is_none() && tids.is_none() && names.is_empty() && buffer.is_none()
    }

    /// Whether it is asked about all threads.
    fn has_all_threads(&self) -> bool {
        self.tids.is_none() && self.names.is_empty()
    }

    /// Whether it is asked about a thread.
    fn has_thread(&self, tid: Tid, name: &[u8]) -> bool {
        self.tids.as_ref().is_none_or(|tids| tids.contains(&tid))
            && (self.names.is_empty() || self.names.iter().any(|pattern| glob::matches_name(pattern, name)))
    }
}

/// What an answer is about, and what of it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Covered {
    /// The time of the first record, or from when on was asked if that is later.
    pub from_ns: u64,
    /// The time of the last one, or up to when was asked if that is earlier.
    pub to_ns: u64,
    /// How many records the analysis has used.
    pub events: u64,
    /// How many events are known to be lost.
    pub lost_events: u64,
    /// At how many places events were lost, how many each.
    pub losses: u64,
    /// Of those, where it is not known how many.
    pub losses_uncounted: u64,
    /// In how many pauses of the recording, when nothing was recorded.
    pub pauses: u64,
    /// How long they were.
    pub paused_ns: u64,
    /// Records that were left out because another buffer has their event as well.
    pub of_other_buffers: u64,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
    /// Records whose values are not understood; what lasted over one is unknown.
    pub unread: u64,
    /// Events that the file has with fields of other types than the kernel's: `system:name`. None of them was
    /// used.
    pub foreign: Vec<String>,
    /// What is not known because such events were not recorded.
    pub missing: Vec<Need>,
    /// What is not known because there are no such events, and the file does not say whether they were
    /// recorded.
    pub unseen: Vec<Need>,
    /// Events that were not recorded each time that they fired.
    pub partly: Vec<Partly>,
    /// Events that begin something whose end is unknown: `system:name`, of which filters or sampling chose
    /// beginnings and ends, each on its own. None of them was used.
    pub unjoined: Vec<String>,
    /// Which threads and CPUs were recorded, in a few words, each of which leaves out others; none if all
    /// were or if the file does not say.
    pub only: Vec<String>,
    /// Whether what interrupts did counts for the threads that they interrupted, as records do not say
    /// whether they were made in interrupts.
    pub lacks_contexts: bool,
    /// How many system calls of 32-bit programs events of single calls (`syscalls:*`) left out, unless events
    /// of all calls have them. `None` if that is not known, or the analysis uses no system calls.
    pub compat_calls: Option<u64>,
    /// The same of the whole recording, if a part of it is asked about.
    #[serde(skip)]
    pub compat_calls_of_all: Option<u64>,
    /// Whether system calls of 32-bit programs look like 64-bit calls with the same numbers, as the kernel
    /// did not say which they are. `None` if that is not known.
    pub compat_unmarked: Option<bool>,
}

/// Feeds an analysis with the records of a file.
///
/// # Errors
/// The file cannot be read at all.
pub fn answer<S: Source, A: Analysis>(
    file: &TraceFile<S>,
    topic: Topic,
    scope: &Scope,
    analysis: A,
    watch: Watch<'_>,
) -> Result<(A::Answer, Covered), ReadError> {
    let mut records = file.reader().records()?;
    let mut feed = Feed::new(file, scope.clone(), analysis);
    let mut pace = Pace::new(watch);
    let wanted = feed.wanted();
    each_record_ahead(
        &mut records,
        |record| wanted.bytes_of(record),
        |next| {
            match next {
                Next::Record(record) => {
                    pace.step(record.timestamp);
                    feed.take(file, &record);
                }
                Next::Gap(gap) => feed.gap(file, gap.buffer, gap.cpu),
                Next::End(end) => feed.end(file, &end),
                Next::Damage(_) => feed.damaged(),
            }
            if feed.is_past_end() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    Ok(feed.answer(file, topic))
}
