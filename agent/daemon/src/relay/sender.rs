//! The thread that sends what a session records.
//!
//! Chunk by chunk, and in each the packets of all streams; what is stored at the relay daemon is asked for
//! now and then. At the border of two chunks everything is stored, so that the relay daemon has nothing to
//! sort. When the relay daemon is lost, what is not known to be stored is sent again to the next one, into a
//! chunk of its own: a packet that is in both has the same number (`packet_seq_num`).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use super::{
    Abilities, SentAll, Settled, Target, Unsent,
    feed::{Current, Feed, FeedError},
};
use crate::sessions::{Listener, Stored, Whose};
use lttng_relay::{ChunkBegin, ChunkClose, ChunkEnd, Hangup, Patience, RelayError, Shipment};
use stdx::utc;

/// How long nothing is looked at if nothing is told.
const LOOK: Duration = Duration::from_millis(50);
/// How long nothing may come on of what somebody waits for.
const STUCK: Duration = Duration::from_secs(30);
/// How long is waited before it is asked again whether something is stored.
const STORED: Duration = Duration::from_millis(5);
/// The first wait before a relay daemon that was lost is tried again, and the longest.
const TRY_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// What the thread is asked to do.
pub(super) enum Order {
    Follow(Box<Feed>),
    Archive(u64),
    Made(u64, Result<Stored, String>),
    Clear(u64, Sender<Result<(), String>>),
    Settle(Sender<Settled>),
    End(Option<Instant>, Sender<SentAll>),
}

/// The relay daemon.
enum Link {
    Up(Box<Shipment>),
    /// It is tried again then.
    Down {
        next: Instant,
        wait: Duration,
    },
}

/// The chunk that is written at the relay daemon.
#[derive(Debug)]
struct Open {
    number: u64,
    /// When it ended, once all of it is stored there.
    done: Option<u64>,
    /// Whether it has been a chunk of the recording that is sent now.
    is_of_feed: bool,
}

/// What the thread knows.
pub(super) struct Sending {
    target: Target,
    place: PathBuf,
    hangup: Hangup,
    listener: Box<dyn Listener>,
    link: Link,
    abilities: Abilities,
    /// Where the session's files are at the relay daemon.
    path: String,
    next_chunk: u64,
    feeds: VecDeque<Feed>,
    open: Option<Open>,
    /// Chunks that are to be archived.
    archive: BTreeSet<u64>,
    /// What became of chunks here, and where they are at the relay daemon, until both are known.
    made: BTreeMap<u64, Stored>,
    there: BTreeMap<u64, PathBuf>,
    /// Chunks of which something stays here, as it could not be read, and why.
    skipped: BTreeMap<u64, String>,
    /// Bytes of packets in such chunks, of recordings that are over.
    skipped_bytes: u64,
    settling: Vec<Sender<Settled>>,
    ending: Option<(Option<Instant>, Sender<SentAll>)>,
    /// Whether what is on its way is known to be stored.
    is_confirmed: bool,
    /// Since when nothing has come on of what somebody waits for, and how far it was then.
    stuck: Option<(Instant, Progress)>,
}

/// How far what is sent is: the recordings and the chunk, and packets that were sent and are stored.
type Progress = (usize, Option<u64>, (u64, u64));

