//! Relay daemons that are slow, that go away and that come back.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use integration_tests::{
    babeltrace::calls_by_now,
    daemon::{Daemon, ROOT},
    harness::{Caller, wait_for},
};
use serde_json::json;

use super::{
    CHANNELS, SESSION, begin, call, calls_in, network, place,
    relayd::{Between, Relayd, tree},
};

/// The traces of all chunks in a session's directory, wherever they are.
fn chunks(session: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| {
        let all = std::fs::read_dir(dir).into_iter().flatten();
        all.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mut all = vec![session.to_owned()];
    all.extend(entries(session));
    all.extend(entries(&session.join("archives")));
    // A relay daemon that is killed before it has anything of a chunk leaves its first file, which is empty.
    let begun = |path: &PathBuf| tree(path).values().any(|bytes| !bytes.is_empty());
    all.into_iter().map(|path| path.join("kernel")).filter(|path| path.is_dir() && begun(path)).collect()
}

/// Whether the relay daemon has all calls by now.
fn has_all(relayd: &Relayd, caller: &Caller) -> bool {
    let calls = chunks(&relayd.session()).iter().map(|chunk| calls_by_now(chunk)).collect::<Option<Vec<_>>>();
    calls.is_some_and(|calls| different(calls) == caller.calls())
}

/// How many calls traces have, of which several may have the same packet. Calls of one trace are different
/// ones, although those whose clock went back have the times of the calls before them.
fn different(traces: impl IntoIterator<Item = Vec<String>>) -> u64 {
    let mut all = BTreeMap::<String, u64>::new();
    for trace in traces {
        let mut here = BTreeMap::<String, u64>::new();
        for call in trace {
            *here.entry(call).or_default() += 1;
        }
        for (call, count) in here {
            let most = all.entry(call).or_default();
            *most = count.max(*most);
        }
    }
    all.values().sum()
}

/// The same of all chunks at the relay daemon.
fn different_there(relayd: &Relayd) -> u64 {
    different(chunks(&relayd.session()).iter().map(|chunk| calls_in(chunk)))
}

/// The notes of the session.
fn notes(daemon: &Daemon) -> Vec<String> {
    let session = daemon.tell("GET", SESSION, None);
    let notes = session["notes"].as_array().into_iter().flatten();
    notes.map(|note| note.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_event_is_there_whatever_becomes_of_the_relay_daemon() {
    let daemon = Daemon::start();
    let mut relayd = Relayd::start();
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    for round in 0..5 {
        call(&mut caller, 20_000);
        relayd.kill();
        call(&mut caller, 20_000);
        relayd.again();
        call(&mut caller, 5_000);
        if round == 2 {
            let rotation = daemon.tell("POST", &format!("{SESSION}/rotations"), None);
            super::wait_for_rotation(&daemon, &rotation);
        }
    }
    wait_for("the relay daemon to be known again", || {
        let told = notes(&daemon);
        told.iter().any(|note| note.contains("is there again")).then_some(())
    });
    wait_for("everything to be sent", || {
        daemon.ask("POST", &format!("{SESSION}/stop"), None);
        daemon.ask("POST", &format!("{SESSION}/start"), None);
        has_all(&relayd, &caller).then_some(())
    });
    daemon.tell("DELETE", SESSION, None);
    assert_eq!(different_there(&relayd), caller.calls());
    assert!(chunks(&relayd.session()).len() >= 2, "{:?}", chunks(&relayd.session()));
}

#[test]
fn answers_without_sense_are_no_answers() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let between = Between::start(&relayd, Ipv4Addr::LOCALHOST.into(), 13);
    let mut caller = Caller::start();
    begin(&daemon, &network(&between.url()), &caller);
    for _ in 0..3 {
        call(&mut caller, 5_000);
        between.garble();
        call(&mut caller, 5_000);
        daemon.tell("POST", &format!("{SESSION}/stop"), None);
        daemon.tell("POST", &format!("{SESSION}/start"), None);
    }
    wait_for("everything to be sent", || {
        daemon.tell("POST", &format!("{SESSION}/stop"), None);
        daemon.tell("POST", &format!("{SESSION}/start"), None);
        has_all(&relayd, &caller).then_some(())
    });
    assert!(!notes(&daemon).is_empty(), "it is told");
    daemon.tell("DELETE", SESSION, None);
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let daemon = Daemon::start_with(&["--relay-backlog", "1M"], 0o022);
    let mut relayd = Relayd::start();
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 1_000);
    relayd.kill();
    call(&mut caller, 400_000);
    let used = || tree(&place(&daemon)).values().map(Vec::len).sum::<usize>();
    assert!(used() < 12 << 20, "{} bytes are here", used());
    relayd.again();
    wait_for("the relay daemon to be known again", || {
        notes(&daemon).iter().any(|note| note.contains("is there again")).then_some(())
    });
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    let rotation = daemon.tell("POST", &format!("{SESSION}/rotations"), None);
    super::wait_for_rotation(&daemon, &rotation);
    let told = notes(&daemon);
    let counted = told.iter().find_map(|note| {
        let (count, _) = note.split_once(" events are not in the trace: the recording's size limit")?;
        count.parse::<u64>().ok()
    });
    let session = daemon.tell("GET", SESSION, None);
    let discarded = session["domains"][0]["channels"][0]["discarded"].as_u64();
    daemon.tell("DELETE", SESSION, None);
    let there = different_there(&relayd);
    let (counted, discarded) = (counted.expect("a count of what was dropped"), discarded.expect("a count"));
    assert_eq!((there + counted, discarded), (caller.calls(), 0), "{there} are there; {told:?}");
    assert!(counted > 0 && there > 1_000);
}

/// The relay daemon keeps to sizes and counts of files; what it overwrites was sent to it.
#[test]
fn nothing_is_overwritten_before_it_is_sent() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    let limits =
        json!({"subbuf_size": 4096, "num_subbuf": 4096, "tracefile_size": 4096, "tracefile_count": 2});
    let mode = network(&relayd.url());
    let new = json!({"name": "one", "format": "lttng", "mode": mode["mode"]});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "channel0", "attributes": limits})));
    let calls =
        json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&calls));
    let only = json!({"attribute": "pid", "values": {"only": [caller.pid().to_string()]}, "add": true});
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only));
    daemon.tell("POST", &format!("{SESSION}/start"), None);
    call(&mut caller, 400_000);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    assert_eq!(notes(&daemon), [""; 0]);
    // Each stream ends with what was recorded last, in as many files as it may have.
    let streams = |of: &Path| -> BTreeMap<String, Vec<u64>> {
        let mut streams = BTreeMap::<String, Vec<u64>>::new();
        for (name, bytes) in tree(of).iter().filter(|(name, _)| name.starts_with("channel0_")) {
            let stream = name.trim_start_matches("channel0_").split('_').next().unwrap().to_owned();
            streams.entry(stream).or_default().extend(sequences(bytes));
        }
        for numbers in streams.values_mut() {
            numbers.sort_unstable();
        }
        streams
    };
    let (here, there) = (streams(&place(&daemon).join("kernel")), streams(&relayd.session().join("kernel")));
    assert!(here.keys().eq(there.keys()), "{:?} {:?}", here.keys(), there.keys());
    assert!(here.values().any(|numbers| numbers.len() > 100), "{here:?}");
    for (stream, numbers) in &there {
        let newest = here[stream].iter().rev().take(numbers.len()).rev();
        assert!(numbers.iter().eq(newest) && numbers.len() <= 2, "{stream}: {numbers:?}");
    }
    daemon.tell("DELETE", SESSION, None);
    assert_eq!(std::fs::read_dir(daemon.path().join("state-relay")).unwrap().count(), 0);
}

