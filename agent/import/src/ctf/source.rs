//! The import: what is read of a trace becomes what a sink takes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;

use super::directory::{self, Part, Parts};
use super::error::CtfError;
use super::lttng::{Tracer, Tracing};
use super::packet::{Event, Packet};
use super::plan::Plan;
use super::schema::{Clock, Trace};
use super::stream::Item;
use super::threads::Threads;
use super::types::{Field, Type};
use crate::sink::{MAX_CPUS, is_of_state_dump};
use crate::{At, BufferId, ImportError, Sink, Source, provenance};
use ftrace_event::Endian;
use tracedat::Uname;
use tracedat::provenance::{EventName, Provenance, Texts};

/// What messages call it.
const FORMAT: &str = "CTF";
/// Events between two words on how far it is.
const STEP: u64 = 1 << 14;
/// The channel that LTTng makes where none is named.
const DEFAULT_CHANNEL: &str = "channel0";

/// What is read of traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtfOptions {
    /// The traces of user space of a session, too, beside that of the kernel. Their events have the names
    /// that they have, and the thread that the context `vtid` says.
    pub user_space: bool,
    /// Packets whose UUID is not that of the metadata, too. They are decoded as these say.
    pub foreign_packets: bool,
}

/// A trace of the Common Trace Format 1.8 or 2, or the recording session of LTTng that it is part of.
#[derive(Debug)]
pub struct CtfSource {
    parts: Parts,
    clock: Option<Clock>,
    options: CtfOptions,
}

/// A file of a stream, with what its first packet says.
#[derive(Debug)]
struct First {
    stream: u64,
    cpu: Option<u32>,
    begin: u64,
    name: OsString,
}

impl CtfSource {
    /// Opens the trace in a directory, or that of the recording session in it, in all its chunks. Of a
    /// session with traces of the kernel and of user space, it is that of the kernel.
    ///
    /// # Errors
    /// There is none, there are several that do not belong together, or the metadata are not understood.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        Self::open_with(path, CtfOptions::default())
    }

    /// The same, with more of it.
    ///
    /// # Errors
    /// As [`CtfSource::open`]; traces whose times cannot be compared.
    pub fn open_with(path: &Path, options: CtfOptions) -> Result<Self, ImportError> {
        let parts = directory::open(path, options.user_space)?;
        let mut clock = None;
        for part in &parts.parts {
            let used = clock_of(&part.trace)?;
            if part.number > 0 && between(used.as_ref(), clock.as_ref()).is_none() {
                return Err(ImportError::Unsupported(format!(
                    "the times of {} cannot be compared with those of {}: their clocks are others, and one does not tell its distance to wall time",
                    part.path,
                    parts.parts.first().map_or("", |first| &first.path),
                )));
            }
            clock = clock.or(used);
        }
        Ok(Self { parts, clock, options })
    }
}

impl Source for CtfSource {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn endian(&self) -> Endian {
        self.parts.parts.first().map_or(Endian::Little, |part| part.trace.order)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let Some(first) = self.parts.parts.first() else { return Ok(()) };
        facts(first, self.clock.as_ref(), sink);
        let mut texts = Texts::default();
        for (name, value) in &first.trace.env {
            texts.add(name, value);
        }
        let described = provenance::take(texts, sink);
        let shift =
            described.as_ref().map_or(0, |described| known_clock(described, self.clock.as_ref(), sink));
        let described = described.unwrap_or_default();
        let what = "traces in the directory that are not of this recording, as those of user space beside that of the kernel: each is imported alone";
        sink.not_carried(what, self.parts.beside);
        let mut files = Vec::new();
        let (mut names, mut total) = (BTreeSet::new(), 0);
        for part in &self.parts.parts {
            let firsts = firsts(part, self.options, &mut total)?;
            names.extend(firsts.iter().filter_map(|file| channel(part, file)));
            files.push(firsts);
        }
        let of_files = described.buffers.iter().filter(|buffer| names.contains(&buffer.renamed));
        let buffers = provenance::buffers(&of_files.cloned().collect::<Vec<_>>(), sink);
        let mut importer = Importer {
            options: self.options,
            sink,
            clock: self.clock.as_ref(),
            clock_of_part: None,
            recorded: shift,
            shift,
            buffers,
            names: EventName::unambiguous(described.events.iter().cloned()),
            plans: HashMap::new(),
            threads: Threads::default(),
            streams: HashMap::new(),
            files: HashMap::new(),
            file: 0,
            cpus: 0,
            unknown_threads: 0,
            unknown_programs: 0,
            events: 0,
            done: 0,
            total,
        };
        // Damage of one file does not keep the others from being read.
        let mut damage = None;
        for (part, firsts) in self.parts.parts.iter().zip(files) {
            importer.begin(part)?;
            for first in firsts {
                match importer.file(part, &first, &names) {
                    Err(error @ ImportError::Damaged { .. }) => drop(damage.get_or_insert(error)),
                    read => read?,
                }
            }
        }
        importer.finish(&described);
        damage.map_or(Ok(()), Err)
    }
}

