//! Opening what is left of a file. In version 7, sections are searched for where no option leads to them any
//! more.
//!
//! A recorder writes the list of a buffer's CPUs after the data, so that a file that was cut off has lost it.
//! What was in the list can be reconstructed: compressed data begin with the number of chunks and go on from
//! chunk to chunk; of pages, those of the next CPU begin where time goes back. Only the numbers of the CPUs
//! are lost: they are counted from 0 in the order of the file.

mod pages;

use std::sync::OnceLock;

use std::collections::{BTreeMap, BTreeSet};

use self::pages::mend_header_page;
pub(super) use self::pages::{guessed_layout, page_runs};
use super::super::compress::Codec;
use super::super::layout::{OptionId, SECTION_COMPRESSED, SECTION_HEADER_LEN, SectionId};
use super::super::option::FileOption;
use super::super::page::PageLayout;
use super::cursor::Cursor;
use super::error::ReadError;
use super::file::{Body, BufferInfo, FileHeader, MAX_SECTION, Parsed, cpu_count, missing_data};
use super::metadata::Metadata;
use super::option::{BufferOption, CpuExtent, OptionEntry, OptionValue};
use super::salvage_v6;
use super::source::Source;
use super::time::Clock;
use super::v7::{Found, MAX_CHUNK, Sections};
use super::{Reader, SectionInfo};

/// What zstd's frames begin with (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Bytes that are searched at once.
pub(super) const WINDOW: usize = 256 << 10;

/// Most sections that are found.
const MAX_FOUND: usize = 4096;

/// The most CPUs that a list in a damaged file is believed to have.
const MAX_CPU: u32 = 1 << 16;

/// A section that was found by its looks.
struct Seen {
    id: SectionId,
    at: u64,
    compressed: bool,
    body_at: u64,
    /// Where it ends, at the latest.
    end: u64,
}

impl<S: Source> Reader<S> {
    /// Opens what is left of a damaged file. In words, it returns also what had to be guessed.
    ///
    /// Of a file that is not damaged it is the same as [`open`](Self::open).
    ///
    /// # Errors
    /// Nothing of it can be read: it does not begin as a file of a known version.
    pub fn open_damaged(source: S) -> Result<(Self, Vec<String>), ReadError> {
        let io = |source| ReadError::Io { what: "the size of the file", offset: 0, source };
        let len = source.size().map_err(io)?;
        let mut cursor = Cursor::new(&source, ftrace_event::Endian::Little, 0, len);
        let header = FileHeader::read(&mut cursor)?;
        match Reader::open(&source) {
            Ok(reader) if header.version < 7 || is_whole(&reader) => {
                let mut reader = Self::open(source)?;
                let mut notes = Vec::new();
                let Parsed { layout, metadata, problems, .. } = &mut reader.parsed;
                mend_header_page(*layout, metadata, problems, &mut notes);
                return Ok((reader, notes));
            }
            Err(error) if header.version < 7 => {
                let (parsed, notes) = salvage_v6::salvage(&source, len, header, cursor, error);
                let clock = Clock::new(&parsed.options);
                return Ok((Self { source, len, parsed, clock, losses: OnceLock::new() }, notes));
            }
            _ => {}
        }
        // Behind the header is the offset of the first options.
        let first_options = cursor.u64("the offset of the first options");
        let salvage = Salvage {
            file: Sections { source: &source, len, header: &header },
            seen: Vec::new(),
            notes: Vec::new(),
        };
        let (parsed, notes) = salvage.read(cursor.at(), first_options);
        let parsed = Parsed { header, ..parsed };
        let clock = Clock::new(&parsed.options);
        Ok((Self { source, len, parsed, clock, losses: OnceLock::new() }, notes))
    }
}

