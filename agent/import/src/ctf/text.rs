//! The file `metadata`: text in packets (CTF 1.8.2, section 7.1; CTF2-PMETA-1.0), or as it is.

use super::fragments::SEPARATOR;
use ftrace_event::Endian;

/// First word of a packet.
const MAGIC: u32 = 0x75d1_1d57;
/// magic, uuid, checksum, content size, packet size, compression, encryption, checksum scheme, major, minor.
const HEADER: usize = 37;
/// What plain text begins with.
const SIGNATURE: &str = "/* CTF";

/// The text of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// The language of CTF 1.8.
    Tsdl(String),
    /// The JSON texts of CTF 2, each with what stands before it.
    Fragments(String),
}

/// Why a file is no metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// It begins with something else.
    #[error(
        "it begins neither with the magic number 0x75d11d57 of metadata packets nor with \"/* CTF 1.8\" or the byte 0x1e, so it is no metadata of CTF 1.8 or 2"
    )]
    Foreign,
    /// Another version.
    #[error(
        "the packet at byte {at} is of CTF {major}.{minor}, and only 1.8 and 2.0 are read, not several at once"
    )]
    Version {
        /// Where the packet begins.
        at: usize,
        /// Its version.
        major: u8,
        /// Its version.
        minor: u8,
    },
    /// A packet that ends before it is complete.
    #[error("the packet at byte {at} is cut off: the file ends {missing} bytes too early")]
    Cut {
        /// Where the packet begins.
        at: usize,
        /// Bytes that are not there.
        missing: usize,
    },
    /// Something that is no packet.
    #[error("at byte {at} a packet should begin, and there is no magic number")]
    NoPacket {
        /// Where.
        at: usize,
    },
    /// Sizes that cannot be.
    #[error("the packet at byte {at} says that it has {size} bits, {content} of them used, which cannot be")]
    Size {
        /// Where the packet begins.
        at: usize,
        /// Bits of all of it.
        size: u32,
        /// Bits that are used.
        content: u32,
    },
    /// A packet that is compressed, encrypted or has a checksum.
    #[error("the packet at byte {at} is compressed or encrypted, which no tracer does and is not understood")]
    Scheme {
        /// Where the packet begins.
        at: usize,
    },
    /// Bytes that are no text.
    #[error("it is not UTF-8, from byte {at} of the text on")]
    Encoding {
        /// Where in the text.
        at: usize,
    },
}

/// The text of the file.
pub(crate) fn text(bytes: &[u8]) -> Result<Metadata, TextError> {
    let magic = bytes.first_chunk().copied();
    let order = [Endian::Little, Endian::Big]
        .into_iter()
        .find(|order| magic.is_some_and(|magic| order.read_u32(magic) == MAGIC));
    let (text, is_tsdl) = match order {
        Some(order) => unpack(bytes, order)?,
        None if bytes.trim_ascii_start().starts_with(SIGNATURE.as_bytes()) => (bytes.to_vec(), true),
        None if bytes.first() == Some(&(SEPARATOR as u8)) => (bytes.to_vec(), false),
        None => return Err(TextError::Foreign),
    };
    let text = String::from_utf8(text)
        .map_err(|error| TextError::Encoding { at: error.utf8_error().valid_up_to() })?;
    Ok(if is_tsdl { Metadata::Tsdl(text) } else { Metadata::Fragments(text) })
}

