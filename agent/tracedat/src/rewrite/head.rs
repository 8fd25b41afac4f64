//! What a file has besides trace data.

use super::super::layout::{OptionId, SectionId};
use super::super::ledger::Ledger;
use super::super::option::FileOption;
use super::super::page::PageLayout;
use super::super::reader::{OptionValue, ReadError, Reader, SectionInfo, Source, SystemFormats};
use super::super::section::{Body, Section};
use super::error::RewriteError;
use ftrace_event::endian::Encoder;

/// How the ledger of a part begins.
const PART: &[u8] = b"{\"part\":true,";

/// A section's body, uncompressed.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) id: SectionId,
    pub(super) description: String,
    pub(super) bytes: Vec<u8>,
}

/// The text of a latency tracer.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) buffer: String,
    pub(super) clock: String,
    pub(super) bytes: Vec<u8>,
}

/// Everything that stands before trace data.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) layout: PageLayout,
    /// The header's size of `long` and of pages: those of the recording program, not of the pages.
    pub(super) long_size: u8,
    pub(super) page_size: u32,
    /// The six metadata sections, in the order of their numbers.
    pub(super) sections: Vec<Carried>,
    /// Sections that are not known here, and those of newer recorders.
    pub(super) others: Vec<Carried>,
    pub(super) texts: Vec<Text>,
    /// The options that are facts.
    pub(super) facts: Vec<FileOption>,
    pub(super) cpu_count: u32,
    /// What was left out, in words.
    pub(super) notes: Vec<String>,
}

impl Head {
    /// The head of a file. Damage in it is an error, unless it `may_be_damaged`: then what can be read is
    /// kept, and the rest reported of in the notes.
    pub(super) fn read<S: Source>(reader: &Reader<S>, may_be_damaged: bool) -> Result<Self, RewriteError> {
        if let (Some(first), false) = (reader.problems().first(), may_be_damaged) {
            let problems = reader.problems().len();
            return Err(RewriteError::Damaged { first: first.to_string(), problems });
        }
        let mut head = Self {
            layout: reader.layout(),
            long_size: reader.header().long_size,
            page_size: reader.header().page_size,
            sections: Vec::new(),
            others: Vec::new(),
            texts: Vec::new(),
            facts: Vec::new(),
            cpu_count: reader.cpu_count().max(1),
            notes: Vec::new(),
        };
        for id in SectionId::METADATA {
            head.metadata(reader, id, may_be_damaged)?;
        }
        for section in reader.sections() {
            if section.id.0 > SectionId::CMDLINES.0 && section.id != SectionId::BUFFER_TEXT
                || section.id.0 < SectionId::STRINGS.0
                    && !matches!(section.id, SectionId::OPTIONS | SectionId::FLYRECORD)
            {
                let carried = carry(reader, section);
                head.keep(carried, section.id, may_be_damaged)?
                    .into_iter()
                    .for_each(|it| head.others.push(it));
            }
        }
        head.take_texts(reader, may_be_damaged)?;
        for fact in reader.facts() {
            head.fact(reader, fact);
        }
        Ok(head)
    }

    /// The body of a metadata section.
    pub(super) fn body(&self, id: SectionId) -> &[u8] {
        self.sections.iter().find(|section| section.id == id).map_or(&[], |section| &section.bytes)
    }

    /// Puts another body in place of a metadata section's.
    pub(super) fn set_body(&mut self, id: SectionId, bytes: Vec<u8>) {
        if let Some(section) = self.sections.iter_mut().find(|section| section.id == id) {
            section.bytes = bytes;
        }
    }

    /// Notes that the file has only a part of what its ledger counts.
    pub(super) fn is_part(&mut self) {
        for bytes in self.ledgers() {
            // The other bytes stay what they are, also those of a newer version.
            if bytes.first() == Some(&b'{') && Ledger::parse(bytes).is_some_and(|ledger| !ledger.part) {
                bytes.splice(..1, PART.iter().copied());
            }
        }
    }

    /// Takes that back if `is_whole` says so.
    pub(super) fn is_whole(&mut self, mut is_whole: impl FnMut(&Ledger) -> bool) {
        for bytes in self.ledgers() {
            if bytes.starts_with(PART) && Ledger::parse(bytes).is_some_and(|ledger| is_whole(&ledger)) {
                bytes.splice(..PART.len(), [b'{']);
            }
        }
    }

    fn ledgers(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.facts.iter_mut().filter_map(|fact| match fact {
            FileOption::Unknown { id, bytes } if *id == OptionId::LEDGER => Some(bytes),
            _ => None,
        })
    }

    fn metadata<S: Source>(
        &mut self,
        reader: &Reader<S>,
        id: SectionId,
        may_be_damaged: bool,
    ) -> Result<(), RewriteError> {
        let named = reader.options().iter().find_map(|entry| match entry.value {
            OptionValue::Section { id: of, offset } if of == id => Some(offset),
            _ => None,
        });
        // In a damaged file an option may lead to a section of another kind.
        let of_its_kind = || reader.sections().iter().filter(|section| section.id == id);
        let found = of_its_kind().find(|section| Some(section.offset) == named).or(of_its_kind().next());
        let carried = match found {
            // Bytes that can be read may still be none of this section; what was understood of them is safe.
            _ if may_be_damaged && (id == SectionId::KALLSYMS || !reader.problems().is_empty()) => None,
            Some(section) => self.keep(carry(reader, section), id, may_be_damaged)?,
            None => None,
        };
        if let (SectionId::KALLSYMS, true, Err(error)) = (id, may_be_damaged, reader.kallsyms()) {
            self.notes.push(format!("section {id} is lost: {error}"));
        }
        let understood =
            || Carried { id, description: id.description().to_owned(), bytes: understood(reader, id) };
        self.sections.push(carried.unwrap_or_else(understood));
        Ok(())
    }

