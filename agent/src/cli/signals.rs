//! Signals as a descriptor: what a user's Ctrl-C does is decided in one place, not in a handler.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// The signals that end a recording, blocked for the whole process and read through a descriptor.
#[derive(Debug)]
pub(super) struct Signals {
    fd: OwnedFd,
    old_mask: libc::sigset_t,
}

impl Signals {
    /// Blocks SIGINT, SIGTERM and SIGHUP. Call before the first thread starts, so that every thread inherits the mask.
    pub(super) fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        let mut old_mask = MaybeUninit::uninit();
        // SAFETY: the sets are valid objects; sigemptyset initialises `set` before it is read, pthread_sigmask `old_mask`.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), old_mask.as_mut_ptr());
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), old_mask: old_mask.assume_init() })
        }
    }

    /// The number of a signal that has arrived.
    pub(super) fn take(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size given, and is read only after the kernel filled all of it.
        unsafe {
            let got = libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (got == size as isize).then(|| info.assume_init().ssi_signo as i32)
        }
    }

    /// Waits for a signal.
    pub(super) fn wait(&self) -> i32 {
        loop {
            let mut fds = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, None);
            if let Some(signal) = self.take() {
                return signal;
            }
        }
    }

    /// Waits for a signal, or for the other end of `pipe` to be closed. Returns whether it was a signal.
    pub(super) fn wait_or_end(&self, pipe: &impl AsFd) -> bool {
        loop {
            let mut fds = [
                rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN),
                rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return false;
            }
            if self.take().is_some() {
                return true;
            }
        }
    }

    /// The mask from before, for a child process.
    pub(super) fn old_mask(&self) -> libc::sigset_t {
        self.old_mask
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
