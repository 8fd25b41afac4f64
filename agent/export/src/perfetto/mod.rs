//! Format `perfetto`: a trace of Perfetto, for its viewer in the browser and its SQL.
//!
//! The file is a message `Trace` of Perfetto's protos/perfetto/trace: packets, one after the other. Each CPU
//! has a sequence of packets with bundles of events, as Perfetto's own recorder writes them from ftrace.
//! Bundles end at 64 KiB and after a second, so that what is at one place of the file is of
//! about one time, and the memory that an export takes is a bundle for each CPU.
//!
//! | in the recording | in the trace |
//! |---|---|
//! | an event that Perfetto knows, with fields that it knows | its own event |
//! | any other event | a `GenericFtraceEvent`, fields with their names; an element of an array is `NAME[N]` |
//! | a system call's own event, unless `raw_syscalls` is there, too | `sys_enter` and `sys_exit`, which the viewer draws; and a generic event if the record has texts |
//! | `trace_printk` | `print`, with the text |
//! | addresses of function graphs | interned symbols, where the file has them |
//! | threads and processes at the start | `ProcessTree` |
//! | the clock's distance to wall time | `ClockSnapshot`; the recording's clock is the trace's, which Perfetto calls BOOTTIME |
//! | losses | the bundle's mark, and `FtraceStats` with the number of each CPU |
//! | a beginning whose end may be missing | Perfetto's own event, written when its end comes; a generic event if none comes |

mod bundle;
mod calls;
#[cfg(test)]
mod drawn;
mod event;
mod held;
#[cfg(test)]
mod metamorphic;
mod packet;
mod table;

use std::collections::{BTreeSet, HashMap};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use self::bundle::Bundle;
use self::event::Encoder;
use self::packet::{Clocks, FtraceStats, Packet, SystemInfo, tree_of};
use ftrace_event::SymbolTable;
use recording::snapshot::Snapshot;
use recording::{Description, ExportError, Format, Job, Recording, Seen, staging};
use stdx::output::Directory;
use tracedat::reader::Record;

/// The name of the file in the directory that it is written in.
const FILE: &str = "trace";
/// The longest time that a bundle covers, in nanoseconds.
const WINDOW: u64 = 1_000_000_000;
/// The sequence of what is not of one CPU. Those of CPUs follow.
const SEQUENCE: u32 = 1;

/// The format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perfetto;

impl Format for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    fn file(&self) -> Option<&'static str> {
        Some(FILE)
    }

    fn keeps(&self) -> &'static [Description] {
        &[]
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        if !recording.counts_nanoseconds() {
            return Err(ExportError::Unsupported(format!(
                "the clock {} does not count nanoseconds, and Perfetto takes no other times; record with another one (-C mono)",
                recording.clock_name()
            )));
        }
        let (file, path) = staging::create_file(dir, FILE)?;
        let mut writer = Writer { out: BufWriter::with_capacity(1 << 18, file), path: &path };
        let state = Snapshot::of(recording, job);
        for packet in first_packets(recording, state.as_ref()) {
            writer.packet(&packet)?;
        }
        write_events(recording, job, &mut writer)?;
        writer.packet(&Packet { ftrace_stats: Some(FtraceStats::end(recording)), ..of_all() })?;
        writer.out.flush().map_err(ExportError::io("write", &path))
    }
}

/// Where packets go.
struct Writer<'a> {
    out: BufWriter<std::fs::File>,
    path: &'a Path,
}

impl Writer<'_> {
    fn packet(&mut self, packet: &Packet) -> Result<(), ExportError> {
        self.out.write_all(&packet.in_trace()).map_err(ExportError::io("write", self.path))
    }
}

/// A packet that is not of one CPU.
fn of_all() -> Packet {
    Packet { trusted_packet_sequence_id: SEQUENCE, ..Packet::default() }
}

/// What the viewer wants to know before the events.
fn first_packets(recording: &Recording<'_>, state: Option<&Snapshot>) -> Vec<Packet> {
    let (first, _) = recording.span().unwrap_or_default();
    let clocks = Clocks::at(first, recording);
    let mut packets = vec![
        Packet { timestamp: Some(first), clock_snapshot: Some(clocks), ..of_all() },
        Packet { system_info: Some(SystemInfo::of(recording.file())), ..of_all() },
        Packet { ftrace_stats: Some(FtraceStats::start(recording)), ..of_all() },
    ];
    if let Some(state) = state {
        packets.push(Packet { timestamp: Some(state.time), process_tree: Some(tree_of(state)), ..of_all() });
    }
    packets
}

