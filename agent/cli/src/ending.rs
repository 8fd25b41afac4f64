//! Waiting for recorders that are ending.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use capture::{Spool, SpoolError};

/// How long a process that is ending may take to close its spool: many times what thousands of perf
/// events take.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for a recorder that is ending and holds the spool that `path` means, and says so.
///
/// # Errors
/// The recorder is not ending, or takes too long.
pub(super) fn wait_for_end(path: &Path) -> Result<(), SpoolError> {
    let (begun, mut is_told) = (Instant::now(), false);
    Spool::wait_for_end(path, |process| {
        if !is_told {
            super::tell(&format!(
                "tracer-agent: process {process}, which recorded, is ending; waiting for its end"
            ));
            is_told = true;
        }
        std::thread::sleep(LOOK);
        begun.elapsed() < PATIENCE
    })
}

/// The same for each spool that a recording to `output` may find there. What else is in its way is found when
/// its own spool is created.
///
/// # Errors
/// A recorder takes too long.
pub(super) fn wait_for_ends(output: &Path) -> Result<(), SpoolError> {
    let several = Spool::all_in(output).ok().flatten();
    for spool in several.unwrap_or_else(|| vec![output.to_owned()]) {
        if let Err(error @ SpoolError::Ending { .. }) = wait_for_end(&spool) {
            return Err(error);
        }
    }
    Ok(())
}
