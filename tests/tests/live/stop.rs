//! How recordings end: a finished file, the right exit code, and nothing left behind.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use integration_tests::harness::{
    Caller, Ended, Ledger, Marked, Report, Running, agent, files, is_getppid, numbers, program, run, tid_of,
    wait_for,
};

/// A recording of a caller without a command, when it records.
fn recording_until_stopped(dir: &Path, caller: &mut Caller) -> Running {
    let pid = caller.pid().to_string();
    let args = ["record", "-e", "raw_syscalls:sys_enter", "-P", &pid, "-s", "1000"];
    let mut running = Running::start(&mut agent(dir, args));
    // Without a command nothing says when the gates are open, but that there are data.
    wait_for("data in the spool", || {
        assert!(!running.has_ended(), "the recording ended by itself");
        caller.call(1000);
        let spool = fs::read_dir(dir.join("trace.dat.spool")).ok()?.flatten();
        let mut data = spool.filter(|file| file.file_name().to_string_lossy().starts_with("cpu"));
        data.any(|file| file.metadata().is_ok_and(|file| file.len() > 0)).then_some(())
    });
    running
}

/// Descriptors of process `pid` that are links of events: to perf events, or to the raw tracepoints of the
/// events that these tests record. The agent watches threads through others.
fn links(pid: u32) -> usize {
    in_descriptors(pid, |info| {
        ["link_type:\tperf", "tp_name:\tsched_switch", "tp_name:\tsys_enter"]
            .iter()
            .any(|line| info.contains(line))
    })
}

/// How many descriptors of process `pid` are of a kind, by what the kernel tells of them.
fn in_descriptors(pid: u32, of_kind: impl Fn(&str) -> bool) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    entries
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .filter(|info| of_kind(info))
        .count()
}

/// Whether the detacher of the recording into `output` is at work. It has the recorder's command line.
fn is_detaching(output: &Path) -> bool {
    let entries = fs::read_dir("/proc").unwrap();
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let output = output.to_str().unwrap();
    pids.any(|pid| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("comm").trim() == "tracer-detach" && read("cmdline").contains(output)
    })
}

/// The ids behind `key` in the descriptors of process `pid`: its programs, links and maps.
fn bpf_ids(pid: u32, key: &str) -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return BTreeSet::new() };
    let infos = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let key = format!("{key}:\t");
    infos
        .filter_map(|info| info.lines().find_map(|line| line.strip_prefix(&key)?.trim().parse().ok()))
        .collect()
}

/// The file is whole, has the events, and is all that is there.
fn check(dir: &Path, event: &str) -> Report {
    assert_eq!(files(dir), ["trace.dat"], "no spool is left");
    let report = Report::of(&dir.join("trace.dat"));
    assert!(report.names().contains(event), "no {event} in {} events", report.events.len());
    report
}

#[test]
fn the_commands_end_ends_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(&mut agent(dir.path(), ["record", "-e", "sched:sched_switch", "sh", "-c", "echo said"]));
    assert_eq!(ended.expect(0).out, "said\n", "the command's output is not touched");
    check(dir.path(), "sched_switch");
}

#[test]
fn the_commands_status_is_passed_on() {
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        let dir = tempfile::tempdir().unwrap();
        let command = ["record", "-q", "-e", "sched:sched_switch", "sh", "-c", script];
        let ended = run(&mut agent(dir.path(), command)).expect(code);
        assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""), "-q says nothing");
        check(dir.path(), "sched_switch");
    }
}

#[test]
fn the_command_gets_the_signals_and_limits_that_the_agent_was_started_with() {
    let dir = tempfile::tempdir().unwrap();
    // The first 31: the C library keeps the two behind them for itself.
    let script = "sed -nE 's/^(SigBlk|SigIgn|SigCgt):.*(.{8})$/\\1 \\2/p' /proc/self/status; ulimit -n; ls /proc/self/fd";
    let under = |command: &mut std::process::Command| run(command).expect(0).out;
    let plain = under(&mut program(dir.path(), "sh", ["-c", script]));
    let recorded =
        under(&mut agent(dir.path(), ["record", "-q", "-e", "sched:sched_switch", "sh", "-c", script]));
    let without_32 = |text: String| text.replace("SigIgn 8", "SigIgn 0");
    assert_eq!(without_32(recorded), without_32(plain));
}

