//! Headers of blocks and events.
//!
//! ```text
//! block header   u64 cycle count and u64 frequency at its begin; the same at its end; u32 bytes unused at its end; u32 size
//! trace header   u32 magic number, u32 architecture, u32 its variant, u32 order of floats; u8 pointer size, u8 major version,
//!                u8 minor version, u8 flight recorder, u8 heartbeat, u8 alignment, 3 x u8 of compact channels; u32 frequency
//!                scale; u64 start frequency, u64 start cycles, u64 start of the monotonic clock; start time
//! event header   u32 or u64 cycles; two bytes that name the event; u16 size of the payload
//! ```
//!
//! (lttng-trace-format-2008, "The block start/end header", "The trace header", "Event header".) Everything is
//! packed, and in the byte order of the trace. The document gives the start time as u32 seconds and u32
//! nanoseconds, which makes a trace header of 61 bytes. Readers of trace version 1.0 (LTTV 0.10) take it as
//! u64 seconds and u64 microseconds: 69 bytes.

use super::Options;
use ftrace_event::Endian;
use ftrace_event::Machine;

/// Bytes of the block header.
pub(super) const BLOCK_HEADER: usize = 40;
/// "Used to check the trace byte order vs host byte order".
pub(super) const MAGIC: u32 = 0x00D6_B7ED;
/// Cycles are nanoseconds.
const FREQUENCY: u64 = 1_000_000_000;
/// Where the event header has no room for the size.
const SIZE_IS_COMPUTED: u16 = 0xffff;

/// How the files of a trace are laid out.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) endian: Endian,
    pub(super) heartbeat: bool,
    /// Of event headers.
    header_alignment: usize,
    /// Of payloads.
    payload_alignment: usize,
    /// Of numbers in payloads.
    pub(super) field_alignment: usize,
    /// Bytes of a long of the traced machine.
    pub(super) long_size: u8,
    trace_header: Vec<u8>,
}

/// Where a trace begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Cycles.
    pub(super) cycles: u64,
    /// The same in nanoseconds since 1970, if that is known.
    pub(super) wall: Option<u64>,
    /// Number of the architecture; 0 for one that has none.
    pub(super) architecture: u32,
    /// Whether old data was overwritten by new.
    pub(super) flight_recorder: bool,
}

impl Layout {
    pub(super) fn new(options: Options, endian: Endian, machine: Machine, start: &Start) -> Self {
        let alignment = usize::from(options.alignment.bytes());
        let long = usize::from(machine.long_size);
        let (header_alignment, payload_alignment) = match (alignment, options.literal) {
            (0, _) => (1, 1),
            // "the variable length data is automatically aligned on the architecture size"
            (alignment, true) => (alignment, long),
            // What readers do: ltt_align of ltt/ltt-private.h.
            (alignment, false) => (alignment.min(long), alignment.min(long)),
        };
        Self {
            endian,
            heartbeat: options.heartbeat,
            header_alignment,
            payload_alignment,
            field_alignment: alignment,
            long_size: machine.long_size,
            trace_header: trace_header(options, endian, machine, start),
        }
    }

    /// Bytes before a block's first event.
    pub(super) fn headers(&self) -> usize {
        BLOCK_HEADER + self.trace_header.len()
    }

    /// Writes the headers of a block whose events end at `end` into its first bytes.
    pub(super) fn put_headers(&self, block: &mut [u8], cycles: (u64, u64), end: usize) {
        let lost = (block.len() - end) as u32;
        let size = block.len() as u32;
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for cycles in [cycles.0, cycles.1] {
            put(&self.endian.u64(cycles));
            put(&self.endian.u64(FREQUENCY));
        }
        put(&self.endian.u32(lost));
        put(&self.endian.u32(size));
        put(&self.trace_header);
    }

    /// Where the payload of an event that follows `at` begins, and where its header does.
    pub(super) fn offsets(&self, at: usize) -> (usize, usize) {
        let header = at.next_multiple_of(self.header_alignment);
        let stamp = if self.heartbeat { 4 } else { 8 };
        (header, (header + stamp + 4).next_multiple_of(self.payload_alignment))
    }

    /// Writes an event header at the start of `bytes`.
    pub(super) fn put_event_header(&self, bytes: &mut [u8], cycles: u64, id: [u8; 2], size: usize) {
        let rest = if self.heartbeat {
            bytes[..4].copy_from_slice(&self.endian.u32(cycles as u32));
            &mut bytes[4..]
        } else {
            bytes[..8].copy_from_slice(&self.endian.u64(cycles));
            &mut bytes[8..]
        };
        rest[..2].copy_from_slice(&id);
        let size = u16::try_from(size).unwrap_or(SIZE_IS_COMPUTED);
        rest[2..4].copy_from_slice(&self.endian.u16(size));
    }
}

fn trace_header(options: Options, endian: Endian, machine: Machine, start: &Start) -> Vec<u8> {
    let mut header = Vec::with_capacity(69);
    for word in [MAGIC, start.architecture, 0, 0] {
        header.extend_from_slice(&endian.u32(word));
    }
    let flight_recorder = u8::from(start.flight_recorder);
    let heartbeat = u8::from(options.heartbeat);
    header.extend_from_slice(&[
        machine.long_size,
        1,
        0,
        flight_recorder,
        heartbeat,
        options.alignment.bytes(),
    ]);
    // Compact channels are not written.
    header.extend_from_slice(&[0, 0, 0]);
    header.extend_from_slice(&endian.u32(1));
    for long in [FREQUENCY, start.cycles, 0] {
        header.extend_from_slice(&endian.u64(long));
    }
    let wall = start.wall.unwrap_or(0);
    let (seconds, nanos) = (wall / 1_000_000_000, wall % 1_000_000_000);
    if options.literal {
        header.extend_from_slice(&endian.u32(seconds as u32));
        header.extend_from_slice(&endian.u32(nanos as u32));
    } else {
        header.extend_from_slice(&endian.u64(seconds));
        header.extend_from_slice(&endian.u64(nanos / 1000));
    }
    header
}

/// Number of an architecture, as `uname -m` names it (include/linux/ltt-core.h of the tracer of 2008); 0 for
/// one that came later.
pub(super) fn architecture(machine: &str) -> u32 {
    match machine {
        "i386" | "i486" | "i586" | "i686" => 1,
        "ppc" => 2,
        "sh" | "sh4" => 3,
        "s390" | "s390x" => 4,
        "mips" | "mips64" => 5,
        text if text.starts_with("arm") => 6,
        "ppc64" | "ppc64le" => 7,
        "x86_64" => 8,
        _ => 0,
    }
}
