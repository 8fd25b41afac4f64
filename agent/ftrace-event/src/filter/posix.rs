//! Regular expressions as libtraceevent has them: POSIX basic ones with GNU's additions (regcomp(3) without
//! `REG_EXTENDED`), case-insensitive, matched anywhere in the text.
//!
//! They are translated for the `regex` crate, which takes time linear in the text, whatever the expression.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

/// Memory that one compiled expression may need, bytes.
const MAX_COMPILED: usize = 1 << 20;

/// Compiles an expression that is to be found anywhere in a text.
///
/// # Errors
/// What is wrong with it.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    build(&translate(pattern)?)
}

/// Compiles an expression that has to describe the whole text.
///
/// # Errors
/// What is wrong with it.
pub(super) fn compile_whole(pattern: &str) -> Result<Regex, String> {
    // As libtraceevent does it: the anchors become part of the expression, and belong to the first and the
    // last alternative.
    build(&translate(&format!("^{pattern}$"))?)
}

fn build(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(true)
        .dot_matches_new_line(true)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(64)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it needs too much memory".to_owned(),
            // The crate shows its own form of the pattern, which nobody wrote.
            other => {
                other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
        })
}

/// The expression in the syntax of the crate.
fn translate(pattern: &str) -> Result<String, String> {
    let bytes = pattern.as_bytes();
    let mut out = String::with_capacity(bytes.len() * 2);
    let mut at = 0;
    let mut open = 0;
    // At the start of an expression or an alternative, where `*` is a character.
    let mut start = true;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let was_start = std::mem::replace(&mut start, false);
        match byte {
            b'^' if was_start => {
                out.push('^');
                start = true;
            }
            b'$' if at == bytes.len() || matches!(&bytes[at..], [b'\\', b')' | b'|', ..]) => out.push('$'),
            b'*' if !was_start => out.push('*'),
            b'.' => out.push('.'),
            b'[' => at = bracket(bytes, at, &mut out)?,
            b'\\' => {
                let Some(&escaped) = bytes.get(at) else { return Err("it ends with a backslash".to_owned()) };
                at += 1;
                match escaped {
                    b'(' => {
                        open += 1;
                        out.push_str("(?:");
                        start = true;
                    }
                    b')' if open == 0 => return Err("`\\)` without `\\(`".to_owned()),
                    b')' => {
                        open -= 1;
                        out.push(')');
                    }
                    b'|' => {
                        out.push('|');
                        start = true;
                    }
                    b'+' | b'?' if !was_start => out.push(char::from(escaped)),
                    b'{' if !was_start => at = interval(bytes, at, &mut out)?,
                    b'w' => out.push_str("[0-9A-Za-z_]"),
                    b'W' => out.push_str("[^0-9A-Za-z_]"),
                    b's' => out.push_str("[\\t-\\r ]"),
                    b'S' => out.push_str("[^\\t-\\r ]"),
                    b'b' => out.push_str("\\b"),
                    b'B' => out.push_str("\\B"),
                    b'<' => out.push_str("\\b{start}"),
                    b'>' => out.push_str("\\b{end}"),
                    b'`' => out.push_str("\\A"),
                    b'\'' => out.push_str("\\z"),
                    b'1'..=b'9' => return Err("what a group found cannot be referred to".to_owned()),
                    other => byte_of(other, &mut out),
                }
            }
            other => byte_of(other, &mut out),
        }
    }
    if open != 0 {
        return Err("`\\(` without `\\)`".to_owned());
    }
    Ok(out)
}

