//! `add-context`.

use clap::Args;

use super::super::at::{At, COMMAND_WARNING, Done, FATAL, Failure, word};
use super::super::context;
use super::super::document::Node;
use super::InSession;
use super::domains::{Domains, Loggers};
use super::event::DEFAULT_CHANNEL;
use api::requests::{NewChannel, NewContexts};
use api::{ChannelAttributes, Domain};

/// Add fields to the records of a channel, or of all channels of a domain
#[derive(Args, Debug)]
pub struct AddContext {
    #[command(flatten)]
    pub session: InSession,

    #[command(flatten)]
    pub domains: Domains,

    #[command(flatten)]
    pub loggers: Loggers,

    /// Only this channel
    #[arg(short, long, value_name = "CHANNEL")]
    pub channel: Option<String>,

    /// Field, as --list names it; repeatable
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub types: Vec<String>,

    /// Print the names of fields
    #[arg(long)]
    pub list: bool,
}

fn part(name: &str, success: Option<bool>) -> Node {
    let mut parts = vec![context::node(name), Node::text("symbol", name)];
    parts.extend(success.map(Node::success));
    Node::Parts("context", parts)
}

impl AddContext {
    pub fn run(&self, at: &mut At) -> Done {
        if self.list {
            let names: Vec<String> = context::names().collect();
            for name in &names {
                at.say.line(name);
            }
            let parts = names.iter().map(|name| part(name, None)).collect();
            at.output.push(Node::Items("contexts", parts));
            return Ok(());
        }
        if self.types.is_empty() {
            return Err(Failure::new("Missing mandatory -t TYPE"));
        }
        if let Some(unknown) = self.types.iter().find(|name| !context::is_known(name)) {
            return Err(Failure::with(FATAL, format!("Unknown context type {unknown}")));
        }
        let domain = self.domains.or(self.loggers)?;
        let session = at.session(self.session.session.as_deref())?;
        let channels = self.channels(at, &session, domain)?;
        let mut parts = Vec::new();
        let mut failed = false;
        for name in &self.types {
            let new = NewContexts { contexts: vec![name.clone()] };
            let result = channels
                .iter()
                .try_for_each(|channel| Ok(at.client()?.add_contexts(&session, domain, channel, &new)?));
            parts.push(part(name, Some(result.is_ok())));
            match (result, &self.channel) {
                (Ok(()), Some(channel)) => {
                    at.say.line(&format!("{} context {name} added to channel {channel}", word(domain)));
                }
                (Ok(()), None) => {
                    at.say.line(&format!("{} context {name} added to all channels", word(domain)));
                }
                (Err(Failure { text, .. }), _) => {
                    at.say.error(&format!("{name}: {}", text.unwrap_or_default()));
                    failed = true;
                }
            }
        }
        at.output.push(Node::Items("contexts", parts));
        if failed { Err(Failure::said(COMMAND_WARNING)) } else { Ok(()) }
    }

    /// The channels that are meant. A domain without any gets the default one.
    fn channels(&self, at: &mut At, session: &str, domain: Domain) -> Result<Vec<String>, Failure> {
        if let Some(channel) = &self.channel {
            return Ok(vec![channel.clone()]);
        }
        let client = at.client()?;
        let domains = client.session(session)?.domains.into_iter().filter(|of| of.domain == domain);
        let channels: Vec<_> = domains.flat_map(|of| of.channels).map(|channel| channel.name).collect();
        if channels.is_empty() {
            let new = NewChannel {
                name: DEFAULT_CHANNEL.to_owned(),
                attributes: ChannelAttributes::default(),
                rules: Vec::new(),
            };
            return Ok(vec![client.create_channel(session, domain, &new)?.name]);
        }
        Ok(channels)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::super::list::tests::WITH_CHANNEL;
    use api::Code;

    #[test]
    fn contexts_are_added() {
        let mut desk = Desk::with_session("a");
        let of_channel = "POST /v1/sessions/a/domains/user/channels/ch1/contexts";
        desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
        desk.story.obeys(of_channel);
        desk.story.obeys(of_channel);
        let out = "ust context vpid added to all channels\nust context procname added to all channels\n";
        desk.says("add-context -u -t vpid -t procname", 0, out, "");
        desk.story.obeys(of_channel);
        desk.says("add-context -u -c ch1 -t vtid", 0, "ust context vtid added to channel ch1\n", "");
        desk.story.refuses("POST /v1/sessions/a/domains/user/channels/nope/contexts", Code::NoUserChannel);
        desk.says("add-context -u -c nope -t vtid", 4, "", "Error: vtid: UST channel not found\n");
        desk.says("add-context -u -t bogus", 3, "", "Error: Unknown context type bogus\n");
        desk.says("add-context -u", 1, "", "Error: Missing mandatory -t TYPE\n");
        let listed = desk.lttng("add-context --list").out;
        assert!(listed.starts_with("pid\nprocname\nprio\n"), "{listed}");
    }
}
