//! The trace.dat of what a sink was given.

use std::collections::{BTreeMap, HashSet};
use std::io::{Seek, Write};
use std::path::PathBuf;

use super::provenance::{self, Counted};
use super::sink::{Event, Facts, LOSS, Lost, Stream};
use super::sink::{MAX_CPUS, is_of_state_dump};
use super::spool::Merge;
use super::{BufferId, ImportError, Imported, Sink, event};
use ftrace_event::{Cmdlines, Endian};
use tracedat::initial_state::{Host, InitialState, Thread};
use tracedat::layout::MIN_PAGE_SIZE;
use tracedat::ledger;
use tracedat::ledger::{Ledger, LedgerCpu, Losses};
use tracedat::page::{PageBuilder, PageError, PageLayout, Push};
use tracedat::provenance::Recorder;
use tracedat::{
    Buffer, BufferWriter, Compression, EventSystem, FileOption, OptionId, Section, SectionId, Setup, Uname,
    WriteError, Writer,
};

/// The first number that is given to events that want none: above those that kernels have for their own
/// (`enum trace_type` of kernel/trace/trace.h), which some readers know.
const FIRST_ID: u16 = 1024;

/// What a record needs on a page beside its bytes.
const PAGE_OVERHEAD: u32 = 24;

/// The system whose formats have a section of their own.
const FTRACE: &str = "ftrace";

/// What became of the records of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    events: u64,
    /// Of those, events of a state dump.
    dumped: u64,
    span: Option<(u64, u64)>,
    /// Losses that are marked among the records.
    marked: u64,
}

/// Writes everything. The output is given back, with what was written; path and length are left empty.
///
/// With `date`, readers show times of day; without, the ledger says how far the clock is from them, as it
/// does in files of our recorder.
pub(super) fn write<W: Write + Seek>(
    sink: Sink<'_>,
    date: bool,
    out: W,
) -> Result<(W, Imported), ImportError> {
    let (endian, format) = (sink.endian(), sink.format());
    let Sink { facts, tasks, processes, events, buffers, streams, mut spool, longest, not_carried, .. } =
        sink;
    let ids = numbers(&events);
    let layout = page_layout(endian, longest, facts.long_size);
    let mut writer = create(out, layout)?;
    sections(&mut writer, layout, &facts, &events, &ids)?;
    writer.section(Section::cmdlines(endian, &tasks))?;
    options(&mut writer, &facts, date)?;

    let mut imported = Imported {
        path: PathBuf::new(),
        bytes: 0,
        events: 0,
        kinds: events.len(),
        lost: 0,
        lost_unknown: false,
        span: None,
        not_carried,
    };
    let mut ledger = Ledger {
        version: ledger::VERSION,
        imported: Some(format.to_owned()),
        lacks_contexts: facts.lacks_contexts,
        clock: Some(facts.clock.clone()).filter(|clock| !clock.is_empty()),
        realtime_offset_ns: facts.wall_offset,
        realtime_uncertainty_ns: facts
            .wall_offset
            .and_then(|_| facts.provenance.clock.as_ref()?.uncertainty_ns),
        ..Ledger::default()
    };
    let dump: Vec<bool> = events.iter().map(|event| is_of_state_dump(&event.name)).collect();
    let mut counted = Counted::default();
    let streams: BTreeMap<(BufferId, u32), Stream> = streams.into_iter().collect();
    for (index, name) in buffers.iter().enumerate() {
        let id = BufferId(index as u32);
        let mut cpus = Vec::new();
        let mut by_kind = vec![0; events.len()];
        {
            let clock = facts.clock.as_str();
            let mut buffer = writer.begin_buffer(Buffer { name, clock, page_size: layout.page_size })?;
            for ((_, cpu), Stream { index, lost }) in streams.range((id, 0)..=(id, u32::MAX)) {
                let items = spool.take(*index)?;
                let by_kind = &mut by_kind;
                let mut records = Records { endian, ids: &ids, dump: &dump, items, layout, by_kind };
                let written = records.write(&mut buffer, *cpu)?;
                imported.add(written, *lost);
                cpus.push((*cpu, written, *lost));
            }
            buffer.finish()?;
        }
        statistics(&mut writer, name, &cpus)?;
        ledger.cpus.extend(cpus.iter().map(|(cpu, written, lost)| ledger_row(name, *cpu, *written, *lost)));
        counted.dumped.extend(cpus.iter().map(|(_, written, _)| written.dumped));
        counted.events.insert(name.clone(), by_event(&events, &dump, &by_kind));
    }
    for ledger in provenance::ledgers(ledger, &counted, &facts.provenance.ledgers, MAX_CPUS) {
        writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() })?;
    }
    if let Some((first, _)) = imported.span.filter(|_| !processes.is_empty()) {
        let bytes = state(&processes, &tasks, host(&facts), first)
            .encode()
            .map_err(|source| WriteError::Io { what: "the processes of threads", source })?;
        writer.option(&FileOption::Unknown { id: InitialState::OPTION, bytes })?;
    }
    Ok((writer.finish()?, imported))
}

