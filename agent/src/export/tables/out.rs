//! Rows of tables as bytes of files.
//!
//! There may be thousands of tables, more than there are descriptors: each collects [`BYTES`] before its file
//! is opened and gets them.

use std::borrow::Cow;
use std::io::{Seek as _, SeekFrom, Write as _};

use super::super::{ExportError, staging};
use crate::event::Value;
use crate::output::Directory;

/// How much of a table is in memory.
const BYTES: usize = 32 << 10;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Csv,
    JsonLines,
}

impl Encoding {
    /// What the names of files end in.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }
}

/// The type of a column, as DuckDB calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Signed,
    Unsigned,
    Bool,
    Text,
    /// A list, which CSV has as a JSON array in a text.
    List(&'static str),
}

/// A column's name and type.
pub(super) type Column = (Cow<'static, str>, Type);

/// A table, by its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sheet(usize);

/// A table that is written.
#[derive(Debug)]
pub(super) struct Written {
    /// `SYSTEM.EVENT`, or what else it is about.
    pub(super) name: String,
    /// Its file.
    pub(super) file: String,
    pub(super) columns: Vec<Column>,
    /// The names of the columns as JSON has them before a value: `"cpu":`.
    keys: Vec<Vec<u8>>,
    pending: Vec<u8>,
}

/// All tables of an export.
pub(super) struct Sheets<'a> {
    pub(super) dir: &'a Directory,
    pub(super) encoding: Encoding,
    written: Vec<Written>,
}

impl<'a> Sheets<'a> {
    pub(super) fn new(dir: &'a Directory, encoding: Encoding) -> Self {
        Self { dir, encoding, written: Vec::new() }
    }

    /// A new table. Names come from the recording: what may not be in the name of a file is replaced.
    pub(super) fn add(&mut self, name: &str, columns: impl Into<Vec<Column>>) -> Result<Sheet, ExportError> {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | '.');
        let plain: String = name.chars().map(|one| if is_plain(one) { one } else { '_' }).take(200).collect();
        let stem = if plain.is_empty() || plain.starts_with('.') { format!("_{plain}") } else { plain };
        let named = |file: &str| self.written.iter().any(|other| other.file == file);
        let ending = self.encoding.ending();
        let mut file = format!("{stem}.{ending}");
        let mut number = 2;
        while named(&file) {
            file = format!("{stem}-{number}.{ending}");
            number += 1;
        }
        staging::create_file(self.dir, &file)?;
        let columns: Vec<Column> = columns.into();
        let keys = columns.iter().map(|(name, _)| {
            let mut key = Vec::new();
            json_text(name.as_bytes(), &mut key);
            key.push(b':');
            key
        });
        let mut sheet =
            Written { name: name.to_owned(), file, keys: keys.collect(), columns, pending: Vec::new() };
        if self.encoding == Encoding::Csv {
            for (index, (name, _)) in sheet.columns.iter().enumerate() {
                if index > 0 {
                    sheet.pending.push(b',');
                }
                csv_text(name.as_bytes(), &mut sheet.pending);
            }
            sheet.pending.extend_from_slice(b"\r\n");
        }
        self.written.push(sheet);
        Ok(Sheet(self.written.len() - 1))
    }

    /// The tables.
    pub(super) fn written(&self) -> &[Written] {
        &self.written
    }

    /// The file of a table.
    pub(super) fn file_of(&self, sheet: Sheet) -> &str {
        self.written.get(sheet.0).map_or("", |written| &written.file)
    }

    /// Begins a row.
    pub(super) fn row(&mut self, sheet: Sheet) -> Row<'_> {
        let Self { dir, encoding, written } = self;
        let sheet = &mut written[sheet.0];
        if *encoding == Encoding::JsonLines {
            sheet.pending.push(b'{');
        }
        Row { dir, encoding: *encoding, sheet, next: 0, ended: Ended::default() }
    }

    /// Brings what is in memory to the files.
    pub(super) fn finish(&mut self) -> Result<(), ExportError> {
        self.written.iter_mut().try_for_each(|written| flush(self.dir, written))
    }
}

fn flush(dir: &Directory, written: &mut Written) -> Result<(), ExportError> {
    let append = || {
        let mut file = dir.open_for_writing(&written.file)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(&written.pending)
    };
    append().map_err(ExportError::io("write", dir.join(&written.file)))?;
    written.pending.clear();
    Ok(())
}

/// What a row could not have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    /// Texts that are not UTF-8.
    pub(super) replaced: u64,
    /// Fields that are not in their record.
    pub(super) unknown_fields: u64,
}

/// A row that is written, column by column.
pub(super) struct Row<'a> {
    dir: &'a Directory,
    encoding: Encoding,
    sheet: &'a mut Written,
    next: usize,
    ended: Ended,
}

