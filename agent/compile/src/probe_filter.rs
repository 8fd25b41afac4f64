//! Filters of the events of probes, which look at a few fields that the program makes on its stack, packed,
//! before there is space for the record.

use std::collections::BTreeSet;

use super::{
    aggregate::{CountError, Counter, Question, Target},
    context::Contexts,
    filter::{FAST_TEXT_MAX, Facts, Program, Uncompiled, constant},
    shape::{COMMON_LEN, EventShape},
};
use ftrace_event::FormatError;
use ftrace_event::filter::program::Test;
use ftrace_event::filter::{Filter, FilterError, ResolveOptions};
use ftrace_event::record::Machine;
use ftrace_event::symbols::NoNames;
use ftrace_event::table::EventTable;

/// Bytes that the fields of a filter take at most, texts included: what the other functions of a program
/// leave of its 512 bytes of stack where it can be preempted (up to Linux 6.9), with each function's share
/// rounded up to 32.
pub(crate) const STAGE_MAX: u32 = 208;

/// What is wanted of a probe's records, beside what its text says.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRule<'a> {
    /// Which of them.
    pub filter: Option<&'a Filter>,
    /// What counts them in a map, if they are not recorded.
    pub question: Option<&'a Question>,
    /// What they carry besides.
    pub contexts: &'a Contexts,
    /// What both need to know.
    pub facts: &'a Facts,
    /// The id that the event will have.
    pub id: u16,
    /// Whether to make the kernel's own probes at returns of Go's functions, which may end processes.
    pub force: bool,
}

/// Why a probe cannot be filtered.
#[derive(Debug, thiserror::Error)]
pub enum ProbeFilterError {
    /// The filter does not fit the probe's event.
    #[error("-f: {0}")]
    Filter(#[from] FilterError),
    /// The kernel cannot evaluate it.
    #[error("its filter cannot be evaluated in the kernel: {0}")]
    Uncompiled(#[from] Uncompiled),
    /// It can never match.
    #[error("the filter `{0}` can never match")]
    NeverHolds(String),
    /// The fields are too large.
    #[error(
        "its filter reads fields of {0} bytes or more, but a program has room for {STAGE_MAX}; use fewer strings and arrays in it, or \
         record all and filter with `report -F`"
    )]
    Room(u32),
    /// It cannot be counted.
    #[error(transparent)]
    Count(#[from] CountError),
    /// The format that was made for the event: a defect.
    #[error("its format cannot be read: {0}")]
    Format(#[from] FormatError),
}

/// A filter that looks at packed fields, and what counts by them.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    /// The filter, if there is one.
    pub(crate) program: Option<Program>,
    /// What counts.
    pub(crate) counter: Option<Counter>,
    /// Where each field of the event is for the filter; `None` if that does not look at it.
    pub(crate) offsets: Vec<Option<u32>>,
    /// The byte after the last one, where texts can begin.
    pub(crate) end: u32,
}

impl ProbeRule<'_> {
    /// The filter for the event of this shape, which is without contexts, and what counts its records; `None`
    /// if there is neither. `preemptible` says whether another task's program may come in between.
    pub(crate) fn stage(
        &self,
        shape: &EventShape,
        preemptible: bool,
    ) -> Result<Option<Staged>, ProbeFilterError> {
        if self.filter.is_none() && self.question.is_none() {
            return Ok(None);
        }
        let mut table = EventTable::new(Machine::default());
        table.add(&shape.system, &shape.text(self.id), &NoNames)?;
        let mut test = self.test(&table)?;
        let mut resolved = self.question.map(|question| question.resolve(&table, self.id)).transpose()?;
        if test.is_none() && resolved.is_none() {
            return Ok(None);
        }
        let mut reads = BTreeSet::new();
        let mut note = |offset: &mut u32| {
            reads.insert(*offset);
        };
        if let Some(test) = &mut test {
            test.for_each_offset(&mut note);
        }
        if let Some(resolved) = &mut resolved {
            resolved.for_each_offset(&mut note);
        }
        let mut end = COMMON_LEN;
        let mut offsets = Vec::new();
        for field in &shape.fields {
            let is_read = reads.range(field.offset..field.offset + field.size.max(1)).next().is_some();
            offsets.push(is_read.then(|| {
                // The stack is accessed at multiples of the size.
                let align = if matches!(field.size, 1 | 2 | 4) { field.size } else { 8 };
                let at = end.next_multiple_of(align);
                end = at + field.size;
                at
            }));
        }
        if end > STAGE_MAX {
            return Err(ProbeFilterError::Room(end));
        }
        let mut pack = |offset: &mut u32| {
            for (field, to) in shape.fields.iter().zip(&offsets) {
                if let Some(to) = to
                    && (field.offset..field.offset + field.size.max(1)).contains(offset)
                {
                    *offset = to + (*offset - field.offset);
                    return;
                }
            }
        };
        if let Some(test) = &mut test {
            test.for_each_offset(&mut pack);
        }
        if let Some(resolved) = &mut resolved {
            resolved.for_each_offset(&mut pack);
        }
        let program = test.map(|test| Program::compile_fast(&test, self.id, self.facts)).transpose()?;
        let target = Target { id: self.id, facts: self.facts, text_max: FAST_TEXT_MAX, preemptible };
        let counter = resolved.map(|resolved| Counter::compile(&resolved, target)).transpose()?;
        Ok(Some(Staged { program, counter, offsets, end }))
    }

    /// What the filter asks of the event; `None` if there is none, or it always holds.
    fn test(&self, table: &EventTable) -> Result<Option<Test>, ProbeFilterError> {
        let Some(filter) = self.filter else { return Ok(None) };
        let options = ResolveOptions { live: true, ..ResolveOptions::default() };
        let resolved = filter.resolve(table, options)?;
        let never = || ProbeFilterError::NeverHolds(filter.text().to_owned());
        let test = resolved.test(self.id).ok_or_else(never)?.clone();
        match constant(&test) {
            Some(true) => Ok(None),
            Some(false) => Err(never()),
            None => Ok(Some(test)),
        }
    }
}
