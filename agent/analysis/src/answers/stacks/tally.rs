//! Events with stacks, counted by thread and stack.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::functions::Functions;
use super::{FunctionWeight, StackWeight, ThreadWeight};
use crate::answers::parts::{Part, Parts, StackParts};
use crate::answers::threads::{Thread, Threads};
use crate::answers::{At, Event, Frames, Known, Names, Scope, Tid};
use ftrace_event::stacks::is_tracing;

/// Most combinations of a thread and a stack.
const MOST_KEYS: usize = 1 << 17;

/// Most frames of a part of a stack that are kept while it comes.
const MOST_FRAMES: usize = 2048;

/// What the idle threads are called, as in reports.
const IDLE: &[u8] = b"<idle>";

/// How often, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// How many events.
    pub count: u64,
    /// What they weigh.
    pub weight: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.weight = self.weight.saturating_add(other.weight);
    }
}

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    thread: usize,
    /// `None` if the event had none.
    stack: Option<StackParts>,
}

/// The stack of an event.
#[derive(Clone, Debug)]
enum Stack {
    /// It may still come: what has come of the kernel's and of the process's.
    Comes { kernel: Vec<u64>, user: Vec<u64> },
    /// It is there, or there is none.
    Whole(Option<StackParts>),
    /// It is there, but found no room.
    NoRoom,
}

/// An event whose stack or weight is not known yet.
#[derive(Clone, Debug)]
struct Waiting {
    thread: usize,
    stack: Stack,
    weight: Option<u64>,
}

/// The last event of a thread whose weight is the time until the next one.
#[derive(Clone, Copy, Debug)]
struct Last {
    of: u64,
    since: u64,
    losses: u64,
}

/// Counts events by thread and stack.
#[derive(Clone, Debug)]
pub(in crate::answers) struct Tally {
    pub(in crate::answers) scope: Scope,
    /// Whether a function is where an interrupt begins: what it calls is not part of what was interrupted.
    is_entry: Option<fn(&str) -> bool>,
    threads: Threads<Option<Last>>,
    /// The same of the idle threads: each CPU has one, and all have the id 0.
    idle: HashMap<u32, Last>,
    functions: Functions,
    parts: Parts,
    sums: HashMap<Key, Sum>,
    waiting: HashMap<u64, Waiting>,
    next: u64,
    losses: u64,
    others: Sum,
    without_weight: u64,
    without_entry: u64,
    /// What is asked about begins here; what is counted may begin later.
    asked_from: u64,
}

/// The name of a thread. The idle ones have none of their own.
fn name_of<'n>(thread: &'n Thread<Option<Last>>, names: &'n Names<'_>) -> &'n [u8] {
    match (thread.tid, names.of_thread(thread.tid, &thread.name)) {
        (0, []) => IDLE,
        (_, name) => name,
    }
}

/// What is told at the end.
#[derive(Clone, Debug, Default)]
pub(in crate::answers) struct Told {
    pub(in crate::answers) threads: Vec<ThreadWeight>,
    pub(in crate::answers) functions: Vec<FunctionWeight>,
    pub(in crate::answers) stacks: Vec<StackWeight>,
    pub(in crate::answers) all: Sum,
    pub(in crate::answers) without_stack: Sum,
    pub(in crate::answers) others: Sum,
    pub(in crate::answers) without_weight: u64,
    pub(in crate::answers) without_entry: u64,
}

impl Tally {
    pub(in crate::answers) fn new(scope: Scope, is_entry: Option<fn(&str) -> bool>) -> Self {
        Self {
            asked_from: scope.from.unwrap_or(0),
            scope,
            is_entry,
            threads: Threads::default(),
            idle: HashMap::new(),
            functions: Functions::default(),
            parts: Parts::default(),
            sums: HashMap::new(),
            waiting: HashMap::new(),
            next: 0,
            losses: 0,
            others: Sum::default(),
            without_weight: 0,
            without_entry: 0,
        }
    }

    /// Learns the names of threads, and which of them are new.
    pub(in crate::answers) fn look(&mut self, event: &Event<'_>) {
        match &event.known {
            Known::Switch(switch) => {
                self.is_called(switch.prev, switch.prev_comm);
                self.is_called(switch.next, switch.next_comm);
            }
            Known::Wakeup(wakeup) => self.is_called(wakeup.tid, wakeup.comm),
            Known::Begins { child, comm, is_seen: true, .. } => {
                self.end(*child);
                if let Some(thread) = self.threads.begin(*child, None) {
                    thread.is_called(comm);
                }
            }
            Known::Renamed { tid, comm: Some(comm), .. } => self.is_called(*tid, comm),
            Known::Ends { tid } => self.end(*tid),
            Known::Takes { from, to } => {
                if let Some((was, is)) = self.threads.take(*from, *to, || None)
                    && let Some((was, is)) = self.threads.two(was, is)
                {
                    is.of = was.of.take();
                }
            }
            _ => {}
        }
    }

