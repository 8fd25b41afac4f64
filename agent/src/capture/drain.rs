//! The reader threads: from the rings through the compressor into the spool.
//!
//! A thread serves a few CPUs. It sleeps between rounds, longer while the rings fill slowly and shorter while they fill fast;
//! no event ever wakes it. A page's memory goes back to the kernel only after its bytes are in the spool.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use agent_ebpf::PAGE_SIZE;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{
    Spool, SpoolError,
    names::NameTable,
    spool::{CpuSpool, SpoolTotals},
};
use crate::{
    probe::NameStream,
    ring::{CpuRing, Rings},
    tracedat::{ChunkCompressor, Compression, Endian, layout},
};

/// Pages compressed together. Readers of trace files decompress a chunk at a time and the best of them cache few, so 10 to 64
/// pages are the sizes that serve both.
const CHUNK_PAGES: u64 = layout::CHUNK_PAGES as u64;
/// CPUs served by one thread.
const CPUS_PER_THREAD: usize = 4;
/// The shortest pause between two rounds.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause between two rounds, whatever the rings hold, unless the user chooses one.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Twice what a CPU that does nothing but make short system calls writes in a second. A burst comes without notice, so no pause
/// is longer than it would take to fill a ring at this speed.
const FILL_BYTES_PER_SECOND: u64 = 400 << 20;

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
    /// The longest pause between two rounds, if the user chose one.
    pub pause_max: Option<Duration>,
    /// Overwrite mode: nothing is read before the end.
    pub overwrite: bool,
}

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

