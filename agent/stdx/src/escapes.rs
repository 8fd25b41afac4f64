//! Bytes that a line of a text cannot have, written as `\xHH` so that they can be read back.
//!
//! A backslash that stands before `xHH` is itself written as `\x5c`: wherever `\xHH` is, it is one byte.

use std::borrow::Cow;

use crate::terminal::{self, Lines};

/// The line that texts with such bytes begin with.
pub const NOTE: &str = r"# tracer-agent: \xHH is the byte HH";

/// The beginning of other comments for programs in such texts.
pub const COMMENT: &str = "# tracer-agent: ";
/// The beginning of one that names the buffer of the lines behind it.
pub const BUFFER: &str = "buffer ";

/// Escapes what `text` has from byte `from` on: line feeds and tabs, and what [`terminal`] escapes.
pub fn escape_from(text: &mut Vec<u8>, from: usize) {
    let tail = text.get(from..).unwrap_or_default();
    if tail.windows(4).any(|bytes| byte_of(bytes).is_some()) {
        let tail = tail.to_vec();
        text.truncate(from);
        for (at, byte) in tail.iter().enumerate() {
            if tail.get(at..).and_then(byte_of).is_some() {
                text.extend_from_slice(br"\x5c");
            } else {
                text.push(*byte);
            }
        }
    }
    terminal::escape_from(text, from, Lines::Escaped);
}

/// A name as text: names that are UTF-8 stay as they are, but for what reads as an escape. Two names have two
/// texts, and [`unescaped`] has the bytes.
pub fn text(name: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(name)
        && !name.windows(4).any(|bytes| byte_of(bytes).is_some())
    {
        return text.to_owned();
    }
    let mut escaped = name.to_vec();
    escape_from(&mut escaped, 0);
    // All that is not UTF-8 is escaped.
    String::from_utf8_lossy(&escaped).into_owned()
}

/// The bytes that were escaped.
pub fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = text.windows(4).position(|bytes| byte_of(bytes).is_some()) else {
        return Cow::Borrowed(text);
    };
    let (before, mut rest) = text.split_at(first);
    let mut plain = before.to_vec();
    while let Some((byte, after)) = rest.split_first() {
        let (byte, after) = match (byte_of(rest), rest.get(4..)) {
            (Some(byte), Some(after)) => (byte, after),
            _ => (*byte, after),
        };
        plain.push(byte);
        rest = after;
    }
    Cow::Owned(plain)
}

/// The byte that a text begins with as `\xHH`.
pub(crate) fn byte_of(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f').then(|| (byte as char).to_digit(16));
    match *text {
        [b'\\', b'x', high, low, ..] => Some((digit(high)?? << 4 | digit(low)??) as u8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_can_be_read_back() {
        let texts: [&[u8]; 9] = [
            b"plain text",
            b"C:\\windows\\x",
            b"two\nlines\tand \x1b[2J",
            br"\x0a is no line feed",
            br"\\x0a\x5c\x5c0a",
            b"\\\n",
            b"\\x\x804",
            b"\\x4\x01",
            b"\xff\xc3\xa4\\xc3",
        ];
        for text in texts {
            let mut escaped = b"before ".to_vec();
            escaped.extend_from_slice(text);
            escape_from(&mut escaped, 7);
            assert!(!escaped.contains(&b'\n') && escaped.is_ascii() || text.ends_with(b"xc3"), "{escaped:?}");
            let expected = [b"before ", text].concat();
            assert_eq!(unescaped(&escaped), expected, "{}", String::from_utf8_lossy(&escaped));
            assert_eq!(unescaped(self::text(text).as_bytes()), text);
        }
        let mut escaped = br"a\b \x0A".to_vec();
        escape_from(&mut escaped, 0);
        assert_eq!(escaped, br"a\b \x0A", "nothing that could be mistaken");
        assert_eq!(text("a\nä".as_bytes()), "a\nä");
        assert_eq!([text(b"a\xff"), text(br"a\xff")], [r"a\xff", r"a\x5cxff"]);
    }
}
