//! Imports of traces of CTF: what was exported comes back as it was, and what others wrote is what
//! babeltrace2 prints of it.

pub(crate) mod compare;
mod damage;
mod others;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use compare::*;
use integration_tests::harness::{Ended, agent, program, reported, run};
use integration_tests::made_up::{Is, MadeUp};
use integration_tests::trace_cmd;
use serde_json::Value as Json;

fn record(file: &Path, args: &[&str]) {
    run(agent("/".as_ref(), ["record", "-q", "-o"]).arg(file).args(args)).expect(0);
}

fn export(file: &Path, format: &str, to: &Path) {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to)).expect(0);
}

fn import(trace: &Path, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["import", "--force", "-o"]).arg(to).arg(trace))
}

/// How many events stock trace-cmd prints of a file.
fn printed(file: &Path) -> usize {
    let lines = trace_cmd::report(file, &[]);
    lines.lines().filter(|line| line.contains(": ") && line.contains("] ")).count()
}

/// Stock trace-cmd prints so many events of a file, and nothing is wrong with it.
#[track_caller]
fn is_whole(file: &Path, events: usize) {
    run(agent("/".as_ref(), ["check"]).arg(file)).expect(0);
    assert_eq!(printed(file), events, "{}", file.display());
}

/// Records what a few programs do: switches, calls with texts and numbers, interrupts.
fn some_recording(file: &Path) {
    let script = "for f in 1 2 3; do ls / >/dev/null; sleep 0.01; done; cat /proc/self/stat /none >/dev/null 2>&1; true";
    let events =
        ["-e", "sched", "-e", "task", "-e", "irq", "-e", "timer", "-e", "syscalls", "-e", "kmem:mm_page_*"];
    record(file, &[&events[..], &["--self", "sh", "-c", script]].concat());
}

#[test]
fn an_export_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    some_recording(&file);
    for format in ["ctf", "ctf2"] {
        comes_back(&file, format, dir.path());
    }
}

/// Exports a recording to this format, in a directory, and compares what is imported of that.
fn comes_back(file: &Path, format: &str, dir: &Path) {
    let [trace, back] = ["trace", "back"].map(|ending| dir.join(format!("{format}.{ending}")));
    export(file, format, &trace);
    import(&trace, &back).expect(0);
    let (expected, found) = (reported(file), reported(&back));
    assert_eq!(expected.len(), found.len());
    assert!(expected.len() > 1000);
    let mut compared = 0;
    for (expected, found) in expected.iter().zip(&found) {
        for key in [
            "timestamp",
            "cpu",
            "pid",
            "buffer",
            "lost",
            "flags",
            "preempt_count",
            "system",
            "event",
            "fields",
        ] {
            assert_eq!(expected[key], found[key], "{key}: {expected} {found}");
        }
        // Not in the trace: names of threads that no event tells, and of values other than those of switches,
        // soft interrupts and calls, which are in the formats of events.
        if found["comm"].is_string() {
            assert_eq!(expected["comm"], found["comm"], "{expected} {found}");
            compared += 1;
        }
        if matches!(expected["event"].as_str(), Some("sched_switch" | "softirq_entry"))
            || expected["system"] == "syscalls"
        {
            let names = |of: &Json| of["names"].as_object().cloned().unwrap_or_default();
            let (mut expected_names, found_names) = (names(expected), names(found));
            expected_names.retain(|name, _| matches!(name.as_str(), "prev_state" | "vec" | "__syscall_nr"));
            assert_eq!(expected_names, found_names, "{expected} {found}");
        }
    }
    assert!(
        compared * 10 > expected.len() * 9,
        "{compared} of {} events have the name of a thread",
        expected.len()
    );
    is_whole(&back, found.len());
    // Times of day, the machine, the clock.
    let info = |file: &Path| run(agent("/".as_ref(), ["info"]).arg(file)).expect(0).out;
    let uname = |text: &str| text.lines().find(|line| line.contains("UNAME")).map(str::to_owned);
    let words = |text: &str| uname(text).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (words(&info(file)), words(&info(&back)));
    assert_eq!((&old[3..6], old.last()), (&new[3..6], new.last()), "{old:?} {new:?}");
    let again = dir.join(format!("{format}.again"));
    export(&back, format, &again);
    let metadata = |trace: &Path| integration_tests::ctf::read(trace).clock_offset;
    assert_eq!(metadata(&trace), metadata(&again));
}

