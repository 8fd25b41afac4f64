//! The sum of all summaries.

/// What passed, what failed, and which those were.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// A line for each failure.
    pub(super) notes: Vec<String>,
}

impl Totals {
    /// Adds what a test program printed, and how it ended. Only its last summary counts: those before it are
    /// of guests that it ran.
    pub(super) fn add(&mut self, name: &str, output: &str, success: bool) {
        let summaries = summaries(output);
        self.add_summaries(name, output, &summaries[summaries.len().saturating_sub(1)..], success);
    }

    /// The same of a command that runs several programs: all of their summaries count.
    pub(super) fn add_all(&mut self, name: &str, output: &str, success: bool) {
        self.add_summaries(name, output, &summaries(output), success);
    }

    fn add_summaries(&mut self, name: &str, output: &str, summaries: &[String], success: bool) {
        let failed = self.failed;
        for summary in summaries {
            self.summary(summary);
        }
        for line in output.lines() {
            let line = without_colours(line);
            if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                self.notes.push(format!("{name}: failed: {test}"));
            }
        }
        if summaries.is_empty() {
            self.failed += 1;
            self.notes.push(format!("{name}: ended without a summary: counted as one failure"));
        } else if !success && self.failed == failed {
            self.failed += 1;
            self.notes.push(format!("{name}: no test failed, yet the program did: counted as one failure"));
        }
    }

    /// Adds something that is a test by itself.
    pub(super) fn add_one(&mut self, name: &str, success: bool) {
        if success {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.notes.push(format!("failed: {name}"));
        }
    }

    /// Adds what could not be run.
    pub(super) fn add_failure(&mut self, name: &str, why: &str) {
        self.failed += 1;
        self.notes.push(format!("failed: {name}: {why}"));
    }

    /// `ok. 3 passed; 0 failed; ...`
    fn summary(&mut self, summary: &str) {
        let count = |what: &str| -> Option<u64> {
            summary.split([';', '.']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
        };
        self.passed += count("passed").unwrap_or(0);
        self.failed += count("failed").unwrap_or(0);
    }
}

/// What stands behind each `test result: `.
fn summaries(output: &str) -> Vec<String> {
    let summary = |line: &str| without_colours(line).strip_prefix("test result: ").map(str::to_owned);
    output.lines().filter_map(summary).collect()
}

/// The text without escape sequences for colours.
pub(super) fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_added_up() {
        let mut totals = Totals::default();
        let one = "running 4 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\
                   test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.00s\n";
        totals.add("unit", one, false);
        let other = "test result: \u{1b}[32mok\u{1b}[m. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                     \x20 test result: ok. 100 passed; 0 failed;\n";
        totals.add_all("doc", other, true);
        totals.add_all("doc", &other.repeat(2), true);
        let notes = vec!["unit: failed: a::c".to_owned()];
        assert_eq!(totals, Totals { passed: 39, failed: 1, notes });
    }

    #[test]
    fn what_a_guest_prints_is_not_counted() {
        let mut totals = Totals::default();
        let output = "running 1 test\ntest result: ok. 7 passed; 0 failed;\ntest boots ... ok\n\
                      test result: ok. 1 passed; 0 failed;\n";
        totals.add("vm", output, true);
        assert_eq!((totals.passed, totals.failed), (1, 0));
    }

    #[test]
    fn a_program_without_a_summary_or_with_a_bad_end_is_a_failure() {
        let mut totals = Totals::default();
        totals.add("a", "running 3 tests\n", true);
        totals.add("b", "test result: ok. 2 passed; 0 failed;\n", false);
        totals.add_one("c", false);
        assert_eq!((totals.passed, totals.failed, totals.notes.len()), (2, 3, 3));
    }
}
