//! From a path or a stream to a source, whatever it is.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::ctf::{CtfOptions, CtfSource};
use super::perf::PerfData;
use super::text::{Formats, TextTrace};
use super::{ImportError, Source};

/// Bytes by which is decided what something is.
const BEGINNING: usize = 4096;

/// What a source can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What `perf record` writes.
    Perf,
    /// The directory of a trace of CTF 1.8 or 2.
    Ctf,
    /// What tracefs, `trace-cmd report` and `perf script` print.
    Text,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Perf, Self::Ctf, Self::Text];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Ctf => "ctf",
            Self::Text => "text",
        }
    }

    /// What it is.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Perf => "perf.data, a file or a stream of perf record: samples of tracepoints",
            Self::Ctf => "CTF 1.8 and 2, the directory of a trace, or of a recording session of LTTng",
            Self::Text => "the text of tracefs' trace and trace_pipe, of trace-cmd report, or of perf script",
        }
    }

    /// What begins with these bytes.
    pub fn recognise(beginning: &[u8]) -> Option<Self> {
        if PerfData::recognise(beginning) {
            Some(Self::Perf)
        } else {
            TextTrace::recognise(beginning).then_some(Self::Text)
        }
    }
}

/// What helps to understand a source.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// What it is; otherwise that is seen from how it begins.
    pub kind: Option<Kind>,
    /// Formats of events, for texts.
    pub formats: Option<Formats>,
    /// What is read of traces of CTF.
    pub ctf: CtfOptions,
}

/// Opens what is at a path.
///
/// # Errors
/// It cannot be read, is nothing that is known, or not what it should be.
pub fn open(path: &Path, hints: Hints) -> Result<Box<dyn Source>, ImportError> {
    let what = path.display().to_string();
    let fail = |source| ImportError::Read { what: what.clone(), source };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return match hints.kind {
            None | Some(Kind::Ctf) => Ok(Box::new(CtfSource::open_with(path, hints.ctf)?)),
            Some(Kind::Perf | Kind::Text) => Err(ImportError::Unknown { what }),
        };
    }
    if !metadata.is_file() {
        return open_stream(Box::new(file), &what, hints);
    }
    let beginning = beginning(&file).map_err(fail)?;
    match hints.kind.or_else(|| Kind::recognise(&beginning)) {
        Some(Kind::Perf) => Ok(Box::new(PerfData::open(Box::new(file))?)),
        Some(Kind::Ctf) => Err(no_directory(&what)),
        Some(Kind::Text) => Ok(Box::new(TextTrace::open(Box::new(file)).with_formats(hints.formats))),
        None => Err(ImportError::Unknown { what }),
    }
}

/// A trace of CTF is not one file.
fn no_directory(what: &str) -> ImportError {
    ImportError::Unsupported(format!(
        "{what} is no directory, as traces of CTF are; name the one that has the file metadata, or that of the session"
    ))
}

/// Opens what comes from a pipe, in the same way. `what` is for messages.
///
/// # Errors
/// As [`open`].
pub fn open_stream(
    mut stream: Box<dyn Read + Send>,
    what: &str,
    hints: Hints,
) -> Result<Box<dyn Source>, ImportError> {
    let mut beginning = Vec::new();
    stream
        .by_ref()
        .take(BEGINNING as u64)
        .read_to_end(&mut beginning)
        .map_err(|source| ImportError::Read { what: what.to_owned(), source })?;
    match hints.kind.or_else(|| Kind::recognise(&beginning)) {
        Some(Kind::Perf) => Ok(Box::new(PerfData::stream(&beginning, stream)?)),
        Some(Kind::Ctf) => Err(no_directory(what)),
        Some(Kind::Text) => Ok(Box::new(TextTrace::stream(beginning, stream).with_formats(hints.formats))),
        None => Err(ImportError::Unknown { what: what.to_owned() }),
    }
}

/// The beginning of a file, as [`Kind::recognise`] takes it.
///
/// # Errors
/// It cannot be read.
pub fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut beginning = vec![0; BEGINNING];
    let len = read_at(file, &mut beginning)?;
    beginning.truncate(len);
    Ok(beginning)
}

/// Reads from the beginning of a file as much as there is.
fn read_at(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    loop {
        match file.read_at(buffer.get_mut(len..).unwrap_or_default(), len as u64) {
            Ok(0) => return Ok(len),
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
