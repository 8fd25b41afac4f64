//! Our own recordings through `convert`, `split`, `merge` and `repair`, read by stock trace-cmd.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use integration_tests::harness::{Caller, Marked, agent, files, run, wait_for_readers};
use integration_tests::{agent as recorder, trace_cmd, workload};

/// A recording's file in a directory of its own.
struct Recorded {
    dir: tempfile::TempDir,
    file: PathBuf,
}

impl Recorded {
    /// Every event while something happens, in several chunks.
    fn of_everything() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace.dat");
        let mut args: Vec<String> = ["-e", "all"].map(str::to_owned).to_vec();
        args.extend(workload::command("mixed", dir.path()));
        recorder::record(&file, &args);
        Self { dir, file }
    }

    /// What is left of many events in small rings that keep the newest, and of what came when nobody read.
    fn with_losses(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        // A loss is marked at the next event of its CPU.
        caller.pin(0);
        let pid = caller.pid().to_string();
        let mut all = vec!["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "64", "-s", "1000"];
        all.extend(args);
        let recording = Marked::start(dir.path(), &all);
        recording.agent.hold();
        caller.call(20_000);
        recording.agent.signal(libc::SIGCONT);
        // The agent has made room again, for some that come in peace.
        wait_for_readers(recording.agent.pid());
        caller.call(300);
        recording.finish().expect(0);
        let file = dir.path().join("trace.dat");
        Self { dir, file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command on the recording, which must end well.
    fn agent(&self, args: &[&str]) -> String {
        run(&mut agent(self.dir.path(), args)).expect(0).out
    }

    /// What trace-cmd shows of a file: lines of events and of losses.
    fn shown(&self, name: &str) -> Vec<String> {
        shown(&self.path(name))
    }
}

fn shown(path: &Path) -> Vec<String> {
    let report = trace_cmd::report(path, &["-t"]);
    let about = |line: &&str| {
        !line.starts_with("cpus=")
            && !line.starts_with("version")
            && !line.ends_with("is empty")
            && !line.is_empty()
    };
    report.lines().filter(about).map(str::to_owned).collect()
}

/// Threads of which a file has no name, as trace-cmd shows them. It takes the name of such a thread from a
/// switch or a wakeup for the lines behind it, so that a part lacks what an earlier part has told.
fn nameless(lines: &[String]) -> BTreeSet<String> {
    let thread = |line: &String| {
        let (_, rest) = line.split_once("<...>-")?;
        rest.split_whitespace().next().map(|tid| format!("-{tid} "))
    };
    lines.iter().filter_map(thread).collect()
}

/// A line without the name of its thread if it is one of these.
fn without_name(line: &str, threads: &BTreeSet<String>) -> String {
    let found = threads.iter().find_map(|thread| {
        let (_, rest) = line.split_once(thread.as_str())?;
        rest.trim_start().starts_with('[').then(|| format!("<...>{thread}{rest}"))
    });
    found.unwrap_or_else(|| line.to_owned())
}

/// In every form, the recording shows the same; in parts and put together again, too.
fn every_form(recorded: &Recorded, per_part: usize) {
    let expected = recorded.shown("trace.dat");
    assert!(expected.len() > 500, "only {} lines", expected.len());
    for (from, to, how) in [
        ("trace.dat", "six.dat", &["--file-version", "6"][..]),
        ("six.dat", "seven.dat", &[]),
        ("trace.dat", "none.dat", &["--compression", "none"]),
        ("none.dat", "nine.dat", &["--compression", "zstd:9"]),
        ("trace.dat", "same.dat", &[]),
    ] {
        let json = recorded.agent(&[&["convert", from, "-o", to, "--json"], how].concat());
        let events = expected.iter().filter(|line| !line.contains("EVENTS DROPPED")).count();
        assert!(json.contains(&format!("\"events\":{events},\"left_out\":0")), "{to}: {json}");
        assert!(recorded.shown(to) == expected, "{to} shows something else");
    }
    let per_part = per_part.to_string();
    recorded.agent(&["split", "-i", "trace.dat", "-o", "part", "-e", &per_part, "-r"]);
    let parts: Vec<_> =
        files(recorded.dir.path()).into_iter().filter(|name| name.starts_with("part.")).collect();
    assert!(parts.len() > 2, "{parts:?}");
    let mut lines: Vec<_> = parts.iter().flat_map(|part| recorded.shown(part)).collect();
    let mut sorted = expected.clone();
    let nameless = nameless(&lines);
    for line in lines.iter_mut().chain(&mut sorted) {
        *line = without_name(line, &nameless);
    }
    sorted.sort();
    lines.sort();
    assert!(lines == sorted, "{} lines in the parts, {} in the whole", lines.len(), sorted.len());
    let mut merge = vec!["merge", "-o", "whole.dat"];
    merge.extend(parts.iter().map(String::as_str));
    recorded.agent(&merge);
    assert!(recorded.shown("whole.dat") == expected, "the parts do not make up the whole");
    let check =
        run(&mut agent(recorded.dir.path(), ["check", "whole.dat", "same.dat", "seven.dat", "none.dat"]));
    check.expect(0);
}

#[test]
fn every_event_in_every_form() {
    let recorded = Recorded::of_everything();
    let events = recorded.shown("trace.dat").len();
    every_form(&recorded, events / 4 + 1);

    // A file that lost its end, as one whose copy was cut short.
    let bytes = fs::read(&recorded.file).unwrap();
    fs::write(recorded.path("cut.dat"), &bytes[..bytes.len() * 9 / 10]).unwrap();
    let repaired = run(&mut agent(recorded.dir.path(), ["repair", "cut.dat", "-o", "saved.dat"])).expect(0);
    let saved = recorded.shown("saved.dat").iter().filter(|line| !line.contains("EVENTS DROPPED")).count();
    assert!(saved > events / 4 && saved <= events, "{saved} of {events} saved");
    assert!(repaired.err.contains("the list of CPUs of the data"), "{}", repaired.err);
    let nothing = run(&mut agent(recorded.dir.path(), ["convert", "cut.dat", "-o", "never.dat"])).expect(1);
    assert!(nothing.err.contains("tracer-agent repair"), "{}", nothing.err);

    // What cannot be done leaves no file behind.
    fs::write(recorded.path("junk.dat"), "no trace").unwrap();
    run(&mut agent(recorded.dir.path(), ["repair", "junk.dat", "-o", "never.dat"])).expect(1);
    run(&mut agent(recorded.dir.path(), ["split", "trace.dat", "999999999", "-o", "never"])).expect(1);
    let into_itself =
        run(&mut agent(recorded.dir.path(), ["convert", "trace.dat", "-o", "trace.dat"])).expect(2);
    assert!(into_itself.err.contains("name another one"), "{}", into_itself.err);
    run(&mut agent(recorded.dir.path(), ["convert", "trace.dat", "-o", "x", "--compression", "zlib"]))
        .expect(2);
    let left = files(recorded.dir.path());
    assert!(!left.iter().any(|name| name.starts_with("never") || name.contains(".new.")), "{left:?}");
}

#[test]
fn lost_events_stay_marked_in_every_form() {
    for args in [&[][..], &["--overwrite"]] {
        let recorded = Recorded::with_losses(args);
        let lines = recorded.shown("trace.dat");
        assert!(lines.iter().any(|line| line.contains("EVENTS DROPPED")), "{args:?}: nothing was lost");
        every_form(&recorded, lines.len() / 3);
    }
}
