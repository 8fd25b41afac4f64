//! Recordings of several files: all of them together have every event once, whatever happens in between.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use integration_tests::{
    dat::Dat,
    harness::{
        Caller, Ended, Ledger, Marked, Report, Running, Tmpfs, agent, files, is_getppid, ledger_in_info, run,
        wait_for,
    },
    soak, workload,
};

/// How many files the storms have.
const FILES: usize = 100;
/// How many calls they have at least, and bytes that none of them has less of in a file.
const MILLION: u64 = 1_000_000;
const CALL: u64 = 24;

/// A recording of `numbered` calls into the directory `out`.
struct Storm {
    dir: tempfile::TempDir,
    agent: Running,
}

impl Storm {
    fn start(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command =
            agent(dir.path(), ["record", "-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-o", "out"]);
        command
            .args(["-b", "32M", "--compression", "none"])
            .args(options)
            .args(workload::command("numbered", dir.path()));
        let agent = Running::start(&mut command);
        Self { dir, agent }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// Waits until so many files were begun: making them may take longer than recording.
    fn wait_for_files(&self, count: usize) {
        let number = |name: &String| -> Option<usize> {
            let name = name.strip_suffix(".spool").unwrap_or(name).strip_suffix(".dat")?;
            name.rsplit('-').next()?.parse().ok()
        };
        wait_for("the files", || {
            let there = if self.out().exists() { files(&self.out()) } else { Vec::new() };
            (there.iter().filter_map(number).max()? > count).then_some(())
        });
    }

    /// How often each thread has called.
    fn calls(&self) -> BTreeMap<u32, u64> {
        let said = self.dir.path().join("numbers.txt");
        wait_for("the end of the calls", || said.exists().then_some(()));
        workload::numbers_of(self.dir.path()).into_iter().collect()
    }
}

/// The files in a directory that are no spools, in the order of their numbers.
fn closed(dir: &Path) -> Vec<PathBuf> {
    let names = if dir.exists() { files(dir) } else { Vec::new() };
    let mut found: Vec<(u64, PathBuf)> = names
        .into_iter()
        .filter_map(|name| {
            let base = name.strip_suffix(".dat")?;
            let [begin, end, number] = base.split('-').collect::<Vec<_>>()[..] else { return None };
            assert!(is_time(begin) && is_time(end) && begin <= end, "{name}");
            // A second one of that name has a number more.
            let number = number.split('.').next()?;
            Some((number.parse().unwrap(), dir.join(&name)))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// `20260302T101500+0000`
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "00000000T000000+0000"
}

/// The numbered calls of a file, by thread in the order of the file: each CPU has threads of its own.
fn numbered(file: &Path) -> BTreeMap<u32, Vec<u64>> {
    let mut calls: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for record in Dat::open(file).records() {
        let number = u64::from_le_bytes(record.bytes[16..24].try_into().unwrap());
        calls.entry(record.pid()).or_default().push(number);
    }
    calls
}

/// That the ledger of a file that was closed counts what is in it.
fn check_counts(file: &Path, calls: &BTreeMap<u32, Vec<u64>>) {
    let count: usize = calls.values().map(Vec::len).sum();
    let ledger = Ledger::of(file);
    let counted = [ledger.cpus("stored"), ledger.cpus("recorded"), ledger.events("recorded")];
    assert_eq!(counted, [count as u64; 3], "{}", file.display());
}

/// That the files, one after the other, have the calls of these threads, each once and in order, but for the
/// lost ones. Gives the number after the last one of each thread, and how many are not there before it.
fn check_order(
    files: &[PathBuf],
    threads: &BTreeMap<u32, u64>,
    first: Option<u64>,
) -> (BTreeMap<u32, u64>, u64) {
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut lost, mut missing) = (0, 0);
    for file in files {
        // The helper's own call when it starts has a number by chance.
        for (tid, calls) in numbered(file).into_iter().filter(|(tid, _)| threads.contains_key(tid)) {
            let next = next.entry(tid).or_insert(first.unwrap_or(calls[0]));
            for call in calls {
                assert!(call >= *next, "{}: call {call} of {tid} after {next}", file.display());
                missing += call - *next;
                *next = call + 1;
            }
        }
        let ledger = Ledger::of(file);
        lost += ledger.lost() + ledger.cpus("unexplained");
    }
    assert!(missing <= lost, "{missing} calls are missing, {lost} are counted as lost");
    (next, missing)
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    #[test]
    fn a_storm_is_all_there_in_a_hundred_files() {
        super::a_storm_is_all_there_in_a_hundred_files();
    }
}

fn a_storm_is_all_there_in_a_hundred_files() {
    let storm = Storm::start(&["--rotate-time", "10ms"]);
    for hundreds in 1..=soak() {
        storm.wait_for_files(FILES * hundreds);
    }
    let bytes = || {
        closed(&storm.out()).iter().filter_map(|file| file.metadata().ok()).map(|of| of.len()).sum::<u64>()
    };
    wait_for("a million calls in closed files", || (bytes() > MILLION * CALL).then_some(()));
    workload::end_numbered(storm.dir.path());
    let (calls, out) = (storm.calls(), storm.out());
    let ended = storm.agent.wait().expect(0).says(&["files,"]);
    let files = closed(&out);
    assert_eq!(integration_tests::harness::files(&out).len(), files.len(), "nothing else is there");
    let (found, between) = check_order(&files, &calls, Some(0));
    for file in &files {
        check_counts(file, &numbered(file));
    }
    let lost: u64 = files.iter().map(|file| Ledger::of(file).lost()).sum();
    // What a thread lost at its end is not followed by another call of it.
    let at_end: u64 = calls.iter().map(|(tid, calls)| calls - found[tid]).sum();
    assert_eq!(between + at_end, lost, "what is not there is lost, and nothing else is");
    let stored: u64 = files.iter().map(|file| Ledger::of(file).cpus("stored")).sum();
    println!("{stored} events in {} files, {lost} lost", files.len());
    assert!(stored > MILLION, "{stored} events are no storm: {}", ended.err);

    // Each is a file for stock readers; all of them together are one recording again.
    for file in [files.first(), files.get(files.len() / 2), files.last()].into_iter().flatten() {
        let count = Ledger::of(file).cpus("stored");
        assert_eq!(Report::of(file).events.len() as u64, count);
        run(agent(&out, ["check"]).arg(file)).expect(0);
    }
    run(agent(&out, ["merge", "-o", "all.dat"]).args(&files)).expect(0);
    let all = Dat::open(&out.join("all.dat")).records();
    assert_eq!(all.len() as u64, stored);
    for pair in all.windows(2) {
        assert!(pair[0].cpu != pair[1].cpu || pair[0].time <= pair[1].time, "time goes back on a CPU");
    }
}

#[test]
fn a_killed_recording_has_its_files_and_the_rest_in_spools() {
    let mut storm = Storm::start(&["--rotate-time", "10ms"]);
    storm.wait_for_files(FILES);
    storm.agent.signal(libc::SIGKILL);
    wait_for("its end", || storm.agent.has_ended().then_some(()));
    workload::end_numbered(storm.dir.path());
    let (calls, out) = (storm.calls(), storm.out());
    // One that is just being made or removed has another name.
    let is_spool = |name: &String| name.starts_with("20") && name.strip_suffix(".spool").is_some();
    let spools = || files(&out).into_iter().filter(is_spool).collect::<Vec<_>>();
    assert_ne!(spools(), [""; 0]);
    run(agent(&out, ["recover", "-q"]).arg(&out)).expect(0);
    assert_eq!(spools(), [""; 0]);
    let files = closed(&out);
    assert!(files.len() > FILES / 2, "{} files", files.len());
    let (next, between) = check_order(&files, &calls, Some(0));
    let (mut stored, mut missing) = (0, 0);
    for file in &files {
        run(agent(&out, ["check"]).arg(file)).expect(0);
        let ledger = Ledger::of(file);
        stored += ledger.cpus("stored");
        // Of the last file, what was lost by then and what was in the rings.
        missing += ledger.lost() + ledger.cpus("unexplained");
    }
    for file in &files[files.len() - 3..] {
        let cpus = ledger_in_info(file)["cpus"].as_array().unwrap().clone();
        missing += cpus.iter().filter_map(|cpu| cpu["missing"]["at_least"].as_u64()).sum::<u64>();
    }
    let fired: u64 = calls.values().sum();
    assert!(next.values().sum::<u64>() > 100_000, "{next:?}");
    // The workload went on without the recorder, and has a call of its own.
    assert!(between <= missing && stored + missing <= fired + 1, "{stored} and {missing} of {fired}");
}

#[test]
fn the_newest_files_are_kept() {
    let storm = Storm::start(&["--rotate-time", "20ms", "--keep", "20"]);
    let number = |path: &PathBuf| -> u64 {
        path.file_stem().unwrap().to_str().unwrap().rsplit('-').next().unwrap().parse().unwrap()
    };
    wait_for("a file too many", || (closed(&storm.out()).first().map(number)? > 1).then_some(()));
    workload::end_numbered(storm.dir.path());
    let (calls, out) = (storm.calls(), storm.out());
    storm.agent.wait().expect(0);
    let kept = closed(&out);
    let numbers: Vec<u64> = kept.iter().map(number).collect();
    assert_eq!(numbers, (numbers[0]..numbers[0] + 20).collect::<Vec<_>>(), "the last ones, without a gap");
    let (next, _) = check_order(&kept, &calls, None);
    for file in &kept {
        check_counts(file, &numbered(file));
    }
    assert!(!next.is_empty());
    // The last files may be of the time after the last call.
    assert!(next.iter().all(|(tid, next)| next <= &calls[tid]), "{next:?} of {calls:?}");
}

#[test]
fn files_are_closed_when_they_are_large() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let options =
        ["-e", "raw_syscalls:sys_enter", "-P", &pid, "--compression", "none", "--rotate-size", "1M"];
    let recording = Marked::start_in(dir.path(), &options, dir.path().join("mark"));
    let out = dir.path().join("traces");
    wait_for("three files", || {
        caller.call(5_000);
        (closed(&out).len() >= 3).then_some(())
    });
    recording.finish().expect(0);
    let files = closed(&out);
    for file in &files[..files.len() - 1] {
        let pages = Ledger::of(file).cpus("pages");
        // How many more come until it is closed is a matter of how busy the machine is.
        assert!(pages >= 256, "{pages} pages in {}", file.display());
    }
    let found: u64 = files.iter().map(|file| Report::of(file).count(is_getppid)).sum();
    assert_eq!(found, caller.calls());
}

#[test]
fn counts_of_several_events_are_those_of_each_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = agent(
        dir.path(),
        [
            "record",
            "-o",
            "out",
            "--rotate-time",
            "100ms",
            "--compression",
            "none",
            "-e",
            "sched",
            "-e",
            "irq",
        ],
    );
    let script = "for i in 1 2 3 4 5 6; do ls -R /usr/share/doc >/dev/null; sleep 0.08; done";
    run(command
        .args(["-e", "syscalls", "-f", "fd > 2", "-e", "timer", "--sample", "1/3", "sh", "-c", script]))
    .expect(0);
    let files = closed(&dir.path().join("out"));
    assert!(files.len() > 3, "{files:?}");
    for file in &files {
        let mut by_id: BTreeMap<u16, u64> = BTreeMap::new();
        for record in Dat::open(file).records() {
            *by_id.entry(record.id()).or_default() += 1;
        }
        let said = run(agent(dir.path(), ["info", "--json"]).arg(file)).expect(0).out;
        let info: serde_json::Value = serde_json::from_str(&said).unwrap();
        let events = info["ledger"]["events"].as_array().unwrap_or_else(|| panic!("{info}"));
        let told: BTreeMap<u16, u64> = events
            .iter()
            .map(|event| (event["id"].as_u64().unwrap() as u16, event["recorded"].as_u64().unwrap()))
            .filter(|(_, recorded)| *recorded != 0)
            .collect();
        assert_eq!(told, by_id, "{}", file.display());
    }
}

