//! The trace of a recording, from its beginning to its last archive.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    CtfOptions, CtfOutput, PUBLISHED, TRACE, Written,
    begun::{Begun, Noted, Published},
    buffers,
    chunks::{Archives, OpenChunk, closed_name},
    followed::{Closed, Followed, Patience},
    ledger,
    parts::{Parts, Place},
    recovered::Killed,
};
use crate::follow::{FollowError, Follower};
use crate::{FinishError, Finished, Recorded, Spool, SpoolError, Stats};
use recording::sync_tree;

/// How often it is looked for new events.
const LOOK: Duration = Duration::from_millis(200);
/// The same where somebody wants to see them sooner.
const LOOK_SOON: Duration = Duration::from_millis(10);

/// The trace of a recording.
#[derive(Debug)]
pub(crate) struct LiveTrace {
    output: CtfOutput,
    trace: Option<OpenTrace>,
    followed: Option<Followed>,
    flushed: Instant,
    archives: Archives,
    /// Why nothing more is written.
    given_up: Option<String>,
    /// Whether it was told that the archive which is recorded to will not be in the trace.
    is_told: bool,
    /// What the user should know of the archive at hand.
    notes: Vec<String>,
    /// What is known of an archive whose recorder was killed.
    killed: Option<Killed>,
}

/// What is written.
#[derive(Debug)]
struct OpenTrace {
    writer: Parts,
    /// `None` once it is closed.
    chunk: Option<OpenChunk>,
    /// Events of the chunks before.
    events_before: u64,
}

impl LiveTrace {
    pub(crate) fn new(output: CtfOutput) -> Self {
        Self {
            output,
            trace: None,
            followed: None,
            flushed: Instant::now(),
            archives: Archives::default(),
            given_up: None,
            is_told: false,
            notes: Vec::new(),
            killed: None,
        }
    }

    /// The trace of a recorder that was killed.
    pub(super) fn of_killed(output: CtfOutput, killed: Killed) -> Self {
        Self { killed: Some(killed), ..Self::new(output) }
    }

    /// Takes what follows the archive that is recorded to after those that are closed. Without it, the
    /// archive is written when it is closed.
    pub(crate) fn follow(&mut self, follower: Result<Follower, FollowError>) {
        match follower {
            _ if self.given_up.is_some() => {}
            Ok(follower) => {
                // Who takes over before anything of it is written goes on with the same trace.
                let state = self.trace.as_ref().map(|trace| trace.writer.state());
                let noted =
                    state.map(|state| Noted::begin(follower.files(), &self.output, Some(state), None));
                if let Some(Err(error)) = noted {
                    self.notes.push(format!("after a crash, another trace begins here: {error}"));
                }
                self.followed = Some(Followed::new(follower));
            }
            Err(error) => self.notes.push(format!("the trace was not written meanwhile: {error}")),
        }
    }

    /// Whether it is the trace that goes there.
    pub(crate) fn is_to(&self, output: &CtfOutput) -> bool {
        self.output.is_same(output)
    }

