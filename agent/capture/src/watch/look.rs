//! What one look at the rings does.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{Timespec, epoll},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use super::{LOOK_INTERVAL, Match, RuleId, WatchError, rules::Rules};
use crate::CaptureError;
use agent_ebpf::places;
use attach::ring::{CpuRing, RingId, WakeStream};
use attach::{Closed, PageSwitch};
use bpf::LoadError;
use ftrace_event::Endian;
use tracedat::page;

/// When there is a look at the latest: of a wakeup that failed nobody else would know.
const DEADLINE: Duration = Duration::from_secs(1);
/// Pages of a ring that are decoded before their memory is given back, and the next ring has its turn.
const PAGES_AT_ONCE: u64 = 8;

/// What looks need beside the rings.
#[derive(Debug)]
pub(super) struct Looks {
    /// Waits for the two below.
    epoll: OwnedFd,
    wake: WakeStream,
    timer: OwnedFd,
    switch: PageSwitch,
    /// Before then there is none.
    next: Instant,
    /// Matches that nobody has taken.
    found: Vec<Match>,
}

impl Looks {
    pub(super) fn start(rules: &mut Rules) -> Result<Self, WatchError> {
        let wake = rules.programs.take_wake().pop();
        let wake = wake.ok_or(CaptureError::from(LoadError::Missing("WAKE")))?;
        let switch = rules.programs.take_page_switch();
        let switch = switch.ok_or(CaptureError::from(LoadError::Missing("switch_page")))?;
        let failed = |error: rustix::io::Errno| WatchError::Read(error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        for fd in [wake.as_fd(), timer.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(failed)?;
        }
        let looks = Self { epoll, wake, timer, switch, next: Instant::now(), found: Vec::new() };
        looks.wait_for(DEADLINE)?;
        Ok(looks)
    }

    /// Looks at the rings, unless the last look was a moment ago, and shows what was found.
    pub(super) fn take(&mut self, rules: &mut Rules, each: &mut dyn FnMut(Match)) -> Result<(), WatchError> {
        let begin = Instant::now();
        self.look_if_due(rules)?;
        if !self.found.is_empty() {
            self.found.drain(..).for_each(each);
            // Half of a processor at most, whatever fires.
            self.next = Instant::now() + begin.elapsed().max(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn look_if_due(&mut self, rules: &mut Rules) -> Result<(), WatchError> {
        let now = Instant::now();
        if now < self.next {
            // Readable again when it is time, and not before.
            self.wake.clear();
            self.clear_timer();
            return self.wait_for(self.next - now);
        }
        self.look(rules)
    }

    /// Looks at the rings.
    pub(super) fn look(&mut self, rules: &mut Rules) -> Result<(), WatchError> {
        let begin = Instant::now();
        self.wake.clear();
        self.clear_timer();
        let taken = rules.taken();
        let (cpus, pages) = (rules.options.cpus.clone(), rules.options.ring_pages);
        let mut again = false;
        for &cpu in &cpus {
            let Some(control) = rules.programs.rings.control(cpu) else { continue };
            control.listen();
            if control.has_open_page() {
                let closed = self.switch.close_page(RingId::from(cpu)).map_err(WatchError::Read)?;
                // That the program has run does not mean that it has done something.
                again |= closed != Closed::Offline && control.has_open_page();
            }
        }
        let rings = Arc::clone(&rules.programs.rings);
        let of = |(index, &cpu): (usize, &u32)| rings.reader(cpu, index * pages as usize, pages);
        let readers = cpus.iter().enumerate().filter_map(of);
        let mut readers: Vec<_> = readers.map(|ring| (ring.ready(), ring)).collect();
        while !self.is_full(rules) && readers.iter().any(|(left, _)| *left != 0) {
            for (left, ring) in &mut readers {
                *left = left.saturating_sub(read(ring, *left, rules, &mut self.found));
            }
        }
        if readers.iter().all(|(left, _)| *left == 0) {
            // What was taken since then waits, at most: each rule has all its places left beside half of
            // each ring. Of a page that a program was writing to, the rest waits as well.
            rules.give_back(&taken);
            // Places that were taken before a CPU was listened to have woken nobody, nor do events without a
            // place.
            again |= rules.lacks_places();
        } else {
            again = true;
        }
        put_in_order(&mut self.found);
        self.next = Instant::now() + begin.elapsed().max(LOOK_INTERVAL);
        self.wait_for(if again { LOOK_INTERVAL } else { DEADLINE })
    }

    /// Whether there is so much to take that no look finds more: as many matches as there are places, which
    /// may be far less than what the rings of a large machine hold. The rest is for the next look.
    pub(super) fn is_full(&self, rules: &Rules) -> bool {
        self.found.len() >= rules.places()
    }

    /// Makes the descriptor readable at once if there is something to take.
    pub(super) fn tell(&self) -> Result<(), WatchError> {
        if self.found.is_empty() { Ok(()) } else { self.wait_for(Duration::from_nanos(1)) }
    }

    fn wait_for(&self, time: Duration) -> Result<(), WatchError> {
        let it_value = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        set.map(drop).map_err(|error| WatchError::Read(error.into()))
    }

    fn clear_timer(&self) {
        // It may not have run out.
        let _ = rustix::io::read(&self.timer, &mut [0_u8; 8][..]);
    }
}

impl AsFd for Looks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Puts matches into the order in which they are told: those of rules with few of them first.
fn put_in_order(found: &mut [Match]) {
    let mut counts = HashMap::<RuleId, u64>::new();
    for of in &*found {
        *counts.entry(of.rule).or_default() += 1;
    }
    let is_frequent = |rule: RuleId| counts.get(&rule).is_some_and(|count| *count > places::OF_RULE);
    found.sort_by_key(|of| (is_frequent(of.rule), of.time));
}

/// Decodes some of the pages that wait in a ring, of which there are so many, and gives their memory back.
/// Gives how many pages that were.
fn read(ring: &mut CpuRing<'_>, waiting: u64, rules: &mut Rules, found: &mut Vec<Match>) -> u64 {
    let cpu = ring.cpu();
    let mut claim = ring.claim();
    let run = claim.next_run(PAGES_AT_ONCE.min(waiting));
    for page in run.bytes.chunks_exact(agent_ebpf::PAGE_SIZE) {
        page::each_timed_record(page, Endian::Little, |time, record| {
            let number = record.first_chunk().map(|number| u16::from_le_bytes(*number));
            let Some(target) = number.and_then(|number| rules.target(number)) else { return };
            let (rule, decoded) = (target.rule, target.decoder.read(target.rule, (time, cpu), record));
            rules.count(rule);
            found.push(decoded);
        });
    }
    let pages = run.pages;
    claim.commit();
    // None of those that wait only by counters that make no sense.
    if pages == 0 { waiting } else { pages }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: RuleId, time: u64) -> Match {
        let (event, comm, captured) = ("a:b".into(), Vec::new(), Vec::new());
        Match { rule, event, time, cpu: 0, pid: 0, tid: 0, comm, captured }
    }

    #[test]
    fn matches_of_rules_with_few_of_them_are_told_first() {
        let few = |at: u64| (0..places::OF_RULE).map(move |number| found(2, at + number));
        let many = (0..=places::OF_RULE).map(|number| found(1, number));
        let mut all: Vec<Match> = many.chain(few(100)).chain([found(3, 105), found(3, 50)]).collect();
        all.reverse();
        put_in_order(&mut all);
        let (first, last) = all.split_at(places::OF_RULE as usize + 2);
        assert_eq!((first[0].rule, first[0].time), (3, 50));
        assert!(first.iter().all(|of| of.rule != 1) && first.is_sorted_by_key(|of| of.time));
        assert!(last.iter().all(|of| of.rule == 1) && last.is_sorted_by_key(|of| of.time));
    }
}
