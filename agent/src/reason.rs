//! The system's reason behind an error, whatever wraps it.

use std::{error::Error, io};

/// The kind of the first [`io::Error`] among `error` and its sources.
pub(crate) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        source = error.source();
    }
    None
}

/// Whether the disk, or the user's part of it, is full.
pub(crate) fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    matches!(io_kind(error), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}
