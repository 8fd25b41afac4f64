//! What is told of memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{
    Memory,
    pages::packed,
    slab::{self, Cache, Site, Slab},
    told::{OfOrder, Reclaimed, Reclaims, Told},
};
use crate::answers::topic::{CACHE_ALLOCS, KMALLOCS};
use crate::answers::who::Who;
use crate::answers::{Names, Tid, TimesTold};
use ftrace_event::stacks::symbol;

/// What happened to memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryAnswer {
    /// Pages.
    pub pages: PagesAnswer,
    /// What the kernel took for itself.
    pub kernel: KernelMemory,
    /// Threads and interrupts, by the pages that they allocated.
    pub threads: Vec<MemoryOfThread>,
    /// Processes that were killed as there was no memory, in the order of time. `None` if no record would say
    /// so.
    pub kills: Option<Vec<Kill>>,
    /// Ends of reclaims without a beginning: of those that were there before, and where events were lost.
    /// `None` if both were not recorded.
    pub reclaims_unmatched: Option<u64>,
    /// Blocks of pages, objects, sites, threads and kills that were left out because there were too many.
    pub left_out: u64,
}

/// Pages of all threads that are asked about. Counts are `None` where the events that tell them were not
/// recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PagesAnswer {
    /// Pages that were allocated.
    pub allocated: Option<u64>,
    /// Pages that were freed, whenever they were allocated.
    pub freed: Option<u64>,
    /// How often there was no block of pages.
    pub failed: Option<u64>,
    /// Pages that were allocated and are still there at the end.
    pub kept: Option<u64>,
    /// Pages that were allocated and of which that is not known: events were lost, left out or not recorded.
    pub unknown: Option<u64>,
    /// Pages that were freed without having been seen before. Of all threads.
    pub unmatched: Option<u64>,
    /// Pages that were allocated anew, without a record that they were freed. Of all threads.
    pub unseen: Option<u64>,
    /// When most pages were allocated and not freed. `None` if there was no growth, if some threads are
    /// asked about, where events were lost, or where frees were left out or not recorded.
    pub peak: Option<PagesPeak>,
    /// By order.
    pub orders: Vec<PagesOfOrder>,
}

/// The largest growth of pages that were allocated, less those that were freed, since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PagesPeak {
    /// How many more pages than at the beginning.
    pub pages: u64,
    /// When.
    pub at_ns: u64,
}

/// Blocks of pages of one order. Counts are `None` as in [`PagesAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PagesOfOrder {
    /// A block has 2 to the power of this pages.
    pub order: u8,
    /// Blocks that were allocated.
    pub allocated: Option<u64>,
    /// How often there was none.
    pub failed: Option<u64>,
    /// Blocks that were freed.
    pub freed: Option<u64>,
}

/// Memory that the kernel takes for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelMemory {
    /// All of it.
    pub sum: SlabCounts,
    /// By the code that takes it, by bytes.
    pub sites: Vec<AllocationSite>,
    /// By cache, by bytes.
    pub caches: Vec<KernelCache>,
    /// Objects that were given back without having been seen before. Of all threads. `None` if both were not
    /// recorded.
    pub unmatched: Option<u64>,
}

/// Objects of the kernel. Counts are `None` where the events that tell them were not recorded; those of all
/// objects if those of `kmalloc` or of caches were not. What is taken from caches is told to be given back by
/// `kmem_cache_free`, all else by `kfree`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlabCounts {
    /// How many were taken.
    pub count: Option<u64>,
    /// Bytes that were asked for.
    pub requested_bytes: Option<u64>,
    /// Bytes that they take.
    pub allocated_bytes: Option<u64>,
    /// How often there was no memory.
    pub failed: Option<u64>,
    /// How many were given back, whoever did it, and whenever they were taken.
    pub freed: Option<u64>,
    /// Bytes of these.
    pub freed_bytes: Option<u64>,
    /// How many were taken and are still there at the end.
    pub kept: Option<u64>,
    /// Bytes of these.
    pub kept_bytes: Option<u64>,
    /// How many were taken and of which that is not known: events were lost, left out or not
    /// recorded.
    pub unknown: Option<u64>,
    /// Objects whose memory was taken anew, without a record that they were given back.
    pub unseen: Option<u64>,
    /// From when objects are taken to when they are given back.
    pub lifetimes: Option<TimesTold>,
}

