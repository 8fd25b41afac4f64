//! A trace that is written while its recording goes on: what comes is declared when it comes first, and
//! packets are written when they are full, or when somebody wants to see them.

use std::{collections::BTreeMap, sync::Arc};

use super::callstack::{CallStacks, Held};
use super::continued::{ChannelState, Made};
use super::convert::Converter;
use super::metadata::Metadata;
use super::owner::Owner;
use super::published::Publication;
use super::schema::{EnvValue, Trace};
use super::stream::StreamWriter;
use super::{Ctf, Shapes, TraceDirectory, lttng};
use ftrace_event::EventTable;
use recording::survey::lost_by_cpu;
use recording::{ExportError, Format, NotCarried, Recording, TraceFile};
use serde::{Deserialize, Serialize};
use stdx::output::Directory;
use stdx::utc;
use tracedat::initial_state::InitialState;
use tracedat::ledger::{Ledger, Pause};
use tracedat::reader::Record;

/// The latest time that an event can have.
const NO_END: u64 = u64::MAX;

/// Where a part of a trace goes that can be read by itself: all of it, or what is between two rotations.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The directory of the trace, which is empty.
    pub dir: &'a Directory,
    /// How many chunks of the recording are before it. Traces that begin in different ones have different
    /// UUIDs.
    pub before: u64,
    /// Who is told what is written, and the path of the trace in the chunk. Streams that nobody is told of
    /// have no indexes, as LTTng's snapshots have none.
    pub published: Option<(&'a Arc<Publication>, &'a str)>,
    /// The session that it is recorded in, if it is in one.
    pub session: Option<&'a TraceSession>,
}

/// What a trace has of the recording session that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSession {
    /// Its name.
    pub name: String,
    /// When it was created, in seconds since 1970.
    pub created_at: u64,
    /// Whether each chunk begins with the machine's state, where the format has a place for it.
    pub has_state: bool,
}

impl TraceSession {
    /// Names the session in the environment of a trace of LTTng's, as lttng-modules 2.13 does
    /// (`lttng_session_create`, src/lttng-events.c).
    fn describe(&self, env: &mut Vec<(&'static str, EnvValue)>) {
        let Some(at) = env.iter().position(|(name, _)| *name == TRACE_NAME) else { return };
        let name = generated_name(&self.name).unwrap_or(&self.name);
        let created_at = utc::compact(self.created_at.saturating_mul(1_000_000_000));
        env.retain(|(name, _)| *name != CREATED);
        env[at].1 = name.into();
        env.insert(at + 1, (CREATED, created_at.into()));
    }
}

/// The name without the time, of a session whose name the session daemon has made as LTTng's makes them:
/// `auto` of `auto-20260302-101500`.
pub fn generated_name(name: &str) -> Option<&str> {
    let (generated, time) = name.split_once('-')?;
    let (date, time) = time.split_once('-')?;
    let is_number =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    (generated == "auto" && is_number(date, 8) && is_number(time, 6)).then_some(generated)
}

/// The name of a trace in its environment, and when it was created.
const TRACE_NAME: &str = "trace_name";
const CREATED: &str = "trace_creation_datetime";

impl Chunk<'_> {
    /// Takes the directory for a trace with this UUID.
    fn create(self, uuid: [u8; 16]) -> Result<TraceDirectory, ExportError> {
        let dir = TraceDirectory::within(self.dir.clone(), self.published.is_some())?;
        let (publication, path) = self.published.unzip();
        Ok(dir.published(publication, (path.unwrap_or_default(), uuid)))
    }
}

/// The contexts that all events of a channel have, those that are added later included.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelContexts<'a> {
    /// The format of an event that has no other fields; empty without fields.
    pub fields: &'a str,
    /// Stacks that follow events of the channel.
    pub stacks: CallStacks,
}

/// What has become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the trace, or will be when its stacks have come.
    Written,
    /// Nothing that is known describes its event, or it lacks contexts that its channel was declared with.
    Unknown,
}

