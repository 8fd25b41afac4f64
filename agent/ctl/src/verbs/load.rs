//! `load`.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::address::Address;
use super::super::at::{At, Done, Failure};
use super::super::client::{Client, ClientError};
use super::super::document::Node;
use super::super::saved::{Saved, SavedChannel, read};
use super::OfSession;
use api::requests::NewContexts;
use api::{Code, SessionMode};

/// Make sessions of files that `save`, or LTTng, has written
#[derive(Args, Debug)]
pub struct Load {
    #[command(flatten)]
    pub of: OfSession,

    /// All sessions
    #[arg(short, long)]
    pub all: bool,

    /// Replace sessions that there are
    #[arg(short, long)]
    pub force: bool,

    /// A file, or a directory of files [default: the user's, and /etc/lttng/sessions]
    #[arg(short, long, value_name = "PATH")]
    pub input_path: Option<PathBuf>,

    /// Write or send to this instead: a directory, file://DIR or net://HOST
    #[arg(long, value_name = "URL")]
    pub override_url: Option<String>,

    /// Name the session so
    #[arg(long, value_name = "NAME")]
    pub override_name: Option<String>,
}

/// Where an administrator puts sessions for all users.
const OF_THE_SYSTEM: &str = "/etc/lttng/sessions";

impl Load {
    pub fn run(&self, at: &mut At) -> Done {
        self.tell(at);
        let named = self.of.session.as_ref().filter(|_| !self.all);
        if named.is_none() && self.override_name.is_some() {
            return Err(Failure::new("Options --all and --override-name cannot be used simultaneously"));
        }
        let invalid = || Failure::with(Code::Invalid.number(), "Url override is invalid");
        let override_url = self.override_url.as_ref().map(|url| Address::parse(url).ok_or_else(invalid));
        let override_url = override_url.transpose()?;
        let mut sessions = Vec::new();
        for path in self.files(at)? {
            let found = file(&path).map_err(|why| format!("{} is not loaded: {why}", path.display()));
            match found {
                Ok(found) => sessions.extend(found),
                // Others of a directory are looked at nevertheless.
                Err(why) if self.input_path.as_deref() != Some(&path) => at.say.warning(&why),
                Err(why) => return Err(Failure::new(why)),
            }
        }
        if let Some(name) = named {
            sessions.retain(|saved| saved.session.name.as_ref() == Some(name));
            sessions.truncate(1);
            if sessions.is_empty() {
                return Err(Failure::new("Session file not found"));
            }
        }
        for saved in sessions {
            self.load(at, self.overridden(saved, override_url.clone()))?;
        }
        at.say.line(&match named {
            Some(name) => format!("Session {name} has been loaded successfully"),
            None => "All sessions have been loaded successfully".to_owned(),
        });
        if let Some(name) = &self.override_name {
            at.say.line(&format!("Session name overridden with {name}"));
        }
        if let Some(url) = &self.override_url {
            at.say.line(&format!("Session output url overridden with {url}"));
        }
        Ok(())
    }

    /// What the document says of the request itself.
    fn tell(&self, at: &mut At) {
        let name = self.of.session.as_ref().filter(|_| !self.all).map_or("*", |name| name);
        let mut parts = vec![Node::Parts("session", vec![Node::text("name", name)])];
        parts.extend(self.input_path.iter().map(|path| Node::text("path", path.display().to_string())));
        let name = self.override_name.iter().map(|name| Node::text("name", name));
        let url = self.override_url.iter().map(|url| Node::text("url", url));
        parts.push(Node::Parts("overrides", name.chain(url).collect()));
        at.output.push(Node::Parts("load", parts));
    }

    /// The files that are looked at.
    fn files(&self, at: &At) -> Result<Vec<PathBuf>, Failure> {
        let dirs = match &self.input_path {
            Some(path) if path.is_file() => return Ok(vec![path.clone()]),
            Some(path) if path.is_dir() => vec![path.clone()],
            Some(path) => {
                return Err(Failure::new(format!("Invalid input path: {} is not there", path.display())));
            }
            None => vec![at.home()?.saved(), OF_THE_SYSTEM.into()],
        };
        Ok(dirs.iter().flat_map(|dir| saved_in(dir)).collect())
    }

