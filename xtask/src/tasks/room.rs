//! Whether the disk has room for building and testing.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::{fs, io};

use crate::workspace::target_dir;

/// What building and testing in a clean clone leave in the target directory, and what tests take while they
/// run, in bytes, rounded up.
const FROM_CLEAN: u64 = 14 << 30;

/// What building anew after a change and the test with the largest files take.
const AGAIN: u64 = 4 << 30;

/// Warns if there is not: a full disk looks like a fault of the compiler or of a test. Whether it really does
/// not suffice is not known here, so this is no error.
pub(super) fn warn_if_short() -> io::Result<()> {
    let dir = target_dir();
    fs::create_dir_all(&dir)?;
    let wanted = if dir.join("debug").exists() { AGAIN } else { FROM_CLEAN };
    let free = free_bytes(&dir)?;
    if free < wanted {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        eprintln!(
            "warning: {} is on a disk with {:.1} GiB free; building and testing may take {:.0} GiB. What older builds have \
             left there goes with `cargo clean`; CARGO_TARGET_DIR names a directory on another disk",
            dir.display(),
            gib(free),
            gib(wanted)
        );
    }
    Ok(())
}

/// What this user may still write to the file system of `dir`.
fn free_bytes(dir: &Path) -> io::Result<u64> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero, and there is room for one structure.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
