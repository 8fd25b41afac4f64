//! Lines that show how a recording goes and how far a file is read, on a terminal only.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use super::units::{bytes, count};
use capture::Progress;

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(500);
/// The same while events are attached, which is over sooner.
const EVERY_ATTACHED: Duration = Duration::from_millis(50);

/// A line on stderr that is written over and over.
#[derive(Debug)]
pub(super) struct ProgressLine {
    on: bool,
    last: Option<(Instant, Progress)>,
    attached: Option<Instant>,
    shown: bool,
}

impl ProgressLine {
    /// A line that is shown only if `on`.
    pub(super) fn new(on: bool) -> Self {
        Self { on, last: None, attached: None, shown: false }
    }

    /// Whether it shows anything.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Writes a line that stays.
    pub(super) fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.shown) {
            clear_line();
        }
        super::tell(text);
    }

    /// Shows how many kinds of events are attached.
    pub(super) fn attaching(&mut self, done: usize, all: usize) {
        if self.on && self.attached.is_none_or(|last| last.elapsed() >= EVERY_ATTACHED) {
            self.attached = Some(Instant::now());
            self.write(&format!("attaching {} of {}", count(done as u64), count(all as u64)));
        }
    }

    /// Tells that recording has begun: in the line's place on a terminal, where the state follows, and
    /// elsewhere as a line of its own.
    pub(super) fn begin(&mut self, text: &str) {
        if self.on { self.write(text) } else { super::tell(&format!("tracer-agent: {text}")) }
    }

    fn write(&mut self, line: &str) {
        // A terminal that is gone is noticed by the signal that comes with it.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        self.shown = true;
    }

    /// Shows the state, unless it was shown a moment ago.
    pub(super) fn show(&mut self, now: Progress) {
        if !self.on {
            return;
        }
        let time = Instant::now();
        let Some((last_time, last)) = self.last else {
            self.last = Some((time, now));
            return;
        };
        let elapsed = time - last_time;
        if elapsed < EVERY {
            return;
        }
        let rate = ((now.events - last.events) as f64 / elapsed.as_secs_f64()) as u64;
        let lost = if now.lost == 0 { "none lost".to_owned() } else { format!("{} LOST", count(now.lost)) };
        let line = format!(
            "recording: {} events ({}/s), {}, {lost}",
            count(now.events),
            count(rate),
            bytes(now.bytes.unwrap_or_default())
        );
        self.write(&line);
        self.last = Some((time, now));
    }
}

/// Clears the line that the terminal's cursor is in. Not through what makes texts safe for a terminal: this
/// is for the terminal.
pub(super) fn clear_line() {
    // One that is gone is noticed by the signal that comes with it.
    let _ = write!(std::io::stderr(), "\r\x1b[K");
}

/// How far a recording is, for who asks by signal.
pub(super) fn text(now: Progress) -> String {
    let Progress { events, lost, bytes: stored, elapsed } = now;
    let stored = stored
        .map_or_else(|| "all of them in the rings".to_owned(), |stored| format!("{} stored", bytes(stored)));
    format!(
        "tracer-agent: recording for {:.1} s: {} events, {} lost, {stored}",
        elapsed.as_secs_f64(),
        count(events),
        count(lost)
    )
}

/// How far the reading of a file has come: a line on stderr, from the second second on.
#[derive(Debug)]
pub(super) struct ReadingLine {
    on: bool,
    span: Option<(u64, u64)>,
    start: Instant,
    last: Duration,
}

impl ReadingLine {
    /// A line that is shown only if `on`. `span` has the times of the first and the last event.
    pub(super) fn new(on: bool, span: Option<(u64, u64)>) -> Self {
        Self { on, span, start: Instant::now(), last: EVERY }
    }

    /// Shows the state, unless it was shown a moment ago.
    pub(super) fn show(&mut self, now: report::Progress) {
        let elapsed = self.start.elapsed();
        if !self.on || elapsed < self.last + EVERY {
            return;
        }
        self.last = elapsed;
        let share =
            self.span.filter(|(first, last)| last > first).map_or_else(String::new, |(first, last)| {
                let done = now.timestamp.saturating_sub(first) as f64 / (last - first) as f64;
                format!("{:.0} %, ", done.min(1.0) * 100.0)
            });
        let rate = (now.records as f64 / elapsed.as_secs_f64()) as u64;
        let _ = write!(
            std::io::stderr(),
            "\rreading: {share}{} events ({}/s)\x1b[K",
            count(now.records),
            count(rate)
        );
    }
}

impl Drop for ReadingLine {
    fn drop(&mut self) {
        if self.last > EVERY {
            clear_line();
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            clear_line();
        }
    }
}
