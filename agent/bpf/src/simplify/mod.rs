//! Programs without what the constants of a recording make superfluous.
//!
//! Programs ask constants that are set before they are loaded (`agent_ebpf::globals`). The kernel's verifier
//! knows the values, and drops branches that are never taken; but the loads stay, and so does everything that
//! was computed for such a branch. Here loads of constants become constants, what follows from them is
//! computed, and what nobody asks for is left out: a third of the instructions that an event runs, and of
//! those that the verifier walks through.
//!
//! The passes are those of a compiler, one module each:
//!
//! | pass | what it does |
//! |---|---|
//! | `constants` | conditional constant propagation (Wegman and Zadeck, 1991) through registers and the stack |
//! | `addresses` | sums become the offsets of the loads and stores that they are made for |
//! | `inline` | functions in the place of their calls, after the others |
//! | `dead` | removal of what cannot be reached, and of results and stores that nobody reads, until nothing changes |
//!
//! Memory but for the constants and the stack is left alone. A program with an instruction that is not known
//! here stays what it is.

mod addresses;
mod constants;
mod dead;
mod decode;
mod inline;
mod stack;

use aya_obj::generated::bpf_insn;

use self::stack::Stack;
use super::insn::{EXIT, GOTO, Insn, LD_IMM64, calls_placeholder};

/// The content of a map that never changes, by the map's descriptor.
pub(crate) type Constants = Vec<(i32, Vec<u8>)>;

const REGISTERS: usize = 11;

/// Where the flow goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nowhere,
    One(usize),
    Two(usize, usize),
}

impl Next {
    fn each(self) -> impl Iterator<Item = usize> {
        let (a, b) = match self {
            Self::Nowhere => (None, None),
            Self::One(a) => (Some(a), None),
            Self::Two(a, b) => (Some(a), Some(b)),
        };
        a.into_iter().chain(b)
    }
}

/// Simplifies a program, whose functions follow one another, the main one first.
pub(crate) fn simplify(code: Vec<bpf_insn>, constants: &Constants) -> Vec<bpf_insn> {
    let insns = code.iter().map(|insn| Insn::from(*insn)).collect();
    match Program::new(insns, constants).simplify() {
        Some(simple) => simple.into_iter().map(bpf_insn::from).collect(),
        None => code,
    }
}

/// Puts functions in the place of their calls in a program, each of which has a number that it is called by.
/// Those that are called several times, or cannot be moved, stay called.
pub(crate) fn inline(code: Vec<bpf_insn>, functions: &[(i32, &[bpf_insn])]) -> Vec<bpf_insn> {
    let insns = |code: &[bpf_insn]| code.iter().map(|insn| Insn::from(*insn)).collect::<Vec<_>>();
    let mut all = insns(&code);
    let Some(depth) = inline::depth(&all) else { return code };
    for &(number, function) in functions {
        let is_call = |insn: &Insn| calls_placeholder((*insn).into(), number);
        let mut calls = (0..all.len()).filter(|at| is_call(&all[*at]));
        if let (Some(call), None) = (calls.next(), calls.next())
            && let Some(more) = Program::new(all.clone(), &Vec::new()).inlined(call, &insns(function), depth)
        {
            all = more;
        }
    }
    all.into_iter().map(bpf_insn::from).collect()
}

/// Whether the functions of a program that call one another have room on the stack that they share, as far as
/// it is known what each of them uses.
pub(crate) fn fits_stack(code: &[bpf_insn]) -> bool {
    inline::fits_stack(&code.iter().map(|insn| Insn::from(*insn)).collect::<Vec<_>>())
}

struct Program<'a> {
    pub code: Vec<Insn>,
    constants: &'a Constants,
    stack: Stack,
}

impl<'a> Program<'a> {
    fn new(code: Vec<Insn>, constants: &'a Constants) -> Self {
        let stack = Stack::of(&code);
        Self { code, constants, stack }
    }

    fn simplify(mut self) -> Option<Vec<Insn>> {
        let states = self.propagate()?;
        for (at, state) in states.iter().enumerate() {
            if let Some(state) = state {
                self.rewrite(at, state)?;
            }
        }
        let mut used: Vec<bool> = states.iter().map(Option::is_some).collect();
        self.drop_extensions(&states)?;
        self.thread_jumps(&used)?;
        self.remove_all_dead(&mut used)?;
        self.follow_copies(&used)?;
        self.fold_sums(&mut used)?;
        self.remove_all_dead(&mut used)?;
        self.compact(&used)
    }

    /// Where the flow goes after an instruction that decides nothing.
    fn next(&self, at: usize) -> Option<Next> {
        let insn = *self.code.get(at)?;
        Some(match insn.code {
            EXIT => Next::Nowhere,
            LD_IMM64 => Next::One(at + 2),
            GOTO => Next::One(insn.target(at)?),
            _ if insn.is_jump() => Next::Two(at + 1, insn.target(at)?),
            _ => Next::One(at + 1),
        })
    }

    /// The instruction after one.
    fn behind(&self, at: usize) -> usize {
        if self.code[at].code == LD_IMM64 { at + 2 } else { at + 1 }
    }

    /// Whether this is no instruction, but the second half of one.
    fn is_upper_half(&self, at: usize) -> bool {
        at > 0 && self.code[at - 1].code == LD_IMM64 && self.code[at].code == 0
    }

    /// Which instructions some jump goes to, or some call.
    fn targets(&self, used: &[bool]) -> Option<Vec<bool>> {
        let mut targets = vec![false; self.code.len()];
        for at in (0..self.code.len()).filter(|at| used[*at] && !self.is_upper_half(*at)) {
            let insn = self.code[at];
            if insn.code == GOTO || insn.is_jump() {
                *targets.get_mut(insn.target(at)?)? = true;
            } else if let Some(function) = insn.called(at) {
                *targets.get_mut(function)? = true;
            }
        }
        Some(targets)
    }
}

#[cfg(test)]
mod tests;
