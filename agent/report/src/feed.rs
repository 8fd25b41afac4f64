//! Reads records, selects those to show, and adds the state that their lines need from earlier records.

use std::collections::HashMap;

use super::batch::{Batch, Item};
use super::plugin::Plugin;
use super::select::Selection;
use super::view::{BufferView, FileView};
use super::wakeup::{WakeupTimes, Wakeups};
use super::{Backwards, Damage, Progress};
use ftrace_event::filter::{Origin, Shown};
use tracedat::reader::{End, LiveRecords, ReadError, Record, Records};

/// Most functions that are shown in one another.
const MAX_INDENT: usize = 1000;

/// Where records come from.
pub(super) enum Input<'a> {
    /// From files, up to their ends.
    Files(Records<'a>),
    /// From a recording that goes on: as many as are there.
    Live(&'a mut dyn LiveRecords),
}

impl Input<'_> {
    #[inline]
    fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match self {
            Self::Files(records) => records.next_record(),
            Self::Live(records) => records.next_record(),
        }
    }

    fn seek(&mut self, timestamp: u64) {
        match self {
            Self::Files(records) => records.seek(timestamp),
            Self::Live(records) => records.seek(timestamp),
        }
    }

    /// Whether there will be more records after those that are there.
    fn goes_on(&self) -> bool {
        match self {
            Self::Files(_) => false,
            Self::Live(records) => records.goes_on(),
        }
    }
}

/// What is known of the records so far. It outlives the views, which are made anew when names become known.
#[derive(Debug, Default)]
pub(super) struct Progressed {
    pub(super) records_read: u64,
    /// Of these, how many were done with when everything was written that had been made by then.
    pub(super) written: u64,
    pub(super) shown: u64,
    pub(super) timestamp: u64,
    last_shown: u64,
    wakeups: Wakeups,
    stacks: HashMap<u32, Vec<Box<str>>>,
    /// What filters have let through, for the stacks behind it.
    filtered: Shown,
    /// A call whose return may be the next record: its buffer and its bytes.
    held: Option<(u32, Item, Vec<u8>)>,
    pub(super) damage: Damage,
    /// Records whose `print fmt` is not understood, by file and event number; records of no known event have
    /// number 65536.
    pub(super) not_understood: HashMap<(usize, u32), u64>,
    pub(super) is_done: bool,
    /// Which CPUs have lost events behind their last records, if all records were read.
    pub(super) lost_behind: Vec<End>,
}

impl Progressed {
    pub(super) fn progress(&self) -> Progress {
        Progress { records: self.records_read, timestamp: self.timestamp }
    }

    pub(super) fn wakeup_times(&self) -> WakeupTimes {
        self.wakeups.times
    }
}

/// What needs records in their order.
pub(super) struct Feed<'a> {
    records: Input<'a>,
    pub(super) files: &'a [FileView<'a>],
    /// Index in `buffers` by file and index in the file.
    buffer_indices: Vec<Vec<u32>>,
    selection: &'a Selection,
    wants: Wants,
    pub(super) so_far: Progressed,
    /// Calls that wait for the next record of their buffer.
    calls: Vec<(u32, usize)>,
    pub(super) backwards: Vec<Backwards>,
    /// Whether there are no more records for now.
    is_empty: bool,
    /// Whether the last record was beyond what is selected by time or number, as all that follow are.
    pub(super) is_past: bool,
}

/// What is followed from record to record.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub(super) struct Wants {
    pub(super) differences: bool,
    pub(super) wakeups: bool,
    pub(super) check_times: bool,
    /// All records, for [`Folding`](super::folded::Folding): the selection is one of events, and their stacks
    /// go with them.
    pub(super) stacks: bool,
}

