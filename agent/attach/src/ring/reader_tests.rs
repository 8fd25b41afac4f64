//! The reader against a writer that follows the programs' protocol, over memory that a memfd provides in a
//! map's place.

use agent_ebpf::{CpuControl, PAGE_HEADER, PAGE_SIZE, PageMeta};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::{CpuRing, Rings, Run, SealedPage};
use crate::ring::{Shared, SharedArray};
use ftrace_event::Endian;
use tracedat::page;
use tracedat::page::PageHeader;

fn array<T: Shared>(len: usize) -> SharedArray<T> {
    let fd = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, (len * size_of::<T>()) as u64).unwrap();
    SharedArray::map(&fd, len).unwrap()
}

/// Stands for the programs of one CPU.
struct Programs {
    rings: Rings,
    base: usize,
    pages: u64,
}

impl Programs {
    /// A ring of `pages` pages, after those of another CPU.
    fn new(pages: u32) -> Self {
        let base = 3;
        let rings = Rings::new(array(base + pages as usize), array(base + pages as usize), array(2), 2);
        Self { rings, base, pages: pages.into() }
    }

    fn ring(&self) -> CpuRing<'_> {
        self.rings.reader(1, self.base, self.pages as u32).unwrap()
    }

    fn update(&self, change: impl FnOnce(&mut CpuControl)) {
        let mut state = self.rings.control.read(1).unwrap();
        change(&mut state);
        assert!(self.rings.control.write(1, state));
    }

    /// Fills page `head` with `events` events of 8 bytes of payload, each of which holds `mark`, after `lost`
    /// lost ones.
    fn fill(&self, mark: u8, events: u32, lost: u64) -> usize {
        let head = self.rings.control.read(1).unwrap().head;
        let index = self.base + (head % self.pages) as usize;
        let mut bytes = [0xee; PAGE_SIZE];
        bytes[..8].copy_from_slice(&(1000 * (head + 1)).to_le_bytes());
        bytes[8..16].fill(0);
        let mut at = PAGE_HEADER;
        for _ in 0..events {
            bytes[at..at + 4].copy_from_slice(&2_u32.to_le_bytes());
            bytes[at + 4..at + 12].fill(mark);
            at += 12;
        }
        assert!(self.rings.pages.write(index, bytes));
        assert!(self.rings.meta.write(index, PageMeta { lost, events, used: at as u32 }));
        at
    }

    fn complete(&self, mark: u8, events: u32, lost: u64) {
        self.fill(mark, events, lost);
        self.update(|state| state.head += 1);
    }

    /// Leaves the page open, as it is when the gate closes.
    fn leave_open(&self, mark: u8, events: u32, lost: u64) {
        let at = self.fill(mark, events, lost);
        self.update(|state| {
            state.offset = at as u32;
            state.page_start_events = 100;
            state.events = 100 + u64::from(events);
        });
    }
}

fn marks(pages: &[u8]) -> Vec<u8> {
    pages.chunks_exact(PAGE_SIZE).map(|page| page[PAGE_HEADER + 4]).collect()
}

#[test]
fn pages_come_in_order_and_their_memory_goes_back_only_when_committed() {
    let programs = Programs::new(4);
    let mut ring = programs.ring();
    assert_eq!(ring.ready(), 0);
    for mark in 1..=3 {
        programs.complete(mark, u32::from(mark), 0);
    }
    let mut claim = ring.claim();
    let run = claim.next_run(2);
    assert_eq!((marks(run.bytes), run.pages, run.events), (vec![1, 2], 2, 3));
    assert_eq!(marks(claim.next_run(2).bytes), [3], "behind those that were taken already");
    assert_eq!(claim.next_run(2), Run::default());
    assert_eq!(claim.pages(), 3);
    // Storing failed, and the claim ends here: nothing was given back, so the same pages come again.
    assert_eq!(ring.ready(), 3);
    let mut claim = ring.claim();
    assert_eq!(marks(claim.next_run(16).bytes), [1, 2, 3]);
    claim.commit();
    assert_eq!(ring.ready(), 0);
    assert_eq!(ring.claim().next_run(16), Run::default());
    // Around the end of the ring, in two runs.
    for mark in 4..=6 {
        programs.complete(mark, 1, 0);
    }
    let mut claim = ring.claim();
    let mut pages = claim.next_run(16).bytes.to_vec();
    pages.extend_from_slice(claim.next_run(16).bytes);
    assert_eq!(marks(&pages), [4, 5, 6]);
    for one in pages.chunks_exact(PAGE_SIZE) {
        assert_eq!(events(one), 1);
        assert!(
            one[PAGE_HEADER + 12..].iter().all(|&byte| byte == 0),
            "bytes of an older page behind the data"
        );
    }
}

