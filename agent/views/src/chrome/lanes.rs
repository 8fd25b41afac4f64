//! Processes and threads of the trace. Besides those of the recording there are some for what is of no
//! thread, and for what may not be among the slices of one: slices of a thread of the trace have to be inside
//! one another, and a thread of the kernel begins and ends to run in the middle of its system calls.

use std::collections::{BTreeMap, BTreeSet};

use super::out::Out;
use crate::tracks::{Finished, Row, Taken};
use analysis::answers::Tid;
use recording::{Processes, Recording, Snapshot};
use report::json::string;
use report::text::unsigned;
use tracedat::reader::Record;

/// Ids of threads and processes are lower (`PID_MAX_LIMIT` of include/linux/threads.h).
const IDS: u64 = 1 << 22;
/// The processes of what is of no process.
const CPUS: u64 = IDS;
const DEVICES: u64 = IDS + 1;
/// The lanes of CPUs and of devices have ids from here on: above those of threads, because readers may know
/// threads by their ids alone, and with 32 bits, because Perfetto's has no more.
const CPU_LANES: u64 = 1 << 24;
const DEVICE_LANES: u64 = 1 << 28;

/// Names of threads are added to a lane while it has fewer bytes of them.
const MOST_NAMES: usize = 128;

/// A thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane {
    pub(super) process: u64,
    pub(super) thread: u64,
}

impl Lane {
    /// Of the interrupts of a CPU.
    pub(super) fn of_interrupts(cpu: u32) -> Self {
        cpu_lane(cpu, Shows::Second)
    }

    /// Of counters, which belong to a process.
    pub(super) fn of_counters() -> Self {
        Self { process: CPUS, thread: CPU_LANES }
    }
}

/// What a lane of a thread or a CPU shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// Of a thread its system calls and records; of a CPU who runs.
    Main,
    /// Of a thread what it does; of a CPU its interrupts.
    Second,
    /// Functions of the kernel.
    Functions,
    /// Of a thread, spans that its program tells of.
    Spans,
}

/// The lanes of a trace.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The processes of threads, by their numbers; 0 for one that was not asked for.
    processes: Vec<u64>,
    known: Processes,
    /// CPUs on which something was seen.
    cpus: BTreeSet<u32>,
    /// Devices, and which of their requests that are under way at the same time a lane has.
    devices: BTreeMap<(u64, u32), u64>,
    /// Ids of threads for which there was no room among those with numbers.
    others: BTreeSet<Tid>,
}

impl Lanes {
    /// For a recording that began with this state.
    pub(super) fn new(state: Option<&Snapshot>, recording: &Recording<'_>) -> Self {
        Self {
            processes: Vec::new(),
            known: Processes::new(state, recording),
            cpus: recording.cpu_streams().iter().map(|stream| stream.cpu).collect(),
            devices: BTreeMap::new(),
            others: BTreeSet::new(),
        }
    }

    /// Learns from a record to which process a new thread belongs.
    pub(super) fn look(&mut self, record: &Record<'_>) {
        self.known.look(record);
    }

    /// The lane of what a thread does itself, by its number and id.
    pub(super) fn of_thread(&mut self, number: u32, tid: Tid) -> Lane {
        self.thread_lane(number, tid, Shows::Main)
    }

    /// The lane of a thread's states.
    pub(super) fn of_states(&mut self, number: u32, tid: Tid) -> Lane {
        self.thread_lane(number, tid, Shows::Second)
    }

    /// The lane in which a record is shown: that of its thread, or of its CPU for the idle one, as all CPUs
    /// have one of that id.
    pub(super) fn of_record(&mut self, taken: &Taken) -> Lane {
        match (taken.tid, taken.thread) {
            (None | Some(0), _) => cpu_lane(taken.at.cpu, Shows::Main),
            (Some(tid), Some(number)) => self.of_thread(number, tid),
            (Some(tid), None) => {
                self.others.insert(tid);
                Lane { process: tid.into(), thread: tid.into() }
            }
        }
    }

    /// The lane of a row; `tid` tells the id of the thread with a number. `None` for rows that have no
    /// slices.
    pub(super) fn of_row(&mut self, row: Row, tid: impl Fn(u32) -> Option<Tid>) -> Option<Lane> {
        Some(match row {
            Row::Cpu(cpu) | Row::Gap(cpu) => cpu_lane(cpu, Shows::Main),
            Row::Irq(cpu, _) => cpu_lane(cpu, Shows::Second),
            Row::IdleGraph(cpu, _) => cpu_lane(cpu, Shows::Functions),
            Row::Device(device, lane) => self.device_lane(device, lane),
            Row::Thread(number) => self.thread_lane(number, tid(number)?, Shows::Second),
            Row::Calls(number) => self.thread_lane(number, tid(number)?, Shows::Main),
            Row::Graph(number, _) => self.thread_lane(number, tid(number)?, Shows::Functions),
            Row::Spans(number, _) | Row::Moments(number) => {
                self.thread_lane(number, tid(number)?, Shows::Spans)
            }
            Row::ProcessSpans(process, _) | Row::Counter(process, _) => {
                Lane { process: process.into(), thread: process.into() }
            }
            Row::Marks(_) | Row::Event(_) => return None,
        })
    }

