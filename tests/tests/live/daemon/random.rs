//! Random commands, held to a small model of sessions, channels and rules.

use std::{collections::BTreeMap, path::Path};

use integration_tests::{
    daemon::Daemon,
    harness::{Caller, Report, is_getppid, wait_for},
    soak,
};
use serde_json::{Value, json};

use super::{calls, files, only};

/// Sequences in a trial.
const SEQUENCES: usize = 6;
/// Commands in a sequence.
const COMMANDS: usize = 30;
/// Calls at a time.
const CALLS: u64 = 20;
/// The names that channels have.
const CHANNELS: [&str; 3] = ["a", "b", "c"];

/// A generator that makes the same numbers of the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// The rules: each records an event of its own for each call.
fn rules() -> [Value; 2] {
    [calls(), json!({"name": "getppid", "instrumentation": {"syscall": "entry"}})]
}

fn is_recorded_by(rule: usize, line: &str) -> bool {
    if rule == 0 { is_getppid(line) } else { line.contains(" sys_enter_getppid:") }
}

/// What a session should be like.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that commands ask")]
#[derive(Debug, Default)]
struct Model {
    active: bool,
    was_started: bool,
    /// Since the last stop.
    rotated: bool,
    cleared: bool,
    /// Whether something was recorded that no rotation has archived.
    has_chunk: bool,
    channels: BTreeMap<&'static str, Channel>,
}

#[derive(Debug)]
struct Channel {
    enabled: bool,
    /// The rules that it has, and whether they record.
    rules: BTreeMap<usize, bool>,
    /// What each rule has recorded: what cannot be cleared any more, and what can.
    archived: [u64; 2],
    current: [u64; 2],
}

const OK: &str = "ok";

