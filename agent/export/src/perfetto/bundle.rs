//! Bundles: the events of a CPU, as many as are in one packet.

use prost::encoding::{bool, uint32};

use super::SEQUENCE;
use super::event::{Encoder, Interned, Released};
use super::packet::{CLEARED, InternedData, NEEDS, Packet};
use recording::ExportError;
use tracedat::reader::Record;

/// From so many bytes on a bundle is written.
pub(super) const BYTES: usize = 64 << 10;

// Fields of `FtraceEventBundle`.
const CPU: u32 = 1;
const LOST_EVENTS: u32 = 3;

/// A bundle that is being filled.
#[derive(Debug)]
pub(super) struct Bundle {
    cpu: u32,
    /// Its events, each a field of the message.
    events: Vec<u8>,
    /// The time of the first.
    begin: Option<u64>,
    /// Whether events were lost before it.
    after_loss: bool,
    interned: Interned,
    /// Whether a packet of the sequence was written.
    has_begun: bool,
}

impl Bundle {
    /// The first one of a CPU.
    pub(super) fn new(cpu: u32) -> Self {
        Self {
            cpu,
            events: Vec::new(),
            begin: None,
            after_loss: false,
            interned: Interned::default(),
            has_begun: false,
        }
    }

    /// Whose it is.
    pub(super) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Whether it is to be written before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= BYTES
    }

    /// Whether it begins so many nanoseconds before a time.
    pub(super) fn is_older_than(&self, time: u64, nanos: u64) -> bool {
        self.begin.is_some_and(|begin| time.saturating_sub(begin) > nanos)
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record<'_>, encoder: &mut Encoder<'_>) {
        self.begin.get_or_insert(record.timestamp);
        self.after_loss |= record.missed.is_some();
        encoder.encode(record, &mut self.interned, &mut self.events);
    }

    /// Adds a beginning of its CPU that has waited, at a time.
    pub(super) fn add_released(&mut self, released: &Released, encoder: &mut Encoder<'_>, time: u64) {
        self.begin.get_or_insert(time);
        encoder.encode_released(released, &mut self.interned, &mut self.events);
    }

    /// Notes that events were lost behind the last record, when that was written.
    pub(super) fn ends_with_loss(&mut self) {
        self.after_loss = true;
    }

    /// Writes it, unless nothing is in it, and begins the next one.
    pub(super) fn write(
        &mut self,
        write: impl FnOnce(&Packet) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        if self.events.is_empty() && !self.after_loss {
            return Ok(());
        }
        let mut bundle = Vec::with_capacity(self.events.len() + 16);
        uint32::encode(CPU, &self.cpu, &mut bundle);
        if self.after_loss {
            bool::encode(LOST_EVENTS, &true, &mut bundle);
        }
        bundle.append(&mut self.events);
        let kernel_symbols = std::mem::take(&mut self.interned.new);
        write(&Packet {
            ftrace_events: Some(bundle),
            trusted_packet_sequence_id: SEQUENCE + 1 + self.cpu,
            interned_data: (!kernel_symbols.is_empty()).then_some(InternedData { kernel_symbols }),
            sequence_flags: if self.has_begun { NEEDS } else { NEEDS | CLEARED },
            ..Packet::default()
        })?;
        (self.begin, self.after_loss, self.has_begun) = (None, false, true);
        Ok(())
    }
}
