//! Triggers as texts for people, as `lttng list-triggers` prints them.

use std::fmt::Write as _;

use super::super::super::level;
use api::trigger::{
    Action, ActionKind, ActionState, BufferUsage, Condition, RatePolicy, SnapshotTarget, Threshold,
};
use api::{Domain, EventRule, Instrumentation, LogLevel, SyscallPart, Trigger, UserProbe};

/// A trigger. Writing to a string does not fail.
pub(crate) fn trigger(of: &Trigger) -> String {
    let mut text = format!("- name: {}\n  owner uid: {}\n", of.name, of.uid);
    condition(&mut text, &of.condition);
    if let Some(ms) = of.pace.cool_down_ms {
        let _ = writeln!(text, "  cool-down: {ms} ms");
    }
    if let Some(times) = of.pace.per_day {
        let _ = writeln!(text, "  actions a day: {times}");
    }
    if of.held_back != 0 {
        let _ = writeln!(text, "  held back: {}", of.held_back);
    }
    let mut errors = Vec::new();
    if of.missed != 0 {
        errors.push(format!("{MISSED}: {}", of.missed));
    }
    if of.interruptions != 0 {
        errors.push(format!("{INTERRUPTIONS}: {}", of.interruptions));
    }
    errors.extend(of.problem.iter().map(|why| format!("not looked at: {why}")));
    self::errors(&mut text, 4, &errors);
    text += "  actions:\n";
    for state in &of.actions {
        let ActionState { action, failed, last_failure, .. } = state;
        let _ = writeln!(text, "    {}{}", self::action(&action.kind), rate_policy(action));
        let mut errors = Vec::new();
        if *failed != 0 {
            errors.push(format!("{FAILED}: {failed}"));
            errors.extend(last_failure.iter().map(|why| format!("the last one: {why}")));
        }
        self::errors(&mut text, 6, &errors);
    }
    self::errors(&mut text, 2, &[]);
    text
}

/// What LTTng calls events that the daemon could not be told of.
pub(crate) const MISSED: &str = "discarded tracer messages";
/// What it has no name for: times in which nobody has watched.
pub(crate) const INTERRUPTIONS: &str = "interruptions of the watch";
/// What it calls actions that failed.
pub(crate) const FAILED: &str = "total execution failures";

fn errors(text: &mut String, indent: usize, errors: &[String]) {
    if errors.is_empty() {
        let _ = writeln!(text, "{:indent$}errors: none", "");
        return;
    }
    let _ = writeln!(text, "{:indent$}errors:", "");
    for error in errors {
        let _ = writeln!(text, "{:indent$}  {error}", "");
    }
}

fn condition(text: &mut String, of: &Condition) {
    match of {
        Condition::EventRuleMatches { domain, rule, captures } => {
            *text += "  condition: event rule matches\n";
            self::rule(text, *domain, rule);
            if !captures.is_empty() {
                *text += "    captures:\n";
                for capture in captures {
                    let _ = writeln!(text, "      - {capture}");
                }
            }
        }
        Condition::EventRate { domain, rule, above } => {
            *text += "  condition: event rate\n";
            self::rule(text, *domain, rule);
            let _ = writeln!(text, "    above: {above} events per second");
        }
        Condition::BufferUsageHigh(usage) => buffer_usage(text, "high", usage),
        Condition::BufferUsageLow(usage) => buffer_usage(text, "low", usage),
        Condition::ConsumedSize { session, bytes } => {
            let _ = writeln!(text, "  condition: session consumed size");
            let _ = writeln!(text, "    session: {session}\n    threshold: {bytes} bytes");
        }
        Condition::RotationOngoing { session } => {
            let _ = writeln!(text, "  condition: session rotation ongoing\n    session: {session}");
        }
        Condition::RotationCompleted { session } => {
            let _ = writeln!(text, "  condition: session rotation completed\n    session: {session}");
        }
        Condition::Pressure { resource, share, above } => {
            let _ = writeln!(text, "  condition: pressure");
            let _ = writeln!(text, "    resource: {} ({})", resource.name(), share.name());
            let _ = writeln!(text, "    above: {}.{:02}%", above / 100, above % 100);
        }
        Condition::UnitFailed { unit } => {
            let _ = writeln!(text, "  condition: unit failed\n    unit: {unit}");
        }
        Condition::Signal => {
            let _ = writeln!(text, "  condition: signal\n    signal: SIGUSR1");
        }
    }
}

