//! Daemons that go on with the sessions of those before them, while these record.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use integration_tests::{
    daemon::{Daemon, ROOT, User},
    harness::{Caller, Report, agent, is_getppid, ledger_in_info, numbers, program, run, tid_of, wait_for},
};
use serde_json::{Value, json};

use super::{calls, files, found, notes, only, traces, users::ALICE};

/// Starts a session named `one` that records the calls of a caller.
fn start(daemon: &Daemon, user: User, dir: &std::path::Path, caller: &Caller) {
    daemon.session(user, "one", dir, &[calls()]);
    let trackers = "/v1/sessions/one/domains/kernel/trackers";
    daemon.tell_as(user, "POST", trackers, Some(&only(caller.pid())));
    daemon.tell_as(user, "POST", "/v1/sessions/one/start", None);
}

/// What ledgers count as lost.
fn lost(files: &[std::path::PathBuf]) -> u64 {
    let of = |file: &std::path::PathBuf| {
        numbers(&ledger_in_info(file)["cpus"].to_string(), "ring_full").iter().sum::<u64>()
    };
    files.iter().map(of).sum()
}

/// How many calls are made in a second where nothing may be lost.
const CALLS_A_SECOND: u64 = 200_000;
/// Bytes of a CPU's ring by default, and the most that a call takes in it.
const RING: u64 = 4 << 20;
const RECORD: u64 = 72;

#[test]
fn what_fires_while_a_daemon_is_replaced_is_recorded() {
    replaced(3, Some(CALLS_A_SECOND));
}

#[test]
fn what_the_rings_have_no_room_for_is_counted() {
    replaced(3, None);
}

mod soak {
    use super::*;

    #[test]
    fn daemons_are_replaced_many_times() {
        let times = integration_tests::soak() as u64;
        replaced(5 * times.max(1), Some(CALLS_A_SECOND));
    }

    #[test]
    fn a_trace_goes_on_over_many_daemons() {
        let mut daemon = Daemon::start_supervised();
        let dir = daemon.path().join("out");
        let mut caller = Caller::start();
        traces::begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
        let times = 3 * integration_tests::soak() as u64;
        for time in 0..times {
            caller.call(1000);
            daemon.replace();
            caller.call(1000);
            if time % 3 == 2 {
                daemon.tell("POST", "/v1/sessions/one/rotations", None);
            }
        }
        caller.settle();
        daemon.tell("DELETE", "/v1/sessions/one", None);
        assert_eq!((traces::found(&dir), uuids(&dir).len()), (2000 * times, 1));
        daemon.stop().expect(0);
    }
}

/// Replaces a daemon so often, while calls are made: so many a second, of which none may be lost, or as many
/// as possible.
fn replaced(times: u64, rate: Option<u64>) {
    /// In which time each part of the calls of a second is made.
    const PART: Duration = Duration::from_millis(10);
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.directory_of(ALICE, "out");
    let mut caller = Caller::start();
    start(&daemon, ALICE, &dir, &caller);
    assert_eq!(daemon.supervisor().kept(), 2);
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let calling = std::thread::spawn(move || {
        let (mut next, start) = (Instant::now(), caller.calls());
        while !until.load(Ordering::Relaxed) {
            caller.call(rate.map_or(50_000, |rate| rate / 100));
            next += PART;
            if rate.is_some() {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        caller.calls() - start
    });
    let mut longest = Duration::ZERO;
    for _ in 0..times {
        std::thread::sleep(Duration::from_millis(300));
        let from = Instant::now();
        daemon.replace();
        daemon.tell("GET", "/v1/sessions", None);
        longest = longest.max(from.elapsed());
    }
    is_over.store(true, Ordering::Relaxed);
    let count = calling.join().unwrap();
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/stop", None);
    let made = files(&dir);
    assert_eq!(made.len(), 1, "{made:?}");
    let (found, lost) = (found(&made), lost(&made));
    assert_eq!(found + lost, count, "{lost} are counted as lost, and {found} found");
    // A machine that is busy may take longer than the rings suffice.
    let room = Duration::from_secs(RING / RECORD).div_f64(rate.map_or(f64::INFINITY, |rate| rate as f64));
    if longest < room / 2 {
        assert_eq!(lost, 0, "of {count} calls");
    }
    run(agent(&dir, ["check", "-q"]).arg(&made[0])).expect(0);
    daemon.tell_as(ALICE, "DELETE", "/v1/sessions/one", None);
    assert!(notes(&daemon).is_empty());
    daemon.stop().expect(0);
}

#[test]
fn a_session_is_the_same_with_the_next_daemon() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    start(&daemon, ROOT, &dir, &caller);
    caller.call(1000);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    daemon.tell(
        "POST",
        "/v1/sessions",
        Some(&json!({"name": "two", "mode": {"local": {"output": "/nowhere"}}})),
    );
    let before = daemon.tell("GET", "/v1/sessions", None);
    daemon.replace();
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), before);
    caller.call(2000);
    // It changes as before: another rule, another channel, a rotation.
    let rules = "/v1/sessions/one/domains/kernel/channels/channel0/rules";
    daemon.tell("POST", rules, Some(&json!({"name": "sched_switch", "instrumentation": "tracepoint"})));
    caller.call(4000);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    daemon.replace();
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "more"})));
    daemon.tell(
        "POST",
        &format!("{channels}/more/rules"),
        Some(&json!({"name": "sched_waking", "instrumentation": "tracepoint"})),
    );
    caller.call(8000);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    daemon.replace();
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(16_000);
    let destroyed = daemon.tell("DELETE", "/v1/sessions/one", None);
    let files = files(&dir);
    assert_eq!(destroyed["files"].as_array().unwrap().len(), files.len(), "{destroyed} {files:?}");
    let counts: Vec<u64> = files.iter().map(|file| Report::of(file).count(is_getppid)).collect();
    assert_eq!(counts.iter().sum::<u64>(), 31_000, "{counts:?}");
    assert_eq!(counts.first(), Some(&1000));
    daemon.stop().expect(0);
}

