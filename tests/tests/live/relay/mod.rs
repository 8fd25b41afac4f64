//! Sessions that send what they record to stock `lttng-relayd`.

mod frozen;
mod live;
mod lost;
mod relayd;

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use integration_tests::{
    babeltrace::calls as calls_in,
    daemon::{Daemon, ROOT, User},
    harness::{Caller, wait_for},
};
use serde_json::{Value, json};

use relayd::{Between, Relayd, assert_same, only, says, tree};

const SESSION: &str = "/v1/sessions/one";
const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";

/// Makes a session of a user that records the calls of a caller.
fn create(daemon: &Daemon, user: User, mode: &Value, caller: &Caller) {
    let mut new = json!({"name": "one", "format": "lttng"});
    for (key, value) in mode.as_object().unwrap() {
        new[key] = value.clone();
    }
    daemon.tell_as(user, "POST", "/v1/sessions", Some(&new));
    // All that any test calls has room in root's rings: what is lost is lost on the way to the relay daemon.
    let count = if user.uid == ROOT.uid { 128 } else { 16 };
    let channel = json!({"name": "channel0", "attributes": {"subbuf_size": 262_144, "num_subbuf": count}});
    daemon.tell_as(user, "POST", CHANNELS, Some(&channel));
    let calls =
        json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.tell_as(user, "POST", &format!("{CHANNELS}/channel0/rules"), Some(&calls));
    let only = json!({"attribute": "pid", "values": {"only": [caller.pid().to_string()]}, "add": true});
    daemon.tell_as(user, "POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only));
}

fn begin(daemon: &Daemon, mode: &Value, caller: &Caller) {
    create(daemon, ROOT, mode, caller);
    daemon.tell("POST", &format!("{SESSION}/start"), None);
}

fn network(url: &str) -> Value {
    json!({"mode": {"network": {"url": url}}})
}

fn call(caller: &mut Caller, count: u64) {
    caller.call(count);
    caller.settle();
}

/// The daemon's own directory of its only session that sends.
fn place(daemon: &Daemon) -> PathBuf {
    only(&daemon.path().join("state-relay"))
}

/// What is at the relay daemon, and the same here: of chunks that are not closed.
fn here(place: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut files = tree(place);
    files.retain(|name, _| !name.contains(".spool/"));
    files
}

/// Archives what was recorded. Gives the rotation when it is over.
fn rotate(daemon: &Daemon) -> Value {
    let rotation = daemon.tell("POST", &format!("{SESSION}/rotations"), None);
    wait_for_rotation(daemon, &rotation)
}

fn wait_for_rotation(daemon: &Daemon, rotation: &Value) -> Value {
    wait_for("the archive", || {
        let rotation = daemon.tell("GET", &format!("{SESSION}/rotations/{}", rotation["id"]), None);
        (rotation["state"] != "ongoing").then_some(rotation)
    })
}

#[test]
fn the_relay_daemon_has_what_a_local_session_has() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 20_000);
    // Everything is there when a stop is over.
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    let session = relayd.session();
    assert_same(&here(&place(&daemon)), &tree(&session));
    assert_eq!(calls_in(&session).len(), 20_000);
    daemon.tell("POST", &format!("{SESSION}/start"), None);
    call(&mut caller, 500);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    assert_same(&here(&place(&daemon)), &tree(&session));
    let destroyed = daemon.tell("DELETE", SESSION, None);
    assert_eq!(calls_in(&session).len(), 20_500);
    assert!(destroyed["files"][0].as_str().unwrap().starts_with(&relayd.url()), "{destroyed}");
    assert_eq!(
        std::fs::read_dir(daemon.path().join("state-relay")).unwrap().count(),
        0,
        "nothing stays here"
    );
}

#[test]
fn trace_chunks_are_archived_there_as_here() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 3_000);
    wait_for("the first packets", || (!tree(&relayd.session()).is_empty()).then_some(()));
    // The chunk stays here as long as it is not there.
    relayd.signal(libc::SIGSTOP);
    let rotation = daemon.tell("POST", &format!("{SESSION}/rotations"), None);
    let archive = wait_for("the archive here", || {
        let archives = place(&daemon).join("archives");
        let archive = std::fs::read_dir(archives).ok()?.next()?.unwrap().path();
        Some(archive)
    });
    let archived = tree(&archive);
    relayd.signal(libc::SIGCONT);
    let rotation = wait_for_rotation(&daemon, &rotation);
    assert_eq!(rotation["state"], "completed", "{rotation}");
    let there = only(&relayd.session().join("archives"));
    assert_same(&archived, &tree(&there));
    assert_eq!(there.file_name().unwrap().to_str().unwrap().rsplit_once('-').unwrap().1, "0");
    wait_for("the archive to go", || (!archive.exists()).then_some(()));
    call(&mut caller, 700);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    let open = wait_for("the open chunk", || {
        let mut all = std::fs::read_dir(relayd.session()).unwrap().map(|entry| entry.unwrap().path());
        all.find(|path| path.to_str().unwrap().ends_with("-1"))
    });
    assert_same(&here(&only_chunk(&place(&daemon))), &tree(&open));
    daemon.tell("DELETE", SESSION, None);
    assert_eq!(calls_in(&relayd.session()).len(), 3_700, "both chunks are one trace");
    assert_eq!(std::fs::read_dir(relayd.session().join("archives")).unwrap().count(), 2);
}

