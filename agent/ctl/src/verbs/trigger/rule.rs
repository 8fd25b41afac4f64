//! Event rules as lttng-event-rule(7) specifies them.

use super::super::super::at::{At, Failure};
use super::super::super::level;
use super::super::event::user_probe;
use super::words::{Item, Opt, Words};
use api::trigger::{Capture, CaptureError};
use api::{Code, Domain, EventRule, Instrumentation, LogLevel, SyscallPart};

/// The options of an event rule.
const OPTIONS: &[Opt] = &[
    Opt::short("type", 't'),
    Opt::short("name", 'n'),
    Opt::short("location", 'L'),
    Opt::short("event-name", 'E'),
    Opt::short("filter", 'f'),
    Opt::short("exclude-name", 'x'),
    Opt::short("log-level", 'l'),
];

/// An event rule as it was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    kind: Option<String>,
    name: Option<String>,
    location: Option<String>,
    event_name: Option<String>,
    filter: Option<String>,
    exclusions: Vec<String>,
    log_level: Option<String>,
    pub(super) captures: Vec<String>,
    /// The values of other options of the condition.
    pub(super) others: Vec<(&'static str, String)>,
}

/// What `--type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    UserTracepoint,
    KernelTracepoint,
    Kprobe,
    Uprobe,
    Syscall,
    Jul,
    Log4j,
    Python,
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "user" | "user:tracepoint" => Self::UserTracepoint,
            "kernel" | "kernel:tracepoint" => Self::KernelTracepoint,
            "jul" | "jul:logging" => Self::Jul,
            "log4j" | "log4j:logging" => Self::Log4j,
            "python" | "python:logging" => Self::Python,
            "kprobe" | "kernel:kprobe" => Self::Kprobe,
            "uprobe" | "kernel:uprobe" => Self::Uprobe,
            _ if text.starts_with("syscall") || text.starts_with("kernel:syscall") => Self::Syscall,
            _ => return None,
        })
    }

    /// LTTng's name of it (`lttng_event_rule_type_str`).
    fn text(self) -> &'static str {
        match self {
            Self::UserTracepoint => "user tracepoint",
            Self::KernelTracepoint => "kernel tracepoint",
            Self::Kprobe => "kernel kprobe",
            Self::Uprobe => "kernel uprobe",
            Self::Syscall => "kernel syscall",
            Self::Jul => "jul logging",
            Self::Log4j => "log4j logging",
            Self::Python => "python logging",
        }
    }

    fn is_probe(self) -> bool {
        matches!(self, Self::Kprobe | Self::Uprobe)
    }
}

impl Written {
    /// Reads a rule, with the options that its condition has besides.
    pub(crate) fn read(words: &mut Words<'_>, others: &'static [Opt]) -> Result<Self, Failure> {
        let mut written = Self::default();
        let known = [OPTIONS, others].concat();
        while let Some(item) = words.next(&known)? {
            match item {
                Item::Word(word) => return Err(Failure::new(format!("Unexpected argument '{word}'"))),
                Item::Option(option, value) => written.set(option, value)?,
            }
        }
        Ok(written)
    }

    fn set(&mut self, option: &'static str, value: String) -> Result<(), Failure> {
        let (place, shown) = match option {
            "type" if self.kind.is_some() => {
                return Err(Failure::new("More than one `--type` was specified."));
            }
            "type" => {
                Kind::parse(&value)
                    .ok_or_else(|| Failure::new(format!("Invalid `--type` value: {value}")))?;
                self.kind = Some(value);
                return Ok(());
            }
            "exclude-name" => {
                self.exclusions.push(value);
                return Ok(());
            }
            "capture" => {
                self.captures.push(capture(&value)?);
                return Ok(());
            }
            "name" => (&mut self.name, "--name/-n"),
            "location" => (&mut self.location, "--location/-L"),
            "event-name" => (&mut self.event_name, "--event-name/-E"),
            "filter" => (&mut self.filter, "--filter/-f"),
            "log-level" => (&mut self.log_level, "--log-level/-l"),
            _ => {
                self.others.push((option, value));
                return Ok(());
            }
        };
        if place.replace(value).is_some() {
            return Err(Failure::new(format!("Duplicate '{shown}' given.")));
        }
        Ok(())
    }

    /// The rule, with the domain of its events.
    pub(crate) fn rule(&self, at: &mut At) -> Result<(Domain, EventRule), Failure> {
        let written = self.kind.as_deref().ok_or_else(|| Failure::new("Event rule requires a --type."))?;
        let unknown = || Failure::new(format!("Invalid `--type` value: {written}"));
        let kind = Kind::parse(written).ok_or_else(unknown)?;
        self.check(kind)?;
        let (name, instrumentation) = self.place(at, kind, written)?;
        let exclusions = self.exclusions(at, &name)?;
        let log_level = self.log_level(kind)?;
        if matches!(kind, Kind::Jul | Kind::Log4j | Kind::Python) {
            return Err(Failure::new(format!(
                "Failed to register trigger: {} (loggers of Java and Python are not recorded).",
                Code::NotSupported.text()
            )));
        }
        if !self.captures.is_empty() && kind.is_probe() {
            return Err(Failure::new("The capture feature is unsupported by the event-rule condition type"));
        }
        if self.filter.as_deref() == Some("") {
            let what = kind.text().trim_start_matches("kernel ").replace(' ', "_");
            let what = if kind == Kind::KernelTracepoint { "kernel_tracepoint" } else { &what };
            return Err(Failure::new(format!("Failed to set {what} event rule's filter to ''.")));
        }
        let domain = if kind == Kind::UserTracepoint { Domain::User } else { Domain::Kernel };
        let filter = self.filter.clone();
        Ok((domain, EventRule { name, instrumentation, enabled: true, filter, exclusions, log_level }))
    }

