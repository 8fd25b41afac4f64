//! `record -o -` and what reads from pipes: the same as of a file, whatever happens to either end.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use integration_tests::{
    harness::{
        Caller, Ended, Ledger, Marked, Running, Tmpfs, agent, agent_path, files, is_clean, is_getppid,
        program, run, temporary, wait_for,
    },
    soak, trace_cmd,
};

/// What is recorded: system calls of the callers, getppid only.
const GETPPID: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

/// Starts `record -o - ARGS` of these callers' calls, into a file. Temporary files go below `dir`.
fn record_to(stream: &Path, dir: &Path, callers: &[&Caller], args: &[&str]) -> Marked {
    let script = r#"out=$1; shift; exec "$0" record -o - "$@" >"$out""#;
    let mut command = program(dir, "sh", ["-c", script]);
    command.arg(agent_path()).arg(stream).args(GETPPID).args(args).env("TMPDIR", temporary(dir));
    for caller in callers {
        command.args(["-P", &caller.pid().to_string()]);
    }
    Marked::start_as(&mut command, dir.join("mark"))
}

/// Runs the agent in `dir` with these bytes coming through a pipe.
fn piped(dir: &Path, args: &[&str], bytes: &[u8]) -> Ended {
    let mut child = spawn(agent(dir, args).env("TMPDIR", temporary(dir)).stdin(Stdio::piped()));
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // Who has seen enough closes it.
        scope.spawn(move || drop(input.write_all(bytes)));
        let output = child.wait_with_output().unwrap();
        Ended {
            status: output.status,
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    })
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn calls(text: &str) -> u64 {
    text.lines().filter(|line| is_getppid(line)).count() as u64
}

#[test]
fn a_stream_is_printed_and_converted_as_the_file_that_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = [Caller::named("first"), Caller::named("second")];
    for (cpu, caller) in callers.iter().enumerate() {
        caller.pin(cpu);
    }
    let stream = dir.path().join("stream");
    // COMMAND writes to standard output, too.
    let recording = record_to(&stream, dir.path(), &[&callers[0], &callers[1]], &["--switch-timer", "20ms"]);
    callers[0].call(10);
    std::thread::scope(|scope| {
        for caller in &mut callers {
            scope.spawn(move || (0..10).for_each(|_| caller.call(3000)));
        }
    });
    recording.finish().expect(0).says(&["standard output: 60 010 events"]);
    is_clean(dir.path());
    let bytes = fs::read(&stream).unwrap();

    // The file.
    piped(dir.path(), &["convert", "-", "-o", "t.dat"], &bytes).expect(0);
    let file = dir.path().join("t.dat");
    assert_eq!((Ledger::of(&file).cpus("stored"), Ledger::of(&file).lost()), (60_010, 0));
    assert_eq!(Ledger::of(&file).events("recorded"), 60_010);
    assert!(run(&mut agent(dir.path(), ["check", "-v", "t.dat"])).expect(0).out.contains("no faults"));
    assert_eq!(trace_cmd::count(&trace_cmd::report(&file, &[])), 60_010);

    // Text.
    for args in [
        &[][..],
        &["--json"],
        &["-R", "--cpu", "1"],
        &["-l", "-t", "--ts-diff"],
        &["--limit", "100"],
        &["-w"],
    ] {
        let expected = run(agent(dir.path(), ["report", "t.dat"]).args(args)).expect(0);
        assert!(expected.out.lines().count() >= 100, "{args:?}");
        let ended = piped(dir.path(), &[&["report", "-"], args].concat(), &bytes).expect(0);
        assert!(ended.out == expected.out && ended.err == expected.err, "{args:?}: {}", ended.err);
        let redirected = run(agent(dir.path(), ["report", "stream"]).args(args)).expect(0);
        assert!(redirected.out == expected.out, "{args:?}");
    }

    // Everything that reads files, of the stream and of the file, both through pipes.
    let whole = fs::read(&file).unwrap();
    for args in [
        &["info", "-"][..],
        &["info", "--json", "-"],
        &["check", "-v", "-"],
        &["report", "--events", "-"],
        &["analyze", "summary", "--json", "-"],
        &["hist", "raw_syscalls:sys_enter", "-i", "-"],
    ] {
        let of_stream = piped(dir.path(), args, &bytes);
        let of_file = piped(dir.path(), args, &whole);
        assert_eq!(of_stream.code(), of_file.code(), "{args:?}: {}", of_stream.err);
        assert_eq!(of_stream.out, of_file.out, "{args:?}");
        assert!(of_stream.code() == 0 && !of_stream.out.is_empty(), "{args:?}: {}", of_stream.err);
    }
    for (name, bytes) in [("of_stream", &bytes), ("of_file", &whole)] {
        piped(dir.path(), &["export", "--format", "jsonl", "-", name], bytes).expect(0);
    }
    let exported =
        |name: &str| run(&mut program(dir.path(), "sh", ["-c", "cat -- \"$0\"/*.jsonl", name])).expect(0).out;
    assert!(exported("of_stream").lines().count() >= 60_010);
    assert_eq!(exported("of_stream"), exported("of_file"));
    assert_eq!(
        piped(dir.path(), &["report", "-"], &whole).expect(0).out,
        run(&mut agent(dir.path(), ["report", "t.dat"])).out
    );
    is_clean(dir.path());
}

