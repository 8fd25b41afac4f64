//! Conversions, parts that are merged again, and imports of exports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use integration_tests::harness::{agent, run};
use serde_json::Value;

use super::exports::{all_recordings, export, recording};
use super::readers::{BITS, as_they_are, bits};
use super::recordings;
use super::truth::{Exception, Facet, Loss, Row, Same, Told, Verdict, differences, equal, number};

fn told_by(command: &str, file: &Path) -> String {
    run(agent("/".as_ref(), command.split(' ')).arg(file)).expect(0).out
}

/// All that `report` prints of a file.
fn reports(file: &Path) -> [String; 3] {
    ["report --json", "report", "report -R -t"].map(|command| told_by(command, file))
}

pub(super) fn convert(file: &Path, args: &[&str], to: &Path) {
    run(agent("/".as_ref(), ["convert", "-q"]).args(args).arg("-o").arg(to).arg(file)).expect(0);
}

/// Splits a file into parts of so many events.
pub(super) fn split(file: &Path, events: u64) -> Vec<PathBuf> {
    let prefix = file.with_extension("part");
    let events = events.to_string();
    run(agent("/".as_ref(), ["split", "-q", "-r", "-e", &events, "-o"]).arg(&prefix).arg("-i").arg(file))
        .expect(0);
    let parts = (1..).map(|number| PathBuf::from(format!("{}.{number}", prefix.display())));
    parts.take_while(|part| part.exists()).collect()
}

pub(super) fn merge(parts: &[PathBuf], to: &Path) {
    run(agent("/".as_ref(), ["merge", "-q", "-o"]).arg(to).args(parts)).expect(0);
}

/// Imports an export, with the formats of no kernel.
pub(super) fn import(source: &Path, to: &Path) {
    let formats = tempfile::tempdir().unwrap();
    let mut command = agent("/".as_ref(), ["import", "-q", "--formats"]);
    run(command.arg(formats.path()).arg("-o").arg(to).arg(source)).expect(0);
}

#[test]
fn conversions_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for name in recordings::all_names() {
        let file = recording(dir.path(), name);
        let whole = reports(&file);
        for args in [
            &["--file-version", "6"][..],
            &["--file-version", "7", "--compression", "none"],
            &["--file-version", "7", "--compression", "zstd"],
        ] {
            let to = dir.path().join(format!("{}-{}", name.replace(' ', "-"), args.concat()));
            convert(&file, args, &to);
            assert_eq!(reports(&to), whole, "{name} {args:?}");
            let found = differences(&Told::of(&to), &Told::of(&file), as_they_are);
            assert_eq!(found, BTreeMap::new(), "{name} {args:?}");
        }
    }
}

#[test]
fn parts_say_no_more_than_the_whole_and_all_of_them_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for name in recordings::all_names() {
        let file = recording(dir.path(), name);
        let whole = Told::of(&file);
        if whole.rows.is_empty() {
            // Without events there are no parts.
            continue;
        }
        let parts = split(&file, 1 + whole.rows.len() as u64 / 3);
        let mut sums = BTreeMap::<(String, u64), Loss>::new();
        let mut records = 0;
        for part in parts.iter().map(|part| Told::of(part)) {
            records += part.rows.len();
            for (place, (known, unknown)) in part.sums.unwrap() {
                let sum = sums.entry(place).or_default();
                *sum = (sum.0 + known, sum.1 + unknown);
            }
        }
        assert_eq!(records, whole.rows.len(), "{name}");
        for (place, (known, unknown)) in sums {
            let (of_whole, _) = whole.sums.as_ref().unwrap()[&place];
            // A part need not know how many of them it lacks.
            assert!(known <= of_whole, "{name}: {place:?}: {known} of {of_whole}, {unknown} not counted");
        }
        if parts.is_empty() {
            continue;
        }
        let merged = file.with_extension("merged");
        merge(&parts, &merged);
        let found = differences(&Told::of(&merged), &whole, as_they_are);
        assert_eq!(found, BTreeMap::new(), "{name}");
        assert_eq!(reports(&merged), reports(&file), "{name}");
    }
}

/// How what was exported in a format compares with what an import of it has.
struct Import {
    format: &'static str,
    same: Same,
    /// What an import of an export has otherwise.
    differs: &'static [Exception],
    /// What an import of the import's export has otherwise than the import.
    differs_again: &'static [Exception],
}

/// No format has symbols or names of values, a message with its text is one text, and a loss of unknown size
/// is one event.
const OF_CTF: &[Exception] = &[
    (Facet::Symbols, "*", "*"),
    (Facet::Names, "*", "*"),
    (Facet::Event, "stacks", "ftrace:bprint"),
    (Facet::Lost, "lossy", "made:plain"),
    (Facet::Sums, "lossy", ""),
];

