//! The system calls behind the measurements that the standard library does not make.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// What processes used, as the kernel accounts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Time on a CPU, in user and kernel mode.
    pub(super) cpu: Duration,
    /// The largest resident set of any one of the processes, in bytes.
    pub(super) peak_bytes: u64,
    /// How often another thread got the CPU while they wanted it.
    pub(super) preempted: u64,
}

impl Usage {
    fn from_raw(usage: &libc::rusage) -> Self {
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
        };
        // The kernel counts in units of 1024 bytes (getrusage(2)).
        let peak_bytes = usage.ru_maxrss.unsigned_abs() * 1024;
        let preempted = usage.ru_nivcsw.unsigned_abs();
        Self { cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_bytes, preempted }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What this process and its threads used so far.
pub(super) fn own_usage() -> io::Result<Usage> {
    let mut usage = MaybeUninit::uninit();
    // SAFETY: the kernel fills the structure when it returns 0, which `check` tests before it is read.
    unsafe {
        check(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()))?;
        Ok(Usage::from_raw(&usage.assume_init()))
    }
}

/// The time that a host has taken from all CPUs of this machine since it started, in which they wanted to run
/// (proc(5), /proc/stat: `steal`). It is counted in ticks, of 10 ms on nearly all machines.
pub(super) fn stolen() -> io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    // SAFETY: a plain number.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    stolen_in(&text, a_second.max(1).unsigned_abs())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no times of all CPUs"))
}

fn stolen_in(text: &str, ticks_a_second: u64) -> Option<Duration> {
    let ticks: u64 =
        text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().nth(7)?.parse().ok()?;
    Some(Duration::from_secs(ticks) / u32::try_from(ticks_a_second).ok()?)
}

/// Waits for the process `pid` and says what it and the children it waited for used. `None` when there is no
/// such child.
pub(super) fn wait(pid: u32) -> io::Result<Option<(std::process::ExitStatus, Usage)>> {
    wait4(pid.cast_signed(), 0)
}

/// What a child used that has ended, if there is one.
pub(super) fn reap() -> io::Result<Option<Usage>> {
    Ok(wait4(-1, libc::WNOHANG)?.map(|(_, usage)| usage))
}

/// Whether there are children, running or not waited for.
pub(super) fn has_children() -> bool {
    // SAFETY: a null pointer stands for "tell nothing"; WNOWAIT leaves everything as it is.
    let result = unsafe {
        libc::waitid(libc::P_ALL, 0, std::ptr::null_mut(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    };
    result == 0
}

fn wait4(pid: libc::pid_t, flags: libc::c_int) -> io::Result<Option<(std::process::ExitStatus, Usage)>> {
    use std::os::unix::process::ExitStatusExt as _;
    let mut status = 0;
    let mut usage = MaybeUninit::uninit();
    // SAFETY: both pointers are valid; the kernel fills both when it returns a process id.
    match check(unsafe { libc::wait4(pid, &raw mut status, flags, usage.as_mut_ptr()) }) {
        Ok(0) => Ok(None),
        Ok(_) => {
            // SAFETY: as above.
            let usage = unsafe { usage.assume_init() };
            Ok(Some((std::process::ExitStatus::from_raw(status), Usage::from_raw(&usage))))
        }
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes processes whose parent has ended children of this one, so that what a recorder leaves behind is
/// waited for, too.
pub(super) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// The CPUs that the calling thread may run on.
pub(super) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: a CPU set is an array of integers, for which zeros are valid; the calls stay within its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set))?;
        Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect())
    }
}

/// Binds the calling thread, and those it starts, to a CPU.
pub(super) fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: as above; `CPU_SET` checks the number against the size.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        check(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one)).map(drop)
    }
}

/// Gives a pipe the smallest buffer, a page.
pub(super) fn shrink_pipe(pipe: &impl std::os::fd::AsRawFd) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 1) }).map(drop)
}

/// The cheapest system call there is.
pub(super) fn getppid() {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::getppid() };
}

/// Takes a file out of the page cache, as far as it is on the disk.
pub(super) fn forget(file: std::os::fd::RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; a length of 0 goes to the end.
    match unsafe { libc::posix_fadvise(file, 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// `CLOCK_MONOTONIC`, which all processes share.
pub(super) fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Gives this process mounts of its own. Only while it has one thread.
pub(super) fn own_mounts() -> io::Result<()> {
    // SAFETY: plain numbers, and a path that is a literal; the other pointers may be null for this kind of
    // mount(2).
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        ))
        .map(drop)
    }
}

/// Puts `source` in the place of `target`.
pub(super) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let source = CString::new(source.as_os_str().as_bytes())?;
    let target = CString::new(target.as_os_str().as_bytes())?;
    // SAFETY: both paths end with NUL; a bind mount has no type and no data.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null())
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_in_the_eighth_column() {
        let text = "cpu  158452 97 34917 47998 1179 0 391 591 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(stolen_in(text, 100), Some(Duration::from_millis(5910)));
        assert_eq!(stolen_in("cpu  1 2 3\n", 100), None);
        assert!(stolen().is_ok());
    }
}
