//! Reading the spool's data back: how much of a segment file is whole.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use agent_ebpf::PAGE_SIZE;

use super::{SpoolError, drain::CHUNK_PAGES};
use crate::tracedat::{Compression, Endian, page};

/// Bytes before a chunk's data: compressed and uncompressed size (trace-cmd.dat.v7(5), COMPRESSION FORMAT OF THE TRACE
/// DATA).
const CHUNK_HEADER: usize = 8;
/// The most that a chunk of ours holds.
const CHUNK_MAX: usize = CHUNK_PAGES as usize * PAGE_SIZE;

/// What is whole in a segment file. Bytes behind it are a chunk that a crash or a full disk cut short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentContent {
    /// Bytes of whole chunks, or of whole pages without compression.
    pub len: u64,
    /// Chunks; pages without compression.
    pub chunks: u32,
    /// Pages. Known only from a verification.
    pub pages: u64,
    /// Events. Known only from a verification.
    pub events: u64,
    /// Events lost before the pages, as the pages' marks tell. Known only from a verification.
    pub missed: u64,
    /// Bytes behind the whole chunks.
    pub unreadable: u64,
}

/// How closely a segment is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Follow the sizes: for data that this process wrote.
    Sizes,
    /// Decompress everything and count the events: for data that a crash left behind.
    Verify,
}

/// Measures the whole chunks at the start of a segment.
pub(super) fn measure(
    file: &File,
    path: &Path,
    compression: Compression,
    look: Look,
) -> Result<SegmentContent, SpoolError> {
    let read_error = |error| SpoolError::io("read", path)(error);
    let size = file.metadata().map_err(read_error)?.len();
    let mut content = SegmentContent::default();
    let mut buffer = Vec::new();
    let mut pages = Vec::new();
    loop {
        let left = size - content.len;
        let (at, len) = match compression {
            Compression::None => {
                (content.len, left.min(CHUNK_MAX as u64) / PAGE_SIZE as u64 * PAGE_SIZE as u64)
            }
            Compression::Zstd { .. } => match chunk_sizes(file, content.len, left).map_err(read_error)? {
                Some(compressed) => (content.len + CHUNK_HEADER as u64, compressed),
                None => break,
            },
        };
        if len == 0 {
            break;
        }
        if look == Look::Verify {
            buffer.resize(len as usize, 0);
            file.read_exact_at(&mut buffer, at).map_err(read_error)?;
            let Some((events, missed)) = unpack(compression, &buffer, &mut pages) else { break };
            content.events += events;
            content.missed += missed;
            content.pages += (pages.len() / PAGE_SIZE) as u64;
        }
        content.len = at + len;
        content.chunks += match compression {
            Compression::None => (len / PAGE_SIZE as u64) as u32,
            Compression::Zstd { .. } => 1,
        };
    }
    content.unreadable = size - content.len;
    Ok(content)
}

/// The compressed size of the chunk at `at`, if it is all there. Zeros are what a power cut leaves in place of data that
/// never reached the disk.
fn chunk_sizes(file: &File, at: u64, left: u64) -> io::Result<Option<u64>> {
    if left < CHUNK_HEADER as u64 {
        return Ok(None);
    }
    let mut header = [0_u8; CHUNK_HEADER];
    file.read_exact_at(&mut header, at)?;
    let [c0, c1, c2, c3, u0, u1, u2, u3] = header;
    let compressed = u64::from(Endian::Little.read_u32([c0, c1, c2, c3]));
    let uncompressed = Endian::Little.read_u32([u0, u1, u2, u3]) as usize;
    let sane = uncompressed != 0
        && uncompressed <= CHUNK_MAX
        && uncompressed.is_multiple_of(PAGE_SIZE)
        && compressed != 0
        && compressed <= left - CHUNK_HEADER as u64
        // Compression never makes a chunk this much larger.
        && compressed <= 2 * CHUNK_MAX as u64;
    Ok(sane.then_some(compressed))
}

/// Decompresses a chunk into `pages` and counts its events and those missed before them; `None` if it is damaged.
fn unpack(compression: Compression, chunk: &[u8], pages: &mut Vec<u8>) -> Option<(u64, u64)> {
    pages.clear();
    match compression {
        Compression::None => pages.extend_from_slice(chunk),
        Compression::Zstd { .. } => {
            *pages = zstd::bulk::decompress(chunk, CHUNK_MAX).ok()?;
        }
    }
    if pages.is_empty() || !pages.len().is_multiple_of(PAGE_SIZE) {
        return None;
    }
    let (mut events, mut missed) = (0, 0);
    for one in pages.chunks_exact(PAGE_SIZE) {
        events += page::count_events(one, Endian::Little)?;
        missed += page::PageHeader::read(one, Endian::Little).ok()?.missed.unwrap_or_default();
    }
    Some((events, missed))
}