/// Whether nothing is wrong with what a reader looks at when it opens a file, and all data belong to a
/// buffer.
fn is_whole<S: Source>(reader: &Reader<S>) -> bool {
    let listed = |section: &SectionInfo| {
        reader.options().iter().any(
            |entry| matches!(&entry.value, OptionValue::Buffer(option) if option.offset == section.offset),
        )
    };
    let mut data = reader.sections().iter().filter(|section| section.id == SectionId::FLYRECORD);
    reader.problems().is_empty() && data.all(listed)
}

/// A file that is being searched.
struct Salvage<'a> {
    file: Sections<'a>,
    seen: Vec<Seen>,
    notes: Vec<String>,
}

impl Salvage<'_> {
    fn read(mut self, first: u64, first_options: Result<u64, ReadError>) -> (Parsed, Vec<String>) {
        self.find_sections(first);
        let (options, mut problems) = self.options(first_options);
        let (metadata, layout) = self.metadata(&options, &mut problems);
        let mut buffers = self.listed_buffers(&options, layout, &mut problems);
        self.unlisted_buffers(&options, layout, &mut buffers);
        let mut texts = Vec::new();
        for entry in &options {
            if let OptionValue::BufferText { offset, name, .. } = &entry.value {
                texts.push((name.clone(), Body::Section(*offset)));
            }
        }
        missing_data(&buffers, self.file.len, &mut problems);
        let kallsyms = self.section_offsets(&options, SectionId::KALLSYMS).next().map(Body::Section);
        let cpus = cpu_count(&options).filter(|cpus| *cpus <= MAX_CPU).unwrap_or(0);
        let sections = self.sections(&options);
        let header = self.file.header.clone();
        let parsed =
            Parsed { header, layout, metadata, options, buffers, cpus, sections, kallsyms, texts, problems };
        (parsed, self.notes)
    }

    /// Goes from section to section, and where that leads nowhere looks for the next one.
    fn find_sections(&mut self, first: u64) {
        let mut at = first;
        while at < self.file.len && self.seen.len() < MAX_FOUND {
            if let Some(seen) = self.look(at, false) {
                at = seen.end;
                self.seen.push(seen);
                continue;
            }
            let Some(next) = self.search(at + 1) else { break };
            self.notes.push(format!("between bytes {at} and {next} is no section that can be recognised"));
            at = next;
        }
    }

    /// Whether there is a section here. Found by chance, it must look more like one.
    fn look(&self, at: u64, by_chance: bool) -> Option<Seen> {
        let Found { header, body_at, .. } = self.file.find(at, None).ok()?;
        let id = header.id;
        let known = matches!(id.0, 0 | 3 | 15..=25) && header.flags & !SECTION_COMPRESSED == 0;
        let compressed = header.flags & SECTION_COMPRESSED != 0;
        if !known || compressed && self.file.header.codec == Codec::None {
            return None;
        }
        let end = body_at.checked_add(header.size)?;
        let seen = |end| Some(Seen { id, at, compressed, body_at, end });
        if id == SectionId::FLYRECORD || id == SectionId::BUFFER_TEXT {
            let follows = || end == self.file.len || end < self.file.len && self.looks_like_header(end);
            return match () {
                () if header.size > 0 && follows() => seen(end),
                () if by_chance => None,
                // Cut off, or the size was never written.
                () => seen(self.file.len),
            };
        }
        if end > self.file.len || header.size > MAX_SECTION {
            return None;
        }
        let fits = match (id, compressed) {
            // Options end with a link.
            (SectionId::OPTIONS, false) => self.ends_with_link(header.size, end),
            (_, true) => {
                let packed = self.cursor(body_at).u32("").ok()?;
                u64::from(packed) + 8 == header.size
            }
            (_, false) => {
                !by_chance || header.size > 0 && (end == self.file.len || self.looks_like_header(end))
            }
        };
        if fits { seen(end) } else { None }
    }

    /// Whether the bytes here can be a section's header.
    fn looks_like_header(&self, at: u64) -> bool {
        let Ok(Found { header, body_at, .. }) = self.file.find(at, None) else { return false };
        let known = matches!(header.id.0, 0 | 3 | 15..=25) && header.flags & !SECTION_COMPRESSED == 0;
        let end = body_at.saturating_add(header.size);
        // In a run of zeros everything looks like options.
        known
            && match header.id {
                SectionId::OPTIONS => self.ends_with_link(header.size, end),
                SectionId::FLYRECORD => true,
                _ => header.size > 0 && end <= self.file.len,
            }
    }

    /// Whether a section of this size that ends here ends as options do.
    fn ends_with_link(&self, size: u64, end: u64) -> bool {
        size >= 14 && end <= self.file.len && self.number(end - 14, 6) == Some(self.done())
    }

    fn cursor(&self, at: u64) -> Cursor<'_> {
        Cursor::new(self.file.source, self.file.header.endian, at, self.file.len)
    }

    /// Some bytes as they stand in the file.
    fn number(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        self.cursor(at).take("", len).ok()
    }

    /// Number and size of option DONE.
    fn done(&self) -> Vec<u8> {
        let endian = self.file.header.endian;
        [endian.u16(OptionId::DONE.0).as_slice(), &endian.u32(8)].concat()
    }

    /// The next offset at which a section seems to begin.
    fn search(&self, from: u64) -> Option<u64> {
        let endian = self.file.header.endian;
        let mut window = vec![0; WINDOW];
        let mut at = from;
        while at + SECTION_HEADER_LEN <= self.file.len {
            let len = (self.file.len - at).min(WINDOW as u64) as usize;
            self.file.source.read_exact_at(&mut window[..len], at).ok()?;
            for offset in 0..len.saturating_sub(SECTION_HEADER_LEN as usize - 1) {
                let half = |at: usize| {
                    window.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| endian.read_u16(*bytes))
                };
                let id = half(offset).unwrap_or(u16::MAX);
                let possible =
                    matches!(id, 0 | 3 | 15..=25) && half(offset + 2).is_some_and(|flags| flags <= 1);
                // In a run of zeros, sizes are none.
                let sized = window[offset + 8..offset + 16].iter().any(|byte| *byte != 0);
                if possible && sized && self.look(at + offset as u64, true).is_some() {
                    return Some(at + offset as u64);
                }
            }
            at += (len - (SECTION_HEADER_LEN as usize - 1)) as u64;
        }
        None
    }

    /// All options: those that the header leads to, and those of sections that nothing leads to.
    fn options(&mut self, first: Result<u64, ReadError>) -> (Vec<OptionEntry>, Vec<ReadError>) {
        let mut problems = Vec::new();
        let linked = first.and_then(|first| self.file.options(first, &mut problems));
        let mut options = linked.unwrap_or_else(|error| {
            problems.push(error);
            Vec::new()
        });
        let mut budget = self.file.len;
        for seen in self.seen.iter().filter(|seen| seen.id == SectionId::OPTIONS && !seen.compressed) {
            if options.iter().any(|entry| (seen.body_at..seen.end).contains(&entry.offset)) {
                continue;
            }
            let mut found = Vec::new();
            if let Err(error) = self.file.options_section(seen.at, &mut budget, &mut found, &mut problems) {
                problems.push(error);
            }
            if !found.is_empty() {
                self.notes
                    .push(format!("options at byte {} were found though nothing leads to them", seen.at));
            }
            options.append(&mut found);
        }
        (options, problems)
    }

    /// Where a section may be, the most trustworthy offset first.
    fn section_offsets<'s>(
        &'s self,
        options: &'s [OptionEntry],
        id: SectionId,
    ) -> impl Iterator<Item = u64> + 's {
        let listed = options.iter().filter_map(move |entry| match entry.value {
            OptionValue::Section { id: of, offset } if of == id => Some(offset),
            _ => None,
        });
        listed.chain(self.seen.iter().filter(move |seen| seen.id == id).map(|seen| seen.at))
    }

    fn metadata(&mut self, options: &[OptionEntry], problems: &mut Vec<ReadError>) -> (Metadata, PageLayout) {
        type Part = fn(&mut Metadata, &mut Cursor<'_>) -> Result<(), ReadError>;
        let parts: [(SectionId, Part); 5] = [
            (SectionId::HEADER_INFO, Metadata::read_header_info),
            (SectionId::FTRACE_EVENTS, Metadata::read_ftrace_events),
            (SectionId::EVENT_FORMATS, Metadata::read_event_formats),
            (SectionId::PRINTK, Metadata::read_printk),
            (SectionId::CMDLINES, Metadata::read_cmdlines),
        ];
        let mut metadata = Metadata::default();
        for (id, read) in parts {
            let (mut best, mut failed) = (None, None);
            for offset in self.section_offsets(options, id) {
                let mut tried = metadata.clone();
                match self.file.with_body(offset, id, |cursor| read(&mut tried, cursor)) {
                    Ok(()) => {
                        (best, failed) = (Some(tried), None);
                        break;
                    }
                    Err(error) => {
                        // What could be read is better than nothing.
                        best = best.or(Some(tried));
                        failed = Some(error);
                    }
                }
            }
            problems.extend(failed);
            metadata = best.unwrap_or(metadata);
        }
        metadata.index();
        let layout = guessed_layout(self.file.header, &mut metadata, problems, &mut self.notes);
        (metadata, layout)
    }

    /// The buffers that options describe.
    fn listed_buffers(
        &mut self,
        options: &[OptionEntry],
        layout: PageLayout,
        problems: &mut Vec<ReadError>,
    ) -> Vec<BufferInfo> {
        let mut buffers = Vec::new();
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for entry in options {
            let OptionValue::Buffer(option) = &entry.value else { continue };
            let section = self.file.find(option.offset, Some(SectionId::FLYRECORD));
            let compressed = match section {
                Ok(found) => found.header.flags & SECTION_COMPRESSED != 0,
                // The list says where the data are, whatever became of the section's header.
                Err(_) => self.file.header.codec != Codec::None,
            };
            let mut option = option.clone();
            let before = option.cpus.len();
            option.cpus.retain(|extent| {
                let end = extent.offset.saturating_add(extent.size.max(1));
                let free = taken.range(..end).next_back().is_none_or(|(_, last)| *last <= extent.offset);
                let keep =
                    extent.cpu < MAX_CPU && extent.offset < self.file.len && (free || extent.size == 0);
                if keep && extent.size > 0 {
                    taken.insert(extent.offset, end);
                }
                keep
            });
            if option.cpus.len() < before {
                self.notes.push(format!(
                    "{} entries of the CPU list of buffer {:?} lead nowhere",
                    before - option.cpus.len(),
                    option.name
                ));
            }
            match BufferInfo::new(&option, layout, compressed) {
                Ok(mut buffer) => {
                    buffer.cpus.dedup_by_key(|extent| extent.cpu);
                    if buffer.name.is_empty()
                        && buffers.iter().any(|other: &BufferInfo| other.name.is_empty())
                    {
                        buffer.name = format!("saved-{}", buffers.len());
                    }
                    buffers.push(buffer);
                }
                Err(error) => problems.push(error),
            }
        }
        buffers
    }

    /// Data that no option describes.
    fn unlisted_buffers(
        &mut self,
        options: &[OptionEntry],
        layout: PageLayout,
        buffers: &mut Vec<BufferInfo>,
    ) {
        let listed: BTreeSet<u64> = options
            .iter()
            .filter_map(|entry| match &entry.value {
                OptionValue::Buffer(option) => Some(option.offset),
                _ => None,
            })
            .collect();
        let clock = options.iter().find_map(|entry| match &entry.value {
            OptionValue::Fact(FileOption::TraceClock(text)) => text
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'))
                .map(|(name, _)| name.to_owned()),
            _ => None,
        });
        let seen = std::mem::take(&mut self.seen);
        for Seen { at, compressed, body_at, end, .. } in
            seen.iter().filter(|seen| seen.id == SectionId::FLYRECORD && !listed.contains(&seen.at))
        {
            let in_list = |extent: &CpuExtent| (*body_at..*end).contains(&extent.offset);
            if buffers.iter().flat_map(|buffer| &buffer.cpus).any(in_list) {
                continue;
            }
            let cpus = if *compressed {
                self.chunk_runs(*body_at, *end, layout)
            } else {
                page_runs(self.file.source, *body_at, *end, layout)
            };
            if cpus.is_empty() {
                continue;
            }
            let has_top = buffers.iter().any(|buffer| buffer.name.is_empty());
            let name = if has_top { format!("saved-{}", buffers.len()) } else { String::new() };
            let what = if has_top { format!("buffer {name}") } else { "the top buffer".to_owned() };
            self.notes.push(format!(
                "the list of CPUs of the data at byte {at} is lost: they are taken for {what}, and its {} CPUs are numbered in the \
                 order of the file",
                cpus.len()
            ));
            let clock = clock.clone().unwrap_or_default();
            let option = BufferOption { offset: *at, name, clock, page_size: layout.page_size, cpus };
            buffers.extend(BufferInfo::new(&option, layout, *compressed));
        }
        self.seen = seen;
    }

    /// The data of CPUs in chunks, one after the other; trace-cmd lets each begin at a new page.
    fn chunk_runs(&self, start: u64, end: u64, layout: PageLayout) -> Vec<CpuExtent> {
        let mut runs = Vec::new();
        let mut at = start;
        while runs.len() < MAX_CPU as usize {
            let aligned = at.next_multiple_of(layout.page_size.into());
            let run = [at, aligned].into_iter().find_map(|at| Some((at, self.chunk_run(at, end)?)));
            let Some((offset, behind)) = run else { break };
            runs.push(CpuExtent { cpu: runs.len() as u32, offset, size: behind - offset });
            at = behind;
        }
        runs
    }

    /// Where the chunks end that begin here; `None` if there are none.
    fn chunk_run(&self, at: u64, end: u64) -> Option<u64> {
        let codec = self.file.header.codec;
        let mut cursor = Cursor::new(self.file.source, self.file.header.endian, at, end);
        let count = cursor.u32("").ok()?;
        for number in 0..count {
            let sizes = cursor.u32("").and_then(|packed| Ok((packed, cursor.u32("")?)));
            let fits = |&(packed, plain): &(u32, u32)| {
                packed > 0 && u64::from(plain) <= MAX_CHUNK.min(codec.bound(packed.into())) && plain >= 16
            };
            let Some((packed, _)) = sizes.ok().filter(fits) else {
                // What comes after the damage cannot be found.
                return if number > 0 { Some(end) } else { None };
            };
            let begins = self.number(cursor.at(), 4).unwrap_or_default();
            if number == 0 && codec == Codec::Zstd && begins != ZSTD_MAGIC {
                return None;
            }
            if cursor.skip("", packed.into()).is_err() {
                return if number > 0 { Some(end) } else { None };
            }
        }
        (count > 0).then(|| cursor.at())
    }

    /// What is known of sections: those that options lead to, and those that were found.
    fn sections(&self, options: &[OptionEntry]) -> Vec<SectionInfo> {
        let mut sections = self.file.list(self.file.len, self.file.len, options);
        for seen in &self.seen {
            if sections.iter().all(|section| section.offset != seen.at) {
                let size = seen.end - seen.body_at;
                let (id, offset, compressed) = (seen.id, seen.at, seen.compressed);
                sections.push(SectionInfo {
                    id,
                    offset,
                    size,
                    compressed,
                    plain_size: None,
                    description: None,
                });
            }
        }
        sections.sort_by_key(|section| section.offset);
        sections
    }
}
