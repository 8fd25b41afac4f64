//! Where the files of tables go.

use std::io::{self, Seek as _, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use super::encoding::Destination;
use recording::{ExportError, staging};
use stdx::output::Directory;

/// A directory.
pub(super) struct Files<'a>(pub(super) &'a Directory);

impl Destination for Files<'_> {
    fn create(&self, file: &str) -> Result<(), ExportError> {
        staging::create_file(self.0, file).map(drop)
    }

    fn append(&self, file: &str, bytes: &[u8]) -> Result<(), ExportError> {
        append(self.0, file, bytes).map_err(ExportError::io("write", self.0.join(file)))
    }
}

/// Appends to a file of a directory.
fn append(dir: &Directory, file: &str, bytes: &[u8]) -> io::Result<()> {
    let mut file = dir.open_for_writing(file)?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(bytes)
}

/// A stream, which takes one file.
pub(super) struct Stream<'a> {
    out: Mutex<Out<'a>>,
}

struct Out<'a> {
    to: &'a mut (dyn Write + Send),
    /// Whether nobody reads it any more.
    is_closed: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(to: &'a mut (dyn Write + Send)) -> Self {
        Self { out: Mutex::new(Out { to, is_closed: false }) }
    }

    /// Whether whoever read it has stopped.
    pub(super) fn is_closed(&self) -> bool {
        self.out.lock().unwrap_or_else(PoisonError::into_inner).is_closed
    }

    /// Brings everything to the reader.
    pub(super) fn flush(&self) -> Result<(), ExportError> {
        self.with(|out| out.flush())
    }

    fn with(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), ExportError> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let written = write(out.to);
        out.is_closed |= written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        written.map_err(ExportError::io("write", "-"))
    }
}

impl Destination for Stream<'_> {
    #[cfg(feature = "columnar")]
    fn is_stream(&self) -> bool {
        true
    }

    fn create(&self, _file: &str) -> Result<(), ExportError> {
        Ok(())
    }

    fn append(&self, _file: &str, bytes: &[u8]) -> Result<(), ExportError> {
        self.with(|out| out.write_all(bytes))
    }
}
