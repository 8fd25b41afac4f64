//! A recording as every target layout needs it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::error::ExportError;
use super::job::Job;
use super::messages::{Messages, TextRecords};
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{EventTable, Machine, NoNames, Printer};
use tracedat::ledger::{Ledger, Pause};
use tracedat::losses::{CpuLosses, Losses};
use tracedat::reader::{
    Counts, CpuCounts, CpuRecords, Gap, Next, ReadError, Reader, Record, Records, Source, each_record_ahead,
    sum_of_losses,
};
use tracedat::{FileOption, Uname};

/// After how many records progress is told.
const STEP: u64 = 4096;

/// A file that is exported.
pub type TraceFile = Reader<Box<dyn Source>>;

/// A recording whose records have been counted, and whose events are understood.
#[derive(Debug)]
pub struct Recording<'r> {
    file: &'r TraceFile,
    machine: Machine,
    events: EventTable,
    messages: Messages<'r>,
    cpu_streams: Vec<CpuStream>,
    wall_offset: Option<i64>,
    overwritten: bool,
    pauses: Vec<Pause>,
}

/// What [`Recording::each_record_or_gap`] comes upon.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'r> {
    /// A record.
    Record(&'r Record<'r>),
    /// Between the last record of a CPU and its next one, which has the mark, events are missing.
    Gap(Gap),
}

/// The records of one CPU in one channel. A channel is a buffer, or several parts of one that have the same
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuStream {
    /// Name of the buffer, empty for the top one.
    pub channel: String,
    /// The CPU.
    pub cpu: u32,
    /// How many records of which event, without those of which there are none.
    pub by_id: Vec<(u16, u64)>,
    /// What its pages hold.
    pub counts: CpuCounts,
    /// Events that were lost before the first record, beside those that are marked on its page: 0 = not known
    /// how many. The first record of [`Recording::records`] has both.
    pub lost_before: Option<u64>,
    /// Events that were lost behind the last record: 0 = not known how many.
    pub lost_behind: Option<u64>,
    /// Whether more may be missing there: the recording did not come to its end.
    pub cut_short: bool,
    /// Whether it is known how many events are lost.
    pub lost_is_exact: bool,
    /// The buffers that it is in.
    parts: Vec<usize>,
}

impl<'r> Recording<'r> {
    /// Counts the records of a file, and looks whether all of them can be exported. Reads the file once, on
    /// all threads.
    ///
    /// # Errors
    /// The file is damaged, or has records of events that it does not describe. A job that keeps going counts
    /// these instead.
    pub fn survey(file: &'r TraceFile, job: &Job<'_>) -> Result<Self, ExportError> {
        for problem in file.problems() {
            let text = problem.to_string();
            let damaged =
                || ExportError::DamagedData { count: file.problems().len() as u64, first: text.clone() };
            job.tolerate(format!("what cannot be read: {text}"), 1, damaged)?;
        }
        let mut parts: BTreeMap<(usize, u32), Vec<usize>> = BTreeMap::new();
        for (buffer, info) in file.buffers().iter().enumerate() {
            // The buffer of the first buffer of this name, so that channels keep the order of the file.
            let first = file.buffers().iter().position(|other| other.name == info.name).unwrap_or(buffer);
            for extent in &info.cpus {
                parts.entry((first, extent.cpu)).or_default().push(buffer);
            }
        }
        let parts: Vec<_> = parts.into_iter().collect();
        let mut cpu_streams = job.parallel(&parts, |((first, cpu), buffers)| {
            let channel = file.buffers().get(*first).map_or("", |info| &info.name).to_owned();
            let mut cpu_stream = CpuStream::empty(channel, *cpu, buffers.clone());
            for buffer in buffers {
                cpu_stream.add(&file.count_cpu(*buffer, *cpu), job)?;
            }
            job.advance(0)?;
            Ok(cpu_stream)
        })?;
        let ledgers: Vec<_> = Ledger::all_of(file).collect();
        let counts = cpu_streams.iter().map(|of| ((of.channel.clone(), of.cpu), of.counts.clone()));
        let losses = Losses::new(&ledgers, &counts.collect());
        add_losses(&mut cpu_streams, &losses, file);
        let ledger = ledgers.into_iter().next();
        // No layout has a place for a loss of which only the least is known.
        let cut_short = cpu_streams.iter().filter(|cpu_stream| cpu_stream.cut_short).count() as u64;
        job.not_carried(
            "CPUs at whose end more events may be missing: the recording was cut short",
            cut_short,
        );
        let machine = Machine { endian: file.header().endian, long_size: file.layout().long_size };
        let mut events = event_table(file, machine, &cpu_streams, job)?;
        let messages = Messages::of(file, &mut events);
        job.set_total(cpu_streams.iter().map(|cpu_stream| cpu_stream.counts.events).sum());
        let wall_offset = wall_offset(file, ledger.as_ref());
        let overwritten = overwritten(file, ledger.as_ref());
        let pauses = ledger.iter().flat_map(|ledger| &ledger.pauses);
        let pauses = pauses.map(|pause| pause.corrected(file.clock())).collect();
        Ok(Self { file, machine, events, messages, cpu_streams, wall_offset, overwritten, pauses })
    }

