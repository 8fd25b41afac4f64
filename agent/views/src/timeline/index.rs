//! What the page reads first: what there is, and where. Numbers that a browser would round are texts.

use serde::Serialize;

use super::levels::Written;

/// The index.
#[derive(Debug, Serialize)]
pub(super) struct Index {
    /// Of this structure.
    pub(super) version: u32,
    /// What wrote it.
    pub(super) writer: String,
    /// Whether times are nanoseconds.
    pub(super) nanoseconds: bool,
    pub(super) clock: String,
    /// The time of the first event, on the recording's clock; all others count from it.
    pub(super) first: String,
    /// What makes wall time of that: nanoseconds.
    pub(super) wall_offset: Option<String>,
    /// The time of the last event.
    pub(super) span: u64,
    pub(super) machine: String,
    /// Events in the recording.
    pub(super) total: u64,
    /// Of so many the details are there, up to this time.
    pub(super) detailed: u64,
    pub(super) detailed_to: u64,
    /// The width of the finest densities, and how many levels there are.
    pub(super) base: u64,
    pub(super) levels: usize,
    pub(super) has_switches: bool,
    /// Id and name.
    pub(super) threads: Vec<(u32, String)>,
    /// Kind, owner, which of several, how many slices or events, and their time: of threads, that they ran.
    pub(super) rows: Vec<(u8, u64, u32, u64, u64)>,
    pub(super) labels: Vec<String>,
    pub(super) events: Vec<EventTold>,
    /// Level, block, count, begin, end.
    pub(super) slices: Vec<(usize, u32, usize, u64, u64)>,
    pub(super) densities: Vec<(usize, u32, usize, u64, u64)>,
    pub(super) blocks: Vec<BlockTold>,
    pub(super) cpus: Vec<CpuTold>,
    /// Begin and end of each.
    pub(super) pauses: Vec<(u64, u64)>,
    /// What is not in the page, in words, and how many.
    pub(super) left_out: Vec<(String, u64)>,
}

/// An event.
#[derive(Debug, Serialize)]
pub(super) struct EventTold {
    pub(super) name: String,
    /// How many the recording has.
    pub(super) count: u64,
    /// Whether its text is of the program that was traced.
    pub(super) is_marker: bool,
    /// Whether slices tell what its records tell.
    pub(super) is_drawn: bool,
    /// The names of its fields, and what each has: see `events`.
    pub(super) fields: Vec<(String, char)>,
}

/// A block of events.
#[derive(Debug, Serialize)]
pub(super) struct BlockTold {
    /// The number of its element, `eventsN`; other blocks are `blockN`.
    pub(super) block: u32,
    pub(super) count: usize,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Event and count, one after the other.
    pub(super) counts: Vec<u32>,
}

/// A CPU.
#[derive(Debug, Serialize)]
pub(super) struct CpuTold {
    pub(super) cpu: u32,
    pub(super) events: u64,
    /// Lost events, as far as they are counted.
    pub(super) lost: u64,
    /// Places where it is not known how many were lost.
    pub(super) uncounted: u64,
    pub(super) cut_short: bool,
}

/// Blocks as the index has them.
pub(super) fn told(blocks: &[Written]) -> Vec<(usize, u32, usize, u64, u64)> {
    let told = |written: &Written| {
        let Written { level, block, count, from, to } = *written;
        (level, block, count, from, to)
    };
    blocks.iter().map(told).collect()
}