#[test]
fn recordings_of_trace_cmd_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, back) = (dir.path().join("ctf"), dir.path().join("back.dat"));
    let (mut events, mut lost, mut buffers) = (0, 0, std::collections::BTreeSet::new());
    for file in trace_cmd::stored(dir.path()) {
        let _ = fs::remove_dir_all(&trace);
        export(&file, "ctf", &trace);
        import(&trace, &back).expect(0);
        let (expected, found) = (reported(&file), reported(&back));
        assert_eq!(expected.len(), found.len(), "{}", file.display());
        for (expected, found) in expected.iter().zip(&found) {
            for key in ["timestamp", "cpu", "pid", "buffer", "flags", "preempt_count", "system", "event"] {
                assert_eq!(expected[key], found[key], "{}: {key}: {expected} {found}", file.display());
            }
            buffers.insert(expected["buffer"].to_string());
            lost += found["lost"].as_u64().unwrap_or(0);
        }
        events += found.len();
        // Of function graphs, it prints what enters and leaves at once in one line.
        is_whole(&back, printed(&file));
    }
    assert!(events > 1000 && lost > 0 && buffers.len() > 1, "{events} {lost} {buffers:?}");
}

#[test]
fn a_trace_with_lttngs_names_is_what_babeltrace_prints() {
    let dir = tempfile::tempdir().unwrap();
    let (file, trace, back) =
        (dir.path().join("t.dat"), dir.path().join("lttng"), dir.path().join("back.dat"));
    some_recording(&file);
    export(&file, "lttng", &trace);
    import(&trace, &back).expect(0);
    let events = same_as_babeltrace(&trace, &back);
    assert!(events > 1000);
    is_whole(&back, events);
    // The kernel's names are those of the recording; what is not certainly the kernel's stays `lttng`.
    let names = |file: &Path| {
        let reported = reported(file);
        let of_kernel = |event: &&Json| !event["event"].as_str().unwrap().starts_with("lttng_statedump_");
        let of = |event: &Json| {
            let name = ["system", "event"].map(|key| event[key].as_str().unwrap().to_owned());
            (event["timestamp"].as_u64(), event["cpu"].as_u64(), name)
        };
        let mut names: Vec<_> = reported.iter().filter(of_kernel).map(of).collect();
        names.sort_by_key(|(time, cpu, _)| (*time, *cpu));
        names
    };
    let (expected, found) = (names(&file), names(&back));
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!((expected.0, expected.1), (found.0, found.1));
        assert!(expected.2 == found.2 || found.2[0] == "lttng", "{expected:?} {found:?}");
    }
    let certain = reported(&back).iter().filter(|event| event["system"] != "lttng").count();
    assert!(certain * 2 > events, "{certain} of {events} events have their system");
    // What analyses make of it is what they make of the recording.
    let analysed = |file: &Path| {
        let ended = run(agent("/".as_ref(), ["analyze", "syscalls", "--json"]).arg(file)).expect(0);
        let json: Json = serde_json::from_str(&ended.out).unwrap();
        json.pointer("/answers/0/rows").cloned().unwrap_or(json)
    };
    let (expected, found) = (analysed(&file).to_string(), analysed(&back).to_string());
    assert!(expected.len() > 200 && found.contains("openat"), "{expected}\n{found}");
}

