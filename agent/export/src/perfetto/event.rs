//! From a record to an `FtraceEvent`.

use std::collections::{BTreeMap, HashMap};

use prost::encoding::{WireType, encode_key, encode_varint, int64, uint32, uint64};

use super::calls::{Calls, Drawn, is_thread, may_write_markers};
use super::held::{Beginning, Held, Lane};
use super::packet::InternedString;
use super::table::{self, Known, Type};
use analysis::answers::{Unjoined, followed_and_unjoined};
use ftrace_event::copies::copied_argument;
use ftrace_event::stacks::STACK_FIELD;
use ftrace_event::stacks::symbol;
use ftrace_event::syscalls::{ANY_CALL, CallNames, call_of, returns_to_interrupted};
use ftrace_event::{EventTable, FieldKind, FieldReader, Meaning, Printer, Symbols, Value};
use recording::{NotCarried, Recording};
use tracedat::ledger::{Ledger, Pause};
use tracedat::reader::Record;

/// `FtraceEventBundle.event`.
const EVENT: u32 = 2;
// Fields of `FtraceEvent`.
const TIMESTAMP: u32 = 1;
const PID: u32 = 2;
const COMMON_FLAGS: u32 = 5;
const GENERIC: u32 = 327;
// Fields of `GenericFtraceEvent` and of its fields.
const EVENT_NAME: u32 = 1;
const FIELD: u32 = 2;
const FIELD_NAME: u32 = 1;
const STR_VALUE: u32 = 3;
const INT_VALUE: u32 = 4;
const UINT_VALUE: u32 = 5;
// Fields of `SysEnterFtraceEvent`, `SysExitFtraceEvent`, `PrintFtraceEvent`.
const SYSCALL_ID: u32 = 1;
const SYSCALL_ARGS: u32 = 2;
const SYSCALL_RET: u32 = 2;
const PRINT_BUF: u32 = 2;
/// What `PrintFtraceEvent` has for the end of the last slice of its thread.
const END_OF_SLICE: &[u8] = b"E|0";

const ENTER: (&str, &str) = ("raw_syscalls", "sys_enter");
const EXIT: (&str, &str) = ("raw_syscalls", "sys_exit");
/// Events at which threads end, or get another number.
const ENDS_OF_THREADS: [&str; 2] = ["sched:sched_process_exit", "sched:sched_process_exec"];

/// No kernel has more events that begin something. What more of them begin is not drawn.
const MOST_BEGINNINGS: usize = 1 << 11;

/// The events that the viewer draws, and therefore gets as its own ones even if a record has more fields than
/// those have.
const DRAWN: [&str; 30] = [
    "clock_set_rate",
    "cpu_frequency",
    "cpu_idle",
    "funcgraph_entry",
    "funcgraph_exit",
    "gpu_frequency",
    "ipi_entry",
    "ipi_exit",
    "ipi_raise",
    "irq_handler_entry",
    "irq_handler_exit",
    "print",
    "rss_stat",
    "sched_blocked_reason",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
    "sched_process_free",
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "signal_deliver",
    "signal_generate",
    "softirq_entry",
    "softirq_exit",
    "softirq_raise",
    "task_newtask",
    "task_rename",
    "workqueue_execute_start",
];

/// The messages that Perfetto has for events, by their names.
type Messages = HashMap<&'static str, table::Message>;

/// The symbols that a sequence has numbers for.
#[derive(Debug, Default)]
pub(super) struct Interned {
    /// The numbers by address.
    numbers: BTreeMap<u64, u64>,
    /// Those that no packet has told yet.
    pub(super) new: Vec<InternedString>,
}

impl Interned {
    /// The number of the symbol at an address, which is new if it was not asked for before; where there is no
    /// symbol, that of the address.
    fn number(&mut self, address: u64, symbols: &dyn Symbols) -> u64 {
        let next = self.numbers.len() as u64 + 1;
        *self.numbers.entry(address).or_insert_with(|| {
            let name = symbol(symbols, address);
            let str = name.map_or_else(|| format!("{address:#x}"), |symbol| symbol.name.to_owned());
            self.new.push(InternedString { iid: next, str: str.into_bytes() });
            next
        })
    }
}

/// Events that the viewer joins, beside those of system calls, which it draws by thread or by CPU: what
/// begins, what ends it, and the field that is the same in both.
const PAIRS: [Pair; 4] = [
    Pair {
        system: "irq",
        begins: "irq_handler_entry",
        ends: "irq_handler_exit",
        lane: Lane::Irq,
        same: Some("irq"),
    },
    Pair {
        system: "irq",
        begins: "softirq_entry",
        ends: "softirq_exit",
        lane: Lane::Softirq,
        same: Some("vec"),
    },
    Pair {
        system: "vmscan",
        begins: "mm_vmscan_direct_reclaim_begin",
        ends: "mm_vmscan_direct_reclaim_end",
        lane: Lane::Reclaim,
        same: None,
    },
    Pair {
        system: "vmscan",
        begins: "mm_vmscan_memcg_reclaim_begin",
        ends: "mm_vmscan_memcg_reclaim_end",
        lane: Lane::Reclaim,
        same: None,
    },
];

struct Pair {
    system: &'static str,
    begins: &'static str,
    ends: &'static str,
    lane: fn(u32) -> Lane,
    same: Option<&'static str>,
}

/// A beginning or an end.
#[derive(Clone, Copy)]
struct Half {
    lane: fn(u32) -> Lane,
    begins: bool,
    what: What,
}

/// Where records have what begins or ends.
#[derive(Clone, Copy)]
enum What {
    /// They do not.
    Nowhere,
    Field(FieldReader),
    /// The number of a system call, or what stands for it where that is negative.
    Call(Option<FieldReader>, i64),
}

