//! What a source has of the recording that it was exported from.

use std::collections::{BTreeMap, BTreeSet};

use stdx::escapes;
use tracedat::Uname;
use tracedat::initial_state::Host;
use tracedat::ledger::{EventChoice, Ledger, LedgerCpu};
use tracedat::provenance::{BufferName, Provenance, Texts, Threads};

use crate::sink::is_of_state_dump;
use crate::{BufferId, Sink};

/// The provenance that a source has, if it has any: all but times, clocks and names of buffers is taken.
/// Members that are damaged are counted.
pub(crate) fn take(texts: Texts, sink: &mut Sink<'_>) -> Option<Provenance> {
    if texts.is_empty() {
        return None;
    }
    let (provenance, damaged) = texts.finish();
    for member in damaged {
        sink.not_carried(format!("descriptions of the recording that are damaged: {member}"), 1);
    }
    let facts = &mut sink.facts;
    if let Some(machine) = &provenance.machine {
        let Host { hostname, sysname, release, version, machine: architecture, .. } = machine.host.clone();
        let version = if architecture.is_empty() { String::new() } else { version };
        facts.uname = Uname { system: sysname, node: hostname, release, version, machine: architecture };
    }
    if let Some(recorder) = &provenance.recorder {
        recorder.version.clone_into(&mut facts.recorder);
    }
    facts.provenance.clone_from(&provenance);
    facts.provenance.threads = Threads::default();
    facts.provenance.events = Vec::new();
    Some(provenance)
}

/// Declares the buffers, so that they have the order of the recording. Gives their names by those that they
/// have in the source.
pub(crate) fn buffers(names: &[BufferName], sink: &mut Sink<'_>) -> BTreeMap<String, BufferId> {
    let mut found = BTreeMap::new();
    for BufferName { name, renamed } in names {
        let id = sink.buffer(name);
        found.entry(renamed.clone()).or_insert(id);
    }
    found
}

/// Takes the names of threads and their processes: after those that records tell.
pub(crate) fn threads(threads: &Threads, sink: &mut Sink<'_>) {
    for (tid, tgid, name) in &threads.list {
        let is_later = threads.at_start && sink.task_name(*tid).is_some();
        if !name.is_empty() && !is_later {
            sink.task(*tid, &escapes::unescaped(name.as_bytes()));
        }
        if *tgid != 0 {
            sink.process(*tid, *tgid);
        }
    }
}

/// The counts of a source. Those of CPUs are in its ledger.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// For each CPU of the ledger, how many of its records are an exporter's state dump, which no recording
    /// counts.
    pub(crate) dumped: Vec<u64>,
    /// Records by buffer and event (`system:name`), without those of a state dump.
    pub(crate) events: ByEvent,
}

/// Records by buffer and event.
pub(crate) type ByEvent = BTreeMap<String, BTreeMap<String, u64>>;

