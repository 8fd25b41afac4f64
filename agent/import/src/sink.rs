//! What a source hands over.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

use super::ImportError;
use super::event::{EventSpec, Layout, Value};
use super::ftrace::{self, StackOf};
use super::spool::{self, Item, Spool};
use ftrace_event::Format;
use ftrace_event::{Cmdlines, Endian};
use stdx::not_carried::NotCarried;
use stdx::output::Directory;
use tracedat::Uname;
use tracedat::provenance::Provenance;
use tracedat::rewrite::{Progress, Watch};

/// The most bytes of a record that fit on the largest page that is written.
pub(super) const MAX_RECORD: usize = (1 << 20) - 24;

/// CPUs with higher numbers are more likely damage than a machine, and readers make arrays of all below.
pub(super) const MAX_CPUS: u32 = 1 << 16;

/// Whether an event of this name belongs to a state dump, of LTTng or of an export in its format.
pub(super) fn is_of_state_dump(name: &str) -> bool {
    name.starts_with("lttng_statedump_")
}

/// More buffers than any recording has.
const MAX_BUFFERS: usize = 1 << 12;

/// Most bytes of their names.
const MAX_BUFFER_NAMES: usize = 1 << 20;

/// A kernel has no more threads at a time (`PID_MAX_LIMIT` of include/linux/threads.h).
const MAX_THREADS: usize = 1 << 22;

/// The kind of an item that is a loss and no record.
pub(super) const LOSS: u32 = u32::MAX;

/// The numbers of events have 16 bits, of which 0 is none.
const MAX_EVENTS: usize = u16::MAX as usize;

/// A buffer of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub(super) u32);

impl BufferId {
    /// The buffer without a name, which every file has.
    pub const TOP: Self = Self(0);
}

/// An event that was described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub(super) u32);

/// Where and when something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The buffer that it was recorded in.
    pub buffer: BufferId,
    /// The CPU.
    pub cpu: u32,
    /// The time, in nanoseconds of [`Facts::clock`].
    pub time: u64,
}

/// The fields that all events have, but for the number of the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// The thread.
    pub pid: u32,
    /// `common_flags` as the kernel has it (`enum trace_flag_type`): 1 interrupts off, 4 need-resched, 8 hard
    /// interrupt, 0x10 soft interrupt.
    pub flags: u8,
    /// `common_preempt_count`.
    pub preempt_count: u8,
}

/// What is true of the whole recording. What a source does not know stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The clock, by the name that tracefs has for it: `local`, `mono`, `boot`. Empty: not known.
    pub clock: String,
    /// Nanoseconds to add to times for those since 1970.
    pub wall_offset: Option<i64>,
    /// The machine.
    pub uname: Uname,
    /// Whether the source does not say which records were made in interrupts: it has no `common_flags`.
    pub lacks_contexts: bool,
    /// How many CPUs it had.
    pub cpu_count: Option<u32>,
    /// Bytes of `long` in the records: 4 or 8. 0 counts as 8.
    pub long_size: u8,
    /// Lines of `/proc/kallsyms`.
    pub kallsyms: Vec<u8>,
    /// Lines of tracefs' `printk_formats`.
    pub printk: Vec<u8>,
    /// The text of tracefs' `events/header_event`.
    pub header_event: String,
    /// The program that recorded, and its version: `perf 6.1`.
    pub recorder: String,
    /// More of the recording that the source was exported from, as far as it says so. What other members say,
    /// counts.
    pub provenance: Provenance,
}

/// An event, as far as it was described.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) system: String,
    pub(super) name: String,
    /// What the text of its format has after the line `format:`.
    pub(super) body: String,
    /// The number that it wants to have.
    pub(super) wanted: Option<u16>,
    /// Of an event that was described by its fields.
    layout: Option<Layout>,
}

/// Losses of a CPU of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    /// Those that have a place among the records, and those that have none.
    pub(super) events: u64,
    /// Whether there are more.
    pub(super) unknown: bool,
}

