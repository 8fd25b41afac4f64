//! Whether rules can be recorded, before there is a recording of them.

use std::sync::Arc;

use super::{Before, Kernel, PlanError, UnusableFormat, Why, error::InChannel, rules::Groups};
use compile::context::Counters;
use compile::filter::{Facts, Program, constant};
use compile::slot::plan_slot;
use elf::Processes;
use ftrace_event::Format;
use ftrace_event::filter::{Filter, ResolveOptions, ResolvedFilter};
use ftrace_event::record::Machine;
use ftrace_event::symbols::NoNames;
use ftrace_event::table::EventTable;
use kernel::btf::{Btf, BtfError};
use kernel::cpus::Cpus;
use kernel::tracefs::{EventFormat, Tracefs};
use spec::{ChannelSpec, EventName, FileSpec, FilterLanguage, RecordingSpec, RuleSpec, What};

/// The rules are of no channel yet.
const AT: InChannel = InChannel(0);

/// Checks that rules, all with one filter, can be recorded: what they name has to be there, and the filter
/// has to fit. Of optional rules for events of the kernel, one suffices. Files of programs that rules name
/// are read, which may take as long as their file systems let it.
///
/// # Errors
/// A recording with these rules would be refused for the same reason; or no event of optional rules can
/// satisfy the filter.
pub fn check_rules(rules: &[RuleSpec]) -> Result<(), PlanError> {
    let (mut events, mut others) = (Vec::new(), Vec::new());
    for rule in rules {
        match event_of(&rule.what) {
            Some(name) => events.push((name, rule)),
            None => others.push(rule.clone()),
        }
    }
    let tracefs = Tracefs::open().map_err(PlanError::whole)?;
    check_events(&tracefs, &events)?;
    if others.is_empty() { Ok(()) } else { check_others(&tracefs, others) }
}

/// The event of the kernel that a rule names, if its records are the kernel's own.
fn event_of(what: &What) -> Option<EventName> {
    let What::Events(selector) = what else { return None };
    let (Some(system), name) = selector.parts() else { return None };
    let is_pattern = [system, name].iter().any(|part| part.contains(['*', '?', '[', '\\']));
    Some(EventName::new(system, name)).filter(|name| !is_pattern && !name.is_ftrace_internal())
}

