//! Exports in the JSON of Chrome's trace viewer, against `report --json` and as Perfetto's trace_processor
//! imports them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::harness::{Ended, Ledger, agent, reported, run};
use integration_tests::trace_processor::ask;
use serde_json::Value;

fn export(format: &str, file: &Path, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to))
}

/// A trace: its events, each in a line.
fn trace(path: &Path) -> (Value, Vec<Value>) {
    let text = std::fs::read_to_string(path).unwrap();
    let whole: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(whole["displayTimeUnit"], "ns");
    let events = whole["traceEvents"].as_array().unwrap().clone();
    (whole["otherData"].clone(), events)
}

/// Nanoseconds, of a file as text: a double may not hold them.
fn nanos(text: &str) -> u64 {
    let (micros, nanos) = text.split_once('.').unwrap();
    assert_eq!(nanos.len(), 3, "{text}");
    micros.parse::<u64>().unwrap() * 1000 + nanos.parse::<u64>().unwrap()
}

/// The times of the instants of records, in the order of the file.
pub(crate) fn times(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("{\"ph\":\"i\"") && !is_loss(line));
    let time = |line: &str| line.split_once("\"ts\":").unwrap().1.split_once(',').unwrap().0.to_owned();
    lines.map(|line| nanos(&time(line))).collect()
}

fn is_loss(line: &str) -> bool {
    line.contains("\"cat\":\"loss\"")
}

/// A value as JavaScript can have it.
fn exact(value: &Value) -> Value {
    const MOST: u64 = (1 << 53) - 1;
    match value {
        Value::Number(number) => {
            let magnitude =
                number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs)).expect("a whole number");
            if magnitude > MOST { Value::String(number.to_string()) } else { value.clone() }
        }
        Value::Array(values) => values.iter().map(exact).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), exact(value))).collect(),
        value => value.clone(),
    }
}

/// Exports a file, and compares every record with all that is told of it.
pub(crate) fn check(file: &Path, dir: &Path) -> (PathBuf, Vec<Value>, Vec<Value>) {
    let out = dir.join(format!("{}.json", file.file_stem().unwrap().to_str().unwrap()));
    export("chrome", file, &out).expect(0);
    let (head, events) = trace(&out);
    let origin: u64 = head["time_origin_ns"].as_str().unwrap().parse().unwrap();
    let records = reported(file);
    let instants: Vec<&Value> =
        events.iter().filter(|event| event["ph"] == "i" && event["cat"] != "loss").collect();
    let times = times(&out);
    assert_eq!((instants.len(), times.len()), (records.len(), records.len()), "{}", file.display());
    for ((instant, time), record) in instants.iter().zip(times).zip(&records) {
        let args = &instant["args"];
        let same = time + origin == record["timestamp"].as_u64().unwrap()
            && instant["cat"] == record["system"]
            && instant["name"] == record["event"]
            && ["cpu", "pid", "flags", "preempt_count"].iter().all(|key| args[key] == record[key])
            && args["buffer"].as_str().unwrap_or_default() == record["buffer"]
            && ["fields", "names", "symbols"].iter().all(|key| args[key] == exact(&record[key]));
        assert!(same, "{instant}\n{record}");
    }
    (out, events, records)
}

/// What trace_processor did not understand of a trace.
pub(crate) const WRONG: &str = "select name, value from stats where value > 0 and severity in ('error', 'data_loss') \
    and name != 'flow_no_enclosing_slice'";