#[test]
fn a_snapshot_has_what_fired_before() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "mode": "snapshot", "snapshot_output": dir});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "channel0"})));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(1000);
    daemon.replace();
    caller.call(2000);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    daemon.replace();
    let taken = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
    assert_eq!(taken["events"], 3000, "{taken}");
    daemon.stop().expect(0);
}

#[test]
fn a_daemon_for_which_nothing_is_kept_goes_on_itself() {
    let mut daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    start(&daemon, ROOT, &dir, &caller);
    daemon.signal(libc::SIGUSR2);
    wait_for("its answer", || daemon.has_said("cannot be handed over").then_some(()));
    caller.call(1000);
    daemon.end().expect(0);
    assert_eq!(found(&files(&dir)), 1000);
}

#[test]
fn what_no_daemon_goes_on_with_is_recovered() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    start(&daemon, ROOT, &dir, &caller);
    caller.call(1000);
    // More than the time after which what is in the rings is stored.
    std::thread::sleep(Duration::from_millis(2500));
    daemon.let_go();
    // The service is stopped before there is another daemon.
    daemon.supervisor().forget();
    daemon.start_again();
    wait_for("the file", || {
        files(&dir).iter().any(|file| file.extension().is_some_and(|name| name == "dat")).then_some(())
    });
    wait_for("the end of the recovery", || notes(&daemon).is_empty().then_some(()));
    // What is in the rings is lost, and the file says so.
    let made = files(&dir);
    let missing = numbers(&ledger_in_info(&made[0])["cpus"].to_string(), "at_least").iter().sum::<u64>();
    assert_eq!((found(&made) + missing, made.len()), (1000, 1));
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), json!([]));
    daemon.stop().expect(0);
}

#[test]
fn a_daemon_that_is_killed_or_stopped_after_it_leaves_what_any_leaves() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    start(&daemon, ROOT, &dir, &caller);
    caller.call(1000);
    daemon.replace();
    daemon.kill();
    daemon.start_again();
    wait_for("the end of the recovery", || notes(&daemon).is_empty().then_some(()));
    let recovered = files(&dir);
    assert!(recovered.iter().all(|file| file.extension().is_some_and(|name| name == "dat")), "{recovered:?}");
    let dir = daemon.path().join("other");
    start(&daemon, ROOT, &dir, &caller);
    caller.call(2000);
    daemon.replace();
    daemon.end().expect(0);
    assert_eq!(found(&files(&dir)), 2000);
}