/// The records of each event that has some and is none of a state dump.
fn by_event(events: &[Event], dump: &[bool], by_kind: &[u64]) -> BTreeMap<String, u64> {
    let counts = events.iter().zip(dump).zip(by_kind);
    let counts = counts.filter(|((_, is_dumped), count)| !**is_dumped && **count != 0);
    counts.map(|((event, _), count)| (format!("{}:{}", event.system, event.name), *count)).collect()
}

/// The threads whose processes the source has, as our recorder would have seen them when it began.
fn state(processes: &BTreeMap<u32, u32>, tasks: &Cmdlines, host: Host, first: u64) -> InitialState {
    let thread = |tid: u32, tgid: u32| Thread {
        tid,
        tgid,
        comm: tasks.get(tid).map(|comm| String::from_utf8_lossy(comm).into_owned()).unwrap_or_default(),
        ..Thread::default()
    };
    let mains = processes.values().copied().map(|tgid| (tgid, tgid));
    // What a source says of a thread counts more than that it is a process.
    let all: BTreeMap<u32, u32> = mains.chain(processes.iter().map(|(tid, tgid)| (*tid, *tgid))).collect();
    InitialState {
        version: InitialState::VERSION,
        began_ns: first,
        ended_ns: first,
        // Nobody has looked at anything else.
        cut_short: true,
        host,
        threads: all.into_iter().map(|(tid, tgid)| thread(tid, tgid)).collect(),
        ..InitialState::default()
    }
}

/// The machine.
fn host(facts: &Facts) -> Host {
    let Uname { system, node, release, version, machine } = facts.uname.clone();
    let known = facts.provenance.machine.as_ref().map(|machine| machine.host.clone());
    Host { sysname: system, hostname: node, release, version, machine, ..known.unwrap_or_default() }
}

impl Imported {
    fn add(&mut self, written: Written, lost: Lost) {
        self.events += written.events;
        self.lost = self.lost.saturating_add(lost.events);
        self.lost_unknown |= lost.unknown;
        self.span = match (self.span, written.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (span, None) | (None, span) => span,
        };
    }
}

/// The number of each event: that which it wants, if it is the first that wants it, or else a free one.
fn numbers(events: &[Event]) -> Vec<u16> {
    let mut taken = HashSet::new();
    let wanted: Vec<_> =
        events.iter().map(|event| event.wanted.filter(|number| taken.insert(*number))).collect();
    // There are less events than numbers.
    let mut free = (FIRST_ID..=u16::MAX).chain(1..FIRST_ID).filter(|number| !taken.contains(number));
    wanted.into_iter().map(|number| number.or_else(|| free.next()).unwrap_or(u16::MAX)).collect()
}

/// Pages on which the longest record fits.
fn page_layout(endian: Endian, longest: usize, long_size: u8) -> PageLayout {
    let needed = (longest as u32).next_multiple_of(4) + PAGE_OVERHEAD;
    let native = PageLayout::native(endian, needed.next_power_of_two().max(MIN_PAGE_SIZE));
    match long_size {
        // Pages of 32-bit kernels have a commit word of 4 bytes.
        4 => PageLayout { long_size: 4, data_at: native.commit_at + 4, ..native },
        _ => native,
    }
}

fn create<W: Write + Seek>(out: W, layout: PageLayout) -> Result<Writer<W>, WriteError> {
    let PageLayout { endian, page_size, long_size, .. } = layout;
    let setup = Setup { endian, page_size, compression: Compression::default() };
    if long_size == 8 {
        Writer::create(out, setup)
    } else {
        Writer::create_foreign(out, setup, layout, long_size)
    }
}

fn sections<W: Write + Seek>(
    writer: &mut Writer<W>,
    layout: PageLayout,
    facts: &Facts,
    events: &[Event],
    ids: &[u16],
) -> Result<(), ImportError> {
    let endian = layout.endian;
    let header_page = layout.header_page_text();
    if layout.long_size == 8 {
        writer.section(Section::header_info(endian, &header_page, &facts.header_event)?)?;
    } else {
        // What checks the text knows pages of 64-bit kernels only.
        let mut body = Vec::new();
        for (name, text) in [("header_page\0", &header_page), ("header_event\0", &facts.header_event)] {
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(&endian.u64(text.len() as u64));
            body.extend_from_slice(text.as_bytes());
        }
        let id = SectionId::HEADER_INFO;
        writer.raw_section(id, id.description(), &body)?;
    }
    let mut systems: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (event, id) in events.iter().zip(ids) {
        let text = event::text(&event.name, *id, &event.body);
        systems.entry(&event.system).or_default().push(text);
    }
    let ftrace = systems.remove(FTRACE).unwrap_or_default();
    let ftrace: Vec<&str> = ftrace.iter().map(String::as_str).collect();
    writer.section(Section::ftrace_events(endian, &ftrace)?)?;
    let systems: Vec<(&str, Vec<&str>)> =
        systems.iter().map(|(name, formats)| (*name, formats.iter().map(String::as_str).collect())).collect();
    let systems: Vec<_> = systems.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &systems)?)?;
    if !facts.kallsyms.is_empty() {
        writer.section(Section::kallsyms(endian, &facts.kallsyms)?)?;
    }
    if !facts.printk.is_empty() {
        writer.section(Section::printk(endian, &facts.printk)?)?;
    }
    Ok(())
}

