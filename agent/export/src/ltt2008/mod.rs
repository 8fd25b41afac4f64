//! The layout of LTTng of 2008, trace version 1.0 (lttng-trace-format-2008).
//!
//! ```text
//! OUTDIR/control/facilities_N    what events there are; one file for each CPU number up to the highest
//!        control/processes_N     the initial state of the system, and likewise interrupts_N, modules_N, network_N
//!        cpu_N                   the events of a CPU; flight-cpu_N if old events were overwritten by new ones
//!        BUFFER_N                the same of another buffer of the recording
//! ```
//!
//! The document was only partly kept up to date, so that no reader ever took it literally. What is written is
//! what the reader of that month opens (LTTV 0.10.0-pre13); [`Options::literal`] writes the document to the
//! letter. They differ in the start time of the trace header, in how the two bytes that name an event are
//! used, and in the alignment of payloads where that is less than a pointer. `layout`, `marker` and `block`
//! have the details.

mod block;
mod control;
mod layout;
mod marker;
pub mod summary;

use std::fs::File;

use self::block::Tracefile;
use self::layout::{Layout, Start};
use self::marker::{Markers, StateMarker};
use super::payload::Payload;
use super::state::{Change, StreamTellers, Tellers};
use ftrace_event::Endian;
use recording::error::ExportError;
use recording::job::Job;
use recording::staging::create_file;
use recording::survey::{CpuStream, Recording};
use recording::{Description, Format, full_name};
use stdx::not_carried::NotCarried;
use stdx::output::Directory;
use tracedat::FileOption;

/// Records between two reports of the job's progress.
const STEP: u64 = 8192;
/// Smallest block, and what blocks are multiples of: readers map them.
pub const PAGE: u32 = 4096;
/// Largest block.
pub const MAX_BLOCK: u32 = 64 << 20;

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Write the document to the letter instead of what readers open.
    pub literal: bool,
    /// Stamps of 32 bits, with heartbeats where they would not be enough, instead of 64 bits.
    pub heartbeat: bool,
    /// Alignment of event headers and numbers.
    pub alignment: Alignment,
    /// Bytes of a block of the CPUs' files: a multiple of [`PAGE`], up to [`MAX_BLOCK`].
    pub block_size: u32,
    /// Byte order; that of the recording by default.
    pub endian: Option<Endian>,
}

impl Default for Options {
    /// Packed, stamps of 64 bits, blocks that the longest record fits into.
    fn default() -> Self {
        Self {
            literal: false,
            heartbeat: false,
            alignment: Alignment::Packed,
            block_size: 256 << 10,
            endian: None,
        }
    }
}

/// Alignment of event headers and of numbers in payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    /// None.
    #[default]
    Packed,
    /// To 4 bytes.
    Four,
    /// To 8 bytes.
    Eight,
}

impl Alignment {
    /// The number that the trace header has for it.
    pub fn bytes(self) -> u8 {
        match self {
            Self::Packed => 0,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lttng2008 {
    options: Options,
}

impl Lttng2008 {
    /// The format with these options.
    ///
    /// # Errors
    /// A block size that readers cannot map.
    pub fn new(options: Options) -> Result<Self, ExportError> {
        check_block_size(options.block_size)?;
        Ok(Self { options })
    }
}

/// Refuses a size of blocks that readers of either historic layout cannot map.
pub(super) fn check_block_size(size: u32) -> Result<(), ExportError> {
    if size == 0 || !size.is_multiple_of(PAGE) || size > MAX_BLOCK {
        return Err(ExportError::Unsupported(format!(
            "blocks of {size} bytes cannot be read; use a multiple of {PAGE} up to {MAX_BLOCK}"
        )));
    }
    Ok(())
}

impl Format for Lttng2008 {
    fn name(&self) -> &'static str {
        "lttng-2008"
    }

    fn keeps(&self) -> &'static [Description] {
        &[Description::Buffers, Description::State]
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let options = self.options;
        let machine = recording.machine();
        let endian = options.endian.unwrap_or(machine.endian);
        // Just before the first record, so that readers know the initial state by then.
        let first = recording.span().map_or(0, |(first, _)| first.saturating_sub(1));
        let start = Start {
            cycles: first,
            wall: recording.wall_offset().map(|offset| first.wrapping_add_signed(offset)),
            architecture: architecture(recording),
            flight_recorder: recording.overwritten(),
        };
        if !recording.counts_nanoseconds() {
            job.not_carried("the unit of time: the clock's ticks are written as nanoseconds", 1);
        }
        let layout = Layout::new(options, endian, machine, &start);
        let markers = Markers::new(recording, endian, options.literal)?;
        let trace = Trace {
            recording,
            layout: &layout,
            markers: &markers,
            tellers: &Tellers::choose(recording),
            block_size: options.block_size as usize,
            job,
        };
        control::write(&trace, &start, dir)?;
        let names = file_names(recording, start.flight_recorder);
        let cpu_streams: Vec<_> = recording.cpu_streams().iter().zip(&names).collect();
        job.parallel(&cpu_streams, |(cpu_stream, name)| trace.cpu_stream(cpu_stream, dir, name))?;
        Ok(())
    }
}

/// What all files of a trace share.
struct Trace<'t> {
    recording: &'t Recording<'t>,
    layout: &'t Layout,
    markers: &'t Markers,
    tellers: &'t Tellers,
    block_size: usize,
    job: &'t Job<'t>,
}

