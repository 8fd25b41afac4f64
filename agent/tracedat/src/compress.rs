//! Compression: the block of a metadata section and the chunk of trace data.
//!
//! Both are u32 compressed size, u32 uncompressed size, data (trace-cmd.dat.v7(5), COMPRESSION FORMAT OF THE
//! FILE SECTIONS and COMPRESSION FORMAT OF THE TRACE DATA). For writing only zstd is offered: common readers
//! are built without zlib and then refuse the whole file. Both are read.

use std::{fmt, str::FromStr};

use ftrace_event::endian::Endian;

/// Bytes before the data of a block or chunk: u32 compressed size, u32 uncompressed size.
pub const BLOCK_HEADER_LEN: usize = 8;

/// How a file's sections and trace data are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all: trace data are pages that readers can map.
    None,
    /// With zstd.
    Zstd {
        /// zstd's level, 1 to 22; also the negative ones.
        level: i32,
        /// Whether a recorder stores pages with next to no effort ([`ChunkCompressor::hurry`]) while more
        /// than half of a ring waits to be stored. Nothing of it is in a file.
        by_load: bool,
    },
}

impl Default for Compression {
    fn default() -> Self {
        Self::zstd(Self::DEFAULT_LEVEL)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zstd { by_load: true, .. } => f.write_str(AUTO),
            Self::Zstd { level, .. } if *level != Self::DEFAULT_LEVEL => {
                write!(f, "{}:{level}", self.name())
            }
            _ => f.write_str(self.name()),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    /// Reads `none`, `zstd`, `zstd:LEVEL` with the levels that are of use, or `auto`.
    fn from_str(text: &str) -> Result<Self, String> {
        let level = match text.split_once(':') {
            None if text == "none" => return Ok(Self::None),
            None if text == "zstd" => return Ok(Self::default()),
            None if text == AUTO => {
                return Ok(Self::Zstd { level: Self::DEFAULT_LEVEL, by_load: true });
            }
            Some(("zstd", level)) => level,
            _ if text.starts_with("zlib") => {
                return Err(
                    "zlib is not written, because Debian's trace-cmd cannot read it; use zstd".to_owned()
                );
            }
            _ => return Err("expected none, zstd, zstd:LEVEL or auto".to_owned()),
        };
        match level.parse() {
            Ok(level @ 1..=19) => Ok(Self::zstd(level)),
            _ => Err("the level of zstd is a number from 1 (fastest) to 19 (smallest)".to_owned()),
        }
    }
}

/// Compression failed: the level is not one of zstd's, or the input does not fit a 32-bit size.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    /// zstd refused.
    #[error("zstd: {0}")]
    Zstd(#[source] std::io::Error),
    /// A block or chunk has 32-bit sizes.
    #[error("{len} bytes do not fit the 32-bit size of a compressed block")]
    TooLong {
        /// Bytes that were to be compressed.
        len: usize,
    },
}

/// What is as much effort as there is time for.
const AUTO: &str = "auto";

impl Compression {
    /// With zstd at this level, whatever the load.
    pub const fn zstd(level: i32) -> Self {
        Self::Zstd { level, by_load: false }
    }

    /// Whether the effort depends on the load.
    pub const fn is_by_load(self) -> bool {
        matches!(self, Self::Zstd { by_load: true, .. })
    }

    /// The level that a recorder should use by default.
    ///
    /// On pages of system calls, scheduling and stacks, in chunks of 16, level 1 is within 5 % of level 3 or
    /// better (ratios 8 to 24) and a fifth faster; levels above 4 gain 5 to 20 % at a sixth of the speed or
    /// less. Kernel symbols come out at the same size with levels 1 and 3.
    pub const DEFAULT_LEVEL: i32 = 1;

