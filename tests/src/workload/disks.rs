//! File systems of their own, in files that are mounted: XFS and Btrfs.
//!
//! Each part does what makes a group of the file system's events fire. Programs that it runs are tasks of the
//! workload, too.

use std::{ffi::CStr, os::unix::fs::symlink};

use super::*;

const BLOCK: usize = 4096;

/// Runs a program to its end in this directory, and says whether it succeeded.
fn tried(dir: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    note(format!("task {}", child.id()));
    child.wait().unwrap().success()
}

fn run(dir: &Path, words: &[&str]) {
    assert!(tried(dir, words), "{words:?}");
}

/// What `xfs_io` does to a file, in its commands.
fn on_file(dir: &Path, flags: &[&str], file: &str, commands: &[&str]) {
    let mut words = vec!["xfs_io"];
    words.extend(flags);
    for command in commands {
        words.extend(["-c", command]);
    }
    words.push(file);
    // Not each kernel and version of the program has each command.
    tried(dir, &words);
}

/// A file system in a file, unmounted when dropped.
struct Disk {
    image: PathBuf,
    dir: PathBuf,
}

impl Disk {
    /// Makes one of so many megabytes, empty.
    fn make(scratch: &Path, name: &str, megabytes: u64, make: &[&str]) -> Self {
        let (image, dir) = (scratch.join(format!("{name}.img")), scratch.join(name));
        File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        fs::create_dir(&dir).unwrap();
        let path = image.display().to_string();
        run(scratch, &[make, &[&*path]].concat());
        Self { image, dir }
    }

    fn mount(&self, options: &str) {
        let (image, dir) = (self.image.display().to_string(), self.dir.display().to_string());
        run(Path::new("/"), &["mount", "-o", &format!("loop,{options}"), &image, &dir]);
    }

