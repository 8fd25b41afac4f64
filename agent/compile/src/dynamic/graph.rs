//! The graph of calls as ftrace's function graph tracer records it: `ftrace:funcgraph_entry` when a function
//! is called and `ftrace:funcgraph_exit`, with the times of both, when it returns.
//!
//! The functions that a user names are the roots. Recorded are their calls and what is called from them, so a
//! program is at all functions that may be called. Which of them are nested in a root, and how deep, the
//! object's half keeps track of (`agent-ebpf/src/graph.rs`).
//!
//! | hooks | what is at the functions | since |
//! |---|---|---|
//! | [`GraphHooks::Session`] | one program at entry and return; the return is watched only if the call is in the graph | 6.10 |
//! | [`GraphHooks::Returns`] | one at the entries, one at the returns | 5.18 |
//! | [`GraphHooks::Kprobes`] | the same, one kprobe for each entry and return | 6.0 |

use std::collections::HashSet;

use agent_ebpf::{
    begin_flags,
    calls::{Call, CallEnd, CallEvent},
};

use super::{
    CompileErrorText, DynamicError, Environment, NotTraced,
    kernel::{FunctionError, KernelFunctions, one_of_many},
    registers,
};
use crate::hook::{Hook, HookProgram, OnRefusal, check_kprobes};
use crate::plan::{ProbeEvent, ProbePlan};
use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R6, R7, R8};
use bpf::preemption::Preemption;
use bpf::program::{Body, FRAME};
use bpf::relocation::{Relocation, Subprogram};
use ftrace_event::Format;
use kernel::btf::{Btf, TypeId};
use kernel::tracefs::Tracefs;
use kernel::version::KernelVersion;
use spec::EventName;
use stdx::input::glob;

/// Functions that can have a kprobe each.
const KPROBES_MAX: usize = 512;
/// What tells the entry of a session from its return.
const IS_RETURN: &str = "bpf_session_is_return";
/// What returning functions come to, where their returns are watched: those of kretprobes and fprobes, and of
/// ftrace's function graph, which fprobes are built upon since 6.14.
const TRAMPOLINES: [&str; 2] = ["arch_rethook_trampoline", "return_to_handler"];
/// From here on the stack pointer at a function's return is that of the trampoline (`return_to_handler`,
/// arch/x86/kernel/ftrace_64.S).
const RETURNS_BY_GRAPH_SINCE: KernelVersion = KernelVersion::new(6, 14, 0);
/// By how much it is too low then: the registers that are saved there, and some room.
const TRAMPOLINE_STACK: u64 = 256;
/// From here on kretprobes leave the function's stack pointer, as fprobes do
/// (`arch_rethook_trampoline_callback`).
const KPROBES_SINCE: KernelVersion = KernelVersion::new(6, 0, 0);
/// Bytes of a thread's stack, and a function of the kernels where it is twice as large
/// (arch/x86/include/asm/page_64_types.h).
const THREAD_SIZE: u32 = 4 << 12;
const KASAN: &str = "kasan_report";
/// Functions that are recorded only if they are named. Some run where RCU does not watch, which a program
/// needs (the kernel's own test of so many probes leaves them out,
/// tools/testing/selftests/bpf/prog_tests/kprobe_multi_test.c); others are what programs call, and so would
/// be interrupted at each call by themselves.
const LEFT_OUT: [&str; 5] =
    ["rcu_*", "arch_cpu_idle", "default_idle", "bpf_*", "__ftrace_invalid_address__*"];

// Below the frame: the event, and the end of the call.
const EVENT: i16 = -FRAME - size_of::<CallEvent>() as i16;
const END: i16 = EVENT - size_of::<CallEnd>() as i16;

/// What a session's program gives: whether the call's return is watched.
const WATCH: i64 = 0;
const DO_NOT_WATCH: i64 = 1;

/// How the functions are hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphHooks {
    /// By sessions.
    Session,
    /// By entries and returns of many functions.
    Returns,
    /// By kprobes.
    Kprobes,
}

/// What of the calls is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphOptions {
    /// Patterns for the roots.
    pub roots: Vec<String>,
    /// Patterns for what is recorded below them; without any, everything.
    pub only: Vec<String>,
    /// How many nested calls are recorded, the root's included.
    pub max_depth: Option<u32>,
    /// How to hook the functions, if not as it suits the kernel.
    pub hooks: Option<GraphHooks>,
}

