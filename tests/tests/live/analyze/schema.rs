//! `--json` is as docs/analyses.schema.json says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use integration_tests::harness::{self, run};
use integration_tests::made_up::{Is, MadeUp};
use integration_tests::{agent, binaries, workload};

use super::recording;

const ANALYSES: [(&str, &[&str]); 10] = super::each_analysis(&[], &["--event", "sched_switch"]);

/// Prints what is wrong with the lines of a file, and which objects of the schema none of them has.
const SCRIPT: &str = "
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
used, validators = set(), {}

def validator(part):
    if id(part) not in validators:
        validators[id(part)] = jsonschema.Draft202012Validator({**part, '$defs': schema['$defs']})
    return validators[id(part)]

def walk(part, value):
    if '$ref' in part:
        walk(schema['$defs'][part['$ref'].rsplit('/', 1)[1]], value)
    for one in part.get('anyOf', []) + part.get('oneOf', []):
        if validator(one).is_valid(value):
            walk(one, value)
    if isinstance(value, dict):
        if 'properties' in part:
            used.add(id(part))
        for name, of in part.get('properties', {}).items():
            if name in value:
                walk(of, value[name])
    if isinstance(value, list):
        for element in value[:100]:
            walk(part.get('items', {}), element)

def objects(part, place):
    if isinstance(part, dict):
        if 'properties' in part and id(part) not in used:
            yield place
        for name, of in part.items():
            yield from objects(of, place + [name])
    if isinstance(part, list):
        for index, of in enumerate(part):
            yield from objects(of, place + [index])

for number, line in enumerate(open(sys.argv[2])):
    answer = json.loads(line)
    # The part for this analysis alone says more of what is wrong than that none of all parts fits.
    part = schema['$defs'][answer['analysis']]
    errors = [error for of in (part, schema) for error in validator(of).iter_errors(answer)]
    for error in errors:
        print(number, answer['analysis'], list(error.absolute_path), error.message[:500])
    if not errors and sys.argv[3] == 'all':
        walk(schema, answer)
if sys.argv[3] == 'all':
    for place in objects(schema, []):
        # Of answers while a recording goes on, which other tests look at.
        if place[:2] != ['$defs', 'live']:
            print('no answer has', *place)
";

/// What is wrong with answers, by Debian's python3-jsonschema. `all`: they are to have whatever the schema
/// describes.
fn faults(dir: &Path, answers: &str, all: bool) -> String {
    let (schema, file) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/analyses.schema.json"), dir.join("answers"));
    std::fs::write(&file, answers).unwrap();
    let args =
        ["-c", SCRIPT, schema.to_str().unwrap(), file.to_str().unwrap(), if all { "all" } else { "some" }];
    binaries::tool(dir, "/usr/bin/python3", &args)
}

/// The answer of an analysis, as it is printed; `None` if the recording has not the events for it.
fn line((analysis, args): (&str, &[&str]), file: &Path) -> Option<String> {
    let args = [&["analyze", analysis, file.to_str().unwrap(), "--json"], args].concat();
    let ended = run(&mut harness::agent("/".as_ref(), args));
    (ended.code() == 0).then_some(ended.out)
}

