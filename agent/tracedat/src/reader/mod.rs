//! Reading trace.dat files of versions 6 and 7, of any recorder and machine.
//!
//! | module | what |
//! |---|---|
//! | `source` | where bytes come from: a file, memory |
//! | `cursor` | numbers and texts out of unchecked bytes |
//! | `file`, `v6`, `v7` | header, sections and where everything is |
//! | `metadata`, `option` | what the file says of events and of the recording |
//! | `pages` | the pages of a CPU, decompressed when they are asked for |
//! | `records`, `merged` | records of one CPU, and of all of them by time |
//! | `ahead` | the same, read by a thread of its own |
//! | `live` | the same of a recording that goes on, whose spool others read |
//! | `salvage` | the same for what is left of a damaged file |
//! | `time` | from the times on the pages to those that are shown |
//! | `counts` | how many events of which kind, without looking at them |
//!
//! The bytes of a file are not trusted: a size is compared with the bytes that exist before anything is
//! allocated for it, and no bytes make the reader panic. A damaged page ends early; metadata that cannot be
//! read are left out and reported in [`Reader::problems`]; only a file without header, first options or page
//! layout cannot be opened.
//!
//! A [`Reader`] is never changed by reading: any number of iterators, on any threads, can use one at the same
//! time.

mod ahead;
mod batch;
mod counts;
pub(super) mod cursor;
mod error;
pub(super) mod file;
mod kernel;
mod live;
mod merged;
pub(super) mod metadata;
pub(super) mod option;
pub(super) mod pages;
mod records;
mod salvage;
mod salvage_v6;
mod source;
mod time;
mod v6;
pub(super) mod v7;

pub use ahead::{Next, each_record_ahead};
pub use batch::Batch;
pub use counts::{Counts, CpuCounts};
pub use error::ReadError;
pub use file::{BufferInfo, FileHeader, SectionInfo};
pub use kernel::Module;
pub use live::LiveRecords;
pub use merged::{End, Gap, Records};
pub use metadata::{EventText, Metadata, SystemFormats};
pub use option::{BufferOption, CpuExtent, OptionEntry, OptionValue};
pub(crate) use pages::PackedChunk;
pub use pages::{CpuPages, Page};
pub use records::sum_of_losses;
pub use records::{CpuRecords, Record};
pub use source::Source;
pub use time::CpuClock;
pub use time::{Clock, Corrections};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::initial_state::{Host, InitialState, StateError};
use super::losses::Losses;
use super::option::FileOption;
use super::page::PageLayout;
use counts::Counter;
use cursor::Cursor;
use file::{Body, MAX_SECTION, Parsed};
use records::Origin;
use v7::Sections;

/// An open file.
///
/// The last ten records before a moment, newest first (for counting events see the [crate's example](crate)):
///
/// ```no_run
/// use std::fs::File;
/// use tracedat::reader::Reader;
///
/// let reader = Reader::open(File::open("trace.dat")?)?;
/// let mut records = reader.records()?;
/// records.seek(12_345_000_000);
/// for _ in 0..10 {
///     let Some(record) = records.prev_record()? else { break };
///     let event = record.event_id().and_then(|id| reader.metadata().event(id));
///     println!("{} CPU {}: {}", record.timestamp, record.cpu, event.map_or("unknown", |event| event.name));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
    len: u64,
    parsed: Parsed,
    clock: Clock,
    losses: OnceLock<Losses>,
}

