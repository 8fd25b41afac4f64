//! Exports, read by other tools, and what is imported again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::harness::{Ended, agent, run};

use super::readers::{self, as_they_are};
use super::recordings::RECORDINGS;
use super::truth::{Facet, Same, Told, differences};

/// How an export is read, and what is not in it.
struct Format {
    name: &'static str,
    read: fn(&Path) -> Told,
    same: Same,
    /// Whether stacks are at their events.
    folds: bool,
    /// The facets that differ in some recording.
    not_carried: &'static [Facet],
    /// The descriptions that it does not keep.
    undescribed: &'static [&'static str],
}

const NAMES: &str = "events whose values have names: the numbers are there";
const ADDRESSES: &str = "fields that are addresses: they are numbers there";
const SYMBOLS: &str = "symbols of addresses";
const CHOICES: &str = "choices of threads, CPUs and events: readers take the export for a recording of all";
const BUFFERS: &str = "names of buffers";

/// The descriptions that recordings have, and how many.
const DESCRIBED: &[(&str, &str, u64)] = &[
    ("fields", NAMES, 1),
    ("fields", ADDRESSES, 2),
    ("probes", ADDRESSES, 3),
    ("stacks", NAMES, 1),
    ("stacks", ADDRESSES, 5),
    ("buffers", CHOICES, 3),
    ("buffers", BUFFERS, 2),
    ("machine", NAMES, 7),
    ("machine", ADDRESSES, 6),
    ("lossy machine", NAMES, 7),
    ("lossy machine", ADDRESSES, 6),
];

/// How many symbols each recording has.
const SYMBOLS_OF_EACH: u64 = 7;

/// A format that is not here fails the test.
const FORMATS: &[Format] = &[
    Format {
        name: "ctf",
        read: readers::ctf,
        same: readers::as_ctf_has_it,
        folds: false,
        not_carried: &[Facet::Comm, Facet::Symbols, Facet::Names, Facet::Sums, Facet::Scope, Facet::Choices],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS],
    },
    Format {
        name: "ctf2",
        read: readers::ctf2,
        same: readers::as_ctf_has_it,
        folds: false,
        not_carried: &[Facet::Comm, Facet::Symbols, Facet::Names, Facet::Sums, Facet::Scope, Facet::Choices],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS],
    },
    Format {
        name: "lttng",
        read: readers::lttng,
        same: readers::as_lttng_has_it,
        folds: true,
        not_carried: &[
            Facet::Comm,
            Facet::System,
            Facet::Symbols,
            Facet::Names,
            Facet::Sums,
            Facet::Scope,
            Facet::Choices,
        ],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS],
    },
    Format {
        name: "perfetto",
        read: readers::perfetto,
        same: readers::as_perfetto_has_it,
        folds: false,
        not_carried: &[
            Facet::Comm,
            Facet::Buffer,
            Facet::Preempt,
            Facet::System,
            Facet::Symbols,
            Facet::Names,
            Facet::Behind,
            // Those of unknown size are no number.
            Facet::Sums,
            // Without events there are no clocks.
            Facet::Wall,
            Facet::Host,
            Facet::Scope,
            Facet::Choices,
        ],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS, CHOICES, BUFFERS],
    },
    Format {
        name: "chrome",
        read: readers::chrome,
        same: readers::as_chrome_has_it,
        folds: false,
        // Losses are those of CPUs.
        not_carried: &[Facet::Behind, Facet::Sums, Facet::Scope, Facet::Choices],
        undescribed: &[CHOICES],
    },
    Format {
        name: "perf-script",
        read: readers::perf_script,
        same: as_they_are,
        folds: true,
        not_carried: &[
            Facet::Buffer,
            Facet::Flags,
            Facet::Preempt,
            Facet::Fields,
            Facet::Symbols,
            Facet::Names,
            Facet::Wall,
            Facet::Host,
            Facet::Scope,
            Facet::Choices,
        ],
        undescribed: &[ADDRESSES, SYMBOLS],
    },
    Format {
        name: "html",
        read: readers::html,
        same: readers::as_html_has_it,
        folds: false,
        not_carried: &[
            Facet::Buffer,
            Facet::Symbols,
            Facet::Names,
            Facet::Lost,
            Facet::Behind,
            Facet::Host,
            Facet::Scope,
            Facet::Choices,
        ],
        undescribed: &[CHOICES],
    },
    Format {
        name: "csv",
        read: readers::csv,
        same: as_they_are,
        folds: false,
        not_carried: TABLES,
        undescribed: &[CHOICES],
    },
    Format {
        name: "jsonl",
        read: readers::jsonl,
        same: as_they_are,
        folds: false,
        not_carried: TABLES,
        undescribed: &[CHOICES],
    },
    Format {
        name: "parquet",
        read: readers::parquet,
        same: as_they_are,
        folds: false,
        not_carried: TABLES,
        undescribed: &[CHOICES],
    },
    Format {
        name: "arrow",
        read: readers::arrow,
        same: as_they_are,
        folds: false,
        not_carried: TABLES,
        undescribed: &[CHOICES],
    },
    Format {
        name: "sqlite",
        read: readers::sqlite,
        same: readers::as_sqlite_has_it,
        folds: false,
        not_carried: TABLES,
        undescribed: &[CHOICES],
    },
    Format {
        name: "ltt-eventdefs",
        read: readers::eventdefs,
        same: readers::as_eventdefs_has_it,
        folds: false,
        not_carried: &[
            // After 136 years.
            Facet::Time,
            Facet::Comm,
            Facet::Buffer,
            Facet::Symbols,
            Facet::Names,
            Facet::Behind,
            Facet::Sums,
            Facet::Wall,
            Facet::Scope,
            Facet::Choices,
        ],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS, CHOICES, BUFFERS],
    },
    Format {
        name: "lttng-2008",
        read: readers::ltt2008,
        same: readers::as_2008_has_it,
        folds: false,
        not_carried: &[
            Facet::Comm,
            Facet::Symbols,
            Facet::Names,
            Facet::Behind,
            Facet::Sums,
            Facet::Wall,
            Facet::Host,
            Facet::Scope,
            Facet::Choices,
        ],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS, CHOICES],
    },
];

