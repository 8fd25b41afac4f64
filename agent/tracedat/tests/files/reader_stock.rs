//! Files that stock trace-cmd writes, and recordings of the running kernel, are read as trace-cmd reads them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::common::{COMPRESSIONS, Scratch, pages, setup, squeezed, str, switch, text, tick, trace_cmd};
use crate::reader_files::{Kept, backwards, forwards};
use ftrace_event::Endian;
use tracedat::reader::Reader;
use tracedat::{Buffer, EventSystem, FileOption, Section, Setup, Writer};

fn mixed(cpus: u32) -> Vec<(u32, Vec<u8>)> {
    let records = |cpu: u32| {
        (0..900u32).map(move |n| {
            // Every now and then a gap that needs a time extend.
            let time = 1_000_000_000 + u64::from(n * 3 + cpu) * 190_000 + u64::from(n / 100) * 300_000_000;
            let record = match n % 3 {
                0 => tick(42, n, 16 + n as usize % 200 / 4 * 4),
                1 => text(43, 0xffff_ffff_8100_0110, &format!("message {n}")),
                _ => switch(("worker", 42), ("idle task", 0)),
            };
            (time, record)
        })
    };
    (0..cpus).map(|cpu| (cpu, pages(4096, records(cpu)))).collect()
}

fn read(path: &Path) -> Vec<Kept> {
    let reader = Reader::open(File::open(path).unwrap()).unwrap();
    assert_eq!(reader.problems().len(), 0);
    let mut records = reader.records().unwrap();
    let kept = forwards(&mut records);
    assert_eq!(backwards(&mut records).len(), kept.len());
    kept
}

/// What `report -R -t` tells of each record: pid, CPU, time and event.
fn as_reported(path: &Path) -> Vec<String> {
    let reader = Reader::open(File::open(path).unwrap()).unwrap();
    let mut records = reader.records().unwrap();
    let mut lines = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        let pid = record.endian.read_u32(record.data[4..8].try_into().unwrap());
        let event = reader.metadata().event(record.event_id().unwrap()).unwrap().name;
        let (seconds, nanos) = (record.timestamp / 1_000_000_000, record.timestamp % 1_000_000_000);
        lines.push(format!("{pid} [{:03}] {seconds}.{nanos:09}: {event}", record.cpu));
    }
    lines
}

/// The same out of trace-cmd's lines.
fn reported(path: &Path) -> Vec<String> {
    let lines = squeezed(path, &["-R", "-t"]);
    let short = |line: &String| {
        let (head, rest) = line.split_once(" [").unwrap();
        let pid = head.rsplit('-').next().unwrap();
        let event = rest.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ");
        format!("{pid} [{}", event.trim_end_matches(':'))
    };
    lines.iter().filter(|line| !line.contains("EVENTS DROPPED")).map(short).collect()
}

#[test]
fn conversions_have_the_same_records() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let path = scratch.file("t.dat", setup(compression), &mixed(3));
        let original = read(&path);
        assert_eq!(original.len(), 2700);
        assert_eq!(as_reported(&path), reported(&path));
        let other = scratch.path("other.dat");
        for arguments in [
            &["--file-version", "6"][..],
            &["--file-version", "7", "--compression", "none"],
            &["--file-version", "7", "--compression", "zstd"],
        ] {
            let convert = [&["convert", "-i", str(&path), "-o", str(&other)], arguments].concat();
            trace_cmd(&convert);
            assert_eq!(read(&other), original, "{compression:?} {arguments:?}");
            let reader = Reader::open(File::open(&other).unwrap()).unwrap();
            assert_eq!(reader.metadata().event_id("sched", "sched_switch"), Some(crate::common::SWITCH));
            assert_eq!(reader.metadata().cmdlines.get(43), Some(b"two words".as_slice()));
            assert!(reader.kallsyms().unwrap().ends_with(b"T the_end\n"));
            let uname = FileOption::Uname("Linux test 6.18.0 x86_64".to_owned());
            assert!(reader.facts().any(|fact| *fact == uname));
        }
    }
}

