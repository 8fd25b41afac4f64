//! Triggers about units of systemd, with a system bus of the test's own.

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::wait_for,
    systemd::{Bus, Systemd},
};
use serde_json::{Value, json};

use super::{
    triggers::{Listening, ctl, of_trigger, state},
    users::ALICE,
};

const ADDRESS: &str = "DBUS_SYSTEM_BUS_ADDRESS";

fn add(daemon: &Daemon, name: &str, unit: &str) {
    let user = if name == "hers" { ALICE } else { ROOT };
    let condition = ["--condition=unit-failed", "--unit", unit, "--action=notify"];
    ctl(daemon, user, &[&["add-trigger", "--name", name][..], &condition].concat());
}

fn wait_for_count(daemon: &Daemon, name: &str, count: u64) {
    wait_for("the failures", || (state(daemon, name)["fired"] == count).then_some(()));
}

fn problem(daemon: &Daemon, name: &str) -> Option<String> {
    state(daemon, name)["problem"].as_str().map(str::to_owned)
}

fn found<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    of_trigger(lines, name).into_iter().map(|line| &line["found"]["unit_failed"]).collect()
}

#[test]
fn failures_are_told_with_their_results() {
    let mut bus = Bus::new();
    bus.start();
    let systemd = Systemd::start(&bus, &["old.service"]);
    let daemon = Daemon::start().with_environment(ADDRESS, &bus.address());
    let (mut root, alice) = (Listening::start(&daemon, ROOT), Listening::start(&daemon, ALICE));
    add(&daemon, "hers", "web");
    add(&daemon, "some", "db*");
    add(&daemon, "all", "*");
    for name in ["hers", "some", "all"] {
        assert_eq!(problem(&daemon, name), None);
    }
    let listed = ctl(&daemon, ALICE, &["list-triggers"]);
    assert!(listed.contains("  condition: unit failed\n    unit: web.service\n"), "{listed}");
    let document = ctl(&daemon, ROOT, &["--mi", "xml", "list-triggers"]);
    assert!(
        document.contains("<condition_unit_failed><unit>db*</unit></condition_unit_failed>"),
        "{document}"
    );
    // It tells of itself, and was failed before.
    systemd.change("old.service", "failed", "signal", 1);
    systemd.change("web.service", "active", "success", 10);
    systemd.change("web.service", "failed", "exit-code", 11);
    // Another change of it.
    systemd.change("web.service", "failed", "exit-code", 11);
    // It is started again, and fails again; of that between nothing is told.
    systemd.change("web.service", "activating", "exit-code", 12);
    systemd.change("web.service", "failed", "oom-kill", 13);
    systemd.change("web.service", "failed", "timeout", 15);
    wait_for_count(&daemon, "hers", 3);
    let asked = systemd.asked();
    // One that is announced when it has failed, and one that is not a service.
    systemd.load("db@1.service", "failed", "core-dump", 20);
    systemd.announce("db@1.service");
    systemd.load("db.target", "failed", "", 21);
    systemd.announce("db.target");
    wait_for_count(&daemon, "some", 2);
    assert_eq!(systemd.asked() - asked, 2 * 2 + 1, "states, moments, and the result of the service");
    // Who is not systemd is not believed.
    systemd.lie(&bus, "web.service");
    systemd.lie(&bus, "lie.service");
    systemd.change("last.service", "failed", "watchdog", 30);
    wait_for_count(&daemon, "all", 6);
    root.wait_until("watchdog");
    assert_eq!([&state(&daemon, "hers")["fired"], &state(&daemon, "some")["fired"]], [3, 2]);
    daemon.stop().expect(0);
    let (root, alice) = (root.end(), alice.end());
    let of = |unit: &str, result: Option<&str>, since: u64| json!({"unit": unit, "result": result, "since_ns": since * 1000});
    let web = [("exit-code", 11), ("oom-kill", 13), ("timeout", 15)];
    let web = web.map(|(result, since)| of("web.service", Some(result), since));
    assert_eq!(found(&alice, "hers"), web.iter().collect::<Vec<_>>());
    let db = [of("db@1.service", Some("core-dump"), 20), of("db.target", None, 21)];
    assert_eq!(found(&root, "some"), db.iter().collect::<Vec<_>>());
    let all: Vec<_> = web.into_iter().chain(db).chain([of("last.service", Some("watchdog"), 30)]).collect();
    assert_eq!(found(&root, "all"), all.iter().collect::<Vec<_>>());
    assert!(of_trigger(&alice, "some").is_empty(), "it is root's");
}

#[test]
fn the_bus_may_come_and_go() {
    let mut bus = Bus::new();
    let mut daemon = Daemon::start_supervised().with_environment(ADDRESS, &bus.address());
    add(&daemon, "all", "*.service");
    // There is none.
    let why = problem(&daemon, "all").unwrap();
    assert!(why.starts_with("the system bus does not tell of units: "), "{why}");
    assert!(ctl(&daemon, ROOT, &["list-triggers"]).contains("not looked at: the system bus does not tell"));
    bus.start();
    wait_for("a bus without systemd", || {
        problem(&daemon, "all")?.contains("systemd is not there").then_some(())
    });
    let systemd = Systemd::start(&bus, &["old.service"]);
    wait_for("systemd", || problem(&daemon, "all").is_none().then_some(()));
    assert_eq!(state(&daemon, "all")["interruptions"], 0, "nobody has watched before");
    systemd.change("web.service", "failed", "signal", 1);
    wait_for_count(&daemon, "all", 1);
    // Another systemd, as after `systemctl daemon-reexec`: what has failed meanwhile is told.
    drop(systemd);
    wait_for("its end", || problem(&daemon, "all").map(drop));
    let systemd = Systemd::start(&bus, &["old.service", "web.service", "new.service"]);
    wait_for_count(&daemon, "all", 2);
    let now = state(&daemon, "all");
    assert_eq!((&now["interruptions"], &now["problem"]), (&json!(1), &Value::Null));
    // Another bus.
    bus.stop();
    wait_for("its end", || problem(&daemon, "all").map(drop));
    drop(systemd);
    bus.start();
    let systemd = Systemd::start(&bus, &["old.service", "web.service", "new.service"]);
    wait_for("the bus", || (state(&daemon, "all")["interruptions"] == 2).then_some(()));
    systemd.change("web.service", "activating", "signal", 5);
    systemd.change("web.service", "failed", "exit-code", 6);
    wait_for_count(&daemon, "all", 3);
    // Another daemon.
    daemon.replace();
    wait_for("its watch", || problem(&daemon, "all").is_none().then_some(()));
    let now = state(&daemon, "all");
    assert_eq!((&now["interruptions"], &now["fired"]), (&json!(3), &json!(3)));
    systemd.change("web.service", "failed", "exit-code", 6);
    systemd.change("other.service", "failed", "exit-code", 7);
    wait_for_count(&daemon, "all", 4);
    // Nothing is there without a trigger.
    daemon.tell("DELETE", "/v1/triggers/all", None);
    let has_thread = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let names =
            tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
        names.into_iter().any(|name| name == "units\n")
    };
    wait_for("the end of the thread", || (!has_thread()).then_some(()));
    daemon.stop().expect(0);
}
