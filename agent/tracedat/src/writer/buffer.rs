//! The trace data of one buffer.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

use super::super::checksum::{DATA_RANGE, Range};
use super::super::compress::{Compression, FinderChoice};
use super::super::error::{WriteError, io_error};
use super::super::layout::{
    CHUNK_PAGES, SECTION_COMPRESSED, SECTION_HEADER_LEN, SECTION_SIZE_AT, SectionHeader, SectionId,
    is_page_size,
};
use super::super::option::no_nul;
use super::super::page::PageLayout;
use super::Writer;
use ftrace_event::endian::Encoder;

/// A buffer: events that were recorded together, with one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer<'a> {
    /// Empty for the top buffer, which every file has.
    pub name: &'a str,
    /// Its clock, by the kernel's name: `mono`.
    pub clock: &'a str,
    /// Bytes per page; for the top buffer what the file's setup says.
    pub page_size: u32,
}

/// Where a CPU's data are in the file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    size: u64,
}

/// Writes the trace data of one buffer, CPU by CPU. Must be [finished](Self::finish).
///
/// A CPU without data is not listed in the file; CPUs may come in any order and with gaps between their
/// numbers.
#[derive(Debug)]
#[must_use = "a buffer must be finished"]
pub struct BufferWriter<'w, W> {
    writer: &'w mut Writer<W>,
    name: String,
    clock: String,
    layout: PageLayout,
    /// Offset of the section's header.
    section_at: u64,
    /// The header, without the size.
    header: SectionHeader,
    cpus: BTreeMap<u32, Extent>,
}

impl<'w, W: Write + Seek> BufferWriter<'w, W> {
    pub(super) fn begin(writer: &'w mut Writer<W>, buffer: Buffer<'_>) -> Result<Self, WriteError> {
        let Buffer { name, clock, page_size } = buffer;
        if name.is_empty() && writer.has_top {
            return Err(WriteError::DuplicateTopBuffer);
        }
        // The top buffer's pages are described by the file's header and by the text of header_page.
        let judged = is_page_size(page_size) && (!name.is_empty() || page_size == writer.layout.page_size);
        let layout = writer.layout.with_page_size(page_size);
        let layout =
            layout.filter(|_| judged || writer.foreign).ok_or(WriteError::PageSize { size: page_size })?;
        let (name, clock) = (no_nul("buffer name", name)?.to_owned(), no_nul("clock", clock)?.to_owned());
        writer.close_metadata()?;
        let flags = if writer.setup.compression == Compression::None { 0 } else { SECTION_COMPRESSED };
        let description = match name.as_str() {
            "" => SectionId::FLYRECORD.description().to_owned(),
            name => format!("{} {name}", SectionId::FLYRECORD.description()),
        };
        let id = SectionId::FLYRECORD;
        let (section_at, _) = writer.append_section(id, &description, flags, &[])?;
        let header = SectionHeader { id, flags, description: writer.strings.id(&description), size: 0 };
        writer.has_top |= name.is_empty();
        writer.open_buffer = Some(name.clone());
        Ok(Self { writer, name, clock, layout, section_at, header, cpus: BTreeMap::new() })
    }

    /// Writes the data of a CPU from its pages, compressing them if the file is compressed.
    ///
    /// The pages are read to the end of `pages`, 16 at a time. Returns their number.
    ///
    /// # Errors
    /// A CPU that is there already; data that are not whole pages; a page whose header claims more than a
    /// page can hold (readers would give up the whole file); a failing source or output.
    pub fn write_cpu(&mut self, cpu: u32, mut pages: impl Read) -> Result<u64, WriteError> {
        let page_size = self.layout.page_size;
        let mut writer = self.begin_cpu(cpu)?;
        let mut run = vec![0; CHUNK_PAGES * page_size as usize];
        let mut len = 0;
        loop {
            let filled = fill(&mut pages, &mut run).map_err(|source| WriteError::Source { cpu, source })?;
            len += filled as u64;
            if !filled.is_multiple_of(page_size as usize) {
                return Err(WriteError::PageRun { cpu, len, page_size });
            }
            writer.write_run(&run[..filled])?;
            if filled < run.len() {
                break;
            }
        }
        writer.finish()?;
        Ok(len / u64::from(page_size))
    }

    /// Starts the data of a CPU, which are then given page by page. A CPU that gets none is not listed in the
    /// file.
    ///
    /// # Errors
    /// A CPU that is there already.
    pub fn begin_cpu(&mut self, cpu: u32) -> Result<CpuWriter<'_, 'w, W>, WriteError> {
        self.check_cpu(cpu)?;
        // Frames have checksums of their own.
        let covered = Coverage::new(self.compressed());
        let finder = FinderChoice::default();
        Ok(CpuWriter {
            buffer: self,
            cpu,
            start: None,
            chunks: 0,
            pages: 0,
            run: Vec::new(),
            finder,
            covered,
        })
    }

