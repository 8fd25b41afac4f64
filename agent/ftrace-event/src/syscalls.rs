//! Names of system calls. Formats have the names of arguments, but none for the numbers of calls.

/// The table of one architecture's system calls.
///
/// Numbers of other ABIs that the same kernel serves (32-bit programs) are not in it, and records do not tell
/// them apart: such a call has the name that its number has here, as with the kernel's own `.syscall` of hist
/// triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallTable {
    /// `x86_64`.
    X86_64,
    /// `aarch64`.
    Aarch64,
    /// `riscv64`.
    Riscv64,
}

impl SyscallTable {
    /// The table of a machine, by the name that `uname -m` has for it. `None` for one that is not known here.
    pub fn of_machine(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            "riscv64" => Some(Self::Riscv64),
            _ => None,
        }
    }

    /// The name of a system call, without a prefix: `openat`.
    pub fn name(self, number: u64) -> Option<&'static str> {
        let number = usize::try_from(number).ok()?;
        match self {
            Self::X86_64 => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
            Self::Aarch64 => syscalls::aarch64::Sysno::new(number).map(|call| call.name()),
            Self::Riscv64 => syscalls::riscv64::Sysno::new(number).map(|call| call.name()),
        }
    }
}

/// The name of an error that system calls return, by its positive number: `ENOENT`, and those that only the
/// kernel sees, such as `ERESTARTSYS`.
pub fn error_name(errno: i64) -> Option<&'static str> {
    i32::try_from(errno).ok().and_then(|errno| syscalls::Errno::new(errno).name())
}

/// Whether a field has the number of a system call: `id` of `raw_syscalls:*`, `__syscall_nr` of `syscalls:*`.
pub fn is_number(system: &str, field: &str) -> bool {
    matches!((system, field), ("raw_syscalls", "id") | ("syscalls", "__syscall_nr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names() {
        assert_eq!([2, 512].map(error_name), [Some("ENOENT"), Some("ERESTARTSYS")]);
        assert_eq!([0, -2, 4000, i64::MAX].map(error_name), [None; 4]);
    }

    #[test]
    fn calls_have_the_names_of_the_c_library() {
        let x86 = SyscallTable::of_machine("x86_64").unwrap();
        assert_eq!(
            [0, 257, 334].map(|number| x86.name(number)),
            [Some("read"), Some("openat"), Some("rseq")]
        );
        assert_eq!([400, u64::MAX].map(|number| x86.name(number)), [None, None]);
        let arm = SyscallTable::of_machine("aarch64").unwrap();
        assert_eq!(arm.name(56), Some("openat"));
        assert_eq!(SyscallTable::of_machine("pdp11"), None);
        assert!(is_number("raw_syscalls", "id") && !is_number("sched", "id"));
    }
}
