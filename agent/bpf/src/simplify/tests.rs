//! Programs that are simplified compute what they did.

use super::{
    constants::{State, Value, number32, number64},
    decode::{ALU32, JMP32, MOV, PSEUDO_FUNC},
    *,
};
use crate::insn::{ALU64, Alu, CALL, PSEUDO_CALL, PSEUDO_MAP_VALUE, X};

/// `main` of a program, run: R0 at its end. Memory is a map of constants, and the stack.
fn run(code: &[Insn], constants: &Constants, context: u64) -> u64 {
    call(code, constants, 0, [0, context, 1, 2, 3, 4])
}

/// The frame pointer.
const FRAME: u8 = 0xa;
const STACK: u64 = 1 << 40;
const DATA: u64 = 1 << 41;

fn call(code: &[Insn], constants: &Constants, start: usize, arguments: [u64; 6]) -> u64 {
    let mut r = [0u64; REGISTERS];
    r[..6].copy_from_slice(&arguments);
    r[10] = STACK + 512;
    let (mut stack, mut at) = ([0u8; 512], start);
    for _ in 0..10_000 {
        let insn = code[at];
        let (to, from) = (insn.dst(), insn.src());
        let effective = |base: u64| base.wrapping_add_signed(insn.off.into());
        match insn.class() {
            _ if insn.code == LD_IMM64 => {
                r[to] = if from == 0 {
                    u64::from(insn.imm as u32) | (code[at + 1].imm as u64) << 32
                } else {
                    DATA + u64::from(code[at + 1].imm as u32)
                };
                at += 1;
            }
            _ if insn.code == EXIT => return r[0],
            _ if insn.code == CALL && from == 1 => {
                let to = (at as i64 + 1 + i64::from(insn.imm)) as usize;
                let arguments = std::array::from_fn(|index| r[index]);
                r[0] = call(code, constants, to, arguments);
                // What a call leaves in them, nobody may read.
                r[1..6].fill(0xdead);
            }
            1 => {
                let address = effective(r[from]);
                let bytes = if address >= DATA {
                    &constants[0].1[(address - DATA) as usize..]
                } else {
                    &stack[(address - STACK) as usize..]
                };
                let mut number = [0; 8];
                number[..insn.size()].copy_from_slice(&bytes[..insn.size()]);
                r[to] = u64::from_le_bytes(number);
            }
            2 | 3 => {
                let address = (effective(r[to]) - STACK) as usize;
                let value = if insn.class() == 3 { r[from] } else { i64::from(insn.imm) as u64 };
                stack[address..address + insn.size()].copy_from_slice(&value.to_le_bytes()[..insn.size()]);
            }
            ALU32 | ALU64 => {
                let b = if insn.code & X != 0 { r[from] } else { i64::from(insn.imm) as u64 };
                let op = insn.code & 0xf0;
                r[to] = if insn.class() == ALU64 {
                    number64(op, r[to], b).unwrap()
                } else {
                    number32(op, r[to] as u32, b as u32).unwrap().into()
                };
            }
            _ if insn.code == GOTO => at = insn.target(at).unwrap() - 1,
            _ => {
                let numbers = State::of(std::array::from_fn(|index| Value::Number(r[index])));
                if insn.decided(&numbers).unwrap() {
                    at = insn.target(at).unwrap() - 1;
                }
            }
        }
        at += 1;
    }
    panic!("no end");
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pick(&mut self, of: &[u8]) -> u8 {
        of[self.below(of.len() as u64) as usize]
    }
}

const OPS: [u8; 11] = [0x00, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0x80, 0xa0, MOV, 0xc0];
const CONDITIONS: [u8; 11] = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0];

