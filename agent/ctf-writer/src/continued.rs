//! A trace that another process goes on with: what its channels were made of, and how far its streams are.
//!
//! Readers take directories with one UUID for parts of one trace, whose metadata they read once. So a trace
//! that goes on has the declarations that it had, in their order, and others behind them.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::callstack::CallStacks;
use super::metadata::sum_of_declarations;
use super::owner::Owner;
use super::schema::{Channel, Trace};
use super::stream::{EventHeader, StreamState, StreamWriter};
use super::writer::{ChannelContexts, Chunk, NO_CHANNEL, Stream, TraceWriter};
use super::{Ctf, Shapes, lttng};
use ftrace_event::EventTable;
use recording::{ExportError, Recording, TraceFile};
use tracedat::ledger::{EventChoice, Ledger};

/// What a trace is as one of its chunks begins: enough to write that chunk, again or in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceState {
    uuid: [u8; 16],
    /// Nanoseconds that are added to the times of records.
    shift: i64,
    channels: Vec<ChannelState>,
    /// A sum of what these declare.
    declarations: u64,
    streams: Vec<(StreamId, StreamState)>,
}

/// A stream, by the index of its channel, and its CPU.
type StreamId = (usize, u32);

/// The most events that a trace goes on with, those of all system calls counted one by one: what is noted of
/// a trace may be another user's.
const EVENTS_MAX: usize = 1 << 17;
/// The same of a trace of programs, whose events are probes and markers.
const EVENTS_OF_PROGRAMS_MAX: usize = 1 << 12;

/// What a channel was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChannelState {
    pub(super) buffer: String,
    /// The name that it is given, which others may have.
    name: String,
    /// The buffer that says how its streams are divided, if it is one of several sets.
    pub(super) like: Option<String>,
    /// The format of the contexts of all events.
    fields: String,
    stacks: CallStacks,
    /// `None` before it is made.
    pub(super) header: Option<EventHeader>,
    /// The same of what the events of all system calls are called.
    pub(super) name_raw_calls: Option<bool>,
    /// Systems and names of the events, in the order in which they were declared.
    pub(super) events: Vec<(String, String)>,
}

impl ChannelState {
    /// That of the buffer's own channel.
    pub(super) fn of_buffer(buffer: &str, contexts: ChannelContexts<'_>) -> Self {
        Self {
            buffer: buffer.to_owned(),
            name: buffer.to_owned(),
            like: None,
            fields: contexts.fields.to_owned(),
            stacks: contexts.stacks,
            header: None,
            name_raw_calls: None,
            events: Vec::new(),
        }
    }

    /// Takes what a channel is that was made.
    pub(super) fn take(&mut self, channel: &Channel) {
        (self.header, self.name_raw_calls) = (Some(channel.header), Some(channel.name_raw_calls));
    }

    /// That of a set of rings.
    pub(super) fn of_set((buffer, name, like): (&str, &str, &str), contexts: ChannelContexts<'_>) -> Self {
        let of_buffer = Self::of_buffer(buffer, contexts);
        Self { name: name.to_owned(), like: Some(like.to_owned()), ..of_buffer }
    }

    fn is_of_state(&self) -> bool {
        self.buffer == lttng::STATE_BUFFER
    }

    /// Makes the channel, without events.
    pub(super) fn channel(
        &self,
        naming: Ctf,
        events: &EventTable,
        names: &mut BTreeSet<String>,
    ) -> Result<Channel, ExportError> {
        let printers: Vec<_> = events.iter().collect();
        let machine = events.machine();
        let mut channel = naming.channel(&self.name, &printers, machine, names);
        let contexts = ChannelContexts { fields: &self.fields, stacks: self.stacks };
        naming.declare_contexts(&mut channel, contexts, machine)?;
        self.buffer.clone_into(&mut channel.buffer);
        channel.of_programs = self.like.is_some();
        channel.header = self.header.unwrap_or(channel.header);
        channel.name_raw_calls = self.name_raw_calls.unwrap_or(channel.name_raw_calls);
        Ok(channel)
    }
}

/// A trace whose channels are being made.
pub(super) struct Made<'h> {
    naming: Ctf,
    pub(super) owner: Option<&'h Owner>,
    head: &'h TraceFile,
    recording: Recording<'h>,
    choices: Vec<EventChoice>,
    trace: Trace,
    channel_states: Vec<ChannelState>,
    names: BTreeSet<String>,
}

impl<'h> Made<'h> {
    /// One without channels: of programs, if it has an owner.
    pub(super) fn new(naming: Ctf, head: &'h TraceFile, owner: Option<&'h Owner>) -> Self {
        let recording = Recording::of_head(head);
        let state = head.initial_state().ok().flatten();
        let mut trace = naming.empty_trace(&recording, state.as_ref());
        if let Some(owner) = owner {
            owner.describe(&mut trace);
        }
        let choices = Ledger::of(head).map_or_else(Vec::new, |ledger| ledger.choices);
        Self {
            naming,
            owner,
            head,
            recording,
            choices,
            trace,
            channel_states: Vec::new(),
            names: BTreeSet::new(),
        }
    }

