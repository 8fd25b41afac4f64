//! `hist` and `diff` against what stock trace-cmd prints of the same recordings.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Output,
};

use integration_tests::{
    harness::agent,
    trace_cmd::{self, Line},
};

const SCHED: &str = "k6.12-sched-irq-timer-zstd.dat";

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name)
}

fn run(args: &[&str]) -> Output {
    agent(Path::new("/"), args).output().expect("the agent runs")
}

#[track_caller]
fn said(args: &[&str]) -> String {
    let output = run(args);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{args:?}: {}\n{err}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The member of a JSON object in the agent's own compact form.
fn number(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}"));
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
}

/// Stock's lines with raw fields.
fn raw(path: &Path) -> Vec<Line> {
    trace_cmd::lines(&trace_cmd::report(path, &["-R", "-t"]))
}

/// A field of a raw line; the last of the name, for texts before it can hold anything.
fn field(line: &Line, name: &str) -> Option<String> {
    let fields = format!(" {}", line.fields);
    let (_, rest) = fields.rsplit_once(&format!(" {name}="))?;
    Some(rest.split_whitespace().next()?.to_owned())
}

#[test]
fn counts_and_sums_are_those_of_stocks_text() {
    let path = recording(SCHED);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut sums: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut events: BTreeMap<String, u64> = BTreeMap::new();
    for line in raw(&path) {
        *events.entry(line.event.clone()).or_default() += 1;
        match line.event.as_str() {
            "sched_switch" => *counts.entry(field(&line, "next_pid").unwrap()).or_default() += 1,
            "sched_stat_runtime" => {
                let runtime = field(&line, "runtime").unwrap().parse().unwrap();
                sums.entry(field(&line, "pid").unwrap()).or_default().push(runtime);
            }
            _ => {}
        }
    }
    let file = path.to_str().unwrap();
    // Rows as they are printed: keys, then numbers, then a bar.
    let rows = |args: &[&str]| -> BTreeMap<String, Vec<u64>> {
        let text = said(&[&["hist", file], args].concat());
        let (table, _) = text.split_once("\n\n").unwrap();
        table
            .lines()
            .skip(1)
            .map(|line| {
                let mut words = line.split_whitespace();
                let key = words.next().unwrap().to_owned();
                (key, words.map_while(|word| word.parse().ok()).collect())
            })
            .collect()
    };
    let single = |counts: BTreeMap<String, u64>| -> BTreeMap<String, Vec<u64>> {
        counts.into_iter().map(|(key, count)| (key, vec![count])).collect()
    };
    assert!(counts.len() > 10);
    assert_eq!(rows(&["sched_switch", "next_pid"]), single(counts.clone()));
    assert_eq!(rows(&[".*"]), single(events));
    let expected: BTreeMap<_, _> = sums
        .iter()
        .map(|(pid, times)| {
            let (sum, count) = (times.iter().sum::<u64>(), times.len() as u64);
            let (least, most) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
            (pid.clone(), vec![count, sum, least, sum / count, most])
        })
        .collect();
    assert_eq!(rows(&["sched_stat_runtime", "pid", "--value", "runtime"]), expected);

    // What finds no room is counted together; what is cut off is told.
    let total: u64 = counts.values().sum();
    let json = said(&["hist", file, "sched_switch", "next_pid", "--max-keys", "3", "--limit", "2", "--json"]);
    assert_eq!((number(&json, "records"), number(&json, "distinct")), (total, 3));
    assert_eq!(json.matches("\"keys\":[\"").count(), 3, "the heads and two rows: {json}");
    let (_, overflow) = json.split_once("\"overflow\":").unwrap();
    assert!(number(overflow, "count") > 0, "{json}");

    // By size, by name, by power of two; a condition; two keys.
    let text =
        said(&["hist", file, "sched_switch: next_pid != 0", "next_pid.execname", "CPU", "--sort", "key"]);
    assert!(text.contains("trace-cmd-") && !text.contains("<idle>"), "{text}");
    let text = said(&["hist", file, "sched_stat_runtime", "runtime.log2"]);
    assert!(text.contains("2^1"), "{text}");
    let text = said(&["hist", file, "softirq_entry", "vec.name"]);
    assert!(text.contains("TIMER") && text.contains("RCU"), "{text}");
    let text = said(&["hist", file, "hrtimer_start", "function.sym", "--sort", "count", "--reverse"]);
    assert!(text.contains("tick_nohz_handler"), "{text}");
}

