//! What is watched, on the running kernel.

use std::sync::Arc;

use super::{Before, Kernel, PlanError, Why, buffers, error::InChannel};
use attach::KernelLayout;
use capture::watch::{Decoder, Lacking, Threads, WatchOptions, WatchRule};
use compile::context::Counters;
use elf::Processes;
use ftrace_event::{Format, name_and_id};
use kernel::btf::Btf;
use kernel::cpus::Cpus;
use kernel::tracefs::Tracefs;
use spec::Context;
use spec::StringLimit;
use spec::TraceClock;
use spec::{Capture, CaptureOf, ChannelSpec, FileSpec, RecordingSpec, RuleSpec, WatchSpec};
use stdx::input::nearest;

/// There is one rule, and no channel of a user's.
const AT: InChannel = InChannel(0);

/// How events of all threads are watched on all CPUs of this machine.
///
/// # Errors
/// The kernel does not tell its CPUs, or has no type information.
pub fn watch_options(clock: TraceClock) -> Result<WatchOptions, PlanError> {
    let unsupported = |why: String| PlanError::whole(Why::Unsupported(why));
    let cpus = Cpus::read().map_err(|error| unsupported(error.to_string()))?;
    let btf = Btf::of_kernel().map_err(|error| unsupported(error.to_string()))?;
    let chosen = buffers::choose_cpus(None, &cpus, &mut Vec::new())?;
    let possible_cpus = cpus.possible.highest().map_or(1, |highest| highest + 1);
    Ok(WatchOptions {
        clock,
        ring_pages: WatchOptions::RING_PAGES,
        events: WatchOptions::EVENTS,
        exclude_self: true,
        cpus: chosen.iter().collect(),
        possible_cpus,
        counters: Arc::new(Counters::new(cpus.online.iter().collect(), possible_cpus)),
        layout: KernelLayout::from_btf(&btf),
        threads: Threads::default(),
    })
}

/// Plans what a rule watches. Gives what the user should know, too: events that are left out.
///
/// # Errors
/// The rule is wrong on this kernel, is about a function tracer, or captures what none of its events has.
pub fn watch_rule(options: &WatchOptions, spec: &WatchSpec) -> Result<Watched, PlanError> {
    let tracefs = Tracefs::open().map_err(PlanError::whole)?;
    let btf = Btf::of_kernel();
    let kernel = Kernel::look_at(&tracefs, btf.as_ref(), &options.counters, Processes::All)?;
    watch_rule_on(&kernel, options.clock, spec)
}

/// A rule that is planned, and what the user should know.
pub type Watched = (WatchRule, Vec<String>);

/// Plans what each part of a rule watches, which are watched one by one. What is captured is in an event of
/// one part at least.
///
/// # Errors
/// This kernel does not tell its events, or no event has what is captured. What is wrong with a part is its
/// result.
pub fn watch_parts(
    options: &WatchOptions,
    parts: Vec<Vec<RuleSpec>>,
    captures: &[Capture],
) -> Result<Vec<Result<Watched, PlanError>>, PlanError> {
    let tracefs = Tracefs::open().map_err(PlanError::whole)?;
    let btf = Btf::of_kernel();
    let kernel = Kernel::look_at(&tracefs, btf.as_ref(), &options.counters, Processes::All)?;
    let (mut planned, mut lacking) = (Vec::with_capacity(parts.len()), Vec::new());
    for rules in parts {
        let spec = WatchSpec { rules, captures: captures.to_vec() };
        planned.push(part_on(&kernel, options.clock, &spec).map(|(rule, notes, lacks)| {
            lacking.extend(lacks);
            (rule, notes)
        }));
    }
    if planned.iter().any(Result::is_ok) {
        check_captures(captures, &lacking)?;
    }
    Ok(planned)
}

/// The same of a rule where the kernel is known already.
pub(super) fn watch_rule_on(
    kernel: &Kernel<'_>,
    clock: TraceClock,
    spec: &WatchSpec,
) -> Result<Watched, PlanError> {
    let (rule, notes, lacking) = part_on(kernel, clock, spec)?;
    check_captures(&spec.captures, &lacking)?;
    Ok((rule, notes))
}

