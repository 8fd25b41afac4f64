//! Exports, read by other tools, and what is imported again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::harness::{Ended, agent, run};
use integration_tests::trace_cmd;
use serde_json::Value;

use super::readers::{self, as_they_are};
use super::recordings::{self, RECORDINGS, ROTATED};
use super::rewrites::{convert, merge, split};
use super::truth::{Difference, Exception, Facet, Place, Same, Told, Verdict, differences, matches};

/// What was found in an export.
struct Compared {
    told: Told,
    /// What the command said is not in it.
    said: BTreeMap<String, u64>,
    /// What it is to say by the records.
    counted: BTreeMap<String, u64>,
    differences: BTreeMap<Place, Difference>,
}

/// How an export is read, and what is not in it.
struct Format {
    name: &'static str,
    read: fn(&Path) -> Told,
    same: Same,
    /// Whether stacks are at their events.
    folds: bool,
    /// The facets of which it says nothing.
    not_carried: &'static [Facet],
    /// Where it says something else.
    differs: &'static [Exception],
    /// The descriptions that it does not keep.
    undescribed: &'static [&'static str],
    /// What it counts of records whose value is not 0.
    counts: &'static [(Facet, &'static str)],
    /// The facets of which it says nothing where a reader looks, but that are in it in another way.
    described: &'static [Facet],
}

const NAMES: &str = "events whose values have names: the numbers are there";
const CALLS: &str = "events with names of system calls: the numbers are there";
const WALL: &str = "the time of day, which the recording does not tell: times count from the clock's zero";
const ADDRESSES: &str = "fields that are addresses: they are numbers there";
const SYMBOLS: &str = "symbols of addresses";
const CHOICES: &str = "choices of threads, CPUs and events: readers take the export for a recording of all";
const BUFFERS: &str = "names of buffers";
const THREADS: &str = "names of threads: only those in events and in the state at the start are there";
const MACHINE: &str = "names of machines";
const SYSTEMS: &str = "systems of events: their names are there";
const STACK_TIMES: &str = "times of stacks, which have those of their events";

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
    ("machine", ADDRESSES, 8),
    ("lossy machine", NAMES, 7),
    ("lossy machine", ADDRESSES, 8),
    ("machine", CALLS, 2),
    ("lossy machine", CALLS, 2),
    ("times", WALL, 1),
];

/// How many descriptions of a kind a recording has. `None` if it has none.
fn description(recording: &str, what: &str) -> Option<u64> {
    match what {
        SYMBOLS => Some(12),
        MACHINE => Some(1),
        THREADS => Some(recordings::thread_count(recording)),
        _ => {
            DESCRIBED.iter().find(|(of, kind, _)| (*of, *kind) == (recording, what)).map(|(.., count)| *count)
        }
    }
}

/// Words of the summary about what is missing.
const WORDS: &[(Facet, &str)] = &[
    (Facet::Names, NAMES),
    (Facet::Names, CALLS),
    (Facet::Symbols, SYMBOLS),
    (Facet::Buffer, BUFFERS),
    (Facet::Host, MACHINE),
    (Facet::Comm, THREADS),
    (Facet::Scope, CHOICES),
    (Facet::Choices, CHOICES),
    (Facet::System, SYSTEMS),
    (Facet::Flags, "flags of records"),
    (Facet::Preempt, "preempt counts of records"),
    (Facet::StackTimes, STACK_TIMES),
    (Facet::Wall, WALL),
    (Facet::Behind, "events lost behind the last record of a CPU"),
];

