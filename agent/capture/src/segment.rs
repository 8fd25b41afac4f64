//! Reading the spool's data back: how much of a segment file is whole.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use agent_ebpf::PAGE_SIZE;

use super::SpoolError;
use ftrace_event::Endian;
use tracedat::layout::CHUNK_PAGES;
use tracedat::{BLOCK_HEADER_LEN as CHUNK_HEADER, Codec, Compression, Decompressor, page};

/// The most that a chunk of ours holds.
pub(super) const CHUNK_MAX: usize = CHUNK_PAGES * PAGE_SIZE;

/// What is whole in a segment file. Bytes after it are a chunk that a crash or a full disk cut short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentContent {
    /// Offsets and lengths of what can be read: whole chunks, or whole pages without compression.
    pub ranges: Vec<(u64, u64)>,
    /// Chunks; pages without compression.
    pub chunks: u32,
    /// Pages. Known only from a verification.
    pub pages: u64,
    /// Events. Known only from a verification.
    pub events: u64,
    /// Events lost before the pages, as the pages' marks say. Known only from a verification.
    pub missed: u64,
    /// Time of the last event. Known only from a verification.
    pub last_time: Option<u64>,
    /// Bytes that are in none of the ranges.
    pub unreadable: u64,
    /// Whether there is more amiss than a last write that was cut short.
    pub damaged: bool,
}

impl SegmentContent {
    /// Bytes that can be read.
    pub(super) fn len(&self) -> u64 {
        self.ranges.iter().map(|(_, len)| len).sum()
    }

    fn add(&mut self, at: u64, len: u64) {
        match self.ranges.last_mut() {
            Some((start, before)) if *start + *before == at => *before += len,
            _ => self.ranges.push((at, len)),
        }
    }
}

/// How closely a segment is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Follow the sizes: for data that this process wrote.
    Sizes,
    /// Decompress everything and count the events: for data that a crash left behind.
    Verify,
}

/// Finds the whole chunks of a segment, unless `stop` says that the result is no longer needed. A
/// verification leaves out a chunk that cannot be decompressed. Where none is whole, it goes on with the next
/// one that looks like it.
pub(super) fn measure(
    file: &File,
    path: &Path,
    compression: Compression,
    look: Look,
    stop: &dyn Fn() -> bool,
) -> Result<SegmentContent, SpoolError> {
    let read_error = |error| SpoolError::io("read", path)(error);
    let size = file.metadata().map_err(read_error)?.len();
    let mut content = SegmentContent::default();
    let mut buffer = Vec::new();
    let mut pages = Vec::new();
    let mut decompressor = Decompressor::new(Codec::Zstd);
    let mut at = 0;
    // What was found until then is of no use.
    while !stop() {
        let left = size - at;
        let (header, len, plain_len) = match compression {
            // Verified page by page: that is what can be left out.
            Compression::None if look == Look::Verify => (0, PAGE_SIZE as u64, PAGE_SIZE),
            Compression::None => (0, left / PAGE_SIZE as u64 * PAGE_SIZE as u64, 0),
            Compression::Zstd { .. } => {
                let Chunk::Whole { packed, plain } = Chunk::at(file, at, left).map_err(read_error)? else {
                    let is_whole = |chunk| matches!(chunk, Chunk::Whole { .. });
                    let next = next_chunk(file, at + 1, size, is_whole, stop).map_err(read_error)?;
                    let Some(next) = next else { break };
                    at = next;
                    continue;
                };
                (CHUNK_HEADER, packed, plain)
            }
        };
        if len == 0 || len > left {
            break;
        }
        let (start, whole) = (at, header as u64 + len);
        at += whole;
        if look == Look::Verify {
            buffer.resize(len as usize, 0);
            file.read_exact_at(&mut buffer, start + header as u64).map_err(read_error)?;
            let plain = match compression {
                Compression::None => Some(buffer.as_slice()),
                Compression::Zstd { .. } => decompressor
                    .decompress(&buffer, plain_len, &mut pages)
                    .ok()
                    .and_then(|()| pages.get(..plain_len)),
            };
            let Some((events, missed, last_time)) = plain.and_then(count) else {
                // All of a chunk is there. Of a bad page without compression only what follows shows whether
                // the write of its chunk was cut short.
                content.damaged |= header != 0;
                continue;
            };
            content.events += events;
            content.missed = content.missed.saturating_add(missed);
            content.last_time = last_time.or(content.last_time);
            content.pages += (plain_len / PAGE_SIZE) as u64;
        }
        content.add(start, whole);
        content.chunks += match compression {
            Compression::None => (len / PAGE_SIZE as u64) as u32,
            Compression::Zstd { .. } => 1,
        };
    }
    let end = content.ranges.last().map_or(0, |(start, len)| start + len);
    content.unreadable = size - content.len();
    content.damaged |= content.unreadable != size - end || size - end > (CHUNK_HEADER + CHUNK_MAX) as u64;
    Ok(content)
}

