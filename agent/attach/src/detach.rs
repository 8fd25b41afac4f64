//! Detaching without making anybody wait.
//!
//! The last perf user of a tracepoint waits for every CPU when it lets go (`perf_trace_destroy` ->
//! `tracepoint_synchronize_unregister`, kernel/trace/trace_event_perf.c), about 75 ms for each event under a
//! host-wide lock, and so does process exit. So the descriptors are handed to a child process that owns
//! nothing else, and the agent leaves.
//!
//! The child closes the links first, many at a time: each waits for a grace period of its own, and these
//! overlap. Then no program runs any more, and with the last of them the rings' memory goes. What is left,
//! perf events without a program, costs the traced kernel next to nothing, and is closed one by one.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::Attachment;

/// Held exclusively while a recorder attaches its events and while a detacher lets one go, so that a new
/// recording does not queue behind thousands of detachments of an old one.
const TURN_LOCK: &std::ffi::CStr = c"/run/tracer-agent.attach.lock";

/// Held by the one detacher that may ask for the turn: a recorder then waits for one detachment however many
/// detachers run.
const QUEUE_LOCK: &std::ffi::CStr = c"/run/tracer-agent.detach.lock";

/// How long a recorder waits for its turn: many times what one detachment takes.
const TURN_TIMEOUT: Duration = Duration::from_secs(2);

/// How often it looks. Detachers leave the lock alone for longer than that after each detachment.
const TURN_POLL: Duration = Duration::from_micros(500);

/// Lets a recorder attach before running detachers go on. Released when dropped.
#[derive(Debug)]
pub struct AttachTurn(#[expect(dead_code, reason = "held for its lock")] Option<File>);

impl AttachTurn {
    /// Waits at most for one detachment. Where the lock file cannot be had, attaching works all the same,
    /// more slowly.
    pub fn take() -> Self {
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(TURN_LOCK.to_bytes()));
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path).ok();
        let deadline = Instant::now() + TURN_TIMEOUT;
        let taken = file.filter(|file| {
            // Not a blocking wait: somebody who holds the lock for good must not keep anybody from recording.
            while flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                if Instant::now() >= deadline {
                    return false;
                }
                std::thread::sleep(TURN_POLL);
            }
            true
        });
        Self(taken)
    }
}

/// Processes that close links side by side.
const CLOSERS: usize = 32;

/// Hands the attachments to a detached child process that closes them and exits. Returns at once.
///
/// # Errors
/// When no process can be created; they are then closed here, which takes its time.
pub fn detach_in_background(attachments: Vec<Attachment>) -> io::Result<()> {
    // Kprobes are attached from the first function to the last, and the kernel goes through all functions up
    // to the last one that has a probe for each that it takes away (`__ftrace_hash_rec_update`,
    // kernel/trace/ftrace.c).
    let links: Vec<RawFd> = attachments.iter().rev().map(|a| a.link.as_raw_fd()).collect();
    let carriers: Vec<RawFd> =
        attachments.iter().filter_map(|a| a.carrier.as_ref()).map(AsRawFd::as_raw_fd).collect();
    in_background(&links, &carriers, attachments)
}

/// The same for perf events that nothing is attached to.
///
/// # Errors
/// As above.
pub fn close_in_background(carriers: Vec<OwnedFd>) -> io::Result<()> {
    in_background(&[], &carriers.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>(), carriers)
}

/// Has a child close these descriptors, all of which `owned` owns.
fn in_background<T>(links: &[RawFd], carriers: &[RawFd], owned: T) -> io::Result<()> {
    if links.is_empty() && carriers.is_empty() {
        return Ok(());
    }
    // Whoever closes a descriptor last waits for the kernel. The pipe ends when this process has closed its
    // own.
    let (closed, closing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut keep: Vec<RawFd> = links.iter().chain(carriers).copied().chain([closed.as_raw_fd()]).collect();
    keep.sort_unstable();
    // SAFETY: the child makes only async-signal-safe calls on memory that was set up before the fork, and
    // never returns.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; this is the child.
            unsafe { detacher(&keep, closed.as_raw_fd(), links, carriers) }
        }
        child => {
            // The child at once leaves a grandchild behind and exits, so that no zombie stays with a
            // long-lived agent.
            let mut status = 0;
            // SAFETY: waits for our own child.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            drop(owned);
            drop(closing);
            Ok(())
        }
    }
}

/// The child's whole life.
///
/// # Safety
/// Runs between fork and exit of a possibly multi-threaded process: async-signal-safe calls only, no
/// allocation.
unsafe fn detacher(keep: &[RawFd], closed: RawFd, links: &[RawFd], carriers: &[RawFd]) -> ! {
    // SAFETY: plain system calls on valid arguments; descriptors outside `keep` are not used afterwards.
    unsafe {
        match libc::fork() {
            0 => {}
            _ => libc::_exit(0),
        }
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"tracer-detach".as_ptr());
        let _ = libc::chdir(c"/".as_ptr());
        // A second Ctrl-C or a closing terminal must not leave the links to a slow process exit that nobody
        // sees.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Everything else goes: a pipe to the user's terminal must not stay open.
        let mut next: libc::c_uint = 0;
        for &fd in keep {
            let fd = fd as libc::c_uint;
            if fd > next {
                libc::syscall(libc::SYS_close_range, next, fd - 1, 0);
            }
            next = fd + 1;
        }
        libc::syscall(libc::SYS_close_range, next, libc::c_uint::MAX, 0);
        let mut byte = 0_u8;
        while libc::read(closed, (&raw mut byte).cast(), 1) > 0 {}
        close_side_by_side(links);
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
        let turn = libc::open(TURN_LOCK.as_ptr(), flags, 0o600);
        let queue = libc::open(QUEUE_LOCK.as_ptr(), flags, 0o600);
        for &fd in carriers {
            // Without the files (a read-only /run) the locks fail and everybody just waits for the kernel's.
            libc::flock(queue, libc::LOCK_EX);
            libc::flock(turn, libc::LOCK_EX);
            libc::close(fd);
            libc::flock(turn, libc::LOCK_UN);
            // Gives a recorder that waits for its turn the time to take it, before the next detacher asks.
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
            libc::flock(queue, libc::LOCK_UN);
        }
        libc::_exit(0)
    }
}

/// Closes descriptors in processes that share this one's table.
///
/// # Safety
/// As for [`detacher`]; nothing else opens or closes descriptors meanwhile.
unsafe fn close_side_by_side(fds: &[RawFd]) {
    // SAFETY: plain system calls; `clone` without a stack and without CLONE_VM is a fork.
    unsafe {
        for closer in 0..CLOSERS.min(fds.len()) {
            let flags = libc::CLONE_FILES | libc::SIGCHLD;
            if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                for &fd in fds.iter().skip(closer).step_by(CLOSERS) {
                    libc::close(fd);
                }
                libc::_exit(0);
            }
        }
        while libc::waitpid(-1, std::ptr::null_mut(), 0) > 0 {}
        // What is still open is that of a closer that could not be created.
        for &fd in fds {
            libc::close(fd);
        }
    }
}
