//! What the daemon's configuration says is recorded, and goes on as it is where nothing about it changes.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use integration_tests::{
    daemon::{Daemon, GID, ROOT, User},
    harness::{Caller, Ended, agent_path, program, run, wait_for},
};
use serde_json::{Value, json};

use super::{files, found};

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

/// The names of root's sessions.
fn sessions(daemon: &Daemon) -> Vec<String> {
    let all = daemon.tell("GET", "/v1/sessions", None);
    all.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect()
}

fn stop(daemon: &Daemon, name: &str) {
    daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
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
        assert_eq!(status, 501, "{method} {path}: {answer}");
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
