//! An analysis says the same of a recording, of its conversions and of its parts put together again; of an
//! import the same or less.

use std::collections::BTreeSet;
use std::path::Path;

use integration_tests::harness::{agent, run};
use serde_json::Value;

use super::exports::{STOCK, export, recording};
use super::recordings::MACHINES;
use super::rewrites::{convert, import, merge, split};
use super::truth::matches;

/// All analyses. One that is not here fails the test.
const ANALYSES: [(&str, &[&str]); 10] = [
    ("sched", &[]),
    ("offcpu", &[]),
    ("cpu", &[]),
    ("stacks", &["--event", "sched_switch"]),
    ("syscalls", &[]),
    ("io", &[]),
    ("irq", &[]),
    ("locks", &[]),
    ("memory", &[]),
    ("summary", &[]),
];

/// The answer; `None` if the file has no events that the analysis is about, or none of the one that is named.
fn answer(analysis: &str, file: &Path, args: &[&str]) -> Option<Value> {
    let mut command = agent("/".as_ref(), ["analyze", analysis, "--json"]);
    let ended = run(command.args(args).arg(file));
    match ended.code() {
        0 => Some(serde_json::from_str(&ended.out).unwrap()),
        1 => None,
        2 if ended.err.contains("no event is described by") => None,
        code => panic!("{analysis} of {} ended with {code}: {}", file.display(), ended.err),
    }
}

#[test]
fn every_analysis_is_compared() {
    let said = run(&mut agent("/".as_ref(), ["analyze", "?", "/dev/null"])).expect(2).err;
    let (_, values) = said.split_once("[possible values: ").unwrap_or_else(|| panic!("{said}"));
    let known: Vec<&str> = values.split(']').next().unwrap().split(", ").collect();
    assert_eq!(known, ANALYSES.map(|(name, _)| name));
}

/// Recordings whose analyses are compared: those that have something for some, and those of stock trace-cmd.
fn recordings() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|(name, _)| *name).chain(STOCK)
}

/// The analyses that answer about each recording.
const ANSWERED: &[(&str, &[&str])] = &[
    ("stacks", &["sched", "offcpu", "stacks", "io", "locks", "memory", "summary"]),
    ("machine", &["sched", "offcpu", "cpu", "stacks", "syscalls", "io", "irq", "locks", "memory", "summary"]),
    (
        "lossy machine",
        &["sched", "offcpu", "cpu", "stacks", "syscalls", "io", "irq", "locks", "memory", "summary"],
    ),
    (
        "k6.12-all-mono",
        &["sched", "offcpu", "cpu", "stacks", "syscalls", "io", "irq", "locks", "memory", "summary"],
    ),
    ("k6.12-graph", &["stacks", "io", "locks", "memory", "summary"]),
    ("k6.12-instances", &["sched", "offcpu", "stacks", "syscalls", "io", "locks", "memory", "summary"]),
    ("k6.12-kprobes", &["io", "locks", "memory", "summary"]),
    ("k6.12-lost", &["syscalls", "io", "locks", "memory", "summary"]),
    (
        "k6.12-sched-irq-timer-zstd",
        &["sched", "offcpu", "cpu", "stacks", "io", "irq", "locks", "memory", "summary"],
    ),
    ("k6.12-sched-v6", &["sched", "offcpu", "stacks", "io", "locks", "memory", "summary"]),
    ("k6.12-stacks", &["sched", "offcpu", "stacks", "io", "locks", "memory", "summary"]),
    ("k6.12-syscalls-none", &["syscalls", "io", "locks", "memory", "summary"]),
];

/// Those of them that do not answer about an import.
const UNANSWERED: &[(&str, &str, &[&str])] = &[
    // Without records of the event, an import does not describe it.
    ("k6.12-graph", "ctf", &["stacks"]),
    ("k6.12-graph", "ctf2", &["stacks"]),
    ("k6.12-graph", "lttng", &["stacks"]),
    ("k6.12-graph", "perf-script", &["stacks"]),
    // The text of these ends says nothing that could be read.
    ("k6.12-syscalls-none", "perf-script", &["syscalls"]),
];

