//! Events with the lines that belong to them, from a file or a stream.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::sync::Arc;

use super::FORMAT;
use super::line::{Columns, Entry, FrameOf, Said, header};
use crate::{ImportError, Sink};
use stdx::escapes;
use tracedat::provenance::Texts;
use tracedat::reader::Source as ReadAt;

/// Most bytes of a line, and of an event with all lines that belong to it: what a field can hold.
const MAX_LINE: usize = 60 << 10;

/// Most frames of a stack, of the kernel and of the process each: as many as the kernel records
/// (`FTRACE_KSTACK_ENTRIES` of kernel/trace/trace.c).
const MAX_FRAMES: usize = 1024;

/// Where the text is.
pub(super) enum Input {
    File(Box<dyn ReadAt>),
    Stream {
        beginning: Vec<u8>,
        rest: Box<dyn Read + Send>,
    },
    /// It was read from a stream.
    Settled(Arc<File>),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Stream { .. } => "Stream",
            Self::Settled(_) => "Settled",
        })
    }
}

fn read_error(source: io::Error) -> ImportError {
    ImportError::Read { what: FORMAT.to_owned(), source }
}

impl Input {
    /// Makes a file of a stream. Returns the file and its length.
    pub(super) fn settle(&mut self, sink: &Sink<'_>) -> Result<(&dyn ReadAt, u64), ImportError> {
        if let Self::Stream { beginning, rest } = self {
            let mut file = sink.scratch()?;
            let copied = file.write_all(beginning).and_then(|()| io::copy(rest, &mut file));
            copied.map_err(read_error)?;
            *self = Self::Settled(Arc::new(file));
        }
        let file: &dyn ReadAt = match self {
            Self::File(file) => &**file,
            Self::Settled(file) => &**file,
            Self::Stream { .. } => return Err(read_error(io::ErrorKind::Other.into())),
        };
        let len = file.size().map_err(read_error)?;
        Ok((file, len))
    }
}

/// Bytes of a file, front to back.
struct Bytes<'a> {
    file: &'a dyn ReadAt,
    at: u64,
    end: u64,
}

impl Read for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (self.end - self.at).min(buffer.len() as u64) as usize;
        self.file.read_exact_at(buffer.get_mut(..len).unwrap_or_default(), self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// The lines of a text.
pub(super) struct Lines<'a> {
    from: BufReader<Bytes<'a>>,
    /// The line that was read last.
    line: Vec<u8>,
    /// An event whose lines may not all have come.
    open: Option<Entry<'static>>,
    /// A loss that ended it.
    loss: Option<(u32, Option<u64>)>,
    position: u64,
    /// The number of the line that was read last.
    number: u64,
    /// The number of the first line of the event that may go on.
    open_number: u64,
    columns: Columns,
    page: Option<Page>,
    ignored: Unread,
    cut: u64,
    /// Whether bytes are written as `\xHH`.
    is_escaped: bool,
    /// The buffer of the lines, of a text whose comments name it.
    buffer: Option<String>,
    provenance: Texts,
    /// Frames for which a stack has no room.
    frames: u64,
    /// Frames with the name of a function.
    named_frames: u64,
}

/// Where in a page of systrace the lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// Between parts of a trace.
    Outside,
    /// In one.
    Inside,
    /// In one that is a text of JavaScript, whose lines end with what stands for a line feed there.
    Quoted,
}

impl Page {
    /// What a line begins.
    fn begun(line: &[u8]) -> Self {
        let has = |text: &[u8]| line.windows(text.len()).any(|bytes| bytes == text);
        if has(b"var linuxPerfData = \"") {
            Self::Quoted
        } else if has(b"class=\"trace-data\"") {
            Self::Inside
        } else {
            Self::Outside
        }
    }

    /// Whether a line ends the part.
    fn is_over(self, line: &[u8]) -> bool {
        let script = b"</script>";
        match self {
            Self::Outside => false,
            Self::Inside => line.windows(script.len()).any(|bytes| bytes == script),
            Self::Quoted => line.trim_ascii().ends_with(b"\";") || line.starts_with(script),
        }
    }
}

