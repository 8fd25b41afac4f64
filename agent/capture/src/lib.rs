//! The recorder: a recording from its start to the finished file, and its recovery.
//!
//! **Data flow:** [`CaptureOptions`] → [`Session::create`] (spool, programs, readers) → [`Session::start`]
//! opens the gates → reader threads move pages from the rings to the [`Spool`] → [`Session::stop`] gives a
//! [`Recorded`] per archive → [`finish()`] makes the trace file. [`recover`] does the last step for a
//! recorder that was killed.
//!
//! A rotation finishes what is stored so far while recording continues in the next archive. A snapshot does
//! it for the contents of the rings of a flight recorder.
//!
//! **Guarantees**
//!
//! - Each event that fires between start and stop is in the file or counted, per CPU, event and cause.
//! - A page is in the spool before its memory is reused. A killed recorder loses at most the contents of the
//!   rings.
//! - The output appears when it is complete. A spool is removed only after that.
//! - Consumers ([`follow`], [`piped`], [`paged`]) cannot slow down a recording.
//!
//! **Must not know:** command lines, the daemon, how options came about (`plan` makes them).
//!
//! # Example
//!
//! ```no_run
//! use capture::{CaptureOptions, Session, finish};
//! use std::time::Duration;
//!
//! fn record(options: CaptureOptions) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut session = Session::create(options, &mut |_attached, _all| {})?;
//!     session.start();
//!     std::thread::sleep(Duration::from_secs(1));
//!     for recorded in session.stop() {
//!         finish(recorded)?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `options` | what to record |
//! | `session` | the running recording, its rotations and snapshots |
//! | `needs` | what the options need of the machine, the programs and the readers |
//! | `channel` | a buffer and its programs |
//! | `maps` | counting instead of recording |
//! | `attaching` | attaching a channel's programs |
//! | `archive` | the content of one file: from one rotation to the next |
//! | `notice` | an eventfd that wakes a waiting thread |
//! | `pauses` | times of pauses |
//! | `closing` | what is known of an archive at its end |
//! | `stream` | one CPU's part of a channel |
//! | `readers` | reader threads: ring to spool |
//! | `spool`, `segment` | stored data, written and read back |
//! | `manifest`, `names`, `symbols`, `state` | what the file needs besides data |
//! | `assumed` | what stands in for a lost manifest |
//! | `user_symbols` | names for user stacks |
//! | `counts` | counts of rings that outlive the recorder |
//! | `stats` | the loss ledger |
//! | `ledger` | counts of a running recording |
//! | `sets` | rings per user or process |
//! | `program_log` | messages of programs, in debug builds of them |
//! | `finish` | spool to trace file |
//! | `finisher` | the same for archives, while the next ones are recorded |
//! | `ctf` | a CTF trace, written while the recording runs |
//! | `handover` | passing a running recording to another process |
//! | [`follow`] | reading the spool of a running recording |
//! | [`paged`] | its pages, for senders |
//! | [`piped`] | a recording in a pipe |
//! | [`watch`] | events as they fire, without a file |

mod archive;
mod assumed;
mod attaching;
mod channel;
mod closing;
mod counts;
mod ctf;
mod descriptors;
mod finish;
mod finisher;
pub mod follow;
mod handover;
mod ledger;
mod manifest;
mod maps;
mod names;
mod needs;
mod notice;
mod options;
pub mod paged;
mod pauses;
pub mod piped;
#[cfg(feature = "debug-programs")]
mod program_log;
mod readers;
mod segment;
mod session;
mod sets;
mod spool;
mod state;
mod stats;
mod stream;
mod symbols;
mod user_symbols;
pub mod watch;

pub use archive::{ArchiveName, Destination};
pub use assumed::LostManifest;
pub use counts::Ending;
pub use ctf::CtfOptions;
pub use ctf::open_archives;
pub use finish::{BINARIES_OPTION, FinishError, Finished, LEDGER_OPTION, finish, recover};
pub use finisher::{Done, Finisher};
pub use handover::{HandOver, HandOverError, Refused, TakeOverError};
pub use ledger::LedgerSnapshot;
pub use manifest::{Manifest, RecordedChannel};
pub use maps::{
    Counting, Entry, KeyValue, Losses, MapContents, MapOptions, Maps, Numbers, counted_map, kernel_symbols,
    program_function,
};
pub use notice::Notice;
pub use options::{
    Active, Addition, CaptureEvent, CaptureOptions, CaptureProbe, ChannelOptions, EventFilter, OwnProgram,
    OwnStrings, ProgramFacts, RING_PAGES_MIN, Rotation, SnapshotRule, TaskFilter, Tracking,
};
pub use session::{
    AddError, CaptureError, LeftOut, PauseError, Progress, Recorded, RingFill, RotateError, Session,
    SnapshotError, SnapshotLimits, TrackError, wait_for_programs,
};
pub use sets::{RecordedSet, SetOptions, SetOwner};
pub use spool::{Spool, SpoolError, SpoolTotals};
pub use state::StateError;
pub use stats::{CpuStats, EventStats, OpenEnd, Stats, cause_name};
pub use stream::StreamId;

pub use tracedat::ledger::{End, Pause, Recovered};
