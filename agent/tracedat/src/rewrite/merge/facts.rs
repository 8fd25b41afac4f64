//! Options of several files.

use super::super::super::layout::OptionId;
use super::super::super::ledger::Ledger;
use super::super::super::option::FileOption;
use super::super::head::Head;
use super::{Recording, buffer_name};

/// How the statistics of a named buffer begin.
const BUFFER: &str = "Buffer: ";

/// Puts the facts of all files into `merged`. With `correct`, times need no corrections any more.
pub(super) fn merge(
    recordings: &[Recording],
    heads: &[Head],
    correct: bool,
    single: bool,
    merged: &mut Head,
) {
    if let Some(first) = heads.first().filter(|_| single && !correct)
        && heads.iter().all(|head| head.facts == first.facts)
    {
        // Parts of one recording: everything is where it was.
        merged.facts.clone_from(&first.facts);
        merged.texts.clone_from(&first.texts);
        return;
    }
    let mut facts = Vec::new();
    let mut texts = Vec::new();
    let mut ids = Vec::new();
    let (mut unames, mut versions) = (Vec::new(), Vec::new());
    for recording in recordings {
        let mut stats = Vec::new();
        for &index in &recording.inputs {
            let Some(head) = heads.get(index) else { continue };
            for fact in &head.facts {
                match fact {
                    FileOption::Uname(text) => add(&mut unames, text.clone()),
                    FileOption::Version(text) => add(&mut versions, text.clone()),
                    FileOption::TraceId(id) => add(&mut ids, *id),
                    FileOption::CpuStat(text) => add(&mut stats, text.clone()),
                    FileOption::TraceClock(_)
                    | FileOption::Date { .. }
                    | FileOption::Offset { .. }
                    | FileOption::TimeShift(_)
                    | FileOption::Tsc2Nsec { .. } => {}
                    FileOption::LastBootInfo { buffer, text } => {
                        let buffer = buffer_name(recording, single, buffer);
                        add(&mut facts, FileOption::LastBootInfo { buffer, text: text.clone() });
                    }
                    FileOption::Unknown { id, bytes } if *id == OptionId::LEDGER => {
                        let bytes = ledger(bytes, |buffer| buffer_name(recording, single, buffer));
                        add(&mut facts, FileOption::Unknown { id: *id, bytes });
                    }
                    other => add(&mut facts, other.clone()),
                }
            }
            for text in &head.texts {
                let mut text = text.clone();
                text.buffer = buffer_name(recording, single, &text.buffer);
                texts.push(text);
            }
        }
        if !single && !stats.is_empty() {
            facts.push(FileOption::CpuStat(format!("{BUFFER}{}\n", recording.name)));
        }
        facts.extend(stats.into_iter().map(|text| {
            // Those of a named buffer follow its name.
            match text.trim().strip_prefix(BUFFER).filter(|_| !single) {
                Some(name) => {
                    FileOption::CpuStat(format!("{BUFFER}{}\n", buffer_name(recording, single, name.trim())))
                }
                None => FileOption::CpuStat(text),
            }
        }));
    }
    let mut all = clock(heads, correct);
    if !unames.is_empty() {
        all.push(FileOption::Uname(unames.join(" | ")));
    }
    if !versions.is_empty() {
        all.push(FileOption::Version(versions.join(" | ")));
    }
    match ids.as_slice() {
        [] => {}
        [id] => all.push(FileOption::TraceId(*id)),
        ids => all.push(FileOption::TraceId(joined_id(ids))),
    }
    all.append(&mut facts);
    merged.facts = all;
    merged.texts = texts;
}

/// A ledger with other names of buffers. Bytes that are no ledger stay as they are.
fn ledger(bytes: &[u8], name: impl Fn(&str) -> String) -> Vec<u8> {
    let Some(mut ledger) = Ledger::parse(bytes) else { return bytes.to_vec() };
    // Named one by one, so that no field with names of buffers can be forgotten.
    let Ledger {
        version: _,
        imported: _,
        part: _,
        clock: _,
        realtime_offset_ns: _,
        realtime_uncertainty_ns: _,
        duration_ns: _,
        covered: _,
        pauses: _,
        not_attached: _,
        only: _,
        recursion_misses: _,
        skips_uncounted: _,
        leaves_out_interrupts: _,
        lacks_contexts: _,
        vanished_cgroups: _,
        recovered: _,
        names_lost: _,
        compat_calls: _,
        marks_compat: _,
        cpus,
        events,
        choices,
        silent,
        programs,
    } = &mut ledger;
    let cpus = cpus.iter_mut().map(|of| &mut of.channel);
    let events = events.iter_mut().flatten().map(|of| &mut of.channel);
    let choices = choices.iter_mut().map(|of| &mut of.channel);
    let silent = silent.iter_mut().flatten().map(|of| &mut of.channel);
    let programs = programs.iter_mut().flatten().map(|of| &mut of.channel);
    let mut changes = false;
    for channel in cpus.chain(events).chain(choices).chain(silent).chain(programs) {
        let new = name(channel);
        changes |= *channel != new;
        *channel = new;
    }
    if changes { ledger.to_bytes() } else { bytes.to_vec() }
}

/// Adds what is not there yet.
fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// The clock, and the corrections if all files have the same.
fn clock(heads: &[Head], correct: bool) -> Vec<FileOption> {
    let Some(first) = heads.first() else { return Vec::new() };
    let from_ticks =
        heads.iter().any(|head| head.facts.iter().any(|fact| matches!(fact, FileOption::Tsc2Nsec { .. })));
    if correct && from_ticks {
        // What trace-cmd calls a clock of ticks that were made nanoseconds; readers show it as seconds.
        return vec![FileOption::TraceClock("[tsc2nsec]".to_owned())];
    }
    let kept = first.facts.iter().filter(|fact| match fact {
        FileOption::TraceClock(_) => true,
        FileOption::Date { .. }
        | FileOption::Offset { .. }
        | FileOption::TimeShift(_)
        | FileOption::Tsc2Nsec { .. } => !correct,
        _ => false,
    });
    kept.cloned().collect()
}

/// A number for several recordings as one: the same for the same recordings (64-bit FNV-1a).
fn joined_id(ids: &[u64]) -> u64 {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