/// The numbers of the packets in a file (`packet_seq_num`); those whose space was given back are counted.
fn sequences(file: &[u8]) -> Vec<u64> {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (mut at, mut numbers) = (0, Vec::new());
    while at < file.len() {
        // Packets of this session have a page each. What was given back is zeros.
        numbers.push(if word(at) == 0 { numbers.len() as u64 } else { word(at + 64) });
        at += 4096;
    }
    numbers
}

/// The files of a session are its user's, who can remove them.
#[test]
fn what_cannot_be_read_here_holds_nobody_up() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 1_000);
    // All of its files are there then.
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    daemon.tell("POST", &format!("{SESSION}/start"), None);
    for index in std::fs::read_dir(place(&daemon).join("kernel/index")).unwrap() {
        std::fs::remove_file(index.unwrap().path()).unwrap();
    }
    call(&mut caller, 100_000);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    let left = place(&daemon);
    let (status, answer) = daemon.ask("DELETE", SESSION, None);
    assert_eq!((status, answer["code"].as_str()), (502, Some("relay_connect")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains(left.to_str().unwrap()), "{answer}");
    let here: u64 = std::fs::read_dir(left.join("kernel"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(here > 100_000, "the only copy of 100000 calls has {here} bytes");
    daemon.stop().expect(0);
}

#[test]
fn a_slow_relay_daemon_holds_nobody_up() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 1_000);
    relayd.signal(libc::SIGSTOP);
    let begun = Instant::now();
    let other = daemon.path().join("other");
    daemon.session(
        ROOT,
        "two",
        &other,
        &[json!({"name": "sched:sched_switch", "instrumentation": "tracepoint"})],
    );
    daemon.tell("POST", "/v1/sessions/two/start", None);
    call(&mut caller, 200_000);
    let session = daemon.tell("GET", SESSION, None);
    assert_eq!(session["domains"][0]["channels"][0]["discarded"], 0, "the rings are read");
    daemon.tell("POST", "/v1/sessions/two/stop", None);
    daemon.tell("DELETE", "/v1/sessions/two", None);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    relayd.signal(libc::SIGCONT);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    assert_eq!(different_there(&relayd), caller.calls());
    daemon.tell("DELETE", SESSION, None);
}

