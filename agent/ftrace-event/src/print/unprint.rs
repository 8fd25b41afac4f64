//! Back from the text of a record to the values that it was printed from.
//!
//! The text is cut at what the `print fmt` has between its conversions. A number, a text, a name of a table
//! or a list of flags says what its field is. Where an expression of one field is printed, as the state in
//! `sched_switch` is, the values that such fields have are tried: small ones, and single bits. What is found
//! is a guess until it is printed again.

use std::collections::HashMap;

use super::PrintFmt;
use super::eval::Context;
use super::expr::{Argument, Expr, Piece};
use super::names::each;
use super::spec::{Kind, Pointer, Spec};
use crate::Endian;
use crate::int::IntType;
use crate::output::Limited;
use crate::symbols::NoSymbols;

/// Values that are tried where an expression is printed: all below this, and single bits.
const TRIED: u64 = 4096;

/// How often a text is cut in another way when what follows does not fit.
const MOST_TURNS: u32 = 64;

/// How many values of a text may be no values, as what divides them may be anywhere in it.
const MOST_WRONG: u32 = 256;

/// Longest value that is no text of its own: a number, a name, or a list of flags.
const MAX_VALUE: usize = 4096;

/// Longest text that is kept of a value that was tried.
const MAX_TRIED_TEXT: usize = 256;

/// A value that a text was printed from, and the offset of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprinted<'t> {
    /// A number of so many bytes.
    Number {
        /// Where it is.
        offset: u32,
        /// Its bytes.
        size: u8,
        /// The number, in two's complement.
        value: u64,
    },
    /// A text in the field itself.
    Text {
        /// Where it is.
        offset: u32,
        /// How many bytes it may have with its NUL, if that is limited.
        len: Option<u32>,
        /// The text.
        text: &'t [u8],
    },
    /// A text that a word of offset and length leads to.
    Dynamic {
        /// Where the word is.
        offset: u32,
        /// Whether it counts from its own end (`__rel_loc`).
        relative: bool,
        /// The text.
        text: &'t [u8],
    },
}

/// Conversions without anything between them, and what follows them.
#[derive(Clone, Debug)]
struct Group {
    /// Indices of the pieces.
    start: usize,
    end: usize,
    after: Box<[u8]>,
}

/// What the text of a group says.
enum Solved<'t> {
    Value(Unprinted<'t>),
    /// Nothing: it is always the same.
    Constant,
}

/// What takes texts of an event apart.
#[derive(Clone, Debug)]
pub struct Unprinter {
    print_fmt: PrintFmt,
    before: Box<[u8]>,
    groups: Vec<Group>,
    /// By group: values by the text that is printed of them, where they were tried.
    tried: HashMap<usize, HashMap<Vec<u8>, u64>>,
}

impl Unprinter {
    /// One for the texts that `print_fmt` prints.
    pub fn new(print_fmt: &PrintFmt) -> Self {
        let mut before = Vec::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut open = false;
        for (index, piece) in print_fmt.pieces.iter().enumerate() {
            match (piece, groups.last_mut()) {
                (Piece::Text(text), None) => before.extend_from_slice(text.text()),
                (Piece::Text(text), Some(group)) => {
                    group.after = [&*group.after, text.text()].concat().into();
                    open = false;
                }
                (Piece::Argument(_), Some(group)) if open => group.end = index + 1,
                (Piece::Argument(_), _) => {
                    groups.push(Group { start: index, end: index + 1, after: Box::default() });
                    open = true;
                }
            }
        }
        Self { print_fmt: print_fmt.clone(), before: before.into(), groups, tried: HashMap::new() }
    }

