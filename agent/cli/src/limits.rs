//! Process limits that stand in the way of attaching thousands of events.

use std::io;

/// Descriptors: one for each attached event, and some.
const OPEN_FILES: libc::rlim_t = 65_536;

/// Raises the limit of open files. Returns the old limit, which a child process should get back: programs
/// that use select(2) rely on a small one.
pub(super) fn raise() -> io::Result<libc::rlimit> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `old` is a valid object to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A process without CAP_SYS_RESOURCE cannot raise the hard limit; then what it allows must do.
    if set(libc::RLIMIT_NOFILE, OPEN_FILES.max(old.rlim_cur), OPEN_FILES.max(old.rlim_max)).is_err() {
        let _ = set(libc::RLIMIT_NOFILE, old.rlim_max, old.rlim_max);
    }
    Ok(old)
}

#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

fn set(resource: Resource, current: libc::rlim_t, max: libc::rlim_t) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: current, rlim_max: max };
    // SAFETY: the limit is a valid object.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
