//! Viewers of traces while they are written: babeltrace2 reads by LTTng's live protocol what it reads of the
//! trace's files afterwards, whatever becomes of the recording meanwhile.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use integration_tests::{
    binaries::Link,
    daemon::{Daemon, User},
    harness::{Caller, Ended, Running, agent, files, program, reported, run, wait_for},
    probe_program::build,
    soak,
};
use serde_json::{Value, json};

use crate::import_ctf::compare;

/// What the callers call.
const CALL: &str = " syscall_entry_getppid: ";
/// Options of babeltrace2 that print all that there is of a time.
const TIMES: [&str; 2] = ["--clock-cycles", "--no-delta"];

/// A viewer that reads until the session ends.
struct Viewer {
    running: Running,
    /// What the one that this ends with has to say.
    url: String,
}

impl Viewer {
    fn start(url: &str) -> Self {
        let end = "--params=session-not-found-action=\"end\"";
        let mut command = program("/".as_ref(), "babeltrace2", TIMES);
        let running = Running::start(command.args(["--input-format=lttng-live", url, end]));
        Self { running, url: url.to_owned() }
    }

    /// The lines of all events, when the session has ended. There is nothing to warn of but lost events, of
    /// which it gives the number.
    fn finish(self) -> (Vec<String>, u64) {
        let Self { running, url } = self;
        let ended = running.wait();
        // Why it failed comes last.
        let said: Vec<&str> = ended.err.lines().rev().take(30).collect();
        assert!(ended.status.success(), "{url}: {said:#?}");
        (lines(&ended), lost(&ended))
    }
}

fn lines(ended: &Ended) -> Vec<String> {
    ended.out.lines().map(str::to_owned).collect()
}

/// How many lost events babeltrace2 tells of. It tells of nothing else.
fn lost(ended: &Ended) -> u64 {
    let of = |warning: &str| {
        let count = warning.strip_prefix("WARNING: Tracer discarded ");
        let count = count.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{warning}"))
    };
    ended.err.lines().map(of).sum()
}

/// What babeltrace2 reads of a directory.
fn stored(trace: &Path) -> (Vec<String>, u64) {
    let ended = run(program("/".as_ref(), "babeltrace2", TIMES).arg(trace)).expect(0);
    (lines(&ended), lost(&ended))
}

/// Those of events that were recorded, without the state of the machine, which is there before any viewer.
fn of_calls(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.contains(CALL)).collect()
}

/// The address of a live server.
fn port_of(url: &str) -> u16 {
    let place = url.strip_prefix("net://localhost").unwrap().split('/').next().unwrap();
    place.strip_prefix(':').map_or(5344, |port| port.parse().unwrap())
}

/// The sessions that a live server lists, with how many viewers each has.
fn listed(url: &str) -> Vec<(String, u32)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port_of(url))).unwrap();
    let mut request = Vec::new();
    for word in [0, 20, 1, 0, 0, 0, 2, 4, 1, 0, 0, 2, 0_u32] {
        request.extend(word.to_be_bytes());
    }
    stream.write_all(&request).unwrap();
    let mut head = [0; 24];
    stream.read_exact(&mut head).unwrap();
    let count = u32::from_be_bytes(head[20..].try_into().unwrap());
    let mut session = [0; 339];
    let mut next = || {
        stream.read_exact(&mut session).unwrap();
        let name = session[84..].split(|byte| *byte == 0).next().unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), u32::from_be_bytes(session[12..16].try_into().unwrap()))
    };
    (0..count).map(|_| next()).collect()
}

/// Waits until a session has so many viewers.
#[track_caller]
fn wait_for_viewers(url: &str, count: u32) {
    let name = url.rsplit('/').next().unwrap();
    wait_for(&format!("{count} viewers of {name}"), || {
        listed(url).contains(&(name.to_owned(), count)).then_some(())
    });
}

/// What a recording says of how it is read.
fn told_url(recording: &mut Running) -> String {
    recording.wait_until_said("--input-format=lttng-live net://", 1);
    let said = recording.said();
    said.split_whitespace().find(|word| word.starts_with("net://")).unwrap().to_owned()
}

/// Calls on each CPU after the other, while the others are idle.
fn call_around(caller: &mut Caller, count: u64) {
    for cpu in 0..std::thread::available_parallelism().unwrap().get() {
        caller.pin(cpu);
        caller.call(count);
    }
}

