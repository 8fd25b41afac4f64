//! What configured sessions close gets to an object store that was not written here, and stays on the machine
//! as long as the configuration says.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, Tmpfs, agent, program, run, wait_for},
    object_store::{BUCKET, Faults, Moto, Proxy, has_exactly},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::files;

/// A rule for the calls of a [`Caller`].
const CALLS: &str = r#"{ what = { events = "raw_syscalls:sys_enter" }, filter = "id == 110" }"#;
/// What is in the file with credentials.
const CREDENTIALS: &str = "AWS_ACCESS_KEY_ID = \"testing\"\nAWS_SECRET_ACCESS_KEY = \"testing-secret\"\n";

/// A store, and the way to it.
pub(super) struct Store {
    pub(super) dir: TempDir,
    pub(super) moto: Moto,
    pub(super) proxy: Proxy,
}

impl Store {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let moto = Moto::start();
        let proxy = Proxy::start(moto.address(), Faults::default(), 11);
        let store = Self { dir, moto, proxy };
        store.write_credentials(CREDENTIALS);
        store
    }

    fn credentials(&self) -> PathBuf {
        self.dir.path().join("credentials")
    }

    fn write_credentials(&self, text: &str) {
        fs::write(self.credentials(), text).unwrap();
        fs::set_permissions(self.credentials(), Permissions::from_mode(0o600)).unwrap();
    }

    /// The table of a configuration, without its credentials.
    fn open_table(&self) -> String {
        format!(
            "[upload]\nurl = \"s3://{BUCKET}/fleet\"\nendpoint = \"{}\"\nallow_http = true\nregion = \"us-east-1\"\n\
             site = \"lab\"\nmax_backoff = \"1s\"\n",
            self.proxy.url()
        )
    }

    pub(super) fn table(&self) -> String {
        format!("{}credentials_file = \"{}\"\n\n", self.open_table(), self.credentials().display())
    }

    /// Waits until the store has so many archives.
    #[track_caller]
    fn wait_for(&self, count: usize) {
        wait_for("the archives", || (self.moto.keys().len() == count).then_some(()));
    }
}

/// A session of what a process does, with more of its keys.
fn session(name: &str, more: &str, of: &Caller) -> String {
    let pid = of.pid();
    format!(
        "[sessions.{name}]\nkallsyms = \"none\"\n{more}scope.track.pid = [\"{pid}\"]\n\n\
         [[sessions.{name}.channels]]\nrules = [{CALLS}]\n\n"
    )
}

/// Closes what a session has recorded.
#[track_caller]
fn rotate(daemon: &Daemon, name: &str) {
    let id = daemon.tell("POST", &format!("/v1/sessions/{name}/rotations"), None)["id"].clone();
    wait_for("the archive", || {
        let rotation = daemon.tell("GET", &format!("/v1/sessions/{name}/rotations/{id}"), None);
        (rotation["state"] == "completed").then_some(())
    });
}

/// The closed archives of a directory.
fn closed(dir: &Path) -> Vec<PathBuf> {
    let mut files = files(dir);
    files.retain(|file| file.extension().is_some_and(|end| end == "dat") && file.is_file());
    files
}

fn directory_of(daemon: &Daemon, name: &str) -> PathBuf {
    daemon.path().join("state/sessions").join(name)
}

/// The value of a metric without labels, or with those that are named.
#[track_caller]
pub(super) fn metric(daemon: &Daemon, name: &str) -> u64 {
    daemon.metric(name).unwrap_or_else(|| panic!("no {name} in {}", daemon.metrics_as(ROOT, false)))
}

#[track_caller]
fn wait_for_metric(daemon: &Daemon, name: &str, value: u64) {
    let found = wait_for(name, || Some(metric(daemon, name)).filter(|found| *found >= value));
    assert_eq!(found, value, "{name}: {}", daemon.said());
}

/// Has the daemon look at what there is.
fn look(daemon: &Daemon) -> Value {
    daemon.read_after(|| daemon.signal(libc::SIGHUP))
}

/// The same while the store is down, and waits until all of a look is done: what comes to the directory waits
/// for the store then, and what comes after that in the next look.
#[track_caller]
fn look_at(daemon: &Daemon, dir: &Path) {
    let names = ["first.dat", "second.dat"].map(|name| dir.join(name));
    for name in &names {
        let queued = metric(daemon, "tracer_agent_upload_queued_archives");
        fs::write(name, "x").unwrap();
        look(daemon);
        wait_for_metric(daemon, "tracer_agent_upload_queued_archives", queued + 1);
    }
    for name in &names {
        fs::remove_file(name).unwrap();
    }
}

