//! What part of its stack a function uses through the frame pointer alone.
//!
//! Compilers keep there what they have no register for. Nobody else reaches it: the address of an object that
//! is handed on leads to what is at it and above, and compilers have their own words below all objects. So
//! nothing below the lowest address that is taken in a function changes but by the stores that name it.

use super::decode::{LDX, ST, STX};
use crate::insn::Insn;

/// The frame pointer.
const FRAME: usize = 10;
/// `MAX_BPF_STACK` (include/linux/filter.h).
const BYTES: i16 = 512;
const WORD: i16 = 4;

/// The words of a function's stack, a bit for each, the lowest first.
pub(crate) type Words = u128;

/// Bytes of the stack that only loads and stores through the frame pointer reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackRange {
    /// Relative to the frame pointer.
    pub(super) offset: i16,
    pub(super) size: u8,
}

impl StackRange {
    /// Where it ends.
    pub(crate) fn end(self) -> i16 {
        self.offset + i16::from(self.size)
    }

    /// Whether the two have bytes in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// The words that it touches.
    pub(crate) fn touched(self) -> Words {
        let words = (self.offset + BYTES) / WORD..=(self.end() - 1 + BYTES) / WORD;
        words.fold(0, |all, word| all | 1 << word)
    }

    /// The words that it fills.
    pub(crate) fn filled(self) -> Words {
        if self.offset % WORD == 0 && i16::from(self.size) % WORD == 0 { self.touched() } else { 0 }
    }
}

/// The stacks of a program's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Where each function begins, and what is the lowest address that is taken there.
    functions: Vec<(usize, i16)>,
}

impl Stack {
    pub(crate) fn of(code: &[Insn]) -> Self {
        let mut starts: Vec<usize> = std::iter::once(0)
            .chain(code.iter().enumerate().filter_map(|(at, insn)| insn.called(at)))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).copied().chain([code.len()]);
        let functions = starts.iter().zip(ends).map(|(&start, end)| {
            let inside = code.get(start..end).unwrap_or_default();
            (start, lowest_taken(inside))
        });
        Self { functions: functions.collect() }
    }

    /// The range that the load or store `insn` at `at` is about.
    pub(crate) fn range(&self, at: usize, insn: Insn) -> Option<StackRange> {
        let function = self.functions.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        let (_, lowest) = *self.functions.get(function)?;
        own_range(insn).filter(|range| range.end() <= lowest)
    }
}

/// What a load or store through the frame pointer is about.
fn own_range(insn: Insn) -> Option<StackRange> {
    let base = match insn.class() {
        LDX => insn.src(),
        ST | STX => insn.dst(),
        _ => return None,
    };
    let is_own = base == FRAME && (-BYTES..0).contains(&insn.off);
    is_own.then_some(StackRange { offset: insn.off, size: insn.size() as u8 })
}

/// The lowest address that is taken in a function, or the lowest one of what is loaded or stored across that.
fn lowest_taken(function: &[Insn]) -> i16 {
    let next = function.iter().skip(1).copied().map(Some).chain([None]);
    let mut lowest = function.iter().zip(next).map(|(insn, next)| taken(*insn, next)).min().unwrap_or(0);
    loop {
        let across = function
            .iter()
            .filter_map(|insn| own_range(*insn))
            .filter(|range| range.offset < lowest && range.end() > lowest);
        match across.map(|range| range.offset).min() {
            Some(offset) => lowest = offset,
            None => return lowest,
        }
    }
}

/// The lowest address that an instruction makes reachable, relative to the frame pointer; 0 if none.
fn taken(insn: Insn, next: Option<Insn>) -> i16 {
    let (is_source, is_target) = (insn.src() == FRAME, insn.dst() == FRAME);
    match insn.class() {
        LDX if insn.code & 0xe0 == 0x60 || !is_source => 0,
        ST | STX if insn.code & 0xe0 == 0x60 && !is_source => 0,
        _ if insn.is_copy() && is_source => {
            let sum = next.filter(|next| next.is_sum() && next.dst() == insn.dst());
            let offset = sum.and_then(|sum| i16::try_from(sum.imm).ok());
            offset.filter(|offset| (-BYTES..0).contains(offset)).unwrap_or(-BYTES)
        }
        _ if is_source || is_target => -BYTES,
        _ => 0,
    }
}
