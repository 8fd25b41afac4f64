//! What records say of the state of CPUs and processes.
//!
//! Viewers of both historic layouts know a handful of events by name, and follow from them what runs where:
//! the exports write these beside the recorded events.

use ftrace_event::syscalls::split;
use ftrace_event::{FieldReader, Meaning, Printer};
use recording::survey::{CpuStream, Recording};

/// System calls have lower numbers; viewers make a table of all numbers up to the one they see.
const MAX_SYSCALL: u32 = 4096;
/// Numbers of interrupts are lower.
const MAX_IRQ: u32 = 65536;
/// Soft interrupts have lower numbers.
const MAX_SOFTIRQ: u32 = 64;
/// Number of x86's page fault, the only trap that has a tracepoint.
const PAGE_FAULT: u32 = 14;

/// States of tasks in `prev_state` of `sched_switch` (include/linux/sched.h of 4.14 and later: TASK_REPORT).
const EXIT_STATES: u64 = 0x10 | 0x20;
const REPORTED: u64 = 0xff;
/// `TASK_DEAD` of 2008.
const TASK_DEAD: u64 = 64;
/// `TASK_INTERRUPTIBLE`.
const INTERRUPTIBLE: u64 = 1;

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'r> {
    /// The CPU goes from one task to another.
    Schedule {
        prev: u32,
        next: u32,
        /// Why the first stopped, in the numbers of 2008: 0 it did not want to, 64 it is dead.
        state: u64,
    },
    SyscallEntry {
        number: u32,
    },
    SyscallExit,
    /// Begin of a trap. Its end is not recorded: it is to be taken as over at once.
    Trap {
        number: u32,
        address: u64,
    },
    IrqEntry {
        irq: u32,
    },
    IrqExit,
    SoftirqRaise {
        vector: u32,
    },
    SoftirqEntry {
        vector: u32,
    },
    SoftirqExit {
        vector: u32,
    },
    Fork {
        parent: u32,
        child: u32,
    },
    Exit {
        pid: u32,
    },
    Free {
        pid: u32,
    },
    Exec {
        filename: &'r [u8],
    },
}

/// An event that describes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Schedule,
    SyscallEntry,
    SyscallExit,
    Trap,
    IrqEntry,
    IrqExit,
    SoftirqRaise,
    SoftirqEntry,
    SoftirqExit,
    Fork,
    Exit,
    Free,
    Exec,
}

/// How a change is read from the records of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Teller {
    kind: Kind,
    fields: [Option<FieldReader>; 3],
}

impl Teller {
    /// `None` for an event that describes no change.
    fn of(printer: &Printer) -> Option<Self> {
        let (kind, names): (Kind, &[&str]) = match (printer.system(), printer.name()) {
            ("sched", "sched_switch") => (Kind::Schedule, &["prev_pid", "next_pid", "prev_state"]),
            ("sched", "sched_process_fork") => (Kind::Fork, &["parent_pid", "child_pid"]),
            ("sched", "sched_process_exit") => (Kind::Exit, &["pid"]),
            ("sched", "sched_process_free") => (Kind::Free, &["pid"]),
            ("sched", "sched_process_exec") => (Kind::Exec, &["filename"]),
            ("raw_syscalls", "sys_enter") => (Kind::SyscallEntry, &["id"]),
            ("raw_syscalls", "sys_exit") => (Kind::SyscallExit, &[]),
            ("syscalls", name) if name.starts_with("sys_enter_") => (Kind::SyscallEntry, &["__syscall_nr"]),
            ("syscalls", name) if name.starts_with("sys_exit_") => (Kind::SyscallExit, &[]),
            ("exceptions", "page_fault_user" | "page_fault_kernel") => (Kind::Trap, &["address"]),
            ("irq", "irq_handler_entry") => (Kind::IrqEntry, &["irq"]),
            ("irq", "irq_handler_exit") => (Kind::IrqExit, &[]),
            ("irq", "softirq_raise") => (Kind::SoftirqRaise, &["vec"]),
            ("irq", "softirq_entry") => (Kind::SoftirqEntry, &["vec"]),
            ("irq", "softirq_exit") => (Kind::SoftirqExit, &["vec"]),
            _ => return None,
        };
        let mut fields = [None; 3];
        for (field, name) in fields.iter_mut().zip(names) {
            *field = Some(printer.typed(name, meaning(name))?);
        }
        Some(Self { kind, fields })
    }

    /// The change that a record describes; `None` for a record without the fields, or with numbers that no
    /// kernel has.
    pub(super) fn change<'r>(&self, record: &'r [u8]) -> Option<Change<'r>> {
        let number = |field: usize| self.fields[field]?.number(record);
        // Calls of 32-bit programs are of another table than the one that these formats have: none of it.
        let call = |number: u64| match split(number.cast_signed()) {
            (true, _) => Some(MAX_SYSCALL - 1),
            (false, number) => u32::try_from(number).ok().filter(|number| *number < MAX_SYSCALL),
        };
        let below = |limit: u32| number(0).map(|number| number as u32).filter(|number| *number < limit);
        let pid = |field: usize| number(field).map(|number| number as u32);
        Some(match self.kind {
            Kind::Schedule => {
                let state = match number(2)? {
                    state if state & EXIT_STATES != 0 => TASK_DEAD,
                    state if state & REPORTED != 0 => INTERRUPTIBLE.max(state & 3),
                    _ => 0,
                };
                Change::Schedule { prev: pid(0)?, next: pid(1)?, state }
            }
            Kind::SyscallEntry => Change::SyscallEntry { number: number(0).and_then(call)? },
            Kind::SyscallExit => Change::SyscallExit,
            Kind::Trap => Change::Trap { number: PAGE_FAULT, address: number(0)? },
            Kind::IrqEntry => Change::IrqEntry { irq: below(MAX_IRQ)? },
            Kind::IrqExit => Change::IrqExit,
            Kind::SoftirqRaise => Change::SoftirqRaise { vector: below(MAX_SOFTIRQ)? },
            Kind::SoftirqEntry => Change::SoftirqEntry { vector: below(MAX_SOFTIRQ)? },
            Kind::SoftirqExit => Change::SoftirqExit { vector: below(MAX_SOFTIRQ)? },
            Kind::Fork => Change::Fork { parent: pid(0)?, child: pid(1)? },
            Kind::Exit => Change::Exit { pid: pid(0)? },
            // Viewers do not survive the end of the idle task.
            Kind::Free => Change::Free { pid: pid(0).filter(|pid| *pid != 0)? },
            Kind::Exec => Change::Exec { filename: self.fields[0]?.text(record)? },
        })
    }
}

