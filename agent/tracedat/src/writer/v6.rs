//! Writing a file of version 6, which tools from before 2022 read.
//!
//! ```text
//! header                    without a compression
//! page layout ... task names   the bodies of sections 16 to 21, one after the other
//! number of CPUs            u32
//! options                   "options  ", the facts, and for each named buffer where its data are
//! trace data                per buffer, the top one first: "flyrecord", offset and size per CPU, the clock, pages
//! ```
//!
//! trace-cmd.dat.v6(5) has this order. What it leaves out, as trace-cmd's reader
//! (`lib/trace-cmd/trace-input.c`) has it: the data of named buffers have the same form as those of the top
//! one; every buffer lists all CPUs from 0 on; and after the list is u64 size and the text of a clock, which
//! is read if there is an option TRACECLOCK.

use std::io::{Cursor, Seek, SeekFrom, Write};

use super::super::error::{WriteError, io_error};
use super::super::layout::{MAGIC, OptionId, V6_FLYRECORD, V6_LATENCY, V6_MAX_CPUS, V6_OPTIONS};
use super::super::option::{FileOption, no_nul};
use super::super::page::PageLayout;
use super::option_len;
use ftrace_event::endian::{Encoder, Endian};

/// What stands before the trace data.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// Byte of the header: the `long` of the recording program.
    pub(crate) long_size: u8,
    /// Page size of the recorded machine.
    pub(crate) page_size: u32,
    /// The bodies of sections 16 to 21 in this order.
    pub(crate) bodies: [&'a [u8]; 6],
    /// Number of CPUs: every buffer lists so many.
    pub(crate) cpus: u32,
    /// The facts.
    pub(crate) options: &'a [FileOption],
    /// The names of the buffers that will be written after the top one.
    pub(crate) buffers: &'a [&'a str],
}

/// Writes a file of version 6: the head, the top buffer, then the named ones in the order in which they were
/// announced.
#[derive(Debug)]
pub(crate) struct V6Writer<W> {
    out: W,
    layout: PageLayout,
    cpus: u32,
    position: u64,
    /// Where each named buffer's offset belongs, the last one first.
    links: Vec<u64>,
    has_top: bool,
    has_text: bool,
}

impl V6Writer<Cursor<Vec<u8>>> {
    /// What is written so far, in another output, with a writer that continues there.
    pub(crate) fn copy_to<V: Write + Seek>(&self, mut out: V) -> Result<V6Writer<V>, WriteError> {
        out.seek(SeekFrom::Start(0)).map_err(io_error("the header"))?;
        out.write_all(self.out.get_ref()).map_err(io_error("the head of the file"))?;
        let &Self { out: _, layout, cpus, position, ref links, has_top, has_text } = self;
        Ok(V6Writer { out, layout, cpus, position, links: links.clone(), has_top, has_text })
    }
}

impl<W: Write + Seek> V6Writer<W> {
    pub(crate) fn create(mut out: W, layout: PageLayout, head: &Head<'_>) -> Result<Self, WriteError> {
        let &Head { long_size, page_size, bodies, cpus, options, buffers } = head;
        if cpus > V6_MAX_CPUS {
            return Err(WriteError::CpuNumber { cpu: cpus });
        }
        let endian = layout.endian;
        let mut bytes = Encoder::new(endian);
        bytes.raw(&MAGIC).c_string("6").raw(&[endian.header_byte(), long_size]).u32(page_size);
        bytes.raw(&bodies.concat());
        bytes.u32(cpus).raw(&V6_OPTIONS);
        for option in options {
            let data = option.encode(endian)?;
            bytes.u16(option.id().0).u32(option_len(&data)?).raw(&data);
        }
        let mut links = Vec::new();
        for name in buffers {
            let name = no_nul("buffer name", name)?;
            bytes.u16(OptionId::BUFFER.0).u32(option_len(name.as_bytes())?.saturating_add(9));
            links.push(bytes.len() as u64);
            bytes.u64(0).c_string(name);
        }
        links.reverse();
        bytes.u16(OptionId::DONE.0);
        out.seek(SeekFrom::Start(0)).map_err(io_error("the header"))?;
        let mut writer = Self { out, layout, cpus, position: 0, links, has_top: false, has_text: false };
        writer.append("the head of the file", &bytes.into_bytes())?;
        Ok(writer)
    }