impl<'a> Feed<'a> {
    /// `buffers` has the index of each buffer in its file beside it.
    pub(super) fn new(
        mut records: Input<'a>,
        files: &'a [FileView<'a>],
        buffers: &[(usize, BufferView<'_>)],
        selection: &'a Selection,
        wants: Wants,
        so_far: Progressed,
    ) -> Self {
        let mut buffer_indices = vec![Vec::new(); files.len()];
        for (number, (index_in_file, view)) in buffers.iter().enumerate() {
            let of_file: &mut Vec<u32> = &mut buffer_indices[view.file];
            if of_file.len() <= *index_in_file {
                of_file.resize(index_in_file + 1, 0);
            }
            of_file[*index_in_file] = number as u32;
        }
        if let Some(since) = selection.since {
            records.seek(since);
        }
        Self {
            records,
            files,
            buffer_indices,
            selection,
            wants,
            so_far,
            calls: Vec::new(),
            backwards: Vec::new(),
            is_empty: false,
            is_past: false,
        }
    }

    /// Fills a batch with `count` records, or as many as there are. `false` if there are no more.
    pub(super) fn fill(&mut self, batch: &mut Batch, count: usize, bytes: usize) -> bool {
        batch.clear();
        self.calls.clear();
        if let Some((buffer, item, record)) = self.so_far.held.take() {
            self.calls.push((buffer, batch.push(item, &record)));
        }
        while !self.so_far.is_done && !self.is_empty {
            let full = batch.items.len() >= count || batch.data.len() >= bytes;
            // A call stays with its return, unless the other buffers have too much to tell before it.
            if full && (self.calls.is_empty() || batch.items.len() >= count * 2) {
                return true;
            }
            self.next(batch);
        }
        if self.is_empty && !self.so_far.is_done {
            self.hold_call(batch);
        }
        !batch.items.is_empty()
    }

    /// Keeps a call that is the last record back: its line depends on the next one.
    fn hold_call(&mut self, batch: &mut Batch) {
        let last = batch.items.len().checked_sub(1);
        if let Some((buffer, _)) = self.calls.pop_if(|(_, index)| Some(*index) == last)
            && let Some(item) = batch.items.pop()
        {
            self.so_far.held = Some((buffer, item, item.record(&batch.data).to_vec()));
        }
    }

    #[inline]
    fn next(&mut self, batch: &mut Batch) {
        let record = match self.records.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => {
                if let Input::Files(records) = &self.records {
                    self.so_far.lost_behind = records.lost_behind().collect();
                }
                self.so_far.is_done = !self.records.goes_on();
                return self.is_empty = true;
            }
            Err(error) => return self.so_far.damage.add(&error),
        };
        let timestamp = record.timestamp;
        self.is_past = self.selection.until.is_some_and(|until| timestamp > until)
            || self.selection.limit.is_some_and(|limit| self.so_far.shown >= limit);
        if self.is_past && !self.wants.stacks {
            return self.so_far.is_done = true;
        }
        let number = self.so_far.records_read;
        self.so_far.records_read += 1;
        self.so_far.timestamp = timestamp;
        let (Some(file), Some(&buffer)) = (
            self.files.get(record.reader),
            self.buffer_indices.get(record.reader).and_then(|of_file| of_file.get(record.buffer)),
        ) else {
            return;
        };
        let event = file.event(record.data);
        let plugin = event.and_then(|event| event.plugin.as_ref());
        if !self.calls.is_empty() && take_return(&mut self.calls, file, buffer, plugin, record.data, batch) {
            return;
        }
        if self.wants.stacks {
            let selected = !self.is_past && !event.is_some_and(|event| event.printer.is_stack()) && {
                let origin =
                    Origin { cpu: record.cpu, timestamp, tasks: file.tasks.listed(), symbols: file.symbols };
                self.selection.selects(record.reader, file, event, record.event_id(), record.data, &origin)
            };
            self.so_far.shown += u64::from(selected);
            let mut item = Item::new(timestamp, number, record.cpu, buffer, record.missed);
            item.selected = selected;
            batch.push(item, record.data);
            return;
        }
        if !self.selection.shows(file, event, record.data) {
            return;
        }
        if let Some(filters) = self.selection.filters.get(record.reader)
            && !filters.is_empty()
        {
            let Some(id) = record.event_id() else { return };
            let tasks = file.tasks.listed();
            let origin = Origin { cpu: record.cpu, timestamp, tasks, symbols: file.symbols };
            if !filters.wants(id, record.data, buffer as usize, &origin, &mut self.so_far.filtered) {
                return;
            }
        }
        let mut item = Item::new(timestamp, number, record.cpu, buffer, record.missed);
        self.so_far.shown += 1;
        if self.wants.check_times && self.so_far.last_shown > timestamp {
            self.backwards.push(Backwards {
                cpu: record.cpu,
                before: self.so_far.last_shown,
                time: timestamp,
            });
        }
        if self.wants.differences {
            item.set_previous(self.so_far.last_shown);
        }
        self.so_far.last_shown = timestamp;
        let is_call = matches!(plugin, Some(Plugin::GraphEntry(_)));
        match (event, plugin) {
            (_, Some(plugin)) => {
                for task in plugin.tasks().into_iter().flatten() {
                    let pid = task.pid.read(record.data, file.machine) as u32;
                    if !file.tasks.is_listed(pid) {
                        file.tasks.learn(pid, task.comm.read(record.data, file.machine), number);
                    }
                }
                if let Plugin::Function { ip, parent, .. } = plugin {
                    let name = |at: u64| file.symbols.lookup(at).map(|symbol| symbol.name);
                    let (ip, parent) =
                        (ip.read(record.data, file.machine), parent.read(record.data, file.machine));
                    if let Some(parent) = name(parent) {
                        item.indent =
                            indent(self.so_far.stacks.entry(record.cpu).or_default(), parent, name(ip));
                    }
                }
            }
            (Some(event), None) if event.printer.error().is_some() => {
                let id = u32::from(event.printer.format().id);
                *self.so_far.not_understood.entry((record.reader, id)).or_default() += 1;
            }
            (None, _) => *self.so_far.not_understood.entry((record.reader, 1 << 16)).or_default() += 1,
            _ => {}
        }
        if self.wants.wakeups
            && let Some(event) = event
            && let Some(latency) = self.so_far.wakeups.follow(file, event, record.data, timestamp)
        {
            item.set_latency(latency);
        }
        let index = batch.push(item, record.data);
        if is_call {
            self.calls.push((buffer, index));
        }
    }
}

