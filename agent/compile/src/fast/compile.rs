//! From an event's description to instructions, with the running kernel's types and the event's record as
//! tracefs describes it.
//!
//! Where a field goes is what the format says; what it is comes from the description; how to load it, from
//! BTF. So one description serves all kernels that have these arguments and members, and a kernel where
//! anything is different is noticed here: the event then takes the generic lane.
//!
//! A program of type "tracing" knows the types of its arguments, so members are loaded directly. Since 6.2
//! the verifier takes pointer arguments for valid and never null, drops comparisons with null, and turns
//! loads into ordinary ones: where that belief is wrong (`sched_process_wait` has a null argument for
//! `wait(-1)`), the kernel crashes. So every pointer is cast to one that is not trusted (`bpf_rdonly_cast`,
//! which becomes a single move): loads through it give 0 where there is no memory, whatever a description
//! says. Before 6.2 all loads are of that kind.
//!
//! The cast knows the kernel's own types only. A pointer to a structure of a module is cast to one of the
//! kernel's that is an array of bytes ([`given::Holder`]): the loads are the same, and what they give is a
//! number to the verifier, so a pointer among them is cast again before anything is loaded through it.
//!
//! If the verifier refuses a load, the same event is compiled to copy members with `bpf_probe_read_kernel`.

mod constants;
mod expressions;
mod fields;
mod given;

use std::collections::BTreeSet;

use agent_ebpf::{aggregates::cause, begin_flags};

use expressions::{Seen, Type};
pub use given::Mismatch;
pub(crate) use given::{Access, Asked, Cast, Extras, Rules, TypeNames};

use super::{
    language::{Definition, Expr},
    together::Fragment,
};
use crate::aggregate::Counter;
use crate::context::SCRATCH;
use crate::filter;
use crate::slot::LAZY_COUNT;
use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R4, R6, R7, R8, Reg};
use bpf::preemption::Preemption;
use bpf::program::{Body, FRAME};
use bpf::relocation::Subprogram;
use ftrace_event::{Field, Format, Location};
use kernel::btf::{Btf, Shape, TypeId};

/// Bytes of the common fields.
const COMMON: u32 = 8;
/// Longest record of the fast lane: its event header has 4 bytes.
const FAST_MAX: u32 = 112;
/// What a filter sees in programs that can be preempted, whose other functions need more of the stack.
const APART_MAX: u32 = 80;
/// Below the frame, which is at the top of the stack: named values, then what calls would overwrite, then
/// what members are copied to.
const LETS_MAX: usize = 12;
const SAVED: i16 = FRAME + 8 * LETS_MAX as i16;
const COPIED: i16 = SAVED + 8 * 6;
/// Whether a text was cut. Below is what filters look at.
const CUT: i16 = COPIED + 16;
/// The least room for a string of unknown length.
const TEXT_MIN: u32 = 32;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_PROBE_READ_KERNEL: i32 = 113;
const HELPER_PROBE_READ_USER_STR: i32 = 114;
const HELPER_PROBE_READ_KERNEL_STR: i32 = 115;
const HELPER_GET_CURRENT_TASK_BTF: i32 = 158;

/// What of a record is on the stack when its filter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staged {
    /// The fields that the filter looks at.
    Fields,
    /// All of it: what is behind the fixed part is where the strings before it end.
    Whole,
    /// Fields at other offsets than in the record.
    Apart,
}

/// Compiles an event.
pub(crate) fn compile(
    definition: &Definition<'_>,
    args: &[TypeId],
    format: &Format,
    types: &TypeNames,
    access: Access,
    rules: Rules,
    extras: Extras<'_>,
) -> Result<Body, Mismatch> {
    if args.len() != definition.args.len() {
        return Err(Mismatch::Arguments { found: args.len(), expected: definition.args.len() });
    }
    let counted = extras.counter.map(|_| reads(extras.filter, extras.counter));
    for field in
        format.fields.iter().filter(|field| counted.as_ref().is_none_or(|reads| looks_at(reads, field)))
    {
        let is_described = definition.fields.iter().any(|(name, _)| *name == &*field.name);
        if !is_described && !extras.contexts.has(&field.name) {
            return Err(Mismatch::UnknownField(field.name.clone()));
        }
    }
    if let Some((name, _)) = definition.fields.iter().find(|(name, _)| format.field(name).is_none()) {
        return Err(Mismatch::NoField((*name).to_owned()));
    }
    Compiler::new(definition, args, types, access, rules).program(format, extras)
}

