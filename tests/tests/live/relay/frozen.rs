//! Relay daemons that never answer again, when the daemon ends or is replaced: connections stay, and the
//! kernel takes what has room in their sockets.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, Report, is_getppid, ledger_in_info, numbers},
};
use serde_json::{Value, json};

use super::{call, calls_in, network, relayd::Relayd};

/// How long the daemon waits for an answer of each relay daemon.
const ANSWER: Duration = Duration::from_secs(10);

fn calls() -> Value {
    json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"})
}

fn track(daemon: &Daemon, name: &str, caller: &Caller) {
    let only = json!({"attribute": "pid", "values": {"only": [caller.pid().to_string()]}, "add": true});
    daemon.tell("POST", &format!("/v1/sessions/{name}/domains/kernel/trackers"), Some(&only));
}

/// Sessions that send the calls of a caller to a relay daemon, which has stored all calls by now and is
/// frozen then.
fn frozen(daemon: &Daemon, relayd: &Relayd, caller: &mut Caller, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("sends{number}")).collect();
    for name in &names {
        let mode = network(&relayd.url());
        let new = json!({"name": name, "format": "lttng", "mode": mode["mode"]});
        daemon.tell("POST", "/v1/sessions", Some(&new));
        let channels = format!("/v1/sessions/{name}/domains/kernel/channels");
        let attributes = json!({"subbuf_size": 262_144, "num_subbuf": 16});
        daemon.tell("POST", &channels, Some(&json!({"name": "channel0", "attributes": attributes})));
        daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
        track(daemon, name, caller);
        daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
    }
    call(caller, 500);
    for verb in ["stop", "start"] {
        for name in &names {
            daemon.tell("POST", &format!("/v1/sessions/{name}/{verb}"), None);
        }
    }
    relayd.signal(libc::SIGSTOP);
    names
}

/// What sessions have left here for relay daemons.
fn left(daemon: &Daemon) -> Vec<PathBuf> {
    let all = std::fs::read_dir(daemon.path().join("state-relay")).unwrap();
    all.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn all_sessions_that_wait_for_a_relay_daemon_end_together() {
    const SESSIONS: usize = 6;
    let (mut daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    frozen(&daemon, &relayd, &mut caller, SESSIONS);
    call(&mut caller, 700);
    let begun = Instant::now();
    let ended = daemon.end().expect(0);
    assert!(begun.elapsed() < ANSWER * SESSIONS as u32, "{:?}", begun.elapsed());
    let left = left(&daemon);
    assert_eq!(left.len(), SESSIONS, "{left:?}");
    for place in &left {
        assert_eq!(calls_in(place).len(), 700, "what was stored there is not in it");
        assert!(ended.err.contains(place.to_str().unwrap()), "{}", ended.err);
    }
}

#[test]
fn a_session_loses_nothing_while_others_wait_for_a_relay_daemon() {
    /// How many calls are made in a second, and in which time each part of them.
    const RATE: u64 = 10_000;
    const PART: Duration = Duration::from_millis(10);
    /// Bytes of a CPU's ring, and the most that a call takes in it.
    const RING: u64 = 4 << 20;
    const RECORD: u64 = 72;
    let mut daemon = Daemon::start_supervised();
    let relayd = Relayd::start();
    let (mut sent, mut caller) = (Caller::start(), Caller::start());
    let dir = daemon.path().join("out");
    daemon.session(ROOT, "local", &dir, &[calls()]);
    track(&daemon, "local", &caller);
    daemon.tell("POST", "/v1/sessions/local/start", None);
    let names = frozen(&daemon, &relayd, &mut sent, 3);
    call(&mut sent, 700);
    let is_over = AtomicBool::new(false);
    let (unread, count) = std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let mut next = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                caller.call(RATE / 100);
                next += PART;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            caller.calls()
        });
        daemon.let_go();
        let from = Instant::now();
        daemon.start_again();
        let unread = from.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (unread, calling.join().unwrap())
    });
    daemon.tell("POST", "/v1/sessions/local/stop", None);
    let files: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let found = Report::of(&files[0]).count(is_getppid);
    let lost: u64 = numbers(&ledger_in_info(&files[0])["cpus"].to_string(), "ring_full").iter().sum();
    assert_eq!(found + lost, count, "{lost} are counted as lost, and {found} found");
    // A machine that is busy may take longer to start a daemon than the rings suffice.
    if unread < Duration::from_secs(RING / RECORD / RATE) / 2 {
        assert_eq!(lost, 0, "of {count} calls");
    }
    let left = left(&daemon);
    let counts: Vec<usize> = left.iter().map(|place| calls_in(place).len()).collect();
    assert_eq!(counts, [700; 3], "{left:?}");
    for name in names {
        let session = daemon.tell("GET", &format!("/v1/sessions/{name}"), None);
        assert_eq!(session["active"], false, "{session}");
        let notes = session["notes"].to_string();
        let named = left.iter().filter(|place| notes.contains(place.to_str().unwrap())).count();
        assert_eq!(named, 1, "the notes say where the rest is: {notes}");
    }
    daemon.stop().expect(0);
}
