//! Workloads that make the kernel fire known events, run by the helper program `test-workload`.
//!
//! A workload says when it began and ended and which threads it had, so that a test can compare just these.

mod calls;
pub mod counters;
mod disks;
mod io;

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
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

pub use self::calls::{COMPAT, EXECUTED};
use self::calls::{
    calls_of_32_bits, calls_under_ticks, calls_with_strings, calls_with_untouched_strings, syscalls,
};
pub use self::io::bad_disk;
use self::io::{block, direct_io, irq, loopback};
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
        "direct" => direct_io(scratch, 150),
        "xfs" => disks::xfs(scratch),
        "btrfs" => disks::btrfs(scratch),
        "mixed" => mixed(scratch),
        "names" => names(),
        "load" => load(scratch),
        "execs" => fork_and_exec(EXECS * crate::soak()),
        "calls" => calls_with_strings(),
        "compat" => calls_of_32_bits(),
        "untouched" => calls_with_untouched_strings(scratch),
        "audited" => counters::audited(scratch),
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
        be_nice(nice);
    }
    for turn in 0..10 {
        rename(&format!("renamed {turn}"));
    }
}

/// Name of the file that ends `numbered`.
const ENOUGH: &str = "enough";

/// Between two bursts of `numbered`.
const BURST_PAUSE: Duration = Duration::from_micros(300);

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
/// kernel ignores, until the file `enough` is there. In bursts of about a millisecond: a CPU that is never
/// idle leaves the making of files to chance.
fn numbered(scratch: &Path) {
    let enough = scratch.join(ENOUGH);
    let call = |cpu: usize| {
        on_cpu(cpu);
        note(format!("task {}", tid()));
        let mut calls: u64 = 0;
        // Without the directory, whoever would say so is gone.
        while !enough.exists() && scratch.exists() {
            for _ in 0..2000 {
                // SAFETY: the call takes no arguments, so that any will do.
                unsafe { libc::syscall(libc::SYS_getppid, calls) };
                calls += 1;
            }
            thread::sleep(BURST_PAUSE);
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
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        keep_cpus_busy(scope, &is_over);
        let (mut here, _there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(4))).unwrap();
        for _ in 0..30 {
            assert!(here.read(&mut [0]).is_err());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // The same timer started and taken back before it runs out.
    loopback(50);
}

/// Memory mapped, touched and given back, processes and file pages.
fn kmem(scratch: &Path) {
    for round in 0..24 {
        touch((round % 8 + 1) * 64 * PAGE);
    }
    fork_and_exec(6);
    ping_pong(20);
    let path = scratch.join("kmem");
    for _ in 0..10 {
        fs::write(&path, vec![1; 40 * PAGE]).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 40 * PAGE);
        fs::remove_file(&path).unwrap();
    }
    loopback(30);
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

/// Gives every CPU something to do for a quarter of a second, and until that is over which is to interrupt
/// it; at most some seconds, should it fail.
fn keep_cpus_busy<'scope>(scope: &'scope thread::Scope<'scope, '_>, is_over: &'scope AtomicBool) {
    for turn in 0..cpus() {
        scope.spawn(move || {
            note(format!("task {}", tid()));
            on_cpu(turn);
            spin(Duration::from_millis(250));
            for _ in 0..5_000 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                spin(Duration::from_millis(1));
            }
        });
    }
}

/// Sets how the calling thread, and those that it starts from now on, give way to others: from -20, which is
/// not at all, to 19.
fn be_nice(nice: i32) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0);
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

/// How many CPUs there are.
pub fn cpus() -> usize {
    thread::available_parallelism().unwrap().get()
}

/// Keeps the current thread on a CPU.
pub fn on_cpu(cpu: usize) {
    bind(&[cpu]);
}

fn everywhere() {
    bind(&(0..cpus()).collect::<Vec<_>>());
}

/// Keeps the current thread on these CPUs.
pub fn bind(cpus: &[usize]) {
    // SAFETY: the set lives on this stack.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu, &mut set);
        }
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

/// The current thread.
pub fn tid() -> i32 {
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