    /// Starts the trace data of the next buffer.
    pub(crate) fn begin_buffer(&mut self, clock: &str) -> Result<V6BufferWriter<'_, W>, WriteError> {
        let clock = no_nul("clock", clock)?;
        if self.has_top {
            let link = self.links.pop().ok_or(WriteError::DuplicateTopBuffer)?;
            self.patch(link, self.position)?;
        }
        self.has_top = true;
        let table = self.position + V6_FLYRECORD.len() as u64;
        let mut bytes = Encoder::new(self.layout.endian);
        bytes.raw(&V6_FLYRECORD).raw(&vec![0; self.cpus as usize * 16]);
        let clock = if clock.is_empty() { String::new() } else { format!("[{clock}]") };
        bytes.u64(clock.len() as u64).raw(clock.as_bytes());
        self.append("trace data", &bytes.into_bytes())?;
        Ok(V6BufferWriter { writer: self, table })
    }

    /// Writes the text of a latency tracer in place of trace data. Nothing can come after it.
    pub(crate) fn text(&mut self, text: &[u8]) -> Result<(), WriteError> {
        self.has_text = true;
        self.append("trace text", &V6_LATENCY)?;
        self.append("trace text", text)
    }

    /// Whether there is a text in place of trace data.
    pub(crate) fn has_text(&self) -> bool {
        self.has_text
    }

    /// Completes the file.
    pub(crate) fn finish(mut self) -> Result<W, WriteError> {
        self.out.flush().map_err(io_error("the end of the file"))?;
        Ok(self.out)
    }

    fn append(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.write_all(bytes).map_err(io_error(what))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Writes a number where room was left for it.
    fn patch(&mut self, at: u64, value: u64) -> Result<(), WriteError> {
        let error = io_error("the place of trace data");
        self.out.seek(SeekFrom::Start(at)).map_err(&error)?;
        self.out.write_all(&self.endian().u64(value)).map_err(&error)?;
        self.out.seek(SeekFrom::Start(self.position)).map_err(&error)?;
        Ok(())
    }

    fn endian(&self) -> Endian {
        self.layout.endian
    }
}

/// Writes the trace data of one buffer.
#[derive(Debug)]
pub(crate) struct V6BufferWriter<'w, W> {
    writer: &'w mut V6Writer<W>,
    /// Where the list of CPUs is.
    table: u64,
}

impl<'w, W: Write + Seek> V6BufferWriter<'w, W> {
    /// Starts the data of a CPU, which are then given page by page.
    pub(crate) fn begin_cpu<'b>(&'b mut self, cpu: u32) -> Result<V6CpuWriter<'b, 'w, W>, WriteError> {
        if cpu >= self.writer.cpus {
            return Err(WriteError::CpuNumber { cpu });
        }
        Ok(V6CpuWriter { buffer: self, cpu, start: None })
    }
}

/// Writes the data of one CPU.
#[derive(Debug)]
pub(crate) struct V6CpuWriter<'b, 'w, W> {
    buffer: &'b mut V6BufferWriter<'w, W>,
    cpu: u32,
    start: Option<u64>,
}

impl<W: Write + Seek> V6CpuWriter<'_, '_, W> {
    pub(crate) fn push_page(&mut self, page: &[u8]) -> Result<(), WriteError> {
        let writer = &mut *self.buffer.writer;
        let page_size = writer.layout.page_size;
        if page.len() != page_size as usize {
            return Err(WriteError::PageRun { cpu: self.cpu, len: page.len() as u64, page_size });
        }
        if self.start.is_none() {
            // Readers map pages from the file.
            let padding = writer.position.next_multiple_of(page_size.into()) - writer.position;
            writer.append("trace data", &vec![0; padding as usize])?;
            self.start = Some(writer.position);
        }
        writer.append("trace data", page)
    }

    pub(crate) fn finish(self) -> Result<u64, WriteError> {
        let Some(start) = self.start else { return Ok(0) };
        let V6BufferWriter { writer, table } = self.buffer;
        let offset = *table + u64::from(self.cpu) * 16;
        let size = writer.position - start;
        writer.patch(offset, start)?;
        writer.patch(offset + 8, size)?;
        Ok(size)
    }
}