impl<S: Source> Reader<S> {
    /// Opens a file: reads header, options and metadata, but no trace data.
    ///
    /// # Errors
    /// The source fails, or its bytes are no file of a known version, or they are damaged so early that
    /// nothing can be read.
    pub fn open(source: S) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { what: "the size of the file", offset: 0, source };
        let len = source.size().map_err(io)?;
        // The order of bytes is not known yet; nothing before it depends on it.
        let mut cursor = Cursor::new(&source, ftrace_event::Endian::Little, 0, len);
        let header = FileHeader::read(&mut cursor)?;
        let parsed = match header.version {
            6 => v6::open(&source, len, header, cursor),
            _ => v7::open(&source, len, header, cursor),
        }?;
        let clock = Clock::new(&parsed.options);
        Ok(Self { source, len, parsed, clock, losses: OnceLock::new() })
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// The file's header.
    pub fn header(&self) -> &FileHeader {
        &self.parsed.header
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The layout of pages. A buffer may have pages of another size.
    pub fn layout(&self) -> PageLayout {
        self.parsed.layout
    }

    /// Formats, task names and what else a reader must know.
    pub fn metadata(&self) -> &Metadata {
        &self.parsed.metadata
    }

    /// The names of tasks, to add some.
    pub fn names_mut(&mut self) -> &mut ftrace_event::Cmdlines {
        &mut self.parsed.metadata.cmdlines
    }

    /// All options, in the order of the file.
    pub fn options(&self) -> &[OptionEntry] {
        &self.parsed.options
    }

    /// The options that are facts about the recording, in the order of the file.
    pub fn facts(&self) -> impl Iterator<Item = &FileOption> {
        self.parsed.options.iter().filter_map(|entry| match &entry.value {
            OptionValue::Fact(fact) => Some(fact),
            _ => None,
        })
    }

    /// What existed on the machine when the recording started; only files of this crate's recorder have it.
    ///
    /// # Errors
    /// The option is damaged.
    pub fn initial_state(&self) -> Result<Option<InitialState>, StateError> {
        self.states().next().transpose()
    }

    /// What existed on the machine at some moments of the recording, in the order of time: the first one is
    /// the [initial state](Self::initial_state), the others are those that somebody asked for meanwhile.
    /// Those that are damaged are errors.
    pub fn states(&self) -> impl Iterator<Item = Result<InitialState, StateError>> {
        self.facts().filter_map(|fact| match fact {
            FileOption::Unknown { id, bytes } if *id == InitialState::OPTION => {
                Some(InitialState::decode(bytes))
            }
            _ => None,
        })
    }

    /// The machine and its kernel, where this crate's recorder has stored them: with the first state, or else
    /// without one.
    ///
    /// # Errors
    /// The option is damaged.
    pub fn host(&self) -> Result<Option<Host>, StateError> {
        if let Some(state) = self.initial_state()? {
            return Ok(Some(state.host));
        }
        let host = self.facts().find_map(|fact| match fact {
            FileOption::Unknown { id, bytes } if *id == Host::OPTION => Some(Host::decode(bytes)),
            _ => None,
        });
        host.transpose()
    }

    /// The buffers, in the order of the file.
    pub fn buffers(&self) -> &[BufferInfo] {
        &self.parsed.buffers
    }

    /// All sections, in the order of the file.
    pub fn sections(&self) -> &[SectionInfo] {
        &self.parsed.sections
    }

    /// What could not be read when the file was opened, and is treated as if it were not there.
    pub fn problems(&self) -> &[ReadError] {
        &self.parsed.problems
    }

    /// How times are corrected.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets which corrections of time are applied; all of them until this is called.
    pub fn set_corrections(&mut self, corrections: Corrections) {
        self.clock.set(corrections);
    }

    /// Adds to all times, besides the corrections.
    pub fn shift_times(&mut self, nanos: i64) {
        self.clock.shift_by(nanos);
    }

    /// How many CPUs the recorded machine has, as far as the file says: those without data count.
    pub fn cpu_count(&self) -> u32 {
        let extents = self.parsed.buffers.iter().flat_map(|buffer| &buffer.cpus);
        extents.map(|extent| extent.cpu.saturating_add(1)).fold(self.parsed.cpus, u32::max)
    }

    /// The kernel's symbols: lines of `/proc/kallsyms`. They are large, and read only here.
    ///
    /// # Errors
    /// The section is damaged.
    pub fn kallsyms(&self) -> Result<Vec<u8>, ReadError> {
        match self.parsed.kallsyms {
            None => Ok(Vec::new()),
            Some(body @ Body::Text { .. }) => self.body(body),
            Some(Body::Section(offset)) => {
                self.sections_of().with_body(offset, super::SectionId::KALLSYMS, |cursor| {
                    let size = cursor.u32("size of the kernel symbols")?;
                    cursor.take("kernel symbols", size.into())
                })
            }
        }
    }

    /// The text of a latency tracer in the buffer of this name, empty for the top one; `None` if there is
    /// none.
    ///
    /// # Errors
    /// The section is damaged.
    pub fn buffer_text(&self, buffer: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let body = self.parsed.texts.iter().find(|(name, _)| name == buffer).map(|(_, body)| *body);
        body.map(|body| self.body(body)).transpose()
    }

    /// A section's bytes, uncompressed, for sections that are not known here.
    ///
    /// # Errors
    /// The section is damaged, or too long to be read as a whole, as trace data are.
    pub fn section_bytes(&self, section: &SectionInfo) -> Result<Vec<u8>, ReadError> {
        let read = |cursor: &mut Cursor<'_>| {
            let (what, offset, size) = (section.id.description(), section.offset, cursor.left());
            if size > MAX_SECTION {
                return Err(ReadError::TooBig { what, offset, size, limit: MAX_SECTION });
            }
            cursor.take(what, size)
        };
        if self.parsed.header.version < 7 {
            let end = section.offset.saturating_add(section.size).min(self.len);
            return read(&mut Cursor::new(&self.source, self.parsed.header.endian, section.offset, end));
        }
        self.sections_of().with_body(section.offset, section.id, read)
    }

