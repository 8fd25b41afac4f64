//! Memory: pages, what the kernel takes for itself, page faults, and what happens when there is none left.
//!
//! | file | subject |
//! |---|---|
//! | `told` | what is told of a thread |
//! | `pages` | pages that are not free |
//! | `slab` | objects of the kernel |
//! | `answer` | what is told at the end |

mod answer;
mod pages;
mod slab;
#[cfg(test)]
mod tests;
mod told;

pub use self::answer::{
    AllocationSite, KernelCache, KernelMemory, Kill, MemoryAnswer, MemoryOfThread, PagesAnswer, PagesOfOrder,
    PagesPeak, Reclaim, SlabCounts,
};
use self::{
    pages::{Block, Blocks, ORDERS},
    slab::{Slab, Taken},
    told::{Growth, Reclaims, Told},
};
use super::{
    Analysis, At, Event, Evidence, Known, Names, Scope, Tid, Topic,
    tally::Room,
    threads::{Threads, bounded},
    who::Who,
};

/// Most processes that are named as killed.
const MOST_KILLS: usize = 1024;

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct State {
    reclaims: Option<Reclaims>,
    told: Told,
}

/// A process was killed.
#[derive(Clone, Debug)]
struct Killed {
    at: u64,
    tid: Tid,
    comm: Box<[u8]>,
    by: Who,
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Memory {
    scope: Scope,
    threads: Threads<State>,
    /// Of hardware interrupts, soft interrupts, and whom records do not name.
    others: [Told; 3],
    blocks: Blocks,
    slab: Slab,
    /// Pages that were allocated, less those that were freed.
    growth: Growth,
    kills: Vec<Killed>,
    /// For the times of reclaims of all threads.
    sizes: Room,
    losses: u64,
    /// Those before what is asked about.
    losses_before: u64,
    /// Pages were allocated of which no end may be recorded.
    has_unfollowed: bool,
    left_out: u64,
    /// Pages that were freed without having been seen before.
    pages_unmatched: u64,
    /// Pages that were allocated anew, without a record that they were freed.
    pages_unseen: u64,
    /// Ends of reclaims without a beginning.
    reclaims_unmatched: u64,
    /// What is asked about begins here; what is counted may begin later.
    asked_from: u64,
    evidence: Evidence,
}

impl Memory {
    /// An analysis of a part of a recording.
    pub fn new(scope: Scope) -> Self {
        Self {
            asked_from: scope.from.unwrap_or(0),
            scope,
            threads: Threads::default(),
            others: <[Told; 3]>::default(),
            blocks: Blocks::default(),
            slab: Slab::default(),
            growth: Growth::default(),
            kills: Vec::new(),
            sizes: Room::default(),
            losses: 0,
            losses_before: 0,
            has_unfollowed: false,
            left_out: 0,
            pages_unmatched: 0,
            pages_unseen: 0,
            reclaims_unmatched: 0,
            evidence: Evidence::all(),
        }
    }

    fn told(&mut self, who: Who) -> Option<&mut Told> {
        match who {
            Who::Thread { index, .. } => self.threads.get_mut(index).map(|thread| &mut thread.of.told),
            Who::Irq => self.others.first_mut(),
            Who::Softirq => self.others.get_mut(1),
            Who::Unknown => self.others.get_mut(2),
        }
    }

    /// What is told of whom a block is.
    fn told_of_owner(&mut self, block: Block) -> Option<&mut Told> {
        let [irq, softirq, unknown] = &mut self.others;
        match (pages::index(block.who()), block.who()) {
            (Some(index), _) => self.threads.get_mut(index).map(|thread| &mut thread.of.told),
            (None, pages::IRQ) => Some(irq),
            (None, pages::SOFTIRQ) => Some(softirq),
            (None, _) => Some(unknown),
        }
    }

    fn allocate(&mut self, at: At, who: Who, (pfn, order): (Option<u64>, u8), ends_unseen: bool) {
        let is_asked = self.scope.has(at);
        if let Some(pfn) = pfn.filter(|_| !ends_unseen) {
            let block = Block::new(at, order, who, self.losses, is_asked);
            if let Some(before) = self.blocks.allocate(pfn, block)
                && is_asked
            {
                self.pages_unseen += before.pages();
                self.growth.shrink(before.pages());
                if let Some(told) = self.told_of_owner(before) {
                    told.growth.shrink(before.pages());
                }
            }
        }
        if !is_asked {
            return;
        }
        let is_there = pfn.is_some();
        let grows = is_there && !ends_unseen;
        if grows {
            self.growth.grow(1 << order, at.time);
        }
        self.has_unfollowed |= is_there && ends_unseen;
        let Some(told) = self.told(who) else { return };
        let of_order = told.orders.entry(order).or_default();
        of_order.allocated += u64::from(is_there);
        of_order.failed += u64::from(!is_there);
        if grows {
            told.growth.grow(1 << order, at.time);
        } else if is_there {
            told.unfollowed += 1 << order;
        }
    }

    /// The most that a number of pages was, if it is known all the time.
    fn peak(&self, growth: Growth) -> Option<u64> {
        (self.losses == self.losses_before && !self.has_unfollowed).then_some(growth.peak)
    }

    fn free(&mut self, at: At, who: Who, pfn: u64, order: u8) {
        let block = self.blocks.free(pfn, order);
        if !self.scope.has(at) {
            return;
        }
        self.growth.shrink(1 << order);
        match block {
            Some(block) => {
                if let Some(told) = self.told_of_owner(block) {
                    told.growth.shrink(block.pages());
                }
            }
            None => self.pages_unmatched += 1 << order,
        }
        if let Some(told) = self.told(who) {
            told.orders.entry(order).or_default().freed += 1;
        }
    }

