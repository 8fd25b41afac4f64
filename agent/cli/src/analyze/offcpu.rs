//! `analyze offcpu`, as text.

use std::{cmp::Reverse, collections::BTreeMap};

use super::table::{Side::Left, Side::Right, TIMES, Table, duration, no_room, perhaps_duration, times};
use crate::units::count;
use analysis::answers::{Covered, OffCpuAnswer, OffCpuStack, WakerLink};
use ftrace_event::stacks::UNKNOWN;
use stdx::terminal;

/// Most wakers of a stack that are named.
const WAKERS: usize = 3;

/// Functions that every stack of the kernel ends with on some machine.
const ENTRY: [&str; 10] = [
    "entry_SYSCALL_64_after_hwframe",
    "do_syscall_64",
    "x64_sys_call",
    "ret_from_fork",
    "ret_from_fork_asm",
    "kthread",
    "el0_svc",
    "el0t_64_sync",
    "el0t_64_sync_handler",
    UNKNOWN,
];

/// Tables of reasons and threads, and the stacks.
pub(super) fn text(answer: &OffCpuAnswer, _: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.left_out, "a thread, a stack or a waker");
    let rest = [("WAIT", Right), ("OPEN", Right)];
    let mut reasons = Table::new(
        "What was waited for; WAIT: of TOTAL, could have run; OPEN: has not ended",
        &[&[("FOR", Left)], &TIMES, &rest],
    );
    for of in &answer.reasons {
        let rest = [perhaps_duration(of.wait_ns), duration(of.open_ns)];
        reasons.row(&[&[of.reason.name().to_owned()], &times(of.times), &rest]);
    }
    text += &reasons.text(limit);
    let rest = [("WAIT", Right), ("OPEN", Right), ("UNKNOWN", Right), ("MOSTLY FOR", Left)];
    let mut threads = Table::new(
        "Threads, by the time without a CPU",
        &[&[("THREAD", Left), ("TID", Right)], &TIMES, &rest],
    );
    for of in &answer.threads {
        let [open, unknown] = [of.open_ns, of.unknown_ns].map(duration);
        let mostly = of.mostly.map_or("", |reason| reason.name()).to_owned();
        threads.row(&[
            &[of.comm.clone(), of.tid.to_string()],
            &times(of.times),
            &[perhaps_duration(of.wait_ns), open, unknown, mostly],
        ]);
    }
    text += &threads.text(limit);
    text + &stacks(answer, limit)
}

/// Each stack with its thread, and who woke it.
fn stacks(answer: &OffCpuAnswer, limit: usize) -> String {
    let with_stack: Vec<&OffCpuStack> = answer
        .stacks
        .iter()
        .filter(|of| !of.kernel.is_empty() || !of.user.is_empty() || !of.wakers.is_empty())
        .collect();
    if with_stack.is_empty() {
        return String::new();
    }
    let mut text =
        "\nStacks and wakers, by the time without a CPU; the innermost function is the first\n".to_owned();
    for of in with_stack.iter().take(limit) {
        let total = of.times.total_ns.saturating_add(of.open_ns);
        text += &format!(
            "  {} {}: {} in {} intervals, for {}\n",
            terminal::name(&of.comm),
            of.tid,
            duration(total),
            count(of.times.count + u64::from(of.open_ns != 0)),
            of.reason.name()
        );
        text += &functions("kernel", &of.kernel);
        text += &functions("user", &of.user);
        let wakers = wakers(of);
        for (by, times, time) in wakers.iter().take(WAKERS) {
            text += &format!("    woken {} times, after {}, by {by}\n", count(*times), duration(*time));
        }
        if wakers.len() > WAKERS {
            text += &format!("    and by {} others\n", count((wakers.len() - WAKERS) as u64));
        }
    }
    if with_stack.len() > limit {
        text += &format!("  and {} more; -n prints them\n", count((with_stack.len() - limit) as u64));
    }
    text
}

/// The functions of a stack in one line.
fn functions(of: &str, functions: &[String]) -> String {
    if functions.is_empty() {
        return String::new();
    }
    let names: Vec<_> = functions.iter().map(|name| terminal::name(name)).collect();
    format!("    {of}: {}\n", names.join(" < "))
}

/// Chains of wakers with how often and after how much time, the longest first. Those of threads with the same
/// name that do the same are one.
fn wakers(of: &OffCpuStack) -> Vec<(String, u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for wakers in &of.wakers {
        let chain = match &wakers.chain[..] {
            [] => "nobody that was seen".to_owned(),
            chain => chain.iter().map(link).collect::<Vec<_>>().join(", woken by "),
        };
        let (times, time) = sums.entry(chain).or_default();
        *times += wakers.count;
        *time = time.saturating_add(wakers.total_ns);
    }
    let mut sums: Vec<_> = sums.into_iter().map(|(by, (times, time))| (by, times, time)).collect();
    sums.sort_by_key(|(_, _, time)| Reverse(*time));
    sums
}

/// A waker, and what it did: a function of its process, or what the kernel did for it.
fn link(link: &WakerLink) -> String {
    let kernel = link.kernel.iter().rev().find(|name| !ENTRY.contains(&name.as_str()));
    let function = link.user.iter().find(|name| *name != UNKNOWN).or(kernel);
    let function = function.map_or(String::new(), |function| format!(" in {}", terminal::name(function)));
    terminal::name(&link.waker) + &function
}
