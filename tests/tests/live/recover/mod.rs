//! Recordings that end badly: killed, on a full disk, with a damaged spool. What was stored is never lost.

mod counts;
mod full_disk;
mod soak;

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use integration_tests::harness::{
    Caller, Ended, Ledger, Marked, Report, Running, Tmpfs, agent, cpustat, files, is_getppid, ledger_in_info,
    program, run, wait_for, wait_for_readers,
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
fn pages_and_the_running_kernel_stand_in_for_a_manifest_that_a_loss_of_power_took() {
    // As file systems leave a file whose blocks were not written: empty, ended early, or full of zeros.
    let damages: [fn(Vec<u8>) -> Vec<u8>; 4] = [
        |_| Vec::new(),
        |bytes| bytes[..bytes.len() / 2].to_vec(),
        |bytes| vec![0; bytes.len()],
        |bytes| [bytes[..4096].to_vec(), vec![0; bytes.len() - 4096]].concat(),
    ];
    for (index, damage) in damages.into_iter().enumerate() {
        let compression = if index == 0 { "none" } else { "zstd" };
        let killed = Killed::make(&["--compression", compression]);
        let manifest = killed.spool().join("manifest");
        fs::write(&manifest, damage(fs::read(&manifest).unwrap())).unwrap();
        killed.recover(&["trace.dat"]).expect(0).says(&["manifest", "mono", "is kept"]);
        killed.check();
        let ledger = ledger_in_info(&killed.file());
        assert!(ledger["realtime_offset_ns"].is_null(), "{ledger}");
        assert_eq!(ledger["clock"], "mono");
        assert_eq!(ledger["only"].as_array().unwrap().len(), 2, "nobody knows who was recorded");
        assert_eq!(files(killed.path()), ["trace.dat", "trace.dat.spool"], "another kernel may fit better");
    }
    // Zeros behind a whole manifest are no damage.
    let killed = Killed::make(&[]);
    let manifest = killed.spool().join("manifest");
    fs::write(&manifest, [fs::read(&manifest).unwrap(), vec![0; 4096]].concat()).unwrap();
    killed.recover(&["trace.dat"]).expect(0);
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
        (&br#"{"version":2,"manifest":{}}"#[..], "not written by"),
        (br#"{"version":3,"manifest":{}}"#, "missing field"),
        (br#"{"manifest":{}}"#, "not written by"),
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
