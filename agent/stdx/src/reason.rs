//! The system's reason behind an error, whatever wraps it.

use std::{error::Error, io};

/// The kind of the first [`io::Error`] among `error` and its sources.
pub fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        source = error.source();
    }
    None
}

/// Whether the disk, or the user's part of it, is full, or a file is as large as this process may make one
/// (`ulimit -f`).
pub fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(io_kind(error), Some(StorageFull | QuotaExceeded | FileTooLarge))
}
