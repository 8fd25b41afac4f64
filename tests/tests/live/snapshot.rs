//! Snapshots of a recording that overwrites: whole and without gaps, and nothing changes for the recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use integration_tests::{
    dat::Dat,
    harness::{
        Caller, Ledger, Marked, Report, Running, Tmpfs, agent, cpustat, files, is_getppid, run, wait_for,
    },
    soak, workload,
};

/// How many snapshots the storm has.
const SNAPSHOTS: usize = 50;
/// How many are asked for without waiting for any.
const REQUESTS: usize = 30;

/// Starts a flight recorder of `numbered` calls in a directory.
fn storm(dir: &Path, scratch: &Path, ring: &str, args: &[&str]) -> Running {
    let mut command = agent(dir, ["record", "-e", "raw_syscalls:sys_enter", "-f", "id == 110"]);
    command.args(["--overwrite", "-b", ring, "-o", "trace.dat", "--compression", "none"]).args(args);
    let recording = Running::start(command.args(workload::command("numbered", scratch)));
    // Before that, a signal would end it.
    wait_for("the recording", || files(dir).contains(&"trace.dat.spool".to_owned()).then_some(()));
    recording
}

/// Takes the snapshot of a number. When the recorder has told of it, it can take the next one.
fn snapshot(recording: &mut Running, dir: &Path, number: usize) -> PathBuf {
    let end = format!("-snapshot-{number}.dat");
    recording.signal(libc::SIGUSR2);
    recording.wait_until_said(&format!("{end}: "), 1);
    let name = files(dir).into_iter().find(|name| name.ends_with(&end));
    dir.join(name.unwrap_or_else(|| panic!("there is no file {end}")))
}

/// The numbers of the calls that a file has of each of these threads: the first one, and the one after the
/// last. Panics unless those between are there, each once and in order, but for as many as the file says are
/// lost.
/// Other programs on the machine make the call, too, with whatever is in the register.
fn calls_in(file: &Path, threads: &BTreeMap<u32, u64>) -> BTreeMap<u32, (u64, u64)> {
    let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut missing = 0;
    for record in Dat::open(file).records().iter().filter(|record| threads.contains_key(&record.pid())) {
        let number = u64::from_le_bytes(record.bytes[16..24].try_into().unwrap());
        let (_, next) = found.entry(record.pid()).or_insert((number, number));
        assert!(number >= *next, "{}: call {number} of {} after {next}", file.display(), record.pid());
        missing += number - *next;
        *next = number + 1;
    }
    let lost = Ledger::of(file).lost();
    assert!(missing <= lost, "{}: {missing} calls are missing, {lost} are lost", file.display());
    found
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    #[test]
    fn fifty_snapshots_of_a_storm_are_whole_and_without_gaps() {
        super::fifty_snapshots_of_a_storm_are_whole_and_without_gaps();
    }

    #[test]
    fn the_event_that_asks_for_a_snapshot_is_in_it() {
        super::the_event_that_asks_for_a_snapshot_is_in_it();
    }
}

fn fifty_snapshots_of_a_storm_are_whole_and_without_gaps() {
    take_many("1M");
}

/// Programs overwrite it faster than it is copied.
#[test]
fn snapshots_of_a_small_ring_are_whole_and_without_gaps() {
    take_many("32K");
}

fn take_many(ring: &str) {
    let dir = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut recording = storm(dir.path(), scratch.path(), ring, &[]);
    let mut taken = Vec::new();
    for number in 1..=SNAPSHOTS * soak() {
        taken.push(snapshot(&mut recording, dir.path(), number));
    }
    workload::end_numbered(scratch.path());
    recording.wait().expect(0);
    let calls: BTreeMap<u32, u64> = workload::numbers_of(scratch.path()).into_iter().collect();
    assert_eq!(files(dir.path()).len(), taken.len() + 1, "nothing else is there");

    let mut before: BTreeMap<u32, u64> = BTreeMap::new();
    let mut overwritten = 0;
    let mut with_data = 0;
    taken.push(dir.path().join("trace.dat"));
    for file in &taken {
        let ledger = Ledger::of(file);
        let found = calls_in(file, &calls);
        let stored = ledger.cpus("stored");
        assert_eq!(ledger.cpus("recorded"), stored + ledger.cpus("overwritten"), "{}", file.display());
        assert_eq!(ledger.events("recorded"), ledger.cpus("recorded"), "{}", file.display());
        for (tid, next) in found.into_iter().map(|(tid, (_, next))| (tid, next)) {
            assert!(next <= calls[&tid], "{tid}");
            let before = before.insert(tid, next).unwrap_or(0);
            assert!(next >= before, "{}: a snapshot has older events than the one before", file.display());
        }
        overwritten = ledger.cpus("overwritten");
        with_data += usize::from(stored > 0);
        run(agent(dir.path(), ["check"]).arg(file)).expect(0);
    }
    assert!(overwritten > 100_000, "{overwritten} events are no storm");
    assert!(with_data > taken.len() / 2, "{with_data} of {} files have events", taken.len());
    // What stock trace-cmd reads: all events, and how many are missing before them.
    for file in [taken.first(), taken.get(taken.len() / 2), taken.last()].into_iter().flatten() {
        let (ledger, report) = (Ledger::of(file), Report::of(file));
        assert_eq!(report.events.len() as u64, ledger.cpus("stored"), "{}", file.display());
        // A CPU that was overtaken has no page that could be marked.
        let cpus: BTreeSet<u32> = Dat::open(file).records().iter().map(|record| record.cpu).collect();
        let missing = ledger.cpus("overwritten") + ledger.lost();
        let is_marked = if cpus.len() == workload::cpus() {
            report.dropped == missing
        } else {
            report.dropped <= missing
        };
        assert!(is_marked, "{}: {} of {missing} are marked", file.display(), report.dropped);
        assert_eq!(cpustat(file, "overrun"), ledger.cpus("overwritten"), "{}", file.display());
    }
}

