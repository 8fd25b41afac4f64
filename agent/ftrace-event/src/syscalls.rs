//! Names of system calls. Formats have the names of arguments, but none for the numbers of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use crate::EventTable;

/// The bit by which this recorder tells the numbers of 32-bit calls in `raw_syscalls:*` from those of 64-bit
/// ones: numbers with it are positive, and no kernel gives them. It is above the 32 bits that kernels look
/// at.
pub const COMPAT: i64 = 1 << 32;

/// Whether a number, as records have it, is of a 32-bit call, and which number of its table it is.
pub fn split(number: i64) -> (bool, i64) {
    if number >= COMPAT { (true, number - COMPAT) } else { (false, number) }
}

/// Calls of 32-bit programs on x86-64 by the names of the C library's headers
/// (arch/x86/entry/syscalls/syscall_32.tbl), with a prefix.
static IA32: LazyLock<Vec<Option<Box<str>>>> = LazyLock::new(|| {
    let name = |name: &str| format!("{COMPAT_PREFIX}{name}").into_boxed_str();
    (0..IA32_NUMBERS).map(|number| Some(name(ia32_name(number)?))).collect()
});

fn ia32_name(number: usize) -> Option<&'static str> {
    // `break` is a word of Rust.
    syscalls::x86::Sysno::new(number).map(|call| call.name().trim_start_matches("r#"))
}

/// Lines `number name` of the 32-bit calls whose functions in the kernel are called otherwise than the calls,
/// from `arch/x86/entry/syscalls/syscall_32.tbl`: the entry point without `sys_`.
const IA32_FUNCTIONS: &str = include_str!("syscalls_x86_32.txt");

/// Calls of 32-bit programs on x86-64 by the names of the kernel's functions, which the events of other
/// tracers have, in the order of their numbers; `None` for a number that no call has.
pub fn ia32_functions() -> Vec<Option<&'static str>> {
    let mut functions: Vec<_> = (0..IA32_NUMBERS).map(ia32_name).collect();
    for (number, function) in IA32_FUNCTIONS.lines().filter_map(|line| line.split_once(' ')) {
        if let Some(name) = number.parse().ok().and_then(|number: usize| functions.get_mut(number)) {
            *name = Some(function);
        }
    }
    functions
}

/// Calls of 32-bit programs with 64-bit times, of kernels since 5.1. Older ones have the same functions for
/// the calls with 32-bit times, whose functions newer ones name `futex_time32`.
const IA32_TIME64: RangeInclusive<i64> = 403..=423;
/// More than x86 has.
const IA32_NUMBERS: usize = 512;
/// What names of 32-bit calls begin with, as those of LTTng's events do.
const COMPAT_PREFIX: &str = "compat_";

/// The table of one architecture's system calls.
///
/// On x86-64 it has those of 32-bit programs as well, by numbers with [`COMPAT`]: `compat_open`. Kernels do
/// not tell them apart in their own records, nor does this recorder without the kernel's type information
/// (BTF): such a call has the name that its number has among those of 64 bits, as with the kernel's own
/// `.syscall` of hist triggers.
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

    /// The numbers and names of all system calls.
    fn all(self) -> impl Iterator<Item = (u64, &'static str)> {
        let compat = COMPAT.cast_unsigned();
        let numbers = (0..MOST_NUMBERS).chain(compat..compat + MOST_NUMBERS);
        numbers.filter_map(move |number| Some((number, self.name(number)?)))
    }

    /// The name of a system call, without a prefix: `openat`.
    pub fn name(self, number: u64) -> Option<&'static str> {
        let (is_compat, number) = split(number.cast_signed());
        let number = usize::try_from(number).ok()?;
        match self {
            Self::X86_64 if is_compat => IA32.get(number)?.as_deref(),
            _ if is_compat => None,
            Self::X86_64 => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
            Self::Aarch64 => syscalls::aarch64::Sysno::new(number).map(|call| call.name()),
            Self::Riscv64 => syscalls::riscv64::Sysno::new(number).map(|call| call.name()),
        }
    }
}

