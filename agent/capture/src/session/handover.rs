//! Letting another process go on with a recording.

use std::{sync::Arc, time::Instant};

use serde::{Deserialize, Serialize};

use super::{Session, sources, track::Told};
use crate::archive::{Archive, HandedArchive, HandedDestination, Opened};
use crate::channel::{Channel, HandedChannel};
use crate::ctf::{CtfOutput, HandedTrace};
use crate::handover::{HandedOptions, put_plans};
use crate::maps::{HandedMaps, Maps};
use crate::names::{HandedNames, NameTable};
use crate::needs::{halves, reader_options};
use crate::notice::Notice;
use crate::readers::{LetGo, ReaderPool};
use crate::symbols::SymbolReader;
use crate::user_symbols::MappingReader;
use crate::{CaptureError, CaptureOptions, HandOver, HandOverError, Refused, TakeOverError};
use attach::{TaskTracker, TasksState};
use kernel::proc;
use stdx::handover::{Descriptors, Moment};

/// A recording on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
struct HandedSession {
    options: HandedOptions,
    destination: HandedDestination,
    trace: Option<HandedTrace>,
    channels: Vec<HandedChannel>,
    maps: Option<HandedMaps>,
    tasks: TasksState,
    archive: HandedArchive,
    names: Option<HandedNames>,
    /// Whether the kernel's symbols are in the spool.
    symbols: bool,
    /// Whether it is noted what processes map.
    mappings: bool,
    refused: Vec<String>,
    changes: u64,
    told: Told,
    started: Option<Moment>,
    paused: Option<u64>,
    closed_bytes: u64,
    snapshots: u64,
}

