//! Metadata sections: formats, symbols and names that readers can parse.

use std::collections::{BTreeMap, BTreeSet};

use super::super::layout::SectionId;
use super::super::page::PageLayout;
use super::super::reader::ReadError;
use super::super::reader::cursor::{Cursor, lossy};
use super::super::reader::file::FileHeader;
use super::super::reader::metadata::Metadata;
use super::Check;
use super::report::At;
use super::rule::Rule;
use ftrace_event::format::name_and_id;
use ftrace_event::{Array, DynamicField, Field, Format, Location};

/// What records are checked with.
#[derive(Default)]
pub(super) struct Events {
    by_id: BTreeMap<u16, Event>,
    /// The fields that all events start with, and the event that they were taken from.
    common: Option<(Vec<Field>, String)>,
}

/// An event that the file describes.
struct Event {
    name: String,
    shape: Shape,
}

/// What the records of an event are like. The default fits any record, for formats that are not understood.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Least bytes of a record.
    pub(super) min: usize,
    /// Most bytes, of a record of fixed length.
    pub(super) max: Option<usize>,
    pub(super) dynamic: Vec<DynamicField>,
}

impl Events {
    /// The shapes by number.
    pub(super) fn table(&self) -> Vec<Option<&Shape>> {
        let mut table = vec![None; 1 << 16];
        for (id, event) in &self.by_id {
            table[usize::from(*id)] = Some(&event.shape);
        }
        table
    }

    pub(super) fn name(&self, id: u16) -> &str {
        self.by_id.get(&id).map_or("unknown", |event| &event.name)
    }
}

impl Shape {
    fn of(system: &str, format: &Format) -> Self {
        let layout = format.record_layout();
        let last = format.fields.last();
        // Arrays at the end are as long as what was recorded: stacks have fewer or more addresses than the
        // format says.
        let open = last.is_some_and(|field| {
            field.location == Location::Inline && (field.array == Array::Open || field.size == 0)
        });
        let stack = system == "ftrace" && last.is_some_and(|field| field.array != Array::Single);
        let end = match last {
            Some(field) if stack => field.offset,
            _ => layout.fields_end,
        };
        // Whether the kernel counts the padding of the struct's end, and that of the ring, differs from event
        // to event.
        let max =
            (!open && system != "ftrace" && layout.dynamic.is_empty()).then(|| layout.size as usize + 8);
        Self { min: end as usize, max, dynamic: layout.dynamic }
    }
}

/// Checks the bytes of a metadata section, which begin at `at`. Sections that are not known are left alone.
pub(super) fn check(check: &mut Check<'_>, id: SectionId, bytes: &[u8], at: At, header: &FileHeader) {
    let mut cursor = Cursor::new(&bytes, header.endian, 0, bytes.len() as u64);
    let mut part = Part { check, id, at };
    let result = match id {
        SectionId::HEADER_INFO => part.header_info(&mut cursor, header),
        SectionId::FTRACE_EVENTS => part.formats(&mut cursor, "ftrace"),
        SectionId::EVENT_FORMATS => part.systems(&mut cursor),
        SectionId::KALLSYMS => part.sized(&mut cursor, false, is_symbol),
        SectionId::PRINTK => part.sized(&mut cursor, false, is_printk),
        SectionId::CMDLINES => part.sized(&mut cursor, true, is_task),
        _ => return,
    };
    match result {
        Err(error) => {
            let at = at.plus(error.offset().unwrap_or(0));
            part.check.faults.add(Rule::SectionContent, at, || format!("section {id}"), || error.to_string());
        }
        Ok(()) if cursor.left() != 0 => {
            let detail = || format!("{} bytes are behind its content", cursor.left());
            part.fault(Rule::SectionContent, cursor.at(), detail);
        }
        Ok(()) => {}
    }
}

struct Part<'c, 'a> {
    check: &'c mut Check<'a>,
    id: SectionId,
    at: At,
}

impl Part<'_, '_> {
    fn fault(&mut self, rule: Rule, at: u64, detail: impl FnOnce() -> String) {
        let id = self.id;
        self.check.faults.add(rule, self.at.plus(at), || format!("section {id}"), detail);
    }

    fn header_info(&mut self, cursor: &mut Cursor<'_>, header: &FileHeader) -> Result<(), ReadError> {
        let mut metadata = Metadata::default();
        metadata.read_header_info(cursor)?;
        let text = &metadata.header_page;
        let layout = PageLayout::parse(header.endian, text);
        if let Err(error) = layout.and_then(|_| PageLayout::check_characters(text)) {
            self.fault(Rule::HeaderPage, 0, || error.to_string());
        }
        Ok(())
    }

