//! The questions of docs/tables.md about a fleet in an object store: DuckDB and Spark give the same answers,
//! and they are what the fleet was made of.

use std::collections::BTreeMap;
use std::path::Path;

use integration_tests::fleet::{Fleet, MIDDLE, Recording, Span, Truth};
use integration_tests::harness::{agent, run};
use integration_tests::object_store::{BUCKET, Moto};
use integration_tests::questions::{Answer, Engine, ask};
use serde_json::{Value, json};

/// Three hosts: one loses events and counts them, one does not know how many.
const FLEET: Fleet = Fleet { hosts: 3, recordings: 2, events: 8_000, cpus: 2 };
/// The data set, in the bucket.
const PREFIX: &str = "fleet";
const HOUR: u64 = 3_600_000_000_000;

fn export(file: &Path, data: &Path) {
    let args = ["export", "--quiet", "--format", "parquet", "--partition"];
    run(agent("/".as_ref(), args).arg(file).arg(data)).expect(0);
}

/// Fails unless values are the same; numbers may be written in other ways.
#[track_caller]
fn same(found: &Value, expected: &Value, what: &str) {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{what}");
            found.iter().zip(expected).for_each(|(found, expected)| same(found, expected, what));
        }
        (Value::Object(found), Value::Object(expected)) => {
            assert!(expected.keys().eq(found.keys()), "{what}: {found:?} {expected:?}");
            expected.iter().for_each(|(key, expected)| same(&found[key], expected, what));
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!((found - expected).abs() <= expected.abs() * 1e-12, "{what}: {found} {expected}");
        }
        _ => assert_eq!(found, expected, "{what}"),
    }
}

fn truth(recording: &Recording) -> &Truth {
    recording.truth.as_ref().unwrap()
}

/// The hour that a time is in, as answers have it.
fn hour(recording: &Recording, time: u64) -> &'static str {
    let hours = ["2026-03-02 22", "2026-03-02 23", "2026-03-03 00"];
    let which = (time + recording.wall_offset) / HOUR + 1 - MIDDLE / HOUR;
    // All of it, so that it can be compared.
    ["2026-03-02 22:00:00.000000", "2026-03-02 23:00:00.000000", "2026-03-03 00:00:00.000000"]
        .into_iter()
        .find(|text| text.starts_with(hours[which as usize]))
        .unwrap()
}

/// Lengths of times, by whose they are.
type Lengths<K> = BTreeMap<K, Vec<u64>>;

