//! Closing the pages that programs are filling, so that they can be stored.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use agent_ebpf::switched;

use crate::ring::RingId;
use bpf::sys;

/// How often a page is asked for while a program writes to it: programs take microseconds.
const TRIES: usize = 3;
/// The most runs that move what is in a side queue: its size in the shortest entries.
const RUNS_MAX: usize = 1 << 16;

/// Closes open pages of the rings that one set of programs fills. Clones share the program.
#[derive(Clone, Debug)]
pub struct PageSwitch(Arc<OwnedFd>);

impl PageSwitch {
    pub(super) fn new(program: OwnedFd) -> Self {
        Self(Arc::new(program))
    }

    /// Closes the open page of a ring, if it has events: it is complete then, as one that is full.
    ///
    /// Interrupts its CPU for a microsecond. One that is offline keeps its page until it is online again.
    ///
    /// # Errors
    /// The kernel does not run the program.
    pub fn close_page(&self, ring: RingId) -> io::Result<Closed> {
        let Self(program) = self;
        for _ in 0..TRIES {
            match run_on(program.as_fd(), ring)? {
                Some(switched::BUSY) => {}
                Some(switched::MORE) => break,
                Some(_) => return Ok(Closed::Done),
                None => return Ok(Closed::Offline),
            }
        }
        Ok(Closed::Busy)
    }
}

/// What came of closing a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is closed, or had no events. A few runs in a thousand come back as done and have not been.
    Done,
    /// A program was writing to it; it is worth another try in a moment.
    Busy,
    /// The CPU is offline, and keeps its page.
    Offline,
}

/// Runs a program that closes the page of a ring, on its CPU, until it has moved what is in the side queue;
/// that it has not, [`switched::MORE`], only if that is more than a queue can hold. `None` if the CPU is
/// offline.
pub(super) fn run_on(program: BorrowedFd<'_>, RingId { cpu, set }: RingId) -> io::Result<Option<i32>> {
    for _ in 0..RUNS_MAX {
        match sys::run_on(program, cpu, set.into()) {
            Ok(switched::MORE) => {}
            Ok(code) => return Ok(Some(code)),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(switched::MORE))
}
