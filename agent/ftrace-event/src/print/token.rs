//! The words of a `print fmt`: the part of C's lexical grammar that kernel macros leave in it.

use super::ctype::IntType;
use super::error::{PrintFmtError, PrintFmtErrorKind};

/// A word and where it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) at: usize,
    pub(super) kind: TokenKind<'t>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind<'t> {
    Name(&'t str),
    Number(u64, IntType),
    Text(Vec<u8>),
    Punct(&'static str),
    End,
}

/// Longest first.
const PUNCTS: [&str; 47] = [
    "...", "<<=", ">>=", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "(", ")", "{", "}", "[", "]", ",", ";", ":", "?", ".", "+", "-", "*", "/",
    "%", "&", "|", "^", "~", "!", "<", ">", "=", "#",
];

/// All words of a text, the last one an [`TokenKind::End`].
pub(super) fn tokens(text: &str, long_size: u8) -> Result<Vec<Token<'_>>, PrintFmtError> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let fail = |kind| PrintFmtError { at, kind };
        let (kind, end) = if byte == b'"' {
            let (text, end) = quoted(bytes, at + 1, b'"').ok_or_else(|| fail(PrintFmtErrorKind::Quotes))?;
            (TokenKind::Text(text), end)
        } else if byte == b'\'' {
            let (text, end) = quoted(bytes, at + 1, b'\'').ok_or_else(|| fail(PrintFmtErrorKind::Quotes))?;
            // A character constant is an int; of several characters the last is in the low bits.
            let value = text.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
            (TokenKind::Number(IntType::INT.wrap(value), IntType::INT), end)
        } else if byte.is_ascii_digit() {
            let end = at + bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            let word = &text[at..end];
            let (value, int) =
                number(word, long_size).ok_or_else(|| fail(PrintFmtErrorKind::Number(shorten(word))))?;
            (TokenKind::Number(value, int), end)
        } else if is_name(byte) {
            let end = at + bytes[at..].iter().take_while(|byte| is_name(**byte)).count();
            (TokenKind::Name(&text[at..end]), end)
        } else if let Some(punct) = PUNCTS.iter().find(|punct| bytes[at..].starts_with(punct.as_bytes())) {
            (TokenKind::Punct(punct), at + punct.len())
        } else {
            let character = text[at..].chars().next().unwrap_or_default();
            return Err(fail(PrintFmtErrorKind::Character(character)));
        };
        found.push(Token { at, kind });
        at = end;
    }
    found.push(Token { at, kind: TokenKind::End });
    Ok(found)
}

/// The start of a text, for an error message.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

impl TokenKind<'_> {
    /// The word, for an error message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Name(name) => shorten(name),
            Self::Number(value, _) => value.to_string(),
            Self::Text(text) => shorten(&format!("\"{}\"", String::from_utf8_lossy(text))),
            Self::Punct(punct) => (*punct).to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// What stands before the closing quote, with escapes resolved, and where the rest of the text starts.
fn quoted(bytes: &[u8], start: usize, quote: u8) -> Option<(Vec<u8>, usize)> {
    let mut found = Vec::new();
    let mut at = start;
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        match byte {
            b'\\' => {
                let escaped = *bytes.get(at)?;
                at += 1;
                match escaped {
                    b'n' => found.push(b'\n'),
                    b't' => found.push(b'\t'),
                    b'r' => found.push(b'\r'),
                    b'a' => found.push(7),
                    b'b' => found.push(8),
                    b'v' => found.push(11),
                    b'f' => found.push(12),
                    b'e' => found.push(27),
                    b'x' => {
                        let digits = bytes[at..].iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
                        found.push(radix(&bytes[at..at + digits], 16) as u8);
                        at += digits;
                    }
                    b'0'..=b'7' => {
                        let digits = bytes[at - 1..].iter().take(3).take_while(|b| matches!(b, b'0'..=b'7'));
                        let end = at - 1 + digits.count();
                        found.push(radix(&bytes[at - 1..end], 8) as u8);
                        at = end;
                    }
                    other => found.push(other),
                }
            }
            _ if byte == quote => return Some((found, at)),
            _ => found.push(byte),
        }
    }
}

fn radix(digits: &[u8], base: u32) -> u32 {
    digits
        .iter()
        .filter_map(|digit| char::from(*digit).to_digit(base))
        .fold(0, |sum, digit| sum * base + digit)
}

/// Value and type of a constant (C11, 6.4.4.1).
fn number(word: &str, long_size: u8) -> Option<(u64, IntType)> {
    let end = word.trim_end_matches(['u', 'U', 'l', 'L']).len();
    let (digits, suffix) = word.split_at(end);
    let (digits, base) = if let Some(digits) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))
    {
        (digits, 16)
    } else if let Some(digits) = digits.strip_prefix("0b") {
        (digits, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (digits, 8)
    } else {
        (digits, 10)
    };
    let value = u64::from_str_radix(digits, base).ok()?;
    let unsigned = suffix.contains(['u', 'U']);
    let smallest = match suffix.matches(['l', 'L']).count() {
        0 => 4,
        1 => long_size,
        _ => 8,
    };
    // A decimal constant without a suffix never becomes unsigned, others do where that avoids a longer type.
    let signs: &[bool] = if unsigned {
        &[false]
    } else if base == 10 {
        &[true]
    } else {
        &[true, false]
    };
    for size in [4, 8] {
        for &signed in signs {
            let int = IntType { size, signed };
            if size >= smallest && int.holds(value) {
                return Some((value, int));
            }
        }
    }
    Some((value, IntType { size: 8, signed: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind<'_>> {
        tokens(text, 8).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn constants_have_c_types() {
        for (text, value, size, signed) in [
            ("0", 0, 4, true),
            ("2147483647", 0x7fff_ffff, 4, true),
            ("2147483648", 0x8000_0000, 8, true),
            ("0x80000000", 0x8000_0000, 4, false),
            ("0xffffffffffffffff", u64::MAX, 8, false),
            ("1U", 1, 4, false),
            ("1UL", 1, 8, false),
            ("9ULL", 9, 8, false),
            ("3ll", 3, 8, true),
            ("017", 15, 4, true),
            ("'a'", 97, 4, true),
            ("'\\0'", 0, 4, true),
        ] {
            assert_eq!(kinds(text)[0], TokenKind::Number(value, IntType { size, signed }), "{text}");
        }
        assert_eq!(number("1UL", 4).unwrap().1, IntType { size: 4, signed: false });
    }

    #[test]
    fn escapes() {
        let text = r#""a\n\t\"\\\x41\101\q" b"#;
        assert_eq!(kinds(text)[0], TokenKind::Text(b"a\n\t\"\\AAq".to_vec()));
    }

    #[test]
    fn errors_tell_the_position() {
        let error = |text| tokens(text, 8).unwrap_err();
        assert_eq!(error("a \"b"), PrintFmtError { at: 2, kind: PrintFmtErrorKind::Quotes });
        assert_eq!(error("a \"b\\"), PrintFmtError { at: 2, kind: PrintFmtErrorKind::Quotes });
        assert_eq!(error(" @"), PrintFmtError { at: 1, kind: PrintFmtErrorKind::Character('@') });
        assert_eq!(error("0z"), PrintFmtError { at: 0, kind: PrintFmtErrorKind::Number("0z".into()) });
    }
}
