//! Flight recorders: what a snapshot has of the time around its trigger, and how often there is one.

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, wait_for},
    trace_cmd,
};
use serde_json::json;

use super::{
    calls, files, only,
    triggers::{ctl, state},
};

/// The most calls that a page of 4096 bytes has: a record takes 20 bytes at least.
const CALLS_OF_PAGE: usize = 4096 / 20;
/// How far the times of a call in two recordings may be apart, in nanoseconds, unless an interrupt comes
/// between them.
const APART: u64 = 100_000;
/// The windows of the test.
const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_secs(1);

/// The calls in a file: CPU, and time in nanoseconds since 1970.
fn times(file: &Path) -> Vec<(u32, u64)> {
    let text = trace_cmd::report(file, &["-t"]);
    let lines = text.lines().filter_map(trace_cmd::Line::parse);
    lines.filter(|line| line.event == "sys_enter").map(|line| (line.cpu, line.time)).collect()
}

/// A flight recorder of the caller's calls, which is started.
fn flight_recorder(daemon: &Daemon, dir: &Path, caller: &Caller) {
    let new = json!({"name": "flight", "mode": "snapshot", "snapshot_output": dir});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/flight/domains/kernel/channels";
    let channel = json!({"name": "channel0", "attributes": {"subbuf_size": 4096, "num_subbuf": 512}});
    daemon.tell("POST", channels, Some(&channel));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/flight/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/flight/start", None);
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn a_snapshot_has_the_time_around_its_trigger() {
    let daemon = Daemon::start();
    let (all, snapshots) = (daemon.path().join("all"), daemon.path().join("snapshots"));
    let mut caller = Caller::start();
    daemon.session(ROOT, "all", &all, &[calls()]);
    daemon.tell("POST", "/v1/sessions/all/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/all/start", None);
    flight_recorder(&daemon, &snapshots, &caller);
    let add = ["add-trigger", "--name=now", "--condition=signal", "--action=snapshot-session", "flight"];
    ctl(&daemon, ROOT, &[&add[..], &["--before=1500ms", "--after=1s"]].concat());

    caller.call(5000);
    let old = now_ns();
    std::thread::sleep(BEFORE + Duration::from_secs(1));
    caller.call(3000);
    let fired = Instant::now();
    daemon.signal(libc::SIGUSR1);
    caller.call(3000);
    let file = wait_for("the snapshot", || {
        let executed = state(&daemon, "now")["actions"][0]["executed"] == 1;
        files(&snapshots).into_iter().find(|file| executed && file.extension().is_some_and(|of| of == "dat"))
    });
    assert!(fired.elapsed() >= AFTER, "it waits for what comes after");
    // The file is there when it is complete: what is older than this is older than the window.
    let taken = now_ns();
    daemon.tell("POST", "/v1/sessions/all/stop", None);

    let (kept, every) = (times(&file), times(&files(&all)[0]));
    assert!(!kept.is_empty() && every.len() as u64 >= caller.calls());
    // Of each CPU it has, without a gap, the newest up to when it was taken.
    let of_cpu = |all: &[(u32, u64)], cpu: u32| -> Vec<u64> {
        all.iter().filter(|(of, _)| *of == cpu).map(|(_, time)| *time).collect()
    };
    let window = (BEFORE + AFTER).as_nanos() as u64;
    let cpus: std::collections::BTreeSet<u32> = every.iter().map(|(cpu, _)| *cpu).collect();
    for cpu in cpus {
        let (kept, every) = (of_cpu(&kept, cpu), of_cpu(&every, cpu));
        let Some((first, last)) = kept.first().zip(kept.last()) else {
            // A CPU of which nothing is left has nothing in the window.
            assert!(every.iter().all(|time| *time < taken - window || *time > taken), "CPU {cpu}");
            continue;
        };
        // Each recording looks at the clock itself, so that one call has two times.
        let between = every.iter().filter(|time| (first..=last).contains(time)).count();
        assert!(kept.len().abs_diff(between) <= 2, "CPU {cpu}: {} of {between} calls", kept.len());
        let before = *first - APART;
        let missing = every.iter().filter(|time| **time < before && **time >= taken - window).count();
        assert_eq!(missing, 0, "CPU {cpu}: of the window");
        let older = kept.iter().filter(|time| **time <= old).count();
        assert!(older <= CALLS_OF_PAGE, "CPU {cpu}: {older} calls from before the window");
    }
    daemon.stop().expect(0);
}

#[test]
fn a_storm_of_triggers_takes_few_snapshots() {
    let mut daemon = Daemon::start_supervised();
    let snapshots = daemon.path().join("snapshots");
    let mut caller = Caller::start();
    flight_recorder(&daemon, &snapshots, &caller);
    caller.call(100);
    let add = |name: &str, pace: &str| {
        let trigger =
            ["add-trigger", name, pace, "--condition=signal", "--action=snapshot-session", "flight"];
        ctl(&daemon, ROOT, &trigger);
    };
    add("--name=cool", "--cool-down=1h");
    add("--name=daily", "--per-day=2");
    let fire = |daemon: &Daemon, times: u64| {
        for time in 1..=times {
            let fired = state(daemon, "cool")["fired"].as_u64().unwrap();
            daemon.signal(libc::SIGUSR1);
            wait_for("the trigger", || (state(daemon, "daily")["fired"] == fired + 1).then_some(()));
            assert!(time <= times);
        }
    };
    fire(&daemon, 5);
    let counts = |daemon: &Daemon, name: &str| {
        let of = state(daemon, name);
        (of["fired"].clone(), of["held_back"].clone(), of["actions"][0]["executed"].clone())
    };
    assert_eq!(counts(&daemon, "cool"), (json!(5), json!(4), json!(1)));
    // Midnight may come once.
    let (fired, held_back, executed) = counts(&daemon, "daily");
    let (held_back, executed) = (held_back.as_u64().unwrap(), executed.as_u64().unwrap());
    assert_eq!((fired, held_back + executed), (json!(5), 5));
    assert!((2..=4).contains(&executed), "{executed}");
    // The next daemon knows when they were due.
    daemon.replace();
    fire(&daemon, 1);
    assert_eq!(counts(&daemon, "cool"), (json!(6), json!(5), json!(1)));
    daemon.stop().expect(0);
}