/// The graph below the functions that are wanted.
pub fn graph(
    options: &GraphOptions,
    environment: &Environment,
    btf: Option<&Btf>,
    functions: &KernelFunctions,
    tracefs: &Tracefs,
) -> Result<ProbePlan, DynamicError> {
    let btf = btf.ok_or(NotTraced::Fprobes)?;
    let hooks = environment.graph_hooks(options.hooks, btf)?;
    let bodies = Bodies::new(options, environment, btf, functions, tracefs)?;
    let wanted = Functions::find(options, functions, tracefs)?;
    let too_many = wanted.roots.len() + wanted.others.len();
    if hooks == GraphHooks::Kprobes && too_many > KPROBES_MAX {
        return Err(NotTraced::TooMany(too_many).into());
    }
    let programs = bodies.programs(hooks, &wanted).ok_or_else(|| CompileErrorText {
        probe: "ftrace:funcgraph_entry".to_owned(),
        reason: "a jump in its program leads nowhere".to_owned(),
    })?;
    let event =
        |(name, id): (&str, u16)| ProbeEvent::Ftrace { name: name.to_owned(), id, prints_symbols: true };
    let events = [(ENTRY, bodies.entry.id), (EXIT, bodies.exit.id)].map(event);
    Ok(ProbePlan { events: events.into(), programs, slot_flags: 0 })
}

const ENTRY: &str = "funcgraph_entry";
const EXIT: &str = "funcgraph_exit";

impl Environment {
    fn graph_hooks(&self, asked: Option<GraphHooks>, btf: &Btf) -> Result<GraphHooks, DynamicError> {
        let has_sessions = self.has_kprobe_multi() && btf.has_function(IS_RETURN);
        let hooks = asked.unwrap_or(if has_sessions {
            GraphHooks::Session
        } else if self.has_kprobe_multi() {
            GraphHooks::Returns
        } else {
            GraphHooks::Kprobes
        });
        match hooks {
            GraphHooks::Session if !has_sessions => Err(NotTraced::Sessions.into()),
            GraphHooks::Returns if !self.has_kprobe_multi() => Err(NotTraced::Fprobes.into()),
            GraphHooks::Kprobes if self.version < KPROBES_SINCE || check_kprobes().is_err() => {
                Err(NotTraced::Fprobes.into())
            }
            hooks => Ok(hooks),
        }
    }
}

/// The functions of a graph, with their addresses.
#[derive(Debug)]
struct Functions {
    roots: Vec<(String, u64)>,
    /// What may be called below them.
    others: Vec<(String, u64)>,
}

impl Functions {
    fn find(
        options: &GraphOptions,
        functions: &KernelFunctions,
        tracefs: &Tracefs,
    ) -> Result<Self, FunctionError> {
        let all = functions.matching("*", tracefs)?;
        let is =
            |name: &str, patterns: &[String]| patterns.iter().any(|pattern| glob::matches(pattern, name));
        let is_named = |name: &str| options.roots.iter().chain(&options.only).any(|pattern| pattern == name);
        let is_left_out = |name: &str| LEFT_OUT.iter().any(|pattern| glob::matches(pattern, name));
        let found = all.into_iter().filter(|(name, _)| is_named(name) || !is_left_out(name));
        let (roots, mut others): (Vec<_>, Vec<_>) = found.partition(|(name, _)| is(name, &options.roots));
        for pattern in &options.roots {
            if !roots.iter().any(|(name, _)| glob::matches(pattern, name)) {
                return Err(functions.unmatched(pattern));
            }
        }
        // What is deeper than the roots is not wanted.
        if options.max_depth == Some(1) {
            others.clear();
        } else if !options.only.is_empty() {
            others.retain(|(name, _)| is(name, &options.only));
        }
        // Some share an address, as aliases do.
        let mut seen = HashSet::new();
        let mut once = |functions: Vec<(String, u64)>| {
            functions.into_iter().filter(|(_, address)| seen.insert(*address)).collect::<Vec<_>>()
        };
        Ok(Self { roots: once(roots), others: once(others) })
    }
}

/// Where a field is that every such event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: u16,
    function: i16,
    depth: (i16, u32),
    len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exit {
    id: u16,
    function: i16,
    depth: (i16, u32),
    overrun: (i16, u32),
    start: i16,
    end: i16,
    /// The returned value (`CONFIG_FUNCTION_GRAPH_RETVAL`, 6.5 and later).
    value: Option<i16>,
    len: u32,
}

/// The fields of a format.
struct Fields<'a>(&'a Format);

