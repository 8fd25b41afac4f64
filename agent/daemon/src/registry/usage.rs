//! How full the rings of sessions are, and what they have counted.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Answer, Entry, Registry, lock};
use crate::sessions::{Moment, spec};
use crate::side_by_side::lock_until;
use ::spec::TraceClock;
use api::usage::{ChannelUsage, CpuUsage};
use api::{Channel, ControlError, Domain, EventLoss, Usage};
use kernel::clock::ReadClock as _;

/// Whether events are told one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Only sums over them.
    Sums,
    /// Each of them.
    Events,
}

/// What was known at a time, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Known {
    time_ns: u64,
    moment: Moment,
}

/// A question for a session's thread that was not answered yet.
#[derive(Debug)]
pub(super) struct Asked {
    since: Instant,
    answer: Receiver<Result<Moment, ControlError>>,
}

/// How long the threads of all sessions together have to answer. For a thread that does not, earlier numbers
/// count.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// When a thread has not answered for so long, nobody waits for more of it.
const SILENCE: Duration = Duration::from_secs(10);

impl Registry {
    /// What a session has counted, and how full its rings are.
    pub(crate) fn usage(&self, uid: u32, name: &str) -> Answer<Usage> {
        let entry = self.find(uid, name)?;
        let known = entry.usage_by(Instant::now() + ANSWERS_MAX);
        Ok(entry.told(known, Detail::Events))
    }

    /// The same of all sessions of a user; of all users where none is named.
    pub(crate) fn usages(&self, of: Option<u32>, detail: Detail) -> Vec<Usage> {
        let deadline = Instant::now() + ANSWERS_MAX;
        let entries = self.entries(of);
        // All of them are asked before one is waited for.
        for entry in &entries {
            entry.ask_usage();
        }
        entries.iter().map(|entry| entry.told(entry.usage_by(deadline), detail)).collect()
    }

    /// The longest time for which the thread of one of root's sessions has not answered, and the session's
    /// name. Sessions of others do not count: their files may be anywhere.
    pub(crate) fn silence(&self) -> Option<(Duration, String)> {
        let of = |entry: &Arc<Entry>| {
            // Whoever has it waits for an answer, for a second at most.
            let since = lock_until(&entry.asked, Instant::now())?.as_ref()?.since;
            Some((since.elapsed(), lock(&entry.model).name().to_owned()))
        };
        self.entries(Some(0)).iter().filter_map(of).max()
    }
}

impl Entry {
    fn told(&self, Known { time_ns, moment }: Known, detail: Detail) -> Usage {
        let model = lock(&self.model);
        let channel = |(domain, channel): (Domain, &Channel)| of_channel(&moment, (domain, channel), detail);
        Usage {
            session: model.name().to_owned(),
            uid: self.owner.uid,
            active: model.is_active(),
            time_ns,
            stored_bytes: moment.stored,
            channels: model.channels().map(channel).collect(),
        }
    }

    /// Asks its thread what is known now. If something is done with it, or an earlier question is not
    /// answered yet, it is not asked.
    fn ask_usage(&self) {
        // Who waits for the answer has it locked.
        let Some(mut asked) = lock_until(&self.asked, Instant::now()) else { return };
        self.hear(&mut asked, Instant::now());
        if asked.is_some() {
            return;
        }
        if let Ok(recording) = self.recording.try_lock() {
            match recording.as_ref().map(|recording| recording.recorder.moment()) {
                Some(Ok(answer)) => *asked = Some(Asked { since: Instant::now(), answer }),
                // There is nothing that counts on.
                _ => lock(&self.usage).time_ns = TraceClock::Mono.now_ns(),
            }
        }
    }

    /// Takes the answer that comes before `deadline`. A thread that has not answered before is not waited for
    /// again.
    fn hear(&self, asked: &mut Option<Asked>, deadline: Instant) {
        let Some(Asked { since, answer }) = asked else { return };
        let deadline = deadline.min(*since + ANSWERS_MAX);
        let answer = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        if matches!(answer, Err(RecvTimeoutError::Timeout)) {
            return;
        }
        *asked = None;
        let mut known = lock(&self.usage);
        known.time_ns = TraceClock::Mono.now_ns();
        if let Ok(Ok(moment)) = answer {
            known.moment = moment;
        }
    }

