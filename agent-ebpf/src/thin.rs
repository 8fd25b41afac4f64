//! Sampling, rate limits, and the places of a watch: what is left out of the events that pass the filters.

use agent_ebpf::{LossCause, places, rate, slot_flags};
use aya_ebpf::helpers::generated::bpf_get_current_cgroup_id;

use crate::{
    atomic, context, globals,
    maps::{EVENTS, RATE_GROUPS, RATES},
    ring::Ring,
};

/// How often an event that starts a new second tries again because another CPU came between.
const TRIES: usize = 4;

/// Whether this event is in the sample and within its rate. Counts it if not.
#[inline(always)]
pub fn admits(ring: &mut Ring, cookie: u32) -> bool {
    if globals::thinned() == 0 {
        return true;
    }
    let Some(slot) = EVENTS.get_ptr(cookie) else { return true };
    // SAFETY: the map's value; the agent fills it in before it attaches the event, and not again.
    let (sample, limit) = unsafe { ((*slot).sample, (*slot).rate) };
    if sample > 1 {
        let number = arrive(ring);
        if !number.is_multiple_of(u64::from(sample)) {
            return false;
        }
    }
    if limit != 0 && number_in_window(cookie) >= limit {
        ring.lose(LossCause::RateLimit);
        return false;
    }
    true
}

/// Takes a place for an event that is about to be recorded, where that needs one. Counts it if there is none.
#[inline(always)]
pub fn takes_place(ring: &mut Ring) -> bool {
    if globals::places() == 0 || takes_place_of_watch(ring) {
        return true;
    }
    ring.lose(LossCause::RingFull);
    false
}

/// Takes a place for a match of a watch.
#[inline(always)]
fn takes_place_of_watch(ring: &Ring) -> bool {
    if takes_one_of(globals::places(), places::OF_RULE) {
        return true;
    }
    // SAFETY: the map's value, of which these are members; the agent has set the last before the start.
    let (head, consumed, pages) =
        unsafe { (&raw const (*ring.ctl).head, &raw const (*ring.ctl).consumed, (*ring.ctl).ring_pages) };
    // First: the reader may release pages meanwhile.
    let consumed = atomic::load(consumed);
    let waiting = atomic::load(head) - consumed;
    waiting < u64::from(pages / 2) && takes_one_of(places::shared(globals::slots()), places::SHARED)
}

/// Takes one of so many places, unless all are taken. Reads first, so that CPUs do not compete for the word
/// once all places are taken.
#[inline(always)]
fn takes_one_of(word: u32, places: u64) -> bool {
    let Some(taken) = RATES.get_ptr_mut(word) else { return false };
    atomic::load(taken) < places && atomic::take_number(taken) < places
}

/// How many events came to the sample before this one.
#[inline(always)]
fn arrive(ring: &mut Ring) -> u64 {
    // SAFETY: the map's value, of which this is a member.
    let arrived = unsafe { &raw mut (*ring.ledger).arrived };
    if globals::preemptible() != 0 {
        return atomic::take_number(arrived);
    }
    // SAFETY: the event's own row, which only this program changes, and nothing preempts it.
    unsafe {
        let number = *arrived;
        *arrived = number + 1;
        number
    }
}

/// How many events came to this limit in this second before this one.
#[inline(always)]
fn number_in_window(cookie: u32) -> u32 {
    if globals::rate_by_group() != 0 {
        number_by_group(cookie.into()) as u32
    } else {
        number_in_second(cookie)
    }
}

/// How many events of this kind there were in this second before this one.
#[inline(always)]
fn number_in_second(cookie: u32) -> u32 {
    let Some(window) = RATES.get_ptr_mut(cookie) else { return 0 };
    let second = (context::now() / rate::WINDOW) << rate::SECOND_SHIFT;
    for _ in 0..TRIES {
        let seen = atomic::load(window);
        if (seen ^ second) >> rate::SECOND_SHIFT == 0 {
            return atomic::take_number(window) as u32;
        }
        if atomic::replace(window, seen, second | 1) {
            return 0;
        }
    }
    u32::MAX
}

/// The same of the current thread's control group, if groups have limits of their own of this event.
///
/// A function of the program, so that programs that do without are as if it was not there.
#[inline(never)]
fn number_by_group(cookie: u64) -> u64 {
    let cookie = cookie as u32;
    let Some(slot) = EVENTS.get_ptr(cookie) else { return 0 };
    // SAFETY: the map's value; the agent fills it in before it attaches the event, and not again.
    let groups = unsafe { (*slot).flags } / slot_flags::RATE_BY_GROUP;
    if groups != 0
        && let Some(windows) = RATE_GROUPS.get_ptr_mut(groups - 1)
        && let Some(number) = number_in_groups(windows)
    {
        return number.into();
    }
    number_in_second(cookie).into()
}

/// How many events of this kind the group had in this second before this one; `None` if there is no window
/// for it.
#[inline(always)]
fn number_in_groups(windows: *mut [rate::Group; rate::GROUPS]) -> Option<u32> {
    // SAFETY: the helper takes nothing.
    let group = unsafe { bpf_get_current_cgroup_id() };
    let second = (context::now() / rate::WINDOW) as u32;
    let own = group << rate::SECOND_SHIFT | u64::from(second);
    let (mut at, step) = rate::places(group);
    for _ in 0..rate::PROBES {
        let place = windows.cast::<rate::Group>().wrapping_add(at as usize & (rate::GROUPS - 1));
        // SAFETY: the map's value, which has `GROUPS` of these; only addresses are made of it.
        let (owner, window) = unsafe { (&raw mut (*place).owner, &raw mut (*place).window) };
        let mut seen = atomic::load(owner);
        if rate::is_over(seen as u32, second) {
            seen = if atomic::replace(owner, seen, own) { own } else { atomic::load(owner) };
        }
        if (seen ^ own) >> rate::SECOND_SHIFT == 0 {
            // Of the second that the window was taken for, which may be the next one.
            return Some(take_in_window(window, seen as u32));
        }
        at = at.wrapping_add(step);
    }
    None
}

/// Counts an event in a window that is a group's for this second.
#[inline(always)]
fn take_in_window(window: *mut u64, second: u32) -> u32 {
    let seen = atomic::load(window);
    let started = u64::from(second) << rate::SECOND_SHIFT;
    if rate::is_over((seen >> rate::SECOND_SHIFT) as u32, second)
        && atomic::replace(window, seen, started | 1)
    {
        return 0;
    }
    atomic::take_number(window) as u32
}