/// Shows `each` the pages of what `content` found whole.
pub(super) fn each_page(
    file: &File,
    path: &Path,
    compression: Compression,
    content: &SegmentContent,
    mut each: impl FnMut(&[u8]),
) -> Result<(), SpoolError> {
    let read_error = |error| SpoolError::io("read", path)(error);
    let mut buffer = Vec::new();
    let mut pages = Vec::new();
    let mut decompressor = Decompressor::new(Codec::Zstd);
    for &(start, len) in &content.ranges {
        let end = start + len;
        let mut at = start;
        while at < end {
            let (header, len, plain_len) = match compression {
                Compression::None => (0, (end - at).min(CHUNK_MAX as u64), 0),
                Compression::Zstd { .. } => match Chunk::at(file, at, end - at).map_err(read_error)? {
                    Chunk::Whole { packed, plain } => (CHUNK_HEADER as u64, packed, plain),
                    _ => break,
                },
            };
            buffer.resize(len as usize, 0);
            file.read_exact_at(&mut buffer, at + header).map_err(read_error)?;
            at += header + len;
            let plain = match compression {
                Compression::None => Some(buffer.as_slice()),
                Compression::Zstd { .. } => {
                    let done = decompressor.decompress(&buffer, plain_len, &mut pages);
                    done.ok().and_then(|()| pages.get(..plain_len))
                }
            };
            plain.unwrap_or_default().chunks_exact(PAGE_SIZE).for_each(&mut each);
        }
    }
    Ok(())
}

/// A chunk, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// All of it is there.
    Whole {
        /// Its size, compressed.
        packed: u64,
        /// The size of its pages.
        plain: usize,
    },
    /// Not all of it is there.
    Cut,
    /// None is there. Zeros are what a power cut leaves in place of data that never reached the disk, and
    /// what was moved out of the spool.
    Absent,
    /// No chunk has such a header.
    Damaged,
}

impl Chunk {
    /// The chunk at a place, behind which there are so many bytes.
    pub(super) fn at(file: &File, at: u64, left: u64) -> io::Result<Self> {
        if left < CHUNK_HEADER as u64 {
            return Ok(Self::Absent);
        }
        let mut header = [0_u8; CHUNK_HEADER];
        file.read_exact_at(&mut header, at)?;
        if header == [0; CHUNK_HEADER] {
            return Ok(Self::Absent);
        }
        let [c0, c1, c2, c3, u0, u1, u2, u3] = header;
        let packed = u64::from(Endian::Little.read_u32([c0, c1, c2, c3]));
        let plain = Endian::Little.read_u32([u0, u1, u2, u3]) as usize;
        let sane = plain != 0
            && plain <= CHUNK_MAX
            && plain.is_multiple_of(PAGE_SIZE)
            && packed != 0
            // Compression never makes a chunk this much larger.
            && packed <= 2 * CHUNK_MAX as u64;
        Ok(match sane {
            false => Self::Damaged,
            true if packed > left - CHUNK_HEADER as u64 => Self::Cut,
            true => Self::Whole { packed, plain },
        })
    }
}