    /// Writes the data of a CPU that are in their final form already: what
    /// [`ChunkCompressor::compress`](super::super::ChunkCompressor::compress) returned, joined.
    ///
    /// `chunks` is the number of chunks in it. With no chunks nothing is written and `copy` is not called. In
    /// a file without compression the data are pages, and `chunks` is only looked at for being 0.
    ///
    /// `copy` gets the output, positioned at the given offset, and returns how many bytes it wrote there. It
    /// may use the output's position or the offset; with a [`File`](std::fs::File) both ways of
    /// `copy_file_range` will do. The data are not checked, so that no checksum covers those that are not
    /// compressed.
    ///
    /// # Errors
    /// A CPU that is there already; a failing copy; an output that ends before the bytes that `copy`
    /// reported.
    pub fn copy_cpu(
        &mut self,
        cpu: u32,
        chunks: u32,
        copy: impl FnOnce(&mut W, u64) -> io::Result<u64>,
    ) -> Result<(), WriteError> {
        self.check_cpu(cpu)?;
        if chunks == 0 {
            return Ok(());
        }
        let start = self.start_cpu(chunks)?;
        let writer = &mut *self.writer;
        let said = copy(&mut writer.out, writer.position).map_err(io_error("trace data"))?;
        if !self.can_be_data(said) {
            return Err(WriteError::PageRun { cpu, len: said, page_size: self.layout.page_size });
        }
        let writer = &mut *self.writer;
        let end = writer.out.seek(SeekFrom::End(0)).map_err(io_error("trace data"))?;
        let found = end.saturating_sub(writer.position);
        if found < said {
            return Err(WriteError::CopyLength { cpu, said, found });
        }
        writer.position += said;
        writer.out.seek(SeekFrom::Start(writer.position)).map_err(io_error("trace data"))?;
        self.end_cpu(cpu, start);
        Ok(())
    }

    /// Completes the buffer.
    ///
    /// # Errors
    /// The output failed.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { writer, name, clock, layout, section_at, header, cpus } = self;
        let size = writer.position - section_at - SECTION_HEADER_LEN;
        writer.patch("trace data", section_at + SECTION_SIZE_AT, &writer.setup.endian.u64(size))?;
        let header = SectionHeader { size, ..header }.encode(writer.setup.endian);
        writer.covered.push(Range::of(section_at, &[&header]));
        let mut option = Encoder::new(writer.setup.endian);
        option.u64(section_at).c_string(&name).c_string(&clock).u32(layout.page_size).u32(cpus.len() as u32);
        for (cpu, Extent { offset, size }) in cpus {
            option.u32(cpu).u64(offset).u64(size);
        }
        writer.buffers.push(option.into_bytes());
        writer.open_buffer = None;
        Ok(())
    }

    fn compressed(&self) -> bool {
        self.writer.setup.compression != Compression::None
    }

    /// Whether data of this length can be a CPU's. Of compressed data nothing can be said.
    fn can_be_data(&self, len: u64) -> bool {
        self.compressed() || len.is_multiple_of(self.layout.page_size.into())
    }

    fn check_cpu(&self, cpu: u32) -> Result<(), WriteError> {
        if self.cpus.contains_key(&cpu) {
            return Err(WriteError::DuplicateCpu { buffer: self.name.clone(), cpu });
        }
        if cpu == u32::MAX {
            return Err(WriteError::CpuNumber { cpu });
        }
        Ok(())
    }

    /// Writes what stands before a CPU's data. Returns the offset at which the data begin for a reader: for
    /// compressed data that of the chunk count.
    fn start_cpu(&mut self, chunks: u32) -> Result<u64, WriteError> {
        let writer = &mut *self.writer;
        if writer.setup.compression == Compression::None {
            // Readers map pages straight from the file. The section's size counts the padding.
            let align = u64::from(self.layout.page_size.max(writer.layout.page_size));
            let padding = writer.position.next_multiple_of(align) - writer.position;
            writer.append("trace data", &vec![0; padding as usize])?;
            return Ok(writer.position);
        }
        let start = writer.position;
        writer.append("trace data", &writer.setup.endian.u32(chunks))?;
        Ok(start)
    }

    /// Lists a CPU whose data began at `start` and end here. The size of compressed data counts the chunk
    /// count.
    fn end_cpu(&mut self, cpu: u32, start: u64) {
        self.writer.cpu_count = self.writer.cpu_count.max(cpu + 1);
        self.cpus.insert(cpu, Extent { offset: start, size: self.writer.position - start });
    }
}

/// Checksums of data that are written run by run.
#[derive(Debug)]
struct Coverage {
    /// Whether none are wanted.
    off: bool,
    ranges: Vec<Range>,
    /// Where the range begins that is not complete, and its checksum so far.
    start: u64,
    len: u64,
    hasher: crc32fast::Hasher,
}

