//! Buffers with names: each with its own events, memory, and counts, all in one file.

use std::{collections::BTreeSet, path::Path};

use integration_tests::harness::{
    Caller, Marked, Report, Tmpfs, agent, files, is_getppid, ledger_in_info, name_of, run, wait_for,
};
use serde_json::Value;

/// System calls of one kind.
const CALLS: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

/// What the ledger of a file says of a buffer, over all CPUs.
struct Counts {
    recorded: u64,
    stored: u64,
    lost: u64,
    overwritten: u64,
}

fn counts(file: &Path, buffer: &str) -> Counts {
    let ledger = ledger_in_info(file);
    let rows: Vec<&Value> = (ledger["cpus"].as_array().unwrap().iter())
        .filter(|row| row["channel"].as_str().unwrap_or("") == buffer)
        .collect();
    assert!(!rows.is_empty(), "there is no buffer {buffer:?} in {ledger}");
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum();
    let lost = rows.iter().flat_map(|row| row["lost"].as_object().unwrap().values());
    Counts {
        recorded: sum("recorded"),
        stored: sum("stored"),
        lost: lost.map(|count| count.as_u64().unwrap()).sum(),
        overwritten: sum("overwritten"),
    }
}

/// The lines of `report` of one buffer, without its name.
fn lines_of(file: &Path, buffer: &str) -> Vec<String> {
    let mut command = agent(file.parent().unwrap(), ["report", "-B", buffer]);
    let report = run(command.arg(file)).expect(0);
    let lines = report.out.lines().filter(|line| is_getppid(line));
    let title = if buffer.is_empty() { String::new() } else { format!("{buffer}:") };
    lines.map(|line| line.trim().strip_prefix(title.as_str()).unwrap().trim().to_owned()).collect()
}

fn is_in(line: &str, buffer: &str) -> bool {
    line.split_once(':').is_some_and(|(first, _)| first.trim() == buffer)
}

#[test]
fn the_same_event_in_two_buffers_has_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let args =
        [&["-P", &pid, "-o", "trace.dat", "-b", "16M"], &CALLS[..], &["-B", "same", "-b", "16M"], &CALLS];
    let recording = Marked::start(dir.path(), &args.concat());
    caller.call(100_000);
    recording.finish().expect(0);
    for buffer in ["", "same"] {
        let counts = counts(&file, buffer);
        assert_eq!((counts.recorded, counts.stored, counts.lost), (100_000, 100_000, 0), "{buffer:?}");
    }
    // Each has a time of its own, and all else is the same.
    let [top, same] = ["", "same"].map(|buffer| lines_of(&file, buffer));
    let without_time = |line: &String| {
        let (task, rest) = line.split_once('[').unwrap_or_else(|| panic!("no CPU in {line}"));
        let (_, event) = rest.split_once(": ").unwrap_or_else(|| panic!("no time in {line}"));
        format!("{task}{event}")
    };
    assert_eq!(top.len(), 100_000);
    assert!(top.iter().map(without_time).eq(same.iter().map(without_time)));
    // Stock trace-cmd says which lines are of which.
    let stock = Report::of(&file);
    assert_eq!(stock.count(|line| is_in(line, "same")), 100_000);
    assert_eq!(stock.count(is_getppid), 200_000);
    run(agent(dir.path(), ["check", "trace.dat"]).args(["-q"])).expect(0);
}

/// The readers do not run, so what comes has to have room in the rings.
#[test]
fn a_buffer_that_is_full_leaves_the_other_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let args =
        [&["-P", &pid, "-o", "trace.dat", "-b", "8"], &CALLS[..], &["-B", "large", "-b", "64M"], &CALLS];
    let recording = Marked::start(dir.path(), &args.concat());
    recording.agent.hold();
    caller.call(200_000);
    recording.agent.signal(libc::SIGCONT);
    recording.finish().expect(0);
    let (small, large) = (counts(&file, ""), counts(&file, "large"));
    assert_eq!((large.recorded, large.stored, large.lost), (200_000, 200_000, 0));
    assert!(small.lost > 100_000, "{} of 200 000 were lost from two pages", small.lost);
    assert_eq!(small.recorded + small.lost, 200_000);
    assert_eq!((small.stored, small.overwritten), (small.recorded, 0));
    let stock = Report::of(&file);
    assert_eq!(stock.count(|line| is_in(line, "large") && is_getppid(line)), 200_000);
}

