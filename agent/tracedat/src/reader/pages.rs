//! The pages of one CPU, wherever they are: in memory, in a file, in chunks.

use std::ops::Range;

use super::super::compress::{Codec, Decompressor};
use super::super::page::{PageHeader, PageLayout};
use super::cursor::Cursor;
use super::error::ReadError;
use super::file::{BufferInfo, FileHeader};
use super::option::CpuExtent;
use super::source::Source;
use super::v7::{MAX_CHUNK, check_codec};

/// Bytes that are read at once from a file without compression.
const READ_AHEAD: u64 = 128 << 10;
/// Bytes that compressed data have at most beside twice what they were made from.
const MAX_OVERHEAD: u64 = 64 << 10;
/// Who may keep less than this also gives the decompressor's tables back, which have 150 KB.
const KEEPS_TABLES: u64 = 256 << 10;

/// The pages of one CPU, in the order of the file.
///
/// One chunk is in memory at a time, so that neighbouring pages cost one decompression; of a chunk that is
/// longer than what `keep` allows, a part. Of a source in memory, pages that are not compressed are not
/// copied.
#[derive(Debug)]
pub struct CpuPages<'r> {
    source: &'r dyn DebugSource,
    /// All bytes of the source, if pages are taken from there.
    mapped: Option<&'r [u8]>,
    layout: PageLayout,
    extent: CpuExtent,
    /// Where the data end, at the latest.
    end: u64,
    pages: u64,
    chunks: Chunks,
    /// What is wrong with the data after the last page; it is reported once.
    tail: Option<ReadError>,
    decompressor: Decompressor,
    packed: Vec<u8>,
    buffer: Vec<u8>,
    /// The pages that are in `buffer`, and how many bytes these are.
    loaded: Range<u64>,
    loaded_len: usize,
    /// The pages of the chunk that could not be read last.
    broken: Range<u64>,
    /// Bytes of pages that are kept, at most, but for a page.
    keep: u64,
}

/// A source that can be part of a type with `Debug`.
pub(crate) trait DebugSource: Sync {
    fn get(&self) -> &dyn Source;
}

impl<S: Source> DebugSource for S {
    fn get(&self) -> &dyn Source {
        self
    }
}

impl std::fmt::Debug for dyn DebugSource + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// Where pages are found.
#[derive(Debug)]
enum Chunks {
    /// One after the other.
    Plain,
    /// In compressed chunks.
    Packed(Vec<Chunk>),
}

/// A compressed chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Where its compressed bytes are.
    offset: u64,
    packed: u32,
    plain: u32,
    first_page: u64,
}

/// A compressed chunk as it stands in the file.
#[derive(Clone, Debug)]
pub(crate) struct PackedChunk {
    /// The pages that are in it.
    pub(crate) pages: Range<u64>,
    /// Where it begins, with its sizes.
    pub(crate) offset: u64,
    /// Its bytes, those of its sizes included.
    pub(crate) len: u64,
}

/// A page and what its header says.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Its header.
    pub header: PageHeader,
    /// The events, as the page has them; see [`EventCursor`](super::super::page::EventCursor).
    pub data: &'a [u8],
}

impl<'r> CpuPages<'r> {
    pub(crate) fn open(
        source: &'r dyn DebugSource,
        file_len: u64,
        header: &FileHeader,
        buffer: &BufferInfo,
        extent: CpuExtent,
    ) -> Result<Self, ReadError> {
        let codec = header.codec;
        check_codec(buffer.compressed, codec, extent.offset)?;
        // Recorders before version 3.2 leave the 4 bytes of the chunk count out of the size of compressed
        // data.
        let slack = if buffer.compressed { 4 } else { 0 };
        let end = extent.offset.saturating_add(extent.size).saturating_add(slack).min(file_len);
        let decompressor = Decompressor::new(codec);
        let mut pages = Self { extent, end, decompressor, ..Self::none(source, buffer) };
        if buffer.compressed {
            pages.find_chunks(codec, header)?;
        } else {
            pages.mapped = source.get().bytes();
            let bytes = end.saturating_sub(extent.offset);
            pages.pages = bytes.div_ceil(pages.page_size());
            if bytes < extent.size {
                let (what, offset) = ("the data of a CPU", extent.offset);
                pages.tail = Some(ReadError::Short { what, offset, wanted: extent.size, left: bytes });
            }
        }
        Ok(pages)
    }

    /// The pages of a CPU that has none.
    pub(crate) fn none(source: &'r dyn DebugSource, buffer: &BufferInfo) -> Self {
        Self {
            source,
            mapped: None,
            layout: buffer.layout,
            extent: CpuExtent::default(),
            end: 0,
            pages: 0,
            chunks: Chunks::Plain,
            tail: None,
            decompressor: Decompressor::new(Codec::None),
            packed: Vec::new(),
            buffer: Vec::new(),
            loaded: 0..0,
            loaded_len: 0,
            broken: 0..0,
            keep: MAX_CHUNK,
        }
    }

