//! How the kernel prints events whose values have names (`print fmt` in tracefs), so that reports show them,
//! and plugins of readers know them.

use crate::event::FieldSpec;

/// `include/trace/events/sched.h`: states of tasks by their bits, up to `TASK_REPORT_MAX`.
const SWITCH: &str = "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d\", \
     REC->prev_comm, REC->prev_pid, REC->prev_prio, \
     (REC->prev_state & 0xff) ? __print_flags(REC->prev_state & 0xff, \"|\", { 0x01, \"S\" }, { 0x02, \"D\" }, \
     { 0x04, \"T\" }, { 0x08, \"t\" }, { 0x10, \"X\" }, { 0x20, \"Z\" }, { 0x40, \"P\" }, { 0x80, \"I\" }) : \"R\", \
     REC->prev_state & 0x100 ? \"+\" : \"\", REC->next_comm, REC->next_pid, REC->next_prio";

/// `include/trace/events/irq.h`: soft interrupts by their numbers.
const SOFTIRQ: &str = "\"vec=%u [action=%s]\", REC->vec, __print_symbolic(REC->vec, { 0, \"HI\" }, { 1, \"TIMER\" }, \
     { 2, \"NET_TX\" }, { 3, \"NET_RX\" }, { 4, \"BLOCK\" }, { 5, \"IRQ_POLL\" }, { 6, \"TASKLET\" }, \
     { 7, \"SCHED\" }, { 8, \"HRTIMER\" }, { 9, \"RCU\" })";

/// System, event, its fields and how it is printed.
const FORMATS: &[(&str, &str, &[&str], &str)] = &[
    (
        "sched",
        "sched_switch",
        &["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio"],
        SWITCH,
    ),
    ("irq", "softirq_raise", &["vec"], SOFTIRQ),
    ("irq", "softirq_entry", &["vec"], SOFTIRQ),
    ("irq", "softirq_exit", &["vec"], SOFTIRQ),
];

/// How an event with exactly these fields is printed, if it is not only their values.
pub(super) fn print_fmt(system: &str, name: &str, fields: &[FieldSpec]) -> Option<String> {
    let is_it = |(of, event, names, _): &&(&str, &str, &[&str], &str)| {
        (*of, *event) == (system, name)
            && fields.iter().map(|field| field.name.as_str()).eq(names.iter().copied())
    };
    FORMATS.iter().find(is_it).map(|(.., text)| (*text).to_owned())
}
