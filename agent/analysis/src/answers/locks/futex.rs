//! Waits for locks of processes, by their futex calls.
//!
//! A lock that nobody holds is taken without a call, so calls tell of contention alone. A futex is told apart
//! by its process and its address.

use std::collections::{BTreeMap, HashMap, btree_map::Entry};

use serde::Serialize;

use super::process::Process;
use crate::answers::parts::{Part, StackParts};
use crate::answers::tally::Room;
use crate::answers::threads::Index;
use crate::answers::who::Who;
use crate::answers::{Arguments, At, Scope, Tid, Times};
use ftrace_event::syscalls::{CallNames, without_compat};

/// Most combinations of a futex and a thread that waits, and as many of one and a thread that wakes.
const MOST_KEYS: usize = 1 << 16;

/// More than the numbers of calls that any machine has.
const NUMBERS: u32 = 1024;

/// Operations and flags of include/uapi/linux/futex.h.
mod op {
    pub(super) const WAITS: [i64; 5] = [WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2];
    pub(super) const WAKES: [i64; 7] = [1, 3, 4, 5, 7, 10, 12];
    const WAIT: i64 = 0;
    const LOCK_PI: i64 = 6;
    const WAIT_BITSET: i64 = 9;
    const WAIT_REQUEUE_PI: i64 = 11;
    const LOCK_PI2: i64 = 13;
    pub(super) const PRIVATE: i64 = 128;
    /// The operation without its flags: `FUTEX_CMD_MASK`.
    pub(super) const COMMAND: i64 = 0x7f;
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Waits,
    Wakes,
    /// Neither: it tries to lock.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// `futex`, whose second argument says what it does.
    Any,
    Wait,
    Wake,
}

/// Which calls are of futexes, by number.
#[derive(Clone, Debug, Default)]
struct Calls(Vec<(i64, Call)>);

impl Calls {
    fn of(names: &CallNames) -> Self {
        let of_name = |name| match without_compat(name) {
            "futex" | "futex_time64" => Some(Call::Any),
            "futex_wait" => Some(Call::Wait),
            "futex_wake" => Some(Call::Wake),
            _ => None,
        };
        Self(names.iter(NUMBERS).filter_map(|(number, name)| Some((number, of_name(name)?))).collect())
    }

    fn get(&self, number: i64) -> Option<Call> {
        self.0.iter().find(|(of, _)| *of == number).map(|(_, call)| *call)
    }
}

/// A futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// `None` if it is not known.
    pub(super) process: Option<Process>,
    pub(super) address: u64,
}

/// A futex call that a thread is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) number: i64,
    pub(super) does: Does,
    place: Place,
    /// Whether other processes may use it at addresses of their own.
    is_shared: bool,
    since: u64,
    pub(super) losses: u64,
    pub(super) is_raw: bool,
    /// Who was seen to wake the thread first.
    pub(super) waker: Option<Who>,
    /// The stack of its entry.
    pub(super) stack: StackParts,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FutexResult {
    /// It was woken, or has the lock.
    Woken,
    /// It did not wait: the value had changed (`EAGAIN`).
    Changed,
    /// The time was over (`ETIMEDOUT`).
    TimedOut,
    /// A signal came (`EINTR`, and what the kernel has for calls that it restarts).
    Interrupted,
    /// Another error.
    Failed,
}

impl FutexResult {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Woken, Self::Changed, Self::TimedOut, Self::Interrupted, Self::Failed];

    /// By what a call returns: numbers of include/uapi/asm-generic/errno.h and include/linux/errno.h.
    fn of(result: i64) -> Self {
        match result {
            0.. => Self::Woken,
            -11 => Self::Changed,
            -110 => Self::TimedOut,
            -4 | -514..=-512 | -516 => Self::Interrupted,
            _ => Self::Failed,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Woken => "woken",
            Self::Changed => "changed",
            Self::TimedOut => "timed out",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// The longest wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longest {
    pub(super) time: u64,
    pub(super) at: u64,
    pub(super) result: FutexResult,
    pub(super) waker: Option<Who>,
}

/// What is told of a thread's waits for a futex.
#[derive(Clone, Debug, Default)]
pub(super) struct Waited {
    pub(super) times: Times,
    /// In the order of [`FutexResult::ALL`].
    pub(super) results: [u64; 5],
    pub(super) open: u64,
    pub(super) open_time: u64,
    pub(super) longest: Option<Longest>,
    pub(super) is_shared: bool,
}

/// What is told of a thread that wakes others at a futex.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Woke {
    pub(super) tid: Tid,
    pub(super) calls: u64,
    pub(super) woken: u64,
    pub(super) is_shared: bool,
}