impl Model {
    fn start(&mut self) -> &'static str {
        match () {
            () if self.active => "already_started",
            () if self.channels.is_empty() => "no_channel",
            () => {
                (self.active, self.was_started, self.has_chunk) = (true, true, true);
                (self.rotated, self.cleared) = (false, false);
                OK
            }
        }
    }

    fn stop(&mut self) -> &'static str {
        if std::mem::take(&mut self.active) { OK } else { "already_stopped" }
    }

    fn archive(&mut self) {
        self.has_chunk = self.active;
        for channel in self.channels.values_mut() {
            for (archived, current) in channel.archived.iter_mut().zip(&mut channel.current) {
                *archived += std::mem::take(current);
            }
        }
    }

    fn rotate(&mut self) -> &'static str {
        match () {
            () if !self.was_started => "never_started",
            () if !self.active && (self.rotated || !self.has_chunk) => "rotated_after_stop",
            () => {
                self.archive();
                self.rotated = !self.active;
                OK
            }
        }
    }

    fn clear(&mut self) -> &'static str {
        match () {
            () if !self.was_started => OK,
            () if !self.active && self.cleared => "cleared_after_stop",
            () => {
                self.cleared = !self.active;
                self.has_chunk = self.active;
                self.channels.values_mut().for_each(|channel| channel.current = [0; 2]);
                OK
            }
        }
    }

    fn add_channel(&mut self, name: &'static str) -> &'static str {
        if self.channels.contains_key(name) {
            return "kernel_channel_exists";
        }
        // Another recording takes over, in the next trace chunk.
        if self.active {
            self.archive();
        }
        let channel = Channel { enabled: true, rules: BTreeMap::new(), archived: [0; 2], current: [0; 2] };
        self.channels.insert(name, channel);
        OK
    }

    fn with(&mut self, name: &str, act: impl FnOnce(&mut Channel) -> &'static str) -> &'static str {
        self.channels.get_mut(name).map_or("no_kernel_channel", act)
    }

    fn call(&mut self, count: u64) {
        for channel in self.channels.values_mut().filter(|channel| self.active && channel.enabled) {
            for (rule, _) in channel.rules.iter().filter(|(_, enabled)| **enabled) {
                channel.current[*rule] += count;
            }
        }
    }
}

/// Sends one random command, and gives the model's opinion of it.
fn step(daemon: &Daemon, dice: &mut Dice, model: &mut Model, caller: &mut Caller) -> String {
    let name = CHANNELS[dice.throw(CHANNELS.len())];
    let rule = dice.throw(2);
    let on = dice.throw(2) == 0;
    let channels = "/v1/sessions/one/domains/kernel/channels";
    let channel = format!("{channels}/{name}");
    let rules_of = format!("{channel}/rules");
    let (method, path, body, expected) = match dice.throw(14) {
        0 | 1 => ("POST", "/v1/sessions/one/start".to_owned(), None, model.start()),
        2 => ("POST", "/v1/sessions/one/stop".to_owned(), None, model.stop()),
        3 => ("POST", "/v1/sessions/one/rotations".to_owned(), None, model.rotate()),
        4 => ("POST", "/v1/sessions/one/clear".to_owned(), None, model.clear()),
        5 | 6 => {
            let small = json!({"name": name, "attributes": {"subbuf_size": 65536}});
            ("POST", channels.to_owned(), Some(small), model.add_channel(name))
        }
        7 => {
            let expected = model.with(name, |channel| {
                channel.enabled = on;
                OK
            });
            ("PATCH", channel, Some(json!({"enabled": on})), expected)
        }
        8 | 9 => {
            let expected = model.with(name, |channel| match channel.rules.insert(rule, true) {
                Some(true) => "kernel_event_exists",
                _ => OK,
            });
            ("POST", rules_of, Some(rules()[rule].clone()), expected)
        }
        10 => {
            let expected = model.with(name, |channel| match channel.rules.remove(&rule) {
                Some(_) => OK,
                None => "no_event",
            });
            ("DELETE", rules_of, Some(rules()[rule].clone()), expected)
        }
        11 => {
            let expected = model.with(name, |channel| {
                channel.rules.values_mut().for_each(|enabled| *enabled = on);
                OK
            });
            ("PATCH", rules_of, Some(json!({"enabled": on})), expected)
        }
        _ => {
            caller.call(CALLS);
            caller.settle();
            model.call(CALLS);
            return format!("{CALLS} calls");
        }
    };
    let (status, answer) = daemon.ask(method, &path, body.as_ref());
    let said = if status == 200 { OK } else { answer["code"].as_str().unwrap_or("no code") };
    assert_eq!(said, expected, "{method} {path} {body:?}: {answer}; {model:#?}");
    if path.ends_with("rotations") && status == 200 {
        let id = answer["id"].as_u64().unwrap();
        wait_for("the archive", || {
            let rotation = daemon.tell("GET", &format!("/v1/sessions/one/rotations/{id}"), None);
            (rotation["state"] != "ongoing").then_some(())
        });
    }
    format!("{method} {path} {expected}")
}

/// Whether the daemon shows what the model has.
fn compare(daemon: &Daemon, model: &Model, history: &[String]) {
    let shown = daemon.tell("GET", "/v1/sessions/one", None);
    assert_eq!(shown["active"], model.active, "{history:#?}");
    let empty = Vec::new();
    let channels = shown["domains"].as_array().unwrap().iter().find(|of| of["domain"] == "kernel");
    let channels = channels.map_or(&empty, |of| of["channels"].as_array().unwrap());
    assert_eq!(channels.len(), model.channels.len(), "{shown}");
    for channel in channels {
        let expected = &model.channels[channel["name"].as_str().unwrap()];
        assert_eq!(channel["enabled"], expected.enabled, "{channel} {history:#?}");
        let there = channel["rules"].as_array().unwrap();
        assert_eq!(there.len(), expected.rules.len(), "{channel} {history:#?}");
        for (rule, enabled) in &expected.rules {
            let name = &rules()[*rule]["name"];
            let shown = there.iter().find(|shown| shown["name"] == *name).unwrap();
            assert_eq!(shown["enabled"], *enabled, "{channel} {history:#?}");
        }
    }
}

/// Whether the files have what the model says was recorded.
fn compare_files(dir: &Path, model: &Model, history: &[String]) {
    let reports: Vec<Report> =
        if dir.exists() { files(dir).iter().map(|file| Report::of(file)).collect() } else { Vec::new() };
    for (name, channel) in &model.channels {
        for rule in 0..2 {
            let of_channel = |line: &str| line.starts_with(&format!("{name}:")) && is_recorded_by(rule, line);
            let there: u64 = reports.iter().map(|report| report.count(of_channel)).sum();
            let expected = channel.archived[rule] + channel.current[rule];
            assert_eq!(there, expected, "rule {rule} of {name}: {history:#?}");
        }
    }
}

/// Descriptors and threads of the daemon.
fn resources(daemon: &Daemon) -> (usize, usize) {
    let count = |of: &str| std::fs::read_dir(format!("/proc/{}/{of}", daemon.pid())).unwrap().count();
    (count("fd"), count("task"))
}

fn sequences() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    let mut before = None;
    for seed in 1..=SEQUENCES * soak() {
        let dir = daemon.path().join(seed.to_string());
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed as u64) << 32);
        let mut model = Model::default();
        let mut history = vec![format!("seed {seed}")];
        daemon.tell(
            "POST",
            "/v1/sessions",
            Some(&json!({"name": "one", "mode": {"local": {"output": dir}}})),
        );
        daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
        for _ in 0..COMMANDS {
            history.push(step(&daemon, &mut dice, &mut model, &mut caller));
            compare(&daemon, &model, &history);
        }
        daemon.tell("DELETE", "/v1/sessions/one", None);
        compare_files(&dir, &model, &history);
        // Threads and connections of the first one are kept for those that follow.
        let now = wait_for("what was used to be given back", || {
            let now = resources(&daemon);
            before
                .is_none_or(|before: (usize, usize)| now.0 <= before.0 && now.1 <= before.1 + 2)
                .then_some(now)
        });
        before.get_or_insert(now);
    }
    daemon.stop().expect(0);
}

mod soak {
    #[test]
    fn sessions_do_what_a_model_of_them_does() {
        super::sequences();
    }
}
