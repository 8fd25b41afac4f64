//! From an event's description to instructions, with the running kernel's types and the event's record as tracefs describes it.
//!
//! Where a field goes is what the format says; what it is comes from the description; how to load it, from BTF. So one
//! description serves all kernels that have these arguments and members, and a kernel where anything is different is noticed
//! here: the event then takes the generic lane.
//!
//! A program of type "tracing" knows the types of its arguments, so members are loaded directly. Since 6.2 the verifier takes
//! pointer arguments for valid and never null, drops comparisons with null, and turns loads into ordinary ones: where that
//! belief is wrong (`sched_process_wait` has a null argument for `wait(-1)`), the kernel crashes. So every pointer is
//! cast to one that is not trusted (`bpf_rdonly_cast`, which becomes a single move): loads through it give 0 where
//! there is no memory, whatever a description says. Before 6.2 all loads are of that kind.
//!
//! If the verifier refuses a load, the same event is compiled to copy members with `bpf_probe_read_kernel`.

mod constants;
mod fields;

use std::{cell::RefCell, collections::HashMap};

use agent_ebpf::{SIDE_RECORD_MAX, begin_flags};

use super::language::{Definition, Expr, Op};
use crate::{
    bpf::{
        insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R6, R7, R8, Reg},
        preemption::Preemption,
        program::{Body, FRAME},
    },
    compile::{
        context::{Placed, SCRATCH},
        filter,
        slot::LAZY_COUNT,
    },
    event::{Field, Format, Location},
    kernel::{
        btf::{Btf, BtfError, Shape, TypeId},
        version::KernelVersion,
    },
};

/// Bytes of the common fields.
const COMMON: u32 = 8;
/// Longest record of the fast lane: its event header has 4 bytes.
const FAST_MAX: u32 = 112;
/// What a filter sees in programs that can be preempted, whose other functions need more of the stack.
const APART_MAX: u32 = 80;
/// Below the frame, which is at the top of the stack: named values, then what calls would overwrite, then what members are copied to.
const LETS_MAX: usize = 12;
const SAVED: i16 = FRAME + 8 * LETS_MAX as i16;
const COPIED: i16 = SAVED + 8 * 6;
/// Whether a text was cut. Below is what filters look at.
const CUT: i16 = COPIED + 16;
/// The least room for a string of unknown length.
const TEXT_MIN: u32 = 32;
/// Registers that hold intermediate results: R1 to R5.
const DEPTH_MAX: u8 = 5;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_GET_SOCKET_COOKIE: i32 = 46;
const HELPER_PROBE_READ_KERNEL: i32 = 113;
const HELPER_PROBE_READ_USER_STR: i32 = 114;
const HELPER_PROBE_READ_KERNEL_STR: i32 = 115;
const HELPER_JIFFIES64: i32 = 118;
const HELPER_GET_CURRENT_TASK_BTF: i32 = 158;
const HELPER_GET_FUNC_IP: i32 = 173;

/// What programs of different kinds do differently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The longest record.
    record_max: u32,
    preemption: Preemption,
    /// Whether the upper halves of arguments may hold anything: those of functions are registers as they are, those of tracepoints are
    /// zero extended.
    raw_arguments: bool,
    /// Whether a text that does not fit is cut, and that counted, instead of the record's being lost.
    cuts: bool,
    /// What stands for a text that cannot be read.
    absent: &'static [u8; 8],
}

impl Rules {
    /// Those of the fast lane, whose records are the kernel's own: `__assign_str` writes `(null)` for a null pointer.
    pub(super) const FAST: Self = Self {
        record_max: FAST_MAX,
        preemption: Preemption::Off,
        raw_arguments: false,
        cuts: false,
        absent: b"(null)\0\0",
    };

    /// Those of typed probes, whose records are like the kernel's probes': `(fault)`.
    pub(crate) fn typed(preemption: Preemption) -> Self {
        Self {
            record_max: SIDE_RECORD_MAX as u32 / 2,
            preemption,
            raw_arguments: true,
            cuts: true,
            absent: b"(fault)\0",
        }
    }

    /// The flags that `fast_begin` gets with the event's id.
    fn begin_flags(self) -> u32 {
        // Tracepoints have the same as the fast lane's own rules say; only other hooks tell.
        if self.raw_arguments { self.preemption.begin_flags() } else { 0 }
    }
}

