//! Sessions as parts of documents, as LTTng's machine interface has them.

use super::address::{shown_data, shown_place};
use super::document::Node;
use super::{level, text, units};
use api::session::SessionDomain;
use api::track::Attribute;
use api::{
    Buffers, Channel, ChannelAttributes, Domain, EventLoss, EventRule, FieldInfo, Instrumentation,
    InstrumentationPoint, LogLevel, OutputMethod, Schedule, Session, SessionMode, SnapshotOutput, Summary,
    Tracked, Tracker, UserProbe,
};

/// What all say of a session.
pub(crate) fn summary(summary: &Summary) -> Vec<Node> {
    let is_snapshot = summary.mode == SessionMode::Snapshot;
    vec![
        Node::text("name", &summary.name),
        Node::text("path", text::output(&summary.mode)),
        Node::Flag("enabled", summary.active),
        Node::number("snapshot_mode", u8::from(is_snapshot)),
        Node::number("live_timer_interval", text::live_timer(&summary.mode)),
    ]
}

/// A session of a list.
pub(crate) fn session(of: &Summary) -> Node {
    Node::Parts("session", summary(of))
}

/// A session, with its domains and, where `channels` has some to say, their channels.
pub(crate) fn whole(of: &Session, channels: Option<&dyn Fn(&Channel) -> bool>) -> Node {
    let mut parts = summary(&of.summary);
    if !of.schedules.is_empty() {
        parts.push(Node::Kinds("rotation_schedules", of.schedules.iter().map(schedule).collect()));
    }
    let domains = of.domains.iter().map(|of| domain(of, channels)).collect();
    parts.push(Node::Items("domains", domains));
    Node::Parts("session", parts)
}

/// A schedule of rotations.
pub(super) fn schedule(schedule: &Schedule) -> Node {
    match schedule {
        Schedule::PeriodUs(us) => Node::Parts("periodic", vec![Node::number("time_us", *us)]),
        Schedule::SizeBytes(bytes) => Node::Parts("size_threshold", vec![Node::number("bytes", *bytes)]),
    }
}

/// The name of a domain.
pub(super) fn domain_type(domain: Domain) -> &'static str {
    match domain {
        Domain::Kernel => "KERNEL",
        Domain::User => "UST",
    }
}

/// Whose events share rings.
pub(super) fn buffers(of: &SessionDomain) -> &'static str {
    match of.channels.first().and_then(|channel| channel.attributes.buffers).unwrap_or_default() {
        Buffers::Global => "GLOBAL",
        Buffers::Uid => "PER_UID",
        Buffers::Pid => "PER_PID",
    }
}

fn domain(of: &SessionDomain, channels: Option<&dyn Fn(&Channel) -> bool>) -> Node {
    let mut parts = vec![Node::text("type", domain_type(of.domain)), Node::text("buffer_type", buffers(of))];
    if let Some(wanted) = channels {
        let choosing = of.trackers.iter().filter(|tracker| tracker.tracked != Tracked::All);
        parts.push(Node::Kinds("process_attr_trackers", choosing.map(tracker).collect()));
        let channels = of.channels.iter().filter(|channel| wanted(channel));
        parts.push(Node::Items("channels", channels.map(channel_with_rules).collect()));
    }
    Node::Parts("domain", parts)
}

/// The names of an attribute's tracker, and of its values.
pub(super) fn attribute(attribute: Attribute) -> (&'static str, &'static str) {
    match attribute {
        Attribute::Pid => ("pid_process_attr_tracker", "pid"),
        Attribute::Vpid => ("vpid_process_attr_tracker", "vpid"),
        Attribute::Uid => ("uid_process_attr_tracker", "uid"),
        Attribute::Vuid => ("vuid_process_attr_tracker", "vuid"),
        Attribute::Gid => ("gid_process_attr_tracker", "gid"),
        Attribute::Vgid => ("vgid_process_attr_tracker", "vgid"),
        Attribute::Cgroup => ("cgroup_process_attr_tracker", "cgroup"),
        Attribute::Comm => ("comm_process_attr_tracker", "comm"),
    }
}

/// A value of an attribute: a number, or a name.
pub(crate) fn value(attribute_of: Attribute, value: &str, success: Option<bool>) -> Node {
    let kind = match value.parse::<u64>() {
        Ok(number) => Node::number("id", number),
        Err(_) => Node::text("name", value),
    };
    let mut parts = vec![Node::Parts("type", vec![kind])];
    parts.extend(success.map(Node::success));
    Node::Parts(attribute(attribute_of).1, parts)
}

fn tracker(tracker: &Tracker) -> Node {
    let values = match &tracker.tracked {
        Tracked::All => Vec::new(),
        Tracked::Only(values) => values.iter().map(|of| value(tracker.attribute, of, None)).collect(),
    };
    Node::Parts(attribute(tracker.attribute).0, vec![Node::Items("process_attr_values", values)])
}

/// The attributes of a channel, with what was lost of its events.
fn attributes(of: &ChannelAttributes, discarded: u64, lost_packets: u64) -> Node {
    let number = |name, value: Option<u64>| Node::number(name, value.unwrap_or_default());
    Node::Parts(
        "attributes",
        vec![
            Node::text(
                "overwrite_mode",
                match of.event_loss.unwrap_or_default() {
                    EventLoss::Discard => "DISCARD",
                    EventLoss::Overwrite => "OVERWRITE",
                },
            ),
            number("subbuffer_size", of.subbuf_size),
            number("subbuffer_count", of.num_subbuf),
            number("switch_timer_interval", of.switch_timer_us),
            number("read_timer_interval", of.read_timer_us),
            number("monitor_timer_interval", of.monitor_timer_us),
            Node::number("blocking_timeout", of.blocking_timeout_us.unwrap_or_default()),
            Node::text(
                "output_type",
                match of.output.unwrap_or_default() {
                    OutputMethod::Splice => "SPLICE",
                    OutputMethod::Mmap => "MMAP",
                },
            ),
            number("tracefile_size", of.tracefile_size),
            number("tracefile_count", of.tracefile_count),
            Node::number("live_timer_interval", 0),
            Node::number("discarded_events", discarded),
            Node::number("lost_packets", lost_packets),
        ],
    )
}