impl Half {
    /// What an event is, among events of these calls.
    fn of(printer: &Printer, calls: &Calls) -> Option<Self> {
        let typed = |name| printer.typed(name, Meaning::Number);
        let field = |name| typed(name).map_or(What::Nowhere, What::Field);
        let (system, name) = (printer.system(), printer.name());
        if let Some(pair) =
            PAIRS.iter().find(|pair| pair.system == system && [pair.begins, pair.ends].contains(&name))
        {
            let what = pair.same.map_or(What::Nowhere, field);
            return Some(Self { lane: pair.lane, begins: name == pair.begins, what });
        }
        let (begins, what) = match (system, name) {
            ENTER | EXIT => ((system, name) == ENTER, field("id")),
            ("syscalls", name) if is_of_call(name) => {
                let number = typed("__syscall_nr").or_else(|| typed("nr"));
                let named = call_of(name).map_or(ANY_CALL, |call| calls.number_of(call));
                (name.starts_with("sys_enter_"), What::Call(number, named))
            }
            _ => return None,
        };
        Some(Self { lane: Lane::Call, begins, what })
    }

    /// The line that a record of a thread is drawn in.
    fn lane(&self, record: &Record<'_>, thread: u32) -> Lane {
        match (self.lane)(thread) {
            lane @ (Lane::Call(_) | Lane::Reclaim(_)) => lane,
            Lane::Irq(_) | Lane::Softirq(_) => (self.lane)(record.cpu),
        }
    }
}

impl What {
    fn of(self, record: &[u8]) -> Option<i64> {
        let number = |field: FieldReader| field.number(record).map(u64::cast_signed);
        match self {
            Self::Nowhere => None,
            Self::Field(field) => number(field),
            Self::Call(field, named) => {
                Some(field.and_then(number).filter(|number| *number >= 0).unwrap_or(named))
            }
        }
    }
}

/// Whether an event of `syscalls` begins or ends a call.
fn is_of_call(name: &str) -> bool {
    name.starts_with("sys_enter_") || name.starts_with("sys_exit_")
}

/// What makes events of records.
pub(super) struct Encoder<'a> {
    plans: HashMap<u16, Plan>,
    /// Where events may be missing.
    held: Option<Held>,
    sink: Sink<'a>,
    with_preempt_count: u64,
    /// By event, values that its records have and Perfetto's own event has not.
    left_out: BTreeMap<u16, Vec<String>>,
}

/// What writes events.
struct Sink<'a> {
    events: &'a EventTable,
    symbols: &'a dyn Symbols,
    calls: Calls,
    scratch: Scratch,
    not_carried: NotCarried,
    /// By event, how many records became generic events, so that the viewer does not draw them.
    undrawn: BTreeMap<u16, u64>,
}

/// Memory that each event uses.
#[derive(Default)]
struct Scratch {
    message: Vec<u8>,
    event: Vec<u8>,
    text: String,
}

/// How many records of an event there are.
fn records_of(recording: &Recording<'_>, id: u16) -> u64 {
    let counts = recording.cpu_streams().iter().flat_map(|stream| &stream.by_id);
    counts.filter(|(of, _)| *of == id).map(|(_, records)| records).sum()
}

/// How the records of one event are written.
struct Plan {
    pid: Option<FieldReader>,
    flags: Option<FieldReader>,
    preempt_count: Option<FieldReader>,
    kinds: Vec<Kind>,
    /// Stacks belong to the record before them.
    is_stack: bool,
    /// What it begins or ends, if the viewer draws that.
    half: Option<Half>,
    /// Whether what it begins can be joined with ends.
    is_joined: bool,
    /// Each record as an event that the viewer does not draw.
    undrawn: Option<Kind>,
    life: Option<Life>,
}

/// Which part of something a record is, for the viewer.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// As it was recorded, in a recording that has each end.
    Recorded,
    /// A beginning whose end comes, or that is drawn without one.
    Begins,
    /// A beginning that is not drawn.
    IsUndrawn,
    /// An end, of a call by this number; `None` if what it ends is not drawn.
    Ends(Option<i64>),
}

/// What becomes of a thread.
#[derive(Clone, Copy)]
enum Life {
    /// It begins.
    Begins(FieldReader),
    /// The one of the record ends.
    Ends,
    /// One with this number has ended, perhaps before another one with it began.
    IsFreed(FieldReader),
    /// It runs another program, and had the second number.
    Execs(FieldReader, FieldReader),
    /// It has another name, by which it may be recorded or not.
    IsRenamed(FieldReader),
}

/// A message that a record becomes.
enum Kind {
    /// One that Perfetto has for the event.
    Known { number: u32, fields: Vec<(Known, FieldReader)>, function: Option<u32> },
    /// Any event.
    Generic { name: String, fields: Vec<(String, FieldReader)> },
    /// A system call, whose event has its arguments as fields.
    Enter { message: u32, half: Half, args: Vec<FieldReader>, is_slice: bool, named: Named },
    /// The end of one; a generic event if it has no number and ends nothing that is drawn.
    Exit { message: u32, half: Half, result: FieldReader, print: u32, generic: Box<Kind> },
    /// The end of a slice, before another call of its thread, if its own is not there.
    EndOfSlice { print: u32 },
    /// The same at the end of its thread, or where that gets another number than the one here.
    EndOfThread { print: u32, number: Option<FieldReader> },
    /// One of all system calls, whose result only its end has.
    AnyCall {
        event: Box<Kind>,
        undrawn: Box<Kind>,
        number: FieldReader,
        result: Option<FieldReader>,
        print: u32,
    },
    /// A text that is only known when it is printed.
    Print { message: u32 },
}

/// A marker of user space that draws a system call without a number.
#[derive(Clone, Debug)]
struct Named {
    print: u32,
    text: String,
    is_slice: bool,
}

