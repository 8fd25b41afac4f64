//! Where a marker's argument is: `-4@%edi`, `8@-16(%rbp)`, `4@$5` on x86; `-4@w0`, `8@[sp, 16]`, `4@5` on
//! arm64.
//!
//! The operands are what a compiler substitutes for its constraint `nor` (`sys/sdt.h`,
//! `STAP_SDT_ARG_CONSTRAINT`): a constant, a memory operand or a general register, and `@` alone with an `f`
//! for floating point since SystemTap 4.

use std::fmt;

use super::Machine;

/// One argument of a marker at one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it is signed.
    pub signed: bool,
    /// Whether it is a floating point number.
    pub float: bool,
    /// Where it is.
    pub operand: Operand,
}

/// Where an argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// The value itself.
    Constant(i64),
    /// A register, under the assembler's name without `%`.
    Register(String),
    /// Memory at `base + index * scale + displacement`.
    Memory {
        /// The register that holds the address; the instruction pointer for a symbol's address.
        base: Option<String>,
        /// A second register, and what it is multiplied with.
        index: Option<(String, u8)>,
        /// A constant distance in bytes.
        displacement: i64,
        /// A symbol whose address is added (`counter+8(%rip)`), as the assembler names it.
        symbol: Option<String>,
    },
}

impl fmt::Display for Argument {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.float, self.signed) {
            (true, _) => 'f',
            (false, true) => 's',
            (false, false) => 'u',
        };
        write!(out, "{kind}{}", u32::from(self.size) * 8)
    }
}

impl fmt::Display for Operand {
    /// As the assembler writes it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(out, "${value}"),
            Self::Register(name) => write!(out, "%{name}"),
            Self::Memory { base, index, displacement, symbol } => {
                if let Some(symbol) = symbol {
                    write!(out, "{symbol}")?;
                }
                match (*displacement, symbol) {
                    (0, Some(_)) => {}
                    (number, Some(_)) => write!(out, "{number:+}")?,
                    (number, None) => write!(out, "{number}")?,
                }
                if base.is_none() && index.is_none() {
                    return Ok(());
                }
                write!(out, "(")?;
                if let Some(base) = base {
                    write!(out, "%{base}")?;
                }
                if let Some((index, scale)) = index {
                    write!(out, ",%{index},{scale}")?;
                }
                write!(out, ")")
            }
        }
    }
}

/// An argument that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("argument {number} (`{text}`) is not understood: {reason}")]
pub struct ArgumentError {
    /// Which one, from 1.
    pub number: usize,
    /// Its text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The arguments of a note's text.
pub(super) fn parse_all(text: &str, machine: Machine) -> Result<Vec<Argument>, ArgumentError> {
    let failed = |(index, text): (usize, &str), reason| ArgumentError {
        number: index + 1,
        text: text.to_owned(),
        reason,
    };
    split(text)
        .into_iter()
        .enumerate()
        .map(|(index, word)| parse(word, machine).map_err(|reason| failed((index, word), reason)))
        .collect()
}

/// The words of a text; blanks inside brackets (`[sp, 16]`) separate nothing.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let separates = |character: char| {
        match character {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && character.is_ascii_whitespace()
    };
    text.split(separates).filter(|word| !word.is_empty()).collect()
}

fn parse(word: &str, machine: Machine) -> Result<Argument, &'static str> {
    // Very old headers left the size out: a word of the machine.
    let (size, operand) = word.split_once('@').unwrap_or(("8", word));
    let (size, float) = match size.strip_suffix('f') {
        Some(size) => (size, true),
        None => (size, false),
    };
    let size: i8 = size.parse().map_err(|_| "its size is no number")?;
    if !matches!(size.unsigned_abs(), 1 | 2 | 4 | 8) {
        return Err("its size is not 1, 2, 4 or 8");
    }
    if operand.is_empty() {
        return Err("nothing is behind its @");
    }
    let operand = match machine {
        Machine::Aarch64 => arm64(operand)?,
        _ => x86(operand)?,
    };
    Ok(Argument { size: size.unsigned_abs(), signed: size < 0, float, operand })
}