/// Code of the kernel that takes memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllocationSite {
    /// The function and the offset in it, or the address if the recording does not have its name.
    pub call_site: String,
    /// Its objects.
    #[serde(flatten)]
    pub counts: SlabCounts,
}

/// A cache of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelCache {
    /// Its name, `kmalloc` for those that `kmalloc` has for sizes. `None` if the recording does not have it:
    /// kernels before 6.1 do not record it.
    pub name: Option<String>,
    /// Bytes that an object takes.
    pub object_bytes: u64,
    /// Its objects.
    #[serde(flatten)]
    pub counts: SlabCounts,
}

/// The memory of a thread, or of interrupts. What is `None` was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryOfThread {
    /// Its name, or `[interrupt]`, `[soft interrupt]`, `[unknown]`.
    pub comm: String,
    /// Its id, if it is a thread.
    pub tid: Option<Tid>,
    /// Pages that it allocated.
    pub allocated: Option<u64>,
    /// Pages that it freed, whoever allocated them.
    pub freed: Option<u64>,
    /// How often it got no block of pages.
    pub failed: Option<u64>,
    /// Pages that it allocated and that are still there at the end, whoever could have freed them.
    pub kept: Option<u64>,
    /// Pages that it allocated and of which that is not known: events were lost, left out or not
    /// recorded.
    pub unknown: Option<u64>,
    /// The most pages that it had allocated and nobody had freed. `None` where events were lost, or frees
    /// were left out or not recorded.
    pub peak: Option<u64>,
    /// Bytes that the kernel took on its behalf.
    pub kernel_bytes: Option<u64>,
    /// Page faults of the process.
    pub user_faults: Option<u64>,
    /// Page faults of the kernel, while it worked for it.
    pub kernel_faults: Option<u64>,
    /// When it had to find pages as the machine had none left.
    pub reclaim: Option<Reclaim>,
    /// When it had to find pages as its control group had none left.
    pub group_reclaim: Option<Reclaim>,
}

/// Time in which pages are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reclaim {
    /// From beginning to end.
    pub times: TimesTold,
    /// Pages that were found.
    pub pages: u64,
    /// Since when it goes on, if it does at the end; not in `times`.
    pub open_since_ns: Option<u64>,
}

/// A process that was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kill {
    /// When.
    pub at_ns: u64,
    /// Its first thread.
    pub tid: Tid,
    /// Its name; empty if it is not known.
    pub comm: String,
    /// For whom there was no memory.
    pub by: String,
    /// Its id, if it is a thread.
    pub by_tid: Option<Tid>,
}

impl MemoryAnswer {
    pub(super) fn of(mut memory: Memory, names: &Names<'_>) -> Self {
        memory.slab.close(memory.scope.from, memory.losses);
        let evidence = &memory.evidence;
        let knows = Knows {
            taken: evidence.has("kmem:mm_page_alloc"),
            freed: evidence.has("kmem:mm_page_free"),
            objects: [
                OfObjects { taken: evidence.has_described(KMALLOCS), given: evidence.has("kmem:kfree") },
                OfObjects {
                    taken: evidence.has_described(CACHE_ALLOCS),
                    given: evidence.has("kmem:kmem_cache_free"),
                },
            ],
            reclaims: ["direct", "memcg"].map(|of| {
                ["begin", "end"]
                    .iter()
                    .all(|event| evidence.has(&format!("vmscan:mm_vmscan_{of}_reclaim_{event}")))
            }),
        };
        let teller = Teller { memory: &memory, names, knows };
        let kernel = teller.kernel();
        let threads = teller.threads();
        Self {
            pages: teller.pages(&threads),
            kernel,
            kills: evidence.has("oom:mark_victim").then(|| teller.kills()),
            threads: threads.into_iter().map(|(_, thread)| thread).collect(),
            reclaims_unmatched: knows.reclaims.contains(&true).then_some(memory.reclaims_unmatched),
            left_out: memory.left_out
                + memory.blocks.left_out
                + memory.slab.left_out
                + memory.threads.left_out(),
        }
    }
}

