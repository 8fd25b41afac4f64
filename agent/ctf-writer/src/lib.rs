//! Common Trace Format 1.8 and 2 in the layout of a kernel session of LTTng 2.13: `kernel/metadata`,
//! `kernel/CHANNEL_CPU`, `kernel/index/CHANNEL_CPU.idx`.
//!
//! **Data flow:** records and the event formats that describe them → a schema with field types (`schema`) →
//! packets (`stream`) → files with an index (`files`). [`Ctf`] converts a finished file; [`TraceWriter`]
//! writes a trace while its recording runs, and [`Publication`] shows complete packets to readers.
//!
//! **Guarantees**
//!
//! - Babeltrace 1 and 2, Trace Compass and LTTng's own analyses open the traces of CTF 1.8.
//! - Lost events are where LTTng has them: a packet without events stands at the loss, and its counter of
//!   discarded events is higher than that of the packet before.
//! - Readers see complete packets only.
//!
//! **Must not know:** the running kernel, eBPF, network protocols.
//!
//! # Example
//!
//! ```no_run
//! use std::fs::File;
//! use ctf_writer::Ctf;
//! use recording::{Job, Target, TraceFile, export};
//!
//! let file = TraceFile::open(Box::new(File::open("trace.dat")?))?;
//! let target = Target { path: "trace".into(), ..Target::default() };
//! export(&file, &Ctf::Lttng, &target, &Job::new(&|_| {}))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Buffers become channels; the top one is `channel0`, LTTng's default.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `schema` | the declarations of a trace, and the event that each record becomes |
//! | `kernel` | the schema with the kernel's own names: formats `ctf` and `ctf2` |
//! | `lttng` | the schema with the names of lttng-modules: format `lttng` |
//! | `types` | field types, and values as bytes |
//! | `metadata` | the schema as text, in the languages of CTF 1.8 and 2 |
//! | `stream` | packets |
//! | `files` | files of packets, and their index |
//! | `owner` | the owner of a user-space trace |
//! | `convert` | records into a stream |
//! | `continued` | a trace that another process goes on with |
//! | `callstack` | stacks as contexts of their events |
//! | [`TraceWriter`] | a trace that is written while its recording runs |
//! | [`traces`] | the traces in a directory |
//! | [`summary`] | the content of a directory |
//! | `shape` | lengths of events, to count those of a directory |

#![forbid(unsafe_code)]

mod callstack;
mod continued;
mod convert;
mod files;
mod kernel;
mod lttng;
mod metadata;
mod owner;
mod published;
#[cfg(any(test, feature = "sample"))]
#[doc(hidden)]
pub mod sample;
mod schema;
mod shape;
mod stream;
pub mod summary;
pub mod traces;
mod types;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

pub use callstack::CallStacks;
pub use continued::TraceState;
pub use files::FileLimits;
use files::TraceDirectory;
use ftrace_event::{EventTable, Machine, NoNames, Printer};
pub use metadata::{FRAGMENT_VALUES_MAX, names_export};
use metadata::{Language, Metadata};
pub use owner::{Owner, Process};
pub use published::{
    Chunk as PublishedChunk, Consumer, MetadataFile, OpenFile, Packet, PacketFile, Publication,
    State as Published, Stream as PublishedStream, Trace as PublishedTrace,
};
use recording::{Description, ExportError, Format, Job, Recording};
use schema::{Channel, Clock, EventNames, Rules, Trace};
use stdx::output::Directory;
pub use stream::PACKET as PACKET_BYTES;
use stream::{EventHeader, StreamOptions, StreamWriter};
use tracedat::FileOption;
use tracedat::initial_state::InitialState;
use tracedat::ledger::{EventChoice, Ledger};
use tracedat::provenance::{BufferName, EventName};
pub use writer::{ChannelContexts, Chunk, Taken, TraceSession, TraceWriter, generated_name};