#[test]
fn every_closed_archive_is_stored_once_through_restarts_and_a_kill() {
    let (store, mut caller) = (Store::start(), Caller::start());
    let text = "host = \"web-17\"\n\n".to_owned()
        + &store.table()
        + &session("one", "", &caller)
        + &session("not", "upload = false\n", &caller);
    let mut daemon = Daemon::start_configured(&text);
    let dir = directory_of(&daemon, "one");
    for _ in 0..3 {
        caller.call(300);
        rotate(&daemon, "one");
    }
    rotate(&daemon, "not");
    wait_for_metric(&daemon, "tracer_agent_upload_stored_archives_total", 3);
    let bytes: u64 = closed(&dir).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(metric(&daemon, "tracer_agent_upload_stored_bytes_total"), bytes);
    assert_eq!(metric(&daemon, "tracer_agent_upload_queued_archives"), 0);
    assert_eq!(metric(&daemon, "tracer_agent_upload_oldest_unsent_seconds"), 0);
    has_exactly(&store.moto, &closed(&dir));
    let names = store.moto.objects();
    let is_named = |object: &Value| {
        let parts: Vec<&str> = object["key"].as_str().unwrap().split('/').collect();
        matches!(parts[..], ["fleet", "lab", _, "web-17", "one", _])
    };
    assert!(names.iter().all(is_named), "{names:?}");
    // It is killed while some of them are on their way.
    store.proxy.set_down(true);
    for _ in 0..5 {
        caller.call(300);
        rotate(&daemon, "one");
    }
    store.proxy.set_faults(Faults { delay: 400, ..Faults::default() });
    store.proxy.set_down(false);
    let puts = |store: &Store| store.proxy.requests().iter().filter(|of| of.method == "PUT").count();
    wait_for("another one to be sent", || (puts(&store) > 3).then_some(()));
    daemon.kill();
    assert!(puts(&store) < 8, "it was killed before all were stored");
    assert_eq!(closed(&dir).len(), 8);
    store.proxy.set_faults(Faults::default());
    daemon.start_again();
    // The last one is what was recovered.
    store.wait_for(9);
    has_exactly(&store.moto, &closed(&dir));
    // What a stop closes goes with the next daemon, if this one has not the time.
    store.proxy.set_down(true);
    caller.call(300);
    daemon.end().expect(0);
    assert_eq!(closed(&dir).len(), 10);
    store.proxy.set_down(false);
    daemon.start_again();
    store.wait_for(10);
    has_exactly(&store.moto, &closed(&dir));
    assert!(!closed(&directory_of(&daemon, "not")).is_empty());
    // What is not sent twice has no other name either.
    let mut targets: Vec<_> = store.proxy.requests().into_iter().filter(|of| of.method == "PUT").collect();
    targets.sort_by(|one, other| one.target.cmp(&other.target));
    targets.dedup_by(|one, other| one.target == other.target);
    assert_eq!(targets.len(), 10, "{targets:?}");
}

