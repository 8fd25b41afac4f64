//! Recordings that one process after another goes on with: what the library can do.

use std::{fs::File, path::Path};

use capture::follow::Follower;
use capture::{
    Finished, HandOver, HandOverError, KeyValue, LostManifest, Refused, Session, Spool, TakeOverError,
    finish, recover,
};
use integration_tests::{
    harness::{Caller, Report, agent, files, is_getppid, ledger_in_info, numbers, run, wait_for},
    session::{CALLS, add, calls, events, recorded, rows, spec, start, stop},
};
use serde_json::Value;
use spec::Attribute;
use spec::LaneChoice;
use spec::{ChannelSpec, MapSpec, OwnRings, RotationSpec, RuleSpec, What};
use stdx::handover::Parcels;
use tracedat::reader::{LiveRecords as _, Reader};

/// Hands a recording over to this process, by way of another keeper of its descriptors.
fn pass_on(session: Session) -> Session {
    let parcels = Parcels::new().unwrap();
    session.hand_over().unwrap().send(&parcels).unwrap();
    let session = Session::take_over(HandOver::receive(&parcels).unwrap().unwrap()).unwrap();
    assert!(HandOver::receive(&parcels).unwrap().is_none());
    session
}

/// The times of the records in a file, by CPU.
fn times(file: &Path) -> std::collections::BTreeMap<u32, Vec<u64>> {
    let reader = Reader::open(File::open(file).unwrap()).unwrap();
    let mut records = reader.records().unwrap();
    let mut times: std::collections::BTreeMap<u32, Vec<u64>> = std::collections::BTreeMap::new();
    while let Some(record) = records.next_record().unwrap() {
        times.entry(record.cpu).or_default().push(record.timestamp);
    }
    times
}

/// All that a ledger counts as lost.
fn lost(ledger: &Value) -> u64 {
    ledger["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|cpu| numbers(&cpu["lost"].to_string(), "ring_full"))
        .sum()
}

#[test]
fn nothing_is_missing_of_what_fires_meanwhile() {
    const ROUNDS: u64 = 3;
    /// A ring has room for those of all rounds, however busy the machine is.
    const OF_ROUND: u64 = 140_000;
    const COUNT: u64 = ROUNDS * OF_ROUND;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![calls()], 0));
    for _ in 0..ROUNDS {
        session = std::thread::scope(|scope| {
            let calling = scope.spawn(|| caller.call(OF_ROUND));
            let session = pass_on(session);
            calling.join().unwrap();
            session
        });
    }
    stop(session);
    let ledger = ledger_in_info(&file);
    let counted = recorded(&rows(&file, CALLS));
    assert_eq!(counted + lost(&ledger), COUNT, "{ledger}");
    assert_eq!(lost(&ledger), 0, "rings of 32 MB have room for all calls: {ledger}");
    let times = times(&file);
    assert_eq!(times.values().map(Vec::len).sum::<usize>() as u64, counted);
    assert!(times.values().all(|times| times.is_sorted()));
    run(&mut agent(dir.path(), ["check", "-q", "t.dat"])).expect(0);
    assert_eq!(files(dir.path()), ["t.dat"]);
}

#[test]
fn rotations_before_and_after_have_all_events_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let mut spec = spec(&dir.path().join("d"), &caller, vec![calls()], 0);
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    let mut session = start(&spec);
    caller.call(1000);
    let mut made = vec![finish(session.rotate().unwrap()).unwrap().path];
    caller.call(2000);
    let mut session = pass_on(session);
    caller.call(4000);
    made.push(finish(session.rotate().unwrap()).unwrap().path);
    caller.call(8000);
    made.push(stop(pass_on(session)));
    let counts = made.iter().map(|file| (recorded(&rows(file, CALLS)), Report::of(file).count(is_getppid)));
    assert_eq!(counts.collect::<Vec<_>>(), [(1000, 1000), (6000, 6000), (8000, 8000)]);
    assert_eq!(files(&dir.path().join("d")).len(), 3);
}

