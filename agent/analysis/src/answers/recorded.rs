//! What a file says about which events were recorded.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Followed, KnownEvents, Need, Scope, Topic, Unjoined, Unseen, followed::Choice, pairs::is_of};
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{EventTable, Printer};
use tracedat::ledger::{EventChoice, Ledger, LedgerEvent, LedgerSilent, Pause};
use tracedat::reader::{Reader, Source};

/// An event that an analysis uses, and that was not recorded each time that it fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partly {
    /// `system:name`.
    pub event: String,
    /// The buffer; empty for the one that every file has.
    pub buffer: String,
    /// Only what matches was recorded.
    pub filter: Option<String>,
    /// How often its filter left it out, and the choice of threads that were recorded.
    pub filtered: u64,
    /// How often it was left out as the recorder's own.
    pub own_threads: u64,
    /// Whether it was left out of interrupts, too, that came while a thread had a CPU that was left out.
    pub without_interrupts: bool,
    /// How often sampling left it out.
    pub sampled_out: u64,
    /// From when on it was recorded, if not from the beginning.
    pub since_ns: Option<u64>,
    /// Up to when, if not to the end.
    pub until_ns: Option<u64>,
}

/// Which threads a recording follows, which beginnings cannot be joined with ends, and whether records do not
/// say whether they were made in interrupts.
pub fn followed_and_unjoined<S: Source>(
    reader: &Reader<S>,
    events: &EventTable,
) -> (Followed, Unjoined, bool) {
    let recorded = Recorded::of(reader);
    (recorded.followed(events, None), recorded.unjoined(events, None), recorded.lacks_contexts)
}

/// Which events were recorded, and of what.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the ledgers")]
pub(super) struct Recorded {
    /// What our recorder says of each that fired, of all recordings that the file was merged of; others say
    /// nothing.
    rows: Vec<LedgerEvent>,
    /// Which firings of events were recorded: of these, or of all where there are no counts.
    choices: Vec<EventChoice>,
    /// Events that did not fire.
    silent: Vec<LedgerSilent>,
    /// When nothing was, by the recording's clock.
    pub(super) pauses: Vec<Pause>,
    /// Which threads and CPUs were recorded, if not all.
    pub(super) only: Vec<String>,
    /// Whether threads that were left out left out interrupts, too.
    leaves_out_interrupts: bool,
    /// Whether records do not say whether they were made in interrupts.
    pub(super) lacks_contexts: bool,
    /// The events that each of several recordings had, of which the file was merged.
    everywhere: Option<BTreeSet<String>>,
    /// What is not known of system calls of 32-bit programs.
    pub(super) compat: CompatCalls,
    /// Whether the file was merged of several recordings.
    is_merged: bool,
    /// Whether others were chosen in one of them than in another.
    is_mixed: bool,
}

/// What ledgers say of system calls of 32-bit programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompatCalls {
    /// How many events of single calls left out that no event of all calls has. `None` if that is not known.
    pub(super) missing: Option<u64>,
    /// Whether a recording has their numbers marked.
    some_marked: bool,
    /// Whether one has them unmarked.
    some_unmarked: bool,
    /// Whether one does not say which.
    some_unsaid: bool,
}

impl CompatCalls {
    /// Of one of the recordings that a file was merged of.
    fn of(ledger: &Ledger) -> Self {
        let has = |events: &str| ledger.event_names().any(|event| event.starts_with(events));
        let lacks = |single: &str, all: &str| has(single) && !ledger.has_all_of(all);
        let lacks_some = lacks("syscalls:sys_enter_", "raw_syscalls:sys_enter")
            || lacks("syscalls:sys_exit_", "raw_syscalls:sys_exit");
        Self {
            missing: if !has("") || lacks_some { ledger.compat_calls } else { Some(0) },
            some_marked: ledger.marks_compat == Some(true),
            some_unmarked: ledger.marks_compat == Some(false),
            // Imports do not say which events they have.
            some_unsaid: ledger.marks_compat.is_none() && (!has("") || has("raw_syscalls:")),
        }
    }

    /// Of two recordings.
    fn and(self, other: Self) -> Self {
        let both = self.missing.zip(other.missing);
        Self {
            missing: both.map(|(of, others)| of.saturating_add(others)),
            some_marked: self.some_marked || other.some_marked,
            some_unmarked: self.some_unmarked || other.some_unmarked,
            some_unsaid: self.some_unsaid || other.some_unsaid,
        }
    }

