//! Texts and patterns as instructions.
//!
//! A text in an array is compared where it is; others are copied to the stack first, with zeros after them.
//! Wildcards run as a nondeterministic automaton whose states are the bits of R9: bit `n` says that the first
//! `n` characters of the pattern (stars aside) describe the text so far. One step of it has no branches, so
//! the verifier walks each length of the text once.

use super::{
    TEXT_MAX, Uncompiled,
    compile::{Emitter, to_i16},
};
use crate::task::{CONTAINER, HOSTNAME};
use bpf::insn::{Alu, FP, Jump, Label, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Reg};
use ftrace_event::Location;
use ftrace_event::context::Context;
use ftrace_event::filter::program::{Bytes, Cpus, Pattern, Test, Text};
use stdx::input::glob;
use stdx::input::glob::Element;

/// Characters of a pattern: one state more than these.
const STATES: usize = 62;
/// Ranges of characters in a pattern.
const RANGES: usize = 64;
/// `TASK_COMM_LEN` (include/linux/sched.h).
const COMM: u32 = 16;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const GET_CURRENT_COMM: i32 = 16;
const PROBE_READ_KERNEL: i32 = 113;
const PROBE_READ_USER_STR: i32 = 114;

/// What a pattern comes to.
enum Form {
    /// This text, or with `open` one that begins with it.
    Start { text: Vec<u8>, open: bool },
    /// Anything else that wildcards describe.
    Wild(Vec<Element>),
    /// No text at all.
    Never,
}

impl Form {
    fn of(pattern: &Pattern) -> Result<Self, Uncompiled> {
        let mut elements = match pattern {
            // A text ends at its first NUL.
            Pattern::Equal(text) if text.contains(&0) => return Ok(Self::Never),
            Pattern::Equal(text) => return Ok(Self::Start { text: text.to_vec(), open: false }),
            Pattern::Regex(_) => return Err(Uncompiled::Regex),
            Pattern::Glob(pattern) => glob::elements(pattern),
        };
        let open = elements.last() == Some(&Element::Star);
        let plain = elements.len() - usize::from(open);
        let only = |element: &Element| match element {
            Element::One(ranges) => match ranges.as_slice() {
                [(first, last)] if first == last => Some(*first),
                _ => None,
            },
            Element::Star => None,
        };
        if let Some(text) = elements[..plain].iter().map(only).collect::<Option<Vec<u8>>>() {
            return Ok(if text.contains(&0) { Self::Never } else { Self::Start { text, open } });
        }
        elements.shrink_to_fit();
        Ok(Self::Wild(elements))
    }

    /// Bytes of the text that have to be looked at.
    fn needs(&self, max: u32) -> u32 {
        match self {
            Self::Start { text, .. } => max.min((text.len() as u32 + 1).next_multiple_of(8)),
            Self::Wild(_) => max,
            Self::Never => 8,
        }
    }
}

/// Bytes at the top of the stack that the texts of a condition need.
pub(super) fn room(test: &Test, max: u32) -> u32 {
    match test {
        Test::All(tests) | Test::Any(tests) => tests.iter().map(|test| room(test, max)).max().unwrap_or(0),
        Test::Not(inner) => room(inner, max),
        Test::Text { text, pattern, .. } => text_room(text, Form::of(pattern).ok().as_ref(), max),
        Test::SameText { texts, .. } => 2 * half(texts, max),
        Test::Cpus { cpus: Cpus::Mask(field), .. } => mask_room(*field, max),
        Test::Const(_) | Test::Number(_) | Test::Function { .. } | Test::Cpus { .. } => 0,
    }
}

/// Bytes that are copied of a text.
fn text_room(text: &Text, form: Option<&Form>, max: u32) -> u32 {
    let all = whole(text, max);
    match text {
        Text::Comm(_) => COMM,
        Text::Known(Context::Container) => CONTAINER,
        Text::Known(_) => HOSTNAME.next_multiple_of(8),
        // The rest of the memory of a process is not looked at, and what is cut is not known.
        Text::User(_) => all,
        Text::Field(Bytes { location: Location::Inline, .. }) if matches!(form, Some(Form::Start { .. })) => {
            0
        }
        Text::Field(_) => form.map_or(all, |form| form.needs(all)),
    }
}