#[test]
fn a_flight_recorder_beside_others_has_snapshots_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let last = ["-B", "last", "--overwrite", "-b", "64"];
    let args = [&["-P", &pid, "-o", "trace.dat", "-b", "16M"], &CALLS[..], &last, &CALLS];
    let mut recording = Marked::start(dir.path(), &args.concat());
    caller.call(50_000);
    recording.agent.signal(libc::SIGUSR2);
    recording.agent.wait_until_said("-snapshot-1.dat: ", 1);
    caller.call(50_000);
    recording.finish().expect(0);
    let all = counts(&file, "");
    assert_eq!((all.recorded, all.stored, all.lost, all.overwritten), (100_000, 100_000, 0, 0));
    let newest = counts(&file, "last");
    assert_eq!((newest.recorded, newest.lost), (100_000, 0));
    assert_eq!(newest.stored + newest.overwritten, 100_000);
    assert!(newest.overwritten > 50_000, "64 KB of 100 000 events overwrite most of them");
    let name = files(dir.path()).into_iter().find(|name| name.ends_with("-snapshot-1.dat")).unwrap();
    let snapshot = dir.path().join(name);
    let held = counts(&snapshot, "last");
    assert_eq!((held.recorded, held.stored + held.overwritten), (50_000, 50_000));
    let channels: BTreeSet<String> = (ledger_in_info(&snapshot)["cpus"].as_array().unwrap().iter())
        .map(|row| row["channel"].as_str().unwrap_or("").to_owned())
        .collect();
    assert_eq!(channels, BTreeSet::from(["last".to_owned()]), "the others store everything anyway");
    let stock = Report::of(&snapshot);
    assert_eq!((stock.events.len() as u64, stock.dropped), (held.stored, held.overwritten));
    // trace-cmd writes the name of the buffer once for a mark of missed events and the event after it.
    assert!(
        stock.count(|line| !is_in(line, "last"))
            <= ledger_in_info(&snapshot)["cpus"].as_array().unwrap().len() as u64
    );
}

/// While what the flight recorder holds is copied, the others are read.
#[test]
fn a_snapshot_costs_the_buffers_beside_it_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let (mut filler, mut steady) = (Caller::start(), Caller::start());
    // Rings of two CPUs, also on a large machine.
    filler.pin(0);
    steady.pin(0);
    let pids = format!("{},{}", filler.pid(), steady.pid());
    let of_steady = format!("id == 110 && common_pid == {}", steady.pid());
    let stored = ["-e", "raw_syscalls:sys_enter", "-f", &of_steady, "-b", "1M"];
    let args = [
        &["-P", &pids, "-M", "0-1", "-o", "trace.dat"],
        &stored[..],
        &["-B", "last", "--overwrite", "-b", "128M"],
        &CALLS,
    ];
    let mut recording = Marked::start(dir.path(), &args.concat());
    filler.call(2_000_000);
    recording.agent.signal(libc::SIGUSR2);
    wait_for("the snapshot", || {
        // More in the time that the copy takes than its ring holds.
        steady.call(200);
        std::thread::sleep(std::time::Duration::from_millis(1));
        files(dir.path()).iter().any(|name| name.ends_with("-snapshot-1.dat")).then_some(())
    });
    recording.agent.wait_until_said("-snapshot-1.dat: ", 1);
    recording.finish().expect(0);
    let all = counts(&file, "");
    assert_eq!((all.recorded, all.stored, all.lost), (steady.calls(), steady.calls(), 0));
}