#[test]
fn a_snapshot_has_what_fired_before_it_and_the_recording_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let options = ["--overwrite", "-e", "raw_syscalls:sys_enter", "-P", &pid, "-o", "flight.dat"];
    let mut recording = Marked::start(dir.path(), &options);
    for number in 1..=3 {
        caller.call(1000);
        let file = snapshot(&mut recording.agent, dir.path(), number);
        assert!(file.file_name().unwrap().to_str().unwrap().starts_with("flight-20"), "{}", file.display());
        let report = Report::of(&file);
        assert_eq!(report.count(is_getppid), caller.calls());
        assert!(report.names().iter().all(|name| name != "<...>"), "{:?}", report.names());
    }
    caller.call(1000);
    recording.finish().expect(0).says(&["-snapshot-1.dat: ", "-snapshot-3.dat: ", "flight.dat: "]);
    assert_eq!(Report::of(&dir.path().join("flight.dat")).count(is_getppid), caller.calls());
    assert_eq!(files(dir.path()).len(), 4);
}

#[test]
fn one_snapshot_is_taken_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let recording = storm(dir.path(), scratch.path(), "16M", &[]);
    for _ in 0..REQUESTS {
        recording.signal_and_wait(libc::SIGUSR2);
    }
    workload::end_numbered(scratch.path());
    let said = recording.wait().expect(0).err;
    let taken = files(dir.path()).iter().filter(|name| name.contains("-snapshot-")).count();
    let left_out = said.matches("no snapshot for this SIGUSR2").count();
    assert_eq!(taken + left_out, REQUESTS, "{said}");
    assert_ne!(left_out, 0);
    assert!(said.contains(&format!("{left_out} SIGUSR2 came while")), "{said}");
}

/// What [`ask`] asks with, and what asks for snapshots.
const ASKING: &str = "syscalls:sys_enter_getpriority: who >= 28672";
const FIRST_ASKED: u64 = 28672;

fn own_tid() -> u32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Calls what a recorder waits for.
fn ask(number: u64) {
    // SAFETY: plain numbers; there is no such process.
    unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, FIRST_ASKED + number) };
}

/// When such calls were recorded, by their numbers.
fn asked_in(file: &Path) -> Vec<(u64, u64)> {
    let records = Dat::open(file).records();
    let own = records.iter().filter(|record| record.pid() == own_tid() && record.bytes.len() >= 32);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[24..32].try_into().unwrap()) - FIRST_ASKED;
    let mut asked: Vec<(u64, u64)> = own.map(|record| (number(&record.bytes), record.time)).collect();
    asked.sort_unstable();
    asked
}

fn the_event_that_asks_for_a_snapshot_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    // Room for what the storm records while the recorder waits for a CPU.
    let mut recording = storm(dir.path(), scratch.path(), "2M", &["--snapshot-when", ASKING]);
    let count = (SNAPSHOTS * soak()) as u64;
    recording.wait_until_said("recording", 1);
    for number in 1..=count {
        ask(number);
        recording.wait_until_said(&format!("-snapshot-{number}.dat: "), 1);
    }
    workload::end_numbered(scratch.path());
    let said = format!("snapshots: {count} asked for by events, {count} taken");
    recording.wait().expect(0).says(&[&said]);
    let calls: BTreeMap<u32, u64> = workload::numbers_of(scratch.path()).into_iter().collect();
    for number in 1..=count {
        let end = format!("-snapshot-{number}.dat");
        let name = files(dir.path()).into_iter().find(|name| name.ends_with(&end)).unwrap();
        let file = dir.path().join(name);
        calls_in(&file, &calls);
        assert_eq!(asked_in(&file).last().map(|asked| asked.0), Some(number), "{}", file.display());
        let ledger = Ledger::of(&file);
        assert_eq!(ledger.cpus("recorded"), ledger.cpus("stored") + ledger.cpus("overwritten"));
        run(agent(dir.path(), ["check"]).arg(&file)).expect(0);
    }
}

