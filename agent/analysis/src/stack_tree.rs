//! Records counted by their stacks, as a tree of functions.

use std::collections::HashMap;

use super::key::{Key, ResolvedKey};
use super::{AnalysisError, Room, SEPARATOR, Watch, each_record, end_value, values};
use ftrace_event::filter::{Filter, ResolveOptions, ResolvedFilter};
use ftrace_event::stacks::{
    Origin, STACK_FIELD, Stack, Stacks, flags, function, place_of_frame, without_tracing,
};
use ftrace_event::{EventTable, Printer};
use report::TraceFile;
use tracedat::reader::Source;

/// What a frame needs beside its text, about: a string, and an index in a list.
const FRAME_OVERHEAD: usize = 48;

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
    pub stacks: Vec<(Vec<String>, u128)>,
    /// What stacks count that found no room.
    pub others: u128,
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
    /// What the stacks count that it is in at this point of the tree.
    pub total: u128,
    /// What it calls, the largest first.
    pub calls: Vec<Branch>,
}

/// Whether a key asks for stacks in these events: that of an event, or the record of a stack itself.
pub fn wants<S: Source>(file: &TraceFile<S>, events: &Filter, key: &Key) -> Result<bool, AnalysisError> {
    if key.is_stack() {
        return Ok(true);
    }
    let filter = events.resolve(file.events(), ResolveOptions::default())?;
    Ok(key.field == STACK_FIELD && are_stacks(&filter, file.events()))
}

/// Whether a filter wants records of stacks by themselves: those, and nothing else.
fn are_stacks(filter: &ResolvedFilter, events: &EventTable) -> bool {
    let mut printers = filter.events().filter_map(|id| events.get(id)).peekable();
    printers.peek().is_some() && printers.all(Printer::is_stack)
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
        let by_themselves = are_stacks(&filter, events);
        let damaged = each_record(file, watch, |id, record, origin| {
            let stream = (record.buffer, record.cpu);
            let printer = events.get(id);
            if record.missed.is_some() || printer.is_none() {
                for (event, stack) in waiting.gap(stream) {
                    counting.add(event.as_ref(), &stack, file);
                }
            }
            let Some(printer) = printer else { return };
            let stack_of = Origin { stream, flags: flags(printer, record.data) };
            if printer.is_stack() && !by_themselves {
                // It belongs to the event before it, also where the filter has a pattern for its own name.
                return waiting.stack(stack_of, printer, record.data);
            }
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
            let complete = if by_themselves {
                let mut stack = Stack::default();
                stack.add(printer, record.data);
                Some((event, stack))
            } else {
                waiting.event(stack_of, event)
            };
            if let Some((event, stack)) = complete {
                counting.add(event.as_ref(), &stack, file);
            }
        })?;
        for (event, stack) in waiting.finish() {
            counting.add(event.as_ref(), &stack, file);
        }
        Ok(Self { damaged, ..counting.finish() })
    }

    /// What all stacks count.
    pub fn total(&self) -> u128 {
        self.stacks.iter().map(|(_, weight)| weight).sum::<u128>() + self.others
    }

    /// The first `limit` stacks as a tree. What is left of them is one branch.
    pub fn tree(&self, limit: usize) -> Branch {
        let mut root = Branch { total: self.total(), ..Branch::default() };
        // In this order those that begin with the same functions stand together.
        let mut stacks: Vec<_> = self.stacks.iter().take(limit).collect();
        stacks.sort_unstable();
        for (names, weight) in stacks {
            let mut at = &mut root;
            for name in names {
                if at.calls.last().is_none_or(|branch| branch.name != *name) {
                    at.calls.push(Branch { name: name.clone(), ..Branch::default() });
                }
                let Some(branch) = at.calls.last_mut() else { break };
                branch.total += weight;
                at = branch;
            }
        }
        let left = self.stacks.len().saturating_sub(limit);
        let rest = self.stacks.iter().skip(limit).map(|(_, weight)| weight).sum::<u128>() + self.others;
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
    counts: HashMap<Box<[u8]>, u128>,
    /// For stacks, with what they need beside their texts.
    room: Room,
    text: Vec<u8>,
    found: StackCounts,
}

impl Counting {
    fn new(most: usize) -> Self {
        let found = StackCounts::default();
        Self { counts: HashMap::new(), room: Room::new(most), text: Vec::new(), found }
    }

