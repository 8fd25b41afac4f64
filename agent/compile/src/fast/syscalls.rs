//! System calls in the fast lane: `raw_syscalls:*` and `syscalls:*` share one program at the entry and one at
//! the exit.

use std::collections::BTreeMap;

use agent_ebpf::{SYSCALL_SLOTS, SyscallSlot};
use serde::{Deserialize, Serialize};

use super::{
    compile::Mismatch,
    strings::{self, Copies},
};
use ftrace_event::{Format, Location};
use kernel::btf::{Btf, TypeId};

/// System calls of x86-64 by the name that the kernel's events have: `NUMBER NAME`, from
/// arch/x86/entry/syscalls/syscall_64.tbl, the entry point without `sys_`. An ABI: numbers are never given to
/// another call.
#[cfg(target_arch = "x86_64")]
static NUMBERS: &str = include_str!("events/syscalls-x86_64.txt");
#[cfg(not(target_arch = "x86_64"))]
static NUMBERS: &str = "";

/// Where the arguments of `syscalls:sys_enter_*` are.
const ARGS: u32 = 16;
/// The most arguments that a system call has.
const ARGS_MAX: usize = 6;

/// An event of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// `raw_syscalls:sys_enter`.
    RawEnter,
    /// `raw_syscalls:sys_exit`.
    RawExit,
    /// `syscalls:sys_enter_*` of this number.
    Enter {
        /// System call number.
        nr: u32,
        /// Bytes of the record without strings.
        len: u16,
        /// Strings that it has.
        copies: Copies,
    },
    /// `syscalls:sys_exit_*` of this number.
    Exit {
        /// System call number.
        nr: u32,
    },
}

impl Call {
    /// Whether it is at the entry.
    pub fn is_entry(self) -> bool {
        matches!(self, Self::RawEnter | Self::Enter { .. })
    }

    /// The number of the call, and where the location words of its strings begin; `None` if its records have
    /// no strings.
    pub fn strings(self) -> Option<(u32, u16)> {
        match self {
            Self::Enter { nr, len, copies } if copies.positions[0] != 0 => Some((nr, len)),
            _ => None,
        }
    }
}

/// The two tracepoints.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hooks {
    /// `attach_btf_id` of `sys_enter`.
    pub enter: TypeId,
    /// Of `sys_exit`.
    pub exit: TypeId,
}

impl Hooks {
    /// Looks for them, and makes sure that registers are where the programs read them.
    pub(super) fn find(btf: &Btf) -> Result<Self, Mismatch> {
        if NUMBERS.is_empty() {
            return Err(Mismatch::NotDescribed);
        }
        // arch/x86/include/uapi/asm/ptrace.h; the programs have these offsets built in.
        for (register, offset) in [("di", 112), ("si", 104), ("r10", 56), ("ax", 80), ("orig_ax", 120)] {
            if btf.member_offset(&format!("pt_regs.{register}"))? != offset {
                return Err(Mismatch::FieldType("registers".to_owned()));
            }
        }
        let (enter, exit) = (btf.raw_tracepoint("sys_enter")?, btf.raw_tracepoint("sys_exit")?);
        for found in [enter.args.len(), exit.args.len()] {
            if found != 2 {
                return Err(Mismatch::Arguments { found, expected: 2 });
            }
        }
        // Without it, 32-bit calls would be taken for others.
        btf.call_status()?;
        Ok(Self { enter: enter.id, exit: exit.id })
    }
}

/// What of a system call an event is, if its record is what the programs write.
pub(super) fn plan(system: &str, name: &str, format: &Format) -> Result<Call, Mismatch> {
    let shape: Vec<(&str, u32, u32)> =
        format.fields.iter().map(|field| (field.name.as_ref(), field.offset, field.size)).collect();
    let fits = |found| if found { Ok(()) } else { Err(Mismatch::FieldType("(layout)".to_owned())) };
    if system == "raw_syscalls" {
        return match name {
            "sys_enter" => fits(shape == [("id", 8, 8), ("args", 16, 48)]).map(|()| Call::RawEnter),
            "sys_exit" => fits(shape == [("id", 8, 8), ("ret", 16, 8)]).map(|()| Call::RawExit),
            _ => Err(Mismatch::NotDescribed),
        };
    }
    let (is_entry, call) = match (name.strip_prefix("sys_enter_"), name.strip_prefix("sys_exit_")) {
        (Some(call), _) => (true, call),
        (_, Some(call)) => (false, call),
        _ => return Err(Mismatch::NotDescribed),
    };
    let nr = number(call).ok_or(Mismatch::NotDescribed)?;
    fits(shape.first().is_some_and(|&(_, offset, size)| (offset, size) == (8, 4)))?;
    if !is_entry {
        fits(shape.len() == 2 && shape[1] == ("ret", ARGS, 8))?;
        return Ok(Call::Exit { nr });
    }
    // From 6.19 on some events have copies of user strings behind the arguments; where they do not, the
    // recorder adds them.
    let count = format.fields.iter().filter(|field| field.location == Location::Inline).count();
    let (args, words) = shape.split_at(count);
    let args = &args[1..];
    fits(args.len() <= ARGS_MAX)?;
    for (index, &(_, offset, size)) in args.iter().enumerate() {
        fits((offset, size) == (ARGS + 8 * index as u32, 8))?;
    }
    let len = ARGS + 8 * args.len() as u32;
    for (index, &(_, offset, size)) in words.iter().enumerate() {
        fits((offset, size) == (len + 4 * index as u32, 4))?;
    }
    let copies = strings::copies(call, format)?;
    Ok(Call::Enter { nr, len: len as u16, copies })
}

