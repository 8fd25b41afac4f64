//! Records as text and JSON, as `trace-cmd report` prints them.
//!
//! **Data flow:** [`TraceFile`] is a file with its events and symbols; [`Report`] merges the records of one
//! or several by time, selects them ([`Selection`]), and formats batches of them on several threads, in
//! order.
//!
//! **Guarantees**
//!
//! - Lines are those of `trace-cmd report`; `docs/report.md` lists the differences.
//! - A damaged file is reported as far as it is readable, and the damage is counted ([`Damage`]).
//! - Text from files is made safe for terminals by the caller's writer, not here.
//!
//! **Must not know:** the running kernel, terminals, command lines.
//!
//! # Example
//!
//! ```no_run
//! use std::fs::File;
//! use report::{Report, TraceFile};
//!
//! let files = [TraceFile::open("trace.dat", File::open("trace.dat")?)?];
//! let summary = Report::new(&files).run(&mut std::io::stdout().lock(), |_| {})?;
//! eprintln!("{} events", summary.shown);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `trace_file` | a file, its formats and symbols |
//! | `view`, `tasks` | data of a file and of an event, looked up once |
//! | `feed`, `select`, `wakeup` | records in order: selection, and state between records |
//! | `live` | records of a running recording |
//! | `batch`, `pipeline` | formatting on several threads |
//! | `line`, `plugin`, [`text`] | lines of text |
//! | [`json`] | JSON objects |
//! | `folded` | folded stacks |

#![forbid(unsafe_code)]

mod batch;
#[cfg(any(test, feature = "crafted"))]
pub mod crafted;
mod feed;
mod folded;
pub mod json;
mod line;
mod live;
mod pipeline;
mod plugin;
mod select;
mod tasks;
pub mod text;
mod trace_file;
mod view;
mod wakeup;

use std::io::{self, Write};

pub use folded::Folded;
pub use line::Style;
pub use live::Printed;
pub use select::Selection;
pub use trace_file::TraceFile;
pub use wakeup::{Latencies, WakeupTimes};

use feed::{Feed, Input, Progressed, Wants};
use ftrace_event::Printer;
use plugin::States;
use tracedat::reader::{End, ReadError, Reader, Source};
use view::{FileView, base_name};

/// Damaged places that are described; the others are only counted.
const MAX_DAMAGE: usize = 20;

/// Prints the records of files.
#[derive(Debug)]
pub struct Report<'a, S> {
    files: &'a [TraceFile<S>],
    style: Style,
    json: bool,
    selection: Selection,
    wakeups: bool,
    check_times: bool,
    threads: usize,
}

/// The progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Records that were read.
    pub records: u64,
    /// Time of the last of them.
    pub timestamp: u64,
}

/// A notice while records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The progress, every few thousand records.
    Progress(Progress),
    /// How many of the records that were read are done with, as their lines are written.
    Written(u64),
    /// A timestamp that goes backwards, if that is checked.
    Backwards(Backwards),
}

/// A record whose time is before that of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backwards {
    /// Its CPU.
    pub cpu: u32,
    /// The time of the record before it.
    pub before: u64,
    /// Its time.
    pub time: u64,
}

/// Data that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// How many pages, chunks or CPUs.
    pub count: u64,
    /// The first of them.
    pub texts: Vec<String>,
}

/// Records of an event whose text is not the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood {
    /// Index of the file.
    pub file: usize,
    /// `system:event`, and why; `None` for records of events that the file does not describe.
    pub event: Option<(String, String)>,
    /// Whether the event's fields are known.
    pub has_fields: bool,
    /// How many records.
    pub records: u64,
}

/// Events of a CPU that were lost behind its last record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBehind {
    /// Index of the file.
    pub file: usize,
    /// The buffer; empty for the top one.
    pub buffer: String,
    /// The CPU.
    pub cpu: u32,
    /// How many; `None` if that is not known.
    pub events: Option<u64>,
    /// The time of the last record; `None` if there is none.
    pub since: Option<u64>,
}

/// Statistics of a report.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Records that were read.
    pub records: u64,
    /// Of these, those whose lines are written, and those that have none.
    pub written: u64,
    /// Records that were shown.
    pub shown: u64,
    /// What could not be read.
    pub damage: Damage,
    /// Events that were shown as their fields, for their `print fmt` is not understood, most records first.
    pub not_understood: Vec<NotUnderstood>,
    /// Latencies, if wakeups were to be followed.
    pub wakeups: WakeupTimes,
    /// What CPUs have lost behind their last records; nothing if not all records were read.
    pub lost_behind: Vec<LostBehind>,
    /// How many times went backwards, if times were to be checked.
    pub backwards: u64,
    /// Whether the reader of the output closed it before the end.
    pub is_cut_off: bool,
}

impl Damage {
    pub(crate) fn add(&mut self, error: &ReadError) {
        self.count += 1;
        if self.texts.len() < MAX_DAMAGE {
            self.texts.push(error.to_string());
        }
    }
}