/// A format that is not here fails the test.
const FORMATS: &[Format] = &[
    Format {
        name: "ctf",
        read: readers::ctf,
        same: readers::as_ctf_has_it,
        folds: false,
        not_carried: OF_CTF,
        differs: &[(Facet::Sums, "lossy", "")],
        undescribed: &[NAMES, CALLS, ADDRESSES, SYMBOLS, WALL],
        counts: &[],
        described: &[],
    },
    Format {
        name: "ctf2",
        read: readers::ctf2,
        same: readers::as_ctf_has_it,
        folds: false,
        not_carried: OF_CTF,
        differs: &[(Facet::Sums, "lossy", "")],
        undescribed: &[NAMES, CALLS, ADDRESSES, SYMBOLS, WALL],
        counts: &[],
        described: &[],
    },
    Format {
        name: "lttng",
        read: readers::lttng,
        same: readers::as_lttng_has_it,
        folds: true,
        not_carried: &[Facet::System, Facet::Symbols, Facet::Names, Facet::StackTimes],
        differs: &[(Facet::Sums, "lossy", "")],
        undescribed: &[NAMES, ADDRESSES, SYMBOLS, WALL],
        counts: &[(Facet::StackTimes, STACK_TIMES)],
        // Calls have their names in those of their events.
        described: &[Facet::System, Facet::Names],
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
            Facet::Scope,
            Facet::Choices,
            Facet::Host,
        ],
        differs: &[
            // Those of unknown size are no number.
            (Facet::Sums, "lossy", ""),
            // Without events there are no clocks.
            (Facet::Wall, "empty", ""),
            // Its own events do not have these.
            (Facet::Fields, "k6.12-*", "signal:signal_generate.errno"),
            (Facet::Fields, "k6.12-*", "signal:signal_deliver.errno"),
            (Facet::Fields, "k6.12-*", "signal:signal_deliver.sa_handler"),
        ],
        undescribed: &[NAMES, CALLS, ADDRESSES, SYMBOLS, CHOICES, BUFFERS, THREADS, MACHINE],
        counts: &[
            (Facet::Preempt, "preempt counts of records, which Perfetto's events do not have"),
            (Facet::System, SYSTEMS),
        ],
        // A packet behind the last record has a mark.
        described: &[Facet::Behind, Facet::Wall],
    },
    Format {
        name: "chrome",
        read: readers::chrome,
        same: readers::as_chrome_has_it,
        folds: false,
        not_carried: &[Facet::Scope, Facet::Choices],
        differs: &[],
        undescribed: &[CHOICES],
        counts: &[],
        described: &[],
    },
    Format {
        name: "perf-script",
        read: readers::perf_script,
        same: readers::as_perf_script_has_it,
        folds: true,
        not_carried: &[Facet::Flags, Facet::Preempt, Facet::Symbols, Facet::Names, Facet::StackTimes],
        differs: &[],
        undescribed: &[CALLS, ADDRESSES, SYMBOLS],
        counts: &[
            (Facet::Flags, "flags of records, as of interrupts, which a line has no place for"),
            (Facet::Preempt, "preempt counts of records, which a line has no place for"),
            (Facet::StackTimes, STACK_TIMES),
        ],
        described: &[Facet::Names],
    },
    Format {
        name: "html",
        read: readers::html,
        same: readers::as_html_has_it,
        folds: false,
        not_carried: &[Facet::Buffer, Facet::Scope, Facet::Choices],
        differs: &[],
        undescribed: &[CHOICES, BUFFERS],
        counts: &[],
        described: &[],
    },
    Format {
        name: "csv",
        read: readers::csv,
        same: as_they_are,
        folds: false,
        not_carried: OF_TABLES,
        differs: &[],
        undescribed: &[CHOICES],
        counts: &[],
        described: &[],
    },
    Format {
        name: "jsonl",
        read: readers::jsonl,
        same: as_they_are,
        folds: false,
        not_carried: OF_TABLES,
        differs: &[],
        undescribed: &[CHOICES],
        counts: &[],
        described: &[],
    },
    Format {
        name: "parquet",
        read: readers::parquet,
        same: as_they_are,
        folds: false,
        not_carried: OF_TABLES,
        differs: &[],
        undescribed: &[CHOICES],
        counts: &[],
        described: &[],
    },
    Format {
        name: "arrow",
        read: readers::arrow,
        same: as_they_are,
        folds: false,
        not_carried: OF_TABLES,
        differs: &[],
        undescribed: &[CHOICES],
        counts: &[],
        described: &[],
    },
    Format {
        name: "sqlite",
        read: readers::sqlite,
        same: readers::as_sqlite_has_it,
        folds: false,
        not_carried: OF_TABLES,
        differs: &[],
        undescribed: &[CHOICES],
        counts: &[],
        described: &[],
    },
    Format {
        name: "ltt-eventdefs",
        read: readers::eventdefs,
        same: readers::as_eventdefs_has_it,
        folds: false,
        not_carried: &[
            Facet::Comm,
            Facet::Buffer,
            Facet::Symbols,
            Facet::Names,
            Facet::Behind,
            Facet::Wall,
            Facet::Scope,
            Facet::Choices,
        ],
        differs: &[
            // After 136 years.
            (Facet::Time, "times", "made:plain"),
            // Those behind the last record are counted.
            (Facet::Sums, "buffers", ""),
            (Facet::Sums, "lossy*", ""),
        ],
        undescribed: &[NAMES, CALLS, ADDRESSES, SYMBOLS, CHOICES, BUFFERS, THREADS],
        counts: &[],
        // Times are wall time.
        described: &[Facet::Wall],
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
            Facet::Host,
            Facet::Scope,
            Facet::Choices,
        ],
        differs: &[
            // Those behind the last record are counted.
            (Facet::Sums, "buffers", ""),
            (Facet::Sums, "lossy*", ""),
        ],
        undescribed: &[NAMES, CALLS, ADDRESSES, SYMBOLS, CHOICES, THREADS, MACHINE],
        counts: &[],
        described: &[],
    },
];

