//! Selections of events: what a user's texts mean among the events of a kernel, and the names that may have
//! been meant by one that means none.

use spec::{EventName, EventSelector, SelectorError};
use std::collections::BTreeMap;
use std::fmt;

use super::{Catalogue, Entry, Refusal};
use stdx::input::{glob, nearest};

/// How many similar names an error offers.
pub(super) const SUGGESTIONS: usize = 5;

/// A selector, and whether it adds events or takes them away (`-v -e X`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which events.
    pub selector: EventSelector,
    /// Take them away. As with trace-cmd, an exclusion wins over every inclusion, wherever it stands.
    pub exclude: bool,
    /// Do without those that this kernel does not have, or that cannot be recorded.
    pub optional: bool,
}

impl Rule {
    /// A rule that adds events.
    pub fn include(selector: EventSelector) -> Self {
        Self { selector, exclude: false, optional: false }
    }

    /// A rule that takes events away.
    pub fn exclude(selector: EventSelector) -> Self {
        Self { selector, exclude: true, optional: false }
    }
}

/// An event that is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Which event.
    pub name: EventName,
    /// The indices, in the list of rules, of the rules that asked for it: a filter belongs to the `-e` before
    /// it.
    pub rules: Vec<usize>,
}

/// An event that a wildcard covers and that cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which event.
    pub name: EventName,
    /// Why it cannot be recorded.
    pub reason: Refusal,
}

/// A selector that means no event of this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The selector as it was written.
    pub selector: String,
    /// What may have been meant, best first, at most five.
    pub nearest: Vec<String>,
    /// How many events the system has that was named, when there is such a system.
    pub in_system: Option<(String, usize)>,
}

impl fmt::Display for UnknownEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such event {}", self.selector)?;
        if let Some((last, others)) = self.nearest.split_last() {
            f.write_str("; did you mean ")?;
            if !others.is_empty() {
                write!(f, "{} or ", others.join(", "))?;
            }
            write!(f, "{last}?")?;
        }
        match &self.in_system {
            Some((system, count)) if self.nearest.is_empty() => {
                write!(f, "; {system} has {count} events, see: tracer-agent list -e '{system}:*'")
            }
            None if self.nearest.is_empty() => f.write_str("; see: tracer-agent list -e"),
            _ => Ok(()),
        }
    }
}

/// What a list of rules means on this kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The events to record, sorted by name.
    pub events: Vec<Selected>,
    /// Events that wildcards cover and that cannot be recorded, sorted by name.
    pub skipped: Vec<Skipped>,
    /// Selectors without any event, when those were to be ignored.
    pub unknown: Vec<UnknownEvent>,
    /// Selectors of optional rules without any event.
    pub absent: Vec<EventSelector>,
}

/// Why a selection means nothing that could be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The text is no selector.
    #[error(transparent)]
    Malformed(#[from] SelectorError),
    /// There is no such event. All selectors without one are listed, not just the first.
    #[error("{}", join(.0))]
    Unknown(Vec<UnknownEvent>),
    /// An event that was asked for by name cannot be recorded.
    #[error("cannot record {name}: {reason}")]
    Refused {
        /// Which event.
        name: EventName,
        /// Why.
        reason: Refusal,
    },
    /// Events were asked for, and every one was excluded or cannot be recorded.
    #[error("no event is left to record: {excluded} excluded, {} cannot be recorded{}", .skipped.len(), first_reason(.skipped))]
    NothingLeft {
        /// How many were taken away by exclusions.
        excluded: usize,
        /// Those that cannot be recorded.
        skipped: Vec<Skipped>,
    },
}

