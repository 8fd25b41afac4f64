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

mod bundle;
mod calls;
mod event;
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
use recording::{Description, ExportError, Format, Job, Recording, staging};
use stdx::output::Directory;

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
    recording.each_record(job, |record| {
        let bundle = bundles.entry(record.cpu).or_insert_with(|| Bundle::new(record.cpu));
        if bundle.is_full() || record.missed.is_some() || bundle.is_older_than(record.timestamp, WINDOW) {
            bundle.write(|packet| writer.packet(packet))?;
        }
        bundle.add(record, &mut encoder);
        Ok(())
    })?;
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
    job.merge_not_carried(encoder.take_not_carried());
    Ok(())
}
