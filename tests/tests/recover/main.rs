//! Recordings that end badly: killed, on a full disk, with a damaged spool. What was stored is never lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use integration_tests::harness::{
    Caller, Ended, Ledger, Marked, Report, Running, Tmpfs, agent, cpustat, files, is_getppid, program, run,
    wait_for, wait_for_readers,
};

/// Events that are never in the spool when a recording is killed: those of a chunk that is not full yet, 16
/// pages.
const CHUNK_EVENTS: u64 = 16 * 4096 / 64;

/// How often a reader looks at rings that do not fill: tests wait for several looks.
const LOOK_US: &str = "10000";

/// What a killed recording left.
struct Killed {
    dir: tempfile::TempDir,
    calls: u64,
}

impl Killed {
    /// Kills a recording in the middle of its work.
    fn make(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let calls = kill_recording(dir.path(), "trace.dat", args);
        Self { dir, calls }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self) -> PathBuf {
        self.path().join("trace.dat")
    }

    fn spool(&self) -> PathBuf {
        self.path().join("trace.dat.spool")
    }

    /// The largest data file of the spool.
    fn segment(&self) -> PathBuf {
        let names = files(&self.spool());
        let segments = names.iter().filter(|name| name.starts_with("cpu"));
        let largest = segments.max_by_key(|name| fs::metadata(self.spool().join(name)).unwrap().len());
        self.spool().join(largest.expect("a data file"))
    }

    fn recover(&self, args: &[&str]) -> Ended {
        run(agent(self.path(), ["recover"]).args(args))
    }

    /// The recovered file's calls. They must be what was made, but for what was still in the ring.
    fn check(&self) -> Report {
        let report = Report::of(&self.file());
        let found = report.count(is_getppid);
        assert!(found <= self.calls, "{found} of {} calls", self.calls);
        assert!(self.calls - found <= CHUNK_EVENTS, "{found} of {} calls", self.calls);
        assert_eq!(report.dropped, 0, "the ring was never full");
        report
    }
}

fn kill_recording(dir: &Path, output: &str, args: &[&str]) -> u64 {
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let mut all = vec!["-e", "raw_syscalls:sys_enter", "-P", &pid, "-o", output, "-s", LOOK_US];
    all.extend(args);
    let recording = Marked::start(dir, &all);
    caller.call(20_000);
    caller.settle();
    wait_for_readers(recording.agent.pid());
    recording.agent.signal(libc::SIGKILL);
    recording.end_command();
    let ended = recording.agent.wait();
    assert_eq!(ended.status.code(), None, "killed: {ended:?}");
    caller.calls()
}

#[test]
fn a_killed_recording_is_recovered_by_the_name_of_its_file() {
    let killed = Killed::make(&[]);
    assert_eq!(files(killed.path()), ["trace.dat.spool"], "no partial file under the final name");
    killed.recover(&["trace.dat"]).expect(0).says(&["trace.dat", "events"]);
    let report = killed.check();
    let ledger = Ledger::of(&killed.file());
    assert_eq!(ledger.cpus("stored"), report.events.len() as u64);
    assert_eq!(ledger.lost(), report.dropped, "what the data is known to lack");
    assert!(report.events.iter().any(|line| line.contains("perl-")), "thread names are there");
    assert_eq!(files(killed.path()), ["trace.dat"], "the spool is gone");
}

#[test]
fn a_killed_recording_is_recovered_by_its_directory_and_from_elsewhere() {
    let killed = Killed::make(&[]);
    let other = tempfile::tempdir().unwrap();
    let spool = killed.spool();
    run(agent(other.path(), ["recover"]).arg(&spool)).expect(0);
    assert_eq!(
        files(other.path()),
        [""; 0],
        "the file belongs beside its spool, not where recover was called"
    );
    killed.check();
    assert_eq!(files(killed.path()), ["trace.dat"]);
}

#[test]
fn a_killed_recording_can_be_recovered_into_another_file() {
    let killed = Killed::make(&["--compression", "none"]);
    let other = tempfile::tempdir().unwrap();
    let output = other.path().join("kept.dat");
    killed.recover(&["-o", output.to_str().unwrap(), "trace.dat"]).expect(0);
    assert_eq!(files(killed.path()), [""; 0]);
    assert!(Report::of(&output).count(is_getppid) > 10_000);
    assert_eq!(files(other.path()), ["kept.dat"]);
}

