//! Signals that this process ignores for itself, and that a command must find as the agent found them.
//!
//! A disposition that is "ignore" outlives exec(2), so what we ignore for ourselves is put back in the
//! command, and what we were started with is noted before anything changes it: the standard library ignores
//! SIGPIPE before `main`, whatever it was.

use std::{
    io,
    mem::MaybeUninit,
    sync::atomic::{AtomicBool, Ordering},
};

/// A signal that is ignored here, and whether it was so when the process started.
struct Noted {
    signal: i32,
    was_ignored: AtomicBool,
}

/// SIGPIPE: who writes to a closed pipe sees an error. SIGXFSZ: so does who writes beyond `ulimit -f`.
static NOTED: [Noted; 2] = [Noted::new(libc::SIGPIPE), Noted::new(libc::SIGXFSZ)];

impl Noted {
    const fn new(signal: i32) -> Self {
        Self { signal, was_ignored: AtomicBool::new(false) }
    }
}

/// Notes the dispositions that the process was started with. For `.init_array`, which runs before the
/// standard library's start.
pub extern "C" fn note_dispositions() {
    for noted in &NOTED {
        noted.was_ignored.store(is_ignored(noted.signal), Ordering::Relaxed);
    }
}

/// Whether this process ignores a signal.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: only asks; the object is written to as a whole before it is read.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error, as on a full disk: by default a
/// signal ends the process, with all that is in the rings and half a file on the disk.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler. It does not fail for a signal that exists.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Lets the first SIGINT do nothing, and the second one end this process.
pub(super) fn survive_first_interrupt() {
    extern "C" fn nothing(_: libc::c_int) {}
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a valid action with an empty mask; the handler does nothing, so that it is safe
    // whenever it runs. It does not fail for a signal that exists.
    unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, action, std::ptr::null_mut());
    }
}

/// Gives a child process, between fork and exec, the dispositions that this process was started with.
///
/// Makes async-signal-safe calls only.
pub(super) fn restore() -> io::Result<()> {
    for noted in &NOTED {
        let disposition =
            if noted.was_ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither of the two installs a handler.
        if unsafe { libc::signal(noted.signal, disposition) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
