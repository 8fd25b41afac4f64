//! What a session has counted in its recordings.

use std::collections::BTreeMap;

use agent_ebpf::LossCause;
use serde::{Deserialize, Serialize};

use api::usage::{Counts, EventUsage, Lost, RingUsage};
use attach::ring::CpuCounts;
use capture::Session;

/// What a buffer has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) cpus: BTreeMap<u32, Counts>,
    /// Those of its recording, or of the last one that there was.
    events: BTreeMap<String, EventCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct EventCounts {
    recorded: u64,
    lost: Lost,
}

impl Tally {
    /// Events for which there was no room, and bytes of pages that newer events were written over.
    pub(crate) fn losses(&self) -> (u64, u64) {
        let of_cpu = |counts: &Counts| (counts.lost.total(), counts.overwritten_bytes);
        let add = |(lost, bytes): (u64, u64), more: (u64, u64)| (lost + more.0, bytes + more.1);
        self.cpus.values().map(of_cpu).fold((0, 0), add)
    }

    /// The events of which something came.
    pub(crate) fn events(&self) -> Vec<EventUsage> {
        let came = |(_, of): &(&String, &EventCounts)| **of != EventCounts::default();
        let usage = |(name, &EventCounts { recorded, lost }): (&String, &EventCounts)| EventUsage {
            name: name.clone(),
            recorded,
            lost,
        };
        self.events.iter().filter(came).map(usage).collect()
    }
}

/// What is counted by buffer, by its name.
pub(crate) type Tallies = BTreeMap<String, Tally>;

/// What a session has counted, and how full its rings are, at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub(crate) tallies: Tallies,
    /// How full the rings of each buffer are on each CPU, where there is a recording that is open.
    pub(crate) rings: BTreeMap<String, BTreeMap<u32, RingUsage>>,
    /// Bytes that were stored since the session was started first; nothing of one that keeps its newest
    /// events.
    pub(crate) stored: Option<u64>,
}

/// What was counted before, and what a recording has counted.
pub(super) fn with(before: &Tallies, session: &Session) -> Tallies {
    let mut tallies = before.clone();
    let ledger = session.ledger();
    for (number, channel) in session.options().channels.iter().enumerate() {
        let tally = tallies.entry(channel.name.clone()).or_default();
        // So there are never more names than a recording has events.
        let mut events: BTreeMap<String, EventCounts> = BTreeMap::new();
        for event in &channel.events {
            let before = tally.events.get(&event.name).copied().unwrap_or_default();
            events.entry(event.name.clone()).or_insert(before);
        }
        for (stream, counts) in ledger.streams.iter().filter(|(stream, _)| stream.index() == number) {
            let room = channel.overwrite.then_some(u64::from(channel.ring_pages));
            *tally.cpus.entry(stream.cpu).or_default() += &of_ring(counts, room);
            for (event, row) in channel.events.iter().zip(&counts.rows) {
                if let Some(of_event) = events.get_mut(&event.name) {
                    of_event.recorded += row.recorded;
                    of_event.lost += &lost(&row.lost);
                }
            }
        }
        tally.events = events;
    }
    for (stream, fill) in session.rings() {
        let Some(channel) = session.options().channels.get(stream.index()) else { continue };
        if let (Some(bytes), Some(tally)) = (fill.stored, tallies.get_mut(&channel.name)) {
            let counts = tally.cpus.entry(stream.cpu).or_default();
            *counts.stored_bytes.get_or_insert_default() += bytes;
        }
    }
    tallies
}

/// How full the rings of a recording are, by buffer and CPU.
pub(super) fn rings(session: &Session) -> BTreeMap<String, BTreeMap<u32, RingUsage>> {
    let mut rings: BTreeMap<String, BTreeMap<u32, RingUsage>> = BTreeMap::new();
    for (stream, fill) in session.rings() {
        let Some(channel) = session.options().channels.get(stream.index()) else { continue };
        let of_channel = rings.entry(channel.name.clone()).or_default();
        of_channel.entry(stream.cpu).or_default().add(fill.held, fill.room);
    }
    rings
}

/// The counts of a ring, which has room for so many pages if events are overwritten in it.
fn of_ring(counts: &CpuCounts, room: Option<u64>) -> Counts {
    let pages = room.map_or(0, |room| counts.head.saturating_sub(room));
    Counts {
        events: counts.events,
        lost: lost(&counts.lost),
        overwritten_events: counts.overwritten,
        overwritten_bytes: pages * agent_ebpf::PAGE_SIZE as u64,
        stored_bytes: None,
    }
}

fn lost(counts: &[u64; LossCause::COUNT]) -> Lost {
    let of = |cause: LossCause| counts.get(cause as usize).copied().unwrap_or_default();
    Lost {
        ring_full: of(LossCause::RingFull),
        oversize: of(LossCause::Oversize),
        read_fault: of(LossCause::ReadFault),
        nested: of(LossCause::Nested),
        rate_limit: of(LossCause::RateLimit),
    }
}