/// The directory of the open chunk in a session's.
fn only_chunk(session: &Path) -> PathBuf {
    let mut all = std::fs::read_dir(session).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.join("kernel").is_dir()).unwrap()
}

#[test]
fn a_clear_removes_there_what_was_recorded() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    call(&mut caller, 100);
    assert_eq!(rotate(&daemon)["state"], "completed");
    call(&mut caller, 1_000);
    daemon.tell("POST", &format!("{SESSION}/clear"), None);
    call(&mut caller, 30);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    daemon.tell("DELETE", SESSION, None);
    let archives = relayd.session().join("archives");
    let mut counts: Vec<usize> =
        std::fs::read_dir(archives).unwrap().map(|entry| calls_in(&entry.unwrap().path()).len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [30, 100], "archived chunks stay");
}

#[test]
fn who_does_not_allow_clearing_is_not_asked_to() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start_with(&["--disallow-clear"]));
    let caller = Caller::start();
    begin(&daemon, &network(&relayd.url()), &caller);
    let (status, answer) = daemon.ask("POST", &format!("{SESSION}/clear"), None);
    assert_eq!((status, answer["code"].as_str()), (409, Some("clear_disallowed_relay")), "{answer}");
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
}

#[test]
fn snapshots_are_sent_whole() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    let mode = json!({"mode": "snapshot", "snapshot_output": relayd.url()});
    begin(&daemon, &mode, &caller);
    call(&mut caller, 2_000);
    relayd.signal(libc::SIGSTOP);
    let snapshots = format!("{SESSION}/snapshots");
    let (local, taken) = std::thread::scope(|scope| {
        let taking = scope.spawn(|| daemon.tell("POST", &snapshots, Some(&json!({}))));
        let local = wait_for("the snapshot here", || {
            let places = std::fs::read_dir(daemon.path().join("state-relay")).ok()?;
            let mut all = places.flat_map(|place| std::fs::read_dir(place.unwrap().path()).unwrap());
            let snapshot = all.find_map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name()?.to_str()?;
                (name.starts_with("snapshot-1-") && !name.contains(".spool")).then_some(path)
            })?;
            // It has its whole size when the relay daemon is asked, which does not answer.
            let before = tree(&snapshot);
            std::thread::sleep(Duration::from_millis(200));
            (tree(&snapshot) == before && before.contains_key("kernel/metadata")).then_some(before)
        });
        relayd.signal(libc::SIGCONT);
        (local, taking.join().unwrap())
    });
    let there = only(&relayd.session());
    assert_same(&local, &tree(&there));
    assert!(
        taken["path"].as_str().unwrap().ends_with(there.file_name().unwrap().to_str().unwrap()),
        "{taken}"
    );
    assert_eq!(calls_in(&there).len(), 2_000);
    // To a place of its own, from a session that has one here.
    let elsewhere = json!({"name": "mine", "path": format!("{}/a/b", relayd.url())});
    let taken = daemon.tell("POST", &snapshots, Some(&elsewhere));
    assert!(taken["path"].as_str().unwrap().contains("/a/b/mine-"), "{taken}");
    daemon.tell("DELETE", SESSION, None);
    assert_eq!(std::fs::read_dir(daemon.path().join("state-relay")).unwrap().count(), 0);
}

#[test]
fn relay_daemons_of_before_2_11_have_no_chunks() {
    for minor in [4, 10] {
        let (daemon, relayd) = (Daemon::start(), Relayd::start());
        let mut caller = Caller::start();
        let between = Between::start(&relayd, Ipv4Addr::LOCALHOST.into(), minor);
        begin(&daemon, &network(&between.url()), &caller);
        call(&mut caller, 4_000);
        daemon.tell("POST", &format!("{SESSION}/stop"), None);
        let (local, there) = (here(&place(&daemon)), tree(&relayd.session()));
        if minor >= 8 {
            assert_same(&local, &there);
        } else {
            // Their indexes say less of packets.
            let data = |files: &std::collections::BTreeMap<String, Vec<u8>>| {
                let mut files = files.clone();
                files.retain(|name, _| !name.contains("/index/"));
                files
            };
            assert_same(&data(&local), &data(&there));
        }
        let (_, refused) = daemon.ask("POST", &format!("{SESSION}/rotations"), None);
        assert_eq!(refused["code"], "rotation_unavailable_relay", "{refused}");
        let (_, refused) = daemon.ask("POST", &format!("{SESSION}/clear"), None);
        assert_eq!(refused["code"], "clear_unavailable_relay", "{refused}");
        daemon.tell("DELETE", SESSION, None);
        assert_eq!(calls_in(&relayd.session()).len(), 4_000, "minor version {minor}");
    }
}

