//! `analyze memory`, as text.

use super::table::{
    Side, Side::Left, Side::Right, Table, duration, no_room, percent, perhaps, seconds, times,
};
use crate::units::{bytes, count};
use analysis::answers::{
    Covered, KernelMemory, Kill, MemoryAnswer, MemoryOfThread, PagesAnswer, SlabCounts, Tid,
};

/// Tables of pages, of threads, of reclaims, of the kernel's memory by code and by cache, and of kills.
pub(super) fn text(answer: &MemoryAnswer, _: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.left_out, "pages, an object, a thread or a kill");
    text += &notes(answer);
    text += &pages(&answer.pages);
    text += &threads(&answer.threads, limit);
    text += &reclaims(&answer.threads, limit);
    text += &kernel(&answer.kernel, limit);
    text + &kills(answer.kills.as_deref().unwrap_or_default(), limit)
}

/// What is not known.
fn notes(answer: &MemoryAnswer) -> String {
    let mut text = String::new();
    let (pages, kernel) = (&answer.pages, &answer.kernel);
    for (what, unmatched, unseen, unknown) in [
        ("pages", pages.unmatched, pages.unseen, pages.unknown),
        ("objects of the kernel", kernel.unmatched, kernel.sum.unseen, kernel.sum.unknown),
    ] {
        let [unmatched, unseen, unknown] = [unmatched, unseen, unknown].map(|of| of.unwrap_or(0));
        if unmatched != 0 {
            text += &format!("{} {what} were freed that were there before\n", count(unmatched));
        }
        if unseen != 0 {
            text += &format!("{} {what} were freed without a record of it\n", count(unseen));
        }
        if unknown != 0 {
            text += &format!("unknown: whether {} {what} are still there\n", count(unknown));
        }
    }
    text
}

fn pages(pages: &PagesAnswer) -> String {
    let heads = [
        ("ALLOCATED", Right),
        ("FREED", Right),
        ("NET", Right),
        ("STILL THERE", Right),
        ("FAILED", Right),
        ("PEAK", Right),
        ("AT", Right),
    ];
    let mut sum = Table::new("Pages; PEAK: the most by which they grew", &[&heads]);
    if [pages.allocated, pages.freed, pages.failed].iter().any(|of| of.unwrap_or(0) != 0) {
        sum.row(&[&[
            perhaps(pages.allocated, count),
            perhaps(pages.freed, count),
            net(pages.allocated, pages.freed),
            perhaps(pages.kept, count),
            perhaps(pages.failed, count),
            perhaps(pages.peak, |peak| count(peak.pages)),
            perhaps(pages.peak, |peak| seconds(peak.at_ns)),
        ]]);
    }
    let heads = [("ORDER", Right), ("BLOCKS", Right), ("FREED", Right), ("NET", Right), ("FAILED", Right)];
    let mut orders = Table::new("Blocks of pages, by their order", &[&heads]);
    for order in &pages.orders {
        orders.row(&[&[
            order.order.to_string(),
            perhaps(order.allocated, count),
            perhaps(order.freed, count),
            net(order.allocated, order.freed),
            perhaps(order.failed, count),
        ]]);
    }
    sum.text(usize::MAX) + &orders.text(usize::MAX)
}

fn threads(threads: &[MemoryOfThread], limit: usize) -> String {
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("PAGES", Right),
        ("FREED", Right),
        ("STILL THERE", Right),
        ("PEAK", Right),
        ("FAILED", Right),
        ("KERNEL", Right),
        ("USER FAULTS", Right),
        ("KERNEL FAULTS", Right),
    ];
    let mut table = Table::new("Threads, by the pages that they allocated", &[&heads]);
    for thread in threads {
        table.row(&[&[
            thread.comm.clone(),
            id(thread.tid),
            perhaps(thread.allocated, count),
            perhaps(thread.freed, count),
            perhaps(thread.kept, count),
            perhaps(thread.peak, count),
            perhaps(thread.failed, count),
            perhaps(thread.kernel_bytes, bytes),
            perhaps(thread.user_faults, count),
            perhaps(thread.kernel_faults, count),
        ]]);
    }
    table.text(limit)
}

