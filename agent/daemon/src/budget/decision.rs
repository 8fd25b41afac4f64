//! When the next step is taken, and when one is taken back: from plain numbers.

use std::{cmp::Ordering, time::Duration};

/// More than this many times the budget, and all steps up to recording parts of seconds are taken at once.
pub(super) const FAR_OVER: f64 = 4.0;
/// Less than this part of the budget is calm.
const CALM: f64 = 0.6;
/// How long it is calm before a step is taken back, at first.
const HOLD: Duration = Duration::from_secs(10);
/// The same at most: it doubles each time when a step that was taken back has to be taken again.
const HOLD_MAX: Duration = Duration::from_mins(5);
/// A step is taken again if it is within so many times that.
const SOON: u32 = 3;
/// Of a second at the most that is recorded of each: over it, all of them were recorded.
const PERIOD: f64 = 1.0;
/// A shorter time is not worth what it takes to attach and detach.
const SHORTEST: f64 = 0.01;
/// For how many seconds more than the budget may be taken while no second is recorded.
const STILL_OVER: f64 = 5.0;
/// What was taken too much is made up for, up to the budget of so many seconds.
const DEBT_MAX: f64 = 60.0;
/// How much a new measure counts in the mean.
const NEWEST: f64 = 0.5;

/// Which step is reached.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    /// How many steps are taken.
    pub(super) level: usize,
    /// For how long it has been over the budget, and calm.
    over: f64,
    calm: f64,
    hold: f64,
    /// Since a step was taken back.
    since_back: f64,
}

impl Default for Decision {
    fn default() -> Self {
        Self { level: 0, over: 0.0, calm: 0.0, hold: HOLD.as_secs_f64(), since_back: f64::INFINITY }
    }
}

/// What is decided from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// Seconds since the last decision.
    pub(super) seconds: f64,
    /// What was taken in them, to the budget.
    pub(super) ratio: f64,
    /// The level from which on parts of seconds are recorded; that after it is the last one.
    pub(super) parts_from: usize,
    /// What was recorded of the last second, if parts are.
    pub(super) recorded: f64,
}

impl Decision {
    /// Decides; whether the level has changed.
    pub(super) fn decide(&mut self, seen: Seen) -> bool {
        let Seen { seconds, ratio, parts_from, recorded } = seen;
        let before = self.level;
        self.since_back += seconds;
        match self.level.cmp(&parts_from) {
            // It is stopped: whether more could be recorded is only seen by trying.
            Ordering::Greater => {
                self.calm += seconds;
                if self.calm >= self.hold {
                    self.go_back();
                }
            }
            Ordering::Equal => {
                // Of a second that was not recorded as a whole nobody knows what it would have taken.
                self.calm = if recorded >= PERIOD { self.calm + seconds } else { 0.0 };
                // What is attached still takes too much, or what the daemon does beside.
                self.over = if recorded == 0.0 && ratio > 1.0 { self.over + seconds } else { 0.0 };
                if self.over > STILL_OVER {
                    self.go_on(parts_from + 1);
                } else if self.calm >= self.hold {
                    self.go_back();
                }
            }
            Ordering::Less => {
                self.over = if ratio > 1.0 { self.over + seconds } else { 0.0 };
                self.calm = if ratio < CALM && self.level > 0 { self.calm + seconds } else { 0.0 };
                if ratio > FAR_OVER {
                    self.go_on(parts_from);
                } else if self.over > 1.5 * PERIOD {
                    self.go_on(self.level + 1);
                } else if self.calm >= self.hold {
                    self.go_back();
                }
            }
        }
        if self.level == 0 && self.since_back > f64::from(SOON) * self.hold {
            self.hold = HOLD.as_secs_f64();
        }
        before != self.level
    }

    fn go_on(&mut self, level: usize) {
        if self.since_back < f64::from(SOON) * self.hold {
            self.hold = (2.0 * self.hold).min(HOLD_MAX.as_secs_f64());
        }
        self.since_back = f64::INFINITY;
        (self.level, self.over, self.calm) = (level, 0.0, 0.0);
    }

    fn go_back(&mut self) {
        (self.level, self.over, self.calm, self.since_back) = (self.level - 1, 0.0, 0.0, 0.0);
    }
}

