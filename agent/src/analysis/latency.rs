//! Times between two events.

use std::collections::HashMap;

use super::buckets::Buckets;
use super::key::{Key, ResolvedKey};
use super::{AnalysisError, Watch, each_record};
use crate::event::filter::{Filter, ResolveOptions};
use crate::report::TraceFile;
use crate::tracedat::reader::Source;

/// What is measured: from each first event to the next second event with the same keys.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where the time begins.
    pub from: Filter,
    /// Where it ends. It can be the same event: then the time between two of them is measured.
    pub to: Filter,
    /// What has to be the same: a field of the first event and one of the second. None, and every second event ends the last
    /// first one.
    pub keys: Vec<(Key, Key)>,
    /// Most begun times that are remembered.
    pub most_open: usize,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// The times, in the units of the clock: nanoseconds for the usual ones.
    pub times: Buckets,
    /// First events that another first event came after, before a second one.
    pub restarted: u64,
    /// First events without a second one at the end.
    pub open: u64,
    /// Second events without a first one.
    pub unmatched: u64,
    /// First events that were not remembered, for there were too many.
    pub overflow: u64,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
}

impl Latency {
    /// Measures the times in a file.
    ///
    /// # Errors
    /// No such event or field, or a file that cannot be read.
    pub fn of<S: Source>(
        file: &TraceFile<S>,
        question: &Question,
        watch: Watch<'_>,
    ) -> Result<Self, AnalysisError> {
        let events = file.events();
        let resolve = |filter: &Filter, side: fn(&(Key, Key)) -> &Key| -> Result<_, AnalysisError> {
            let filter = filter.resolve(events, ResolveOptions::default())?;
            let keys: Result<Vec<_>, _> = question
                .keys
                .iter()
                .map(|pair| ResolvedKey::new(side(pair), filter.events(), events))
                .collect();
            Ok((filter, keys?))
        };
        let (from, from_keys) = resolve(&question.from, |pair| &pair.0)?;
        let (to, to_keys) = resolve(&question.to, |pair| &pair.1)?;
        let mut answer = Self::default();
        let mut begun: HashMap<Box<[u8]>, u64> = HashMap::new();
        let mut text = Vec::new();
        answer.damaged = each_record(file, watch, |event, record, origin| {
            let write = |keys: &[ResolvedKey], text: &mut Vec<u8>| {
                text.clear();
                for key in keys {
                    key.write(events, event, record, origin, text);
                    text.push(0x1f);
                }
            };
            // The end first, so that an event can end one time and begin the next.
            if to.matches(event, record.data, origin) {
                write(&to_keys, &mut text);
                match begun.remove(text.as_slice()) {
                    Some(start) => answer.times.add(record.timestamp.saturating_sub(start)),
                    None => answer.unmatched += 1,
                }
            }
            if from.matches(event, record.data, origin) {
                write(&from_keys, &mut text);
                if let Some(start) = begun.get_mut(text.as_slice()) {
                    *start = record.timestamp;
                    answer.restarted += 1;
                } else if begun.len() < question.most_open {
                    begun.insert(text.as_slice().into(), record.timestamp);
                } else {
                    answer.overflow += 1;
                }
            }
        })?;
        answer.open = begun.len() as u64;
        Ok(answer)
    }
}
