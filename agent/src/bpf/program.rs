//! Programs that are compiled at the start: a body of their own, and the subprograms that they call.

use std::ffi::CStr;

use aya_obj::generated::bpf_insn;

use super::{
    insn::{Alu, Assembler, FP, Insn, Jump, Label, R0, R1, R2, R3, R4, R5, R6, R7, Relocations},
    load::{LoadError, Object},
    preemption::Preemption,
    relocation::{Relocation, Subprogram},
    simplify::Constants,
};

/// `sizeof(Frame)` of agent-ebpf's `fast`: what a body keeps on its stack between [`Subprogram::Begin`]
/// and [`Subprogram::End`].
pub(crate) const FRAME: i16 = 64;

/// Of the helpers that the programs use, some are for programs under such a licence only.
pub(crate) const LICENSE: &CStr = c"Dual MIT/GPL";

/// A program without the subprograms that it calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    code: Vec<Insn>,
    relocations: Relocations,
    /// A function that gets the address of a record.
    filter: Vec<Insn>,
    /// Another one, which counts it.
    aggregate: Option<Box<Function>>,
}

/// A function of a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) code: Vec<Insn>,
    pub(crate) relocations: Relocations,
}

/// An event as a body's relocations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Its slot.
    pub(crate) slot: u32,
    /// Its id.
    pub(crate) id: u16,
}

/// What bodies have in common. R6 is the program's context, R7 the record.
impl Assembler {
    /// Takes space for a record of the body's event `event`, of at most `max` bytes, to R7, and goes to
    /// `out` if there is none. R4 names another thread that the event is about, or is -1.
    pub(crate) fn begin_record(&mut self, event: usize, flags: u32, max: u32, out: Label) {
        self.relocated_imm(R1, Relocation::Slot(event));
        self.relocated_imm(R2, Relocation::Id(event, flags));
        self.take_space(max, out);
    }

    /// The same for the event whose slot is in R1, and whose id with its flags is in R2.
    pub(crate) fn take_space(&mut self, max: u32, out: Label) {
        self.load_imm(R3, max.into());
        self.address(R5, FP, -i32::from(FRAME));
        self.call(Subprogram::Begin);
        self.jump_imm(Jump::Equal, R0, 0, out);
        self.alu(Alu::Mov, R7, R0);
    }

    /// Makes the record, of as many bytes as R2 says, part of the ring.
    pub(crate) fn end_record(&mut self) {
        self.address(R1, FP, -i32::from(FRAME));
        self.alu(Alu::Mov, R3, R6);
        self.call(Subprogram::End);
    }

    /// Counts the record at R7 if the body's event `event` is wanted; else goes to `out`. R4 names another
    /// thread that the event is about, or is -1.
    pub(crate) fn count_record(&mut self, event: usize, flags: u32, out: Label) {
        self.relocated_imm(R1, Relocation::Slot(event));
        self.relocated_imm(R2, Relocation::Id(event, flags));
        self.alu(Alu::Mov, R3, R4);
        self.call(Subprogram::Admit);
        self.jump_imm(Jump::Equal, R0, 0, out);
        self.alu(Alu::Mov, R1, R7);
        self.call(Subprogram::Aggregate);
    }

    /// Asks the filter, to which R1 goes. An event that it does not take is counted, and the program goes on
    /// at `out`.
    pub(crate) fn ask_filter(&mut self, preemption: Preemption, out: Label) {
        let open = self.label();
        self.call(Subprogram::Filter);
        self.jump_imm(Jump::NotEqual, R0, 0, open);
        preemption.disable(self);
        self.relocated_imm(R1, Relocation::Slot(0));
        self.call(Subprogram::Reject);
        preemption.enable(self);
        self.goto(out);
        self.bind(open);
    }
}

impl Body {
    /// A body of these instructions; `None` if a jump leads nowhere.
    pub(crate) fn new(code: Assembler) -> Option<Self> {
        Self::with_filter(code, Vec::new())
    }

    /// The same with the function that it calls as [`Subprogram::Filter`].
    pub(crate) fn with_filter(code: Assembler, filter: Vec<Insn>) -> Option<Self> {
        let (code, relocations) = code.finish()?;
        Some(Self { code, relocations, filter, aggregate: None })
    }

    /// The same with the function that it calls as [`Subprogram::Aggregate`].
    pub(crate) fn counting(self, aggregate: Function) -> Self {
        Self { aggregate: Some(Box::new(aggregate)), ..self }
    }

    /// Whether it calls this subprogram.
    pub(crate) fn calls(&self, subprogram: Subprogram) -> bool {
        self.relocations.iter().any(|(_, relocation)| *relocation == Relocation::Call(subprogram))
    }

