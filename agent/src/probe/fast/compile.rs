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

use agent_ebpf::{END_CUT, SIDE_RECORD_MAX};

use super::language::{Definition, Expr, Op};
use crate::{
    event::{Field, Format, Location},
    kernel::{
        btf::{Btf, BtfError, Shape, TypeId},
        features::KernelVersion,
    },
    probe::{
        context::{Placed, SCRATCH},
        filter,
        hook::Preemption,
        insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R5, R6, R7, R8, Reg},
        program::{Body, FRAME, Part, Relocation},
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
const HELPER_PROBE_READ_KERNEL: i32 = 113;
const HELPER_PROBE_READ_USER_STR: i32 = 114;
const HELPER_PROBE_READ_KERNEL_STR: i32 = 115;
const HELPER_JIFFIES64: i32 = 118;
const HELPER_GET_CURRENT_TASK_BTF: i32 = 158;
const HELPER_GET_FUNC_IP: i32 = 173;

/// What programs of different kinds do differently.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) struct Rules {
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
    pub(in crate::probe) fn typed(preemption: Preemption) -> Self {
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
pub(in crate::probe) enum Access {
    /// By loads that the verifier checks against the kernel's types, through pointers that were cast by this function of the kernel
    /// (its number in BTF).
    Direct(Option<TypeId>),
    /// By a helper.
    Copied,
}

impl Access {
    /// How the programs of this kernel, whose type information `btf` is, read members.
    pub(in crate::probe) fn of_kernel(btf: &Btf) -> Self {
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
pub(in crate::probe) struct Asked<'a> {
    /// The filter.
    pub(in crate::probe) program: &'a filter::Program,
    /// The fields that it looks at, as it finds them; `None` if they are where the record has them.
    pub(in crate::probe) apart: Option<&'a Format>,
}

/// What an event's program has beside its description.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) struct Extras<'a> {
    /// Which records are wanted.
    pub(in crate::probe) filter: Option<Asked<'a>>,
    /// Fields of the format that are not described.
    pub(in crate::probe) contexts: &'a Placed,
}

/// Compiles an event.
pub(in crate::probe) fn compile(
    definition: &Definition<'_>,
    args: &[TypeId],
    format: &Format,
    btf: &Btf,
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
    let compiler =
        Compiler { code: Assembler::default(), definition, args, btf, access, rules, lets: Vec::new() };
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
    btf: &'a Btf,
    access: Access,
    rules: Rules,
    lets: Vec<(&'a str, Type)>,
}

impl<'a> Compiler<'a> {
    fn program(mut self, format: &Format, Extras { filter, contexts }: Extras<'_>) -> Result<Body, Mismatch> {
        let layout = format.record_layout();
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
            self.lets()?;
            let open = self.code.label();
            staged = Some(match asked.apart {
                Some(fields) => self.stage_apart(fields)?,
                None => self.stage(format, &texts, max, asked.program, open)?,
            });
            self.ask(open, end);
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
        self.code.relocated_imm(R1, Relocation::Slot(0));
        self.code.relocated_imm(R2, Relocation::Id(0, self.rules.begin_flags()));
        self.code.load_imm(R3, max.into());
        self.frame_pointer(R5);
        self.code.call(Part::Begin);
        let failed = self.code.label();
        let finish = self.code.label();
        self.code.jump_imm(Jump::Equal, R0, 0, done);
        self.code.alu(Alu::Mov, R7, R0);
        if staged == Some(Staged::Whole) {
            self.code.jump_imm(Jump::Equal, R8, 0, failed);
            self.unstage(COMMON, max, max);
        } else {
            self.code.load_imm(R8, layout.fields_end.into());
            if filter.is_none() {
                self.lets()?;
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
        // What the filter looked at is there, and not needed any more.
        contexts.write(&mut self.code, -CUT - SCRATCH);
        // What is behind the last field belongs to the structure, and dynamic data starts at the field's end.
        self.code.alu(Alu::Mov, R2, R8);
        self.code.alu_imm(Alu::Add, R2, (layout.size - layout.fields_end) as i32);
        if self.rules.cuts && !texts.is_empty() {
            // What `fast_end` takes for a cut is above the length.
            self.code.load(8, R1, FP, -CUT);
            self.code.alu(Alu::Or, R2, R1);
        } else if !texts.is_empty() {
            self.code.goto(finish);
            self.code.place(failed);
            self.code.load_imm(R2, 0);
        }
        self.code.place(finish);
        self.frame_pointer(R1);
        self.code.alu(Alu::Mov, R3, R6);
        self.code.call(Part::End);
        self.code.place(done);
        if let Preemption::Guarded(guard) = self.rules.preemption {
            guard.enable(&mut self.code);
        }
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
        self.code.alu(Alu::Mov, R7, FP);
        self.code.alu_imm(Alu::Add, R7, stage(max).into());
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
        self.code.alu(Alu::Mov, R7, FP);
        self.code.alu_imm(Alu::Add, R7, stage(max).into());
        for word in 0..max.div_ceil(8) {
            self.code.store_imm(8, R7, 8 * word as i16, 0);
        }
        self.code.load_imm(R8, layout.fields_end.into());
        self.fields(fields, &texts, |_| true, never)?;
        self.code.place(never);
        self.code.store_imm(8, FP, -CUT, 0);
        Ok(Staged::Apart)
    }

    /// Calls the filter and, if it rejects the event, what counts that.
    fn ask(&mut self, open: Label, done: Label) {
        self.code.alu(Alu::Mov, R1, R7);
        self.code.call(Part::Filter);
        self.code.jump_imm(Jump::NotEqual, R0, 0, open);
        if let Preemption::Guarded(guard) = self.rules.preemption {
            guard.disable(&mut self.code);
        }
        self.code.relocated_imm(R1, Relocation::Slot(0));
        self.code.call(Part::Reject);
        if let Preemption::Guarded(guard) = self.rules.preemption {
            guard.enable(&mut self.code);
        }
        self.code.goto(done);
        self.code.place(open);
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
            match texts.iter().find(|(text, _)| text == name) {
                None => self.field(name, field, value)?,
                Some((_, limit)) => self.text(name, field, value, *limit, failed)?,
            }
        }
        Ok(())
    }

    /// The fields that are strings behind the fixed part, and how long each may be, NUL included and one more: what fills the
    /// limit may have been cut. Strings out of arrays are as long as these; the others share what is left.
    fn text_limits(
        &mut self,
        format: &Format,
        fixed: u32,
        record_max: u32,
    ) -> Result<Vec<(&'a str, u32)>, Mismatch> {
        let mut limits = Vec::new();
        for (name, value) in &self.definition.fields {
            if format.field(name).is_none_or(|field| field.location == Location::Inline) {
                continue;
            }
            // Only the type is of interest here, so that nothing is really loaded.
            let mark = self.code.clone();
            self.lets.push(("current", Type::Pointer(self.btf.type_named("task_struct")?)));
            let array = self.array(text_source(value), 1)?;
            self.lets.pop();
            self.code = mark;
            let limit = array.map(|(_, place)| self.btf.size_of(place.type_id)).transpose()?;
            limits.push((*name, limit.map(|limit| limit + 1)));
        }
        let known: u32 = fixed + limits.iter().filter_map(|(_, limit)| *limit).sum::<u32>();
        let open = limits.iter().filter(|(_, limit)| limit.is_none()).count() as u32;
        let share = record_max.saturating_sub(known).checked_div(open).unwrap_or(0);
        if known > record_max || open != 0 && share < TEXT_MIN {
            return Err(Mismatch::TooLong(known + open * TEXT_MIN, record_max));
        }
        Ok(limits.into_iter().map(|(name, limit)| (name, limit.unwrap_or(share))).collect())
    }

    fn frame_pointer(&mut self, to: Reg) {
        self.code.alu(Alu::Mov, to, FP);
        self.code.alu_imm(Alu::Add, to, -i32::from(FRAME));
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
            self.code.load_imm(R2, target.0.into());
            self.code.call_kernel_function(cast.0);
            self.keep(name, Type::Pointer(target), R0)?;
        }
        Ok(())
    }

    fn lets(&mut self) -> Result<(), Mismatch> {
        if self.uses("current") {
            self.code.call_helper(HELPER_GET_CURRENT_TASK_BTF);
            let task = self.btf.type_named("task_struct")?;
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

    /// Zeros between the fields and behind them, so that records do not carry what the page held before.
    fn padding(&mut self, format: &Format, size: u32) {
        let mut at = 8;
        let mut ends: Vec<(u32, u32)> =
            format.fields.iter().map(|field| (field.offset, field.offset + field.size)).collect();
        ends.sort_unstable();
        ends.push((size.next_multiple_of(4), 0));
        for (start, end) in ends {
            while at < start {
                let step = if at % 4 == 0 && start - at >= 4 { 4 } else { 1 };
                self.code.store_imm(step, R7, at as i16, 0);
                at += step;
            }
            at = at.max(end);
        }
    }

    fn field(&mut self, name: &str, field: &Field, value: &Expr<'_>) -> Result<(), Mismatch> {
        let wrong = || Mismatch::FieldType(name.to_owned());
        let at = i16::try_from(field.offset).map_err(|_| wrong())?;
        if let Expr::Number(number) = value
            && matches!(field.size, 1 | 2 | 4 | 8)
            && let Ok(number) = i32::try_from(*number)
        {
            self.code.store_imm(field.size, R7, at, number);
            return Ok(());
        }
        if let Expr::Call("text", args) = value {
            let [source] = args.as_slice() else {
                return Err(Mismatch::Expression("text takes one argument"));
            };
            return self.fixed_text(source, at, field.size);
        }
        if let Some((base, place)) = self.array(value, 1)? {
            if self.btf.size_of(place.type_id)? != field.size {
                return Err(wrong());
            }
            self.copy(base, place.offset, at, field.size)?;
            return Ok(());
        }
        if !matches!(field.size, 1 | 2 | 4 | 8) {
            return Err(wrong());
        }
        let (register, ty) = self.value(value, 1)?;
        if let Type::Number { size, .. } = ty
            && size < field.size
        {
            self.extended(register, ty);
        }
        self.code.store(field.size, R7, at, register);
        Ok(())
    }

    /// A string in an array, with zeros behind it.
    fn fixed_text(&mut self, source: &Expr<'_>, at: i16, size: u32) -> Result<(), Mismatch> {
        for byte in 0..size as i16 {
            self.code.store_imm(1, R7, at + byte, 0);
        }
        self.value(source, 1)?;
        self.code.alu(Alu::Mov, R3, R1);
        self.code.alu(Alu::Mov, R1, R7);
        self.code.alu_imm(Alu::Add, R1, at.into());
        self.code.load_imm(R2, size.into());
        self.code.call_helper(HELPER_PROBE_READ_KERNEL_STR);
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

    fn copy(&mut self, base: Reg, offset: u32, at: i16, size: u32) -> Result<(), Mismatch> {
        let from = to_i16(offset)?;
        if self.access == Access::Copied {
            self.code.alu(Alu::Mov, R3, base);
            self.code.alu_imm(Alu::Add, R3, from.into());
            self.code.alu(Alu::Mov, R1, R7);
            self.code.alu_imm(Alu::Add, R1, at.into());
            self.code.load_imm(R2, size.into());
            self.code.call_helper(HELPER_PROBE_READ_KERNEL);
            return Ok(());
        }
        let mut done = 0;
        while done < size {
            let step = aligned_step(at.cast_unsigned().into(), size).min(aligned_step(done, size - done));
            self.code.load(step, R2, base, from + done as i16);
            self.code.store(step, R7, at + done as i16, R2);
            done += step;
        }
        Ok(())
    }

    /// A string behind the fixed part; R8 is where it goes.
    fn text(
        &mut self,
        name: &str,
        field: &Field,
        value: &Expr<'_>,
        max: u32,
        failed: Label,
    ) -> Result<(), Mismatch> {
        let source = text_source(value);
        if field.location != Location::DataLoc {
            return Err(Mismatch::FieldType(name.to_owned()));
        }
        if let Some((base, place)) = self.array(source, 1)? {
            self.code.alu(Alu::Mov, R3, base);
            self.code.alu_imm(Alu::Add, R3, place.offset as i32);
        } else {
            self.value(source, 1)?;
            self.code.alu(Alu::Mov, R3, R1);
        }
        self.code.alu(Alu::Mov, R1, R7);
        self.code.alu(Alu::Add, R1, R8);
        self.code.load_imm(R2, max.into());
        let is_user = matches!(value, Expr::Call("ustring", _));
        self.code.call_helper(if is_user {
            HELPER_PROBE_READ_USER_STR
        } else {
            HELPER_PROBE_READ_KERNEL_STR
        });
        let there = self.code.label();
        self.code.jump_imm(Jump::SignedGreater, R0, 0, there);
        self.code.alu(Alu::Mov, R1, R7);
        self.code.alu(Alu::Add, R1, R8);
        let absent = self.rules.absent;
        let len = absent.iter().position(|&byte| byte == 0).map_or(absent.len(), |end| end + 1);
        for (place, &byte) in absent[..len].iter().enumerate() {
            self.code.store_imm(1, R1, place as i16, byte.into());
        }
        self.code.load_imm(R0, len as i64);
        self.code.place(there);
        if self.rules.cuts {
            let whole = self.code.label();
            self.code.load_imm(R1, max.into());
            self.code.jump(Jump::SignedGreater, R1, R0, whole);
            self.code.load_imm(R1, END_CUT.cast_signed());
            self.code.store(8, FP, -CUT, R1);
            self.code.load_imm(R0, max.into());
            self.code.place(whole);
        } else {
            // It may have been cut: nothing that is not whole is recorded.
            self.code.jump_imm(Jump::SignedGreaterEqual, R0, max as i32, failed);
        }
        self.code.alu(Alu::Mov, R1, R0);
        self.code.alu_imm(Alu::Lsh, R1, 16);
        self.code.alu(Alu::Or, R1, R8);
        self.code.store(4, R7, to_i16(field.offset)?, R1);
        self.code.alu(Alu::Add, R8, R0);
        Ok(())
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
                self.code.alu(Alu::Mov, to, base);
                self.code.alu_imm(Alu::Add, to, place.offset as i32);
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
        let index = self.definition.args.iter().position(|arg| *arg == name);
        let index = index.ok_or(Mismatch::Expression("it names something that there is not"))?;
        // The kernel hands over arguments zero extended (`CAST_TO_U64`, include/trace/bpf_probe.h).
        let ty = self.type_of(self.args[index])?;
        let access = match ty {
            Type::Pointer(target) => match self.btf.shape(target)? {
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
        self.code.alu(Alu::Mov, R3, base);
        self.code.alu_imm(Alu::Add, R3, offset as i32);
        self.code.alu(Alu::Mov, R1, FP);
        self.code.alu_imm(Alu::Add, R1, -i32::from(COPIED) - 8);
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
        let constant = match right {
            Expr::Number(value) => i32::try_from(*value).ok(),
            _ => None,
        };
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

/// What a string is copied from: an array is meant as it is, a pointer is marked by `string`.
fn text_source<'e, 't>(value: &'e Expr<'t>) -> &'e Expr<'t> {
    match value {
        Expr::Call("string" | "ustring", args) if args.len() == 1 => &args[0],
        other => other,
    }
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
