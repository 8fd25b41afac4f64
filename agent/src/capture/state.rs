//! The state of the machine, collected while recording: neither the start nor the stop waits for it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::Spool;
use crate::kernel::{clock::TraceClock, state};

/// Collects the state in a thread of its own.
#[derive(Debug)]
pub(super) struct StateReader {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl StateReader {
    /// Starts collecting into `spool`. A failure leaves no file, and then the trace file has no initial state.
    pub(super) fn start(spool: &Spool, clock: TraceClock) -> Self {
        let path = path(spool);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("state".into()).spawn(move || {
            if let Ok(bytes) = state::collect(clock, &stopped).encode() {
                // Under a temporary name first: a file that a crash cut short must not be taken for whole.
                let draft = path.with_extension("new");
                let _ = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(draft, path));
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

fn path(spool: &Spool) -> PathBuf {
    spool.file("state")
}

/// The data of the option, if there are any.
pub(super) fn load(spool: &Spool) -> Option<Vec<u8>> {
    std::fs::read(path(spool)).ok()
}
