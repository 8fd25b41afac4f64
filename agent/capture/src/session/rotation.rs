//! One archive after another: where a file ends and the next one begins.

use std::time::Instant;

use super::{HalfRotated, Part, Session, enough, follow_mappings, owner_in, wall_ns};
use crate::archive::{Archive, ArchiveState, Opened};
use crate::channel::Channel;
use crate::closing::{Closing, counted_at};
use crate::names::Journal;
use crate::needs::archive_options;
use crate::readers::{ReaderFailed, ToBorder};
use crate::spool::CpuSpool;
use crate::state::StateReader;
use crate::{Recorded, SpoolError};
use bpf::LoadError;
use kernel::clock::ReadClock as _;
use stdx::output::OutputError;

/// Why there is no rotation. Recording goes on in the archive that there is, unless a reader has failed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The recording goes to one file.
    #[error("this recording is one file; a directory is needed for several")]
    OneFile,
    /// A flight recorder has its events in the rings.
    #[error("a channel that overwrites stores nothing before its end")]
    Overwrites,
    /// The program that finds where an archive ends.
    #[error("cannot find where a file ends and the next one begins: {0}")]
    Borders(#[from] LoadError),
    /// The next archive cannot be created.
    #[error("cannot begin the next file: {0}")]
    Next(#[from] SpoolError),
    /// Neither can its output.
    #[error("cannot begin the next file: {0}")]
    Output(#[from] OutputError),
    /// What processes map cannot be followed in the next archive.
    #[error("cannot begin the next file: cannot follow the code mappings of processes: {0}")]
    Mappings(#[source] std::io::Error),
    /// A reader has failed: the recording is at its end, and says why then.
    #[error("a reader has failed")]
    Reader,
}

impl Session {
    /// Closes the archive and goes on in the next one: gives what was stored by now, from which
    /// [`finish`](crate::finish()) makes a file. Every event is in one of both, and so is every
    /// count. Recording goes on meanwhile; on each CPU in turn, the border is where one page ends.
    ///
    /// # Errors
    /// There is no next archive, for example because the disk is full, and recording goes on in this one.
    /// After [`RotateError::Reader`] it does not.
    pub fn rotate(&mut self) -> Result<Recorded, RotateError> {
        // If this rotation comes to nothing, the next one comes as much later.
        self.put_off_rotation();
        if self.half.is_some() {
            return Err(RotateError::Reader);
        }
        if self.options.channels.iter().any(|channel| channel.overwrite) {
            return Err(RotateError::Overwrites);
        }
        if let Opened::File(_) = self.destination {
            return Err(RotateError::OneFile);
        }
        let (next, spools, journal) = self.next_archive()?;
        self.wait_for_removed();
        let spools = match to_borders(&mut self.channels, spools) {
            Ok(spools) => spools,
            Err(error) => {
                next.remove();
                return Err(error.into());
            }
        };
        let to = self.covered_to();
        let ended = wall_ns(&self.options);
        let rotated = self.readers.rotate(spools).and_then(|borders| {
            let from = self.options.clock.now_ns();
            match self.readers.rotate_names(journal) {
                Ok(names) => Ok((borders, from, names)),
                Err(_) => Err(ReaderFailed { borders }),
            }
        });
        let old = std::mem::replace(&mut self.archive, next);
        self.begin_told();
        let (borders, from, names) = match rotated {
            Ok(rotated) => rotated,
            Err(ReaderFailed { borders }) => {
                self.half = Some(HalfRotated { old, borders });
                return Err(RotateError::Reader);
            }
        };
        let now = Instant::now();
        // A pause that goes on is over before anything is in the next archive.
        if self.paused.is_none() {
            self.archive.began = Some(now);
            self.archive.covered_from = Some(from);
        }
        // Of what changed before the borders, the events are in the archive before.
        self.archive.writers.state = Some(StateReader::start(&self.archive.spool, self.options.clock));
        if let Some(name) = &mut self.archive.manifest.archive {
            name.begin_ns = ended;
        }
        self.closed_bytes += old.shared.bytes();
        let closing = Closing {
            ended: now,
            covered_to: Some(to),
            ended_ns: ended,
            cpus: borders.into_iter().map(counted_at).collect(),
            cmdlines: names,
            misses: self.channels.iter_mut().map(Channel::take_misses).collect(),
            failure: None,
            part: Part::Closed { next: self.trace.is_some().then(|| self.follow().map(Box::new)) },
        };
        let recorded = self.common(&|number| owner_in(&self.channels, number)).close(old, closing);
        self.free_removed();
        Ok(recorded)
    }

    /// The archive that comes next, with everything that it has from the beginning.
    fn next_archive(&mut self) -> Result<(Archive, Vec<CpuSpool>, Journal), RotateError> {
        let number = self.archive.shared.number + 1;
        let begin_ns = wall_ns(&self.options);
        let begin = self.destination.begin(number, begin_ns)?;
        let shared = ArchiveState::new(number, enough(&self.options, &self.reached));
        let options = archive_options(&self.options, &self.options.manifest.channels, begin.0.directory());
        let (mut next, _) = Archive::create(shared, begin, self.options.manifest.clone(), options)?;
        let filled = next
            .spools(self.options.streams(|_| true))
            .and_then(|spools| Ok((spools, Journal::create(&next.spool)?)));
        let filled = filled.map_err(RotateError::Next).and_then(|filled| {
            next.writers.mappings =
                follow_mappings(&next.spool, &self.options).map_err(RotateError::Mappings)?;
            Ok(filled)
        });
        match filled {
            Ok((spools, journal)) => {
                if let Some(symbols) = &mut self.symbols {
                    symbols.put_into(&next.spool);
                }
                Ok((next, spools, journal))
            }
            Err(error) => {
                next.remove();
                Err(error)
            }
        }
    }
}

/// What is asked at the borders of streams: to use these spools.
pub(super) fn to_borders(
    channels: &mut [Channel],
    spools: Vec<CpuSpool>,
) -> Result<Vec<ToBorder>, LoadError> {
    let mut asked = Vec::with_capacity(spools.len());
    for spool in spools {
        if let Some(channel) = channels.get_mut(spool.stream().index()) {
            asked.push(ToBorder { borders: channel.borders()?, spool, since: None });
        }
    }
    Ok(asked)
}