/// The ledgers of an imported file: `own` has the counts of its CPUs and its clock, and gets what was chosen
/// and left out from the first one of the recording.
///
/// Somebody may have cut the source since it was exported. Counts of the recording are taken only if the
/// source has as many records as they say.
pub(crate) fn ledgers(
    own: Ledger,
    counted: &Counted,
    of_recording: &[Ledger],
    most_cpus: u32,
) -> Vec<Ledger> {
    let Some((first, others)) = of_recording.split_first() else { return vec![own] };
    let key = |row: &LedgerCpu| (row.channel.clone(), row.cpu);
    let Counted { dumped, events } = counted;
    // An import that lacked them was exported with zeros in their place.
    let lacks_contexts = own.lacks_contexts || of_recording.iter().any(|ledger| ledger.lacks_contexts);
    let has_events = has_events(of_recording, events);
    let dumped = dumped.iter().copied().chain(std::iter::repeat(0));
    let counted: BTreeMap<_, (u64, u64)> = own
        .cpus
        .iter()
        .zip(dumped)
        .map(|(row, dumped)| (key(row), (row.stored.unwrap_or(0), dumped)))
        .collect();
    // Recordings that follow one another have ledgers with rows of the same CPUs.
    let mut of_cpus: BTreeMap<_, Vec<&LedgerCpu>> = BTreeMap::new();
    for row in of_recording.iter().filter(|ledger| !ledger.part).flat_map(|ledger| &ledger.cpus) {
        of_cpus.entry(key(row)).or_default().push(row);
    }
    of_cpus.retain(|key, rows| {
        let (stored, dumped) = counted.get(key).copied().unwrap_or_default();
        let sum = rows.iter().try_fold(0_u64, |sum, row| sum.checked_add(row.stored?));
        sum.is_some_and(|count| count == stored || count.checked_add(dumped) == Some(stored))
    });
    let has_all = |ledger: &Ledger| {
        has_events && !ledger.part && ledger.cpus.iter().all(|row| of_cpus.contains_key(&key(row)))
    };
    // Further ledgers of a file that was imported have no rows.
    let has_all_of_all = of_recording.iter().all(has_all) && !of_cpus.is_empty();
    let of_file = |ledger: &Ledger| {
        let is_whole = if ledger.cpus.is_empty() { has_all_of_all } else { has_all(ledger) };
        if is_whole { ledger.clone() } else { of_part(ledger, events) }
    };
    let mut rows: BTreeMap<_, LedgerCpu> = of_cpus
        .iter()
        .filter_map(|(key, rows)| match rows[..] {
            [row] if row.cpu < most_cpus => Some((key.clone(), row.clone())),
            _ => None,
        })
        .collect();
    let mut cpus: Vec<LedgerCpu> = own
        .cpus
        .into_iter()
        .map(|row| match rows.remove(&key(&row)) {
            Some(of_recording) => joined(row, of_recording),
            None => row,
        })
        .collect();
    // What nothing was recorded of.
    cpus.extend(rows.into_values().filter(|row| row.stored.unwrap_or(0) == 0 && row.lost_in_all() == 0));
    let ledger = Ledger {
        version: own.version,
        imported: own.imported.clone(),
        lacks_contexts,
        clock: own.clock.clone(),
        realtime_offset_ns: own.realtime_offset_ns,
        realtime_uncertainty_ns: own.realtime_uncertainty_ns,
        cpus,
        ..of_file(first)
    };
    let others = others.iter().map(|other| Ledger {
        version: own.version,
        imported: own.imported.clone(),
        lacks_contexts,
        cpus: Vec::new(),
        ..of_file(other)
    });
    std::iter::once(ledger).chain(others).collect()
}

/// Whether a source can have all records that ledgers count by event.
///
/// An import may give events other names. Those whose names are not in the ledgers are counted together.
fn has_events(of_recording: &[Ledger], found: &ByEvent) -> bool {
    let mut told = ByEvent::new();
    for ledger in of_recording {
        // Without its counts, any number may be right.
        let Some(rows) = &ledger.events else { return true };
        for row in rows.iter().filter(|row| !is_state_dump(&row.event)) {
            let count = told.entry(row.channel.clone()).or_default().entry(row.event.clone()).or_default();
            *count = count.saturating_add(row.recorded);
        }
    }
    let mut stored: BTreeMap<&str, u64> = BTreeMap::new();
    for row in of_recording.iter().flat_map(|ledger| &ledger.cpus) {
        let sum = stored.entry(&row.channel).or_default();
        *sum = sum.saturating_add(row.stored.unwrap_or(0));
    }
    let none = BTreeMap::new();
    let channels: BTreeSet<&String> = told.keys().chain(found.keys()).collect();
    channels.into_iter().all(|channel| {
        let [told, found] = [&told, found].map(|of| of.get(channel).unwrap_or(&none));
        let sum = |of: &BTreeMap<String, u64>| of.values().copied().fold(0, u64::saturating_add);
        let stored = stored.get(channel.as_str()).copied().unwrap_or(0);
        // Of what was recorded, some may not have reached the file; a ledger may not have all that it counts.
        let (is_all, has_others) = (sum(told) == stored, sum(told) < stored);
        let is_possible = |found: u64, told: u64| if is_all { found == told } else { found <= told };
        let (mut others_found, mut others_told) = (sum(found), 0_u64);
        let are_known_possible = told.iter().all(|(event, told)| {
            let Some(found) = found.get(event) else {
                others_told = others_told.saturating_add(*told);
                return true;
            };
            others_found = others_found.saturating_sub(*found);
            is_possible(*found, *told)
        });
        are_known_possible && (has_others || is_possible(others_found, others_told))
    })
}