fn check_events(tracefs: &Tracefs, events: &[(EventName, &RuleSpec)]) -> Result<(), PlanError> {
    let Some((_, first)) = events.first() else { return Ok(()) };
    let filter = first.filter.as_ref().map(|text| (text.as_str(), first.language));
    if first.optional && filter.is_none() {
        return Ok(());
    }
    let formats = tracefs.event_formats(events.iter().map(|(name, _)| name)).map_err(PlanError::whole)?;
    let filter = filter.map(|filter| Fitted::new(&formats, filter)).transpose()?;
    let mut refused = None;
    for format in &formats {
        match (check_event(format, filter.as_ref()), first.optional) {
            (Ok(()), true) => return Ok(()),
            (Ok(()), false) => {}
            (Err(reason), is_optional) => {
                let why = Why::Unusable { name: format.name.clone(), reason };
                refused = Some(AT.rule(0, first, why));
                if !is_optional {
                    break;
                }
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// A filter that fits one at least of some events.
struct Fitted {
    filter: Filter,
    resolved: ResolvedFilter,
    facts: Facts,
}

impl Fitted {
    fn new(formats: &[EventFormat], filter: (&str, FilterLanguage)) -> Result<Self, PlanError> {
        let filter = Groups::default().filter(AT, 0, filter)?;
        let mut table = EventTable::new(Machine::default());
        for format in formats {
            // What cannot be read is reported with the event.
            let _ = table.add(format.name.system(), &format.text, &NoNames);
        }
        let options = ResolveOptions { live: true, ..ResolveOptions::default() };
        let resolved = filter.resolve(&table, options).map_err(|error| AT.of_rule(0, "filter", error))?;
        let facts = Facts::new(FileSpec::default().clock, Btf::of_kernel().as_ref().ok());
        Ok(Self { filter, resolved, facts })
    }
}

fn check_event(event: &EventFormat, filter: Option<&Fitted>) -> Result<(), UnusableFormat> {
    let format = Format::parse(&event.text)?;
    let slot = plan_slot(event.name.system(), event.name.name(), &format)?;
    let Some(Fitted { filter, resolved, facts }) = filter else { return Ok(()) };
    match resolved.test(format.id) {
        Some(test) if constant(test) == Some(false) => {
            Err(UnusableFormat::NeverHolds(filter.text().to_owned()))
        }
        Some(test) if constant(test).is_none() => {
            Program::compile(test, format.id, &facts.of_event(&slot))?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks probes, and what else needs more than a format.
fn check_others(tracefs: &Tracefs, rules: Vec<RuleSpec>) -> Result<(), PlanError> {
    let channel = ChannelSpec { rules, ..ChannelSpec::default() };
    RecordingSpec { channels: vec![channel.clone()], ..RecordingSpec::default() }.check()?;
    let cpus = Cpus::read().map_err(|error| PlanError::whole(Why::Unsupported(error.to_string())))?;
    let possible_cpus = cpus.possible.highest().map_or(1, |highest| highest + 1);
    let counters = Arc::new(Counters::new(cpus.online.iter().collect(), possible_cpus));
    let btf: Result<Btf, BtfError> = Btf::of_kernel();
    let kernel = Kernel::look_at(tracefs, btf.as_ref(), &counters, Processes::All)?;
    kernel.events_of(AT, Before::default(), &channel, &FileSpec::default(), &mut Vec::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use compile::filter::Uncompiled;
    use ftrace_event::filter::FilterErrorKind;

    fn format(name: &str, id: u16, fields: &[(&str, u32, u32)]) -> EventFormat {
        let mut text = format!(
            "name: {name}\nID: {id}\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        );
        for (declaration, offset, size) in fields {
            text += &format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:1;\n");
        }
        text += "\nprint fmt: \"\"\n";
        EventFormat { name: EventName::new("made", name), id, text }
    }

    fn checked(formats: &[EventFormat], filter: &str) -> Vec<Result<(), UnusableFormat>> {
        let filter = Fitted::new(formats, (filter, FilterLanguage::Lttng)).unwrap();
        formats.iter().map(|format| check_event(format, Some(&filter))).collect()
    }

    #[test]
    fn a_filter_fits_one_of_the_events() {
        let one = format("one", 1, &[("int number", 8, 4), ("char text[16]", 12, 16)]);
        let other = format("other", 2, &[("int elsewhere", 8, 4)]);
        let both = [one, other];
        let kind = |filter: &str| match *Fitted::new(&both, (filter, FilterLanguage::Lttng)).err()?.why {
            Why::Filter(error) => Some(*error.kind),
            _ => None,
        };
        for right in ["number > 3", "text == \"a*\"", "elsewhere == 1 || number == 2", "$ctx.tid == 7"] {
            assert_eq!(kind(right), None, "{right}");
            assert!(checked(&both, right).iter().any(Result::is_ok), "{right}");
        }
        assert!(matches!(kind("numbre > 3"), Some(FilterErrorKind::NoField { .. })));
        assert!(matches!(kind("number == \"a\""), Some(FilterErrorKind::Mismatch(_))));
        assert!(matches!(kind("number >"), Some(FilterErrorKind::Expected { .. })));
        // Each field is one of some event, and no event has both.
        let never = checked(&both, "number == 1 && elsewhere == 1");
        assert!(never.iter().all(|result| matches!(result, Err(UnusableFormat::NeverHolds(_)))), "{never:?}");
    }

    #[test]
    fn what_the_kernel_cannot_evaluate_is_refused() {
        let one = [format("one", 1, &[("int number", 8, 4)])];
        let refused = checked(&one, "number == 1 && common_flags == 1").remove(0);
        assert!(matches!(refused, Err(UnusableFormat::Filter(Uncompiled::Common(_)))), "{refused:?}");
    }

    #[test]
    fn only_names_of_events_are_checked_by_their_formats() {
        let what = |text: &str| event_of(&What::Events(text.parse().unwrap()));
        assert_eq!(what("sched:sched_switch"), Some(EventName::new("sched", "sched_switch")));
        for other in ["sched:*", "sched_switch", "ftrace:print", "all"] {
            assert_eq!(what(other), None, "{other}");
        }
    }
}
