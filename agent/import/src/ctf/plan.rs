//! What becomes of the events of a kind.

use super::columns::{Columns, Place, Root};
use super::formats;
use super::lttng::{Naming, Tracer, Tracing};
use super::packet::Event;
use super::schema::{Event as EventClass, Stream};
use super::threads::Threads;
use super::value::Value;
use crate::event::{EventSpec, Integer};
use crate::{At, Common, EventId, ImportError, Sink, StackOf};

/// The fields of a kind of events, and what else they tell.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) event: EventId,
    pub(super) columns: Columns,
    /// The thread, if each event tells it.
    thread: Option<Place>,
    flags: Option<Place>,
    preempt_count: Option<Place>,
    /// The thread's name.
    comm: Option<Place>,
    /// Its process.
    process: Option<Place>,
    /// The stacks of the kernel and of the process.
    stacks: [Option<Place>; 2],
    /// What the event says of other threads.
    says: Says,
}

/// LTTng's contexts that are stacks: of the kernel, and of the process.
const STACKS: [&str; 2] = ["callstack_kernel", "callstack_user"];

#[derive(Debug)]
enum Says {
    Nothing,
    /// Which thread goes, and which one comes, with their names.
    Switch {
        prev: Named,
        next: Named,
    },
    /// The name of a thread.
    Thread {
        named: Named,
        is_state: bool,
    },
}

#[derive(Debug)]
struct Named {
    tid: Option<Place>,
    comm: Option<Place>,
}

impl Named {
    fn of(class: &EventClass, tid: &str, comm: &str) -> Self {
        let place = |name| Place::of(Root::Fields, class.fields.as_ref(), name);
        Self { tid: place(tid), comm: place(comm) }
    }

    fn tid(&self, event: &Event<'_, '_>) -> Option<u32> {
        self.tid.as_ref()?.number(event).and_then(|tid| u32::try_from(tid).ok())
    }

    fn tell(&self, event: &Event<'_, '_>, rank: (u8, u64), threads: &mut Threads) {
        let comm = self.comm.as_ref().and_then(|comm| comm.text(event));
        if let (Some(tid), Some(comm)) = (self.tid(event), comm) {
            threads.name(tid, comm, rank);
        }
    }
}

impl Plan {
    /// Makes the plan of a kind of events, and describes them to the file.
    pub(super) fn new(
        (tracing, naming): (Tracing, Naming),
        stream: &Stream,
        class: &EventClass,
        sink: &mut Sink<'_>,
    ) -> Result<Self, ImportError> {
        let shared = stream.event_context.as_ref();
        let context = |name| {
            let shared = Place::of(Root::StreamContext, shared, name);
            shared.or_else(|| Place::of(Root::Context, class.context.as_ref(), name))
        };
        let thread = Self::thread(tracing, class, &context);
        let common = |name| context(name).or_else(|| tracing.common_field(class, name));
        let flags = common("common_flags");
        let preempt_count = common("common_preempt_count");
        // It is a field, too: the thread may have another name later.
        let comm = thread.as_ref().and_then(|_| context("procname"));
        // Of programs that are in a namespace, both numbers are those in it.
        let process = context("vpid").filter(|_| thread.is_some() && context("vtid") == thread);
        let stacks = STACKS.map(|name| context(name).filter(|place| place.is_numbers(stream, class)));
        // `vtid` need not be the thread of the first namespace, and stays a field.
        let taken: Vec<Place> = ["common_pid", "tid", "common_flags", "common_preempt_count", "common_type"]
            .into_iter()
            .filter_map(common)
            .chain(stacks.iter().flatten().cloned())
            .collect();
        let taken: Vec<&Place> = taken.iter().collect();
        let mut columns = Columns::default();
        if let Some(number) = naming.call_number() {
            columns.constant("__syscall_nr", Integer::new(4, true), number);
        }
        columns.fields(class.fields.as_ref(), &naming, &taken);
        columns.contexts(Root::StreamContext, shared, &taken);
        columns.contexts(Root::Context, class.context.as_ref(), &taken);
        let named = |tid, comm| Named::of(class, tid, comm);
        let says = match class.name.as_str() {
            "sched_switch" => {
                Says::Switch { prev: named("prev_tid", "prev_comm"), next: named("next_tid", "next_comm") }
            }
            "sched:sched_switch" => {
                Says::Switch { prev: named("prev_pid", "prev_comm"), next: named("next_pid", "next_comm") }
            }
            "lttng_statedump_process_state" => Says::Thread { named: named("tid", "name"), is_state: true },
            "sched_process_fork" => Says::Thread { named: named("child_tid", "child_comm"), is_state: false },
            "sched:sched_process_fork" => {
                Says::Thread { named: named("child_pid", "child_comm"), is_state: false }
            }
            "task:task_rename" => Says::Thread { named: named("pid", "newcomm"), is_state: false },
            _ => Says::Nothing,
        };
        let fields = columns.specs.clone();
        let print_fmt = formats::print_fmt(&naming.system, &naming.name, &fields);
        let spec = EventSpec { system: naming.system, name: naming.name, fields, print_fmt };
        let event = sink.event(&spec)?;
        Ok(Self { event, columns, thread, flags, preempt_count, comm, process, stacks, says })
    }

