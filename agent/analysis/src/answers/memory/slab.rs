//! Memory that the kernel takes for itself: `kmalloc` and its caches.

use std::collections::HashMap;

use crate::answers::tally::Room;
use crate::answers::who::Who;
use crate::answers::{At, Times};

/// Most objects that are known at a time: as many as a table of 2^20 places holds. With these and twice the
/// places it takes 52 MB.
const MOST: usize = (1 << 20) / 8 * 7;

/// Most combinations of who takes memory, where, and from which cache.
const MOST_SITES: usize = 1 << 17;

/// Most names of caches, and most bytes of one.
const MOST_NAMES: usize = 4096;
const NAME: usize = 64;

/// Addresses that stand for no object: null, and `ZERO_SIZE_PTR` of include/linux/slab.h.
const NO_OBJECT: u64 = 16;

/// Where an object is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Cache {
    /// One of those that `kmalloc` has for sizes.
    Kmalloc,
    /// One with a name, by its number.
    Named(u32),
    /// One whose name the record does not have.
    Unnamed,
}

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub(super) who: Who,
    /// The code that takes it.
    pub(super) code: u64,
    pub(super) cache: Cache,
    /// Bytes that an object takes.
    pub(super) size: u64,
}

/// What is told of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Objects that were taken, and bytes that were asked for.
    pub(super) count: u64,
    pub(super) requested: u64,
    /// How often there was no memory.
    pub(super) failed: u64,
    /// Of its objects, how many were given back, also of those that were taken before.
    pub(super) freed: u64,
    /// Objects whose memory was taken anew, without a record that they were given back.
    pub(super) unseen: u64,
    pub(super) lifetimes: Times,
    /// Objects that are still there at the end.
    pub(super) kept: u64,
    /// Objects of which that is not known, as events were lost.
    pub(super) unknown: u64,
}

impl Told {
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.requested = self.requested.saturating_add(other.requested);
        self.failed += other.failed;
        self.freed += other.freed;
        self.unseen += other.unseen;
        self.lifetimes.merge(&other.lifetimes);
        self.kept += other.kept;
        self.unknown += other.unknown;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count + self.failed + self.freed + self.unseen == 0
    }
}

/// An object.
#[derive(Clone, Copy, Debug)]
struct Object {
    since: u64,
    site: u32,
    /// The number of losses when it was taken, above one bit that says whether it is asked about there.
    losses: u32,
}

/// What a record says of an object that is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'r> {
    pub(super) address: u64,
    pub(super) call_site: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    /// The name of the cache, as `Known::SlabAlloc` has it.
    pub(super) cache: Option<&'r [u8]>,
}

/// Objects of the kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Slab {
    names: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u32>,
    sites: HashMap<Site, u32>,
    pub(super) told: Vec<(Site, Told)>,
    live: HashMap<u64, Object>,
    /// For the lifetimes of all sites.
    sizes: Room,
    /// Objects that were not followed, or not counted, for want of room.
    pub(super) left_out: u64,
    /// Objects that were given back without having been seen before.
    pub(super) unmatched: u64,
}

impl Slab {
    /// An object is taken. `losses` is how often events were lost until now; `None` if it may be given back
    /// without a record.
    pub(super) fn take(&mut self, at: At, who: Who, taken: &Taken<'_>, losses: Option<u64>, is_asked: bool) {
        let cache = self.cache(taken.cache);
        let site = Site { who, code: taken.call_site, cache, size: taken.allocated };
        let Some((index, told)) = self.site(site) else { return };
        if taken.address <= NO_OBJECT {
            told.failed += u64::from(is_asked && taken.address == 0);
            return;
        }
        if is_asked {
            told.count += 1;
            told.requested = told.requested.saturating_add(taken.requested);
        }
        let Some(losses) = losses else {
            told.unknown += u64::from(is_asked);
            return;
        };
        // What was there before was given back unseen.
        if let Some(before) = self.live.remove(&taken.address)
            && is_asked
            && let Some((_, told)) = self.told.get_mut(before.site as usize)
        {
            told.unseen += 1;
        }
        if self.live.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let losses = (losses as u32) << 1 | u32::from(is_asked);
        self.live.insert(taken.address, Object { since: at.time, site: index, losses });
    }

    /// An object is given back.
    pub(super) fn give(&mut self, at: At, address: u64, losses: u64, is_asked: bool) {
        if address <= NO_OBJECT {
            return;
        }
        let Some(object) = self.live.remove(&address) else {
            self.unmatched += u64::from(is_asked);
            return;
        };
        if !is_asked {
            return;
        }
        let Some((_, told)) = self.told.get_mut(object.site as usize) else { return };
        told.freed += 1;
        // Over a loss it can be another object at the same place.
        if object.is_known(losses) {
            told.lifetimes.add_within(at.time - object.since, at.time, &mut self.sizes);
        }
    }