pub use lttng::event_name as lttng_name;
pub use lttng::state_events;
pub use lttng::{call_number, kernel_names};

/// What LTTng calls the directory of the kernel's part of a trace.
pub const KERNEL: &str = "kernel";
/// What it calls that of the traces of users and of processes.
pub const UST: &str = "ust";
/// What it calls that of closed chunks.
pub const ARCHIVES: &str = "archives";
/// The file that describes a trace.
pub const METADATA: &str = "metadata";
/// What channels of the top buffer are called.
const TOP_CHANNEL: &str = "channel0";

/// The formats in this layout. Their order is part of the UUIDs of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ctf {
    /// CTF 1.8 with the kernel's own names: format `ctf`.
    Kernel,
    /// CTF 1.8 with the names, types and state dump of lttng-modules: format `lttng`.
    Lttng,
    /// As [`Ctf::Kernel`] in CTF 2: format `ctf2`. Only metadata and UUIDs are others.
    Kernel2,
}

impl Format for Ctf {
    fn name(&self) -> &'static str {
        match self {
            Self::Kernel => "ctf",
            Self::Kernel2 => "ctf2",
            Self::Lttng => "lttng",
        }
    }

    fn keeps(&self) -> &'static [Description] {
        match self {
            Self::Kernel | Self::Kernel2 => {
                &[Description::Choice, Description::Buffers, Description::Machine, Description::Threads]
            }
            Self::Lttng => &[
                Description::Choice,
                Description::Buffers,
                Description::Machine,
                Description::Threads,
                Description::CallNames,
                Description::Disks,
                Description::State,
            ],
        }
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let dir = TraceDirectory::create(dir, KERNEL, true)?;
        let mut states = Vec::new();
        for state in recording.file().states() {
            match state {
                Ok(state) => states.push(state),
                Err(error) => job.not_carried(error.to_string(), 1),
            }
        }
        let mut trace = self.trace(recording, states.first());
        let mut provenance = recording.provenance(states.first());
        let renamed = rename(&mut provenance.buffers, &trace.channels);
        job.not_carried("buffers whose names files cannot have: only import finds these", renamed);
        provenance.events = self.renamed_events(recording, &trace.channels);
        trace.provenance = recording::description::texts(&provenance, job);
        Metadata::create(&dir)?.tell(&trace)?;
        let shapes = Shapes::default();
        job.parallel(recording.cpu_streams(), |cpu_stream| {
            let Some(id) = trace.channels.iter().position(|channel| channel.buffer == cpu_stream.channel)
            else {
                return Ok(());
            };
            let mut stream = trace.stream(&dir, (id, cpu_stream.cpu), trace.span.0, &shapes)?;
            convert::cpu_stream(recording, cpu_stream, &trace, id, &states, &mut stream, job)?;
            // As everywhere, a loss of unknown size counts as one event at least.
            let lost = cpu_stream.lost_at_end().map_or(0, |lost| lost.max(1));
            stream.pass_pauses(&trace.pauses, u64::MAX)?;
            if lost > 0 {
                stream.lost(lost, trace.span.1)?;
            }
            stream.finish(trace.span.1)
        })?;
        if let Some(id) = trace.state_channel().filter(|_| !states.is_empty()) {
            let mut stream = trace.stream(&dir, (id, 0), trace.span.0, &shapes)?;
            for state in &states {
                stream.pass_pauses(&trace.pauses, trace.clock.shifted(state.began_ns))?;
                let channel = &trace.channels[id];
                job.merge_not_carried(lttng::write_state(state, &trace, channel, &mut stream)?);
            }
            stream.pass_pauses(&trace.pauses, u64::MAX)?;
            stream.finish(trace.span.1)?;
        }
        not_carried(recording, job);
        Ok(())
    }
}

/// What the environment of an exported trace has as `written_by`, and that of a recorded one has not: an
/// export may take the place of an earlier one, never of a recording.
const WRITTEN_BY: &str = "tracer-agent export";