    fn systems(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        for _ in 0..cursor.u32("number of event systems")? {
            let at = cursor.at();
            let name = cursor.c_string("name of an event system")?;
            if name.is_empty() {
                self.fault(Rule::SectionContent, at, || "a system without a name".to_owned());
            }
            self.formats(cursor, &name)?;
        }
        Ok(())
    }

    fn formats(&mut self, cursor: &mut Cursor<'_>, system: &str) -> Result<(), ReadError> {
        for _ in 0..cursor.u32("number of event formats")? {
            let size = cursor.u64("size of an event format")?;
            let at = cursor.at();
            let text = lossy(cursor.take("an event format", size)?);
            self.format(system, &text, at);
        }
        Ok(())
    }

    fn format(&mut self, system: &str, text: &str, at: u64) {
        let Some((name, id)) = name_and_id(text) else {
            let detail = || format!("a format of system {system} has no name and ID");
            return self.fault(Rule::Format, at, detail);
        };
        let name = format!("{system}:{}", name.chars().take(100).collect::<String>());
        let id = match u16::try_from(id) {
            Ok(id) if id != 0 => id,
            _ => return self.fault(Rule::EventId, at, || format!("event {name} has ID {id}")),
        };
        let format = Format::parse(text);
        if let Err(error) = &format {
            self.fault(Rule::Format, at, || format!("event {name}: {error}"));
        }
        if let Ok(Format { common, .. }) = &format {
            match &self.check.events.common {
                None => self.check.events.common = Some((common.clone(), name.clone())),
                Some((first, of)) if first != common => {
                    let detail = format!("event {name} starts with other fields than {of}");
                    self.fault(Rule::CommonFields, at, || detail);
                }
                Some(_) => {}
            }
        }
        let shape = format.map_or_else(|_| Shape::default(), |format| Shape::of(system, &format));
        if let Some(first) = self.check.events.by_id.get(&id) {
            let detail = format!("events {} and {name} both have ID {id}", first.name);
            return self.fault(Rule::EventId, at, || detail);
        }
        self.check.events.by_id.insert(id, Event { name, shape });
    }

    /// A text after its size of 4 or 8 bytes. Of lines that are not as they should be the first is reported.
    fn sized(
        &mut self,
        cursor: &mut Cursor<'_>,
        long: bool,
        fits: fn(&[u8]) -> bool,
    ) -> Result<(), ReadError> {
        let size = if long { cursor.u64("size of a text")? } else { cursor.u32("size of a text")?.into() };
        let start = cursor.at();
        let text = cursor.take("a text", size)?;
        let mut at = start;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let bare = line.strip_suffix(b"\n").unwrap_or(line);
            // A recorder may count a NUL as part of the text.
            if !bare.is_empty() && bare != b"\0" && !fits(bare) {
                let shown: String = String::from_utf8_lossy(bare).chars().take(80).collect();
                self.fault(Rule::Names, at, || format!("the line {shown:?}"));
                break;
            }
            at += line.len() as u64;
        }
        if self.id == SectionId::CMDLINES {
            self.tasks(&text, start);
        }
        Ok(())
    }

    /// Readers search names by pid, so that each has one.
    fn tasks(&mut self, text: &[u8], start: u64) {
        let mut seen = BTreeSet::new();
        let mut at = start;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let pid = line.split(|byte| *byte == b' ').next().unwrap_or_default();
            let pid = std::str::from_utf8(pid).ok().and_then(|pid| pid.trim().parse::<u64>().ok());
            if let Some(pid) = pid
                && !seen.insert(pid)
            {
                return self.fault(Rule::Names, at, || format!("process {pid} has two names"));
            }
            at += line.len() as u64;
        }
    }
}

/// `address type name[<TAB>[module]]`.
fn is_symbol(line: &[u8]) -> bool {
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let address = words.next().unwrap_or_default();
    let kind = words.next().unwrap_or_default();
    let hex = address.len() <= 16 && !address.is_empty() && address.iter().all(u8::is_ascii_hexdigit);
    hex && kind.len() == 1 && words.next().is_some()
}

/// `0xaddress : "format"`.
fn is_printk(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let address = line[..colon].trim_ascii();
    let address = address.strip_prefix(b"0x").unwrap_or(address);
    !address.is_empty() && address.len() <= 16 && address.iter().all(u8::is_ascii_hexdigit)
}

/// `pid name`.
fn is_task(line: &[u8]) -> bool {
    let Some(blank) = line.iter().position(|byte| *byte == b' ') else { return false };
    let (pid, name) = line.split_at(blank);
    !pid.is_empty() && pid.iter().all(u8::is_ascii_digit) && !name.trim_ascii().is_empty()
}
