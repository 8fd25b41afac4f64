//! Whether threads are within the scope of the recording, by the sets of `agent_ebpf::tracking`.

use agent_ebpf::tracking::{
    AUTOMATON_LINES, AUTOMATON_MAX, EXCEPT, LEVELS_MAX, LINE_WORDS, Line, asked, attribute, bucket,
};
use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_get_current_uid_gid,
    generated::{bpf_get_current_ancestor_cgroup_id, bpf_get_current_comm},
};

use crate::{atomic, globals, ids, maps::SETS};

/// Which sets threads are asked for now; 0 if every thread is within the scope. A program asks once for an
/// event: what follows is of one moment.
#[inline(always)]
pub fn asked_sets() -> u64 {
    if globals::scope() == 0 {
        return 0;
    }
    let word = word(0, 0);
    if word & asked::SETS == 0 { 0 } else { word }
}

/// Whether threads are asked for what they must not have.
#[inline(always)]
pub fn excludes(sets: u64) -> bool {
    u64::from(globals::scope()) & sets & asked::EXCLUSIONS != 0
}

/// The sets without those of what threads must not have.
#[inline(always)]
pub fn without_exclusions(sets: u64) -> u64 {
    sets & !asked::EXCLUSIONS
}

/// Whether the current thread is within the scope, by `asked_sets`, which is not 0. With `task`, the address
/// of a task that the current thread has just made and whose process is `tgid`, whether that one is: it has
/// the name, the user, the group and the control group of the current thread.
///
/// A function of the program, so that the verifier and the processor's cache have it once.
#[inline(never)]
pub fn takes(sets: u64, tgid: u64, task: u64) -> u64 {
    // SAFETY: the helper takes nothing.
    let address = || if task == 0 { unsafe { bpf_get_current_task() } } else { task };
    let owner = || bpf_get_current_uid_gid();
    // The cheapest first.
    let taken = numbers(sets, attribute::PID, || tgid)
        && numbers(sets, attribute::UID, || owner() & 0xffff_ffff)
        && numbers(sets, attribute::GID, || owner() >> 32)
        && by(sets, attribute::CGROUP, in_groups)
        && by(sets, attribute::COMM, is_named)
        && numbers(sets, attribute::VPID, || ids::virtual_process(address()).into())
        && numbers(sets, attribute::VUID, || ids::virtual_owner(address(), ids::Kind::user()).into())
        && numbers(sets, attribute::VGID, || ids::virtual_owner(address(), ids::Kind::group()).into());
    taken.into()
}

/// Whether an attribute that is a number is one of those that are wanted, and none of the others.
#[inline(always)]
fn numbers(sets: u64, number: u32, value: impl FnOnce() -> u64) -> bool {
    if !is_asked(sets, 1 << number | 1 << (number + EXCEPT)) {
        return true;
    }
    let value = value();
    by(sets, number, |table| in_table(table, value))
}

/// Whether the set of what is wanted holds something of the thread, and the other one does not. `holds` gets
/// the set's word.
#[inline(always)]
fn by(sets: u64, number: u32, holds: impl Fn(u64) -> bool) -> bool {
    let of = |number: u32| {
        let half = (sets >> asked::HALF_SHIFT) as u32;
        word(half + number / LINE_WORDS as u32, number as usize % LINE_WORDS)
    };
    if is_asked(sets, 1 << (number + EXCEPT)) && holds(of(number + EXCEPT)) {
        return false;
    }
    !is_asked(sets, 1 << number) || holds(of(number))
}

/// Whether threads are asked for one of these sets. What no recording of this program's asks for is not part
/// of the program.
#[inline(always)]
fn is_asked(sets: u64, these: u32) -> bool {
    globals::scope() & these != 0 && sets & u64::from(these) != 0
}

/// Whether a value is in a table.
#[inline(always)]
fn in_table(table: u64, value: u64) -> bool {
    let Some(line) = line(table as u32 + bucket(value, (table >> 32) as u32)) else { return false };
    for index in 0..LINE_WORDS {
        if of_line(line, index) == value {
            return true;
        }
    }
    false
}

/// Whether the current thread is in a control group of the set whose line this is, or below one.
#[inline(always)]
fn in_groups(at: u64) -> bool {
    let Some(line) = line(at as u32) else { return false };
    let table = of_line(line, 0);
    for index in 1..=LEVELS_MAX {
        let level = of_line(line, index);
        if level == 0 {
            return false;
        }
        // SAFETY: the helper takes a number. Where the thread's group is not so deep it gives 0, which is no
        // group's number.
        let group = unsafe { bpf_get_current_ancestor_cgroup_id(level as i32 - 1) };
        if in_table(table, group) {
            return true;
        }
    }
    false
}

/// Whether an automaton accepts the name of the current thread.
#[inline(always)]
fn is_named(automaton: u64) -> bool {
    let mut name = [0_u64; 2];
    // SAFETY: the helper writes no more than the bytes of `name`, of which any are words.
    if unsafe { bpf_get_current_comm(name.as_mut_ptr().cast(), size_of_val(&name) as u32) } != 0 {
        return false;
    }
    let (first, parts) = (automaton as u32, (automaton >> 32) as u32);
    for part in 0..AUTOMATON_MAX {
        if part >= parts {
            break;
        }
        if accepts(first + part * AUTOMATON_LINES, name) {
            return true;
        }
    }
    false
}

/// Whether a part of an automaton, from this line on, accepts a name, which ends with a NUL.
#[inline(always)]
fn accepts(first: u32, name: [u64; 2]) -> bool {
    let Some(line) = line(first) else { return false };
    let (mut states, stay, end) = (of_line(line, 0), of_line(line, 1), of_line(line, 2));
    for mut characters in name {
        for _ in 0..size_of::<u64>() {
            let byte = (characters & 0xff) as u32;
            if byte == 0 {
                return states & end != 0;
            }
            let index = byte as usize % LINE_WORDS;
            let go_on = word(first + 1 + byte / LINE_WORDS as u32, index);
            states = (states & go_on) << 1 | states & stay;
            characters >>= 8;
        }
    }
    states & end != 0
}

#[inline(always)]
fn word(number: u32, index: usize) -> u64 {
    line(number).map_or(0, |line| of_line(line, index))
}

#[inline(always)]
fn line(number: u32) -> Option<*const Line> {
    SETS.get_ptr_mut(number, globals::sets_len()).map(<*mut Line>::cast_const)
}

/// A word of a line; `index` is less than [`LINE_WORDS`].
#[inline(always)]
fn of_line(line: *const Line, index: usize) -> u64 {
    // SAFETY: the map's value, which is as many words. The agent changes words of a half only while no
    // program looks at it.
    atomic::load(unsafe { line.cast::<u64>().add(index) })
}