/// Those of all recordings between whose ends nothing is missing.
fn lengths<'r, T: 'r, K: Ord>(
    fleet: &'r [Recording],
    spans: impl Fn(&'r Truth) -> &'r [Span<T>],
    key: impl Fn(&'r Recording, &'r Span<T>) -> K,
) -> Lengths<K> {
    let mut lengths = Lengths::new();
    for recording in fleet {
        for span in spans(truth(recording)).iter().filter(|span| truth(recording).is_whole(span)) {
            lengths.entry(key(recording, span)).or_default().push(span.to - span.from);
        }
    }
    for lengths in lengths.values_mut() {
        lengths.sort_unstable();
    }
    lengths
}

/// The smallest of them that 99 of 100 do not exceed.
fn p99(sorted: &[u64]) -> f64 {
    sorted[(sorted.len() * 99).div_ceil(100) - 1] as f64
}

fn sum(lengths: &[u64]) -> f64 {
    lengths.iter().sum::<u64>() as f64
}

fn max(lengths: &[u64]) -> f64 {
    lengths.iter().max().copied().unwrap() as f64
}

/// The first rows of a table, which is sorted by a number downwards, then as it is.
fn top(rows: Vec<Value>, by: &str, limit: usize) -> Value {
    let mut rows = rows;
    rows.sort_by(|one, other| other[by].as_f64().unwrap().total_cmp(&one[by].as_f64().unwrap()));
    rows.truncate(limit);
    rows.into()
}

fn off_cpu(fleet: &[Recording]) -> Value {
    let lengths = lengths(fleet, |truth| &truth.off_cpu, |_, span| span.of.clone());
    let row = |(comm, all): (&String, &Vec<u64>)| json!({ "comm": comm, "times": all.len(), "ms": sum(all) / 1e6, "longest_ms": max(all) / 1e6 });
    top(lengths.iter().map(row).collect(), "ms", 10)
}

fn requests(fleet: &[Recording]) -> Value {
    let key = |recording: &Recording, span: &Span<u32>| (recording.host.clone(), hour(recording, span.to));
    let lengths = lengths(fleet, |truth| &truth.requests, key);
    let rows = lengths.iter().map(|((host, hour), all)| {
        json!({ "host": host, "hour": hour, "requests": all.len(), "p99_us": p99(all) / 1e3, "longest_us": max(all) / 1e3 })
    });
    rows.collect()
}

fn losses(fleet: &[Recording]) -> Value {
    let mut hosts = BTreeMap::<&str, (bool, u64, u64, u64)>::new();
    for recording in fleet {
        let host = hosts.entry(&recording.host).or_insert((true, 0, 0, 0));
        host.0 &= recording.lost_is_exact;
        host.1 += recording.lost;
        host.2 += truth(recording).recorded;
        host.3 += 1;
    }
    let row = |(host, (is_exact, lost, recorded, recordings))| {
        let known = if is_exact { "exactly" } else { "at least" };
        json!({ "host": host, "known": known, "lost": lost, "recorded": recorded, "recordings": recordings })
    };
    top(hosts.into_iter().filter(|(_, (_, lost, ..))| *lost > 0).map(row).collect(), "lost", usize::MAX)
}

fn opens(fleet: &[Recording]) -> Value {
    let mut found = BTreeMap::<(&str, &str), (u64, u64)>::new();
    for recording in fleet {
        let truth = truth(recording);
        for span in &truth.opens {
            if span.of.path == "/etc/shadow" && truth.is_whole(span) {
                let (times, failed) = found.entry((&recording.host, &truth.names[&span.of.tid])).or_default();
                *times += 1;
                *failed += u64::from(span.of.failed);
            }
        }
    }
    let row = |((host, comm), (times, failed))| json!({ "host": host, "comm": comm, "times": times, "failed": failed });
    top(found.into_iter().map(row).collect(), "times", 20)
}

fn wake_ups(fleet: &[Recording]) -> Value {
    let lengths = lengths(fleet, |truth| &truth.wake_ups, |_, span| span.of.clone());
    let row = |(comm, all): (&String, &Vec<u64>)| json!({ "comm": comm, "times": all.len(), "p99_us": p99(all) / 1e3, "longest_us": max(all) / 1e3 });
    top(lengths.iter().map(row).collect(), "p99_us", 10)
}

fn busy(fleet: &[Recording]) -> Value {
    let mut hours = BTreeMap::<(&str, &str), (u64, u64)>::new();
    for recording in fleet {
        let mut add = |from: u64, to: u64, runs: bool| {
            let (busy, known) = hours.entry((&recording.host, hour(recording, from))).or_default();
            *known += to - from;
            *busy += if runs { to - from } else { 0 };
        };
        for (cpu, span) in &truth(recording).on_cpu {
            if !truth(recording).is_whole_on(*cpu, span) {
                continue;
            }
            let border = (span.to + recording.wall_offset) / HOUR * HOUR - recording.wall_offset;
            if span.from < border {
                add(span.from, border, span.of);
            }
            add(span.from.max(border), span.to, span.of);
        }
    }
    let rows = hours.into_iter().map(|((host, hour), (busy, known))| {
        let percent = (1e3 * busy as f64 / known as f64).round() / 10.0;
        let (busy, known) = (busy as f64 / 1e9, known as f64 / 1e9);
        json!({ "host": host, "hour": hour, "busy_s": busy, "known_s": known, "busy_percent": percent })
    });
    rows.collect()
}

fn calls(fleet: &[Recording]) -> Value {
    let mut found = BTreeMap::<(&str, &str), (u64, u64)>::new();
    for recording in fleet {
        for ((tid, call), (times, failed)) in &truth(recording).calls {
            let sums = found.entry((&truth(recording).names[tid], call)).or_default();
            *sums = (sums.0 + times, sums.1 + failed);
        }
    }
    let row = |((comm, call), (times, failed))| json!({ "comm": comm, "call": call, "times": times, "failed": failed });
    top(found.into_iter().map(row).collect(), "times", 20)
}

fn interrupts(fleet: &[Recording]) -> Value {
    let numbers = BTreeMap::from([("nvme0q1", 24), ("eth0-rx-0", 28), ("uhci_hcd", 16)]);
    let mut found = Lengths::<(&str, &str)>::new();
    for recording in fleet {
        for (cpu, span) in &truth(recording).interrupts {
            if truth(recording).is_whole_on(*cpu, span) {
                found.entry((&recording.host, span.of)).or_default().push(span.to - span.from);
            }
        }
    }
    let row = |((host, name), all): ((&str, &str), Vec<u64>)| {
        json!({
            "host": host, "name": name, "irq": numbers[name], "times": all.len(), "ms": sum(&all) / 1e6,
            "longest_us": max(&all) / 1e3,
        })
    };
    top(found.into_iter().map(row).collect(), "longest_us", 20)
}

fn execs(fleet: &[Recording]) -> Value {
    let mut found = BTreeMap::<(&str, &str, Option<&str>), u64>::new();
    for recording in fleet {
        for exec in &truth(recording).execs {
            *found.entry((&recording.host, exec.filename, exec.parent.as_deref())).or_default() += 1;
        }
    }
    let row = |((host, filename, parent), times)| json!({ "host": host, "filename": filename, "parent": parent, "times": times });
    top(found.into_iter().map(row).collect(), "times", 50)
}

/// The hosts whose recordings cover midnight: each one's second.
fn covering(fleet: &[Recording]) -> Vec<&str> {
    let midnight = MIDDLE + HOUR;
    let covers = |recording: &&Recording| {
        let (first, last) = recording.span;
        (first + recording.wall_offset..=last + recording.wall_offset).contains(&midnight)
    };
    let mut hosts: Vec<&str> = fleet.iter().filter(covers).map(|recording| &*recording.host).collect();
    hosts.sort_unstable();
    hosts
}

#[test]
fn both_engines_answer_what_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let fleet: Vec<Recording> = FLEET.numbers().map(|which| FLEET.write(dir.path(), which, true)).collect();
    let gaps: usize = fleet.iter().map(|recording| truth(recording).gaps.len()).sum();
    assert!(gaps >= 8, "only {gaps} gaps");
    let data = dir.path().join("data");
    for recording in &fleet {
        export(&recording.path, &data);
    }
    let moto = Moto::start();
    moto.put_all(PREFIX, &data);
    let place = format!("s3://{BUCKET}/{PREFIX}");
    let found = ask(Engine::DuckDb, &place, Some(moto.address()));
    let expected = [
        off_cpu(&fleet),
        requests(&fleet),
        losses(&fleet),
        opens(&fleet),
        wake_ups(&fleet),
        busy(&fleet),
        calls(&fleet),
        interrupts(&fleet),
        execs(&fleet),
    ];
    assert_eq!(found.len(), expected.len() + 1);
    for (Answer { question, rows }, expected) in found.iter().zip(&expected) {
        assert!(!rows.is_empty(), "{question}");
        same(&Value::Array(rows.clone()), expected, question);
    }
    let Answer { rows: covers, .. } = found.last().unwrap();
    let hosts: Vec<&str> = covers.iter().map(|row| row["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, covering(&fleet));

    // Spark has no way to the server here; it reads the files that became objects there.
    let of_spark = ask(Engine::Spark, data.to_str().unwrap(), None);
    assert_eq!(of_spark.len(), found.len());
    for (of_spark, of_duckdb) in of_spark.iter().zip(&found) {
        assert_eq!(of_spark.question, of_duckdb.question);
        let [of_spark, of_duckdb_rows] =
            [of_spark, of_duckdb].map(|answer| Value::Array(answer.rows.clone()));
        same(&of_spark, &of_duckdb_rows, &of_duckdb.question);
    }
}
