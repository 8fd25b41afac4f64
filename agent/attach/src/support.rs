//! Whether this kernel has typed probes.

use aya_obj::generated::bpf_insn;

use bpf::insn::{Assembler, R0};
use bpf::load::{Refused, said, verify};
use bpf::sys;
use compile::typed::{DIRECT_CALLS, TypedError};
use kernel::btf::Btf;

/// A function that every kernel has, with `endbr` and room for a call at its beginning.
const FUNCTION: &str = "vfs_read";

/// Asks the kernel for a program at the entry of a function. It is loaded and not attached.
///
/// # Errors
/// Why there are no typed probes, in one line, for a process that may load programs.
pub fn check_support(btf: &Btf) -> Result<(), String> {
    if !btf.has_function(DIRECT_CALLS) {
        return Err(TypedError::NoTrampolines.to_string());
    }
    let function = btf.function(FUNCTION).map_err(|error| error.to_string())?;
    let mut code = Assembler::default();
    code.load_imm(R0, 0);
    code.exit();
    let Some((code, _)) = code.finish() else { return Err("the program cannot be put together".to_owned()) };
    let instructions: Vec<bpf_insn> = code.into_iter().map(bpf_insn::from).collect();
    let program = sys::Program {
        expected_attach: sys::BPF_TRACE_FENTRY,
        attach_btf_id: function.0,
        ..sys::Program::new(sys::ProgramKind::Tracing, "fentry", &instructions)
    };
    verify(&program).map(drop).map_err(|Refused { source, log }| match source.raw_os_error() {
        Some(libc::EPERM) => {
            "the kernel refuses programs at the entry of its functions (EPERM), although it takes others"
                .to_owned()
        }
        _ => format!("the kernel refuses a program at the entry of {FUNCTION}: {source}{}", said(&log)),
    })
}
