//! Losses that only the ledger has, in answers and exports of small files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

#[path = "../../tracedat/tests/files/common/mod.rs"]
mod common;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use analysis::answers::{Covered, Sched, SchedAnswer, Scope, Topic, answer};
use capture::LEDGER_OPTION;
use common::{Scratch, setup, switch};
use ctf_writer::summary::read;
use report::{Report, TraceFile};
use serde_json::Value;
use tracedat::ledger::{Ledger, LedgerCpu, Losses};
use tracedat::{Buffer, Compression, FileOption};

const SECOND: u64 = 1_000_000_000;

fn row(cpu: u32, stored: u64, lost: u64) -> LedgerCpu {
    let lost = Losses(vec![("ring_full".to_owned(), lost)]);
    LedgerCpu { cpu, stored: Some(stored), lost, ..LedgerCpu::default() }
}

/// CPU 0 switches each second from 1 to 11. On CPU 1 a worker begins at 2 seconds, what comes then is lost:
/// 40 events. CPU 2 lost all its 9 events.
fn file(scratch: &Scratch, is_lossy: bool) -> PathBuf {
    let mut writer = scratch.writer("t.dat", setup(Compression::default()));
    let rows = if is_lossy { vec![row(0, 11, 0), row(1, 1, 40), row(2, 0, 9)] } else { Vec::new() };
    let bytes = Ledger { version: 3, cpus: rows, ..Ledger::default() }.to_bytes();
    writer.option(&FileOption::Unknown { id: LEDGER_OPTION, bytes }).unwrap();
    let (idle, worker, other) = (("idle", 0), ("worker", 42), ("other", 43));
    let turns = (1..=11).map(|second| {
        let to = if second % 2 == 0 { switch(other, idle) } else { switch(idle, other) };
        (second * SECOND, to)
    });
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(0, common::pages(4096, turns).as_slice()).unwrap();
    let one = [(2 * SECOND, switch(idle, worker))];
    top.write_cpu(1, common::pages(4096, one).as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap();
    scratch.path("t.dat")
}

fn run(command: &str, file: &Path, options: &[&str]) {
    let args = ["tracer-agent", command].into_iter().map(OsString::from);
    let args = args.chain(options.iter().map(OsString::from)).chain([file.into()]);
    assert_eq!(format!("{:?}", cli::run(args)), format!("{:?}", ExitCode::SUCCESS));
}

fn export(file: &Path, format: &str, to: &Path) {
    let to = to.to_str().unwrap().to_owned();
    let args = ["tracer-agent", "export", "-q", "--format", format];
    let args = args.map(OsString::from).into_iter().chain([file.into(), to.into()]);
    assert_eq!(format!("{:?}", cli::run(args)), format!("{:?}", ExitCode::SUCCESS));
}

fn sched(file: &Path) -> (SchedAnswer, Covered) {
    let bytes = fs::read(file).unwrap();
    let file = TraceFile::open("t.dat", bytes).unwrap();
    let scope = Scope::default();
    answer(&file, Topic::Sched, &scope.clone(), Sched::new(scope), &mut |_| {}).unwrap()
}

#[test]
fn an_answer_counts_what_only_the_ledger_has_and_leaves_open_what_went_on() {
    let scratch = Scratch::new();
    let ran = |answer: &SchedAnswer| {
        let worker = answer.threads.iter().find(|thread| thread.tid == 42);
        worker.map_or(0, |thread| thread.run_ns)
    };
    let (answer, covered) = sched(&file(&scratch, false));
    assert_eq!((ran(&answer), covered.lost_events, covered.losses), (9 * SECOND, 0, 0));
    let scratch = Scratch::new();
    let (answer, covered) = sched(&file(&scratch, true));
    assert_eq!((covered.lost_events, covered.losses, covered.losses_uncounted), (49, 2, 0));
    assert_eq!(ran(&answer), 0);
}

#[test]
fn reports_have_losses_behind_the_last_records() {
    let scratch = Scratch::new();
    let files = [TraceFile::open("t.dat", fs::read(file(&scratch, true)).unwrap()).unwrap()];
    let report = Report::new(&files).json(true);
    let mut out = Vec::new();
    let summary = report.run(&mut out, |_| {}).unwrap();
    let lines = String::from_utf8(out).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), summary.lost_behind.len()), (14, 2));
    let told = |line: &Value| {
        let number = |member: &str| line[member].as_u64();
        (number("cpu"), number("lost_behind"), number("since"), line["buffer"].clone())
    };
    assert_eq!(told(&lines[12]), (Some(1), Some(40), Some(2 * SECOND), "".into()));
    assert_eq!(told(&lines[13]), (Some(2), Some(9), None, "".into()));
    // As text, the lines are those of stock trace-cmd.
    let mut out = Vec::new();
    let summary = Report::new(&files).run(&mut out, |_| {}).unwrap();
    assert_eq!((out.split(|byte| *byte == b'\n').count(), summary.lost_behind.len()), (13, 2));
    // What follows the end of the selection is not looked at.
    let selection = report::Selection { until: Some(5 * SECOND), ..report::Selection::default() };
    let summary = Report::new(&files).select(selection).run(&mut Vec::new(), |_| {}).unwrap();
    assert_eq!(summary.lost_behind, []);
}