    /// Whether calls that were recorded look like calls of 64 bits, of a file that `has_calls` of all kinds,
    /// of a machine with these. `None` if that is not known.
    pub(super) fn are_unmarked(self, has_calls: bool, table: Option<SyscallTable>) -> Option<bool> {
        let may_be = has_calls && matches!(table, Some(SyscallTable::X86_64 | SyscallTable::Aarch64));
        let is_unsaid = self.some_unsaid || !self.some_marked;
        if may_be && self.some_unmarked { Some(true) } else { (!may_be || !is_unsaid).then_some(false) }
    }
}

/// Whether one of several events was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WasRecorded {
    Yes,
    No,
    /// The file describes it, which files do of other events as well.
    Perhaps,
}

impl Recorded {
    pub(super) fn of<S: Source>(reader: &Reader<S>) -> Self {
        Self::of_ledgers(Ledger::all_of(reader))
    }

    fn of_ledgers(ledgers: impl IntoIterator<Item = Ledger>) -> Self {
        let mut recorded = Self::default();
        for (number, ledger) in ledgers.into_iter().enumerate() {
            let choices = ledger.event_choices();
            let silent = ledger.silent.iter().flatten().flat_map(|of| &of.events);
            let its: BTreeSet<&String> = choices.iter().map(|choice| &choice.event).chain(silent).collect();
            match &mut recorded.everywhere {
                Some(all) => all.retain(|event| its.contains(event)),
                None => recorded.everywhere = Some(its.into_iter().cloned().collect()),
            }
            recorded.choices.extend(choices);
            let compat = CompatCalls::of(&ledger);
            recorded.compat = if number == 0 { compat } else { recorded.compat.and(compat) };
            let Ledger { events, silent, pauses, only, leaves_out_interrupts, lacks_contexts, .. } = ledger;
            recorded.lacks_contexts |= lacks_contexts;
            recorded.rows.extend(events.into_iter().flatten());
            recorded.silent.extend(silent.into_iter().flatten());
            recorded.leaves_out_interrupts |= leaves_out_interrupts;
            if number == 0 {
                (recorded.pauses, recorded.only) = (pauses, only);
            } else {
                recorded.is_merged = true;
                recorded.is_mixed |= recorded.only != only;
            }
        }
        recorded
    }

    /// Of a recording that goes on: which threads and CPUs are recorded, in the words of a ledger, and which
    /// firings of events.
    pub(super) fn of_choice(only: &[String], choices: &[EventChoice]) -> Self {
        Self { only: only.to_vec(), choices: choices.to_vec(), ..Self::default() }
    }

    /// Whether this is what was known already of a recording that goes on.
    pub(super) fn is_choice(&self, only: &[String], choices: &[EventChoice]) -> bool {
        (self.only.as_slice(), self.choices.as_slice()) == (only, choices)
    }

    /// Whether the same firings are chosen as in another one, whichever events there are.
    pub(super) fn chooses_as(&self, other: &Self) -> bool {
        let choices = |of: &Self| {
            let choices = of.choices.iter().filter(|choice| choice.every_thread || choice.is_chosen());
            choices.cloned().collect::<Vec<_>>()
        };
        self.only == other.only && choices(self) == choices(other)
    }

    /// Which beginnings cannot be joined with ends, for an analysis.
    pub(super) fn unjoined(&self, events: &EventTable, topic: Option<Topic>) -> Unjoined {
        // Waits for futexes are system calls, which go on until they are seen to end.
        let goes_on = topic == Some(Topic::Locks);
        let mut unjoined = Unjoined::of(events, &self.choices, &self.threads_and_cpus(), goes_on);
        unjoined.unseen = self.unseen();
        unjoined
    }

    /// Which halves of pairs were not recorded each time.
    fn unseen(&self) -> Unseen {
        let mut recorded: BTreeMap<&str, bool> = self.events(None).map(|event| (&**event, true)).collect();
        for choice in self.choices.iter().filter(|choice| choice.is_chosen()) {
            recorded.insert(&choice.event, false);
        }
        Unseen::of(&recorded)
    }

    /// Which threads the recording follows, or one of its buffers.
    pub(super) fn followed(&self, events: &EventTable, buffer: Option<&str>) -> Followed {
        // Merging gives buffers other names.
        let is_of_buffer = |of: &str| self.is_merged || buffer.is_none_or(|buffer| is_of_channel(buffer, of));
        let are_switches_chosen = self.choices.iter().any(|choice| {
            choice.event == "sched:sched_switch" && choice.is_chosen() && is_of_buffer(&choice.channel)
        });
        let choice = self.threads_and_cpus().unless(are_switches_chosen);
        Followed::new(events, choice, &|event| self.is_of_every_thread(event))
    }

