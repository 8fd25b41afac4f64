//! An analysis says the same of a recording, of its conversions and of its parts put together again; of an
//! import the same or less.

use std::path::Path;

use integration_tests::harness::{agent, run};
use serde_json::Value;

use super::exports::{export, recording};
use super::recordings::MACHINES;
use super::rewrites::{convert, import, merge, split};

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

/// The answer; `None` if the file has no events that the analysis is about.
fn answer(analysis: &str, file: &Path, args: &[&str]) -> Option<Value> {
    let mut command = agent("/".as_ref(), ["analyze", analysis, "--json"]);
    let ended = run(command.args(args).arg(file));
    match ended.code() {
        0 => Some(serde_json::from_str(&ended.out).unwrap()),
        1 => None,
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

#[test]
fn conversions_and_merged_parts_have_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    for (name, _) in MACHINES {
        let file = recording(dir.path(), name);
        let [old, merged] = ["old", "merged"].map(|ending| file.with_extension(ending));
        convert(&file, &["--file-version", "6"], &old);
        merge(&split(&file, 100), &merged);
        let mut answers = 0;
        for (analysis, args) in ANALYSES {
            let expected = answer(analysis, &file, args);
            answers += usize::from(expected.is_some());
            for other in [&old, &merged] {
                assert_eq!(
                    answer(analysis, other, args),
                    expected,
                    "{name}: {analysis} of {}",
                    other.display()
                );
            }
        }
        assert!(answers >= 3, "{name}");
    }
}

/// What tells the elements of a list apart.
const KEYS: [&str; 8] = ["tid", "cpu", "irq", "vector", "device", "address", "number", "event"];

/// What an import has otherwise: which events the file describes and has, their numbers, and what is named or
/// ordered by symbols, which no export carries.
const OTHERWISE: [&str; 10] = [
    "covered",
    "events",
    "id",
    "functions",
    "stacks",
    "sites",
    "without_stack",
    "knows_calls",
    "worst",
    "most",
];

/// Where an answer about an import says something else, as paths of members.
fn contradictions(found: &Value, told: &Value, path: &str, wrong: &mut Vec<String>) {
    match (found, told) {
        // Unknown.
        (Value::Null, _) => {}
        (Value::String(text), _) if matches!(&**text, "unknown" | "[unknown]" | "swapper") => {}
        (Value::Object(found), Value::Object(told)) => {
            for (name, found) in found.iter().filter(|(name, _)| !OTHERWISE.contains(&&***name)) {
                contradictions(found, &told[name], &format!("{path}.{name}"), wrong);
            }
        }
        (Value::Array(found), Value::Array(told)) => {
            for element in found {
                let Some(key) = KEYS.into_iter().find(|key| element.get(*key).is_some()) else { continue };
                match told.iter().find(|other| other[key] == element[key]) {
                    Some(told) => {
                        contradictions(element, told, &format!("{path}[{}]", element[key]), wrong);
                    }
                    None => wrong.push(format!("{path} has {element}")),
                }
            }
        }
        _ if found == told => {}
        _ => wrong.push(format!("{path}: {found}, not {told}")),
    }
}

fn check_import(format: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, _) in MACHINES {
        let file = recording(dir.path(), name);
        let [out, back] = [format, "back"].map(|ending| file.with_extension(ending));
        export(format, &file, &out);
        import(&out, &back);
        let mut answers = 0;
        for (analysis, args) in ANALYSES {
            let Some(found) = answer(analysis, &back, args) else { continue };
            answers += 1;
            let told = answer(analysis, &file, args).expect("an answer about the original");
            let path = format!("{name} {analysis}");
            contradictions(&found, &told, &path, &mut wrong);
        }
        assert!(answers >= 3, "{name}");
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
