//! Exports to Perfetto, read by the descriptors of Perfetto's own package, against `report --json`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use integration_tests::harness::{Ended, Ledger, agent, program, reported, run};
use integration_tests::perfetto::{self, Trace};
use serde_json::{Map, Value, json};

pub(crate) fn export(file: &Path, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", "perfetto"]).arg(file).arg(to))
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => i128::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        value => value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)),
    }
}

/// Whether a value of the trace is that of a record. Numbers may have another sign, and messages of Perfetto
/// 32 bits where the kernel has no more than that in use.
fn same(found: &Value, told: &Value) -> bool {
    match (found, told) {
        (Value::Array(found), Value::Array(told)) => {
            found.len() == told.len() && found.iter().zip(told).all(|(found, told)| same(found, told))
        }
        // A set of bits, as ranges.
        (Value::String(ranges), Value::Array(bits)) => {
            let of = |range: &str| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse::<u64>().unwrap()..=last.parse::<u64>().unwrap()
            };
            let set = ranges.split(',').filter(|range| !range.is_empty()).flat_map(of);
            set.eq(bits.iter().map(|bit| bit.as_u64().unwrap()))
        }
        _ => match (number(found), number(told)) {
            (Some(found), Some(told)) => {
                let apart = found - told;
                apart == 0
                    || apart.trailing_zeros() >= 64
                    || (apart.trailing_zeros() >= 32 && told >> 32 <= 0)
            }
            _ => found == told,
        },
    }
}

/// The fields of a record as a generic event has them.
fn flat(fields: &Map<String, Value>, named: &BTreeSet<&str>) -> Map<String, Value> {
    let mut found = Map::new();
    for (name, value) in fields {
        match value {
            Value::Array(values) if !named.contains(&**name) => {
                let elements = values.iter().enumerate();
                found.extend(elements.map(|(index, value)| (format!("{name}[{index}]"), value.clone())));
            }
            value => drop(found.insert(name.clone(), value.clone())),
        }
    }
    found
}

