//! `report --follow`: the events of a recording while it goes on.

use std::io::{self, Write};
use std::path::Path;

use clap::ArgMatches;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::exit::ExitCode;
use super::super::units::count;
use super::super::{limits, tell};
use super::choose::{selection, tell_missing};
use super::notes::{exit_code, finish};
use super::{Args, Facts, ReportError, Settings, paths, report, tell_backwards};
use crate::capture::follow::{Follower, Progress};
use crate::report::{Notice, Printed, TraceFile};
use crate::terminal::SafeWriter;
use crate::tracedat::ledger::buffer_title;

/// How often it is looked for new events, in nanoseconds. The recorder does not wake anybody who follows.
const AGAIN: i64 = 200_000_000;

/// Follows the recording. `None` if there is none of that name, but perhaps a file.
pub(super) fn run<W: Write>(
    args: &Args,
    matches: &ArgMatches,
    out: &mut SafeWriter<W>,
) -> Result<Option<ExitCode>, ReportError> {
    refuse_whole_files(args)?;
    let paths = paths(args, matches);
    let [(_, path)] = paths.as_slice() else {
        return Err(ReportError::Usage("--follow takes one recording only".to_owned()));
    };
    let settings = Settings::read(args, matches)?;
    // Two descriptors for each CPU at most; with the usual limit that is enough for hundreds of them.
    let _as_many_as_may_be = limits::raise();
    let Some(mut follower) = Follower::open(path)? else { return Ok(None) };
    let mut file = follower.head()?;
    settings.apply(&mut file, 0..usize::MAX);
    let mut following = Following { args, matches, settings, follower, file: [file], fell_behind: false };
    following.run(path, out).map(Some)
}

/// Options that are about a file as a whole.
fn refuse_whole_files(args: &Args) -> Result<(), ReportError> {
    let refused = [
        (args.align_ts, "--align-ts needs the first event of every CPU"),
        (args.folded.is_some(), "--folded counts all events"),
        (args.facts != Facts::default(), "options that print something else than events need a whole file"),
    ];
    match refused.into_iter().find(|(given, _)| *given) {
        Some((_, why)) => Err(ReportError::Usage(format!(
            "{why}, and --follow prints them while they are recorded; leave one of the two out"
        ))),
        None => Ok(()),
    }
}

/// A recording, and what prints it.
struct Following<'a> {
    args: &'a Args,
    matches: &'a ArgMatches,
    settings: Settings<'a>,
    follower: Follower,
    file: [TraceFile<Vec<u8>>; 1],
    /// Whether it was said that events were removed before they were printed.
    fell_behind: bool,
}

