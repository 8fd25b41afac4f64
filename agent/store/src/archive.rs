//! An archive on this machine: what it is called, and what it is of.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::content::{self, Content};
use super::failure::StoreError;
use super::name::{Form, ID_DIGITS, Name};
use stdx::host_name;
use tracedat::reader::Reader;

/// The longest texts that an archive is described with.
const LONGEST: usize = 255;

/// A closed archive: a trace.dat file, or a directory with a trace in LTTng's format. Nothing changes it any
/// more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// Where it is.
    pub path: PathBuf,
    /// The machine that it is of.
    pub host: String,
    /// The session that recorded it.
    pub session: String,
    /// When it begins, in nanoseconds since 1970.
    pub begin: u64,
    /// When it ends, in nanoseconds since 1970.
    pub end: u64,
}

/// Why a path is no archive.
pub type ArchiveError = StoreError;

impl Archive {
    /// The archive at `path`, of this machine. It ends when it was changed last, and begins before that by
    /// as much as there is between its first and its last event (of a directory: at the first change of
    /// a file in it): events have the times of other clocks.
    ///
    /// # Errors
    /// It is not there, it is neither a file nor a directory, or it cannot be read.
    pub fn at(path: &Path, session: impl Into<String>) -> Result<Self, ArchiveError> {
        let path = content::absolute(path)?;
        let opened = content::open(&path)?;
        let end = opened.fingerprint.modified;
        let begin = match opened.content.form() {
            Form::Directory => opened.oldest,
            Form::File => end.saturating_sub(duration(&opened.content)),
        };
        Ok(Self { path, host: host_name(), session: session.into(), begin, end })
    }

    /// The name of its object.
    pub(super) fn name(&self, site: &str, form: Form, sha256: &str) -> Name {
        Name {
            site: site.to_owned(),
            host: self.host.clone(),
            session: self.session.clone(),
            begin: self.begin,
            end: self.end,
            id: sha256.get(..ID_DIGITS).unwrap_or(sha256).to_owned(),
            form,
        }
    }

    /// Whether a journal may say this.
    pub(super) fn is_plausible(&self) -> bool {
        self.path.is_absolute() && self.host.len() <= LONGEST && self.session.len() <= LONGEST
    }
}

/// Nanoseconds between the first and the last event; none where that cannot be read.
fn duration(content: &Content) -> u64 {
    let reader = content.file().and_then(|file| Reader::open(file.try_clone().ok()?).ok());
    reader.and_then(|reader| reader.span()).map_or(0, |(first, last)| last.saturating_sub(first))
}
