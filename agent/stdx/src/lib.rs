//! Small additions to the standard library that the crates of tracer-agent share.
//!
//! | module | what |
//! |---|---|
//! | [`input`] | wildcards, lists of CPUs, names with typing mistakes |
//! | [`output`] | directories by descriptor, and files that get their names when they are complete |
//! | [`handover`] | descriptors and state that one process passes to the next |
//! | [`terminal`] | foreign text, made safe for a terminal |
//! | [`parallel`] | work on several threads, with results in order |
//! | [`quantity`] | sizes and periods as users write them |
//! | [`not_carried`] | counts of data that a format has no place for |
//! | [`reason`] | causes of I/O errors |
//! | [`utc`] | dates of times since 1970 |
//! | [`fast_map`] | a map for keys that nobody chooses |
//!
//! Nothing here knows of traces, of eBPF or of tokio.
//!
//! ```
//! use stdx::input::CpuSet;
//!
//! let cpus: CpuSet = "0-2,5".parse()?;
//! assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod fast_map;
pub mod handover;
pub mod input;
pub mod not_carried;
pub mod output;
pub mod parallel;
pub mod quantity;
pub mod reason;
pub mod terminal;
pub mod utc;

/// The name of this machine, as `uname -n` prints it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
