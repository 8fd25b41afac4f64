//! A recording, from start to finished file.
//!
//! [`Capture`] attaches the programs and runs the reader threads, which store the rings' pages in a [`Spool`]
//! beside the output. Stopping closes the gates, stores the rest and gives [`Recorded`]; [`finish()`] makes
//! the trace file of it. After a crash [`recover`] does the same with what the spool holds.
//!
//! | file | subject |
//! |---|---|
//! | `options` | what a capture is asked to record |
//! | `recorder` | the running capture |
//! | `drain` | reader threads: ring to spool |
//! | `spool`, `segment` | data on its way to the file, written and read back |
//! | `manifest`, `names`, `symbols`, `state` | what the file needs besides the data |
//! | `user_symbols` | names for user stacks |
//! | `counts` | what is known of the rings of a recording that is killed |
//! | `stats` | the loss ledger |
//! | `finish` | spool to trace file |
//! | `follow` | reading the spool of a recording that goes on |

mod counts;
mod drain;
mod finish;
pub mod follow;
mod manifest;
mod names;
mod options;
mod recorder;
mod segment;
mod spool;
mod state;
mod stats;
mod symbols;
mod user_symbols;

pub use counts::Ending;
pub use finish::{BINARIES_OPTION, FinishError, Finished, LEDGER_OPTION, finish, recover};
pub use manifest::Manifest;
pub use options::{CaptureEvent, CaptureOptions, CaptureProbe, EventFilter, RING_PAGES_MIN, TaskFilter};
pub use recorder::{Capture, CaptureError, LeftOut, Progress, Recorded};
pub use spool::{Spool, SpoolError, SpoolTotals};
pub use stats::{CpuStats, EventStats, OpenEnd, Stats, cause_name};

pub use crate::tracedat::ledger::{End, Recovered};