/// The longest that a text can be.
fn whole(text: &Text, max: u32) -> u32 {
    match text {
        Text::Comm(_) => COMM,
        Text::Known(Context::Container) => CONTAINER,
        Text::Known(_) => HOSTNAME.next_multiple_of(8),
        Text::Field(Bytes { size, location: Location::Inline, .. }) => size.next_multiple_of(8).min(max),
        Text::Field(_) | Text::User(_) => max,
    }
}

/// Bytes for each of two texts that are compared.
fn half(texts: &(Text, Text), max: u32) -> u32 {
    whole(&texts.0, max / 2).max(whole(&texts.1, max / 2)).min(TEXT_MAX / 2).next_multiple_of(8)
}

/// Bytes of a mask that are looked at.
pub(super) fn mask_room(field: Bytes, max: u32) -> u32 {
    match field.location {
        Location::Inline => field.size.next_multiple_of(8).min(max),
        _ => max,
    }
}

impl Emitter<'_> {
    /// Goes to `is` if a text is what a pattern describes, to `is_not` if not, and to `none` if there is no
    /// text.
    pub(super) fn text(
        &mut self,
        text: &Text,
        pattern: &Pattern,
        is: Label,
        is_not: Label,
        none: Label,
    ) -> Result<(), Uncompiled> {
        let form = Form::of(pattern)?;
        let limit = text_room(text, Some(&form), self.text_max);
        if limit == 0
            && let (Text::Field(Bytes { offset, size, .. }), Form::Start { text, open }) = (text, &form)
        {
            self.reads(*offset);
            self.starts(R6, to_i16(*offset)?, *size, text, *open, is_not)?;
            self.code.goto(is);
            return Ok(());
        }
        let at = self.fetch(text, 0, limit, none)?;
        match form {
            Form::Never => self.code.goto(is_not),
            Form::Start { text, open } => {
                self.starts(FP, at, limit, &text, open, is_not)?;
                self.code.goto(is);
            }
            Form::Wild(elements) => {
                let too_long = || match pattern {
                    Pattern::Glob(text) => Uncompiled::Pattern(String::from_utf8_lossy(text).into_owned()),
                    _ => Uncompiled::TooLong,
                };
                let automaton = Automaton::new(&elements).ok_or_else(too_long)?;
                self.run(&automaton, at, limit, is, is_not);
            }
        }
        Ok(())
    }

    /// Goes to `is_not` unless the text at `base + at`, of at most `size` bytes, begins with `text` and,
    /// unless `open`, ends there.
    fn starts(
        &mut self,
        base: Reg,
        at: i16,
        size: u32,
        text: &[u8],
        open: bool,
        is_not: Label,
    ) -> Result<(), Uncompiled> {
        let len = text.len() as u32;
        if len > size {
            self.code.goto(is_not);
            return Ok(());
        }
        let mut bytes = text.to_vec();
        if !open && len < size {
            bytes.push(0);
        }
        let mut done = 0;
        while done < bytes.len() {
            let offset = at.checked_add(done as i16).ok_or(Uncompiled::TooLong)?;
            let step = step(offset, bytes.len() - done);
            let mut word = [0; 8];
            word[..step].copy_from_slice(&bytes[done..done + step]);
            self.code.load(step as u32, R0, base, offset);
            let value = i64::from_le_bytes(word);
            if let Ok(short) = i32::try_from(value) {
                self.code.jump_imm(Jump::NotEqual, R0, short, is_not);
            } else {
                self.code.load_imm(R1, value);
                self.code.jump(Jump::NotEqual, R0, R1, is_not);
            }
            done += step;
        }
        Ok(())
    }

    /// Copies a text to `from` bytes after the start of the room, with zeros up to `limit` bytes. Gives its
    /// offset on the stack.
    pub(crate) fn fetch(
        &mut self,
        text: &Text,
        from: u32,
        limit: u32,
        none: Label,
    ) -> Result<i16, Uncompiled> {
        let at = -(self.room as i16) + from as i16;
        match text {
            Text::Field(field) => return self.fetch_bytes(*field, from, limit, none),
            Text::Comm(_) => {
                self.zero(at, limit);
                self.target(at);
                self.code.load_imm(R2, COMM.into());
                self.code.call_helper(GET_CURRENT_COMM);
            }
            Text::Known(context) => {
                self.zero(at, limit);
                self.known_text(*context, at)?;
            }
            Text::User(address) => {
                self.zero(at, limit);
                self.number(address, 0, none)?;
                self.code.alu(Alu::Mov, R3, R0);
                self.target(at);
                self.code.load_imm(R2, limit.into());
                self.code.call_helper(PROBE_READ_USER_STR);
                self.code.jump_imm(Jump::SignedLess, R0, 0, none);
            }
        }
        Ok(at)
    }

    /// The same for the bytes of a field.
    pub(super) fn fetch_bytes(
        &mut self,
        field: Bytes,
        from: u32,
        limit: u32,
        none: Label,
    ) -> Result<i16, Uncompiled> {
        let Bytes { offset, size, location } = field;
        let at = -(self.room as i16) + from as i16;
        let source = to_i16(offset)?;
        self.reads(offset);
        self.zero(at, limit);
        if location == Location::Inline {
            if size == 0 {
                return Err(Uncompiled::OpenEnded);
            }
            let mut done = 0;
            while done < size.min(limit) as usize {
                let left = size.min(limit) as usize - done;
                let step = step(source + done as i16, left).min(step(at + done as i16, left));
                self.code.load(step as u32, R0, R6, source + done as i16);
                self.code.store(step as u32, FP, at + done as i16, R0);
                done += step;
            }
            return Ok(at);
        }
        self.code.load(4, R3, R6, source);
        self.code.alu(Alu::Mov, R2, R3);
        self.code.alu_imm(Alu::Rsh, R2, 16);
        self.code.alu_imm(Alu::And, R3, 0xffff);
        if location == Location::RelLoc {
            self.code.alu_imm(Alu::Add, R3, offset as i32 + 4);
        }
        let fits = self.code.label();
        self.code.jump_imm(Jump::LessEqual, R2, limit as i32, fits);
        self.code.load_imm(R2, limit.into());
        self.code.bind(fits);
        self.code.alu(Alu::Mov, R1, R6);
        self.code.alu(Alu::Add, R1, R3);
        self.code.alu(Alu::Mov, R3, R1);
        self.target(at);
        self.code.call_helper(PROBE_READ_KERNEL);
        self.code.jump_imm(Jump::NotEqual, R0, 0, none);
        Ok(at)
    }

    fn zero(&mut self, at: i16, bytes: u32) {
        for word in 0..bytes.div_ceil(8) {
            self.code.store_imm(8, FP, at + 8 * word as i16, 0);
        }
    }

    fn target(&mut self, at: i16) {
        self.code.address(R1, FP, at.into());
    }

    pub(super) fn same_text(
        &mut self,
        texts: &(Text, Text),
        same: Label,
        differ: Label,
        none: Label,
    ) -> Result<(), Uncompiled> {
        let half = half(texts, self.text_max);
        let one = self.fetch(&texts.0, 0, half, none)?;
        let other = self.fetch(&texts.1, half, half, none)?;
        self.code.load_imm(R8, 0);
        let next = self.code.label();
        self.code.bind(next);
        for (to, at) in [(R1, one), (R2, other)] {
            self.code.address(to, FP, at.into());
            self.code.alu(Alu::Add, to, R8);
            self.code.load(1, to, to, 0);
        }
        self.code.jump(Jump::NotEqual, R1, R2, differ);
        self.code.jump_imm(Jump::Equal, R1, 0, same);
        self.code.alu_imm(Alu::Add, R8, 1);
        self.code.jump_imm(Jump::Less, R8, half as i32, next);
        self.code.goto(same);
        Ok(())
    }

    /// Runs an automaton on a text of at most `limit` bytes on the stack.
    fn run(&mut self, automaton: &Automaton, at: i16, limit: u32, is: Label, is_not: Label) {
        let last = automaton.len as i32;
        self.code.address(R7, FP, at.into());
        self.code.load_imm(R8, 0);
        self.code.load_imm(R9, 1);
        let (next, end) = (self.code.label(), self.code.label());
        self.code.bind(next);
        self.code.alu(Alu::Mov, R2, R7);
        self.code.alu(Alu::Add, R2, R8);
        self.code.load(1, R1, R2, 0);
        self.code.jump_imm(Jump::Equal, R1, 0, end);
        self.code.load_imm(R3, automaton.any.cast_signed());
        for &((first, last), states) in &automaton.ranges {
            self.code.alu(Alu::Mov, R4, R1);
            // 1 if it is the character, without a branch, and then its states by multiplication: the verifier
            // of 6.18 walks separately through both results of an `and` with 0 or -1.
            if first == last {
                self.code.alu_imm(Alu::Xor, R4, first.into());
                self.code.alu_imm(Alu::Sub, R4, 1);
                self.code.alu_imm(Alu::Rsh, R4, 63);
            } else {
                self.code.alu_imm(Alu::Sub, R4, first.into());
                self.code.load_imm(R5, last.into());
                self.code.alu(Alu::Sub, R5, R1);
                self.code.alu(Alu::Or, R4, R5);
                self.code.alu_imm(Alu::Rsh, R4, 63);
                self.code.alu_imm(Alu::Xor, R4, 1);
            }
            self.code.load_imm(R5, states.cast_signed());
            self.code.alu(Alu::Mul, R4, R5);
            self.code.alu(Alu::Or, R3, R4);
        }
        self.code.alu(Alu::And, R3, R9);
        self.code.alu_imm(Alu::Lsh, R3, 1);
        self.code.load_imm(R4, automaton.stars.cast_signed());
        self.code.alu(Alu::And, R9, R4);
        self.code.alu(Alu::Or, R9, R3);
        self.code.jump_imm(Jump::Equal, R9, 0, is_not);
        self.code.alu_imm(Alu::Add, R8, 1);
        self.code.jump_imm(Jump::Less, R8, limit as i32, next);
        self.code.bind(end);
        self.code.alu_imm(Alu::Rsh, R9, last);
        self.code.alu_imm(Alu::And, R9, 1);
        self.code.jump_imm(Jump::NotEqual, R9, 0, is);
        self.code.goto(is_not);
    }
}

