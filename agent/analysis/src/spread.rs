//! The distribution of a field's values, for each value of some keys.

use super::groups::{Groups, Limits};
use super::key::{Key, ResolvedKey};
use super::{AnalysisError, SEPARATOR, Watch, each_record};
use ftrace_event::filter::{Filter, ResolveOptions};
use report::TraceFile;
use tracedat::reader::Source;

/// What is counted.
#[derive(Clone, Debug)]
pub struct Question {
    /// The events, and a condition if wanted: `sys_exit_read: ret > 0`.
    pub events: Filter,
    /// The field whose values are counted.
    pub value: Key,
    /// The fields that they are told apart by.
    pub by: Vec<Key>,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The fields, with the modifiers that their values are shown with.
    pub by: Vec<Key>,
    /// The values.
    pub groups: Groups,
    /// Records with a value below 0, which are not counted: mostly numbers of errors.
    pub negative: u64,
    /// Records without a number in the field.
    pub without_value: u64,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
}

/// What one reading of the file has beside the values.
#[derive(Clone, Copy, Default)]
struct NotCounted {
    negative: u64,
    without_value: u64,
    damaged: u64,
}

impl Spread {
    /// Counts the values in a file.
    ///
    /// # Errors
    /// No such event or field, or a file that cannot be read.
    pub fn of<S: Source>(
        file: &TraceFile<S>,
        question: &Question,
        limits: Limits,
        watch: Watch<'_>,
    ) -> Result<Self, AnalysisError> {
        let events = file.events();
        let filter = question.events.resolve(events, ResolveOptions::default())?;
        let value = ResolvedKey::new(&question.value, filter.events(), file)?;
        let by = question.by.iter().map(|key| ResolvedKey::by_name(key, filter.events(), file));
        let by = by.collect::<Result<Vec<_>, _>>()?;
        let mut text = Vec::new();
        let (groups, rest) = Groups::of(limits, |sample| {
            let mut rest = NotCounted::default();
            rest.damaged = each_record(file, &mut *watch, |event, record, origin| {
                if !filter.matches(event, record.data, origin) {
                    return;
                }
                let Some(number) = value.number(events, event, record) else {
                    rest.without_value += 1;
                    return;
                };
                let Ok(number) = u64::try_from(number) else {
                    rest.negative += 1;
                    return;
                };
                text.clear();
                for (index, key) in by.iter().enumerate() {
                    if index > 0 {
                        text.push(SEPARATOR);
                    }
                    key.write(events, event, record, origin, &mut text);
                }
                sample(&text, number);
            })?;
            Ok(rest)
        })?;
        let NotCounted { negative, without_value, damaged } = rest;
        let by = by.iter().map(|key| key.key().clone()).collect();
        Ok(Self { by, groups, negative, without_value, damaged })
    }
}
