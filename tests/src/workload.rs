//! Workloads that make the kernel fire known events, run by the helper program `test-workload`.
//!
//! A workload says when it began and ended and which threads it had, so that a test can compare just these.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::AsRawFd as _,
        unix::{fs::FileExt as _, fs::OpenOptionsExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use crate::agent::beside_test;

const SAID: &str = "workload.txt";
const PAGE: usize = 4096;
/// How often each worker of `load` does its work.
const LOAD_ROUNDS: usize = 6;
/// Processes of `execs`.
const EXECS: usize = 500;

/// The command line that runs a workload.
pub fn command(kind: &str, scratch: &Path) -> Vec<String> {
    let program = beside_test("test-workload");
    assert!(program.is_file(), "{} does not exist: run the tests with `cargo test`", program.display());
    vec![program.display().to_string(), kind.to_owned(), scratch.display().to_string()]
}

/// What a workload says about itself.
#[derive(Debug)]
pub struct Account {
    /// When it began, nanoseconds of CLOCK_MONOTONIC.
    pub start: u64,
    /// When all its other threads had ended.
    pub end: u64,
    /// Its threads and processes.
    pub tasks: BTreeSet<u32>,
    /// The same in the order of their start, each time that one had an id again; the first is the workload
    /// itself.
    pub started: Vec<u32>,
    /// The names that some of them gave themselves.
    pub names: Vec<(u32, String)>,
}

impl Account {
    /// Reads what the workload left in its scratch directory.
    pub fn read(scratch: &Path) -> Self {
        let path = scratch.join(SAID);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut account =
            Self { start: 0, end: 0, tasks: BTreeSet::new(), started: Vec::new(), names: Vec::new() };
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["start", time] => account.start = time.parse().unwrap(),
                ["end", time] => account.end = time.parse().unwrap(),
                ["task", tid] => account.started.push(tid.parse().unwrap()),
                ["task", tid, name] => {
                    account.started.push(tid.parse().unwrap());
                    account.names.push((tid.parse().unwrap(), name.to_owned()));
                }
                _ => panic!("{}: {line:?}", path.display()),
            }
        }
        account.tasks.extend(&account.started);
        assert!(account.start < account.end, "{}: it did not end", path.display());
        account
    }
}

/// Lines of the account.
static TASKS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(task: String) {
    TASKS.lock().unwrap().push(task);
}

/// Runs a workload in this process. `switch` is a file of tracefs that is to be set to 1 first.
pub fn run(kind: &str, scratch: &Path, switch: Option<&Path>) {
    // Allocated now, so that the account itself is no part of the workload's events.
    TASKS.lock().unwrap().reserve(4096);
    note(format!("task {}", tid()));
    if let Some(switch) = switch {
        fs::write(switch, "1").unwrap();
    }
    let start = now();
    match kind {
        "sched" => sched(),
        "irq" => irq(scratch),
        "timer" => timer(),
        "kmem" => kmem(scratch),
        "syscalls" => syscalls(scratch),
        "nested" => {
            syscalls(scratch);
            calls_under_ticks();
        }
        "block" => block(scratch),
        "mixed" => mixed(scratch),
        "names" => names(),
        "load" => load(scratch),
        "execs" => fork_and_exec(EXECS * crate::soak()),
        "calls" => calls_with_strings(),
        "untouched" => calls_with_untouched_strings(scratch),
        "sleeper" => sleeper(),
        "numbered" => numbered(scratch),
        "storm" => crate::storm::run(scratch, 20_000 * crate::soak() as u32),
        _ => panic!("no workload {kind}"),
    }
    // The last moments of ended threads come after their parents know of the end.
    thread::sleep(Duration::from_millis(50));
    let end = now();
    let tasks = TASKS.lock().unwrap().join("\n");
    fs::write(scratch.join(SAID), format!("start {start}\nend {end}\n{tasks}\n")).unwrap();
}

/// Threads that wake each other, processes that start and end, and changes of priority, place and name.
fn sched() {
    ping_pong(1000);
    fork_and_exec(20);
    thread::scope(|scope| {
        for turn in 0..2 {
            scope.spawn(move || {
                note(format!("task {}", tid()));
                on_cpu(turn % cpus());
                for _ in 0..200 {
                    thread::yield_now();
                }
                spin(Duration::from_millis(30));
            });
        }
    });
    for turn in 0..20 {
        on_cpu(turn % cpus());
    }
    everywhere();
    for nice in [5, 10] {
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0);
    }
    for turn in 0..10 {
        rename(&format!("renamed {turn}"));
    }
}

