//! Clients that are not what they should be.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, wait_for},
};
use serde_json::{Value, json};

use super::{calls, files, found, only};

/// Kilobytes of memory that the daemon holds.
fn resident_kb(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends bytes and gives what comes until the end.
fn send(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    // The answer may come, and the connection be closed, before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_no_request_is_refused() {
    let daemon = Daemon::start();
    for (body, says) in [
        ("{", "EOF"),
        ("[]", "invalid"),
        ("{\"name\": 3}", "name"),
        ("{\"mode\": \"local\"}", "mode"),
        ("{\"mode\": \"snapshot\", \"more\": 1}", "more"),
        ("{\"name\": \"\\u0000\", \"mode\": \"snapshot\"}", "Invalid character"),
    ] {
        let head = format!(
            "POST /v1/sessions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let answer = send(&daemon, format!("{head}{body}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 422"), "{body}: {answer}");
        assert!(answer.contains(says) && answer.contains("\"code\":"), "{body}: {answer}");
    }
    for bytes in
        ["", "\r\n\r\n", "GET", "GET / HTTP/1.1\r\nhost", "\0\0\0\0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let answer = send(&daemon, bytes.as_bytes());
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer}");
    }
    assert_eq!(daemon.ask("GET", "/v1/nothing", None).1["code"], "undefined");
    assert_eq!(daemon.ask("PUT", "/v1/sessions", None).1["code"], "undefined");
    for name in ["", "a/b", &"x".repeat(300), "a\nb"] {
        let (status, answer) =
            daemon.ask("POST", "/v1/sessions", Some(&json!({"name": name, "mode": "snapshot"})));
        assert_eq!((status, &answer["code"]), (422, &json!("session_name")), "{name:?}");
    }
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), json!([]));
}

#[test]
fn large_bodies_take_no_memory() {
    let daemon = Daemon::start();
    daemon.tell("GET", "/v1/sessions", None);
    let before = resident_kb(&daemon);
    let len = 100 << 20;
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n\""
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let after = resident_kb(&daemon);
    assert!(after < before + (16 << 10), "{before} KB before, {after} KB after");
    assert_eq!(daemon.ask("GET", "/v1/sessions", None).0, 200);
}

#[test]
fn filters_of_an_event_are_limited_together() {
    let daemon = Daemon::start();
    let rule = |name: &str, number: usize| {
        let filter = format!("prev_pid == {number}") + &" || prev_pid == 7".repeat(1200);
        json!({"name": name, "instrumentation": "tracepoint", "filter": filter})
    };
    daemon.session(ROOT, "one", &daemon.path().join("out"), &[rule("sched_switch", 0)]);
    let rules = "/v1/sessions/one/domains/kernel/channels/channel0/rules";
    // Each pattern is a rule of its own, and all of them have the event.
    let patterns = ["sched_switc*", "sched_swit*", "sched_swi*", "sched_sw*"];
    let added = |(number, name): (usize, &&str)| {
        let (status, answer) = daemon.ask("POST", rules, Some(&rule(name, number + 1)));
        (status, answer["message"].as_str().map(str::to_owned))
    };
    let answers: Vec<_> = patterns.iter().enumerate().map(added).collect();
    let refused = answers.iter().position(|(status, _)| *status == 422).expect("the last is too long");
    let says = answers[refused].1.as_deref().unwrap_or_default();
    assert!(
        refused >= 1 && says.contains("sched:sched_switch are longer than 64 KB together"),
        "{answers:?}"
    );
    // What is refused is not there, and what is there goes on.
    let session = daemon.tell("GET", "/v1/sessions/one", None);
    let there = session["domains"][0]["channels"][0]["rules"].as_array().unwrap().len();
    assert_eq!(there, 1 + answers.iter().filter(|(status, _)| *status < 300).count());
}