#[test]
fn signals_end_the_recording() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = Caller::start();
        let recording = recording_until_stopped(dir.path(), &mut caller);
        let before = caller.calls();
        caller.call(500);
        recording.signal(signal);
        recording.wait().expect(0).says(&["trace.dat:", "events"]);
        let found = check(dir.path(), "sys_enter").count(is_getppid);
        assert_eq!(Ledger::of(&dir.path().join("trace.dat")).lost(), 0);
        // Those in whose time the recording began are there from the first recorded one on.
        assert!(found > 500 && found <= before + 500, "signal {signal}: {found}");
    }
}

#[test]
fn a_signal_to_the_agent_ends_the_command_too() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Marked::start(dir.path(), &["-e", "sched:sched_switch", "-o", "trace.dat"]);
    // The kernel may leave out a child while others come and go (proc_pid_children(5)).
    let child: u32 = wait_for("the command among the children", || {
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", recording.agent.pid())).ok()?;
        children.split_whitespace().next()?.parse().ok()
    });
    recording.agent.signal(libc::SIGTERM);
    wait_for("the command's end", || {
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z")).then_some(())
    });
    recording.end_command();
    let ended = recording.agent.wait();
    assert!([0, 143].contains(&ended.code()), "{ended:?}");
    check(dir.path(), "sched_switch");
}

#[test]
fn the_duration_ends_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let start = std::time::Instant::now();
    run(&mut agent(dir.path(), ["record", "-e", "sched:sched_switch", "--duration", "300ms"])).expect(0);
    assert!(start.elapsed() >= std::time::Duration::from_millis(300), "it ended before its time");
    check(dir.path(), "sched_switch");
    // Attaching is no part of it: from the first moment of which events are in the file to the last one it is
    // at least that long.
    let json = run(&mut agent(dir.path(), ["info", "--json", "trace.dat"])).expect(0).out;
    let at = |key: &str| numbers(&json, key)[0];
    assert!(at("to_ns") - at("from_ns") >= 300_000_000, "{json}");
    // A command goes on without the recorder: this one cannot end before the recording has.
    let other = tempfile::tempdir().unwrap();
    let script = "while ! [ -e ../go ]; do sleep 0.02; done; rm ../go";
    let own = other.path().join("own");
    fs::create_dir(&own).unwrap();
    let args = ["record", "-e", "sched:sched_switch", "--duration", "200ms", "sh", "-c", script];
    // Not through a pipe: the command holds it open.
    let status = agent(&own, args).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    check(&own, "sched_switch");
    let go = other.path().join("go");
    fs::write(&go, "").unwrap();
    wait_for("the command", || (!go.exists()).then_some(()));
}

#[test]
fn the_end_of_the_recorded_process_ends_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Caller::start();
    let mut second = Caller::start();
    let pids = format!("{},{}", first.pid(), second.pid());
    let mut recording =
        Running::start(&mut agent(dir.path(), ["record", "-e", "raw_syscalls:sys_enter", "-P", &pids]));
    let agent = recording.pid();
    wait_for("an attached event", || (links(agent) > 0).then_some(()));
    let followed = || in_descriptors(agent, |info| info.lines().any(|line| line.starts_with("Pid:\t")));
    assert_eq!(followed(), 2);
    first.call(10);
    drop(first);
    // The recorder has seen the end of the first one when it watches one process.
    wait_for("the end of the first to be seen", || (followed() == 1).then_some(()));
    second.call(10);
    assert!(!recording.has_ended(), "one of the two still runs");
    let last = second.pid();
    drop(second);
    recording.wait().expect(0);
    let report = check(dir.path(), "sys_enter");
    assert_eq!(report.count(|line| is_getppid(line) && tid_of(line) == last), 10);
    let ends = report.count(|line| line.contains("NR 231 ") && tid_of(line) == last);
    assert_eq!(ends, 1, "exit_group is the last thing a process does");
}

