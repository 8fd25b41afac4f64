//! The layout of LTT of 2003 (new-ltt-trace-format).
//!
//! ```text
//! OUTDIR/eventdefs/SYSTEM.xml     the types of events, a facility for each system; core.xml has those that every trace has
//!        info/system.xml          the traced system
//!        info/bookmarks.xml       trace markers, intervals without records, begin and end of the recording
//!        control/facilities       which facilities there are, and the first code of each
//!        control/processes, interrupts   the initial state of the system
//!        cpu/N                    the events of a CPU, those of all buffers
//! ```
//!
//! What is written is what the reader of its time opens (LTTV 0.4); [`Options::literal`] writes the document
//! to the letter. That reader finds codes only in a trace of one facility: it reads checksums one byte too
//! early.

mod block;
mod builtin;
mod control;
mod facilities;
mod info;
pub mod summary;
pub mod types;

use std::fs::File;
use std::path::PathBuf;

use self::block::{Layout, Tracefile};
use self::builtin::Core;
use self::facilities::{Facilities, State};
use self::info::Bookmark;
use super::ltt2008::check_block_size;
use super::payload::{Payload, value_of};
use super::state::{Change, StreamTellers, Tellers};
use ftrace_event::Endian;
use ftrace_event::{Printer, Value};
use recording::error::ExportError;
use recording::job::Job;
use recording::staging::{create_dir, create_file};
use recording::survey::{CpuStream, Recording};
use recording::{Description, Format, full_name};
use stdx::not_carried::NotCarried;
use stdx::output::Directory;

/// Records between two reports of the job's progress.
const STEP: u64 = 8192;
/// Most bookmarks of a CPU.
const MAX_BOOKMARKS: usize = 10_000;
/// The reader has names for so many system calls and interrupts.
const MAX_NUMBER: u32 = 255;

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Write the document to the letter instead of what its reader opens.
    pub literal: bool,
    /// Bytes of a block: a multiple of [`PAGE`](super::ltt2008::PAGE), up to
    /// [`MAX_BLOCK`](super::ltt2008::MAX_BLOCK).
    pub block_size: u32,
    /// Byte order; that of the recording by default.
    pub endian: Option<Endian>,
}

impl Default for Options {
    /// Blocks that the longest record fits into.
    fn default() -> Self {
        Self { literal: false, block_size: 256 << 10, endian: None }
    }
}

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventDefs {
    options: Options,
}

impl EventDefs {
    /// The format with these options.
    ///
    /// # Errors
    /// A block size that the layout has not.
    pub fn new(options: Options) -> Result<Self, ExportError> {
        check_block_size(options.block_size)?;
        Ok(Self { options })
    }
}

impl Format for EventDefs {
    fn name(&self) -> &'static str {
        "ltt-eventdefs"
    }

    fn keeps(&self) -> &'static [Description] {
        &[Description::Machine, Description::State]
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let Options { literal, block_size, endian } = self.options;
        let facilities = Facilities::new(recording, literal)?;
        let layout = Layout {
            endian: endian.unwrap_or(recording.machine().endian),
            literal,
            numbers: facilities.numbers,
            block_size: block_size as usize,
            wall_offset: recording.wall_offset().unwrap_or(0),
        };
        if !recording.counts_nanoseconds() {
            job.not_carried("the unit of time: the clock's ticks are written as nanoseconds", 1);
        }
        let trace =
            Trace { recording, layout, facilities: &facilities, tellers: &Tellers::choose(recording), job };
        let [definitions, info, control, data] =
            ["eventdefs", "info", "control", "cpu"].map(|part| create_dir(dir, part));
        let (info, data) = (info?, data?);
        trace.describe(&definitions?, &info, &control?)?;
        let cpus = trace.cpus();
        let found = job.parallel(&cpus, |cpu| trace.cpu(cpu, &data))?;
        let mut bookmarks: Vec<Bookmark> = found.into_iter().flatten().collect();
        if let Some((start, end)) = recording.span() {
            let text = "The recording".to_owned();
            bookmarks.push(Bookmark { start, end, cpu: None, name: "session", text });
            for (at, name) in [(start, "session_start"), (end, "session_stop")] {
                bookmarks.push(Bookmark {
                    start: at,
                    end: at,
                    cpu: None,
                    name,
                    text: name.replace('_', " "),
                });
            }
        }
        bookmarks.sort();
        save(&info, "bookmarks.xml", &info::bookmarks_xml(&bookmarks, &layout))
    }
}

