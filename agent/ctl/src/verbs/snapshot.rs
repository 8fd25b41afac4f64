//! `snapshot`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::address::{Address, Relay, is_relay, shown_place};
use super::super::at::{At, Done, Failure};
use super::super::document::Node;
use super::super::{home, nodes, units};
use super::InSession;
use super::create::UNRECOGNIZED_URL;
use api::requests::TakeSnapshot;
use api::{Code, SessionMode, SnapshotOutput};

/// Take snapshots of a session, and say where they go
#[derive(Args, Debug)]
pub struct Snapshot {
    /// What to do
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// What is done with snapshots.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Take one
    Record(Wanted),
    /// Add a place for them
    AddOutput(Wanted),
    /// Remove a place for them
    DelOutput(Unwanted),
    /// List the places for them
    ListOutput(InSession),
}

/// A snapshot, or a place for them.
#[derive(Args, Debug)]
pub struct Wanted {
    /// Where to: a directory, file://DIR, or a relay daemon: net://HOST:CONTROL:DATA/DIR
    #[arg(value_name = "URL")]
    pub url: Option<String>,

    #[command(flatten)]
    pub session: InSession,

    /// Name [default: snapshot and its number]
    #[arg(short, long)]
    pub name: Option<String>,

    /// The most bytes of a snapshot
    #[arg(short, long, value_name = "SIZE")]
    pub max_size: Option<String>,

    /// Where a relay daemon takes commands; with --data-url
    #[arg(short = 'C', long, value_name = "URL")]
    pub ctrl_url: Option<String>,

    /// Where it takes data; with --ctrl-url
    #[arg(short = 'D', long, value_name = "URL")]
    pub data_url: Option<String>,
}

/// A place for snapshots that is removed.
#[derive(Args, Debug)]
pub struct Unwanted {
    /// Its name or number
    #[arg(value_name = "OUTPUT")]
    pub output: Option<String>,

    #[command(flatten)]
    pub session: InSession,
}

impl Wanted {
    fn path(&self) -> Result<Option<PathBuf>, Failure> {
        match (&self.ctrl_url, &self.data_url) {
            (Some(control), Some(data)) => {
                let relay = Relay::of_both(control, data);
                let relay = relay.ok_or_else(|| Failure::new(UNRECOGNIZED_URL))?;
                return Ok(Some(relay.url().into()));
            }
            (None, None) => {}
            _ => return Err(Failure::new("URLs must be specified for both data and control")),
        }
        let Some(url) = &self.url else { return Ok(None) };
        match Address::parse(url) {
            Some(address) => Ok(Some(address.place())),
            None if url.is_empty() || url.contains("://") => Err(Failure::new(UNRECOGNIZED_URL)),
            None => {
                let path = home::absolute(url.as_ref());
                path.map(Some).map_err(|error| Failure::new(format!("Cannot find {url}: {error}")))
            }
        }
    }

    fn max_size(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.max_size else { return Ok(None) };
        let wrong = || Failure::new(format!("Wrong value for --max-size parameter: {text}"));
        units::bytes(text).map(|size| (size > 0).then_some(size)).ok_or_else(wrong)
    }
}

impl Snapshot {
    pub fn run(&self, at: &mut At) -> Done {
        let (name, result) = match &self.action {
            None => return Err(Failure::new("No action specified for snapshot command.")),
            Some(Action::Record(wanted)) => ("record", record(at, wanted)),
            Some(Action::AddOutput(wanted)) => ("add-output", add(at, wanted)),
            Some(Action::DelOutput(unwanted)) => ("del-output", remove(at, unwanted)),
            Some(Action::ListOutput(of)) => ("list-output", list(at, of)),
        };
        let (output, done) = match result {
            Ok(output) => (output, Ok(())),
            Err(failure) => (Vec::new(), Err(failure)),
        };
        let parts = vec![Node::text("name", name), Node::Parts("output", output)];
        at.output.push(Node::Parts("snapshot_action", parts));
        done
    }
}

fn record(at: &mut At, wanted: &Wanted) -> Result<Vec<Node>, Failure> {
    let session = at.session(wanted.session.session.as_deref())?;
    let (path, max_size) = (wanted.path()?, wanted.max_size()?);
    let is_named = wanted.url.is_some();
    let taken = at
        .client()?
        .snapshot(&session, &TakeSnapshot { name: wanted.name.clone(), path, max_size, max_age_ms: None })?;
    at.say.line(&format!("Snapshot recorded successfully for session {session}"));
    let url = wanted.url.clone().unwrap_or_default();
    if is_named {
        at.say.line(&format!("Snapshot written at: {url}"));
    }
    // LTTng says no name and no place of a snapshot that goes where all go.
    let path = if is_named { url } else { taken.path.display().to_string() };
    Ok(vec![Node::Parts("snapshot", vec![Node::text("ctrl_url", path)])])
}

