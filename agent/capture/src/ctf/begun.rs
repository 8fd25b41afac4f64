//! Notes about a trace in its archive's spool. With them, the next process of the recording, or a recovery,
//! writes the open chunk again as a part of the same trace.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::{CtfOptions, CtfOutput, parts::PartsState};
use stdx::output::{Birth, Directory};

/// The file of a trace that was begun, in the spool.
pub(crate) const NAME: &str = "trace";
/// The file of an archive that is in the trace ([`Published`]).
pub(crate) const PUBLISHED: &str = "published";
/// The most bytes of these files: a trace has some thousand events, and a stream for each CPU.
const BYTES_MAX: u64 = 8 << 20;
/// The largest packet that a chunk is written again with: packets are put together in memory.
const PACKET_MAX: usize = 64 << 20;
/// The version of the first file.
const VERSION: u32 = 1;

/// The directories that a chunk has in the directory of the trace, by their names.
pub(super) type Places = Vec<(String, Birth)>;

/// A trace, of which a chunk was begun.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    version: u32,
    pub(super) options: CtfOptions,
    /// No event is from before this time, by the recording's clock.
    pub(super) begin_ns: u64,
    /// What the trace was when the chunk began; `None` before that is known of one that begins with the
    /// chunk.
    pub(super) parts: Option<PartsState>,
    /// The directory of the trace; `None` if its file system does not know when it was made.
    home: Option<Birth>,
    pub(super) places: Places,
}

impl Begun {
    /// The trace of the archive in a spool; `None` if none was begun, or by a version whose file this one
    /// does not know.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(spool: &Directory) -> io::Result<Option<Self>> {
        let begun: Option<Self> = load(spool, NAME)?;
        Ok(begun.filter(|begun| begun.version == VERSION && begun.options.shapes.are_within(PACKET_MAX)))
    }

    /// The directories of the chunk, if its file system knows when they were made.
    pub(super) fn known_places(&self) -> Option<&Places> {
        self.home.is_some().then_some(&self.places)
    }

    /// Whether a directory is that of the trace.
    pub(super) fn is_in(&self, dir: &Directory) -> io::Result<bool> {
        Ok(self.home.is_some() && dir.birth()? == self.home)
    }
}

/// What the spool of a chunk that is written has of it.
#[derive(Debug)]
pub(super) struct Noted {
    spool: Directory,
    begun: Begun,
}

impl Noted {
    /// Notes a chunk that begins, with the directory that is its own, if it has one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin(
        spool: &Directory,
        output: &CtfOutput,
        parts: Option<PartsState>,
        own: Option<(&str, &Directory)>,
    ) -> io::Result<Self> {
        let (options, begin_ns, home) = (output.options().clone(), output.begin_ns, output.dir().birth()?);
        let begun = Begun { version: VERSION, options, begin_ns, parts, home, places: Vec::new() };
        let mut noted = Self { spool: spool.clone(), begun };
        match own {
            Some((name, dir)) => noted.add_place(name, dir)?,
            None => noted.store()?,
        }
        Ok(noted)
    }

    /// Notes what the trace is as the chunk begins.
    ///
    /// # Errors
    /// As for [`Noted::begin`].
    pub(super) fn describe(&mut self, parts: PartsState) -> io::Result<()> {
        self.begun.parts = Some(parts);
        self.store()
    }

    /// Notes a directory of the chunk, before anything is in it that is not in the spool.
    ///
    /// # Errors
    /// As for [`Noted::begin`].
    pub(super) fn add_place(&mut self, name: &str, dir: &Directory) -> io::Result<()> {
        self.begun.places.extend(dir.birth()?.map(|birth| (name.to_owned(), birth)));
        self.store()
    }

    /// The directories of the chunk.
    pub(super) fn places(&self) -> &Places {
        &self.begun.places
    }

    fn store(&self) -> io::Result<()> {
        store(&self.spool, NAME, &self.begun)
    }
}

/// An archive all of which is in the trace, as far as it can be read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Published {
    /// The name that its chunk gets among those that are closed; `None` if it stays where it is.
    pub(super) closed: Option<String>,
    /// The directories of the chunk, which are moved there.
    pub(super) places: Places,
    /// Whether the spool has more than the trace, and stays.
    pub(super) is_kept: bool,
}

impl Published {
    /// Notes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn store(&self, spool: &Directory) -> io::Result<()> {
        store(spool, PUBLISHED, self)
    }

    /// That of the archive in a spool.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(spool: &Directory) -> io::Result<Option<Self>> {
        load(spool, PUBLISHED)
    }
}

/// Writes a file, whole or not at all, also if the machine stops.
fn store(spool: &Directory, name: &str, content: &impl Serialize) -> io::Result<()> {
    let write = |file: &mut std::fs::File| {
        let mut out = io::BufWriter::new(&*file);
        serde_json::to_writer(&mut out, content)?;
        out.flush()?;
        drop(out);
        file.sync_data()
    };
    spool.write_whole(name, write)?;
    spool.sync();
    Ok(())
}

/// Reads a file that the owner of the spool may have written; `None` if it is not there, or says nothing.
fn load<T: for<'de> Deserialize<'de>>(spool: &Directory, name: &str) -> io::Result<Option<T>> {
    match spool.read_within(name, BYTES_MAX) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge) => {
            Ok(None)
        }
        read => Ok(serde_json::from_slice(&read?).ok()),
    }
}
