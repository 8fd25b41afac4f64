//! Recordings that events begin and end: `--start-on`, `--stop-on`.

use std::{fs, path::Path};

use integration_tests::harness::{
    Caller, Ended, Ledger, Report, Running, agent, files, is_getppid, run, tid_of,
};
use serde_json::Value;
use tempfile::TempDir;

/// What stock trace-cmd reads of a recording.
fn read(dir: &Path) -> Report {
    let file = dir.join("trace.dat");
    run(agent(dir, ["check", "-q"]).arg(&file)).expect(0);
    Report::of(&file)
}

/// Runs a recording of processes with a command of the shell.
fn record(dir: &Path, args: &[&str], script: &str) -> Ended {
    let events = ["record", "-e", "sched:sched_process_*"];
    run(agent(dir, events).args(args).args(["sh", "-c", script]))
}

fn execs(report: &Report) -> Vec<String> {
    let of = |line: &str| Some(line.split_once("filename=")?.1.split(' ').next()?.to_owned());
    report.events.iter().filter_map(|line| of(line)).collect()
}

/// Two copies of a program, whose execs are told apart by their names.
fn programs(dir: &Path) -> [String; 2] {
    ["first", "second"].map(|name| {
        let path = dir.join(name);
        fs::copy("/bin/true", &path).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn a_recording_ends_with_an_event_which_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = programs(dir.path());
    let filter = format!("sched_process_exec: filename == \"{second}\"");
    for _ in 0..5 {
        let script = format!("{first}; {second}; sleep 0.2; {first}");
        record(dir.path(), &["--stop-on", &filter], &script).expect(0).says(&[
            "recording until sched_process_exec: filename == ",
            " or the command exits",
            "tracer-agent: sched:sched_process_exec of second-",
            "ended the recording (--stop-on)",
        ]);
        let report = read(dir.path());
        assert_eq!(execs(&report).iter().filter(|name| **name == first).count(), 1, "{:?}", report.events);
        assert_eq!(execs(&report).iter().filter(|name| **name == second).count(), 1, "{:?}", report.events);
        assert_eq!(Ledger::of(&dir.path().join("trace.dat")).lost(), 0);
    }
}

#[test]
fn it_need_not_be_recorded_and_other_ends_count_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let stop = "raw_syscalls:sys_exit: id == 110 && ret > 0";
    let args = ["record", "-e", "raw_syscalls:sys_enter", "-P", &pid, "--stop-on", stop];
    let mut recording = Running::start(&mut agent(dir.path(), args));
    recording.wait_until_said("recording until raw_syscalls:sys_exit: id == 110", 1);
    // The scope of the recording is that of the event: another process may call as it likes.
    Caller::start().call(100);
    assert!(!recording.has_ended());
    caller.call(1);
    recording.wait().expect(0).says(&["raw_syscalls:sys_exit of perl-"]);
    assert_eq!(read(dir.path()).count(|line| is_getppid(line) && tid_of(line) == caller.pid()), 1);

    let args = ["--stop-on", "sched_process_hang", "--duration", "50ms"];
    record(dir.path(), &args, "sleep 1").expect(0).says(&["sched_process_hang did not come: "]);
    record(dir.path(), &["--stop-on", "sched_process_hang"], "exit 3").expect(3);
    let quiet = record(dir.path(), &["-q", "--stop-on", "sched_process_exec"], "true; sleep 1").expect(0);
    assert_eq!(quiet.err, "");
}

#[test]
fn a_recording_begins_with_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = programs(dir.path());
    let filter = format!("sched_process_exec: filename == \"{first}\"");
    // What fires before, and what begins it, is not there; what comes then is.
    let script = format!("{second}; {first}; sleep 0.2; {second}; exit 4");
    let ended = record(dir.path(), &["--start-on", &filter], &script).expect(4);
    let ended = ended.says(&[
        "recording begins with sched_process_exec: filename == ",
        "tracer-agent: sched:sched_process_exec of first-",
        "began the recording",
    ]);
    let report = read(dir.path());
    assert_eq!(execs(&report).iter().filter(|name| **name == second).count(), 1, "{}", ended.err);
    assert_eq!(execs(&report).iter().filter(|name| **name == first).count(), 0, "{:?}", report.events);

    // Both: what would end it counts from its beginning on.
    let stop = format!("sched_process_exec: filename == \"{second}\"");
    let script = format!("{second}; sleep 0.1; {first}; sleep 0.2; {second}; sleep 0.2; {first}");
    record(dir.path(), &["--start-on", &filter, "--stop-on", &stop], &script).expect(0);
    let report = read(dir.path());
    let (firsts, seconds): (Vec<_>, Vec<_>) = execs(&report).into_iter().partition(|name| **name == first);
    assert_eq!((firsts.len(), seconds.iter().filter(|name| **name == second).count()), (0, 1));
}

