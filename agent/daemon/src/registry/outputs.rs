//! Where sessions are recorded to, and their snapshots: directories, and relay daemons.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Answer, Entry, Registry, lock};
use crate::descriptors::Held;
use crate::recording::{Recording, RecordingState};
use crate::relay;
use crate::relay::{Forwarder, Places, Target, send_snapshot};
use crate::sessions::{Model, NextRecording, Recorder, SnapshotTo, Stored, World, spec};
use crate::user::Owner;
use api::requests::TakeSnapshot;
use api::{Code, ControlError, SessionMode, Snapshot};
use lttng_relay::{Hangup, RelayAddress};

impl Registry {
    /// Begins to record a session.
    pub(super) fn begin(
        &self,
        entry: &Arc<Entry>,
        model: &Model,
        (world, was_started): (&World, bool),
    ) -> Answer<Recording> {
        let (output, address) = match output_of(model)? {
            Some(To::Directory(path)) => (Some(path), None),
            Some(To::Relay(address)) => (None, Some(address)),
            // It says where with each snapshot.
            None => (None, None),
        };
        let is_place = output.is_none();
        let output = output.map_or_else(|| self.make_place(&entry.owner), Ok)?;
        let begun =
            self.begin_in(entry, (model, world), (&output, address.filter(|_| !model.keeps())), was_started);
        if begun.is_err() && is_place {
            Places::remove_empty(&output);
        }
        begun.map(|recording| Recording { is_place, ..recording })
    }

    fn make_place(&self, owner: &Owner) -> Answer<PathBuf> {
        let failed = |error: io::Error| {
            ControlError::new(
                Code::CreateDirectory,
                format!("cannot create a directory below that of the daemon's state: {error}"),
            )
        };
        self.places.make(owner).map_err(failed)
    }

    /// Begins to record a session into a directory, and to send that on.
    fn begin_in(
        &self,
        entry: &Arc<Entry>,
        (model, world): (&Model, &World),
        (output, address): (&Path, Option<RelayAddress>),
        was_started: bool,
    ) -> Answer<Recording> {
        let spec = spec::of(model, world, output)?;
        let (rules, tracks) = spec::recorded(model, world, &spec)?;
        let relay = address.map(|address| self.forward(entry, model, (address, was_started), output));
        let (relay, held) = relay.transpose()?.unzip();
        let note = self.notes.add(model.name(), &entry.owner, output).map_err(|error| {
            ControlError::new(Code::CreateFile, format!("cannot note that the session records: {error}"))
        })?;
        let listener = Box::new(self.listener(entry, model.name()));
        let owner = (entry.owner.clone(), self.descriptors.of(entry.owner.uid));
        let started = Recorder::new(owner, (output.to_owned(), model.keeps()), (listener, relay.clone()));
        let started = started.and_then(|recorder| {
            match recorder.start(NextRecording { spec, session: model.trace_session() }) {
                Ok(()) => Ok(recorder),
                Err(error) => {
                    // It has recorded nothing.
                    let _ = recorder.end();
                    Err(error)
                }
            }
        });
        match started {
            Ok(recorder) => {
                let (period, bytes) = spec::schedule(model);
                recorder.schedule(period, bytes);
                *lock(&entry.waker) = Some(recorder.waker());
                *lock(&entry.relay) = relay.as_ref().map(|relay| relay.abilities());
                let mut recording = Recording {
                    recorder,
                    output: output.to_owned(),
                    note,
                    rules,
                    left_out: BTreeMap::new(),
                    tracks,
                    generation: world.generation,
                    state: RecordingState::Current,
                    relay: relay.zip(held),
                    is_place: false,
                };
                recording.put_aside();
                Ok(recording)
            }
            Err(error) => {
                note.remove();
                if let Some(relay) = relay {
                    // Nothing was sent.
                    let _ = relay.end(Some(Instant::now()));
                }
                Err(self.recoveries.explain(entry.owner.uid, output, error))
            }
        }
    }

    /// Connects to the relay daemon of a session.
    fn forward(
        &self,
        entry: &Arc<Entry>,
        model: &Model,
        (address, is_known): (RelayAddress, bool),
        place: &Path,
    ) -> Answer<(Arc<Forwarder>, Held)> {
        let held = self.descriptors.of(entry.owner.uid).take(relay::DESCRIPTORS)?;
        let target = self.target(model, address, is_known);
        let listener = Box::new(self.listener(entry, model.name()));
        let place = place.to_owned();
        Ok((Forwarder::start(target, &entry.owner, place, (listener, entry.next_hangup()))?, held))
    }

