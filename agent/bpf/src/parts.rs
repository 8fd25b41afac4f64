//! Putting programs together: from the functions of the object, and what is written at the start, as simple
//! as the constants make them.
//!
//! A program calls its other functions as helpers of numbers that no kernel has (`agent_ebpf::parts`,
//! [`super::relocation::Subprogram`]). What it calls is appended to it here. Functions are simplified by
//! themselves, so those of the object are once, however many programs have them.
//!
//! The verifier goes through a function of a program once for each call, and on from there for each way
//! through it. A function whose type information (`func_info` of `BPF_PROG_LOAD`) calls it global it checks
//! once, for any arguments, and of a call it knows no more than that a number comes back
//! (`do_check_subprogs`, kernel/bpf/verifier.c). That suits what programs do now and then, and has the most
//! branches. What every record needs, its two halves, is in the place of the calls, as these and their
//! returns cost a tenth of what an event does.

use std::{collections::BTreeSet, sync::OnceLock};

use agent_ebpf::parts;
use aya_obj::generated::bpf_insn;

use super::{
    insn::{Replacement, called, calls_placeholder, placeholder, replace_call},
    relocation::Subprogram,
    simplify::{Constants, fits_stack, inline, simplify},
    sys::{FunctionInfo, Program, ProgramKind},
};

/// What an object's programs are put together from.
#[derive(Debug, Default)]
pub struct Parts {
    /// What is in the maps that never change.
    constants: Constants,
    functions: Vec<Part>,
    /// Whether the two halves of a record are in the place of their calls.
    may_inline: bool,
}

/// A function of the object, with those that it calls.
#[derive(Debug)]
struct Part {
    /// What it is called by.
    number: i32,
    code: Vec<bpf_insn>,
    simple: OnceLock<Vec<bpf_insn>>,
    /// Its number in the type information.
    type_id: u32,
}

/// A program, ready to be loaded.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its functions, the main one first.
    pub instructions: Vec<bpf_insn>,
    /// Where each of them begins, and its type; nothing if none is checked by itself.
    pub(crate) functions: Vec<FunctionInfo>,
}

impl Code {
    /// What the kernel is given of it, for a hook that no type tells.
    pub fn program<'c>(&'c self, kind: ProgramKind, name: &'c str) -> Program<'c> {
        Program { functions: &self.functions, ..Program::new(kind, name, &self.instructions) }
    }

    /// A program that calls its functions with preemption disabled by itself, which kernels refuse for those
    /// that they check by themselves (`check_func_call`, kernel/bpf/verifier.c).
    #[must_use]
    pub fn all_ordinary(self) -> Self {
        Self { functions: Vec::new(), ..self }
    }
}

impl Parts {
    /// With `may_inline`, what every record needs is in the place of its calls: then the kernel's stack has
    /// no frame of it.
    pub fn new(constants: Constants, may_inline: bool) -> Self {
        Self { constants, functions: Vec::new(), may_inline }
    }

    /// Adds a function that programs call by `number`. Those in `agent_ebpf::parts::APART` are verified by
    /// themselves.
    pub fn add(&mut self, number: i32, code: &[bpf_insn]) {
        let part = parts::APART.iter().position(|(apart, ..)| *apart == number);
        let type_id = part.map_or(ORDINARY, apart_type);
        self.functions.push(Part { number, code: code.to_vec(), simple: OnceLock::new(), type_id });
    }

    /// A program, with its functions: `own` are those that are not the object's, and what they are called by.
    /// Where it has no filter of its own, what it is asked is true.
    pub fn join(&self, mut code: Vec<bpf_insn>, own: Vec<(i32, Vec<bpf_insn>)>) -> Code {
        if own.iter().all(|(number, _)| *number != parts::EVENT_FILTER) {
            let asks = code.iter_mut().filter(|insn| calls_placeholder(**insn, parts::EVENT_FILTER));
            asks.for_each(|call| replace_call(call, Replacement::Value(1)));
        }
        let own: Vec<(i32, Vec<bpf_insn>)> =
            own.into_iter().map(|(number, code)| (number, simplify(code, &self.constants))).collect();
        let code = simplify(code, &self.constants);
        if self.may_inline {
            let halves = [Subprogram::Begin, Subprogram::End].map(Subprogram::placeholder);
            let halves = halves.into_iter().filter_map(|of| Some((of, self.function(of, &own)?.0)));
            let inlined = self.append(inline(code.clone(), &halves.collect::<Vec<_>>()), &own);
            // What the program has on its stack is there also while it calls something else.
            if fits_stack(&inlined.instructions) {
                return inlined;
            }
        }
        self.append(code, &own)
    }

