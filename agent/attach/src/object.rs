//! What the eBPF object is made of for a channel: the constants of its programs, and its maps.

use std::collections::BTreeMap;

use agent_ebpf::{
    EventSlot, SIDE_BYTES, SIDE_BYTES_OF_SET, SIDE_BYTES_OF_WATCH, SIDE_BYTES_PREEMPTIBLE, WAKE_BYTES,
    calls::{CALL_BUCKETS, CALL_WAYS},
    globals, places, slot_flags, user_entry,
};

use super::kernel_layout::KernelLayout;
use bpf::load::{Definitions, FlatArray, LoadError, Object, SharedMaps};
use compile::aggregate::Sizes;
use compile::fast::{Call, FastEvent, Hooks, Kind, Lane, Table};
use compile::filter;
use compile::generic::call_flags;
use kernel::ids::Owner;
use kernel::version::KernelVersion;
use kernel::{features, ids};
use spec::{StackKind, StringLimit};

/// The eBPF programs, compiled from `agent-ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("TRACER_AGENT_EBPF"));

/// Rings that users or processes do not share: so many sets, of which the last is for whoever has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSets {
    /// Whose they are: one of [`agent_ebpf::sets`].
    pub by: u32,
    /// How many there are; two at least.
    pub count: u32,
}

/// How the programs record; constants to them.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct ProgramOptions {
    /// Which clock stamps the events: one of [`agent_ebpf::clock`].
    pub clock: u32,
    /// Reuse the oldest page instead of losing the newest event.
    pub overwrite: bool,
    /// Let the first event after each look of the reader wake it, instead of waiting pages; with a small side
    /// queue.
    pub wake_each: bool,
    /// The first slot of the rule that these programs are of, in a watch: its matches take
    /// [`agent_ebpf::places`].
    pub rule: Option<u32>,
    /// The event that asks for snapshots, by its slot: its page is kept until
    /// [told](crate::ring::Control::hold_pages) otherwise.
    pub asking: Option<u32>,
    /// Record only threads in the traced set.
    pub filter_tasks: bool,
    /// Let new processes of traced ones be traced too.
    pub follow_fork: bool,
    /// Thread group that is not recorded.
    pub exclude_tgid: Option<u32>,
    /// Possible CPUs: rows of the control and ledger maps.
    pub possible_cpus: u32,
    /// The CPUs that get a ring, in the order of their pages.
    pub ring_cpus: Vec<u32>,
    /// Pages in each ring.
    pub ring_pages: u32,
    /// The sets of rings, each of them with one of each CPU; `None` if there is only one.
    pub sets: Option<RingSets>,
    /// How many waiting pages wake a ring's reader.
    pub wake_pages: u32,
    /// How many of `ring_cpus`, in their order, share a reader.
    pub cpus_per_reader: usize,
    /// Copying plan of each event; the position is the attach cookie.
    pub slots: Vec<EventSlot>,
    /// How many more events there can be: those that are added later. With none, events do not come and go.
    pub spare: usize,
    /// Where they do, a number that no other programs of the channel have; not 0.
    pub generation: u32,
    /// How each event is recorded, by the same position.
    pub lanes: Vec<Lane>,
    /// The filter of each event in the generic lane, by the same position.
    pub filters: Vec<Option<filter::Program>>,
    /// The system call of each event that has a program by itself which records strings, by the same
    /// position.
    pub own_strings: Vec<Option<Call>>,
    /// Which sets threads are asked for, by what they are: bits of [`globals::SCOPE`].
    pub scope: u32,
    /// Lines of the map of these sets.
    pub set_lines: u32,
    /// Where the fast lane's system call programs are attached.
    pub hooks: Option<Hooks>,
    /// How much is recorded of strings that system calls are given.
    pub strings: StringLimit,
    /// Where things are in this kernel's structures.
    pub layout: KernelLayout,
    /// Whether some program writes records with preemption on.
    pub preemptible: bool,
    /// Whether some program keeps track of nested calls.
    pub tracks_calls: bool,
    /// The memory of the map that the programs count in, if they count instead of recording.
    pub map: Option<Sizes>,
}

impl ProgramOptions {
    /// How many sets of rings there are.
    pub(super) fn set_count(&self) -> u32 {
        self.sets.map_or(1, |sets| sets.count)
    }
}

/// The events of an object with a limit for each control group, by their slots, and which element of its
/// `RATE_GROUPS` each has. These windows are no part of what the programs of a channel share: only the
/// programs of the event, which are all from one object, use them, and most events have none.
pub(super) type RateGroups = BTreeMap<u32, u32>;

