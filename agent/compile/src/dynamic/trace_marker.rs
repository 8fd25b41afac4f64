//! What programs write to trace_marker, as ftrace records it: `ftrace:print`, with an address and the text.
//!
//! ftrace makes the record in `tracing_mark_write` (kernel/trace/trace.c). This function has no tracepoint,
//! and takes no program: the kernel leaves its own tracer out of what can be traced (kernel/trace/Makefile).
//! So programs at the exits of `write`, `writev` and `pwritev2` find the file of the descriptor. At exits it
//! is known how much was written, and what the kernel has read is in memory.
//!
//! As in the kernel, a text without a line feed at its end gets one, and a NUL follows. One that the kernel
//! took only a part of is recorded up to there. A write that failed is recorded where ftrace was off, and
//! where the kernel could not read the text, as ftrace does before it can wait for a page.

use agent_ebpf::{END_CUT, RECORD_MAX, SIDE_RECORD_MAX};

use super::{DynamicError, registers};
use crate::filter::FAST_TEXT_MAX;
use crate::generic::{begin_flags_at_tracepoint, call_flags};
use crate::hook::{Hook, HookProgram, OnRefusal};
use crate::plan::{ProbeEvent, ProbePlan};
use crate::probe_filter::{ProbeRule, Staged};
use crate::shape::{COMMON_LEN, EventShape, ShapeField};
use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, Reg};
use bpf::preemption::Preemption;
use bpf::program::{Body, FRAME};
use ftrace_event::{Format, FormatError, Location};
use kernel::btf::{Btf, BtfError};
use kernel::kallsyms::Kallsyms;
use kernel::tracefs::{FileId, Tracefs};
use spec::EventName;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_PROBE_READ_USER: i32 = 112;
const HELPER_PROBE_READ_KERNEL: i32 = 113;
const HELPER_GET_CURRENT_TASK_BTF: i32 = 158;
const HELPER_TASK_PT_REGS: i32 = 175;

/// The kernel's function, whose name readers show for the address in a record.
const FUNCTION: &str = "tracing_mark_write";
/// The file, in tracefs.
const FILE: &str = "trace_marker";

/// Where the address is in a record (`struct print_entry`, kernel/trace/trace_entries.h), and the text.
const ADDRESS_AT: i16 = COMMON_LEN as i16;
const TEXT_AT: i16 = ADDRESS_AT + 8;
/// A line feed and a NUL.
const END: u32 = 2;
/// The longest text of any record: that of the kernel, whose pages have the same size.
const TEXT_MAX: u32 = RECORD_MAX as u32 - TEXT_AT as u32 - END;
/// The lengths that records have room for: what fits the side queue, half a page, and a page. A page that has
/// less room left is closed.
const ROOMS: [u32; 3] = [SIDE_RECORD_MAX as u32, 2048, RECORD_MAX as u32];
/// What stands for a text that cannot be read (`FAULTED_STR`, kernel/trace/trace.c).
const FAULTED: &[u8; 9] = b"<faulted>";
/// What a filter sees of a text, its end included.
const STAGED_TEXT: u32 = FAST_TEXT_MAX;

/// What the exits of system calls have after the common fields: the call's number, and what it returned
/// (`struct syscall_tp_t` in `perf_call_bpf_exit`, kernel/trace/trace_syscalls.c).
const RETURNED_AT: i16 = 16;
/// `struct iovec`: an address and a length.
const SEGMENT: i16 = 16;
/// Segments of a `writev` that are read: standard libraries write two or three.
const SEGMENTS: i32 = 8;
/// Segments that the kernel takes (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const SEGMENTS_MAX: i32 = 1024;

/// `FMODE_WRITE` (include/linux/fs.h).
const MODE_WRITE: i32 = 2;

// Below the frame, which is at the top of the stack: the file, a word that was read, whether the text was
// cut, of a `writev` the next segment, how many there are, how much of them was written and how many were
// read.
const FILE_AT: i16 = -FRAME - 8;
const READ: i16 = -FRAME - 16;
const CUT: i16 = -FRAME - 24;
const NEXT: i16 = -FRAME - 32;
const COUNT: i16 = -FRAME - 40;
const LEFT: i16 = -FRAME - 48;
const INDEX: i16 = -FRAME - 56;
/// Below these, one after the other: a segment, what a filter sees.
const SHARED: i16 = INDEX;

