//! Opening a file of version 7: sections with headers, found through options.

use std::collections::{BTreeMap, BTreeSet};

use super::super::compress::{Codec, Decompressor};
use super::super::layout::{OptionId, SECTION_COMPRESSED, SECTION_HEADER_LEN, SectionHeader, SectionId};
use super::super::option::FileOption;
use super::super::page::PageLayout;
use super::cursor::Cursor;
use super::error::ReadError;
use super::file::{
    Body, BufferInfo, FileHeader, MAX_SECTION, Parsed, SectionInfo, check_extents, cpu_count, missing_data,
};
use super::metadata::Metadata;
use super::option::{OptionEntry, OptionValue, decode};
use super::source::Source;

/// Most sections that are listed by walking through the file.
const MAX_LISTED: usize = 4096;

/// Longest chunk, uncompressed. Recorders make chunks of 10 to 64 pages; of the largest, of 1 MiB, they are
/// 10 or 16.
pub(crate) const MAX_CHUNK: u64 = 32 << 20;

/// A file whose header is read.
pub(crate) struct Sections<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) len: u64,
    pub(crate) header: &'a FileHeader,
}

/// A section header and where the section's bytes are.
pub(crate) struct Found {
    pub(crate) header: SectionHeader,
    pub(crate) body_at: u64,
    /// Not past the end of the file.
    pub(crate) body_end: u64,
}