    /// What was read, or, if that may be damaged, a note that it was not.
    fn keep<T>(
        &mut self,
        result: Result<T, ReadError>,
        id: SectionId,
        may_be_damaged: bool,
    ) -> Result<Option<T>, RewriteError> {
        match result {
            Ok(carried) => Ok(Some(carried)),
            Err(error) if may_be_damaged => {
                self.notes.push(format!("section {id} is lost: {error}"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn take_texts<S: Source>(
        &mut self,
        reader: &Reader<S>,
        may_be_damaged: bool,
    ) -> Result<(), RewriteError> {
        let mut named: Vec<_> = reader
            .options()
            .iter()
            .filter_map(|entry| match &entry.value {
                OptionValue::BufferText { name, clock, .. } => Some((name.clone(), clock.clone())),
                _ => None,
            })
            .collect();
        if reader.header().version < 7 {
            named.push((String::new(), String::new()));
        }
        for (buffer, clock) in named {
            let text = self.keep(reader.buffer_text(&buffer), SectionId::BUFFER_TEXT, may_be_damaged)?;
            if let Some(bytes) = text.flatten() {
                self.texts.push(Text { buffer, clock, bytes });
            }
        }
        Ok(())
    }

    /// Keeps a fact that a reader can make use of.
    fn fact<S: Source>(&mut self, reader: &Reader<S>, fact: &FileOption) {
        if matches!(fact, FileOption::CpuCount(_)) {
            return;
        }
        match fact.encode(reader.header().endian) {
            Ok(_) => self.facts.push(fact.clone()),
            // Readers of this format do not check; what they would trip over is better left out.
            Err(error) => {
                let name = fact.id().name().unwrap_or("unknown");
                self.notes.push(format!("option {} ({name}) is left out: {error}", fact.id()));
            }
        }
    }

    /// Leaves out what cannot stand in a file of this kind.
    pub(super) fn without_others(&mut self, of: &str) {
        for other in self.others.drain(..) {
            let what = OptionId(other.id.0).name().unwrap_or("not known");
            let (id, bytes) = (other.id.0, other.bytes.len());
            self.notes.push(format!("section {id} ({what}, {bytes} bytes) is left out: {of}"));
        }
    }
}

/// The body of a metadata section as far as the reader understood it: of one that is damaged, or not there.
fn understood<S: Source>(reader: &Reader<S>, id: SectionId) -> Vec<u8> {
    let (metadata, endian) = (reader.metadata(), reader.header().endian);
    let mut out = Encoder::new(endian);
    let ftrace = |system: &&SystemFormats| system.name == "ftrace";
    match id {
        SectionId::HEADER_INFO => {
            for (name, text) in
                [("header_page", &metadata.header_page), ("header_event", &metadata.header_event)]
            {
                out.c_string(name).u64(text.len() as u64).raw(text.as_bytes());
            }
        }
        SectionId::FTRACE_EVENTS => {
            put_formats(&mut out, metadata.systems.iter().find(ftrace).map_or(&[], |system| &system.formats));
        }
        SectionId::EVENT_FORMATS => {
            let others: Vec<_> = metadata.systems.iter().filter(|system| !ftrace(system)).collect();
            out.u32(others.len() as u32);
            for SystemFormats { name, formats } in others {
                // A name that was damaged may have anything in it, but it was ended by a NUL.
                out.c_string(name);
                put_formats(&mut out, formats);
            }
        }
        SectionId::PRINTK => {
            let line = |(address, format): (&u64, &String)| format!("0x{address:x} : \"{format}\"\n");
            let text: String = metadata.printk.iter().map(line).collect();
            out.u32(text.len() as u32).raw(text.as_bytes());
        }
        SectionId::CMDLINES => {
            if let Body::Plain(bytes) = Section::cmdlines(endian, &metadata.cmdlines).body {
                out.raw(&bytes);
            }
        }
        _ => {
            let symbols = reader.kallsyms().unwrap_or_default();
            out.u32(symbols.len() as u32).raw(&symbols);
        }
    }
    out.into_bytes()
}

fn put_formats(out: &mut Encoder, formats: &[String]) {
    out.u32(formats.len() as u32);
    for format in formats {
        out.u64(format.len() as u64).raw(format.as_bytes());
    }
}

fn carry<S: Source>(reader: &Reader<S>, section: &SectionInfo) -> Result<Carried, ReadError> {
    let bytes = reader.section_bytes(section)?;
    let description = section.description.clone().filter(|text| !text.is_empty());
    let description = description.unwrap_or_else(|| section.id.description().to_owned());
    Ok(Carried { id: section.id, description, bytes })
}
