//! What a check finds.

use std::fmt;

use super::rule::{Rule, Severity};

/// Most faults of one rule that are kept in words. All are counted.
pub const KEPT_PER_RULE: u64 = 50;

/// Where in a file something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Bytes from the start of the file; of something compressed, where the compressed bytes begin.
    pub offset: u64,
    /// Of something compressed: bytes from the start of what comes out.
    pub inside: Option<u64>,
}

impl At {
    /// A location in the file as it is.
    pub(crate) const fn plain(offset: u64) -> Self {
        Self { offset, inside: None }
    }

    /// This many bytes on.
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        match self.inside {
            Some(inside) => Self { inside: Some(inside.saturating_add(bytes)), ..self },
            None => Self { offset: self.offset.saturating_add(bytes), inside: None },
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inside {
            Some(inside) => write!(f, "{}+{inside}", self.offset),
            None => write!(f, "{}", self.offset),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule that is broken.
    pub rule: Rule,
    /// Where.
    pub at: At,
    /// The structure that is there: `option CPUCOUNT`, `page 3 of CPU 0`.
    pub location: String,
    /// What is there, and what should be.
    pub detail: String,
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// Version of the format; 0 if it is not known.
    pub version: u8,
    /// Bytes of the file.
    pub bytes: u64,
    /// Sections.
    pub sections: u64,
    /// Options.
    pub options: u64,
    /// Buffers.
    pub buffers: u64,
    /// CPUs with data, over all buffers.
    pub cpus: u64,
    /// Compressed chunks.
    pub chunks: u64,
    /// Pages.
    pub pages: u64,
    /// Data events.
    pub events: u64,
}

/// All that a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What was checked.
    pub checked: Checked,
    /// The faults by location. Of one rule there are no more than [`KEPT_PER_RULE`].
    pub faults: Vec<Fault>,
    /// How many faults there are of each rule.
    pub totals: Vec<(Rule, u64)>,
}

impl Report {
    /// How many faults there are of this severity.
    pub fn count(&self, severity: Severity) -> u64 {
        let of = self.totals.iter().filter(|(rule, _)| rule.severity() == severity);
        of.map(|(_, count)| *count).fold(0, u64::saturating_add)
    }

    /// Whether there is nothing worse than a note.
    pub fn is_clean(&self) -> bool {
        self.worst() < Some(Severity::Warning)
    }

    /// The worst severity of all faults.
    pub fn worst(&self) -> Option<Severity> {
        self.totals.iter().map(|(rule, _)| rule.severity()).max()
    }
}

/// Faults as they are found: all counted, the first of each rule kept.
#[derive(Debug)]
pub(super) struct Faults {
    kept: Vec<Fault>,
    totals: [u64; Rule::COUNT],
}

impl Default for Faults {
    fn default() -> Self {
        Self { kept: Vec::new(), totals: [0; Rule::COUNT] }
    }
}

impl Faults {
    /// Adds a fault. The words are made only if they are kept.
    pub(super) fn add(
        &mut self,
        rule: Rule,
        at: At,
        location: impl FnOnce() -> String,
        detail: impl FnOnce() -> String,
    ) {
        let total = &mut self.totals[rule as usize];
        *total += 1;
        if *total <= KEPT_PER_RULE {
            self.kept.push(Fault { rule, at, location: location(), detail: detail() });
        }
    }

    /// Whether there are errors.
    pub(super) fn has_errors(&self) -> bool {
        Rule::ALL.iter().any(|rule| rule.severity() == Severity::Error && self.totals[*rule as usize] != 0)
    }

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.totals.iter().all(|total| *total == 0)
    }

    /// Adds what was found elsewhere, later in the file.
    pub(super) fn append(&mut self, other: Self) {
        for fault in other.kept {
            let kept = self.kept.iter().filter(|kept| kept.rule == fault.rule).count();
            if (kept as u64) < KEPT_PER_RULE {
                self.kept.push(fault);
            }
        }
        for (total, more) in self.totals.iter_mut().zip(other.totals) {
            *total += more;
        }
    }

    pub(super) fn finish(self, checked: Checked) -> Report {
        let Self { kept: mut faults, totals } = self;
        // Stable, so that what is at one location stays in the order of looking at it.
        faults.sort_by_key(|fault| fault.at);
        let totals = Rule::ALL.iter().map(|rule| (*rule, totals[*rule as usize]));
        Report { checked, faults, totals: totals.filter(|(_, total)| *total != 0).collect() }
    }
}
