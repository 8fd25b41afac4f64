//! Opening what is left of a file of version 6, where each part begins after the one before and only sizes
//! say where.
//!
//! From the front it is read as far as possible. The trace data are found by their names. Before them are
//! three texts, each preceded by its size, and a size that matches its distance is no coincidence; so these
//! are found backwards. Formats in between are found one by one: each begins with its size and `name: `.

use super::super::layout::{SectionId, V6_FLYRECORD, V6_LATENCY, V6_OPTIONS};
use super::super::page::PageLayout;
use super::cursor::Cursor;
use super::error::ReadError;
use super::file::{Body, BufferInfo, FileHeader, Parsed, SectionInfo};
use super::metadata::{Metadata, SystemFormats};
use super::option::BufferOption;
use super::salvage::{WINDOW, guessed_layout, page_runs};
use super::source::Source;
use super::v6::{Tail, part};
use ftrace_event::format::name_and_id;

/// The longest text that is looked for backwards. Kernel symbols are 5 to 20 MB.
const MAX_TEXT: u64 = 64 << 20;
/// The longest format, and the longest name of a system. Real ones have 10 KB and 30 bytes.
const MAX_FORMAT: u64 = 256 << 10;
const MAX_NAME: usize = 256;
/// How many offsets at which options or data seem to begin are tried.
const MAX_TRIES: usize = 64;
/// What formats begin with.
const NAME: &[u8] = b"name: ";

/// Reads what is left of a file that cannot be opened for `error`, after its header, at which `cursor` is. In
/// words, it returns also what had to be guessed.
pub(super) fn salvage(
    source: &dyn Source,
    len: u64,
    header: FileHeader,
    mut cursor: Cursor<'_>,
    error: ReadError,
) -> (Parsed, Vec<String>) {
    let (mut notes, mut problems) = (Vec::new(), vec![error]);
    let file = Damaged { source, len, header: &header };
    let start = cursor.at();
    let mut metadata = Metadata::default();
    let front = metadata
        .read_header_info(&mut cursor)
        .and_then(|()| metadata.read_ftrace_events(&mut cursor))
        .and_then(|()| metadata.read_event_formats(&mut cursor));
    let formats_end = front.ok().map(|()| cursor.at());
    let layout = guessed_layout(&header, &mut metadata, &mut problems, &mut notes);
    let (tail, tail_at) = file.tail(layout, formats_end.unwrap_or(start), &mut problems, &mut notes);

    let mut sections = Vec::new();
    let behind = file.texts(&mut metadata, formats_end.unwrap_or(start), tail_at, &mut sections);
    // A list that ends where nothing begins was not read right either.
    if formats_end != Some(behind.start) {
        let count =
            |systems: &[SystemFormats]| systems.iter().map(|system| system.formats.len()).sum::<usize>();
        let (before, systems) = (count(&metadata.systems), file.formats(start, behind.start));
        let found = count(&systems);
        let failed = formats_end.is_none();
        if found > before || failed && found == before {
            metadata.systems = systems;
        }
        if found > before || failed {
            let found = found.max(before);
            notes.push(format!("the list of formats is damaged: {found} formats can be read"));
        }
    }
    metadata.index();
    sections.extend(tail.sections);
    problems.extend(tail.problems);
    let Tail { cpus, options, buffers, texts, .. } = tail;
    let kallsyms = behind.kallsyms;
    let parsed =
        Parsed { header, layout, metadata, options, buffers, cpus, sections, kallsyms, texts, problems };
    (parsed, notes)
}

/// A file that is being searched.
struct Damaged<'a> {
    source: &'a dyn Source,
    len: u64,
    header: &'a FileHeader,
}

/// What was found of the texts after the formats.
struct Texts {
    /// Where the first of them begins.
    start: u64,
    kallsyms: Option<Body>,
}

