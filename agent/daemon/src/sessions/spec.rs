//! The recording that is made of a session.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
    time::Duration,
};

use super::{
    Model,
    expand::{self, Key, World},
};
use ::spec::Attribute as Ours;
use ::spec::Context;
use ::spec::{ChannelSpec, OwnRings, RecordingSpec, RotationSpec, RuleSpec, ScopeSpec, TraceFormat, What};
use api::track::Attribute;
use api::{
    Buffers, Channel, Code, ControlError, Domain, EventLoss, Format, Schedule, SessionMode, Tracked, Tracker,
};
use capture::{SetOptions, Tracking};

/// How many events can be added to a channel from one trace chunk to the next, while it records.
const SPARE_EVENTS: u32 = 256;

/// The longest filter of an event that several rules have.
const FILTER_MAX: usize = 64 << 10;

/// The shortest time between two rotations of a schedule: making a file takes some milliseconds, and more
/// with many CPUs.
const PERIOD_MIN: Duration = Duration::from_millis(100);

/// What a session records into a directory.
pub(crate) fn of(model: &Model, world: &World, output: &Path) -> Result<RecordingSpec, ControlError> {
    let mut spec = match model.configured() {
        Some(configured) => configured.spec.clone(),
        None => said(model, world)?,
    };
    spec.channels.iter_mut().for_each(|channel| channel.spare_events = SPARE_EVENTS);
    spec.file.date = true;
    spec.file.live_ns = model.session().summary.mode.live_timer_us().map(|us| us.saturating_mul(1000));
    let format = model.session().summary.format;
    if format == Format::Lttng {
        spec.file.format = TraceFormat::Lttng;
    }
    if model.keeps() {
        // No file has this name: it is that of the spool. A trace's is the directory's.
        spec.file.path = match format {
            Format::TraceDat => output.join(format!("{}.dat", model.name())),
            Format::Lttng => output.to_owned(),
        };
    } else {
        output.clone_into(&mut spec.file.path);
        // The session says when.
        spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    }
    Ok(spec)
}

/// What the channels and trackers of a session say.
fn said(model: &Model, world: &World) -> Result<RecordingSpec, ControlError> {
    let mut channels = Vec::new();
    for (domain, channel) in model.channels() {
        let mut spec = of_channel(world, domain, channel, model.session().summary.format)?;
        // Without an output, snapshots are of the newest events.
        spec.overwrite |= matches!(model.session().summary.mode, SessionMode::Local { output: None });
        channels.push(spec);
    }
    let scope = ScopeSpec { track: tracked(model)?, changes: true, ..Default::default() };
    Ok(RecordingSpec { channels, scope, ..Default::default() })
}

/// The name of a channel in a file: that of its session. Channels of both domains may have the same.
pub(crate) fn buffer_name(domain: Domain, channel: &str) -> String {
    match domain {
        Domain::Kernel => channel.to_owned(),
        Domain::User => format!("{channel}-user"),
    }
}

fn of_channel(
    world: &World,
    domain: Domain,
    channel: &Channel,
    format: Format,
) -> Result<ChannelSpec, ControlError> {
    let attributes = &channel.attributes;
    let bytes = attributes.subbuf_size.unwrap_or_default() * attributes.num_subbuf.unwrap_or(1);
    let overwrite = attributes.event_loss == Some(EventLoss::Overwrite);
    let nanoseconds = |us: Option<u64>| us.unwrap_or_default().saturating_mul(1000);
    let mut spec = ChannelSpec {
        name: buffer_name(domain, &channel.name),
        ring_bytes: bytes,
        overwrite,
        switch_ns: nanoseconds(attributes.switch_timer_us),
        poll_ns: Some(nanoseconds(attributes.read_timer_us)).filter(|period| *period != 0),
        own_rings: own_rings(attributes.buffers),
        contexts: contexts(channel)?,
        ..ChannelSpec::default()
    };
    if format == Format::Lttng {
        let chosen = |value: Option<u64>| value.filter(|value| *value != 0);
        spec.packet_bytes = attributes.subbuf_size;
        spec.trace_name.clone_from(&channel.name);
        spec.tracefile_bytes = chosen(attributes.tracefile_size);
        spec.tracefile_count = chosen(attributes.tracefile_count);
    }
    spec.rules = rules(world, (domain, channel), format)?.into_values().collect();
    Ok(spec)
}

/// Whose own the rings of a channel are.
fn own_rings(buffers: Option<Buffers>) -> Option<OwnRings> {
    match buffers? {
        Buffers::Global => None,
        Buffers::Uid => Some(OwnRings::User),
        Buffers::Pid => Some(OwnRings::Process),
    }
}

/// How many sets of rings a channel has on a machine with so many CPUs.
pub(crate) fn ring_sets(buffers: Option<Buffers>, cpus: u64) -> u64 {
    let cpus = usize::try_from(cpus).unwrap_or(usize::MAX);
    own_rings(buffers).map_or(1, |of| SetOptions::new(of, cpus, "").count.into())
}