/// A function of random instructions, whose jumps go forwards, and which writes its registers before it reads
/// them. The upper half of its stack is an object whose address it takes.
fn function(chance: &mut Chance, calls: bool) -> Vec<Insn> {
    let mut code: Vec<Insn> = Vec::new();
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    for register in [0u8, 6, 7, 8, 9] {
        code.push(insn(ALU64 | MOV | X, register | 1 << 4, 0, 0));
    }
    for slot in 1..=8 {
        code.push(insn(0x7b, FRAME | 1 << 4, slot * -8, 0));
    }
    let len = 10 + chance.below(30);
    let begin = code.len();
    // What jumps may go to: nothing in the middle of what belongs together.
    let mut starts = Vec::new();
    for _ in 0..len {
        starts.push(code.len());
        let (to, from) = (chance.pick(&[0, 6, 7, 8, 9]), chance.pick(&[0, 6, 7, 8, 9]));
        let imm = [0, 1, -1, 40, i32::MAX, i32::MIN][chance.below(6) as usize];
        let size = chance.pick(&[0, 0x08, 0x10, 0x18]);
        match chance.below(13) {
            0 | 1 => {
                code.push(insn(LD_IMM64, 1 | PSEUDO_MAP_VALUE << 4, 0, 77));
                code.push(insn(0, 0, 0, chance.below(6) as i32 * 8));
                code.push(insn(0x61 | size, to | 1 << 4, 0, 0));
            }
            // Words and parts of words, above and below what the address is taken of.
            2 => code.push(insn(0x63 | size, FRAME | from << 4, -8 - 4 * chance.below(15) as i16, 0)),
            3 => code.push(insn(0x61 | size, to | FRAME << 4, -8 - 4 * chance.below(15) as i16, 0)),
            4 => code.push(insn(0x62 | size, FRAME, -8 - 4 * chance.below(15) as i16, imm)),
            5 | 6 => {
                let class = chance.pick(&[5, JMP32]) | chance.pick(&CONDITIONS) | chance.pick(&[0, X]);
                let regs = to | if class & X != 0 { from << 4 } else { 0 };
                // Made right below.
                code.push(insn(class, regs, 1 + chance.below(12) as i16, imm));
            }
            7 if calls => {
                code.push(insn(ALU64 | MOV | X, 1 | from << 4, 0, 0));
                code.push(insn(CALL, PSEUDO_CALL << 4, 0, 0));
            }
            8 => addresses(chance, &mut code, to, from),
            9 => {
                // A copy that is used, and a shift there and back.
                code.push(insn(ALU64 | MOV | X, 2 | from << 4, 0, 0));
                if chance.below(2) == 0 {
                    code.push(insn(ALU64 | Alu::Lsh as u8, 2, 0, 32));
                    code.push(insn(ALU64 | Alu::Rsh as u8, 2, 0, 32));
                }
                if chance.below(2) == 0 {
                    code.push(insn(ALU64 | chance.pick(&OPS), from, 0, imm));
                }
                code.push(insn(chance.pick(&[ALU32, ALU64]) | chance.pick(&OPS) | X, to | 2 << 4, 0, 0));
            }
            _ => {
                let class = chance.pick(&[ALU32, ALU64]) | chance.pick(&OPS) | chance.pick(&[0, X]);
                let regs = to | if class & X != 0 { from << 4 } else { 0 };
                code.push(insn(class, regs, 0, imm));
            }
        }
    }
    starts.push(code.len());
    code.push(insn(EXIT, 0, 0, 0));
    for at in begin..code.len() {
        if code[at].is_jump() {
            let wanted = at + code[at].off as usize;
            let target = starts.iter().find(|start| **start > wanted.min(code.len() - 2)).unwrap();
            code[at].off = (*target - at - 1) as i16;
        }
    }
    code
}

/// Loads and stores by an address in the object on the stack, which is computed in several ways.
fn addresses(chance: &mut Chance, code: &mut Vec<Insn>, to: u8, from: u8) {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    let add = |register, imm| insn(ALU64 | Alu::Add as u8, register, 0, imm);
    code.push(insn(ALU64 | MOV | X, 1 | FRAME << 4, 0, 0));
    code.push(add(1, -32));
    let base = if chance.below(2) == 0 {
        1
    } else {
        code.push(insn(ALU64 | MOV | X, 2 | 1 << 4, 0, 0));
        2
    };
    for _ in 0..=chance.below(3) {
        if chance.below(2) == 0 {
            code.push(add(base, 4));
        }
        let (size, off) = (chance.pick(&[0, 0x08, 0x10, 0x18]), chance.below(12) as i16);
        match chance.below(3) {
            0 => code.push(insn(0x63 | size, base | from << 4, off, 0)),
            1 => code.push(insn(0x61 | size, to | base << 4, off, 0)),
            _ => code.push(insn(0x61 | size, to | 1 << 4, off, 0)),
        }
    }
    if chance.below(4) == 0 {
        // The address is lost in what it loads.
        code.push(insn(0x79, base | base << 4, 0, 0));
        code.push(insn(ALU64 | MOV | X, to | base << 4, 0, 0));
    }
}

