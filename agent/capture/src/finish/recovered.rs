//! What is known of a recording that was cut short: what its data show, and what its readers noted.

use super::CpuData;
use crate::counts::{Note, Noted, Stage};
use crate::{CpuStats, End, Manifest, OpenEnd, Recovered, Stats};

/// The counts. `noted` is `None` for the spool of an older recorder, of which only the data are known.
pub(super) fn stats(data: &[CpuData], manifest: &Manifest, noted: Option<&Noted>) -> Stats {
    let note_of = |cpu: &CpuData| noted?.notes.get(&cpu.stream);
    let end = noted.map_or(End::Unknown, |noted| match noted.stage {
        Stage::Recording => End::Killed,
        Stage::Stopping => End::KilledStopping,
        Stage::Interrupted => End::SecondSignal,
        Stage::Counted if data.iter().all(|cpu| note_of(cpu).is_some_and(|note| note.is_final)) => {
            End::Unfinished
        }
        // A machine that lost its power may have kept the stage and not the notes.
        Stage::Counted => End::KilledStopping,
    });
    let overwrites = |cpu: &CpuData| manifest.channel(cpu.stream.channel).is_some_and(|of| of.overwrite);
    // The programs that note names count in the first channel, which a snapshot may not have.
    let has_first = manifest.channel(0).is_some();
    let names_lost = |cpu: &CpuData| note_of(cpu).map(|note| note.names_lost);
    let unreadable = |cpu: &CpuData| cpu.segments.iter().map(|(_, content)| content.unreadable).sum::<u64>();
    Stats {
        channels: manifest.channels.clone(),
        cpus: data.iter().map(|cpu| row(cpu, note_of(cpu), end, overwrites(cpu))).collect(),
        names_lost: noted.filter(|_| has_first).and_then(|_| data.iter().map(names_lost).sum()),
        recovered: Some(Recovered {
            unreadable_bytes: data.iter().map(unreadable).sum(),
            ended: end,
            overwrite: Some(manifest.overwrites()),
        }),
        ..Stats::default()
    }
}

