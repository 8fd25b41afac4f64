//! `report --follow`: the events of a recording while it goes on.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::Path;

use clap::ArgMatches;

use super::super::exit::ExitCode;
use super::super::{following, limits};
use super::choose::{selection, tell_missing};
use super::notes::{exit_code, finish};
use super::{Args, Facts, ReportError, Settings, paths, report, tell_backwards};
use capture::follow::{Follower, NewSymbols, Progress};
use report::{Notice, Printed, Summary, TraceFile};
use stdx::terminal::SafeWriter;

/// What becomes of events.
const PRINTED: &str = "printed";

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
    // Two descriptors for each CPU at most; with the usual limit that is enough for hundreds of them.
    let _as_many_as_may_be = limits::raise();
    let Some(follower) = Follower::open(path)? else { return Ok(None) };
    Following::of(args, matches, follower)?.run(path, out).map(Some)
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

/// A recording that goes on, and what prints it.
pub(crate) struct Following<'a> {
    args: &'a Args,
    matches: &'a ArgMatches,
    settings: Settings<'a>,
    pub(crate) follower: Follower,
    file: [TraceFile<Vec<u8>>; 1],
    /// Whether it was said that events were removed before they were printed.
    fell_behind: bool,
}

impl<'a> Following<'a> {
    /// Prints what this recording has, as the options say.
    pub(crate) fn of(
        args: &'a Args,
        matches: &'a ArgMatches,
        mut follower: Follower,
    ) -> Result<Self, ReportError> {
        let settings = Settings::read(args, matches)?;
        let mut file = follower.head()?;
        settings.apply(&mut file, 0..usize::MAX);
        Ok(Self { args, matches, settings, follower, file: [file], fell_behind: false })
    }

    /// What comes before the events.
    pub(crate) fn header(&self) -> String {
        if self.args.json { String::new() } else { report(self.args, &self.file, false).header() }
    }

    /// What was printed, and whether all was understood.
    pub(crate) fn summary(&self, printed: Printed) -> Summary {
        report(self.args, &self.file, false).summary(printed)
    }

    /// Says what users should know of what was printed.
    pub(crate) fn tell(&self, summary: &Summary) {
        finish(self.args, summary, &self.file);
    }

    fn run<W: Write>(&mut self, path: &Path, out: &mut SafeWriter<W>) -> Result<ExitCode, ReportError> {
        if !self.args.cpu.is_empty() {
            self.follower.select_cpus(self.args.cpu.iter().flatten().copied().collect());
        }
        if !self.args.buffers.is_empty() {
            // That there are such buffers is known of the events' descriptions, which have all of them.
            self.follower.select_buffers(self.args.buffers.iter().cloned().collect());
        }
        let mut progress = self.follower.poll()?;
        following::tell_not_followed(&self.follower, PRINTED);
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
                out.write_all(self.header().as_bytes())?;
                out.flush()?;
            }
            self.print(&mut printed, out, |_| ())?;
            if !self.args.quiet {
                following::tell_behind(&self.follower, &mut self.fell_behind, PRINTED);
            }
            if progress != Progress::Recording || printed.is_over() {
                return self.end(progress, printed, out);
            }
            if following::is_closed_within(following::AGAIN, &[io::stdout().as_fd()]) {
                printed.cut_off();
                return self.end(progress, printed, out);
            }
            progress = self.follower.poll()?;
        }
    }

    /// Prints what is there, each part when the names in it are known. `written` is told of how many
    /// records it is done.
    pub(crate) fn print<W: Write>(
        &mut self,
        printed: &mut Printed,
        out: &mut SafeWriter<W>,
        mut written: impl FnMut(u64),
    ) -> Result<(), ReportError> {
        loop {
            self.print_part(printed, out, &mut written)?;
            if !self.follower.has_new_symbols() || printed.is_over() {
                return Ok(());
            }
        }
    }

    fn print_part<W: Write>(
        &mut self,
        printed: &mut Printed,
        out: &mut SafeWriter<W>,
        written: &mut impl FnMut(u64),
    ) -> Result<(), ReportError> {
        let [file] = &mut self.file;
        for (pid, name) in self.follower.take_names() {
            file.add_name(pid, &name);
        }
        let NewSymbols { kernel, user } = self.follower.take_symbols();
        if let Some(kernel) = kernel {
            file.set_kallsyms([&self.settings.symbols[..], b"\n", &kernel].concat());
        }
        if let Some(user) = user {
            file.set_user_symbols(user);
        }
        let selection = selection(self.args, self.matches, &self.file, |_| ())?;
        let terminal = out.is_terminal();
        let report = report(self.args, &self.file, terminal).select(selection);
        let lines: &mut dyn Write = if self.args.json { out } else { out.inner() };
        let [file] = &self.file;
        let mut records = self.follower.records(file.reader().clock());
        report.print_live(&mut records, printed, lines, |notice| match notice {
            Notice::Backwards(found) => tell_backwards(found),
            Notice::Written(records) => written(records),
            Notice::Progress(_) => {}
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
        let summary = self.summary(printed);
        if summary.is_cut_off {
            return Ok(ExitCode::Ok);
        }
        if self.args.wakeups {
            out.write_all(&summary.wakeups.text())?;
            out.flush()?;
        }
        selection(self.args, self.matches, &self.file, tell_missing)?;
        self.tell(&summary);
        if !self.args.quiet {
            following::tell_inexact(&self.follower, PRINTED);
        }
        if let Some(code) = following::tell_end(&self.follower, progress, PRINTED) {
            return Ok(code);
        }
        Ok(exit_code(&summary, &self.file))
    }
}