impl<'a> Encoder<'a> {
    /// For the events of a recording.
    pub(super) fn new(recording: &'a Recording<'_>, symbols: &'a dyn Symbols) -> Self {
        let events = recording.events();
        let messages = table::messages();
        let is_marker = |printer: &Printer| {
            printer.system() == "ftrace" && matches!(printer.name(), "print" | "bprint" | "bputs")
        };
        let calls = Calls::new(CallNames::of(recording.syscalls(), events), events.iter().any(is_marker));
        let (_, unjoined, _) = followed_and_unjoined(recording.file(), events);
        let ledgers: Vec<Ledger> = Ledger::all_of(recording.file()).collect();
        let begins = |printer: &&Printer| Half::of(printer, &calls).is_some_and(|half| half.begins);
        let begins: Vec<&Printer> = events.iter().filter(begins).collect();
        let are_few = begins.len() <= MOST_BEGINNINGS;
        let held = (!are_few || may_lack_events(recording, &begins, &ledgers, &unjoined)).then(|| {
            let pauses = ledgers.iter().flat_map(times_without_all);
            Held::new(pauses.map(|pause| pause.corrected(recording.file().clock())))
        });
        let names_choose =
            ledgers.iter().any(|ledger| ledger.only.iter().any(|only| only.contains("threads named ")));
        let mut not_carried = NotCarried::default();
        let (mut plans, mut left_out) = (HashMap::new(), BTreeMap::new());
        // With both, each system call would be there twice.
        let draws_calls = draws_single_calls(events);
        for printer in events.iter() {
            let id = printer.format().id;
            let is_joined = are_few && is_joined(printer, &calls, &unjoined, &ledgers);
            let mut plan = Plan::of(printer, &messages, &calls, draws_calls, is_joined);
            plan.life = plan.life.filter(|life| names_choose || !matches!(life, Life::IsRenamed(_)));
            if held.is_none() {
                plan.end_slices(messages.get("print").map(|print| print.number));
            }
            not_carried
                .add("systems of events: their names are there", u64::from(records_of(recording, id) != 0));
            let fields = plan.left_out(printer);
            if !fields.is_empty() {
                left_out.insert(id, fields);
            }
            plans.insert(id, plan);
        }
        let (scratch, undrawn) = (Scratch::default(), BTreeMap::new());
        let sink = Sink { events, symbols, calls, scratch, not_carried, undrawn };
        Self { plans, held, sink, with_preempt_count: 0, left_out }
    }

    /// What it could not carry over so far.
    pub(super) fn take_not_carried(&mut self, recording: &Recording<'_>) -> NotCarried {
        let Self { sink, with_preempt_count, left_out, .. } = self;
        let not_carried = &mut sink.not_carried;
        let counted = std::mem::take(with_preempt_count);
        not_carried.add("preempt counts of records, which Perfetto's events do not have", counted);
        for (id, fields) in std::mem::take(left_out) {
            let Some(printer) = sink.events.get(id) else { continue };
            let drawn = records_of(recording, id).saturating_sub(sink.undrawn.get(&id).copied().unwrap_or(0));
            for field in fields {
                let name = format!("{}:{}.{field}", printer.system(), printer.name());
                let what = format!("values of {name}: Perfetto's own event does not have the field");
                not_carried.add(what, drawn);
            }
        }
        std::mem::take(not_carried)
    }

    /// A CPU of a buffer lacks events from now on, until its next record.
    pub(super) fn begin_gap(&mut self, buffer: usize, cpu: u32) {
        if let Some(held) = &mut self.held {
            held.begin_gap(buffer, cpu);
        }
    }

    /// What is in no bundle yet, though its time has come, one after the other.
    pub(super) fn released(&mut self) -> Option<Released> {
        let (beginning, is_drawn) = self.held.as_mut()?.released()?;
        Some(Released { beginning, is_drawn })
    }

    /// No more records come.
    pub(super) fn finish(&mut self) {
        if let Some(held) = &mut self.held {
            held.forget_all();
        }
    }

    /// Adds a record to a bundle, whose sequence has these symbols.
    pub(super) fn encode(&mut self, record: &Record<'_>, interned: &mut Interned, bundle: &mut Vec<u8>) {
        let Self { plans, held, sink, with_preempt_count, .. } = self;
        if let Some(held) = held {
            held.pass(record);
        }
        let Some((plan, source)) = source(plans, sink.events, record) else { return };
        let preempt_count = plan.preempt_count.and_then(|count| source.number(count));
        *with_preempt_count += u64::from(preempt_count.is_some_and(|count| count != 0));
        let to = &mut To { interned, bundle };
        if let Some(held) = held {
            if !plan.is_stack {
                held.end_stacks(record);
            } else if held.keeps_stack(record) {
                return;
            }
        }
        if let Some(life) = plan.life
            && sink.follow(life, source, held.as_mut())
        {
            sink.put_undrawn(plan, source, to);
            return;
        }
        let Some(half) = plan.half else { return sink.put_all(plan, source, Phase::Recorded, to) };
        let lane = half.lane(record, source.thread);
        let is_in_lane = !matches!(lane, Lane::Call(thread) | Lane::Reclaim(thread) if !is_thread(thread));
        match held {
            // It ends with no thread.
            _ if half.begins && !is_in_lane => sink.put_undrawn(plan, source, to),
            None => {
                let is_drawn = match lane {
                    Lane::Reclaim(thread) => sink.calls.reclaims(thread, half.begins) || half.begins,
                    _ => true,
                };
                if is_drawn {
                    sink.put_all(plan, source, Phase::Recorded, to);
                } else {
                    sink.put_undrawn(plan, source, to);
                }
            }
            Some(held) if half.begins => sink.begin(plan, source, held, (lane, half.what), to),
            Some(held) => {
                let what = half.what.of(record.data);
                let begun = held.take(lane);
                let is_its = begun.as_ref().is_some_and(|begun| sink.joins(lane, begun.what, what));
                let open = begun.as_ref().filter(|_| is_its).and_then(|begun| begun.what);
                match begun {
                    // Both may have the same time.
                    Some(begun) if begun.cpu() == record.cpu => {
                        sink.put_beginning(plans, &begun, is_its, to);
                    }
                    Some(begun) => held.release(begun, is_its),
                    None => {}
                }
                // It would end another slice, but for calls, which have numbers.
                if is_its || matches!(lane, Lane::Call(_)) {
                    sink.put_all(plan, source, Phase::Ends(open), to);
                } else {
                    sink.put_undrawn(plan, source, to);
                }
            }
        }
    }