/// Fails unless the event is that of the record.
fn compare(event: &Value, record: &Value, exported: &Ended) {
    assert_eq!(
        (&event["timestamp"], &event["pid"]),
        (&record["timestamp"], &record["pid"]),
        "{event}\n{record}"
    );
    let flags = record["flags"].as_u64().unwrap();
    assert_eq!(event["flags"].as_u64(), Some(flags), "{event}\n{record}");
    let (found, fields) = (event["fields"].as_object().unwrap(), record["fields"].as_object().unwrap());
    let (system, name) = (record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
    if event["kind"] == "generic" {
        assert_eq!(event["name"], name);
        let bits: BTreeSet<&str> = found.keys().map(String::as_str).collect();
        let fields = flat(fields, &bits);
        assert_eq!(found.len(), fields.len(), "{event}\n{record}");
        assert!(found.iter().all(|(name, value)| same(value, &fields[name])), "{event}\n{record}");
        return;
    }
    if system == "syscalls" {
        let arguments: Vec<&Value> = fields
            .iter()
            .filter(|(name, _)| *name != "__syscall_nr" && !name.ends_with("_val"))
            .map(|(_, value)| value)
            .collect();
        assert!(same(&found["id"], &fields["__syscall_nr"]), "{event}\n{record}");
        if name.starts_with("sys_exit") {
            assert_eq!(event["name"], "sys_exit");
            assert!(same(&found["ret"], &fields["ret"]), "{event}\n{record}");
        } else {
            assert_eq!(event["name"], "sys_enter");
            let none = Vec::new();
            let args = found.get("args").map_or(&none, |args| args.as_array().unwrap());
            let mut sorted: [Vec<u64>; 2] = [
                args.iter().map(|value| number(value).unwrap() as u64).collect(),
                arguments.iter().map(|value| number(value).unwrap() as u64).collect(),
            ];
            // Objects of JSON have no order here.
            for values in &mut sorted {
                values.sort_unstable();
            }
            assert_eq!(sorted[0], sorted[1], "{event}\n{record}");
        }
        return;
    }
    if name == "bprint" {
        assert_eq!(event["name"], "print");
        return;
    }
    assert_eq!(event["name"], name);
    for (field, value) in found {
        if name.starts_with("funcgraph_") && field == "func" {
            let symbol =
                record["symbols"]["func"].as_str().unwrap_or_else(|| fields["func"].as_str().unwrap());
            assert_eq!(value.as_str(), symbol.split('+').next(), "{event}\n{record}");
        } else {
            assert!(same(value, &fields[field]), "{field}\n{event}\n{record}");
        }
    }
    for (field, _) in fields.iter().filter(|(field, _)| !found.contains_key(*field)) {
        let said = format!("values of {system}:{name}.{field}: Perfetto's own event does not have the field");
        assert!(
            exported.err.contains(&said) || exported.out.contains(&said),
            "{said}\n{exported:?}\n{event}"
        );
    }
}

/// Exports a file and compares every event and field.
pub(crate) fn check(file: &Path, dir: &Path) -> (Trace, Vec<Value>) {
    let out: PathBuf = dir.join(format!("{}.perfetto-trace", file.file_stem().unwrap().to_str().unwrap()));
    let exported = export(file, &out).expect(0);
    let (mut trace, records) = (perfetto::read(&out), reported(file));
    for events in trace.events.values_mut() {
        // Beginnings may wait for their ends, and slices end with their threads.
        events.sort_by_key(|event| event["timestamp"].as_u64());
        events.retain(|event| event["fields"] != json!({ "buf": "E|0" }));
    }
    let both = records.iter().any(|record| record["system"] == "raw_syscalls");
    let mut rest: std::collections::BTreeMap<u64, _> =
        trace.events.iter().map(|(cpu, events)| (*cpu, events.iter())).collect();
    for record in &records {
        let events = rest.get_mut(&record["cpu"].as_u64().unwrap()).expect("a CPU with events");
        let event = events.next().unwrap_or_else(|| panic!("too few events: {record}"));
        compare(event, record, &exported);
        let mut fields = record["fields"].as_object().unwrap().keys();
        if record["system"] == "syscalls"
            && event["kind"] == "own"
            && fields.any(|field| field.ends_with("_val"))
        {
            let generic = events.next().unwrap_or_else(|| panic!("no texts: {record}"));
            assert_eq!((generic["kind"].as_str(), both), (Some("generic"), false), "{generic}");
            compare(generic, record, &exported);
        }
    }
    for (cpu, mut events) in rest {
        assert_eq!(events.next(), None, "CPU {cpu}");
    }
    (trace, records)
}

#[test]
fn recordings_of_this_kernel_come_back_with_what_the_viewer_needs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "printf 'a\\377<b>' >/proc/self/comm; ls /proc >/dev/null; sleep 0.1";
    let args =
        ["record", "-e", "sched", "-e", "irq", "-e", "task", "-e", "signal", "-e", "syscalls:*openat", "-o"];
    let mut command = agent(dir.path(), args);
    let recorded = run(command.arg(&file).args(["sh", "-c", script])).expect(0);
    let (trace, records) = check(&file, dir.path());
    assert!(records.len() > 100, "{recorded:?}");
    let kinds: BTreeSet<(&str, &str)> = trace
        .events
        .values()
        .flatten()
        .map(|event| (event["name"].as_str().unwrap(), event["kind"].as_str().unwrap()))
        .collect();
    for own in ["sched_switch", "sched_waking", "sys_enter", "sys_exit", "task_newtask"] {
        assert!(kinds.contains(&(own, "own")), "{own}: {kinds:?}");
    }
    assert!(kinds.contains(&("sys_enter_openat", "generic")), "{kinds:?}");

    // Wall time, the machine, and who was there before.
    let clock = |id: u64| {
        let mut clocks = trace.head["clocks"][0]["clocks"].as_array().unwrap().iter();
        let clock = clocks
            .find(|clock| clock["clock_id"].as_u64() == Some(id))
            .unwrap_or_else(|| panic!("clock {id}"));
        clock["timestamp"].as_str().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(Some(clock(6)), records[0]["timestamp"].as_u64());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!(now - clock(1) < 600_000_000_000, "{} {now}", clock(1));
    let uname = program("/".as_ref(), "uname", ["-r"]).output().unwrap().stdout;
    let release = trace.head["system"][0]["utsname"]["release"].as_str().unwrap();
    assert_eq!(release, String::from_utf8(uname).unwrap().trim());
    let tree = &trace.head["tree"][0]["processes"];
    let own = tree.as_array().unwrap().iter().find(|process| process["pid"] == std::process::id());
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(own.expect("this process")["cmdline"][0], comm.trim_end());

    // What each CPU recorded.
    let stats = trace.head["stats"].as_array().unwrap();
    let phases: Vec<&str> = stats.iter().map(|stats| stats["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["START_OF_TRACE", "END_OF_TRACE"]);
    let read = |cpu: &Value| cpu["read_events"].as_str().map_or(0, |count| count.parse::<u64>().unwrap());
    let sum: u64 = stats[1]["cpu_stats"].as_array().unwrap().iter().map(read).sum();
    assert_eq!(sum, records.len() as u64);
}

#[test]
fn losses_are_told_with_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "getppid() for 1..200000";
    let args = ["record", "-e", "raw_syscalls", "-b", "16", "-o"];
    run(agent(dir.path(), args).arg(&file).args(["perl", "-e", script])).expect(0);
    let (trace, _) = check(&file, dir.path());
    let overrun = |cpu: &Value| cpu["overrun"].as_str().map_or(0, |count| count.parse::<u64>().unwrap());
    let sum: u64 = trace.head["stats"][1]["cpu_stats"].as_array().unwrap().iter().map(overrun).sum();
    let lost = Ledger::of(&file).lost();
    assert!(lost > 0 && sum == lost, "{sum} {lost}");
}

#[test]
fn packets_are_small_and_cover_little_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    run(agent(dir.path(), ["record", "-e", "sched", "-e", "timer", "-o"]).arg(&file).args(["sleep", "2.5"]))
        .expect(0);
    let (trace, _) = check(&file, dir.path());
    for event in trace.events.values().flatten() {
        assert!(event["bytes"].as_u64().unwrap() < 80 << 10, "{event}");
    }
}
