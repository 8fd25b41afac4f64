//! `report --follow`: what is printed while a recording goes on is what its file has in the end.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use integration_tests::{
    harness::{
        Caller, Ended, Ledger, Marked, Running, Tmpfs, agent, agent_path, files, is_getppid, program, run,
        wait_for,
    },
    soak,
};

/// A follower whose output goes to a file, so that it can be seen while it runs.
struct Follower {
    process: Running,
    out: PathBuf,
}

impl Follower {
    /// Starts `report --follow trace.dat ARGS`.
    fn start(dir: &Path, number: usize, args: &[&str]) -> Self {
        Self::start_to(dir, dir.join(format!("followed.{number}")), args)
    }

    /// The same with the output elsewhere.
    fn start_to(dir: &Path, out: PathBuf, args: &[&str]) -> Self {
        let script = r#"out=$1; shift; exec "$0" report --follow "$@" >"$out""#;
        let mut command = program(dir, "sh", ["-c", script]);
        command.arg(agent_path()).arg(&out).arg("trace.dat").args(args);
        let process = Running::start(&mut command);
        // Without a recording it would print the finished file.
        let opened = format!("/proc/{}/fd", process.pid());
        wait_for("a follower that has found the recording", || {
            let mut open = fs::read_dir(&opened).ok()?.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            open.any(|path| path.ends_with("trace.dat.spool/counts")).then_some(())
        });
        Self { process, out }
    }

    /// What it has printed by now.
    fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// How many calls it has printed by now.
    fn calls(&self) -> u64 {
        calls(&self.out())
    }

    /// Waits until it has printed so many.
    fn wait_for_calls(&self, count: u64) {
        wait_for("printed calls", || (self.calls() >= count).then_some(()));
    }

    /// Waits for its end, with its output.
    fn wait(self) -> Ended {
        let Self { process, out } = self;
        let mut ended = process.wait();
        ended.out = fs::read_to_string(out).unwrap();
        ended
    }
}

fn calls(text: &str) -> u64 {
    text.lines().filter(|line| is_getppid(line)).count() as u64
}