    /// Adds what is released to a bundle of its CPU.
    pub(super) fn encode_released(
        &mut self,
        Released { beginning, is_drawn }: &Released,
        interned: &mut Interned,
        bundle: &mut Vec<u8>,
    ) {
        self.sink.put_beginning(&self.plans, beginning, *is_drawn, &mut To { interned, bundle });
    }
}

/// A beginning that waits no more.
pub(super) struct Released {
    beginning: Beginning,
    is_drawn: bool,
}

impl Released {
    /// The CPU whose bundle it is for.
    pub(super) fn cpu(&self) -> u32 {
        self.beginning.cpu()
    }
}

/// A record on its way into a bundle.
#[derive(Clone, Copy)]
struct Source<'e> {
    printer: &'e Printer,
    record: &'e Record<'e>,
    thread: u32,
    flags: Option<u64>,
}

impl Source<'_> {
    fn number(&self, field: FieldReader) -> Option<u64> {
        field.value(self.record.data).ok()?.address()
    }

    fn thread_in(&self, field: FieldReader) -> Option<u32> {
        field.number(self.record.data).map(|number| number as u32)
    }
}

/// How a record is written, and what it has. `None` of those that the survey found, whose events are unknown.
fn source<'e>(
    plans: &'e HashMap<u16, Plan>,
    events: &'e EventTable,
    record: &'e Record<'e>,
) -> Option<(&'e Plan, Source<'e>)> {
    let id = record.event_id()?;
    let (plan, printer) = (plans.get(&id)?, events.get(id)?);
    let mut source = Source { printer, record, thread: 0, flags: None };
    source.thread = plan.pid.and_then(|pid| source.number(pid)).unwrap_or(0) as u32;
    source.flags = plan.flags.and_then(|flags| source.number(flags)).filter(|flags| *flags != 0);
    Some((plan, source))
}

/// A bundle, and the symbols of its sequence.
struct To<'t> {
    interned: &'t mut Interned,
    bundle: &'t mut Vec<u8>,
}

impl Sink<'_> {
    /// Follows a thread's life. Returns whether the event must stay hidden from the viewer.
    fn follow(&mut self, life: Life, source: Source<'_>, mut held: Option<&mut Held>) -> bool {
        let thread_in = |field| source.thread_in(field);
        let over = match life {
            Life::IsFreed(number) => {
                // Another thread has the number if one is in a call.
                let is_busy = |thread| match &held {
                    Some(held) => {
                        [Lane::Call(thread), Lane::Reclaim(thread)].iter().any(|lane| held.is_waiting(*lane))
                    }
                    None => self.calls.is_open(thread),
                };
                return thread_in(number).is_some_and(is_busy);
            }
            Life::Ends => [Some(source.thread), None],
            // The number that it gets was that of another thread, which has ended.
            Life::Execs(number, before) => {
                let numbers = [thread_in(number), thread_in(before)];
                if numbers[0] == numbers[1] { [None; 2] } else { numbers }
            }
            Life::Begins(number) | Life::IsRenamed(number) => [thread_in(number), None],
        };
        for over in over.into_iter().flatten() {
            match &mut held {
                Some(held) => {
                    held.forget(Lane::Call(over));
                    if !matches!(life, Life::IsRenamed(_)) {
                        held.forget(Lane::Reclaim(over));
                    }
                }
                None => {
                    self.calls.reclaims(over, false);
                }
            }
        }
        false
    }

    /// Whether an end is that of what has begun in its lane.
    fn joins(&self, lane: Lane, begun: Option<i64>, ended: Option<i64>) -> bool {
        match (lane, begun.zip(ended)) {
            (Lane::Call(_), Some((begun, ended))) => self.calls.is_end_of(ended, begun),
            _ => begun == ended,
        }
    }

    /// Adds what begins to a bundle, or has it wait.
    fn begin(
        &mut self,
        plan: &Plan,
        source: Source<'_>,
        held: &mut Held,
        (lane, what): (Lane, What),
        to: &mut To<'_>,
    ) {
        let what = what.of(source.record.data);
        if !plan.is_joined || !held.is_whole(lane) {
            held.forget(lane);
            self.put_undrawn(plan, source, to);
        } else if !plan.begins_slice(source, &self.calls) {
            held.forget(lane);
            self.put_all(plan, source, Phase::Begins, to);
        } else {
            held.begin(lane, what, source.record);
        }
    }

    /// Adds what waited to a bundle, and its stacks.
    fn put_beginning(
        &mut self,
        plans: &HashMap<u16, Plan>,
        beginning: &Beginning,
        is_drawn: bool,
        to: &mut To<'_>,
    ) {
        for (nth, record) in beginning.records().enumerate() {
            let Some((plan, source)) = source(plans, self.events, &record) else { continue };
            match (nth, is_drawn) {
                (0, true) => self.put_all(plan, source, Phase::Begins, to),
                (0, false) => self.put_undrawn(plan, source, to),
                _ => self.put_all(plan, source, Phase::Recorded, to),
            }
        }
    }

    /// Adds all messages of a record to a bundle.
    fn put_all(&mut self, plan: &Plan, source: Source<'_>, phase: Phase, to: &mut To<'_>) {
        for kind in &plan.kinds {
            self.put(kind, source, phase, to);
        }
    }

    /// Adds a record without what the viewer draws.
    fn put_undrawn(&mut self, plan: &Plan, source: Source<'_>, to: &mut To<'_>) {
        *self.undrawn.entry(source.printer.format().id).or_default() += 1;
        if let Some(kind) = plan.undrawn.as_ref().or(plan.kinds.last()) {
            self.put(kind, source, Phase::IsUndrawn, to);
        }
    }

    fn put(&mut self, kind: &Kind, source: Source<'_>, phase: Phase, to: &mut To<'_>) {
        let Source { printer, record, thread, flags } = source;
        let Scratch { message, event, text } = &mut self.scratch;
        message.clear();
        let mut fields = Fields {
            out: message,
            text,
            symbols: self.symbols,
            calls: &mut self.calls,
            thread,
            phase,
            record: record.data,
            broken: 0,
            replaced: 0,
            unnumbered: 0,
        };
        let tag = kind.write(&mut fields, printer, to.interned);
        let Fields { thread, broken, replaced, unnumbered, .. } = fields;
        if unnumbered != 0 {
            self.not_carried.add("arguments and results of system calls of 32-bit programs", unnumbered);
        }
        let Some(tag) = tag else { return };
        put(event, message, (record.timestamp, thread, flags), tag, to.bundle);
        if broken + replaced != 0 {
            let name = format!("{}:{}", printer.system(), printer.name());
            self.not_carried.add(format!("values of {name} that are not in their records"), broken);
            self.not_carried.add("texts that are not UTF-8, whose wrong bytes are replaced", replaced);
        }
    }
}