#[test]
fn a_chunk_cut_short_is_left_out_and_everything_before_it_recovered() {
    for compression in ["zstd", "none"] {
        let killed = Killed::make(&["--compression", compression]);
        let segment = killed.segment();
        let file = fs::File::options().write(true).open(&segment).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len - 10).unwrap();
        killed.recover(&["trace.dat"]).expect(0);
        let report = Report::of(&killed.file());
        // At most one chunk less: 16 pages.
        let found = report.count(is_getppid);
        assert!(found + report.dropped + 2 * CHUNK_EVENTS >= killed.calls, "{compression}: {found}");
    }
}

#[test]
fn zeros_behind_the_data_are_left_out() {
    for compression in ["zstd", "none"] {
        let killed = Killed::make(&["--compression", compression]);
        let segment = killed.segment();
        let file = fs::File::options().write(true).open(&segment).unwrap();
        let len = file.metadata().unwrap().len();
        // What a power cut leaves when the length reached the disk and the data did not.
        file.set_len(len + 100_000).unwrap();
        killed.recover(&["trace.dat"]).expect(0);
        let report = killed.check();
        let times: Vec<f64> = report.events.iter().map(|line| time_of(line)).collect();
        assert!(times.is_sorted() && times[0] > 1.0, "{compression}: no event comes from the zeros");
    }
}

#[test]
fn damage_in_the_middle_costs_only_its_chunk_and_keeps_the_spool() {
    for compression in ["zstd", "none"] {
        let killed = Killed::make(&["--compression", compression]);
        let segment = killed.segment();
        let file = fs::File::options().read(true).write(true).open(&segment).unwrap();
        let at = match compression {
            // Behind the header of the chunk and the magic number of its data.
            "zstd" => 8 + 4,
            _ => file.metadata().unwrap().len() / 2 / 4096 * 4096,
        };
        file.write_all_at(&[0xff; 512], at).unwrap();
        let ended = killed.recover(&["trace.dat"]).expect(0);
        let found = Report::of(&killed.file()).count(is_getppid);
        assert!(found < killed.calls && found + 3 * CHUNK_EVENTS > killed.calls, "{found}: {}", ended.err);
        ended.says(&["not readable", "trace.dat.spool is kept", "recovered"]);
        assert_eq!(files(killed.path()), ["trace.dat", "trace.dat.spool"]);
    }
}

fn time_of(line: &str) -> f64 {
    let time = line.split_once("] ").and_then(|(_, rest)| rest.trim_start().split(": ").next());
    time.and_then(|time| time.trim().parse().ok()).unwrap_or_else(|| panic!("no time in {line:?}"))
}

#[test]
fn without_the_names_only_the_names_are_missing() {
    let killed = Killed::make(&[]);
    fs::remove_file(killed.spool().join("names")).unwrap();
    killed.recover(&["trace.dat.spool"]).expect(0);
    let report = killed.check();
    assert!(report.events[0].contains("<...>-"), "{}", report.events[0]);
}

#[test]
fn a_damaged_manifest_is_a_clear_error_and_nothing_is_deleted() {
    let killed = Killed::make(&[]);
    let manifest = killed.spool().join("manifest");
    let good = fs::read(&manifest).unwrap();
    let before = files(&killed.spool());
    for (bytes, says) in [
        (&good[..good.len() / 2], "ends too early"),
        (&good[..0], "ends too early"),
        (&[0; 5000][..], "not written by"),
    ] {
        fs::write(&manifest, bytes).unwrap();
        killed.recover(&["trace.dat"]).expect(1).says(&["manifest is damaged", says]);
        assert_eq!(files(&killed.spool()), before);
    }
    fs::write(&manifest, good).unwrap();
    killed.recover(&["trace.dat"]).expect(0);
    killed.check();
}

#[test]
fn what_is_no_recording_is_not_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let recover = |path: &str| run(&mut agent(dir.path(), ["recover", path]));
    recover("nothing.dat").expect(1).says(&["nothing.dat.spool", "No such file"]);
    fs::create_dir(dir.path().join("empty")).unwrap();
    recover("empty").expect(1).says(&["empty", "No such file"]);
    assert_eq!(files(dir.path()), ["empty"]);
}

