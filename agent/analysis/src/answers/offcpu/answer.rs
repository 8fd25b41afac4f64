//! What is told of the time without a CPU.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::super::state::Off;
use super::{
    Key, OffCpu, Reason, Told,
    chain::{Chain, Link},
};
use crate::answers::parts::{Part, StackParts};
use crate::answers::{Names, Tid, TimesTold};
use ftrace_event::stacks::{function, without_tracing};

/// Where threads were without a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OffCpuAnswer {
    /// By what they waited for, the longest first.
    pub reasons: Vec<ReasonTime>,
    /// By thread, the longest first. The idle threads are none of them.
    pub threads: Vec<OffCpuOfThread>,
    /// By thread and stack, the longest first.
    pub stacks: Vec<OffCpuStack>,
    /// Intervals, stacks and wakers that were left out because there were too many threads or stacks.
    pub left_out: u64,
}

/// Time that threads waited for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonTime {
    /// For what.
    pub reason: Reason,
    /// From the loss of the CPU to the next one.
    pub times: TimesTold,
    /// Of that, after the wakeup, or while the thread could have gone on. `None` if it is not known when
    /// threads are woken.
    pub wait_ns: Option<u64>,
    /// Time of those that had no CPU again at the end; not in `times`.
    pub open_ns: u64,
}

/// A thread without a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OffCpuOfThread {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// From the loss of the CPU to the next one.
    pub times: TimesTold,
    /// Of that, after wakeups, or while it could have gone on. `None` as in [`ReasonTime`].
    pub wait_ns: Option<u64>,
    /// Without a CPU at the end; not in `times`.
    pub open_ns: u64,
    /// Where it was before it was seen for the first time, and where events were lost.
    pub unknown_ns: u64,
    /// What it waited for most.
    pub mostly: Option<Reason>,
}

/// A thread without a CPU, in one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OffCpuStack {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// Why it had none.
    pub state: Off,
    /// What it waited for.
    pub reason: Reason,
    /// The kernel's functions, the innermost first. Empty if they were not recorded.
    pub kernel: Vec<String>,
    /// The process's.
    pub user: Vec<String>,
    /// From the loss of the CPU to the next one.
    pub times: TimesTold,
    /// Of that, after wakeups, or while it could have gone on. `None` as in [`ReasonTime`].
    pub wait_ns: Option<u64>,
    /// Without a CPU at the end; not in `times`.
    pub open_ns: u64,
    /// Who woke it, by the time until then, the longest first. Empty if wakeups were not recorded.
    pub wakers: Vec<Wakers>,
}

/// Who wakes a thread, who woke that one while the first one slept, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wakers {
    /// The one that wakes the sleeper first. Empty if nobody was seen to do it.
    pub chain: Vec<WakerLink>,
    /// How often.
    pub count: u64,
    /// The time without a CPU that ended so.
    pub total_ns: u64,
}

/// One that wakes another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WakerLink {
    /// The thread, or `[interrupt]`, `[soft interrupt]`, `[unknown]`.
    pub waker: String,
    /// Its id, if it is a thread.
    pub tid: Option<Tid>,
    /// The kernel's functions, the innermost first. Empty if they were not recorded.
    pub kernel: Vec<String>,
    /// The process's.
    pub user: Vec<String>,
}

/// What is told of a thread in one stack.
#[derive(Debug, Default)]
struct OfStack {
    sum: Told,
    chains: Vec<(Option<Chain>, u64, u64)>,
}