/// The magic number of a frame (RFC 8878, section 3.1.1).
const FRAME: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// The beginning of a chunk, by which it is found.
const BEGINNING: u64 = (CHUNK_HEADER + FRAME.len()) as u64;

/// Where behind damage, from `from` on, the next chunk may begin: a header that `is_one`, and the start of a
/// frame. What is found by chance does not decompress to pages, and the search goes on behind it.
fn next_chunk(
    file: &File,
    from: u64,
    size: u64,
    is_one: impl Fn(Chunk) -> bool,
    stop: &dyn Fn() -> bool,
) -> io::Result<Option<u64>> {
    /// What is looked through at a time.
    const WINDOW: usize = 64 << 10;
    let mut window = vec![0; WINDOW];
    // Where the frame behind a header at `from` begins.
    let mut at = from + CHUNK_HEADER as u64;
    while at + FRAME.len() as u64 <= size && !stop() {
        let len = WINDOW.min((size - at) as usize);
        file.read_exact_at(&mut window[..len], at)?;
        for (offset, _) in window[..len].windows(FRAME.len()).enumerate().filter(|(_, bytes)| *bytes == FRAME)
        {
            let header = at + offset as u64 - CHUNK_HEADER as u64;
            if is_one(Chunk::at(file, header, size - header)?) {
                return Ok(Some(header));
            }
        }
        // A magic number may lie across the border of two windows.
        at += (len - (FRAME.len() - 1)) as u64;
    }
    Ok(None)
}

/// Where in a file that may grow to go on behind damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// A chunk begins there, of which not all may be there yet.
    Chunk(u64),
    /// None begins before it.
    Search(u64),
}

/// The same for a file of `size` bytes that may grow, unless it `is_over`.
pub(super) fn behind_damage(file: &File, from: u64, size: u64, is_over: bool) -> io::Result<Behind> {
    let is_one = |chunk| match chunk {
        Chunk::Whole { .. } => true,
        Chunk::Cut => !is_over,
        Chunk::Absent | Chunk::Damaged => false,
    };
    let next = next_chunk(file, from, size, is_one, &|| false)?;
    Ok(next.map_or_else(|| Behind::Search(from.max((size + 1).saturating_sub(BEGINNING))), Behind::Chunk))
}

