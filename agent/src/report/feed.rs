//! Reads records, selects those to show, and adds the state that their lines need from earlier records.

use std::collections::HashMap;

use super::batch::{Batch, Item};
use super::plugin::Plugin;
use super::select::Selection;
use super::view::{BufferView, FileView};
use super::wakeup::{WakeupTimes, Wakeups};
use super::{Backwards, Damage};
use crate::event::filter::{Origin, Shown};
use crate::tracedat::reader::Records;

/// Most functions that are shown in one another.
const MAX_INDENT: usize = 1000;

/// What needs records in their order.
pub(super) struct Feed<'a> {
    records: Records<'a>,
    pub(super) files: &'a [FileView<'a>],
    /// Place in `buffers` by file and place in the file.
    places: Vec<Vec<u32>>,
    selection: &'a Selection,
    wants: Wants,
    pub(super) records_read: u64,
    pub(super) shown: u64,
    pub(super) timestamp: u64,
    last_shown: u64,
    wakeups: Wakeups,
    stacks: HashMap<u32, Vec<&'a str>>,
    /// What filters have let through, for the stacks behind it.
    filtered: Shown,
    /// Calls that wait for the next record of their buffer.
    calls: Vec<(u32, usize)>,
    pub(super) damage: Damage,
    pub(super) backwards: Vec<Backwards>,
    /// Records whose `print fmt` is not understood, by file and event number; records of no known event have
    /// number 65536.
    pub(super) not_understood: HashMap<(usize, u32), u64>,
    is_done: bool,
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
    /// `buffers` has the place of each buffer in its file beside it.
    pub(super) fn new(
        mut records: Records<'a>,
        files: &'a [FileView<'a>],
        buffers: &[(usize, BufferView<'_>)],
        selection: &'a Selection,
        wants: Wants,
        damage: Damage,
    ) -> Self {
        let mut places = vec![Vec::new(); files.len()];
        for (number, (place, view)) in buffers.iter().enumerate() {
            let of_file: &mut Vec<u32> = &mut places[view.file];
            if of_file.len() <= *place {
                of_file.resize(place + 1, 0);
            }
            of_file[*place] = number as u32;
        }
        if let Some(since) = selection.since {
            records.seek(since);
        }
        Self {
            records,
            files,
            places,
            selection,
            wants,
            records_read: 0,
            shown: 0,
            timestamp: 0,
            last_shown: 0,
            wakeups: Wakeups::default(),
            stacks: HashMap::new(),
            filtered: Shown::default(),
            calls: Vec::new(),
            damage,
            backwards: Vec::new(),
            not_understood: HashMap::new(),
            is_done: false,
            is_past: false,
        }
    }

    pub(super) fn wakeup_times(&self) -> WakeupTimes {
        self.wakeups.times
    }

    /// Fills a batch with `count` records, or as many as there are. `false` if there are no more.
    pub(super) fn fill(&mut self, batch: &mut Batch, count: usize, bytes: usize) -> bool {
        batch.clear();
        self.calls.clear();
        while !self.is_done {
            let full = batch.items.len() >= count || batch.data.len() >= bytes;
            // A call stays with its return, unless the other buffers have too much to tell before it.
            if full && (self.calls.is_empty() || batch.items.len() >= count * 2) {
                return true;
            }
            self.next(batch);
        }
        !batch.items.is_empty()
    }

    #[inline]
    fn next(&mut self, batch: &mut Batch) {
        let record = match self.records.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return self.is_done = true,
            Err(error) => return self.damage.add(&error),
        };
        let timestamp = record.timestamp;
        self.is_past = self.selection.until.is_some_and(|until| timestamp > until)
            || self.selection.limit.is_some_and(|limit| self.shown >= limit);
        if self.is_past && !self.wants.stacks {
            return self.is_done = true;
        }
        let number = self.records_read;
        self.records_read += 1;
        self.timestamp = timestamp;
        let (Some(file), Some(&buffer)) = (
            self.files.get(record.reader),
            self.places.get(record.reader).and_then(|places| places.get(record.buffer)),
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
            self.shown += u64::from(selected);
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
            if !filters.wants(id, record.data, buffer as usize, &origin, &mut self.filtered) {
                return;
            }
        }
        let mut item = Item::new(timestamp, number, record.cpu, buffer, record.missed);
        self.shown += 1;
        if self.wants.check_times && self.last_shown > timestamp {
            self.backwards.push(Backwards { cpu: record.cpu, before: self.last_shown, time: timestamp });
        }
        if self.wants.differences {
            item.set_previous(self.last_shown);
        }
        self.last_shown = timestamp;
        let is_call = matches!(plugin, Some(Plugin::GraphEntry(_)));
        match (event, plugin) {
            (_, Some(plugin)) => {
                for task in plugin.tasks().into_iter().flatten() {
                    let pid = task.pid.read(record.data, file.machine) as u32;
                    if !file.tasks.is_listed(pid) {
                        file.tasks.learn(pid, task.comm.read(record.data, file.machine), number);
                    }
                }
                if let Plugin::Function { ip, parent } = plugin {
                    let name = |at: u64| file.symbols.lookup(at).map(|symbol| symbol.name);
                    let (ip, parent) =
                        (ip.read(record.data, file.machine), parent.read(record.data, file.machine));
                    if let Some(parent) = name(parent) {
                        item.indent = indent(self.stacks.entry(record.cpu).or_default(), parent, name(ip));
                    }
                }
            }
            (Some(event), None) if event.printer.error().is_some() => {
                let id = u32::from(event.printer.format().id);
                *self.not_understood.entry((record.reader, id)).or_default() += 1;
            }
            (None, _) => *self.not_understood.entry((record.reader, 1 << 16)).or_default() += 1,
            _ => {}
        }
        if self.wants.wakeups
            && let Some(event) = event
            && let Some(latency) = self.wakeups.follow(file, event, record.data, timestamp)
        {
            item.set_latency(latency);
        }
        let place = batch.push(item, record.data);
        if is_call {
            self.calls.push((buffer, place));
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
    let (_, place) = calls.swap_remove(at);
    let Some(Plugin::GraphExit(exit)) = plugin else { return false };
    let Some(item) = batch.items.get(place) else { return false };
    let call = item.record(&batch.data);
    let Some(Plugin::GraphEntry(entry)) = file.event(call).and_then(|event| event.plugin.as_ref()) else {
        return false;
    };
    let is_its = file.pid(call) == file.pid(record)
        && entry.func.read(call, file.machine) == exit.func.read(record, file.machine);
    if is_its {
        batch.set_leaf(place, record);
    }
    is_its
}

/// `add_and_get_index` of plugins/plugin_function.c: how deep the parent is in what was called last.
fn indent<'a>(stack: &mut Vec<&'a str>, parent: &'a str, child: Option<&'a str>) -> u16 {
    let found = stack.iter().position(|name| *name == parent);
    let mut set = |place: usize, name: &'a str| {
        if place < stack.len() {
            stack[place] = name;
        } else if place < MAX_INDENT {
            stack.push(name);
        }
    };
    let place = found.unwrap_or(0);
    if found.is_none() {
        set(0, parent);
    }
    if let Some(child) = child {
        set(place + 1, child);
    }
    place as u16
}
