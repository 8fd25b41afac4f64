//! What no recording can be made of, whatever the kernel.

use std::{collections::BTreeSet, fmt};

use super::{
    ChannelSpec, FileSpec, KEEP_BYTES_MIN, PACKET_UNIT, ROTATION_BYTES_MIN, ROTATION_NS_MIN, RecordingSpec,
    RotationSpec, RuleSpec, SWITCH_NS_MIN, ScopeSpec, TraceFormat, What, maps::MAPS_MAX,
};
use stdx::input::CpuSet;

/// Bytes of a packet of CTF unless a channel says otherwise, at most.
pub const PACKET_BYTES: u64 = 1 << 20;

/// The most channels. Each has a ring of each CPU, and programs of its own.
pub const CHANNELS_MAX: usize = 64;
/// The most events that can be added to a channel: each has counts of each CPU.
const SPARE_MAX: u32 = 4096;
/// The longest name of a channel in bytes.
const NAME_MAX: usize = 200;
/// The most rules of a channel. Each looks at all events.
const RULES_MAX: usize = 4096;
/// The most values of each list of the scope.
const SCOPE_MAX: usize = 65_536;

/// The part of a specification that something is wrong with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The whole of it.
    Whole,
    /// A rule, by channel and index.
    Rule {
        /// Which channel.
        channel: usize,
        /// Which of its rules.
        rule: usize,
        /// [Kind](What::kind) of the rule.
        kind: &'static str,
        /// What it selects.
        text: String,
    },
    /// A field of a rule.
    OfRule {
        /// Which channel.
        channel: usize,
        /// Which of its rules.
        rule: usize,
        /// The field's name.
        name: &'static str,
    },
    /// A field of a channel.
    OfChannel {
        /// Which channel.
        channel: usize,
        /// The field's name.
        name: &'static str,
    },
    /// A field of a map.
    OfMap {
        /// Which map.
        map: usize,
        /// What it is called.
        text: String,
        /// The field's name.
        name: &'static str,
    },
    /// A field of the scope.
    Scope(&'static str),
    /// A field of the limits.
    Limits(&'static str),
    /// A field of the file.
    File(&'static str),
    /// A field of the rotation.
    Rotation(&'static str),
}

impl Field {
    /// A rule of a channel.
    pub fn of_rule(channel: usize, rule: usize, spec: &RuleSpec) -> Self {
        Self::Rule { channel, rule, kind: spec.what.kind(), text: spec.what.text() }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("specification"),
            Self::Rule { channel, rule, kind, text } => {
                write!(f, "channels[{channel}].rules[{rule}] ({kind} '{text}')")
            }
            Self::OfRule { channel, rule, name } => write!(f, "channels[{channel}].rules[{rule}].{name}"),
            Self::OfChannel { channel, name } => write!(f, "channels[{channel}].{name}"),
            Self::OfMap { map, text: _, name } => write!(f, "maps[{map}].{name}"),
            Self::Scope(name) => write!(f, "scope.{name}"),
            Self::Limits(name) => write!(f, "limits.{name}"),
            Self::File(name) => write!(f, "file.{name}"),
            Self::Rotation(name) => write!(f, "rotation.{name}"),
        }
    }
}

/// Reasons that a command line tells in the words of its options.
pub mod why {
    /// Two channels have one name.
    pub const SAME_NAME: &str = "another channel has the same name";
    /// Every rule excludes events.
    pub const ALL_EXCLUDE: &str = "all of them exclude";
    /// A limit of no snapshots.
    pub const NO_SNAPSHOT: &str = "a limit of 0 takes none; use 1 or more";
    /// A rotation without size and time.
    pub const NOTHING_CLOSES: &str = "nothing says when a file is closed; give a size or a time";
    /// Rotation of a flight recorder.
    pub const NOT_ROTATED: &str =
        "a channel that overwrites stores nothing before the end, so its files cannot be rotated";
    /// A shape of streams for a trace.dat.
    pub const NO_STREAMS: &str =
        "a trace.dat has no packets and no files of streams; file.format lttng, ctf or ctf2 has";
    pub(crate) const NO_LIVE_FILE: &str =
        "a trace.dat is no file that viewers read while it is written; file.format lttng, ctf or ctf2 is";
    pub(crate) const LIVE_TOO_OFTEN: &str = "packets would be written without a pause; use 1 ms or more";
    /// Live reading of a flight recorder.
    pub const NO_LIVE_OVERWRITE: &str =
        "a channel that overwrites stores nothing before the end, so that viewers would have nothing to read";
    /// A limit of no files.
    pub const NO_FILE: &str = "no file would be kept; use 1 or more";
    /// A trace directory into a pipe.
    pub const NO_PIPE_OF_TRACE: &str =
        "a trace is a directory and cannot be written to a pipe; give its path";
    /// A trace directory on standard output.
    pub const STANDARD_OUTPUT: &str =
        "standard output is for the program that records; give the path of the file that is recorded to";
    /// A limit of files beside a rotation's.
    pub const KEPT_BY_ROTATION: &str = "with a rotation, its own count of files says what is kept";
    pub(crate) const NO_RATE: &str = "it says who shares the limit of a rate; give a rate, too";
}

/// Something that no recording can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct Problem {
    /// Where.
    pub at: Field,
    /// Why not.
    pub why: &'static str,
}

impl RecordingSpec {
    /// Looks for what contradicts itself or cannot be on any kernel.
    ///
    /// # Errors
    /// The first of it.
    pub fn check(&self) -> Result<(), Problem> {
        let problem = |at, why| Err(Problem { at, why });
        if self.version == 0 {
            return problem(Field::Whole, "there is no version 0; write 1");
        }
        if self.maps.len() > MAPS_MAX {
            return problem(Field::Whole, "it has more than 64 maps");
        }
        self.maps.iter().enumerate().try_for_each(|(map, spec)| spec.check(map))?;
        if self.channels.is_empty() && !self.maps.is_empty() && self.rotation.is_some() {
            return problem(
                Field::Whole,
                "maps alone make no file, and nothing to rotate; record an event, too",
            );
        }
        if self.channels.is_empty() && !self.maps.is_empty() && self.limits.max_lost.is_some() {
            return problem(
                Field::Whole,
                "maps alone lose no records; what they do not count is told with them",
            );
        }
        if self.channels.is_empty() && self.maps.is_empty() {
            return problem(Field::Whole, "it has no channel");
        }
        if self.channels.len() > CHANNELS_MAX {
            return problem(Field::Whole, "it has more than 64 channels");
        }
        let mut names = BTreeSet::new();
        let mut asks = false;
        for (index, channel) in self.channels.iter().enumerate() {
            check_channel(index, channel)?;
            check_streams(index, channel, self.file.format)?;
            let of_channel = |name, why| problem(Field::OfChannel { channel: index, name }, why);
            if !names.insert(channel.name.as_str()) {
                return of_channel("name", why::SAME_NAME);
            }
            let is_of_programs =
                |rule: &RuleSpec| matches!(rule.what, What::Uprobe(_) | What::Uretprobe(_) | What::Usdt(_));
            if channel.own_rings.is_some() && !channel.rules.iter().all(is_of_programs) {
                return of_channel(
                    "own_rings",
                    "users and processes have rings of their own for events of programs only",
                );
            }
            if channel.snapshot.is_some() && std::mem::replace(&mut asks, true) {
                return of_channel(
                    "snapshot",
                    "another channel asks for snapshots; one of them is of all channels",
                );
            }
        }
        let scope = &self.scope;
        if scope.children && !scope.only_command && scope.pids.is_empty() {
            return problem(
                Field::Scope("children"),
                "it follows the children of certain processes or of the command; without one of them \
                 everything is recorded anyway",
            );
        }
        if longest_list(scope) > SCOPE_MAX {
            return problem(Field::Whole, "a list of its scope has more than 65 536 values");
        }
        if scope.cpus.as_ref().is_some_and(CpuSet::is_empty) {
            return problem(Field::Scope("cpus"), "there is no CPU in it");
        }
        if self.limits.duration_ns == Some(0) {
            return problem(Field::Limits("duration_ns"), "it must be greater than zero");
        }
        if let Some(rotation) = &self.rotation {
            check_rotation(rotation, &self.channels)?;
        }
        check_live(&self.file, &self.channels)?;
        if self.file.path.as_os_str() == "-" {
            let why = match self.file.format {
                TraceFormat::Dat if self.rotation.is_none() => return Ok(()),
                TraceFormat::Dat => "several files cannot be written to a pipe; give the path of a directory",
                TraceFormat::Lttng | TraceFormat::Ctf | TraceFormat::Ctf2 => why::NO_PIPE_OF_TRACE,
            };
            return problem(Field::File("path"), why);
        }
        Ok(())
    }
}

/// Whether others can read it while it is written.
fn check_live(file: &FileSpec, channels: &[ChannelSpec]) -> Result<(), Problem> {
    let Some(live_ns) = file.live_ns else { return Ok(()) };
    if file.format == TraceFormat::Dat {
        return Err(Problem { at: Field::File("live_ns"), why: why::NO_LIVE_FILE });
    }
    if live_ns < SWITCH_NS_MIN {
        return Err(Problem { at: Field::File("live_ns"), why: why::LIVE_TOO_OFTEN });
    }
    match channels.iter().position(|channel| channel.overwrite) {
        Some(channel) => {
            Err(Problem { at: Field::OfChannel { channel, name: "overwrite" }, why: why::NO_LIVE_OVERWRITE })
        }
        None => Ok(()),
    }
}

fn check_rotation(rotation: &RotationSpec, channels: &[ChannelSpec]) -> Result<(), Problem> {
    let problem = |name, why| Err(Problem { at: Field::Rotation(name), why });
    let RotationSpec { size_bytes, period_ns, keep } = *rotation;
    if size_bytes.is_none() && period_ns.is_none() {
        return problem("keep", why::NOTHING_CLOSES);
    }
    if size_bytes.is_some_and(|bytes| bytes < ROTATION_BYTES_MIN) {
        return problem("size_bytes", "it must be two pages, 8192 bytes, at least");
    }
    if period_ns.is_some_and(|ns| ns < ROTATION_NS_MIN) {
        return problem("period_ns", "it must be 10 ms at least");
    }
    if keep == Some(0) {
        return problem("keep", "it must be 1 at least; the file that is recorded to does not count");
    }
    for (channel, spec) in channels.iter().enumerate() {
        let of_channel = |name, why| Err(Problem { at: Field::OfChannel { channel, name }, why });
        if spec.overwrite {
            return of_channel("overwrite", why::NOT_ROTATED);
        }
        if spec.keep_bytes.is_some() {
            return of_channel("keep_bytes", why::KEPT_BY_ROTATION);
        }
    }
    Ok(())
}

fn longest_list(scope: &ScopeSpec) -> usize {
    let lists = scope.track.values().chain(scope.exclude.values()).chain([&scope.containers]);
    lists.map(Vec::len).chain([scope.pids.len()]).max().unwrap_or_default()
}

/// Whether a channel can have this name, which is that of a buffer in files of several kinds.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > NAME_MAX {
        return Err("it is longer than 200 bytes");
    }
    if name.chars().any(|c| c.is_control() || c == '/') {
        return Err("it has a control character or a slash, which no name of a buffer has");
    }
    if name.trim() != name {
        return Err("it begins or ends with a blank");
    }
    Ok(())
}

