//! `stream`: events are printed as they come, as `report` prints those of a recording, and none is missing
//! that is not counted.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use integration_tests::{
    harness::{
        Caller, Ended, Marked, Running, agent, agent_path, is_clean, is_getppid, program, run, temporary,
        wait_for, wait_for_readers,
    },
    terminal::Terminal,
};
use serde_json::Value;

/// What is printed: system calls of the callers, getppid only.
const GETPPID: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

/// `stream ARGS` of these callers' calls. What waits to be printed is below `dir`.
fn stream(dir: &Path, callers: &[Caller], args: &[&str]) -> Command {
    let mut command = agent(dir, ["stream"]);
    command.args(GETPPID).args(args).env("TMPDIR", temporary(dir));
    for caller in callers {
        command.args(["-P", &caller.pid().to_string()]);
    }
    command
}

fn callers() -> [Caller; 2] {
    let callers = [Caller::named("first"), Caller::named("second")];
    callers.iter().enumerate().for_each(|(cpu, caller)| caller.pin(cpu));
    callers
}

/// Lets all of them call at the same time.
fn call(callers: &mut [Caller], times: u64, count: u64) {
    std::thread::scope(|scope| {
        for caller in callers {
            scope.spawn(move || (0..times).for_each(|_| caller.call(count)));
        }
    });
}

/// The lines of a report that are events, without their times, and how often there is each.
fn without_times(text: &str) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for line in text.lines().filter(|line| is_getppid(line)) {
        let (task, rest) = line.split_once("] ").unwrap();
        let (_, event) = rest.trim_start().split_once(": ").unwrap();
        *lines.entry(format!("{task} {event}")).or_default() += 1;
    }
    lines
}

/// The times of the lines, in seconds, as they are printed.
fn times(text: &str) -> Vec<&str> {
    let of = |line: &'_ str| line.split_once("] ").map(|(_, rest)| rest.len());
    let events = text.lines().filter(|line| is_getppid(line) && of(line).is_some());
    events.map(|line| line.split_once("] ").unwrap().1.trim_start().split_once(':').unwrap().0).collect()
}

/// Sums the numbers of what was said of events that are not printed, at their places.
fn not_printed(err: &str) -> u64 {
    let lines = err.lines().filter_map(|line| line.strip_prefix("... "));
    let number = |line: &str| {
        let (number, _) = line.split_once(" events not printed (the output was slow)").unwrap();
        number.replace(' ', "").parse::<u64>().unwrap()
    };
    lines.map(number).sum()
}

#[test]
fn it_prints_what_a_report_of_a_recording_beside_it_prints() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recording = {
        let pids: Vec<String> = callers.iter().map(|caller| caller.pid().to_string()).collect();
        let args = [&GETPPID[..], &["-P", &pids[0], "-P", &pids[1]]].concat();
        Marked::start_in(dir.path(), &args, dir.path().join("recording"))
    };
    let mut command = stream(dir.path(), &callers, &["--switch-timer", "20ms"]);
    let streaming = Marked::start_as(&mut command, dir.path().join("streaming"));
    call(&mut callers, 10, 3000);
    let streamed = streaming.finish().expect(0);
    recording.finish().expect(0);
    let reported = run(&mut agent(dir.path(), ["report", "trace.dat"])).expect(0);
    assert_eq!(without_times(&streamed.out), without_times(&reported.out));
    assert_eq!(without_times(&streamed.out).values().sum::<u64>(), 60_000);
    assert_eq!(streamed.out.lines().next(), reported.out.lines().next(), "what comes before the events");
    let times = times(&streamed.out);
    assert_eq!(times.len(), 60_000);
    assert!(times.is_sorted(), "in the order of time over all CPUs");
    streamed.says(&["60 000 events in ", ", all printed\n", "recording until the command exits"]);
    is_clean(dir.path());
    assert!(!dir.path().join("trace.dat.spool").exists());
}

#[test]
fn events_are_there_while_others_are_still_to_come() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let mut command = stream(dir.path(), &callers, &["--json"]);
    command.args(["sh", "-c", "cat"]).stdout(Stdio::piped()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("recording until the command exits")));
    // Nothing but what is printed lets the next one be made: none may wait for another.
    for round in 0..20 {
        let at = round % 2;
        callers[at].call(1);
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["event"], &line["fields"]["id"]), (&"sys_enter".into(), &110.into()), "{line}");
        assert_eq!((line["cpu"].as_u64(), line["lost"].as_u64()), (Some(at as u64), Some(0)));
        assert_eq!(line["pid"].as_u64(), Some(callers[at].pid().into()));
        assert_eq!(line["comm"], ["first", "second"][at]);
    }
    drop(process.stdin.take());
    assert!(lines.next().is_none());
    assert!(process.wait().unwrap().success());
    is_clean(dir.path());
}

/// Starts a stream whose output nobody reads until somebody does.
fn unread(command: &mut Command, err: &Path) -> Child {
    let err = fs::File::create(err).unwrap();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err).spawn().unwrap()
}