#[test]
fn nothing_stays_attached() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("trace.dat");
    let args = ["-e", "sched:sched_process_*", "-o", output.to_str().unwrap()];
    let recording = Marked::start(dir.path(), &args);
    let kinds = [("prog", "prog_id"), ("link", "link_id"), ("map", "map_id")];
    let used = kinds.map(|(_, key)| bpf_ids(recording.agent.pid(), key));
    assert!(used.iter().all(|ids| ids.len() >= 4), "{used:?}");
    recording.finish().expect(0);
    // Other recorders' detachers take turns with this one, so that with many of them it waits for long.
    let start = std::time::Instant::now();
    while is_detaching(&output) {
        assert!(start.elapsed() < std::time::Duration::from_mins(10), "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for ((what, _), ids) in kinds.into_iter().zip(used) {
        for id in ids {
            // The kernel frees them some grace periods after the last reference is gone.
            wait_for(&format!("the kernel to free {what} {id}"), || {
                let shown = run(&mut program(dir.path(), "bpftool", [what, "show", "id", &id.to_string()]));
                (!shown.status.success()).then_some(())
            });
        }
    }
    let left = fs::read_dir("/sys/fs/bpf").map(Iterator::count).unwrap_or_default();
    assert_eq!(left, 0, "nothing is pinned");
    assert_eq!(files(dir.path()), ["trace.dat"]);
}

/// Keeps every detacher before its next event, as one does that holds the kernel up.
fn hold_detachers() -> fs::File {
    let path = "/run/tracer-agent.detach.lock";
    let file = fs::File::options().create(true).truncate(false).write(true).open(path).unwrap();
    wait_for("a turn between two detachments", || {
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok()
    });
    file
}

#[test]
fn a_recording_starts_while_everything_is_still_being_detached() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("first.dat");
    // Events of the generic lane are descriptors of perf's, which the kernel lets go one by one.
    let args = ["record", "--lane", "generic", "-e", "sched", "-e", "irq", "-o", first.to_str().unwrap()];
    let turn = hold_detachers();
    let ended = run(agent(dir.path(), args).arg("true")).expect(0);
    assert!(is_detaching(&first), "it cannot be done: {}", ended.err);
    let ended = run(&mut agent(dir.path(), ["record", "-e", "sched", "true"])).expect(0);
    assert!(is_detaching(&first), "nor can it now: {}", ended.err);
    drop(turn);
    for file in [&first, &dir.path().join("trace.dat")] {
        let names = Report::of(file).names();
        for name in ["sched_switch", "sched_process_exec", "sched_process_exit"] {
            assert!(names.contains(name), "{names:?}");
        }
    }
    wait_for("the detacher's end", || (!is_detaching(&first)).then_some(()));
}

#[test]
fn a_recorder_of_the_same_file_that_is_ending_is_waited_for() {
    // The one that has locked the spool is a zombie; what it has started holds the lock, as the kernel holds
    // that of a process whose events it is closing.
    const HOLDS: &str = r#"use Fcntl ":flock"; open(my $lock, "+<", shift) or die; flock($lock, LOCK_EX) or die;
        my $parent = $$; exit 0 if fork; select undef, undef, undef, 0.01 while getppid == $parent;
        $| = 1; print "held"; <STDIN>"#;
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("trace.dat.spool");
    fs::DirBuilder::new().mode(0o700).create(&spool).unwrap();
    fs::write(spool.join("lock"), "").unwrap();
    let mut ends = std::process::Command::new("perl");
    ends.args(["-e", HOLDS]).arg(spool.join("lock")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut ends = ends.spawn().unwrap();
    let mut held = [0; 4];
    ends.stdout.as_mut().unwrap().read_exact(&mut held).unwrap();
    let mut recording = Running::start(&mut agent(dir.path(), ["record", "-e", "sched", "true"]));
    recording.wait_until_said(&format!("process {}", ends.id()), 1);
    assert!(!recording.has_ended() && !dir.path().join("trace.dat").exists());
    drop(ends.stdin.take());
    recording.wait().expect(0);
    assert_eq!(files(dir.path()), ["trace.dat"]);
    ends.wait().unwrap();
}

/// A recording beside seven others: its rules, and which lines of what a caller does it has to have, once
/// each.
struct Beside {
    args: &'static [&'static str],
    caller: usize,
    lines: fn(&str) -> bool,
}

