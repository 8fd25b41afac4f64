//! Counting in maps instead of recording: the halves that programs which count are made of.
//!
//! The agent writes a program for each event of a map (`agent/compile/src/aggregate`): it makes the fields
//! that the keys are made of, asks the event's filter and then `aggregate_admit`, makes the key, and has
//! `aggregate_find` give the values that belong to it, which it changes. The memory is described in
//! `agent_ebpf::aggregates`.
//!
//! Like those of `fast`, none of these is loaded by itself. A map has an object of its own, so that the
//! length of its keys is a constant.

use agent_ebpf::aggregates::{self, LOST_WORDS, NO_TIME, PROBES, WAYS, WRITING, cause};

use crate::{
    atomic,
    context::{self, Current},
    globals,
    maps::{
        AGGREGATE_INDEX, AGGREGATE_KEYS, AGGREGATE_LOST, AGGREGATE_STARTS, AGGREGATE_TAKEN, AGGREGATE_VALUES,
    },
    ring::Ring,
    tasks, thin,
};

/// Says that an event is about no thread but the current one.
const NO_OTHER: u64 = u64::MAX;
/// No entry. Numbers of entries are smaller.
const NO_ENTRY: u32 = u32::MAX;

/// Whether the event `cookie` is counted: the gate is open, its threads are wanted, and it is neither left
/// out of a sample nor beyond a rate. `id` holds `begin_flags`; `other` is another thread that it is about,
/// or `NO_OTHER`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/aggregate_admit")]
extern "C" fn aggregate_admit(cookie: u64, id: u64, other: u64) -> u64 {
    let cookie = cookie as u32;
    let Some(mut ring) = Ring::open(context::cpu(), cookie) else { return 0 };
    let other = || if other == NO_OTHER { None } else { Some(other as u32) };
    let admitted = tasks::admits(&mut ring, cookie, &Current::get(), id as u32, other);
    (admitted && thin::admits(&mut ring, cookie)).into()
}

/// Counts an event that is not in the map.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/aggregate_lose")]
extern "C" fn aggregate_lose(cause: u64) -> u64 {
    lose(cause);
    0
}

/// The values, on this CPU, of the entry with this key. Null where there is no room for it, which is counted.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/aggregate_find")]
extern "C" fn aggregate_find(key: *const u64) -> *mut u64 {
    let found = match globals::aggregate_key_words() {
        0 => values(0),
        1 => find::<1>(key),
        2 => find::<2>(key),
        3 => find::<3>(key),
        4 => find::<4>(key),
        8 => find::<8>(key),
        _ => find::<16>(key),
    };
    found.unwrap_or(core::ptr::null_mut())
}

/// The bucket of a number by its power of two.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/aggregate_power")]
extern "C" fn aggregate_power(number: u64, signed: u64) -> u64 {
    aggregates::power(number, signed != 0).into()
}

/// Notes that a time with this key begins.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/aggregate_begin")]
extern "C" fn aggregate_begin(key: *const u64) -> u64 {
    match globals::aggregate_start_words() {
        1 => begin::<1>(key),
        2 => begin::<2>(key),
        3 => begin::<3>(key),
        _ => begin::<4>(key),
    }
    0
}

/// Ends the time with this key, and gives it; `NO_TIME` if none has begun, which is counted.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/aggregate_end")]
extern "C" fn aggregate_end(key: *const u64) -> u64 {
    match globals::aggregate_start_words() {
        1 => end::<1>(key),
        2 => end::<2>(key),
        3 => end::<3>(key),
        _ => end::<4>(key),
    }
}

#[inline(always)]
fn lose(cause: u64) {
    if let Some(row) = AGGREGATE_LOST.get_ptr_mut(context::cpu()) {
        // SAFETY: the map's value; the index is within it.
        atomic::increment(unsafe { (&raw mut (*row)[cause as usize & (LOST_WORDS - 1)]).cast() });
    }
}

/// The values of an entry on this CPU.
#[inline(always)]
fn values(entry: u32) -> Option<*mut u64> {
    AGGREGATE_VALUES.get_ptr_mut(context::cpu() * globals::aggregate_keys() + entry)
}

