//! From the times on the pages to those that readers show.
//!
//! In the order in which stock readers do it: TIME_SHIFT (a guest's clock becomes its host's), TSC2NSEC
//! (ticks become nanoseconds), then the sum of OFFSET and DATE. All sums wrap, as theirs do.

use super::super::option::{FileOption, TimeShift, TimeShiftSample};
use super::option::{OptionEntry, OptionValue};

/// Flag of TIME_SHIFT: between two samples, the offset is that of a line through them.
const INTERPOLATE: u32 = 1;

/// Which corrections are applied. All of them, by default; none gives the times as the pages have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Corrections {
    /// Option OFFSET.
    pub offset: bool,
    /// Option DATE (what `report --nodate` leaves out).
    pub date: bool,
    /// Option TIME_SHIFT.
    pub shift: bool,
    /// Option TSC2NSEC.
    pub tsc: bool,
}

impl Corrections {
    /// All corrections.
    pub const ALL: Self = Self { offset: true, date: true, shift: true, tsc: true };
    /// No corrections (`report --raw-ts`).
    pub const NONE: Self = Self { offset: false, date: false, shift: false, tsc: false };
}

impl Default for Corrections {
    fn default() -> Self {
        Self::ALL
    }
}

/// The corrections of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    offset: i64,
    date: i64,
    tsc: Option<(u32, u32)>,
    shift: Option<TimeShift>,
    /// What the user adds.
    shifted: i64,
    /// The sum of offset, date and what the user adds, as far as they are wanted.
    add: i64,
    wanted: Corrections,
}

impl Clock {
    pub(crate) fn new(options: &[OptionEntry]) -> Self {
        let mut clock = Self::default();
        for entry in options {
            let OptionValue::Fact(fact) = &entry.value else { continue };
            match fact {
                FileOption::Offset { nanos } => clock.offset = clock.offset.wrapping_add(*nanos),
                FileOption::Date { micros } => {
                    clock.date = clock.date.wrapping_add(micros.wrapping_mul(1000));
                }
                FileOption::Tsc2Nsec { mult, shift, .. } if *mult != 0 => clock.tsc = Some((*mult, *shift)),
                FileOption::TimeShift(shift) => {
                    let mut shift = shift.clone();
                    for samples in &mut shift.cpus {
                        samples.sort_by_key(|sample| sample.time);
                        samples.dedup_by_key(|sample| sample.time);
                    }
                    clock.shift = Some(shift);
                }
                _ => {}
            }
        }
        clock.set(Corrections::ALL);
        clock
    }

    /// Applies these corrections from now on.
    pub(crate) fn set(&mut self, wanted: Corrections) {
        self.wanted = wanted;
        let part = |on, value| if on { value } else { 0 };
        let recorded = part(wanted.offset, self.offset).wrapping_add(part(wanted.date, self.date));
        self.add = recorded.wrapping_add(self.shifted);
    }

    /// Adds to all times from now on.
    pub(crate) fn shift_by(&mut self, nanos: i64) {
        self.shifted = self.shifted.wrapping_add(nanos);
        self.set(self.wanted);
    }

    /// Which corrections are applied.
    pub fn corrections(&self) -> Corrections {
        self.wanted
    }

    /// Nanoseconds that are added to all times.
    pub fn added(&self) -> i64 {
        self.add
    }

    /// Nanoseconds of option OFFSET, 0 if there is none.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Nanoseconds of option DATE, 0 if there is none.
    pub fn date(&self) -> i64 {
        self.date
    }

    /// Whether times come out as the pages have them.
    pub(crate) fn is_raw(&self) -> bool {
        let shifted = self.wanted.shift
            && self.shift.as_ref().is_some_and(|shift| shift.cpus.iter().any(|cpu| !cpu.is_empty()));
        self.add == 0 && !shifted && (self.tsc.is_none() || !self.wanted.tsc)
    }

    /// The corrections of one CPU.
    pub fn for_cpu(&self, cpu: u32) -> CpuClock<'_> {
        let shift = self.shift.as_ref().filter(|_| self.wanted.shift);
        let samples = shift.and_then(|shift| shift.cpus.get(cpu as usize)).map_or(&[][..], Vec::as_slice);
        let interpolate = shift.is_some_and(|shift| shift.flags & INTERPOLATE != 0);
        CpuClock { samples, interpolate, tsc: self.tsc.filter(|_| self.wanted.tsc), add: self.add }
    }
}

/// The corrections of one CPU's times.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock<'a> {
    samples: &'a [TimeShiftSample],
    interpolate: bool,
    tsc: Option<(u32, u32)>,
    add: i64,
}