    /// Whether it was told before that the archive which is closed now is not in the trace.
    pub(crate) fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.is_told)
    }

    /// Where the archive is that is written.
    pub(crate) fn spool(&self) -> Option<PathBuf> {
        self.followed.as_ref().map(|followed| followed.follower.dir().to_owned())
    }

    /// How long nothing is to be done, if something is to be done at all.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let CtfOptions { flush, live, .. } = self.output.options();
        // Viewers wait for this as well.
        let share = if *live { 2 } else { 1 };
        let look = flush.map_or(LOOK, |every| LOOK.min((every / share).max(LOOK_SOON)));
        (self.given_up.is_none() && self.followed.is_some()).then_some(look)
    }

    /// Writes what there is by now; with `all`, without waiting for anything, and so that it can be read.
    ///
    /// # Errors
    /// Nothing more is written from now on. The recording goes on, and is in its spool.
    pub(crate) fn go_on(&mut self, all: bool) -> Result<(), FinishError> {
        // Who is too far behind to be given more gets it later: it stays in the spool.
        let must_wait = self.output.is_held() || (!all && self.output.publication.is_full());
        if self.given_up.is_some() || must_wait {
            return Ok(());
        }
        let patience = if all { Patience::Now } else { Patience::Wait };
        let written = self.tail(patience).and_then(|until| match &mut self.trace {
            Some(OpenTrace { writer, .. }) if all => Ok(writer.flush(until.unwrap_or(0))?),
            _ => Ok(()),
        });
        if let Err(error) = &written {
            self.give_up(error);
            self.is_told = true;
        }
        written
    }

    /// Writes what describes the trace anew, from what the recorder says of it now.
    ///
    /// # Errors
    /// As for [`LiveTrace::go_on`].
    pub(crate) fn describe(&mut self) -> Result<(), FinishError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        let described = self.try_describe();
        if let Err(error) = &described {
            self.give_up(error);
            self.is_told = true;
        }
        described
    }

    fn try_describe(&mut self) -> Result<(), FinishError> {
        let Some(head) = self.followed.as_mut().map(Followed::describe).transpose()?.flatten() else {
            return Ok(());
        };
        if let Some(OpenTrace { writer, chunk: Some(_), .. }) = &mut self.trace {
            writer.describe_again(head)?;
        }
        Ok(())
    }

    fn give_up(&mut self, error: &FinishError) {
        self.given_up = Some(error.to_string());
        self.followed = None;
        self.output.publication.end();
    }

    /// Writes the rest of an archive, and removes its spool. Gives what it has become.
    ///
    /// # Errors
    /// It is still in its spool, and nothing more is written from now on.
    pub(crate) fn close(&mut self, recorded: Recorded, is_last: bool) -> Result<Finished, FinishError> {
        if let Some(why) = &self.given_up {
            return Err(FinishError::TraceEnded(why.clone()));
        }
        let closed = self.try_close(recorded, is_last);
        self.followed = None;
        if let Err(error) = &closed {
            self.give_up(error);
        }
        closed
    }

    fn try_close(&mut self, recorded: Recorded, is_last: bool) -> Result<Finished, FinishError> {
        let Recorded { spool, manifest, stats, .. } = recorded;
        if self.followed.is_none() {
            self.follow(Ok(Follower::of_spool(&spool)?));
        }
        self.tail(Patience::Over)?;
        let fell_behind = self.followed.as_ref().map_or(0, |followed| followed.follower.fell_behind());
        let empty = || FollowError::Empty { path: spool.dir().to_owned() };
        let is_damaged = self.killed.as_ref().is_some_and(|killed| killed.is_damaged);
        let Some(OpenTrace { writer, chunk, events_before }) = &mut self.trace else {
            return Err(empty().into());
        };
        let Some(chunk) = chunk.take() else { return Err(empty().into()) };
        let Some(followed) = &self.followed else { return Err(empty().into()) };
        // The names that the sets of rings have where it is followed.
        let channels = followed.follower.manifest().channels.clone();
        let in_memory = buffers(followed.follower.manifest(), true);
        if !manifest.overwrites() && !in_memory.is_empty() {
            write_in_memory(&spool, in_memory, writer)?;
        }
        let counted = ledger(&manifest, &Stats { channels, ..stats.clone() });
        let last = self.killed.as_ref().and_then(|killed| killed.last_ns);
        let end = stats.covered.map(|(_, to)| to).or(last).unwrap_or(0).max(self.output.begin_ns);
        followed.end(writer, &Closed { end, ledger: &counted, manifest: &manifest })?;
        let events = writer.events() - *events_before;
        *events_before = writer.events();
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(super::notes(&writer.take_not_carried()));
        let domains: Vec<_> = writer.domains().map(|(name, dir)| (name.to_owned(), dir.clone())).collect();
        let file_bytes = domains.iter().map(|(_, dir)| sync_tree(dir)).sum::<Result<u64, _>>()?;
        chunk.dir().sync();
        let archive = manifest.archive.filter(|name| name.number > 1 || !is_last);
        spool.release_reserve();
        // From here on nothing is written of the spool again, also if this process is killed.
        let written = Written { events, fell_behind, is_damaged };
        let is_kept = written.has_less(&spool, &stats, &mut notes);
        let places = writer.place().noted().map(|noted| noted.places().clone()).unwrap_or_default();
        let published = Published { closed: archive.map(closed_name), places, is_kept };
        published.store(spool.files()).map_err(SpoolError::io("write", spool.file(PUBLISHED)))?;
        let path = match archive {
            Some(name) => self.archives.add(&self.output, (chunk, &domains), name)?,
            None => self.output.dir().path().to_owned(),
        };
        self.output.publication.close_chunk(manifest.archive.and_then(|name| name.end_ns));
        if !is_kept {
            super::remove(spool, &mut notes);
        }
        Ok(Finished { path, file_bytes, stats, notes })
    }

    /// Writes the archive's events so far. Gives the time from before which no more come, if none that is
    /// stored is left out for now.
    fn tail(&mut self, patience: Patience) -> Result<Option<u64>, FinishError> {
        let Some(followed) = &mut self.followed else { return Ok(None) };
        let Some(looked) = followed.look(patience)? else { return Ok(None) };
        let Some(head) = followed.head() else { return Ok(None) };
        if looked.is_first {
            let archive = followed.follower.manifest().archive;
            let spool = followed.follower.files().clone();
            // What another process has begun.
            let goes_on = self.trace.is_none() && self.output.is_begun;
            let before = if goes_on {
                Begun::load(&spool).map_err(SpoolError::io("read", spool.join(TRACE)))?
            } else {
                None
            };
            let chunk = if goes_on {
                let places = before.as_ref().and_then(Begun::known_places);
                OpenChunk::create_again(&self.output, archive, places)?
            } else {
                OpenChunk::create(&self.output, archive)?
            };
            let before = before.and_then(|before| before.parts);
            let state = self.trace.as_ref().map(|trace| trace.writer.state()).or_else(|| before.clone());
            let noted = Noted::begin(&spool, &self.output, state, chunk.own());
            let noted = noted.map_err(SpoolError::io("write", spool.join(TRACE)))?;
            let publication = &self.output.publication;
            publication.begin_chunk(archive.map_or(1, |name| name.number), archive.map(|name| name.begin_ns));
            let manifest = followed.follower.manifest();
            let published = Some(Arc::clone(publication));
            let chunks_before = archive.map_or(0, |name| name.number.saturating_sub(1));
            let noted = (spool.clone(), Some(noted), chunks_before);
            let place = Place::new((chunk.dir().clone(), self.output.options()), published, noted);
            if let Some(OpenTrace { writer, chunk: open, .. }) = &mut self.trace {
                writer.next_chunk(place, (head, manifest))?;
                *open = Some(chunk);
            } else {
                if self.output.options.live {
                    // The state comes first, and the streams when all of them are known.
                    publication.begin_partial();
                }
                let shapes = self.output.options.shapes.clone();
                let place = (place, before.as_ref());
                let mut writer = Parts::create(&self.output, shapes, (head, manifest), place)?;
                if writer.has_begun_again() {
                    self.notes.push(
                        "from here on it is another trace, as what describes its events has changed"
                            .to_owned(),
                    );
                } else if goes_on && before.is_none() && chunks_before != 0 {
                    self.notes.push(
                        "from here on it is another trace, as nothing is noted of the one before".to_owned(),
                    );
                }
                if before.is_none() || writer.has_begun_again() {
                    let state = writer.state_of_begin(before.as_ref());
                    let noted = writer.place().noted().map_or(Ok(()), |noted| noted.describe(state));
                    noted.map_err(SpoolError::io("write", spool.join(TRACE)))?;
                }
                self.trace = Some(OpenTrace { writer, chunk: Some(chunk), events_before: 0 });
            }
        }
        let Some(OpenTrace { writer, .. }) = &mut self.trace else { return Ok(None) };
        if looked.has_late_state {
            writer.put_late_state(head)?;
        }
        followed.put_states(writer)?;
        let (every, flushed, output) = (self.output.options.flush, &mut self.flushed, &self.output);
        let reached = followed.write(writer, &mut |writer, known_until| {
            if every.is_some_and(|every| flushed.elapsed() >= every) {
                *flushed = Instant::now();
                // At the end everything is known; the last packets say how long that was.
                if output.options.live && patience != Patience::Over && known_until != 0 {
                    writer.tell_silence(known_until)?;
                    output.publication.complete();
                } else {
                    writer.flush(known_until)?;
                }
            }
            let must_wait = output.is_held() || output.publication.is_full();
            Ok(patience == Patience::Over || !must_wait)
        })?;
        if reached.is_some() && followed.follower.is_complete_in_pause() {
            // Users pause to read the events before.
            writer.pause()?;
        }
        Ok(reached)
    }
}

/// Writes what channels have kept in memory until the end, beside others that were stored meanwhile.
fn write_in_memory(spool: &Spool, buffers: HashSet<String>, writer: &mut Parts) -> Result<(), FinishError> {
    let mut rest = Followed::new(Follower::of_spool(spool)?);
    rest.follower.select_buffers(buffers);
    rest.look(Patience::Over)?;
    rest.write(writer, &mut |_, _| Ok(true)).map(drop)
}
