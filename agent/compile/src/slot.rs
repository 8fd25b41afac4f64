//! What programs get to know of an event: the plan by which they copy its record.

use agent_ebpf::{DYNAMIC_FIELDS_MAX, DynamicField, EventSlot, RECORD_MAX, slot_flags};

use crate::shape::COMMON_LEN;
use ftrace_event::{Format, Location};

/// The event of a CPU that goes from one thread to another.
const SWITCH: (&str, &str) = ("sched", "sched_switch");
/// The common field that only some kernels have.
pub(crate) const LAZY_COUNT: &str = "common_preempt_lazy_count";

/// Why an event cannot be recorded by the generic lane although the kernel would attach a program.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SlotError {
    /// The common fields are not the eight bytes that readers and programs expect.
    #[error("its common fields are laid out differently from those of all other events")]
    CommonFields,
    /// More dynamic fields than a program follows.
    #[error("it has {0} dynamic fields, and at most {DYNAMIC_FIELDS_MAX} are supported")]
    DynamicFields(usize),
    /// The fixed part alone does not fit a page.
    #[error("its fixed fields take {0} bytes, and a page holds {RECORD_MAX}")]
    TooLong(u32),
}

/// The copying plan for an event of this format.
///
/// `system` matters because system call events reach programs in a structure of their own
/// (`perf_call_bpf_enter`, kernel/trace/trace_syscalls.c): number and arguments at the format's offsets, and
/// none of the dynamic fields that formats list from 6.19 on.
pub fn plan_slot(system: &str, name: &str, format: &Format) -> Result<EventSlot, SlotError> {
    let common = CommonFields::of(format).ok_or(SlotError::CommonFields)?;
    let layout = format.record_layout();
    let fixed_len = u16::try_from(layout.size).ok().filter(|&size| usize::from(size) <= RECORD_MAX);
    let Some(fixed_len) = fixed_len else { return Err(SlotError::TooLong(layout.size)) };
    // Offsets are within the record, so they fit its length's type.
    let mut slot = EventSlot {
        id: format.id,
        fixed_len,
        fields_end: layout.fields_end as u16,
        copy_len: fixed_len,
        other_tid: other_thread(system, name)
            .and_then(|field| format.field(field))
            .filter(|field| field.size == 4)
            .map_or(0, |field| field.offset as u16),
        ..EventSlot::default()
    };
    if (system, name) == SWITCH {
        slot.flags |= slot_flags::SWITCH;
    }
    if common == CommonFields::WithLazyCount {
        // The structure that system call events reach programs in does not follow the fields here.
        if system == "syscalls" {
            return Err(SlotError::CommonFields);
        }
        slot.flags |= slot_flags::LAZY_COUNT;
    }
    let number = format.fields.first().map(|field| (&*field.name, field.offset, field.size));
    if system == "raw_syscalls" && number == Some(("id", COMMON_LEN, 8)) && cfg!(target_arch = "x86_64") {
        slot.flags |= slot_flags::ANY_SYSCALL;
    }
    if system == "syscalls" {
        slot.flags |= slot_flags::SYSCALL;
        // Arguments follow the number as an array of longs, which aligns the structure even if there are none
        // (`struct syscall_trace_enter`, kernel/trace/trace.h); the format does not show an empty array.
        slot.fixed_len = fixed_len.next_multiple_of(8);
        slot.copy_len = slot.fixed_len;
        if let Some(first) = layout.dynamic.iter().map(|field| field.offset).min() {
            slot.copy_len = first as u16;
        }
        return Ok(slot);
    }
    if layout.dynamic.len() > DYNAMIC_FIELDS_MAX {
        return Err(SlotError::DynamicFields(layout.dynamic.len()));
    }
    slot.dynamic_len = layout.dynamic.len() as u16;
    for (to, from) in slot.dynamic.iter_mut().zip(&layout.dynamic) {
        let offset = from.offset as u16;
        let base = if from.location == Location::RelLoc { offset + 4 } else { 0 };
        *to = DynamicField { offset, base };
    }
    Ok(slot)
}

