//! Records that are compressed (`PERF_RECORD_COMPRESSED`, `PERF_RECORD_COMPRESSED2`): all of a recording are
//! one stream of zstd, cut anywhere.

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::MAX_SECTION;
use super::input::head;
use ftrace_event::Endian;

/// Bytes that are unpacked at a time.
const STEP: usize = 128 << 10;

/// Unpacks them.
pub(super) struct Unpacker {
    decoder: Decoder<'static>,
    /// Where it unpacks to.
    step: Box<[u8]>,
    /// What was unpacked, of which `used` bytes are done with.
    bytes: Vec<u8>,
    used: usize,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Unpacker {
    pub(super) fn new() -> Result<Self, String> {
        let decoder = Decoder::new().map_err(|error| format!("zstd cannot be used: {error}"))?;
        Ok(Self { decoder, step: vec![0; STEP].into(), bytes: Vec::new(), used: 0 })
    }

    /// Unpacks some more, and gives each whole record to `each`: type, misc and what follows the header.
    pub(super) fn unpack<E>(
        &mut self,
        mut packed: &[u8],
        endian: Endian,
        mut each: impl FnMut(u32, u16, &[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, String> {
        loop {
            self.bytes.drain(..std::mem::take(&mut self.used));
            let mut input = InBuffer::around(packed);
            let mut output = OutBuffer::around(&mut *self.step);
            let result = self.decoder.run(&mut input, &mut output);
            let (read, written) = (input.pos(), output.pos());
            result.map_err(|error| format!("what is compressed is damaged: {error}"))?;
            self.bytes.extend_from_slice(self.step.get(..written).unwrap_or_default());
            packed = packed.get(read..).unwrap_or_default();
            while let Some((kind, misc, size)) = head(self.unused(), endian) {
                let size = size as usize;
                if size < 8 || size as u64 > MAX_SECTION {
                    return Err(format!("a compressed record of type {kind} claims to have {size} bytes"));
                }
                let Some(record) = self.bytes.get(self.used..self.used + size) else { break };
                if let Err(error) = each(kind, misc, record.get(8..).unwrap_or_default()) {
                    return Ok(Err(error));
                }
                self.used += size;
            }
            // A full buffer may mean that there is more, also when all input was taken.
            if packed.is_empty() && written < STEP {
                return Ok(Ok(()));
            }
            if read == 0 && written == 0 {
                return Err("what is compressed cannot be unpacked any further".to_owned());
            }
        }
    }

    /// Bytes of a record whose rest has not come.
    pub(super) fn left(&self) -> usize {
        self.unused().len()
    }

    fn unused(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }
}
