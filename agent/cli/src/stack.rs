//! A stack that is large enough: the main thread has what `ulimit -s` leaves it.

use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::thread;

use rustix::process::{Resource, getrlimit};

/// What the main thread has by default.
const BYTES: usize = 8 << 20;
/// The exit code of a program that panics, as the standard library has it.
const PANICKED: u8 = 101;

/// Runs a function, on another thread where the stack is smaller than usual, and waits for it. Signals are
/// for that thread: what it blocks, to read it from a descriptor, would end the process here.
pub fn on_known_stack(run: fn() -> ExitCode) -> ExitCode {
    if getrlimit(Resource::Stack).current.is_none_or(|bytes| bytes >= BYTES as u64) {
        return run();
    }
    let Some(mask) = set_mask(None) else { return run() };
    let started = thread::Builder::new().stack_size(BYTES).spawn(move || {
        set_mask(Some(mask));
        run()
    });
    if let Ok(thread) = started {
        return thread.join().unwrap_or(PANICKED.into());
    }
    // No more threads or memory: the main thread has to do.
    set_mask(Some(mask));
    run()
}

/// Sets the calling thread's signal mask, or blocks all signals, and gives the mask that it had.
fn set_mask(mask: Option<libc::sigset_t>) -> Option<libc::sigset_t> {
    let mut new = MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are valid objects, each initialised before it is read.
    unsafe {
        match mask {
            Some(mask) => {
                new.write(mask);
            }
            None => {
                libc::sigfillset(new.as_mut_ptr());
            }
        }
        let done = libc::pthread_sigmask(libc::SIG_SETMASK, new.as_ptr(), old.as_mut_ptr());
        (done == 0).then(|| old.assume_init())
    }
}
