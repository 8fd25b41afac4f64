//! The threads, address maps and limits of this machine, from `/proc`.
//!
//! The crate procfs reads what is the machine's. What is a thread's is read here: procfs takes lines for
//! UTF-8 and gives up on the whole file where one is not, and threads, files and mount points have the names
//! that their users chose; and it opens and parses several files for each thread, of which there may be a
//! hundred thousand.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use procfs::{Current as _, Meminfo, ProcError};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, statx};

use super::read;

/// `TASK_COMM_LEN` of `include/linux/sched.h`, without the NUL at its end.
const COMM_LEN: usize = 15;

/// A thread and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The number that events carry as `common_pid`.
    pub tid: u32,
    /// The process it belongs to.
    pub tgid: u32,
    /// Its name, as the kernel's records have it: see `task_comm`.
    pub comm: Vec<u8>,
}

/// Every thread of this machine that this process can see. Threads that end meanwhile are left out.
///
/// With `hidepid` mounts, or inside a PID namespace, that is not every thread, and numbers are those of the
/// namespace.
pub fn threads() -> io::Result<Vec<Thread>> {
    let proc = open_dir(CWD, "/proc")?;
    let mut threads = Vec::with_capacity(1024);
    let mut comm = Vec::new();
    for tgid in numbers(proc.as_fd(), ".")? {
        let Ok(task) = open_dir(proc.as_fd(), &format!("{tgid}/task")) else { continue };
        let Ok(tids) = numbers(task.as_fd(), ".") else { continue };
        for tid in tids {
            comm.clear();
            let file = read::open_at(task.as_fd(), &format!("{tid}/comm"));
            if file.and_then(|file| read::append(file, &mut comm)).is_ok() {
                threads.push(Thread { tid, tgid, comm: task_comm(&comm).to_vec() });
            }
        }
    }
    Ok(threads)
}

/// The processes of this machine that this process can see.
pub fn processes() -> io::Result<Vec<u32>> {
    numbers(CWD, "/proc")
}

/// The threads of one process.
pub fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    numbers(CWD, &format!("/proc/{pid}/task"))
}

/// The threads of this process.
pub fn own_threads() -> io::Result<Vec<u32>> {
    numbers(CWD, "/proc/self/task")
}

/// The name of one thread.
pub fn comm_of(tid: u32) -> io::Result<Vec<u8>> {
    Ok(task_comm(&read::file(format!("/proc/{tid}/comm"))?).to_vec())
}

/// `task_struct.comm` from the content of a `comm` file.
///
/// The file has more than the structure: for workers what they are working on (`kworker/0:1-events`,
/// `wq_worker_comm` in `kernel/workqueue.c`), for kernel threads with a long name all of it (`proc_task_name`
/// in `fs/proc/array.c`). Records have the structure's, and one thread should have one name throughout a
/// file.
pub fn task_comm(file: &[u8]) -> &[u8] {
    let mut comm = file.strip_suffix(b"\n").unwrap_or(file);
    if let Some(worker) = comm.strip_prefix(b"kworker/")
        // A rescuer is called kworker/R-name, and that dash is part of its name.
        && worker.first().is_some_and(|&byte| byte.is_ascii_digit() || byte == b'u')
        && let Some(end) = comm.iter().position(|byte| matches!(byte, b'-' | b'+'))
    {
        comm = &comm[..end];
    }
    &comm[..comm.len().min(COMM_LEN)]
}