/// Compiles what of an event's program makes the record, for a program of many events; `None` if more of it
/// differs from those of others.
pub(crate) fn fragment(
    definition: &Definition<'_>,
    args: &[TypeId],
    format: &Format,
    types: &TypeNames,
    access: Access,
) -> Option<Fragment> {
    if definition.about.is_some() || definition.is_switch || !definition.only.is_empty() {
        return None;
    }
    Compiler::new(definition, args, types, access, Rules::FAST).fragment(format).ok()
}

struct Compiler<'a> {
    code: Assembler,
    definition: &'a Definition<'a>,
    args: &'a [TypeId],
    types: &'a TypeNames,
    btf: &'a Btf,
    access: Access,
    rules: Rules,
    lets: Vec<(&'a str, Type)>,
    /// Bytes of the field that is being compiled: what `size()` gives.
    field_size: u32,
}

impl<'a> Compiler<'a> {
    fn new(
        definition: &'a Definition<'a>,
        args: &'a [TypeId],
        types: &'a TypeNames,
        access: Access,
        rules: Rules,
    ) -> Self {
        let code = Assembler::default();
        Self {
            code,
            definition,
            args,
            types,
            btf: &types.btf,
            access,
            rules,
            lets: Vec::new(),
            field_size: 0,
        }
    }

    pub(crate) fn program(
        mut self,
        format: &Format,
        Extras { filter, counter, contexts }: Extras<'_>,
    ) -> Result<Body, Mismatch> {
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
        let reads = reads(filter, counter);
        if filter.is_some() || counter.is_some() {
            if has_lazy_count(format) && reads.contains(&COMMON) {
                return Err(filter::Uncompiled::Common(LAZY_COUNT).into());
            }
            self.only(false, end)?;
            self.lets(format)?;
            self.only(true, end)?;
            let open = self.code.label();
            staged = Some(match filter.and_then(|asked| asked.apart) {
                Some(fields) => self.stage_apart(fields)?,
                None => self.stage(format, &texts, max, &reads, open)?,
            });
            if filter.is_some() {
                self.code.alu(Alu::Mov, R1, R7);
                self.code.ask_filter(self.rules.preemption, end);
            }
            self.code.bind(open);
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
        // The kernel switches with interrupts off (`__schedule`, kernel/sched/core.c).
        let switch = if self.definition.is_switch { begin_flags::SWITCH | begin_flags::IRQS_OFF } else { 0 };
        if let Some(counter) = counter {
            return self.counting(filter, counter, (switch, staged == Some(Staged::Whole)), [done, end]);
        }
        let failed = self.code.label();
        let finish = self.code.label();
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
            let is_staged = |field: &Field| staged == Some(Staged::Fields) && looks_at(&reads, field);
            for field in format.fields.iter().filter(|field| is_staged(field)) {
                self.unstage(field.offset, field.offset + field.size, max);
            }
            self.fields(format, &texts, |field| !is_staged(field), failed)?;
        }
        self.lazy_count(format)?;
        // What the filter looked at is there, and not needed any more.
        contexts.write(&mut self.code, -CUT - SCRATCH, 0);
        // What is behind the last field belongs to the structure, and dynamic data starts at the field's end.
        self.code.address(R2, R8, (layout.size - layout.fields_end) as i32);
        if self.rules.cuts && !texts.is_empty() {
            // What `fast_end` takes for a cut is above the length.
            self.code.load(8, R1, FP, -CUT);
            self.code.alu(Alu::Or, R2, R1);
        } else if can_fail {
            self.code.goto(finish);
            self.code.bind(failed);
            self.code.load_imm(R2, 0);
        }
        self.code.bind(finish);
        self.code.end_record();
        self.code.bind(done);
        self.rules.preemption.enable(&mut self.code);
        self.code.bind(end);
        self.code.load_imm(R0, 0);
        self.code.exit();
        let filter = filter.map_or_else(Vec::new, |asked| asked.program.code.clone());
        Body::with_filter(self.code, filter).ok_or(Mismatch::Expression("it is too long"))
    }