fn is_state_dump(event: &str) -> bool {
    event.split_once(':').is_some_and(|(_, name)| is_of_state_dump(name))
}

/// The ledger of a recording of which the file has a part only: what was recorded and chosen, and no count of
/// the whole recording except `compat_calls`, as no part of it has records of these calls. Somebody may have
/// left out all records of an event, so that one without any counts as recorded only if it did not fire.
fn of_part(ledger: &Ledger, found: &ByEvent) -> Ledger {
    let is_found = |choice: &EventChoice| {
        let events = found.get(&choice.channel);
        choice.every_thread
            || choice.is_chosen()
            || events.is_some_and(|events| events.get(&choice.event).is_some_and(|count| *count != 0))
    };
    let choices = match &ledger.events {
        Some(rows) => {
            let rows = rows.iter().filter(|row| row.is_in_choices()).map(|row| (row.recorded, row.choice()));
            rows.filter(|(fired, choice)| *fired == 0 || is_found(choice)).map(|(_, choice)| choice).collect()
        }
        None => ledger.choices.iter().filter(|choice| is_found(choice)).cloned().collect(),
    };
    Ledger {
        part: false,
        duration_ns: None,
        covered: None,
        recursion_misses: None,
        names_lost: None,
        events: None,
        choices,
        programs: None,
        ..ledger.clone()
    }
}