#[test]
fn a_recording_that_never_begins_has_no_events() {
    let dir = tempfile::tempdir().unwrap();
    let never = ["--start-on", "sched_process_exec: filename == \"/none\""];
    let texts = ["did not come: nothing was recorded (--start-on)"];
    record(dir.path(), &never, "true; exit 5").expect(5).says(&texts);
    assert_eq!(read(dir.path()).events.len(), 0);
    // A signal ends the waiting, and others say what is waited for.
    let mut command = agent(dir.path(), ["record", "-e", "sched_switch", "-o", "other.dat"]);
    let mut recording = Running::start(command.args(never));
    recording.wait_until_said("recording begins with sched_process_exec", 1);
    recording.signal(libc::SIGUSR1);
    recording.wait_until_said("recording begins with sched_process_exec", 2);
    recording.signal(libc::SIGINT);
    recording.wait().expect(0).says(&texts);
    assert_eq!(files(dir.path()), ["other.dat", "trace.dat"]);
}

#[test]
fn flight_recorders_rotations_and_probes_have_beginnings_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = programs(dir.path());
    let edge = |path: &str| format!("sched_process_exec: filename == \"{path}\"");
    let script = format!("sleep 0.1; {first}; sleep 0.1; {second}; sleep 1");
    let edges = ["--start-on", &edge(&first), "--stop-on", &edge(&second)];
    record(dir.path(), &[&["--overwrite", "-b", "64K"], &edges[..]].concat(), &script).expect(0);
    let found = execs(&read(dir.path()));
    assert!(found.contains(&second) && !found.contains(&first), "{found:?}");

    record(dir.path(), &[&["--rotate-time", "30ms", "-o", "many"], &edges[..]].concat(), &script).expect(0);
    let many = dir.path().join("many");
    let last =
        files(&many).into_iter().max_by_key(|name| name.rsplit('-').next().map(str::to_owned)).unwrap();
    assert!(files(&many).len() > 1, "{last}");
    let all: Vec<String> =
        files(&many).iter().flat_map(|name| execs(&Report::of(&many.join(name)))).collect();
    assert_eq!(all.iter().filter(|name| **name == second).count(), 1, "{all:?}");

    // A probe that is recorded, by its name.
    let probe = ["--uprobe", "move=libc.so.6:rename from=+0(%di):string"];
    let args = [&probe[..], &["--stop-on", "move: from == \"/none/b\"", "-o", "probe.dat"]].concat();
    let perl = "perl -e 'rename \"/none/$_\", \"/none/x\" for \"a\", \"b\"; sleep 1'";
    record(dir.path(), &args, perl).expect(0).says(&[":move of perl-", "ended the recording"]);
    let report = Report::of(&dir.path().join("probe.dat"));
    assert_eq!(report.count(|line| line.contains("from=\"/none/a\"")), 1);
    let refused = record(dir.path(), &["--stop-on", "sched:sched_process_*"], "true").expect(2);
    assert!(refused.err.contains("--stop-on: sched:sched_process_* names"), "{}", refused.err);
    for (text, code) in [("sched_none", 112), ("sched_switch: none == 1", 2), ("sched_switch: (", 2)] {
        let refused = record(dir.path(), &["--start-on", text], "true");
        assert_eq!(refused.code(), code, "{}", refused.err);
        assert!(refused.err.contains("--start-on: "), "{}", refused.err);
    }
}

/// Runs a count of executed programs with a command of the shell. Gives how many there were of each of these.
fn count(dir: &Path, args: &[&str], script: &str, programs: &[String; 2]) -> (Ended, [u64; 2]) {
    let map = ["record", "--json", "--count", "sched_process_exec by filename"];
    let ended = run(agent(dir, map).args(args).args(["sh", "-c", script]));
    let counts = programs.each_ref().map(|program| counted(&ended, program.as_str()));
    (ended, counts)
}

/// A directory whose programs' paths are short whatever `TMPDIR` is: the keys of a map are cut after 63
/// bytes.
fn short_directory() -> TempDir {
    tempfile::tempdir_in("/tmp").unwrap()
}

/// What the last line of JSON has for this key.
#[track_caller]
fn counted(ended: &Ended, key: impl Into<Value>) -> u64 {
    let map: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
    assert_eq!(map["last"], true, "{map}");
    let (entries, key) = (map["entries"].as_array().unwrap(), key.into());
    entries.iter().find(|entry| entry["key"][0] == key).map_or(0, |entry| entry["count"].as_u64().unwrap())
}

