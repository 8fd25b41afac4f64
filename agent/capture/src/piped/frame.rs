//! Frames, written and read.

use std::io::{self, Read, Write};

use agent_ebpf::PAGE_SIZE;

use super::PipedError;
use crate::{StreamId, names};

/// What a streamed recording begins with.
pub const MAGIC: [u8; 8] = *b"\x17\x08Dstrm\n";

/// The version of the layout.
pub(super) const VERSION: u32 = 1;
/// The longest body.
pub(super) const BODY_MAX: usize = 1 << 20;
/// Kind, length, checksum.
const HEADER: usize = 12;
/// The longest compressed text.
const PACKED_MAX: usize = 64 << 20;
/// The longest text: many times that of any kernel's symbols or formats.
pub(super) const TEXT_MAX: u64 = 128 << 20;
/// The fastest level: what texts shrink to does not depend much on it.
const LEVEL: i32 = 1;

/// What a text is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Manifest = 1,
    State = 2,
    Kernel = 3,
    User = 4,
    MoreUser = 5,
    Counts = 6,
    Pauses = 7,
}

impl Subject {
    fn of_number(number: u8) -> Option<Self> {
        const ALL: [Subject; 7] = [
            Subject::Manifest,
            Subject::State,
            Subject::Kernel,
            Subject::User,
            Subject::MoreUser,
            Subject::Counts,
            Subject::Pauses,
        ];
        ALL.into_iter().find(|subject| *subject as u8 == number)
    }
}

/// What was sent, all in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames before the last one.
    pub frames: u64,
    /// Bytes of data.
    pub data: u64,
    /// Events in them.
    pub events: u64,
    /// Length of the finished file.
    pub file: u64,
}

/// A frame that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A whole text.
    Text(Subject, Vec<u8>),
    /// Entries as those of the journal of names.
    Names(&'a [u8]),
    Data {
        stream: StreamId,
        time: u64,
        chunk: &'a [u8],
    },
    Time(u64),
    Bytes(&'a [u8]),
    DataOf {
        stream: StreamId,
        len: u64,
    },
    End(Totals),
}

/// The number of a frame's kind.
mod kind {
    pub(super) const TEXT: u32 = 1;
    pub(super) const NAMES: u32 = 2;
    pub(super) const DATA: u32 = 3;
    pub(super) const TIME: u32 = 4;
    pub(super) const BYTES: u32 = 5;
    pub(super) const DATA_OF: u32 = 6;
    pub(super) const END: u32 = 7;
}

/// Writes frames.
#[derive(Debug)]
pub(super) struct FrameWriter<W> {
    out: W,
    frames: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins.
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all([VERSION.to_le_bytes(), (PAGE_SIZE as u32).to_le_bytes()].as_flattened())?;
        Ok(Self { out, frames: 0 })
    }

    pub(super) fn text(&mut self, subject: Subject, text: &[u8]) -> io::Result<()> {
        let packed = zstd::bulk::compress(text, LEVEL)?;
        let mut parts = packed.chunks(BODY_MAX - 2).peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            self.frame(kind::TEXT, &[&[subject as u8, u8::from(is_last)], part])?;
        }
        Ok(())
    }

    pub(super) fn names<'a>(&mut self, names: impl Iterator<Item = (u32, &'a [u8])>) -> io::Result<()> {
        let mut body = Vec::new();
        for (tid, name) in names {
            if body.len() + names::ENTRY > BODY_MAX {
                self.frame(kind::NAMES, &[&body])?;
                body.clear();
            }
            let at = body.len();
            body.extend(tid.to_le_bytes());
            body.extend(name.iter().take(names::ENTRY - 4));
            body.resize(at + names::ENTRY, 0);
        }
        if body.is_empty() { Ok(()) } else { self.frame(kind::NAMES, &[&body]) }
    }

    pub(super) fn data(&mut self, stream: StreamId, time: u64, chunk: &[u8]) -> io::Result<()> {
        self.frame(kind::DATA, &[&of_stream(stream), &time.to_le_bytes(), chunk])
    }

    pub(super) fn time(&mut self, time: u64) -> io::Result<()> {
        self.frame(kind::TIME, &[&time.to_le_bytes()])
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(BODY_MAX).try_for_each(|part| self.frame(kind::BYTES, &[part]))
    }

    pub(super) fn data_of(&mut self, stream: StreamId, len: u64) -> io::Result<()> {
        self.frame(kind::DATA_OF, &[&of_stream(stream), &len.to_le_bytes()])
    }

    /// Ends. The number of frames is counted here.
    pub(super) fn end(&mut self, totals: Totals) -> io::Result<()> {
        let Totals { data, events, file, .. } = totals;
        let numbers = [self.frames, data, events, file].map(u64::to_le_bytes);
        self.frame(kind::END, &[numbers.as_flattened()])?;
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    #[cfg(test)]
    pub(super) fn into_inner(self) -> W {
        self.out
    }

    /// What was written.
    #[cfg(test)]
    pub(super) fn out(&self) -> &W {
        &self.out
    }

    fn frame(&mut self, kind: u32, body: &[&[u8]]) -> io::Result<()> {
        let len: usize = body.iter().map(|part| part.len()).sum();
        let mut begin = [kind.to_le_bytes(), (len as u32).to_le_bytes()].concat();
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&begin);
        for part in body {
            checksum.update(part);
        }
        begin.extend(checksum.finalize().to_le_bytes());
        self.out.write_all(&begin)?;
        body.iter().try_for_each(|part| self.out.write_all(part))?;
        self.frames += 1;
        Ok(())
    }
}