/// Records the calls of a caller for viewers, who wait for events at most a tenth of a second.
fn record(dir: &Path, caller: &Caller, options: &[&str]) -> (Running, String) {
    let mut command = agent(dir, ["record", "--live=100ms", "--live-bind", "127.0.0.1:0", "-o", "out"]);
    command.args(["-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-P", &caller.pid().to_string()]);
    let mut recording = Running::start(command.args(options));
    let url = told_url(&mut recording);
    recording.wait_until_said("; Ctrl-C stops it", 1);
    (recording, url)
}

#[test]
fn viewers_read_all_events_in_order_and_one_that_is_stopped_does_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let (recording, url) = record(dir.path(), &caller, &[]);
    assert!(url.ends_with("/out"), "{url}");
    let viewers = [0; 3].map(|_| Viewer::start(&url));
    wait_for_viewers(&url, 3);
    viewers[2].running.hold();
    for _ in 0..20 {
        call_around(&mut caller, 100);
        std::thread::sleep(Duration::from_millis(50));
    }
    let calls = caller.calls() as usize;
    // While it is recorded, and without the stopped one: all that is not older than the timer.
    let of_last = format!("{CALL}{{ cpu_id");
    wait_for("the last event", || {
        let out = viewers[0].running.written();
        (out.lines().filter(|line| line.contains(&of_last)).count() == calls).then_some(())
    });
    viewers[2].running.signal(libc::SIGCONT);
    recording.signal(libc::SIGTERM);
    recording.wait().expect(0);
    let (all, _) = stored(&dir.path().join("out"));
    assert_eq!(of_calls(&all).len(), calls);
    for viewer in viewers {
        let (read, lost) = viewer.finish();
        assert_eq!((of_calls(&read), lost), (of_calls(&all), 0));
    }
}

#[test]
fn viewers_read_the_values_that_are_stored() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let probed = build(dir, Link::Pie);
    let work = format!("{}:work n=%di:s64 text=+0(%si):string", probed.file.display());
    let mut command = agent(dir, ["record", "--live=100ms", "--live-bind", "127.0.0.1:0", "-o", "out"]);
    command.args(["-T", "--user-stack", "--comm", "probed", "--uprobe", &work, "--context", "vpid,uid"]);
    command.args(["-B", "second", "-e", "syscalls:sys_enter_openat", "--context", "procname"]);
    let mut recording = Running::start(&mut command);
    let url = told_url(&mut recording);
    recording.wait_until_said("; Ctrl-C stops it", 1);
    let end = "--params=session-not-found-action=\"end\"";
    let mut viewer = program("/".as_ref(), "babeltrace2", compare::ARGS);
    let viewer = Running::start(viewer.args(["--input-format=lttng-live", &url, end]));
    wait_for_viewers(&url, 1);
    run(&mut probed.command(20)).expect(0);
    recording.signal(libc::SIGTERM);
    recording.wait().expect(0);
    let read = viewer.wait().expect(0);
    let file = dir.join("back.dat");
    run(agent(dir, ["import", "-q", "-o"]).arg(&file).arg(dir.join("out"))).expect(0);
    let lines = compare::parsed(&read.out);
    let frames = compare::are_same(&lines, &file);
    let records = reported(&file);
    let of_lttng = records.iter().filter(|record| record["system"] == "lttng");
    let mut of_lttng = of_lttng.filter_map(|record| record["event"].as_str());
    assert_eq!(of_lttng.find(|event| !event.starts_with("lttng_statedump_")), None);
    let of = |event: &str, buffer: &str| {
        let is_it = |record: &&Value| {
            record["buffer"] == buffer && record["event"].as_str().is_some_and(|name| name.starts_with(event))
        };
        records.iter().filter(is_it).count()
    };
    // Two calls have other texts.
    assert_eq!(of("p_probed_", ""), 22);
    assert!(of("sys_enter_openat", "second") > 0);
    let texts = records.iter().filter_map(|record| record["fields"]["text"].as_str());
    assert!(texts.filter(|text| *text == "some text").count() == 20);
    assert!(frames >= 40, "{frames} frames: each call has two stacks");
    assert!(!read.out.contains("0xFFFFFFFFFFFFFFFF"), "the room behind a stack is no frame");
}

#[test]
fn losses_are_told_as_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let (recording, url) = record(dir.path(), &caller, &["-b", "8"]);
    let viewer = Viewer::start(&url);
    wait_for_viewers(&url, 1);
    // Losses are counted from a packet on that was read.
    call_around(&mut caller, 1);
    let read = || viewer.running.written().lines().filter(|line| line.contains(CALL)).count();
    wait_for("an event of each CPU", || (read() as u64 == caller.calls()).then_some(()));
    call_around(&mut caller, 300_000);
    recording.signal(libc::SIGTERM);
    recording.wait().expect(0);
    let (all, lost) = stored(&dir.path().join("out"));
    let (read, told) = viewer.finish();
    assert!(lost > 0);
    assert_eq!((of_calls(&read), told), (of_calls(&all), lost));
    assert_eq!(of_calls(&all).len() as u64 + lost, caller.calls());
}

