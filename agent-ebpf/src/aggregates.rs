//! Maps that count in the kernel: what programs and the agent know of their memory.
//!
//! A map has *entries*, each with a key and values. Keys are in `AGGREGATE_KEYS`, an entry each, and are
//! written once. An entry's values are in `AGGREGATE_VALUES`, once for each CPU, which alone changes them;
//! their sums are the answer. So programs that count share no line of memory but the keys, which they only
//! read, and the agent reads at any moment without a system call.
//!
//! `AGGREGATE_INDEX` leads from keys to entries: a table with linear probing, of words with half of the
//! key's hash and the entry's number plus 1; 0 where there is nothing. Nothing is ever taken out. A program
//! that finds no entry takes the next number from `AGGREGATE_TAKEN`, writes the key, and then puts the word
//! in its place, if that is still free. If another one was quicker, the key may be in two entries: whoever
//! reads adds them up.
//!
//! For times between two events, `AGGREGATE_STARTS` has what has begun: a word with the time, and the key. A
//! key is in one of [`WAYS`] places after the one that its hash says. The word is 0 where nothing is,
//! [`WRITING`] while the key is written. Whoever ends a time takes it out by exchanging the word that it has
//! read for 0.

/// Words of an entry's key at most.
pub const KEY_WORDS_MAX: usize = 16;
/// Places where a key is looked for.
pub const PROBES: u32 = 32;
/// Words of the index for each entry, at least, so that more than [`PROBES`] places in a row are hardly ever
/// taken.
pub const INDEX_PER_KEY: u32 = 4;
/// Places where the beginning of a time is looked for.
pub const WAYS: u32 = 8;
/// Such places for each time that may be open, at least.
pub const STARTS_PER_KEY: u32 = 2;
/// A beginning whose key is being written.
pub const WRITING: u64 = 1;
/// What there is in the place of a time that has not begun.
pub const NO_TIME: u64 = u64::MAX;
/// Words of a CPU's row of `AGGREGATE_LOST`.
pub const LOST_WORDS: usize = 8;

/// Why an event is not in the map, by the word of `AGGREGATE_LOST` that counts it.
pub mod cause {
    /// There was no room for its key.
    pub const OVERFLOW: u64 = 0;
    /// A key or the value could not be read.
    pub const UNREADABLE: u64 = 1;
    /// It ends a time that has not begun.
    pub const UNMATCHED: u64 = 2;
    /// It begins a time that had begun already; the time before is forgotten.
    pub const RESTARTED: u64 = 3;
    /// A time was forgotten because there was no room for another one.
    pub const FORGOTTEN: u64 = 4;
}

/// Where an entry's values are, in words.
pub mod value {
    /// How many events.
    pub const COUNT: usize = 0;
    /// Their sum.
    pub const SUM: usize = 1;
    /// The smallest.
    pub const LEAST: usize = 2;
    /// The largest.
    pub const MOST: usize = 3;
    /// Words of these.
    pub const NUMBERS: usize = 4;
    /// In a histogram, the first bucket.
    pub const BUCKETS: usize = 2;
}

/// Buckets of powers of two: one for numbers below 0, one for 0, and one for each power.
pub const POWERS: usize = 66;

/// The bucket of a number among the [`POWERS`].
#[inline]
pub const fn power(number: u64, signed: bool) -> u32 {
    if signed && (number as i64) < 0 {
        return 0;
    }
    // This target counts zeros by adding bits up, which takes four times as long.
    let (mut rest, mut bits, mut half) = (number, 1, 32);
    while half != 0 {
        if rest >> half != 0 {
            rest >>= half;
            bits += half;
        }
        half /= 2;
    }
    bits + rest as u32
}

const _: () = {
    assert!(power(u64::MAX, false) as usize == POWERS - 1 && power(u64::MAX, true) == 0);
    assert!(power(0, false) == 1 && power(1, true) == 2 && power(2, true) == 3 && power(3, true) == 3);
    assert!(LOST_WORDS.is_power_of_two() && cause::FORGOTTEN < LOST_WORDS as u64);
};
