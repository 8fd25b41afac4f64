//! Wildcards as ftrace has them (`lib/glob.c`, `kernel/trace/trace_events_filter.c`): `*`, `?`, `[a-z]`,
//! `[!a-z]` and the backslash that makes the next character an ordinary one.
//!
//! A crate for shell patterns would add braces and a special `/`, which event names do not have.

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
    fn many_stars_do_not_take_exponential_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!matches(&pattern, &"a".repeat(20_000)));
    }
}
