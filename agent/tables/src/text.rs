//! Tables as text: comma-separated values, and a JSON object a line.

use std::sync::Arc;

use super::encoding::{Changed, Destination, Encoding, Rows, Table, Writer};
use super::value::{Cell, Column, Items, Type};
use recording::ExportError;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Csv,
    JsonLines,
}

/// How much of a table is written together.
const BYTES: usize = 128 << 10;

impl Encoding for Text {
    type Rows = TextRows;
    type Writer<'w> = TextWriter<'w>;

    fn ending(&self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }

    fn has(&self, ty: Type) -> bool {
        ty != Type::Moment
    }

    fn most_bytes(&self) -> usize {
        BYTES
    }

    fn rows(&self, columns: &[Column]) -> TextRows {
        let mut rows = TextRows {
            text: *self,
            keys: Vec::new(),
            pending: Vec::new(),
            count: 0,
            is_first: true,
            changed: Changed::default(),
        };
        for (name, ty) in columns {
            let key = self.has(*ty).then(|| {
                let mut key = Vec::new();
                json_text(name.as_bytes(), &mut key);
                key.push(b':');
                key
            });
            rows.keys.push(key);
        }
        rows
    }

    fn writer<'w>(&self, out: &'w dyn Destination) -> TextWriter<'w> {
        TextWriter { text: *self, out, tables: Vec::new() }
    }
}

/// Rows as bytes of the file.
pub(super) struct TextRows {
    text: Text,
    /// The names of the columns as JSON has them before a value, `"cpu":`, of those that are written.
    keys: Vec<Option<Vec<u8>>>,
    pending: Vec<u8>,
    count: usize,
    /// Whether the row has no value yet.
    is_first: bool,
    changed: Changed,
}

impl TextRows {
    fn separate(&mut self) {
        if !self.is_first {
            self.pending.push(b',');
        }
        self.is_first = false;
    }
}

/// A value that is no list, as text or inside of one that is JSON.
fn scalar(cell: Cell<'_>, is_json: bool, out: &mut Vec<u8>, changed: &mut Changed) {
    match cell {
        Cell::Unknown if is_json => out.extend_from_slice(b"null"),
        Cell::Unknown | Cell::List(_) => {}
        Cell::Signed(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Cell::Unsigned(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        // Readers have no numbers of 64 bits, or take them for negative.
        Cell::Address(address) => {
            out.extend_from_slice(b"\"0x");
            hexadecimal(address, out);
            out.push(b'"');
        }
        Cell::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Cell::Text(text) => {
            changed.replaced += u64::from(std::str::from_utf8(text).is_err());
            if is_json { json_text(text, out) } else { csv_text(text, out) }
        }
    }
}

/// A list, as JSON.
pub(super) fn json_list(items: &dyn Items, out: &mut Vec<u8>, changed: &mut Changed) {
    out.push(b'[');
    let mut is_first = true;
    items.each(&mut |item| {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        scalar(item, true, out, changed);
    });
    out.push(b']');
}

impl Rows for TextRows {
    type Chunk = Vec<u8>;

    fn put(&mut self, column: usize, cell: Cell<'_>) {
        if self.keys.get(column).is_none_or(Option::is_none) {
            return;
        }
        if self.text == Text::JsonLines && self.is_first {
            self.pending.push(b'{');
        }
        self.separate();
        let Self { text, keys, pending, changed, .. } = self;
        if *text == Text::JsonLines
            && let Some(Some(key)) = keys.get(column)
        {
            pending.extend_from_slice(key);
        }
        match (text, cell) {
            (Text::JsonLines, Cell::List(items)) => json_list(items, pending, changed),
            (Text::JsonLines, cell) => scalar(cell, true, pending, changed),
            (Text::Csv, Cell::List(items)) => {
                let mut json = Vec::new();
                json_list(items, &mut json, changed);
                csv_text(&json, pending);
            }
            (Text::Csv, cell) => scalar(cell, false, pending, changed),
        }
    }

    fn end(&mut self) {
        self.pending.extend_from_slice(match self.text {
            Text::Csv => b"\r\n",
            Text::JsonLines => b"}\n",
        });
        self.is_first = true;
        self.count += 1;
    }

    fn size(&self) -> usize {
        self.pending.len()
    }

    fn count(&self) -> usize {
        self.count
    }

    fn take(&mut self) -> Result<Vec<u8>, String> {
        self.count = 0;
        Ok(std::mem::take(&mut self.pending))
    }

    fn changed(&self) -> Changed {
        self.changed
    }
}

/// Appends what comes.
pub(super) struct TextWriter<'w> {
    text: Text,
    out: &'w dyn Destination,
    /// Each with what comes before its rows, until that is written.
    tables: Vec<(Arc<Table>, Vec<u8>)>,
}

/// The names of the columns, which CSV begins with.
fn head(table: &Table) -> Vec<u8> {
    let mut head = Vec::new();
    for (index, (name, _)) in table.columns.iter().enumerate() {
        if index != 0 {
            head.push(b',');
        }
        csv_text(name.as_bytes(), &mut head);
    }
    head.extend_from_slice(b"\r\n");
    head
}

impl Writer for TextWriter<'_> {
    type Chunk = Vec<u8>;

    fn open(&mut self, table: &Arc<Table>) -> Result<(), ExportError> {
        let head = if self.text == Text::Csv { head(table) } else { Vec::new() };
        self.tables.push((Arc::clone(table), head));
        self.out.create(&table.file)
    }

    fn write(&mut self, table: usize, chunk: Vec<u8>) -> Result<(), ExportError> {
        let Some((table, head)) = self.tables.get_mut(table) else { return Ok(()) };
        match std::mem::take(head) {
            head if head.is_empty() => self.out.append(&table.file, &chunk),
            mut head => {
                head.extend_from_slice(&chunk);
                self.out.append(&table.file, &head)
            }
        }
    }

    fn close(&mut self, table: usize) -> Result<(), ExportError> {
        let Some((table, head)) = self.tables.get_mut(table) else { return Ok(()) };
        match std::mem::take(head) {
            head if head.is_empty() => Ok(()),
            head => self.out.append(&table.file, &head),
        }
    }
}

fn hexadecimal(number: u64, out: &mut Vec<u8>) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (digit * 4) & 15) as usize]);
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
    fn rows_have_the_columns_that_text_has() {
        let columns = [("a".into(), Type::Address), ("t".into(), Type::Moment), ("b".into(), Type::Text)];
        for (text, expected) in [
            (Text::Csv, "\"0x0\",\r\n\"0xf00000000000000a\",\"[1,null]\"\r\n"),
            (Text::JsonLines, "{\"a\":\"0x0\",\"b\":null}\n{\"a\":\"0xf00000000000000a\",\"b\":[1,null]}\n"),
        ] {
            struct List;
            impl Items for List {
                fn each(&self, give: &mut dyn FnMut(Cell<'_>)) {
                    [Cell::Unsigned(1), Cell::Unknown].into_iter().for_each(give);
                }
            }
            let mut rows = text.rows(&columns);
            for row in [
                [Cell::Address(0), Cell::Signed(1), Cell::Unknown],
                [Cell::Address(0xf000_0000_0000_000a), Cell::Unknown, Cell::List(&List)],
            ] {
                for (column, cell) in row.into_iter().enumerate() {
                    rows.put(column, cell);
                }
                rows.end();
            }
            assert_eq!(rows.count(), 2);
            assert_eq!(String::from_utf8(rows.take().unwrap()).unwrap(), expected);
        }
    }
}