#[test]
fn eight_recordings_at_once_do_not_disturb_each_other() {
    const ENTER: &str = "raw_syscalls:sys_enter";
    let rules = [
        Beside { args: &["-e", ENTER], caller: 0, lines: is_getppid },
        Beside { args: &["-e", ENTER, "-b", "64", "-M", "1"], caller: 0, lines: is_getppid },
        Beside { args: &["-e", ENTER, "--overwrite"], caller: 0, lines: is_getppid },
        Beside { args: &["-e", ENTER, "-C", "boot", "--compression", "none"], caller: 0, lines: is_getppid },
        Beside {
            args: &["-e", "syscalls:sys_enter_getppid"],
            caller: 0,
            lines: |line| line.contains("sys_enter_getppid"),
        },
        Beside {
            args: &["-e", "raw_syscalls:sys_exit"],
            caller: 0,
            lines: |line| line.contains("NR 110 = "),
        },
        Beside { args: &["-e", ENTER, "-s", "1000"], caller: 1, lines: is_getppid },
        Beside { args: &["-e", "syscalls:*"], caller: 1, lines: |line| line.contains("sys_enter_getppid") },
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut callers = [Caller::start(), Caller::start()];
    let mut running = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        callers[rule.caller].pin(0);
        callers[rule.caller].settle();
        let own = dir.path().join(number.to_string());
        fs::create_dir(&own).unwrap();
        let pid = callers[rule.caller].pid().to_string();
        let recording = Marked::start(&own, &[rule.args, &["-P", &pid]].concat());
        running.push((own, recording));
    }
    for round in 1..=5 {
        for (number, caller) in callers.iter_mut().enumerate() {
            caller.call(round * 100 + number as u64);
            caller.settle();
        }
    }
    let ended: Vec<PathBuf> = running
        .into_iter()
        .map(|(own, recording)| {
            recording.finish().expect(0);
            own
        })
        .collect();
    let mut fired = BTreeSet::new();
    for (number, (own, rule)) in ended.iter().zip(&rules).enumerate() {
        let (caller, file) = (&callers[rule.caller], own.join("trace.dat"));
        let (report, ledger) = (Report::of(&file), Ledger::of(&file));
        assert_eq!(report.tids(), BTreeSet::from([caller.pid()]), "recording {number}");
        let found = report.count(rule.lines);
        assert!(found <= caller.calls(), "recording {number}: {found}");
        assert!(found + ledger.lost() >= caller.calls(), "recording {number}: {found}, {ledger:?}");
        // All began and ended while the first caller slept, so that they saw the same.
        if rule.caller == 0 && rule.args.contains(&ENTER) {
            fired.insert(ledger.cpus("stored") + ledger.lost());
        } else {
            assert_eq!(ledger.lost(), 0, "recording {number}");
        }
        assert_eq!(files(own), ["trace.dat"]);
    }
    assert_eq!(fired.len(), 1, "{fired:?}");
}

/// Signals that ask for nothing, or for what a recording can tell while it goes on.
const NO_ENDS: [i32; 6] =
    [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGPIPE];

