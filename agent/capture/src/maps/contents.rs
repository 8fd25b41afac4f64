//! What is in a map.

use std::{collections::HashMap, sync::atomic::Ordering};

use agent_ebpf::aggregates::{LOST_WORDS, WRITING, cause, value};

use super::{MapOptions, Memory};
use attach::ring::SharedArray;
use compile::aggregate::{Function, PartKind};
use spec::FunctionSpec;

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
    /// They are of the recorder's own threads.
    pub own_threads: u64,
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

/// The values that programs keep for a map's function.
pub fn program_function(function: FunctionSpec) -> Function {
    let numbers = |sum, least, most| Function::Numbers { sum, least, most };
    match function {
        FunctionSpec::Count => numbers(false, false, false),
        FunctionSpec::Sum | FunctionSpec::Avg => numbers(true, false, false),
        FunctionSpec::Min => numbers(false, true, false),
        FunctionSpec::Max => numbers(false, false, true),
        FunctionSpec::Stats => numbers(true, true, true),
        FunctionSpec::Hist => Function::Powers,
        FunctionSpec::Lhist { min, max, step } => {
            let width = u64::try_from(i128::from(max) - i128::from(min)).unwrap_or(1);
            Function::Steps { from: min, step, count: width.div_ceil(step.max(1)) as u32 }
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

/// How many events of all keys each CPU has counted, by its id.
pub(super) fn by_cpu(options: &MapOptions, memory: &Memory) -> Vec<u64> {
    let (keys, words) = (options.sizes.keys as usize, options.sizes.value_words as usize);
    let used = used(options, memory);
    let count = |row: usize, entry: usize| load(&memory.values, (row * keys + entry) * words + value::COUNT);
    (0..memory.rows).map(|row| (0..used).map(|entry| count(row, entry)).sum()).collect()
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
            PartKind::Number { signed: false } | PartKind::Address => {
                KeyValue::Number(load(&memory.keys, first).into())
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ChannelOptions;
    use compile::aggregate::Sizes;
    use spec::{FunctionSpec, MapSpec};

    /// Memory with these words first, and zeros after them.
    fn array(len: usize, words: &[u64]) -> SharedArray<u64> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len as u64 * 8).unwrap();
        let array = SharedArray::map(&file, len).unwrap();
        assert!(words.iter().enumerate().all(|(at, word)| array.write(at, *word)));
        array
    }

    /// A map of so many entries on two CPUs, whose keys have these parts.
    fn map(function: FunctionSpec, kinds: &[PartKind], keys: u32) -> MapOptions {
        let sizes = Sizes {
            keys,
            key_words: kinds.iter().map(|kind| kind.words() as u32).sum(),
            value_words: program_function(function).words() as u32,
            pair_words: 0,
        };
        let spec = MapSpec { function, ..MapSpec::of_events("sched_switch").unwrap() };
        let channel = ChannelOptions::of_map(Vec::new(), Vec::new(), sizes);
        MapOptions { spec, kinds: kinds.to_vec(), is_signed: true, sizes, channel }
    }

    /// Its memory: how many entries are taken, their keys, and the values of each CPU's row.
    fn memory(options: &MapOptions, taken: u64, keys: &[u64], rows: [&[u64]; 2]) -> Memory {
        let Sizes { keys: entries, key_words, value_words, pair_words } = options.sizes;
        let row = entries as usize * value_words as usize;
        let mut values = vec![0; row * 2];
        for (number, words) in rows.into_iter().enumerate() {
            values[number * row..][..words.len()].copy_from_slice(words);
        }
        Memory {
            index: array(options.sizes.index() as usize, &[]),
            keys: array((entries * key_words.max(1)) as usize, keys),
            values: array(row * 2, &values),
            starts: array((options.sizes.starts() * (1 + pair_words)) as usize, &[]),
            taken: array(1, &[taken]),
            lost: array(LOST_WORDS * 2, &[]),
            rows: 2,
        }
    }

    fn sorted(contents: MapContents) -> Vec<Entry> {
        let mut entries = contents.entries;
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        entries
    }

    const MINUS: u64 = -3_i64 as u64;
    const SIGNED: PartKind = PartKind::Number { signed: true };

    #[test]
    fn what_cpus_have_counted_is_one_entry() {
        let options = map(FunctionSpec::Stats, &[SIGNED], 4);
        // Of the second entry only one CPU knows, of the third none; the fourth is not taken.
        let first = [2, MINUS, -5_i64 as u64, 2, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9];
        let second = [1, 7, 7, 7, 1, 1, 1, 1];
        let memory = memory(&options, 3, &[MINUS, 8, 9, 10], [&first, &second]);
        let numbers = |count, sum, least, most| Numbers { count, sum, least, most };
        let entry = |key, numbers| Entry { key: vec![KeyValue::Number(key)], numbers, buckets: Vec::new() };
        let expected = [entry(-3, numbers(3, 4, -5, 7)), entry(8, numbers(1, 1, 1, 1))];
        assert_eq!(sorted(read(&options, &memory)), expected);
        let unsigned =
            MapOptions { is_signed: false, kinds: vec![PartKind::Number { signed: false }], ..options };
        let found = sorted(read(&unsigned, &memory)).pop().unwrap();
        assert_eq!(found.key, [KeyValue::Number(MINUS.into())]);
        assert_eq!(found.numbers, numbers(3, i128::from(MINUS) + 7, 7, 7));
    }

    #[test]
    fn entries_of_the_same_key_are_one_and_texts_end_at_their_zero() {
        let options = map(FunctionSpec::Sum, &[PartKind::Text { bytes: 16 }, SIGNED], 4);
        let text = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        // What is behind the end of a text does not tell two of them apart.
        let keys = [
            [text(b"name\0abc"), text(b"defghijk"), 1],
            [text(b"name\0xyz"), 0, 1],
            [text(b"name\0xyz"), 0, 2],
            [text(b"without "), text(b"an end.."), 1],
        ];
        let row = [[1, 10, 0, 0], [2, 20, 0, 0], [3, 30, 0, 0], [4, 40, 0, 0]];
        let memory = memory(&options, 4, keys.as_flattened(), [row.as_flattened(), &[]]);
        let found: Vec<_> = sorted(read(&options, &memory))
            .into_iter()
            .map(|Entry { key, numbers, .. }| (key, numbers.count, numbers.sum))
            .collect();
        let key = |name: &str, number| vec![KeyValue::Text(name.into()), KeyValue::Number(number)];
        let expected =
            [(key("name", 1), 3, 30), (key("name", 2), 3, 30), (key("without an end..", 1), 4, 40)];
        assert_eq!(found, expected);
    }

    #[test]
    fn histograms_are_added_up_by_bucket() {
        let function = FunctionSpec::Lhist { min: -2, max: 2, step: 2 };
        let options = map(function, &[], 1);
        // Count, sum; below, two ranges, above.
        let memory = memory(&options, 0, &[], [&[3, MINUS, 1, 2, 0, 0], &[2, 9, 0, 0, 1, 1]]);
        let [entry] = sorted(read(&options, &memory)).try_into().unwrap();
        assert_eq!(entry.numbers, Numbers { count: 5, sum: 6, least: 0, most: 0 });
        assert_eq!((entry.key, entry.buckets), (Vec::new(), vec![1, 2, 1, 1]));
    }

    #[test]
    fn open_times_and_losses_are_those_of_all_cpus() {
        let mut options = map(FunctionSpec::Count, &[SIGNED], 2);
        options.sizes.pair_words = 1;
        let mut memory = memory(&options, 0, &[], [&[], &[]]);
        // Free, being written, and two that have begun.
        let stride = 2;
        for (at, state) in [(0, 0), (1, WRITING), (2, 1000), (5, 2000)] {
            assert!(memory.starts.write(at * stride, state));
        }
        let mut lost = [0; LOST_WORDS * 2];
        for (cause, first, second) in [
            (cause::OVERFLOW, 1, 2),
            (cause::UNREADABLE, 0, 4),
            (cause::UNMATCHED, 5, 0),
            (cause::RESTARTED, 1, 5),
            (cause::FORGOTTEN, 3, 4),
        ] {
            (lost[cause as usize], lost[LOST_WORDS + cause as usize]) = (first, second);
        }
        memory.lost = array(lost.len(), &lost);
        let MapContents { entries, losses, open } = read(&options, &memory);
        assert_eq!((entries, open), (Vec::new(), 2));
        let expected = Losses {
            overflow: 3,
            unreadable: 4,
            unmatched: 5,
            restarted: 6,
            forgotten: 7,
            ..Losses::default()
        };
        assert_eq!(losses, expected);
    }

    #[test]
    fn more_entries_than_there_are_were_never_taken() {
        let options = map(FunctionSpec::Count, &[SIGNED], 2);
        // Programs count on when they find no place.
        let memory = memory(&options, u64::MAX, &[1, 2], [&[1, 0, 0, 0, 1, 0, 0, 0], &[]]);
        assert_eq!(read(&options, &memory).entries.len(), 2);
    }

    #[test]
    fn ranges_cover_all_that_is_between() {
        let ranges = |min, max, step| program_function(FunctionSpec::Lhist { min, max, step });
        assert_eq!(ranges(-2, 3, 2), Function::Steps { from: -2, step: 2, count: 3 });
        assert_eq!(ranges(0, 10, 5), Function::Steps { from: 0, step: 5, count: 2 });
        let all = ranges(i64::MIN, i64::MAX, u64::MAX);
        assert_eq!(all, Function::Steps { from: i64::MIN, step: u64::MAX, count: 1 });
    }
}
