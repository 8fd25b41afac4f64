//! Which buffers, CPUs and events of a file are kept: flags of several commands.

use std::collections::BTreeSet;

use super::CliError;
use kernel::events::SelectError;
use spec::{EventName, EventSelector, SelectorError};
use tracedat::reader::{Reader, Source};
use tracedat::rewrite::Selection;

/// What of a file is kept.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Selection")]
pub struct Choice {
    /// Keep only the buffer of this name; repeatable
    #[arg(short = 'B', long = "buffer", value_name = "NAME")]
    pub buffers: Vec<String>,

    /// Keep the top-level buffer too, in addition to those of -B
    #[arg(short = 't', long = "top")]
    pub top: bool,

    /// Keep only these CPUs: 0,2-5
    #[arg(short = 'C', long = "cpu", value_name = "LIST", value_parser = parse_numbers)]
    pub cpus: Option<BTreeSet<u32>>,

    /// Keep only these events: sched, sched:*, sched:sched_switch; repeatable
    #[arg(long = "event", value_name = "EVENT")]
    pub only_events: Vec<String>,

    /// Drop these events; repeatable
    #[arg(long = "without", value_name = "EVENT")]
    pub without_events: Vec<String>,
}

/// Numbers as in `0,2-5`.
pub(super) fn parse_numbers(text: &str) -> Result<BTreeSet<u32>, String> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',') {
        let number = |text: &str| {
            let number = text.trim().parse::<u32>().map_err(|_| format!("{text:?} is not a number"))?;
            if number < 1 << 16 { Ok(number) } else { Err(format!("{number} is too large")) }
        };
        match part.split_once('-') {
            None => {
                numbers.insert(number(part)?);
            }
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return Err(format!("{part} is a reversed range"));
                }
                numbers.extend(first..=last);
            }
        }
    }
    Ok(numbers)
}

impl Choice {
    /// The selection of a file's contents.
    pub(super) fn selection<S: Source>(&self, reader: &Reader<S>) -> Result<Selection, CliError> {
        let mut selection = Selection { cpus: self.cpus.clone(), ..Selection::default() };
        if self.top || !self.buffers.is_empty() {
            let mut names: BTreeSet<_> = self.buffers.iter().cloned().collect();
            for name in &names {
                if !reader.buffers().iter().any(|buffer| buffer.name == *name) {
                    return Err(CliError::Usage(no_buffer(name, reader)));
                }
            }
            if self.top {
                names.insert(String::new());
            }
            selection.buffers = Some(names);
        }
        let events: Vec<_> = reader.metadata().events().collect();
        let matching = |texts: &[String]| -> Result<BTreeSet<u16>, CliError> {
            let mut ids = BTreeSet::new();
            for text in texts {
                let selector: EventSelector = text.parse()?;
                let before = ids.len();
                ids.extend(events.iter().filter_map(|event| {
                    let name = EventName::parse(&format!("{}:{}", event.system, event.name))?;
                    selector.matches(&name).then_some(event.id)
                }));
                if ids.len() == before && !events.is_empty() {
                    return Err(SelectError::Malformed(SelectorError {
                        selector: text.clone(),
                        why: "the file describes no such event; tracer-agent info lists those that it has",
                    })
                    .into());
                }
            }
            Ok(ids)
        };
        if !self.only_events.is_empty() {
            let keep = matching(&self.only_events)?;
            selection.without_events = (1..=u16::MAX).filter(|id| !keep.contains(id)).collect();
        }
        selection.without_events.extend(matching(&self.without_events)?);
        Ok(selection)
    }
}

fn no_buffer<S: Source>(name: &str, reader: &Reader<S>) -> String {
    let names: BTreeSet<_> = reader.buffers().iter().map(|buffer| buffer.name.as_str()).collect();
    let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        format!("the file has no buffer {name:?}; it has the top buffer only, which -t keeps")
    } else {
        format!(
            "the file has no buffer {name:?}; it has {}, and the top buffer, which -t keeps",
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers() {
        assert_eq!(parse_numbers("0,2-4").unwrap(), BTreeSet::from([0, 2, 3, 4]));
        for wrong in ["", "a", "1-", "3-1", "70000", "1,,2"] {
            assert!(parse_numbers(wrong).is_err(), "{wrong}");
        }
    }
}
