//! LTTng's `lttng` and ours: the same command lines, one after the other, and what each prints and ends with.
//!
//! LTTng's session daemon has no kernel tracer here, so the lines are about sessions and user space. It runs
//! as a user who is not root, whose daemon is apart from any other on the machine. What differs is in
//! [`DIFFERENT`], with the reason; docs/lttng.md tells users of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use integration_tests::harness::{HANG, agent_path};

/// The user `nobody` of Debian.
const NOBODY: u32 = 65534;

/// Command lines, in this order. `OUT` is a directory that each program has for itself.
const SCRIPT: &str = include_str!("lttng_cli.txt");

/// Command lines of which ours prints other than LTTng's: what ours does, and why it is different.
const DIFFERENT: &[(&str, u8, &str, &str)] = &[
    ("enable-event -u -c ch1 app:one --loglevel TRACE_WARNING", 15, "Operation not supported (", NO_LEVEL),
    ("enable-event -u -c ch1 app:two --loglevel-only TRACE_DEBUG", 15, "Operation not supported (", NO_LEVEL),
    (
        "disable-event -u -c ch1 app:one",
        76,
        "app:one of type any : UST event not found (channel ch1",
        NO_LEVEL,
    ),
    ("enable-event -u -c ch1 z --filter a>", 106, "Event z: Invalid filter bytecode (at byte ", ITS_PARSER),
    ("enable-event -u -c ch1 z --filter a+1", 106, "Event z: Invalid filter bytecode (at byte ", ITS_PARSER),
    (
        "enable-event -u -c ch1 z --filter \"a\"<3",
        106,
        "Event z: Invalid filter bytecode (at byte ",
        ITS_PARSER,
    ),
    (
        "enable-event -u -c ch1 z --filter $foo.x==1",
        106,
        "Event z: Invalid filter bytecode (at byte ",
        ITS_PARSER,
    ),
    ("list a -c ch1", 0, "      app:* (type: tracepoint) [enabled]\n\n", NO_LEVEL),
    ("--list-commands", 0, "load\nregenerate\n", "`metadata` has no use"),
    ("regenerate statedump -s r", 118, "Error: Session not started\n", NO_REASON),
    ("regenerate statedump -s nope", 23, "Error: Session name not found\n", NO_REASON),
    ("--mi xml regenerate statedump -s r", 118, "<success>false</success>", NO_REASON),
    ("--mi xml enable-channel -u mc", 0, "<overwrite_mode>DISCARD</overwrite_mode>", "what the channel is"),
    ("add-trigger --condition=bogus --action=notify", 1, "Error:   pressure\n", MORE),
    ("add-trigger --condition", 1, "Error:   pressure\n", MORE),
    ("--mi xml add-trigger --condition=bogus", 1, "Error:   pressure\n", MORE),
    ("add-trigger --condition=event-rule-matches --type=user --action", 1, "Error:   post\n", MORE),
    ("add-trigger --condition=event-rule-matches --type=user --action=bogus", 1, "Error:   post\n", MORE),
    (
        "add-trigger --condition=event-rule-matches --type=user --capture=a[b] --action=notify",
        1,
        "Error: Failed to parse capture expression `a[b]`.\n",
        ITS_PARSER,
    ),
    (
        "--mi xml add-trigger --name=t4 --condition=event-rule-matches --type=user --action=stop-session s",
        0,
        "<action_stop_session>",
        "LTTng's document says that it starts the session",
    ),
    (
        "add-trigger --condition=event-rule-matches --type=jul --name=x --action=notify",
        1,
        "Operation not supported (",
        "loggers of Java and Python are not recorded",
    ),
    (
        "add-trigger --condition=event-rule-matches --type=user --log-level=INFO.. --action=notify",
        1,
        "Operation not supported (",
        NO_LEVEL,
    ),
    (
        "add-trigger --condition=event-rule-matches --type=user --action=snapshot-session s --url=net://1.2.3.4",
        0,
        "Added trigger `trigger3`.\n",
        "the two before it are refused",
    ),
];