#[test]
fn info_has_them_in_its_column() {
    let scratch = Scratch::new();
    let path = file(&scratch, true);
    let mut out = Vec::new();
    cli::info::run(&cli::info::Args::new(path, true), &mut out).unwrap();
    let told: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&told["lost_events"], &told["losses_without_count"]), (&49.into(), &0.into()));
    let cpus = told["buffers"][0]["cpus"].as_array().unwrap();
    let behind: Vec<_> = cpus.iter().map(|cpu| (cpu["cpu"].as_u64(), cpu["lost_behind"].as_u64())).collect();
    assert_eq!(behind, [(Some(0), Some(0)), (Some(1), Some(40)), (Some(2), Some(9))]);
}

/// How many events each CPU has lost, by an export as CTF.
fn ctf(file: &Path, to: &Path) -> Vec<(u32, u64)> {
    export(file, "ctf", to);
    let summary = read(to).unwrap();
    let streams = summary.traces.iter().flat_map(|trace| &trace.streams);
    let mut lost: Vec<_> = streams.map(|stream| (stream.cpu, stream.discarded)).collect();
    lost.sort_unstable();
    lost
}

#[test]
fn exports_have_them() {
    let scratch = Scratch::new();
    let file = file(&scratch, true);
    assert_eq!(ctf(&file, &scratch.path("ctf")), [(0, 0), (1, 40), (2, 9)]);

    export(&file, "perf-script", &scratch.path("text"));
    let text = fs::read_to_string(scratch.path("text")).unwrap();
    let lost: Vec<_> = text.lines().filter(|line| line.starts_with("# CPU")).collect();
    assert_eq!(lost, ["# CPU 1: 40 events lost", "# CPU 2: 9 events lost"]);

    export(&file, "chrome", &scratch.path("chrome"));
    let trace: Value = serde_json::from_slice(&fs::read(scratch.path("chrome")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let lost = events.iter().filter(|event| event["name"] == "events lost");
    let mut lost: Vec<_> = lost.map(|event| event["args"]["count"].as_u64()).collect();
    lost.sort_unstable();
    assert_eq!(lost, [Some(9), Some(40)]);
    // The worker is not drawn behind the last record of its CPU.
    let worker = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "worker");
    assert!(worker.into_iter().all(|event| event["dur"].as_f64() == Some(0.0)));

    export(&file, "csv", &scratch.path("csv"));
    let rows = |table: &str| {
        let text = fs::read_to_string(scratch.path("csv").join(table)).unwrap();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let losses: Vec<_> =
        rows("losses.csv").iter().map(|row| row.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let lost: Vec<_> = losses.iter().map(|row| (&*row[1], &*row[3], &*row[4])).collect();
    assert_eq!(lost, [("0", "0", "true"), ("1", "40", "true"), ("2", "9", "true")]);
    assert_eq!(rows("gaps.csv").len(), 2);
}

#[test]
fn a_part_has_only_its_own() {
    let scratch = Scratch::new();
    let file = file(&scratch, true);
    let part = |name: &str, options: &[&str]| {
        let to = scratch.path(&format!("{name}.dat"));
        run("convert", &file, &[options, &["-q", "-o", to.to_str().unwrap()]].concat());
        let lost = ctf(&to, &scratch.path(name));
        (lost, sched(&to).1.lost_events)
    };
    assert_eq!(part("whole", &[]), (vec![(0, 0), (1, 40), (2, 9)], 49));
    assert_eq!(part("first", &["--cpu", "0"]), (vec![(0, 0)], 0));
    assert_eq!(part("second", &["--cpu", "1"]), (vec![(1, 40)], 40));
}
