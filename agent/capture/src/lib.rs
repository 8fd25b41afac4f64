//! A recording, from start to finished file.
//!
//! A [`Session`] attaches the programs and runs the reader threads, which store the rings' pages in a
//! [`Spool`] beside the output. Stopping closes the gates, stores the rest and gives [`Recorded`];
//! [`finish()`] makes the trace file of it. After a crash [`recover`] does the same with what the spool
//! holds. A rotation does it for what is stored by then, while recording goes on in the next archive, and a
//! snapshot for what the rings of a recording hold that overwrites.
//!
//! | file | subject |
//! |---|---|
//! | `options` | what is to be recorded |
//! | `session` | the running recording, its rotations and snapshots |
//! | `needs` | what the options mean for the machine, the programs and the readers |
//! | `channel` | a buffer and the programs that fill it |
//! | `maps` | what is counted instead of being recorded |
//! | `attaching` | attaching its programs |
//! | `archive` | what becomes one file: from one rotation to the next |
//! | `notice` | what wakes a thread that waits |
//! | `pauses` | when it was not recorded to |
//! | `closing` | what is known of an archive at its end |
//! | `stream` | one CPU's part of a channel |
//! | `readers` | reader threads: ring to spool |
//! | `spool`, `segment` | data on its way to the file, written and read back |
//! | `manifest`, `names`, `symbols`, `state` | what the file needs besides the data |
//! | `user_symbols` | names for user stacks |
//! | `counts` | what is known of the rings of a recording that is killed |
//! | `stats` | the loss ledger |
//! | `ledger` | the counts of a recording that goes on |
//! | `program_log` | what programs say of themselves, in builds for that |
//! | `finish` | spool to trace file |
//! | `finisher` | the same for archives, while the next ones are recorded |
//! | `ctf` | a trace that is written instead, while the recording goes on |
//! | `handover` | a recording that another process goes on with |
//! | `follow` | reading the spool of a recording that goes on |
//! | `paged` | its pages, for who sends them elsewhere |
//! | `piped` | a recording in a pipe |
//! | `watch` | being told of events as they fire, without a file |

mod archive;
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
pub use counts::Ending;
pub use ctf::CtfOptions;
pub use ctf::open_archives;
pub use finish::{BINARIES_OPTION, FinishError, Finished, LEDGER_OPTION, finish, recover};
pub use finisher::{Done, Finisher};
pub use handover::{HandOver, HandOverError, Refused, TakeOverError};
pub use ledger::LedgerSnapshot;
pub use manifest::{Manifest, RecordedChannel};
pub use maps::{
    Counting, Entry, KeyValue, Losses, MapContents, MapOptions, Maps, Numbers, counted_map, program_function,
};
pub use notice::Notice;
pub use options::{
    Active, Addition, CaptureEvent, CaptureOptions, CaptureProbe, ChannelOptions, EventFilter, ProgramFacts,
    RING_PAGES_MIN, Rotation, SnapshotRule, TaskFilter, Tracking,
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