/// Why an event does not go through the fast lane.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// It has no description.
    #[error("it has none of the fast programs")]
    NotDescribed,
    /// The tracepoint takes other arguments.
    #[error("its tracepoint has {found} arguments on this kernel, {expected} are described")]
    Arguments {
        /// In BTF.
        found: usize,
        /// In the description.
        expected: usize,
    },
    /// The record has a field that is not described.
    #[error("its field {0} is not described")]
    UnknownField(String),
    /// The description has a field that the record lacks.
    #[error("it has no field {0} on this kernel")]
    NoField(String),
    /// A field is of another size or kind than its value.
    #[error("its field {0} does not have the described type on this kernel")]
    FieldType(String),
    /// A type or member is missing.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The record is too long.
    #[error("its record can have {0} bytes, its program writes at most {1}")]
    TooLong(u32, u32),
    /// It has a filter or contexts, and its program is that of others.
    #[error("all system calls share their programs there, which have neither filters nor contexts")]
    SharedProgram,
    /// Its filter.
    #[error("its filter cannot be evaluated there: {0}")]
    Filter(#[from] filter::Uncompiled),
    /// The expression is not understood. A defect of the description for this kernel.
    #[error("its description does not fit: {0}")]
    Expression(&'static str),
}

/// From here on the verifier trusts pointer arguments, and has a function that takes the trust away.
const TRUSTED_SINCE: KernelVersion = KernelVersion::new(6, 2, 0);

/// How members are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By loads that the verifier checks against the kernel's types, through pointers that were cast by this function of the kernel
    /// (its number in BTF).
    Direct(Option<TypeId>),
    /// By a helper.
    Copied,
}

impl Access {
    /// How the programs of this kernel, whose type information `btf` is, read members.
    pub(crate) fn of_kernel(btf: &Btf) -> Self {
        match btf.function("bpf_rdonly_cast") {
            Ok(cast) => Self::Direct(Some(cast)),
            Err(_) if KernelVersion::running().is_some_and(|running| running < TRUSTED_SINCE) => {
                Self::Direct(None)
            }
            Err(_) => Self::Copied,
        }
    }
}

/// What of a record is on the stack when its filter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staged {
    /// The fields that the filter looks at.
    Fields,
    /// All of it: what is behind the fixed part is where the strings before it end.
    Whole,
    /// Fields in another place than in the record.
    Apart,
}

/// A filter of an event's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The filter.
    pub(crate) program: &'a filter::Program,
    /// The fields that it looks at, as it finds them; `None` if they are where the record has them.
    pub(crate) apart: Option<&'a Format>,
}

/// What an event's program has beside its description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras<'a> {
    /// Which records are wanted.
    pub(crate) filter: Option<Asked<'a>>,
    /// Fields of the format that are not described.
    pub(crate) contexts: &'a Placed,
}

/// The kernel's types by name. Looking for one in BTF takes a walk through all of them, and the same few are asked for again and
/// again.
#[derive(Debug)]
pub(crate) struct TypeNames<'a> {
    btf: &'a Btf,
    known: RefCell<HashMap<String, Option<TypeId>>>,
}

impl<'a> TypeNames<'a> {
    pub(crate) fn new(btf: &'a Btf) -> Self {
        Self { btf, known: RefCell::default() }
    }

    /// The number of a type, if there is one of that name.
    fn find(&self, name: &str) -> Option<TypeId> {
        let mut known = self.known.borrow_mut();
        if let Some(found) = known.get(name) {
            return *found;
        }
        let found = self.btf.type_named(name).ok();
        known.insert(name.to_owned(), found);
        found
    }

    fn named(&self, name: &str) -> Result<TypeId, BtfError> {
        self.find(name).ok_or_else(|| BtfError::NoType(name.to_owned()))
    }
}

/// Compiles an event.
pub(crate) fn compile(
    definition: &Definition<'_>,
    args: &[TypeId],
    format: &Format,
    types: &TypeNames<'_>,
    access: Access,
    rules: Rules,
    extras: Extras<'_>,
) -> Result<Body, Mismatch> {
    if args.len() != definition.args.len() {
        return Err(Mismatch::Arguments { found: args.len(), expected: definition.args.len() });
    }
    for field in &format.fields {
        let is_described = definition.fields.iter().any(|(name, _)| *name == &*field.name);
        if !is_described && !extras.contexts.has(&field.name) {
            return Err(Mismatch::UnknownField(field.name.clone()));
        }
    }
    if let Some((name, _)) = definition.fields.iter().find(|(name, _)| format.field(name).is_none()) {
        return Err(Mismatch::NoField((*name).to_owned()));
    }
    let compiler = Compiler {
        code: Assembler::default(),
        definition,
        args,
        types,
        btf: types.btf,
        access,
        rules,
        lets: Vec::new(),
        field_size: 0,
    };
    compiler.program(format, extras)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Number { size: u32, signed: bool },
    Pointer(TypeId),
}