/// What all files of a trace share.
struct Trace<'t> {
    recording: &'t Recording<'t>,
    layout: Layout,
    facilities: &'t Facilities,
    tellers: &'t Tellers,
    job: &'t Job<'t>,
}

/// A CPU and where its records are: of every buffer that it has records in.
struct Cpu<'t> {
    number: u32,
    cpu_streams: Vec<&'t CpuStream>,
}

impl Trace<'_> {
    /// Writes everything but the events.
    fn describe(
        &self,
        definitions: &Directory,
        info: &Directory,
        control: &Directory,
    ) -> Result<(), ExportError> {
        let Self { layout, facilities, .. } = self;
        let first = self.recording.span().map_or(0, |(first, _)| first);
        save(info, "system.xml", &info::system_xml(self.recording, layout))?;
        let (mut loads, path) = self.tracefile(control, "facilities")?;
        let mut payload = Payload::new(layout.endian, 0);
        for (facility, base) in &facilities.loaded {
            if facility.name != "builtin" {
                let xml = facility.xml(layout.literal);
                save(definitions, &format!("{}.xml", facility.name), &xml)?;
            }
            payload.clear().text(facility.name.as_bytes()).number(facility.checksum().into(), 4);
            payload.number((*base).into(), 4);
            let load = loads.event(first, layout.numbers.facility_load, payload.bytes());
            if !load.map_err(ExportError::io("write", &path))? {
                let text = format!("the name of the event system {} is longer than a block", facility.name);
                return Err(ExportError::Unsupported(text));
            }
        }
        loads.finish(first).map_err(ExportError::io("write", &path))?;
        control::write(self, first, control)
    }

    /// Creates a file, and returns its path for messages.
    fn tracefile(&self, dir: &Directory, name: &str) -> Result<(Tracefile<File>, PathBuf), ExportError> {
        let (out, path) = create_file(dir, name)?;
        Ok((Tracefile::new(self.layout, out), path))
    }

    /// The CPUs that have records.
    fn cpus(&self) -> Vec<Cpu<'_>> {
        let mut cpus: Vec<Cpu<'_>> = Vec::new();
        for cpu_stream in self.recording.cpu_streams() {
            let lost = cpu_stream.lost_at_end().map_or(0, |lost| lost.max(1));
            self.job.not_carried("events lost behind the last record of a CPU", lost);
            if cpu_stream.counts.events == 0 {
                continue;
            }
            if !cpu_stream.channel.is_empty() {
                let what = format!(
                    "buffer of records: those of {} are among the others of their CPU",
                    cpu_stream.channel
                );
                self.job.not_carried(what, cpu_stream.counts.events);
            }
            match cpus.iter_mut().find(|cpu| cpu.number == cpu_stream.cpu) {
                Some(cpu) => cpu.cpu_streams.push(cpu_stream),
                None => cpus.push(Cpu { number: cpu_stream.cpu, cpu_streams: vec![cpu_stream] }),
            }
        }
        cpus
    }

    /// Writes the records of a CPU, and returns what is worth a bookmark.
    fn cpu(&self, cpu: &Cpu<'_>, dir: &Directory) -> Result<Vec<Bookmark>, ExportError> {
        let (file, path) = self.tracefile(dir, &cpu.number.to_string())?;
        let mut writer = CpuWriter {
            trace: self,
            cpu: cpu.number,
            file,
            payload: Payload::new(self.layout.endian, 0),
            bookmarks: Vec::new(),
            not_carried: NotCarried::default(),
        };
        let failed = |error| ExportError::io("write", &path)(error);
        // Tellers by buffer, for a record says which one it comes from.
        let mut tellers: Vec<(usize, StreamTellers)> = Vec::new();
        for cpu_stream in &cpu.cpu_streams {
            let stream_tellers = self.tellers.of_stream(cpu_stream);
            tellers.extend(cpu_stream.parts().iter().map(|part| (*part, stream_tellers.clone())));
        }
        let mut records = self.recording.merged(cpu.cpu_streams.iter().copied())?;
        let (mut since, mut last, mut late) = (0, None, 0);
        loop {
            // Errors were counted when the recording was looked through.
            let Ok(record) = records.next_record() else { continue };
            let Some(record) = record else { break };
            let time = record.timestamp;
            late += u64::from(self.layout.wall(time).0 > u64::from(u32::MAX));
            if let Some(count) = record.missed {
                writer.lost(count, last.unwrap_or(time), time).map_err(failed)?;
            }
            last = Some(time);
            if let Some(id) = record.event_id() {
                let teller = tellers.iter().find(|(part, _)| *part == record.buffer);
                writer.record(id, time, record.data, teller.map(|(_, tellers)| tellers)).map_err(failed)?;
            }
            since += 1;
            if since == STEP {
                self.job.advance(std::mem::take(&mut since))?;
            }
        }
        writer.file.finish(0).map_err(failed)?;
        writer
            .not_carried
            .add("times of records with more than 32 bits of seconds, which lack the upper ones", late);
        self.job.merge_not_carried(writer.not_carried);
        self.job.advance(since)?;
        Ok(writer.bookmarks)
    }
}

