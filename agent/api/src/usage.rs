//! How full the rings of a session are, and what it has recorded and lost by now.
//!
//! Counts are since the session was created, over all of its recordings, and only grow. What nobody knows is
//! left out (`null`), and is not 0. How often the kernel has skipped a program is in none of them: that is
//! known when a recording ends, and is in its file.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::Domain;

/// How full the rings of a session are, and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Usage {
    /// The session.
    pub session: String,
    /// The user it belongs to.
    pub uid: u32,
    /// Whether it is started.
    pub active: bool,
    /// When this was so, in nanoseconds of `CLOCK_MONOTONIC`. While something long is done with a session,
    /// such as a stop, what was known before it is told again, with the time of then.
    pub time_ns: u64,
    /// Bytes that were stored since the session was started first, compressed if they are. `None` of one that
    /// keeps its newest events, and before the first start.
    pub stored_bytes: Option<u64>,
    /// Its channels.
    pub channels: Vec<ChannelUsage>,
}

impl Usage {
    /// What all CPUs of all channels have counted.
    pub fn counts(&self) -> Counts {
        sum(self.channels.iter().flat_map(|channel| &channel.cpus).map(|cpu| &cpu.counts))
    }
}

/// The rings of a channel, and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChannelUsage {
    /// Its domain.
    pub domain: Domain,
    /// Its name.
    pub channel: String,
    /// Whether newer events are written over the oldest ones: its rings are full most of the time then, and
    /// are stored by a snapshot only.
    pub overwrites: bool,
    /// The CPUs that it has recorded on; none before its first start.
    pub cpus: Vec<CpuUsage>,
    /// The events of its recording, or of the last one that there was: those of which something came. `None`
    /// where they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventUsage>>,
}

impl ChannelUsage {
    /// What all of its CPUs have counted.
    pub fn counts(&self) -> Counts {
        sum(self.cpus.iter().map(|cpu| &cpu.counts))
    }
}

/// The rings of a CPU, and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CpuUsage {
    /// The CPU.
    pub cpu: u32,
    /// Its rings. `None` where no recording is open: everything is stored then.
    pub rings: Option<RingUsage>,
    /// What it has counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How full the rings of a CPU in a channel are: one ring, or one for each user or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RingUsage {
    /// How many rings.
    pub rings: u64,
    /// Bytes of complete pages in all of them that are not stored yet. The page that is written to is not
    /// among them.
    pub held_bytes: u64,
    /// Bytes that there is room for in all of them.
    pub room_bytes: u64,
    /// Bytes of such pages in the fullest one.
    pub fullest_held_bytes: u64,
    /// Bytes that there is room for in the fullest one.
    pub fullest_room_bytes: u64,
}

impl RingUsage {
    /// Adds a ring that holds so many bytes, of those that there is room for.
    pub fn add(&mut self, held: u64, room: u64) {
        let ring = Self {
            rings: 1,
            held_bytes: held,
            room_bytes: room,
            fullest_held_bytes: held,
            fullest_room_bytes: room,
        };
        self.join(&ring);
    }

    /// Adds other rings.
    pub fn join(&mut self, other: &Self) {
        let [held, room, held_before, room_before] = [
            other.fullest_held_bytes,
            other.fullest_room_bytes,
            self.fullest_held_bytes,
            self.fullest_room_bytes,
        ]
        .map(u128::from);
        let is_fuller = room_before == 0 || held * room_before > held_before * room;
        if is_fuller {
            self.fullest_held_bytes = other.fullest_held_bytes;
            self.fullest_room_bytes = other.fullest_room_bytes;
        }
        self.rings += other.rings;
        self.held_bytes += other.held_bytes;
        self.room_bytes += other.room_bytes;
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counts {
    /// Events that were written to rings, those that were overwritten since included.
    pub events: u64,
    /// Events that there was no room or no right for.
    pub lost: Lost,
    /// Events in pages that newer events were written over.
    pub overwritten_events: u64,
    /// Bytes of those pages.
    pub overwritten_bytes: u64,
    /// Bytes of pages that left the rings to be stored, before they are compressed. `None` where events are
    /// overwritten: what snapshots store stays in the rings.
    pub stored_bytes: Option<u64>,
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        self.events += other.events;
        self.lost += &other.lost;
        self.overwritten_events += other.overwritten_events;
        self.overwritten_bytes += other.overwritten_bytes;
        if let Some(bytes) = other.stored_bytes {
            *self.stored_bytes.get_or_insert_default() += bytes;
        }
    }
}

/// Lost events, by cause, as ledgers of files name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lost {
    /// The ring was full.
    pub ring_full: u64,
    /// The record was longer than a page.
    pub oversize: u64,
    /// The kernel refused to copy the record.
    pub read_fault: u64,
    /// The event interrupted the program of another one, and what there is for such events was full.
    pub nested: u64,
    /// More came than the limit of the event's rate allows.
    pub rate_limit: u64,
}

impl Lost {
    /// Of all causes.
    pub fn total(&self) -> u64 {
        self.causes().iter().map(|(_, count)| count).sum()
    }

    /// Each cause by its name.
    pub fn causes(&self) -> [(&'static str, u64); 5] {
        let Self { ring_full, oversize, read_fault, nested, rate_limit } = *self;
        [
            ("ring_full", ring_full),
            ("oversize", oversize),
            ("read_fault", read_fault),
            ("nested", nested),
            ("rate_limit", rate_limit),
        ]
    }
}

impl AddAssign<&Self> for Lost {
    fn add_assign(&mut self, other: &Self) {
        self.ring_full += other.ring_full;
        self.oversize += other.oversize;
        self.read_fault += other.read_fault;
        self.nested += other.nested;
        self.rate_limit += other.rate_limit;
    }
}

/// What was counted of an event, over all CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventUsage {
    /// `system:name`.
    pub name: String,
    /// Records that were written to rings.
    pub recorded: u64,
    /// Those that were lost.
    pub lost: Lost,
}

fn sum<'c>(all: impl Iterator<Item = &'c Counts>) -> Counts {
    let mut sum = Counts::default();
    all.for_each(|counts| sum += counts);
    sum
}
