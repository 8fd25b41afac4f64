//! Times between two events.

use std::collections::HashMap;

use serde::Serialize;

use super::buckets::Buckets;
use super::groups::{self, Groups};
use super::key::{Key, ResolvedKey};
use super::{AnalysisError, Room, SEPARATOR, Watch, each_record};
use ftrace_event::filter::{Filter, Origin, ResolveOptions, ResolvedFilter};
use ftrace_event::{EventTable, Format};
use report::TraceFile;
use tracedat::ledger::Pause;
use tracedat::reader::{Record, Source};

/// What is measured: from each first event to the next second event with the same keys.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where the time begins.
    pub from: Filter,
    /// Where it ends. It can be the same event: then the time between two of them is measured.
    pub to: Filter,
    /// What has to be the same: a field of the first event and one of the second. Without keys every second
    /// event ends the last first one.
    pub keys: Vec<(Key, Key)>,
    /// Most times that are open at once.
    pub most_open: usize,
}

/// The answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// The times, in the units of the clock: nanoseconds for the usual ones.
    #[serde(flatten)]
    pub times: Buckets,
    /// What was not measured.
    #[serde(flatten)]
    pub unpaired: Unpaired,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
}

/// Events that are part of no measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// First events that were followed by another first event before a second one.
    pub restarted: u64,
    /// First events without a second one at the end, or before a pause of the recording.
    pub open: u64,
    /// Second events without a first one.
    pub unmatched: u64,
    /// First events that were ignored, for too many were open.
    pub overflow: u64,
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
        let sides = Sides::of(file, question, &[])?;
        let mut times = Buckets::default();
        let (unpaired, damaged) =
            sides.each_time(file, question.most_open, watch, |_, time| times.add(time))?;
        Ok(Self { times, unpaired, damaged })
    }
}

/// The times for each value of some fields.
#[derive(Clone, Debug)]
pub struct LatencyBy {
    /// The fields, with the modifiers that their values are shown with.
    pub by: Vec<Key>,
    /// The times of each value, in the units of the clock.
    pub groups: Groups,
    /// What was not measured.
    pub unpaired: Unpaired,
    /// Pages and chunks that could not be read.
    pub damaged: u64,
}

impl LatencyBy {
    /// Measures the times in a file, for each value of the fields `by`. A field is one of the first event, or
    /// else of the second.
    ///
    /// # Errors
    /// No such event or field, or a file that cannot be read.
    pub fn of<S: Source>(
        file: &TraceFile<S>,
        question: &Question,
        by: &[Key],
        limits: groups::Limits,
        watch: Watch<'_>,
    ) -> Result<Self, AnalysisError> {
        let sides = Sides::of(file, question, by)?;
        let by = sides.by.iter().map(|(_, key)| key.key().clone()).collect();
        let (groups, (unpaired, damaged)) =
            Groups::of(limits, |sample| sides.each_time(file, question.most_open, &mut *watch, sample))?;
        Ok(Self { by, groups, unpaired, damaged })
    }
}

/// Which of the two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

/// The question made for the events of a file.
struct Sides {
    from: ResolvedFilter,
    to: ResolvedFilter,
    from_keys: Vec<ResolvedKey>,
    to_keys: Vec<ResolvedKey>,
    by: Vec<(Side, ResolvedKey)>,
}

/// A time that has begun.
struct Begun {
    at: u64,
    /// Values of the fields of the first event that times are told apart by.
    by: Box<[u8]>,
}

impl Sides {
    fn of<S: Source>(file: &TraceFile<S>, question: &Question, by: &[Key]) -> Result<Self, AnalysisError> {
        let resolve = |filter: &Filter, side: fn(&(Key, Key)) -> &Key| -> Result<_, AnalysisError> {
            let filter = filter.resolve(file.events(), ResolveOptions::default())?;
            let keys: Result<Vec<_>, _> = question
                .keys
                .iter()
                .map(|pair| ResolvedKey::new(side(pair), filter.events(), file))
                .collect();
            Ok((filter, keys?))
        };
        let (from, from_keys) = resolve(&question.from, |pair| &pair.0)?;
        let (to, to_keys) = resolve(&question.to, |pair| &pair.1)?;
        let side = |key: &Key| match ResolvedKey::by_name(key, from.events(), file) {
            Ok(found) => Ok((Side::First, found)),
            Err(error) => ResolvedKey::by_name(key, to.events(), file)
                .map(|found| (Side::Second, found))
                .map_err(|_| error),
        };
        let by = by.iter().map(side).collect::<Result<_, _>>()?;
        Ok(Self { from, to, from_keys, to_keys, by })
    }

    /// Writes the values of the fields of one event that times are told apart by, each with its separator.
    fn write_by(
        &self,
        side: Side,
        events: &EventTable,
        id: u16,
        record: &Record<'_>,
        origin: &Origin<'_>,
        text: &mut Vec<u8>,
    ) {
        text.clear();
        for (_, key) in self.by.iter().filter(|(of, _)| *of == side) {
            key.write(events, id, record, origin, text);
            text.push(SEPARATOR);
        }
    }

