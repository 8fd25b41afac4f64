//! The answers as JSON.

use serde_json::{Map, Value, json};

use crate::analysis::buckets::Buckets;
use crate::analysis::groups::Groups;
use crate::analysis::histogram::{Histogram, Question, Row};
use crate::analysis::key::Key;
use crate::analysis::latency::{Latency, LatencyBy, Unpaired};
use crate::analysis::spread::{self, Spread};
use crate::analysis::stack_tree::{self, StackCounts};

/// A number of more than 64 bits is a text: readers would round it.
fn number(number: i128) -> Value {
    if let Ok(number) = u64::try_from(number) {
        return json!(number);
    }
    i64::try_from(number).map_or_else(|_| json!(number.to_string()), |number| json!(number))
}

/// The same of a sum.
fn sum(sum: u128) -> Value {
    u64::try_from(sum).map_or_else(|_| json!(sum.to_string()), |sum| json!(sum))
}

/// Adds the members of one object to another.
fn extend(members: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        members.extend(more);
    }
}

fn texts(keys: &[Key]) -> Vec<String> {
    keys.iter().map(Key::text).collect()
}

pub(super) fn histogram(question: &Question, answer: &Histogram, rows: usize) -> Value {
    let row = |row: &Row| {
        let mut members = Map::new();
        if !row.keys.is_empty() {
            members.insert("keys".to_owned(), json!(row.keys));
        }
        members.insert("count".to_owned(), json!(row.count));
        let values = question.values.iter().zip(&row.values).map(|(key, values)| {
            let values = json!({
                "count": values.count, "sum": number(values.sum), "min": number(values.least),
                "avg": number(values.average()), "max": number(values.most),
            });
            (key.text(), values)
        });
        let values: Map<_, _> = values.collect();
        if !values.is_empty() {
            members.insert("values".to_owned(), values.into());
        }
        Value::from(members)
    };
    let shown: Vec<_> = answer.rows.iter().take(rows).map(row).collect();
    json!({
        "events": question.events.text(), "keys": texts(&question.keys), "records": answer.records,
        "distinct": answer.rows.len(), "rows": shown, "overflow": row(&answer.overflow),
        "damaged": answer.damaged,
    })
}

pub(super) fn stacks(question: &stack_tree::Question, answer: &StackCounts, limit: usize) -> Value {
    let shown: Vec<_> = answer
        .stacks
        .iter()
        .take(limit)
        .map(|(names, weight)| {
            let (keys, frames) = names.split_at(question.keys.len().min(names.len()));
            json!({ "keys": keys, "stack": frames, "count": sum(*weight) })
        })
        .collect();
    json!({
        "events": question.events.text(), "keys": texts(&question.keys),
        "value": question.value.as_ref().map(Key::text), "total": sum(answer.total()), "distinct": answer.stacks.len(), "stacks": shown,
        "overflow": sum(answer.others),
        "without_stack": answer.without_stack, "without_value": answer.without_value,
        "damaged": answer.damaged,
    })
}

/// What is known of a set of numbers.
fn summary(numbers: &Buckets) -> Value {
    let [p50, p90, p99] = numbers.percentiles([50, 90, 99]);
    let powers: Vec<_> =
        numbers.powers().map(|(from, count)| json!({ "from": from, "count": count })).collect();
    json!({
        "count": numbers.count(), "sum": sum(numbers.sum()),
        "min": numbers.least(), "avg": numbers.average(), "p50": p50, "p90": p90, "p99": p99,
        "max": numbers.most(),
        "log2": powers,
    })
}

fn groups(groups: &Groups) -> Value {
    let rows: Vec<_> = groups
        .rows
        .iter()
        .map(|row| {
            let mut members = Map::new();
            members.insert("by".to_owned(), json!(row.key));
            extend(&mut members, summary(&row.numbers));
            members
        })
        .collect();
    let (distinct, more) = groups.keys;
    let others = if groups.others.count() == 0 { Value::Null } else { summary(&groups.others) };
    json!({ "count": groups.count(), "distinct": distinct, "more": more, "rows": rows, "others": others })
}

fn unpaired(unpaired: &Unpaired) -> Value {
    let Unpaired { restarted, open, unmatched, overflow } = unpaired;
    json!({ "restarted": restarted, "open": open, "unmatched": unmatched, "overflow": overflow })
}

pub(super) fn latency(answer: &Latency) -> Value {
    let mut members = Map::new();
    extend(&mut members, summary(&answer.times));
    extend(&mut members, unpaired(&answer.unpaired));
    members.insert("damaged".to_owned(), json!(answer.damaged));
    members.into()
}

pub(super) fn latency_by(answer: &LatencyBy, nanoseconds: bool) -> Value {
    let mut members = Map::new();
    members.insert("by".to_owned(), json!(texts(&answer.by)));
    members.insert("unit".to_owned(), json!(if nanoseconds { "ns" } else { "clock" }));
    extend(&mut members, groups(&answer.groups));
    extend(&mut members, unpaired(&answer.unpaired));
    members.insert("damaged".to_owned(), json!(answer.damaged));
    members.into()
}

pub(super) fn spread(question: &spread::Question, answer: &Spread) -> Value {
    let mut members = Map::new();
    members.insert("by".to_owned(), json!(texts(&answer.by)));
    members.insert("value".to_owned(), json!(question.value.text()));
    extend(&mut members, groups(&answer.groups));
    let Spread { negative, without_value, damaged, .. } = answer;
    extend(&mut members, json!({ "negative": negative, "without_value": without_value, "damaged": damaged }));
    members.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_64_bits_are_numbers() {
        for value in [0, i64::MIN.into(), u64::MAX.into()] {
            assert_eq!(number(value).to_string(), value.to_string());
        }
        let beyond = i128::from(u64::MAX) + 1;
        assert_eq!(number(beyond), json!("18446744073709551616"));
        assert_eq!(sum(u128::from(u64::MAX)).to_string(), u64::MAX.to_string());
        assert_eq!(sum(u128::from(u64::MAX) + 1), json!("18446744073709551616"));
    }
}