    fn is_called(&mut self, tid: Tid, comm: &[u8]) {
        if tid != 0
            && let Some((_, thread)) = self.threads.find(tid, || None)
        {
            thread.is_called(comm);
        }
    }

    /// A thread is no more. Its last event has no next one.
    fn end(&mut self, tid: Tid) {
        if let Some((_, thread)) = self.threads.find(tid, || None)
            && let Some(last) = thread.of.take()
        {
            self.waiting.remove(&last.of);
            self.without_weight += 1;
        }
        self.threads.end(tid);
    }

    /// Whether events of a thread are asked about, as far as its id says.
    fn has_tid(&self, tid: Tid) -> bool {
        self.scope.tids.as_ref().is_none_or(|tids| tids.contains(&tid))
    }

    /// Counts an event with its weight. Returns what its stack is of; `None` if it is not counted.
    pub(in crate::answers) fn event(&mut self, at: At, tid: Tid, weight: Option<u64>) -> Option<u64> {
        if !self.scope.has(at) || !self.has_tid(tid) {
            return None;
        }
        let Some(weight) = weight else {
            self.without_weight += 1;
            return None;
        };
        let Some((thread, _)) = self.threads.find(tid, || None) else {
            self.others.add(Sum { count: 1, weight });
            return None;
        };
        Some(self.wait(thread, Some(weight)))
    }

    /// Counts an event whose weight is the time until the next one of its thread, which is not known yet, and
    /// the time from the one before. Returns what its stack is of.
    pub(in crate::answers) fn timed(&mut self, at: At, tid: Tid) -> Option<u64> {
        if !self.has_tid(tid) {
            return None;
        }
        let losses = self.losses;
        let of = self.next;
        let Some((thread, state)) = self.threads.find(tid, || None) else {
            self.without_weight += 1;
            return None;
        };
        let last = Last { of, since: at.time, losses };
        let before = if tid == 0 { self.idle.insert(at.cpu, last) } else { state.of.replace(last) };
        if let Some(before) = before {
            self.close(before, at);
        }
        Some(self.wait(thread, None))
    }

    /// The next event of a thread is there.
    fn close(&mut self, last: Last, at: At) {
        if !self.scope.has(at) || last.losses != self.losses {
            self.without_weight += u64::from(self.scope.has(at));
            self.waiting.remove(&last.of);
            return;
        }
        let time = at.time.saturating_sub(last.since.max(self.asked_from));
        if let Some(waiting) = self.waiting.get_mut(&last.of) {
            waiting.weight = Some(time);
        }
        self.count_if_known(last.of);
    }

    fn wait(&mut self, thread: usize, weight: Option<u64>) -> u64 {
        let of = self.next;
        self.next += 1;
        let stack = Stack::Comes { kernel: Vec::new(), user: Vec::new() };
        self.waiting.insert(of, Waiting { thread, stack, weight });
        of
    }

    /// A part of the stack of an event.
    #[expect(clippy::needless_pass_by_value, reason = "as the trait hands it over")]
    pub(in crate::answers) fn stack(&mut self, of: u64, frames: Frames<'_>) {
        let Some(Waiting { stack: Stack::Comes { kernel, user }, .. }) = self.waiting.get_mut(&of) else {
            return;
        };
        let part = if frames.is_kernel { kernel } else { user };
        let room = MOST_FRAMES.saturating_sub(part.len());
        part.extend(frames.addresses.take(room));
    }

    /// All of it has come.
    pub(in crate::answers) fn stack_ended(&mut self, of: u64, names: &Names<'_>) {
        let Some(waiting) = self.waiting.get_mut(&of) else { return };
        let Stack::Comes { kernel, user } = &mut waiting.stack else { return };
        let (kernel, user) = (std::mem::take(kernel), std::mem::take(user));
        let stack = self.whole(&kernel, &user, names);
        if let Some(waiting) = self.waiting.get_mut(&of) {
            waiting.stack = stack;
        }
        self.count_if_known(of);
    }

    /// A stack by its functions.
    fn whole(&mut self, kernel: &[u64], user: &[u64], names: &Names<'_>) -> Stack {
        if kernel.is_empty() && user.is_empty() {
            return Stack::Whole(None);
        }
        let mut functions = |addresses: &[u64]| -> Option<Vec<u64>> {
            addresses.iter().map(|address| self.functions.number(*address, names).map(u64::from)).collect()
        };
        let (Some(mut kernel), Some(user)) = (functions(kernel), functions(user)) else {
            return Stack::NoRoom;
        };
        // The innermost functions are those that recorded the event.
        let is_other = |number: &u64| !is_tracing(&self.functions.name(*number));
        kernel.drain(..kernel.iter().position(is_other).unwrap_or(0));
        if let Some(is_entry) = self.is_entry
            && !kernel.is_empty()
        {
            match kernel.iter().position(|number| is_entry(&self.functions.name(*number))) {
                Some(entry) => drop(kernel.drain(..=entry)),
                None => self.without_entry += 1,
            }
        }
        let mut stack = StackParts::default();
        let mut has_room = true;
        for (part, functions) in [(&mut stack.kernel, &kernel), (&mut stack.user, &user)] {
            if !functions.is_empty() {
                *part = self.parts.number(functions);
                has_room &= part.is_some();
            }
        }
        if has_room { Stack::Whole(Some(stack)) } else { Stack::NoRoom }
    }

