//! Sessions that send what they record to a relay daemon of LTTng.
//!
//! Such a session writes its trace to a directory of the daemon's own, and a thread of its own, which has the
//! identity of the session's user, sends that on as it grows ([`sender`]). What is stored at the relay daemon
//! is removed here. So neither the recorder nor what writes the trace waits for the network: if the relay
//! daemon is away, what is recorded stays here within bounds.
//!
//! | file | subject |
//! |---|---|
//! | `place` | the directories of the daemon's own |
//! | `feed` | what of a recording's trace was sent, and what is next |
//! | `sender` | the thread |
//! | `snapshot` | snapshots, which are sent whole |

mod feed;
mod place;
mod sender;
mod snapshot;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use self::{
    feed::Feed,
    sender::{Order, Sending},
};
pub(super) use self::{place::Places, snapshot::send_snapshot};
use super::{
    sessions::{Listener, Stored},
    user::Owner,
};
use api::{Code, ControlError};
use ctf_writer::Publication;
use lttng_relay::{Hangup, NewSession, RelayAddress, RelayError};

/// How many descriptors a session has more that sends: both connections, what ends them from outside, and a
/// file with its index.
pub(super) const DESCRIPTORS: u64 = 8;

type Answer<T = ()> = Result<T, ControlError>;

/// Where a session sends to, and as what.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: RelayAddress,
    pub(super) session: String,
    /// When it was created, in seconds since 1970.
    pub(super) created_at: u64,
    /// Bytes that may wait here.
    pub(super) backlog: u64,
    /// How late those who read it there meanwhile read events, in microseconds, if somebody does.
    pub(super) live_timer_us: Option<u64>,
    /// Whether the session has been at the relay daemon before.
    pub(super) is_known: bool,
}

impl Target {
    /// The session as the relay daemon is told of it. Of the same session, each has another number.
    fn new_session(&self, is_snapshot: bool) -> Result<NewSession, RelayError> {
        let base_path = self.address.base_path().unwrap_or_default();
        let mut random = [0; 24];
        {
            use std::io::Read as _;
            std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        }
        let (sender, id) = random.split_at(16);
        let mut uuid: [u8; 16] = *sender.first_chunk().unwrap_or(&[1; 16]);
        // A random UUID (RFC 9562, section 5.4).
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let mut host = stdx::host_name();
        host.truncate(host.floor_char_boundary(HOST_MAX));
        Ok(NewSession {
            name: self.session.clone(),
            host,
            base_path: base_path.to_owned(),
            created_at: self.created_at,
            has_time_in_name: ctf_writer::generated_name(&self.session).is_some(),
            is_snapshot,
            live_timer_us: self.live_timer_us.filter(|_| !is_snapshot).map_or(0, in_32_bits),
            sender: uuid,
            id: u64::from_be_bytes(*id.first_chunk().unwrap_or(&[0; 8])),
        })
    }

    /// Where something is at the relay daemon.
    fn place_of(&self, path: &str) -> PathBuf {
        let root = RelayAddress { dir: String::new(), ..self.address.clone() }.url();
        PathBuf::from(format!("{root}/{}", path.trim_start_matches('/')))
    }
}

/// What a relay daemon can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) has_chunks: bool,
    pub(super) may_clear: bool,
    pub(super) may_regenerate: bool,
}

/// What waits when it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Bytes of packets that are not stored at the relay daemon, which is away.
    pub(super) waiting: u64,
    /// How many packets there were here.
    pub(super) packets: u64,
}

/// The end of what a session sends.
#[derive(Clone, Debug, Default)]
pub(super) struct SentAll {
    /// Packets that the relay daemon lacks.
    pub(super) left: Option<Unsent>,
}

/// Packets that are not known to be stored at the relay daemon.
#[derive(Clone, Debug)]
pub(super) struct Unsent {
    /// Bytes of packets; `None` where the thread that sends them has not answered.
    pub(super) bytes: Option<u64>,
    /// Where they are.
    pub(super) dir: PathBuf,
}