/// The clock that the times of events and packets are of. `None` if they have none.
fn clock_of(trace: &Trace) -> Result<Option<Clock>, ImportError> {
    let (mut names, mut seen) = (BTreeSet::new(), HashSet::new());
    for stream in trace.streams.values() {
        for of in [&stream.event_header, &stream.packet_context].into_iter().flatten() {
            clocks(&of.fields, &mut names, &mut seen);
        }
    }
    let unsupported = |text| Err(ImportError::Unsupported(text));
    // babeltrace2 may declare a clock once for each stream.
    let is_same = |one: &str, other: &str| {
        let of = |id| trace.clock(id).map(|clock| Clock { id: String::new(), ..clock.clone() });
        of(one).is_some() && of(one) == of(other)
    };
    let first = names.first().copied();
    if let Some((first, second)) =
        first.zip(names.iter().find(|name| first.is_some_and(|of| of != **name && !is_same(of, name))))
    {
        return unsupported(format!(
            "the trace has the clocks {first} and {second}, and a trace.dat has one; babeltrace2 can write a trace of each stream"
        ));
    }
    let Some(name) = names.first() else {
        // A time without a clock is of the only one.
        return Ok(trace.clocks.first().filter(|_| trace.clocks.len() == 1).cloned());
    };
    match trace.clock(name) {
        Some(clock) => Ok(Some(clock.clone())),
        None => {
            unsupported(format!("the metadata map times to the clock {name}, and declare none of that name"))
        }
    }
}

/// Nanoseconds to add to times of a clock for those of another one: none if it is the same clock, of the same
/// boot. `None` if the traces do not say it.
fn between(clock: Option<&Clock>, other: Option<&Clock>) -> Option<i128> {
    let (Some(clock), Some(other)) = (clock, other) else { return None };
    let of = |clock: &Clock| (clock.name.clone(), clock.uuid.clone(), clock.description.clone());
    if clock.uuid.is_some() && of(clock) == of(other) {
        return Some(0);
    }
    let is_known = |clock: &Clock| clock.absolute || clock.wall_offset() != 0;
    (is_known(clock) && is_known(other)).then(|| clock.wall_offset() - other.wall_offset())
}

/// The clocks that the integers of fields are mapped to. What is used several times is looked at once.
fn clocks<'t>(fields: &'t [Field], names: &mut BTreeSet<&'t str>, seen: &mut HashSet<*const Field>) {
    if !seen.insert(fields.as_ptr()) {
        return;
    }
    for field in fields {
        match &field.ty {
            Type::Struct(of) => clocks(&of.fields, names, seen),
            Type::Variant(variant) => clocks(&variant.options.fields, names, seen),
            ty => names.extend(ty.as_integer().and_then(|of| of.clock.as_deref())),
        }
    }
}

/// Takes what is known of the clock of a recording that was exported. Gives the nanoseconds that its times
/// have more than those of the trace: an export writes the wall time of a clock that is ahead of it.
fn known_clock(described: &Provenance, clock: Option<&Clock>, sink: &mut Sink<'_>) -> i128 {
    let (Some(known), Some(clock)) = (&described.clock, clock) else { return 0 };
    let shift = match (known.wall_offset_ns, clock.wall_offset()) {
        (None, 0) => {
            sink.facts.wall_offset = None;
            0
        }
        (Some(offset), 0) if offset < 0 => {
            sink.facts.wall_offset = Some(offset);
            -i128::from(offset)
        }
        (Some(offset), of_trace) if i128::from(offset) == of_trace => {
            sink.facts.wall_offset = Some(offset);
            0
        }
        // Somebody has changed it since.
        _ => return 0,
    };
    known.name.clone_into(&mut sink.facts.clock);
    shift
}