/// The UUIDs of the metadata below a directory.
fn uuids(dir: &std::path::Path) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for path in files(dir) {
        if path.is_dir() {
            found.append(&mut uuids(&path));
        } else if path.ends_with("metadata") {
            found.insert(std::fs::read(path).unwrap()[4..20].to_vec());
        }
    }
    found
}

#[test]
fn a_trace_goes_on_with_the_next_daemon() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    traces::begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    caller.call(1000);
    caller.settle();
    // Some of it is written when the daemon ends.
    std::thread::sleep(Duration::from_millis(500));
    daemon.replace();
    caller.call(2000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(traces::found(&dir), 3000);
    let begun = uuids(&dir);
    let written = || std::fs::metadata(dir.join("kernel/metadata")).and_then(|file| file.modified()).ok();
    let before = written();
    daemon.replace();
    // The next daemon writes the chunk again that is not closed yet: until it has begun to, the one of before
    // is there.
    wait_for("the trace of a session that is stopped", || {
        written().filter(|time| Some(*time) != before).map(|_| ())
    });
    traces::wait_for_calls(&dir, 3000);
    assert_eq!(traces::found(&dir), 3000, "without a warning");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(400);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    caller.call(800);
    daemon.replace();
    caller.call(1600);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    daemon.replace();
    caller.call(500);
    caller.settle();
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let archives = files(&dir.join("archives"));
    let counts: Vec<u64> = archives.iter().map(|archive| traces::found(archive)).collect();
    assert_eq!(counts, [3400, 2400, 500], "{archives:?}");
    assert_eq!(files(&dir), [dir.join("archives")]);
    // All chunks are one trace, whose packets are counted over them.
    assert_eq!((traces::found(&dir), uuids(&dir)), (6300, begun));
    daemon.stop().expect(0);
}

#[test]
fn a_trace_is_finished_by_the_daemon_after_one_that_was_killed() {
    let mut daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    traces::begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    caller.call(700);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    caller.call(2000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(traces::found(&dir), 2700);
    let begun = uuids(&dir);
    daemon.kill();
    daemon.start_again();
    wait_for_recovery(&daemon);
    assert_eq!((traces::found(&dir), uuids(&dir)), (2700, begun));
    assert_eq!(files(&dir), [dir.join("archives")]);
    daemon.stop().expect(0);
}

/// The programs that a process has in the kernel, by their ids.
fn programs_of(pid: u32) -> BTreeSet<u32> {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = infos.filter_map(|info| std::fs::read_to_string(info.ok()?.path()).ok());
    let id = |text: String| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
    texts.filter_map(id).collect()
}

fn is_program(id: u32) -> bool {
    let show = run(program("/".as_ref(), "bpftool", ["prog", "show", "id"]).arg(id.to_string()));
    show.status.success()
}

/// Waits until none of the programs is in the kernel any more.
fn wait_for_end_of(programs: &BTreeSet<u32>) {
    assert!(!programs.is_empty());
    for &id in programs {
        wait_for("the end of a program", || (!is_program(id)).then_some(()));
    }
}

/// Waits until what was recorded is recovered.
fn wait_for_recovery(daemon: &Daemon) {
    wait_for("the end of the recovery", || notes(daemon).is_empty().then_some(()));
}

#[test]
fn nothing_stays_in_the_kernel_of_what_no_daemon_goes_on_with() {
    let mut daemon = Daemon::start_supervised();
    let caller = Caller::start();
    start(&daemon, ROOT, &daemon.path().join("out"), &caller);
    let programs = programs_of(daemon.pid());
    daemon.let_go();
    // Without those that the daemon runs itself.
    assert!(programs.iter().any(|id| is_program(*id)));
    daemon.supervisor().forget();
    wait_for_end_of(&programs);
    daemon.start_again();
    daemon.stop().expect(0);
}

#[test]
fn another_version_ends_sessions_and_recovers_them() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    start(&daemon, ROOT, &dir, &caller);
    caller.call(5000);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    let programs = programs_of(daemon.pid());
    daemon.let_go();
    // As the daemon of a version with another layout of the rings has it.
    let parcels = daemon.supervisor().parcels();
    let mut all = parcels.receive().unwrap().unwrap();
    assert_eq!(all.len(), 3, "the head, the session, its recording");
    let mut recording: Value = serde_json::from_slice(&all[2].0).unwrap();
    recording["head"]["abi"] = 7.into();
    all[2].0 = recording.to_string().into_bytes();
    let parts: Vec<_> =
        all.iter().map(|(document, descriptors)| (document.as_slice(), descriptors)).collect();
    parcels.send(&parts).unwrap();
    // Nobody but the next daemon has them.
    drop(parts);
    drop((all, parcels));
    daemon.start_again();
    wait_for_recovery(&daemon);
    assert!(daemon.has_said("handed over by a version"));
    wait_for_end_of(&programs);
    let made = files(&dir);
    assert!(made.iter().all(|file| file.extension().is_some_and(|name| name == "dat")), "{made:?}");
    assert_eq!((found(&made), made.len()), (5000, 2));
    // The session is there, and can be started.
    assert_eq!(daemon.tell("GET", "/v1/sessions", None)[0]["active"], false);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(100);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(found(&files(&dir)), 5100);
    daemon.stop().expect(0);
}