    /// Whether the options fit the type.
    fn check(&self, kind: Kind) -> Result<(), Failure> {
        let text = kind.text();
        let cannot = |option: &str| Err(Failure::new(format!("Can't use {option} with {text} event rules.")));
        if kind.is_probe() && self.name.is_some() {
            return cannot("--name");
        }
        if kind.is_probe() && !self.exclusions.is_empty() {
            return cannot("--exclude-name/-x");
        }
        match (kind, &self.location) {
            (Kind::Kprobe | Kind::Uprobe, None) => {
                return Err(Failure::new(format!("Event rule of type {text} requires a --location.")));
            }
            (Kind::Kprobe | Kind::Uprobe, Some(_)) | (_, None) => {}
            (_, Some(_)) => return cannot("--location"),
        }
        if !kind.is_probe() && self.event_name.is_some() {
            return cannot("--event-name");
        }
        let is_not_there = |what: &str| Err(Failure::new(format!("{what} {text} event rules.")));
        if kind.is_probe() && self.filter.is_some() {
            return is_not_there("Filter expressions are not supported for");
        }
        if kind != Kind::UserTracepoint && !self.exclusions.is_empty() {
            return is_not_there("Event name exclusions are not yet implemented for");
        }
        let has_levels = matches!(kind, Kind::UserTracepoint | Kind::Jul | Kind::Log4j | Kind::Python);
        if self.log_level.is_some() && !has_levels {
            return is_not_there("Log levels are not supported for");
        }
        Ok(())
    }

    fn place(&self, at: &mut At, kind: Kind, written: &str) -> Result<(String, Instrumentation), Failure> {
        let name = self.name.clone().unwrap_or_else(|| "*".to_owned());
        let location = self.location.clone().unwrap_or_default();
        let event = self.event_name.clone().unwrap_or_else(|| location.clone());
        Ok(match kind {
            Kind::Kprobe if location.is_empty() => {
                return Err(Failure::new("Failed to parse kernel probe location."));
            }
            Kind::Kprobe => (event, Instrumentation::Kprobe { location }),
            Kind::Uprobe => {
                let Ok(probe) = user_probe(&location) else {
                    let path = location.strip_prefix("elf:").unwrap_or(&location);
                    if let Some((path, _)) = path.split_once(':').filter(|(path, _)| path.starts_with('/')) {
                        at.say.error(&format!("Cannot find binary at path: {path}."));
                    }
                    return Err(Failure::new("Failed to parse user space probe location."));
                };
                (event, Instrumentation::UserProbe(probe))
            }
            Kind::Syscall => {
                let part = match written.strip_prefix("kernel:").unwrap_or(written) {
                    "syscall" | "syscall:entry+exit" => SyscallPart::Both,
                    "syscall:entry" => SyscallPart::Entry,
                    "syscall:exit" => SyscallPart::Exit,
                    _ => return Err(Failure::new(format!("Failed to parse syscall type '{written}'."))),
                };
                (name, Instrumentation::Syscall(part))
            }
            _ => (name, Instrumentation::Tracepoint),
        })
    }

    fn exclusions(&self, at: &mut At, name: &str) -> Result<Vec<String>, Failure> {
        if !self.exclusions.is_empty() && !name.contains('*') {
            let text = format!("Event {name}: Exclusions can only be used with a globbing pattern");
            return Err(Failure::new(text));
        }
        for exclusion in &self.exclusions {
            if !may_exclude(exclusion, name) {
                at.say.warning(&format!("Event {name}: {exclusion} does not exclude any events from {name}"));
            }
        }
        Ok(self.exclusions.clone())
    }

    fn log_level(&self, kind: Kind) -> Result<Option<LogLevel>, Failure> {
        let Some(text) = self.log_level.as_deref() else { return Ok(None) };
        if text == ".." || kind != Kind::UserTracepoint {
            return Ok(None);
        }
        let (name, least) = text.strip_suffix("..").map_or((text, false), |name| (name, true));
        let wrong = || Failure::new(format!("Failed to parse log level string `{text}`."));
        let number = level::number(name).ok_or_else(wrong)?;
        Ok(Some(if least { LogLevel::AtLeast(number) } else { LogLevel::Only(number) }))
    }
}

/// Whether what one pattern matches may match another one, as far as both begin without wildcards.
fn may_exclude(exclusion: &str, name: &str) -> bool {
    let plain = |text: &str| text.split('*').next().unwrap_or_default().to_owned();
    let (exclusion, name) = (plain(exclusion), plain(name));
    exclusion.starts_with(&name) || name.starts_with(&exclusion)
}

fn capture(text: &str) -> Result<String, Failure> {
    let failed = || format!("Failed to parse capture expression `{text}`.");
    match text.parse::<Capture>() {
        Ok(capture) => Ok(capture.to_string()),
        Err(CaptureError::Operator(kind)) => Err(Failure::new(format!(
            "While parsing expression `{text}`: {} operators are not allowed in capture expressions.",
            kind.name()
        ))),
        Err(CaptureError::Subfield) => Err(Failure::new(format!(
            "While parsing expression `{text}`: Capturing subfields is not supported."
        ))),
        Err(CaptureError::NoProvider) => {
            let name = text.strip_prefix("$app.").unwrap_or(text);
            Err(Failure::new(format!("Invalid app-specific context field name: missing colon in `{name}`.")))
        }
        Err(CaptureError::NoTypeName) => {
            let name = text.strip_prefix("$app.").unwrap_or(text);
            let missing = "missing type name after colon in";
            Err(Failure::new(format!("Invalid app-specific context field name: {missing} `{name}`.")))
        }
        Err(CaptureError::Index | CaptureError::Syntax) => Err(Failure::new(failed())),
    }
}
