//! `start`, `stop`, `clear` and `regenerate`.

use clap::{Args, Subcommand};

use super::super::at::{At, Done, Failure};
use super::super::client::ClientError;
use super::super::document::Node;
use super::super::nodes;
use super::OfSession;
use api::{Code, Stopped};

fn state(name: &str, enabled: bool) -> Node {
    Node::Parts("session", vec![Node::text("name", name), Node::Flag("enabled", enabled)])
}

/// What is said instead of LTTng's text, if the session is so already.
fn failed(error: &ClientError, already: Code, text: String) -> Failure {
    let code = error.code();
    if code == already {
        Failure { text: Some(text), warning: true, code: code.number() }
    } else {
        Failure::numbered(error)
    }
}

/// Runs an act that has a list of one session in its document, also if it fails.
fn listed(at: &mut At, act: impl FnOnce(&mut At) -> Result<Node, Failure>) -> Done {
    let result = act(at);
    let (sessions, done) = match result {
        Ok(session) => (vec![session], Ok(())),
        Err(failure) => (Vec::new(), Err(failure)),
    };
    at.output.push(Node::Items("sessions", sessions));
    done
}

/// Start recording
#[derive(Args, Debug)]
pub struct Start {
    #[command(flatten)]
    pub of: OfSession,
}

impl Start {
    pub fn run(&self, at: &mut At) -> Done {
        listed(at, |at| {
            let name = at.session(self.of.session.as_deref())?;
            at.client()?.start(&name).map_err(|error| {
                failed(&error, Code::AlreadyStarted, format!("Tracing already started for session {name}"))
            })?;
            at.say.line(&format!("Tracing started for session {name}"));
            Ok(state(&name, true))
        })
    }
}

/// Stop recording
#[derive(Args, Debug)]
pub struct Stop {
    #[command(flatten)]
    pub of: OfSession,

    /// Do not say that it waits. All that was recorded is in the files when the command ends
    #[arg(short, long)]
    pub no_wait: bool,
}

impl Stop {
    pub fn run(&self, at: &mut At) -> Done {
        listed(at, |at| {
            let name = at.session(self.of.session.as_deref())?;
            let stopped = at.client()?.stop(&name).map_err(|error| {
                failed(&error, Code::AlreadyStopped, format!("Tracing already stopped for session {name}"))
            })?;
            if !self.no_wait {
                at.say.line("Waiting for data availability");
            }
            warn_of_losses(at, stopped);
            at.say.line(&format!("Tracing stopped for session {name}"));
            Ok(state(&name, false))
        })
    }
}

/// Says what is missing in a recording.
pub(crate) fn warn_of_losses(at: &mut At, stopped: Stopped) {
    let see = "please refer to the documentation on channel configuration.";
    let Stopped { discarded, lost_packets } = stopped;
    if discarded > 0 {
        at.say.warning(&format!("{discarded} events were discarded, {see}"));
    }
    if lost_packets > 0 {
        at.say.warning(&format!("{lost_packets} packets were lost, {see}"));
    }
}

/// Delete what was recorded until now
#[derive(Args, Debug)]
pub struct Clear {
    #[command(flatten)]
    pub of: OfSession,

    /// All sessions
    #[arg(short, long)]
    pub all: bool,
}

impl Clear {
    pub fn run(&self, at: &mut At) -> Done {
        let mut cleared = Vec::new();
        let done = self.each(at, &mut cleared);
        at.output.push(Node::Items("sessions", cleared));
        done
    }

    fn each(&self, at: &mut At, cleared: &mut Vec<Node>) -> Done {
        for of in chosen(at, self.of.session.as_deref(), self.all)? {
            at.client()?.clear(&of.name).map_err(|error| Failure::numbered(&error))?;
            at.say.line(&format!("Session \"{}\" cleared", of.name));
            cleared.push(nodes::session(&of));
        }
        Ok(())
    }
}

