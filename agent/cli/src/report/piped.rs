//! `report -`: the events of a streamed recording as they come.

use std::{
    io::{self, Write},
    os::fd::AsFd as _,
    path::Path,
};

use clap::ArgMatches;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::{dispositions, exit::ExitCode, input, tell, units::count};
use super::choose::{selection, tell_missing};
use super::notes::{exit_code, finish};
use super::{Args, Facts, ReportError, Settings, report, tell_backwards};
use capture::follow::NewSymbols;
use capture::piped::{PipedError, PipedRecording, Step};
use report::{Notice, Printed, TraceFile};
use stdx::terminal::SafeWriter;

/// Frames that are read before what they have is printed.
const FRAMES_AT_ONCE: u32 = 4096;
/// Bytes of pages that are read before their events are printed, while more is there: making the printer
/// ready costs as much as some thousand events.
const ENOUGH: usize = 4 << 20;

/// Whether events can be printed as they come: the others are asked about all of them.
pub(super) fn is_possible(args: &Args) -> bool {
    !args.align_ts && args.folded.is_none() && args.facts == Facts::default()
}

/// Prints the recording.
pub(super) fn run<W: Write>(
    (args, matches): (&Args, &ArgMatches),
    path: &Path,
    stream: input::Stream,
    out: &mut SafeWriter<W>,
) -> Result<ExitCode, ReportError> {
    let failed = |source| ReportError::Piped { name: input::name(path), source: Box::new(source) };
    let settings = Settings::read(args, matches)?;
    // Ctrl-C ends a recorder in the same pipeline, whose last events are still to come.
    dispositions::survive_first_interrupt();
    let mut recording = PipedRecording::open(stream).map_err(failed)?;
    let mut file = recording.head(&path.to_string_lossy()).map_err(failed)?;
    settings.apply(&mut file, 0..usize::MAX);
    let buffers = (!args.buffers.is_empty()).then(|| args.buffers.iter().cloned().collect());
    let cpus = (!args.cpu.is_empty()).then(|| args.cpu.iter().flatten().copied().collect());
    recording.select(buffers, cpus);
    let mut printing =
        Printing { args, matches, settings, recording, file: [file], printed: Printed::default() };
    if !args.json {
        out.write_all(report(args, &printing.file, false).header().as_bytes())?;
        out.flush()?;
    }
    let damage = printing.run(out)?;
    printing.end(path, damage.map(failed), out)
}

/// A recording, and what prints it.
struct Printing<'a> {
    args: &'a Args,
    matches: &'a ArgMatches,
    settings: Settings<'a>,
    recording: PipedRecording<input::Stream>,
    file: [TraceFile<Vec<u8>>; 1],
    printed: Printed,
}

impl Printing<'_> {
    /// Prints all records. Gives what made the rest unreadable.
    fn run<W: Write>(&mut self, out: &mut SafeWriter<W>) -> Result<Option<PipedError>, ReportError> {
        loop {
            let read = self.read_what_is_there();
            self.print(out)?;
            if self.printed.is_over() || read.is_err() || self.recording.step() != Step::GoesOn {
                return Ok(read.err());
            }
            if !self.wait() {
                self.printed.cut_off();
                return Ok(None);
            }
        }
    }

    /// Reads a frame, and more as long as they are there.
    fn read_what_is_there(&mut self) -> Result<(), PipedError> {
        for _ in 0..FRAMES_AT_ONCE {
            match self.recording.read()? {
                Step::GoesOn if self.recording.waiting() < ENOUGH => {}
                Step::Ended(_) => return self.recording.expect_end(),
                _ => return Ok(()),
            }
            let input = self.recording.input();
            if input.buffer().is_empty() && !is_ready(input) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for more. `false` if nobody reads the output any more.
    fn wait(&self) -> bool {
        let input = self.recording.input();
        if !input.buffer().is_empty() {
            return true;
        }
        let out = io::stdout();
        let mut fds = [
            PollFd::from_borrowed_fd(input::descriptor(input), PollFlags::IN),
            PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty()),
        ];
        // After an interruption the frame is waited for.
        let _ = poll(&mut fds, None);
        !fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    fn print<W: Write>(&mut self, out: &mut SafeWriter<W>) -> Result<(), ReportError> {
        let [file] = &mut self.file;
        for (pid, name) in self.recording.take_names() {
            file.add_name(pid, &name);
        }
        let NewSymbols { kernel, user } = self.recording.take_symbols();
        if let Some(kernel) = kernel {
            file.set_kallsyms([&self.settings.symbols[..], b"\n", &kernel].concat());
        }
        if let Some(user) = user {
            file.set_user_symbols(user);
        }
        let selection = selection(self.args, self.matches, &self.file, |_| ())?;
        let report = report(self.args, &self.file, out.is_terminal()).select(selection);
        let lines: &mut dyn Write = if self.args.json { &mut *out } else { out.inner() };
        let [file] = &self.file;
        let mut records = self.recording.records(file.reader().clock());
        report.print_live(&mut records, &mut self.printed, lines, |notice| {
            if let Notice::Backwards(found) = notice {
                tell_backwards(found);
            }
        })?;
        Ok(out.flush()?)
    }

    /// Says how it ended.
    fn end<W: Write>(
        self,
        path: &Path,
        damage: Option<ReportError>,
        out: &mut SafeWriter<W>,
    ) -> Result<ExitCode, ReportError> {
        let Self { args, matches, recording, file, printed, .. } = self;
        let summary = report(args, &file, false).summary(printed);
        if summary.is_cut_off {
            return Ok(ExitCode::Ok);
        }
        if args.wakeups {
            out.write_all(&summary.wakeups.text())?;
            out.flush()?;
        }
        selection(args, matches, &file, tell_missing)?;
        finish(args, &summary, &file);
        if recording.late() != 0 && !args.quiet {
            tell(&format!("tracer-agent: {} events are printed behind later ones", count(recording.late())));
        }
        if let Some(damage) = damage {
            return Err(damage);
        }
        if recording.step() == Step::CutOff {
            input::tell_cut_off(path);
            return Ok(ExitCode::Failure);
        }
        Ok(exit_code(&summary, &file))
    }
}

/// Whether something can be read without waiting.
fn is_ready(input: &input::Stream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(input::descriptor(input), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready != 0)
}
