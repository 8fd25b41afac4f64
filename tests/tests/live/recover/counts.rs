//! What a recording that ended badly says of the events that it lacks.

use integration_tests::harness::ledger_in_info;

use super::*;

/// Records getppid alone, so that the workload's own count is all that fires.
const ONLY_CALLS: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

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
    let ledger = ledger_in_info(&file);
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
    let ledger = ledger_in_info(&dir.path().join("trace.dat"));
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
    let ledger = ledger_in_info(&dir.path().join("trace.dat"));
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
        let ledger = ledger_in_info(&file);
        let cpu = first_cpu(&ledger);
        let stored = cpu["stored"].as_u64().unwrap();
        let info = run(&mut agent(dir.path(), ["info", "trace.dat"])).expect(0).out;
        if counted {
            let (capped, missing) = (cpu["capped"].as_u64(), cpu["missing"]["at_least"].as_u64());
            assert_eq!(stored + capped.unwrap() + missing.unwrap(), calls, "{cpu}");
            assert!(capped.unwrap() > 10_000, "{cpu}");
        } else {
            ended.says(&[
                "how many events the size limit removed is not known of CPU 0",
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
    let ledger = ledger_in_info(&dir.path().join("trace.dat"));
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
    let ledger = ledger_in_info(&dir.path().join("trace.dat"));
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