/// Why writes to trace_marker cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum TraceMarkerError {
    /// The text goes on to the end of the record, so that nothing can follow it.
    #[error(
        "ftrace:print takes no contexts, which --start-on, --stop-on and triggers need as well: its text goes on \
         to the record's end"
    )]
    Contexts,
    /// The kernel's types.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// The format of its records.
    #[error("its format cannot be read: {0}")]
    Format(#[from] FormatError),
    /// They are laid out in another way.
    #[error("the record layout of ftrace:print on this kernel is not supported")]
    Layout,
    /// There is no way to see the writes.
    #[error(
        "this kernel has no events of the system calls write, writev and pwritev2 (CONFIG_FTRACE_SYSCALLS): no \
         program can see the writes to trace_marker"
    )]
    Unseen,
}

/// The writes to the trace_marker of `tracefs`, not to those of its instances.
///
/// # Errors
/// The kernel, or the rule, has something that is not supported.
pub fn writes(btf: &Btf, tracefs: &Tracefs, rule: &ProbeRule<'_>) -> Result<ProbePlan, DynamicError> {
    if !rule.contexts.is_empty() {
        return Err(TraceMarkerError::Contexts.into());
    }
    let name = EventName::trace_marker();
    let format = Format::parse(&tracefs.event_format(&name)?.text).map_err(TraceMarkerError::from)?;
    check_layout(&format)?;
    let common = Common {
        file: tracefs.file_id(FILE)?,
        offsets: Offsets::find(btf).map_err(TraceMarkerError::from)?,
        // Addresses may be hidden.
        address: Kallsyms::read().ok().and_then(|symbols| symbols.address_of(FUNCTION)).unwrap_or(0),
        staged: ProbeRule { id: format.id, ..*rule }.stage(&shape(), false)?,
    };
    let program = |(call, what): &(&str, Call)| {
        let exit = tracefs.event_format(&EventName::new("syscalls", &format!("sys_exit_{call}")));
        let id = exit.map_err(|_| TraceMarkerError::Unseen)?.id;
        common.program(call, *what, id)
    };
    let programs = CALLS.iter().map(program).collect::<Result<_, _>>()?;
    let event = ProbeEvent::Ftrace { name: name.name().to_owned(), id: format.id, prints_symbols: true };
    Ok(ProbePlan { events: vec![event], programs, slot_flags: 0 })
}

fn check_layout(format: &Format) -> Result<(), TraceMarkerError> {
    let inline = |name| format.field(name).filter(|field| field.location == Location::Inline);
    let at = |name| inline(name).map(|field| (field.offset, field.size));
    let is_known = at("ip") == Some((ADDRESS_AT as u32, 8)) && at("buf") == Some((TEXT_AT as u32, 0));
    if is_known && registers::SUPPORTED { Ok(()) } else { Err(TraceMarkerError::Layout) }
}

/// The event as a filter sees it: with the beginning of its text.
fn shape() -> EventShape {
    let field = |declaration: &str, offset: i16, size| ShapeField {
        declaration: declaration.to_owned(),
        offset: offset as u32,
        size,
        signed: false,
    };
    let name = EventName::trace_marker();
    EventShape {
        system: name.system().to_owned(),
        name: name.name().to_owned(),
        fields: vec![
            field("unsigned long ip", ADDRESS_AT, 8),
            field(&format!("char buf[{STAGED_TEXT}]"), TEXT_AT, STAGED_TEXT),
        ],
        print_fmt: r#""%ps: %s", (void *)REC->ip, REC->buf"#.to_owned(),
    }
}

/// Where the kernel's structures have what leads from a thread to one of its files, and says which that is.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    /// `task_struct.files`.
    files: i16,
    /// `files_struct.fdt`.
    table: i16,
    /// `fdtable.fd` and `fdtable.max_fds`.
    entries: i16,
    count: i16,
    /// `file.f_inode` and `file.f_mode`.
    inode: i32,
    mode: i32,
    /// `inode.i_ino` and `inode.i_sb`.
    number: i32,
    file_system: i32,
    /// `super_block.s_dev`.
    device: i32,
}

