//! What a probe adds to a recording: events, and the programs that record them.

use super::{
    hook::{HookProgram, OnRefusal},
    shape::EventShape,
};

/// A probe to record.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// The events, as the programs number them.
    pub events: Vec<ProbeEvent>,
    /// What records them.
    pub programs: Vec<HookProgram>,
    /// [Flags](agent_ebpf::slot_flags) of the events' slots.
    pub slot_flags: u32,
}

impl ProbePlan {
    /// Lets a recording do without it where the kernel refuses it.
    pub fn leave_out_if_refused(&mut self) {
        for program in self.programs.iter_mut().filter(|program| program.on_refusal != OnRefusal::Forgo) {
            program.on_refusal = OnRefusal::LeaveOutEvent;
        }
    }
}

/// An event that a probe records.
#[derive(Clone, Debug)]
pub enum ProbeEvent {
    /// One of our own.
    Own(EventShape),
    /// One of the kernel's system `ftrace`, whose formats are in every file.
    Ftrace {
        /// Its name.
        name: String,
        /// Its id in the running kernel.
        id: u16,
        /// Whether its text names kernel functions.
        prints_symbols: bool,
    },
}
