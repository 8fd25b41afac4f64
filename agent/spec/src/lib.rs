//! Recording specifications: what to record, as plain data.
//!
//! The command line, configuration files and the session daemon all make a [`RecordingSpec`]; `plan` turns it
//! into a recording on a given kernel. As JSON, each field has its name, strings are those of the command
//! line, and a missing field has its default.
//!
//! **Data flow:** options, JSON or a session's rules → [`RecordingSpec`] → [`RecordingSpec::check`] → `plan`.
//!
//! **Guarantees**
//!
//! - A specification that `check` accepts is consistent; only a kernel can still refuse it.
//! - JSON is hostile: its size is limited, unknown fields are errors, and an error names the field.
//! - Reading what was written gives the same specification.
//!
//! **Must not know:** the running kernel, the compiler of programs, files, processes.
//!
//! # Example
//!
//! ```
//! use spec::{RecordingSpec, What};
//!
//! let spec = RecordingSpec::from_json(
//!     br#"{
//!         "version": 1,
//!         "channels": [{
//!             "rules": [
//!                 {"what": {"events": "sched:sched_switch"}, "filter": "next_prio < 100"},
//!                 {"what": {"uprobe": "libc.so.6:malloc size=$arg1:u64"}, "rate": 1000}
//!             ]
//!         }],
//!         "limits": {"duration_ns": 10000000000}
//!     }"#,
//! )?;
//! assert_eq!(spec.channels[0].rules.len(), 2);
//! assert!(matches!(&spec.channels[0].rules[0].what, What::Events(text) if text.as_str() == "sched:sched_switch"));
//! # Ok::<(), spec::SpecError>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `json` | reading and writing JSON |
//! | `check` | contradictions that no kernel could resolve |
//! | `known` | what is known of a rule beside what it says |
//! | `maps`, `map_text` | maps that count events, and their syntax on a command line |
//! | [`text`] | values that are strings in JSON |
//! | `watch` | events that are reported as they fire |
//! | `attribute`, `clock`, `context`, `lane`, `selector` | values of its fields |

#![forbid(unsafe_code)]

mod attribute;
mod check;
mod clock;
mod context;
mod json;
mod known;
mod lane;
mod map_text;
mod maps;
mod selector;
pub mod text;
mod watch;

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use attribute::Attribute;
pub use check::{CHANNELS_MAX, Field, PACKET_BYTES, Problem, check_name, why};
pub use clock::{TraceClock, UnknownClock};
pub use context::{Context, Counter, StackKind};
pub use json::{SpecError, TEXT_MAX};
pub use known::Known;
pub use lane::{LaneChoice, STRING_MAX, StringLimit};
pub use map_text::MapTextError;
pub use maps::{
    FunctionSpec, KEYS_MAX, MAPS_MAX, MAX_KEYS, MAX_KEYS_OF_HISTOGRAMS, MapSpec, PairSpec, STEPS_MAX,
};
pub use selector::{EventName, EventSelector, SelectorError};
pub use watch::{Capture, CaptureOf, CaptureSyntax, WatchSpec};

use stdx::input::CpuSet;
use tracedat::Compression;

/// The version of these types. A specification of a newer one is refused, because what it asks for may not be
/// understood.
pub const VERSION: u32 = 1;

/// Bytes of each CPU's ring where nothing else is said.
pub const RING_BYTES: u64 = 4 << 20;
/// Nanoseconds that an event waits at most where nothing else is said.
pub const SWITCH_NS: u64 = 1_000_000_000;
/// The shortest time of [`ChannelSpec::switch_ns`] that is not 0.
pub const SWITCH_NS_MIN: u64 = 1_000_000;
/// The fewest bytes of [`RotationSpec::size_bytes`]: two pages.
pub const ROTATION_BYTES_MIN: u64 = 2 * 4096;
/// The shortest time of [`RotationSpec::period_ns`].
pub const ROTATION_NS_MIN: u64 = 10_000_000;
/// [`ChannelSpec::packet_bytes`] is a multiple of so many: LTTng's sub-buffers are whole pages.
pub const PACKET_UNIT: u64 = 4096;
/// The fewest bytes that [`ChannelSpec::keep_bytes`] can ask for: two segments.
pub const KEEP_BYTES_MIN: u64 = 128 << 10;