/// Calls until the recording ends by itself.
fn until_full(dir: &Path, options: &[&str]) -> (Ended, u64) {
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let mut command = agent(dir, ["record", "-o", "out", "-e", "raw_syscalls:sys_enter", "-P", &pid]);
    let mut recording = Running::start(command.args(options));
    wait_for("a full disk", || {
        caller.call(20_000);
        recording.has_ended().then_some(())
    });
    (recording.wait(), caller.calls())
}

#[test]
fn a_full_disk_leaves_whole_files() {
    let disk = Tmpfs::mount("size=24m");
    let (ended, calls) = until_full(disk.path(), &["--compression", "none", "--rotate-size", "1M"]);
    let ended = ended.expect(113).says(&["No space left"]);
    let out = disk.path().join("out");
    if files(&out).len() != closed(&out).len() {
        // What was recorded meanwhile took the room of a file that was being made.
        assert!(ended.err.contains("tracer-agent recover"), "{}", ended.err);
        run(agent(&out, ["recover", "-q"]).arg(&out)).expect(0);
    }
    let there = files(&out);
    assert_eq!(there.len(), closed(&out).len(), "nothing else is left: {there:?}\n{}", ended.err);
    let mut found = 0;
    for file in closed(&out) {
        run(agent(&out, ["check"]).arg(&file)).expect(0);
        let report = Report::of(&file);
        assert_eq!(Ledger::of(&file).cpus("stored"), report.events.len() as u64, "{}", file.display());
        found += report.count(is_getppid);
    }
    assert!(found > 50_000 && found < calls, "{found} of {calls}: {}", ended.err);
}