impl Session {
    /// Lets nothing more be written of the trace that it becomes, if it becomes one: whoever goes on writes
    /// the chunk that is open again, all of which is in the spool. To be called before the
    /// [`Finisher`](crate::Finisher) ends, which then has nothing left to do.
    pub fn leave_trace(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.leave();
        }
    }

    /// Lets another process, or this one again, go on with the recording. It records meanwhile, into the
    /// rings, as long as somebody has the descriptors: nothing is detached, and no gate is closed. What the
    /// rings have no room for is lost and counted, as ever.
    ///
    /// # Errors
    /// It cannot be handed over, and goes on here.
    pub fn hand_over(mut self) -> Result<HandOver, Refused> {
        if let Err(error) = self.check_hand_over() {
            return Err(Refused { error, session: Some(Box::new(self)) });
        }
        // First what takes its time, while everything that fires is still stored.
        if let Some(state) = &mut self.archive.writers.state {
            state.wait();
        }
        let symbols = self.symbols.take().is_some();
        let mappings = self.archive.writers.mappings.take().is_some();
        let LetGo { spools, names } = self.readers.let_go();
        let mut descriptors = Descriptors::default();
        let to = &mut descriptors;
        let spool = self.archive.spool.dir().to_owned();
        let archive = self.archive.hand_over(spools, to);
        let lock = archive.lock();
        let refused = self.left_out.into_iter().map(|of| of.event).chain(self.refused);
        let channels = (0..).zip(self.channels).map(|(number, of): (usize, _)| of.hand_over(number == 0, to));
        let session = HandedSession {
            channels: channels.collect(),
            // Nobody else has them, as was checked.
            maps: self.maps.and_then(Arc::into_inner).map(|maps| maps.hand_over(false, to)),
            options: HandedOptions::of(self.options, to),
            destination: self.destination.hand_over(to),
            trace: self.trace.map(CtfOutput::hand_over),
            tasks: self.tasks.hand_over(to),
            archive,
            names: names.map(|names| names.hand_over(to)),
            symbols,
            mappings,
            refused: refused.collect(),
            changes: self.changes,
            told: self.told,
            started: self.started.map(Moment::from),
            paused: self.paused,
            closed_bytes: self.closed_bytes,
            snapshots: self.snapshots,
        };
        HandOver::new((&spool, lock), &session, descriptors).map_err(|error| Refused { error, session: None })
    }

    /// Whether it can be handed over.
    ///
    /// # Errors
    /// Why not.
    pub fn check_hand_over(&self) -> Result<(), HandOverError> {
        if self.half.is_some() || self.readers.has_failed() {
            return Err(HandOverError::Reader);
        }
        if self.maps.as_ref().is_some_and(|maps| Arc::strong_count(maps) > 1) {
            return Err(HandOverError::Maps);
        }
        if self.is_continued {
            return Err(HandOverError::Continued);
        }
        Ok(())
    }

    /// Goes on with a recording that was [handed over](Session::hand_over): with the same spool and the same
    /// counts. What has fired meanwhile is in the rings, or counted as lost.
    ///
    /// # Errors
    /// It does not go on, and was [given up](HandOver::give_up).
    pub fn take_over(mut from: HandOver) -> Result<Self, TakeOverError> {
        let taken = from.read().and_then(|handed: HandedSession| Self::of_handed(handed, from.descriptors()));
        if taken.is_err() {
            from.give_up();
        }
        taken
    }

    fn of_handed(handed: HandedSession, from: &mut Descriptors) -> Result<Self, TakeOverError> {
        let destination = Opened::take_over(handed.destination, from)?;
        let dir = destination.directory().clone();
        let trace = handed.trace.map(|trace| CtfOutput::take_over(trace, dir));
        let mut options = handed.options.take_over((destination.destination(), trace.as_ref()), from)?;
        let reached = Notice::new().map_err(CaptureError::Threads)?;
        let reached = Arc::new(reached);
        let channels = take_channels(handed.channels, &mut options, from)?;
        let (mut archive, spools) = Archive::take_over(handed.archive, (options.clock, &reached), from)?;
        let first = &channels.first().ok_or(CaptureError::NoChannel)?.programs;
        let maps = handed.maps.map(|maps| Maps::take_over(maps, &options, Some(first), from)).transpose()?;
        let halves = halves(&options).map_err(CaptureError::from)?;
        let (mut tasks, stream) = TaskTracker::take_over(handed.tasks, first, halves, from)?;
        let names = handed.names.ok_or_else(|| TakeOverError::Damaged("it has no names".to_owned()))?;
        let names = NameTable::take_over(names, &archive.spool, from)?;
        let mut channels = channels;
        let sources = sources(&mut channels, stream)?;
        let readers = ReaderPool::start(
            &archive.spool,
            sources,
            names,
            (&options.cpus, spools),
            &reader_options(&options),
        )?;
        // From here on the rings are read, and nothing is a reason to give up.
        let symbols = handed.symbols.then(|| SymbolReader::stored_in(&archive.spool));
        if handed.mappings {
            // Without it, functions of what is mapped from now on have no names.
            archive.writers.mappings = MappingReader::go_on(&archive.spool, &options).ok();
        }
        if options.exclude_self {
            // Without them, switches to these threads are recorded.
            for tid in proc::own_threads().unwrap_or_default() {
                tasks.untrace_thread(tid);
            }
        }
        Ok(Self {
            channels,
            tasks,
            readers,
            maps: maps.map(Arc::new),
            symbols,
            archive,
            half: None,
            destination,
            trace,
            reached,
            options,
            kept_spool: None,
            left_out: Vec::new(),
            refused: handed.refused,
            changes: handed.changes,
            told: handed.told,
            started: handed.started.map(Instant::from),
            paused: handed.paused,
            is_continued: false,
            closed_bytes: handed.closed_bytes,
            snapshots: handed.snapshots,
            #[cfg(feature = "debug-programs")]
            _program_log: None,
        })
    }
}

/// The channels, whose events get the copying plans that are in the memory of their programs.
fn take_channels(
    handed: Vec<HandedChannel>,
    options: &mut CaptureOptions,
    from: &mut Descriptors,
) -> Result<Vec<Channel>, TakeOverError> {
    let mut channels: Vec<Channel> = Vec::with_capacity(handed.len());
    for (number, mut handed) in handed.into_iter().enumerate() {
        let maps = handed.maps(from)?;
        let channel = options.channels.get_mut(number).ok_or(CaptureError::NoChannel)?;
        put_plans(channel, &maps.plans()?);
        let channel = Channel::take_over((handed, maps), (options, number), channels.first(), from)?;
        channels.push(channel);
    }
    Ok(channels)
}
