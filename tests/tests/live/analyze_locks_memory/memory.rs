//! Memory.

use std::collections::BTreeMap;

use integration_tests::{agent, trace_cmd::Line};
use serde_json::Value;

use super::{
    group::Group,
    programs::{MAP, compile},
    stock::{Raw, raw},
    told::{Sums, add, answer, number, rows, sum_of, tables, texts, tid},
};

/// What a thread, or interrupts together, did with pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pages {
    allocated: u64,
    freed: u64,
    user_faults: u64,
    kernel_faults: u64,
    kernel_bytes: u64,
}

/// Objects of one call site, or of one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Objects {
    count: u64,
    requested: u64,
    allocated: u64,
    freed: u64,
    kept: u64,
    lifetimes: u64,
}

/// What happened to memory, by stock's text.
#[derive(Debug, Default)]
struct Memory {
    threads: BTreeMap<Option<u32>, Pages>,
    orders: BTreeMap<u64, (u64, u64)>,
    sites: BTreeMap<String, Objects>,
    caches: BTreeMap<(String, u64), Objects>,
    unmatched: u64,
    unseen: u64,
}

impl Memory {
    fn of(events: &[Raw]) -> Self {
        let mut memory = Self::default();
        let mut live: BTreeMap<u64, (String, (String, u64), u64)> = BTreeMap::new();
        for event in events {
            let of = memory.threads.entry(event.thread()).or_default();
            match event.line.event.as_str() {
                "mm_page_alloc" => {
                    of.allocated += 1 << event.number("order");
                    memory.orders.entry(event.number("order")).or_default().0 += 1;
                }
                "mm_page_free" => {
                    of.freed += 1 << event.number("order");
                    memory.orders.entry(event.number("order")).or_default().1 += 1;
                }
                "page_fault_user" => of.user_faults += 1,
                "page_fault_kernel" => of.kernel_faults += 1,
                "kmalloc" | "kmem_cache_alloc" => {
                    let bytes = event.number("bytes_alloc");
                    of.kernel_bytes += bytes;
                    let name =
                        event.line.fields.split_once(" name=").map_or("kmalloc", |(_, rest)| {
                            rest.split(" bytes_req=").next().unwrap_or_default()
                        });
                    memory.take(event, (name.to_owned(), bytes), &mut live);
                }
                "kfree" | "kmem_cache_free" => memory.give(event, &mut live),
                _ => {}
            }
        }
        for (site, cache, _) in live.into_values() {
            memory.both(&site, &cache, |objects| objects.kept += 1);
        }
        memory
    }

    fn both(&mut self, site: &str, cache: &(String, u64), change: impl Fn(&mut Objects)) {
        change(self.sites.entry(site.to_owned()).or_default());
        change(self.caches.entry(cache.clone()).or_default());
    }

    fn take(
        &mut self,
        event: &Raw,
        cache: (String, u64),
        live: &mut BTreeMap<u64, (String, (String, u64), u64)>,
    ) {
        let site = event.line.fields.split_once("call_site=").unwrap().1;
        let site = site.split(" ptr=").next().unwrap().to_owned();
        let (requested, allocated) = (event.number("bytes_req"), cache.1);
        self.both(&site, &cache, |objects| {
            objects.count += 1;
            objects.requested += requested;
            objects.allocated += allocated;
        });
        let before = live.insert(event.number("ptr"), (site, cache, event.line.time));
        self.unseen += u64::from(before.is_some());
    }

    fn give(&mut self, event: &Raw, live: &mut BTreeMap<u64, (String, (String, u64), u64)>) {
        // Null and `ZERO_SIZE_PTR` are no objects.
        let address = event.number("ptr");
        match live.remove(&address) {
            _ if address <= 16 => {}
            Some((site, cache, since)) => self.both(&site, &cache, |objects| {
                objects.freed += 1;
                objects.lifetimes += event.line.time - since;
            }),
            None => self.unmatched += 1,
        }
    }
}

fn objects(value: &Value) -> Objects {
    Objects {
        count: number(value, "count"),
        requested: number(value, "requested_bytes"),
        allocated: number(value, "allocated_bytes"),
        freed: number(value, "freed"),
        kept: number(value, "kept"),
        lifetimes: number(&value["lifetimes"], "total_ns"),
    }
}

fn by_thread(answer: &Value) -> BTreeMap<Option<u32>, Pages> {
    let mut threads: BTreeMap<Option<u32>, Pages> = BTreeMap::new();
    for thread in rows(answer, "threads") {
        // An id can be that of several threads, one after the other, and interrupts have none.
        let of = threads.entry(tid(thread)).or_default();
        of.allocated += number(thread, "allocated");
        of.freed += number(thread, "freed");
        of.user_faults += number(thread, "user_faults");
        of.kernel_faults += number(thread, "kernel_faults");
        of.kernel_bytes += number(thread, "kernel_bytes");
    }
    threads
}

