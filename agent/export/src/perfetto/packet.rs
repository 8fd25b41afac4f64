//! The packets that are not events (protos/perfetto/trace/trace_packet.proto and what it imports).

use prost::Message;
use prost::encoding::{WireType, encode_key};

use recording::snapshot::Snapshot;
use recording::{Recording, TraceFile};
use tracedat::Uname;

/// `Trace.packet`.
const PACKET: u32 = 1;
/// `TracePacket.SEQ_INCREMENTAL_STATE_CLEARED`: what was interned before does not count.
pub(super) const CLEARED: u32 = 1;
/// `TracePacket.SEQ_NEEDS_INCREMENTAL_STATE`: what was interned before is used.
pub(super) const NEEDS: u32 = 2;
/// `BuiltinClock`.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;
/// `FtraceStats.Phase`.
const START_OF_TRACE: i32 = 1;
const END_OF_TRACE: i32 = 2;

/// `TracePacket`, with the fields that are written.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    /// A `FtraceEventBundle`.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(super) ftrace_events: Option<Vec<u8>>,
    #[prost(message, optional, tag = "2")]
    pub(super) process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "6")]
    pub(super) clock_snapshot: Option<Clocks>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub(super) trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint32, tag = "13")]
    pub(super) sequence_flags: u32,
    #[prost(message, optional, tag = "34")]
    pub(super) ftrace_stats: Option<FtraceStats>,
    #[prost(message, optional, tag = "45")]
    pub(super) system_info: Option<SystemInfo>,
}

impl Packet {
    /// Its bytes in a `Trace`.
    pub(super) fn in_trace(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len() + 8);
        encode_key(PACKET, WireType::LengthDelimited, &mut bytes);
        // A vector takes whatever comes.
        let _ = self.encode_length_delimited(&mut bytes);
        bytes
    }
}

/// `ClockSnapshot`: what several clocks said at one moment.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Clocks {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
    #[prost(uint32, tag = "2")]
    primary_trace_clock: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Clock {
    #[prost(uint32, tag = "1")]
    clock_id: u32,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
}

impl Clocks {
    /// When the recording's clock said `time`.
    pub(super) fn at(time: u64, recording: &Recording<'_>) -> Self {
        let clock = |clock_id, timestamp| Clock { clock_id, timestamp };
        let mut clocks = vec![clock(BOOTTIME, time)];
        if matches!(recording.clock_name().as_str(), "" | "mono") {
            clocks.push(clock(MONOTONIC, time));
        }
        if let Some(wall) = recording.wall_offset().and_then(|offset| time.checked_add_signed(offset)) {
            clocks.push(clock(REALTIME, wall));
        }
        Self { clocks, primary_trace_clock: BOOTTIME }
    }
}

/// `ProcessTree`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    threads: Vec<Thread>,
    #[prost(uint64, tag = "3")]
    collection_end_timestamp: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    ppid: i32,
    /// The name alone: the recording has no command lines.
    #[prost(string, repeated, tag = "3")]
    cmdline: Vec<String>,
    #[prost(int32, optional, tag = "5")]
    uid: Option<i32>,
    #[prost(bool, tag = "8")]
    is_kthread: bool,
    #[prost(bool, tag = "9")]
    cmdline_is_comm: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(int32, tag = "1")]
    pub tid: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(int32, tag = "3")]
    tgid: i32,
}

/// The threads that there were at the start.
pub(super) fn tree_of(snapshot: &Snapshot) -> ProcessTree {
    let threads = &snapshot.state.threads;
    let processes = threads.iter().filter(|thread| thread.tid == thread.tgid).map(|first| Process {
        pid: first.tid.cast_signed(),
        ppid: first.ppid.cast_signed(),
        cmdline: (!first.comm.is_empty()).then(|| first.comm.clone()).into_iter().collect(),
        uid: Some(first.uid.cast_signed()),
        is_kthread: first.kernel,
        cmdline_is_comm: true,
    });
    let others = threads.iter().filter(|thread| thread.tid != thread.tgid).map(|thread| Thread {
        tid: thread.tid.cast_signed(),
        name: thread.comm.clone(),
        tgid: thread.tgid.cast_signed(),
    });
    ProcessTree {
        processes: processes.collect(),
        threads: others.collect(),
        collection_end_timestamp: snapshot.time,
    }
}

/// `InternedData`: what events name by numbers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "26")]
    pub(super) kernel_symbols: Vec<InternedString>,
}

/// `InternedString`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedString {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) str: Vec<u8>,
}

/// `SystemInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    utsname: Option<Utsname>,
    #[prost(uint32, tag = "6")]
    page_size: u32,
    #[prost(uint32, tag = "8")]
    num_cpus: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Utsname {
    #[prost(string, tag = "1")]
    sysname: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    release: String,
    #[prost(string, tag = "4")]
    machine: String,
}

impl SystemInfo {
    /// What the file says of its machine.
    pub(super) fn of(file: &TraceFile) -> Self {
        let utsname = Uname::of(file.facts()).map(|uname| {
            let Uname { system: sysname, node: _, release, version, machine } = uname;
            Utsname { sysname, version, release, machine }
        });
        Self { utsname, page_size: file.header().page_size, num_cpus: file.cpu_count() }
    }
}

/// `FtraceStats`: what each CPU's buffer counted.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceStats {
    #[prost(int32, tag = "1")]
    phase: i32,
    #[prost(message, repeated, tag = "2")]
    cpu_stats: Vec<CpuStats>,
}

/// `FtraceCpuStats`.
#[derive(Clone, Copy, PartialEq, Message)]
struct CpuStats {
    #[prost(uint64, tag = "1")]
    cpu: u64,
    #[prost(uint64, tag = "3")]
    overrun: u64,
    #[prost(uint64, tag = "9")]
    read_events: u64,
}

impl FtraceStats {
    /// Before the first event. The viewer takes differences.
    pub(super) fn start(recording: &Recording<'_>) -> Self {
        let zero = |stats: CpuStats| CpuStats { overrun: 0, read_events: 0, ..stats };
        let cpu_stats = counts(recording).into_iter().map(zero).collect();
        Self { phase: START_OF_TRACE, cpu_stats }
    }

    /// After the last one.
    pub(super) fn end(recording: &Recording<'_>) -> Self {
        Self { phase: END_OF_TRACE, cpu_stats: counts(recording) }
    }
}

/// What each CPU recorded and lost, of all buffers. What was lost is at least that: a mark may not say how
/// many.
fn counts(recording: &Recording<'_>) -> Vec<CpuStats> {
    let mut found: Vec<CpuStats> = Vec::new();
    for stream in recording.cpu_streams() {
        let (overrun, read_events) = (stream.lost(), stream.counts.events);
        let stats = CpuStats { cpu: stream.cpu.into(), overrun, read_events };
        match found.iter_mut().find(|other| other.cpu == stats.cpu) {
            Some(sum) => {
                sum.overrun = sum.overrun.saturating_add(stats.overrun);
                sum.read_events += stats.read_events;
            }
            None => found.push(stats),
        }
    }
    found
}
