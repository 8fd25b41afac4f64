//! Sessions as texts for people, as `lttng list` and `lttng status` print them.

use std::fmt::Write as _;

use super::{address, level, units};
use api::session::SessionDomain;
use api::track::Attribute;
use api::{
    Buffers, Channel, ChannelAttributes, Domain, EventLoss, EventRule, FieldInfo, Instrumentation,
    InstrumentationPoint, LogLevel, OutputMethod, Schedule, Session, SessionMode, Summary, SyscallPart,
    Tracked, Tracker, UserProbe,
};

/// `active`, `inactive snapshot`.
fn state(summary: &Summary) -> String {
    let active = if summary.active { "active" } else { "inactive" };
    let mode = if summary.mode == SessionMode::Snapshot { " snapshot" } else { "" };
    format!("{active}{mode}")
}

/// Where a session's data goes; nothing for one that keeps it or throws it away.
pub(super) fn output(mode: &SessionMode) -> String {
    match mode {
        SessionMode::Local { output: Some(path) } | SessionMode::Served { output: path, .. } => {
            path.display().to_string()
        }
        SessionMode::Local { output: None } | SessionMode::Snapshot => String::new(),
        SessionMode::Network { url } | SessionMode::Live { url, .. } => address::shown(url),
    }
}

/// Microseconds that an event waits at most in a session that is read while it records; 0 for others.
pub(crate) fn live_timer(mode: &SessionMode) -> u64 {
    mode.live_timer_us().unwrap_or(0)
}

/// `lttng list`. `called` is how the user calls the program.
pub(crate) fn sessions(sessions: &[Summary], called: &str) -> String {
    if sessions.is_empty() {
        return "Currently no available recording session\n".to_owned();
    }
    let mut text = String::from("Available recording sessions:\n");
    for (index, summary) in sessions.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}) {} [{}]", index + 1, summary.name, state(summary));
        let output = output(&summary.mode);
        if !output.is_empty() {
            let _ = writeln!(text, "    Trace output: {output}");
        }
        if let timer @ 1.. = live_timer(&summary.mode) {
            let _ = writeln!(text, "    Live timer interval: {timer} us");
        }
        text.push('\n');
    }
    text + &format!("\nUse {called} list <session_name> for more details\n")
}

/// The begin of `lttng list SESSION`.
pub(crate) fn session(session: &Session) -> String {
    let summary = &session.summary;
    let mut text = format!("Recording session {}: [{}]\n", summary.name, state(summary));
    let output = output(&summary.mode);
    if !output.is_empty() {
        let _ = writeln!(text, "    Trace output: {output}\n");
    }
    if !session.schedules.is_empty() {
        text += "Automatic rotation schedules:\n";
        for schedule in &session.schedules {
            let _ = match schedule {
                Schedule::PeriodUs(us) => writeln!(text, "    timer period: {us} us"),
                Schedule::SizeBytes(bytes) => writeln!(text, "    size threshold: {bytes} bytes"),
            };
        }
        text.push('\n');
    }
    if !session.maps.is_empty() {
        text += "Maps:\n";
        for map in &session.maps {
            let _ = writeln!(text, "    {}: {}", map.name, map.question.text());
        }
        text.push('\n');
    }
    if !session.notes.is_empty() {
        text += "Notes:\n";
        for note in &session.notes {
            let _ = writeln!(text, "    {note}");
        }
        text.push('\n');
    }
    text
}

/// `lttng list SESSION --domain`.
pub(crate) fn domains(session: &Session) -> String {
    let mut text = String::from("Domains:\n-------------\n");
    if session.domains.is_empty() {
        text += "  None\n";
    }
    for of in &session.domains {
        text += match of.domain {
            Domain::Kernel => "  - Kernel\n",
            Domain::User => "  - UST global\n",
        };
    }
    text
}

