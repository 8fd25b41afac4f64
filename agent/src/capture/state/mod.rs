//! The state of the machine, collected while recording: neither the start nor the stop waits for it.

mod collect;

use std::{
    ffi::OsStr,
    io::{Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::{Spool, spool::has_room_for};
use crate::{kernel::clock::TraceClock, output::Directory, tracedat::initial_state::InitialState};

/// Most that is read of a spool that may be another user's: many times what a machine has.
const MOST_BYTES: u64 = 256 << 20;

/// Name of the file in the spool.
pub(super) const NAME: &str = "state";

/// Collects the state in a thread of its own.
#[derive(Debug)]
pub(super) struct StateReader {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl StateReader {
    /// Starts collecting into `spool`. A failure leaves no file, and then the trace file has no initial
    /// state; so does a disk that is nearly full: all of it is the data's.
    pub(super) fn start(spool: &Spool, clock: TraceClock) -> Self {
        let files = spool.files().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("state".into()).spawn(move || {
            if let Ok(bytes) = collect::collect(clock, &stopped).encode()
                && has_room_for(&files, bytes.len() as u64)
            {
                // What could not be written whole is removed.
                let _ = files.write_whole(NAME, |file| file.write_all(&bytes));
            }
        });
        Self { thread: thread.ok(), stop }
    }
}

/// Ends collecting. What is there by then is stored.
impl Drop for StateReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; the trace file then has no initial state.
            let _ = thread.join();
        }
    }
}

/// The data of the option, if there are any.
pub(super) fn load(spool: &Spool) -> Option<Vec<u8>> {
    spool.files().read(NAME).ok()
}

/// The same, of a spool that may be another user's: none if they make no sense.
pub(super) fn of(files: &Directory) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    files.open_file(OsStr::new(NAME)).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    InitialState::decode(&bytes).is_ok().then_some(bytes)
}
