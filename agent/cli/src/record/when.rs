//! An event, with a filter or without, at which something happens.

use std::str::FromStr;

use spec::WhenSpec;
use spec::{EventSelector, SelectorError};

/// The value of such an option: `sched_switch`, `sched:sched_switch: prev_pid == 1`.
#[derive(Clone, Debug)]
pub struct When {
    /// The event.
    pub(super) event: EventSelector,
    /// Which of its records.
    pub(super) filter: Option<String>,
}

impl When {
    /// As part of a specification.
    pub(super) fn spec(&self) -> WhenSpec {
        WhenSpec { when: self.event.clone(), filter: self.filter.clone() }
    }
}

impl FromStr for When {
    type Err = String;

    /// The event ends where a colon is not followed by a name, or at the second colon.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |c: char| c.is_alphanumeric() || "_-*?[]!.".contains(c);
        let name_at = |at: usize| text[at..].find(|c| !is_name(c)).map_or(text.len(), |len| at + len);
        let first = name_at(0);
        let end = match text[first..].strip_prefix(':') {
            Some(_) if name_at(first + 1) > first + 1 => name_at(first + 1),
            _ => first,
        };
        let (event, filter) = text.split_at(end);
        let filter = match filter.trim() {
            "" => None,
            rest => match rest.strip_prefix(':').map(str::trim) {
                None | Some("") => return Err("write EVENT, or EVENT: FILTER".to_owned()),
                Some(filter) => Some(filter.to_owned()),
            },
        };
        let event = event.parse().map_err(|error: SelectorError| error.to_string())?;
        Ok(Self { event, filter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_where_its_filter_begins() {
        for (text, event, filter) in [
            ("sched_switch", "sched_switch", None),
            ("sched:sched_switch", "sched:sched_switch", None),
            ("sched_switch: prev_pid == 1", "sched_switch", Some("prev_pid == 1")),
            ("sched:sched_switch: prev_comm ~ \"a:b\"", "sched:sched_switch", Some("prev_comm ~ \"a:b\"")),
            ("sched:sched_switch:prev_pid == 1", "sched:sched_switch", Some("prev_pid == 1")),
        ] {
            let when: When = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((when.event.as_str(), when.filter.as_deref()), (event, filter), "{text}");
        }
        for text in ["", ": x", "sched_switch:", "sched_switch prev_pid == 1", "a:b:"] {
            assert!(text.parse::<When>().is_err(), "{text:?}");
        }
    }
}