/// The values of the attributes that are not tracked whatever they are.
pub(crate) type Tracks = BTreeMap<Ours, Vec<String>>;

/// What is recorded into a channel.
pub(crate) type Rules = BTreeMap<Key, RuleSpec>;

/// What a recording of a session has: what is recorded into each buffer, and whose events.
pub(crate) fn recorded(
    model: &Model,
    world: &World,
    spec: &RecordingSpec,
) -> Result<(BTreeMap<String, Rules>, Tracks), ControlError> {
    let rules = changed_rules(None, model, world)?.into_iter().collect();
    Ok((rules, spec.scope.track.clone()))
}

fn of_buffer(channel: &ChannelSpec) -> (String, Rules) {
    let rules = channel.rules.iter().map(|rule| (key_of(rule), rule.clone()));
    (channel.name.clone(), rules.collect())
}

/// What is to be recorded into the buffers of a session that are not as they were before.
pub(crate) fn changed_rules(
    before: Option<&Model>,
    model: &Model,
    world: &World,
) -> Result<Vec<(String, Rules)>, ControlError> {
    if let Some(configured) = model.configured() {
        return Ok(configured.spec.channels.iter().map(of_buffer).collect());
    }
    let of = |(domain, channel): (Domain, &Channel)| {
        let format = model.session().summary.format;
        Ok((buffer_name(domain, &channel.name), rules(world, (domain, channel), format)?))
    };
    changed(before, model).map(of).collect()
}

/// The channels that are not as they were before.
fn changed<'m>(
    before: Option<&'m Model>,
    after: &'m Model,
) -> impl Iterator<Item = (Domain, &'m Channel)> + 'm {
    after.channels().filter(move |new| !before.is_some_and(|before| before.channels().any(|old| old == *new)))
}

/// Whether this machine has what the rules of a session name, before it is started: of the channels that are
/// not as they were before.
pub(crate) fn check_rules(before: Option<&Model>, model: &Model, world: &World) -> Result<(), ControlError> {
    changed(before, model).try_for_each(|(_, channel)| contexts(channel).map(drop))?;
    changed_rules(before, model, world)?;
    for (attribute, values) in tracked(model)? {
        tracking(attribute, Some(&values))?;
    }
    Ok(())
}

/// Expands the rules of a session that a change of its description is about, which takes its time: it takes
/// none afterwards, where others may wait.
pub(crate) fn expand(before: &Model, model: &Model, world: &World) {
    // A recording that begins has the rules of all channels.
    let begins = model.is_active() != before.is_active() || !model.is_active() && model.was_started();
    let is_whole = begins || model.waits_for_programs() || shape(before) != shape(model);
    expand_rules((!is_whole).then_some(before), model, world);
}

/// Expands all rules of a session in the same way.
pub(crate) fn expand_all(model: &Model, world: &World) {
    expand_rules(None, model, world);
}

fn expand_rules(before: Option<&Model>, model: &Model, world: &World) {
    if model.configured().is_none() {
        let format = model.session().summary.format;
        changed(before, model).for_each(|(domain, channel)| {
            world.keep(domain, channel, rules(world, (domain, channel), format));
        });
    }
}

/// Whether two descriptions of a session have the same rules in the same channels.
pub(crate) fn has_same_rules(one: &Model, other: &Model) -> bool {
    let is_same = |(one, other): ((Domain, &Channel), (Domain, &Channel))| {
        let ((domain, one), (of_other, other)) = (one, other);
        (domain, &one.name, one.enabled, &one.rules) == (of_other, &other.name, other.enabled, &other.rules)
    };
    one.channels().count() == other.channels().count() && one.channels().zip(other.channels()).all(is_same)
}

/// What is fixed in a recording of a session: of what is configured, all but the rules.
pub(crate) fn shape(model: &Model) -> (Vec<Channel>, Option<RecordingSpec>) {
    let fixed = |(_, channel): (Domain, &Channel)| Channel {
        enabled: true,
        discarded: 0,
        lost_packets: 0,
        rules: Vec::new(),
        ..channel.clone()
    };
    let configured = model.configured().map(|configured| {
        let mut spec = configured.spec.clone();
        spec.channels.iter_mut().for_each(|channel| channel.rules.clear());
        spec
    });
    (model.channels().map(fixed).collect(), configured)
}

/// What a rule is about that is about no program.
pub(crate) fn key_of(rule: &RuleSpec) -> Key {
    (rule.what.kind(), rule.what.text())
}

/// Whether two rules about the same record the same of it.
pub(crate) fn is_same(one: &RuleSpec, other: &RuleSpec) -> bool {
    *one == RuleSpec { what: one.what.clone(), ..other.clone() }
}

/// What is recorded into a channel: each event once, for whichever of the channel's rules it matches.
pub(crate) fn rules(
    world: &World,
    (domain, channel): (Domain, &Channel),
    format: Format,
) -> Result<Rules, ControlError> {
    if let Some(kept) = world.kept(domain, channel) {
        return kept;
    }
    let mut all = Rules::new();
    for rule in channel.rules.iter().filter(|rule| channel.enabled && rule.enabled) {
        for (key, new) in expand::rules_of_session(world, (domain, rule), format)? {
            match all.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(new);
                }
                Entry::Occupied(mut there) => {
                    let there = there.get_mut();
                    there.optional &= new.optional;
                    there.filter = match (there.filter.take(), new.filter) {
                        (Some(one), Some(other)) => Some(either(one, &other, &there.what)?),
                        // One of the rules has all of its events.
                        _ => None,
                    };
                }
            }
        }
    }
    Ok(all)
}