fn byte_of(byte: u8, out: &mut String) {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b' ') {
        out.push(char::from(byte));
    } else {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// `\{2,5\}`, after the brace.
fn interval(bytes: &[u8], start: usize, out: &mut String) -> Result<usize, String> {
    let rest = bytes.get(start..).unwrap_or_default();
    let len = rest.windows(2).position(|two| two == b"\\}").ok_or("`\\{` without `\\}`")?;
    let text = std::str::from_utf8(&rest[..len]).unwrap_or_default();
    let (least, most) = text.split_once(',').map_or((text, None), |(least, most)| (least, Some(most)));
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() <= 5;
    if !number(least) || !most.is_none_or(number) || text.is_empty() {
        return Err(format!("`{{{text}}}` is no number of repetitions"));
    }
    let least = if least.is_empty() { "0" } else { least };
    match most {
        None => out.push_str(&format!("{{{least}}}")),
        Some(most) => out.push_str(&format!("{{{least},{most}}}")),
    }
    Ok(start + len + 2)
}

/// `[^a-z[:digit:]]`, after the bracket. A backslash is a character like any other there.
fn bracket(bytes: &[u8], mut at: usize, out: &mut String) -> Result<usize, String> {
    const OPEN: &str = "`[` without `]`";
    out.push('[');
    if bytes.get(at) == Some(&b'^') {
        out.push('^');
        at += 1;
    }
    let first = at;
    loop {
        let byte = *bytes.get(at).ok_or(OPEN)?;
        match (byte, bytes.get(at + 1)) {
            (b']', _) if at > first => {
                out.push(']');
                return Ok(at + 1);
            }
            (b'[', Some(b':')) => {
                let rest = &bytes[at + 2..];
                let len = rest.windows(2).position(|two| two == b":]").ok_or(OPEN)?;
                let class = String::from_utf8_lossy(&rest[..len]);
                let known = [
                    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
                    "upper", "xdigit",
                ];
                if !known.contains(&&*class) {
                    return Err(format!("there is no class [:{class}:]"));
                }
                let _ = write!(out, "[:{class}:]");
                at += len + 4;
            }
            (b'[', Some(b'.' | b'=')) => return Err("collating elements are not known".to_owned()),
            _ => {
                let (low, mut high) = (byte, byte);
                at += 1;
                if let [b'-', end, ..] = bytes[at..]
                    && end != b']'
                {
                    high = end;
                    at += 2;
                }
                if low > high {
                    return Err("a range goes backwards".to_owned());
                }
                let _ = write!(out, "\\x{low:02x}-\\x{high:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_expressions_with_gnus_additions() {
        for (pattern, text) in [
            ("sched", "a sched b"),
            ("SCHED", "sched"),
            ("^s.*h$", "switch"),
            ("a+b", "a+b"),
            ("a\\+b", "aab"),
            ("a\\|b", "xb"),
            ("\\(ab\\)\\{2\\}", "abab"),
            ("*a", "*a"),
            ("^*a", "*a"),
            ("[]a]", "]"),
            ("[^]a]", "b"),
            ("[a\\]", "\\"),
            ("[[:digit:]x]", "7"),
            ("a$b", "a$b"),
            ("a^b", "a^b"),
            ("{", "{"),
            ("x\\.y", "x.y"),
            ("\\<two\\>", "one two"),
            ("\\w\\{3,\\}", "abc"),
            ("k.*/[0-9]:", "kworker/0:1"),
            ("a?", "a?"),
            ("", "anything"),
        ] {
            assert!(compile(pattern).unwrap().is_match(text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a+b", "aab"),
            ("x\\.y", "xzy"),
            ("[^]a]", "]"),
            ("a\\{2\\}", "a"),
            ("\\<two\\>", "twos"),
            ("^b", "ab"),
        ] {
            assert!(!compile(pattern).unwrap().is_match(text.as_bytes()), "{pattern} {text}");
        }
        assert!(compile_whole("sched_*").unwrap().is_match(b"SCHED"));
        assert!(!compile_whole("sched").unwrap().is_match(b"sched_switch"));
    }

    #[test]
    fn what_cannot_be_compiled_says_why() {
        for (pattern, why) in [
            ("\\(a", "`\\(` without `\\)`"),
            ("a\\)", "`\\)` without `\\(`"),
            ("[a", "`[` without `]`"),
            ("a\\", "it ends with a backslash"),
            ("\\(a\\)\\1", "what a group found cannot be referred to"),
            ("[b-a]", "a range goes backwards"),
            ("[[:what:]]", "there is no class [:what:]"),
            ("a\\{x\\}", "`{x}` is no number of repetitions"),
            ("a\\{2", "`\\{` without `\\}`"),
            ("\\(\\(a\\{1000\\}\\)\\{1000\\}\\)\\{1000\\}", "it needs too much memory"),
        ] {
            assert_eq!(compile(pattern).map(|_| ()).unwrap_err(), why, "{pattern}");
        }
        assert!(compile("a\\{5,2\\}").is_err());
    }
}