#[test]
fn simplified_programs_compute_the_same() {
    let mut shorter = 0;
    for seed in 1..4000 {
        let chance = &mut Chance(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let data = (0..48).map(|_| chance.pick(&[0, 0, 1, 0x80, 0xff])).collect();
        let constants = vec![(77, data)];
        let mut code = function(chance, true);
        let main = code.len();
        code.extend(function(chance, false));
        for (at, insn) in code[..main].iter_mut().enumerate().filter(|(_, insn)| insn.code == CALL) {
            insn.imm = (main - at - 1) as i32;
        }
        let simple = Program::new(code.clone(), &constants).simplify().unwrap();
        shorter += code.len() - simple.len();
        for context in [0, 1, 7, u64::MAX, 1 << 31, 1 << 63, 0x8000_0001] {
            let expected = run(&code, &constants, context);
            assert_eq!(run(&simple, &constants, context), expected, "seed {seed}: {code:?}\n{simple:?}");
        }
    }
    assert!(shorter > 4000 * 10, "{shorter}");
}

#[test]
fn functions_in_the_place_of_their_calls_compute_the_same() {
    const NUMBER: i32 = 0x7f00_0000;
    let mut count = 0;
    for seed in 1..4000 {
        let chance = &mut Chance(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let data = (0..48).map(|_| chance.pick(&[0, 0, 1, 0x80, 0xff])).collect();
        let constants = vec![(77, data)];
        let mut main = function(chance, true);
        let mut called = function(chance, true);
        // What it calls itself follows it.
        let len = called.len();
        called.extend(function(chance, false));
        for (at, insn) in called[..len].iter_mut().enumerate().filter(|(_, insn)| insn.code == CALL) {
            insn.imm = (len - at - 1) as i32;
        }
        let calls: Vec<usize> = (0..main.len()).filter(|at| main[*at].code == CALL).collect();
        for (index, at) in calls.iter().enumerate() {
            let first = Insn { code: CALL, regs: 0, off: 0, imm: NUMBER };
            main[*at] = if index == 0 { first } else { Insn::mov(0, 7).unwrap() };
        }
        let Some(call) = calls.first() else { continue };
        let (mut apart, len) = (main.clone(), main.len());
        apart[*call] = Insn { code: CALL, regs: PSEUDO_CALL << 4, off: 0, imm: (len - call - 1) as i32 };
        apart.extend(called.iter());
        let bytes = |code: &[Insn]| code.iter().map(|insn| bpf_insn::from(*insn)).collect::<Vec<_>>();
        let inlined = inline(bytes(&main), &[(NUMBER, &bytes(&called))]);
        let inlined: Vec<Insn> = inlined.into_iter().map(Insn::from).collect();
        assert!(inlined.iter().all(|insn| insn.code != CALL || insn.regs != 0), "seed {seed}");
        count += 1;
        for context in [0, 1, 7, u64::MAX, 1 << 31, 1 << 63, 0x8000_0001] {
            let expected = run(&apart, &constants, context);
            assert_eq!(run(&inlined, &constants, context), expected, "seed {seed}: {apart:?}\n{inlined:?}");
        }
    }
    assert!(count > 1000, "{count}");
}

#[test]
fn what_cannot_be_moved_stays_called() {
    const NUMBER: i32 = 0x7f00_0000;
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm }.into();
    let (call, exit): (bpf_insn, bpf_insn) = (insn(CALL, 0, 0, NUMBER), insn(EXIT, 0, 0, 0));
    let same = |code: Vec<bpf_insn>, function: &[bpf_insn]| {
        let insns = |code: &[bpf_insn]| code.iter().map(|insn| Insn::from(*insn)).collect::<Vec<_>>();
        insns(&inline(code.clone(), &[(NUMBER, function)])) == insns(&code)
    };
    let value = insn(ALU64 | MOV, 0, 0, 3);
    assert!(!same(vec![call, exit], &[value, exit]));
    assert!(same(vec![call, call, exit], &[value, exit]), "called twice");
    // An address of the stack that nothing is added to, and more of it than there is.
    assert!(same(vec![call, exit], &[insn(ALU64 | MOV | X, 1 | FRAME << 4, 0, 0), value, exit]));
    assert!(same(vec![call, exit], &[insn(0x7a, FRAME, -520, 1), value, exit]));
    let deep = insn(0x7a, FRAME, -300, 1);
    assert!(same(vec![deep, call, exit], &[deep, value, exit]));
}

#[test]
fn functions_that_call_one_another_share_the_stack() {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    let (call, exit) = (|distance| insn(CALL, PSEUDO_CALL << 4, 0, distance), insn(EXIT, 0, 0, 0));
    let program = |first: i16, second: i16| {
        let main = [insn(0x7a, FRAME, -first, 1), call(1), exit];
        let called = [insn(0x7a, FRAME, -second, 1), call(1), exit];
        [&main[..], &called, &[insn(0x7a, FRAME, -8, 1), exit]].concat()
    };
    let fits = |first, second| inline::fits_stack(&program(first, second));
    // The third one has 32 bytes.
    assert!(fits(256, 224) && fits(249, 217));
    assert!(!fits(264, 224) && !fits(256, 232) && !fits(512, 8));
    // A function that calls itself, and an address that nothing is added to.
    assert!(!inline::fits_stack(&[call(-1), exit]));
    assert!(!inline::fits_stack(&[insn(ALU64 | MOV | X, 1 | FRAME << 4, 0, 0), exit]));
}

#[test]
fn what_a_constant_forbids_is_gone() {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    let code = vec![
        // if constant == 0 goto out; r0 = a call's result; out: exit
        insn(ALU64 | MOV, 0, 0, 7),
        insn(LD_IMM64, 1 | PSEUDO_MAP_VALUE << 4, 0, 3),
        insn(0, 0, 0, 4),
        insn(0x61, 2 | 1 << 4, 0, 0),
        insn(0x15, 2, 1, 0),
        insn(CALL, PSEUDO_CALL << 4, 0, 1),
        insn(EXIT, 0, 0, 0),
        insn(ALU64 | MOV, 0, 0, 8),
        insn(EXIT, 0, 0, 0),
    ];
    let simple = |data: Vec<u8>| {
        let constants = vec![(3, data)];
        Program::new(code.clone(), &constants).simplify().unwrap()
    };
    assert_eq!(simple(vec![1, 1, 1, 1, 0, 0, 0, 0]), [code[0], code[6]]);
    let called = simple(vec![0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(called, [insn(CALL, PSEUDO_CALL << 4, 0, 1), code[6], code[7], code[8]]);
    // Data that end before the load.
    assert_eq!(simple(vec![0, 0, 0, 0, 1]).len(), code.len());
}

#[test]
fn constants_and_registers_go_through_the_stack() {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    let (mov, copy, exit) = (ALU64 | MOV, ALU64 | MOV | X, insn(EXIT, 0, 0, 0));
    let simple = |code: &[Insn]| Program::new(code.to_vec(), &Vec::new()).simplify().unwrap();
    // *(r10 - 8) = 5; r0 = *(r10 - 8) as u32; r0 += 1
    let code = [insn(0x7a, FRAME, -8, 5), insn(0x61, FRAME << 4, -8, 0), insn(ALU64, 0, 0, 1), exit];
    assert_eq!(simple(&code), [insn(mov, 0, 0, 6), exit]);
    // *(r10 - 8) = r1; call; r1 = *(r10 - 8); *(r10 - 16) = r1; r0 = *(r10 - 16)
    let code = [
        insn(0x7b, FRAME | 1 << 4, -8, 0),
        insn(CALL, 0, 0, 5),
        insn(0x79, 1 | FRAME << 4, -8, 0),
        insn(0x7b, FRAME | 1 << 4, -16, 0),
        insn(0x79, FRAME << 4, -16, 0),
        exit,
    ];
    assert_eq!(simple(&code), [code[0], code[1], insn(0x79, FRAME << 4, -8, 0), exit]);
    // What is above an address that is taken may change: r2 = r10; r2 += -16; call
    let code = [
        insn(0x7a, FRAME, -16, 5),
        insn(copy, 2 | FRAME << 4, 0, 0),
        insn(ALU64, 2, 0, -16),
        insn(CALL, 0, 0, 1),
        insn(0x79, FRAME << 4, -16, 0),
        exit,
    ];
    assert_eq!(simple(&code), code);
}

#[test]
fn unknown_instructions_leave_a_program_alone() {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    // The call of a function by its address, and a jump after the end.
    for strange in [insn(LD_IMM64, PSEUDO_FUNC << 4, 0, 1), insn(GOTO, 0, 100, 0)] {
        let code = vec![strange, insn(0, 0, 0, 0), insn(EXIT, 0, 0, 0)];
        assert_eq!(Program::new(code, &Vec::new()).simplify(), None);
    }
}