#[test]
fn a_running_recording_is_not_recovered_and_not_disturbed() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let recording = Marked::start(dir.path(), &["-e", "raw_syscalls:sys_enter", "-P", &pid]);
    caller.call(1000);
    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(1).says(&["still running"]);
    // Nor can another recording take its place.
    let second = run(&mut agent(dir.path(), ["record", "-e", "sched", "true"]));
    second.expect(114).says(&["trace.dat.spool", "still running"]);
    caller.call(1000);
    recording.finish().expect(0);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), 2000);
}

#[test]
fn a_new_recording_keeps_the_spool_of_a_killed_one() {
    let killed = Killed::make(&[]);
    let again = run(&mut agent(killed.path(), ["record", "-e", "sched:sched_switch", "sleep", "0.1"]));
    again.expect(0).says(&["trace.dat.spool.1", "tracer-agent recover"]);
    assert_eq!(files(killed.path()), ["trace.dat", "trace.dat.spool.1"]);
    let newer = fs::read(killed.file()).unwrap();
    let recovered = killed.recover(&["trace.dat.spool.1"]).expect(0);
    assert!(fs::read(killed.file()).unwrap() == newer, "the newer recording is not overwritten");
    assert_eq!(files(killed.path()), ["trace.dat", "trace.dat.1"], "{}", recovered.err);
    assert!(Report::of(&killed.path().join("trace.dat.1")).count(is_getppid) > 10_000);
}

#[test]
fn a_directory_that_is_no_spool_of_ours_is_never_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("trace.dat.spool");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
    run(&mut agent(dir.path(), ["record", "-e", "sched:sched_switch", "true"])).expect(0);
    let kept = dir.path().join("trace.dat.spool.1/thesis.txt");
    assert_eq!(fs::read_to_string(kept).unwrap(), "years of work");
}

/// Interrupts a recording twice, and checks what is left. Whether the second came before the file was
/// finished.
fn interrupt_twice() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let recording = Marked::start(dir.path(), &["-e", "raw_syscalls:sys_enter", "-P", &pid, "-s", LOOK_US]);
    caller.call(20_000);
    caller.settle();
    wait_for_readers(recording.agent.pid());
    // Both are there when the agent looks up. Two of the same signal would become one while the first is
    // pending; the agent treats all alike.
    recording.agent.hold();
    recording.agent.signal(libc::SIGINT);
    recording.agent.signal(libc::SIGTERM);
    recording.agent.signal(libc::SIGCONT);
    recording.end_command();
    let ended = recording.agent.wait();
    let caught = match ended.code() {
        // 116: ended before the file was finished.
        116 => {
            assert!(!file.exists(), "no partial file");
            let ended = ended.says(&["tracer-agent recover"]);
            run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
            let found = Report::of(&file).count(is_getppid);
            assert!(
                found <= caller.calls() && caller.calls() - found <= CHUNK_EVENTS,
                "{found}: {}",
                ended.err
            );
            true
        }
        0 => {
            assert_eq!(Report::of(&file).count(is_getppid), caller.calls());
            false
        }
        code => panic!("exit code {code}: {ended:?}"),
    };
    assert_eq!(files(dir.path()), ["trace.dat"]);
    caught
}

/// On a busy machine the thread that takes the second signal may be late, and then the file is whole. Not
/// every time.
#[test]
fn a_second_interrupt_leaves_a_spool_or_a_file() {
    assert!((0..20).any(|_| interrupt_twice()), "the second interrupt never came before the end");
}

/// Records until the disk is full; returns what the agent said and the calls made.
fn fill_disk(dir: &Path, args: &[&str]) -> (Ended, u64) {
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let mut command = agent(dir, ["record", "-e", "raw_syscalls:sys_enter", "-P", &pid, "-o", "trace.dat"]);
    let mut recording = Running::start(command.args(args));
    wait_for("a full disk", || {
        caller.call(20_000);
        recording.has_ended().then_some(())
    });
    (recording.wait(), caller.calls())
}

