//! Text of others, made safe for a terminal.
//!
//! Names in a recording are whatever somebody chose: of a task (`prctl(PR_SET_NAME)`), an event or a field
//! (`kprobe_events`, a file made for the purpose), a symbol of an ELF file, a file. A terminal obeys what it
//! finds in them: it moves the cursor, sets the title, takes over the clipboard, answers as if the user had
//! typed. So what goes to a terminal has these bytes as `\x1b`:
//!
//! - the control characters of C0 and DEL (ECMA-48, 5.2), but for line feeds and tabs of the layout;
//! - those of C1, as UTF-8 (U+0080 to U+009F) and as bytes that are no UTF-8: 0x9b begins a sequence as ESC [
//!   does;
//! - all other bytes that are no UTF-8, which a terminal might take for something else;
//! - the characters that change the direction of text (Unicode Standard Annex 9, 2.1 to 2.6): they show the
//!   rest of a line in another order than it has.
//!
//! Files and pipes get every byte as it is.

use std::borrow::Cow;
use std::io::{self, Write};

/// What becomes of line feeds and tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// They belong to the layout and stay.
    Kept,
    /// The layout has none here: what is there came with a name, and would pass for a line of its own.
    Escaped,
}

/// How a character is written that a terminal must not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// Byte by byte, as C does: `\x1b`.
    #[default]
    Bytes,
    /// As JSON does (RFC 8259, section 7): `\u001b`, and U+FFFD for what is no UTF-8.
    Json,
}

/// Escapes what `text` has from byte `from` on. Text without anything to escape is looked at once and not
/// copied.
pub fn escape_from(text: &mut Vec<u8>, from: usize, lines: Lines) {
    if let Some(tail) = text.get(from..)
        && let Cow::Owned(safe) = escaped(tail, lines, Form::Bytes)
    {
        text.truncate(from);
        text.extend_from_slice(&safe);
    }
}

/// A name as a table shows it, wherever that goes: its line feeds would tear the table.
pub fn name(text: &str) -> String {
    owned(text, Lines::Escaped)
}

/// Lines of a table with names in them.
pub fn lines(text: &str) -> String {
    owned(text, Lines::Kept)
}

fn owned(text: &str, lines: Lines) -> String {
    match escaped(text.as_bytes(), lines, Form::Bytes) {
        Cow::Borrowed(_) => text.to_owned(),
        Cow::Owned(safe) => String::from_utf8_lossy(&safe).into_owned(),
    }
}

fn escaped(text: &[u8], lines: Lines, form: Form) -> Cow<'_, [u8]> {
    let is_layout = |byte: u8| matches!(byte, b'\n' | b'\t') && lines == Lines::Kept;
    if text.iter().all(|byte| matches!(byte, b' '..=b'~') || is_layout(*byte)) {
        return Cow::Borrowed(text);
    }
    let mut safe = Vec::with_capacity(text.len() + 16);
    let bytes = |safe: &mut Vec<u8>, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a vector does not fail.
            let _ = write!(safe, "\\x{byte:02x}");
        }
    };
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let utf8 = c.encode_utf8(&mut buffer).as_bytes();
            match form {
                _ if !is_active(c) || c.is_ascii() && is_layout(c as u8) => safe.extend_from_slice(utf8),
                Form::Bytes => bytes(&mut safe, utf8),
                // All of them are below U+10000.
                Form::Json => {
                    let _ = write!(safe, "\\u{:04x}", c as u32);
                }
            }
        }
        match form {
            Form::Bytes => bytes(&mut safe, chunk.invalid()),
            Form::Json if chunk.invalid().is_empty() => {}
            Form::Json => safe.extend_from_slice("\u{fffd}".as_bytes()),
        }
    }
    Cow::Owned(safe)
}

/// Whether a terminal acts on a character instead of showing it.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An output that is made safe if it is a terminal.
#[derive(Debug)]
pub struct SafeWriter<W> {
    out: W,
    is_terminal: bool,
    form: Form,
}

impl<W: Write> SafeWriter<W> {
    /// Everything goes to `out`, escaped if that is a terminal.
    pub fn new(out: W, is_terminal: bool) -> Self {
        Self { out, is_terminal, form: Form::default() }
    }

    /// Chooses whether what is written is JSON, whose strings have escapes of their own.
    #[must_use]
    pub fn json(mut self, json: bool) -> Self {
        self.form = if json { Form::Json } else { Form::Bytes };
        self
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The output itself, for text that is safe and has sequences of its own.
    pub fn inner(&mut self) -> &mut W {
        &mut self.out
    }
}

impl<W: Write> Write for SafeWriter<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(text);
        }
        self.out.write_all(&escaped(text, Lines::Kept, self.form))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &[u8], lines: Lines, form: Form) -> String {
        String::from_utf8(escaped(text, lines, form).into_owned()).unwrap()
    }

    #[test]
    fn what_acts_is_escaped_and_what_shows_stays() {
        for (text, safe) in [
            (&b"plain \n\t text"[..], "plain \n\t text"),
            (b"\x1b[31m\x07\r\x7f\0", "\\x1b[31m\\x07\\x0d\\x7f\\x00"),
            ("\u{9b}31m\u{85}".as_bytes(), "\\xc2\\x9b31m\\xc2\\x85"),
            (b"\x9b31m \xff \xc0\x9b", "\\x9b31m \\xff \\xc0\\x9b"),
            ("a\u{202e}b\u{2066}c".as_bytes(), "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c"),
            ("Grüße 日本 ▁".as_bytes(), "Grüße 日本 ▁"),
        ] {
            assert_eq!(shown(text, Lines::Kept, Form::Bytes), safe);
        }
        assert_eq!(shown(b"a\nb\tc", Lines::Escaped, Form::Bytes), "a\\x0ab\\x09c");
        assert_eq!(shown("\u{9b}\x7f\u{202e}".as_bytes(), Lines::Kept, Form::Json), "\\u009b\\u007f\\u202e");
        assert_eq!(shown(b"\"a\x9b\"\n", Lines::Kept, Form::Json), "\"a\u{fffd}\"\n");
        assert!(matches!(escaped(b"nothing", Lines::Escaped, Form::Bytes), Cow::Borrowed(_)));
    }

    #[test]
    fn only_the_tail_and_only_terminals() {
        let mut text = b"\x1b[36m name\x1b[0m".to_vec();
        escape_from(&mut text, 5, Lines::Escaped);
        assert_eq!(text, b"\x1b[36m name\\x1b[0m");
        for (is_terminal, expected) in [(false, &b"a\x1bb"[..]), (true, b"a\\x1bb")] {
            let mut out = SafeWriter::new(Vec::new(), is_terminal);
            out.write_all(b"a\x1bb").unwrap();
            assert_eq!(out.inner(), expected);
        }
    }
}
