//! How recordings end: a finished file, the right exit code, and nothing left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use integration_tests::harness::{
    Caller, Ledger, Marked, Report, Running, agent, files, is_getppid, program, run, wait_for,
};

/// A recording without a command, when it records.
fn recording_until_stopped(dir: &Path, args: &[&str]) -> Running {
    let mut running = Running::start(agent(dir, ["record", "-e", "sched:sched_switch"]).args(args));
    let pid = running.pid();
    wait_for("an attached event", || {
        assert!(!running.has_ended(), "the recording ended by itself");
        (links(pid) > 0).then_some(())
    });
    // The gates open right behind the last event; something is recorded from then on whenever a task is switched.
    wait_for("recorded data or a stop", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map(Iterator::count).unwrap_or_default();
        (threads > 1).then_some(())
    });
    running
}

/// Descriptors of process `pid` that are links of events: to perf events, or to the raw tracepoints of the events that these
/// tests record. The agent watches threads through others.
fn links(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    entries
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .filter(|info| {
            ["link_type:\tperf", "tp_name:\tsched_switch", "tp_name:\tsys_enter"]
                .iter()
                .any(|line| info.contains(line))
        })
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
        let recording = recording_until_stopped(dir.path(), &[]);
        recording.signal(signal);
        recording.wait().expect(0).says(&["trace.dat:", "events"]);
        assert_eq!(files(dir.path()), ["trace.dat"]);
        Report::of(&dir.path().join("trace.dat"));
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
    run(&mut agent(dir.path(), ["record", "-e", "sched:sched_switch", "--duration", "300ms"])).expect(0);
    check(dir.path(), "sched_switch");
    // A command goes on without the recorder.
    let other = tempfile::tempdir().unwrap();
    let script = "sleep 1; touch went-on";
    let args = ["record", "-e", "sched:sched_switch", "--duration", "200ms", "sh", "-c", script];
    // Not through a pipe: the command holds it open.
    let status = agent(other.path(), args).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    check(other.path(), "sched_switch");
    wait_for("the command", || other.path().join("went-on").exists().then_some(()));
}

#[test]
fn the_end_of_the_recorded_process_ends_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Caller::start();
    let mut second = Caller::start();
    let pids = format!("{},{}", first.pid(), second.pid());
    let mut recording =
        Running::start(&mut agent(dir.path(), ["record", "-e", "raw_syscalls:sys_enter", "-P", &pids]));
    wait_for("an attached event", || (links(recording.pid()) > 0).then_some(()));
    first.call(10);
    drop(first);
    second.call(10);
    assert!(!recording.has_ended(), "one of the two still runs");
    drop(second);
    recording.wait().expect(0);
    let report = check(dir.path(), "sys_enter");
    assert!(
        report.count(|line| line.contains("NR 231 ")) >= 1,
        "exit_group is the last thing a process does"
    );
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
    // Other recorders' detachers take turns with this one, so that with many of them it waits.
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

/// The detacher of the first recording goes on behind the test for some minutes; that is what it is for.
#[test]
fn a_recording_starts_while_everything_is_still_being_detached() {
    let dir = tempfile::tempdir().unwrap();
    let all = dir.path().join("all.dat");
    let record_all = ["record", "-e", "all", "-o", all.to_str().unwrap(), "sleep", "0.2"];
    let ended = run(&mut agent(dir.path(), record_all)).expect(0);
    assert!(is_detaching(&all), "the detacher of so many events cannot be done: {}", ended.err);
    let ended = run(&mut agent(dir.path(), ["record", "-e", "sched", "sleep", "0.2"])).expect(0);
    assert!(is_detaching(&all), "and it still was not when the second recording ended: {}", ended.err);
    let names = Report::of(&dir.path().join("trace.dat")).names();
    for name in ["sched_switch", "sched_process_exec", "sched_process_exit"] {
        assert!(names.contains(name), "{names:?}");
    }
    let dump = run(&mut program(dir.path(), "trace-cmd", ["dump", "-v", "-i", "all.dat"])).expect(0);
    assert!(dump.out.contains("valid trace-cmd file"), "{dump:?}");
}

/// A recording beside seven others: its rules, and which lines of what a caller does it has to have, once each.
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
        if ledger.lost() == 0 {
            assert_eq!(found, caller.calls(), "recording {number}");
        }
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