    /// A main function, with those that it calls and those that they call.
    fn append(&self, mut code: Vec<bpf_insn>, own: &[(i32, Vec<bpf_insn>)]) -> Code {
        let mut appended: Vec<(i32, usize, u32)> = Vec::new();
        let mut at = 0;
        while let Some(number) = code.get(at).map(|insn| placeholder(*insn)) {
            if let Some(number) = number
                && let Some((function, type_id)) = self.function(number, own)
            {
                let known = appended.iter().find(|of| of.0 == number).map(|of| of.1);
                let start = known.unwrap_or_else(|| {
                    let start = code.len();
                    appended.push((number, start, type_id));
                    code.extend_from_slice(function);
                    start
                });
                replace_call(&mut code[at], Replacement::Function(start as i32 - at as i32 - 1));
            }
            at += 1;
        }
        let apart = appended.iter().filter(|of| of.2 != ORDINARY).map(|of| (of.1, of.2));
        let functions = functions(&code, &apart.collect::<Vec<_>>());
        Code { instructions: code, functions }
    }

    /// The function that is called by `number`, and its type.
    fn function<'f>(&'f self, number: i32, own: &'f [(i32, Vec<bpf_insn>)]) -> Option<(&'f [bpf_insn], u32)> {
        if let Some((_, code)) = own.iter().find(|of| of.0 == number) {
            return Some((code, ORDINARY));
        }
        let part = self.functions.iter().find(|part| part.number == number)?;
        let simple = part.simple.get_or_init(|| simplify(part.code.clone(), &self.constants));
        Some((simple, part.type_id))
    }
}

/// The functions of a program, of which those that begin at `apart` have these types; nothing if there are
/// none of these.
fn functions(code: &[bpf_insn], apart: &[(usize, u32)]) -> Vec<FunctionInfo> {
    if apart.is_empty() {
        return Vec::new();
    }
    let called = code.iter().enumerate().filter_map(|(at, insn)| called(*insn, at));
    let all: BTreeSet<usize> = called.chain([0]).collect();
    let type_of = |at: usize| match apart.iter().find(|of| of.0 == at) {
        Some((_, type_id)) => *type_id,
        None if at == 0 => MAIN,
        None => ORDINARY,
    };
    all.into_iter().map(|at| FunctionInfo { offset: at as u32, type_id: type_of(at) }).collect()
}

// Numbers of types: the integer, the prototype of ordinary functions, they themselves, the main one; then for
// each function apart its prototype and the function.
const INTEGER: u32 = 1;
const PROTOTYPE: u32 = 2;
const ORDINARY: u32 = 3;
const MAIN: u32 = 4;

fn apart_type(part: usize) -> u32 {
    MAIN + 2 * (part as u32 + 1)
}

/// Type information of the functions of a program of this name (Documentation/bpf/btf.rst), which profilers
/// and bpftool show. The verifier compares nothing with the prototype of a function that is not global.
pub fn types_of(program: &str) -> Vec<u8> {
    const INT: u32 = 1;
    const FUNC: u32 = 12;
    const FUNC_PROTO: u32 = 13;
    const GLOBAL: u32 = 1;
    const HEADER_LEN: u32 = 24;
    let mut strings = vec![0];
    let mut name = |name: &str| {
        let at = strings.len() as u32;
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
        at
    };
    let head = |name, kind, low, size_or_type| [name, kind << 24 | low, size_or_type];
    let (integer, number) = (name("u64"), name("number"));
    let mut words: Vec<u32> = Vec::new();
    words.extend(head(integer, INT, 0, 8));
    words.push(64);
    words.extend(head(0, FUNC_PROTO, 0, INTEGER));
    words.extend(head(name("part"), FUNC, 0, PROTOTYPE));
    words.extend(head(name(&identifier(program)), FUNC, 0, PROTOTYPE));
    for (part, &(_, function, arguments)) in parts::APART.iter().enumerate() {
        words.extend(head(0, FUNC_PROTO, arguments, INTEGER));
        words.extend((0..arguments).flat_map(|_| [number, INTEGER]));
        words.extend(head(name(function), FUNC, GLOBAL, apart_type(part) - 1));
    }
    let (types_len, strings_len) = (4 * words.len() as u32, strings.len() as u32);
    // The magic number, version 1 and no flags.
    let magic = u32::from_ne_bytes([0xeb9f_u16.to_ne_bytes()[0], 0xeb9f_u16.to_ne_bytes()[1], 1, 0]);
    let header = [magic, HEADER_LEN, 0, types_len, types_len, strings_len];
    let words = header.into_iter().chain(words).flat_map(u32::to_ne_bytes);
    words.chain(strings).collect()
}