/// Bytes of all files in a directory.
fn bytes_in(dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        // What is removed meanwhile has none.
        let Ok(about) = entry.metadata() else { continue };
        bytes += if about.is_dir() { bytes_in(&entry.path()) } else { about.len() };
    }
    bytes
}

fn resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn what_a_slow_reader_leaves_is_counted_and_takes_bounded_room() {
    for json in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut callers = callers();
        let args = ["-m", "512", "--switch-timer", "20ms"];
        let mut command = stream(dir.path(), &callers, &args);
        command.args(json.then_some("--json")).args(["sh", "-c", "cat"]);
        let err = dir.path().join("err");
        let mut process = unread(&mut command, &err);
        let said = |text: &str| fs::read_to_string(&err).unwrap().contains(text);
        wait_for("the recording", || said("recording until").then_some(()));
        wait_for_readers(process.id());
        let mut most = 0;
        for _ in 0..20 {
            call(&mut callers, 1, 20_000);
            most = most.max(bytes_in(&temporary(dir.path())));
        }
        // Twice 512 KB, and what describes the events; without a limit it would be 50 MB.
        assert!(most < 16 << 20, "{most} bytes wait");
        let resident = resident_kb(process.id());
        assert!(resident < 300 << 10, "{resident} KB of memory");
        let mut out = process.stdout.take().unwrap();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
        let out = reading.join().unwrap();
        let err = fs::read_to_string(&err).unwrap();
        let (printed, left) = if json {
            let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let events = lines.iter().filter(|line| line["event"] == "sys_enter");
            let times: Vec<u64> = events.map(|line| line["timestamp"].as_u64().unwrap()).collect();
            assert!(times.is_sorted());
            let left: u64 = lines.iter().filter_map(|line| line["not_printed"].as_u64()).sum();
            assert_eq!(
                lines.len(),
                times.len() + lines.iter().filter(|line| line["not_printed"].is_u64()).count()
            );
            (times.len() as u64, left)
        } else {
            assert!(times(&out).is_sorted());
            (times(&out).len() as u64, not_printed(&err))
        };
        assert_eq!(printed + left, 800_000, "{err}");
        assert!(left > 100_000 && printed > 1000, "{printed} printed, {left} not");
        let grouped = |number: u64| {
            let digits = number.to_string();
            let groups = digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap());
            groups.collect::<Vec<_>>().join(" ")
        };
        let told = format!("{} printed, {} NOT PRINTED\n", grouped(printed), grouped(left));
        assert!(err.contains(&told), "{told}{err}");
        assert!(err.contains("800 000 events in "), "{err}");
        is_clean(dir.path());
    }
}

#[test]
fn a_signal_ends_it_also_where_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let err = dir.path().join("err");
    let mut command = agent(dir.path(), ["stream", "-m", "512", "--switch-timer", "20ms"]);
    command.args(GETPPID).args(["--comm", "first", "--comm", "second"]).env("TMPDIR", temporary(dir.path()));
    let mut process = unread(&mut command, &err);
    let said = || fs::read_to_string(&err).unwrap();
    wait_for("the recording", || said().contains("recording; Ctrl-C stops it").then_some(()));
    wait_for_readers(process.id());
    call(&mut callers, 3, 20_000);
    let signal = |signal: i32| {
        // SAFETY: plain numbers; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(process.id().cast_signed(), signal) }, 0);
    };
    signal(libc::SIGUSR1);
    wait_for("the progress", || said().contains("of them are printed").then_some(()));
    signal(libc::SIGINT);
    let status = wait_for("the end", || process.try_wait().unwrap());
    assert_eq!(status.code(), Some(0), "{}", said());
    assert!(said().contains("120 000 events in ") && said().contains(" NOT PRINTED\n"), "{}", said());
    is_clean(dir.path());
}

#[test]
fn a_signal_prints_what_there_is_and_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    // With this timer, nothing is stored before the end.
    let args = ["stream", "--switch-timer", "off", "-e", "raw_syscalls:sys_enter", "-f", "id == 110"];
    let mut command = agent(dir.path(), args);
    command.args(["--comm", "first"]).env("TMPDIR", temporary(dir.path()));
    let mut streaming = Running::start(&mut command);
    streaming.wait_until_said("recording; Ctrl-C stops it", 1);
    callers[0].call(100);
    streaming.signal(libc::SIGINT);
    let ended = streaming.wait().expect(0).says(&["100 events in ", ", all printed\n"]);
    assert_eq!(times(&ended.out).len(), 100, "{}", ended.out);
    is_clean(dir.path());
}

#[test]
fn a_closed_pipe_ends_it_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"("$0" stream -q -e raw_syscalls:sys_enter; echo "code $?" >code) | head -n 3"#;
    let mut command = program(dir.path(), "sh", ["-c", script]);
    let ended = run(command.arg(agent_path()).env("TMPDIR", temporary(dir.path()))).expect(0);
    assert_eq!((ended.out.lines().count(), ended.err.as_str()), (3, ""), "{ended:?}");
    assert_eq!(fs::read_to_string(dir.path().join("code")).unwrap(), "code 0\n");
    is_clean(dir.path());
}

