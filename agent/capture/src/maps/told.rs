//! What a map has counted, as it is told.

use std::{collections::HashMap, time::Duration};

use super::{Entry, KeyValue, MapContents, MapOptions, Numbers};
use api::counted::{Bucket, CountedMap, KeyPart, MapEntry, MapFunction, Number};
use compile::aggregate::PartKind;
use ftrace_event::{SymbolTable, Symbols as _};
use kernel::kallsyms::Kallsyms;
use spec::FunctionSpec;

/// The contents of a map after `elapsed`, with `most` keys at most; `last` if they are final. `symbols` are
/// those of the kernel, wanted for keys that are functions: without them, these are numbers.
pub fn counted_map<'s>(
    options: &MapOptions,
    contents: &MapContents,
    most: usize,
    (elapsed, last): (Duration, bool),
    symbols: impl FnOnce() -> Option<&'s SymbolTable>,
) -> CountedMap {
    let spec = &options.spec;
    let losses = contents.losses;
    let symbols = options.kinds.contains(&PartKind::Address).then(symbols).flatten();
    let entries = told(&contents.entries, &options.kinds, symbols);
    CountedMap {
        map: spec.name.clone(),
        question: None,
        uid: None,
        of: None,
        function: function_of(spec.function),
        unit: spec.from.as_ref().map(|_| "ns".to_owned()),
        by: spec.by.clone(),
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        last,
        entries: sorted(spec.function, &entries)
            .take(most)
            .map(|entry| entry_of(spec.function, entry))
            .collect(),
        more: entries.len().saturating_sub(most) as u64,
        overflow: losses.overflow,
        unreadable: losses.unreadable,
        unmatched: losses.unmatched,
        restarted: losses.restarted,
        forgotten: losses.forgotten,
        open: contents.open,
        filtered: losses.filtered,
        own_threads: losses.own_threads,
        rate_limited: losses.rate_limited,
        skipped: losses.skipped,
    }
}

fn function_of(spec: FunctionSpec) -> MapFunction {
    match spec {
        FunctionSpec::Count => MapFunction::Count,
        FunctionSpec::Sum => MapFunction::Sum,
        FunctionSpec::Min => MapFunction::Min,
        FunctionSpec::Max => MapFunction::Max,
        FunctionSpec::Avg => MapFunction::Avg,
        FunctionSpec::Stats => MapFunction::Stats,
        FunctionSpec::Hist => MapFunction::Hist,
        FunctionSpec::Lhist { .. } => MapFunction::Lhist,
    }
}

/// The kernel's symbols, if this process may see them.
pub fn kernel_symbols() -> Option<SymbolTable> {
    Kallsyms::read().ok().map(|symbols| SymbolTable::parse(symbols.with_sentinel()))
}

/// The function at an address.
fn symbol_at(symbols: &SymbolTable, address: i128) -> Option<String> {
    let symbol = symbols.lookup(u64::try_from(address).ok()?)?;
    Some(match symbol.offset {
        0 => symbol.name.to_owned(),
        offset => format!("{}+{offset:#x}", symbol.name),
    })
}

/// The entries with their keys as they are told. Texts that differ only in what is no UTF-8 are one.
fn told(entries: &[Entry], kinds: &[PartKind], symbols: Option<&SymbolTable>) -> Vec<Entry> {
    let symbol = |kind, address| match kind {
        PartKind::Address => symbol_at(symbols?, address),
        _ => None,
    };
    let part = |(part, kind): (&KeyValue, &PartKind)| match part {
        KeyValue::Text(text) => KeyValue::Text(String::from_utf8_lossy(text).into_owned().into_bytes()),
        KeyValue::Number(number) => symbol(*kind, *number)
            .map_or(KeyValue::Number(*number), |symbol| KeyValue::Text(symbol.into_bytes())),
    };
    let mut told: HashMap<Vec<KeyValue>, Entry> = HashMap::with_capacity(entries.len());
    for entry in entries {
        let key: Vec<KeyValue> = entry.key.iter().zip(kinds).map(part).collect();
        match told.get_mut(&key) {
            Some(there) => there.add(entry),
            None => drop(told.insert(key.clone(), Entry { key, ..entry.clone() })),
        }
    }
    told.into_values().collect()
}

/// The entries, the largest first.
fn sorted(function: FunctionSpec, all: &[Entry]) -> impl Iterator<Item = &Entry> {
    let rank = |numbers: &Numbers| match function {
        FunctionSpec::Sum | FunctionSpec::Stats => numbers.sum,
        FunctionSpec::Min => numbers.least,
        FunctionSpec::Max => numbers.most,
        FunctionSpec::Avg => average(numbers),
        FunctionSpec::Count | FunctionSpec::Hist | FunctionSpec::Lhist { .. } => numbers.count.into(),
    };
    let mut entries: Vec<&Entry> = all.iter().collect();
    entries.sort_by(|one, other| {
        rank(&other.numbers).cmp(&rank(&one.numbers)).then_with(|| one.key.cmp(&other.key))
    });
    entries.into_iter()
}

