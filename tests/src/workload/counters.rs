//! The kernel's own counters of events, read before and after a load.

use super::*;

use std::collections::BTreeMap;

const WINDOWS: &str = "windows.txt";
/// `getppid(2)` calls of a window.
pub const CALLS: u64 = 10_000;
/// What ftrace's buffer, which tells of hidden threads, has room for.
const WINDOWS_MAX: usize = 200;
/// Between the time that a window notes and the reading of counters: a CPU counts an event and records it one
/// after the other, and may do something else in between.
const GUARD: Duration = Duration::from_millis(20);
/// Separates the handlers of an interrupt that several devices share: it calls more than it counts.
const SHARED: char = ',';

/// A time between two readings of the counters.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Nanoseconds of CLOCK_MONOTONIC before the first reading began and after the last one ended.
    pub outer: (u64, u64),
    /// The same after the first reading and before the last one.
    pub inner: (u64, u64),
    /// What the kernel counted between the readings, by the class of events.
    pub counted: BTreeMap<String, u64>,
}

impl Window {
    /// Reads what the workload left in its scratch directory.
    pub fn read_all(scratch: &Path) -> Vec<Self> {
        let text = fs::read_to_string(scratch.join(WINDOWS)).unwrap();
        let mut windows: Vec<Self> = Vec::new();
        for line in text.lines() {
            let numbers = |text: &str| -> Vec<u64> { text.split(' ').map(|n| n.parse().unwrap()).collect() };
            match line.rsplit_once(": ").unwrap() {
                ("window", times) => {
                    let times = numbers(times);
                    windows.push(Self {
                        outer: (times[0], times[3]),
                        inner: (times[1], times[2]),
                        ..Self::default()
                    });
                }
                (class, count) => {
                    windows.last_mut().unwrap().counted.insert(class.to_owned(), count.parse().unwrap());
                }
            }
        }
        windows
    }
}

/// Windows with a load of everything, and some work of this thread alone.
pub(super) fn audited(scratch: &Path) {
    let network = own_network();
    let mut text = String::new();
    for turn in 0..crate::soak().min(WINDOWS_MAX) {
        let dir = scratch.join(format!("window{turn}"));
        fs::create_dir(&dir).unwrap();
        let (begin, before, inner_begin) = guarded(counters);
        for _ in 0..CALLS {
            // SAFETY: the call takes no arguments.
            unsafe { libc::getppid() };
        }
        touch(128 * PAGE);
        ping_pong(100);
        datagrams(200);
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: an open descriptor.
                assert_eq!(unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                load(&dir);
            });
        });
        let (inner_end, after, end) = guarded(counters);
        text.push_str(&format!("window: {begin} {inner_begin} {inner_end} {end}\n"));
        for (class, after) in after {
            // A device may come meanwhile.
            if let Some(before) = before.get(&class) {
                text.push_str(&format!("{class}: {}\n", after - before));
            }
        }
        text.push_str(&format!("own calls: {CALLS}\n"));
    }
    fs::write(scratch.join(WINDOWS), text).unwrap();
}

/// Gives the times before and after what `read` gives, with some distance.
fn guarded<T>(read: impl FnOnce() -> T) -> (u64, T, u64) {
    let begin = now();
    thread::sleep(GUARD);
    let result = read();
    thread::sleep(GUARD);
    (begin, result, now())
}

/// Takes a network for this thread alone. Gives the one before.
fn own_network() -> File {
    let before = File::open("/proc/thread-self/ns/net").unwrap();
    // SAFETY: takes no memory.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: plain data; zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: an open socket, and a request that the kernel reads (netdevice(7)).
    assert_eq!(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }, 0);
    before
}

/// Sends datagrams to itself.
fn datagrams(count: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bytes = [3; 100];
    for _ in 0..count {
        socket.send_to(&bytes, socket.local_addr().unwrap()).unwrap();
        socket.recv(&mut bytes).unwrap();
    }
}

/// All counters (proc(5), Documentation/admin-guide/iostats.rst), by the class of events that they count.
fn counters() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut add = |class: &str, count: u64| all.insert(class.to_owned(), count);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("no number: {text:?}"));
    for line in read("/proc/stat").lines() {
        match line.split_once(' ').unwrap() {
            ("ctxt", count) => add("context switches", number(count)),
            ("processes", count) => add("new tasks", number(count)),
            _ => None,
        };
    }
    // The rows are in the order of the numbers of soft interrupts.
    for (vec, line) in read("/proc/softirqs").lines().skip(1).enumerate() {
        add(&format!("soft interrupt {vec}"), line.split_whitespace().skip(1).map(number).sum());
    }
    for line in read("/proc/interrupts").lines().skip(1) {
        let (name, rest) = line.split_once(':').unwrap();
        let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let count = counts.take(cpus()).sum();
        match name.trim() {
            "LOC" => add("local timer interrupts", count),
            "RES" => add("reschedule interrupts", count),
            irq if irq.parse::<u32>().is_ok() && !rest.contains(SHARED) => {
                add(&format!("interrupt {irq}"), count)
            }
            _ => None,
        };
    }
    for line in read("/proc/diskstats").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Disks with requests, and no partitions of them.
        if Path::new("/sys/block").join(words[2]).join("mq").exists() {
            let disk = format!("{},{}", words[0], words[1]);
            add(&format!("sectors read {disk}"), number(words[5]));
            add(&format!("sectors written {disk}"), number(words[9]));
        }
    }
    let status = read("/proc/thread-self/status");
    let of_status = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        number(line.and_then(|line| line.strip_prefix(':')).unwrap().trim())
    };
    add("own switches", of_status("voluntary_ctxt_switches") + of_status("nonvoluntary_ctxt_switches"));
    add("own run time", number(read("/proc/thread-self/schedstat").split(' ').next().unwrap()));
    let network = read("/proc/thread-self/net/dev");
    let lo = network.lines().find_map(|line| line.trim_start().strip_prefix("lo:")).unwrap();
    let lo: Vec<u64> = lo.split_whitespace().map(number).collect();
    add("own packets received", lo[1]);
    add("own packets sent", lo[9]);
    // SAFETY: plain data; zeros are valid, and the call writes one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage
    };
    add("own page faults", (usage.ru_minflt + usage.ru_majflt) as u64);
    all
}