    fn thread_lane(&mut self, number: u32, tid: Tid, shows: Shows) -> Lane {
        Lane { process: self.process(number, tid), thread: u64::from(tid) + shows.place() * IDS }
    }

    fn process(&mut self, number: u32, tid: Tid) -> u64 {
        let number = number as usize;
        if self.processes.len() <= number {
            self.processes.resize(number + 1, 0);
        }
        let Some(process) = self.processes.get_mut(number) else { return tid.into() };
        if *process == 0 {
            *process = self.known.of(tid).into();
        }
        *process
    }

    /// Writes the names of all, and their order: CPUs, devices, processes as they were seen.
    pub(super) fn write_names(mut self, finished: &Finished, recording: &Recording<'_>, out: &mut Out) {
        let mut names = Names { out, order: 0 };
        names.process(CPUS, b"CPUs");
        for cpu in std::mem::take(&mut self.cpus) {
            names.lane(cpu_lane(cpu, Shows::Main), format!("CPU {cpu}").as_bytes());
            names.lane(cpu_lane(cpu, Shows::Second), format!("CPU {cpu}: interrupts").as_bytes());
            names.lane(cpu_lane(cpu, Shows::Functions), format!("CPU {cpu}: functions").as_bytes());
        }
        self.name_devices(&mut names);
        self.name_threads(finished, recording, &mut names);
    }

    fn device_lane(&mut self, device: u64, lane: u32) -> Lane {
        let next = DEVICE_LANES + self.devices.len() as u64;
        Lane { process: DEVICES, thread: *self.devices.entry((device, lane)).or_insert(next) }
    }

    fn name_devices(&mut self, names: &mut Names<'_>) {
        if !self.devices.is_empty() {
            names.process(DEVICES, b"Block devices");
        }
        for ((device, lane), thread) in std::mem::take(&mut self.devices) {
            // `MAJOR` and `MINOR` of include/linux/kdev_t.h.
            let name = format!("{}:{} ({})", device >> 20, device & 0xf_ffff, u64::from(lane) + 1);
            names.lane(Lane { process: DEVICES, thread }, name.as_bytes());
        }
    }

    /// The name of a thread that no record names; empty if nothing else does.
    fn name<'n>(&'n self, tid: Tid, recording: &'n Recording<'_>) -> &'n [u8] {
        let last = recording.file().metadata().cmdlines.get(tid);
        last.or_else(|| self.known.first_name(tid).map(str::as_bytes)).unwrap_or_default()
    }

    fn name_threads(&mut self, finished: &Finished, recording: &Recording<'_>, names: &mut Names<'_>) {
        // Each lane once, with the names of all that had its id, and processes by their first thread, of
        // which there may be no records.
        let mut lanes: BTreeMap<Lane, (Vec<u8>, &str)> = BTreeMap::new();
        let mut processes: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut firsts = BTreeSet::new();
        let threads = finished.names(recording).map(|(tid, name)| match name {
            [] => (tid, self.name(tid, recording).to_vec()),
            name => (tid, name.to_vec()),
        });
        let threads: Vec<(Tid, Vec<u8>)> = threads.collect();
        let rows: BTreeSet<u64> = finished
            .sink
            .rows
            .iter()
            .filter_map(|(row, _)| match row {
                Row::Thread(number) => Some(u64::from(number) << 2 | Shows::Second.place()),
                Row::Graph(number, _) => Some(u64::from(number) << 2 | Shows::Functions.place()),
                Row::Spans(number, _) | Row::Moments(number) => {
                    Some(u64::from(number) << 2 | Shows::Spans.place())
                }
                _ => None,
            })
            .collect();
        for (number, (tid, name)) in threads.into_iter().enumerate().filter(|(_, (tid, _))| *tid != 0) {
            let number = number as u32;
            let process = self.process(number, tid);
            if process == u64::from(tid) {
                if firsts.insert(process) {
                    processes.insert(process, name.clone());
                } else {
                    add_name(processes.entry(process).or_default(), &name);
                }
            } else {
                processes.entry(process).or_insert_with(|| match self.name(process as Tid, recording) {
                    [] => name.clone(),
                    main => main.to_vec(),
                });
            }
            for (shows, suffix) in [
                (Shows::Main, ""),
                (Shows::Second, ": states"),
                (Shows::Functions, ": functions"),
                (Shows::Spans, ": spans"),
            ] {
                if shows == Shows::Main || rows.contains(&(u64::from(number) << 2 | shows.place())) {
                    let lane = lanes.entry(self.thread_lane(number, tid, shows)).or_default();
                    add_name(&mut lane.0, &name);
                    lane.1 = suffix;
                }
            }
        }
        for tid in std::mem::take(&mut self.others) {
            let name = self.name(tid, recording).to_vec();
            let lane = Lane { process: tid.into(), thread: tid.into() };
            processes.entry(lane.process).or_insert_with(|| name.clone());
            lanes.entry(lane).or_insert_with(|| (name, ""));
        }
        for (process, name) in processes {
            names.process(process, &name);
        }
        // The lanes of a thread stay together.
        let mut lanes: Vec<_> = lanes.into_iter().collect();
        lanes.sort_by_key(|(lane, _)| (lane.process, lane.thread % IDS, lane.thread));
        for (lane, (name, suffix)) in lanes {
            // Of a thread without a name, viewers show the number.
            let number = (lane.thread % IDS).to_string().into_bytes();
            let name = if name.is_empty() && !suffix.is_empty() { number } else { name };
            names.lane(lane, &[&*name, suffix.as_bytes()].concat());
        }
    }
}

