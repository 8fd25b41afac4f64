//! The reader threads: from the rings through the compressor into the spool.
//!
//! A thread serves a few CPUs. It sleeps until one of their rings is filled to a quarter, which the programs
//! signal once, or until a deadline passes. Woken, it moves whole chunks; at the deadline all pages that are
//! complete, however few. At the ticks of the switch timer it has the pages closed that programs are filling,
//! and moves everything. So what fired is in the spool a period of that timer and a round of the reader later
//! at most.
//!
//! A page's memory is released only after its bytes are in the spool.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use agent_ebpf::PAGE_SIZE;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use super::{
    Spool, SpoolError,
    counts::CountsFile,
    names::NameTable,
    spool::{CpuSpool, SpoolTotals},
};
use crate::{
    attach::PageSwitch,
    ring::{CpuRing, NameStream, Rings, WakeStream},
    tracedat::{ChunkCompressor, Compression, Endian, layout},
};

/// Pages compressed together. Readers of trace files decompress a chunk at a time and the best of them cache
/// few, so 10 to 64 pages are the sizes that serve both.
const CHUNK_PAGES: u64 = layout::CHUNK_PAGES as u64;
/// CPUs served by one thread.
pub(super) const CPUS_PER_THREAD: usize = 4;
/// How long a complete page waits at most before it is stored, unless the user chooses a time, and all that
/// an idle machine notices of the reader.
const DEADLINE: Duration = Duration::from_secs(1);
/// When a page is tried again that could not be closed, because a program was writing to it.
const SWITCH_AGAIN: Duration = Duration::from_millis(10);
/// Compressed bytes that are written at once. Writes of a chunk each would make the file system clear the
/// rest of a page of its cache every time.
const WRITE_BYTES: usize = 128 << 10;

/// What the threads of a recording share.
#[derive(Debug)]
pub(super) struct DrainShared {
    /// Written once to make every thread finish.
    stop: OwnedFd,
    /// Written by a thread that failed.
    failed: OwnedFd,
    /// The first failure.
    failure: Mutex<Option<SpoolError>>,
    /// Bytes in the spool.
    bytes: AtomicU64,
}

/// How the rings are read.
#[derive(Clone, Debug)]
pub(super) struct DrainOptions {
    /// The CPUs with a ring, in the order of their pages.
    pub cpus: Vec<u32>,
    /// Pages in each ring.
    pub ring_pages: u32,
    /// Compression of the chunks.
    pub compression: Compression,
    /// Bytes of pages kept for each CPU.
    pub cap: Option<u64>,
    /// How long a complete page may wait, if the user chose a time.
    pub deadline: Option<Duration>,
    /// How long an event may wait in a page that is not complete; `None` for as long as it takes.
    pub switch: Option<Duration>,
    /// Overwrite mode: nothing is read before the end.
    pub overwrite: bool,
    /// Bytes that the spool may have, as the trace file could not be larger (`ulimit -f`).
    pub most_bytes: Option<u64>,
}

/// The most favoured of the ordinary priorities.
const NICE_FIRST: i32 = -20;

/// One CPU's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drained {
    pub cpu: u32,
    pub totals: SpoolTotals,
}

/// The running reader threads.
#[derive(Debug)]
pub(super) struct Drain {
    shared: Arc<DrainShared>,
    threads: Vec<JoinHandle<Finished>>,
}

/// What a thread leaves when it ends.
#[derive(Debug, Default)]
struct Finished {
    drained: Vec<Drained>,
    names: Option<(NameStream, NameTable)>,
}

/// Lets this thread go before all ordinary ones: on a machine that is busy, a reader that has to wait for its
/// turn loses events. What it does has to be done in any case, so the others lose nothing by its doing it at
/// once. Without the right to, it waits like any thread.
fn go_first() {
    // A priority of the calling thread only: the kernel knows no other (sched(7)).
    let _not_allowed = rustix::process::setpriority_process(None, NICE_FIRST);
}