impl Damaged<'_> {
    fn cursor(&self, at: u64, end: u64) -> Cursor<'_> {
        Cursor::new(self.source, self.header.endian, at, end)
    }

    /// Options and trace data, the first that can be read after `from`, and where they begin: after the
    /// number of CPUs.
    fn tail(
        &self,
        layout: PageLayout,
        from: u64,
        problems: &mut Vec<ReadError>,
        notes: &mut Vec<String>,
    ) -> (Tail, u64) {
        let mut failed = None;
        for names in [[V6_OPTIONS].as_slice(), &[V6_FLYRECORD, V6_LATENCY]] {
            let mut at = from;
            for _ in 0..MAX_TRIES {
                let Some(found) = self.search(names, at) else { break };
                let cpus = self.cursor(found.saturating_sub(4), self.len).u32("the number of CPUs");
                let tail =
                    cpus.and_then(|cpus| Tail::read(self.source, self.len, self.header, layout, cpus, found));
                match tail {
                    Ok(tail) => return (tail, found),
                    Err(error) => failed = failed.or(Some(error)),
                }
                at = found + 1;
            }
        }
        problems.extend(failed);
        let cpus = page_runs(self.source, from, self.len, layout);
        let at = cpus.first().map_or(self.len, |extent| extent.offset);
        notes.push(format!(
            "the list of CPUs is lost: data of {} CPUs were found by their pages, and are numbered in the order of the file",
            cpus.len()
        ));
        let mut tail = Tail { cpus: cpus.len() as u32, ..Tail::default() };
        let option =
            BufferOption { offset: at, page_size: layout.page_size, cpus, ..BufferOption::default() };
        tail.buffers.extend(BufferInfo::new(&option, layout, false));
        (tail, at)
    }

    /// Where one of these stands, at `from` or after it.
    fn search(&self, names: &[[u8; 10]], from: u64) -> Option<u64> {
        let mut window = vec![0; WINDOW];
        let mut at = from;
        while at + 10 <= self.len {
            let len = (self.len - at).min(WINDOW as u64) as usize;
            self.source.read_exact_at(&mut window[..len], at).ok()?;
            let offset = window[..len].windows(10).position(|bytes| names.iter().any(|name| bytes == name));
            if let Some(offset) = offset {
                return Some(at + offset as u64);
            }
            at += (len - 9) as u64;
        }
        None
    }

    /// Task names, printk formats and kernel symbols, which end where options or data begin at `tail`, and
    /// begin at `from` or after it.
    fn texts(&self, metadata: &mut Metadata, from: u64, tail: u64, sections: &mut Vec<SectionInfo>) -> Texts {
        // The number of CPUs is before the options.
        let mut found = Texts { start: tail.saturating_sub(4), kallsyms: None };
        for (id, width) in [(SectionId::CMDLINES, 8), (SectionId::PRINTK, 4), (SectionId::KALLSYMS, 4)] {
            let end = found.start;
            let Some(start) = self.text_before(from, end, width) else { break };
            let mut cursor = self.cursor(start, end);
            // What cannot be read of a text is lost; its extent is known nevertheless.
            let _ = match id {
                SectionId::CMDLINES => metadata.read_cmdlines(&mut cursor),
                SectionId::PRINTK => metadata.read_printk(&mut cursor),
                _ => {
                    let at = start + width;
                    found.kallsyms = Some(Body::Text { at, len: end - at });
                    Ok(())
                }
            };
            sections.push(part(id, start, end));
            found.start = start;
        }
        found
    }

    /// Where the size, of `width` bytes, of a text stands that ends at `end`. Texts have no bytes that could
    /// be a size of less than [`MAX_TEXT`].
    fn text_before(&self, from: u64, end: u64, width: u64) -> Option<u64> {
        let first = from.max(end.saturating_sub(MAX_TEXT));
        let mut behind = end.checked_sub(width)?;
        while behind >= first {
            // Windows overlap by the width of a size.
            let start = behind.saturating_sub(WINDOW as u64).max(first);
            let mut window = vec![0; (behind + width - start) as usize];
            self.source.read_exact_at(&mut window, start).ok()?;
            for offset in (0..=(behind - start) as usize).rev() {
                let at = start + offset as u64;
                let bytes = &window[offset..];
                let size = match width {
                    4 => bytes.first_chunk().map(|bytes| u64::from(self.header.endian.read_u32(*bytes))),
                    _ => bytes.first_chunk().map(|bytes| self.header.endian.read_u64(*bytes)),
                };
                if size == Some(end - width - at) {
                    return Some(at);
                }
            }
            if start == first {
                return None;
            }
            behind = start - 1;
        }
        None
    }

    /// Every format between `start` and `end`, by system. The first system is `ftrace`.
    fn formats(&self, start: u64, end: u64) -> Vec<SystemFormats> {
        let mut systems = vec![SystemFormats { name: "ftrace".to_owned(), formats: Vec::new() }];
        let mut window = vec![0; WINDOW];
        let mut at = start;
        // What is read in vain, so that no file makes this take for ever.
        let mut budget = self.len;
        // Behind the last format; the next one's size follows, or another system's name.
        let mut last = None;
        while at + 14 <= end {
            let len = (end - at).min(WINDOW as u64) as usize;
            if self.source.read_exact_at(&mut window[..len], at).is_err() {
                break;
            }
            let names = window[..len].windows(NAME.len()).enumerate();
            let found = names.filter(|(_, bytes)| *bytes == NAME).find_map(|(offset, _)| {
                let text_at = at + offset as u64;
                Some((text_at, self.format(text_at, start, end, &mut budget)?))
            });
            let Some((text_at, (text, size))) = found else {
                if at + len as u64 == end {
                    break;
                }
                at += (len - NAME.len() + 1) as u64;
                continue;
            };
            if last != Some(text_at - 8)
                && let Some(name) = self.system_before(text_at - 8, start)
            {
                systems.push(SystemFormats { name, formats: Vec::new() });
            }
            at = text_at + size;
            last = Some(at);
            if let Some(system) = systems.last_mut() {
                system.formats.push(text);
            }
        }
        systems
    }

    /// The format that begins here, with its size before it; and the size.
    fn format(&self, text_at: u64, start: u64, end: u64, budget: &mut u64) -> Option<(String, u64)> {
        let size_at = text_at.checked_sub(8).filter(|at| *at >= start)?;
        let mut cursor = self.cursor(size_at, end);
        let size = cursor.u64("").ok().filter(|size| *size <= MAX_FORMAT.min(*budget))?;
        let text = cursor.text("", size).ok().filter(|text| name_and_id(text).is_some());
        if text.is_none() {
            *budget -= size;
        }
        Some((text?, size))
    }

    /// The name of the system whose first format's size is at `at`: name NUL, u32 count.
    fn system_before(&self, at: u64, start: u64) -> Option<String> {
        let end = at.checked_sub(5)?;
        let from = start.max(end.saturating_sub(MAX_NAME as u64));
        let bytes = self.cursor(from, self.len).take("", end.checked_sub(from)? + 1).ok()?;
        let (nul, name) = bytes.split_last()?;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let len = name.iter().rev().take_while(|byte| is_name(byte)).count();
        let name = name.get(name.len() - len..)?;
        (*nul == 0 && !name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }
}
