//! The values of types: sizes, byte orders, encodings (CTF 1.8.2, section 4.1).

use std::sync::Arc;

use super::error::Problem;
use super::words::{Word, Words, Wrong};
use crate::ctf::types::{Float, Integer};
use ftrace_event::Endian;

/// The largest alignment: that of a page. No type of a machine has more than 128 bits.
const ALIGN_MAX: i128 = 4096 * 8;

fn value_error(name: &'static str, value: &Word, rule: &'static str) -> Problem {
    Problem::Value { name, value: value.shown(), rule }
}

/// `{ name = value; ... }`, with the place of each value.
fn block(
    words: &mut Words<'_>,
    take: &mut dyn FnMut(&str, Word) -> Result<(), Problem>,
) -> Result<(), Wrong> {
    words.sign("{")?;
    while !words.take_sign("}")? {
        let name = words.dotted("an attribute")?;
        words.sign("=")?;
        let at = words.at();
        let value = words.value()?;
        words.sign(";")?;
        take(&name, value).map_err(|problem| (problem, at))?;
    }
    Ok(())
}

/// An integer, after its word.
pub(super) fn integer(words: &mut Words<'_>) -> Result<Integer, Wrong> {
    let start = words.at();
    let (mut bits, mut explicit_align) = (None, None);
    let mut integer = Integer {
        bits: 0,
        is_variable: false,
        align: 1,
        signed: false,
        order: None,
        base: 10,
        character: false,
        clock: None,
    };
    block(words, &mut |name, value| {
        match name {
            "size" => bits = Some(size(&value)?),
            "align" => explicit_align = Some(alignment(&value)?),
            "signed" => integer.signed = boolean("signed", &value)?,
            "byte_order" => integer.order = byte_order(&value)?,
            "base" => integer.base = base(&value)?,
            "encoding" => integer.character = encoding(&value)?,
            "map" => integer.clock = Some(mapped(&value)?),
            // Others have said nothing that changes how it is read.
            _ => {}
        }
        Ok(())
    })?;
    integer.bits = bits.ok_or((Problem::Missing { of: "integer", name: "size" }, start))?;
    let natural = if integer.bits.is_multiple_of(8) { 8 } else { 1 };
    integer.align = explicit_align.unwrap_or(natural);
    Ok(integer)
}

/// A floating-point number, after its word.
pub(super) fn float(words: &mut Words<'_>) -> Result<Float, Wrong> {
    let start = words.at();
    let (mut exponent, mut mantissa, mut align, mut order) = (None, None, 8, None);
    block(words, &mut |name, value| {
        match name {
            "exp_dig" => exponent = number(&value),
            "mant_dig" => mantissa = number(&value),
            "align" => align = alignment(&value)?,
            "byte_order" => order = byte_order(&value)?,
            _ => {}
        }
        Ok(())
    })?;
    let missing = |name| (Problem::Missing { of: "floating_point", name }, start);
    let digits = (exponent.ok_or(missing("exp_dig"))?, mantissa.ok_or(missing("mant_dig"))?);
    let bits = match digits {
        (8, 24) => 32,
        (11, 53) => 64,
        (exponent, mantissa) => {
            let value = format!("{exponent} and {mantissa}");
            let rule = "numbers of IEEE 754 have 8 and 24 or 11 and 53 digits";
            return Err((Problem::Value { name: "exp_dig and mant_dig", value, rule }, start));
        }
    };
    Ok(Float { bits, align, order })
}

/// A string, after its word.
pub(super) fn string(words: &mut Words<'_>) -> Result<(), Wrong> {
    block(words, &mut |name, value| {
        if name == "encoding" { encoding(&value).map(|_| ()) } else { Ok(()) }
    })
}

fn number(value: &Word) -> Option<i128> {
    match value {
        Word::Number(number) => Some(*number),
        Word::Text(_) | Word::Name(_) => None,
    }
}

fn size(value: &Word) -> Result<u8, Problem> {
    let size = number(value).filter(|size| (1..=64).contains(size));
    size.map(|size| size as u8).ok_or_else(|| value_error("size", value, "1 to 64 bits"))
}

/// An alignment in bits.
pub(super) fn alignment(value: &Word) -> Result<u64, Problem> {
    let align = number(value).filter(|align| (1..=ALIGN_MAX).contains(align) && align.count_ones() == 1);
    align.map(|align| align as u64).ok_or_else(|| value_error("align", value, "a power of two, up to 32768"))
}

fn boolean(name: &'static str, value: &Word) -> Result<bool, Problem> {
    match value {
        Word::Number(0) => Ok(false),
        Word::Number(1) => Ok(true),
        Word::Name(word) if matches!(word.as_str(), "false" | "FALSE") => Ok(false),
        Word::Name(word) if matches!(word.as_str(), "true" | "TRUE") => Ok(true),
        _ => Err(value_error(name, value, "true or false")),
    }
}

/// Whether a clock is absolute.
pub(super) fn absolute(value: &Word) -> Result<bool, Problem> {
    boolean("absolute", value)
}

/// A byte order; `None` for the trace's own.
pub(super) fn byte_order(value: &Word) -> Result<Option<Endian>, Problem> {
    let word = match value {
        Word::Name(word) => word.as_str(),
        Word::Text(_) | Word::Number(_) => "",
    };
    match word {
        "le" => Ok(Some(Endian::Little)),
        "be" | "network" => Ok(Some(Endian::Big)),
        "native" => Ok(None),
        _ => Err(value_error("byte_order", value, "le, be, network or native")),
    }
}

fn base(value: &Word) -> Result<u8, Problem> {
    let base = match value {
        Word::Number(number @ (2 | 8 | 10 | 16)) => Some(*number as u8),
        Word::Number(_) => None,
        Word::Text(word) | Word::Name(word) => match word.as_str() {
            "decimal" | "dec" | "d" | "i" | "u" => Some(10),
            "hexadecimal" | "hex" | "x" | "X" | "p" => Some(16),
            "octal" | "oct" | "o" => Some(8),
            "binary" | "b" => Some(2),
            _ => None,
        },
    };
    base.ok_or_else(|| value_error("base", value, "2, 8, 10, 16 or one of their names"))
}

/// Whether it is an encoding of characters.
fn encoding(value: &Word) -> Result<bool, Problem> {
    let word = match value {
        Word::Text(word) | Word::Name(word) => word.as_str(),
        Word::Number(_) => "",
    };
    match word {
        "UTF8" | "utf8" | "utf-8" | "UTF-8" | "ASCII" | "ascii" => Ok(true),
        "none" | "NONE" | "None" => Ok(false),
        _ => Err(value_error("encoding", value, "none, UTF8 or ASCII")),
    }
}

/// The clock that an integer is mapped to.
fn mapped(value: &Word) -> Result<Arc<str>, Problem> {
    let name = match value {
        Word::Name(path) => path.strip_prefix("clock.").and_then(|path| path.strip_suffix(".value")),
        Word::Text(_) | Word::Number(_) => None,
    };
    name.map(Arc::from).ok_or_else(|| value_error("map", value, "clock.NAME.value"))
}
