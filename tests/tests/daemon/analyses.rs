//! LTTng's analyses of what the daemon records in LTTng's format, beside our own of what it records into a
//! file at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use integration_tests::{
    analyses::{rows, tables},
    ctf::{self, Event},
    daemon::Daemon,
    harness::{agent, program, run},
};
use serde_json::{Value, json};

use super::files;

/// What LTTng's analyses need (`lttng-analyses-record`).
fn rules() -> Vec<Value> {
    let tracepoints = ["sched_*", "irq_*", "softirq_*", "block_*"];
    let tracepoint = |name: &&str| json!({"name": name, "instrumentation": "tracepoint"});
    let mut rules: Vec<Value> = tracepoints.iter().map(tracepoint).collect();
    rules.push(json!({"name": "*", "instrumentation": {"syscall": "both"}}));
    rules
}

/// Records into a directory, in this format.
fn begin(daemon: &Daemon, name: &str, format: &str, dir: &Path) {
    let new = json!({"name": name, "format": format, "mode": {"local": {"output": dir}}});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = format!("/v1/sessions/{name}/domains/kernel/channels");
    let attributes = json!({"subbuf_size": 4 << 20, "num_subbuf": 8});
    daemon.tell("POST", &channels, Some(&json!({"name": "channel0", "attributes": attributes})));
    for rule in rules() {
        daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&rule));
    }
    daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
}

/// Our own answer about a file, for each thread.
fn ours(file: &Path, topic: &str) -> BTreeMap<u64, Value> {
    let answer: Value =
        serde_json::from_str(&run(agent("/".as_ref(), ["analyze", topic, "--json"]).arg(file)).expect(0).out)
            .unwrap();
    let threads = answer["threads"].as_array().unwrap();
    threads.iter().map(|thread| (thread["tid"].as_u64().unwrap(), thread.clone())).collect()
}

fn number_of(fields: &[(String, ctf::Value)], name: &str) -> u64 {
    match fields.iter().find(|(field, _)| field == name) {
        Some((_, ctf::Value::Number(number, _))) => u64::try_from(*number).unwrap(),
        other => panic!("{name}: {other:?} of {fields:?}"),
    }
}

fn number(event: &Event, name: &str) -> u64 {
    number_of(&event.fields, name)
}

/// What the switches and calls of a trace come to, for each thread.
#[derive(Debug, Default)]
struct Expected {
    /// Nanoseconds on a CPU.
    run: BTreeMap<u64, u64>,
    /// Calls that were seen to begin and to end: by the thread that each event names, and by the last switch
    /// on its CPU, which is all that LTTng's analyses know. Each recording makes the kernel leave out some
    /// events of others.
    calls: [BTreeMap<u64, u64>; 2],
}

impl Expected {
    fn of(events: &[&Event]) -> Self {
        let mut expected = Self::default();
        let mut running: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut entered: [BTreeSet<u64>; 2] = Default::default();
        for event in events {
            let threads = [
                event.context.iter().any(|(name, _)| name == "tid").then(|| number_of(&event.context, "tid")),
                running.get(&event.cpu).map(|(tid, _)| *tid),
            ];
            let is = |part: &str| {
                event.name.starts_with(part) || event.name.starts_with(&format!("compat_{part}"))
            };
            if event.name == "sched_switch" {
                let next = (number(event, "next_tid"), event.time);
                if let Some((tid, since)) = running.insert(event.cpu, next) {
                    *expected.run.entry(tid).or_default() += event.time - since;
                }
            } else if is("syscall_entry_") {
                for (entered, tid) in entered.iter_mut().zip(threads) {
                    entered.extend(tid);
                }
            } else if is("syscall_exit_") {
                for ((entered, tid), calls) in entered.iter_mut().zip(threads).zip(&mut expected.calls) {
                    if let Some(tid) = tid.filter(|tid| entered.remove(tid)) {
                        *calls.entry(tid).or_default() += 1;
                    }
                }
            }
        }
        expected
    }

    /// Whether LTTng's analyses see as much of a thread as there is.
    fn is_plain(&self, tid: u64) -> bool {
        self.calls[0].get(&tid) == self.calls[1].get(&tid)
    }
}

