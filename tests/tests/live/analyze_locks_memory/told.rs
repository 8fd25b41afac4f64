//! Answers as JSON, which is what its schema says, and as tables.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use integration_tests::agent;
use serde_json::Value;

/// An answer, which is what its schema says.
#[track_caller]
pub(crate) fn answer(name: &str, file: &Path, args: &[&str]) -> Value {
    let output = agent::run(
        ["analyze", name, "--json"]
            .iter()
            .map(OsStr::new)
            .chain(args.iter().map(OsStr::new))
            .chain([file.as_os_str()]),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{name} {args:?}: {}\n{said}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    is_valid(&text);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["covered"]["losses"], 0, "{}", answer["covered"]);
    answer
}

/// Compares JSON with the schema of answers, by Debian's python3-jsonschema.
#[track_caller]
pub(crate) fn is_valid(json: &str) {
    const SCRIPT: &str = "
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
for error in jsonschema.Draft202012Validator(schema).iter_errors(json.load(sys.stdin)):
    deepest = jsonschema.exceptions.best_match([error])
    print(list(deepest.absolute_path), deepest.message[:500])
print('end')
";
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/analyses.schema.json");
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", SCRIPT]).arg(schema).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = json.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "end\n");
}

/// The tables of an answer.
#[track_caller]
pub(crate) fn tables(name: &str, file: &Path) -> String {
    let output = agent::run([OsStr::new("analyze"), name.as_ref(), file.as_os_str()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn texts<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

pub(crate) fn rows<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value}"))
}

pub(crate) fn tid(value: &Value) -> Option<u32> {
    value["tid"].as_u64().map(|tid| tid as u32)
}

/// Counts and sums.
pub(crate) type Sums<K> = BTreeMap<K, (u64, u64)>;

pub(crate) fn add<K: Ord>(sums: &mut Sums<K>, key: K, time: u64) {
    let (count, sum) = sums.entry(key).or_default();
    *count += 1;
    *sum += time;
}

pub(crate) fn sum_of(times: &Value) -> (u64, u64) {
    (number(times, "count"), number(times, "total_ns"))
}