const ITS_PARSER: &str = "LTTng's parser says more before";
const MORE: &str = "there are more conditions and actions";
const NO_REASON: &str = "LTTng does not say why";
const NO_LEVEL: &str = "markers have no log levels";

/// What a command printed and ended with, without what changes each time.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A program named `lttng` with a session daemon and a home directory of its own.
struct Lttng {
    home: tempfile::TempDir,
    daemon: Child,
    /// Makes the command without its arguments.
    call: fn(&Path) -> Command,
}

impl Drop for Lttng {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        // It may have ended by itself; the test has its own opinion of that.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

/// A command of LTTng's as a user who is not root.
fn as_nobody(home: &Path, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command.env("HOME", home).env("LTTNG_HOME", home);
    command
}

impl Lttng {
    fn of_lttng() -> Self {
        let home = tempfile::tempdir().unwrap();
        chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut daemon = as_nobody(home.path(), "lttng-sessiond");
        daemon.arg("--no-kernel");
        Self::start(home, daemon, |home| as_nobody(home, "lttng"))
    }

    fn ours() -> Self {
        let home = tempfile::tempdir().unwrap();
        symlink(agent_path().canonicalize().unwrap(), home.path().join("lttng")).unwrap();
        let mut daemon = Command::new(agent_path());
        daemon.args(["daemon", "--socket"]).arg(home.path().join("run/daemon.sock"));
        Self::start(home, daemon, |home| {
            let mut command = Command::new(home.join("lttng"));
            command.arg("--no-sessiond").env("TRACER_AGENT_SOCKET", home.join("run/daemon.sock"));
            command.env("HOME", home).env("LTTNG_HOME", home);
            command
        })
    }

    fn start(home: tempfile::TempDir, mut daemon: Command, call: fn(&Path) -> Command) -> Self {
        daemon.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = daemon.spawn().unwrap();
        let lttng = Self { home, daemon, call };
        let begin = Instant::now();
        while !lttng.output("list").status.success() {
            assert!(begin.elapsed() < HANG, "no session daemon: {:?}", lttng.output("list"));
            thread::sleep(Duration::from_millis(20));
        }
        lttng
    }

    fn output(&self, line: &str) -> Output {
        let home = self.home.path();
        let line = line.replace("OUT", &home.join("out").display().to_string());
        let mut command = (self.call)(home);
        command.args(line.split(' ')).current_dir("/").stdin(Stdio::null());
        command.output().unwrap()
    }

    fn run(&self, line: &str) -> Said {
        let output = self.output(line);
        let text = |bytes: &[u8]| self.usual(&String::from_utf8_lossy(bytes));
        Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// A text without the home directory, moments, and the user that owns triggers.
    fn usual(&self, text: &str) -> String {
        let text = text.replace(&self.home.path().display().to_string(), "HOME");
        let text = ["owner uid: ", "<owner_uid>"].iter().fold(text, |text, label| {
            let of_nobody = text.replace(&format!("{label}{NOBODY}"), &format!("{label}UID"));
            of_nobody.replace(&format!("{label}0"), &format!("{label}UID"))
        });
        without_firings(&without_moments(&text))
    }
}

/// A text of triggers without what went wrong when they fired: rules of all markers are those of all programs
/// on the machine, whatever these do.
fn without_firings(text: &str) -> String {
    const COUNTER: &str = "<error_query_result_counter><value>";
    const COUNTS: [&str; 3] = ["discarded tracer messages: ", "total execution failures: ", "the last one: "];
    let is_count = |line: &str| COUNTS.iter().any(|count| line.trim_start().starts_with(count));
    let mut usual = String::new();
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        if line.trim() == "errors:" && lines.peek().is_some_and(|next| is_count(next)) {
            usual.push_str(&line.replace("errors:", "errors: none"));
            while lines.next_if(|next| is_count(next)).is_some() {}
        } else {
            usual.push_str(line);
        }
    }
    let mut parts = usual.split(COUNTER);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + COUNTER + "N" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// A text with `TIME` for each `YYYYmmdd-HHMMSS`.
fn without_moments(text: &str) -> String {
    let is_moment = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| if at == 8 { *byte == b'-' } else { byte.is_ascii_digit() })
    };
    let mut usual = String::new();
    let mut rest = text;
    while let Some(at) = rest.as_bytes().windows(15).position(is_moment) {
        usual += &rest[..at];
        usual += "TIME";
        rest = &rest[at + 15..];
    }
    usual + rest
}

