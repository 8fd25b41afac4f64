//! `record -o -` and `-N`: the recording goes to standard output, or to a listener, while it is made.
//!
//! The recording itself is one to a file, in a private directory that is removed at the end. A thread sends
//! what its spool has, so that a reader that is slow, or that has stopped, costs the recording nothing.

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal as _, PipeReader, PipeWriter, Write},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    process::nice,
    stdio::dup2_stdout,
};

use super::{
    super::{CliError, input, tell},
    net,
};
use capture::follow::Follower;
use capture::paged::PageFeed;
use capture::piped::{Feed, FeedError, Place};
use capture::{CaptureOptions, Destination, Session};
use spec::RecordingSpec;
use stdx::output::Output;
use tracecmd::send::{Greeted, SendError, Sender};
use tracedat::Compression;

/// What the recording becomes first.
const FILE: &str = "trace.dat";
/// Its spool.
const SPOOL: &str = "trace.dat.spool";
/// How much less urgent sending is than the recording and the rest of the machine.
const NICE: i32 = 10;
/// Bytes of frames that are written at a time.
const BUFFER: usize = 1 << 17;

/// Where the recording goes.
pub(super) enum Target {
    /// To standard output.
    Stdout(File),
    /// To a listener, with this compression.
    Listener(Box<Greeted>, Compression),
}

/// Where the recording is meanwhile. What is in it is removed at the end, unless it is a recording that was
/// not sent.
pub(super) struct Meanwhile {
    /// Until it is sent.
    to: Option<Target>,
    /// Where it goes, in words.
    name: String,
    place: Place,
    is_kept: bool,
}

/// Why not all of a recording was sent.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error(transparent)]
    Stdout(#[from] FeedError),
    #[error(transparent)]
    Listener(#[from] SendError),
}

/// The thread that sends.
pub(super) struct Sending {
    thread: JoinHandle<Result<(), Unsent>>,
    /// It ends with what is there by then when this is closed.
    go_on: PipeWriter,
    /// Closed by its end.
    ended: PipeReader,
    /// Whether it has ended because the reader of standard output has gone.
    is_unread: Arc<AtomicBool>,
}

/// Refuses what does not go with it.
fn check(spec: &RecordingSpec, is_live: bool) -> Result<(), CliError> {
    let any = |is: fn(&spec::ChannelSpec) -> bool| spec.channels.iter().any(is);
    let refused = [
        (
            is_same(&io::stdout(), &io::stderr()),
            "messages would be in the recording, as standard error goes there, too (2>&1)",
        ),
        (io::stdout().is_terminal(), "it is a terminal; send it into a pipe or a file, or use -o FILE"),
        (!spec.maps.is_empty(), "--count and --time print their tables there"),
        (is_live, "--live prints its answers there"),
        (any(|channel| channel.overwrite), "--overwrite has its events in memory until the end; use -o FILE"),
        (any(|channel| channel.keep_bytes.is_some()), "-m removes what may not have been sent; use -o FILE"),
    ];
    match refused.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, why)) => {
            Err(CliError::Usage(format!("-o - writes the recording to standard output: {why}")))
        }
        None => Ok(()),
    }
}