/// A recording.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingSpec {
    /// The version of these types that it was written for: [`VERSION`] or older.
    pub version: u32,
    /// The buffers, each with the events that go there.
    pub channels: Vec<ChannelSpec>,
    /// Maps that count events in the kernel. A recording that has some needs no channel, and then makes no
    /// file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<MapSpec>,
    /// Whose events are recorded.
    #[serde(default)]
    pub scope: ScopeSpec,
    /// When the recording ends.
    #[serde(default)]
    pub limits: LimitSpec,
    /// The file that is made of it.
    #[serde(default)]
    pub file: FileSpec,
    /// When a file is closed and the next one begun; never where nothing is said, and there is one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<RotationSpec>,
}

impl Default for RecordingSpec {
    /// A recording of no event.
    fn default() -> Self {
        Self {
            version: VERSION,
            channels: vec![ChannelSpec::default()],
            maps: Vec::new(),
            scope: ScopeSpec::default(),
            limits: LimitSpec::default(),
            file: FileSpec::default(),
            rotation: None,
        }
    }
}

/// Who has rings of its own in a channel.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRings {
    /// Each user, by its real id.
    User,
    /// Each process.
    Process,
}

/// A buffer of each CPU, and what is recorded into it.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelSpec {
    /// The name of the buffer; empty for the one that every file has. No two channels have the same.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What is recorded. Of several rules that select an event, the last one says what is wanted of it; an
    /// exclusion wins over all others, wherever it stands.
    pub rules: Vec<RuleSpec>,
    /// Whether rules that select no event of this kernel are left out instead of being an error.
    pub ignore_unknown: bool,
    /// Events that are followed by the kernel's stack.
    #[serde(with = "text::list")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, default = json!([])))]
    pub kernel_stacks: Vec<EventSelector>,
    /// Events that are followed by the stack of user space.
    #[serde(with = "text::list")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, default = json!([])))]
    pub user_stacks: Vec<EventSelector>,
    /// How much is recorded of strings that system calls are given: bytes, or `off`.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "63"))]
    pub strings: StringLimit,
    /// Which programs record: `auto`, `fast` or `generic`.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "auto"))]
    pub lane: LaneChoice,
    /// Fields that are added to all of its events, those that are added to the channel while the recording
    /// goes on included, before the [contexts of their rules](RuleSpec::contexts).
    #[serde(skip_serializing_if = "Vec::is_empty", with = "text::list")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, default = json!([])))]
    pub contexts: Vec<Context>,
    /// Bytes of each CPU's ring; rounded up to whole pages, of which there are two at least.
    pub ring_bytes: u64,
    /// Whose own the rings are: of each user, or of each process; all share them where nothing is said. Then
    /// the file has a buffer for each, called `NAME:uid-UID` or `NAME:pid-PID`, and `NAME:others` for those
    /// beyond the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_rings: Option<OwnRings>,
    /// In a trace, the name of a channel with `own_rings`; that of the buffer where nothing is said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace_name: String,
    /// Keep the newest events in the ring and store them at the end, instead of storing all of them
    /// meanwhile.
    pub overwrite: bool,
    /// What asks for snapshots, which are of all channels that overwrite: this is one of them. One channel
    /// asks at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotSpec>,
    /// Nanoseconds that a full page waits at most until it is stored; one second where nothing is said.
    pub poll_ns: Option<u64>,
    /// Nanoseconds that an event waits at most until it is stored, also in a page that is not full; 0 for as
    /// long as the page takes to become full. It says nothing about channels that overwrite.
    pub switch_ns: u64,
    /// Bytes of the newest data that are kept of each CPU; everything where nothing is said.
    pub keep_bytes: Option<u64>,
    /// In a [trace](TraceFormat), bytes of a packet, at most, as LTTng's sub-buffers have a size: a multiple
    /// of [`PACKET_UNIT`]. 1 MiB where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_bytes: Option<u64>,
    /// In a trace, bytes of a file of a stream, at most; the packet that does not fit begins the next file.
    /// One file where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_bytes: Option<u64>,
    /// How many such files of each stream are kept: the newest. All where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
    /// How many events can be added while the recording goes on, or from one rotation to the next (a library
    /// does that). With 0, its events do not change.
    #[serde(skip_serializing_if = "is_zero")]
    pub spare_events: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for ChannelSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            rules: Vec::new(),
            ignore_unknown: false,
            kernel_stacks: Vec::new(),
            user_stacks: Vec::new(),
            strings: StringLimit::default(),
            lane: LaneChoice::default(),
            contexts: Vec::new(),
            ring_bytes: RING_BYTES,
            own_rings: None,
            trace_name: String::new(),
            overwrite: false,
            snapshot: None,
            poll_ns: None,
            switch_ns: SWITCH_NS,
            keep_bytes: None,
            packet_bytes: None,
            tracefile_bytes: None,
            tracefile_count: None,
            spare_events: 0,
        }
    }
}

