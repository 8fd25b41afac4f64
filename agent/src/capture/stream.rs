//! Which ring something is of.

/// One CPU's part of a channel: a ring, and what is stored of it. Streams are in the order of their channels,
/// then of their CPUs, which is that of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The channel, by its index in the recording.
    pub channel: u32,
    /// The CPU.
    pub cpu: u32,
}

impl StreamId {
    /// Both as one number, as files have them: the channel in the upper half.
    pub(super) fn to_number(self) -> u64 {
        u64::from(self.channel) << 32 | u64::from(self.cpu)
    }

    /// The stream of such a number.
    pub(super) fn of_number(number: u64) -> Self {
        Self { channel: (number >> 32) as u32, cpu: number as u32 }
    }
}