/// Records the calls of these, and nothing else that happens.
fn record(dir: &Path, callers: &[&Caller], args: &[&str]) -> Marked {
    let pids: Vec<String> = callers.iter().map(|caller| caller.pid().to_string()).collect();
    let mut all = vec!["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];
    all.extend(pids.iter().flat_map(|pid| ["-P", pid]));
    all.extend(args);
    Marked::start(dir, &all)
}

/// What `report` prints of the finished file.
fn report(dir: &Path, args: &[&str]) -> String {
    run(agent(dir, ["report", "trace.dat"]).args(args)).expect(0).out
}

/// The lines of events.
fn events(text: &str) -> Vec<&str> {
    // What a size limit removed before the first event of a CPU only the file counts.
    let is_event = |line: &&str| !line.starts_with("cpus=") && !line.ends_with(" EVENTS DROPPED]");
    text.lines().filter(is_event).collect()
}

#[test]
fn all_of_it_is_printed_as_report_prints_the_file() {
    const OPTIONS: [&[&str]; 7] = [
        &[],
        &["--json"],
        &["-l", "-t", "--ts-diff", "--ts-check"],
        &["-R", "--cpu", "1"],
        &["-F", "sys_enter: common_pid != 1 && COMM ~ \"second\"", "-N"],
        &["--comm", "first", "--limit", "1000"],
        &["--ts-offset", "1000000000", "-w"],
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut callers = [Caller::named("first"), Caller::named("second")];
    for (cpu, caller) in callers.iter().enumerate() {
        caller.pin(cpu);
    }
    let recording = record(dir.path(), &[&callers[0], &callers[1]], &["--switch-timer", "20ms"]);
    let followers: Vec<_> =
        OPTIONS.iter().enumerate().map(|(number, args)| Follower::start(dir.path(), number, args)).collect();
    // First one, then the other, then both as fast as they can.
    callers[0].call(10);
    callers[1].call(10);
    followers[0].wait_for_calls(20);
    std::thread::scope(|scope| {
        for caller in &mut callers {
            scope.spawn(move || (0..20).for_each(|_| caller.call(3000)));
        }
    });
    recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    assert_eq!((Ledger::of(&file).cpus("stored"), Ledger::of(&file).lost()), (120_020, 0));
    for (follower, args) in followers.into_iter().zip(OPTIONS) {
        let ended = follower.wait().expect(0);
        let expected = report(dir.path(), args);
        assert!(events(&expected).len() >= 1000, "{args:?}");
        let differ = ended.out.lines().zip(expected.lines()).find(|(followed, printed)| followed != printed);
        assert_eq!(differ, None, "{args:?}");
        assert!(ended.out == expected, "{args:?}: {} and {} bytes", ended.out.len(), expected.len());
        assert_eq!(ended.err, "", "{args:?}");
    }
}

/// Their symbols become known while they are printed.
#[test]
fn stacks_are_printed_as_report_prints_them() {
    for stack in ["-T", "--user-stack"] {
        let args: &[&str] = &["-e", "raw_syscalls:sys_enter", stack];
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let pid = caller.pid().to_string();
        let recording = Marked::start(dir.path(), &[args, &["-P", &pid, "--switch-timer", "20ms"]].concat());
        let followers = [Follower::start(dir.path(), 0, &[]), Follower::start(dir.path(), 1, &["--json"])];
        for rounds in 1..=10 {
            (0..20).for_each(|_| caller.call(10));
            wait_for("printed events", || (events(&followers[0].out()).len() > rounds * 10).then_some(()));
        }
        recording.finish().expect(0);
        for (follower, json) in followers.into_iter().zip([&[][..], &["--json"]]) {
            let (ended, expected) = (follower.wait().expect(0), report(dir.path(), json));
            let differ =
                ended.out.lines().zip(expected.lines()).find(|(followed, printed)| followed != printed);
            assert_eq!(differ, None, "{args:?} {json:?}");
            assert!(ended.out == expected, "{args:?} {json:?}");
        }
    }
}

#[test]
fn what_fired_is_printed_while_nothing_else_fires() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let recording = record(dir.path(), &[&caller], &["--switch-timer", "20ms"]);
    let follower = Follower::start(dir.path(), 0, &[]);
    for calls in [7, 12] {
        caller.call(calls - follower.calls());
        follower.wait_for_calls(calls);
    }
    // By the spool's name, and late.
    let out = dir.path().join("late");
    let script = r#"exec "$0" report --follow --limit 3 trace.dat.spool >late"#;
    run(program(dir.path(), "sh", ["-c", script]).arg(agent_path())).expect(0);
    assert_eq!(calls(&fs::read_to_string(out).unwrap()), 3);
    recording.finish().expect(0);
    assert_eq!(follower.wait().expect(0).out, report(dir.path(), &[]));
}

/// A recording of a process's calls, and who follows it.
fn followed(compression: &str) -> (tempfile::TempDir, Caller, Marked, Follower) {
    let dir = tempfile::tempdir().unwrap();
    let caller = Caller::start();
    let args = ["--switch-timer", "20ms", "--compression", compression];
    let recording = record(dir.path(), &[&caller], &args);
    let follower = Follower::start(dir.path(), 0, &[]);
    (dir, caller, recording, follower)
}

#[test]
fn a_killed_recorder_leaves_what_it_has_stored() {
    for compression in ["zstd", "none"] {
        let (dir, mut caller, recording, follower) = followed(compression);
        caller.call(1000);
        follower.wait_for_calls(1000);
        recording.agent.signal(libc::SIGKILL);
        let ended = follower.wait().expect(1).says(&["was killed", "tracer-agent recover"]);
        let spool = dir.path().join("trace.dat.spool");
        let before = files(&spool);
        // One that comes later says the same.
        let late = run(&mut agent(dir.path(), ["report", "--follow", "trace.dat.spool"])).expect(1);
        assert_eq!(late.out, ended.out);
        assert_eq!(files(&spool), before, "nothing in the spool changes");
        run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
        assert_eq!(ended.out, report(dir.path(), &[]));
        // Now it is a file.
        let file = run(&mut agent(dir.path(), ["report", "--follow", "trace.dat"])).expect(0);
        assert_eq!(file.out, ended.out);
    }
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    #[test]
    fn one_that_is_stopped_prints_everything_later() {
        super::one_that_is_stopped_prints_everything_later();
    }

    #[test]
    fn one_whose_reader_is_slow_prints_everything_later() {
        super::one_whose_reader_is_slow_prints_everything_later();
    }
}

/// Goes on calling for as long as a follower is held up: seconds in `cargo xtask test`, half a minute in
/// trials.
fn call_for_a_while(caller: &mut Caller) {
    let (begin, while_held) = (Instant::now(), Duration::from_secs((2 * soak() as u64).min(30)));
    while begin.elapsed() < while_held {
        caller.call(1000);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn one_that_is_stopped_prints_everything_later() {
    for compression in ["zstd", "none"] {
        let (dir, mut caller, recording, follower) = followed(compression);
        caller.call(10);
        follower.wait_for_calls(10);
        follower.process.hold();
        call_for_a_while(&mut caller);
        recording.finish().expect(0);
        let file = dir.path().join("trace.dat");
        assert_eq!((Ledger::of(&file).cpus("stored"), Ledger::of(&file).lost()), (caller.calls(), 0));
        assert_eq!(files(dir.path()), ["followed.0", "trace.dat"]);
        follower.process.signal(libc::SIGCONT);
        assert!(follower.wait().expect(0).out == report(dir.path(), &[]));
    }
}

/// A reader of 1 KB a second holds up the follower, and nobody else.
fn one_whose_reader_is_slow_prints_everything_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pipe = dir.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string that lives longer than the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let in_a_hurry = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (pipe, in_a_hurry) = (pipe.clone(), Arc::clone(&in_a_hurry));
        move || {
            let (mut pipe, mut text) = (fs::File::open(pipe).unwrap(), Vec::new());
            let (mut part, mut read_slowly) = ([0; 1024], 0);
            loop {
                match pipe.read(&mut part).unwrap() {
                    0 => return (String::from_utf8(text).unwrap(), read_slowly),
                    length => text.extend_from_slice(&part[..length]),
                }
                if !in_a_hurry.load(Ordering::Relaxed) {
                    read_slowly = text.len();
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
        }
    });
    let recording = record(dir.path(), &[&caller], &["--switch-timer", "20ms"]);
    let follower = Follower::start_to(dir.path(), pipe, &[]);
    call_for_a_while(&mut caller);
    recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    assert_eq!((Ledger::of(&file).cpus("stored"), Ledger::of(&file).lost()), (caller.calls(), 0));
    let expected = report(dir.path(), &[]);
    assert_eq!(calls(&expected), caller.calls());
    in_a_hurry.store(true, Ordering::Relaxed);
    follower.process.wait().expect(0);
    let (text, read_slowly) = reader.join().unwrap();
    assert!(read_slowly < text.len() / 2, "{read_slowly} of {} bytes are not slow", text.len());
    assert_eq!(text, expected);
}

#[test]
fn a_disk_without_room_for_a_copy_hides_nothing() {
    for compression in ["zstd", "none"] {
        let (disk, elsewhere) = (Tmpfs::mount("size=24m"), tempfile::tempdir().unwrap());
        let mut caller = Caller::start();
        let mut recording =
            record(disk.path(), &[&caller], &["--switch-timer", "20ms", "--compression", compression]);
        let follower = Follower::start_to(disk.path(), elsewhere.path().join("out"), &[]);
        caller.call(10);
        follower.wait_for_calls(10);
        follower.process.hold();
        // What is left is full after some hundred thousand calls, however small they are stored.
        let left = if compression == "zstd" { 1 << 20 } else { 6 << 20 };
        disk.fill_but(left);
        wait_for("a full disk", || {
            caller.call(50_000);
            recording.agent.has_ended().then_some(())
        });
        recording.end_command();
        recording.agent.wait().expect(113);
        follower.process.signal(libc::SIGCONT);
        let (followed, file) = (follower.wait().expect(0).out, report(disk.path(), &[]));
        assert!(calls(&file) > 50_000, "{compression}");
        assert!(followed == file, "{compression}: {} of {} bytes", followed.len(), file.len());
    }
}

/// How many events a follower says that it did not see.
fn fell_behind(ended: &Ended) -> u64 {
    let said = ended.err.lines().find_map(|line| line.split_once("size limit removed "));
    let number = said.map(|(_, rest)| rest.chars().take_while(|c| !c.is_ascii_lowercase()));
    number.map_or(0, |text| text.filter(char::is_ascii_digit).collect::<String>().parse().unwrap())
}

#[test]
fn what_a_size_limit_removed_is_counted() {
    for (compression, held) in [("none", true), ("zstd", true), ("zstd", false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        caller.pin(0);
        let args = ["--switch-timer", "20ms", "-m", "1M", "-M", "1", "--compression", compression];
        let recording = record(dir.path(), &[&caller], &args);
        let follower = Follower::start(dir.path(), 0, &[]);
        caller.call(10);
        follower.wait_for_calls(10);
        if held {
            follower.process.hold();
        }
        for _ in 0..20 {
            caller.call(5000);
        }
        recording.finish().expect(0);
        follower.process.signal(libc::SIGCONT);
        let ended = follower.wait().expect(0);
        let file = report(dir.path(), &[]);
        let (followed, kept) = (events(&ended.out), events(&file));
        assert!(kept.len() < 100_000 && followed.ends_with(&kept), "{} of {}", kept.len(), followed.len());
        assert_eq!(followed.len() as u64 + fell_behind(&ended), 100_010, "{}", ended.err);
        if held {
            assert!(fell_behind(&ended) > 0, "{}", ended.err);
        }
    }
}

#[test]
fn a_flight_recorder_is_printed_when_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let recording = record(dir.path(), &[&caller], &["--overwrite", "-b", "64"]);
    let follower = Follower::start(dir.path(), 0, &[]);
    caller.call(5000);
    recording.finish().expect(0);
    let ended = follower.wait().expect(0).says(&["flight recorder", "until it ends"]);
    assert_eq!(ended.out, report(dir.path(), &[]));
}

#[test]
fn it_ends_with_the_reader_of_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let recording = record(dir.path(), &[&caller], &["--switch-timer", "20ms"]);
    caller.call(5);
    // Nothing fires any more that it could notice that by.
    let script = r#"set -o pipefail; "$0" report --follow | head -n 3"#;
    let ended = run(program(dir.path(), "bash", ["-c", script]).arg(agent_path())).expect(0);
    assert_eq!((calls(&ended.out), ended.err.as_str()), (2, ""));
    recording.finish().expect(0);
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let follow = |args: &[&str]| run(agent(dir.path(), ["report", "--follow"]).args(args));
    follow(&[]).expect(1).says(&["cannot open trace.dat", "No such file"]);
    follow(&["none/trace.dat"]).expect(1).says(&["cannot open none/trace.dat"]);
    follow(&["a.dat", "b.dat"]).expect(2).says(&["one recording"]);
    for option in ["--align-ts", "--folded", "--stat", "--last-event", "--events"] {
        follow(&[option]).expect(2).says(&["--follow"]);
    }
    fs::write(dir.path().join("text"), "no recording").unwrap();
    follow(&["text"]).expect(1).says(&["cannot read text", "no trace.dat file"]);
    // A directory that is no spool, and spools of all kinds of rubbish.
    let spool = dir.path().join("x.dat.spool");
    fs::create_dir(&spool).unwrap();
    follow(&["x.dat"]).expect(1).says(&["x.dat.spool", "no recording"]);
    let write = |name: &str, bytes: &[u8]| fs::write(spool.join(name), bytes).unwrap();
    write("manifest", b"TASPOOL9");
    write("counts", b"TACOUNT1");
    follow(&["x.dat"]).expect(1).says(&["manifest is damaged"]);
    write("manifest", br#"{"version":2,"manifest":{}}"#);
    follow(&["x.dat"]).expect(1).says(&["manifest is damaged"]);
    fs::remove_file(spool.join("manifest")).unwrap();
    run(&mut program(&spool, "mkfifo", ["manifest"])).expect(0);
    follow(&["x.dat"]).expect(1).says(&["manifest", "not a regular file"]);
}

#[test]
fn damage_is_passed_over_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    let recording = record(dir.path(), &[&caller], &["--switch-timer", "20ms"]);
    let follower = Follower::start(dir.path(), 0, &[]);
    for calls in [500, 1000] {
        caller.call(500);
        follower.wait_for_calls(calls);
    }
    recording.agent.signal(libc::SIGKILL);
    let whole = follower.wait().expect(1).out;
    // In the middle of the first chunk's data.
    let segment = fs::File::options().write(true).open(dir.path().join("trace.dat.spool/cpu0.0")).unwrap();
    segment.write_all_at(&[0xff; 64], 40).unwrap();
    let ended = run(&mut agent(dir.path(), ["report", "--follow"])).expect(1).says(&["damaged"]);
    let (followed, whole) = (events(&ended.out), events(&whole));
    assert!(!followed.is_empty() && followed.len() < whole.len() && whole.ends_with(&followed));
    // Notes that make no sense.
    let counts = fs::File::options().write(true).open(dir.path().join("trace.dat.spool/counts")).unwrap();
    counts.write_all_at(&[0xff; 8], 0).unwrap();
    run(&mut agent(dir.path(), ["report", "--follow"])).expect(1).says(&["counts is damaged"]);
}
