//! Slices by how long they are, and densities of what is too short to be drawn.

use super::blocks::{Blocks, Piece};
use super::columns::{Columns, number, signed};
use crate::tracks::{Row, Rows, Slice};
use recording::ExportError;
use stdx::fast_map::FastMap;

/// How many slices, or densities, are in a block.
const BLOCK: usize = 8192;
/// About how many events there are in a bucket of the finest densities.
const EVENTS: u128 = 32;
/// Into how many buckets of the coarsest densities a recording is divided, at least.
const BUCKETS: u64 = 500;
/// Most keys of a density that are told apart.
const KEYS: usize = 16;
/// The key of all others.
const OTHERS: u32 = u32::MAX;

/// A block that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) level: usize,
    pub(super) block: u32,
    pub(super) count: usize,
    /// The time that it covers.
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A density: how much of a bucket of a row was covered.
#[derive(Debug, Default)]
struct Cell {
    /// Key, time, how many.
    keys: Vec<(u32, u64, u64)>,
}

#[derive(Debug)]
struct Density {
    width: u64,
    /// By row and bucket.
    open: FastMap<(u32, u64), Cell>,
    /// Buckets before this one are closed.
    closed: u64,
    done: Vec<Dense>,
}

/// A row, a bucket, what covers it most, for how long, and how often.
pub(super) type Dense = (u32, u64, u32, u64, u64);

/// All levels.
#[derive(Debug)]
pub(super) struct Levels {
    /// Slices of level 0 are shorter than this.
    base: u64,
    /// Of each level, those that were not written yet.
    slices: Vec<Vec<Slice>>,
    densities: Vec<Density>,
    /// What was written.
    pub(super) slice_blocks: Vec<Written>,
    pub(super) density_blocks: Vec<Written>,
}

impl Levels {
    /// For a recording of this length with so many events.
    pub(super) fn new(span: u64, events: u64) -> Self {
        let base = u128::from(span) * EVENTS / u128::from(events.max(1));
        let base = u64::try_from(base).unwrap_or(u64::MAX).clamp(1, 1 << 60);
        let mut densities = Vec::new();
        let mut width = base;
        loop {
            densities.push(Density { width, open: FastMap::default(), closed: 0, done: Vec::new() });
            width = width.saturating_mul(4);
            if width > span / BUCKETS {
                break;
            }
        }
        let slices = vec![Vec::new(); densities.len() + 1];
        Self { base, slices, densities, slice_blocks: Vec::new(), density_blocks: Vec::new() }
    }

    /// The width of the finest buckets.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// How many levels of densities there are.
    pub(super) fn count(&self) -> usize {
        self.densities.len()
    }

    /// The level of slices of this length.
    fn level(&self, time: u64) -> usize {
        self.densities.iter().position(|density| time < density.width).unwrap_or(self.densities.len())
    }

    /// Adds a slice. Without details those of level 0 are only in densities.
    pub(super) fn slice(
        &mut self,
        slice: Slice,
        has_details: bool,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), ExportError> {
        let level = self.level(slice.end.saturating_sub(slice.start));
        if let Some(density) = self.densities.get_mut(level) {
            density.cover(&slice);
        }
        if level == 0 && !has_details {
            return Ok(());
        }
        if let Some(slices) = self.slices.get_mut(level) {
            slices.push(slice);
            if slices.len() >= BLOCK {
                self.write_slices(level, blocks)?;
            }
        }
        Ok(())
    }

    /// Adds an event to the densities of a row.
    pub(super) fn event(&mut self, row: u32, time: u64) {
        if let Some(density) = self.densities.first_mut() {
            density.add(row, time / density.width, 0, 0, 1);
        }
    }

    /// It is so late now: what is over by then is written.
    pub(super) fn advance(
        &mut self,
        now: u64,
        rows: &Rows,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), ExportError> {
        for level in 0..self.densities.len() {
            let Some(density) = self.densities.get(level) else { break };
            // What ends now began up to a bucket ago.
            let close = (now / density.width).saturating_sub(1);
            if close <= density.closed {
                break;
            }
            self.close(level, close, rows, blocks)?;
        }
        Ok(())
    }

    /// Writes all that is left.
    pub(super) fn finish(&mut self, rows: &Rows, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        for level in 0..self.densities.len() {
            self.close(level, u64::MAX, rows, blocks)?;
            self.write_densities(level, blocks)?;
        }
        for level in 0..self.slices.len() {
            self.write_slices(level, blocks)?;
        }
        Ok(())
    }