#[test]
fn maps_beside_a_recording_go_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = spec(&file, &caller, vec![calls()], 0);
    let of_caller = format!("raw_syscalls:sys_enter: id == 110 && common_pid == {} by $tid", caller.pid());
    spec.maps = vec![MapSpec::of_events(&of_caller).unwrap(), MapSpec::of_events("sched_switch").unwrap()];
    let session = start(&spec);
    caller.call(1000);
    // Who reads them keeps them here.
    let maps = session.maps().unwrap();
    let Refused { error: HandOverError::Maps, session } = session.hand_over().unwrap_err() else {
        panic!("they are being read")
    };
    drop(maps);
    let mut session = pass_on(*session.unwrap());
    caller.call(2000);
    session.pause().unwrap();
    caller.call(4000);
    let mut session = pass_on(session);
    session.resume().unwrap();
    caller.call(8000);
    caller.settle();
    let maps = session.maps().unwrap();
    stop(session);
    let contents = maps.contents(0).unwrap();
    assert_eq!(contents.entries.len(), 1, "{contents:?}");
    assert_eq!(contents.entries[0].key, [KeyValue::Number(caller.pid().into())]);
    assert_eq!((contents.entries[0].numbers.count, recorded(&rows(&file, CALLS))), (11_000, 11_000));
    assert!(maps.contents(1).unwrap().entries[0].numbers.count > 0);
}

#[test]
fn a_flight_recorder_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = spec(&file, &caller, vec![calls()], 0);
    spec.channels[0].overwrite = true;
    let session = start(&spec);
    caller.call(1000);
    let mut session = pass_on(session);
    caller.call(2000);
    let snapshot = finish(session.snapshot().unwrap()).unwrap().path;
    assert_eq!(Report::of(&snapshot).count(is_getppid), 3000);
    let session = pass_on(session);
    caller.call(4000);
    stop(session);
    assert_eq!(Report::of(&file).count(is_getppid), 7000);
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn a_follower_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let session = start(&spec(&file, &caller, vec![calls()], 0));
    let mut follower = Follower::open(&file).unwrap().unwrap();
    let head = follower.head().unwrap();
    caller.call(1000);
    let mut session = pass_on(session);
    caller.call(2000);
    session.pause().unwrap();
    let mut seen = 0;
    wait_for("the calls", || {
        follower.poll().unwrap();
        let mut records = follower.records(head.reader().clock());
        while records.next_record().unwrap().is_some() {
            seen += 1;
        }
        (seen == 3000).then_some(())
    });
    stop(session);
}

#[test]
fn events_come_and_go_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![events("sched:sched_switch")], 6));
    add(&mut session, calls());
    caller.call(1000);
    let mut session = pass_on(session);
    caller.call(2000);
    session.remove("", CALLS).unwrap();
    caller.call(4000);
    add(&mut session, calls());
    caller.call(8000);
    let mut session = pass_on(session);
    caller.call(16_000);
    add(&mut session, events("sched:sched_waking"));
    caller.call(1);
    stop(session);
    let counts: Vec<u64> = rows(&file, CALLS).iter().map(|row| row["recorded"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3000, 24_001]);
    assert_eq!(Report::of(&file).count(is_getppid), 27_001);
    run(&mut agent(dir.path(), ["check", "-q", "t.dat"])).expect(0);
}

#[test]
fn a_pause_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![calls()], 0));
    caller.call(1000);
    session.pause().unwrap();
    let mut session = pass_on(session);
    assert!(session.is_paused());
    caller.call(2000);
    session.resume().unwrap();
    caller.call(4000);
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 5000);
    let ledger = ledger_in_info(&file);
    let pauses = ledger["pauses"].as_array().unwrap();
    assert!(matches!(pauses.as_slice(), [pause] if pause["to_ns"].is_u64()), "{ledger}");
}

#[test]
fn other_threads_are_chosen_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let (mut first, mut second) = (Caller::start(), Caller::start());
    let mut spec = spec(&file, &first, vec![calls()], 0);
    spec.scope.pids = vec![first.pid(), second.pid()];
    spec.scope.changes = true;
    let session = start(&spec);
    let mut session = pass_on(session);
    first.call(1000);
    let pids = [second.pid().to_string()];
    session.track(plan::tracking(Attribute::Pid, Some(&pids)).unwrap()).unwrap();
    let session = pass_on(session);
    first.call(4000);
    second.call(8000);
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 9000, "1000 of the first, 8000 of the second");
}