/// Those among the events that `wanted` chooses by their slots.
pub(super) fn groups_of(options: &ProgramOptions, wanted: impl Fn(u32) -> bool) -> RateGroups {
    let all = (0..).zip(&options.slots);
    let limited =
        all.filter(|(slot, plan)| plan.rate != 0 && plan.flags >= slot_flags::RATE_BY_GROUP && wanted(*slot));
    limited.map(|(slot, _)| slot).zip(0..).collect()
}

/// An event's plan with the element that it has.
pub(super) fn with_groups(plan: EventSlot, slot: u32, groups: &RateGroups) -> EventSlot {
    let others = plan.flags % slot_flags::RATE_BY_GROUP;
    let of = groups.get(&slot).map_or(0, |index| (index + 1) * slot_flags::RATE_BY_GROUP);
    EventSlot { flags: others | of, ..plan }
}

/// The events that have programs by themselves which record strings of system calls, by their slots.
pub(super) fn own_strings(
    options: &ProgramOptions,
    wanted: impl Fn(u32) -> bool,
) -> impl Iterator<Item = (u32, Call)> {
    let calls = (0..).zip(&options.own_strings).filter_map(|(slot, call)| Some((slot, (*call)?)));
    calls.filter(move |&(slot, _)| wanted(slot))
}

/// The system calls among the events that `wanted` chooses by their slots.
pub(super) fn calls_of(options: &ProgramOptions, wanted: impl Fn(u32) -> bool) -> Table {
    let mut table = Table::default();
    for (index, (lane, slot)) in options.lanes.iter().zip(&options.slots).enumerate() {
        if let Lane::Fast(FastEvent(Kind::Call(call))) = lane
            && wanted(index as u32)
        {
            table.add(index as u32, slot.id, *call);
        }
    }
    for (_, call) in own_strings(options, wanted) {
        table.add_strings(call);
    }
    table
}

/// Whether strings that are not there at the entry of a call are taken at its exit.
pub(super) fn has_late_strings(options: &ProgramOptions, calls: &Table) -> bool {
    let layout = &options.layout;
    // Without these nobody knows at an exit what it is the exit of.
    let is_known = [layout.task_pid, layout.task_tgid, layout.task_mm, layout.task_nr_migrations]
        .iter()
        .all(|&offset| offset != 0);
    is_known && options.hooks.is_some() && calls.has_strings() && !options.strings.is_off()
}

/// Since this version the kernel's walk along a user stack has the direct caller of some functions at their
/// entry.
const ENTRIES_WALKED_SINCE: KernelVersion = KernelVersion::new(6, 11, 0);

fn user_entry(options: &ProgramOptions) -> u32 {
    let is_entry = |slot: &EventSlot| slot.flags & slot_flags::FUNCTION_ENTRY != 0;
    // Without the types of the kernel, programs cannot ask for a task's registers.
    if options.layout.task_pid == 0 || !options.slots.iter().any(is_entry) {
        return user_entry::NONE;
    }
    let walked = KernelVersion::running().is_none_or(|version| version >= ENTRIES_WALKED_SINCE);
    if walked { user_entry::ADDED_IF_MISSING } else { user_entry::ADDED }
}

