//! One reader thread: what it waits for, and how it brings pages from the rings to the spools.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering, mpsc::Sender},
    time::{Duration, Instant},
};

use agent_ebpf::PAGE_SIZE;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::{
    Answer, Border, ChannelSource, Command, Cpus, Mailbox, ReaderOptions, Shared, Stored, ToBorder,
    streams::{
        AtBorder, CHUNK_PAGES, DEADLINE, Group, Left, Newest, Served, all, begin_round, chunk_pages, groups,
        of_kind, stored_in, wake_pages,
    },
};
use crate::names::NameTable;
use crate::notice::Notice;
use crate::spool::CpuSpool;
use crate::{Spool, SpoolError};
use attach::Borders;
use attach::ring::{CpuCounts, CpuRing, NameStream, WakeStream};
use ftrace_event::Endian;
use tracedat::ChunkCompressor;

/// When a border is looked for again that could not be found, because a program was writing to the page.
const BORDER_AGAIN: Duration = Duration::from_millis(1);
/// Compressed bytes that are written at once. Writes of a chunk each would make the file system clear the
/// rest of a page of its cache every time.
const WRITE_BYTES: usize = 128 << 10;
/// The most favoured of the ordinary priorities.
const NICE_RAISED: i32 = -20;

/// Lets this thread go before all ordinary ones: on a machine that is busy, a reader that has to wait for its
/// turn loses events. What it does has to be done in any case, so the others lose nothing by its doing it at
/// once. Without the right to, it waits like any thread.
fn raise_priority() {
    // A priority of the calling thread only: the kernel knows no other (sched(7)).
    let _not_allowed = rustix::process::setpriority_process(None, NICE_RAISED);
}

/// What a thread gets that is not its options.
pub(super) struct Outside {
    pub(super) channels: Vec<ChannelSource>,
    pub(super) wake: WakeStream,
    pub(super) names: Option<(NameStream, NameTable)>,
    pub(super) shared: Arc<Shared>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) answer: Sender<Answer>,
}

/// What a thread leaves when it ends.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) stored: Vec<Stored>,
    pub(super) names: Option<(NameStream, NameTable)>,
    /// Where others go on, if this thread was told to let them.
    pub(super) spools: Vec<CpuSpool>,
}

/// Tells of a thread that panics: whoever waits for its answers must not wait for ever.
struct ToldIfPanicking {
    shared: Arc<Shared>,
    answer: Sender<Answer>,
}

impl Drop for ToldIfPanicking {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.tell_failed();
            let _ = self.answer.send(Answer::Failed);
        }
    }
}