/// Adds an event to a bundle with its time, its thread and perhaps its flags.
fn put(
    event: &mut Vec<u8>,
    message: &[u8],
    (time, thread, flags): (u64, u32, Option<u64>),
    tag: u32,
    bundle: &mut Vec<u8>,
) {
    event.clear();
    uint64::encode(TIMESTAMP, &time, event);
    uint32::encode(PID, &thread, event);
    if let Some(flags) = flags {
        uint32::encode(COMMON_FLAGS, &(flags as u32), event);
    }
    delimited(tag, message, event);
    delimited(EVENT, event, bundle);
}

/// Whether the viewer gets the events of single system calls as such: not beside those of all calls.
fn draws_single_calls(events: &EventTable) -> bool {
    events.iter().all(|printer| printer.system() != "raw_syscalls")
}

/// Whether the viewer, which joins whatever ends something with what began it, may draw an event. Those that
/// begin what cannot be joined are events that it does not draw.
fn is_joined(printer: &Printer, calls: &Calls, unjoined: &Unjoined, ledgers: &[Ledger]) -> bool {
    let half = Half::of(printer, calls);
    if half.is_none() && !DRAWN.contains(&printer.name()) {
        return true;
    }
    let is_of_threads = |half: &Half| matches!((half.lane)(0), Lane::Call(_) | Lane::Reclaim(_));
    let begins = half.filter(|half| half.begins && is_of_threads(half));
    !unjoined.has(printer)
        && begins.is_none_or(|_| ledgers.iter().all(|ledger| ends_in_thread(printer, ledger)))
}

/// Whether each recorded end of what an event begins is known to be of the same thread. One that ended before
/// can have had its number, and of the beginnings of the other, filters or sampling can have left out some.
fn ends_in_thread(printer: &Printer, ledger: &Ledger) -> bool {
    let Some(end) = end_of(printer) else { return true };
    let begin = format!("{}:{}", printer.system(), printer.name());
    ledger.has_all_of(&begin)
        || !ledger.has_all_of(&end)
        || ENDS_OF_THREADS.iter().all(|event| ledger.has_all_of(event))
}

/// Pauses, and times at which events were added or removed.
fn times_without_all(ledger: &Ledger) -> impl Iterator<Item = Pause> {
    let rows = ledger.events.iter().flatten();
    let times = rows.flat_map(|row| row.since_ns.into_iter().chain(row.until_ns));
    let moments = times.map(|at| Pause { from_ns: at, to_ns: Some(at) });
    ledger.pauses.iter().copied().chain(moments)
}

/// Whether events may be missing that begin, end or bound what the viewer draws by threads and CPUs.
fn may_lack_events(
    recording: &Recording<'_>,
    begins: &[&Printer],
    ledgers: &[Ledger],
    unjoined: &Unjoined,
) -> bool {
    if begins.is_empty() {
        return false;
    }
    // Other choices are made for each event: a thread can change its name within a call.
    let is_of_threads = |only: &String| only.starts_with("processes ") || only.starts_with("the command");
    let is_single = |printer: &&&Printer| printer.system() == "syscalls";
    let draws_single = draws_single_calls(recording.events());
    let drawn: Vec<&Printer> = begins.iter().filter(|of| draws_single || !is_single(of)).copied().collect();
    let has_calls = drawn.iter().any(|of| of.system().ends_with("syscalls"));
    let has_single = drawn.iter().any(|of| is_single(&of));
    let mut ends: Vec<String> = drawn.iter().filter_map(|of| end_of(of)).collect();
    if has_calls {
        ends.extend(ENDS_OF_THREADS.map(str::to_owned));
    }
    let lacks_some = |ledger: &Ledger| {
        ends.iter().any(|end| !ledger.has_all_of(end))
            || !ledger.only.iter().all(is_of_threads)
            || !ledger.pauses.is_empty()
            || ledger.recursion_misses.is_some_and(|misses| misses != 0)
            // Those of a 32-bit program that ends the `execve` of one of 64 bits are not there.
            || has_single && ledger.compat_calls != Some(0)
    };
    let streams = recording.cpu_streams();
    // Several may have one half each, or both have one of them.
    let has_several = streams.iter().any(|of| of.channel != streams[0].channel);
    has_several
        || streams.iter().any(|of| of.lost() != 0 || of.losses_uncounted() != 0 || of.cut_short)
        || streams.iter().any(|of| of.counts.damaged != 0)
        || !recording.file().problems().is_empty()
        || begins.iter().any(|of| unjoined.has(of))
        || ledgers.is_empty()
        || ledgers.iter().any(lacks_some)
}

/// The event that ends what an event begins: `system:name`.
fn end_of(printer: &Printer) -> Option<String> {
    let (system, name) = (printer.system(), printer.name());
    if (system, name) == ENTER {
        return Some(format!("{}:{}", EXIT.0, EXIT.1));
    }
    if system == "syscalls" {
        return Some(format!("syscalls:sys_exit_{}", call_of(name)?));
    }
    let pair = PAIRS.iter().find(|pair| (pair.system, pair.begins) == (system, name))?;
    Some(format!("{system}:{}", pair.ends))
}