impl Trace<'_> {
    /// Writes the records of a CPU. A CPU without any has no file.
    fn cpu_stream(&self, cpu_stream: &CpuStream, dir: &Directory, name: &str) -> Result<(), ExportError> {
        let lost = cpu_stream.lost_at_end().map_or(0, |lost| lost.max(1));
        self.job.not_carried("events lost behind the last record of a CPU", lost);
        if cpu_stream.counts.events == 0 {
            return Ok(());
        }
        let (out, path) = create_file(dir, name)?;
        let heartbeat = self.markers.core(marker::CORE_HEARTBEAT);
        let mut writer = StreamWriter {
            trace: self,
            file: Tracefile::new(self.layout, out, self.block_size, heartbeat),
            payload: Payload::new(self.layout.endian, self.layout.field_alignment),
            tellers: self.tellers.of_stream(cpu_stream),
            not_carried: NotCarried::default(),
        };
        let failed = |error| ExportError::io("write", &path)(error);
        let mut records = self.recording.records(cpu_stream)?;
        let mut since = 0;
        loop {
            // Errors were counted when the recording was looked through.
            let Ok(record) = records.next_record() else { continue };
            let Some(record) = record else { break };
            if let Some(count) = record.missed {
                writer
                    .state(record.timestamp, StateMarker::Lost, |payload| {
                        payload.number(count, 8);
                    })
                    .map_err(failed)?;
            }
            if let Some(id) = record.event_id() {
                writer.record(id, record.timestamp, record.data).map_err(failed)?;
            }
            since += 1;
            if since == STEP {
                self.job.advance(std::mem::take(&mut since))?;
            }
        }
        writer.file.finish().map_err(failed)?;
        self.job.merge_not_carried(writer.not_carried);
        self.job.advance(since)
    }
}

/// A CPU's file that is written.
struct StreamWriter<'t> {
    trace: &'t Trace<'t>,
    file: Tracefile<'t, File>,
    payload: Payload,
    tellers: StreamTellers,
    not_carried: NotCarried,
}

