//! Finds for every record of ftrace the agent's record of the same event, and compares the two byte by byte.
//!
//! Both recorders are called by the same tracepoint, always in the same order. Within one context of one
//! thread on one CPU (task, soft interrupt, hard interrupt) a tracepoint does not interrupt itself, so there
//! the time stamps of an event alternate: ftrace, agent, ftrace, agent. That pairs records without guessing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use analysis::diff::differing_fields;
use ftrace_event::{Array, EventTable, Field, Location, Machine, NoNames};
use kernel::features::tracepoints_are_preemptible;

use crate::{
    dat::{Record, le_u32},
    has_preempt_rt,
    tracefs::Event,
};

/// Hard interrupt, soft interrupt, NMI (`enum trace_flag_type`, include/linux/trace_events.h).
const CONTEXT: u8 = 0x08 | 0x10 | 0x40;
/// "Interrupts are off", which the agent does not know of every event, and "the thread shall be rescheduled
/// lazily" (`TRACE_FLAG_NEED_RESCHED_LAZY` since 6.13), which it never knows: it never sets the second, and
/// the first only where it holds.
const IRQS_OFF: u8 = 0x01;
const RESCHED_LAZY: u8 = 0x02;
/// The task must give up the CPU: in the task's flags, and folded into the preempt count.
const RESCHED: u8 = 0x04 | 0x20;

/// Fields that the kernel does not fill in some cases.
const UNSET: [(&str, &str); 20] = [
    // A next hop without a gateway sets neither address (include/trace/events/fib.h).
    ("fib_table_lookup", "gw4"),
    ("fib_table_lookup", "gw6"),
    // The key of an IPv4 neighbour is in another field (include/trace/events/neigh.h).
    ("neigh_create", "primary_key6"),
    // Declared, but never assigned (include/trace/events/wbt.h).
    ("wbt_stat", "rtime"),
    ("wbt_stat", "wtime"),
    // Declared, but never assigned (fs/xfs/xfs_trace.h).
    ("xfs_attr_list_add", "dupcnt"),
    ("xfs_attr_list_full", "dupcnt"),
    ("xfs_attr_list_leaf", "dupcnt"),
    ("xfs_attr_list_leaf_end", "dupcnt"),
    ("xfs_attr_list_node_descend", "dupcnt"),
    ("xfs_attr_list_notfound", "dupcnt"),
    ("xfs_attr_list_sf", "dupcnt"),
    ("xfs_attr_list_sf_all", "dupcnt"),
    ("xfs_attr_leaf_list", "dupcnt"),
    ("xfs_attr_node_list", "dupcnt"),
    ("xfs_defer_finish", "committed"),
    ("xfs_defer_finish_done", "committed"),
    ("xfs_defer_trans_roll", "committed"),
    ("xfs_exchrange_after", "broot_size"),
    ("xfs_exchrange_before", "broot_size"),
];

/// Whether the event has fields that the kernel leaves unset: they hold what the buffer held before.
pub fn has_unset_fields(event: &str) -> bool {
    UNSET.iter().any(|(name, _)| *name == event)
}

/// A context: CPU, thread, interrupt flags.
type Key = (u32, u32, u8);

/// The outcome of pairing.
#[derive(Debug, Default)]
pub struct Pairs {
    /// Indexes of records that belong together: ftrace's, the agent's.
    pub pairs: Vec<(usize, usize)>,
    /// Records that only ftrace has.
    pub only_ftrace: Vec<usize>,
    /// Records that only the agent has.
    pub only_agent: Vec<usize>,
}

impl Pairs {
    /// Pairs the records of these tasks that were stamped within `from..=to`, while both recorders ran.
    pub fn find(ftrace: &[Record], agent: &[Record], tasks: &BTreeSet<u32>, from: u64, to: u64) -> Self {
        let (ftrace_by_event, agent_by_event) = (by_event(ftrace, tasks), by_event(agent, tasks));
        let ids: BTreeSet<u16> = ftrace_by_event.keys().chain(agent_by_event.keys()).copied().collect();
        let mut found = Self::default();
        for id in ids {
            let none = BTreeMap::new();
            let theirs = ftrace_by_event.get(&id).unwrap_or(&none);
            let ours = agent_by_event.get(&id).unwrap_or(&none);
            let pairs = [Order::FtraceFirst, Order::AgentFirst].map(|order| {
                let mut pairs = Self::default();
                let keys: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
                for key in keys {
                    let list = |of: &BTreeMap<Key, Vec<usize>>| of.get(key).cloned().unwrap_or_default();
                    pairs.find_in_context((ftrace, list(theirs)), (agent, list(ours)), order, from, to);
                }
                pairs
            });
            // The wrong order pairs each record with that of the next event. It leaves over a record, or if
            // that one is out of the window, is wide apart.
            let apart = |(theirs, ours): &(usize, usize)| ftrace[*theirs].time.abs_diff(agent[*ours].time);
            let badness = |pairs: &Self| {
                let left_over = pairs.only_agent.len() + pairs.only_ftrace.len();
                (left_over, pairs.pairs.iter().map(apart).sum::<u64>())
            };
            let Self { pairs, only_ftrace, only_agent } = pairs.into_iter().min_by_key(badness).unwrap();
            found.pairs.extend(pairs);
            found.only_ftrace.extend(only_ftrace);
            found.only_agent.extend(only_agent);
        }
        if tracepoints_are_preemptible() {
            found.forget_moved(ftrace, agent);
        }
        found
    }