    /// Counts an event if its stack and its weight are known.
    fn count_if_known(&mut self, of: u64) {
        let Some(Waiting { thread, stack, weight: Some(weight) }) = self.waiting.get(&of) else { return };
        let (thread, weight) = (*thread, *weight);
        let key = match stack {
            Stack::Comes { .. } => return,
            Stack::Whole(stack) => Some(Key { thread, stack: *stack }),
            Stack::NoRoom => None,
        };
        self.waiting.remove(&of);
        let sum = Sum { count: 1, weight };
        match key {
            Some(key) if self.sums.len() < MOST_KEYS || self.sums.contains_key(&key) => {
                self.sums.entry(key).or_default().add(sum);
            }
            _ => self.others.add(sum),
        }
    }

    /// Events were lost.
    pub(in crate::answers) fn lost(&mut self) {
        self.losses += 1;
    }

    /// Forgets what was counted.
    pub(in crate::answers) fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        // What is told apart by numbers stays; when there is little room left, all begins anew.
        if self.threads.is_half_full() || self.parts.is_half_full() || self.functions.is_half_full() {
            let Self { next, losses, asked_from, .. } = *self;
            *self = Self { next, losses, asked_from, ..Self::new(self.scope.clone(), self.is_entry) };
            return;
        }
        self.sums.clear();
        self.others = Sum::default();
        (self.without_weight, self.without_entry) = (0, 0);
    }

    /// What was counted.
    pub(in crate::answers) fn told(mut self, names: &Names<'_>) -> Told {
        let open = self.threads.iter().filter(|thread| thread.of.is_some()).count() + self.idle.len();
        let mut told = Told {
            others: self.others,
            without_weight: self.without_weight + open as u64,
            without_entry: self.without_entry,
            ..Told::default()
        };
        let mut threads: HashMap<usize, Sum> = HashMap::new();
        let mut functions: HashMap<(u64, bool), (u64, u64)> = HashMap::new();
        for (key, sum) in std::mem::take(&mut self.sums) {
            let Some(thread) = self.threads.get(key.thread) else { continue };
            let name = name_of(thread, names);
            if !self.scope.has_thread(thread.tid, name) {
                continue;
            }
            told.all.add(sum);
            threads.entry(key.thread).or_default().add(sum);
            let Some(stack) = key.stack else {
                told.without_stack.add(sum);
                continue;
            };
            self.add_functions(&mut functions, stack, sum.weight);
            let (tid, comm) = (thread.tid, String::from_utf8_lossy(name).into_owned());
            let (kernel, user) = (self.texts(stack.kernel), self.texts(stack.user));
            told.stacks.push(StackWeight { tid, comm, kernel, user, sum });
        }
        told.threads = (threads.into_iter())
            .filter_map(|(index, sum)| {
                let thread = self.threads.get(index)?;
                let comm = String::from_utf8_lossy(name_of(thread, names)).into_owned();
                Some(ThreadWeight { tid: thread.tid, comm, sum })
            })
            .collect();
        told.functions = (functions.into_iter())
            .map(|((number, is_kernel), (own_weight, total_weight))| FunctionWeight {
                name: self.functions.name(number),
                is_kernel,
                own_weight,
                total_weight,
            })
            .collect();
        told.threads.sort_by_key(|of| (Reverse(of.sum.weight), of.tid));
        told.functions.sort_by(|one, other| {
            let key = |of: &FunctionWeight| (Reverse(of.own_weight), Reverse(of.total_weight), of.is_kernel);
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        told.stacks.sort_by(|one, other| {
            let key = |of: &StackWeight| (Reverse(of.sum.weight), of.tid);
            key(one)
                .cmp(&key(other))
                .then_with(|| (&one.user, &one.kernel).cmp(&(&other.user, &other.kernel)))
        });
        told
    }

    /// Adds what a stack weighs to its functions: the innermost one has it for its own, the others in all,
    /// once each.
    fn add_functions(
        &self,
        functions: &mut HashMap<(u64, bool), (u64, u64)>,
        stack: StackParts,
        weight: u64,
    ) {
        let of = |part, is_kernel| self.parts.of(part).iter().map(move |number| (*number, is_kernel));
        let mut all: Vec<(u64, bool)> = of(stack.kernel, true).chain(of(stack.user, false)).collect();
        if let Some(innermost) = all.first() {
            let (own, _) = functions.entry(*innermost).or_default();
            *own = own.saturating_add(weight);
        }
        all.sort_unstable();
        all.dedup();
        for function in all {
            let (_, total) = functions.entry(function).or_default();
            *total = total.saturating_add(weight);
        }
    }

    fn texts(&self, part: Option<Part>) -> Vec<Arc<str>> {
        self.parts.of(part).iter().map(|number| self.functions.name(*number)).collect()
    }
}