#[test]
fn a_full_disk_ends_the_recording_with_a_good_file() {
    for size in ["size=12m", "size=24m"] {
        let disk = Tmpfs::mount(size);
        let (ended, calls) = fill_disk(disk.path(), &["--compression", "none"]);
        let ended =
            ended.expect(113).says(&["ended early", "No space left", "trace.dat contains everything"]);
        let file = disk.path().join("trace.dat");
        let report = Report::of(&file);
        let found = report.count(is_getppid);
        assert!(found > 50_000 && found < calls, "{size}: {found} of {calls}: {}", ended.err);
        let ledger = Ledger::of(&file);
        let stored = report.events.len() as u64;
        assert_eq!(ledger.cpus("stored"), stored);
        assert_eq!(ledger.cpus("recorded"), stored + ledger.cpus("unstored"), "the ring's rest is counted");
        assert_eq!(cpustat(&file, "dropped events"), ledger.lost() + ledger.cpus("unstored"));
        assert_eq!(files(disk.path()), ["trace.dat"], "{size}: the spool is gone");
    }
}

#[test]
fn data_that_was_moved_to_make_room_is_recovered_when_the_file_could_not_be_placed() {
    for compression in ["none", "zstd"] {
        let disk = Tmpfs::mount("size=24m");
        let file = disk.path().join("trace.dat");
        let mut caller = Caller::start();
        let pid = caller.pid().to_string();
        let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "--compression", compression];
        let mut recording = Marked::start(disk.path(), &args);
        fs::create_dir(&file).unwrap();
        // What is left is full after a few hundred thousand calls, however small they are stored.
        let left = if compression == "zstd" { 3 << 20 } else { 12 << 20 };
        let free = rustix::fs::statvfs(disk.path()).unwrap();
        let filler = (free.f_bavail * free.f_frsize).saturating_sub(left);
        fs::write(disk.path().join("filler"), vec![1; filler as usize]).unwrap();
        wait_for("a full disk", || {
            caller.call(50_000);
            recording.agent.has_ended().then_some(())
        });
        recording.end_command();
        recording.agent.wait().expect(1).says(&["tracer-agent recover"]);
        // The draft is a whole trace file.
        let draft = disk.path().join("trace.dat.spool/trace.dat");
        let stored = Report::of(&draft).count(is_getppid);
        assert!(stored > 50_000, "{compression}: {stored}");
        assert!(disk.path().join("trace.dat.spool/moved").exists(), "{compression}: data was moved");
        fs::remove_dir(&file).unwrap();
        run(&mut agent(disk.path(), ["recover", "-o", "other.dat", "trace.dat"])).expect(0);
        assert_eq!(Report::of(&disk.path().join("other.dat")).count(is_getppid), stored, "{compression}");
        assert!(!disk.path().join("trace.dat.spool").exists());
    }
}

#[test]
fn a_disk_that_is_full_before_the_start_is_said_at_once() {
    for (size, what) in [("size=64k", "reserve"), ("size=1m", "reserve")] {
        let disk = Tmpfs::mount(size);
        let ended = run(&mut agent(disk.path(), ["record", "-e", "sched:sched_switch", "touch", "ran"]));
        ended.expect(113).says(&["No space left", what]);
        assert_eq!(files(disk.path()), [""; 0], "nothing is left behind, and the command did not run");
    }
}

#[test]
fn a_file_system_without_inodes_left_is_said_at_once() {
    let disk = Tmpfs::mount("size=8m,nr_inodes=4");
    let ended = run(&mut agent(disk.path(), ["record", "-e", "sched:sched_switch", "true"]));
    ended.expect(113).says(&["No space left"]);
    assert_eq!(files(disk.path()), [""; 0]);
}

#[test]
fn an_output_that_became_a_directory_keeps_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Marked::start(dir.path(), &["-e", "sched:sched_switch"]);
    fs::create_dir(dir.path().join("trace.dat")).unwrap();
    recording.finish().expect(1).says(&["trace.dat", "tracer-agent recover"]);
    fs::remove_dir(dir.path().join("trace.dat")).unwrap();
    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
    assert!(Report::of(&dir.path().join("trace.dat")).names().contains("sched_switch"));
}

/// Marsaglia's xorshift: the same numbers each time.
fn random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % limit.max(1) as u64) as usize
}