    /// Leaves out events whose task went to another CPU between the two recorders, which it can where
    /// tracepoints leave preemption on: both have the same record, but for the CPU.
    fn forget_moved(&mut self, ftrace: &[Record], agent: &[Record]) {
        let what = |record: &Record| (record.id(), record.pid(), record.bytes[8..].to_vec());
        self.only_agent.retain(|&ours| {
            let is_same = |&theirs: &usize| {
                let (theirs, ours) = (&ftrace[theirs], &agent[ours]);
                theirs.cpu != ours.cpu && what(theirs) == what(ours)
            };
            let moved = self.only_ftrace.iter().position(is_same);
            moved.map(|index| self.only_ftrace.remove(index)).is_none()
        });
    }

    /// Pairs the records of one event in one context of one thread on one CPU.
    fn find_in_context(
        &mut self,
        (ftrace, mut theirs): (&[Record], Vec<usize>),
        (agent, mut ours): (&[Record], Vec<usize>),
        order: Order,
        from: u64,
        to: u64,
    ) {
        // Seen backwards in time, the second recorder is the first.
        let seen = |time: u64| if order == Order::FtraceFirst { time } else { u64::MAX - time };
        // The agent began first: what it has of that time has no partner.
        ours.retain(|index| agent[*index].time >= from);
        theirs.sort_by_key(|index| seen(ftrace[*index].time));
        ours.sort_by_key(|index| seen(agent[*index].time));
        let both_ran = from..=to;
        let mut alone = Vec::new();
        let mut rest = ours.into_iter().peekable();
        for (rank, &index) in theirs.iter().enumerate() {
            let time = seen(ftrace[index].time);
            let next = theirs.get(rank + 1).map_or(u64::MAX, |next| seen(ftrace[*next].time));
            while let Some(our) = rest.next_if(|our| seen(agent[*our].time) < time) {
                alone.push(our);
            }
            let partner = rest.next_if(|our| seen(agent[*our].time) < next);
            if both_ran.contains(&ftrace[index].time) {
                match partner {
                    Some(partner) => self.pairs.push((index, partner)),
                    None => self.only_ftrace.push(index),
                }
            }
        }
        alone.extend(rest);
        self.only_agent.extend(alone.into_iter().filter(|our| both_ran.contains(&agent[*our].time)));
    }
}

/// Which of the two recorders a tracepoint calls first.
///
/// ftrace was attached first. But all users of perf share one call, and one of them may have been there
/// before: another recorder, or an earlier one that is still being detached. So it is found out for each
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    FtraceFirst,
    AgentFirst,
}