/// A domain of `lttng list SESSION`, up to its channels.
pub(crate) fn domain(of: &SessionDomain) -> String {
    let mut text = match of.domain {
        Domain::Kernel => "=== Domain: Linux kernel ===\n\n".to_owned(),
        Domain::User => {
            let buffers = of.channels.first().and_then(|channel| channel.attributes.buffers);
            format!(
                "=== Domain: User space ===\n\nBuffering scheme: {}\n\n",
                buffering(buffers.unwrap_or_default())
            )
        }
    };
    text += "Tracked process attributes\n";
    for (attribute, name) in attributes(of.domain) {
        let tracked = of.trackers.iter().find(|tracker| tracker.attribute == *attribute);
        let _ = writeln!(text, "  {:<22}{}", format!("{name}s:"), values(tracked));
    }
    // Attributes that LTTng does not have are only told of if they choose.
    for (attribute, name) in [(Attribute::Cgroup, "Control groups:"), (Attribute::Comm, "Thread names:")] {
        let tracked = of.trackers.iter().find(|tracker| tracker.attribute == attribute);
        if tracked.is_some_and(|tracker| tracker.tracked != Tracked::All) {
            let _ = writeln!(text, "  {name:<22}{}", values(tracked));
        }
    }
    text + "\nChannels:\n-------------\n"
}

fn buffering(buffers: Buffers) -> &'static str {
    match buffers {
        Buffers::Global => "global",
        Buffers::Uid => "per-user",
        Buffers::Pid => "per-process",
    }
}

/// The attributes of LTTng that processes of a domain have, with the names that texts have for them.
pub(crate) fn attributes(domain: Domain) -> &'static [(Attribute, &'static str)] {
    const ALL: [(Attribute, &str); 6] = [
        (Attribute::Pid, "Process ID"),
        (Attribute::Vpid, "Virtual process ID"),
        (Attribute::Uid, "User ID"),
        (Attribute::Vuid, "Virtual user ID"),
        (Attribute::Gid, "Group ID"),
        (Attribute::Vgid, "Virtual group ID"),
    ];
    const VIRTUAL: [(Attribute, &str); 3] = [ALL[1], ALL[3], ALL[5]];
    match domain {
        Domain::Kernel => &ALL,
        Domain::User => &VIRTUAL,
    }
}

/// What is recorded of an attribute: numbers as they are, names in backticks.
fn values(tracker: Option<&Tracker>) -> String {
    match tracker.map(|tracker| &tracker.tracked) {
        None | Some(Tracked::All) => "all".to_owned(),
        Some(Tracked::Only(values)) if values.is_empty() => "none".to_owned(),
        Some(Tracked::Only(values)) => {
            let shown = values.iter().map(|value| match value.parse::<u64>() {
                Ok(_) => value.clone(),
                Err(_) => format!("`{value}`"),
            });
            shown.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A channel of `lttng list SESSION`.
pub(crate) fn channel(channel: &Channel, mode: &SessionMode) -> String {
    let mut text = format!("- {}:{}\n\n    Attributes:\n", channel.name, enabled(channel.enabled));
    let ChannelAttributes {
        event_loss,
        subbuf_size,
        num_subbuf,
        switch_timer_us,
        read_timer_us,
        monitor_timer_us,
        blocking_timeout_us,
        output,
        tracefile_size,
        tracefile_count,
        buffers: _,
    } = channel.attributes.clone();
    let event_loss = event_loss.unwrap_or_default();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "      {:<18}{value}", format!("{name}:"));
    };
    let timer = |us: Option<u64>| match us {
        None | Some(0) => "inactive".to_owned(),
        Some(us) => format!("{us} us"),
    };
    let bytes = |size: Option<u64>| size.map_or_else(|| "unknown".to_owned(), |size| format!("{size} bytes"));
    row(
        "Event-loss mode",
        match event_loss {
            EventLoss::Discard => "discard".to_owned(),
            EventLoss::Overwrite => "overwrite".to_owned(),
        },
    );
    row("Sub-buffer size", bytes(subbuf_size));
    row("Sub-buffer count", num_subbuf.map_or_else(|| "unknown".to_owned(), |count| count.to_string()));
    row("Switch timer", timer(switch_timer_us));
    row("Read timer", timer(read_timer_us));
    row("Monitor timer", timer(monitor_timer_us));
    if event_loss == EventLoss::Discard {
        let timeout = blocking_timeout_us.unwrap_or_default();
        row("Blocking timeout", if timeout < 0 { "infinite".to_owned() } else { format!("{timeout} us") });
    }
    row("Trace file count", format!("{} per stream", tracefile_count.unwrap_or_default().max(1)));
    row(
        "Trace file size",
        match tracefile_size {
            None | Some(0) => "unlimited".to_owned(),
            size => bytes(size),
        },
    );
    row(
        "Output mode",
        match output.unwrap_or_default() {
            OutputMethod::Splice => "splice".to_owned(),
            OutputMethod::Mmap => "mmap".to_owned(),
        },
    );
    text += "\n    Statistics:\n";
    let _ = match event_loss {
        _ if *mode == SessionMode::Snapshot => writeln!(text, "      None"),
        EventLoss::Discard => writeln!(text, "      Discarded events: {}", channel.discarded),
        EventLoss::Overwrite => writeln!(text, "      Lost packets:     {}", channel.lost_packets),
    };
    text += "\n    Recording event rules:\n";
    if channel.rules.is_empty() {
        text += "      None\n";
    }
    channel.rules.iter().for_each(|of| text += &rule(of));
    text.push('\n');
    text
}

fn enabled(enabled: bool) -> &'static str {
    if enabled { " [enabled]" } else { " [disabled]" }
}

