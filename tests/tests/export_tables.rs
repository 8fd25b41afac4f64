//! Tables of recordings, read by DuckDB, against `report --json`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::duckdb::ask;
use integration_tests::harness::{Ended, Ledger, agent, run};
use integration_tests::trace_cmd::stored;
use serde_json::Value;

const FORMATS: [&str; 2] = ["csv", "jsonl"];

fn export(file: &Path, format: &str, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to))
}

/// The records of a file.
fn told(file: &Path) -> Vec<Value> {
    let out = run(agent("/".as_ref(), ["report", "--json"]).arg(file)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Fails unless a row is that of a record.
fn compare(row: &Value, record: &Value) {
    let fields = record["fields"].as_object().unwrap();
    for (column, value) in row.as_object().unwrap() {
        let expected = match column.as_str() {
            "common_timestamp" => &record["timestamp"],
            "common_cpu" => &record["cpu"],
            "common_pid" => &record["pid"],
            "common_buffer" => &record["buffer"],
            "common_flags" => &record["flags"],
            "common_preempt_count" => &record["preempt_count"],
            "common_comm" | "common_wall_ns" => continue,
            field if fields.contains_key(field) => &fields[field],
            field => {
                let (of, what) = field.rsplit_once('_').unwrap();
                match what {
                    "name" => &record["names"][of],
                    "symbol" => &record["symbols"][of],
                    _ => panic!("{field}: {row}"),
                }
            }
        };
        assert_eq!(value, expected, "{column}\n{row}\n{record}");
    }
    assert!(fields.keys().all(|field| row.get(field).is_some()), "{row}\n{record}");
}

/// Exports a file and compares every row of every event's table. Gives the directory.
fn check(file: &Path, format: &str, dir: &Path) -> PathBuf {
    let out = dir.join(format!("{}.{format}", file.file_stem().unwrap().to_str().unwrap()));
    export(file, format, &out).expect(0);
    let mut records = BTreeMap::<(String, String), Vec<Value>>::new();
    let all = told(file);
    let gaps = all.iter().filter(|record| record["lost"] != 0).count();
    for record in all {
        let text = |member: &str| record[member].as_str().unwrap().to_owned();
        records.entry((text("system"), text("event"))).or_default().push(record);
    }
    let names = "SELECT view_name FROM duckdb_views() WHERE NOT internal";
    let found = ask(&out, &["SELECT * FROM events", "SELECT count(*) AS gaps FROM gaps", names]);
    let views: BTreeSet<&str> = found[2].iter().map(|row| row["view_name"].as_str().unwrap()).collect();
    assert_eq!(found[1][0]["gaps"], gaps, "{}", file.display());
    let events: Vec<(String, String)> = found[0]
        .iter()
        .map(|row| (row["system"].as_str().unwrap().to_owned(), row["event"].as_str().unwrap().to_owned()))
        .collect();
    assert!(events.iter().eq(records.keys()), "{events:?}");
    let queries: Vec<String> = events
        .iter()
        .map(|(system, event)| {
            let full = format!("{system}.{event}");
            let view = if views.contains(&**event) { event } else { &full };
            format!("SELECT * FROM \"{view}\"")
        })
        .collect();
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    for ((listed, event), rows) in found[0].iter().zip(&events).zip(ask(&out, &queries)) {
        let records = &records[event];
        assert_eq!(
            (listed["records"].as_u64(), rows.len()),
            (Some(rows.len() as u64), records.len()),
            "{event:?}"
        );
        // Records of one time have no order among CPUs.
        let sorted = |rows: &[Value], time: &str, cpu: &str| {
            let mut rows: Vec<Value> = rows.to_vec();
            rows.sort_by_key(|row| (row[time].as_u64(), row[cpu].as_u64()));
            rows
        };
        let rows = sorted(&rows, "common_timestamp", "common_cpu");
        for (row, record) in rows.iter().zip(sorted(records, "timestamp", "cpu")) {
            compare(row, &record);
        }
    }
    out
}

#[test]
fn tables_of_stock_recordings_have_every_record_and_field() {
    let dir = tempfile::tempdir().unwrap();
    for file in stored(dir.path()) {
        for format in FORMATS {
            check(&file, format, dir.path());
        }
    }
}

#[test]
fn tables_of_this_kernel_answer_questions() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "printf 'a\"b,\\n\\377<' >/proc/self/comm; ls /proc >/dev/null; cat /etc/passwd /etc/group >/dev/null";
    let args = ["record", "-e", "sched", "-e", "irq", "-e", "timer", "-e", "syscalls:*openat", "-o"];
    run(agent(dir.path(), args).arg(&file).args(["sh", "-c", script])).expect(0);
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tables.md")).unwrap();
    let queries: Vec<&str> =
        text.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(queries.len(), 4);
    for format in FORMATS {
        let out = check(&file, format, dir.path());
        let found = ask(&out, &queries);
        assert!(found[..3].iter().all(|rows| !rows.is_empty()), "{found:?}");
        assert!(found[3].is_empty(), "nothing was lost: {found:?}");
        let opened = "SELECT count(*) AS times FROM sys_enter_openat WHERE __filename_val = '/etc/passwd'";
        let strange = "SELECT count(*) AS times FROM sched_switch WHERE next_comm LIKE 'a\"b,%\u{fffd}<'";
        let host = "SELECT abs(first_wall_ns - epoch_ns(now())) < 600000000000 AS now, cpus FROM host";
        let own = format!("SELECT comm FROM threads WHERE tid = {}", std::process::id());
        let found = ask(&out, &[opened, strange, host, &own]);
        assert!(found[0][0]["times"].as_u64() >= Some(1), "{found:?}");
        assert!(found[1][0]["times"].as_u64() >= Some(1), "{found:?}");
        assert_eq!(found[2][0]["now"], true, "{found:?}");
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(found[3][0]["comm"], comm.trim_end());
    }
}

#[test]
fn times_on_a_cpu_are_those_of_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "1 for 1..3000000; select undef, undef, undef, 0.05 for 1..5";
    run(agent(dir.path(), ["record", "-e", "sched", "-o"]).arg(&file).args(["perl", "-e", script])).expect(0);
    let out = check(&file, "csv", dir.path());
    let query = "SELECT prev_pid AS pid, sum(ran) AS ns FROM (SELECT *, common_timestamp - lag(common_timestamp) OVER
        (PARTITION BY common_cpu ORDER BY common_timestamp) AS ran FROM sched_switch) WHERE ran IS NOT NULL GROUP BY ALL";
    let found = ask(&out, &[query]).remove(0);
    let told = run(agent("/".as_ref(), ["report", "--json", "-F", "sched_switch"]).arg(&file)).expect(0).out;
    let mut since = BTreeMap::<u64, u64>::new();
    let mut expected = BTreeMap::<u64, u64>::new();
    for line in told.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let (cpu, time) = (record["cpu"].as_u64().unwrap(), record["timestamp"].as_u64().unwrap());
        if let Some(since) = since.insert(cpu, time) {
            *expected.entry(record["fields"]["prev_pid"].as_u64().unwrap()).or_default() += time - since;
        }
    }
    let found: BTreeMap<u64, u64> =
        found.iter().map(|row| (row["pid"].as_u64().unwrap(), row["ns"].as_u64().unwrap())).collect();
    assert_eq!(found, expected);
}