const IMPORTS: [Import; 4] = [
    Import { format: "ctf", same: as_ctf_brings_it_back, differs: OF_CTF, differs_again: &[] },
    Import { format: "ctf2", same: as_ctf_brings_it_back, differs: OF_CTF, differs_again: &[] },
    Import {
        format: "lttng",
        same: as_ctf_brings_it_back,
        differs: &[
            (Facet::Symbols, "*", "*"),
            (Facet::Names, "*", "*"),
            (Facet::StackTimes, "*", "*"),
            (Facet::Event, "stacks", "ftrace:bprint"),
            (Facet::Lost, "lossy", "made:plain"),
            (Facet::Sums, "lossy", ""),
            // System calls are events of their own in LTTng's traces, with typed arguments.
            (Facet::System, "*", "raw_syscalls:*"),
            (Facet::Event, "*", "raw_syscalls:*"),
            (Facet::Fields, "*", "raw_syscalls:*"),
            // The texts behind these were not recorded.
            (Facet::Fields, "k6.12-*", "syscalls:sys_enter_execve.filename"),
            (Facet::Fields, "k6.12-*", "syscalls:sys_enter_newfstatat.filename"),
            (Facet::Fields, "k6.12-*", "syscalls:sys_enter_openat.filename"),
            (Facet::Fields, "k6.12-*", "syscalls:sys_enter_readlink.path"),
            // Arguments that have a sign.
            (Facet::Fields, "k6.12-syscalls-none", "syscalls:sys_enter_newfstatat.dfd"),
            (Facet::Fields, "k6.12-syscalls-none", "syscalls:sys_enter_openat.dfd"),
            (Facet::Fields, "k6.12-syscalls-none", "syscalls:sys_enter_wait4.upid"),
            // LTTng names the processes and the threads, too.
            (Facet::Fields, "*", "block:block_rq_issue.tid"),
            (Facet::Fields, "k6.12-sched-*", "sched:sched_process_fork.child_tgid"),
            (Facet::Fields, "k6.12-sched-*", "sched:sched_process_fork.parent_tgid"),
        ],
        differs_again: &[],
    },
    Import {
        format: "perf-script",
        same: as_a_text_has_it,
        differs: &[
            (Facet::Symbols, "*", "*"),
            (Facet::Names, "*", "*"),
            (Facet::Flags, "*", "*"),
            (Facet::Preempt, "*", "*"),
            (Facet::StackTimes, "*", "*"),
            // Texts have other fields than these events of ftrace.
            (Facet::Event, "k6.12-graph", "ftrace:funcgraph_*"),
            (Facet::Event, "stacks", "ftrace:bprint"),
            (Facet::Event, "stacks", "ftrace:bputs"),
            (Facet::Event, "stacks", "ftrace:print"),
            // The format has the quotes.
            (Facet::Fields, "*", "kprobes:opens.path"),
            // Texts with line feeds and equals signs cannot be taken apart.
            (Facet::Fields, "names", "made:plain.text"),
            // The format has hexadecimal numbers, and nothing that says so.
            (Facet::Fields, "k6.12-syscalls-none", "signal:signal_deliver.sa_flags"),
            (Facet::Fields, "k6.12-syscalls-none", "signal:signal_deliver.sa_handler"),
        ],
        differs_again: &[],
    },
];

/// A set of bits is its bytes.
fn as_ctf_brings_it_back(facet: Facet, row: &Row, found: &Value, told: &Value) -> bool {
    let (Value::Object(found), Value::Object(told), Facet::Fields) = (found, told, facet) else {
        return as_they_are(facet, row, found, told);
    };
    let is_same = |(name, told): (&String, &Value)| match (found.get(name), told) {
        (Some(Value::Array(bytes)), told) if BITS.contains(&&**name) => {
            bits(bytes, 8) == *told || equal(&found[name], told)
        }
        (found, told) => found.is_some_and(|found| equal(found, told)),
    };
    found.len() == told.len() && told.iter().all(is_same)
}

/// A text has some fields under other names or as names of values; what it has as a number or a text is the
/// same.
fn as_a_text_has_it(facet: Facet, row: &Row, found: &Value, told: &Value) -> bool {
    if facet != Facet::Fields {
        return as_they_are(facet, row, found, told);
    }
    let (found, told) = (found.as_object().unwrap(), told.as_object().unwrap());
    found.iter().filter_map(|(name, found)| Some((found, told.get(name)?))).all(|(found, told)| {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        let is_address = || found.as_str().and_then(hex).map(i128::from) == number(told);
        match (number(found), number(told)) {
            (Some(found), Some(told)) => found == told,
            (None, Some(_)) => found.as_str().and_then(hex).is_none() || is_address(),
            _ => told.is_array() || found == told,
        }
    })
}

fn check_import(format: &str) {
    let import_of = IMPORTS.iter().find(|of| of.format == format).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut first = Verdict::new(import_of.differs.iter().copied());
    let mut second = Verdict::new(import_of.differs_again.iter().copied());
    for name in all_recordings() {
        let file = recording(dir.path(), name);
        let [out, again] = ["first", "second"].map(|time| file.with_extension(format!("{time}.{format}")));
        let [back, twice] = ["first", "second"].map(|time| file.with_extension(format!("{time}.back")));
        export(format, &file, &out);
        import(&out, &back);
        let of = |file: &Path| Told::of(file).with_stacks_folded();
        first.take(name, differences(&of(&back), &of(&file), import_of.same));
        // What was lost on the way was lost the first time.
        export(format, &back, &again);
        import(&again, &twice);
        second.take(name, differences(&of(&twice), &of(&back), import_of.same));
    }
    first.pass(format);
    second.pass(&format!("{format} again"));
}

#[test]
fn imports_of_ctf() {
    check_import("ctf");
}

#[test]
fn imports_of_ctf2() {
    check_import("ctf2");
}

#[test]
fn imports_of_lttng() {
    check_import("lttng");
}

#[test]
fn imports_of_perf_script() {
    check_import("perf-script");
}
