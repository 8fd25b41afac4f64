//! Closing the pages that programs are filling, so that they can be stored.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use agent_ebpf::switched;

use crate::bpf::sys;

/// How often a page is asked for while a program writes to it: programs take microseconds.
const TRIES: usize = 3;

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
    /// Interrupts the CPU for a microsecond. A CPU that is offline keeps its page until it is online again.
    pub fn close_page(&self, cpu: u32) -> bool {
        let Self(program) = self;
        (0..TRIES).any(|_| !matches!(sys::run_on(program.as_fd(), cpu), Ok(switched::BUSY)))
    }
}