#[test]
fn losses_and_gaps_are_tables() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "getppid() for 1..200000";
    run(agent(dir.path(), ["record", "-e", "raw_syscalls", "-b", "16", "-o"])
        .arg(&file)
        .args(["perl", "-e", script]))
    .expect(0);
    let out = check(&file, "csv", dir.path());
    let lost = Ledger::of(&file).lost();
    let found =
        ask(&out, &["SELECT sum(lost)::UBIGINT AS lost, sum(recorded)::UBIGINT AS recorded FROM losses"]);
    assert!(lost > 0 && found[0][0]["lost"].as_u64() == Some(lost), "{lost}: {found:?}");
    assert_eq!(found[0][0]["recorded"].as_u64(), Some(told(&file).len() as u64));
}

#[test]
fn directories_of_tables_are_exports() {
    let dir = tempfile::tempdir().unwrap();
    let file = stored(dir.path()).remove(0);
    let out = dir.path().join("out");
    export(&file, "csv", &out).expect(0);
    assert!(export(&file, "jsonl", &out).err.contains("--force replaces it"));
    run(agent("/".as_ref(), ["export", "--force", "--format", "jsonl"]).arg(&file).arg(&out)).expect(0);
    assert!(out.join("host.jsonl").is_file() && !out.join("host.csv").exists());
    let told = run(agent("/".as_ref(), ["info"]).arg(&out));
    assert!(told.err.contains("duckdb -init tables.sql"), "{told:?}");
}
