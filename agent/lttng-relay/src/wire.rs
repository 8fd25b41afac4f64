//! Commands and answers as bytes: `src/common/sessiond-comm/relayd.h` of LTTng is what they are written down
//! in. Nothing is aligned.

use super::RelayError;

/// What the relay daemon is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    AddStream = 1,
    CreateSession = 2,
    Version = 5,
    SendMetadata = 6,
    CloseStream = 7,
    DataPending = 8,
    SendIndex = 13,
    StreamsSent = 16,
    ResetMetadata = 17,
    RotateStreams = 18,
    CreateTraceChunk = 19,
    CloseTraceChunk = 20,
    TraceChunkExists = 21,
    GetConfiguration = 22,
}

/// The code of success (`LTTNG_OK`).
pub(super) const OK: u32 = 10;
/// Bytes of a name of up to minor version 10, its end included.
pub(super) const NAME_2_4: usize = 255;
/// The same of a host.
pub(super) const HOST_2_4: usize = 64;
/// The same of a stream.
pub(super) const STREAM_2_2: usize = 264;
/// The same of the directory of a stream.
pub(super) const PATH_2_2: usize = 4096;
/// Bytes of a name from minor version 11 on (`LTTNG_NAME_MAX`), its end included.
pub(super) const NAME_MAX: usize = 255;
/// The same of a host (`LTTNG_HOST_NAME_MAX`).
pub(super) const HOST_MAX: usize = 64;
/// The longest path (`LTTNG_PATH_MAX`), its end included.
pub(super) const PATH_MAX: usize = 4096;

/// A payload that is put together.
#[derive(Debug, Default)]
pub(super) struct Payload(Vec<u8>);

impl Payload {
    pub(super) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text with its end.
    pub(super) fn text(self, text: &Text<'_>) -> Self {
        if text.text.is_empty() && text.is_optional { self } else { self.bytes(text.text.as_bytes()).u8(0) }
    }

    /// A text in a field of so many bytes.
    pub(super) fn padded(mut self, text: &Text<'_>, size: usize) -> Self {
        let end = self.0.len() + size;
        self.0.extend_from_slice(text.text.as_bytes());
        self.0.resize(end, 0);
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A text that fits in its field, and has no end within.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    text: &'a str,
    is_optional: bool,
}

impl<'a> Text<'a> {
    /// `max` is with the end.
    pub(super) fn new(what: &'static str, text: &'a str, max: usize) -> Result<Self, RelayError> {
        if text.len() >= max || text.contains('\0') {
            return Err(RelayError::TooLong { what, text: text.escape_debug().to_string() });
        }
        Ok(Self { text, is_optional: false })
    }

    /// One that is left out if it is empty.
    pub(super) fn optional(what: &'static str, text: &'a str, max: usize) -> Result<Self, RelayError> {
        Ok(Self { is_optional: true, ..Self::new(what, text, max)? })
    }

    /// Its length with its end, as [`Payload::text`] writes it.
    pub(super) fn len(&self) -> u32 {
        if self.text.is_empty() && self.is_optional { 0 } else { self.text.len() as u32 + 1 }
    }
}

/// What comes before the payload of a command.
pub(super) fn header(command: Command, size: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[8..16].copy_from_slice(&size.to_be_bytes());
    bytes[16..20].copy_from_slice(&(command as u32).to_be_bytes());
    bytes
}

/// What comes before a packet on the connection for data.
pub(super) fn data_header(stream: u64, sequence: u64, size: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[8..16].copy_from_slice(&stream.to_be_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_be_bytes());
    bytes[24..28].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// The 32-bit word at a place of an answer; 0 past its end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_be_bytes(*word))
}

/// The same of 64 bits.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_laid_out_as_the_relay_daemon_reads_them() {
        let command = header(Command::GetConfiguration, 0x0102);
        assert_eq!(command[..8], [0; 8]);
        assert_eq!(command[8..], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 22, 0, 0, 0, 0]);
        let data = data_header(1, 2, 3);
        assert_eq!((u64_at(&data, 8), u64_at(&data, 16)), (1, 2));
        assert_eq!((u32_at(&data, 24), u32_at(&data, 28), u32_at(&data, 30)), (3, 0, 0));
    }

    #[test]
    fn texts_have_an_end_and_fit() {
        let name = Text::new("a name", "ab", 3).unwrap();
        assert_eq!((name.len(), Payload::default().text(&name).into_bytes()), (3, b"ab\0".to_vec()));
        assert_eq!(Payload::default().padded(&name, 4).into_bytes(), b"ab\0\0");
        let none = Text::optional("a name", "", 3).unwrap();
        assert_eq!((none.len(), Payload::default().text(&none).into_bytes()), (0, Vec::new()));
        assert!(Text::new("a name", "abc", 3).is_err() && Text::new("a name", "a\0", 9).is_err());
    }
}
