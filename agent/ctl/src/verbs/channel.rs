//! `enable-channel` and `disable-channel`.

use clap::Args;

use super::super::at::{At, COMMAND_WARNING, Done, Failure, word};
use super::super::client::ClientError;
use super::super::document::Node;
use super::super::{nodes, units};
use super::domains::Domains;
use super::{InSession, several};
use api::requests::NewChannel;
use api::{Buffers, Channel, ChannelAttributes, Code, Domain, EventLoss, OutputMethod};

/// Create channels, or switch them on again
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options of the command line")]
pub struct EnableChannel {
    /// Channels, separated by commas
    #[arg(value_name = "CHANNEL")]
    pub names: Option<String>,

    #[command(flatten)]
    pub session: InSession,

    #[command(flatten)]
    pub domains: Domains,

    /// Drop new events when there is no room
    #[arg(long)]
    pub discard: bool,

    /// Overwrite the oldest events when there is no room
    #[arg(long)]
    pub overwrite: bool,

    /// How long a program waits for room: a time, or inf
    #[arg(long, value_name = "TIMEOUT")]
    pub blocking_timeout: Option<String>,

    /// Bytes of a sub-buffer, with k, M or G for units of 1024; rounded up to a power of two
    #[arg(long, value_name = "SIZE")]
    pub subbuf_size: Option<String>,

    /// Sub-buffers of each CPU, rounded up to a power of two
    #[arg(long, value_name = "COUNT")]
    pub num_subbuf: Option<String>,

    /// How LTTng hands over data of the kernel. It is kept and shown, and changes nothing
    #[arg(long, value_name = "TYPE")]
    pub output: Option<String>,

    /// How long an event waits at most in a sub-buffer: microseconds, or with ms, s, m or h
    #[arg(long, value_name = "PERIOD")]
    pub switch_timer: Option<String>,

    /// How often full sub-buffers are looked for
    #[arg(long, value_name = "PERIOD")]
    pub read_timer: Option<String>,

    /// How often it is looked how full the buffers are
    #[arg(long, value_name = "PERIOD")]
    pub monitor_timer: Option<String>,

    /// One set of buffers for each user
    #[arg(long)]
    pub buffers_uid: bool,

    /// One set of buffers for each process
    #[arg(long)]
    pub buffers_pid: bool,

    /// One set of buffers for all
    #[arg(long)]
    pub buffers_global: bool,

    /// Bytes of a trace file, after which the next one is begun
    #[arg(short = 'C', long, value_name = "SIZE")]
    pub tracefile_size: Option<String>,

    /// How many trace files of a stream are kept
    #[arg(short = 'W', long, value_name = "COUNT")]
    pub tracefile_count: Option<String>,
}

/// Reads an option's value; nothing where it is not given.
fn value<T>(
    name: &str,
    text: Option<&String>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let wrong = |text| Failure::new(format!("Wrong value for --{name} parameter: {text}"));
    text.map(|text| parse(text).ok_or_else(|| wrong(text))).transpose()
}

/// A power of two that has room for a value, with a warning if that is more.
fn rounded(at: &mut At, what: &str, value: Option<u64>) -> Option<u64> {
    let value = value?;
    // What has none is refused by the daemon.
    let power = value.checked_next_power_of_two().unwrap_or(value);
    if power != value && value > 0 {
        at.say.warning(&format!("The {what} ({value}) is rounded to the next power of 2 ({power})"));
    }
    Some(if value == 0 { 0 } else { power })
}

impl EnableChannel {
    pub fn run(&self, at: &mut At) -> Done {
        let domain = self.domains.one()?;
        let attributes = self.attributes(at)?;
        let names = self.names.as_deref().ok_or_else(|| Failure::new("Missing channel name."))?;
        let session = at.session(self.session.session.as_deref())?;
        let mut channels = Vec::new();
        let mut failed = None;
        for name in several(names) {
            let new = NewChannel { name: name.to_owned(), attributes: attributes.clone(), rules: Vec::new() };
            let (parts, failure) = enable(at, &session, domain, new)?;
            let mut parts = parts;
            parts.push(Node::success(failure.is_none()));
            channels.push(Node::Parts("channel", parts));
            failed = failure.or(failed);
        }
        at.output.push(Node::Items("channels", channels));
        failed.map_or(Ok(()), |code| Err(Failure::said(code)))
    }