fn of_stream(stream: StreamId) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&stream.channel.to_le_bytes());
    bytes[4..].copy_from_slice(&stream.cpu.to_le_bytes());
    bytes
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    input: R,
    /// Bytes that were read.
    at: u64,
    /// Frames that were read.
    frames: u64,
    body: Vec<u8>,
    /// The text whose parts come, as far as they are there.
    text: Option<(Subject, Vec<u8>)>,
}

impl<R: Read> FrameReader<R> {
    /// Reads the beginning.
    pub(super) fn begin(input: R) -> Result<Self, PipedError> {
        let mut reader = Self { input, at: 0, frames: 0, body: Vec::new(), text: None };
        let mut begin = [0; 16];
        if !reader.fill(&mut begin)? || !begin.starts_with(&MAGIC) {
            return Err(PipedError::NotPiped);
        }
        let [.., v0, v1, v2, v3, p0, p1, p2, p3] = begin;
        let (version, page) = (u32::from_le_bytes([v0, v1, v2, v3]), u32::from_le_bytes([p0, p1, p2, p3]));
        if version != VERSION {
            return Err(PipedError::Version { found: version });
        }
        if page as usize != PAGE_SIZE {
            return Err(reader.damaged(format!("pages of {page} bytes")));
        }
        Ok(reader)
    }

    /// Where it reads from.
    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// An error at what was read last.
    pub(super) fn damaged(&self, what: impl Into<String>) -> PipedError {
        PipedError::Damaged { at: self.at, what: what.into() }
    }