#[test]
fn conversions_and_merged_parts_have_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let mut answered = Vec::new();
    for name in recordings() {
        let file = recording(dir.path(), name);
        let [old, merged] = ["old", "merged"].map(|ending| file.with_extension(ending));
        convert(&file, &["--file-version", "6"], &old);
        merge(&split(&file, if STOCK.contains(&name) { 1000 } else { 100 }), &merged);
        let mut answers = Vec::new();
        for (analysis, args) in ANALYSES {
            let expected = answer(analysis, &file, args);
            answers.extend(expected.is_some().then_some(analysis));
            for other in [&old, &merged] {
                assert_eq!(
                    answer(analysis, other, args),
                    expected,
                    "{name}: {analysis} of {}",
                    other.display()
                );
            }
        }
        answered.push((name, answers));
    }
    let expected: Vec<_> = ANSWERED.iter().map(|(name, answers)| (*name, answers.to_vec())).collect();
    assert_eq!(answered, expected);
}

/// What tells the elements of a list apart.
const KEYS: [&str; 12] =
    ["tid", "cpu", "irq", "vector", "device", "address", "number", "event", "reason", "name", "path", "comm"];

/// Where an import has something else: recording, format and path, in which `*` at the end stands for
/// anything.
type Otherwise = (&'static str, &'static str, &'static str);

const OTHERWISE: &[Otherwise] = &[
    // Which events the file describes and has, and their numbers.
    ("*", "*", "*.covered"),
    ("*", "*", "summary.events.id"),
    // Without symbols, functions go by their addresses.
    ("*", "*", "cpu.unknown_timers"),
    ("*", "ctf*", "memory.kernel.sites.call_site"),
    ("*", "lttng", "memory.kernel.sites.call_site"),
    // An event that the import has with other fields has another name.
    ("stacks", "*", "summary.events"),
    ("k6.12-graph", "perf-script", "summary.events"),
    // Each system call has an event there.
    ("k6.12-*", "lttng", "summary.events"),
    ("k6.12-*", "lttng", "summary.other_events"),
    // One row stands for all that woke a thread, and nobody knows which did so in an interrupt.
    ("k6.12-sched-*", "perf-script", "offcpu.stacks.wakers*"),
    // Ends that are not understood end no call.
    ("k6.12-syscalls-none", "perf-script", "io.threads.unfinished"),
    ("k6.12-syscalls-none", "perf-script", "summary.calls"),
];

/// Recordings that end with a stack, and how long after its event that was made at most: exports in which
/// stacks are at their events end earlier.
const ENDS_WITH_STACK: [&str; 3] = ["machine", "lossy machine", "k6.12-stacks"];
const FOLDED: [&str; 2] = ["lttng", "perf-script"];
const BEHIND_EVENT: u64 = 10_000;

/// Where an answer about an import says something else, by path of members.
#[derive(Default)]
struct Contradictions {
    all: Vec<(String, String)>,
    /// Whether the import lacks events that the answer could be made of, and says so.
    lacks_events: bool,
    /// By how much times may be shorter.
    shorter: u64,
}

/// What an answer says of the events that it lacks.
fn lacking(answer: &Value) -> Vec<&Value> {
    let lists = ["missing", "unseen", "foreign"].map(|list| answer["covered"][list].as_array());
    lists.into_iter().flatten().flatten().collect()
}

impl Contradictions {
    fn find(&mut self, found: &Value, told: &Value, path: &str) {
        match (found, told) {
            _ if is_unknown(found) || found == told => {}
            (Value::Object(found), Value::Object(told)) => {
                for (name, told) in told {
                    let found = found.get(name).unwrap_or(&Value::Null);
                    self.find(found, told, &format!("{path}.{name}"));
                }
            }
            (Value::Array(found), Value::Array(told)) => self.find_in_rows(found, told, path),
            _ => {
                let [of_import, of_file] = [found, told].map(|of| of.as_u64().unwrap_or(0));
                let is_shorter = path.ends_with("_ns") && of_import < of_file;
                if !(is_shorter && of_file - of_import <= self.shorter) {
                    self.all.push((path.to_owned(), format!("{found}, not {told}")));
                }
            }
        }
    }

    fn find_in_rows(&mut self, found: &[Value], told: &[Value], path: &str) {
        // Of frames without names it is not known which are the tracer's, which are left out.
        if found.iter().any(is_unknown) {
            return;
        }
        if found.iter().chain(told).any(|row| key(row).is_empty()) {
            if found.len() != told.len() && !(self.lacks_events && found.len() < told.len()) {
                self.all.push((path.to_owned(), format!("{} rows, not {}", found.len(), told.len())));
            }
            found.iter().zip(told).for_each(|(found, told)| self.find(found, told, path));
            return;
        }
        for row in found {
            let all = told.iter().filter(|other| key(other) == key(row));
            let all = all.map(|told| {
                let mut here = Self { all: Vec::new(), ..*self };
                here.find(row, told, path);
                here.all
            });
            // Several rows may have the same names.
            match all.min_by_key(Vec::len) {
                Some(least) => self.all.extend(least),
                None if has_unknown(row) => {}
                None => self.all.push((path.to_owned(), format!("has {row}"))),
            }
        }
        // What has no name here may be any of them.
        if self.lacks_events || found.iter().any(has_unknown) {
            return;
        }
        for row in told.iter().filter(|row| !found.iter().any(|other| key(other) == key(row))) {
            self.all.push((path.to_owned(), format!("lacks {row}")));
        }
    }
}

fn key(row: &Value) -> Vec<&Value> {
    KEYS.iter().filter_map(|name| row.get(name)).collect()
}

fn has_unknown(row: &Value) -> bool {
    key(row).into_iter().any(is_unknown)
}

fn is_unknown(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| matches!(text, "unknown" | "[unknown]"))
}

