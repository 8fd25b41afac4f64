//! `hist` and `diff` against what stock trace-cmd prints of the same recordings.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Output,
};

use integration_tests::{
    harness::agent,
    trace_cmd::{self, Line},
};
use serde_json::Value;

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
    let mut hundreds: BTreeMap<String, u64> = BTreeMap::new();
    for (pid, count) in &counts {
        *hundreds.entry((pid.parse::<u64>().unwrap() / 100).to_string()).or_default() += count;
    }
    assert!(1 < hundreds.len() && hundreds.len() < counts.len());
    assert_eq!(rows(&["sched_switch", "next_pid / 100"]), single(hundreds));
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
    // Computed keys pair the same events.
    let computed = [
        "hist",
        file,
        "--from",
        "sched_waking",
        "--to",
        "sched_switch",
        "--key",
        "pid * 2=next_pid + next_pid",
    ];
    assert_eq!(said(&[&computed[..], &["--json"]].concat()).replace(computed[7], question[7]), json);
    let text = said(&question);
    assert!(text.contains("p99") && text.contains("####") && text.contains('█'), "{text}");
    let few = said(&[&question[..], &["--max-keys", "1", "--json"]].concat());
    assert!(number(&few, "overflow") > 0, "{few}");
}

/// The distributions of `--by` in JSON: what each value has, and the others.
fn distributions(args: &[&str]) -> (BTreeMap<String, Value>, Value, Value) {
    let all: Value = serde_json::from_str(&said(&[args, &["--json"]].concat())).unwrap();
    let rows = all["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| (row["by"][0].as_str().unwrap().to_owned(), row.clone())).collect();
    (rows, all["others"].clone(), all)
}

/// Fails unless a distribution is that of these times.
#[track_caller]
fn assert_distribution(found: &Value, times: &mut [u64]) {
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    let sum: u64 = times.iter().sum();
    for (name, expected) in [
        ("count", times.len() as u64),
        ("sum", sum),
        ("min", times[0]),
        ("avg", sum / times.len() as u64),
        ("p50", percentile(50)),
        ("p90", percentile(90)),
        ("p99", percentile(99)),
        ("max", *times.last().unwrap()),
    ] {
        assert_eq!(found[name].as_u64(), Some(expected), "{name}: {found}");
    }
    for range in found["log2"].as_array().unwrap() {
        let from = range["from"].as_u64().unwrap();
        let is_in = |time: &&u64| if from == 0 { **time == 0 } else { **time >= from && **time / 2 < from };
        let expected = times.iter().filter(is_in).count() as u64;
        assert_eq!(range["count"].as_u64(), Some(expected), "from {from}: {found}");
    }
}

#[test]
fn off_cpu_times_of_threads_are_those_of_stocks_text() {
    let path = recording(SCHED);
    let mut off: BTreeMap<String, u64> = BTreeMap::new();
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in raw(&path).iter().filter(|line| line.event == "sched_switch") {
        let [prev, next] = ["prev_pid", "next_pid"].map(|name| field(line, name).unwrap());
        if let Some(start) = off.remove(&next) {
            times.entry(next).or_default().push(line.time - start);
        }
        off.insert(prev, line.time);
    }
    let file = path.to_str().unwrap();
    let question =
        ["hist", file, "--from", "sched_switch", "--to", "sched_switch", "--key", "prev_pid=next_pid"];
    let (rows, others, _) =
        distributions(&[&question[..], &["--by", "prev_pid.hex", "--top", "1000"]].concat());
    assert!(rows.len() > 8 && rows.len() == times.len() && others.is_null(), "{rows:?}");
    for (pid, times) in &mut times {
        assert_distribution(&rows[&format!("{:#x}", pid.parse::<u32>().unwrap())], times);
    }
    // Those with the largest totals, and the rest as one; threads by name.
    let mut order: Vec<_> = times.values().map(|times| (times.iter().sum::<u64>(), times.clone())).collect();
    order.sort_by_key(|(sum, _)| std::cmp::Reverse(*sum));
    let mut rest: Vec<u64> = order[2..].iter().flat_map(|(_, times)| times).copied().collect();
    let (rows, others, all) = distributions(&[&question[..], &["--by", "prev_pid", "--top", "2"]].concat());
    assert_eq!(rows.len(), 2);
    assert_distribution(&others, &mut rest);
    assert_eq!((all["distinct"].as_u64(), all["more"].as_bool()), (Some(times.len() as u64), Some(false)));
    let first = &all["rows"][0];
    assert_eq!(first["sum"].as_u64(), Some(order[0].0));
    let text = said(&[&question[..], &["--by", "prev_pid", "--top", "2"]].concat());
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names[0], "prev_pid");
    assert_eq!(names[1], first["by"][0].as_str().unwrap());
    let (comm, pid) = names[1].rsplit_once('-').unwrap();
    let line = raw(&path).into_iter().find(|line| line.pid.to_string() == pid).unwrap();
    assert_eq!(comm, line.comm);
    assert!(text.contains(&format!("({} others)", times.len() - 2)) && text.contains(" - "), "{text}");
    // Memory is bounded: threads that find no room are among the others.
    let (rows, others, few) =
        distributions(&["hist", file, "sched_switch", "next_prio", "--by", "next_pid", "--max-keys", "3"]);
    assert_eq!(
        (few["distinct"].as_u64(), few["more"].as_bool(), rows.len()),
        (Some(3), Some(true), 3),
        "{few}"
    );
    let switches = raw(&path).iter().filter(|line| line.event == "sched_switch").count() as u64;
    let shown: u64 = rows.values().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(others["count"].as_u64(), Some(switches - shown), "{few}");
}