impl Row<'_> {
    /// What comes before a value.
    fn begin(&mut self) {
        let Written { keys, pending, .. } = &mut *self.sheet;
        if self.next > 0 {
            pending.push(b',');
        }
        if self.encoding == Encoding::JsonLines
            && let Some(key) = keys.get(self.next)
        {
            pending.extend_from_slice(key);
        }
        self.next += 1;
    }

    /// What is not known.
    pub(super) fn unknown(&mut self) {
        self.begin();
        if self.encoding == Encoding::JsonLines {
            self.sheet.pending.extend_from_slice(b"null");
        }
    }

    /// A field that its record does not have.
    pub(super) fn broken(&mut self) {
        self.ended.unknown_fields += 1;
        self.unknown();
    }

    pub(super) fn unsigned(&mut self, number: impl Into<Option<u64>>) {
        match number.into() {
            Some(number) => {
                self.begin();
                self.sheet.pending.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            None => self.unknown(),
        }
    }

    pub(super) fn signed(&mut self, number: impl Into<Option<i64>>) {
        match number.into() {
            Some(number) => {
                self.begin();
                self.sheet.pending.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            None => self.unknown(),
        }
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.begin();
        self.sheet.pending.extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.begin();
        self.ended.replaced += u64::from(std::str::from_utf8(text).is_err());
        match self.encoding {
            Encoding::Csv => csv_text(text, &mut self.sheet.pending),
            Encoding::JsonLines => json_text(text, &mut self.sheet.pending),
        }
    }

    /// An address: readers have no numbers of 64 bits, or take them for negative.
    pub(super) fn address(&mut self, address: u64) {
        self.text(format!("{address:#x}").as_bytes());
    }

    /// A list of values that are JSON already.
    pub(super) fn list(&mut self, items: impl Iterator<Item = Vec<u8>>) {
        let mut list = vec![b'['];
        for (index, item) in items.enumerate() {
            if index > 0 {
                list.push(b',');
            }
            list.extend(item);
        }
        list.push(b']');
        match self.encoding {
            Encoding::Csv => self.text(&list),
            Encoding::JsonLines => {
                self.begin();
                self.sheet.pending.extend(list);
            }
        }
    }

    /// A list of numbers.
    fn numbers(&mut self, numbers: impl Iterator<Item = i128>) {
        self.begin();
        let (open, close): (&[u8], &[u8]) = match self.encoding {
            Encoding::Csv => (b"\"[", b"]\""),
            Encoding::JsonLines => (b"[", b"]"),
        };
        let pending = &mut self.sheet.pending;
        pending.extend_from_slice(open);
        for (index, number) in numbers.enumerate() {
            if index > 0 {
                pending.push(b',');
            }
            pending.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        pending.extend_from_slice(close);
    }

    /// A value of a record.
    pub(super) fn value(&mut self, value: &Value<'_>) {
        let number = |value: Value<'_>| match value {
            Value::Signed(number) => number.into(),
            other => other.address().unwrap_or(0).into(),
        };
        match value {
            Value::Signed(number) => self.signed(*number),
            Value::Unsigned(number) => self.unsigned(*number),
            Value::Pointer(address) => self.address(*address),
            Value::Text(text) => self.text(text),
            Value::Array(numbers) => self.numbers(numbers.iter().map(number)),
            Value::Bitmask(bits) => self.numbers(bits.iter().map(|bit| bit as i128)),
            Value::Bytes(bytes) => self.numbers(bytes.iter().map(|byte| i128::from(*byte))),
            Value::Texts(texts) => {
                let mut replaced = 0;
                let json = |text: Result<&[u8], _>| {
                    let mut json = Vec::new();
                    match text {
                        Ok(text) => {
                            replaced += u64::from(std::str::from_utf8(text).is_err());
                            json_text(text, &mut json);
                        }
                        Err(_) => json.extend_from_slice(b"null"),
                    }
                    json
                };
                self.list(texts.iter().map(json).collect::<Vec<_>>().into_iter());
                self.ended.replaced += replaced;
            }
        }
    }

    /// Ends the row, and brings the table's rows to its file if they are many.
    pub(super) fn end(self) -> Result<Ended, ExportError> {
        let Self { dir, encoding, sheet, ended, .. } = self;
        match encoding {
            Encoding::Csv => sheet.pending.extend_from_slice(b"\r\n"),
            Encoding::JsonLines => sheet.pending.extend_from_slice(b"}\n"),
        }
        if sheet.pending.len() >= BYTES {
            flush(dir, sheet)?;
        }
        Ok(ended)
    }
}

/// A text of CSV (RFC 4180). A NUL, which readers take for the end, becomes U+FFFD.
fn csv_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if text.iter().all(|byte| byte.is_ascii() && !matches!(byte, b'"' | 0)) {
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    for one in String::from_utf8_lossy(text).chars() {
        match one {
            '"' => out.extend_from_slice(b"\"\""),
            '\0' => out.extend_from_slice("\u{fffd}".as_bytes()),
            one => out.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// A text of JSON (RFC 8259).
fn json_text(text: &[u8], out: &mut Vec<u8>) {
    if text.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    // Texts can be written always, and memory takes them.
    let _ = serde_json::to_writer(out, &String::from_utf8_lossy(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        let csv = |text: &[u8]| {
            let mut out = Vec::new();
            csv_text(text, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(csv(b""), "\"\"");
        assert_eq!(csv(b"a,\"b\"\r\n\0\xff"), "\"a,\"\"b\"\"\r\n\u{fffd}\u{fffd}\"");
    }

    #[test]
    fn names_of_files_stay_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let mut sheets = Sheets::new(&directory, Encoding::Csv);
        let names: Vec<String> = ["../x", "a/b", "a_b", "", "..", "ok.event"]
            .into_iter()
            .map(|name| {
                let sheet = sheets.add(name, []).unwrap();
                sheets.file_of(sheet).to_owned()
            })
            .collect();
        assert_eq!(names, ["_.._x.csv", "a_b.csv", "a_b-2.csv", "_.csv", "_...csv", "ok.event.csv"]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6);
    }
}
