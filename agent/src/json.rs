//! Taking JSON apart that somebody else wrote: the loss ledger, which a file brings along.

/// How deep values may be in one another. The ledger has four levels.
const MAX_DEPTH: u32 = 32;

/// A JSON value. Numbers stay as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null,
    Bool,
    Number(&'a str),
    /// With its quotes, as it is written.
    String(&'a str),
    Array(Vec<Value<'a>>),
    Object(Vec<(&'a str, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Takes a text apart; `None` if it is no JSON (RFC 8259).
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut rest = text;
        let value = value(&mut rest, 0)?;
        rest.trim_ascii_start().is_empty().then_some(value)
    }

    /// The member of this name, of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key.trim_matches('"') == name).map(|(_, value)| value)
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&self) -> Option<u64> {
        let Self::Number(text) = self else { return None };
        text.parse().ok()
    }

    #[cfg(any(test, feature = "record"))]
    pub(crate) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(crate) fn members(&self) -> &[(&'a str, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }
}

fn value<'a>(rest: &mut &'a str, depth: u32) -> Option<Value<'a>> {
    if depth > MAX_DEPTH {
        return None;
    }
    *rest = rest.trim_ascii_start();
    match rest.as_bytes().first()? {
        b'{' => {
            let mut members = Vec::new();
            list(rest, '{', '}', |rest| {
                *rest = rest.trim_ascii_start();
                let key = string(rest)?;
                *rest = rest.trim_ascii_start().strip_prefix(':')?;
                members.push((key, value(rest, depth + 1)?));
                Some(())
            })?;
            Some(Value::Object(members))
        }
        b'[' => {
            let mut items = Vec::new();
            list(rest, '[', ']', |rest| {
                items.push(value(rest, depth + 1)?);
                Some(())
            })?;
            Some(Value::Array(items))
        }
        b'"' => string(rest).map(Value::String),
        b'-' | b'0'..=b'9' => number(rest).map(Value::Number),
        _ => {
            let words = [("null", Value::Null), ("true", Value::Bool), ("false", Value::Bool)];
            let (word, value) = words.into_iter().find(|(word, _)| rest.starts_with(word))?;
            *rest = &rest[word.len()..];
            Some(value)
        }
    }
}

fn list<'a>(
    rest: &mut &'a str,
    open: char,
    close: char,
    mut item: impl FnMut(&mut &'a str) -> Option<()>,
) -> Option<()> {
    *rest = rest.strip_prefix(open)?.trim_ascii_start();
    if let Some(behind) = rest.strip_prefix(close) {
        *rest = behind;
        return Some(());
    }
    loop {
        item(rest)?;
        *rest = rest.trim_ascii_start();
        if let Some(behind) = rest.strip_prefix(close) {
            *rest = behind;
            return Some(());
        }
        *rest = rest.strip_prefix(',')?;
    }
}

fn string<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let bytes = rest.as_bytes();
    if bytes.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => break,
            b'\\' => match bytes.get(at + 1)? {
                b'u' => {
                    let digits = bytes.get(at + 2..at + 6)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    at += 6;
                }
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                _ => return None,
            },
            0..0x20 => return None,
            _ => at += 1,
        }
    }
    let (text, behind) = rest.split_at_checked(at + 1)?;
    *rest = behind;
    Some(text)
}

fn number<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let end =
        rest.find(|c: char| !matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9')).unwrap_or(rest.len());
    let (text, behind) = rest.split_at(end);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let valid = all_digits(whole) && all_digits(part) && all_digits(exponent);
    if !valid || whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    *rest = behind;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_taken_apart() {
        let value =
            Value::parse(" {\"a\": [1, -2.5e+3, \"x\\u00e9\\\"\"], \"b\":{\"c\":null,\"d\":true}} ").unwrap();
        assert_eq!(value.get("a").unwrap().items()[0].number(), Some(1));
        assert_eq!(value.get("a").unwrap().items()[1].number(), None);
        assert_eq!(value.get("b").unwrap().members()[0], ("\"c\"", Value::Null));
        assert_eq!(Value::parse("[]"), Some(Value::Array(Vec::new())));
    }

    #[test]
    fn what_is_no_json_is_none() {
        for text in [
            "",
            "{",
            "{]",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "01",
            "1.",
            "-",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "nul",
            "1 2",
        ] {
            assert_eq!(Value::parse(text), None, "{text}");
        }
        assert_eq!(Value::parse(&"[".repeat(100_000)), None);
    }
}
