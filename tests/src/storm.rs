//! A storm of system calls with interrupts on top of it, and the kernel's own count of what fires meanwhile.
//!
//! The counters are perf's: events of type "tracepoint" on this thread. They count what fires while the
//! thread is current, in interrupts on top of it too, just as the records with its id in `common_pid` do.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
};

use crate::workload::{now, tid};

/// What the storm leaves in its scratch directory.
const COUNTED: &str = "counted.txt";
/// What it is told to count.
const WANTED: &str = "wanted.txt";
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const PERF_IOC_FLAG_GROUP: libc::c_ulong = 1;
const ATTR_BYTES: usize = 128;
/// Where the metadata page of a buffer of samples has the number of bytes written to it (perf_event_open(2)).
const DATA_HEAD: usize = 1024;
/// The metadata page and the buffer, which must be a power of two of pages.
const SAMPLE_BYTES: usize = (1 + 8) * 4096;

/// What fired during the storm, by the kernel's counters.
#[derive(Debug, Default)]
pub struct Counted {
    /// The thread.
    pub tid: u32,
    /// Before and after the counters were started, and before and after they were stopped, by
    /// CLOCK_MONOTONIC: an event in one of the two gaps may be counted or not.
    pub times: [u64; 4],
    /// By the event's id.
    pub fired: BTreeMap<u16, u64>,
}

impl Counted {
    /// Names the events that the storm in this directory is to count.
    pub fn ask(scratch: &Path, ids: impl IntoIterator<Item = u16>) {
        let ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
        fs::write(scratch.join(WANTED), ids.join(" ")).unwrap();
    }

    /// What the storm in this directory has counted.
    pub fn read(scratch: &Path) -> Self {
        let text = fs::read_to_string(scratch.join(COUNTED)).expect("the storm has come to its end");
        let mut lines = text.lines().map(|line| line.split(' ').map(|word| word.parse::<u64>().unwrap()));
        let mut head = lines.next().unwrap();
        let mut counted = Self { tid: head.next().unwrap() as u32, ..Self::default() };
        counted.times = std::array::from_fn(|_| head.next().unwrap());
        for mut line in lines {
            counted.fired.insert(line.next().unwrap() as u16, line.next().unwrap());
        }
        counted
    }
}

/// Opens a counter of a tracepoint on this thread; all of them are one group, whose leader is the first.
fn open(id: u16, leader: Option<i32>) -> i32 {
    let mut attr = [0_u8; ATTR_BYTES];
    attr[0..4].copy_from_slice(&PERF_TYPE_TRACEPOINT.to_ne_bytes());
    attr[4..8].copy_from_slice(&(ATTR_BYTES as u32).to_ne_bytes());
    attr[8..16].copy_from_slice(&u64::from(id).to_ne_bytes());
    // The first flag: disabled. Only the leader, which the others follow.
    attr[40] = u8::from(leader.is_none());
    // SAFETY: the attributes are as large as they say.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, leader.unwrap_or(-1), 0) };
    assert!(fd >= 0, "perf_event_open of tracepoint {id}: {}", io::Error::last_os_error());
    fd as i32
}

