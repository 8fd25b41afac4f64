//! Records of a CPU with their stacks, which are records of their own that follow.

use std::collections::VecDeque;

use super::line::{Lines, Said, What};
use ftrace_event::Endian;
use ftrace_event::stacks::{Origin, Stack};
use recording::{Processes, TextRecords};
use tracedat::reader::Record;

/// How many records may come before an event's stack. An interrupt can come in between, and with it as many
/// records as it makes.
const MOST_WAITING: usize = 4096;

/// A record with its stack, or a loss.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) time: u64,
    pub(super) said: Said,
    pub(super) stack: Stack,
    /// How many records it is made of.
    pub(super) records: u64,
    /// The buffer and the context in which its stack is made, as long as it may come.
    waits: Option<(usize, u64)>,
    buffer: usize,
    cpu: u32,
    endian: Endian,
    data: Vec<u8>,
}

impl Entry {
    /// That of a record, in the memory of an earlier one.
    pub(super) fn of(record: &Record<'_>, said: Said, spare: Option<Self>) -> Self {
        let Record { buffer, cpu, timestamp: time, data, endian, .. } = *record;
        let (mut stack, mut bytes) = spare.map(|spare| (spare.stack, spare.data)).unwrap_or_default();
        stack.kernel.clear();
        stack.user.clear();
        stack.process = None;
        bytes.clear();
        bytes.extend_from_slice(data);
        Self { time, said, stack, records: 0, waits: None, buffer, cpu, endian, data: bytes }
    }

    /// The record as it was read; of a loss the one behind it.
    pub(super) fn record(&self) -> Record<'_> {
        let Self { time, buffer, cpu, endian, ref data, .. } = *self;
        Record { reader: 0, buffer, cpu, timestamp: time, missed: None, data, endian }
    }
}

/// The records of a stream, and those that wait for their stacks.
pub(super) struct Joined<'r> {
    records: TextRecords<'r>,
    waiting: VecDeque<Entry>,
    /// To be used again.
    spare: Vec<Entry>,
    has_ended: bool,
}

/// What is known of all streams.
pub(super) struct Shared<'l, 'r> {
    pub(super) lines: &'l Lines<'r>,
    pub(super) processes: Processes,
    /// Stacks whose event is not known.
    pub(super) stray_stacks: u64,
    /// Stacks with another time than their event.
    pub(super) later_stacks: u64,
    /// Records with flags.
    pub(super) flagged: u64,
    /// Records of code that cannot be preempted.
    pub(super) with_preempt_count: u64,
}

impl<'r> Joined<'r> {
    /// Those of these.
    pub(super) fn new(records: TextRecords<'r>) -> Self {
        Self { records, waiting: VecDeque::new(), spare: Vec::new(), has_ended: false }
    }

    /// Reads until the next entry is whole, and gives its time; `None` at the end.
    pub(super) fn fill(&mut self, shared: &mut Shared<'_, '_>) -> Option<u64> {
        loop {
            match self.waiting.front() {
                Some(entry)
                    if self.has_ended || entry.waits.is_none() || self.waiting.len() > MOST_WAITING =>
                {
                    return Some(entry.time);
                }
                None if self.has_ended => return None,
                _ => self.read(shared),
            }
        }
    }

    /// The entry that [`fill`](Self::fill) has told of.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.waiting.pop_front()
    }

    /// Takes an entry back, whose memory is used again.
    pub(super) fn recycle(&mut self, entry: Entry) {
        if self.spare.len() < 8 {
            self.spare.push(entry);
        }
    }

    fn read(&mut self, shared: &mut Shared<'_, '_>) {
        let Self { records, waiting, spare, has_ended } = self;
        let record = match records.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => {
                *has_ended = true;
                nothing_comes_for(waiting);
                return;
            }
            // Damage was found by the survey; whoever goes on nevertheless was warned.
            Err(_) => return,
        };
        if let Some(missed) = record.missed {
            // What comes now may be the stack of an event that was lost.
            nothing_comes_for(waiting);
            waiting.push_back(Entry::of(&record, Said::Lost(missed), spare.pop()));
        }
        let What::Event { printer, flags, preempt_count } = shared.lines.what(&record) else { return };
        shared.flagged += u64::from(flags != 0);
        shared.with_preempt_count += u64::from(preempt_count != 0);
        let origin = Origin { stream: (record.buffer, record.cpu), flags };
        let key = (record.buffer, origin.context());
        if printer.is_stack() {
            let mut waiting = waiting.iter_mut().rev();
            if let Some(entry) = waiting.find(|entry| entry.waits == Some(key)) {
                entry.stack.add(printer, record.data);
                entry.records += 1;
                shared.later_stacks += u64::from(record.timestamp != entry.time);
                return;
            }
            shared.stray_stacks += 1;
        }
        if let Some(before) = waiting.iter_mut().find(|entry| entry.waits == Some(key)) {
            before.waits = None;
        }
        shared.processes.look(&record);
        let process = shared.processes.of(shared.lines.thread(&record));
        let mut entry = Entry::of(&record, Said::Record { process }, spare.pop());
        entry.records = 1;
        if printer.is_stack() {
            entry.stack.add(printer, record.data);
        } else {
            entry.waits = shared.lines.has_stacks().then_some(key);
        }
        waiting.push_back(entry);
    }
}

/// No more stacks come for these.
fn nothing_comes_for(waiting: &mut VecDeque<Entry>) {
    for entry in waiting {
        entry.waits = None;
    }
}
