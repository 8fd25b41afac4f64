use super::super::known::Context;
use super::*;

const THREAD: Context = Context::Thread;

struct Story(Memory);

impl Story {
    fn new() -> Self {
        Self(Memory::new(Scope::default()))
    }

    fn at(&mut self, (time, cpu): (u64, u32), (context, tid): (Context, Tid), known: Known<'_>) {
        self.0.look(At { time, cpu }, &Event::whole(Some(tid), context, known));
    }

    fn of_thread(&mut self, time: u64, tid: Tid, known: Known<'_>) {
        self.at((time, 0), (THREAD, tid), known);
    }

    fn take(&mut self, time: u64, tid: Tid, (address, call_site): (u64, u64), cache: Option<&[u8]>) {
        let known = Known::SlabAlloc { address, call_site, requested: 40, allocated: 64, cache };
        self.of_thread(time, tid, known);
    }

    fn lost(&mut self, time: u64) {
        self.0.lost(At { time, cpu: 1 });
    }

    fn answer(self) -> MemoryAnswer {
        self.0.answer(1000, &Names::none())
    }
}

fn allocated(pfn: u64, order: u64) -> Known<'static> {
    Known::PageAlloc { pfn: Some(pfn), order }
}

fn freed(pfn: u64, order: u64) -> Known<'static> {
    Known::PageFree { pfn, order }
}

fn thread(answer: &MemoryAnswer, tid: Option<Tid>) -> &MemoryOfThread {
    answer.threads.iter().find(|thread| thread.tid == tid).unwrap()
}

#[test]
fn pages_are_counted_by_order_and_thread() {
    let mut story = Story::new();
    story.of_thread(5, 1, Known::Renamed { tid: 1, comm: Some(b"one"), before: b"" });
    story.of_thread(10, 1, allocated(0x100, 3));
    story.of_thread(20, 1, allocated(0x200, 0));
    story.of_thread(30, 1, Known::PageAlloc { pfn: None, order: 9 });
    // Another thread frees a part of the first block, and one that was there before.
    story.of_thread(40, 2, freed(0x102, 1));
    story.of_thread(50, 2, freed(0x900, 2));
    story.at((60, 0), (Context::Softirq, 2), allocated(0x300, 1));
    // The page was freed before, without a record.
    story.of_thread(70, 2, allocated(0x200, 0));
    let answer = story.answer();
    let pages = &answer.pages;
    assert_eq!((pages.allocated.unwrap(), pages.freed.unwrap(), pages.failed.unwrap()), (12, 6, 1));
    assert_eq!(
        (pages.kept.unwrap(), pages.unknown.unwrap(), pages.unmatched.unwrap(), pages.unseen.unwrap()),
        (9, 0, 4, 1)
    );
    assert_eq!(pages.peak, Some(PagesPeak { pages: 9, at_ns: 20 }));
    let orders: Vec<_> = pages
        .orders
        .iter()
        .map(|of| (of.order, of.allocated.unwrap(), of.freed.unwrap(), of.failed.unwrap()))
        .collect();
    assert_eq!(orders, [(0, 2, 0, 0), (1, 1, 1, 0), (2, 0, 1, 0), (3, 1, 0, 0), (9, 0, 0, 1)]);
    let told: Vec<_> = (answer.threads.iter())
        .map(|of| {
            (
                of.comm.as_str(),
                of.tid,
                of.allocated.unwrap(),
                of.freed.unwrap(),
                of.failed.unwrap(),
                of.kept.unwrap(),
                of.peak,
            )
        })
        .collect();
    let expected = [
        ("one", Some(1), 9, 0, 1, 6, Some(9)),
        ("[soft interrupt]", None, 2, 0, 0, 2, Some(2)),
        ("", Some(2), 1, 6, 0, 1, Some(1)),
    ];
    assert_eq!(told, expected);
}

