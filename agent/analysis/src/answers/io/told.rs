//! What is counted of calls and of requests.

use std::collections::{BTreeMap, btree_map::Entry};

use super::files::FileId;
use super::requests::Issued;
use crate::answers::calls::ERRORS;
use crate::answers::tally::Tally;
use crate::answers::{Room, Times};

/// Most pairs of a thread and a file.
const MOST_PAIRS: usize = 1 << 17;

/// Most combinations of a thread, a device and an operation.
const MOST_REQUESTERS: usize = 1 << 14;

/// How much more can be told apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms {
    pairs: usize,
    requesters: usize,
    /// For the times and the errors of all of them.
    sizes: Room,
    /// Calls and requests that have no room.
    pub(super) left_out: u64,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { pairs: MOST_PAIRS, requesters: MOST_REQUESTERS, sizes: Room::default(), left_out: 0 }
    }
}

/// The value of a key, which is new if there is room.
fn entry<'m, K: Ord, V: Default>(
    map: &'m mut BTreeMap<K, V>,
    key: K,
    room: &mut usize,
    left_out: &mut u64,
) -> Option<&'m mut V> {
    match map.entry(key) {
        Entry::Occupied(found) => Some(found.into_mut()),
        Entry::Vacant(_) if *room == 0 => {
            *left_out += 1;
            None
        }
        Entry::Vacant(place) => {
            *room -= 1;
            Some(place.insert(V::default()))
        }
    }
}

/// What a thread did with a file, if there is room.
pub(super) fn of_file<'m>(
    map: &'m mut BTreeMap<FileId, OfFile>,
    file: FileId,
    rooms: &mut Rooms,
) -> Option<&'m mut OfFile> {
    entry(map, file, &mut rooms.pairs, &mut rooms.left_out)
}

/// What a thread asked of a device, if there is room.
pub(super) fn of_device<'m, K: Ord>(
    map: &'m mut BTreeMap<K, OfDevice>,
    key: K,
    rooms: &mut Rooms,
) -> Option<&'m mut OfDevice> {
    entry(map, key, &mut rooms.requesters, &mut rooms.left_out)
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) result: i64,
    pub(super) time: u64,
    pub(super) at: u64,
}

impl Ended {
    pub(super) fn is_failed(self) -> bool {
        ERRORS.contains(&self.result)
    }

    /// The result, if it is a number of bytes.
    fn bytes(self) -> u64 {
        u64::try_from(self.result).unwrap_or(0)
    }
}

/// Calls of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) times: Times,
    pub(super) bytes: u64,
    /// By the positive numbers of the errors; `None` as long as there are none.
    pub(super) errors: Option<Box<Tally>>,
}

impl Done {
    /// Counts a call that returns how much it did, or nothing.
    pub(super) fn add(&mut self, ended: Ended, rooms: &mut Rooms) {
        self.times.add_within(ended.time, ended.at, &mut rooms.sizes);
        if ended.is_failed() {
            self.errors.get_or_insert_default().add((-ended.result) as u16, 1, &mut rooms.sizes);
        } else {
            self.bytes = self.bytes.saturating_add(ended.bytes());
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.bytes = self.bytes.saturating_add(other.bytes);
        if let Some(errors) = &other.errors {
            self.errors.get_or_insert_default().merge(errors);
        }
    }
}

/// What was done with a file.
#[derive(Clone, Debug, Default)]
pub(super) struct OfFile {
    pub(super) opens: Done,
    pub(super) reads: Done,
    pub(super) writes: Done,
    pub(super) syncs: Done,
}

impl OfFile {
    pub(super) fn merge(&mut self, other: &Self) {
        self.opens.merge(&other.opens);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.syncs.merge(&other.syncs);
    }
}

/// Calls of one kind of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) bytes: u64,
    pub(super) time: u64,
}

impl Sum {
    pub(super) fn add(&mut self, ended: Ended) {
        self.count += 1;
        self.time = self.time.saturating_add(ended.time);
        if ended.is_failed() {
            self.failed += 1;
        } else {
            self.bytes = self.bytes.saturating_add(ended.bytes());
        }
    }
}

/// What the calls of a thread did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) opens: Sum,
    pub(super) reads: Sum,
    pub(super) writes: Sum,
    pub(super) syncs: Sum,
    /// Time in calls, also in those that close.
    pub(super) time: u64,
    pub(super) unfinished: u64,
    pub(super) unmatched: u64,
}

/// Requests to a device, of one operation.
#[derive(Clone, Debug, Default)]
pub(super) struct OfDevice {
    pub(super) times: Times,
    pub(super) bytes: u64,
    pub(super) queued: Times,
    pub(super) merged: u64,
    pub(super) requeued: u64,
    pub(super) failed: u64,
    pub(super) unfinished: u64,
}

impl OfDevice {
    /// Counts a request that is done.
    pub(super) fn add<W>(&mut self, issued: &Issued<W>, now: u64, rooms: &mut Rooms) {
        self.times.add_within(now - issued.since, now, &mut rooms.sizes);
        self.bytes = self.bytes.saturating_add(issued.bytes);
        if let Some(queued) = issued.queued {
            self.queued.add_within(queued, issued.since, &mut rooms.sizes);
        }
        self.merged += issued.merged;
        self.failed += u64::from(issued.is_failed);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.queued.merge(&other.queued);
        self.merged += other.merged;
        self.requeued += other.requeued;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
    }
}
