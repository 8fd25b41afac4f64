//! The trace of an archive whose recorder was killed while it wrote it: each event is in it once.

use std::{ffi::OsString, io};

use super::{
    CtfOutput, LiveTrace, TRACE,
    begun::{Begun, Published},
    chunks::{OpenChunk, finish_closing, is_closed},
};
use crate::{ArchiveName, FinishError, Finished, Recorded, Spool, SpoolError};
use ctf_writer::ARCHIVES;
use recording::ExportError;
use stdx::output::Directory;

/// What is known of an archive whose recorder was killed.
#[derive(Debug)]
pub(crate) struct Killed {
    /// Whether parts of it cannot be read, for which its spool is kept.
    pub(crate) is_damaged: bool,
    /// The time of its last record, by the recording's clock.
    pub(crate) last_ns: Option<u64>,
}

/// The trace that was begun of the archive in a spool; `None` if it is not beside the spool, or if something
/// else is where it was begun.
///
/// # Errors
/// The spool cannot be read.
pub(crate) fn begun_beside(spool: &Spool, archive: Option<ArchiveName>) -> Result<Option<Begun>, SpoolError> {
    let of_spool = || -> io::Result<Option<Begun>> {
        let Some(begun) = Begun::load(spool.files())? else { return Ok(None) };
        let dir = spool.parent();
        let is_there = match Published::load(spool.files())? {
            // The file system does not know what is the trace's.
            Some(Published { closed: Some(closed), .. }) if begun.known_places().is_none() => {
                is_name(&closed) && is_closed(dir, &closed)
            }
            Some(_) => begun.is_in(dir)?,
            None => begun.is_in(dir)? && OpenChunk::can_be_again(dir, archive, &begun.places),
        };
        Ok(is_there.then_some(begun))
    };
    of_spool().map_err(SpoolError::io("read", spool.file(TRACE)))
}

/// Whether something of a second archive is in the directory of a trace: a rotation begins it before it
/// closes the first one.
pub(crate) fn has_second(trace: &Directory) -> io::Result<bool> {
    let is_of_second = |name: &OsString| {
        let name = name.as_encoded_bytes();
        let is_chunk = name.first().is_some_and(u8::is_ascii_digit) && name.ends_with(b"-1");
        is_chunk || name.windows(6).any(|part| part == b"-2.dat")
    };
    let closed = match trace.open_dir(ARCHIVES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        archives => archives?.names()?,
    };
    Ok(trace.names()?.iter().chain(&closed).any(is_of_second))
}

/// Writes the chunk of an archive again, whose spool is in the directory of the trace, or brings it to its
/// place if all of it was written. `is_last`: nothing was recorded after it.
///
/// # Errors
/// It is still in its spool.
pub(crate) fn recover(
    mut recorded: Recorded,
    begun: Begun,
    (is_last, killed): (bool, Killed),
) -> Result<Finished, FinishError> {
    let dir = recorded.spool.parent().clone();
    let published = Published::load(recorded.spool.files())
        .map_err(SpoolError::io("read", recorded.spool.file(super::PUBLISHED)))?;
    if let Some(Published { closed, places, is_kept }) = published {
        let Recorded { spool, stats, manifest, .. } = recorded;
        let path = match manifest.archive.zip(closed.filter(|closed| is_name(closed))) {
            Some((archive, closed)) => {
                let path = dir.join(ARCHIVES).join(&closed);
                finish_closing(&dir, archive, (&closed, &places))
                    .map_err(ExportError::io("move a closed chunk to", &path))?;
                path
            }
            None => dir.path().to_owned(),
        };
        let mut notes = Vec::new();
        if is_kept {
            let spool = spool.dir().display();
            notes.push(format!(
                "the trace has what can be written of {spool}, which is kept: \
                 `tracer-agent recover -o FILE {spool}` makes a file of it"
            ));
        } else {
            super::remove(spool, &mut notes);
        }
        return Ok(Finished { path, file_bytes: 0, stats, notes });
    }
    let Begun { options, begin_ns, .. } = begun;
    let output = CtfOutput::begun(dir, options, begin_ns);
    recorded.trace = Some(output.clone());
    LiveTrace::of_killed(output, killed).close(recorded, is_last)
}

/// Whether it is the name of a closed chunk, and leads nowhere else.
fn is_name(closed: &str) -> bool {
    !closed.is_empty()
        && closed.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-'))
}