/// Whether the records of each thread in task context stand in the same order in both recordings.
///
/// Interrupts are left out: one that comes between the two recorders of an event is recorded by the agent
/// first. With `PREEMPT_RT` that is so with some events of task context, too: at its end, no longer marked as
/// such, an interrupt wakes the threads of soft interrupts and timers (`__irq_exit_rcu`, kernel/softirq.c).
/// Where tracepoints leave preemption enabled, a task can be switched away from between the two recorders of
/// an event: what records the switch comes between them.
pub fn same_order(ftrace: &[Record], agent: &[Record], pairs: &Pairs) -> Result<(), String> {
    /// ftrace's time, the agent's time, the event, whether the task could be preempted.
    type Times = Vec<(u64, u64, u16, bool)>;
    let mut by_task: BTreeMap<(u32, u32), Times> = BTreeMap::new();
    for (reference, ours) in &pairs.pairs {
        let (reference, ours) = (&ftrace[*reference], &agent[*ours]);
        if reference.flags() & CONTEXT == 0 {
            let preemptible = reference.preempt_count() % 16 == 0 && !is_uninterruptible(reference);
            let times = (reference.time, ours.time, reference.id(), preemptible);
            by_task.entry((reference.pid(), reference.cpu)).or_default().push(times);
        }
    }
    let (preempt_rt, preemptible) = (has_preempt_rt(), tracepoints_are_preemptible());
    for ((pid, cpu), mut times) in by_task {
        times.sort_unstable();
        for next in times.windows(2) {
            // Of two events with one time ftrace does not tell the order: what is written while an
            // interrupted event has its place but not yet its time gets the time before (`__rb_reserve_next`,
            // kernel/trace/ring_buffer.c).
            let tells_order = next[0].0 != next[1].0;
            let is_nested = preempt_rt && next[1].1 < next[0].1;
            let is_preempted = preemptible && next[0].3 && !next[1].3;
            if tells_order && !is_nested && !is_preempted && next[0].1 > next[1].0 {
                return Err(format!(
                    "thread {pid} on CPU {cpu}: {next:?} (ftrace's time, agent's time, event, preemptible)"
                ));
            }
        }
    }
    Ok(())
}

/// Whether this was recorded with interrupts off.
pub fn is_uninterruptible(record: &Record) -> bool {
    record.flags() & IRQS_OFF != 0
}

/// Whether an interrupt recorded this, so that the interrupted program can have kept the agent's from
/// running.
pub fn in_interrupt(record: &Record) -> bool {
    record.flags() & CONTEXT != 0
}

fn by_event(records: &[Record], tasks: &BTreeSet<u32>) -> BTreeMap<u16, BTreeMap<Key, Vec<usize>>> {
    let mut map: BTreeMap<u16, BTreeMap<Key, Vec<usize>>> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        // In idle threads only interrupts count: ftrace was seen to leave out all else that an idle CPU does,
        // on one CPU of two of a virtual machine, while programs did see it.
        let idle = record.pid() == 0 && !in_interrupt(record);
        if tasks.contains(&record.pid()) && !idle {
            let key = (record.cpu, record.pid(), record.flags() & CONTEXT);
            map.entry(record.id()).or_default().entry(key).or_default().push(index);
        }
    }
    map
}

/// Whether a value that the event's code reads anew for each recorder changed between the two.
///
/// - `prev_state` of a dying thread (`__trace_sched_switch_state`, include/trace/events/sched.h): its parent
///   changes the exit state from zombie to dead on another CPU.
/// - `target_cpu` of a thread that is woken while it is still queued (`try_to_wake_up`, kernel/sched/core.c):
///   the balancer of another CPU moves it, which takes no lock of the thread.
/// - `now` of timer events, which is `jiffies` (include/trace/events/timer.h): a tick came between, or some
///   where the processor is emulated.
/// - The time at which Btrfs got a lock (include/trace/events/btrfs.h).
/// - What threads of XFS and Btrfs share: how many hold a buffer, an inode or a group, how often something
///   was changed, and where the log is (fs/xfs/xfs_trace.h, include/trace/events/btrfs.h).
pub fn changed_meanwhile(event: &Event, reference: &Record, ours: &Record) -> bool {
    // EXIT_DEAD, EXIT_ZOMBIE (include/linux/sched.h).
    const EXIT: [u32; 2] = [0x10, 0x20];
    let both = |name| {
        let field = event.format.field(name)?;
        Some([reference, ours].map(|record| le_u32(&record.bytes, field.offset as usize)))
    };
    match event.format.name.as_str() {
        "sched_switch" => both("prev_state")
            .is_some_and(|states| states[0] != states[1] && states.iter().all(|state| EXIT.contains(state))),
        "sched_waking" => both("target_cpu").is_some_and(|[reference, ours]| reference != ours),
        "timer_start" | "timer_expire_entry" => {
            both("now").is_some_and(|[reference, ours]| (1..=10).contains(&reference.abs_diff(ours)))
        }
        "btrfs_tree_lock" | "btrfs_tree_read_lock" => {
            both("end_ns").is_some_and(|[reference, ours]| reference != ours)
        }
        _ if ["btrfs", "xfs"].contains(&event.system.as_str()) => differ_by_little(event, reference, ours),
        _ => false,
    }
}

