//! Programs that are compiled at the start: a body of their own, and the subprograms that they call.

use std::ffi::CStr;

use aya_obj::generated::bpf_insn;

use super::{
    insn::{Alu, Assembler, FP, Insn, Jump, Label, R0, R1, R2, R3, R4, R5, R6, R7, Relocations, placeholder},
    load::LoadError,
    parts::{Code, Parts},
    preemption::Preemption,
    relocation::{Relocation, Subprogram},
};

/// `sizeof(Frame)` of agent-ebpf's `fast`: what a body keeps on its stack between [`Subprogram::Begin`]
/// and [`Subprogram::End`].
pub const FRAME: i16 = 64;

/// Of the helpers that the programs use, some are for programs under such a licence only.
pub const LICENSE: &CStr = c"Dual MIT/GPL";

/// A program without the subprograms that it calls.
#[derive(Clone, Debug, Default)]
pub struct Body {
    code: Vec<Insn>,
    relocations: Relocations,
    /// A function that gets the address of a record.
    filter: Vec<Insn>,
    /// Another one, which counts it.
    aggregate: Option<Box<Function>>,
}

/// A function of a body.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// The instructions.
    pub code: Vec<Insn>,
    /// Calls and map references that are resolved when the program is linked.
    pub relocations: Relocations,
}

/// An event as a body's relocations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its slot.
    pub slot: u32,
    /// Its id.
    pub id: u16,
}

/// What bodies have in common. R6 is the program's context, R7 the record.
impl Assembler {
    /// Takes space for a record of the body's event `event`, of at most `max` bytes, to R7, and goes to
    /// `out` if there is none. R4 names another thread that the event is about, or is -1.
    pub fn begin_record(&mut self, event: usize, flags: u32, max: u32, out: Label) {
        self.relocated_imm(R1, Relocation::Slot(event));
        self.relocated_imm(R2, Relocation::Id(event, flags));
        self.take_space(max, out);
    }

    /// The same for the event whose slot is in R1, and whose id with its flags is in R2.
    pub fn take_space(&mut self, max: u32, out: Label) {
        self.load_imm(R3, max.into());
        self.address(R5, FP, -i32::from(FRAME));
        self.call(Subprogram::Begin);
        self.jump_imm(Jump::Equal, R0, 0, out);
        self.alu(Alu::Mov, R7, R0);
    }

    /// Makes the record, of as many bytes as R2 says, part of the ring.
    pub fn end_record(&mut self) {
        self.address(R1, FP, -i32::from(FRAME));
        self.alu(Alu::Mov, R3, R6);
        self.call(Subprogram::End);
    }

    /// Counts the record at R7 if the body's event `event` is wanted; else goes to `out`. R4 names another
    /// thread that the event is about, or is -1.
    pub fn count_record(&mut self, event: usize, flags: u32, out: Label) {
        self.relocated_imm(R1, Relocation::Slot(event));
        self.relocated_imm(R2, Relocation::Id(event, flags));
        self.alu(Alu::Mov, R3, R4);
        self.call(Subprogram::Admit);
        self.jump_imm(Jump::Equal, R0, 0, out);
        self.alu(Alu::Mov, R1, R7);
        self.call(Subprogram::Aggregate);
    }

    /// Counts as lost a firing of the body's event `event` that the kernel will not report.
    pub fn miss_record(&mut self, event: usize, flags: u32) {
        self.relocated_imm(R1, Relocation::Slot(event));
        self.relocated_imm(R2, Relocation::Id(event, flags));
        self.call(Subprogram::Miss);
    }

