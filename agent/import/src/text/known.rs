//! Texts of events whose formats are known: the records that they were printed from.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Common;
use ftrace_event::Endian;
use ftrace_event::{
    EventTable, Format, Location, Machine, NoNames, NoSymbols, PointerStyle, PrintFmt, RecordLayout,
    Unprinted, Unprinter,
};

/// Formats of events in a directory, as tracefs has them in `events`: `SYSTEM/EVENT/format`.
#[derive(Clone, Debug)]
pub struct Formats {
    systems: Vec<PathBuf>,
}

impl Formats {
    /// The formats in `dir`, or in `events` below it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn in_directory(dir: &Path) -> std::io::Result<Self> {
        let below = dir.join("events");
        let dir = if below.is_dir() { &below } else { dir };
        let mut systems = Vec::new();
        for entry in fs::read_dir(dir)? {
            systems.push(entry?.path());
        }
        systems.sort();
        Ok(Self { systems })
    }

    /// System and format of each event of that name.
    fn of(&self, system: Option<&str>, name: &str) -> Vec<(String, String)> {
        if name.contains(['/', '\0']) || name.starts_with('.') {
            return Vec::new();
        }
        let mut found = Vec::new();
        for path in &self.systems {
            let of = path.file_name().unwrap_or_default().to_string_lossy();
            if system.is_none_or(|system| system == of)
                && let Ok(text) = fs::read_to_string(path.join(name).join("format"))
            {
                found.push((of.into_owned(), text));
            }
        }
        found
    }
}

/// An event whose format is known.
pub(super) struct KnownFormat {
    pub(super) system: String,
    /// The text of the format.
    pub(super) text: String,
    /// Whether the number in it is that of a kernel.
    pub(super) has_number: bool,
    layout: RecordLayout,
    id: u16,
    table: EventTable,
    unprinter: Unprinter,
}

impl KnownFormat {
    /// The formats of the events of a name: those that are given, and then those that are known here.
    pub(super) fn all(formats: Option<&Formats>, system: Option<&str>, name: &str) -> Vec<Self> {
        let given = formats.map(|formats| formats.of(system, name)).unwrap_or_default();
        let known = super::builtin::of(system, name);
        // The number of one that is known here is as good as any other.
        let given = given.into_iter().filter_map(|(system, text)| Self::new(system, text, true));
        given.chain(known.into_iter().filter_map(|(system, text)| Self::new(system, text, false))).collect()
    }

    fn new(system: String, text: String, has_number: bool) -> Option<Self> {
        let machine = Machine::default();
        let format = Format::parse(&text).ok()?;
        let mut print_fmt = PrintFmt::compile(&format, machine, &NoNames).ok()?;
        // As reports print it.
        print_fmt.set_pointers(PointerStyle::TraceCmd);
        let mut table = EventTable::new(machine);
        table.add(&system, &text, &NoNames).ok()?;
        table.set_pointers(PointerStyle::TraceCmd);
        let (layout, id) = (format.record_layout(), format.id);
        Some(Self { system, text, has_number, layout, id, table, unprinter: Unprinter::new(&print_fmt) })
    }

    /// The record that prints as `text`. Fields that are not printed are 0.
    pub(super) fn record(&mut self, text: &[u8], common: Common) -> Option<Vec<u8>> {
        let endian = Endian::Little;
        let mut record = vec![0; self.layout.fields_end as usize];
        record.get_mut(..2)?.copy_from_slice(&endian.u16(self.id));
        *record.get_mut(2)? = common.flags;
        *record.get_mut(3)? = common.preempt_count;
        record.get_mut(4..8)?.copy_from_slice(&endian.u32(common.pid));
        let values = self.unprinter.unprint(text)?;
        let mut words = Vec::new();
        for value in &values {
            match *value {
                Unprinted::Number { offset, size, value } => {
                    let at = offset as usize;
                    let into = record.get_mut(at..at + usize::from(size))?;
                    into.copy_from_slice(value.to_le_bytes().get(..usize::from(size))?);
                }
                Unprinted::Text { offset, len, text } => {
                    let at = offset as usize;
                    if len.is_some_and(|len| text.len() >= len as usize) {
                        return None;
                    }
                    record.get_mut(at..at + text.len())?.copy_from_slice(text);
                }
                Unprinted::Dynamic { offset, relative, text } => {
                    words.push(offset);
                    dynamic(&mut record, offset, relative, text)?;
                }
            }
        }
        for field in &self.layout.dynamic {
            if !words.contains(&field.offset) {
                dynamic(&mut record, field.offset, field.location == Location::RelLoc, b"")?;
            }
        }
        record.resize(record.len().next_multiple_of(self.layout.align as usize), 0);
        let mut printed = Vec::new();
        self.table.print(&record, &NoSymbols, &mut printed).ok()?;
        (printed == text).then_some(record)
    }
}

/// Appends a text, and writes the word that leads to it.
fn dynamic(record: &mut Vec<u8>, at: u32, relative: bool, text: &[u8]) -> Option<()> {
    let from = u32::try_from(record.len()).ok()?;
    let from = if relative { from.checked_sub(at + 4)? } else { from };
    let len = u32::try_from(text.len() + 1).ok()?;
    if from > u16::MAX.into() || len > u16::MAX.into() {
        return None;
    }
    record.get_mut(at as usize..at as usize + 4)?.copy_from_slice(&(len << 16 | from).to_le_bytes());
    record.extend_from_slice(text);
    record.push(0);
    Some(())
}