    /// Gives a trace that begins after so many chunks another UUID than one that has begun before: readers
    /// take directories with one UUID for parts of one trace.
    pub(super) fn begin_after(&mut self, chunks: u64) {
        for (byte, other) in self.trace.uuid.iter_mut().zip(&chunks.to_le_bytes()[..6]) {
            *byte ^= other;
        }
    }

    fn has(&self, buffer: &str) -> bool {
        self.channel_states.iter().any(|channel| channel.buffer == buffer)
    }

    /// Adds a channel, unless there is one of the same buffer.
    pub(super) fn add_channel(&mut self, of: &ChannelState) -> Result<(), ExportError> {
        if self.has(&of.buffer) {
            return Ok(());
        }
        let events = self.recording.events();
        let mut channel = of.channel(self.naming, events, &mut self.names)?;
        if self.owner.is_none() {
            self.naming.choose_names(&mut channel, events, &self.choices);
        }
        let mut state = ChannelState { events: Vec::new(), ..of.clone() };
        state.take(&channel);
        self.channel_states.push(state);
        self.trace.channels.push(channel);
        Ok(())
    }

    /// Adds the channel of the state, if the format has one.
    pub(super) fn add_state_channel(&mut self) {
        let before = self.trace.channels.len();
        self.naming.add_state_channel(&mut self.trace, &mut self.names);
        let new = self.trace.channels.iter().skip(before);
        let states = new.map(|channel| ChannelState {
            header: Some(channel.header),
            ..ChannelState::of_buffer(&channel.buffer, ChannelContexts::default())
        });
        self.channel_states.extend(states);
    }

    /// Makes the channels that a trace had, with its events. Gives whether they are as they were: what
    /// describes the events may be another version's, or of another machine.
    fn go_on(&mut self, state: &TraceState) -> Result<bool, ExportError> {
        self.trace.uuid = state.uuid;
        self.trace.clock.shift = state.shift;
        self.naming.set_clock(&mut self.trace.clock, &self.recording);
        let head = self.head;
        let buffers: BTreeSet<&str> = head.buffers().iter().map(|of| of.name.as_str()).collect();
        for of in &state.channels {
            // What is in the spool is its owner's.
            if self.has(&of.buffer) || !of.is_of_state() && !buffers.contains(of.buffer.as_str()) {
                return Ok(false);
            }
            if of.is_of_state() {
                self.add_state_channel();
                continue;
            }
            self.add_channel(of)?;
            let Some((channel, channel_states)) =
                self.trace.channels.last_mut().zip(self.channel_states.last_mut())
            else {
                return Ok(false);
            };
            let events = self.recording.events();
            let printers: HashMap<_, _> =
                events.iter().map(|printer| ((printer.system(), printer.name()), printer)).collect();
            let mut declared = BTreeSet::new();
            for (system, name) in &of.events {
                let Some(printer) = printers.get(&(system.as_str(), name.as_str())) else { return Ok(false) };
                let is_new = declared.insert(printer.format().id);
                if !is_new || !self.naming.declare(channel, printer, events.machine()) {
                    return Ok(false);
                }
            }
            channel_states.events.clone_from(&of.events);
            let most = if self.owner.is_some() { EVENTS_OF_PROGRAMS_MAX } else { EVENTS_MAX };
            if self.trace.channels.iter().map(|channel| channel.events.len()).sum::<usize>() > most {
                return Ok(false);
            }
        }
        Ok(self.channel_states.len() == state.channels.len()
            && sum_of_declarations(&self.trace) == state.declarations)
    }

    /// The trace, what its channels were made of, the channel of each buffer of the head, and what describes
    /// the events.
    pub(super) fn finish(self) -> (Trace, Vec<ChannelState>, Vec<usize>, EventTable) {
        let Self { naming, owner, head, recording, mut trace, channel_states, .. } = self;
        let index = |buffer: &str| channel_states.iter().position(|channel| channel.buffer == buffer);
        let channels = head.buffers().iter().map(|of| index(&of.name).unwrap_or(NO_CHANNEL)).collect();
        if owner.is_none() {
            let state = head.initial_state().ok().flatten();
            trace.provenance = naming.provenance_of_head(&recording, state.as_ref(), &trace.channels);
        }
        (trace, channel_states, channels, recording.into_events())
    }
}

impl TraceState {
    /// Whether it can be that of a recording with so many channels and CPUs.
    pub fn is_within(&self, channels: usize, cpus: u32) -> bool {
        let mut streams = BTreeSet::new();
        self.channels.len() <= channels
            && self.streams.iter().all(|&((channel, cpu), _)| {
                channel < self.channels.len() && cpu < cpus && streams.insert((channel, cpu))
            })
    }

    /// How many streams it has.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
}