    /// Layout: u32 number of chunks; each u32 compressed size, u32 uncompressed size, bytes.
    ///
    /// Only the sizes are read. Chunks that cannot be end the list; the pages before them can be read.
    fn find_chunks(&mut self, codec: Codec, header: &FileHeader) -> Result<(), ReadError> {
        let what = "a chunk of trace data";
        let mut cursor = Cursor::new(self.source.get(), header.endian, self.extent.offset, self.end);
        let count = cursor.u32("the number of chunks")?;
        let mut chunks = Vec::new();
        for _ in 0..count {
            let offset = cursor.at();
            let mut next = || {
                let (packed, plain) = (cursor.u32(what)?, cursor.u32(what)?);
                let chunk = Chunk { offset: cursor.at(), packed, plain, first_page: self.pages };
                let limit = MAX_CHUNK.min(codec.bound(packed.into()));
                if u64::from(plain) > limit {
                    return Err(ReadError::TooBig { what, offset, size: plain.into(), limit });
                }
                // Compressed data that are longer than what they were made from are so by a few bytes.
                let limit = u64::from(plain) * 2 + MAX_OVERHEAD;
                if u64::from(packed) > limit {
                    return Err(ReadError::TooBig { what, offset, size: packed.into(), limit });
                }
                cursor.skip(what, packed.into())?;
                Ok(chunk)
            };
            match next() {
                Ok(chunk) => {
                    self.pages += u64::from(chunk.plain).div_ceil(self.layout.page_size.into());
                    chunks.push(chunk);
                }
                Err(error) => {
                    self.tail = Some(error);
                    break;
                }
            }
        }
        self.chunks = Chunks::Packed(chunks);
        Ok(())
    }

