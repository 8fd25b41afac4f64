//! Which ring something is of.

use attach::ring::RingId;
use spec::CHANNELS_MAX;

/// One CPU's part of a channel, or of a set of rings that a channel has: a ring, and what is stored of it.
/// Streams are in the order of their channels, then of their CPUs, which is that of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The channel, by its index in the recording; of a set after the first, so many times `CHANNELS_MAX`
    /// more.
    pub channel: u32,
    /// The CPU.
    pub cpu: u32,
}

impl StreamId {
    /// That of a CPU in a set of the channel with this index.
    pub(super) fn in_set(channel: u32, set: u32, cpu: u32) -> Self {
        Self { channel: channel + set * CHANNELS_MAX as u32, cpu }
    }

    /// The index of its channel in the recording.
    pub fn index(self) -> usize {
        index_of(self.channel)
    }

    /// Which ring of its channel it is.
    pub(super) fn ring(self) -> RingId {
        RingId { cpu: self.cpu, set: self.channel / CHANNELS_MAX as u32 }
    }

    /// Both as one number, as files have them: the channel in the upper half.
    pub(super) fn to_number(self) -> u64 {
        u64::from(self.channel) << 32 | u64::from(self.cpu)
    }

    /// The stream of such a number.
    pub(super) fn of_number(number: u64) -> Self {
        Self { channel: (number >> 32) as u32, cpu: number as u32 }
    }
}

/// The index of a channel in the recording, by the number that it or one of its sets has.
pub(super) fn index_of(number: u32) -> usize {
    number as usize % CHANNELS_MAX
}