/// When a snapshot is taken. One is taken at a time.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSpec {
    /// The event that asks for it: one of the kernel or of a probe. It is recorded in any case.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub when: EventSelector,
    /// Only records of it that match are recorded, and ask. No rule of the channel selects the event then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Nanoseconds from the event to the snapshot, for what comes after it.
    #[serde(default)]
    pub delay_ns: u64,
    /// How many are taken at most; as many as are asked for where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Events, and what is wanted of them.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Which events.
    pub what: What,
    /// Do without those events of the kernel that it does not have, or that cannot be recorded, although they
    /// are named; and without probes of programs and libraries that are not there, or refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// Those of every thread, whichever the recording is about: what ends the work of a thread may come in
    /// others, or in their interrupts. Of several rules that select an event, one suffices. The recorder's
    /// own threads are left out all the same.
    #[serde(default, skip_serializing_if = "is_false")]
    pub every_thread: bool,
    /// Make the kernel's own probes at returns of Go's functions, which may end processes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Only those that match, in the language of [`RuleSpec::language`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The language of the filter.
    #[serde(default, skip_serializing_if = "is_default")]
    pub language: FilterLanguage,
    /// One of so many of each event on each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u32>,
    /// At most so many of each event in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Who shares that limit: everyone, or, with `cgroup`, the threads of a control group (version 2): each
    /// group has one of its own then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_by: RateBy,
    /// Fields that are added to the events.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "text::list")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub contexts: Vec<Context>,
    /// What is known of the file of a probe already.
    #[serde(skip)]
    pub known: Known,
}

impl RuleSpec {
    /// A rule that wants everything of these events.
    pub fn new(what: What) -> Self {
        Self {
            what,
            optional: false,
            every_thread: false,
            force: false,
            filter: None,
            language: FilterLanguage::default(),
            sample: None,
            rate: None,
            rate_by: RateBy::default(),
            contexts: Vec::new(),
            known: Known::default(),
        }
    }

    /// Whether it says who shares the limit of a rate that it does not have.
    pub(crate) fn has_rate_by_only(&self) -> bool {
        self.rate.is_none() && !is_default(&self.rate_by)
    }

    /// Whether something is said about its events but which they are.
    pub fn is_plain(&self) -> bool {
        // Without a rate, nobody shares one.
        let Self {
            what: _,
            optional: _,
            every_thread,
            force: _,
            filter,
            language: _,
            sample,
            rate,
            rate_by: _,
            contexts,
            known: _,
        } = self;
        !every_thread && filter.is_none() && sample.is_none() && rate.is_none() && contexts.is_empty()
    }
}

/// Who shares the limit of an event's rate.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateBy {
    /// Everyone: it is the event's.
    #[default]
    Event,
    /// The threads of a control group (version 2): each group has a limit of its own, so that a group with
    /// too many events takes no room from the others. It is that of the thread which the event fires in. Some
    /// 250 groups that have an event in the same second are told apart; of more, a few may share a limit.
    Cgroup,
}

/// A language of filters.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterLanguage {
    /// That of tracefs (Documentation/trace/events.rst, section 5).
    #[default]
    Ftrace,
    /// LTTng's (lttng-event-rule(7)), with the kernel's names of fields.
    Lttng,
}

/// Which events a rule is about.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// Events of the kernel: `sched:sched_switch`, `sched`, `syscalls:*open*`, `all`.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    Events(EventSelector),
    /// Events of the kernel that are not recorded.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    Exclude(EventSelector),
    /// A function of the kernel or a place in it: `[GRP/][NAME=]FUNC[+OFF] [ARG=]FETCH[:TYPE]...`.
    Kprobe(String),
    /// Returns of a function of the kernel.
    Kretprobe(String),
    /// Calls of a function of the kernel with typed arguments: `[NAME=]FUNC [[FIELD=]EXPRESSION]...`.
    Fentry(String),
    /// Returns of a function of the kernel with typed arguments.
    Fexit(String),
    /// Calls of all functions of the kernel that match, as records of ftrace's function tracer.
    Function(String),
    /// Calls and returns of functions of the kernel and of what they call, as records of ftrace's function
    /// graph tracer. There is one graph at most.
    FunctionGraph(GraphSpec),
    /// A function of a program or library, or a place in it: `[NAME=]PATH:FUNC[+OFF] [ARG=]FETCH[:TYPE]...`.
    Uprobe(String),
    /// Returns of a function of a program or library.
    Uretprobe(String),
    /// A USDT marker of a program or library: `[NAME=]PATH:PROVIDER:MARKER [[ARG=]FETCH[:TYPE]...]`.
    Usdt(String),
}

