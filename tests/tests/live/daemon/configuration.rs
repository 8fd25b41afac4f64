//! What the daemon's configuration says is recorded, and goes on as it is where nothing about it changes.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use integration_tests::{
    daemon::{Daemon, GID, ROOT, User},
    harness::{
        Caller, Ended, Ledger, Report, agent, agent_path, is_getppid, name_of, program, run, wait_for,
    },
    trace_cmd,
};
use serde_json::{Value, json};

use super::{files, found, traces};

/// A rule for the calls of a [`Caller`].
const CALLS: &str = r#"{ what = { events = "raw_syscalls:sys_enter" }, filter = "id == 110" }"#;
/// The same for their returns.
const RETURNS: &str = r#"{ what = { events = "raw_syscalls:sys_exit" }, filter = "id == 110" }"#;

/// A session of what a process does.
fn session(name: &str, rules: &str, of: &Caller) -> String {
    let pid = of.pid();
    format!(
        "[sessions.{name}]\nscope.track.pid = [\"{pid}\"]\n\n[[sessions.{name}.channels]]\nrules = [{rules}]\n"
    )
}

/// The files of a session that names no directory.
fn files_of(daemon: &Daemon, name: &str) -> Vec<PathBuf> {
    files(&daemon.path().join("state/sessions").join(name))
}

/// The names of root's sessions that are started.
fn sessions(daemon: &Daemon) -> Vec<String> {
    let all = daemon.tell("GET", "/v1/sessions", None);
    let active = all.as_array().unwrap().iter().filter(|of| of["active"] == true);
    active.map(|of| of["name"].as_str().unwrap().to_owned()).collect()
}

fn stop(daemon: &Daemon, name: &str) {
    daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
}

/// The events that the files have, and those that they say were lost.
fn recorded_and_lost(files: &[PathBuf]) -> u64 {
    found(files) + files.iter().map(|file| Ledger::of(file).lost()).sum::<u64>()
}

/// What the last reading has led to, when it is what is waited for: files that are written one by one may be
/// read in between.
fn last(daemon: &Daemon, is_it: impl Fn(&Value) -> bool) -> Value {
    wait_for("the configuration", || {
        let told = daemon.tell("GET", "/v1/configuration", None)["last"].clone();
        is_it(&told).then_some(told)
    })
}

fn no_change() -> Value {
    json!({"mistakes": [], "changes": [], "failures": []})
}

/// A caller that makes calls until it is told to end.
struct Calling {
    is_over: Arc<AtomicBool>,
    calls: JoinHandle<Caller>,
}

impl Calling {
    fn start(mut caller: Caller) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let calls = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                caller.call(200);
                std::thread::sleep(Duration::from_millis(2));
            }
            caller.settle();
            caller
        });
        Self { is_over, calls }
    }

    fn end(self) -> Caller {
        self.is_over.store(true, Ordering::Relaxed);
        self.calls.join().unwrap()
    }
}