    /// What of the event's program makes its record, where that is at R7 and nothing else differs from the
    /// programs of others. R2 is the record's length after it, or 0.
    fn fragment(mut self, format: &Format) -> Result<Fragment, Mismatch> {
        for needed in &self.definition.needs {
            self.exists(needed)?;
        }
        let layout = format.record_layout();
        let texts = self.text_limits(format, layout.size, self.rules.record_max)?;
        let max = layout.size + texts.iter().map(|(_, limit)| limit).sum::<u32>();
        let (failed, finish) = (self.code.label(), self.code.label());
        self.distrust()?;
        self.code.load_imm(R8, layout.fields_end.into());
        self.lets(format)?;
        self.padding(format, layout.size);
        self.fields(format, &texts, |_| true, failed)?;
        self.lazy_count(format)?;
        self.code.address(R2, R8, (layout.size - layout.fields_end) as i32);
        if self.can_fail(&texts) {
            self.code.goto(finish);
            self.code.bind(failed);
            self.code.load_imm(R2, 0);
        }
        self.code.bind(finish);
        let arguments = self.args.len();
        let (code, _) = self.code.finish().ok_or(Mismatch::Expression("it is too long"))?;
        Ok(Fragment { code, max, arguments })
    }

    /// The common field of kernels with the `PREEMPT_RT` patches.
    fn lazy_count(&mut self, format: &Format) -> Result<(), Mismatch> {
        if has_lazy_count(format) {
            let info = Expr::Member(Expr::Name("current").into(), "thread_info", true);
            self.number(&Expr::Member(info.into(), "preempt_lazy_count", false), 1)?;
            self.code.store(1, R7, COMMON as i16, R1);
        }
        Ok(())
    }

    /// The rest of a program that counts the record which is made on the stack; of it as a whole R8 says
    /// whether it could be made.
    fn counting(
        mut self,
        filter: Option<Asked<'_>>,
        counter: &Counter,
        (switch, is_whole): (u32, bool),
        [done, end]: [Label; 2],
    ) -> Result<Body, Mismatch> {
        let failed = self.code.label();
        if is_whole {
            self.code.jump_imm(Jump::Equal, R8, 0, failed);
        }
        self.code.count_record(0, self.rules.begin_flags() | switch, done);
        for label in [done, end].into_iter().filter(|label| self.code.is_reached(*label)).collect::<Vec<_>>()
        {
            self.code.bind(label);
        }
        self.code.load_imm(R0, 0);
        self.code.exit();
        if is_whole {
            self.code.bind(failed);
            self.code.load_imm(R1, cause::UNREADABLE as i64);
            self.code.call(Subprogram::Lose);
            self.code.load_imm(R0, 0);
            self.code.exit();
        }
        let filter = filter.map_or_else(Vec::new, |asked| asked.program.code.clone());
        let body = Body::with_filter(self.code, filter).ok_or(Mismatch::Expression("it is too long"))?;
        Ok(body.counting(counter.function.clone()))
    }