    /// The pages of a CPU.
    ///
    /// # Errors
    /// No such buffer or CPU, or its data cannot be read at all.
    pub fn cpu_pages(&self, buffer: usize, cpu: u32) -> Result<CpuPages<'_>, ReadError> {
        let info = self.parsed.buffers.get(buffer);
        let found = info.and_then(|info| Some((info, info.cpu(cpu)?)));
        let (info, extent) = found.ok_or(ReadError::NoSuchCpu { buffer, cpu })?;
        CpuPages::open(&self.source, self.len, &self.parsed.header, info, extent)
    }

    /// What each CPU lost where no page marks it. If there is a ledger with losses, this counts the records;
    /// once.
    pub fn losses(&self) -> &Losses {
        self.losses.get_or_init(|| Losses::of(self))
    }

    /// What a CPU in a buffer lost before its first record and behind its last one, where no page marks it.
    /// Of buffers with one name the first has the losses before the records, and the last those behind them.
    pub fn losses_of(&self, buffer: usize, cpu: u32) -> (Option<u64>, Option<u64>) {
        let Some(info) = self.parsed.buffers.get(buffer) else { return (None, None) };
        let Some(losses) = self.losses().get(&info.name, cpu) else { return (None, None) };
        let is_other = |other: &BufferInfo| other.name == info.name && other.cpu(cpu).is_some();
        let is_first = !self.parsed.buffers[..buffer].iter().any(is_other);
        let is_last = !self.parsed.buffers[buffer + 1..].iter().any(is_other);
        (losses.before.filter(|_| is_first), losses.behind.filter(|_| is_last))
    }

    /// CPUs, each in a buffer, of which the file has no data, as all of their events were lost.
    pub fn silent_cpus(&self) -> Vec<(usize, u32)> {
        let buffers = self.parsed.buffers.iter().enumerate();
        // Of buffers with one name the first one.
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut known: BTreeSet<(&str, u32)> = BTreeSet::new();
        for (index, info) in buffers {
            places.entry(&info.name).or_insert(index);
            known.extend(info.cpus.iter().map(|extent| (&*info.name, extent.cpu)));
        }
        let lost = self.losses().iter().filter(|(.., losses)| losses.any());
        let silent = lost.filter(|(name, cpu, _)| !known.contains(&(*name, *cpu)));
        silent.filter_map(|(name, cpu, _)| Some((*places.get(name)?, cpu))).collect()
    }

    /// The records of a CPU, from the first on. Of losses it shows those that are marked on pages;
    /// [`losses_of`](Self::losses_of) has the others.
    ///
    /// # Errors
    /// As [`cpu_pages`](Self::cpu_pages).
    pub fn cpu_records(&self, buffer: usize, cpu: u32) -> Result<CpuRecords<'_>, ReadError> {
        self.cpu_records_of(0, buffer, cpu)
    }

    /// The records of a CPU, none if the file has no data of it.
    pub(crate) fn cpu_records_if_any(&self, buffer: usize, cpu: u32) -> Result<CpuRecords<'_>, ReadError> {
        match self.parsed.buffers.get(buffer) {
            Some(info) if info.cpu(cpu).is_none() => Ok(self.no_records(info, 0, buffer, cpu)),
            _ => self.cpu_records(buffer, cpu),
        }
    }

    /// Records of a CPU of which the file has no data.
    fn no_records(&self, info: &BufferInfo, reader: usize, buffer: usize, cpu: u32) -> CpuRecords<'_> {
        let pages = CpuPages::none(&self.source, info);
        CpuRecords::new(pages, self.clock.for_cpu(cpu), Origin { reader, buffer, cpu })
    }

    /// The records of a CPU with the times that the pages have, as one of several readers; none if the file
    /// has no data of it.
    pub(crate) fn raw_records(
        &self,
        reader: usize,
        buffer: usize,
        cpu: u32,
    ) -> Result<CpuRecords<'_>, ReadError> {
        let pages = match self.parsed.buffers.get(buffer) {
            Some(info) if info.cpu(cpu).is_none() => CpuPages::none(&self.source, info),
            _ => self.cpu_pages(buffer, cpu)?,
        };
        Ok(CpuRecords::new(pages, CpuClock::RAW, Origin { reader, buffer, cpu }))
    }

    /// Bytes of the file.
    pub(crate) fn bytes_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let io = |source| ReadError::Io { what: "trace data", offset, source };
        self.source.read_exact_at(buffer, offset).map_err(io)
    }

    pub(crate) fn cpu_records_of(
        &self,
        reader: usize,
        buffer: usize,
        cpu: u32,
    ) -> Result<CpuRecords<'_>, ReadError> {
        let pages = self.cpu_pages(buffer, cpu)?;
        Ok(CpuRecords::new(pages, self.clock.for_cpu(cpu), Origin { reader, buffer, cpu }))
    }

    /// The records of a CPU with all its losses.
    fn lossy_records(&self, reader: usize, buffer: usize, cpu: u32) -> Result<CpuRecords<'_>, ReadError> {
        let (before, behind) = self.losses_of(buffer, cpu);
        let records = match self.parsed.buffers.get(buffer) {
            Some(info) if info.cpu(cpu).is_none() && (before.is_some() || behind.is_some()) => {
                self.no_records(info, reader, buffer, cpu)
            }
            _ => self.cpu_records_of(reader, buffer, cpu)?,
        };
        Ok(records.with_losses(before, behind))
    }

    /// The records of all CPUs and buffers by time, from the first on, with all losses that are known.
    ///
    /// # Errors
    /// As [`cpu_pages`](Self::cpu_pages).
    pub fn records(&self) -> Result<Records<'_>, ReadError> {
        Ok(Records::merge(self.streams(0, |_| true)?))
    }

    /// The records of one buffer by time, from the first on.
    ///
    /// # Errors
    /// As [`cpu_pages`](Self::cpu_pages).
    pub fn buffer_records(&self, buffer: usize) -> Result<Records<'_>, ReadError> {
        Ok(Records::merge(self.streams(0, |index| index == buffer)?))
    }

    /// The records of several files by time. [`Record::reader`] says which one a record comes from.
    ///
    /// # Errors
    /// As [`cpu_pages`](Self::cpu_pages).
    pub fn merge<'r>(readers: impl IntoIterator<Item = &'r Self>) -> Result<Records<'r>, ReadError>
    where
        S: 'r,
    {
        let mut streams = Vec::new();
        for (number, reader) in readers.into_iter().enumerate() {
            streams.append(&mut reader.streams(number, |_| true)?);
        }
        Ok(Records::merge(streams))
    }

    /// Times of the first and the last event, without a look at those between. Damaged pages may give other
    /// events.
    pub fn span(&self) -> Option<(u64, u64)> {
        let mut span: Option<(u64, u64)> = None;
        let buffers = self.parsed.buffers.iter().enumerate();
        let cpus = buffers.flat_map(|(buffer, info)| info.cpus.iter().map(move |of| (buffer, of.cpu)));
        for mut records in cpus.filter_map(|(buffer, cpu)| self.cpu_records(buffer, cpu).ok()) {
            let first = records.next_record().ok().flatten().map(|record| record.timestamp);
            records.fast_forward();
            let last = records.prev_record().ok().flatten().map(|record| record.timestamp);
            for time in [first, last].into_iter().flatten() {
                span = Some(span.map_or((time, time), |(from, to)| (from.min(time), to.max(time))));
            }
        }
        span
    }

    /// The records of chosen buffers and CPUs of several files by time. `wanted` names them: the index of the
    /// reader, that of the buffer in it, and the CPU. Of records with one time that comes first whose stream
    /// is named first. What cannot be read at each is reported to `damaged` and left out.
    pub fn merge_streams<'r>(
        readers: &[&'r Self],
        wanted: impl IntoIterator<Item = (usize, usize, u32)>,
        mut damaged: impl FnMut(ReadError),
    ) -> Records<'r> {
        let open = |(number, buffer, cpu): (usize, usize, u32)| match readers.get(number) {
            Some(reader) => reader.lossy_records(number, buffer, cpu),
            None => Err(ReadError::NoSuchCpu { buffer, cpu }),
        };
        let streams = wanted.into_iter().filter_map(|stream| open(stream).map_err(&mut damaged).ok());
        Records::merge(streams.collect())
    }

    fn streams(
        &self,
        reader: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<CpuRecords<'_>>, ReadError> {
        let buffers = self.parsed.buffers.iter().enumerate().filter(|(buffer, _)| wanted(*buffer));
        let cpus =
            buffers.flat_map(|(buffer, info)| info.cpus.iter().map(move |extent| (buffer, extent.cpu)));
        let streams = cpus.map(|(buffer, cpu)| self.lossy_records(reader, buffer, cpu));
        let silent = self.silent_cpus().into_iter().filter(|(buffer, _)| wanted(*buffer));
        let silent = silent.map(|(buffer, cpu)| self.lossy_records(reader, buffer, cpu));
        streams.chain(silent).collect()
    }

    /// Counts the events of a buffer by looking at nothing but their headers and numbers. Damage is counted
    /// too, and ends nothing.
    pub fn count(&self, buffer: usize) -> Counts {
        let cpus = self.parsed.buffers.get(buffer).map_or(&[][..], |info| &info.cpus);
        self.count_cpus(buffer, cpus.iter().map(|extent| extent.cpu))
    }

    /// Counts the events of one CPU in a buffer, as [`count`](Self::count) does.
    pub fn count_cpu(&self, buffer: usize, cpu: u32) -> Counts {
        self.count_cpus(buffer, [cpu])
    }

    fn count_cpus(&self, buffer: usize, cpus: impl IntoIterator<Item = u32>) -> Counts {
        let mut counter = Counter::new();
        for cpu in cpus {
            match self.cpu_pages(buffer, cpu) {
                Ok(mut pages) => counter.count(cpu, &mut pages, self.clock.for_cpu(cpu)),
                Err(error) => counter.damage(&error),
            }
        }
        counter.finish()
    }

    fn sections_of(&self) -> Sections<'_> {
        Sections { source: &self.source, len: self.len, header: &self.parsed.header }
    }

    fn body(&self, body: Body) -> Result<Vec<u8>, ReadError> {
        match body {
            Body::Section(offset) => self.sections_of().text(offset),
            Body::Text { at, len } => {
                let mut cursor = Cursor::new(&self.source, self.parsed.header.endian, at, self.len);
                cursor.take("a text", len)
            }
        }
    }
}