#[test]
fn the_command_finds_signals_ignored_as_the_agent_did() {
    let dir = tempfile::tempdir().unwrap();
    let record: Vec<String> = [agent(dir.path(), ["record", "-q", "-e", "sched:sched_switch"])]
        .iter()
        .flat_map(|command| {
            std::iter::once(command.get_program())
                .chain(command.get_args())
                .map(|arg| arg.to_str().unwrap().to_owned())
        })
        .collect();
    // The first 31: the C library keeps the two behind them for itself.
    let show = ["sed", "-nE", "s/^(SigBlk|SigIgn|SigCgt):.*(.{8})$/\\1 \\2/p", "/proc/self/status"];
    let without_32 = |text: String| text.replace("SigIgn 8", "SigIgn 0");
    for ignored in ["PIPE", "XFSZ", "PIPE XFSZ USR1 QUIT", ""] {
        let trap = if ignored.is_empty() { String::new() } else { format!("trap '' {ignored}; ") };
        let script = format!("{trap}exec \"$@\"");
        let under = |before: &[String]| {
            let mut command = program(dir.path(), "sh", ["-c", &script, "sh"]);
            run(command.args(before).args(show)).expect(0).out
        };
        assert_eq!(without_32(under(&record)), without_32(under(&[])), "ignored: {ignored}");
    }
}

/// A caller whose system calls are recorded with these options, a thousand of them already.
fn recorded_caller(dir: &Path, args: &[&str]) -> (Caller, Marked) {
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let base = ["-e", "raw_syscalls:sys_enter", "-P", &pid];
    let recording = Marked::start(dir, &[&base, args].concat());
    caller.call(1000);
    (caller, recording)
}

#[test]
fn a_signal_that_asks_for_no_end_leaves_the_recording_alone() {
    for args in [&[][..], &["--overwrite"]] {
        let dir = tempfile::tempdir().unwrap();
        let (mut caller, recording) = recorded_caller(dir.path(), args);
        for signal in NO_ENDS {
            recording.agent.signal(signal);
            caller.call(100);
        }
        caller.settle();
        let says = ["tracer-agent: recording for ", " events, 0 lost, "];
        // What is stored, and what SIGUSR2 does.
        let own = match args {
            [] => [" stored\n", "this one stores all its events; recording continues"],
            _ => ["all of them in the rings\n", "-snapshot-1.dat: "],
        };
        recording.finish().expect(0).says(&says).says(&own);
        for name in files(dir.path()).iter().filter(|name| name.ends_with("-snapshot-1.dat")) {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        assert_eq!(check(dir.path(), "sys_enter").count(is_getppid), caller.calls(), "{args:?}");
    }
}

#[test]
fn what_would_dump_core_ends_the_recording_as_an_interrupt_does() {
    for signal in [libc::SIGQUIT, libc::SIGXCPU] {
        for args in [&[][..], &["--overwrite"]] {
            let dir = tempfile::tempdir().unwrap();
            let (caller, recording) = recorded_caller(dir.path(), args);
            caller.settle();
            recording.agent.signal(libc::SIGUSR1);
            recording.agent.signal(signal);
            // Of the second kind there is one a second, from the kernel.
            if signal == libc::SIGXCPU {
                recording.agent.signal(signal);
            }
            recording.end_command();
            recording.agent.wait().says(&["trace.dat:", "events"]);
            assert_eq!(check(dir.path(), "sys_enter").count(is_getppid), 1000, "{signal} {args:?}");
        }
    }
}

/// Whether a process has come so far that it holds `signals` back. Before that it has done nothing that could
/// be destroyed.
fn holds_back(process: &mut Running, signals: &[i32]) -> bool {
    let status = format!("/proc/{}/status", process.pid());
    while !process.has_ended() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).map(str::trim);
        let blocked = blocked.and_then(|blocked| u64::from_str_radix(blocked, 16).ok()).unwrap_or_default();
        // SIGPIPE is ignored before there is a `main`.
        if signals.iter().all(|signal| *signal == libc::SIGPIPE || blocked >> (signal - 1) & 1 == 1) {
            return true;
        }
    }
    false
}

