//! A session as a file.

use super::super::address::is_relay;
use super::super::document::Node;
use super::super::{context, nodes, text};
use super::NAMESPACE;
use api::session::SessionDomain;
use api::track::Attribute;
use api::{
    Channel, Domain, EventRule, Format, Instrumentation, LogLevel, Session, SessionMode, SnapshotOutput,
    SyscallPart, Tracked, Tracker,
};

/// The text of a file with this session.
///
/// # Errors
/// A text of it has a character that no XML document can have.
pub(in super::super) fn file(session: &Session) -> Result<String, String> {
    let session = self::session(session);
    if let Some(text) = session.find_unwritable() {
        return Err(format!("a file of a session cannot have the text {text:?}: XML has no such character"));
    }
    let mut body = String::new();
    Node::Items("sessions", vec![session]).write_lines(0, &mut body);
    // LTTng refuses files with namespaces that they do not need.
    if body.contains("<tracer-agent:") {
        body = body.replacen("<sessions>", &format!("<sessions xmlns:tracer-agent=\"{NAMESPACE}\">"), 1);
    }
    Ok(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}"))
}

fn session(of: &Session) -> Node {
    let mut parts = vec![Node::text("name", &of.summary.name)];
    if !of.domains.is_empty() {
        parts.push(Node::Items("domains", of.domains.iter().map(domain).collect()));
    }
    parts.push(Node::Flag("started", of.summary.active));
    let mut attributes = Vec::new();
    match &of.summary.mode {
        SessionMode::Snapshot => attributes.push(Node::Flag("snapshot_mode", true)),
        SessionMode::Live { timer_us, .. } | SessionMode::Served { timer_us, .. } => {
            attributes.push(Node::number("live_timer_interval", *timer_us));
        }
        SessionMode::Local { .. } | SessionMode::Network { .. } => {}
    }
    if !of.schedules.is_empty() {
        attributes
            .push(Node::Kinds("rotation_schedules", of.schedules.iter().map(nodes::schedule).collect()));
    }
    if !attributes.is_empty() {
        parts.push(Node::Parts("attributes", attributes));
    }
    parts.push(Node::Parts("output", vec![output(of)]));
    if of.summary.format != Format::Lttng {
        parts.push(Node::text("tracer-agent:format", "trace-dat"));
    }
    Node::Parts("session", parts)
}

fn consumer_output(destination: Node) -> Node {
    let destination = Node::Parts("destination", vec![destination]);
    Node::Parts("consumer_output", vec![Node::Flag("enabled", true), destination])
}

fn output(of: &Session) -> Node {
    match &of.summary.mode {
        // A session without output may take snapshots, too.
        SessionMode::Local { output: None } if of.snapshot_outputs.is_empty() => {
            consumer_output(Node::text("path", String::new()))
        }
        SessionMode::Snapshot | SessionMode::Local { output: None } => {
            Node::Items("snapshot_outputs", of.snapshot_outputs.iter().map(snapshot_output).collect())
        }
        SessionMode::Local { .. } | SessionMode::Served { .. } => {
            consumer_output(Node::text("path", text::output(&of.summary.mode)))
        }
        SessionMode::Network { url } | SessionMode::Live { url, .. } => consumer_output(net_output(url)),
    }
}

fn net_output(url: &str) -> Node {
    Node::Parts("net_output", vec![Node::text("control_uri", url), Node::text("data_uri", url)])
}

fn snapshot_output(of: &SnapshotOutput) -> Node {
    let parts = vec![
        Node::text("name", of.name.clone().unwrap_or_default()),
        Node::number("max_size", of.max_size.unwrap_or_default()),
        consumer_output(match of.path.to_str().filter(|_| is_relay(&of.path)) {
            Some(url) => net_output(url),
            None => Node::text("path", of.path.display().to_string()),
        }),
    ];
    Node::Parts("output", parts)
}

fn domain(of: &SessionDomain) -> Node {
    let is_lttng = |tracker: &&Tracker| !matches!(tracker.attribute, Attribute::Cgroup | Attribute::Comm);
    let choosing = of.trackers.iter().filter(|tracker| tracker.tracked != Tracked::All);
    let (known, own): (Vec<_>, Vec<_>) = choosing.partition(is_lttng);
    let mut parts = vec![
        Node::text("type", nodes::domain_type(of.domain)),
        Node::text("buffer_type", nodes::buffers(of)),
        Node::Items(
            "channels",
            of.channels.iter().map(|channel| self::channel(of.domain, channel)).collect(),
        ),
        Node::Kinds("process_attr_trackers", known.into_iter().map(tracker).collect()),
    ];
    if !own.is_empty() {
        parts.push(Node::Items("tracer-agent:trackers", own.into_iter().map(own_tracker).collect()));
    }
    Node::Parts("domain", parts)
}