/// What a field is in the kernel.
fn meaning(field: &str) -> Meaning {
    match field {
        "prev_state" => Meaning::State,
        "filename" => Meaning::Text,
        _ => Meaning::Number,
    }
}

/// Which events describe which changes, chosen so that no change is counted twice.
#[derive(Debug)]
pub(super) struct Tellers {
    /// Event, channel and how to read it.
    chosen: Vec<(u16, String, Teller)>,
}

impl Tellers {
    /// Looks what the recording has. An event that several channels recorded counts in the first; of the two
    /// kinds of system call events, that of all calls counts if it was recorded.
    pub(super) fn choose(recording: &Recording<'_>) -> Self {
        let raw = recording.events().iter().any(|printer| printer.system() == "raw_syscalls");
        let mut chosen = Vec::new();
        for printer in recording.events().iter().filter(|printer| !raw || printer.system() != "syscalls") {
            let id = printer.format().id;
            let has = |by_id: &[(u16, u64)]| by_id.iter().any(|(recorded, _)| *recorded == id);
            let cpu_stream = recording.cpu_streams().iter().find(|cpu_stream| has(&cpu_stream.by_id));
            if let (Some(cpu_stream), Some(teller)) = (cpu_stream, Teller::of(printer)) {
                chosen.push((id, cpu_stream.channel.clone(), teller));
            }
        }
        Self { chosen }
    }

    /// How the records of a stream are read, except what another channel describes.
    pub(super) fn of_stream(&self, cpu_stream: &CpuStream) -> StreamTellers {
        let mut by_id = Vec::new();
        for (id, channel, teller) in &self.chosen {
            let at = usize::from(*id);
            if *channel == cpu_stream.channel {
                by_id.resize(by_id.len().max(at + 1), None);
                by_id[at] = Some(*teller);
            }
        }
        StreamTellers { by_id }
    }
}

/// How the records of one stream describe changes.
#[derive(Clone, Debug)]
pub(super) struct StreamTellers {
    by_id: Vec<Option<Teller>>,
}

impl StreamTellers {
    /// How the records of an event are read; `None` if they describe nothing.
    pub(super) fn get(&self, id: u16) -> Option<&Teller> {
        self.by_id.get(usize::from(id))?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::{Format, Machine, NoNames};

    fn change(system: &str, name: &str, fields: &[(&str, u32)], values: &[u64]) -> Option<Change<'static>> {
        let mut text = format!("name: {name}\nID: 7\nformat:\n");
        text += "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n";
        let mut record = 7_u64.to_le_bytes().to_vec();
        for ((field, size), value) in fields.iter().zip(values) {
            let at = record.len();
            text += &format!("\tfield:long {field};\toffset:{at};\tsize:{size};\tsigned:1;\n");
            record.extend_from_slice(&value.to_le_bytes()[..*size as usize]);
        }
        let printer = Printer::new(system, Format::parse(&text).unwrap(), Machine::default(), &NoNames);
        Teller::of(&printer)?.change(record.leak())
    }

    #[test]
    fn records_tell_of_changes() {
        let switch = |state| {
            let fields = [("prev_pid", 4), ("prev_state", 8), ("next_pid", 4)];
            change("sched", "sched_switch", &fields, &[3, state, 5])
        };
        for (state, expected) in
            [(0, 0), (1, 1), (2, 2), (0x100, 0), (0x10, 64), (0x20, 64), (0x40, 1), (0x80, 1)]
        {
            assert_eq!(
                switch(state),
                Some(Change::Schedule { prev: 3, next: 5, state: expected }),
                "{state}"
            );
        }
        let syscall = |number| change("raw_syscalls", "sys_enter", &[("id", 8)], &[number]);
        assert_eq!(syscall(257), Some(Change::SyscallEntry { number: 257 }));
        assert_eq!(syscall(1 << 32 | 5), Some(Change::SyscallEntry { number: MAX_SYSCALL - 1 }));
        assert_eq!([u64::MAX, u32::MAX.into(), MAX_SYSCALL.into()].map(syscall), [None; 3]);
        let fork = [("parent_pid", 4), ("child_pid", 4)];
        assert_eq!(
            change("sched", "sched_process_fork", &fork, &[1, 2]),
            Some(Change::Fork { parent: 1, child: 2 })
        );
        assert_eq!(change("sched", "sched_process_free", &[("pid", 4)], &[0]), None);
        assert_eq!(change("irq", "irq_handler_entry", &[("number", 4)], &[1]), None);
        assert_eq!(change("other", "sched_switch", &[], &[]), None);
    }
}
