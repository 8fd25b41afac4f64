//! Rings of each user or process: which set of them the current thread's events go to (`agent_ebpf::sets`).
//!
//! Where all share the rings, programs are made of parts in which there is nothing of this (`fast`).

use agent_ebpf::sets::{self, Owner};
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_uid_gid};

use crate::{
    atomic,
    context::{self, Current},
    globals,
    maps::{CONTROL, OWNERS},
    ring::forget,
    tasks::{self, Verdict},
};

/// The row of the current thread's ring on this CPU: of its own set, or of the last one while it has none.
/// With `CLAIM` it gets one, if the thread is recorded and there is still one.
#[inline(always)]
pub fn row<const CLAIM: bool>(cpu: u32) -> u32 {
    find(cpu, u32::from(CLAIM)) as u32
}

/// The row of a CPU in a set.
#[inline(always)]
pub fn set_row(cpu: u32, set: u32) -> u32 {
    if globals::ring_sets() == 0 { cpu } else { set * globals::rows_of_set() + cpu }
}

/// The row of the current thread on this CPU.
#[inline(never)]
fn find(cpu: u32, claim: u32) -> u64 {
    let id = if globals::ring_sets_by() == sets::BY_USER {
        bpf_get_current_uid_gid() as u32
    } else {
        (bpf_get_current_pid_tgid() >> 32) as u32
    };
    let key = u64::from(id) + 1;
    let last = globals::ring_sets() - 1;
    let (mut at, mut seat) = walk(id % last, key, false);
    // The verifier takes all ways that lead here for one.
    at = forget(at, key);
    if seat == Seat::Free && claim != 0 && is_wanted(cpu) {
        (at, seat) = walk(at, key, true);
        at = forget(at, key);
    }
    set_row(cpu, if seat == Seat::Taken { at } else { last }).into()
}

/// Whether the current thread is recorded.
#[inline(always)]
fn is_wanted(cpu: u32) -> bool {
    let last = set_row(cpu, globals::ring_sets() - 1);
    // Only switches look there.
    let Some(ctl) = CONTROL.get_ptr_mut(last, globals::control_len()) else { return false };
    // Before the start and in pauses nothing is recorded, and nobody needs a set.
    // SAFETY: the map's value, of which this is a member.
    if atomic::load(unsafe { &raw const (*ctl).enabled }) == 0 {
        return false;
    }
    tasks::judge(ctl, &Current::get(), 0, || None) == Verdict::Wanted
}

/// What an element of `OWNERS` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seat {
    /// It is the thread's.
    Taken,
    /// It is nobody's.
    Free,
    /// It is another one's.
    Foreign,
}

/// Looks for the element with this key from `at` on, up to the first that is free; with `claim`, takes that.
#[inline(always)]
fn walk(mut at: u32, key: u64, claim: bool) -> (u32, Seat) {
    let elements = globals::ring_sets() - 1;
    let mut left = elements;
    while left != 0 {
        let Some(owner) = OWNERS.get_ptr_mut(at) else { break };
        let seat = look(owner, key, claim);
        if seat != Seat::Foreign {
            return (at, seat);
        }
        at += 1;
        if at >= elements {
            at = 0;
        }
        left -= 1;
    }
    (at, Seat::Foreign)
}

/// Looks whose an element is, and takes it if it is free and `claim` says so.
#[inline(always)]
fn look(owner: *mut Owner, key: u64, claim: bool) -> Seat {
    // SAFETY: the map's value, of which this is a member.
    let word = unsafe { &raw mut (*owner).key };
    let mut found = atomic::load(word);
    if found == 0 {
        if !claim {
            return Seat::Free;
        }
        if atomic::replace(word, 0, key) {
            sign(owner);
            return Seat::Taken;
        }
        // Another thread, perhaps of the same user or process, was first.
        found = atomic::load(word);
    }
    if found == key { Seat::Taken } else { Seat::Foreign }
}

/// Writes who has taken an element and when; once, as only one thread takes it.
#[inline(always)]
fn sign(owner: *mut Owner) {
    if let Ok(comm) = bpf_get_current_comm() {
        // SAFETY: the map's value, of which this is a member.
        unsafe { (&raw mut (*owner).comm).write_volatile(comm) };
    }
    // SAFETY: as above.
    atomic::publish(unsafe { &raw mut (*owner).since }, context::now());
}
