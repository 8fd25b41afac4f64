//! Where trace files are read from: a file, or standard input and other pipes, which are spooled, and
//! streamed recordings, which become files.

use std::{
    env,
    fs::File,
    io::{self, BufReader, Chain, Cursor, IsTerminal as _, Read as _},
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::tell;
use capture::piped::{MAGIC, PipedError, Scratch, Whole, spooled, whole};
use tracedat::reader::Source;

/// What stands for standard input.
const STANDARD: &str = "-";
/// Where temporary files go that may be large, unless the environment says it: `/tmp` may be in memory.
const TEMPORARY: &str = "/var/tmp";
/// Bytes that are read at a time: a frame of a streamed recording and more.
const BUFFER: usize = 1 << 17;

/// Whether a streamed recording was cut off of which a file was made.
static CUT_OFF: AtomicBool = AtomicBool::new(false);

/// A streamed recording, from its beginning.
pub(super) type Stream = BufReader<Chain<Cursor<Vec<u8>>, File>>;

/// A file, or an object of a store, as the readers of trace files take it.
pub(super) type Opened = Box<dyn Source>;

/// What is at a path.
pub(super) enum Input {
    /// A file, or something that no reader of files can be helped with.
    File(File),
    /// What is no file and no streamed recording.
    Pipe(Stream),
    /// A streamed recording.
    Streamed(Stream),
}

/// Where temporary files go.
pub(super) fn temporary() -> PathBuf {
    env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map_or_else(|| TEMPORARY.into(), PathBuf::from)
}

/// Whether this stands for standard input or standard output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD
}

/// Whether a streamed recording was cut off that was read as a file: then the command has not done what was
/// asked for.
pub(super) fn was_cut_off() -> bool {
    CUT_OFF.load(Ordering::Relaxed)
}

impl Input {
    /// Opens it, and reads how it begins if it is no file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = if is_standard(path) {
            let input = io::stdin();
            if input.is_terminal() {
                return Err(io::Error::other("standard input is a terminal"));
            }
            File::from(input.as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let kind = file.metadata()?.file_type();
        let mut begin = Vec::new();
        if kind.is_file() {
            use std::os::unix::fs::FileExt as _;
            let mut magic = [0; MAGIC.len()];
            let len = file.read_at(&mut magic, 0)?;
            if !magic[..len].starts_with(&MAGIC) {
                return Ok(Self::File(file));
            }
            io::Seek::rewind(&mut file)?;
        } else if kind.is_dir() {
            return Ok(Self::File(file));
        } else {
            (&mut file).take(MAGIC.len() as u64).read_to_end(&mut begin)?;
        }
        let is_streamed = kind.is_file() || begin == MAGIC;
        let stream = BufReader::with_capacity(BUFFER, Cursor::new(begin).chain(file));
        Ok(if is_streamed { Self::Streamed(stream) } else { Self::Pipe(stream) })
    }

    /// All of it as a file. Says so if it was cut off.
    pub(super) fn into_file(self, path: &Path) -> io::Result<File> {
        // A streamed recording has a file for each CPU and buffer.
        super::limits::raise()?;
        let scratch = || Scratch::in_directory(&temporary());
        match self {
            Self::File(file) => Ok(file),
            Self::Pipe(input) => scratch().and_then(|scratch| spooled(input, scratch)).map_err(io_error),
            Self::Streamed(input) => {
                let Whole { file, is_cut_off } =
                    scratch().and_then(|scratch| whole(input, scratch, &|| false)).map_err(io_error)?;
                if is_cut_off {
                    tell_cut_off(path);
                }
                Ok(file)
            }
        }
    }
}

/// Opens a trace file, or makes one of what comes through a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    Input::open(path)?.into_file(path)
}

/// Says that a streamed recording was cut off.
pub(super) fn tell_cut_off(path: &Path) {
    CUT_OFF.store(true, Ordering::Relaxed);
    tell(&format!(
        "tracer-agent: {}: the recording was cut off, by the end of its recorder or of what brought it here; this is \
         everything until then",
        name(path)
    ));
}

/// What to call it.
pub(super) fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The descriptor that a stream reads from.
pub(super) fn descriptor(stream: &Stream) -> BorrowedFd<'_> {
    stream.get_ref().get_ref().1.as_fd()
}

/// The same as an error of whoever opens a file, with the reason of a full disk.
fn io_error(error: PipedError) -> io::Error {
    let kind = stdx::reason::io_kind(&error).unwrap_or(io::ErrorKind::Other);
    io::Error::new(kind, error)
}
