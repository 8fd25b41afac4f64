//! Tables of recordings, read by DuckDB, against `report --json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::duckdb::{ask, python};
use integration_tests::harness::{Ledger, agent, agent_path, reported, run};
use integration_tests::tables::export;
use serde_json::Value;

pub(crate) const FORMATS: [&str; 4] = ["csv", "jsonl", "parquet", "arrow"];

/// Whether a number in a table, or each one of a list, is the address that the report has as a text.
fn is_address(value: &Value, told: &Value) -> bool {
    match (value, told) {
        (Value::Number(number), Value::String(text)) => {
            number.as_u64().is_some_and(|number| format!("{number:#x}") == *text)
        }
        (Value::Array(numbers), Value::Array(texts)) => {
            numbers.len() == texts.len() && numbers.iter().zip(texts).all(|(one, text)| is_address(one, text))
        }
        _ => false,
    }
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
            // Microseconds, of the nanoseconds beside it.
            "common_time" => {
                let wall = row["common_wall_ns"].as_i64();
                assert_eq!(value.as_i64(), wall.map(|wall| wall.div_euclid(1000)), "{row}");
                continue;
            }
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
        let is_equal = value == expected || is_address(value, expected);
        assert!(is_equal, "{column}: {value}, not {expected}\n{row}\n{record}");
    }
    assert!(fields.keys().all(|field| row.get(field).is_some()), "{row}\n{record}");
}

/// Exports a file and compares every row of every event's table. Gives the directory.
pub(crate) fn check(file: &Path, format: &str, dir: &Path) -> PathBuf {
    let out = dir.join(format!("{}.{format}", file.file_stem().unwrap().to_str().unwrap()));
    export(file, format, &out).expect(0);
    let mut records = BTreeMap::<(String, String), Vec<Value>>::new();
    let all = reported(file);
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
fn tables_of_this_kernel_answer_questions() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "printf 'a\"b,\\n\\377<' >/proc/self/comm; ls /proc >/dev/null; cat /etc/passwd /etc/group >/dev/null";
    let args = ["record", "-e", "sched", "-e", "irq", "-e", "timer", "-e", "syscalls:*openat", "-o"];
    run(agent(dir.path(), args).arg(&file).args(["sh", "-c", script])).expect(0);
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tables.md")).unwrap();
    // Those about a fleet have a test of their own.
    let text = text.split("\n## Questions about a fleet").next().unwrap();
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
        let host = "SELECT abs(first_wall_ns - epoch_ns(now())) < 600000000000 AS now, cpus FROM hosts";
        let own = format!("SELECT comm FROM processes WHERE tid = {}", std::process::id());
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
    assert_eq!(found[0][0]["recorded"].as_u64(), Some(reported(&file).len() as u64));
}

/// A table in a notebook: what pyarrow reads of a stream, as pandas and Polars have it; and what Polars reads
/// by itself, of a stream and of a file. The last line tells how a reader fared that stopped early.
const NOTEBOOK: &str = "
import io, json, subprocess, sys
import pandas, polars, pyarrow
agent, file, arrow = sys.argv[1:]
command = [agent, 'export', '--format', 'arrow', '--table', 'sched:sched_switch', file, '-']
columns = ['common_timestamp', 'common_cpu', 'common_pid', 'common_comm', 'prev_comm', 'prev_pid', 'next_comm', 'next_pid']
export = subprocess.Popen(command, stdout=subprocess.PIPE)
table = pyarrow.ipc.open_stream(export.stdout).read_all()
assert export.wait() == 0
print(json.dumps(table.to_pandas()[columns].to_dict('records')))
print(json.dumps(polars.from_arrow(table)[columns].to_dicts()))
stream = io.BytesIO(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
print(json.dumps(polars.read_ipc_stream(stream)[columns].to_dicts()))
print(json.dumps(polars.read_ipc(arrow)[columns].to_dicts()))
export = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
export.stdout.read(1)
export.stdout.close()
print(json.dumps([export.wait(), export.stderr.read().decode()]))
";

#[test]
fn notebooks_read_a_table_from_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    run(agent(dir.path(), ["record", "-e", "sched", "-e", "irq", "-o"]).arg(&file).args([
        "ls",
        "-R",
        "/usr/share/doc",
    ]))
    .expect(0);
    let out = dir.path().join("out");
    export(&file, "arrow", &out).expect(0);
    let mut notebook = python(NOTEBOOK);
    let notebook = notebook.arg(agent_path()).arg(&file).arg(out.join("sched.sched_switch.arrow"));
    let printed = run(notebook).expect(0).out;
    let mut lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.pop().unwrap(), serde_json::json!([0, ""]));
    assert_eq!(lines.len(), 4);
    let mut records: Vec<Value> = reported(&file);
    records.retain(|record| record["event"] == "sched_switch");
    let key = |row: &Value, time: &str, cpu: &str| (row[time].as_u64(), row[cpu].as_u64());
    records.sort_by_key(|record| key(record, "timestamp", "cpu"));
    for line in lines {
        let mut rows = line.as_array().unwrap().clone();
        rows.sort_by_key(|row| key(row, "common_timestamp", "common_cpu"));
        assert_eq!(rows.len(), records.len());
        for (row, record) in rows.iter().zip(&records) {
            for (column, value) in row.as_object().unwrap() {
                let told = match column.strip_prefix("common_") {
                    Some(of_all) => &record[of_all],
                    None => &record["fields"][column],
                };
                assert_eq!(value, told, "{column}: {row} {record}");
            }
        }
    }
}

