//! ftrace itself as the reference recorder: an instance of tracefs, read page by page.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use ftrace_event::{Cmdlines, Endian, Format};
use tracedat::{Buffer, Compression, EventSystem, FileOption, Section, Setup, Writer};

/// Where the machine has tracefs.
pub const TRACEFS: &str = "/sys/kernel/tracing";
const PAGE: usize = 4096;

/// A file of tracefs as text. The kernel hands out some of these files, `header_page` for one, in the first
/// read only, so that must be a large one.
pub fn text(path: &str) -> String {
    let path = Path::new(TRACEFS).join(path);
    let mut file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let mut some = [0; 16384];
    loop {
        match file.read(&mut some).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
            0 => return String::from_utf8(bytes).unwrap(),
            len => bytes.extend_from_slice(&some[..len]),
        }
    }
}

/// An event of the kernel.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its system.
    pub system: String,
    /// Its format, parsed.
    pub format: Format,
    /// Its format, as the kernel prints it.
    pub text: String,
}

/// All events of these systems, by id; of every system if none is named.
pub fn events(systems: &[&str]) -> BTreeMap<u16, Event> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut events = BTreeMap::new();
    for dir in list(&Path::new(TRACEFS).join("events")) {
        let system = name(&dir);
        if !(systems.is_empty() || systems.contains(&system.as_str())) {
            continue;
        }
        for event in list(&dir) {
            let text = fs::read_to_string(event.join("format")).unwrap();
            let format = Format::parse(&text).unwrap();
            events.insert(format.id, Event { system: system.clone(), format, text });
        }
    }
    events
}

/// A tracing instance, removed when dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Creates an instance with the clock `mono` and this much buffer per CPU. It records nothing yet.
    pub fn create(name: &str, buffer_kb: u32) -> Self {
        let path = Path::new(TRACEFS).join("instances").join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let instance = Self { path };
        instance.write("tracing_on", "0");
        instance.write("trace_clock", "mono");
        instance.write("buffer_size_kb", &buffer_kb.to_string());
        // No event may be kept back because its task is the test.
        instance.write("options/overwrite", "0");
        instance
    }

    /// Adds events: `sched:*`, `sched:sched_switch`.
    pub fn enable(&self, events: &str) {
        let path = self.path.join("set_event");
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(events.as_bytes()).unwrap_or_else(|error| panic!("{events}: {error}"));
    }

    /// The file whose content 1 starts the recording.
    pub fn switch(&self) -> PathBuf {
        self.path.join("tracing_on")
    }

    /// Stops recording, and checks that nothing was lost.
    pub fn stop(&self) {
        self.write("tracing_on", "0");
        self.write("events/enable", "0");
        for cpu in self.cpus() {
            let stats = fs::read_to_string(self.path.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap();
            for name in ["overrun", "commit overrun", "dropped events"] {
                let line = format!("{name}: 0");
                assert!(stats.lines().any(|l| l == line), "the reference lost events on CPU {cpu}:\n{stats}");
            }
        }
    }

    /// The recorded pages, by CPU. Reading empties the buffers.
    pub fn pages(&self) -> BTreeMap<u32, Vec<u8>> {
        self.cpus().into_iter().map(|cpu| (cpu, self.pages_of(cpu))).collect()
    }

    fn pages_of(&self, cpu: u32) -> Vec<u8> {
        let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let mut pages = Vec::new();
        let mut page = [0; PAGE];
        loop {
            match file.read(&mut page) {
                Ok(0) => return pages,
                Ok(len) => {
                    assert_eq!(len, PAGE, "{}: part of a page", path.display());
                    pages.extend_from_slice(&page);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return pages,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    fn cpus(&self) -> Vec<u32> {
        let dirs = fs::read_dir(self.path.join("per_cpu")).unwrap();
        let name = |dir: std::io::Result<fs::DirEntry>| dir.unwrap().file_name().into_string().unwrap();
        dirs.map(|dir| name(dir).strip_prefix("cpu").unwrap().parse().unwrap()).collect()
    }

    /// The text that the kernel prints of the recorded events, by CPU. The buffers keep them.
    pub fn texts(&self) -> BTreeMap<u32, String> {
        let text = |cpu: u32| {
            let bytes = fs::read(self.path.join(format!("per_cpu/cpu{cpu}/trace"))).unwrap();
            (cpu, String::from_utf8_lossy(&bytes).into_owned())
        };
        self.cpus().into_iter().map(text).collect()
    }

    /// Writes a file of the instance.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.path.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {text}: {error}", path.display()));
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("tracing_on"), "0");
        let _ = fs::write(self.path.join("events/enable"), "0");
        // Busy for as long as a reader of its files is being closed.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} could not be removed", self.path.display());
    }
}

/// The pages of a buffer, by CPU.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Its name; empty for the top buffer, which comes first.
    pub name: String,
    /// The pages.
    pub cpus: BTreeMap<u32, Vec<u8>>,
}

/// Writes pages that ftrace recorded with the clock `mono` as a trace.dat without compression.
pub fn write_dat(path: &Path, events: &BTreeMap<u16, Event>, pages: &BTreeMap<u32, Vec<u8>>) {
    write_buffers(path, events, &[Pages { name: String::new(), cpus: pages.clone() }]);
}

/// The same of several buffers.
pub fn write_buffers(path: &Path, events: &BTreeMap<u16, Event>, buffers: &[Pages]) {
    let endian = Endian::Little;
    let setup = Setup { endian, page_size: PAGE as u32, compression: Compression::None };
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    let mut writer = Writer::create(file, setup).unwrap();
    let header = Section::header_info(endian, &text("events/header_page"), &text("events/header_event"));
    writer.section(header.unwrap()).unwrap();
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in events.values() {
        systems.entry(&event.system).or_default().push(&event.text);
    }
    let ftrace = systems.remove("ftrace").unwrap_or_default();
    writer.section(Section::ftrace_events(endian, &ftrace).unwrap()).unwrap();
    let systems: Vec<_> =
        systems.iter().map(|(name, formats)| EventSystem { name, formats: formats.as_slice() }).collect();
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.section(Section::kallsyms(endian, &fs::read("/proc/kallsyms").unwrap()).unwrap()).unwrap();
    writer.section(Section::printk(endian, text("printk_formats").as_bytes()).unwrap()).unwrap();
    let mut names = Cmdlines::new();
    for line in text("saved_cmdlines").lines() {
        if let Some((pid, comm)) = line.split_once(' ') {
            names.insert(pid.parse().unwrap(), comm.as_bytes());
        }
    }
    writer.section(Section::cmdlines(endian, &names)).unwrap();
    writer.option(&FileOption::TraceClock("local [mono]".to_owned())).unwrap();
    // As `uname -snrm` prints it.
    let uname = rustix::system::uname();
    let parts = [uname.sysname(), uname.nodename(), uname.release(), uname.machine()];
    let uname = parts.map(|text| text.to_string_lossy().into_owned()).join(" ");
    writer.option(&FileOption::Uname(uname)).unwrap();
    let cpus = buffers.iter().filter_map(|buffer| buffer.cpus.keys().last()).max().map_or(1, |cpu| cpu + 1);
    writer.option(&FileOption::CpuCount(cpus)).unwrap();
    for Pages { name, cpus } in buffers {
        let mut buffer = writer.begin_buffer(Buffer { name, clock: "mono", page_size: PAGE as u32 }).unwrap();
        for (cpu, pages) in cpus {
            buffer.write_cpu(*cpu, pages.as_slice()).unwrap();
        }
        buffer.finish().unwrap();
    }
    writer.finish().unwrap();
}
