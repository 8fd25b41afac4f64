//! The structure of version 7: the chain of options, the sections, and whether they fill the file.

use std::collections::{BTreeMap, BTreeSet};

use super::super::compress::{Codec, Decompressor};
use super::super::layout::{OptionId, SECTION_COMPRESSED, SECTION_HEADER_LEN, SectionId};
use super::super::reader::cursor::Cursor;
use super::super::reader::file::{FileHeader, MAX_SECTION};
use super::super::reader::option::OptionValue;
use super::super::reader::v7::{Found, Sections};
use super::options::RawOption;
use super::report::At;
use super::rule::Rule;
use super::{Check, metadata};

/// Most sections that are checked. Recorders write a dozen.
const MAX_SECTIONS: usize = 4096;

/// No description, as a section header has it.
const NO_DESCRIPTION: u32 = u32::MAX;

/// What is known of a file's structure.
pub(super) struct Structure {
    pub(super) options: Vec<RawOption>,
    /// Where the bodies of the sections are, by the offsets of their headers.
    pub(super) bodies: BTreeMap<u64, Body>,
}

/// Where a section's bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) id: SectionId,
    pub(super) compressed: bool,
    pub(super) start: u64,
    /// Not past the end of the file.
    pub(super) end: u64,
}

/// Checks the structure. `cursor` is after the header's texts.
pub(super) fn structure(check: &mut Check<'_>, header: &FileHeader, mut cursor: Cursor<'_>) -> Structure {
    let link_at = cursor.at();
    let first = match cursor.u64("the offset of the first options") {
        Ok(first) => first,
        Err(error) => {
            check.header_fault(&error);
            return Structure { options: Vec::new(), bodies: BTreeMap::new() };
        }
    };
    let sections = Sections { source: check.source, len: check.len, header };
    let mut walk = Walk { check, sections, first_section: cursor.at(), offsets: BTreeSet::new() };
    let options = walk.chain(link_at, first);
    walk.targets(&options);
    let bodies = walk.sections(&options);
    Structure { options, bodies }
}

struct Walk<'c, 'a, 's> {
    check: &'c mut Check<'a>,
    sections: Sections<'s>,
    first_section: u64,
    /// The sections that something leads to.
    offsets: BTreeSet<u64>,
}

