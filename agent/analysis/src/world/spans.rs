//! What the machine did that has a begin and an end, told by its records of both.

use std::collections::BTreeMap;

use super::{BEGIN, Says, World, X};
use crate::answers::Tid;

/// What has a begin and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A system call of a thread, by its number.
    Call(i64),
    /// A hardware interrupt of a CPU, by its number.
    Irq(i64),
    /// A soft interrupt of a CPU, by its number.
    Softirq(u64),
    /// A request to the disk, by the kernel's letters for what it does.
    Request(&'static str),
}

/// Something with a begin and an end, by the clock of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub what: What,
    /// The thread or the CPU that it begins on; of a request 0.
    pub of: u64,
    /// The same where it ends: a thread can get another number.
    pub ends_on: u64,
    /// When it begins.
    pub begin: u64,
    /// When it ends; where no record says so, when its thread is gone, or nothing more happens.
    pub end: u64,
    /// What a call returns, or how many bytes a request has. `None` if no record says that it ends.
    pub result: Option<i64>,
}

/// A thread got another number: that of the first one of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    /// When it had it, and when a record said that it was the same thread.
    pub when: (u64, u64),
    /// The number that it had.
    pub from: Tid,
    /// The number that it has.
    pub to: Tid,
}

/// What goes on.
#[derive(Default)]
struct Open {
    spans: BTreeMap<(What, u64), Span>,
    done: Vec<Span>,
}

impl Open {
    fn begin(&mut self, (what, of): (What, u64), at: u64, result: Option<i64>) {
        self.spans.insert((what, of), Span { what, of, ends_on: of, begin: at, end: at, result });
    }

    fn end(&mut self, key: (What, u64), at: u64, result: Option<i64>) {
        if let Some(span) = self.spans.remove(&key) {
            self.done.push(Span { end: at, result, ..span });
        }
    }

    /// The system call that a thread is in.
    fn call(&self, of: u64) -> Option<(What, u64)> {
        self.spans.keys().find(|(what, thread)| matches!(what, What::Call(_)) && *thread == of).copied()
    }
}

impl World {
    /// When it made its last record, by the clock of recordings.
    pub fn last(&self) -> u64 {
        BEGIN + self.made.last().map_or(0, |made| made.time)
    }

    /// What it did that has a begin and an end.
    pub fn spans(&self) -> Vec<Span> {
        let mut open = Open::default();
        // Requests by their first sector and what they do: no two are at one place.
        let mut requests = BTreeMap::new();
        for made in &self.made {
            let (at, of, cpu) = (BEGIN + made.time, u64::from(made.tid), u64::from(made.cpu));
            match &made.says {
                Says::CallEnter { number, .. } => open.begin((What::Call(*number), of), at, None),
                Says::CallExit { number, result } => {
                    open.end((What::Call(*number), of), at, Some(*result));
                }
                Says::Exec { tid, from } if tid != from => {
                    let to = u64::from(*tid);
                    if let Some((what, from)) = open.call((*from).into())
                        && let Some(span) = open.spans.remove(&(what, from))
                    {
                        open.spans.insert((what, to), Span { ends_on: to, ..span });
                    }
                }
                Says::Switch { prev, prev_state: X, .. } => {
                    if let Some(key) = open.call((*prev).into()) {
                        open.end(key, at, None);
                    }
                }
                Says::IrqEntry { irq } => open.begin((What::Irq(*irq), cpu), at, None),
                Says::IrqExit { irq } => open.end((What::Irq(*irq), cpu), at, Some(0)),
                Says::SoftirqEntry { vector } => open.begin((What::Softirq(*vector), cpu), at, None),
                Says::SoftirqExit { vector } => open.end((What::Softirq(*vector), cpu), at, Some(0)),
                Says::Issue { sector, bytes, rwbs } => {
                    requests.insert((*sector, *rwbs), (at, *bytes));
                }
                Says::Complete { sector, rwbs, .. } => {
                    let sector = if *sector == u64::MAX { 0 } else { *sector };
                    if let Some((begin, bytes)) = requests.remove(&(sector, *rwbs)) {
                        let (what, result) = (What::Request(rwbs), Some(bytes as i64));
                        open.done.push(Span { what, of: 0, ends_on: 0, begin, end: at, result });
                    }
                }
                _ => {}
            }
        }
        let (last, mut spans) = (self.last(), open.done);
        spans.extend(open.spans.into_values().map(|span| Span { end: last, result: None, ..span }));
        spans.extend(requests.into_iter().map(|((_, rwbs), (begin, _))| Span {
            what: What::Request(rwbs),
            of: 0,
            ends_on: 0,
            begin,
            end: last,
            result: None,
        }));
        spans
    }

    /// When threads reclaimed memory: a thread, a begin and an end, by the clock of recordings.
    pub fn reclaims(&self) -> Vec<(u64, u64, u64)> {
        let mut begins = BTreeMap::new();
        let mut reclaims = Vec::new();
        for made in &self.made {
            let (at, of) = (BEGIN + made.time, u64::from(made.tid));
            match &made.says {
                Says::ReclaimBegin => {
                    begins.insert(of, at);
                }
                Says::ReclaimEnd { .. } => {
                    reclaims.extend(begins.remove(&of).map(|begin| (of, begin, at)));
                }
                _ => {}
            }
        }
        reclaims
    }

    /// Which threads got the number of another one.
    pub fn takes(&self) -> Vec<Takes> {
        let mut renamed = BTreeMap::new();
        let mut takes = Vec::new();
        for made in &self.made {
            match &made.says {
                Says::Renamed { tid, .. } => {
                    renamed.insert(*tid, BEGIN + made.time);
                }
                Says::Exec { tid, from } if tid != from => {
                    let when = (renamed[tid], BEGIN + made.time);
                    takes.push(Takes { when, from: *from, to: *tid });
                }
                _ => {}
            }
        }
        takes
    }
}
