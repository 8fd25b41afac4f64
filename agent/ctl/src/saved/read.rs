//! Files of sessions, read. They are anybody's: what is not understood is refused, and nothing in a file
//! makes more of it than its size.

use roxmltree::{Document, Node, ParsingOptions};

use super::super::address::{Address, Relay};
use super::super::context;
use super::{NAMESPACE, Saved, SavedChannel};
use api::requests::{NewChannel, Track};
use api::track::Attribute;
use api::{
    Buffers, ChannelAttributes, Domain, EventLoss, EventRule, Format, Instrumentation, LogLevel, NewSession,
    OutputMethod, Schedule, SessionMode, SnapshotOutput, SyscallPart, Tracked, UserProbe,
};

/// The largest file: 100 channels with 1000 event rules each have 40 MB.
pub(crate) const LARGEST: u64 = 64 << 20;

/// The most elements and texts of a file.
const MOST_NODES: u32 = 4 << 20;

type Read<T> = Result<T, String>;

/// The sessions of a file.
pub(in super::super) fn sessions(text: &str) -> Read<Vec<Saved>> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| error.to_string())?;
    let root = document.root_element();
    if root.tag_name().name() != "sessions" {
        return Err(format!("its root is <{}>, not <sessions>", root.tag_name().name()));
    }
    elements(root, "session").map(session).collect()
}

/// The elements of a name within another; of LTTng's, which have no namespace.
fn elements<'a, 'input: 'a>(
    of: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    of.children().filter(move |node| node.has_tag_name(name))
}

fn element<'a, 'input: 'a>(of: Node<'a, 'input>, name: &'static str) -> Option<Node<'a, 'input>> {
    elements(of, name).next()
}

/// The same of our own.
fn own<'a, 'input: 'a>(of: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    of.children().find(|node| node.has_tag_name((NAMESPACE, name)))
}

/// What is written in an element, with the blanks around it: those of names count.
fn text_of<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default()
}

fn text<'a>(of: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    element(of, name).map(text_of)
}

/// The same of numbers and of words that are given, whose blanks do not.
fn word<'a>(of: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    text(of, name).map(str::trim)
}

fn own_word<'a>(node: Node<'a, '_>) -> &'a str {
    text_of(node).trim()
}

fn needed<'a>(of: Node<'a, '_>, name: &'static str) -> Read<&'a str> {
    text(of, name).ok_or_else(|| format!("<{}> has no <{name}>", of.tag_name().name()))
}

fn number<T: std::str::FromStr>(of: Node<'_, '_>, name: &'static str) -> Read<Option<T>> {
    let parse = |text: &str| text.parse().map_err(|_| format!("<{name}> is not a number: {text:?}"));
    word(of, name).map(parse).transpose()
}

fn flag(of: Node<'_, '_>, name: &'static str, default: bool) -> Read<bool> {
    match word(of, name) {
        None => Ok(default),
        Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => Err(format!("<{name}> is true or false, not {other:?}")),
    }
}

fn session(of: Node<'_, '_>) -> Read<Saved> {
    let name = needed(of, "name")?.to_owned();
    let attributes = element(of, "attributes");
    let is_snapshot = attributes.map_or(Ok(false), |of| flag(of, "snapshot_mode", false))?;
    let live = attributes.map_or(Ok(None), |of| number::<u64>(of, "live_timer_interval"))?;
    let mut snapshot_outputs = snapshot_outputs(of)?;
    let mode = match live.filter(|timer| *timer > 0) {
        _ if is_snapshot => SessionMode::Snapshot,
        Some(timer_us) => live_mode(destination(of)?, timer_us)?,
        None => match destination(of)? {
            Some(Address::Relay(relay)) => SessionMode::Network { url: relay.url() },
            Some(Address::Local(path)) => SessionMode::Local { output: Some(path) },
            None => SessionMode::Local { output: None },
        },
    };
    // A new session names its first output itself.
    let is_plain =
        |output: &SnapshotOutput| output.name.as_deref() == Some("snapshot-1") && output.max_size.is_none();
    let snapshot_output = match snapshot_outputs.first() {
        Some(first) if is_plain(first) => Some(snapshot_outputs.remove(0).path),
        _ => None,
    };
    let format = match own(of, "format").map(own_word) {
        None | Some("lttng") => Format::Lttng,
        Some("trace-dat") => Format::TraceDat,
        Some(other) => return Err(format!("the format {other:?} is not known")),
    };
    let (mut channels, mut trackers) = (Vec::new(), Vec::new());
    for domain in element(of, "domains").into_iter().flat_map(|of| elements(of, "domain")) {
        read_domain(domain, &mut channels, &mut trackers)?;
    }
    let schedules = attributes.and_then(|of| element(of, "rotation_schedules"));
    Ok(Saved {
        session: NewSession {
            name: Some(name),
            mode,
            snapshot_output,
            format,
            state_by_rule: format == Format::Lttng,
        },
        channels,
        trackers,
        schedules: schedules.map(self::schedules).transpose()?.unwrap_or_default(),
        snapshot_outputs,
        started: flag(of, "started", false)?,
    })
}

