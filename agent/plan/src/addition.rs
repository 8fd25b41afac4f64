//! More events for a recording that goes on.

use super::{Before, Kernel, PlanError, Why, error::InChannel, events::Recorded, formats::Formats, scope};
use capture::{Addition, CaptureOptions, ChannelOptions, Session};
use kernel::btf::Btf;
use kernel::tracefs::Tracefs;
use spec::{ChannelSpec, FileSpec, RuleSpec};

/// Plans what rules select, for the channel of a recording that has this name. An event that is recorded
/// there already is left alone if a pattern covers it. Gives what the user should know, too: events that
/// are left out. Nothing is left to add where all rules are optional and nothing of them can be recorded.
///
/// # Errors
/// There is no such channel; a rule is wrong on this kernel, names an event that is recorded already, or
/// gives an event other fields than the file describes; or it is a function tracer, which cannot be
/// added.
pub fn addition(
    session: &Session,
    channel: &str,
    rules: &[RuleSpec],
) -> Result<(Addition, Vec<String>), PlanError> {
    let running = session.options();
    let (number, of) = (running.channels.iter().enumerate().find(|(_, of)| of.name == channel))
        .ok_or_else(|| PlanError::whole("the recording has no such channel"))?;
    let at = InChannel(number);
    if let Some((index, rule)) = rules.iter().enumerate().find(|(_, rule)| rule.what.is_tracer()) {
        return Err(at.rule(index, rule, "a function tracer cannot be added to a recording that goes on"));
    }
    let spec = ChannelSpec {
        name: of.name.clone(),
        rules: rules.to_vec(),
        strings: of.strings,
        lane: of.lane,
        contexts: of.contexts.clone(),
        ..ChannelSpec::default()
    };
    let file = FileSpec { clock: running.clock, ..FileSpec::default() };
    let tracefs = Tracefs::open().map_err(PlanError::whole)?;
    let btf = Btf::of_kernel();
    let processes = scope::processes(running.tasks.as_ref(), false, running.scope.as_ref());
    let kernel = Kernel::look_at(&tracefs, btf.as_ref(), &running.counters, processes)?;
    let mut formats = described(running);
    let before = Before { earlier: formats.earlier(), recorded: recorded_into(of), running: Some(of) };
    let mut notes = Vec::new();
    let mut plan = kernel.events_of(at, before, &spec, &file, &mut notes)?;
    formats.add(at, &spec, &mut plan)?;
    if plan.events.is_empty() && !rules.iter().all(|rule| rule.optional) {
        let why = "all events that the rules select are recorded already".to_owned();
        return Err(at.field("rules", Why::Wrong(why)));
    }
    let addition = Addition {
        changes: session.changes(),
        channel: number,
        events: plan.events,
        probes: plan.probes,
        hooks: plan.hooks,
        systems: formats.into_systems(),
    };
    Ok((addition, notes))
}

/// The events that are recorded into a channel now.
fn recorded_into(channel: &ChannelOptions) -> Recorded {
    let mut recorded = Recorded::new();
    for event in channel.events.iter().filter(|event| event.active.until.is_none()) {
        recorded.entry(event.name.clone()).or_default().push(event.rule.clone());
    }
    recorded
}

/// What the file describes so far, with the events whose records are in the archive that is recorded to.
fn described(running: &CaptureOptions) -> Formats {
    let events = running.channels.iter().flat_map(|channel| {
        let events = channel.events.iter().filter(|event| !event.active.is_over);
        events.map(|event| (event.name.as_str(), channel.name.as_str()))
    });
    Formats::of(&running.manifest.systems, &events.collect())
}
