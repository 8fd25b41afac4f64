//! Clients that take all the connections that they can, and that have gone.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpStream},
    os::unix::{net::UnixStream, process::CommandExt as _},
};

use integration_tests::{
    daemon::{Daemon, GID, ROOT, User},
    harness::{HANG, agent, run, wait_for},
    prometheus::{free_port, get},
};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};

use super::users::{ALICE, BOB};

/// The most connections of a user, and those beyond them that are answered with the reason.
const OF_USER: usize = 64;
const EXCESS_OF_USER: usize = 8;

/// Does something in a thread that is a user to the kernel.
fn as_user<T: Send>(user: User, act: impl FnOnce() -> T + Send) -> T {
    let of_user = move || {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(of_user).join().unwrap())
}

fn connect(daemon: &Daemon) -> UnixStream {
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
}

/// A connection on which the daemon tells what happens; `None` if it refuses.
fn listen(daemon: &Daemon) -> Option<UnixStream> {
    let mut stream = connect(daemon);
    stream.write_all(b"GET /v1/notifications HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    head.starts_with(b"HTTP/1.1 200 ").then_some(stream)
}

/// As many of a user as may be, when earlier ones have ended.
fn listen_as(daemon: &Daemon, user: User) -> Vec<UnixStream> {
    let one = || wait_for("a connection to listen on", || listen(daemon));
    as_user(user, || (0..OF_USER).map(|_| one()).collect())
}

/// The status of an answer, and the code of its refusal.
fn asked(daemon: &Daemon, user: User, path: &str) -> (u16, Value) {
    let (status, answer) = daemon.ask_as(user, "GET", path, None);
    (status, answer["code"].clone())
}

fn too_many() -> (u16, Value) {
    (429, json!("too_many_connections"))
}

fn answered() -> (u16, Value) {
    (200, Value::Null)
}

#[test]
fn listeners_that_have_gone_have_no_connections() {
    let daemon = Daemon::start();
    let half_closed = listen_as(&daemon, ALICE);
    assert_eq!(asked(&daemon, ALICE, "/v1/sessions"), too_many());
    for mut stream in &half_closed {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "0\r\n\r\n", "the answer ends where the client says no more");
    }
    // Their connections are those of others now, and so are those of closed ones.
    for _ in 0..2 {
        drop(listen_as(&daemon, ALICE));
    }
    wait_for("an answer", || (asked(&daemon, ALICE, "/v1/sessions") == answered()).then_some(()));
    drop(half_closed);
    assert_eq!(daemon.stop().expect(0).err, "");
}

#[test]
fn whoever_has_too_many_connections_is_told_and_nobody_else() {
    let daemon = Daemon::start();
    let listeners = listen_as(&daemon, ALICE);
    for path in ["/v1/sessions", "/v1/notifications", "/v1/metrics", "/v1/daemon"] {
        assert_eq!(asked(&daemon, ALICE, path), too_many(), "{path}");
    }
    let new = json!({"name": "one", "mode": "snapshot"});
    let (status, answer) = daemon.ask_as(ALICE, "POST", "/v1/sessions", Some(&new));
    assert_eq!((status, answer["code"].clone()), too_many());
    for path in ["/v1/health", "/v1/health/live", "/v1/health/ready"] {
        assert_eq!(asked(&daemon, ALICE, path), answered(), "{path}");
    }
    let socket = daemon.socket();
    for words in [&["list"][..], &["listen"]] {
        let mut ctl = agent(daemon.path(), ["ctl", "--socket", socket.to_str().unwrap()]);
        let said = run(ctl.args(words).env("HOME", daemon.path()).gid(ALICE.gid).uid(ALICE.uid));
        assert!(!said.status.success() && said.err.contains("Too many connections"), "{words:?}: {said:?}");
    }
    assert_eq!(asked(&daemon, BOB, "/v1/sessions"), answered());
    assert_eq!(asked(&daemon, ROOT, "/v1/sessions"), answered());
    drop(listeners);
}

#[test]
fn root_and_health_have_connections_when_users_have_taken_all() {
    let daemon = Daemon::start();
    let users = [0, 1, 2, 3, 4].map(|number| User { uid: 54_331 + number, gid: GID });
    let [others @ .., last] = users;
    let held = others.map(|user| listen_as(&daemon, user));
    assert_eq!(asked(&daemon, last, "/v1/sessions"), too_many());
    assert_eq!(asked(&daemon, ROOT, "/v1/sessions"), answered());
    let socket = daemon.socket();
    for user in [last, ROOT] {
        let mut health = agent(daemon.path(), ["health", "--socket", socket.to_str().unwrap()]);
        run(health.gid(user.gid).uid(user.uid)).expect(0);
    }
    // Those that say nothing are closed after a time, and then there is room for the request.
    wait_for("a refusal without a request", || {
        let answer = as_user(last, || {
            let _silent: Vec<UnixStream> = (0..EXCESS_OF_USER).map(|_| connect(&daemon)).collect();
            let (mut answer, mut refused) = (String::new(), connect(&daemon));
            refused.read_to_string(&mut answer).unwrap();
            answer
        });
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&head[..13], &body["code"]), ("HTTP/1.1 429 ", &too_many().1));
        Some(())
    });
    drop(held);
    wait_for("a connection", || (asked(&daemon, last, "/v1/sessions") == answered()).then_some(()));
}

#[test]
fn a_host_does_not_take_all_connections_to_the_metrics() {
    let port = free_port();
    let daemon = Daemon::start_configured(&format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n"));
    let status = |path: &str| get(port, path).map(|(status, _)| status);
    wait_for("the listener", || (status("/metrics") == Some(200)).then_some(()));
    // Those that say nothing are closed after a time.
    wait_for("a refusal", || {
        let _silent = [(); 16].map(|()| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
        let (status_of_metrics, answer) = get(port, "/metrics")?;
        if status_of_metrics == 200 {
            return None;
        }
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status_of_metrics, &answer["code"]), (429, &too_many().1));
        assert_eq!((status("/live"), status("/ready")), (Some(200), Some(200)));
        Some(())
    });
    wait_for("a connection", || (status("/metrics") == Some(200)).then_some(()));
    drop(daemon);
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let daemon = Daemon::start();
    let mut stream = connect(&daemon);
    let head = "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 9\r\n\r\n{";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&head[..13], &body["code"]), ("HTTP/1.1 422 ", &json!("invalid")));
}