/// What COMMAND writes to standard output goes to standard error, and is not in the stream.
#[test]
fn nothing_else_is_in_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let mut record =
        agent(dir.path(), ["record", "-o", "-", "-e", "sched", "sh", "-c", "echo from the command"]);
    let output = spawn(record.env("TMPDIR", temporary(dir.path()))).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("from the command\n"), "{said}");
    piped(dir.path(), &["check", "-"], &output.stdout).expect(0);
    is_clean(dir.path());
    // A recording into a terminal would be in nobody's interest.
    let line = format!("TMPDIR=tmp {} record -o - -e sched touch ran", agent_path().display());
    let refused = run(&mut program(dir.path(), "script", ["-qec", &line, "/dev/null"])).expect(2);
    assert!(refused.out.contains("it is a terminal"), "{}", refused.out);
    assert!(!dir.path().join("ran").exists());
}

/// Symbols of the kernel and of programs come with the events that print them.
#[test]
fn stacks_have_their_names() {
    for stack in ["-T", "--user-stack"] {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let stream = dir.path().join("stream");
        let recording = record_to(&stream, dir.path(), &[&caller], &[stack, "--switch-timer", "20ms"]);
        (0..10).for_each(|_| caller.call(100));
        recording.finish().expect(0);
        let bytes = fs::read(&stream).unwrap();
        piped(dir.path(), &["convert", "-", "-o", "t.dat"], &bytes).expect(0);
        let expected = run(&mut agent(dir.path(), ["report", "t.dat"])).expect(0).out;
        assert!(expected.contains("+0x") || expected.contains("=> "), "{expected}");
        let ended = piped(dir.path(), &["report", "-"], &bytes).expect(0);
        let differ = ended.out.lines().zip(expected.lines()).find(|(streamed, printed)| streamed != printed);
        assert_eq!(differ, None, "{stack}");
        assert_eq!(ended.out.lines().count(), expected.lines().count(), "{stack}");
        is_clean(dir.path());
    }
}

/// A recorder whose stream another process reads.
struct Piped {
    recorder: Marked,
    reader: Running,
    out: std::path::PathBuf,
}

impl Piped {
    /// Starts `record -o - ARGS | report -`.
    fn start(dir: &Path, caller: &Caller, args: &[&str]) -> Self {
        let fifo = dir.join("fifo");
        run(program(dir, "mkfifo", [""; 0]).arg(&fifo)).expect(0);
        let out = dir.join("out");
        let script = r#"exec "$0" report - <"$1" >"$2""#;
        let mut report = program(dir, "sh", ["-c", script]);
        let reader =
            Running::start(report.arg(agent_path()).arg(&fifo).arg(&out).env("TMPDIR", temporary(dir)));
        let recorder = record_to(&fifo, dir, &[caller], args);
        Self { recorder, reader, out }
    }

    fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    fn wait_for_calls(&self, count: u64) {
        wait_for("printed calls", || (calls(&self.out()) >= count).then_some(()));
    }
}

#[test]
fn events_are_printed_while_the_recording_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let piped = Piped::start(dir.path(), &caller, &["--switch-timer", "20ms"]);
    for round in 1..=5 {
        caller.call(3);
        piped.wait_for_calls(3 * round);
    }
    piped.recorder.finish().expect(0);
    assert_eq!(piped.reader.wait().expect(0).err, "");
    assert_eq!(calls(&fs::read_to_string(&piped.out).unwrap()), 15);
    is_clean(dir.path());
}

/// What a stopped reader does not read waits in the spool: the recording comes to its end without it.
#[test]
fn a_reader_that_stops_costs_the_recording_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    // The rings hold all of it, but the pipe holds nothing like it.
    let piped = Piped::start(dir.path(), &caller, &["-b", "64M", "--compression", "none"]);
    caller.call(1);
    piped.wait_for_calls(1);
    piped.reader.hold();
    caller.call(500_000);
    piped.recorder.end_command();
    wait_for("the finished file", || {
        let left = files(&temporary(dir.path()));
        let [place] = left.as_slice() else { return None };
        (files(&temporary(dir.path()).join(place)) == ["trace.dat"]).then_some(())
    });
    assert!(calls(&piped.out()) < 100_000, "it was not stopped");
    piped.reader.signal(libc::SIGCONT);
    let ended = piped.recorder.agent.wait().expect(0).says(&["standard output: 500 001 events"]);
    assert!(!ended.err.contains("LOST"), "{}", ended.err);
    piped.reader.wait().expect(0);
    assert_eq!(calls(&fs::read_to_string(&piped.out).unwrap()), 500_001);
    is_clean(dir.path());
}