#[test]
fn it_ends_with_its_command_its_time_and_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let streamed = |args: &[&str]| {
        let mut command = agent(dir.path(), ["stream", "-e", "sched_process_exec"]);
        run(command.args(args).env("TMPDIR", temporary(dir.path())))
    };
    // The command's own output is not among the events, and its status is passed on.
    let ended = streamed(&["-F", "sh", "-c", "echo from the command; exit 7"]).expect(7);
    ended.says(&["from the command\n", "1 events in ", ", all printed\n"]);
    let ended: Ended = streamed(&["-F", "-c", "sh", "-c", "/bin/true; /bin/true"]).expect(0);
    let lines: Vec<&str> = ended.out.lines().skip(1).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].contains("filename=/usr/bin/sh") || lines[0].contains("filename=/bin/sh"), "{lines:#?}");
    assert!(lines[1..].iter().all(|line| line.contains("filename=/bin/true")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("<...>")), "names are known: {lines:#?}");
    streamed(&["--duration", "100ms", "--comm", "nobody"]).expect(0).says(&["0 events in 0.", "all printed"]);
    let script = "i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i + 1)); done";
    let limited = streamed(&["--limit", "2", "-F", "-c", "sh", "-c", script]);
    assert_eq!(limited.expect(0).out.lines().count(), 3);
    is_clean(dir.path());
    // Colours are for terminals, unless they are asked for.
    let coloured = |when: &str| {
        let args = ["--color", when, "-F", "true"];
        streamed(&args).expect(0).out.contains("\u{1b}[")
    };
    assert_eq!([coloured("auto"), coloured("always"), coloured("never")], [false, true, false]);
}

#[test]
fn what_the_rings_lost_is_told_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let args = ["-b", "16", "--json", "--switch-timer", "20ms", "-s", "20000"];
    // The poll interval is none of its options.
    run(stream(dir.path(), &callers, &args).arg("true"))
        .expect(2)
        .says(&["--poll-interval is an option of record"]);
    let mut command = stream(dir.path(), &callers, &args[..5]);
    let streaming = Marked::start_as(&mut command, dir.path().join("mark"));
    wait_for_readers(streaming.agent.pid());
    streaming.agent.hold();
    call(&mut callers, 1, 50_000);
    streaming.agent.signal(libc::SIGCONT);
    wait_for_readers(streaming.agent.pid());
    // What comes next says what is missing before it.
    call(&mut callers, 1, 10);
    let ended = streaming.finish().expect(0);
    let lines: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost: u64 = lines.iter().map(|line| line["lost"].as_u64().unwrap()).sum();
    assert!(lost > 10_000, "{lost}");
    assert_eq!(lines.len() as u64 + lost, 100_020, "{}", ended.err);
    is_clean(dir.path());
}

#[test]
fn a_terminal_gets_colours_and_nothing_that_it_would_obey() {
    let dir = tempfile::tempdir().unwrap();
    let mut hostile = Caller::named("\u{1b}[2Jgone");
    let terminal = Terminal::start(dir.path());
    let command = format!(
        "TMPDIR={} {} stream {} --comm '*gone' ",
        temporary(dir.path()).display(),
        agent_path().display(),
        "-e raw_syscalls:sys_enter -f 'id == 110'"
    );
    terminal.types(&[&command, "Enter"]);
    terminal.wait_for(|lines| lines.iter().any(|line| line.contains("recording; Ctrl-C stops it")));
    hostile.call(2);
    let is_event = |line: &String| line.contains("sys_enter:") && line.contains(r"\x1b[2Jgone");
    let lines = terminal.wait_for(|lines| lines.iter().filter(|line| is_event(line)).count() == 2);
    assert!(lines.iter().any(|line| line.contains(" stream -e raw_syscalls")), "not cleared: {lines:#?}");
    let coloured = terminal.tmux(&["capture-pane", "-p", "-e"]);
    assert!(
        coloured.lines().any(|line| line.contains("sys_enter") && line.contains("\u{1b}[")),
        "{coloured}"
    );
    terminal.types(&["C-c"]);
    let end = terminal.wait_for(|lines| lines.iter().any(|line| line.contains("2 events in ")));
    assert!(end.iter().any(|line| line.ends_with(", all printed")), "{end:#?}");
    is_clean(dir.path());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], text: &str| {
        let mut command = agent(dir.path(), ["stream"]);
        run(command.args(args).env("TMPDIR", temporary(dir.path()))).expect(2).says(&[text]);
    };
    refused(&[], "no event to record: name one with -e");
    refused(&["-e", "sched", "-o", "x.dat"], "--output is an option of record");
    refused(&["-e", "sched", "--overwrite"], "--overwrite is an option of record");
    refused(&["-e", "sched", "--json", "-R"], "cannot be used with");
    refused(&["-e", "sched", "--unknown"], "there is no option --unknown");
    let mut nowhere = agent(dir.path(), ["stream", "-e", "sched_switch"]);
    run(nowhere.env("TMPDIR", dir.path().join("missing")))
        .expect(114)
        .says(&["TMPDIR names another directory"]);
    is_clean(dir.path());
}
