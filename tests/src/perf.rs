//! Debian's perf as another judge of what threads did: its recordings, its answers, and its events as a
//! trace.dat.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::harness::{program, run};
use crate::made_up::MadeUp;
use crate::tracefs;

/// The command line that records these events of all CPUs into `file` while `command` runs. The clock is that
/// of the tests' other recordings. The buffers take all that a workload of a few seconds makes, and perf gets
/// a CPU before all others, so that nothing is lost on a busy machine.
pub fn record_line(file: &Path, events: &[&str], command: &[String]) -> Vec<String> {
    let mut line = ["perf", "record", "-q", "-a", "-r", "1", "-k", "CLOCK_MONOTONIC", "-m", "32M"]
        .map(str::to_owned)
        .to_vec();
    line.extend(["-o".to_owned(), file.display().to_string()]);
    for event in events {
        line.extend(["-e".to_owned(), (*event).to_owned()]);
    }
    line.push("--".to_owned());
    line.extend_from_slice(command);
    line
}

/// Runs it.
#[track_caller]
pub fn record(file: &Path, events: &[&str], command: &[String]) {
    let line = record_line(file, events, command);
    run(&mut program("/".as_ref(), &line[0], &line[1..])).expect(0);
}

/// What a command of perf prints.
#[track_caller]
pub fn printed(args: &[&str], file: &Path) -> String {
    let mut command = program("/".as_ref(), "perf", args.iter().map(OsStr::new));
    let ended = run(command.env("PERF_PAGER", "cat").arg("-i").arg(file)).expect(0);
    // `perf trace` prints to standard error.
    ended.out + &ended.err
}

/// A line of `perf sched latency -p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many waits for a CPU have ended.
    pub count: u64,
    /// Their mean in microseconds.
    pub average_us: u64,
    /// The longest one in microseconds.
    pub most_us: u64,
}

/// `perf sched latency -p`: by thread. perf leaves out those that never waited.
pub fn latencies(file: &Path) -> BTreeMap<u32, Latency> {
    let printed = printed(&["sched", "latency", "-p"], file);
    let mut found = BTreeMap::new();
    for line in printed.lines() {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [task, _, count, average, most, ..] = columns[..] else { continue };
        let Some((_, tid)) = task.rsplit_once(':') else { continue };
        let (Ok(tid), Ok(count)) = (tid.trim().parse(), count.parse()) else { continue };
        let us = |text: &str, name: &str| {
            thousandths(text.strip_prefix(name).unwrap().strip_suffix("ms").unwrap())
        };
        let latency = Latency { count, average_us: us(average, "avg:"), most_us: us(most, "max:") };
        assert_eq!(found.insert(tid, latency), None, "{printed}");
    }
    assert!(!found.is_empty(), "{printed}");
    found
}

/// Of a switch in `perf sched timehist`, in microseconds. perf cuts what is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When the thread lost its CPU, in microseconds.
    pub at_us: u64,
    /// It waited from its wakeup to the CPU.
    pub delay_us: u64,
    /// It ran.
    pub run_us: u64,
}

/// `perf sched timehist`: each interval in which a thread ran, by thread. Of a thread that has ended the
/// kernel tells perf the id -1.
pub fn intervals(file: &Path) -> BTreeMap<i64, Vec<Interval>> {
    let mut found: BTreeMap<i64, Vec<Interval>> = BTreeMap::new();
    for line in printed(&["sched", "timehist"], file).lines() {
        let Some((time, rest)) = line.trim().split_once(" [") else { continue };
        let Some((_, rest)) = rest.split_once("] ") else { continue };
        let Some(at_us) = time.trim().split_once('.').map(|_| micros(time.trim())) else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [.., _, delay, ran] = words[..] else { panic!("{line}") };
        // The name may have anything: its end is the last bracket.
        let Some((_, tid)) = rest.rsplit_once('[') else { continue };
        let tid = tid.split(['/', ']']).next().unwrap().parse().unwrap();
        let (delay_us, run_us) = (thousandths(delay), thousandths(ran));
        found.entry(tid).or_default().push(Interval { at_us, delay_us, run_us });
    }
    assert!(!found.is_empty());
    found
}

