//! Thread names: what `report` prints in place of `<...>`.
//!
//! A trace file has one name for each thread id. Ours come from /proc when the recording starts and from
//! every fork, exec and rename after that; the newest wins, as in the kernel's own cache, but none is ever
//! evicted.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write as _},
    path::PathBuf,
};

use agent_ebpf::{COMM_LEN, NameRecord};
use serde::{Deserialize, Serialize};

use super::{Spool, SpoolError, manifest::raw};
use ftrace_event::Cmdlines;
use stdx::handover::{Descriptors, Missing, Number};

/// Bytes of a journal entry: `u32` thread id, name padded with NULs.
pub(super) const ENTRY: usize = 4 + COMM_LEN;

/// The journal of names in a spool.
#[derive(Debug)]
pub(super) struct Journal {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Journal {
    /// An empty one in `spool`.
    pub(super) fn create(spool: &Spool) -> Result<Self, SpoolError> {
        let path = spool.file("names");
        let file = spool.files().create("names").map_err(SpoolError::io("create", &path))?;
        Ok(Self { file: BufWriter::new(file), path })
    }

    fn append(&mut self, tid: u32, comm: &[u8; COMM_LEN]) -> Result<(), SpoolError> {
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&tid.to_le_bytes());
        entry[4..].copy_from_slice(comm);
        self.file.write_all(&entry).map_err(SpoolError::io("write", &self.path))
    }

    fn flush(&mut self) -> Result<(), SpoolError> {
        self.file.flush().map_err(SpoolError::io("write", &self.path))
    }
}

/// The names, and their journal in the spool.
#[derive(Debug)]
pub(super) struct NameTable {
    names: BTreeMap<u32, [u8; COMM_LEN]>,
    journal: Journal,
}

impl NameTable {
    /// An empty table with its journal in `spool`.
    pub(super) fn create(spool: &Spool) -> Result<Self, SpoolError> {
        Ok(Self { names: BTreeMap::new(), journal: Journal::create(spool)? })
    }

    /// Gives it away.
    pub(super) fn hand_over(mut self, to: &mut Descriptors) -> HandedNames {
        // What the journal has no room for is in the table.
        let _ = self.flush();
        let Journal { file, .. } = self.journal;
        let (file, _) = file.into_parts();
        let names = self.names.into_iter().map(|(tid, comm)| (tid, Comm(comm))).collect();
        HandedNames { names, journal: to.put(file) }
    }

    /// The one that another process has given away, with its journal in `spool`.
    pub(super) fn take_over(
        handed: HandedNames,
        spool: &Spool,
        from: &mut Descriptors,
    ) -> Result<Self, Missing> {
        let HandedNames { names, journal } = handed;
        let file = BufWriter::new(from.take(journal)?.into());
        let names = names.into_iter().map(|(tid, Comm(comm))| (tid, comm)).collect();
        Ok(Self { names, journal: Journal { file, path: spool.file("names") } })
    }

    /// Notes a thread's name. The journal is written by [`NameTable::flush`].
    pub(super) fn insert(&mut self, record: NameRecord) -> Result<(), SpoolError> {
        let NameRecord { tid, comm } = record;
        if self.names.insert(tid, comm) == Some(comm) {
            return Ok(());
        }
        self.journal.append(tid, &comm)
    }

    /// The names until now, as a file has them.
    pub(super) fn cmdlines(&self) -> Cmdlines {
        cmdlines(self.names.clone())
    }

    /// Goes over to another journal, which gets all names, and gives them as a file has them.
    pub(super) fn go_over(&mut self, mut journal: Journal) -> Result<Cmdlines, SpoolError> {
        self.flush()?;
        for (&tid, comm) in &self.names {
            journal.append(tid, comm)?;
        }
        journal.flush()?;
        self.journal = journal;
        Ok(self.cmdlines())
    }

    /// Notes a name that may only fill a gap: one from /proc must not replace a newer one.
    pub(super) fn insert_if_absent(&mut self, record: NameRecord) -> Result<(), SpoolError> {
        if self.names.contains_key(&record.tid) { Ok(()) } else { self.insert(record) }
    }

    /// Brings the journal to the file.
    pub(super) fn flush(&mut self) -> Result<(), SpoolError> {
        self.journal.flush()
    }

    /// The table as a file has it.
    pub(super) fn into_cmdlines(self) -> Cmdlines {
        cmdlines(self.names)
    }
}

/// The names on their way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedNames {
    names: Vec<(u32, Comm)>,
    journal: Number,
}

/// A name, padded with NULs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Bytes", into = "Bytes")]
struct Comm([u8; COMM_LEN]);

#[derive(Serialize, Deserialize)]
struct Bytes(#[serde(with = "raw")] Vec<u8>);

impl From<Comm> for Bytes {
    fn from(Comm(comm): Comm) -> Self {
        Self(comm.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
    }
}

impl From<Bytes> for Comm {
    fn from(Bytes(bytes): Bytes) -> Self {
        let mut comm = [0; COMM_LEN];
        for (to, byte) in comm.iter_mut().zip(bytes) {
            *to = byte;
        }
        Self(comm)
    }
}

/// Writes names that change no more to the journal of a spool.
pub(super) fn write_journal(spool: &Spool, names: &Cmdlines) -> Result<(), SpoolError> {
    let mut journal = Journal::create(spool)?;
    for (tid, name) in names.iter() {
        let mut comm = [0; COMM_LEN];
        for (to, from) in comm.iter_mut().zip(name) {
            *to = *from;
        }
        journal.append(tid, &comm)?;
    }
    journal.flush()
}

/// Reads the journal of an unfinished recording. An incomplete last entry is dropped.
pub(super) fn read_journal(spool: &Spool) -> Result<Cmdlines, SpoolError> {
    let journal = match spool.files().read("names") {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(SpoolError::io("read", spool.file("names"))(e)),
    };
    Ok(cmdlines(entries(&journal).collect()))
}

/// The whole entries of a journal, or of a part of it.
pub(super) fn entries(journal: &[u8]) -> impl Iterator<Item = (u32, [u8; COMM_LEN])> {
    journal.chunks_exact(ENTRY).filter_map(|entry| {
        let (tid, comm) = (entry.first_chunk::<4>()?, entry.last_chunk::<COMM_LEN>()?);
        Some((u32::from_le_bytes(*tid), *comm))
    })
}

/// Thread 0 is left to readers, which call it `<idle>` on every CPU.
fn cmdlines(names: BTreeMap<u32, [u8; COMM_LEN]>) -> Cmdlines {
    names.into_iter().filter(|&(tid, _)| tid != 0).collect()
}
