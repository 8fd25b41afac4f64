//! Which fields the texts of an event have.
//!
//! A text is taken apart at `name=`: what is before the first one, then a value and what divides it from the
//! next name. If all texts of an event have the same names in the same order, these are its fields, and what
//! divides them is what all texts have there. A field is a number if all its values are, written in one way:
//! then its format prints them in that way again.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::event::{Show, identifier, in_quotes};
use crate::{EventSpec, FieldSpec, FieldType, Integer, Value};

/// Most fields of an event.
const MAX_FIELDS: usize = 64;

/// The name of the field that has all of a text.
const WHOLE: &str = "text";

/// The name of the field of what is before the first name.
const HEAD: &str = "head";

/// What all texts of an event have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing that is understood.
    Whole,
    Fields {
        /// What is before the first name, if it is the same in all.
        head: Option<Vec<u8>>,
        fields: Vec<Field>,
    },
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    name: Vec<u8>,
    /// What follows the value.
    end: Vec<u8>,
    values: Values,
}

/// What values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    /// Whether all are decimal numbers without zeros before them.
    decimal: bool,
    /// Whether all are hexadecimal with `0x` and without zeros.
    hex: bool,
    /// How many digits all of them have, zeros included.
    padded: Option<usize>,
    least: i128,
    most: i128,
}

/// The values of a text.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
enum Item {
    Number(u64),
    Text(Range<usize>),
}

impl Parsed {
    /// The values, for a record.
    pub(super) fn values<'t>(&self, text: &'t [u8]) -> Vec<Value<'t>> {
        let value = |item: &Item| match item {
            Item::Number(number) => Value::Unsigned(*number),
            Item::Text(range) => Value::Text(text.get(range.clone()).unwrap_or_default()),
        };
        self.items.iter().map(value).collect()
    }
}

/// A name in a text: where it is, and where what follows its `=` is up to the next name.
struct Part {
    name: Range<usize>,
    rest: Range<usize>,
}

/// The names of a text. The end of what is before the first one is where that begins.
fn parts(text: &[u8]) -> Vec<Part> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut parts: Vec<Part> = Vec::new();
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'=') {
        let before = text.get(..at).unwrap_or_default();
        let len = before.iter().rev().take_while(|byte| is_name(byte)).count();
        let start = at - len;
        let begins = start == 0 || text.get(start - 1).is_some_and(|byte| b" \t\n,;({[|".contains(byte));
        let digit = text.get(start).is_none_or(u8::is_ascii_digit);
        let last_start = parts.last().map_or(0, |part| part.rest.start);
        if len == 0 || digit || !begins || start < last_start || text.get(at + 1) == Some(&b'=') {
            continue;
        }
        if let Some(last) = parts.last_mut() {
            last.rest.end = start;
        }
        parts.push(Part { name: start..at, rest: at + 1..text.len() });
        if parts.len() == MAX_FIELDS {
            break;
        }
    }
    parts
}

/// How many bytes of what follows a name divide its value from the next name: from the first blank on among
/// what is no letter or digit at the end, or else the last byte.
fn divider(rest: &[u8]) -> usize {
    let run = rest.iter().rev().take_while(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric()).count();
    let tail = rest.get(rest.len() - run..).unwrap_or_default();
    match tail.iter().position(u8::is_ascii_whitespace) {
        Some(blank) => run - blank,
        None => run.min(1),
    }
}

/// The same behind the last value: from a blank on that a bracket follows, as in ` [ns]`.
fn ending(rest: &[u8]) -> usize {
    let blank = rest.windows(2).position(|bytes| bytes[0] == b' ' && matches!(bytes[1], b'[' | b'('));
    blank.map_or(0, |blank| rest.len() - blank)
}

fn common_end<'a>(a: &'a [u8], b: &[u8]) -> &'a [u8] {
    let len = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    a.get(a.len() - len..).unwrap_or_default()
}

impl Values {
    fn of(value: &[u8]) -> Self {
        let padded = Some(value.len());
        let mut values = Self { decimal: true, hex: true, padded, least: i128::MAX, most: i128::MIN };
        values.add(value);
        values
    }

    const TEXT: Self = Self { decimal: false, hex: false, padded: None, least: 0, most: 0 };