impl Drain {
    /// Starts the threads, each with what wakes it. The first of them also collects thread names.
    pub(super) fn start(
        spool: &Spool,
        rings: &Arc<Rings>,
        (wake, switch): (Vec<WakeStream>, &PageSwitch),
        names: (NameStream, NameTable),
        counts: &CountsFile,
        options: &DrainOptions,
    ) -> Result<Self, SpoolError> {
        let event_fd = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| SpoolError::io("create an eventfd for", spool.dir())(e.into()))
        };
        let shared = Arc::new(DrainShared {
            stop: event_fd()?,
            failed: event_fd()?,
            failure: Mutex::new(None),
            bytes: AtomicU64::new(0),
        });
        let mut names = Some(names);
        let mut threads = Vec::new();
        let indexed: Vec<(usize, u32)> = options.cpus.iter().copied().enumerate().collect();
        for ((number, group), wake) in indexed.chunks(CPUS_PER_THREAD).enumerate().zip(wake) {
            let mut spools = Vec::new();
            for &(index, cpu) in group {
                let base = index * options.ring_pages as usize;
                let notes = counts.of_cpu(index, cpu);
                spools.push((base, cpu, CpuSpool::create(spool, cpu, options.cap, notes)?));
            }
            let names = names.take();
            let epoll = watch(&shared.stop, &wake, names.as_ref().map(|(stream, _)| stream))
                .map_err(|e| SpoolError::io("watch the rings for", spool.dir())(e.into()))?;
            let worker = Worker {
                epoll,
                wake,
                switch: switch.clone(),
                rings: Arc::clone(rings),
                shared: Arc::clone(&shared),
                compressor: ChunkCompressor::new(options.compression, Endian::Little)?,
                options: options.clone(),
                names,
                pages: Vec::with_capacity(CHUNK_PAGES as usize * PAGE_SIZE),
            };
            let thread = std::thread::Builder::new()
                .name(format!("reader-{number}"))
                .spawn(move || worker.run(spools))
                .map_err(SpoolError::io("start a reader thread for", spool.dir()))?;
            threads.push(thread);
        }
        Ok(Self { shared, threads })
    }

    /// Becomes readable when a thread has failed.
    pub(super) fn failed(&self) -> std::os::fd::BorrowedFd<'_> {
        self.shared.failed.as_fd()
    }

    /// Bytes in the spool so far.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Empties the rings and ends the threads. Only after the gates are closed and all programs have
    /// returned.
    ///
    /// Gives what is in the spool even when something failed on the way.
    pub(super) fn finish(mut self) -> (Vec<Drained>, Option<(NameStream, NameTable)>, Option<SpoolError>) {
        self.tell_to_stop();
        let mut drained = Vec::new();
        let mut names = None;
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(finished) => {
                    drained.extend(finished.drained);
                    names = names.or(finished.names);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        drained.sort_by_key(|d| d.cpu);
        let failure = self.shared.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        (drained, names, failure)
    }
}

impl Drain {
    fn tell_to_stop(&self) {
        // An eventfd takes a first small number without blocking.
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
    }
}

/// Threads of a capture that comes to nothing must not go on with its rings and its spool.
impl Drop for Drain {
    fn drop(&mut self) {
        self.tell_to_stop();
        for thread in self.threads.drain(..) {
            // A panic of theirs has been printed; this one is on its way out already.
            let _ = thread.join();
        }
    }
}

/// When open pages are to be closed.
struct SwitchTimer {
    period: Duration,
    due: Instant,
    /// CPUs whose page could not be closed, because a program was writing to it.
    busy: Vec<u32>,
    /// When those are tried again.
    again: Instant,
}

/// Whose pages are to be closed.
enum ToClose {
    /// Those of all CPUs.
    All,
    /// Those that could not be closed before.
    Busy(Vec<u32>),
}

impl ToClose {
    fn has(&self, cpu: u32) -> bool {
        match self {
            Self::All => true,
            Self::Busy(cpus) => cpus.contains(&cpu),
        }
    }
}