/// What is true of the whole recording.
fn facts(part: &Part, clock: Option<&Clock>, sink: &mut Sink<'_>) {
    let trace = &part.trace;
    let env = |name| trace.env(name).unwrap_or_default().to_owned();
    let tracing = Tracing::of(trace);
    let facts = &mut sink.facts;
    if let Some(clock) = clock {
        ftrace_clock(clock).clone_into(&mut facts.clock);
        // Many tracers write 0 where they know nothing.
        let is_known = |offset: &i64| *offset != 0 || clock.absolute;
        facts.wall_offset = i64::try_from(clock.wall_offset()).ok().filter(is_known);
    }
    let machine = match trace.env("machine") {
        Some(machine) => machine.to_owned(),
        None if tracing.is_x86_64 => "x86_64".to_owned(),
        None => String::new(),
    };
    facts.uname = Uname {
        system: env("sysname"),
        node: env("hostname"),
        release: env("kernel_release"),
        // Readers take the last word for the machine.
        version: if machine.is_empty() { String::new() } else { env("kernel_version") },
        machine,
    };
    let numbers = ["tracer_major", "tracer_minor", "tracer_patchlevel"].map(env);
    let numbers: Vec<_> = numbers.iter().filter(|number| !number.is_empty()).map(String::as_str).collect();
    let recorder = format!("{} {}", env("tracer_name"), numbers.join("."));
    recorder.trim().clone_into(&mut facts.recorder);
}

/// The name that ftrace has for a clock. Its times are nanoseconds in any case.
fn ftrace_clock(clock: &Clock) -> &str {
    let described = clock.description.as_deref().and_then(|text| {
        // As exports of clocks say it that LTTng does not have.
        text.strip_prefix("Clock ")?.strip_suffix(" of ftrace")
    });
    match (described, clock.name.as_str()) {
        (Some(name), _) => name,
        (None, "monotonic") => "mono",
        // Of which nothing is known but that it counts time.
        (None, _) => "local",
    }
}

/// The files of a part, in the order of time.
fn firsts(part: &Part, options: CtfOptions, total: &mut u64) -> Result<Vec<First>, CtfError> {
    let mut firsts = Vec::new();
    for name in &part.files {
        let Some(file) = part.file(name)? else { continue };
        *total += file.len();
        // Damage is told when the file is read.
        let (stream, cpu, begin) = match file.first_packet(&part.trace, options.foreign_packets) {
            Ok(packet) => (packet.stream, packet.cpu, packet.begin.unwrap_or(0)),
            Err(CtfError::Packet { .. }) => (0, None, 0),
            Err(error) => return Err(error),
        };
        firsts.push(First { stream, cpu, begin, name: name.clone() });
    }
    firsts.sort_by_key(|file| (file.stream, file.cpu, file.begin));
    Ok(firsts)
}