impl Plan {
    fn of(printer: &Printer, messages: &Messages, calls: &Calls, draws_calls: bool, is_joined: bool) -> Self {
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let half = Half::of(printer, calls);
        let single = half.filter(|_| draws_calls && is_joined && printer.system() == "syscalls");
        let single = single.and_then(|half| Self::syscall(printer, messages, half, calls.has_markers()));
        let kinds = single.or_else(|| Self::print(printer, messages)).unwrap_or_else(|| {
            let is_drawn = is_joined || printer.system() == "raw_syscalls";
            let known = is_drawn.then(|| Kind::known(printer, messages)).flatten();
            known.unwrap_or_else(|| Kind::generic(printer)).with_calls(printer, messages)
        });
        let half = half.filter(|_| !matches!(kinds[..], [Kind::Generic { .. }]));
        let life = Life::of(printer);
        // Others have a kind of message for both.
        let is_any_call = matches!(kinds[..], [.., Kind::AnyCall { .. }]);
        let undrawn = (half.is_some() && !is_any_call || life.is_some()).then(|| Kind::generic(printer));
        Self {
            pid: reader("common_pid"),
            flags: reader("common_flags"),
            preempt_count: reader("common_preempt_count"),
            kinds,
            is_stack: printer.is_stack(),
            half,
            is_joined,
            undrawn,
            life,
        }
    }

    /// Whether a record begins a slice that another one ends.
    fn begins_slice(&self, source: Source<'_>, calls: &Calls) -> bool {
        self.kinds.iter().all(|kind| match kind {
            Kind::AnyCall { number, .. } => {
                number.number(source.record.data).is_none_or(|number| calls.is_slice(number.cast_signed()))
            }
            Kind::Enter { half, is_slice, named, .. } => {
                if half.is_named(source.record.data) {
                    named.is_slice
                } else {
                    *is_slice
                }
            }
            _ => true,
        })
    }

    /// Ends slices of calls with their threads.
    fn end_slices(&mut self, print: Option<u32>) {
        let number = match self.life {
            Some(Life::Ends) => None,
            Some(Life::Execs(_, before)) => Some(before),
            _ => return,
        };
        self.kinds.splice(0..0, print.map(|print| Kind::EndOfThread { print, number }));
    }

    fn print(printer: &Printer, messages: &Messages) -> Option<Vec<Kind>> {
        let is_print = printer.system() == "ftrace" && matches!(printer.name(), "bprint" | "bputs");
        is_print.then(|| messages.get("print").map(|print| vec![Kind::Print { message: print.number }]))?
    }

    /// Of the event of one call.
    fn syscall(printer: &Printer, messages: &Messages, half: Half, has_markers: bool) -> Option<Vec<Kind>> {
        let print = messages.get("print")?.number;
        if !half.begins {
            let message = messages.get("sys_exit")?.number;
            let result = printer.typed("ret", Meaning::Number)?;
            let generic = Box::new(Kind::generic(printer));
            return Some(vec![Kind::Exit { message, half, result, print, generic }]);
        }
        let call = call_of(printer.name())?;
        let is_slice = !returns_to_interrupted(call);
        let named = {
            let is_slice = is_slice && !(has_markers && may_write_markers(call));
            let letter = if is_slice { 'B' } else { 'I' };
            Named { print, text: format!("{letter}|0|{call}"), is_slice }
        };
        let message = messages.get("sys_enter")?.number;
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let is_arg = |name: &str| !matches!(name, "__syscall_nr" | "nr") && copied_argument(name).is_none();
        let own = &printer.format().fields;
        let args = own.iter().filter(|field| is_arg(&field.name)).filter_map(|field| reader(&field.name));
        let enter = Kind::Enter { message, half, args: args.collect(), is_slice, named };
        let mut kinds = vec![Kind::EndOfSlice { print }, enter];
        if own.iter().any(|field| copied_argument(&field.name).is_some()) {
            kinds.push(Kind::generic(printer));
        }
        Some(kinds)
    }

    /// The fields of the event that are not in its message.
    fn left_out(&self, printer: &Printer) -> Vec<String> {
        let [.., Kind::Known { fields, .. }] = &*self.kinds else { return Vec::new() };
        let own = printer.format().fields.iter();
        own.filter(|field| !fields.iter().any(|(known, _)| known.name == field.name))
            .map(|field| field.name.clone())
            .collect()
    }
}

impl Life {
    /// What an event says, if it says so.
    fn of(printer: &Printer) -> Option<Self> {
        let typed = |name| printer.typed(name, Meaning::Number);
        match (printer.system(), printer.name()) {
            ("task", "task_newtask") => typed("pid").map(Self::Begins),
            ("task", "task_rename") => typed("pid").map(Self::IsRenamed),
            ("sched", "sched_process_exit") => Some(Self::Ends),
            ("sched", "sched_process_free") => typed("pid").map(Self::IsFreed),
            ("sched", "sched_process_exec") => {
                typed("pid").zip(typed("old_pid")).map(|(to, from)| Self::Execs(to, from))
            }
            _ => None,
        }
    }
}

impl Kind {
    /// The message of the event, if it has all of the event's fields, or is needed to draw it.
    fn known(printer: &Printer, messages: &Messages) -> Option<Self> {
        let message = messages.get(printer.name())?;
        let own = &printer.format().fields;
        let mut fields = Vec::new();
        let is_drawn = DRAWN.contains(&printer.name());
        for known in &message.fields {
            let Some(index) = printer.field_index(known.name) else { continue };
            if own.iter().all(|field| field.name != known.name) {
                continue;
            }
            let kind = printer.kind(index)?;
            if suits(*known, kind) {
                fields.push((*known, printer.field(index)?));
            } else if kind == FieldKind::Text && known.name == "prev_state" {
                fields.push((*known, printer.typed(known.name, Meaning::State)?));
            } else if is_drawn {
                // Without its value, something else would be drawn.
                return None;
            }
        }
        if fields.is_empty() && !own.is_empty() || fields.len() < own.len() && !is_drawn {
            return None;
        }
        let is_graph = printer.system() == "ftrace" && printer.name().starts_with("funcgraph_");
        let function = is_graph.then(|| fields.iter().find(|(known, _)| known.name == "func"));
        let function = function.flatten().map(|(known, _)| known.number);
        Some(Self::Known { number: message.number, fields, function })
    }