#[test]
fn a_full_disk_leaves_room_for_what_a_flight_recorder_holds() {
    let dir = Tmpfs::mount("size=24m");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let last = ["-B", "last", "--overwrite", "-b", "256"];
    // Rings of two CPUs, also on a large machine.
    caller.pin(0);
    let options = ["-P", &pid, "-M", "0-1", "-o", "trace.dat", "--compression", "none"];
    let args = [&options[..], &CALLS, &last, &CALLS].concat();
    let recording = Marked::start(dir.path(), &args);
    // Three times as much as there is room for.
    caller.call(1_000_000);
    recording.finish().expect(113).says(&["recording ended early"]);
    let file = dir.path().join("trace.dat");
    let newest = counts(&file, "last");
    assert!(newest.stored > 1000, "{} events of the newest are there", newest.stored);
    assert_eq!(newest.stored + newest.overwritten, newest.recorded);
    run(agent(dir.path(), ["check", "-q"]).arg(&file)).expect(0);
}

#[test]
fn a_recording_into_named_buffers_only_is_read_by_stock_trace_cmd() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["record", "-q", "-o", "t.dat", "-B", "switches", "-e", "sched:sched_switch"];
    let more = ["-B", "calls", "-e", "raw_syscalls", "sleep", "0.2"];
    run(agent(dir.path(), args).args(more)).expect(0);
    let file = dir.path().join("t.dat");
    let stock = Report::of(&file);
    let of = |buffer: &str| -> BTreeSet<String> {
        let lines = stock.events.iter().filter(|line| is_in(line, buffer));
        lines.map(|line| name_of(line).to_owned()).collect()
    };
    assert_eq!(of("switches"), BTreeSet::from(["sched_switch".to_owned()]));
    assert_eq!(of("calls"), BTreeSet::from(["sys_enter".to_owned(), "sys_exit".to_owned()]));
    assert_eq!(
        stock.count(|line| is_in(line, "switches") || is_in(line, "calls")),
        stock.events.len() as u64
    );
    for buffer in ["switches", "calls"] {
        assert_eq!(stock.count(|line| is_in(line, buffer)), counts(&file, buffer).stored, "{buffer}");
    }
    run(&mut agent(dir.path(), ["check", "-q", "t.dat"])).expect(0);
    let missing = run(&mut agent(dir.path(), ["report", "-B", "x", "t.dat"]));
    missing.expect(2).says(&["-B x: there is no such buffer; there are calls, switches"]);
}

#[test]
fn what_a_killed_recording_stored_is_recovered_into_its_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let args =
        [&["-P", &pid, "-o", "trace.dat", "-b", "16M"], &CALLS[..], &["-B", "same", "-b", "16M"], &CALLS];
    let recording = Marked::start(dir.path(), &args.concat());
    caller.call(30_000);
    recording.agent.signal(libc::SIGKILL);
    // It has the recorder's output open.
    recording.end_command();
    let _ = recording.agent.wait();
    let said = run(&mut agent(dir.path(), ["recover", "trace.dat.spool"])).expect(0);
    let file = dir.path().join("trace.dat");
    let stock = Report::of(&file);
    let ledger = ledger_in_info(&file);
    for buffer in ["", "same"] {
        let stored: u64 = (ledger["cpus"].as_array().unwrap().iter())
            .filter(|row| row["channel"].as_str().unwrap_or("") == buffer)
            .map(|row| row["stored"].as_u64().unwrap())
            .sum();
        let lines = stock.count(|line| is_getppid(line) && is_in(line, "same") != buffer.is_empty());
        assert_eq!(stored, lines, "{buffer:?}: {}", said.err);
    }
    // The recorder was killed: that it did not come to its end is a fault, and the only one.
    let check = run(&mut agent(dir.path(), ["check", "trace.dat"]));
    assert!(check.out.lines().all(|line| !line.contains("it counts")), "{}", check.out);
}

