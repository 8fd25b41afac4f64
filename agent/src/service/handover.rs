//! Sessions that the next daemon goes on with, while they record; and triggers.
//!
//! A pair of sockets ([`Parcels`]) is in systemd's descriptor store from the daemon's start on. A daemon that
//! is told to hand over sends its sessions through it and ends; the next one gets the pair from systemd, and
//! receives them. What goes through is a parcel: the first of its parts says of what version all of it is,
//! then each trigger has one, and each session one with its state, and another one with its recording, if
//! there is one.

use std::{collections::BTreeSet, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    recording::HandedRecording,
    registry::{HandedChunks, Registry, Taken, log},
    triggers::HandedTrigger,
};
use crate::{
    capture::HandOver,
    handover::{Descriptors, Parcels, Part},
};

/// The version of what goes through.
const VERSION: u32 = 2;

/// What comes first.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    triggers: usize,
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

/// Sends all sessions to the next daemon. Those that cannot go on are ended, and their files are made.
pub(super) fn hand_over(registry: &Registry, parcels: &Parcels) {
    // What takes its time, while all of them are still stored.
    registry.finish_files();
    // Sessions are there for what is due. Rotations fire until theirs is handed over.
    registry.triggers().finish();
    let (sessions, programs) = registry.take_all();
    let (sessions, recordings): (Vec<_>, Vec<_>) = sessions.into_iter().map(Taken::hand_over).unzip();
    let triggers = registry.triggers().take_all();
    let head = Head { version: VERSION, triggers: triggers.len(), sessions: sessions.len(), programs };
    if let Err(error) = send(parcels, (&head, &triggers), &sessions, &recordings) {
        log(&format!(
            "the next daemon cannot go on with the sessions: {error}; it recovers what they have stored, and \
             has no triggers"
        ));
        recordings.into_iter().flatten().for_each(HandOver::give_up);
    }
}

fn send(
    parcels: &Parcels,
    (head, triggers): (&Head, &[HandedTrigger]),
    sessions: &[HandedSession],
    recordings: &[Option<HandOver>],
) -> io::Result<()> {
    let none = Descriptors::default();
    let head = serde_json::to_vec(head)?;
    let triggers: Vec<Vec<u8>> = triggers.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;
    let documents: Vec<Vec<u8>> = sessions.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;
    let mut parts = vec![(head.as_slice(), &none)];
    parts.extend(triggers.iter().map(|document| (document.as_slice(), &none)));
    for (document, recording) in documents.iter().zip(recordings) {
        parts.push((document, &none));
        parts.extend(recording.as_ref().map(HandOver::part));
    }
    parcels.send(&parts)
}

/// Goes on with what the daemon before has sent, if it has. Gives the names of the notes of what goes on.
pub(super) fn take_over(registry: &Registry, parcels: &Parcels) -> BTreeSet<String> {
    let mut going_on = BTreeSet::new();
    loop {
        match parcels.receive() {
            Ok(None) => return going_on,
            Ok(Some(parts)) => {
                let mut parts = parts.into_iter();
                if let Err(error) = take_sessions(registry, &mut parts, &mut going_on) {
                    tell(&error);
                    parts.map(HandOver::of_part).for_each(HandOver::give_up);
                }
            }
            // What is half there is closed, and is read to its end.
            Err(error) => tell(&error),
        }
    }
}

fn tell(error: &io::Error) {
    log(&format!("cannot go on with what the daemon before has handed over: {error}"));
}

fn take_sessions(
    registry: &Registry,
    parts: &mut impl Iterator<Item = Part>,
    going_on: &mut BTreeSet<String>,
) -> io::Result<()> {
    let (head, _) = parts.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    let Version { version } = serde_json::from_slice(&head)?;
    if version != VERSION {
        return Err(io::Error::other(format!(
            "it is of version {version}, and this daemon knows {VERSION}; its sessions and triggers have \
             ended, and what was stored is recovered"
        )));
    }
    let head: Head = serde_json::from_slice(&head)?;
    registry.know_programs(&head.programs);
    // Before sessions, whose rotations may fire them at once.
    for _ in 0..head.triggers {
        let (document, _) = parts.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        take_trigger(registry, &document);
    }
    for _ in 0..head.sessions {
        let (document, _) = parts.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        let session: HandedSession = serde_json::from_slice(&document)?;
        let is_open = session.recording.as_ref().is_some_and(|recording| recording.is_open);
        let recording = is_open.then(|| parts.next().ok_or(io::ErrorKind::UnexpectedEof)).transpose()?;
        going_on.extend(registry.take_over(session, recording.map(HandOver::of_part)));
    }
    Ok(())
}

/// A trigger that cannot be there says so in the log; the others are.
fn take_trigger(registry: &Registry, document: &[u8]) {
    let taken = serde_json::from_slice::<HandedTrigger>(document).map_err(|error| error.to_string());
    let taken = taken.and_then(|handed| registry.triggers().take_over(handed).map_err(|error| error.message));
    if let Err(why) = taken {
        log(&format!("a trigger that the daemon before has handed over is left out: {why}"));
    }
}
