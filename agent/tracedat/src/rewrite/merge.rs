//! Several files in one, on one time line.

mod events;
mod facts;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek, Write};

use super::super::layout::SectionId;
use super::super::ledger::{Ledger, LedgerCpu};
use super::super::option::FileOption;
use super::super::page::PageLayout;
use super::super::reader::{CpuCounts, Reader, Source};
use super::error::RewriteError;
use super::head::Head;
use super::output::{Beginning, BufferPlan, Inputs, write_file};
use super::stream::{Change, Piece};
use super::{Rewritten, Target, Watch};

/// A file that is merged with others.
#[derive(Debug)]
pub struct MergeInput<'a, S> {
    /// What its buffers are called in the new file: the top buffer by this name, a named one by it, a dot and
    /// its own name.
    pub name: String,
    /// The file.
    pub reader: &'a Reader<S>,
}

/// Which inputs are parts of one recording: their buffers of one name become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// Those with the same option TRACEID.
    #[default]
    SameTrace,
    /// All.
    All,
    /// None: each is a recording of its own.
    None,
}

/// How files are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// Which inputs are parts of one recording.
    pub join: Join,
    /// Whether times of different clocks, which cannot be compared, are merged nevertheless.
    pub mixed_clocks: bool,
}

/// Inputs that are one recording.
struct Recording {
    name: String,
    inputs: Vec<usize>,
}

/// Writes several files as one.
///
/// If all of them are parts of one recording, the new file is that recording. Otherwise each recording's
/// buffers become named ones: what was the top buffer has the recording's name. The top buffer of the new
/// file is then empty.
///
/// | what | becomes |
/// |---|---|
/// | times | as they are if all files have the same corrections, which are kept; otherwise they are stored corrected |
/// | events | those with equal formats are one; others whose numbers are taken get new ones, and so do their records |
/// | names of tasks | of a pid with different names in different recordings both, as in `bash\|nginx` |
/// | symbols | of kernels at different addresses all; none if they overlap, for wrong names are worse than none |
/// | options | those of all files; the same ones once |
///
/// # Errors
/// A file is damaged; the files cannot be one, because they differ in byte order, size of `long` or the
/// fields that all events begin with; their clocks cannot be compared.
pub fn merge<S: Source, W: Write + Seek>(
    inputs: &[MergeInput<'_, S>],
    target: &Target,
    options: MergeOptions,
    out: W,
    watch: Watch<'_>,
) -> Result<(W, Rewritten), RewriteError> {
    let first = inputs.first().ok_or_else(|| RewriteError::Nothing("no files to merge".to_owned()))?;
    check_kind(inputs, first)?;
    let head = |input: &MergeInput<'_, S>| {
        let named = |error| RewriteError::Input { name: input.name.clone(), error: Box::new(error) };
        Head::read(input.reader, false).map_err(named)
    };
    let heads = inputs.iter().map(head).collect::<Result<Vec<_>, _>>()?;
    let recordings = recordings(inputs, options.join);
    let single = recordings.len() == 1;
    let correct = inputs.iter().any(|input| input.reader.clock() != first.reader.clock());
    let mut notes = Vec::new();
    check_clocks(inputs, &recordings, correct, options, &mut notes)?;

    let mut merged = heads.first().cloned().ok_or_else(|| RewriteError::Nothing(String::new()))?;
    merged.notes = heads.iter().flat_map(|head| head.notes.iter().cloned()).collect();
    merged.notes.append(&mut notes);
    merged.cpu_count = heads.iter().map(|head| head.cpu_count).max().unwrap_or(1);
    let readers: Vec<_> = inputs.iter().map(|input| input.reader).collect();
    let ids = events::merge(inputs, &heads, &mut merged)?;
    let changes: Vec<_> = ids.into_iter().map(|ids| Change { ids, correct }).collect();
    tables::printk(&readers, &heads, &mut merged)?;
    tables::kallsyms(inputs, &heads, &mut merged);
    let groups: Vec<Vec<_>> =
        recordings.iter().map(|recording| recording.inputs.iter().map(|it| readers[*it]).collect()).collect();
    tables::cmdlines(&groups, &mut merged);
    facts::merge(&recordings, &heads, correct, single, &mut merged);
    let same_others = heads.iter().all(|head| {
        let parts = |head: &Head| head.others.iter().map(|it| (it.id, it.bytes.clone())).collect::<Vec<_>>();
        parts(head) == parts(&merged)
    });
    if !same_others {
        merged.without_others("the files differ in it");
    }
    let mut plan = plan(inputs, &recordings, merged.layout)?;
    if single {
        let mut counts = None;
        merged.is_whole(|ledger| {
            let counts = counts.get_or_insert_with(|| count(&readers));
            let is_whole = have_all(&readers, counts, ledger);
            if is_whole {
                drop_repeated_marks(&mut plan, counts, &ledger.cpus);
            }
            is_whole
        });
    }
    let inputs = Inputs { readers: &readers, changes: &changes, tolerant: false };
    let beginning = Beginning::new(target, merged, &mut plan, inputs.readers)?;
    write_file(out, &beginning, &plan, &inputs, watch)
}

