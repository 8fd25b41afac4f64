//! What each CPU of a recording lost, and where: before its first record, between its records, behind its
//! last one.
//!
//! Two sources know of losses. Marks on pages have their places, and the [ledger](super::ledger) has the sums
//! of a recording, also of what was lost where no page followed. This is the one place that puts both
//! together; all that count or show losses use it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::ledger::{Ledger, LedgerCpu};
use super::reader::{CpuCounts, Reader, Source, sum_of_losses};

/// More CPUs than any kernel has (`NR_CPUS`).
const MAX_CPUS: u32 = 1 << 16;

/// A CPU of a buffer, by the buffer's name.
pub type CpuKey = (String, u32);

/// Losses of a CPU that no mark before a record shows. Of a place, `None` is no known loss, and 0 is one of
/// which the number is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuLosses {
    /// Events that were lost before the first record, beside those that are marked there.
    pub before: Option<u64>,
    /// Events that were lost behind the last record, beside those that an empty page there marks.
    pub behind: Option<u64>,
    /// Whether the recording did not come to its end, so that more may be missing there.
    pub cut_short: bool,
    /// Whether these losses and the marks are all losses of the CPU, with their numbers.
    pub is_exact: bool,
}

/// The losses of a file, by CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<CpuKey, CpuLosses>);

impl Losses {
    /// The losses of a file. Its records are counted if its ledger has any; of other files it is empty, as
    /// marks are all that they have.
    pub fn of<S: Source>(reader: &Reader<S>) -> Self {
        let ledgers: Vec<_> = Ledger::all_of(reader).collect();
        let is_lossy = |ledger: &Ledger| !ledger.part && ledger.cpus.iter().any(has_losses);
        if !ledgers.iter().any(is_lossy) {
            return Self::default();
        }
        Self::new(&ledgers, &counts_of(reader))
    }

    /// The same, of records that were counted: those of all buffers of a name together.
    pub fn new(ledgers: &[Ledger], counts: &BTreeMap<CpuKey, CpuCounts>) -> Self {
        let mut all = BTreeMap::new();
        for ledger in ledgers {
            let counted = |row: &LedgerCpu| counts.get(&(row.channel.clone(), row.cpu));
            let is_part = ledger.part || ledger.cpus.iter().any(|row| is_of_more(row, counted(row)));
            for row in ledger.cpus.iter().filter(|row| row.cpu < MAX_CPUS) {
                let none = CpuCounts::default();
                let counted = counted(row).unwrap_or(&none);
                let losses = if !is_part {
                    losses_of(row, counted)
                } else if ledger.part {
                    // Whoever made the part has marked all losses that are known to be in it.
                    let is_exact = counted.missed_unknown == 0 && counted.missed_behind != Some(0);
                    CpuLosses { is_exact, ..CpuLosses::default() }
                } else if counted.events != 0 && row.stored == Some(counted.events) {
                    // All of this CPU is here.
                    losses_of(row, counted)
                } else {
                    continue;
                };
                all.insert((row.channel.clone(), row.cpu), losses);
            }
        }
        Self(all)
    }

    /// Those of a CPU, by the buffer's name; `None` if the file has only marks for it.
    pub fn get(&self, buffer: &str, cpu: u32) -> Option<CpuLosses> {
        self.0.get(&(buffer.to_owned(), cpu)).copied()
    }

    /// All of them, by buffer and CPU.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32, CpuLosses)> {
        self.0.iter().map(|((buffer, cpu), losses)| (&**buffer, *cpu, *losses))
    }
}

impl CpuLosses {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.before.is_some() || self.behind.is_some()
    }
}

