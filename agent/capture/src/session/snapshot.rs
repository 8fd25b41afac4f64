//! Snapshots: what a recording that overwrites its oldest events holds at a moment.

use std::{
    ffi::OsString,
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use super::{Part, Session, controls, owner_in, rotation::to_borders, wall_ns};
use crate::archive::{Archive, ArchiveState, stem_of};
use crate::channel::Channel;
use crate::closing::{Closing, counted_at};
use crate::needs::archive_options;
use crate::readers::{CopyFailed, ReaderFailed};
use crate::segment::CHUNK_MAX;
use crate::{Manifest, Recorded, RecordedChannel, SpoolError, names, state, user_symbols};
use bpf::LoadError;
use kernel::clock::ReadClock as _;
use stdx::output::{Output, OutputError};

/// Why there is no snapshot. Recording goes on, unless a reader has failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It is not a flight recorder.
    #[error("this recording stores all its events; a snapshot is of one that overwrites the oldest")]
    Stores,
    /// The program that finds where the snapshot ends.
    #[error("cannot find where a snapshot ends: {0}")]
    Borders(#[from] LoadError),
    /// Less may be stored than what one page takes.
    #[error("a snapshot of {streams} rings has {least} bytes at least")]
    TooSmall {
        /// How many rings there are.
        streams: usize,
        /// What the limit may be.
        least: u64,
    },
    /// What the rings hold cannot be stored.
    #[error("cannot store a snapshot: {0}")]
    Store(#[from] SpoolError),
    /// Its file cannot be created.
    #[error("cannot store a snapshot: {0}")]
    Output(#[from] OutputError),
    /// A reader has failed: the recording is at its end, and says why then.
    #[error("a reader has failed")]
    Reader,
}

/// How much of the rings a snapshot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// At most so many bytes of pages, as many for each ring as for any other: the newest ones. What they
    /// leave out is counted as removed by the limit of size.
    pub max_bytes: Option<u64>,
    /// Pages whose events are all older are left out, and their events counted as overwritten, as are all
    /// that are not in the snapshot. Of each ring it has one page at least.
    pub max_age: Option<Duration>,
}

impl Session {
    /// Takes a snapshot of the channels that overwrite their oldest events: gives what their rings hold now,
    /// from which [`finish`](crate::finish()) makes a file. Recording goes on meanwhile, and nothing
    /// changes for it.
    ///
    /// Of each CPU it has the newest events up to about now, each one once, without a gap. The counts are
    /// those since the recording began; what is not in the snapshot is counted as overwritten.
    ///
    /// # Errors
    /// There is none, for example because the disk is full, and nothing is left of it.
    pub fn snapshot(&mut self) -> Result<Recorded, SnapshotError> {
        let output = self.destination.snapshot(self.snapshots + 1, wall_ns(&self.options))?;
        self.take_snapshot(output, None, SnapshotLimits::default())
    }

    /// The same for a file of one's own choice, or, of a recording that becomes a trace, a directory of the
    /// file's name without `.dat`, within limits.
    ///
    /// # Errors
    /// As for [`Session::snapshot`].
    pub fn snapshot_to(&mut self, output: Output, limits: SnapshotLimits) -> Result<Recorded, SnapshotError> {
        let name = stem_of(output.name());
        self.take_snapshot(output, Some(name), limits)
    }

    fn take_snapshot(
        &mut self,
        output: Output,
        name: Option<OsString>,
        limits: SnapshotLimits,
    ) -> Result<Recorded, SnapshotError> {
        let channels = self.options.manifest.channels.iter().filter(|channel| channel.overwrite);
        let channels: Vec<RecordedChannel> = channels.cloned().collect();
        if channels.is_empty() {
            return Err(SnapshotError::Stores);
        }
        let streams = self.options.streams(|channel| channel.overwrite).count();
        // Two segments of a chunk for each ring.
        let least = streams as u64 * 2 * CHUNK_MAX as u64;
        if limits.max_bytes.is_some_and(|bytes| bytes < least) {
            return Err(SnapshotError::TooSmall { streams, least });
        }
        let number = self.snapshots + 1;
        let options = archive_options(&self.options, &channels, output.directory());
        let shared = ArchiveState::new(number, None);
        let manifest = Manifest { channels, only: self.told.lines(), ..self.options.manifest.clone() };
        let (mut copy, _) = Archive::create(shared, (output, None), manifest, options)?;
        copy.began = self.archive.began;
        copy.covered_from = self.archive.covered_from;
        let filled = self.archive.pauses.copy_to(&copy.spool).map_err(SnapshotError::Store);
        let filled = filled.and_then(|pauses| {
            copy.pauses = pauses;
            self.copy_to(&copy, limits)
        });
        match filled {
            Ok(mut closing) => {
                closing.part = Part::Snapshot { number, name };
                self.snapshots = number;
                Ok(self.common(&|number| owner_in(&self.channels, number)).close(copy, closing))
            }
            Err(error) => {
                copy.remove();
                Err(error)
            }
        }
    }

    /// How many events have asked for a snapshot ([`SnapshotRule`](crate::SnapshotRule)) since the
    /// recording began.
    pub fn snapshots_asked(&self) -> u64 {
        let Some((index, rule)) = self.options.snapshot() else { return 0 };
        let channel = self.channels.get(index);
        let Some(channel) = channel else { return 0 };
        let rings = channel.programs.rings_of(&self.options.cpus);
        rings.map(|ring| channel.programs.recorded(ring, rule.slot)).sum()
    }

    /// Whether the page of such an event is kept: nothing that came after it is overwritten before
    /// [`Session::keep_asking`] says so.
    pub fn is_asked(&self) -> bool {
        // Cleared first: what comes meanwhile makes it readable again.
        self.readers.asked().clear();
        controls(&self.channels, &self.options.cpus).any(|control| control.held_page().is_some())
    }

    /// Becomes readable when [`Session::is_asked`] has become true.
    pub fn asks(&self) -> BorrowedFd<'_> {
        self.readers.asked().as_fd()
    }

    /// Lets the page of the next event that asks for a snapshot be kept, or no page. What is kept now may be
    /// overwritten from here on.
    pub fn keep_asking(&self, keep: bool) {
        for control in controls(&self.channels, &self.options.cpus) {
            control.hold_pages(keep);
        }
    }

    /// Fills a snapshot. Gives what is known of it.
    fn copy_to(&mut self, copy: &Archive, limits: SnapshotLimits) -> Result<Closing, SnapshotError> {
        let streams: Vec<_> = self.options.streams(|channel| channel.overwrite).collect();
        let cap = limits.max_bytes.map(|bytes| bytes / (streams.len() as u64).max(1));
        let spools = copy.spools(streams.into_iter().map(|(stream, _)| (stream, cap)))?;
        let since =
            limits.max_age.map(|age| self.options.clock.now_ns().saturating_sub(age.as_nanos() as u64));
        let mut spools = to_borders(&mut self.channels, spools)?;
        for spool in &mut spools {
            spool.since = since;
        }
        let (to, ended, ended_ns) = (self.covered_to(), Instant::now(), wall_ns(&self.options));
        let cpus = self.readers.copy(spools).map_err(|error| match error {
            CopyFailed::Spool(error) => SnapshotError::Store(error),
            CopyFailed::Reader => SnapshotError::Reader,
        })?;
        let mut misses: Vec<_> = self.channels.iter().map(Channel::all_misses).collect();
        // The programs that note names count in the first channel, whose streams may not be among these.
        if let (Some(first), Some(of), Some(misses)) =
            (self.channels.first(), self.options.channels.first(), misses.first_mut())
            && !of.overwrite
        {
            misses.names +=
                first.controls(&self.options.cpus).map(|control| control.names_lost()).sum::<u64>();
        }
        let cmdlines = self.readers.names().map_err(|ReaderFailed { .. }| SnapshotError::Reader)?;
        names::write_journal(&copy.spool, &cmdlines)?;
        if let Some(symbols) = &mut self.symbols {
            symbols.put_into(&copy.spool);
        }
        // What the rings hold is of the same machine and of the same processes.
        let later = (1..=self.archive.writers.later_states).map(state::later_name);
        for name in [state::NAME, user_symbols::MAPPINGS].into_iter().map(str::to_owned).chain(later) {
            self.archive.spool.copy_file(&name, &copy.spool)?;
        }
        Ok(Closing {
            ended,
            covered_to: Some(to),
            ended_ns,
            cpus: cpus.into_iter().map(counted_at).collect(),
            cmdlines,
            misses,
            failure: None,
            part: Part::Snapshot { number: copy.shared.number, name: None },
        })
    }
}