/// Opens a directory below another one, without following a link at its end.
pub fn open_dir(at: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    Ok(openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The entries of a directory whose names are numbers.
pub fn numbers(at: BorrowedFd<'_>, path: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in Dir::new(open_dir(at, path)?)? {
        if let Ok(name) = entry?.file_name().to_str()
            && name.starts_with(|first: char| first.is_ascii_digit())
            && let Ok(number) = name.parse()
        {
            found.push(number);
        }
    }
    Ok(found)
}

/// The address maps of a process as the text of a PROCMAPS option.
pub fn process_maps(pid: u32) -> io::Result<Vec<u8>> {
    let maps = read::file(format!("/proc/{pid}/maps"))?;
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = match &exe {
        Some(path) => std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec(),
        // Kernel threads, and processes whose executable this user may not see.
        None => comm_of(pid)?,
    };
    Ok(maps_text(pid, &name, &maps))
}

/// One process of a PROCMAPS option: a line `pid count name`, then for each mapping `start end path`, all
/// numbers hexadecimal, sorted by address. The reader splits at blanks (`trace_pid_map_load` of trace-cmd),
/// so blanks in names become `\040` as in `/proc/mounts`. Neighbouring mappings of one file are one line: its
/// segments and their relocated parts.
fn maps_text(pid: u32, name: &[u8], maps: &[u8]) -> Vec<u8> {
    let mut lines: Vec<(u64, u64, Vec<u8>)> = Vec::new();
    for line in maps.split(|&byte| byte == b'\n') {
        let Some(Mapping { start, end, path, .. }) = mapping(line) else { continue };
        match lines.last_mut() {
            Some(last) if last.1 == start && last.2 == path => last.1 = end,
            _ => lines.push((start, end, path)),
        }
    }
    lines.sort_unstable_by_key(|line| line.0);
    let mut text = format!("{pid:x} {:x} ", lines.len()).into_bytes();
    push_word(&mut text, name);
    for (start, end, path) in lines {
        text.extend_from_slice(format!("{start:x} {end:x} ").as_bytes());
        push_word(&mut text, &path);
    }
    text
}

/// A mapping that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Whether it is of code.
    pub executable: bool,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// The file's device, as the kernel writes it (`fe:00`). File systems may tell another one to those who
    /// ask for a file's.
    pub device: String,
    /// The file's inode; 0 of what is no file.
    pub inode: u64,
    /// The file as the reader's root directory has it, with ` (deleted)` behind one that was removed; or a
    /// name such as `[vdso]`.
    pub path: Vec<u8>,
}

impl Mapping {
    /// Major and minor number of the file's device; 0 of what is no file.
    pub fn device_numbers(&self) -> (u32, u32) {
        let numbers = self.device.split_once(':').and_then(|(major, minor)| {
            let hex = |digits| u32::from_str_radix(digits, 16).ok();
            Some((hex(major)?, hex(minor)?))
        });
        numbers.unwrap_or_default()
    }
}

/// The most bytes of a list of mappings that are read.
const MAPS_MAX: u64 = 16 << 20;

/// Opens the directory of a process in `/proc`. What is read below it is that process's, also if it ends and
/// another one gets its number: then there is nothing.
///
/// # Errors
/// There is no such process.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    open_dir(CWD, &format!("/proc/{pid}"))
}

/// Which file the program of a process is: major and minor number of its device, and its inode. The file
/// system is not asked, which may be a user's. `None` if there is no such process, or this thread must not
/// look into it.
pub fn program_of(pid: u32) -> Option<(u32, u32, u64)> {
    let how = AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, format!("/proc/{pid}/exe"), how, StatxFlags::INO).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

/// What a process, of which this is the [directory](open_process), has mapped, in the order of addresses: of
/// files, and what else has a name. A list that is longer than 16 MiB is cut.
///
/// # Errors
/// The process has ended, or this thread must not look into it.
pub fn mappings(process: BorrowedFd<'_>) -> io::Result<Vec<Mapping>> {
    let mut maps = Vec::new();
    File::from(read::open_at(process, "maps")?).take(MAPS_MAX).read_to_end(&mut maps)?;
    Ok(maps.split(|&byte| byte == b'\n').filter_map(mapping).collect())
}

/// Reads `start-end flags offset device inode   path` and leaves out mappings without a path (`show_map_vma`
/// in `fs/proc/task_mmu.c`).
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let start = rest.iter().position(|&byte| byte != b' ')?;
        let len = rest[start..].iter().position(|&byte| byte == b' ')?;
        let found = &rest[start..start + len];
        rest = &rest[start + len..];
        std::str::from_utf8(found).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let executable = word()?.contains('x');
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let offset = hex(word()?)?;
    let device = word()?.to_owned();
    let inode = word()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    let (start, end) = (hex(start)?, hex(end)?);
    let path = path.to_vec();
    (!path.is_empty()).then_some(Mapping { start, end, executable, offset, device, inode, path })
}

fn push_word(text: &mut Vec<u8>, word: &[u8]) {
    for &byte in word {
        if byte.is_ascii_whitespace() || byte == 0 {
            text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            text.push(byte);
        }
    }
    text.push(b'\n');
}