/// What of the captures an event does not have, and its format.
type Lacks = (Vec<Option<Lacking>>, Format);

fn part_on(
    kernel: &Kernel<'_>,
    clock: TraceClock,
    spec: &WatchSpec,
) -> Result<(WatchRule, Vec<String>, Vec<Lacks>), PlanError> {
    let WatchSpec { rules, captures } = spec;
    if let Some((index, rule)) = rules.iter().enumerate().find(|(_, rule)| rule.what.is_tracer()) {
        return Err(AT.rule(index, rule, "the records of a function tracer are not watched"));
    }
    // Matches have the addresses.
    let channel = ChannelSpec {
        rules: rules.clone(),
        contexts: contexts(captures),
        strings: StringLimit::OFF,
        ..ChannelSpec::default()
    };
    RecordingSpec { channels: vec![channel.clone()], ..RecordingSpec::default() }.check()?;
    let file = FileSpec { clock, ..FileSpec::default() };
    let mut notes = Vec::new();
    let plan = kernel.events_of(AT, Before::default(), &channel, &file, &mut notes)?;
    if plan.events.is_empty() {
        return Err(AT.field("rules", "they select no event that can be watched"));
    }
    let mut decoders = Vec::with_capacity(plan.events.len());
    let mut lacking = Vec::with_capacity(plan.events.len());
    for event in &plan.events {
        let format = format_of(&event.name, &plan.systems)?;
        let (decoder, lacks) = Decoder::new(&event.name, &format, captures);
        decoders.push(Arc::new(decoder));
        lacking.push((lacks, format));
    }
    let rule = WatchRule {
        events: plan.events,
        probes: plan.probes,
        hooks: plan.hooks,
        strings: channel.strings,
        decoders,
    };
    Ok((rule, notes, lacking))
}

/// The contexts that events carry for these captures, beside those of every match.
fn contexts(captures: &[Capture]) -> Vec<Context> {
    let captured = captures.iter().filter_map(|capture| match &capture.of {
        CaptureOf::Context(context) => Some(context.clone()),
        CaptureOf::Field(_) => None,
    });
    Decoder::CONTEXTS.into_iter().map(Context::Known).chain(captured).collect()
}

/// The format of the event `system:name` among those of a plan.
fn format_of(event: &str, systems: &[(String, Vec<String>)]) -> Result<Format, PlanError> {
    let (system, name) = event.split_once(':').unwrap_or(("", event));
    let of_system = systems.iter().filter(|(known, _)| known == system);
    let mut texts = of_system.flat_map(|(_, texts)| texts);
    let text = texts.find(|text| name_and_id(text).is_some_and(|(known, _)| known == name));
    let read = text.map(|text| Format::parse(text).map_err(|error| error.to_string()));
    let read = read.unwrap_or_else(|| Err("it has none".to_owned()));
    read.map_err(|why| AT.field("rules", Why::Wrong(format!("the format of {event}: {why}"))))
}

/// Each capture is of some event at least.
fn check_captures(captures: &[Capture], lacking: &[Lacks]) -> Result<(), PlanError> {
    for (index, capture) in captures.iter().enumerate() {
        let reasons = || lacking.iter().map(|(lacks, _)| lacks.get(index).copied().flatten());
        if reasons().any(|reason| reason.is_none()) {
            continue;
        }
        let why = if reasons().any(|reason| reason == Some(Lacking::Elements)) {
            format!("{capture}: the field is no array")
        } else {
            let fields = lacking.iter().flat_map(|(_, format)| &format.fields);
            let field = capture.field();
            let names = fields.map(|field| field.name.as_str());
            let near = names.filter_map(|name| Some((nearest::score(&field, name)?, name))).min();
            let hint = near.map(|(_, name)| format!("; did you mean {name}?")).unwrap_or_default();
            format!("{capture}: no event of the rule has such a field{hint}")
        };
        return Err(AT.field("captures", Why::Wrong(why)));
    }
    Ok(())
}