#[test]
fn chunks_are_rotated_under_a_viewer_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let (recording, url) = record(dir.path(), &caller, &["--rotate-time", "300ms", "--keep", "2"]);
    let viewer = Viewer::start(&url);
    wait_for_viewers(&url, 1);
    let newest = || {
        let archives = dir.path().join("out/archives");
        let names = if archives.exists() { files(&archives) } else { Vec::new() };
        names.iter().map(|name| name.rsplit('-').next().unwrap().parse::<u64>().unwrap()).max()
    };
    wait_for("some chunks", || {
        call_around(&mut caller, 50);
        newest().is_some_and(|number| number >= 5).then_some(())
    });
    recording.signal(libc::SIGTERM);
    recording.wait().expect(0);
    let (read, lost) = viewer.finish();
    assert_eq!((of_calls(&read).len() as u64, lost), (caller.calls(), 0), "also what is not kept");
    let (all, _) = stored(&dir.path().join("out"));
    assert!(of_calls(&read).ends_with(&of_calls(&all)));
}

#[test]
fn hostile_clients_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let (recording, url) = record(dir.path(), &caller, &[]);
    let viewer = Viewer::start(&url);
    wait_for_viewers(&url, 1);
    let connect = || TcpStream::connect(("127.0.0.1", port_of(&url))).unwrap();
    // One says nothing, one half of something, others what is nothing.
    let (_silent, mut half) = (connect(), connect());
    half.write_all(&[0, 0, 0]).unwrap();
    let huge = [0xff; 16];
    for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], &huge, &vec![b'x'; 1 << 16]] {
        let mut stream = connect();
        // It may be closed by then.
        let _ = stream.write_all(bytes);
        let _ = stream.read(&mut [0; 16]);
    }
    call_around(&mut caller, 100);
    let _many: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    call_around(&mut caller, 100);
    recording.signal(libc::SIGTERM);
    recording.wait().expect(0);
    let (read, _) = viewer.finish();
    assert_eq!(of_calls(&read).len() as u64, caller.calls());
}

const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";

/// A session of the daemon that viewers read, with a channel for the calls of a caller; not started.
fn session(daemon: &Daemon, caller: &Caller) -> (PathBuf, String) {
    let dir = daemon.path().join("out");
    let mode = json!({"served": {"output": dir, "timer_us": 100_000}});
    let created =
        daemon.tell("POST", "/v1/sessions", Some(&json!({"name": "one", "mode": mode, "format": "lttng"})));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "channel0"})));
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&rule("raw_syscalls:sys_enter")));
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller)));
    (dir, created["viewers"].as_str().unwrap().to_owned())
}

fn only(caller: &Caller) -> Value {
    json!({"attribute": "pid", "values": {"only": [caller.pid().to_string()]}, "add": true})
}

fn rule(event: &str) -> Value {
    json!({"name": event, "instrumentation": "tracepoint", "filter": "id == 110"})
}

fn daemon() -> Daemon {
    Daemon::start_with(&["--live-bind", "127.0.0.1:0"], 0o022)
}

/// What was recorded of a session, in the order of time.
fn recorded(dir: &Path) -> Vec<String> {
    let (lines, _) = stored(dir);
    lines.into_iter().filter(|line| !line.contains(" lttng_statedump_")).collect()
}

fn without_state(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|line| !line.contains(" lttng_statedump_")).collect()
}

#[test]
fn a_session_is_read_from_before_its_start_to_its_end() {
    let daemon = daemon();
    let mut caller = Caller::start();
    let (dir, url) = session(&daemon, &caller);
    let mut viewer = Viewer::start(&url);
    wait_for_viewers(&url, 1);
    let tell = |method: &str, path: &str| daemon.tell(method, &format!("/v1/sessions/one{path}"), None);
    tell("POST", "/start");
    call_around(&mut caller, 200);
    // More events, in the same channel.
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&rule("raw_syscalls:sys_exit")));
    call_around(&mut caller, 100);
    tell("POST", "/rotations");
    call_around(&mut caller, 200);
    tell("POST", "/stop");
    tell("POST", "/start");
    call_around(&mut caller, 200);
    // One that comes and goes, and comes again.
    let first = Viewer::start(&url);
    wait_for_viewers(&url, 2);
    // babeltrace2 does not see every interrupt that comes while it attaches.
    first.running.signal(libc::SIGTERM);
    first.running.wait();
    assert!(!viewer.running.has_ended(), "{}", viewer.running.said());
    wait_for_viewers(&url, 1);
    let second = Viewer::start(&url);
    wait_for_viewers(&url, 2);
    call_around(&mut caller, 100);
    caller.settle();
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let all = recorded(&dir);
    assert_eq!(of_calls(&all).len() as u64, caller.calls());
    let (read, lost) = viewer.finish();
    let (read, told) = (without_state(read), all.clone());
    let counts = |lines: &[String]| (lines.len(), of_calls(lines).len());
    assert_eq!((counts(&read), lost), (counts(&told), 0));
    assert_eq!(sorted(read), sorted(told));
    let (read, _) = second.finish();
    let read = without_state(read);
    let since = read.len();
    assert!(since >= of_calls(&read).len() && !read.is_empty());
    assert_eq!(sorted(read), sorted(all[all.len() - since..].to_vec()));
    assert_eq!(listed(&url), []);
}