/// Whether what begins with these bytes is a page.
pub(super) fn is_page(beginning: &[u8]) -> bool {
    let start = beginning.trim_ascii_start();
    let begins = |text: &[u8]| start.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    begins(b"<!doctype html") || begins(b"<html")
}

/// Lines that were not understood, and the first of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread {
    pub(super) count: u64,
    first: Option<(u64, String)>,
}

/// Most bytes of a line that is shown.
const SHOWN: usize = 80;

impl Unread {
    pub(super) fn add(&mut self, number: u64, line: &[u8]) {
        self.count += 1;
        self.first.get_or_insert_with(|| {
            let text = String::from_utf8_lossy(line.get(..SHOWN).unwrap_or(line));
            (number, text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
        });
    }

    /// What they are, with the first of them.
    pub(super) fn told(&self, what: &str) -> String {
        match &self.first {
            Some((number, text)) => format!("{what}; the first is line {number}: {text}"),
            None => what.to_owned(),
        }
    }
}

impl<'a> Lines<'a> {
    pub(super) fn of(file: &'a dyn ReadAt, len: u64) -> Self {
        let mut beginning = [0; 256];
        let known = len.min(beginning.len() as u64) as usize;
        let beginning = beginning.get_mut(..known).unwrap_or_default();
        // Whatever cannot be read shows when it is to be read.
        let is_page = file.read_exact_at(beginning, 0).is_ok() && is_page(beginning);
        Self {
            from: BufReader::with_capacity(1 << 18, Bytes { file, at: 0, end: len }),
            line: Vec::new(),
            open: None,
            loss: None,
            position: 0,
            number: 0,
            open_number: 0,
            columns: Columns::default(),
            page: is_page.then_some(Page::Outside),
            ignored: Unread::default(),
            cut: 0,
            is_escaped: false,
            buffer: None,
            provenance: Texts::default(),
            frames: 0,
            named_frames: 0,
        }
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Lines before the first event that say nothing.
    pub(super) fn ignored(&self) -> &Unread {
        &self.ignored
    }

    /// Lines that are longer than what is kept.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Frames that are left out, as their stacks are too long.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames with the name of a function.
    pub(super) fn named_frames(&self) -> u64 {
        self.named_frames
    }

    /// Whether it is the text of an export of ours.
    pub(super) fn is_of_export(&self) -> bool {
        self.is_escaped
    }

    /// The buffer of the last line, of a text whose comments name it.
    pub(super) fn buffer(&self) -> Option<&str> {
        self.buffer.as_deref()
    }

    /// What comments say of the recording.
    pub(super) fn take_provenance(&mut self) -> Texts {
        std::mem::take(&mut self.provenance)
    }

    /// Takes a comment of our exports. Gives whether the line is one.
    fn take_comment(&mut self) -> bool {
        let Some(text) = self.line.strip_prefix(escapes::COMMENT.as_bytes()) else { return false };
        if let Some(name) = text.strip_prefix(escapes::BUFFER.as_bytes()) {
            self.buffer = Some(String::from_utf8_lossy(&escapes::unescaped(name)).into_owned());
            return true;
        }
        let text = String::from_utf8_lossy(text);
        text.split_once(' ').is_some_and(|(name, value)| self.provenance.add(name, value))
    }

    /// No more lines belong to the event.
    fn close(&mut self) -> Option<(u64, Said<'static>)> {
        self.open.take().map(|entry| (self.open_number, Said::Event(entry)))
    }

    /// The next event with all its lines, or what stands between events, and the number of the first line.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Said<'_>)>, ImportError> {
        if let Some((cpu, count)) = self.loss.take() {
            return Ok(Some((self.number, Said::Lost { cpu, count })));
        }
        loop {
            if !self.read_line()? {
                return Ok(self.close());
            }
            if self.is_outside() {
                if let Some(event) = self.close() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.is_escaped |= self.line == escapes::NOTE.as_bytes();
            if self.is_escaped && self.take_comment() {
                continue;
            }
            match Said::of(&self.line, &self.columns) {
                Said::Event(entry) => {
                    let mut entry = owned(entry);
                    if self.is_escaped {
                        entry.comm = escapes::unescaped(&entry.comm).into_owned().into();
                        entry.rest = escapes::unescaped(&entry.rest).into_owned().into();
                        if let Some(buffer) = &self.buffer {
                            (entry.buffer, entry.is_of_buffer) = (buffer.clone().into(), true);
                        }
                    }
                    let before = self.close();
                    (self.open, self.open_number) = (Some(entry), self.number);
                    if before.is_some() {
                        return Ok(before);
                    }
                }
                Said::Lost { cpu, count } => {
                    return match self.close() {
                        Some(before) => {
                            self.loss = Some((cpu, count));
                            Ok(Some(before))
                        }
                        None => Ok(Some((self.number, Said::Lost { cpu, count }))),
                    };
                }
                Said::Frame(frame) if let Some(entry) = &mut self.open => {
                    let [kernel, user] = &mut entry.stack;
                    let frames = match frame.of {
                        FrameOf::Inlined => {
                            self.named_frames += 1;
                            continue;
                        }
                        FrameOf::Kernel => kernel,
                        // An export marks each frame of the kernel; unwinding gives a process any address.
                        FrameOf::High if !self.is_escaped => kernel,
                        FrameOf::High | FrameOf::Process => user,
                    };
                    if frames.len() < MAX_FRAMES {
                        frames.push(frame.address);
                        self.named_frames += u64::from(frame.is_named);
                    } else {
                        self.frames += 1;
                    }
                }
                said @ (Said::Header(_) | Said::Frame(_) | Said::Other) => {
                    if let Said::Header(header) = &said {
                        self.columns.take(header);
                    }
                    let is_other = said == Said::Other;
                    let frame = if let Said::Frame(frame) = said { Some(frame) } else { None };
                    let is_text = !self.line.is_empty() && !self.line.starts_with(b"#");
                    match &mut self.open {
                        Some(entry) if is_text => {
                            let rest = entry.rest.to_mut();
                            if rest.len() + self.line.len() < MAX_LINE {
                                rest.push(b'\n');
                                rest.extend_from_slice(&self.line);
                            } else {
                                self.cut += 1;
                            }
                        }
                        Some(_) => {}
                        None => {
                            if is_other {
                                self.ignored.add(self.number, &self.line);
                            }
                            let said = match (frame, header(&self.line)) {
                                (Some(frame), _) => Said::Frame(frame),
                                (None, Some(header)) => Said::Header(header),
                                (None, None) => Said::Other,
                            };
                            return Ok(Some((self.number, said)));
                        }
                    }
                }
            }
        }
    }

    /// Whether the line is none of the trace, but of the page that it is in.
    fn is_outside(&mut self) -> bool {
        let Some(page) = &mut self.page else { return false };
        if *page == Page::Outside {
            *page = Page::begun(&self.line);
            // A part may be one line.
            if page.is_over(&self.line) {
                *page = Page::Outside;
            }
            return true;
        }
        if page.is_over(&self.line) {
            *page = Page::Outside;
            return true;
        }
        if *page == Page::Quoted
            && let Some(line) = self.line.strip_suffix(b"\\n\\")
        {
            self.line.truncate(line.len());
        }
        false
    }

    /// Reads a line without its end. `false` if there is none.
    fn read_line(&mut self) -> Result<bool, ImportError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.from).take(MAX_LINE as u64);
        let len = limited.read_until(b'\n', &mut self.line).map_err(read_error)?;
        self.position += len as u64;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if len == MAX_LINE {
            self.cut += u64::from(self.page != Some(Page::Outside));
            self.position += self.from.skip_until(b'\n').map_err(read_error)? as u64;
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(len > 0)
    }
}

fn owned(entry: Entry<'_>) -> Entry<'static> {
    let Entry { buffer, is_of_buffer, comm, pid, tgid, cpu, flags, preempt_count, time, rest, stack } = entry;
    Entry {
        buffer: buffer.into_owned().into(),
        is_of_buffer,
        comm: comm.into_owned().into(),
        pid,
        tgid,
        cpu,
        flags,
        preempt_count,
        time,
        rest: rest.into_owned().into(),
        stack,
    }
}