impl What {
    /// Its name in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Events(_) => "events",
            Self::Exclude(_) => "exclude",
            Self::Kprobe(_) => "kprobe",
            Self::Kretprobe(_) => "kretprobe",
            Self::Fentry(_) => "fentry",
            Self::Fexit(_) => "fexit",
            Self::Function(_) => "function",
            Self::FunctionGraph(_) => "function_graph",
            Self::Uprobe(_) => "uprobe",
            Self::Uretprobe(_) => "uretprobe",
            Self::Usdt(_) => "usdt",
        }
    }

    /// What it selects, as it was written.
    pub fn text(&self) -> String {
        match self {
            Self::Events(selector) | Self::Exclude(selector) => selector.to_string(),
            Self::FunctionGraph(graph) => graph.roots.join(" "),
            Self::Kprobe(text)
            | Self::Kretprobe(text)
            | Self::Fentry(text)
            | Self::Fexit(text)
            | Self::Function(text)
            | Self::Uprobe(text)
            | Self::Uretprobe(text)
            | Self::Usdt(text) => text.clone(),
        }
    }

    /// Whether its records belong together as a tracer's do, so that none of them may be left out.
    pub fn is_tracer(&self) -> bool {
        matches!(self, Self::Function(_) | Self::FunctionGraph(_))
    }
}

/// A graph of calls.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GraphSpec {
    /// Patterns for the functions where it begins.
    pub roots: Vec<String>,
    /// Patterns for what is recorded below them; everything if there is none.
    pub only: Vec<String>,
    /// How deep it goes, counted from the roots; 0 for any depth.
    pub max_depth: Option<u32>,
    /// How the functions are hooked.
    pub hooks: GraphHooks,
}

/// How the functions of a graph are hooked.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphHooks {
    /// The first of the following that the kernel supports.
    #[default]
    Auto,
    /// One program at entries and returns (Linux 6.10).
    Session,
    /// One program at entries, one at returns (5.18).
    Returns,
    /// A kprobe for each entry and return, for few functions (6.0).
    Kprobes,
}

/// Values of attributes of threads, as they are written: ids of processes, users and groups, which may also
/// be names of `/etc/passwd` and `/etc/group`; control groups of version 2 by path; names of
/// threads with wildcards.
pub type TraitSpec = BTreeMap<Attribute, Vec<String>>;

/// Whose events are recorded. What is said of processes and attributes is ANDed; the values of one of them
/// are ORed.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct ScopeSpec {
    /// Processes with all their threads, by the ids of the initial pid namespace. They have to be there, and
    /// are followed until they end; who gets the id of one then is not recorded, as it is by
    /// [`Attribute::Pid`].
    pub pids: Vec<u32>,
    /// The command that the recording starts.
    pub only_command: bool,
    /// The children, too, of the processes and the command above.
    pub children: bool,
    /// What a thread has to be: one of the values of each attribute that is named here, of which an empty
    /// list has none.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Vec<String>>, default = json!({})))]
    pub track: TraitSpec,
    /// Containers, machines and systemd units: more values of [`Attribute::Cgroup`].
    pub containers: Vec<String>,
    /// What a thread must not be: any of the values.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Vec<String>>, default = json!({})))]
    pub exclude: TraitSpec,
    /// Whether `track` changes while the recording goes on (a library does that). It costs a few instructions
    /// of each event.
    #[serde(skip_serializing_if = "is_false")]
    pub changes: bool,
    /// Only what fires on these CPUs, as a list (`0-3,8`); all CPUs where nothing is said.
    #[serde(with = "text::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, default = json!(null)))]
    pub cpus: Option<CpuSet>,
    /// The recorder's own threads, too.
    pub own_threads: bool,
}

impl ScopeSpec {
    /// Whether threads are chosen by what they are.
    pub fn has_traits(&self) -> bool {
        !self.track.is_empty()
            || !self.containers.is_empty()
            || self.exclude.values().any(|values| !values.is_empty())
    }