/// Whoever does not want it any more ends the recording; COMMAND goes on.
#[test]
fn a_reader_that_is_gone_ends_the_recording_in_order() {
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let piped = Piped::start(dir.path(), &caller, &["--switch-timer", "20ms"]);
        caller.call(1000);
        piped.wait_for_calls(500);
        piped.reader.signal(signal);
        assert!(!piped.reader.wait().status.success());
        let Piped { mut recorder, .. } = piped;
        // The command goes on, and has the same standard error.
        wait_for("the end of the recorder", || recorder.agent.has_ended().then_some(()));
        recorder.finish().expect(114).says(&["nobody reads standard output any more"]);
        is_clean(dir.path());
    }
}

/// The disk becomes full under the spool: what was recorded until then comes through, with its end.
#[test]
fn what_cannot_be_written_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let small = Tmpfs::mount("size=256k");
    let mut caller = Caller::start();
    let stream = small.path().join("stream");
    let mut recording = record_to(&stream, dir.path(), &[&caller], &["--switch-timer", "20ms"]);
    caller.call(200_000);
    wait_for("the end of the recorder", || recording.agent.has_ended().then_some(()));
    let ended = recording.finish().expect(114);
    let ended = ended.says(&["standard output: cannot write: No space left on device"]);
    let kept = ended.err.rsplit("all of it is in ").next().unwrap().trim().to_owned();
    let stored = Ledger::of(Path::new(&kept)).cpus("stored");
    assert!(stored > 0 && calls(&trace_cmd::report(Path::new(&kept), &[])) == stored, "{}", ended.err);
}

#[test]
fn an_interrupt_of_the_whole_pipeline_loses_nothing() {
    use std::os::unix::process::CommandExt as _;

    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let script = r#""$0" record -o - -e raw_syscalls:sys_enter -f 'id == 110' -P "$1" --switch-timer 20ms | "$0" report - >"$2""#;
    let mut command = program(dir.path(), "sh", ["-c", script]);
    let text = dir.path().join("text");
    command.arg(agent_path()).arg(caller.pid().to_string()).arg(&text).env("TMPDIR", temporary(dir.path()));
    let mut pipeline = command.process_group(0).stderr(Stdio::piped()).spawn().unwrap();
    let printed = || fs::read_to_string(&text).map_or(0, |text| calls(&text));
    wait_for("the first calls", || {
        caller.call(1000);
        (printed() > 0).then_some(())
    });
    caller.call(30_000);
    let all = caller.calls();
    // As Ctrl-C does it.
    let group = rustix::process::Pid::from_raw(pipeline.id().cast_signed()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    pipeline.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    pipeline.wait().unwrap();
    let (told, printed) = (said.contains("standard output: "), printed());
    assert!(told && printed <= all && printed >= 30_000, "{printed} of {all}: {said}");
    is_clean(dir.path());
}

#[test]
fn what_follows_a_recording_is_refused_and_messages_are_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let stream = dir.path().join("stream");
    let recording = record_to(&stream, dir.path(), &[&caller], &[]);
    caller.call(1000);
    recording.finish().expect(0);
    let bytes = fs::read(&stream).unwrap();
    let twice = [&bytes[..], &bytes].concat();
    let printed = piped(dir.path(), &["report", "-"], &twice).expect(1).says(&["more follows the end"]);
    assert_eq!(calls(&printed.out), 1000, "the first one is printed");
    piped(dir.path(), &["convert", "-", "-o", "t.dat"], &twice).says(&["more follows the end"]);
    let script = r#"exec "$0" record -o - -e sched_switch true >both 2>&1"#;
    let mut command = program(dir.path(), "sh", ["-c", script]);
    run(command.arg(agent_path()).env("TMPDIR", temporary(dir.path()))).expect(2);
    assert!(fs::read_to_string(dir.path().join("both")).unwrap().contains("2>&1"));
    is_clean(dir.path());
}

