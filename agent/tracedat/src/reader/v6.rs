//! Opening a file of version 6: everything one after the other, without section headers.
//!
//! | part | layout |
//! |---|---|
//! | header | magic, `"6\0"`, u8 byte order, u8 size of long, u32 page size |
//! | page layout, `ftrace` formats, formats, symbols, printk formats, task names | the bodies of sections 16 to 21 of version 7 |
//! | number of CPUs | u32 |
//! | options, may be missing | `"options  \0"`, each u16 id, u32 size, bytes; the last is u16 0 alone |
//! | trace data | `"flyrecord\0"`, per CPU u64 offset, u64 size; or `"latency  \0"` and a text |
//!
//! Only the uncompressed form exists. A BUFFER option holds the offset of another part of trace data, and the
//! buffer's name.

use super::super::layout::{
    OptionId, SectionId, V6_FLYRECORD as FLYRECORD, V6_LATENCY as LATENCY, V6_MAX_CPUS as MAX_CPUS,
    V6_OPTIONS as OPTIONS,
};
use super::super::page::PageLayout;
use super::cursor::Cursor;
use super::error::ReadError;
use super::file::{
    Body, BufferInfo, FileHeader, Parsed, SectionInfo, check_extents, cpu_count, missing_data,
};
use super::metadata::Metadata;
use super::option::{BufferOption, CpuExtent, OptionEntry, OptionValue, decode};
use super::source::Source;

/// Trace data, or text in their place.
enum Data {
    Cpus(BufferOption),
    Text(Body),
}

/// What follows the metadata: the options, and the trace data of all buffers.
#[derive(Default)]
pub(super) struct Tail {
    pub(super) cpus: u32,
    pub(super) options: Vec<OptionEntry>,
    pub(super) buffers: Vec<BufferInfo>,
    pub(super) texts: Vec<(String, Body)>,
    pub(super) problems: Vec<ReadError>,
    pub(super) sections: Vec<SectionInfo>,
}

/// Opens the file after its header, at which `cursor` is.
pub(crate) fn open(
    source: &dyn Source,
    len: u64,
    header: FileHeader,
    mut cursor: Cursor<'_>,
) -> Result<Parsed, ReadError> {
    let mut metadata = Metadata::default();
    let mut sections = Vec::new();
    // Nothing tells where the next part is but the end of the one before, so that damage here ends the
    // reading.
    let mut part = |id, start: u64, end: u64| sections.push(part(id, start, end));
    let start = cursor.at();
    metadata.read_header_info(&mut cursor)?;
    part(SectionId::HEADER_INFO, start, cursor.at());
    let layout = PageLayout::parse(header.endian, &metadata.header_page)
        .map_err(|source| ReadError::Layout { source })?;
    let start = cursor.at();
    metadata.read_ftrace_events(&mut cursor)?;
    part(SectionId::FTRACE_EVENTS, start, cursor.at());
    let start = cursor.at();
    metadata.read_event_formats(&mut cursor)?;
    part(SectionId::EVENT_FORMATS, start, cursor.at());
    let start = cursor.at();
    let kallsyms = read_kallsyms(&mut cursor)?;
    part(SectionId::KALLSYMS, start, cursor.at());
    let start = cursor.at();
    metadata.read_printk(&mut cursor)?;
    part(SectionId::PRINTK, start, cursor.at());
    let start = cursor.at();
    metadata.read_cmdlines(&mut cursor)?;
    part(SectionId::CMDLINES, start, cursor.at());
    metadata.index();

    let cpus = cursor.u32("the number of CPUs")?;
    let tail = Tail::read(source, len, &header, layout, cpus, cursor.at())?;
    sections.extend(tail.sections);
    let Tail { cpus, options, buffers, texts, problems, .. } = tail;
    let kallsyms = Some(kallsyms);
    Ok(Parsed { header, layout, metadata, options, buffers, cpus, sections, kallsyms, texts, problems })
}

/// A part of the file, as if it were a section.
pub(super) fn part(id: SectionId, start: u64, end: u64) -> SectionInfo {
    let size = end - start;
    SectionInfo { id, offset: start, size, compressed: false, plain_size: Some(size), description: None }
}

/// u32 size, text.
fn read_kallsyms(cursor: &mut Cursor<'_>) -> Result<Body, ReadError> {
    let len = u64::from(cursor.u32("size of the kernel symbols")?);
    let at = cursor.at();
    cursor.skip("kernel symbols", len)?;
    Ok(Body::Text { at, len })
}