/// The thread that sends what a session records.
#[derive(Debug)]
pub(super) struct Forwarder {
    orders: Sender<Order>,
    hangup: Hangup,
    thread: Mutex<Option<JoinHandle<()>>>,
    abilities: Abilities,
    /// The directory that the session records into.
    place: PathBuf,
    /// Bytes of the recorder's spool, over all of its streams.
    pub(super) spool: u64,
}

/// How long the thread may take to answer after its connections were ended.
const HUNG_UP_MAX: Duration = Duration::from_secs(5);

impl Forwarder {
    /// Connects, and starts the thread. What the session records goes to the directory `place`. Others can
    /// end the connections by `hangup`.
    ///
    /// # Errors
    /// The relay daemon is not reached, or does not speak the protocol.
    pub(super) fn start(
        target: Target,
        owner: &Owner,
        place: PathBuf,
        (listener, hangup): (Box<dyn Listener>, Hangup),
    ) -> Answer<Arc<Self>> {
        let (orders, received) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let (owner, of_thread, to) = (owner.clone(), hangup.clone(), place.clone());
        let (address, spool) = (target.address.url(), target.backlog / 2);
        let run = move || {
            let started = owner
                .take_identity()
                .map_err(RelayError::from)
                .and_then(|()| Sending::open(target, to, of_thread, listener));
            match started {
                Ok(sending) => {
                    // Who starts this waits for it.
                    let _ = begun.send(Ok(sending.abilities()));
                    sending.run(&received);
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("relay".into()).spawn(run);
        let thread = thread.map_err(|error| ControlError::new(Code::NoMemory, error.to_string()))?;
        match begins.recv() {
            Ok(Ok(abilities)) => {
                let thread = Mutex::new(Some(thread));
                Ok(Arc::new(Self { orders, hangup, thread, abilities, place, spool }))
            }
            Ok(Err(error)) => Err(unreachable(&address, &error)),
            Err(_) => Err(Code::Daemon.into()),
        }
    }

    /// What the relay daemon can do.
    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// Sends what a recording writes from now on, after what was recorded before it.
    pub(super) fn follow(&self, publication: &Arc<Publication>) {
        // From here on nothing is forgotten that was not sent.
        self.order(Order::Follow(Box::new(Feed::new(publication, self.spool))));
    }

    /// A chunk is archived there, too, when all of it is.
    pub(super) fn archive(&self, chunk: u64) {
        self.order(Order::Archive(chunk));
    }

    /// What has become of a chunk here.
    pub(super) fn made(&self, chunk: u64, result: Result<Stored, String>) {
        self.order(Order::Made(chunk, result));
    }

    /// Removes what there is of the chunks from this one on. They are written no more.
    ///
    /// # Errors
    /// The relay daemon is away, or refuses.
    pub(super) fn clear(&self, from: u64) -> Answer {
        self.ask(|reply| Order::Clear(from, reply))?.map_err(|why| ControlError::new(Code::ClearFailed, why))
    }

    /// Waits until everything that was written by now is stored at the relay daemon, as long as that is
    /// there.
    pub(super) fn settle(&self) -> Answer<Settled> {
        self.ask(Order::Settle)
    }

    /// Ends the session at the relay daemon when everything is stored there. At `deadline` its connections
    /// end, whatever the thread waits for; without one, it waits as long as the relay daemon stores
    /// something.
    pub(super) fn end(&self, deadline: Option<Instant>) -> Answer<SentAll> {
        let (reply, answer) = mpsc::channel();
        self.order(Order::End(deadline, reply));
        let mut ended = match deadline {
            // The thread ends then, and closes the chunk at a relay daemon that answers.
            Some(at) => answer.recv_timeout(at.saturating_duration_since(Instant::now()) + LAST_CLOSE),
            None => answer.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            self.hangup.hang_up();
            ended = answer.recv_timeout(HUNG_UP_MAX);
        }
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            // It looks for the relay daemon's address, or connects: nobody waits for that.
            return Ok(SentAll { left: Some(Unsent { bytes: None, dir: self.place.clone() }) });
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic has been printed.
            let _ = thread.join();
        }
        ended.map_err(|_| has_ended())
    }

    fn order(&self, order: Order) {
        // A thread that has ended has said so.
        let _ = self.orders.send(order);
    }

    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Answer<T> {
        let (reply, answer) = mpsc::channel();
        self.order(order(reply));
        answer.recv().map_err(|_| has_ended())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Nobody waits for what it does.
        self.hangup.hang_up();
    }
}

fn has_ended() -> ControlError {
    let why = "the thread that sends the session has ended; the daemon's log says why";
    ControlError::new(Code::Daemon, why)
}

/// What a session is told whose relay daemon is not reached.
fn unreachable(address: &str, error: &RelayError) -> ControlError {
    let code = if error.is_final() { Code::RelayVersion } else { Code::RelayConnect };
    let next = match error {
        RelayError::Connect { .. } | RelayError::Closed | RelayError::Silent(_) => {
            "; start `lttng-relayd` there, with the ports that the address names, or see whether something on \
             the way lets nobody through"
        }
        RelayError::Resolve { .. } | RelayError::NoAddress { .. } => {
            "; net:// is for IPv4 and net6:// for IPv6"
        }
        _ => "",
    };
    ControlError::new(code, format!("{} at {address}: {error}{next}", code.text()))
}

/// The most bytes of this host's name for relay daemons (`LTTNG_HOST_NAME_MAX` of lttng-tools 2.13, without
/// the zero at its end): the names of some machines are longer.
const HOST_MAX: usize = 63;

/// How long a relay daemon may take to close the last chunk after the deadline.
const LAST_CLOSE: Duration = Duration::from_secs(2);

/// A live timer as the protocol has it.
fn in_32_bits(timer_us: u64) -> u32 {
    u32::try_from(timer_us).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    /// One whose thread does something else than sending.
    fn forwarder(hangup: &Hangup, thread: impl FnOnce(Receiver<Order>) + Send + 'static) -> Forwarder {
        let (orders, received) = mpsc::channel();
        let thread = std::thread::spawn(move || thread(received));
        let abilities = Abilities { has_chunks: true, may_clear: true, may_regenerate: true };
        let (hangup, thread) = (hangup.clone(), Mutex::new(Some(thread)));
        Forwarder { orders, hangup, thread, abilities, place: PathBuf::from("/place"), spool: 0 }
    }

    fn left(sent: Answer<SentAll>) -> Option<(Option<u64>, PathBuf)> {
        sent.unwrap().left.map(|Unsent { bytes, dir }| (bytes, dir))
    }

    #[test]
    fn a_thread_that_waits_for_a_relay_daemon_ends_at_the_deadline() {
        let hangup = Hangup::default();
        let of_thread = hangup.clone();
        let forwarder = forwarder(&hangup, move |orders| {
            let Ok(Order::End(Some(_), reply)) = orders.recv() else { panic!("the end has a deadline") };
            // As long as the peer is silent.
            while !of_thread.is_over() {
                std::thread::yield_now();
            }
            let unsent = Unsent { bytes: Some(7), dir: PathBuf::from("/left") };
            reply.send(SentAll { left: Some(unsent) }).unwrap();
        });
        assert_eq!(left(forwarder.end(Some(Instant::now()))), Some((Some(7), "/left".into())));
    }

    #[test]
    fn a_thread_that_does_not_answer_is_left_and_its_numbers_are_unknown() {
        let hangup = Hangup::default();
        let (go_on, waits) = mpsc::channel::<()>();
        let forwarder = forwarder(&hangup, move |orders| {
            // Until the test is over.
            let _ = (waits.recv(), orders);
        });
        assert_eq!(left(forwarder.end(Some(Instant::now()))), Some((None, "/place".into())));
        assert!(hangup.is_over());
        drop(go_on);
    }

    #[test]
    fn without_a_deadline_the_end_waits_and_a_thread_that_has_ended_is_an_error() {
        let hangup = Hangup::default();
        let sends = forwarder(&hangup, |orders| {
            let Ok(Order::End(None, reply)) = orders.recv() else { panic!("the end has no deadline") };
            reply.send(SentAll::default()).unwrap();
        });
        assert_eq!(left(sends.end(None)), None);
        let gone = forwarder(&hangup, drop);
        assert_eq!(gone.end(None).map(drop).map_err(|error| error.code), Err(Code::Daemon));
        assert!(!hangup.is_over());
    }
}
