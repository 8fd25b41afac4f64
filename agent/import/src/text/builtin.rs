//! Formats of the kernel's events whose texts do not say which fields they have, for whoever may not read
//! those of the kernel that traced: as kernels print them, and as trace-cmd does.

use std::fmt::Write as _;

/// A field: its declaration up to the name, what follows that, its bytes, and whether it has a sign.
type Field = (&'static str, &'static str, u32, bool);

/// An event, and all that prints it.
struct Event {
    system: &'static str,
    name: &'static str,
    fields: &'static [Field],
    prints: &'static [&'static str],
}

/// Letters of states since 4.14, and before (`include/trace/events/sched.h`).
macro_rules! letters {
    (new) => {
        "(REC->prev_state & 0xff) ? __print_flags(REC->prev_state & 0xff, \"|\", { 0x01, \"S\" }, { 0x02, \"D\" }, \
         { 0x04, \"T\" }, { 0x08, \"t\" }, { 0x10, \"X\" }, { 0x20, \"Z\" }, { 0x40, \"P\" }, { 0x80, \"I\" }) : \"R\", \
         REC->prev_state & 0x100 ? \"+\" : \"\""
    };
    (old) => {
        "(REC->prev_state & 0x7ff) ? __print_flags(REC->prev_state & 0x7ff, \"|\", { 1, \"S\" }, { 2, \"D\" }, { 4, \"T\" }, \
         { 8, \"t\" }, { 16, \"Z\" }, { 32, \"X\" }, { 64, \"x\" }, { 128, \"K\" }, { 256, \"W\" }, { 512, \"P\" }, \
         { 1024, \"N\" }) : \"R\", REC->prev_state & 0x800 ? \"+\" : \"\""
    };
}

macro_rules! switch {
    ($letters:ident, kernel) => {
        concat!(
            "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d\", \
             REC->prev_comm, REC->prev_pid, REC->prev_prio, ",
            letters!($letters),
            ", REC->next_comm, REC->next_pid, REC->next_prio"
        )
    };
    ($letters:ident, trace_cmd) => {
        concat!(
            "\"%s:%d [%d] %s%s ==> %s:%d [%d]\", REC->prev_comm, REC->prev_pid, REC->prev_prio, ",
            letters!($letters),
            ", REC->next_comm, REC->next_pid, REC->next_prio"
        )
    };
}

const WOKEN: &[Field] = &[
    ("char comm", "[16]", 16, false),
    ("pid_t pid", "", 4, true),
    ("int prio", "", 4, true),
    ("int target_cpu", "", 4, true),
];
const WOKEN_WITH_SUCCESS: &[Field] = &[
    ("char comm", "[16]", 16, false),
    ("pid_t pid", "", 4, true),
    ("int prio", "", 4, true),
    ("int success", "", 4, true),
    ("int target_cpu", "", 4, true),
];
const WOKEN_PRINTS: &[&str] = &[
    "\"comm=%s pid=%d prio=%d target_cpu=%03d\", REC->comm, REC->pid, REC->prio, REC->target_cpu",
    "\"%s:%d [%d] CPU:%03d\", REC->comm, REC->pid, REC->prio, REC->target_cpu",
];
const WOKEN_WITH_SUCCESS_PRINTS: &[&str] = &[
    "\"comm=%s pid=%d prio=%d success=%d target_cpu=%03d\", REC->comm, REC->pid, REC->prio, REC->success, REC->target_cpu",
    "\"%s:%d [%d] success=%d CPU:%03d\", REC->comm, REC->pid, REC->prio, REC->success, REC->target_cpu",
];

const fn woken(name: &'static str) -> Event {
    Event { system: "sched", name, fields: WOKEN, prints: WOKEN_PRINTS }
}

const fn woken_with_success(name: &'static str) -> Event {
    Event { system: "sched", name, fields: WOKEN_WITH_SUCCESS, prints: WOKEN_WITH_SUCCESS_PRINTS }
}

const EVENTS: &[Event] = &[
    Event {
        system: "sched",
        name: "sched_switch",
        fields: &[
            ("char prev_comm", "[16]", 16, false),
            ("pid_t prev_pid", "", 4, true),
            ("int prev_prio", "", 4, true),
            ("long prev_state", "", 8, true),
            ("char next_comm", "[16]", 16, false),
            ("pid_t next_pid", "", 4, true),
            ("int next_prio", "", 4, true),
        ],
        prints: &[
            switch!(new, kernel),
            switch!(old, kernel),
            switch!(new, trace_cmd),
            switch!(old, trace_cmd),
        ],
    },
    woken("sched_waking"),
    woken("sched_wakeup"),
    woken("sched_wakeup_new"),
    woken_with_success("sched_waking"),
    woken_with_success("sched_wakeup"),
    woken_with_success("sched_wakeup_new"),
    Event {
        system: "raw_syscalls",
        name: "sys_enter",
        fields: &[("long id", "", 8, true), ("unsigned long args", "[6]", 48, false)],
        prints: &[
            "\"NR %ld (%lx, %lx, %lx, %lx, %lx, %lx)\", REC->id, REC->args[0], REC->args[1], REC->args[2], \
             REC->args[3], REC->args[4], REC->args[5]",
        ],
    },
    Event {
        system: "raw_syscalls",
        name: "sys_exit",
        fields: &[("long id", "", 8, true), ("long ret", "", 8, true)],
        prints: &["\"NR %ld = %ld\", REC->id, REC->ret"],
    },
];

/// Systems and formats of the events of a name.
pub(super) fn of(system: Option<&str>, name: &str) -> Vec<(String, String)> {
    let is_it = |event: &&Event| event.name == name && system.is_none_or(|system| system == event.system);
    let texts = EVENTS
        .iter()
        .filter(is_it)
        .flat_map(|event| event.prints.iter().map(|print| (event.system.to_owned(), text(event, print))));
    texts.collect()
}

fn text(event: &Event, print: &str) -> String {
    let mut text = format!("name: {}\nID: 1\nformat:\n{}", event.name, crate::event::COMMON);
    let mut at: u32 = 8;
    for (declaration, array, size, signed) in event.fields {
        at = at.next_multiple_of(if array.is_empty() {
            *size
        } else if *size == 16 {
            1
        } else {
            8
        });
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "\tfield:{declaration}{array};\toffset:{at};\tsize:{size};\tsigned:{};",
            u8::from(*signed)
        );
        at += size;
    }
    let _ = write!(text, "\nprint fmt: {print}\n");
    text
}
