//! `enable-event` and `disable-event`.

use clap::Args;

use super::super::at::{At, COMMAND_ERROR, Done, Failure, UNSUPPORTED, word};
use super::super::client::ClientError;
use super::super::document::Node;
use super::super::{level, nodes};
use super::domains::{Domains, Loggers};
use super::{InSession, several};
use api::requests::{EnableRules, NewChannel};
use api::{ChannelAttributes, Code, Domain, EventRule, Instrumentation, LogLevel, SyscallPart, UserProbe};

/// The channel of events for which none is named.
pub(crate) const DEFAULT_CHANNEL: &str = "channel0";

/// Record events
#[derive(Args, Debug)]
pub struct EnableEvent {
    /// Names or patterns of events, separated by commas
    #[arg(value_name = "EVENT")]
    pub names: Option<String>,

    #[command(flatten)]
    pub session: InSession,

    #[command(flatten)]
    pub domains: Domains,

    #[command(flatten)]
    pub loggers: Loggers,

    /// All events
    #[arg(short, long)]
    pub all: bool,

    /// Channel [default: channel0, which is created if need be]
    #[arg(short, long, value_name = "CHANNEL")]
    pub channel: Option<String>,

    /// Tracepoints; in user space, markers. This is the default
    #[arg(long)]
    pub tracepoint: bool,

    /// System calls
    #[arg(long)]
    pub syscall: bool,

    /// Only this part of system calls: entry or exit
    #[arg(long, value_name = "PART", value_parser = parse_part, requires = "syscall")]
    pub syscall_part: Option<SyscallPart>,

    /// A place in the kernel: SYMBOL, SYMBOL+OFFSET or an address; EVENT names its event
    #[arg(long, value_name = "LOCATION")]
    pub probe: Option<String>,

    /// A place in a program: PATH:SYMBOL, elf:PATH:SYMBOL or sdt:PATH:PROVIDER:NAME; EVENT names its event
    #[arg(long, value_name = "LOCATION")]
    pub userspace_probe: Option<String>,

    /// Entry and return of a function of the kernel; EVENT names its events
    #[arg(long, value_name = "LOCATION")]
    pub function: Option<String>,

    /// Only events of this log level, or of more severe ones
    #[arg(long, value_name = "LOGLEVEL")]
    pub loglevel: Option<String>,

    /// Only events of this log level
    #[arg(long, value_name = "LOGLEVEL")]
    pub loglevel_only: Option<String>,

    /// Patterns of events that are not recorded, separated by commas
    #[arg(short = 'x', long, value_name = "EVENT")]
    pub exclude: Option<String>,

    /// An expression that the fields of an event satisfy
    #[arg(short, long, value_name = "EXPR")]
    pub filter: Option<String>,
}

fn parse_part(text: &str) -> Result<SyscallPart, String> {
    match text {
        "entry" => Ok(SyscallPart::Entry),
        "exit" => Ok(SyscallPart::Exit),
        _ => Err("parts are entry and exit".to_owned()),
    }
}

/// What is said of the channel of an event that is refused.
fn place(session: &str, channel: Option<&str>, filter: Option<&str>) -> String {
    let channel = channel.unwrap_or("<default>");
    let filter = filter.map(|filter| format!(", filter '{filter}'")).unwrap_or_default();
    format!("(channel {channel}, session {session}{filter})")
}

impl EnableEvent {
    pub fn run(&self, at: &mut At) -> Done {
        let names: Vec<String> = match (&self.names, self.all) {
            (_, true) => vec!["*".to_owned()],
            (Some(names), false) => several(names).map(str::to_owned).collect(),
            (None, false) => return Err(Failure::new("Missing event name(s).")),
        };
        let domain = self.domains.or(self.loggers)?;
        let kinds = self.kinds(domain)?;
        let log_level = self.log_level()?;
        let exclusions = self.exclusions(domain, &names)?;
        let session = at.session(self.session.session.as_deref())?;
        let mut events = Vec::new();
        let mut failed = None;
        for name in &names {
            let rules = kinds.iter().map(|instrumentation| EventRule {
                name: name.clone(),
                instrumentation: instrumentation.clone(),
                enabled: true,
                filter: self.filter.clone(),
                exclusions: exclusions.clone(),
                log_level,
            });
            let rules: Vec<_> = rules.collect();
            let result = self.add(at, &session, domain, &rules);
            let success = result.is_ok();
            match result {
                Ok(()) => at.say.line(&self.enabled(domain, name, &exclusions)),
                Err(error) => failed = Some(self.refused(at, &error, domain, &session, name)),
            }
            if let Some(rule) = rules.into_iter().next() {
                let mut parts = nodes::rule(&EventRule { enabled: success, filter: None, ..rule });
                parts.push(Node::success(success));
                events.push(Node::Parts("event", parts));
            }
        }
        at.output.push(Node::Items("events", events));
        failed.map_or(Ok(()), |code| Err(Failure::said(code)))
    }