impl Fields<'_> {
    fn find(&self, name: &str) -> Option<(i16, u32)> {
        let field = self.0.field(name)?;
        Some((i16::try_from(field.offset).ok()?, field.size))
    }

    fn word(&self, name: &str) -> Option<i16> {
        self.find(name).filter(|(_, size)| *size == 8).map(|(offset, _)| offset)
    }

    fn number(&self, name: &str) -> Option<(i16, u32)> {
        self.find(name).filter(|(_, size)| matches!(size, 4 | 8))
    }

    /// Bytes of a record: up to the end of its last field, one of variable length being empty.
    fn len(&self) -> Option<u32> {
        let end = self.0.fields.iter().map(|field| field.offset + field.size).max()?;
        (end <= RECORD_MAX).then(|| end.next_multiple_of(4))
    }
}

/// No such record has been longer than 48 bytes.
const RECORD_MAX: u32 = 96;

impl Entry {
    fn of(format: &Format) -> Option<Self> {
        let fields = Fields(format);
        Some(Self {
            id: format.id,
            function: fields.word("func")?,
            depth: fields.number("depth")?,
            len: fields.len()?,
        })
    }
}

impl Exit {
    fn of(format: &Format) -> Option<Self> {
        let fields = Fields(format);
        Some(Self {
            id: format.id,
            function: fields.word("func")?,
            depth: fields.number("depth")?,
            overrun: fields.number("overrun")?,
            start: fields.word("calltime")?,
            end: fields.word("rettime")?,
            value: fields.word("retval"),
            len: fields.len()?,
        })
    }
}

/// What the programs are made of.
#[derive(Clone, Copy, Debug)]
struct Bodies {
    entry: Entry,
    exit: Exit,
    stack_pointer: i16,
    trampolines: [u64; 2],
    slack: u64,
    task_stack: u32,
    stack_size: u32,
    max_depth: u32,
    is_return: Option<TypeId>,
}

/// At which end of functions a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Entry,
    Return,
    Both(TypeId),
}

impl Bodies {
    fn new(
        options: &GraphOptions,
        environment: &Environment,
        btf: &Btf,
        functions: &KernelFunctions,
        tracefs: &Tracefs,
    ) -> Result<Self, DynamicError> {
        let format = |event: &str| {
            let format = tracefs.event_format(&EventName::new("ftrace", event))?;
            Format::parse(&format.text).map_err(|_| DynamicError::from(NotTraced::GraphLayout))
        };
        let task_stack = btf.member_offset("task_struct.stack").map_err(|_| NotTraced::GraphLayout)?;
        let stack_pointer = registers::named("sp").filter(|_| registers::SUPPORTED);
        Ok(Self {
            entry: Entry::of(&format(ENTRY)?).ok_or(NotTraced::GraphLayout)?,
            exit: Exit::of(&format(EXIT)?).ok_or(NotTraced::GraphLayout)?,
            stack_pointer: stack_pointer.ok_or(NotTraced::GraphLayout)?.0 as i16,
            // Without its symbol, nothing returns there.
            trampolines: TRAMPOLINES.map(|name| functions.address_of(name).unwrap_or(u64::MAX)),
            slack: if environment.version < RETURNS_BY_GRAPH_SINCE { 0 } else { TRAMPOLINE_STACK },
            task_stack,
            stack_size: if btf.has_function(KASAN) { 2 * THREAD_SIZE } else { THREAD_SIZE },
            max_depth: options.max_depth.filter(|depth| *depth != 0).unwrap_or(u32::MAX),
            is_return: btf.function(IS_RETURN).ok(),
        })
    }

    fn programs(&self, hooks: GraphHooks, functions: &Functions) -> Option<Vec<HookProgram>> {
        let mut programs = Vec::new();
        let mut add = |at, root, functions: &[(String, u64)]| {
            if !functions.is_empty() {
                programs.push(self.program(at, root, attach_points(hooks, at, functions)?)?);
            }
            Some(())
        };
        let entry = match hooks {
            GraphHooks::Session => At::Both(self.is_return?),
            GraphHooks::Returns | GraphHooks::Kprobes => At::Entry,
        };
        // The returns first, so that they are watched when the first entry is recorded.
        if entry == At::Entry {
            add(At::Return, false, &functions.roots)?;
            add(At::Return, false, &functions.others)?;
        }
        add(entry, false, &functions.others)?;
        add(entry, true, &functions.roots)?;
        Some(programs)
    }

