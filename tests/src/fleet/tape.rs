//! What the CPUs of a host record, page by page, and what they lose.

use ftrace_event::Endian;
use tracedat::page::{PageBuilder, Push};

use super::PAGE;
use super::truth::{Gap, Truth};

/// The records of a host.
#[derive(Debug)]
pub(super) struct Tape {
    /// The host's clock.
    pub(super) now: u64,
    /// How many records there are.
    pub(super) recorded: u64,
    /// What happened, if it is noted.
    pub(super) truth: Option<Truth>,
    first: u64,
    is_counted: bool,
    tracks: Vec<Track>,
}

/// The records of a CPU.
#[derive(Debug)]
struct Track {
    builder: PageBuilder,
    pages: Vec<u8>,
    /// Events that will be lost next.
    to_lose: u64,
    /// Those that were lost since the last record.
    losing: u64,
    lost: u64,
    last: u64,
}

impl Tape {
    /// That of so many CPUs. `is_counted`: where events are missing, the file says how many.
    pub(super) fn new(cpus: u32, start: u64, is_counted: bool, noted: bool) -> Self {
        let track = || Track {
            builder: PageBuilder::new(PAGE as usize, Endian::Little).unwrap(),
            pages: Vec::new(),
            to_lose: 0,
            losing: 0,
            lost: 0,
            last: start,
        };
        Self {
            now: start,
            recorded: 0,
            truth: noted.then(Truth::default),
            first: u64::MAX,
            is_counted,
            tracks: (0..cpus).map(|_| track()).collect(),
        }
    }

    /// Has a CPU record something now, or lose it. Gives the time if it is recorded.
    pub(super) fn emit(&mut self, cpu: usize, record: &[u8]) -> Option<u64> {
        let (now, track) = (self.now, &mut self.tracks[cpu]);
        if track.to_lose > 0 {
            track.to_lose -= 1;
            track.losing += 1;
            track.lost += 1;
            return None;
        }
        if track.losing > 0 {
            let missed = std::mem::take(&mut track.losing);
            // 0 is a number that is not known.
            track.builder.missed(if self.is_counted { missed } else { 0 });
            if let Some(truth) = &mut self.truth {
                truth.gaps.push(Gap { cpu: cpu as u32, from: track.last, to: now, missed });
            }
        }
        if track.builder.push(now, record).unwrap() == Push::Full {
            track.pages.extend_from_slice(track.builder.finish().unwrap_or_default());
            assert_eq!(track.builder.push(now, record).unwrap(), Push::Stored);
        }
        track.last = now;
        self.first = self.first.min(now);
        self.recorded += 1;
        Some(now)
    }

    /// Has a CPU lose what comes next.
    pub(super) fn lose(&mut self, cpu: usize, events: u64) {
        self.tracks[cpu].to_lose += events;
    }

    /// What is true of the records. Where the file does not say how many events are missing at each place,
    /// some of those that a CPU lost may be behind its last record.
    pub(super) fn into_truth(self) -> Option<Truth> {
        let mut truth = self.truth?;
        let may_lack_end = |track: &&(u32, Track)| !self.is_counted && track.1.lost > 0;
        let tracks: Vec<_> = (0..).zip(self.tracks).collect();
        let ends = tracks.iter().filter(may_lack_end);
        truth.gaps.extend(ends.map(|(cpu, track)| Gap {
            cpu: *cpu,
            from: track.last,
            to: u64::MAX,
            missed: 0,
        }));
        Some(truth)
    }

    /// What each CPU lost.
    pub(super) fn lost(&self) -> Vec<u64> {
        self.tracks.iter().map(|track| track.lost).collect()
    }

    /// Times of the first and the last record.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.first, self.tracks.iter().map(|track| track.last).max().unwrap())
    }

    /// The pages of each CPU, which are gone then.
    pub(super) fn pages(&mut self) -> Vec<Vec<u8>> {
        let pages = self.tracks.iter_mut().map(|track| {
            track.pages.extend_from_slice(track.builder.finish().unwrap_or_default());
            std::mem::take(&mut track.pages)
        });
        pages.collect()
    }
}