#[test]
fn a_full_disk_ends_the_recording_and_the_stream_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let small = Tmpfs::mount("size=4m");
    let script = r#"exec "$0" record -o - -e raw_syscalls --compression none -b 1M dd if=/dev/zero of=/dev/null bs=1 count=2000000 >"$1""#;
    let mut command = program(dir.path(), "sh", ["-c", script]);
    command.arg(agent_path()).arg(dir.path().join("stream")).env("TMPDIR", small.path());
    let ended =
        run(&mut command).expect(113).says(&["recording ended early", "contains everything up to then"]);
    assert!(ended.err.contains("No space left"), "{}", ended.err);
    let bytes = fs::read(dir.path().join("stream")).unwrap();
    let printed = piped(dir.path(), &["report", "-"], &bytes).expect(0);
    assert!(printed.out.lines().count() > 10_000);
    piped(dir.path(), &["check", "-"], &bytes).expect(0);
    assert_eq!(files(small.path()), Vec::<String>::new());
}

mod soaked {
    use super::*;

    /// The largest memory that a process has had, in KB.
    fn peak(pid: u32) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    }

    /// Millions of events, none of which is missing, in memory that does not grow with them.
    #[test]
    fn all_of_many_events_are_printed() {
        let rounds = 10 * soak().min(100) as u64;
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let piped = Piped::start(dir.path(), &caller, &["-b", "32M"]);
        let mut most = 0;
        for _ in 0..rounds {
            caller.call(50_000);
            most = most.max(peak(piped.reader.pid()).unwrap());
        }
        piped.recorder.finish().expect(0);
        piped.reader.wait().expect(0);
        assert!(most < 200_000, "{most} KB");
        assert_eq!(calls(&fs::read_to_string(&piped.out).unwrap()), 50_000 * rounds);
        is_clean(dir.path());
    }

    /// The recorder is killed in the middle: everything that came until then is printed, and the end is told.
    #[test]
    fn a_recorder_that_is_killed_is_told() {
        for round in 1..=soak().min(20) as u64 {
            let dir = tempfile::tempdir().unwrap();
            let mut caller = Caller::start();
            let piped = Piped::start(dir.path(), &caller, &["-b", "32M", "--switch-timer", "20ms"]);
            let pid = piped.recorder.agent.pid();
            for _ in 0..4 * round {
                caller.call(50_000);
            }
            piped.wait_for_calls(50_000);
            // The shell has become the recorder.
            piped.recorder.agent.signal(libc::SIGKILL);
            assert!(!piped.recorder.finish().status.success(), "{pid}");
            piped.reader.wait().expect(1).says(&["standard input: the recording was cut off"]);
            let printed = fs::read_to_string(&piped.out).unwrap();
            assert!(printed.ends_with('\n'));
            let printed = calls(&printed);
            assert!((50_000..=200_000 * round).contains(&printed), "{printed}");
            // What the recorder had stored is there, and is at least as much.
            let left = files(&temporary(dir.path()));
            let [left] = left.as_slice() else { panic!("{left:?}") };
            let spool = temporary(dir.path()).join(left).join("trace.dat");
            run(agent(dir.path(), ["recover", "-o", "r.dat"]).arg(&spool)).expect(0);
            assert!(Ledger::of(&dir.path().join("r.dat")).cpus("stored") >= printed);
        }
    }

    /// Streams that end anywhere: the events that are printed are those that the file has which is made of
    /// the same bytes.
    #[test]
    fn what_was_cut_off_can_be_converted() {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let stream = dir.path().join("stream");
        let recording = record_to(&stream, dir.path(), &[&caller], &["--switch-timer", "20ms"]);
        (0..10).for_each(|_| caller.call(1000));
        recording.finish().expect(0);
        let mut bytes = Vec::new();
        File::open(&stream).unwrap().read_to_end(&mut bytes).unwrap();
        let mut most = 0;
        for part in 1..=20 {
            let cut = &bytes[..bytes.len() * part / 21];
            let printed = piped(dir.path(), &["report", "-"], cut).expect(1);
            let converted = piped(dir.path(), &["convert", "--force", "-", "-o", "t.dat"], cut).expect(1);
            let is_told = |ended: &Ended| ended.err.contains("was cut off");
            assert!(is_told(&printed) && is_told(&converted), "{}{}", printed.err, converted.err);
            let file = dir.path().join("t.dat");
            if file.exists() {
                assert_eq!(Ledger::of(&file).cpus("stored"), calls(&printed.out), "{part}");
                let checked = run(agent(dir.path(), ["check", "-v"]).arg(&file)).expect(0);
                assert_eq!(checked.out.contains("cut short"), calls(&printed.out) != 0, "{}", checked.out);
                fs::remove_file(&file).unwrap();
                most = most.max(calls(&printed.out));
            } else {
                assert_eq!(calls(&printed.out), 0);
            }
            is_clean(dir.path());
        }
        assert!(most > 5000, "{most}");
    }
}
