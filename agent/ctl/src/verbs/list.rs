//! `list` and `status`.

use clap::Args;

use super::super::at::{At, Done, Failure};
use super::super::client::ClientError;
use super::super::document::Node;
use super::super::{nodes, text};
use super::OfSession;
use super::domains::{Domains, Loggers};
use api::{Channel, Code, Domain, Session, Tracked};

/// List sessions, one of them, or what there is to record
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    pub of: OfSession,

    #[command(flatten)]
    pub domains: Domains,

    #[command(flatten)]
    pub loggers: Loggers,

    /// System calls of the kernel
    #[arg(long)]
    pub syscall: bool,

    /// With the fields of records
    #[arg(short, long)]
    pub fields: bool,

    /// Only this channel of the session
    #[arg(short, long, value_name = "CHANNEL")]
    pub channel: Option<String>,

    /// Only the names of the session's domains
    #[arg(short, long)]
    pub domain: bool,
}

impl List {
    pub fn run(&self, at: &mut At) -> Done {
        match &self.of.session {
            Some(name) => self.session(at, name),
            None if self.domains.kernel || self.domains.userspace => self.points(at),
            None if self.syscall => {
                at.say.warning("--syscall will only work with the Kernel domain (-k)");
                Err(Failure::said(super::super::at::COMMAND_ERROR))
            }
            None if self.loggers.jul || self.loggers.log4j || self.loggers.python => {
                self.domains.or(self.loggers).map(drop)
            }
            None => sessions(at),
        }
    }

    fn points(&self, at: &mut At) -> Done {
        for domain in Domain::ALL {
            let (wanted, title, what) = match domain {
                Domain::Kernel if self.syscall => (self.domains.kernel, "System calls", "system calls"),
                Domain::Kernel => (self.domains.kernel, "Kernel events", "kernel events"),
                Domain::User => (self.domains.userspace, "UST events", "UST events"),
            };
            if !wanted {
                continue;
            }
            let syscalls = self.syscall && domain == Domain::Kernel;
            let points = at.client()?.instrumentation(domain, syscalls, self.fields);
            let points =
                points.map_err(|error| Failure::new(format!("Unable to list {what}: {}", error.text())))?;
            at.say.print(&text::points(&points, title));
            at.output.push(nodes::points(domain, &points));
        }
        Ok(())
    }

    fn session(&self, at: &mut At, name: &str) -> Done {
        let found = at.client()?.session(name);
        let session = found.map_err(|error| {
            at.output.push(Node::Items("sessions", Vec::new()));
            match error {
                ClientError::Refused(refused) if refused.code == Code::NoSession => {
                    Failure::new(format!("Session '{name}' not found"))
                }
                error => error.into(),
            }
        })?;
        let session = self.chosen(session);
        let wanted = |channel: &Channel| self.channel.as_ref().is_none_or(|name| *name == channel.name);
        let channels: Option<&dyn Fn(&Channel) -> bool> = if self.domain { None } else { Some(&wanted) };
        at.output.push(Node::Items("sessions", vec![nodes::whole(&session, channels)]));
        at.say.print(&text::session(&session));
        if self.domain {
            at.say.print(&text::domains(&session));
            return Ok(());
        }
        for of in &session.domains {
            at.say.print(&text::domain(of));
            let mut channels = of.channels.iter().filter(|channel| wanted(channel)).peekable();
            match &self.channel {
                Some(name) if channels.peek().is_none() => {
                    return Err(Failure::new(format!("Channel {name} not found")));
                }
                _ => {}
            }
            channels.for_each(|channel| at.say.print(&text::channel(channel, &session.summary.mode)));
        }
        Ok(())
    }

    /// The session with the domains that are asked for.
    fn chosen(&self, mut session: Session) -> Session {
        let Domains { kernel, userspace } = self.domains;
        session.domains.retain(|of| match of.domain {
            // A domain for which only trackers were set says nothing as long as they let all through.
            _ if of.channels.is_empty() && of.trackers.iter().all(|of| of.tracked == Tracked::All) => false,
            _ if !kernel && !userspace => true,
            Domain::Kernel => kernel,
            Domain::User => userspace,
        });
        session
    }
}

fn sessions(at: &mut At) -> Done {
    let sessions = at.client()?.sessions()?;
    at.output.push(Node::Items("sessions", sessions.iter().map(nodes::session).collect()));
    at.say.print(&text::sessions(&sessions, at.name.typed()));
    Ok(())
}

/// Show the current session
#[derive(Args, Debug)]
pub struct Status {}

impl Status {
    pub fn run(at: &mut At) -> Done {
        let name = at.session(None)?;
        let list = List {
            of: OfSession { session: Some(name) },
            domains: Domains::default(),
            loggers: Loggers::default(),
            syscall: false,
            fields: false,
            channel: None,
            domain: false,
        };
        list.run(at)
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
pub(in super::super) mod tests;