    /// The values that a text was printed from; `None` if it was not, or if they cannot be told.
    pub fn unprint<'t>(&mut self, text: &'t [u8]) -> Option<Vec<Unprinted<'t>>> {
        let mut begin = text.len() - text.strip_prefix(&*self.before)?.len();
        // Where the text of each group begins, and how long it is.
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(self.groups.len());
        let mut found = Vec::with_capacity(self.groups.len());
        let (mut least, mut turns, mut wrong) = (0, 0, 0);
        loop {
            let index = places.len();
            let rest = text.get(begin..)?;
            if index == self.groups.len() && rest.is_empty() {
                return Some(found.into_iter().flatten().collect());
            }
            if let Some((len, value)) = self.cut(index, rest, least, &mut wrong) {
                places.push((begin, len));
                found.push(value);
                begin += len + self.groups.get(index)?.after.len();
                least = 0;
                continue;
            }
            // What divides values may be in one, as `:` is in names of threads.
            turns += 1;
            let (before, len) = places.pop().filter(|_| turns < MOST_TURNS)?;
            found.pop();
            (begin, least) = (before, len + 1);
        }
    }

    /// Length and value of a group at the beginning of a text, of at least so many bytes.
    fn cut<'t>(
        &mut self,
        index: usize,
        rest: &'t [u8],
        least: usize,
        wrong: &mut u32,
    ) -> Option<(usize, Option<Unprinted<'t>>)> {
        let Group { start, end, after } = self.groups.get(index)?.clone();
        let is_last = index + 1 == self.groups.len();
        let mut from = least;
        loop {
            let len = if is_last {
                rest.strip_suffix(&*after)?.len()
            } else {
                // Conversions are divided by something, or they were one group.
                let mut windows = rest.get(from..)?.windows(after.len().max(1));
                from + windows.position(|window| window == &*after)?
            };
            if len < least {
                return None;
            }
            if *wrong >= MOST_WRONG {
                return None;
            }
            match self.value(index, start..end, rest.get(..len)?) {
                Some(Solved::Value(value)) => return Some((len, Some(value))),
                Some(Solved::Constant) => return Some((len, None)),
                None if is_last => return None,
                None => (*wrong, from) = (*wrong + 1, len + 1),
            }
        }
    }

    /// The value of a group.
    fn value<'t>(
        &mut self,
        index: usize,
        pieces: std::ops::Range<usize>,
        text: &'t [u8],
    ) -> Option<Solved<'t>> {
        let of = self.print_fmt.pieces.get(pieces.clone())?;
        if let [Piece::Argument(Argument { spec, width: None, precision: None, value, .. })] = of
            && let Some(value) = direct(spec, without_casts(value), text)
        {
            return Some(Solved::Value(value));
        }
        let mut loads: Vec<(u32, IntType)> = Vec::new();
        let mut others = false;
        for piece in of {
            let Piece::Argument(Argument { width, precision, value, .. }) = piece else { continue };
            for expr in [width.as_ref(), precision.as_ref(), Some(value)].into_iter().flatten() {
                each(expr, &mut |expr| match expr {
                    Expr::Load { offset, int } if !loads.contains(&(*offset, *int)) => {
                        loads.push((*offset, *int));
                    }
                    Expr::Bytes { .. } | Expr::Dynamic { .. } | Expr::DynamicLen { .. } => others = true,
                    _ => {}
                });
            }
        }
        match loads.as_slice() {
            _ if text.len() > MAX_VALUE => None,
            [] if !others => Some(Solved::Constant),
            [(offset, int)] if !others => {
                let (offset, int) = (*offset, *int);
                if !self.tried.contains_key(&index) {
                    let tried = self.try_all(pieces, offset, int);
                    self.tried.insert(index, tried);
                }
                let value = *self.tried.get(&index)?.get(text)?;
                Some(Solved::Value(Unprinted::Number { offset, size: int.size, value }))
            }
            _ => None,
        }
    }

    /// What is printed of all values that are tried; of equal texts that of the smallest value.
    fn try_all(&self, pieces: std::ops::Range<usize>, offset: u32, int: IntType) -> HashMap<Vec<u8>, u64> {
        let mut texts = HashMap::new();
        let size = usize::from(int.size.min(8));
        let mut record = vec![0; offset as usize + size];
        let bits = (12..u32::from(int.size) * 8).map(|bit| 1_u64 << bit);
        for value in (0..TRIED).chain(bits).filter(|value| size == 8 || value >> (size * 8) == 0) {
            let bytes = match self.print_fmt.machine.endian {
                Endian::Little => value.to_le_bytes(),
                Endian::Big => (value << (64 - size as u32 * 8)).to_be_bytes(),
            };
            if let (Some(into), Some(bytes)) = (record.get_mut(offset as usize..), bytes.get(..size)) {
                into.copy_from_slice(bytes);
            }
            let mut text = Vec::new();
            let context = Context::new(&record, self.print_fmt.machine, &NoSymbols, self.print_fmt.pointers);
            let of = self.print_fmt.pieces.get(pieces.clone()).unwrap_or_default();
            context.pieces(&mut Limited::new(&mut text, MAX_TRIED_TEXT), of, false);
            texts.entry(text).or_insert(value);
        }
        texts
    }
}

