//! Records of one CPU into a stream.

use std::collections::BTreeMap;

use super::callstack::Held;
use super::schema::{Birth, Channel, Choice, Event, Field, Rule, Source, Trace};
use super::stream::StreamWriter;
use super::types;
use ftrace_event::stacks::Stack;
use ftrace_event::{EventTable, Value};
use recording::{CpuStream, ExportError, Job, NotCarried, Recording};
use tracedat::initial_state::InitialState;
use tracedat::reader::Record;

/// Records between two words on how far it is.
const STEP: u64 = 1 << 14;
/// `CLONE_THREAD` of include/uapi/linux/sched.h.
const CLONE_THREAD: u64 = 0x10000;

/// Writes the records of a stream.
pub(super) fn cpu_stream(
    recording: &Recording<'_>,
    cpu_stream: &CpuStream,
    trace: &Trace,
    channel: usize,
    states: &[InitialState],
    stream: &mut StreamWriter,
    job: &Job<'_>,
) -> Result<(), ExportError> {
    let channel = &trace.channels[channel];
    let mut records = recording.records(cpu_stream)?;
    let mut converter = Converter::default();
    if let Some((first, later)) = states.split_first() {
        converter.know(first);
        for state in later {
            converter.know_late(state);
        }
    }
    let mut done = 0;
    let mut held: Option<Held> = None;
    loop {
        let record = match records.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            // Damage was found by the survey; whoever goes on nevertheless was warned.
            Err(_) => continue,
        };
        converter.take((&record, recording.events()), &mut held, (channel, trace), stream)?;
        done += 1;
        if done == STEP {
            job.advance(done)?;
            done = 0;
        }
    }
    converter.record_held(held, (channel, trace), stream)?;
    job.advance(done)?;
    job.merge_not_carried(converter.take_not_carried());
    Ok(())
}

impl Rule {
    pub(crate) fn number(&self, field_index: usize, record: &[u8]) -> Option<i64> {
        match self.reader.value(field_index, record)?.ok()? {
            Value::Signed(number) => Some(number),
            Value::Unsigned(number) | Value::Pointer(number) => Some(number as i64),
            _ => None,
        }
    }

    fn choose(&self, record: &[u8]) -> u32 {
        match &self.choice {
            Choice::One(id) => *id,
            Choice::SystemCall { number, tables } => Choice::of_call(tables, self.number(*number, record)),
        }
    }
}

/// The threads of a state, each with its process.
fn processes(state: &InitialState) -> impl Iterator<Item = (i64, (i64, bool))> {
    state.threads.iter().map(|thread| (i64::from(thread.tid), (i64::from(thread.tgid), false)))
}

/// What has to be kept from record to record.
#[derive(Debug, Default)]
pub(super) struct Converter {
    /// Whether the records come from the recorder as it stores them: stacks have the times of their events.
    is_of_recorder: bool,
    /// Process by thread, and whether its `sched:sched_process_fork` is still to come.
    processes: BTreeMap<i64, (i64, bool)>,
    backwards: u64,
    unknown_processes: u64,
    unrecorded_texts: u64,
    written: u64,
    /// The stacks of the record that is written.
    stack: Stack,
    stacks_without_event: u64,
    later_stacks: u64,
    /// Fields that do not fit, by event and field.
    broken: BTreeMap<(String, String), u64>,
}

impl Converter {
    /// For records as the recorder stores them.
    pub(super) fn of_recorder() -> Self {
        Self { is_of_recorder: true, ..Self::default() }
    }

    /// Takes the processes of the threads that there are.
    pub(super) fn know(&mut self, state: &InitialState) {
        self.processes.extend(processes(state));
    }

    /// The same of a state that is older than some of the records that were written.
    pub(super) fn know_late(&mut self, state: &InitialState) {
        for (thread, process) in processes(state) {
            self.processes.entry(thread).or_insert(process);
        }
    }

