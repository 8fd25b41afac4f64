//! What sessions report when the machine has no more descriptors, memory or room on disks, and when their
//! directories are gone.

use std::fs;

use integration_tests::{
    cgroup::MemoryGroup,
    daemon::{Daemon, GID, ROOT, User},
    harness::{Caller, Tmpfs, wait_for},
};
use serde_json::json;

use super::{calls, triggers::Listening};

#[test]
fn a_session_of_all_channels_starts_with_the_units_descriptors() {
    // The unit's, or as many as this machine gives.
    let limit = "n=$(ulimit -Hn); [ \"$n\" != unlimited ] && [ \"$n\" -le 65536 ] || n=65536; ulimit -n $n; exec \"$@\"";
    let daemon = Daemon::start_through(&["sh", "-ec", limit, "sh"].map(str::to_owned));
    let out = daemon.path().join("out");
    daemon.tell("POST", "/v1/sessions", Some(&json!({"name": "one", "mode": {"local": {"output": out}}})));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    // Of one event there are 64 programs at most, and others record, too.
    let events =
        ["sched:sched_switch", "sched:sched_wakeup", "raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];
    for (number, event) in (0..64).zip(events.iter().cycle()) {
        let attributes = json!({"subbuf_size": 4096, "num_subbuf": 2});
        let name = format!("c{number}");
        daemon.tell("POST", channels, Some(&json!({"name": name, "attributes": attributes})));
        let rule = json!({"name": event, "instrumentation": "tracepoint"});
        daemon.tell("POST", &format!("{channels}/{name}/rules"), Some(&rule));
    }
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(fs::read_dir(out).unwrap().count(), 1);
}

#[test]
fn a_control_group_without_memory_is_named() {
    let group = MemoryGroup::make("rings", 256 << 20);
    let join = format!("echo $$ > {}; exec \"$@\"", group.dir().join("cgroup.procs").display());
    // Half of it would be too much for a configured session already; this one is root's.
    let daemon = Daemon::start_through(&["sh", "-ec", &join, "sh"].map(str::to_owned));
    let out = daemon.path().join("out");
    daemon.tell("POST", "/v1/sessions", Some(&json!({"name": "one", "mode": {"local": {"output": out}}})));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    let attributes = json!({"subbuf_size": 64 << 20, "num_subbuf": 4});
    daemon.tell("POST", channels, Some(&json!({"name": "c", "attributes": attributes})));
    daemon.tell("POST", &format!("{channels}/c/rules"), Some(&calls()));
    let (status, refused) = daemon.ask("POST", "/v1/sessions/one/start", None);
    assert_eq!((status, &refused["code"]), (507, &json!("no_memory")), "{refused}");
    let name = group.dir().to_str().unwrap();
    assert!(refused["message"].as_str().unwrap().contains(name), "{refused}");
}

#[test]
fn a_full_disk_is_the_reason_that_is_given() {
    let disk = Tmpfs::mount("size=32m,mode=755");
    let daemon = Daemon::start();
    let mut listening = Listening::start(&daemon, ROOT);
    let (before, during) = (disk.path().join("before"), disk.path().join("during"));
    let mut caller = Caller::start();
    daemon.session(ROOT, "during", &during, &[calls()]);
    daemon.session(ROOT, "before", &before, &[calls()]);
    daemon.tell("POST", "/v1/sessions/during/start", None);
    disk.fill_but(0);
    wait_for("the disk to be full for a session", || {
        caller.call(100_000);
        daemon.has_said("os error 28").then_some(())
    });
    listening.wait_until("\"session\":\"during\"");
    let (status, refused) = daemon.ask("POST", "/v1/sessions/before/start", None);
    assert_eq!((status, &refused["code"]), (507, &json!("disk_full")), "{refused}");
    fs::remove_file(disk.path().join("filler")).unwrap();
    daemon.tell("POST", "/v1/sessions/before/start", None);
    daemon.stop();
    let heard = listening.end();
    let is_reason = |line: &&serde_json::Value| {
        line["session"] == "during" && line["reason"].as_str().is_some_and(|why| why.contains("os error 28"))
    };
    assert_eq!(heard.iter().filter(is_reason).count(), 1, "{heard:?}");
}

#[test]
fn an_output_that_is_removed_is_reported_at_once_and_at_the_stop() {
    let daemon = Daemon::start();
    let mut listening = Listening::start(&daemon, ROOT);
    let out = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &out, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(100);
    fs::remove_dir_all(&out).unwrap();
    // It has the session's name and the directory.
    listening.wait_until(&format!("{}/", out.display()));
    let (status, failed) = daemon.ask("POST", "/v1/sessions/one/stop", None);
    assert_eq!((status, &failed["code"]), (500, &json!("create_file")), "{failed}");
    // The next recording makes it again.
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(100);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(super::found(&super::files(&out)), 100);
}

#[test]
fn names_of_users_begin_no_lines_of_the_log() {
    let user = User { uid: 61_005, gid: GID };
    let daemon = Daemon::start();
    let home = daemon.directory_of(user, "home");
    let out = home.join("x\ntracer-agent daemon: forged\r\u{1b}[31m");
    daemon.session(user, "one", &out, &[calls()]);
    daemon.tell_as(user, "POST", "/v1/sessions/one/start", None);
    fs::remove_dir_all(&out).unwrap();
    wait_for("the line of the log", || {
        daemon.has_said("\\x0atracer-agent daemon: forged\\x0d\\x1b").then_some(())
    });
    let said = daemon.said();
    assert!(!said.contains(['\r', '\u{1b}']), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("tracer-agent daemon: forged")), "{said:?}");
}