/// Calls with strings that are written before the call, so that they are in memory: in order a path, one that
/// is longer than what is copied, bytes that cannot be printed, an empty one, an address that leads nowhere,
/// and two at once.
fn calls_with_strings() {
    let long = CString::new(format!("/absent/{}", "x".repeat(200))).unwrap();
    // Not where the program has them, which is a file that may have to be read first.
    let owned = |text: &CStr| text.to_owned();
    for path in [owned(c"/absent/one"), long, owned(c"t\t d\x7f e\x80 a\xa0!"), owned(c"")] {
        // SAFETY: a string that ends; there is no such directory.
        assert_eq!(unsafe { libc::chdir(path.as_ptr()) }, -1);
    }
    let (from, to) = (owned(c"/absent/from"), owned(c"/absent/to"));
    // SAFETY: the kernel refuses the address; the strings end, and there is nothing to rename.
    unsafe {
        libc::syscall(libc::SYS_chdir, 16_u64);
        libc::rename(from.as_ptr(), to.as_ptr());
    }
}

/// Where the program that the workload `untouched` executes has its path: what has this address in
/// the executed program is its environment.
pub const EXECUTED: usize = STACK_PAGE + 2048;
/// The last page of a process's stack whose addresses are not random (`STACK_TOP`,
/// arch/x86/include/asm/processor.h).
const STACK_PAGE: usize = 0x7fff_ffff_e000;

/// Calls with strings that nobody has touched before, so that they are not in memory: in order a path, one
/// that is longer than what is copied, bytes that cannot be printed, an empty one; two at once, of which the
/// first, the second, and both are untouched; a path to open, a text to write, a program that is not there,
/// and one that is.
fn calls_with_untouched_strings(scratch: &Path) {
    // A call that is moved to another CPU ends where nothing is known of its beginning.
    on_cpu(0);
    let untouched = |text: &CStr| map_new(scratch, text.to_bytes_with_nul(), std::ptr::null_mut()).cast();
    let long = CString::new(format!("/absent/{}", "x".repeat(200))).unwrap();
    for path in [c"/absent/one", &long, c"t\t d\x7f e\x80 a\xa0!", c""] {
        // SAFETY: a string that ends; there is no such directory.
        assert_eq!(unsafe { libc::chdir(untouched(path)) }, -1);
    }
    // These are on the heap, where they have just been written.
    let [from, to] = [c"/absent/from", c"/absent/to"].map(CStr::to_owned);
    for (from, to) in
        [(untouched(&from), to.as_ptr()), (from.as_ptr(), untouched(&to)), (untouched(&from), untouched(&to))]
    {
        // SAFETY: strings that end; there is nothing to rename.
        assert_eq!(unsafe { libc::rename(from, to) }, -1);
    }
    let text = untouched(c"a text\n");
    // Not /dev/null, which does not read what it is given.
    let written = File::create(scratch.join("written")).unwrap();
    // SAFETY: strings that end, and seven bytes that are there.
    unsafe {
        assert_eq!(libc::openat(libc::AT_FDCWD, untouched(c"/absent/open"), libc::O_RDONLY), -1);
        assert_eq!(libc::write(written.as_raw_fd(), text.cast(), 7), 7);
    }
    let (absent, mut page) = (untouched(c"/absent/exec"), vec![0; PAGE]);
    page[EXECUTED - STACK_PAGE..][..10].copy_from_slice(b"/bin/true\0");
    let path = map_new(scratch, &page, STACK_PAGE as *mut _).wrapping_add(EXECUTED - STACK_PAGE).cast();
    let filler = CString::new("y".repeat(3000)).unwrap();
    let args = [c"true".as_ptr(), std::ptr::null()];
    let environment = [filler.as_ptr(), std::ptr::null()];
    // SAFETY: the child calls only what is allowed between fork and exec, with strings that end and lists
    // with a null pointer at their end.
    let child = unsafe {
        match libc::fork() {
            0 => {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                libc::execve(absent, args.as_ptr(), environment.as_ptr());
                libc::execve(path, args.as_ptr(), environment.as_ptr());
                libc::_exit(1)
            }
            child => child,
        }
    };
    let mut status = -1;
    // SAFETY: one status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the program was executed");
}