/// Writes the records of all CPUs, by time as far as bundles let them.
fn write_events(
    recording: &Recording<'_>,
    job: &Job<'_>,
    writer: &mut Writer<'_>,
) -> Result<(), ExportError> {
    // Without symbols, addresses stay numbers.
    let symbols = SymbolTable::parse(recording.file().kallsyms().unwrap_or_default());
    let mut encoder = Encoder::new(recording, &symbols);
    let mut bundles: HashMap<u32, Bundle> = HashMap::new();
    let mut ends = Ends::of(recording, &mut encoder);
    let mut now = 0;
    recording.each_record_or_gap(job, |seen| {
        match seen {
            Seen::Record(record) => {
                now = record.timestamp;
                let bundle = bundles.entry(record.cpu).or_insert_with(|| Bundle::new(record.cpu));
                if bundle.is_full() || record.missed.is_some() || bundle.is_older_than(now, WINDOW) {
                    bundle.write(|packet| writer.packet(packet))?;
                }
                bundle.add(record, &mut encoder);
                ends.pass(record, &mut encoder);
            }
            Seen::Gap(gap) => encoder.begin_gap(gap.buffer, gap.cpu),
        }
        add_released(&mut encoder, &mut bundles, now, writer)
    })?;
    encoder.finish();
    add_released(&mut encoder, &mut bundles, now, writer)?;
    let lost = recording.cpu_streams().iter().filter(|of| of.lost_at_end().is_some()).map(|of| of.cpu);
    let lost: BTreeSet<u32> = lost.collect();
    for cpu in &lost {
        bundles.entry(*cpu).or_insert_with(|| Bundle::new(*cpu));
    }
    let mut rest: Vec<Bundle> = bundles.into_values().collect();
    rest.sort_unstable_by_key(Bundle::cpu);
    for bundle in &mut rest {
        bundle.write(|packet| writer.packet(packet))?;
        if lost.contains(&bundle.cpu()) {
            bundle.ends_with_loss();
            bundle.write(|packet| writer.packet(packet))?;
        }
    }
    job.merge_not_carried(encoder.take_not_carried(recording));
    Ok(())
}

/// Adds what waited for its end to the bundles of its CPUs.
fn add_released(
    encoder: &mut Encoder<'_>,
    bundles: &mut HashMap<u32, Bundle>,
    now: u64,
    writer: &mut Writer<'_>,
) -> Result<(), ExportError> {
    while let Some(released) = encoder.released() {
        let bundle = bundles.entry(released.cpu()).or_insert_with(|| Bundle::new(released.cpu()));
        if bundle.is_full() {
            bundle.write(|packet| writer.packet(packet))?;
        }
        bundle.add_released(&released, encoder, now);
    }
    Ok(())
}

/// Where the records of CPUs end behind which events were lost.
struct Ends {
    /// By buffer and CPU, which of `left` it is.
    streams: HashMap<(usize, u32), usize>,
    /// How many records are left.
    left: Vec<u64>,
}

impl Ends {
    /// Of a recording. A CPU without records has lost all of its events.
    fn of(recording: &Recording<'_>, encoder: &mut Encoder<'_>) -> Self {
        let mut ends = Self { streams: HashMap::new(), left: Vec::new() };
        for stream in recording.cpu_streams().iter().filter(|stream| stream.lost_at_end().is_some()) {
            if stream.counts.events == 0 {
                // No buffer has this number, and none of its records ends the gap.
                encoder.begin_gap(usize::MAX, stream.cpu);
            }
            ends.streams.extend(stream.parts().iter().map(|buffer| ((*buffer, stream.cpu), ends.left.len())));
            ends.left.push(stream.counts.events);
        }
        ends
    }

    /// Takes a record.
    fn pass(&mut self, record: &Record<'_>, encoder: &mut Encoder<'_>) {
        if self.left.is_empty() {
            return;
        }
        let stream = (record.buffer, record.cpu);
        let left = self.streams.get(&stream).and_then(|stream| self.left.get_mut(*stream));
        if let Some(left) = left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                encoder.begin_gap(record.buffer, record.cpu);
            }
        }
    }
}
