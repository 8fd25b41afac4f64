//! Additions to the standard library that the crates of tracer-agent share.
//!
//! **Data flow:** none. These are helpers; each module stands alone.
//!
//! **Guarantees**
//!
//! - A file that [`output`] creates appears under its name when it is complete, or not at all. A path is
//!   resolved once; after that only names in open directories are used.
//! - Text that goes through [`terminal`] cannot control a terminal.
//! - [`parallel::in_order`] gives results in the order of the inputs, with bounded memory.
//!
//! **Must not know:** traces, eBPF, async runtimes.
//!
//! # Example
//!
//! ```
//! use stdx::input::CpuSet;
//!
//! let cpus: CpuSet = "0-2,5".parse()?;
//! assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`input`] | wildcards, lists of CPUs, suggestions for misspelt names |
//! | [`clients`] | how many connections each client of a server has |
//! | [`output`] | directories by descriptor, and files that appear when they are complete |
//! | [`guard`] | files that nobody but root can change |
//! | [`mounts`] | mounted file systems, as the kernel lists them |
//! | [`handover`] | descriptors and state that one process passes to the next |
//! | [`terminal`] | untrusted text made safe for a terminal |
//! | [`json`] | bounds of JSON texts that anybody may have written |
//! | [`escapes`] | bytes that a line of text cannot have, so that they can be read back |
//! | [`parallel`] | work on several threads, with results in order |
//! | [`quantity`] | sizes and periods as users write them |
//! | [`not_carried`] | counts of data that a format cannot hold |
//! | [`reason`] | causes of I/O errors |
//! | [`utc`] | dates of times since 1970 |
//! | [`fast_map`] | a hash map for keys that no attacker chooses |

#![forbid(unsafe_code)]

pub mod clients;
pub mod escapes;
pub mod fast_map;
pub mod guard;
pub mod handover;
pub mod input;
pub mod json;
pub mod mounts;
pub mod not_carried;
pub mod output;
pub mod parallel;
pub mod quantity;
pub mod reason;
pub mod terminal;
pub mod utc;

use std::sync::{PoisonError, RwLock};

/// The name that this process has been given for the machine.
static HOST_NAME: RwLock<Option<String>> = RwLock::new(None);

/// The name of this machine: the one of [`set_host_name`], or as `uname -n` prints it. In a container that is
/// the container's.
pub fn host_name() -> String {
    let given = HOST_NAME.read().unwrap_or_else(PoisonError::into_inner).clone();
    given.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// Gives the machine a name for all that this process writes and serves; `None` for the kernel's.
pub fn set_host_name(name: Option<String>) {
    *HOST_NAME.write().unwrap_or_else(PoisonError::into_inner) = name;
}
