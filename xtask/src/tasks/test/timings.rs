//! How long everything took: for the table of `--timings`, and for the order of the next run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::job::Job;
use crate::{Result, workspace};

/// Tests that take less are not in the table.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// About how many seconds subjects take on a busy machine, for runs without times of earlier ones: those of
/// long jobs, which begin first, and those of short live tests, which a quick run has.
const EXPECTED: &[(&str, &str, u64)] = &[
    ("vm", "oracle", 150),
    ("vm", "engine", 80),
    ("vm", "cost", 60),
    ("vm", "probes", 50),
    ("vm", "graph", 40),
    ("vm", "hotplug", 20),
    ("vm", "functions", 10),
    ("live", "export_html", 90),
    ("live", "tables_questions", 50),
    ("live", "filter_stock", 50),
    ("live", "hostile_names", 35),
    ("live", "analysis", 30),
    ("live", "switches", 25),
    ("live", "places", 20),
    ("live", "strings", 15),
    ("live", "binaries", 10),
    ("live", "lanes", 8),
    ("live", "reading", 4),
    ("live", "types", 4),
];

/// How long the live tests of a quick run take by the times of earlier ones.
const QUICK: Duration = Duration::from_mins(4);

/// How long everything took that is no test.
#[derive(Debug, Default)]
pub(super) struct Steps(Vec<(String, Duration)>);

impl Steps {
    /// Runs a step.
    pub(super) fn run<T>(&mut self, name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = run();
        self.0.push((name.to_owned(), started.elapsed()));
        result
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(step, took)| writeln!(out, "{:8.1} s  {step}", took.as_secs_f64()))
    }
}

/// How long jobs and their tests took.
#[derive(Debug, Default)]
pub(super) struct Timings {
    rows: Vec<Row>,
}

/// How long something took.
#[derive(Debug)]
struct Row {
    suite: String,
    subject: String,
    /// `None` for the whole subject, or for those of its tests that are one job.
    test: Option<String>,
    /// Whether it was a job, not a part of one.
    is_job: bool,
    took: Duration,
}

impl Timings {
    /// Takes a job that has ended.
    pub(super) fn add(&mut self, job: &Job, took: Duration, tests: Vec<(String, Duration)>) {
        let (suite, subject) = (job.suite.clone(), job.subject.clone());
        self.rows.push(Row {
            suite: suite.clone(),
            subject: subject.clone(),
            test: job.test.clone(),
            is_job: true,
            took,
        });
        if job.test.is_none() {
            let module = format!("{subject}::");
            let row = |(test, took): (String, Duration)| Row {
                suite: suite.clone(),
                subject: subject.clone(),
                test: Some(test.strip_prefix(&module).map_or(test.clone(), str::to_owned)),
                is_job: false,
                took,
            };
            self.rows.extend(tests.into_iter().map(row));
        }
    }

    /// Keeps the times for the order of the next run; those of whole subjects only of a run that left out
    /// none of their tests.
    pub(super) fn save(&self, left_out: bool) {
        let mut known = load();
        for Row { suite, subject, test, took, .. } in &self.rows {
            if test.is_some() || !left_out {
                known.insert(key(suite, subject, test.as_deref()), *took);
            }
        }
        let lines = known.iter().map(|(key, took)| format!("{}\t{key}\n", took.as_millis()));
        // The order is all that suffers.
        let _ = std::fs::write(path(), lines.collect::<String>());
    }
}

/// Times by [`key`].
type Known = BTreeMap<String, Duration>;

fn path() -> PathBuf {
    workspace::target_dir().join("test-timings")
}

fn key(suite: &str, subject: &str, test: Option<&str>) -> String {
    format!("{suite}\t{subject}\t{}", test.unwrap_or_default())
}

/// The times of earlier runs.
fn load() -> Known {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let line = |line: &str| {
        let (millis, key) = line.split_once('\t')?;
        Some((key.to_owned(), Duration::from_millis(millis.parse().ok()?)))
    };
    text.lines().filter_map(line).collect()
}

/// How long a subject takes as far as is known beforehand.
fn expected(suite: &str, subject: &str) -> Option<Duration> {
    let found = EXPECTED.iter().find(|(of, name, _)| (*of, *name) == (suite, subject));
    found.map(|(.., seconds)| Duration::from_secs(*seconds))
}

/// Sorts jobs so that long ones begin first, by the times of earlier runs. Suites keep their order among what
/// was never run.
pub(super) fn longest_first(jobs: &mut [Job]) {
    let known = load();
    jobs.sort_by_cached_key(|job| {
        let took = known.get(&key(&job.suite, &job.subject, job.test.as_deref())).copied();
        std::cmp::Reverse(took.or_else(|| expected(&job.suite, &job.subject)).unwrap_or_default())
    });
}

/// A test: its subject, and its name in it.
pub(super) type Test<'n> = (&'n str, &'n str);

/// The quickest of a suite's tests, as many as [`QUICK`] has time for.
pub(super) fn quickest<'n>(suite: &str, tests: &[Test<'n>]) -> BTreeSet<Test<'n>> {
    quickest_by(&load(), suite, tests)
}