/// What is known of memory, by the events that there are.
#[derive(Clone, Copy, Debug)]
struct Knows {
    /// Pages that are allocated.
    taken: bool,
    /// Pages that are freed.
    freed: bool,
    /// Objects of `kmalloc`, and of caches.
    objects: [OfObjects; 2],
    /// Reclaims of the machine, and of a group.
    reclaims: [bool; 2],
}

/// What is known of objects of the kernel.
#[derive(Clone, Copy, Debug)]
struct OfObjects {
    /// All that are taken.
    taken: bool,
    /// All that are given back.
    given: bool,
}

impl OfObjects {
    /// What is known of those of both.
    fn and(self, other: Self) -> Self {
        Self { taken: self.taken && other.taken, given: self.given && other.given }
    }
}

impl Knows {
    /// What is known of all objects of the kernel.
    fn all_objects(self) -> OfObjects {
        let [of_kmalloc, of_caches] = self.objects;
        of_kmalloc.and(of_caches)
    }

    /// What is known of the objects of a cache.
    fn objects_of(self, cache: Cache) -> OfObjects {
        self.objects[usize::from(cache != Cache::Kmalloc)]
    }
}

/// Sums up what is asked about.
struct Teller<'t, 'n> {
    memory: &'t Memory,
    names: &'t Names<'n>,
    knows: Knows,
}

