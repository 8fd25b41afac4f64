//! Folded stacks: the input of flame graphs.
//!
//! One line for each stack: the thread's name, the functions from the outermost to the innermost, and a
//! number, as `stackcollapse-perf.pl` of FlameGraph makes them of `perf script`.

use std::collections::HashMap;

use super::batch::Item;
use super::stacks::{Origin, Stack, Stacks, flags, function};
use super::view::{BufferView, FileView};

/// Memory limit of the distinct stacks, in bytes, the table's overhead included.
const MAX_BYTES: usize = 256 << 20;
/// What a stack needs beside its text, about.
const OVERHEAD: usize = 64;

/// The line of stacks beyond the limit.
const OTHERS: &[u8] = b"[other stacks]";

/// Counted stacks.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    counts: HashMap<Box<[u8]>, u64>,
    bytes: usize,
    /// The sum of all stacks beyond the memory limit; they share one line.
    pub others: u64,
    /// Events without a stack, which are not counted.
    pub without_stack: u64,
    /// Events with a stack, and without a number above 0 in the field that is added up.
    pub without_value: u64,
}

impl Folded {
    /// The lines, in the order of their texts.
    pub fn text(&self) -> Vec<u8> {
        let mut lines: Vec<_> = self.counts.iter().map(|(stack, count)| (&**stack, *count)).collect();
        lines.sort_unstable();
        if self.others != 0 {
            lines.push((OTHERS, self.others));
        }
        let mut text = Vec::new();
        for (stack, count) in lines {
            text.extend_from_slice(stack);
            text.push(b' ');
            super::text::unsigned(&mut text, count);
            text.push(b'\n');
        }
        text
    }

    /// How many stacks are told apart.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether no event had a stack.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.others == 0
    }

    fn add(&mut self, stack: &[u8], weight: u64) {
        if let Some(count) = self.counts.get_mut(stack) {
            *count = count.saturating_add(weight);
        } else if self.bytes + stack.len() + OVERHEAD <= MAX_BYTES {
            self.bytes += stack.len() + OVERHEAD;
            self.counts.insert(stack.into(), weight);
        } else {
            self.others = self.others.saturating_add(weight);
        }
    }
}

/// Counts the stacks of records as they come.
pub(super) struct Folding<'a, 'v> {
    files: &'v [FileView<'a>],
    /// The field that is added up; without one, events are counted.
    field: Option<&'a str>,
    waiting: Stacks<Event>,
    line: Vec<u8>,
    pub(super) folded: Folded,
}

/// What is needed of an event until its stack is complete.
struct Event {
    file: usize,
    pid: u32,
    /// Which record it is: names of threads hold from the record on that told them.
    number: u64,
    /// What its stack counts.
    weight: Option<u64>,
}

impl<'a, 'v> Folding<'a, 'v> {
    pub(super) fn new(files: &'v [FileView<'a>], field: Option<&'a str>) -> Self {
        Self { files, field, waiting: Stacks::default(), line: Vec::new(), folded: Folded::default() }
    }

    /// Takes a record.
    pub(super) fn record(&mut self, buffer: &BufferView<'_>, item: &Item, data: &[u8]) {
        let record = item.record(data);
        let Some(file) = self.files.get(buffer.file) else { return };
        let Some(printer) = file.event(record).map(|event| event.printer) else { return };
        let origin = Origin { stream: (item.buffer as usize, item.cpu), flags: flags(printer, record) };
        if printer.is_stack() {
            return self.waiting.stack(origin, printer, record);
        }
        let weight = match self.field {
            None => Some(1),
            Some(field) => {
                let value = printer.field_index(field).and_then(|index| printer.value(index, record));
                value.and_then(Result::ok).and_then(|value| value.address()).filter(|value| {
                    // A result below 0 is an error's number.
                    *value != 0 && value.cast_signed() > 0
                })
            }
        };
        let event = Event { file: buffer.file, pid: file.pid(record), number: item.number, weight };
        if let Some((event, stack)) = self.waiting.event(origin, event) {
            self.count(&event, &stack);
        }
    }

    /// The end of the records.
    pub(super) fn finish(mut self) -> Folded {
        let rest: Vec<_> = self.waiting.finish().collect();
        for (event, stack) in rest {
            self.count(&event, &stack);
        }
        self.folded
    }

    fn count(&mut self, event: &Event, stack: &Stack) {
        if stack.is_empty() {
            self.folded.without_stack += 1;
            return;
        }
        let Some(weight) = event.weight else {
            self.folded.without_value += 1;
            return;
        };
        let Some(file) = self.files.get(event.file) else { return };
        let line = &mut self.line;
        line.clear();
        file.tasks.with_name(event.pid, event.number, |name| {
            // Blanks part the stack from its number.
            line.extend(name.iter().map(|byte| if *byte == b' ' { b'_' } else { one_word(*byte) }));
        });
        for address in stack.outermost_first() {
            line.push(b';');
            line.extend(function(file.symbols, address).bytes().map(one_word));
        }
        self.folded.add(&self.line, weight);
    }
}

/// A byte of a name without what would end a frame or a line.
fn one_word(byte: u8) -> u8 {
    match byte {
        b';' => b':',
        0..=0x1f | 0x7f => b'?',
        byte => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_and_end_with_a_number() {
        let mut folded = Folded::default();
        assert!(folded.is_empty());
        for (stack, weight) in [("b;main", 2), ("a;f;g", 1), ("b;main", 3)] {
            folded.add(stack.as_bytes(), weight);
        }
        assert_eq!(folded.text(), b"a;f;g 1\nb;main 5\n");
        // What finds no room is still counted.
        folded.bytes = MAX_BYTES;
        folded.add(b"c", 4);
        folded.add(b"a;f;g", 1);
        assert_eq!(folded.text(), b"a;f;g 2\nb;main 5\n[other stacks] 4\n");
        assert_eq!(folded.len(), 2);
    }
}