#[inline(always)]
fn find<const WORDS: usize>(key: *const u64) -> Option<*mut u64> {
    let hash = hash::<WORDS>(key);
    let tag = hash >> 32 << 32;
    let mut at = hash as u32;
    let mut own = NO_ENTRY;
    for _ in 0..PROBES {
        at &= globals::aggregate_index_mask();
        let place = AGGREGATE_INDEX.get_ptr_mut(at, globals::aggregate_index_len())?;
        let mut seen = atomic::load(place);
        if seen == 0 {
            if own == NO_ENTRY {
                own = take::<WORDS>(key)?;
            }
            if atomic::replace(place, 0, tag | u64::from(own + 1)) {
                return values(own);
            }
            // Another program was quicker.
            seen = atomic::load(place);
        }
        if (seen ^ tag) >> 32 == 0 {
            let entry = seen as u32 - 1;
            if let Some(found) = AGGREGATE_KEYS.get_ptr(entry)
                && is_same::<WORDS>(found, key)
            {
                return values(entry);
            }
        }
        at += 1;
    }
    lose(cause::OVERFLOW);
    None
}

/// Takes an entry for a key. Counts the event if there is none left.
#[inline(always)]
fn take<const WORDS: usize>(key: *const u64) -> Option<u32> {
    let taken = AGGREGATE_TAKEN.get_ptr_mut(0)?;
    let most = u64::from(globals::aggregate_keys());
    // Where there is none left, nothing is written that other CPUs read.
    if atomic::load(taken) < most {
        let entry = atomic::take_number(taken);
        if entry < most {
            let to = AGGREGATE_KEYS.get_ptr_mut(entry as u32)?;
            for word in 0..WORDS {
                // SAFETY: the map's value has `WORDS` words, and so has the key, on the calling program's
                // stack. Nobody else has this number.
                unsafe { to.add(word).write_volatile(key.add(word).read()) };
            }
            return Some(entry as u32);
        }
    }
    lose(cause::OVERFLOW);
    None
}

/// A hash of which all bits depend on all words.
#[inline(always)]
fn hash<const WORDS: usize>(key: *const u64) -> u64 {
    let mut hash = 0_u64;
    for word in 0..WORDS {
        // SAFETY: the key on the calling program's stack has `WORDS` words.
        hash ^= unsafe { key.add(word).read() };
        // 2^64 divided by the golden ratio.
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn is_same<const WORDS: usize>(one: *const u64, other: *const u64) -> bool {
    let mut differ = 0;
    for word in 0..WORDS {
        // SAFETY: both have `WORDS` words, one in a map's value and one on the calling program's stack.
        differ |= unsafe { one.add(word).read_volatile() ^ other.add(word).read() };
    }
    differ == 0
}

/// The `way`th place of the beginning of a time with this hash: a word with the time, and the key.
#[inline(always)]
fn start(hash: u64, way: u32) -> Option<*mut u64> {
    AGGREGATE_STARTS.get_ptr_mut(((hash >> 32) as u32 + way) & globals::aggregate_starts_mask())
}

#[inline(always)]
fn key_of(start: *mut u64) -> *mut u64 {
    // SAFETY: the map's value has the words of the key after the first one.
    unsafe { start.add(1) }
}

#[inline(always)]
fn begin<const WORDS: usize>(key: *const u64) {
    let hash = hash::<WORDS>(key);
    let now = context::now();
    let (mut oldest, mut oldest_way) = (u64::MAX, 0);
    for way in 0..WAYS {
        let Some(place) = start(hash, way) else { return };
        let begun = atomic::load(place);
        if begun > WRITING && is_same::<WORDS>(key_of(place), key) {
            if atomic::replace(place, begun, now) {
                lose(cause::RESTARTED);
                return;
            }
        } else if begun != WRITING && begun < oldest {
            // One that is free is the oldest.
            (oldest, oldest_way) = (begun, way);
        }
    }
    let Some(place) = start(hash, oldest_way) else { return };
    if oldest == u64::MAX || !atomic::replace(place, oldest, WRITING) {
        // Somebody else needs all of them at this moment.
        lose(cause::FORGOTTEN);
        return;
    }
    if oldest != 0 {
        lose(cause::FORGOTTEN);
    }
    for word in 0..WORDS {
        // SAFETY: as in `take`; the word before the key says that nobody else uses it.
        unsafe { key_of(place).add(word).write_volatile(key.add(word).read()) };
    }
    atomic::publish(place, now);
}

#[inline(always)]
fn end<const WORDS: usize>(key: *const u64) -> u64 {
    let hash = hash::<WORDS>(key);
    for way in 0..WAYS {
        let Some(place) = start(hash, way) else { break };
        let begun = atomic::load(place);
        if begun > WRITING && is_same::<WORDS>(key_of(place), key) && atomic::replace(place, begun, 0) {
            return context::now().saturating_sub(begun).min(NO_TIME - 1);
        }
    }
    lose(cause::UNMATCHED);
    NO_TIME
}