/// What a record starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommonFields {
    /// The eight bytes that programs rebuild: `common_type`, `common_flags`, `common_preempt_count`,
    /// `common_pid`.
    Standard,
    /// And `common_preempt_lazy_count`, one byte, in kernels before 6.6 with the `PREEMPT_RT` patches.
    WithLazyCount,
}

impl CommonFields {
    fn of(format: &Format) -> Option<Self> {
        let expected = [
            ("common_type", 0, 2),
            ("common_flags", 2, 1),
            ("common_preempt_count", 3, 1),
            ("common_pid", 4, 4),
            (LAZY_COUNT, 8, 1),
        ];
        let as_expected = format.common.iter().zip(expected).all(|(field, (name, offset, size))| {
            (&*field.name, field.offset, field.size) == (name, offset, size)
        });
        // Three bytes of padding stand before the first field of the event.
        let padded = format.fields.iter().all(|field| field.offset >= 12);
        match format.common.len() {
            4 if as_expected => Some(Self::Standard),
            5 if as_expected && padded => Some(Self::WithLazyCount),
            _ => None,
        }
    }
}

/// The field that names the other thread of a scheduler event, which a process filter looks at too. The same
/// events as ftrace treats so (`event_filter_pid_sched_*`, kernel/trace/trace_events.c).
fn other_thread(system: &str, name: &str) -> Option<&'static str> {
    match (system, name) {
        SWITCH => Some("next_pid"),
        ("sched", "sched_wakeup" | "sched_wakeup_new" | "sched_waking") => Some("pid"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_common_field_is_known() {
        let plan = |system: &str, lazy: &str, at: u32| {
            let text = format!(
                "name: x\nID: 9\nformat:\n\
                 \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
                 \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
                 \tfield:unsigned char {lazy};\toffset:8;\tsize:1;\tsigned:0;\n\n\
                 \tfield:int y;\toffset:{at};\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n"
            );
            plan_slot(system, "x", &Format::parse(&text).unwrap()).map(|slot| slot.flags)
        };
        assert_eq!(plan("sched", LAZY_COUNT, 12), Ok(slot_flags::LAZY_COUNT));
        for (system, lazy, at) in
            [("sched", "common_other", 12), ("sched", LAZY_COUNT, 9), ("syscalls", LAZY_COUNT, 12)]
        {
            assert_eq!(plan(system, lazy, at), Err(SlotError::CommonFields), "{system} {lazy} {at}");
        }
    }

    #[test]
    fn numbers_of_all_calls_are_marked() {
        let flags = |system: &str, field: &str| {
            let text = format!(
                "name: sys_exit\nID: 9\nformat:\n\
                 \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
                 \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                 \tfield:{field};\toffset:8;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n"
            );
            plan_slot(system, "sys_exit", &Format::parse(&text).unwrap()).unwrap().flags
        };
        let marked = if cfg!(target_arch = "x86_64") { slot_flags::ANY_SYSCALL } else { 0 };
        assert_eq!(flags("raw_syscalls", "long id"), marked);
        assert_eq!([flags("raw_syscalls", "long ret"), flags("sched", "long id")], [0; 2]);
    }

    #[test]
    fn system_call_records_are_padded_to_longs() {
        let fields = |arguments: &str| {
            let text = format!(
                "name: x\nID: 9\nformat:\n\
                 \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
                 \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                 \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n{arguments}\nprint fmt: \"\"\n"
            );
            let slot = plan_slot("syscalls", "x", &Format::parse(&text).unwrap()).unwrap();
            (slot.fixed_len, slot.copy_len)
        };
        assert_eq!(fields(""), (16, 16));
        assert_eq!(fields("\tfield:unsigned int fd;\toffset:16;\tsize:8;\tsigned:0;\n"), (24, 24));
    }
}