impl OffCpuAnswer {
    pub(super) fn of(mut off_cpu: OffCpu, end: u64, names: &Names<'_>) -> Self {
        off_cpu.close(end);
        let mut stacks: BTreeMap<(usize, Off, StackParts), OfStack> = BTreeMap::new();
        for (thread, state) in off_cpu.threads.iter_mut().enumerate() {
            for (Key { stack, chain, off }, told) in std::mem::take(&mut state.of.told) {
                let of = stacks.entry((thread, off, stack)).or_default();
                of.sum.merge(&told);
                if told.times.count() != 0 {
                    of.chains.push((chain, told.times.count(), told.times.sum()));
                }
            }
        }
        let teller = Teller { off_cpu: &off_cpu, names };
        let mut answer = Self {
            left_out: off_cpu.sums.rooms.left_out + off_cpu.parts.left_out() + off_cpu.sums.chains.left_out(),
            ..Self::default()
        };
        let mut reasons: BTreeMap<Reason, Told> = BTreeMap::new();
        let mut threads: BTreeMap<usize, (Told, BTreeMap<Reason, u64>)> = BTreeMap::new();
        for ((thread, off, stack), of) in stacks {
            let Some((tid, comm)) = teller.thread(thread) else { continue };
            let reason = teller.reason(off, stack.kernel);
            reasons.entry(reason).or_default().merge(&of.sum);
            let (sum, by_reason) = threads.entry(thread).or_default();
            sum.merge(&of.sum);
            *by_reason.entry(reason).or_default() += of.sum.total();
            answer.stacks.push(teller.stack((tid, comm, off, reason), stack, of));
        }
        answer.reasons = (reasons.into_iter())
            .map(|(reason, Told { times, waits, open: open_ns })| ReasonTime {
                reason,
                times: times.told(),
                wait_ns: (off_cpu.knows_wakeups() || reason == Reason::Cpu).then_some(waits),
                open_ns,
            })
            .collect();
        for (index, _) in off_cpu.threads.iter().enumerate() {
            let Some((tid, comm)) = teller.thread(index) else { continue };
            let (sum, by_reason) = threads.remove(&index).unwrap_or_default();
            let mostly = by_reason.into_iter().max_by_key(|(_, total)| *total).map(|(reason, _)| reason);
            let unknown_ns = off_cpu.threads.get(index).map_or(0, |thread| thread.of.unknown);
            if tid == 0 || (mostly.is_none() && unknown_ns == 0) {
                continue;
            }
            let Told { times, waits, open: open_ns } = sum;
            answer.threads.push(OffCpuOfThread {
                tid,
                comm,
                times: times.told(),
                wait_ns: off_cpu.knows_wakeups().then_some(waits),
                open_ns,
                unknown_ns,
                mostly,
            });
        }
        answer.sort();
        answer
    }

    fn sort(&mut self) {
        let total = |times: &TimesTold, open: u64| Reverse(times.total_ns.saturating_add(open));
        self.reasons.sort_by_key(|of| total(&of.times, of.open_ns));
        self.threads.sort_by_key(|of| (total(&of.times, of.open_ns), of.tid));
        self.stacks.sort_by_key(|of| (total(&of.times, of.open_ns), of.tid));
    }
}

/// Finds the names of what is told.
struct Teller<'t, 'n> {
    off_cpu: &'t OffCpu,
    names: &'t Names<'n>,
}

impl Teller<'_, '_> {
    /// The id and the name of a thread that is asked about.
    fn thread(&self, index: usize) -> Option<(Tid, String)> {
        let thread = self.off_cpu.threads.get(index)?;
        let name = self.names.of_thread(thread.tid, &thread.name);
        self.off_cpu
            .sums
            .scope
            .has_thread(thread.tid, name)
            .then(|| (thread.tid, String::from_utf8_lossy(name).into_owned()))
    }

    /// The kernel's functions of a stack, the innermost first.
    fn kernel(&self, part: Option<Part>) -> impl Iterator<Item = Cow<'_, str>> {
        let frames = without_tracing(self.names.symbols, self.off_cpu.parts.of(part));
        frames.iter().map(|address| function(self.names.symbols, *address))
    }

    /// The functions of a stack: the kernel's and the process's.
    fn texts(&self, stack: StackParts) -> (Vec<String>, Vec<String>) {
        let user = self.off_cpu.parts.of(stack.user).iter();
        let user = user.map(|address| function(self.names.symbols, *address).into_owned());
        (self.kernel(stack.kernel).map(Cow::into_owned).collect(), user.collect())
    }

    fn reason(&self, off: Off, kernel: Option<Part>) -> Reason {
        match off {
            Off::Preempted => Reason::Cpu,
            Off::Stopped => Reason::Signal,
            Off::Sleeping | Off::Blocked => Reason::of(self.kernel(kernel)),
        }
    }

    fn stack(
        &self,
        (tid, comm, state, reason): (Tid, String, Off, Reason),
        stack: StackParts,
        of: OfStack,
    ) -> OffCpuStack {
        let chains = of.chains.into_iter().filter(|_| self.off_cpu.knows_wakeups());
        let mut wakers: Vec<Wakers> = chains
            .map(|(chain, count, total_ns)| {
                let chain = self.off_cpu.sums.chains.links(chain).map(|link| self.link(link)).collect();
                Wakers { chain, count, total_ns }
            })
            .collect();
        wakers.sort_by_key(|wakers| Reverse(wakers.total_ns));
        let (kernel, user) = self.texts(stack);
        OffCpuStack {
            tid,
            comm,
            state,
            reason,
            kernel,
            user,
            times: of.sum.times.told(),
            wait_ns: (self.off_cpu.knows_wakeups() || state == Off::Preempted).then_some(of.sum.waits),
            open_ns: of.sum.open,
            wakers,
        }
    }

    fn link(&self, link: &Link) -> WakerLink {
        let (waker, tid) = link.waker.told(&self.off_cpu.threads, self.names);
        let (kernel, user) = self.texts(link.stack);
        WakerLink { waker, tid, kernel, user }
    }
}