#[test]
fn memory_is_that_of_stocks_text() {
    const PAGES: u64 = 2000;
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "map", MAP);
    let file = dir.path().join("trace.dat");
    let pages = PAGES.to_string();
    let events = [
        "kmem:mm_page_alloc",
        "kmem:mm_page_free",
        "kmem:kmalloc",
        "kmem:kfree",
        "kmem:kmem_cache_alloc",
        "kmem:kmem_cache_free",
        "exceptions:page_fault_user",
        "exceptions:page_fault_kernel",
        "sched:sched_process_fork",
        "sched:sched_process_free",
    ];
    let options = ["-b", "32768"].into_iter().chain(events.iter().flat_map(|event| ["-e", event]));
    let command = [program.as_os_str(), "2".as_ref(), "1".as_ref(), pages.as_ref()];
    agent::record(&file, options.map(AsRef::as_ref).chain(command));
    let events = raw(&file);
    let mut expected = Memory::of(&events);
    expected.threads.retain(|_, pages| *pages != Pages::default());

    let answer = answer("memory", &file, &[]);
    assert_eq!(by_thread(&answer), expected.threads);
    let (pages, kernel) = (&answer["pages"], &answer["kernel"]);
    let orders: BTreeMap<u64, (u64, u64)> = (rows(pages, "orders").iter())
        .map(|of| (number(of, "order"), (number(of, "allocated"), number(of, "freed"))))
        .collect();
    assert_eq!(orders, expected.orders);
    let sites: BTreeMap<String, Objects> = (rows(kernel, "sites").iter())
        .map(|site| (texts(site, "call_site").to_owned(), objects(site)))
        .collect();
    assert_eq!(sites, expected.sites);
    let caches: BTreeMap<(String, u64), Objects> = (rows(kernel, "caches").iter())
        .map(|cache| ((texts(cache, "name").to_owned(), number(cache, "object_bytes")), objects(cache)))
        .collect();
    assert_eq!(caches, expected.caches);
    assert_eq!(number(kernel, "unmatched"), expected.unmatched);
    assert_eq!(number(&kernel["sum"], "unseen"), expected.unseen);

    // Every page that a thread of the program writes to is a fault, and a page that is allocated.
    let writers = rows(&answer, "threads").iter().filter(|thread| {
        texts(thread, "comm") == "map"
            && number(thread, "user_faults") >= PAGES
            && number(thread, "peak") >= PAGES
    });
    assert_eq!(writers.count(), 2, "{}", answer["threads"]);
    // What is asked about one thread is what is told of it among all.
    let busiest = rows(&answer, "threads").iter().find(|thread| texts(thread, "comm") == "map").unwrap();
    let tid = tid(busiest).unwrap().to_string();
    let alone = self::answer("memory", &file, &["--pid", &tid]);
    assert_eq!(rows(&alone, "threads"), std::slice::from_ref(busiest));
    assert_eq!(number(&alone["pages"], "allocated"), number(busiest, "allocated"));
    assert_eq!(number(&alone["kernel"]["sum"], "allocated_bytes"), number(busiest, "kernel_bytes"));
    let text = tables("memory", &file);
    assert!(text.contains("\nMemory of the kernel, by cache\n") && text.contains("\nPages; PEAK"), "{text}");
}

/// Bytes that a control group may have, and pages of 4 KiB that a program in it wants.
const LIMIT: u64 = 20 << 20;
const WANTED: u64 = 4 * LIMIT / 4096;

#[test]
fn what_a_group_without_memory_does_is_that_of_stocks_text() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "map", MAP);
    let group = Group::with_limit(LIMIT);
    let file = dir.path().join("trace.dat");
    // A file that is larger than the group is reclaimed while it is written; memory of a process cannot be.
    let script = format!(
        "echo $$ > {}; dd if=/dev/zero of={} bs=1M count=60 2> /dev/null; {} 1 1 {WANTED}; true",
        group.processes().display(),
        dir.path().join("file").display(),
        program.display()
    );
    let events =
        ["vmscan:mm_vmscan_memcg_reclaim_begin", "vmscan:mm_vmscan_memcg_reclaim_end", "oom:mark_victim"];
    let options = events.iter().flat_map(|event| ["-e", event]).chain(["sh", "-c", &script]);
    agent::record(&file, options);
    drop(group);

    let (mut open, mut reclaims, mut pages, mut kills) = (BTreeMap::new(), Sums::new(), 0, Vec::new());
    for event in raw(&file) {
        let Line { pid, time, .. } = event.line;
        match event.line.event.as_str() {
            "mm_vmscan_memcg_reclaim_begin" => drop(open.insert(pid, time)),
            "mm_vmscan_memcg_reclaim_end" => {
                if let Some(since) = open.remove(&pid) {
                    add(&mut reclaims, pid, time - since);
                    pages += event.number("nr_reclaimed");
                }
            }
            "mark_victim" => kills.push((time, event.number("pid") as u32, pid)),
            _ => {}
        }
    }
    assert!(!reclaims.is_empty() && pages != 0 && !kills.is_empty(), "{reclaims:?} {kills:?}");

    let answer = answer("memory", &file, &[]);
    let mut told: Sums<u32> = Sums::new();
    for thread in rows(&answer, "threads").iter().filter(|thread| tid(thread).is_some()) {
        let (count, sum) = sum_of(&thread["group_reclaim"]["times"]);
        if count != 0 {
            told.insert(tid(thread).unwrap(), (count, sum));
        }
    }
    assert_eq!(told, reclaims);
    let found = rows(&answer, "threads").iter().map(|thread| number(&thread["group_reclaim"], "pages"));
    assert_eq!(found.sum::<u64>(), pages);
    let killed: Vec<(u64, u32, u32)> = (rows(&answer, "kills").iter())
        .map(|kill| (number(kill, "at_ns"), tid(kill).unwrap(), number(kill, "by_tid") as u32))
        .collect();
    assert_eq!(killed, kills);
    assert!(rows(&answer, "kills").iter().any(|kill| texts(kill, "comm") == "map"), "{}", answer["kills"]);
    let text = tables("memory", &file);
    assert!(text.contains("\nThreads that had to find pages") && text.contains("its group"), "{text}");
    assert!(text.contains("\nProcesses that were killed as there was no memory\n"), "{text}");
}