fn check_import(format: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (mut wrong, mut unanswered, mut met) = (Vec::new(), Vec::new(), BTreeSet::new());
    for name in recordings() {
        let file = recording(dir.path(), name);
        let [out, back] = [format, "back"].map(|ending| file.with_extension(ending));
        export(format, &file, &out);
        import(&out, &back);
        let mut silent = Vec::new();
        for (analysis, args) in ANALYSES {
            let told = answer(analysis, &file, args);
            let (Some(found), Some(told)) = (answer(analysis, &back, args), &told) else {
                silent.extend(told.is_some().then_some(analysis));
                continue;
            };
            let lacks = lacking(told);
            let may_be_shorter = ENDS_WITH_STACK.contains(&name) && FOLDED.contains(&format);
            let mut contradictions = Contradictions {
                lacks_events: lacking(&found).iter().any(|need| !lacks.contains(need)),
                shorter: if may_be_shorter { BEHIND_EVENT } else { 0 },
                ..Contradictions::default()
            };
            contradictions.find(&found, told, analysis);
            for (path, what) in contradictions.all {
                let is_it = |(recordings, formats, paths): &&Otherwise| {
                    matches(recordings, name)
                        && matches(formats, format)
                        && paths.strip_prefix("*.").map_or(matches(paths, &path), |rest| {
                            path.split_once('.').is_some_and(|(_, path)| path.starts_with(rest))
                        })
                };
                match OTHERWISE.iter().position(|otherwise| is_it(&otherwise)) {
                    Some(index) => {
                        met.insert(index);
                    }
                    None => wrong.push(format!("({name:?}, {format:?}, {path:?}): {what}")),
                }
            }
        }
        if !silent.is_empty() {
            unanswered.push((name, silent));
        }
    }
    for (index, otherwise) in OTHERWISE.iter().enumerate() {
        if matches(otherwise.1, format) && !met.contains(&index) {
            wrong.push(format!("{otherwise:?} is not otherwise"));
        }
    }
    let of_format = UNANSWERED.iter().filter(|(_, of, _)| *of == format);
    let expected: Vec<_> = of_format.map(|(name, _, analyses)| (*name, analyses.to_vec())).collect();
    if unanswered != expected {
        wrong.push(format!("unanswered: {unanswered:?}, not {expected:?}"));
    }
    assert!(wrong.is_empty(), "{format}\n{}", wrong.join("\n"));
}

#[test]
fn imports_of_ctf_contradict_nothing() {
    check_import("ctf");
}

#[test]
fn imports_of_ctf2_contradict_nothing() {
    check_import("ctf2");
}

#[test]
fn imports_of_lttng_contradict_nothing() {
    check_import("lttng");
}

#[test]
fn imports_of_perf_script_contradict_nothing() {
    check_import("perf-script");
}
