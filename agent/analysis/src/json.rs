//! The answers as JSON: a type for each object that `hist --json` and `diff --json` print.
//!
//! Parts that several answers share (the numbers of a distribution, of groups, of what has no pair) are
//! flattened into the objects, so their members stand beside the answer's own.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};

use super::buckets::Buckets;
use super::diff::{Both, Diff};
use super::groups::Groups;
use super::histogram::{self, Histogram, Row};
use super::key::Key;
use super::latency::{LatencyBy, Unpaired};
use super::spread::{self, Spread};
use super::stack_tree::{self, StackCounts};

/// A number. One of more than 64 bits is a text: readers would round it.
#[derive(Clone, Copy, Debug)]
struct Number(i128);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (u64::try_from(self.0), i64::try_from(self.0)) {
            (Ok(number), _) => serializer.serialize_u64(number),
            (_, Ok(number)) => serializer.serialize_i64(number),
            _ => serializer.collect_str(&self.0),
        }
    }
}

/// The same of a sum, which is never negative.
#[derive(Clone, Copy, Debug)]
struct Sum(u128);

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(number) => serializer.serialize_u64(number),
            Err(_) => serializer.collect_str(&self.0),
        }
    }
}

/// As it is typed.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

/// Records counted by keys.
#[derive(Clone, Debug, Serialize)]
pub struct HistogramJson<'a> {
    events: String,
    keys: &'a [Key],
    records: u64,
    distinct: usize,
    rows: Vec<RowJson<'a>>,
    overflow: RowJson<'a>,
    damaged: u64,
}

#[derive(Clone, Debug, Serialize)]
struct RowJson<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    keys: &'a [String],
    count: u64,
    /// By the key that they are the values of.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, ValuesJson>,
}

#[derive(Clone, Debug, Serialize)]
struct ValuesJson {
    count: u64,
    sum: Number,
    min: Number,
    avg: Number,
    max: Number,
}

impl<'a> HistogramJson<'a> {
    /// The first `limit` rows of an answer.
    pub fn new(question: &'a histogram::Question, answer: &'a Histogram, limit: usize) -> Self {
        let row = |row: &'a Row| {
            let values = question.values.iter().zip(&row.values).map(|(key, values)| {
                let histogram::Values { count, sum, least, most } = *values;
                let avg = Number(values.average());
                let numbers =
                    ValuesJson { count, sum: Number(sum), min: Number(least), avg, max: Number(most) };
                (key.text(), numbers)
            });
            RowJson { keys: &row.keys, count: row.count, values: values.collect() }
        };
        Self {
            events: question.events.text().to_owned(),
            keys: &question.keys,
            records: answer.records,
            distinct: answer.rows.len(),
            rows: answer.rows.iter().take(limit).map(row).collect(),
            overflow: row(&answer.overflow),
            damaged: answer.damaged,
        }
    }
}

/// Records counted by their stacks.
#[derive(Clone, Debug, Serialize)]
pub struct StacksJson<'a> {
    events: String,
    keys: &'a [Key],
    value: Option<&'a Key>,
    total: Sum,
    distinct: usize,
    stacks: Vec<StackJson<'a>>,
    overflow: Sum,
    without_stack: u64,
    without_value: u64,
    damaged: u64,
}

#[derive(Clone, Debug, Serialize)]
struct StackJson<'a> {
    keys: &'a [String],
    stack: &'a [String],
    count: Sum,
}

impl<'a> StacksJson<'a> {
    /// The `limit` most frequent stacks of an answer.
    pub fn new(question: &'a stack_tree::Question, answer: &'a StackCounts, limit: usize) -> Self {
        let stack = |(names, weight): &'a (Vec<String>, u128)| {
            let (keys, stack) = names.split_at(question.keys.len().min(names.len()));
            StackJson { keys, stack, count: Sum(*weight) }
        };
        Self {
            events: question.events.text().to_owned(),
            keys: &question.keys,
            value: question.value.as_ref(),
            total: Sum(answer.total()),
            distinct: answer.stacks.len(),
            stacks: answer.stacks.iter().take(limit).map(stack).collect(),
            overflow: Sum(answer.others),
            without_stack: answer.without_stack,
            without_value: answer.without_value,
            damaged: answer.damaged,
        }
    }
}

/// What is known of a set of numbers.
#[derive(Clone, Debug, Serialize)]
struct BucketsJson {
    count: u64,
    sum: Sum,
    min: u64,
    avg: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
    log2: Vec<PowerJson>,
}

/// The numbers from one power of two to the next.
#[derive(Clone, Debug, Serialize)]
struct PowerJson {
    from: u64,
    count: u64,
}

impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [p50, p90, p99] = self.percentiles([50, 90, 99]);
        let numbers = BucketsJson {
            count: self.count(),
            sum: Sum(self.sum()),
            min: self.least(),
            avg: self.average(),
            p50,
            p90,
            p99,
            max: self.most(),
            log2: self.powers().map(|(from, count)| PowerJson { from, count }).collect(),
        };
        numbers.serialize(serializer)
    }
}