/// Takes what a source reads.
pub struct Sink<'w> {
    format: &'static str,
    endian: Endian,
    watch: Watch<'w>,
    /// What is true of the whole recording.
    pub facts: Facts,
    pub(super) tasks: Cmdlines,
    /// The processes of threads.
    pub(super) processes: BTreeMap<u32, u32>,
    pub(super) events: Vec<Event>,
    by_name: HashMap<(String, String), EventId>,
    pub(super) buffers: Vec<String>,
    by_buffer: HashMap<String, BufferId>,
    /// Bytes of the names of buffers.
    buffer_names: usize,
    pub(super) streams: HashMap<(BufferId, u32), Stream>,
    pub(super) spool: Spool,
    pub(super) longest: usize,
    pub(super) not_carried: NotCarried,
    /// A record that is being made.
    scratch: Vec<u8>,
    /// The events of stacks.
    stacks: [Option<EventId>; 2],
}

/// A CPU of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Its number in the spool.
    pub(super) index: usize,
    pub(super) lost: Lost,
}

impl std::fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("format", &self.format).field("events", &self.events.len()).finish()
    }
}

impl<'w> Sink<'w> {
    /// A sink that puts records aside in `dir`.
    pub(super) fn new(format: &'static str, endian: Endian, dir: Directory, watch: Watch<'w>) -> Self {
        Self {
            format,
            endian,
            watch,
            facts: Facts::default(),
            tasks: Cmdlines::new(),
            processes: BTreeMap::new(),
            events: Vec::new(),
            by_name: HashMap::new(),
            buffers: vec![String::new()],
            by_buffer: HashMap::from([(String::new(), BufferId::TOP)]),
            buffer_names: 0,
            streams: HashMap::new(),
            spool: Spool::new(dir, spool::MEMORY),
            longest: 0,
            not_carried: NotCarried::default(),
            scratch: Vec::new(),
            stacks: [None; 2],
        }
    }

    /// What the source is.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The byte order of the records.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The buffer of that name; it is there from then on. NULs in a name become `_`. What is of more buffers
    /// than a file gets is counted, and in the top one.
    pub fn buffer(&mut self, name: &str) -> BufferId {
        if let Some(id) = self.by_buffer.get(name) {
            return *id;
        }
        if name.contains('\0') {
            return self.buffer(&name.replace('\0', "_"));
        }
        let bytes = self.buffer_names + name.len();
        if self.buffers.len() >= MAX_BUFFERS || bytes > MAX_BUFFER_NAMES {
            let what = "records and losses of buffers beyond 4096, or beyond 1 MiB of names: they are in the top one";
            self.not_carried(what, 1);
            return BufferId::TOP;
        }
        let id = BufferId(self.buffers.len() as u32);
        self.buffer_names = bytes;
        self.buffers.push(name.to_owned());
        self.by_buffer.insert(name.to_owned(), id);
        id
    }

    /// Describes an event by its fields. One of the same system and name that has other fields gets a number
    /// behind its name; the same one again is the same.
    ///
    /// # Errors
    /// Fields that are no record; too many events.
    pub fn event(&mut self, spec: &EventSpec) -> Result<EventId, ImportError> {
        let mut layout = Layout::of(spec, self.long_size())?;
        let name = layout.name.clone();
        let mut number = 2;
        while let Some(id) = self.find(&layout.system, &layout.name) {
            if self.get(id).is_some_and(|event| event.body == layout.body && event.layout.is_some()) {
                return Ok(id);
            }
            layout.name = format!("{name}_{number}");
            number += 1;
        }
        let Layout { system, name, body, id, .. } = layout.clone();
        self.add(Event { system, name, body, wanted: id, layout: Some(layout) })
    }

    /// Describes an event by a format text, as tracefs has it. Its number stays what the text says, if no
    /// other event has it. The text of an event that is described already is not looked at.
    ///
    /// # Errors
    /// A text that is no format, or whose first field is not the number of the event; too many events.
    pub fn event_with_format(&mut self, system: &str, text: &str) -> Result<EventId, ImportError> {
        self.event_with_number(system, text, true)
    }