    /// Takes the densities before a bucket into account in the next level, and into a block.
    fn close(
        &mut self,
        level: usize,
        before: u64,
        rows: &Rows,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), ExportError> {
        let (head, tail) = self.densities.split_at_mut(level + 1);
        let Some(density) = head.last_mut() else { return Ok(()) };
        let mut above = tail.first_mut();
        density.closed = before;
        let done = &mut density.done;
        density.open.retain(|(row, bucket), cell| {
            if *bucket >= before {
                return true;
            }
            for (key, time, count) in &cell.keys {
                if let Some(above) = above.as_deref_mut() {
                    above.add(*row, bucket / 4, *key, *time, *count);
                }
            }
            let has_few = rows.get(*row).is_some_and(Row::has_few_keys);
            if has_few {
                done.extend(cell.keys.iter().map(|(key, time, count)| (*row, *bucket, *key, *time, *count)));
            } else if let Some((most, ..)) = cell.keys.iter().max_by_key(|(_, time, count)| (*time, *count)) {
                let sum = cell.keys.iter().fold((0_u64, 0_u64), |sum, (_, time, count)| {
                    (sum.0.saturating_add(*time), sum.1.saturating_add(*count))
                });
                done.push((*row, *bucket, *most, sum.0, sum.1));
            }
            false
        });
        if density.done.len() >= BLOCK {
            self.write_densities(level, blocks)?;
        }
        Ok(())
    }

    fn write_densities(&mut self, level: usize, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        let Some(density) = self.densities.get_mut(level) else { return Ok(()) };
        let mut done = std::mem::take(&mut density.done);
        let width = density.width;
        if done.len() > BLOCK * 4 {
            // Otherwise the block is sorted where it is packed.
            done.sort_unstable();
        }
        for part in done.chunks(BLOCK * 4) {
            let first = part.iter().map(|(_, bucket, ..)| *bucket).min().unwrap_or(0);
            let last = part.iter().map(|(_, bucket, ..)| *bucket).max().unwrap_or(0);
            let count = part.len();
            let block = blocks.add(Piece::Densities(part.to_vec(), first))?;
            self.density_blocks.push(Written {
                level,
                block,
                count,
                from: first.saturating_mul(width),
                to: (last + 1).saturating_mul(width),
            });
        }
        Ok(())
    }

    fn write_slices(&mut self, level: usize, blocks: &mut Blocks<'_>) -> Result<(), ExportError> {
        let Some(slices) = self.slices.get_mut(level).filter(|slices| !slices.is_empty()) else {
            return Ok(());
        };
        let from = slices.iter().map(|slice| slice.start).min().unwrap_or(0);
        let to = slices.iter().map(|slice| slice.end).max().unwrap_or(0);
        let (count, slices) = (slices.len(), std::mem::take(slices));
        let block = blocks.add(Piece::Slices(slices, from))?;
        self.slice_blocks.push(Written { level, block, count, from, to });
        Ok(())
    }
}

impl Density {
    /// Adds a slice that is no longer than a bucket.
    fn cover(&mut self, slice: &Slice) {
        let (first, last) = (slice.start / self.width, slice.end / self.width);
        if first == last {
            self.add(slice.row, first, slice.key, slice.end - slice.start, 1);
            return;
        }
        // It is told where it begins.
        let border = last.saturating_mul(self.width);
        self.add(slice.row, first, slice.key, border.saturating_sub(slice.start), 1);
        self.add(slice.row, last, slice.key, slice.end.saturating_sub(border), 0);
    }

    fn add(&mut self, row: u32, bucket: u64, key: u32, time: u64, count: u64) {
        let keys = &mut self.open.entry((row, bucket)).or_default().keys;
        let is_full = keys.len() >= KEYS;
        let place = match keys.iter().position(|(known, ..)| *known == key) {
            Some(place) => place,
            None if is_full => keys.iter().position(|(known, ..)| *known == OTHERS).unwrap_or(0),
            None => {
                let key = if keys.len() + 1 == KEYS { OTHERS } else { key };
                keys.push((key, 0, 0));
                keys.len() - 1
            }
        };
        if let Some((_, sum, number)) = keys.get_mut(place) {
            *sum = sum.saturating_add(time);
            *number = number.saturating_add(count);
        }
    }
}

/// Rows of what is sorted by them: how many numbers to the next one, and how much it has.
fn pack_rows(rows: impl Iterator<Item = u32>) -> Vec<u8> {
    let (mut out, mut before, mut run) = (Vec::new(), None, 0);
    let mut end = |row: Option<u32>, run: u64, last: &mut u32| {
        if let Some(row) = row {
            number((row - *last).into(), &mut out);
            number(run, &mut out);
            *last = row;
        }
    };
    let mut last = 0;
    for row in rows {
        if before != Some(row) {
            end(before, run, &mut last);
            (before, run) = (Some(row), 0);
        }
        run += 1;
    }
    end(before, run, &mut last);
    out
}

