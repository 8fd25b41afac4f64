//! The requests of the [control API](api::requests) as methods.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use api::requests::{Daemon, Enable, EnableRules, Health, NewChannel, NewContexts, NewRules, RulesChanged};
use api::requests::{TakeSnapshot, Track};
use api::{
    Channel, Code, ControlError, CountedMap, Created, Destroyed, Domain, InstrumentationPoint, NewMap,
    NewSession, NewTrigger, Rotation, Schedule, Session, Snapshot, SnapshotOutput, Stopped, Summary, Tracker,
    Trigger, Usage,
};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no session daemon listens on {}: {source}", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] ControlError),
    /// The connection broke.
    #[error("the session daemon did not answer: {0}")]
    Connection(String),
    /// There was no whole answer in this time.
    #[error("the session daemon did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The answer is none that there can be.
    #[error("the session daemon's answer is not understood: {0}")]
    Answer(String),
}

impl ClientError {
    /// The kind, for exit codes.
    pub fn code(&self) -> Code {
        match self {
            Self::NoDaemon { .. } => Code::NoDaemon,
            Self::Refused(refused) => refused.code,
            Self::Connection(_) | Self::TimedOut(_) | Self::Answer(_) => Code::Daemon,
        }
    }

    /// For people: LTTng's text of the kind, and what else is known.
    pub fn text(&self) -> String {
        match self {
            Self::NoDaemon { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Code::NoDaemon.text().to_owned()
            }
            Self::NoDaemon { .. } => format!("{} ({self})", Code::NoDaemon.text()),
            Self::Refused(ControlError { code: Code::Daemon, message }) => message.clone(),
            Self::Refused(ControlError { code, message }) if message == code.text() => message.clone(),
            Self::Refused(ControlError { code, message }) => format!("{} ({message})", code.text()),
            Self::Connection(_) | Self::TimedOut(_) | Self::Answer(_) => self.to_string(),
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method of HTTP.
    pub method: &'static str,
    /// Path and query, encoded.
    pub path: String,
    /// JSON.
    pub body: Option<Vec<u8>>,
}

/// What came back for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code of HTTP.
    pub status: u16,
    /// JSON, or nothing.
    pub body: Vec<u8>,
}

/// Takes a request to the daemon and brings the answer.
pub trait Transport {
    /// One exchange.
    fn call(&mut self, call: Call) -> Result<Reply, ClientError>;

    /// Asks for lines that come as things happen, and gives each to `each` until that says no, or the daemon
    /// ends.
    fn listen(&mut self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), ClientError>;
}

/// A client of the daemon.
pub struct Client {
    transport: Box<dyn Transport>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

type Answer<T> = Result<T, ClientError>;

impl Client {
    /// A client that speaks by this.
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport }
    }

    /// The daemon itself.
    pub fn daemon(&mut self) -> Answer<Daemon> {
        self.get("/v1/daemon")
    }

    /// All sessions that the user may see.
    pub fn sessions(&mut self) -> Answer<Vec<Summary>> {
        self.get("/v1/sessions")
    }

    /// Creates a session.
    pub fn create(&mut self, session: &NewSession) -> Answer<Created> {
        self.post("/v1/sessions", session)
    }

    /// A session with all that it has.
    pub fn session(&mut self, name: &str) -> Answer<Session> {
        self.get(&of_session(name, ""))
    }

    /// Ends a session.
    pub fn destroy(&mut self, name: &str) -> Answer<Destroyed> {
        self.answer("DELETE", &of_session(name, ""), None::<&()>)
    }

    /// Starts recording.
    pub fn start(&mut self, name: &str) -> Answer<()> {
        self.send("POST", &of_session(name, "/start"), None::<&()>)
    }

    /// Stops recording.
    pub fn stop(&mut self, name: &str) -> Answer<Stopped> {
        self.answer("POST", &of_session(name, "/stop"), None::<&()>)
    }

    /// Deletes what was recorded.
    pub fn clear(&mut self, name: &str) -> Answer<()> {
        self.send("POST", &of_session(name, "/clear"), None::<&()>)
    }

    /// Writes `metadata` or the `statedump` anew.
    pub fn regenerate(&mut self, name: &str, what: &str) -> Answer<()> {
        self.send("POST", &of_session(name, &format!("/regenerate/{what}")), None::<&()>)
    }

    /// Begins to archive the current trace chunk.
    pub fn rotate(&mut self, name: &str) -> Answer<Rotation> {
        self.answer("POST", &of_session(name, "/rotations"), None::<&()>)
    }

    /// How far a rotation is.
    pub fn rotation(&mut self, name: &str, id: u64) -> Answer<Rotation> {
        self.get(&of_session(name, &format!("/rotations/{id}")))
    }

