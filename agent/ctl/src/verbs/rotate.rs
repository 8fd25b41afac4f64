//! `rotate`, `enable-rotation` and `disable-rotation`.

use std::thread;
use std::time::Duration;

use clap::Args;

use super::super::at::{At, COMMAND_ERROR, Done, Failure};
use super::super::document::Node;
use super::super::{nodes, units};
use super::{InSession, OfSession};
use api::{Code, Rotation, RotationState, Schedule};

/// Between two looks at a rotation that goes on.
const LOOK: Duration = Duration::from_millis(50);

/// Archive the current trace chunk
#[derive(Args, Debug)]
pub struct Rotate {
    #[command(flatten)]
    pub of: OfSession,

    /// Do not wait until the archive is there
    #[arg(short, long)]
    pub no_wait: bool,
}

impl Rotate {
    pub fn run(&self, at: &mut At) -> Done {
        let session = at.session(self.of.session.as_deref())?;
        let mut rotation = at.client()?.rotate(&session)?;
        if self.no_wait {
            at.say.line(&format!("Rotation ongoing for session {session}"));
            let ongoing = Rotation { state: RotationState::Ongoing, path: None, ..rotation };
            at.output.push(part(&session, &ongoing));
            return Ok(());
        }
        at.say.line("Waiting for rotation to complete...");
        while rotation.state == RotationState::Ongoing {
            thread::sleep(LOOK);
            rotation = at.client()?.rotation(&session, rotation.id)?;
        }
        at.output.push(part(&session, &rotation));
        match (rotation.state, rotation.path) {
            (RotationState::Completed, Some(path)) => {
                at.say.line(&format!(
                    "Trace chunk archive for session {session} is now readable at {}",
                    path.display()
                ));
                Ok(())
            }
            (RotationState::Completed, None) => {
                at.say.line(&format!("Session {session}: the trace chunk has no events"));
                Ok(())
            }
            _ => Err(Failure::new(Code::RotationFailed.text())),
        }
    }
}

fn part(session: &str, rotation: &Rotation) -> Node {
    let state = match rotation.state {
        RotationState::Ongoing => "ONGOING",
        RotationState::Completed => "COMPLETED",
        RotationState::Failed => "ERROR",
    };
    let mut parts = vec![Node::text("session_name", session), Node::text("state", state)];
    if let Some(path) = &rotation.path {
        let path = Node::text("absolute_path", path.display().to_string());
        parts.push(Node::Parts("location", vec![Node::Parts("local", vec![path])]));
    }
    Node::Parts("rotation", parts)
}

/// What texts call a schedule.
fn kind(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::PeriodUs(_) => "periodic",
        Schedule::SizeBytes(_) => "size-based",
    }
}

/// Rotate by a timer or by size
#[derive(Args, Debug)]
pub struct EnableRotation {
    #[command(flatten)]
    pub session: InSession,

    /// Each time that so long has passed: microseconds, or with ms, s, m or h
    #[arg(long, value_name = "PERIOD")]
    pub timer: Option<String>,

    /// Each time that the chunk has so many bytes
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
}

/// The part of the document about a schedule.
fn result(schedule: Option<&Schedule>, empty: &'static str, success: bool) -> Node {
    let schedule = schedule.map_or_else(|| Node::Parts(empty, Vec::new()), nodes::schedule);
    let parts = vec![Node::Parts("rotation_schedule", vec![schedule]), Node::success(success)];
    Node::Parts("rotation_schedule_result", parts)
}

fn results(session: &str, results: Vec<Node>) -> Node {
    let mut parts = vec![Node::text("session_name", session)];
    parts.extend(results);
    Node::Parts("rotation_schedule_results", parts)
}

impl EnableRotation {
    fn schedules(&self) -> Result<Vec<Schedule>, Failure> {
        let read = |name: &str, text: &Option<String>, parse: fn(&str) -> Option<u64>| {
            let wrong = |text: &String| Failure::new(format!("Invalid value for --{name} option: {text}"));
            let value = |text: &String| parse(text).filter(|value| *value > 0).ok_or_else(|| wrong(text));
            text.as_ref().map(value).transpose()
        };
        let timer = read("timer", &self.timer, units::microseconds)?.map(Schedule::PeriodUs);
        let size = read("size", &self.size, units::bytes)?.map(Schedule::SizeBytes);
        Ok(timer.into_iter().chain(size).collect())
    }