fn row(cpu: &CpuData, note: Option<&Note>, end: End, overwrites: bool) -> CpuStats {
    let mut row = CpuStats { channel: cpu.stream.channel, cpu: cpu.stream.cpu, ..CpuStats::default() };
    let mut since = None;
    for (_, content) in &cpu.segments {
        row.stored.events += content.events;
        row.stored.pages += content.pages;
        row.stored.bytes += content.len();
        row.lost_unexplained = row.lost_unexplained.saturating_add(content.missed);
        since = content.last_time.or(since);
    }
    let first_segment = cpu.segments.first().map_or(0, |(segment, _)| segment.index);
    // Nothing was removed before the first segment of all.
    let capped = if first_segment == 0 { Some(0) } else { note.and_then(|note| note.capped(first_segment)) };
    row.stored.capped_events = capped.unwrap_or_default();
    row.capped_unknown = capped.is_none();
    if let Some(note) = note {
        row.lost = note.lost;
        // A flight recorder's first page is marked with what was overwritten before it, and that of an
        // archive with what was lost right before its border.
        let marked = note.overwritten.saturating_add(note.marked_before);
        let explained = note.lost.iter().fold(marked, |sum, lost| sum.saturating_add(*lost));
        row.lost_unexplained = row.lost_unexplained.saturating_sub(explained);
        row.overwritten = note.overwritten;
        row.marked_before = note.marked_before;
        if overwrites {
            // All losses before the data are noted by then; what is overwritten may be more when they come.
            row.overwritten = row.overwritten.saturating_add(std::mem::take(&mut row.lost_unexplained));
        }
    }
    let kept = row.stored.events.saturating_add(row.stored.capped_events).saturating_add(row.overwritten);
    row.events = note.map_or(kept, |note| note.events.max(kept));
    if end != End::Unfinished || note.is_none() {
        // What is damaged in the middle is missing, too, but not since then.
        let is_comparable = !cpu.segments.iter().any(|(_, content)| content.damaged);
        row.open_end = Some(OpenEnd { since, counted: note.map(|note| note.time), is_comparable });
    }
    row
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::segment::SegmentContent;
    use crate::spool::SegmentFile;
    use crate::{RecordedChannel, StreamId};

    fn cpu(cpu: u32, segments: &[(u64, u64)]) -> CpuData {
        let segment = |&(index, events): &(u64, u64)| {
            let content = SegmentContent {
                events,
                missed: 2,
                last_time: Some(50 + index),
                ..SegmentContent::default()
            };
            (SegmentFile { index, name: String::new() }, content)
        };
        CpuData { stream: StreamId { channel: 0, cpu }, segments: segments.iter().map(segment).collect() }
    }

    fn noted(stage: Stage, notes: impl IntoIterator<Item = (u32, Note)>) -> Noted {
        let of_cpu = |(cpu, note)| (StreamId { channel: 0, cpu }, note);
        let notes: BTreeMap<_, _> = notes.into_iter().map(of_cpu).collect();
        Noted { stage, stream_count: notes.len(), first_cpus: Vec::new(), notes }
    }

    fn of_one_channel() -> Manifest {
        Manifest { channels: vec![RecordedChannel::default()], ..Manifest::default() }
    }

    #[test]
    fn what_a_flight_recorder_marks_and_has_not_counted_was_overwritten() {
        let note = Note { time: 60, events: 100, overwritten: 1, ..Note::default() };
        let noted = noted(Stage::Recording, [(0, note)]);
        let channel = RecordedChannel { overwrite: true, ..RecordedChannel::default() };
        let manifest = Manifest { channels: vec![channel], ..Manifest::default() };
        let stats = stats(&[cpu(0, &[(0, 10)])], &manifest, Some(&noted));
        let row = &stats.cpus[0];
        assert_eq!((row.overwritten, row.lost_unexplained, row.stored.events), (2, 0, 10));
        assert_eq!(row.open_end.map(|end| end.counted), Some(Some(60)), "more may be missing");
    }

    #[test]
    fn without_notes_what_is_missing_is_unknown() {
        let stats = stats(&[cpu(0, &[(0, 10)]), cpu(1, &[(3, 10)]), cpu(2, &[])], &of_one_channel(), None);
        let ends: Vec<_> = stats.cpus.iter().map(|cpu| cpu.open_end).collect();
        let since = |since| Some(OpenEnd { since, counted: None, is_comparable: true });
        assert_eq!(ends, [since(Some(50)), since(Some(53)), since(None)]);
        let capped: Vec<_> = stats.cpus.iter().map(|cpu| cpu.capped_unknown).collect();
        assert_eq!(capped, [false, true, false], "a first segment above 0 follows others");
        assert_eq!((stats.cpus[0].lost_total(), stats.cpus[0].lost_unexplained), (2, 2));
        assert_eq!((stats.names_lost, stats.recovered.map(|r| r.ended)), (None, Some(End::Unknown)));
    }

    #[test]
    fn notes_tell_what_is_missing_at_least() {
        let note = Note { time: 99, events: 25, lost: [1, 0, 0, 5, 0], ..Note::default() };
        let killed = stats(
            &[cpu(0, &[(0, 10), (1, 10)])],
            &of_one_channel(),
            Some(&noted(Stage::Recording, [(0, note)])),
        );
        let row = killed.cpus[0];
        assert_eq!(row.open_end, Some(OpenEnd { since: Some(51), counted: Some(99), is_comparable: true }));
        assert_eq!((row.unstored(), row.lost, row.lost_unexplained), (5, note.lost, 0));
        let last = Note { is_final: true, ..note };
        let counted = stats(
            &[cpu(0, &[(0, 10), (1, 10)])],
            &of_one_channel(),
            Some(&noted(Stage::Counted, [(0, last)])),
        );
        assert_eq!((counted.cpus[0].open_end, counted.cpus[0].unstored()), (None, 5));
        assert_eq!(counted.names_lost, Some(0));
        // The stage without the last notes, as a machine that lost its power may have kept them.
        let half = stats(
            &[cpu(0, &[(0, 10), (1, 10)])],
            &of_one_channel(),
            Some(&noted(Stage::Counted, [(0, note)])),
        );
        assert_eq!(half.cpus[0].open_end, row.open_end);
        assert_eq!(half.recovered.map(|r| r.ended), Some(End::KilledStopping));
    }
}