/// Whether records differ in numbers only, and these by little or because they are places in a log.
fn differ_by_little(event: &Event, reference: &Record, ours: &Record) -> bool {
    const LITTLE: u64 = 64;
    const IN_THE_LOG: [&str; 7] = [
        "curr_block",
        "grant_reserve_bytes",
        "grant_write_bytes",
        "head_lsn",
        "old_lsn",
        "tail_lsn",
        "tail_space",
    ];
    let number = |record: &Record, field: &Field| match field.size {
        4 => Some(u64::from(le_u32(&record.bytes, field.offset as usize))),
        8 => Some(
            u64::from(le_u32(&record.bytes, field.offset as usize))
                | u64::from(le_u32(&record.bytes, field.offset as usize + 4)) << 32,
        ),
        _ => None,
    };
    let bytes = |record: &Record, field: &Field| {
        let start = field.offset as usize;
        record.bytes.get(start..start + field.size as usize).map(<[u8]>::to_vec)
    };
    let mut differing =
        event.format.fields.iter().filter(|field| bytes(reference, field) != bytes(ours, field)).peekable();
    differing.peek().is_some()
        && differing.all(|field| {
            let both = number(reference, field).zip(number(ours, field));
            field.location == Location::Inline
                && (IN_THE_LOG.contains(&&*field.name)
                    || both.is_some_and(|(reference, ours)| reference.abs_diff(ours) <= LITTLE))
        })
}

/// How the records of one event compare.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Pairs.
    pub pairs: u64,
    /// Records that only ftrace has.
    pub lost: u64,
    /// Pairs whose records are not equally long.
    pub lengths: u64,
    /// Pairs that differ, by field.
    pub fields: BTreeMap<String, u64>,
    /// Places that belong to no field, or are behind the end of a text, and differ.
    pub padding: u64,
    /// Pairs whose `common_flags` differ, by ftrace's value and the agent's. A flag that the agent does not
    /// always know is compared where it is set; "must reschedule" is counted by itself.
    pub flags: BTreeMap<(u8, u8), u64>,
    /// Pairs that differ because a value [changed](changed_meanwhile) between the recorders.
    pub changed: u64,
    /// Pairs that differ in "must reschedule".
    pub resched: BTreeMap<(u8, u8), u64>,
    /// Pairs whose `common_preempt_count` differ, by ftrace's value and the agent's.
    pub depths: BTreeMap<(u8, u8), u64>,
    /// Longest distance of the two time stamps, ns.
    pub apart: u64,
    /// The first pair that differs in a field, as text.
    pub example: Option<String>,
}

/// Compares all pairs, by event.
pub fn compare(
    ftrace: &[Record],
    agent: &[Record],
    pairs: &Pairs,
    events: &BTreeMap<u16, Event>,
) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let name = |id: u16| format!("{}:{}", events[&id].system, events[&id].format.name);
    for index in &pairs.only_ftrace {
        tallies.entry(name(ftrace[*index].id())).or_default().lost += 1;
    }
    for (reference, ours) in &pairs.pairs {
        let (reference, ours) = (&ftrace[*reference], &agent[*ours]);
        let tally = tallies.entry(name(reference.id())).or_default();
        tally.pairs += 1;
        tally.apart = tally.apart.max(ours.time.abs_diff(reference.time));
        let known = ours.flags() | !(RESCHED_LAZY | IRQS_OFF);
        let flags = |mask: u8| (reference.flags() & mask, ours.flags() & mask);
        for (map, (theirs, ours)) in
            [(&mut tally.flags, flags(known & !RESCHED)), (&mut tally.resched, flags(RESCHED))]
        {
            if theirs != ours {
                *map.entry((theirs, ours)).or_default() += 1;
            }
        }
        let depths = (reference.preempt_count(), ours.preempt_count());
        if depths.0 != depths.1 {
            *tally.depths.entry(depths).or_default() += 1;
        }
        let event = &events[&reference.id()];
        if reference.bytes.len() != ours.bytes.len() && !keeps_room(event, reference, ours) {
            tally.lengths += 1;
            let example = || format!("{} and {} bytes", reference.bytes.len(), ours.bytes.len());
            tally.example.get_or_insert_with(example);
            continue;
        }
        if changed_meanwhile(event, reference, ours) {
            tally.changed += 1;
        } else {
            compare_bytes(tally, event, &reference.bytes, &ours.bytes);
        }
    }
    tallies
}