    /// The whole program for these events.
    pub(crate) fn link(
        &self,
        events: &[Recorded],
        subprograms: &Subprograms<'_>,
    ) -> Result<Vec<bpf_insn>, LoadError> {
        let mut code: Vec<bpf_insn> = self.code.iter().map(|&insn| insn.into()).collect();
        let mut appended: Vec<(Subprogram, usize)> = Vec::new();
        let event = |index: usize| events.get(index).ok_or(LoadError::Missing("event of a program"));
        let mut open = vec![(0, &self.relocations)];
        while let Some((begin, relocations)) = open.pop() {
            for &(at, relocation) in relocations {
                let at = begin + at;
                let value = match relocation {
                    Relocation::Slot(index) => event(index)?.slot as i32,
                    Relocation::Id(index, flags) => (u32::from(event(index)?.id) | flags) as i32,
                    Relocation::Call(subprogram) => {
                        let found =
                            appended.iter().find(|(other, _)| *other == subprogram).map(|(_, start)| *start);
                        let start = found.unwrap_or_else(|| {
                            let start = code.len();
                            match (subprograms.of(subprogram), &self.aggregate) {
                                (Some(instructions), _) => code.extend_from_slice(instructions),
                                (None, Some(own)) if subprogram == Subprogram::Aggregate => {
                                    code.extend(own.code.iter().map(|&insn| bpf_insn::from(insn)));
                                    open.push((start, &own.relocations));
                                }
                                (None, _) => {
                                    code.extend(self.filter.iter().map(|&insn| bpf_insn::from(insn)));
                                }
                            }
                            appended.push((subprogram, start));
                            start
                        });
                        start as i32 - at as i32 - 1
                    }
                };
                code.get_mut(at).ok_or(LoadError::Missing("instruction of a program"))?.imm = value;
            }
        }
        Ok(super::parts::join(code, None, subprograms.constants))
    }
}

/// The subprograms of the object, and what is put into every program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subprograms<'a> {
    begin: &'a [bpf_insn],
    end: &'a [bpf_insn],
    reject: &'a [bpf_insn],
    admit: &'a [bpf_insn],
    find: &'a [bpf_insn],
    power: &'a [bpf_insn],
    begin_time: &'a [bpf_insn],
    end_time: &'a [bpf_insn],
    lose: &'a [bpf_insn],
    graph_enter: &'a [bpf_insn],
    graph_start: &'a [bpf_insn],
    graph_leave: &'a [bpf_insn],
    constants: &'a Constants,
}

impl<'a> Subprograms<'a> {
    pub(crate) fn of_object(object: &'a Object) -> Result<Self, LoadError> {
        Ok(Self {
            begin: object.instructions(object.opening("fast_begin", "fast_begin_owned"))?,
            end: object.instructions("fast_end")?,
            reject: object.instructions(object.opening("fast_reject", "fast_reject_owned"))?,
            admit: object.instructions("aggregate_admit")?,
            find: object.instructions("aggregate_find")?,
            power: object.instructions("aggregate_power")?,
            begin_time: object.instructions("aggregate_begin")?,
            end_time: object.instructions("aggregate_end")?,
            lose: object.instructions("aggregate_lose")?,
            graph_enter: object.instructions("graph_enter")?,
            graph_start: object.instructions("graph_start")?,
            graph_leave: object.instructions("graph_leave")?,
            constants: object.constants(),
        })
    }

    /// A subprogram's code; `None` if it is the body's.
    fn of(&self, subprogram: Subprogram) -> Option<&'a [bpf_insn]> {
        match subprogram {
            Subprogram::Begin => Some(self.begin),
            Subprogram::End => Some(self.end),
            Subprogram::Reject => Some(self.reject),
            Subprogram::Filter | Subprogram::Aggregate => None,
            Subprogram::Admit => Some(self.admit),
            Subprogram::Find => Some(self.find),
            Subprogram::Power => Some(self.power),
            Subprogram::BeginTime => Some(self.begin_time),
            Subprogram::EndTime => Some(self.end_time),
            Subprogram::Lose => Some(self.lose),
            Subprogram::GraphEnter => Some(self.graph_enter),
            Subprogram::GraphStart => Some(self.graph_start),
            Subprogram::GraphLeave => Some(self.graph_leave),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::insn::R1;

    #[test]
    fn a_subprogram_that_is_called_twice_is_there_once() {
        let mut code = Assembler::default();
        code.relocated_imm(R1, Relocation::Slot(0));
        code.relocated_imm(R1, Relocation::Id(1, 1 << 16));
        code.call(Subprogram::Begin);
        code.call(Subprogram::End);
        code.call(Subprogram::End);
        code.exit();
        let body = Body::new(code).unwrap();
        let mark = |imm| vec![Insn { code: 0xb7, regs: 0, off: 0, imm }.into(); 3];
        let (begin, end): (Vec<bpf_insn>, Vec<bpf_insn>) = (mark(1), mark(2));
        let none: &[bpf_insn] = &[];
        let constants = &Constants::default();
        let subprograms = Subprograms {
            begin: &begin,
            end: &end,
            reject: none,
            admit: none,
            find: none,
            power: none,
            begin_time: none,
            end_time: none,
            lose: none,
            graph_enter: none,
            graph_start: none,
            graph_leave: none,
            constants,
        };
        let events = [Recorded { slot: 7, id: 1 }, Recorded { slot: 8, id: 2 }];
        let linked = body.link(&events, &subprograms).unwrap();
        let imm: Vec<i32> = linked.iter().map(|insn| insn.imm).collect();
        // Calls are relative to the next instruction: the subprograms begin at 6 and 9.
        assert_eq!(imm, [7, 2 | 1 << 16, 3, 5, 4, 0, 1, 1, 1, 2, 2, 2]);
        assert!(body.link(&events[..1], &subprograms).is_err());
    }
}
