//! Recordings that pause and go on: what the library can do.

use std::{fs::File, path::Path, time::Duration};

use capture::follow::Follower;
use capture::{Session, finish};
use integration_tests::{
    harness::{Caller, Report, agent, files, is_getppid, ledger_in_info, numbers, run, wait_for},
    session::{CALLS, add, calls, events, leave_spool, recorded, rows, spec, start, stop},
};
use plan::Plan;
use serde_json::Value;
use spec::{RotationSpec, RuleSpec, What};
use tracedat::reader::{LiveRecords as _, Reader};

/// The times of the calls in a file.
fn times(file: &Path) -> Vec<u64> {
    let reader = Reader::open(File::open(file).unwrap()).unwrap();
    let mut records = reader.records().unwrap();
    let mut times = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        times.push(record.timestamp);
    }
    times
}

/// The pauses that a ledger tells.
fn pauses(ledger: &Value) -> Vec<(u64, Option<u64>)> {
    let pauses = ledger["pauses"].as_array().map(Vec::as_slice).unwrap_or_default();
    pauses.iter().map(|of| (of["from_ns"].as_u64().unwrap(), of["to_ns"].as_u64())).collect()
}

/// Lets calls be made that nobody records.
fn pause_for(session: &mut Session, caller: &mut Caller, count: u64) {
    session.pause().unwrap();
    caller.call(count);
    session.resume().unwrap();
}

#[test]
fn what_fires_in_a_pause_is_neither_recorded_nor_lost() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![calls()], 0));
    caller.call(1000);
    pause_for(&mut session, &mut caller, 2000);
    caller.call(4000);
    pause_for(&mut session, &mut caller, 8000);
    caller.call(16_000);
    stop(session);
    let ledger = ledger_in_info(&file);
    assert_eq!((recorded(&rows(&file, CALLS)), Report::of(&file).count(is_getppid)), (21_000, 21_000));
    assert_eq!(numbers(&ledger.to_string(), "ring_full").iter().sum::<u64>(), 0);
    let pauses = pauses(&ledger);
    let [(first, Some(first_end)), (second, Some(second_end))] = pauses[..] else {
        panic!("{ledger}");
    };
    let times = times(&file);
    let between = |from, to| times.iter().filter(|time| (from..=to).contains(*time)).count();
    assert_eq!((between(0, first), between(first, first_end)), (1000, 0));
    assert_eq!((between(first_end, second), between(second, second_end)), (4000, 0));
    let covered = &ledger["covered"];
    let (from, to) = (covered["from_ns"].as_u64().unwrap(), covered["to_ns"].as_u64().unwrap());
    assert!(from < first && second_end < to, "{ledger}");
    // A pause is not among the time that was recorded.
    let recorded = ledger["duration_ns"].as_u64().unwrap();
    assert!(recorded < to - from, "{ledger}");
    run(&mut agent(dir.path(), ["check", "-q", "t.dat"])).expect(0);
    let info = run(&mut agent(dir.path(), ["info", "t.dat"])).expect(0);
    assert!(info.out.contains("paused from "), "{}", info.out);
}

#[test]
fn a_follower_has_everything_when_a_pause_begins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = spec(&file, &caller, vec![calls()], 0);
    // Nothing else brings a page that is not full to the file.
    spec.channels[0].switch_ns = 0;
    let mut session = start(&spec);
    caller.call(10);
    session.pause().unwrap();
    let mut follower = Follower::open(&file).unwrap().unwrap();
    let head = follower.head().unwrap();
    let mut seen = 0;
    wait_for("the calls", || {
        follower.poll().unwrap();
        let mut records = follower.records(head.reader().clock());
        while records.next_record().unwrap().is_some() {
            seen += 1;
        }
        (seen == 10).then_some(())
    });
    let told = follower.pauses();
    assert!(matches!(told, [pause] if pause.to_ns.is_none()), "{told:?}");
    session.resume().unwrap();
    follower.poll().unwrap();
    let told = follower.pauses();
    assert!(matches!(told, [pause] if pause.to_ns.is_some()), "{told:?}");
    drop(follower);
    stop(session);
}

#[test]
fn events_come_and_go_in_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![events("sched:sched_switch")], 4));
    session.pause().unwrap();
    add(&mut session, calls());
    caller.call(1000);
    session.resume().unwrap();
    caller.call(2000);
    session.pause().unwrap();
    session.remove("", CALLS).unwrap();
    session.resume().unwrap();
    caller.call(4000);
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 2000);
    assert_eq!(Report::of(&file).count(is_getppid), 2000);
}

#[test]
fn a_file_is_closed_in_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let mut spec = spec(&dir.path().join("d"), &caller, vec![calls()], 0);
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    let mut session = start(&spec);
    caller.call(1000);
    session.pause().unwrap();
    caller.call(2000);
    let first = finish(session.rotate().unwrap()).unwrap().path;
    caller.call(4000);
    session.resume().unwrap();
    caller.call(8000);
    session.pause().unwrap();
    let second = finish(session.rotate().unwrap()).unwrap().path;
    caller.call(16_000);
    let last = stop(session);
    let counts = [&first, &second, &last].map(|file| Report::of(file).count(is_getppid));
    assert_eq!(counts, [1000, 8000, 0]);
    let ledgers = [&first, &second, &last].map(|file| ledger_in_info(file));
    let [one, two, three] = ledgers.each_ref().map(pauses);
    assert!(matches!(one[..], [(from, None)] if ledgers[0]["covered"]["to_ns"] == from), "{}", ledgers[0]);
    assert!(matches!(two[..], [(_, None)]), "{}", ledgers[1]);
    assert!(ledgers[1]["covered"]["from_ns"].as_u64() > ledgers[0]["covered"]["to_ns"].as_u64());
    assert!(three.is_empty() && ledgers[2]["covered"].is_null(), "nothing was recorded: {}", ledgers[2]);
}

