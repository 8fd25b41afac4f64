//! The records of one stream, as far as they are in the spool.
//!
//! Chunks are read one after the other, and each when it is needed: what is in a file needs no memory.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use agent_ebpf::PAGE_SIZE;

use super::{
    finished::FinishedData,
    horizon::Horizon,
    pages::{Head, PageRecords},
};
use crate::counts::Note;
use crate::segment::{Behind, CHUNK_MAX, Chunk, behind_damage};
use crate::spool::segment_name;
use crate::{SpoolError, StreamId};
use stdx::output::Directory;
use tracedat::page::HEADER_LEN;
use tracedat::reader::ReadError;
use tracedat::{BLOCK_HEADER_LEN, Codec, Compression, Decompressor};

/// Memory for one chunk, which all CPUs share.
pub(super) struct Scratch {
    decompressor: Decompressor,
    packed: Vec<u8>,
    plain: Vec<u8>,
    /// Pages that a CPU keeps, at most.
    pub(super) keep: usize,
}

/// What is read of a stream.
#[derive(Debug)]
pub(super) struct CpuStream {
    pub(super) stream: StreamId,
    /// The buffer of the trace file that it is in.
    pub(super) buffer: usize,
    compression: Compression,
    files: Option<Directory>,
    position: Option<Position>,
    /// Bytes of the segments before that position; `None` once some were not read.
    before: Option<u64>,
    /// Where it goes on when the spool is gone.
    rest: Option<FinishedData>,
    /// The last note.
    note: Note,
    horizon: Horizon,
    /// Events that were read or passed over since the start of the recording.
    pub(super) events: u64,
    /// Events that are to be passed over, as they were read before.
    skip: u64,
    last_time: u64,
    /// Events that were removed before they were read.
    pub(super) fell_behind: u64,
    /// Whether nothing more can be read there.
    is_broken: bool,
    /// Some pages, and what of them is read.
    pages: PageRecords,
    /// The chunks that were read since this was asked, as they are in the file; `None` if nobody asks.
    taken: Option<Vec<Vec<u8>>>,
}

/// Where chunks are read.
#[derive(Debug)]
struct Position {
    /// Number of the segment; `None` in the finished file.
    segment: Option<u64>,
    file: Arc<File>,
    at: u64,
    /// Pages of the chunk there that were read.
    chunk_pages: usize,
    /// Where the data end, if that is known.
    end: Option<u64>,
    /// Bytes before it that are in no chunk.
    damaged: u64,
    /// Whether no chunk was found yet behind damage.
    is_in_damage: bool,
}

impl Position {
    fn new(segment: Option<u64>, file: Arc<File>) -> Self {
        Self { segment, file, at: 0, chunk_pages: 0, end: None, damaged: 0, is_in_damage: false }
    }

    fn segment(index: u64, file: File) -> Self {
        Self::new(Some(index), Arc::new(file))
    }

    /// Goes to the next chunk behind damage, or as far as none is.
    fn pass_damage(&mut self, left: u64, is_over: bool) -> io::Result<()> {
        let from = self.at + u64::from(!self.is_in_damage);
        let (to, is_in_damage) = match behind_damage(&self.file, from, self.at + left, is_over)? {
            Behind::Chunk(at) => (at, false),
            Behind::Search(at) => (at, true),
        };
        self.damaged += to - self.at;
        (self.at, self.is_in_damage) = (to, is_in_damage);
        Ok(())
    }

