//! What the programs of a recording say of themselves, while it is there.

use std::{
    os::fd::AsFd as _,
    sync::Arc,
    thread::{self, JoinHandle},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{CaptureError, SpoolError, channel::Channel, notice::Notice, spool::Spool};

/// Hands the messages of the programs on to what takes those of the crate `log`. Dropping it does so with the
/// last of them.
#[derive(Debug)]
pub(super) struct ProgramLog {
    stop: Arc<Notice>,
    thread: Option<JoinHandle<()>>,
}

impl ProgramLog {
    /// Begins with them, if somebody takes them: the programs have been loaded to say nothing otherwise.
    pub(super) fn start(channel: &Channel, spool: &Spool) -> Result<Option<Self>, CaptureError> {
        // No program has an error to tell.
        if log::max_level() < log::LevelFilter::Warn {
            return Ok(None);
        }
        let mut messages = channel.programs.messages()?;
        let failed = SpoolError::io("create an eventfd for", spool.dir());
        let stop = Arc::new(Notice::new().map_err(failed)?);
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("program-log".to_owned());
        let thread = thread.spawn(move || {
            loop {
                let mut waited = [
                    PollFd::from_borrowed_fd(messages.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
                ];
                // A signal that interrupts it is no message.
                let _ = poll(&mut waited, None);
                let is_over = !waited[1].revents().is_empty();
                messages.flush();
                if is_over {
                    return;
                }
            }
        });
        let thread = thread.map_err(SpoolError::io("start a thread for", spool.dir()))?;
        Ok(Some(Self { stop, thread: Some(thread) }))
    }
}

impl Drop for ProgramLog {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, the standard library has said so.
            let _ = thread.join();
        }
    }
}