/// This machine as trace-cmd's UNAME option has it: system, host name, release, machine.
pub fn uname_text() -> String {
    let uname = rustix::system::uname();
    let [system, release, machine] =
        [uname.sysname(), uname.release(), uname.machine()].map(|part| part.to_string_lossy().into_owned());
    [system, stdx::host_name(), release, machine].join(" ")
}

/// Whether this process sees the ids that the kernel itself uses: those of the first pid namespace, whose
/// inode number is fixed (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
pub fn in_initial_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").map_or(true, |link| link.as_os_str() == "pid:[4026531836]")
}

/// A text that is different after each boot.
pub fn boot_id() -> io::Result<String> {
    procfs::sys::kernel::random::boot_id().map_err(failed)
}

/// How many bytes can be had without swapping: `MemAvailable` of `/proc/meminfo`.
pub fn memory_available() -> io::Result<u64> {
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemAvailable");
    Meminfo::current().map_err(failed)?.mem_available.ok_or_else(missing)
}

/// The system's reason, if it is one, with the file that it is about.
fn failed(error: ProcError) -> io::Error {
    let kind = match &error {
        ProcError::PermissionDenied(_) => io::ErrorKind::PermissionDenied,
        ProcError::NotFound(_) => io::ErrorKind::NotFound,
        ProcError::Io(source, _) => source.kind(),
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_task_structure() {
        for (file, comm) in [
            (&b"bash\n"[..], &b"bash"[..]),
            (b"kworker/0:1H-kblockd\n", b"kworker/0:1H"),
            (b"kworker/u8:2+events_unbound\n", b"kworker/u8:2"),
            (b"kworker/R-rcu_gp\n", b"kworker/R-rcu_g"),
            (b"a-very-long-kernel-thread-name\n", b"a-very-long-ker"),
            (b"with\nline\n", b"with\nline"),
            (b"\n", b""),
            (b"", b""),
        ] {
            assert_eq!(task_comm(file), comm, "{}", String::from_utf8_lossy(file));
        }
    }

    #[test]
    fn a_program_is_told_by_its_inode() {
        use std::os::unix::fs::MetadataExt as _;
        let program = std::fs::metadata("/proc/self/exe").unwrap();
        let (major, minor, inode) = program_of(std::process::id()).unwrap();
        assert_eq!(rustix::fs::makedev(major, minor), program.dev());
        assert_eq!(inode, program.ino());
        // No process has this number.
        assert_eq!(program_of(u32::MAX), None);
    }

    #[test]
    fn devices_of_mappings_have_numbers() {
        let numbers = |device: &str| {
            let line = format!("1000-2000 r-xp 00000000 {device} 12   /bin/x");
            mapping(line.as_bytes()).unwrap().device_numbers()
        };
        assert_eq!([numbers("fe:00"), numbers("00:1f"), numbers("x")], [(0xfe, 0), (0, 0x1f), (0, 0)]);
    }

    #[test]
    fn maps_become_one_line_for_each_file() {
        let maps = b"55d0c000-55d0d000 r--p 00000000 fe:00 12   /usr/bin/my prog\n\
            55d0d000-55d0f000 r-xp 00001000 fe:00 12   /usr/bin/my prog\n\
            55d0f000-55d10000 rw-p 00000000 00:00 0 \n\
            7f001000-7f002000 r-xp 00000000 fe:00 13                     /lib/libc.so (deleted)\n\
            7f003000-7f004000 r-xp 00000000 fe:00 13                     /lib/libc.so (deleted)\n\
            7ffc0000-7ffc1000 r-xp 00000000 00:00 0                      [vdso]\n\
            nonsense\n7f-zz r-xp 0 0 0 /x\n";
        let text = maps_text(0x1f, b"/usr/bin/my prog", maps);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "1f 4 /usr/bin/my\\040prog\n\
            55d0c000 55d0f000 /usr/bin/my\\040prog\n\
            7f001000 7f002000 /lib/libc.so\\040(deleted)\n\
            7f003000 7f004000 /lib/libc.so\\040(deleted)\n\
            7ffc0000 7ffc1000 [vdso]\n"
        );
        assert_eq!(maps_text(2, b"kthreadd", b""), b"2 0 kthreadd\n");
    }
}