/// Writes the records of a recording in one or several chunks, which are one trace: they have the same UUID,
/// and the numbers of packets and lost events go on.
#[derive(Debug)]
pub struct TraceWriter {
    naming: Ctf,
    shapes: Shapes,
    pub(super) trace: Trace,
    /// What the channels of the trace were made of.
    pub(super) channel_states: Vec<ChannelState>,
    /// What describes the events.
    events: EventTable,
    /// The channel of each buffer.
    pub(super) channels: Vec<usize>,
    dir: TraceDirectory,
    metadata: Metadata,
    /// By buffer and CPU.
    pub(super) streams: Vec<Vec<Option<Stream>>>,
    pub(super) state: Option<StreamWriter>,
    converter: Converter,
    not_carried: NotCarried,
    /// Whether it is of programs: then it has no state of the machine.
    of_programs: bool,
    /// When streams begin that are new.
    streams_begin: u64,
    /// Whether chunks begin with the state.
    has_state: bool,
}

/// A stream, and what was known of it when its chunk began.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) writer: StreamWriter,
    /// The last event, while its stacks may come.
    held: Option<Held>,
    pub(super) discarded_before: u64,
}

/// Stands for the channel of a buffer that is not in the trace.
pub(super) const NO_CHANNEL: usize = usize::MAX;
/// CPUs that Linux can have at most (`NR_CPUS` of its largest configuration).
const CPUS_MAX: u32 = 1 << 13;