impl Coverage {
    fn new(off: bool) -> Self {
        Self { off, ranges: Vec::new(), start: 0, len: 0, hasher: crc32fast::Hasher::new() }
    }

    fn add(&mut self, at: u64, bytes: &[u8]) {
        if self.off {
            return;
        }
        if self.len == 0 {
            self.start = at;
        }
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        if self.len >= DATA_RANGE {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.len != 0 {
            let crc = std::mem::take(&mut self.hasher).finalize();
            self.ranges.push(Range { offset: self.start, len: std::mem::take(&mut self.len), crc });
        }
    }

    fn finish(mut self) -> Vec<Range> {
        self.close();
        self.ranges
    }
}

/// Writes the data of one CPU page by page. Must be [finished](Self::finish).
#[derive(Debug)]
#[must_use = "the data of a CPU must be finished"]
pub struct CpuWriter<'b, 'w, W> {
    buffer: &'b mut BufferWriter<'w, W>,
    cpu: u32,
    /// Where the data begin, once there are some.
    start: Option<u64>,
    chunks: u32,
    /// Pages that are checked.
    pages: u64,
    /// Pages that wait for a chunk of them.
    run: Vec<u8>,
    /// By which match finder the CPU's chunks are compressed.
    finder: FinderChoice,
    covered: Coverage,
}

impl<W: Write + Seek> CpuWriter<'_, '_, W> {
    /// Appends a page.
    ///
    /// # Errors
    /// It has another size than the buffer's pages, or its header claims more than a page can hold; a failing
    /// output.
    pub fn push_page(&mut self, page: &[u8]) -> Result<(), WriteError> {
        let page_size = self.buffer.layout.page_size;
        if page.len() != page_size as usize {
            return Err(WriteError::PageRun { cpu: self.cpu, len: page.len() as u64, page_size });
        }
        self.run.extend_from_slice(page);
        if self.run.len() < CHUNK_PAGES * page_size as usize { Ok(()) } else { self.flush() }
    }

    /// Appends a chunk as [`ChunkCompressor::compress`](super::super::ChunkCompressor::compress) makes it, or
    /// another file of the same byte order and compression has it. It is not checked.
    ///
    /// # Errors
    /// The file is not compressed; a failing output.
    pub(crate) fn push_chunk(&mut self, chunk: &[u8]) -> Result<(), WriteError> {
        if !self.buffer.compressed() {
            let (len, page_size) = (chunk.len() as u64, self.buffer.layout.page_size);
            return Err(WriteError::PageRun { cpu: self.cpu, len, page_size });
        }
        self.flush()?;
        self.start()?;
        let writer = &mut *self.buffer.writer;
        writer.append("trace data", chunk)?;
        self.count_chunk()
    }

    /// Completes the CPU's data. Returns how many bytes they take in the file.
    ///
    /// # Errors
    /// The output failed.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        self.flush()?;
        let Self { buffer, cpu, start: Some(start), chunks, covered, .. } = self else { return Ok(0) };
        buffer.writer.covered.append(&mut covered.finish());
        if buffer.compressed() {
            buffer.writer.patch("trace data", start, &buffer.writer.setup.endian.u32(chunks))?;
        }
        buffer.end_cpu(cpu, start);
        Ok(buffer.writer.position - start)
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let mut run = std::mem::take(&mut self.run);
        self.write_run(&run)?;
        run.clear();
        self.run = run;
        Ok(())
    }

    /// Writes these pages as one chunk, if there are some.
    fn write_run(&mut self, run: &[u8]) -> Result<(), WriteError> {
        if run.is_empty() {
            return Ok(());
        }
        let (cpu, layout) = (self.cpu, self.buffer.layout);
        for page in run.chunks_exact(layout.page_size as usize) {
            let index = self.pages;
            layout.header(page).map_err(|source| WriteError::Page { cpu, index, source })?;
            self.pages += 1;
        }
        self.start()?;
        let Writer { compressor, out, position, .. } = &mut *self.buffer.writer;
        let chunk = compressor.compress_stream(run, &mut self.finder);
        let chunk = chunk.map_err(|source| WriteError::Compress { what: "trace data", source })?;
        out.write_all(chunk).map_err(io_error("trace data"))?;
        self.covered.add(*position, chunk);
        *position += chunk.len() as u64;
        self.count_chunk()
    }

    fn start(&mut self) -> Result<(), WriteError> {
        if self.start.is_none() {
            self.start = Some(self.buffer.start_cpu(0)?);
        }
        Ok(())
    }

    fn count_chunk(&mut self) -> Result<(), WriteError> {
        let too_long = WriteError::TooLong { what: "trace data", len: usize::MAX };
        self.chunks = self.chunks.checked_add(1).ok_or(too_long)?;
        Ok(())
    }
}

/// Reads until `buffer` is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