    /// Counts the stack of an event that is wanted.
    fn add<S: Source>(&mut self, event: Option<&Waiting>, stack: &Stack, file: &TraceFile<S>) {
        let Some(event) = event else { return };
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
        let mut frames = 0;
        let kernel = without_tracing(file.symbols(), &stack.kernel);
        let user = stack.user.iter().rev();
        let user = user.map(|address| place_of_frame(file.symbols(), stack.process, *address));
        for address in user.chain(kernel.iter().rev().copied()) {
            if frames > 0 {
                self.text.push(SEPARATOR);
            }
            let from = self.text.len();
            self.text.extend_from_slice(function(file.symbols(), address).as_bytes());
            end_value(&mut self.text, from);
            frames += 1;
        }
        let weight = u128::from(weight);
        if let Some(count) = self.counts.get_mut(self.text.as_slice()) {
            *count += weight;
        } else if self.room.take(self.text.len() + frames * FRAME_OVERHEAD) {
            self.counts.insert(self.text.as_slice().into(), weight);
        } else {
            self.found.others += weight;
        }
    }

    fn finish(self) -> StackCounts {
        let mut stacks: Vec<_> = self.counts.into_iter().collect();
        stacks.sort_unstable_by(|(a, x), (b, y)| (y, a).cmp(&(x, b)));
        let stacks = stacks.into_iter().map(|(text, weight)| (values(&text), weight)).collect();
        StackCounts { stacks, ..self.found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::crafted;
    use report::crafted::{Entry, ev, stack, unknown};

    const SYMBOLS: &str =
        "1000 t f1\n2000 t f2\n3000 t f3\n4000 t f4\n5000 t f5\n6000 t a\u{1f}b\n7000 t end\n";

    /// The stacks of records, by what they count, and how many events have none.
    fn count(entries: &[Entry], events: &str, keys: &[&str], value: Option<&str>) -> StackCounts {
        let file = crafted::file(entries, SYMBOLS, "1 one\n2 A\u{1f}B\n", "[local]");
        let key = |text: &str| Key::parse(text).unwrap();
        let question = Question {
            events: super::super::histogram::events(events).unwrap(),
            keys: keys.iter().map(|text| key(text)).collect(),
            value: value.map(key),
            most_stacks: 100,
        };
        StackCounts::of(&file, &question, &mut |_| {}).unwrap()
    }

    fn lines(counts: &StackCounts) -> Vec<String> {
        counts.stacks.iter().map(|(names, weight)| format!("{} {weight}", names.join(";"))).collect()
    }

    #[test]
    fn stacks_do_not_go_to_events_before_a_gap() {
        let before = [ev(1, 0, 1, 0), stack(1, 0, &[0x1000, 0x2000])];
        let after = [stack(1, 0, &[0x4000, 0x5000]), ev(1, 0, 1, 0), stack(1, 0, &[0x3000])];
        for gap in [Entry::Lost, unknown()] {
            let entries = [&before[..], &[gap], &after].concat();
            assert_eq!(lines(&count(&entries, "ev", &[], None)), ["f2;f1 1", "f3 1"]);
        }
    }

    #[test]
    fn patterns_that_stacks_match_too_count_them_once() {
        let entries = [ev(1, 0, 1, 0), stack(1, 0, &[0x1000, 0x2000]), ev(1, 0, 1, 0)];
        let found = count(&entries, ".*", &[], None);
        assert_eq!((lines(&found), found.without_stack), (vec!["f2;f1 1".to_owned()], 1));
        let alone = count(&entries, "kernel_stack", &[], None);
        assert_eq!((lines(&alone), alone.without_stack), (vec!["f2;f1 1".to_owned()], 0));
    }

    #[test]
    fn sums_do_not_overflow() {
        let one = [ev(1, 0, u64::MAX, 0), stack(1, 0, &[0x1000])];
        let two = [ev(1, 0, u64::MAX, 0), stack(1, 0, &[0x2000])];
        let found = count(&[one.clone(), one, two].concat(), "ev", &[], Some("ptr"));
        let max = u128::from(u64::MAX);
        assert_eq!((found.total(), found.stacks[0].1), (max * 3, max * 2));
        for limit in 0..3 {
            let tree = found.tree(limit);
            assert_eq!((tree.total, tree.calls.iter().map(|call| call.total).sum()), (max * 3, max * 3));
        }
    }

    #[test]
    fn values_and_functions_keep_their_positions() {
        let entries = [ev(2, 0, 1, 0), stack(2, 0, &[0x6000, 0x1000])];
        let found = count(&entries, "ev", &["COMM", "CPU"], None);
        assert_eq!(found.stacks, [(["A?B", "0", "f1", "a?b"].map(str::to_owned).to_vec(), 1)]);
    }

    #[test]
    fn many_different_stacks_become_a_tree_in_time() {
        // With a search among all branches this takes minutes.
        let stacks: Vec<_> = (0..300_000).map(|number| (vec![format!("key-{number}")], 1)).collect();
        let counts = StackCounts { stacks, ..StackCounts::default() };
        let tree = counts.tree(usize::MAX);
        assert_eq!((tree.calls.len(), tree.total), (300_000, 300_000));
    }

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