impl Following<'_> {
    fn run<W: Write>(&mut self, path: &Path, out: &mut SafeWriter<W>) -> Result<ExitCode, ReportError> {
        if !self.args.cpu.is_empty() {
            self.follower.select_cpus(self.args.cpu.iter().flatten().copied().collect());
        }
        if !self.args.buffers.is_empty() {
            // That there are such buffers is known of the events' descriptions, which have all of them.
            self.follower.select_buffers(self.args.buffers.iter().cloned().collect());
        }
        let mut progress = self.follower.poll()?;
        if self.follower.is_overwriting() {
            let dir = self.follower.dir().display();
            tell(&format!(
                "tracer-agent: {dir}: a flight recorder (--overwrite) has its events in memory until it \
                 ends; they are printed then"
            ));
        }
        for buffer in self.follower.not_followed() {
            let dir = self.follower.dir().display();
            tell(&format!(
                "tracer-agent: {dir}: {} has its events in memory until the recording ends (--overwrite); \
                 they are in its file then, and not printed here",
                buffer_title(buffer)
            ));
        }
        let mut printed = Printed::default();
        let mut has_header = self.args.json || self.follower.is_overwriting();
        loop {
            if progress == Progress::Finished
                && self.follower.is_overwriting()
                && let Some(file) = self.follower.take_finished()
            {
                let failed = |source| ReportError::Read { path: path.to_owned(), source };
                let mut file = TraceFile::open(&path.to_string_lossy(), file).map_err(failed)?;
                self.settings.apply(&mut file, 0..usize::MAX);
                return super::print(self.args, self.matches, &[file], out);
            }
            if !std::mem::replace(&mut has_header, true) {
                out.write_all(report(self.args, &self.file, false).header().as_bytes())?;
                out.flush()?;
            }
            self.print(&mut printed, out)?;
            if progress != Progress::Recording || printed.is_over() {
                return self.end(progress, printed, out);
            }
            if is_closed_within(AGAIN) {
                printed.cut_off();
                return self.end(progress, printed, out);
            }
            progress = self.follower.poll()?;
        }
    }

    /// Prints what is there, each part when the names in it are known.
    fn print<W: Write>(&mut self, printed: &mut Printed, out: &mut SafeWriter<W>) -> Result<(), ReportError> {
        loop {
            self.print_part(printed, out)?;
            if !self.follower.has_new_symbols() || printed.is_over() {
                break;
            }
        }
        let behind = self.follower.fell_behind() != 0;
        if behind && !std::mem::replace(&mut self.fell_behind, true) && !self.args.quiet {
            tell("tracer-agent: the recording's size limit removes events before they are printed");
        }
        Ok(())
    }

    fn print_part<W: Write>(
        &mut self,
        printed: &mut Printed,
        out: &mut SafeWriter<W>,
    ) -> Result<(), ReportError> {
        let [file] = &mut self.file;
        for (pid, name) in self.follower.take_names() {
            file.add_name(pid, &name);
        }
        if let Some(symbols) = self.follower.take_symbols() {
            file.set_kallsyms([&self.settings.symbols[..], b"\n", &symbols].concat());
        }
        let selection = selection(self.args, self.matches, &self.file, |_| ())?;
        let terminal = out.is_terminal();
        let report = report(self.args, &self.file, terminal).select(selection);
        let lines: &mut dyn Write = if self.args.json { out } else { out.inner() };
        let [file] = &self.file;
        let mut records = self.follower.records(file.reader().clock());
        report.print_live(&mut records, printed, lines, |notice| {
            if let Notice::Backwards(found) = notice {
                tell_backwards(found);
            }
        })?;
        Ok(())
    }

    /// Says how it ended.
    fn end<W: Write>(
        &mut self,
        progress: Progress,
        printed: Printed,
        out: &mut SafeWriter<W>,
    ) -> Result<ExitCode, ReportError> {
        let is_over = printed.is_over() && progress == Progress::Recording;
        let report = report(self.args, &self.file, false);
        let summary = report.summary(printed);
        if summary.is_cut_off {
            return Ok(ExitCode::Ok);
        }
        if self.args.wakeups {
            out.write_all(&summary.wakeups.text())?;
            out.flush()?;
        }
        selection(self.args, self.matches, &self.file, tell_missing)?;
        finish(self.args, &summary, &self.file);
        let behind = self.follower.fell_behind();
        if behind != 0 && !self.args.quiet {
            tell(&format!(
                "tracer-agent: fell behind: the recording's size limit removed {} events before they were \
                 printed",
                count(behind)
            ));
        }
        let late = self.follower.late();
        if late != 0 && !self.args.quiet {
            tell(&format!(
                "tracer-agent: {} events are printed behind later ones: the times of their CPU went back, or \
                 it was not known that they would come",
                count(late)
            ));
        }
        let dir = self.follower.dir().display();
        match progress {
            Progress::Left if !is_over => {
                tell(&format!(
                    "tracer-agent: the recorder of {dir} was killed; this is what it had stored; \
                     `tracer-agent recover {dir}` makes a trace file of it"
                ));
                return Ok(ExitCode::Failure);
            }
            Progress::Gone if self.follower.unread() != 0 => {
                tell(&format!(
                    "tracer-agent: {dir} was removed, and the file of the recording is not in its place: {} \
                     events could not be printed",
                    count(self.follower.unread())
                ));
                return Ok(ExitCode::Failure);
            }
            _ => {}
        }
        Ok(exit_code(&summary, &self.file))
    }
}

/// Waits for so many nanoseconds, or until the reader of the output closes it: nobody would notice the latter
/// before the next event.
fn is_closed_within(nanoseconds: i64) -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, Some(&timeout));
    fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