/// Rules that take long to be compared with all events: nobody waits for that but who has asked for it.
#[test]
fn a_daemon_ends_while_rules_are_expanded() {
    let mut daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(1000);
    daemon.session(ROOT, "two", &daemon.path().join("other"), &[]);
    let exclusions: Vec<String> = (0..3900).map(|number| format!("*s*_*e*{number}*")).collect();
    let rule = |number: usize| {
        let name = format!("*{}", "*_".repeat(number));
        json!({"name": name, "instrumentation": "tracepoint", "exclusions": exclusions})
    };
    let rules = "/v1/sessions/two/domains/kernel/channels/channel0/rules";
    daemon.tell("POST", rules, Some(&rule(0)));
    let request = format!("{}\n", rule(1));
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    let head = format!(
        "POST {rules} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        request.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    daemon.end().expect(0);
    assert_eq!(found(&files(&dir)), 1000);
}

#[test]
fn connections_without_requests_keep_nobody_out() {
    let daemon = Daemon::start();
    let mut held = Vec::new();
    for _ in 0..10_000 {
        // Those that are too many are closed by the daemon; descriptors of this test come back with them.
        if let Ok(stream) = UnixStream::connect(daemon.socket()) {
            held.push(stream);
        }
        if held.len() > 200 {
            held.clear();
        }
    }
    // A head that never ends is given up after some seconds; then there is room again.
    wait_for("an answer", || (daemon.ask("GET", "/v1/sessions", None).0 == 200).then_some(()));
    drop(held);
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    wait_for("descriptors to be closed", || {
        let now = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
        (now < 40).then_some(())
    });
    assert!(open < 400, "{open}");
}

#[test]
fn the_document_has_the_requests_that_there_are() {
    let daemon = Daemon::start();
    let document = daemon.tell("GET", "/v1/openapi.json", None);
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let mut requests = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            requests += 1;
            assert!(
                operation["description"].as_str().or(operation["summary"].as_str()).is_some(),
                "{method} {path}"
            );
            if path == "/v1/notifications" {
                continue;
            }
            let filled = path.replace("{domain}", "kernel").replace("{id}", "0");
            let filled = filled
                .replace("{session}", "none")
                .replace("{channel}", "none")
                .replace("{output}", "1")
                .replace("{trigger}", "none")
                .replace("{what}", "metadata");
            let body = operation.get("requestBody").map(|_| json!({}));
            let (_, answer) = daemon.ask(&method.to_uppercase(), &filled, body.as_ref());
            assert_ne!(answer["code"], "undefined", "{method} {path}");
        }
    }
    // Each reference leads somewhere.
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(!matches!(document["components"]["schemas"][name], Value::Null), "{name}");
    }
    assert_eq!(requests, 40);
}

#[test]
fn mutated_requests_are_answered() {
    let daemon = Daemon::start();
    let out = daemon.path().join("out");
    let bodies = [
        ("/v1/sessions", json!({"name": "f", "mode": {"local": {"output": out}}, "format": "trace_dat"})),
        ("/v1/sessions/f/schedules", json!({"size_bytes": 1 << 30})),
        (
            "/v1/sessions/f/domains/kernel/channels",
            json!({"name": "c", "attributes": {"subbuf_size": 65536, "num_subbuf": 4, "switch_timer_us": 1000}}),
        ),
        (
            "/v1/sessions/f/domains/kernel/channels/c/rules",
            json!({"name": "sched_*", "instrumentation": "tracepoint", "filter": "prio < 100", "exclusions": ["sched_w*"]}),
        ),
        ("/v1/sessions/f/domains/kernel/channels/c/contexts", json!({"contexts": ["vpid", "procname"]})),
        (
            "/v1/sessions/f/domains/kernel/trackers",
            json!({"attribute": "pid", "values": {"only": ["1"]}, "add": true}),
        ),
    ];
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut dice = |sides: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % sides as u64) as usize
    };
    let mut answered = 0;
    daemon.tell("POST", "/v1/sessions", Some(&bodies[0].1));
    for round in 0..1500 {
        // What can be done once only can be done again then.
        if round % 50 == 49 {
            daemon.tell("DELETE", "/v1/sessions/f", None);
            daemon.tell("POST", "/v1/sessions", Some(&bodies[0].1));
        }
        let (path, body) = &bodies[dice(bodies.len())];
        let mut bytes = body.to_string().into_bytes();
        for _ in 0..dice(4) {
            let at = dice(bytes.len());
            match dice(3) {
                0 => bytes[at] = dice(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\"{}[]:,9-"[dice(9)]),
            }
        }
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            bytes.len()
        );
        let answer = send(&daemon, &[head.as_bytes(), &bytes].concat());
        let status = answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        // What the daemon cannot do is an answer, too; what it failed at is not.
        let status = status.unwrap_or_else(|| panic!("{path} {}: {answer}", String::from_utf8_lossy(&bytes)));
        assert!(
            !answer.contains("failed at this request"),
            "{path} {}: {answer}",
            String::from_utf8_lossy(&bytes)
        );
        answered += usize::from(status == 200);
    }
    // A quarter of the requests is as it should be, and many of those can be done.
    assert!(answered > 60, "{answered}");
    daemon.tell("DELETE", "/v1/sessions/f", None);
    assert_eq!(daemon.stop().expect(0).err, "");
}
