//! Sampling and rate limits: what is left out of the events that pass the filters.

use agent_ebpf::{LossCause, rate};

use crate::{
    atomic, context, globals,
    maps::{EVENTS, RATES},
    ring::Ring,
};

/// How often an event that starts a new second tries again because another CPU came between.
const TRIES: usize = 4;

/// Whether this event is recorded. Counts it if not.
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
    if limit != 0 && number_in_second(cookie) >= limit {
        ring.lose(LossCause::RateLimit);
        return false;
    }
    true
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