impl Offsets {
    fn find(btf: &Btf) -> Result<Self, BtfError> {
        let at = |path| btf.member_offset(path);
        Ok(Self {
            files: at("task_struct.files")? as i16,
            table: at("files_struct.fdt")? as i16,
            entries: at("fdtable.fd")? as i16,
            count: at("fdtable.max_fds")? as i16,
            inode: at("file.f_inode")?.cast_signed(),
            mode: at("file.f_mode")?.cast_signed(),
            number: at("inode.i_ino")?.cast_signed(),
            file_system: at("inode.i_sb")?.cast_signed(),
            device: at("super_block.s_dev")?.cast_signed(),
        })
    }
}

/// What a system call writes.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// A text: `write`.
    Text,
    /// Segments, each of which is a text: `writev`.
    Segments,
}

/// The system calls that write to a file without seeking, which the file does not take.
const CALLS: [(&str, Call); 3] =
    [("write", Call::Text), ("writev", Call::Segments), ("pwritev2", Call::Segments)];

/// What the programs have in common.
struct Common {
    file: FileId,
    offsets: Offsets,
    /// What records have as the address of [`FUNCTION`].
    address: u64,
    staged: Option<Staged>,
}

impl Common {
    /// The program at the exit of a system call, whose event has this id.
    fn program(&self, name: &str, call: Call, id: u16) -> Result<HookProgram, TraceMarkerError> {
        let mut writer = Writer { code: Assembler::default(), common: self };
        match call {
            Call::Text => writer.text_of_call(),
            Call::Segments => writer.segments_of_call(),
        }
        let filter = self.staged.as_ref().and_then(|staged| staged.program.as_ref());
        let filter = filter.map_or_else(Vec::new, |filter| filter.code.clone());
        Ok(HookProgram {
            name: name.to_owned(),
            body: Body::with_filter(writer.code, filter).ok_or(TraceMarkerError::Layout)?,
            hooks: vec![Hook::Tracepoint { id }],
            preemption: Preemption::Off,
            sleepable: false,
            on_refusal: OnRefusal::Fail,
        })
    }
}

/// R6 is the context, R7 the record, R8 the text's length and R9 its address.
struct Writer<'a> {
    code: Assembler,
    common: &'a Common,
}