    /// Whether its thread has not answered an earlier question.
    pub(super) fn is_silent(&self) -> bool {
        lock(&self.asked).as_ref().is_some_and(|asked| asked.since.elapsed() >= SILENCE)
    }

    /// What is known now. If something is done with it, or its thread does not answer before `deadline`, that
    /// is what was known before.
    pub(super) fn usage_by(&self, deadline: Instant) -> Known {
        self.ask_usage();
        if let Some(mut asked) = lock_until(&self.asked, deadline) {
            self.hear(&mut asked, deadline);
        }
        lock(&self.usage).clone()
    }
}

fn of_channel(moment: &Moment, (domain, channel): (Domain, &Channel), detail: Detail) -> ChannelUsage {
    let buffer = spec::buffer_name(domain, &channel.name);
    let (tally, rings) = (moment.tallies.get(&buffer), moment.rings.get(&buffer));
    let cpus = tally.into_iter().flat_map(|tally| &tally.cpus).map(|(cpu, counts)| CpuUsage {
        cpu: *cpu,
        rings: rings.and_then(|rings| rings.get(cpu)).copied(),
        counts: *counts,
    });
    ChannelUsage {
        domain,
        channel: channel.name.clone(),
        overwrites: channel.attributes.event_loss == Some(EventLoss::Overwrite),
        cpus: cpus.collect(),
        events: (detail == Detail::Events)
            .then(|| tally.map(crate::sessions::Tally::events).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Sender};

    use super::*;
    use crate::sessions::Model;
    use crate::user::Owner;
    use api::{Format, NewSession, SessionMode};

    /// A session whose thread was asked, and who answers for it.
    fn asked(since: Instant) -> (Entry, Sender<Result<Moment, ControlError>>) {
        let new = NewSession {
            name: Some("one".into()),
            mode: SessionMode::Snapshot,
            snapshot_output: None,
            format: Format::TraceDat,
            state_by_rule: false,
        };
        let entry = Entry::new(Owner::new(0, 0), Model::create(new, 0, 0).unwrap(), None);
        let (answers, answer) = mpsc::channel();
        *lock(&entry.asked) = Some(Asked { since, answer });
        (entry, answers)
    }

    /// Longer than a test may take.
    const LONG: Duration = Duration::from_secs(1 << 20);

    #[test]
    fn a_silent_thread_is_waited_for_once_and_counts_as_before() {
        let (entry, answers) = asked(Instant::now().checked_sub(ANSWERS_MAX).unwrap());
        lock(&entry.usage).moment.stored = Some(7);
        let stored = || entry.usage_by(Instant::now() + LONG).moment.stored;
        assert_eq!([stored(), stored()], [Some(7); 2]);
        assert!(lock(&entry.asked).is_some(), "it is not asked a second time");
        assert!(!entry.is_silent());
        lock(&entry.asked).as_mut().unwrap().since = Instant::now().checked_sub(SILENCE).unwrap();
        assert!(entry.is_silent());
        answers.send(Ok(Moment { stored: Some(8), ..Moment::default() })).unwrap();
        assert_eq!((stored(), entry.is_silent()), (Some(8), false), "a late answer counts");
        assert!(lock(&entry.asked).is_none());
        let (entry, answers) = asked(Instant::now());
        lock(&entry.usage).moment.stored = Some(9);
        drop(answers);
        assert_eq!(entry.usage_by(Instant::now()).moment.stored, Some(9), "its thread has ended");
        assert!(lock(&entry.asked).is_none());
    }

    #[test]
    fn a_question_that_waits_holds_up_no_other() {
        let (entry, _answers) = asked(Instant::now());
        let _waits = lock(&entry.asked);
        entry.ask_usage();
        assert_eq!(entry.usage_by(Instant::now()).time_ns, 0);
    }
}
