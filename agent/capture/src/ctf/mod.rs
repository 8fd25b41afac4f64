//! A recording as a trace of LTTng's layout, written while it goes on.
//!
//! The writer follows the spool, as everybody does who reads a recording meanwhile: the recorder waits for
//! nobody. What the writer has not taken is in the spool, which is removed when all of an archive is in the
//! trace. So a rotation also frees the disk space of the spool.
//!
//! | file | subject |
//! |---|---|
//! | `begun` | what the spool has of the trace |
//! | `recovered` | the trace of an archive whose recorder was killed |
//! | `live` | the trace of a recording, from its beginning to its last archive |
//! | `chunks` | the directories of its chunks |
//! | `parts` | the traces that are written: of what all share, and of users and processes |
//! | `followed` | what is written of an archive, as it comes |
//! | `snapshot` | a snapshot, as a trace of its own |
//!
//! Those who send a trace on while it is written are told by its [`Publication`].

mod begun;
mod chunks;
mod followed;
mod live;
mod parts;
mod recovered;
mod snapshot;

use std::{
    collections::HashSet,
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub use self::chunks::open_archives;
pub(super) use self::{
    begun::{NAME as TRACE, PUBLISHED},
    live::LiveTrace,
    recovered::{Killed, begun_beside, has_second, recover},
    snapshot::snapshot,
};
use serde::{Deserialize, Serialize};

use super::{Manifest, Spool, Stats};
use ctf_writer::{ARCHIVES, Ctf, KERNEL, Publication, Shapes, TraceSession, UST};
use recording::NotCarried;
use spec::CHANNELS_MAX;
use stdx::output::{Directory, OutputError};
use tracedat::ledger::Ledger;

/// What LTTng calls snapshots if the user gives them no name: by the number of their output.
const SNAPSHOT: &str = "snapshot-1";

/// How a recording is written as a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CtfOptions {
    /// The names of events and fields.
    pub naming: Ctf,
    /// Packets and files of the streams of each channel.
    pub shapes: Shapes,
    /// How old events become before they can be read; `None` if packets are written when they are full.
    pub flush: Option<Duration>,
    /// How many closed chunks are kept: the newest ones. `None` for all.
    pub keep: Option<usize>,
    /// Whether others read it in the order of time while it is written: then streams tell, whenever packets
    /// are written before they are full, up to when they have no event.
    #[serde(default)]
    pub live: bool,
    /// The session that is recorded, if it is one of a session daemon's.
    #[serde(default)]
    pub session: Option<TraceSession>,
}

/// The directory of a trace, as LTTng's of a session, and what goes there.
#[derive(Clone, Debug)]
pub(super) struct CtfOutput {
    dir: Directory,
    options: Arc<CtfOptions>,
    /// No event is from before this time, by the recording's clock.
    pub(super) begin_ns: u64,
    /// Whether nothing is written for now.
    held: Arc<AtomicBool>,
    /// Whether another process has begun to write the chunk that is written first.
    is_begun: bool,
    /// What is written, for those who read meanwhile.
    publication: Arc<Publication>,
}

/// The same on its way to another process, which knows the directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedTrace {
    options: CtfOptions,
    begin_ns: u64,
}

impl CtfOutput {
    /// Takes a directory. Snapshots of a recording that stores nothing else can be added to earlier ones, the
    /// chunks of one that goes on for another to those of that, and closed chunks of earlier ones stay, as do
    /// files that were made of what a recorder had recorded that was killed. What is in the directory of a
    /// session stays, too, unless it is a trace: of two in one directory, readers make one.
    ///
    /// # Errors
    /// Something else is in it.
    pub(super) fn create(
        dir: Directory,
        options: CtfOptions,
        (only_snapshots, goes_on): (bool, bool),
    ) -> Result<Self, OutputError> {
        let names = dir.names().map_err(OutputError::io("read", dir.path()))?;
        let is_snapshot =
            |name: &OsString| only_snapshots && name.to_str().is_some_and(|name| name.starts_with(SNAPSHOT));
        let is_closed = |name: &OsString| name == ARCHIVES || name.as_encoded_bytes().ends_with(b".dat");
        let is_trace = |name: &OsString| [KERNEL, UST].iter().any(|domain| name == domain);
        let may_stay = |name: &OsString| match options.session {
            Some(_) => only_snapshots || !is_trace(name),
            None => is_snapshot(name) || !only_snapshots && is_closed(name),
        };
        if !goes_on && !names.iter().all(may_stay) {
            return Err(OutputError::NotEmpty { path: dir.path().to_owned() });
        }
        Ok(Self {
            dir,
            options: Arc::new(options),
            begin_ns: 0,
            held: Arc::default(),
            is_begun: false,
            publication: Arc::default(),
        })
    }

