//! Events as JSON.

use super::lanes::Lane;
use report::json::string;
use report::text::{micros, unsigned};

/// What comes before the events, of which `head` is an object.
pub(super) fn begin(head: &[u8]) -> Vec<u8> {
    [b"{\"displayTimeUnit\":\"ns\",\"otherData\":", head, b",\"traceEvents\":["].concat()
}

/// What comes after the events.
pub(super) const END: &[u8] = b"\n]}\n";

/// Events one behind the other, each with a comma before it.
#[derive(Clone, Debug)]
pub(super) struct Out {
    /// The time of the recording's clock that is 0 in the trace.
    origin: u64,
    bytes: Vec<u8>,
}

impl Out {
    /// No events yet.
    pub(super) fn new(origin: u64) -> Self {
        Self { origin, bytes: Vec::new() }
    }

    /// Begins an event of a kind at a time of the recording's clock; its members follow.
    pub(super) fn event(&mut self, phase: u8, lane: Lane, time: u64) -> Event<'_> {
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(b",\n{\"ph\":\"");
        bytes.push(phase);
        bytes.extend_from_slice(b"\",\"pid\":");
        unsigned(bytes, lane.process);
        bytes.extend_from_slice(b",\"tid\":");
        unsigned(bytes, lane.thread);
        // What says a name holds for all times.
        if phase != b'M' {
            bytes.extend_from_slice(b",\"ts\":");
            micros(bytes, time.saturating_sub(self.origin));
        }
        Event { bytes }
    }

    /// How much there is.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the text, with a comma before it unless there is none.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// An event that is being written.
pub(super) struct Event<'o> {
    bytes: &'o mut Vec<u8>,
}

impl Event<'_> {
    /// How long it lasts, in nanoseconds.
    pub(super) fn lasts(self, nanos: u64) -> Self {
        self.bytes.extend_from_slice(b",\"dur\":");
        micros(self.bytes, nanos);
        self
    }

    /// A category, by which viewers filter.
    pub(super) fn category(self, category: &str) -> Self {
        self.bytes.extend_from_slice(b",\"cat\":");
        string(self.bytes, category.as_bytes());
        self
    }

    /// Its name.
    pub(super) fn name(self, name: &[u8]) -> Self {
        self.bytes.extend_from_slice(b",\"name\":");
        string(self.bytes, name);
        self
    }

    /// Members as they are, each with a comma before it.
    pub(super) fn members(self, json: &[u8]) -> Self {
        self.bytes.extend_from_slice(json);
        self
    }

    /// A member that is a number.
    pub(super) fn number(self, key: &[u8], value: u64) -> Self {
        self.bytes.extend_from_slice(key);
        unsigned(self.bytes, value);
        self
    }

    /// What it has besides, as `write` writes it into the braces; and its end.
    pub(super) fn args(self, write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(b",\"args\":{");
        write(self.bytes);
        self.bytes.extend_from_slice(b"}}");
    }

    /// Its end.
    pub(super) fn end(self) {
        self.bytes.push(b'}');
    }
}
