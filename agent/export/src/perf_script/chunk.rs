//! Records of all CPUs by time, on their way to the threads that print them.

use super::joined::Entry;
use super::line::{Lines, Said};
use ftrace_event::stacks::Stack;
use recording::{MOST_RECORDS, MOST_TEXT};
use stdx::parallel::{Ended, HandOn};
use tracedat::reader::Batch;

/// Some records.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    records: Batch<(Said, Frames)>,
    /// The stacks, one behind the other.
    addresses: Vec<u64>,
}

/// How many addresses the stack of a record has.
#[derive(Clone, Copy, Debug)]
struct Frames {
    kernel: usize,
    user: usize,
    process: Option<u32>,
}

impl Chunk {
    /// Appends a record.
    pub(super) fn add(&mut self, entry: &Entry) {
        let Stack { kernel, user, process } = &entry.stack;
        let frames = Frames { kernel: kernel.len(), user: user.len(), process: *process };
        // Of the record behind a loss nothing is printed here.
        let kept = if matches!(entry.said, Said::Lost(_)) { 0 } else { usize::MAX };
        self.records.push(&entry.record(), kept, (entry.said, frames));
        self.addresses.extend_from_slice(kernel);
        self.addresses.extend_from_slice(user);
    }

    /// Whether it is worth printing.
    pub(super) fn is_full(&self) -> bool {
        self.records.size() + size_of_val(&*self.addresses) >= MOST_RECORDS
    }

    /// Prints the records. Hands on text, and in how many lines of it texts are escaped.
    pub(super) fn print(
        &self,
        lines: &Lines<'_>,
        hand_on: &mut HandOn<'_, (Vec<u8>, u64)>,
    ) -> Result<(), Ended> {
        let (mut text, mut escaped) = (Vec::new(), 0);
        let (mut stack, mut at, mut buffer) = (Stack::default(), 0, None);
        let mut next = |count: usize, frames: &mut Vec<u64>| {
            frames.clear();
            frames.extend_from_slice(self.addresses.get(at..at + count).unwrap_or_default());
            at += count;
        };
        for (record, (said, frames)) in self.records.iter() {
            next(frames.kernel, &mut stack.kernel);
            next(frames.user, &mut stack.user);
            stack.process = frames.process;
            // Chunks do not know of each other.
            if buffer.replace(record.buffer) != Some(record.buffer) {
                lines.buffer(record.buffer, &mut text);
            }
            escaped += u64::from(lines.print(&record, said, &stack, &mut text));
            if text.len() >= MOST_TEXT {
                hand_on((std::mem::take(&mut text), std::mem::take(&mut escaped)))?;
            }
        }
        hand_on((text, escaped))
    }
}
