//! Disks without room, and limits of file sizes.

use super::*;

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
        disk.fill_but(left);
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
