//! Metadata: what the file says of pages, events and tasks.
//!
//! The bodies of the sections are the same in versions 6 and 7; see [`Section`](super::super::Section) for
//! their layouts.

use std::collections::BTreeMap;

use super::cursor::Cursor;
use super::error::ReadError;
use ftrace_event::Cmdlines;
use ftrace_event::format::name_and_id;

/// What a reader must know to understand the records.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The text of tracefs' `events/header_page`.
    pub header_page: String,
    /// The text of tracefs' `events/header_event`.
    pub header_event: String,
    /// The formats of all events, system `ftrace` first.
    pub systems: Vec<SystemFormats>,
    /// Names of tasks.
    pub cmdlines: Cmdlines,
    /// Format strings of `trace_printk` by address.
    pub printk: BTreeMap<u64, String>,
    /// Where the format of an event is: the index of its system, and its own in that.
    events: BTreeMap<u16, (usize, usize)>,
}

/// The formats of one system's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemFormats {
    /// Name of the system: `sched`.
    pub name: String,
    /// The texts of its events, as tracefs has them.
    pub formats: Vec<String>,
}

/// An event that the file describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventText<'a> {
    /// Its number, which its records begin with.
    pub id: u16,
    /// Its system.
    pub system: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its format.
    pub format: &'a str,
}

impl Metadata {
    /// The event with this number.
    pub fn event(&self, id: u16) -> Option<EventText<'_>> {
        let &(system, format_index) = self.events.get(&id)?;
        let system = self.systems.get(system)?;
        let format = system.formats.get(format_index)?;
        let (name, _) = name_and_id(format)?;
        Some(EventText { id, system: &system.name, name, format })
    }

    /// All events, by number.
    pub fn events(&self) -> impl Iterator<Item = EventText<'_>> {
        self.events.keys().filter_map(|id| self.event(*id))
    }

    /// The number of an event.
    pub fn event_id(&self, system: &str, name: &str) -> Option<u16> {
        self.events().find(|event| event.system == system && event.name == name).map(|event| event.id)
    }

    /// Makes the index by number. Of two events with one number the first is kept.
    pub(crate) fn index(&mut self) {
        self.events.clear();
        for (system, SystemFormats { formats, .. }) in self.systems.iter().enumerate() {
            for (format_index, format) in formats.iter().enumerate() {
                let id = name_and_id(format).and_then(|(_, id)| u16::try_from(id).ok());
                if let Some(id) = id {
                    self.events.entry(id).or_insert((system, format_index));
                }
            }
        }
    }

    /// `"header_page\0"`, u64 size, text, `"header_event\0"`, u64 size, text.
    pub(crate) fn read_header_info(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        self.header_page = named_text(cursor, "header_page")?;
        self.header_event = named_text(cursor, "header_event")?;
        Ok(())
    }

    /// u32 count; each u64 size, text.
    pub(crate) fn read_ftrace_events(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        let mut system = SystemFormats { name: "ftrace".to_owned(), formats: Vec::new() };
        let result = read_formats(cursor, &mut system.formats);
        // What could be read is of use even if the rest could not.
        self.systems.insert(0, system);
        result
    }

    /// u32 systems; each name NUL, u32 count; each u64 size, text.
    pub(crate) fn read_event_formats(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        for _ in 0..cursor.u32("number of event systems")? {
            let name = cursor.c_string("name of an event system")?;
            let mut system = SystemFormats { name, formats: Vec::new() };
            let result = read_formats(cursor, &mut system.formats);
            self.systems.push(system);
            result?;
        }
        Ok(())
    }

    /// u32 size, lines `0xaddress : "format"`.
    pub(crate) fn read_printk(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        let size = cursor.u32("size of the printk formats")?;
        let text = cursor.text("printk formats", size.into())?;
        for line in text.lines() {
            let Some((address, format)) = line.split_once(':') else { continue };
            let address = address.trim();
            let address = address.strip_prefix("0x").unwrap_or(address);
            if let Ok(address) = u64::from_str_radix(address, 16) {
                let format = format.trim();
                let format = format.strip_prefix('"').unwrap_or(format);
                let format = format.strip_suffix('"').unwrap_or(format);
                self.printk.insert(address, format.to_owned());
            }
        }
        Ok(())
    }

    /// u64 size, lines `pid name`.
    pub(crate) fn read_cmdlines(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        let size = cursor.u64("size of the task names")?;
        let text = cursor.take("task names", size)?;
        for line in text.split(|byte| *byte == b'\n') {
            let mut parts = line.splitn(2, |byte| *byte == b' ');
            let pid = parts.next().and_then(|pid| std::str::from_utf8(pid).ok()?.trim().parse().ok());
            if let (Some(pid), Some(name)) = (pid, parts.next()) {
                self.cmdlines.insert(pid, name);
            }
        }
        Ok(())
    }
}