/// An instance of tracefs that goes away with the test.
struct Instance(PathBuf);

impl Instance {
    fn create() -> Self {
        let root = Path::new("/sys/kernel/tracing");
        let path = root.join(format!("instances/reader_test_{}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// tracefs answers these with one read only.
fn whole(path: &Path) -> String {
    let mut buffer = vec![0; 1 << 16];
    let len = File::open(path).unwrap().read(&mut buffer).unwrap();
    String::from_utf8(buffer[..len].to_vec()).unwrap()
}

/// The kernel's own pages of a CPU.
fn raw_pages(path: &Path, page_size: usize) -> Vec<u8> {
    let mut file = File::options().read(true).custom_flags(0o4000).open(path).unwrap(); // O_NONBLOCK
    let (mut pages, mut page) = (Vec::new(), vec![0; page_size]);
    loop {
        match file.read(&mut page) {
            Ok(0) => return pages,
            Ok(len) => {
                page[len..].fill(0);
                pages.extend_from_slice(&page);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return pages,
            Err(error) => panic!("{error}"),
        }
    }
}

/// How often this thread sleeps for the kernel to record.
const SLEEPS: u64 = 50;

fn thread_id() -> String {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().to_owned()
}

/// How often the kernel has switched away from this thread.
fn own_switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

#[test]
fn pages_of_the_running_kernel() {
    let instance = Instance::create();
    let root = Path::new("/sys/kernel/tracing/events");
    instance.write("trace_clock", "mono");
    for event in ["sched/sched_switch", "sched/sched_waking", "irq/softirq_entry"] {
        instance.write(&format!("events/{event}/enable"), "1");
    }
    let before = own_switches();
    for _ in 0..SLEEPS {
        thread::sleep(Duration::from_micros(50));
    }
    let switches = own_switches() - before;
    instance.write("tracing_on", "0");

    let header_page = whole(&root.join("header_page"));
    let page_size = tracedat::page::PageLayout::parse(Endian::Little, &header_page).unwrap().page_size;
    let scratch = Scratch::new();
    let path = scratch.path("live.dat");
    let setup = Setup { page_size, ..Setup::default() };
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    let mut writer = Writer::create(file, setup).unwrap();
    let endian = setup.endian;
    writer
        .section(Section::header_info(endian, &header_page, &whole(&root.join("header_event"))).unwrap())
        .unwrap();
    let format = |name: &str| fs::read_to_string(root.join(name).join("format")).unwrap();
    let (switch, waking, softirq) =
        (format("sched/sched_switch"), format("sched/sched_waking"), format("irq/softirq_entry"));
    let systems = [
        EventSystem { name: "sched", formats: &[&switch, &waking] },
        EventSystem { name: "irq", formats: &[&softirq] },
    ];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.option(&FileOption::TraceClock("[mono]".to_owned())).unwrap();
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size }).unwrap();
    for entry in fs::read_dir(instance.0.join("per_cpu")).unwrap() {
        let entry = entry.unwrap();
        let cpu = entry.file_name().to_str().unwrap().trim_start_matches("cpu").parse().unwrap();
        top.write_cpu(cpu, raw_pages(&entry.path().join("trace_pipe_raw"), page_size as usize).as_slice())
            .unwrap();
    }
    top.finish().unwrap();
    writer.finish().unwrap();
    let expected = reported(&path);
    assert_eq!(as_reported(&path), expected);
    let own = format!("{} [", thread_id());
    let of_this_thread = |line: &&String| line.starts_with(&own) && line.ends_with(": sched_switch");
    let found = expected.iter().filter(of_this_thread).count() as u64;
    assert!(switches >= SLEEPS && found >= switches, "{found} of {switches} switches in {SLEEPS} sleeps");
}