impl Walk<'_, '_, '_> {
    /// Follows the options from section to section.
    fn chain(&mut self, mut link_at: u64, first: u64) -> Vec<RawOption> {
        let mut options = Vec::new();
        let mut seen = BTreeSet::new();
        // Sections do not overlap, so that all options together are no longer than the file.
        let mut budget = self.check.len;
        let mut next = first;
        loop {
            let location = || "the link to the next options".to_owned();
            if next == 0 && !seen.is_empty() {
                return options;
            }
            if !seen.insert(next) {
                let detail = || format!("it leads back to {next}");
                self.check.faults.add(Rule::Link, At::plain(link_at), location, detail);
                return options;
            }
            let found = match self.sections.find(next, Some(SectionId::OPTIONS)) {
                Ok(found) if next >= self.first_section => found,
                Ok(_) => {
                    let detail = || format!("it leads into the file header, to {next}");
                    self.check.faults.add(Rule::Link, At::plain(link_at), location, detail);
                    return options;
                }
                Err(error) => {
                    let detail = || format!("it leads to {next}: {error}");
                    self.check.faults.add(Rule::Link, At::plain(link_at), location, detail);
                    return options;
                }
            };
            self.offsets.insert(next);
            let Some((bytes, at)) = self.body(next, &found) else { return options };
            let Some(left) = budget.checked_sub(bytes.len() as u64) else { return options };
            budget = left;
            match self.entries(&bytes, at, &mut options) {
                Some((link, value_at)) => (next, link_at) = (link, value_at.offset),
                None => return options,
            }
        }
    }

    /// The options of one section. Returns the link to the next section and where it stands.
    fn entries(&mut self, bytes: &[u8], at: At, options: &mut Vec<RawOption>) -> Option<(u64, At)> {
        let header = self.sections.header;
        let mut cursor = Cursor::new(&bytes, header.endian, 0, bytes.len() as u64);
        loop {
            let start = at.plus(cursor.at());
            let head = cursor.u16("").and_then(|id| Ok((OptionId(id), u64::from(cursor.u32("")?))));
            let Ok((id, size)) = head else {
                let detail = || "the section ends without an option DONE".to_owned();
                self.check.faults.add(Rule::OptionEnd, start, || "options".to_owned(), detail);
                return None;
            };
            let (value_at, left) = (at.plus(cursor.at()), cursor.left());
            let Ok(value) = cursor.take("", size) else {
                let detail = || format!("{size} bytes, but the section has {left} more");
                self.check.faults.add(Rule::OptionEnd, value_at, || super::options::name(id), detail);
                return None;
            };
            self.check.checked.options += 1;
            if id != OptionId::DONE {
                options.push(RawOption::new(id, value_at, value, header.endian, header.version));
                continue;
            }
            let Ok(link) = <[u8; 8]>::try_from(value.as_slice()) else {
                let detail = || format!("{size} bytes instead of 8");
                self.check.faults.add(Rule::OptionEnd, value_at, || super::options::name(id), detail);
                return None;
            };
            if cursor.left() != 0 {
                let detail = || format!("{} bytes are behind the last option", cursor.left());
                self.check.faults.add(Rule::OptionEnd, at.plus(cursor.at()), || "options".to_owned(), detail);
            }
            return Some((header.endian.read_u64(link), value_at));
        }
    }

    /// Whether options lead to sections of their kind.
    fn targets(&mut self, options: &[RawOption]) {
        for option in options {
            for value in &option.values {
                let (rule, wanted, offset) = match value {
                    OptionValue::Section { id, offset } => (Rule::SectionHeader, *id, *offset),
                    OptionValue::Buffer(buffer) => (Rule::BufferOption, SectionId::FLYRECORD, buffer.offset),
                    OptionValue::BufferText { offset, .. } => {
                        (Rule::BufferOption, SectionId::BUFFER_TEXT, *offset)
                    }
                    OptionValue::Fact(_) | OptionValue::Checksums(_) => continue,
                };
                match self.sections.find(offset, Some(wanted)) {
                    Ok(_) if offset >= self.first_section => {
                        self.offsets.insert(offset);
                    }
                    Ok(_) => {
                        let detail = || format!("it leads into the file header, to {offset}");
                        self.check.faults.add(rule, option.at, || option.name(), detail);
                    }
                    Err(error) => {
                        let detail = || format!("it leads to {offset}: {error}");
                        self.check.faults.add(rule, option.at, || option.name(), detail);
                    }
                }
            }
        }
    }

    /// Goes from section to section through the file, and checks each.
    fn sections(&mut self, options: &[RawOption]) -> BTreeMap<u64, Body> {
        let mut bodies = BTreeMap::new();
        let (mut strings, mut described) = (Vec::new(), Vec::new());
        let mut at = self.first_section;
        while at < self.check.len && bodies.len() < MAX_SECTIONS {
            let known = self.offsets.contains(&at);
            let found = self.sections.find(at, None).ok();
            let Some(found) = found.filter(|found| known || plausible(found, self.check.len)) else {
                // Something leads to sections farther on, or nothing follows.
                let next = self.offsets.range(at + 1..).next().copied().unwrap_or(self.check.len);
                let detail = || format!("{} bytes", next - at);
                self.check.faults.add(Rule::SectionGap, At::plain(at), || "between sections".into(), detail);
                at = next;
                continue;
            };
            self.check.checked.sections += 1;
            let Found { header, body_at, body_end } = found;
            let location = || format!("header of section {}", header.id);
            if body_at.checked_add(header.size).is_none_or(|end| end > self.check.len) {
                let left = self.check.len - body_at.min(self.check.len);
                let detail = || format!("it has {} bytes, and the file {left} more", header.size);
                self.check.faults.add(Rule::SectionEnd, At::plain(at), location, detail);
            }
            if header.flags & !SECTION_COMPRESSED != 0 {
                let detail = || format!("its flags are {:#x}", header.flags);
                self.check.faults.add(Rule::SectionHeader, At::plain(at), location, detail);
            }
            described.push((at, header.id, header.description));
            let compressed = header.flags & SECTION_COMPRESSED != 0;
            bodies.insert(at, Body { id: header.id, compressed, start: body_at, end: body_end });
            self.content(at, &found, &mut strings);
            let end = body_end.max(at + SECTION_HEADER_LEN);
            let inside = self.offsets.range(at + 1..end).next().copied();
            if let Some(next) = inside {
                let detail = || format!("it ends at {end}, and another one begins at {next}");
                self.check.faults.add(Rule::SectionOverlap, At::plain(at), location, detail);
            }
            at = inside.unwrap_or(end);
        }
        self.descriptions(&strings, &described);
        for id in SectionId::METADATA {
            if !options.iter().any(|option| option.id.0 == id.0) {
                let detail = || "no option leads to one".to_owned();
                self.check.faults.add(Rule::SectionMissing, At::plain(0), || format!("section {id}"), detail);
            }
        }
        bodies
    }

    /// A section's bytes, uncompressed, and where they are.
    fn body(&mut self, offset: u64, found: &Found) -> Option<(Vec<u8>, At)> {
        let Found { header, body_at, body_end } = *found;
        let location = || format!("section {}", header.id);
        let at = At::plain(body_at);
        let mut cursor = Cursor::new(self.check.source, self.sections.header.endian, body_at, body_end);
        if cursor.left() > MAX_SECTION {
            let detail = || format!("{} bytes are more than any real one has", cursor.left());
            self.check.faults.add(Rule::SectionContent, At::plain(offset), location, detail);
            return None;
        }
        if header.flags & SECTION_COMPRESSED == 0 {
            return match cursor.take("a section", cursor.left()) {
                Ok(bytes) => Some((bytes, at)),
                Err(error) => {
                    self.check.unreadable(Rule::SectionEnd, at, location, &error);
                    None
                }
            };
        }
        let sizes = cursor.u32("").and_then(|packed| Ok((u64::from(packed), cursor.u32("")?)));
        let Ok((packed, plain)) = sizes else {
            let detail = || "it has no room for the sizes of compressed bytes".to_owned();
            self.check.faults.add(Rule::Block, at, location, detail);
            return None;
        };
        if packed != cursor.left() {
            let detail = || format!("{packed} compressed bytes in a section of {}", cursor.left() + 8);
            self.check.faults.add(Rule::Block, at, location, detail);
        }
        let inside = At { offset: cursor.at(), inside: Some(0) };
        let mut bytes = Vec::new();
        let result = if u64::from(plain) > MAX_SECTION {
            Err(format!("{plain} bytes uncompressed are more than any real one has"))
        } else {
            cursor.take("compressed bytes", packed.min(cursor.left())).map_err(|error| error.to_string())
        };
        let result = result.and_then(|packed| {
            let mut decompressor = Decompressor::new(self.sections.header.codec);
            let result = decompressor.decompress(&packed, plain as usize, &mut bytes);
            result.map_err(|error| error.to_string())
        });
        match result {
            Ok(()) => Some((bytes, inside)),
            Err(error) => {
                self.check.faults.add(Rule::Decompress, At::plain(inside.offset), location, || error);
                None
            }
        }
    }

    /// Checks what is in a section, other than options and trace data.
    fn content(&mut self, offset: u64, found: &Found, strings: &mut Vec<u8>) {
        let id = found.header.id;
        let header = self.sections.header;
        match id {
            // Read when the options were followed; others do not belong to the file.
            SectionId::OPTIONS | SectionId::FLYRECORD => {}
            SectionId::BUFFER_TEXT => {
                if let Err(error) = self.sections.text(offset) {
                    let at = At::plain(found.body_at);
                    self.check.unreadable(Rule::Chunk, at, || format!("section {id}"), &error);
                }
            }
            SectionId(23 | 25) if header.codec == Codec::None => {
                let detail = || "sections of this kind can be in compressed files only".to_owned();
                let location = || format!("section {id}");
                self.check.faults.add(Rule::SectionForeign, At::plain(offset), location, detail);
            }
            _ => {
                let Some((bytes, at)) = self.body(offset, found) else { return };
                if id == SectionId::STRINGS {
                    strings.extend_from_slice(&bytes);
                } else {
                    metadata::check(self.check, id, &bytes, at, header);
                }
            }
        }
    }

    /// Descriptions are texts of the strings.
    fn descriptions(&mut self, strings: &[u8], described: &[(u64, SectionId, u32)]) {
        if strings.is_empty() {
            // Files written over a network have none for their metadata.
            return;
        }
        for (offset, id, at) in described.iter().filter(|(_, _, at)| *at != NO_DESCRIPTION) {
            let at = *at as usize;
            let starts = at == 0 || strings.get(at - 1) == Some(&0);
            if !(starts && strings.get(at..).is_some_and(|text| text.contains(&0))) {
                let detail = || format!("no text begins at byte {at} of the strings");
                let location = || format!("header of section {id}");
                self.check.faults.add(Rule::Description, At::plain(offset + 4), location, detail);
            }
        }
    }
}

/// Whether bytes that nothing leads to can be a section. Options always have something that leads to them,
/// and zeros would be some.
fn plausible(found: &Found, len: u64) -> bool {
    let Found { header, body_at, .. } = found;
    let known = header.id.description() != SectionId(u16::MAX).description();
    let inside = body_at.checked_add(header.size).is_some_and(|end| end <= len);
    header.id != SectionId::OPTIONS
        && header.flags & !SECTION_COMPRESSED == 0
        && (known || header.id.0 <= 64 && inside)
}