#[test]
fn what_the_files_say_is_recorded() {
    let mut caller = Caller::start();
    let daemon = Daemon::start_configured("");
    assert_eq!(sessions(&daemon), [""; 0]);
    let text = session("one", CALLS, &caller) + &session("two", CALLS, &caller);
    let more = daemon.config().with_file_name("conf.d");
    fs::create_dir(&more).unwrap();
    fs::write(more.join("10-two.toml"), "[sessions.two]\nenabled = false\n").unwrap();
    fs::write(more.join("20-three.toml"), session("three", RETURNS, &caller)).unwrap();
    fs::write(more.join("30-not-read"), "nonsense").unwrap();
    fs::write(more.join(".40-not-read.toml"), "nonsense").unwrap();
    fs::write(daemon.config(), text).unwrap();
    wait_for("the sessions", || (sessions(&daemon) == ["one", "three"]).then_some(()));
    caller.call(3000);
    caller.settle();
    // Of the file that switches it off.
    fs::remove_file(more.join("10-two.toml")).unwrap();
    wait_for("the session", || (sessions(&daemon) == ["one", "three", "two"]).then_some(()));
    caller.call(500);
    caller.settle();
    for name in ["one", "two", "three"] {
        stop(&daemon, name);
    }
    let [one, two, three] = ["one", "two", "three"].map(|name| files_of(&daemon, name));
    assert_eq!((one.len(), two.len(), three.len()), (1, 1, 1));
    let stock = trace_cmd::report(&one[0], &[]);
    assert_eq!(stock.lines().filter(|line| is_getppid(line)).count() as u64, caller.calls());
    assert_eq!(found(&two), 500);
    let returns = Report::of(&three[0]).count(|line| name_of(line) == "sys_exit");
    assert_eq!(returns, caller.calls());
    // What goes from the files ends, and its files stay.
    fs::remove_file(more.join("20-three.toml")).unwrap();
    let told = last(&daemon, |told| told["changes"] == json!(["session three removed"]));
    assert_eq!((&told["mistakes"], &told["failures"]), (&json!([]), &json!([])));
    assert_eq!(daemon.ask("GET", "/v1/sessions/three", None).0, 404);
    assert_eq!(files_of(&daemon, "three"), three);
}

#[test]
fn rules_come_and_go_without_a_gap_and_what_is_as_before_goes_on() {
    let (caller, mut other) = (Caller::start(), Caller::start());
    let text = |rules: &str, other: &Caller| session("one", rules, &caller) + &session("other", CALLS, other);
    let (few, more) = (text(CALLS, &other), text(&format!("{CALLS}, {RETURNS}"), &other));
    let daemon = Daemon::start_configured(&few);
    let calling = Calling::start(caller);
    for turn in 0..3 {
        other.call(100);
        assert_eq!(daemon.configure(&more)["changes"], json!(["session one changed"]), "{turn}");
        other.call(100);
        // As `systemctl reload` asks for it; nothing is other than before.
        assert_eq!(daemon.read_after(|| daemon.signal(libc::SIGHUP)), no_change());
        assert_eq!(daemon.configure(&few)["changes"], json!(["session one changed"]), "{turn}");
    }
    let caller = calling.end();
    other.settle();
    stop(&daemon, "one");
    stop(&daemon, "other");
    let (of_one, of_other) = (files_of(&daemon, "one"), files_of(&daemon, "other"));
    assert_eq!((of_one.len(), of_other.len()), (1, 1), "rules change within a trace chunk");
    assert_eq!(recorded_and_lost(&of_one), caller.calls());
    assert_eq!(found(&of_other), other.calls());
    let returns = Report::of(&of_one[0]).count(|line| name_of(line) == "sys_exit");
    assert!(returns > 0 && returns < caller.calls(), "{returns} of {}", caller.calls());
}

#[test]
fn other_rings_begin_a_chunk_without_a_gap() {
    let caller = Caller::start();
    let text = session("one", CALLS, &caller);
    let daemon = Daemon::start_configured(&text);
    let calling = Calling::start(caller);
    for size in ["8M", "2M"] {
        // Some of the events are of each chunk.
        std::thread::sleep(Duration::from_millis(100));
        let told = daemon.configure(&format!("{text}ring_bytes = {}\n", integer(size)));
        assert_eq!(told["changes"], json!(["session one changed"]), "{told}");
    }
    std::thread::sleep(Duration::from_millis(100));
    let caller = calling.end();
    stop(&daemon, "one");
    let there = files_of(&daemon, "one");
    assert_eq!(there.len(), 3, "{there:?}");
    assert!(there.iter().all(|file| Report::of(file).count(is_getppid) > 0), "{there:?}");
    assert_eq!(recorded_and_lost(&there), caller.calls());
}

/// Bytes of a text as `8M`.
fn integer(size: &str) -> u64 {
    size.strip_suffix('M').unwrap().parse::<u64>().unwrap() << 20
}