impl Sending {
    /// Connects.
    pub(super) fn open(
        target: Target,
        place: PathBuf,
        hangup: Hangup,
        listener: Box<dyn Listener>,
    ) -> Result<Self, RelayError> {
        let new = target.new_session(false)?;
        let first = target.is_known.into();
        let shipment = Shipment::open(&target.address, &new, first, (Patience::default(), &hangup))?;
        let abilities = Abilities {
            has_chunks: shipment.session().has_chunks(),
            may_clear: shipment.session().may_clear(),
            may_regenerate: shipment.session().may_reset_metadata(),
        };
        Ok(Self {
            path: shipment.session().path().to_owned(),
            target,
            place,
            hangup,
            listener,
            link: Link::Up(Box::new(shipment)),
            abilities,
            next_chunk: first,
            feeds: VecDeque::new(),
            open: None,
            archive: BTreeSet::new(),
            made: BTreeMap::new(),
            there: BTreeMap::new(),
            skipped: BTreeMap::new(),
            skipped_bytes: 0,
            settling: Vec::new(),
            ending: None,
            is_confirmed: true,
            stuck: None,
        })
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// Does what it is asked until it is asked to end, or nobody is left who could ask.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let generation = self.feeds.front().map(|feed| feed.publication().read(|state| state.generation));
            loop {
                match orders.try_recv() {
                    Ok(order) => self.obey(order),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let is_busy = match self.step() {
                Ok(is_busy) => is_busy,
                Err(FeedError::Relay(error)) => {
                    self.lose(&error);
                    false
                }
                Err(FeedError::Local(error)) => {
                    self.skip_chunk(&error.to_string());
                    true
                }
            };
            if !is_busy {
                self.look_at_progress();
            }
            self.answer();
            if self.try_end() {
                return;
            }
            if is_busy {
                continue;
            }
            match (self.is_confirmed, self.feeds.front(), generation) {
                (false, ..) => thread::sleep(STORED),
                (true, Some(feed), Some(generation)) => drop(feed.publication().wait(generation, LOOK)),
                _ => thread::sleep(LOOK),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Follow(feed) => self.feeds.push_back(*feed),
            Order::Archive(chunk) => drop(self.archive.insert(chunk)),
            Order::Made(chunk, Ok(stored)) => {
                self.made.insert(chunk, stored);
                self.tell_chunks();
            }
            Order::Made(chunk, Err(why)) => self.listener.has_chunk(chunk, Err(why)),
            // Who asks waits for the answers.
            Order::Clear(from, reply) => drop(reply.send(self.clear(from))),
            Order::Settle(reply) => self.settling.push(reply),
            Order::End(deadline, reply) => {
                if let Link::Down { next, .. } = &mut self.link {
                    *next = Instant::now();
                }
                self.ending = Some((deadline, reply));
            }
        }
    }

    /// Does something of what is to be done. Gives whether there may be more.
    fn step(&mut self) -> Result<bool, FeedError> {
        if !self.connect() {
            return Ok(false);
        }
        let current = self.next_chunk_of_feeds();
        let is_number = |open: &Open| current.is_some_and(|current| open.number == current.number);
        let is_open = self.open.as_ref().is_some_and(|open| open.is_of_feed && is_number(open));
        if let (Link::Up(shipment), false, false) = (&mut self.link, is_open, self.is_confirmed) {
            // Some of a chunk that was left out is on its way.
            self.is_confirmed = shipment.confirm(&mut |_| ())?;
        }
        let Some(current) = current.filter(|_| is_open || self.is_confirmed) else { return Ok(false) };
        if !is_open {
            self.begin(&current)?;
        }
        let (Link::Up(shipment), Some(feed)) = (&mut self.link, self.feeds.front_mut()) else {
            return Ok(false);
        };
        let has_sent = feed.send(current.number, shipment)?;
        let must_ask = feed.must_wait() || !has_sent;
        self.is_confirmed = must_ask && feed.confirm(shipment)?;
        if has_sent || !self.is_confirmed {
            return Ok(has_sent && (self.is_confirmed || !feed.must_wait()));
        }
        if current.is_closed {
            // It was closed before it was looked at, and all of it is stored.
            let end = current.end_ns.map_or_else(utc::seconds_now, seconds);
            feed.finish_chunk(current.number);
            if let Some(open) = &mut self.open {
                open.done = Some(end);
            }
            self.has_sent_chunk(current.number);
            return Ok(true);
        }
        Ok(false)
    }

    /// A relay daemon that lets somebody wait without anything coming on is as one that is not there:
    /// whatever the reason is, each wait has an end.
    fn look_at_progress(&mut self) {
        let is_waited_for = !self.is_confirmed || !self.settling.is_empty() || self.ending.is_some();
        if !is_waited_for || matches!(self.link, Link::Down { .. }) {
            self.stuck = None;
            return;
        }
        let packets = self.feeds.front().map_or((0, 0), Feed::progress);
        let now = (self.feeds.len(), self.open.as_ref().map(|open| open.number), packets);
        match self.stuck {
            Some((since, before)) if before == now => {
                if since.elapsed() >= STUCK {
                    self.lose(&RelayError::Silent(STUCK));
                }
            }
            _ => self.stuck = Some((Instant::now(), now)),
        }
    }

    /// The chunk that is sent next, of the recording that is sent.
    fn next_chunk_of_feeds(&mut self) -> Option<Current> {
        loop {
            let feed = self.feeds.front_mut()?;
            let skipped = feed.skipped();
            if let Some(current) = feed.current() {
                return Some(current);
            }
            if !feed.is_over() {
                return None;
            }
            self.skipped_bytes = self.skipped_bytes.saturating_add(skipped);
            self.feeds.pop_front();
            if let Some(open) = &mut self.open {
                open.is_of_feed = false;
            }
        }
    }

    /// Begins a chunk at the relay daemon, and ends the one before.
    fn begin(&mut self, current: &Current) -> Result<(), FeedError> {
        let (Link::Up(shipment), Some(feed)) = (&mut self.link, self.feeds.front()) else { return Ok(()) };
        let begin_ns = current.begin_ns;
        let at = begin_ns.map_or(self.target.created_at, seconds);
        let before = self.open.take();
        let close = before.as_ref().map(|open| ChunkClose {
            at: open.done.unwrap_or_else(utc::seconds_now),
            end: if self.archive.contains(&open.number) { ChunkEnd::Archive } else { ChunkEnd::Stay },
        });
        let id = shipment.next_chunk();
        let is_named = !self.abilities.has_chunks && id > 0;
        let name = is_named.then(|| format!("{}-{id}", utc::compact(at.saturating_mul(1_000_000_000))));
        let is_of_feed = before.as_ref().is_some_and(|open| open.is_of_feed);
        let goes_on = |name: &_| is_of_feed && feed.has(current.number, name);
        let begun = shipment.begin(&ChunkBegin { at, name }, close, &goes_on);
        self.next_chunk = shipment.next_chunk();
        self.open = Some(Open { number: current.number, done: None, is_of_feed: true });
        let path = begun?;
        if let Some(before) = before.filter(|open| self.archive.contains(&open.number)) {
            let path = self.archived(path);
            self.is_there(before.number, &path);
        }
        Ok(())
    }

    /// Where an archived chunk is. Of the first one, relay daemons say where it was.
    fn archived(&self, said: Option<String>) -> String {
        let said = said.filter(|path| path.trim_end_matches('/') != self.path.trim_end_matches('/'));
        said.unwrap_or_else(|| format!("{}/archives", self.path.trim_end_matches('/')))
    }

    /// All of a chunk is stored at the relay daemon. One that is archived is told of when it is.
    fn has_sent_chunk(&mut self, number: u64) {
        if !self.archive.contains(&number) {
            let path = self.path.clone();
            self.is_there(number, &path);
        }
    }

    fn is_there(&mut self, number: u64, path: &str) {
        self.archive.remove(&number);
        self.there.insert(number, self.target.place_of(path));
        self.tell_chunks();
    }

    /// Tells of the chunks that are at the relay daemon, and removes them here.
    fn tell_chunks(&mut self) {
        let is_known = |number: &&u64| self.there.contains_key(number) || self.skipped.contains_key(number);
        let both: Vec<u64> = self.made.keys().filter(is_known).copied().collect();
        for number in both {
            let Some(here) = self.made.remove(&number) else { continue };
            let path = self.there.remove(&number);
            if let Some(why) = self.skipped.remove(&number) {
                let why = format!(
                    "some of it is not at the relay daemon and stays in {}: {why}",
                    here.path.display()
                );
                self.listener.has_chunk(number, Err(why));
                continue;
            }
            let Some(path) = path else { continue };
            if here.path != self.place && here.path.starts_with(&self.place) {
                // What stays goes with the session's directory.
                let _ = std::fs::remove_dir_all(&here.path);
            }
            self.listener.has_chunk(number, Ok(Stored { path, ..here }));
        }
    }

    /// Connects again if it is time to. Gives whether there is a connection.
    fn connect(&mut self) -> bool {
        let Link::Down { next, wait } = self.link else { return true };
        if Instant::now() < next {
            return false;
        }
        let opened = self.target.new_session(false).and_then(|new| {
            let waits = (Patience::default(), &self.hangup);
            Shipment::open(&self.target.address, &new, self.next_chunk.max(1), waits)
        });
        let Ok(shipment) = opened else {
            self.put_off(wait);
            return false;
        };
        // It may be another version by now.
        self.abilities.has_chunks = shipment.session().has_chunks();
        self.next_chunk = shipment.next_chunk();
        shipment.session().path().clone_into(&mut self.path);
        self.link = Link::Up(Box::new(shipment));
        self.note("the relay daemon is there again; what waited is sent into a trace chunk of its own");
        true
    }

    fn put_off(&mut self, wait: Duration) {
        let (_, longest) = TRY_AGAIN;
        self.link = Link::Down { next: Instant::now() + wait, wait: (wait * 2).min(longest) };
    }

    /// The relay daemon is lost.
    fn lose(&mut self, error: &RelayError) {
        if let Link::Up(shipment) = &self.link {
            self.next_chunk = self.next_chunk.max(shipment.next_chunk());
        }
        let (first, _) = TRY_AGAIN;
        self.put_off(first);
        (self.is_confirmed, self.stuck) = (true, None);
        if let Some(feed) = self.feeds.front_mut() {
            feed.rewind();
        }
        // What was stored of it stays where it is.
        if let Some(open) = self.open.take()
            && open.done.is_some()
        {
            let path = self.path.clone();
            self.is_there(open.number, &path);
        }
        if self.hangup.is_over() {
            // The end says what the relay daemon lacks.
            return;
        }
        self.note(&format!(
            "{error}; recording goes on here, up to {} bytes, and is sent when the relay daemon is there again",
            self.target.backlog
        ));
    }

    /// A chunk cannot be read here.
    fn skip_chunk(&mut self, why: &str) {
        let Some(feed) = self.feeds.front_mut() else { return };
        let Some(current) = feed.current() else { return };
        feed.skip_chunk(current.number);
        let bytes = feed.skipped();
        if let Some(open) = &mut self.open {
            open.done = Some(utc::seconds_now());
        }
        let more = if current.is_closed { "" } else { " and the rest of this trace chunk" };
        self.note(&format!("the relay daemon does not get {bytes} bytes of packets{more}: {why}"));
        self.skipped.insert(current.number, why.to_owned());
        self.tell_chunks();
    }

    fn note(&self, text: &str) {
        self.listener.has_notes(vec![format!("{}: {text}", self.target.address.url())], Whose::Addition);
    }

    fn clear(&mut self, from: u64) -> Result<(), String> {
        self.feeds.iter_mut().for_each(|feed| feed.cut(from));
        self.made.retain(|number, _| *number < from);
        self.archive.retain(|number| *number < from);
        self.skipped.retain(|number, _| *number < from);
        let is_meant = self.open.as_ref().is_some_and(|open| open.number >= from);
        if !is_meant {
            return Ok(());
        }
        self.open = None;
        let Link::Up(shipment) = &mut self.link else {
            return Err("the relay daemon is not there: what it has of the trace stays".to_owned());
        };
        let ended = shipment.end(ChunkClose { at: utc::seconds_now(), end: ChunkEnd::Remove });
        match ended {
            Ok(_) => {
                self.is_confirmed = true;
                Ok(())
            }
            Err(error) => {
                self.lose(&error);
                Err(error.to_string())
            }
        }
    }

    /// Bytes that stay here, as they could not be read.
    fn skipped_bytes(&mut self) -> u64 {
        let of_feeds: u64 = self.feeds.iter_mut().map(Feed::skipped).sum();
        self.skipped_bytes.saturating_add(of_feeds)
    }

    /// Bytes that are here and not known to be stored at the relay daemon.
    fn waiting(&self) -> u64 {
        self.feeds.iter().map(Feed::waiting).sum()
    }

    /// Answers those who wait for everything to be stored, if it is, or if the relay daemon is not there.
    fn answer(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let is_down = matches!(self.link, Link::Down { .. });
        let waiting = self.waiting();
        let is_settled = waiting == 0 && self.is_confirmed && !self.has_new_metadata();
        if is_down || is_settled {
            for reply in self.settling.drain(..) {
                // Who no longer waits has no use for it.
                let packets = self.feeds.iter().map(Feed::packets).sum();
                let _ = reply.send(Settled { waiting, packets });
            }
        }
    }

    /// Whether a chunk is not begun at the relay daemon.
    fn has_new_metadata(&self) -> bool {
        let current = self.feeds.iter().find_map(Feed::current);
        current.is_some_and(|current| {
            self.open.as_ref().is_none_or(|open| !open.is_of_feed || open.number != current.number)
        })
    }

    /// Ends if that was asked for, and everything is stored or cannot be. Gives whether it has.
    fn try_end(&mut self) -> bool {
        let Some((deadline, _)) = &self.ending else { return false };
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let is_down = matches!(self.link, Link::Down { .. });
        let is_over = self.feeds.iter().all(Feed::is_over) && self.is_confirmed;
        if !is_over && !is_down && !is_late {
            return false;
        }
        let waiting = self.waiting().saturating_add(self.skipped_bytes());
        let last = self.open.take();
        if let (Link::Up(shipment), Some(last)) = (&mut self.link, &last) {
            // As a session that was rotated has its last chunk among the others.
            let is_archived = last.number > 1 || self.archive.contains(&last.number);
            let end = if is_archived { ChunkEnd::Archive } else { ChunkEnd::Stay };
            let at = last.done.unwrap_or_else(utc::seconds_now);
            match shipment.end(ChunkClose { at, end }) {
                Ok(path) => {
                    let path = path.unwrap_or_else(|| self.path.clone());
                    self.is_there(last.number, &path);
                }
                Err(_) if self.hangup.is_over() => self.note("the last trace chunk is not closed there"),
                Err(error) => self.note(&format!("{error}; the last trace chunk is not closed there")),
            }
        }
        let left = if waiting == 0 {
            // Everything that was in it is at the relay daemon.
            let _ = std::fs::remove_dir_all(&self.place);
            None
        } else {
            let rest = self.feeds.iter().try_for_each(Feed::leave_rest);
            if let Err(error) = rest {
                self.note(&format!("what was sent is not left out of {}: {error}", self.place.display()));
            }
            Some(Unsent { bytes: Some(waiting), dir: self.place.clone() })
        };
        if let Some((_, reply)) = self.ending.take() {
            // Who no longer waits has no use for it.
            let _ = reply.send(SentAll { left });
        }
        true
    }
}

/// Seconds since 1970, of nanoseconds.
fn seconds(ns: u64) -> u64 {
    ns / 1_000_000_000
}