/// The widest load at this offset of at most so many bytes.
fn step(at: i16, bytes: usize) -> usize {
    [8, 4, 2].into_iter().find(|&step| step <= bytes && at.rem_euclid(step as i16) == 0).unwrap_or(1)
}

/// A pattern as bits of states.
struct Automaton {
    /// Its characters.
    len: usize,
    /// States that any character leads on from.
    any: u64,
    /// States that a star keeps.
    stars: u64,
    /// Characters, and the states that they lead on from.
    ranges: Vec<((u8, u8), u64)>,
}

impl Automaton {
    fn new(elements: &[Element]) -> Option<Self> {
        let mut automaton = Self { len: 0, any: 0, stars: 0, ranges: Vec::new() };
        for element in elements {
            let state = 1 << automaton.len;
            let Element::One(ranges) = element else {
                automaton.stars |= state;
                continue;
            };
            if ranges.as_slice() == [(0, u8::MAX)] {
                automaton.any |= state;
            } else {
                for &range in ranges {
                    match automaton.ranges.iter_mut().find(|(known, _)| *known == range) {
                        Some((_, states)) => *states |= state,
                        None => automaton.ranges.push((range, state)),
                    }
                }
            }
            automaton.len += 1;
            if automaton.len > STATES || automaton.ranges.len() > RANGES {
                return None;
            }
        }
        Some(automaton)
    }
}