/// All that channels can have at the same time: the fast and the generic lane, contexts with a counter,
/// stacks, rings of each process, a flight recorder, a probe of a program.
#[test]
fn everything_that_a_recording_may_have_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = spec(&file, &caller, Vec::new(), 0);
    let channel = |name: &str, rules| ChannelSpec { name: name.into(), rules, ..ChannelSpec::default() };
    let perl = std::fs::read_link(format!("/proc/{}/exe", caller.pid())).unwrap();
    let library = libc_of(caller.pid());
    let probe = format!("{}:getppid", library.display());
    let probe = RuleSpec::new(What::Uprobe(probe));
    spec.channels = vec![
        ChannelSpec {
            contexts: vec!["perf:cpu:cpu-clock".parse().unwrap()],
            user_stacks: vec!["syscalls:sys_enter_getppid".parse().unwrap()],
            ..channel("", vec![events("syscalls:sys_enter_getppid")])
        },
        ChannelSpec { own_rings: Some(OwnRings::Process), ..channel("own", vec![probe]) },
        ChannelSpec { overwrite: true, ..channel("flight", vec![events("syscalls:sys_exit_getppid")]) },
        ChannelSpec { lane: LaneChoice::Generic, ..channel("generic", vec![calls()]) },
    ];
    let session = start(&spec);
    caller.call(1000);
    let session = pass_on(pass_on(session));
    caller.call(2000);
    stop(session);
    let ledger = ledger_in_info(&file);
    let recorded = |buffer: &str| {
        let rows = ledger["events"].as_array().unwrap().iter();
        let of_buffer = rows.filter(|row| row["channel"].as_str().unwrap_or_default() == buffer);
        let calls = of_buffer.filter(|row| row["event"] != "ftrace:user_stack");
        calls.map(|row| row["recorded"].as_u64().unwrap()).sum::<u64>()
    };
    let own = format!("own:pid-{}", caller.pid());
    for buffer in ["", &own, "flight", "generic"] {
        assert_eq!(recorded(buffer), 3000, "{buffer:?}: {ledger}");
    }
    run(&mut agent(dir.path(), ["check", "-q", "t.dat"])).expect(0);
    let lines = run(&mut agent(dir.path(), ["report", "t.dat"])).expect(0).out;
    // A counter counts on, and stacks have names.
    let clock = |line: &str| {
        let value = line.split_once("ctx_perf_cpu_cpu_clock=")?.1;
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let clocks: Vec<u64> = lines.lines().filter_map(clock).collect();
    assert_eq!(clocks.len(), 3000);
    assert!(clocks.is_sorted() && clocks[0] < clocks[2999], "{:?} {:?}", clocks[0], clocks[2999]);
    let stacks = lines.lines().filter(|line| line.contains("getppid+")).count();
    assert!(stacks >= 3000, "{stacks} frames, of {}", perl.display());
}

/// The C library that a process has mapped.
fn libc_of(pid: u32) -> std::path::PathBuf {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let path =
        maps.lines().find_map(|line| line.split_whitespace().last().filter(|path| path.contains("/libc.so")));
    path.unwrap().into()
}

/// Makes a file of what is in a spool that nobody locks.
fn recover_spool(spool: &Path) -> Finished {
    recover(Spool::open(spool).unwrap(), None, LostManifest::Refuse, &|| false).unwrap()
}

/// A recording of another version of the memory that programs and agent share.
fn of_other_version(session: Session, parcels: &Parcels) -> HandOver {
    session.hand_over().unwrap().send(parcels).unwrap();
    let (document, descriptors) = parcels.receive().unwrap().unwrap().remove(0);
    let mut document: Value = serde_json::from_slice(&document).unwrap();
    document["head"]["abi"] = 7.into();
    HandOver::of_part((document.to_string().into_bytes(), descriptors))
}

#[test]
fn what_another_version_has_begun_is_ended_and_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![calls()], 0));
    caller.call(1000);
    // What is in the rings cannot be read by another version.
    session.pause().unwrap();
    session.resume().unwrap();
    caller.call(1);
    let spool = session.spool_dir().to_owned();
    let other = of_other_version(session, &Parcels::new().unwrap());
    let error = Session::take_over(other).unwrap_err();
    assert!(matches!(error, TakeOverError::OtherVersion { .. }), "{error}");
    let recovered = recover_spool(&spool);
    assert_eq!(Report::of(&recovered.path).count(is_getppid), 1000);
    assert_eq!(files(dir.path()), ["t.dat"]);
}

#[test]
fn a_recording_that_nobody_goes_on_with_leaves_its_spool() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let session = start(&spec(&file, &caller, vec![calls()], 0));
    caller.call(1000);
    let spool = session.spool_dir().to_owned();
    let left = session.hand_over().unwrap();
    // Somebody has the lock all the time.
    assert!(Spool::open(&spool).is_err());
    left.give_up();
    let recovered = recover_spool(&spool);
    assert_eq!(recovered.path, file);
}
