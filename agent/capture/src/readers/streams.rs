//! The streams that a reader thread serves: what of them is to be moved, and when.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    ChannelReading, ChannelSource, Cpus, Stored, ToBorder,
    timer::{SwitchTimer, ToClose},
};
use crate::SpoolError;
use crate::spool::CpuSpool;
use attach::ring::{CpuCounts, CpuRing, Held};
use attach::{Closed, PageSwitch};
use tracedat::layout;

/// Pages compressed together. Readers of trace files decompress a chunk at a time and the best of them cache
/// few, so 10 to 64 pages are the sizes that serve both.
pub(super) const CHUNK_PAGES: u64 = layout::CHUNK_PAGES as u64;
/// How long a complete page waits at most before it is stored, unless the user chooses a time, and all that
/// an idle machine notices of the reader.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);

/// How long a page that is to be closed for a pause is asked for, and how often.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const CLOSE_AGAIN: Duration = Duration::from_millis(1);

/// A stream: its ring, and where that is stored.
pub(super) struct Served<'r> {
    pub(super) ring: CpuRing<'r>,
    pub(super) spool: CpuSpool,
    /// What is to be done at the next border.
    pub(super) asked: Option<(AtBorder, ToBorder)>,
    /// Where what the ring holds is to be stored, up to its border.
    pub(super) marked: Option<(CpuSpool, CpuCounts, Option<u64>)>,
    /// What is moved in this round.
    pub(super) left: Left,
}

/// Pages that are to be moved.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    pub(super) ready: u64,
    /// As long as there are so many. 0 for nothing at all.
    pub(super) least: u64,
}

impl Left {
    /// The whole chunks that wait in a ring now; if `all`, every page.
    pub(super) fn now(ring: &CpuRing<'_>, spool: &mut CpuSpool, all: bool) -> Self {
        let least = if all { 1 } else { chunk_pages(ring.capacity()) };
        // No more than waits now: that much is in the note, and what comes from here on is for the next
        // round.
        let ready = ring.ready();
        if all || ready >= least {
            spool.note(ring.control());
        }
        Self { ready, least }
    }

    pub(super) fn is_enough(self) -> bool {
        self.least != 0 && self.ready >= self.least
    }
}

/// The streams of a channel, or of one of its sets of rings.
pub(super) struct Group<'r> {
    pub(super) options: &'r ChannelReading,
    switch: &'r PageSwitch,
    pub(super) streams: Vec<Served<'r>>,
    /// When everything that waits is moved. Its own time, not that of the last wakeup: a ring that fills
    /// slowly must not wait for as long as others wake the reader.
    due: Instant,
    timer: Option<SwitchTimer>,
    /// Whether the time has come.
    pub(super) is_due: bool,
}

impl Group<'_> {
    /// When something is to be done.
    pub(super) fn next(&self) -> Instant {
        self.timer.as_ref().map_or(self.due, |timer| timer.next().min(self.due))
    }

    /// Looks whether the time has come, and has open pages closed if it has.
    pub(super) fn look_at(&mut self, now: Instant) -> Result<(), SpoolError> {
        let deadline = self.options.deadline.unwrap_or(DEADLINE);
        self.is_due = now >= self.due;
        if let Some(timer) = &mut self.timer {
            self.is_due |= close_open_pages(self.switch, timer, now, &self.streams)?;
        }
        if self.is_due {
            self.due = now + deadline;
        }
        Ok(())
    }

    /// Has all pages closed that have events, while programs write no more. One that cannot be closed soon,
    /// for example because its CPU is offline, is left to the timer, if there is one.
    pub(super) fn close_pages(&mut self) -> Result<(), SpoolError> {
        for served in &self.streams {
            let deadline = Instant::now() + CLOSE_TIMEOUT;
            // That the program has run does not mean that it has done something (`attach::border`).
            while close_page(self.switch, served)? != Closed::Offline && served.ring.control().has_open_page()
            {
                if Instant::now() >= deadline {
                    break;
                }
                std::thread::sleep(CLOSE_AGAIN);
            }
            if served.ring.control().has_open_page()
                && let Some(timer) = &mut self.timer
            {
                timer.busy.push(served.ring.cpu());
            }
        }
        Ok(())
    }
}

/// The streams of the groups that overwrite, or of the others.
pub(super) fn of_kind<'g, 'r>(
    groups: &'g mut [Group<'r>],
    overwrite: bool,
) -> impl Iterator<Item = &'g mut Served<'r>> {
    let chosen = groups.iter_mut().filter(move |group| group.options.overwrite == overwrite);
    chosen.flat_map(|group| &mut group.streams)
}

/// The streams of all groups.
pub(super) fn all<'g, 'r>(groups: &'g mut [Group<'r>]) -> impl Iterator<Item = &'g mut Served<'r>> {
    groups.iter_mut().flat_map(|group| &mut group.streams)
}

#[derive(Clone, Copy)]
pub(super) enum AtBorder {
    /// It is stored in the spool from there on.
    GoOver,
    /// What the ring holds up to there is stored in the spool.
    Copy,
}

impl Served<'_> {
    pub(super) fn stored(&self) -> Stored {
        stored_in(&self.spool)
    }
}

pub(super) fn stored_in(spool: &CpuSpool) -> Stored {
    Stored { stream: spool.stream(), archive: spool.archive(), totals: spool.totals(), begin: spool.begin() }
}