    /// Records that were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes a record, or holds it until its stacks have come. Gives whether it is an event that the channel
    /// declares, or a stack where these are contexts; otherwise only losses before it are written.
    pub(super) fn take(
        &mut self,
        (record, events): (&Record<'_>, &EventTable),
        held: &mut Option<Held>,
        to: (&Channel, &Trace),
        stream: &mut StreamWriter,
    ) -> Result<bool, ExportError> {
        let (channel, _) = to;
        let rule = record.event_id().and_then(|id| channel.rules.get(id));
        // In the order of time, which held events of several CPUs are not written in.
        if let Some((rule, birth)) = rule.and_then(|rule| Some((rule, rule.births?))) {
            self.birth(rule, birth, record.data);
        }
        if !channel.stacks.any() {
            return self.record(record, to, stream);
        }
        let printer = record.event_id().and_then(|id| events.get(id));
        let stack = printer.filter(|printer| printer.is_stack());
        if let (Some(stack), Some(held)) = (stack, held.as_mut())
            && held.take(record, stack, !self.is_of_recorder)
        {
            return Ok(true);
        }
        self.record_held(held.take(), to, stream)?;
        if stack.is_none() && rule.is_some() {
            *held = Some(Held::new(record, printer));
            return Ok(true);
        }
        self.stacks_without_event += u64::from(stack.is_some());
        self.record(record, to, stream).map(|is_event| is_event || stack.is_some())
    }

    /// Writes a record with its stacks, if one was held.
    pub(super) fn record_held(
        &mut self,
        held: Option<Held>,
        to: (&Channel, &Trace),
        stream: &mut StreamWriter,
    ) -> Result<(), ExportError> {
        let Some(mut held) = held else { return Ok(()) };
        self.stack = std::mem::take(&mut held.stack);
        self.later_stacks += held.later_stacks;
        self.record(&held.record(), to, stream)?;
        self.stack = Stack::default();
        Ok(())
    }

    /// Writes a record. Gives whether its channel declares its event; if it does not, only what is said of
    /// losses before it is written.
    pub(super) fn record(
        &mut self,
        record: &Record<'_>,
        (channel, trace): (&Channel, &Trace),
        stream: &mut StreamWriter,
    ) -> Result<bool, ExportError> {
        let mut time = trace.clock.shifted(record.timestamp);
        stream.pass_pauses(&trace.pauses, time)?;
        if time < stream.last() {
            self.backwards += 1;
            time = stream.last();
        }
        if let Some(missed) = record.missed {
            stream.lost(missed.max(1), time)?;
        }
        let Some(rule) = record.event_id().and_then(|id| channel.rules.get(id)) else { return Ok(false) };
        let id = rule.choose(record.data);
        let Some(event) = channel.events.get(id as usize) else { return Ok(false) };
        let out = stream.event(id, time)?;
        for (field_index, (_, ty)) in rule.context.iter().zip(&channel.context) {
            let value = field_index.and_then(|field_index| rule.reader.value(field_index, record.data)?.ok());
            ty.encode(value, out);
        }
        self.fields(rule, event, record.data, out);
        self.written += 1;
        Ok(true)
    }

    fn fields(&mut self, rule: &Rule, event: &Event, record: &[u8], out: &mut Vec<u8>) {
        for field in &event.fields {
            let value = |field_index: usize| rule.reader.value(field_index, record).and_then(Result::ok);
            let fits = match field.source {
                Source::Record(field_index) => field.ty.encode(value(field_index), out),
                Source::Less(field_index, less) => {
                    let number = rule.number(field_index, record).map(|number| Value::Signed(number - less));
                    field.ty.encode(number, out)
                }
                Source::State => {
                    let bits = rule.state.and_then(|state| state.number(record));
                    field.ty.encode(bits.map(|bits| Value::Signed(bits.cast_signed())), out)
                }
                Source::OperationBits(field_index) => {
                    let bits = match value(field_index) {
                        Some(Value::Text(letters)) => super::lttng::operation_bits(letters),
                        _ => None,
                    };
                    field.ty.encode(bits.map(|bits| Value::Unsigned(bits.into())), out)
                }
                Source::Element(field_index, index) => {
                    let element = match value(field_index) {
                        Some(Value::Array(numbers)) => numbers.iter().nth(index),
                        _ => None,
                    };
                    field.ty.encode(element, out)
                }
                Source::Copy(copy, address) => {
                    let bytes = rule.reader.bytes(copy, record).and_then(Result::ok);
                    match (bytes, rule.number(address, record)) {
                        // An empty text has a NUL.
                        (Some([]), Some(address)) => self.text_behind(Some(address as u64), field, out),
                        _ => field.ty.encode(value(copy), out),
                    }
                }
                Source::TextBehind(field_index) => {
                    let address = rule.number(field_index, record);
                    self.text_behind(address.map(|address| address as u64), field, out)
                }
                Source::TextBehindElement(field_index, index) => {
                    let address = match value(field_index) {
                        Some(Value::Array(numbers)) => match numbers.iter().nth(index) {
                            Some(Value::Signed(address)) => Some(address as u64),
                            Some(Value::Unsigned(address)) => Some(address),
                            _ => None,
                        },
                        _ => None,
                    };
                    self.text_behind(address, field, out)
                }
                Source::Stack => match rule.stack.and_then(|stack| stack.frames(record)) {
                    Some(frames) => {
                        types::addresses(frames, out);
                        true
                    }
                    None => field.ty.encode(None, out),
                },
                Source::CallStack(of) => {
                    types::addresses(of.addresses(&self.stack).iter().copied(), out);
                    true
                }
                Source::ProcessOf(field_index) => {
                    let thread = rule.number(field_index, record);
                    field.ty.encode(thread.map(|thread| Value::Signed(self.process_of(thread))), out)
                }
                Source::ProcessOfNew(field_index) => {
                    let thread = rule.number(field_index, record);
                    let process = thread.map(|thread| Value::Signed(self.process_of_new(thread)));
                    field.ty.encode(process, out)
                }
            };
            if !fits {
                *self.broken.entry((event.name.clone(), field.name.clone())).or_default() += 1;
            }
        }
    }

    /// Writes what is known of a text by its address.
    fn text_behind(&mut self, address: Option<u64>, field: &Field, out: &mut Vec<u8>) -> bool {
        self.unrecorded_texts += u64::from(address.is_some_and(|address| address != 0));
        field.ty.encode(address.map(|address| Value::Text(super::lttng::text_behind(address))), out)
    }

    fn process_of(&mut self, thread: i64) -> i64 {
        self.processes.get(&thread).map_or_else(
            || {
                self.unknown_processes += 1;
                thread
            },
            |(process, _)| *process,
        )
    }

    /// Whether a new thread is one of its parent's process or begins its own is in `task:task_newtask`, which
    /// comes before its `sched:sched_process_fork`.
    fn process_of_new(&mut self, thread: i64) -> i64 {
        let process = if let Some((process, true)) = self.processes.get(&thread) {
            *process
        } else {
            self.unknown_processes += 1;
            thread
        };
        self.processes.insert(thread, (process, false));
        process
    }

    fn birth(&mut self, rule: &Rule, birth: Birth, record: &[u8]) {
        let flags = rule.number(birth.clone_flags, record).unwrap_or(0) as u64;
        let (Some(child), Some(parent)) = (rule.number(birth.pid, record), rule.number(birth.parent, record))
        else {
            return;
        };
        let process = if flags & CLONE_THREAD != 0 { self.process_of(parent) } else { child };
        self.processes.insert(child, (process, true));
    }

    /// What could not be carried over since this was asked.
    pub(super) fn take_not_carried(&mut self) -> NotCarried {
        let mut not_carried = NotCarried::default();
        not_carried.add(
            "times that go back, replaced by those of the events before",
            std::mem::take(&mut self.backwards),
        );
        not_carried.add(
            "processes of threads, which the recording does not tell: the threads' own numbers are written",
            std::mem::take(&mut self.unknown_processes),
        );
        not_carried.add(
            "texts that arguments of system calls point to, which were not recorded: \"unknown\" is written",
            std::mem::take(&mut self.unrecorded_texts),
        );
        not_carried.add(
            "stacks that do not follow the record of their event",
            std::mem::take(&mut self.stacks_without_event),
        );
        not_carried
            .add("times of stacks, which have those of their events", std::mem::take(&mut self.later_stacks));
        for ((event, field), records) in std::mem::take(&mut self.broken) {
            not_carried.add(
                format!("values of {event}.{field} that are not in their records or not understood"),
                records,
            );
        }
        not_carried
    }
}
