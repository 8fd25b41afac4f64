//! Data sets that many recordings are in, on disk and in an object store, read by DuckDB.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use integration_tests::duckdb::python;
use integration_tests::fleet::{Fleet, MIDDLE};
use integration_tests::harness::{Ended, agent, agent_path, reported, run};
use integration_tests::object_store::{BUCKET, Moto};
use integration_tests::tables::counts;
use serde_json::Value;

/// Queries of a data set, by DuckDB.
const DATASET: &str = "
import json, sys
import duckdb
root = sys.argv[1]
db = duckdb.connect()
for query in sys.argv[2:]:
    found = db.execute(query.replace('ROOT', root))
    names = [column[0] for column in found.description]
    print(json.dumps([dict(zip(names, row)) for row in found.fetchall()], default=str))
";

fn ask_dataset(root: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let out = run(python(DATASET).arg(root).args(queries)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All files below a directory, and what they are: link, size and inode.
fn files(root: &Path) -> BTreeMap<PathBuf, u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else {
                found.insert(
                    entry.path().strip_prefix(root).unwrap().to_owned(),
                    entry.metadata().unwrap().ino(),
                );
            }
        }
    }
    found
}

fn add(file: &Path, root: &Path, more: &[&str]) -> Ended {
    let args = ["export", "--format", "parquet", "--partition"];
    run(agent("/".as_ref(), args).args(more).arg(file).arg(root))
}

const EVENTS: &str = "SELECT event, recording, count(*) AS rows, count(DISTINCT host) AS hosts, min(date = common_time::DATE) AS right_day
    FROM read_parquet('ROOT/events/event=*/*/*/*.parquet', hive_partitioning = true, union_by_name = true) GROUP BY ALL ORDER BY ALL";
const SESSIONS: &str = "SELECT recording, events, file, host FROM read_parquet('ROOT/sessions/**/*.parquet', hive_partitioning = true) ORDER BY events";

/// How many switches of this host a notebook finds in a data set, as docs/tables.md reads it.
const NOTEBOOK: &str = "
import sys
import pandas, polars, pyarrow.dataset
root, host = sys.argv[1:]
event = root + '/events/event=sched.sched_switch'
lazy = polars.scan_parquet(event + '/**/*.parquet', hive_partitioning=True)
print(lazy.filter(polars.col('host') == host).select(polars.len()).collect().item())
table = pyarrow.dataset.dataset(event, partitioning='hive').to_table(columns=['common_timestamp', 'host'])
print(table['host'].to_pylist().count(host))
print((pandas.read_parquet(event)['host'] == host).sum())
";

#[test]
fn recordings_are_added_to_a_data_set() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("set");
    let files_of: Vec<PathBuf> = (0..2)
        .map(|number| {
            let file = dir.path().join(format!("{number}.dat"));
            let args = ["record", "-e", "sched", "-e", "irq", "-o"];
            run(agent(dir.path(), args).arg(&file).args(["ls", "-R", "/usr/share/doc"])).expect(0);
            file
        })
        .collect();
    add(&files_of[0], &root, &[]).expect(0);
    let of_first = files(&root);
    add(&files_of[1], &root, &[]).expect(0);
    let of_both = files(&root);
    add(&files_of[0], &root, &[]).expect(0);
    let again = files(&root);
    assert!(again.keys().eq(of_both.keys()), "{again:?}");
    for (path, inode) in &of_both {
        assert_eq!(again[path] != *inode, of_first.contains_key(path), "{path:?} is replaced, and no other");
        assert!(path.file_name().unwrap().to_str().unwrap().ends_with(".parquet"), "{path:?}");
    }
    let mut found = ask_dataset(&root, &[EVENTS, SESSIONS]);
    let sessions = found.pop().unwrap();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for session in &sessions {
        assert_eq!(session["host"], hostname.trim_end());
        let file =
            files_of.iter().find(|file| session["file"] == file.file_name().unwrap().to_str().unwrap());
        let expected = counts(file.unwrap());
        assert_eq!(session["events"].as_u64(), Some(expected.values().sum()));
        let rows = found[0].iter().filter(|row| row["recording"] == session["recording"]);
        let rows: BTreeMap<String, u64> = rows
            .map(|row| (row["event"].as_str().unwrap().to_owned(), row["rows"].as_u64().unwrap()))
            .collect();
        assert_eq!(rows, expected);
    }
    let switches: u64 = files_of.iter().map(|file| counts(file)["sched.sched_switch"]).sum();
    let notebook = run(python(NOTEBOOK).arg(&root).arg(hostname.trim_end())).expect(0).out;
    assert_eq!(notebook, format!("{switches}\n").repeat(3));
    assert!(found[0].iter().all(|row| row["hosts"] == 1 && row["right_day"] == true), "{:?}", found[0]);
    // What is not asked for is not there any more.
    add(&files_of[0], &root, &["--table", "sched_switch"]).expect(0);
    let less = files(&root);
    assert_eq!(less.len(), of_both.len() - of_first.len() + 2, "{less:?}");
    let found = ask_dataset(&root, &[SESSIONS]).remove(0);
    assert_eq!(found.len(), 2);
}