    pub(crate) fn program(&self, at: At, root: bool, hooks: Vec<Hook>) -> Option<HookProgram> {
        let name = match (at, root) {
            (At::Return, _) => "graph_return",
            (_, true) => "graph_root",
            (_, false) => "graph_call",
        };
        Some(HookProgram {
            name: name.to_owned(),
            body: self.body(at, root, matches!(hooks.first(), Some(Hook::Kernel { .. })))?,
            on_refusal: OnRefusal::of_attach_points(hooks.len()),
            hooks,
            preemption: Preemption::Off,
            sleepable: false,
        })
    }

    /// R6 is the context, R7 the record, R8 the call.
    fn body(&self, at: At, root: bool, kprobes: bool) -> Option<Body> {
        let mut code = Assembler::default();
        code.alu(Alu::Mov, R6, R1);
        match at {
            // A kprobe that is no place of ftrace's is a breakpoint.
            At::Entry => self.enter(&mut code, root, if kprobes { begin_flags::BREAKPOINT } else { 0 }),
            At::Return => self.leave(&mut code),
            At::Both(is_return) => {
                let returns = code.label();
                code.call_kernel_function(is_return.0);
                // A `bool`: the rest of the register is anything.
                code.alu_imm(Alu::And, R0, 1);
                code.jump_imm(Jump::NotEqual, R0, 0, returns);
                self.enter(&mut code, root, 0);
                code.bind(returns);
                self.leave(&mut code);
            }
        }
        Body::new(code)
    }

    fn enter(&self, code: &mut Assembler, root: bool, flags: u32) {
        let (out, unknown) = (code.label(), code.label());
        self.event(code, root, flags);
        code.alu(Alu::Mov, R1, R6);
        code.address(R2, FP, EVENT.into());
        code.relocated_imm(R3, Relocation::Slot(0));
        code.call(Subprogram::GraphEnter);
        code.jump_imm(Jump::Equal, R0, 0, unknown);
        code.alu(Alu::Mov, R8, R0);
        let Entry { function, depth, len, .. } = self.entry;
        begin(code, (0, flags), len, out);
        code.load(8, R1, FP, EVENT + std::mem::offset_of!(CallEvent, function) as i16);
        code.store(8, R7, function, R1);
        code.load(4, R1, R8, std::mem::offset_of!(Call, depth) as i16);
        code.store(depth.1, R7, depth.0, R1);
        end(code, len);
        code.alu(Alu::Mov, R1, R8);
        code.call(Subprogram::GraphStart);
        code.bind(out);
        code.load_imm(R0, WATCH);
        code.exit();
        code.bind(unknown);
        code.load_imm(R0, DO_NOT_WATCH);
        code.exit();
    }

    fn leave(&self, code: &mut Assembler) {
        let out = code.label();
        self.event(code, false, 0);
        code.alu(Alu::Mov, R1, R6);
        code.address(R2, FP, EVENT.into());
        code.address(R3, FP, END.into());
        code.call(Subprogram::GraphLeave);
        code.jump_imm(Jump::Equal, R0, 0, out);
        let Exit { function, depth, overrun, start, end: end_at, value, len, .. } = self.exit;
        begin(code, (1, 0), len, out);
        let from = |offset: usize| END + offset as i16;
        let copies = [
            (8, EVENT + std::mem::offset_of!(CallEvent, function) as i16, (function, 8)),
            (4, from(std::mem::offset_of!(CallEnd, depth)), depth),
            (4, from(std::mem::offset_of!(CallEnd, overrun)), overrun),
            (8, from(std::mem::offset_of!(CallEnd, start)), (start, 8)),
            (8, from(std::mem::offset_of!(CallEnd, end)), (end_at, 8)),
        ];
        for (size, from, (to, to_size)) in copies {
            code.load(size, R1, FP, from);
            code.store(to_size, R7, to, R1);
        }
        if let Some(value) = value {
            code.load(8, R1, R6, registers::RETURN_VALUE.0 as i16);
            code.store(8, R7, value, R1);
        }
        end(code, len);
        code.bind(out);
        code.load_imm(R0, WATCH);
        code.exit();
    }

    /// Writes down what is known of the call.
    fn event(&self, code: &mut Assembler, root: bool, flags: u32) {
        use std::mem::offset_of;
        let slot = |offset: usize| EVENT + offset as i16;
        code.load(8, R1, R6, self.stack_pointer);
        code.store(8, FP, slot(offset_of!(CallEvent, stack)), R1);
        code.store_imm(8, FP, slot(offset_of!(CallEvent, function)), 0);
        for (index, trampoline) in self.trampolines.iter().enumerate() {
            code.load_imm(R1, trampoline.cast_signed());
            code.store(8, FP, slot(offset_of!(CallEvent, trampolines)) + 8 * index as i16, R1);
        }
        code.store_imm(8, FP, slot(offset_of!(CallEvent, slack)), self.slack as i32);
        code.store_imm(4, FP, slot(offset_of!(CallEvent, task_stack)), self.task_stack as i32);
        code.store_imm(4, FP, slot(offset_of!(CallEvent, stack_size)), self.stack_size as i32);
        code.store_imm(4, FP, slot(offset_of!(CallEvent, root)), root.into());
        code.store_imm(4, FP, slot(offset_of!(CallEvent, max_depth)), self.max_depth as i32);
        code.store_imm(4, FP, slot(offset_of!(CallEvent, flags)), flags.cast_signed());
    }
}