#[test]
fn changes_of_files_are_seen_however_they_are_made() {
    let mut caller = Caller::start();
    let text = |names: &[&str]| names.iter().map(|name| session(name, CALLS, &caller)).collect::<String>();
    let all: Vec<String> =
        [&["one"][..], &["one", "two"], &["one", "three"], &["one", "four"]].map(text).into();
    let daemon = Daemon::start_configured(&all[0]);
    let etc = daemon.config().parent().unwrap().to_owned();
    daemon.configure(&all[1]);
    assert_eq!(sessions(&daemon), ["one", "two"], "in place");
    daemon.read_after(|| {
        fs::write(etc.join("agent.toml.new"), &all[2]).unwrap();
        fs::rename(etc.join("agent.toml.new"), daemon.config()).unwrap();
    });
    wait_for("the new file", || (sessions(&daemon) == ["one", "three"]).then_some(()));
    // As Kubernetes has it of a ConfigMap: links into a directory by way of a link that is replaced.
    let more = |name: &str| {
        format!("[sessions.{name}]\nmode = \"snapshot\"\n[[sessions.{name}.channels]]\nrules = [{CALLS}]\n")
    };
    let make = |name: &str, text: &str, extra: &str| {
        let dir = etc.join(name);
        fs::create_dir_all(dir.join("conf.d")).unwrap();
        fs::write(dir.join("agent.toml"), text).unwrap();
        fs::write(dir.join("conf.d/more.toml"), more(extra)).unwrap();
        symlink(name, etc.join("..data_tmp")).unwrap();
        fs::rename(etc.join("..data_tmp"), etc.join("..data")).unwrap();
    };
    daemon.read_after(|| {
        make("..first", &all[2], "five");
        symlink("..data/conf.d", etc.join("conf.d")).unwrap();
        symlink("..data/agent.toml", etc.join("linked")).unwrap();
        fs::rename(etc.join("linked"), daemon.config()).unwrap();
    });
    wait_for("the links", || (sessions(&daemon) == ["five", "one", "three"]).then_some(()));
    daemon.read_after(|| make("..second", &all[3], "six"));
    fs::remove_dir_all(etc.join("..first")).unwrap();
    wait_for("the new links", || (sessions(&daemon) == ["four", "one", "six"]).then_some(()));
    // A file in the directory that the link leads to now.
    fs::write(etc.join("..second/conf.d/more.toml"), more("seven")).unwrap();
    wait_for("the file behind the link", || (sessions(&daemon) == ["four", "one", "seven"]).then_some(()));
    caller.call(700);
    caller.settle();
    stop(&daemon, "one");
    let of_one = files_of(&daemon, "one");
    assert_eq!((of_one.len(), found(&of_one)), (1, caller.calls()), "it has gone on all the time");
    let told = daemon.tell("GET", "/v1/configuration", None);
    assert_eq!(told["refused"], 0, "{told}");
}

