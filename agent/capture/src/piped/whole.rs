//! From frames to a trace file, in files without names: whatever ends the reader leaves nothing behind.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use super::{
    PipedError, Place,
    frame::{Frame, FrameReader, Subject, Totals},
    records::append_lines,
};
use crate::spool::segment_name;
use crate::{LostManifest, Spool, StreamId, counts, pauses, recover, state, symbols};
use stdx::output::{Directory, MODE_PRIVATE, Output};

/// Most streams of a recording.
const STREAMS_MAX: usize = 1 << 16;
/// What an ordinary file is copied with at a time.
const STEP: usize = 1 << 18;
/// What a recording that was cut off becomes.
const RECOVERED: &str = "trace.dat";

/// Where files without names are. At most half of what is free there is used.
#[derive(Debug)]
pub struct Scratch {
    dir: Directory,
    limit: u64,
    used: u64,
}

/// A trace file that came through a pipe.
#[derive(Debug)]
pub struct Whole {
    /// It has no name, and is at its beginning.
    pub file: File,
    /// Whether the recorder or the pipe was cut off: the file has everything until then.
    pub is_cut_off: bool,
}

impl Scratch {
    /// Uses this directory.
    ///
    /// # Errors
    /// There is none.
    pub fn in_directory(path: &Path) -> Result<Self, PipedError> {
        let failed = |source| PipedError::Store { dir: path.to_owned(), source };
        let dir = Directory::open(path).map_err(failed)?;
        let limit = dir.free_bytes().map_err(failed)? / 2;
        Ok(Self { dir, limit, used: 0 })
    }

    /// Uses at most so many bytes.
    #[must_use]
    pub fn limit(self, bytes: u64) -> Self {
        Self { limit: bytes.min(self.limit), ..self }
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> PipedError {
        let dir = self.dir.path().to_owned();
        move |source| PipedError::Store { dir, source }
    }

    /// Counts bytes that are to be stored.
    fn take(&mut self, bytes: u64) -> Result<(), PipedError> {
        self.used = self.used.saturating_add(bytes);
        if self.used <= self.limit {
            return Ok(());
        }
        Err(PipedError::TooLarge { limit: self.limit, dir: self.dir.path().to_owned() })
    }

    /// A file without a name.
    fn file(&self) -> Result<File, PipedError> {
        let create = || {
            let place = Place::create(&self.dir)?;
            let file = place.dir().create(RECOVERED);
            let removed = place.remove();
            file.and_then(|file| removed.map(|()| file))
        };
        create().map_err(self.failed())
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> Result<(), PipedError> {
        self.take(bytes.len() as u64)?;
        file.write_all(bytes).map_err(self.failed())
    }
}

/// Stores what comes through a pipe and is no streamed recording, as it is.
///
/// # Errors
/// It cannot be read, or stored.
pub fn spooled(mut input: impl Read, mut scratch: Scratch) -> Result<File, PipedError> {
    let mut file = scratch.file()?;
    let mut bytes = vec![0; STEP];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => scratch.write(&mut file, &bytes[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PipedError::Read(error)),
        }
    }
    file.rewind().map_err(scratch.failed())?;
    Ok(file)
}

/// Reads a streamed recording to its end, and makes the recording's trace file of it: that which the recorder
/// would have written, or, if it was cut off, the one that `recover` would make of its spool. `stop` is asked
/// now and then.
///
/// # Errors
/// It cannot be read, is damaged, or cannot be stored.
pub fn whole(input: impl Read, scratch: Scratch, stop: &dyn Fn() -> bool) -> Result<Whole, PipedError> {
    let mut frames = FrameReader::begin(input)?;
    let mut parts =
        Parts { scratch, texts: BTreeMap::new(), names: None, streams: BTreeMap::new(), file: None, data: 0 };
    while let Some(frame) = frames.next()? {
        if let Frame::End(totals) = frame {
            return match parts.finish(totals) {
                Ok(file) => frames.expect_end().map(|()| Whole { file, is_cut_off: false }),
                Err(Wrong::Damaged(what)) => Err(frames.damaged(what)),
                Err(Wrong::Failed(error)) => Err(error),
            };
        }
        match parts.add(frame) {
            Ok(()) => {}
            Err(Wrong::Damaged(what)) => return Err(frames.damaged(what)),
            Err(Wrong::Failed(error)) => return Err(error),
        }
    }
    Ok(Whole { file: parts.recover(stop)?, is_cut_off: true })
}

/// What is there by now.
struct Parts {
    scratch: Scratch,
    texts: BTreeMap<Subject, Vec<u8>>,
    names: Option<File>,
    streams: BTreeMap<StreamId, Data>,
    /// The finished file, as far as it is there.
    file: Option<File>,
    /// Bytes of data.
    data: u64,
}

/// What came of a stream.
struct Data {
    file: File,
    len: u64,
    is_placed: bool,
}

/// Why a frame cannot be taken.
enum Wrong {
    Damaged(&'static str),
    Failed(PipedError),
}

impl From<PipedError> for Wrong {
    fn from(error: PipedError) -> Self {
        Self::Failed(error)
    }
}

impl Parts {
    fn add(&mut self, frame: Frame<'_>) -> Result<(), Wrong> {
        match frame {
            Frame::Text(Subject::MoreUser, text) => {
                self.scratch.take(text.len() as u64)?;
                let user = self.texts.entry(Subject::User).or_default();
                append_lines(user, &text).map_err(Wrong::Damaged)?;
            }
            Frame::Text(Subject::Manifest, _) if self.texts.contains_key(&Subject::Manifest) => {
                return Err(Wrong::Damaged("what describes the events comes twice"));
            }
            Frame::Text(subject, text) => {
                self.scratch.take(text.len() as u64)?;
                self.texts.insert(subject, text);
            }
            Frame::Names(entries) => {
                let file = match &mut self.names {
                    Some(file) => file,
                    none => none.insert(self.scratch.file()?),
                };
                self.scratch.write(file, entries)?;
            }
            Frame::Data { .. } if self.file.is_some() => {
                return Err(Wrong::Damaged("data behind the last of them"));
            }
            Frame::Data { stream, chunk, .. } => {
                if !self.streams.contains_key(&stream) {
                    if self.streams.len() == STREAMS_MAX {
                        return Err(Wrong::Damaged("too many streams"));
                    }
                    let file = self.scratch.file()?;
                    self.streams.insert(stream, Data { file, len: 0, is_placed: false });
                }
                let Some(data) = self.streams.get_mut(&stream) else { return Ok(()) };
                self.scratch.write(&mut data.file, chunk)?;
                data.len += chunk.len() as u64;
                self.data += chunk.len() as u64;
            }
            Frame::Time(_) | Frame::End(_) => {}
            Frame::Bytes(bytes) => {
                let Self { scratch, file, .. } = self;
                let file = match file {
                    Some(file) => file,
                    none => none.insert(scratch.file()?),
                };
                scratch.write(file, bytes)?;
            }
            Frame::DataOf { stream, len } => self.place(stream, len)?,
        }
        Ok(())
    }

