//! From a selection of events to what a capture needs of them.

use std::collections::BTreeMap;

use super::CaptureEvent;
use crate::{
    event::{Format, FormatError},
    kernel::{
        events::{EventName, Selection},
        tracefs::{EventFormat, Tracefs, TracefsError},
    },
    probe::tracepoint::{SlotError, plan_slot},
};

/// The events to record and the formats to store.
#[derive(Debug, Default)]
pub struct EventPlan {
    /// The events.
    pub events: Vec<CaptureEvent>,
    /// The formats of all events of the recorded systems, by system.
    pub systems: Vec<(String, Vec<String>)>,
    /// Events that cannot be recorded because of their format.
    pub unusable: Vec<(EventName, UnusableFormat)>,
}

/// Why an event's format keeps it from being recorded.
#[derive(Debug, thiserror::Error)]
pub enum UnusableFormat {
    /// The text is not a format.
    #[error("its format cannot be read: {0}")]
    Format(#[from] FormatError),
    /// The record is of a shape that the generic lane does not copy.
    #[error(transparent)]
    Slot(#[from] SlotError),
}

impl EventPlan {
    /// Reads the formats of the selected events and of everything else in their systems, or in every system if
    /// `all_formats`. `required` tells whether an event was asked for by its name.
    pub fn make(
        tracefs: &Tracefs,
        selection: &Selection,
        all_formats: bool,
        required: impl Fn(&EventName) -> bool,
    ) -> Result<Self, TracefsError> {
        let mut systems: BTreeMap<&str, Vec<EventName>> = BTreeMap::new();
        for event in &selection.events {
            systems.entry(event.name.system()).or_default();
        }
        let all = if all_formats { tracefs.event_names()? } else { Vec::new() };
        for name in all.iter().filter(|name| !name.is_ftrace_internal()) {
            systems.entry(name.system()).or_default().push(name.clone());
        }
        let mut plan = Self::default();
        for (system, names) in systems {
            let names = if names.is_empty() { tracefs.events_of_system(system)? } else { names };
            let formats = tracefs.event_formats(&names)?;
            for format in &formats {
                let selected = selection.events.binary_search_by(|event| event.name.cmp(&format.name));
                if selected.is_ok() {
                    plan.add(format, required(&format.name));
                }
            }
            plan.systems.push((system.to_owned(), formats.into_iter().map(|format| format.text).collect()));
        }
        Ok(plan)
    }

    fn add(&mut self, format: &EventFormat, required: bool) {
        let name = &format.name;
        let planned = Format::parse(&format.text).map_err(UnusableFormat::from).and_then(|parsed| {
            Ok((plan_slot(name.system(), name.name(), &parsed)?, parsed.prints_symbols()))
        });
        match planned {
            Ok((slot, prints_symbols)) => {
                self.events.push(CaptureEvent { name: name.to_string(), slot, prints_symbols, required });
            }
            Err(reason) => self.unusable.push((name.clone(), reason)),
        }
    }
}