/// Gives a call that waits in this buffer the record, if that is its return.
fn take_return(
    calls: &mut Vec<(u32, usize)>,
    file: &FileView<'_>,
    buffer: u32,
    plugin: Option<&Plugin>,
    record: &[u8],
    batch: &mut Batch,
) -> bool {
    let Some(at) = calls.iter().position(|(of, _)| *of == buffer) else { return false };
    let (_, index) = calls.swap_remove(at);
    let Some(Plugin::GraphExit(exit)) = plugin else { return false };
    let Some(item) = batch.items.get(index) else { return false };
    let call = item.record(&batch.data);
    let Some(Plugin::GraphEntry(entry)) = file.event(call).and_then(|event| event.plugin.as_ref()) else {
        return false;
    };
    let is_its = file.pid(call) == file.pid(record)
        && entry.func.read(call, file.machine) == exit.func.read(record, file.machine);
    if is_its {
        batch.set_leaf(index, record);
    }
    is_its
}

/// `add_and_get_index` of plugins/plugin_function.c: how deep the parent is in what was called last.
fn indent(stack: &mut Vec<Box<str>>, parent: &str, child: Option<&str>) -> u16 {
    let found = stack.iter().position(|name| **name == *parent);
    let mut set = |depth: usize, name: &str| {
        if depth >= stack.len() {
            if depth < MAX_INDENT {
                stack.push(name.into());
            }
        } else if *stack[depth] != *name {
            stack[depth] = name.into();
        }
    };
    let depth = found.unwrap_or(0);
    if found.is_none() {
        set(0, parent);
    }
    if let Some(child) = child {
        set(depth + 1, child);
    }
    depth as u16
}