    fn attributes(&self, at: &mut At) -> Result<ChannelAttributes, Failure> {
        let count = |text: &str| text.parse::<u64>().ok();
        let timeout = |text: &str| match text {
            "inf" => Some(-1),
            text => units::microseconds(text).and_then(|us| i64::try_from(us).ok()),
        };
        let blocking_timeout_us = value("blocking-timeout", self.blocking_timeout.as_ref(), timeout)?;
        let subbuf_size = value("subbuf-size", self.subbuf_size.as_ref(), units::bytes)?;
        let subbuf_size = rounded(at, "subbuf size", subbuf_size);
        let num_subbuf = value("num-subbuf", self.num_subbuf.as_ref(), count)?;
        let num_subbuf = rounded(at, "number of subbuffers", num_subbuf);
        let timer = |name, text: &Option<String>| value(name, text.as_ref(), units::microseconds);
        let tracefile_size = value("tracefile-size", self.tracefile_size.as_ref(), units::bytes)?;
        let tracefile_count = value("tracefile-count", self.tracefile_count.as_ref(), count)?;
        if tracefile_count.is_some_and(|count| count > 0) && tracefile_size.unwrap_or(0) == 0 {
            return Err(Failure::new(
                "Missing option --tracefile-size. A file count without a size won't do anything.",
            ));
        }
        Ok(ChannelAttributes {
            // LTTng takes the last of them; here the newer one, which drops nothing unseen, comes first.
            event_loss: match (self.discard, self.overwrite) {
                (true, _) => Some(EventLoss::Discard),
                (false, true) => Some(EventLoss::Overwrite),
                (false, false) => None,
            },
            subbuf_size,
            num_subbuf,
            switch_timer_us: timer("switch-timer", &self.switch_timer)?,
            read_timer_us: timer("read-timer", &self.read_timer)?,
            monitor_timer_us: timer("monitor-timer", &self.monitor_timer)?,
            blocking_timeout_us,
            output: self.method()?,
            tracefile_size: self.file_size(at, tracefile_size, subbuf_size)?,
            tracefile_count,
            buffers: match (self.buffers_uid, self.buffers_pid, self.buffers_global) {
                (false, false, false) => None,
                (true, false, false) => Some(Buffers::Uid),
                (false, true, false) => Some(Buffers::Pid),
                (false, false, true) => Some(Buffers::Global),
                _ => return Err(Failure::new("Only one buffering scheme must be specified.")),
            },
        })
    }

    fn method(&self) -> Result<Option<OutputMethod>, Failure> {
        match self.output.as_deref() {
            None => Ok(None),
            Some("mmap") => Ok(Some(OutputMethod::Mmap)),
            Some("splice") => Ok(Some(OutputMethod::Splice)),
            Some(other) => {
                Err(Failure::new(format!("Unknown output type {other}. Possible values are: mmap, splice\n")))
            }
        }
    }

    /// A trace file has room for a sub-buffer at least.
    fn file_size(
        &self,
        at: &mut At,
        size: Option<u64>,
        subbuf_size: Option<u64>,
    ) -> Result<Option<u64>, Failure> {
        let subbuf_size = subbuf_size.unwrap_or(match (self.domains.one()?, self.buffers_pid) {
            (Domain::Kernel, _) => 1 << 20,
            (Domain::User, false) => 512 << 10,
            (Domain::User, true) => 16 << 10,
        });
        Ok(match size {
            Some(size) if size > 0 && size < subbuf_size => {
                at.say.warning(&format!(
                    "Tracefile size rounded up from ({size}) to subbuffer size ({subbuf_size})"
                ));
                Some(subbuf_size)
            }
            other => other,
        })
    }
}

/// Creates a channel, or switches it on where it is switched off. Gives its parts of the document, and the
/// exit code if that failed, which was said.
fn enable(
    at: &mut At,
    session: &str,
    domain: Domain,
    new: NewChannel,
) -> Result<(Vec<Node>, Option<u8>), Failure> {
    let result = at.client()?.create_channel(session, domain, &new);
    let name = new.name.clone();
    match result {
        Ok(channel) => {
            at.say.line(&format!("{} channel {name} enabled for session {session}", word(domain)));
            Ok((nodes::channel(&channel), None))
        }
        Err(error) => {
            let exists = matches!(error.code(), Code::KernelChannelExists | Code::UserChannelExists);
            if exists && let Some(channel) = disabled(at, session, domain, &name)? {
                at.client()?.enable_channel(session, domain, &name, true)?;
                at.say.line(&format!("{} channel {name} enabled for session {session}", word(domain)));
                return Ok((nodes::channel(&Channel { enabled: true, ..channel }), None));
            }
            Ok((unmade(new), Some(refused(at, &error, &name, session, exists))))
        }
    }
}

/// The channel of this name, if it is switched off.
fn disabled(at: &mut At, session: &str, domain: Domain, name: &str) -> Result<Option<Channel>, Failure> {
    let session = at.client()?.session(session)?;
    let domains = session.domains.into_iter().filter(|of| of.domain == domain);
    Ok(domains.flat_map(|of| of.channels).find(|channel| channel.name == name && !channel.enabled))
}