/// AT&T syntax: `$5`, `%edi`, `-16(%rbp)`, `(%rax,%rbx,8)`, `counter+8(%rip)`.
fn x86(text: &str) -> Result<Operand, &'static str> {
    if let Some(constant) = text.strip_prefix('$') {
        return number(constant).map(Operand::Constant).ok_or("its constant is no number");
    }
    if let Some(register) = text.strip_prefix('%') {
        return Ok(Operand::Register(name(register)?));
    }
    let (front, registers) = match text.split_once('(') {
        Some((front, rest)) => (front, Some(rest.strip_suffix(')').ok_or("a bracket is not closed")?)),
        None => (text, None),
    };
    let (symbol, displacement) = address(front)?;
    let (mut base, mut index) = (None, None);
    if let Some(registers) = registers {
        let mut parts = registers.split(',').map(str::trim);
        let register = |text: &str| name(text.strip_prefix('%').ok_or("a register has no %")?);
        base = parts.next().filter(|text| !text.is_empty()).map(register).transpose()?;
        if let Some(text) = parts.next() {
            let scale = match parts.next() {
                None => 1,
                Some(text) => {
                    text.parse().ok().filter(|scale| matches!(scale, 1 | 2 | 4 | 8)).ok_or(SCALE)?
                }
            };
            index = Some((register(text)?, scale));
        }
        if parts.next().is_some() {
            return Err("too many parts between the brackets");
        }
    }
    Ok(Operand::Memory { base, index, displacement, symbol })
}

const SCALE: &str = "its scale is not 1, 2, 4 or 8";

/// `counter+8`, `-16`, `counter`, or nothing.
fn address(text: &str) -> Result<(Option<String>, i64), &'static str> {
    if text.is_empty() {
        return Ok((None, 0));
    }
    if let Some(number) = number(text) {
        return Ok((None, number));
    }
    let sign = text.char_indices().skip(1).find(|(_, character)| matches!(character, '+' | '-'));
    let (symbol, rest) = text.split_at(sign.map_or(text.len(), |(at, _)| at));
    let displacement = match rest {
        "" => 0,
        rest => number(rest.strip_prefix('+').unwrap_or(rest)).ok_or("its displacement is no number")?,
    };
    Ok((Some(name(symbol)?), displacement))
}

/// `x0`, `5`, `[sp]`, `[sp, 16]`, `[x1, x2]`, `[x1, x2, lsl 3]`.
fn arm64(text: &str) -> Result<Operand, &'static str> {
    let Some(inside) = text.strip_prefix('[') else {
        return match number(text.strip_prefix('#').unwrap_or(text)) {
            Some(number) => Ok(Operand::Constant(number)),
            None => Ok(Operand::Register(name(text)?)),
        };
    };
    let inside = inside.strip_suffix(']').ok_or("a bracket is not closed")?;
    let mut parts = inside.split(',').map(str::trim);
    let base = Some(name(parts.next().unwrap_or_default())?);
    let (mut index, mut displacement) = (None, 0);
    if let Some(second) = parts.next() {
        match number(second.strip_prefix('#').unwrap_or(second)) {
            Some(number) => displacement = number,
            None => index = Some((name(second)?, 1)),
        }
    }
    if let Some(shift) = parts.next() {
        let bits = shift.strip_prefix("lsl").map(|bits| bits.trim().trim_start_matches('#'));
        let bits: u8 = bits.and_then(|bits| bits.parse().ok()).ok_or(SCALE)?;
        match &mut index {
            Some((_, scale)) if bits <= 3 => *scale = 1 << bits,
            _ => return Err(SCALE),
        }
    }
    Ok(Operand::Memory { base, index, displacement, symbol: None })
}

/// A register's or symbol's name.
fn name(text: &str) -> Result<String, &'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '@');
    match text.chars().next() {
        Some(first) if !first.is_ascii_digit() && text.chars().all(good) => Ok(text.to_owned()),
        _ => Err("a name is expected"),
    }
}

/// A decimal or hexadecimal number. Assemblers print an unsigned 64-bit constant as either sign.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if !digits.bytes().next()?.is_ascii_digit() {
        return None;
    }
    let magnitude = match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { (magnitude as i64).wrapping_neg() } else { magnitude as i64 })
}