#[test]
fn objects_are_counted_by_code_cache_and_thread() {
    let mut story = Story::new();
    story.take(10, 1, (0x1000, 0xa), None);
    story.take(20, 2, (0x2000, 0xa), None);
    story.take(30, 1, (0x3000, 0xb), Some(b"dentry"));
    story.take(40, 1, (0, 0xb), Some(b"dentry"));
    story.take(50, 1, (0x4000, 0xc), Some(b""));
    story.of_thread(60, 3, Known::SlabFree { address: 0x1000 });
    story.of_thread(61, 3, Known::SlabFree { address: 0x9000 });
    let answer = story.answer();
    let kernel = &answer.kernel;
    let sum = &kernel.sum;
    assert_eq!(
        (sum.count.unwrap(), sum.requested_bytes.unwrap(), sum.allocated_bytes.unwrap(), sum.failed.unwrap()),
        (4, 160, 256, 1)
    );
    assert_eq!(
        (sum.freed.unwrap(), sum.freed_bytes.unwrap(), sum.kept.unwrap(), sum.kept_bytes.unwrap()),
        (1, 64, 3, 192)
    );
    assert_eq!(
        (sum.lifetimes.unwrap().count, sum.lifetimes.unwrap().total_ns, kernel.unmatched.unwrap()),
        (1, 50, 1)
    );
    let sites: Vec<_> =
        kernel.sites.iter().map(|of| (of.call_site.as_str(), of.counts.count.unwrap())).collect();
    assert_eq!(sites, [("0xa", 2), ("0xb", 1), ("0xc", 1)]);
    let mut caches: Vec<_> = kernel
        .caches
        .iter()
        .map(|of| (of.name.as_deref(), of.object_bytes, of.counts.count.unwrap()))
        .collect();
    caches.sort();
    assert_eq!(caches, [(None, 64, 1), (Some("dentry"), 64, 1), (Some("kmalloc"), 64, 2)]);
    let bytes: Vec<_> = answer.threads.iter().map(|of| (of.tid, of.kernel_bytes.unwrap())).collect();
    assert_eq!(bytes, [(Some(1), 192), (Some(2), 64)]);
}

#[test]
fn faults_reclaims_and_kills_are_of_threads() {
    let mut story = Story::new();
    story.of_thread(5, 1, Known::Renamed { tid: 7, comm: Some(b"victim"), before: b"" });
    for (tid, is_user) in [(1, true), (1, true), (1, false), (2, false)] {
        story.of_thread(10, tid, Known::PageFault { address: 0x1000, is_user });
    }
    story.of_thread(100, 1, Known::ReclaimBegin { is_of_group: false });
    story.of_thread(110, 2, Known::ReclaimBegin { is_of_group: true });
    story.of_thread(130, 1, Known::ReclaimEnd { is_of_group: false, pages: 32 });
    story.of_thread(150, 2, Known::ReclaimEnd { is_of_group: true, pages: 5 });
    story.of_thread(160, 2, Known::ReclaimBegin { is_of_group: true });
    // One that was there before.
    story.of_thread(170, 3, Known::ReclaimEnd { is_of_group: false, pages: 9 });
    story.of_thread(180, 2, Known::OomVictim { tid: 7, comm: b"" });
    story.of_thread(190, 2, Known::OomVictim { tid: 8, comm: b"named" });
    let answer = story.answer();
    let (one, two) = (thread(&answer, Some(1)), thread(&answer, Some(2)));
    assert_eq!(
        (
            one.user_faults.unwrap(),
            one.kernel_faults.unwrap(),
            two.user_faults.unwrap(),
            two.kernel_faults.unwrap()
        ),
        (2, 1, 0, 1)
    );
    assert_eq!(
        (
            one.reclaim.unwrap().times.total_ns,
            one.reclaim.unwrap().pages,
            one.group_reclaim.unwrap().times.count
        ),
        (30, 32, 0)
    );
    let group = &two.group_reclaim.unwrap();
    assert_eq!((group.times.total_ns, group.pages, group.open_since_ns), (40, 5, Some(160)));
    assert_eq!(answer.reclaims_unmatched.unwrap(), 1);
    let kills: Vec<_> = answer
        .kills
        .as_ref()
        .unwrap()
        .iter()
        .map(|of| (of.at_ns, of.tid, of.comm.as_str(), of.by_tid))
        .collect();
    assert_eq!(kills, [(180, 7, "victim", Some(2)), (190, 8, "named", Some(2))]);
}