impl Tail {
    /// Reads what begins at `at`, on a machine of so many CPUs.
    pub(super) fn read(
        source: &dyn Source,
        len: u64,
        header: &FileHeader,
        layout: PageLayout,
        cpus: u32,
        at: u64,
    ) -> Result<Self, ReadError> {
        let mut tail = Self { cpus, ..Self::default() };
        let mut options = Vec::new();
        tail.read_buffer(&mut Cursor::new(source, header.endian, at, len), header, layout, "", &mut options)?;
        for entry in &options {
            let OptionValue::Buffer(BufferOption { offset, name, .. }) = &entry.value else { continue };
            let mut cursor = Cursor::new(source, header.endian, *offset, len);
            if let Err(error) = tail.read_buffer(&mut cursor, header, layout, name, &mut Vec::new()) {
                tail.problems.push(error);
            }
        }
        tail.options = options;
        check_extents(&tail.buffers, len)?;
        missing_data(&tail.buffers, len, &mut tail.problems);
        Ok(tail)
    }

    fn read_buffer(
        &mut self,
        cursor: &mut Cursor<'_>,
        header: &FileHeader,
        layout: PageLayout,
        name: &str,
        options: &mut Vec<OptionEntry>,
    ) -> Result<(), ReadError> {
        let start = cursor.at();
        let (data, end_of_options) = read_data(cursor, header, &mut self.cpus, options)?;
        match data {
            Data::Cpus(option) => {
                if end_of_options > start {
                    self.sections.push(part(SectionId::OPTIONS, start, end_of_options));
                }
                self.sections.push(part(SectionId::FLYRECORD, end_of_options, cursor.at()));
                let option = BufferOption { name: name.to_owned(), ..option };
                self.buffers.push(BufferInfo::new(&option, layout, false)?);
            }
            Data::Text(text) => {
                let end = cursor.at() + cursor.left();
                self.sections.push(part(SectionId::BUFFER_TEXT, end_of_options, end));
                self.texts.push((name.to_owned(), text));
            }
        }
        Ok(())
    }
}

/// Reads options, if there are some, and the list of CPUs or the offset of the text after them. Returns also
/// where the options end.
fn read_data(
    cursor: &mut Cursor<'_>,
    header: &FileHeader,
    cpus: &mut u32,
    options: &mut Vec<OptionEntry>,
) -> Result<(Data, u64), ReadError> {
    let mut offset = cursor.at();
    let what = "the kind of data";
    let mut kind = cursor.array::<10>(what)?;
    if kind == OPTIONS {
        read_options(cursor, header, options)?;
        *cpus = cpu_count(options).unwrap_or(*cpus);
        offset = cursor.at();
        kind = cursor.array::<10>(what)?;
    }
    match kind {
        FLYRECORD => {
            if *cpus > MAX_CPUS {
                let (what, size) = ("the list of CPUs", u64::from(*cpus) * 16);
                return Err(ReadError::TooBig { what, offset, size, limit: u64::from(MAX_CPUS) * 16 });
            }
            let mut option = BufferOption { offset, ..BufferOption::default() };
            for cpu in 0..*cpus {
                let (offset, size) = (cursor.u64("the data of a CPU")?, cursor.u64("the data of a CPU")?);
                option.cpus.push(CpuExtent { cpu, offset, size });
            }
            // Later recorders put the clock after the list: u64 size, the list of clocks with the chosen one
            // in brackets.
            let clock = cursor
                .u64("the clock")
                .and_then(|len| if len > 256 { Ok(String::new()) } else { cursor.text("the clock", len) });
            let clock = clock.unwrap_or_default();
            let chosen = clock.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            option.clock = chosen.map(|(name, _)| name.to_owned()).unwrap_or_default();
            Ok((Data::Cpus(option), offset))
        }
        LATENCY => Ok((Data::Text(Body::Text { at: cursor.at(), len: cursor.left() }), offset)),
        found => {
            let found = format!("{:?}", String::from_utf8_lossy(&found));
            let expected = "\"options\", \"flyrecord\" or \"latency\"";
            Err(ReadError::Invalid { what, offset, expected, found })
        }
    }
}

fn read_options(
    cursor: &mut Cursor<'_>,
    header: &FileHeader,
    options: &mut Vec<OptionEntry>,
) -> Result<(), ReadError> {
    loop {
        let id = OptionId(cursor.u16("an option")?);
        if id == OptionId::DONE {
            return Ok(());
        }
        let size = u64::from(cursor.u32("an option")?);
        let offset = cursor.at();
        let bytes = cursor.take("an option", size)?;
        for value in decode(id, offset, &bytes, header.endian, header.version)? {
            options.push(OptionEntry { offset, size, id, value });
        }
    }
}
