//! Records counted by keys.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::key::{Key, ResolvedKey};
use super::{AnalysisError, Room, SEPARATOR, Watch, each_record, values};
use ftrace_event::filter::{Dialect, Filter, ResolveOptions};
use report::TraceFile;
use tracedat::reader::Source;

/// What is counted.
#[derive(Clone, Debug)]
pub struct Question {
    /// The events, and a condition if wanted: `sched_switch: prev_pid != 0`.
    pub events: Filter,
    /// The keys, at least one.
    pub keys: Vec<Key>,
    /// Fields that are added up.
    pub values: Vec<Key>,
    /// Most combinations of keys with a row of their own.
    pub most_rows: usize,
}

/// The records with the same keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The keys as text, in their order.
    pub keys: Vec<String>,
    /// The keys as numbers, where they are, for sorting.
    pub numbers: Vec<Option<i128>>,
    /// How many records.
    pub count: u64,
    /// The values, in their order.
    pub values: Vec<Values>,
}

/// The numbers of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// How many records have one.
    pub count: u64,
    /// Their sum.
    pub sum: i128,
    /// The smallest.
    pub least: i128,
    /// The largest.
    pub most: i128,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The rows, in no order.
    pub rows: Vec<Row>,
    /// Records beyond the limit of rows, and their values.
    pub overflow: Row,
    /// All records that were counted.
    pub records: u64,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The number of records, most first.
    #[default]
    Count,
    /// The keys, numbers by size.
    Keys,
    /// The sum of the value with an index, most first.
    Sum(usize),
    /// The mean of the value with an index, most first.
    Average(usize),
    /// The largest of the value with an index, most first.
    Most(usize),
}

impl Histogram {
    /// Counts the records of a file.
    ///
    /// # Errors
    /// No such event or field, or a file that cannot be read.
    pub fn of<S: Source>(
        file: &TraceFile<S>,
        question: &Question,
        watch: Watch<'_>,
    ) -> Result<Self, AnalysisError> {
        let events = file.events();
        let filter = question.events.resolve(events, ResolveOptions::default())?;
        let resolve = |keys: &[Key]| -> Result<Vec<_>, AnalysisError> {
            keys.iter().map(|key| ResolvedKey::new(key, filter.events(), file)).collect()
        };
        let (keys, fields) = (resolve(&question.keys)?, resolve(&question.values)?);
        let mut answer = Self::default();
        answer.overflow.values = vec![Values::default(); fields.len()];
        let mut rows: HashMap<Box<[u8]>, Row> = HashMap::new();
        let mut room = Room::new(question.most_rows);
        let (mut text, mut numbers) = (Vec::new(), Vec::new());
        answer.damaged = each_record(file, watch, |event, record, origin| {
            if !filter.matches(event, record.data, origin) {
                return;
            }
            text.clear();
            numbers.clear();
            for (index, key) in keys.iter().enumerate() {
                if index > 0 {
                    text.push(SEPARATOR);
                }
                numbers.push(key.write(events, event, record, origin, &mut text));
            }
            answer.records += 1;
            let row = if rows.contains_key(text.as_slice()) || room.take(text.len()) {
                rows.entry(text.as_slice().into()).or_insert_with(|| Row {
                    numbers: numbers.clone(),
                    values: vec![Values::default(); fields.len()],
                    ..Row::default()
                })
            } else {
                &mut answer.overflow
            };
            row.count += 1;
            for (sum, value) in row.values.iter_mut().zip(&fields) {
                if let Some(number) = value.number(events, event, record) {
                    sum.add(number);
                }
            }
        })?;
        answer.rows = rows.into_iter().map(|(text, row)| Row { keys: values(&text), ..row }).collect();
        Ok(answer)
    }

    /// Sorts the rows; those that are equal by their keys.
    pub fn sort(&mut self, order: Order, reversed: bool) {
        self.rows.sort_by(|a, b| {
            let by_key = || (&a.numbers, &a.keys).cmp(&(&b.numbers, &b.keys));
            let descending = |value: &dyn Fn(&Row) -> i128| Reverse(value(a)).cmp(&Reverse(value(b)));
            let value = |row: &Row, index: usize| row.values.get(index).copied().unwrap_or_default();
            let ordering = match order {
                Order::Count => descending(&|row| row.count.into()),
                Order::Keys => std::cmp::Ordering::Equal,
                Order::Sum(index) => descending(&|row| value(row, index).sum),
                Order::Average(index) => descending(&|row| value(row, index).average()),
                Order::Most(index) => descending(&|row| value(row, index).most),
            };
            let ordering = ordering.then_with(by_key);
            if reversed { ordering.reverse() } else { ordering }
        });
    }
}

impl Values {
    fn add(&mut self, number: i128) {
        let first = self.count == 0;
        self.least = if first { number } else { self.least.min(number) };
        self.most = if first { number } else { self.most.max(number) };
        self.sum += number;
        self.count += 1;
    }

    /// The mean, rounded towards 0; 0 if there are none.
    pub fn average(&self) -> i128 {
        self.sum / i128::from(self.count.max(1))
    }
}

/// Events as users give them: a filter of trace-cmd's grammar.
///
/// # Errors
/// What is not understood.
pub fn events(text: &str) -> Result<Filter, AnalysisError> {
    Ok(Filter::parse(text, Dialect::TraceCmd)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::crafted;
    use report::crafted::ev;

    #[test]
    fn names_of_threads_do_not_move_columns() {
        let records = [ev(1, 0, 7, 0), ev(2, 0, 8, 0)];
        let file = crafted::file(&records, "", "1 A\u{1f}B\n2 A\n", "[local]");
        let keys = ["COMM", "ptr"].map(|text| Key::parse(text).unwrap()).to_vec();
        let question = Question { events: events("ev").unwrap(), keys, values: vec![], most_rows: 100 };
        let mut found = Histogram::of(&file, &question, &mut |_| {}).unwrap();
        found.sort(Order::Keys, false);
        let rows: Vec<_> = found.rows.iter().map(|row| row.keys.join("|")).collect();
        assert_eq!(rows, ["A?B|7", "A|8"]);
    }
}