    /// A recording that goes on, by what describes its events: a file without data. Any of them may have
    /// records.
    pub fn of_head(file: &'r TraceFile) -> Self {
        let machine = Machine { endian: file.header().endian, long_size: file.layout().long_size };
        let mut events = EventTable::new(machine);
        let mut unusable = Vec::new();
        // Of several events with one number the first counts, which a later one would replace.
        for system in file.metadata().systems.iter().rev() {
            for text in system.formats.iter().rev() {
                if let Err(error) = events.add(&system.name, text, &NoNames) {
                    unusable.push((system, text, error));
                }
            }
        }
        for (system, text, error) in unusable.into_iter().rev() {
            events.add_raw(&system.name, text, error);
        }
        let wall_offset = wall_offset(file, Ledger::of(file).as_ref());
        let messages = Messages::none(file);
        let (cpu_streams, pauses) = (Vec::new(), Vec::new());
        Self { file, machine, events, messages, cpu_streams, wall_offset, overwritten: false, pauses }
    }

    /// The events, for whoever needs nothing else.
    pub fn into_events(self) -> EventTable {
        self.events
    }

    /// The file.
    pub fn file(&self) -> &'r TraceFile {
        self.file
    }

    /// The machine that recorded.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The system calls of the machine that recorded, if the file names it and it is a known one.
    pub fn syscalls(&self) -> Option<SyscallTable> {
        SyscallTable::of_machine(&Uname::of(self.file.facts())?.machine)
    }

    /// The events of which there are records.
    pub fn events(&self) -> &EventTable {
        &self.events
    }

    /// The records, by channel in the order of the file, then by CPU. A CPU without any records may be among
    /// them.
    pub fn cpu_streams(&self) -> &[CpuStream] {
        &self.cpu_streams
    }

    /// The records of a stream, by time. Those of events that are not in [`events`](Self::events) were found
    /// by the survey, and are to be skipped; so are errors, which were counted by it.
    ///
    /// # Errors
    /// Its data cannot be read at all.
    pub fn records(&self, cpu_stream: &CpuStream) -> Result<TextRecords<'_>, ExportError> {
        self.merged(std::slice::from_ref(cpu_stream))
    }

    /// The records of several streams, by time: as [`records`](Self::records).
    ///
    /// # Errors
    /// Data of one cannot be read at all.
    pub fn merged<'s>(
        &self,
        cpu_streams: impl IntoIterator<Item = &'s CpuStream>,
    ) -> Result<TextRecords<'_>, ExportError> {
        let streams = cpu_streams.into_iter().flat_map(|cpu_stream| cpu_stream.open(self.file));
        Ok(TextRecords::new(Records::merge(streams.collect::<Result<_, _>>()?), &self.messages))
    }

    /// Has all records looked at by time, those of all channels and CPUs, and tells the job of it. Meanwhile
    /// another thread reads the next ones.
    ///
    /// # Errors
    /// Those of `look`; the job was cancelled; the data of a CPU cannot be read at all.
    pub fn each_record(
        &self,
        job: &Job<'_>,
        mut look: impl FnMut(&Record<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        self.each_record_or_gap(job, |seen| match seen {
            Seen::Record(record) => look(record),
            Seen::Gap(_) => Ok(()),
        })
    }

    /// The same with gaps, each where it begins: before the first record of others that lies in it.
    ///
    /// # Errors
    /// As [`each_record`](Self::each_record).
    pub fn each_record_or_gap(
        &self,
        job: &Job<'_>,
        mut look: impl FnMut(Seen<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let mut streams = Vec::new();
        for cpu_stream in &self.cpu_streams {
            for records in cpu_stream.open(self.file) {
                streams.push(records?);
            }
        }
        let mut done = 0;
        let mut memory = Vec::new();
        let mut look = |next: Next<'_>| match next {
            Next::Record(record) => {
                look(Seen::Record(&self.messages.inlined(record, &mut memory)))?;
                done += 1;
                if done < STEP { Ok(()) } else { job.advance(std::mem::take(&mut done)) }
            }
            Next::Gap(gap) => look(Seen::Gap(gap)),
            // Damage was found by the survey; whoever goes on nevertheless was warned.
            Next::End(_) | Next::Damage(_) => Ok(()),
        };
        let mut result = Ok(());
        each_record_ahead(
            &mut Records::merge(streams),
            |_| usize::MAX,
            |next| match look(next) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            },
        );
        result.and_then(|()| job.advance(done))
    }

    /// Nanoseconds to add to the times of records to get those since 1970. `None` if unknown.
    pub fn wall_offset(&self) -> Option<i64> {
        self.wall_offset
    }

    /// Name of the clock, without its brackets; empty if the file does not say.
    pub fn clock_name(&self) -> String {
        let named =
            self.file.buffers().iter().map(|info| info.clock.as_str()).find(|clock| !clock.is_empty());
        let chosen = self.file.facts().find_map(|fact| match fact {
            FileOption::TraceClock(text) => text.split_once('[').and_then(|(_, rest)| rest.split_once(']')),
            _ => None,
        });
        named.or(chosen.map(|(clock, _)| clock)).unwrap_or_default().to_owned()
    }

    /// Whether times are nanoseconds.
    pub fn counts_nanoseconds(&self) -> bool {
        let tsc = self.file.facts().any(|fact| matches!(fact, FileOption::Tsc2Nsec { .. }));
        tsc || !matches!(self.clock_name().as_str(), "counter" | "uptime" | "x86-tsc" | "ppc-tb")
    }

    /// Whether old events were overwritten by new ones.
    pub fn overwritten(&self) -> bool {
        self.overwritten
    }

    /// When it was paused, by the times of its records: only files of this recorder tell it.
    pub fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// Times of the first and the last record.
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.cpu_streams.iter().filter_map(|cpu_stream| cpu_stream.counts.first).min()?;
        let last = self.cpu_streams.iter().filter_map(|cpu_stream| cpu_stream.counts.last).max()?;
        Some((first, last))
    }
}