impl TraceWriter {
    /// What a trace is that was begun in this chunk, or that goes on in it with `before`.
    pub fn state_of_begin(&self, before: Option<&TraceState>) -> TraceState {
        let before = before.filter(|before| before.uuid == self.trace.uuid);
        let streams = before.map(|before| before.streams.clone()).unwrap_or_default();
        TraceState { streams, ..self.state() }
    }

    /// What the trace is at the begin of the next chunk: right after [`TraceWriter::end_chunk`].
    pub fn state(&self) -> TraceState {
        let of_channel = |(buffer, cpus): (usize, &Vec<Option<Stream>>)| {
            let channel = self.channels.get(buffer).copied().unwrap_or(NO_CHANNEL);
            let there = (0..).zip(cpus).filter_map(|(cpu, stream)| Some((cpu, stream.as_ref()?)));
            there.map(move |(cpu, stream)| ((channel, cpu), stream.writer.state())).collect::<Vec<_>>()
        };
        let mut streams: Vec<_> = self.streams.iter().enumerate().flat_map(of_channel).collect();
        let of_state = self.channel_states.iter().position(ChannelState::is_of_state);
        streams.extend(of_state.zip(self.state.as_ref()).map(|(id, of)| ((id, 0), StreamWriter::state(of))));
        TraceState {
            uuid: self.trace.uuid,
            shift: self.trace.clock.shift,
            channels: self.channel_states.clone(),
            declarations: sum_of_declarations(&self.trace),
            streams,
        }
    }

    /// Goes on with a trace in a chunk. The head may have more channels than it had, of which `wanted` gives
    /// the contexts, as in [`TraceWriter::create`]; of programs, `owner` says whose they are. `None` if the
    /// trace cannot go on: what it declares is not what the head describes.
    ///
    /// # Errors
    /// As for [`TraceWriter::create`].
    pub fn go_on<'w>(
        (naming, shapes): (Ctf, Shapes),
        (head, begin): (&TraceFile, u64),
        chunk: Chunk<'_>,
        (state, owner): (&TraceState, Option<&Owner>),
        wanted: &dyn Fn(&str) -> Option<ChannelContexts<'w>>,
    ) -> Result<Option<Self>, ExportError> {
        let mut made = Made::new(naming, head, owner);
        if !made.go_on(state)? {
            return Ok(None);
        }
        for buffer in head.buffers().iter().filter(|_| owner.is_none()) {
            let Some(contexts) = wanted(&buffer.name) else { continue };
            let now = ChannelState::of_buffer(&buffer.name, contexts);
            let before = made.channel_states.iter().find(|channel| channel.buffer == buffer.name);
            if before.is_some_and(|of| (&of.fields, of.stacks) != (&now.fields, now.stacks)) {
                return Ok(None);
            }
            made.add_channel(&now)?;
        }
        let mut writer = Self::describe_only((naming, shapes), begin, chunk, made)?;
        for &((channel, cpu), at) in &state.streams {
            writer.open_again((channel, cpu), at)?;
        }
        writer.put_state(head, false)?;
        Ok(Some(writer))
    }

    /// Creates the file of a stream that goes on.
    fn open_again(&mut self, (channel, cpu): StreamId, at: StreamState) -> Result<(), ExportError> {
        if self.channel_states.get(channel).is_some_and(ChannelState::is_of_state) {
            self.open_state_stream(channel)?;
            self.state.iter_mut().for_each(|stream| stream.go_on_from(at));
            return Ok(());
        }
        // A channel that is not recorded any more has no more streams.
        if channel >= self.channel_states.len() {
            return Ok(());
        }
        let Some(buffer) = self.channels.iter().position(|of| *of == channel) else { return Ok(()) };
        self.stream(buffer, cpu)?;
        let stream = self.streams.get_mut(buffer).and_then(|cpus| cpus.get_mut(cpu as usize)?.as_mut());
        if let Some(stream) = stream {
            stream.writer.go_on_from(at);
            stream.discarded_before = stream.writer.discarded();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_no_recording_has_is_refused() {
        let channel = |name: usize| ChannelState::of_buffer(&name.to_string(), ChannelContexts::default());
        let is_within = |channels: usize, streams: &[StreamId]| {
            let state = TraceState {
                uuid: [0; 16],
                shift: 0,
                channels: (0..channels).map(channel).collect(),
                declarations: 0,
                streams: streams.iter().map(|id| (*id, StreamState::default())).collect(),
            };
            state.is_within(2, 4)
        };
        assert!(is_within(2, &[(0, 0), (0, 3), (1, 0)]));
        assert!(is_within(0, &[]));
        assert!(!is_within(3, &[]), "too many channels");
        assert!(!is_within(1, &[(1, 0)]), "a channel that is not there");
        assert!(!is_within(2, &[(NO_CHANNEL, 0)]));
        assert!(!is_within(2, &[(0, 4)]), "a CPU that is not there");
        assert!(!is_within(2, &[(0, 1), (0, 1)]), "one stream twice");
    }
}
