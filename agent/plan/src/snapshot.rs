//! The event that asks for snapshots.

use std::{borrow::Cow, time::Duration};

use super::{EventPlan, PlanError, error::InChannel, rules::selected_by};
use capture::SnapshotRule;
use kernel::events::{Catalogue, Rule};
use spec::{ChannelSpec, Field, RuleSpec, What};
use spec::{EventName, EventSelector};

/// The rules of a channel, with one more for the event that asks for snapshots unless another one selects it.
///
/// # Errors
/// It is no event, or several, or has a filter of its own and is recorded in any case.
pub(super) fn with_its_event<'a>(
    at: InChannel,
    channel: &'a ChannelSpec,
    catalogue: &Catalogue,
) -> Result<Cow<'a, [RuleSpec]>, PlanError> {
    let rules = Cow::Borrowed(&channel.rules[..]);
    let Some(snapshot) = &channel.snapshot else { return Ok(rules) };
    let wrong = |why: String| at.field("snapshot", &why[..]);
    let select = |rules: &[Rule]| catalogue.select(rules, true).map_err(|error| at.field("snapshot", error));
    let asking = select(&[Rule::include(snapshot.when.clone())])?;
    let name = match &asking.events[..] {
        // It may be a probe's.
        [] => return Ok(rules),
        [event] => &event.name,
        several => {
            let (count, when) = (several.len(), &snapshot.when);
            return Err(wrong(format!("{when} names {count} events; one asks for snapshots: SYSTEM:EVENT")));
        }
    };
    let others: Vec<Rule> = channel.rules.iter().filter_map(selected_by).collect();
    let is_recorded = select(&others)?.events.iter().any(|event| event.name == *name);
    if !is_recorded {
        let selector: EventSelector =
            name.to_string().parse().map_err(|error| at.field("snapshot", error))?;
        let rule = RuleSpec { filter: snapshot.filter.clone(), ..RuleSpec::new(What::Events(selector)) };
        let mut rules = rules.into_owned();
        rules.push(rule);
        return Ok(Cow::Owned(rules));
    }
    match &snapshot.filter {
        None => Ok(rules),
        Some(_) => Err(wrong(format!(
            "{name} is recorded by another rule as well, and an event has one filter: name an event that is not \
             recorded otherwise, or leave the filter away, so that each {name} asks for a snapshot"
        ))),
    }
}

/// An error about the rule that was added, as one about what it was added for.
pub(super) fn of_its_rule(channel: &ChannelSpec, error: PlanError) -> PlanError {
    match error.at {
        Field::Rule { channel: at, rule, .. } | Field::OfRule { channel: at, rule, .. }
            if rule == channel.rules.len() =>
        {
            PlanError { at: Field::OfChannel { channel: at, name: "snapshot" }, ..error }
        }
        _ => error,
    }
}

/// What the capture does about snapshots, once it is known what is recorded.
///
/// # Errors
/// The event is not among it.
pub(super) fn rule(
    at: InChannel,
    channel: &ChannelSpec,
    plan: &EventPlan,
) -> Result<Option<SnapshotRule>, PlanError> {
    let Some(snapshot) = &channel.snapshot else { return Ok(None) };
    let is_it = |name: &str| {
        name.split_once(':').is_some_and(|(system, name)| snapshot.when.names(&EventName::new(system, name)))
    };
    let Some(slot) = plan.events.iter().position(|event| is_it(&event.name)) else {
        let why = format!(
            "no event {} is recorded: there is none, or it is excluded; name one as SYSTEM:EVENT",
            snapshot.when
        );
        return Err(at.field("snapshot", &why[..]));
    };
    if snapshot.filter.is_some() && plan.probes.iter().any(|probe| probe.first_slot as usize <= slot) {
        return Err(at.field("snapshot", "the filter of a probe's event is part of the probe's rule"));
    }
    let delay = Duration::from_nanos(snapshot.delay_ns);
    Ok(Some(SnapshotRule { slot, delay, limit: snapshot.limit }))
}
