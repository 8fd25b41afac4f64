//! A disk for guests: an NVMe drive with an ext4 file system on a partition. Debian's cloud kernels have
//! nearly all of its drivers built in; the others load them as modules, as most of Debian's servers do.
//!
//! Its requests go through a scheduler, as those of most disks do, so that they are inserted and merged
//! before they are issued.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::kernel::output;
use crate::{Error, Kernel};

/// Where guests find its partition.
pub const PARTITION: &str = "/dev/nvme0n1p1";
/// Where guests choose its scheduler.
pub const SCHEDULER_FILE: &str = "/sys/block/nvme0n1/queue/scheduler";
/// The scheduler.
pub const SCHEDULER: &str = "mq-deadline";
/// The file system.
pub const FILE_SYSTEM: &str = "ext4";
/// The drive's driver.
const DRIVER: &str = "nvme";
/// What the file system asks the kernel for by the name of an algorithm, and not by that of a module. Newer
/// kernels have it in their library.
const CHECKSUM: &str = "crc32c_generic";

/// The whole drive.
pub const DRIVE: &str = "/dev/nvme0n1";
/// A sector of it, before the partition, whose reads fail.
pub const BAD_SECTOR: u64 = 1024;

/// Its size. The file takes what the guest writes.
const BYTES: u64 = 1 << 30;
/// Where its partition begins; it goes on to the end.
const PARTITION_AT: u64 = 1 << 20;
const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;

/// Makes the file for a disk in a directory.
pub(crate) fn create(dir: &Path) -> Result<PathBuf, Error> {
    let path = dir.join("disk");
    partition(&path).map_err(Error::io(&path))?;
    // Tables are initialised now, or a thread of the guest's kernel would do it beside the test.
    let options = format!("offset={PARTITION_AT},lazy_itable_init=0,lazy_journal_init=0");
    let size = [BLOCK, (BYTES - PARTITION_AT) / BLOCK].map(|number| number.to_string());
    let path_text = path.to_string_lossy();
    output("/sbin/mkfs.ext4", &["-q", "-F", "-b", &size[0], "-E", &options, &path_text, &size[1]], dir)?;
    Ok(path)
}

/// Makes the file and writes a boot record with its partition: an entry of 16 bytes, of which kernels read
/// the type and, in sectors, start and length (`struct msdos_partition`, include/linux/msdos_partition.h).
fn partition(path: &Path) -> io::Result<()> {
    const ENTRY_AT: u64 = 446;
    const SIGNATURE_AT: u64 = 510;
    const LINUX: u8 = 0x83;
    let file = File::create(path)?;
    file.set_len(BYTES)?;
    let mut entry = [0; 16];
    entry[4] = LINUX;
    entry[8..12].copy_from_slice(&((PARTITION_AT / SECTOR) as u32).to_le_bytes());
    entry[12..].copy_from_slice(&(((BYTES - PARTITION_AT) / SECTOR) as u32).to_le_bytes());
    file.write_all_at(&entry, ENTRY_AT)?;
    file.write_all_at(&[0x55, 0xaa], SIGNATURE_AT)
}

/// The modules that this kernel needs for the disk, with their names, in the order in which they are loaded.
pub(crate) fn modules(kernel: &Kernel) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut found = Vec::new();
    for name in [SCHEDULER, DRIVER, FILE_SYSTEM] {
        add_module(kernel, name, &mut found)?;
    }
    if kernel.has_module(CHECKSUM)? {
        add_module(kernel, CHECKSUM, &mut found)?;
    }
    Ok(found)
}

/// Adds a module behind those that it needs, unless it is there or built in.
fn add_module(kernel: &Kernel, name: &str, to: &mut Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    if to.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let Some(image) = kernel.module(name)? else { return Ok(()) };
    for needed in needed_by(&image) {
        add_module(kernel, &needed, to)?;
    }
    to.push((name.to_owned(), image));
    Ok(())
}

/// The modules that a module needs, which its section `.modinfo` names: `depends=A,B` between NULs.
fn needed_by(image: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = image.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let names = image[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::needed_by;

    #[test]
    fn a_module_names_what_it_needs() {
        assert_eq!(needed_by(b"\0license=GPL\0depends=mbcache,jbd2\0name=ext4\0"), ["mbcache", "jbd2"]);
        assert!(needed_by(b"\0depends=\0name=loop\0").is_empty());
        assert!(needed_by(b"no module").is_empty());
    }
}