/// The values that differ between the records of each pair, as `tracer-agent diff` finds them, with the first
/// example of each event and field; those that [`compare`] leaves out are left out here, too.
pub fn values(
    ftrace: &[Record],
    agent: &[Record],
    pairs: &Pairs,
    events: &BTreeMap<u16, Event>,
) -> BTreeMap<(String, String), String> {
    let mut table = EventTable::new(Machine::default());
    for event in events.values() {
        table.add(&event.system, &event.text, &NoNames).unwrap();
    }
    let mut found = BTreeMap::new();
    for (reference, ours) in &pairs.pairs {
        let (reference, ours) = (&ftrace[*reference], &agent[*ours]);
        let event = &events[&reference.id()];
        if changed_meanwhile(event, reference, ours) {
            continue;
        }
        let printer = table.get(reference.id()).unwrap();
        for (field, values) in differing_fields((printer, &reference.bytes), (printer, &ours.bytes)) {
            let compared_apart = ["common_flags", "common_preempt_count"].contains(&field);
            if !compared_apart && !UNSET.contains(&(&event.format.name, field)) {
                found.entry((event.format.name.clone(), field.to_owned())).or_insert(values);
            }
        }
    }
    found
}

/// Whether ours may be longer: it has room for the longest copy of a string that was not resident at the
/// entry of a call, for the exit to fill. The kernel reads such strings at the entry.
fn keeps_room(event: &Event, reference: &Record, ours: &Record) -> bool {
    let mut fields = event.format.fields.iter();
    event.system == "syscalls"
        && ours.bytes.len() > reference.bytes.len()
        && fields.any(|field| field.location == Location::DataLoc)
}

fn compare_bytes(tally: &mut Tally, event: &Event, reference: &[u8], ours: &[u8]) {
    let format = &event.format;
    let mut padding = vec![true; reference.len()];
    // type, flags, preempt count: compared already.
    padding[..4].fill(false);
    for field in format.common.iter().chain(&format.fields).filter(|field| field.offset >= 4) {
        let fixed = field.offset as usize..(field.offset + field.size) as usize;
        let data = |record: &[u8]| {
            let base = match field.location {
                Location::Inline => return None,
                Location::DataLoc => 0,
                Location::RelLoc => fixed.end,
            };
            let word = le_u32(record, fixed.start);
            let start = base + (word & 0xffff) as usize;
            Some(start..start + (word >> 16) as usize)
        };
        let data = data(reference).zip(data(ours));
        // What is after room that only one has is elsewhere.
        let same_offsets = data.is_none() || reference.len() == ours.len();
        padding[fixed.clone()].fill(false);
        for (range, our_range) in same_offsets.then(|| (fixed.clone(), fixed)).into_iter().chain(data) {
            let (mut a, mut b) = (&reference[range.clone()], &ours[our_range]);
            let is_text = field.type_text.trim() == "char"
                && matches!(field.array, Array::Fixed(_) | Array::Constant(_));
            if is_text && let Some(end) = a.iter().position(|byte| *byte == 0) {
                // Most are filled by strscpy or alike: behind the NUL is what the buffer held before.
                tally.padding += u64::from(a[end..] != b[end..]);
                (a, b) = (&a[..=end], &b[..=end]);
            }
            if a != b && !UNSET.contains(&(&format.name, &field.name)) {
                let count = tally.fields.entry(field.name.clone()).or_default();
                *count += 1;
                if *count == 1 {
                    let text = tally.example.get_or_insert_default();
                    let _ = write!(text, "{} {a:02x?} {b:02x?}; ", field.name);
                }
            }
            padding[range].fill(false);
        }
    }
    if reference.iter().zip(ours).zip(padding).any(|((a, b), padding)| padding && a != b) {
        tally.padding += 1;
    }
}

/// The tallies as a table.
pub fn table(tallies: &BTreeMap<String, Tally>) -> String {
    let mut text = format!(
        "{:<40} {:>7} {:>5} {:>7} {:>7} {:>9}  differences (ftrace, agent) x pairs\n",
        "event", "pairs", "lost", "lengths", "padding", "apart/ns"
    );
    for (name, tally) in tallies {
        let Tally { pairs, lost, lengths, fields, padding, flags, changed, resched, depths, apart, example } =
            tally;
        let _ = write!(text, "{name:<40} {pairs:>7} {lost:>5} {lengths:>7} {padding:>7} {apart:>9} ");
        if *changed != 0 {
            let _ = write!(text, " changed x{changed}");
        }
        for (field, count) in fields {
            let _ = write!(text, " {field} x{count}");
        }
        for (what, map) in [("flags", flags), ("resched", resched), ("depth", depths)] {
            for ((reference, ours), count) in map {
                let _ = write!(text, " {what}({reference:#04x},{ours:#04x})x{count}");
            }
        }
        if let Some(example) = example {
            let _ = write!(text, "  e.g. {example}");
        }
        text.push('\n');
    }
    text
}