    fn add(&mut self, value: &[u8]) {
        let (decimal, hex) = (decimal(value), hexadecimal(value));
        let padded = padded(value);
        self.decimal &= decimal.is_some();
        self.hex &= hex.is_some();
        self.padded = self.padded.filter(|len| *len == value.len() && padded.is_some());
        if let Some(number) = decimal.or(hex).or(padded) {
            self.least = self.least.min(number);
            self.most = self.most.max(number);
        }
    }

    /// The type of the field and the conversion that prints it; `None` for a text.
    fn integer(&self) -> Option<(Integer, String)> {
        let signed = self.least < 0;
        if !self.fit() {
            return None;
        }
        let small = self.least >= i32::MIN.into() && self.most <= i32::MAX.into();
        let (size, signed) = if small { (4, true) } else { (8, signed) };
        let long = if small { "" } else { "ll" };
        let letter = if signed { 'd' } else { 'u' };
        if self.decimal {
            Some((Integer::new(size, signed), format!("%{long}{letter}")))
        } else if self.hex {
            let size = if self.most <= u32::MAX.into() { 4 } else { 8 };
            let long = if size == 4 { "" } else { "ll" };
            Some((Integer { size, signed: false, show: Show::Hex }, format!("0x%{long}x")))
        } else {
            let len = self.padded?;
            Some((Integer::new(size, signed), format!("%0{len}{long}{letter}")))
        }
    }

    /// Whether 64 bits hold all of them.
    fn fit(&self) -> bool {
        self.least >= 0 || self.most <= i64::MAX.into()
    }

    /// The number that a value is, in two's complement, if all values are.
    fn number(&self, value: &[u8]) -> Option<u64> {
        if !self.fit() {
            return None;
        }
        let number = if self.decimal {
            decimal(value)
        } else if self.hex {
            hexadecimal(value)
        } else {
            self.padded.and_then(|_| padded(value))
        };
        number.map(|number| number as u64)
    }
}

/// A decimal number of 64 bits, as `%d` and `%u` print it.
fn decimal(value: &[u8]) -> Option<i128> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let canonical = digits == b"0" && value == digits
        || digits.first().is_some_and(|first| (b'1'..=b'9').contains(first));
    let number: i128 = digits_of(digits, canonical)?.parse().ok()?;
    let number = if digits.len() < value.len() { -number } else { number };
    (i128::from(i64::MIN)..=u64::MAX.into()).contains(&number).then_some(number)
}

/// A decimal number with zeros before it. Of the width of a hexadecimal one of 32 or 64 bits (`%08x`,
/// `%016lx`) it may be such a one.
fn padded(value: &[u8]) -> Option<i128> {
    let wanted = (2..=19).contains(&value.len()) && !matches!(value.len(), 8 | 16);
    let number: i128 = digits_of(value, wanted)?.parse().ok()?;
    (number <= u64::MAX.into()).then_some(number)
}

fn digits_of(digits: &[u8], wanted: bool) -> Option<&str> {
    let is_number = wanted && digits.len() <= 20 && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok())?
}

/// A hexadecimal number as `0x%x` prints it.
fn hexadecimal(value: &[u8]) -> Option<i128> {
    let digits = value.strip_prefix(b"0x")?;
    let canonical = digits == b"0" || digits.first().is_some_and(|first| *first != b'0');
    let is_number = (1..=16).contains(&digits.len())
        && canonical
        && digits.iter().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit));
    let digits = is_number.then(|| std::str::from_utf8(digits).ok())??;
    u64::from_str_radix(digits, 16).ok().map(i128::from)
}

impl Shape {
    /// The shape of the first text.
    pub(super) fn of(text: &[u8]) -> Self {
        let parts = parts(text);
        let Some(first) = parts.first() else { return Self::Whole };
        let head = text.get(..first.name.start).unwrap_or_default().to_vec();
        let fields = parts.iter().enumerate().map(|(index, Part { name, rest })| {
            let rest = text.get(rest.clone()).unwrap_or_default();
            let len = if index + 1 == parts.len() { ending(rest) } else { divider(rest) };
            let (value, end) = rest.split_at_checked(rest.len() - len).unwrap_or((rest, &[]));
            let name = text.get(name.clone()).unwrap_or_default().to_vec();
            Field { name, end: end.to_vec(), values: Values::of(value) }
        });
        Self::Fields { head: Some(head), fields: fields.collect() }
    }