/// The sessions that are meant.
pub(crate) fn chosen(at: &mut At, named: Option<&str>, all: bool) -> Result<Vec<api::Summary>, Failure> {
    let name = if all { None } else { Some(at.session(named)?) };
    let mut sessions = at.client()?.sessions()?;
    if let Some(name) = name {
        sessions.retain(|there| there.name == name);
        if sessions.is_empty() {
            let text = format!("Session name {name} not found");
            return Err(Failure::with(Code::NoSession.number(), text));
        }
        // Root sees those of others too; its own is meant, or else the first.
        sessions.sort_by_key(|there| there.uid);
        sessions.truncate(1);
    }
    Ok(sessions)
}

/// Write parts of a recording anew
#[derive(Args, Debug)]
pub struct Regenerate {
    /// What is written anew
    #[command(subcommand)]
    pub what: Option<What>,
}

/// What is written anew.
#[derive(Subcommand, Debug)]
pub enum What {
    /// The description of the trace
    Metadata(super::InSession),
    /// The state of the system
    Statedump(super::InSession),
}

impl Regenerate {
    pub fn run(&self, at: &mut At) -> Done {
        let (name, what, session) = match &self.what {
            Some(What::Metadata(of)) => ("metadata", "Metadata", &of.session),
            Some(What::Statedump(of)) => ("statedump", "State dump", &of.session),
            None => return Err(Failure::new("No object specified for regenerate command.")),
        };
        at.output.push(Node::Parts("regenerate_action", vec![Node::text("name", name)]));
        let session = at.session(session.as_deref())?;
        at.client()?.regenerate(&session, name).map_err(|error| Failure::numbered(&error))?;
        at.say.line(&format!("{what} successfully regenerated for session {session}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;

    #[test]
    fn sessions_are_started_and_stopped() {
        let mut desk = Desk::with_session("a");
        desk.story.obeys("POST /v1/sessions/a/start");
        desk.says("start", 0, "Tracing started for session a\n", "");
        desk.story.refuses("POST /v1/sessions/a/start", Code::AlreadyStarted);
        desk.says("start a", 80, "", "Warning: Tracing already started for session a\n");
        desk.story.answers("POST /v1/sessions/a/stop", &Stopped { discarded: 7, lost_packets: 0 });
        let out = "Waiting for data availability\nTracing stopped for session a\n";
        let lost =
            "Warning: 7 events were discarded, please refer to the documentation on channel configuration.\n";
        desk.says("stop", 0, out, lost);
        desk.story.refuses("POST /v1/sessions/a/stop", Code::AlreadyStopped);
        desk.says("stop", 81, "", "Warning: Tracing already stopped for session a\n");
        desk.story.refuses("POST /v1/sessions/a/start", Code::NoChannel);
        desk.says("start", 72, "", "Error: No channel found in the session\n");
        desk.story.refuses("POST /v1/sessions/nope/stop", Code::NoSession);
        desk.says("stop nope", 23, "", "Error: Session name not found\n");
    }

    #[test]
    fn documents_list_the_session() {
        let mut desk = Desk::with_session("a");
        desk.story.obeys("POST /v1/sessions/a/start");
        let xml = desk.lttng("--mi xml start").out;
        assert!(xml.ends_with(
            "<name>start</name><output><sessions><session><name>a</name><enabled>true</enabled></session>\
             </sessions></output><success>true</success></command>\n"
        ));
        desk.story.refuses("POST /v1/sessions/a/start", Code::AlreadyStarted);
        let said = desk.lttng("--mi xml start");
        assert!(said.out.ends_with("<output><sessions/></output><success>false</success></command>\n"));
        assert_eq!(said.code, 80);
    }

    #[test]
    fn without_a_current_session() {
        let desk = Desk::new();
        let said = desk.lttng("start");
        assert_eq!(said.out, "Did you create a session? (lttng create <my_session>)\n");
        let config = desk.home().config();
        assert_eq!(said.err, format!("Error: Can't find valid lttng config {}\n", config.display()));
        assert_eq!(said.code, 1);
    }

    #[test]
    fn parts_are_written_anew() {
        let mut desk = Desk::with_session("a");
        desk.story.obeys("POST /v1/sessions/a/regenerate/statedump");
        desk.says("regenerate statedump", 0, "State dump successfully regenerated for session a\n", "");
        desk.says("regenerate", 1, "", "Error: No object specified for regenerate command.\n");
        let wrong = "Error: Unrecognized argument used with 'regenerate' command\n";
        desk.says("regenerate nope", 2, "", wrong);
    }
}