/// The name of a channel, by that of a file: `channel0_1`, `channel0_1_7`. State dumps have none.
fn channel(part: &Part, file: &First) -> Option<String> {
    let stream = part.trace.streams.get(&file.stream)?;
    if !stream.events.is_empty() && stream.events.iter().all(|event| is_of_state_dump(&event.name)) {
        return None;
    }
    let name = file.name.to_str()?;
    let cpu = format!("_{}", file.cpu?);
    let of_one = name.strip_suffix(&cpu);
    let number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let of_many = || name.rsplit_once('_').filter(|(_, last)| number(last))?.0.strip_suffix(&cpu);
    of_one.or_else(of_many).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// What is known of a stream from packet to packet.
#[derive(Clone, Copy, Debug, Default)]
struct StreamState {
    discarded: Option<u64>,
    sequence: Option<u64>,
    /// The thread that runs, as far as it is known.
    thread: Option<u32>,
    /// The time of the last event or packet.
    last: u64,
}

struct Importer<'i, 'w> {
    options: CtfOptions,
    sink: &'i mut Sink<'w>,
    clock: Option<&'i Clock>,
    clock_of_part: Option<Clock>,
    /// Nanoseconds that times of the recording have more than those of the first part.
    recorded: i128,
    /// Nanoseconds to add to the times of the part.
    shift: i128,
    /// Buffers whose names are known, by their channels.
    buffers: BTreeMap<String, BufferId>,
    /// The systems and names that events had before they were exported, by those in the trace.
    names: BTreeMap<String, (String, String)>,
    /// By stream and place of the event in it.
    plans: HashMap<(u64, usize), Plan>,
    threads: Threads,
    /// By trace, stream and CPU, or its file where it has none.
    streams: HashMap<(usize, u64, u32, usize), StreamState>,
    /// Numbers, from 1 on, of files whose packets have no CPU: by trace and name, which chunks repeat.
    files: HashMap<(usize, OsString), usize>,
    /// That of the file that is read; 0 if its packets have a CPU.
    file: usize,
    cpus: u32,
    unknown_threads: u64,
    unknown_programs: u64,
    events: u64,
    done: u64,
    total: u64,
}

impl Importer<'_, '_> {
    /// Goes over to a part.
    fn begin(&mut self, part: &Part) -> Result<(), ImportError> {
        self.plans.clear();
        let clock = clock_of(&part.trace)?;
        let offset = |clock: Option<&Clock>| clock.map_or(0, Clock::wall_offset);
        let more = between(clock.as_ref(), self.clock);
        self.shift = self.recorded + more.unwrap_or_else(|| offset(clock.as_ref()) - offset(self.clock));
        self.clock_of_part = clock;
        // A trace of one process has its name, which its first thread begins with.
        let process = part.trace.env("vpid").and_then(|pid| pid.parse().ok());
        if let (Some(pid), Some(name)) = (process, part.trace.env("procname")) {
            self.threads.name(pid, name.as_bytes(), (0, 0));
        }
        Ok(())
    }

    fn file(&mut self, part: &Part, first: &First, names: &BTreeSet<String>) -> Result<(), ImportError> {
        let Some(file) = part.file(&first.name)? else { return Ok(()) };
        let tracing = Tracing::of(&part.trace);
        let next = self.files.len() + 1;
        self.file = match first.cpu {
            Some(_) => 0,
            None => *self.files.entry((part.number, first.name.clone())).or_insert(next),
        };
        let channel = channel(part, first);
        let known = channel.as_ref().and_then(|channel| self.buffers.get(channel)).copied();
        let buffer = match channel {
            _ if known.is_some() => known.unwrap_or(BufferId::TOP),
            Some(name) if names.len() > 1 && name != DEFAULT_CHANNEL => self.sink.buffer(&name),
            _ => BufferId::TOP,
        };
        let done = self.done;
        let trace = (&part.trace, self.options.foreign_packets);
        let read = file.read::<ImportError>(trace, &mut |item| self.item(item, part, tracing, buffer));
        self.done = done + file.len();
        read
    }

    fn item(
        &mut self,
        item: Item<'_, '_, '_>,
        part: &Part,
        tracing: Tracing,
        buffer: BufferId,
    ) -> Result<(), ImportError> {
        match item {
            Item::Packet(packet) => self.packet(packet, part, buffer),
            Item::Event(packet, event) => self.event(packet, &event, (part, tracing), buffer),
            Item::End(packet) => {
                self.done += packet.len;
                self.end(packet, part, buffer)
            }
        }
    }

    /// A time in nanoseconds of the file's clock; `None` beyond 64 bits.
    fn time(&self, ticks: u64) -> Option<u64> {
        let time = self.clock_of_part.as_ref().map_or(Some(ticks), |clock| clock.nanoseconds(ticks))?;
        u64::try_from(i128::from(time) + self.shift).ok()
    }

    /// Packets that are not there.
    fn packet(&mut self, packet: &Packet, part: &Part, buffer: BufferId) -> Result<(), ImportError> {
        let cpu = packet.cpu.unwrap_or(0);
        self.cpus = self.cpus.max(cpu + 1);
        let what = "UUIDs of packets, which are not that of the metadata they are decoded by";
        self.sink.not_carried(what, packet.is_foreign.into());
        let begin = packet.begin.and_then(|begin| self.time(begin));
        let state = self.streams.entry((part.number, packet.stream, cpu, self.file)).or_default();
        state.last = state.last.max(begin.unwrap_or(0));
        let is_gap = match (state.sequence, packet.sequence) {
            (Some(before), Some(now)) => now > before.saturating_add(1),
            _ => false,
        };
        if state.sequence.is_none() && packet.sequence.is_some_and(|number| number > 0) {
            // What came before is not in the trace, and neither is what was lost then.
            state.discarded = state.discarded.or(packet.discarded.map(|(now, _)| now));
        }
        state.sequence = packet.sequence.or(state.sequence);
        if is_gap {
            state.thread = None;
            let time = state.last;
            self.sink.lost(At { buffer, cpu, time }, None)?;
        }
        Ok(())
    }

    /// Events that were lost after those of the packet: LTTng counts them when a packet is closed, which is
    /// when there was no room for them.
    fn end(&mut self, packet: &Packet, part: &Part, buffer: BufferId) -> Result<(), ImportError> {
        let cpu = packet.cpu.unwrap_or(0);
        let end = packet.end.and_then(|end| self.time(end));
        let state = self.streams.entry((part.number, packet.stream, cpu, self.file)).or_default();
        state.last = state.last.max(end.unwrap_or(0));
        let Some((now, bits)) = packet.discarded else { return Ok(()) };
        let before = state.discarded.replace(now).unwrap_or(0);
        // Numbers of less than 64 bits turn over.
        let mask = u64::MAX >> 64_u32.saturating_sub(bits.into()).min(63);
        let lost = if bits < 64 || now >= before { now.wrapping_sub(before) & mask } else { now };
        if lost == 0 {
            return Ok(());
        }
        state.thread = None;
        let time = state.last;
        self.sink.lost(At { buffer, cpu, time }, Some(lost))
    }

    fn event(
        &mut self,
        packet: &Packet,
        event: &Event<'_, '_>,
        (part, tracing): (&Part, Tracing),
        buffer: BufferId,
    ) -> Result<(), ImportError> {
        self.events += 1;
        if self.events.is_multiple_of(STEP) {
            let done = (self.done + packet.position()).min(self.total);
            self.sink.progress(done, self.total)?;
        }
        let Some(time) = self.time(event.ticks) else {
            self.sink.not_carried("events whose times have more than 64 bits of nanoseconds", 1);
            return Ok(());
        };
        let cpu = packet.cpu.unwrap_or(0);
        if packet.cpu.is_none() {
            self.sink.not_carried("CPUs of events, which the trace does not tell: 0 is written", 1);
        }
        let key = (packet.stream, event.index);
        if !self.plans.contains_key(&key) {
            let Some(stream) = part.trace.streams.get(&packet.stream) else { return Ok(()) };
            let naming = tracing.naming(&event.class.name, &self.names);
            let plan = Plan::new((tracing, naming), stream, event.class, self.sink)?;
            self.plans.insert(key, plan);
        }
        let Some(plan) = self.plans.get(&key) else { return Ok(()) };
        let state = self.streams.entry((part.number, packet.stream, cpu, self.file)).or_default();
        state.last = state.last.max(time);
        let is_of_state = is_of_state_dump(&event.class.name);
        self.sink.facts.lacks_contexts |= !plan.has_flags() && !is_of_state;
        let (common, is_known) = plan.common((event, time), &mut state.thread, &mut self.threads);
        match tracing.tracer {
            _ if is_known || is_of_state => {}
            Tracer::LttngModules => self.unknown_threads += 1,
            Tracer::LttngUst => self.unknown_programs += 1,
            Tracer::Other => {}
        }
        if let Some(process) = plan.process(event).filter(|_| is_known) {
            self.sink.process(common.pid, process);
        }
        let floats = plan.columns.floats;
        self.sink.not_carried("numbers of IEEE 754, which are texts", floats);
        let at = At { buffer, cpu, time };
        let (sink, id) = (&mut *self.sink, plan.event);
        plan.columns.values(event, |values| sink.values(at, id, common, values))?;
        plan.stacks(event, at, common, sink)
    }

    fn finish(self, described: &Provenance) {
        let what = "threads of events, which the trace does not tell: 0 is written; `lttng add-context -t tid` has them";
        self.sink.not_carried(what, self.unknown_threads);
        let what = "threads of events of programs, which the trace does not tell: 0 is written; `lttng add-context -u -t vtid -t vpid -t procname` has them";
        self.sink.not_carried(what, self.unknown_programs);
        let known =
            described.machine.as_ref().and_then(|machine| machine.cpus).filter(|cpus| *cpus <= MAX_CPUS);
        self.sink.facts.cpu_count = known.or(Some(self.cpus).filter(|cpus| *cpus > 0));
        self.threads.tell(self.sink);
        provenance::threads(&described.threads, self.sink);
    }
}

impl From<CtfError> for ImportError {
    fn from(error: CtfError) -> Self {
        let damaged = |at: String, problem: String| Self::Damaged { format: FORMAT, at, problem };
        match error {
            CtfError::Io { action, path, source } => {
                Self::Read { what: format!("{} (to {action} it)", path.display()), source }
            }
            CtfError::Text { path, source } => damaged(path.display().to_string(), source.to_string()),
            CtfError::Metadata { path, source } => damaged(path.display().to_string(), source.to_string()),
            CtfError::Fragment { path, source } => damaged(path.display().to_string(), source.to_string()),
            CtfError::Packet { path, packet, at, source } => damaged(
                format!("{}, byte {at} (packet at byte {packet})", path.display()),
                source.to_string(),
            ),
            error => Self::Unsupported(error.to_string()),
        }
    }
}