fn live_mode(address: Option<Address>, timer_us: u64) -> Read<SessionMode> {
    match address {
        Some(Address::Relay(relay)) => Ok(SessionMode::Live { url: relay.url(), timer_us }),
        Some(Address::Local(output)) => Ok(SessionMode::Served { output, timer_us }),
        None => Err("a live session has no output".to_owned()),
    }
}

/// Where a session writes to; nothing for one that does not write.
fn destination(of: Node<'_, '_>) -> Read<Option<Address>> {
    let output = element(of, "output").and_then(|of| element(of, "consumer_output"));
    output.map_or(Ok(None), address)
}

fn address(consumer_output: Node<'_, '_>) -> Read<Option<Address>> {
    let Some(destination) = element(consumer_output, "destination") else { return Ok(None) };
    if let Some(net) = element(destination, "net_output") {
        let (control, data) = (needed(net, "control_uri")?, needed(net, "data_uri")?);
        let both = if control == data { Address::parse(control) } else { None };
        let both = both.or_else(|| Relay::of_both(control, data).map(Address::Relay));
        return both.map(Some).ok_or_else(|| format!("{control:?} with {data:?} is no relay daemon"));
    }
    match text(destination, "path") {
        None | Some("") => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(Address::Local(path.into()))),
        Some(path) => Err(format!("the path {path:?} is not absolute")),
    }
}

fn snapshot_outputs(of: Node<'_, '_>) -> Read<Vec<SnapshotOutput>> {
    let Some(outputs) = element(of, "output").and_then(|of| element(of, "snapshot_outputs")) else {
        return Ok(Vec::new());
    };
    let read = |of: Node<'_, '_>| {
        let Some(to) = element(of, "consumer_output").map(address).transpose()?.flatten() else {
            return Err("an output for snapshots has no place".to_owned());
        };
        let path = to.place();
        let name = text(of, "name").filter(|name| !name.is_empty()).map(str::to_owned);
        let max_size = number(of, "max_size")?.filter(|size| *size > 0);
        Ok(SnapshotOutput { id: 0, name, path, max_size })
    };
    elements(outputs, "output").map(read).collect()
}

fn schedules(of: Node<'_, '_>) -> Read<Vec<Schedule>> {
    let timer = elements(of, "periodic").map(|of| Ok(number(of, "time_us")?.map(Schedule::PeriodUs)));
    let size = elements(of, "size_threshold").map(|of| Ok(number(of, "bytes")?.map(Schedule::SizeBytes)));
    timer.chain(size).filter_map(Read::transpose).collect()
}

