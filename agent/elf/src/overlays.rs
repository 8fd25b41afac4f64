//! Which overlays the administrator of this machine has mounted.
//!
//! Users can mount overlays in their user namespaces (since Linux 5.11), also above file systems that they
//! serve themselves (FUSE), which answer any inode, size and time. Those are mounted only in mount namespaces
//! of these users. So an overlay is the administrator's if its device is mounted in the mount namespace of
//! this process or in that of the first process, where only the privileged mount: container runtimes mount
//! there, whatever mount namespace their containers have.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{major, minor};

/// Lists of mounts (Documentation/filesystems/proc.rst). Who may not read the first process's does without.
const LISTS: [&str; 2] = ["/proc/self/mountinfo", "/proc/1/mountinfo"];
/// The most bytes of a list that are read.
const LIST_MAX: u64 = 64 << 20;
/// The type of overlays in a list.
const OVERLAY: &[u8] = b"overlay";

/// A device, as its major and minor number.
type Device = (u32, u32);

/// The overlays of a mount namespace.
#[derive(Debug)]
struct Mounts {
    list: File,
    overlays: BTreeSet<Device>,
}

/// Whether a device is an overlay that the administrator has mounted. Without a list, none is.
pub(super) fn is_administrators(device: u64) -> bool {
    static ALL: OnceLock<Vec<Mutex<Mounts>>> = OnceLock::new();
    let device = (major(device), minor(device));
    let all =
        ALL.get_or_init(|| LISTS.iter().filter_map(|list| Mounts::read(list).ok()).map(Mutex::new).collect());
    all.iter().any(|mounts| lock(mounts).has(device))
}

fn lock(mounts: &Mutex<Mounts>) -> MutexGuard<'_, Mounts> {
    mounts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mounts {
    fn read(list: &str) -> io::Result<Self> {
        let mut mounts = Self { list: File::open(list)?, overlays: BTreeSet::new() };
        mounts.read_again()?;
        Ok(mounts)
    }

    fn has(&mut self, device: Device) -> bool {
        // The kernel announces a change of the list as an exceptional condition (proc_pid_mountinfo(5)).
        let mut changes = [PollFd::new(&self.list, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_as_before = poll(&mut changes, Some(&now)).is_ok_and(|changed| changed == 0);
        if !is_as_before && self.read_again().is_err() {
            self.overlays.clear();
        }
        self.overlays.contains(&device)
    }

    fn read_again(&mut self) -> io::Result<()> {
        self.list.rewind()?;
        let mut text = Vec::new();
        (&self.list).take(LIST_MAX).read_to_end(&mut text)?;
        self.overlays = text.split(|&byte| byte == b'\n').filter_map(overlay).collect();
        Ok(())
    }
}

/// The device of an overlay, from its line `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE
/// OPTIONS`. Blanks in paths are escaped.
fn overlay(line: &[u8]) -> Option<Device> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
    words.by_ref().skip(3).find(|word| *word == b"-")?;
    let (major, minor) = device.split_once(':').filter(|_| words.next() == Some(OVERLAY))?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn devices_of_overlays_are_found() {
        for (line, device) in [
            (
                &b"36 35 0:41 / /merged rw,relatime shared:1 master:2 - overlay none rw,lowerdir=/a"[..],
                Some((0, 41)),
            ),
            (b"36 35 0:42 / /merged rw - overlay overlay ro", Some((0, 42))),
            // Names are those of users.
            (b"36 35 0:43 / /a\\040-\\040overlay rw - tmpfs overlay rw", None),
            (b"36 35 0:44 - overlay rw - tmpfs none rw", None),
            (b"36 35 0:45 / overlay rw - ext4 /dev/overlay rw", None),
            (b"36 35 x:46 / /merged rw - overlay none rw", None),
            (b"36 35 0:47 / /merged rw", None),
            (b"", None),
        ] {
            assert_eq!(overlay(line), device, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn what_is_mounted_as_something_else_is_no_overlay() {
        let proc = std::fs::metadata("/proc").unwrap().dev();
        assert!(!is_administrators(proc) && !is_administrators(u64::MAX));
    }
}
