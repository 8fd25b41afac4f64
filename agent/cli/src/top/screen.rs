//! The terminal, while it is drawn on: it is left as it was found, whatever ends that.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use crossterm::{
    cursor, event, execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Frame, Terminal, backend::CrosstermBackend};
use rustix::{
    process::{Signal, kill_current_process_group},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

/// How long a key is waited for at most, so that signals are seen soon.
const PATIENCE: Duration = Duration::from_millis(100);

/// A terminal that is not drawn on yet.
pub(super) struct Screen {
    out: File,
    has_colour: bool,
}

/// What is on the screen.
pub(super) trait Page {
    /// What it shows.
    type Table;

    /// Takes a key.
    fn key(&mut self, key: event::KeyEvent) -> Wanted;
    /// Draws a table, if there is one by now.
    fn draw(&mut self, frame: &mut Frame<'_>, table: Option<&Self::Table>);
    /// Whether what is shown stays.
    fn is_paused(&self) -> bool;
    /// Tells how long an interval is.
    fn set_interval(&mut self, interval: Duration);
}

/// What a key asks of others than the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing; what is shown may be another.
    Nothing,
    /// The end.
    Quit,
    /// A longer interval, or a shorter one.
    Interval(bool),
    /// To be stopped as the shell does it.
    Suspend,
}

/// A terminal that is drawn on.
pub(super) struct Shown<P: Page> {
    terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
    page: P,
    table: Option<P::Table>,
    // Dropped last: nothing is drawn any more.
    raw: Raw,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awoken {
    /// Its time is over, or a key changed what is shown.
    Nothing,
    /// A key for the end.
    Quit,
    /// A key for a longer interval, or a shorter one.
    Interval(bool),
}

impl Screen {
    /// Takes standard output, which is a terminal.
    pub(super) fn prepare(has_colour: bool) -> Result<Self, super::CliError> {
        let out = io::stdout().as_fd().try_clone_to_owned();
        let out = out.map_err(super::CliError::system("use the terminal"))?.into();
        Ok(Self { out, has_colour })
    }

    /// Whether colours are used.
    pub(super) fn has_colour(&self) -> bool {
        self.has_colour
    }

    /// Begins to draw.
    pub(super) fn begin<P: Page>(self, page: P) -> io::Result<Shown<P>> {
        let Self { out, has_colour: _ } = self;
        restore_on_panic(out.try_clone()?);
        let raw = Raw::begin(out.try_clone()?)?;
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(out)))?;
        Ok(Shown { terminal, page, table: None, raw })
    }
}

impl<P: Page> Shown<P> {
    /// Tells how long an interval is.
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.page.set_interval(interval);
    }

    /// Shows what was counted.
    pub(super) fn show(&mut self, table: P::Table) -> io::Result<()> {
        if self.page.is_paused() {
            return Ok(());
        }
        self.table = Some(table);
        self.draw()
    }

    fn draw(&mut self) -> io::Result<()> {
        let Self { terminal, page, table, .. } = self;
        terminal.draw(|frame| page.draw(frame, table.as_ref()))?;
        terminal.backend_mut().flush()
    }

    /// Waits for a key for so long, or less.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<Awoken> {
        if self.table.is_none() {
            self.draw()?;
        }
        if !event::poll(time.min(PATIENCE))? {
            return Ok(Awoken::Nothing);
        }
        let wanted = match event::read()? {
            event::Event::Key(key) => self.page.key(key),
            _ => Wanted::Nothing,
        };
        match wanted {
            Wanted::Nothing => self.draw()?,
            Wanted::Suspend => self.suspend()?,
            Wanted::Quit => return Ok(Awoken::Quit),
            Wanted::Interval(longer) => return Ok(Awoken::Interval(longer)),
        }
        Ok(Awoken::Nothing)
    }

    /// Stops as the shell wants it, and goes on when it wants that.
    fn suspend(&mut self) -> io::Result<()> {
        self.raw.end();
        kill_current_process_group(Signal::TSTP)?;
        self.raw.again()?;
        self.terminal.clear()?;
        self.draw()
    }
}

/// The state of the terminal that belongs to drawing. Dropping it gives the former one back.
struct Raw {
    out: File,
    is_on: bool,
}

impl Raw {
    fn begin(out: File) -> io::Result<Self> {
        let mut raw = Self { out, is_on: false };
        raw.again()?;
        Ok(raw)
    }

    fn again(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        self.is_on = true;
        execute!(self.out, EnterAlternateScreen, cursor::Hide)
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_on) {
            restore(&self.out);
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.end();
    }
}

/// Gives back what was taken. A terminal that is gone needs nothing.
fn restore(mut out: &File) {
    let _ = execute!(out, cursor::Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

/// Has a panic be seen on the terminal as it was.
fn restore_on_panic(out: File) {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore(&out);
        tell(panic);
    }));
}

/// Standard input and output are elsewhere for as long as there is this: what is started meanwhile neither
/// reads keys nor writes between what is drawn.
pub(super) struct Elsewhere {
    before: [OwnedFd; 3],
}

impl Elsewhere {
    pub(super) fn begin() -> io::Result<Self> {
        let before = [
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&nowhere)?;
        dup2_stdout(&nowhere)?;
        dup2_stderr(&nowhere)?;
        Ok(Self { before })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let [stdin, stdout, stderr] = &self.before;
        // They were there before, so that there is room for them.
        let _ = dup2_stdin(stdin);
        let _ = dup2_stdout(stdout);
        let _ = dup2_stderr(stderr);
    }
}
