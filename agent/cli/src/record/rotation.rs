//! Recordings of several files, one after the other.

use std::{
    os::fd::BorrowedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;

use super::super::{CliError, progress::ProgressLine, summary, units};
use capture::{CaptureOptions, Done, Finished, Finisher, RotateError, Session};
use spec::RotationSpec;

/// Where the files go if nothing is said.
pub(super) const DIRECTORY: &str = "traces";

/// When a file is closed and the next one begun.
#[derive(Args, Debug)]
#[command(next_help_heading = "Several files")]
pub struct RotateArgs {
    /// Record into a directory (-o, by default traces) of files that are complete, each with its own
    /// statistics, and close one when it has this much data: 100M, 2G; plain numbers are KB. Their names are
    /// the times of begin and end (UTC) and a number
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes)]
    pub rotate_size: Option<u64>,

    /// The same when a file is so old: 10s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = units::period)]
    pub rotate_time: Option<u64>,

    /// Keep this many of the newest closed files, and remove the older ones
    #[arg(long, value_name = "FILES")]
    pub keep: Option<u64>,
}

impl RotateArgs {
    /// What the options say, if they say something.
    pub(super) fn spec(&self) -> Option<RotationSpec> {
        let Self { rotate_size, rotate_time, keep } = *self;
        let size_bytes = rotate_size.map(|kb| kb.saturating_mul(1024));
        let spec = RotationSpec { size_bytes, period_ns: rotate_time, keep };
        (spec != RotationSpec::default()).then_some(spec)
    }
}

/// What is written of a recording while it goes on: files that are closed, or a trace.
pub(super) struct Writing {
    finisher: Finisher,
    /// Whether it has several files, or chunks.
    rotates: bool,
    period: Option<Duration>,
    /// When the next file is begun, for its age.
    next: Option<Instant>,
    quiet: bool,
    files: Files,
}

/// What has become of the archives.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// How many are files.
    pub(super) count: u64,
    /// Events in them.
    pub(super) events: u64,
    /// Events that fired and are not in them.
    pub(super) missing: u64,
    /// The last one.
    pub(super) last: Option<Finished>,
    /// The first archive that is no file, and where it is.
    pub(super) failed: Option<CliError>,
}

impl Writing {
    /// Gets ready for what these options ask for. `None` if nothing is written before the end.
    pub(super) fn start(options: &CaptureOptions, quiet: bool) -> Result<Option<Self>, CliError> {
        let rotation = options.rotation;
        if rotation.is_none() && options.trace.is_none() {
            return Ok(None);
        }
        let finisher = Finisher::start(rotation.and_then(|rotation| rotation.keep))
            .map_err(CliError::system("start a thread that writes the files"))?;
        Ok(Some(Self {
            finisher,
            rotates: rotation.is_some(),
            period: rotation.and_then(|rotation| rotation.period),
            next: None,
            quiet,
            files: Files::default(),
        }))
    }

    /// Lets the trace be written of what is recorded from now on, if it becomes one. Without that it is
    /// written at the end.
    pub(super) fn follow(&self, session: &Session) {
        if let Err(error) = self.finisher.follow(session) {
            super::super::tell(&format!(
                "tracer-agent: the trace is written at the end of the recording: {error}"
            ));
        }
    }

    /// Says that the first file has begun.
    pub(super) fn begin(&mut self, began: Option<Instant>) {
        self.next = self.period.zip(began).map(|(period, began)| began + period);
    }

    /// When the file is old.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Becomes readable when a file is made.
    pub(super) fn is_done(&self) -> BorrowedFd<'_> {
        self.finisher.is_done()
    }

    /// Tells which files were made.
    pub(super) fn tell_done(&mut self, line: &mut ProgressLine) {
        while let Some(done) = self.finisher.next_done() {
            let quiet = self.quiet;
            if let Done::Failed { error, spool } | Done::TraceEnded { error, spool } = &done {
                let spool = spool.display();
                line.say(&format!(
                    "tracer-agent: {error}; what was recorded is in {spool}; recording goes on"
                ));
            }
            self.files.add(done, &mut |text| {
                if !quiet {
                    line.say(text);
                }
            });
        }
    }

    /// Closes the file and begins the next one, if it is time.
    pub(super) fn rotate_if_due(&mut self, session: &mut Session, is_large: bool, line: &mut ProgressLine) {
        let now = Instant::now();
        let is_old = self.next.is_some_and(|next| now >= next);
        if !self.rotates || !is_large && !is_old {
            return;
        }
        // Counted from the last one: times do not run away from the period if one comes late.
        if let (Some(period), Some(next)) = (self.period, self.next) {
            self.next = Some(if is_old && next + period > now { next + period } else { now + period });
        }
        if self.finisher.is_behind() {
            session.put_off_rotation();
            return;
        }
        match session.rotate() {
            Ok(recorded) => self.finisher.add(recorded),
            // That the recording is at its end is seen by who waits for that.
            Err(RotateError::Reader) => {}
            Err(error) => line.say(&format!("tracer-agent: {error}; recording goes on into the same file")),
        }
    }

    /// Makes the last files, and waits for all.
    pub(super) fn finish(mut self, last: Vec<capture::Recorded>) -> Files {
        for recorded in last {
            self.finisher.add(recorded);
        }
        // The summary of one trace tells of all of it.
        let quiet = self.quiet || !self.rotates;
        for done in self.finisher.finish() {
            self.files.add(done, &mut |text| {
                if !quiet {
                    super::super::tell(text);
                }
            });
        }
        self.files
    }
}

impl Files {
    fn add(&mut self, done: Done, say: &mut dyn FnMut(&str)) {
        match done {
            Done::File(finished) => {
                self.count += 1;
                self.events += finished.stats.stored_events();
                self.missing += finished.stats.missing_total();
                say(summary::line(&finished).trim_end());
                self.last = Some(*finished);
            }
            // It was told when the trace ended.
            Done::KeptInSpool { .. } => {}
            Done::Failed { error, spool } | Done::TraceEnded { error, spool } => {
                let error = CliError::Finish { error, spool };
                // The first one ends the program, and is told then.
                if self.failed.is_some() {
                    super::super::tell(&format!("tracer-agent: {error}"));
                } else {
                    self.failed = Some(error);
                }
            }
        }
    }

    /// The directory of the files.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        Some(self.last.as_ref()?.path.parent()?.to_owned())
    }
}