fn add(at: &mut At, wanted: &Wanted) -> Result<Vec<Node>, Failure> {
    let session = at.session(wanted.session.session.as_deref())?;
    let nowhere = || Failure::new("An output destination must be specified to add a snapshot output.");
    let (path, max_size) = (wanted.path()?.ok_or_else(nowhere)?, wanted.max_size()?);
    let new = SnapshotOutput { id: 0, name: wanted.name.clone(), path, max_size };
    let SnapshotOutput { id, name, path, max_size } = at.client()?.add_snapshot_output(&session, &new)?;
    // A relay daemon is said as it was given.
    let given = wanted.ctrl_url.as_ref().or(wanted.url.as_ref()).filter(|_| is_relay(&path)).cloned();
    let (name, path) = (name.unwrap_or_default(), given.unwrap_or_else(|| shown_place(&path)));
    at.say.line(&format!("Snapshot output successfully added for session {session}"));
    at.say.line(&format!("  [{id}] {name}: {path}{}", limit(max_size)));
    let parts = vec![
        Node::number("id", id),
        Node::text("name", name),
        Node::text("ctrl_url", path),
        Node::text("session_name", session),
        Node::number("max_size", max_size.unwrap_or_default()),
    ];
    Ok(vec![Node::Parts("snapshot", parts)])
}

fn limit(max_size: Option<u64>) -> String {
    max_size.map(|size| format!(" (max size: {size} bytes)")).unwrap_or_default()
}

fn remove(at: &mut At, unwanted: &Unwanted) -> Result<Vec<Node>, Failure> {
    let nothing =
        || Failure::new("A snapshot output name or id must be provided to delete a snapshot output.");
    let output = unwanted.output.as_deref().ok_or_else(nothing)?;
    let session = at.session(unwanted.session.session.as_deref())?;
    at.client()?.remove_snapshot_output(&session, output)?;
    let (what, node) = match output.parse::<u32>() {
        Ok(id) => ("id ", Node::number("id", id)),
        Err(_) => ("", Node::text("name", output)),
    };
    at.say.line(&format!("Snapshot output {what}{output} successfully deleted for session {session}"));
    Ok(vec![Node::Parts("snapshot", vec![node, Node::text("session_name", session)])])
}

fn list(at: &mut At, of: &InSession) -> Result<Vec<Node>, Failure> {
    let name = at.session(of.session.as_deref())?;
    let session = at.client()?.session(&name)?;
    if !matches!(session.summary.mode, SessionMode::Snapshot | SessionMode::Local { output: None }) {
        return Err(Failure::new(Code::NotSnapshotSession.text()));
    }
    at.say.line(&format!("Snapshot output list for session {name}"));
    if session.snapshot_outputs.is_empty() {
        at.say.line("    None");
    }
    for SnapshotOutput { id, name, path, max_size } in &session.snapshot_outputs {
        let name = name.clone().unwrap_or_default();
        at.say.line(&format!("    [{id}] {name}: {}{}", shown_place(path), limit(*max_size)));
    }
    let outputs = session.snapshot_outputs.iter().map(nodes::snapshot_output).collect();
    let parts = vec![Node::text("name", name), Node::Items("snapshots", outputs)];
    Ok(vec![Node::Parts("session", parts)])
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;
    use api::Snapshot as Taken;

    #[test]
    fn snapshots_are_taken() {
        let mut desk = Desk::with_session("s");
        let taken = Taken { name: "snapshot-1".into(), path: "/d/x".into(), events: 3 };
        desk.story.answers("POST /v1/sessions/s/snapshots", &taken);
        desk.says("snapshot record", 0, "Snapshot recorded successfully for session s\n", "");
        desk.story.answers("POST /v1/sessions/s/snapshots", &taken);
        let out = "Snapshot recorded successfully for session s\nSnapshot written at: file:///e\n";
        desk.says("snapshot record file:///e -n n -m 5M", 0, out, "");
        assert!(desk.story.asked()[1].ends_with("{\"name\":\"n\",\"path\":\"/e\",\"max_size\":5242880}"));
        desk.story.refuses("POST /v1/sessions/s/snapshots", Code::NeverStarted);
        desk.says("snapshot record", 1, "", "Error: Session needs to be started once\n");
        desk.says("snapshot", 1, "", "Error: No action specified for snapshot command.\n");
        desk.says("snapshot bogus", 2, "", "Error: Unrecognized argument used with 'snapshot' command\n");
    }

    #[test]
    fn outputs_are_added_and_removed() {
        let mut desk = Desk::with_session("s");
        let output =
            SnapshotOutput { id: 2, name: Some("foo".into()), path: "/f".into(), max_size: Some(10 << 20) };
        desk.story.answers("POST /v1/sessions/s/snapshot-outputs", &output);
        let out =
            "Snapshot output successfully added for session s\n  [2] foo: /f (max size: 10485760 bytes)\n";
        desk.says("snapshot add-output -n foo -m 10M /f", 0, out, "");
        desk.story.obeys("DELETE /v1/sessions/s/snapshot-outputs/foo");
        desk.says(
            "snapshot del-output foo",
            0,
            "Snapshot output foo successfully deleted for session s\n",
            "",
        );
        // A session without an output has them, too.
        desk.story.answers(
            "GET /v1/sessions/s",
            &serde_json::json!({
                "name": "s", "active": false, "mode": {"local": {"output": null}}, "format": "lttng",
                "created_at": 0, "uid": 0, "domains": [], "schedules": [],
                "snapshot_outputs": [{"id": 1, "name": "there", "path": "/tmp/there", "max_size": null}],
            }),
        );
        let listed = "Snapshot output list for session s\n    [1] there: /tmp/there\n";
        desk.says("snapshot list-output", 0, listed, "");
        let nowhere = "Error: An output destination must be specified to add a snapshot output.\n";
        desk.says("snapshot add-output", 1, "", nowhere);
    }
}
