//! What a source has of the recording that it was exported from.

use std::collections::BTreeMap;

use stdx::escapes;
use tracedat::Uname;
use tracedat::initial_state::Host;
use tracedat::ledger::{Ledger, LedgerCpu, LedgerEvent, Losses};
use tracedat::provenance::{BufferName, Provenance, Texts, Threads};

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

/// The ledgers of an imported file: `own` has the counts of its CPUs and its clock, and gets what was chosen
/// and left out from the first one of the recording.
pub(crate) fn ledgers(own: Ledger, of_recording: &[Ledger], most_cpus: u32) -> Vec<Ledger> {
    let Some((first, others)) = of_recording.split_first() else { return vec![own] };
    let key = |row: &LedgerCpu| (row.channel.clone(), row.cpu);
    let mut rows: BTreeMap<_, LedgerCpu> = of_recording
        .iter()
        .flat_map(|ledger| ledger.cpus.iter().map(move |row| (key(row), (ledger.part, row.clone()))))
        .filter(|(_, (is_part, row))| !is_part && row.cpu < most_cpus)
        .map(|(key, (_, row))| (key, row))
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
        part: false,
        clock: own.clock.clone(),
        realtime_offset_ns: own.realtime_offset_ns,
        realtime_uncertainty_ns: own.realtime_uncertainty_ns,
        cpus,
        events: first.events.clone().map(|rows| if first.part { uncounted(rows) } else { rows }),
        ..first.clone()
    };
    let others = others.iter().map(|other| Ledger {
        version: own.version,
        imported: own.imported.clone(),
        part: false,
        cpus: Vec::new(),
        ..other.clone()
    });
    std::iter::once(ledger).chain(others).collect()
}

/// Events of a recording that the file has a part of only: their counts are not the file's.
fn uncounted(rows: Vec<LedgerEvent>) -> Vec<LedgerEvent> {
    let uncounted =
        |row| LedgerEvent { recorded: 0, cut: 0, lost: Losses::default(), lost_on: BTreeMap::new(), ..row };
    rows.into_iter().map(uncounted).collect()
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

    fn row(cpu: u32, stored: u64, lost: u64, cause: &str) -> LedgerCpu {
        LedgerCpu {
            cpu,
            recorded: Some(stored),
            stored: Some(stored),
            lost: Losses(if lost == 0 { vec![] } else { vec![(cause.to_owned(), lost)] }),
            ..LedgerCpu::default()
        }
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
        let made = ledgers(own.clone(), &[of_recording, second], 1 << 16);
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
        assert_eq!(ledgers(own.clone(), &[], 8), std::slice::from_ref(&own));
        let event = LedgerEvent { recorded: 4, filtered: 5, cut: 1, ..LedgerEvent::default() };
        let part = Ledger {
            part: true,
            cpus: vec![row(0, 9, 2, "x")],
            events: Some(vec![event]),
            ..Ledger::default()
        };
        let made = ledgers(own.clone(), &[part], 8);
        assert_eq!((made[0].part, &made[0].cpus), (false, &own.cpus));
        let uncounted = LedgerEvent { filtered: 5, ..LedgerEvent::default() };
        assert_eq!(made[0].events, Some(vec![uncounted]));
    }
}
