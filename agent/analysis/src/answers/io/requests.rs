//! Requests to block devices: which is issued, waits in a queue, or is done.
//!
//! Records name a request by its device and first sector. It can change on its way (block/blk-mq.c,
//! blk-merge.c, blk-flush.c):
//!
//! * While it waits, others are merged with it, in front of it or behind it: the one that is issued has all
//!   their sectors, and is none of its own only where an earlier one began at its first sector.
//! * A part of it can be done, and the rest goes on behind that part.
//! * The driver can give it back, and gets it again later.
//! * A flush has no sectors. Its first sector is 0 when it is issued and all ones when it is done. A write
//!   that is to flush the cache, too, is told to be done once more, without sectors, when that has happened.
//!
//! A completion can be missing without a mark, as from recordings of some threads: it fires in an interrupt
//! of any thread. Two requests at one place are seldom under way at a time, so a second one ends the first
//! one as unknown, and the next completion there ends either: no duration is made of it. Requests without a
//! known end are in flight for an unknown time, which depths and busy times leave out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Operation;
use crate::answers::{At, Request, Scope};

/// Most requests that are followed at a time.
const MOST_OPEN: usize = 1 << 16;

/// Most times of a device that are looked back to: more than requests that are under way at a time.
const MOST_TIMES: usize = 1 << 10;

/// Most devices.
pub(super) const MOST_DEVICES: usize = 1 << 10;

/// What records of a request name it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The disk, as the events number it.
    pub device: u64,
    /// What the request does.
    pub operation: Operation,
    sector: u64,
}

impl Place {
    /// A place of a record. What has no sector is at all ones in some records and at 0 in others.
    pub fn new(device: u64, sector: u64, rwbs: &[u8]) -> Self {
        let sector = if sector == u64::MAX { 0 } else { sector };
        Self { device, operation: Operation::of(rwbs), sector }
    }

    fn at(self, sector: u64) -> Self {
        Self { sector, ..self }
    }
}

/// A request that was issued.
#[derive(Clone, Copy, Debug)]
pub struct Issued<W> {
    /// Who gave it to the driver.
    pub by: W,
    /// When.
    pub(crate) since: u64,
    /// How much it reads or writes.
    pub(crate) bytes: u64,
    /// How long it waited in a queue, if it was seen to be put there.
    pub(super) queued: Option<u64>,
    /// How many others were merged with it while it waited.
    pub(super) merged: u64,
    /// Whether a part of it has failed.
    pub is_failed: bool,
    /// Whether what ends it may be the end of an earlier request at its place.
    pub is_ambiguous: bool,
    /// Sectors that are not done.
    left: u64,
}

/// A request, or a part of one, is done.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Where the request goes.
    pub place: Place,
    /// Its length in sectors of 512 bytes.
    pub sectors: u64,
    /// Whether it completed with an error.
    pub is_failed: bool,
}

/// A block device, as far as the ends of its requests were seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    /// The times of the last issues, with the number of requests that were under way then.
    issues: VecDeque<(u64, u64)>,
    /// The last times with at least one request, one behind the other.
    spans: VecDeque<(u64, u64)>,
    /// What was before this time is counted.
    counted_until: u64,
    /// Most at a time.
    pub(super) most: u64,
    /// Time in flight, of all requests.
    pub(super) in_flight_ns: u128,
    /// Time with at least one.
    pub(super) busy_ns: u64,
    /// Requests that were done without having been issued.
    pub(super) unmatched: u64,
}

impl Device {
    fn issue(&mut self, at: At, scope: &Scope) {
        if scope.from.is_none_or(|from| at.time >= from) {
            self.count_at(at.time);
        }
    }

    /// Counts the requests that are under way at a time.
    fn count_at(&mut self, time: u64) {
        if self.issues.len() >= MOST_TIMES {
            self.issues.pop_front();
        }
        self.issues.push_back((time, 0));
    }

