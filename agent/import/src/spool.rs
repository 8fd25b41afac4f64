//! Records in the order of time, however many there are.
//!
//! What is pushed is kept in memory up to a limit, then sorted and appended to a file as one run for each
//! stream. At the end the runs of a stream are merged. Records of the same time stay in the order in which
//! they came.
//!
//! An item in memory and in the file: u64 time, u32 kind, u32 length, that many bytes; all little-endian.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;

use super::ImportError;
use stdx::output::Directory;

/// Bytes of records that are held in memory before they are sorted and put aside.
pub(super) const MEMORY: usize = 64 << 20;

/// Bytes of an item before its data.
const HEAD: usize = 16;

/// What an item costs in memory beside its bytes.
const INDEX: usize = size_of::<(u64, usize)>();

/// Bytes that the buffers of all runs of a stream may have together, and the least and the most of one.
const BUFFERS: usize = 32 << 20;
const LEAST_BUFFER: usize = 4 << 10;
const MOST_BUFFER: usize = 256 << 10;

/// An item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// By what items are sorted.
    pub(super) time: u64,
    /// What it is, to whoever pushes and reads.
    pub(super) kind: u32,
    pub(super) data: &'a [u8],
}

/// The streams, and the file of what was put aside.
#[derive(Debug)]
pub(super) struct Spool {
    dir: Directory,
    /// How much is held in memory.
    limit: usize,
    used: usize,
    file: Option<File>,
    end: u64,
    streams: Vec<Stream>,
}

/// Items of one order.
#[derive(Debug, Default)]
struct Stream {
    /// Items in memory, as they came.
    bytes: Vec<u8>,
    /// Time and place of each of them.
    index: Vec<(u64, usize)>,
    /// Where in the file sorted runs begin and end.
    runs: Vec<(u64, u64)>,
}

impl Spool {
    /// A spool whose file will be in `dir`. It has no name there, so that nothing is left of it.
    pub(super) fn new(dir: Directory, limit: usize) -> Self {
        Self { dir, limit, used: 0, file: None, end: 0, streams: Vec::new() }
    }

    /// Adds an item to a stream, which is there from its first item on.
    pub(super) fn push(&mut self, stream: usize, item: Item<'_>) -> Result<(), ImportError> {
        if self.streams.len() <= stream {
            self.streams.resize_with(stream + 1, Stream::default);
        }
        let Some(into) = self.streams.get_mut(stream) else { return Ok(()) };
        let Ok(len) = u32::try_from(item.data.len()) else { return Ok(()) };
        into.index.push((item.time, into.bytes.len()));
        into.bytes.extend_from_slice(&item.time.to_le_bytes());
        into.bytes.extend_from_slice(&item.kind.to_le_bytes());
        into.bytes.extend_from_slice(&len.to_le_bytes());
        into.bytes.extend_from_slice(item.data);
        self.used += HEAD + INDEX + item.data.len();
        if self.used > self.limit { self.put_aside() } else { Ok(()) }
    }

    /// The items of a stream, in the order of time. They are gone from the spool then.
    pub(super) fn take(&mut self, stream: usize) -> Result<Merge<'_>, ImportError> {
        let Some(from) = self.streams.get_mut(stream) else {
            return Ok(Merge { runs: Vec::new(), heap: BinaryHeap::new(), file: None, dir: &self.dir });
        };
        let Stream { bytes, mut index, runs } = std::mem::take(from);
        self.used = self.used.saturating_sub(bytes.len() + index.len() * INDEX);
        index.sort_by_key(|(time, _)| *time);
        let buffer = (BUFFERS / runs.len().max(1)).clamp(LEAST_BUFFER, MOST_BUFFER);
        let stored =
            runs.into_iter().map(|(at, end)| Run::Stored { at, end, buffer, bytes: Vec::new(), next: 0 });
        let runs: Vec<_> = stored.chain([Run::Held { bytes, index, next: 0 }]).collect();
        let mut merge = Merge {
            heap: BinaryHeap::with_capacity(runs.len()),
            runs,
            file: self.file.as_ref(),
            dir: &self.dir,
        };
        for run in 0..merge.runs.len() {
            merge.queue(run)?;
        }
        Ok(merge)
    }

    /// A file without a name.
    pub(super) fn scratch(&self) -> Result<File, ImportError> {
        self.dir.create_unnamed().map_err(|source| ImportError::Spool {
            action: "create",
            dir: self.dir.path().to_owned(),
            source,
        })
    }

    /// Sorts what is in memory, and appends it to the file.
    fn put_aside(&mut self) -> Result<(), ImportError> {
        let Self { dir, file, end, streams, used, .. } = self;
        let fail = |action, source| ImportError::Spool { action, dir: dir.path().to_owned(), source };
        let file = match file {
            Some(file) => file,
            none => none.insert(dir.create_unnamed().map_err(|source| fail("create", source))?),
        };
        let mut out = BufWriter::with_capacity(1 << 20, &*file);
        for stream in streams.iter_mut().filter(|stream| !stream.index.is_empty()) {
            stream.index.sort_by_key(|(time, _)| *time);
            for (_, at) in &stream.index {
                out.write_all(item_bytes(&stream.bytes, *at)).map_err(|source| fail("write", source))?;
            }
            let start = *end;
            *end += stream.bytes.len() as u64;
            stream.runs.push((start, *end));
            stream.bytes.clear();
            stream.index.clear();
        }
        out.flush().map_err(|source| fail("write", source))?;
        *used = 0;
        Ok(())
    }
}