const OF_TABLES: &[Facet] = &[Facet::Scope, Facet::Choices];

const OF_CTF: &[Facet] = &[Facet::Symbols, Facet::Names];

const TEXTS_BEHIND: &str =
    "texts that arguments of system calls point to, which were not recorded: \"unknown\" is written";
const PROCESSES: &str =
    "processes of threads, which the recording does not tell: the threads' own numbers are written";
const SMALL: &str =
    "numbers of system calls and interrupts above 255 in events of state (recorded events have them)";

/// What summaries say is not carried over, by format and recording.
const SAID: &[(&str, &str, &str, u64)] = &[
    ("ctf", "lossy", "losses of unknown size, counted as one event each", 1),
    ("ctf2", "lossy", "losses of unknown size, counted as one event each", 1),
    ("lttng", "lossy", "losses of unknown size, counted as one event each", 1),
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
    // Of stock trace-cmd.
    ("lttng", "k6.12-all-mono", TEXTS_BEHIND, 2),
    ("lttng", "k6.12-instances", TEXTS_BEHIND, 1693),
    ("lttng", "k6.12-lost", TEXTS_BEHIND, 1),
    ("lttng", "k6.12-syscalls-none", TEXTS_BEHIND, 1693),
    ("lttng", "k6.12-sched-irq-timer-zstd", PROCESSES, 38),
    ("lttng", "k6.12-sched-v6", PROCESSES, 38),
    (
        "perf-script",
        "k6.12-all-mono",
        "texts that are not UTF-8, or that a line cannot have, which are escaped",
        39,
    ),
    (
        "perfetto",
        "k6.12-all-mono",
        "values of signal:signal_generate.errno: Perfetto's own event does not have the field",
        1,
    ),
    (
        "perfetto",
        "k6.12-syscalls-none",
        "values of signal:signal_deliver.errno: Perfetto's own event does not have the field",
        19,
    ),
    (
        "perfetto",
        "k6.12-syscalls-none",
        "values of signal:signal_deliver.sa_handler: Perfetto's own event does not have the field",
        19,
    ),
    (
        "perfetto",
        "k6.12-syscalls-none",
        "values of signal:signal_generate.errno: Perfetto's own event does not have the field",
        20,
    ),
    ("ltt-eventdefs", "k6.12-all-mono", SMALL, 30),
    ("ltt-eventdefs", "k6.12-instances", SMALL, 1728),
    ("ltt-eventdefs", "k6.12-lost", SMALL, 1223),
    ("ltt-eventdefs", "k6.12-syscalls-none", SMALL, 1728),
    (
        "ltt-eventdefs",
        "k6.12-instances",
        "buffer of records: those of mm are among the others of their CPU",
        799,
    ),
    (
        "ltt-eventdefs",
        "k6.12-instances",
        "buffer of records: those of net are among the others of their CPU",
        4960,
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

/// Recordings of stock trace-cmd in `tests/traces`.
pub(super) const STOCK: [&str; 9] = [
    "k6.12-all-mono",
    "k6.12-graph",
    "k6.12-instances",
    "k6.12-kprobes",
    "k6.12-lost",
    "k6.12-sched-irq-timer-zstd",
    "k6.12-sched-v6",
    "k6.12-stacks",
    "k6.12-syscalls-none",
];

/// Makes a recording, or takes one of stock trace-cmd.
pub(super) fn recording(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(format!("{}.dat", name.replace(' ', "-")));
    match RECORDINGS.iter().find(|(other, _)| *other == name) {
        Some((_, make)) => make().write(&path),
        None if name == ROTATED => {
            let archives = [0, 1].map(|number| dir.join(format!("archive-{number}.dat")));
            for (archive, path) in recordings::rotated().into_iter().zip(&archives) {
                archive.write(path);
            }
            merge(&archives, &path);
        }
        None => trace_cmd::take_stored(name, &path),
    }
    path
}

/// All recordings, those of stock trace-cmd, too.
pub(super) fn all_recordings() -> impl Iterator<Item = &'static str> {
    recordings::all_names().chain(STOCK)
}

impl Format {
    fn of(name: &str) -> &'static Self {
        FORMATS.iter().find(|format| format.name == name).unwrap()
    }

    /// Exports a file and compares what the export says with what the file does.
    fn compare(&self, file: &Path, mut truth: Told) -> Compared {
        let out = PathBuf::from(format!("{}.{}", file.display(), self.name));
        let said = said(&export(self.name, file, &out));
        if self.name == "perf-script" {
            truth.print_fields(file);
        }
        let folded = truth.clone().with_stacks_folded();
        let told = (self.read)(&out);
        let differences = differences(&told, if self.folds { &folded } else { &truth }, self.same);
        let of = |facet: &Facet| {
            if *facet == Facet::System {
                let events =
                    truth.rows.iter().map(|row| [Facet::System, Facet::Event].map(|of| row[&of].to_string()));
                return events.collect::<BTreeSet<_>>().len() as u64;
            }
            let rows = if *facet == Facet::StackTimes { &folded.rows } else { &truth.rows };
            let counts = rows.iter().filter_map(|row| match row.get(facet)? {
                Value::Array(times) => Some(times.len() as u64),
                value => Some(u64::from(*value != 0)),
            });
            counts.sum::<u64>()
        };
        let counted = self.counts.iter().map(|(facet, words)| ((*words).to_owned(), of(facet)));
        let counted = counted.filter(|(_, count)| *count != 0).collect();
        Compared { told, said, counted, differences }
    }

    /// Which differences there are to be: of what it does not carry at all, there is nothing.
    fn verdict(&self) -> Verdict {
        let nothing = self.not_carried.iter().map(|facet| (*facet, "*", "*"));
        Verdict::new(nothing.chain(self.differs.iter().copied()))
    }

    /// What it is to say of a recording, besides what can be counted in its records. Of recordings of stock
    /// trace-cmd, descriptions may be said in any number.
    fn expected(&self, recording: &str, said: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let of_format = SAID.iter().filter(|(format, of, ..)| (*format, *of) == (self.name, recording));
        let of_format = of_format.map(|(.., what, count)| (*what, *count));
        let is_stock = STOCK.contains(&recording);
        let described = self.undescribed.iter().filter_map(|what| {
            let count = if is_stock { said.get(*what).copied() } else { description(recording, what) };
            Some((*what, count?))
        });
        of_format.chain(described).map(|(what, count)| (what.to_owned(), count)).collect()
    }

    /// Whether a summary says that something is missing, if it is.
    fn says(&self, facet: Facet, said: &BTreeMap<String, u64>) -> bool {
        let words = WORDS.iter().filter(|(of, _)| *of == facet).map(|(_, words)| *words);
        self.described.contains(&facet)
            || words.into_iter().any(|words| said.keys().any(|said| said.contains(words)))
    }
}