const LONG: Type = Type::Number { size: 8, signed: true };

/// Something in memory: what `register + offset` points to.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u32,
    type_id: TypeId,
}

struct Compiler<'a> {
    code: Assembler,
    definition: &'a Definition<'a>,
    args: &'a [TypeId],
    types: &'a TypeNames<'a>,
    btf: &'a Btf,
    access: Access,
    rules: Rules,
    lets: Vec<(&'a str, Type)>,
    /// Bytes of the field that is being compiled: what `size()` gives.
    field_size: u32,
}

impl<'a> Compiler<'a> {
    fn program(mut self, format: &Format, Extras { filter, contexts }: Extras<'_>) -> Result<Body, Mismatch> {
        let layout = format.record_layout();
        for needed in &self.definition.needs {
            self.exists(needed)?;
        }
        let texts = self.text_limits(format, layout.size, self.rules.record_max + contexts.bytes())?;
        let max = layout.size + texts.iter().map(|(_, limit)| limit).sum::<u32>();
        let done = self.code.label();
        self.code.alu(Alu::Mov, R6, R1);
        self.distrust()?;
        if self.rules.cuts {
            self.code.store_imm(8, FP, -CUT, 0);
        }
        let mut staged = None;
        let end = self.code.label();
        if let Some(asked) = filter {
            if has_lazy_count(format) && asked.program.reads.contains(&COMMON) {
                return Err(filter::Uncompiled::Common(LAZY_COUNT).into());
            }
            self.lets(format)?;
            let open = self.code.label();
            staged = Some(match asked.apart {
                Some(fields) => self.stage_apart(fields)?,
                None => self.stage(format, &texts, max, asked.program, open)?,
            });
            self.code.alu(Alu::Mov, R1, R7);
            self.code.ask_filter(self.rules.preemption, end);
            self.code.place(open);
        }
        match &self.definition.about {
            Some(about) => {
                self.number(about, 1)?;
                self.code.alu(Alu::Mov, R4, R1);
            }
            None => self.code.load_imm(R4, -1),
        }
        if let Preemption::Guarded(guard) = self.rules.preemption {
            guard.disable(&mut self.code);
            // Typed probes are about nobody else.
            self.code.load_imm(R4, -1);
        }
        let failed = self.code.label();
        let finish = self.code.label();
        // The kernel switches with interrupts off (`__schedule`, kernel/sched/core.c).
        let switch = if self.definition.is_switch { begin_flags::SWITCH | begin_flags::IRQS_OFF } else { 0 };
        self.code.begin_record(0, self.rules.begin_flags() | switch, max, done);
        let can_fail = self.can_fail(&texts);
        if staged == Some(Staged::Whole) {
            if can_fail {
                self.code.jump_imm(Jump::Equal, R8, 0, failed);
            }
            self.unstage(COMMON, max, max);
        } else {
            self.code.load_imm(R8, layout.fields_end.into());
            if filter.is_none() {
                self.lets(format)?;
            }
            self.padding(format, layout.size);
            let is_staged = |field: &Field| {
                staged == Some(Staged::Fields) && filter.is_some_and(|asked| looks_at(asked.program, field))
            };
            for field in format.fields.iter().filter(|field| is_staged(field)) {
                self.unstage(field.offset, field.offset + field.size, max);
            }
            self.fields(format, &texts, |field| !is_staged(field), failed)?;
        }
        if has_lazy_count(format) {
            let info = Expr::Member(Expr::Name("current").into(), "thread_info", true);
            self.number(&Expr::Member(info.into(), "preempt_lazy_count", false), 1)?;
            self.code.store(1, R7, COMMON as i16, R1);
        }
        // What the filter looked at is there, and not needed any more.
        contexts.write(&mut self.code, -CUT - SCRATCH);
        // What is behind the last field belongs to the structure, and dynamic data starts at the field's end.
        self.code.address(R2, R8, (layout.size - layout.fields_end) as i32);
        if self.rules.cuts && !texts.is_empty() {
            // What `fast_end` takes for a cut is above the length.
            self.code.load(8, R1, FP, -CUT);
            self.code.alu(Alu::Or, R2, R1);
        } else if can_fail {
            self.code.goto(finish);
            self.code.place(failed);
            self.code.load_imm(R2, 0);
        }
        self.code.place(finish);
        self.code.end_record();
        self.code.place(done);
        self.rules.preemption.enable(&mut self.code);
        self.code.place(end);
        self.code.load_imm(R0, 0);
        self.code.exit();
        let filter = filter.map_or_else(Vec::new, |asked| asked.program.code.clone());
        Body::with_filter(self.code, filter).ok_or(Mismatch::Expression("it is too long"))
    }