/// What reads the body of a section.
type Part = fn(&mut Metadata, &mut Cursor<'_>) -> Result<(), ReadError>;

/// Opens the file after its header, at which `cursor` is.
pub(crate) fn open(
    source: &dyn Source,
    len: u64,
    header: FileHeader,
    mut cursor: Cursor<'_>,
) -> Result<Parsed, ReadError> {
    let first_options = cursor.u64("the offset of the first options")?;
    let file = Sections { source, len, header: &header };
    let mut problems = Vec::new();
    let options = file.options(first_options, &mut problems)?;

    let mut at = BTreeMap::new();
    for entry in &options {
        if let OptionValue::Section { id, offset } = entry.value {
            at.entry(id).or_insert(offset);
        }
    }
    let mut metadata = Metadata::default();
    let info =
        *at.get(&SectionId::HEADER_INFO).ok_or(ReadError::MissingSection { id: SectionId::HEADER_INFO })?;
    file.with_body(info, SectionId::HEADER_INFO, |cursor| metadata.read_header_info(cursor))?;
    let layout = PageLayout::parse(header.endian, &metadata.header_page)
        .map_err(|source| ReadError::Layout { source })?;
    let parts: [(SectionId, Part); 4] = [
        (SectionId::FTRACE_EVENTS, Metadata::read_ftrace_events),
        (SectionId::EVENT_FORMATS, Metadata::read_event_formats),
        (SectionId::PRINTK, Metadata::read_printk),
        (SectionId::CMDLINES, Metadata::read_cmdlines),
    ];
    for (id, read) in parts {
        // Without them events can be read, though not everything in them can be printed.
        if let Some(offset) = at.get(&id)
            && let Err(error) = file.with_body(*offset, id, |cursor| read(&mut metadata, cursor))
        {
            problems.push(error);
        }
    }
    metadata.index();

    let mut buffers = Vec::new();
    let mut texts = Vec::new();
    for entry in &options {
        match &entry.value {
            OptionValue::Buffer(option) => {
                let found = file.find(option.offset, Some(SectionId::FLYRECORD));
                let compressed = found.map(|found| found.header.flags & SECTION_COMPRESSED != 0);
                match compressed.and_then(|compressed| BufferInfo::new(option, layout, compressed)) {
                    Ok(buffer) => buffers.push(buffer),
                    Err(error) => problems.push(error),
                }
            }
            OptionValue::BufferText { offset, name, .. } => {
                texts.push((name.clone(), Body::Section(*offset)));
            }
            _ => {}
        }
    }
    check_extents(&buffers, len)?;
    missing_data(&buffers, len, &mut problems);
    let sections = file.list(cursor.at(), first_options, &options);
    let kallsyms = at.get(&SectionId::KALLSYMS).map(|offset| Body::Section(*offset));
    let cpus = cpu_count(&options).unwrap_or(0);
    Ok(Parsed { header, layout, metadata, options, buffers, cpus, sections, kallsyms, texts, problems })
}

impl Sections<'_> {
    /// Reads a section header. The data of a section that is still being written, or of one that was cut off,
    /// end with the file.
    pub(crate) fn find(&self, offset: u64, wanted: Option<SectionId>) -> Result<Found, ReadError> {
        let what = "a section header";
        let mut cursor = Cursor::new(self.source, self.header.endian, offset, self.len);
        if cursor.left() == 0 {
            return Err(ReadError::Short { what, offset, wanted: SECTION_HEADER_LEN, left: 0 });
        }
        let header = SectionHeader {
            id: SectionId(cursor.u16(what)?),
            flags: cursor.u16(what)?,
            description: cursor.u32(what)?,
            size: cursor.u64(what)?,
        };
        if wanted.is_some_and(|id| id != header.id) {
            let expected = wanted.map_or("", SectionId::description);
            return Err(ReadError::Invalid { what, offset, expected, found: header.id.to_string() });
        }
        let body_at = cursor.at();
        Ok(Found { header, body_at, body_end: body_at.saturating_add(header.size).min(self.len) })
    }

    /// Lets `read` have the bytes of a section, uncompressed.
    pub(crate) fn with_body<T>(
        &self,
        offset: u64,
        id: SectionId,
        read: impl FnOnce(&mut Cursor<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let Found { header, body_at, body_end } = self.find(offset, Some(id))?;
        let endian = self.header.endian;
        let mut cursor = Cursor::new(self.source, endian, body_at, body_end);
        if header.flags & SECTION_COMPRESSED == 0 {
            return read(&mut cursor);
        }
        let what = id.description();
        let (packed, plain) = (cursor.u32(what)?, cursor.u32(what)?);
        // The bytes are taken only if they are there; more than these do not come out of them.
        let packed = cursor.take(what, packed.into())?;
        if u64::from(plain) > MAX_SECTION {
            return Err(ReadError::TooBig { what, offset, size: plain.into(), limit: MAX_SECTION });
        }
        let mut bytes = Vec::new();
        Decompressor::new(self.header.codec)
            .decompress(&packed, plain as usize, &mut bytes)
            .map_err(|source| ReadError::Decompress { what, offset, source })?;
        read(&mut Cursor::new(&bytes, endian, 0, bytes.len() as u64))
    }

    /// All of a section whose bytes are in chunks, as trace data are, if compressed.
    pub(crate) fn text(&self, offset: u64) -> Result<Vec<u8>, ReadError> {
        let Found { header, body_at, body_end } = self.find(offset, Some(SectionId::BUFFER_TEXT))?;
        let what = "trace text";
        let mut cursor = Cursor::new(self.source, self.header.endian, body_at, body_end);
        let too_big = |size| Err(ReadError::TooBig { what, offset, size, limit: MAX_SECTION });
        if header.flags & SECTION_COMPRESSED == 0 {
            let len = cursor.left();
            return if len > MAX_SECTION { too_big(len) } else { cursor.take(what, len) };
        }
        let mut decompressor = Decompressor::new(self.header.codec);
        let (mut text, mut chunk) = (Vec::new(), Vec::new());
        for _ in 0..cursor.u32(what)? {
            let offset = cursor.at();
            let (packed, plain) = (cursor.u32(what)?, cursor.u32(what)?);
            let packed = cursor.take(what, packed.into())?;
            if u64::from(plain) > MAX_CHUNK || text.len() as u64 + u64::from(plain) > MAX_SECTION {
                return too_big(text.len() as u64 + u64::from(plain));
            }
            decompressor
                .decompress(&packed, plain as usize, &mut chunk)
                .map_err(|source| ReadError::Decompress { what, offset, source })?;
            text.extend_from_slice(&chunk[..plain as usize]);
        }
        Ok(text)
    }

    /// All options of the file. The first section of them must be whole; a chain that breaks later has what
    /// came before. An option that must be understood and is not is kept as bytes.
    pub(crate) fn options(
        &self,
        first: u64,
        problems: &mut Vec<ReadError>,
    ) -> Result<Vec<OptionEntry>, ReadError> {
        let mut options = Vec::new();
        let mut seen = BTreeSet::new();
        // Sections do not overlap, so that all options together are no longer than the file.
        let mut budget = self.len;
        let mut next = first;
        loop {
            let before = seen.len();
            let result = if seen.insert(next) {
                self.options_section(next, &mut budget, &mut options, problems)
            } else {
                let expected = "options that were not read before";
                let found = "a loop".to_owned();
                Err(ReadError::Invalid {
                    what: "the link to the next options",
                    offset: next,
                    expected,
                    found,
                })
            };
            match result {
                Ok(0) => return Ok(options),
                Ok(link) => next = link,
                Err(error) if before == 0 => return Err(error),
                Err(error) => {
                    problems.push(error);
                    return Ok(options);
                }
            }
        }
    }

    /// Reads one section of options. Returns the offset of the next one, 0 = none.
    ///
    /// Layout: each u16 id, u32 size, bytes; the last is DONE, whose bytes are that offset.
    pub(crate) fn options_section(
        &self,
        offset: u64,
        budget: &mut u64,
        options: &mut Vec<OptionEntry>,
        problems: &mut Vec<ReadError>,
    ) -> Result<u64, ReadError> {
        let found = self.find(offset, Some(SectionId::OPTIONS))?;
        if found.header.flags & SECTION_COMPRESSED != 0 {
            // Of compressed options the offsets are those in the uncompressed section.
            return self.with_body(offset, SectionId::OPTIONS, |cursor| {
                self.entries(cursor, budget, options, problems)
            });
        }
        let mut cursor = Cursor::new(self.source, self.header.endian, found.body_at, found.body_end);
        self.entries(&mut cursor, budget, options, problems)
    }

    fn entries(
        &self,
        cursor: &mut Cursor<'_>,
        budget: &mut u64,
        options: &mut Vec<OptionEntry>,
        problems: &mut Vec<ReadError>,
    ) -> Result<u64, ReadError> {
        loop {
            let id = OptionId(cursor.u16("an option")?);
            let size = u64::from(cursor.u32("an option")?);
            let offset = cursor.at();
            if id == OptionId::DONE {
                return cursor.u64("the link to the next options");
            }
            // Headers count as well, so that empty options are bounded too.
            let Some(left) = budget.checked_sub(size + 6) else {
                let found = "more bytes of them than the file has".to_owned();
                return Err(ReadError::Invalid {
                    what: "options",
                    offset,
                    expected: "sections that do not overlap",
                    found,
                });
            };
            *budget = left;
            let bytes = cursor.take("an option", size)?;
            let values = decode(id, offset, &bytes, self.header.endian, self.header.version);
            let values = values.unwrap_or_else(|error| {
                problems.push(error);
                vec![OptionValue::Fact(FileOption::Unknown { id, bytes })]
            });
            options.extend(values.into_iter().map(|value| OptionEntry { offset, size, id, value }));
        }
    }

    /// The sections of the file: those that options point at, and those that are found from section to
    /// section from `first` on, which is how the strings are found.
    pub(crate) fn list(&self, first: u64, options_at: u64, options: &[OptionEntry]) -> Vec<SectionInfo> {
        let mut offsets: BTreeSet<u64> = BTreeSet::from([options_at]);
        for entry in options {
            match &entry.value {
                OptionValue::Section { offset, .. } | OptionValue::BufferText { offset, .. } => {
                    offsets.insert(*offset);
                }
                OptionValue::Buffer(option) => {
                    offsets.insert(option.offset);
                }
                OptionValue::Fact(_) | OptionValue::Checksums(_) => {}
            }
        }
        let mut at = first;
        while let Ok(Found { header, body_at, .. }) = self.find(at, None) {
            let end = body_at.checked_add(header.size).filter(|end| *end <= self.len);
            let known = header.id.0 <= 64 && header.flags & !SECTION_COMPRESSED == 0;
            let Some(end) = end.filter(|_| known && offsets.len() < MAX_LISTED) else { break };
            offsets.insert(at);
            at = end;
        }
        let mut strings = Vec::new();
        let mut sections = Vec::new();
        for offset in offsets {
            let Ok(Found { header, body_at, .. }) = self.find(offset, None) else { continue };
            let compressed = header.flags & SECTION_COMPRESSED != 0;
            let chunks = matches!(header.id, SectionId::FLYRECORD | SectionId::BUFFER_TEXT);
            let plain_size = match (compressed, chunks) {
                (false, _) => Some(header.size),
                (true, true) => None,
                (true, false) => {
                    let mut cursor = Cursor::new(self.source, self.header.endian, body_at, self.len);
                    let sizes = cursor.skip("", 4).and_then(|()| cursor.u32(""));
                    sizes.ok().map(u64::from)
                }
            };
            if header.id == SectionId::STRINGS && (strings.len() as u64) < MAX_LISTED as u64 * 64 {
                // Descriptions count from the first byte of all strings sections joined.
                let all = |cursor: &mut Cursor<'_>| cursor.take("strings", cursor.left().min(1 << 20));
                strings.extend(self.with_body(offset, SectionId::STRINGS, all).unwrap_or_default());
            }
            let info = SectionInfo {
                id: header.id,
                offset,
                size: header.size,
                compressed,
                plain_size,
                description: None,
            };
            sections.push((info, header.description));
        }
        let describe = |at: u32| {
            let text = strings.get(at as usize..)?.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned())
        };
        let described =
            sections.into_iter().map(|(info, at)| SectionInfo { description: describe(at), ..info });
        described.collect()
    }
}

/// Whether trace data that are said to be compressed can be.
pub(crate) fn check_codec(compressed: bool, codec: Codec, offset: u64) -> Result<(), ReadError> {
    if compressed && codec == Codec::None {
        let found = "compressed data".to_owned();
        let expected = "plain data, as the file header names no compression";
        return Err(ReadError::Invalid { what: "trace data", offset, expected, found });
    }
    Ok(())
}