#[test]
fn losses_are_where_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (file, trace, back) = (dir.path().join("t.dat"), dir.path().join("out"), dir.path().join("back.dat"));
    let mut made = MadeUp::new(&["sched"]);
    let mut time = 1000;
    for (cpu, lost) in [(0, 0), (1, 5), (0, 7), (0, 0), (1, 1), (3, 1000), (0, 2)] {
        time += 100;
        if lost > 0 {
            made.lost(cpu, lost);
        }
        for thread in 1..4 {
            time += 10;
            made.at((time, cpu), thread, "sched_waking", &[("pid", Is::Number(7))]);
        }
    }
    made.write(&file);
    for format in ["ctf", "lttng"] {
        let _ = fs::remove_dir_all(&trace);
        export(&file, format, &trace);
        let said = import(&trace, &back).expect(0);
        let lost = |file: &Path| -> Vec<_> {
            let of = |event: &Json| {
                (event["timestamp"].as_u64().unwrap(), event["cpu"].clone(), event["lost"].clone())
            };
            reported(file).iter().map(of).collect()
        };
        assert_eq!(lost(&file), lost(&back), "{format}");
        assert!(said.err.contains("lost when it was recorded: 1 015 events"), "{}", said.err);
        assert_eq!(babeltrace(&trace).1, 1015);
    }
}

#[test]
fn a_recording_in_chunks_and_buffers_is_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, back) = (dir.path().join("lttng"), dir.path().join("back.dat"));
    let mut command = agent("/".as_ref(), ["record", "--format", "lttng", "-o"]);
    command.arg(&trace).args(["--rotate-size", "64K"]);
    for (buffer, event) in [("calls", "raw_syscalls"), ("switches", "sched:sched_switch")] {
        command.args(["-B", buffer, "--packet-size", "4096", "-e", event]);
    }
    command.args(["--self", "sh", "-c"]);
    run(command.arg("i=0; while [ $i -lt 300 ]; do i=$((i+1)); ls / >/dev/null; done")).expect(0);
    assert!(fs::read_dir(trace.join("archives")).unwrap().count() > 1);
    import(&trace, &back).expect(0);
    let events = same_as_babeltrace(&trace, &back);
    assert!(events > 1000);
    let mut buffers: BTreeMap<String, usize> = BTreeMap::new();
    for event in reported(&back) {
        *buffers.entry(event["buffer"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let names: Vec<_> = buffers.keys().map(String::as_str).collect();
    assert_eq!(names, ["", "calls", "switches"], "the state at the start of each chunk has no buffer");
    is_whole(&back, events);
    // One chunk alone, and the trace of the kernel in it.
    let chunk = fs::read_dir(trace.join("archives")).unwrap().next().unwrap().unwrap().path();
    for part in [chunk.clone(), chunk.join("kernel")] {
        import(&part, &back).expect(0);
        assert!(same_as_babeltrace(&part, &back) > 0);
    }
}

#[test]
fn what_babeltrace_has_written_anew_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (file, trace, anew) = (dir.path().join("t.dat"), dir.path().join("lttng"), dir.path().join("anew"));
    some_recording(&file);
    export(&file, "lttng", &trace);
    let to = format!("path=\"{}\"", anew.display());
    run(program("/".as_ref(), "babeltrace2", ["convert"]).arg(&trace).args(["-c", "sink.ctf.fs", "-p", &to]))
        .expect(0);
    let (first, second) = (dir.path().join("first.dat"), dir.path().join("second.dat"));
    import(&trace, &first).expect(0);
    import(&anew, &second).expect(0);
    assert!(same_as_babeltrace(&anew, &second) > 1000);
    let sorted = |file: &PathBuf| {
        // Fields are compared above; of empty texts, babeltrace2 2.0 writes that of an event before.
        let of = |event: &Json| {
            ["timestamp", "cpu", "pid", "comm", "system", "event"].map(|key| event[key].to_string())
        };
        let mut events: Vec<_> = reported(file).iter().map(of).collect();
        events.sort();
        events
    };
    assert_eq!(sorted(&first), sorted(&second));
}