#[test]
fn lost_events_are_marked_on_the_page_behind_them() {
    let programs = Programs::new(4);
    programs.complete(1, 2, 77);
    // 340 events fill the page to its last byte: no room for the count.
    programs.complete(2, 340, 5);
    let mut ring = programs.ring();
    let mut claim = ring.claim();
    let taken = claim.next_run(2);
    assert_eq!(taken.events, 342);
    let (first, second) = taken.bytes.split_at(PAGE_SIZE);
    assert_eq!(PageHeader::read(first, Endian::Little).unwrap().missed, Some(77));
    assert_eq!(PageHeader::read(second, Endian::Little).unwrap().missed, Some(0), "lost, count unknown");
}

#[test]
fn the_open_page_is_taken_once_recording_has_stopped() {
    let programs = Programs::new(2);
    let ring = programs.ring();
    let mut pages = Vec::new();
    assert_eq!(ring.take_partial(&mut pages), None);
    programs.leave_open(9, 3, 4);
    assert_eq!(ring.take_partial(&mut pages), Some(SealedPage { events: 3, lost: 4 }));
    assert_eq!(events(&pages), 3);
}

/// Number of events on a page.
fn events(one: &[u8]) -> u64 {
    page::PageSummary::read(one, Endian::Little).unwrap().events
}

/// The flight recorder's pages, the first marked with `missed` events, and what is lost before each.
fn snapshot(ring: &CpuRing<'_>, mut missed: u64) -> (Vec<u8>, Vec<u64>) {
    let (mut pages, mut lost) = (Vec::new(), Vec::new());
    for number in ring.held(ring.control().head()).pages() {
        if let Some(page) = ring.copy(number, missed, &mut pages) {
            lost.push(page.lost);
            missed = 0;
        }
    }
    (pages, lost)
}

#[test]
fn a_flight_recorder_has_the_newest_pages_and_says_what_is_missing_before_them() {
    let programs = Programs::new(3);
    for mark in 1..=5 {
        programs.complete(mark, 1, 0);
    }
    let (pages, lost) = snapshot(&programs.ring(), 2);
    assert_eq!((marks(&pages), lost), (vec![3, 4, 5], vec![2, 0, 0]));
    assert_eq!(PageHeader::read(&pages, Endian::Little).unwrap().missed, Some(2));

    let ring = programs.ring();
    let held = ring.held(5);
    assert_eq!((held.pages(), held.events_from(2), held.events_from(4)), (2..5, 3, 1));
    assert_eq!(ring.end_of_complete().0, 5);
    drop(ring);

    // A sixth page is being written over the third: that one is not whole any more.
    programs.leave_open(6, 1, 0);
    let index = programs.base + 2;
    let open = PageMeta { used: 0, ..programs.rings.meta.read(index).unwrap() };
    assert!(programs.rings.meta.write(index, open));
    let (pages, lost) = snapshot(&programs.ring(), 3);
    assert_eq!((marks(&pages), lost), (vec![4, 5], vec![3, 0]));

    // Complete pages that were passed by while they were copied.
    programs.update(|state| state.head += 7);
    assert_eq!(programs.ring().copy(4, 0, &mut Vec::new()), None);
}

#[test]
fn counters_that_make_no_sense_do_no_harm() {
    let programs = Programs::new(2);
    assert!(programs.rings.meta.write(3, PageMeta { lost: 0, events: 9, used: u32::MAX }));
    programs.update(|state| state.head = u64::MAX);
    let mut ring = programs.ring();
    assert_eq!(ring.ready(), 2);
    let mut claim = ring.claim();
    assert_eq!(claim.next_run(16), Run { bytes: &[], pages: 1, events: 0 }, "passed over");
    assert_eq!(claim.next_run(16), Run { bytes: &[], pages: 1, events: 0 }, "passed over");
    assert_eq!(claim.next_run(16), Run::default());
    assert!(programs.rings.reader(7, 3, 2).is_none(), "a CPU without a control block");
}

#[test]
fn pages_have_one_reader() {
    let programs = Programs::new(4);
    assert!(programs.rings.reader(1, 4, 4).is_none(), "a ring beyond the array");
    let ring = programs.ring();
    for (base, pages) in [(3, 4), (5, 1), (0, 4), (6, 1)] {
        assert!(programs.rings.reader(0, base, pages).is_none(), "{pages} pages from {base} on");
    }
    assert!(programs.rings.reader(1, 0, 3).is_none(), "other pages of the CPU");
    assert!(programs.rings.reader(0, 0, 3).is_some(), "the pages before, of another CPU");
    drop(ring);
    assert!(programs.rings.reader(0, 3, 4).is_some(), "it is gone");
}