/// Sends `signals` to a process again and again until its end, to another one if the first was done before it
/// was looked at.
fn pester(signals: &[i32], mut start: impl FnMut() -> Running) -> Ended {
    wait_for("a process that is pestered", || {
        let mut process = start();
        if !holds_back(&mut process, signals) {
            process.wait().expect(0);
            return None;
        }
        while !process.has_ended() {
            for signal in signals {
                // SAFETY: plain numbers; the process is our child, and only `has_ended`, which ends the loop,
                // waits for it.
                unsafe { libc::kill(process.pid().cast_signed(), *signal) };
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Some(process.wait())
    })
}

/// Makes a recording of 60 000 calls, and finishes or kills it. Returns the calls.
fn record_calls(dir: &Path, kill: bool) -> u64 {
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let recording =
        Marked::start(dir, &["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "32768", "-s", "1000"]);
    caller.call(60_000);
    caller.settle();
    if kill {
        recording.agent.signal(libc::SIGKILL);
        recording.finish();
    } else {
        recording.finish().expect(0);
    }
    caller.calls()
}

#[test]
fn signals_at_any_time_do_not_end_what_writes_files() {
    let dir = tempfile::tempdir().unwrap();
    let start = |args: &[&str]| Running::start(&mut agent(dir.path(), args));
    // Attaching, recording, finishing.
    let record = ["record", "-e", "sched", "-e", "raw_syscalls", "-e", "timer", "sh", "-c", "seq 1000"];
    pester(&NO_ENDS, || start(&record)).expect(0);
    check(dir.path(), "sched_switch");
    let calls = record_calls(dir.path(), false);
    let convert = ["convert", "trace.dat", "-o", "converted.dat", "--compression", "zstd:15"];
    pester(&NO_ENDS, || start(&convert)).expect(0);
    assert_eq!(Report::of(&dir.path().join("converted.dat")).count(is_getppid), calls);
    let recovered = || {
        fs::remove_file(dir.path().join("trace.dat")).unwrap();
        record_calls(dir.path(), true);
        start(&["recover", "trace.dat"])
    };
    pester(&NO_ENDS, recovered).expect(0);
    assert_eq!(files(dir.path()), ["converted.dat", "trace.dat"]);
    assert!(Report::of(&dir.path().join("trace.dat")).count(is_getppid) > 0);
}

#[test]
fn an_end_at_any_time_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    record_calls(dir.path(), false);
    let before = fs::read(dir.path().join("trace.dat")).unwrap();
    let outputs = dir.path().join("out");
    for (args, names) in [
        (&["convert", "trace.dat", "-o", "out/a", "--compression", "zstd:15"][..], &["a"][..]),
        (
            &["split", "trace.dat", "-o", "out/a", "-e", "30000", "-r", "--compression", "zstd:15"],
            &["a.1", "a.2", "a.3"],
        ),
        (&["repair", "trace.dat", "-o", "out/a"], &["a"]),
        (&["export", "--format", "ctf", "--force", "trace.dat", "out/a"], &["a"]),
    ] {
        fs::create_dir(&outputs).unwrap();
        let signals = [libc::SIGUSR1, libc::SIGQUIT];
        let ended = pester(&signals, || Running::start(&mut agent(dir.path(), args)));
        assert!([0, 1].contains(&ended.code()), "{args:?}: {ended:?}");
        // Whole parts of a split stay.
        let left = files(&outputs);
        assert!(left.iter().all(|name| names.contains(&name.as_str())), "{args:?} left {left:?}");
        assert!(
            ended.code() == 0 || args[0] == "split" || left.is_empty(),
            "{args:?}: {left:?}: {}",
            ended.err
        );
        fs::remove_dir_all(&outputs).unwrap();
    }
    assert!(fs::read(dir.path().join("trace.dat")).unwrap() == before);

    fs::remove_file(dir.path().join("trace.dat")).unwrap();
    fs::create_dir(&outputs).unwrap();
    let ended = pester(&[libc::SIGQUIT], || {
        record_calls(dir.path(), true);
        Running::start(&mut agent(dir.path(), ["recover", "trace.dat", "-o", "out/a"]))
    });
    if ended.code() != 0 {
        assert_eq!(files(&outputs), [""; 0], "{}", ended.err);
        run(&mut agent(dir.path(), ["recover", "trace.dat", "-o", "out/a"])).expect(0);
    }
    assert_eq!(files(&outputs), ["a"]);
    assert!(Report::of(&outputs.join("a")).count(is_getppid) > 0);
}
