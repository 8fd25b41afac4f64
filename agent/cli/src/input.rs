//! Where trace files are read from: a file, or standard input and other pipes, which are spooled, and
//! streamed recordings, which become files.

use std::{
    env, fmt,
    fs::File,
    io::{self, BufReader, Chain, Cursor, IsTerminal as _, Read as _},
    os::fd::{AsFd as _, BorrowedFd},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{CliError, info::InfoError, remote, remote::AccessArgs, tell};
use capture::piped::{MAGIC, PipedError, Scratch, Whole, spooled, whole};
use export::recognise::{self, Layout};
use import::open::Kind;
use tracedat::layout;
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
            open_itself(path)?
        };
        let kind = file.metadata()?.file_type();
        let mut begin = Vec::new();
        if kind.is_file() {
            refuse_foreign(&file, path)?;
            let mut magic = [0; MAGIC.len()];
            let len = file.read_at(&mut magic, 0)?;
            if !magic[..len].starts_with(&MAGIC) {
                return Ok(Self::File(file));
            }
            io::Seek::rewind(&mut file)?;
        } else if kind.is_dir() {
            if recognise::layout(path) == Some(Layout::Ctf) {
                return Err(Foreign { kind: Kind::Ctf, path: path.to_owned() }.into());
            }
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
            Self::Pipe(input) => {
                let file = scratch().and_then(|scratch| spooled(input, scratch)).map_err(io_error)?;
                refuse_foreign(&file, path)?;
                Ok(file)
            }
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

/// Opens a trace file, an object of a store, or makes a file of what comes through a pipe.
pub(super) fn open_source(path: &Path, access: &AccessArgs) -> io::Result<Opened> {
    remote::open(path, access).unwrap_or_else(|| Ok(Box::new(open(path)?)))
}

/// Opens a file, whatever it is. For one that this user may not read the error names the remedy.
pub(super) fn open_itself(path: &Path) -> io::Result<File> {
    File::open(path).map_err(|error| with_remedy(error, path))
}

/// For `map_err`: a file cannot be opened.
pub(super) fn not_opened(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| InfoError::Open { path, source }.into()
}

/// The same error, with the remedy if it is that this user may not read what is there.
pub(super) fn with_remedy(error: io::Error, path: &Path) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{error}; {}", remedy(path)))
}

/// What helps if this user may not read what is there.
pub(super) fn remedy(path: &Path) -> String {
    match path.metadata() {
        Ok(there) => format!(
            "it belongs to user {}, and its mode is {:04o}: read it as that user or as root, or have the owner \
             change the mode (chmod(1); `--mode 0640` does so for new recordings)",
            there.uid(),
            there.mode() & 0o7777
        ),
        Err(_) => "a directory on the way to it is closed to this user: read it as its owner".to_owned(),
    }
}

/// A recording of another tracer where a trace file is wanted.
#[derive(Debug)]
struct Foreign {
    kind: Kind,
    path: PathBuf,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Perf => "a perf.data file",
            Kind::Ctf => "a trace of CTF",
            Kind::Text => "the text of a trace",
        };
        let path = self.path.display();
        write!(
            f,
            "it is {what}; `tracer-agent import {path} -o FILE` makes a trace.dat of it, which can be read"
        )
    }
}

impl std::error::Error for Foreign {}

impl From<Foreign> for io::Error {
    fn from(foreign: Foreign) -> Self {
        Self::new(io::ErrorKind::InvalidData, foreign)
    }
}

/// Fails for a recording of another tracer that can be imported.
fn refuse_foreign(file: &File, path: &Path) -> io::Result<()> {
    let beginning = import::open::beginning(file)?;
    match Kind::recognise(&beginning) {
        Some(kind) if !beginning.starts_with(&layout::MAGIC) => {
            Err(Foreign { kind, path: path.to_owned() }.into())
        }
        _ => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn foreign(path: &Path) -> Option<Kind> {
        let error = open(path).err()?;
        error.get_ref().and_then(|inner| inner.downcast_ref::<Foreign>()).map(|foreign| foreign.kind)
    }

    #[test]
    fn recordings_of_other_tracers_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"# tracer: nop\n   sh-7     [000] d..2.  12.345678: sched_wakeup: comm=a pid=1 prio=120 target_cpu=000\n";
        let files: [(&str, &[u8], Option<Kind>); 4] = [
            ("perf", b"PERFILE2\x68\0\0\0\0\0\0\0", Some(Kind::Perf)),
            ("text", text, Some(Kind::Text)),
            ("other", b"#!/bin/sh\nexit 1\n", None),
            ("dat", b"\x17\x08\x44tracing6\0", None),
        ];
        for (name, content, kind) in files {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            assert_eq!(foreign(&path), kind, "{name}");
        }
        assert_eq!(foreign(dir.path()), None);
        let trace = dir.path().join("trace");
        fs::create_dir(&trace).unwrap();
        fs::write(trace.join("metadata"), "/* CTF 1.8 */\n").unwrap();
        assert_eq!(foreign(&trace), Some(Kind::Ctf));
    }

    #[test]
    fn the_remedy_has_the_owner_and_the_mode() {
        use std::os::unix::fs::PermissionsExt as _;

        let file = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).unwrap();
        let denied = with_remedy(io::ErrorKind::PermissionDenied.into(), file.path());
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        let text = denied.to_string();
        let owner = file.as_file().metadata().unwrap().uid();
        assert!(text.contains("0640") && text.contains(&format!("user {owner}")), "{text}");
        let other = with_remedy(io::ErrorKind::NotFound.into(), file.path());
        assert!(!other.to_string().contains("0640"));
    }
}