    /// Adds a schedule.
    pub fn add_schedule(&mut self, name: &str, schedule: Schedule) -> Answer<()> {
        self.send("POST", &of_session(name, "/schedules"), Some(&schedule))
    }

    /// Removes a schedule.
    pub fn remove_schedule(&mut self, name: &str, schedule: Schedule) -> Answer<()> {
        self.send("DELETE", &of_session(name, "/schedules"), Some(&schedule))
    }

    /// Takes a snapshot.
    pub fn snapshot(&mut self, name: &str, snapshot: &TakeSnapshot) -> Answer<Snapshot> {
        self.post(&of_session(name, "/snapshots"), snapshot)
    }

    /// Adds an output for snapshots.
    pub fn add_snapshot_output(&mut self, name: &str, output: &SnapshotOutput) -> Answer<SnapshotOutput> {
        self.post(&of_session(name, "/snapshot-outputs"), output)
    }

    /// Removes an output for snapshots by its id or name.
    pub fn remove_snapshot_output(&mut self, name: &str, output: &str) -> Answer<()> {
        let path = of_session(name, &format!("/snapshot-outputs/{}", segment(output)));
        self.send("DELETE", &path, None::<&()>)
    }

    /// Creates a channel.
    pub fn create_channel(&mut self, name: &str, domain: Domain, channel: &NewChannel) -> Answer<Channel> {
        self.post(&of_domain(name, domain, "/channels"), channel)
    }

    /// Switches a channel on or off.
    pub fn enable_channel(&mut self, name: &str, domain: Domain, channel: &str, enabled: bool) -> Answer<()> {
        self.send("PATCH", &of_channel(name, domain, channel, ""), Some(&Enable { enabled }))
    }

    /// Adds event rules, or switches on those that are there: all, or none.
    pub fn add_rules(&mut self, name: &str, domain: Domain, channel: &str, rules: &NewRules) -> Answer<()> {
        self.send("POST", &of_channel(name, domain, channel, "/rules"), Some(rules))
    }

    /// Switches event rules on or off.
    pub fn enable_rules(
        &mut self,
        name: &str,
        domain: Domain,
        channel: &str,
        which: &EnableRules,
    ) -> Answer<RulesChanged> {
        self.answer("PATCH", &of_channel(name, domain, channel, "/rules"), Some(which))
    }

    /// Adds contexts to a channel.
    pub fn add_contexts(
        &mut self,
        name: &str,
        domain: Domain,
        channel: &str,
        contexts: &NewContexts,
    ) -> Answer<()> {
        self.send("POST", &of_channel(name, domain, channel, "/contexts"), Some(contexts))
    }

    /// Changes which processes are recorded.
    pub fn track(&mut self, name: &str, domain: Domain, track: &Track) -> Answer<Tracker> {
        self.post(&of_domain(name, domain, "/trackers"), track)
    }

    /// How full the rings of a session are, and what it has counted: of another user's, if one is named.
    pub fn usage(&mut self, owner: Option<u32>, name: &str) -> Answer<Usage> {
        self.get(&format!("{}{}", of_session(name, "/usage"), of_user(owner)))
    }

    /// The same of all sessions of a user, or of all that the user who asks may see.
    pub fn usages(&mut self, owner: Option<u32>) -> Answer<Vec<Usage>> {
        self.get(&format!("/v1/usage{}", of_user(owner)))
    }

    /// Adds a map.
    pub fn add_map(&mut self, name: &str, map: &NewMap) -> Answer<NewMap> {
        self.post(&of_session(name, "/maps"), map)
    }

    /// Removes a map; gives what it had.
    pub fn remove_map(&mut self, name: &str, map: &str) -> Answer<CountedMap> {
        let path = of_session(name, &format!("/maps/{}", segment(map)));
        self.answer("DELETE", &path, None::<&()>)
    }

    /// What maps have counted: those of a session, or all that the user may see.
    /// So many keys of each.
    pub fn maps(&mut self, session: Option<&str>, map: Option<&str>, keys: u32) -> Answer<Vec<CountedMap>> {
        let all = session.map_or_else(|| "/v1/maps".to_owned(), |name| of_session(name, "/maps"));
        let map = map.map(|map| format!("&map={}", segment(map))).unwrap_or_default();
        self.get(&format!("{all}?keys={keys}{map}"))
    }

    /// The triggers.
    pub fn triggers(&mut self) -> Answer<Vec<Trigger>> {
        self.get("/v1/triggers")
    }

