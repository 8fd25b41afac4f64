//! Functions in the place of their calls.
//!
//! A call with its return is a few instructions more: a frame is made, and registers that the function has to
//! leave alone are stored and fetched again. But where the kernel has returns predicted wrongly on purpose,
//! as on many of AMD's processors, a return takes as long as dozens of others.
//!
//! The function gets a part of the caller's stack, below what that uses itself. Those of the registers R6 to
//! R9 are kept there meanwhile that it uses and the caller needs afterwards: the verifier refuses to store
//! what has no value yet.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Program,
    decode::{LDX, ST, STX},
};
use crate::insn::{EXIT, GOTO, Insn};

/// The frame pointer.
const FRAME: usize = 10;
/// `MAX_BPF_STACK` (include/linux/filter.h).
const STACK: i16 = 512;
/// Bytes of a register.
const REGISTER: i16 = 8;
/// Stores and loads of 64 bits.
const STORE: u8 = 0x7b;
const LOAD: u8 = 0x79;
/// A jump whose distance is in the immediate.
const LONG_GOTO: u8 = 0x06;
/// The registers that a function leaves alone.
const LEFT_ALONE: std::ops::RangeInclusive<u8> = 6..=9;

impl Program<'_> {
    /// The program with a function in the place of the call at `call`, which uses so many bytes of the stack
    /// itself; `None` if one of the two has something that cannot be moved. Functions that it calls follow
    /// the program's own.
    pub(crate) fn inlined(&self, call: usize, function: &[Insn], depth: i16) -> Option<Vec<Insn>> {
        let program = &self.code;
        let live = self.live(&vec![true; program.len()])?.get(call)?.registers;
        let (body, rest) = function.split_at(first_function(function));
        let is_kept = |reg: &u8| live & 1 << *reg != 0 && uses(body, *reg);
        let kept: Vec<u8> = LEFT_ALONE.filter(is_kept).collect();
        let below = depth + REGISTER * kept.len() as i16;
        if below + self::depth(body)? > STACK {
            return None;
        }
        let slots = || (1..).map(|index| -depth - REGISTER * index).zip(&kept);
        let store = slots().map(|(off, reg)| Insn { code: STORE, regs: FRAME as u8 | reg << 4, off, imm: 0 });
        let fetch =
            slots().map(|(off, reg)| Insn { code: LOAD, regs: reg | (FRAME as u8) << 4, off, imm: 0 });
        // Where what was at an index of either is now.
        let more = 2 * kept.len() + body.len() - 1;
        let of_program = |at: usize| if at > call { at + more } else { at };
        let of_function = |at: usize| match at.checked_sub(body.len()) {
            Some(behind) => program.len() + more + behind,
            None => call + kept.len() + at,
        };
        let around = |at: usize| placed(program[at], at, &of_program);
        let inside = |at: usize| match body[at].code {
            EXIT => Some(Insn { off: i16::try_from(body.len() - at - 1).ok()?, ..Insn::NOTHING }),
            _ => placed(lowered(body, at, below)?, at, &of_function),
        };
        let behind = |at: usize| placed(function[at], at, &of_function);
        let before = (0..call).map(around).chain(store.map(Some));
        let inner = (0..body.len()).map(inside).chain(fetch.map(Some));
        let after = (call + 1..program.len()).map(around);
        let rest = (body.len()..body.len() + rest.len()).map(behind);
        before.chain(inner).chain(after).chain(rest).collect()
    }
}

/// Where the first function begins that a function calls, and so where it ends itself.
fn first_function(code: &[Insn]) -> usize {
    code.iter()
        .enumerate()
        .filter_map(|(at, insn)| insn.called(at))
        .min()
        .unwrap_or(code.len())
        .min(code.len())
}

/// Whether some instruction reads or writes a register.
fn uses(code: &[Insn], register: u8) -> bool {
    code.iter().any(|insn| {
        let (read, written) = insn.registers();
        (read | written) & 1 << register != 0
    })
}

/// What an instruction has to do with its function's stack.
enum OfStack {
    Nothing,
    /// It loads or stores at this offset from the frame pointer.
    Access(i16),
    /// It and the next one, which adds to what it copies, take the address at this offset.
    Address(i16),
    Unknown,
}

