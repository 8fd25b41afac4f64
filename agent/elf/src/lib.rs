//! What a user-space binary offers to uprobes: functions by name, and USDT markers.
//!
//! | module | what it reads |
//! |---|---|
//! | `file` | the file: machine, segments, which virtual address lies at which file offset |
//! | [`symbols`] | functions, from every symbol table there is: `.symtab`, `.dynsym`, a separate debug file, `.gnu_debugdata` |
//! | `debug_file` | symbols that a distribution keeps elsewhere |
//! | [`usdt`] | the markers of `sys/sdt.h`, their arguments and semaphores |
//!
//! The kernel places a uprobe by the offset in the **file** (Documentation/trace/uprobetracer.rst), whatever
//! address the binary is loaded at; that is why position independent programs and shared libraries need
//! nothing of their own. A symbol's value is a virtual address as the program headers have it, so each goes
//! through the executable `PT_LOAD` segment that holds it.
//!
//! Binaries are untrusted: every offset is checked against the file's size before it is read, and what is
//! unpacked is bounded.

mod debug_file;
mod file;
mod open;
pub mod symbols;
pub mod usdt;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

pub use debug_file::hex;
pub use file::Machine;
pub use open::OpenBinary;

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

fn hint(interpreter: Option<&str>) -> String {
    match interpreter {
        Some(name) => format!(": it is a script for {name}; probe the interpreter or what it loads"),
        None => String::new(),
    }
}