    fn end_reclaim(&mut self, at: At, tid: Tid, is_of_group: bool, pages: u64) {
        let (losses, is_asked) = (self.losses, self.scope.has(at));
        let Some((_, thread)) = self.threads.find(tid, State::default) else { return };
        let reclaims = thread.of.reclaims.take();
        if !is_asked {
            return;
        }
        match reclaims.filter(|of| of.losses == losses && of.is_of_group == is_of_group) {
            Some(of) => {
                let time = at.time.saturating_sub(of.since.max(self.asked_from));
                let told = &mut thread.of.told.reclaimed[usize::from(is_of_group)];
                told.add(time, at.time, pages, &mut self.sizes);
            }
            None => self.reclaims_unmatched += 1,
        }
    }

    fn kill(&mut self, at: At, by: Who, tid: Tid, comm: &[u8]) {
        if !self.scope.has(at) {
            return;
        }
        if self.kills.len() >= MOST_KILLS {
            self.left_out += 1;
            return;
        }
        let name = if comm.is_empty() {
            self.threads.current(tid).map(|thread| thread.name.clone()).unwrap_or_default()
        } else {
            bounded(comm).into()
        };
        self.kills.push(Killed { at: at.time, tid, comm: name, by });
    }

    /// The order of a block. `None`, and counted, if no kernel has such blocks.
    fn order(&mut self, order: u64) -> Option<u8> {
        let known = u8::try_from(order).ok().filter(|order| *order < ORDERS);
        self.left_out += u64::from(known.is_none());
        known
    }
}

impl Analysis for Memory {
    type Answer = MemoryAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Memory);

    fn look(&mut self, at: At, event: &Event<'_>) {
        let losses = self.losses;
        match event.known {
            Known::PageAlloc { pfn, order } => {
                if let Some(order) = self.order(order) {
                    let who = Who::of(event, &mut self.threads, State::default);
                    self.allocate(at, who, (pfn, order), event.ends_unseen);
                }
            }
            Known::PageFree { pfn, order } => {
                if let Some(order) = self.order(order) {
                    let who = Who::of(event, &mut self.threads, State::default);
                    self.free(at, who, pfn, order);
                }
            }
            Known::SlabAlloc { address, call_site, requested, allocated, cache } => {
                let who = Who::of(event, &mut self.threads, State::default);
                let taken = Taken { address, call_site, requested, allocated, cache };
                let losses = (!event.ends_unseen).then_some(losses);
                self.slab.take(at, who, &taken, losses, self.scope.has(at));
            }
            Known::SlabFree { address } => self.slab.give(at, address, losses, self.scope.has(at)),
            Known::PageFault { is_user, .. } if self.scope.has(at) => {
                let who = Who::of(event, &mut self.threads, State::default);
                if let Some(told) = self.told(who) {
                    *(if is_user { &mut told.user_faults } else { &mut told.kernel_faults }) += 1;
                }
            }
            Known::ReclaimBegin { is_of_group } => {
                if let Some((_, thread)) = event.tid.and_then(|tid| self.threads.find(tid, State::default)) {
                    thread.of.reclaims = Some(Reclaims { since: at.time, losses, is_of_group });
                }
            }
            Known::ReclaimEnd { is_of_group, pages } => {
                if let Some(tid) = event.tid {
                    self.end_reclaim(at, tid, is_of_group, pages);
                }
            }
            Known::OomVictim { tid, comm } => {
                let by = Who::of(event, &mut self.threads, State::default);
                self.kill(at, by, tid, comm);
            }
            Known::Renamed { tid, comm: Some(comm), .. } => {
                if let Some((_, thread)) = self.threads.find(tid, State::default) {
                    thread.is_called(comm);
                }
            }
            Known::Begins { child, comm, is_seen: true, .. } => {
                if let Some(thread) = self.threads.begin(child, State::default()) {
                    thread.is_called(comm);
                }
            }
            Known::Ends { tid } => self.threads.end(tid),
            Known::Takes { from, to } => {
                if let Some((was, is)) = self.threads.take(from, to, State::default)
                    && let Some((was, is)) = self.threads.two(was, is)
                {
                    is.of.reclaims = was.of.reclaims.take();
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, _: At) {
        self.losses += 1;
        if self.growth == Growth::default() {
            self.losses_before = self.losses;
        }
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        // Objects and pages have the numbers of threads and sites: when there is little room left for any of
        // them, all begins anew.
        if self.threads.is_half_full() || self.slab.is_half_full() || self.blocks.is_half_full() {
            let Self { losses, asked_from, .. } = *self;
            *self = Self { losses, losses_before: losses, asked_from, ..Self::new(self.scope.clone()) };
            return;
        }
        for thread in self.threads.iter_mut() {
            thread.of.told = Told::default();
        }
        self.others = <[Told; 3]>::default();
        self.blocks.left_out = 0;
        self.slab.restart();
        (self.growth, self.losses_before, self.has_unfollowed) = (Growth::default(), self.losses, false);
        self.kills.clear();
        self.sizes = Room::default();
        (self.left_out, self.reclaims_unmatched) = (0, 0);
        (self.pages_unmatched, self.pages_unseen) = (0, 0);
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(self, _: u64, names: &Names<'_>) -> MemoryAnswer {
        MemoryAnswer::of(self, names)
    }
}
