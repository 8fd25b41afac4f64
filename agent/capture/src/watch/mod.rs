//! Watching: being told of matching events as they fire, without a file.
//!
//! A [`Watch`] has rings of its own and programs that fill them, which are those of a recording. The first
//! record after a look wakes whoever waits; a [look](Watch::take) has the open pages closed, decodes what the
//! rings hold and gives their memory back. One look is taken in a [millisecond](LOOK_INTERVAL) at most,
//! however often events fire: so also events that the reader itself causes come back to it no more often.
//! What fits neither the rings nor the reader's share of time is counted for each rule. A rule that matches
//! all the time leaves [places](agent_ebpf::places) for others, whose matches are told first.
//!
//! Rules come and go while it runs. Each record carries a number of its rule and event in the place of the
//! event's id, so that several rules can watch one event, each with its own filter.
//!
//! | file | subject |
//! |---|---|
//! | `options` | what is watched, planned |
//! | `value` | captured values |
//! | `decode` | records as matches |
//! | `rules` | the programs of rules, and their slots |
//! | `look` | what one look at the rings does |

mod decode;
mod look;
mod options;
mod rules;
mod value;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

pub use decode::{Decoder, Lacking};
pub use options::Threads;
pub use options::{WatchOptions, WatchRule};
pub use value::Captured;

use super::{CaptureError, LeftOut, session::wait_for_programs};
use bpf::LoadError;

/// The least time between two looks at the rings.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// How long the last records of a rule that is removed are waited for: programs take microseconds.
const LAST_TIMEOUT: Duration = Duration::from_millis(500);

/// A rule of a watch, by the number that its owner has given it.
pub type RuleId = u64;

/// An event that matches a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Which rule.
    pub rule: RuleId,
    /// `system:name`.
    pub event: Arc<str>,
    /// When it fired, by the clock of the watch, in nanoseconds.
    pub time: u64,
    /// Where.
    pub cpu: u32,
    /// The process of the thread that ran there, as the kernel numbers it.
    pub pid: u32,
    /// The thread; 0 for the idle one.
    pub tid: u32,
    /// The name of the thread at that moment.
    pub comm: Vec<u8>,
    /// What its rule captures, in the rule's order, each with the text that asks for it.
    pub captured: Vec<(Arc<str>, Captured)>,
}

/// What is known of the events of a rule that fired since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Matches that were told.
    pub told: u64,
    /// Matches that were not: there was no room for them, or the kernel refused to copy them.
    pub untold: u64,
    /// Matches in the rings, for the next look.
    pub waiting: u64,
    /// Firings that the rule's filter has left out.
    pub filtered: u64,
    /// Firings in this process's own threads, which are left out.
    pub own_threads: u64,
    /// Firings that the kernel kept from the rule's programs, because another one was running on the CPU:
    /// nobody knows whether they match. `None` where the kernel does not count them.
    pub skipped: Option<u64>,
}

/// Why a rule is not watched, or a watch does not go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The programs.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// There is a rule with this number.
    #[error("there is a rule {0} already")]
    Taken(RuleId),
    /// There is no rule with this number.
    #[error("there is no rule {0}")]
    NoRule(RuleId),
    /// All slots are taken.
    #[error("there is room for {capacity} events, and there are not {wanted} free places in a row")]
    NoRoom {
        /// How many events there can be.
        capacity: usize,
        /// How many the rule has.
        wanted: usize,
    },
    /// Closing pages, or waiting.
    #[error("cannot read what is watched: {0}")]
    Read(#[source] io::Error),
}

impl From<LoadError> for WatchError {
    fn from(error: LoadError) -> Self {
        Self::Capture(error.into())
    }
}

/// A watch while it runs. Dropping it ends it; detaching continues in the background.
#[derive(Debug)]
pub struct Watch {
    rules: rules::Rules,
    looks: look::Looks,
}

impl Watch {
    /// Makes the rings; nothing is watched before rules are [added](Watch::add).
    ///
    /// # Errors
    /// The kernel refuses a program, or there is no memory for the rings.
    pub fn start(options: WatchOptions) -> Result<Self, WatchError> {
        let mut rules = rules::Rules::start(options)?;
        let looks = look::Looks::start(&mut rules)?;
        rules.set_gates(true);
        Ok(Self { rules, looks })
    }

    /// How it watches.
    pub fn options(&self) -> &WatchOptions {
        &self.rules.options
    }

    /// Watches a rule more. From when this returns on, each match is told or counted. Rules that are watched
    /// are not disturbed, but for a few microseconds on the CPU that this runs on, in which the kernel runs
    /// no program of the generic lane.
    ///
    /// Gives what the kernel refused of those events that were asked for by a pattern.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses an event that is required; then nothing is left of the rule.
    pub fn add(&mut self, id: RuleId, rule: WatchRule) -> Result<Vec<LeftOut>, WatchError> {
        self.rules.add(id, rule)
    }

    /// Watches a rule no longer, and gives its last counts. Matches that have come by now are told by the
    /// next [`Watch::take`], and counted as told; of a storm, what one look does not find is counted as
    /// untold.
    ///
    /// # Errors
    /// There is no such rule, or the rings cannot be read.
    pub fn remove(&mut self, id: RuleId) -> Result<WatchCounts, WatchError> {
        if !self.rules.silence(id) {
            return Err(WatchError::NoRule(id));
        }
        wait_for_programs();
        let deadline = Instant::now() + LAST_TIMEOUT;
        let counts = loop {
            self.looks.look(&mut self.rules)?;
            let mut counts = self.rules.counts(id).unwrap_or_default();
            if counts.waiting == 0 || self.looks.is_full(&self.rules) || Instant::now() >= deadline {
                counts.untold += std::mem::take(&mut counts.waiting);
                break counts;
            }
            std::thread::sleep(LOOK_INTERVAL);
        };
        self.rules.forget(id);
        self.looks.tell()?;
        Ok(counts)
    }

    /// Watches nothing any more. Matches that have come by now are told by the next calls of [`Watch::take`].
    pub fn silence(&mut self) {
        self.rules.set_gates(false);
        wait_for_programs();
    }

    /// Tells the matches that have come: those of rules with few of them first, in the order of their times,
    /// then the others. Of different CPUs, a match may be told after a later one of the rule that was told by
    /// the call before: one that was being written then.
    ///
    /// Never waits. Called more often than once in [`LOOK_INTERVAL`] it does nothing, and the descriptor
    /// becomes readable when it is worth another call. A call tells as many matches as there are
    /// [places](agent_ebpf::places), or hardly more.
    ///
    /// # Errors
    /// The rings cannot be read.
    pub fn take(&mut self, each: &mut dyn FnMut(Match)) -> Result<(), WatchError> {
        self.looks.take(&mut self.rules, each)
    }

    /// What is known of the events of a rule since it was added. While events fire, the numbers are each of
    /// another moment of this call.
    pub fn counts(&self, id: RuleId) -> Option<WatchCounts> {
        self.rules.counts(id)
    }

    /// The same without [`WatchCounts::skipped`], for which the kernel is asked about each program of the
    /// rule.
    pub fn counts_without_skips(&self, id: RuleId) -> Option<WatchCounts> {
        self.rules.counts_without_skips(id)
    }
}

impl AsFd for Watch {
    /// Readable when [`Watch::take`] may have something to tell: it is to be called then.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.looks.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.rules.set_gates(false);
    }
}