    /// Makes what the filter looks at, on the stack.
    fn stage(
        &mut self,
        format: &Format,
        texts: &[(&'a str, u32)],
        max: u32,
        reads: &BTreeSet<u32>,
        open: Label,
    ) -> Result<Staged, Mismatch> {
        self.code.address(R7, FP, stage(max).into());
        let mut needed = format.fields.iter().filter(|field| looks_at(reads, field));
        if needed.all(|field| field.location == Location::Inline) {
            self.fields(format, texts, |field| looks_at(reads, field), open)?;
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
        self.code.bind(cut);
        self.code.load_imm(R8, 0);
        self.code.goto(open);
        self.code.bind(whole);
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
        self.code.bind(never);
        self.code.store_imm(8, FP, -CUT, 0);
        Ok(Staged::Apart)
    }

    /// Goes to `end` where the tracepoint fires for another event: with what needs the current task, or with
    /// the rest.
    fn only(&mut self, of_task: bool, end: Label) -> Result<(), Mismatch> {
        for only in self.definition.only.iter().filter(|only| mentions(only, "current") == of_task) {
            let register = self.number(only, 1)?;
            self.code.jump_imm(Jump::Equal, register, 0, end);
        }
        Ok(())
    }

    /// Whether a string may be too long for the record.
    fn can_fail(&self, texts: &[(&str, u32)]) -> bool {
        self.definition
            .fields
            .iter()
            .any(|(name, value)| !fields::is_empty_text(value) && texts.iter().any(|(text, _)| text == name))
    }

    /// Copies bytes of the record from the stack to its offset.
    fn unstage(&mut self, from: u32, to: u32, max: u32) {
        let mut at = from;
        while at < to {
            let step = aligned_step(at, to - at);
            self.code.load(step, R1, FP, stage(max) + at as i16);
            self.code.store(step, R7, at as i16, R1);
            at += step;
        }
    }

    /// The chosen ones of the fields that the format has, at R7. `failed` is where a string that is too long
    /// leads.
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
        let values = self.definition.lets.iter().chain(&self.definition.fields).map(|(_, value)| value);
        values.chain(&self.definition.only).any(|value| mentions(value, name))
            || self.definition.about.as_ref().is_some_and(|about| mentions(about, name))
    }

    /// Casts the arguments that point to structures.
    fn distrust(&mut self) -> Result<(), Mismatch> {
        let Access::Direct(Some(_)) = self.access else { return Ok(()) };
        for (index, name) in self.definition.args.iter().enumerate() {
            let Type::Pointer(target, _) = self.type_of(self.args[index])? else { continue };
            if !self.uses(name) || !matches!(self.btf.shape(target)?, Shape::Struct | Shape::Union) {
                continue;
            }
            self.code.load(8, R1, R6, 8 * index as i16);
            let seen = self.cast(target)?;
            self.keep(name, Type::Pointer(target, seen), R0)?;
        }
        Ok(())
    }

    /// Makes the pointer in R1 one that is not trusted, in R0: to this type, or to what stands for it. Takes
    /// R0 to R5.
    fn cast(&mut self, target: TypeId) -> Result<Seen, Mismatch> {
        let Access::Direct(Some(Cast { function, holder })) = self.access else {
            return Err(Mismatch::Expression("a pointer is cast where nothing is"));
        };
        let (as_type, seen) = match holder {
            _ if !self.btf.is_of_module(target) => (target, Seen::Typed),
            Some(holder) => (holder.type_id, Seen::Bytes),
            None => return Err(Mismatch::Expression("a module's type is in an event of the kernel")),
        };
        self.code.load_imm(R2, as_type.0.into());
        self.code.call_kernel_function(function.0);
        Ok(seen)
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
        self.lets.push(("current", Type::Pointer(self.types.named("task_struct")?, Seen::Typed)));
        let result = work(self);
        self.lets.truncate(lets);
        self.code = mark;
        result
    }

    fn lets(&mut self, format: &Format) -> Result<(), Mismatch> {
        if self.uses("current") || has_lazy_count(format) {
            self.code.call_helper(HELPER_GET_CURRENT_TASK_BTF);
            let task = self.types.named("task_struct")?;
            self.keep("current", Type::Pointer(task, Seen::Typed), R0)?;
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
}

/// Where the part of the record that is on the stack starts, for a record of at most so many bytes.
fn stage(max: u32) -> i16 {
    -CUT - max.next_multiple_of(8) as i16
}

/// The widest access at this offset of at most so many bytes; those to the stack have to be aligned.
fn aligned_step(at: u32, bytes: u32) -> u32 {
    [8, 4, 2].into_iter().find(|step| *step <= bytes && at.is_multiple_of(*step)).unwrap_or(1)
}

/// Offsets of the fields that a filter and what counts look at.
fn reads(filter: Option<Asked<'_>>, counter: Option<&Counter>) -> BTreeSet<u32> {
    let of_filter = filter.into_iter().flat_map(|asked| &asked.program.reads);
    of_filter.chain(counter.into_iter().flat_map(|counter| &counter.reads)).copied().collect()
}

/// Whether something that reads at these offsets looks at a field.
fn looks_at(reads: &BTreeSet<u32>, field: &Field) -> bool {
    let end = field.offset + field.size.max(1);
    reads.range(field.offset..end).next().is_some()
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
        Expr::Number(_) | Expr::Text(_) => false,
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