impl CpuStream {
    /// The buffers that it is in, by their indices in the file.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Events that were lost behind the last record, or at all if there is none: 0 = not known how many.
    pub fn lost_at_end(&self) -> Option<u64> {
        let before = self.lost_before.filter(|_| self.counts.events == 0);
        sum_of_losses(before, self.lost_behind)
    }

    /// At how many places events were lost that nobody counted.
    pub fn losses_uncounted(&self) -> u64 {
        self.counts.missed_unknown + u64::from(self.lost_at_end() == Some(0))
    }

    /// Events that are known to be lost; a mark among the records may not say how many.
    pub fn lost(&self) -> u64 {
        let ends = self.lost_before.unwrap_or(0).saturating_add(self.lost_behind.unwrap_or(0));
        self.counts.missed_events.saturating_add(ends)
    }

    fn empty(channel: String, cpu: u32, parts: Vec<usize>) -> Self {
        let counts = CpuCounts { cpu, ..CpuCounts::default() };
        let (lost_before, lost_behind, cut_short, lost_is_exact) = (None, None, false, false);
        let by_id = Vec::new();
        Self { channel, cpu, by_id, counts, lost_before, lost_behind, cut_short, lost_is_exact, parts }
    }

    fn has_lost(&mut self, losses: CpuLosses) {
        self.lost_before = losses.before;
        self.lost_behind = sum_of_losses(self.lost_behind, losses.behind);
        (self.cut_short, self.lost_is_exact) = (losses.cut_short, losses.is_exact);
    }

    /// Its records in each buffer, those of the first with what was lost before them.
    fn open<'r>(&self, file: &'r TraceFile) -> impl Iterator<Item = Result<CpuRecords<'r>, ReadError>> {
        let mut before = self.lost_before;
        self.parts.iter().map(move |buffer| {
            let records = file.cpu_records(*buffer, self.cpu)?;
            Ok(records.with_losses(before.take(), None))
        })
    }

    fn add(&mut self, found: &Counts, job: &Job<'_>) -> Result<(), ExportError> {
        let damaged: u64 = found.cpus.iter().map(|counts| counts.damaged).sum();
        if damaged > 0 || !found.damage.is_empty() {
            let count = damaged.max(1);
            let first = found.damage.first().cloned().unwrap_or_default();
            job.tolerate("damaged places of the recording", count, || ExportError::DamagedData {
                count,
                first,
            })?;
        }
        let mut by_id: BTreeMap<u16, u64> = std::mem::take(&mut self.by_id).into_iter().collect();
        for (id, events) in &found.by_id {
            *by_id.entry(*id).or_default() += events;
        }
        self.by_id = by_id.into_iter().collect();
        for counts in &found.cpus {
            self.counts.add(counts);
        }
        Ok(())
    }
}

