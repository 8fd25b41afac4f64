//! Writing a whole file.
//!
//! ```text
//! header                    points at options A
//! six metadata sections     in the order in which they are given; the ones that are not are stored empty
//! options A                 offsets of the sections, the recorder's facts; DONE points at options B
//! trace data                a section per buffer
//! options B                 CPUCOUNT, what else was given late, a BUFFER option per buffer; DONE points nowhere
//! strings                   descriptions of the sections
//! ```
//!
//! The link from A to B is written last: until then a reader finds a file without events, never one with part
//! of them. Sections follow each other without gaps, because readers find the descriptions by walking from
//! section to section.

mod buffer;
pub(crate) mod v6;

pub use buffer::{Buffer, BufferWriter, CpuWriter};

use std::collections::BTreeMap;
use std::io::{Cursor, Seek, SeekFrom, Write};

use super::checksum::{Checksums, Range};
use super::compress::{ChunkCompressor, Compression};
use super::error::{WriteError, io_error};
use super::layout::{
    CHUNK_PAGES, LONG_SIZE, MAGIC, OptionId, SECTION_COMPRESSED, SECTION_HEADER_LEN, SectionHeader,
    SectionId, VERSION, is_page_size,
};
use super::option::{FileOption, no_nul};
use super::page::PageLayout;
use super::section::{Body, EventFact, Facts, Section};
use ftrace_event::Field;
use ftrace_event::endian::{Encoder, Endian};

/// What applies to a file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Byte order of the file, its pages included.
    pub endian: Endian,
    /// Bytes per page of the top buffer: a power of two, 4096 to 1 MiB.
    pub page_size: u32,
    /// Compression of metadata and trace data.
    pub compression: Compression,
}

impl Default for Setup {
    fn default() -> Self {
        Self { endian: Endian::default(), page_size: 4096, compression: Compression::default() }
    }
}

/// Writes one file, front to back but for a few numbers that are filled in later.
///
/// Everything goes to the output in large pieces, so that a bare [`File`](std::fs::File) needs no buffering
/// around it. Of a file whose writer is dropped before [`finish`](Self::finish), nothing but the metadata can
/// be read.
///
/// A tiny complete file:
///
/// ```
/// use std::io::Cursor;
/// use tracedat::page::{PageBuilder, Push};
/// use tracedat::{Buffer, Cmdlines, EventSystem, FileOption, Section, Setup, Writer, layout};
///
/// let format = "name: hello\nID: 20000\nformat:\n\
///     \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
///     \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
///     \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
///     \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
///     \tfield:u64 value;\toffset:8;\tsize:8;\tsigned:0;\n\n\
///     print fmt: \"value=%llu\", REC->value\n";
///
/// // One record: type 20000, no flags, pid 42, value 7, at 1.5 s of the clock.
/// let mut record = Vec::new();
/// record.extend_from_slice(&20000u32.to_le_bytes());
/// record.extend_from_slice(&42u32.to_le_bytes());
/// record.extend_from_slice(&7u64.to_le_bytes());
/// let setup = Setup::default();
/// let mut pages = PageBuilder::new(setup.page_size as usize, setup.endian)?;
/// assert_eq!(pages.push(1_500_000_000, &record)?, Push::Stored);
///
/// let endian = setup.endian;
/// let mut writer = Writer::create(Cursor::new(Vec::new()), setup)?;
/// let header_page = layout::header_page_text(setup.page_size);
/// writer.section(Section::header_info(endian, &header_page, "")?)?;
/// writer.section(Section::event_formats(endian, &[EventSystem { name: "demo", formats: &[format] }])?)?;
/// writer.section(Section::cmdlines(endian, &Cmdlines::from_iter([(42, "worker")])))?;
/// writer.option(&FileOption::TraceClock("[mono]".to_owned()))?;
///
/// let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: setup.page_size })?;
/// top.write_cpu(0, pages.finish().unwrap_or_default())?;
/// top.finish()?;
/// let file: Vec<u8> = writer.finish()?.into_inner();
/// // `trace-cmd report` shows: worker-42    [000]     1.500000: hello:                value=7
/// assert!(file.starts_with(&layout::MAGIC));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    setup: Setup,
    /// The layout of pages.
    layout: PageLayout,
    /// Whether pages are another recorder's, and their size is not to be judged.
    foreign: bool,
    compressor: ChunkCompressor,
    /// Where the next byte goes.
    position: u64,
    /// Where the header's offset of the first options section is.
    first_options_at: u64,
    /// Where options A say where options B are; `None` until they are written.
    link_at: Option<u64>,
    strings: Strings,
    /// Offsets of the metadata sections that are written.
    sections: BTreeMap<SectionId, u64>,
    /// The header, with the offset of the first options once that is known.
    header: Vec<u8>,
    /// Options A as a section, with the link to options B once that is known, and where they are.
    first_options: (u64, Vec<u8>),
    /// What checksums are written of.
    covered: Vec<Range>,
    /// Names of the events by number.
    events: BTreeMap<u16, String>,
    /// The fields that all events start with.
    common: Option<Vec<Field>>,
    /// Encoded options that wait for their section.
    options: Vec<(OptionId, Vec<u8>)>,
    /// Encoded BUFFER options.
    buffers: Vec<Vec<u8>>,
    has_top: bool,
    /// Name of the buffer that is being written.
    open_buffer: Option<String>,
    /// Number of CPUs, as far as known.
    cpu_count: u32,
}