const TABLES: &[Facet] = &[Facet::Scope, Facet::Choices];

/// What summaries say is not carried over, by format and recording.
const SAID: &[(&str, &str, &str, u64)] = &[
    ("ctf", "lossy", "losses of unknown size, counted as one event each", 1),
    ("ctf2", "lossy", "losses of unknown size, counted as one event each", 1),
    ("lttng", "lossy", "losses of unknown size, counted as one event each", 1),
    (
        "ctf",
        "times",
        "the time of day, which the recording does not tell: times count from the clock's zero",
        1,
    ),
    (
        "ctf2",
        "times",
        "the time of day, which the recording does not tell: times count from the clock's zero",
        1,
    ),
    (
        "lttng",
        "times",
        "the time of day, which the recording does not tell: times count from the clock's zero",
        1,
    ),
    ("chrome", "times", "times that are later than a browser can count", 4),
    ("chrome", "names", "records with texts that are not UTF-8, whose wrong bytes are replaced", 1),
    ("html", "times", "times that are later than a browser can count", 4),
    ("perfetto", "names", "texts that are not UTF-8, whose wrong bytes are replaced", 1),
    ("csv", "names", "texts that are not UTF-8, whose wrong bytes are replaced", 3),
    ("jsonl", "names", "texts that are not UTF-8, whose wrong bytes are replaced", 3),
    ("arrow", "names", "texts that are not UTF-8, whose wrong bytes are replaced", 3),
    ("parquet", "names", "texts that are not UTF-8, whose wrong bytes are replaced", 3),
    ("sqlite", "names", "texts that are not UTF-8, whose wrong bytes are replaced", 3),
    ("perf-script", "names", "texts that are not UTF-8, or that a line cannot have, which are escaped", 10),
    ("ltt-eventdefs", "buffers", "buffer of records: those of second are among the others of their CPU", 6),
    ("ltt-eventdefs", "buffers", "buffer of records: those of third are among the others of their CPU", 1),
    ("ltt-eventdefs", "buffers", "events lost behind the last record of a CPU", 4),
    ("ltt-eventdefs", "lossy", "events lost behind the last record of a CPU", 64),
    ("ltt-eventdefs", "lossy machine", "events lost behind the last record of a CPU", 17),
    (
        "ltt-eventdefs",
        "times",
        "times of records with more than 32 bits of seconds, which lack the upper ones",
        2,
    ),
    ("lttng-2008", "buffers", "events lost behind the last record of a CPU", 4),
    ("lttng-2008", "lossy", "events lost behind the last record of a CPU", 64),
    ("lttng-2008", "lossy machine", "events lost behind the last record of a CPU", 17),
];

