//! How long everything took: for the table of `--timings`, and for the order of the next run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::job::Job;
use crate::{Result, workspace};

/// Tests that take less are not in the table.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// Jobs that take long, for the first run: the longest first, so that none of them is what everybody waits
/// for at the end.
const LONG: [&str; 6] = ["cost", "oracle", "probes", "graph", "hotplug", "functions"];

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
            let row = |(test, took)| Row {
                suite: suite.clone(),
                subject: subject.clone(),
                test: Some(test),
                is_job: false,
                took,
            };
            self.rows.extend(tests.into_iter().map(row));
        }
    }

    /// Keeps the jobs' times for the order of the next run.
    pub(super) fn save(&self) {
        let mut known = load();
        for Row { suite, subject, test, took, .. } in &self.rows {
            known.insert(key(suite, subject, test.as_deref()), took.as_millis());
        }
        let lines: Vec<_> = known.iter().map(|(key, millis)| format!("{millis}\t{key}\n")).collect();
        // The order is all that suffers.
        let _ = std::fs::write(path(), lines.concat());
    }
}

fn path() -> PathBuf {
    workspace::target_dir().join("test-timings")
}

fn key(suite: &str, subject: &str, test: Option<&str>) -> String {
    format!("{suite}\t{subject}\t{}", test.unwrap_or_default())
}

/// The times of earlier runs, in milliseconds.
fn load() -> BTreeMap<String, u128> {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let line = |line: &str| {
        let (millis, key) = line.split_once('\t')?;
        Some((key.to_owned(), millis.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Sorts jobs so that long ones begin first, by the times of earlier runs. Suites keep their order among what
/// was never run.
pub(super) fn longest_first(jobs: &mut [Job]) {
    let known = load();
    let guess = |job: &Job| {
        let index = LONG.iter().position(|long| job.suite == "vm" && *long == job.subject);
        index.map_or(0, |index| (LONG.len() - index) as u128 * 10_000)
    };
    jobs.sort_by_cached_key(|job| {
        let took = known.get(&key(&job.suite, &job.subject, job.test.as_deref()));
        std::cmp::Reverse(took.copied().unwrap_or_else(|| guess(job)))
    });
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
    use super::*;

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