fn reclaims(threads: &[MemoryOfThread], limit: usize) -> String {
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("OF", Left),
        ("COUNT", Right),
        ("TOTAL", Right),
        ("MAX", Right),
        ("PAGES", Right),
        ("SINCE", Right),
    ];
    let mut rows = Vec::new();
    for thread in threads {
        for (of, reclaim) in [("the machine", thread.reclaim), ("its group", thread.group_reclaim)] {
            let found = reclaim.filter(|of| of.times.count != 0 || of.open_since_ns.is_some());
            rows.extend(found.map(|reclaim| (thread, of, reclaim)));
        }
    }
    rows.sort_by_key(|(.., reclaim)| std::cmp::Reverse(reclaim.times.total_ns));
    let mut table = Table::new("Threads that had to find pages; SINCE: they still do", &[&heads]);
    for (thread, of, reclaim) in rows {
        table.row(&[&[
            thread.comm.clone(),
            id(thread.tid),
            of.to_owned(),
            count(reclaim.times.count),
            duration(reclaim.times.total_ns),
            duration(reclaim.times.most_ns),
            count(reclaim.pages),
            reclaim.open_since_ns.map_or_else(String::new, seconds),
        ]]);
    }
    table.text(limit)
}

/// The columns of [`counts`].
const COUNTS: [(&str, Side); 11] = [
    ("COUNT", Right),
    ("ASKED FOR", Right),
    ("TAKEN", Right),
    ("WASTE %", Right),
    ("FAILED", Right),
    ("FREED", Right),
    ("STILL THERE", Right),
    ("BYTES", Right),
    ("LIFE P50", Right),
    ("LIFE P99", Right),
    ("LIFE MAX", Right),
];

fn counts(counts: &SlabCounts) -> [String; 11] {
    let taken = counts.allocated_bytes.zip(counts.requested_bytes);
    let waste = |(taken, asked): (u64, u64)| percent(taken.saturating_sub(asked), taken);
    // Of what nobody gave back no lifetime is known.
    let life = counts.lifetimes.filter(|life| life.count != 0);
    let [.., half, most_of, most] = times(life);
    [
        perhaps(counts.count, count),
        perhaps(counts.requested_bytes, bytes),
        perhaps(counts.allocated_bytes, bytes),
        perhaps(taken, waste),
        perhaps(counts.failed, count),
        perhaps(counts.freed, count),
        perhaps(counts.kept, count),
        perhaps(counts.kept_bytes, bytes),
        half,
        most_of,
        most,
    ]
}

fn kernel(kernel: &KernelMemory, limit: usize) -> String {
    let heads: [&[_]; 2] = [&[("CALL SITE", Left)], &COUNTS];
    let mut sites =
        Table::new("Memory of the kernel, by the code that took it; LIFE: until it was given back", &heads);
    for site in &kernel.sites {
        sites.row(&[std::slice::from_ref(&site.call_site), &counts(&site.counts)]);
    }
    if kernel.sites.len() > 1 {
        sites.row(&[&["(all)".to_owned()], &counts(&kernel.sum)]);
    }
    let heads: [&[_]; 2] = [&[("CACHE", Left), ("OBJECT", Right)], &COUNTS];
    let mut caches = Table::new("Memory of the kernel, by cache", &heads);
    for cache in &kernel.caches {
        let name = perhaps(cache.name.clone(), |name| name);
        caches.row(&[&[name, bytes(cache.object_bytes)], &counts(&cache.counts)]);
    }
    sites.text(limit) + &caches.text(limit)
}

fn kills(all: &[Kill], limit: usize) -> String {
    let heads = [("AT", Right), ("KILLED", Left), ("TID", Right), ("MEMORY WAS FOR", Left), ("TID", Right)];
    let mut kills = Table::new("Processes that were killed as there was no memory", &[&heads]);
    for kill in all {
        kills.row(&[&[
            seconds(kill.at_ns),
            kill.comm.clone(),
            kill.tid.to_string(),
            kill.by.clone(),
            id(kill.by_tid),
        ]]);
    }
    kills.text(limit)
}

fn net(allocated: Option<u64>, freed: Option<u64>) -> String {
    perhaps(allocated.zip(freed), |(allocated, freed)| {
        let size = count(allocated.abs_diff(freed));
        if allocated < freed { format!("-{size}") } else { size }
    })
}

fn id(tid: Option<Tid>) -> String {
    perhaps(tid, |tid| tid.to_string())
}
