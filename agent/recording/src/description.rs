//! The descriptions that a recording has beside its records: which formats keep them, and the texts that
//! carry them to an importer.

use std::collections::BTreeMap;

use super::job::Job;
use super::survey::Recording;
use ftrace_event::syscalls::is_number;
use stdx::escapes;
use stdx::not_carried::NotCarried;
use tracedat::initial_state::{Host, InitialState};
use tracedat::ledger::Ledger;
use tracedat::provenance::{BufferName, ClockOrigin, Machine, Provenance, Recorder, Threads, Written};
use tracedat::{FileOption, Uname};

/// What a recording says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// Which threads, CPUs and firings were recorded.
    Choice,
    /// The names of buffers.
    Buffers,
    /// The name of the machine.
    Machine,
    /// The names of threads.
    Threads,
    /// Names of values, as of flags and states.
    ValueNames,
    /// Names of system calls.
    CallNames,
    /// That a field is an address.
    Addresses,
    /// Symbols of addresses.
    Symbols,
    /// The names of block devices.
    Disks,
    /// Other state of the machine at the start: parents and users of threads, open files, interrupts,
    /// modules, network interfaces.
    State,
}

impl Description {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Choice,
        Self::Buffers,
        Self::Machine,
        Self::Threads,
        Self::ValueNames,
        Self::CallNames,
        Self::Addresses,
        Self::Symbols,
        Self::Disks,
        Self::State,
    ];

    /// Those that views and tables of all records have.
    pub const OF_ROWS: &[Self] = &[
        Self::Buffers,
        Self::Machine,
        Self::Threads,
        Self::ValueNames,
        Self::CallNames,
        Self::Addresses,
        Self::Symbols,
    ];

    /// What is missing where a format does not keep it.
    fn text(self) -> &'static str {
        match self {
            Self::Choice => {
                "choices of threads, CPUs and events: readers take the export for a recording of all"
            }
            Self::Buffers => "names of buffers",
            Self::Machine => "names of machines",
            Self::Threads => "names of threads: only those in events and in the state at the start are there",
            Self::ValueNames => "events whose values have names: the numbers are there",
            Self::CallNames => "events with names of system calls: the numbers are there",
            Self::Addresses => "fields that are addresses: they are numbers there",
            Self::Symbols => "symbols of addresses",
            Self::Disks => "names of disks",
            Self::State => "entries of the state at the start: parents and users of threads, files, devices",
        }
    }

    /// How many a recording has of it.
    fn count(self, recording: &Recording<'_>, state: Option<&InitialState>) -> u64 {
        match self {
            Self::Choice => Ledger::all_of(recording.file())
                .map(|ledger| {
                    let chosen = |choice: &&tracedat::ledger::EventChoice| choice.is_chosen();
                    (ledger.only.len() + ledger.event_choices().iter().filter(chosen).count()) as u64
                })
                .sum(),
            Self::Buffers => buffer_names(recording).iter().filter(|name| !name.is_empty()).count() as u64,
            Self::Machine => u64::from(!recording.host(state).hostname.is_empty()),
            Self::Threads => recording.file().metadata().cmdlines.iter().count() as u64,
            Self::ValueNames => {
                let events = recording.events().iter();
                let has_names = |event: &&ftrace_event::Printer| {
                    event.format().fields.iter().any(|field| !event.value_names(field).is_empty())
                };
                events.filter(has_names).count() as u64
            }
            Self::CallNames => {
                let is_known = recording.syscalls().is_some();
                let has_number = |event: &&ftrace_event::Printer| {
                    event.format().fields.iter().any(|field| is_number(event.system(), &field.name))
                };
                recording.events().iter().filter(|event| is_known && has_number(event)).count() as u64
            }
            Self::Addresses => {
                let events = recording.events().iter().filter(|event| !event.is_stack());
                let addresses = events.flat_map(|event| {
                    event.format().fields.iter().filter(|field| event.address(field).is_some())
                });
                addresses.count() as u64
            }
            Self::Symbols => {
                let symbols = recording.file().kallsyms().unwrap_or_default();
                symbols.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64
            }
            Self::Disks | Self::State => state.map_or(0, |state| self.count_in_state(state)),
        }
    }

    /// How many a state has of it.
    fn count_in_state(self, state: &InitialState) -> u64 {
        let count = match self {
            Self::Disks => state.block_devices.len(),
            Self::State => {
                let devices = state.interrupts.len() + state.modules.len() + state.interfaces.len();
                state.threads.len() + state.files.len() + devices
            }
            _ => 0,
        };
        count as u64
    }
}

/// The descriptions in a state that a format does not keep, for exports that begin before their recording
/// ends.
pub fn not_kept_of_state(state: &InitialState, kept: &[Description]) -> NotCarried {
    let mut not_carried = NotCarried::default();
    for of in Description::ALL.iter().filter(|of| !kept.contains(of)) {
        not_carried.add(of.text(), of.count_in_state(state));
    }
    not_carried
}