    pub fn run(&self, at: &mut At) -> Done {
        let schedules = self.schedules()?;
        if schedules.is_empty() {
            return Err(Failure::new("No session rotation schedule parameter provided."));
        }
        let session = at.session(self.session.session.as_deref())?;
        let mut parts = Vec::new();
        let mut failed = false;
        for schedule in schedules {
            let added = at.client()?.add_schedule(&session, schedule);
            parts.push(result(Some(&schedule), "", added.is_ok()));
            let kind = kind(schedule);
            match added {
                Ok(()) => at.say.line(&match schedule {
                    Schedule::PeriodUs(us) => {
                        format!("Enabled periodic rotations every {us} us on session {session}")
                    }
                    Schedule::SizeBytes(bytes) => {
                        format!(
                            "Enabled size-based rotations every {bytes} bytes written on session {session}"
                        )
                    }
                }),
                Err(error) => {
                    failed = true;
                    at.say.error(&match error.code() {
                        Code::ScheduleSet => {
                            format!("A {kind} rotation schedule is already set on session {session}")
                        }
                        _ => format!("Failed to enable {kind} rotation schedule on session {session}"),
                    });
                }
            }
        }
        at.output.push(results(&session, parts));
        if failed { Err(Failure::said(COMMAND_ERROR)) } else { Ok(()) }
    }
}

/// Rotate no more by a timer or by size
#[derive(Args, Debug)]
pub struct DisableRotation {
    #[command(flatten)]
    pub session: InSession,

    /// Not by a timer
    #[arg(long)]
    pub timer: bool,

    /// Not by size
    #[arg(long)]
    pub size: bool,
}

impl DisableRotation {
    pub fn run(&self, at: &mut At) -> Done {
        if !self.timer && !self.size {
            return Err(Failure::new("No session rotation schedule type provided."));
        }
        let session = at.session(self.session.session.as_deref())?;
        let there = at.client()?.session(&session)?.schedules;
        let mut parts = Vec::new();
        let mut failed = false;
        let kinds = [(self.timer, "periodic", "periodic"), (self.size, "size-based", "size_threshold")];
        for (_, word, name) in kinds.into_iter().filter(|(is_meant, ..)| *is_meant) {
            let schedule = there.iter().copied().find(|schedule| kind(*schedule) == word);
            let removed = match schedule {
                Some(schedule) => {
                    at.client()?.remove_schedule(&session, schedule).map_err(|error| error.text())
                }
                None => Err(format!("No {word} rotation schedule active on session {session}")),
            };
            parts.push(result(schedule.as_ref(), name, removed.is_ok()));
            match removed {
                Ok(()) => at.say.line(&format!("Disabled {word} rotation on session {session}")),
                Err(text) => {
                    at.say.error(&text);
                    failed = true;
                }
            }
        }
        at.output.push(results(&session, parts));
        if failed { Err(Failure::said(COMMAND_ERROR)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;

    #[test]
    fn chunks_are_archived() {
        let mut desk = Desk::with_session("a");
        let rotation = |state, path: Option<&str>| Rotation { id: 0, state, path: path.map(Into::into) };
        let rotations = "POST /v1/sessions/a/rotations";
        desk.story.answers(rotations, &rotation(RotationState::Ongoing, None));
        desk.story.answers("GET /v1/sessions/a/rotations/0", &rotation(RotationState::Ongoing, None));
        let done = rotation(RotationState::Completed, Some("/d/archives/x"));
        desk.story.answers("GET /v1/sessions/a/rotations/0", &done);
        let out = "Waiting for rotation to complete...\n\
                   Trace chunk archive for session a is now readable at /d/archives/x\n";
        desk.says("rotate", 0, out, "");
        desk.story.answers(rotations, &rotation(RotationState::Ongoing, None));
        desk.says("rotate --no-wait", 0, "Rotation ongoing for session a\n", "");
        desk.story.answers(rotations, &rotation(RotationState::Failed, None));
        desk.says(
            "rotate",
            1,
            "Waiting for rotation to complete...\n",
            "Error: Rotation failure on consumer\n",
        );
        desk.story.refuses(rotations, Code::RotatedAfterStop);
        let error = "Error: Session was already rotated once since it became inactive\n";
        desk.says("rotate", 1, "", error);
    }

    #[test]
    fn schedules_are_set() {
        let mut desk = Desk::with_session("a");
        desk.story.obeys("POST /v1/sessions/a/schedules");
        desk.story.refuses("POST /v1/sessions/a/schedules", Code::ScheduleSet);
        let out = "Enabled periodic rotations every 3600000000 us on session a\n";
        let error = "Error: A size-based rotation schedule is already set on session a\n";
        desk.says("enable-rotation --timer 1h --size 10M", 1, out, error);
        for (line, error) in [
            ("enable-rotation", "No session rotation schedule parameter provided."),
            ("enable-rotation --timer abc", "Invalid value for --timer option: abc"),
            ("disable-rotation", "No session rotation schedule type provided."),
        ] {
            desk.says(line, 1, "", &format!("Error: {error}\n"));
        }
    }
}