    fn left(&self) -> io::Result<u64> {
        let end = match self.end {
            Some(end) => end,
            None => self.file.metadata()?.len(),
        };
        Ok(end.saturating_sub(self.at))
    }
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { decompressor: Decompressor::new(Codec::Zstd), packed: Vec::new(), plain: Vec::new(), keep: 1 }
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl CpuStream {
    pub(super) fn new(stream: StreamId, buffer: usize, compression: Compression) -> Self {
        Self {
            stream,
            buffer,
            compression,
            files: None,
            position: None,
            before: Some(0),
            rest: None,
            note: Note::default(),
            horizon: Horizon::default(),
            events: 0,
            skip: 0,
            last_time: 0,
            fell_behind: 0,
            is_broken: false,
            pages: PageRecords::default(),
            taken: None,
        }
    }

    /// Keeps the chunks that are read from now on for [`CpuStream::take_chunks`].
    pub(super) fn keep_chunks(&mut self) {
        self.taken = Some(Vec::new());
    }

    /// The chunks that were read since this was called before.
    pub(super) fn take_chunks(&mut self) -> Vec<Vec<u8>> {
        self.taken.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes its last note, and finds its oldest segment if none was read.
    pub(super) fn go_on(&mut self, files: &Directory, note: Option<&Note>) -> Result<(), SpoolError> {
        if let Some(note) = note {
            self.note = *note;
            self.horizon.note(note);
        }
        if self.files.is_none() {
            self.files = Some(files.clone());
        }
        if self.position.is_none() {
            self.go_to_oldest().map_err(SpoolError::io("open the data of a CPU in", files.path()))?;
        }
        Ok(())
    }

    /// Where it goes on when the spool has nothing more.
    pub(super) fn continue_in(&mut self, rest: Option<FinishedData>) {
        self.rest = rest;
    }

    /// Nothing from before this time will come.
    pub(super) fn known_until(&mut self) -> u64 {
        if self.is_broken { u64::MAX } else { self.horizon.known_until(self.events, self.last_time) }
    }

    /// The bytes of a record.
    pub(super) fn record(&self, head: &Head) -> &[u8] {
        self.pages.record(head)
    }

    /// The pages that were brought into memory since this was asked.
    pub(super) fn new_pages(&mut self) -> impl Iterator<Item = &[u8]> {
        self.pages.new_pages()
    }

    /// The next record; `None` if there is none for now.
    pub(super) fn advance(&mut self, scratch: &mut Scratch) -> Result<Option<Head>, ReadError> {
        loop {
            match self.pages.advance(&mut self.skip) {
                Ok(Some(head)) => {
                    self.events += 1;
                    self.last_time = head.time;
                    return Ok(Some(head));
                }
                Ok(None) if !self.load(scratch)? => return Ok(None),
                Ok(None) => {}
                Err(source) => {
                    let offset = self.position.as_ref().map_or(0, |position| position.at);
                    let (cpu, page) = (self.stream.cpu, self.pages.number());
                    return Err(ReadError::Page { cpu, page, offset, source });
                }
            }
        }
    }

    /// Brings the next pages into memory. `false` if there are none for now.
    fn load(&mut self, scratch: &mut Scratch) -> Result<bool, ReadError> {
        loop {
            if self.is_broken && self.rest.is_none() {
                return Ok(false);
            }
            let result = if self.is_broken { Ok(Loaded::Nothing) } else { self.load_here(scratch, false) };
            match result {
                Ok(Loaded::Pages) => return Ok(true),
                Ok(Loaded::Damaged(error)) => return Err(error),
                Ok(Loaded::Nothing) => {}
                Err(source) => {
                    self.is_broken = true;
                    let offset = self.position.as_ref().map_or(0, |position| position.at);
                    return Err(ReadError::Io { what: "trace data", offset, source });
                }
            }
            match self.next_file(scratch) {
                Ok(Next::There) => {}
                Ok(Next::Loaded(Loaded::Pages)) => return Ok(true),
                Ok(Next::Loaded(Loaded::Damaged(error))) => return Err(error),
                Ok(Next::Loaded(Loaded::Nothing)) => return Ok(false),
                Err(source) => {
                    self.is_broken = true;
                    return Err(ReadError::Io { what: "a file of trace data", offset: 0, source });
                }
            }
        }
    }

    /// The same of the file that is read, to which more may come unless it `is_over`.
    fn load_here(&mut self, scratch: &mut Scratch, is_over: bool) -> io::Result<Loaded> {
        let Some(position) = &mut self.position else { return Ok(Loaded::Nothing) };
        let (at, left) = (position.at, position.left()?);
        let is_over = is_over || position.end.is_some();
        let whole = match self.compression {
            Compression::None => {
                let most = (scratch.keep.min(CHUNK_MAX / PAGE_SIZE) * PAGE_SIZE) as u64;
                let len = left.min(most) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
                let pages = self.pages.replace();
                pages.resize(len as usize, 0);
                position.file.read_exact_at(pages, at)?;
                if position.segment.is_some() {
                    // What is moved out of the spool, for want of space, leaves zeros.
                    let moved = pages.chunks(PAGE_SIZE).position(|page| {
                        page.get(..HEADER_LEN).is_some_and(|header| header.iter().all(|byte| *byte == 0))
                    });
                    pages.truncate(moved.map_or(pages.len(), |count| count * PAGE_SIZE));
                }
                position.at += pages.len() as u64;
                if let Some(taken) = self.taken.as_mut().filter(|_| !pages.is_empty()) {
                    taken.push(pages.clone());
                }
                pages.len()
            }
            Compression::Zstd { .. } => {
                if position.is_in_damage {
                    position.pass_damage(left, is_over)?;
                    return if position.is_in_damage {
                        Ok(Loaded::Nothing)
                    } else {
                        self.load_here(scratch, is_over)
                    };
                }
                let chunk = Chunk::at(&position.file, at, left)?;
                let (packed, plain) = match chunk {
                    Chunk::Whole { packed, plain } => (packed, plain),
                    Chunk::Absent => return Ok(Loaded::Nothing),
                    Chunk::Cut if !is_over => return Ok(Loaded::Nothing),
                    Chunk::Cut | Chunk::Damaged => {
                        position.pass_damage(left, is_over)?;
                        return Ok(Loaded::Damaged(ReadError::Invalid {
                            what: "the header of a chunk",
                            offset: at,
                            expected: "the sizes of one",
                            found: "something else".to_owned(),
                        }));
                    }
                };
                let body = at + BLOCK_HEADER_LEN as u64;
                scratch.packed.resize(packed as usize, 0);
                position.file.read_exact_at(&mut scratch.packed, body)?;
                let done = scratch.decompressor.decompress(&scratch.packed, plain, &mut scratch.plain);
                let is_begin = position.chunk_pages == 0;
                let mut take = || {
                    if let Some(taken) = self.taken.as_mut().filter(|_| is_begin) {
                        let header = [(packed as u32).to_le_bytes(), (plain as u32).to_le_bytes()];
                        taken.push([header.as_flattened(), &scratch.packed].concat());
                    }
                };
                if let Err(source) = done {
                    if position.segment.is_some() && Chunk::at(&position.file, at, left)? != chunk {
                        // It was moved out of the spool in this moment.
                        return Ok(Loaded::Nothing);
                    }
                    take();
                    (position.at, position.chunk_pages) = (body + packed, 0);
                    self.pages.replace();
                    return Ok(Loaded::Damaged(ReadError::Decompress {
                        what: "trace data",
                        offset: body,
                        source,
                    }));
                }
                take();
                let from = position.chunk_pages * PAGE_SIZE;
                let to = plain.min(from + scratch.keep * PAGE_SIZE);
                let pages = self.pages.replace();
                pages.extend_from_slice(scratch.plain.get(from..to).unwrap_or_default());
                position.chunk_pages += scratch.keep;
                if to == plain {
                    (position.at, position.chunk_pages) = (body + packed, 0);
                }
                pages.len()
            }
        };
        Ok(if whole == 0 { Loaded::Nothing } else { Loaded::Pages })
    }

    /// Goes to the file behind the one that has nothing more.
    fn next_file(&mut self, scratch: &mut Scratch) -> io::Result<Next> {
        let segment =
            self.position.as_ref().and_then(|position| position.segment).filter(|_| !self.is_broken);
        if let Some(index) = segment {
            if let Some(file) = self.open(index + 1)? {
                // Nothing comes to a segment behind which there is another; until then something may have.
                match self.load_here(scratch, true)? {
                    Loaded::Nothing => {}
                    found => return Ok(Next::Loaded(found)),
                }
                self.leave();
                self.position = Some(Position::segment(index + 1, file));
                return Ok(Next::There);
            }
            if self.note.first_segment > index + 1 && self.go_to_oldest()? {
                return Ok(Next::There);
            }
        }
        let Some(rest) = self.rest.take() else { return Ok(Next::Loaded(Loaded::Nothing)) };
        self.go_to_rest(&rest);
        Ok(Next::There)
    }

    /// Counts the bytes of a segment that was read, without those that get into no file.
    fn leave(&mut self) {
        let read = self.position.as_ref().map_or(0, |position| position.at - position.damaged);
        self.before = self.before.map(|before| before + read);
    }

    fn open(&self, index: u64) -> io::Result<Option<File>> {
        let Some(files) = &self.files else { return Ok(None) };
        match files.open_file(segment_name(self.stream, index)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// Goes to the oldest segment that is kept. Those before it were removed. `false` if it is not there:
    /// then it was removed, too, and there will be a newer note.
    fn go_to_oldest(&mut self) -> io::Result<bool> {
        let index = self.note.first_segment;
        let Some(file) = self.open(index)? else { return Ok(false) };
        self.position = Some(Position::segment(index, file));
        if index != 0 {
            self.before = None;
            self.pass(self.note.capped);
        }
        Ok(true)
    }

    /// Passes over what was removed: all up to this number of events.
    fn pass(&mut self, removed: u64) {
        self.fell_behind += removed.saturating_sub(self.events);
        self.events = self.events.max(removed);
    }

    /// Goes on in the finished file, behind what was read.
    fn go_to_rest(&mut self, rest: &FinishedData) {
        self.leave();
        let read = self.before.filter(|_| rest.removed == 0);
        let chunk_pages =
            self.position.as_ref().filter(|_| read.is_some()).map_or(0, |position| position.chunk_pages);
        if read.is_none() {
            // The file begins with the segments that were kept.
            self.skip = self.events.saturating_sub(rest.removed);
            self.pass(rest.removed);
        }
        self.is_broken = false;
        self.position = Some(Position {
            at: rest.start.saturating_add(read.unwrap_or(0)),
            chunk_pages,
            end: Some(rest.end),
            ..Position::new(None, Arc::clone(&rest.file))
        });
    }
}

/// What was found behind a file.
enum Next {
    /// Another file.
    There,
    /// None for now; something in the file itself.
    Loaded(Loaded),
}

/// What was found in a file.
enum Loaded {
    /// Pages.
    Pages,
    /// Nothing, for now.
    Nothing,
    /// Something that cannot be read, and is passed over.
    Damaged(ReadError),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::segment::tests::chunks;
    use std::io::Write as _;

    const ZSTD: Compression = Compression::zstd(1);
    const STREAM: StreamId = StreamId { channel: 0, cpu: 0 };

    fn append(dir: &std::path::Path, segment: u64, bytes: &[u8]) {
        let path = dir.join(segment_name(STREAM, segment));
        File::options().create(true).append(true).open(path).unwrap().write_all(bytes).unwrap();
    }

    /// The times of the records that are there, and `None` for each place that is damaged.
    fn read(stream: &mut CpuStream) -> Vec<Option<u64>> {
        let (mut scratch, mut found) = (Scratch::new(), Vec::new());
        loop {
            match stream.advance(&mut scratch) {
                Ok(Some(head)) => found.push(Some(head.time)),
                Ok(None) => return found,
                Err(ReadError::Invalid { .. }) => found.push(None),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn follow(dir: &std::path::Path) -> CpuStream {
        let mut stream = CpuStream::new(STREAM, 0, ZSTD);
        stream.go_on(&Directory::open(dir).unwrap(), None).unwrap();
        stream
    }

    #[test]
    fn damaged_sizes_cost_their_chunk_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = chunks(ZSTD, 6);
        all[1][..8].fill(0xff);
        // More than is there: nothing more comes to a segment behind which there is another.
        all[3][..8].copy_from_slice(&[0, 0, 1, 0, 0, 16, 0, 0]);
        append(dir.path(), 0, &all[..5].concat());
        append(dir.path(), 1, &all[5..].concat());
        let mut stream = follow(dir.path());
        assert_eq!(read(&mut stream), [Some(1), None, Some(3), None, Some(5), Some(6)]);
        assert_eq!(stream.events, 4);
    }

    #[test]
    fn what_is_stored_behind_damage_is_read_when_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = chunks(ZSTD, 4);
        all[1][..8].fill(0xff);
        append(dir.path(), 0, &all[..2].concat());
        let mut stream = follow(dir.path());
        assert_eq!(read(&mut stream), [Some(1), None]);
        // Byte by byte.
        let mut found = Vec::new();
        for byte in all[2..].concat() {
            append(dir.path(), 0, &[byte]);
            found.extend(read(&mut stream));
        }
        assert_eq!(found, [Some(3), Some(4)]);
    }

    #[test]
    fn the_finished_file_goes_on_behind_what_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let all = chunks(ZSTD, 5);
        let mut damaged = all.clone();
        damaged[1][..8].fill(0xff);
        append(dir.path(), 0, &damaged[..3].concat());
        let mut stream = follow(dir.path());
        assert_eq!(read(&mut stream), [Some(1), None, Some(3)]);
        let whole = [&all[0], &all[2], &all[3], &all[4]].map(Vec::as_slice).concat();
        append(dir.path(), 9, &[&b"head"[..], &whole].concat());
        let file = Arc::new(File::open(dir.path().join(segment_name(STREAM, 9))).unwrap());
        let end = 4 + whole.len() as u64;
        stream.continue_in(Some(FinishedData { file, start: 4, end, removed: 0 }));
        assert_eq!(read(&mut stream), [Some(4), Some(5)]);
    }
}