/// Whether two descriptors are of one file or pipe; a terminal is refused for what it is, and what is thrown
/// away is not mixed.
fn is_same(one: &impl AsFd, other: &impl AsFd) -> bool {
    let [one, other] = [fstat(one), fstat(other)];
    let (Ok(one), Ok(other)) = (one, other) else { return false };
    let kind = FileType::from_raw_mode(one.st_mode);
    kind != FileType::CharacterDevice && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

impl Target {
    /// Connects to the listener, or takes standard output for the recording. What else is written there, by
    /// COMMAND for example, goes to standard error from now on. `None` if the recording goes to a file.
    pub(super) fn take(
        spec: &RecordingSpec,
        net: &net::NetArgs,
        is_live: bool,
    ) -> Result<Option<Self>, CliError> {
        if let Some(greeted) = net.connect(spec, is_live)? {
            return Ok(Some(Self::Listener(Box::new(greeted), spec.file.compression)));
        }
        if !input::is_standard(&spec.file.path) {
            return Ok(None);
        }
        check(spec, is_live)?;
        let taken = io::stdout().as_fd().try_clone_to_owned();
        let out = taken.map_err(CliError::system("use standard output"))?.into();
        dup2_stdout(io::stderr()).map_err(|error| CliError::system("use standard error")(error.into()))?;
        Ok(Some(Self::Stdout(out)))
    }

    /// Makes a directory of the recording's own, in which it is a file meanwhile.
    pub(super) fn place(self) -> Result<Meanwhile, CliError> {
        let name = match &self {
            Self::Stdout(_) => "standard output".to_owned(),
            Self::Listener(greeted, _) => greeted.peer().to_string(),
        };
        let parent = input::temporary();
        let place = Place::create_in(&parent).map_err(|error| no_place(&parent, &error))?;
        Ok(Meanwhile { to: Some(self), name, place, is_kept: false })
    }
}

fn no_place(parent: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Output(format!(
        "what is sent is kept in {} meanwhile: {error}; TMPDIR names another directory",
        parent.display()
    ))
}

impl Meanwhile {
    /// What is specified, to the file: there is none of the name of standard output.
    pub(super) fn planned(&self, spec: &RecordingSpec) -> RecordingSpec {
        let mut planned = spec.clone();
        planned.file.path = self.file();
        planned
    }

    /// Has the recording go to the file.
    pub(super) fn receive(&self, options: &mut CaptureOptions) -> Result<(), CliError> {
        let dir = self.place.dir();
        let output = Output::in_directory(dir.clone(), FILE.into());
        options.destination = Destination::File(output.map_err(|error| no_place(dir.path(), &error))?);
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.place.dir().join(FILE)
    }

    /// Where it goes, in words.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Begins to send. To be called before the recording begins, so that it cannot be over before.
    pub(super) fn send(&mut self, session: &Session) -> Result<Sending, CliError> {
        let failed = |error: FeedError| CliError::Failed(format!("cannot send the recording: {error}"));
        let follower = Follower::open(session.spool_dir()).map_err(|error| failed(error.into()))?;
        let follower = follower.ok_or_else(|| failed(FeedError::Unfinished))?;
        let pipes = io::pipe().and_then(|stop| Ok((stop, io::pipe()?)));
        let ((stop, go_on), (ended, end)) = pipes.map_err(CliError::system("create a pipe"))?;
        let is_unread = Arc::<AtomicBool>::default();
        let unread = Arc::clone(&is_unread);
        let send: Box<dyn FnOnce() -> Result<(), Unsent> + Send> = match self.to.take() {
            None => return Err(failed(FeedError::Unfinished)),
            Some(Target::Stdout(out)) => Box::new(move || {
                let wait = |time| wait(time, &stop, &out);
                let patient = BufWriter::with_capacity(BUFFER, Patient(&out));
                let sent = Feed::begin(follower, patient).and_then(|feed| feed.run(wait));
                unread.store(sent.as_ref().is_err_and(FeedError::is_closed), Ordering::Release);
                Ok(sent.map(drop)?)
            }),
            Some(Target::Listener(greeted, compression)) => {
                let feed = PageFeed::begin(follower).map_err(|error| failed(error.into()))?;
                let sender =
                    Sender::begin(*greeted, feed, compression).map_err(|error| net::failed(&error))?;
                Box::new(move || Ok(sender.run(stop.as_fd()).map(drop)?))
            }
        };
        let run = move || {
            // Linux has it for each thread. Without it sending is only more in the way.
            let _ = nice(NICE);
            let _closed_at_the_end = end;
            send()
        };
        let thread = std::thread::Builder::new().name("pipe".to_owned()).spawn(run);
        let thread = thread.map_err(CliError::system("start a thread"))?;
        Ok(Sending { thread, go_on, ended, is_unread })
    }

    /// Waits until all of the recording is sent, which has become a file if `is_finished`.
    pub(super) fn finish(&mut self, sending: Sending, is_finished: bool) -> Result<(), CliError> {
        match sending.join(is_finished)? {
            Ok(()) => Ok(()),
            // Its own message says so.
            Err(Unsent::Stdout(FeedError::Unfinished) | Unsent::Listener(SendError::Unfinished))
                if !is_finished =>
            {
                Ok(())
            }
            Err(error) => Err(self.not_sent(&error, is_finished)),
        }
    }

    /// Keeps the file of which not all was sent, if there is one.
    fn not_sent(&mut self, error: &Unsent, is_finished: bool) -> CliError {
        let why = match error {
            Unsent::Stdout(error) if error.is_closed() => "nobody reads standard output any more".to_owned(),
            Unsent::Stdout(FeedError::Write(error)) => format!("cannot write: {error}"),
            error => error.to_string(),
        };
        let mut text = format!("{}: {why}; the recording has ended", self.name);
        if is_finished {
            self.is_kept = true;
            text = format!("{text}, and all of it is in {}", self.file().display());
        }
        let is_gone = match error {
            Unsent::Stdout(error) => matches!(error, FeedError::Write(_)),
            Unsent::Listener(error) => error.is_gone(),
        };
        if is_gone { CliError::Output(text) } else { CliError::Failed(text) }
    }
}

/// The end of a recording that nobody reads any more, and nobody has asked to end.
pub(super) fn unread() -> CliError {
    CliError::Output("nobody reads standard output any more; the recording has ended".to_owned())
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        // Of what is still there, a message has said that it is to be recovered.
        if self.is_kept || self.place.has(SPOOL) {
            return;
        }
        if let Err(error) = self.place.remove() {
            tell(&format!("tracer-agent: cannot remove {}: {error}", self.place.dir().path().display()));
        }
    }
}

/// Writes also where whoever shares the descriptor does not want to wait (`O_NONBLOCK`).
struct Patient<'f>(&'f File);

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.0, PollFlags::OUT)];
                    // An interrupted wait is a short one.
                    let _ = poll(&mut fds, None);
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Waits so long. `false` if it is to end.
fn wait(time: Duration, stop: &PipeReader, out: &File) -> io::Result<bool> {
    let mut fds =
        [PollFd::new(stop, PollFlags::empty()), PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, Some(&time));
    let is_closed = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP);
    if is_closed(&fds[1]) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(!is_closed(&fds[0]))
}

impl Sending {
    /// Becomes readable when nothing more is sent: before the end of the recording, because nobody reads it.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Whether it has ended because the reader of standard output has gone, so that nobody wants the rest.
    pub(super) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Acquire)
    }

    /// Waits for its end.
    fn join(self, is_finished: bool) -> Result<Result<(), Unsent>, CliError> {
        let Self { thread, go_on, ended, is_unread: _ } = self;
        if !is_finished {
            drop(go_on);
        }
        let result = thread.join();
        drop(ended);
        result.map_err(|_| CliError::Failed("the thread that sends has ended by a panic".to_owned()))
    }
}

/// What is said when a second signal comes while the finished recording is being sent.
pub(super) fn interrupted(dir: &Path) -> String {
    format!(
        "\ntracer-agent: interrupted before all of the recording was sent; it is in {}",
        dir.join(FILE).display()
    )
}