impl Ctf {
    fn language(self) -> Language {
        match self {
            Self::Kernel | Self::Lttng => Language::Tsdl,
            Self::Kernel2 => Language::Fragments,
        }
    }

    fn trace(self, recording: &Recording<'_>, state: Option<&InitialState>) -> Trace {
        let mut trace = self.empty_trace(recording, state);
        trace.env.push(("written_by", WRITTEN_BY.into()));
        let mut names = BTreeSet::new();
        for cpu_stream in recording.cpu_streams() {
            if trace.channels.iter().any(|channel| channel.buffer == cpu_stream.channel) {
                continue;
            }
            let cpu_streams = recording.cpu_streams().iter();
            let mut printers =
                kernel::printers(recording, cpu_streams.filter(|other| other.channel == cpu_stream.channel));
            let mut channel = self.channel(&cpu_stream.channel, &printers, recording.machine(), &mut names);
            if self == Self::Lttng {
                let stacks = CallStacks::of(&printers);
                if stacks.any() {
                    printers.retain(|printer| !printer.is_stack());
                }
                lttng::share_contexts(&mut channel, stacks, printers.iter().copied(), recording.machine());
            }
            for printer in printers {
                self.declare(&mut channel, printer, recording.machine());
            }
            trace.channels.push(channel);
        }
        if trace.channels.is_empty() && self.language() == Language::Fragments {
            // Metadata of CTF 2 have one data stream class at least.
            trace.channels.push(self.channel("", &[], recording.machine(), &mut names));
        }
        // An import of a trace has its state dump among its events.
        let is_dumped = recording.events().iter().any(lttng::is_of_state);
        if state.is_some() && !is_dumped {
            self.add_state_channel(&mut trace, &mut names);
        }
        trace
    }

    /// A trace without channels.
    fn empty_trace(self, recording: &Recording<'_>, state: Option<&InitialState>) -> Trace {
        let clock = self.clock(recording, state);
        // The recorder looks at the state beside recording, and may be later than the last record: of then
        // nothing is known.
        let state_span = || {
            let state = state.filter(|_| self == Self::Lttng)?;
            Some((state.began_ns, state.ended_ns.max(state.began_ns)))
        };
        let span = recording.span().or_else(state_span).unwrap_or_default();
        let pauses = recording.pauses().iter().map(|pause| pause.from_ns);
        Trace {
            span: (clock.shifted(span.0), clock.shifted(span.1)),
            uuid: self.uuid(recording),
            language: self.language(),
            env: match self {
                Self::Kernel | Self::Kernel2 => kernel::env(recording, state),
                Self::Lttng => lttng::env(recording, state),
            },
            provenance: Vec::new(),
            pauses: pauses.filter(|from| *from <= span.1).map(|from| clock.shifted(from)).collect(),
            clock,
            channels: Vec::new(),
        }
    }

    /// A channel in which so far no event is declared of those that it will have: these, and perhaps others.
    fn channel(
        self,
        buffer: &str,
        printers: &[&Printer],
        machine: Machine,
        names: &mut BTreeSet<String>,
    ) -> Channel {
        let context = match self {
            Self::Kernel | Self::Kernel2 => {
                printers.first().map_or_else(Vec::new, |printer| kernel::context(printer, machine))
            }
            Self::Lttng => lttng::context(),
        };
        let mut channel = Channel {
            buffer: buffer.to_owned(),
            name: file_name(buffer, names),
            header: EventHeader::Large,
            common: context.iter().map(|(kernel, ..)| kernel.clone()).collect(),
            context: context.into_iter().map(|(_, name, ty)| (name, ty)).collect(),
            of_programs: false,
            shared: Vec::new(),
            stacks: CallStacks::default(),
            // With both, each system call would be there twice.
            name_raw_calls: printers.iter().all(|printer| printer.system() != "syscalls"),
            names: EventNames::default(),
            events: Vec::new(),
            rules: Rules::default(),
        };
        for printer in printers {
            self.declare(&mut channel, printer, machine);
            if channel.events.len() >= stream::COMPACT_EVENTS {
                break;
            }
        }
        channel.header = EventHeader::of(channel.events.len());
        (channel.names, channel.events, channel.rules) = Default::default();
        channel
    }