impl Drain {
    /// Starts the threads. The first of them also collects thread names.
    pub(super) fn start(
        spool: &Spool,
        rings: &Arc<Rings>,
        names: (NameStream, NameTable),
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
        for (number, group) in indexed.chunks(CPUS_PER_THREAD).enumerate() {
            let mut spools = Vec::new();
            for &(index, cpu) in group {
                let base = index * options.ring_pages as usize;
                spools.push((base, cpu, CpuSpool::create(spool, cpu, options.cap)?));
            }
            let worker = Worker {
                rings: Arc::clone(rings),
                shared: Arc::clone(&shared),
                compressor: ChunkCompressor::new(options.compression, Endian::Little)?,
                options: options.clone(),
                names: names.take(),
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

    /// Empties the rings and ends the threads. Only after the gates are closed and all programs have returned.
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

/// A reader thread's state.
struct Worker {
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
        let rings = Arc::clone(&self.rings);
        let mut cpus: Vec<(CpuRing<'_>, CpuSpool)> = spools
            .into_iter()
            .filter_map(|(base, cpu, spool)| {
                Some((CpuRing::new(&rings, cpu, base, self.options.ring_pages)?, spool))
            })
            .collect();
        if let Err(error) = self.read_until_stop(&mut cpus).and_then(|()| self.read_rest(&mut cpus)) {
            self.fail(error);
            self.wait_for_stop();
        }
        let drained =
            cpus.iter().map(|(ring, spool)| Drained { cpu: ring.cpu(), totals: spool.totals() }).collect();
        Finished { drained, names: self.names.take() }
    }

    fn read_until_stop(&mut self, cpus: &mut [(CpuRing<'_>, CpuSpool)]) -> Result<(), SpoolError> {
        let longest = self.options.pause_max.unwrap_or_else(|| longest_pause(self.options.ring_pages));
        let mut pause = PAUSE_MIN.min(longest);
        loop {
            if self.stop_requested(pause) {
                return Ok(());
            }
            self.collect_names()?;
            if self.options.overwrite {
                // Nothing is read; only names arrive.
                pause = next_pause(pause, 0, PAUSE_MAX);
                continue;
            }
            let mut fullest = 0;
            for (ring, spool) in cpus.iter_mut() {
                let ready = ring.ready();
                fullest = fullest.max(ready * 100 / ring.capacity());
                let chunk = chunk_pages(ring.capacity());
                // What arrives meanwhile waits for the next round: a ring that fills faster than it is stored must not keep
                // the thread from the others.
                for _ in 0..ready / chunk {
                    self.move_chunk(ring, spool, chunk)?;
                }
            }
            pause = next_pause(pause, fullest, longest);
        }
    }

    /// What is left in the rings once nothing writes to them any more.
    fn read_rest(&mut self, cpus: &mut [(CpuRing<'_>, CpuSpool)]) -> Result<(), SpoolError> {
        self.collect_names()?;
        for (ring, spool) in cpus.iter_mut() {
            if self.options.overwrite {
                self.move_newest(ring, spool)?;
                continue;
            }
            loop {
                let count = ring.ready().min(CHUNK_PAGES);
                if count == CHUNK_PAGES {
                    self.move_chunk(ring, spool, count)?;
                    continue;
                }
                self.pages.clear();
                let mut events = 0;
                ring.take(count, &mut self.pages, |page| events += u64::from(page.events));
                if let Some(page) = ring.take_partial(&mut self.pages) {
                    events += u64::from(page.events);
                }
                self.store(spool, events)?;
                break;
            }
        }
        Ok(())
    }

    fn move_chunk(&mut self, ring: &CpuRing<'_>, spool: &mut CpuSpool, count: u64) -> Result<(), SpoolError> {
        self.pages.clear();
        let mut events = 0;
        let taken = ring.take(count, &mut self.pages, |page| events += u64::from(page.events));
        self.store(spool, events)?;
        ring.release(taken);
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

    fn store(&mut self, spool: &mut CpuSpool, events: u64) -> Result<(), SpoolError> {
        if self.pages.is_empty() {
            return Ok(());
        }
        let before = spool.totals().bytes;
        spool.append(&self.pages, PAGE_SIZE, events, &mut self.compressor)?;
        self.shared.bytes.fetch_add(spool.totals().bytes.wrapping_sub(before), Ordering::Relaxed);
        Ok(())
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

    fn stop_requested(&self, pause: Duration) -> bool {
        let mut fds = [PollFd::new(&self.shared.stop, PollFlags::IN)];
        let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        // An interrupted wait is a short pause.
        matches!(poll(&mut fds, Some(&timeout)), Ok(n) if n > 0)
    }

    fn wait_for_stop(&self) {
        while !self.stop_requested(PAUSE_MAX) {}
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

/// The longest pause that a ring of this size allows.
fn longest_pause(ring_pages: u32) -> Duration {
    let bytes = u64::from(ring_pages) * PAGE_SIZE as u64;
    Duration::from_micros(bytes * 1_000_000 / FILL_BYTES_PER_SECOND).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// The next pause: rings that are filled to a quarter within one pause halve it, rings that stay nearly empty double it.
fn next_pause(pause: Duration, fullest_percent: u64, max: Duration) -> Duration {
    let next = match fullest_percent {
        25.. => pause / 2,
        0..5 => pause * 2,
        _ => pause,
    };
    next.clamp(PAUSE_MIN.min(max), max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_the_load() {
        let max = Duration::from_millis(200);
        let mut pause = PAUSE_MIN;
        for _ in 0..20 {
            pause = next_pause(pause, 0, max);
        }
        assert_eq!(pause, max, "an idle machine is left alone");
        for _ in 0..20 {
            pause = next_pause(pause, 60, max);
        }
        assert_eq!(pause, PAUSE_MIN, "a busy one is read often");
        assert_eq!(next_pause(pause, 60, Duration::from_micros(100)), Duration::from_micros(100));
        assert_eq!(next_pause(max, 10, max), max, "in between nothing changes");
    }

    #[test]
    fn a_burst_after_a_quiet_time_fits_the_ring() {
        assert_eq!(longest_pause(1024), Duration::from_millis(10));
        assert_eq!(longest_pause(2), PAUSE_MIN);
        assert_eq!(longest_pause(u32::MAX), PAUSE_MAX);
    }

    #[test]
    fn small_rings_are_read_before_they_are_full() {
        assert_eq!(chunk_pages(1024), CHUNK_PAGES);
        assert_eq!(chunk_pages(16), 4);
        assert_eq!(chunk_pages(2), 1);
    }
}