    /// The same with what draws calls whose numbers Perfetto does not understand, if it is one of all system
    /// calls.
    fn with_calls(self, printer: &Printer, messages: &Messages) -> Vec<Self> {
        let typed = |name| printer.typed(name, Meaning::Number);
        let number = typed("id").filter(|_| printer.system() == "raw_syscalls");
        let (Some(number), Some(print)) = (number, messages.get("print")) else { return vec![self] };
        let (print, result) = (print.number, typed("ret"));
        let (event, undrawn) = (Box::new(self), Box::new(Self::generic(printer)));
        let call = Self::AnyCall { event, undrawn, number, result, print };
        if result.is_some() { vec![call] } else { vec![Self::EndOfSlice { print }, call] }
    }

    fn generic(printer: &Printer) -> Self {
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let own = printer.format().fields.iter();
        let fields = own.filter_map(|field| Some((field.name.clone(), reader(&field.name)?))).collect();
        Self::Generic { name: printer.name().to_owned(), fields }
    }

    /// Writes the message, and gives its number in `FtraceEvent`; `None` if the record has none.
    fn write(&self, to: &mut Fields<'_>, printer: &Printer, interned: &mut Interned) -> Option<u32> {
        Some(match self {
            Self::Known { number, fields, function } => {
                for (known, reader) in fields {
                    let Some(value) = to.value(*reader) else { continue };
                    match value.address().filter(|_| *function == Some(known.number)) {
                        Some(address) => {
                            let number = interned.number(address, to.symbols);
                            uint64::encode(known.number, &number, to.out);
                        }
                        None => to.known(*known, value),
                    }
                }
                *number
            }
            Self::Generic { name, fields } => {
                to.string(EVENT_NAME, name.as_bytes());
                for (name, reader) in fields {
                    if printer.is_stack()
                        && name == STACK_FIELD
                        && let Some(frames) = printer.frames(to.record)
                    {
                        let mut is_empty = true;
                        for (index, address) in frames.enumerate() {
                            to.generic(&format!("{name}[{index}]"), Value::Pointer(address));
                            is_empty = false;
                        }
                        if is_empty {
                            to.generic_without_value(name);
                        }
                    } else if let Some(value) = to.value(*reader) {
                        to.generic(name, value);
                    }
                }
                GENERIC
            }
            Self::Enter { message, half, args, is_slice, named } => {
                let is_named = half.is_named(to.record);
                let is_slice = if is_named { named.is_slice } else { *is_slice };
                if let (Phase::Recorded, true, Some(what)) = (to.phase, is_slice, half.what.of(to.record)) {
                    to.calls.open(to.thread, what);
                }
                if is_named {
                    to.string(PRINT_BUF, named.text.as_bytes());
                    return Some(named.print);
                }
                if let What::Call(Some(number), _) = half.what {
                    to.number(SYSCALL_ID, number);
                }
                for arg in args {
                    to.number(SYSCALL_ARGS, *arg);
                }
                *message
            }
            Self::Exit { message, half, result, print, generic } => {
                let open = match to.phase {
                    Phase::Recorded => to.calls.take(to.thread),
                    Phase::Ends(open) => open,
                    Phase::Begins | Phase::IsUndrawn => None,
                };
                match (half.is_named(to.record), open) {
                    (true, None) => return generic.write(to, printer, interned),
                    (true, Some(_)) => {
                        to.string(PRINT_BUF, END_OF_SLICE);
                        return Some(*print);
                    }
                    (false, open) => {
                        let number = open.or_else(|| half.what.of(to.record)).unwrap_or(ANY_CALL);
                        uint64::encode(SYSCALL_ID, &number.cast_unsigned(), to.out);
                    }
                }
                to.number(SYSCALL_RET, *result);
                *message
            }
            Self::EndOfSlice { print } => {
                if !to.calls.end_without_end(to.thread) {
                    return None;
                }
                to.string(PRINT_BUF, END_OF_SLICE);
                *print
            }
            Self::EndOfThread { print, number } => {
                if let Some(number) = number {
                    let number = number.number(to.record)? as u32;
                    if number == to.thread {
                        return None;
                    }
                    to.thread = number;
                }
                if !to.calls.end_without_end(to.thread) {
                    return None;
                }
                to.string(PRINT_BUF, END_OF_SLICE);
                *print
            }
            Self::AnyCall { event, undrawn, number, result, print } => {
                let Some(number) = number.number(to.record).map(u64::cast_signed) else {
                    return undrawn.write(to, printer, interned);
                };
                let drawn = match (result, to.phase) {
                    (Some(_), Phase::Recorded) => Calls::end_of(to.calls.take(to.thread), number),
                    (Some(_), Phase::Ends(open)) => Calls::end_of(open, number),
                    (None, Phase::Recorded) => to.calls.begin(to.thread, number),
                    (None, Phase::Begins) => to.calls.drawn(number),
                    (Some(_), _) | (None, Phase::IsUndrawn | Phase::Ends(_)) => to.calls.undrawn(number),
                };
                match (drawn, &**event, result) {
                    (Drawn::EndOf(number), Self::Known { number: message, .. }, Some(result)) => {
                        uint64::encode(SYSCALL_ID, &number.cast_unsigned(), to.out);
                        to.number(SYSCALL_RET, *result);
                        return Some(*message);
                    }
                    (Drawn::Event | Drawn::EndOf(_), ..) => return event.write(to, printer, interned),
                    (Drawn::Undrawn, ..) => return undrawn.write(to, printer, interned),
                    (Drawn::Instant(name), ..) => to.string(PRINT_BUF, format!("I|0|{name}").as_bytes()),
                    (Drawn::Begin(name), ..) => to.string(PRINT_BUF, format!("B|0|{name}").as_bytes()),
                    (Drawn::End, ..) => to.string(PRINT_BUF, END_OF_SLICE),
                    (Drawn::Nothing, ..) => {
                        to.unnumbered += 1;
                        return None;
                    }
                }
                to.unnumbered += 1;
                *print
            }
            Self::Print { message } => {
                let mut text = Vec::new();
                printer.print(to.record, to.symbols, &mut text);
                to.string(PRINT_BUF, &text);
                *message
            }
        })
    }
}