    /// Declares an event. Gives whether it can be in the channel.
    fn declare(self, channel: &mut Channel, printer: &Printer, machine: Machine) -> bool {
        match self {
            Self::Kernel | Self::Kernel2 => {
                kernel::declare(channel, printer, machine);
                true
            }
            Self::Lttng => lttng::declare(channel, printer, machine),
        }
    }

    /// Declares the contexts that all events of a channel have and will have.
    fn declare_contexts(
        self,
        channel: &mut Channel,
        contexts: ChannelContexts<'_>,
        machine: Machine,
    ) -> Result<(), ExportError> {
        // Elsewhere they are fields and events as others are.
        if self != Self::Lttng {
            return Ok(());
        }
        let ChannelContexts { fields, stacks } = contexts;
        let mut events = EventTable::new(machine);
        let printer = match fields {
            "" => None,
            fields => Some(events.add("", fields, &NoNames).map_err(|source| {
                ExportError::Unsupported(format!("the contexts of the channel {}: {source}", channel.name))
            })?),
        };
        lttng::share_contexts(channel, stacks, printer, machine);
        Ok(())
    }

    /// Names the events that a channel records from the beginning on, for the metadata's head.
    fn choose_names(self, channel: &mut Channel, events: &EventTable, choices: &[EventChoice]) {
        if self == Self::Lttng {
            let of_channel = choices.iter().filter(|choice| choice.channel == channel.buffer);
            let recorded: BTreeSet<_> =
                of_channel.filter_map(|choice| choice.event.split_once(':')).collect();
            let is_recorded = |event: &&Printer| recorded.contains(&(event.system(), event.name()));
            lttng::choose_names(channel, events.iter().filter(is_recorded));
        }
    }

    /// Adds the channel of the state dump, if the format has one.
    fn add_state_channel(self, trace: &mut Trace, names: &mut BTreeSet<String>) {
        if self == Self::Lttng {
            trace.channels.push(lttng::state_channel(file_name("statedump", names)));
        }
    }

    /// The events whose names in LTTng's layout do not tell those of the recording. A name that several have,
    /// each in its channel, tells none of them.
    fn renamed_events(self, recording: &Recording<'_>, channels: &[Channel]) -> Vec<EventName> {
        if self != Self::Lttng {
            return Vec::new();
        }
        let of_channel = |channel: &Channel| {
            let named = |printer: &Printer| {
                let renamed = channel.names.get(printer.format().id)?.to_owned();
                let (system, name) = (printer.system().to_owned(), printer.name().to_owned());
                Some(EventName { system, name, renamed })
            };
            recording.events().iter().filter_map(named).collect::<Vec<_>>()
        };
        let renamed = |(renamed, (system, name)): (String, (String, String))| {
            let is_told =
                kernel_names::event(&renamed).is_some_and(|known| known == (&*system, name.clone()));
            (!is_told).then_some(EventName { system, name, renamed })
        };
        let named = EventName::unambiguous(channels.iter().flat_map(of_channel));
        named.into_iter().filter_map(renamed).collect()
    }