fn check_channel(index: usize, channel: &ChannelSpec) -> Result<(), Problem> {
    let problem = |name, why| Err(Problem { at: Field::OfChannel { channel: index, name }, why });
    if let Err(why) = check_name(&channel.name) {
        return problem("name", why);
    }
    let mut graphs = 0;
    for (number, rule) in channel.rules.iter().enumerate() {
        check_rule(index, number, rule)?;
        graphs += usize::from(matches!(rule.what, What::FunctionGraph(_)));
    }
    if channel.rules.len() > RULES_MAX {
        return problem("rules", "there are more than 4096 of them; use patterns");
    }
    // Those that are added later count too.
    if channel.spare_events == 0 && channel.rules.iter().all(|rule| matches!(rule.what, What::Exclude(_))) {
        let why = if channel.rules.is_empty() { "there is no event to record" } else { why::ALL_EXCLUDE };
        return problem("rules", why);
    }
    if graphs > 1 {
        return problem("rules", "there is more than one function graph; one can have several roots");
    }
    if !channel.contexts.is_empty() && channel.rules.iter().any(|rule| rule.what.is_tracer()) {
        return problem(
            "contexts",
            "the records of a function tracer have none; give it a channel of its own",
        );
    }
    if channel.ring_bytes == 0 {
        return problem("ring_bytes", "0 leaves no room for events; the smallest ring has 8 KB");
    }
    if channel.snapshot.is_some() && !channel.overwrite {
        return problem("snapshot", "only a channel that overwrites has snapshots; others store all events");
    }
    if channel.snapshot.as_ref().is_some_and(|snapshot| snapshot.limit == Some(0)) {
        return problem("snapshot", why::NO_SNAPSHOT);
    }
    if channel.spare_events > SPARE_MAX {
        return problem("spare_events", "there are 4096 at most");
    }
    if channel.poll_ns == Some(0) {
        return problem("poll_ns", "0 would poll the rings without a pause; use 1 or more");
    }
    if (1..SWITCH_NS_MIN).contains(&channel.switch_ns) {
        return problem(
            "switch_ns",
            "pages would be closed without a pause; use 1 ms or more, or 0 for never",
        );
    }
    if channel.keep_bytes.is_some_and(|bytes| bytes < KEEP_BYTES_MIN) {
        return problem(
            "keep_bytes",
            "two halves of at least 64 KB are kept of each CPU; use 128 KB or more",
        );
    }
    if channel.overwrite && channel.keep_bytes.is_some() {
        return problem(
            "overwrite",
            "it keeps the newest data in memory, and keep_bytes the newest on disk: use one of them",
        );
    }
    Ok(())
}