impl Half {
    /// Whether a record does not have the number of its system call: those of other tracers have the name
    /// alone.
    fn is_named(&self, record: &[u8]) -> bool {
        let What::Call(Some(number), _) = self.what else { return true };
        number.number(record).is_none_or(|number| number.cast_signed() < 0)
    }
}

/// Whether a field of a message can hold the values.
fn suits(known: Known, kind: FieldKind) -> bool {
    match (known.ty, kind) {
        (Type::Text, FieldKind::Text) => true,
        (Type::Bytes, FieldKind::Bytes { .. } | FieldKind::Array { size: 1, .. }) => true,
        (Type::Unsigned32, FieldKind::Number { size, .. }) => size <= 4,
        (Type::Number, FieldKind::Number { .. } | FieldKind::Pointer { .. }) => !known.repeated,
        (Type::Number, FieldKind::Array { .. }) => known.repeated,
        _ => false,
    }
}

/// Writes the fields of a message.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    text: &'a mut String,
    symbols: &'a dyn Symbols,
    calls: &'a mut Calls,
    /// The thread of the record.
    thread: u32,
    phase: Phase,
    record: &'a [u8],
    /// Values that are not in the record.
    broken: u64,
    /// Texts that are not UTF-8.
    replaced: u64,
    /// Calls whose number has no place in the message, and with it their arguments and results.
    unnumbered: u64,
}

impl<'a> Fields<'a> {
    fn value(&mut self, reader: FieldReader) -> Option<Value<'a>> {
        let value = reader.value(self.record).ok();
        self.broken += u64::from(value.is_none());
        value
    }

    fn known(&mut self, known: Known, value: Value<'_>) {
        match value {
            Value::Text(text) => self.string(known.number, text),
            Value::Bytes(bytes) => delimited(known.number, bytes, self.out),
            Value::Array(numbers) if known.ty == Type::Bytes => {
                delimited(known.number, numbers.bytes(), self.out);
            }
            Value::Array(numbers) => {
                for number in numbers.iter().filter_map(|value| value.address()) {
                    uint64::encode(known.number, &number, self.out);
                }
            }
            value => {
                let bits = value.address().unwrap_or(0);
                let bits = if known.ty == Type::Unsigned32 { bits & u64::from(u32::MAX) } else { bits };
                uint64::encode(known.number, &bits, self.out);
            }
        }
    }

    fn number(&mut self, tag: u32, reader: FieldReader) {
        if let Some(bits) = self.value(reader).and_then(|value| value.address()) {
            uint64::encode(tag, &bits, self.out);
        }
    }

    fn generic(&mut self, name: &str, value: Value<'_>) {
        let mut field = Vec::new();
        match value {
            Value::Array(numbers) if numbers.is_empty() => return self.generic_without_value(name),
            Value::Texts(texts) if texts.iter().len() == 0 => return self.generic_without_value(name),
            Value::Array(numbers) => {
                for (index, number) in numbers.iter().enumerate() {
                    self.generic(&format!("{name}[{index}]"), number);
                }
                return;
            }
            Value::Texts(texts) => {
                for (index, text) in texts.iter().enumerate() {
                    self.generic(&format!("{name}[{index}]"), Value::Text(text.unwrap_or(b"?")));
                }
                return;
            }
            Value::Signed(number) => int64::encode(INT_VALUE, &number, &mut field),
            Value::Unsigned(number) | Value::Pointer(number) => {
                uint64::encode(UINT_VALUE, &number, &mut field);
            }
            Value::Text(text) => {
                self.replaced += u64::from(std::str::from_utf8(text).is_err());
                delimited(STR_VALUE, String::from_utf8_lossy(text).as_bytes(), &mut field);
            }
            Value::Bitmask(_) | Value::Bytes(_) => {
                use std::fmt::Write as _;
                self.text.clear();
                // Writing to a string does not fail.
                let _ = write!(self.text, "{value}");
                delimited(STR_VALUE, self.text.as_bytes(), &mut field);
            }
        }
        delimited(FIELD_NAME, name.as_bytes(), &mut field);
        delimited(FIELD, &field, self.out);
    }

    /// A list without elements, which has no field for any of them.
    fn generic_without_value(&mut self, name: &str) {
        let mut field = Vec::new();
        delimited(FIELD_NAME, name.as_bytes(), &mut field);
        delimited(FIELD, &field, self.out);
    }

    fn string(&mut self, tag: u32, text: &[u8]) {
        self.replaced += u64::from(std::str::from_utf8(text).is_err());
        delimited(tag, String::from_utf8_lossy(text).as_bytes(), self.out);
    }
}

/// A field of bytes.
fn delimited(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::Symbol;

    /// One function, and what recordings call an address that is in none.
    struct Known;

    impl Symbols for Known {
        fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
            let name = match address {
                0x1000 => "do_it",
                0x2000 => "-",
                0x3000 => "0x3000",
                _ => return None,
            };
            Some(Symbol { name, offset: 0, size: None, module: None })
        }
    }

    #[test]
    fn an_address_without_a_symbol_is_told_as_a_number() {
        let mut interned = Interned::default();
        let addresses = [0x1000, 0x2000, 0x3000, 0x4000, 0x1000];
        assert_eq!(addresses.map(|address| interned.number(address, &Known)), [1, 2, 3, 4, 1]);
        let names: Vec<_> = interned.new.iter().map(|string| string.str.as_slice()).collect();
        assert_eq!(names, [&b"do_it"[..], b"0x2000", b"0x3000", b"0x4000"]);
    }
}