#[derive(Clone, Debug, Serialize)]
struct GroupsJson<'a> {
    count: u64,
    distinct: u64,
    more: bool,
    rows: Vec<GroupJson<'a>>,
    others: Option<&'a Buckets>,
}

#[derive(Clone, Debug, Serialize)]
struct GroupJson<'a> {
    by: &'a [String],
    #[serde(flatten)]
    numbers: &'a Buckets,
}

impl<'a> GroupsJson<'a> {
    fn new(groups: &'a Groups) -> Self {
        let (distinct, more) = groups.keys;
        let rows = groups.rows.iter().map(|group| GroupJson { by: &group.key, numbers: &group.numbers });
        let others = Some(&groups.others).filter(|others| others.count() != 0);
        Self { count: groups.count(), distinct, more, rows: rows.collect(), others }
    }
}

/// Times between two events, for each value of some fields.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyByJson<'a> {
    by: &'a [Key],
    unit: &'static str,
    #[serde(flatten)]
    groups: GroupsJson<'a>,
    #[serde(flatten)]
    unpaired: Unpaired,
    damaged: u64,
}

impl<'a> LatencyByJson<'a> {
    /// An answer, whose clock counts nanoseconds or something else.
    pub fn new(answer: &'a LatencyBy, nanoseconds: bool) -> Self {
        Self {
            by: &answer.by,
            unit: if nanoseconds { "ns" } else { "clock" },
            groups: GroupsJson::new(&answer.groups),
            unpaired: answer.unpaired,
            damaged: answer.damaged,
        }
    }
}

/// The distribution of a field's values, for each value of some keys.
#[derive(Clone, Debug, Serialize)]
pub struct SpreadJson<'a> {
    by: &'a [Key],
    value: &'a Key,
    #[serde(flatten)]
    groups: GroupsJson<'a>,
    negative: u64,
    without_value: u64,
    damaged: u64,
}

impl<'a> SpreadJson<'a> {
    /// An answer.
    pub fn new(question: &'a spread::Question, answer: &'a Spread) -> Self {
        Self {
            by: &answer.by,
            value: &question.value,
            groups: GroupsJson::new(&answer.groups),
            negative: answer.negative,
            without_value: answer.without_value,
            damaged: answer.damaged,
        }
    }
}

/// The differences of two recordings.
#[derive(Clone, Debug, Serialize)]
pub struct DiffJson<'a> {
    same: bool,
    #[serde(flatten)]
    diff: &'a Diff,
}

impl<'a> DiffJson<'a> {
    /// Differences, or none.
    pub fn new(diff: &'a Diff) -> Self {
        Self { same: diff.is_empty(), diff }
    }
}

/// Numbers of a CPU that differ.
#[derive(Clone, Debug, Serialize)]
struct CpuJson<'a> {
    buffer: &'a str,
    cpu: u32,
    first: u64,
    second: u64,
}

/// Values of a field that differ.
#[derive(Clone, Debug, Serialize)]
struct ValueJson<'a> {
    event: &'a str,
    field: &'a str,
    pairs: u64,
    example: &'a str,
}

/// Numbers by buffer and CPU as a list: objects have no keys of two parts.
pub(super) fn cpus<S: Serializer>(
    cpus: &BTreeMap<(String, u32), Both>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let cpus = cpus.iter();
    list(
        serializer,
        cpus.map(|((buffer, cpu), (first, second))| CpuJson {
            buffer,
            cpu: *cpu,
            first: *first,
            second: *second,
        }),
    )
}

/// The same by event and field.
pub(super) fn values<S: Serializer>(
    values: &BTreeMap<(String, String), (u64, String)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let values = values.iter();
    list(
        serializer,
        values.map(|((event, field), (pairs, example))| ValueJson { event, field, pairs: *pairs, example }),
    )
}

