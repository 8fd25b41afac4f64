//! Wildcards as ftrace has them (`lib/glob.c`, `kernel/trace/trace_events_filter.c`): `*`, `?`, `[a-z]`,
//! `[!a-z]` and the backslash that makes the next character an ordinary one.
//!
//! A crate for shell patterns would add braces and a special `/`, which event names do not have.
//!
//! Patterns of thread names are kept as texts, and names have any bytes: [`argument`] and [`bytes`] convert.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use crate::escapes;

/// Whether the whole of `text` is described by `pattern`.
///
/// Takes time proportional to the product of both lengths at worst: on a mismatch only the last `*` is
/// reconsidered, since an earlier one could not do better.
pub fn matches(pattern: &str, text: &str) -> bool {
    matches_bytes(pattern.as_bytes(), text.as_bytes())
}

/// [`matches()`] for texts of any bytes.
pub fn matches_bytes(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        match text.get(t) {
            None if p == pattern.len() => return true,
            // What is left of the pattern needs at least one character more, and there is no text left to
            // give.
            None => return false,
            Some(&byte) => {
                if let Some(next) = one(pattern, p, byte) {
                    p = next;
                    t += 1;
                    continue;
                }
            }
        }
        match retry {
            Some((star, taken)) => {
                p = star;
                t = taken + 1;
                retry = Some((star, t));
            }
            None => return false,
        }
    }
}

/// A pattern of a command line as a text: a byte that is not UTF-8 becomes `\xHH`.
pub fn argument(pattern: OsString) -> String {
    let pattern = pattern.into_vec();
    let mut text = String::with_capacity(pattern.len());
    for chunk in pattern.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Such a byte is ordinary with a backslash and without.
            let backslashes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
            if backslashes % 2 == 1 {
                text.pop();
            }
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

/// The bytes of a pattern that is a text: `\xHH` stands for the byte HH, which is not special outside of
/// brackets.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    let text = text.as_bytes();
    if !text.windows(4).any(|bytes| escapes::byte_of(bytes).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some((&first, after)) = text.get(at..).and_then(<[u8]>::split_first) {
        at += match (escapes::byte_of(&text[at..]), after.first()) {
            (Some(byte), _) => {
                if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
                    plain.push(b'\\');
                }
                plain.push(byte);
                4
            }
            (None, Some(&literal)) if first == b'\\' => {
                plain.extend([first, literal]);
                2
            }
            (None, _) => {
                plain.push(first);
                1
            }
        };
    }
    Cow::Owned(plain)
}

/// Whether a name is described by a pattern that is a text.
pub fn matches_name(pattern: &str, name: &[u8]) -> bool {
    matches_bytes(&bytes(pattern), name)
}

/// What a pattern is made of, for who matches it in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// Any number of bytes.
    Star,
    /// One byte of these: ranges that do not touch, ascending.
    One(Vec<(u8, u8)>),
}

/// The elements of a pattern. Stars one after the other are one.
pub fn elements(pattern: &[u8]) -> Vec<Element> {
    let mut found = Vec::new();
    let mut p = 0;
    while p < pattern.len() {
        if pattern[p] == b'*' {
            if found.last() != Some(&Element::Star) {
                found.push(Element::Star);
            }
            p += 1;
            continue;
        }
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        for byte in 0..=u8::MAX {
            if one(pattern, p, byte).is_none() {
                continue;
            }
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == byte => *last = byte,
                _ => ranges.push((byte, byte)),
            }
        }
        found.push(Element::One(ranges));
        p = end(pattern, p);
    }
    found
}

/// The offset after the element at `p`, which is no star.
fn end(pattern: &[u8], p: usize) -> usize {
    match pattern[p] {
        b'\\' if p + 1 < pattern.len() => p + 2,
        b'[' => class(pattern, p + 1, 0).map_or(p + 1, |(_, next)| next),
        _ => p + 1,
    }
}

/// Matches one byte with the pattern's element at `p`, and gives the offset after that element.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        b'[' => match class(pattern, p + 1, byte) {
            Some((true, next)) => Some(next),
            Some((false, _)) => None,
            // A bracket that is never closed stands for itself.
            None => (byte == b'[').then_some(p + 1),
        },
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Whether `byte` is in the class that begins at `p`, and the offset after its closing bracket.
fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(p), Some(b'!' | b'^'));
    if negated {
        p += 1;
    }
    let first = p;
    let mut found = false;
    loop {
        let low = *pattern.get(p)?;
        if low == b']' && p > first {
            return Some((found != negated, p + 1));
        }
        let high = match (pattern.get(p + 1), pattern.get(p + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                p += 2;
                high
            }
            _ => low,
        };
        found |= (low..=high).contains(&byte);
        p += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_what_ftrace_matches() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "sched_switch"),
            ("sched_*", "sched_"),
            ("*switch", "sched_switch"),
            ("*ch*d*", "sched"),
            ("s?hed", "sched"),
            ("sys_[eE]nter", "sys_Enter"),
            ("x[a-c]y", "xby"),
            ("x[!a-c]y", "xdy"),
            ("x[^a-c]y", "xdy"),
            ("x[]]y", "x]y"),
            ("x[a-]y", "x-y"),
            ("x[", "x["),
            ("x\\*", "x*"),
            ("*a*b", "aXbXab"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "x"),
            ("?", ""),
            ("sched", "sched_switch"),
            ("*switch", "sched_switches"),
            ("x[a-c]y", "xdy"),
            ("x[!a-c]y", "xby"),
            ("x\\*", "xy"),
            ("[]", "]"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_of_any_bytes_are_texts() {
        for (pattern, written, yes, no) in [
            (&b"caf\xe9*"[..], r"caf\xe9*", &b"caf\xe9 2"[..], &b"cafe"[..]),
            (b"[\xe0-\xef]", r"[\xe0-\xef]", b"\xe9", b"\\"),
            (b"\\\xe9", r"\xe9", b"\xe9", b"xe9"),
            (b"\\\\\xe9", r"\\\xe9", b"\\\xe9", b"\xe9"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}", "caf\u{e9}".as_bytes(), b"caf\xe9"),
            (b"*\xff\xfe", r"*\xff\xfe", b"a\xff\xfe", b"a\xff"),
        ] {
            assert_eq!(argument(OsString::from_vec(pattern.to_vec())), written);
            assert!(matches_name(written, yes) && !matches_name(written, no), "{written}");
            // A text is a pattern of the same text.
            assert_eq!(argument(written.into()), written);
        }
        for (written, yes, no) in [
            (r"\x2a", &b"*"[..], &b"a"[..]),
            (r"\x5cxe9", br"\xe9", b"\xe9"),
            (r"\xE9", b"xE9", b"\xe9"),
            (r"\\xe9", br"\xe9", b"\xe9"),
            (r"a\xe", b"axe", b"a\x0e"),
        ] {
            assert!(matches_name(written, yes) && !matches_name(written, no), "{written}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!matches(&pattern, &"a".repeat(20_000)));
    }
}