fn options<W: Write + Seek>(writer: &mut Writer<W>, facts: &Facts, date: bool) -> Result<(), WriteError> {
    let version = env!("CARGO_PKG_VERSION");
    let recorder = without_nul(&facts.recorder);
    let recorder = if recorder.is_empty() { "another tracer" } else { &recorder };
    let importer = format!("tracer-agent {version}");
    writer.option(&FileOption::Version(Recorder::imported(&importer, Recorder::first(recorder))))?;
    let Uname { system, node, release, version, machine } = &facts.uname;
    let words = [system, node, release, version, machine].map(|word| without_nul(word));
    let words: Vec<_> = words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()).collect();
    if !words.is_empty() {
        writer.option(&FileOption::Uname(words.join(" ")))?;
    }
    if shows_seconds(&facts.clock) {
        writer.option(&FileOption::TraceClock(format!("[{}]", facts.clock)))?;
    }
    if let Some(nanos) = facts.wall_offset.filter(|_| date) {
        writer.option(&FileOption::Offset { nanos })?;
    }
    if let Some(count) = facts.cpu_count {
        writer.option(&FileOption::CpuCount(count))?;
    }
    Ok(())
}

/// The clocks whose times readers show in seconds when the option names them; see [`FileOption::TraceClock`].
fn shows_seconds(clock: &str) -> bool {
    matches!(clock, "local" | "global" | "mono" | "mono_raw" | "tai" | "perf" | "uptime")
}

fn without_nul(text: &str) -> String {
    text.replace(['\0', '\n'], " ")
}

/// The statistics of each CPU as tracefs has them, with the losses in their place.
fn statistics<W: Write + Seek>(
    writer: &mut Writer<W>,
    buffer: &str,
    cpus: &[(u32, Written, Lost)],
) -> Result<(), WriteError> {
    if cpus.iter().all(|(.., lost)| lost.events == 0) {
        return Ok(());
    }
    if !buffer.is_empty() {
        writer.option(&FileOption::CpuStat(format!("Buffer: {buffer}")))?;
    }
    for (cpu, written, lost) in cpus {
        let lost = lost.events.max(written.marked);
        writer.option(&FileOption::CpuStat(format!(
            "CPU: {cpu}\nentries: 0\noverrun: 0\ncommit overrun: 0\nbytes: 0\ndropped events: {lost}\n\
             read events: {}\n",
            written.events
        )))?;
    }
    Ok(())
}

/// What the ledger says of a CPU. Who lost the events is not known here.
fn ledger_row(buffer: &str, cpu: u32, written: Written, lost: Lost) -> LedgerCpu {
    let lost = lost.events.max(written.marked);
    LedgerCpu {
        channel: buffer.to_owned(),
        cpu,
        recorded: Some(written.events),
        stored: Some(written.events),
        lost: Losses(if lost == 0 { Vec::new() } else { vec![("by_recorder".to_owned(), lost)] }),
        ..LedgerCpu::default()
    }
}

/// The records of a CPU, on their way to pages.
struct Records<'a> {
    endian: Endian,
    ids: &'a [u16],
    /// By event, whether it is one of a state dump.
    dump: &'a [bool],
    items: Merge<'a>,
    layout: PageLayout,
    /// By event, how many there are.
    by_kind: &'a mut [u64],
}

impl Records<'_> {
    fn write<W: Write + Seek>(
        &mut self,
        buffer: &mut BufferWriter<'_, W>,
        cpu: u32,
    ) -> Result<Written, ImportError> {
        let Self { endian, ids, dump, items, layout, by_kind } = self;
        let mut out = buffer.begin_cpu(cpu)?;
        let mut pages = PageBuilder::with_layout(*layout);
        let mut record = Vec::new();
        let mut written = Written::default();
        while let Some((time, kind)) = items.next(|item| {
            record.clear();
            record.extend_from_slice(item.data);
            (item.time, item.kind)
        })? {
            if kind == LOSS {
                let count = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                written.marked = written.marked.saturating_add(count);
                pages.missed(count);
                continue;
            }
            let id = ids.get(kind as usize).copied().unwrap_or(u16::MAX);
            if let Some(number) = record.first_chunk_mut() {
                *number = endian.u16(id);
            }
            let fail = |source: PageError| WriteError::Page { cpu, index: 0, source };
            while pages.push(time, &record).map_err(fail)? == Push::Full {
                if let Some(page) = pages.finish() {
                    out.push_page(page)?;
                }
            }
            written.events += 1;
            if let Some(count) = by_kind.get_mut(kind as usize) {
                *count += 1;
            }
            written.dumped += u64::from(dump.get(kind as usize).copied().unwrap_or(false));
            written.span = Some((written.span.map_or(time, |span| span.0), time));
        }
        if let Some(page) = pages.finish() {
            out.push_page(page)?;
        }
        out.finish()?;
        Ok(written)
    }
}

#[cfg(test)]
mod tests;
