//! A look at the kernel's memory: a program that is run once, attached to nothing, and copies some bytes from
//! where the agent says.
//!
//! For values that stay as they are until the next boot and that neither BTF nor a file tells. The bytes are
//! judged by who asks: what was read can be anything.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
};

use agent_ebpf::PAGE_SIZE;
use aya_obj::generated::bpf_insn;

use super::{
    insn::{Alu, Assembler, FP, Jump, R0, R1, R2, R3, R6},
    load::{Refused, said, verify},
    sys,
};

// include/uapi/linux/bpf.h: enum bpf_func_id.
const HELPER_MAP_LOOKUP_ELEM: i32 = 1;
const HELPER_GET_CURRENT_TASK: i32 = 35;
const HELPER_PROBE_READ_KERNEL: i32 = 113;

/// Bytes that a look can copy.
pub const BYTES_MAX: usize = PAGE_SIZE;

/// Where the way to the bytes begins.
#[derive(Clone, Copy)]
pub enum Start {
    /// At an address, such as a symbol's. No `Debug` on purpose: addresses are not printed.
    Address(u64),
    /// At the `task_struct` of the calling thread.
    CurrentTask,
}

/// Copies `len` bytes: at each of the distances in `pointers` from where it is, the next pointer is loaded,
/// and the bytes are where the last one points.
///
/// # Errors
/// The kernel refuses the program, or has no memory at one of the addresses.
pub fn peek(start: Start, pointers: &[u32], len: usize) -> io::Result<Vec<u8>> {
    if len > BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let map = sys::create_map(&sys::MapDefinition::page(c"peek", 0))?;
    let code = program(start, pointers, len, map.as_raw_fd())?;
    let program = verify(&sys::Program::new(sys::ProgramKind::RawTracepoint, "peek", &code)).map_err(
        |Refused { source, log }| io::Error::new(source.kind(), format!("{source}{}", said(&log))),
    )?;
    match sys::run_with(program.as_fd(), 0)? {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
    let mut page = vec![0; PAGE_SIZE];
    sys::element(map.as_fd(), 0, &mut page)?;
    page.truncate(len);
    Ok(page)
}

/// The program. It gives 0, or what `bpf_probe_read_kernel` gave.
fn program(start: Start, pointers: &[u32], len: usize, map: i32) -> io::Result<Vec<bpf_insn>> {
    let mut code = Assembler::default();
    let end = code.label();
    match start {
        Start::Address(address) => code.load_imm(R6, address.cast_signed()),
        Start::CurrentTask => {
            code.call_helper(HELPER_GET_CURRENT_TASK);
            code.alu(Alu::Mov, R6, R0);
        }
    }
    for distance in pointers {
        let distance = i32::try_from(*distance).map_err(|_| io::ErrorKind::InvalidInput)?;
        code.address(R3, R6, distance);
        code.address(R1, FP, -8);
        code.load_imm(R2, 8);
        code.call_helper(HELPER_PROBE_READ_KERNEL);
        code.jump_imm(Jump::NotEqual, R0, 0, end);
        code.load(8, R6, FP, -8);
    }
    code.store_imm(4, FP, -4, 0);
    code.load_map(R1, map);
    code.address(R2, FP, -4);
    code.call_helper(HELPER_MAP_LOOKUP_ELEM);
    // The only element is always there, which the verifier does not know.
    let there = code.label();
    code.jump_imm(Jump::NotEqual, R0, 0, there);
    code.load_imm(R0, -i64::from(rustix::io::Errno::NOENT.raw_os_error()));
    code.goto(end);
    code.bind(there);
    code.alu(Alu::Mov, R1, R0);
    code.load_imm(R2, len as i64);
    code.alu(Alu::Mov, R3, R6);
    code.call_helper(HELPER_PROBE_READ_KERNEL);
    code.bind(end);
    code.exit();
    let (code, _) = code.finish().ok_or(io::ErrorKind::InvalidData)?;
    Ok(code.into_iter().map(bpf_insn::from).collect())
}
