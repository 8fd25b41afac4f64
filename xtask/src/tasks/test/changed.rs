//! Which tests can fail because of what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::SUITES;
use super::job::BESIDE;
use crate::{Result, process, workspace};

/// Tests of exports.
const OF_EXPORTS: &[&str] = &[
    "live/data_sets",
    "live/export_chrome",
    "live/export_ctf",
    "live/export_html",
    "live/export_ltt",
    "live/export_lttng",
    "live/export_perf_script",
    "live/export_perfetto",
    "live/export_sqlite",
    "live/export_tables",
    "live/hostile_names",
    "live/tables_questions",
];

/// Tests of what else is made of recordings, which do not depend on how they were recorded.
const OF_READERS: &[&str] = &[
    "live/analysis",
    "live/filter_stock",
    "live/readers",
    "live/reading",
    "live/report",
    "live/report_live",
    "live/rewrite",
];

/// What the files below a path can break, as suites and as subjects of them; the first path that fits counts.
/// Anything else can break everything.
const RULES: &[(&str, &[&[&str]])] = &[
    ("docs/metrics.md", &[&["files", "live/examples", "live/daemon"]]),
    ("docs/prometheus-alerts.yml", &[&["live/daemon"]]),
    ("docs/grafana-dashboard.json", &[&["live/daemon"]]),
    ("docs/openapi.json", &[&["unit", "live/daemon"]]),
    ("docs/agent.schema.json", &[&["unit", "files"]]),
    ("docs/", &[&["live/examples"]]),
    ("README.md", &[&["live/examples"]]),
    ("CHANGELOG.md", &[]),
    ("LICENSE", &[]),
    ("xtask/src/tasks/", &[&["unit"]]),
    ("agent/packaging/", &[&["files"], &["live/confined"]]),
    ("tests/monitoring/", &[&["live/daemon"]]),
    ("tests/fuzz/", &[&["fuzz"]]),
    ("tests/golden/", &[&["live/verifier", "vm/verifier"]]),
    ("tests/tests/live/oracle.rs", &[&["live/oracle", "vm/oracle"]]),
    ("tests/tests/live/storm.rs", &[&["live/storm", "vm/oracle"]]),
    ("tests/tests/live/verifier.rs", &[&["live/verifier", "vm/verifier"]]),
    ("tests/tests/files/", &[&["files"]]),
    ("tests/tests/live/", &[&["live/*"]]),
    ("tests/traces/", &[&["files"], OF_READERS, OF_EXPORTS]),
    ("tests/src/", &[&["files", "live", "vm/oracle", "vm/verifier"]]),
    ("agent/examples/", &[&["unit"]]),
    ("vm-tests/tests/guests/", &[&["vm/*"]]),
    ("vm-tests/src/", &[&["files", "vm"]]),
    (
        "agent/analysis/",
        &[&[
            "unit",
            "doc",
            "files/memory",
            "files/compare",
            "live/analysis",
            "live/analyze",
            "live/analyze_io",
            "live/analyze_live",
            "live/analyze_locks_memory",
            "live/export_html",
            "live/flame",
        ]],
    ),
    ("agent/flame/", &[&["unit", "doc", "live/flame"]]),
    ("agent/views/src/chrome/", &[&["unit", "doc", "files/compare", "live/export_chrome"]]),
    ("agent/views/src/timeline/", &[&["unit", "doc", "files/compare", "live/export_html"]]),
    (
        "agent/views/src/tracks/",
        &[&["unit", "doc", "files/compare", "live/export_chrome", "live/export_html"]],
    ),
    ("agent/report/", &[&["unit", "doc", "files/compare", "live/report", "live/report_live"]]),
    ("agent/recording/", &[&["unit", "doc", "files/compare", "live/outputs"], OF_EXPORTS]),
    ("agent/import/", &[&["unit", "doc", "fuzz", "files/compare", "live/import", "live/import_ctf"]]),
    ("agent/tracedat/", &[&["unit", "doc", "files", "fuzz"], OF_READERS, OF_EXPORTS]),
    ("agent/ftrace-event/", &[&["unit", "doc", "files", "fuzz"], OF_READERS, OF_EXPORTS]),
    ("agent/stdx/src/input/", &[&["unit", "doc", "live/cli"]]),
    ("agent/cli/", &[&["unit", "files", "live"]]),
    ("agent/capture/", &[&["unit", "doc", "fuzz", "live", "vm/record"]]),
    ("agent/", &[&["unit", "doc", "files", "live", "vm"]]),
    ("agent-ebpf/", &[&["unit", "live", "vm"]]),
];

/// The tests that are run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// By suite; `None` for all of its subjects.
    suites: BTreeMap<String, Option<BTreeSet<String>>>,
    reason: String,
}

impl Selection {
    /// No choice.
    pub(super) fn everything() -> Self {
        let suites = SUITES.iter().map(|suite| ((*suite).to_owned(), None)).collect();
        Self { suites, reason: "everything".to_owned() }
    }

    /// What can fail because of the changes since a revision, and of what is not committed.
    pub(super) fn since(revision: &str) -> Result<Self> {
        let git =
            |args: &[&str]| process::output(Command::new("git").current_dir(workspace::root()).args(args));
        let mut changed = git(&["diff", "--name-only", revision, "--"])?;
        changed += &git(&["ls-files", "--others", "--exclude-standard"])?;
        let selection = Self::of(changed.lines());
        eprintln!("changed: {}", selection.reason);
        Ok(selection)
    }

    fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut selection = Self { suites: BTreeMap::new(), reason: String::new() };
        let paths: Vec<_> = paths.collect();
        for path in &paths {
            let Some((dir, tests)) = RULES.iter().find(|(prefix, _)| path.starts_with(prefix)) else {
                return Self { reason: format!("{path} can break everything"), ..Self::everything() };
            };
            for test in tests.iter().copied().flatten() {
                selection.add(test, dir, path);
            }
        }
        selection.reason = format!("{} files", paths.len());
        selection
    }

    /// Adds a suite, a subject of one (`live/stop`), or the subject whose source a file of this directory is
    /// (`live/*`).
    fn add(&mut self, test: &str, dir: &str, path: &str) {
        let (suite, subject) = test.split_once('/').map_or((test, None), |(suite, name)| (suite, Some(name)));
        let subject = if subject == Some("*") { subject_of(dir, path) } else { subject };
        let subjects = self.suites.entry(suite.to_owned()).or_insert_with(|| Some(BTreeSet::new()));
        match (subject, subjects.as_mut()) {
            (Some(name), Some(names)) => {
                names.insert(name.to_owned());
            }
            _ => *subjects = None,
        }
    }

    /// Whether anything of a suite is run.
    pub(super) fn has_suite(&self, suite: &str) -> bool {
        self.suites.contains_key(suite)
    }

    /// Whether a subject of a suite is run.
    pub(super) fn has_subject(&self, suite: &str, subject: &str) -> bool {
        self.suites.get(suite).is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(subject)))
    }

    /// Why these.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

/// The subject whose source a path in a directory of tests is. A file is a program or a module; a folder is
/// one, or belongs to several.
fn subject_of<'p>(dir: &str, path: &'p str) -> Option<&'p str> {
    let within = path.strip_prefix(dir)?;
    let (dir, within) = match within.strip_prefix(BESIDE).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) => (Path::new(dir).join(BESIDE), rest),
        None => (PathBuf::from(dir), within),
    };
    let Some((folder, _)) = within.split_once('/') else {
        return within.split_once('.').map(|(name, _)| name).filter(|name| !matches!(*name, "main" | "mod"));
    };
    // The subjects of a program are modules; others are programs themselves, and share modules.
    let exists = |path: &str| workspace::root().join(&dir).join(path).exists();
    let is_program = exists("main.rs") || exists("mod.rs");
    exists(&format!("{folder}/{}", if is_program { "mod.rs" } else { "main.rs" })).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Selection {
        Selection::of(paths.iter().copied())
    }

    #[test]
    fn what_changed_says_what_is_run() {
        assert!(!of(&["docs/architecture.md", "README.md"]).has_suite("unit"));
        assert!(of(&["docs/openapi.json"]).has_suite("unit"));
        let report = of(&["agent/report/src/line.rs"]);
        assert!(report.has_subject("live", "report") && !report.has_subject("live", "stop"));
        assert!(report.has_subject("unit", "report") && !report.has_suite("vm"));
        let test = of(&["tests/tests/live/stop.rs", "vm-tests/tests/guests/boot.rs"]);
        assert!(test.has_subject("live", "stop") && !test.has_subject("live", "loss"));
        assert!(test.has_subject("vm", "boot") && !test.has_suite("unit"));
        // A suite that is run whole stays so.
        assert!(of(&["agent/cli/src/record.rs", "tests/tests/live/stop.rs"]).has_subject("live", "loss"));
        let folder = of(&["tests/tests/live/recover/counts.rs", "tests/tests/live/lttng_cli.txt"]);
        assert!(folder.has_subject("live", "recover") && !folder.has_subject("live", "stop"));
        assert!(folder.has_subject("live", "lttng_cli"));
        for whole in ["tests/tests/live/main.rs", "tests/tests/live/beside/mod.rs"] {
            assert!(of(&[whole]).has_subject("live", "stop"), "{whole}");
        }
        let beside = of(&["tests/tests/live/beside/export_html.rs"]);
        assert!(beside.has_subject("live", "export_html") && !beside.has_subject("live", "stop"));
        let all = of(&["docs/architecture.md", "Cargo.lock"]);
        assert!(SUITES.iter().all(|suite| all.has_suite(suite)), "{all:?}");
    }

    #[test]
    fn rules_are_about_paths_that_exist_and_suites_that_exist() {
        for (path, tests) in RULES {
            let path = if *path == "LICENSE" { "LICENSE-MIT" } else { path };
            assert!(workspace::root().join(path).exists(), "{path}");
            for test in tests.iter().copied().flatten() {
                let (suite, subject) = test.split_once('/').unwrap_or((test, "*"));
                assert!(SUITES.contains(&suite), "{test}");
                let dir = match suite {
                    // Each crate has its own.
                    "files" => continue,
                    "vm" => "vm-tests/tests/guests",
                    _ => "tests/tests/live",
                };
                let dir = workspace::root().join(dir);
                let is_in =
                    |dir: &Path| dir.join(format!("{subject}.rs")).exists() || dir.join(subject).is_dir();
                assert!(subject == "*" || is_in(&dir) || is_in(&dir.join(BESIDE)), "{test}");
            }
        }
    }
}
