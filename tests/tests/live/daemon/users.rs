//! Sessions of several users.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
};

use integration_tests::{
    daemon::{Daemon, GID, GROUP, ROOT, User},
    harness::{Running, agent, wait_for},
};
use serde_json::json;

use super::{calls, files, notes};

pub(super) const ALICE: User = User { uid: 54_321, gid: GID };
pub(super) const BOB: User = User { uid: 54_322, gid: GID };
const MALLORY: User = User { uid: 54_323, gid: 54_323 };

#[test]
fn sessions_are_private_and_files_belong_to_their_users() {
    let daemon = Daemon::start();
    for (user, name) in [(ALICE, "alice"), (BOB, "bob")] {
        let dir = daemon.directory_of(user, name).join("traces/first");
        daemon.session(user, "mine", &dir, &[calls()]);
        daemon.tell_as(user, "POST", "/v1/sessions/mine/start", None);
    }
    let names = |user: User| {
        let all = daemon.tell_as(user, "GET", "/v1/sessions", None);
        let of = |session: &serde_json::Value| session["uid"].as_u64().unwrap();
        all.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!((names(ALICE), names(BOB)), (vec![54_321], vec![54_322]));
    assert_eq!(names(ROOT), [54_321, 54_322]);
    let of_bob = daemon.ask_as(ALICE, "POST", "/v1/sessions/mine/stop?uid=54322", None);
    assert_eq!((of_bob.0, &of_bob.1["code"]), (403, &json!("permission")));
    daemon.tell("POST", "/v1/sessions/mine/stop?uid=54322", None);
    let bobs = daemon.tell_as(BOB, "GET", "/v1/sessions/mine", None);
    assert_eq!(bobs["active"], false, "root may");
    assert_eq!(daemon.tell_as(ALICE, "GET", "/v1/sessions/mine", None)["active"], true);
    daemon.tell_as(ALICE, "DELETE", "/v1/sessions/mine", None);
    for (user, name) in [(ALICE, "alice"), (BOB, "bob")] {
        let dir = daemon.path().join(name).join("traces/first");
        for file in files(&dir).iter().chain([&dir]) {
            let there = fs::metadata(file).unwrap();
            assert_eq!((there.uid(), there.gid()), (user.uid, user.gid), "{}", file.display());
        }
        assert_eq!(files(&dir).len(), 1);
    }
}

#[test]
fn others_are_refused() {
    let daemon = Daemon::start();
    assert_eq!(daemon.ask_as(MALLORY, "GET", "/v1/sessions", None).0, 0, "the socket is not for everyone");
    fs::set_permissions(daemon.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    for (method, path) in [("GET", "/v1/sessions"), ("GET", "/v1/openapi.json"), ("POST", "/v1/sessions")] {
        let (status, answer) = daemon.ask_as(MALLORY, method, path, None);
        assert_eq!((status, &answer["code"]), (403, &json!("permission")));
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("group games") && message.contains("usermod"), "{message}");
    }
    assert_eq!(daemon.ask_as(ALICE, "GET", "/v1/sessions", None).0, 200);
}

#[test]
fn no_path_of_a_user_is_followed_with_the_rights_of_root() {
    let daemon = Daemon::start();
    let home = daemon.directory_of(ALICE, "home");
    let of_root = daemon.directory_of(ROOT, "root");
    symlink(&of_root, home.join("link")).unwrap();
    let secret = of_root.join("secret");
    fs::write(&secret, "not hers").unwrap();
    for (name, output) in [
        ("direct", of_root.clone()),
        ("below", of_root.join("new")),
        ("link", home.join("link")),
        ("through", home.join("link/new")),
        ("etc", "/etc/tracer-agent-test".into()),
    ] {
        daemon.session(ALICE, name, &output, &[calls()]);
        let (status, answer) = daemon.ask_as(ALICE, "POST", &format!("/v1/sessions/{name}/start"), None);
        assert!(status >= 400, "{name}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("Permission denied"), "{name}: {answer}");
    }
    assert_eq!(files(&of_root), [secret]);
    let dots = json!({"name": "dots", "mode": {"local": {"output": home.join("../root")}}});
    assert_eq!(daemon.ask_as(ALICE, "POST", "/v1/sessions", Some(&dots)).0, 422);
    // What she may do, she may do through a link, too.
    fs::create_dir(home.join("real")).unwrap();
    std::os::unix::fs::chown(home.join("real"), Some(ALICE.uid), Some(ALICE.gid)).unwrap();
    symlink("real", home.join("own")).unwrap();
    daemon.session(ALICE, "own", &home.join("own"), &[calls()]);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/own/start", None);
    daemon.tell_as(ALICE, "DELETE", "/v1/sessions/own", None);
    assert_eq!(files(&home.join("real")).len(), 1);
}

#[test]
fn a_link_that_comes_while_a_session_records_is_not_followed() {
    let daemon = Daemon::start();
    let home = daemon.directory_of(ALICE, "home");
    let of_root = daemon.directory_of(ROOT, "root");
    let dir = home.join("out");
    daemon.session(ALICE, "one", &dir, &[calls()]);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/start", None);
    fs::rename(&dir, home.join("away")).unwrap();
    symlink(&of_root, &dir).unwrap();
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/rotations", None);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/stop", None);
    assert_eq!(files(&of_root), [""; 0].map(PathBuf::from));
    assert_eq!(files(&home.join("away")).len(), 2, "the directory that was opened has them");
}

/// A directory, and all directories and files below it.
fn all_below(dir: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let (mut all, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = open.pop() {
        let there = match fs::symlink_metadata(&path) {
            Ok(there) => there,
            // A recorder renames its files.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        if there.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.push((path, there));
    }
    all
}

#[test]
fn files_of_sessions_are_read_by_their_owners_and_a_group_that_is_named() {
    let read_group = ["--read-group", GROUP];
    for (options, group) in [(&[][..], None), (&read_group[..], Some(GID))] {
        let daemon = Daemon::start_with(options, 0);
        for (user, name) in [(ROOT, "root"), (ALICE, "alice")] {
            let home = daemon.directory_of(user, name);
            for format in ["trace_dat", "lttng"] {
                let (session, dir) = (format!("of-{}", format.len()), home.join(format));
                let new = json!({"name": session, "mode": {"local": {"output": dir}}, "format": format});
                daemon.tell_as(user, "POST", "/v1/sessions", Some(&new));
                let channels = format!("/v1/sessions/{session}/domains/kernel/channels");
                daemon.tell_as(user, "POST", &channels, Some(&json!({"name": "c"})));
                daemon.tell_as(user, "POST", &format!("{channels}/c/rules"), Some(&calls()));
                for action in ["start", "rotations", "stop"] {
                    let path = format!("/v1/sessions/{session}/{action}");
                    daemon.tell_as(user, "POST", &path, None);
                    // What is in a spool is behind its directory.
                    let is_behind = |path: &Path| {
                        path.parent().is_some_and(|parent| parent.to_string_lossy().contains(".spool"))
                    };
                    // A file is private until its group is set, and the recorder creates files meanwhile.
                    wait_for("the modes of all files", || {
                        for (path, there) in all_below(&dir) {
                            let is_spool = path.to_string_lossy().ends_with(".spool");
                            let readers = group.filter(|_| !is_spool);
                            let bits = match (there.is_dir(), readers) {
                                (true, None) => 0o700,
                                (true, Some(_)) => 0o750,
                                (false, None) => 0o600,
                                (false, Some(_)) => 0o640,
                            };
                            let found = (there.uid(), there.gid(), there.mode() & 0o777);
                            let wanted = (user.uid, readers.unwrap_or(there.gid()), bits);
                            if found == wanted || is_behind(&path) {
                                continue;
                            }
                            let is_private = found.0 == user.uid && found.2 & !0o700 == 0;
                            assert!(is_private, "{} {action}: {found:?}", path.display());
                            return None;
                        }
                        Some(())
                    });
                }
            }
        }
        let state = fs::metadata(daemon.path().join("state")).unwrap();
        assert_eq!(state.mode() & 0o777, 0o700);
    }
}

#[test]
fn a_network_session_of_a_user_opens_nothing_of_others() {
    let daemon = Daemon::start();
    // Nobody listens there, so that all waits here.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("tcp://127.0.0.1:{port}");
    let new = json!({"name": "one", "mode": {"network": {"url": url}}, "format": "lttng"});
    daemon.tell_as(ALICE, "POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell_as(ALICE, "POST", channels, Some(&json!({"name": "c"})));
    daemon.tell_as(ALICE, "POST", &format!("{channels}/c/rules"), Some(&calls()));
    let (_, answer) = daemon.ask_as(ALICE, "POST", "/v1/sessions/one/start", None);
    let mode = |name: &str| fs::metadata(daemon.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("state"), mode("state-relay")), (0o700, 0o711), "{answer}");
    for (path, there) in all_below(&daemon.path().join("state-relay")).split_off(1) {
        assert_eq!((there.uid(), there.mode() & 0o077), (ALICE.uid, 0), "{}", path.display());
    }
}

#[test]
fn a_second_daemon_leaves_the_state_of_the_first_one_alone() {
    let mut daemon = Daemon::start();
    let dir = daemon.directory_of(ALICE, "alice").join("out");
    daemon.session(ALICE, "one", &dir, &[calls()]);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/start", None);
    assert_eq!(notes(&daemon).len(), 1);
    let mut second = agent(daemon.path(), ["daemon", "--group", GROUP]);
    second
        .arg("--socket")
        .arg(daemon.path().join("other.sock"))
        .arg("--state")
        .arg(daemon.path().join("state"));
    assert_eq!(Running::start(&mut second).wait().code(), 2);
    assert_eq!(notes(&daemon).len(), 1);
    daemon.kill();
    daemon.start_again();
    wait_for("the recovered file", || {
        files(&dir).iter().any(|file| file.extension().is_some()).then_some(())
    });
}

#[test]
fn what_is_made_for_users_can_be_changed_by_nobody_else() {
    let daemon = Daemon::start_with(&[], 0);
    let home = daemon.directory_of(ALICE, "home");
    daemon.session(ALICE, "one", &home.join("traces/first"), &[calls()]);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/start", None);
    let check = || {
        let mut all = vec![home.join("traces")];
        while let Some(path) = all.pop() {
            let there = fs::symlink_metadata(&path).unwrap();
            assert_eq!((there.uid(), there.mode() & 0o022), (ALICE.uid, 0), "{}", path.display());
            if there.is_dir() {
                all.extend(files(&path));
            }
        }
    };
    check();
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/stop", None);
    check();
    let snapshots = home.join("traces/snapshots");
    let new = json!({"name": "two", "mode": "snapshot", "snapshot_output": snapshots});
    daemon.tell_as(ALICE, "POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/two/domains/kernel/channels";
    daemon.tell_as(ALICE, "POST", channels, Some(&json!({"name": "c"})));
    daemon.tell_as(ALICE, "POST", &format!("{channels}/c/rules"), Some(&calls()));
    daemon.tell_as(ALICE, "POST", "/v1/sessions/two/start", None);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/two/snapshots", Some(&json!({})));
    check();
}

#[test]
fn the_memory_of_a_users_rings_is_limited() {
    let cpus = kernel::cpus::Cpus::read().unwrap().online.iter().count();
    let of_channel = 128 * cpus;
    let daemon = Daemon::start_with(&["--user-memory", &format!("{}K", 2 * of_channel)], 0o022);
    let channels = |session: &str| format!("/v1/sessions/{session}/domains/kernel/channels");
    for user in [ALICE, BOB, ROOT] {
        for name in ["one", "two"] {
            let dir = daemon.path().join(name);
            let new = json!({"name": name, "mode": {"local": {"output": dir}}});
            daemon.tell_as(user, "POST", "/v1/sessions", Some(&new));
        }
    }
    let add = |user: User, session: &str, name: &str| {
        // The sizes are rounded up.
        let attributes = json!({"subbuf_size": 33_000, "num_subbuf": 2});
        let channel = json!({"name": name, "attributes": attributes});
        daemon.ask_as(user, "POST", &channels(session), Some(&channel))
    };
    let refused = |(status, answer): (u16, serde_json::Value)| {
        let message = answer["message"].as_str().unwrap().to_owned();
        assert_eq!((status, &answer["code"]), (507, &json!("no_memory")), "{message}");
        assert!(message.contains("user 54321") && message.contains("--user-memory"), "{message}");
    };
    assert_eq!((add(ALICE, "one", "a").0, add(ALICE, "two", "b").0), (200, 200));
    refused(add(ALICE, "one", "c"));
    // Nothing has changed.
    let session = daemon.tell_as(ALICE, "GET", "/v1/sessions/one", None);
    assert_eq!(session["domains"][0]["channels"].as_array().unwrap().len(), 1, "{session}");
    for (user, count) in [(BOB, 2), (ROOT, 5)] {
        for number in 0..count {
            assert_eq!(add(user, "one", &format!("c{number}")).0, 200);
        }
    }
    daemon.tell_as(ALICE, "DELETE", "/v1/sessions/two", None);
    assert_eq!(add(ALICE, "one", "c").0, 200);
    refused(add(ALICE, "one", "d"));
}

#[test]
fn the_descriptors_of_a_users_recordings_are_limited() {
    let cpus = kernel::cpus::Cpus::read().unwrap().online.iter().count();
    // One session with a channel of some events.
    let limit = 80 + 6 * cpus;
    let daemon = Daemon::start_with(&["--user-descriptors", &limit.to_string()], 0o022);
    let session = |user: User, name: &str| {
        let dir = daemon.directory_of(user, &format!("{name}-{}", user.uid));
        daemon.session(user, name, &dir, &[calls()]);
    };
    let start =
        |user: User, name: &str| daemon.ask_as(user, "POST", &format!("/v1/sessions/{name}/start"), None);
    let refused = |(status, answer): (u16, serde_json::Value)| {
        let message = answer["message"].as_str().unwrap().to_owned();
        assert_eq!((status, &answer["code"]), (507, &json!("no_memory")), "{message}");
        assert!(message.contains("user 54321") && message.contains("--user-descriptors"), "{message}");
    };
    for name in ["one", "two"] {
        session(ALICE, name);
    }
    assert_eq!(start(ALICE, "one").0, 200);
    refused(start(ALICE, "two"));
    assert_eq!(daemon.tell_as(ALICE, "GET", "/v1/sessions/two", None)["active"], false);
    // So many events would be too much for what is recorded already, which goes on.
    let rules = "/v1/sessions/one/domains/kernel/channels/channel0/rules";
    let all = json!({"name": "*", "instrumentation": "tracepoint"});
    refused(daemon.ask_as(ALICE, "POST", rules, Some(&all)));
    let one = daemon.tell_as(ALICE, "GET", "/v1/sessions/one", None);
    assert_eq!(one["active"], true);
    assert_eq!(one["domains"][0]["channels"][0]["rules"].as_array().unwrap().len(), 1, "{one}");
    // Others have their own, and root what there is.
    session(BOB, "one");
    assert_eq!(start(BOB, "one").0, 200);
    for name in ["one", "two"] {
        session(ROOT, name);
        assert_eq!(start(ROOT, name).0, 200);
    }
    daemon.tell_as(ALICE, "DELETE", "/v1/sessions/one", None);
    assert_eq!(start(ALICE, "two").0, 200);
}

#[test]
fn users_hear_of_their_own_sessions_only() {
    let daemon = Daemon::start();
    let listen = |user: User| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--no-buffer", "--unix-socket"]).arg(daemon.socket());
        curl.args(["--dump-header", "-", "http://localhost/v1/notifications"]).gid(user.gid).uid(user.uid);
        let mut listening = Running::start(&mut curl);
        listening.wait_until_out("application/jsonlines");
        listening
    };
    let mut listening = [listen(ALICE), listen(BOB), listen(ROOT)];
    for (user, name) in [(ALICE, "of-alice"), (BOB, "of-bob"), (ALICE, "again")] {
        let dir = daemon.directory_of(user, name);
        daemon.session(user, name, &dir, &[calls()]);
        daemon.tell_as(user, "POST", &format!("/v1/sessions/{name}/start"), None);
    }
    for (listening, last) in listening.iter_mut().zip(["again", "of-bob", "again"]) {
        listening.wait_until_out(last);
    }
    daemon.stop().expect(0);
    let heard = listening.map(|listening| {
        let out = listening.wait().out;
        let lines = out.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let started = lines.filter(|line| line["active"] == true);
        started.map(|line| line["session"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(heard, [vec!["of-alice", "again"], vec!["of-bob"], vec!["of-alice", "of-bob", "again"]]);
}