/// Counts the descriptions that a format does not keep.
pub fn count_others(recording: &Recording<'_>, kept: &[Description], job: &Job<'_>) {
    let has_none = Description::ALL.iter().all(|of| kept.contains(of));
    if has_none {
        return;
    }
    // A damaged one is counted by the formats that use it.
    let state = recording.file().initial_state().ok().flatten();
    for of in Description::ALL.iter().filter(|of| !kept.contains(of)) {
        job.not_carried(of.text(), of.count(recording, state.as_ref()));
    }
}

/// The texts of a provenance. Those that it is too large for are counted.
pub fn texts(provenance: &Provenance, job: &Job<'_>) -> Vec<(String, String)> {
    let Written { texts, threads_left_out, left_out } = provenance.texts();
    job.not_carried("names and processes of threads, of which there are too many", threads_left_out);
    for member in left_out {
        job.not_carried(format!("descriptions that are too long: {member}"), 1);
    }
    texts
}

/// The names of the buffers that have streams, in the order of the file.
fn buffer_names(recording: &Recording<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for stream in recording.cpu_streams() {
        if names.last() != Some(&stream.channel) {
            names.push(stream.channel.clone());
        }
    }
    names
}

impl Recording<'_> {
    /// The conditions that it was made under, with this state at its start. All times are those of its
    /// records.
    pub fn provenance(&self, state: Option<&InitialState>) -> Provenance {
        let ledgers: Vec<Ledger> = Ledger::all_of(self.file()).map(|ledger| self.corrected(ledger)).collect();
        let clock = ClockOrigin {
            name: self.clock_name(),
            wall_offset_ns: self.wall_offset(),
            uncertainty_ns: ledgers.first().and_then(|ledger| ledger.realtime_uncertainty_ns),
        };
        let buffer = |name| BufferName { name, renamed: String::new() };
        Provenance {
            clock: Some(clock),
            machine: Some(Machine {
                host: self.host(state),
                cpus: Some(self.file().cpu_count()).filter(|cpus| *cpus != 0),
            }),
            recorder: Some(self.recorder()),
            buffers: buffer_names(self).into_iter().map(buffer).collect(),
            events: Vec::new(),
            threads: self.threads(state),
            ledgers,
        }
    }

    /// The machine and its kernel: by the state at the start, or else as the recorder has stored them, or by
    /// the option with the texts of uname(2).
    pub fn host(&self, state: Option<&InitialState>) -> Host {
        if let Some(state) = state {
            return state.host.clone();
        }
        if let Ok(Some(host)) = self.file().host() {
            return host;
        }
        let Uname { system, node, release, version, machine } =
            Uname::of(self.file().facts()).unwrap_or_default();
        Host { sysname: system, hostname: node, release, version, machine, ..Host::default() }
    }

    /// The program that recorded. One that only imported is not it.
    fn recorder(&self) -> Recorder {
        let version = self.file().facts().find_map(|fact| match fact {
            FileOption::Version(text) => Some(Recorder::first(text.trim()).to_owned()),
            _ => None,
        });
        Recorder { version: version.unwrap_or_default() }
    }

    /// The threads that have a name, or whose process is known. A recording that goes on has the names that
    /// they had at its start.
    fn threads(&self, state: Option<&InitialState>) -> Threads {
        let at_start = self.file().metadata().cmdlines.is_empty();
        let mut threads: BTreeMap<u32, (u32, String)> = BTreeMap::new();
        for (tid, name) in self.file().metadata().cmdlines.iter() {
            threads.entry(tid).or_default().1 = safe(name);
        }
        for thread in state.into_iter().flat_map(|state| &state.threads) {
            let known = threads.entry(thread.tid).or_default();
            known.0 = thread.tgid;
            if at_start {
                known.1 = safe(thread.comm.as_bytes());
            }
        }
        let list = threads.into_iter().map(|(tid, (tgid, name))| (tid, tgid, name)).collect();
        Threads { at_start, list }
    }

    /// A ledger whose times are those of the records.
    fn corrected(&self, mut ledger: Ledger) -> Ledger {
        let clock = self.file().clock();
        let of_cpu = |cpu: u32, time: u64| clock.for_cpu(cpu).correct(time);
        let time = |time: u64| of_cpu(0, time);
        for pause in &mut ledger.pauses {
            *pause = pause.corrected(clock);
        }
        if let Some(covered) = &mut ledger.covered {
            (covered.from_ns, covered.to_ns) = (time(covered.from_ns), time(covered.to_ns));
        }
        for event in ledger.events.iter_mut().flatten() {
            event.since_ns = event.since_ns.map(time);
            event.until_ns = event.until_ns.map(time);
        }
        for row in &mut ledger.cpus {
            let cpu = row.cpu;
            if let Some(missing) = &mut row.missing {
                missing.since = missing.since.map(|at| of_cpu(cpu, at));
                missing.counted = missing.counted.map(|at| of_cpu(cpu, at));
            }
        }
        ledger
    }
}

/// A name with bytes that are no UTF-8 escaped.
fn safe(name: &[u8]) -> String {
    let mut safe = name.to_vec();
    escapes::escape_from(&mut safe, 0);
    String::from_utf8_lossy(&safe).into_owned()
}
