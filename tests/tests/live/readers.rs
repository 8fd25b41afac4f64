//! Stock trace-cmd reads, converts, splits and queries what `tracer-agent record` writes.
//!
//! trace-cmd ends with 0 on files that it cannot read, so every test compares content.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use integration_tests::{
    agent::{self, Recording},
    trace_cmd::{self, Line, Said},
    tracefs,
    workload::{self, Account},
};
use tempfile::TempDir;

/// A recording and the directory it is in.
struct Recorded {
    dir: TempDir,
    recording: Recording,
    account: Account,
}

impl Recorded {
    fn make(kind: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        all.extend(workload::command(kind, dir.path()));
        let recording = agent::record(&dir.path().join("trace.dat"), &all);
        let account = Account::read(dir.path());
        Self { dir, recording, account }
    }

    fn file(&self) -> &Path {
        &self.recording.path
    }

    fn other(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn report(&self, args: &[&str]) -> String {
        trace_cmd::report(self.file(), args)
    }

    fn lines(&self, args: &[&str]) -> Vec<Line> {
        trace_cmd::lines(&self.report(args))
    }
}

/// Runs a trace-cmd command that writes or looks through files. It must end well and say nothing bad.
///
/// These commands, other than `report`, tell the number of each option that they do not know, and leave it
/// out: the agent's loss ledger, the initial state and the checksums. Others tell where they write.
fn trace_cmd_on(args: &[&str]) -> String {
    let Said { out, err, code } = trace_cmd::run(args);
    assert_eq!(code, Some(0), "trace-cmd {args:?}: {err}");
    let known = [
        "unknown option 21569",
        "unknown option 21570",
        "unknown option 21571",
        // Said of trace-cmd's own files too when it writes version 6.
        "Cannot find description for buffer",
        "libtracecmd: ",
        "data recorded at offset=",
        "bytes in size",
    ];
    for line in err.lines().filter(|line| !line.trim().is_empty()) {
        assert!(known.iter().any(|known| line.contains(known)), "trace-cmd {args:?}: {line}");
    }
    out
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Everything that trace-cmd does with a file, for one way to compress it.
fn every_command(compression: &str) {
    let recorded = Recorded::make("names", &["-e", "sched", "-e", "timer", "--compression", compression]);
    let file = text(recorded.file());
    let events = recorded.recording.events() as usize;
    assert!(events > 2000, "only {events} events");

    let lines = recorded.lines(&["-t"]);
    assert_eq!(lines.len(), events, "report -t");
    for args in [&[][..], &["-R", "-t"], &["-l"], &["--ts-check"], &["-N"]] {
        assert_eq!(trace_cmd::count(&recorded.report(args)), events, "report {args:?}");
    }
    assert!(lines.is_sorted_by_key(|line| line.time), "the report goes forward");

    // trace-cmd applies a filter to the files that follow it.
    let is_switch = |line: &&Line| line.event == "sched_switch" && line.fields.contains("==> test-workload:");
    let switches = lines.iter().filter(is_switch).count();
    assert!(switches > 0);
    let filter = "sched_switch: next_comm == \"test-workload\"";
    let filtered = trace_cmd::run(["report", "-F", filter, "-t", "-i", file]);
    assert_eq!((trace_cmd::lines(&filtered.out).len(), &*filtered.err), (switches, ""), "-F {filter}");

    let valid = trace_cmd_on(&["dump", "-v", "-i", file]);
    assert!(valid.contains("is a valid trace-cmd file"), "{valid}");
    let dump = trace_cmd_on(&["dump", "--all", "-i", file]);
    for part in [
        "7\t[Version]",
        "name: sched_switch",
        "name: hrtimer_start",
        "\"trace data\"",
        "[Saved command lines",
    ] {
        assert!(dump.contains(part), "dump --all shows no {part:?}");
    }

    let (six, seven) = (recorded.other("6.dat"), recorded.other("7.dat"));
    trace_cmd_on(&["convert", "--file-version", "6", "-i", file, "-o", text(&six)]);
    trace_cmd_on(&["convert", "--file-version", "7", "-i", text(&six), "-o", text(&seven)]);
    for converted in [&six, &seven] {
        assert_eq!(
            trace_cmd::lines(&trace_cmd::report(converted, &["-t"])),
            lines,
            "{}",
            converted.display()
        );
    }

    let split = recorded.other("split");
    trace_cmd_on(&["split", "-i", file, "-o", text(&split)]);
    let whole = trace_cmd::lines(&trace_cmd::report(&recorded.other("split.1"), &["-t"]));
    assert_eq!(whole.len(), events, "split, all in one");
    trace_cmd_on(&["split", "-i", file, "-o", text(&split), "-e", "1000"]);
    let part = trace_cmd::lines(&trace_cmd::report(&recorded.other("split.1"), &["-t"]));
    assert_eq!(part, lines[..1000], "split -e 1000");

    let hist = trace_cmd_on(&["hist", "-i", file]);
    assert!(hist.contains("sched_switch"), "{hist}");

    let stat = recorded.report(&["--stat"]);
    let read: usize = stat
        .lines()
        .filter_map(|line| line.strip_prefix("read events: "))
        .map(|n| n.parse::<usize>().unwrap())
        .sum();
    assert_eq!(read, events, "{stat}");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(recorded.report(&["--uname"]).contains(release.trim()));
    assert!(recorded.report(&["--version"]).contains("tracer-agent "));

    let mut by_cpu: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for line in &lines {
        by_cpu.entry(line.cpu).or_insert((line.time, line.time)).1 = line.time;
    }
    let ends = recorded.report(&["--cpus", "--first-event", "--last-event", "-t"]);
    for (cpu, (first, last)) in by_cpu {
        let seconds = |time: u64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
        let line = ends.lines().find(|line| line.trim_start().starts_with(&format!("{cpu}\t"))).unwrap();
        assert!(line.contains(&seconds(first)) && line.contains(&seconds(last)), "{line:?}: {first} {last}");
    }

    every_task_has_its_name(&recorded, &lines);
}

fn every_task_has_its_name(recorded: &Recorded, lines: &[Line]) {
    let nameless: BTreeSet<u32> =
        lines.iter().filter(|line| line.comm == "<...>").map(|line| line.pid).collect();
    assert_eq!(nameless, BTreeSet::new(), "threads without a name");
    let names: BTreeMap<u32, &str> = lines.iter().map(|line| (line.pid, line.comm.as_str())).collect();
    assert!(recorded.account.names.len() >= 350);
    for (tid, name) in &recorded.account.names {
        assert_eq!(names.get(tid), Some(&name.as_str()), "thread {tid}");
    }
}

#[test]
fn every_command_with_zstd() {
    every_command("zstd");
}

#[test]
fn every_command_with_a_level_of_zstd() {
    every_command("zstd:9");
}

#[test]
fn every_command_without_compression() {
    every_command("none");
}

/// How many symbols a file holds.
fn symbols(recorded: &Recorded) -> usize {
    let dump = trace_cmd_on(&["dump", "--kallsyms", "-i", text(recorded.file())]);
    dump.lines()
        .filter(|line| {
            line.split_whitespace().next().is_some_and(|word| u64::from_str_radix(word, 16).is_ok())
        })
        .count()
}

#[test]
fn symbols_are_there_when_asked_for_or_needed() {
    let function = |recorded: &Recorded| {
        let lines = recorded.lines(&[]);
        let line = lines.iter().find(|line| line.event == "hrtimer_expire_entry").expect("a timer ran out");
        line.fields.split("function=").nth(1).unwrap().to_owned()
    };
    for (mode, named) in [("auto", true), ("full", true), ("none", false)] {
        let recorded = Recorded::make("timer", &["-e", "timer", "--kallsyms", mode]);
        let function = function(&recorded);
        assert_eq!(
            function.starts_with(|c: char| c.is_alphabetic() || c == '_'),
            named,
            "{mode}: {function}"
        );
        assert_eq!(symbols(&recorded) > 10_000, named, "{mode}");
    }
    // These events print no symbol.
    for (mode, there) in [("auto", false), ("full", true)] {
        let recorded = Recorded::make("mixed", &["-e", "sched:sched_switch", "--kallsyms", mode]);
        assert_eq!(symbols(&recorded) > 10_000, there, "{mode}");
    }
}

#[test]
fn one_cpu_of_several() {
    let last = thread::available_parallelism().unwrap().get() - 1;
    assert!(last > 0, "this test needs two CPUs");
    for compression in ["zstd", "none"] {
        let mask = format!("{:x}", 1u64 << last);
        let recorded = Recorded::make("sched", &["-e", "sched", "-M", &mask, "--compression", compression]);
        let lines = recorded.lines(&["-t"]);
        assert_eq!(lines.len() as u64, recorded.recording.events());
        assert!(!lines.is_empty() && lines.iter().all(|line| line.cpu as usize == last));
        let cpus = recorded.report(&["--cpus"]);
        let listed: Vec<&str> = cpus.lines().skip(1).map(str::trim).collect();
        assert_eq!(listed, [last.to_string()], "{cpus}");
        let six = recorded.other("6.dat");
        trace_cmd_on(&["convert", "--file-version", "6", "-i", text(recorded.file()), "-o", text(&six)]);
        assert_eq!(trace_cmd::lines(&trace_cmd::report(&six, &["-t"])), lines);
    }
}

#[test]
fn formats_of_all_events() {
    let kernel = tracefs::events(&[]);
    for (extra, expected) in [
        (None, kernel.values().filter(|event| event.system == "sched").count()),
        (Some("-a"), kernel.values().filter(|event| event.system != "ftrace").count()),
    ] {
        let args: Vec<&str> = ["-e", "sched"].into_iter().chain(extra).collect();
        let recorded = Recorded::make("sched", &args);
        let formats = trace_cmd_on(&["dump", "--events", "-i", text(recorded.file())]);
        let ftrace = kernel.values().filter(|event| event.system == "ftrace");
        let ftrace: BTreeSet<String> = ftrace.map(|event| format!("name: {}", event.format.name)).collect();
        let found = formats.lines().filter(|line| line.starts_with("name: ") && !ftrace.contains(*line));
        assert_eq!(found.count(), expected, "{args:?}");
        assert_eq!(recorded.lines(&[]).len() as u64, recorded.recording.events());
    }
}

/// Nanoseconds of one of the system's clocks.
fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(id, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
fn clocks_are_printed_as_seconds() {
    for (name, id) in
        [("mono", libc::CLOCK_MONOTONIC), ("boot", libc::CLOCK_BOOTTIME), ("tai", libc::CLOCK_TAI)]
    {
        let before = clock(id);
        let recorded = Recorded::make("sched", &["-e", "sched", "-C", name]);
        let after = clock(id);
        let lines = recorded.lines(&["-t"]);
        assert_eq!(lines.len() as u64, recorded.recording.events(), "{name}");
        for line in [lines.first().unwrap(), lines.last().unwrap()] {
            assert!(
                (before..=after).contains(&line.time),
                "{name}: {} is not within {before}..{after}",
                line.time
            );
        }
    }
}

#[test]
fn wall_time() {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let before = now();
    let recorded = Recorded::make("sched", &["-e", "sched", "--date"]);
    let after = now();
    // What the clock is steered meanwhile.
    let slack = Duration::from_millis(100);
    let lines = recorded.lines(&["-t"]);
    assert_eq!(lines.len() as u64, recorded.recording.events());
    for line in [lines.first().unwrap(), lines.last().unwrap()] {
        let time = Duration::from_nanos(line.time);
        assert!(
            (before..=after + slack + slack).contains(&(time + slack)),
            "{time:?} is not within {before:?}..{after:?}"
        );
    }
}
