//! Recordings in KernelShark: what its library loads, and its window.

use std::path::{Path, PathBuf};

use integration_tests::harness::{agent, reported, run};
use integration_tests::kernelshark::{Row, Window, rows};
use integration_tests::trace_cmd::stored;

/// A busy moment of this machine.
fn recorded(dir: &Path) -> PathBuf {
    let file = dir.join("trace.dat");
    let script = "for n in 1 2; do head -c 9000000 /dev/zero | gzip | wc -c & done; wait";
    let args = ["record", "-q", "-e", "sched", "-e", "irq", "-e", "timer", "-e", "syscalls:*read", "-o"];
    run(agent(dir, args).arg(&file).args(["sh", "-c", script])).expect(0);
    file
}

/// What this project reads in a file, in the terms of KernelShark, which shows the top buffer.
fn told(file: &Path) -> Vec<Row> {
    let rows = reported(file).into_iter().map(|record| {
        let text = |member: &str| record[member].as_str().unwrap_or_default().to_owned();
        let row = Row {
            time: record["timestamp"].as_u64().unwrap(),
            cpu: record["cpu"].as_u64().unwrap() as u32,
            pid: record["pid"].as_i64().unwrap(),
            event: format!("{}/{}", text("system"), text("event")),
            task: text("comm"),
            info: String::new(),
        };
        (text("buffer"), row)
    });
    rows.filter(|(buffer, _)| buffer.is_empty()).map(|(_, row)| row).collect()
}

/// Without the texts, and names of threads that KernelShark has words of its own for.
fn plain(mut rows: Vec<Row>) -> Vec<Row> {
    for row in &mut rows {
        row.info.clear();
        if row.pid == 0 || row.task.starts_with('<') || row.task.is_empty() {
            row.task.clear();
        }
    }
    // Records of one time have no order among CPUs.
    rows.sort();
    rows
}

#[test]
fn its_library_loads_every_record() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(dir.path());
    let found = rows(&file, dir.path());
    assert!(found.len() > 1000, "{}", found.len());
    let switch = |row: &&Row| row.event == "sched/sched_switch" && row.info.contains("gzip:");
    assert!(found.iter().any(|row| switch(&row)), "{:?}", found.first());
    let (found, expected) = (plain(found), plain(told(&file)));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}

#[test]
fn its_library_loads_what_is_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    for file in stored(dir.path()) {
        let copy = dir.path().join("copy.dat");
        run(agent("/".as_ref(), ["convert", "--force"]).arg(&file).arg("-o").arg(&copy)).expect(0);
        assert_eq!(rows(&file, dir.path()), rows(&copy, dir.path()), "{}", file.display());
    }
}

/// The picture of docs/kernelshark.md is made by this with TRACER_AGENT_PICTURES=$PWD/docs.
#[test]
fn its_window_shows_cpus_threads_and_events() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(dir.path());
    let window = Window::open(&file, dir.path(), &["--cpu", "0-1", "--task", "gzip"]);
    let kept = std::env::var_os("TRACER_AGENT_PICTURES").map(PathBuf::from);
    let picture = kept.unwrap_or_else(|| dir.path().to_owned()).join("kernelshark.png");
    // The plots of the CPUs have a colour for each thread; the rest of the window is grey and black. The
    // table has text.
    window.picture(&picture, &[("1380x90+90+150", 9), ("600x400+10+450", 9)]);
}