impl StreamWriter<'_> {
    /// Writes a record, and the changes of state that it describes.
    fn record(&mut self, id: u16, time: u64, record: &[u8]) -> std::io::Result<()> {
        let events = self.trace.recording.events();
        let (Some(marker), Some(printer)) = (self.trace.markers.event(id), events.get(id)) else {
            return Ok(());
        };
        let missing = marker.write(printer, record, self.payload.clear());
        if missing > 0 {
            self.not_carried.add(format!("fields of {} outside their record", full_name(printer)), missing);
        }
        if !self.file.event(time, marker.id, self.payload.bytes())? {
            let what =
                format!("records of {} that are longer than a block (see --block-size)", full_name(printer));
            self.not_carried.add(what, 1);
            return Ok(());
        }
        match self.tellers.get(id).map(|teller| teller.change(record)) {
            None => Ok(()),
            Some(Some(change)) => self.change(time, change),
            Some(None) => {
                self.not_carried.add(
                    format!("changes of state in records of {} that make no sense", full_name(printer)),
                    1,
                );
                Ok(())
            }
        }
    }

    fn change(&mut self, time: u64, change: Change<'_>) -> std::io::Result<()> {
        use StateMarker as M;
        match change {
            Change::Schedule { prev, next, state } => self.state(time, M::Schedule, |payload| {
                payload.number(prev.into(), 4).number(next.into(), 4).number(state, 8);
            }),
            Change::SyscallEntry { number } => self.numbers(time, M::SyscallEntry, number, Some(0)),
            Change::SyscallExit => self.state(time, M::SyscallExit, |_| ()),
            Change::Trap { number, address } => {
                self.numbers(time, M::TrapEntry, number, Some(address))?;
                self.state(time, M::TrapExit, |_| ())
            }
            Change::IrqEntry { irq } => self.numbers(time, M::IrqEntry, irq, None),
            Change::IrqExit => self.state(time, M::IrqExit, |_| ()),
            Change::SoftirqRaise { vector } => self.numbers(time, M::SoftirqRaise, vector, None),
            Change::SoftirqEntry { vector } => self.numbers(time, M::SoftirqEntry, vector, None),
            Change::SoftirqExit { vector } => self.numbers(time, M::SoftirqExit, vector, None),
            Change::Fork { parent, child } => {
                self.state(time, M::Fork, |payload| {
                    payload.number(parent.into(), 4).number(child.into(), 4).number(child.into(), 4);
                })?;
                // kthreadd, whose children are kernel threads.
                if parent == 2 { self.numbers(time, M::KthreadCreate, child, None) } else { Ok(()) }
            }
            Change::Exit { pid } => self.numbers(time, M::Exit, pid, None),
            Change::Free { pid } => self.numbers(time, M::Free, pid, None),
            Change::Exec { filename } => self.state(time, M::Exec, |payload| {
                payload.text(filename);
            }),
        }
    }

    fn numbers(
        &mut self,
        time: u64,
        marker: StateMarker,
        number: u32,
        long: Option<u64>,
    ) -> std::io::Result<()> {
        self.state(time, marker, |payload| {
            payload.number(number.into(), 4);
            if let Some(long) = long {
                payload.number(long, 8);
            }
        })
    }

    fn state(
        &mut self,
        time: u64,
        marker: StateMarker,
        fill: impl FnOnce(&mut Payload),
    ) -> std::io::Result<()> {
        fill(self.payload.clear());
        let id = self.trace.markers.state(marker);
        // Only a file name could be too long for a block, and then the record was.
        self.file.event(time, id, self.payload.bytes()).map(drop)
    }
}

/// The name of each stream's file. The top buffer's are `cpu_N`, those of others have their name; readers
/// take `compact_N` for something else.
fn file_names(recording: &Recording<'_>, flight_recorder: bool) -> Vec<String> {
    let prefix = if flight_recorder { "flight-" } else { "" };
    let mut channels: Vec<(&str, String)> = vec![("", "cpu".to_owned())];
    let mut names = Vec::new();
    for CpuStream { channel, cpu, .. } in recording.cpu_streams() {
        let known = channels.iter().position(|(name, _)| name == channel);
        let index = known.unwrap_or_else(|| {
            let mut name: String =
                channel.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect();
            let taken = |name: &str| {
                name.starts_with('.') || name == "compact" || channels.iter().any(|(_, other)| other == name)
            };
            while taken(&name) {
                name.insert_str(0, "buffer-");
            }
            channels.push((channel, name));
            channels.len() - 1
        });
        names.push(format!("{prefix}{}_{cpu}", channels[index].1));
    }
    names
}

fn architecture(recording: &Recording<'_>) -> u32 {
    let uname = recording.file().facts().find_map(|fact| match fact {
        FileOption::Uname(text) => Some(text),
        _ => None,
    });
    let known = uname.into_iter().flat_map(|text| text.split_whitespace()).map(layout::architecture);
    known.into_iter().find(|number| *number != 0).unwrap_or(0)
}