#[test]
fn lttng_analyses_say_what_ours_say() {
    let daemon = Daemon::start();
    let (out, dat) = (daemon.path().join("out"), daemon.path().join("dat"));
    // The trace has what is between: its readers are slow.
    begin(&daemon, "file", "trace_dat", &dat);
    begin(&daemon, "trace", "lttng", &out);
    let script = format!(
        "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; ls / > /dev/null; \
         dd if=/dev/zero of={} bs=1000 count=100 conv=fsync status=none",
        daemon.path().join("written").display()
    );
    let mut shell = program("/".as_ref(), "sh", ["-c", &script]).spawn().unwrap();
    let shell_pid = u64::from(shell.id());
    assert!(shell.wait().unwrap().success());
    for name in ["trace", "file"] {
        let stopped = daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
        assert_eq!(stopped["discarded"], 0, "{stopped}");
    }
    let [file] = files(&dat).try_into().unwrap();
    let trace = ctf::read(&out);
    let mut events: Vec<&Event> = trace.events.iter().collect();
    events.sort_by_key(|event| event.time);
    let expected = Expected::of(&events);
    let mut script: Vec<u64> = vec![shell_pid];
    for fork in events.iter().filter(|event| event.name == "sched_process_fork") {
        if script.contains(&number(fork, "parent_tid")) {
            script.push(number(fork, "child_tid"));
        }
    }
    let plain: Vec<u64> = script.iter().copied().filter(|tid| expected.is_plain(*tid)).collect();
    assert!(script.len() == 3 && !plain.is_empty(), "{script:?} {plain:?}");

    // Time on the CPU.
    let span = (events[events.len() - 1].time - events[0].time) as f64;
    let is_close = |a: f64, b: f64| (a - b).abs() <= a * 0.01 + span * 1e-4;
    let sched = ours(&file, "sched");
    let usage = &tables(&out, "lttng-cputop-mi", &["--limit", "1000000"])[0];
    let told: BTreeMap<u64, f64> = rows(usage)
        .iter()
        .map(|row| (row[0]["tid"].as_i64().unwrap().unsigned_abs(), row[3]["value"].as_f64().unwrap() * span))
        .collect();
    for tid in &plain {
        let ran = sched[tid]["run_ns"].as_f64().unwrap();
        assert!(
            is_close(ran, told[tid]),
            "thread {tid}: {}, not {ran}; {:?}",
            told[tid],
            expected.run.get(tid)
        );
    }

    // System calls.
    let calls = ours(&file, "syscalls");
    let mut compared = 0;
    let statistics = tables(&out, "lttng-syscallstats-mi", &[]);
    for table in &statistics {
        let title = table["class"]["title"].as_str().unwrap_or_default();
        let Some((_, tid)) = title.split_once("TID: ") else { continue };
        let tid: u64 = tid.split(')').next().unwrap().parse().unwrap();
        if script.contains(&tid) {
            let count: u64 = rows(table).iter().map(|row| row[1]["value"].as_u64().unwrap()).sum();
            assert_eq!(expected.calls[1].get(&tid), Some(&count), "system calls of thread {tid}");
            assert_eq!(calls[&tid]["count"].as_u64(), expected.calls[0].get(&tid).copied(), "those of {tid}");
            compared += 1;
        }
    }
    assert_eq!(compared, 3, "{script:?} {statistics:?}");

    // What `dd` wrote.
    let io = ours(&file, "io");
    let usage = tables(&out, "lttng-iousagetop-mi", &["--limit", "1000000"]);
    let title = "Per-process top I/O operations [written]";
    let written = usage.iter().find(|table| table["class"]["title"] == title).unwrap();
    let dd = script[2];
    let row = rows(written).iter().find(|row| row[0]["tid"].as_u64() == Some(dd));
    if plain.contains(&dd) {
        assert_eq!(row.unwrap()[1]["value"], 100_000, "{row:?}");
    }
    assert_eq!(io[&dd]["writes"]["bytes"], 100_000, "{}", io[&dd]);

    // Interrupts: pairs on one CPU.
    let mut entered: BTreeMap<u32, u64> = BTreeMap::new();
    let mut pairs: BTreeMap<u64, u64> = BTreeMap::new();
    for event in &events {
        match event.name.as_str() {
            "irq_handler_entry" => drop(entered.insert(event.cpu, number(event, "irq"))),
            "irq_handler_exit" if entered.remove(&event.cpu) == Some(number(event, "irq")) => {
                *pairs.entry(number(event, "irq")).or_default() += 1;
            }
            _ => {}
        }
    }
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    for row in tables(&out, "lttng-irqstats-mi", &[]).iter().flat_map(rows) {
        let count = row[1]["value"].as_u64().unwrap_or(0);
        if row[0]["hard"] == true && count > 0 {
            counted.insert(row[0]["nr"].as_u64().unwrap(), count);
        }
    }
    assert_eq!(counted, pairs);
    daemon.tell("DELETE", "/v1/sessions/trace", None);
    daemon.tell("DELETE", "/v1/sessions/file", None);
    assert_eq!(daemon.stop().expect(0).err, "");
}