    /// Where its events come from: of the kernel, `--all` alone means tracepoints and system calls.
    fn kinds(&self, domain: Domain) -> Result<Vec<Instrumentation>, Failure> {
        let probes = [&self.probe, &self.userspace_probe, &self.function];
        let given = probes.iter().filter(|probe| probe.is_some()).count()
            + usize::from(self.tracepoint)
            + usize::from(self.syscall);
        if given > 1 {
            return Err(Failure::new("Only one instrumentation type must be specified."));
        }
        if domain == Domain::User && given > 0 && !self.tracepoint {
            return Err(Failure::with(UNSUPPORTED, "Event type not available for user-space tracing"));
        }
        if domain == Domain::Kernel && (self.loglevel.is_some() || self.loglevel_only.is_some()) {
            return Err(Failure::new("Log levels are not supported in the kernel domain"));
        }
        let syscall = Instrumentation::Syscall(self.syscall_part.unwrap_or_default());
        Ok(match (&self.probe, &self.userspace_probe, &self.function) {
            (Some(location), _, _) => vec![Instrumentation::Kprobe { location: location.clone() }],
            (_, Some(location), _) => vec![Instrumentation::UserProbe(user_probe(location)?)],
            (_, _, Some(location)) => vec![Instrumentation::Function { location: location.clone() }],
            _ if self.syscall => vec![syscall],
            _ if self.all && !self.tracepoint && domain == Domain::Kernel => {
                vec![Instrumentation::Tracepoint, syscall]
            }
            _ => vec![Instrumentation::Tracepoint],
        })
    }

    fn log_level(&self) -> Result<Option<LogLevel>, Failure> {
        let number = |name: &String| {
            let unknown = || Failure::with(Code::Invalid.number(), format!("Unknown loglevel {name}"));
            level::number(name).ok_or_else(unknown)
        };
        match (&self.loglevel, &self.loglevel_only) {
            (_, Some(only)) => Ok(Some(LogLevel::Only(number(only)?))),
            (Some(least), None) => Ok(Some(LogLevel::AtLeast(number(least)?))),
            (None, None) => Ok(None),
        }
    }

    fn exclusions(&self, domain: Domain, names: &[String]) -> Result<Vec<String>, Failure> {
        let Some(exclude) = &self.exclude else { return Ok(Vec::new()) };
        if domain == Domain::Kernel {
            return Err(Failure::with(
                UNSUPPORTED,
                "Event name exclusions are not yet implemented for kernel events",
            ));
        }
        if let Some(name) = names.iter().find(|name| !name.contains('*')) {
            let text = format!("Event {name}: Exclusions can only be used with a globbing pattern");
            return Err(Failure::new(text));
        }
        Ok(several(exclude).map(str::to_owned).collect())
    }

