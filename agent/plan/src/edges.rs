//! The events at which a recording begins and ends.

use super::{Kernel, PlanError, Why};
use capture::CaptureEvent;
use capture::watch::WatchRule;
use compile::fast::Lane;
use kernel::events::Rule;
use spec::EventName;
use spec::TraceClock;
use spec::{Field, RecordingSpec, RuleSpec, WatchSpec, What, WhenSpec};

/// What tells that a recording is to begin, or has to end; where it is not there, no event does.
/// [Watched](capture::watch) by whoever runs the recording, with
/// [`Session::watch_options`](capture::Session::watch_options), or of maps alone with
/// [`Counting::watch_options`](capture::Counting::watch_options).
#[derive(Clone, Debug, Default)]
pub struct Edges {
    /// Its first match is where the recording begins.
    pub start: Option<WatchRule>,
    /// Its first match after that is where the recording ends.
    pub stop: Option<WatchRule>,
}

/// Plans what the limits of a recording say of events; `taken` are those that are recorded or counted.
pub(super) fn plan(
    kernel: &Kernel<'_>,
    spec: &RecordingSpec,
    taken: &[&CaptureEvent],
) -> Result<Edges, PlanError> {
    let clock = spec.file.clock;
    let of = |name, when: &Option<WhenSpec>| {
        when.as_ref().map(|when| rule(kernel, clock, (name, when), taken)).transpose()
    };
    Ok(Edges { start: of("start_on", &spec.limits.start_on)?, stop: of("stop_on", &spec.limits.stop_on)? })
}

fn rule(
    kernel: &Kernel<'_>,
    clock: TraceClock,
    (name, when): (&'static str, &WhenSpec),
    taken: &[&CaptureEvent],
) -> Result<WatchRule, PlanError> {
    let at = |why: Why| PlanError { at: Field::Limits(name), why: Box::new(why) };
    let what = what(kernel, when, taken).map_err(at)?;
    let spec = WatchSpec {
        rules: vec![RuleSpec { filter: when.filter.clone(), ..RuleSpec::new(what) }],
        captures: Vec::new(),
    };
    // What is wrong is wrong with this event, whatever rule was made of it.
    let planned = super::watch::watch_rule_on(kernel, clock, &spec);
    let (rule, _) = planned.map_err(|error| PlanError { at: Field::Limits(name), ..error })?;
    let count = rule.events().len();
    if count == 1 { Ok(rule) } else { Err(at(several(when, count))) }
}

fn several(when: &WhenSpec, count: usize) -> Why {
    Why::Wrong(format!("{} names {count} events; it has to be one: SYSTEM:EVENT", when.when))
}

/// The one event of the kernel that is meant, or else the probe.
fn what(kernel: &Kernel<'_>, when: &WhenSpec, taken: &[&CaptureEvent]) -> Result<What, Why> {
    let select = |or_none| kernel.catalogue.select(&[Rule::include(when.when.clone())], or_none);
    let found = select(true)?;
    match &found.events[..] {
        [event] => return Ok(What::Events(event.name.to_string().parse()?)),
        [] => {}
        several_events => return Err(several(when, several_events.len())),
    }
    let is_it = |name: &str| {
        name.split_once(':').is_some_and(|(system, name)| when.when.names(&EventName::new(system, name)))
    };
    let mut probes = taken.iter().filter(|event| matches!(event.lane, Lane::Probe) && is_it(&event.name));
    match probes.find_map(|event| event.rule.clone()) {
        Some(what) => Ok(what),
        // The error has those that are near.
        None => match select(false) {
            Err(error) => Err(error.into()),
            Ok(_) => Err(Why::Wrong(format!("there is no event {}", when.when))),
        },
    }
}