/// A place in a process from which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Caller {
    pub(super) process: Option<Process>,
    pub(super) stack: Option<Part>,
    pub(super) index: Index,
}

/// A futex that threads wait for.
#[derive(Clone, Copy, Debug, Default)]
struct Awaited {
    waiters: u64,
    /// Who called last to wake one of them, and when.
    last: Option<(Who, u64)>,
    /// When somebody else did, before that.
    other: Option<u64>,
}

/// Futexes.
#[derive(Clone, Debug, Default)]
pub(super) struct Futexes {
    calls: Calls,
    awaited: HashMap<Place, Awaited>,
    pub(super) waits: BTreeMap<(Place, Index), Waited>,
    pub(super) wakes: BTreeMap<(Place, Index), Woke>,
    pub(super) callers: BTreeMap<Caller, Times>,
    /// For the times of waits.
    sizes: Room,
    pub(super) left_out: u64,
    /// Ends without a beginning.
    pub(super) unmatched: u64,
    /// Beginnings without an end.
    pub(super) unfinished: u64,
}

impl Futexes {
    /// Of a machine with these calls.
    pub(super) fn new(names: &CallNames) -> Self {
        Self { calls: Calls::of(names), ..Self::default() }
    }

    /// Whether calls with this number are of futexes.
    pub(super) fn is_futex(&self, number: i64) -> bool {
        self.calls.get(number).is_some()
    }

    /// A call begins. `None` if it is none of a futex, or if its arguments are not known.
    pub(super) fn enter(
        &mut self,
        at: At,
        process: Option<Process>,
        who: Who,
        (number, arguments, is_raw): (i64, Arguments, bool),
        losses: u64,
    ) -> Option<Open> {
        let call = self.calls.get(number)?;
        let [Some(address), Some(op), _] = arguments else { return None };
        let does = match (call, op & op::COMMAND) {
            (Call::Wait, _) => Does::Waits,
            (Call::Wake, _) => Does::Wakes,
            (Call::Any, command) if op::WAITS.contains(&command) => Does::Waits,
            (Call::Any, command) if op::WAKES.contains(&command) => Does::Wakes,
            (Call::Any, _) => Does::Other,
        };
        let place = Place { process, address: address.cast_unsigned() };
        match does {
            Does::Waits => self.awaited.entry(place).or_default().waiters += 1,
            Does::Wakes => {
                if let Some(awaited) = self.awaited.get_mut(&place) {
                    awaited.wake(who, at.time);
                }
            }
            Does::Other => {}
        }
        let is_shared = call == Call::Any && op & op::PRIVATE == 0;
        Some(Open {
            number,
            does,
            place,
            is_shared,
            since: at.time,
            losses,
            is_raw,
            waker: None,
            stack: StackParts::default(),
        })
    }

    /// A call is not gone on with, or its end is there.
    fn leave(&mut self, open: &Open) {
        if open.does == Does::Waits
            && let Some(awaited) = self.awaited.get_mut(&open.place)
        {
            awaited.waiters -= 1;
            if awaited.waiters == 0 {
                self.awaited.remove(&open.place);
            }
        }
    }

    /// A call has ended unseen.
    pub(super) fn unseen(&mut self, open: &Open, is_asked: bool) {
        self.leave(open);
        self.unfinished += u64::from(is_asked && open.does == Does::Waits);
    }

