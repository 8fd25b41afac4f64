//! LTTng's analyses of what the daemon records in LTTng's format, beside our own of what it records into a
//! file at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
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

/// A CPU goes from one thread to another.
#[derive(Clone, Copy, Debug)]
struct Switch {
    time: u64,
    cpu: u32,
    prev: u64,
    next: u64,
}

impl Switch {
    fn of_event(event: &Event) -> Option<Self> {
        let of = || Self {
            time: event.time,
            cpu: event.cpu,
            prev: number(event, "prev_tid"),
            next: number(event, "next_tid"),
        };
        (event.name == "sched_switch").then(of)
    }

    fn of_record(record: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap();
        Self {
            time: number(&record["timestamp"]),
            cpu: number(&record["cpu"]) as u32,
            prev: number(&record["fields"]["prev_pid"]),
            next: number(&record["fields"]["next_pid"]),
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The switches of a file.
fn switches(file: &Path) -> Vec<Switch> {
    let lines = run(agent("/".as_ref(), ["report", "--json", "-F", "sched_switch"]).arg(file)).expect(0).out;
    lines.lines().map(|line| Switch::of_record(&serde_json::from_str(line).unwrap())).collect()
}

/// Which CPUs each thread had and for how long, between two switches there. `None` if one is missing within
/// this time.
fn stints(switches: &[Switch], within: Range<u64>) -> Option<BTreeMap<u64, Vec<(u32, u64)>>> {
    let mut stints: BTreeMap<u64, Vec<(u32, u64)>> = BTreeMap::new();
    let mut running: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for &Switch { time, cpu, prev, next } in switches {
        match running.insert(cpu, (next, time)) {
            Some((tid, since)) if tid == prev => stints.entry(tid).or_default().push((cpu, time - since)),
            Some(_) if within.contains(&time) => return None,
            _ => {}
        }
    }
    Some(stints)
}

/// Nanoseconds on a CPU as `lttng-cputop` adds them up: it knows nothing of CPUs, so that a thread whose last
/// switch is missing in the trace runs until the end or until it is next seen to stop, and one that was not
/// seen before has run since the beginning.
fn cputop(events: &[&Event]) -> BTreeMap<u64, u64> {
    let (first, last) = (events[0].time, events[events.len() - 1].time);
    let mut threads: BTreeMap<u64, (u64, Option<u64>)> = BTreeMap::new();
    for event in events {
        if let Some(Switch { time, prev, next, .. }) = Switch::of_event(event) {
            let (sum, since) = threads.entry(prev).or_insert((0, Some(first)));
            *sum += since.take().map_or(0, |since| time - since);
            if next != 0 {
                threads.entry(next).or_default().1 = Some(time);
            }
        } else if event.name == "sched_migrate_task" {
            threads.entry(number(event, "tid")).or_default();
        }
    }
    threads
        .into_iter()
        .map(|(tid, (sum, since))| (tid, sum + since.map_or(0, |since| last - since)))
        .collect()
}

/// What the calls of a trace come to, for each thread.
#[derive(Debug, Default)]
struct Expected {
    /// Calls that were seen to begin and to end: by the thread that each event names, and by the last switch
    /// on its CPU, which is all that LTTng's analyses know. Each recording makes the kernel leave out some
    /// events of others.
    calls: [BTreeMap<u64, u64>; 2],
}

impl Expected {
    fn of(events: &[&Event]) -> Self {
        let mut expected = Self::default();
        let mut running: BTreeMap<u32, u64> = BTreeMap::new();
        let mut entered: [BTreeSet<u64>; 2] = Default::default();
        for event in events {
            let threads = [
                event.context.iter().any(|(name, _)| name == "tid").then(|| number_of(&event.context, "tid")),
                running.get(&event.cpu).copied(),
            ];
            let is = |part: &str| {
                event.name.starts_with(part) || event.name.starts_with(&format!("compat_{part}"))
            };
            if let Some(switch) = Switch::of_event(event) {
                running.insert(switch.cpu, switch.next);
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
    let before = monotonic_ns();
    let mut shell = program("/".as_ref(), "sh", ["-c", &script]).spawn().unwrap();
    let shell_pid = u64::from(shell.id());
    assert!(shell.wait().unwrap().success());
    let within = before..monotonic_ns();
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
    assert_eq!(script.len(), 3, "{script:?}");

    // Time on the CPU: of all threads what the switches of the trace come to, and ours what those of the file
    // do.
    let span = (events[events.len() - 1].time - events[0].time) as f64;
    let usage = &tables(&out, "lttng-cputop-mi", &["--limit", "1000000"])[0];
    let told: BTreeMap<u64, u64> = rows(usage)
        .iter()
        .map(|row| {
            let ran = row[3]["value"].as_f64().unwrap() * span;
            (row[0]["tid"].as_i64().unwrap().unsigned_abs(), ran.round() as u64)
        })
        .collect();
    assert_eq!(told, cputop(&events));
    let of_trace = stints(
        &events.iter().filter_map(|event| Switch::of_event(event)).collect::<Vec<_>>(),
        within.clone(),
    );
    let of_file = stints(&switches(&file), within);
    let sum = |stints: &[(u32, u64)]| stints.iter().map(|(_, ran)| ran).sum::<u64>();
    let cpus = |stints: &[(u32, u64)]| stints.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>();
    let sched = ours(&file, "sched");
    for tid in &script {
        // Each recording makes the kernel leave out some events of the other. Where it has left out no
        // switch, both have the same ones, and what they come to is the same whoever adds it up.
        if let Some(of_file) = &of_file {
            assert_eq!(sched[tid]["run_ns"], sum(&of_file[tid]), "thread {tid}: {:?}", of_file[tid]);
        }
        if let Some(of_trace) = &of_trace {
            assert_eq!(told[tid], sum(&of_trace[tid]), "thread {tid}: {:?}", of_trace[tid]);
        }
        if let (Some(of_file), Some(of_trace)) = (&of_file, &of_trace) {
            assert_eq!(cpus(&of_file[tid]), cpus(&of_trace[tid]), "thread {tid}");
        }
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
    if expected.is_plain(dd) {
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