#[test]
fn counting_in_maps_begins_and_ends_with_events() {
    let dir = short_directory();
    let programs = programs(dir.path());
    let [first, second] = &programs;
    let edge = |path: &str| format!("sched_process_exec: filename == \"{path}\"");
    let (start, stop) = (edge(first), edge(second));
    for _ in 0..2 {
        // What ends it is counted, what begins it is not; both as in a recording beside it.
        for beside in [&[][..], &["-e", "sched_process_exec"]] {
            let script = format!("{first}; {second}; sleep 0.2; {first}");
            let (ended, counts) =
                count(dir.path(), &[beside, &["--stop-on", &stop]].concat(), &script, &programs);
            let what = if beside.is_empty() { "counting" } else { "recording" };
            ended.expect(0).says(&[
                &format!("{what} until sched_process_exec: filename == "),
                " or the command exits; ",
                "tracer-agent: sched:sched_process_exec of second-",
                &format!("ended the {what} (--stop-on)"),
            ]);
            assert_eq!(counts, [1, 1]);

            let script = format!("{second}; {first}; sleep 0.2; {second}; sleep 0.2; {first}");
            let edges = ["--start-on", &start, "--stop-on", &stop];
            let (ended, counts) = count(dir.path(), &[beside, &edges].concat(), &script, &programs);
            ended.expect(0).says(&[
                &format!("{what} begins with sched_process_exec: filename == "),
                "tracer-agent: sched:sched_process_exec of first-",
                &format!("began the {what}"),
                &format!("ended the {what} (--stop-on)"),
            ]);
            assert_eq!(counts, [0, 1]);
            if !beside.is_empty() {
                let recorded = execs(&read(dir.path()));
                let of = |program: &String| recorded.iter().filter(|name| *name == program).count();
                assert_eq!([of(first), of(second)], [0, 1]);
            }
        }
    }
}

#[test]
fn other_things_end_counting_that_waits_for_events() {
    let dir = short_directory();
    let programs = programs(dir.path());
    let never = "sched_process_exec: filename == \"/none\"";
    let script = format!("{}; exit 5", programs[0]);
    let (ended, counts) = count(dir.path(), &["--start-on", never], &script, &programs);
    ended.expect(5).says(&["did not come: nothing was counted (--start-on)"]);
    assert_eq!(counts, [0, 0]);
    let script = format!("{}; sleep 1", programs[0]);
    let (ended, counts) = count(dir.path(), &["--stop-on", never, "--duration", "300ms"], &script, &programs);
    ended.expect(0).says(&["--duration has passed", "something else ended the counting (--stop-on)"]);
    assert_eq!(counts, [1, 0]);
    let (ended, counts) = count(dir.path(), &["-q", "--stop-on", never], &programs[1], &programs);
    assert_eq!((ended.expect(0).err.as_str(), counts), ("", [0, 1]));

    // A signal ends the waiting, and others say what is waited for; processes of -P that end do, too.
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let map = "raw_syscalls:sys_enter: id == 110 by $pid";
    let args = ["record", "--json", "--count", map, "-P", &pid, "--start-on", never];
    let mut recording = Running::start(&mut agent(dir.path(), args));
    recording.wait_until_said("counting begins with sched_process_exec", 1);
    recording.signal(libc::SIGUSR1);
    recording.wait_until_said("counting begins with sched_process_exec", 2);
    caller.call(1);
    recording.signal(libc::SIGINT);
    assert_eq!(counted(&recording.wait().expect(0), caller.pid()), 0);
    let mut recording = Running::start(&mut agent(dir.path(), args));
    recording.wait_until_said("counting begins with sched_process_exec", 1);
    drop(caller);
    recording.wait().expect(0).says(&["nothing was counted (--start-on)"]);
    // The scope is that of the map: another process may call as it likes.
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let stop = "raw_syscalls:sys_exit: id == 110 && ret > 0";
    let args = ["record", "--json", "--count", map, "-P", &pid, "--stop-on", stop];
    let mut recording = Running::start(&mut agent(dir.path(), args));
    recording.wait_until_said("counting until raw_syscalls:sys_exit: id == 110", 1);
    Caller::start().call(100);
    assert!(!recording.has_ended());
    caller.call(1);
    let ended = recording.wait().expect(0).says(&["raw_syscalls:sys_exit of perl-"]);
    assert_eq!(counted(&ended, caller.pid()), 1);

    // A probe that is counted, by its name.
    let map = "uprobe move=libc.so.6:rename from=+0(%di):string by from";
    let args = ["record", "--json", "--count", map, "--stop-on", "move: from == \"/none/b\""];
    let perl = "perl -e 'rename \"/none/$_\", \"/none/x\" for \"a\", \"b\"; sleep 1'";
    let ended = run(agent(dir.path(), args).args(["sh", "-c", perl])).expect(0);
    let ended = ended.says(&[":move of perl-", "ended the counting"]);
    assert_eq!((counted(&ended, "/none/a"), counted(&ended, "/none/b")), (1, 1));
    assert_eq!(files(dir.path()), ["first", "second"]);
}
