//! Signals as a descriptor: what a user's Ctrl-C does is decided in one place, not in a handler. No signal
//! that can be blocked ends a process half-way that writes a file.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use super::dispositions::is_ignored;

/// The signals that ask for the end. SIGXCPU is that of a limit on processor time (`ulimit -t`): what there
/// is then still can be kept.
const ENDS: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGXCPU];

/// The others that somebody may send, or a timer of the program that became this one, and that would end the
/// process by default.
const OTHERS: [i32; 5] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];

/// What a signal asks for. Those that ask for nothing are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To come to an end: the signal's number.
    End(i32),
    /// To tell how far it is: SIGUSR1.
    Progress,
    /// To store what there is and to go on: SIGUSR2.
    Snapshot,
}

/// Signals that are blocked for the whole process and read through a descriptor.
#[derive(Debug)]
pub(super) struct Signals {
    fd: OwnedFd,
    old_mask: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals that would end the process and do not ask for it. Call before the first thread
    /// starts, so that every thread inherits the mask.
    pub(super) fn block_others() -> io::Result<Self> {
        let (set, old_mask) = block(&OTHERS)?;
        // SAFETY: the set is a valid object; the descriptor is nobody else's.
        let fd = unsafe {
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { fd, old_mask })
    }

    /// Blocks those that ask for the end, too. Also to be called before the first thread starts.
    pub(super) fn block_ends(&self) -> io::Result<()> {
        // A hangup that nohup(1) had ignored stays so; read from a descriptor, it would count.
        let ends: Vec<i32> =
            ENDS.into_iter().filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal)).collect();
        block(&ends)?;
        let all = set_of(ends.into_iter().chain(OTHERS));
        // SAFETY: the set is a valid object, and the descriptor is one for signals.
        if unsafe { libc::signalfd(self.fd.as_raw_fd(), &raw const all, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Blocks all of them.
    pub(super) fn block() -> io::Result<Self> {
        let signals = Self::block_others()?;
        signals.block_ends()?;
        Ok(signals)
    }

    /// What a signal that has arrived asks for.
    pub(super) fn take(&self) -> Option<Asked> {
        while let Some(signal) = self.read() {
            match signal {
                libc::SIGUSR1 => return Some(Asked::Progress),
                libc::SIGUSR2 => return Some(Asked::Snapshot),
                signal if ENDS.contains(&signal) => return Some(Asked::End(signal)),
                _ => {}
            }
        }
        None
    }

    fn read(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size given, and is read only after the kernel filled all of it.
        unsafe {
            let got = libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (got == size as isize).then(|| info.assume_init().ssi_signo as i32)
        }
    }

    /// Waits for a signal that asks for something.
    pub(super) fn wait(&self) -> Asked {
        loop {
            let mut fds = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, None);
            if let Some(asked) = self.take() {
                return asked;
            }
        }
    }

    /// Waits for a signal that asks for the end, or for the other end of `pipe` to be closed. Returns whether
    /// it was a signal.
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
            if let Some(Asked::End(_)) = self.take() {
                return true;
            }
        }
    }

    /// Lets signals have the effect that they had before, those that have come and were not taken included.
    pub(super) fn unblock(self) {
        // SAFETY: the mask is a valid object, and no other one is asked for.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.old_mask, std::ptr::null_mut());
        }
    }

    /// The mask from before, for a child process.
    pub(super) fn old_mask(&self) -> libc::sigset_t {
        self.old_mask
    }
}

fn set_of(signals: impl IntoIterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: a valid object, which sigemptyset initialises before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks `signals`. Returns their set, and the mask from before.
fn block(signals: &[i32]) -> io::Result<(libc::sigset_t, libc::sigset_t)> {
    let set = set_of(signals.iter().copied());
    let mut old_mask = MaybeUninit::uninit();
    // SAFETY: the sets are valid objects; pthread_sigmask initialises `old_mask` unless it fails.
    unsafe {
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, old_mask.as_mut_ptr()) {
            0 => Ok((set, old_mask.assume_init())),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
