//! Snapshots of a recording with `--overwrite`, which SIGUSR2 asks for.

use std::os::fd::BorrowedFd;

use super::super::{CliError, progress::ProgressLine, summary, units::count};
use crate::capture::{Done, Finisher, Session, SnapshotError};

/// The snapshots of a recording. One is made at a time.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// Makes the files, from the first request on.
    finisher: Option<Finisher>,
    quiet: bool,
    /// Requests that came while one was made.
    left_out: u64,
}

impl Snapshots {
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, ..Self::default() }
    }

    /// Becomes readable when a file is made.
    pub(super) fn is_done(&self) -> Option<BorrowedFd<'_>> {
        self.finisher.as_ref().map(Finisher::is_done)
    }

    /// Takes one, or says why there is none.
    pub(super) fn take(&mut self, session: &mut Session, line: &mut ProgressLine) {
        if self.finisher.as_ref().is_some_and(Finisher::is_busy) {
            self.left_out += 1;
            if !self.quiet {
                line.say("tracer-agent: no snapshot for this SIGUSR2: the one before is still being written");
            }
            return;
        }
        match self.store(session) {
            Ok(()) => {}
            // That the recording is at its end is seen by who waits for that.
            Err(Failed::Snapshot(SnapshotError::Reader)) => {}
            Err(Failed::Snapshot(SnapshotError::Stores)) => line.say(
                "tracer-agent: SIGUSR2 takes a snapshot of a recording with --overwrite; this one stores all \
                 its events; recording continues\n\
                 tracer-agent: SIGUSR1 prints the progress, SIGINT ends the recording and writes the file",
            ),
            Err(Failed::Snapshot(error)) => {
                line.say(&format!("tracer-agent: {error}; recording continues"));
            }
            Err(Failed::Thread(error)) => line.say(&format!("tracer-agent: {error}; recording continues")),
        }
    }

    fn store(&mut self, session: &mut Session) -> Result<(), Failed> {
        // Before the snapshot, which would be nobody's without it.
        let finisher = match self.finisher.take() {
            Some(finisher) => finisher,
            None => Finisher::start(None)
                .map_err(CliError::system("start a thread that makes the file of a snapshot"))
                .map_err(Failed::Thread)?,
        };
        let finisher = self.finisher.insert(finisher);
        finisher.add(session.snapshot().map_err(Failed::Snapshot)?);
        Ok(())
    }

    /// Tells which files were made.
    pub(super) fn tell_done(&mut self, line: &mut ProgressLine) {
        while let Some(done) = self.finisher.as_ref().and_then(Finisher::next_done) {
            self.tell(done, &mut |text| line.say(text));
        }
    }

    /// Waits for the file that is being made.
    pub(super) fn finish(mut self) {
        for done in self.finisher.take().map(Finisher::finish).unwrap_or_default() {
            self.tell(done, &mut super::super::tell);
        }
        if self.left_out != 0 && !self.quiet {
            let requests = count(self.left_out);
            super::super::tell(&format!(
                "tracer-agent: {requests} SIGUSR2 came while a snapshot was being written, and took none"
            ));
        }
    }

    fn tell(&self, done: Done, say: &mut dyn FnMut(&str)) {
        match done {
            Done::File(finished) if self.quiet => drop(finished),
            Done::File(finished) => say(summary::line(&finished).trim_end()),
            Done::Failed { error, spool } => {
                say(&format!("tracer-agent: {}", CliError::Finish { error, spool }));
            }
        }
    }
}

/// Why there is no snapshot.
enum Failed {
    Snapshot(SnapshotError),
    Thread(CliError),
}