#[test]
fn over_a_loss_nothing_is_known_of_what_was_there() {
    let mut story = Story::new();
    story.of_thread(10, 1, allocated(0x100, 0));
    story.take(10, 1, (0x1000, 0xa), None);
    story.take(10, 1, (0x2000, 0xa), None);
    story.of_thread(10, 1, Known::ReclaimBegin { is_of_group: false });
    story.lost(20);
    story.of_thread(30, 1, allocated(0x200, 0));
    story.take(30, 1, (0x3000, 0xa), None);
    story.of_thread(40, 1, Known::SlabFree { address: 0x2000 });
    story.of_thread(50, 1, Known::ReclaimEnd { is_of_group: false, pages: 9 });
    let answer = story.answer();
    assert_eq!((answer.pages.kept.unwrap(), answer.pages.unknown.unwrap()), (1, 1));
    assert_eq!((answer.pages.peak, thread(&answer, Some(1)).peak), (None, None));
    let sum = &answer.kernel.sum;
    assert_eq!(
        (sum.kept.unwrap(), sum.unknown.unwrap(), sum.freed.unwrap(), sum.lifetimes.unwrap().count),
        (1, 1, 1, 0)
    );
    assert_eq!((answer.reclaims_unmatched.unwrap(), thread(&answer, Some(1)).reclaim.unwrap().pages), (1, 0));
}

#[test]
fn memory_whose_ends_may_be_unseen_is_counted_alone() {
    let mut story = Story::new();
    let mut take = |time, known| {
        let event = Event { ends_unseen: true, ..Event::whole(Some(1), THREAD, known) };
        story.0.look(At { time, cpu: 0 }, &event);
    };
    take(10, allocated(0x100, 2));
    let (call_site, requested, allocated) = (0xa, 24, 64);
    take(20, Known::SlabAlloc { address: 0x1000, call_site, requested, allocated, cache: None });
    story.of_thread(30, 1, freed(0x100, 2));
    story.of_thread(40, 1, Known::SlabFree { address: 0x1000 });
    let answer = story.answer();
    let one = thread(&answer, Some(1));
    assert_eq!(
        (
            one.allocated.unwrap(),
            one.kept.unwrap(),
            one.unknown.unwrap(),
            one.peak,
            one.kernel_bytes.unwrap()
        ),
        (4, 0, 4, None, 64)
    );
    assert_eq!(
        (answer.pages.allocated.unwrap(), answer.pages.unknown.unwrap(), answer.pages.peak),
        (4, 4, None)
    );
    let sum = &answer.kernel.sum;
    assert_eq!(
        (
            sum.count.unwrap(),
            sum.requested_bytes.unwrap(),
            sum.kept.unwrap(),
            sum.unknown.unwrap(),
            sum.freed.unwrap()
        ),
        (1, 24, 0, 1, 0)
    );
    assert_eq!(sum.lifetimes.unwrap().count, 0);
}

