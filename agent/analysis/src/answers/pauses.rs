//! The pauses of a recording, as its records are looked at in the order of time.

use tracedat::ledger::Pause;

/// Pauses, by the times of the records.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    spans: Vec<Pause>,
    /// How many of their beginnings and ends are behind.
    passed: usize,
}

impl Pauses {
    /// What is known of them by now: those from before, and perhaps more. What goes back in time is not
    /// believed, nor what follows it. A pause whose end could not be noted is taken to
    /// last until the next one.
    pub(super) fn know(&mut self, spans: impl Iterator<Item = Pause>) {
        self.spans.clear();
        let mut reached = 0;
        for span in spans {
            if span.from_ns < reached || span.to_ns.is_some_and(|to_ns| to_ns < span.from_ns) {
                break;
            }
            if let Some(open) = self.spans.last_mut() {
                open.to_ns.get_or_insert(span.from_ns);
            }
            reached = span.to_ns.unwrap_or(span.from_ns);
            self.spans.push(span);
        }
    }

    /// The next time at which one begins or ends, if that is not after `until`; it is behind then.
    #[inline]
    pub(super) fn pass(&mut self, until: u64) -> Option<u64> {
        let span = self.spans.get(self.passed / 2)?;
        let next = if self.passed.is_multiple_of(2) { Some(span.from_ns) } else { span.to_ns };
        let next = next.filter(|next| *next <= until)?;
        self.passed += 1;
        Some(next)
    }

    /// How many there are in a time, and how much of it they are.
    pub(super) fn within(&self, from: u64, to: u64) -> (u64, u64) {
        let part = |span: &Pause| {
            let (begins, ends) = (span.from_ns.max(from), span.to_ns.unwrap_or(u64::MAX).min(to));
            ends.checked_sub(begins).filter(|part| *part != 0)
        };
        let parts = self.spans.iter().filter_map(part);
        parts.fold((0, 0), |(count, sum), part| (count + 1, sum + part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(from_ns: u64, to_ns: Option<u64>) -> Pause {
        Pause { from_ns, to_ns }
    }

    #[test]
    fn beginnings_and_ends_are_passed_once() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.pass(u64::MAX), None);
        pauses.know([pause(10, Some(20)), pause(30, None)].into_iter());
        let mut passed = |until| std::iter::from_fn(|| pauses.pass(until)).collect::<Vec<_>>();
        assert_eq!([passed(9), passed(10), passed(19), passed(30)], [vec![], vec![10], vec![], vec![20, 30]]);
        assert_eq!(pauses.pass(u64::MAX), None, "it goes on");
        pauses.know([pause(10, Some(20)), pause(30, Some(40))].into_iter());
        assert_eq!((pauses.pass(u64::MAX), pauses.pass(u64::MAX)), (Some(40), None));
    }

    #[test]
    fn a_part_of_a_recording_has_parts_of_pauses() {
        let mut pauses = Pauses::default();
        pauses.know([pause(10, Some(20)), pause(30, None)].into_iter());
        assert_eq!(pauses.within(0, 100), (2, 80));
        assert_eq!(pauses.within(15, 30), (1, 5));
        assert_eq!(pauses.within(20, 30), (0, 0));
        pauses.know([pause(10, Some(20)), pause(15, Some(30)), pause(40, Some(50))].into_iter());
        assert_eq!(pauses.within(0, 100), (1, 10), "what overlaps is not believed");
        pauses.know([pause(10, None), pause(30, Some(40)), pause(50, None)].into_iter());
        assert_eq!(pauses.within(0, 100), (3, 80), "one has no end, and others come after it");
    }
}
