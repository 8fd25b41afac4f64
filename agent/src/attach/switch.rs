//! Closing the pages that programs are filling, so that they can be stored.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use agent_ebpf::switched;

use crate::bpf::sys;

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

    /// Closes the open page of a CPU, if it has events: it is complete then, as one that is full. Gives
    /// `false` if a program was writing to it, so that it is worth another try.
    ///
    /// Interrupts the CPU for a microsecond. One that is offline keeps its page until it is online again.
    ///
    /// # Errors
    /// The kernel does not run the program.
    pub fn close_page(&self, cpu: u32) -> io::Result<bool> {
        let Self(program) = self;
        let mut tries = 0;
        for _ in 0..RUNS_MAX {
            match sys::run_on(program.as_fd(), cpu) {
                Ok(switched::MORE) => {}
                Ok(switched::BUSY) => tries += 1,
                Ok(_) => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(true),
                Err(error) => return Err(error),
            }
            if tries == TRIES {
                break;
            }
        }
        Ok(false)
    }
}