#[test]
fn a_thread_id_that_is_used_again_is_another_thread() {
    let mut story = Story::new();
    story.of_thread(10, 1, allocated(0x100, 0));
    story.of_thread(20, 1, Known::ReclaimBegin { is_of_group: false });
    story.of_thread(30, 2, Known::Ends { tid: 1 });
    story.of_thread(40, 2, Known::Begins { child: 1, comm: b"new", is_thread: false, is_seen: true });
    story.of_thread(50, 1, allocated(0x200, 1));
    story.of_thread(60, 1, freed(0x100, 0));
    story.of_thread(70, 1, Known::ReclaimEnd { is_of_group: false, pages: 1 });
    let answer = story.answer();
    let told: Vec<_> = (answer.threads.iter())
        .map(|of| {
            (
                of.comm.as_str(),
                of.allocated.unwrap(),
                of.freed.unwrap(),
                of.kept.unwrap(),
                of.reclaim.unwrap().times.count,
            )
        })
        .collect();
    assert_eq!(told, [("new", 2, 1, 2, 0), ("", 1, 0, 0, 0)]);
    assert_eq!(answer.reclaims_unmatched.unwrap(), 1);
}

#[test]
fn what_is_asked_about() {
    let scope = Scope { from: Some(100), cpus: Some([0].into()), tids: Some([1].into()), ..Scope::default() };
    let mut story = Story(Memory::new(scope));
    // Before, on another CPU, by another thread.
    story.of_thread(10, 1, allocated(0x100, 0));
    story.take(10, 1, (0x1000, 0xa), None);
    story.at((110, 1), (THREAD, 1), allocated(0x200, 0));
    story.of_thread(120, 2, allocated(0x300, 0));
    story.take(120, 2, (0x2000, 0xb), None);
    story.at((130, 0), (Context::Irq, 1), allocated(0x400, 0));
    story.of_thread(140, 1, allocated(0x500, 2));
    story.take(150, 1, (0x3000, 0xc), None);
    story.of_thread(160, 1, freed(0x100, 0));
    story.of_thread(170, 1, Known::SlabFree { address: 0x1000 });
    let answer = story.answer();
    let [one] = &answer.threads[..] else { panic!("{:?}", answer.threads) };
    assert_eq!(
        (one.allocated.unwrap(), one.freed.unwrap(), one.kept.unwrap(), one.peak, one.kernel_bytes.unwrap()),
        (4, 1, 4, Some(4), 64)
    );
    assert_eq!(
        (answer.pages.allocated.unwrap(), answer.pages.kept.unwrap(), answer.pages.peak),
        (4, 4, None)
    );
    let sites: Vec<_> = (answer.kernel.sites.iter())
        .map(|of| {
            (
                of.call_site.as_str(),
                of.counts.count.unwrap(),
                of.counts.freed.unwrap(),
                of.counts.kept.unwrap(),
            )
        })
        .collect();
    assert_eq!(sites, [("0xc", 1, 0, 1), ("0xa", 0, 1, 0)]);
}

#[test]
fn a_new_count_has_what_is_there() {
    let mut story = Story::new();
    story.of_thread(10, 1, allocated(0x100, 2));
    story.take(10, 1, (0x1000, 0xa), None);
    story.of_thread(20, 1, Known::ReclaimBegin { is_of_group: false });
    story.of_thread(30, 1, Known::PageFault { address: 1, is_user: true });
    story.0.restart(100);
    story.of_thread(110, 1, freed(0x100, 2));
    story.of_thread(120, 1, allocated(0x200, 1));
    story.of_thread(130, 1, Known::SlabFree { address: 0x1000 });
    story.of_thread(140, 1, Known::ReclaimEnd { is_of_group: false, pages: 3 });
    let answer = story.answer();
    let one = thread(&answer, Some(1));
    assert_eq!(
        (one.allocated.unwrap(), one.freed.unwrap(), one.kept.unwrap(), one.peak, one.user_faults.unwrap()),
        (2, 4, 2, Some(0), 0)
    );
    assert_eq!((one.reclaim.unwrap().times.total_ns, one.reclaim.unwrap().pages), (120, 3));
    assert_eq!(answer.pages.unmatched.unwrap(), 0);
    let sum = &answer.kernel.sum;
    assert_eq!((sum.count.unwrap(), sum.freed.unwrap(), sum.lifetimes.unwrap().most_ns), (0, 1, 120));
}

