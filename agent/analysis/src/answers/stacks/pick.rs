//! Which events are counted, and what each weighs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::str::FromStr;

use crate::AnalysisError;
use crate::answers::{AnyRecord, Tid};
use crate::key::{Key, ResolvedKey};
use flame::Unit;
use ftrace_event::Cmdlines;
use ftrace_event::filter::{Dialect, Filter, Origin, ResolveOptions, ResolvedFilter};
use report::TraceFile;
use tracedat::reader::Source;

/// What an event weighs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One.
    Count,
    /// The time from it to the next such event of its thread, in nanoseconds.
    Time,
    /// What this field has, if that is a number above 0.
    Field(String),
}

impl FromStr for Weight {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "count" => Self::Count,
            "time" => Self::Time,
            field => Self::Field(field.to_owned()),
        })
    }
}

/// Events of a file, and what each of them weighs.
#[derive(Clone, Debug)]
pub struct Pick {
    filter: ResolvedFilter,
    /// Where the thread's id is, of the events that are counted.
    threads: HashMap<u16, Option<usize>>,
    weight: Weighed,
    unit: Unit,
}

/// What an event weighs, in the events of a file.
#[derive(Clone, Debug)]
enum Weighed {
    Count,
    Time,
    Field(ResolvedKey),
}

impl Pick {
    /// The events that a filter names, as `report -F` takes it: `sched:sched_switch: prev_state == 2`.
    ///
    /// # Errors
    /// A filter that is not understood; no such event or field; nothing but stacks, which have none.
    pub fn of<S: Source>(file: &TraceFile<S>, events: &str, weight: &Weight) -> Result<Self, AnalysisError> {
        let filter = Filter::parse(events, Dialect::TraceCmd)?;
        let filter = filter.resolve(file.events(), ResolveOptions::default())?;
        let printers = filter.events().filter_map(|id| file.events().get(id));
        let threads: HashMap<_, _> = printers
            .filter(|printer| !printer.is_stack())
            .map(|printer| (printer.format().id, printer.field_index("common_pid")))
            .collect();
        if threads.is_empty() {
            return Err(AnalysisError::Field(format!(
                "`{events}` names nothing but stacks; name the events that they belong to"
            )));
        }
        let (weight, unit) = match weight {
            Weight::Count => (Weighed::Count, Unit::Events),
            Weight::Time => (Weighed::Time, Unit::Nanoseconds),
            Weight::Field(field) => {
                let key = Key::parse(field)?;
                (
                    Weighed::Field(ResolvedKey::new(&key, threads.keys().copied(), file)?),
                    Unit::Field(key.field),
                )
            }
        };
        Ok(Self { filter, threads, weight, unit })
    }

    /// What weights are.
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Whether weights are times.
    pub(in crate::answers) fn is_timed(&self) -> bool {
        matches!(self.weight, Weighed::Time)
    }

    /// Whether records of an event may be counted.
    pub(in crate::answers) fn has(&self, id: u16) -> bool {
        self.threads.contains_key(&id)
    }

    /// The thread of a record that is counted, if the record says.
    pub(in crate::answers) fn thread_of(&self, of: &AnyRecord<'_>) -> Option<Tid> {
        let nobody = Cmdlines::new();
        let tasks = of.names.threads.unwrap_or(&nobody);
        let (cpu, timestamp) = (of.record.cpu, of.record.timestamp);
        let origin = Origin { cpu, timestamp, tasks, symbols: of.names.symbols };
        if !self.filter.matches(of.id, of.record.data, &origin) {
            return None;
        }
        let index = (*self.threads.get(&of.id)?)?;
        let value = of.events.get(of.id)?.value(index, of.record.data)?.ok()?;
        value.address().map(|tid| tid as Tid)
    }

    /// What a record weighs. `None` if that is not in it.
    pub(in crate::answers) fn weigh(&self, of: &AnyRecord<'_>) -> Option<u64> {
        match &self.weight {
            Weighed::Count => Some(1),
            Weighed::Time => None,
            Weighed::Field(key) => {
                let number = key.number(of.events, of.id, of.record)?;
                u64::try_from(number).ok().filter(|number| *number != 0)
            }
        }
    }
}