/// The columns of slices, whose times count from `from`.
pub(super) fn pack_slices(mut slices: Vec<Slice>, from: u64) -> Vec<u8> {
    slices.sort_unstable_by_key(|slice| (slice.row, slice.start, slice.end));
    let [mut starts, mut times, mut keys, mut args, mut firsts, mut lasts]: [Vec<u8>; 6] = Default::default();
    let (mut row, mut start, mut first) = (None, from, 0_u64);
    for slice in &slices {
        if row != Some(slice.row) {
            (row, start) = (Some(slice.row), from);
        }
        number(slice.start - start, &mut starts);
        start = slice.start;
        number(slice.end.saturating_sub(slice.start), &mut times);
        number(slice.key.into(), &mut keys);
        signed(slice.arg, &mut args);
        signed(slice.first.wrapping_sub(first).cast_signed(), &mut firsts);
        first = slice.first;
        signed(slice.last.wrapping_sub(slice.first).cast_signed(), &mut lasts);
    }
    let mut columns = Columns::default();
    columns.add(&pack_rows(slices.iter().map(|slice| slice.row)));
    for column in [starts, times, keys, args, firsts, lasts] {
        columns.add(&column);
    }
    columns.into_bytes()
}

/// The columns of densities, whose buckets count from `first`.
pub(super) fn pack_densities(mut cells: Vec<Dense>, first: u64) -> Vec<u8> {
    cells.sort_unstable();
    let [mut buckets, mut keys, mut times, mut counts]: [Vec<u8>; 4] = Default::default();
    let (mut row, mut bucket) = (None, first);
    for (of, at, key, time, count) in &cells {
        if row != Some(*of) {
            (row, bucket) = (Some(*of), first);
        }
        number(at - bucket, &mut buckets);
        bucket = *at;
        // The key of others is the shortest.
        number(u64::from(key.wrapping_add(1)), &mut keys);
        number(*time, &mut times);
        number(*count, &mut counts);
    }
    let mut columns = Columns::default();
    columns.add(&pack_rows(cells.iter().map(|(row, ..)| *row)));
    for column in [buckets, keys, times, counts] {
        columns.add(&column);
    }
    columns.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_in_a_level_and_in_all_densities_above() {
        let mut count = 0;
        let mut give = |_| {
            count += 1;
            Ok(())
        };
        let mut blocks = Blocks::new(&mut give);
        let mut rows = Rows::default();
        for thread in 0..20 {
            rows.number(Row::Calls(thread));
        }
        let (span, slices) = (10_000_000, 100_000_u64);
        let mut levels = Levels::new(span, slices);
        assert_eq!((levels.base(), levels.count()), (3200, 2));
        let (mut short, mut most) = (0_u64, 0_usize);
        for nth in 1..=slices {
            let end = nth * 100;
            // One in a hundred is long.
            let time = if nth % 100 == 0 { 20_000 } else { nth * nth % 3000 };
            short += u64::from(time < 3200);
            let (row, start) = ((nth % 20) as u32, end.saturating_sub(time));
            let slice = Slice { row, start, end, key: 1, arg: -1, first: nth, last: nth + 1 };
            levels.slice(slice, true, &mut blocks).unwrap();
            levels.event(row, end);
            levels.advance(end, &rows, &mut blocks).unwrap();
            most = most.max(levels.densities.iter().map(|density| density.open.len()).sum());
        }
        levels.finish(&rows, &mut blocks).unwrap();
        // What is held does not grow with the recording.
        assert!(most <= 20 * 3 * 3, "{most}");
        let count = |level| -> usize {
            let blocks = levels.slice_blocks.iter().filter(|block| block.level == level);
            blocks.map(|block| block.count).sum()
        };
        // The first long one is cut at the beginning of the recording.
        assert_eq!([0, 1, 2].map(count), [short as usize, 1, (slices - short) as usize - 1]);
        // Times of blocks cover what is in them, and a finer level has more.
        assert!(levels.slice_blocks.iter().all(|block| block.from < block.to && block.to <= span));
        let cells = |level| -> usize {
            let blocks = levels.density_blocks.iter().filter(|block| block.level == level);
            blocks.map(|block| block.count).sum()
        };
        assert!(cells(0) > 2 * cells(1) && cells(1) > 0);
    }

    #[test]
    fn keys_of_a_density_are_bounded() {
        let mut density = Density { width: 100, open: FastMap::default(), closed: 0, done: Vec::new() };
        for key in 0..100 {
            density.add(0, 0, key, 1, 1);
        }
        let keys = &density.open[&(0, 0)].keys;
        assert_eq!(keys.len(), KEYS);
        assert_eq!(keys.iter().map(|(_, time, _)| time).sum::<u64>(), 100);
        assert_eq!(keys[KEYS - 1], (OTHERS, 85, 85));
    }

    #[test]
    fn times_at_the_ends_of_what_can_be_counted() {
        let most = (1 << 53) - 1;
        for (span, events) in [(0, 0), (0, 5), (most, 1), (most, u64::MAX), (7, 5_000_000)] {
            let mut levels = Levels::new(span, events);
            assert!(levels.base() > 0 && levels.count() <= 30);
            for (start, end) in [(0, 0), (0, span), (span, span), (span / 2, span)] {
                let level = levels.level(end - start);
                let slice = Slice { row: 0, start, end, key: 0, arg: 0, first: 0, last: 0 };
                if let Some(density) = levels.densities.get_mut(level) {
                    density.cover(&slice);
                }
            }
        }
    }
}
