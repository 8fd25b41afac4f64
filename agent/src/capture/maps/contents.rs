//! What is in a map.

use std::{collections::HashMap, sync::atomic::Ordering};

use agent_ebpf::aggregates::{LOST_WORDS, WRITING, cause, value};

use super::{MapOptions, Memory};
use crate::{
    compile::aggregate::{Function, PartKind},
    ring::SharedArray,
    spec::FunctionSpec,
};

/// What is in a map at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapContents {
    /// Its entries, in no order.
    pub entries: Vec<Entry>,
    /// Events that are in none.
    pub losses: Losses,
    /// Times that have begun and not ended.
    pub open: u64,
}

/// Events that no entry counts, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// There was no room for their key.
    pub overflow: u64,
    /// A key or the value could not be read.
    pub unreadable: u64,
    /// They end times that have not begun.
    pub unmatched: u64,
    /// They begin times that had begun already, which are forgotten.
    pub restarted: u64,
    /// Times that were forgotten because too many were open.
    pub forgotten: u64,
    /// Their filter, or the choice of threads, leaves them out.
    pub filtered: u64,
    /// They are beyond the rate.
    pub rate_limited: u64,
    /// The kernel did not call the program; `None` where it does not count that.
    pub skipped: Option<u64>,
}

/// A key with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, in the order of its parts.
    pub key: Vec<KeyValue>,
    /// The values.
    pub numbers: Numbers,
    /// Counts by bucket, of a histogram. Of one by powers of two: of numbers below 0, of 0, of 1, of 2 and
    /// 3, of 4 to 7, and so on; of one by ranges: of what is below the first, of each of them, of what is
    /// above.
    pub buckets: Vec<u64>,
}

impl Entry {
    /// Adds what is known of the same key from elsewhere.
    pub(crate) fn add(&mut self, other: &Self) {
        add(&mut self.numbers, other.numbers);
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
    }
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyValue {
    /// A number.
    Number(i128),
    /// A text, up to its end or to the longest that a map keeps.
    Text(Vec<u8>),
}

/// What is known of the numbers of an entry. What its function does not ask for is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// How many.
    pub count: u64,
    /// Their sum. On each CPU it is one of 64 bits.
    pub sum: i128,
    /// The smallest.
    pub least: i128,
    /// The largest.
    pub most: i128,
}

impl FunctionSpec {
    /// What programs do for it.
    pub(crate) fn in_programs(self) -> Function {
        let numbers = |sum, least, most| Function::Numbers { sum, least, most };
        match self {
            Self::Count => numbers(false, false, false),
            Self::Sum | Self::Avg => numbers(true, false, false),
            Self::Min => numbers(false, true, false),
            Self::Max => numbers(false, false, true),
            Self::Stats => numbers(true, true, true),
            Self::Hist => Function::Powers,
            Self::Lhist { min, max, step } => {
                let width = u64::try_from(i128::from(max) - i128::from(min)).unwrap_or(1);
                Function::Steps { from: min, step, count: width.div_ceil(step.max(1)) as u32 }
            }
        }
    }
}

fn load(memory: &SharedArray<u64>, index: usize) -> u64 {
    memory.get(index).map_or(0, |word| {
        // SAFETY: the word is an aligned u64 in the mapping, which programs change by single stores or
        // atomically.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(word.as_ptr()) }.load(Ordering::Acquire)
    })
}

/// Events of a cause that no entry has.
fn lost(memory: &Memory, cause: u64) -> u64 {
    (0..memory.rows).map(|row| load(&memory.lost, row * LOST_WORDS + cause as usize)).sum()
}

/// How many entries are in use, or will be at once.
fn used(options: &MapOptions, memory: &Memory) -> usize {
    let sizes = options.sizes;
    if sizes.key_words == 0 { 1 } else { (load(&memory.taken, 0) as usize).min(sizes.keys as usize) }
}

/// How many events there were, with those of which it is known that they have no entry.
pub(super) fn events(options: &MapOptions, memory: &Memory) -> u64 {
    let (keys, words) = (options.sizes.keys as usize, options.sizes.value_words as usize);
    let used = used(options, memory);
    let of_row = |row| (0..used).map(move |entry| (row * keys + entry) * words + value::COUNT);
    let counted: u64 = (0..memory.rows).flat_map(of_row).map(|at| load(&memory.values, at)).sum();
    counted + lost(memory, cause::OVERFLOW) + lost(memory, cause::UNREADABLE)
}

