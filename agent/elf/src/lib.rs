//! Functions and USDT markers of user-space binaries, for uprobes.
//!
//! **Data flow:** a path → [`OpenBinary`] → functions ([`symbols`]) or markers ([`usdt`]) with their offset
//! in the **file**, which is how the kernel places a uprobe (Documentation/trace/uprobetracer.rst).
//!
//! Position-independent programs and shared libraries need no special case: a symbol's value is a virtual
//! address as the program headers define it, and each is converted through the executable `PT_LOAD` segment
//! that contains it.
//!
//! **Guarantees**
//!
//! - Binaries may be hostile: every offset is checked against the file's size before it is read, and unpacked
//!   data is bounded.
//! - A name that does not resolve gives an error with similar names.
//! - A binary is looked for through processes that the calling thread may trace, by the kernel's own check.
//!
//! **Must not know:** eBPF, probes' syntax, the running kernel, but for what processes have mapped.
//!
//! # Example
//!
//! ```no_run
//! use elf::symbols::Functions;
//! use std::path::Path;
//!
//! let functions = Functions::of(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6"))?;
//! for function in functions.find("malloc")? {
//!     println!("{} at {:#x}", function.demangled(), function.offset);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `file` | the file: machine, segments, file offsets of virtual addresses |
//! | [`symbols`] | functions of every symbol table: `.symtab`, `.dynsym`, a separate debug file, `.gnu_debugdata` |
//! | [`indirect`] | functions that choose their implementation when a program starts |
//! | `slots` | where a binary has the implementations' addresses stored |
//! | [`returns`] | where functions return |
//! | `debug_file` | symbols that a distribution keeps in another file |
//! | [`usdt`] | markers of `sys/sdt.h`, their arguments and semaphores |
//! | `open` | a binary that stays open while it is read |
//! | `overlays` | which overlays are the administrator's |
//! | `head` | what a binary says to its loader: segments, the name of a library, the build id |
//! | `mapped` | files that a process has mapped, also removed ones |
//! | `resolver` | what a name means to the processes of a recording |

#![forbid(unsafe_code)]

mod debug_file;
mod file;
mod head;
pub mod indirect;
mod mapped;
mod open;
mod overlays;
mod resolver;
pub mod returns;
mod slots;
pub mod symbols;
pub mod usdt;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

pub use debug_file::hex;
pub use file::Machine;
pub use mapped::MappedFile;
pub use open::{FileState, Identity, OpenBinary, without_mark};
pub use resolver::{Named, Newcomers, Processes, Resolver, find_by_name};

/// Why a binary cannot be probed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The binary.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// A script, or anything else without an ELF header.
    #[error("{} is not an ELF binary{}", path.display(), hint(interpreter.as_deref()))]
    NotElf {
        /// The file.
        path: PathBuf,
        /// The interpreter that its first line names, when it is a script.
        interpreter: Option<String>,
    },
    /// The ELF structures contradict each other or the file's size.
    #[error("{} is damaged or truncated: {reason}", path.display())]
    Malformed {
        /// The binary.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// No process that is recorded has it mapped.
    #[error(
        "no process of the recording has mapped a file named {name}{}; a library that is loaded later is named by its path",
        in_brackets(processes)
    )]
    NotMapped {
        /// The name.
        name: String,
        /// The processes.
        processes: Vec<u32>,
    },
    /// The name means too many files.
    #[error(
        "{name} is more than {max} different files in the processes of the recording; record fewer of \
         them, or name one file by its path below /proc/PID/root"
    )]
    TooManyFiles {
        /// The name.
        name: String,
        /// How many there may be.
        max: usize,
    },
    /// An object file, a core dump, a kernel module: nothing that is mapped for running.
    #[error("{} is {what}, which no process runs; name the program or the shared library", path.display())]
    NotRunnable {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A program for another processor.
    #[error("{} is for {machine}, and this machine runs {host}", path.display())]
    WrongMachine {
        /// The binary.
        path: PathBuf,
        /// Its machine.
        machine: Machine,
        /// This machine.
        host: Machine,
    },
}

fn in_brackets(processes: &[u32]) -> String {
    format!(" ({})", told(processes))
}

/// The processes, if they are few.
fn told(processes: &[u32]) -> String {
    let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
    match ids.as_slice() {
        [only] => format!("process {only}"),
        few if few.len() <= 8 => format!("processes {}", few.join(", ")),
        many => format!("{} processes", many.len()),
    }
}

fn hint(interpreter: Option<&str>) -> String {
    match interpreter {
        Some(name) => format!(": it is a script for {name}; probe the interpreter or what it loads"),
        None => String::new(),
    }
}
