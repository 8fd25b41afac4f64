//! The workloads: programs that make a kernel event happen often. A new one is a line in [`WORKLOADS`].
//!
//! A recorder runs them as its command, through `xtask bench-load NAME ITERATIONS [REPORT]`, so that what
//! they measure is the load alone, whatever the recorder does before and after it.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use super::{probe, sys};
use crate::Result;

/// A workload and what is recorded of it.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// What recorders are told to record.
    pub(super) events: &'static [&'static str],
    /// How long it goes on in a full round.
    pub(super) iterations: u64,
    /// How many of the events it makes itself, where that is certain.
    pub(super) known_events: Option<fn(u64) -> u64>,
    /// Sets everything up, runs the load between two looks at the clock, and gives the time between.
    run: fn(u64) -> io::Result<Span>,
}

impl Workload {
    /// Whether its events are uprobes.
    pub(super) fn has_probes(&self) -> bool {
        self.events.iter().any(|event| probe::is_probe(event))
    }
}

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "pingpong",
        about: "two threads on one CPU send a byte to and fro through pipes",
        events: &["sched:sched_switch"],
        iterations: 250_000,
        known_events: Some(|iterations| 2 * iterations),
        run: ping_pong,
    },
    Workload {
        name: "pingpong-all",
        about: "the same, with every event of the scheduler",
        events: &["sched:*"],
        iterations: 100_000,
        known_events: None,
        run: ping_pong,
    },
    Workload {
        name: "getppid",
        about: "one thread calls getppid",
        events: &["raw_syscalls:sys_enter"],
        iterations: 4_000_000,
        known_events: Some(|iterations| iterations),
        run: getppid_loop,
    },
    Workload {
        name: "getppid-one",
        about: "the same, with the event of that call alone",
        events: &["syscalls:sys_enter_getppid"],
        iterations: 4_000_000,
        known_events: Some(|iterations| iterations),
        run: getppid_loop,
    },
    Workload {
        name: "storm",
        about: "on each CPU 8 threads send messages of 100 bytes to 8 others through pipes",
        events: &["sched:*"],
        iterations: 60_000,
        known_events: None,
        run: storm,
    },
    Workload {
        name: "walk",
        about: "one thread lists and looks at files, of a tree with 1000",
        events: &["syscalls:*"],
        iterations: 100,
        known_events: None,
        run: walk,
    },
    Workload {
        name: "write",
        about: "one thread writes pages into the page cache and truncates the file",
        events: &["ext4:*"],
        iterations: 400_000,
        known_events: None,
        run: write_pages,
    },
    Workload {
        name: "uprobe",
        about: "one thread calls a function of its program",
        events: &["tracer_agent_bench:hit"],
        iterations: 500_000,
        known_events: Some(|iterations| iterations),
        run: call_probed,
    },
    Workload {
        name: "uprobe-text",
        about: "the same, with a text among the arguments",
        events: &["tracer_agent_bench:text"],
        iterations: 500_000,
        known_events: Some(|iterations| iterations),
        run: call_probed,
    },
    Workload {
        name: "idle",
        about: "nothing happens for ten seconds",
        events: &["sched:*"],
        iterations: 10_000,
        known_events: None,
        run: idle,
    },
];

/// What analyses are measured on. It is none of the workloads that recorders are compared with: what they do
/// to it is too different each time.
const MIXED: Workload = Workload {
    name: "mixed",
    about: "that of storm, while processes start, files are written, packets are sent, and threads sleep and wait for a lock",
    events: &["sched:*", "raw_syscalls:*", "irq:*"],
    iterations: 20_000,
    known_events: None,
    run: mixed,
};

fn all() -> impl Iterator<Item = &'static Workload> {
    WORKLOADS.iter().chain([&MIXED])
}

pub(super) fn find(name: &str) -> Result<&'static Workload> {
    all().find(|workload| workload.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|workload| workload.name).collect();
        format!("no such workload: {name}; there are {}", names.join(", ")).into()
    })
}

/// When a load ran, by `CLOCK_MONOTONIC`.
struct Span {
    start: Duration,
    end: Duration,
}

/// What a load says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadReport {
    /// When it began.
    pub(super) start: Duration,
    /// When it was done.
    pub(super) end: Duration,
    /// CPU time of its process, from the first line of its program on.
    pub(super) cpu: Duration,
    /// Time that the host took from all CPUs meanwhile.
    pub(super) stolen: Duration,
    /// How often its threads had to give up a CPU meanwhile.
    pub(super) preempted: u64,
}

impl LoadReport {
    pub(super) fn elapsed(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }

    fn text(&self) -> String {
        format!(
            "elapsed_ns {}\nstart_ns {}\nend_ns {}\ncpu_ns {}\nstolen_ns {}\npreempted {}\n",
            self.elapsed().as_nanos(),
            self.start.as_nanos(),
            self.end.as_nanos(),
            self.cpu.as_nanos(),
            self.stolen.as_nanos(),
            self.preempted
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let values: HashMap<&str, u64> = text
            .lines()
            .map(|line| line.split_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?))))
            .collect::<Option<_>>()?;
        let time = |name| values.get(name).copied().map(Duration::from_nanos);
        Some(Self {
            start: time("start_ns")?,
            end: time("end_ns")?,
            cpu: time("cpu_ns")?,
            stolen: time("stolen_ns")?,
            preempted: *values.get("preempted")?,
        })
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("the load did not run: {error}"))?;
        Self::parse(&text).ok_or_else(|| format!("not the report of a load: {text:?}").into())
    }
}

/// `xtask bench-load NAME ITERATIONS [REPORT]`: what recorders run.
pub(super) fn main(args: &[String]) -> Result {
    let (before, stolen_before) = (sys::own_usage()?, sys::stolen()?);
    let [name, iterations, rest @ ..] = args else {
        return Err("bench-load wants NAME ITERATIONS [REPORT]".into());
    };
    let span = (find(name)?.run)(iterations.parse()?)?;
    let used = sys::own_usage()?;
    let report = LoadReport {
        start: span.start,
        end: span.end,
        cpu: used.cpu.saturating_sub(before.cpu),
        stolen: sys::stolen()?.saturating_sub(stolen_before),
        preempted: used.preempted.saturating_sub(before.preempted),
    }
    .text();
    match rest.first() {
        // The standard output belongs to the recorder.
        Some(path) => std::fs::write(path, report)?,
        None => print!("{report}"),
    }
    Ok(())
}

fn pin_to_last() -> io::Result<()> {
    sys::allowed_cpus()?.last().map_or(Ok(()), |&cpu| sys::pin(cpu))
}

/// Every iteration is two context switches: both threads are on one CPU, and each waits for the other's byte.
fn ping_pong(iterations: u64) -> io::Result<Span> {
    pin_to_last()?;
    let (mut from_main, mut to_echo) = io::pipe()?;
    let (mut from_echo, mut to_main) = io::pipe()?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut byte = [0];
        while from_main.read(&mut byte)? == 1 {
            to_main.write_all(&byte)?;
        }
        Ok(())
    });
    let mut byte = [1];
    let mut exchange = || {
        to_echo.write_all(&byte)?;
        from_echo.read_exact(&mut byte)
    };
    // The other thread is up when it has answered.
    exchange()?;
    let start = sys::now();
    for _ in 0..iterations {
        exchange()?;
    }
    let end = sys::now();
    drop(to_echo);
    joined(echo)?;
    Ok(Span { start, end })
}

fn getppid_loop(iterations: u64) -> io::Result<Span> {
    pin_to_last()?;
    let start = sys::now();
    for _ in 0..iterations {
        sys::getppid();
    }
    Ok(Span { start, end: sys::now() })
}

fn call_probed(iterations: u64) -> io::Result<Span> {
    pin_to_last()?;
    let start = sys::now();
    for number in 0..iterations {
        probe::probed(number, c"a text of some length".as_ptr().cast());
    }
    Ok(Span { start, end: sys::now() })
}

/// Looks at every file of a tree, `iterations` times. The tree is made before the clock starts.
fn walk(iterations: u64) -> io::Result<Span> {
    pin_to_last()?;
    let tree = Scratch::create("walk")?;
    for dir in 0..10 {
        let dir = tree.0.join(dir.to_string());
        std::fs::create_dir(&dir)?;
        for file in 0..100 {
            std::fs::write(dir.join(file.to_string()), "")?;
        }
    }
    let start = sys::now();
    for _ in 0..iterations {
        for dir in std::fs::read_dir(&tree.0)? {
            for file in std::fs::read_dir(dir?.path())? {
                std::fs::metadata(file?.path())?;
            }
        }
    }
    Ok(Span { start, end: sys::now() })
}

/// Writes `iterations` pages, and begins anew before they are many enough to be written back.
fn write_pages(iterations: u64) -> io::Result<Span> {
    use std::io::Seek as _;
    const PAGES: u64 = 1000;
    pin_to_last()?;
    let dir = Scratch::create("write")?;
    let mut file = std::fs::File::create(dir.0.join("file"))?;
    let page = [1; 4096];
    let start = sys::now();
    for number in 0..iterations {
        if number % PAGES == 0 {
            file.set_len(0)?;
            file.rewind()?;
        }
        file.write_all(&page)?;
    }
    Ok(Span { start, end: sys::now() })
}

/// Sleeps for `iterations` milliseconds.
#[expect(clippy::unnecessary_wraps, reason = "the type of every workload")]
fn idle(iterations: u64) -> io::Result<Span> {
    let start = sys::now();
    thread::sleep(Duration::from_millis(iterations));
    Ok(Span { start, end: sys::now() })
}

