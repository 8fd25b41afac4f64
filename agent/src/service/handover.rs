//! Sessions that the next daemon goes on with, while they record.
//!
//! A pair of sockets ([`Parcels`]) is in systemd's descriptor store from the daemon's start on. A daemon that
//! is told to hand over sends its sessions through it and ends; the next one gets the pair from systemd, and
//! receives them. What goes through is a parcel that says of what version all of it is, and for each session
//! one with its state, and another one with its recording, if there is one.

use std::{collections::BTreeSet, io, path::PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    recording::HandedRecording,
    registry::{HandedChunks, Registry, log},
};
use crate::{
    capture::HandOver,
    handover::{Descriptors, Parcels},
};

/// The version of what goes through.
const VERSION: u32 = 1;

/// What comes first.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    sessions: usize,
    /// Programs that have markers.
    programs: Vec<PathBuf>,
}

/// What is known of any version.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

/// A session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedSession {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) of_session: HandedChunks,
    pub(super) recording: Option<HandedRecording>,
}

/// Sends all sessions to the next daemon. Those that cannot go on are ended, and their files are made, or
/// what they have stored is left for the next daemon to recover.
pub(super) fn hand_over(registry: &Registry, parcels: &Parcels) {
    let (sessions, programs) = registry.take_all();
    let head = Head { version: VERSION, sessions: sessions.len(), programs };
    let mut sent = send(parcels, &head);
    for session in sessions {
        if sent.is_err() {
            session.end();
            continue;
        }
        let (session, recording) = session.hand_over();
        sent = send(parcels, &session);
        let Some(recording) = recording else { continue };
        sent = sent.and_then(|()| recording.send(parcels));
        if sent.is_err() {
            recording.give_up();
        }
    }
    if let Err(error) = sent {
        log(&format!("not all sessions go on with the next daemon: {error}"));
    }
}

fn send(parcels: &Parcels, document: &impl Serialize) -> io::Result<()> {
    parcels.send(&serde_json::to_vec(document)?, &Descriptors::default())
}

/// Goes on with what the daemon before has sent, if it has. Gives the names of the notes of what goes on.
pub(super) fn take_over(registry: &Registry, parcels: &Parcels) -> BTreeSet<String> {
    let mut going_on = BTreeSet::new();
    if let Err(error) = take_sessions(registry, parcels, &mut going_on) {
        log(&format!("cannot go on with what the daemon before has handed over: {error}"));
        give_up(parcels);
    }
    going_on
}

fn take_sessions(registry: &Registry, parcels: &Parcels, going_on: &mut BTreeSet<String>) -> io::Result<()> {
    let Some((head, _)) = parcels.receive()? else { return Ok(()) };
    let Version { version } = serde_json::from_slice(&head)?;
    if version != VERSION {
        return Err(io::Error::other(format!(
            "it is of version {version}, and this daemon knows {VERSION}; its sessions have ended, and what \
             they have stored is recovered"
        )));
    }
    let head: Head = serde_json::from_slice(&head)?;
    registry.know_programs(&head.programs);
    for _ in 0..head.sessions {
        let session: HandedSession = receive(parcels)?;
        let is_open = session.recording.as_ref().is_some_and(|recording| recording.is_open);
        let recording = if is_open {
            Some(HandOver::receive(parcels)?.ok_or(io::ErrorKind::UnexpectedEof)?)
        } else {
            None
        };
        going_on.extend(registry.take_over(session, recording));
    }
    Ok(())
}

fn receive<T: DeserializeOwned>(parcels: &Parcels) -> io::Result<T> {
    let (document, _) = parcels.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(serde_json::from_slice(&document)?)
}

/// Ends the recordings that are left.
fn give_up(parcels: &Parcels) {
    loop {
        match HandOver::receive(parcels) {
            Ok(Some(left)) => left.give_up(),
            Ok(None) => return,
            // What is half there is closed, and the next may be whole.
            Err(_) => {}
        }
    }
}