impl SwitchTimer {
    fn start(period: Duration) -> Self {
        let due = Instant::now() + period;
        Self { period, due, busy: Vec::new(), again: due }
    }

    /// When there is something to do.
    fn next(&self) -> Instant {
        if self.busy.is_empty() { self.due } else { self.again.min(self.due) }
    }

    /// What there is to do now.
    fn take(&mut self, now: Instant) -> Option<ToClose> {
        if now < self.next() {
            return None;
        }
        self.again = now + SWITCH_AGAIN;
        let busy = std::mem::take(&mut self.busy);
        if now < self.due {
            return Some(ToClose::Busy(busy));
        }
        self.due = now + self.period;
        Some(ToClose::All)
    }
}

/// A reader thread's state.
struct Worker {
    epoll: OwnedFd,
    wake: WakeStream,
    switch: PageSwitch,
    rings: Arc<Rings>,
    shared: Arc<DrainShared>,
    compressor: ChunkCompressor,
    options: DrainOptions,
    names: Option<(NameStream, NameTable)>,
    /// Buffer for one chunk's pages.
    pages: Vec<u8>,
}

impl Worker {
    fn run(mut self, spools: Vec<(usize, u32, CpuSpool)>) -> Finished {
        go_first();
        let rings = Arc::clone(&self.rings);
        let mut cpus: Vec<(CpuRing<'_>, CpuSpool)> = spools
            .into_iter()
            .filter_map(|(base, cpu, spool)| Some((rings.reader(cpu, base, self.options.ring_pages)?, spool)))
            .collect();
        let until_stop = self.read_until_stop(&mut cpus);
        let failed = until_stop.map_err(|error| self.fail(error)).is_err();
        if failed {
            self.wait_for_stop();
        }
        for (ring, spool) in &mut cpus {
            spool.note_final(ring.control());
        }
        if !failed && let Err(error) = self.read_rest(&mut cpus) {
            self.fail(error);
        }
        let drained =
            cpus.iter().map(|(ring, spool)| Drained { cpu: ring.cpu(), totals: spool.totals() }).collect();
        Finished { drained, names: self.names.take() }
    }

    fn read_until_stop(&mut self, cpus: &mut [(CpuRing<'_>, CpuSpool)]) -> Result<(), SpoolError> {
        let deadline = self.options.deadline.unwrap_or(DEADLINE);
        // Their own times, not that of the last wakeup: a ring that fills slowly must not wait for as long as
        // others wake the reader.
        let mut due = Instant::now() + deadline;
        // A flight recorder's pages stay where they are.
        let period = self.options.switch.filter(|_| !self.options.overwrite);
        let mut timer = period.map(SwitchTimer::start);
        let first = |due: Instant, timer: &Option<SwitchTimer>| {
            timer.as_ref().map_or(due, |timer| timer.next().min(due))
        };
        let mut next = first(due, &timer);
        loop {
            if self.sleep(next.saturating_duration_since(Instant::now())) {
                return Ok(());
            }
            let now = Instant::now();
            let mut is_due = now >= due;
            if let Some(timer) = &mut timer {
                is_due |= self.close_open_pages(timer, now, cpus)?;
            }
            if is_due {
                due = now + deadline;
            }
            next = first(due, &timer);
            // Cleared first: what wakes it from here on makes the next sleep a short one.
            self.wake.clear();
            self.collect_names()?;
            if self.options.overwrite {
                // Nothing is read; only names arrive.
                for (ring, spool) in cpus.iter_mut().filter(|_| is_due) {
                    spool.note(ring.control());
                }
                continue;
            }
            loop {
                for (ring, spool) in cpus.iter_mut() {
                    ring.control().listen();
                    self.move_ready(ring, spool, is_due)?;
                }
                is_due = false;
                let wake = u64::from(wake_pages(self.options.ring_pages));
                // A ring that fills faster than it is stored must not keep the others from their time.
                let is_next = Instant::now() >= next;
                if is_next || !cpus.iter().any(|(ring, _)| ring.ready() >= wake) || self.is_stopping() {
                    break;
                }
                self.collect_names()?;
            }
        }
    }

    /// Has the pages closed that have events, if it is time. Gives whether some were.
    fn close_open_pages(
        &self,
        timer: &mut SwitchTimer,
        now: Instant,
        cpus: &[(CpuRing<'_>, CpuSpool)],
    ) -> Result<bool, SpoolError> {
        let Some(asked) = timer.take(now) else { return Ok(false) };
        let mut closed = false;
        for (ring, spool) in cpus {
            let cpu = ring.cpu();
            if !asked.has(cpu) || !ring.control().has_open_page() {
                continue;
            }
            let refused = SpoolError::io("close a page for (BPF_PROG_TEST_RUN)", spool.dir());
            if self.switch.close_page(cpu).map_err(refused)? {
                closed = true;
            } else {
                timer.busy.push(cpu);
            }
        }
        Ok(closed || matches!(asked, ToClose::All))
    }

    /// What is left in the rings once nothing writes to them any more.
    fn read_rest(&mut self, cpus: &mut [(CpuRing<'_>, CpuSpool)]) -> Result<(), SpoolError> {
        self.collect_names()?;
        for (ring, spool) in cpus.iter_mut() {
            if self.options.overwrite {
                self.move_newest(ring, spool)?;
                continue;
            }
            self.move_ready(ring, spool, false)?;
            self.pages.clear();
            let mut events = 0;
            let mut claim = ring.claim();
            loop {
                let run = claim.next_run(CHUNK_PAGES);
                if run.pages == 0 {
                    break;
                }
                self.pages.extend_from_slice(run.bytes);
                events += run.events;
            }
            self.store(spool, events)?;
            claim.commit();
            self.pages.clear();
            if let Some(page) = ring.take_partial(&mut self.pages) {
                self.store(spool, page.events.into())?;
            }
        }
        Ok(())
    }

    /// Moves the whole chunks that wait; if `all`, every page that waits. What arrives meanwhile waits for
    /// the next round: a ring that fills faster than it is stored must not keep the thread from the others.
    fn move_ready(
        &mut self,
        ring: &mut CpuRing<'_>,
        spool: &mut CpuSpool,
        all: bool,
    ) -> Result<(), SpoolError> {
        let (capacity, chunk) = (ring.capacity(), chunk_pages(ring.capacity()));
        let least = if all { 1 } else { chunk };
        // No more than waits now: that much is in the note, and what comes from here on is for the next
        // round.
        let mut ready = ring.ready();
        if all || ready >= least {
            spool.note(ring.control());
        }
        while ready >= least {
            let mut claim = ring.claim();
            // A small ring has no pages to spare for a large write.
            while ready >= least
                && spool.pending_bytes() < WRITE_BYTES
                && claim.pages() < (capacity / 4).max(1)
            {
                let run = claim.next_run(chunk.min(ready));
                if run.pages == 0 {
                    // Only of counters that make no sense.
                    ready = 0;
                }
                ready -= run.pages;
                if !run.bytes.is_empty() {
                    spool.append(run.bytes, PAGE_SIZE, run.events, &mut self.compressor)?;
                }
            }
            self.flush(spool)?;
            claim.commit();
        }
        Ok(())
    }

    /// The flight recorder's content, oldest page first.
    fn move_newest(&mut self, ring: &CpuRing<'_>, spool: &mut CpuSpool) -> Result<(), SpoolError> {
        let mut missed = ring.control().overwritten();
        let mut events = 0;
        self.pages.clear();
        for number in ring.newest() {
            if let Some(page) = ring.copy(number, missed, &mut self.pages) {
                events += u64::from(page.events);
                missed = 0;
            }
            if self.pages.len() >= CHUNK_PAGES as usize * PAGE_SIZE {
                self.store(spool, events)?;
                self.pages.clear();
                events = 0;
            }
        }
        if let Some(page) = ring.take_partial(&mut self.pages) {
            events += u64::from(page.events);
        }
        self.store(spool, events)
    }

    /// Stores the pages in the buffer.
    fn store(&mut self, spool: &mut CpuSpool, events: u64) -> Result<(), SpoolError> {
        if self.pages.is_empty() {
            return Ok(());
        }
        spool.append(&self.pages, PAGE_SIZE, events, &mut self.compressor)?;
        self.flush(spool)
    }

    fn flush(&self, spool: &mut CpuSpool) -> Result<(), SpoolError> {
        let after = self.shared.bytes.load(Ordering::Relaxed).saturating_add(spool.pending_bytes() as u64);
        if self.options.most_bytes.is_some_and(|most| after > most) {
            let error = std::io::Error::from_raw_os_error(libc::EFBIG);
            return Err(SpoolError::io("make a larger trace file (ulimit -f) of", spool.dir())(error));
        }
        let written = spool.flush();
        // What a size cap removed makes it less: the sum wraps.
        self.shared.bytes.fetch_add(spool.take_growth(), Ordering::Relaxed);
        written
    }

    fn collect_names(&mut self) -> Result<(), SpoolError> {
        if let Some((stream, table)) = &mut self.names {
            while let Some(record) = stream.next_name() {
                table.insert(record)?;
            }
            table.flush()?;
        }
        Ok(())
    }

    /// Sleeps until something waits to be read, at most `deadline`. Whether the recording ends.
    fn sleep(&self, deadline: Duration) -> bool {
        let timeout = Timespec { tv_sec: deadline.as_secs() as i64, tv_nsec: deadline.subsec_nanos().into() };
        let mut ready = Vec::with_capacity(4);
        // An interrupted wait is a short one.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&timeout));
        ready.iter().any(|event| event.data.u64() == STOP)
    }

    fn is_stopping(&self) -> bool {
        self.stops_within(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn wait_for_stop(&self) {
        while !self.stops_within(None) {}
    }

    fn stops_within(&self, timeout: Option<&Timespec>) -> bool {
        let mut fds = [PollFd::new(&self.shared.stop, PollFlags::IN)];
        matches!(poll(&mut fds, timeout), Ok(n) if n > 0)
    }

    fn fail(&self, error: SpoolError) {
        let mut failure = self.shared.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(error);
        let _ = rustix::io::write(&self.shared.failed, &1_u64.to_ne_bytes());
    }
}

/// How many pages are moved at once: a full chunk, or a quarter of a small ring.
fn chunk_pages(capacity: u64) -> u64 {
    CHUNK_PAGES.min(capacity / 4).max(1)
}

/// How many waiting pages wake the reader of a ring: a quarter of it. While the reader gets up, the rest
/// takes what comes.
pub(super) fn wake_pages(ring_pages: u32) -> u32 {
    (ring_pages / 4).max(1)
}

/// Marks the descriptor that ends a thread, among those that it waits for.
const STOP: u64 = 0;
/// Marks the others.
const DATA: u64 = 1;

/// What a thread waits for.
fn watch(stop: &OwnedFd, wake: &WakeStream, names: Option<&NameStream>) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let add = |fd, data, flags| epoll::add(&epoll, fd, epoll::EventData::new_u64(data), flags);
    add(stop.as_fd(), STOP, epoll::EventFlags::IN)?;
    add(wake.as_fd(), DATA, epoll::EventFlags::IN)?;
    if let Some(names) = names {
        // There are nearly always some; only a wakeup says that they are many.
        add(names.as_fd(), DATA, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    Ok(epoll)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rings_are_read_before_they_are_full() {
        assert_eq!(chunk_pages(1024), CHUNK_PAGES);
        assert_eq!(chunk_pages(16), 4);
        assert_eq!(chunk_pages(2), 1);
        for pages in [2, 3, 16, 64, 1024] {
            let wake = u64::from(wake_pages(pages));
            assert!(wake >= chunk_pages(pages.into()), "a reader that is woken finds a whole chunk");
            assert!(wake < u64::from(pages));
        }
    }
}
