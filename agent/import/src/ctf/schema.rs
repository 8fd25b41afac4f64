//! What the metadata say of a trace.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::types::Struct;
use ftrace_event::Endian;

/// A trace.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The UUID of the metadata, which packets have, too.
    pub(crate) uuid: Option<[u8; 16]>,
    /// What parts of one trace have in common.
    pub(crate) identity: Option<String>,
    /// The byte order of whatever has none of its own.
    pub(crate) order: Endian,
    /// `trace.packet.header`.
    pub(crate) packet_header: Option<Arc<Struct>>,
    /// Facts about the machine and the tracer, in their order; numbers are texts, too.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) clocks: Vec<Clock>,
    /// By their number.
    pub(crate) streams: BTreeMap<u64, Stream>,
}

impl Trace {
    /// A fact.
    pub(crate) fn env(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The clock that integers are mapped to by this.
    pub(crate) fn clock(&self, name: &str) -> Option<&Clock> {
        self.clocks.iter().find(|clock| clock.id == name)
    }
}

/// A clock (section 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// What integers are mapped to.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) uuid: Option<String>,
    pub(crate) description: Option<String>,
    /// Ticks a second, never 0.
    pub(crate) frequency: u64,
    /// Seconds since the epoch at the zero of `offset`.
    pub(crate) offset_seconds: i64,
    /// Ticks since then at the clock's zero.
    pub(crate) offset: i64,
    /// Whether clocks of several traces have one zero.
    pub(crate) absolute: bool,
}

impl Clock {
    /// A time in nanoseconds since the clock's zero; `None` beyond 64 bits.
    pub(crate) fn nanoseconds(&self, ticks: u64) -> Option<u64> {
        if self.frequency == 1_000_000_000 {
            return Some(ticks);
        }
        u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(self.frequency)).ok()
    }

    /// Wall time at the clock's zero, in nanoseconds since the epoch.
    pub(crate) fn wall_offset(&self) -> i128 {
        let ticks = i128::from(self.offset) * 1_000_000_000;
        i128::from(self.offset_seconds) * 1_000_000_000 + ticks.div_euclid(self.frequency.into())
    }
}

/// A kind of streams: what LTTng calls a channel.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// `packet.context`.
    pub(crate) packet_context: Option<Arc<Struct>>,
    /// `event.header`.
    pub(crate) event_header: Option<Arc<Struct>>,
    /// `event.context`.
    pub(crate) event_context: Option<Arc<Struct>>,
    pub(crate) events: Vec<Event>,
    /// Places in `events` by number.
    pub(crate) by_id: HashMap<u64, usize>,
}

/// A kind of events.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: u64,
    /// `context`.
    pub(crate) context: Option<Arc<Struct>>,
    /// `fields`.
    pub(crate) fields: Option<Arc<Struct>>,
}