#[test]
fn data_sets_have_nothing_that_is_partial() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("set");
    let file = dir.path().join("0.dat");
    run(agent(dir.path(), ["record", "-e", "sched", "-o"]).arg(&file).args(["ls", "/"])).expect(0);
    add(&file, &root, &[]).expect(0);
    let whole = files(&root);
    let session = whole.keys().find(|path| path.starts_with("sessions")).unwrap();
    let id = session.file_stem().unwrap().to_str().unwrap();
    // As one that was killed has left it.
    let left = root.join(whole.keys().next().unwrap()).with_file_name(format!(".{id}.parquet.new"));
    std::fs::write(&left, "PAR1").unwrap();
    std::fs::write(root.join(format!(".{id}.lock")), "").unwrap();
    let other = left.with_file_name(".0123456789abcdef.parquet.new");
    std::fs::write(&other, "PAR1").unwrap();
    add(&file, &root, &[]).expect(0);
    assert!(!left.exists() && other.exists());
    std::fs::remove_file(&other).unwrap();
    assert!(files(&root).keys().eq(whole.keys()));
    // Nothing is followed, and what is in the way is not removed.
    let date = root.join(session).parent().unwrap().parent().unwrap().to_owned();
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(&date, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &date).unwrap();
    let before = (files(&root), files(&elsewhere));
    add(&file, &root, &[]).expect(114);
    assert_eq!((files(&root), files(&elsewhere)), before);
    // Directories of something else are not written to.
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("thesis"), "years").unwrap();
    assert!(add(&file, &home, &[]).expect(114).err.contains("no data set"));
    for args in [&["--force"][..], &["--tar"]] {
        add(&file, &home, args).expect(2);
    }
    run(agent("/".as_ref(), ["export", "--format", "csv", "--partition"]).arg(&file).arg(&root)).expect(2);
}