#[test]
fn what_cannot_be_rotated_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    for (options, code, said) in [
        (&["--rotate-size", "4"][..], 2, "two pages"),
        (&["--rotate-time", "1ms"], 2, "10ms"),
        (&["--keep", "3"], 2, "--rotate-size or --rotate-time"),
        (&["--rotate-time", "1s", "--keep", "0"], 2, "--keep 0"),
        (&["--rotate-time", "1s", "--overwrite"], 2, "--overwrite"),
        (&["--rotate-time", "1s", "-m", "1024"], 2, "--keep"),
        (&["--rotate-time", "1s", "-o", "file"], 114, "not a directory"),
    ] {
        let mut command = agent(dir.path(), ["record", "-e", "sched:sched_switch"]);
        let ended = run(command.args(options).args(["touch", "ran"]));
        ended.expect(code).says(&[said]);
        assert_eq!(files(dir.path()), ["file"], "{options:?}: nothing was begun");
    }
}

#[test]
fn an_archive_is_not_followed() {
    let storm = Storm::start(&["--rotate-time", "1h"]);
    let spool = || {
        let names = if storm.out().exists() { files(&storm.out()) } else { Vec::new() };
        names.into_iter().find(|name| name.strip_suffix("-1.dat.spool").is_some())
    };
    let spool = wait_for("the spool", spool);
    let mut follow = agent(&storm.out(), ["report", "--follow"]);
    run(follow.arg(&spool)).expect(1).says(&["one of several files"]);
    workload::end_numbered(storm.dir.path());
    storm.agent.wait().expect(0);
}