    /// Adds rules, all or none. A channel that is not there is made for them, and not if they are refused.
    fn add(&self, at: &mut At, session: &str, domain: Domain, rules: &[EventRule]) -> Result<(), AddError> {
        let channel = match &self.channel {
            Some(channel) => channel,
            None if needs_channel(at, session, domain)? => {
                return Err(ClientError::Refused(Code::ChannelNeeded.into()).into());
            }
            None => DEFAULT_CHANNEL,
        };
        let client = at.client()?;
        match client.add_rules(session, domain, channel, &rules.to_vec().into()) {
            Err(error) if matches!(error.code(), Code::NoKernelChannel | Code::NoUserChannel) => {
                let new = NewChannel {
                    name: channel.to_owned(),
                    attributes: ChannelAttributes::default(),
                    rules: rules.to_vec(),
                };
                client.create_channel(session, domain, &new)?;
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// Says why an event is not recorded; gives the exit code.
    fn refused(&self, at: &mut At, error: &AddError, domain: Domain, session: &str, name: &str) -> u8 {
        let error = match error {
            AddError::Client(error) => error,
            AddError::Failure(failure) => {
                if let Some(text) = &failure.text {
                    at.say.error(text);
                }
                return failure.code;
            }
        };
        let code = error.code();
        let filter = if self.all { None } else { self.filter.as_deref() };
        // The daemon's default channel has no name where one would have to be given.
        let channel = match (&self.channel, code) {
            (Some(channel), _) => Some(channel.as_str()),
            (None, Code::ChannelNeeded) => None,
            (None, _) => Some(DEFAULT_CHANNEL),
        };
        let place = place(session, channel, filter);
        match (self.all, code) {
            (true, Code::UserEventEnabled | Code::KernelEventExists) => {
                at.say.warning(&format!("Events already enabled {place}"));
                super::super::at::COMMAND_WARNING
            }
            (true, _) => {
                at.say.error(&format!("Events: {} {place}", error.text()));
                COMMAND_ERROR
            }
            (false, Code::KernelEventExists) if domain == Domain::Kernel => {
                at.say.warning(&format!("Kernel event {name} already enabled {place}"));
                super::super::at::COMMAND_WARNING
            }
            (false, _) => {
                at.say.error(&format!("Event {name}: {} {place}", error.text()));
                code.number()
            }
        }
    }

    /// What is said of events that are recorded from now on.
    fn enabled(&self, domain: Domain, name: &str, exclusions: &[String]) -> String {
        let channel = self.channel.as_deref().unwrap_or(DEFAULT_CHANNEL);
        let word = word(domain);
        match (&self.filter, self.all) {
            (Some(filter), true) => return format!("Filter '{filter}' successfully set"),
            (Some(filter), false) => return format!("Event {name}: Filter '{filter}' successfully set"),
            (None, _) => {}
        }
        let excluding = match exclusions {
            [] => String::new(),
            some => {
                let quoted: Vec<_> = some.iter().map(|of| format!("\"{of}\"")).collect();
                format!(" excluding {}", quoted.join(", "))
            }
        };
        if !self.all {
            return format!("{word} event {name}{excluding} created in channel {channel}");
        }
        let what = match (self.tracepoint, self.syscall) {
            (true, _) => "tracepoints",
            (_, true) => "system calls",
            _ => "events",
        };
        let level = self.loglevel.as_ref().or(self.loglevel_only.as_ref());
        let level = level.map(|level| format!(" for loglevel {level}")).unwrap_or_default();
        format!("All {word} {what}{excluding} are enabled in channel {channel}{level}")
    }
}

/// Whether the session has channels of the domain, and the default one is not among them.
fn needs_channel(at: &mut At, session: &str, domain: Domain) -> Result<bool, AddError> {
    let session = at.client()?.session(session)?;
    let mut channels = session.domains.iter().filter(|of| of.domain == domain).flat_map(|of| &of.channels);
    let some = channels.clone().next().is_some();
    Ok(some && !channels.any(|channel| channel.name == DEFAULT_CHANNEL))
}

/// Why a rule was not added.
enum AddError {
    Client(ClientError),
    Failure(Failure),
}

impl From<ClientError> for AddError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Failure> for AddError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// The place in a program: the file may be one of `PATH`. A colon of a part is written `\:`, and in the path
/// a backslash takes any character literally.
pub(crate) fn user_probe(location: &str) -> Result<UserProbe, Failure> {
    let wrong = || Failure::new(Code::UserProbeLocation.text());
    let file = |path: &str| {
        let found = super::program::find(&unescaped(path)).ok_or_else(wrong)?;
        Ok::<_, Failure>(found.display().to_string())
    };
    let parts = parts(location);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["sdt", path, provider, name] => Ok(UserProbe::Sdt {
            path: file(path)?,
            provider: (*provider).to_owned(),
            name: (*name).to_owned(),
        }),
        ["elf", path, symbol] | [path, symbol] => {
            Ok(UserProbe::Elf { path: file(path)?, symbol: (*symbol).to_owned() })
        }
        _ => Err(wrong()),
    }
}

/// The parts of a place between colons. A backslash before a colon makes it one of a part's; before anything
/// else it stays with that.
fn parts(location: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut characters = location.chars();
    while let Some(one) = characters.next() {
        let escaped = if one == '\\' { characters.next() } else { None };
        match (one, escaped) {
            (':', _) => parts.push(std::mem::take(&mut part)),
            (_, Some(':')) => part.push(':'),
            (_, escaped) => {
                part.push(one);
                part.extend(escaped);
            }
        }
    }
    parts.push(part);
    parts
}

/// A text without the backslashes that take the next character literally.
fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let next = || match characters.next()? {
        '\\' => Some(characters.next().unwrap_or('\\')),
        other => Some(other),
    };
    std::iter::from_fn(next).collect()
}

/// Record events no more
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options of the command line")]
pub struct DisableEvent {
    /// Names of events as they were enabled, separated by commas
    #[arg(value_name = "EVENT")]
    pub names: Option<String>,