    /// The name that stands for it in the file header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zstd { .. } => "zstd",
        }
    }

    /// The version that follows the name in the file header; empty for no compression. Readers ignore it for
    /// zstd.
    pub fn version(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Zstd { .. } => zstd::zstd_safe::version_string().to_owned(),
        }
    }

    /// Compresses the body of a metadata section into a block, header included. `None` if this is no
    /// compression.
    pub fn block(self, endian: Endian, body: &[u8]) -> Result<Option<Vec<u8>>, CompressError> {
        match self {
            Self::None => Ok(None),
            Self::Zstd { .. } => {
                let mut compressor = ChunkCompressor::new(self, endian)?;
                compressor.compress(body)?;
                Ok(Some(compressor.into_buffer()))
            }
        }
    }
}

/// Turns runs of pages into the bytes that a spool file and, later, the trace data of a CPU hold.
///
/// It keeps the compressor's state and its output buffer, because reader threads call it all the time while
/// recording.
pub struct ChunkCompressor {
    endian: Endian,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    level: i32,
    hurries: bool,
    finder: Finder,
    /// The chunk made last; longer than the chunk after a call that compressed more.
    buffer: Vec<u8>,
    chunk_len: usize,
    /// The same chunk as another match finder makes it, while they are compared.
    other: Vec<u8>,
}

/// How zstd looks for what it has seen before (`ZSTD_strategy`, zstd.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Finder {
    /// `ZSTD_fast`: by the next 7 bytes.
    #[default]
    Fast,
    /// `ZSTD_dfast`: by the next 8 bytes, and where they are new by the next 5. It takes longer for each byte
    /// that is new, and finds longer matches where records differ in a few bytes each.
    DoubleFast,
}

/// Which match finder suits the pages of a stream. On records of a single event, as those of switches, the
/// slower one makes files a third smaller, and as it then has less to encode, in two thirds of the time. On
/// those of many events it gains nothing. So both are tried now and then.
#[derive(Clone, Debug, Default)]
pub struct FinderChoice {
    finder: Finder,
    /// Chunks until both are tried again.
    left: u32,
    /// How many chunks these were.
    interval: u32,
}

impl FinderChoice {
    const FIRST_INTERVAL: u32 = 4;
    const LONGEST_INTERVAL: u32 = 64;

    /// Notes what was found, and when to look again: later, the more often it was the same.
    fn found(&mut self, finder: Finder) {
        let is_new = finder != self.finder || self.interval == 0;
        self.interval =
            if is_new { Self::FIRST_INTERVAL } else { (2 * self.interval).min(Self::LONGEST_INTERVAL) };
        (self.finder, self.left) = (finder, self.interval);
    }
}

impl ChunkCompressor {
    /// A compressor for chunks of a file with this compression and byte order.
    pub fn new(compression: Compression, endian: Endian) -> Result<Self, CompressError> {
        let (zstd, level) = match compression {
            Compression::None => (None, 0),
            Compression::Zstd { level, .. } => (Some(compressor(level).map_err(CompressError::Zstd)?), level),
        };
        Ok(Self {
            endian,
            zstd,
            level,
            hurries: false,
            finder: Finder::default(),
            buffer: Vec::new(),
            chunk_len: 0,
            other: Vec::new(),
        })
    }

    /// Whether chunks are made with next to no effort from now on, or as the compression says again. They are
    /// larger then, and read as all others.
    pub fn hurry(&mut self, hurries: bool) -> Result<(), CompressError> {
        if self.hurries == hurries {
            return Ok(());
        }
        // Levels below 1 are those of this match finder.
        self.find_by(Finder::Fast)?;
        if let Some(zstd) = &mut self.zstd {
            let level = if hurries { *zstd::compression_level_range().start() } else { self.level };
            zstd.set_compression_level(level).map_err(CompressError::Zstd)?;
            if !hurries {
                tune(zstd, level, Finder::Fast).map_err(CompressError::Zstd)?;
            }
        }
        self.hurries = hurries;
        Ok(())
    }