/// The formats that the command has.
fn formats() -> BTreeSet<String> {
    let said = run(&mut agent("/".as_ref(), ["export", "--format", "?", "x", "y"])).expect(2).err;
    let (_, known) = said.split_once("known: ").unwrap_or_else(|| panic!("{said}"));
    known.lines().next().unwrap().split(", ").map(str::to_owned).collect()
}

pub(super) fn export(format: &str, file: &Path, out: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(out)).expect(0)
}

/// What a summary says is not carried over, and how often.
fn said(ended: &Ended) -> BTreeMap<String, u64> {
    let text = format!("{}{}", ended.out, ended.err);
    let lines = text.lines().skip_while(|line| *line != "not carried over:").skip(1);
    lines
        .take_while(|line| line.starts_with("  "))
        .map(|line| {
            let line = line.trim_start();
            let (count, what) = line.split_once("  ").unwrap_or_else(|| panic!("{line}"));
            (what.to_owned(), count.replace(' ', "").parse().unwrap())
        })
        .collect()
}

pub(super) fn recording(dir: &Path, name: &str) -> PathBuf {
    let (_, make) = RECORDINGS.iter().find(|(other, _)| *other == name).unwrap();
    let path = dir.join(format!("{}.dat", name.replace(' ', "-")));
    make().write(&path);
    path
}

/// Compares a format with all recordings.
fn check(name: &str) {
    let format = FORMATS.iter().find(|format| format.name == name).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut differs, mut wrong) = (BTreeSet::new(), Vec::new());
    for (recording_name, _) in RECORDINGS {
        let file = recording(dir.path(), recording_name);
        let out = dir.path().join(format!("{}.{name}", recording_name.replace(' ', "-")));
        let ended = export(name, &file, &out);
        let truth = Told::of(&file);
        let truth = if format.folds { truth.with_stacks_folded() } else { truth };
        let told = (format.read)(&out);
        let expected =
            SAID.iter().filter(|(format, recording, ..)| (*format, *recording) == (name, recording_name));
        let mut expected: BTreeMap<String, u64> =
            expected.map(|(.., what, count)| ((*what).to_owned(), *count)).collect();
        let of_recording = DESCRIBED.iter().filter(|(recording, ..)| *recording == recording_name);
        let described =
            of_recording.map(|(_, what, count)| (*what, *count)).chain([(SYMBOLS, SYMBOLS_OF_EACH)]);
        let undescribed = described.filter(|(what, _)| format.undescribed.contains(what));
        expected.extend(undescribed.map(|(what, count)| (what.to_owned(), count)));
        if said(&ended) != expected {
            wrong.push(format!("{recording_name}: said {:?}, expected {expected:?}", said(&ended)));
        }
        for (facet, example) in differences(&told, &truth, format.same) {
            differs.insert(facet);
            if !format.not_carried.contains(&facet) {
                wrong.push(format!("{recording_name}: {facet:?} is {example}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{name}\n{}", wrong.join("\n"));
    let listed: BTreeSet<Facet> = format.not_carried.iter().copied().collect();
    assert_eq!(differs, listed, "{name}: what is carried is not on the list");
}

#[test]
fn every_format_is_compared() {
    let known: BTreeSet<String> = FORMATS.iter().map(|format| format.name.to_owned()).collect();
    assert_eq!(formats(), known);
}

#[test]
fn ctf() {
    check("ctf");
}

#[test]
fn ctf2() {
    check("ctf2");
}

#[test]
fn lttng() {
    check("lttng");
}

#[test]
fn perfetto() {
    check("perfetto");
}

#[test]
fn chrome() {
    check("chrome");
}

#[test]
fn perf_script() {
    check("perf-script");
}

#[test]
fn html() {
    check("html");
}

#[test]
fn csv() {
    check("csv");
}

#[test]
fn jsonl() {
    check("jsonl");
}

#[test]
fn parquet() {
    check("parquet");
}

#[test]
fn arrow() {
    check("arrow");
}

#[test]
fn sqlite() {
    check("sqlite");
}

#[test]
fn ltt_eventdefs() {
    check("ltt-eventdefs");
}

#[test]
fn lttng_2008() {
    check("lttng-2008");
}