/// A line of `perf trace -s`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// How many ended.
    pub count: u64,
    /// How many of them with an error.
    pub failed: u64,
    /// All together.
    pub total_us: u64,
    /// The shortest.
    pub least_us: u64,
    /// The mean.
    pub average_us: u64,
    /// The longest.
    pub most_us: u64,
}

/// `perf trace -s`: by thread and call.
pub fn calls(file: &Path) -> BTreeMap<(u32, String), CallTimes> {
    let printed = printed(&["trace", "-s"], file);
    let (mut found, mut thread) = (BTreeMap::new(), None);
    for line in printed.lines() {
        if let Some((head, _)) = line.split_once(" events, ") {
            // `name (tid), count`
            thread = head.rsplit_once(" (").and_then(|(_, tid)| tid.split(')').next()?.parse::<u32>().ok());
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let ([call, count, failed, times @ ..], Some(tid)) = (&words[..], thread) else { continue };
        let (Ok(count), Ok(failed), [total, least, average, most, _]) =
            (count.parse(), failed.parse(), times)
        else {
            continue;
        };
        let [total_us, least_us, average_us, most_us] =
            [total, least, average, most].map(|text| thousandths(text));
        let times = CallTimes { count, failed, total_us, least_us, average_us, most_us };
        assert_eq!(found.insert((tid, (*call).to_owned()), times), None, "{printed}");
    }
    assert!(!found.is_empty(), "{printed}");
    found
}

/// `1.234` as 1234.
fn thousandths(text: &str) -> u64 {
    let (whole, part) =
        text.trim().split_once('.').unwrap_or_else(|| panic!("no number with a fraction: {text:?}"));
    assert_eq!(part.len(), 3, "{text}");
    whole.parse::<u64>().unwrap() * 1000 + part.parse::<u64>().unwrap()
}

/// `1.234567` seconds in microseconds.
fn micros(text: &str) -> u64 {
    let (seconds, part) = text.split_once('.').unwrap();
    assert_eq!(part.len(), 6, "{text}");
    seconds.parse::<u64>().unwrap() * 1_000_000 + part.parse::<u64>().unwrap()
}

/// A sample of a recording of perf: an event of a tracepoint.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Nanoseconds.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// The record as ftrace would have it.
    pub record: Vec<u8>,
}

/// The samples of a perf.data file, each CPU's in the order of time. Nothing may be lost.
///
/// The layout is that of tools/perf/Documentation/perf.data-file-format.txt and of `PERF_RECORD_SAMPLE` in
/// include/uapi/linux/perf_event.h.
pub fn samples(file: &Path) -> Vec<Sample> {
    const SAMPLE: u32 = 9;
    /// Events were lost (`PERF_RECORD_LOST`, `PERF_RECORD_LOST_SAMPLES`), or are compressed.
    const UNWANTED: [u32; 3] = [2, 13, 81];
    let bytes = fs::read(file).unwrap();
    assert_eq!(&bytes[..8], b"PERFILE2", "{}", file.display());
    let types = sample_types(&bytes);
    let (mut at, len) = (long(&bytes, 40) as usize, long(&bytes, 48) as usize);
    let end = at + len;
    let mut samples = Vec::new();
    while at < end {
        let size = usize::from(u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap()));
        let kind = word(&bytes, at);
        assert!(!UNWANTED.contains(&kind), "perf lost events, or has compressed them: a record {kind}");
        if kind == SAMPLE {
            samples.extend(sample(&bytes[at + 8..at + size], &types));
        }
        at += size;
    }
    samples.sort_by_key(|sample| (sample.cpu, sample.time));
    assert!(!samples.is_empty(), "{}", file.display());
    samples
}

/// What a recording tells of its losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// How many, where they were over (`PERF_RECORD_LOST`).
    pub told: u64,
    /// How many such places there are.
    pub places: usize,
    /// How many samples, by the counts at the end (`PERF_RECORD_LOST_SAMPLES`).
    pub counted: u64,
}