    /// Lets somebody else write it: nothing more is written here, but for what is closed.
    pub(super) fn leave(&mut self) {
        self.hold();
        self.is_begun = true;
    }

    pub(super) fn hand_over(self) -> HandedTrace {
        HandedTrace { options: Arc::unwrap_or_clone(self.options), begin_ns: self.begin_ns }
    }

    /// Goes on with one that another process has written to.
    pub(super) fn take_over(handed: HandedTrace, dir: Directory) -> Self {
        let HandedTrace { options, begin_ns } = handed;
        Self::begun(dir, options, begin_ns)
    }

    /// One that another process has written to.
    fn begun(dir: Directory, options: CtfOptions, begin_ns: u64) -> Self {
        let (options, held, publication) = (Arc::new(options), Arc::default(), Arc::default());
        Self { dir, options, begin_ns, held, is_begun: true, publication }
    }

    /// How it is written.
    pub(super) fn options(&self) -> &CtfOptions {
        &self.options
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Directory {
        &self.dir
    }

    /// What of the trace can be read while it is written.
    pub(super) fn publication(&self) -> &Arc<Publication> {
        &self.publication
    }

    /// Lets nothing be written until an archive is closed: the room that the disk still has is for what is
    /// left in the rings.
    pub(super) fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// Whether both are of one recording.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

/// The most descriptors of the writer for each stream: of its file and index, of the data that are read, and
/// of those of the next archive.
pub(super) const FILES_OF_STREAM: usize = 4;
/// Those beside streams: of directories, metadata, and the archives that wait.
pub(super) const FILES_OF_TRACE: usize = 8 * 8 + CHANNELS_MAX;

/// The buffers whose events are kept in memory, or those whose are not.
fn buffers(manifest: &Manifest, overwrite: bool) -> HashSet<String> {
    let channels = manifest.channels.iter().filter(|channel| channel.overwrite == overwrite);
    channels.map(|channel| channel.name.clone()).collect()
}

/// What was counted in an archive.
fn ledger(manifest: &Manifest, stats: &Stats) -> Ledger {
    stats.ledger(&manifest.clock_name, manifest.realtime_offset, manifest.realtime_uncertainty)
}

/// What the user should know of what the layout has no place for.
fn notes(not_carried: &NotCarried) -> Vec<String> {
    not_carried.iter().map(|(what, count)| format!("not in the trace: {count} {what}")).collect()
}

/// What has become of the events that an archive has stored.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// Those in the trace.
    events: u64,
    /// Those that a size limit removed before they were read.
    fell_behind: u64,
    /// Whether the spool has parts that cannot be read.
    is_damaged: bool,
}

impl Written {
    /// Whether the spool has more than the trace, and is to be kept. Adds what the user should know.
    fn has_less(&self, spool: &Spool, stats: &Stats, notes: &mut Vec<String>) -> bool {
        let Self { events, fell_behind, is_damaged } = *self;
        if fell_behind != 0 {
            notes.push(format!(
                "{fell_behind} events are not in the trace: the recording's size limit removed them before they were written"
            ));
        }
        let stored = stats.cpus.iter().map(|cpu| cpu.stored);
        let stored =
            stored.fold(0_u64, |sum, of| sum.saturating_add(of.events).saturating_add(of.capped_events));
        let missing = stored.saturating_sub(events.saturating_add(fell_behind));
        let dir = spool.dir().display();
        if missing != 0 {
            notes.push(format!(
                "{missing} of {stored} stored events are not in the trace; {dir} is kept, which has all of them: \
                 `tracer-agent recover -o FILE {dir}` makes a file of it"
            ));
        } else if is_damaged {
            notes.push(format!(
                "parts of the recording are damaged and not in the trace; {dir} is kept with them"
            ));
        }
        missing != 0 || is_damaged
    }
}

/// Removes the spool of an archive that is in its trace.
fn remove(spool: Spool, notes: &mut Vec<String>) {
    if let Err(error) = spool.remove() {
        // The trace is complete and in its place.
        notes.push(error.to_string());
    }
}