fn switch(leader: i32, request: libc::c_ulong) {
    // SAFETY: the request takes a plain number.
    let result = unsafe { libc::ioctl(leader, request, PERF_IOC_FLAG_GROUP) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn count(counter: i32) -> u64 {
    let mut value = [0; 8];
    // SAFETY: the buffer has the eight bytes that a counter without a read format gives.
    let read = unsafe { libc::read(counter, value.as_mut_ptr().cast(), value.len()) };
    assert_eq!(read, 8, "{}", io::Error::last_os_error());
    u64::from_ne_bytes(value)
}

/// System calls in a loop, packets to itself, which raise soft interrupts, and a timer that expires on top of
/// them.
pub(crate) fn run(scratch: &Path, rounds: u32) {
    let wanted = fs::read_to_string(scratch.join(WANTED)).expect("what is to be counted");
    let ids: Vec<u16> = wanted.split(' ').map(|id| id.parse().unwrap()).collect();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let interval = libc::timespec { tv_sec: 0, tv_nsec: 150_000 };
    let timing = libc::itimerspec { it_interval: interval, it_value: interval };
    // SAFETY: no memory is passed but the valid `timing`.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::timerfd_settime(timer, 0, &raw const timing, std::ptr::null_mut()) }, 0);
    let leader = open(ids[0], None);
    let mut counters = vec![leader];
    counters.extend(ids[1..].iter().map(|&id| open(id, Some(leader))));

    let mut times = [now(); 4];
    switch(leader, PERF_EVENT_IOC_ENABLE);
    times[1] = now();
    let mut packet = [0; 64];
    for round in 0..rounds {
        // SAFETY: takes no memory.
        unsafe { libc::getppid() };
        if round % 8 == 0 {
            socket.send_to(&packet, address).unwrap();
            socket.recv(&mut packet).unwrap();
            // Reading lets the timer go on. SAFETY: the buffer is large enough.
            unsafe { libc::read(timer, packet.as_mut_ptr().cast(), 8) };
        }
    }
    times[2] = now();
    switch(leader, PERF_EVENT_IOC_DISABLE);
    times[3] = now();

    let [a, b, c, d] = times;
    let mut text = format!("{} {a} {b} {c} {d}\n", tid());
    for (id, counter) in ids.iter().zip(counters) {
        let _ = writeln!(text, "{id} {}", count(counter));
    }
    fs::write(scratch.join(COUNTED), text).unwrap();
}

/// Samples every CPU, as `perf record -a` does, until it is dropped.
#[derive(Debug)]
pub struct Profiler {
    /// What samples.
    pub kind: &'static str,
    cpus: Vec<(OwnedFd, *mut libc::c_void)>,
}

impl Profiler {
    /// Starts sampling with this frequency: by the processor's cycles where they can be counted, or else by a
    /// timer.
    pub fn start(hertz: u64) -> Self {
        // Type and number of the event (perf_event_open(2)).
        let kinds = [("cycles", [0_u32, 0]), ("timer", [1, 0])];
        let online = rustix::thread::sched_getaffinity(None).unwrap();
        for (kind, [event_type, number]) in kinds {
            let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| online.is_set(cpu));
            let opened: Option<Vec<_>> =
                cpus.map(|cpu| sample_cpu(cpu as i32, event_type, number, hertz)).collect();
            if let Some(cpus) = opened {
                return Self { kind, cpus };
            }
        }
        panic!("nothing can be sampled here: {}", io::Error::last_os_error());
    }

    /// Bytes of samples so far, of the fullest CPU; a buffer that nobody reads takes no more than it has room
    /// for.
    pub fn samples(&self) -> u64 {
        let head = |&(_, buffer): &(OwnedFd, *mut libc::c_void)| {
            // SAFETY: the mapping is larger than its first page and lives as long as this; the kernel writes
            // the word at any time.
            unsafe { buffer.cast::<u64>().add(DATA_HEAD / 8).read_volatile() }
        };
        // A sample of nothing is a header of eight bytes.
        self.cpus.iter().map(head).max().unwrap_or(0) / 8
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        for (_, buffer) in &self.cpus {
            // SAFETY: mapped with this length, and not used any more.
            unsafe { libc::munmap(*buffer, SAMPLE_BYTES) };
        }
    }
}

fn sample_cpu(cpu: i32, event_type: u32, number: u32, hertz: u64) -> Option<(OwnedFd, *mut libc::c_void)> {
    const FREQUENCY: u64 = 1 << 10;
    let mut attr = [0_u8; ATTR_BYTES];
    attr[0..4].copy_from_slice(&event_type.to_ne_bytes());
    attr[4..8].copy_from_slice(&(ATTR_BYTES as u32).to_ne_bytes());
    attr[8..16].copy_from_slice(&u64::from(number).to_ne_bytes());
    attr[16..24].copy_from_slice(&hertz.to_ne_bytes());
    attr[40..48].copy_from_slice(&FREQUENCY.to_ne_bytes());
    // SAFETY: the attributes are as large as they say; a descriptor that is returned is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, cpu, -1, 0);
        if fd < 0 {
            return None;
        }
        let fd = OwnedFd::from_raw_fd(fd as i32);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let buffer =
            libc::mmap(std::ptr::null_mut(), SAMPLE_BYTES, access, libc::MAP_SHARED, fd.as_raw_fd(), 0);
        assert_ne!(buffer, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Some((fd, buffer))
    }
}