fn read_domain(
    of: Node<'_, '_>,
    channels: &mut Vec<SavedChannel>,
    trackers: &mut Vec<(Domain, Track)>,
) -> Read<()> {
    let all_channels = || element(of, "channels").into_iter().flat_map(|of| elements(of, "channel"));
    let domain = match needed(of, "type")?.trim() {
        "KERNEL" => Domain::Kernel,
        "UST" => Domain::User,
        // LTTng saves them in each session, without channels.
        "JUL" | "LOG4J" | "PYTHON" if all_channels().next().is_none() => return Ok(()),
        other => return Err(format!("the domain {other} is not supported")),
    };
    let buffers = match word(of, "buffer_type") {
        Some("PER_PID") => Some(Buffers::Pid),
        Some("PER_UID") => Some(Buffers::Uid),
        Some("GLOBAL") => Some(Buffers::Global),
        None => None,
        Some(other) => return Err(format!("the buffering scheme {other:?} is not known")),
    };
    for channel in all_channels() {
        channels.push(self::channel(channel, domain, buffers)?);
    }
    for (attribute, tracker, name) in [
        (Attribute::Pid, "pid_process_attr_tracker", "pid"),
        (Attribute::Vpid, "vpid_process_attr_tracker", "vpid"),
        (Attribute::Uid, "uid_process_attr_tracker", "uid"),
        (Attribute::Vuid, "vuid_process_attr_tracker", "vuid"),
        (Attribute::Gid, "gid_process_attr_tracker", "gid"),
        (Attribute::Vgid, "vgid_process_attr_tracker", "vgid"),
    ] {
        let found = element(of, "process_attr_trackers").and_then(|of| element(of, tracker));
        let Some(values) = found.and_then(|of| element(of, "process_attr_values")) else { continue };
        let value = |of| word(of, "id").or_else(|| text(of, "name")).map(str::to_owned);
        let values: Option<Vec<_>> = elements(values, name).map(value).collect();
        let values = values.ok_or_else(|| format!("a <{name}> has neither an id nor a name"))?;
        trackers.extend(inclusion(attribute, values).map(|track| (domain, track)));
    }
    for tracker in own(of, "trackers").into_iter().flat_map(|of| of.children()).filter(Node::is_element) {
        let attribute = match own(tracker, "attribute").map(own_word) {
            Some("cgroup") => Attribute::Cgroup,
            Some("comm") => Attribute::Comm,
            other => return Err(format!("the attribute {other:?} is not known")),
        };
        let values = tracker.children().filter(|node| node.has_tag_name((NAMESPACE, "value")));
        let values = values.map(|value| text_of(value).to_owned()).collect();
        trackers.extend(inclusion(attribute, values).map(|track| (domain, track)));
    }
    Ok(())
}

/// What makes a set of values of an attribute: none first, then these.
fn inclusion(attribute: Attribute, values: Vec<String>) -> impl Iterator<Item = Track> {
    let none = Track { attribute, values: Tracked::All, add: false };
    let these = (!values.is_empty()).then_some(Track { attribute, values: Tracked::Only(values), add: true });
    std::iter::once(none).chain(these)
}

fn channel(of: Node<'_, '_>, domain: Domain, buffers: Option<Buffers>) -> Read<SavedChannel> {
    let event_loss = match word(of, "overwrite_mode") {
        None => None,
        Some("DISCARD") => Some(EventLoss::Discard),
        Some("OVERWRITE") => Some(EventLoss::Overwrite),
        Some(other) => return Err(format!("<overwrite_mode> is not known: {other:?}")),
    };
    let output = match word(of, "output_type") {
        None => None,
        Some("MMAP") => Some(OutputMethod::Mmap),
        Some("SPLICE") => Some(OutputMethod::Splice),
        Some(other) => return Err(format!("<output_type> is not known: {other:?}")),
    };
    let attributes = ChannelAttributes {
        event_loss,
        subbuf_size: number(of, "subbuffer_size")?,
        num_subbuf: number(of, "subbuffer_count")?,
        switch_timer_us: number(of, "switch_timer_interval")?,
        read_timer_us: number(of, "read_timer_interval")?,
        monitor_timer_us: number(of, "monitor_timer_interval")?,
        blocking_timeout_us: number(of, "blocking_timeout")?,
        output,
        tracefile_size: number(of, "tracefile_size")?,
        tracefile_count: number(of, "tracefile_count")?,
        buffers,
    };
    let contexts = element(of, "contexts").into_iter().flat_map(|of| elements(of, "context"));
    let rules = element(of, "events").into_iter().flat_map(|of| elements(of, "event"));
    Ok(SavedChannel {
        domain,
        new: NewChannel { name: needed(of, "name")?.to_owned(), attributes, rules: Vec::new() },
        enabled: flag(of, "enabled", true)?,
        contexts: contexts.map(context_of).collect::<Read<_>>()?,
        rules: rules.map(rule).collect::<Read<_>>()?,
    })
}

fn context_of(of: Node<'_, '_>) -> Read<String> {
    if let Some(name) = own(of, "context") {
        return Ok(text_of(name).to_owned());
    }
    if let Some(kind) = word(of, "type") {
        return context::of_type(kind).ok_or_else(|| format!("the context {kind} is not known"));
    }
    if let Some(app) = element(of, "app") {
        return Ok(format!("$app.{}:{}", needed(app, "provider_name")?, needed(app, "ctx_name")?));
    }
    let perf = element(of, "perf").ok_or("a <context> has no type")?;
    let name = needed(perf, "name")?.trim();
    let raw = name.strip_prefix("perf_").and_then(|rest| {
        let (of, rest) = rest.split_once("_raw_r")?;
        let (number, name) = rest.split_once('_')?;
        Some(format!("perf:{of}:raw:r{number}:{name}"))
    });
    let raw = raw.filter(|name| context::is_known(name));
    context::of_counter(name).or(raw).ok_or_else(|| format!("the counter {name} is not known"))
}

