//! From a probe's arguments to instructions.
//!
//! Where something cannot be read, the record has what the kernel's own probes would show: `(fault)` for a
//! text, and 0 for a number (there, whatever was in the buffer). In the kernel, an address below the kernel's
//! is read in user space (`fetch_store_string`, `probe_mem_read`, kernel/trace/trace_probe_kernel.h); here,
//! whatever the kernel's memory does not have.
//!
//! A program in user space may wait for memory that its process has never touched, as the kernel's own
//! uprobes do, but not while it writes a record. So it reads everything twice: first only to have it there.

use agent_ebpf::begin_flags;

use super::{
    fetch::{Argument, Fetch, Kind},
    layout::Layout,
    registers::{self, Register},
    stage::Stage,
};
use crate::context::SCRATCH;
use crate::shape::COMMON_LEN;
use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, Reg};
use bpf::preemption::Preemption;
use bpf::program::{Body, FRAME};

/// What stands for a text that cannot be read (`FAULT_STRING`, kernel/trace/trace_probe.h).
pub(super) const FAULT_TEXT: [u8; 8] = *b"(fault)\0";
/// Room for a thread's name, and one more byte, so that it is never cut.
pub(super) const THREAD_NAME_ROOM: u32 = 17;

/// Bytes that are in one page wherever they are, if they begin at its beginning.
const SMALLEST_PAGE: u32 = 4096;

// Below the frame, which is at the top of the stack: what was read, whether a text was cut, a thread's name.
const READ: i16 = -FRAME - 8;
const CUT: i16 = -FRAME - 16;
const THREAD_NAME: i16 = -FRAME - 32;
/// Below these is what a filter looks at, and later what contexts need.
const STAGE: i16 = THREAD_NAME;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_GET_CURRENT_COMM: i32 = 16;
const HELPER_GET_CURRENT_TASK: i32 = 35;
const HELPER_PROBE_READ_USER: i32 = 112;
const HELPER_PROBE_READ_KERNEL: i32 = 113;
const HELPER_PROBE_READ_USER_STR: i32 = 114;
const HELPER_PROBE_READ_KERNEL_STR: i32 = 115;
const HELPER_COPY_FROM_USER: i32 = 148;
const HELPER_GET_FUNC_IP: i32 = 173;
const HELPER_GET_ATTACH_COOKIE: i32 = 174;

/// Why there is no program for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CompileError {
    /// Jumps reach 32767 instructions.
    #[error("its arguments need a program that is too long; use fewer")]
    TooLong,
    /// An address is not resolved: a defect of this program.
    #[error("an address in it was not looked up")]
    Unresolved,
}

/// How a program finds the probe's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeAddress {
    /// It is the instruction pointer.
    Instruction,
    /// The instruction pointer is after a breakpoint's one byte.
    BehindBreakpoint,
    /// It is the function's; the instruction pointer may be elsewhere.
    Function,
}

/// How a program at a return finds the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FunctionAddress {
    /// By `bpf_get_func_ip`.
    Helper,
    /// `current->utask->vaddr` is a `struct uprobe_dispatch_data`, whose second member it is
    /// (kernel/trace/trace_uprobe.c).
    OfTask {
        /// `task_struct.utask`.
        utask: u32,
        /// `uprobe_task.vaddr`.
        vaddr: u32,
    },
    /// The program is at an instruction, and the cookie says how many bytes that is behind the function.
    BeforeCookie,
}

/// What to compile.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) layout: &'a Layout,
    /// As the layout's, with this attach point's values.
    pub(super) arguments: &'a [Argument],
    pub(super) preemption: Preemption,
    /// Whether addresses are those of user space.
    pub(super) user: bool,
    pub(super) address: ProbeAddress,
    /// Whether memory is touched before the record is begun: the program may wait.
    pub(super) touch: bool,
    pub(super) function: FunctionAddress,
    /// What is asked before there is space for the record.
    pub(super) stage: Option<&'a Stage>,
}

/// Compiles a probe. R6 is the context, R7 the record, R8 where the next text goes, R9 the value at hand.
pub(super) fn compile(program: &Program<'_>) -> Result<Body, CompileError> {
    let mut compiler =
        Compiler { code: Assembler::default(), program, touching: false, elsewhere: Vec::new() };
    compiler.program()?;
    let filter = program.stage.and_then(|stage| stage.filter.as_ref());
    let filter = filter.map_or_else(Vec::new, |filter| filter.code.clone());
    let body = Body::with_filter(compiler.code, filter).ok_or(CompileError::TooLong)?;
    let counter = program.stage.and_then(|stage| stage.counter.as_ref());
    Ok(counter.map_or_else(|| body.clone(), |counter| body.clone().counting(counter.function.clone())))
}