impl Writer<Cursor<Vec<u8>>> {
    /// What is written so far, in another output, with a writer that continues there: metadata that several
    /// files share are compressed and summed up once.
    pub(crate) fn copy_to<V: Write + Seek>(&self, mut out: V) -> Result<Writer<V>, WriteError> {
        out.seek(SeekFrom::Start(0)).map_err(io_error("the header"))?;
        out.write_all(self.out.get_ref()).map_err(io_error("the metadata"))?;
        let compressor = ChunkCompressor::new(self.setup.compression, self.setup.endian)
            .map_err(|source| WriteError::Compress { what: "trace data", source })?;
        Ok(Writer {
            out,
            setup: self.setup,
            layout: self.layout,
            foreign: self.foreign,
            compressor,
            position: self.position,
            first_options_at: self.first_options_at,
            link_at: self.link_at,
            strings: self.strings.clone(),
            sections: self.sections.clone(),
            header: self.header.clone(),
            first_options: self.first_options.clone(),
            covered: self.covered.clone(),
            events: self.events.clone(),
            common: self.common.clone(),
            options: self.options.clone(),
            buffers: self.buffers.clone(),
            has_top: self.has_top,
            open_buffer: self.open_buffer.clone(),
            cpu_count: self.cpu_count,
        })
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a file at the beginning of `out`, which should be empty: offsets in a file count from its first
    /// byte.
    ///
    /// # Errors
    /// The page size cannot be written, the compression level is none of zstd's, or the output failed.
    pub fn create(out: W, setup: Setup) -> Result<Self, WriteError> {
        if !is_page_size(setup.page_size) {
            return Err(WriteError::PageSize { size: setup.page_size });
        }
        let layout = PageLayout::native(setup.endian, setup.page_size);
        Self::begin(out, setup, layout, LONG_SIZE, false)
    }

    /// Starts a file for pages that another recorder made, of any layout. `setup.page_size` and `long_size`
    /// go to the header, and need not be those of the pages: they are of the recording program.
    pub fn create_foreign(
        out: W,
        setup: Setup,
        layout: PageLayout,
        long_size: u8,
    ) -> Result<Self, WriteError> {
        Self::begin(out, setup, layout, long_size, true)
    }

    fn begin(
        mut out: W,
        setup: Setup,
        layout: PageLayout,
        long_size: u8,
        foreign: bool,
    ) -> Result<Self, WriteError> {
        let Setup { endian, page_size, compression } = setup;
        let compressor = ChunkCompressor::new(compression, endian)
            .map_err(|source| WriteError::Compress { what: "trace data", source })?;
        let mut header = Encoder::new(endian);
        header.raw(&MAGIC).c_string(VERSION).raw(&[endian.header_byte(), long_size]).u32(page_size);
        header.c_string(compression.name()).c_string(&compression.version());
        let first_options_at = header.len() as u64;
        header.u64(0);
        out.seek(SeekFrom::Start(0)).map_err(io_error("the header"))?;
        let mut writer = Self {
            out,
            setup,
            layout,
            foreign,
            compressor,
            position: 0,
            first_options_at,
            link_at: None,
            strings: Strings::default(),
            sections: BTreeMap::new(),
            header: header.into_bytes(),
            first_options: (0, Vec::new()),
            covered: Vec::new(),
            events: BTreeMap::new(),
            common: None,
            options: Vec::new(),
            buffers: Vec::new(),
            has_top: false,
            open_buffer: None,
            // Readers that make arrays by this number want at least one CPU.
            cpu_count: 1,
        };
        writer.append("the header", &writer.header.clone())?;
        Ok(writer)
    }

    /// What was given to [`create`](Self::create).
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// Writes a metadata section.
    ///
    /// `HEADER_INFO` must be given; the others are stored empty if they are not, because some readers can
    /// convert or split a file only if all six are there.
    ///
    /// # Errors
    /// A section that was given before, comes after the first buffer, or belongs to a file of another kind;
    /// an event that contradicts one of an earlier section.
    pub fn section(&mut self, section: Section) -> Result<(), WriteError> {
        let id = section.id;
        if self.link_at.is_some() {
            return Err(WriteError::AfterData { id });
        }
        if self.sections.contains_key(&id) {
            return Err(WriteError::DuplicateSection { id });
        }
        let packed = matches!(section.body, Body::Packed(_));
        if section.endian != self.setup.endian || packed && self.setup.compression == Compression::None {
            return Err(WriteError::ForeignSection { id });
        }
        self.check(&section.facts)?;
        let (flags, bytes) = match section.pack(self.setup.compression)?.body {
            Body::Plain(bytes) => (0, bytes),
            Body::Packed(bytes) => (SECTION_COMPRESSED, bytes),
        };
        let (at, covered) = self.append_section(id, id.description(), flags, &bytes)?;
        self.covered.push(covered);
        self.sections.insert(id, at);
        Ok(())
    }

    /// Writes the body of a metadata section of another file as it is. What is in it is not checked.
    ///
    /// # Errors
    /// As [`section`](Self::section).
    pub fn raw_section(&mut self, id: SectionId, description: &str, body: &[u8]) -> Result<(), WriteError> {
        if self.link_at.is_some() {
            return Err(WriteError::AfterData { id });
        }
        if self.sections.contains_key(&id) {
            return Err(WriteError::DuplicateSection { id });
        }
        let at = self.unlisted_section(id, description, body)?;
        self.sections.insert(id, at);
        Ok(())
    }

    /// Writes a section that no option points at, as those are that are not known here. Returns its offset.
    pub(crate) fn unlisted_section(
        &mut self,
        id: SectionId,
        description: &str,
        body: &[u8],
    ) -> Result<u64, WriteError> {
        let block = self
            .setup
            .compression
            .block(self.setup.endian, body)
            .map_err(|source| WriteError::Compress { what: id.description(), source })?;
        let (at, covered) = match block {
            Some(block) => self.append_section(id, description, SECTION_COMPRESSED, &block)?,
            None => self.append_section(id, description, 0, body)?,
        };
        self.covered.push(covered);
        Ok(at)
    }

    /// Writes the text of a latency tracer, which stands in place of a buffer's data. In a compressed file it
    /// is in chunks, as trace data are.
    pub(crate) fn buffer_text(&mut self, name: &str, clock: &str, text: &[u8]) -> Result<(), WriteError> {
        let (name, clock) = (no_nul("buffer name", name)?, no_nul("clock", clock)?);
        let id = SectionId::BUFFER_TEXT;
        let endian = self.setup.endian;
        let (flags, body) = if self.setup.compression == Compression::None {
            (0, text.to_vec())
        } else {
            let chunks = text.chunks(CHUNK_PAGES * self.layout.page_size as usize);
            let mut body = endian.u32(chunks.len() as u32).to_vec();
            for chunk in chunks {
                let chunk = self.compressor.compress(chunk);
                body.extend_from_slice(
                    chunk.map_err(|source| WriteError::Compress { what: id.description(), source })?,
                );
            }
            (SECTION_COMPRESSED, body)
        };
        let (at, covered) = self.append_section(id, id.description(), flags, &body)?;
        self.covered.push(covered);
        let mut option = Encoder::new(endian);
        option.u64(at).c_string(name).c_string(clock);
        self.options.push((OptionId::BUFFER_TEXT, option.into_bytes()));
        self.has_top |= name.is_empty();
        Ok(())
    }

    /// Adds an option. Before the first buffer they are written before the trace data, otherwise after them.
    ///
    /// # Errors
    /// See [`FileOption::encode`].
    pub fn option(&mut self, option: &FileOption) -> Result<(), WriteError> {
        if let FileOption::CpuCount(count) = option {
            self.cpu_count = self.cpu_count.max(*count);
            return Ok(());
        }
        let bytes = option.encode(self.setup.endian)?;
        // Sizes are 32 bits; better reported now than at the end of a recording.
        option_len(&bytes)?;
        self.options.push((option.id(), bytes));
        Ok(())
    }

    /// Starts the trace data of a buffer. Metadata cannot be added any more.
    ///
    /// A named buffer may come several times: readers merge its parts by time.
    ///
    /// # Errors
    /// A second top buffer, a name or clock that is no C string, a page size that cannot be written, a buffer
    /// before it that was not finished, or no section `HEADER_INFO`.
    pub fn begin_buffer(&mut self, buffer: Buffer<'_>) -> Result<BufferWriter<'_, W>, WriteError> {
        self.no_open_buffer()?;
        BufferWriter::begin(self, buffer)
    }

    /// Completes the file and gives the output back, positioned at the file's end and flushed.
    ///
    /// # Errors
    /// The output failed, a buffer was not finished, or section `HEADER_INFO` was not given.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.no_open_buffer()?;
        if !self.has_top {
            // trace-cmd 3.1.6 does without one, but no stock recorder leaves it out, so that other readers
            // may not.
            self.begin_buffer(Buffer { name: "", clock: "", page_size: self.setup.page_size })?.finish()?;
        }
        let mut options = std::mem::take(&mut self.options);
        options.push((OptionId::CPUCOUNT, self.setup.endian.u32(self.cpu_count).to_vec()));
        options.extend(std::mem::take(&mut self.buffers).into_iter().map(|bytes| (OptionId::BUFFER, bytes)));
        let last_options = self.append_last(&options)?;
        if let Some(link) = self.link_at {
            self.patch("the link to the last options", link, &self.setup.endian.u64(last_options))?;
        }
        self.out.flush().map_err(io_error("the end of the file"))?;
        Ok(self.out)
    }

    /// Checks a section against earlier ones.
    fn check(&mut self, facts: &Facts) -> Result<(), WriteError> {
        let Facts { page_size, events } = facts;
        if let Some(described) = page_size.filter(|size| *size != self.setup.page_size) {
            return Err(WriteError::HeaderPageSize { described, size: self.setup.page_size });
        }
        let mut new = BTreeMap::new();
        let mut common = self.common.clone();
        for EventFact { id, name, common: fields } in events {
            let first = self.events.get(id).or_else(|| new.get(id));
            if let Some(first) = first {
                let (first, second) = (first.clone(), name.clone());
                return Err(WriteError::DuplicateEventId { id: *id, first, second });
            }
            new.insert(*id, name.clone());
            match (&common, fields) {
                (None, Some(_)) => common.clone_from(fields),
                (Some(common), Some(fields)) if common != fields => {
                    return Err(WriteError::CommonFields { event: name.clone() });
                }
                _ => {}
            }
        }
        self.events.append(&mut new);
        self.common = common;
        Ok(())
    }

    /// Writes what is missing of the metadata, and options A. The trace data start after it.
    pub(crate) fn close_metadata(&mut self) -> Result<(), WriteError> {
        if self.link_at.is_some() {
            return Ok(());
        }
        for id in SectionId::METADATA {
            if !self.sections.contains_key(&id) {
                let empty = Section::empty(id, self.setup.endian).ok_or(WriteError::MissingSection { id })?;
                self.section(empty)?;
            }
        }
        let endian = self.setup.endian;
        // An option with the number of a section holds the offset of the section.
        let mut options: Vec<_> =
            self.sections.iter().map(|(id, at)| (OptionId(id.0), endian.u64(*at).to_vec())).collect();
        options.append(&mut self.options);
        let (body, link) = self.options_body(&options)?;
        // Options are never compressed, so that the link can be patched.
        let section = self.section_bytes(SectionId::OPTIONS, 0, &body);
        let at = self.position;
        self.append("options", &section)?;
        self.link_at = Some(at + SECTION_HEADER_LEN + link);
        self.first_options = (at, section);
        let offset = endian.u64(at);
        self.header[self.first_options_at as usize..].copy_from_slice(&offset);
        self.patch("the offset of the first options", self.first_options_at, &offset)
    }

    /// The body of an options section, and the offset in it of the link to the next.
    fn options_body(&self, options: &[(OptionId, Vec<u8>)]) -> Result<(Vec<u8>, u64), WriteError> {
        let mut body = Encoder::new(self.setup.endian);
        for (id, bytes) in options {
            body.u16(id.0).u32(option_len(bytes)?).raw(bytes);
        }
        body.u16(OptionId::DONE.0).u32(8);
        let link = body.len() as u64;
        body.u64(0);
        Ok((body.into_bytes(), link))
    }

    /// Writes options B, whose last one are the checksums of everything, and the strings. Returns the offset
    /// of the options.
    fn append_last(&mut self, options: &[(OptionId, Vec<u8>)]) -> Result<u64, WriteError> {
        let endian = self.setup.endian;
        let at = self.position;
        let mut options = options.to_vec();
        // Their own descriptions must be among the strings before the sections are made.
        let strings = self.strings_section()?;
        // The file header, options A, options B up to the checksums' bytes, the strings.
        let count = self.covered.len() + 4;
        let before: usize = options.iter().map(|(_, bytes)| 6 + bytes.len()).sum();
        let offset = at + SECTION_HEADER_LEN + before as u64 + 6;
        let len = Checksums::encoded_len(count);
        // Room for them, and for the DONE option.
        options.push((OptionId::CHECKSUMS, vec![0; len]));
        let (body, _) = self.options_body(&options)?;
        let mut section = self.section_bytes(SectionId::OPTIONS, 0, &body);
        let start = (offset - at) as usize;
        let (first_at, first) = &mut self.first_options;
        if let Some(link) = self.link_at {
            let link = (link - *first_at) as usize;
            first[link..link + 8].copy_from_slice(&endian.u64(at));
        }
        let mut ranges = vec![Range::of(0, &[&self.header]), Range::of(*first_at, &[first])];
        ranges.append(&mut self.covered);
        ranges.push(Range::of(at, &[&section[..start]]));
        ranges.push(Range::of(at + section.len() as u64, &[&strings]));
        section[start..start + len].copy_from_slice(&Checksums { offset, ranges }.encode(endian));
        self.append("options", &section)?;
        self.append("strings", &strings)?;
        Ok(at)
    }

    /// The section of the strings. No description can be added any more.
    fn strings_section(&mut self) -> Result<Vec<u8>, WriteError> {
        let id = SectionId::STRINGS;
        self.strings.id(SectionId::OPTIONS.description());
        self.strings.id(id.description());
        let strings = self.strings.bytes.clone();
        let block = self
            .setup
            .compression
            .block(self.setup.endian, &strings)
            .map_err(|source| WriteError::Compress { what: "strings", source })?;
        let (flags, bytes) = block.map_or((0, strings), |block| (SECTION_COMPRESSED, block));
        Ok(self.section_bytes(id, flags, &bytes))
    }

    /// A section with the usual description of its kind.
    fn section_bytes(&mut self, id: SectionId, flags: u16, body: &[u8]) -> Vec<u8> {
        let description = self.strings.id(id.description());
        let header = SectionHeader { id, flags, description, size: body.len() as u64 };
        let mut bytes = header.encode(self.setup.endian);
        bytes.extend_from_slice(body);
        bytes
    }

    /// Writes a section whose size is known. Returns the offset of its header, and its checksum.
    fn append_section(
        &mut self,
        id: SectionId,
        description: &str,
        flags: u16,
        bytes: &[u8],
    ) -> Result<(u64, Range), WriteError> {
        let at = self.position;
        let description = self.strings.id(description);
        let header = SectionHeader { id, flags, description, size: bytes.len() as u64 };
        let header = header.encode(self.setup.endian);
        self.append(id.description(), &header)?;
        self.append(id.description(), bytes)?;
        Ok((at, Range::of(at, &[&header, bytes])))
    }

    fn append(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.write_all(bytes).map_err(io_error(what))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Overwrites bytes that were written before.
    fn patch(&mut self, what: &'static str, at: u64, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.seek(SeekFrom::Start(at)).map_err(io_error(what))?;
        self.out.write_all(bytes).map_err(io_error(what))?;
        self.out.seek(SeekFrom::Start(self.position)).map_err(io_error(what))?;
        Ok(())
    }

    fn no_open_buffer(&self) -> Result<(), WriteError> {
        match &self.open_buffer {
            Some(name) => Err(WriteError::BufferNotFinished { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// Descriptions of sections: NUL-terminated texts, each named by its offset.
#[derive(Clone, Debug, Default)]
struct Strings {
    bytes: Vec<u8>,
    offsets: BTreeMap<String, u32>,
}

impl Strings {
    /// The number of a text.
    fn id(&mut self, text: &str) -> u32 {
        if let Some(offset) = self.offsets.get(text) {
            return *offset;
        }
        // A few dozen short texts: far from 32 bits.
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }
}

fn option_len(bytes: &[u8]) -> Result<u32, WriteError> {
    u32::try_from(bytes.len()).map_err(|_| WriteError::TooLong { what: "option", len: bytes.len() })
}

#[cfg(test)]
mod tests;
