//! The sets of values that threads are recorded by: what the agent writes into the map `SETS`, and when.
//!
//! The map is an array of [`Line`]s, in two halves after the first line. The first word of that one says
//! which attributes of threads are asked for, and where the half is that is in use ([`asked`]). The agent
//! writes new sets into the other half, then this word, and waits until programs that have read the word
//! before have returned: each program sees all old sets or all new ones, and nothing is reloaded.
//!
//! A half begins with [`SETS`] words, one for each set, in as many lines as they take. What a word says
//! depends on the attribute:
//!
//! - *numbers*: a table, by [`place`].
//! - *control groups*: the number of a line, of which the first word is a table, and the others are the
//!   levels that the groups of the table are at, plus 1; 0 after the last.
//! - *names*: an automaton, by [`place`]: [`AUTOMATON_LINES`] lines for each [`STATES`] states.
//!
//! A *table* is made of lines, each a bucket of values; [`bucket`] says which one a value is in. [`NO_VALUE`]
//! is where there is none.
//!
//! An *automaton* is nondeterministic. A bit is a state: so many characters of a pattern, stars aside,
//! describe the name so far. The first line has the states at the beginning, those that stay whatever comes
//! (a star is there), and those at the end of a pattern; then, for each byte, those that go on to the next
//! state.

/// Words of a line.
pub const LINE_WORDS: usize = 8;

/// A line of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; LINE_WORDS]);

/// The attributes of threads, by the numbers of their sets. A set of values that a thread must not have is
/// [`EXCEPT`] further.
pub mod attribute {
    /// The process.
    pub const PID: u32 = 0;
    /// The process, as its own pid namespace numbers it.
    pub const VPID: u32 = 1;
    /// The user.
    pub const UID: u32 = 2;
    /// The user, as its own user namespace numbers it.
    pub const VUID: u32 = 3;
    /// The group.
    pub const GID: u32 = 4;
    /// The group, as its own user namespace numbers it.
    pub const VGID: u32 = 5;
    /// The control group, with those that it is in.
    pub const CGROUP: u32 = 6;
    /// The thread's name.
    pub const COMM: u32 = 7;
}

/// Number of the first set of what a thread must not be.
pub const EXCEPT: u32 = 8;
/// Number of sets.
pub const SETS: u32 = 16;

/// The map's first word.
pub mod asked {
    /// A bit for each set that threads are asked for, by its number.
    pub const SETS: u64 = 0xffff;
    /// Those of them that are of what a thread must not be.
    pub const EXCLUSIONS: u64 = 0xff00;
    /// The bit that the number of the half's first line begins at.
    pub const HALF_SHIFT: u32 = 16;
}

/// A value that no thread has.
pub const NO_VALUE: u64 = u64::MAX;

/// States in a part of an automaton.
pub const STATES: u32 = u64::BITS;
/// Lines of such a part: one with the states at the beginning, those that stay, and those at an end, then a
/// word for each byte.
pub const AUTOMATON_LINES: u32 = 1 + 256 / LINE_WORDS as u32;
/// Parts of an automaton.
pub const AUTOMATON_MAX: u32 = 8;
/// Levels of control groups in a set.
pub const LEVELS_MAX: usize = LINE_WORDS - 1;

/// Where something of several equal parts is: the number of its first line in the low half, and a number in
/// the high one: of a table the mask of its buckets, of an automaton how many parts it has.
pub const fn place(line: u32, number: u32) -> u64 {
    (number as u64) << 32 | line as u64
}

/// The bucket of a value: the high bits of a product, which depend on all bits of the value, with 2^64
/// divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
#[inline]
pub const fn bucket(value: u64, mask: u32) -> u32 {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & mask
}

const _: () = {
    assert!(size_of::<Line>() == 64);
    assert!(SETS == 2 * EXCEPT && SETS as usize == 2 * LINE_WORDS);
    assert!(asked::SETS == (1 << SETS) - 1 && asked::HALF_SHIFT == SETS);
    assert!(asked::EXCLUSIONS == asked::SETS & !((1 << EXCEPT) - 1));
};
