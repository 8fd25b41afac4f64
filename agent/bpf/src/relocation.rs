//! What instructions of a program that is compiled at the start leave open until it is loaded.

use agent_ebpf::parts;

/// A function that bodies call: of the object, but for what is the body's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subprogram {
    /// `fast_begin`: takes space for a record.
    Begin,
    /// `fast_end`: makes the record part of the ring.
    End,
    /// `fast_reject`: counts an event that its filter does not take.
    Reject,
    /// The filter of the body's event, which is the body's own.
    Filter,
    /// `aggregate_admit`: whether the event is counted.
    Admit,
    /// What counts the body's event, which is the body's own.
    Aggregate,
    /// `aggregate_find`: the values of a key.
    Find,
    /// `aggregate_power`: the bucket of a number.
    Power,
    /// `aggregate_begin`: a time begins.
    BeginTime,
    /// `aggregate_end`: it ends.
    EndTime,
    /// `aggregate_lose`: counts an event that is not in the map.
    Lose,
    /// `graph_enter`: notes a call of a call graph.
    GraphEnter,
    /// `graph_start`: says that its entry is recorded.
    GraphStart,
    /// `graph_leave`: takes out a call that returns.
    GraphLeave,
    /// `fast_strings`: copies the strings that a system call is given.
    Strings,
    /// `fast_strings_drop`: forgets those that an earlier call has left to its exit.
    DropStrings,
    /// `call_mark`: the mark of a 32-bit call, `COMPAT_CALL` or 0.
    CallMark,
    /// `fast_miss`: counts an event that will not fire as lost.
    Miss,
}

impl Subprogram {
    /// The helper that calls of it are written as: one that no kernel has.
    pub fn placeholder(self) -> i32 {
        const FIRST: i32 = 0x7f01_0000;
        if self == Self::Filter { parts::EVENT_FILTER } else { FIRST + self as i32 }
    }
}

/// What an instruction needs that is known only when the program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// A move of an event's slot: the number of the event among those that the body records.
    Slot(usize),
    /// A move of an event's id, to which the flags of `agent_ebpf::begin_flags` are added.
    Id(usize, u32),
}
