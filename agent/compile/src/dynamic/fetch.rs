//! An argument of a probe: `[NAME=]FETCH[:TYPE]`.

use std::ops::Range;

use super::{
    registers::{self, Register},
    spec::{At, Side, SpecErrorKind, is_name, number},
};

/// How deep `+OFFSET(...)` is nested at most (`FETCH_INSN_MAX`, kernel/trace/trace_probe.h).
const DEPTH_MAX: u32 = 16;
/// Elements of an array (`MAX_ARRAY_LEN`).
const COUNT_MAX: u32 = 64;

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    pub(super) name: String,
    pub(super) fetch: Fetch,
    pub(super) kind: Kind,
    /// Elements of an array.
    pub(super) count: Option<u32>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fetch {
    Register(Register),
    /// What the function returns.
    ReturnValue,
    /// The value `N` words above the stack pointer.
    StackSlot(u32),
    Constant(u64),
    /// The address of a symbol of the kernel.
    KernelSymbol(String),
    /// The address at which an offset in the probed file is in memory.
    FileOffset(u64),
    /// What is in memory at a value plus `offset`; in user space if `user`, wherever the probe is.
    Memory {
        offset: i64,
        user: bool,
        of: Box<Fetch>,
    },
    /// `base + index * scale`.
    Indexed {
        base: Option<Register>,
        index: Register,
        scale: u8,
    },
    /// Argument `N` of a marker, from 1, wherever it is at a site of it.
    Marker(u32),
    /// The current thread's name.
    Comm,
    Text(String),
}

impl Fetch {
    /// Whether it looks at what the function returns.
    pub(super) fn is_of_return_value(&self) -> bool {
        match self {
            Self::Memory { of, .. } => of.is_of_return_value(),
            other => *other == Self::ReturnValue,
        }
    }

    /// The registers that it looks at.
    pub(super) fn registers(&self) -> Vec<Register> {
        match self {
            Self::Register(register) => vec![*register],
            Self::ReturnValue => vec![registers::RETURN_VALUE],
            Self::StackSlot(_) => vec![registers::STACK],
            Self::Memory { of, .. } => of.registers(),
            Self::Indexed { base, index, .. } => base.iter().chain([index]).copied().collect(),
            Self::Constant(_)
            | Self::KernelSymbol(_)
            | Self::FileOffset(_)
            | Self::Marker(_)
            | Self::Comm
            | Self::Text(_) => Vec::new(),
        }
    }
}

/// What a value is, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number {
        size: u32,
        style: Style,
    },
    /// `width` bits from bit `offset` on, in a field of `size` bytes.
    Bits {
        width: u32,
        offset: u32,
        size: u32,
        signed: bool,
    },
    /// A string in memory; in user space if `user`.
    Text {
        user: bool,
    },
    /// An address that is shown as a function of the kernel.
    Symbol,
}

/// How a number is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Unsigned,
    Signed,
    Hexadecimal,
    Character,
}

impl Kind {
    /// Bytes of a value in the record; a text has a word that tells where it is.
    pub(super) fn size(self) -> u32 {
        match self {
            Self::Number { size, .. } | Self::Bits { size, .. } => size,
            Self::Text { .. } => 4,
            Self::Symbol => 8,
        }
    }
}

type Failed = (Range<usize>, SpecErrorKind);

/// Reads the argument in `text[word]`, number `number` from 1.
pub(super) fn parse_argument(
    text: &str,
    word: Range<usize>,
    number: usize,
    at: At,
) -> Result<Argument, Failed> {
    let whole = &text[word.clone()];
    let (name, from) = match whole.split_once('=') {
        Some((name, _)) if is_name(name) => (name.to_owned(), word.start + name.len() + 1),
        Some((name, _)) if !name.contains(['(', '"', '\\']) => {
            return Err((word.start..word.start + name.len(), SpecErrorKind::Name));
        }
        // As the kernel calls them.
        _ => (format!("arg{number}"), word.start),
    };
    let parser = Parser { text, at };
    let rest = &text[from..word.end];
    let (fetch_at, kind_at) = match rest.rsplit_once(':') {
        // A text may have one of its own.
        Some((fetch, _)) if !rest.starts_with("\\\"") => {
            (from..from + fetch.len(), Some(from + fetch.len() + 1..word.end))
        }
        _ => (from..word.end, None),
    };
    let fetch = parser.fetch(fetch_at.clone(), 0)?;
    let (kind, count) = match kind_at {
        Some(kind_at) => parser.kind(kind_at)?,
        None if matches!(fetch, Fetch::Comm | Fetch::Text(_)) => (Kind::Text { user: false }, None),
        None => (Kind::Number { size: 8, style: Style::Hexadecimal }, None),
    };
    let is_text = matches!(kind, Kind::Text { .. });
    match fetch {
        Fetch::Comm | Fetch::Text(_) if !is_text || count.is_some() => Err((word, SpecErrorKind::TextOnly)),
        Fetch::Comm | Fetch::Text(_) | Fetch::Memory { .. } => {
            if is_text && count.is_some() {
                return Err((word, SpecErrorKind::TextArray));
            }
            Ok(Argument { name, fetch, kind, count })
        }
        _ if is_text || count.is_some() => Err((word, SpecErrorKind::NoMemory)),
        _ => Ok(Argument { name, fetch, kind, count }),
    }
}

