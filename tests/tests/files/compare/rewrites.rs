//! Conversions, parts that are merged again, and imports of exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::harness::{agent, run};

use super::exports::{export, recording};
use super::readers::as_they_are;
use super::recordings::RECORDINGS;
use super::truth::{Facet, Loss, Told, differences};

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
    for (name, _) in RECORDINGS {
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
    for (name, _) in RECORDINGS {
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

/// What an import of both versions of CTF lacks. Messages with their texts have no place in `bprint`.
const OF_CTF: &[Facet] =
    &[Facet::Event, Facet::Fields, Facet::Symbols, Facet::Names, Facet::Lost, Facet::Sums];

/// What an import of our own export lacks in some recording, and what one of its export lacks besides.
const IMPORTS: &[(&str, &[Facet], &[Facet])] = &[
    ("ctf", OF_CTF, &[]),
    ("ctf2", OF_CTF, &[]),
    (
        "lttng",
        &[Facet::System, Facet::Event, Facet::Fields, Facet::Symbols, Facet::Names, Facet::Lost, Facet::Sums],
        // Names of threads that were contexts, and events that have become those of another system.
        &[Facet::Comm, Facet::System],
    ),
    (
        "perf-script",
        &[Facet::Event, Facet::Fields, Facet::Symbols, Facet::Names],
        &[Facet::Comm, Facet::Event],
    ),
];

fn check_import(format: &str) {
    let (_, not_carried, again_lacks) = IMPORTS.iter().find(|(name, ..)| *name == format).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut differs, mut wrong) = (BTreeSet::new(), Vec::new());
    for (name, _) in RECORDINGS {
        let file = recording(dir.path(), name);
        let [out, again] = ["first", "second"].map(|time| file.with_extension(format!("{time}.{format}")));
        let [back, twice] = ["first", "second"].map(|time| file.with_extension(format!("{time}.back")));
        export(format, &file, &out);
        import(&out, &back);
        let of = |file: &Path| Told::of(file).with_stacks_folded();
        for (facet, example) in differences(&of(&back), &of(&file), as_they_are) {
            differs.insert(facet);
            if !not_carried.contains(&facet) {
                wrong.push(format!("{name}: {facet:?} is {example}"));
            }
        }
        // What was lost on the way was lost the first time.
        export(format, &back, &again);
        import(&again, &twice);
        let mut found = differences(&of(&twice), &of(&back), as_they_are);
        found.retain(|facet, _| !again_lacks.contains(facet));
        wrong.extend(
            found.into_iter().map(|(facet, example)| format!("{name} again: {facet:?} is {example}")),
        );
    }
    assert!(wrong.is_empty(), "{format}\n{}", wrong.join("\n"));
    let listed: BTreeSet<Facet> = not_carried.iter().copied().collect();
    assert_eq!(differs, listed, "{format}: what is carried is not on the list");
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