fn rule(of: Node<'_, '_>) -> Read<EventRule> {
    let name = text(of, "name").unwrap_or("*").to_owned();
    let level = || number::<u8>(of, "loglevel")?.ok_or_else(|| format!("{name} has no <loglevel>"));
    let log_level = match word(of, "loglevel_type") {
        None | Some("ALL") => None,
        Some("RANGE") => Some(LogLevel::AtLeast(level()?)),
        Some("SINGLE") => Some(LogLevel::Only(level()?)),
        Some(other) => return Err(format!("<loglevel_type> is not known: {other:?}")),
    };
    let exclusions = element(of, "exclusions").into_iter().flat_map(|of| elements(of, "exclusion"));
    Ok(EventRule {
        instrumentation: instrumentation(of)?,
        enabled: flag(of, "enabled", true)?,
        filter: text(of, "filter").filter(|filter| !filter.is_empty()).map(str::to_owned),
        exclusions: exclusions.map(|of| text_of(of).to_owned()).collect(),
        log_level,
        name,
    })
}

fn instrumentation(of: Node<'_, '_>) -> Read<Instrumentation> {
    let attributes = element(of, "attributes");
    match word(of, "type").unwrap_or("TRACEPOINT") {
        "TRACEPOINT" => Ok(Instrumentation::Tracepoint),
        "SYSCALL" => Ok(Instrumentation::Syscall(match own(of, "syscall_part").map(own_word) {
            None => SyscallPart::Both,
            Some("entry") => SyscallPart::Entry,
            Some("exit") => SyscallPart::Exit,
            Some(other) => return Err(format!("system calls have no part {other:?}")),
        })),
        "PROBE" | "KPROBE" => Ok(Instrumentation::Kprobe { location: location(attributes)? }),
        "FUNCTION" | "KRETPROBE" | "FUNCTION_ENTRY" => {
            Ok(Instrumentation::Function { location: location(attributes)? })
        }
        "USERSPACE_PROBE" => Ok(Instrumentation::UserProbe(user_probe(attributes)?)),
        other => Err(format!("events of the type {other} are not supported")),
    }
}

/// `SYMBOL`, `SYMBOL+0xOFFSET` or `0xADDRESS`.
fn location(attributes: Option<Node<'_, '_>>) -> Read<String> {
    let none = || "a probe has no place".to_owned();
    let of = attributes.ok_or_else(none)?;
    // What is an address or has an offset is no symbol.
    let is_symbol =
        |symbol: &str| !symbol.contains('+') && !symbol.starts_with(|first: char| first.is_ascii_digit());
    let symbol = |of| match word(of, "symbol_name") {
        Some(symbol) if !is_symbol(symbol) => Err(format!("{symbol:?} is no symbol of the kernel")),
        symbol => Ok(symbol),
    };
    if let Some(function) = element(of, "function_attributes") {
        return Ok(symbol(function)?.filter(|symbol| !symbol.is_empty()).ok_or_else(none)?.to_owned());
    }
    let of = element(of, "probe_attributes").ok_or_else(none)?;
    match (symbol(of)?, number::<u64>(of, "offset")?, number::<u64>(of, "address")?) {
        (Some(symbol), None | Some(0), _) if !symbol.is_empty() => Ok(symbol.to_owned()),
        (Some(symbol), Some(offset), _) if !symbol.is_empty() => Ok(format!("{symbol}+{offset:#x}")),
        (_, _, Some(address)) => Ok(format!("{address:#x}")),
        _ => Err(none()),
    }
}

fn user_probe(attributes: Option<Node<'_, '_>>) -> Read<UserProbe> {
    let of = attributes.ok_or("a probe of a program has no place")?;
    if let Some(of) = element(of, "userspace_probe_function_attributes") {
        let (path, symbol) = (needed(of, "binary_path")?.to_owned(), needed(of, "function_name")?.to_owned());
        return Ok(UserProbe::Elf { path, symbol });
    }
    let of =
        element(of, "userspace_probe_tracepoint_attributes").ok_or("a probe of a program has no place")?;
    Ok(UserProbe::Sdt {
        path: needed(of, "binary_path")?.to_owned(),
        provider: needed(of, "provider_name")?.to_owned(),
        name: needed(of, "probe_name")?.to_owned(),
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