    /// A request was under way.
    fn end(&mut self, since: u64, at: At, scope: &Scope) {
        self.in_flight_ns += u128::from(scope.part(since, at.time));
        for (time, count) in self.issues.iter_mut().rev().take_while(|(time, _)| *time >= since) {
            // One that ends with the next one's beginning is over then.
            if *time < at.time {
                *count += 1;
                self.most = self.most.max(*count);
            }
        }
        self.add_span(since, at.time, scope);
    }

    /// Counts the time of a request in which there was no other. No span ends behind it.
    fn add_span(&mut self, since: u64, end: u64, scope: &Scope) {
        let mut begin = since.clamp(self.counted_until.min(end), end);
        let mut time = scope.part(begin, end);
        while let Some((from, to)) = self.spans.pop_back_if(|(_, to)| *to >= begin) {
            time = time.saturating_sub(scope.part(from.max(begin), to));
            begin = begin.min(from);
        }
        self.busy_ns = self.busy_ns.saturating_add(time);
        if self.spans.len() >= MOST_TIMES
            && let Some((_, to)) = self.spans.pop_front()
        {
            self.counted_until = to;
        }
        self.spans.push_back((begin, end));
    }
}

/// What came of a request that was given to a driver.
#[derive(Clone, Debug)]
pub struct GivenToDriver<W> {
    /// Whether there was room for it.
    pub is_followed: bool,
    /// Earlier ones at its place, with who gave each to the driver. Their ends were not seen.
    pub unseen: Vec<(Place, W)>,
}

/// The requests that are under way, with who gave each to the driver.
#[derive(Clone, Debug)]
pub struct Requests<W> {
    /// By place, and by the order in which they came: there can be several at one.
    issued: BTreeMap<(Place, u64), Issued<W>>,
    /// Since when they wait.
    waiting: BTreeMap<(Place, u64), u64>,
    pub(super) devices: BTreeMap<u64, Device>,
    next: u64,
    /// Requests for which there was no room.
    pub(super) left_out: u64,
}

impl<W> Default for Requests<W> {
    fn default() -> Self {
        let (issued, waiting, devices) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { issued, waiting, devices, next: 0, left_out: 0 }
    }
}

