//! Which threads `record` takes by what they are: names, users, control groups, and what is excluded.

use std::{
    collections::BTreeSet, ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path, process::Command,
};

use integration_tests::{
    cgroup::Group,
    harness::{Caller, Ledger, Marked, Report, agent, is_getppid, name_of, run, tid_of},
};

const SYSCALLS: &str = "raw_syscalls:sys_enter";

/// Who of the callers made system calls, by the recording; each makes 100.
fn seen<S: AsRef<OsStr>>(dir: &Path, args: &[S], callers: &mut [&mut Caller]) -> Vec<u64> {
    let mut command = agent(dir, ["record", "-e", SYSCALLS]);
    let recording = Marked::start_as(command.args(args), dir.join("recording"));
    for caller in callers.iter_mut() {
        caller.call(100);
    }
    recording.finish().expect(0);
    let file = dir.join("trace.dat");
    assert_eq!(Ledger::of(&file).lost(), 0);
    let report = Report::of(&file);
    let calls = |caller: &Caller| report.count(|line| tid_of(line) == caller.pid() && is_getppid(line));
    callers.iter().map(|caller| calls(caller)).collect()
}

#[test]
fn names_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (Caller::named("scope-one"), Caller::named("scope-other"));
    let mut both = [&mut one, &mut other];
    assert_eq!(seen(dir.path(), &["--comm", "scope-one"], &mut both), [100, 0]);
    assert_eq!(seen(dir.path(), &["--comm", "scope-*"], &mut both), [100, 100]);
    assert_eq!(seen(dir.path(), &["--comm", "*-oth?r"], &mut both), [0, 100]);
    assert_eq!(seen(dir.path(), &["--comm", "scope-*", "--exclude-comm", "*one"], &mut both), [0, 100]);
    let generic = ["--lane", "generic", "--comm", "scope-one", "--comm", "x"];
    assert_eq!(seen(dir.path(), &generic, &mut both), [100, 0]);
}

#[test]
fn names_that_are_no_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut other) =
        (Caller::named(OsStr::from_bytes(b"scope-\xe9")), Caller::named(OsStr::from_bytes(b"scope-\xea")));
    let mut both = [&mut one, &mut other];
    let (only, except) = (OsStr::new("--comm"), OsStr::new("--exclude-comm"));
    for name in [&b"scope-\xe9"[..], br"scope-\xe9", b"scope-[\xe0-\xe9]"] {
        let name = OsStr::from_bytes(name);
        assert_eq!(seen(dir.path(), &[only, name], &mut both), [100, 0], "{name:?}");
        assert_eq!(seen(dir.path(), &[only, OsStr::new("scope-*"), except, name], &mut both), [0, 100]);
    }
    // The recording of the last one has the other only.
    let count = |name: &[u8]| {
        let mut command = agent(dir.path(), ["report", "--comm"]);
        run(command.arg(OsStr::from_bytes(name)).arg("trace.dat")).expect(0).out.lines().count()
    };
    assert!(count(b"scope-\xea") > count(b"scope-\xe9"));
}

#[test]
fn processes_that_are_excluded() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (Caller::start(), Caller::start());
    let (one_pid, other_pid) = (one.pid().to_string(), other.pid().to_string());
    let both = format!("{one_pid},{other_pid}");
    let mut callers = [&mut one, &mut other];
    assert_eq!(seen(dir.path(), &["-P", &both, "--exclude-pid", &one_pid], &mut callers), [0, 100]);
    assert_eq!(seen(dir.path(), &["-P", &both, "--exclude-pid", &both], &mut callers), [0, 0]);
}

#[test]
fn users() {
    let dir = tempfile::tempdir().unwrap();
    // Both have rights to the directory; the second command becomes another user.
    let script = "getppid() for 1..100; $< = $> = 65534 if $ARGV[0]; getppid() for 1..10;";
    for (args, expected) in [
        (&["--uid", "65534"][..], 10),
        (&["--uid", "nobody"], 10),
        (&["--uid", "0"], 100),
        (&["--exclude-uid", "0"], 10),
        (&["--uid", "0", "--uid", "65534"], 110),
        (&["--uid", "0", "--exclude-uid", "0"], 0),
    ] {
        let recording = run(agent(dir.path(), ["record", "-e", SYSCALLS, "-F"])
            .args(args)
            .args(["perl", "-e", script, "1"]));
        recording.expect(0);
        let report = Report::of(&dir.path().join("trace.dat"));
        assert_eq!(report.count(is_getppid), expected, "{args:?}");
    }
}

