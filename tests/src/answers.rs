//! `tracer-agent analyze --json`, and its answers.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use crate::harness::{agent, run};

/// The answer of an analysis of a recording, which must be had without complaints.
#[track_caller]
pub fn answer(analysis: &str, file: &Path, args: &[&str]) -> Value {
    let mut command = agent("/".as_ref(), ["analyze", analysis].map(OsStr::new));
    let ended = run(command.arg(file).arg("--json").args(args)).expect(0);
    assert_eq!(ended.err, "", "analyze {analysis} {args:?}");
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(answer["analysis"], analysis);
    answer
}

/// The tables of an analysis of a recording as text.
#[track_caller]
pub fn tables(analysis: &str, file: &Path, args: &[&str]) -> String {
    let mut command = agent("/".as_ref(), ["analyze", analysis].map(OsStr::new));
    let ended = run(command.arg(file).args(args)).expect(0);
    assert_eq!(ended.err, "", "analyze {analysis} {args:?}");
    ended.out
}

/// The elements of a member that is a list.
#[track_caller]
pub fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name} in {value}"))
}

/// A member that is a number. `name` may have dots: `times.count`.
#[track_caller]
pub fn number(value: &Value, name: &str) -> u64 {
    let member = name.split('.').fold(value, |value, name| &value[name]);
    member.as_u64().unwrap_or_else(|| panic!("no number {name} in {value}"))
}

/// A member that is a text.
#[track_caller]
pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

/// The threads of an answer with this id, in its order: one, unless the id was used again.
pub fn threads_with(answer: &Value, tid: u32) -> Vec<&Value> {
    list(answer, "threads").iter().filter(|thread| thread["tid"] == tid).collect()
}

/// The only thread of an answer with this id.
#[track_caller]
pub fn thread(answer: &Value, tid: u32) -> &Value {
    let found = threads_with(answer, tid);
    assert_eq!(found.len(), 1, "threads {tid} in {answer}");
    found[0]
}