/// Counts the events on pages and those missed before them, and finds the time of the last event; `None` if a
/// page is damaged.
fn count(pages: &[u8]) -> Option<(u64, u64, Option<u64>)> {
    let (mut events, mut missed, mut last_time) = (0, 0_u64, None);
    for one in pages.chunks_exact(PAGE_SIZE) {
        let summary = page::PageSummary::read(one, Endian::Little).ok()?;
        events += summary.events;
        missed = missed.saturating_add(summary.header.missed.unwrap_or_default());
        last_time = summary.last_time.or(last_time);
    }
    Some((events, missed, last_time))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use tracedat::ChunkCompressor;
    use tracedat::page::{PageBuilder, Push};

    const ZSTD: Compression = Compression::zstd(1);

    /// A page with one event, at one nanosecond more than its number.
    fn page(seed: u32) -> Vec<u8> {
        let mut builder = PageBuilder::new(PAGE_SIZE, Endian::Little).unwrap();
        let mut record = [0_u8; 16];
        record[..4].copy_from_slice(&seed.to_le_bytes());
        assert_eq!(builder.push(u64::from(seed) + 1, &record).unwrap(), Push::Stored);
        io::Read::bytes(builder.finish().unwrap()).collect::<Result<_, _>>().unwrap()
    }

    /// Chunks of one page with one event.
    pub(crate) fn chunks(compression: Compression, count: u32) -> Vec<Vec<u8>> {
        let mut compressor = ChunkCompressor::new(compression, Endian::Little).unwrap();
        (0..count).map(|seed| compressor.compress(&page(seed)).unwrap().to_vec()).collect()
    }

    fn verify(compression: Compression, bytes: &[u8]) -> SegmentContent {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        measure(&file, Path::new("segment"), compression, Look::Verify, &|| false).unwrap()
    }

    #[test]
    fn a_damaged_chunk_costs_only_itself() {
        for compression in [ZSTD, Compression::None] {
            let mut all = chunks(compression, 5);
            let lens: Vec<u64> = all.iter().map(|chunk| chunk.len() as u64).collect();
            let at = if compression == ZSTD { CHUNK_HEADER } else { 0 };
            all[2][at..].fill(0xff);
            let content = verify(compression, &all.concat());
            let (before, after) = (lens[0] + lens[1], lens[3] + lens[4]);
            assert_eq!(content.ranges, [(0, before), (before + lens[2], after)]);
            assert_eq!((content.chunks, content.events, content.unreadable), (4, 4, lens[2]));
            assert!(content.damaged);
        }
    }

    #[test]
    fn a_damaged_header_costs_its_chunk_and_no_other() {
        let mut all = chunks(ZSTD, 40);
        let lens: Vec<u64> = all.iter().map(|chunk| chunk.len() as u64).collect();
        // The second half of one and the header of the next, as one bad sector does it.
        let half = all[2].len() / 2;
        all[2][half..].fill(0xff);
        all[3][..10].fill(0xff);
        let content = verify(ZSTD, &all.concat());
        assert_eq!((content.chunks, content.events), (38, 38));
        assert_eq!(content.unreadable, lens[2] + lens[3]);
        assert!(content.damaged);
        // Without a verification, where the sizes are followed.
        let mut sizes = chunks(ZSTD, 40);
        sizes[3][..8].fill(0xff);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&sizes.concat(), 0).unwrap();
        let content = measure(&file, Path::new("segment"), ZSTD, Look::Sizes, &|| false).unwrap();
        assert_eq!((content.chunks, content.unreadable, content.damaged), (39, lens[3], true));
        // A search goes past windows, and past what only looks like a chunk.
        let mut far = all[..2].concat();
        far.resize(far.len() + 100_000, 0xff);
        far.extend([0, 0, 0, 0, 0, 16, 0, 0, 0x28, 0xb5, 0x2f, 0xfd]);
        far.extend([30, 0, 0, 0, 0, 16, 0, 0, 0x28, 0xb5, 0x2f, 0xfd]);
        far.resize(far.len() + 65_000, 0xff);
        far.extend(all[4..].concat());
        let content = verify(ZSTD, &far);
        assert_eq!((content.chunks, content.events, content.damaged), (38, 38, true));
    }

    /// A record whose length does not count its own word ends the page for readers: what is after it was not
    /// recovered.
    #[test]
    fn events_that_no_reader_sees_are_not_counted() {
        for compression in [ZSTD, Compression::None] {
            let mut bad = page(7);
            // The length of a long record, and another record.
            let after = bad[16..24].to_vec();
            bad[8] = 16;
            bad[16..24].copy_from_slice(&[0; 8]);
            bad[24..32].copy_from_slice(&after);
            let mut compressor = ChunkCompressor::new(compression, Endian::Little).unwrap();
            let bytes =
                [page(6), bad, page(8)].map(|page| compressor.compress(&page).unwrap().to_vec()).concat();
            let content = verify(compression, &bytes);
            assert_eq!((content.events, content.pages, content.damaged), (2, 2, true));
        }
    }

    #[test]
    fn a_cut_short_chunk_is_no_damage() {
        for compression in [ZSTD, Compression::None] {
            let bytes = chunks(compression, 3).concat();
            let content = verify(compression, &bytes[..bytes.len() - 5]);
            assert_eq!((content.chunks, content.events, content.damaged), (2, 2, false));
            let whole = verify(compression, &bytes);
            assert_eq!((whole.chunks, whole.unreadable, whole.damaged), (3, 0, false));
            // An empty page is a page, so that this shows in chunks only.
            if compression == ZSTD {
                let long = verify(compression, &[&bytes[..], &vec![0; 2 * CHUNK_MAX]].concat());
                assert_eq!((long.chunks, long.damaged), (3, true));
            }
        }
    }
}