#[test]
fn hostile_records_are_counted_and_bounded() {
    let mut story = Story::new();
    for order in [32, 64, u64::MAX] {
        story.of_thread(10, 1, allocated(0, order));
        story.of_thread(10, 1, freed(u64::MAX, order));
    }
    for _ in 0..4 {
        story.of_thread(20, 1, allocated(u64::MAX, 31));
        story.of_thread(30, 1, freed(u64::MAX, 0));
        let huge = Known::SlabAlloc {
            address: u64::MAX,
            call_site: u64::MAX,
            requested: u64::MAX,
            allocated: u64::MAX,
            cache: Some(&[b'x'; 1000]),
        };
        story.of_thread(40, 1, huge);
        story.of_thread(50, 1, Known::ReclaimBegin { is_of_group: false });
        story.of_thread(60, 1, Known::ReclaimEnd { is_of_group: false, pages: u64::MAX });
    }
    for number in 0..2000 {
        story.of_thread(70, 1, Known::OomVictim { tid: number, comm: &[b'x'; 1000] });
    }
    let answer = story.answer();
    assert_eq!(answer.left_out, 6 + 2000 - MOST_KILLS as u64);
    assert_eq!(
        (answer.kills.as_ref().unwrap().len(), answer.kills.as_ref().unwrap()[0].comm.len()),
        (MOST_KILLS, 64)
    );
    assert_eq!(answer.kernel.sum.allocated_bytes.unwrap(), u64::MAX);
    assert_eq!(answer.kernel.caches[0].name.as_ref().map(String::len), Some(64));
    assert_eq!((answer.kernel.sum.unseen.unwrap(), answer.kernel.sum.kept.unwrap()), (3, 1));
    assert_eq!(answer.threads[0].reclaim.unwrap().pages, u64::MAX);
}

#[test]
fn objects_of_kmalloc_and_of_caches_are_known_each_by_their_own_events() {
    let told = |events: &[&str], described: &[&str]| {
        let mut story = Story::new();
        story.take(10, 1, (0x1000, 0x10), None);
        story.take(20, 1, (0x2000, 0x20), Some(b"dentry"));
        story.of_thread(30, 1, Known::SlabFree { address: 0x1000 });
        let [events, described] = [events, described].map(|of| of.iter().map(|name| format!("kmem:{name}")));
        story.0.rests_on(&Evidence::of(events, described));
        let KernelMemory { sum, sites, caches, .. } = story.answer().kernel;
        let site = |of: &str| sites.iter().find(|site| site.call_site == of).map(|site| site.counts.kept);
        let cache = |of: &str| caches.iter().find(|cache| cache.name.as_deref() == Some(of)).unwrap();
        let of_cache = |of: &str| (cache(of).counts.count, cache(of).counts.kept);
        let of_sites = [site("0x10").unwrap(), site("0x20").unwrap()];
        (of_sites, [of_cache("kmalloc"), of_cache("dentry")], (sum.count, sum.kept))
    };
    let (kmalloc, all) = (["kmalloc", "kfree"], ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free"]);
    let known = ([Some(0), Some(1)], [(Some(1), Some(0)), (Some(1), Some(1))], (Some(2), Some(1)));
    assert_eq!(told(&all, &[]), known);
    let of_kmalloc = ([Some(0), None], [(Some(1), Some(0)), (None, None)], (None, None));
    assert_eq!(told(&kmalloc, &[]), of_kmalloc);
    // The kernel has an event more, which was not recorded.
    let cache_of_kmalloc = (None, None);
    let expected = ([Some(0), Some(1)], [cache_of_kmalloc, (Some(1), Some(1))], (None, None));
    assert_eq!(told(&all, &["kmalloc_node"]), expected);
}