/// Maps a file of its own with these bytes, at the address if that is not null. No page of the mapping is in
/// memory before somebody touches it. It is never unmapped.
fn map_new(scratch: &Path, bytes: &[u8], address: *mut libc::c_void) -> *const u8 {
    let path = scratch.join("untouched");
    fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let fixed = if address.is_null() { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_PRIVATE | fixed;
    // SAFETY: a new mapping, in the place of no other.
    let memory = unsafe { libc::mmap(address, PAGE, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert!(memory != libc::MAP_FAILED && (address.is_null() || memory == address), "{memory:p}");
    memory.cast::<u8>().cast_const()
}

/// Name of the file that ends `numbered`.
const ENOUGH: &str = "enough";

/// Tells `numbered` that it has called enough.
pub fn end_numbered(scratch: &Path) {
    fs::write(scratch.join(ENOUGH), "").unwrap();
}

/// How often each thread of `numbered` has called, by its id.
pub fn numbers_of(scratch: &Path) -> Vec<(u32, u64)> {
    let text = fs::read_to_string(scratch.join("numbers.txt")).unwrap();
    let pair = |line: &str| {
        let (tid, calls) = line.split_once(' ').unwrap();
        (tid.parse().unwrap(), calls.parse().unwrap())
    };
    text.lines().map(pair).collect()
}

/// Calls of `getppid` on every CPU, each with its number among those of its thread as an argument that the
/// kernel ignores, until the file `enough` is there.
fn numbered(scratch: &Path) {
    let enough = scratch.join(ENOUGH);
    let call = |cpu: usize| {
        on_cpu(cpu);
        note(format!("task {}", tid()));
        let mut calls: u64 = 0;
        while !enough.exists() {
            for _ in 0..2000 {
                // SAFETY: the call takes no arguments, so that any will do.
                unsafe { libc::syscall(libc::SYS_getppid, calls) };
                calls += 1;
            }
        }
        (tid(), calls)
    };
    let counts: Vec<(i32, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus()).map(|cpu| scope.spawn(move || call(cpu))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let lines: Vec<String> = counts.iter().map(|(tid, calls)| format!("{tid} {calls}\n")).collect();
    // Whole or not at all: somebody may wait for it.
    fs::write(scratch.join("numbers.new"), lines.concat()).unwrap();
    fs::rename(scratch.join("numbers.new"), scratch.join("numbers.txt")).unwrap();
}

/// Sleeps and wakes often, by another name half of the time.
fn sleeper() {
    for _ in 0..60 {
        for name in ["switch-in", "switch-out"] {
            rename(name);
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Network and disk traffic for soft interrupts, and long work for the tick and the disk to interrupt.
fn irq(scratch: &Path) {
    loopback(400);
    thread::scope(|scope| {
        for turn in 0..cpus() {
            scope.spawn(move || {
                note(format!("task {}", tid()));
                on_cpu(turn);
                spin(Duration::from_millis(250));
            });
        }
        direct_io(scratch, 150);
    });
    loopback(200);
}

/// Sleeps, interval timers and time-outs.
fn timer() {
    for _ in 0..150 {
        thread::sleep(Duration::from_micros(200));
    }
    // SAFETY: the calls get descriptors and values that live long enough.
    unsafe {
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        assert!(timer >= 0);
        for _ in 0..50 {
            let mut value: libc::itimerspec = std::mem::zeroed();
            value.it_value.tv_nsec = 300_000;
            assert_eq!(libc::timerfd_settime(timer, 0, &raw const value, std::ptr::null_mut()), 0);
            let mut count = 0u64;
            assert_eq!(libc::read(timer, (&raw mut count).cast(), 8), 8);
        }
        // Once more on a busy CPU, so that the timer interrupts this thread and not the idle one.
        for _ in 0..100 {
            let mut value: libc::itimerspec = std::mem::zeroed();
            value.it_value.tv_nsec = 100_000;
            assert_eq!(libc::timerfd_settime(timer, 0, &raw const value, std::ptr::null_mut()), 0);
            spin(Duration::from_micros(300));
        }
        libc::close(timer);
        let interval = libc::timeval { tv_sec: 0, tv_usec: 1000 };
        libc::signal(libc::SIGALRM, libc::SIG_IGN);
        let every = libc::itimerval { it_interval: interval, it_value: interval };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const every, std::ptr::null_mut()), 0);
        let cpu_time = libc::itimerval { it_interval: interval, it_value: interval };
        libc::signal(libc::SIGPROF, libc::SIG_IGN);
        assert_eq!(libc::setitimer(libc::ITIMER_PROF, &raw const cpu_time, std::ptr::null_mut()), 0);
        spin(Duration::from_millis(100));
        let off: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_REAL, &raw const off, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_PROF, &raw const off, std::ptr::null_mut());
    }
    // Timers of the wheel, which only coarse time-outs use, with busy CPUs for them to interrupt.
    thread::scope(|scope| {
        for turn in 0..cpus() {
            scope.spawn(move || {
                note(format!("task {}", tid()));
                on_cpu(turn);
                spin(Duration::from_millis(250));
            });
        }
        let (mut here, _there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(4))).unwrap();
        for _ in 0..30 {
            assert!(here.read(&mut [0]).is_err());
        }
    });
    // The same timer started and taken back before it runs out.
    loopback(50);
}

/// Memory mapped, touched and given back, processes and file pages.
fn kmem(scratch: &Path) {
    for round in 0..60 {
        touch((round % 8 + 1) * 64 * PAGE);
    }
    fork_and_exec(6);
    ping_pong(20);
    let path = scratch.join("kmem");
    for _ in 0..20 {
        fs::write(&path, vec![1; 40 * PAGE]).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 40 * PAGE);
        fs::remove_file(&path).unwrap();
    }
    loopback(30);
}

/// Many different system calls, with strings, structures and errors.
fn syscalls(scratch: &Path) {
    let path = scratch.join("syscalls");
    for round in 0..40 {
        let mut file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(b"one two three").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let mut some = [0; 3];
        file.read_exact(&mut some).unwrap();
        file.set_len(round * 100).unwrap();
        fs::metadata(&path).unwrap();
        fs::rename(&path, scratch.join("renamed")).unwrap();
        fs::remove_file(scratch.join("renamed")).unwrap();
        assert!(File::open(scratch.join("absent")).is_err());
    }
    assert!(fs::read_dir("/proc/self/fd").unwrap().count() > 0);
    std::env::current_dir().unwrap();
    strings();
    touch(32 * PAGE);
    thread::sleep(Duration::from_millis(1));
    ping_pong(50);
    loopback(20);
    fork_and_exec(4);
    // SAFETY: calls without memory; nonsense is refused by the kernel.
    unsafe {
        for _ in 0..500 {
            libc::syscall(libc::SYS_getppid);
        }
        libc::umask(0o22);
        libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::sched_yield();
        libc::close(-1);
        // Six arguments that all differ, the upper halves too.
        let bits = |digit: i64| digit * 0x1111_0000_1111 + 0x7000_0000_0000_0000;
        libc::syscall(libc::SYS_fallocate, -1i64, bits(1), bits(2), bits(3), bits(4), bits(5));
        libc::syscall(libc::SYS_getrandom, -1i64, bits(1), bits(2), bits(3), bits(4), bits(5));
        // No system call has this number: only raw_syscalls sees it.
        libc::syscall(1_000_000, 1i64, 2i64, 3i64, 4i64, 5i64, 6i64);
    }
}

/// Strings around the length that the kernel copies (63) and around words, every byte, and pointers that lead
/// nowhere.
fn strings() {
    let call = |text: &[u8]| {
        let text = CString::new(text).unwrap();
        // SAFETY: a string that ends; there is no such directory.
        assert_eq!(unsafe { libc::chdir(text.as_ptr()) }, -1);
    };
    for length in (1..20).chain(55..75).chain([200, 4000]) {
        call(&[b'x'; 4000][..length]);
    }
    let bytes: Vec<u8> = (1..=255).collect();
    for part in bytes.chunks(8) {
        call(part);
    }
    // SAFETY: the kernel refuses these addresses.
    unsafe {
        for address in [0, 16, -1, i64::MIN] {
            libc::syscall(libc::SYS_chdir, address);
            libc::syscall(libc::SYS_rename, address, c"second".as_ptr());
        }
        libc::syscall(libc::SYS_write, -1i64, bytes.as_ptr(), bytes.len());
        libc::syscall(libc::SYS_write, -1i64, bytes.as_ptr(), 7i64);
        libc::syscall(libc::SYS_write, -1i64, bytes.as_ptr(), 0i64);
        libc::syscall(libc::SYS_write, -1i64, 16i64, 7i64);
    }
}

/// System calls for 50 ms of CPU time, which at the slowest tick of 100 Hz is long enough for some.
fn calls_under_ticks() {
    let used = || clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let end = used() + 50_000_000;
    while used() < end {
        for _ in 0..100 {
            // SAFETY: a call without arguments.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    }
}

/// File names of many lengths, buffered and direct input and output, and writing back.
fn block(scratch: &Path) {
    let dir = scratch.join("block");
    fs::create_dir(&dir).unwrap();
    for length in 1..40 {
        let path = dir.join("n".repeat(length * 3));
        fs::write(&path, vec![2; length * 1000]).unwrap();
        if length % 4 == 0 {
            File::open(&path).unwrap().sync_all().unwrap();
        }
        if length % 3 == 0 {
            fs::rename(&path, dir.join(format!("m{length}"))).unwrap();
        }
    }
    direct_io(scratch, 80);
    queued_io(scratch);
    let path = scratch.join("uncached");
    fs::write(&path, vec![3; 256 * PAGE]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    assert_eq!(fs::read(&path).unwrap().len(), 256 * PAGE);
    let name = CString::new(path.display().to_string()).unwrap();
    // SAFETY: a terminated path.
    assert_eq!(unsafe { libc::truncate(name.as_ptr(), 12345) }, 0);
    fs::remove_file(&path).unwrap();
    fs::remove_dir_all(&dir).unwrap();
}

/// Short-lived threads and processes, each with a name of its own.
fn names() {
    for round in 0..200 {
        thread::spawn(move || {
            let name = format!("thread-{round}");
            rename(&name);
            note(format!("task {} {name}", tid()));
            thread::yield_now();
        })
        .join()
        .unwrap();
    }
    for round in 0..150 {
        let name = format!("child-{round}");
        let comm = CString::new(name.clone()).unwrap();
        // SAFETY: the child calls only what is allowed between fork and exit.
        let child = unsafe {
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_NAME, comm.as_ptr());
                    libc::sched_yield();
                    libc::_exit(0)
                }
                child => child,
            }
        };
        assert!(child > 0);
        // SAFETY: no status is wanted.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        note(format!("task {child} {name}"));
    }
    fork_and_exec(10);
}

/// A little of everything.
fn mixed(scratch: &Path) {
    fork_and_exec(10);
    direct_io(scratch, 10);
    let path = scratch.join("mixed");
    for _ in 0..10 {
        fs::write(&path, vec![4; 20 * PAGE]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        fs::remove_file(&path).unwrap();
    }
    loopback(100);
    ping_pong(100);
    touch(128 * PAGE);
    rename("mixed");
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(libc::getpid(), 0) };
    thread::sleep(Duration::from_millis(2));
}

/// Some of everything, on every CPU.
fn load(scratch: &Path) {
    thread::scope(|scope| {
        for worker in 0..cpus() {
            let dir = scratch.join(format!("load{worker}"));
            fs::create_dir(&dir).unwrap();
            scope.spawn(move || {
                note(format!("task {}", tid()));
                for _ in 0..LOAD_ROUNDS * crate::soak() {
                    fork_and_exec(2);
                    direct_io(&dir, 4);
                    fs::write(dir.join("file"), vec![4; 64 * PAGE]).unwrap();
                    fs::remove_file(dir.join("file")).unwrap();
                    loopback(20);
                    ping_pong(50);
                    touch(128 * PAGE);
                }
            });
        }
    });
}

/// Two threads that wake each other over a pair of sockets.
fn ping_pong(rounds: usize) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let partner = thread::spawn(move || {
        note(format!("task {}", tid()));
        let mut byte = [0];
        for _ in 0..rounds {
            there.read_exact(&mut byte).unwrap();
            there.write_all(&byte).unwrap();
        }
    });
    let mut byte = [7];
    for _ in 0..rounds {
        here.write_all(&byte).unwrap();
        here.read_exact(&mut byte).unwrap();
    }
    partner.join().unwrap();
}

fn fork_and_exec(times: usize) {
    for _ in 0..times {
        let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn().unwrap();
        note(format!("task {}", child.id()));
        child.wait().unwrap();
    }
}

fn loopback(messages: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bytes = [5; 600];
    for _ in 0..messages {
        client.write_all(&bytes).unwrap();
        server.read_exact(&mut bytes).unwrap();
        sender.send_to(&bytes, receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut bytes).unwrap();
    }
}

/// Writes and reads past the page cache.
fn direct_io(scratch: &Path, rounds: u64) {
    let path: PathBuf = scratch.join("direct");
    let Some(file) = uncached(&path) else { return };
    let mut space = vec![6; 5 * PAGE];
    let buffer = aligned(&mut space);
    for round in 0..rounds {
        file.write_all_at(buffer, round * 4 * PAGE as u64).unwrap();
    }
    file.sync_all().unwrap();
    for round in 0..rounds {
        file.read_exact_at(buffer, round * 4 * PAGE as u64).unwrap();
    }
    fs::remove_file(&path).unwrap();
}

/// Writes blocks past the page cache, all at once and out of order, so that the kernel merges neighbours:
/// each with what was asked for before it, and what comes of that with the neighbour that was asked for
/// earlier.
fn queued_io(scratch: &Path) {
    const ORDER: [usize; 6] = [0, 2, 1, 14, 12, 13];
    /// `IOCB_CMD_PWRITE`, include/uapi/linux/aio_abi.h.
    const WRITE: u16 = 1;
    let path = scratch.join("queued");
    let Some(file) = uncached(&path) else { return };
    let mut space = vec![7; 17 * PAGE];
    let buffer = aligned(&mut space);
    file.write_all_at(buffer, 0).unwrap();
    file.sync_all().unwrap();
    let requests = ORDER.map(|block| {
        // SAFETY: a structure of numbers.
        let mut request: libc::iocb = unsafe { std::mem::zeroed() };
        request.aio_lio_opcode = WRITE;
        request.aio_fildes = file.as_raw_fd() as u32;
        request.aio_buf = buffer[block * PAGE..].as_ptr() as u64;
        request.aio_nbytes = PAGE as u64;
        request.aio_offset = (block * PAGE) as i64;
        request
    });
    let pointers = requests.each_ref().map(std::ptr::from_ref);
    let count = ORDER.len() as libc::c_long;
    // `struct io_event`: whose it is, which request, how it went in two parts.
    let mut events = [[0_i64; 4]; ORDER.len()];
    // SAFETY: everything that the calls get lives until the last request is done.
    unsafe {
        let mut context: libc::c_ulong = 0;
        assert_eq!(libc::syscall(libc::SYS_io_setup, count, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, count, pointers.as_ptr()), count);
        let none = std::ptr::null::<libc::timespec>();
        let done = libc::syscall(libc::SYS_io_getevents, context, count, count, events.as_mut_ptr(), none);
        assert_eq!(done, count);
        libc::syscall(libc::SYS_io_destroy, context);
    }
    assert!(events.iter().all(|[_, _, written, _]| *written == PAGE as i64), "{events:?}");
    fs::remove_file(&path).unwrap();
}

/// A new file that is read and written past the page cache. `None` where there is no disk below, as in a
/// guest, and no such thing as I/O without a cache: before 6.6.
fn uncached(path: &Path) -> Option<File> {
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true).custom_flags(libc::O_DIRECT);
    match options.open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
        opened => Some(opened.unwrap()),
    }
}