/// A channel without its rules.
pub(super) fn channel(of: &Channel) -> Vec<Node> {
    let Channel { name, enabled, attributes: is, discarded, lost_packets, contexts: _, rules: _ } = of;
    vec![Node::text("name", name), Node::Flag("enabled", *enabled), attributes(is, *discarded, *lost_packets)]
}

fn channel_with_rules(of: &Channel) -> Node {
    let mut parts = channel(of);
    let rules = of.rules.iter().map(|of| Node::Parts("event", rule(of))).collect();
    parts.push(Node::Items("events", rules));
    Node::Parts("channel", parts)
}

/// The name of a kind of instrumentation.
pub(super) fn kind(of: &Instrumentation) -> &'static str {
    match of {
        Instrumentation::Tracepoint => "TRACEPOINT",
        Instrumentation::Syscall(_) => "SYSCALL",
        Instrumentation::Kprobe { .. } => "PROBE",
        Instrumentation::Function { .. } => "FUNCTION",
        Instrumentation::UserProbe(_) => "USERSPACE_PROBE",
    }
}

/// An event rule.
pub(crate) fn rule(of: &EventRule) -> Vec<Node> {
    let EventRule { name, instrumentation, enabled, filter, exclusions, log_level } = of;
    let mut parts = vec![
        Node::text("name", name),
        Node::text("type", kind(instrumentation)),
        Node::Flag("enabled", *enabled),
    ];
    if let Some(filter) = filter {
        parts.push(Node::text("filter_expression", filter));
    }
    if let Some(of) = log_level {
        let (of, how) = match of {
            LogLevel::AtLeast(of) => (of, "RANGE"),
            LogLevel::Only(of) => (of, "SINGLE"),
        };
        parts.push(Node::text("loglevel", level::name(*of)));
        parts.push(Node::text("loglevel_type", how));
    }
    let exclusion = |of: &String| Node::text("exclusion", of);
    match instrumentation {
        // Only these have them in LTTng.
        Instrumentation::Tracepoint => {
            parts.push(Node::Items("exclusions", exclusions.iter().map(exclusion).collect()));
        }
        place => parts.extend(attributes_of(place).map(|place| Node::Parts("attributes", vec![place]))),
    }
    parts
}

/// The place of a probe, as documents and files have it.
pub(super) fn attributes_of(of: &Instrumentation) -> Option<Node> {
    let probe = |name, location: &str| {
        let parts = match (units::number(location), location.split_once('+')) {
            (Some(address), _) => vec![Node::number("address", address)],
            (None, Some((symbol, offset))) => {
                vec![
                    Node::text("symbol_name", symbol),
                    Node::number("offset", units::number(offset).unwrap_or_default()),
                ]
            }
            (None, None) => vec![Node::text("symbol_name", location), Node::number("offset", 0)],
        };
        Node::Parts(name, parts)
    };
    match of {
        Instrumentation::Tracepoint | Instrumentation::Syscall(_) => None,
        Instrumentation::Kprobe { location } | Instrumentation::Function { location } => {
            Some(probe("probe_attributes", location))
        }
        Instrumentation::UserProbe(UserProbe::Elf { path, symbol }) => Some(Node::Parts(
            "userspace_probe_function_attributes",
            vec![
                Node::text("lookup_method", "ELF"),
                Node::text("binary_path", path),
                Node::text("function_name", symbol),
            ],
        )),
        Instrumentation::UserProbe(UserProbe::Sdt { path, provider, name }) => Some(Node::Parts(
            "userspace_probe_tracepoint_attributes",
            vec![
                Node::text("lookup_method", "SDT"),
                Node::text("binary_path", path),
                Node::text("probe_name", name),
                Node::text("provider_name", provider),
            ],
        )),
    }
}

/// An output for snapshots in a list.
pub(crate) fn snapshot_output(of: &SnapshotOutput) -> Node {
    Node::Parts(
        "snapshot",
        vec![
            Node::number("id", of.id),
            Node::text("name", of.name.clone().unwrap_or_default()),
            Node::text("ctrl_url", shown_place(&of.path)),
            Node::text("data_url", shown_data(&of.path)),
            Node::number("max_size", of.max_size.unwrap_or_default()),
        ],
    )
}

/// What there is to record.
pub(crate) fn points(domain: Domain, points: &[InstrumentationPoint]) -> Node {
    let field = |FieldInfo { name, kind }: &FieldInfo| {
        Node::Parts("event_field", vec![Node::text("name", name), Node::text("type", kind)])
    };
    let point = |of: &InstrumentationPoint| {
        let mut parts = vec![
            Node::text("name", &of.name),
            Node::text("type", kind(&of.instrumentation)),
            Node::Flag("enabled", false),
        ];
        if !of.fields.is_empty() {
            parts.push(Node::Items("event_fields", of.fields.iter().map(field).collect()));
        }
        Node::Parts("event", parts)
    };
    let events = Node::Items("events", points.iter().map(point).collect());
    let domain = vec![Node::text("type", domain_type(domain)), Node::text("buffer_type", "GLOBAL"), events];
    Node::Items("domains", vec![Node::Parts("domain", domain)])
}
