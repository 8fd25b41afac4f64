//! A file of either version that is being written.

use std::collections::BTreeMap;
use std::io::{Cursor, Seek, Write};

use super::super::compress::{Codec, Compression};
use super::super::error::WriteError;
use super::super::layout::{OptionId, SectionId};
use super::super::page::PageLayout;
use super::super::reader::{Reader, Source};
use super::super::writer::v6::{self, V6BufferWriter, V6CpuWriter, V6Writer};
use super::super::writer::{Buffer, BufferWriter, CpuWriter, Setup, Writer};
use super::error::RewriteError;
use super::head::Head;
use super::stream::{Change, CpuStream, Piece};
use super::{FileVersion, Progress, Rewritten, Target, Watch, WrittenBuffer};

/// A buffer that is to be written.
#[derive(Clone, Debug)]
pub(super) struct BufferPlan {
    pub(super) name: String,
    pub(super) clock: String,
    pub(super) layout: PageLayout,
    /// What becomes of each CPU's data.
    pub(super) cpus: BTreeMap<u32, Vec<Piece>>,
}

/// Where trace data come from, and what changes on the way.
pub(super) struct Inputs<'a, S> {
    pub(super) readers: &'a [&'a Reader<S>],
    /// One for each reader.
    pub(super) changes: &'a [Change],
    /// Whether damage costs what is damaged rather than everything.
    pub(super) tolerant: bool,
}

/// The compression of a file that is to be like `codec` unless the target says otherwise.
pub(super) fn compression(target: &Target, version: u8, codec: Codec) -> Compression {
    match (target.version, target.compression) {
        (FileVersion::V6, _) => Compression::None,
        (FileVersion::V7, Some(compression)) => compression,
        (FileVersion::V7, None) if version >= 7 && codec == Codec::None => Compression::None,
        (FileVersion::V7, None) => Compression::default(),
    }
}

/// What a file has before its trace data. It is made once, and every part of a split file begins with a copy
/// of it.
#[derive(Debug)]
pub(super) struct Beginning {
    output: Output<Cursor<Vec<u8>>>,
    /// Whether chunks of the inputs can be copied as they are.
    chunks: bool,
    /// What was left out of the metadata, in words.
    notes: Vec<String>,
}

impl Beginning {
    /// Makes it of a head, for these buffers, which are put into the order and the form that files of the
    /// target's version have.
    pub(super) fn new<S: Source>(
        target: &Target,
        mut head: Head,
        buffers: &mut Vec<BufferPlan>,
        readers: &[&Reader<S>],
    ) -> Result<Self, RewriteError> {
        let first = readers.first().map(|reader| reader.header());
        let (version, codec) = first.map_or((7, Codec::None), |header| (header.version, header.codec));
        let compression = compression(target, version, codec);
        // Of another byte order there are no inputs; with another compression nothing can be copied.
        let chunks = target.compression.is_none()
            && matches!(compression, Compression::Zstd { .. })
            && readers.iter().all(|reader| reader.header().codec == Codec::Zstd);
        if target.version == FileVersion::V6 {
            head.without_others("version 6 has no place for it");
            let top = buffers.iter().position(|buffer| buffer.name.is_empty());
            let top = top.map(|index| buffers.remove(index));
            let clock = String::new();
            let empty = BufferPlan { name: String::new(), clock, layout: head.layout, cpus: BTreeMap::new() };
            buffers.insert(0, top.unwrap_or(empty));
            // Version 6 has one size of pages.
            for buffer in buffers.iter_mut() {
                buffer.layout = head.layout;
            }
        } else if compression == Compression::None {
            // trace-cmd 3.4 shows nothing of a file without compression that has these.
            head.without_others("readers fail on it in a file without compression");
        }
        let out = Cursor::new(Vec::new());
        let output = Output::create(out, target.version, compression, &head, buffers)?;
        Ok(Self { output, chunks, notes: head.notes })
    }
}

/// Writes a whole file. The buffers are those that the beginning was made for.
pub(super) fn write_file<S: Source, W: Write + Seek>(
    out: W,
    beginning: &Beginning,
    buffers: &[BufferPlan],
    inputs: &Inputs<'_, S>,
    watch: Watch<'_>,
) -> Result<(W, Rewritten), RewriteError> {
    let mut output = beginning.output.copy_to(out)?;
    let mut progress = Progress { done: 0, total: total(buffers, inputs) };
    let mut rewritten = Rewritten { notes: beginning.notes.clone(), ..Rewritten::default() };
    for plan in buffers {
        let mut buffer = output.begin_buffer(plan)?;
        let mut written = WrittenBuffer { name: plan.name.clone(), cpus: Vec::new() };
        for (cpu, pieces) in &plan.cpus {
            let out = buffer.begin_cpu(*cpu)?;
            let mut stream = CpuStream::new(out, plan, *cpu, beginning.chunks);
            stream.pieces(inputs, pieces, &mut progress, watch)?;
            let (cpu, mut lost) = stream.finish()?;
            written.cpus.push(cpu);
            rewritten.lost.append(&mut lost);
        }
        buffer.finish()?;
        rewritten.buffers.push(written);
    }
    Ok((output.finish()?, rewritten))
}

/// Bytes of trace data that are going to be read.
fn total<S: Source>(buffers: &[BufferPlan], inputs: &Inputs<'_, S>) -> u64 {
    let extent = |piece: &Piece| {
        let buffer = inputs.readers.get(piece.reader)?.buffers().get(piece.buffer)?;
        buffer.cpu(piece.cpu).map(|extent| extent.size)
    };
    // A damaged list may say anything.
    let pieces = buffers.iter().flat_map(|plan| plan.cpus.values().flatten());
    pieces.filter_map(extent).fold(0, u64::saturating_add)
}