    /// Makes what the filter looks at, on the stack.
    fn stage(
        &mut self,
        format: &Format,
        texts: &[(&'a str, u32)],
        max: u32,
        filter: &filter::Program,
        open: Label,
    ) -> Result<Staged, Mismatch> {
        self.code.address(R7, FP, stage(max).into());
        let mut needed = format.fields.iter().filter(|field| looks_at(filter, field));
        if needed.all(|field| field.location == Location::Inline) {
            self.fields(format, texts, |field| looks_at(filter, field), open)?;
            return Ok(Staged::Fields);
        }
        for word in 0..max.div_ceil(8) {
            self.code.store_imm(8, R7, 8 * word as i16, 0);
        }
        let (cut, whole) = (self.code.label(), self.code.label());
        self.code.load_imm(R8, format.record_layout().fields_end.into());
        self.fields(format, texts, |_| true, cut)?;
        if !self.can_fail(texts) {
            return Ok(Staged::Whole);
        }
        self.code.goto(whole);
        // The event is not filtered, and counted as lost.
        self.code.place(cut);
        self.code.load_imm(R8, 0);
        self.code.goto(open);
        self.code.place(whole);
        Ok(Staged::Whole)
    }

    /// Makes the fields of this format on the stack; texts are cut, which is not counted.
    fn stage_apart(&mut self, fields: &Format) -> Result<Staged, Mismatch> {
        let layout = fields.record_layout();
        let texts = self.text_limits(fields, layout.size, APART_MAX)?;
        let max = layout.size + texts.iter().map(|(_, limit)| limit).sum::<u32>();
        if max > APART_MAX {
            return Err(Mismatch::TooLong(max, APART_MAX));
        }
        let never = self.code.label();
        self.code.address(R7, FP, stage(max).into());
        for word in 0..max.div_ceil(8) {
            self.code.store_imm(8, R7, 8 * word as i16, 0);
        }
        self.code.load_imm(R8, layout.fields_end.into());
        self.fields(fields, &texts, |_| true, never)?;
        self.code.place(never);
        self.code.store_imm(8, FP, -CUT, 0);
        Ok(Staged::Apart)
    }

    /// Whether a string may be too long for the record.
    fn can_fail(&self, texts: &[(&str, u32)]) -> bool {
        self.definition
            .fields
            .iter()
            .any(|(name, value)| !fields::is_empty_text(value) && texts.iter().any(|(text, _)| text == name))
    }

    /// Copies bytes of the record from the stack to its place.
    fn unstage(&mut self, from: u32, to: u32, max: u32) {
        let mut at = from;
        while at < to {
            let step = aligned_step(at, to - at);
            self.code.load(step, R1, FP, stage(max) + at as i16);
            self.code.store(step, R7, at as i16, R1);
            at += step;
        }
    }

    /// The chosen ones of the fields that the format has, at R7. `failed` is where a string that is too long leads.
    fn fields(
        &mut self,
        format: &Format,
        texts: &[(&'a str, u32)],
        chosen: impl Fn(&Field) -> bool,
        failed: Label,
    ) -> Result<(), Mismatch> {
        for (name, value) in &self.definition.fields {
            let Some(field) = format.field(name).filter(|field| chosen(field)) else { continue };
            self.field_size = field.size;
            match texts.iter().find(|(text, _)| text == name) {
                None => self.field(name, field, value)?,
                Some((_, limit)) => self.text(name, field, value, *limit, failed)?,
            }
        }
        Ok(())
    }

    fn uses(&self, name: &str) -> bool {
        let mut values = self.definition.lets.iter().chain(&self.definition.fields).map(|(_, value)| value);
        values.any(|value| mentions(value, name))
            || self.definition.about.as_ref().is_some_and(|about| mentions(about, name))
    }

    /// Casts the arguments that point to structures.
    fn distrust(&mut self) -> Result<(), Mismatch> {
        let Access::Direct(Some(cast)) = self.access else { return Ok(()) };
        for (index, name) in self.definition.args.iter().enumerate() {
            let Type::Pointer(target) = self.type_of(self.args[index])? else { continue };
            if !self.uses(name) || !matches!(self.btf.shape(target)?, Shape::Struct | Shape::Union) {
                continue;
            }
            self.code.load(8, R1, R6, 8 * index as i16);
            self.cast(cast, target);
            self.keep(name, Type::Pointer(target), R0)?;
        }
        Ok(())
    }

    /// Makes the pointer in R1 one that is not trusted, to this type, in R0.
    fn cast(&mut self, cast: TypeId, target: TypeId) {
        self.code.load_imm(R2, target.0.into());
        self.code.call_kernel_function(cast.0);
    }

    /// Checks that what an expression names is there, without keeping the code.
    fn exists(&mut self, needed: &Expr<'_>) -> Result<(), Mismatch> {
        self.without_code(|compiler| {
            compiler.value(needed, 1)?;
            Ok(())
        })
    }

    /// Does something only to learn of types: no code stays, and nothing is really loaded.
    fn without_code<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Mismatch>,
    ) -> Result<T, Mismatch> {
        let mark = self.code.clone();
        let lets = self.lets.len();
        self.lets.push(("current", Type::Pointer(self.types.named("task_struct")?)));
        let result = work(self);
        self.lets.truncate(lets);
        self.code = mark;
        result
    }

    fn lets(&mut self, format: &Format) -> Result<(), Mismatch> {
        if self.uses("current") || has_lazy_count(format) {
            self.code.call_helper(HELPER_GET_CURRENT_TASK_BTF);
            let task = self.types.named("task_struct")?;
            self.keep("current", Type::Pointer(task), R0)?;
        }
        for (name, value) in &self.definition.lets {
            let (register, ty) = self.value(value, 1)?;
            let ty = self.extended(register, ty);
            self.keep(name, ty, register)?;
        }
        Ok(())
    }

    fn keep(&mut self, name: &'a str, ty: Type, from: Reg) -> Result<(), Mismatch> {
        if self.lets.len() == LETS_MAX {
            return Err(Mismatch::Expression("it names too many values"));
        }
        let slot = -FRAME - 8 - 8 * self.lets.len() as i16;
        self.code.store(8, FP, slot, from);
        self.lets.push((name, ty));
        Ok(())
    }

    /// The place of an expression that is an array or a structure.
    fn array(&mut self, value: &Expr<'_>, depth: u8) -> Result<Option<(Reg, Place)>, Mismatch> {
        if !matches!(value, Expr::Member(..) | Expr::Index(..)) {
            return Ok(None);
        }
        let mark = self.code.clone();
        let (base, place) = self.place(value, depth)?;
        if matches!(self.btf.shape(place.type_id)?, Shape::Array { .. } | Shape::Struct | Shape::Union) {
            return Ok(Some((base, place)));
        }
        self.code = mark;
        Ok(None)
    }

    /// Evaluates to a 64-bit number in the register of this depth.
    fn number(&mut self, expr: &Expr<'_>, depth: u8) -> Result<Reg, Mismatch> {
        let (register, ty) = self.value(expr, depth)?;
        self.extended(register, ty);
        Ok(register)
    }

    /// Makes all 64 bits of a loaded value valid.
    fn extended(&mut self, register: Reg, ty: Type) -> Type {
        match ty {
            Type::Number { size, signed } if size < 8 => {
                let unused = 64 - 8 * size as i32;
                if signed {
                    self.code.alu_imm(Alu::Lsh, register, unused);
                    self.code.alu_imm(Alu::Arsh, register, unused);
                }
                Type::Number { size: 8, signed }
            }
            other => other,
        }
    }

    fn value(&mut self, expr: &Expr<'_>, depth: u8) -> Result<(Reg, Type), Mismatch> {
        if depth > DEPTH_MAX {
            return Err(Mismatch::Expression("it is nested too deep"));
        }
        let to = Reg(depth);
        if !matches!(expr, Expr::Number(_))
            && let Some(value) = self.constant(expr)
        {
            self.code.load_imm(to, value);
            return Ok((to, LONG));
        }
        let ty = match expr {
            Expr::Number(value) => {
                self.code.load_imm(to, *value);
                LONG
            }
            Expr::Name(name) => self.named(name, to, depth)?,
            Expr::Member(..) | Expr::Index(..) => {
                let (base, place) = self.place(expr, depth)?;
                let ty = self.type_of(place.type_id)?;
                self.load(self.access, ty, to, base, place.offset, depth)?;
                ty
            }
            Expr::Not(inner) => {
                self.value(inner, depth)?;
                self.truth(to, |code, yes| code.jump_imm(Jump::Equal, to, 0, yes))
            }
            Expr::Negate(inner) => {
                self.number(inner, depth)?;
                self.code.alu_imm(Alu::Neg, to, 0);
                LONG
            }
            Expr::Complement(inner) => {
                self.number(inner, depth)?;
                self.code.alu_imm(Alu::Xor, to, -1);
                LONG
            }
            Expr::Binary(op, left, right) => self.binary(*op, left, right, depth)?,
            Expr::Choice(condition, yes, no) if self.constant(condition).is_some() => {
                let taken = if self.constant(condition) == Some(0) { no } else { yes };
                self.number(taken, depth)?;
                LONG
            }
            Expr::Choice(condition, yes, no) => {
                let (other, end) = (self.code.label(), self.code.label());
                self.number(condition, depth)?;
                self.code.jump_imm(Jump::Equal, to, 0, other);
                self.number(yes, depth)?;
                self.code.goto(end);
                self.code.place(other);
                self.number(no, depth)?;
                self.code.place(end);
                LONG
            }
            Expr::Call("address", args) => {
                let [inner] = args.as_slice() else {
                    return Err(Mismatch::Expression("address takes one argument"));
                };
                let (base, place) = self.place(inner, depth)?;
                self.code.address(to, base, place.offset as i32);
                Type::Number { size: 8, signed: false }
            }
            Expr::Call("read64", args) => {
                let [pointer] = args.as_slice() else {
                    return Err(Mismatch::Expression("read64 takes one argument"));
                };
                self.value(pointer, depth)?;
                self.load(Access::Copied, LONG, to, to, 0, depth)?;
                LONG
            }
            Expr::Call("cast", args) => {
                let [Expr::Name(name), inner] = args.as_slice() else {
                    return Err(Mismatch::Expression("cast takes a type and a pointer"));
                };
                let target = self.types.named(name)?;
                self.value(inner, depth)?;
                if let Access::Direct(Some(cast)) = self.access {
                    if depth != 1 {
                        return Err(Mismatch::Expression("cast in the right half of an expression"));
                    }
                    self.cast(cast, target);
                    self.code.alu(Alu::Mov, to, R0);
                }
                Type::Pointer(target)
            }
            Expr::Call("socket_cookie", args) if depth == 1 => {
                let [Expr::Name(name)] = args.as_slice() else {
                    return Err(Mismatch::Expression("socket_cookie takes an argument of the tracepoint"));
                };
                // The helper wants the pointer as the tracepoint gives it.
                self.code.load(8, R1, R6, 8 * self.argument(name)? as i16);
                self.code.call_helper(HELPER_GET_SOCKET_COOKIE);
                self.code.alu(Alu::Mov, to, R0);
                Type::Number { size: 8, signed: false }
            }
            // A call takes R1 to R5.
            Expr::Call("jiffies", args) if args.is_empty() && depth == 1 => {
                self.code.call_helper(HELPER_JIFFIES64);
                self.code.alu(Alu::Mov, to, R0);
                Type::Number { size: 8, signed: false }
            }
            Expr::Call("function_address", args) if args.is_empty() && depth == 1 => {
                self.code.alu(Alu::Mov, R1, R6);
                self.code.call_helper(HELPER_GET_FUNC_IP);
                self.code.alu(Alu::Mov, to, R0);
                Type::Number { size: 8, signed: false }
            }
            Expr::Call(..) => return Err(Mismatch::Expression("it calls an unknown function")),
        };
        Ok((to, ty))
    }

    fn named(&mut self, name: &str, to: Reg, depth: u8) -> Result<Type, Mismatch> {
        if let Some(index) = self.lets.iter().position(|(known, _)| *known == name) {
            self.code.load(8, to, FP, -FRAME - 8 - 8 * index as i16);
            return Ok(self.lets[index].1);
        }
        let index = self.argument(name)?;
        // The kernel hands over arguments zero extended (`CAST_TO_U64`, include/trace/bpf_probe.h).
        let ty = self.type_of(self.args[index])?;
        let access = match ty {
            Type::Pointer(target) => match self.btf.shape(target)? {
                // Up to 6.12 at least, the verifier does not see that `const void *` is one to nothing.
                Shape::Void if self.access == Access::Copied => Access::Copied,
                Shape::Struct | Shape::Union | Shape::Void | Shape::Int { .. } => Access::Direct(None),
                // The verifier lets no program load pointers to functions and to pointers (`btf_ctx_access`, kernel/bpf/btf.c).
                _ => Access::Copied,
            },
            Type::Number { .. } => Access::Direct(None),
        };
        self.load(access, Type::Number { size: 8, signed: false }, to, R6, 8 * index as u32, depth)?;
        if let Type::Number { size, .. } = ty
            && size < 8
            && self.rules.raw_arguments
        {
            let unused = 64 - 8 * size as i32;
            self.code.alu_imm(Alu::Lsh, to, unused);
            self.code.alu_imm(Alu::Rsh, to, unused);
        }
        Ok(ty)
    }

    /// Which of the tracepoint's arguments has this name.
    fn argument(&self, name: &str) -> Result<usize, Mismatch> {
        let index = self.definition.args.iter().position(|arg| *arg == name);
        index.ok_or(Mismatch::Expression("it names something that there is not"))
    }

    fn type_of(&self, type_id: TypeId) -> Result<Type, Mismatch> {
        Ok(match self.btf.shape(type_id)? {
            Shape::Int { size: size @ (1 | 2 | 4 | 8), signed } => Type::Number { size, signed },
            Shape::Enum => Type::Number { size: self.btf.size_of(type_id)?, signed: false },
            Shape::Pointer => Type::Pointer(self.btf.pointer_target(type_id)?.unwrap_or(TypeId(0))),
            _ => return Err(Mismatch::Expression("a structure is used as a number")),
        })
    }

    /// Finds what an expression names in memory. The base is in the register of this depth.
    fn place(&mut self, expr: &Expr<'_>, depth: u8) -> Result<(Reg, Place), Mismatch> {
        match expr {
            Expr::Member(outer, name, true) => {
                let (base, ty) = self.value(outer, depth)?;
                let Type::Pointer(target) = ty else {
                    return Err(Mismatch::Expression("-> behind something that is no pointer"));
                };
                let member = self.btf.member_of(target, name)?;
                Ok((base, Place { offset: member.offset, type_id: member.type_id }))
            }
            Expr::Member(outer, name, false) => {
                let (base, place) = self.place(outer, depth)?;
                let member = self.btf.member_of(place.type_id, name)?;
                Ok((base, Place { offset: place.offset + member.offset, type_id: member.type_id }))
            }
            Expr::Index(outer, index) => {
                let (base, place) = self.place(outer, depth)?;
                let Shape::Array { element, .. } = self.btf.shape(place.type_id)? else {
                    return Err(Mismatch::Expression("an index behind something that is no array"));
                };
                let offset = place.offset + index * self.btf.size_of(element)?;
                Ok((base, Place { offset, type_id: element }))
            }
            _ => Err(Mismatch::Expression("a member of something that is not in memory")),
        }
    }

    fn load(
        &mut self,
        access: Access,
        ty: Type,
        to: Reg,
        base: Reg,
        offset: u32,
        depth: u8,
    ) -> Result<(), Mismatch> {
        let size = match ty {
            Type::Number { size, .. } => size,
            Type::Pointer(_) => 8,
        };
        if let Access::Direct(_) = access {
            self.code.load(size, to, base, to_i16(offset)?);
            return Ok(());
        }
        // The call takes R1 to R5: what the levels below hold is put aside.
        for below in 1..depth {
            self.code.store(8, FP, -SAVED - 8 * i16::from(below), Reg(below));
        }
        self.code.address(R3, base, offset as i32);
        self.code.address(R1, FP, -i32::from(COPIED) - 8);
        self.code.load_imm(R2, size.into());
        self.code.call_helper(HELPER_PROBE_READ_KERNEL);
        for below in 1..depth {
            self.code.load(8, Reg(below), FP, -SAVED - 8 * i16::from(below));
        }
        self.code.load(size, to, FP, -COPIED - 8);
        Ok(())
    }

    /// 1 or 0, by a jump that is taken for 1.
    fn truth(&mut self, to: Reg, jump: impl FnOnce(&mut Assembler, Label)) -> Type {
        let (yes, end) = (self.code.label(), self.code.label());
        jump(&mut self.code, yes);
        self.code.load_imm(to, 0);
        self.code.goto(end);
        self.code.place(yes);
        self.code.load_imm(to, 1);
        self.code.place(end);
        LONG
    }

    fn binary(&mut self, op: Op, left: &Expr<'_>, right: &Expr<'_>, depth: u8) -> Result<Type, Mismatch> {
        let to = Reg(depth);
        if matches!(op, Op::BothTrue | Op::EitherTrue) {
            let (short, end) = (self.code.label(), self.code.label());
            let jump = if op == Op::BothTrue { Jump::Equal } else { Jump::NotEqual };
            for side in [left, right] {
                self.number(side, depth)?;
                self.code.jump_imm(jump, to, 0, short);
            }
            self.code.load_imm(to, i64::from(op == Op::BothTrue));
            self.code.goto(end);
            self.code.place(short);
            self.code.load_imm(to, i64::from(op == Op::EitherTrue));
            self.code.place(end);
            return Ok(LONG);
        }
        let (_, left_type) = self.value(left, depth)?;
        let left_type = self.extended(to, left_type);
        let constant = self.constant(right).and_then(|value| i32::try_from(value).ok());
        let mut right_type = LONG;
        let mut from = R0;
        if constant.is_none() {
            let (register, ty) = self.value(right, depth + 1)?;
            right_type = self.extended(register, ty);
            from = register;
        }
        let signed = |ty| matches!(ty, Type::Number { signed: true, .. });
        let both_signed = signed(left_type) && signed(right_type);
        let jump = match op {
            Op::Equal => Some((Jump::Equal, false)),
            Op::NotEqual => Some((Jump::NotEqual, false)),
            Op::Greater => Some((if both_signed { Jump::SignedGreater } else { Jump::Greater }, false)),
            Op::GreaterEqual => {
                Some((if both_signed { Jump::SignedGreaterEqual } else { Jump::GreaterEqual }, false))
            }
            // The opposite of the opposite.
            Op::Less => Some((if both_signed { Jump::SignedGreaterEqual } else { Jump::GreaterEqual }, true)),
            Op::LessEqual => Some((if both_signed { Jump::SignedGreater } else { Jump::Greater }, true)),
            _ => None,
        };
        if let Some((jump, inverted)) = jump {
            let ty = self.truth(to, |code, yes| match constant {
                Some(value) => code.jump_imm(jump, to, value, yes),
                None => code.jump(jump, to, from, yes),
            });
            if inverted {
                self.code.alu_imm(Alu::Xor, to, 1);
            }
            return Ok(ty);
        }
        let alu = match op {
            Op::Mul => Alu::Mul,
            Op::Div => Alu::Div,
            Op::Mod => Alu::Mod,
            Op::Add => Alu::Add,
            Op::Sub => Alu::Sub,
            Op::Lsh => Alu::Lsh,
            Op::Rsh if signed(left_type) => Alu::Arsh,
            Op::Rsh => Alu::Rsh,
            Op::And => Alu::And,
            Op::Xor => Alu::Xor,
            _ => Alu::Or,
        };
        match constant {
            Some(value) => self.code.alu_imm(alu, to, value),
            None => self.code.alu(alu, to, from),
        }
        Ok(Type::Number { size: 8, signed: both_signed })
    }
}

/// Where the part of the record that is on the stack starts, for a record of at most so many bytes.
fn stage(max: u32) -> i16 {
    -CUT - max.next_multiple_of(8) as i16
}

/// The widest access at this place of at most so many bytes; those to the stack have to be aligned.
fn aligned_step(at: u32, bytes: u32) -> u32 {
    [8, 4, 2].into_iter().find(|step| *step <= bytes && at.is_multiple_of(*step)).unwrap_or(1)
}

/// Whether a filter looks at a field.
fn looks_at(filter: &filter::Program, field: &Field) -> bool {
    let end = field.offset + field.size.max(1);
    filter.reads.range(field.offset..end).next().is_some()
}

/// Whether records have the common field of kernels with the `PREEMPT_RT` patches.
fn has_lazy_count(format: &Format) -> bool {
    format.common.iter().any(|field| &*field.name == LAZY_COUNT)
}

fn to_i16(offset: u32) -> Result<i16, Mismatch> {
    i16::try_from(offset).map_err(|_| Mismatch::Expression("a member is too far away"))
}

/// Whether an expression uses a name.
fn mentions(expr: &Expr<'_>, name: &str) -> bool {
    match expr {
        Expr::Name(used) => *used == name,
        Expr::Number(_) => false,
        Expr::Member(inner, ..)
        | Expr::Index(inner, _)
        | Expr::Not(inner)
        | Expr::Negate(inner)
        | Expr::Complement(inner) => mentions(inner, name),
        Expr::Binary(_, a, b) => mentions(a, name) || mentions(b, name),
        Expr::Choice(a, b, c) => mentions(a, name) || mentions(b, name) || mentions(c, name),
        Expr::Call(_, args) => args.iter().any(|arg| mentions(arg, name)),
    }
}