/// The counts of each CPU: by reader, buffer and CPU.
type CountsByPlace = BTreeMap<(usize, usize, u32), CpuCounts>;

fn count<S: Source>(readers: &[&Reader<S>]) -> CountsByPlace {
    let mut all = CountsByPlace::new();
    for (number, reader) in readers.iter().enumerate() {
        for buffer in 0..reader.buffers().len() {
            let counts = reader.count(buffer).cpus.into_iter();
            all.extend(counts.map(|counts| ((number, buffer, counts.cpu), counts)));
        }
    }
    all
}

/// Whether these files together have all records that a ledger counts.
fn have_all<S: Source>(readers: &[&Reader<S>], counts: &CountsByPlace, ledger: &Ledger) -> bool {
    let mut counted: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for ((reader, buffer, cpu), counts) in counts {
        let info = readers.get(*reader).and_then(|reader| reader.buffers().get(*buffer));
        if let Some(info) = info {
            *counted.entry((&info.name, *cpu)).or_default() += counts.events;
        }
    }
    ledger.cpus.iter().all(|row| {
        let events = counted.get(&(&*row.channel, row.cpu)).copied().unwrap_or(0);
        row.stored == Some(events)
    })
}

/// Drops pieces that only repeat, without its number, the loss behind a CPU's last record. Every later part
/// has such a mark. It stays if the numbers are not all that the ledger counts.
fn drop_repeated_marks(plan: &mut [BufferPlan], counts: &CountsByPlace, rows: &[LedgerCpu]) {
    for row in rows {
        let buffer = plan.iter_mut().find(|plan| plan.name == row.channel);
        let Some(pieces) = buffer.and_then(|plan| plan.cpus.get_mut(&row.cpu)) else { continue };
        let counts_of = |piece: &Piece| counts.get(&(piece.reader, piece.buffer, piece.cpu));
        let numbers = pieces
            .iter()
            .filter_map(counts_of)
            .map(|counts| counts.missed_events.saturating_add(counts.missed_behind.unwrap_or(0)));
        if numbers.fold(0, u64::saturating_add) < row.lost_in_all() {
            continue;
        }
        let mut has_number = false;
        pieces.retain(|piece| {
            let Some(counts) = counts_of(piece) else { return true };
            let is_empty = counts.events == 0 && counts.damaged == 0 && !piece.has_losses();
            match counts.missed_behind {
                Some(0) if is_empty && has_number => return false,
                None if is_empty => {}
                behind => has_number = behind.is_some_and(|behind| behind != 0),
            }
            true
        });
    }
}

/// Whether the files can be one at all.
fn check_kind<S: Source>(
    inputs: &[MergeInput<'_, S>],
    first: &MergeInput<'_, S>,
) -> Result<(), RewriteError> {
    let kind = |input: &MergeInput<'_, S>| {
        let PageLayout { endian, long_size, commit_at, data_at, page_size: _ } = input.reader.layout();
        (endian, long_size, commit_at, data_at)
    };
    match inputs.iter().find(|input| kind(input) != kind(first)) {
        None => Ok(()),
        Some(other) => {
            let layout = |input: &MergeInput<'_, S>| {
                let PageLayout { endian, long_size, .. } = input.reader.layout();
                format!("{endian:?} endian with longs of {long_size} bytes")
            };
            Err(RewriteError::Apart(format!(
                "{} is {}, {} is {}: a file has one byte order and one size of long; `report -i A -i B` shows such files together",
                first.name,
                layout(first),
                other.name,
                layout(other)
            )))
        }
    }
}

