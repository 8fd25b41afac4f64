//! The bytes of records, by the formats of a real kernel.

use ftrace_event::Format;

/// What Linux 6.18 on x86-64 has in `events/SYSTEM/EVENT/format`, each after a line `system: SYSTEM`. That of
/// `sys_enter_openat` has the copy of the path that the recorder adds, as kernels from 6.19 on do.
const FORMATS: &str = include_str!("formats.txt");

/// An event's format as the kernel prints it, and its system.
pub(super) fn formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    FORMATS.split("system: ").skip(1).map(|event| event.split_once('\n').unwrap())
}

/// A record of an event that is written again and again.
#[derive(Debug)]
pub(super) struct Template {
    /// The record; what a field does not have is 0.
    bytes: Vec<u8>,
    /// The length without texts that are not of a fixed length.
    fixed: usize,
    /// Offsets and sizes of the fields that change: the thread, then those that were asked for.
    places: Vec<(usize, usize)>,
}

impl Template {
    /// One of an event whose fields change.
    pub(super) fn of(event: &str, fields: &[&str]) -> Self {
        let is_it =
            |text: &&str| text.lines().next().and_then(|line| line.strip_prefix("name: ")) == Some(event);
        let text = formats().map(|(_, text)| text).find(is_it);
        let format = Format::parse(text.unwrap_or_else(|| panic!("no event {event}"))).unwrap();
        let all = || format.common.iter().chain(&format.fields);
        let place = |name: &str| {
            let field = all().find(|field| field.name == name);
            let field = field.unwrap_or_else(|| panic!("{event} has no {name}"));
            (field.offset as usize, field.size as usize)
        };
        let fixed = all().map(|field| (field.offset + field.size) as usize).max().unwrap();
        let mut bytes = vec![0; fixed];
        let (at, size) = place("common_type");
        bytes[at..at + size].copy_from_slice(&format.id.to_le_bytes());
        let places = ["common_pid"].iter().chain(fields).map(|name| place(name)).collect();
        Self { bytes, fixed, places }
    }

    /// Begins a record of a thread.
    pub(super) fn by(&mut self, tid: u32) -> &mut Self {
        self.bytes.truncate(self.fixed);
        self.set(0, tid.into())
    }

    /// A number, in the field with this place among those that change, which begin with 1.
    pub(super) fn number(&mut self, field: usize, value: i64) -> &mut Self {
        self.set(field, value)
    }

    /// A text in a field of a fixed length.
    pub(super) fn text(&mut self, field: usize, text: &[u8]) -> &mut Self {
        let (at, size) = self.places[field];
        let len = text.len().min(size - 1);
        self.bytes[at..at + len].copy_from_slice(&text[..len]);
        self.bytes[at + len..at + size].fill(0);
        self
    }

    /// A text behind the fixed fields, which is found by its length and offset (`__data_loc`).
    pub(super) fn behind(&mut self, field: usize, text: &[u8]) -> &mut Self {
        let location = (text.len() + 1) << 16 | self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self.set(field, location as i64)
    }

    /// The record.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn set(&mut self, field: usize, value: i64) -> &mut Self {
        let (at, size) = self.places[field];
        self.bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        self
    }
}