/// Changes some bytes, the length, or everything of a file.
fn damage(bytes: &mut Vec<u8>, state: &mut u64) {
    let at = random(state, bytes.len());
    match random(state, 6) {
        0 => bytes.truncate(at),
        1 => bytes.extend(std::iter::repeat_n(0, random(state, 100_000))),
        2 => {
            let end = (at + random(state, 5000)).min(bytes.len());
            bytes[at..end].fill(if at.is_multiple_of(2) { 0 } else { 0xff });
        }
        3 => {
            // A number that is far too large, where a number may be.
            let at = at / 8 * 8;
            let end = (at + 8).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
        4 => {
            let copied = bytes[at..(at + random(state, 9000)).min(bytes.len())].to_vec();
            let to = random(state, bytes.len());
            bytes.splice(to..to, copied);
        }
        _ => {
            for _ in 0..4 {
                let at = random(state, bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random(state, 8);
                }
            }
        }
    }
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    use integration_tests::trace_cmd::Line;

    use super::*;

    /// A real spool with every kind of file, damaged at random: what comes of it is a file that stock tools
    /// read, or an error, and then nothing is missing that was there.
    #[test]
    fn damaged_spools_are_recovered_or_refused() {
        let killed = Killed::make(&["--user-stack"]);
        let spool = killed.spool();
        let contents: Vec<(String, Vec<u8>)> = files(&spool)
            .into_iter()
            .filter(|name| !["reserve", "lock", "kallsyms"].contains(&name.as_str()))
            .map(|name| (name.clone(), fs::read(spool.join(&name)).unwrap()))
            .collect();
        assert!(contents.iter().any(|(name, _)| name == "mappings"), "{:?}", files(&spool));
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let (mut recovered, mut refused) = (0, 0);
        let rounds = 3 * integration_tests::soak();
        for (round, (name, _)) in (0..rounds).flat_map(|round| contents.iter().map(move |file| (round, file)))
        {
            let dir = tempfile::tempdir().unwrap();
            let copy = dir.path().join("trace.dat.spool");
            fs::create_dir(&copy).unwrap();
            for (other, bytes) in &contents {
                let mut bytes = bytes.clone();
                if other == name {
                    damage(&mut bytes, &mut state);
                }
                fs::write(copy.join(other), bytes).unwrap();
            }
            let before = files(&copy);
            let ended = run(&mut agent(dir.path(), ["recover", "trace.dat"]));
            assert!(!ended.err.contains("panicked"), "{name}, round {round}: {}", ended.err);
            let file = dir.path().join("trace.dat");
            if ended.code() == 0 {
                recovered += 1;
                // A stack goes on in further lines.
                let found = Report::of(&file).count(|line| Line::parse(line).is_some());
                assert_eq!(Ledger::of(&file).cpus("stored"), found, "{name}, round {round}");
            } else {
                refused += 1;
                assert_eq!(ended.code(), 1, "{name}, round {round}: {}", ended.err);
                // The copy had no lock; what recovers makes one.
                let left: Vec<String> = files(&copy).into_iter().filter(|name| name != "lock").collect();
                assert_eq!((left, file.exists()), (before, false), "{name}, round {round}: {}", ended.err);
            }
        }
        println!("{recovered} recovered, {refused} refused");
        assert!(recovered > refused, "most files are not needed for the data");
    }
}

/// Records getppid alone, so that the workload's own count is all that fires.
const ONLY_CALLS: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

/// The ledger that `info --json` shows.
fn ledger(file: &Path) -> serde_json::Value {
    let dir = file.parent().unwrap();
    let info = run(agent(dir, ["info", "--json"]).arg(file)).expect(0);
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    let ledger =
        info.pointer("/files/0/ledger").or_else(|| info.get("ledger")).unwrap_or_else(|| panic!("{info}"));
    assert!(ledger.is_object(), "{ledger}");
    ledger.clone()
}

/// The row of CPU 0.
fn first_cpu(ledger: &serde_json::Value) -> &serde_json::Value {
    let cpus = ledger["cpus"].as_array().unwrap();
    cpus.iter().find(|cpu| cpu["cpu"] == 0).unwrap_or_else(|| panic!("no CPU 0: {ledger}"))
}

/// A recording of a caller on CPU 0 that is killed when its readers have looked at everything.
fn killed_when_counted(dir: &Path, calls: u64, args: &[&str]) -> u64 {
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let base = [&ONLY_CALLS[..], &["-P", &pid, "-M", "1", "-s", LOOK_US]].concat();
    let recording = Marked::start(dir, &[&base, args].concat());
    caller.call(calls);
    caller.settle();
    wait_for_a_look(&dir.join("trace.dat.spool"));
    recording.agent.signal(libc::SIGKILL);
    recording.end_command();
    assert_eq!(recording.agent.wait().status.code(), None, "killed");
    caller.calls()
}

/// Waits until the reader of CPU 0 has looked at its ring twice, so that all of one look came behind what was
/// done before.
fn wait_for_a_look(spool: &Path) {
    let counts = || fs::read(spool.join("counts")).unwrap();
    let mut last = counts();
    let mut looks = 0;
    wait_for("a look at the rings", || {
        let now = counts();
        looks += u32::from(now != last);
        last = now;
        // One of them may have been under way, and one seen half-written.
        (looks >= 3).then_some(())
    });
}

#[test]
fn a_killed_recording_says_what_is_missing_and_since_when() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let calls = killed_when_counted(dir.path(), 20_000, &[]);
    let ended = run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
    let told = ended.says(&["the recorder was killed", "CPU 0: at least ", " events are missing since "]).err;
    assert!(!told.contains("exact"), "{told}");
    let ledger = ledger(&file);
    let cpu = first_cpu(&ledger);
    let missing = cpu["missing"]["at_least"].as_u64().unwrap();
    assert!(missing > 0, "the page that was being filled is never stored");
    assert_eq!(cpu["stored"].as_u64().unwrap() + missing, calls, "{cpu}");
    assert_eq!(ledger["recovered"]["ended"], "killed");
    for unknown in ["recorded", "unstored", "filtered"] {
        assert!(cpu[unknown].is_null(), "{unknown}: {cpu}");
    }
    assert!(ledger["events"].is_null() && ledger["duration_ns"].is_null());
    // The stock tool's last time stamp is where what is missing begins.
    let report = run(&mut program(dir.path(), "trace-cmd", ["report", "-t", "-i", "trace.dat"])).expect(0);
    let last = report.out.lines().rev().find(|line| is_getppid(line)).unwrap();
    let since = cpu["missing"]["since_ns"].as_u64().unwrap();
    assert!(
        last.contains(&format!("{}.{:09}:", since / 1_000_000_000, since % 1_000_000_000)),
        "{last}: {since}"
    );
    assert!(cpu["missing"]["counted_ns"].as_u64().unwrap() >= since);

    let info = run(&mut agent(dir.path(), ["info", "trace.dat"])).expect(0).out;
    assert!(!info.contains("lost: none") && info.contains("lost: unknown"), "{info}");
    assert!(info.contains(&format!("CPU 0: at least {missing} events are missing since ")), "{info}");
    let check = run(&mut agent(dir.path(), ["check", "trace.dat"])).expect(0).out;
    assert!(check.contains("no faults") && check.contains("the recording was cut short"), "{check}");
    let check = run(&mut agent(dir.path(), ["check", "-v", "trace.dat"])).expect(0).out;
    assert!(
        check.contains("[cut-short]") && check.contains(&format!("at least {missing} events")),
        "{check}"
    );
    let export =
        run(&mut agent(dir.path(), ["export", "--format", "ctf", "trace.dat", "exported"])).expect(0);
    export.says(&["CPUs at whose end more events may be missing"]);
    let babeltrace = run(&mut program(dir.path(), "babeltrace2", ["exported"])).expect(0);
    assert!(babeltrace.err.contains(&format!("discarded {missing} event")), "{}", babeltrace.err);
    // Statistics in the kernel's format have room for what is known, and no more.
    assert_eq!(cpustat(&file, "dropped events"), missing);
}