impl OfStack {
    fn of(code: &[Insn], at: usize) -> Self {
        let insn = code[at];
        let (is_source, is_target) = (insn.src() == FRAME, insn.dst() == FRAME);
        match insn.class() {
            _ if !is_source && !is_target => Self::Nothing,
            LDX if !is_target && insn.is_plain_access() => Self::Access(insn.off),
            ST | STX if !is_source && insn.is_plain_access() => Self::Access(insn.off),
            _ if insn.is_copy() && !is_target => {
                let sum = code.get(at + 1).filter(|sum| sum.is_sum() && sum.dst() == insn.dst());
                let offset = sum.and_then(|sum| i16::try_from(sum.imm).ok());
                offset.map_or(Self::Unknown, Self::Address)
            }
            _ => Self::Unknown,
        }
    }
}

/// How many bytes of its stack a function uses, those up to the next multiple of 8 included; `None` if it
/// takes the address in a way that is not known here. Functions that follow it have stacks of their own.
pub(crate) fn depth(code: &[Insn]) -> Option<i16> {
    depth_of(&code[..first_function(code)])
}

/// The same of one function alone.
fn depth_of(code: &[Insn]) -> Option<i16> {
    let mut lowest = 0;
    for at in 0..code.len() {
        match OfStack::of(code, at) {
            OfStack::Nothing => {}
            OfStack::Access(offset) | OfStack::Address(offset) => lowest = lowest.min(offset),
            OfStack::Unknown => return None,
        }
    }
    (lowest >= -STACK).then_some((REGISTER - 1 - lowest) / REGISTER * REGISTER)
}

/// Whether all functions that call one another have room on one stack. Before 6.11 the kernel rounds what
/// each uses up to a multiple of 32 bytes (`check_max_stack_depth_subprog`, kernel/bpf/verifier.c).
pub(crate) fn fits_stack(program: &[Insn]) -> bool {
    const ROUNDED: i16 = 32;
    let called = program.iter().enumerate().filter_map(|(at, insn)| insn.called(at));
    let starts: BTreeSet<usize> = called.chain([0]).filter(|start| *start < program.len()).collect();
    // From the last one, as functions mostly call those that follow; until nothing changes for the others.
    let mut needed: BTreeMap<usize, i16> = BTreeMap::new();
    for _ in 0..=starts.len() {
        let before = needed.clone();
        for &start in starts.iter().rev() {
            let end = starts.range(start + 1..).next().copied().unwrap_or(program.len());
            let Some(own) = depth_of(&program[start..end]) else { return false };
            let calls = (start..end).filter_map(|at| program[at].called(at));
            let below = calls.map(|function| needed.get(&function).copied().unwrap_or(0)).max().unwrap_or(0);
            let all = (own.max(1) + ROUNDED - 1) / ROUNDED * ROUNDED + below;
            if all > STACK {
                return false;
            }
            needed.insert(start, all);
        }
        if needed == before {
            return true;
        }
    }
    // Functions that call themselves.
    false
}

/// An instruction of a function with its part of the stack so many bytes lower.
fn lowered(function: &[Insn], at: usize, below: i16) -> Option<Insn> {
    let insn = function[at];
    let before = at.checked_sub(1).map(|before| OfStack::of(function, before));
    match (OfStack::of(function, at), before) {
        (_, Some(OfStack::Address(_))) => Some(Insn { imm: insn.imm - i32::from(below), ..insn }),
        (OfStack::Access(offset), _) => Some(Insn { off: offset - below, ..insn }),
        (OfStack::Nothing | OfStack::Address(_), _) => Some(insn),
        (OfStack::Unknown, _) => None,
    }
}

/// An instruction that was at `at`, with its jump or call, where `place` says what has become of each index.
fn placed(insn: Insn, at: usize, place: &dyn Fn(usize) -> usize) -> Option<Insn> {
    let distance = |to: usize| place(to) as i64 - place(at) as i64 - 1;
    if let Some(function) = insn.called(at) {
        return Some(Insn { imm: i32::try_from(distance(function)).ok()?, ..insn });
    }
    if insn.code == LONG_GOTO {
        return None;
    }
    if insn.code == GOTO || insn.is_jump() {
        return Some(Insn { off: i16::try_from(distance(insn.target(at)?)).ok()?, ..insn });
    }
    Some(insn)
}