impl<W: Copy> Requests<W> {
    /// A device; `None` if there are too many.
    fn device(&mut self, device: u64) -> Option<&mut Device> {
        if self.devices.len() >= MOST_DEVICES && !self.devices.contains_key(&device) {
            return None;
        }
        Some(self.devices.entry(device).or_default())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A request is put into a queue.
    pub(crate) fn insert(&mut self, at: At, request: &Request<'_>) {
        if self.waiting.len() >= MOST_OPEN {
            // Those that went some other way and will never be issued are among them.
            self.left_out += self.waiting.len() as u64;
            self.waiting.clear();
        }
        let place = Place::new(request.device, request.sector, request.rwbs);
        let number = self.number();
        self.waiting.insert((place, number), at.time);
    }

    /// A request is given to the driver.
    pub fn issue(&mut self, at: At, request: &Request<'_>, by: W, scope: &Scope) -> GivenToDriver<W> {
        let place = Place::new(request.device, request.sector, request.rwbs);
        let left = request.bytes >> 9;
        let waited = self.take_waiting(place, left);
        let mut unseen = Vec::new();
        while let Some(issued) = self.find(place, |_| true).and_then(|key| self.issued.remove(&key)) {
            unseen.push((place, issued.by));
        }
        let has_room = self.issued.len() < MOST_OPEN;
        let Some(device) = self.device(request.device).filter(|_| has_room) else {
            self.left_out += 1;
            return GivenToDriver { is_followed: false, unseen };
        };
        device.issue(at, scope);
        let (queued, merged) = match waited {
            Some((since, count)) => (Some(at.time - since), count - 1),
            None => (None, 0),
        };
        let number = self.number();
        let (is_failed, is_ambiguous) = (false, !unseen.is_empty());
        let (since, bytes) = (at.time, request.bytes);
        let issued = Issued { by, since, bytes, queued, merged, is_failed, is_ambiguous, left };
        self.issued.insert((place, number), issued);
        GivenToDriver { is_followed: true, unseen }
    }

    /// How many requests there were for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Takes all that waited in the sectors of a request: since when, and how many there were.
    fn take_waiting(&mut self, place: Place, sectors: u64) -> Option<(u64, u64)> {
        let last = place.at(place.sector.saturating_add(sectors.saturating_sub(1)));
        let mut found: Option<(u64, u64)> = None;
        while let Some((key, since)) = self.waiting.range((place, 0)..=(last, u64::MAX)).next() {
            let (key, since) = (*key, *since);
            self.waiting.remove(&key);
            found = Some(found.map_or((since, 1), |(first, count)| (first.min(since), count + 1)));
            if sectors == 0 {
                break;
            }
        }
        found
    }

    /// The first request at a place that has so many sectors left, or any if `None`.
    fn find(&self, place: Place, is_it: impl Fn(&Issued<W>) -> bool) -> Option<(Place, u64)> {
        let mut there = self.issued.range((place, 0)..=(place, u64::MAX));
        there.find(|(_, issued)| is_it(issued)).map(|(key, _)| *key)
    }

    fn take(&mut self, at: At, key: (Place, u64), scope: &Scope) -> Option<Issued<W>> {
        let issued = self.issued.remove(&key)?;
        if let Some(device) = self.devices.get_mut(&key.0.device).filter(|_| !issued.is_ambiguous) {
            device.end(issued.since, at, scope);
        }
        Some(issued)
    }

    /// The driver gives a request back: the one that it was, if it was seen to be issued.
    pub fn requeue(&mut self, at: At, place: Place, scope: &Scope) -> Option<Issued<W>> {
        let key = self.find(place, |_| true)?;
        self.take(at, key, scope)
    }

    /// A request is done: the one that it was, if all of it is done and it was seen to be issued. Where not
    /// `has_all` requests are recorded, it may be another thread's.
    pub fn complete(&mut self, at: At, done: Completion, scope: &Scope, has_all: bool) -> Option<Issued<W>> {
        let Completion { place, sectors, is_failed } = done;
        if let Some(key) = self.find(place, |issued| issued.left == sectors) {
            let issued = self.take(at, key, scope)?;
            return Some(Issued { is_failed: issued.is_failed || is_failed, ..issued });
        }
        if sectors == 0 && place.operation != Operation::Flush {
            // The end of a flush that belongs to a write, which was done before.
            return None;
        }
        if let Some(key) = self.find(place, |issued| sectors != 0 && issued.left > sectors) {
            let mut rest = self.issued.remove(&key)?;
            rest.left -= sectors;
            rest.is_failed |= is_failed;
            self.issued.insert((place.at(place.sector.saturating_add(sectors)), key.1), rest);
            return None;
        }
        // The queue has it no longer, whichever thread issued it.
        self.take_waiting(place, sectors);
        if has_all && scope.has(at) {
            match self.device(place.device) {
                Some(device) => device.unmatched += 1,
                None => self.left_out += 1,
            }
        }
        None
    }

    /// Events were lost, or the recording ends: which of the requests go on is not known. Those that were
    /// under way.
    pub fn lose(&mut self) -> impl Iterator<Item = (Place, W)> + use<W> {
        self.waiting.clear();
        std::mem::take(&mut self.issued).into_iter().map(|((place, _), issued)| (place, issued.by))
    }

    /// Who gave those that are under way to the driver.
    pub(super) fn requesters(&self) -> impl Iterator<Item = W> {
        self.issued.values().map(|issued| issued.by)
    }

    /// Forgets what was counted, and says anew who gave requests to the driver.
    pub(super) fn restart(&mut self, from: u64, mut by: impl FnMut(W) -> W) {
        self.left_out = 0;
        let open: BTreeSet<u64> = self.issued.keys().map(|(place, _)| place.device).collect();
        self.devices.retain(|device, _| open.contains(device));
        for device in self.devices.values_mut() {
            *device = Device { counted_until: from, ..Device::default() };
            device.count_at(from);
        }
        for issued in self.issued.values_mut() {
            issued.by = by(issued.by);
        }
    }
}