#[test]
fn relay_daemons_have_addresses_of_both_versions() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let between = Between::start(&relayd, Ipv6Addr::LOCALHOST.into(), 13);
    let mut caller = Caller::start();
    begin(&daemon, &network(&format!("{}/some/where", between.url())), &caller);
    call(&mut caller, 100);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    let destroyed = daemon.tell("DELETE", SESSION, None);
    let session = only(&relayd.session());
    assert_eq!(calls_in(&session).len(), 100);
    assert!(
        session.ends_with("some/where") && destroyed["files"][0].as_str().unwrap().ends_with("some/where")
    );
}

#[test]
fn users_send_as_themselves() {
    const USER: User = User { uid: 4242, gid: integration_tests::daemon::GID };
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    create(&daemon, USER, &network(&relayd.url()), &caller);
    daemon.tell_as(USER, "POST", &format!("{SESSION}/start"), None);
    call(&mut caller, 10);
    let uids: BTreeSet<String> = std::fs::read_to_string("/proc/net/tcp")
        .unwrap()
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(2);
            let port = fields.next()?.rsplit_once(':')?.1;
            let port = u16::from_str_radix(port, 16).ok()?;
            let uid = fields.nth(4)?;
            relayd.ports().contains(&port).then(|| uid.to_owned())
        })
        .collect();
    assert!(uids.contains("4242"), "{uids:?}");
    daemon.tell_as(USER, "POST", &format!("{SESSION}/stop"), None);
    daemon.tell_as(USER, "DELETE", SESSION, None);
    assert_eq!(std::fs::read_dir(daemon.path().join("state-relay")).unwrap().count(), 0);
    assert!(relayd.session().is_dir());
}

#[test]
fn what_is_no_relay_daemon_is_told() {
    const MANY: &[u8] = &[0xff; 4096];
    // The version, the configuration, and a session with a path that is too long for this world.
    const LONG: &[u8] = &[
        0, 0, 0, 2, 0, 0, 0, 13, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 10,
        0xff, 0xff, 0xff, 0xff, b'a',
    ];
    let daemon = Daemon::start();
    let caller = Caller::start();
    for (url, code, text) in [
        ("net://127.0.0.1:1:2".to_owned(), "relay_connect", "start `lttng-relayd` there"),
        ("net6://127.0.0.1:1:2".to_owned(), "relay_connect", "net6:// for IPv6"),
        ("net://nowhere.invalid".to_owned(), "relay_connect", "nowhere.invalid"),
        (says(MANY, false), "relay_version", "version 4294967295.4294967295"),
        (says(&[0, 0, 0, 2, 0, 0, 0, 3], false), "relay_version", "2.4 or later"),
        (says(LONG, false), "relay_connect", "a path that is longer than paths are"),
        (says(&[0, 0, 0], true), "relay_connect", "closed the connection"),
        (says(&[0, 0, 0], false), "relay_connect", "has not answered for 10 s"),
    ] {
        create(&daemon, ROOT, &network(&url), &caller);
        let begun = Instant::now();
        let (status, answer) = daemon.ask("POST", &format!("{SESSION}/start"), None);
        assert!(begun.elapsed() < Duration::from_secs(40), "{url}");
        let message = answer["message"].as_str().unwrap();
        assert_eq!((status, answer["code"].as_str()), (502, Some(code)), "{url}: {answer}");
        assert!(message.contains(text), "{url}: {message}");
        daemon.tell("DELETE", SESSION, None);
    }
    assert_eq!(std::fs::read_dir(daemon.path().join("state-relay")).unwrap().count(), 0);
    for wrong in ["net://", "http://a", "net://h/../x", "net://h:1:2:3"] {
        let new = json!({"name": "one", "format": "lttng", "mode": {"network": {"url": wrong}}});
        let (status, answer) = daemon.ask("POST", "/v1/sessions", Some(&new));
        assert_eq!((status, answer["code"].as_str()), (422, Some("invalid")), "{wrong}: {answer}");
    }
    let new = json!({"name": "one", "mode": {"network": {"url": "net://h"}}});
    let (_, answer) = daemon.ask("POST", "/v1/sessions", Some(&new));
    assert!(answer["message"].as_str().unwrap().contains("LTTng's format"), "{answer}");
}