    fn target(&self, model: &Model, address: RelayAddress, is_known: bool) -> Target {
        let (session, created_at) = (model.name().to_owned(), model.session().summary.created_at);
        let live_timer_us = model.session().summary.mode.live_timer_us();
        Target { address, session, created_at, backlog: self.backlog, live_timer_us, is_known }
    }

    /// Takes a snapshot.
    pub(crate) fn snapshot(&self, uid: u32, name: &str, wanted: &TakeSnapshot) -> Answer<Snapshot> {
        let entry = self.find(uid, name)?;
        let recording = self.lock(&entry, name)?;
        let model = lock(&entry.model).clone();
        let (to, place) = snapshot_to(&model, wanted)?;
        let recording = recording.as_ref().ok_or_else(|| ControlError::from(Code::SnapshotEmpty))?;
        let Stored { path, events } = match place {
            To::Directory(dir) => {
                let stored = recording.recorder.snapshot(SnapshotTo { dir, ..to })?;
                entry.has_closed(&self.archives, &stored.path);
                stored
            }
            To::Relay(address) => {
                let target = self.target(&model, address, false);
                let place = self.make_place(&entry.owner)?;
                let target = (&target, place.as_path(), entry.next_hangup());
                let sent = snapshot_for(&recording.recorder, &entry.owner, target, to);
                Places::remove_empty(&place);
                sent?
            }
        };
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        lock(&entry.files).add(path.clone());
        Ok(Snapshot { name, path, events })
    }
}

/// Takes a snapshot into a directory of the daemon's own, and sends it to a relay daemon as the user.
fn snapshot_for(
    recorder: &Recorder,
    owner: &Owner,
    (target, place, hangup): (&Target, &Path, Hangup),
    to: SnapshotTo,
) -> Answer<Stored> {
    let Stored { path, events } = recorder.snapshot(SnapshotTo { dir: place.to_owned(), ..to })?;
    let refused = |error: io::Error| ControlError::new(Code::SnapshotFailed, error.to_string());
    let sent = std::thread::scope(|scope| {
        let send =
            || owner.take_identity().map_err(refused).and_then(|()| send_snapshot(target, &path, &hangup));
        scope.spawn(send).join()
    });
    // A panic has been printed.
    let path = sent.unwrap_or_else(|_| Err(Code::SnapshotFailed.into()))?;
    Ok(Stored { path, events })
}

/// Where a snapshot goes: to the place that is named, or to the session's first output.
fn snapshot_to(model: &Model, wanted: &TakeSnapshot) -> Answer<(SnapshotTo, To)> {
    model.check_snapshot(wanted)?;
    let TakeSnapshot { name, path, max_size, max_age_ms } = wanted.clone();
    let kept = || model.configured()?.config.keep.time.map(|time| time.0);
    let output = model.session().snapshot_outputs.first();
    let dir = path.or_else(|| output.map(|output| output.path.clone()));
    let place = To::of(dir.ok_or_else(|| ControlError::from(Code::NoOutput))?)?;
    let to = SnapshotTo {
        dir: PathBuf::new(),
        name: name.or_else(|| output?.name.clone()).unwrap_or_else(|| "snapshot".to_owned()),
        max_size: max_size.or_else(|| output?.max_size),
        max_age: max_age_ms.map(Duration::from_millis).or_else(kept),
    };
    Ok((to, place))
}

/// Where something goes.
enum To {
    Directory(PathBuf),
    Relay(RelayAddress),
}

impl To {
    fn of(place: PathBuf) -> Answer<Self> {
        match place.to_str().filter(|url| url.contains("://")) {
            Some(url) => RelayAddress::parse(url).map(Self::Relay).ok_or_else(|| Code::Invalid.into()),
            None => Ok(Self::Directory(place)),
        }
    }
}

/// Where a session is recorded to, if it is said.
fn output_of(model: &Model) -> Answer<Option<To>> {
    let session = model.session();
    let path = match &session.summary.mode {
        SessionMode::Local { output: Some(output) } | SessionMode::Served { output, .. } => {
            Some(output.clone())
        }
        SessionMode::Local { output: None } | SessionMode::Snapshot => {
            session.snapshot_outputs.first().map(|output| output.path.clone())
        }
        SessionMode::Network { url } | SessionMode::Live { url, .. } => Some(PathBuf::from(url)),
    };
    path.map(To::of).transpose()
}