/// Registers that a system call has its arguments in.
const ARGUMENTS: [&str; ARGS_MAX] = ["di", "si", "dx", "r10", "r8", "r9"];

/// The tracepoint that fires for an event of a single call, among others, and the event's description.
pub(super) fn description(name: &str, format: &Format) -> Result<(&'static str, String), Mismatch> {
    let mut fields = format.fields.iter().map(|field| &*field.name);
    let first = fields.next().ok_or(Mismatch::NotDescribed)?;
    // Events of single calls leave out those of 32 bits (`ftrace_syscall_enter`).
    let native = "    only (current->thread_info.status & 2) == 0\n";
    match plan("syscalls", name, format)? {
        Call::Enter { nr, len, .. } => {
            let mut text = format!("sys_enter(regs, id)\n    only id == {nr}\n{native}    {first} = id\n");
            let count = usize::from(len).saturating_sub(ARGS as usize) / 8;
            for (field, register) in fields.zip(ARGUMENTS).take(count) {
                text += &format!("    {field} = regs->{register}\n");
            }
            Ok(("sys_enter", text))
        }
        Call::Exit { nr } => Ok((
            "sys_exit",
            format!(
                "sys_exit(regs, ret)\n    only regs->orig_ax == {nr}\n{native}    {first} = regs->orig_ax\n    ret = ret\n"
            ),
        )),
        Call::RawEnter | Call::RawExit => Err(Mismatch::NotDescribed),
    }
}

fn number(call: &str) -> Option<u32> {
    let mut lines = NUMBERS.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(_, name)| *name == call)
        .and_then(|(nr, _)| nr.parse().ok())
        .filter(|nr| *nr < SYSCALL_SLOTS as u32)
}

/// What `SYSCALLS` and the globals hold for these events: `(slot, id, event)`.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Slot plus 1, and id, of `raw_syscalls:sys_enter`.
    pub raw_enter: (u32, u32),
    /// Of `raw_syscalls:sys_exit`.
    pub raw_exit: (u32, u32),
    /// By number.
    pub calls: BTreeMap<u32, SyscallSlot>,
}

impl Table {
    /// Whether some record has copies of strings.
    pub fn has_strings(&self) -> bool {
        self.calls.values().any(|call| call.strings[0] != 0)
    }

    /// Adds the strings of an event that has a program by itself.
    pub fn add_strings(&mut self, call: Call) {
        let Call::Enter { nr, len, copies } = call else { return };
        let entry = self.calls.entry(nr).or_default();
        let words = 4 * copies.positions.iter().filter(|&&position| position != 0).count() as u16;
        (entry.enter_len, entry.copies_at) = (len, len + words);
        (entry.strings, entry.length) = (copies.positions, copies.length);
    }

    /// Adds an event.
    pub fn add(&mut self, slot: u32, id: u16, call: Call) {
        match call {
            Call::RawEnter => self.raw_enter = (slot + 1, id.into()),
            Call::RawExit => self.raw_exit = (slot + 1, id.into()),
            Call::Enter { nr, .. } => {
                self.add_strings(call);
                let entry = self.calls.entry(nr).or_default();
                (entry.enter, entry.enter_id) = (slot + 1, id);
            }
            Call::Exit { nr } => {
                let entry = self.calls.entry(nr).or_default();
                (entry.exit, entry.exit_id) = (slot + 1, id);
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_abi() {
        for (name, nr) in [
            ("read", libc::SYS_read),
            ("newstat", libc::SYS_stat),
            ("newuname", libc::SYS_uname),
            ("umount", libc::SYS_umount2),
            ("sendfile64", libc::SYS_sendfile),
            ("getppid", libc::SYS_getppid),
            ("openat2", libc::SYS_openat2),
        ] {
            assert_eq!(number(name).map(i64::from), Some(nr), "{name}");
        }
        let lines: Vec<_> = NUMBERS.lines().collect();
        assert!(lines.is_sorted_by_key(|line| line.split(' ').next().and_then(|nr| nr.parse::<u32>().ok())));
    }
}
