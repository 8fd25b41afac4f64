//! What else the programs tell: names of threads, and that a reader has work.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use agent_ebpf::NameRecord;
use aya::maps::{Map, MapData, MapError, RingBuf};

/// Wakes a reader: its descriptor becomes readable when a ring has many pages that wait.
pub struct WakeStream(RingBuf<MapData>);

impl fmt::Debug for WakeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeStream")
    }
}

impl WakeStream {
    /// Maps the ring buffer of a reader.
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        open(fd).map(Self)
    }

    /// Makes the descriptor unreadable, until the next wakeup. Makes no system call.
    pub fn clear(&mut self) {
        while self.0.next().is_some() {}
    }
}

impl AsFd for WakeStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Thread names in the order in which they became known.
pub struct NameStream(RingBuf<MapData>);

impl fmt::Debug for NameStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameStream")
    }
}

impl AsFd for NameStream {
    /// Polled edge-triggered, it becomes ready when many names wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl NameStream {
    /// Maps the ring buffer that the names come through.
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        open(fd).map(Self)
    }

    /// The next name that has arrived, if any. Makes no system call.
    pub fn next_name(&mut self) -> Option<NameRecord> {
        let item = self.0.next()?;
        let (tid, comm) = item.split_first_chunk::<4>()?;
        Some(NameRecord { tid: u32::from_ne_bytes(*tid), comm: *comm.first_chunk()? })
    }
}

fn open(fd: OwnedFd) -> io::Result<RingBuf<MapData>> {
    // aya has an error of its own for each of its calls; here all of them mean that memory could not be
    // mapped.
    let failed = |error: MapError| io::Error::other(error.to_string());
    RingBuf::try_from(Map::RingBuf(MapData::from_fd(fd).map_err(failed)?)).map_err(failed)
}