/// How the streams of a channel are divided in a trace.
fn check_streams(index: usize, channel: &ChannelSpec, format: TraceFormat) -> Result<(), Problem> {
    let problem = |name, why| Err(Problem { at: Field::OfChannel { channel: index, name }, why });
    let ChannelSpec { packet_bytes, tracefile_bytes, tracefile_count, .. } = *channel;
    if format == TraceFormat::Dat {
        let given = [
            ("packet_bytes", packet_bytes),
            ("tracefile_bytes", tracefile_bytes),
            ("tracefile_count", tracefile_count),
        ];
        let given = given.into_iter().find(|(_, value)| value.is_some());
        return given.map_or(Ok(()), |(name, _)| problem(name, why::NO_STREAMS));
    }
    let packet = packet_bytes.unwrap_or(PACKET_BYTES);
    if packet == 0 || !packet.is_multiple_of(PACKET_UNIT) || packet > u64::from(u32::MAX) {
        return problem("packet_bytes", "it is a multiple of 4 KB, and less than 4 GB");
    }
    if tracefile_bytes.is_some_and(|size| size < packet) {
        return problem("tracefile_bytes", "a file has room for one packet at least");
    }
    match tracefile_count {
        Some(0) => problem("tracefile_count", why::NO_FILE),
        Some(_) if tracefile_bytes.is_none() => {
            problem("tracefile_count", "nothing says how large a file becomes; give its size, too")
        }
        _ => Ok(()),
    }
}