fn average(numbers: &Numbers) -> i128 {
    numbers.sum / i128::from(numbers.count.max(1))
}

fn entry_of(function: FunctionSpec, entry: &Entry) -> MapEntry {
    let Numbers { count, sum, least, most } = entry.numbers;
    let part = |part: &KeyValue| match part {
        KeyValue::Number(number) => KeyPart::Number(Number(*number)),
        KeyValue::Text(text) => KeyPart::Text(String::from_utf8_lossy(text).into_owned()),
    };
    let of = |is_asked, number| Some(Number(number)).filter(|_| is_asked);
    let adds = !matches!(function, FunctionSpec::Count | FunctionSpec::Min | FunctionSpec::Max);
    MapEntry {
        key: entry.key.iter().map(part).collect(),
        count,
        sum: of(adds, sum),
        avg: of(adds, average(&entry.numbers)),
        min: of(matches!(function, FunctionSpec::Min | FunctionSpec::Stats), least),
        max: of(matches!(function, FunctionSpec::Max | FunctionSpec::Stats), most),
        buckets: buckets(function, &entry.buckets),
    }
}

/// From the first bucket that has something to the last.
fn buckets(function: FunctionSpec, counts: &[u64]) -> Vec<Bucket> {
    let (Some(first), Some(last)) =
        (counts.iter().position(|count| *count != 0), counts.iter().rposition(|count| *count != 0))
    else {
        return Vec::new();
    };
    let bucket = |(at, &count): (usize, &u64)| {
        let (from, to) = ends(function, at);
        Bucket { from: from.map(Number), to: to.map(Number), count }
    };
    counts.iter().enumerate().take(last + 1).skip(first).map(bucket).collect()
}

/// The ends of a histogram's bucket: the first number of it, and the first after it.
fn ends(function: FunctionSpec, bucket: usize) -> (Option<i128>, Option<i128>) {
    match function {
        FunctionSpec::Lhist { min, max, step } => {
            let last = (i128::from(max) - i128::from(min)).unsigned_abs().div_ceil(u128::from(step.max(1)));
            let at = |bucket: usize| i128::from(min) + bucket as i128 * i128::from(step);
            match bucket {
                0 => (None, Some(at(0))),
                _ if bucket as u128 > last => (Some(at(bucket - 1)), None),
                _ => (Some(at(bucket - 1)), Some(at(bucket))),
            }
        }
        _ => match bucket {
            0 => (None, Some(0)),
            1 => (Some(0), Some(1)),
            _ => (Some(1 << (bucket - 2)), Some(1 << (bucket - 1))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_addresses_are_functions() {
        let text = b"ffffffff81000000 T first\nffffffff81000100 T second\nffffffff81000200 T end\n";
        let symbols = SymbolTable::parse(text.to_vec());
        let entry = |address| Entry {
            key: vec![KeyValue::Number(address), KeyValue::Number(address)],
            numbers: Numbers { count: 1, ..Numbers::default() },
            buckets: Vec::new(),
        };
        let kinds = [PartKind::Address, PartKind::Number { signed: false }];
        let told = |address, symbols| {
            told(&[entry(address)], &kinds, symbols).remove(0).key.into_iter().next().unwrap()
        };
        let text = |name: &str| KeyValue::Text(name.into());
        assert_eq!(told(0xffff_ffff_8100_0100, Some(&symbols)), text("second"));
        assert_eq!(told(0xffff_ffff_8100_0104, Some(&symbols)), text("second+0x4"));
        for (address, symbols) in [(7, Some(&symbols)), (-7, Some(&symbols)), (0xffff_ffff_8100_0100, None)] {
            assert_eq!(told(address, symbols), KeyValue::Number(address));
        }
    }

    #[test]
    fn buckets_have_no_gaps() {
        let mut counts = vec![0; 66];
        (counts[1], counts[3]) = (4, 5);
        let powers = buckets(FunctionSpec::Hist, &counts);
        let told: Vec<_> =
            powers.iter().map(|of| (of.from.map(|from| from.0), of.to.map(|to| to.0), of.count)).collect();
        assert_eq!(told, [(Some(0), Some(1), 4), (Some(1), Some(2), 0), (Some(2), Some(4), 5)]);
        let ranges = FunctionSpec::Lhist { min: -10, max: 10, step: 8 };
        let told: Vec<_> = (0..5).map(|bucket| ends(ranges, bucket)).collect();
        assert_eq!(
            told,
            [
                (None, Some(-10)),
                (Some(-10), Some(-2)),
                (Some(-2), Some(6)),
                (Some(6), Some(14)),
                (Some(14), None)
            ]
        );
        assert!(buckets(FunctionSpec::Hist, &[0; 66]).is_empty());
    }
}