    fn overridden(&self, mut saved: Saved, address: Option<Address>) -> Saved {
        if let Some(name) = &self.override_name {
            saved.session.name = Some(name.clone());
        }
        let Some(address) = address else { return saved };
        let session = &mut saved.session;
        // A session without output may take snapshots, too.
        let has_snapshots = session.mode == SessionMode::Snapshot
            || session.snapshot_output.is_some()
            || !saved.snapshot_outputs.is_empty();
        match (&mut session.mode, address) {
            (SessionMode::Snapshot | SessionMode::Local { output: None }, address) if has_snapshots => {
                saved.snapshot_outputs.clear();
                session.snapshot_output = Some(address.place());
            }
            (SessionMode::Live { url, .. }, Address::Relay(relay)) => *url = relay.url(),
            (SessionMode::Served { output, .. }, Address::Local(path)) => *output = path,
            (mode @ SessionMode::Served { .. }, Address::Relay(relay)) => {
                let timer_us = mode.live_timer_us().unwrap_or_default();
                *mode = SessionMode::Live { url: relay.url(), timer_us };
            }
            (mode @ SessionMode::Live { .. }, Address::Local(output)) => {
                let timer_us = mode.live_timer_us().unwrap_or_default();
                *mode = SessionMode::Served { output, timer_us };
            }
            (mode, Address::Local(path)) => *mode = SessionMode::Local { output: Some(path) },
            (mode, Address::Relay(relay)) => *mode = SessionMode::Network { url: relay.url() },
        }
        saved
    }

    /// Makes a session; it is there whole or not at all.
    fn load(&self, at: &mut At, saved: Saved) -> Done {
        let client = at.client()?;
        let created = match client.create(&saved.session) {
            Err(error) if error.code() == Code::SessionExists && self.force => {
                client.destroy(&saved.session.name.clone().unwrap_or_default())?;
                client.create(&saved.session)
            }
            result => result,
        };
        let name = created?.name;
        fill(client, &name, saved).map_err(|error| {
            // What is to be said is why it is not whole.
            let _ = client.destroy(&name);
            Failure::new(format!("Session {name} is not loaded: {}", error.text()))
        })
    }
}

/// The files of a directory, in the order of their names. One that is not there has none.
fn saved_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|of| of == "lttng") && path.is_file());
    files.sort();
    files
}

fn file(path: &Path) -> Result<Vec<Saved>, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(read::LARGEST + 1).read_to_string(&mut text));
    let length = read.map_err(|error| error.to_string())?;
    if length as u64 > read::LARGEST {
        return Err(format!("it has more than {} bytes", read::LARGEST));
    }
    read::sessions(&text)
}

/// Gives a new session all that a saved one has.
fn fill(client: &mut Client, name: &str, saved: Saved) -> Result<(), ClientError> {
    let Saved { session: _, channels, trackers, schedules, snapshot_outputs, started } = saved;
    for channel in channels {
        add_channel(client, name, channel)?;
    }
    for (domain, track) in trackers {
        client.track(name, domain, &track)?;
    }
    for output in snapshot_outputs {
        client.add_snapshot_output(name, &output)?;
    }
    for schedule in schedules {
        client.add_schedule(name, schedule)?;
    }
    if started { client.start(name) } else { Ok(()) }
}

fn add_channel(client: &mut Client, session: &str, saved: SavedChannel) -> Result<(), ClientError> {
    let SavedChannel { domain, new, enabled, contexts, rules } = saved;
    client.create_channel(session, domain, &new)?;
    let channel = &new.name;
    if !contexts.is_empty() {
        client.add_contexts(session, domain, channel, &NewContexts { contexts })?;
    }
    // What those that are off name may be there no more.
    for rule in rules {
        client.add_rules(session, domain, channel, &vec![rule].into())?;
    }
    if enabled { Ok(()) } else { client.enable_channel(session, domain, channel, false) }
}