/// Calls whose events have the names of the kernel's functions, and those that their numbers have.
const KERNEL_NAMES: [(&str, &str); 6] = [
    ("newstat", "stat"),
    ("newfstat", "fstat"),
    ("newlstat", "lstat"),
    ("newuname", "uname"),
    ("sendfile64", "sendfile"),
    ("umount", "umount2"),
];

/// All machines number their calls below this.
const MOST_NUMBERS: u64 = 1024;

/// The numbers from this one on are of calls that a file has by name alone; no machine has so many.
const FIRST_NAMED: i64 = 1 << 33;

/// The number of a call that a record does not name: the one that its thread is in.
pub const ANY_CALL: i64 = FIRST_NAMED - 1;

/// The end of the name of the event that ends any call: lttng-modules had one for all of them before 2.6.
pub const ANY: &str = "any";

/// Names of a file's system calls: by the numbers of its machine, and by the names of its events, where
/// records have no number, as those of other tracers.
#[derive(Clone, Debug, Default)]
pub struct CallNames {
    table: Option<SyscallTable>,
    /// The calls that have events of their own, in their order, with the numbers that the machine has for
    /// them.
    named: Arc<[(Box<str>, Option<i64>)]>,
}

impl CallNames {
    /// Of a machine with these calls and a file with these events.
    pub fn of(table: Option<SyscallTable>, events: &EventTable) -> Self {
        let of_calls = events.iter().filter(|event| event.system() == "syscalls");
        let calls: BTreeSet<&str> = of_calls.filter_map(|event| call_of(event.name())).collect();
        if calls.is_empty() {
            return Self::from(table);
        }
        let numbers: BTreeMap<&str, u64> =
            table.into_iter().flat_map(SyscallTable::all).map(|(number, name)| (name, number)).collect();
        let functions = if table == Some(SyscallTable::X86_64) { ia32_functions() } else { Vec::new() };
        let compat_numbers: BTreeMap<&str, i64> =
            (COMPAT..).zip(functions).filter_map(|(number, function)| Some((function?, number))).collect();
        let has_time32 =
            calls.iter().any(|call| call.starts_with(COMPAT_PREFIX) && call.ends_with("_time32"));
        let number = |call: &str| {
            let function = call.strip_prefix(COMPAT_PREFIX).and_then(|function| compat_numbers.get(function));
            if let Some(number) = function {
                let is_known = has_time32 || !IA32_TIME64.contains(&(number - COMPAT));
                return is_known.then_some(*number);
            }
            let alias = KERNEL_NAMES.iter().find(|(kernel, _)| *kernel == call);
            let number = numbers.get(alias.map_or(call, |(_, of_machine)| of_machine));
            number.map(|number| number.cast_signed())
        };
        let named = calls.into_iter().map(|call| (Box::from(call), number(call)));
        Self { table, named: named.collect() }
    }

    /// The name of the call with a number, without a prefix: `openat`.
    pub fn name(&self, number: i64) -> Option<&str> {
        match number.checked_sub(FIRST_NAMED) {
            Some(place) if place >= 0 => {
                self.named.get(usize::try_from(place).ok()?).map(|(name, _)| &**name)
            }
            _ => self.table?.name(u64::try_from(number).ok()?),
        }
    }

    /// Whether the call with the number `ended` is the one that began with the number `open`: `execve` ends
    /// as one of the program that it runs, of 32 bits or 64.
    pub fn is_end_of(&self, ended: i64, open: i64) -> bool {
        let is_exec = |number| matches!(self.name(number).map(without_compat), Some("execve" | "execveat"));
        ended == open || is_exec(ended) && is_exec(open)
    }

    /// The number by which a call goes here whose records have none: that of the machine, if it has one.
    pub fn number_of(&self, name: &str) -> Option<i64> {
        let place = self.named.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        let (_, of_machine) = self.named.get(place)?;
        of_machine.or_else(|| i64::try_from(place).ok().map(|place| FIRST_NAMED + place))
    }