    /// Which threads and CPUs were recorded.
    fn threads_and_cpus(&self) -> Choice {
        Choice::of(&self.only).unless(self.is_mixed)
    }

    /// Whether an event was recorded of every thread, whatever the scope.
    fn is_of_every_thread(&self, event: &Printer) -> bool {
        self.choices.iter().any(|choice| choice.every_thread && is_of(choice, event))
    }

    /// The events that were recorded, or those of a buffer, as far as the file says so: `system:name`.
    pub(super) fn events<'r>(&'r self, buffer: Option<&'r str>) -> impl Iterator<Item = &'r String> {
        let is_asked = move |of: &str| buffer.is_none_or(|buffer| is_of_channel(buffer, of));
        let choices = self.choices.iter().filter(move |choice| is_asked(&choice.channel));
        let silent = self.silent.iter().filter(move |of| is_asked(&of.channel));
        let events = choices.map(|choice| &choice.event).chain(silent.flat_map(|of| &of.events));
        // What one recording has tells nothing of the time of another one.
        events.filter(|event| self.everywhere.as_ref().is_none_or(|all| all.contains(*event)))
    }

    /// Whether an event that meets a need was recorded, in any buffer or in this one, of which there are no
    /// records that are understood.
    pub(super) fn meets(
        &self,
        events: &EventTable,
        known: &KnownEvents,
        need: &Need,
        buffer: Option<&str>,
    ) -> WasRecorded {
        let is_its = |event: &Printer| need.is_met_by(event.system(), event.name());
        let is_described =
            || events.iter().any(|event| is_its(event) && !known.is_foreign(event.format().id));
        let is_recorded = |event: &&String| is_met_by(need, event) && !is_foreign(events, known, event);
        if self.events(buffer).any(|event| is_recorded(&event)) {
            WasRecorded::Yes
        } else if is_described() {
            WasRecorded::Perhaps
        } else {
            WasRecorded::No
        }
    }

    /// The events of an analysis that were recorded in part.
    pub(super) fn partly(&self, topic: Topic, scope: &Scope) -> Vec<Partly> {
        let rows = self.rows.iter();
        let is_used = |row: &&LedgerEvent| {
            scope.buffer.as_ref().is_none_or(|buffer| is_of_channel(buffer, &row.channel))
                && topic.needs().iter().any(|need| is_met_by(need, &row.event))
        };
        let partly = rows.filter(is_used).map(|row| Partly {
            event: row.event.clone(),
            buffer: row.channel.clone(),
            filter: row.filter.clone(),
            filtered: row.filtered,
            own_threads: row.own_threads,
            without_interrupts: self.leaves_out_interrupts && may_be_of_interrupt(row),
            sampled_out: row.sampled_out,
            since_ns: row.since_ns,
            until_ns: row.until_ns,
        });
        partly.filter(Partly::is_less).collect()
    }
}

impl Partly {
    /// Whether anything was left out.
    fn is_less(&self) -> bool {
        // What is left out without a filter of its own are threads that were not to be recorded, the
        // recorder's among them.
        let Self { filter, without_interrupts, sampled_out, since_ns, until_ns, .. } = self;
        let is_always = since_ns.is_none() && until_ns.is_none();
        filter.is_some() || *without_interrupts || *sampled_out != 0 || !is_always
    }
}

/// Whether an event was left out for its thread, and perhaps of an interrupt: not system calls.
fn may_be_of_interrupt(row: &LedgerEvent) -> bool {
    let system = row.event.split_once(':').map_or("", |(system, _)| system);
    row.filtered.saturating_add(row.own_threads) != 0 && !["syscalls", "raw_syscalls"].contains(&system)
}