    /// The provenance of a recording that goes on, as far as its head has it: nothing has been counted.
    fn provenance_of_head(
        self,
        recording: &Recording<'_>,
        state: Option<&InitialState>,
        channels: &[Channel],
    ) -> Vec<(String, String)> {
        // A state dump has the threads of its time.
        let mut provenance = recording.provenance(state.filter(|_| self != Self::Lttng));
        provenance.machine.get_or_insert_default().host = recording.host(state);
        let buffer = |channel: &Channel| BufferName { name: channel.buffer.clone(), ..BufferName::default() };
        let of_events = channels.iter().filter(|channel| channel.buffer != lttng::STATE_BUFFER);
        provenance.buffers = of_events.map(buffer).collect();
        rename(&mut provenance.buffers, channels);
        provenance.events = self.renamed_events(recording, channels);
        for ledger in &mut provenance.ledgers {
            let (only, choices) = (std::mem::take(&mut ledger.only), std::mem::take(&mut ledger.choices));
            *ledger = Ledger { version: ledger.version, only, choices, ..Ledger::default() };
        }
        provenance.texts().texts
    }

    /// The same recording always gets the same one, and another one for each format.
    fn uuid(self, recording: &Recording<'_>) -> [u8; 16] {
        let file = recording.file();
        let mut uuid = [0; 16];
        for (index, half) in uuid.chunks_exact_mut(8).enumerate() {
            let mut hasher = DefaultHasher::new();
            (index, self, file.file_len(), recording.span()).hash(&mut hasher);
            for cpu_stream in recording.cpu_streams() {
                (&cpu_stream.channel, cpu_stream.cpu, &cpu_stream.by_id, cpu_stream.counts.first)
                    .hash(&mut hasher);
            }
            for fact in file.facts() {
                if let FileOption::TraceId(id) = fact {
                    id.hash(&mut hasher);
                }
            }
            half.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        // Version 8, made by a rule of one's own; the variant of RFC 9562.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }

    /// Takes how the clock stands to wall time. The times of a trace that is being written stay what they
    /// are; an offset that cannot be said with them is not taken.
    fn set_clock(self, clock: &mut Clock, recording: &Recording<'_>) {
        let new = self.clock(recording, None);
        let to_wall = i128::from(new.offset) + i128::from(new.shift);
        if let Ok(offset) = u64::try_from(to_wall - i128::from(clock.shift)) {
            clock.offset = offset;
            clock.absolute |= new.absolute;
        }
    }

    fn clock(self, recording: &Recording<'_>, state: Option<&InitialState>) -> Clock {
        let name = recording.clock_name();
        let wall = recording.wall_offset();
        let boot_id = recording.host(state).boot_id;
        let description = match name.as_str() {
            "" | "mono" => "Monotonic Clock".to_owned(),
            name => format!("Clock {name} of ftrace"),
        };
        // An offset cannot be negative.
        let (offset, shift) = match wall.unwrap_or(0) {
            offset @ 0.. => (offset as u64, 0),
            shift => (0, shift),
        };
        Clock {
            uuid: Some(boot_id).filter(|id| id.len() == 36),
            description,
            offset,
            absolute: self != Self::Lttng && wall.is_some(),
            shift,
        }
    }
}

impl Trace {
    fn stream(
        &self,
        dir: &TraceDirectory,
        (id, cpu): (usize, u32),
        begin: u64,
        shapes: &Shapes,
    ) -> Result<StreamWriter, ExportError> {
        let channel = &self.channels[id];
        let shape = shapes.of(&channel.buffer);
        let options = StreamOptions {
            uuid: self.uuid,
            stream_id: id as u32,
            instance_id: cpu.into(),
            cpu,
            header: channel.header,
            begin,
            packet: shape.packet,
            limits: shape.files,
            exact: channel.buffer != lttng::STATE_BUFFER,
        };
        StreamWriter::create(dir, &format!("{}_{cpu}", channel.name), options)
    }

    /// The channel of the state dump, if there is one.
    fn state_channel(&self) -> Option<usize> {
        self.channels.iter().position(|channel| channel.buffer == lttng::STATE_BUFFER)
    }
}

/// How streams are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes of a packet, at most, as LTTng's sub-buffers have a size. A record that is longer has a packet
    /// of its own.
    pub packet: usize,
    /// The files that the packets are in.
    pub files: FileLimits,
}

impl Default for Shape {
    fn default() -> Self {
        Self { packet: stream::PACKET, files: FileLimits::default() }
    }
}

/// How the streams of each channel are divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shapes(BTreeMap<String, Shape>);

impl Shapes {
    /// That of a channel, by the name of its buffer; what LTTng has by default where nothing is said.
    pub fn of(&self, buffer: &str) -> Shape {
        self.0.get(buffer).copied().unwrap_or_default()
    }