fn named_text(cursor: &mut Cursor<'_>, name: &'static str) -> Result<String, ReadError> {
    let offset = cursor.at();
    let found = cursor.c_string(name)?;
    if found != name {
        let found = format!("{:?}", found.chars().take(40).collect::<String>());
        return Err(ReadError::Invalid { what: "section 16 (page layout)", offset, expected: name, found });
    }
    let size = cursor.u64(name)?;
    cursor.text(name, size)
}

fn read_formats(cursor: &mut Cursor<'_>, formats: &mut Vec<String>) -> Result<(), ReadError> {
    for _ in 0..cursor.u32("number of event formats")? {
        let size = cursor.u64("size of an event format")?;
        formats.push(cursor.text("an event format", size)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::endian::Endian;

    fn cursor<'a>(bytes: &'a &'a [u8]) -> Cursor<'a> {
        Cursor::new(bytes, Endian::Little, 0, bytes.len() as u64)
    }

    #[test]
    fn printk_and_cmdlines() {
        let mut metadata = Metadata::default();
        let text = b"0xff10 : \"hello %d\\n\"\nnonsense\n0x20 : \"a : b\"\n";
        let bytes = [&(text.len() as u32).to_le_bytes(), text.as_slice()].concat();
        metadata.read_printk(&mut cursor(&bytes.as_slice())).unwrap();
        let expected = [(0x20, "a : b".to_owned()), (0xff10, "hello %d\\n".to_owned())];
        assert_eq!(metadata.printk, BTreeMap::from(expected));
        let text = b"1 init\n2\n 3 kthread d\nx y\n4 two words\n";
        let bytes = [&(text.len() as u64).to_le_bytes(), text.as_slice()].concat();
        metadata.read_cmdlines(&mut cursor(&bytes.as_slice())).unwrap();
        let expected: Cmdlines = [(1, "init"), (4, "two words")].into_iter().collect();
        assert_eq!(metadata.cmdlines, expected);
    }

    #[test]
    fn events_are_found_by_number_and_name() {
        let format = |name: &str, id: u32| format!("name: {name}\nID: {id}\nformat:\n");
        let system = |name: &str, formats| SystemFormats { name: name.into(), formats };
        let mut metadata = Metadata {
            systems: vec![
                system("ftrace", vec![format("print", 5)]),
                system("a", vec![format("x", 7), format("y", 8), format("wide", 70000), format("again", 5)]),
            ],
            ..Metadata::default()
        };
        metadata.index();
        assert_eq!(metadata.event_id("a", "y"), Some(8));
        assert_eq!(metadata.event(5).map(|event| event.name), Some("print"));
        assert_eq!(metadata.events().map(|event| event.id).collect::<Vec<_>>(), [5, 7, 8]);
        assert_eq!(metadata.event(70), None);
    }

    #[test]
    fn counts_are_not_believed() {
        let mut metadata = Metadata::default();
        let bytes = b"\xff\xff\xff\xff\x03\0\0\0\0\0\0\0abc\xff\xff\xff\xff\xff\xff\xff\xff";
        assert!(metadata.read_ftrace_events(&mut cursor(&bytes.as_slice())).is_err());
        assert_eq!(metadata.systems[0].formats, ["abc"]);
        assert!(metadata.read_event_formats(&mut cursor(&b"\xff\xff\xff\xff".as_slice())).is_err());
        assert!(metadata.read_cmdlines(&mut cursor(&[0xff; 20].as_slice())).is_err());
    }
}