    /// A call ends.
    pub(super) fn exit(
        &mut self,
        at: At,
        open: &Open,
        (tid, index): (Tid, Index),
        result: i64,
        scope: &Scope,
    ) {
        let waker = open.waker.or_else(|| self.awaited.get(&open.place)?.waker(open.since));
        self.leave(open);
        if !scope.has(at) {
            return;
        }
        match open.does {
            Does::Waits => {
                let time = scope.part(open.since, at.time);
                if let Some((told, sizes)) = self.waited(open, index) {
                    told.times.add_within(time, at.time, sizes);
                    told.end(time, at.time, FutexResult::of(result), waker);
                    let caller = Caller { process: open.place.process, stack: open.stack.user, index };
                    if let Some(times) = entry(&mut self.callers, caller, &mut self.left_out) {
                        times.add_within(time, at.time, &mut self.sizes);
                    }
                }
            }
            Does::Wakes => {
                let key = (open.place, index);
                let Some(told) = entry(&mut self.wakes, key, &mut self.left_out) else { return };
                told.tid = tid;
                told.calls += 1;
                told.woken = told.woken.saturating_add(u64::try_from(result).unwrap_or(0));
                told.is_shared |= open.is_shared;
            }
            Does::Other => {}
        }
    }

    /// What is told of a thread's waits for a futex, and room for times. `None` if there is no room for it.
    fn waited(&mut self, open: &Open, index: Index) -> Option<(&mut Waited, &mut Room)> {
        let told = entry(&mut self.waits, (open.place, index), &mut self.left_out)?;
        told.is_shared |= open.is_shared;
        Some((told, &mut self.sizes))
    }

    /// Counts a wait that goes on at the end.
    pub(super) fn close(&mut self, open: &Open, index: Index, losses: u64, scope: &Scope, end: u64) {
        if open.does != Does::Waits {
            return;
        }
        if open.losses != losses {
            self.unfinished += 1;
            return;
        }
        let time = scope.part(open.since, end);
        if let Some((told, _)) = self.waited(open, index) {
            told.open += 1;
            told.open_time = told.open_time.saturating_add(time);
        }
    }

    /// Forgets what was counted, and who called to wake: threads have other numbers from now on. If these
    /// are forgotten, so is who waits.
    pub(super) fn restart(&mut self, are_threads_forgotten: bool) {
        if are_threads_forgotten {
            self.awaited.clear();
        }
        self.waits.clear();
        self.sizes = Room::default();
        self.wakes.clear();
        self.callers.clear();
        (self.left_out, self.unmatched, self.unfinished) = (0, 0, 0);
        for awaited in self.awaited.values_mut() {
            (awaited.last, awaited.other) = (None, None);
        }
    }
}

/// The value of a key, which is new if there is room.
fn entry<'m, K: Ord, V: Default>(
    map: &'m mut BTreeMap<K, V>,
    key: K,
    left_out: &mut u64,
) -> Option<&'m mut V> {
    let is_full = map.len() >= MOST_KEYS;
    match map.entry(key) {
        Entry::Occupied(found) => Some(found.into_mut()),
        Entry::Vacant(_) if is_full => {
            *left_out += 1;
            None
        }
        Entry::Vacant(place) => Some(place.insert(V::default())),
    }
}

impl Awaited {
    fn wake(&mut self, who: Who, now: u64) {
        if let Some((last, at)) = self.last
            && last != who
        {
            self.other = Some(at);
        }
        self.last = Some((who, now));
    }

    /// Who ended a wait that began then, if only one thread has called to since.
    fn waker(&self, since: u64) -> Option<Who> {
        let (who, _) = self.last.filter(|(_, at)| *at >= since)?;
        self.other.is_none_or(|at| at < since).then_some(who)
    }
}

impl Waited {
    fn end(&mut self, time: u64, now: u64, result: FutexResult, waker: Option<Who>) {
        let place = FutexResult::ALL.iter().position(|of| *of == result);
        if let Some(count) = place.and_then(|place| self.results.get_mut(place)) {
            *count += 1;
        }
        if self.longest.is_none_or(|longest| time > longest.time) {
            let waker = waker.filter(|_| result == FutexResult::Woken);
            self.longest = Some(Longest { time, at: now, result, waker });
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        for (sum, count) in self.results.iter_mut().zip(other.results) {
            *sum += count;
        }
        self.open += other.open;
        self.open_time = self.open_time.saturating_add(other.open_time);
        self.is_shared |= other.is_shared;
    }
}