    /// The number of a site, and what is told of it.
    fn site(&mut self, site: Site) -> Option<(u32, &mut Told)> {
        let index = match self.sites.get(&site) {
            Some(index) => *index,
            None if self.told.len() >= MOST_SITES => {
                self.left_out += 1;
                return None;
            }
            None => {
                let index = self.told.len() as u32;
                self.told.push((site, Told::default()));
                self.sites.insert(site, index);
                index
            }
        };
        self.told.get_mut(index as usize).map(|(_, told)| (index, told))
    }

    fn cache(&mut self, name: Option<&[u8]>) -> Cache {
        let Some(name) = name else { return Cache::Kmalloc };
        let name = &name[..name.len().min(NAME)];
        if let Some(number) = self.numbers.get(name) {
            return Cache::Named(*number);
        }
        if name.is_empty() || self.names.len() >= MOST_NAMES {
            return Cache::Unnamed;
        }
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        Cache::Named(number)
    }

    /// The name of a cache, if it has one.
    pub(super) fn name(&self, cache: Cache) -> Option<&[u8]> {
        match cache {
            Cache::Named(number) => self.names.get(number as usize).map(|name| &**name),
            Cache::Kmalloc | Cache::Unnamed => None,
        }
    }

    /// Counts what is still there of what was asked about since a time.
    pub(super) fn close(&mut self, from: Option<u64>, losses: u64) {
        for object in self.live.values() {
            if object.losses & 1 == 0 || from.is_some_and(|from| object.since < from) {
                continue;
            }
            let Some((_, told)) = self.told.get_mut(object.site as usize) else { continue };
            if object.is_known(losses) {
                told.kept += 1;
            } else {
                told.unknown += 1;
            }
        }
    }

    /// Forgets what was counted, but not the objects that are there.
    pub(super) fn restart(&mut self) {
        for (_, told) in &mut self.told {
            *told = Told::default();
        }
        self.sizes = Room::default();
        (self.left_out, self.unmatched) = (0, 0);
    }

    /// Whether half of the room is taken, for sites or for objects.
    pub(super) fn is_half_full(&self) -> bool {
        self.told.len() >= MOST_SITES / 2 || self.live.len() >= MOST / 2
    }
}

impl Object {
    /// Whether no event was lost since it was taken.
    fn is_known(self, losses: u64) -> bool {
        self.losses >> 1 == losses as u32 & (u32::MAX >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(address: u64, name: Option<&[u8]>) -> Taken<'_> {
        Taken { address, call_site: 0x1000, requested: 24, allocated: 32, cache: name }
    }

    fn at(time: u64) -> At {
        At { time, cpu: 0 }
    }

    #[test]
    fn objects_have_lifetimes() {
        let mut slab = Slab::default();
        slab.take(at(10), Who::Irq, &taken(0x100, None), Some(0), true);
        slab.take(at(10), Who::Irq, &taken(0x200, Some(b"dentry")), Some(0), true);
        slab.take(at(12), Who::Irq, &taken(0, None), Some(0), true);
        slab.give(at(40), 0x100, 0, true);
        // It was there before; null and its like are nothing.
        slab.give(at(41), 0x300, 0, true);
        slab.give(at(41), 0, 0, true);
        slab.give(at(41), 16, 0, true);
        // The name's object was given back unseen.
        slab.take(at(50), Who::Irq, &taken(0x200, Some(b"dentry")), Some(1), true);
        slab.take(at(55), Who::Irq, &taken(0x500, Some(b"dentry")), Some(2), true);
        slab.close(None, 2);
        let [(_, kmalloc), (site, dentry)] = &slab.told[..] else { panic!("{:?}", slab.told) };
        assert_eq!((kmalloc.count, kmalloc.requested, kmalloc.failed, kmalloc.freed), (1, 24, 1, 1));
        assert_eq!(kmalloc.lifetimes.told().most_ns, 30);
        assert_eq!(slab.name(site.cache), Some(&b"dentry"[..]));
        assert_eq!((dentry.count, dentry.unseen, dentry.kept, dentry.unknown), (3, 1, 1, 1));
        assert_eq!((slab.unmatched, slab.left_out), (1, 0));
    }

    #[test]
    fn objects_sites_and_names_are_bounded() {
        let mut slab = Slab::default();
        for number in 0..MOST_SITES as u64 + 5 {
            let name = number.to_string();
            let site = Taken { call_site: number, ..taken(0x1000 + number * 8, Some(name.as_bytes())) };
            slab.take(at(number), Who::Irq, &site, Some(0), true);
        }
        assert_eq!((slab.told.len(), slab.names.len(), slab.left_out), (MOST_SITES, MOST_NAMES, 5));
        let mut slab = Slab::default();
        for number in 0..MOST as u64 + 7 {
            slab.take(at(number), Who::Irq, &taken(0x1000 + number * 8, None), Some(0), true);
        }
        assert_eq!((slab.live.len(), slab.left_out, slab.told[0].1.count), (MOST, 7, MOST as u64 + 7));
    }
}