#[test]
fn latencies_of_system_calls_are_those_of_stocks_text() {
    let path = recording("k6.12-instances.dat");
    let header = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").unwrap();
    let name = |number: &str| {
        let number = format!(" {number}");
        let line = header.lines().find(|line| line.ends_with(&number)).unwrap();
        line.strip_prefix("#define __NR_").unwrap().strip_suffix(&number).unwrap().to_owned()
    };
    let mut begun: BTreeMap<u32, (u64, String)> = BTreeMap::new();
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in raw(&path) {
        match line.event.as_str() {
            "sys_enter" => {
                begun.insert(line.pid, (line.time, field(&line, "id").unwrap()));
            }
            "sys_exit" => {
                if let Some((start, id)) = begun.remove(&line.pid) {
                    times.entry(name(&id)).or_default().push(line.time - start);
                }
            }
            _ => {}
        }
    }
    let file = path.to_str().unwrap();
    let question =
        ["hist", file, "--from", "sys_enter", "--to", "sys_exit", "--key", "common_pid", "--by", "id"];
    let (rows, others, _) = distributions(&[&question[..], &["--top", "1000"]].concat());
    assert!(rows.len() > 20 && rows.len() == times.len() && others.is_null(), "{:?}", rows.keys());
    for (call, times) in &mut times {
        assert_distribution(&rows[call], times);
    }
}

#[test]
fn values_have_a_distribution_for_each_key() {
    let path = recording("k6.12-all-mono.dat");
    let mut sizes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut results: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut negative = 0;
    for line in raw(&path) {
        match line.event.as_str() {
            "kmalloc" => {
                let size = field(&line, "bytes_alloc").unwrap().parse().unwrap();
                sizes.entry(line.comm.clone()).or_default().push(size);
            }
            "sys_exit" => match u64::try_from(field(&line, "ret").unwrap().parse::<i64>().unwrap()) {
                Ok(result) => results.entry(line.cpu.to_string()).or_default().push(result),
                Err(_) => negative += 1,
            },
            _ => {}
        }
    }
    let file = path.to_str().unwrap();
    for (question, mut expected, left_out) in [
        (["kmalloc", "bytes_alloc", "--by", "COMM"], sizes, 0),
        (["sys_exit", "ret", "--by", "CPU"], results, negative),
    ] {
        let (rows, others, all) = distributions(&[&["hist", file][..], &question].concat());
        assert!(!rows.is_empty() && rows.len() == expected.len() && others.is_null(), "{all}");
        for (key, numbers) in &mut expected {
            assert_distribution(&rows[key], numbers);
        }
        assert_eq!(all["negative"].as_u64(), Some(left_out), "{all}");
    }
}