/// Adds the name of another thread that had the same id, as long as there is room.
fn add_name(names: &mut Vec<u8>, name: &[u8]) {
    let is_there = names.split(|byte| *byte == b',').any(|other| other.trim_ascii_start() == name);
    if names.is_empty() {
        names.extend_from_slice(name);
    } else if !name.is_empty() && !is_there && names.len() < MOST_NAMES {
        names.extend_from_slice(b", ");
        names.extend_from_slice(name);
    }
}

impl Shows {
    fn place(self) -> u64 {
        match self {
            Self::Main => 0,
            Self::Second => 1,
            Self::Functions => 2,
            Self::Spans => 3,
        }
    }
}

fn cpu_lane(cpu: u32, shows: Shows) -> Lane {
    Lane { process: CPUS, thread: CPU_LANES + u64::from(cpu) * 4 + shows.place() }
}

/// Writes names, each with its place in the order.
struct Names<'o> {
    out: &'o mut Out,
    order: u64,
}

impl Names<'_> {
    fn process(&mut self, process: u64, name: &[u8]) {
        self.write(Lane { process, thread: 0 }, ("process_name", "process_sort_index"), name);
    }

    fn lane(&mut self, lane: Lane, name: &[u8]) {
        self.write(lane, ("thread_name", "thread_sort_index"), name);
    }

    /// Without a name, only the place in the order.
    fn write(&mut self, lane: Lane, (says, sorts): (&str, &str), name: &[u8]) {
        if !name.is_empty() {
            self.out.event(b'M', lane, 0).name(says.as_bytes()).args(|args| {
                args.extend_from_slice(b"\"name\":");
                string(args, name);
            });
        }
        self.order += 1;
        let order = self.order;
        self.out.event(b'M', lane, 0).name(sorts.as_bytes()).args(|args| {
            args.extend_from_slice(b"\"sort_index\":");
            unsigned(args, order);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracks::Slicer;
    use crate::tracks::slicer_tests::{ENTER, file, take};
    use tracedat::initial_state::{InitialState, Thread};

    #[test]
    fn a_lane_has_each_name_once_and_no_empty_one() {
        let mut names = Vec::new();
        for name in ["", "sh", "", "ls", "sh"] {
            add_name(&mut names, name.as_bytes());
        }
        assert_eq!(names, b"sh, ls");
    }

    #[test]
    fn processes_have_the_names_of_threads_without_records() {
        let file = file();
        let recording = Recording::of_head(&file);
        let thread = |tid, tgid, comm: &str| Thread { tid, tgid, comm: comm.to_owned(), ..Thread::default() };
        let threads = vec![thread(7, 7, "main"), thread(8, 7, "worker"), thread(10, 9, "alone")];
        let state = Snapshot { time: 0, state: InitialState { threads, ..InitialState::default() } };
        let lanes = Lanes::new(Some(&state), &recording);
        let (mut slicer, mut slices) = (Slicer::new(&recording), Vec::new());
        for tid in [8, 10, 11] {
            take(&mut slicer, (1, 0), (ENTER, tid), &[0]);
        }
        slicer.end();
        slicer.slices(&mut slices);
        let mut out = Out::new(0);
        lanes.write_names(&slicer.finish(), &recording, &mut out);
        let text = String::from_utf8(out.take()).unwrap();
        let names = |kind: &str| -> Vec<(u64, String)> {
            let events = text
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line.trim_matches(',')).ok());
            let of_kind = events.filter(|event| event["name"] == kind);
            let id = if kind == "process_name" { "pid" } else { "tid" };
            let name = |event: serde_json::Value| {
                (event[id].as_u64().unwrap(), event["args"]["name"].as_str().unwrap().to_owned())
            };
            of_kind.map(name).filter(|(id, _)| *id < IDS).collect()
        };
        let named = |names: &[(u64, &str)]| -> Vec<(u64, String)> {
            names.iter().map(|(id, name)| (*id, (*name).to_owned())).collect()
        };
        assert_eq!(names("process_name"), named(&[(7, "main"), (9, "alone")]), "{text}");
        assert_eq!(names("thread_name"), named(&[(8, "worker"), (10, "alone")]), "{text}");
    }
}
