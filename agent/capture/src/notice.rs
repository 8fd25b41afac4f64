//! Telling another thread something that it waits for with a descriptor.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that becomes readable when something is told.
#[derive(Debug)]
pub struct Notice(pub OwnedFd);

impl Notice {
    /// One that nobody has told.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn tell(&self) {
        // The counter of an eventfd takes one.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable until it is told again.
    pub fn clear(&self) {
        // There may be nothing to read.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8][..]);
    }
}

impl AsFd for Notice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