    /// Where an event has its thread.
    fn thread(
        tracing: Tracing,
        class: &EventClass,
        context: &impl Fn(&'static str) -> Option<Place>,
    ) -> Option<Place> {
        let found = ["common_pid", "perf_tid", "tid", "vtid"].into_iter().find_map(context);
        if found.is_some() || tracing.tracer != Tracer::Other {
            return found;
        }
        // perf has no contexts, and what others call `pid` may be all that they have.
        let field = |name| Place::of(Root::Fields, class.fields.as_ref(), name);
        let of_perf = ["perf_tid", "common_pid"].into_iter().find_map(field);
        let found = of_perf.or_else(|| ["pid", "perf_pid"].into_iter().find_map(context));
        found.or_else(|| ["tid", "vtid", "perf_pid"].into_iter().find_map(field))
    }

    /// The process of an event's thread, if the event tells it.
    pub(super) fn process(&self, event: &Event<'_, '_>) -> Option<u32> {
        self.process.as_ref()?.number(event).and_then(|pid| u32::try_from(pid).ok())
    }

    /// Writes the stacks of an event, whose record was written.
    pub(super) fn stacks(
        &self,
        event: &Event<'_, '_>,
        at: At,
        common: Common,
        sink: &mut Sink<'_>,
    ) -> Result<(), ImportError> {
        let of = [StackOf::Kernel, StackOf::Process(0)];
        self.stacks.iter().zip(of).try_for_each(|(place, of)| {
            match place.as_ref().and_then(|place| place.value(event)) {
                Some(Value::Numbers(addresses)) => sink.stack(at, common, of, addresses),
                _ => Ok(()),
            }
        })
    }

    /// Whether events say that they were in an interrupt.
    pub(super) fn has_flags(&self) -> bool {
        self.flags.is_some()
    }

    /// What all records have, of an event at this time. `current` is the thread that runs, as far as it is
    /// known, and is it afterwards; gives whether the thread of the event is known.
    pub(super) fn common(
        &self,
        (event, time): (&Event<'_, '_>, u64),
        current: &mut Option<u32>,
        threads: &mut Threads,
    ) -> (Common, bool) {
        let number = |place: &Option<Place>| place.as_ref().and_then(|place| place.number(event));
        let small = |place: &Option<Place>| number(place).map_or(0, |number| number as u8);
        let mut pid = number(&self.thread).map(|pid| pid as u32);
        match &self.says {
            Says::Switch { prev, next } => {
                pid = pid.or_else(|| prev.tid(event));
                prev.tell(event, (1, time), threads);
                next.tell(event, (1, time), threads);
                *current = next.tid(event);
            }
            Says::Thread { named, is_state } => named.tell(event, (u8::from(!is_state), time), threads),
            Says::Nothing => {}
        }
        if let (Some(pid), Some(comm)) = (pid, self.comm.as_ref().and_then(|comm| comm.text(event))) {
            threads.name(pid, comm, (2, time));
        }
        let is_switch = matches!(self.says, Says::Switch { .. });
        let pid = pid.or(if is_switch { None } else { *current });
        let common = Common {
            pid: pid.unwrap_or(0),
            flags: small(&self.flags),
            preempt_count: small(&self.preempt_count),
        };
        (common, pid.is_some())
    }
}