/// A directory of this process's own, on the disk that temporary files are on; removed in the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn create(name: &str) -> io::Result<Self> {
        let dir = std::env::temp_dir().join(format!(
            "tracer-agent-bench-{name}.{}.{:?}",
            std::process::id(),
            thread::current().id()
        ));
        std::fs::create_dir(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it is for the user to see; it changes no figure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Each sender sends `iterations` messages, to the receivers of its group in turn. A group stays on its CPU,
/// because where the scheduler puts threads decides more about the time than any recorder does.
fn storm(iterations: u64) -> io::Result<Span> {
    const PEERS: usize = 8;
    let cpus = sys::allowed_cpus()?;
    let barrier = Arc::new(Barrier::new(cpus.len() * PEERS * 2 + 1));
    let mut threads = Vec::new();
    for cpu in cpus {
        let mut writers = Vec::new();
        for _ in 0..PEERS {
            let (reader, writer) = io::pipe()?;
            // As small as pipes get, so that senders wait for receivers.
            sys::shrink_pipe(&writer)?;
            writers.push(writer);
            threads.push(member(cpu, &barrier, move || receive(reader)));
        }
        let writers = Arc::new(writers);
        for _ in 0..PEERS {
            let writers = Arc::clone(&writers);
            threads.push(member(cpu, &barrier, move || send(&writers, iterations)));
        }
    }
    barrier.wait();
    let start = sys::now();
    threads.into_iter().try_for_each(joined)?;
    Ok(Span { start, end: sys::now() })
}

/// A storm of so many messages a sender, and beside it as many packets to itself, as many times a lock in
/// each of two threads, for every 50 a process, for every 100 a sleep of a millisecond, and for every 1000 a
/// file of 400 KB.
fn mixed(iterations: u64) -> io::Result<Span> {
    let dir = Scratch::create("mixed")?;
    let path = dir.0.join("file");
    let processes = thread::spawn(move || {
        (0..iterations / 50).try_for_each(|_| std::process::Command::new("true").status().map(drop))
    });
    let sleeps = thread::spawn(move || {
        (0..iterations / 100).for_each(|_| thread::sleep(Duration::from_millis(1)));
        Ok(())
    });
    let packets = thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let itself = socket.local_addr()?;
        (0..iterations).try_for_each(|_| {
            socket.send_to(&[1; MESSAGE], itself)?;
            socket.recv(&mut [0; MESSAGE]).map(drop)
        })
    });
    let lock = Arc::new(Mutex::new(()));
    let [one, other] = [Arc::clone(&lock), lock].map(|lock| {
        thread::spawn(move || {
            for _ in 0..iterations {
                let held = lock.lock();
                thread::yield_now();
                drop(held);
            }
            Ok(())
        })
    });
    let files = thread::spawn(move || {
        (0..iterations / 1000).try_for_each(|_| {
            let mut file = std::fs::File::create(&path)?;
            (0..100).try_for_each(|_| file.write_all(&[1; 4096]))?;
            file.sync_all()
        })
    });
    let span = storm(iterations)?;
    [processes, sleeps, packets, one, other, files].into_iter().try_for_each(joined)?;
    Ok(Span { end: sys::now(), ..span })
}

const MESSAGE: usize = 100;

fn send(writers: &[io::PipeWriter], messages: u64) -> io::Result<()> {
    let mut targets = writers.iter().cycle();
    (0..messages).try_for_each(|_| match targets.next() {
        Some(mut target) => target.write_all(&[1; MESSAGE]),
        None => Ok(()),
    })
}

fn receive(mut reader: io::PipeReader) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    while reader.read(&mut message)? != 0 {}
    Ok(())
}

/// A thread on `cpu` that begins when all of them are there.
fn member(
    cpu: usize,
    barrier: &Arc<Barrier>,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Member {
    let barrier = Arc::clone(barrier);
    thread::spawn(move || {
        let pinned = sys::pin(cpu);
        barrier.wait();
        pinned.and_then(|()| work())
    })
}

type Member = thread::JoinHandle<io::Result<()>>;

fn joined(thread: Member) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the load panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_runs() {
        for workload in all() {
            // In a thread of its own, because some of them pin themselves to a CPU.
            let span = thread::spawn(|| (workload.run)(20)).join().unwrap().unwrap();
            assert!(span.start < span.end, "{}", workload.name);
        }
    }

    #[test]
    fn reports_survive_the_file() {
        let time = Duration::from_nanos;
        let report =
            LoadReport { start: time(5), end: time(12), cpu: time(3), stolen: time(1), preempted: 4 };
        assert_eq!(LoadReport::parse(&report.text()), Some(report));
        assert!(report.text().starts_with("elapsed_ns 7\n"));
        assert_eq!(LoadReport::parse("start_ns x"), None);
        assert_eq!(LoadReport::parse(""), None);
    }
}