    /// Calls `sample` with each time, and the values that it belongs to.
    fn each_time<S: Source>(
        &self,
        file: &TraceFile<S>,
        most_open: usize,
        watch: Watch<'_>,
        mut sample: impl FnMut(&[u8], u64),
    ) -> Result<(Unpaired, u64), AnalysisError> {
        let events = file.events();
        let mut unpaired = Unpaired::default();
        let mut begun: HashMap<Box<[u8]>, Begun> = HashMap::new();
        let mut room = Room::new(most_open);
        let (mut text, mut by) = (Vec::new(), Vec::new());
        let pauses = Pause::all_of(file.reader());
        let mut pauses = pauses.iter().map(|pause| pause.from_ns).peekable();
        let damaged = each_record(file, watch, |event, record, origin| {
            let write = |keys: &[ResolvedKey], text: &mut Vec<u8>| {
                text.clear();
                for key in keys {
                    key.write(events, event, record, origin, text);
                    text.push(SEPARATOR);
                }
            };
            while pauses.next_if(|from| *from < record.timestamp).is_some() {
                // What would have ended it may have been in the pause.
                unpaired.open += begun.len() as u64;
                for (keys, start) in begun.drain() {
                    room.give_back(keys.len() + start.by.len());
                }
            }
            // The end first, so that an event can end one time and begin the next.
            if self.to.matches(event, record.data, origin) {
                write(&self.to_keys, &mut text);
                if let Some(start) = begun.remove(text.as_slice()) {
                    room.give_back(text.len() + start.by.len());
                    self.write_by(Side::Second, events, event, record, origin, &mut by);
                    let all = self.in_order(&start.by, &by);
                    sample(&all, record.timestamp.saturating_sub(start.at));
                } else {
                    unpaired.unmatched += 1;
                }
            }
            if self.from.matches(event, record.data, origin) {
                write(&self.from_keys, &mut text);
                self.write_by(Side::First, events, event, record, origin, &mut by);
                if let Some(before) = begun.remove(text.as_slice()) {
                    room.give_back(text.len() + before.by.len());
                    unpaired.restarted += 1;
                }
                if room.take(text.len() + by.len()) {
                    let start = Begun { at: record.timestamp, by: by.as_slice().into() };
                    begun.insert(text.as_slice().into(), start);
                } else {
                    unpaired.overflow += 1;
                }
            }
        })?;
        unpaired.open += begun.len() as u64;
        Ok((unpaired, damaged))
    }

    /// The values of both events in the order of the fields.
    fn in_order(&self, first: &[u8], second: &[u8]) -> Vec<u8> {
        let is_end = |byte: &u8| *byte == SEPARATOR;
        let (mut first, mut second) = (first.split(is_end), second.split(is_end));
        let mut all = Vec::new();
        for (index, (side, _)) in self.by.iter().enumerate() {
            if index > 0 {
                all.push(SEPARATOR);
            }
            let value = if *side == Side::First { first.next() } else { second.next() };
            all.extend_from_slice(value.unwrap_or_default());
        }
        all
    }
}

/// The keys that most likely pair these events, as `--key` takes them, and what they stand for.
///
/// # Errors
/// No such event.
pub fn likely_keys(
    events: &EventTable,
    from: &Filter,
    to: &Filter,
) -> Result<(Vec<String>, &'static str), AnalysisError> {
    let first = |filter: &Filter| -> Result<_, AnalysisError> {
        let ids = filter.resolve(events, ResolveOptions::default())?;
        Ok(ids.events().next().and_then(|id| events.get(id)))
    };
    let (Some(from), Some(to)) = (first(from)?, first(to)?) else {
        return Ok((vec!["common_pid".to_owned()], "the same thread"));
    };
    let has = |format: &Format, name: &str| format.fields.iter().any(|field| field.name == name);
    let (a, b) = (from.format(), to.format());
    let is = |end: &str, begin: &str| b.name.ends_with(end) && a.name.ends_with(begin);
    // A switch from a thread ends with the one to it, a wakeup with the switch to the thread.
    for (one, other) in [("prev_pid", "next_pid"), ("pid", "next_pid"), ("next_pid", "prev_pid")] {
        if has(a, one) && has(b, other) && !(has(a, other) && has(b, one) && one == "next_pid") {
            return Ok((vec![format!("{one}={other}")], "the same thread"));
        }
    }
    // Interrupts are served by one CPU, and the idle thread is one number on all of them.
    if a.name.contains("irq") && (is("_exit", "_entry") || is("_exit", "_raise")) {
        return Ok((vec!["CPU".to_owned()], "the same CPU"));
    }
    if is("_exit", "_entry") || is("exit", "enter") || b.name.contains("sys_exit") {
        return Ok((vec!["common_pid".to_owned()], "the same thread"));
    }
    let is_identity = |name: &str| {
        [
            "dev", "sector", "pid", "work", "timer", "hrtimer", "skbaddr", "skaddr", "ptr", "page", "pfn",
            "func",
        ]
        .contains(&name)
    };
    let shared: Vec<_> = a
        .fields
        .iter()
        .map(|field| &field.name)
        .filter(|name| is_identity(name) && has(b, name))
        .cloned()
        .collect();
    if shared.is_empty() {
        Ok((vec!["common_pid".to_owned()], "the same thread"))
    } else {
        Ok((shared, "the same values"))
    }
}