/// Hands out what is to be done with streams at their borders.
fn ask(groups: &mut [Group<'_>], asked: Vec<ToBorder>, what: AtBorder) {
    for at_border in asked {
        let stream = at_border.spool.stream();
        if let Some(served) = all(groups).find(|served| served.spool.stream() == stream) {
            served.asked = Some((what, at_border));
        }
    }
}

/// A reader thread's state.
pub(super) struct Worker {
    epoll: OwnedFd,
    wake: WakeStream,
    channels: Arc<[ChannelSource]>,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    answer: Sender<Answer>,
    compressor: ChunkCompressor,
    options: ReaderOptions,
    names: Option<(NameStream, NameTable)>,
    /// Buffer for one chunk's pages.
    pages: Vec<u8>,
}

impl Worker {
    pub(super) fn new(outside: Outside, options: &ReaderOptions, spool: &Spool) -> Result<Self, SpoolError> {
        let Outside { channels, wake, names, shared, mailbox, answer } = outside;
        let epoll = watch(&shared.stop, &mailbox.wake, &wake, names.as_ref().map(|(stream, _)| stream))
            .map_err(|e| SpoolError::io("watch the rings for", spool.dir())(e.into()))?;
        Ok(Self {
            epoll,
            wake,
            channels: channels.into(),
            shared,
            mailbox,
            answer,
            compressor: ChunkCompressor::new(options.compression, Endian::Little)?,
            options: options.clone(),
            names,
            pages: Vec::with_capacity(CHUNK_PAGES as usize * PAGE_SIZE),
        })
    }

    /// Whether nothing is stored before the end.
    fn only_overwrites(&self) -> bool {
        self.options.channels.iter().all(|channel| channel.overwrite)
    }

    pub(super) fn run(mut self, cpus: &Cpus, spools: Vec<CpuSpool>) -> Finished {
        // No event waits for the reader of a flight recorder.
        if !self.only_overwrites() {
            raise_priority();
        }
        let _told = ToldIfPanicking { shared: Arc::clone(&self.shared), answer: self.answer.clone() };
        let channels = Arc::clone(&self.channels);
        let options = self.options.channels.clone();
        let mut groups = groups(&channels, &options, cpus, spools);
        let until_stop = self.read_until_stop(&mut groups);
        let failed = until_stop.map_err(|error| self.fail(error)).is_err();
        if failed {
            self.wait_for_stop();
        }
        if self.shared.lets_go.load(Ordering::Acquire) {
            // What cannot be stored stays in the rings. Whoever goes on meets the reason again.
            let _ = self.leave(&mut groups);
            let streams = groups.into_iter().flat_map(|group| group.streams);
            let spools = streams.map(|served| served.spool).collect();
            return Finished { spools, names: self.names.take(), stored: Vec::new() };
        }
        for served in all(&mut groups) {
            served.spool.note_final(served.ring.control());
        }
        if let Err(error) = self.read_rest(&mut groups, failed)
            && !failed
        {
            self.fail(error);
        }
        let stored = groups.iter().flat_map(|group| &group.streams).map(Served::stored).collect();
        Finished { stored, names: self.names.take(), spools: Vec::new() }
    }

    fn read_until_stop(&mut self, groups: &mut [Group<'_>]) -> Result<(), SpoolError> {
        loop {
            let next = groups.iter().map(Group::next).min();
            let mut patience = next.map_or(DEADLINE, |next| next.saturating_duration_since(Instant::now()));
            if all(groups).any(|served| served.asked.is_some()) {
                patience = patience.min(BORDER_AGAIN);
            }
            if self.sleep(patience) {
                return Ok(());
            }
            let now = Instant::now();
            groups.iter_mut().try_for_each(|group| group.look_at(now))?;
            // Cleared first: what wakes it from here on makes the next sleep a short one.
            self.wake.clear();
            self.collect_names()?;
            self.obey(groups)?;
            for served in all(groups) {
                self.do_asked(served)?;
            }
            if self.copy_marked(groups)? {
                // Between two notes of a stream, as followers rely on it.
                self.collect_names()?;
            }
            for group in groups.iter_mut().filter(|group| group.options.overwrite) {
                if group.streams.iter().any(|served| served.ring.control().held_page().is_some()) {
                    self.shared.asked.tell();
                }
                // Nothing is read; only names arrive.
                for served in group.streams.iter_mut().filter(|_| group.is_due) {
                    served.spool.note(served.ring.control());
                }
            }
            self.read(groups)?;
        }
    }

    /// Moves what waits in the rings whose pages are stored meanwhile, until it is not much.
    fn read(&mut self, groups: &mut [Group<'_>]) -> Result<(), SpoolError> {
        let next = groups.iter().map(Group::next).min();
        loop {
            let mut is_full = false;
            self.move_round(groups)?;
            for group in groups.iter().filter(|group| !group.options.overwrite) {
                let wake = u64::from(wake_pages(group.options.ring_pages));
                is_full |= group.streams.iter().any(|served| served.ring.ready() >= wake);
            }
            // A ring that fills faster than it is stored must not keep the others from their time.
            let is_next = next.is_some_and(|next| Instant::now() >= next);
            if is_next || !is_full || self.is_stopping() || self.mailbox.has_some() {
                return Ok(());
            }
            self.collect_names()?;
        }
    }

    /// Moves the whole chunks that wait now, and of groups whose time has come every page: what arrives
    /// meanwhile waits for the next round. The streams take turns, so that a small ring does not wait until
    /// a large one is read.
    fn move_round(&mut self, groups: &mut [Group<'_>]) -> Result<(), SpoolError> {
        begin_round(groups);
        while self.take_turns(groups)? {}
        Ok(())
    }

    /// Gives each stream a turn. Whether there is more to be moved in this round.
    fn take_turns(&mut self, groups: &mut [Group<'_>]) -> Result<bool, SpoolError> {
        let mut is_more = false;
        for Served { ring, spool, left, .. } in all(groups) {
            self.move_some(ring, spool, left)?;
            is_more |= left.is_enough();
        }
        Ok(is_more)
    }

    /// Does what the recording asks for.
    fn obey(&mut self, groups: &mut [Group<'_>]) -> Result<(), SpoolError> {
        while let Some(command) = self.mailbox.take() {
            match command {
                Command::Rotate(asked) => ask(groups, asked, AtBorder::GoOver),
                Command::Copy(asked) => ask(groups, asked, AtBorder::Copy),
                Command::Store => {
                    self.empty_rings(groups)?;
                    self.collect_names()?;
                    // Who does not wait for the answer has stopped the recording.
                    let _ = self.answer.send(Answer::Emptied);
                }
                Command::Names(journal) => {
                    self.collect_names()?;
                    if let Some((_, table)) = &mut self.names {
                        let names = table.go_over(journal)?;
                        // Who does not wait for the answer has stopped the recording.
                        let _ = self.answer.send(Answer::Names(names));
                    }
                }
                Command::CopyNames => {
                    self.collect_names()?;
                    if let Some((_, table)) = &self.names {
                        let _ = self.answer.send(Answer::Names(table.cmdlines()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores what the rings hold, also in pages that are not full, while programs write no more events.
    fn empty_rings(&mut self, groups: &mut [Group<'_>]) -> Result<(), SpoolError> {
        for group in groups {
            group.close_pages()?;
            if group.options.overwrite {
                group.streams.iter_mut().for_each(|served| served.spool.note(served.ring.control()));
                continue;
            }
            for Served { ring, spool, .. } in &mut group.streams {
                let all = Left::now(ring, spool, true);
                self.move_while_enough(ring, spool, all)?;
            }
        }
        Ok(())
    }

    /// Does what is asked of a stream, if something is and its border can be found now.
    fn do_asked(&mut self, served: &mut Served<'_>) -> Result<(), SpoolError> {
        let Some((what, ToBorder { borders, spool, since })) = served.asked.take() else { return Ok(()) };
        let found = border_of(&served.ring, &borders, &spool);
        match (what, found) {
            (_, Ok(None)) => served.asked = Some((what, ToBorder { borders, spool, since })),
            (AtBorder::GoOver, found) => {
                if let Some(end) = found? {
                    self.go_over(served, spool, Arc::new(end))?;
                }
            }
            // The recording does not need it.
            (AtBorder::Copy, Err(error)) => {
                let _ = self.answer.send(Answer::Copied(Err(error)));
            }
            (AtBorder::Copy, Ok(Some(end))) => served.marked = Some((spool, end, since)),
        }
        Ok(())
    }

    /// Copies the rings whose borders are found, once all that were asked for are: copying takes time, and
    /// what the streams hold should end at one. Gives whether some were.
    fn copy_marked(&mut self, groups: &mut [Group<'_>]) -> Result<bool, SpoolError> {
        let mut has_copied = false;
        if all(groups).any(|served| served.asked.is_some()) {
            return Ok(has_copied);
        }
        for group in 0..groups.len() {
            for stream in 0..groups[group].streams.len() {
                if let Some((spool, end, since)) = groups[group].streams[stream].marked.take() {
                    let copied = self.copy(groups, (group, stream), (spool, since), end)?;
                    has_copied = true;
                    // Who does not wait for the answer has stopped the recording.
                    let _ = self.answer.send(Answer::Copied(copied));
                }
            }
        }
        Ok(has_copied)
    }

    /// Brings a stream over to its spool in the next archive.
    fn go_over(
        &mut self,
        cpu: &mut Served<'_>,
        mut next: CpuSpool,
        end: Arc<CpuCounts>,
    ) -> Result<(), SpoolError> {
        // Before the data that it counts.
        cpu.spool.note_end(&end);
        let before = end.head.wrapping_sub(cpu.ring.control().consumed()).min(cpu.ring.capacity());
        self.move_while_enough(&mut cpu.ring, &mut cpu.spool, Left { ready: before, least: 1 })?;
        let stored = cpu.stored();
        next.begin_at(Arc::clone(&end));
        next.know_owners(cpu.spool.owners());
        cpu.spool = next;
        let _ = self.answer.send(Answer::Border(Border { stored, end }));
        Ok(())
    }

    /// Stores what a ring holds of the events before its border, while programs go on writing. What they
    /// overwrite meanwhile counts as overwritten: of all events up to there, it is what is not stored.
    ///
    /// Rings whose pages are stored anyway get a turn after each chunk.
    ///
    /// # Errors
    /// Reading those failed. What the copy itself fails with is the result.
    fn copy(
        &mut self,
        groups: &mut [Group<'_>],
        (group, stream): (usize, usize),
        (mut spool, since): (CpuSpool, Option<u64>),
        mut end: CpuCounts,
    ) -> Result<Result<Border, SpoolError>, SpoolError> {
        spool.note_border(&end);
        spool.know_owners(groups[group].streams[stream].spool.owners());
        let ring = &groups[group].streams[stream].ring;
        let mut newest = Newest::before(ring, (end.head, end.events));
        if let Some(time) = since {
            newest = newest.since(ring, time);
        }
        loop {
            let stored = self.copy_chunk(&groups[group].streams[stream].ring, &mut spool, &mut newest);
            match stored.and_then(|events| self.store(&mut spool, events)) {
                Err(error) => return Ok(Err(error)),
                Ok(()) if newest.is_over() => break,
                Ok(()) => {
                    self.collect_names()?;
                    let now = Instant::now();
                    groups.iter_mut().try_for_each(|group| group.look_at(now))?;
                    begin_round(groups);
                    self.take_turns(groups)?;
                }
            }
        }
        // Only now it is known how many there are.
        let totals = spool.totals();
        end.overwritten = end.events.saturating_sub(totals.events).saturating_sub(totals.capped_events);
        spool.note_end(&end);
        Ok(Ok(Border { stored: stored_in(&spool), end: Arc::new(end) }))
    }

    /// Stores every page that is complete, so that the rings have room while nobody reads them.
    fn leave(&mut self, groups: &mut [Group<'_>]) -> Result<(), SpoolError> {
        let mut result = self.collect_names();
        for Served { ring, spool, .. } in of_kind(groups, false) {
            let all = Left::now(ring, spool, true);
            result = result.and(self.move_while_enough(ring, spool, all));
        }
        result
    }

    /// Stores what is left in the rings once nothing writes to them any more. After a failure only what
    /// flight recorders hold, for which there may still be room.
    fn read_rest(&mut self, groups: &mut [Group<'_>], failed: bool) -> Result<(), SpoolError> {
        let mut result = self.collect_names();
        // They come first, for space was set aside for them.
        for Served { ring, spool, .. } in of_kind(groups, true) {
            result = result.and(self.move_newest(ring, spool));
        }
        if !failed {
            for Served { ring, spool, .. } in of_kind(groups, false) {
                self.move_all(ring, spool)?;
            }
        }
        result
    }

    /// Moves all pages, and what is in the one that is not full, once nothing writes any more.
    fn move_all(&mut self, ring: &mut CpuRing<'_>, spool: &mut CpuSpool) -> Result<(), SpoolError> {
        let whole_chunks = Left::now(ring, spool, false);
        self.move_while_enough(ring, spool, whole_chunks)?;
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
        self.store_partial(ring, spool)
    }

    /// Stores what is in the page that is not full.
    fn store_partial(&mut self, ring: &CpuRing<'_>, spool: &mut CpuSpool) -> Result<(), SpoolError> {
        // By itself: with it, a chunk may be longer than a chunk can be.
        self.pages.clear();
        match ring.take_partial(&mut self.pages) {
            Some(page) => self.store(spool, page.events.into()),
            None => Ok(()),
        }
    }

    /// Moves all pages that are to be moved.
    fn move_while_enough(
        &mut self,
        ring: &mut CpuRing<'_>,
        spool: &mut CpuSpool,
        mut left: Left,
    ) -> Result<(), SpoolError> {
        while left.is_enough() {
            self.move_some(ring, spool, &mut left)?;
        }
        Ok(())
    }

    /// Moves some of the pages that are to be moved: as much as is written at once.
    fn move_some(
        &mut self,
        ring: &mut CpuRing<'_>,
        spool: &mut CpuSpool,
        left: &mut Left,
    ) -> Result<(), SpoolError> {
        if !left.is_enough() {
            return Ok(());
        }
        let is_late = self.options.compression.is_by_load() && left.ready > ring.capacity() / 2;
        self.compressor.hurry(is_late || self.shared.hurries.load(Ordering::Relaxed))?;
        let (capacity, chunk) = (ring.capacity(), chunk_pages(ring.capacity()));
        let mut claim = ring.claim();
        // A small ring has no pages to spare for a large write.
        while left.is_enough() && spool.pending_bytes() < WRITE_BYTES && claim.pages() < (capacity / 4).max(1)
        {
            let run = claim.next_run(chunk.min(left.ready));
            if run.pages == 0 {
                // Only of counters that make no sense.
                left.ready = 0;
            }
            left.ready -= run.pages;
            if !run.bytes.is_empty() {
                spool.append(run.bytes, PAGE_SIZE, run.events, &mut self.compressor)?;
            }
        }
        self.flush(spool)?;
        claim.commit();
        Ok(())
    }

    /// The flight recorder's content once nothing writes any more.
    fn move_newest(&mut self, ring: &CpuRing<'_>, spool: &mut CpuSpool) -> Result<(), SpoolError> {
        let mut newest = Newest::before(ring, ring.end_of_complete());
        while !newest.is_over() {
            let events = self.copy_chunk(ring, spool, &mut newest)?;
            self.store(spool, events)?;
        }
        self.store_partial(ring, spool)
    }

    /// Copies the next chunk of the complete pages that a ring still has to the buffer; gives how many events
    /// are in it. The first page of all is marked with the events before it.
    ///
    /// There is no gap between the pages. Where programs are faster and reuse a page before it is copied,
    /// those before it are dropped, as they are older than what is missing, and some of those after it, as
    /// they would be reused next.
    fn copy_chunk(
        &mut self,
        ring: &CpuRing<'_>,
        spool: &mut CpuSpool,
        newest: &mut Newest,
    ) -> Result<u64, SpoolError> {
        let mut events = 0;
        self.pages.clear();
        while self.pages.len() < CHUNK_PAGES as usize * PAGE_SIZE
            && let Some(number) = newest.pages.next()
        {
            let missed = if newest.has_some { 0 } else { newest.recorded.saturating_sub(newest.left) };
            newest.left = newest.left.saturating_sub(newest.held.events_of(number));
            if number < newest.from {
                continue;
            }
            match ring.copy(number, missed, &mut self.pages) {
                Some(page) => {
                    newest.has_some = true;
                    events += u64::from(page.events);
                }
                None if newest.has_some => {
                    self.pages.clear();
                    spool.clear()?;
                    (events, newest.has_some) = (0, false);
                    newest.from = newest.from.max(ring.safe_from(newest.end));
                }
                None => {}
            }
        }
        Ok(events)
    }

    /// Stores the pages in the buffer.
    fn store(&mut self, spool: &mut CpuSpool, events: u64) -> Result<(), SpoolError> {
        if self.pages.is_empty() {
            return Ok(());
        }
        self.compressor.hurry(self.shared.hurries.load(Ordering::Relaxed))?;
        spool.append(&self.pages, PAGE_SIZE, events, &mut self.compressor)?;
        self.flush(spool)
    }

    fn flush(&self, spool: &mut CpuSpool) -> Result<(), SpoolError> {
        if self.options.most_bytes.is_some_and(|most| spool.archive_bytes_then() > most) {
            let error = std::io::Error::from_raw_os_error(libc::EFBIG);
            return Err(SpoolError::io("make a larger trace file (ulimit -f) of", spool.dir())(error));
        }
        spool.flush()
    }

    fn collect_names(&mut self) -> Result<(), SpoolError> {
        let Some((stream, table)) = &mut self.names else { return Ok(()) };
        let mut journaled = Ok(());
        while let Some(record) = stream.next_name() {
            journaled = journaled.and(table.insert(record));
        }
        journaled = journaled.and(table.flush());
        // The journal is for whoever recovers the recording. The events of a flight recorder are in memory
        // until its end, as the names are, so that a full disk is no reason to end it.
        if self.only_overwrites() { Ok(()) } else { journaled }
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
        self.shared.failure().get_or_insert(error);
        self.shared.tell_failed();
        let _ = self.answer.send(Answer::Failed);
    }
}

/// The border of a CPU's ring, if it can be found now.
fn border_of(
    ring: &CpuRing<'_>,
    borders: &Borders,
    spool: &CpuSpool,
) -> Result<Option<CpuCounts>, SpoolError> {
    let refused = SpoolError::io("find where the next file begins for (BPF_PROG_TEST_RUN)", spool.dir());
    Ok(match borders.mark(ring).map_err(refused)? {
        attach::Border::Marked(counts) => Some(counts),
        attach::Border::Busy => None,
        attach::Border::Offline => borders.of_offline(ring),
    })
}

/// Marks the descriptor that ends a thread, among those that it waits for.
const STOP: u64 = 0;
/// Marks the others.
const DATA: u64 = 1;

/// What a thread waits for.
fn watch(
    stop: &Notice,
    asked: &Notice,
    wake: &WakeStream,
    names: Option<&NameStream>,
) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let add = |fd, data, flags| epoll::add(&epoll, fd, epoll::EventData::new_u64(data), flags);
    add(stop.as_fd(), STOP, epoll::EventFlags::IN)?;
    add(wake.as_fd(), DATA, epoll::EventFlags::IN)?;
    add(asked.as_fd(), DATA, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    if let Some(names) = names {
        // There are nearly always some; only a wakeup says that they are many.
        add(names.as_fd(), DATA, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    Ok(epoll)
}