/// A name that BTF takes for a function: one of C, of less than 128 bytes (`btf_name_valid_identifier`,
/// kernel/bpf/btf.c).
fn identifier(name: &str) -> String {
    const MAX: usize = 100;
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let first = if starts { "" } else { "_" };
    first.chars().chain(name.chars().map(allowed)).take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::{Assembler, Insn, R0};
    use kernel::btf::Btf;

    fn call(number: i32) -> bpf_insn {
        let mut code = Assembler::default();
        code.call_helper(number);
        code.finish().unwrap().0[0].into()
    }

    fn function(value: i64, calls: Option<i32>) -> Vec<bpf_insn> {
        let mut code = Assembler::default();
        code.load_imm(R0, value);
        code.exit();
        let end = code.finish().unwrap().0;
        calls.map(call).into_iter().chain(end.into_iter().map(bpf_insn::from)).collect()
    }

    #[test]
    fn a_part_is_appended_once_with_what_it_calls() {
        let mut parts = Parts::default();
        parts.add(parts::EVENT_FILTER, &function(1, None));
        parts.add(parts::FLUSH, &function(3, Some(parts::MAKE_ROOM)));
        parts.add(parts::MAKE_ROOM, &function(2, None));
        let main = [vec![call(parts::FLUSH), call(parts::FLUSH)], function(0, None)].concat();
        let Code { instructions, functions, .. } = parts.join(main, Vec::new());
        // The main function has 4 instructions, the one that flushes 3, the one that makes room 2.
        assert_eq!(instructions.len(), 9);
        let called: Vec<_> = instructions.iter().enumerate().filter_map(|(at, i)| called(*i, at)).collect();
        assert_eq!(called, [4, 4, 7]);
        let known: Vec<(u32, u32)> = functions.iter().map(|of| (of.offset, of.type_id)).collect();
        assert_eq!(known, [(0, MAIN), (4, apart_type(2)), (7, apart_type(0))]);
        let alone = parts.join(function(0, None), Vec::new());
        assert_eq!((alone.instructions.len(), alone.functions.len()), (2, 0));
    }

    #[test]
    fn what_no_filter_is_asked_is_true() {
        let main = [vec![call(parts::EVENT_FILTER)], vec![function(0, None)[1]]].concat();
        let joined = Parts::default().join(main.clone(), Vec::new()).instructions;
        let insns = |code: Vec<bpf_insn>| code.into_iter().map(Insn::from).collect::<Vec<_>>();
        assert_eq!(insns(joined), insns(function(1, None)));
        let own = vec![(parts::EVENT_FILTER, function(0, None))];
        let joined = Parts::default().join(main, own).instructions;
        assert_eq!((joined.len(), called(joined[0], 0)), (4, Some(2)));
    }

    #[test]
    fn the_types_are_those_of_the_functions() {
        let btf = Btf::parse(types_of("9p:client.req")).unwrap();
        assert_eq!(btf.type_count(), 4 + 2 * parts::APART.len());
        assert_eq!(btf.function("_9p_client_req").unwrap().0, MAIN);
        for (part, (_, name, arguments)) in parts::APART.into_iter().enumerate() {
            let function = btf.function(name).unwrap();
            assert_eq!(function.0, apart_type(part));
            assert_eq!(btf.prototype(function).unwrap().arguments.len(), arguments as usize);
        }
    }
}