#[test]
fn snapshots_and_traces_are_stored_and_uploads_go_on_through_changes_and_replaced_daemons() {
    let (store, mut caller) = (Store::start(), Caller::start());
    let sessions = session("keeps", "mode = \"snapshot\"\n", &caller) + &session("one", "", &caller);
    let mut daemon = Daemon::start_configured(&sessions).supervised();
    caller.call(300);
    caller.settle();
    // Closed before there is a store.
    rotate(&daemon, "one");
    assert!(!daemon.metrics_as(ROOT, false).contains("tracer_agent_upload"), "there is no store");
    let sessions = sessions + &session("ctf", "format = \"lttng\"\n", &caller);
    let text = store.table() + &sessions;
    assert_eq!(daemon.configure(&text)["changes"], json!(["upload begun", "session ctf added"]));
    caller.call(300);
    caller.settle();
    assert_eq!(look(&daemon)["changes"], json!([]));
    store.wait_for(2);
    has_exactly(&store.moto, &closed(&directory_of(&daemon, "one")));
    daemon.tell("POST", "/v1/sessions/keeps/snapshots", Some(&json!({})));
    rotate(&daemon, "ctf");
    store.wait_for(4);
    // The trace is in the tar file as it is here.
    let objects = store.moto.objects();
    let mut keys = objects.iter().map(|object| object["key"].as_str().unwrap());
    let tar = keys.find(|key| key.contains("/ctf/")).unwrap();
    let mut get = agent(store.dir.path(), ["get", "--allow-http", "--credentials-file"]);
    get.arg(store.credentials())
        .arg(format!("s3://{BUCKET}/{tar}"))
        .env("AWS_ENDPOINT_URL", store.proxy.url());
    run(&mut get).expect(0);
    let name = tar.rsplit('/').next().unwrap();
    run(&mut program(store.dir.path(), "tar", ["-xf", name])).expect(0);
    let [trace] = &files(&directory_of(&daemon, "ctf").join("archives"))[..] else { panic!("one archive") };
    let unpacked = store.dir.path().join(trace.file_name().unwrap());
    run(program("/".as_ref(), "diff", ["-r"]).args([trace, &unpacked])).expect(0);
    // Another site is for what comes; a daemon that is replaced leaves what waits to the next one.
    let text = text.replace("site = \"lab\"", "site = \"plant\"");
    assert_eq!(daemon.configure(&text)["changes"], json!(["upload changed"]));
    store.proxy.set_down(true);
    rotate(&daemon, "one");
    wait_for_metric(&daemon, "tracer_agent_upload_queued_archives", 1);
    assert_eq!(metric(&daemon, "tracer_agent_upload_stored_archives_total"), 4, "counts go on");
    wait_for("a failure", || {
        (metric(&daemon, "tracer_agent_upload_failures_total{cause=\"connect\"}") > 0).then_some(())
    });
    daemon.replace();
    store.proxy.set_down(false);
    store.wait_for(5);
    let objects = store.moto.objects();
    let of_plant = objects.iter().filter(|of| of["key"].as_str().unwrap().starts_with("fleet/plant/"));
    assert_eq!(of_plant.count(), 1, "{objects:?}");
    assert_eq!(daemon.tell("GET", "/v1/health", None)["ready"], true);
    // Credentials that are replaced are read again.
    store.write_credentials(&format!("# of today\n{CREDENTIALS}"));
    daemon.signal(libc::SIGHUP);
    wait_for("the credentials", || {
        let said = ["upload changed", "the credentials that there are now"];
        said.iter().any(|said| daemon.has_said(said)).then_some(())
    });
    // Without its credentials, uploads cannot begin, which is told.
    fs::set_permissions(store.credentials(), Permissions::from_mode(0o644)).unwrap();
    let told = daemon.configure(&text.replace("plant", "yard"));
    assert!(told["failures"][0].as_str().unwrap().contains("chmod 600"), "{told}");
    assert_eq!(daemon.configure(&sessions)["failures"], json!([]));
}

#[test]
fn only_what_is_stored_is_deleted_unless_the_disk_is_too_full() {
    let (store, mut caller) = (Store::start(), Caller::start());
    let disk = Tmpfs::mount("size=64m,mode=700");
    let output = disk.path().join("out");
    let sessions = session("one", &format!("output = \"{}\"\n", output.display()), &caller);
    let text = |retention: &str| format!("[retention]\n{retention}\n\n{sessions}");
    let with_store = |retention: &str| store.table() + &text(retention);
    let daemon = Daemon::start_configured(&with_store("max_bytes = \"1G\""));
    let mut make = |count| {
        for _ in 0..count {
            caller.call(20_000);
            caller.settle();
            rotate(&daemon, "one");
        }
    };
    make(2);
    wait_for_metric(&daemon, "tracer_agent_upload_stored_archives_total", 2);
    look(&daemon);
    assert_eq!(closed(&output).len(), 2, "there is room for them");
    store.proxy.set_down(true);
    make(4);
    let all = closed(&output);
    let told = daemon.configure(&with_store("max_bytes = 1"));
    assert_eq!(told["changes"], json!(["retention changed"]), "{told}");
    wait_for_metric(&daemon, "tracer_agent_archives_deleted_total", 2);
    assert_eq!(closed(&output), all[2..], "those that are stored");
    // As full as if one and a half of them were too much.
    let size = |file: &PathBuf| file.metadata().unwrap().len();
    let least = 16 << 20;
    disk.fill_but(least - size(&all[2]) - size(&all[3]) / 2);
    let full = |unsent: &str| with_store(&format!("min_free_bytes = {least}\nunsent = \"{unsent}\""));
    daemon.configure(&full("keep"));
    look_at(&daemon, &output);
    assert_eq!(closed(&output), all[2..]);
    assert_eq!(metric(&daemon, "tracer_agent_archives_deleted_unsent_total"), 0);
    let deleted = size(&all[2]) + size(&all[3]);
    daemon.configure(&full("delete-oldest"));
    wait_for_metric(&daemon, "tracer_agent_archives_deleted_unsent_total", 2);
    assert_eq!(metric(&daemon, "tracer_agent_archives_deleted_unsent_bytes_total"), deleted);
    assert_eq!(closed(&output), all[4..], "the oldest ones");
    assert!(daemon.has_said("was deleted before it was stored"), "{}", daemon.said());
    fs::remove_file(disk.path().join("filler")).unwrap();
    // Where there is no store, nothing waits for one. What is recorded now stays.
    let told = daemon.configure(&text("max_bytes = 1"));
    assert_eq!(told["changes"], json!(["upload ended", "retention changed"]), "{told}");
    wait_for_metric(&daemon, "tracer_agent_archives_deleted_total", 4);
    assert_eq!(closed(&output), [""; 0].map(PathBuf::from));
    caller.call(100);
    caller.settle();
    daemon.configure(&sessions);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(super::found(&closed(&output)), 100, "what was recorded was never deleted");
}