    /// The same. Without `keeps_number`, any number will do.
    pub(super) fn event_with_number(
        &mut self,
        system: &str,
        text: &str,
        keeps_number: bool,
    ) -> Result<EventId, ImportError> {
        let error = |source| ImportError::EventFormat { event: system.to_owned(), source };
        let format = Format::parse(text).map_err(error)?;
        if let Some(id) = self.find(system, &format.name) {
            return Ok(id);
        }
        let has_number =
            format.common.first().is_some_and(|field| field.name == "common_type" && field.end() == 2);
        if !has_number {
            let event = format!("{system}:{}", format.name);
            return Err(ImportError::Unsupported(format!(
                "the format of the event {event} does not begin with its number, common_type"
            )));
        }
        let body = text.split_once("format:\n").map_or("", |(_, body)| body).to_owned();
        self.add(Event {
            system: system.to_owned(),
            name: format.name,
            body,
            wanted: Some(format.id).filter(|id| *id != 0 && keeps_number),
            layout: None,
        })
    }

    /// An event that was described.
    pub fn find(&self, system: &str, name: &str) -> Option<EventId> {
        // A map of pairs cannot be asked by two borrowed texts.
        self.by_name.get(&(system.to_owned(), name.to_owned())).copied()
    }

    fn get(&self, id: EventId) -> Option<&Event> {
        self.events.get(id.0 as usize)
    }

    fn add(&mut self, event: Event) -> Result<EventId, ImportError> {
        if self.events.len() >= MAX_EVENTS {
            return Err(ImportError::TooManyEvents(MAX_EVENTS));
        }
        let id = EventId(self.events.len() as u32);
        self.by_name.insert((event.system.clone(), event.name.clone()), id);
        self.events.push(event);
        Ok(id)
    }

    /// The name of a thread. The last one that is given counts. The idle threads, which are all 0 and which
    /// tracers name differently, have the name that readers give them.
    pub fn task(&mut self, pid: u32, comm: &[u8]) {
        if pid != 0 {
            self.tasks.insert(pid, comm);
        }
    }

    /// The process that a thread is of. The last one that is given counts.
    pub fn process(&mut self, tid: u32, tgid: u32) {
        if tid != 0 && (self.processes.len() < MAX_THREADS || self.processes.contains_key(&tid)) {
            self.processes.insert(tid, tgid);
        }
    }

    /// The name of a thread, as far as it was given.
    pub fn task_name(&self, pid: u32) -> Option<&[u8]> {
        self.tasks.get(pid)
    }

    /// A record as the event's format has it: common fields, fields, dynamic values. Its first two bytes are
    /// overwritten with the number that the event gets.
    ///
    /// Records may come in any order; those of one time and CPU stay in the order in which they come.
    ///
    /// # Errors
    /// The disk is full.
    pub fn record(&mut self, at: At, event: EventId, record: &[u8]) -> Result<(), ImportError> {
        if self.get(event).is_none() || record.len() < 2 {
            self.not_carried("records without an event", 1);
            return Ok(());
        }
        if record.len() > MAX_RECORD {
            self.not_carried("records that are longer than the largest page (1 MiB)", 1);
            return Ok(());
        }
        let Some(stream) = self.stream(at.buffer, at.cpu).map(|stream| stream.index) else { return Ok(()) };
        self.longest = self.longest.max(record.len());
        self.spool.push(stream, Item { time: at.time, kind: event.0, data: record })
    }