    /// Whether all packets are whole pages, and at most so many bytes.
    pub fn are_within(&self, packet: usize) -> bool {
        let is_within =
            |shape: &Shape| (1..=packet).contains(&shape.packet) && shape.packet.is_multiple_of(stream::PAGE);
        self.0.values().all(is_within)
    }

    /// Gives a buffer the shape of another one.
    fn give(&mut self, buffer: &str, like: &str) {
        if let Some(shape) = self.0.get(like).copied() {
            self.0.insert(buffer.to_owned(), shape);
        }
    }

    /// The same with one file for each stream, whatever its size, as LTTng's snapshots have them.
    #[must_use]
    pub fn in_one_file(&self) -> Self {
        self.with_files(|_| FileLimits::default())
    }

    /// The same where who gets the packets keeps to the limits of files.
    #[must_use]
    pub fn limited_elsewhere(&self) -> Self {
        self.with_files(|files| FileLimits { is_elsewhere: true, ..files })
    }

    fn with_files(&self, files: impl Fn(FileLimits) -> FileLimits) -> Self {
        let of =
            |(name, shape): (&String, &Shape)| (name.clone(), Shape { files: files(shape.files), ..*shape });
        self.0.iter().map(of).collect()
    }
}

impl FromIterator<(String, Shape)> for Shapes {
    fn from_iter<I: IntoIterator<Item = (String, Shape)>>(shapes: I) -> Self {
        Self(shapes.into_iter().collect())
    }
}

impl Clock {
    /// The time of a record as the trace has it.
    fn shifted(&self, time: u64) -> u64 {
        time.saturating_add_signed(self.shift)
    }
}

/// A name for the files of a channel that no other has. The names of buffers come from the recording, and
/// must not lead anywhere.
fn file_name(buffer: &str, taken: &mut BTreeSet<String>) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let mut name: String = buffer.chars().take(200).map(keep).collect();
    if name.is_empty() {
        TOP_CHANNEL.clone_into(&mut name);
    }
    // `a` on CPU 1 and `a_1` on CPU 0 differ; `index` is a directory, but its files are called `index_0`.
    let first = name.clone();
    let mut number = 1;
    while !taken.insert(name.clone()) {
        number += 1;
        name = format!("{first}-{number}");
    }
    name
}

/// Gives buffers the names that their channels have. Returns how many have another one than in the recording.
fn rename(buffers: &mut [BufferName], channels: &[Channel]) -> u64 {
    let mut renamed = 0;
    for buffer in buffers {
        let Some(channel) = channels.iter().find(|channel| channel.buffer == buffer.name) else { continue };
        channel.name.clone_into(&mut buffer.renamed);
        let expected = if buffer.name.is_empty() { TOP_CHANNEL } else { &buffer.name };
        renamed += u64::from(buffer.renamed != expected);
    }
    renamed
}

/// What the layout cannot say of any recording.
fn not_carried(recording: &Recording<'_>, job: &Job<'_>) {
    if recording.wall_offset().is_none() && recording.span().is_some() {
        job.not_carried(
            "the time of day, which the recording does not tell: times count from the clock's zero",
            1,
        );
    }
    if !recording.counts_nanoseconds() {
        let clock = recording.clock_name();
        job.not_carried(format!("the unit of clock {clock}: its ticks are written as nanoseconds"), 1);
    }
    let unknown = recording.cpu_streams().iter().map(recording::CpuStream::losses_uncounted).sum();
    job.not_carried("losses of unknown size, counted as one event each", unknown);
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