    /// All numbers with their names: of the machine's tables those below `limit`.
    pub fn iter(&self, limit: u32) -> impl Iterator<Item = (i64, &str)> {
        let of_file = (FIRST_NAMED..).zip(self.named.iter().map(|(name, _)| &**name));
        let limit = i64::from(limit);
        let numbers = (0..limit).chain(COMPAT..COMPAT + limit);
        let of_machine = numbers.filter_map(|number| Some((number, self.name(number)?)));
        of_machine.chain(of_file)
    }

    /// Whether it is not known which calls there are.
    pub fn is_empty(&self) -> bool {
        self.table.is_none() && self.named.is_empty()
    }
}

impl From<Option<SyscallTable>> for CallNames {
    fn from(table: Option<SyscallTable>) -> Self {
        Self { table, ..Self::default() }
    }
}

/// The number of a call as records have it, with [`COMPAT`] or not. `None` if it goes by its name only.
pub fn machine_number(number: i64) -> Option<i64> {
    (number < ANY_CALL).then_some(number)
}

/// The call that an event of `syscalls` is of: `openat` of `sys_enter_openat`.
pub fn call_of(event: &str) -> Option<&str> {
    event.strip_prefix("sys_enter_").or_else(|| event.strip_prefix("sys_exit_")).filter(|call| *call != ANY)
}

/// Whether a call returns into what a signal interrupted, so that its result is not its own.
pub fn returns_to_interrupted(name: &str) -> bool {
    matches!(without_compat(name), "rt_sigreturn" | "sigreturn")
}