#[test]
fn a_recording_that_is_killed_under_load_claims_no_more_than_there_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let base = [&ONLY_CALLS[..], &["-P", &pid, "-M", "1", "-b", "256"]].concat();
    let recording = Marked::start(dir.path(), &base);
    let spool = dir.path().join("trace.dat.spool");
    let caller = std::thread::scope(|scope| {
        let calling = scope.spawn(move || {
            caller.call(400_000);
            caller
        });
        wait_for("data", || (fs::metadata(spool.join("cpu0.0")).ok()?.len() > 0).then_some(()));
        recording.agent.signal(libc::SIGKILL);
        calling.join().unwrap()
    });
    recording.end_command();
    recording.agent.wait();
    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0).says(&["the recorder was killed"]);
    let ledger = ledger(&dir.path().join("trace.dat"));
    let cpu = first_cpu(&ledger);
    let lost: u64 = cpu["lost"].as_object().unwrap().values().map(|lost| lost.as_u64().unwrap()).sum();
    let (stored, missing) = (cpu["stored"].as_u64().unwrap(), cpu["missing"]["at_least"].as_u64().unwrap());
    assert!(stored > 0 && stored + lost + missing <= caller.calls(), "{cpu}: {}", caller.calls());
    assert!(ledger["cpus"].as_array().unwrap().iter().all(|cpu| cpu["recorded"].is_null()), "{ledger}");
}