/// What is compiled after everything else, for what seldom happens.
enum Elsewhere {
    /// A text cannot be read.
    Fault { here: Label, back: Label },
    /// A text is longer than its room.
    Cut { here: Label, back: Label, room: u32 },
    /// A number cannot be read.
    Zero { here: Label, back: Label },
}

struct Compiler<'a> {
    code: Assembler,
    program: &'a Program<'a>,
    /// Whether memory is read by waiting for it.
    touching: bool,
    elsewhere: Vec<Elsewhere>,
}

impl Compiler<'_> {
    pub(crate) fn program(&mut self) -> Result<(), CompileError> {
        let Program { layout, arguments, preemption, .. } = *self.program;
        let (out, end) = (self.code.label(), self.code.label());
        self.code.alu(Alu::Mov, R6, R1);
        if self.program.touch {
            self.touch()?;
        }
        if let Some(stage) = self.program.stage {
            self.filter(stage, end)?;
        }
        preemption.disable(&mut self.code);
        self.code.load_imm(R4, -1);
        let of_anyone = if layout.of_anyone { begin_flags::OF_ANYONE } else { 0 };
        let is_breakpoint = self.program.address == ProbeAddress::BehindBreakpoint && !layout.returns;
        let breakpoint = if is_breakpoint { begin_flags::BREAKPOINT } else { 0 };
        let flags = preemption.begin_flags() | begin_flags::REGISTERS | of_anyone | breakpoint;
        let max = layout.max();
        if self.program.stage.is_some_and(|stage| stage.counter.is_some()) {
            self.code.count_record(0, flags, out);
            self.leave(out, end);
            return Ok(());
        }
        self.code.begin_record(0, flags, max.next_multiple_of(4), out);
        self.code.load_imm(R8, layout.fixed.into());
        self.code.store_imm(8, FP, CUT, 0);
        self.addresses();
        for ((argument, &offset), &room) in arguments.iter().zip(&layout.offsets).zip(&layout.rooms) {
            self.argument(argument, offset, room)?;
        }
        // What the filter looked at is there, and not needed any more.
        layout.contexts.write(&mut self.code, STAGE - SCRATCH, 0);
        self.code.load(8, R2, FP, CUT);
        self.code.alu_imm(Alu::Lsh, R2, 32);
        self.code.alu(Alu::Or, R2, R8);
        self.code.end_record();
        self.leave(out, end);
        Ok(())
    }

    /// The end of the program: with `out` behind what is done with preemption off, and `end` without that.
    fn leave(&mut self, out: Label, end: Label) {
        self.code.bind(out);
        self.program.preemption.enable(&mut self.code);
        self.code.bind(end);
        self.code.load_imm(R0, 0);
        self.code.exit();
        self.elsewhere();
    }

    /// Makes what the filter looks at, and goes to `end` with an event that it does not take.
    fn filter(&mut self, stage: &Stage, end: Label) -> Result<(), CompileError> {
        let base = STAGE - stage.size as i16;
        for word in 0..stage.size as i16 / 8 {
            self.code.store_imm(8, FP, base + 8 * word, 0);
        }
        self.stack_address(R7, base);
        for &(index, at) in &stage.addresses {
            self.address(index);
            self.code.store(8, R7, at as i16, R9);
        }
        for staged in &stage.arguments {
            let Some(argument) = self.program.arguments.get(staged.index) else { continue };
            self.code.load_imm(R8, staged.text_at.into());
            self.argument(argument, staged.offset, staged.room)?;
        }
        if stage.filter.is_some() {
            self.code.alu(Alu::Mov, R1, R7);
            self.code.ask_filter(self.program.preemption, end);
        }
        Ok(())
    }

    /// An argument's field at `offset` of R7, and its text at R8.
    fn argument(&mut self, argument: &Argument, offset: u32, room: u32) -> Result<(), CompileError> {
        match argument.kind {
            Kind::Text { user } => self.text(argument, offset as i16, room, user),
            kind => self.number(argument, kind, offset as i16),
        }
    }

    /// Makes sure that what the arguments read is in memory.
    fn touch(&mut self) -> Result<(), CompileError> {
        self.touching = true;
        let Program { layout, arguments, .. } = *self.program;
        for (argument, &room) in arguments.iter().zip(&layout.rooms) {
            let Fetch::Memory { offset, of, .. } = &argument.fetch else { continue };
            let there = self.code.label();
            self.value(of, there)?;
            let size = argument.kind.size() * argument.count.unwrap_or(1);
            let len = if room == 0 { size } else { room };
            // First byte and last are in two pages at most, and mostly in one.
            self.read_with(*offset, 1, HELPER_COPY_FROM_USER);
            if len <= SMALLEST_PAGE {
                self.code.address(R1, R9, *offset as i32);
                self.code.alu_imm(Alu::And, R1, SMALLEST_PAGE as i32 - 1);
                self.code.jump_imm(Jump::LessEqual, R1, (SMALLEST_PAGE - len) as i32, there);
            }
            self.read_with(offset + i64::from(len) - 1, 1, HELPER_COPY_FROM_USER);
            self.code.bind(there);
        }
        self.touching = false;
        Ok(())
    }

    fn stack_address(&mut self, to: Reg, offset: i16) {
        self.code.address(to, FP, offset.into());
    }

    fn register(&mut self, to: Reg, Register(offset): Register) {
        self.code.load(8, to, R6, offset as i16);
    }

    /// The fields in front of the arguments.
    fn addresses(&mut self) {
        for index in 0..self.program.layout.address_fields() {
            self.address(index);
            self.code.store(8, R7, COMMON_LEN as i16 + 8 * index as i16, R9);
        }
    }

    /// One of them, in R9.
    fn address(&mut self, index: usize) {
        let returns = self.program.layout.returns;
        if returns && index == 0 || !returns && self.program.address == ProbeAddress::Function {
            self.function_address();
            return;
        }
        if returns && self.program.function == FunctionAddress::BeforeCookie {
            // The return instruction is about to take the address from there.
            let (zero, done) = (self.code.label(), self.code.label());
            self.register(R9, registers::STACK);
            self.read_long(0, true, zero);
            self.code.bind(done);
            self.elsewhere.push(Elsewhere::Zero { here: zero, back: done });
            return;
        }
        self.register(R9, registers::INSTRUCTION);
        if !returns && self.program.address == ProbeAddress::BehindBreakpoint {
            self.code.alu_imm(Alu::Sub, R9, 1);
        }
    }

    fn function_address(&mut self) {
        match self.program.function {
            FunctionAddress::Helper => {
                self.code.alu(Alu::Mov, R1, R6);
                self.code.call_helper(HELPER_GET_FUNC_IP);
                self.code.alu(Alu::Mov, R9, R0);
            }
            FunctionAddress::BeforeCookie => {
                self.code.alu(Alu::Mov, R1, R6);
                self.code.call_helper(HELPER_GET_ATTACH_COOKIE);
                self.register(R9, registers::INSTRUCTION);
                self.code.alu(Alu::Sub, R9, R0);
            }
            FunctionAddress::OfTask { utask, vaddr } => {
                const BP_ADDR: i64 = 8;
                let (zero, done) = (self.code.label(), self.code.label());
                self.code.call_helper(HELPER_GET_CURRENT_TASK);
                self.code.alu(Alu::Mov, R9, R0);
                for offset in [utask.into(), vaddr.into(), BP_ADDR] {
                    self.read_word(offset, HELPER_PROBE_READ_KERNEL, zero);
                }
                self.code.bind(done);
                self.elsewhere.push(Elsewhere::Zero { here: zero, back: done });
            }
        }
    }

    /// A number, or an array of numbers.
    fn number(&mut self, argument: &Argument, kind: Kind, at: i16) -> Result<(), CompileError> {
        let size = kind.size();
        let (zero, store) = (self.code.label(), self.code.label());
        if let (Some(count), Fetch::Memory { offset, user, of }) = (argument.count, &argument.fetch) {
            return self.array((of, *offset, *user), at, size * count, zero, store);
        }
        match &argument.fetch {
            // Only as much as is wanted: there may be nothing after it.
            Fetch::Memory { offset, user, of } => {
                self.value(of, zero)?;
                self.read(*offset, size, *user, zero);
                self.code.load(size, R9, FP, READ);
            }
            other => self.value(other, zero)?,
        }
        if let Kind::Bits { width, offset, signed, .. } = kind {
            self.code.alu_imm(Alu::Lsh, R9, (64 - width - offset) as i32);
            let shift = if signed { Alu::Arsh } else { Alu::Rsh };
            self.code.alu_imm(shift, R9, (64 - width) as i32);
        }
        self.code.bind(store);
        self.code.store(size, R7, at, R9);
        self.elsewhere.push(Elsewhere::Zero { here: zero, back: store });
        Ok(())
    }

    fn array(
        &mut self,
        (of, offset, user): (&Fetch, i64, bool),
        at: i16,
        bytes: u32,
        zero: Label,
        done: Label,
    ) -> Result<(), CompileError> {
        self.value(of, zero)?;
        for helper in self.readers(user, [HELPER_PROBE_READ_KERNEL, HELPER_PROBE_READ_USER]) {
            self.code.address(R1, R7, at.into());
            self.code.load_imm(R2, bytes.into());
            self.code.address(R3, R9, offset as i32);
            self.code.call_helper(*helper);
            self.code.jump_imm(Jump::Equal, R0, 0, done);
        }
        // A read that fails has filled its room with zeros; so does one of nothing's address.
        self.code.bind(zero);
        self.code.address(R1, R7, at.into());
        self.code.load_imm(R2, bytes.into());
        self.code.load_imm(R3, 0);
        self.code.call_helper(HELPER_PROBE_READ_KERNEL);
        self.code.bind(done);
        Ok(())
    }

    /// The helpers to try, of the two for the kernel's and for user memory.
    fn readers(&self, user: bool, helpers: [i32; 2]) -> &'static [i32] {
        const KERNEL: &[i32] = &[HELPER_PROBE_READ_KERNEL, HELPER_PROBE_READ_USER];
        const USER: &[i32] = &[HELPER_PROBE_READ_USER];
        const KERNEL_STR: &[i32] = &[HELPER_PROBE_READ_KERNEL_STR, HELPER_PROBE_READ_USER_STR];
        const USER_STR: &[i32] = &[HELPER_PROBE_READ_USER_STR];
        const WAITING: &[i32] = &[HELPER_COPY_FROM_USER];
        if self.touching {
            return WAITING;
        }
        match (user || self.program.user, helpers[0] == HELPER_PROBE_READ_KERNEL_STR) {
            (false, false) => KERNEL,
            (true, false) => USER,
            (false, true) => KERNEL_STR,
            (true, true) => USER_STR,
        }
    }

    /// Evaluates to 64 bits in R9.
    fn value(&mut self, fetch: &Fetch, failed: Label) -> Result<(), CompileError> {
        match fetch {
            Fetch::Register(register) => self.register(R9, *register),
            Fetch::ReturnValue => self.register(R9, registers::RETURN_VALUE),
            Fetch::Constant(value) => self.code.load_imm(R9, value.cast_signed()),
            Fetch::StackSlot(slot) => {
                self.register(R9, registers::STACK);
                self.read_long(i64::from(*slot) * 8, false, failed);
            }
            Fetch::FileOffset(offset) => {
                // The probe's own address in memory, or its function's; its offset in the file is taken off
                // `offset` already.
                if self.program.layout.returns {
                    self.function_address();
                } else {
                    self.register(R9, registers::INSTRUCTION);
                }
                self.code.load_imm(R1, offset.cast_signed());
                self.code.alu(Alu::Add, R9, R1);
            }
            Fetch::Memory { offset, user, of } => {
                self.value(of, failed)?;
                self.read_long(*offset, *user, failed);
            }
            Fetch::Indexed { base, index, scale } => {
                self.register(R9, *index);
                self.code.alu_imm(Alu::Mul, R9, (*scale).into());
                if let Some(base) = base {
                    self.register(R1, *base);
                    self.code.alu(Alu::Add, R9, R1);
                }
            }
            Fetch::KernelSymbol(_) | Fetch::Marker(_) | Fetch::Comm | Fetch::Text(_) => {
                return Err(CompileError::Unresolved);
            }
        }
        Ok(())
    }

    /// `R9 = *(R9 + offset)`.
    fn read_long(&mut self, offset: i64, user: bool, failed: Label) {
        self.read(offset, 8, user, failed);
        self.code.load(8, R9, FP, READ);
    }

    fn read_word(&mut self, offset: i64, helper: i32, failed: Label) {
        self.read_with(offset, 8, helper);
        self.code.jump_imm(Jump::NotEqual, R0, 0, failed);
        self.code.load(8, R9, FP, READ);
    }

    /// Reads `size` bytes at `R9 + offset` to the stack.
    fn read(&mut self, offset: i64, size: u32, user: bool, failed: Label) {
        let done = self.code.label();
        let helpers = self.readers(user, [HELPER_PROBE_READ_KERNEL, HELPER_PROBE_READ_USER]);
        for (index, helper) in helpers.iter().enumerate() {
            self.read_with(offset, size, *helper);
            if index + 1 == helpers.len() {
                self.code.jump_imm(Jump::NotEqual, R0, 0, failed);
            } else {
                self.code.jump_imm(Jump::Equal, R0, 0, done);
            }
        }
        self.code.bind(done);
    }

    fn read_with(&mut self, offset: i64, size: u32, helper: i32) {
        self.stack_address(R1, READ);
        self.code.load_imm(R2, size.into());
        self.code.address(R3, R9, offset as i32);
        self.code.call_helper(helper);
    }

    /// A text after the fixed part: its length and offset in the word at `at`.
    fn text(&mut self, argument: &Argument, at: i16, room: u32, user: bool) -> Result<(), CompileError> {
        let (fault, cut, store) = (self.code.label(), self.code.label(), self.code.label());
        match &argument.fetch {
            Fetch::Text(text) => {
                self.text_address(R1);
                for (index, byte) in text.bytes().chain([0]).enumerate() {
                    self.code.store_imm(1, R1, index as i16, byte.into());
                }
                self.code.load_imm(R0, i64::from(room));
            }
            Fetch::Comm => {
                self.stack_address(R1, THREAD_NAME);
                self.code.load_imm(R2, agent_ebpf::COMM_LEN as i64);
                self.code.call_helper(HELPER_GET_CURRENT_COMM);
                self.stack_address(R9, THREAD_NAME);
                self.string(HELPER_PROBE_READ_KERNEL_STR, room, 0);
                self.code.jump_imm(Jump::SignedGreaterEqual, R0, room as i32, cut);
                let read = self.code.label();
                self.code.jump_imm(Jump::SignedGreater, R0, 0, read);
                self.code.goto(fault);
                self.code.bind(read);
            }
            Fetch::Memory { offset, of, .. } => {
                self.value(of, fault)?;
                let read = self.code.label();
                let helpers = self.readers(user, [HELPER_PROBE_READ_KERNEL_STR, HELPER_PROBE_READ_USER_STR]);
                for helper in helpers {
                    self.string(*helper, room, *offset);
                    self.code.jump_imm(Jump::SignedGreater, R0, 0, read);
                }
                self.code.goto(fault);
                self.code.bind(read);
                self.code.jump_imm(Jump::SignedGreaterEqual, R0, room as i32, cut);
            }
            _ => return Err(CompileError::Unresolved),
        }
        self.code.bind(store);
        self.code.alu(Alu::Mov, R1, R0);
        self.code.alu_imm(Alu::Lsh, R1, 16);
        self.code.alu(Alu::Or, R1, R8);
        self.code.store(4, R7, at, R1);
        self.code.alu(Alu::Add, R8, R0);
        self.elsewhere.push(Elsewhere::Fault { here: fault, back: store });
        self.elsewhere.push(Elsewhere::Cut { here: cut, back: store, room });
        Ok(())
    }

    fn text_address(&mut self, to: Reg) {
        self.code.alu(Alu::Mov, to, R7);
        self.code.alu(Alu::Add, to, R8);
    }

    /// Copies the string at `R9 + offset` to the record.
    fn string(&mut self, helper: i32, room: u32, offset: i64) {
        self.text_address(R1);
        self.code.load_imm(R2, room.into());
        self.code.address(R3, R9, offset as i32);
        self.code.call_helper(helper);
    }

    fn elsewhere(&mut self) {
        for rare in std::mem::take(&mut self.elsewhere) {
            let (Elsewhere::Fault { here, .. } | Elsewhere::Cut { here, .. } | Elsewhere::Zero { here, .. }) =
                rare;
            if !self.code.is_reached(here) {
                continue;
            }
            match rare {
                Elsewhere::Fault { here, back } => {
                    self.code.bind(here);
                    self.text_address(R1);
                    for (index, byte) in FAULT_TEXT.into_iter().enumerate() {
                        self.code.store_imm(1, R1, index as i16, byte.into());
                    }
                    self.code.load_imm(R0, FAULT_TEXT.len() as i64);
                    self.code.goto(back);
                }
                Elsewhere::Cut { here, back, room } => {
                    // One byte of the room is never used, so that a text which fills it is known to be
                    // longer.
                    self.code.bind(here);
                    self.text_address(R1);
                    self.code.store_imm(1, R1, room as i16 - 2, 0);
                    self.code.store_imm(8, FP, CUT, 1);
                    self.code.load_imm(R0, i64::from(room) - 1);
                    self.code.goto(back);
                }
                Elsewhere::Zero { here, back } => {
                    self.code.bind(here);
                    self.code.load_imm(R9, 0);
                    self.code.goto(back);
                }
            }
        }
    }
}