/// Compares a format with all recordings.
fn check(name: &str) {
    let format = Format::of(name);
    let dir = tempfile::tempdir().unwrap();
    let mut verdict = format.verdict();
    for recording_name in all_recordings() {
        let file = recording(dir.path(), recording_name);
        let Compared { said, counted, differences: found, .. } = format.compare(&file, Told::of(&file));
        let mut expected = format.expected(recording_name, &said);
        expected.extend(counted);
        if said != expected {
            verdict.is_wrong(format!("{recording_name}: said {said:?}, expected {expected:?}"));
        }
        for ((facet, event), difference) in &found {
            // What is counted in records was compared.
            let is_counted = format.counts.iter().any(|(counted, _)| counted == facet);
            if difference.is_missing && !is_counted && !format.says(*facet, &said) {
                verdict.is_wrong(format!("{recording_name} {event}: nobody says that {facet:?} is missing"));
            }
            if format.not_carried.contains(facet) && !difference.is_missing {
                verdict.is_wrong(format!("{recording_name} {event}: {facet:?} is there: {difference:?}"));
            }
        }
        verdict.take(recording_name, found);
    }
    verdict.pass(name);
}

/// A part of a recording, also one that `--pages` takes, says no more of losses than the whole in any format.
#[test]
fn exports_of_parts_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let told = |file: PathBuf| {
        let told = Told::of(&file);
        (file, told)
    };
    for name in ["lossy", "buffers", "lossy machine"] {
        let file = recording(dir.path(), name);
        let whole = Told::of(&file);
        let parts = split(&file, 1 + whole.rows.len() as u64 / 3);
        assert_eq!(parts.len(), 3, "{name}");
        let parts: Vec<(PathBuf, Told)> = parts.into_iter().map(told).collect();
        // How often parts do not know how many events they lack; the whole may.
        let mut unknown = BTreeMap::<u64, u64>::new();
        for told in parts.iter().map(|(_, told)| told).chain([&whole]) {
            for ((_, cpu), (_, count)) in told.sums.as_ref().unwrap() {
                *unknown.entry(*cpu).or_default() += count;
            }
        }
        let pages = file.with_extension("pages.dat");
        convert(&file, &["--pages", "0-0"], &pages);
        let pages = told(pages);
        for format in FORMATS {
            let mut sums = BTreeMap::<(String, u64), u64>::new();
            let mut whole_sums = BTreeMap::<(String, u64), u64>::new();
            let compare = |(file, truth): &(PathBuf, Told)| {
                let Compared { told, differences: found, .. } = format.compare(file, truth.clone());
                for (facet, event) in found.keys() {
                    // Losses that lie behind the last record are among all.
                    let is_of = |of: &Facet| of == facet || (*of, *facet) == (Facet::Sums, Facet::Behind);
                    let may = format.not_carried.contains(facet)
                        || format.differs.iter().any(|(of, _, events)| is_of(of) && matches(events, event));
                    assert!(may, "{} of {}: {facet:?} {event}: {found:?}", format.name, file.display());
                }
                told.sums.unwrap_or_default()
            };
            let has_buffers = !format.not_carried.contains(&Facet::Buffer);
            let place =
                |(buffer, cpu): (String, u64)| (if has_buffers { buffer } else { String::new() }, cpu);
            for (at, (known, _)) in whole.sums.clone().unwrap() {
                *whole_sums.entry(place(at)).or_default() += known;
            }
            for (at, (known, _)) in parts.iter().flat_map(&compare) {
                *sums.entry(place(at)).or_default() += known;
            }
            for (at, known) in sums {
                // A format that has no unknown numbers counts one event.
                let of_whole = whole_sums.get(&at).copied().unwrap_or(0);
                let unknown = unknown.get(&at.1).copied().unwrap_or(0);
                assert!(known <= of_whole + unknown, "{name} {}: {at:?}: {known} of {of_whole}", format.name);
            }
            compare(&pages);
        }
    }
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