#[test]
fn a_flight_recorder_that_is_killed_says_that_everything_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let calls = killed_when_counted(dir.path(), 20_000, &["--overwrite", "-b", "64"]);
    let ended = run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
    ended.says(&["in the rings until it ends, and they are gone", "CPU 0: at least ", "from the start on"]);
    let ledger = ledger(&dir.path().join("trace.dat"));
    let cpu = first_cpu(&ledger);
    let (gone, overwritten) =
        (cpu["missing"]["at_least"].as_u64().unwrap(), cpu["overwritten"].as_u64().unwrap());
    assert!(gone > 0 && overwritten > 0, "{cpu}");
    assert_eq!((gone + overwritten, cpu["stored"].as_u64()), (calls, Some(0)));
    assert!(cpu["missing"]["since_ns"].is_null() && ledger["recovered"]["overwrite"] == true, "{ledger}");
}

#[test]
fn what_a_size_limit_dropped_is_known_after_a_kill_or_said_to_be_unknown() {
    for counted in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace.dat");
        let calls = killed_when_counted(dir.path(), 30_000, &["-m", "256", "--compression", "none"]);
        if !counted {
            // As older recorders left it.
            fs::remove_file(dir.path().join("trace.dat.spool/counts")).unwrap();
        }
        let ended = run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
        let ledger = ledger(&file);
        let cpu = first_cpu(&ledger);
        let stored = cpu["stored"].as_u64().unwrap();
        let info = run(&mut agent(dir.path(), ["info", "trace.dat"])).expect(0).out;
        if counted {
            let (capped, missing) = (cpu["capped"].as_u64(), cpu["missing"]["at_least"].as_u64());
            assert_eq!(stored + capped.unwrap() + missing.unwrap(), calls, "{cpu}");
            assert!(capped.unwrap() > 10_000, "{cpu}");
        } else {
            ended.says(&[
                "how many events the size limit removed is not known on CPU 0",
                "it is not known how many",
            ]);
            assert!(cpu["capped"].is_null() && cpu["missing"]["at_least"].is_null(), "{cpu}");
            assert!(cpu["overwritten"].is_null() && ledger["recovered"]["ended"] == "unknown", "{ledger}");
            assert!(info.contains("an unknown number dropped for the size limit"), "{info}");
        }
        assert!(!info.contains("lost: none"), "{info}");
    }
}

#[test]
fn a_recording_of_which_only_the_file_was_not_finished_has_exact_counts() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let recording = Marked::start(dir.path(), &[&ONLY_CALLS[..], &["-P", &pid]].concat());
    caller.call(5000);
    caller.settle();
    fs::create_dir(dir.path().join("trace.dat")).unwrap();
    recording.finish().expect(1).says(&["tracer-agent recover"]);
    fs::remove_dir(dir.path().join("trace.dat")).unwrap();
    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0).says(&["the counts are exact"]);
    let ledger = ledger(&dir.path().join("trace.dat"));
    let sum = |key: &str| {
        ledger["cpus"].as_array().unwrap().iter().map(|cpu| cpu[key].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("recorded"), sum("stored"), sum("unstored")), (5000, 5000, 0));
    assert_eq!(ledger["recovered"]["ended"], "unfinished");
    let info = run(&mut agent(dir.path(), ["info", "trace.dat"])).expect(0).out;
    assert!(info.contains("5 000 events recorded") && info.contains("lost: none"), "{info}");
}