/// The bytes of the item at `at`; none if it is cut short.
fn item_bytes(bytes: &[u8], at: usize) -> &[u8] {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.get(..item_len(rest).unwrap_or(0)).unwrap_or_default()
}

/// How long the item at the beginning is, if its head is there.
fn item_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.get(12..)?.first_chunk()?;
    Some(HEAD + u32::from_le_bytes(*len) as usize)
}

fn item(bytes: &[u8]) -> Option<Item<'_>> {
    let time = u64::from_le_bytes(*bytes.first_chunk()?);
    let kind = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    Some(Item { time, kind, data: bytes.get(HEAD..)? })
}

/// Items that are sorted.
#[derive(Debug)]
enum Run {
    Held {
        bytes: Vec<u8>,
        index: Vec<(u64, usize)>,
        next: usize,
    },
    /// Bytes `at..end` of the file; `bytes` are those before `at` that were read, of which `next..` are not
    /// used yet.
    Stored {
        at: u64,
        end: u64,
        buffer: usize,
        bytes: Vec<u8>,
        next: usize,
    },
}

impl Run {
    /// Makes sure that the next item is in memory.
    fn fill(&mut self, file: Option<&File>) -> io::Result<()> {
        let Self::Stored { at, end, buffer, bytes, next } = self else { return Ok(()) };
        loop {
            let rest = bytes.get(*next..).unwrap_or_default();
            let wanted = item_len(rest).unwrap_or(HEAD);
            if rest.len() >= wanted || at == end {
                return Ok(());
            }
            bytes.drain(..std::mem::take(next));
            let more = wanted.max(*buffer).saturating_sub(bytes.len()).max(1) as u64;
            let len = more.min(*end - *at) as usize;
            let from = bytes.len();
            bytes.resize(from + len, 0);
            let file = file.ok_or(io::ErrorKind::NotFound)?;
            file.read_exact_at(bytes.get_mut(from..).unwrap_or_default(), *at)?;
            *at += len as u64;
        }
    }

    fn current(&self) -> Option<Item<'_>> {
        let (bytes, at) = match self {
            Self::Held { bytes, index, next } => (bytes, index.get(*next)?.1),
            Self::Stored { bytes, next, .. } => (bytes, *next),
        };
        item(item_bytes(bytes, at))
    }

    fn step(&mut self) {
        match self {
            Self::Held { next, .. } => *next += 1,
            Self::Stored { bytes, next, .. } => *next += item_bytes(bytes, *next).len(),
        }
    }
}

/// The items of a stream, in the order of time.
#[derive(Debug)]
pub(super) struct Merge<'s> {
    /// In the order in which they were put aside.
    runs: Vec<Run>,
    /// The time of the next item of each run that has one, and the run: of the same time the earlier run
    /// comes first.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    file: Option<&'s File>,
    dir: &'s Directory,
}

impl Merge<'_> {
    /// Gives the next item to `with`. Returns `None` when there is none.
    pub(super) fn next<T>(&mut self, with: impl FnOnce(Item<'_>) -> T) -> Result<Option<T>, ImportError> {
        let Some(Reverse((_, index))) = self.heap.pop() else { return Ok(None) };
        let Some(run) = self.runs.get_mut(index) else { return Ok(None) };
        let result = run.current().map(with);
        run.step();
        self.queue(index)?;
        Ok(result)
    }

    fn queue(&mut self, index: usize) -> Result<(), ImportError> {
        let Some(run) = self.runs.get_mut(index) else { return Ok(()) };
        run.fill(self.file).map_err(|source| ImportError::Spool {
            action: "read",
            dir: self.dir.path().to_owned(),
            source,
        })?;
        if let Some(item) = run.current() {
            self.heap.push(Reverse((item.time, index)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(spool: &mut Spool, stream: usize) -> Vec<(u64, u32, Vec<u8>)> {
        let mut merge = spool.take(stream).unwrap();
        let mut found = Vec::new();
        while let Some(item) = merge.next(|item| (item.time, item.kind, item.data.to_vec())).unwrap() {
            found.push(item);
        }
        found
    }

    #[test]
    fn items_come_by_time_and_then_as_they_were_pushed() {
        let temp = tempfile::tempdir().unwrap();
        for limit in [0, 1, 100, 5000, MEMORY] {
            let mut spool = Spool::new(Directory::open(temp.path()).unwrap(), limit);
            let mut expected = [Vec::new(), Vec::new()];
            // Times that go back and forth, many of them equal, and items of all lengths.
            for number in 0..500_u32 {
                let time = u64::from(number.wrapping_mul(2_654_435_761) >> 24);
                let data = vec![number as u8; (number % 97) as usize * usize::from(number % 13 == 0) * 60];
                let stream = (number % 3 == 0) as usize;
                spool.push(stream, Item { time, kind: number, data: &data }).unwrap();
                expected[stream].push((time, number, data));
            }
            for (stream, mut expected) in expected.into_iter().enumerate() {
                expected.sort_by_key(|(time, ..)| *time);
                assert_eq!(items(&mut spool, stream), expected, "limit {limit}");
                assert_eq!(items(&mut spool, stream), [], "taken");
            }
            assert_eq!(items(&mut spool, 7), [], "never there");
        }
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "nothing has a name");
    }
}
