//! Keeping the page of an event that asks for a snapshot, until the agent has copied the ring.
//!
//! Events do not pay for it: whether one of them has asked is seen by its count when a page is complete, and
//! whether a page is kept when it would be reused. Without such an event the verifier drops both.

use agent_ebpf::{CpuControl, hold};

use crate::{atomic, diagnose, globals, maps::LEDGER, wake};

/// Called when page `number` is complete, by the holder of the flag.
#[inline(always)]
pub fn after_page(ctl: &mut CpuControl, number: u64) {
    let asking = globals::asking();
    if asking == 0 {
        return;
    }
    let Some(row) = LEDGER.get_ptr_mut(ctl.row * globals::slots() + asking - 1, globals::ledger_len()) else {
        return;
    };
    // SAFETY: the map's value. Only the holder of the flag changes this count in the rows of its CPU.
    let asked = unsafe { (*row).recorded };
    if asked == ctl.asked_seen {
        return;
    }
    ctl.asked_seen = asked;
    // The agent may set it at the same time.
    let is_held = atomic::replace(&raw mut ctl.hold, hold::ARMED, number + 1);
    diagnose::asked_for_snapshot(ctl.cpu, number, is_held);
    if is_held {
        // If it cannot be woken, the agent finds the event when it looks the next time.
        wake::wake(ctl.reader);
    }
}

/// Whether page `number` must not be reused.
#[inline(always)]
pub fn is_held(ctl: &CpuControl, number: u64) -> bool {
    if globals::asking() == 0 {
        return false;
    }
    let held = atomic::load(&raw const ctl.hold);
    // `OFF` is more than any page has.
    held != hold::ARMED && number + 1 >= held
}