    #[command(flatten)]
    pub session: InSession,

    #[command(flatten)]
    pub domains: Domains,

    #[command(flatten)]
    pub loggers: Loggers,

    /// All events
    #[arg(short, long)]
    pub all: bool,

    /// Channel [default: channel0]
    #[arg(short, long, value_name = "CHANNEL")]
    pub channel: Option<String>,

    /// Only tracepoints
    #[arg(long)]
    pub tracepoint: bool,

    /// Only system calls
    #[arg(long)]
    pub syscall: bool,

    /// Only places in the kernel
    #[arg(long)]
    pub probe: bool,

    /// Only functions of the kernel
    #[arg(long)]
    pub function: bool,

    /// Only places in programs
    #[arg(long)]
    pub userspace_probe: bool,
}

impl DisableEvent {
    /// What requests and texts call the kind of events that is meant.
    fn kind(&self) -> Result<(Option<&'static str>, &'static str), Failure> {
        let kinds = [
            (self.tracepoint, "tracepoint", "tracepoint"),
            (self.syscall, "syscall", "syscall"),
            (self.probe, "kprobe", "probe"),
            (self.function, "function", "function"),
            (self.userspace_probe, "user_probe", "userspace-probe"),
        ];
        let mut given = kinds.into_iter().filter(|(is, ..)| *is);
        match (given.next(), given.next()) {
            (None, _) => Ok((None, "any")),
            (Some((_, kind, text)), None) => Ok((Some(kind), text)),
            _ => Err(Failure::new("Only one instrumentation type must be specified.")),
        }
    }

    pub fn run(&self, at: &mut At) -> Done {
        let names: Vec<Option<&str>> = match (&self.names, self.all) {
            (_, true) => vec![None],
            (Some(names), false) => several(names).map(Some).collect(),
            (None, false) => return Err(Failure::new("Missing event name(s).\n")),
        };
        let domain = self.domains.or(self.loggers)?;
        let (kind, kind_text) = self.kind()?;
        if domain == Domain::User && kind.is_some() {
            return Err(Failure::new(
                "Disabling userspace and agent (-j | -l | -p) event(s) based on instrumentation type is not \
                 supported.\n",
            ));
        }
        let session = at.session(self.session.session.as_deref())?;
        let mut events = Vec::new();
        let mut failed = None;
        for name in names {
            let which =
                EnableRules { name: name.map(str::to_owned), kind: kind.map(str::to_owned), enabled: false };
            let (result, channel) = self.disable(at, &session, domain, &which)?;
            let success = result.is_ok();
            match (result, name) {
                (Ok(()), Some(name)) => at.say.line(&format!(
                    "{} {name} of type {kind_text} disabled in channel {} for session {session}",
                    word(domain),
                    channel.unwrap_or(DEFAULT_CHANNEL)
                )),
                (Ok(()), None) => at.say.line(&format!(
                    "All {} events of type {kind_text} are disabled in channel {}",
                    word(domain),
                    channel.unwrap_or(DEFAULT_CHANNEL)
                )),
                (Err(error), name) => {
                    let name = name.unwrap_or("Events");
                    let place = place(&session, channel, None);
                    at.say.error(&format!("{name} of type {kind_text} : {} {place}", error.text()));
                    failed = Some(error.code().number());
                }
            }
            let name = Node::text("name", name.unwrap_or("*"));
            let parts = vec![name, Node::Flag("enabled", !success), Node::success(success)];
            events.push(Node::Parts("event", parts));
        }
        let channel = self.channel.as_deref().unwrap_or(DEFAULT_CHANNEL);
        let parts = vec![Node::text("name", channel), Node::Items("events", events)];
        at.output.push(Node::Parts("channel", parts));
        failed.map_or(Ok(()), |code| Err(Failure::said(code)))
    }

    /// Switches rules off. Beside the result is the channel as texts have it.
    fn disable(
        &self,
        at: &mut At,
        session: &str,
        domain: Domain,
        which: &EnableRules,
    ) -> Result<(Result<(), ClientError>, Option<&str>), Failure> {
        let channel = match &self.channel {
            Some(channel) => channel.as_str(),
            None => match needs_channel(at, session, domain) {
                Ok(true) => return Ok((Err(ClientError::Refused(Code::ChannelNeeded.into())), None)),
                Ok(false) => DEFAULT_CHANNEL,
                Err(AddError::Client(error)) => return Ok((Err(error), None)),
                Err(AddError::Failure(failure)) => return Err(failure),
            },
        };
        let result = at.client()?.enable_rules(session, domain, channel, which);
        Ok((result.map(drop), Some(channel)))
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