/// A recording of what seldom happens: one of each kind of what is out of the ordinary.
fn odd(path: &Path) {
    const MS: u64 = 1_000_000;
    let mut made = MadeUp::new(&["sched", "irq", "raw_syscalls", "block", "oom", "vmscan", "kmem"]);
    let irq = [("irq", Is::Number(9))];
    let vector = [("vec", Is::Number(3))];
    made.switch((0, 0), (2, 0), 1);
    made.switch((0, 1), (0, 0), 3);
    // The device 8:0, as records have its number.
    let request = [("dev", Is::Number(8 << 20)), ("sector", Is::Number(64)), ("nr_sector", Is::Number(1))];
    let rwbs = ("rwbs", Is::Text(b"R"));
    made.at((0, 0), 1, "block_rq_issue", &[&request[..], &[("bytes", Is::Number(512)), rwbs]].concat());
    for number in 0..20 {
        made.at((MS + number, 0), 1, "mark_victim", &[("pid", Is::Number(7))]);
    }
    made.at((2 * MS, 0), 1, "irq_handler_entry", &irq);
    made.at((4 * MS, 0), 1, "irq_handler_exit", &irq);
    made.at((5 * MS, 0), 1, "softirq_raise", &vector);
    for call in 0..100 {
        made.at((6 * MS + call * 10, 0), 1, "sys_enter", &[("id", Is::Number(257))]);
        made.at(
            (6 * MS + call * 10 + 5, 0),
            1,
            "sys_exit",
            &[("id", Is::Number(257)), ("ret", Is::Number(-2))],
        );
    }
    made.at((20 * MS, 0), 1, "softirq_entry", &vector);
    made.at((26 * MS, 0), 1, "softirq_exit", &vector);
    // A thread waits for a lock of its process, and another one gives it.
    let futex = |arguments: [u64; 3]| -> Vec<u64> { arguments.into() };
    for (tid, cpu, arguments, result) in [(1, 0, futex([64, 128, 1]), 0), (3, 1, futex([64, 129, 1]), 1)] {
        let call = [("id", Is::Number(202)), ("args", Is::Numbers(&arguments))];
        made.at((27 * MS, cpu), tid, "sys_enter", &call);
        let returns = [("id", Is::Number(202)), ("ret", Is::Number(result))];
        made.at((28 * MS, cpu), tid, "sys_exit", &returns);
    }
    made.switch((30 * MS, 0), (1, 2), 2);
    made.switch((32 * MS, 0), (2, 1), 0);
    // Without wakeups it would not be known that the first thread is blocked.
    made.wake((99 * MS, 0), 0, 2);
    made.at((100 * MS, 0), 0, "block_rq_complete", &[&request[..], &[rwbs]].concat());
    made.switch((100 * MS, 0), (0, 0), 2);
    made.switch((100 * MS, 1), (3, 1), 0);
    made.write(path);
}

#[test]
fn answers_are_as_the_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = ["all-mono", "instances", "lost", "sched-irq-timer-zstd", "stacks"]
        .map(|name| recording(&format!("k6.12-{name}.dat")))
        .into();
    let (all, seldom) = (dir.path().join("all.dat"), dir.path().join("odd.dat"));
    let mut args = vec!["-b".to_owned(), "65536".to_owned()];
    for (analysis, _) in ANALYSES.iter().filter(|(name, _)| *name != "stacks") {
        args.extend(["--for".to_owned(), (*analysis).to_owned()]);
    }
    args.extend(workload::command("mixed", dir.path()));
    agent::record(&all, &args);
    let partly = dir.path().join("partly.dat");
    let args =
        ["-e", "sched:sched_switch", "-f", "prev_pid != 1", "-e", "sched:sched_waking", "sleep", "0.1"];
    agent::record(&partly, args);
    odd(&seldom);
    let mut lines = String::new();
    for analysis in ANALYSES {
        let own = line(analysis, &all);
        lines += &own.unwrap_or_else(|| panic!("{analysis:?} has what it records for itself"));
    }
    files.extend([seldom, partly]);
    for analysis in ANALYSES {
        lines.extend(files.iter().filter_map(|file| line(analysis, file)));
    }
    assert_eq!(faults(dir.path(), &lines, true), "");
    // It tells wrong answers from right ones.
    let mut all_wrong = String::new();
    let wrongs = [
        ("sched", "\"busy_ns\":", "\"busy\":"),
        ("sched", "\"is_woken\":true", "\"is_woken\":1"),
        ("sched", "\"lost_events\":", "\"lost\":"),
        ("syscalls", "\"left_out\":0", "\"left_out\":null"),
        ("syscalls", "\"errno\":", "\"errno\":-"),
        ("irq", "\"latency\":{", "\"latency\":{\"more\":1,"),
        ("irq", "\"analysis\":\"irq\"", "\"analysis\":\"sched\""),
        ("summary", "\"kind\":\"", "\"kind\":\"not_"),
        ("cpu", "\"samples\":", "\"sample\":"),
        ("memory", "\"covered\":{", "\"covered\":{\"more\":1,"),
    ];
    for (analysis, right, wrong) in wrongs {
        let is_its =
            |line: &&str| line.contains(&format!("\"analysis\":\"{analysis}\"")) && line.contains(right);
        let line = lines.lines().filter(is_its).min_by_key(|line| line.len());
        let line = line.unwrap_or_else(|| panic!("{analysis} has {right}"));
        all_wrong += &line.replacen(right, wrong, 1);
        all_wrong.push('\n');
    }
    let told = faults(dir.path(), &all_wrong, false);
    let told: BTreeSet<&str> = told.lines().filter_map(|line| line.split(' ').next()).collect();
    for (number, (.., wrong)) in wrongs.iter().enumerate() {
        assert!(told.contains(&*number.to_string()), "{wrong}: {told:?}");
    }
}