    /// Takes what is not the same in another text out of it.
    pub(super) fn add(&mut self, text: &[u8]) {
        let Self::Fields { head, fields } = self else { return };
        let parts = parts(text);
        let name = |part: &Part| text.get(part.name.clone());
        let same = parts.len() == fields.len()
            && parts.iter().zip(&*fields).all(|(part, field)| name(part) == Some(field.name.as_slice()));
        let Some(first) = parts.first().filter(|_| same) else {
            *self = Self::Whole;
            return;
        };
        if head.as_deref() != text.get(..first.name.start) {
            *head = None;
        }
        for (field, Part { rest, .. }) in fields.iter_mut().zip(&parts) {
            let rest = text.get(rest.clone()).unwrap_or_default();
            let end = common_end(&field.end, rest).len();
            if end < field.end.len() {
                // Values that came before are longer by what does not divide them, which is no number.
                field.end.drain(..field.end.len() - end);
                field.values = Values::TEXT;
            }
            field.values.add(rest.get(..rest.len() - end).unwrap_or_default());
        }
    }

    /// Ends the search: what cannot stand in a format is not taken apart.
    pub(super) fn settle(&mut self) {
        if let Self::Fields { head, fields } = self
            && Self::fields_spec(head.as_deref(), fields).is_none()
        {
            *self = Self::Whole;
        }
    }

    /// The event that has these fields.
    pub(super) fn spec(&self, system: &str, name: &str) -> EventSpec {
        let whole = || EventSpec {
            system: system.to_owned(),
            name: name.to_owned(),
            fields: vec![FieldSpec { name: WHOLE.to_owned(), kind: FieldType::Text }],
            print_fmt: Some(format!("\"%s\", __get_str({WHOLE})")),
        };
        match self {
            Self::Whole => whole(),
            Self::Fields { head, fields } => {
                let made = Self::fields_spec(head.as_deref(), fields);
                made.map_or_else(whole, |(fields, print_fmt)| EventSpec {
                    system: system.to_owned(),
                    name: name.to_owned(),
                    fields,
                    print_fmt: Some(print_fmt),
                })
            }
        }
    }

    /// Fields and `print fmt`; `None` if what is between values cannot stand in one.
    fn fields_spec(head: Option<&[u8]>, fields: &[Field]) -> Option<(Vec<FieldSpec>, String)> {
        let (mut format, mut arguments, mut specs) = (String::new(), String::new(), Vec::new());
        let mut taken = BTreeSet::new();
        if let Some(head) = head {
            format += &literal(head)?;
        } else {
            taken.insert(HEAD.to_owned());
            format += "%s";
            arguments += &format!(", __get_str({HEAD})");
            specs.push(FieldSpec { name: HEAD.to_owned(), kind: FieldType::Text });
        }
        for Field { name, end, values } in fields {
            let text = std::str::from_utf8(name).ok()?;
            let mut unique = identifier(text);
            if unique.starts_with("common_") {
                unique.insert(0, '_');
            }
            let (base, mut number) = (unique.clone(), 2);
            while !taken.insert(unique.clone()) {
                unique = format!("{base}_{number}");
                number += 1;
            }
            let (kind, conversion, argument) = match values.integer() {
                Some((integer, conversion)) => {
                    (FieldType::Integer(integer), conversion, format!(", REC->{unique}"))
                }
                None => (FieldType::Text, "%s".to_owned(), format!(", __get_str({unique})")),
            };
            format += &format!("{text}={conversion}{}", literal(end)?);
            arguments += &argument;
            specs.push(FieldSpec { name: unique, kind });
        }
        Some((specs, format!("\"{format}\"{arguments}")))
    }

    /// Takes a text apart.
    pub(super) fn parse(&self, text: &[u8], parsed: &mut Parsed) {
        parsed.items.clear();
        let Self::Fields { head, fields } = self else {
            parsed.items.push(Item::Text(0..text.len()));
            return;
        };
        let parts = parts(text);
        if head.is_none() {
            parsed.items.push(Item::Text(0..parts.first().map_or(0, |part| part.name.start)));
        }
        for (Field { end, values, .. }, Part { rest, .. }) in fields.iter().zip(&parts) {
            let value = rest.start..rest.end.saturating_sub(end.len()).max(rest.start);
            let number = values.number(text.get(value.clone()).unwrap_or_default());
            parsed.items.push(number.map_or(Item::Text(value), Item::Number));
        }
    }
}

/// What stands between values, as it is written in a format.
fn literal(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let plain = text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    plain.then(|| in_quotes(text).replace('%', "%%"))
}