/// The text of packets, and whether they are of CTF 1.8.
fn unpack(bytes: &[u8], order: Endian) -> Result<(Vec<u8>, bool), TextError> {
    let (mut text, mut at) = (Vec::new(), 0);
    let mut version = None;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let cut = |whole: usize| TextError::Cut { at, missing: whole.saturating_sub(rest.len()) };
        let head: &[u8; HEADER] = rest.first_chunk().ok_or(cut(HEADER))?;
        let word =
            |at: usize| head.get(at..).and_then(|word| word.first_chunk()).map(|word| order.read_u32(*word));
        if word(0) != Some(MAGIC) {
            return Err(TextError::NoPacket { at });
        }
        let (content, size) = (word(24).unwrap_or(0), word(28).unwrap_or(0));
        let [.., compression, encryption, _, major, minor] = *head;
        let is_known = matches!((major, minor), (1, 8) | (2, 0));
        if !is_known || *version.get_or_insert((major, minor)) != (major, minor) {
            return Err(TextError::Version { at, major, minor });
        }
        if compression != 0 || encryption != 0 {
            return Err(TextError::Scheme { at });
        }
        let (content_len, len) = (content as usize / 8, size as usize / 8);
        if content % 8 != 0 || size % 8 != 0 || content_len < HEADER || content_len > len {
            return Err(TextError::Size { at, size, content });
        }
        text.extend_from_slice(rest.get(HEADER..content_len).ok_or(cut(content_len))?);
        if len > rest.len() {
            return Err(cut(len));
        }
        at += len;
    }
    Ok((text, version == Some((1, 8))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(order: Endian, content: &[u8], len: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        packet.extend_from_slice(&order.u32(MAGIC));
        packet.extend_from_slice(&[7; 16]);
        packet.extend_from_slice(&order.u32(0));
        packet.extend_from_slice(&order.u32((HEADER + content.len()) as u32 * 8));
        packet.extend_from_slice(&order.u32(len as u32 * 8));
        packet.extend_from_slice(&[0, 0, 0, 1, 8]);
        packet.extend_from_slice(content);
        packet.resize(len, 0);
        packet
    }

    #[test]
    fn text_in_packets_of_both_orders_and_as_it_is() {
        for order in [Endian::Little, Endian::Big] {
            let bytes = [packet(order, b"/* CTF 1", 64), packet(order, b".8 */", 42)].concat();
            assert_eq!(text(&bytes), Ok(Metadata::Tsdl("/* CTF 1.8 */".to_owned())));
            let mut bytes = [packet(order, b"\x1e{", 64), packet(order, b"}", 64)].concat();
            for at in [35, 36, 64 + 35, 64 + 36] {
                bytes[at] = if at % 64 == 35 { 2 } else { 0 };
            }
            assert_eq!(text(&bytes), Ok(Metadata::Fragments("\x1e{}".to_owned())));
            // One of each version is neither.
            bytes[64 + 35..64 + 37].copy_from_slice(&[1, 8]);
            assert_eq!(text(&bytes), Err(TextError::Version { at: 64, major: 1, minor: 8 }));
        }
        assert_eq!(text(b"\n/* CTF 1.8 */ trace"), Ok(Metadata::Tsdl("\n/* CTF 1.8 */ trace".to_owned())));
        assert_eq!(text(b"\x1e{}"), Ok(Metadata::Fragments("\x1e{}".to_owned())));
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let whole = packet(Endian::Little, b"text", 64);
        let second = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = [whole.clone(), whole.clone()].concat();
            change(&mut bytes[64..]);
            text(&bytes)
        };
        assert_eq!(text(b""), Err(TextError::Foreign));
        assert_eq!(text(&[&whole[..], b"x"].concat()), Err(TextError::Cut { at: 64, missing: 36 }));
        assert_eq!(text(&whole[..60]), Err(TextError::Cut { at: 0, missing: 4 }));
        assert_eq!(second(&|packet| packet[0] = 0), Err(TextError::NoPacket { at: 64 }));
        assert_eq!(second(&|packet| packet[36] = 9), Err(TextError::Version { at: 64, major: 1, minor: 9 }));
        assert_eq!(second(&|packet| packet[32] = 1), Err(TextError::Scheme { at: 64 }));
        assert_eq!(
            second(&|packet| packet[28..32].fill(0)),
            Err(TextError::Size { at: 64, size: 0, content: 41 * 8 })
        );
        assert_eq!(second(&|packet| packet[37] = 0xff), Err(TextError::Encoding { at: 4 }));
    }
}