/// A new test is among them: one that was never run of a subject that was. Of a subject that was not, nothing
/// but [`EXPECTED`] is known.
fn quickest_by<'n>(known: &Known, suite: &str, tests: &[Test<'n>]) -> BTreeSet<Test<'n>> {
    let known = |(subject, test): &Test<'_>| known.get(&key(suite, subject, Some(test))).copied();
    let was_run: BTreeSet<&str> =
        tests.iter().filter(|test| known(test).is_some()).map(|(subject, _)| *subject).collect();
    let time = |test: &Test<'_>| {
        let (subject, _) = test;
        if was_run.contains(subject) {
            return Some(known(test).unwrap_or_default());
        }
        let of_subject = tests.iter().filter(|(other, _)| other == subject).count();
        Some(expected(suite, subject)? / u32::try_from(of_subject).ok()?)
    };
    let mut times: Vec<_> = tests.iter().filter_map(|test| Some((time(test)?, *test))).collect();
    times.sort_unstable();
    let mut sum = Duration::ZERO;
    let fits = times.into_iter().take_while(|(time, _)| {
        sum += *time;
        sum <= QUICK
    });
    fits.map(|(_, test)| test).collect()
}

impl fmt::Display for Timings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut suites: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            suites.entry(&row.suite).or_default().push(row);
        }
        for (suite, rows) in suites {
            let mut subjects: BTreeMap<&str, Duration> = BTreeMap::new();
            for Row { subject, took, .. } in rows.iter().filter(|row| row.is_job) {
                *subjects.entry(subject).or_default() += *took;
            }
            let sum: Duration = subjects.values().sum();
            writeln!(out, "{:8.1} s  {suite}", sum.as_secs_f64())?;
            let mut subjects: Vec<_> = subjects.into_iter().collect();
            subjects.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
            for (subject, took) in subjects {
                writeln!(out, "{:8.1} s    {subject}", took.as_secs_f64())?;
                let mut tests: Vec<_> = rows
                    .iter()
                    .filter(|row| row.subject == subject && row.took >= WORTH_A_LINE)
                    .filter_map(|row| Some((row.test.as_deref()?, row.took)))
                    .collect();
                tests.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
                for (test, took) in tests {
                    writeln!(out, "{:8.1} s      {test}", took.as_secs_f64())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::job::BESIDE;
    use super::*;

    #[test]
    fn a_quick_run_has_the_quickest_and_the_new_tests() {
        let tests = [("stop", "a"), ("stop", "b"), ("stop", "new"), ("flame", "c")];
        let time = |subject: &str, test: &str, seconds| {
            (key("live", subject, Some(test)), Duration::from_secs(seconds))
        };
        let known = [time("stop", "a", 200), time("stop", "b", 50), time("flame", "c", 10)].into();
        let quick = quickest_by(&known, "live", &tests);
        assert_eq!(quick, [("stop", "b"), ("stop", "new"), ("flame", "c")].into());
        // Without times, those of subjects that are expected to be short.
        let mut live = EXPECTED.iter().filter(|(suite, ..)| *suite == "live");
        let &(_, subject, _) = live.next_back().expect("there are some");
        let quick = quickest_by(&Known::new(), "live", &[(subject, "a"), ("no such subject", "b")]);
        assert_eq!(quick, [(subject, "a")].into());
    }

    #[test]
    fn what_is_expected_is_of_subjects_that_exist() {
        for (suite, subject, _) in EXPECTED {
            let dir = if *suite == "vm" { "vm-tests/tests/guests" } else { "tests/tests/live" };
            let dir = workspace::root().join(dir);
            let is_in = |dir: &Path| dir.join(format!("{subject}.rs")).exists() || dir.join(subject).is_dir();
            assert!(is_in(&dir) || is_in(&dir.join(BESIDE)), "{suite} {subject}");
        }
    }

    #[test]
    fn the_table_has_suites_subjects_and_long_tests() {
        let row = |suite: &str, subject: &str, test: Option<&str>, seconds| Row {
            suite: suite.to_owned(),
            subject: subject.to_owned(),
            test: test.map(str::to_owned),
            is_job: suite == "vm" || test.is_none(),
            took: Duration::from_secs(seconds),
        };
        let steps = Steps(vec![("build".to_owned(), Duration::from_mins(1))]);
        let timings = Timings {
            rows: vec![
                row("live", "stop", None, 9),
                row("live", "stop", Some("a"), 7),
                row("live", "stop", Some("b"), 0),
                row("vm", "boot", Some("k::one"), 4),
                row("vm", "boot", Some("k::two"), 5),
            ],
        };
        let expected = "    60.0 s  build\n     9.0 s  live\n     9.0 s    stop\n     7.0 s      a\n     9.0 s  vm\n     \
                        9.0 s    boot\n     5.0 s      k::two\n     4.0 s      k::one\n";
        assert_eq!(format!("{steps}{timings}"), expected);
    }
}