    /// Puts the data of a stream behind what is there of the finished file.
    fn place(&mut self, stream: StreamId, len: u64) -> Result<(), Wrong> {
        let Some(data) = self.streams.get_mut(&stream).filter(|data| data.len == len && !data.is_placed)
        else {
            return Err(Wrong::Damaged("the finished file has other data than those that came"));
        };
        let Some(file) = &mut self.file else { return Err(Wrong::Damaged("a file that begins with data")) };
        data.is_placed = true;
        self.scratch.take(len)?;
        let copied = data.file.rewind().and_then(|()| io::copy(&mut data.file, file));
        copied.map_err(self.scratch.failed())?;
        Ok(())
    }

    fn finish(self, totals: Totals) -> Result<File, Wrong> {
        let Some(mut file) = self.file else { return Err(Wrong::Damaged("there is no finished file")) };
        let len = file.metadata().map_err(self.scratch.failed())?.len();
        if len != totals.file || self.data != totals.data {
            return Err(Wrong::Damaged("not all of the finished file is here"));
        }
        file.rewind().map_err(self.scratch.failed())?;
        Ok(file)
    }

    /// Makes a file of what there is, as of the spool that it came from.
    fn recover(self, stop: &dyn Fn() -> bool) -> Result<File, PipedError> {
        if !self.texts.contains_key(&Subject::Manifest) {
            return Err(PipedError::Empty);
        }
        let place = Place::create(&self.scratch.dir).map_err(self.scratch.failed())?;
        let file = self.recover_in(place.dir(), stop);
        // It has nothing that anybody could want, with or without the file.
        let _ = place.remove();
        file
    }

    fn recover_in(mut self, private: &Directory, stop: &dyn Fn() -> bool) -> Result<File, PipedError> {
        self.scratch.take(2 * self.data)?;
        let failed = |source| PipedError::Store { dir: private.path().to_owned(), source };
        let name = PathBuf::from(RECOVERED).with_extension("dat.spool");
        let spool = private.create_dir_with(name.as_os_str(), MODE_PRIVATE).map_err(failed)?;
        self.fill(&spool).map_err(failed)?;
        let spool = Spool::open(spool.path())?;
        let output = Output::in_directory(private.clone(), RECOVERED.into())?;
        recover(spool, Some(output), LostManifest::Refuse, stop)?;
        private.open_file(RECOVERED).map_err(failed)
    }

    /// Fills a spool as the recorder has filled its own.
    fn fill(&mut self, spool: &Directory) -> io::Result<()> {
        if self.file.is_none()
            && let Some(counts) = self.texts.get_mut(&Subject::Counts)
        {
            // They come before the data: the last of these may be what was cut off.
            counts::reopen(counts);
        }
        let names = [
            (Subject::Manifest, "manifest"),
            (Subject::Counts, counts::NAME),
            (Subject::Pauses, pauses::NAME),
            (Subject::State, state::NAME),
        ];
        for (subject, name) in names {
            if let Some(text) = self.texts.remove(&subject) {
                spool.write(name, &text)?;
            }
        }
        let kernel = self.texts.remove(&Subject::Kernel).unwrap_or_default();
        let user = self.texts.remove(&Subject::User).unwrap_or_default();
        let line = if kernel.is_empty() || kernel.ends_with(b"\n") { &b""[..] } else { b"\n" };
        symbols::write(spool, &[&kernel, line, &user].concat())?;
        let journal = self.names.take().map(|file| ("names".to_owned(), file));
        let data = std::mem::take(&mut self.streams).into_iter();
        let data = data.map(|(stream, data)| (segment_name(stream, 0), data.file));
        for (name, mut file) in journal.into_iter().chain(data) {
            file.rewind()?;
            io::copy(&mut file, &mut spool.create(name)?)?;
        }
        Ok(())
    }
}
