//! Hands records on to all that is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Options;
use super::blocks::{Blocks, Written};
use super::events::{Made, Pending, Plan};
use super::index::{CpuTold, EventTold, Index, told};
use super::levels::Levels;
use crate::tracks::{Finished, Row, Slice, Slicer, Taken, has_switches, state};
use ftrace_event::{Printer, SymbolTable};
use recording::{ExportError, Job, Recording, Seen, full_name};
use stdx::fast_map::FastMap;
use tracedat::FileOption;

/// The overview has the densities of at least so many events: of 8192 buckets, several on a pixel.
const OVERVIEW: u64 = 1 << 18;

pub(super) struct Builder<'r> {
    recording: &'r Recording<'r>,
    options: Options,
    plans: &'r FastMap<u16, Plan>,
    slicer: Slicer<'r>,
    detailed: (u64, u64),
    slices: Vec<Slice>,
    levels: Levels,
    pending: Pending,
}

/// How the records of the events are stored, by the numbers of the events.
pub(super) fn plans(recording: &Recording<'_>) -> FastMap<u16, Plan> {
    let calls = recording.syscalls();
    let plans = recording.events().iter().enumerate();
    plans.map(|(number, printer)| (printer.format().id, Plan::of(printer, number as u32, calls))).collect()
}

impl<'r> Builder<'r> {
    pub(super) fn new(recording: &'r Recording<'r>, plans: &'r FastMap<u16, Plan>, options: Options) -> Self {
        let slicer = Slicer::new(recording);
        Self {
            recording,
            options,
            plans,
            detailed: (0, 0),
            slices: Vec::new(),
            levels: Levels::new(slicer.span(), total(recording).min(options.max_events.max(OVERVIEW))),
            slicer,
            pending: Pending::default(),
        }
    }

    /// The symbols of the recording's kernel.
    pub(super) fn symbols(&self) -> Arc<SymbolTable> {
        Arc::clone(self.slicer.symbols())
    }

    /// Takes the next record.
    pub(super) fn take(&mut self, seen: Seen<'_>, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        let (Some(taken), Seen::Record(record)) = (self.slicer.take(seen), seen) else { return Ok(()) };
        // Others were found by the survey.
        let Some(plan) = record.event_id().and_then(|id| self.plans.get(&id)) else { return Ok(()) };
        let Taken { at, tid, thread, is_drawn } = taken;
        let rows = &mut self.slicer.sink().rows;
        if let Some(row) = rows.number(Row::Event(plan.number)) {
            self.levels.event(row, at.time);
            rows.count(row, 0);
        }
        let marks = thread.filter(|_| !is_drawn && tid != Some(0));
        if let Some(row) = marks.and_then(|thread| rows.number(Row::Marks(thread))) {
            self.levels.event(row, at.time);
            rows.count(row, 0);
        }
        let has_details = at.event <= self.options.max_events;
        if has_details {
            let made = Made { time: at.time, thread: thread.map_or(0, |thread| thread + 1) };
            self.pending.add(record, made, plan);
            self.detailed = (at.event, at.time);
            if self.pending.is_full() {
                self.write_records(blocks)?;
            }
        }
        self.write_slices(has_details, blocks)?;
        self.levels.advance(at.time, &self.slicer.sink().rows, blocks)
    }

    fn write_records(&mut self, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        self.pending.take().map_or(Ok(()), |records| blocks.add_records(records))
    }