    /// Keeps no more than so many bytes of pages in memory, but for one page. Longer chunks are then
    /// decompressed again and again, as often as it takes.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.keep = bytes;
    }

    fn page_size(&self) -> u64 {
        self.layout.page_size.into()
    }

    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.pages
    }

    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// The layout of the pages.
    pub fn layout(&self) -> PageLayout {
        self.layout
    }

    /// What is wrong with the data after the last page, if the file was cut off or is damaged there. It is
    /// reported once.
    pub fn take_tail_error(&mut self) -> Option<ReadError> {
        self.tail.take()
    }

    /// A page, by its index among the CPU's pages. Order costs: going through pages one after the other
    /// decompresses each chunk once.
    ///
    /// # Errors
    /// The chunk cannot be read or decompressed, or the page has a wrong header. Other pages can still be
    /// asked for.
    pub fn page(&mut self, index: u64) -> Result<Page<'_>, ReadError> {
        let (header, data) = self.locate(index)?;
        Ok(Page { header, data: self.bytes().get(data).unwrap_or_default() })
    }

    /// The bytes that ranges of [`locate`](Self::locate) are in.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.mapped {
            Some(bytes) => bytes,
            None => &self.buffer,
        }
    }

    /// Reads a page, and returns where its events are in [`bytes`](Self::bytes) until the next call.
    pub(crate) fn locate(&mut self, index: u64) -> Result<(PageHeader, Range<usize>), ReadError> {
        let page = if let (Chunks::Plain, Some(bytes)) = (&self.chunks, self.mapped) {
            let start = index.saturating_mul(self.page_size()).saturating_add(self.extent.offset);
            let end = start.saturating_add(self.page_size()).min(self.end).min(bytes.len() as u64);
            start.min(end) as usize..end as usize
        } else {
            if !self.loaded.contains(&index) {
                self.load(index)?;
            }
            let start = index.saturating_sub(self.loaded.start).saturating_mul(self.page_size());
            let end = start.saturating_add(self.page_size()).min(self.loaded_len as u64);
            start.min(end) as usize..end as usize
        };
        let bytes = self.bytes().get(page.clone()).unwrap_or_default();
        let header = self.layout.header(bytes).map_err(|source| self.page_error(index, source))?;
        let start = page.start + self.layout.data_at as usize;
        Ok((header, start..start + header.data_len))
    }

    /// All bytes of the page that was located last, whose events are in the range `data`. The last page of a
    /// file that was cut off is shorter than the others.
    pub(crate) fn whole(&self, data: &Range<usize>) -> &[u8] {
        let start = data.start.saturating_sub(self.layout.data_at as usize);
        let end = if self.mapped.is_some() { self.end as usize } else { self.loaded_len };
        self.bytes().get(start..end.min(start + self.layout.page_size as usize)).unwrap_or_default()
    }

    /// The compressed chunk that a page is in; `None` of pages that are not compressed.
    pub(crate) fn packed_chunk(&self, page: u64) -> Option<PackedChunk> {
        let Chunks::Packed(chunks) = &self.chunks else { return None };
        let Chunk { offset, packed, plain, first_page } = self.chunk_of(chunks, page)?;
        let pages = first_page..first_page + u64::from(plain).div_ceil(self.page_size());
        let header = super::super::compress::BLOCK_HEADER_LEN as u64;
        pages.contains(&page).then_some(PackedChunk {
            pages,
            offset: offset - header,
            len: header + u64::from(packed),
        })
    }

    /// Bytes of the file that are gone with a page: those of its chunk, or its own.
    pub(crate) fn stored(&self, page: u64) -> (u64, u64) {
        if let Some(chunk) = self.packed_chunk(page) {
            return (chunk.offset, chunk.len);
        }
        let offset = self.extent.offset.saturating_add(page.saturating_mul(self.page_size()));
        (offset, self.page_size().min(self.end.saturating_sub(offset)))
    }

    /// The pages that are lost with a page that could not be read: all of a chunk, or that page. Who went on
    /// with the next page of a damaged chunk would decompress it in vain once per page.
    pub(crate) fn lost_with(&self, page: u64) -> Range<u64> {
        if self.broken.contains(&page) { self.broken.clone() } else { page..page + 1 }
    }

    /// An error of a page.
    pub(crate) fn page_error(&self, page: u64, source: super::super::page::PageError) -> ReadError {
        let (offset, _) = self.file_offset(page);
        ReadError::Page { cpu: self.extent.cpu, page, offset, source }
    }

    /// Where a page is in the file; of a compressed one, where the bytes of its chunk are, and where the page
    /// is in what comes out of them.
    pub(crate) fn file_offset(&self, page: u64) -> (u64, Option<u64>) {
        match &self.chunks {
            Chunks::Plain => (self.extent.offset.saturating_add(page.saturating_mul(self.page_size())), None),
            Chunks::Packed(chunks) => match self.chunk_of(chunks, page) {
                Some(chunk) => (chunk.offset, Some((page - chunk.first_page) * self.page_size())),
                None => (self.extent.offset, Some(0)),
            },
        }
    }

    /// The chunk that a page is in.
    #[expect(clippy::unused_self, reason = "it belongs to the pages")]
    fn chunk_of(&self, chunks: &[Chunk], page: u64) -> Option<Chunk> {
        let behind = chunks.partition_point(|chunk| chunk.first_page <= page);
        chunks.get(behind.checked_sub(1)?).copied()
    }

    /// Brings the page into the buffer, with its neighbours.
    fn load(&mut self, index: u64) -> Result<(), ReadError> {
        self.loaded = 0..0;
        self.loaded_len = 0;
        let page_size = self.page_size();
        let what = "trace data";
        let io = |offset| move |source| ReadError::Io { what, offset, source };
        match &self.chunks {
            Chunks::Plain => {
                let group = (READ_AHEAD.min(self.keep) / page_size).max(1);
                let first = index / group * group;
                let offset = self.extent.offset.saturating_add(first.saturating_mul(page_size));
                let len = (group * page_size).min(self.end.saturating_sub(offset)) as usize;
                if self.buffer.len() < len {
                    self.buffer.resize(len, 0);
                }
                let buffer = &mut self.buffer[..len];
                self.source.get().read_exact_at(buffer, offset).map_err(io(offset))?;
                self.loaded = first..first + (len as u64).div_ceil(page_size);
                self.loaded_len = len;
            }
            Chunks::Packed(chunks) => {
                let Some(chunk) = self.chunk_of(chunks, index) else { return Ok(()) };
                let pages = chunk.first_page..chunk.first_page + u64::from(chunk.plain).div_ceil(page_size);
                // Until it is whole.
                self.broken = pages.clone();
                let Chunk { offset, packed, plain, first_page: _ } = chunk;
                let packed_len = packed as usize;
                let whole = u64::from(plain) <= self.keep.max(page_size);
                let (mut part_packed, mut part) = (Vec::new(), Vec::new());
                let (space, out) =
                    if whole { (&mut self.packed, &mut self.buffer) } else { (&mut part_packed, &mut part) };
                let packed = if let Some(bytes) = self.source.get().bytes() {
                    bytes.get(offset as usize..).and_then(|bytes| bytes.get(..packed_len))
                } else {
                    if space.len() < packed_len {
                        space.resize(packed_len, 0);
                    }
                    let packed = &mut space[..packed_len];
                    self.source.get().read_exact_at(packed, offset).map_err(io(offset))?;
                    Some(&*packed)
                };
                let result = self.decompressor.decompress(packed.unwrap_or_default(), plain as usize, out);
                if self.keep < KEEPS_TABLES {
                    self.decompressor.forget();
                    self.packed = Vec::new();
                }
                if let Err(source) = result {
                    // A size that was a lie must not keep its memory.
                    self.buffer = Vec::new();
                    return Err(ReadError::Decompress { what, offset, source });
                }
                if !whole {
                    let group = (self.keep / page_size).max(1);
                    let first = (index - pages.start) / group * group;
                    let start = (first * page_size).min(part.len() as u64) as usize;
                    let end = ((first + group) * page_size).min(plain.into()) as usize;
                    let kept = part.as_slice().get(start..end).unwrap_or_default();
                    self.buffer.clear();
                    self.buffer.extend_from_slice(kept);
                    self.broken = 0..0;
                    self.loaded = pages.start + first..(pages.start + first + group).min(pages.end);
                    self.loaded_len = kept.len();
                    return Ok(());
                }
                self.broken = 0..0;
                self.loaded = pages;
                self.loaded_len = plain as usize;
            }
        }
        Ok(())
    }
}