    /// Has the match finder of the default level be this one.
    fn find_by(&mut self, finder: Finder) -> Result<(), CompressError> {
        if self.finder != finder
            && let Some(zstd) = &mut self.zstd
        {
            tune(zstd, self.level, finder).map_err(CompressError::Zstd)?;
        }
        self.finder = finder;
        Ok(())
    }

    /// [`ChunkCompressor::compress`] for the next pages of a stream, with the match finder that suits it,
    /// where the compression leaves that open.
    pub fn compress_stream<'a>(
        &'a mut self,
        pages: &'a [u8],
        choice: &mut FinderChoice,
    ) -> Result<&'a [u8], CompressError> {
        if self.zstd.is_none() || self.hurries || self.level != Compression::DEFAULT_LEVEL {
            return self.compress(pages);
        }
        if let Some(left) = choice.left.checked_sub(1) {
            choice.left = left;
            self.find_by(choice.finder)?;
            return self.compress(pages);
        }
        self.find_by(Finder::DoubleFast)?;
        let double = self.compress(pages)?.len();
        std::mem::swap(&mut self.buffer, &mut self.other);
        self.find_by(Finder::Fast)?;
        let fast = self.compress(pages)?.len();
        // It is the faster one, too, from about here on.
        if double < fast - fast / 8 {
            std::mem::swap(&mut self.buffer, &mut self.other);
            self.chunk_len = double;
            choice.found(Finder::DoubleFast);
        } else {
            choice.found(Finder::Fast);
        }
        Ok(&self.buffer[..self.chunk_len])
    }

    /// The chunk that holds `pages` (usually [`CHUNK_PAGES`](super::layout::CHUNK_PAGES) of them), with its
    /// 8-byte header.
    ///
    /// With [`Compression::None`] there are no chunks in a file, and the pages themselves come back. So
    /// whatever the compression is: the results, joined, are what
    /// [`BufferWriter::copy_cpu`](super::BufferWriter::copy_cpu) wants.
    pub fn compress<'a>(&'a mut self, pages: &'a [u8]) -> Result<&'a [u8], CompressError> {
        let Some(zstd) = &mut self.zstd else {
            return Ok(pages);
        };
        let too_long = || CompressError::TooLong { len: pages.len() };
        let plain_len = u32::try_from(pages.len()).map_err(|_| too_long())?;
        let bound = BLOCK_HEADER_LEN + zstd::zstd_safe::compress_bound(pages.len());
        if self.buffer.len() < bound {
            self.buffer.resize(bound, 0);
        }
        let (header, data) = self.buffer.split_at_mut(BLOCK_HEADER_LEN);
        let len = zstd.compress_to_buffer(pages, data).map_err(CompressError::Zstd)?;
        let packed_len = u32::try_from(len).map_err(|_| too_long())?;
        let (packed_at, plain_at) = header.split_at_mut(4);
        packed_at.copy_from_slice(&self.endian.u32(packed_len));
        plain_at.copy_from_slice(&self.endian.u32(plain_len));
        self.chunk_len = BLOCK_HEADER_LEN + len;
        Ok(&self.buffer[..self.chunk_len])
    }

    /// The buffer, cut to the chunk made last.
    fn into_buffer(mut self) -> Vec<u8> {
        self.buffer.truncate(self.chunk_len);
        self.buffer.shrink_to_fit();
        self.buffer
    }
}

/// A compressor of this level, tuned for pages where the level leaves room.
///
/// Records are dozens of bytes and repeat as a whole. Level 1 looks for matches of 6 bytes, which finds the
/// same ones in smaller pieces; with 7 the result is 0 to 4 % smaller, and there are fewer pieces to encode.
/// A smaller table is cleared faster for each chunk, and finds as much.
fn compressor(level: i32) -> std::io::Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    tune(&mut compressor, level, Finder::default())?;
    // Without it, damaged pages may come out that cannot be distinguished from others. It is 4 bytes a frame.
    compressor.include_checksum(true)?;
    Ok(compressor)
}