    fn write_slices(&mut self, has_details: bool, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        self.slicer.slices(&mut self.slices);
        let rows = &mut self.slicer.sink().rows;
        for slice in self.slices.drain(..) {
            let has_time = !rows.get(slice.row).is_some_and(Row::has_few_keys) || slice.key == state::RUNS;
            rows.count(slice.row, if has_time { slice.end - slice.start } else { 0 });
            self.levels.slice(slice, has_details, blocks)?;
        }
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(&mut self, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        let has_details = self.slicer.count() <= self.options.max_events;
        self.slicer.end();
        self.write_slices(has_details, blocks)?;
        self.levels.finish(&self.slicer.sink().rows, blocks)?;
        self.write_records(blocks)
    }

    /// The index, with these blocks of records.
    pub(super) fn index(self, written: Written, job: &Job<'_>) -> Result<Vec<u8>, ExportError> {
        let index = self.told(written, job);
        serde_json::to_vec(&index).map_err(|error| ExportError::Unsupported(error.to_string()))
    }

    fn told(self, written: Written, job: &Job<'_>) -> Index {
        let recording = self.recording;
        let (first, span, count) = (self.slicer.first(), self.slicer.span(), self.slicer.count());
        let events = events_told(recording, self.plans, &self.slicer);
        let finished = self.slicer.finish();
        let threads = finished.names(recording);
        let threads = threads.map(|(tid, name)| (tid, String::from_utf8_lossy(name).into_owned())).collect();
        let Finished { sink, left_out, backwards, .. } = finished;
        for (what, count) in [
            (
                "events of which the page has densities and longer slices only (--max-events)",
                count - self.detailed.0,
            ),
            ("texts of which the page has the first 16 KiB", written.cut),
            ("times that go back: the events are shown where the one before is", backwards),
        ]
        .into_iter()
        .chain(left_out)
        {
            job.not_carried(what, count);
        }
        let not_carried = job.take_not_carried();
        let left_out = not_carried.iter().map(|(what, count)| (what.to_owned(), count)).collect();
        job.merge_not_carried(not_carried);
        let relative = |time: u64| time.saturating_sub(first).min(span);
        let pauses = recording.pauses().iter();
        Index {
            version: 1,
            writer: format!("tracer-agent {}", env!("CARGO_PKG_VERSION")),
            nanoseconds: recording.counts_nanoseconds(),
            clock: recording.clock_name(),
            first: first.to_string(),
            wall_offset: recording.wall_offset().map(|offset| offset.to_string()),
            span,
            machine: recording
                .file()
                .facts()
                .find_map(|fact| match fact {
                    FileOption::Uname(text) => Some(text.clone()),
                    _ => None,
                })
                .unwrap_or_default(),
            total: count,
            detailed: self.detailed.0,
            detailed_to: self.detailed.1,
            base: self.levels.base(),
            levels: self.levels.count(),
            has_switches: has_switches(recording),
            threads,
            rows: sink
                .rows
                .iter()
                .map(|(row, sum)| {
                    let (kind, owner, lane) = row.told();
                    (kind, owner, lane, sum.count, sum.time)
                })
                .collect(),
            labels: sink.labels.all().to_vec(),
            events,
            slices: told(&self.levels.slice_blocks),
            densities: told(&self.levels.density_blocks),
            blocks: written.told,
            cpus: cpus_told(recording),
            pauses: pauses
                .map(|pause| (relative(pause.from_ns), pause.to_ns.map_or(span, relative)))
                .collect(),
            left_out,
        }
    }
}

/// How many records there are whose events are understood.
fn total(recording: &Recording<'_>) -> u64 {
    let counts = recording.cpu_streams().iter().flat_map(|stream| &stream.by_id);
    counts.filter(|(id, _)| recording.events().get(*id).is_some()).map(|(_, count)| count).sum()
}

fn events_told(recording: &Recording<'_>, plans: &FastMap<u16, Plan>, slicer: &Slicer<'_>) -> Vec<EventTold> {
    let told = |printer: &Printer| {
        let id = printer.format().id;
        let counts = recording.cpu_streams().iter().flat_map(|stream| &stream.by_id);
        EventTold {
            name: full_name(printer),
            count: counts.filter(|(other, _)| *other == id).map(|(_, count)| count).sum(),
            is_marker: printer.system() == "ftrace" && matches!(printer.name(), "print" | "bprint" | "bputs"),
            is_drawn: slicer.is_drawn(id),
            fields: plans.get(&id).map(Plan::told).unwrap_or_default(),
        }
    };
    recording.events().iter().map(told).collect()
}

fn cpus_told(recording: &Recording<'_>) -> Vec<CpuTold> {
    let mut cpus: BTreeMap<u32, CpuTold> = BTreeMap::new();
    for stream in recording.cpu_streams() {
        let cpu = cpus.entry(stream.cpu).or_insert(CpuTold {
            cpu: stream.cpu,
            events: 0,
            lost: 0,
            uncounted: 0,
            cut_short: false,
        });
        cpu.events += stream.counts.events;
        cpu.lost = cpu.lost.saturating_add(stream.lost());
        cpu.uncounted += stream.losses_uncounted();
        cpu.cut_short |= stream.cut_short;
    }
    cpus.into_values().collect()
}
