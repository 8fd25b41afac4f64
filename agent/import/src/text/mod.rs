//! The text of ftrace: the files `trace` and `trace_pipe` of tracefs, what `trace-cmd report` prints, and
//! what `perf script` prints of tracepoints.
//!
//! | file | subject |
//! |---|---|
//! | `line` | what a line is: an event, a loss, a header |
//! | `lines` | events with the lines that belong to them, from a file or a stream |
//! | `shape` | which fields the texts of an event have |
//! | `known` | records of events whose formats are known |
//! | `builtin` | formats of a few events of the kernel |
//! | `systems` | the systems of the kernel's events |
//!
//! A text does not say which fields its events have. So it is read twice: first the texts of each event show
//! which keys they all have, and whether values are numbers; then each line becomes a record with those
//! fields. An event whose texts have no such pattern has one field, `text`. In both cases the record prints
//! as the text that it was made of.
//!
//! Where formats are known, those that print all of an event's texts exactly are taken, and records are what
//! they would have been: then values have the types of the kernel, and are what analyses expect. Where most
//! texts have one, and the others have nothing in common with them, these become events of their own, before
//! which a loss is marked: that they are missing is known.
//!
//! What is no line of an event belongs to the event before it, as the lines of a stack do.

mod builtin;
mod known;
mod line;
mod lines;
mod shape;
mod systems;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