#[test]
fn a_flight_recorder_keeps_over_a_pause_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = spec(&file, &caller, vec![calls()], 0);
    spec.channels[0].overwrite = true;
    let mut session = start(&spec);
    caller.call(1000);
    session.pause().unwrap();
    caller.call(2000);
    let snapshot = finish(session.snapshot().unwrap()).unwrap().path;
    session.resume().unwrap();
    caller.call(4000);
    stop(session);
    assert_eq!([&snapshot, &file].map(|file| Report::of(file).count(is_getppid)), [1000, 5000]);
    let ledgers = [&snapshot, &file].map(|file| pauses(&ledger_in_info(file)));
    assert!(matches!(ledgers[0][..], [(_, None)]) && matches!(ledgers[1][..], [(_, Some(_))]), "{ledgers:?}");
}

#[test]
fn a_recording_that_is_killed_in_a_pause_is_recovered_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let mut session = start(&spec(&dir.path().join("t.dat"), &caller, vec![calls()], 0));
    caller.call(1000);
    pause_for(&mut session, &mut caller, 2000);
    caller.call(4000);
    session.pause().unwrap();
    leave_spool(&session, &dir.path().join("left.dat.spool"));
    stop(session);
    run(&mut agent(dir.path(), ["recover", "left.dat.spool"])).expect(0);
    let left = dir.path().join("left.dat");
    assert_eq!(Report::of(&left).count(is_getppid), 5000);
    let ledger = ledger_in_info(&left);
    assert!(matches!(pauses(&ledger)[..], [(_, Some(_)), (_, None)]), "{ledger}");
    assert_eq!(numbers(&ledger.to_string(), "at_least").iter().sum::<u64>(), 0, "{ledger}");
}

#[test]
fn a_call_that_is_made_in_a_pause_is_not_taken_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let probe = || RuleSpec::new(What::Uretprobe("parent=libc.so.6:getppid".to_owned()));
    let mut session = start(&spec(&file, &caller, vec![calls(), probe()], 0));
    for _ in 0..20 {
        caller.call(10);
        pause_for(&mut session, &mut caller, 7);
    }
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 200);
    assert_eq!(recorded(&rows(&file, "uprobes:parent")), 200);
}

#[test]
fn a_thread_that_is_named_in_a_pause_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut spec = spec(&file, &Caller::start(), vec![calls()], 0);
    spec.scope.pids.clear();
    let mut session = start(&spec);
    session.pause().unwrap();
    let mut late = Caller::named("came-late");
    late.pin(0);
    session.resume().unwrap();
    late.call(100);
    stop(session);
    assert_eq!(Report::of(&file).count(|line| is_getppid(line) && line.contains("came-late")), 100);
}

#[test]
fn an_analysis_takes_nothing_for_known_over_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![events("sched:sched_*")], 0));
    caller.call(10);
    session.pause().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    session.resume().unwrap();
    caller.call(10);
    stop(session);
    let answer = run(&mut agent(dir.path(), ["analyze", "sched", "--json", "t.dat"])).expect(0);
    let answer: Value = serde_json::from_str(&answer.out).unwrap();
    let covered = &answer["covered"];
    let (pauses, paused) = (covered["pauses"].as_u64(), covered["paused_ns"].as_u64().unwrap());
    assert!(pauses == Some(1) && paused >= 200_000_000, "{covered}");
    assert_eq!(covered["losses"], 0, "a pause is no loss: {covered}");
    let pid = u64::from(caller.pid());
    let thread = answer["threads"].as_array().unwrap().iter().find(|of| of["tid"] == pid).unwrap();
    // It slept, which nobody knows.
    let unknown = thread["unknown_ns"].as_u64().unwrap();
    let slept = thread["sleeps"]["total_ns"].as_u64().or_else(|| thread["sleep_ns"].as_u64()).unwrap();
    assert!(unknown >= 200_000_000 && slept < unknown, "{thread}");
    let text = run(&mut agent(dir.path(), ["analyze", "sched", "t.dat"])).expect(0);
    assert!(text.out.contains("paused once, "), "{}", text.out);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![calls()], 0));
    let refused = |result: Result<(), capture::PauseError>| result.unwrap_err().to_string();
    assert!(refused(session.resume()).contains("is not paused"));
    caller.call(1000);
    session.pause().unwrap();
    assert!(refused(session.pause()).contains("nothing is being recorded"));
    assert!(session.is_paused());
    caller.call(2000);
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 1000);
    assert_eq!(files(dir.path()), ["t.dat"]);
}

#[test]
fn a_recording_that_cannot_take_over_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (file, other) = (dir.path().join("t.dat"), dir.path().join("other.dat"));
    let mut caller = Caller::start();
    let mut before = start(&spec(&file, &caller, vec![calls()], 0));
    caller.call(1000);
    before.pause().unwrap();
    let next = Plan::make(&spec(&other, &caller, vec![calls()], 0)).unwrap();
    let mut next = Session::create(next.options, &mut |_, _| ()).unwrap();
    assert_eq!(next.start_after(&mut before).unwrap_err().to_string(), "nothing is being recorded");
    next.discard().unwrap();
    assert_eq!(files(dir.path()), ["t.dat.spool"]);
    before.resume().unwrap();
    caller.call(500);
    stop(before);
    assert_eq!(Report::of(&file).count(is_getppid), 1500);
}
