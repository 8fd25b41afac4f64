//! The kernel's symbols, read while recording: the kernel takes a while to print them, and a stop should not wait for it.

use std::{path::PathBuf, thread::JoinHandle};

use super::Spool;
use crate::kernel::{kallsyms::Kallsyms, proc};

/// Reads the symbols in a thread of its own.
#[derive(Debug)]
pub(super) struct SymbolReader(Option<JoinHandle<()>>);

impl SymbolReader {
    /// Starts reading into `spool`. A failure leaves no file, and then the trace file has no symbols.
    pub(super) fn start(spool: &Spool) -> Self {
        let path = path(spool);
        let thread = std::thread::Builder::new().name("symbols".into()).spawn(move || {
            let _ = store(&path);
        });
        Self(thread.ok())
    }
}

/// Waits until the file is there, or will not come: the spool must not be used up or removed before.
impl Drop for SymbolReader {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic has been printed; the trace file then has no symbols.
            let _ = thread.join();
        }
    }
}

/// Where the spool keeps the symbols.
fn path(spool: &Spool) -> PathBuf {
    spool.file("kallsyms")
}

/// Writes the symbols under a temporary name first: a file that a crash cut short must not be taken for whole.
fn store(path: &std::path::Path) -> Result<(), std::io::Error> {
    let symbols = Kallsyms::read().map_err(std::io::Error::other)?.with_sentinel();
    let draft = path.with_extension("new");
    std::fs::write(&draft, symbols)?;
    std::fs::rename(draft, path)
}

/// The symbols in the spool, if they could be had.
pub(super) fn load(spool: &Spool) -> Vec<u8> {
    std::fs::read(path(spool)).unwrap_or_default()
}

/// Gives the space of symbols that were loaded back. That the file is empty says that the kernel had them.
pub(super) fn give_up(spool: &Spool) {
    // There may be no such file.
    if let Ok(file) = std::fs::File::options().write(true).open(path(spool)) {
        // A failure shows when the space is needed.
        let _ = file.set_len(0);
    }
}

/// The symbols for a recovery. Those that were given up are read again if the kernel still has the same: addresses hold for one
/// boot only.
pub(super) fn load_again(spool: &Spool, boot_id: &str) -> Vec<u8> {
    let given_up = std::fs::metadata(path(spool)).is_ok_and(|file| file.len() == 0);
    if given_up && proc::boot_id().is_ok_and(|now| now == boot_id) {
        Kallsyms::read().map(Kallsyms::with_sentinel).unwrap_or_default()
    } else {
        load(spool)
    }
}
