//! Records counted by their stacks, as a tree of functions.

use std::collections::HashMap;

use super::key::{Key, ResolvedKey};
use super::{AnalysisError, SEPARATOR, Watch, each_record};
use crate::event::Printer;
use crate::event::filter::{Filter, ResolveOptions};
use crate::event::table::STACK_FIELD;
use crate::report::TraceFile;
use crate::report::stacks::{Origin, Stack, Stacks, flags, function};
use crate::tracedat::reader::Source;

/// Most bytes of stacks that are told apart.
const MAX_BYTES: usize = 256 << 20;

/// What is counted.
#[derive(Clone, Debug)]
pub struct Question {
    /// The events, and a condition if wanted.
    pub events: Filter,
    /// Fields that are branches above the stacks.
    pub keys: Vec<Key>,
    /// The field that is added up; without one, events are counted.
    pub value: Option<Key>,
    /// Most stacks that are told apart.
    pub most_stacks: usize,
}

/// Counted stacks.
#[derive(Clone, Debug, Default)]
pub struct StackCounts {
    /// Each stack from the outermost function to the innermost, with the values of the keys before it, and
    /// what it counts; the largest first.
    pub stacks: Vec<(Vec<String>, u64)>,
    /// What stacks count that found no room.
    pub others: u64,
    /// Events without a stack.
    pub without_stack: u64,
    /// Events that have no number above 0 in the field that is added up.
    pub without_value: u64,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
}

/// A function in a tree of stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Its name.
    pub name: String,
    /// What the stacks count that it is in at this place.
    pub total: u64,
    /// What it calls, the largest first.
    pub calls: Vec<Branch>,
}

/// Whether a key asks for stacks in these events: that of an event, or the record of a stack itself.
pub fn wants<S: Source>(file: &TraceFile<S>, events: &Filter, key: &Key) -> Result<bool, AnalysisError> {
    if key.is_stack() {
        return Ok(true);
    }
    let filter = events.resolve(file.events(), ResolveOptions::default())?;
    let mut printers = filter.events().filter_map(|id| file.events().get(id)).peekable();
    Ok(key.field == STACK_FIELD && printers.peek().is_some() && printers.all(Printer::is_stack))
}

/// What is remembered of an event until its stack is complete: its keys, and what it counts.
struct Waiting {
    keys: Vec<u8>,
    weight: Option<u64>,
}

impl StackCounts {
    /// Counts the stacks in a file.
    ///
    /// # Errors
    /// No such event or field, or a file that cannot be read.
    pub fn of<S: Source>(
        file: &TraceFile<S>,
        question: &Question,
        watch: Watch<'_>,
    ) -> Result<Self, AnalysisError> {
        let events = file.events();
        let filter = question.events.resolve(events, ResolveOptions::default())?;
        let resolve = |key: &Key| ResolvedKey::by_name(key, filter.events(), file);
        let keys = question.keys.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let value = question.value.as_ref().map(resolve).transpose()?;
        let mut counting = Counting::new(question.most_stacks);
        let mut waiting: Stacks<Option<Waiting>> = Stacks::default();
        let damaged = each_record(file, watch, |id, record, origin| {
            let Some(printer) = events.get(id) else { return };
            let place = Origin { stream: (record.buffer, record.cpu), flags: flags(printer, record.data) };
            let event = filter.matches(id, record.data, origin).then(|| {
                let mut text = Vec::new();
                for key in &keys {
                    key.write(events, id, record, origin, &mut text);
                    text.push(SEPARATOR);
                }
                let weight = match &value {
                    None => Some(1),
                    Some(value) => value
                        .number(events, id, record)
                        .and_then(|number| u64::try_from(number).ok())
                        .filter(|number| *number != 0),
                };
                Waiting { keys: text, weight }
            });
            let complete = if !printer.is_stack() {
                waiting.event(place, event)
            } else if event.is_some() {
                // It was asked for by itself.
                let mut stack = Stack::default();
                stack.add(printer, record.data);
                Some((event, stack))
            } else {
                waiting.stack(place, printer, record.data);
                None
            };
            if let Some((Some(event), stack)) = complete {
                counting.add(&event, &stack, file);
            }
        })?;
        for (event, stack) in waiting.finish() {
            if let Some(event) = event {
                counting.add(&event, &stack, file);
            }
        }
        Ok(Self { damaged, ..counting.finish() })
    }