/// What an import counted of a CPU, with the counts that only its recorder has. Losses have their causes if
/// the sums are equal.
fn joined(own: LedgerCpu, of_recording: LedgerCpu) -> LedgerCpu {
    let is_same = own.lost.total() == of_recording.lost_in_all();
    let LedgerCpu { filtered, own_threads, .. } = of_recording;
    if is_same && of_recording.overwritten.unwrap_or(0) == 0 && of_recording.capped.is_none() {
        let LedgerCpu { recorded, stored, pages, .. } = own;
        return LedgerCpu { recorded, stored, pages, ..of_recording };
    }
    LedgerCpu { filtered, own_threads, ..own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracedat::ledger::{Covered, LedgerEvent, Losses};

    fn row(cpu: u32, stored: u64, lost: u64, cause: &str) -> LedgerCpu {
        LedgerCpu {
            cpu,
            recorded: Some(stored),
            stored: Some(stored),
            lost: Losses(if lost == 0 { vec![] } else { vec![(cause.to_owned(), lost)] }),
            ..LedgerCpu::default()
        }
    }

    fn ledgers(own: Ledger, dumped: &[u64], of_recording: &[Ledger], most_cpus: u32) -> Vec<Ledger> {
        // As many of each event as the ledgers say.
        let mut events = ByEvent::new();
        for row in of_recording.iter().filter_map(|ledger| ledger.events.as_ref()).flatten() {
            let count = events.entry(row.channel.clone()).or_default().entry(row.event.clone()).or_default();
            *count += row.recorded;
        }
        super::ledgers(own, &Counted { dumped: dumped.to_vec(), events }, of_recording, most_cpus)
    }

    #[test]
    fn counts_by_event_are_those_of_the_source() {
        let event = |channel: &str, event: &str, recorded| LedgerEvent {
            channel: channel.into(),
            event: event.into(),
            recorded,
            ..LedgerEvent::default()
        };
        let in_channel = |channel: &str, row: LedgerCpu| LedgerCpu { channel: channel.into(), ..row };
        let own =
            Ledger { cpus: vec![row(0, 9, 0, ""), in_channel("x", row(0, 2, 0, ""))], ..Ledger::default() };
        let of = |recorded: [u64; 3]| Ledger {
            covered: Some(Covered { from_ns: 1, to_ns: 9 }),
            cpus: own.cpus.clone(),
            events: Some(vec![
                event("", "a:a", recorded[0]),
                event("", "a:b", recorded[1]),
                event("x", "a:a", recorded[2]),
                event("", "l:lttng_statedump_start", 7),
            ]),
            ..Ledger::default()
        };
        let is_whole = |ledger: Ledger, events: &[(&str, &str, u64)]| {
            let mut counted = Counted::default();
            for (channel, event, count) in events {
                counted.events.entry((*channel).into()).or_default().insert((*event).into(), *count);
            }
            let made = super::ledgers(own.clone(), &counted, &[ledger], 8);
            assert_eq!(made[0].events.is_some(), made[0].covered.is_some());
            made[0].events.is_some()
        };
        assert!(is_whole(of([4, 5, 2]), &[("", "a:a", 4), ("", "a:b", 5), ("x", "a:a", 2)]));
        // One of them has another name here.
        assert!(is_whole(of([4, 5, 2]), &[("", "a:a", 4), ("", "other:b", 5), ("x", "text:line", 2)]));
        // As many on each CPU, and others.
        assert!(!is_whole(of([4, 5, 2]), &[("", "a:a", 5), ("", "a:b", 4), ("x", "a:a", 2)]));
        assert!(!is_whole(of([4, 5, 2]), &[("", "a:a", 9), ("x", "a:a", 2)]));
        assert!(!is_whole(of([4, 5, 2]), &[("", "a:a", 4), ("", "other:b", 5), ("x", "a:a", 1)]));
        assert!(!is_whole(of([4, 5, 2]), &[("", "a:a", 4), ("", "a:b", 5)]));
        // Some of the recorded ones did not reach the file.
        assert!(is_whole(of([40, 5, 2]), &[("", "a:a", 4), ("", "a:b", 5), ("x", "a:a", 2)]));
        assert!(!is_whole(of([40, 5, 2]), &[("", "a:a", 3), ("", "a:b", 6), ("x", "a:a", 2)]));
        // The ledger does not have all events.
        assert!(is_whole(of([4, 1, 2]), &[("", "a:a", 4), ("", "a:b", 1), ("", "a:c", 4), ("x", "a:a", 2)]));
        assert!(!is_whole(of([4, 1, 2]), &[("", "a:a", 5), ("", "a:c", 4), ("x", "a:a", 2)]));
    }

    #[test]
    fn losses_have_causes_where_the_sums_are_equal() {
        let filtered = |row: LedgerCpu| LedgerCpu { filtered: Some(9), ..row };
        let own = Ledger {
            imported: Some("CTF".into()),
            cpus: vec![row(0, 5, 2, "by_recorder"), row(1, 5, 3, "by_recorder")],
            ..Ledger::default()
        };
        let of_recording = Ledger {
            only: vec!["the command".into()],
            cpus: vec![
                filtered(row(0, 5, 2, "ring_full")),
                filtered(row(1, 5, 7, "ring_full")),
                filtered(row(2, 0, 0, "")),
                row(3, 0, 4, "ring_full"),
                filtered(row(70_000, 0, 0, "")),
            ],
            ..Ledger::default()
        };
        let second =
            Ledger { only: vec!["CPUs 1".into()], cpus: vec![row(9, 1, 0, "")], ..Ledger::default() };
        let made = ledgers(own.clone(), &[], &[of_recording, second], 1 << 16);
        let expected = [
            filtered(row(0, 5, 2, "ring_full")),
            filtered(row(1, 5, 3, "by_recorder")),
            filtered(row(2, 0, 0, "")),
        ];
        assert_eq!(made[0].cpus, expected);
        assert_eq!(
            (&*made[0].only, made[0].imported.as_deref()),
            (&["the command".to_owned()][..], Some("CTF"))
        );
        assert_eq!((made.len(), made[1].cpus.len(), &*made[1].only), (2, 0, &["CPUs 1".to_owned()][..]));
        assert_eq!(ledgers(own.clone(), &[], &[], 8), std::slice::from_ref(&own));
    }

    #[test]
    fn counts_of_a_recording_are_taken_where_the_source_has_all_of_it() {
        let filtered = |row: LedgerCpu| LedgerCpu { filtered: Some(9), ..row };
        let own = Ledger { cpus: vec![row(0, 7, 0, ""), row(1, 5, 0, "")], ..Ledger::default() };
        let of_recording = |first, second, part| Ledger {
            part,
            duration_ns: Some(8),
            covered: Some(Covered { from_ns: 1, to_ns: 9 }),
            recursion_misses: Some(0),
            names_lost: Some(0),
            compat_calls: Some(3),
            cpus: vec![filtered(row(0, first, 0, "")), filtered(row(1, second, 0, ""))],
            events: Some(vec![
                LedgerEvent { event: "a:a".into(), recorded: 4, ..LedgerEvent::default() },
                LedgerEvent { event: "a:b".into(), recorded: 8, sampled_out: 2, ..LedgerEvent::default() },
            ]),
            ..Ledger::default()
        };
        // The first CPU has a state dump of two records, or the recording had them.
        for (first, second) in [(5, 5), (7, 5)] {
            let of_recording = of_recording(first, second, false);
            let made = ledgers(own.clone(), &[2, 0], std::slice::from_ref(&of_recording), 8);
            let cpus = vec![filtered(row(0, 7, 0, "")), filtered(row(1, 5, 0, ""))];
            assert_eq!(made, [Ledger { cpus, ..of_recording }], "{first} {second}");
        }
        let choices = vec![
            EventChoice { event: "a:a".into(), ..EventChoice::default() },
            EventChoice { event: "a:b".into(), is_sampled: true, ..EventChoice::default() },
        ];
        for (first, second, part, cpus) in [
            (6, 5, false, vec![row(0, 7, 0, ""), filtered(row(1, 5, 0, ""))]),
            (5, 6, false, vec![filtered(row(0, 7, 0, "")), row(1, 5, 0, "")]),
            (5, 4, false, vec![filtered(row(0, 7, 0, "")), row(1, 5, 0, "")]),
            (5, 5, true, own.cpus.clone()),
        ] {
            let made = ledgers(own.clone(), &[2, 0], &[of_recording(first, second, part)], 8);
            let compat_calls = Some(3);
            let expected = Ledger { cpus, choices: choices.clone(), compat_calls, ..Ledger::default() };
            assert_eq!(made, [expected], "{first} {second} {part}");
        }
        // The ledger of another recording, whose rows an earlier import had.
        for (stored, is_whole) in [(5, true), (4, false)] {
            let other = Ledger { cpus: vec![], ..of_recording(0, 0, false) };
            let made = ledgers(own.clone(), &[2, 0], &[of_recording(5, stored, false), other], 8);
            assert_eq!(
                (made[1].covered.is_some(), made[1].events.is_some()),
                (is_whole, is_whole),
                "{stored}"
            );
        }
        // Two recordings, one after the other.
        for (second, is_whole) in [(2, true), (1, false)] {
            let all = [of_recording(3, 5, false), of_recording(second, 0, false)];
            let made = ledgers(own.clone(), &[2, 0], &all, 8);
            assert_eq!(made[0].events.is_some() && made[1].events.is_some(), is_whole, "{second}");
            assert_eq!(made[0].cpus, own.cpus, "{second}");
        }
        // A CPU that the source has nothing of.
        let less = Ledger { cpus: vec![row(0, 7, 0, "")], ..Ledger::default() };
        let made = ledgers(less.clone(), &[2], &[of_recording(5, 5, false)], 8);
        assert_eq!(made[0].cpus, [filtered(row(0, 7, 0, ""))]);
        assert_eq!((made[0].covered, &made[0].events), (None, &None));
    }
}