/// The name of a call without what tells that a program of 32 bits made it: `openat` of `compat_openat`, and
/// `futex` of `compat_futex_time32`, which is the kernel's function.
pub fn without_compat(name: &str) -> &str {
    let Some(name) = name.strip_prefix(COMPAT_PREFIX) else { return name };
    let name = name.strip_prefix("ia32_").unwrap_or(name);
    name.strip_suffix("_time32").unwrap_or(name)
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
    fn calls_without_a_number_go_by_their_events() {
        let mut events = EventTable::new(crate::Machine::default());
        for (id, event) in
            (1..).zip(["sys_enter_read", "sys_exit_read", "sys_enter_compat_close", "sys_exit_any"])
        {
            let text = format!("name: {event}\nID: {id}\nformat:\n\nprint fmt: \"\"\n");
            events.add("syscalls", &text, &crate::NoNames).unwrap();
        }
        let names = CallNames::of(None, &events);
        let [close, read] = ["compat_close", "read"].map(|name| names.number_of(name).unwrap());
        assert_eq!([close, read].map(|number| names.name(number)), [Some("compat_close"), Some("read")]);
        assert_eq!([0, -1, ANY_CALL, read + 1, i64::MAX].map(|number| names.name(number)), [None; 5]);
        assert_eq!([close, 7, -1].map(machine_number), [None, Some(7), Some(-1)]);
        assert_eq!(machine_number(COMPAT + 5), Some(COMPAT + 5));
        assert_eq!(names.iter(512).count(), 2);
        let both = CallNames::of(SyscallTable::of_machine("x86_64"), &events);
        assert_eq!([0, read].map(|number| both.name(number)), [Some("read"); 2]);
        assert_eq!(both.number_of("any"), None);
        assert_eq!(["read", "compat_close"].map(|name| both.number_of(name)), [Some(0), Some(COMPAT + 6)]);
    }

    #[test]
    fn events_of_32_bit_calls_have_the_names_of_the_kernels_functions() {
        let calls = [
            ("getuid16", 24, "getuid"),
            ("getuid", 199, "getuid32"),
            ("old_select", 82, "select"),
            ("select", 142, "_newselect"),
            ("stat", 18, "oldstat"),
            ("uname", 109, "olduname"),
            ("umount", 52, "umount2"),
            ("futex_time32", 240, "futex"),
            ("futex", 422, "futex_time64"),
            ("clock_gettime", 403, "clock_gettime64"),
            ("ia32_pread64", 180, "pread64"),
            // Not a function, but a call.
            ("getuid32", 199, "getuid32"),
        ];
        let mut events = EventTable::new(crate::Machine::default());
        for (id, (function, ..)) in (1..).zip(calls) {
            let text = format!("name: sys_enter_compat_{function}\nID: {id}\nformat:\n\nprint fmt: \"\"\n");
            events.add("syscalls", &text, &crate::NoNames).unwrap();
        }
        let names = CallNames::of(SyscallTable::of_machine("x86_64"), &events);
        for (function, number, name) in calls {
            let found = names.number_of(&format!("compat_{function}")).unwrap();
            assert_eq!(found, COMPAT + number, "{function}");
            assert_eq!(names.name(found), Some(&*format!("compat_{name}")), "{function}");
        }
        // Kernels before 5.1 have the name for call 240, and no event says which kernel it was.
        let mut events = EventTable::new(crate::Machine::default());
        let text = "name: sys_enter_compat_futex\nID: 1\nformat:\n\nprint fmt: \"\"\n";
        events.add("syscalls", text, &crate::NoNames).unwrap();
        let names = CallNames::of(SyscallTable::of_machine("x86_64"), &events);
        let futex = names.number_of("compat_futex").unwrap();
        assert_eq!((machine_number(futex), names.name(futex)), (None, Some("compat_futex")));
        let functions = ia32_functions();
        let others = IA32_FUNCTIONS.lines().map(|line| line.split_once(' ').unwrap());
        for (number, function) in others {
            assert_eq!(functions[number.parse::<usize>().unwrap()], Some(function));
        }
        let distinct: BTreeSet<&str> = functions.iter().flatten().copied().collect();
        assert_eq!(distinct.len(), functions.iter().flatten().count());
        // Where the machine is not known.
        assert_eq!(
            ["compat_futex_time32", "compat_ia32_pread64", "futex_time32"].map(without_compat),
            ["futex", "pread64", "futex_time32"]
        );
    }

    #[test]
    fn calls_have_the_names_of_the_c_library() {
        let x86 = SyscallTable::of_machine("x86_64").unwrap();
        assert_eq!(
            [0, 257, 334].map(|number| x86.name(number)),
            [Some("read"), Some("openat"), Some("rseq")]
        );
        assert_eq!([400, u64::MAX].map(|number| x86.name(number)), [None, None]);
        let compat = |table: SyscallTable, number: i64| table.name((COMPAT | number).cast_unsigned());
        for (number, name) in [
            (5, "open"),
            (17, "break"),
            (39, "mkdir"),
            (102, "socketcall"),
            (192, "mmap2"),
            (199, "getuid32"),
        ] {
            assert_eq!(compat(x86, number).map(without_compat), Some(name));
        }
        let numbers = [-1, 0, COMPAT - 1, COMPAT, COMPAT + 5, i64::MAX];
        assert_eq!(numbers.map(|number| split(number).0), [false, false, false, true, true, true]);
        assert_eq!([-1, COMPAT + 5].map(|number| split(number).1), [-1, 5]);
        assert_eq!([511, 512, COMPAT - 1].map(|number| compat(x86, number)), [None; 3]);
        let calls = CallNames::from(Some(x86));
        let number_of = |wanted| calls.iter(512).find(|(_, name)| *name == wanted).map(|(number, _)| number);
        assert_eq!(["mkdir", "compat_mkdir"].map(number_of), [Some(83), Some(COMPAT + 39)]);
        // `execve`, `execveat`, `read`.
        assert!(calls.is_end_of(COMPAT + 11, 59) && calls.is_end_of(59, 322) && calls.is_end_of(0, 0));
        assert!(!calls.is_end_of(COMPAT + 3, 0) && !calls.is_end_of(59, 0));
        let arm = SyscallTable::of_machine("aarch64").unwrap();
        assert_eq!(compat(arm, 5), None);
        assert_eq!(arm.name(56), Some("openat"));
        assert_eq!(SyscallTable::of_machine("pdp11"), None);
        assert!(is_number("raw_syscalls", "id") && !is_number("sched", "id"));
    }
}