/// Gives each stream its losses. A CPU of which all was lost gets one without records.
fn add_losses(cpu_streams: &mut Vec<CpuStream>, losses: &Losses, file: &TraceFile) {
    let mut known: BTreeMap<(String, u32), &mut CpuStream> = BTreeMap::new();
    for stream in cpu_streams.iter_mut() {
        stream.lost_behind = stream.counts.missed_behind;
        known.insert((stream.channel.clone(), stream.cpu), stream);
    }
    let mut silent = Vec::new();
    for (channel, cpu, of_cpu) in losses.iter() {
        if let Some(stream) = known.get_mut(&(channel.to_owned(), cpu)) {
            stream.has_lost(of_cpu);
        } else if of_cpu.any() {
            let mut stream = CpuStream::empty(channel.to_owned(), cpu, Vec::new());
            stream.has_lost(of_cpu);
            silent.push(stream);
        }
    }
    if silent.is_empty() {
        return;
    }
    cpu_streams.append(&mut silent);
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, buffer) in file.buffers().iter().enumerate() {
        places.entry(&buffer.name).or_insert(index);
    }
    let place = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
    cpu_streams.sort_by(|one, other| {
        (place(&one.channel), &one.channel, one.cpu).cmp(&(place(&other.channel), &other.channel, other.cpu))
    });
}

/// The events of which there are records.
fn event_table(
    file: &TraceFile,
    machine: Machine,
    cpu_streams: &[CpuStream],
    job: &Job<'_>,
) -> Result<EventTable, ExportError> {
    let mut records: BTreeMap<u16, u64> = BTreeMap::new();
    for (id, events) in cpu_streams.iter().flat_map(|cpu_stream| &cpu_stream.by_id) {
        *records.entry(*id).or_default() += events;
    }
    let mut table = EventTable::new(machine);
    let mut unusable = Vec::new();
    for (id, records) in records {
        let Some(event) = file.metadata().event(id) else {
            let what = format!("records of event number {id}, which the file does not describe");
            job.tolerate(what, records, || ExportError::UnknownEvent { id, records })?;
            continue;
        };
        if let Err(source) = table.add(event.system, event.format, &NoNames) {
            unusable.push((event, source));
        }
    }
    // The fields that all events have are those of the others.
    for (event, source) in unusable {
        table.add_raw(event.system, event.format, source);
    }
    Ok(table)
}

/// `system:name`.
pub fn full_name(printer: &Printer) -> String {
    format!("{}:{}", printer.system(), printer.name())
}

/// Events that each CPU of each buffer lost before they reached the pages of a recording, of which somebody
/// counts the marks; at least so many if it was cut short.
pub fn lost_by_cpu(ledger: &Ledger) -> BTreeMap<(&str, u32), u64> {
    let rows = ledger.cpus.iter();
    rows.map(|row| ((&*row.channel, row.cpu), row.lost_in_all())).collect()
}

/// Our recorder counts what was overwritten; of other files the kernel's statistics count overruns.
fn overwritten(file: &TraceFile, ledger: Option<&Ledger>) -> bool {
    if let Some(ledger) = ledger {
        return ledger.sum(|cpu| cpu.overwritten) != 0;
    }
    let overruns = file.facts().filter_map(|fact| match fact {
        FileOption::CpuStat(text) => text.lines().find_map(|line| line.strip_prefix("overrun: ")),
        _ => None,
    });
    overruns.into_iter().any(|count| count.trim().parse() != Ok(0_u64))
}

/// What turns the times of records into wall time. Our recorder measures it; of other files only those with
/// option DATE have it.
fn wall_offset(file: &TraceFile, ledger: Option<&Ledger>) -> Option<i64> {
    let clock = file.clock();
    let wanted = clock.corrections();
    let added = if wanted.offset { clock.offset() } else { 0 }.wrapping_add(if wanted.date {
        clock.date()
    } else {
        0
    });
    let measured = ledger.and_then(|ledger| ledger.realtime_offset_ns);
    match measured {
        Some(offset) => Some(offset.wrapping_sub(added)),
        None => file.facts().any(|fact| matches!(fact, FileOption::Date { .. })).then_some(0),
    }
}