fn values(tracker: &Tracker) -> &[String] {
    match &tracker.tracked {
        Tracked::All => &[],
        Tracked::Only(values) => values,
    }
}

fn tracker(tracker: &Tracker) -> Node {
    let (of, name) = nodes::attribute(tracker.attribute);
    let value = |value: &String| {
        let value = match value.parse::<u32>() {
            Ok(id) => Node::number("id", id),
            Err(_) => Node::text("name", value),
        };
        Node::Parts(name, vec![value])
    };
    Node::Parts(of, vec![Node::Items("process_attr_values", values(tracker).iter().map(value).collect())])
}

fn own_tracker(tracker: &Tracker) -> Node {
    let mut parts = vec![Node::text("tracer-agent:attribute", nodes::attribute(tracker.attribute).1)];
    parts.extend(values(tracker).iter().map(|value| Node::text("tracer-agent:value", value)));
    Node::Parts("tracer-agent:tracker", parts)
}

fn channel(domain: Domain, of: &Channel) -> Node {
    let attributes = &of.attributes;
    let number = |name, value: Option<u64>| Node::number(name, value.unwrap_or_default());
    let Some(Node::Parts(_, shown)) = nodes::channel(of).pop() else { return Node::Parts("channel", vec![]) };
    let text_of = |name: &str| {
        let found = shown.iter().find(|node| matches!(node, Node::Text(is, _) if *is == name));
        found.cloned()
    };
    let mut parts = vec![Node::text("name", &of.name), Node::Flag("enabled", of.enabled)];
    parts.extend(text_of("overwrite_mode"));
    parts.extend([
        number("subbuffer_size", attributes.subbuf_size),
        number("subbuffer_count", attributes.num_subbuf),
        number("switch_timer_interval", attributes.switch_timer_us),
        number("read_timer_interval", attributes.read_timer_us),
    ]);
    parts.extend(text_of("output_type"));
    if domain == Domain::User {
        let timeout = attributes.blocking_timeout_us.unwrap_or_default();
        parts.push(Node::number("blocking_timeout", timeout));
    }
    let context = |name: &String| {
        let is_lttng = context::has_node(name);
        let node = if is_lttng { context::node(name) } else { Node::text("tracer-agent:context", name) };
        Node::Parts("context", vec![node])
    };
    parts.extend([
        number("monitor_timer_interval", attributes.monitor_timer_us),
        number("tracefile_size", attributes.tracefile_size),
        number("tracefile_count", attributes.tracefile_count),
        Node::number("live_timer_interval", 0),
        Node::Items("events", of.rules.iter().map(rule).collect()),
        Node::Items("contexts", of.contexts.iter().map(context).collect()),
    ]);
    Node::Parts("channel", parts)
}

fn rule(of: &EventRule) -> Node {
    let EventRule { name, instrumentation, enabled, filter, exclusions, log_level } = of;
    let mut parts = vec![
        Node::text("name", name),
        Node::Flag("enabled", *enabled),
        Node::text("type", nodes::kind(instrumentation)),
    ];
    let (how, level) = match log_level {
        None => ("ALL", None),
        Some(LogLevel::AtLeast(level)) => ("RANGE", Some(*level)),
        Some(LogLevel::Only(level)) => ("SINGLE", Some(*level)),
    };
    parts.push(Node::text("loglevel_type", how));
    parts.extend(level.map(|level| Node::number("loglevel", level)));
    parts.extend(filter.as_ref().map(|filter| Node::text("filter", filter)));
    if !exclusions.is_empty() {
        let exclusions = exclusions.iter().map(|of| Node::text("exclusion", of)).collect();
        parts.push(Node::Items("exclusions", exclusions));
    }
    parts.extend(nodes::attributes_of(instrumentation).map(|of| Node::Parts("attributes", vec![of])));
    let part = match instrumentation {
        Instrumentation::Syscall(SyscallPart::Entry) => Some("entry"),
        Instrumentation::Syscall(SyscallPart::Exit) => Some("exit"),
        _ => None,
    };
    parts.extend(part.map(|part| Node::text("tracer-agent:syscall_part", part)));
    Node::Parts("event", parts)
}