    /// Adds a trigger: of another user, if one is named.
    pub fn add_trigger(&mut self, owner: Option<u32>, trigger: &NewTrigger) -> Answer<Trigger> {
        self.post(&format!("/v1/triggers{}", of_user(owner)), trigger)
    }

    /// Removes a trigger: of another user, if one is named.
    pub fn remove_trigger(&mut self, owner: Option<u32>, name: &str) -> Answer<Trigger> {
        let path = format!("/v1/triggers/{}{}", segment(name), of_user(owner));
        self.answer("DELETE", &path, None::<&()>)
    }

    /// Gives what happens from now on to `each`, a line of JSON each, until that says no or the daemon ends.
    pub fn listen(&mut self, each: &mut dyn FnMut(&str) -> bool) -> Answer<()> {
        self.transport.listen("/v1/notifications", each)
    }

    /// What there is to record.
    pub fn instrumentation(
        &mut self,
        domain: Domain,
        syscalls: bool,
        fields: bool,
    ) -> Answer<Vec<InstrumentationPoint>> {
        let domain = domain.name();
        self.get(&format!("/v1/instrumentation/{domain}?syscalls={syscalls}&fields={fields}"))
    }

    /// Whether the daemon is alive and ready.
    pub fn health(&mut self) -> Answer<Health> {
        self.get("/v1/health")
    }

    fn get<T: DeserializeOwned>(&mut self, path: &str) -> Answer<T> {
        self.answer("GET", path, None::<&()>)
    }

    fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Answer<T> {
        self.answer("POST", path, Some(body))
    }

    fn answer<T: DeserializeOwned>(
        &mut self,
        method: &'static str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Answer<T> {
        let answer = self.exchange(method, path, body)?;
        serde_json::from_slice(&answer).map_err(|error| ClientError::Answer(error.to_string()))
    }

    fn send(&mut self, method: &'static str, path: &str, body: Option<&impl Serialize>) -> Answer<()> {
        self.exchange(method, path, body).map(drop)
    }

    fn exchange(
        &mut self,
        method: &'static str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Answer<Vec<u8>> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| ClientError::Connection(error.to_string()))?;
        let Reply { status, body } = self.transport.call(Call { method, path: path.to_owned(), body })?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        Err(refusal(status, &body))
    }
}

/// The reason that an answer with such a status gives.
pub(super) fn refusal(status: u16, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<ControlError>(body) {
        Ok(refused) => refused.into(),
        Err(_) => ClientError::Answer(format!("status {status} without a reason")),
    }
}

fn of_user(uid: Option<u32>) -> String {
    uid.map(|uid| format!("?uid={uid}")).unwrap_or_default()
}

fn of_session(name: &str, rest: &str) -> String {
    format!("/v1/sessions/{}{rest}", segment(name))
}

fn of_domain(name: &str, domain: Domain, rest: &str) -> String {
    of_session(name, &format!("/domains/{}{rest}", domain.name()))
}

fn of_channel(name: &str, domain: Domain, channel: &str, rest: &str) -> String {
    of_domain(name, domain, &format!("/channels/{}{rest}", segment(channel)))
}

/// A name as one segment of a path: all but the unreserved characters of RFC 3986 (section 2.3) is
/// percent-encoded.
fn segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            // `.` and `..` alone would be resolved by whoever takes the path for one of files.
            b'.' if name.bytes().all(|byte| byte == b'.') => encoded += "%2E",
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string does not fail.
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn names_are_one_segment() {
        for (name, encoded) in [
            ("a", "a"),
            ("a/b", "a%2Fb"),
            ("..", "%2E%2E"),
            ("a.b", "a.b"),
            ("é", "%C3%A9"),
            ("a?b", "a%3Fb"),
        ] {
            assert_eq!(segment(name), encoded);
        }
    }

    #[test]
    fn a_refusal_has_its_code_and_text() {
        let mut story = Story::new();
        story.refuses("POST /v1/sessions/a/start", Code::NoSession);
        let error = story.client().start("a").unwrap_err();
        assert_eq!((error.code(), error.text()), (Code::NoSession, "Session name not found".to_owned()));
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (status, body, code) in [(200, "{", Code::Daemon), (500, "", Code::Daemon)] {
            let mut story = Story::new();
            story.answers_with("GET /v1/daemon", status, body);
            assert_eq!(story.client().daemon().unwrap_err().code(), code);
        }
    }

    #[test]
    fn more_is_said_behind_the_text_of_the_code() {
        let error = ClientError::from(ControlError::new(Code::Filter, "no field \"a\""));
        assert_eq!(error.text(), "Invalid filter bytecode (no field \"a\")");
        assert_eq!(ClientError::from(ControlError::new(Code::Daemon, "why")).text(), "why");
    }
}