pub use self::known::Formats;
use self::known::KnownFormat;
use self::line::{Columns, Entry, GRAPH, Header, Said, split_event};
use self::lines::{Input, Lines, Unread, is_page};
use self::shape::{Parsed, Shape};
use super::sink::MAX_CPUS;
use super::{At, Common, EventId, ImportError, Sink, Source, StackOf, provenance};
use ftrace_event::Endian;
use stdx::escapes;
use tracedat::provenance::Provenance;
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
    /// header that only such texts have, or it is a page, as systrace makes them of such a text.
    pub fn recognise(beginning: &[u8]) -> bool {
        let mut columns = Columns::default();
        let mut lines = beginning.split(|byte| *byte == b'\n').take(64);
        is_page(beginning)
            || beginning.starts_with(escapes::NOTE.as_bytes())
            || lines.any(|line| match Said::of(line, &columns) {
                Said::Event(_) | Said::Lost { .. } => true,
                Said::Header(header) => {
                    columns.take(&header);
                    header.is_certain()
                }
                Said::Frame(_) | Said::Other => false,
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
    /// Formats that have printed some of its texts.
    formats: Vec<Candidate>,
    texts: u64,
    /// What its records are.
    id: Option<EventId>,
    /// The events that its format does not print.
    other: Option<EventId>,
    unread: Unread,
}

/// A format that may be that of an event.
struct Candidate {
    format: KnownFormat,
    /// How many texts it prints.
    fits: u64,
    unread: Unread,
}

/// After so many texts a format that has printed none is not tried any more.
const TRIED: u64 = 64;

impl Known {
    fn new(system: &str, name: &str, text: &[u8], formats: Option<&Formats>) -> Self {
        let system = Some(system).filter(|system| *system != SYSTEM);
        let formats = KnownFormat::all(formats, system, name).into_iter();
        let candidate = |format| Candidate { format, fits: 0, unread: Unread::default() };
        Self {
            shape: Shape::of(text),
            formats: formats.map(candidate).collect(),
            texts: 0,
            id: None,
            other: None,
            unread: Unread::default(),
        }
    }

    fn add(&mut self, text: &[u8], line: u64) {
        if self.texts > 0 {
            self.shape.add(text);
        }
        self.texts += 1;
        for candidate in &mut self.formats {
            if candidate.format.record(text, Common::default()).is_some() {
                candidate.fits += 1;
            } else {
                candidate.unread.add(line, text);
            }
        }
        if self.texts == TRIED {
            self.formats.retain(|candidate| candidate.fits > 0);
        }
    }

    /// Decides what the records will be. Gives what is to be told of it.
    fn settle(&mut self) -> Option<Unread> {
        self.shape.settle();
        // Of formats that print as many, the first one: it was given.
        let most = self.formats.iter().map(|candidate| candidate.fits).max().filter(|most| *most > 0);
        let best = self.formats.iter().position(|candidate| Some(candidate.fits) == most);
        let had_formats = !self.formats.is_empty();
        let mut best = best.map(|place| self.formats.swap_remove(place));
        self.formats.clear();
        let is_whole = self.shape == Shape::Whole;
        let takes = |candidate: &Candidate| {
            candidate.fits == self.texts || is_whole && candidate.fits > self.texts / 2
        };
        let unread = match &best {
            Some(candidate) if takes(candidate) => None,
            Some(candidate) => Some(candidate.unread.clone()),
            None => None,
        };
        best = best.filter(takes);
        self.formats.extend(best);
        unread.filter(|unread| had_formats && unread.count > 0)
    }

    /// The format that was chosen.
    fn format(&mut self) -> Option<&mut KnownFormat> {
        self.formats.first_mut().map(|candidate| &mut candidate.format)
    }
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
        let mut lines = Lines::of(file, len);
        let mut events = survey(&mut lines, len, self.formats.as_ref(), sink)?;
        let described = provenance::take(lines.take_provenance(), sink).unwrap_or_default();
        begin(&described, sink);
        for ((system, name), known) in &mut events {
            if let Some(unread) = known.settle() {
                let what = format!("texts of {system}:{name} that the kernel's format does not print");
                sink.not_carried(unread.told(&what), unread.count);
            }
            let is_partly = known.formats.first().is_some_and(|candidate| candidate.fits < known.texts);
            if is_partly {
                known.other = Some(sink.event(&Shape::Whole.spec(SYSTEM, name))?);
            }
            known.id = Some(match known.formats.first() {
                Some(Candidate { format, .. }) => {
                    sink.event_with_number(&format.system, &format.text, format.has_number)?
                }
                None => sink.event(&known.shape.spec(system, name))?,
            });
        }
        convert(&mut Lines::of(file, len), len, &mut events, described.clock.is_some(), sink)?;
        provenance::threads(&described.threads, sink);
        if let Some(cpus) = described.machine.and_then(|machine| machine.cpus) {
            sink.facts.cpu_count = Some(cpus).filter(|count| *count <= 1 << 16);
        }
        Ok(())
    }
}

/// Takes the clock and the buffers of the recording that a text was made of.
fn begin(described: &Provenance, sink: &mut Sink<'_>) {
    if let Some(clock) = &described.clock {
        clock.name.clone_into(&mut sink.facts.clock);
        sink.facts.wall_offset = clock.wall_offset_ns;
    }
    provenance::buffers(&described.buffers, sink);
}

/// System and name of an event.
type Name = (String, String);

/// The first reading: the shapes of all events.
fn survey(
    lines: &mut Lines<'_>,
    len: u64,
    formats: Option<&Formats>,
    sink: &mut Sink<'_>,
) -> Result<BTreeMap<Name, Known>, ImportError> {
    let mut events: BTreeMap<Name, Known> = BTreeMap::new();
    let (mut count, mut is_graph, mut may_be_empty) = (0, false, false);
    while let Some((line, said)) = lines.next()? {
        match said {
            Said::Event(entry) => {
                let (name, text) = split_event(&entry.rest);
                if is_stack_alone(&entry, (&name.0, &name.1), text) {
                    may_be_empty = true;
                    continue;
                }
                if let Some(known) = events.get_mut(&name) {
                    known.add(text, line);
                } else {
                    let mut known = Known::new(&name.0, &name.1, text, formats);
                    known.add(text, line);
                    events.insert(name, known);
                }
            }
            Said::Header(Header::Tracer(tracer)) => is_graph |= tracer == GRAPH,
            Said::Header(Header::Cpus(_) | Header::Entries { left: 0, .. }) | Said::Lost { .. } => {
                may_be_empty = true;
            }
            _ => {}
        }
        count += 1;
        if count % STEP == 0 {
            sink.progress(lines.position() / 2, len)?;
        }
    }
    let is_understood = lines.ignored().count == 0;
    let is_empty = !is_graph && is_understood && (may_be_empty || lines.is_of_export());
    if is_empty || !events.is_empty() {
        return Ok(events);
    }
    if is_graph {
        return Err(ImportError::Unsupported(
            "the text of the tracer function_graph is a drawing, which is not read; record its events with \
             trace-cmd record -p function_graph, whose trace.dat is read as it is"
                .to_owned(),
        ));
    }
    Err(ImportError::Damaged {
        format: FORMAT,
        at: "all lines".to_owned(),
        problem: "there is no line `TASK-PID [CPU] FLAGS TIME: EVENT: TEXT` in it".to_owned(),
    })
}

/// Whether an event of an export is a stack whose event is not known: it has no text, and frames.
fn is_stack_alone(entry: &Entry<'_>, (system, name): (&str, &str), text: &[u8]) -> bool {
    let is_stack = system == "ftrace" && matches!(name, "kernel_stack" | "user_stack");
    is_stack && text.is_empty() && entry.stack.iter().any(|frames| !frames.is_empty())
}

/// The second reading: the records.
fn convert(
    lines: &mut Lines<'_>,
    len: u64,
    events: &mut BTreeMap<Name, Known>,
    is_described: bool,
    sink: &mut Sink<'_>,
) -> Result<(), ImportError> {
    // By CPU, and buffer where lines say which one: losses that were told, and that come before the next
    // event there.
    let mut lost: BTreeMap<(Option<String>, u32), Option<u64>> = BTreeMap::new();
    let mut count = 0;
    let mut parsed = Parsed::default();
    while let Some((line, said)) = lines.next()? {
        match said {
            Said::Event(entry) => {
                let buffer = sink.buffer(&entry.buffer);
                let at = At { buffer, cpu: entry.cpu, time: entry.time };
                let named = entry.is_of_buffer.then(|| entry.buffer.clone().into_owned());
                if let Some(count) = lost.remove(&(named, entry.cpu)) {
                    sink.lost(at, count)?;
                }
                // Exports have the number of a thread where they do not know its process.
                let process = entry.tgid.filter(|tgid| !is_described || *tgid != entry.pid);
                // What perf says of threads that have ended is no number of one.
                if entry.pid != u32::MAX {
                    // perf's word for a thread without a name.
                    if entry.comm.strip_prefix(b":") != Some(entry.pid.to_string().as_bytes()) {
                        sink.task(entry.pid, &entry.comm);
                    }
                    if let Some(tgid) = process {
                        sink.process(entry.pid, tgid);
                    }
                }
                let (name, text) = split_event(&entry.rest);
                let Entry { pid, flags, preempt_count, stack: [kernel, user], .. } = &entry;
                sink.facts.lacks_contexts |= flags.is_none();
                let flags = flags.unwrap_or(0);
                let common = Common { pid: *pid, flags, preempt_count: *preempt_count };
                match events.get_mut(&name) {
                    _ if is_stack_alone(&entry, (&name.0, &name.1), text) => {}
                    Some(known) => known.convert((at, common), (text, line), &mut parsed, sink)?,
                    None => sink.not_carried("events that changed while they were read", 1),
                }
                sink.stack(at, common, StackOf::Kernel, kernel)?;
                sink.stack(at, common, StackOf::Process(process.unwrap_or(0)), user)?;
            }
            Said::Lost { cpu, .. } if cpu >= MAX_CPUS => {
                sink.not_carried("losses of CPUs that no machine has", 1);
            }
            Said::Lost { cpu, count } => {
                let before = lost.entry((lines.buffer().map(str::to_owned), cpu)).or_insert(Some(0));
                *before = before.zip(count).map(|(before, count)| before.saturating_add(count));
            }
            Said::Header(header) => take(&header, sink),
            Said::Frame(_) | Said::Other => {}
        }
        count += 1;
        if count % STEP == 0 {
            sink.progress(len / 2 + lines.position() / 2, len)?;
        }
    }
    for ((buffer, cpu), count) in lost {
        let buffer = sink.buffer(&buffer.unwrap_or_default());
        sink.lost_sometime(buffer, cpu, count);
    }
    if sink.facts.clock.is_empty() {
        // Which one it is no text says; this one is what tracefs has unless told otherwise.
        "local".clone_into(&mut sink.facts.clock);
    }
    for ((system, name), known) in &*events {
        let what = format!(
            "texts of {system}:{name} that its format does not print: they are {SYSTEM}:{name}, and lost events of its own"
        );
        sink.not_carried(known.unread.told(&what), known.unread.count);
    }
    let ignored = lines.ignored();
    sink.not_carried(ignored.told("lines before the first event that are no known header"), ignored.count);
    sink.not_carried("lines that were cut because they are too long", lines.cut());
    sink.not_carried("frames of call chains beyond 1024", lines.frames());
    sink.not_carried("names of functions in call chains", lines.named_frames());
    Ok(())
}

impl Known {
    /// Makes a record of a text, which is on this line.
    fn convert(
        &mut self,
        (at, common): (At, Common),
        (text, line): (&[u8], u64),
        parsed: &mut Parsed,
        sink: &mut Sink<'_>,
    ) -> Result<(), ImportError> {
        let Some(id) = self.id else { return Ok(()) };
        let Some(format) = self.format() else {
            self.shape.parse(text, parsed);
            return sink.values(at, id, common, &parsed.values(text));
        };
        if let Some(record) = format.record(text, common) {
            return sink.record(at, id, &record);
        }
        self.unread.add(line, text);
        sink.lost(at, Some(1))?;
        match self.other {
            Some(other) => sink.values(at, other, common, &[super::Value::Text(text)]),
            None => Ok(()),
        }
    }
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
        Header::Tracer(_) | Header::Column(_) | Header::Comment | Header::Unknown => {}
    }
}

#[cfg(test)]
mod tests;