fn tune(compressor: &mut zstd::bulk::Compressor<'_>, level: i32, finder: Finder) -> std::io::Result<()> {
    use zstd::zstd_safe::{CParameter, Strategy};
    if level != Compression::DEFAULT_LEVEL {
        return Ok(());
    }
    let (strategy, min_match, hash_log) = match finder {
        Finder::Fast => (Strategy::ZSTD_fast, 7, 12),
        Finder::DoubleFast => (Strategy::ZSTD_dfast, 5, 11),
    };
    compressor.set_parameter(CParameter::Strategy(strategy))?;
    compressor.set_parameter(CParameter::MinMatch(min_match))?;
    compressor.set_parameter(CParameter::HashLog(hash_log))?;
    // The second table of `ZSTD_dfast`; the other one has none.
    compressor.set_parameter(CParameter::ChainLog(11))
}

impl fmt::Debug for ChunkCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCompressor")
            .field("endian", &self.endian)
            .field("zstd", &self.zstd.is_some())
            .finish_non_exhaustive()
    }
}

/// What the data of a file that is read are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// With nothing.
    None,
    /// With zstd.
    Zstd,
    /// With zlib.
    Zlib,
}

/// Compressed bytes that are not what they are said to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// A compressed part in a file that is said to have none.
    #[error("the file header names no compression")]
    NoCodec,
    /// More than this compression can get out of so few bytes, so that the size must be wrong.
    #[error("{plain} bytes cannot come out of {packed}")]
    Ratio {
        /// Size as compressed.
        packed: u64,
        /// Size as it is said to be uncompressed.
        plain: u64,
    },
    /// zstd refused.
    #[error("zstd: {0}")]
    Zstd(#[source] std::io::Error),
    /// zlib refused.
    #[error("zlib: {0}")]
    Zlib(String),
    /// It came out longer or shorter than it was said to be.
    #[error("{found} bytes came out, {said} were expected")]
    Length {
        /// Size that is said in the file.
        said: usize,
        /// Size that it has.
        found: usize,
    },
}

impl Codec {
    /// The codec of this name in a file header; `None` if it is not known.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "" | "none" => Some(Self::None),
            "zstd" => Some(Self::Zstd),
            "zlib" => Some(Self::Zlib),
            _ => None,
        }
    }

    /// The name that stands for it in the file header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zstd => "zstd",
            Self::Zlib => "zlib",
        }
    }

    /// Most bytes that can come out of `packed` bytes.
    ///
    /// A zstd block of 128 KiB takes 4 bytes at least (3 of header, 1 to repeat); deflate has 258 bytes for 2
    /// bits. This keeps a few wrong bytes in a small file from asking for memory that could never be filled.
    pub(crate) const fn bound(self, packed: u64) -> u64 {
        match self {
            Self::None => packed,
            Self::Zstd => (packed + 4).saturating_mul(1 << 15),
            Self::Zlib => (packed + 4).saturating_mul(1032),
        }
    }
}

