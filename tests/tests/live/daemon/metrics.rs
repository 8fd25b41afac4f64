//! What monitoring systems read is what was recorded and lost.
#![expect(clippy::float_cmp, reason = "counts and zero are exact")]

use std::collections::{BTreeMap, BTreeSet};

use daemon::metrics::metrics;
use integration_tests::{
    daemon::{Daemon, GID, ROOT, User, encoded},
    harness::{Caller, Report, is_getppid, ledger_in_info, wait_for},
    prometheus::{Prometheus, Series, free_port, get, lint, parsed},
};
use serde_json::json;

use super::{calls, files};

/// The causes of loss in ledgers.
const CAUSES: [&str; 5] = ["ring_full", "oversize", "read_fault", "nested", "rate_limit"];

/// A configuration that serves metrics, with a session of the calls of a process whose rings are small.
fn config(port: u16, of: &Caller) -> String {
    format!(
        "host = \"web-17\"\nlabels = {{ rack = \"b\\n\\\"7\\\"\\\\\" }}\n\n[metrics]\nlisten = \"127.0.0.1:{port}\"\n\n\
         [sessions.one]\nscope.track.pid = [\"{}\"]\n\n[[sessions.one.channels]]\nname = \"calls\"\nring_bytes = 32768\n\
         rules = [{{ what = {{ events = \"raw_syscalls:sys_enter\" }}, filter = \"id == 110\" }}]\n",
        of.pid()
    )
}

/// A count of all CPUs in a ledger.
fn in_ledger(ledger: &serde_json::Value, key: &str) -> u64 {
    let cpus = ledger["cpus"].as_array().unwrap();
    let of = |cpu: &serde_json::Value| cpu.pointer(key).and_then(serde_json::Value::as_u64);
    cpus.iter().map(|cpu| of(cpu).unwrap_or_else(|| panic!("{key}: {cpu}"))).sum()
}