    fn unmount(&self) {
        run(Path::new("/"), &["umount", &self.dir.display().to_string()]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a failure only: then it is still mounted.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
    }
}

pub(super) fn xfs(scratch: &Path) {
    let make = ["mkfs.xfs", "-q", "-m", "reflink=1,rmapbt=1"];
    let disk = Disk::make(scratch, "xfs", 400, &make);
    disk.mount("discard,filestreams");
    let dir = &disk.dir;
    let whole = dir.display().to_string();
    contents(dir);
    shared_blocks(dir);
    on_file(dir, &["-x"], &whole, &["fsmap -v", "statfs", "bulkstat", "inumbers", "resblks 100"]);
    names_and_attributes(dir);
    scattered_and_full(dir);
    on_file(dir, &["-f"], "swapped", &["extsize 64k", "pwrite 0 100k", "swapext direct"]);
    from_disk(dir);
    tried(dir, &["fstrim", &whole]);
    run(dir, &["xfs_freeze", "-f", &whole]);
    run(dir, &["xfs_freeze", "-u", &whole]);
    run(dir, &["sync", "-f", &whole]);
    run(dir, &["mount", "-o", "remount,ro", &whole]);
    run(dir, &["mount", "-o", "remount,rw", &whole]);
    // What was not written back is recovered from the log.
    on_file(dir, &["-x", "-f"], "last", &["pwrite 0 64k", "fsync", "shutdown -f"]);
    disk.unmount();
    disk.mount("rw");
    fs::read_dir(dir).unwrap().for_each(drop);
    disk.unmount();
    File::options().write(true).open(&disk.image).unwrap().set_len(500 << 20).unwrap();
    disk.mount("rw");
    run(dir, &["xfs_growfs", &whole]);
    disk.unmount();
    fs::remove_file(&disk.image).unwrap();
}

pub(super) fn btrfs(scratch: &Path) {
    let disk = Disk::make(scratch, "btrfs", 300, &["mkfs.btrfs", "-q"]);
    disk.mount("compress=zstd");
    let dir = &disk.dir;
    let whole = dir.display().to_string();
    contents(dir);
    shared_blocks(dir);
    tried(dir, &["btrfs", "quota", "enable", &whole]);
    run(dir, &["btrfs", "subvolume", "create", "volume"]);
    fs::write(dir.join("volume/file"), vec![8; 64 * BLOCK]).unwrap();
    run(dir, &["btrfs", "subvolume", "snapshot", "volume", "snapshot"]);
    fs::write(dir.join("snapshot/file"), vec![9; 64 * BLOCK]).unwrap();
    names_and_attributes(dir);
    run(dir, &["sync", "-f", &whole]);
    run(dir, &["btrfs", "filesystem", "defragment", "a"]);
    run(dir, &["btrfs", "subvolume", "delete", "snapshot"]);
    run(dir, &["btrfs", "filesystem", "sync", &whole]);
    tried(dir, &["btrfs", "balance", "start", "--full-balance", &whole]);
    scattered_and_full(dir);
    tried(dir, &["btrfs", "scrub", "start", "-B", &whole]);
    tried(dir, &["btrfs", "filesystem", "resize", "-20m", &whole]);
    tried(dir, &["fstrim", &whole]);
    from_disk(dir);
    disk.unmount();
    disk.mount("rw");
    fs::read_dir(dir).unwrap().for_each(drop);
    disk.unmount();
    fs::remove_file(&disk.image).unwrap();
}

/// Reading, writing, mapping, and changes of a file's size and holes.
fn contents(dir: &Path) {
    let buffered =
        ["pwrite -b 64k 0 1m", "fsync", "pread 0 1m", "mmap 0 1m", "mwrite 0 64k", "mread 0 64k", "msync -s"];
    on_file(dir, &["-f"], "a", &buffered);
    on_file(dir, &["-f", "-d"], "direct", &["pwrite -b 64k 0 1m", "pread -b 64k 0 1m", "pwrite 4k 8k"]);
    let shapes = [
        "falloc 0 256k",
        "pwrite 64k 64k",
        "fzero 0 32k",
        "fpunch 16k 16k",
        "fcollapse 32k 32k",
        "finsert 32k 32k",
        "fsync",
        "truncate 100k",
        "fiemap -v",
        "bmap -v",
        "seek -a -r 0",
        "pwrite 300k 4k",
        "chattr +x",
        "lsattr",
    ];
    on_file(dir, &["-f"], "shaped", &shapes);
    run(dir, &["cp", "--reflink=never", "a", "copied"]);
    File::open(dir).unwrap().sync_all().unwrap();
}

/// Reads files that are not in the page cache.
fn from_disk(dir: &Path) {
    for name in ["a", "b", "c", "direct"] {
        let path = dir.join(name);
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
        fs::read(&path).unwrap();
    }
}

/// Files that share blocks, and stop doing so.
fn shared_blocks(dir: &Path) {
    let parted = [
        "reflink a",
        "pwrite 8k 64k",
        "fsync",
        "pwrite -b 4k 500k 40k",
        "funshare 0 256k",
        "fsync",
        "pwrite 600k 4k",
        "truncate 8k",
    ];
    on_file(dir, &["-f"], "b", &parted);
    let parts = ["reflink a 0 64k 128k", "dedupe a 0 64k 128k", "cowextsize 64k"];
    on_file(dir, &["-f"], "c", &parts);
    on_file(dir, &["-d"], "c", &["pwrite 64k 4k"]);
    on_file(dir, &[], "a", &["truncate 12345", "fsync"]);
}

/// Directories and attributes that grow from within an inode to trees, and shrink again.
fn names_and_attributes(dir: &Path) {
    let many = dir.join("many");
    fs::create_dir(&many).unwrap();
    let long = |number: usize| many.join(format!("{number}-{}", "n".repeat(100)));
    for number in 0..120 {
        fs::write(long(number), "x").unwrap();
    }
    fs::read_dir(&many).unwrap().for_each(drop);
    for number in 0..60 {
        fs::rename(long(number), many.join(number.to_string())).unwrap();
    }
    fs::remove_dir_all(&many).unwrap();
    let file = dir.join("attributes");
    fs::write(&file, "x").unwrap();
    let path = CString::new(file.display().to_string()).unwrap();
    for number in 0..40 {
        set_attribute(&path, number, number * 40);
    }
    for size in [30_000, 20_000] {
        set_attribute(&path, 40, size);
    }
    let mut names = vec![0_u8; 65536];
    // SAFETY: a terminated path and a buffer of that length.
    assert!(unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) } > 0);
    for name in names.split_inclusive(|byte| *byte == 0).take(41) {
        let name = CStr::from_bytes_with_nul(name).unwrap();
        let mut value = vec![0_u8; 65536];
        // SAFETY: terminated texts and a buffer of that length.
        unsafe {
            libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len());
            libc::removexattr(path.as_ptr(), name.as_ptr());
        }
    }
    symlink("x".repeat(1000), dir.join("far")).unwrap();
    symlink("a", dir.join("near")).unwrap();
    for link in ["far", "near"] {
        fs::read_link(dir.join(link)).unwrap();
        fs::remove_file(dir.join(link)).unwrap();
    }
    fs::hard_link(&file, dir.join("other name")).unwrap();
    std::os::unix::fs::chown(&file, Some(1), Some(1)).unwrap();
    let unnamed = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir);
    unnamed.unwrap().write_all(b"x").unwrap();
}

fn set_attribute(path: &CStr, number: usize, size: usize) {
    let (name, value) = (CString::new(format!("user.{number}")).unwrap(), vec![b'v'; size]);
    // SAFETY: terminated texts and a value of that length. Some file systems have no room for large ones.
    unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
}

/// A file of many extents, and a file system without room.
fn scattered_and_full(dir: &Path) {
    let path = dir.join("scattered");
    let file = File::create(&path).unwrap();
    for block in (0..600).step_by(2) {
        file.write_all_at(&[7; BLOCK], block * BLOCK as u64).unwrap();
    }
    file.sync_all().unwrap();
    file.set_len(0).unwrap();
    let path = dir.join("full");
    let file = File::create(&path).unwrap();
    // SAFETY: an open file.
    assert_eq!(unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, 1 << 30) }, libc::ENOSPC);
    drop(file);
    fs::remove_file(&path).unwrap();
}