fn without_casts(mut expr: &Expr) -> &Expr {
    while let Expr::Cast(_, inner) = expr {
        expr = inner;
    }
    expr
}

/// Place and size of a number of the record, which may be one of an array.
fn load(expr: &Expr) -> Option<(u32, u8)> {
    match without_casts(expr) {
        Expr::Load { offset, int } => Some((*offset, int.size)),
        Expr::Element { int, operands } => match &**operands {
            (Expr::Bytes { offset, .. }, Expr::Const(index)) => {
                let ahead = u32::try_from(*index).ok()?.checked_mul(int.size.into())?;
                Some((offset.checked_add(ahead)?, int.size))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The value of a conversion that prints a field by itself, or by a table.
fn direct<'t>(spec: &Spec, expr: &Expr, text: &'t [u8]) -> Option<Unprinted<'t>> {
    let number =
        |of: &Expr, value: u64| load(of).map(|(offset, size)| Unprinted::Number { offset, size, value });
    let is_text = matches!(expr, Expr::Bytes { .. } | Expr::Dynamic { .. });
    if !is_text && text.len() > MAX_VALUE {
        return None;
    }
    match (expr, spec.kind) {
        (_, Kind::Signed { .. }) if load(expr).is_some() => number(expr, radix(text, 10)?),
        (_, Kind::Unsigned { base, .. }) if load(expr).is_some() => {
            number(expr, radix(text, u32::from(base))?)
        }
        (_, Kind::Pointer(Pointer::Address)) if load(expr).is_some() => number(expr, radix(text, 16)?),
        (Expr::Load { .. }, Kind::Char) => match text {
            [byte] => number(expr, u64::from(*byte)),
            _ => None,
        },
        (Expr::Bytes { offset, len }, Kind::Text) => {
            Some(Unprinted::Text { offset: *offset, len: *len, text })
        }
        (Expr::Dynamic { offset, relative }, Kind::Text) => {
            Some(Unprinted::Dynamic { offset: *offset, relative: *relative, text })
        }
        (Expr::Symbolic { value, table }, Kind::Text) => {
            let named = table.iter().find(|(_, name)| &**name == text).map(|(value, _)| *value);
            number(value, named.or_else(|| radix(text, 16))?)
        }
        (Expr::Flags { value, delimiter, table }, Kind::Text) => {
            let mut bits = 0;
            let mut rest = text;
            while !rest.is_empty() {
                let end = rest.windows(delimiter.len().max(1)).position(|window| window == &**delimiter);
                let (name, behind) = match end {
                    Some(end) => (rest.get(..end)?, rest.get(end + delimiter.len()..)?),
                    None => (rest, &[][..]),
                };
                let named = table.iter().find(|(_, text)| &**text == name).map(|(value, _)| *value);
                bits |= named.or_else(|| radix(name, 16))?;
                rest = behind;
            }
            number(value, bits)
        }
        _ => None,
    }
}

/// A number with blanks around it, in two's complement.
fn radix(text: &[u8], base: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Some(digits) = text.strip_prefix('-') {
        return u64::from_str_radix(digits, base).ok().map(u64::wrapping_neg);
    }
    let digits = if base == 16 { text.strip_prefix("0x").unwrap_or(text) } else { text };
    u64::from_str_radix(digits, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Machine, NoNames};

    const FORMAT: &str = "name: sys_enter\nID: 22\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\n\
        print fmt: \"NR %ld (%lx, %lx)\", REC->id, REC->args[0], REC->args[1]\n";

    #[test]
    fn tries_are_bounded() {
        let format = Format::parse(FORMAT).unwrap();
        let print_fmt = PrintFmt::compile(&format, Machine::default(), &NoNames).unwrap();
        let mut unprinter = Unprinter::new(&print_fmt);
        let numbers = [(8, 1), (16, 0xa), (24, 0xb)];
        let numbers = numbers.map(|(offset, value)| Unprinted::Number { offset, size: 8, value });
        assert_eq!(unprinter.unprint(b"NR 1 (a, b)").unwrap(), numbers);
        // Each separator ends a value that may be as long as all that is before it: 2^42 bytes of values.
        let hostile = [b"NR 1 (", &b", ".repeat(1 << 21)[..], b"b)"].concat();
        assert_eq!(unprinter.unprint(&hostile), None);
        let long = [b"NR 1 (", &b" ".repeat(MAX_VALUE)[..], b"a, b)"].concat();
        assert_eq!(unprinter.unprint(&long), None);
    }
}