    /// A record of an event that was described by its fields: their values, in their order. Values that do
    /// not fit are cut, which is counted.
    ///
    /// # Errors
    /// The disk is full.
    pub fn values(
        &mut self,
        at: At,
        event: EventId,
        common: Common,
        values: &[Value<'_>],
    ) -> Result<(), ImportError> {
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        let layout = self.events.get(event.0 as usize).and_then(|event| event.layout.as_ref());
        let cut = layout.is_some_and(|layout| layout.encode(self.endian, common, values, &mut record));
        self.not_carried("texts and lists that were cut because they are too long", u64::from(cut));
        let result = self.record(at, event, &record);
        self.scratch = record;
        result
    }

    /// The stack of the event whose record was the last one of its CPU: what all records have, whose frames
    /// they are, and their addresses, the innermost first, up to one that is 0 or all ones. Nothing is
    /// written of a stack without frames.
    ///
    /// # Errors
    /// Too many events; the disk is full.
    pub fn stack(
        &mut self,
        at: At,
        common: Common,
        of: StackOf,
        addresses: &[u64],
    ) -> Result<(), ImportError> {
        let long_size = self.long_size();
        let frames = ftrace::frames(addresses, long_size);
        if frames.is_empty() {
            return Ok(());
        }
        let known = self.stacks[of.index()];
        let event = known.map_or_else(|| self.stack_event(of), Ok)?;
        // Records of processes have so many each.
        let part = if of == StackOf::Kernel { frames.len() } else { ftrace::FRAMES };
        frames.chunks(part).try_for_each(|frames| {
            self.values(at, event, common, &[of.number(frames.len()), Value::Numbers(frames)])
        })
    }

    /// The event of stacks.
    fn stack_event(&mut self, of: StackOf) -> Result<EventId, ImportError> {
        let long_size = self.long_size();
        let spec = of.spec(long_size);
        let there = self.find(&spec.system, &spec.name);
        let event = match there.and_then(|id| self.events.get_mut(id.0 as usize)) {
            // It was described by its text: as kernels since 3.5 do it.
            Some(event) if event.layout.is_none() => {
                let layout = Layout::of(&spec, long_size)?;
                if ftrace::has_same_stacks(&event.body, &layout.body) {
                    event.layout = Some(layout);
                    there
                } else {
                    None
                }
            }
            _ => None,
        };
        let event = event.map_or_else(|| self.event(&spec), Ok)?;
        self.stacks[of.index()] = Some(event);
        Ok(event)
    }

    fn long_size(&self) -> u8 {
        if self.facts.long_size == 4 { 4 } else { 8 }
    }

    /// Tells that events were lost after what was given with this or an earlier time, and before what comes
    /// after it. `None`: nobody knows how many.
    ///
    /// # Errors
    /// The disk is full.
    pub fn lost(&mut self, at: At, count: Option<u64>) -> Result<(), ImportError> {
        let count = count.unwrap_or(0);
        let Some(stream) = self.stream(at.buffer, at.cpu) else { return Ok(()) };
        stream.lost.events = stream.lost.events.saturating_add(count);
        stream.lost.unknown |= count == 0;
        let index = stream.index;
        self.spool.push(index, Item { time: at.time, kind: LOSS, data: &count.to_le_bytes() })
    }

    /// Tells that so many more events were lost on a CPU, and nobody knows when: they are counted for it, and
    /// have no mark among the records.
    /// `None`: nobody knows how many.
    pub fn lost_sometime(&mut self, buffer: BufferId, cpu: u32, count: Option<u64>) {
        if let Some(Stream { lost, .. }) = self.stream(buffer, cpu) {
            lost.events = lost.events.saturating_add(count.unwrap_or(0));
            lost.unknown |= count.is_none();
        }
    }

    /// A file without a name beside the output, for a source that must be read twice.
    ///
    /// # Errors
    /// Nothing can be created there.
    pub fn scratch(&self) -> Result<File, ImportError> {
        self.spool.scratch()
    }

    /// Counts what has no place in the file, in words: `user call chains`.
    pub fn not_carried(&mut self, what: impl Into<Cow<'static, str>>, count: u64) {
        self.not_carried.add(what, count);
    }

    /// Tells how much of the source was read, in bytes. To be called every few thousand records.
    ///
    /// # Errors
    /// [`ImportError::Cancelled`].
    pub fn progress(&mut self, done: u64, total: u64) -> Result<(), ImportError> {
        if (self.watch)(Progress { done, total }) { Ok(()) } else { Err(ImportError::Cancelled) }
    }

    fn stream(&mut self, buffer: BufferId, cpu: u32) -> Option<&mut Stream> {
        if cpu >= MAX_CPUS {
            self.not_carried("records and losses of CPUs with numbers above 65535", 1);
            return None;
        }
        let next = self.streams.len();
        let new = || Stream { index: next, lost: Lost::default() };
        Some(self.streams.entry((buffer, cpu)).or_insert_with(new))
    }
}