#[test]
fn what_cannot_be_sent_stays_here_as_a_trace() {
    let daemon = Daemon::start();
    let mut relayd = Relayd::start();
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 2_000);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    daemon.tell("POST", &format!("{SESSION}/start"), None);
    relayd.kill();
    call(&mut caller, 300);
    let stopped = daemon.ask("POST", &format!("{SESSION}/stop"), None);
    assert_eq!(stopped.0, 200, "a stop does not wait for who is not there: {}", stopped.1);
    let left = place(&daemon);
    let (status, answer) = daemon.ask("DELETE", SESSION, None);
    assert_eq!((status, answer["code"].as_str()), (502, Some("relay_connect")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains(left.to_str().unwrap()), "{answer}");
    assert_eq!(daemon.ask("GET", SESSION, None).0, 404, "it is destroyed");
    assert_eq!(calls_in(&left).len(), 300, "what was sent is not in it");
}

#[test]
fn a_session_that_sends_is_stopped_by_a_hand_over() {
    let mut daemon = Daemon::start_supervised();
    let relayd = Relayd::start();
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 100);
    let ended = daemon.let_go();
    assert!(ended.err.contains("are not handed over"), "{}", ended.err);
    daemon.start_again();
    let session = daemon.tell("GET", SESSION, None);
    assert_eq!(session["active"], false, "{session}");
    assert_eq!(calls_in(&relayd.session()).len(), 100);
    daemon.tell("POST", &format!("{SESSION}/start"), None);
    call(&mut caller, 50);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    daemon.tell("DELETE", SESSION, None);
    let all: usize = chunks(&relayd.session()).iter().map(|chunk| calls_in(chunk).len()).sum();
    assert_eq!(all, 150, "{:?}", chunks(&relayd.session()));
}