#[test]
fn a_full_disk_keeps_nothing_from_the_store() {
    let (store, mut caller) = (Store::start(), Caller::start());
    let disk = Tmpfs::mount("size=32m,mode=700");
    let text = store.table() + &session("one", "", &caller);
    let daemon = Daemon::start_configured_in(disk.path(), &text);
    store.proxy.set_down(true);
    for _ in 0..2 {
        caller.call(300);
        caller.settle();
        rotate(&daemon, "one");
    }
    wait_for_metric(&daemon, "tracer_agent_upload_queued_archives", 2);
    disk.fill_but(0);
    store.proxy.set_down(false);
    wait_for_metric(&daemon, "tracer_agent_upload_stored_archives_total", 2);
    has_exactly(&store.moto, &closed(&disk.path().join("sessions/one")));
}

#[test]
fn secrets_are_told_nobody() {
    const SECRETS: [&str; 3] = ["SWORDFISH-KEY-ID", "SWORDFISH-SECRET", "SWORDFISH-TOKEN"];
    const NAMES: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    let (store, caller) = (Store::start(), Caller::start());
    let lines = NAMES.iter().zip(SECRETS).map(|(name, value)| format!("{name} = \"{value}\"\n"));
    store.write_credentials(&lines.collect::<String>());
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>It is wrong: {}</Message>\
         <AWSAccessKeyId>{}</AWSAccessKeyId><StringToSign>x-amz-security-token:{}</StringToSign></Error>",
        SECRETS[1], SECRETS[0], SECRETS[2]
    );
    let length = body.len();
    store.proxy.answer(&format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    ));
    let sessions = session("one", "", &caller);
    let of_environment = store.open_table() + "\n" + &sessions;
    let mut daemon = Daemon::start_configured(&(store.table() + &sessions));
    rotate(&daemon, "one");
    let refused = |daemon: &Daemon| metric(daemon, "tracer_agent_upload_failures_total{cause=\"refused\"}");
    for from_file in [true, false] {
        let mut before = 0;
        if !from_file {
            for (name, value) in NAMES.iter().zip(SECRETS) {
                daemon = daemon.with_environment(name, value);
            }
            assert_eq!(daemon.configure(&of_environment)["changes"], json!(["upload changed"]));
            before = refused(&daemon);
        }
        wait_for("the store to refuse it", || (refused(&daemon) > before).then_some(()));
        wait_for("the log", || daemon.has_said("is not stored yet").then_some(()));
        let mut check = agent(daemon.path(), ["daemon", "--check", "--config"]);
        check.arg(daemon.config()).envs(NAMES.iter().zip(SECRETS));
        let checked = run(&mut check).expect(0);
        let told = [
            daemon.said(),
            daemon.metrics_as(ROOT, true),
            daemon.tell("GET", "/v1/configuration", None).to_string(),
            daemon.tell("GET", "/v1/sessions", None).to_string(),
            checked.out + &checked.err,
        ];
        for text in told {
            assert!(!text.contains("SWORDFISH"), "{text}");
        }
    }
    for file in files(&daemon.path().join("state/uploads")) {
        assert!(!fs::read_to_string(&file).unwrap().contains("SWORDFISH"), "{}", file.display());
    }
}

#[test]
fn a_wrong_store_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        fs::write(dir.path().join("agent.toml"), text).unwrap();
        run(&mut agent(dir.path(), ["daemon", "--config", "agent.toml", "--check"]))
    };
    let text = "[upload]\nsite = \"lab\"\n  url = \"ftp://host/x\"\n";
    check(text).expect(2).says(&["agent.toml:3:3: upload.url: ", "s3://BUCKET"]);
    check(&text.replace("ftp", "http")).expect(2).says(&["agent.toml:3:3: upload.url: ", "allow_http"]);
    check(&text.replace("ftp://host", "s3://bucket")).expect(0);
}