fn buffer_usage(text: &mut String, which: &str, usage: &BufferUsage) {
    let BufferUsage { session, domain, channel, threshold } = usage;
    let _ = writeln!(text, "  condition: buffer usage {which}\n    session: {session}");
    let _ = writeln!(text, "    channel: {channel} ({})", domain.name());
    let _ = match threshold {
        Threshold::Bytes(bytes) => writeln!(text, "    threshold: {bytes} bytes"),
        Threshold::Percent(percent) => writeln!(text, "    threshold: {percent}%"),
    };
}

fn rule(text: &mut String, domain: Domain, rule: &EventRule) {
    let EventRule { name, instrumentation, filter, exclusions, log_level, enabled: _ } = rule;
    let _ = write!(text, "    rule: {name} (type: ");
    let _ = match instrumentation {
        Instrumentation::Tracepoint if domain == Domain::User => write!(text, "user tracepoint"),
        Instrumentation::Tracepoint => write!(text, "kernel tracepoint"),
        Instrumentation::Syscall(part) => write!(text, "kernel:syscall:{}", emission_site(*part)),
        Instrumentation::Kprobe { location } => write!(text, "kernel:kprobe, location: {location}"),
        Instrumentation::Function { location } => write!(text, "kernel:function, location: {location}"),
        Instrumentation::UserProbe(UserProbe::Elf { path, symbol }) => {
            write!(text, "kernel:uprobe, location type: ELF, location: {path}:{symbol}")
        }
        Instrumentation::UserProbe(UserProbe::Sdt { path, provider, name }) => {
            write!(text, "kernel:uprobe, location type: SDT, location: {path}:{provider}:{name}")
        }
    };
    if let Some(filter) = filter {
        let _ = write!(text, ", filter: {filter}");
    }
    if let Some(level) = log_level {
        let (how, level) = match level {
            LogLevel::AtLeast(level) => ("at least", level),
            LogLevel::Only(level) => ("is", level),
        };
        let _ = write!(text, ", log level {how} {}", level::name(*level).trim_start_matches("TRACE_"));
    }
    if !exclusions.is_empty() {
        let _ = write!(text, ", exclusions: {}", exclusions.join(","));
    }
    *text += ")\n";
}

/// Which part of a system call.
pub(crate) fn emission_site(part: SyscallPart) -> &'static str {
    match part {
        SyscallPart::Both => "entry+exit",
        SyscallPart::Entry => "entry",
        SyscallPart::Exit => "exit",
    }
}

fn action(kind: &ActionKind) -> String {
    match kind {
        ActionKind::Notify => "notify".to_owned(),
        ActionKind::StartSession { session } => format!("start session `{session}`"),
        ActionKind::StopSession { session } => format!("stop session `{session}`"),
        ActionKind::RotateSession { session } => format!("rotate session `{session}`"),
        ActionKind::SnapshotSession { session, output, window } => {
            let mut text = format!("snapshot session `{session}`");
            if let Some(SnapshotTarget { path, data_url, name, max_size }) = output {
                let path = path.display().to_string();
                let of_both = path.starts_with("net://") || path.starts_with("net6://");
                let _ = match data_url {
                    _ if of_both => write!(text, ", url: {path}"),
                    Some(data) => write!(text, ", control url: {path}, data url: {data}"),
                    None if path.contains("://") => write!(text, ", url: {path}"),
                    None => write!(text, ", path: {path}"),
                };
                if let Some(name) = name {
                    let _ = write!(text, ", name: {name}");
                }
                if let Some(size) = max_size {
                    let _ = write!(text, ", max size: {size}");
                }
            }
            for (what, ms) in [("before", window.before_ms), ("after", window.after_ms)] {
                if let Some(ms) = ms {
                    let _ = write!(text, ", {what}: {ms} ms");
                }
            }
            text
        }
        ActionKind::Count { by, function, max_keys } => {
            let mut text =
                function.as_ref().map_or_else(|| "count".to_owned(), |of| format!("count, function: {of}"));
            if !by.is_empty() {
                let _ = write!(text, ", by: {}", by.join(","));
            }
            if let Some(keys) = max_keys {
                let _ = write!(text, ", max keys: {keys}");
            }
            text
        }
        ActionKind::Post { socket } => format!("post to {}", socket.display()),
    }
}

fn rate_policy(action: &Action) -> String {
    match action.rate_policy {
        RatePolicy::Every(1) => String::new(),
        RatePolicy::Every(count) => format!(", rate policy: every {count} occurrences"),
        RatePolicy::OnceAfter(count) => format!(", rate policy: once after {count} occurrences"),
    }
}