/// Turns blocks and chunks back into what they were made from.
pub struct Decompressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// A compressor for this codec.
    pub fn new(codec: Codec) -> Self {
        Self { codec, zstd: None }
    }

    /// Gives the memory back that is kept from one call to the next.
    pub(crate) fn forget(&mut self) {
        self.zstd = None;
    }

    /// Decompresses `packed` into the first `plain_len` bytes of `out`, which grows if it must and never
    /// shrinks. The caller has bounded `plain_len`.
    pub fn decompress(
        &mut self,
        packed: &[u8],
        plain_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecompressError> {
        let (said, plain) = (plain_len, plain_len as u64);
        if self.codec == Codec::None {
            return Err(DecompressError::NoCodec);
        }
        if plain > self.codec.bound(packed.len() as u64) {
            return Err(DecompressError::Ratio { packed: packed.len() as u64, plain });
        }
        if out.len() < plain_len {
            out.resize(plain_len, 0);
        }
        let plain = &mut out[..plain_len];
        let found = match self.codec {
            Codec::None => return Err(DecompressError::NoCodec),
            Codec::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new().map_err(DecompressError::Zstd)?),
                };
                zstd.decompress_to_buffer(packed, plain).map_err(DecompressError::Zstd)?
            }
            Codec::Zlib => {
                use miniz_oxide::inflate::decompress_slice_iter_to_slice;
                decompress_slice_iter_to_slice(plain, std::iter::once(packed), true, false)
                    .map_err(|status| DecompressError::Zlib(format!("{status:?}")))?
            }
        };
        if found == said { Ok(()) } else { Err(DecompressError::Length { said, found }) }
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").field("codec", &self.codec).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_made_in_a_hurry_are_read_as_others() {
        let pages: Vec<u8> = (0..16 * 4096_u32).map(|at| (at / 7 % 251) as u8).collect();
        let mut compressor = ChunkCompressor::new(Compression::default(), Endian::Little).unwrap();
        let small = compressor.compress(&pages).unwrap().to_vec();
        compressor.hurry(true).unwrap();
        let large = compressor.compress(&pages).unwrap().to_vec();
        compressor.hurry(false).unwrap();
        assert_eq!(compressor.compress(&pages).unwrap(), small, "it goes on as before");
        assert!(large.len() > small.len());
        let read = zstd::bulk::decompress(&large[BLOCK_HEADER_LEN..], pages.len()).unwrap();
        assert_eq!(read, pages);
    }

    /// Records of one event, of which each has a few bytes that are new.
    fn regular(seed: u32) -> Vec<u8> {
        let mut pages = Vec::new();
        let mut state = seed;
        while pages.len() < 16 * 4096 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let names = [b"first\0\0\0\0\0\0\0\0\0\0\0", b"second\0\0\0\0\0\0\0\0\0\0"];
            let (from, to) = (names[pages.len() / 64 % 2], names[(pages.len() / 64 + 1) % 2]);
            // The delta of time, and the length of the record.
            pages.extend_from_slice(&((1500 + (state >> 26)) << 5 | 0x11).to_le_bytes());
            pages.extend_from_slice(&[0x3c, 1, 0, 0, 0x11, 0x22, 0, 0]);
            pages.extend_from_slice(from);
            pages.extend_from_slice(&[0x21, 0x22, 0, 0, 120, 0, 0, 0, 1, 0, 0, 0]);
            pages.extend_from_slice(to);
            pages.extend_from_slice(&[0x22, 0x22, 0, 0, 120, 0, 0, 0]);
        }
        pages.truncate(16 * 4096);
        pages
    }

    #[test]
    fn a_stream_gets_the_match_finder_that_suits_it() {
        let mut compressor = ChunkCompressor::new(Compression::default(), Endian::Little).unwrap();
        let mut choice = FinderChoice::default();
        for seed in 0..20 {
            let pages = regular(seed);
            let as_any = compressor.compress(&pages).unwrap().len();
            let chunk = compressor.compress_stream(&pages, &mut choice).unwrap();
            assert!(seed != 0 || chunk.len() < as_any);
            assert_eq!(zstd::bulk::decompress(&chunk[BLOCK_HEADER_LEN..], pages.len()).unwrap(), pages);
        }
        assert_eq!((choice.finder, choice.interval), (Finder::DoubleFast, 16));
        // What it is like changes, and nothing can be found in it.
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        for _ in 0..40 {
            let pages: Vec<u8> = (0..16 * 4096).map(|_| noise()).collect();
            let chunk = compressor.compress_stream(&pages, &mut choice).unwrap();
            assert_eq!(zstd::bulk::decompress(&chunk[BLOCK_HEADER_LEN..], pages.len()).unwrap(), pages);
        }
        assert_eq!(choice.finder, Finder::Fast);
        // In a hurry nothing is tried, and afterwards it goes on.
        compressor.find_by(Finder::DoubleFast).unwrap();
        compressor.hurry(true).unwrap();
        let pages = regular(1);
        let hurried = compressor.compress_stream(&pages, &mut choice).unwrap().len();
        assert!(hurried > pages.len() / 2, "{hurried}");
        compressor.hurry(false).unwrap();
        assert!(compressor.compress_stream(&pages, &mut choice).unwrap().len() < hurried / 2);
    }

    #[test]
    fn other_compressions_are_as_they_say() {
        for compression in [Compression::None, Compression::zstd(3)] {
            let mut compressor = ChunkCompressor::new(compression, Endian::Little).unwrap();
            let (pages, mut choice) = (regular(3), FinderChoice::default());
            let as_said = compressor.compress(&pages).unwrap().to_vec();
            assert_eq!(compressor.compress_stream(&pages, &mut choice).unwrap(), as_said);
            assert_eq!(choice.interval, 0);
        }
    }

    #[test]
    fn chunk_has_its_sizes_before_the_data() {
        let pages = [7u8; 3 * 4096];
        let mut compressor = ChunkCompressor::new(Compression::default(), Endian::Little).unwrap();
        // The first call leaves a longer buffer behind; the second must not show it.
        compressor.compress(&vec![1u8; 16 * 4096]).unwrap();
        let chunk = compressor.compress(&pages).unwrap();
        let packed = u32::from_le_bytes(chunk[0..4].try_into().unwrap()) as usize;
        assert_eq!(u32::from_le_bytes(chunk[4..8].try_into().unwrap()), 3 * 4096);
        assert_eq!(chunk.len(), 8 + packed);
        assert_eq!(zstd::bulk::decompress(&chunk[8..], pages.len()).unwrap(), pages);
    }

    #[test]
    fn no_compression_has_no_chunks() {
        let mut compressor = ChunkCompressor::new(Compression::None, Endian::Little).unwrap();
        assert_eq!(compressor.compress(b"pages").unwrap(), b"pages");
        assert!(Compression::None.block(Endian::Little, b"body").unwrap().is_none());
    }

    #[test]
    fn block_of_nothing() {
        let block = Compression::default().block(Endian::Big, b"").unwrap().unwrap();
        assert_eq!(u32::from_be_bytes(block[0..4].try_into().unwrap()) as usize, block.len() - 8);
        assert_eq!(block[4..8], [0; 4]);
    }

    #[test]
    fn what_was_compressed_comes_back() {
        let plain: Vec<u8> = (0..40_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let zstd = zstd::bulk::compress(&plain, 1).unwrap();
        let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&plain, 6);
        for (codec, packed) in [(Codec::Zstd, zstd), (Codec::Zlib, zlib)] {
            let mut decompressor = Decompressor::new(codec);
            let mut out = vec![1; 10];
            decompressor.decompress(&packed, plain.len(), &mut out).unwrap();
            assert_eq!(out, plain);
            for wrong in [plain.len() - 1, plain.len() + 1, 0] {
                assert!(decompressor.decompress(&packed, wrong, &mut out).is_err(), "{codec:?} {wrong}");
            }
            for end in [0, 1, packed.len() / 2, packed.len() - 1] {
                assert!(decompressor.decompress(&packed[..end], plain.len(), &mut out).is_err());
            }
            let len = out.len();
            let error = decompressor.decompress(&packed[..9], 1 << 30, &mut out).unwrap_err();
            assert!(matches!(error, DecompressError::Ratio { packed: 9, .. }));
            assert_eq!(out.len(), len);
            assert_eq!(Codec::from_name(codec.name()), Some(codec));
        }
        let error = Decompressor::new(Codec::None).decompress(b"x", 1, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, DecompressError::NoCodec));
    }

    #[test]
    fn several_frames_in_one_block() {
        let packed =
            [zstd::bulk::compress(b"one ", 1).unwrap(), zstd::bulk::compress(b"two", 1).unwrap()].concat();
        let mut out = Vec::new();
        Decompressor::new(Codec::Zstd).decompress(&packed, 7, &mut out).unwrap();
        assert_eq!(out, b"one two");
    }
}