/// A channel that was asked for and is not made.
fn unmade(NewChannel { name, attributes, rules }: NewChannel) -> Vec<Node> {
    nodes::channel(&Channel {
        name,
        enabled: true,
        attributes,
        discarded: 0,
        lost_packets: 0,
        contexts: Vec::new(),
        rules,
    })
}

/// Says why there is no channel; gives the exit code.
fn refused(at: &mut At, error: &ClientError, name: &str, session: &str, exists: bool) -> u8 {
    let text = format!("Channel {name}: {} (session {session})", error.text());
    if exists {
        at.say.warning(&text);
        COMMAND_WARNING
    } else {
        at.say.error(&text);
        super::super::at::COMMAND_ERROR
    }
}

/// Switch channels off
#[derive(Args, Debug)]
pub struct DisableChannel {
    /// Channels, separated by commas
    #[arg(value_name = "CHANNEL")]
    pub names: Option<String>,

    #[command(flatten)]
    pub session: InSession,

    #[command(flatten)]
    pub domains: Domains,
}

impl DisableChannel {
    pub fn run(&self, at: &mut At) -> Done {
        let domain = self.domains.one()?;
        let names = self.names.as_deref().ok_or_else(|| Failure::new("Missing channel name(s)."))?;
        let session = at.session(self.session.session.as_deref())?;
        let mut channels = Vec::new();
        let mut failed = false;
        for name in several(names) {
            let result = at.client()?.enable_channel(&session, domain, name, false);
            let is_off = result.is_ok();
            match result {
                Ok(()) => {
                    at.say.line(&format!("{} channel {name} disabled for session {session}", word(domain)));
                }
                Err(error) => {
                    at.say.error(&format!("Channel {name}: {} (session {session})", error.text()));
                    failed = true;
                }
            }
            let parts = vec![Node::text("name", name), Node::Flag("enabled", !is_off), Node::success(is_off)];
            channels.push(Node::Parts("channel", parts));
        }
        at.output.push(Node::Items("channels", channels));
        if failed { Err(Failure::said(COMMAND_WARNING)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;

    fn made(name: &str) -> Channel {
        Channel {
            name: name.to_owned(),
            enabled: true,
            attributes: ChannelAttributes::default(),
            discarded: 0,
            lost_packets: 0,
            contexts: Vec::new(),
            rules: Vec::new(),
        }
    }

    const CHANNELS: &str = "POST /v1/sessions/a/domains/user/channels";

    #[test]
    fn channels_are_made() {
        let mut desk = Desk::with_session("a");
        desk.story.answers(CHANNELS, &made("x"));
        desk.story.answers(CHANNELS, &made("y"));
        let out = "ust channel x enabled for session a\nust channel y enabled for session a\n";
        desk.says("enable-channel -u x,y --subbuf-size 64K", 0, out, "");
        assert!(desk.story.asked()[0].contains("\"subbuf_size\":65536"), "{:?}", desk.story.asked());
        desk.story.answers(CHANNELS, &made("x"));
        let warning = "Warning: The subbuf size (5000) is rounded to the next power of 2 (8192)\n";
        let out = "ust channel x enabled for session a\n";
        desk.says("enable-channel -u x --subbuf-size 5000", 0, out, warning);
    }

    #[test]
    fn wrong_options_are_told() {
        let desk = Desk::with_session("a");
        for (line, error) in [
            ("enable-channel", "Please specify a domain (--kernel/--userspace)."),
            ("enable-channel -u", "Missing channel name."),
            ("enable-channel -u x --switch-timer abc", "Wrong value for --switch-timer parameter: abc"),
            (
                "enable-channel -u x --output bogus",
                "Unknown output type bogus. Possible values are: mmap, splice\n",
            ),
            (
                "enable-channel -u x --tracefile-count 2",
                "Missing option --tracefile-size. A file count without a size won't do anything.",
            ),
            ("disable-channel -u", "Missing channel name(s)."),
            ("disable-channel -k -u x", "Only one domain must be specified."),
        ] {
            desk.says(line, 1, "", &format!("Error: {error}\n"));
        }
    }

    #[test]
    fn what_is_there_is_told() {
        let mut desk = Desk::with_session("a");
        desk.story.refuses(CHANNELS, Code::UserChannelExists);
        desk.story.answers_with("GET /v1/sessions/a", 200, super::super::list::tests::WITH_CHANNEL);
        let warning = "Warning: Channel ch1: UST channel already exist (session a)\n";
        desk.says("enable-channel -u ch1", 4, "", warning);
        desk.story.refuses("PATCH /v1/sessions/a/domains/user/channels/nope", Code::NoUserChannel);
        let error = "Error: Channel nope: UST channel not found (session a)\n";
        desk.says("disable-channel -u nope", 4, "", error);
        desk.story.obeys("PATCH /v1/sessions/a/domains/user/channels/ch1");
        desk.says("disable-channel -u ch1", 0, "ust channel ch1 disabled for session a\n", "");
    }
}