fn recordings<S: Source>(inputs: &[MergeInput<'_, S>], join: Join) -> Vec<Recording> {
    let trace_id = |index: usize| {
        inputs[index].reader.facts().find_map(|fact| match fact {
            FileOption::TraceId(id) if *id != 0 => Some(*id),
            _ => None,
        })
    };
    let mut recordings: Vec<Recording> = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let same = |recording: &&mut Recording| match join {
            Join::All => true,
            Join::None => false,
            Join::SameTrace => trace_id(index)
                .is_some_and(|id| recording.inputs.iter().any(|other| trace_id(*other) == Some(id))),
        };
        if let Some(recording) = recordings.iter_mut().find(same) {
            recording.inputs.push(index);
            continue;
        }
        // Two inputs may have one name, as trace.dat of two directories.
        let taken: BTreeSet<_> = recordings.iter().map(|recording| recording.name.clone()).collect();
        let wanted = if input.name.is_empty() { "trace" } else { &input.name };
        let name = (2..).map(|number: u32| format!("{wanted}-{number}"));
        let name = std::iter::once(wanted.to_owned()).chain(name).find(|name| !taken.contains(name));
        recordings.push(Recording { name: name.unwrap_or_default(), inputs: vec![index] });
    }
    recordings
}

/// The clock of a file's times.
fn clock_name<S: Source>(reader: &Reader<S>) -> String {
    let chosen = reader.facts().find_map(|fact| match fact {
        FileOption::TraceClock(text) => {
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name.to_owned())
        }
        _ => None,
    });
    let of_buffer =
        || reader.buffers().iter().map(|buffer| buffer.clock.clone()).find(|clock| !clock.is_empty());
    chosen.or_else(of_buffer).unwrap_or_else(|| "local".to_owned())
}

