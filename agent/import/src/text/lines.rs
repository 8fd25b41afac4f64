//! Events with the lines that belong to them, from a file or a stream.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::sync::Arc;

use super::FORMAT;
use super::line::{Entry, Said};
use crate::{ImportError, Sink};
use stdx::escapes;
use tracedat::reader::Source as ReadAt;

/// Most bytes of a line, and of an event with all lines that belong to it: what a field can hold.
const MAX_LINE: usize = 60 << 10;

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
    ignored: u64,
    cut: u64,
    /// Whether bytes are written as `\xHH`.
    is_escaped: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn of(file: &'a dyn ReadAt, len: u64) -> Self {
        Self {
            from: BufReader::with_capacity(1 << 18, Bytes { file, at: 0, end: len }),
            line: Vec::new(),
            open: None,
            loss: None,
            position: 0,
            ignored: 0,
            cut: 0,
            is_escaped: false,
        }
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Lines before the first event that say nothing.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Lines that are longer than what is kept.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// The next event with all its lines, or what stands between events.
    pub(super) fn next(&mut self) -> Result<Option<Said<'_>>, ImportError> {
        if let Some((cpu, count)) = self.loss.take() {
            return Ok(Some(Said::Lost { cpu, count }));
        }
        loop {
            if !self.read_line()? {
                return Ok(self.open.take().map(Said::Event));
            }
            self.is_escaped |= self.line == escapes::NOTE.as_bytes();
            match Said::of(&self.line) {
                Said::Event(entry) => {
                    let mut entry = owned(entry);
                    if self.is_escaped {
                        entry.comm = escapes::unescaped(&entry.comm).into_owned().into();
                        entry.rest = escapes::unescaped(&entry.rest).into_owned().into();
                    }
                    if let Some(before) = self.open.replace(entry) {
                        return Ok(Some(Said::Event(before)));
                    }
                }
                Said::Lost { cpu, count } => {
                    return match self.open.take() {
                        Some(before) => {
                            self.loss = Some((cpu, count));
                            Ok(Some(Said::Event(before)))
                        }
                        None => Ok(Some(Said::Lost { cpu, count })),
                    };
                }
                Said::Header(_) | Said::Other => match &mut self.open {
                    Some(entry) if !self.line.is_empty() && !self.line.starts_with(b"#") => {
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
                        let said = Said::of(&self.line);
                        self.ignored += u64::from(said == Said::Other);
                        return Ok(Some(said));
                    }
                },
            }
        }
    }

    /// Reads a line without its end. `false` if there is none.
    fn read_line(&mut self) -> Result<bool, ImportError> {
        self.line.clear();
        let mut limited = (&mut self.from).take(MAX_LINE as u64);
        let len = limited.read_until(b'\n', &mut self.line).map_err(read_error)?;
        self.position += len as u64;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if len == MAX_LINE {
            self.cut += 1;
            self.position += self.from.skip_until(b'\n').map_err(read_error)? as u64;
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(len > 0)
    }
}

fn owned(entry: Entry<'_>) -> Entry<'static> {
    let Entry { buffer, comm, pid, cpu, flags, preempt_count, time, rest } = entry;
    Entry {
        buffer: buffer.into_owned().into(),
        comm: comm.into_owned().into(),
        pid,
        cpu,
        flags,
        preempt_count,
        time,
        rest: rest.into_owned().into(),
    }
}
