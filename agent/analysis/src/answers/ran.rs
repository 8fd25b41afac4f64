//! Who ran on a CPU last.

use std::collections::VecDeque;

use super::Tid;

/// So many are remembered.
const MOST: usize = 32;

/// Bytes of a name, as the kernel's `TASK_COMM_LEN`.
const NAME: usize = 16;

/// The last threads that ran on a CPU, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran(VecDeque<Run>);

/// A thread had a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    tid: Tid,
    name: [u8; NAME],
    since: u64,
    until: u64,
}

/// Who ran instead of one that waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Instead {
    /// Who ran for the longest time; `None` if it is not known that anybody ran.
    pub(super) tid: Option<Tid>,
    pub(super) name: Vec<u8>,
    /// For how long, in nanoseconds.
    pub(super) ns: u64,
    /// How many others ran as well.
    pub(super) others: usize,
}

impl Run {
    /// A thread with this name had it.
    pub(super) fn new(tid: Tid, called: &[u8], since: u64, until: u64) -> Self {
        let mut name = [0; NAME];
        for (to, byte) in name.iter_mut().zip(called) {
            *to = *byte;
        }
        Self { tid, name, since, until }
    }

    fn name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Ran {
    pub(super) fn push(&mut self, run: Run) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(run);
    }

    /// Who ran most from a time on.
    pub(super) fn most_since(&self, from: u64) -> Instead {
        let mut sums: Vec<(&Run, u64)> = Vec::new();
        for run in self.0.iter().rev().take_while(|run| run.until > from) {
            let ns = run.until - run.since.clamp(from, run.until);
            match sums.iter_mut().find(|(of, _)| of.tid == run.tid) {
                Some((_, sum)) => *sum = sum.saturating_add(ns),
                None => sums.push((run, ns)),
            }
        }
        let Some((run, ns)) = sums.iter().max_by_key(|(_, ns)| *ns) else { return Instead::default() };
        Instead { tid: Some(run.tid), name: run.name().to_owned(), ns: *ns, others: sums.len() - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ran_most_since_a_time_is_told() {
        let mut ran = Ran::default();
        assert_eq!(ran.most_since(0), Instead::default());
        for number in 0..10 {
            ran.push(Run::new(7, &b"seven"[..], number * 10, number * 10 + 4));
            ran.push(Run::new(8, &b"a name of 20 letters"[..], number * 10 + 4, number * 10 + 9));
            ran.push(Run::new(9, &b"nine"[..], number * 10 + 9, number * 10 + 10));
        }
        let most = ran.most_since(0);
        assert_eq!(
            (most.tid, most.name.as_slice(), most.ns, most.others),
            (Some(8), &b"a name of 20 let"[..], 50, 2)
        );
        // From the middle of the last run but two.
        assert_eq!(
            ran.most_since(97),
            Instead { tid: Some(8), name: b"a name of 20 let".to_vec(), ns: 2, others: 1 }
        );
        for number in 10..60 {
            ran.push(Run::new(5, &b"five"[..], number * 10, number * 10 + 1));
        }
        assert_eq!(ran.most_since(0), Instead { tid: Some(5), name: b"five".to_vec(), ns: 32, others: 0 });
    }
}