impl<'a, S: Source> Report<'a, S> {
    /// All records of these files by time, as text.
    pub fn new(files: &'a [TraceFile<S>]) -> Self {
        Self {
            files,
            style: Style::default(),
            json: false,
            selection: Selection::default(),
            wakeups: false,
            check_times: false,
            threads: pipeline::default_threads(),
        }
    }

    /// Sets the style of lines.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Prints objects of JSON instead of lines, one for each record:
    ///
    /// ```json
    /// {"timestamp":12034567890,"cpu":1,"pid":42,"comm":"cat","buffer":"","lost":0,"flags":0,"preempt_count":1,
    ///  "system":"sched","event":"sched_wakeup","fields":{"comm":"cat","pid":42,"prio":120,"target_cpu":1}}
    /// ```
    ///
    /// The timestamp is in the clock's unit, mostly nanoseconds, corrected as the file says. `lost` is the
    /// number of events that the CPU lost right before this one, `null` if that is not known. The top buffer
    /// has an empty name. With several files there is a `file`. Fields are numbers, strings, addresses as
    /// `"0x..."`, arrays of these, for sets of CPUs the array of those that are in it, for structs the array
    /// of their bytes, and `null` where the record does not have them. `symbols` has the symbols of
    /// addresses, `names` the names of values, each by field, if there are any. Events that the file does not
    /// describe have the `system` and `event` `null`, and an `id`. docs/report.md describes all of it.
    #[must_use]
    pub fn json(mut self, json: bool) -> Self {
        self.json = json;
        self
    }

    /// Selects the records.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Adds the wakeup latency of the next task to switches.
    #[must_use]
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Reports timestamps that go backwards.
    #[must_use]
    pub fn check_times(mut self, check: bool) -> Self {
        self.check_times = check;
        self
    }

    /// Sets the number of threads that format records; the default is one per CPU.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The lines that trace-cmd prints before the records: the number of CPUs of each file.
    pub fn header(&self) -> String {
        let names: Vec<_> = self.files.iter().map(|file| base_name(file.name())).collect();
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let line = |(file, name): (&TraceFile<S>, &str)| {
            let prefix = if self.files.len() > 1 { format!("{name:>width$}: ") } else { String::new() };
            format!("{prefix}cpus={}\n", file.reader().cpu_count())
        };
        self.files.iter().zip(names).map(line).collect()
    }

    /// Prints the records. `notice` is called with progress and warnings.
    ///
    /// # Errors
    /// Of writing. A closed pipe is none.
    pub fn run(&self, out: &mut dyn Write, notice: impl FnMut(Notice)) -> io::Result<Summary> {
        let mut printed = Printed::default();
        let records = Input::Files(self.open(&mut printed.so_far.damage));
        self.print(records, &mut printed, out, notice)?;
        Ok(self.summary(printed))
    }

    /// Prints the records that `records` has.
    fn print(
        &self,
        records: Input<'_>,
        printed: &mut Printed,
        out: &mut dyn Write,
        mut notice: impl FnMut(Notice),
    ) -> io::Result<()> {
        let plugins = !self.style.plain && !self.style.raw && !self.json;
        let states = if self.style.old_states { States::Old } else { States::OfFormat };
        let mut views: Vec<_> =
            self.files.iter().map(|file| FileView::new(file, plugins.then_some(states), self.json)).collect();
        for (view, learned) in views.iter_mut().zip(printed.learned.drain(..)) {
            view.tasks.set_learned(learned);
        }
        let buffers = view::buffers(self.files);
        let wants = Wants {
            differences: self.style.differences,
            wakeups: self.wakeups,
            check_times: self.check_times,
            stacks: false,
        };
        // For as long as the views.
        let records = match records {
            Input::Files(records) => Input::Files(records),
            Input::Live(records) => Input::Live(&mut *records),
        };
        let so_far = std::mem::take(&mut printed.so_far);
        let mut feed = Feed::new(records, &views, &buffers, &self.selection, wants, so_far);
        let several = self.files.len() > 1;
        let line = |text: &mut Vec<u8>, item: &batch::Item, data: &[u8]| {
            let Some((_, buffer)) = buffers.get(item.buffer as usize) else { return };
            let Some(file) = views.get(buffer.file) else { return };
            if self.json {
                json::write(text, several, file, buffer, item, data);
            } else {
                line::write(text, self.style, file, buffer, item, data);
            }
        };
        let result = pipeline::run(&mut feed, self.threads, &line, out, |feed| {
            for backwards in feed.backwards.drain(..) {
                printed.backwards += 1;
                notice(Notice::Backwards(backwards));
            }
            notice(Notice::Progress(feed.so_far.progress()));
            notice(Notice::Written(feed.so_far.written));
        });
        printed.so_far = feed.so_far;
        let lost_behind = if self.json { printed.so_far.lost_behind.as_slice() } else { &[] };
        let result = result.and_then(|()| self.write_lost_behind(lost_behind, out));
        printed.learned = views.into_iter().map(|view| view.tasks.into_learned()).collect();
        match result.and_then(|()| out.flush()) {
            // A reader that has seen enough is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => printed.is_cut_off = true,
            result => result?,
        }
        Ok(())
    }

