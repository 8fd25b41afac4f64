//! How many file descriptors a capture has open while it records.
//!
//! What is counted are the descriptors that grow with what is asked for; the numbers are upper bounds of what
//! recordings were seen to open.

use super::{Addition, CaptureEvent, CaptureOptions, CaptureProbe, ChannelOptions};

/// Of a session: its spool, its readers' and writers' wake-ups, the maps and programs that are about threads.
const SESSION: u64 = 24;
/// Of a program object: its programs, and the maps that are not of one CPU.
const OBJECT: u64 = 24;
/// Of a ring: its map and the file in the spool, with those that take turns with them in a rotation.
const RING: u64 = 6;
/// Of an event or of the program of a probe: the program and its link, of some a perf event, too.
const EVENT: u64 = 3;

impl CaptureOptions {
    /// How many descriptors recording this opens at most.
    pub fn descriptors(&self) -> u64 {
        let cpus = self.cpus.len() as u64;
        let channels = self.channels.iter().map(|channel| channel.descriptors(cpus));
        let maps = self.maps.iter().map(|map| map.channel.descriptors(0));
        let all = channels.chain(maps);
        all.fold(SESSION.saturating_add(self.counters.descriptors()), u64::saturating_add)
    }
}

impl ChannelOptions {
    fn descriptors(&self, cpus: u64) -> u64 {
        let rings = cpus.saturating_mul(self.set_count().into()).saturating_mul(RING);
        OBJECT.saturating_add(rings).saturating_add(of_events(&self.events, &self.probes))
    }
}

impl Addition {
    /// How many descriptors adding this opens at most.
    pub fn descriptors(&self) -> u64 {
        OBJECT.saturating_add(of_events(&self.events, &self.probes))
    }
}

fn of_events(events: &[CaptureEvent], probes: &[CaptureProbe]) -> u64 {
    let programs = probes.iter().map(|probe| probe.programs.len()).sum::<usize>();
    (events.len().saturating_add(programs) as u64).saturating_mul(EVENT)
}