impl Writer<'_> {
    fn text_of_call(&mut self) {
        let out = self.code.label();
        self.code.alu(Alu::Mov, R6, R1);
        self.open_file(out);
        self.argument(R9, 2);
        self.argument(R8, 3);
        self.code.load(8, R7, R6, RETURNED_AT);
        self.length(out);
        self.record(out);
        self.end(out);
    }

    /// Each segment is a write to the kernel (`do_loop_readv_writev`, fs/read_write.c), until one is not
    /// written whole.
    fn segments_of_call(&mut self) {
        let (next, all, text, out) =
            (self.code.label(), self.code.label(), self.code.label(), self.code.label());
        let count = R8;
        self.code.alu(Alu::Mov, R6, R1);
        self.open_file(out);
        self.argument(R9, 2);
        self.argument(count, 3);
        self.code.store(8, FP, NEXT, R9);
        self.code.store(8, FP, COUNT, count);
        self.code.load(8, R7, R6, RETURNED_AT);
        // The kernel refuses more, with the error that it has for ftrace's option.
        self.code.jump_imm(Jump::Greater, count, SEGMENTS_MAX, out);
        // Where nothing was written, all of it counts.
        self.code.load_imm(R8, i64::MAX);
        self.length(out);
        self.code.store(8, FP, LEFT, R8);
        // From a register, as kernels before 6.3 forget constants that are stored.
        self.code.load_imm(R1, 0);
        self.code.store(8, FP, INDEX, R1);

        self.code.bind(next);
        let (index, left) = (R7, R1);
        self.code.load(8, index, FP, INDEX);
        self.code.load(8, R1, FP, COUNT);
        self.code.jump(Jump::GreaterEqual, index, R1, out);
        self.code.jump_imm(Jump::GreaterEqual, index, SEGMENTS, all);
        self.code.address(R1, index, 1);
        self.code.store(8, FP, INDEX, R1);
        self.code.load(8, R3, FP, NEXT);
        self.code.address(R1, R3, SEGMENT.into());
        self.code.store(8, FP, NEXT, R1);
        self.code.address(R1, FP, (SHARED - SEGMENT).into());
        self.code.load_imm(R2, SEGMENT.into());
        self.code.call_helper(HELPER_PROBE_READ_USER);
        self.code.jump_imm(Jump::NotEqual, R0, 0, all);
        self.code.load(8, R9, FP, SHARED - SEGMENT);
        self.code.load(8, R8, FP, SHARED - SEGMENT + 8);
        // The kernel refuses a negative length before it writes anything.
        self.code.jump_imm(Jump::SignedLess, R8, 0, out);
        self.code.load(8, left, FP, LEFT);
        let whole = self.code.label();
        self.code.jump(Jump::LessEqual, R8, left, whole);
        self.code.alu(Alu::Mov, R8, left);
        self.code.bind(whole);
        self.code.alu(Alu::Mov, R2, left);
        self.code.alu(Alu::Sub, R2, R8);
        self.code.store(8, FP, LEFT, R2);
        self.code.jump_imm(Jump::NotEqual, R8, 0, text);
        // The kernel writes an empty segment only if it is the first one, and others follow.
        self.code.jump_imm(Jump::NotEqual, index, 0, next);
        self.code.jump_imm(Jump::Equal, left, 0, out);
        self.code.bind(text);
        self.record(next);
        self.code.goto(next);

        // What is left is lost, and counted as one event.
        self.code.bind(all);
        self.code.load(8, left, FP, LEFT);
        self.code.jump_imm(Jump::Equal, left, 0, out);
        self.begin(TEXT_AT as u32, out);
        self.code.load_imm(R2, 0);
        self.code.end_record();
        self.end(out);
    }

    fn end(&mut self, out: Label) {
        self.code.bind(out);
        // Any other value would hide the event from other users of the tracepoint (`trace_call_bpf`,
        // kernel/trace/bpf_trace.c).
        self.code.load_imm(R0, 1);
        self.code.exit();
    }

    /// The argument `number` of the system call whose registers are in R7.
    fn argument(&mut self, to: Reg, number: u32) {
        let offset = registers::of_argument(number).map_or(0, |register| register.0);
        self.code.load(8, to, R7, offset.cast_signed());
    }

    /// Checks the file of the descriptor that the system call got, whose registers are in R7 afterwards.
    fn open_file(&mut self, out: Label) {
        let Offsets { files, table, entries, count, .. } = self.common.offsets;
        let code = &mut self.code;
        code.call_helper(HELPER_GET_CURRENT_TASK_BTF);
        code.alu(Alu::Mov, R7, R0);
        code.load(8, R8, R7, files);
        code.jump_imm(Jump::Equal, R8, 0, out);
        code.load(8, R8, R8, table);
        code.jump_imm(Jump::Equal, R8, 0, out);
        code.alu(Alu::Mov, R1, R7);
        code.call_helper(HELPER_TASK_PT_REGS);
        code.alu(Alu::Mov, R7, R0);
        self.argument(R1, 1);
        let code = &mut self.code;
        code.alu_imm(Alu::Lsh, R1, 32);
        code.alu_imm(Alu::Rsh, R1, 32);
        code.load(4, R2, R8, count);
        code.jump(Jump::GreaterEqual, R1, R2, out);
        code.load(8, R3, R8, entries);
        code.alu_imm(Alu::Lsh, R1, 3);
        code.alu(Alu::Add, R3, R1);
        self.read_at(FILE_AT, 8, out);
        self.check_file(out);
    }

    /// Goes to `out` if the file is another one, or is not open for writing.
    fn check_file(&mut self, out: Label) {
        let Offsets { inode, mode, number, file_system, device, .. } = self.common.offsets;
        let FileId { device: its_device, inode: its_number } = self.common.file;
        let inode_at = READ;
        self.read((FILE_AT, inode), (inode_at, 8), out);
        self.read((inode_at, number), (SHARED - SEGMENT, 8), out);
        self.code.load(8, R1, FP, SHARED - SEGMENT);
        self.code.load_imm(R2, its_number.cast_signed());
        self.code.jump(Jump::NotEqual, R1, R2, out);
        self.read((inode_at, file_system), (READ, 8), out);
        self.read((READ, device), (READ, 4), out);
        self.code.load(4, R1, FP, READ);
        self.code.load_imm(R2, its_device.into());
        self.code.jump(Jump::NotEqual, R1, R2, out);
        // Another file may have had the descriptor when the system call began.
        self.read((FILE_AT, mode), (READ, 4), out);
        self.code.load(4, R1, FP, READ);
        self.code.alu_imm(Alu::And, R1, MODE_WRITE);
        self.code.jump_imm(Jump::Equal, R1, 0, out);
    }

    /// Reads so many bytes to a place on the stack. They are at an offset to the address in another one.
    fn read(&mut self, (address, offset): (i16, i32), (to, len): (i16, i32), failed: Label) {
        self.code.load(8, R3, FP, address);
        self.code.alu_imm(Alu::Add, R3, offset);
        self.read_at(to, len, failed);
    }

    /// The same at the address in R3.
    fn read_at(&mut self, to: i16, len: i32, failed: Label) {
        self.code.address(R1, FP, to.into());
        self.code.load_imm(R2, len.into());
        self.code.call_helper(HELPER_PROBE_READ_KERNEL);
        self.code.jump_imm(Jump::NotEqual, R0, 0, failed);
    }

    /// What of R8 bytes counts as written where R7 was returned. Goes to `out` if nothing does.
    fn length(&mut self, out: Label) {
        let (written, off, known) = (self.code.label(), self.code.label(), self.code.label());
        self.code.jump_imm(Jump::SignedGreaterEqual, R7, 0, written);
        // While ftrace is off, while its option `markers` is, and while no instance takes the texts.
        for error in [libc::EBADF, libc::EINVAL, libc::ENODEV] {
            self.code.jump_imm(Jump::Equal, R7, -error, off);
        }
        // The text was not in memory, and the kernel does not wait for it.
        self.code.jump_imm(Jump::NotEqual, R7, -libc::EFAULT, out);
        self.code.bind(off);
        // What no system call takes has another reason.
        self.code.jump_imm(Jump::SignedGreaterEqual, R8, 0, known);
        self.code.goto(out);
        self.code.bind(written);
        self.code.alu(Alu::Mov, R8, R7);
        self.code.bind(known);
    }

    /// Takes space for a record of at most `max` bytes.
    fn begin(&mut self, max: u32, out: Label) {
        self.code.load_imm(R4, -1);
        self.code.begin_record(0, begin_flags_at_tracepoint() | call_flags(), max, out);
    }

    /// Records the text, unless the filter does not take it, and goes on behind this or at `out`.
    fn record(&mut self, out: Label) {
        let (whole, text, done) = (self.code.label(), self.code.label(), self.code.label());
        self.code.store_imm(8, FP, CUT, 0);
        self.code.jump_imm(Jump::LessEqual, R8, TEXT_MAX.cast_signed(), whole);
        self.code.load_imm(R8, TEXT_MAX.into());
        self.code.load_imm(R1, END_CUT.cast_signed());
        self.code.store(8, FP, CUT, R1);
        self.code.bind(whole);
        self.filter(out);
        for room in ROOMS {
            let longer = self.code.label();
            if room != RECORD_MAX as u32 {
                let text_max = room - TEXT_AT as u32 - END;
                self.code.jump_imm(Jump::Greater, R8, text_max.cast_signed(), longer);
            }
            self.begin(room, done);
            self.code.goto(text);
            self.code.bind(longer);
        }
        self.code.bind(text);
        self.text();
        self.code.end_record();
        self.code.bind(done);
    }

    /// Fills the record. Its length goes to R2.
    fn text(&mut self) {
        let (there, terminated, end) = (self.code.label(), self.code.label(), self.code.label());
        let code = &mut self.code;
        code.load_imm(R1, self.common.address.cast_signed());
        code.store(8, R7, ADDRESS_AT, R1);
        code.address(R1, R7, TEXT_AT.into());
        code.alu(Alu::Mov, R2, R8);
        code.alu(Alu::Mov, R3, R9);
        code.call_helper(HELPER_PROBE_READ_USER);
        code.jump_imm(Jump::Equal, R0, 0, there);
        for (at, byte) in FAULTED.iter().enumerate() {
            code.store_imm(1, R7, TEXT_AT + at as i16, (*byte).into());
        }
        code.load_imm(R8, FAULTED.len() as i64);
        code.store_imm(8, FP, CUT, 0);
        code.bind(there);
        code.alu(Alu::Mov, R1, R7);
        code.alu(Alu::Add, R1, R8);
        code.address(R2, R8, i32::from(TEXT_AT) + 1);
        // Of an empty text that is a byte of the address, as in the kernel.
        code.load(1, R3, R1, TEXT_AT - 1);
        code.jump_imm(Jump::Equal, R3, i32::from(b'\n'), terminated);
        code.store_imm(2, R1, TEXT_AT, i32::from(b'\n'));
        code.alu_imm(Alu::Add, R2, 1);
        code.goto(end);
        code.bind(terminated);
        code.store_imm(1, R1, TEXT_AT, 0);
        code.bind(end);
        code.load(8, R1, FP, CUT);
        code.alu(Alu::Or, R2, R1);
    }

    /// Shows the filter what it looks at, and goes to `out` with a text that it does not take.
    fn filter(&mut self, out: Label) {
        let Some(Staged { offsets, end, .. }) = &self.common.staged else { return };
        let code = &mut self.code;
        let size = end.next_multiple_of(8) as i16;
        let base = SHARED - size;
        for at in (0..size).step_by(8) {
            code.store_imm(8, FP, base + at, 0);
        }
        let at = |field: usize| offsets.get(field).copied().flatten().map(|at| base + at as i16);
        if let Some(address) = at(0) {
            code.load_imm(R1, self.common.address.cast_signed());
            code.store(8, FP, address, R1);
        }
        if let Some(text) = at(1) {
            let (fits, ended) = (code.label(), code.label());
            code.alu(Alu::Mov, R7, R8);
            code.jump_imm(Jump::LessEqual, R7, (STAGED_TEXT - END).cast_signed(), fits);
            code.load_imm(R7, (STAGED_TEXT - 1).into());
            code.bind(fits);
            code.address(R1, FP, text.into());
            code.alu(Alu::Mov, R2, R7);
            code.alu(Alu::Mov, R3, R9);
            code.call_helper(HELPER_PROBE_READ_USER);
            let there = code.label();
            code.jump_imm(Jump::Equal, R0, 0, there);
            for (at, byte) in FAULTED.iter().enumerate() {
                code.store_imm(1, FP, text + at as i16, (*byte).into());
            }
            code.load_imm(R7, FAULTED.len() as i64);
            code.bind(there);
            code.jump_imm(Jump::Greater, R7, (STAGED_TEXT - END).cast_signed(), ended);
            code.address(R1, FP, text.into());
            code.alu(Alu::Add, R1, R7);
            code.load(1, R2, R1, -1);
            code.jump_imm(Jump::Equal, R2, i32::from(b'\n'), ended);
            code.store_imm(1, R1, 0, i32::from(b'\n'));
            code.bind(ended);
        }
        code.address(R1, FP, base.into());
        code.ask_filter(Preemption::Off, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_text_is_that_of_the_kernel() {
        assert_eq!(TEXT_MAX, 4054);
    }

    #[test]
    fn the_programs_can_be_put_together() {
        let common = Common {
            file: FileId { device: 13, inode: 1053 },
            offsets: Offsets {
                files: 8,
                table: 32,
                entries: 8,
                count: 0,
                inode: 32,
                mode: 4,
                number: 64,
                file_system: 40,
                device: 16,
            },
            address: u64::MAX,
            staged: None,
        };
        for (name, call) in CALLS {
            assert!(common.program(name, call, 1).is_ok());
        }
    }
}