#[test]
fn a_daemon_may_be_killed_at_any_moment_of_it() {
    for delay in [0, 2, 5, 10, 20, 40] {
        let mut daemon = Daemon::start_supervised();
        let dir = daemon.path().join("out");
        let mut caller = Caller::start();
        start(&daemon, ROOT, &dir, &caller);
        caller.call(10_000);
        let programs = programs_of(daemon.pid());
        daemon.signal(libc::SIGUSR2);
        std::thread::sleep(Duration::from_millis(delay));
        daemon.kill();
        daemon.start_again();
        // It goes on, or what was stored is recovered.
        let goes_on = daemon.tell("GET", "/v1/sessions", None).as_array().is_some_and(|all| !all.is_empty());
        if goes_on {
            daemon.tell("DELETE", "/v1/sessions/one", None);
        }
        wait_for_recovery(&daemon);
        wait_for_end_of(&programs);
        let made = files(&dir);
        assert!(
            made.iter().all(|file| file.extension().is_some_and(|name| name == "dat")),
            "{delay}: {made:?}"
        );
        assert!(!goes_on || found(&made) == 10_000, "{delay}: {}", found(&made));
        daemon.stop().expect(0);
    }
}

/// The time of an event line, in seconds.
fn time_of(line: &str) -> f64 {
    line.split_once("] ").unwrap().1.trim().split(':').next().unwrap().parse().unwrap()
}

#[test]
fn the_next_daemon_does_not_record_itself() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let all = json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint"});
    daemon.session(ROOT, "one", &dir, &[all]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.replace();
    // What it does before it serves is recorded, as what any process does.
    daemon.tell("GET", "/v1/sessions", None);
    let replaced = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let mut caller = Caller::start();
    caller.call(100);
    std::thread::sleep(Duration::from_secs(2));
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let threads: BTreeSet<u32> =
        threads.map(|thread| thread.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let report = Report::of(&files(&dir)[0]);
    assert!(report.tids().contains(&caller.pid()));
    let is_own = |line: &&String| threads.contains(&tid_of(line)) && time_of(line) > replaced;
    let own: Vec<&String> = report.events.iter().filter(is_own).collect();
    assert!(own.is_empty(), "{} events, the first {:?}", own.len(), own.first());
    daemon.stop().expect(0);
}

#[test]
fn a_snapshot_of_a_trace_has_what_fired_before() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    traces::begin(&daemon, &json!({"mode": "snapshot", "snapshot_output": dir}), &caller);
    caller.call(200);
    daemon.replace();
    caller.call(100);
    caller.settle();
    let take = |daemon: &Daemon| {
        let taken = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
        std::path::PathBuf::from(taken["path"].as_str().unwrap())
    };
    let first = take(&daemon);
    daemon.replace();
    let second = take(&daemon);
    assert_eq!((traces::found(&first), traces::found(&second)), (300, 300));
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(files(&dir), [first, second]);
    daemon.stop().expect(0);
}

#[test]
fn rotations_come_as_they_are_scheduled() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    start(&daemon, ROOT, &dir, &caller);
    daemon.tell("POST", "/v1/sessions/one/schedules", Some(&json!({"period_us": 200_000})));
    for turn in 1..=3 {
        daemon.replace();
        caller.call(1000 * turn);
        let before = files(&dir).len();
        wait_for("rotations", || (files(&dir).len() > before + 1).then_some(()));
    }
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let made = files(&dir);
    assert_eq!(found(&made), 6000, "{made:?}");
    daemon.stop().expect(0);
}