#[test]
fn latencies_are_those_of_stocks_text() {
    let path = recording(SCHED);
    let mut woken: BTreeMap<String, u64> = BTreeMap::new();
    let (mut times, mut restarted, mut unmatched) = (Vec::new(), 0, 0);
    for line in raw(&path) {
        match line.event.as_str() {
            "sched_waking" => {
                restarted += u64::from(woken.insert(field(&line, "pid").unwrap(), line.time).is_some());
            }
            "sched_switch" => match woken.remove(&field(&line, "next_pid").unwrap()) {
                Some(start) => times.push(line.time - start),
                None => unmatched += 1,
            },
            _ => {}
        }
    }
    times.sort_unstable();
    assert!(times.len() > 20, "{} latencies", times.len());
    let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    let file = path.to_str().unwrap();
    let question = ["hist", file, "--from", "sched_waking", "--to", "sched_switch", "--key", "pid=next_pid"];
    let json = said(&[&question[..], &["--json"]].concat());
    for (name, expected) in [
        ("count", times.len() as u64),
        ("min", times[0]),
        ("avg", times.iter().sum::<u64>() / times.len() as u64),
        ("p50", percentile(50)),
        ("p90", percentile(90)),
        ("p99", percentile(99)),
        ("max", *times.last().unwrap()),
        ("restarted", restarted),
        ("unmatched", unmatched),
        ("open", woken.len() as u64),
        ("overflow", 0),
    ] {
        // The list of ranges has counts, too.
        let (before, list) = json.split_once("\"log2\":[").unwrap();
        let (_, after) = list.split_once(']').unwrap();
        let found = number(&format!("{before}{after}"), name);
        assert_eq!(found, expected, "{name}: {json}");
    }
    let text = said(&question);
    assert!(text.contains("p99") && text.contains("####") && text.contains('█'), "{text}");
    let few = said(&[&question[..], &["--max-keys", "1", "--json"]].concat());
    assert!(number(&few, "overflow") > 0, "{few}");
}

#[test]
fn recordings_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (sched, all) = (recording(SCHED), recording("k6.12-all-mono.dat"));
    let (a, b) = (sched.to_str().unwrap(), all.to_str().unwrap());
    assert_eq!(said(&["diff", a, a, "--values"]), "");
    // The same records in another file.
    let copy = dir.path().join("copy.dat");
    let copy = copy.to_str().unwrap();
    let converted =
        trace_cmd::run(["convert", "-i", a, "-o", copy, "--file-version", "7", "--compression", "none"]);
    assert_eq!(converted.code, Some(0), "{converted:?}");
    assert_eq!(said(&["diff", a, copy, "--values"]), "");

    let output = run(&["diff", a, b, "--json", "--values"]);
    assert_eq!(output.status.code(), Some(1));
    let json = String::from_utf8(output.stdout).unwrap();
    let count = |path: &Path, event: &str| raw(path).iter().filter(|line| line.event == event).count();
    for event in ["sched:sched_switch", "irq:softirq_entry", "kmem:kmalloc"] {
        let name = event.split_once(':').unwrap().1;
        let expected = format!("\"{event}\":[{},{}]", count(&sched, name), count(&all, name));
        assert!(json.contains(&expected), "{expected} is not in {json}");
    }
    let text = String::from_utf8(run(&["diff", a, b, "--values", "--ignore", "common_pid"]).stdout).unwrap();
    for part in ["EVENTS by kind", "EVENTS by CPU", "VALUES that differ", "RECORDS without a partner"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(run(&["diff", a, b, "--quiet"]).stdout.is_empty());
}

#[test]
fn mistakes_are_explained() {
    let path = recording(SCHED);
    let file = path.to_str().unwrap();
    for (args, code, expected) in [
        (&["hist", file, "sched_switch", "next_pidd"][..], 2, "did you mean next_pid"),
        (&["hist", file, "sched_swich", "next_pid"], 2, "did you mean `sched/sched_switch`"),
        (&["hist", file, "sched_switch", "next_pid.what"], 2, "there is no `.what`; there are .hex .sym"),
        (&["hist", file, "sched_switch", "next_pid.syscall"], 2, "no names for the numbers of system calls"),
        (&["hist", file, "sched_switch", "next_pid", "--sort", "size"], 2, "--sort size: sort by count"),
        (&["hist", file, "--from", "sched_waking"], 2, "--to"),
        (&["hist", file], 2, "EVENT"),
        (&["hist", "/nonexistent/file", "x"], 1, "cannot open /nonexistent/file"),
        (&["diff", file], 2, "<B>"),
        (&["diff", file, "/nonexistent/file"], 1, "cannot open /nonexistent/file"),
        (&["diff", file, file, "--ignore", "x"], 2, "--values"),
    ] {
        let output = run(args);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && err.contains(expected), "{args:?}: {output:?}");
    }
}
