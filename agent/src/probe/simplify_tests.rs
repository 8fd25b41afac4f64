//! Programs that are simplified compute what they did.

use super::*;

/// `main` of a program, run: R0 at its end. Memory is a map of constants, and 64 bytes of stack.
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
    r[10] = STACK + 64;
    let (mut stack, mut at) = ([0u8; 64], start);
    for _ in 0..10_000 {
        let insn = code[at];
        let (to, from) = (insn.dst(), insn.src());
        let place = |base: u64| base.wrapping_add_signed(insn.off.into());
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
                let address = place(r[from]);
                let bytes = if address >= DATA {
                    &constants[0].1[(address - DATA) as usize..]
                } else {
                    &stack[(address - STACK) as usize..]
                };
                let mut number = [0; 8];
                number[..insn.size()].copy_from_slice(&bytes[..insn.size()]);
                r[to] = u64::from_le_bytes(number);
            }
            3 => {
                let address = (place(r[to]) - STACK) as usize;
                stack[address..address + insn.size()].copy_from_slice(&r[from].to_le_bytes()[..insn.size()]);
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
                let numbers: State = std::array::from_fn(|index| Value::Number(r[index]));
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

/// A function of random instructions, whose jumps go forwards, and which writes its registers before it reads them.
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
    for _ in 0..len {
        let (to, from) = (chance.pick(&[0, 6, 7, 8, 9]), chance.pick(&[0, 6, 7, 8, 9]));
        let imm = [0, 1, -1, 40, i32::MAX, i32::MIN][chance.below(6) as usize];
        match chance.below(9) {
            0 | 1 => {
                code.push(insn(LD_IMM64, 1 | PSEUDO_MAP_VALUE << 4, 0, 77));
                code.push(insn(0, 0, 0, chance.below(6) as i32 * 8));
                code.push(insn(0x60 | 1 | chance.pick(&[0, 0x08, 0x10, 0x18]), to | 1 << 4, 0, 0));
            }
            2 => code.push(insn(0x7b, FRAME | from << 4, -8 - 8 * chance.below(8) as i16, 0)),
            3 => code.push(insn(0x79, to | FRAME << 4, -8 - 8 * chance.below(8) as i16, 0)),
            4 | 5 => {
                let class = chance.pick(&[5, JMP32]) | chance.pick(&CONDITIONS) | chance.pick(&[0, X]);
                let regs = to | if class & X != 0 { from << 4 } else { 0 };
                // Made right below.
                code.push(insn(class, regs, 1 + chance.below(12) as i16, imm));
            }
            6 if calls => {
                code.push(insn(ALU64 | MOV | X, 1 | from << 4, 0, 0));
                code.push(insn(CALL, PSEUDO_CALL << 4, 0, 0));
            }
            _ => {
                let class = chance.pick(&[ALU32, ALU64]) | chance.pick(&OPS) | chance.pick(&[0, X]);
                let regs = to | if class & X != 0 { from << 4 } else { 0 };
                code.push(insn(class, regs, 0, imm));
            }
        }
    }
    code.push(insn(EXIT, 0, 0, 0));
    // No jump into the middle of what belongs together.
    let starts: Vec<usize> = (begin..code.len())
        .filter(|&at| {
            let inside = code[at - 1].code == LD_IMM64
                || at >= 2 && code[at - 2].code == LD_IMM64
                || code[at].code == CALL;
            !inside
        })
        .collect();
    for at in begin..code.len() {
        if code[at].is_jump() {
            let wanted = at + code[at].off as usize;
            let target = starts.iter().find(|start| **start > wanted.min(code.len() - 2)).unwrap();
            code[at].off = (*target - at - 1) as i16;
        }
    }
    code
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
        let simple = Program { code: code.clone(), constants: &constants }.simplify().unwrap();
        shorter += code.len() - simple.len();
        for context in [0, 1, 7, u64::MAX, 1 << 31, 1 << 63, 0x8000_0001] {
            let expected = run(&code, &constants, context);
            assert_eq!(run(&simple, &constants, context), expected, "seed {seed}: {code:?}\n{simple:?}");
        }
    }
    assert!(shorter > 4000 * 10, "{shorter}");
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
        Program { code: code.clone(), constants: &constants }.simplify().unwrap()
    };
    assert_eq!(simple(vec![1, 1, 1, 1, 0, 0, 0, 0]), [code[0], code[6]]);
    let called = simple(vec![0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(called, [insn(CALL, PSEUDO_CALL << 4, 0, 1), code[6], code[7], code[8]]);
    // Data that end before the load.
    assert_eq!(simple(vec![0, 0, 0, 0, 1]).len(), code.len());
}

#[test]
fn unknown_instructions_leave_a_program_alone() {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    // The call of a function by its address, and a jump behind the end.
    for strange in [insn(LD_IMM64, PSEUDO_FUNC << 4, 0, 1), insn(GOTO, 0, 100, 0)] {
        let code = vec![strange, insn(0, 0, 0, 0), insn(EXIT, 0, 0, 0)];
        assert_eq!(Program { code, constants: &Vec::new() }.simplify(), None);
    }
}