#[test]
fn control_groups_with_those_inside_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let group = Group::make("tracer-scope");
    let (inner, beside) = (group.inside("inner"), Group::make("tracer-beside"));
    let mut callers: Vec<Caller> = (0..3).map(|_| Caller::start()).collect();
    for (place, caller) in [&group, &inner, &beside].into_iter().zip(&callers) {
        place.take(caller);
    }
    let name = group.dir().file_name().unwrap().to_str().unwrap();
    {
        let mut callers: Vec<&mut Caller> = callers.iter_mut().collect();
        assert_eq!(
            seen(dir.path(), &["--cgroup", group.dir().to_str().unwrap()], &mut callers),
            [100, 100, 0]
        );
        assert_eq!(seen(dir.path(), &["--cgroup", &format!("/{name}/inner")], &mut callers), [0, 100, 0]);
        assert_eq!(seen(dir.path(), &["--container", name], &mut callers), [100, 100, 0]);
        let args =
            ["--cgroup", group.dir().to_str().unwrap(), "--exclude-cgroup", inner.dir().to_str().unwrap()];
        assert_eq!(seen(dir.path(), &args, &mut callers), [100, 0, 0]);
    }
    // A thread that is moved counts from then on.
    let recording = Marked::start(dir.path(), &["-e", SYSCALLS, "--cgroup", beside.dir().to_str().unwrap()]);
    callers[0].call(100);
    beside.take(&callers[0]);
    callers[0].call(50);
    recording.finish().expect(0);
    let report = Report::of(&dir.path().join("trace.dat"));
    assert_eq!(report.count(|line| tid_of(line) == callers[0].pid() && is_getppid(line)), 50);
}

#[test]
fn a_control_group_that_vanishes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let group = Group::make("tracer-vanish");
    let mut caller = Caller::start();
    group.take(&caller);
    let recording = Marked::start(dir.path(), &["-e", SYSCALLS, "--cgroup", group.dir().to_str().unwrap()]);
    caller.call(100);
    drop(caller);
    let removed = || fs::remove_dir(group.dir()).is_ok().then_some(());
    integration_tests::harness::wait_for("the end of a control group", removed);
    let ended = recording.finish().expect(0);
    assert!(ended.err.contains("was removed during the recording"), "{}", ended.err);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), 100);
}

#[test]
fn switches_and_wakeups_count_for_both_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::named("scope-both");
    for lane in ["fast", "generic"] {
        let args =
            ["--lane", lane, "-e", "sched:sched_switch", "-e", "sched:sched_waking", "--comm", "scope-both"];
        let recording = Marked::start(dir.path(), &args);
        // Twice as many as are asked for: a thread that is woken on its way to sleep does not switch.
        for _ in 0..40 {
            caller.call(1);
            caller.settle();
        }
        recording.finish().expect(0);
        let report = Report::of(&dir.path().join("trace.dat"));
        let named = |event: &str, test: fn(&str) -> bool| {
            report.count(|line| name_of(line) == event && test(line)) >= 20
        };
        assert!(named("sched_switch", |line| line.contains("==> scope-both:")), "{lane}: into");
        assert!(
            named("sched_switch", |line| line.contains("scope-both:") && !line.contains("==> scope-both:")),
            "{lane}: out of"
        );
        assert!(named("sched_waking", |line| line.contains("comm=scope-both")), "{lane}: woken");
        assert!(report.events.iter().all(|line| line.contains("scope-both")), "{lane}: others");
    }
}

#[test]
fn eight_recordings_at_once_with_different_rules_have_each_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers: Vec<Caller> = (0..8).map(|place| Caller::named(format!("scope-{place}"))).collect();
    let mut recordings = Vec::new();
    for (place, caller) in callers.iter().enumerate() {
        let (pid, name) = (caller.pid().to_string(), format!("scope-{place}"));
        let output = dir.path().join(format!("{place}.dat"));
        let lane = ["fast", "generic"][place % 2];
        let rule = if place < 4 { ["-P", &pid] } else { ["--comm", &name] };
        let args = ["--lane", lane, "-e", SYSCALLS, "-o", output.to_str().unwrap(), rule[0], rule[1]];
        let mark = dir.path().join(format!("{place}.mark"));
        recordings.push((output.clone(), Marked::start_in(dir.path(), &args, mark)));
    }
    for (place, caller) in callers.iter_mut().enumerate() {
        caller.call(100 + place as u64);
    }
    for ((place, caller), (file, recording)) in callers.iter().enumerate().zip(recordings) {
        recording.finish().expect(0);
        let report = Report::of(&file);
        assert_eq!(report.tids(), BTreeSet::from([caller.pid()]), "{place}");
        assert_eq!(report.count(is_getppid), 100 + place as u64);
        let ledger = Ledger::of(&file);
        assert_eq!((ledger.lost(), ledger.events("recorded")), (0, report.events.len() as u64));
    }
}

#[test]
fn scopes_that_make_no_sense_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}x", "a?".repeat(40));
    for (args, said) in [
        (["--cgroup", "/no/such/group"], "there is no control group"),
        (["--container", "no-such-container"], "no container, machine or unit no-such-container runs here"),
        (["--uid", "no-such-user"], "/etc/passwd has no user no-such-user"),
        (["--exclude-pid", "4194303"], "there is no such process"),
        (["--comm", &long], "names of threads have 15 bytes at most"),
    ] {
        let ended = run(agent(dir.path(), ["record", "-e", "sched_switch"]).args(args).arg("true"));
        assert!(ended.code() == 2 && ended.err.contains(said), "{args:?}: {ended:?}");
    }
    assert!(Command::new("ls").arg(dir.path()).output().unwrap().stdout.is_empty());
}