/// Whether a buffer is of a channel: a set of rings has its channel's name, and behind it whose it is.
fn is_of_channel(buffer: &str, channel: &str) -> bool {
    buffer.strip_prefix(channel).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Whether records of an event are not understood: their fields are not the kernel's, or they are texts.
pub(super) fn is_foreign(events: &EventTable, known: &KnownEvents, event: &str) -> bool {
    let Some((system, name)) = event.split_once(':') else { return false };
    events.iter().filter(|event| event.name() == name).any(|event| {
        event.system() == "text" || event.system() == system && known.is_foreign(event.format().id)
    })
}

fn is_met_by(need: &Need, event: &str) -> bool {
    event.split_once(':').is_some_and(|(system, name)| need.is_met_by(system, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::syscalls::CallNames;

    /// Which of these events were recorded in part, and whether without interrupts.
    fn partly(leaves_out_interrupts: bool, rows: &[(&str, u64, u64)]) -> Vec<(String, bool)> {
        let row = |&(event, filtered, own_threads): &(&str, u64, u64)| LedgerEvent {
            event: event.to_owned(),
            filtered,
            own_threads,
            ..LedgerEvent::default()
        };
        let rows = rows.iter().map(row).collect();
        let recorded = Recorded { rows, leaves_out_interrupts, ..Recorded::default() };
        let topics = [Topic::Io, Topic::Syscalls].into_iter();
        let partly = topics.flat_map(|topic| recorded.partly(topic, &Scope::default()));
        partly.map(|of| (of.event, of.without_interrupts)).collect()
    }

    fn choice(channel: &str, event: &str) -> EventChoice {
        EventChoice { channel: channel.to_owned(), event: event.to_owned(), ..EventChoice::default() }
    }

    #[test]
    fn events_are_those_of_a_buffer_or_of_all() {
        let choices = [choice("", "a:a"), choice("net", "b:b"), choice("network", "c:c")];
        let recorded = Recorded::of_choice(&[], &choices);
        let of = |buffer| recorded.events(buffer).cloned().collect::<Vec<_>>();
        assert_eq!(of(None), ["a:a", "b:b", "c:c"]);
        assert_eq!(of(Some("net")), ["b:b"]);
        assert_eq!(of(Some("net:1000")), ["b:b"]);
        let events = EventTable::new(ftrace_event::Machine::default());
        let need = Topic::Irq.needs().iter().find(|need| !need.is_required).unwrap();
        let recorded = Recorded::of_choice(&[], &[choice("net", need.events[0])]);
        let known = KnownEvents::of(&events, &CallNames::default(), |_| true);
        let meets = |buffer| recorded.meets(&events, &known, need, buffer);
        assert_eq!(
            [None, Some("net"), Some("x")].map(meets),
            [WasRecorded::Yes, WasRecorded::Yes, WasRecorded::No]
        );
    }

    #[test]
    fn a_merged_file_has_the_events_that_all_its_recordings_have() {
        let ledger = |event: &str, silent: &str, only: &[&str]| Ledger {
            only: only.iter().map(|only| (*only).to_owned()).collect(),
            events: Some(vec![LedgerEvent { event: event.to_owned(), ..LedgerEvent::default() }]),
            silent: Some(vec![LedgerSilent { channel: String::new(), events: vec![silent.to_owned()] }]),
            ..Ledger::default()
        };
        let ledgers = [ledger("a:a", "b:b", &["x"]), ledger("b:b", "d:d", &[])];
        let recorded = Recorded::of_ledgers(ledgers);
        let events: BTreeSet<_> = recorded.events(None).collect();
        assert_eq!(events, BTreeSet::from([&"b:b".to_owned()]));
        assert_eq!((recorded.rows.len(), recorded.is_merged, recorded.is_mixed), (2, true, true));
    }

    #[test]
    fn firings_are_chosen_as_before_whichever_events_there_are() {
        let sampled = EventChoice { is_sampled: true, ..choice("", "b:b") };
        let of = |choices: &[EventChoice]| Recorded::of_choice(&[], choices);
        let (before, more) = (of(std::slice::from_ref(&sampled)), of(&[choice("", "a:a"), sampled]));
        assert!(before.chooses_as(&more) && !before.chooses_as(&of(&[])));
    }

    #[test]
    fn calls_of_32_bit_programs_are_those_of_all_merged_recordings() {
        let row = |event: &str| LedgerEvent { event: event.to_owned(), ..LedgerEvent::default() };
        let ledger = |events: &[&str], compat_calls, marks_compat| Ledger {
            events: Some(events.iter().map(|event| row(event)).collect()),
            compat_calls,
            marks_compat,
            ..Ledger::default()
        };
        let single = ["syscalls:sys_enter_openat"];
        let both = ["syscalls:sys_enter_openat", "raw_syscalls:sys_enter"];
        let all = ["raw_syscalls:sys_enter"];
        let mut ledgers = Vec::new();
        for (ledger, missing, are_unmarked) in [
            (ledger(&all, None, Some(true)), Some(0), Some(false)),
            (ledger(&single, Some(3), None), Some(3), Some(false)),
            (ledger(&both, Some(5), Some(true)), Some(3), Some(false)),
            (ledger(&["sched:sched_switch"], None, None), Some(3), Some(false)),
            (ledger(&all, None, None), Some(3), None),
            (ledger(&all, None, Some(false)), Some(3), Some(true)),
            (ledger(&single, Some(u64::MAX), None), Some(u64::MAX), Some(true)),
            (ledger(&single, None, None), None, Some(true)),
        ] {
            ledgers.push(ledger);
            let compat = Recorded::of_ledgers(ledgers.clone()).compat;
            let unmarked = compat.are_unmarked(true, SyscallTable::of_machine("x86_64"));
            assert_eq!((compat.missing, unmarked), (missing, are_unmarked), "{}", ledgers.len());
        }
        let merged = Recorded::of_ledgers(vec![ledger(&all, None, Some(true)), Ledger::default()]).compat;
        assert_eq!(merged.are_unmarked(true, SyscallTable::of_machine("x86_64")), None);
        let unmarked = Recorded::of_ledgers(vec![ledger(&all, None, Some(false))]).compat;
        assert_eq!(unmarked.are_unmarked(false, SyscallTable::of_machine("x86_64")), Some(false));
        // Files without ledgers, and imports, whose ledgers have no events.
        for ledgers in [vec![], vec![Ledger::default()]] {
            let compat = Recorded::of_ledgers(ledgers).compat;
            let unmarked =
                |has_calls, machine| compat.are_unmarked(has_calls, SyscallTable::of_machine(machine));
            assert_eq!(compat.missing, None);
            assert_eq!([unmarked(true, "x86_64"), unmarked(true, "aarch64")], [None; 2]);
            assert_eq!([unmarked(false, "x86_64"), unmarked(true, "riscv64")], [Some(false); 2]);
        }
    }

    #[test]
    fn no_call_of_a_32_bit_program_is_missing_where_every_call_was_recorded() {
        let single =
            || LedgerEvent { event: "syscalls:sys_enter_openat".to_owned(), ..LedgerEvent::default() };
        let all = || LedgerEvent { event: "raw_syscalls:sys_enter".to_owned(), ..LedgerEvent::default() };
        let exit = || LedgerEvent { event: "syscalls:sys_exit_openat".to_owned(), ..LedgerEvent::default() };
        let buffer = |of: LedgerEvent| LedgerEvent { channel: "other".to_owned(), ..of };
        for (rows, missing) in [
            (vec![single(), all()], 0),
            (vec![single(), buffer(all())], 0),
            (vec![single()], 9),
            (vec![single(), exit(), all()], 9),
            (vec![single(), LedgerEvent { filter: Some("id == 1".to_owned()), ..all() }], 9),
            (vec![single(), LedgerEvent { sampled_out: 1, ..all() }], 9),
            (vec![single(), LedgerEvent { since_ns: Some(101), ..all() }], 9),
            (vec![single(), LedgerEvent { since_ns: Some(100), ..all() }], 0),
            (vec![single(), LedgerEvent { until_ns: Some(1), ..all() }], 9),
        ] {
            let covered = Some(tracedat::ledger::Covered { from_ns: 100, to_ns: 200 });
            let ledger = Ledger { events: Some(rows), covered, compat_calls: Some(9), ..Ledger::default() };
            assert_eq!(CompatCalls::of(&ledger).missing, Some(missing), "{ledger:?}");
        }
        let silent = vec![LedgerSilent { channel: String::new(), events: vec![all().event] }];
        let ledger = Ledger {
            events: Some(vec![single()]),
            silent: Some(silent),
            compat_calls: Some(9),
            ..Ledger::default()
        };
        assert_eq!(CompatCalls::of(&ledger).missing, Some(0));
        let choice = |event: &str| choice("", event);
        let choices = vec![choice("syscalls:sys_enter_openat"), choice("raw_syscalls:sys_enter")];
        let ledger = Ledger { choices, compat_calls: Some(9), ..Ledger::default() };
        assert_eq!(CompatCalls::of(&ledger).missing, Some(0));
    }

    #[test]
    fn events_of_interrupts_may_be_missing_where_threads_leave_them_out() {
        let rows = [
            ("block:block_rq_issue", 0, 0),
            ("block:block_rq_complete", 0, 3),
            ("block:block_rq_insert", 4, 0),
            ("raw_syscalls:sys_enter", 5, 6),
        ];
        assert_eq!(partly(false, &rows), []);
        let missing = partly(true, &rows);
        assert!(missing.contains(&("block:block_rq_complete".to_owned(), true)), "{missing:?}");
        assert!(missing.iter().all(|(event, _)| event.starts_with("block:") && !event.ends_with("issue")));
    }
}
