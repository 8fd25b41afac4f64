//! How programs that are compiled at the start deal with preemption while they write a record.

use agent_ebpf::begin_flags;

use super::insn::Assembler;
use kernel::btf::{Btf, TypeId};

/// How programs at preemptible hooks keep preemption off while they write: by functions of the kernel (6.10
/// and later).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionGuard {
    disable: TypeId,
    enable: TypeId,
}

impl PreemptionGuard {
    /// The functions, if this kernel has them.
    pub fn find(btf: &Btf) -> Option<Self> {
        let disable = btf.function("bpf_preempt_disable").ok()?;
        let enable = btf.function("bpf_preempt_enable").ok()?;
        Some(Self { disable, enable })
    }

    /// Emits the call that disables preemption. Takes R0 to R5.
    pub fn disable(self, code: &mut Assembler) {
        code.call_kernel_function(self.disable.0);
    }

    /// Emits the call that enables it again. Takes R0 to R5.
    pub fn enable(self, code: &mut Assembler) {
        code.call_kernel_function(self.enable.0);
    }
}

/// What a body for a hook has to know about preemption there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// It is off.
    Off,
    /// The body keeps it off, around everything between [`super::relocation::Subprogram::Begin`] and `End`.
    Guarded(PreemptionGuard),
    /// It stays on: the whole recording is loaded for that.
    On,
}

impl Preemption {
    /// The protection of a program at an attach point where threads are preempted, or are not.
    pub fn at(preemptible: bool, guard: Option<PreemptionGuard>) -> Self {
        match (preemptible, guard) {
            (false, _) => Self::Off,
            (true, Some(guard)) => Self::Guarded(guard),
            (true, None) => Self::On,
        }
    }

    /// Emits what turns it off, if the body does that. Takes R0 to R5.
    pub fn disable(self, code: &mut Assembler) {
        if let Self::Guarded(guard) = self {
            guard.disable(code);
        }
    }

    /// Emits what turns it on again. Takes R0 to R5.
    pub fn enable(self, code: &mut Assembler) {
        if let Self::Guarded(guard) = self {
            guard.enable(code);
        }
    }

    /// The flags that go with the event's id to `fast_begin`.
    pub fn begin_flags(self) -> u32 {
        // The eBPF dispatcher adds a level of disabled migration at all of these hooks.
        begin_flags::MIGRATION_DISABLED | if self == Self::On { begin_flags::PREEMPTIBLE } else { 0 }
    }
}