    /// Asks the filter, to which R1 goes. An event that it does not take is counted, and the program goes on
    /// at `out`.
    pub fn ask_filter(&mut self, preemption: Preemption, out: Label) {
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
    pub fn new(code: Assembler) -> Option<Self> {
        Self::with_filter(code, Vec::new())
    }

    /// The same with the function that it calls as [`Subprogram::Filter`].
    pub fn with_filter(code: Assembler, filter: Vec<Insn>) -> Option<Self> {
        let (code, relocations) = code.finish()?;
        Some(Self { code, relocations, filter, aggregate: None })
    }

    /// The same with the function that it calls as [`Subprogram::Aggregate`].
    #[must_use]
    pub fn counting(self, aggregate: Function) -> Self {
        Self { aggregate: Some(Box::new(aggregate)), ..self }
    }

    /// Whether it calls this subprogram.
    pub fn calls(&self, subprogram: Subprogram) -> bool {
        self.code.iter().any(|&insn| placeholder(insn.into()) == Some(subprogram.placeholder()))
    }

    /// The whole program for these events.
    pub fn link(&self, events: &[Recorded], parts: &Parts) -> Result<Code, LoadError> {
        let main = resolved(&self.code, &self.relocations, events)?;
        let aggregate =
            self.aggregate.as_ref().map(|own| resolved(&own.code, &own.relocations, events)).transpose()?;
        let filter = (!self.filter.is_empty()).then_some(self.filter.as_slice());
        let filter = filter.map(|own| own.iter().map(|&insn| bpf_insn::from(insn)).collect());
        let own = [(Subprogram::Filter, filter), (Subprogram::Aggregate, aggregate)];
        let own = own.into_iter().filter_map(|(of, code)| Some((of.placeholder(), code?)));
        Ok(parts.join(main, own.collect()))
    }
}

/// Code with what its relocations say.
fn resolved(
    code: &[Insn],
    relocations: &Relocations,
    events: &[Recorded],
) -> Result<Vec<bpf_insn>, LoadError> {
    let event = |index: usize| events.get(index).ok_or(LoadError::Missing("event of a program"));
    let mut code: Vec<bpf_insn> = code.iter().map(|&insn| insn.into()).collect();
    for &(at, relocation) in relocations {
        let value = match relocation {
            Relocation::Slot(index) => event(index)?.slot as i32,
            Relocation::Id(index, flags) => (u32::from(event(index)?.id) | flags) as i32,
        };
        code.get_mut(at).ok_or(LoadError::Missing("instruction of a program"))?.imm = value;
    }
    Ok(code)
}

/// The functions of the object that bodies call; those that open a ring differ where users or processes have
/// rings of their own.
pub fn subprograms(owned_rings: bool) -> [(Subprogram, &'static str); 16] {
    let (begin, reject, miss) = if owned_rings {
        ("fast_begin_owned", "fast_reject_owned", "fast_miss_owned")
    } else {
        ("fast_begin", "fast_reject", "fast_miss")
    };
    [
        (Subprogram::Begin, begin),
        (Subprogram::End, "fast_end"),
        (Subprogram::Reject, reject),
        (Subprogram::Admit, "aggregate_admit"),
        (Subprogram::Find, "aggregate_find"),
        (Subprogram::Power, "aggregate_power"),
        (Subprogram::BeginTime, "aggregate_begin"),
        (Subprogram::EndTime, "aggregate_end"),
        (Subprogram::Lose, "aggregate_lose"),
        (Subprogram::GraphEnter, "graph_enter"),
        (Subprogram::GraphStart, "graph_start"),
        (Subprogram::GraphLeave, "graph_leave"),
        (Subprogram::Strings, "fast_strings"),
        (Subprogram::DropStrings, "fast_strings_drop"),
        (Subprogram::CallMark, "call_mark"),
        (Subprogram::Miss, miss),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::called;

    #[test]
    fn relocations_are_those_of_the_events() {
        let mut code = Assembler::default();
        code.relocated_imm(R1, Relocation::Slot(0));
        code.relocated_imm(R1, Relocation::Id(1, 1 << 16));
        code.exit();
        let body = Body::new(code).unwrap();
        let events = [Recorded { slot: 7, id: 1 }, Recorded { slot: 8, id: 2 }];
        let linked = resolved(&body.code, &body.relocations, &events).unwrap();
        let imm: Vec<i32> = linked.iter().map(|insn| insn.imm).collect();
        assert_eq!(imm, [7, 2 | 1 << 16, 0]);
        assert!(body.link(&events[..1], &Parts::default()).is_err());
    }

    #[test]
    fn a_body_brings_its_filter() {
        let mut filter = Assembler::default();
        filter.load_imm(R0, 1);
        filter.exit();
        let mut code = Assembler::default();
        code.call(Subprogram::Filter);
        code.exit();
        let body = Body::with_filter(code, filter.finish().unwrap().0).unwrap();
        assert!(body.calls(Subprogram::Filter) && !body.calls(Subprogram::Begin));
        let linked = body.link(&[], &Parts::default()).unwrap().instructions;
        assert_eq!(linked.len(), 4);
        assert_eq!(called(linked[0], 0), Some(2));
    }
}