fn list<S: Serializer, T: Serialize>(
    serializer: S,
    elements: impl ExactSizeIterator<Item = T>,
) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(elements.len()))?;
    for element in elements {
        list.serialize_element(&element)?;
    }
    list.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Group;
    use crate::latency::Latency;

    /// As it is printed: members by name.
    fn text(answer: &impl Serialize) -> String {
        serde_json::to_value(answer).unwrap().to_string()
    }

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    fn buckets(numbers: &[u64]) -> Buckets {
        let mut buckets = Buckets::default();
        for number in numbers {
            buckets.add(*number);
        }
        buckets
    }

    const UNPAIRED: Unpaired = Unpaired { restarted: 1, open: 2, unmatched: 3, overflow: 4 };

    #[test]
    fn numbers_of_64_bits_are_numbers() {
        for value in [0, i64::MIN.into(), u64::MAX.into()] {
            assert_eq!(text(&Number(value)), value.to_string());
        }
        assert_eq!(text(&Number(i128::from(u64::MAX) + 1)), r#""18446744073709551616""#);
        assert_eq!(text(&Number(i128::from(i64::MIN) - 1)), r#""-9223372036854775809""#);
        assert_eq!(text(&Sum(u64::MAX.into())), u64::MAX.to_string());
        assert_eq!(text(&Sum(u128::from(u64::MAX) + 1)), r#""18446744073709551616""#);
    }

    #[test]
    fn histograms_have_rows_and_what_is_beyond() {
        let question = histogram::Question {
            events: histogram::events("sched_switch").unwrap(),
            keys: vec![key("prev_pid.hex")],
            values: vec![key("prio")],
            most_rows: 10,
        };
        let values = histogram::Values { count: 2, sum: -3, least: -4, most: 1 };
        let row = |name: &str| Row {
            keys: vec![name.to_owned()],
            numbers: vec![None],
            count: 2,
            values: vec![values],
        };
        let answer =
            Histogram { rows: vec![row("a"), row("b")], overflow: Row::default(), records: 4, damaged: 1 };
        assert_eq!(
            text(&HistogramJson::new(&question, &answer, 1)),
            r#"{"damaged":1,"distinct":2,"events":"sched_switch","keys":["prev_pid.hex"],"overflow":{"count":0},"records":4,"rows":[{"count":2,"keys":["a"],"values":{"prio":{"avg":-1,"count":2,"max":1,"min":-4,"sum":-3}}}]}"#
        );
    }

    #[test]
    fn stacks_have_their_keys_apart() {
        let question = stack_tree::Question {
            events: histogram::events("kmalloc").unwrap(),
            keys: vec![key("COMM")],
            value: None,
            most_stacks: 10,
        };
        let names = ["sh", "entry", "kmalloc"].map(str::to_owned).to_vec();
        let answer =
            StackCounts { stacks: vec![(names, 7)], others: 2, without_stack: 1, ..StackCounts::default() };
        assert_eq!(
            text(&StacksJson::new(&question, &answer, 9)),
            r#"{"damaged":0,"distinct":1,"events":"kmalloc","keys":["COMM"],"overflow":2,"stacks":[{"count":7,"keys":["sh"],"stack":["entry","kmalloc"]}],"total":9,"value":null,"without_stack":1,"without_value":0}"#
        );
    }

    #[test]
    fn distributions_stand_beside_what_was_not_measured() {
        let times = buckets(&[4, 1]);
        let numbers = r#""avg":2,"count":2"#;
        let rest =
            r#""log2":[{"count":1,"from":1},{"count":0,"from":2},{"count":1,"from":4}],"max":4,"min":1"#;
        let percent = r#""p50":1,"p90":4,"p99":4"#;
        let latency = Latency { times: times.clone(), unpaired: UNPAIRED, damaged: 5 };
        assert_eq!(
            text(&latency),
            format!(
                r#"{{{numbers},"damaged":5,{rest},"open":2,"overflow":4,{percent},"restarted":1,"sum":5,"unmatched":3}}"#
            )
        );
        let rows = vec![Group { key: vec!["a".to_owned()], numbers: times }];
        let groups = Groups { rows, others: Buckets::default(), keys: (1, false) };
        let row = format!(r#"{{"avg":2,"by":["a"],"count":2,{rest},{percent},"sum":5}}"#);
        let by = LatencyBy { by: vec![key("pid")], groups: groups.clone(), unpaired: UNPAIRED, damaged: 0 };
        assert_eq!(
            text(&LatencyByJson::new(&by, true)),
            format!(
                r#"{{"by":["pid"],"count":2,"damaged":0,"distinct":1,"more":false,"open":2,"others":null,"overflow":4,"restarted":1,"rows":[{row}],"unit":"ns","unmatched":3}}"#
            )
        );
        let question = spread::Question {
            events: histogram::events("x").unwrap(),
            value: key("ret"),
            by: vec![key("pid")],
        };
        let spread = Spread { by: vec![key("pid")], groups, negative: 1, without_value: 2, damaged: 3 };
        assert_eq!(
            text(&SpreadJson::new(&question, &spread)),
            format!(
                r#"{{"by":["pid"],"count":2,"damaged":3,"distinct":1,"more":false,"negative":1,"others":null,"rows":[{row}],"value":"ret","without_value":2}}"#
            )
        );
    }

    #[test]
    fn differences_are_pairs_and_lists() {
        let mut diff = Diff::default();
        assert!(text(&DiffJson::new(&diff)).contains(r#""same":true"#));
        diff.only_first.push("a:b".to_owned());
        diff.counts.insert("s:e".to_owned(), (1, 2));
        diff.cpus.insert((String::new(), 3), (4, 5));
        diff.values.insert(("s:e".to_owned(), "pid".to_owned()), (6, "1 and 2".to_owned()));
        assert_eq!(
            text(&DiffJson::new(&diff)),
            r#"{"alone":{},"counts":{"s:e":[1,2]},"cpus":[{"buffer":"","cpu":3,"first":4,"second":5}],"damaged":0,"formats":{},"losses":[],"not_compared":0,"only_first":["a:b"],"only_second":[],"pairs":0,"same":false,"values":[{"event":"s:e","example":"1 and 2","field":"pid","pairs":6}]}"#
        );
    }
}
