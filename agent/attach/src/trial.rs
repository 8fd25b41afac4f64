//! Running a filter in the kernel on records that somebody gives, without an event: for tests, and to see
//! what a filter does.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use agent_ebpf::PAGE_SIZE;
use aya_obj::generated::bpf_insn;

use crate::ring::SharedArray;
use bpf::insn::{Alu, Assembler, FP, Jump, R0, R1, R2};
use bpf::load::{Refused, said, verify};
use bpf::sys;
use compile::filter::Program;

/// include/uapi/linux/bpf.h, enum bpf_func_id and flags of maps.
const MAP_LOOKUP_ELEM: i32 = 1;
const MMAPABLE: u32 = 1 << 10;

/// A filter in the kernel.
#[derive(Debug)]
pub struct Trial {
    program: OwnedFd,
    record: SharedArray<[u8; PAGE_SIZE]>,
}

impl Trial {
    /// Loads a filter. It is attached to nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn load(filter: &Program) -> io::Result<Self> {
        let map = sys::create_map(&sys::MapDefinition::page(c"trial", MMAPABLE))?;
        let mut code = Assembler::default();
        let end = code.label();
        code.store_imm(4, FP, -4, 0);
        code.load_map(R1, map.as_raw_fd());
        code.address(R2, FP, -4);
        code.call_helper(MAP_LOOKUP_ELEM);
        code.jump_imm(Jump::Equal, R0, 0, end);
        code.alu(Alu::Mov, R1, R0);
        let call = code.call_appended();
        code.bind(end);
        code.exit();
        let (mut code, _) = code.finish().ok_or(io::ErrorKind::InvalidData)?;
        code[call].imm = (code.len() - call - 1) as i32;
        code.extend_from_slice(&filter.code);
        let instructions: Vec<bpf_insn> = code.into_iter().map(bpf_insn::from).collect();
        let program = verify(&sys::Program::new(sys::ProgramKind::RawTracepoint, "trial", &instructions))
            .map_err(|Refused { source, log }| io::Error::other(format!("{source}{}", said(&log))))?;
        Ok(Self { program, record: SharedArray::map(map.as_fd(), 1)? })
    }

    /// Whether it takes a record of at most a page; about threads it sees the calling one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn takes(&self, record: &[u8]) -> io::Result<bool> {
        self.show(record)?;
        sys::run_with(self.program.as_fd(), 0).map(|result| result != 0)
    }

    /// How long it takes for a record in the mean of so many runs, in nanoseconds, measuring included.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn mean_time(&self, record: &[u8], runs: u32) -> io::Result<f64> {
        self.show(record)?;
        let _measuring = sys::enable_run_times()?;
        let told = |key| sys::told_of_program(self.program.as_fd(), key).ok_or(io::ErrorKind::Unsupported);
        let total = || io::Result::Ok((told("run_time_ns")?, told("run_cnt")?));
        let before = total()?;
        for _ in 0..runs {
            sys::run_with(self.program.as_fd(), 0)?;
        }
        let after = total()?;
        Ok((after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64)
    }

    fn show(&self, record: &[u8]) -> io::Result<()> {
        let mut page = [0; PAGE_SIZE];
        page.get_mut(..record.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(record);
        self.record.write(0, page);
        Ok(())
    }
}