/// Looks at what is to be moved of each stream that is stored meanwhile.
pub(super) fn begin_round(groups: &mut [Group<'_>]) {
    for group in groups.iter_mut().filter(|group| !group.options.overwrite) {
        let is_due = std::mem::take(&mut group.is_due);
        for Served { ring, spool, left, .. } in &mut group.streams {
            ring.control().listen();
            *left = Left::now(ring, spool, is_due);
        }
    }
}

/// The rings and spools of these CPUs, by channel and set.
pub(super) fn groups<'r>(
    channels: &'r [ChannelSource],
    options: &'r [ChannelReading],
    cpus: &Cpus,
    mut spools: Vec<CpuSpool>,
) -> Vec<Group<'r>> {
    let mut groups = Vec::new();
    for (source, options) in channels.iter().zip(options) {
        let (own, others): (Vec<_>, Vec<_>) =
            spools.into_iter().partition(|spool| spool.stream().channel == options.number);
        spools = others;
        let pages = options.ring_pages;
        let serve = |mut spool: CpuSpool| {
            let index = cpus.ids.iter().position(|cpu| *cpu == spool.stream().cpu)?;
            let first_page = (options.first_ring + cpus.first + index) * pages as usize;
            let ring = source.rings.reader(spool.stream().ring(), first_page, pages)?;
            spool.know_owners(source.owners.clone());
            Some(Served { ring, spool, asked: None, marked: None, left: Left::default() })
        };
        // A flight recorder's pages stay where they are.
        let period = options.switch.filter(|_| !options.overwrite);
        groups.push(Group {
            options,
            switch: &source.switch,
            streams: own.into_iter().filter_map(serve).collect(),
            due: Instant::now() + options.deadline.unwrap_or(DEADLINE),
            timer: period.map(SwitchTimer::start),
            is_due: false,
        });
    }
    groups
}

/// Has the pages of a channel closed that have events, if it is time. Gives whether some were.
fn close_open_pages(
    switch: &PageSwitch,
    timer: &mut SwitchTimer,
    now: Instant,
    streams: &[Served<'_>],
) -> Result<bool, SpoolError> {
    let Some(asked) = timer.take(now) else { return Ok(false) };
    let mut closed = false;
    for served in streams {
        let cpu = served.ring.cpu();
        if !asked.has(cpu) || !served.ring.control().has_open_page() {
            continue;
        }
        if close_page(switch, served)? == Closed::Busy {
            timer.busy.push(cpu);
        } else {
            closed = true;
        }
    }
    Ok(closed || matches!(asked, ToClose::All))
}

/// Has the page of a stream closed, if it has events.
fn close_page(switch: &PageSwitch, Served { ring, spool, .. }: &Served<'_>) -> Result<Closed, SpoolError> {
    if !ring.control().has_open_page() {
        return Ok(Closed::Done);
    }
    let refused = SpoolError::io("close a page for (BPF_PROG_TEST_RUN)", spool.dir());
    switch.close_page(ring.id()).map_err(refused)
}

/// The complete pages of an overwriting ring, while they are copied, oldest first.
pub(super) struct Newest {
    pub(super) held: Held,
    pub(super) pages: Range<u64>,
    /// The page before which the last one is.
    pub(super) end: u64,
    /// Events that there were up to there.
    pub(super) recorded: u64,
    /// Those from the page at hand on.
    pub(super) left: u64,
    /// Pages before this one are not copied.
    pub(super) from: u64,
    /// Whether some page was copied.
    pub(super) has_some: bool,
}

impl Newest {
    /// Those before page `end`, up to which there were `recorded` events.
    pub(super) fn before(ring: &CpuRing<'_>, (end, recorded): (u64, u64)) -> Self {
        let held = ring.held(end);
        let pages = held.pages();
        let left = held.events_from(pages.start);
        Self { from: pages.start, left, end, recorded, has_some: false, pages, held }
    }

    /// Leaves out pages in which no event is of a time or later. Where programs reuse a page meanwhile, some
    /// that are older may be among the rest.
    pub(super) fn since(mut self, ring: &CpuRing<'_>, time: u64) -> Self {
        // What is in a page is before what the next one begins with.
        let is_before = |number: u64| ring.begin_of(number + 1).is_some_and(|next| next <= time);
        let (mut from, mut to) = (self.pages.start, self.pages.end.saturating_sub(1));
        while from < to {
            let middle = from + (to - from) / 2;
            if is_before(middle) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        self.from = self.from.max(from);
        self
    }

    pub(super) fn is_over(&self) -> bool {
        self.pages.is_empty()
    }
}

/// How many pages are moved at once: a full chunk, or a quarter of a small ring.
pub(super) fn chunk_pages(capacity: u64) -> u64 {
    CHUNK_PAGES.min(capacity / 4).max(1)
}

/// How many waiting pages wake the reader of a ring: a quarter of it. While the reader gets up, the rest
/// takes what comes.
pub(crate) fn wake_pages(ring_pages: u32) -> u32 {
    (ring_pages / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rings_are_read_before_they_are_full() {
        assert_eq!(chunk_pages(1024), CHUNK_PAGES);
        assert_eq!(chunk_pages(16), 4);
        assert_eq!(chunk_pages(2), 1);
        for pages in [2, 3, 16, 64, 1024] {
            let wake = u64::from(wake_pages(pages));
            assert!(wake >= chunk_pages(pages.into()), "a reader that is woken finds a whole chunk");
            assert!(wake < u64::from(pages));
        }
    }
}
