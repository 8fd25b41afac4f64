//! Checksums of a file's content, which find damage that breaks no structure.
//!
//! zstd frames carry a checksum of their own when our writer makes them. Option
//! [`CHECKSUMS`](super::OptionId::CHECKSUMS) covers the rest: the file header, all metadata sections and
//! options, and uncompressed trace data that went through the writer. Readers that do not know the option
//! skip it. In a copy in another file it is meaningless; therefore it holds its own offset.
//!
//! Layout, in the byte order of the file: u32 1; u64 offset in the file of these bytes; u32 count; each u64
//! offset, u64 length, u32 CRC-32 (IEEE 802.3, as zlib's `crc32`); u32 CRC-32 of all these bytes before.

use ftrace_event::endian::{Encoder, Endian};

/// The version of the layout.
const VERSION: u32 = 1;

/// Bytes without the list.
const FRAME: usize = 4 + 8 + 4 + 4;

/// Bytes of a range.
const RANGE: usize = 20;

/// Uncompressed trace data have a checksum for this many bytes, so that damage to one page is known to be
/// near it.
pub(crate) const DATA_RANGE: u64 = 1 << 20;

/// The checksums of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    /// Where the option's data are in the file that it was written for.
    pub offset: u64,
    /// What is covered, in the order in which it was written.
    pub ranges: Vec<Range>,
}

/// Bytes of a file and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where they begin.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
    /// Their CRC-32.
    pub crc: u32,
}

impl Range {
    /// The range of bytes that are at hand in pieces.
    pub(crate) fn of(offset: u64, pieces: &[&[u8]]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        for piece in pieces {
            hasher.update(piece);
        }
        Self { offset, len: pieces.iter().map(|piece| piece.len() as u64).sum(), crc: hasher.finalize() }
    }
}

impl Checksums {
    /// Bytes of the option's data with this many ranges.
    pub(crate) const fn encoded_len(ranges: usize) -> usize {
        FRAME + ranges * RANGE
    }

    pub(crate) fn encode(&self, endian: Endian) -> Vec<u8> {
        let Self { offset, ranges } = self;
        let mut out = Encoder::new(endian);
        // Far fewer than 32 bits: there is one per section and one per MiB.
        out.u32(VERSION).u64(*offset).u32(ranges.len() as u32);
        for Range { offset, len, crc } in ranges {
            out.u64(*offset).u64(*len).u32(*crc);
        }
        let mut bytes = out.into_bytes();
        bytes.extend_from_slice(&endian.u32(crc32fast::hash(&bytes)));
        bytes
    }

    /// Parses the option's data; `None` if they are damaged, or of a later version.
    pub fn decode(bytes: &[u8], endian: Endian) -> Option<Self> {
        let (content, crc) = bytes.split_last_chunk()?;
        let (version, rest) = content.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (count, list) = rest.split_first_chunk()?;
        let whole = endian.read_u32(*crc) == crc32fast::hash(content)
            && endian.read_u32(*version) == VERSION
            && list.len() == (endian.read_u32(*count) as usize).checked_mul(RANGE)?;
        if !whole {
            return None;
        }
        let range = |bytes: &[u8]| {
            let (offset, rest) = bytes.split_first_chunk()?;
            let (len, crc) = rest.split_first_chunk()?;
            let crc = endian.read_u32(*crc.first_chunk()?);
            Some(Range { offset: endian.read_u64(*offset), len: endian.read_u64(*len), crc })
        };
        let ranges = list.chunks_exact(RANGE).map(range).collect::<Option<_>>()?;
        Some(Self { offset: endian.read_u64(*offset), ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        let ranges = vec![Range::of(0, &[b"1234", b"56789"]), Range { offset: 1 << 40, len: 3, crc: 1 }];
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!((ranges[0].crc, ranges[0].len), (0xcbf4_3926, 9));
        let checksums = Checksums { offset: 77, ranges };
        for endian in [Endian::Little, Endian::Big] {
            let bytes = checksums.encode(endian);
            assert_eq!(bytes.len(), Checksums::encoded_len(2));
            assert_eq!(Checksums::decode(&bytes, endian), Some(checksums.clone()));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Checksums::decode(&damaged, endian), None, "{at}");
                assert_eq!(Checksums::decode(&bytes[..at], endian), None);
            }
        }
    }
}
