//! Tells answers one after the other.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    super::{Json, gaps, head, table::duration},
    Live, Over,
    screen::{self, Size},
};
use crate::analyze::chosen::Text;
use crate::following::is_closed_within;
use crate::units::count;
use crate::{CliError, json_line};
use analysis::answers::{Analysis, Covered};
use capture::follow::Follower;
use report::TraceFile;
use stdx::terminal;
use stdx::terminal::SafeWriter;

/// A terminal is not redrawn more often, however many intervals come at once.
const REDRAW: Duration = Duration::from_millis(100);

/// Why it is not known what an event tells of which there is none.
const NOT_SEEN: &str = "so far there are no {}";

/// How late an interval is told.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::analyze) struct Lateness {
    /// How long ago it ended, by the recording's clock. `None` if this machine cannot tell.
    ended_ago_ns: Option<u64>,
    /// Events since the last interval that came behind later ones.
    late_events: u64,
    /// Events since the last interval that were removed before they were read.
    removed_events: u64,
}

impl Lateness {
    /// As lines of text.
    fn text(self) -> String {
        let Self { ended_ago_ns, late_events, removed_events } = self;
        let mut text = ended_ago_ns.map_or(String::new(), |ago| format!("told {} later\n", duration(ago)));
        if late_events != 0 {
            text += &format!("{} events came behind later ones\n", count(late_events));
        }
        if removed_events != 0 {
            let removed = count(removed_events);
            text += &format!("{removed} events were removed by the size limit before they were counted\n");
        }
        text
    }
}

/// Tells answers: on a terminal each in place of the one before, elsewhere one behind the other.
pub(super) struct Teller<A: Analysis> {
    text: Text<A>,
    out: SafeWriter<File>,
    is_first: bool,
    /// The clock of the recording when there was something new, and when that was.
    clock: Option<(u64, Instant)>,
    /// How many events were removed by now.
    removed: u64,
    /// How many were late, and how many removed, when an interval was told last.
    told: (u64, u64),
    drawn: Drawn,
}

/// What is on the terminal.
struct Drawn {
    text: String,
    /// For which size. `None` if it is to be drawn.
    size: Option<Size>,
    /// When something was drawn last.
    last: Option<Instant>,
}

impl<A> Teller<A>
where
    A: Analysis,
    A::Answer: Serialize,
{
    pub(super) fn new(live: &Live, text: Text<A>) -> Result<Self, CliError> {
        let out = live.out.try_clone().map_err(CliError::system("write to the output"))?;
        let is_terminal = out.is_terminal();
        let before = if live.json { String::new() } else { format!("{}: no events yet\n", live.name) };
        Ok(Self {
            text,
            out: SafeWriter::new(out, is_terminal).json(live.json),
            is_first: true,
            clock: None,
            removed: 0,
            told: (0, 0),
            drawn: Drawn { text: before, size: None, last: None },
        })
    }

    /// Notes how far it is with the recording.
    pub(super) fn note(&mut self, follower: &Follower) {
        self.removed = follower.fell_behind();
        self.clock = follower.now_ns().map(|now| (now, Instant::now()));
    }

    /// Tells of an interval. By now so many events were `late`.
    pub(super) fn tell(
        &mut self,
        live: &Live,
        file: &TraceFile<Vec<u8>>,
        (answer, covered): &(A::Answer, Covered),
        late: u64,
    ) -> Result<(), Over> {
        if is_closed_within(0, &live.ends()) {
            return Err(Over::Unwanted);
        }
        let lateness = self.lateness(file, covered.to_ns, late);
        if live.json {
            let json = Json { analysis: live.topic.name(), covered, live: Some(lateness), answer };
            return Ok(self.out.write_all(json_line(&json)?.as_bytes())?);
        }
        let head = head(&live.name, file, covered) + &lateness.text();
        let head = head + &gaps(live.topic, covered, NOT_SEEN);
        if !self.out.is_terminal() {
            let between = if std::mem::replace(&mut self.is_first, false) { "" } else { "\n" };
            let text = format!("{between}{head}{}", (self.text)(answer, covered, live.limit));
            return Ok(self.out.write_all(text.as_bytes())?);
        }
        // More rows than a screen has are not seen.
        let limit = live.limit.min(Size::of(&live.out).rows);
        self.drawn.text = head + &(self.text)(answer, covered, limit);
        self.drawn.size = None;
        if self.drawn.last.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            self.flush()?;
        }
        Ok(())
    }

    fn lateness(&mut self, file: &TraceFile<Vec<u8>>, end: u64, late: u64) -> Lateness {
        let (late_before, removed_before) = std::mem::replace(&mut self.told, (late, self.removed));
        let now = self.clock.map(|(now, at)| {
            let now = now.saturating_add(u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX));
            now.saturating_add_signed(file.reader().clock().added())
        });
        Lateness {
            ended_ago_ns: now.map(|now| now.saturating_sub(end)),
            late_events: late.saturating_sub(late_before),
            removed_events: self.removed.saturating_sub(removed_before),
        }
    }

    /// Draws what is to be drawn, also if the terminal has another size by now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_terminal() || self.drawn.text.is_empty() {
            return Ok(());
        }
        let out = self.out.inner();
        let size = Size::of(&*out);
        if self.drawn.size == Some(size) {
            return Ok(());
        }
        let is_first = std::mem::replace(&mut self.is_first, false);
        let picture = screen::picture(&terminal::lines(&self.drawn.text), size, is_first);
        (self.drawn.size, self.drawn.last) = (Some(size), Some(Instant::now()));
        out.write_all(picture.as_bytes())
    }
}