/// A filter that takes what one of two takes.
fn either(one: String, other: &str, what: &What) -> Result<String, ControlError> {
    if one == other {
        return Ok(one);
    }
    if one.len() + other.len() > FILTER_MAX {
        return Err(ControlError::new(
            Code::Filter,
            format!(
                "the filters of the channel's rules for {} are longer than {} KB together: a record is made once for \
                 all of them; put some into another channel",
                what.text(),
                FILTER_MAX >> 10
            ),
        ));
    }
    Ok(format!("({one}) || ({other})"))
}

/// The contexts of a channel.
pub(crate) fn contexts(channel: &Channel) -> Result<Vec<Context>, ControlError> {
    let parse = |name: &String| {
        name.parse::<Context>().map_err(|error| {
            ControlError::new(
                Code::ContextUnavailable,
                format!("the context {name} cannot be recorded: {error}"),
            )
        })
    };
    channel.contexts.iter().map(parse).collect()
}

/// What a session tracks. A recording tracks one thing: that of the domains that have channels.
pub(crate) fn tracked(model: &Model) -> Result<Tracks, ControlError> {
    if let Some(configured) = model.configured() {
        return Ok(configured.spec.scope.track.clone());
    }
    let domains = model.session().domains.iter();
    let mut trackers = domains.filter(|of| !of.channels.is_empty()).map(|of| &of.trackers);
    let mut tracks = Tracks::new();
    let Some(first) = trackers.next() else { return Ok(tracks) };
    if trackers.any(|other| other != first) {
        return Err(ControlError::new(
            Code::NotSupported,
            "the kernel and the user domain of a session track the same processes; track them in both, or use \
             two sessions",
        ));
    }
    tracks.extend(tracks_of(first));
    Ok(tracks)
}

/// What the maps of a session track: what its kernel domain does.
pub(crate) fn tracked_by_maps(model: &Model) -> Tracks {
    let of_kernel = model.session().domains.iter().find(|of| of.domain == Domain::Kernel);
    of_kernel.map(|of| tracks_of(&of.trackers).collect()).unwrap_or_default()
}

fn tracks_of(trackers: &[Tracker]) -> impl Iterator<Item = (Ours, Vec<String>)> {
    trackers.iter().filter_map(|Tracker { attribute, tracked }| match tracked {
        Tracked::Only(values) => Some((ours(*attribute), values.clone())),
        Tracked::All => None,
    })
}

/// What the values of an attribute mean on this machine: numbers, and names of users and groups.
pub(crate) fn tracking(attribute: Ours, values: Option<&[String]>) -> Result<Tracking, ControlError> {
    plan::tracking(attribute, values).map_err(|error| {
        let code = match attribute {
            Ours::Uid | Ours::Vuid => Code::NoUser,
            Ours::Gid | Ours::Vgid => Code::NoGroup,
            _ => Code::Invalid,
        };
        ControlError::new(code, error.to_string())
    })
}

fn ours(attribute: Attribute) -> Ours {
    match attribute {
        Attribute::Pid => Ours::Pid,
        Attribute::Vpid => Ours::Vpid,
        Attribute::Uid => Ours::Uid,
        Attribute::Vuid => Ours::Vuid,
        Attribute::Gid => Ours::Gid,
        Attribute::Vgid => Ours::Vgid,
        Attribute::Cgroup => Ours::Cgroup,
        Attribute::Comm => Ours::Comm,
    }
}

/// When a session rotates by itself: after so long, and at so many bytes.
pub(crate) fn schedule(model: &Model) -> (Option<Duration>, Option<u64>) {
    let (mut period, mut bytes) = (None, None);
    for schedule in &model.session().schedules {
        match schedule {
            Schedule::PeriodUs(us) => period = Some(Duration::from_micros(*us).max(PERIOD_MIN)),
            Schedule::SizeBytes(size) => bytes = Some(*size),
        }
    }
    (period, bytes)
}
