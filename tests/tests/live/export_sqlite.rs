//! Tables in a file of SQLite, read by Python's own, against `report --json`.

use std::collections::BTreeMap;
use std::path::Path;

use integration_tests::duckdb::python;
use integration_tests::harness::{agent, reported, run};
use integration_tests::tables::export;
use integration_tests::trace_cmd::stored;
use serde_json::Value;

/// All rows of a table of a file of SQLite, in their order, and the names of its views.
const SQLITE: &str = "
import json, sqlite3, sys
db = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True)
assert db.execute('PRAGMA integrity_check').fetchone() == ('ok',)
db.row_factory = sqlite3.Row
for query in sys.argv[2:]:
    print(json.dumps([dict(row) for row in db.execute(query)]))
";

fn ask_sqlite(file: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let out = run(python(SQLITE).arg(file).args(queries)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A value as it is in SQLite.
fn in_sqlite(told: &Value) -> Value {
    match told {
        Value::Number(number) if number.as_i64().is_none() => {
            Value::from(format!("{:#x}", number.as_u64().unwrap()))
        }
        Value::Bool(value) => Value::from(u64::from(*value)),
        Value::Array(_) => Value::from(serde_json::to_string(told).unwrap()),
        told => told.clone(),
    }
}

#[test]
fn a_file_of_sqlite_has_every_record_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = dir.path().join("trace.dat");
    let script = "printf 'a\"b,\\n<' >/proc/self/comm; ls /proc >/dev/null; cat /etc/passwd >/dev/null";
    let args = ["record", "-e", "sched", "-e", "irq", "-e", "timer", "-e", "syscalls:*openat", "-o"];
    run(agent(dir.path(), args).arg(&recorded).args(["sh", "-c", script])).expect(0);
    let mut all = stored(dir.path());
    all.push(recorded);
    for file in all {
        let out = dir.path().join(file.with_extension("sqlite").file_name().unwrap());
        export(&file, "sqlite", &out).expect(0);
        let events = ask_sqlite(&out, &["SELECT * FROM events"]).remove(0);
        let mut records = BTreeMap::<String, Vec<Value>>::new();
        for record in reported(&file) {
            let text = |member: &str| record[member].as_str().unwrap().to_owned();
            records.entry(format!("{}.{}", text("system"), text("event"))).or_default().push(record);
        }
        let text = |row: &Value, member: &str| row[member].as_str().unwrap().to_owned();
        let names: Vec<String> =
            events.iter().map(|row| format!("{}.{}", text(row, "system"), text(row, "event"))).collect();
        assert!(names.iter().eq(records.keys()), "{names:?}");
        let queries: Vec<String> = events
            .iter()
            .map(|row| format!("SELECT * FROM \"{}\" ORDER BY rowid", text(row, "file")))
            .collect();
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        for (name, rows) in names.iter().zip(ask_sqlite(&out, &queries)) {
            let key = |row: &Value, time: &str, cpu: &str| (row[time].as_u64(), row[cpu].as_u64());
            assert!(rows.is_sorted_by_key(|row| row["common_timestamp"].as_u64()), "{name}");
            let (mut rows, records) = (rows, records.get_mut(name).unwrap());
            rows.sort_by_key(|row| key(row, "common_timestamp", "common_cpu"));
            records.sort_by_key(|record| key(record, "timestamp", "cpu"));
            assert_eq!(rows.len(), records.len());
            for (row, record) in rows.iter().zip(&*records) {
                for (field, value) in record["fields"].as_object().unwrap() {
                    assert_eq!(row[field], in_sqlite(value), "{field}: {row} {record}");
                }
                for (column, told) in [("timestamp", "timestamp"), ("pid", "pid"), ("buffer", "buffer")] {
                    assert_eq!(row[format!("common_{column}")], record[told], "{column}: {row} {record}");
                }
            }
        }
    }
    let out = dir.path().join("trace.sqlite");
    let own = format!("SELECT count(*) AS times FROM processes WHERE tid = {}", std::process::id());
    let found = ask_sqlite(&out, &["SELECT count(*) AS times FROM sched_switch", &own]);
    assert!(found[0][0]["times"].as_u64() > Some(0) && found[1][0]["times"] == 1, "{found:?}");
    assert!(export(&dir.path().join("trace.dat"), "sqlite", &out).err.contains("--force replaces it"));
}
