//! What a recording has counted by now, while it goes on.

use std::collections::BTreeMap;

use super::StreamId;
use attach::ring::CpuCounts;

/// The counts of a recording at a moment, of each stream since the recording began. Two of them subtracted
/// are what was counted in between.
///
/// Programs count meanwhile: each number is of a moment during [`Session::ledger`](super::Session::ledger),
/// so that of a stream in which events come, the sum over its events and the sum of the stream may differ by
/// those.
#[derive(Clone, Debug, Default)]
pub struct LedgerSnapshot {
    /// When it was taken, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The counts. Those of an event are in the row of its slot: its index in
    /// [`ChannelOptions::events`](super::ChannelOptions::events).
    pub streams: BTreeMap<StreamId, CpuCounts>,
}

impl LedgerSnapshot {
    /// What was counted since an earlier one of the same recording; of a stream that was not there, all.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counted = |(stream, counts): (&StreamId, &CpuCounts)| {
            let before = earlier.streams.get(stream);
            (*stream, before.map_or_else(|| counts.clone(), |before| counts.since(before)))
        };
        Self { time_ns: self.time_ns, streams: self.streams.iter().map(counted).collect() }
    }

    /// How many records there are of an event, by its channel and slot.
    pub fn recorded(&self, channel: u32, slot: usize) -> u64 {
        let of_channel = self.streams.iter().filter(|(stream, _)| stream.index() == channel as usize);
        of_channel.filter_map(|(_, counts)| counts.rows.get(slot)).map(|row| row.recorded).sum()
    }

    /// How many events were lost, for any cause.
    pub fn lost(&self) -> u64 {
        self.streams.values().flat_map(|counts| counts.lost).sum()
    }
}
