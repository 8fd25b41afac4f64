//! Buffers on the command line: what stands behind a `-B NAME` is of that one, up to the next.

use std::ops::Range;

use clap::ArgMatches;

use super::{super::CliError, RecordArgs, live, wanted::indices};
use analysis::answers::Topic;
use spec::EventSelector;
use spec::StringLimit;
use spec::{ChannelSpec, RING_BYTES, RuleSpec, SWITCH_NS};
use tracedat::ledger::buffer_title;

/// A part of the command line.
struct Section<'a> {
    /// The buffer; empty for the one that every file has.
    name: &'a str,
    /// Its options are at these indices of the command line.
    range: Range<usize>,
    matches: &'a ArgMatches,
}

impl Section<'_> {
    /// Whether an option stands here.
    fn has(&self, id: &str) -> bool {
        indices(self.matches, id).any(|index| self.range.contains(&index))
    }

    /// The values of an option that stand here.
    fn all<T: Clone>(&self, id: &str, values: &[T]) -> Vec<T> {
        let indexed = indices(self.matches, id).zip(values);
        indexed.filter(|(index, _)| self.range.contains(index)).map(|(_, value)| value.clone()).collect()
    }

    /// The value of an option of which a buffer has one.
    fn one<T: Clone>(&self, (id, option): (&str, &str), values: &[T]) -> Result<Option<T>, CliError> {
        let mut found = self.all(id, values).into_iter();
        match (found.next(), found.next()) {
            (found, None) => Ok(found),
            _ => Err(CliError::Usage(format!(
                "{option} is given more than once for {}",
                buffer_title(self.name)
            ))),
        }
    }
}

/// The channels, each with its rules. Those come with their indices on the command line.
pub(super) fn channels(
    args: &RecordArgs,
    matches: &ArgMatches,
    rules: &[(usize, RuleSpec)],
) -> Result<Vec<ChannelSpec>, CliError> {
    if let Some(index) = args.buffers.iter().position(String::is_empty) {
        let message = format!("-B number {} has no name", index + 1);
        return Err(CliError::Usage(message));
    }
    let mut channels = Vec::new();
    for section in sections(args, matches) {
        let own: Vec<RuleSpec> = rules
            .iter()
            .filter(|(index, _)| section.range.contains(index))
            .map(|(_, rule)| rule.clone())
            .collect();
        let channel = channel(args, &section, own)?;
        if !channel.rules.is_empty() {
            channels.push(channel);
        } else if !section.name.is_empty() {
            return Err(CliError::Usage(format!(
                "no event to record into buffer {name}: name one behind it, such as -B {name} -e sched:sched_switch",
                name = section.name
            )));
        } else if let Some(option) = first_of_buffers(&section) {
            return Err(CliError::Usage(format!(
                "{option} before the first -B is of the buffer without a name, into which no event is recorded; put it \
                 behind the -B that it is meant for"
            )));
        }
    }
    Ok(channels)
}

fn sections<'a>(args: &'a RecordArgs, matches: &'a ArgMatches) -> Vec<Section<'a>> {
    let starts: Vec<usize> = std::iter::once(0).chain(indices(matches, "buffers")).collect();
    let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
    let names = std::iter::once("").chain(args.buffers.iter().map(String::as_str));
    let section = |((name, from), to)| Section { name, range: from..to, matches };
    names.zip(starts.iter().copied()).zip(ends).map(section).collect()
}

/// The options that each buffer has of its own, by clap's ids.
const OF_A_BUFFER: [(&str, &str); 13] = [
    ("ring_kb", "-b"),
    ("overwrite", "--overwrite"),
    ("switch_timer", "--switch-timer"),
    ("poll_us", "-s"),
    ("max_kb", "-m"),
    ("kernel_stacks", "-T"),
    ("kernel_stack", "--kernel-stack"),
    ("user_stack", "--user-stack"),
    ("snapshot_when", "--snapshot-when"),
    ("exclude", "-v"),
    ("packet_size", "--packet-size"),
    ("tracefile_size", "--tracefile-size"),
    ("tracefile_count", "--tracefile-count"),
];

/// The first of them that stands in a section.
fn first_of_buffers(section: &Section<'_>) -> Option<&'static str> {
    OF_A_BUFFER.iter().find(|(id, _)| section.has(id)).map(|(_, option)| *option)
}

/// How much is copied of strings: of all buffers, as the same event has the same format in each.
fn strings(args: &RecordArgs) -> StringLimit {
    let unless_told =
        if args.topics.contains(&Topic::Io) { StringLimit::LONGEST } else { StringLimit::default() };
    args.strings.unwrap_or(unless_told)
}

/// The switch timer unless the user says it.
fn usual_switch_ns(args: &RecordArgs, poll_ns: Option<u64>) -> u64 {
    let usual = if live::is_shown(args) { live::SWITCH_NS } else { SWITCH_NS };
    // Who wants to be woken less than once a second by full pages is not woken by others either.
    usual.max(poll_ns.unwrap_or_default())
}

fn channel(args: &RecordArgs, section: &Section<'_>, rules: Vec<RuleSpec>) -> Result<ChannelSpec, CliError> {
    let ring_kb = section.one(("ring_kb", "-b"), &args.ring_kb)?;
    let poll_us = section.one(("poll_us", "-s"), &args.poll_us)?;
    let max_kb = section.one(("max_kb", "-m"), &args.max_kb)?;
    let switch_ns = section.one(("switch_timer", "--switch-timer"), &args.switch_timer)?;
    let trace = &args.trace;
    let packet_kb = section.one(("packet_size", "--packet-size"), &trace.packet_size)?;
    let tracefile_kb = section.one(("tracefile_size", "--tracefile-size"), &trace.tracefile_size)?;
    let tracefile_count = section.one(("tracefile_count", "--tracefile-count"), &trace.tracefile_count)?;
    let poll_ns = poll_us.map(|us| us.saturating_mul(1000));
    let asks = section.has("snapshot_when");
    let mut channel = ChannelSpec {
        name: section.name.to_owned(),
        rules,
        ignore_unknown: args.ignore_unknown,
        strings: strings(args),
        lane: args.lane,
        ring_bytes: ring_kb.map_or(RING_BYTES, |kb| kb.saturating_mul(1024)),
        overwrite: !section.all("overwrite", &args.overwrite).is_empty(),
        snapshot: if asks { args.snapshots.spec() } else { None },
        poll_ns,
        switch_ns: switch_ns.unwrap_or_else(|| usual_switch_ns(args, poll_ns)),
        keep_bytes: max_kb.map(|kb| kb.saturating_mul(1024)),
        packet_bytes: packet_kb.map(|kb| kb.saturating_mul(1024)),
        tracefile_bytes: tracefile_kb.map(|kb| kb.saturating_mul(1024)),
        tracefile_count,
        ..ChannelSpec::default()
    };
    let stacks = &args.stacks;
    channel.kernel_stacks = section.all("kernel_stack", &stacks.kernel_stack);
    if !section.all("kernel_stacks", &stacks.kernel_stacks).is_empty() {
        channel.kernel_stacks.push(EventSelector::all());
    }
    channel.user_stacks = section.all("user_stack", &stacks.user_stack);
    // An analysis of stacks says nothing without them.
    for event in section.all("topics", &args.topics).into_iter().flat_map(Topic::stacks) {
        let selector: EventSelector = event.parse::<EventSelector>()?;
        channel.kernel_stacks.push(selector.clone());
        channel.user_stacks.push(selector);
    }
    Ok(channel)
}