impl<'t> Teller<'t, '_> {
    fn is_asked(&self, who: Who) -> bool {
        who.is_asked(&self.memory.scope, &self.memory.threads, self.names)
    }

    /// All of whom something is told and who are asked about.
    fn all(&self) -> impl Iterator<Item = (Who, &'t Told, Option<Reclaims>)> {
        let Memory { threads, others: [irq, softirq, unknown], .. } = self.memory;
        let threads = threads.iter().enumerate().map(|(index, thread)| {
            (Who::Thread { tid: thread.tid, index }, &thread.of.told, thread.of.reclaims)
        });
        let others = [(Who::Irq, irq), (Who::Softirq, softirq), (Who::Unknown, unknown)];
        let others = others.into_iter().map(|(who, told)| (who, told, None));
        threads.chain(others).filter(|(who, ..)| self.is_asked(*who))
    }

    fn threads(&self) -> Vec<(Who, MemoryOfThread)> {
        // Pages that are there, and those of which it is not known.
        let mut kept: HashMap<u32, [u64; 2]> = HashMap::new();
        for (block, is_known) in self.memory.blocks.kept(self.memory.scope.from, self.memory.losses) {
            kept.entry(block.who()).or_default()[usize::from(!is_known)] += block.pages();
        }
        let mut bytes: HashMap<Who, u64> = HashMap::new();
        for (site, told) in &self.memory.slab.told {
            let sum = bytes.entry(site.who).or_default();
            *sum = sum.saturating_add(site.size.saturating_mul(told.count));
        }
        let mut threads: Vec<(Who, MemoryOfThread)> = (self.all())
            .map(|(who, told, reclaims)| {
                let kept = kept.get(&packed(who)).copied().unwrap_or_default();
                let reclaims = reclaims.filter(|of| of.losses == self.memory.losses);
                let kernel_bytes = bytes.get(&who).copied().unwrap_or(0);
                (who, self.thread(who, told, (kept, kernel_bytes), reclaims))
            })
            .filter(|(_, thread)| !thread.is_empty())
            .collect();
        threads.sort_by_key(|(_, thread)| {
            let faults = thread.user_faults.unwrap_or(0) + thread.kernel_faults.unwrap_or(0);
            Reverse((thread.allocated, thread.kernel_bytes, faults))
        });
        threads
    }

    fn thread(
        &self,
        who: Who,
        told: &Told,
        ([kept, unknown], kernel_bytes): ([u64; 2], u64),
        reclaims: Option<Reclaims>,
    ) -> MemoryOfThread {
        let (comm, tid) = who.told(&self.memory.threads, self.names);
        let pages = |count: fn(&OfOrder) -> u64| {
            let of_orders = told.orders.iter().map(|(order, of)| count(of).saturating_mul(1 << order));
            of_orders.fold(0, u64::saturating_add)
        };
        let Knows { taken, freed, reclaims: knows_reclaims, .. } = self.knows;
        let [reclaim, group_reclaim] = [false, true].map(|is_of_group| {
            let open = reclaims.filter(|of| of.is_of_group == is_of_group).map(|of| of.since);
            let of_kind = usize::from(is_of_group);
            knows_reclaims[of_kind].then(|| Reclaim::of(&told.reclaimed[of_kind], open))
        });
        let allocated = pages(|of| of.allocated);
        let unknown = if freed { unknown.saturating_add(told.unfollowed) } else { allocated };
        let knows = |event| self.memory.evidence.has(event);
        MemoryOfThread {
            comm,
            tid,
            allocated: taken.then_some(allocated),
            freed: freed.then(|| pages(|of| of.freed)),
            failed: taken.then(|| told.orders.values().map(|of| of.failed).sum()),
            kept: (taken && freed).then_some(kept),
            unknown: taken.then_some(unknown),
            peak: self.memory.peak(told.growth).filter(|_| taken && freed),
            kernel_bytes: self.knows.all_objects().taken.then_some(kernel_bytes),
            user_faults: knows("exceptions:page_fault_user").then_some(told.user_faults),
            kernel_faults: knows("exceptions:page_fault_kernel").then_some(told.kernel_faults),
            reclaim,
            group_reclaim,
        }
    }

    fn pages(&self, threads: &[(Who, MemoryOfThread)]) -> PagesAnswer {
        let memory = self.memory;
        let mut orders: BTreeMap<u8, OfOrder> = BTreeMap::new();
        for (_, told, _) in self.all() {
            for (order, of) in &told.orders {
                orders.entry(*order).or_default().merge(of);
            }
        }
        let Knows { taken, freed, .. } = self.knows;
        let sum = |is_known: bool, of: fn(&MemoryOfThread) -> Option<u64>| {
            is_known.then(|| threads.iter().filter_map(|(_, thread)| of(thread)).fold(0, u64::saturating_add))
        };
        let peak = memory.growth.peak_at.filter(|_| memory.scope.has_all_threads());
        PagesAnswer {
            allocated: sum(taken, |thread| thread.allocated),
            freed: sum(freed, |thread| thread.freed),
            failed: sum(taken, |thread| thread.failed),
            kept: sum(taken && freed, |thread| thread.kept),
            unknown: sum(taken, |thread| thread.unknown),
            unmatched: (taken && freed).then_some(memory.pages_unmatched),
            unseen: (taken && freed).then_some(memory.pages_unseen),
            peak: peak
                .filter(|_| taken && freed)
                .zip(memory.peak(memory.growth))
                .map(|(at_ns, pages)| PagesPeak { pages, at_ns }),
            orders: (orders.into_iter())
                .map(|(order, of)| PagesOfOrder {
                    order,
                    allocated: taken.then_some(of.allocated),
                    failed: taken.then_some(of.failed),
                    freed: freed.then_some(of.freed),
                })
                .collect(),
        }
    }

    fn kernel(&self) -> KernelMemory {
        let slab = &self.memory.slab;
        let knows_all = self.knows.all_objects();
        let mut sum = OfSites::default();
        let mut sites: BTreeMap<u64, (OfSites, OfObjects)> = BTreeMap::new();
        let mut caches: BTreeMap<(Cache, u64), OfSites> = BTreeMap::new();
        for (site, told) in &slab.told {
            if told.is_empty() || !self.is_asked(site.who) {
                continue;
            }
            sum.add(site, told);
            // Each record of the code is there, whatever others are not.
            let knows = OfObjects { taken: true, ..self.knows.objects_of(site.cache) };
            let (of, known) = sites.entry(site.code).or_insert_with(|| (OfSites::default(), knows));
            of.add(site, told);
            *known = known.and(knows);
            caches.entry((site.cache, site.size)).or_default().add(site, told);
        }
        let mut sites: Vec<AllocationSite> = (sites.into_iter())
            .map(|(address, (of, known))| AllocationSite {
                call_site: self.call_site(address),
                counts: of.counts(known),
            })
            .collect();
        sites.sort_by_key(|site| Reverse((site.counts.allocated_bytes, site.counts.count)));
        let mut caches: Vec<KernelCache> = (caches.into_iter())
            .map(|((cache, object_bytes), of)| KernelCache {
                name: name(slab, cache),
                object_bytes,
                counts: of.counts(self.knows.objects_of(cache)),
            })
            .collect();
        caches.sort_by_key(|cache| Reverse((cache.counts.allocated_bytes, cache.counts.count)));
        let unmatched = (knows_all.taken && knows_all.given).then_some(slab.unmatched);
        KernelMemory { sum: sum.counts(knows_all), sites, caches, unmatched }
    }

    fn call_site(&self, address: u64) -> String {
        match symbol(self.names.symbols, address) {
            Some(symbol) => format!("{}+{:#x}", symbol.name, symbol.offset),
            None => format!("{address:#x}"),
        }
    }

    fn kills(&self) -> Vec<Kill> {
        let Memory { scope, threads, kills, .. } = self.memory;
        let is_asked = |tid: Tid, comm: &[u8]| scope.has_thread(tid, self.names.of_thread(tid, comm));
        (kills.iter())
            .filter(|killed| is_asked(killed.tid, &killed.comm))
            .map(|killed| {
                let (by, by_tid) = killed.by.told(threads, self.names);
                let comm = self.names.thread_text(killed.tid, &killed.comm);
                Kill { at_ns: killed.at, tid: killed.tid, comm, by, by_tid }
            })
            .collect()
    }
}