fn join(unknown: &[UnknownEvent]) -> String {
    unknown.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn first_reason(skipped: &[Skipped]) -> String {
    skipped.first().map(|Skipped { name, reason }| format!(" ({name}: {reason})")).unwrap_or_default()
}

impl Catalogue {
    /// What `rules` mean on this kernel. Without rules that is nothing, which is no error.
    pub fn select(&self, rules: &[Rule], ignore_unknown: bool) -> Result<Selection, SelectError> {
        let mut chosen: BTreeMap<&EventName, Vec<usize>> = BTreeMap::new();
        let mut skipped: BTreeMap<&EventName, Refusal> = BTreeMap::new();
        let mut excluded = 0;
        let mut unknown = Vec::new();
        let mut absent = Vec::new();
        let mut refused = None;

        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.exclude) {
            let selector = &rule.selector;
            let mut found = false;
            let mut recordable = false;
            let mut named = None;
            for entry in self.matching(selector) {
                let name = &entry.name;
                found = true;
                match entry.refusal_of(selector) {
                    None => {
                        recordable = true;
                        chosen.entry(name).or_default().push(index);
                    }
                    Some(reason) => {
                        if selector.names(name) {
                            named = named.or(Some((name, reason)));
                        }
                        skipped.insert(name, reason);
                    }
                }
            }
            if !found && rule.optional {
                absent.push(selector.clone());
            } else if !found {
                unknown.push(self.unknown(selector));
            }
            // A bare name that means a recordable event too was not about the other one.
            if let (false, Some((name, reason)), None) = (recordable || rule.optional, named, &refused) {
                refused = Some(SelectError::Refused { name: name.clone(), reason });
            }
        }
        for rule in rules.iter().filter(|rule| rule.exclude) {
            if self.matching(&rule.selector).next().is_none() {
                unknown.push(self.unknown(&rule.selector));
            }
            let before = chosen.len();
            chosen.retain(|name, _| !rule.selector.matches(name));
            excluded += before - chosen.len();
            skipped.retain(|name, _| !rule.selector.matches(name));
        }

        if !ignore_unknown && !unknown.is_empty() {
            return Err(SelectError::Unknown(unknown));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let skipped: Vec<Skipped> =
            skipped.into_iter().map(|(name, reason)| Skipped { name: name.clone(), reason }).collect();
        if chosen.is_empty() && (excluded > 0 || !skipped.is_empty()) {
            return Err(SelectError::NothingLeft { excluded, skipped });
        }
        let events = chosen.into_iter().map(|(name, rules)| Selected { name: name.clone(), rules }).collect();
        Ok(Selection { events, skipped, unknown, absent })
    }

    /// Describes a selector that means no event.
    fn unknown(&self, selector: &EventSelector) -> UnknownEvent {
        let (system, name) = selector.parts();
        let of_system = |wanted| self.entries.iter().filter(move |entry| entry.name.system() == wanted);
        let count = system.map_or(0, |system| of_system(system).count());
        UnknownEvent {
            selector: selector.as_str().to_owned(),
            nearest: self.nearest(system, name),
            in_system: system.filter(|_| count > 0).map(|system| (system.to_owned(), count)),
        }
    }

    /// The names that are most like one that does not exist. Without a system, names of systems count as
    /// well.
    fn nearest(&self, system: Option<&str>, name: &str) -> Vec<String> {
        let name: String = name.chars().filter(|c| !"*?[]\\".contains(*c)).collect();
        let mut scored: Vec<(usize, String)> = Vec::new();
        for Entry { name: event, refusal } in &self.entries {
            if refusal.is_some() {
                continue;
            }
            let foreign = match system {
                None => 0,
                Some(system) if glob::matches(system, event.system()) => 0,
                // The right event in the wrong system is likelier than a similar event in the right one.
                Some(system) => 1 + nearest::distance(system, event.system()).min(4),
            };
            if let Some(score) = nearest::score(&name, event.name()) {
                scored.push((score + foreign, event.to_string()));
            }
        }
        let mut systems: Vec<&str> = self.entries.iter().map(|entry| entry.name.system()).collect();
        systems.dedup();
        // `shed:*` is about the system, `shed` may be.
        let wanted = match system {
            Some(system) if name.is_empty() => system,
            Some(_) => "",
            None => &name,
        };
        for candidate in systems {
            if let Some(score) = nearest::score(wanted, candidate) {
                scored.push((score, format!("{candidate}:*")));
            }
        }
        scored.sort();
        // With a near miss at hand, names that only share a part with it are noise; two points are one
        // mistyped letter.
        let enough = scored.first().map_or(0, |(best, _)| best + if *best <= 2 { 1 } else { 8 });
        scored.retain(|(score, _)| *score <= enough);
        scored.truncate(SUGGESTIONS);
        scored.into_iter().map(|(_, name)| name).collect()
    }
}