/// A CPU's file that is written.
struct CpuWriter<'t> {
    trace: &'t Trace<'t>,
    cpu: u32,
    file: Tracefile<File>,
    payload: Payload,
    bookmarks: Vec<Bookmark>,
    not_carried: NotCarried,
}

impl CpuWriter<'_> {
    /// Writes a record, and the changes of state that it describes.
    fn record(
        &mut self,
        id: u16,
        time: u64,
        record: &[u8],
        tellers: Option<&StreamTellers>,
    ) -> std::io::Result<()> {
        let events = self.trace.recording.events();
        let (Some(of), Some(printer)) = (self.trace.facilities.event(id), events.get(id)) else {
            return Ok(());
        };
        let missing = of.write(printer, record, self.payload.clear());
        if missing > 0 {
            self.not_carried.add(format!("fields of {} outside their record", full_name(printer)), missing);
        }
        if !self.file.event(time, of.code, self.payload.bytes())? {
            let what =
                format!("records of {} that are longer than a block (see --block-size)", full_name(printer));
            self.not_carried.add(what, 1);
            return Ok(());
        }
        if let Some(text) = marker_text(printer, record) {
            self.bookmark("marker", time, time, text);
        }
        let teller = tellers.and_then(|tellers| tellers.get(id));
        match teller.map(|teller| teller.change(record)) {
            None => Ok(()),
            Some(Some(change)) => self.change(time, change),
            Some(None) => {
                let what =
                    format!("changes of state in records of {} that make no sense", full_name(printer));
                self.not_carried.add(what, 1);
                Ok(())
            }
        }
    }

    /// Tells of lost events, 0 for a number that is not known, between two times.
    fn lost(&mut self, count: u64, since: u64, time: u64) -> std::io::Result<()> {
        self.payload.clear().number(count, 8);
        self.file.event(time, self.trace.facilities.state(State::Lost), self.payload.bytes())?;
        let text = if count == 0 { "events lost".to_owned() } else { format!("{count} events lost") };
        self.bookmark("lost", since.min(time), time, text);
        Ok(())
    }

    fn bookmark(&mut self, name: &'static str, start: u64, end: u64, text: String) {
        if self.bookmarks.len() == MAX_BOOKMARKS {
            self.not_carried.add(format!("bookmarks behind the first {MAX_BOOKMARKS} of a CPU"), 1);
        } else {
            self.bookmarks.push(Bookmark { start, end, cpu: Some(self.cpu), name, text });
        }
    }

    fn change(&mut self, time: u64, change: Change<'_>) -> std::io::Result<()> {
        let small = |number: u32, not_carried: &mut NotCarried| {
            let what = "numbers of system calls and interrupts above 255 in events of state (recorded events have them)";
            not_carried.add(what, u64::from(number > MAX_NUMBER));
            u64::from(number.min(MAX_NUMBER))
        };
        let payload = self.payload.clear();
        let sub = |payload: &mut Payload, sub: u8, data: [u32; 2]| {
            payload.number(sub.into(), 1).number(data[0].into(), 4).number(data[1].into(), 4);
        };
        let event = match change {
            Change::Schedule { prev, next, state } => {
                payload.number(prev.into(), 4).number(next.into(), 4).number(state, 4);
                Core::Schedule
            }
            Change::SyscallEntry { number } => {
                payload.number(small(number, &mut self.not_carried), 1).number(0, 8);
                Core::SyscallEntry
            }
            Change::SyscallExit => Core::SyscallExit,
            Change::Trap { number, address } => {
                payload.number(number.into(), 2).number(address, 8);
                self.put(time, Core::TrapEntry)?;
                self.payload.clear();
                Core::TrapExit
            }
            Change::IrqEntry { irq } => {
                payload.number(small(irq, &mut self.not_carried), 1).number(0, 1);
                Core::IrqEntry
            }
            Change::IrqExit => Core::IrqExit,
            Change::SoftirqEntry { vector } => {
                payload.number(builtin::SOFT_IRQ.into(), 1).number(vector.into(), 4);
                Core::SoftIrq
            }
            // There are no events for these.
            Change::SoftirqRaise { .. } | Change::SoftirqExit { .. } => return Ok(()),
            Change::Fork { parent, child } => {
                sub(payload, builtin::PROCESS_FORK, [child, parent]);
                if parent == 2 {
                    // kthreadd, whose children are kernel threads.
                    self.put(time, Core::Process)?;
                    sub(self.payload.clear(), builtin::PROCESS_KTHREAD, [child, 0]);
                }
                Core::Process
            }
            Change::Exit { pid } => {
                sub(payload, builtin::PROCESS_EXIT, [pid, 0]);
                Core::Process
            }
            Change::Free { pid } => {
                sub(payload, builtin::PROCESS_RELEASE, [pid, 0]);
                Core::Process
            }
            Change::Exec { filename } => {
                sub(payload, builtin::FILE_SYSTEM_EXEC, [0, 0]);
                payload.text(filename);
                Core::FileSystem
            }
        };
        self.put(time, event)
    }

    fn put(&mut self, time: u64, event: Core) -> std::io::Result<()> {
        // Only a file name could be too long for a block, and then the record was.
        self.file.event(time, self.trace.layout.numbers.core(event), self.payload.bytes()).map(drop)
    }
}

/// What a program wrote into the trace.
fn marker_text(printer: &Printer, record: &[u8]) -> Option<String> {
    if printer.system() != "ftrace" || !matches!(printer.name(), "print" | "bprint" | "bputs") {
        return None;
    }
    match value_of(printer, printer.field_index("buf")?, record) {
        Ok(Value::Text(text)) => Some(String::from_utf8_lossy(text).trim_end().to_owned()),
        _ => None,
    }
}

fn save(dir: &Directory, name: &str, text: &str) -> Result<(), ExportError> {
    dir.write(name, text.as_bytes()).map_err(ExportError::io("write", dir.join(name)))
}