/// Reads a map.
pub(super) fn read(options: &MapOptions, memory: &Memory) -> MapContents {
    let sizes = options.sizes;
    let (keys, words) = (sizes.keys as usize, sizes.value_words as usize);
    let used = used(options, memory);
    let mut found: HashMap<Vec<KeyValue>, Entry> = HashMap::new();
    for entry in 0..used {
        let mut numbers = Numbers::default();
        let mut buckets = Vec::new();
        for row in 0..memory.rows {
            let first = (row * keys + entry) * words;
            let word = |at: usize| load(&memory.values, first + at);
            let count = word(value::COUNT);
            // The key is there before the first count is.
            if count != 0 {
                add(&mut numbers, of_row(options, count, &word));
                if options.spec.function.is_histogram() {
                    buckets.resize(words - value::BUCKETS, 0);
                    buckets.iter_mut().enumerate().for_each(|(at, sum)| *sum += word(value::BUCKETS + at));
                }
            }
        }
        if numbers.count == 0 {
            continue;
        }
        let key = key(options, memory, entry);
        match found.get_mut(&key) {
            // Two programs took an entry for the same key at the same moment.
            Some(other) => other.add(&Entry { key, numbers, buckets }),
            None => {
                found.insert(key.clone(), Entry { key, numbers, buckets });
            }
        }
    }
    let stride = 1 + sizes.pair_words as usize;
    let open = if sizes.pair_words == 0 {
        0
    } else {
        (0..sizes.starts() as usize).filter(|&at| load(&memory.starts, at * stride) > WRITING).count()
    };
    let lost = |cause| lost(memory, cause);
    let losses = Losses {
        overflow: lost(cause::OVERFLOW),
        unreadable: lost(cause::UNREADABLE),
        unmatched: lost(cause::UNMATCHED),
        restarted: lost(cause::RESTARTED),
        forgotten: lost(cause::FORGOTTEN),
        ..Losses::default()
    };
    MapContents { entries: found.into_values().collect(), losses, open: open as u64 }
}

/// Forgets the times that have begun; gives how many. No program runs.
pub(super) fn forget_open(options: &MapOptions, memory: &Memory) -> u64 {
    let stride = 1 + options.sizes.pair_words as usize;
    if stride == 1 {
        return 0;
    }
    let begun = |at: &usize| load(&memory.starts, *at) > WRITING;
    let all = (0..options.sizes.starts() as usize).map(|start| start * stride);
    all.filter(begun).map(|at| memory.starts.store(at, 0)).count() as u64
}

/// What one CPU has counted of an entry.
fn of_row(options: &MapOptions, count: u64, word: &dyn Fn(usize) -> u64) -> Numbers {
    let number = |at| {
        let number = word(at);
        if options.is_signed { i128::from(number.cast_signed()) } else { i128::from(number) }
    };
    let sum = number(value::SUM);
    if options.spec.function.is_histogram() {
        return Numbers { count, sum, ..Numbers::default() };
    }
    Numbers { count, sum, least: number(value::LEAST), most: number(value::MOST) }
}

fn add(sum: &mut Numbers, more: Numbers) {
    if sum.count == 0 {
        *sum = more;
        return;
    }
    sum.count += more.count;
    sum.sum += more.sum;
    sum.least = sum.least.min(more.least);
    sum.most = sum.most.max(more.most);
}

fn key(options: &MapOptions, memory: &Memory, entry: usize) -> Vec<KeyValue> {
    let mut at = entry * options.sizes.key_words as usize;
    let part = |kind: &PartKind| {
        let first = at;
        at += kind.words();
        match *kind {
            PartKind::Number { signed: true } => {
                KeyValue::Number(load(&memory.keys, first).cast_signed().into())
            }
            PartKind::Number { signed: false } => KeyValue::Number(load(&memory.keys, first).into()),
            PartKind::Text { .. } => {
                let words = (first..at).map(|at| load(&memory.keys, at));
                let mut text: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
                // What is after the end is whatever was there.
                text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
                KeyValue::Text(text)
            }
        }
    };
    options.kinds.iter().map(part).collect()
}
