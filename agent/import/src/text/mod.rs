//! The text of ftrace: the files `trace` and `trace_pipe` of tracefs, what `trace-cmd report` prints, and
//! what `perf script` prints of tracepoints.
//!
//! | file | subject |
//! |---|---|
//! | `line` | what a line is: an event, a loss, a header |
//! | `lines` | events with the lines that belong to them, from a file or a stream |
//! | `shape` | which fields the texts of an event have |
//! | `known` | records of events whose formats are known |
//!
//! A text does not say which fields its events have. So it is read twice: first the texts of each event show
//! which keys they all have, and whether values are numbers; then each line becomes a record with those
//! fields. An event whose texts have no such pattern has one field, `text`. In both cases the record prints
//! as the text that it was made of.
//!
//! Where formats are given, those that print an event's texts exactly are taken, and records are what they
//! would have been: then values have the types of the kernel, and are what analyses expect.
//!
//! What is no line of an event belongs to the event before it, as the lines of a stack do.

mod known;
mod line;
mod lines;
mod shape;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

pub use self::known::Formats;
use self::known::KnownFormat;
use self::line::{Entry, Header, Said, split_event};
use self::lines::{Input, Lines};
use self::shape::{Parsed, Shape};
use super::{At, Common, EventId, ImportError, Sink, Source};
use ftrace_event::Endian;
use tracedat::reader::Source as ReadAt;

/// What the source is, in messages.
const FORMAT: &str = "the text of a trace";

/// The system of events whose text does not name it.
const SYSTEM: &str = "text";

/// After how many lines progress is told.
const STEP: u64 = 4096;

/// A text, which was not read yet.
#[derive(Debug)]
pub struct TextTrace {
    input: Input,
    formats: Option<Formats>,
}

impl TextTrace {
    /// Whether what begins with these bytes is such a text: one of its first lines is that of an event or a
    /// header that only such texts have.
    pub fn recognise(beginning: &[u8]) -> bool {
        let mut lines = beginning.split(|byte| *byte == b'\n').take(64);
        lines.any(|line| match Said::of(line) {
            Said::Event(_) | Said::Lost { .. } => true,
            Said::Header(header) => header.is_certain(),
            Said::Other => false,
        })
    }

    /// A text in a file.
    pub fn open(file: Box<dyn ReadAt>) -> Self {
        Self { input: Input::File(file), formats: None }
    }

    /// A text that comes from a pipe, and begins with `beginning`: bytes that were read already. It is put
    /// aside in a file without a name.
    pub fn stream(beginning: Vec<u8>, rest: Box<dyn Read + Send>) -> Self {
        Self { input: Input::Stream { beginning, rest }, formats: None }
    }

    /// Takes these formats for events whose texts they print.
    #[must_use]
    pub fn with_formats(self, formats: Option<Formats>) -> Self {
        Self { formats, ..self }
    }
}

/// An event as both readings find it.
struct Known {
    shape: Shape,
    /// The format that has printed all of its texts so far.
    format: Option<KnownFormat>,
    id: Option<EventId>,
}

impl Source for TextTrace {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn endian(&self) -> Endian {
        Endian::Little
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let (file, len) = self.input.settle(sink)?;
        let mut events = survey(&mut Lines::of(file, len), len, self.formats.as_ref(), sink)?;
        if events.is_empty() {
            return Err(ImportError::Damaged {
                format: FORMAT,
                at: "all lines".to_owned(),
                problem: "there is no line `TASK-PID [CPU] FLAGS TIME: EVENT: TEXT` in it".to_owned(),
            });
        }
        for ((system, name), Known { shape, format, id }) in &mut events {
            *id = Some(match format {
                Some(format) => sink.event_with_format(&format.system, &format.text)?,
                None => sink.event(&shape.spec(system, name))?,
            });
        }
        convert(&mut Lines::of(file, len), len, &mut events, sink)
    }
}

/// System and name of an event, if it has the first.
type Name = (String, String);