    /// What all stacks count.
    pub fn total(&self) -> u64 {
        self.stacks.iter().map(|(_, weight)| weight).sum::<u64>().saturating_add(self.others)
    }

    /// The first `limit` stacks as a tree. What is left of them is one branch.
    pub fn tree(&self, limit: usize) -> Branch {
        let mut root = Branch { total: self.total(), ..Branch::default() };
        for (names, weight) in self.stacks.iter().take(limit) {
            let mut at = &mut root;
            for name in names {
                let place = at.calls.iter().position(|branch| branch.name == *name).unwrap_or_else(|| {
                    at.calls.push(Branch { name: name.clone(), ..Branch::default() });
                    at.calls.len() - 1
                });
                at = &mut at.calls[place];
                at.total += weight;
            }
        }
        let left = self.stacks.len().saturating_sub(limit);
        let rest = self.stacks.iter().skip(limit).map(|(_, weight)| weight).sum::<u64>() + self.others;
        root.sort();
        if rest != 0 {
            // How many found no room is not known.
            let name =
                if self.others == 0 { format!("[{left} other stacks]") } else { "[other stacks]".into() };
            root.calls.push(Branch { name, total: rest, calls: Vec::new() });
        }
        root
    }
}

impl Branch {
    fn sort(&mut self) {
        // A stack is at most as deep as the reader of stacks lets it be.
        self.calls.sort_by(|a, b| (b.total, &a.name).cmp(&(a.total, &b.name)));
        self.calls.iter_mut().for_each(Self::sort);
    }
}

/// Counts by text.
struct Counting {
    counts: HashMap<Box<[u8]>, u64>,
    most: usize,
    bytes: usize,
    text: Vec<u8>,
    found: StackCounts,
}

impl Counting {
    fn new(most: usize) -> Self {
        let found = StackCounts::default();
        Self { counts: HashMap::new(), most, bytes: 0, text: Vec::new(), found }
    }

    fn add<S: Source>(&mut self, event: &Waiting, stack: &Stack, file: &TraceFile<S>) {
        if stack.is_empty() {
            self.found.without_stack += 1;
            return;
        }
        let Some(weight) = event.weight else {
            self.found.without_value += 1;
            return;
        };
        self.text.clear();
        self.text.extend_from_slice(&event.keys);
        for (place, address) in stack.outermost_first().enumerate() {
            if place > 0 {
                self.text.push(SEPARATOR);
            }
            self.text.extend_from_slice(function(file.symbols(), address).as_bytes());
        }
        if let Some(count) = self.counts.get_mut(self.text.as_slice()) {
            *count = count.saturating_add(weight);
        } else if self.counts.len() < self.most && self.bytes + self.text.len() <= MAX_BYTES {
            self.bytes += self.text.len();
            self.counts.insert(self.text.as_slice().into(), weight);
        } else {
            self.found.others = self.found.others.saturating_add(weight);
        }
    }

    fn finish(self) -> StackCounts {
        let mut stacks: Vec<_> = self.counts.into_iter().collect();
        stacks.sort_unstable_by(|(a, x), (b, y)| (y, a).cmp(&(x, b)));
        let names = |text: &[u8]| {
            let names = text.split(|byte| *byte == SEPARATOR);
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        let stacks = stacks.iter().map(|(text, weight)| (names(text), *weight)).collect();
        StackCounts { stacks, ..self.found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_become_a_tree_with_the_rest_as_one_branch() {
        let stack = |names: &[&str], weight| (names.iter().map(|name| (*name).to_owned()).collect(), weight);
        let counts = StackCounts {
            stacks: vec![
                stack(&["main", "a", "b"], 50),
                stack(&["main", "c"], 30),
                stack(&["main", "a"], 15),
                stack(&["idle"], 4),
                stack(&["x"], 1),
            ],
            others: 2,
            ..StackCounts::default()
        };
        let tree = counts.tree(4);
        let leaf = |name: &str, total| Branch { name: name.to_owned(), total, calls: Vec::new() };
        let a = Branch { calls: vec![leaf("b", 50)], ..leaf("a", 65) };
        let main = Branch { calls: vec![a, leaf("c", 30)], ..leaf("main", 95) };
        let calls = vec![main, leaf("idle", 4), leaf("[other stacks]", 3)];
        assert_eq!(tree, Branch { calls, ..leaf("", 102) });
        assert_eq!(counts.tree(5).calls[3], leaf("[other stacks]", 2));
    }
}