/// What a reader of Parquet finds in a file, beside its rows.
const PARQUET: &str = "
import json, sys
import pyarrow.parquet
file = pyarrow.parquet.ParquetFile(sys.argv[1])
group = file.metadata.row_group(0)
columns = [group.column(index) for index in range(group.num_columns)]
print(json.dumps({
    'metadata': {key.decode(): value.decode() for key, value in file.metadata.metadata.items() if key.startswith(b'tracer.')},
    'types': {field.name: str(field.type) for field in file.schema_arrow},
    'physical': {column.path_in_schema: [column.compression, list(column.encodings), column.statistics is not None] for column in columns},
    'sorted': [sorting.column_index for sorting in group.sorting_columns],
}))
";

#[test]
fn files_of_parquet_say_what_is_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    run(agent(dir.path(), ["record", "-e", "sched:sched_switch", "-o"]).arg(&file).args(["ls", "/"]))
        .expect(0);
    let found = |out: &Path| -> Value {
        let file = out.join("sched.sched_switch.parquet");
        serde_json::from_str(&run(python(PARQUET).arg(file)).expect(0).out).unwrap()
    };
    let out = dir.path().join("out");
    export(&file, "parquet", &out).expect(0);
    let written = found(&out);
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(written["metadata"]["tracer.host"], hostname.trim_end(), "{written}");
    assert_eq!(written["metadata"]["tracer.clock"], "mono", "{written}");
    let types = &written["types"];
    for (column, ty) in [
        ("common_timestamp", "int64"),
        ("common_wall_ns", "int64"),
        ("common_time", "timestamp[us, tz=UTC]"),
        ("common_cpu", "uint32"),
        ("common_comm", "dictionary<values=string, indices=int32, ordered=0>"),
        ("common_flags", "uint8"),
        ("prev_pid", "int32"),
        ("prev_state", "int64"),
        ("prev_state_name", "dictionary<values=string, indices=int32, ordered=0>"),
        ("next_comm", "string"),
    ] {
        assert_eq!(types[column], ty, "{column}: {types}");
    }
    let times = &written["physical"]["common_timestamp"];
    assert!(
        times.to_string().contains("DELTA_BINARY_PACKED") && times[0] == "ZSTD" && times[2] == true,
        "{written}"
    );
    assert!(written["physical"]["common_comm"].to_string().contains("DICTIONARY"), "{written}");
    assert_eq!(written["sorted"], serde_json::json!([0]), "{written}");
    // It is the recording's id, not the file's.
    let copy = dir.path().join("copy.dat");
    run(agent(dir.path(), ["convert", "--compression", "none"]).arg(&file).arg("-o").arg(&copy)).expect(0);
    let again = dir.path().join("again");
    export(&copy, "parquet", &again).expect(0);
    let id = &written["metadata"]["tracer.recording"];
    assert_eq!(&found(&again)["metadata"]["tracer.recording"], id);
    let sessions = "SELECT recording, file, events, lost, overwritten, buffers, begin_time <= end_time AS forward FROM sessions";
    let session = ask(&again, &[sessions]).remove(0).remove(0);
    assert_eq!((&session["recording"], &session["file"]), (id, &Value::from("copy.dat")), "{session}");
    assert_eq!(session["events"].as_u64(), Some(reported(&file).len() as u64), "{session}");
    assert_eq!(
        (&session["lost"], &session["overwritten"], &session["forward"], &session["buffers"]),
        (&Value::from(0), &Value::from(false), &Value::from(true), &serde_json::json!([""])),
        "{session}"
    );
}