#[test]
fn stacks_are_a_tree_with_the_numbers_of_stocks_text() {
    let path = recording("k6.12-stacks.dat");
    let file = path.to_str().unwrap();
    let report = trace_cmd::report(&path, &[]);
    let events = report.lines().filter(|line| line.contains(" mm_page_alloc: ")).count();
    let outermost = |name: &str| {
        // The last frame of each stack of an allocation; stacks of switches end elsewhere.
        let lines: Vec<_> = report.lines().collect();
        let is_last = |pair: &&[&str]| pair[0].contains(name) && !pair[1].starts_with("=> ");
        lines.windows(2).filter(is_last).count()
    };
    let text = said(&["hist", file, "mm_page_alloc", "stacktrace"]);
    let faults = outermost("=> asm_exc_page_fault ");
    assert!(faults > 100);
    let share = faults as f64 * 100.0 / events as f64;
    assert!(text.contains(&format!("--{share:.2}%--asm_exc_page_fault ({faults})")), "{text}");
    assert!(text.contains(&format!("\n{events} events, ")), "{text}");
    // Records of stacks by themselves, another key above them, a limit, a field that is added up.
    let own = said(&["hist", file, "kernel_stack", "caller", "--limit", "1"]);
    let stacks = report.matches(" kernel_stack: ").count();
    assert!(own.contains(&format!("\n{} {:03} events, ", stacks / 1000, stacks % 1000)), "{own}");
    assert!(own.contains(" other stacks] ("), "{own}");
    let by_comm = said(&["hist", file, "mm_page_alloc", "COMM", "stacktrace"]);
    assert!(by_comm.contains("%--w.sh ("), "{by_comm}");
    let orders: u64 = report
        .lines()
        .filter_map(|line| line.split_once(" order=")?.1.split(' ').next()?.parse::<u64>().ok())
        .sum();
    let json: Value =
        serde_json::from_str(&said(&["hist", file, "mm_page_alloc", "stacktrace", "-a", "order", "--json"]))
            .unwrap();
    assert_eq!(json["total"].as_u64(), Some(orders), "{json}");
    assert!(json["stacks"][0]["stack"].as_array().unwrap().len() > 3, "{json}");
}

#[test]
fn the_file_is_trace_dat_unless_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let hist = |args: &[&str]| {
        let output = agent(dir.path(), ["hist"].iter().chain(args)).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), err)
    };
    let (code, _, err) = hist(&["sched_switch"]);
    assert_eq!(
        (code, err.contains("cannot open trace.dat"), err.contains("is taken for an EVENT")),
        (Some(1), true, true),
        "{err}"
    );
    let path = recording(SCHED);
    let file = path.to_str().unwrap();
    std::fs::copy(&path, dir.path().join("trace.dat")).unwrap();
    // A file without the ending is one, too.
    std::fs::copy(&path, dir.path().join("recording")).unwrap();
    let expected = said(&["hist", file, "sched_switch", "next_pid"]);
    for args in [
        &["sched_switch", "next_pid"][..],
        &["trace.dat", "sched_switch", "next_pid"],
        &["recording", "sched_switch", "next_pid"],
        &["-i", file, "sched_switch", "next_pid"],
    ] {
        assert_eq!(hist(args), (Some(0), expected.clone(), String::new()), "{args:?}");
    }
    assert_eq!(hist(&["sched_switch", "event"]), hist(&["sched_switch"]));
    let (code, _, err) = hist(&[]);
    assert_eq!((code, err.contains("hist needs an EVENT")), (Some(2), true), "{err}");
    // The one other command that reads a file and had no default.
    let export = agent(dir.path(), ["export", "--format", "ctf", "-q", "exported"]).output().unwrap();
    assert!(export.status.success() && dir.path().join("exported/kernel/metadata").is_file(), "{export:?}");
    // Pairs without a key name the likely one.
    for (from, to, key) in [
        ("sched_waking", "sched_switch", "--key pid=next_pid "),
        ("sched_switch", "sched_switch", "--key prev_pid=next_pid "),
        ("softirq_entry", "softirq_exit", "--key CPU "),
        ("irq_handler_entry", "irq_handler_exit", "--key CPU "),
        ("hrtimer_start", "hrtimer_expire_entry", "--key hrtimer "),
    ] {
        let (code, _, err) = hist(&["--from", from, "--to", to]);
        assert!(code == Some(0) && err.contains("without --key") && err.contains(key), "{from}: {err}");
        let key = key.trim_start_matches("--key ").trim_end();
        let (code, _, err) = hist(&["--from", from, "--to", to, "--key", key]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{from}");
    }
    // The help has all modifiers.
    let (_, help, _) = hist(&["--help"]);
    for modifier in [".hex", ".sym ", ".sym-offset", ".syscall", ".execname", ".log2", ".buckets=N", ".name"]
    {
        assert!(help.contains(modifier), "{modifier}: {help}");
    }
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
    for part in ["EVENTS by kind", "EVENTS by CPU", "VALUES that differ", "RECORDS without a counterpart"] {
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
        (&["hist", file, "sched_switch", "next_comm", "--by", "CPU", "--value", "next_pid"], 2, "--value"),
        (&["hist", file, "sched_switch", "--by", "CPU"], 2, "hist EVENT FIELD --by KEY"),
        (&["hist", file, "sched_switch", "next_pid", "--by", "stacktrace"], 2, "counted as a tree"),
        (&["hist", file, "sched_switch", "stacktrace", "--by", "COMM"], 2, "hist EVENT COMM stacktrace"),
        (&["hist", file, "sched_switch", "next_pid", "--top", "3"], 2, "--by"),
        (
            &["hist", file, "--from", "sched_waking", "--to", "sched_switch", "--by", "nothing"],
            2,
            "has a field `nothing`",
        ),
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
