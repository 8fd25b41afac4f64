//! Recordings that nobody made: events of this kernel, with the values that a test wants.

use std::collections::BTreeMap;
use std::path::Path;

use ftrace_event::Endian;
use ftrace_event::Format;
use tracedat::page::{PageBuilder, Push};

use crate::tracefs::{self, Event, Pages};

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Is<'t> {
    /// A number.
    Number(i64),
    /// A text, cut to the field's length.
    Text(&'t [u8]),
    /// The first elements of an array of 64-bit numbers.
    Numbers(&'t [u64]),
}

/// A recording that is being made up. Each CPU's records come in the order of time.
#[derive(Debug)]
pub struct MadeUp {
    events: BTreeMap<u16, Event>,
    buffers: Vec<(String, BTreeMap<u32, CpuPages>)>,
}

/// The size of pages.
pub const PAGE: u32 = 4096;
/// The byte order of pages.
pub const ENDIAN: Endian = Endian::Little;

/// Pages of a CPU.
#[derive(Clone, Debug)]
pub struct CpuPages {
    builder: PageBuilder,
    pages: Vec<u8>,
}

impl Default for CpuPages {
    fn default() -> Self {
        let builder = PageBuilder::new(PAGE as usize, ENDIAN).unwrap();
        Self { builder, pages: Vec::new() }
    }
}

impl CpuPages {
    /// Adds a record.
    pub fn push(&mut self, time: u64, record: &[u8]) {
        if self.builder.push(time, record).unwrap() == Push::Full {
            self.end_page();
            assert_ne!(self.builder.push(time, record).unwrap(), Push::Full);
        }
    }

    /// Marks that events were lost before the next record.
    pub fn missed(&mut self, count: u64) {
        self.builder.missed(count);
    }

    /// Ends the page: the next record begins another one.
    pub fn end_page(&mut self) {
        self.pages.extend_from_slice(self.builder.finish().unwrap_or_default());
    }

    /// The pages that have ended.
    pub fn pages(&self) -> &[u8] {
        &self.pages
    }
}

impl MadeUp {
    /// One with the events of these systems.
    pub fn new(systems: &[&str]) -> Self {
        Self { events: tracefs::events(systems), buffers: vec![(String::new(), BTreeMap::new())] }
    }

    /// One with events of a machine like this.
    pub fn of(events: BTreeMap<u16, Event>) -> Self {
        Self { events, buffers: vec![(String::new(), BTreeMap::new())] }
    }

    /// Leaves out an event, as a kernel without it does.
    pub fn without(&mut self, event: &str) {
        self.events.retain(|_, other| other.format.name != event);
    }

    /// What comes next is in a buffer of its own with this name.
    pub fn buffer(&mut self, name: &str) {
        self.buffers.push((name.to_owned(), BTreeMap::new()));
    }

    /// A record of the thread `tid` on a CPU. Fields that are not named are 0.
    pub fn at(&mut self, (time, cpu): (u64, u32), tid: u32, event: &str, fields: &[(&str, Is<'_>)]) {
        let found = self.events.values().find(|other| other.format.name == event);
        let record = record(&found.unwrap_or_else(|| panic!("no event {event}")).format, tid, fields);
        self.push((time, cpu), &record);
    }

    /// `sched_switch` from a thread with a state, to another one. Threads are called `t` and their id.
    pub fn switch(&mut self, at: (u64, u32), (prev, state): (u32, i64), next: u32) {
        let names = [prev, next].map(|tid| format!("t{tid}").into_bytes());
        self.switch_names(at, (prev, state, &names[0]), (next, &names[1]));
    }

    /// The same with names.
    pub fn switch_names(
        &mut self,
        at: (u64, u32),
        (prev, state, prev_name): (u32, i64, &[u8]),
        (next, next_name): (u32, &[u8]),
    ) {
        let fields = [
            ("prev_comm", Is::Text(prev_name)),
            ("prev_pid", Is::Number(prev.into())),
            ("prev_state", Is::Number(state)),
            ("next_comm", Is::Text(next_name)),
            ("next_pid", Is::Number(next.into())),
        ];
        self.at(at, prev, "sched_switch", &fields);
    }

    /// `sched_waking` of a thread by another one.
    pub fn wake(&mut self, at: (u64, u32), by: u32, tid: u32) {
        self.at(at, by, "sched_waking", &[("pid", Is::Number(tid.into()))]);
    }

    /// Bytes of a record as they are.
    pub fn push(&mut self, (time, cpu): (u64, u32), record: &[u8]) {
        let (_, cpus) = self.buffers.last_mut().unwrap();
        cpus.entry(cpu).or_default().push(time, record);
    }

    /// Events of a CPU are lost between the record before and the next one; 0 if it is not known how many.
    pub fn lost(&mut self, cpu: u32, count: u64) {
        let (_, cpus) = self.buffers.last_mut().unwrap();
        cpus.entry(cpu).or_default().missed(count);
    }

    /// Writes it as a trace.dat.
    pub fn write(self, path: &Path) {
        let pages = |cpus: BTreeMap<u32, CpuPages>| -> BTreeMap<u32, Vec<u8>> {
            let each = cpus.into_iter().map(|(number, mut cpu)| {
                cpu.end_page();
                (number, cpu.pages)
            });
            each.collect()
        };
        let buffers: Vec<Pages> =
            self.buffers.into_iter().map(|(name, cpus)| Pages { name, cpus: pages(cpus) }).collect();
        tracefs::write_buffers(path, &self.events, &buffers);
    }
}

/// A record of an event.
fn record(format: &Format, tid: u32, fields: &[(&str, Is<'_>)]) -> Vec<u8> {
    let all = || format.common.iter().chain(&format.fields);
    let len = all().map(|field| field.offset + field.size).max().unwrap() as usize;
    let mut record = vec![0; len];
    let common = [("common_type", Is::Number(format.id.into())), ("common_pid", Is::Number(tid.into()))];
    for (name, value) in common.iter().chain(fields) {
        let field = all().find(|field| field.name == *name);
        let field = field.unwrap_or_else(|| panic!("{} has no {name}", format.name));
        let place = &mut record[field.offset as usize..][..field.size as usize];
        match value {
            Is::Number(number) => place.copy_from_slice(&number.to_le_bytes()[..place.len()]),
            Is::Numbers(numbers) => {
                for (place, number) in place.chunks_exact_mut(8).zip(*numbers) {
                    place.copy_from_slice(&number.to_le_bytes());
                }
            }
            Is::Text(text) => {
                // The last byte ends it.
                let len = text.len().min(place.len() - 1);
                place[..len].copy_from_slice(&text[..len]);
            }
        }
    }
    record
}