#[derive(Clone, Copy)]
struct Parser<'a> {
    text: &'a str,
    at: At,
}

impl Parser<'_> {
    fn fetch(&self, at: Range<usize>, depth: u32) -> Result<Fetch, Failed> {
        if depth > DEPTH_MAX {
            return Err((at, SpecErrorKind::Depth));
        }
        let word = &self.text[at.clone()];
        let mut characters = word.chars();
        let inside = at.start + 1..at.end;
        match characters.next() {
            Some('%') => {
                let found = registers::named(&word[1..]).filter(|_| registers::SUPPORTED);
                let error_kind = || SpecErrorKind::Register(registers::names().collect());
                found.map(Fetch::Register).ok_or_else(|| (at, error_kind()))
            }
            Some('$') => self.variable(at),
            Some('@') => self.absolute(inside),
            Some('+' | '-') => self.memory(at, depth),
            Some('\\') => match word.strip_prefix("\\\"") {
                Some(text) => Ok(Fetch::Text(text.strip_suffix('"').unwrap_or(text).to_owned())),
                None => self.constant(inside).map(Fetch::Constant),
            },
            _ if self.at.side == Side::Marker => {
                let number = word.strip_prefix("arg").and_then(|digits| digits.parse().ok());
                number.map(Fetch::Marker).ok_or((at, SpecErrorKind::MarkerFetch))
            }
            _ => Err((at, SpecErrorKind::Fetch)),
        }
    }

    /// A constant of either sign.
    fn constant(&self, at: Range<usize>) -> Result<u64, Failed> {
        let word = &self.text[at.clone()];
        let value = match word.strip_prefix('-') {
            Some(positive) => number(positive).map(u64::wrapping_neg),
            None => number(word.strip_prefix('+').unwrap_or(word)),
        };
        value.ok_or((at, SpecErrorKind::Number))
    }

    fn variable(&self, at: Range<usize>) -> Result<Fetch, Failed> {
        let word = &self.text[at.clone()];
        let register = |register| {
            if registers::SUPPORTED {
                Ok(Fetch::Register(register))
            } else {
                Err((at.clone(), SpecErrorKind::Machine))
            }
        };
        match &word[1..] {
            "comm" | "COMM" => Ok(Fetch::Comm),
            "retval" if self.at.returns => register(registers::RETURN_VALUE).map(|_| Fetch::ReturnValue),
            "retval" => Err((at, SpecErrorKind::NotReturning)),
            "stack" => register(registers::STACK),
            other => {
                let numbered =
                    |prefix| other.strip_prefix(prefix).and_then(|digits: &str| digits.parse().ok());
                if let Some(slot) = numbered("stack").filter(|slot| *slot < 1 << 20) {
                    return register(registers::STACK).map(|_| Fetch::StackSlot(slot));
                }
                let Some(argument) = numbered("arg") else { return Err((at, SpecErrorKind::Variable)) };
                if self.at.returns {
                    return Err((at, SpecErrorKind::Returned));
                }
                let error_kind = SpecErrorKind::ArgumentNumber(registers::ARGUMENT_REGISTERS);
                register(registers::of_argument(argument).ok_or((at.clone(), error_kind))?)
            }
        }
    }

    /// Behind `@`: an address, a symbol with an offset, or the address of a file offset; what is there in
    /// memory.
    fn absolute(&self, at: Range<usize>) -> Result<Fetch, Failed> {
        let word = &self.text[at.clone()];
        let user = self.at.side.is_user();
        let there = |offset, of| Fetch::Memory { offset, user, of: Box::new(of) };
        if let Some(address) = number(word) {
            return Ok(there(0, Fetch::Constant(address)));
        }
        if let Some(offset) = word.strip_prefix('+') {
            let offset = number(offset).ok_or((at.clone(), SpecErrorKind::Number))?;
            return if user {
                Ok(there(0, Fetch::FileOffset(offset)))
            } else {
                Err((at, SpecErrorKind::FileOffset))
            };
        }
        if user {
            return Err((at, SpecErrorKind::UserSymbol));
        }
        let sign = word.find(['+', '-']);
        let (symbol, offset) = word.split_at(sign.unwrap_or(word.len()));
        let offset_at = at.start + symbol.len()..at.end;
        let offset = if offset.is_empty() { 0 } else { self.constant(offset_at)? as i64 };
        if symbol.is_empty() {
            return Err((at, SpecErrorKind::Fetch));
        }
        Ok(there(offset, Fetch::KernelSymbol(symbol.to_owned())))
    }

    /// `+OFFSET(...)`, `-OFFSET(...)`, `+uOFFSET(...)`.
    fn memory(&self, at: Range<usize>, depth: u32) -> Result<Fetch, Failed> {
        let word = &self.text[at.clone()];
        let Some(open) = word.find('(') else { return Err((at, SpecErrorKind::Fetch)) };
        if !word.ends_with(')') {
            return Err((at, SpecErrorKind::Bracket));
        }
        let sign = &word[..1];
        let marked = word[1..open].strip_prefix('u');
        let digits = marked.unwrap_or(&word[1..open]);
        let magnitude = number(digits).and_then(|offset| i32::try_from(offset).ok());
        let magnitude = i64::from(magnitude.ok_or((at.start + 1..at.start + open, SpecErrorKind::Number))?);
        let offset = if sign == "-" { -magnitude } else { magnitude };
        let inner = self.fetch(at.start + open + 1..at.end - 1, depth + 1)?;
        if matches!(inner, Fetch::Comm | Fetch::Text(_)) {
            return Err((at, SpecErrorKind::TextOnly));
        }
        let user = marked.is_some() || self.at.side.is_user();
        Ok(Fetch::Memory { offset, user, of: Box::new(inner) })
    }

    fn kind(&self, at: Range<usize>) -> Result<(Kind, Option<u32>), Failed> {
        let word = &self.text[at.clone()];
        let (base, count) = match word.split_once('[') {
            None => (word, None),
            Some((base, rest)) => {
                let count_at = at.start + base.len() + 1..at.end;
                let digits = rest.strip_suffix(']').ok_or((count_at.clone(), SpecErrorKind::Bracket))?;
                let count = digits.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
                (base, Some(count.ok_or((count_at, SpecErrorKind::Count))?))
            }
        };
        let user = self.at.side.is_user();
        let kind = match base {
            "string" => Kind::Text { user },
            "ustring" => Kind::Text { user: true },
            "symbol" if user => return Err((at, SpecErrorKind::KernelOnly("symbol"))),
            "symbol" => Kind::Symbol,
            "char" => Kind::Number { size: 1, style: Style::Character },
            _ => match number_kind(base) {
                Some(kind) => kind,
                None if base.starts_with('b') && base.contains('@') => {
                    bits(base).ok_or((at, SpecErrorKind::Bits))?
                }
                None => return Err((at, SpecErrorKind::Type)),
            },
        };
        Ok((kind, count))
    }
}

fn number_kind(text: &str) -> Option<Kind> {
    let style = match text.get(..1)? {
        "u" => Style::Unsigned,
        "s" => Style::Signed,
        "x" => Style::Hexadecimal,
        _ => return None,
    };
    let size = match &text[1..] {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some(Kind::Number { size, style })
}

/// `bWIDTH@OFFSET/SIZE`.
fn bits(text: &str) -> Option<Kind> {
    let (width, rest) = text.strip_prefix('b')?.split_once('@')?;
    let (offset, size) = rest.split_once('/')?;
    let (width, offset, size): (u32, u32, u32) =
        (width.parse().ok()?, offset.parse().ok()?, size.parse().ok()?);
    let fits = matches!(size, 8 | 16 | 32 | 64) && width > 0 && width.checked_add(offset)? <= size;
    fits.then_some(Kind::Bits { width, offset, size: size / 8, signed: false })
}