/// The first reading: the shapes of all events.
fn survey(
    lines: &mut Lines<'_>,
    len: u64,
    formats: Option<&Formats>,
    sink: &mut Sink<'_>,
) -> Result<BTreeMap<Name, Known>, ImportError> {
    let mut events: BTreeMap<Name, Known> = BTreeMap::new();
    let mut count = 0;
    while let Some(said) = lines.next()? {
        if let Said::Event(entry) = said {
            let (name, text) = split_event(&entry.rest);
            if let Some(known) = events.get_mut(&name) {
                known.shape.add(text);
                if let Some(format) = &mut known.format
                    && format.record(text, Common::default()).is_none()
                {
                    known.format = None;
                }
            } else {
                let system = Some(name.0.as_str()).filter(|system| *system != SYSTEM);
                let format = formats.and_then(|formats| KnownFormat::find(formats, system, &name.1, text));
                events.insert(name, Known { shape: Shape::of(text), format, id: None });
            }
        }
        count += 1;
        if count % STEP == 0 {
            sink.progress(lines.position() / 2, len)?;
        }
    }
    for known in events.values_mut() {
        known.shape.settle();
    }
    Ok(events)
}

/// The second reading: the records.
fn convert(
    lines: &mut Lines<'_>,
    len: u64,
    events: &mut BTreeMap<Name, Known>,
    sink: &mut Sink<'_>,
) -> Result<(), ImportError> {
    // By buffer and CPU: losses that were told, and that come before the next event there.
    let mut lost: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    let mut count = 0;
    let mut parsed = Parsed::default();
    while let Some(said) = lines.next()? {
        match said {
            Said::Event(entry) => {
                let buffer = sink.buffer(&entry.buffer);
                let at = At { buffer, cpu: entry.cpu, time: entry.time };
                if let Some(count) = lost.remove(&entry.cpu) {
                    sink.lost(at, count)?;
                }
                // What perf says of threads that have ended is no number of one.
                if entry.pid != u32::MAX {
                    sink.task(entry.pid, &entry.comm);
                }
                let (name, text) = split_event(&entry.rest);
                let Entry { pid, flags, preempt_count, .. } = entry;
                let common = Common { pid, flags, preempt_count };
                match events.get_mut(&name) {
                    Some(Known { format: Some(format), id: Some(id), .. }) => {
                        match format.record(text, common) {
                            Some(record) => sink.record(at, *id, &record)?,
                            None => sink.not_carried("events that changed while they were read", 1),
                        }
                    }
                    Some(Known { shape, id: Some(id), .. }) => {
                        shape.parse(text, &mut parsed);
                        sink.values(at, *id, common, &parsed.values(text))?;
                    }
                    _ => sink.not_carried("events that changed while they were read", 1),
                }
            }
            Said::Lost { cpu, count } => {
                let before = lost.entry(cpu).or_insert(Some(0));
                *before = before.zip(count).map(|(before, count)| before.saturating_add(count));
            }
            Said::Header(header) => take(&header, sink),
            Said::Other => {}
        }
        count += 1;
        if count % STEP == 0 {
            sink.progress(len / 2 + lines.position() / 2, len)?;
        }
    }
    for (cpu, count) in lost {
        sink.lost_sometime(super::BufferId::TOP, cpu, count.unwrap_or(0));
    }
    if sink.facts.clock.is_empty() {
        // Which one it is no text says; this one is what tracefs has unless told otherwise.
        "local".clone_into(&mut sink.facts.clock);
    }
    sink.not_carried("lines before the first event that are no known header", lines.ignored());
    sink.not_carried("lines that were cut because they are too long", lines.cut());
    Ok(())
}

/// Takes what a header says.
fn take(header: &Header<'_>, sink: &mut Sink<'_>) {
    match header {
        Header::Cpus(count) => sink.facts.cpu_count = Some(*count).filter(|count| *count <= 1 << 16),
        Header::Entries { left, written, cpus } => {
            sink.facts.cpu_count = Some(*cpus).filter(|count| *count <= 1 << 16);
            sink.not_carried(
                "events that were overwritten before the text was made, by its header",
                written.saturating_sub(*left),
            );
        }
        Header::Uname(text) => {
            let text: Cow<'_, str> = String::from_utf8_lossy(text);
            sink.facts.uname = tracedat::Uname::parse(&text);
        }
        Header::Comment | Header::Unknown => {}
    }
}

#[cfg(test)]
mod tests;