/// An event rule, on a line or with its place below it.
fn rule(rule: &EventRule) -> String {
    let EventRule { name, instrumentation, enabled: is_enabled, filter, exclusions, log_level } = rule;
    let level = match log_level {
        None => String::new(),
        Some(LogLevel::AtLeast(level)) => format!(" (loglevel <= {} ({level}))", level::name(*level)),
        Some(LogLevel::Only(level)) => format!(" (loglevel == {} ({level}))", level::name(*level)),
    };
    let kind = match instrumentation {
        Instrumentation::Tracepoint => " tracepoint",
        // LTTng has no blank here.
        Instrumentation::Syscall(SyscallPart::Both) => "syscall",
        Instrumentation::Syscall(SyscallPart::Entry) => "syscall:entry",
        Instrumentation::Syscall(SyscallPart::Exit) => "syscall:exit",
        Instrumentation::Kprobe { .. } => " probe",
        Instrumentation::Function { .. } => " function",
        Instrumentation::UserProbe(_) => " userspace-probe",
    };
    let filter = filter.as_ref().map(|filter| format!(" [filter: '{filter}']")).unwrap_or_default();
    let exclusions = match exclusions.as_slice() {
        [] => String::new(),
        some => format!(" [exclusions: {}]", some.join(", ")),
    };
    let enabled = enabled(*is_enabled);
    let mut text = format!("      {name}{level} (type:{kind}){enabled}{filter}{exclusions}\n");
    let mut below = |name: &str, value: &str| {
        let _ = writeln!(text, "        {name} {value}");
    };
    match instrumentation {
        Instrumentation::Tracepoint | Instrumentation::Syscall(_) => {}
        Instrumentation::Kprobe { location } | Instrumentation::Function { location } => {
            let hex =
                |text: &str| units::number(text).map_or_else(|| text.to_owned(), |of| format!("0x{of:x}"));
            match location.split_once('+') {
                _ if units::number(location).is_some() => below("addr:", &hex(location)),
                Some((symbol, offset)) => {
                    below("offset:", &hex(offset));
                    below("symbol:", symbol);
                }
                None => {
                    below("offset:", "0x0");
                    below("symbol:", location);
                }
            }
        }
        Instrumentation::UserProbe(UserProbe::Elf { path, symbol }) => {
            below("Type:", "Function");
            below("Binary path:  ", &real(path));
            below("Function:     ", &format!("{symbol}()"));
            below("Lookup method:", "ELF");
        }
        Instrumentation::UserProbe(UserProbe::Sdt { path, provider, name }) => {
            below("Type:", "Tracepoint");
            below("Binary path:  ", &real(path));
            below("Tracepoint:   ", &format!("{provider}:{name}"));
            below("Lookup method:", "SDT");
        }
    }
    text
}

/// The file that a path leads to; LTTng prints `NULL` where it leads to none.
fn real(path: &str) -> String {
    std::fs::canonicalize(path).map_or_else(|_| "NULL".to_owned(), |path| path.display().to_string())
}

/// `lttng list --kernel`, `--userspace` or `--syscall`.
pub(crate) fn points(points: &[InstrumentationPoint], title: &str) -> String {
    let mut text = format!("{title}:\n-------------\n");
    if points.is_empty() {
        text += "None\n";
    }
    for point in points {
        let kind = match point.instrumentation {
            Instrumentation::Syscall(_) => String::new(),
            _ => format!(" (type: {})", "tracepoint"),
        };
        let _ = writeln!(text, "      {}{kind}", point.name);
        for FieldInfo { name, kind } in &point.fields {
            let _ = writeln!(text, "        field: {name} ({kind})");
        }
    }
    text.push('\n');
    text
}