#[test]
fn prometheus_stores_what_the_ledger_says() {
    let (port, mut caller) = (free_port(), Caller::start());
    let daemon = Daemon::start_configured(&config(port, &caller));
    let server = Prometheus::start(daemon.path(), &format!("127.0.0.1:{port}"));
    caller.call(100);
    daemon.signal(libc::SIGSTOP);
    caller.call(20_000);
    daemon.signal(libc::SIGCONT);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let [file] = &files(&daemon.path().join("state/sessions/one"))[..] else { panic!("more than one file") };
    let ledger = ledger_in_info(file);
    server.wait_for_scrape();
    let events = server.value("sum(tracer_agent_events_total{session=\"one\",uid=\"0\",channel=\"calls\"})");
    assert_eq!(events, in_ledger(&ledger, "/recorded") as f64, "{ledger}");
    assert_eq!(events, Report::of(file).count(is_getppid) as f64, "as the stock reader finds");
    let lost: f64 = CAUSES
        .map(|cause| {
            let query = format!("sum(tracer_agent_lost_events_total{{session=\"one\",cause=\"{cause}\"}})");
            let lost = server.value(&query);
            assert_eq!(lost, in_ledger(&ledger, &format!("/lost/{cause}")) as f64, "{cause}: {ledger}");
            lost
        })
        .iter()
        .sum();
    assert!(lost > 10_000.0, "32 KB cannot hold 20 000 events: {lost}");
    assert_eq!(events + lost, caller.calls() as f64);
    let by_event = server.value("sum(tracer_agent_event_lost_total{event=\"raw_syscalls:sys_enter\"})");
    assert_eq!(by_event, lost);
    assert_eq!(server.value("tracer_agent_session_active{session=\"one\"}"), 0.0);
    assert_eq!(server.value("tracer_agent_ready"), 0.0, "it is stopped");
    assert!(server.query("tracer_agent_ring_room_bytes").is_empty(), "there are no rings");
    let host = server.query("tracer_agent_host_info");
    let labels =
        [("host", "web-17"), ("rack", "b\n\"7\"\\")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(host.keys().next().unwrap().1, BTreeMap::from(labels));
    // The rings of the next recording.
    daemon.tell("POST", "/v1/sessions/one/start", None);
    server.wait_for_scrape();
    let cpus = server.value("count(tracer_agent_ring_room_bytes{session=\"one\"})");
    assert_eq!(server.value("sum(tracer_agent_ring_room_bytes{session=\"one\"})"), cpus * 32768.0);
    assert_eq!(server.value("tracer_agent_session_active"), 1.0);
    // Of the programs there is something in the second after they were first measured.
    wait_for("a window", || (!server.query("tracer_agent_programs > 0").is_empty()).then_some(()));
    assert!(server.value("tracer_agent_program_cpu_ratio") < 1.0);
    assert!(server.value("process_resident_memory_bytes") > 1e6);
    let started = server.value("process_start_time_seconds");
    assert!((server.value("vector(time())") - started).abs() < 3600.0, "{started}");
}

/// What is the same each time while nothing is recorded.
fn steady(series: &Series) -> Series {
    let changes = [
        "process_",
        "tracer_agent_budget",
        "tracer_agent_throttle",
        "tracer_agent_program",
        "tracer_agent_state_disk",
        "tracer_agent_data_age",
    ];
    let mut steady = series.clone();
    steady.retain(|(name, _), _| !changes.iter().any(|start| name.starts_with(start)));
    steady
}

#[test]
fn both_formats_say_the_same_and_are_as_they_should() {
    let (port, mut caller) = (free_port(), Caller::start());
    let odd = "he said \"\u{fc}ber\\\" {a=\u{27}b\u{27}} # x";
    let trigger = "\n[triggers.\"t \\\"1\\\"\"]\ncondition.event_rule_matches = { domain = \"kernel\", rule = { name = \
                   \"oom:mark_victim\", instrumentation = \"tracepoint\" } }\nactions = [{ do = \"notify\" }]\n";
    let store = tempfile::tempdir().unwrap();
    let archives =
        format!("\n[upload]\nurl = \"file://{}\"\n\n[retention]\nmax_age = \"7d\"\n", store.path().display());
    let budget = "\n[budget]\ncpu = \"90%\"\n";
    let daemon = Daemon::start_configured(&(config(port, &caller) + trigger + &archives + budget));
    daemon.session(ROOT, odd, &daemon.path().join("odd"), &[calls()]);
    let encoded = encoded(odd);
    daemon.tell("POST", &format!("/v1/sessions/{encoded}/start"), None);
    daemon.signal(libc::SIGSTOP);
    caller.call(5000);
    daemon.signal(libc::SIGCONT);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    daemon.tell("POST", &format!("/v1/sessions/{encoded}/stop"), None);
    wait_for("what programs take", || {
        daemon.metrics_as(ROOT, false).contains("\ntracer_agent_programs ").then_some(())
    });
    wait_for("the archive to be stored", || {
        daemon
            .metrics_as(ROOT, false)
            .contains("\ntracer_agent_upload_stored_archives_total 1\n")
            .then_some(())
    });
    let (open, older) = (daemon.metrics_as(ROOT, true), daemon.metrics_as(ROOT, false));
    lint(&older);
    assert!(open.ends_with("# EOF\n") && !older.contains("# EOF"), "{open}");
    let [open, older] = [parsed("openmetrics", &open), parsed("prometheus", &older)];
    assert_eq!(steady(&open), steady(&older));
    let names = |series: &Series| series.keys().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(names(&open), names(&older));
    let known: BTreeSet<String> = metrics().into_iter().map(|metric| metric.name).collect();
    let not_there: Vec<&String> = known.iter().filter(|name| !names(&open).contains(*name)).collect();
    // There are no rings, nothing waits, nothing is overwritten, and the budget is large.
    let without = [
        "tracer_agent_overwritten_events_total",
        "tracer_agent_ring_held_bytes",
        "tracer_agent_ring_room_bytes",
        "tracer_agent_throttle_steps_total",
    ];
    assert_eq!(not_there, without.iter().collect::<Vec<_>>());
    assert!(names(&open).is_subset(&known), "{:?}", names(&open));
    let of_sessions: BTreeSet<&String> =
        open.keys().filter_map(|(_, labels)| labels.get("session")).collect();
    assert_eq!(of_sessions, BTreeSet::from([&odd.to_owned(), &"one".to_owned()]));
    let of_triggers: BTreeSet<&String> =
        open.keys().filter_map(|(_, labels)| labels.get("trigger")).collect();
    assert_eq!(of_triggers, BTreeSet::from([&"t \"1\"".to_owned()]));
    for metric in metrics().iter().filter(|metric| !metric.labels.contains(&"...")) {
        let labels: BTreeSet<&str> = metric.labels.iter().copied().collect();
        for (name, of) in open.keys().filter(|(name, _)| *name == metric.name) {
            assert_eq!(of.keys().map(String::as_str).collect::<BTreeSet<_>>(), labels, "{name}");
        }
    }
    // Names that would need it are refused.
    for name in ["a\nb", "a\u{0}b"] {
        let new = json!({"name": name, "mode": {"local": {"output": daemon.path().join("x")}}});
        let (status, answer) = daemon.ask("POST", "/v1/sessions", Some(&new));
        assert!((400..500).contains(&status), "{name:?}: {status} {answer}");
    }
}

#[test]
fn users_are_told_of_their_own_sessions() {
    let (port, caller) = (free_port(), Caller::start());
    let daemon = Daemon::start_configured(&config(port, &caller));
    let user = User { uid: 61_006, gid: GID };
    let dir = daemon.directory_of(user, "out");
    daemon.session(user, "own", &dir, &[calls()]);
    daemon.tell_as(user, "POST", "/v1/sessions/own/start", None);
    let told = |user: User| {
        let series = parsed("openmetrics", &daemon.metrics_as(user, true));
        let of = |(_, labels): &(String, BTreeMap<String, String>)| {
            Some((labels.get("session")?.clone(), labels.get("uid")?.clone()))
        };
        series.keys().filter_map(of).collect::<BTreeSet<_>>()
    };
    let of = |session: &str, uid: &str| (session.to_owned(), uid.to_owned());
    assert_eq!(told(user), BTreeSet::from([of("own", "61006")]));
    assert_eq!(told(ROOT), BTreeSet::from([of("one", "0"), of("own", "61006")]));
    // Nobody else connects to the socket; who can connect over TCP is told of all.
    let nobody = User { uid: 61_007, gid: 61_007 };
    assert_eq!(daemon.ask_as(nobody, "GET", "/v1/metrics", None).0, 0);
    let text = over_tcp(port, "/metrics").unwrap();
    assert!(text.contains("session=\"own\"") && text.contains("session=\"one\""), "{text}");
}

/// What is served over TCP.
fn over_tcp(port: u16, path: &str) -> Option<String> {
    get(port, path).filter(|(status, _)| *status < 400).map(|(_, text)| text)
}

#[test]
fn the_listener_follows_the_configuration() {
    let (port, other, caller) = (free_port(), free_port(), Caller::start());
    let text = config(port, &caller);
    let daemon = Daemon::start_configured(&text);
    let is_ready = |port: u16| over_tcp(port, "/ready").map(|text| text.contains("\"ready\":true"));
    wait_for("the listener", || is_ready(port));
    assert_eq!(over_tcp(port, "/live").map(|text| text.contains("\"live\":true")), Some(true));
    assert_eq!(over_tcp(port, "/v1/sessions"), None, "nothing else is there");
    let moved = text.replace(&format!(":{port}\""), &format!(":{other}\""));
    assert_eq!(daemon.configure(&moved)["mistakes"], json!([]));
    wait_for("the other listener", || is_ready(other));
    assert_eq!(over_tcp(port, "/metrics"), None);
    let none = text.replace(&format!("listen = \"127.0.0.1:{port}\""), "");
    daemon.configure(&none);
    wait_for("nobody to listen", || over_tcp(other, "/metrics").is_none().then_some(()));
    // Where somebody else listens, it is tried again.
    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    daemon.configure(&text);
    wait_for("the log", || daemon.has_said("metrics cannot be served on").then_some(()));
    drop(taken);
    wait_for("the listener again", || is_ready(port));
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(over_tcp(port, "/ready"), None, "503");
    assert!(over_tcp(port, "/metrics").unwrap().contains("\ntracer_agent_ready 0\n"));
}