#[test]
fn lttng_and_ours_say_the_same() {
    let (theirs, ours) = (Lttng::of_lttng(), Lttng::ours());
    let mut told = BTreeSet::new();
    let mut wrong = Vec::new();
    let mut lines = 0;
    for line in SCRIPT.lines().filter(|line| !line.is_empty()) {
        lines += 1;
        let (theirs, ours) = (theirs.run(line), ours.run(line));
        match DIFFERENT.iter().find(|(of, ..)| *of == line) {
            None if theirs == ours => {}
            None => wrong.push(format!("{line}\nLTTng: {theirs:#?}\nours: {ours:#?}")),
            Some((_, code, part, why)) => {
                told.insert(line);
                assert_ne!(theirs, ours, "{line} is the same now: {why}");
                let said = ours.out.clone() + &ours.err;
                assert_eq!(
                    (ours.code, said.contains(part)),
                    (Some((*code).into()), true),
                    "{line}: {ours:?}"
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(told.len(), DIFFERENT.len(), "a difference that no line has");
    assert!(lines >= 60, "{lines}");
}

#[test]
fn files_of_sessions_go_both_ways() {
    let (theirs, ours) = (Lttng::of_lttng(), Lttng::ours());
    let made = [
        "create mine -o /tmp/mine",
        "enable-channel -u --overwrite --subbuf-size 64K --num-subbuf 8 --switch-timer 1000 ch1",
        "track -u --vpid 7",
        "enable-rotation --timer 1h",
        "save mine -o OUT",
        "destroy",
    ];
    for lttng in [&theirs, &ours] {
        for line in made {
            let said = lttng.run(line);
            assert_eq!(said.code, Some(0), "{line}: {said:?}");
        }
        // LTTng's schema has an opinion of LTTng's own files too.
        let file = lttng.home.path().join("out/mine.lttng");
        let schema = ["--noout", "--schema", "/usr/share/xml/lttng/session.xsd"];
        let judged = Command::new("xmllint").args(schema).arg(&file).output().unwrap();
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    }
    let of_lttng = theirs.home.path().join("out/mine.lttng").display().to_string();
    let loaded = ours.run(&format!("load mine -i {of_lttng}"));
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    let shown = ours.run("list mine").out;
    for part in
        ["- ch1: [enabled]", "Sub-buffer size:  65536 bytes", "Virtual process IDs:  7", "3600000000 us"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // LTTng's daemon asks the relay daemon when the session has its first channel.
    for (name, url) in [("sent", "net://127.0.0.1:1:2/a"), ("sent6", "net6://[::1]:1:2")] {
        for line in [format!("create {name} -U {url}"), format!("save {name} -o OUT")] {
            let said = theirs.run(&line);
            assert_eq!(said.code, Some(0), "{line}: {said:?}");
        }
        let file = theirs.home.path().join(format!("out/{name}.lttng")).display().to_string();
        let loaded = ours.run(&format!("load {name} -i {file}"));
        assert_eq!(loaded.code, Some(0), "{loaded:?}");
        let place = |lttng: &Lttng| {
            let listed = lttng.run(&format!("list {name}")).out;
            listed.lines().find(|line| line.contains("Trace output")).map(str::to_owned)
        };
        assert_eq!(place(&ours), place(&theirs), "{name}");
    }
    let of_ours = ours.home.path().join("out/mine.lttng");
    chown(&of_ours, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::copy(&of_ours, theirs.home.path().join("out/ours.lttng")).unwrap();
    chown(theirs.home.path().join("out/ours.lttng"), Some(NOBODY), Some(NOBODY)).unwrap();
    let loaded = theirs.run("load -i OUT/ours.lttng");
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
}