/// Events of several traces with one time have no order.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn sessions_of_several_users_have_names_of_their_own() {
    let daemon = daemon();
    let mode = |name: &str| json!({"served": {"output": daemon.path().join(name), "timer_us": 1_000_000}});
    let new = |name: &str, mode: Value| json!({"name": name, "mode": mode, "format": "lttng"});
    daemon.tell("POST", "/v1/sessions", Some(&new("private", json!({"local": {"output": "/nowhere"}}))));
    let mine = daemon.tell("POST", "/v1/sessions", Some(&new("one", mode("a"))));
    let url = mine["viewers"].as_str().unwrap();
    let user = User { uid: 1234, gid: 60 };
    let of_user = json!({"served": {"output": daemon.directory_of(user, "b"), "timer_us": 100_000}});
    let other = daemon.tell_as(user, "POST", "/v1/sessions", Some(&new("one", of_user)));
    assert!(other["viewers"].as_str().unwrap().ends_with("/one-1234"), "{other}");
    assert_eq!(listed(url), [("one".to_owned(), 0), ("one-1234".to_owned(), 0)], "and no other");
    // The other user's is read with that user's rights.
    let mut caller = Caller::start();
    let viewer = Viewer::start(other["viewers"].as_str().unwrap());
    wait_for_viewers(other["viewers"].as_str().unwrap(), 1);
    let tell = |method: &str, path: &str, body: Option<&Value>| daemon.tell_as(user, method, path, body);
    tell("POST", CHANNELS, Some(&json!({"name": "channel0", "attributes": {"subbuf_size": 65536}})));
    tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&rule("raw_syscalls:sys_enter")));
    tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(&caller)));
    tell("POST", "/v1/sessions/one/start", None);
    call_around(&mut caller, 100);
    tell("DELETE", "/v1/sessions/one", None);
    let (read, _) = viewer.finish();
    assert_eq!(of_calls(&read).len() as u64, caller.calls());
    let (status, answer) = daemon.ask("POST", "/v1/sessions", Some(&json!({"name": "x", "mode": mode("x")})));
    assert_eq!(
        (status, &answer["code"]),
        (501, &json!("not_supported")),
        "a trace.dat is not read meanwhile"
    );
    let channels = "/v1/sessions/one/domains/kernel/channels";
    let overwrite = json!({"name": "c", "attributes": {"event_loss": "overwrite"}});
    let (status, answer) = daemon.ask("POST", channels, Some(&overwrite));
    assert!(status >= 400 && answer["message"].as_str().unwrap().contains("--discard"), "{answer}");
    // A second server has no place there.
    let taken = format!("127.0.0.1:{}", port_of(url));
    let second = Daemon::start_with(&["--live-bind", &taken], 0o022);
    let (status, answer) = second.ask("POST", "/v1/sessions", Some(&new("one", mode("c"))));
    assert!(status >= 400 && answer["message"].as_str().unwrap().contains("--live-bind"), "{answer}");
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    use super::*;

    #[test]
    fn a_viewer_follows_a_busy_recording() {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let (recording, url) = record(dir.path(), &caller, &["--rotate-size", "2M"]);
        let viewer = Viewer::start(&url);
        wait_for_viewers(&url, 1);
        for _ in 0..20 * soak() {
            call_around(&mut caller, 2000);
        }
        recording.signal(libc::SIGTERM);
        recording.wait().expect(0);
        let (read, lost) = viewer.finish();
        let (all, _) = stored(&dir.path().join("out"));
        assert_eq!((of_calls(&read), lost), (of_calls(&all), 0));
        assert_eq!(of_calls(&read).len() as u64, caller.calls());
    }
}
