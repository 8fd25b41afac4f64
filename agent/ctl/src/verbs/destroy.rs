//! `destroy`.

use clap::Args;

use super::super::at::{At, COMMAND_ERROR, Done, Failure};
use super::super::document::Node;
use super::super::nodes;
use super::activity::{chosen, warn_of_losses};
use super::{OfSession, forget};
use api::{Code, Destroyed};

/// End sessions; their files stay
#[derive(Args, Debug)]
pub struct Destroy {
    #[command(flatten)]
    pub of: OfSession,

    /// All sessions
    #[arg(short, long)]
    pub all: bool,

    /// Taken as LTTng takes it: files are complete when the command ends
    #[arg(short, long)]
    pub no_wait: bool,
}

impl Destroy {
    pub fn run(&self, at: &mut At) -> Done {
        let mut destroyed = Vec::new();
        let done = self.each(at, &mut destroyed);
        at.output.push(Node::Items("sessions", destroyed));
        done
    }

    fn each(&self, at: &mut At, destroyed: &mut Vec<Node>) -> Done {
        let sessions = chosen(at, self.of.session.as_deref(), self.all)?;
        if sessions.is_empty() {
            at.say.line("No session found, nothing to do.");
        }
        let mut failed = None;
        for of in sessions {
            match at.client()?.destroy(&of.name) {
                Ok(ended) => {
                    tell(at, &of.name, ended);
                    destroyed.push(nodes::session(&of));
                    forget(at, &of.name)?;
                }
                Err(error) if !self.all => return Err(error.into()),
                // It is the administrator's, in the configuration.
                Err(error) if error.code() == Code::NotSupported => {
                    at.say.warning(&format!("Session {} is not destroyed: {}", of.name, error.text()));
                }
                Err(error) => {
                    at.say.error(&format!("Session {}: {}", of.name, error.text()));
                    failed = Some(COMMAND_ERROR);
                }
            }
        }
        failed.map_or(Ok(()), |code| Err(Failure::said(code)))
    }
}

fn tell(at: &mut At, name: &str, ended: Destroyed) {
    warn_of_losses(at, ended.counts);
    if let Some(archive) = ended.archive {
        at.say.print(&format!(
            "Destroying session {name}...Trace chunk archive for session {name} is now readable at {}\n\n",
            archive.display()
        ));
    }
    at.say.line(&format!("Session {name} destroyed"));
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;
    use api::{Format, SessionMode, Summary};

    fn summary(name: &str) -> Summary {
        let mode = SessionMode::Local { output: Some("/t".into()) };
        Summary { name: name.to_owned(), active: true, mode, format: Format::Lttng, created_at: 0, uid: 0 }
    }

    #[test]
    fn sessions_are_ended() {
        let mut desk = Desk::with_session("a");
        desk.story.answers("GET /v1/sessions", &[summary("a"), summary("b")]);
        let archive = Some("/t/archives/1".into());
        desk.story.answers("DELETE /v1/sessions/a", &Destroyed { archive, ..Destroyed::default() });
        let out = "Destroying session a...Trace chunk archive for session a is now readable at \
                   /t/archives/1\n\nSession a destroyed\n";
        desk.says("destroy", 0, out, "");
        assert_eq!(desk.home().current(), None);
        desk.story.answers("GET /v1/sessions", &[summary("b")]);
        desk.says("destroy a", 23, "", "Error: Session name a not found\n");
        desk.story.answers("GET /v1/sessions", &[summary("b")]);
        desk.story.answers("DELETE /v1/sessions/b", &Destroyed::default());
        desk.says("destroy -a", 0, "Session b destroyed\n", "");
        // Each is ended that can be, and who is not is told.
        desk.story.answers("GET /v1/sessions", &[summary("of-config"), summary("b")]);
        desk.story.refuses("DELETE /v1/sessions/of-config", Code::NotSupported);
        desk.story.answers("DELETE /v1/sessions/b", &Destroyed::default());
        let stays = "Warning: Session of-config is not destroyed: Operation not supported\n";
        desk.says("destroy -a", 0, "Session b destroyed\n", stays);
        desk.story.answers("GET /v1/sessions", &[summary("a"), summary("b")]);
        desk.story.refuses("DELETE /v1/sessions/a", Code::CreateFile);
        desk.story.answers("DELETE /v1/sessions/b", &Destroyed::default());
        let said = desk.lttng("destroy -a");
        assert_eq!((said.code, said.out.as_str()), (1, "Session b destroyed\n"), "{}", said.err);
        desk.story.answers("GET /v1/sessions", &[(); 0]);
        desk.says("destroy --all", 0, "No session found, nothing to do.\n", "");
    }
}