/// The kernel's part of each call chain, by the CPU and the time of its sample in nanoseconds.
///
/// perf prints the marks between the parts in its dump only. Without them an address of user space cannot be
/// told by its value: a walk along frames finds numbers of the kernel's range in code that keeps something
/// else in the frame register, as an emulator of a guest does.
pub fn kernel_chains(file: &Path) -> BTreeMap<(u32, u64), Vec<u64>> {
    /// `PERF_CONTEXT_KERNEL`, and the lowest of these marks (`PERF_CONTEXT_MAX`).
    const KERNEL: u64 = -128_i64 as u64;
    const LOWEST: u64 = -4095_i64 as u64;
    let (mut found, mut at, mut in_kernel) = (BTreeMap::<_, Vec<_>>::new(), (0, 0), false);
    for line in printed(&["script", "-D"], file).lines() {
        if let Some((head, _)) = line.split_once(": PERF_RECORD_SAMPLE") {
            // `CPU TIME OFFSET [SIZE]`
            let mut words = head.split(' ');
            at = (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
            in_kernel = false;
        } else if let Some((_, address)) = line.strip_prefix("..... ").and_then(|line| line.split_once(": "))
        {
            let address = u64::from_str_radix(address, 16).unwrap();
            if address >= LOWEST {
                in_kernel = address == KERNEL;
            } else if in_kernel {
                found.entry(at).or_default().push(address);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// The losses of a perf.data file that is not compressed.
pub fn lost(file: &Path) -> Lost {
    let bytes = fs::read(file).unwrap();
    let (mut at, len) = (long(&bytes, 40) as usize, long(&bytes, 48) as usize);
    let end = at + len;
    let mut lost = Lost::default();
    while at < end {
        match word(&bytes, at) {
            2 => {
                lost.told += long(&bytes, at + 16);
                lost.places += 1;
            }
            13 => lost.counted += long(&bytes, at + 8),
            _ => {}
        }
        at += usize::from(u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap()));
    }
    lost
}

/// What samples of each event have, by the event's number in the file; those of tracepoints only.
fn sample_types(bytes: &[u8]) -> BTreeMap<u64, u64> {
    const TRACEPOINT: u32 = 2;
    let attr_size = long(bytes, 16) as usize;
    let (start, len) = (long(bytes, 24) as usize, long(bytes, 32) as usize);
    let mut types = BTreeMap::new();
    for attr in (start..start + len).step_by(attr_size) {
        let ids = attr + attr_size - 16;
        let (ids, len) = (long(bytes, ids) as usize, long(bytes, ids + 8) as usize);
        if word(bytes, attr) == TRACEPOINT {
            types.extend((ids..ids + len).step_by(8).map(|id| (long(bytes, id), long(bytes, attr + 24))));
        }
    }
    types
}

fn sample(bytes: &[u8], types: &BTreeMap<u64, u64>) -> Option<Sample> {
    /// `PERF_SAMPLE_*`, in the order in which a sample has them. These are all that a recording here has.
    const IDENTIFIER: u64 = 1 << 16;
    const PARTS: [(u64, &str); 6] =
        [(1, "ip"), (2, "tid"), (4, "time"), (128, "cpu"), (256, "period"), (1024, "raw")];
    let of = *types.get(&long(bytes, 0))?;
    assert_eq!(of, PARTS.iter().map(|(bit, _)| bit).sum::<u64>() | IDENTIFIER, "what a sample of perf has");
    let (time, cpu, raw) = (long(bytes, 24), word(bytes, 32), 48);
    let len = word(bytes, raw) as usize;
    Some(Sample { time, cpu, record: bytes[raw + 4..raw + 4 + len].to_vec() })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Writes the same events, with the same times, as a trace.dat.
pub fn to_dat(file: &Path, systems: &[&str], dat: &Path) {
    let mut recording = MadeUp::of(tracefs::events(systems));
    for Sample { time, cpu, record } in samples(file) {
        recording.push((time, cpu), &record);
    }
    recording.write(dat);
}