    /// Writes an object for each CPU that has lost events behind its last record.
    fn write_lost_behind(&self, ends: &[End], out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::new();
        for lost in self.lost_behind(ends) {
            let file = self.files.get(lost.file).map_or("", TraceFile::name);
            json::write_lost(&mut text, (self.files.len() > 1).then_some(file), &lost);
        }
        out.write_all(&text)
    }

    fn lost_behind(&self, ends: &[End]) -> Vec<LostBehind> {
        let lost = ends.iter().filter_map(|end| {
            let reader = self.files.get(end.reader)?.reader();
            let since = reader.cpu_records(end.buffer, end.cpu).ok().and_then(|mut records| {
                records.fast_forward();
                records.prev_record().ok().flatten().map(|record| record.timestamp)
            });
            let buffer = reader.buffers().get(end.buffer)?.name.clone();
            let events = end.missed.filter(|events| *events != 0);
            Some(LostBehind { file: end.reader, buffer, cpu: end.cpu, events, since })
        });
        lost.collect()
    }

    /// Statistics of what was printed.
    pub fn summary(&self, printed: Printed) -> Summary {
        let Printed { so_far, backwards, is_cut_off, learned: _ } = printed;
        Summary {
            records: so_far.records_read,
            written: so_far.written,
            shown: so_far.shown,
            wakeups: so_far.wakeup_times(),
            not_understood: self.not_understood(&so_far),
            lost_behind: self.lost_behind(&so_far.lost_behind),
            damage: so_far.damage,
            backwards,
            is_cut_off,
        }
    }

    /// Counts the stacks of the selected events, or adds up one of their fields: the input of flame graphs. A
    /// stack is selected with its event, whatever the selection says about the stack's own record. Of the
    /// summary, only what is about reading is set.
    pub fn fold(&self, field: Option<&str>, mut notice: impl FnMut(Notice)) -> (Folded, Summary) {
        let views: Vec<_> = self.files.iter().map(|file| FileView::new(file, None, false)).collect();
        let buffers = view::buffers(self.files);
        let mut so_far = Progressed::default();
        let records = Input::Files(self.open(&mut so_far.damage));
        let wants = Wants { stacks: true, ..Wants::default() };
        let mut feed = Feed::new(records, &views, &buffers, &self.selection, wants, so_far);
        let mut folding = folded::Folding::new(&views, field);
        let mut batch = batch::Batch::default();
        while feed.fill(&mut batch, pipeline::MAX_BATCH, pipeline::MAX_BYTES) {
            for item in &batch.items {
                if let Some((_, buffer)) = buffers.get(item.buffer as usize) {
                    folding.record(buffer, item, &batch.data);
                }
            }
            notice(Notice::Progress(feed.so_far.progress()));
            if feed.is_past && !folding.is_waiting() {
                break;
            }
        }
        let summary = Summary {
            records: feed.so_far.records_read,
            shown: feed.so_far.shown,
            damage: std::mem::take(&mut feed.so_far.damage),
            ..Summary::default()
        };
        (folding.finish(), summary)
    }

    fn open(&self, damage: &mut Damage) -> tracedat::reader::Records<'a> {
        let buffers = view::buffers(self.files);
        let readers: Vec<_> = self.files.iter().map(TraceFile::reader).collect();
        let is_wanted = |name: &str| self.selection.buffers.as_ref().is_none_or(|names| names.contains(name));
        let buffers = buffers.iter().filter(|(_, view)| is_wanted(view.name));
        let wanted = buffers.flat_map(|(index, view)| {
            let extents = self.files.get(view.file).and_then(|file| file.reader().buffers().get(*index));
            let extents = extents.map_or(&[][..], |buffer| &buffer.cpus);
            let silent = self.files.get(view.file).map(|file| file.reader().silent_cpus());
            let silent = silent.into_iter().flatten().filter(move |(buffer, _)| buffer == index);
            let cpus = extents.iter().map(|extent| extent.cpu).chain(silent.map(|(_, cpu)| cpu));
            cpus.map(|cpu| (view.file, *index, cpu))
        });
        let wanted =
            wanted.filter(|(.., cpu)| self.selection.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)));
        Reader::merge_streams(&readers, wanted, |error| damage.add(&error))
    }

    fn not_understood(&self, so_far: &Progressed) -> Vec<NotUnderstood> {
        let mut found: Vec<_> = so_far.not_understood.iter().collect();
        found.sort_by_key(|(key, records)| (std::cmp::Reverse(**records), **key));
        let printer = |file: usize, id: u32| self.files.get(file)?.events().get(u16::try_from(id).ok()?);
        let told = |(&(file, id), &records): (&(usize, u32), &u64)| {
            let printer = printer(file, id);
            let format_error = printer.and_then(Printer::format_error);
            let why = |printer: &Printer| match format_error {
                Some(error) => error.to_string(),
                None => printer.error().map(ToString::to_string).unwrap_or_default(),
            };
            let event =
                printer.map(|printer| (format!("{}:{}", printer.system(), printer.name()), why(printer)));
            NotUnderstood { file, has_fields: event.is_some() && format_error.is_none(), event, records }
        };
        found.into_iter().map(told).collect()
    }
}