#[test]
fn a_rotation_closes_all_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let args = [&["-P", &pid, "-o", "d", "--rotate-size", "512K"], &CALLS[..], &["-B", "same"], &CALLS];
    let recording = Marked::start(dir.path(), &[&args.concat()[..], &["--compression", "none"]].concat());
    for _ in 0..20 {
        caller.call(10_000);
    }
    recording.finish().expect(0);
    let made = dir.path().join("d");
    let all: Vec<_> = files(&made).into_iter().map(|name| made.join(name)).collect();
    assert!(all.len() > 3, "{all:?}");
    for buffer in ["", "same"] {
        let sums = all.iter().map(|file| counts(file, buffer));
        let (fired, stored) =
            sums.fold((0, 0), |sum, counts| (sum.0 + counts.recorded + counts.lost, sum.1 + counts.stored));
        assert_eq!(fired, 200_000, "{buffer:?}");
        let lines: u64 = (all.iter())
            .map(|file| {
                Report::of(file).count(|line| is_getppid(line) && is_in(line, "same") != buffer.is_empty())
            })
            .sum();
        assert_eq!(lines, stored, "{buffer:?}");
    }
    let mut merge = agent(dir.path(), ["merge", "-o", "m.dat"]);
    run(merge.args(&all)).expect(0);
    let merged = Report::of(&dir.path().join("m.dat"));
    assert_eq!(merged.dropped, 0);
}

#[test]
fn followed_are_the_buffers_that_are_stored_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let mut args = vec!["-P", &pid, "-o", "trace.dat", "--switch-timer", "20ms"];
    args.extend(CALLS);
    args.extend(["-B", "same", "--switch-timer", "20ms"]);
    args.extend(CALLS);
    args.extend(["-B", "last", "--overwrite"]);
    args.extend(CALLS);
    let recording = Marked::start(dir.path(), &args);
    let follower = integration_tests::harness::Running::start(&mut agent(
        dir.path(),
        ["report", "--follow", "trace.dat"],
    ));
    caller.call(5000);
    recording.finish().expect(0);
    let followed = follower.wait().expect(0).says(&["buffer last has its events in memory"]);
    let count = |of: &str| followed.out.lines().filter(|line| is_in(line, of) && is_getppid(line)).count();
    let all = followed.out.lines().filter(|line| is_getppid(line)).count();
    assert_eq!((all, count("same"), count("last")), (10_000, 5000, 0));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let irq = ["-e", "irq"];
    let refused = |args: &[&str], text: &str| {
        run(agent(dir.path(), ["record"]).args(args).arg("true")).expect(2).says(&[text]);
    };
    refused(
        &[&irq[..], &["-B", "a", "-e", "irq", "-B", "a", "-e", "irq"]].concat(),
        "two -B have the same name",
    );
    refused(&["-b", "1M", "-B", "a", "-e", "irq"], "-b before the first -B");
    refused(&["-b", "1M", "-B", "a", "-b", "2M", "-e", "irq"], "-b before the first -B");
    refused(&["-e", "irq", "-B", "a"], "no event to record into buffer a");
    refused(
        &["-e", "irq", "-B", "a", "-f", "vec == 1", "-e", "irq"],
        "there is none before it in its buffer",
    );
    refused(
        &["-e", "irq", "--context", "uid", "-B", "a", "-e", "irq"],
        "is recorded into the buffer without a name",
    );
    refused(
        &["-e", "irq", "--rotate-time", "1s", "-B", "a", "--overwrite", "-e", "irq"],
        "nothing to rotate",
    );
    refused(&["-e", "irq", "-B", "", "-e", "irq"], "-B number 1 has no name");
    refused(&["-e", "irq", "-b", "1M", "-b", "2M"], "-b is given more than once");
    assert_eq!(files(dir.path()), [""; 0], "nothing is left");
}