    /// What is recorded beside what attributes choose, in a few words: each leaves out others.
    pub fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        let with_children = if self.children { " with their children" } else { "" };
        let ids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let processes = (!ids.is_empty()).then(|| format!("processes {}", ids.join(", ")));
        let command = self.only_command.then(|| "the command".to_owned());
        let chosen: Vec<String> = processes.into_iter().chain(command).collect();
        if !chosen.is_empty() {
            told.push(chosen.join(" and ") + with_children);
        }
        told.extend(self.cpus.as_ref().map(|cpus| format!("CPUs {cpus}")));
        told
    }
}

/// When a recording begins and ends by itself, and what counts as failed.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSpec {
    /// With the first match of this event after everything is attached; at once where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_on: Option<WhenSpec>,
    /// With the first match of this event after it has begun. It need not be recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_on: Option<WhenSpec>,
    /// After so many nanoseconds, counted from when it begins.
    pub duration_ns: Option<u64>,
    /// The most events that may be lost.
    pub max_lost: Option<u64>,
}

/// An event at which something happens.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhenSpec {
    /// One of the kernel, or of a probe that is recorded.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub when: EventSelector,
    /// Only a firing that matches counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// When a file is closed and the next one begun. Each is complete, and named by the times of its begin and
/// end and its number (`20260302T101500+0000-20260302T101600+0000-1.dat`).
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotationSpec {
    /// When so many bytes of data are stored.
    pub size_bytes: Option<u64>,
    /// After so many nanoseconds.
    pub period_ns: Option<u64>,
    /// How many of the newest files are kept; all where nothing is said.
    pub keep: Option<u64>,
}

/// The file.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileSpec {
    /// Where it goes. With a [rotation](RecordingSpec::rotation) it is the directory of the files, and of a
    /// [trace](TraceFormat) its own, which nothing else is in. It is created if it is not there.
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "trace.dat"))]
    pub path: PathBuf,
    /// What is written.
    #[serde(skip_serializing_if = "is_default")]
    pub format: TraceFormat,
    /// Of a trace that others read in the order of time while it is written, nanoseconds that an event waits
    /// at most for its packet to be complete; `None` if nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_ns: Option<u64>,
    /// `none`, `zstd`, `zstd:LEVEL`, or `auto`: next to no effort while a ring is more than half full.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "zstd"))]
    pub compression: Compression,
    /// The clock of the time stamps: `mono`, `boot` or `tai`.
    #[serde(with = "text")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "mono"))]
    pub clock: TraceClock,
    /// Store the offset of the clock to wall-clock time.
    pub date: bool,
    /// Store the formats of all events, not only those of the recorded systems.
    pub all_formats: bool,
    /// When the kernel's symbols are stored.
    pub kallsyms: Kallsyms,
    /// Store the memory maps of the processes of [`ScopeSpec::pids`].
    pub proc_map: bool,
}

impl Default for FileSpec {
    fn default() -> Self {
        Self {
            path: PathBuf::from("trace.dat"),
            format: TraceFormat::default(),
            live_ns: None,
            compression: Compression::default(),
            clock: TraceClock::default(),
            date: false,
            all_formats: false,
            kallsyms: Kallsyms::default(),
            proc_map: false,
        }
    }
}

/// What a recording is written as.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// A trace.dat, when it ends or its file is closed.
    #[default]
    Dat,
    /// A trace in the layout and with the names of a kernel session of LTTng 2.13, while it is recorded.
    Lttng,
    /// The same in the Common Trace Format 1.8 with the kernel's own names.
    Ctf,
    /// The same in the Common Trace Format 2 with the kernel's own names.
    Ctf2,
}

/// When the kernel's symbols are stored. They are the largest part of a small file.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kallsyms {
    /// When a recorded event prints a symbol.
    #[default]
    Auto,
    /// Always.
    Full,
    /// Never.
    None,
}

impl Kallsyms {
    /// Whether they are wanted, given whether a symbol is printed.
    pub fn wanted(self, printed: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Auto => printed(),
            Self::Full => true,
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_told() {
        assert_eq!(ScopeSpec::default().told(), Vec::<String>::new());
        let scope = ScopeSpec {
            pids: vec![3, 4],
            only_command: true,
            children: true,
            cpus: CpuSet::parse_list("0-2").ok(),
            ..ScopeSpec::default()
        };
        assert_eq!(scope.told(), ["processes 3, 4 and the command with their children", "CPUs 0-2"]);
    }
}