impl TraceWriter {
    /// Begins a trace. `head` is a trace file that describes the events, without data, and has the buffers
    /// that the records are in. The trace has those for which `wanted` gives contexts by their names. No
    /// record is from before `begin`, by the recording's clock.
    ///
    /// The state that the head has is written first, where the format has a place for it.
    ///
    /// # Errors
    /// The directory cannot be written, or an event cannot be described.
    pub fn create<'w>(
        (naming, shapes): (Ctf, Shapes),
        (head, begin): (&TraceFile, u64),
        chunk: Chunk<'_>,
        wanted: &dyn Fn(&str) -> Option<ChannelContexts<'w>>,
    ) -> Result<Self, ExportError> {
        let mut made = Made::new(naming, head, None);
        for buffer in head.buffers() {
            if let Some(contexts) = wanted(&buffer.name) {
                made.add_channel(&ChannelState::of_buffer(&buffer.name, contexts))?;
            }
        }
        // It may be known only later, and has its place then.
        made.add_state_channel();
        Self::begin((naming, shapes), (head, begin), chunk, made)
    }

    /// The same for the events of programs that a user or a process has rings of its own for. Its channels
    /// are added when they have records.
    ///
    /// # Errors
    /// As for [`TraceWriter::create`].
    pub fn of_programs(
        (naming, shapes): (Ctf, Shapes),
        (head, begin): (&TraceFile, u64),
        chunk: Chunk<'_>,
        owner: &Owner,
    ) -> Result<Self, ExportError> {
        Self::begin((naming, shapes), (head, begin), chunk, Made::new(naming, head, Some(owner)))
    }

    /// What all traces begin with: the directory, the metadata, and the state that the head has.
    fn begin(
        (naming, shapes): (Ctf, Shapes),
        (head, begin): (&TraceFile, u64),
        chunk: Chunk<'_>,
        mut made: Made<'_>,
    ) -> Result<Self, ExportError> {
        made.begin_after(chunk.before);
        let mut writer = Self::describe_only((naming, shapes), begin, chunk, made)?;
        writer.put_state(head, false)?;
        Ok(writer)
    }

    /// The directory and the metadata.
    pub(super) fn describe_only(
        (naming, shapes): (Ctf, Shapes),
        begin: u64,
        chunk: Chunk<'_>,
        made: Made<'_>,
    ) -> Result<Self, ExportError> {
        let of_programs = made.owner.is_some();
        let (mut trace, channel_states, channels, events) = made.finish();
        trace.span = (trace.clock.shifted(begin), NO_END);
        if let Some(session) = chunk.session {
            session.describe(&mut trace.env);
        }
        let dir = chunk.create(trace.uuid)?;
        let metadata = Metadata::create(&dir)?;
        let mut writer = Self {
            naming,
            shapes,
            trace,
            channel_states,
            events,
            channels,
            dir,
            metadata,
            streams: Vec::new(),
            state: None,
            converter: Converter::of_recorder(),
            not_carried: NotCarried::default(),
            of_programs,
            streams_begin: 0,
            has_state: chunk.session.is_none_or(|session| session.has_state),
        };
        for channel in &writer.channel_states {
            if let Some(like) = &channel.like {
                writer.shapes.give(&channel.buffer, like);
            }
        }
        writer.streams_begin = writer.trace.span.0;
        writer.metadata.tell(&writer.trace)?;
        Ok(writer)
    }

    /// Has the records of a buffer in a separate channel, which looks like that of the buffer `like`.
    ///
    /// # Errors
    /// The disk is full, or the contexts cannot be understood.
    pub fn add_channel(
        &mut self,
        (index, buffer): (usize, &str),
        (name, like): (&str, &str),
        contexts: ChannelContexts<'_>,
    ) -> Result<(), ExportError> {
        if self.channels.get(index).is_some_and(|of| *of != NO_CHANNEL) {
            // A trace that goes on has it already.
            return Ok(());
        }
        let mut names = self.trace.channels.iter().map(|channel| channel.name.clone()).collect();
        let mut state = ChannelState::of_set((buffer, name, like), contexts);
        let channel = state.channel(self.naming, &self.events, &mut names)?;
        state.take(&channel);
        self.shapes.give(buffer, like);
        if let Some(of) = self.channels.get_mut(index) {
            *of = self.trace.channels.len();
        }
        self.trace.channels.push(channel);
        self.channel_states.push(state);
        self.metadata.tell(&self.trace)
    }

    /// Takes the descriptions of events from another head of the same recording, which has more of them.
    pub fn describe(&mut self, head: &TraceFile) {
        let recording = Recording::of_head(head);
        self.naming.set_clock(&mut self.trace.clock, &recording);
        self.events = recording.into_events();
    }

    /// Takes the provenance from a head, for metadata that are written again.
    fn know_provenance(&mut self, head: &TraceFile) {
        if !self.of_programs {
            let recording = Recording::of_head(head);
            let state = head.initial_state().ok().flatten();
            self.trace.provenance =
                self.naming.provenance_of_head(&recording, state.as_ref(), &self.trace.channels);
        }
    }

    /// Takes the descriptions of events, and how the clock stands to wall time, from another head of the same
    /// recording, and writes all metadata again.
    ///
    /// # Errors
    /// The metadata cannot be written; what is there stays.
    pub fn describe_again(&mut self, head: &TraceFile) -> Result<(), ExportError> {
        self.describe(head);
        self.know_provenance(head);
        self.metadata.rewrite(&self.trace)
    }

    /// Creates the files of streams that are recorded, also of those in which nothing happens: each is its
    /// buffer in the head and its CPU.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn open(&mut self, streams: impl IntoIterator<Item = (usize, u32)>) -> Result<(), ExportError> {
        streams.into_iter().try_for_each(|(buffer, cpu)| self.stream(buffer, cpu).map(drop))
    }

    /// Writes a record. Those of a CPU come in the order of time.
    ///
    /// # Errors
    /// The disk is full, or the record is of no stream that there can be.
    pub fn record(&mut self, record: &Record<'_>) -> Result<Taken, ExportError> {
        let (buffer, cpu) = (record.buffer, record.cpu);
        let is_open = self.streams.get(buffer).and_then(|cpus| cpus.get(cpu as usize));
        if !is_open.is_some_and(Option::is_some) {
            self.stream(buffer, cpu)?;
        }
        if self.put(record)? {
            return Ok(Taken::Written);
        }
        let id = record.event_id();
        let Some(printer) = id.and_then(|id| self.events.get(id)) else { return Ok(Taken::Unknown) };
        let at = self.channels.get(buffer).copied().unwrap_or(NO_CHANNEL);
        let channel = self.trace.channels.get_mut(at).zip(self.channel_states.get_mut(at));
        let Some((channel, channel_states)) = channel else { return Ok(Taken::Unknown) };
        if !self.naming.declare(channel, printer, self.events.machine()) {
            return Ok(Taken::Unknown);
        }
        channel_states.events.push((printer.system().to_owned(), printer.name().to_owned()));
        self.metadata.tell(&self.trace)?;
        // What was lost before it is written.
        let written = self.put(&Record { missed: None, ..*record })?;
        Ok(if written { Taken::Written } else { Taken::Unknown })
    }

    fn put(&mut self, record: &Record<'_>) -> Result<bool, ExportError> {
        let Self { trace, events, channels, streams, converter, .. } = self;
        let channel = channels.get(record.buffer).and_then(|id| trace.channels.get(*id));
        let stream = streams.get_mut(record.buffer).and_then(|cpus| cpus.get_mut(record.cpu as usize));
        let (Some(channel), Some(Some(stream))) = (channel, stream) else { return Ok(false) };
        let Stream { writer, held, .. } = stream;
        converter.take((record, events), held, (channel, trace), writer)
    }

    /// Writes the events whose stacks come no more: those from before this time, by the recording's clock. An
    /// event and its stacks have the same time.
    fn release(&mut self, until: u64) -> Result<(), ExportError> {
        let Self { trace, channels, streams, converter, .. } = self;
        for (cpus, id) in streams.iter_mut().zip(channels) {
            let Some(channel) = trace.channels.get(*id).filter(|channel| channel.stacks.any()) else {
                continue;
            };
            for Stream { writer, held, .. } in cpus.iter_mut().flatten() {
                if let Some(event) = held.take_if(|event| event.record().timestamp < until) {
                    converter.record_held(Some(event), (channel, trace), writer)?;
                }
            }
        }
        Ok(())
    }

    /// Tells which pauses there were in the chunk by now, by the recording's clock: those from before, and
    /// perhaps more.
    pub fn know_pauses(&mut self, pauses: &[Pause]) {
        let Self { trace, streams, state, .. } = self;
        let Trace { clock, pauses: known, .. } = trace;
        let now: Vec<u64> = pauses.iter().map(|pause| clock.shifted(pause.from_ns)).collect();
        let is_other = !now.starts_with(known);
        *known = now;
        if is_other {
            let streams = streams.iter_mut().flatten().flatten().map(|stream| &mut stream.writer);
            streams.chain(state).for_each(|stream| stream.find_pauses(known));
        }
    }

    /// Ends the packets in the pause that goes on: all that was written can be read.
    ///
    /// # Errors
    /// The disk is full.
    pub fn pause(&mut self) -> Result<(), ExportError> {
        self.release(u64::MAX)?;
        let Self { trace, streams, state, .. } = self;
        let streams = streams.iter_mut().flatten().flatten().map(|stream| &mut stream.writer);
        streams.chain(state).try_for_each(|stream| {
            stream.pass_pauses(&trace.pauses, u64::MAX)?;
            stream.flush()
        })
    }

    /// Ends the packets that are being filled, so that all events from before `until`, by the recording's
    /// clock, can be read: no record from before then comes any more.
    ///
    /// # Errors
    /// The disk is full.
    pub fn flush(&mut self, until: u64) -> Result<(), ExportError> {
        self.release(until)?;
        self.all_streams().try_for_each(|stream| stream.writer.flush())
    }

    /// Ends the packets that are being filled, and tells those who read meanwhile that no event from before
    /// this time, by the recording's clock, comes any more. Streams that are `marked` have a packet that ends
    /// then, also where they have no event: those who wait for packets learn what else is new.
    ///
    /// # Errors
    /// The disk is full.
    pub fn tell_silence(&mut self, until: u64, marked: bool) -> Result<(), ExportError> {
        self.release(until)?;
        self.begin_streams_at(until);
        let until = self.trace.clock.shifted(until);
        let streams = self.streams.iter_mut().flatten().flatten().map(|stream| &mut stream.writer);
        streams.chain(&mut self.state).try_for_each(|stream| stream.tell_silence(until, marked))
    }

    /// Lets streams that are new from now on begin at this time, by the recording's clock, instead of with
    /// the trace: others may have read what all have until then.
    pub fn begin_streams_at(&mut self, time: u64) {
        self.streams_begin = self.streams_begin.max(self.trace.clock.shifted(time));
    }

    /// How many streams it has.
    pub fn stream_count(&self) -> usize {
        self.streams.iter().flatten().flatten().count() + usize::from(self.state.is_some())
    }

    /// Ends the chunk: with what the ledger of its part of the recording says of losses, and at a time by the
    /// recording's clock, from when on what happens is not in it.
    ///
    /// # Errors
    /// The disk is full.
    pub fn end_chunk(&mut self, end: u64, ledger: &Ledger) -> Result<(), ExportError> {
        self.release(u64::MAX)?;
        let end = self.trace.clock.shifted(end);
        let lost = lost_by_cpu(ledger);
        self.open_lost(&lost)?;
        for (buffer, cpus) in self.streams.iter_mut().enumerate() {
            let channel = self.channels.get(buffer).and_then(|id| self.trace.channels.get(*id));
            let Some(channel) = channel else { continue };
            for (cpu, stream) in (0..).zip(cpus) {
                let Some(stream) = stream else { continue };
                stream.writer.pass_pauses(&self.trace.pauses, end)?;
                if let Some(lost) = lost.get(&(channel.buffer.as_str(), cpu)) {
                    let in_all = stream.discarded_before.saturating_add(*lost);
                    stream.writer.lost_in_all(in_all, end)?;
                }
                stream.writer.finish(end)?;
                stream.discarded_before = stream.writer.discarded();
            }
        }
        self.state.iter_mut().try_for_each(|stream| {
            stream.pass_pauses(&self.trace.pauses, end)?;
            stream.finish(end)
        })
    }

    /// Creates the files of streams in which something was lost, and nothing else is.
    fn open_lost(&mut self, lost: &BTreeMap<(&str, u32), u64>) -> Result<(), ExportError> {
        let Self { channels, trace, .. } = self;
        let index = |buffer: &str| {
            channels.iter().position(|id| trace.channels.get(*id).is_some_and(|of| of.buffer == buffer))
        };
        let lost = lost.iter().filter(|(_, lost)| **lost != 0);
        let streams: Vec<_> = lost.filter_map(|((buffer, cpu), _)| Some((index(buffer)?, *cpu))).collect();
        self.open(streams)
    }

    /// Goes on in another chunk, of which this is the head. Each has all metadata, all streams, and the state
    /// at its begin.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn next_chunk(&mut self, chunk: Chunk<'_>, head: &TraceFile) -> Result<(), ExportError> {
        self.trace.pauses.clear();
        self.dir = chunk.create(self.trace.uuid)?;
        self.describe(head);
        self.know_provenance(head);
        self.metadata.move_to(&self.dir, &self.trace)?;
        let Self { streams, state, dir, .. } = self;
        for stream in streams.iter_mut().flatten().flatten() {
            stream.writer.move_to(dir)?;
        }
        state.iter_mut().try_for_each(|stream| stream.move_to(dir))?;
        self.put_state(head, false)
    }

    /// Writes the state at the begin of the chunk, which this head has and the one before had not.
    ///
    /// # Errors
    /// The disk is full.
    pub fn put_late_state(&mut self, head: &TraceFile) -> Result<(), ExportError> {
        self.put_state(head, true)
    }

    /// Records that were written.
    pub fn events(&self) -> u64 {
        self.converter.written()
    }

    /// What could not be carried over since this was asked.
    pub fn take_not_carried(&mut self) -> NotCarried {
        let mut not_carried = std::mem::take(&mut self.not_carried);
        not_carried.merge(self.converter.take_not_carried());
        not_carried
    }

    pub(super) fn put_state(&mut self, head: &TraceFile, is_late: bool) -> Result<(), ExportError> {
        let state: Option<InitialState> = head.initial_state().unwrap_or_else(|error| {
            self.not_carried.add(error.to_string(), 1);
            None
        });
        let Some(state) = state else { return Ok(()) };
        if is_late {
            self.converter.know_late(&state);
        } else {
            self.converter.know(&state);
        }
        if self.has_state { self.write_state(&state) } else { Ok(()) }
    }

    /// Writes a state of later than the begin of the chunk.
    ///
    /// # Errors
    /// The disk is full.
    pub fn put_later_state(&mut self, state: &InitialState) -> Result<(), ExportError> {
        // Some of the records after it may have been written.
        self.converter.know_late(state);
        self.write_state(state)
    }

    fn write_state(&mut self, state: &InitialState) -> Result<(), ExportError> {
        // The traces of programs have none.
        if self.of_programs {
            return Ok(());
        }
        let Some(id) = self.trace.state_channel() else {
            self.not_carried.merge(recording::description::not_kept_of_state(state, self.naming.keeps()));
            return Ok(());
        };
        self.open_state_stream(id)?;
        let Some(stream) = &mut self.state else { return Ok(()) };
        let Some(channel) = self.trace.channels.get(id) else { return Ok(()) };
        stream.pass_pauses(&self.trace.pauses, self.trace.clock.shifted(state.began_ns))?;
        self.not_carried.merge(lttng::write_state(state, &self.trace, channel, stream)?);
        stream.flush()
    }

    /// Creates the stream of the state if it is not there.
    pub(super) fn open_state_stream(&mut self, id: usize) -> Result<(), ExportError> {
        if self.state.is_none() {
            let stream = self.trace.stream(&self.dir, (id, 0), self.streams_begin, &self.shapes)?;
            self.state = Some(stream);
        }
        Ok(())
    }

    fn all_streams(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.iter_mut().flatten().flatten()
    }

    /// Opens a stream if it is not.
    pub(super) fn stream(&mut self, buffer: usize, cpu: u32) -> Result<(), ExportError> {
        let id = self.channels.get(buffer).copied().filter(|_| cpu < CPUS_MAX);
        let id = id.filter(|id| *id < self.trace.channels.len());
        let Some(id) = id else {
            let what = format!("there is no buffer {buffer} with a CPU {cpu} in the recording");
            return Err(ExportError::Unsupported(what));
        };
        if self.streams.len() <= buffer {
            self.streams.resize_with(buffer + 1, Vec::new);
        }
        let cpus = &mut self.streams[buffer];
        if cpus.len() <= cpu as usize {
            cpus.resize_with(cpu as usize + 1, || None);
        }
        let stream = &mut cpus[cpu as usize];
        if stream.is_none() {
            let writer = self.trace.stream(&self.dir, (id, cpu), self.streams_begin, &self.shapes)?;
            *stream = Some(Stream { writer, held: None, discarded_before: 0 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_the_names_of_their_sessions() {
        let named = |name: &str| {
            let session = TraceSession { name: name.to_owned(), created_at: 1_772_446_500, has_state: true };
            let texts = [("domain", "kernel"), (TRACE_NAME, "trace"), (CREATED, "then"), ("exporter", "x")];
            let mut env: Vec<_> =
                texts.into_iter().map(|(name, text)| (name, EnvValue::from(text))).collect();
            session.describe(&mut env);
            env
        };
        let expected = |name: &str| {
            let created_at = (CREATED, EnvValue::from("20260302T101500+0000"));
            vec![
                ("domain", "kernel".into()),
                (TRACE_NAME, name.into()),
                created_at,
                ("exporter", EnvValue::from("x")),
            ]
        };
        assert_eq!(named("mine"), expected("mine"));
        assert_eq!(named("auto-20260302-101500"), expected("auto"));
        assert_eq!(named("auto-brake"), expected("auto-brake"));
        assert_eq!(named("auto-20260302-101500-x"), expected("auto-20260302-101500-x"));
        // Formats that have no such names get none.
        let session = TraceSession { name: "mine".into(), created_at: 0, has_state: true };
        let mut env = vec![("domain", EnvValue::from("kernel"))];
        session.describe(&mut env);
        assert_eq!(env, [("domain", EnvValue::from("kernel"))]);
    }
}