/// A file.
#[derive(Debug)]
enum Output<W> {
    V6(V6Writer<W>),
    V7(Box<Writer<W>>),
}

/// A buffer of it.
#[derive(Debug)]
enum BufferOut<'w, W> {
    /// There is a text in its place.
    Text,
    V6(V6BufferWriter<'w, W>),
    V7(BufferWriter<'w, W>),
}

/// A CPU of that.
#[derive(Debug)]
pub(super) enum CpuOut<'b, 'w, W> {
    V6(V6CpuWriter<'b, 'w, W>),
    V7(CpuWriter<'b, 'w, W>),
}

impl Output<Cursor<Vec<u8>>> {
    /// The same in another output.
    fn copy_to<V: Write + Seek>(&self, out: V) -> Result<Output<V>, WriteError> {
        Ok(match self {
            Self::V6(writer) => Output::V6(writer.copy_to(out)?),
            Self::V7(writer) => Output::V7(Box::new(writer.copy_to(out)?)),
        })
    }
}

impl<W: Write + Seek> Output<W> {
    fn create(
        out: W,
        version: FileVersion,
        compression: Compression,
        head: &Head,
        buffers: &[BufferPlan],
    ) -> Result<Self, RewriteError> {
        let &Head { layout, long_size, page_size, cpu_count, .. } = head;
        let cpus = buffers.iter().filter_map(|buffer| buffer.cpus.last_key_value());
        let cpus = cpus.map(|(cpu, _)| cpu.saturating_add(1)).max().unwrap_or(0).max(cpu_count);
        Ok(if version == FileVersion::V6 {
            let bodies = SectionId::METADATA.map(|id| head.body(id));
            let names: Vec<_> = buffers.iter().skip(1).map(|buffer| buffer.name.as_str()).collect();
            let v6 = v6::Head { long_size, page_size, bodies, cpus, options: &head.facts, buffers: &names };
            let mut writer = V6Writer::create(out, layout, &v6)?;
            let has_data = buffers.len() > 1 || buffers.iter().any(|buffer| !buffer.cpus.is_empty());
            match head.texts.as_slice() {
                [] => {}
                [text] if text.buffer.is_empty() && !has_data => writer.text(&text.bytes)?,
                _ => return Err(RewriteError::NotInVersion6("the text of a latency tracer beside events")),
            }
            Self::V6(writer)
        } else {
            let setup = Setup { endian: layout.endian, page_size, compression };
            let mut writer = Writer::create_foreign(out, setup, layout, long_size)?;
            for section in &head.sections {
                writer.raw_section(section.id, &section.description, &section.bytes)?;
            }
            for other in &head.others {
                if matches!(OptionId(other.id.0), OptionId::BTF | OptionId::MODULES) {
                    writer.raw_section(other.id, &other.description, &other.bytes)?;
                } else {
                    writer.unlisted_section(other.id, &other.description, &other.bytes)?;
                }
            }
            for text in &head.texts {
                writer.buffer_text(&text.buffer, &text.clock, &text.bytes)?;
            }
            for fact in &head.facts {
                writer.option(fact)?;
            }
            writer.option(&super::super::FileOption::CpuCount(cpus))?;
            writer.close_metadata()?;
            Self::V7(Box::new(writer))
        })
    }

    fn begin_buffer(&mut self, plan: &BufferPlan) -> Result<BufferOut<'_, W>, WriteError> {
        let BufferPlan { name, clock, layout, cpus: _ } = plan;
        Ok(match self {
            Self::V6(writer) if writer.has_text() => BufferOut::Text,
            Self::V6(writer) => BufferOut::V6(writer.begin_buffer(clock)?),
            Self::V7(writer) => {
                BufferOut::V7(writer.begin_buffer(Buffer { name, clock, page_size: layout.page_size })?)
            }
        })
    }

    fn finish(self) -> Result<W, WriteError> {
        match self {
            Self::V6(writer) => writer.finish(),
            Self::V7(writer) => writer.finish(),
        }
    }
}

impl<'w, W: Write + Seek> BufferOut<'w, W> {
    fn begin_cpu(&mut self, cpu: u32) -> Result<CpuOut<'_, 'w, W>, RewriteError> {
        Ok(match self {
            Self::Text => {
                return Err(RewriteError::NotInVersion6("events beside the text of a latency tracer"));
            }
            Self::V6(writer) => CpuOut::V6(writer.begin_cpu(cpu)?),
            Self::V7(writer) => CpuOut::V7(writer.begin_cpu(cpu)?),
        })
    }

    fn finish(self) -> Result<(), WriteError> {
        match self {
            Self::Text | Self::V6(_) => Ok(()),
            Self::V7(writer) => writer.finish(),
        }
    }
}

impl<W: Write + Seek> CpuOut<'_, '_, W> {
    pub(super) fn push_page(&mut self, page: &[u8]) -> Result<(), WriteError> {
        match self {
            Self::V6(writer) => writer.push_page(page),
            Self::V7(writer) => writer.push_page(page),
        }
    }

    /// Appends a chunk of a compressed file. Only given to files of version 7.
    pub(super) fn push_chunk(&mut self, chunk: &[u8]) -> Result<(), RewriteError> {
        match self {
            Self::V6(_) => Err(RewriteError::NotInVersion6("compressed data")),
            Self::V7(writer) => Ok(writer.push_chunk(chunk)?),
        }
    }

    /// Returns the bytes that the data take.
    pub(super) fn finish(self) -> Result<u64, WriteError> {
        match self {
            Self::V6(writer) => writer.finish(),
            Self::V7(writer) => writer.finish(),
        }
    }
}
