//! Why a trace cannot be read.

use std::io;
use std::path::PathBuf;

use super::fragments::FragmentError;
use super::packet::PacketError;
use super::text::TextError;
use super::tsdl::TsdlError;

/// Why a trace of CTF cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CtfError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// There is no trace.
    #[error(
        "{path} has no CTF trace: neither a file metadata, nor LTTng's directories kernel and ust, nor chunks of them in archives; \
         name the directory of a trace or of a recording session",
        path = .path.display()
    )]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// There are several.
    #[error("{path} has {count} traces that do not belong together: {first} and {second} differ in {what}; name one of them",
        path = .path.display())]
    Several {
        /// The directory.
        path: PathBuf,
        /// How many there are.
        count: usize,
        /// One.
        first: String,
        /// Another one.
        second: String,
        /// What makes them different.
        what: &'static str,
    },
    /// The file `metadata` is larger than any is.
    #[error("{path} has {len} bytes, and metadata of more than {most} bytes are not read", path = .path.display())]
    MetadataSize {
        /// The file.
        path: PathBuf,
        /// Its size.
        len: u64,
        /// The most.
        most: u64,
    },
    /// The file `metadata` has no text.
    #[error("{path}: {source}", path = .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TextError,
    },
    /// The text of the metadata is not understood.
    #[error("{path}: {source}", path = .path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        source: TsdlError,
    },
    /// The fragments of the metadata are not understood.
    #[error("{path}: {source}", path = .path.display())]
    Fragment {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        source: FragmentError,
    },
    /// A stream is damaged.
    #[error("{path}: at byte {at}, in the packet at byte {packet}: {source}", path = .path.display())]
    Packet {
        /// The file.
        path: PathBuf,
        /// Where the packet begins.
        packet: u64,
        /// Where in the file it is not understood.
        at: u64,
        /// What is wrong.
        source: PacketError,
    },
}

impl CtfError {
    /// For `map_err`: a failure of `action` on `path`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