/// Whether a recording may do without: kernels have different events, and programs come and go.
fn may_be_optional(what: &What) -> bool {
    matches!(what, What::Events(_) | What::Uprobe(_) | What::Uretprobe(_) | What::Usdt(_))
}

fn check_rule(channel: usize, number: usize, rule: &RuleSpec) -> Result<(), Problem> {
    let problem = |why| Err(Problem { at: Field::of_rule(channel, number, rule), why });
    let of = |name, why| Err(Problem { at: Field::OfRule { channel, rule: number, name }, why });
    if rule.sample == Some(0) {
        return of("sample", "one of 0 is none; use 1 or more");
    }
    if rule.rate == Some(0) {
        return of("rate", "0 would record nothing; use 1 or more");
    }
    if rule.has_rate_by_only() {
        return of("rate_by", why::NO_RATE);
    }
    if rule.what.is_tracer() && !rule.is_plain() {
        return problem(
            "filters, samples, rates and contexts apply to events and probes, not to the records of a function \
             tracer, which belong together",
        );
    }
    if rule.optional && !may_be_optional(&rule.what) {
        return of("optional", "it is for events of the kernel, and probes of programs and libraries");
    }
    if matches!(rule.what, What::Exclude(_)) && !rule.is_plain() {
        return problem("nothing can be wanted of events that are not recorded");
    }
    if let What::FunctionGraph(graph) = &rule.what
        && graph.roots.is_empty()
    {
        return problem("a function graph needs roots");
    }
    Ok(())
}