fn name(slab: &Slab, cache: Cache) -> Option<String> {
    match cache {
        Cache::Kmalloc => Some("kmalloc".to_owned()),
        cache => slab.name(cache).map(|name| String::from_utf8_lossy(name).into_owned()),
    }
}

/// The sum of several sites.
#[derive(Debug, Default)]
struct OfSites {
    told: slab::Told,
    allocated: u64,
    freed: u64,
    kept: u64,
}

impl OfSites {
    fn add(&mut self, site: &Site, told: &slab::Told) {
        self.told.merge(told);
        for (sum, count) in
            [(&mut self.allocated, told.count), (&mut self.freed, told.freed), (&mut self.kept, told.kept)]
        {
            *sum = sum.saturating_add(site.size.saturating_mul(count));
        }
    }

    fn counts(&self, knows: OfObjects) -> SlabCounts {
        let told = &self.told;
        let if_taken = |count: u64| knows.taken.then_some(count);
        let if_both = |count: u64| if_taken(count).filter(|_| knows.given);
        SlabCounts {
            count: if_taken(told.count),
            requested_bytes: if_taken(told.requested),
            allocated_bytes: if_taken(self.allocated),
            failed: if_taken(told.failed),
            freed: if_both(told.freed),
            freed_bytes: if_both(self.freed),
            kept: if_both(told.kept),
            kept_bytes: if_both(self.kept),
            unknown: if_taken(if knows.given { told.unknown } else { told.count }),
            unseen: if_both(told.unseen),
            lifetimes: if_both(0).map(|_| told.lifetimes.told()),
        }
    }
}

impl MemoryOfThread {
    /// Whether nothing is told of it.
    fn is_empty(&self) -> bool {
        let Self {
            allocated, freed, failed, kept, unknown, kernel_bytes, user_faults, kernel_faults, ..
        } = self;
        let counts = [allocated, freed, failed, kept, unknown, kernel_bytes, user_faults, kernel_faults];
        let mut reclaims = [&self.reclaim, &self.group_reclaim].into_iter().flatten();
        counts.iter().all(|count| count.unwrap_or(0) == 0)
            && reclaims.all(|of| of.times.count == 0 && of.open_since_ns.is_none())
    }
}

impl Reclaim {
    fn of(reclaimed: &Reclaimed, open_since_ns: Option<u64>) -> Self {
        Self { times: reclaimed.times.told(), pages: reclaimed.pages, open_since_ns }
    }
}
