//! Sessions that the next daemon goes on with, while they record; and triggers.
//!
//! A pair of sockets ([`Parcels`]) is in systemd's descriptor store from the daemon's start on. A daemon that
//! is told to hand over sends its sessions through it and ends; the next one gets the pair from systemd, and
//! receives them. What goes through is a parcel: the first of its parts says of what version all of it is,
//! then each trigger has one, and each session one with its state, another one with its recording, if there
//! is one; both have one for each of their maps.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    maps::HandedMap,
    recording::HandedRecording,
    registry::{HandedChunks, Registry, TakingOver, log},
    side_by_side::within,
    triggers::HandedTrigger,
};
use capture::HandOver;
use stdx::handover::{Descriptors, Parcels, Part};

/// The version of what goes through.
const VERSION: u32 = 2;
/// How long recordings have together to be taken over, before others are served.
const TAKE_OVER_MAX: Duration = Duration::from_secs(10);

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
    pub(super) maps: Vec<HandedMap>,
}

/// Sends all sessions to the next daemon. Those that cannot go on are ended, and their files are made.
pub(super) fn hand_over(registry: &Registry, parcels: &Parcels) {
    // What takes its time, while all of them are still stored.
    registry.finish_files();
    // Sessions are there for what is due. Rotations fire until theirs is handed over.
    registry.triggers().finish();
    let (sessions, programs) = registry.hand_over();
    let (sessions, going_on): (Vec<_>, Vec<_>) = sessions.into_iter().unzip();
    let (triggers, counting): (Vec<_>, Vec<_>) = registry.triggers().take_all().into_iter().unzip();
    let head = Head { version: VERSION, triggers: triggers.len(), sessions: sessions.len(), programs };
    let of_triggers = (triggers.as_slice(), counting.as_slice());
    if let Err(error) = send(parcels, (&head, of_triggers), (&sessions, &going_on)) {
        log(&format!(
            "the next daemon cannot go on with the sessions: {error}; it recovers what they have stored, and \
             has no triggers"
        ));
        going_on.into_iter().chain(counting).flatten().for_each(HandOver::give_up);
    }
}

fn send(
    parcels: &Parcels,
    (head, (triggers, counting)): (&Head, (&[HandedTrigger], &[Vec<HandOver>])),
    (sessions, going_on): (&[HandedSession], &[Vec<HandOver>]),
) -> io::Result<()> {
    let none = Descriptors::default();
    let head = serde_json::to_vec(head)?;
    let triggers: Vec<Vec<u8>> = triggers.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;
    let documents: Vec<Vec<u8>> = sessions.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;
    let mut parts = vec![(head.as_slice(), &none)];
    for (document, maps) in triggers.iter().zip(counting) {
        parts.push((document.as_slice(), &none));
        parts.extend(maps.iter().map(HandOver::part));
    }
    for (document, of_session) in documents.iter().zip(going_on) {
        parts.push((document, &none));
        parts.extend(of_session.iter().map(HandOver::part));
    }
    parcels.send(&parts)
}

/// Goes on with what the daemon before has sent, if it has. Gives the names of the notes of what goes on.
pub(super) fn take_over(registry: &Arc<Registry>, parcels: &Parcels) -> BTreeSet<String> {
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
    registry: &Arc<Registry>,
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
    registry.know_programs(head.programs);
    // Before sessions, whose rotations may fire them at once.
    for _ in 0..head.triggers {
        take_trigger(registry, parts)?;
    }
    let (mut maps, mut taking) = (Vec::new(), Vec::new());
    let read = (0..head.sessions).try_for_each(|_| {
        let (document, _) = parts.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut session: HandedSession = serde_json::from_slice(&document)?;
        let is_open = session.recording.as_ref().is_some_and(|recording| recording.is_open);
        let mut next = || parts.next().map(HandOver::of_part).ok_or(io::ErrorKind::UnexpectedEof);
        let recording = is_open.then(&mut next).transpose()?;
        let of = (session.uid, session.of_session.name().to_owned());
        let of_session = std::mem::take(&mut session.maps).into_iter();
        let of_session = of_session.map(|map| Ok((map, next()?))).collect::<io::Result<Vec<_>>>()?;
        maps.push((of, of_session));
        taking.extend(registry.take_over(session, recording));
        Ok::<_, io::Error>(())
    });
    take_recordings(taking, going_on);
    // Nobody need read them meanwhile.
    for ((uid, session), of_session) in maps {
        registry.take_maps_over((uid, &session), of_session);
    }
    read
}

/// Takes recordings over side by side, as the rings of all of them fill. One that waits for a file system
/// goes on when that answers.
fn take_recordings(taking: Vec<TakingOver>, going_on: &mut BTreeSet<String>) {
    let take = |TakingOver { uid, session, note, work }: TakingOver| ((uid, session, note), work);
    let (names, works): (Vec<_>, Vec<_>) = taking.into_iter().map(take).unzip();
    let taken = within(works, Instant::now() + TAKE_OVER_MAX);
    for ((uid, session, note), goes_on) in names.into_iter().zip(taken) {
        if goes_on.is_none() {
            log(&format!(
                "session {session} of user {uid} was not taken over within {} s; it goes on when its thread \
                 answers",
                TAKE_OVER_MAX.as_secs()
            ));
        }
        if goes_on.unwrap_or(true) {
            going_on.insert(note);
        }
    }
}

/// How many maps follow a trigger, whatever else it is.
#[derive(Debug, Deserialize)]
struct MapsOfTrigger {
    maps: Vec<IgnoredAny>,
}

/// A trigger that cannot be there says so in the log; the others are.
fn take_trigger(registry: &Registry, parts: &mut impl Iterator<Item = Part>) -> io::Result<()> {
    let (document, _) = parts.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    let MapsOfTrigger { maps } = serde_json::from_slice(&document)?;
    let maps = maps.iter().map(|_| parts.next().map(HandOver::of_part));
    let maps = maps.collect::<Option<Vec<_>>>().ok_or(io::ErrorKind::UnexpectedEof)?;
    let taken = match serde_json::from_slice::<HandedTrigger>(&document) {
        Ok(handed) => registry.take_trigger_over(handed, maps).map_err(|error| error.message),
        Err(error) => {
            maps.into_iter().for_each(HandOver::give_up);
            Err(error.to_string())
        }
    };
    if let Err(why) = taken {
        log(&format!("a trigger that the daemon before has handed over is left out: {why}"));
    }
    Ok(())
}