/// The hooks of a program.
fn attach_points(hooks: GraphHooks, at: At, functions: &[(String, u64)]) -> Option<Vec<Hook>> {
    let returns = at == At::Return;
    let addresses = || functions.iter().map(|(_, address)| *address).collect();
    match hooks {
        GraphHooks::Session => Some(vec![Hook::KernelCalls { addresses: addresses() }]),
        GraphHooks::Returns => Some(vec![Hook::KernelFunctions { addresses: addresses(), returns }]),
        GraphHooks::Kprobes => functions.iter().map(|function| one_of_many(function, returns)).collect(),
    }
}

/// Takes space for a record of `len` bytes, to R7, and fills it with zeros after the common fields.
fn begin(code: &mut Assembler, (event, flags): (usize, u32), len: u32, out: Label) {
    code.load_imm(R4, -1);
    let flags = flags | Preemption::Off.begin_flags() | begin_flags::REGISTERS;
    code.begin_record(event, flags, len, out);
    for word in 2..len / 4 {
        code.store_imm(4, R7, (4 * word) as i16, 0);
    }
}

fn end(code: &mut Assembler, len: u32) {
    code.load_imm(R2, len.into());
    code.end_record();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(fields: &str) -> Format {
        let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n";
        let text = format!("name: funcgraph\nID: 10\nformat:\n{common}\n{fields}\nprint fmt: \"\"\n");
        Format::parse(&text).unwrap()
    }

    fn field(text: &str, offset: u32, size: u32) -> String {
        format!("\tfield:{text};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
    }

    #[test]
    fn records_are_as_long_as_their_formats_say() {
        let mut fields = field("unsigned long func", 8, 8) + &field("int depth", 16, 4);
        assert_eq!(Entry::of(&format(&fields)).map(|entry| entry.len), Some(20));
        // As of 6.17, which records arguments.
        fields += &field("unsigned long args[]", 24, 0);
        assert_eq!(Entry::of(&format(&fields)).map(|entry| entry.len), Some(24));
        assert_eq!(Exit::of(&format(&fields)), None);
        // As before 5.17.
        let old = [("calltime", 16, 8), ("rettime", 24, 8), ("overrun", 32, 8), ("depth", 40, 4)];
        let old: String =
            old.iter().map(|(name, at, size)| field(&format!("long {name}"), *at, *size)).collect();
        let exit = Exit::of(&format(&(field("unsigned long func", 8, 8) + &old))).unwrap();
        assert_eq!((exit.start, exit.overrun, exit.depth, exit.len), (16, (32, 8), (40, 4), 44));
        assert_eq!(exit.value, None);
    }

    #[test]
    fn every_program_can_be_put_together() {
        let fields = field("unsigned long func", 8, 8) + &field("int depth", 16, 4);
        let exits = [("overrun", 20, 4), ("calltime", 24, 8), ("rettime", 32, 8), ("retval", 40, 8)];
        let exits: String =
            exits.iter().map(|(name, at, size)| field(&format!("long {name}"), *at, *size)).collect();
        let bodies = Bodies {
            entry: Entry::of(&format(&fields)).unwrap(),
            exit: Exit::of(&format(&(fields + &exits))).unwrap(),
            stack_pointer: 152,
            trampolines: [1, u64::MAX],
            slack: 0,
            task_stack: 32,
            stack_size: 16384,
            max_depth: 3,
            is_return: Some(TypeId(7)),
        };
        let functions = Functions {
            roots: vec![("root".to_owned(), 1)],
            others: vec![("one".to_owned(), 2), ("two".to_owned(), 3)],
        };
        let count = |hooks| bodies.programs(hooks, &functions).map(|programs| programs.len());
        assert_eq!(count(GraphHooks::Session), Some(2));
        assert_eq!(count(GraphHooks::Returns), Some(4));
        assert_eq!(count(GraphHooks::Kprobes), Some(4));
    }
}