impl CpuClock<'_> {
    /// Times as the pages have them.
    pub(crate) const RAW: Self = Self { samples: &[], interpolate: false, tsc: None, add: 0 };

    /// The time of a record by the corrections.
    #[inline]
    pub fn correct(&self, time: u64) -> u64 {
        let mut time = time;
        if !self.samples.is_empty() {
            time = self.shift(time);
        }
        if let Some((mult, shift)) = self.tsc {
            time = (u128::from(time) * u128::from(mult)).checked_shr(shift).unwrap_or(0) as u64;
        }
        time.wrapping_add_signed(self.add)
    }

    /// The host's time. Before the second sample and after the last but one, those two count that are
    /// nearest.
    fn shift(&self, time: u64) -> u64 {
        let (first, second) = match self.samples {
            [] => return time,
            // A single sample has no scaling for stock readers.
            [only] => return time.wrapping_add_signed(only.offset),
            samples => {
                let above = samples.partition_point(|sample| sample.time <= time);
                let first = above.saturating_sub(1).min(samples.len() - 2);
                (&samples[first], &samples[first + 1])
            }
        };
        let offset = if self.interpolate {
            // Samples of one time were left out, so that this is not 0.
            let span = i128::from(second.time) - i128::from(first.time);
            let rise = i128::from(second.offset) - i128::from(first.offset);
            let part = (i128::from(time) - i128::from(first.time)).saturating_mul(rise);
            i128::from(first.offset).wrapping_add(part.saturating_add(span / 2) / span)
        } else {
            i128::from(first.offset)
        };
        let scaled = u128::from(time) * u128::from(first.scaling);
        let scaled =
            u32::try_from(first.fraction).ok().and_then(|bits| scaled.checked_shr(bits)).unwrap_or(0);
        (scaled as u64).wrapping_add_signed(offset as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::OptionId;
    use super::*;

    fn clock(facts: Vec<FileOption>) -> Clock {
        let entry = |fact: FileOption| OptionEntry {
            offset: 0,
            size: 0,
            id: OptionId(0),
            value: OptionValue::Fact(fact),
        };
        Clock::new(&facts.into_iter().map(entry).collect::<Vec<_>>())
    }

    #[test]
    fn each_correction_and_none() {
        let mut clock = clock(vec![
            FileOption::Offset { nanos: -5 },
            FileOption::Date { micros: 2 },
            FileOption::Tsc2Nsec { mult: 3, shift: 1, offset: 77 },
        ]);
        let mut at = |wanted: Corrections, time| {
            clock.set(wanted);
            clock.for_cpu(0).correct(time)
        };
        assert_eq!(at(Corrections::ALL, 100), 150 + 2000 - 5);
        assert_eq!(at(Corrections::NONE, 100), 100);
        assert_eq!(at(Corrections { offset: true, ..Corrections::NONE }, 100), 95);
        assert_eq!(at(Corrections { date: true, ..Corrections::NONE }, 100), 2100);
        // Beyond 64 bits in between.
        assert_eq!(at(Corrections { tsc: true, ..Corrections::NONE }, 1 << 63), 3 << 62);
    }

    #[test]
    fn shift_by_samples() {
        let sample = |time, offset| TimeShiftSample { time, offset, scaling: 1 << 4, fraction: 4 };
        let shift = |flags, samples| {
            clock(vec![FileOption::TimeShift(TimeShift { peer: 1, flags, cpus: vec![vec![], samples] })])
        };
        let steps = shift(0, vec![sample(300, 30), sample(100, 10), sample(200, 20), sample(200, 99)]);
        let times = [50, 100, 199, 200, 299, 300, 1000];
        let shifted = |clock: &Clock| times.map(|time| clock.for_cpu(1).correct(time) - time);
        assert_eq!(shifted(&steps), [10, 10, 10, 20, 20, 20, 20]);
        let line = shift(1, vec![sample(100, 10), sample(200, 20), sample(300, 30)]);
        assert_eq!(shifted(&line), [6, 10, 20, 20, 30, 30, 100]);
        // Other CPUs, and those that the option has not, are left alone.
        assert_eq!((steps.for_cpu(0).correct(100), steps.for_cpu(9).correct(100)), (100, 100));
        let half = TimeShiftSample { time: 1, offset: -3, scaling: 1, fraction: 1 };
        assert_eq!(shift(0, vec![half]).for_cpu(1).correct(100), 97);
        assert_eq!(shift(0, vec![half, sample(1000, 0)]).for_cpu(1).correct(100), 47);
    }

    #[test]
    fn nothing_is_too_large() {
        let sample = |time| TimeShiftSample { time, offset: i64::MIN, scaling: u64::MAX, fraction: u64::MAX };
        let other = TimeShiftSample { time: u64::MAX, offset: i64::MAX, scaling: u64::MAX, fraction: 0 };
        for samples in [vec![sample(0), other], vec![sample(5), sample(6)], vec![other]] {
            for flags in [0, 1] {
                let shift = FileOption::TimeShift(TimeShift { peer: 0, flags, cpus: vec![samples.clone()] });
                let tsc = FileOption::Tsc2Nsec { mult: u32::MAX, shift: u32::MAX, offset: 0 };
                let clock = clock(vec![shift, tsc, FileOption::Date { micros: i64::MIN }]);
                for time in [0, 5, 1 << 63, u64::MAX] {
                    clock.for_cpu(0).correct(time);
                }
            }
        }
    }
}