#[test]
fn a_snapshot_waits_for_what_comes_after_its_event() {
    let dir = tempfile::tempdir().unwrap();
    let pid = std::process::id().to_string();
    let options = ["--overwrite", "-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-P", &pid];
    let when = ["--snapshot-when", ASKING, "--snapshot-delay", "200ms", "--snapshot-limit", "2"];
    let when = [&when[..], &["--compression", "none"]].concat();
    let mut recording = Marked::start(dir.path(), &[&options[..], &when].concat());
    for number in 1..=2 {
        ask(number);
        recording.agent.wait_until_said(&format!("-snapshot-{number}.dat: "), 1);
    }
    for number in 3..=5 {
        ask(number);
    }
    recording.finish().expect(0).says(&["snapshots: 5 asked for by events, 2 taken"]);
    let snapshots: Vec<String> =
        files(dir.path()).into_iter().filter(|name| name.contains("-snapshot-")).collect();
    assert_eq!(snapshots.len(), 2, "{snapshots:?}");
    for (name, number) in snapshots.iter().zip(1..) {
        let file = dir.path().join(name);
        let (last, time) = *asked_in(&file).last().unwrap();
        assert_eq!(last, number);
        let said = run(agent(dir.path(), ["info", "--json"]).arg(&file)).expect(0).out;
        let info: serde_json::Value = serde_json::from_str(&said).unwrap();
        let to = info["ledger"]["covered"]["to_ns"].as_u64().unwrap_or_else(|| panic!("{info}"));
        assert!(to >= time + 200_000_000, "it ends {} ns after its event", to - time);
    }
    assert_eq!(asked_in(&dir.path().join("trace.dat")).len(), 5);
}

#[test]
fn what_cannot_ask_for_snapshots_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (options, said) in [
        (&["--snapshot-when", "sched_switch"][..], "--overwrite"),
        (&["--overwrite", "--snapshot-limit", "2"], "--snapshot-when"),
        (&["--overwrite", "--snapshot-when", "sched_switch", "--snapshot-limit", "0"], "--snapshot-limit 0"),
        (&["--overwrite", "--snapshot-when", "irq"], "SYSTEM:EVENT"),
        (&["--overwrite", "--snapshot-when", "no:such"], "no event no:such is recorded"),
        (&["--overwrite", "--snapshot-when", "sched_switch: next_pid == 1"], "one filter"),
        (&["--overwrite", "--snapshot-when", "irq_handler_entry: irq =="], "--snapshot-when: at byte 6"),
        (&["--overwrite", "--snapshot-when", "irq_handler_entry: none == 1"], "has no field `none`"),
        (&["-v", "-e", "irq", "--overwrite", "--snapshot-when", "softirq_entry"], "it is excluded"),
    ] {
        let mut command = agent(dir.path(), ["record", "-e", "sched"]);
        let ended = run(command.args(options).args(["touch", "ran"]));
        assert_ne!(ended.code(), 0, "{options:?}");
        ended.says(&[said]);
        assert!(files(dir.path()).is_empty(), "{options:?}: nothing was begun");
    }
}

#[test]
fn who_stores_all_events_is_told_that_there_are_no_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let mut recording = Marked::start(dir.path(), &["-e", "raw_syscalls:sys_enter", "-P", &pid]);
    recording.agent.signal(libc::SIGUSR2);
    recording.agent.wait_until_said("snapshot of a recording with --overwrite", 1);
    caller.call(100);
    recording.finish().expect(0);
    assert_eq!(files(dir.path()), ["trace.dat"]);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), caller.calls());
}

#[test]
fn a_full_disk_costs_the_snapshot_and_not_the_recording() {
    let disk = Tmpfs::mount("size=32m");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let event = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-P", &pid];
    let options = [&event[..], &["--overwrite", "-b", "4M", "--compression", "none"]].concat();
    let mut recording = Marked::start(disk.path(), &options);
    // More than a ring has room for.
    caller.call(300_000);
    for (times, left) in [0, 128 << 10, 3 << 20].into_iter().enumerate() {
        disk.fill_but(left);
        recording.agent.signal(libc::SIGUSR2);
        recording.agent.wait_until_said("No space left", times + 1);
        std::fs::remove_file(disk.path().join("filler")).unwrap();
        assert!(!files(disk.path()).iter().any(|name| name.contains("snapshot")), "nothing of it is left");
    }
    let file = snapshot(&mut recording.agent, disk.path(), 1);
    let found = Report::of(&file);
    assert_eq!(found.count(is_getppid) + found.dropped, caller.calls());
    std::fs::remove_file(file).unwrap();
    // A snapshot was asked for and is not there.
    recording.finish().expect(113);
    let file = disk.path().join("trace.dat");
    assert_eq!(Ledger::of(&file).lost(), 0);
    let found = Report::of(&file);
    assert_eq!(found.count(is_getppid) + found.dropped, caller.calls());
}