#[test]
fn what_a_second_signal_leaves_is_counted_or_said_to_be_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let args = [&ONLY_CALLS[..], &["-P", &pid, "-b", "32768", "-s", "60000000"]].concat();
    let recording = Marked::start(dir.path(), &args);
    caller.call(50_000);
    caller.settle();
    recording.agent.hold();
    recording.agent.signal(libc::SIGINT);
    recording.agent.signal(libc::SIGQUIT);
    recording.agent.signal(libc::SIGCONT);
    recording.end_command();
    let code = recording.agent.wait().code();
    if code == 116 {
        run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
    }
    let ledger = ledger(&dir.path().join("trace.dat"));
    let cpus = ledger["cpus"].as_array().unwrap();
    let sum = |key: &str| cpus.iter().map(|cpu| cpu[key].as_u64().unwrap_or(0)).sum::<u64>();
    match ledger["recovered"]["ended"].as_str() {
        Some("second_signal") => {
            let missing =
                cpus.iter().map(|cpu| cpu["missing"]["at_least"].as_u64().unwrap_or(0)).sum::<u64>();
            assert!(sum("stored") + missing <= caller.calls(), "{ledger}");
            assert!(
                cpus.iter().all(|cpu| cpu["recorded"].is_null() && cpu["missing"].is_object()),
                "{ledger}"
            );
        }
        None | Some("unfinished") => assert_eq!(sum("stored"), caller.calls(), "{ledger}"),
        ended => panic!("{ended:?}: {ledger}"),
    }
}

#[test]
fn pages_that_are_complete_are_stored_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let recording =
        Marked::start(dir.path(), &[&ONLY_CALLS[..], &["-P", &pid, "-M", "1", "-s", LOOK_US]].concat());
    // A few pages: much less than a chunk.
    caller.call(400);
    caller.settle();
    wait_for_a_look(&dir.path().join("trace.dat.spool"));
    recording.agent.signal(libc::SIGKILL);
    recording.end_command();
    recording.agent.wait();
    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
    let found = Report::of(&dir.path().join("trace.dat")).count(is_getppid);
    // What a page holds at most of these.
    assert!(found <= 400 && 400 - found < 4096 / 64, "{found}");
}

/// A command line under a limit of file sizes of this many blocks of 512 bytes.
fn limited(dir: &Path, blocks: u32, command: &std::process::Command) -> std::process::Command {
    let mut limited = program(dir, "sh", ["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"]);
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

#[test]
fn a_limit_of_file_sizes_ends_the_recording_with_a_good_file() {
    for compression in ["none", "zstd"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace.dat");
        let mut caller = Caller::start();
        let pid = caller.pid().to_string();
        let args = ["record", "-e", "raw_syscalls:sys_enter", "-P", &pid, "--compression", compression];
        let mut recording = Running::start(&mut limited(dir.path(), 2000, &agent(dir.path(), args)));
        wait_for("a full file", || {
            caller.call(20_000);
            recording.has_ended().then_some(())
        });
        let ended =
            recording.wait().expect(113).says(&["ended early", "ulimit -f", "trace.dat contains everything"]);
        let report = Report::of(&file);
        assert!(report.count(is_getppid) > 5000, "{}", ended.err);
        let (ledger, stored) = (Ledger::of(&file), report.events.len() as u64);
        assert_eq!(ledger.cpus("stored"), stored);
        assert_eq!(ledger.cpus("recorded"), stored + ledger.cpus("unstored"), "the ring's rest is counted");
        assert!(fs::metadata(&file).unwrap().len() <= 2000 * 512);
        assert_eq!(files(dir.path()), ["trace.dat"]);
        if compression == "zstd" {
            continue;
        }
        // What is written of a file does not stay behind when it becomes too large.
        for (args, code) in [
            (&["convert", "trace.dat", "-o", "other.dat"][..], 113),
            (&["repair", "trace.dat", "-o", "other.dat"], 113),
            (&["split", "trace.dat", "-o", "other.dat", "0"], 113),
            (&["merge", "trace.dat", "-o", "other.dat"], 113),
            (&["export", "--format", "ctf", "trace.dat", "other"], 113),
            (&["report", "trace.dat"], 114),
        ] {
            let mut command = limited(dir.path(), 200, &agent(dir.path(), args));
            let out = tempfile::tempfile().unwrap();
            let ended = command.stdout(out).stderr(std::process::Stdio::piped()).output().unwrap();
            let err = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(code), "{args:?}: {err}");
            assert!(err.contains("File too large"), "{args:?}: {err}");
            assert_eq!(files(dir.path()), ["trace.dat"], "{args:?}");
        }
    }
}