    /// Whether nothing follows. To be asked behind the last frame; waits for the end of the input.
    ///
    /// # Errors
    /// Something follows, or it cannot be read.
    pub(super) fn expect_end(&mut self) -> Result<(), PipedError> {
        let before = self.at;
        match self.fill(&mut [0]) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let what = "more follows the end of the recording: one is read at a time".to_owned();
                Err(PipedError::Damaged { at: before, what })
            }
            Err(error) => Err(error),
        }
    }

    /// The next frame; `None` where the input ends, be it in the middle of one.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, PipedError> {
        loop {
            let Some(kind) = self.read_frame()? else { return Ok(None) };
            self.frames += 1;
            if kind == kind::TEXT {
                if let Some((subject, text)) = self.add_text()? {
                    return Ok(Some(Frame::Text(subject, text)));
                }
            } else if (kind::NAMES..=kind::END).contains(&kind) {
                let what = format!("a frame of kind {kind} has {} bytes", self.body.len());
                let (at, frames) = (self.at, self.frames);
                let frame = decode(kind, &self.body).ok_or(PipedError::Damaged { at, what })?;
                if let Frame::End(totals) = &frame
                    && totals.frames + 1 != frames
                {
                    let what = format!("{} frames of {} are here", frames - 1, totals.frames);
                    return Err(PipedError::Damaged { at, what });
                }
                return Ok(Some(frame));
            }
        }
    }

    fn read_frame(&mut self) -> Result<Option<u32>, PipedError> {
        let mut header = [0; HEADER];
        if !self.fill(&mut header)? {
            return Ok(None);
        }
        let [k0, k1, k2, k3, l0, l1, l2, l3, c0, c1, c2, c3] = header;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > BODY_MAX {
            return Err(self.damaged(format!("a frame of {len} bytes")));
        }
        let mut body = std::mem::take(&mut self.body);
        body.resize(len, 0);
        let is_whole = self.fill(&mut body)?;
        self.body = body;
        if !is_whole {
            return Ok(None);
        }
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&header[..8]);
        checksum.update(&self.body);
        if checksum.finalize() != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(self.damaged("a frame with a wrong checksum"));
        }
        Ok(Some(u32::from_le_bytes([k0, k1, k2, k3])))
    }

    /// Takes part of a text. Gives the text that it completes.
    fn add_text(&mut self) -> Result<Option<(Subject, Vec<u8>)>, PipedError> {
        let [number, is_last, part @ ..] = &*self.body else { return Err(self.damaged("an empty text")) };
        // Texts of later versions are skipped.
        let Some(subject) = Subject::of_number(*number) else { return Ok(None) };
        let mut packed = match self.text.take() {
            None => Vec::new(),
            Some((before, packed)) if before == subject => packed,
            Some(_) => return Err(self.damaged("a text in the middle of another one")),
        };
        if packed.len() + part.len() > PACKED_MAX {
            return Err(self.damaged("a text that is too long"));
        }
        packed.extend_from_slice(part);
        if *is_last == 0 {
            self.text = Some((subject, packed));
            return Ok(None);
        }
        let mut text = Vec::new();
        let unpacked = zstd::stream::read::Decoder::new(&*packed)
            .and_then(|decoder| decoder.single_frame().take(TEXT_MAX + 1).read_to_end(&mut text));
        match unpacked {
            Err(error) => Err(self.damaged(format!("a text: {error}"))),
            Ok(len) if len as u64 > TEXT_MAX => Err(self.damaged("a text that is too long")),
            Ok(_) => Ok(Some((subject, text))),
        }
    }

    /// Reads so many bytes. `false` if the input ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, PipedError> {
        let mut len = 0;
        while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => return Ok(false),
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PipedError::Read(error)),
            }
        }
        self.at += len as u64;
        Ok(true)
    }
}

fn decode(kind: u32, body: &[u8]) -> Option<Frame<'_>> {
    let number = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
    let stream = || {
        let [channel, cpu] = [body.first_chunk()?, body.get(4..)?.first_chunk()?];
        Some(StreamId { channel: u32::from_le_bytes(*channel), cpu: u32::from_le_bytes(*cpu) })
    };
    Some(match (kind, body.len()) {
        (kind::NAMES, len) if len.is_multiple_of(names::ENTRY) => Frame::Names(body),
        (kind::DATA, 17..) => Frame::Data { stream: stream()?, time: number(8)?, chunk: body.get(16..)? },
        (kind::TIME, 8) => Frame::Time(number(0)?),
        (kind::BYTES, 1..) => Frame::Bytes(body),
        (kind::DATA_OF, 16) => Frame::DataOf { stream: stream()?, len: number(8)? },
        (kind::END, 32) => {
            let (frames, data) = (number(0)?, number(8)?);
            Frame::End(Totals { frames, data, events: number(16)?, file: number(24)? })
        }
        _ => return None,
    })
}
