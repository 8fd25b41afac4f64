//! Viewers who read a session at the relay daemon while it is recorded.

use std::thread;

use integration_tests::{
    daemon::Daemon,
    harness::{Caller, Running, program, run, wait_for},
};
use serde_json::json;

use super::{SESSION, begin, call, calls_in, relayd::Relayd};

const CALL: &str = " syscall_entry_getppid: ";

/// A viewer that prints what it reads as it comes, and ends with the session.
fn viewer(url: &str) -> Running {
    let end = "--params=session-not-found-action=\"end\"";
    let args = ["-oL", "babeltrace2", "--clock-cycles", "--no-delta", "--input-format=lttng-live", url, end];
    Running::start(&mut program("/".as_ref(), "stdbuf", args))
}

#[test]
fn viewers_read_there_what_is_recorded() {
    let (daemon, relayd) = (Daemon::start(), Relayd::start());
    let mut caller = Caller::start();
    let mode = json!({"mode": {"live": {"url": relayd.url(), "timer_us": 100_000}}});
    begin(&daemon, &mode, &caller);
    let sessions = format!("net://localhost:{}", relayd.live_port());
    let listed =
        || run(&mut program("/".as_ref(), "babeltrace2", ["--input-format=lttng-live", &sessions])).out;
    let session = wait_for("the session", || {
        let list = listed();
        let url = list.split_whitespace().find(|word| word.starts_with("net://"))?;
        assert!(list.contains("(timer = 100000, "), "{list}");
        Some(url.to_owned())
    });
    assert!(session.ends_with("/one"), "{session}");
    let mut viewer = viewer(&session);
    wait_for("the viewer", || listed().contains(" 1 client(s)").then_some(()));
    for cpu in 0..thread::available_parallelism().unwrap().get() {
        // The other CPUs are idle.
        caller.pin(cpu);
        call(&mut caller, 300);
    }
    viewer.wait_until_out(CALL);
    daemon.tell("POST", &format!("{SESSION}/stop"), None);
    daemon.tell("DELETE", SESSION, None);
    let ended = viewer.wait().expect(0);
    let read: Vec<&str> = ended.out.lines().filter(|line| line.contains(CALL)).collect();
    let stored = calls_in(&relayd.session());
    assert_eq!((read.len(), stored.len()), (600, 600), "{}", ended.err);
    assert_eq!(read, stored);
    assert_eq!(ended.err, "");
}