/// Whether the times of the files can be compared.
fn check_clocks<S: Source>(
    inputs: &[MergeInput<'_, S>],
    recordings: &[Recording],
    correct: bool,
    options: MergeOptions,
    notes: &mut Vec<String>,
) -> Result<(), RewriteError> {
    let clocks: Vec<_> = inputs.iter().map(|input| (input, clock_name(input.reader))).collect();
    let Some((first, clock)) = clocks.first() else { return Ok(()) };
    let is_plain = |input: &MergeInput<'_, S>| input.reader.clock().is_raw();
    let plain = clocks.iter().any(|(input, _)| is_plain(input));
    let other = clocks.iter().find(|(_, other)| other != clock).filter(|_| plain);
    if let Some((other, name)) = other {
        let (first, other) = (&first.name, &other.name);
        if !options.mixed_clocks {
            return Err(RewriteError::Apart(format!(
                "{first} has times of clock {clock}, {other} of clock {name}, which cannot be compared; record both with --date (which \
                 stores the distance to wall time), or merge them as they are with --mixed-clocks"
            )));
        }
        notes.push(format!("times of clock {clock} and of clock {name} are side by side"));
    } else if recordings.len() > 1 && plain {
        let hosts: BTreeSet<_> = inputs.iter().map(|input| uname(input.reader)).collect();
        if hosts.len() > 1 {
            notes.push(
                "the files are of different machines, and not all tell their distance to wall time (record --date): \
                 the order of their events may be wrong"
                    .to_owned(),
            );
        }
    }
    if correct {
        notes.push(
            "times are stored corrected: options DATE, OFFSET, TIME_SHIFT and TSC2NSEC are in them"
                .to_owned(),
        );
    }
    Ok(())
}

fn uname<S: Source>(reader: &Reader<S>) -> String {
    let uname = reader.facts().find_map(|fact| match fact {
        FileOption::Uname(text) => Some(text.clone()),
        _ => None,
    });
    uname.unwrap_or_default()
}

/// The name of a recording's buffer in the new file.
fn buffer_name(recording: &Recording, single: bool, name: &str) -> String {
    match (single, name) {
        (true, name) => name.to_owned(),
        (false, "") => recording.name.clone(),
        // trace-cmd shows of a name only what is after its last slash.
        (false, name) => format!("{}.{name}", recording.name),
    }
}

/// The buffers of the new file.
fn plan<S: Source>(
    inputs: &[MergeInput<'_, S>],
    recordings: &[Recording],
    top: PageLayout,
) -> Result<Vec<BufferPlan>, RewriteError> {
    let single = recordings.len() == 1;
    let mut plan: Vec<BufferPlan> = Vec::new();
    for recording in recordings {
        for &input in &recording.inputs {
            let reader = inputs[input].reader;
            for (buffer_index, info) in reader.buffers().iter().enumerate() {
                let name = buffer_name(recording, single, &info.name);
                let index = plan.iter().position(|plan| plan.name == name).unwrap_or_else(|| {
                    let layout = if name.is_empty() { top } else { info.layout };
                    let clock = info.clock.clone();
                    plan.push(BufferPlan { name, clock, layout, cpus: BTreeMap::new() });
                    plan.len() - 1
                });
                let buffer = &mut plan[index];
                if !buffer.name.is_empty() && info.layout.page_size > buffer.layout.page_size {
                    buffer.layout = info.layout;
                }
                for piece in Piece::of_buffer(input, reader, buffer_index) {
                    buffer.cpus.entry(piece.cpu).or_default().push(piece);
                }
            }
        }
    }
    let starts = starts(inputs);
    for pieces in plan.iter_mut().flat_map(|plan| plan.cpus.values_mut()).filter(|pieces| pieces.len() > 1) {
        put_in_order(pieces, inputs, &starts)?;
    }
    Ok(plan)
}

/// When each input begins; one without records is taken to follow the one before it.
fn starts<S: Source>(inputs: &[MergeInput<'_, S>]) -> Vec<u64> {
    let mut last = 0;
    let start = |input: &MergeInput<'_, S>| {
        last = input.reader.span().map_or(last, |(start, _)| start);
        last
    };
    inputs.iter().map(start).collect()
}

/// Puts the pieces of a CPU in the order of time, and counts losses between them once.
fn put_in_order<S: Source>(
    pieces: &mut Vec<Piece>,
    inputs: &[MergeInput<'_, S>],
    starts: &[u64],
) -> Result<(), RewriteError> {
    let mut firsts = Vec::new();
    for piece in pieces.iter() {
        // Inputs whose times are stored uncorrected all have the same corrections, which keep the order.
        let mut records = inputs[piece.reader].reader.cpu_records_if_any(piece.buffer, piece.cpu)?;
        firsts.push(records.next_record()?.map(|record| (record.timestamp, record.missed)));
    }
    // A piece without records comes behind those of the inputs that begin before its own.
    let start = |piece: &Piece| (starts.get(piece.reader).copied().unwrap_or(0), piece.reader, piece.buffer);
    let place = |piece: &Piece, first: &Option<(u64, Option<u64>)>| {
        if let Some((time, _)) = first {
            return (*time, false, (0, 0, 0));
        }
        let start_of_it = start(piece);
        let earlier = pieces.iter().zip(&firsts).filter(|(other, _)| start(other) < start_of_it);
        let time = earlier.filter_map(|(_, first)| first.map(|(time, _)| time)).max();
        (time.unwrap_or(0), time.is_some(), start_of_it)
    };
    let mut placed: Vec<_> =
        pieces.iter().zip(&firsts).map(|(piece, first)| (place(piece, first), *piece, *first)).collect();
    placed.sort_by_key(|(place, ..)| *place);
    // The first mark of an archive counts what was lost at the end of the one before, and of those before
    // that one as far as they have no records behind the loss.
    let mut mark = None;
    for (_, piece, first) in placed.iter_mut().rev() {
        if let (Some(behind), Some(marked)) = (piece.behind, mark) {
            piece.behind = match (behind, marked) {
                (0, _) => Some(0).filter(|_| marked == 0),
                _ => Some(behind.saturating_sub(marked)).filter(|rest| *rest != 0),
            };
            if marked != 0 {
                mark = Some(marked.saturating_sub(behind)).filter(|rest| *rest != 0);
            }
        }
        if let Some((_, missed)) = first {
            mark = *missed;
        }
    }
    *pieces = placed.into_iter().map(|(_, piece, _)| piece).collect();
    Ok(())
}

/// Whether all heads have the same body of a section.
fn all_same(heads: &[Head], id: SectionId) -> bool {
    heads.iter().all(|head| heads.first().is_some_and(|first| first.body(id) == head.body(id)))
}