#[test]
fn slices_are_those_that_perfetto_makes_of_the_same_recording() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "for n in 1 2 3 4 5; do ls /proc >/dev/null; sleep 0.02; done";
    let args = ["record", "-e", "sched", "-e", "irq", "-e", "task", "-e", "syscalls", "-o"];
    run(agent(dir.path(), args).arg(&file).args(["sh", "-c", script])).expect(0);
    let (out, events, records) = check(&file, dir.path());
    assert!(records.len() > 1000);
    let other = dir.path().join("perfetto");
    export("perfetto", &file, &other).expect(0);

    // Who runs on each CPU. What goes on when a recording begins or ends is told in different ways.
    let mine = ask(
        &out,
        &[
            WRONG,
            "select t.name, s.ts, s.dur, extract_arg(s.arg_set_id, 'args.tid') from slice s \
             join thread_track k on s.track_id = k.id join thread t using (utid) where s.category = 'cpu'",
            "select s.name, s.ts, s.dur, t.tid from slice s join thread_track k on s.track_id = k.id \
             join thread t using (utid) where s.category = 'syscall' and s.dur > 0",
            "select distinct t.tid, p.pid from slice s join thread_track k on s.track_id = k.id \
             join thread t using (utid) join process p using (upid) where s.category = 'syscall'",
            "select count(*) from flow",
        ],
    );
    let theirs = ask(
        &other,
        &[
            "select 'CPU ' || cpu, ts, dur, tid from sched join thread using (utid) where tid != 0",
            "select s.name, s.ts, s.dur, t.tid from slice s join thread_track k on s.track_id = k.id \
             join thread t using (utid) where s.name like 'sys_%' and s.dur > 0",
            "select distinct t.tid, p.pid from thread t join process p using (upid)",
        ],
    );
    assert_eq!(mine[0], Vec::<Vec<Value>>::new());
    let (first, last) = (records[0]["timestamp"].as_u64(), records.last().unwrap()["timestamp"].as_u64());
    let inside = |rows: &[Vec<Value>]| -> BTreeSet<(String, u64, u64, u64)> {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        rows.iter()
            .map(|row| {
                (row[0].as_str().unwrap().to_owned(), number(&row[1]), number(&row[2]), number(&row[3]))
            })
            .filter(|(_, start, time, _)| *time > 0 && Some(*start) > first && Some(start + time) < last)
            .collect()
    };
    // From one switch of a CPU to the next, which is from the thread that the first one was to. A kernel may
    // hide threads from tracers, whose switches are missing; what ran then is told in different ways, too.
    let mut last_switch = BTreeMap::<u64, (u64, u64)>::new();
    let mut turns = BTreeSet::<(String, u64, u64)>::new();
    for record in records.iter().filter(|record| record["event"] == "sched_switch") {
        let number = |value: &Value| value.as_u64().unwrap();
        let (cpu, time) = (number(&record["cpu"]), number(&record["timestamp"]));
        let (from, to) = (number(&record["fields"]["prev_pid"]), number(&record["fields"]["next_pid"]));
        if let Some((since, thread)) = last_switch.insert(cpu, (time, to))
            && thread == from
        {
            turns.insert((format!("CPU {cpu}"), since, time));
        }
    }
    let between = |rows: &[Vec<Value>]| -> BTreeSet<(String, u64, u64, u64)> {
        let all = inside(rows).into_iter();
        all.filter(|(cpu, start, time, _)| turns.contains(&(cpu.clone(), *start, start + time))).collect()
    };
    let (ran, expected) = (between(&mine[1]), between(&theirs[0]));
    assert!(
        ran.len() > 50 && ran == expected,
        "{:?}",
        ran.symmetric_difference(&expected).collect::<Vec<_>>()
    );

    // System calls, by Perfetto's names without the `sys_`.
    let named: Vec<Vec<Value>> = theirs[1]
        .iter()
        .map(|row| {
            let name = row[0].as_str().unwrap().trim_start_matches("sys_").into();
            [vec![name], row[1..].to_vec()].concat()
        })
        .collect();
    let starts: BTreeSet<u64> = records
        .iter()
        .filter(|record| record["event"].as_str().unwrap().starts_with("sys_enter_"))
        .map(|record| record["timestamp"].as_u64().unwrap())
        .collect();
    let begun = |rows: &[Vec<Value>]| -> BTreeSet<(String, u64, u64, u64)> {
        inside(rows).into_iter().filter(|(_, start, ..)| starts.contains(start)).collect()
    };
    let (calls, expected) = (begun(&mine[2]), begun(&named));
    assert!(calls.len() > 500, "{}", calls.len());
    let missing: Vec<_> = expected.difference(&calls).collect();
    assert!(missing.is_empty(), "{missing:?}");

    // Threads are in the processes that Perfetto has them in.
    let processes: BTreeMap<u64, u64> =
        theirs[2].iter().map(|row| (row[0].as_u64().unwrap(), row[1].as_u64().unwrap())).collect();
    for row in &mine[3] {
        let (thread, process) = (row[0].as_u64().unwrap(), row[1].as_u64());
        assert!(processes.get(&thread).is_none_or(|known| Some(*known) == process), "{row:?} {processes:?}");
    }

    // Every wake-up that a thread followed is a flow, and most of them are between slices.
    let flows = events.iter().filter(|event| event["ph"] == "s").count() as u64;
    let bound = mine[4][0][0].as_u64().unwrap();
    assert!(flows > 50 && bound * 2 > flows, "{bound} of {flows}");
}

#[test]
fn losses_are_told_with_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let args = ["record", "-e", "raw_syscalls", "-b", "16", "-o"];
    run(agent(dir.path(), args).arg(&file).args(["perl", "-e", "getppid() for 1..200000"])).expect(0);
    let (_, events, _) = check(&file, dir.path());
    let losses = events.iter().filter(|event| event["cat"] == "loss");
    let sum: u64 = losses.map(|event| event["args"]["count"].as_u64().unwrap_or(0)).sum();
    let lost = Ledger::of(&file).lost();
    assert!(lost > 0 && sum == lost, "{sum} {lost}");
}
