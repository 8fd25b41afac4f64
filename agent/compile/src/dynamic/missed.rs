//! Returns of functions of programs that the kernel does not report: counted as lost.
//!
//! The kernel keeps what a thread returns to of at most 64 calls that are nested, of all functions and for
//! all tracers together (`MAX_URETPROBE_DEPTH`, include/linux/uprobes.h). It does not watch the return of a
//! call beyond that, and counts nothing (`prepare_uretprobe`, kernel/events/uprobes.c). It decides after the
//! programs at the function's entry have run, by a number that these can read: whatever tracer watches the
//! other calls, and however a thread leaves them. A call beyond the limit that never returns, as the thread
//! leaves it by `longjmp` or ends, is counted as well. Returns that the kernel does not watch for other
//! reasons, such as lack of memory, are not.

use agent_ebpf::begin_flags;
use bpf::insn::{Assembler, FP, Jump, R0, R1, R2, R3};
use bpf::preemption::Preemption;
use bpf::program::Body;
use kernel::btf::Btf;

/// `MAX_URETPROBE_DEPTH`.
const DEPTH_MAX: i32 = 64;
/// What was read, below the top of the stack.
const READ: i16 = -8;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_GET_CURRENT_TASK: i32 = 35;
const HELPER_PROBE_READ_KERNEL: i32 = 113;

/// Where the kernel has the number of a thread's calls whose returns it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth {
    /// `task_struct.utask`.
    utask: u32,
    /// `uprobe_task.depth`, of 32 bits.
    depth: u32,
}

impl Depth {
    /// Where this kernel has it.
    pub(super) fn find(btf: &Btf) -> Option<Self> {
        let at = |member| btf.member_offset(member).ok();
        Some(Self { utask: at("task_struct.utask")?, depth: at("uprobe_task.depth")? })
    }

    /// A program at the entry of functions, which counts the returns that the kernel will not report as lost
    /// ones of event 0.
    pub(super) fn body(self, preemption: Preemption) -> Option<Body> {
        let mut code = Assembler::default();
        let out = code.label();
        code.call_helper(HELPER_GET_CURRENT_TASK);
        for (offset, size) in [(self.utask, 8), (self.depth, 4)] {
            code.address(R1, FP, READ.into());
            code.load_imm(R2, size);
            code.address(R3, R0, offset as i32);
            code.call_helper(HELPER_PROBE_READ_KERNEL);
            code.jump_imm(Jump::NotEqual, R0, 0, out);
            code.load(size as u32, R0, FP, READ);
        }
        code.jump_imm(Jump::Less, R0, DEPTH_MAX, out);
        preemption.disable(&mut code);
        code.miss_record(0, preemption.begin_flags() | begin_flags::REGISTERS);
        preemption.enable(&mut code);
        code.bind(out);
        code.load_imm(R0, 0);
        code.exit();
        Body::new(code)
    }
}