#[test]
fn a_data_set_is_in_an_object_store() {
    let dir = tempfile::tempdir().unwrap();
    let moto = Moto::start();
    let url = format!("s3://{BUCKET}/fleet");
    let add = |file: &Path| {
        let args = ["export", "--format", "parquet", "--partition", "--allow-http", "--endpoint"];
        let mut agent = agent("/".as_ref(), args);
        agent.arg(format!("http://{}", moto.address())).arg("--region").arg("us-east-1").arg(file).arg(&url);
        run(agent.env("AWS_ACCESS_KEY_ID", "testing").env("AWS_SECRET_ACCESS_KEY", "testing"))
    };
    let local = dir.path().join("local");
    let mut expected = BTreeMap::new();
    for number in 0..2 {
        let file = dir.path().join(format!("{number}.dat"));
        run(agent(dir.path(), ["record", "-e", "sched", "-o"]).arg(&file).args([
            "ls",
            "-R",
            "/usr/share/doc",
        ]))
        .expect(0);
        add(&file).expect(0);
        run(agent("/".as_ref(), ["export", "--format", "parquet", "--partition"]).arg(&file).arg(&local))
            .expect(0);
        expected.insert(format!("{number}.dat"), counts(&file));
    }
    add(&dir.path().join("0.dat")).expect(0);
    let keys: BTreeSet<String> =
        moto.objects().iter().map(|object| object["key"].as_str().unwrap().to_owned()).collect();
    let names: BTreeSet<String> =
        files(&local).keys().map(|path| format!("fleet/{}", path.to_str().unwrap())).collect();
    assert_eq!(keys, names);
    // As DuckDB finds it when all of it is downloaded.
    let copy = dir.path().join("copy");
    for key in &keys {
        let to = copy.join(key);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        moto.get(key, &to);
    }
    let root = copy.join("fleet");
    let found = ask_dataset(&root, &[EVENTS, SESSIONS]);
    assert_eq!(found[1].len(), 2);
    for session in &found[1] {
        let rows = found[0].iter().filter(|row| row["recording"] == session["recording"]);
        let rows: BTreeMap<String, u64> = rows
            .map(|row| (row["event"].as_str().unwrap().to_owned(), row["rows"].as_u64().unwrap()))
            .collect();
        assert_eq!(rows, expected[session["file"].as_str().unwrap()]);
    }
    // A store that does not have the bucket.
    let args = ["export", "--format", "parquet", "--partition", "--allow-http", "--endpoint"];
    let mut wrong = agent("/".as_ref(), args);
    wrong
        .arg(format!("http://{}", moto.address()))
        .arg("--region")
        .arg("us-east-1")
        .arg(dir.path().join("0.dat"));
    wrong
        .arg("s3://nowhere/fleet")
        .env("AWS_ACCESS_KEY_ID", "testing")
        .env("AWS_SECRET_ACCESS_KEY", "testing");
    assert!(run(&mut wrong).expect(1).err.contains("check the bucket"));
}

#[test]
fn records_are_with_those_of_their_day() {
    /// Midnight is an hour behind the middle of the first recording.
    const MIDNIGHT: u64 = MIDDLE + 3_600_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("set");
    let fleet = Fleet { hosts: 1, recordings: 2, events: 20_000, cpus: 2 };
    let recording = fleet.write(dir.path(), (0, 1), false);
    add(&recording.path, &root, &["--table", "sched_switch"]).expect(0);
    let of_day = |is_before: bool| {
        let switches =
            reported(&recording.path).into_iter().filter(|record| record["event"] == "sched_switch");
        let times = switches.map(|record| record["timestamp"].as_u64().unwrap() + recording.wall_offset);
        times.filter(|time| (*time < MIDNIGHT) == is_before).count()
    };
    let query = "SELECT date::VARCHAR AS date, count(*) AS rows, min(date = common_time::DATE) AS is_right
        FROM read_parquet('ROOT/events/*/*/*/*.parquet', hive_partitioning = true) GROUP BY ALL ORDER BY ALL";
    let found = ask_dataset(&root, &[query]).remove(0);
    let expected: Vec<Value> = [("2026-03-02", of_day(true)), ("2026-03-03", of_day(false))]
        .into_iter()
        .map(|(date, rows)| serde_json::json!({"date": date, "rows": rows, "is_right": true}))
        .collect();
    assert!(of_day(true) > 100 && of_day(false) > 100);
    assert_eq!(found, expected);
}

#[test]
fn hosts_may_have_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a/../b c=%20ü'\"";
    let record = "printf %s \"$1\" >/proc/sys/kernel/hostname && exec \"$2\" record --quiet -e sched_switch -o \"$3\" sleep 0.1";
    let file = dir.path().join("0.dat");
    let mut recorder = Command::new("unshare");
    recorder.args(["--uts", "sh", "-c", record, "sh", name]).arg(agent_path()).arg(&file);
    run(&mut recorder).expect(0);
    let root = dir.path().join("set");
    add(&file, &root, &[]).expect(0);
    let paths = files(&root);
    let plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=%._-".contains(&byte));
    let mut names = paths.keys().flat_map(|path| path.iter());
    assert!(names.all(|name| plain(name.to_str().unwrap())), "{paths:?}");
    let query =
        "SELECT DISTINCT host FROM read_parquet('ROOT/hosts/*/*/*.parquet', hive_partitioning = true)";
    assert_eq!(ask_dataset(&root, &[query])[0], [serde_json::json!({ "host": name })]);
}
