//! Common Trace Format 1.8, in the layout of a kernel session of LTTng 2.13: `kernel/metadata`,
//! `kernel/CHANNEL_CPU`, `kernel/index/CHANNEL_CPU.idx`.
//!
//! | module | what |
//! |---|---|
//! | `schema` | what a trace declares, and which record becomes which event |
//! | `kernel` | the schema with the kernel's own names, format `ctf` |
//! | `lttng` | the schema with the names of lttng-modules, format `lttng` |
//! | `types` | field types, and values in bytes |
//! | `metadata` | the schema as text |
//! | `stream` | packets and their index |
//! | `convert` | records into a stream |
//! | [`summary`] | what is in a directory |
//! | `shape` | how long events are, to count those of a directory |
//!
//! Buffers become channels; the top one is `channel0`, LTTng's default. The numbers of lost events go where
//! LTTng has them: a packet without events stands where the loss was, and its counter is higher than that of
//! the packet before.

mod convert;
mod kernel;
mod lttng;
mod metadata;
mod schema;
mod shape;
mod stream;
pub mod summary;
mod types;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::staging::create_dir;
use super::{CpuStream, ExportError, Format, Job, Recording};
use crate::output::Directory;
use crate::tracedat::FileOption;
use crate::tracedat::initial_state::InitialState;
use schema::{Channel, Clock, Trace};
use stream::{StreamOptions, StreamWriter};

/// What channels of the top buffer are called.
const TOP_CHANNEL: &str = "channel0";

/// The two formats in this layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ctf {
    /// The kernel's own names: format `ctf`.
    Kernel,
    /// The names, types and state dump of lttng-modules: format `lttng`.
    Lttng,
}

impl Format for Ctf {
    fn name(&self) -> &'static str {
        match self {
            Self::Kernel => "ctf",
            Self::Lttng => "lttng",
        }
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let dir = create_dir(dir, "kernel")?;
        create_dir(&dir, "index")?;
        let state = recording.file().initial_state().unwrap_or_else(|error| {
            job.not_carried(error.to_string(), 1);
            None
        });
        let trace = self.trace(recording, state.as_ref());
        let text = metadata::text(&trace);
        let packets = metadata::packets(&text, trace.uuid);
        dir.write("metadata", &packets).map_err(ExportError::io("write", dir.join("metadata")))?;
        job.parallel(recording.cpu_streams(), |cpu_stream| {
            let Some(id) = trace.channels.iter().position(|channel| channel.buffer == cpu_stream.channel)
            else {
                return Ok(());
            };
            let mut stream = trace.stream(&dir, id, cpu_stream.cpu)?;
            convert::cpu_stream(recording, cpu_stream, &trace, id, state.as_ref(), &mut stream, job)?;
            // As everywhere, a loss of unknown size counts as one event at least.
            let lost = cpu_stream.lost_at_end.max(cpu_stream.cut_short.into());
            if lost > 0 {
                stream.lost(lost, trace.span.1)?;
            }
            stream.finish()
        })?;
        if let Some(state) = &state {
            match self {
                Self::Kernel => {
                    let entries = state.threads.len() + state.files.len() + state.interrupts.len();
                    job.not_carried(
                        "entries of the state at the start (format lttng has them)",
                        entries as u64,
                    );
                }
                Self::Lttng => lttng::write_state(state, &trace, &dir, job)?,
            }
        }
        not_carried(recording, job);
        Ok(())
    }
}

impl Ctf {
    fn trace(self, recording: &Recording<'_>, state: Option<&InitialState>) -> Trace {
        let mut names = BTreeSet::new();
        let mut channels: Vec<Channel> = Vec::new();
        for cpu_stream in recording.cpu_streams() {
            if channels.iter().any(|channel| channel.buffer == cpu_stream.channel) {
                continue;
            }
            let cpu_streams: Vec<&CpuStream> =
                recording.cpu_streams().iter().filter(|other| other.channel == cpu_stream.channel).collect();
            let mut channel = match self {
                Self::Kernel => kernel::channel(recording, &cpu_streams),
                Self::Lttng => lttng::channel(recording, &cpu_streams),
            };
            channel.buffer.clone_from(&cpu_stream.channel);
            channel.name = file_name(&cpu_stream.channel, &mut names);
            channels.push(channel);
        }
        if self == Self::Lttng && state.is_some() {
            let name = file_name("statedump", &mut names);
            channels.push(lttng::state_channel(name));
        }
        let clock = self.clock(recording, state);
        // The recorder looks at the state beside recording, and may be later than the last record: of then
        // nothing is known.
        let state_span = || {
            let state = state.filter(|_| self == Self::Lttng)?;
            Some((state.began_ns, state.ended_ns.max(state.began_ns)))
        };
        let span = recording.span().or_else(state_span).unwrap_or_default();
        Trace {
            span: (clock.shifted(span.0), clock.shifted(span.1)),
            uuid: self.uuid(recording),
            env: match self {
                Self::Kernel => kernel::env(recording, state),
                Self::Lttng => lttng::env(recording, state),
            },
            clock,
            channels,
        }
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

    fn clock(self, recording: &Recording<'_>, state: Option<&InitialState>) -> Clock {
        let name = recording.clock_name();
        let wall = recording.wall_offset();
        let boot_id = state.map(|state| state.host.boot_id.clone());
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
            uuid: boot_id.filter(|id| id.len() == 36),
            description,
            offset,
            absolute: self == Self::Kernel && wall.is_some(),
            shift,
        }
    }
}

impl Trace {
    fn stream(&self, dir: &Directory, id: usize, cpu: u32) -> Result<StreamWriter, ExportError> {
        let channel = &self.channels[id];
        let options = StreamOptions {
            uuid: self.uuid,
            stream_id: id as u32,
            instance_id: cpu.into(),
            cpu,
            header: channel.header(),
            span: self.span,
        };
        StreamWriter::create(dir, &format!("{}_{cpu}", channel.name), options)
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
    let unknown: u64 =
        recording.cpu_streams().iter().map(|cpu_stream| cpu_stream.counts.missed_unknown).sum();
    job.not_carried("losses of unknown size, counted as one event each", unknown);
}