/// The part of this memory that begins at a page and has one page less.
fn aligned(space: &mut [u8]) -> &mut [u8] {
    let skip = space.as_ptr().align_offset(PAGE);
    let length = space.len() - PAGE;
    &mut space[skip..skip + length]
}

/// Maps memory, writes to every page and unmaps it.
fn touch(length: usize) {
    // SAFETY: a new mapping of that length, not used behind the unmapping.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let memory =
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        for at in (0..length).step_by(PAGE) {
            memory.cast::<u8>().add(at).write_volatile(1);
        }
        assert_eq!(libc::munmap(memory, length), 0);
    }
}

/// Keeps a CPU busy: for so much time of this thread's own, which is more on a clock when others want the
/// CPU, too.
fn spin(time: Duration) {
    let used = || clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let end = used() + time.as_nanos() as u64;
    while used() < end {
        // Asking is a system call.
        for _ in 0..500 {
            std::hint::spin_loop();
        }
    }
}

fn rename(name: &str) {
    let name = CString::new(name).unwrap();
    // SAFETY: a terminated string.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }, 0);
}

fn cpus() -> usize {
    thread::available_parallelism().unwrap().get()
}

fn on_cpu(cpu: usize) {
    bind(&[cpu]);
}

fn everywhere() {
    bind(&(0..cpus()).collect::<Vec<_>>());
}

fn bind(cpus: &[usize]) {
    // SAFETY: the set lives on this stack.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu, &mut set);
        }
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

pub(crate) fn tid() -> i32 {
    // SAFETY: takes no memory.
    unsafe { libc::gettid() }
}

/// Nanoseconds of CLOCK_MONOTONIC, which is ftrace's clock `mono`.
pub(crate) fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of one of the system's clocks.
fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(id, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