/// The object, with its maps created. `maps` are those that there are already.
pub(super) fn create_object(
    options: &ProgramOptions,
    calls: &Table,
    [pages, ledger, slots]: [u32; 3],
    groups: &RateGroups,
    maps: Option<&SharedMaps>,
) -> Result<Object, LoadError> {
    let layout = &options.layout;
    // What comes later may be so, and the programs of a channel share its side queues.
    let is_changing = options.spare != 0;
    let preemptible = options.preemptible || is_changing || features::tracepoints_are_preemptible();
    let preempt = layout.preempt_count.unwrap_or_default();
    let ids = layout.ids.unwrap_or_default();
    let side_bytes = match (preemptible, options.sets) {
        // Nothing comes there that is not recorded.
        _ if options.map.is_some() => SIDE_BYTES,
        (false, _) => SIDE_BYTES,
        (true, _) if options.wake_each => SIDE_BYTES_OF_WATCH,
        (true, Some(_)) => SIDE_BYTES_OF_SET,
        (true, None) => SIDE_BYTES_PREEMPTIBLE,
    } as u32;
    let sets = options.set_count();
    let map = options.map.unwrap_or(Sizes { keys: 1, key_words: 1, value_words: 1, pair_words: 0 });
    let kernel_stack = stack_slot(options, StackKind::Kernel);
    let user_stack = stack_slot(options, StackKind::User);
    let is_thinned = options.slots.iter().any(|slot| slot.sample > 1 || slot.rate != 0);
    let words = [
        (globals::CLOCK, options.clock),
        (globals::OVERWRITE, options.overwrite.into()),
        (globals::WAKE_EACH, options.wake_each.into()),
        (globals::ASKING, options.asking.map_or(0, |slot| slot + 1)),
        (globals::FILTER_TASKS, options.filter_tasks.into()),
        (globals::FOLLOW_FORK, options.follow_fork.into()),
        (globals::SCOPE, options.scope),
        (
            globals::EVERY_THREAD,
            options.slots.iter().any(|slot| slot.flags & slot_flags::EVERY_THREAD != 0).into(),
        ),
        (globals::THINNED, is_thinned.into()),
        (globals::PLACES, options.rule.map_or(0, |first| places::of_rule(slots, first))),
        (globals::RATE_BY_GROUP, (!groups.is_empty()).into()),
        (globals::CHANGING, if is_changing { options.generation.max(1) } else { 0 }),
        (globals::EXCLUDES_SELF, options.exclude_tgid.is_some().into()),
        (globals::SLOTS, slots),
        (globals::RING_SETS, options.sets.map_or(0, |sets| sets.count)),
        (globals::RING_SETS_BY, options.sets.map_or(0, |sets| sets.by)),
        (globals::ROWS_OF_SET, options.possible_cpus),
        (globals::TASK_PID, layout.task_pid),
        (globals::TASK_TGID, layout.task_tgid),
        (globals::TASK_COMM, layout.task_comm),
        (globals::TASK_MIGRATION, layout.task_migration),
        (globals::RAW_MIGRATION, features::tracepoints_are_preemptible().into()),
        (globals::TASK_MM, layout.task_mm),
        (globals::TASK_NR_MIGRATIONS, layout.task_nr_migrations),
        (globals::TASK_LAZY_COUNT, layout.task_lazy_count),
        (globals::TASK_STATUS, layout.task_status),
        (globals::COUNTS_COMPAT, if options.map.is_none() { options.generation } else { 0 }),
        (globals::NAMED_ENTER, calls.calls.values().any(|call| call.enter != 0).into()),
        (globals::NAMED_EXIT, calls.calls.values().any(|call| call.exit != 0).into()),
        (globals::NAMED_FLAGS, call_flags()),
        (globals::NAMED_STRINGS, calls.has_strings().into()),
        (globals::STRING_LIMIT, options.strings.bytes()),
        (globals::LATE_STRINGS, has_late_strings(options, calls).into()),
        (globals::RAW_ENTER, calls.raw_enter.0),
        (globals::RAW_ENTER_ID, calls.raw_enter.1),
        (globals::RAW_EXIT, calls.raw_exit.0),
        (globals::RAW_EXIT_ID, calls.raw_exit.1),
        (globals::PREEMPTIBLE, preemptible.into()),
        (globals::SIDE_BYTES, side_bytes),
        (globals::KERNEL_STACK, kernel_stack.0),
        (globals::KERNEL_STACK_ID, kernel_stack.1),
        (globals::USER_STACK, user_stack.0),
        (globals::USER_STACK_ID, user_stack.1),
        (globals::USER_ENTRY, user_entry(options)),
        (globals::TASK_SIGNAL, ids.task_signal),
        (globals::SIGNAL_TGID, ids.signal_tgid),
        (globals::PID_LEVEL, ids.pid_level),
        (globals::PID_NR, ids.pid_nr),
        (globals::UPID_SIZE, ids.upid_size),
        (globals::TASK_CRED, ids.task_cred),
        (globals::CRED_UID, ids.cred_uid),
        (globals::CRED_GID, ids.cred_gid),
        (globals::CRED_USER_NS, ids.cred_user_ns),
        (globals::USER_NS_UID_MAP, ids.uid_map),
        (globals::USER_NS_GID_MAP, ids.gid_map),
        (globals::ID_MAP_COUNT, ids.map_count),
        (globals::ID_MAP_EXTENTS, ids.map_extents),
        (globals::ID_MAP_REVERSE, ids.map_reverse),
        (globals::OVERFLOW_UID, ids::overflow(Owner::User)),
        (globals::OVERFLOW_GID, ids::overflow(Owner::Group)),
        (globals::AGGREGATE_KEY_WORDS, map.key_words),
        (globals::AGGREGATE_KEYS_MAX, map.keys),
        (globals::AGGREGATE_INDEX_MASK, map.index() - 1),
        (globals::AGGREGATE_START_WORDS, map.pair_words),
        (globals::AGGREGATE_STARTS_MASK, map.starts() - 1),
        (globals::TASK_CFS_RQ, preempt.task_cfs_rq),
        (globals::CFS_RQ_RQ, preempt.cfs_rq_rq),
        (globals::RQ_CPU, preempt.rq_cpu),
        (globals::INT_HOLDER, layout.any_load.map_or(0, |load| load.int_holder.0)),
        (globals::FLAG_PREEMPT_RESCHED, layout.flag_preempt_resched),
        (globals::PREEMPT_NEED_RESCHED, cfg!(any(target_arch = "x86", target_arch = "x86_64")).into()),
    ];
    let words = words.map(|(name, value)| (name, value.to_ne_bytes()));
    let distance = preempt.rq_to_count.to_ne_bytes();
    let mut constants: Vec<(&'static str, &[u8])> =
        words.iter().map(|(name, value)| (*name, value.as_slice())).collect();
    constants.push((globals::RQ_TO_PREEMPT, &distance));
    // The levels of both crates have the same numbers (`Level` of aya-log-common).
    #[cfg(feature = "debug-programs")]
    let level = [log::max_level() as u8];
    #[cfg(feature = "debug-programs")]
    constants.push((aya_log::LEVEL, &level));
    let table = |name, elements, len| FlatArray { name, elements, len };
    let tables = [
        table("PAGES", pages, globals::PAGES_LEN),
        table("CONTROL", options.possible_cpus.saturating_mul(sets), globals::CONTROL_LEN),
        table("LEDGER", ledger, globals::LEDGER_LEN),
        table("SETS", options.set_lines.max(1), globals::SETS_LEN),
        table("STRING_NOTES", options.possible_cpus, globals::STRING_NOTES_LEN),
        table("AGGREGATE_INDEX", map.index(), globals::AGGREGATE_INDEX_LEN),
    ];
    let side_queues = (options.ring_cpus.len() as u32).saturating_mul(sets);
    let side_queues = if options.map.is_some() { 1 } else { side_queues.max(1) };
    let sizes = [
        ("PAGE_META", pages),
        ("SIDE", side_queues),
        ("AGGREGATE_KEYS", map.keys),
        (
            "AGGREGATE_VALUES",
            if options.map.is_some() { map.keys.saturating_mul(options.possible_cpus) } else { 1 },
        ),
        ("AGGREGATE_STARTS", map.starts()),
        ("AGGREGATE_LOST", options.possible_cpus),
        ("OWNERS", sets),
        ("EVENTS", slots),
        ("ENABLED", if is_changing { slots } else { 1 }),
        ("BORDER_ROWS", slots),
        ("RATES", if options.wake_each { places::words(slots) } else { slots }),
        ("RATE_GROUPS", groups.len().max(1) as u32),
        ("CALL_OWNERS", if options.tracks_calls { CALL_BUCKETS as u32 } else { 1 }),
        ("CALLS", if options.tracks_calls { (CALL_BUCKETS * CALL_WAYS) as u32 } else { 1 }),
        ("WAKE", options.ring_cpus.len().div_ceil(options.cpus_per_reader.max(1)).max(1) as u32),
    ];
    let cast = layout.any_load.map(|load| load.cast);
    let definitions = Definitions {
        globals: &constants,
        tables: &tables,
        sizes: &sizes,
        value_sizes: &[
            ("SIDE", side_bytes),
            ("AGGREGATE_KEYS", map.key_words.max(1) * 8),
            ("AGGREGATE_VALUES", map.value_words * 8),
            ("AGGREGATE_STARTS", (1 + map.pair_words) * 8),
        ],
        inner_bytes: WAKE_BYTES,
        owned_rings: options.sets.is_some(),
        may_inline: (kernel_stack.0, user_stack.0) == (0, 0),
        given: maps,
    };
    Object::create(OBJECT, &definitions, cast)
}

/// The slot of these stacks plus 1, and the event's id; zeros if no event is followed by them.
fn stack_slot(options: &ProgramOptions, kind: StackKind) -> (u32, u32) {
    let found = options.lanes.iter().position(|lane| matches!(lane, Lane::Stack(of) if *of == kind));
    found.map_or((0, 0), |index| (index as u32 + 1, options.slots[index].id.into()))
}

#[cfg(test)]
mod tests {
    use agent_ebpf::rate::{GROUPS, PROBES, places};

    /// How many of these groups, all of which have an event in the same second, find no place.
    fn without_place(groups: impl Iterator<Item = u64>) -> usize {
        let mut taken = [false; GROUPS];
        groups
            .filter(|&group| {
                let (first, step) = places(group);
                let mut own = (0..u64::from(PROBES))
                    .map(|probe| first.wrapping_add(probe.wrapping_mul(step)) as usize % GROUPS);
                let free = own.find(|&place| !taken[place]);
                free.map(|place| taken[place] = true).is_none()
            })
            .count()
    }

    /// A directory of a group has as many files as there are controllers, and each has a number.
    #[test]
    fn groups_whose_numbers_are_at_any_distance_have_places_of_their_own() {
        let without = (1..200).map(|distance| without_place((0..200).map(|group| 1000 + group * distance)));
        assert!(without.clone().all(|count| count <= 1));
        assert!(without.sum::<usize>() <= 10);
    }
}