/// Counts the records of all CPUs, several at a time.
fn counts_of<S: Source>(reader: &Reader<S>) -> BTreeMap<CpuKey, CpuCounts> {
    let buffers = reader.buffers().iter().enumerate();
    let cpus: Vec<_> = buffers
        .flat_map(|(index, info)| info.cpus.iter().map(move |extent| (index, &info.name, extent.cpu)))
        .collect();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<CpuKey, CpuCounts>::new()));
    let work = || {
        while let Some((buffer, name, cpu)) = cpus.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = reader.count_cpu(*buffer, *cpu);
            // A thread that panicked has added nothing by halves.
            let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let sum = all.entry(((*name).clone(), *cpu)).or_insert_with(|| CpuCounts {
                cpu: *cpu,
                damaged: u64::from(found.cpus.is_empty()),
                ..CpuCounts::default()
            });
            found.cpus.iter().for_each(|counts| sum.add(counts));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(cpus.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether a row has anything to say of losses.
fn has_losses(row: &LedgerCpu) -> bool {
    row.lost_in_all() != 0
        || row.missing.is_some()
        || row.overwritten.is_some_and(|events| events != 0)
        || row.capped.is_some_and(|capped| capped != Some(0))
}

/// Whether a row is about more than the file has of its CPU. What is damaged proves nothing.
fn is_of_more(row: &LedgerCpu, counted: Option<&CpuCounts>) -> bool {
    let events = counted.map_or(0, |counts| counts.events);
    let is_damaged = counted.is_some_and(|counts| counts.damaged != 0);
    !is_damaged && row.stored.is_some_and(|stored| stored != events)
}

/// What a row says beyond the marks, if all records that it counts are there.
fn losses_of(row: &LedgerCpu, counts: &CpuCounts) -> CpuLosses {
    let first = counts.missed_first.unwrap_or(0);
    let overwritten = row.overwritten.unwrap_or(0);
    // A flight recorder marks its first page with what was overwritten, beside what was lost there.
    let overwritten_marked = overwritten.min(first);
    let capped = row.capped.unwrap_or(Some(0));
    let mut before = above_0((overwritten - overwritten_marked).saturating_add(capped.unwrap_or(0)));
    if capped.is_none() {
        before = Some(0);
    }
    let marked = counts.missed_events.saturating_add(counts.missed_behind.unwrap_or(0));
    let marked = marked - overwritten_marked;
    let marked = marked - row.marked_before.min(first - overwritten_marked);
    let lost = row.lost_in_all();
    let unmarked = lost.saturating_sub(marked);
    let mut behind = None;
    if overwritten != 0 || capped != Some(0) {
        // Marks went with the pages that are gone, so that the rest may be at either end.
        before = sum_of_losses(before, above_0(unmarked));
        behind = (unmarked != 0).then_some(0);
    } else if unmarked != 0 {
        behind = Some(unmarked);
    } else if marked > lost && first - row.marked_before.min(first) > marked - lost {
        // The first mark counts losses of the archive before as well, and an older recorder did not note how
        // many.
        behind = Some(0);
    }
    if counts.damaged != 0 {
        // What is damaged may have had marks.
        behind = behind.map(|_| 0);
    }
    let cut_short = row.missing.is_some();
    if cut_short {
        behind = behind.or(Some(0));
    }
    let is_exact = !cut_short
        && counts.damaged == 0
        && counts.missed_unknown == 0
        && ![before, behind, counts.missed_behind].contains(&Some(0));
    CpuLosses { before, behind, cut_short, is_exact }
}

fn above_0(events: u64) -> Option<u64> {
    Some(events).filter(|events| *events != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Losses as Causes, Missing};

    fn row(cpu: u32, stored: u64, lost: u64) -> LedgerCpu {
        let lost = Causes(vec![("ring_full".to_owned(), lost)]);
        LedgerCpu { cpu, stored: Some(stored), lost, ..LedgerCpu::default() }
    }

    fn counts(cpu: u32, events: u64, first: u64, others: u64) -> CpuCounts {
        let missed_first = above_0(first);
        CpuCounts { cpu, events, missed_first, missed_events: first + others, ..CpuCounts::default() }
    }

    fn losses(ledger: &Ledger, counts: &[CpuCounts]) -> Losses {
        let counts = counts.iter().map(|counts| ((String::new(), counts.cpu), counts.clone())).collect();
        Losses::new(std::slice::from_ref(ledger), &counts)
    }

    #[track_caller]
    fn one(row: LedgerCpu, counts: CpuCounts) -> (Option<u64>, Option<u64>, bool) {
        let of = losses(&Ledger { cpus: vec![row], ..Ledger::default() }, &[counts]).get("", 0).unwrap();
        (of.before, of.behind, of.is_exact)
    }

    #[test]
    fn what_no_mark_shows_was_lost_at_an_end() {
        assert_eq!(one(row(0, 9, 0), counts(0, 9, 0, 0)), (None, None, true));
        assert_eq!(one(row(0, 9, 7), counts(0, 9, 3, 4)), (None, None, true));
        assert_eq!(one(row(0, 9, 7), counts(0, 9, 1, 1)), (None, Some(5), true));
        assert_eq!(one(row(0, 0, 7), CpuCounts::default()), (None, Some(7), true));
        let unstored = LedgerCpu { unstored: Some(2), ..row(0, 9, 7) };
        assert_eq!(one(unstored, counts(0, 9, 0, 7)), (None, Some(2), true));
        let marked_behind = CpuCounts { missed_behind: Some(4), ..counts(0, 9, 0, 3) };
        assert_eq!(one(row(0, 9, 7), marked_behind), (None, None, true));
        let unknown = CpuCounts { missed_unknown: 1, ..counts(0, 9, 0, 3) };
        assert_eq!(one(row(0, 9, 7), unknown), (None, Some(4), false));
    }

    #[test]
    fn what_was_given_up_is_before_the_first_record() {
        let flight = |overwritten, lost| LedgerCpu { overwritten: Some(overwritten), ..row(0, 9, lost) };
        assert_eq!(one(flight(50, 0), counts(0, 9, 50, 0)), (None, None, true));
        assert_eq!(one(flight(50, 0), counts(0, 9, 0, 0)), (Some(50), None, true));
        assert_eq!(one(flight(50, 3), counts(0, 9, 51, 2)), (None, None, true));
        // The mark of a loss may have been overwritten.
        assert_eq!(one(flight(50, 3), counts(0, 9, 50, 2)), (Some(1), Some(0), false));
        let capped = |capped| LedgerCpu { capped: Some(capped), ..row(0, 9, 0) };
        assert_eq!(one(capped(Some(20)), counts(0, 9, 0, 0)), (Some(20), None, true));
        assert_eq!(one(capped(None), counts(0, 9, 0, 0)), (Some(0), None, false));
    }

    #[test]
    fn an_archive_may_have_the_losses_of_the_one_before_at_its_first_mark() {
        // All 4 of the first mark are of the archive before.
        assert_eq!(one(row(0, 9, 3), counts(0, 9, 4, 3)), (None, None, true));
        assert_eq!(one(row(0, 9, 3), counts(0, 9, 4, 2)), (None, Some(0), false));
        let noted = |lost| LedgerCpu { marked_before: 3, ..row(0, 9, lost) };
        assert_eq!(one(noted(3), counts(0, 9, 4, 2)), (None, None, true));
        assert_eq!(one(noted(5), counts(0, 9, 4, 2)), (None, Some(2), true));
    }

    #[test]
    fn an_end_that_was_cut_short_is_unknown() {
        let cut = |at_least| LedgerCpu {
            missing: Some(Missing { at_least, ..Missing::default() }),
            ..row(0, 9, 0)
        };
        assert_eq!(one(cut(Some(5)), counts(0, 9, 0, 0)), (None, Some(5), false));
        assert_eq!(one(cut(Some(0)), counts(0, 9, 0, 0)), (None, Some(0), false));
        assert_eq!(one(cut(None), counts(0, 9, 0, 0)), (None, Some(0), false));
    }

    #[test]
    fn the_ledger_of_a_whole_does_not_count_for_a_part() {
        let whole = Ledger { cpus: vec![row(0, 9, 7), row(1, 5, 3), row(2, 0, 6)], ..Ledger::default() };
        // All of CPU 1 is in it.
        let found = losses(&whole, &[counts(0, 4, 0, 2), counts(1, 5, 0, 1)]);
        let behind = CpuLosses { behind: Some(2), is_exact: true, ..CpuLosses::default() };
        assert_eq!([0, 1, 2].map(|cpu| found.get("", cpu)), [None, Some(behind), None]);
        // A part that says that it is one has nothing but marks.
        let part = Ledger { part: true, ..whole };
        let found = losses(&part, &[counts(0, 4, 0, 2), counts(1, 5, 0, 1)]);
        let exact = CpuLosses { is_exact: true, ..CpuLosses::default() };
        assert_eq!([0, 1, 2].map(|cpu| found.get("", cpu)), [Some(exact); 3]);
    }
}