/// What may be taken, and how long can be recorded for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Account {
    /// CPU seconds; less than 0 when more was taken than was allowed.
    left: f64,
    /// CPU seconds that a second of recording takes.
    cost: Option<f64>,
}

impl Account {
    /// Notes what was taken in a time of a budget.
    pub(super) fn settle(&mut self, (seconds, taken): (f64, f64), budget: f64) {
        // What was left over a second ago is over.
        let left = self.left + budget * seconds - taken;
        self.left = left.clamp(-DEBT_MAX * budget, PERIOD * budget);
    }

    /// Notes what a time of recording took.
    pub(super) fn learn(&mut self, (seconds, taken): (f64, f64)) {
        if seconds < SHORTEST / 2.0 {
            return;
        }
        let cost = taken / seconds;
        self.cost = Some(self.cost.map_or(cost, |before| before + NEWEST * (cost - before)));
    }

    /// CPU seconds that a second of recording takes, as far as is known.
    pub(super) fn cost(&self) -> f64 {
        self.cost.unwrap_or_default()
    }

    /// For how much of the next second can be recorded.
    pub(super) fn allows(&self, budget: f64) -> f64 {
        let cost = self.cost.unwrap_or(1.0).max(budget / 4.0);
        // In the rest of it something is taken, too: so is a bit more allowed than is left.
        let part = self.left / cost;
        if part < SHORTEST { 0.0 } else { part.min(PERIOD) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ratio: f64) -> Seen {
        Seen { seconds: 1.0, ratio, parts_from: 4, recorded: 0.5 }
    }

    #[test]
    fn steps_are_taken_one_after_the_other_and_back_slowly() {
        let mut decision = Decision::default();
        let mut levels = |ratios: &[f64]| {
            ratios
                .iter()
                .map(|ratio| {
                    decision.decide(seen(*ratio));
                    decision.level
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(&[0.5, 1.1, 0.9, 1.2, 1.2]), [0, 0, 0, 0, 1], "one second is not enough");
        assert_eq!(levels(&[1.2, 1.2, 0.8]), [1, 2, 2]);
        assert_eq!(levels(&[0.5; 10]), [2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
        // It was too early: now it takes twice as long.
        assert_eq!(levels(&[1.5, 1.5]), [1, 2]);
        assert_eq!(levels(&[0.5; 20]).last(), Some(&1));
        assert_eq!(levels(&[0.5; 20]).last(), Some(&0));
    }

    #[test]
    fn far_over_the_budget_all_steps_are_taken_at_once() {
        let mut decision = Decision::default();
        assert!(decision.decide(seen(9.0)));
        assert_eq!(decision.level, 4);
        // It takes what it may now, and records a part for that.
        for _ in 0..100 {
            assert!(!decision.decide(seen(1.0)));
        }
        let whole = Seen { recorded: 1.0, ..seen(0.9) };
        let back = (0..10).filter(|_| decision.decide(whole)).count();
        assert_eq!((back, decision.level), (1, 3));
        let mut decision = Decision { level: 4, ..Decision::default() };
        let stopped = (0..6).filter(|_| decision.decide(Seen { recorded: 0.0, ..seen(1.2) })).count();
        assert_eq!((stopped, decision.level), (1, 5), "what is left takes too much, too");
        let back = (0..20).filter(|_| decision.decide(Seen { recorded: 1.0, ..seen(0.1) })).count();
        assert_eq!((back, decision.level), (2, 3));
    }

    #[test]
    fn over_a_minute_no_more_is_taken_than_is_allowed() {
        const BUDGET: f64 = 0.02;
        // What it takes to record a second, and not to, as it is measured with noise.
        let (on, off) = (0.25, 0.004);
        let mut account = Account::default();
        let mut all = 0.0;
        // A second until it was seen.
        account.settle((1.0, on), BUDGET);
        all += on;
        for second in 0..59 {
            let recorded = account.allows(BUDGET);
            let noise = 1.0 + 0.3 * f64::from(second % 3 - 1);
            let (of_recording, of_rest) = (recorded * on * noise, (1.0 - recorded) * off);
            account.learn((recorded, of_recording));
            account.settle((1.0, of_recording + of_rest), BUDGET);
            all += of_recording + of_rest;
        }
        let ratio = all / 60.0 / BUDGET;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }
}
