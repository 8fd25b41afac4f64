//! Channels of user space whose users or processes have rings of their own.

mod info;
mod snapshots;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use integration_tests::{
    binaries::tool,
    daemon::Daemon,
    harness::{agent, program, run, wait_for},
    trace_cmd,
};
use serde_json::{Value, json};

/// A program that makes as many markers as each line that it reads says, and then prints a line.
const PROGRAM: &str = r#"
#include <sys/sdt.h>
#include <stdio.h>
int main(void) {
    long count;
    while (scanf("%ld", &count) == 1) {
        for (long i = 0; i < count; i++)
            STAP_PROBE1(PROVIDER, one, i);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"#;
/// The sets of a channel that are users' own, and those that are processes' own, on machines of few CPUs.
const USERS: usize = 7;
const PROCESSES: usize = 31;

/// The program, while it runs as a user.
struct Program(Child);

impl Program {
    fn start(dir: &Path, uid: u32) -> Self {
        let mut command = Command::new(dir.join("demo"));
        command.uid(uid).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Makes so many markers, and gives the process.
    fn fire(&mut self, count: u32) -> u32 {
        let Self(child) = self;
        writeln!(child.stdin.as_mut().unwrap(), "{count}").unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        child.id()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// A daemon with a session that records the markers into one channel.
struct Recorded {
    daemon: Daemon,
    out: PathBuf,
}

impl Recorded {
    /// One that stores all.
    fn start(format: &str, attributes: &Value) -> Self {
        Self::start_in("local", format, attributes)
    }

    fn start_in(mode: &str, format: &str, attributes: &Value) -> Self {
        let daemon = Daemon::start();
        fs::write(daemon.path().join("demo.c"), PROGRAM).unwrap();
        // Other tests run programs of their own, which every daemon sees.
        let provider = format!("demo{}", daemon.pid());
        let define = format!("-DPROVIDER={provider}");
        tool(daemon.path(), "cc", &["-O2", &define, "-o", "demo", "demo.c"]);
        fs::set_permissions(daemon.path().join("demo"), fs::Permissions::from_mode(0o755)).unwrap();
        let out = daemon.path().join("out");
        let new = if mode == "snapshot" {
            json!({"name": "one", "mode": mode, "snapshot_output": out, "format": format})
        } else {
            json!({"name": "one", "mode": {mode: {"output": out}}, "format": format})
        };
        daemon.tell("POST", "/v1/sessions", Some(&new));
        let channels = "/v1/sessions/one/domains/user/channels";
        daemon.tell("POST", channels, Some(&json!({"name": "ch", "attributes": attributes})));
        let rule = json!({"name": format!("{provider}:one"), "instrumentation": "tracepoint"});
        daemon.tell("POST", &format!("{channels}/ch/rules"), Some(&rule));
        // The daemon knows the program from here on, as what runs when a session starts is looked at.
        let idle = Program::start(daemon.path(), 0);
        daemon.tell("POST", "/v1/sessions/one/start", None);
        idle.end();
        Self { daemon, out }
    }

    /// Stops it, and gives how many records each buffer of the file has.
    fn stop(&self) -> BTreeMap<String, u64> {
        self.daemon.tell("POST", "/v1/sessions/one/stop", None);
        let mut found = BTreeMap::new();
        for (name, records, _) in buffers(&self.file()) {
            *found.entry(name).or_default() += records;
        }
        found.retain(|_, records| *records != 0);
        found
    }

    /// Takes a snapshot, and gives where it is.
    fn take(&self) -> PathBuf {
        let taken = self.daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
        PathBuf::from(taken["path"].as_str().unwrap())
    }

    fn file(&self) -> PathBuf {
        let files: Vec<_> = fs::read_dir(&self.out).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = &files[..] else { panic!("{files:?}") };
        file.clone()
    }
}

/// Of each buffer and CPU in the ledger: what is stored, and what was lost.
fn buffers(file: &Path) -> Vec<(String, u64, u64)> {
    let info = run(agent("/".as_ref(), ["info", "--json"]).arg(file)).expect(0).out;
    let info: Value = serde_json::from_str(&info).unwrap();
    let sum = |of: &Value| of.as_object().map_or(0, |all| all.values().filter_map(Value::as_u64).sum());
    let row = |cpu: &Value| {
        let name = cpu["channel"].as_str().unwrap().to_owned();
        (name, cpu["stored"].as_u64().unwrap(), sum(&cpu["lost"]))
    };
    info["ledger"]["cpus"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn each_user_has_a_buffer() {
    let recorded = Recorded::start("trace_dat", &json!({}));
    let mut expected = BTreeMap::new();
    for (uid, count) in [(0, 100), (1000, 2100), (1001, 30_000)] {
        let mut program = Program::start(recorded.daemon.path(), uid);
        program.fire(count);
        program.fire(count);
        program.end();
        expected.insert(format!("ch-user:uid-{uid}"), 2 * u64::from(count));
    }
    assert_eq!(recorded.stop(), expected);
    let file = recorded.file();
    run(agent("/".as_ref(), ["check"]).arg(&file)).expect(0);
    let stock = trace_cmd::report(&file, &[]);
    for (name, count) in expected {
        let prefix = format!("{name}:");
        assert_eq!(stock.lines().filter(|line| line.trim_start().starts_with(&prefix)).count() as u64, count);
    }
}

#[test]
fn a_flood_of_one_user_takes_nothing_from_another() {
    let small = json!({"subbuf_size": 4096, "num_subbuf": 4});
    let recorded = Recorded::start("trace_dat", &small);
    let dir = recorded.daemon.path();
    let mut flood: Vec<Program> = (0..4).map(|_| Program::start(dir, 1000)).collect();
    for program in &mut flood {
        writeln!(program.0.stdin.as_mut().unwrap(), "2000000").unwrap();
    }
    let mut quiet = Program::start(dir, 1001);
    for _ in 0..100 {
        quiet.fire(5);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for mut program in flood {
        BufReader::new(program.0.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        program.end();
    }
    quiet.end();
    let found = recorded.stop();
    assert_eq!(found["ch-user:uid-1001"], 500, "{found:?}");
    let lost = |whose: &str| {
        let rows = buffers(&recorded.file()).into_iter().filter(|row| row.0 == whose);
        rows.map(|row| row.2).sum::<u64>()
    };
    assert_eq!(lost("ch-user:uid-1001"), 0);
    let of_flood = lost("ch-user:uid-1000");
    assert!(of_flood > 0, "rings of four pages hold no flood");
    assert_eq!(found["ch-user:uid-1000"] + of_flood, 4 * 2_000_000);
}

#[test]
fn each_process_has_a_buffer_until_there_are_no_more() {
    let recorded = Recorded::start("trace_dat", &json!({"buffers": "pid"}));
    let dir = recorded.daemon.path();
    let mut long = Program::start(dir, 0);
    let mut expected = BTreeMap::new();
    expected.insert(format!("ch-user:pid-{}", long.fire(70)), 140);
    for number in 1..PROCESSES as u32 {
        let mut short = Program::start(dir, 1000);
        expected.insert(format!("ch-user:pid-{}", short.fire(number)), u64::from(number));
        short.end();
    }
    for _ in 0..5 {
        let mut more = Program::start(dir, 1000);
        more.fire(11);
        more.end();
    }
    long.fire(70);
    long.end();
    expected.insert("ch-user:others".to_owned(), 55);
    assert_eq!(recorded.stop(), expected);
}

#[test]
fn users_beyond_the_limit_share_a_buffer() {
    let recorded = Recorded::start("trace_dat", &json!({}));
    let mut expected = BTreeMap::new();
    for number in 0..USERS as u32 + 3 {
        let mut program = Program::start(recorded.daemon.path(), 2000 + number);
        program.fire(10);
        program.end();
        let name = if number < USERS as u32 { format!("uid-{}", 2000 + number) } else { "others".to_owned() };
        *expected.entry(format!("ch-user:{name}")).or_default() += 10;
    }
    assert_eq!(recorded.stop(), expected);
}

#[test]
fn who_is_not_recorded_gets_no_buffer() {
    let recorded = Recorded::start("trace_dat", &json!({}));
    let track = json!({"attribute": "vuid", "values": {"only": ["1001"]}, "add": true});
    recorded.daemon.tell("POST", "/v1/sessions/one/domains/user/trackers", Some(&track));
    for uid in [1000, 1001] {
        let mut program = Program::start(recorded.daemon.path(), uid);
        program.fire(10);
        program.end();
    }
    assert_eq!(recorded.stop(), BTreeMap::from([("ch-user:uid-1001".to_owned(), 10)]));
}

/// The traces below a directory: by path without times, how many events babeltrace2 finds in each. It has
/// nothing to complain of.
fn traces(dir: &Path, below: &str, found: &mut BTreeMap<String, u64>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        if !entry.path().join("metadata").is_file() {
            traces(&entry.path(), &format!("{below}{name}/"), found);
            continue;
        }
        let read = run(program("/".as_ref(), "babeltrace2", ["--no-delta"]).arg(entry.path())).expect(0);
        assert_eq!(read.err, "");
        *found.entry(format!("{below}{name}")).or_default() += read.out.lines().count() as u64;
    }
}

#[test]
fn lttngs_layout_has_a_trace_of_each_user_in_each_chunk() {
    let recorded = Recorded::start("lttng", &json!({}));
    let dir = recorded.daemon.path();
    for (uid, count) in [(0, 100), (1000, 2100), (1001, 30_000)] {
        let mut program = Program::start(dir, uid);
        program.fire(count);
        program.end();
    }
    recorded.daemon.tell("POST", "/v1/sessions/one/rotations", None);
    let mut program = Program::start(dir, 1000);
    program.fire(7);
    program.end();
    recorded.daemon.tell("POST", "/v1/sessions/one/stop", None);
    recorded.daemon.tell("DELETE", "/v1/sessions/one", None);
    let mut chunks: Vec<PathBuf> =
        fs::read_dir(recorded.out.join("archives")).unwrap().map(|entry| entry.unwrap().path()).collect();
    chunks.sort();
    let found = chunks.iter().map(|chunk| {
        let mut found = BTreeMap::new();
        traces(chunk, "", &mut found);
        found
    });
    let expected = |counts: [u64; 3]| {
        let paths = [0, 1000, 1001].map(|uid| format!("ust/uid/{uid}/64-bit"));
        paths.into_iter().zip(counts).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(found.collect::<Vec<_>>(), [expected([100, 2100, 30_000]), expected([0, 7, 0])]);
}

#[test]
fn lttngs_layout_has_a_trace_of_each_process() {
    let recorded = Recorded::start("lttng", &json!({"buffers": "pid"}));
    let mut expected = BTreeMap::new();
    for count in 1..=PROCESSES as u64 {
        let mut program = Program::start(recorded.daemon.path(), 1000);
        expected.insert(format!("demo-{}", program.fire(count as u32)), count);
        program.end();
    }
    let mut more = Program::start(recorded.daemon.path(), 1000);
    more.fire(50);
    more.end();
    expected.insert("others".to_owned(), 50);
    recorded.daemon.tell("POST", "/v1/sessions/one/stop", None);
    let mut found = BTreeMap::new();
    traces(&recorded.out.join("ust/pid"), "", &mut found);
    // `demo-PID-DATE-TIME`
    let without_time = |name: &str| name.split('-').take(2).collect::<Vec<_>>().join("-");
    let found: BTreeMap<_, _> = found.iter().map(|(name, count)| (without_time(name), *count)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_killed_daemon_leaves_whose_buffers_they_are() {
    let mut recorded = Recorded::start("trace_dat", &json!({"switch_timer_us": 100_000}));
    for uid in [1000, 1001] {
        let mut program = Program::start(recorded.daemon.path(), uid);
        program.fire(5000);
        program.end();
    }
    let stored = || {
        let spools = fs::read_dir(&recorded.out).unwrap().map(|entry| entry.unwrap().path());
        let files = spools.filter(|path| path.is_dir()).flat_map(|dir| fs::read_dir(dir).unwrap());
        files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("owner")).count()
    };
    wait_for("data of both users", || (stored() >= 2).then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(1));
    recorded.daemon.kill();
    recorded.daemon.start_again();
    let has_file = || {
        let mut files = fs::read_dir(&recorded.out).unwrap().map(|entry| entry.unwrap().path());
        files.all(|path| path.extension().is_some_and(|of| of == "dat")).then_some(())
    };
    wait_for("what is recovered", has_file);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (name, records, _) in buffers(&recorded.file()) {
        *found.entry(name).or_default() += records;
    }
    found.retain(|_, records| *records != 0);
    let expected = [1000, 1001].map(|uid| (format!("ch-user:uid-{uid}"), 5000));
    assert_eq!(found, BTreeMap::from(expected));
}