#[test]
fn mistakes_change_nothing_and_are_all_told() {
    let mut caller = Caller::start();
    let text = session("one", CALLS, &caller);
    let daemon = Daemon::start_configured(&text);
    caller.call(100);
    let wrong =
        format!("hots = \"a\"\n{}\n[metrics]\nlisten = \"nowhere\"\n", session("two", CALLS, &caller));
    let more = daemon.config().with_file_name("conf.d");
    fs::create_dir(&more).unwrap();
    fs::write(more.join("a.toml"), "[triggers.\"\u{e4}\"]\nactions = []\ncondition = 7\n").unwrap();
    fs::write(daemon.config(), wrong).unwrap();
    let told = last(&daemon, |told| told["mistakes"].as_array().unwrap().len() == 3);
    let mistakes: Vec<&str> =
        told["mistakes"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let (first, second) = (daemon.config(), more.join("a.toml"));
    let says = [(&first, "1:1: unknown field `hots`"), (&first, "9:10: "), (&second, "3:13: ")];
    for (mistake, (path, says)) in mistakes.iter().zip(says) {
        let start = format!("{}:{says}", path.display());
        assert!(mistake.starts_with(&start), "{start}: {mistakes:#?}");
        wait_for("the line of a mistake", || daemon.has_said(mistake).then_some(()));
    }
    assert_eq!((&told["changes"], &told["failures"]), (&json!([]), &json!([])));
    assert_eq!(sessions(&daemon), ["one"]);
    assert!(daemon.tell("GET", "/v1/configuration", None)["refused"].as_u64().unwrap() > 0);
    // A daemon does not start with it.
    let refused = ended(&daemon, &[]).expect(2);
    assert!(mistakes.iter().all(|mistake| refused.err.contains(mistake)), "{}", refused.err);
    // It is told by nobody but root.
    let user = User { uid: 61_002, gid: GID };
    assert_eq!(daemon.ask_as(user, "GET", "/v1/configuration", None).0, 403);
    fs::remove_file(second).unwrap();
    fs::write(daemon.config(), text).unwrap();
    // It is what is in force.
    last(&daemon, |told| *told == no_change());
    caller.call(100);
    caller.settle();
    stop(&daemon, "one");
    let of_one = files_of(&daemon, "one");
    assert_eq!((of_one.len(), found(&of_one)), (1, caller.calls()));
}

/// What another daemon says with the same configuration.
fn ended(daemon: &Daemon, options: &[&str]) -> Ended {
    let (socket, state) = (daemon.path().join("other.sock"), daemon.path().join("other"));
    let mut command = agent(daemon.path(), ["daemon", "--config"]);
    command.arg(daemon.config()).arg("--socket").arg(socket).arg("--state").arg(state).args(options);
    run(&mut command)
}

#[test]
fn a_configured_trace_is_archived_for_the_next_daemon_to_record_another() {
    let mut caller = Caller::start();
    let text = session("one", CALLS, &caller)
        .replace("[sessions.one]\n", "[sessions.one]\nformat = \"lttng\"\nkallsyms = \"none\"\n");
    let mut daemon = Daemon::start_configured(&text);
    let trace = daemon.path().join("state/sessions/one");
    for count in [300, 200] {
        caller.call(count);
        caller.settle();
        daemon.end().expect(0);
        daemon.start_again();
        assert_eq!(sessions(&daemon), ["one"], "{}", daemon.said());
    }
    caller.call(100);
    caller.settle();
    stop(&daemon, "one");
    let archives = files(&trace.join("archives"));
    let counts: Vec<u64> = archives.iter().map(|archive| traces::found(archive)).collect();
    assert_eq!((counts, traces::found(&trace.join("kernel"))), (vec![300, 200], 100));
    // What a daemon leaves that is killed is recovered first.
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(50);
    caller.settle();
    daemon.kill();
    daemon.start_again();
    wait_for("the recovery", || daemon.has_said("; the daemon was killed").then_some(()));
    daemon.read_after(|| daemon.signal(libc::SIGHUP));
    assert_eq!(sessions(&daemon), ["one"], "{}", daemon.said());
    let archives = files(&trace.join("archives"));
    // Events in pages that were not full have gone with the daemon.
    let counts: Vec<u64> = archives.iter().map(|archive| traces::found(archive)).collect();
    let [300, 200, recovered] = counts[..] else { panic!("{counts:?}: {}", daemon.said()) };
    assert!((100..=150).contains(&recovered), "{recovered}: {}", daemon.said());
}

#[test]
fn what_cannot_be_recorded_leaves_the_rest_and_is_tried_again() {
    let mut caller = Caller::start();
    let daemon = Daemon::start_configured("");
    let place = daemon.path().join("place");
    fs::write(&place, "in the way").unwrap();
    let late = session("late", CALLS, &caller)
        .replace("[sessions.late]\n", &format!("[sessions.late]\noutput = \"{}/of/it\"\n", place.display()));
    let none = session("none", r#"{ what = { events = "nosuch:event" } }"#, &caller);
    let trigger = |rule: &str| {
        format!(
            "[triggers.t]\ncondition.event_rule_matches = {{ domain = \"kernel\", rule = {{ name = \"{rule}\", \
             instrumentation = \"tracepoint\" }} }}\nactions = [{{ do = \"notify\" }}]\n"
        )
    };
    let text = session("one", CALLS, &caller) + &late + &none + &trigger("nosuch:event");
    let told = daemon.configure(&text);
    assert_eq!(told["changes"], json!(["session one added"]), "{told}");
    let failures = |told: &Value| -> Vec<String> {
        let all = told["failures"].as_array().unwrap();
        all.iter().map(|one| one.as_str().unwrap().split(": ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(failures(&told), ["session late", "session none", "trigger t"], "{told}");
    assert_eq!(sessions(&daemon), ["one"]);
    let health = daemon.tell("GET", "/v1/health", None);
    assert_eq!((&health["live"], &health["ready"]), (&json!(true), &json!(false)));
    assert_eq!(health["reasons"], told["failures"]);
    assert_eq!(daemon.ask("GET", "/v1/health/ready", None).0, 503);
    assert!(daemon.has_said("session none: "), "{}", daemon.said());
    // Mistakes that come meanwhile do not hide what is missing.
    let refused = daemon.configure("nonsense");
    assert_eq!((refused["mistakes"].as_array().unwrap().len(), &refused["failures"]), (1, &told["failures"]));
    daemon.configure(&text);
    fs::remove_file(&place).unwrap();
    wait_for("it to be tried again", || (sessions(&daemon) == ["late", "one"]).then_some(()));
    let told = last(&daemon, |told| told["changes"] == json!(["session late added"]));
    assert_eq!(failures(&told), ["session none", "trigger t"]);
    assert_eq!(daemon.said().matches("session none: ").count(), 1, "what fails again is told once");
    // A session goes on as it was when what it becomes cannot be recorded.
    let changed = session("one", &format!("{CALLS}, {{ what = {{ events = \"nosuch:event\" }} }}"), &caller);
    let told = daemon.configure(&changed);
    assert_eq!(failures(&told), ["session one"], "{told}");
    assert_eq!(daemon.tell("GET", "/v1/health", None)["ready"], false);
    caller.call(100);
    caller.settle();
    let told = daemon.configure(&session("one", CALLS, &caller));
    assert_eq!(told, no_change());
    assert_eq!(daemon.tell("GET", "/v1/health", None), json!({"live": true, "ready": true, "reasons": []}));
    stop(&daemon, "one");
    assert_eq!(found(&files_of(&daemon, "one")), caller.calls());
}

#[test]
fn clients_control_what_they_cannot_change() {
    let mut caller = Caller::start();
    let keeps = session("keeps", CALLS, &caller)
        .replace("[sessions.keeps]\n", "[sessions.keeps]\nmode = \"snapshot\"\n");
    let trigger = "[triggers.t]\ncondition.event_rule_matches = { domain = \"kernel\", rule = { name = \"oom:mark_victim\", \
                   instrumentation = \"tracepoint\" } }\nactions = [{ do = \"notify\" }]\n";
    let daemon = Daemon::start_configured(&(session("one", CALLS, &caller) + &keeps + trigger));
    let channel = daemon.tell("GET", "/v1/sessions/one", None)["domains"][0]["channels"][0]["name"].clone();
    let channel = format!("/v1/sessions/one/domains/kernel/channels/{}", channel.as_str().unwrap());
    let rule = super::calls();
    let refused = [
        ("DELETE", "/v1/sessions/one".to_owned(), None),
        ("POST", "/v1/sessions/one/domains/kernel/channels".to_owned(), Some(json!({"name": "more"}))),
        ("PATCH", channel.clone(), Some(json!({"enabled": false}))),
        ("POST", format!("{channel}/rules"), Some(rule)),
        ("POST", "/v1/sessions/one/domains/kernel/trackers".to_owned(), Some(super::only(1))),
        ("DELETE", "/v1/triggers/t".to_owned(), None),
    ];
    for (method, path, body) in refused {
        let (status, answer) = daemon.ask(method, &path, body.as_ref());
        assert!(status >= 400, "{method} {path}: {status} {answer}");
        assert!(answer["message"].as_str().unwrap().contains("configuration"), "{method} {path}: {answer}");
    }
    assert_eq!(sessions(&daemon), ["keeps", "one"]);
    caller.call(300);
    caller.settle();
    let rotation = daemon.tell("POST", "/v1/sessions/one/rotations", None);
    wait_for("the archive", || {
        let path = format!("/v1/sessions/one/rotations/{}", rotation["id"]);
        (daemon.tell("GET", &path, None)["state"] == "completed").then_some(())
    });
    caller.call(200);
    caller.settle();
    stop(&daemon, "one");
    caller.call(1000);
    caller.settle();
    assert_eq!(daemon.read_after(|| daemon.signal(libc::SIGHUP)), no_change());
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(50);
    caller.settle();
    stop(&daemon, "one");
    assert_eq!((files_of(&daemon, "one").len(), found(&files_of(&daemon, "one"))), (3, 550));
    let taken = daemon.tell("POST", "/v1/sessions/keeps/snapshots", Some(&json!({})));
    let path = PathBuf::from(taken["path"].as_str().unwrap());
    assert_eq!(
        (path.parent(), found(std::slice::from_ref(&path))),
        (Some(&*daemon.path().join("state/sessions/keeps")), caller.calls())
    );
}

#[test]
fn a_daemon_that_is_replaced_hands_configured_sessions_over() {
    let mut caller = Caller::start();
    let trigger = format!(
        "[triggers.t]\ncondition.event_rule_matches = {{ domain = \"kernel\", rule = {{ name = \
         \"raw_syscalls:sys_enter\", instrumentation = \"tracepoint\", filter = \"id == 110 && common_pid == {}\" }} \
         }}\nactions = [{{ do = \"notify\" }}]\n",
        caller.pid()
    );
    let text = session("one", CALLS, &caller);
    let mut daemon = Daemon::start_configured(&(text.clone() + &trigger)).supervised();
    let fired = |daemon: &Daemon| {
        let triggers = daemon.tell("GET", "/v1/triggers", None);
        assert_eq!(
            (&triggers[0]["name"], &triggers[0]["configured"]),
            (&json!("t"), &json!(true)),
            "{triggers}"
        );
        triggers[0]["fired"].as_u64().unwrap()
    };
    caller.call(10);
    caller.settle();
    wait_for("the trigger", || (fired(&daemon) == 10).then_some(()));
    let files_before = files_of(&daemon, "one");
    let closed = files_before.iter().filter(|file| file.extension().is_some_and(|end| end == "dat")).count();
    assert_eq!(closed, 1, "of the daemon that has ended: {files_before:?}");
    for _ in 0..2 {
        daemon.replace();
        assert_eq!(daemon.tell("GET", "/v1/configuration", None)["last"], no_change());
        assert!(fired(&daemon) >= 10);
        wait_for("the watch", || {
            daemon.tell("GET", "/v1/triggers", None)[0]["problem"].is_null().then_some(())
        });
        caller.call(500);
        caller.settle();
    }
    assert_eq!(files_of(&daemon, "one"), files_before, "it records where it did");
    wait_for("the trigger", || (fired(&daemon) > 10).then_some(()));
    // What has changed in the files meanwhile is done by the next one.
    daemon.let_go();
    fs::write(daemon.config(), text + &session("two", CALLS, &caller)).unwrap();
    daemon.start_again();
    let told = daemon.tell("GET", "/v1/configuration", None);
    assert_eq!(told["last"]["changes"], json!(["trigger t removed", "session two added"]), "{told}");
    caller.call(100);
    caller.settle();
    stop(&daemon, "one");
    stop(&daemon, "two");
    let (one, two) = (files_of(&daemon, "one"), files_of(&daemon, "two"));
    assert_eq!((one.len(), found(&one), found(&two)), (closed + 1, caller.calls(), 100));
}

#[test]
fn files_that_others_can_change_are_refused() {
    let daemon = Daemon::start_configured("");
    let more = daemon.config().with_file_name("conf.d");
    let etc = daemon.config().parent().unwrap().to_owned();
    fs::create_dir(&more).unwrap();
    fs::write(more.join("a.toml"), "").unwrap();
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let refused = |says: &str| {
        daemon.signal(libc::SIGHUP);
        last(&daemon, |told| told["mistakes"][0].as_str().is_some_and(|text| text.contains(says)));
    };
    for path in [daemon.config(), more.clone(), more.join("a.toml"), etc] {
        let before = fs::metadata(&path).unwrap().permissions();
        for bits in [0o020, 0o002] {
            mode(&path, before.mode() | bits);
            refused("other users can change it");
        }
        mode(&path, before.mode());
        chown(&path, Some(61_003), None).unwrap();
        refused("user 61003 owns it");
        chown(&path, Some(0), None).unwrap();
    }
    // A link leads to another user's file.
    let of_user = daemon.path().join("of-user");
    fs::write(&of_user, "").unwrap();
    chown(&of_user, Some(61_003), None).unwrap();
    symlink(&of_user, more.join("b.toml")).unwrap();
    refused("user 61003 owns it");
    fs::remove_file(more.join("b.toml")).unwrap();
    last(&daemon, |told| *told == no_change());
}

/// The program and a configuration where others can read them.
struct Public {
    dir: tempfile::TempDir,
    agent: PathBuf,
}

impl Public {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let agent = dir.path().join("tracer-agent");
        fs::copy(agent_path(), &agent).unwrap();
        fs::write(dir.path().join("agent.toml"), text).unwrap();
        Self { dir, agent }
    }

    fn check_as(&self, user: User) -> Ended {
        self.run_as(user, &["daemon", "--config", "agent.toml", "--check"])
    }

    fn run_as(&self, user: User, args: &[&str]) -> Ended {
        let ids = [format!("--reuid={}", user.uid), format!("--regid={}", user.gid), "--clear-groups".into()];
        run(program(self.dir.path(), "setpriv", ids).arg(&self.agent).args(args))
    }
}

#[test]
fn a_configuration_can_be_checked_by_who_writes_it() {
    let user = User { uid: 61_004, gid: GID };
    let text = format!(
        "[sessions.one]\n[[sessions.one.channels]]\nrules = [{CALLS}, {RETURNS}]\n\n[sessions.two]\nmode = \"snapshot\"\n\
         [[sessions.two.channels]]\nrules = [{CALLS}]\n"
    );
    let public = Public::new(&text);
    let read = "agent.toml: 1 file read, with 2 sessions and 0 triggers\n";
    let root = public.check_as(ROOT).expect(0);
    assert_eq!(
        root.out,
        format!("{read}session one: 2 events on this kernel\nsession two: 1 event on this kernel\n")
    );
    let other = public.check_as(user).expect(0);
    assert_eq!(
        other.out,
        format!("{read}whether this kernel can record it is not checked: that takes root\n")
    );
    let path = public.dir.path().join("agent.toml");
    fs::write(&path, text.replace("raw_syscalls:sys_exit", "nosuch:event")).unwrap();
    let root = public.check_as(ROOT).expect(1);
    assert!(root.out.contains("\nsession one: this kernel cannot record it: "), "{}", root.out);
    assert!(root.out.ends_with("session two: 1 event on this kernel\n"), "{}", root.out);
    public.check_as(user).expect(0);
    fs::write(&path, text.replace("snapshot", "none").replace("what", "how")).unwrap();
    for user in [ROOT, user] {
        let wrong = public.check_as(user).expect(2);
        for place in ["agent.toml:3:", "agent.toml:6:8: unknown variant `none`", "agent.toml:8:"] {
            assert!(wrong.err.contains(place), "{place}: {}", wrong.err);
        }
    }
    chown(&path, Some(user.uid), None).unwrap();
    fs::write(&path, "").unwrap();
    public.check_as(ROOT).expect(2).says(&["agent.toml", "user 61004 owns it", "chown root"]);
    chown(public.dir.path(), Some(user.uid), None).unwrap();
    public.check_as(user).expect(0);
    fs::remove_file(&path).unwrap();
    public.check_as(user).expect(2).says(&["agent.toml", "No such file"]);
}

#[test]
fn health_is_told_by_exit_codes() {
    let caller = Caller::start();
    let user = User { uid: 61_005, gid: GID };
    let mut daemon = Daemon::start_configured(&session("one", CALLS, &caller));
    let public = Public::new("");
    let socket = daemon.socket();
    let health = |user: User, option: &str| {
        public.run_as(user, &["health", option, "--socket", socket.to_str().unwrap()])
    };
    for user in [ROOT, user] {
        assert_eq!(health(user, "--live").expect(0).out, "alive\n");
        assert_eq!(health(user, "--ready").expect(0).out, "ready\n");
    }
    stop(&daemon, "one");
    assert_eq!(health(ROOT, "--live").expect(0).out, "alive\n");
    assert_eq!(health(ROOT, "--ready").expect(1).out, "not ready: the session one is stopped\n");
    let all: Value = serde_json::from_str(&health(ROOT, "--json").expect(1).out).unwrap();
    assert_eq!(all, json!({"live": true, "ready": false, "reasons": ["the session one is stopped"]}));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    assert_eq!(health(ROOT, "--ready").expect(0).out, "ready\n");
    daemon.end().expect(0);
    for option in ["--live", "--ready"] {
        let none = health(ROOT, option);
        assert_ne!(none.code(), 0);
        assert!(none.err.contains(socket.to_str().unwrap()), "{}", none.err);
    }
    daemon.start_again();
}

#[test]
fn a_flight_recorder_keeps_what_its_size_holds() {
    let mut caller = Caller::start();
    let text = |size: &str| {
        let of = session("one", CALLS, &caller);
        let mode = format!("[sessions.one]\nmode = \"snapshot\"\nkeep.size = \"{size}\"\n");
        of.replace("[sessions.one]\n", &mode)
    };
    let (small, large) = (text("256K"), text("64M"));
    let daemon = Daemon::start_configured(&small);
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let room = |daemon: &Daemon| {
        let usage = daemon.tell("GET", "/v1/sessions/one/usage", None);
        let cpus = usage["channels"][0]["cpus"].as_array().unwrap();
        cpus.iter().map(|cpu| cpu["rings"]["room_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let snapshot = |daemon: &Daemon| {
        let taken = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
        let file = PathBuf::from(taken["path"].as_str().unwrap());
        assert_eq!(taken["events"], found(std::slice::from_ref(&file)));
        taken["events"].as_u64().unwrap()
    };
    caller.call(50_000);
    caller.settle();
    assert!(room(&daemon) <= (256 << 10) + cpus * 4096, "{}", room(&daemon));
    let kept = snapshot(&daemon);
    // 72 bytes of a record at most, and less than all that were made.
    assert!(kept > 1000 && kept < 256 * 1024 / 32, "{kept}");
    daemon.configure(&large);
    assert!(room(&daemon) > 32 << 20, "{}", room(&daemon));
    let before = caller.calls();
    caller.call(50_000);
    caller.settle();
    assert_eq!(snapshot(&daemon), caller.calls() - before, "all of them have room");
}
