//! What could not be carried over from one format to another.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// What could not be carried over, in words, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotCarried {
    counts: BTreeMap<Cow<'static, str>, u64>,
}

impl NotCarried {
    /// Counts things that cannot be carried over for a reason. The reason names the thing: `times that go
    /// back`.
    pub fn add(&mut self, what: impl Into<Cow<'static, str>>, count: u64) {
        if count > 0 {
            let sum = self.counts.entry(what.into()).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: Self) {
        for (what, count) in other.counts {
            self.add(what, count);
        }
    }

    /// What and how many, in the order of the alphabet.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(what, count)| (what.as_ref(), *count))
    }

    /// Whether everything was carried over.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
