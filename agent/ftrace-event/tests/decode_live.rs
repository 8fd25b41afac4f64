//! Records of the running kernel are turned into text, and compared with the text that the kernel makes of
//! them. Needs root and tracefs, and fails without.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ftrace_event::{
    EventTable, Machine, Names, NoNames, NoSymbols, Printer, Symbol, Symbols, Value, resolve_names,
};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Events whose `print fmt` does not compile, and why: a function that only the driver of Intel's IOMMU has
/// turns 4 words of hardware's into text.
const REFUSED: [&str; 1] = ["prq_report"];

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// System and text of every format.
fn formats() -> Vec<(String, String)> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let mut found = Vec::new();
    for system in list(&Path::new(TRACEFS).join("events")) {
        let name = system.file_name().unwrap().to_str().unwrap();
        for event in list(&system) {
            // Probes of others come and go.
            if let Ok(text) = fs::read_to_string(event.join("format")) {
                found.push((name.to_owned(), text));
            }
        }
    }
    assert!(found.len() > 500, "only {} formats", found.len());
    found
}

/// The kernel's enumerators, from its BTF (Documentation/bpf/btf.rst), and its HZ.
struct Constants(HashMap<String, i64>);

impl Names for Constants {
    fn value(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }
}

impl Constants {
    fn read() -> Self {
        let btf = fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let u32_at = |at: usize| u32::from_le_bytes(btf[at..at + 4].try_into().unwrap());
        let header = u32_at(4) as usize;
        let (types, types_len) = (header + u32_at(8) as usize, u32_at(12) as usize);
        let strings = header + u32_at(16) as usize;
        let name = |offset: u32| {
            let text = &btf[strings + offset as usize..];
            let end = text.iter().position(|byte| *byte == 0).unwrap();
            String::from_utf8_lossy(&text[..end]).into_owned()
        };
        let mut found = HashMap::new();
        let mut at = types;
        while at < types + types_len {
            let info = u32_at(at + 4);
            let (kind, count, signed) = (info >> 24 & 31, (info & 0xffff) as usize, info >> 31 != 0);
            at += 12;
            let size = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                _ => 0,
            };
            for member in 0..count {
                if kind == 6 {
                    let value = u32_at(at + member * 8 + 4);
                    let value = if signed { i64::from(value.cast_signed()) } else { i64::from(value) };
                    found.insert(name(u32_at(at + member * 8)), value);
                } else if kind == 19 {
                    let (low, high) = (u32_at(at + member * 12 + 4), u32_at(at + member * 12 + 8));
                    let value = u64::from(high) << 32 | u64::from(low);
                    found.insert(name(u32_at(at + member * 12)), value.cast_signed());
                }
            }
            at += size;
        }
        // `(jiffies - REC->dirtied_when) / 250`: the kernel's HZ stands in a format.
        let writeback = read(format!("{TRACEFS}/events/writeback/writeback_single_inode/format"));
        let hz = writeback.split("REC->dirtied_when) / ").nth(1).unwrap();
        let hz = hz.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
        found.insert("HZ".to_owned(), hz);
        Self(found)
    }
}

/// The kernel's symbols with their sizes: each goes to the start of the next (get_symbol_pos of
/// kernel/kallsyms.c), and of those at one address the first counts.
struct Kernel {
    /// By address. Those that the kernel does not look at have no name.
    symbols: Vec<(u64, String, Option<String>)>,
    texts: HashMap<u64, String>,
}

impl Kernel {
    fn read() -> Self {
        let text = read("/proc/kallsyms");
        let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
        // The few symbols of data that a kernel has without CONFIG_KALLSYMS_ALL stand for nothing:
        // kernel/kallsyms.c (is_ksym_addr) finds code alone then.
        let has_data = lines.iter().any(|line| matches!(&*line[1], "d" | "b"));
        let is_looked_at = |kind: &str| has_data || matches!(kind, "t" | "T" | "w" | "W");
        let symbol = |line: &Vec<String>| {
            let address = u64::from_str_radix(&line[0], 16).unwrap();
            let name = if is_looked_at(&line[1]) { line[2].clone() } else { String::new() };
            (address, name, line.get(3).map(|module| module.trim_matches(['[', ']']).to_owned()))
        };
        let mut symbols: Vec<_> = lines.iter().map(symbol).collect();
        symbols.sort_by_key(|symbol| symbol.0);
        symbols.dedup_by_key(|symbol| symbol.0);
        let mut texts = HashMap::new();
        for line in read(format!("{TRACEFS}/printk_formats")).lines() {
            if let Some((address, text)) = line.split_once(" : ") {
                let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
                texts.insert(address, text.trim_matches('"').to_owned());
            }
        }
        Self { symbols, texts }
    }
}

impl Symbols for Kernel {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let next = self.symbols.partition_point(|symbol| symbol.0 <= address);
        let (start, name, module) = self.symbols.get(next.checked_sub(1)?)?;
        // Below and above the kernel's text is nothing that has a name.
        if *start < 0xffff_ffff_8000_0000 || name.is_empty() {
            return None;
        }
        let size = self.symbols.get(next).map(|following| following.0 - start);
        Some(Symbol { name, offset: address - start, size, module: module.as_deref() })
    }

    fn text_at(&self, address: u64) -> Option<&str> {
        self.texts.get(&address).map(String::as_str)
    }
}

fn table(names: &dyn Names) -> EventTable {
    let mut table = EventTable::new(Machine::default());
    for (system, text) in formats() {
        table.add(&system, &text, names).unwrap();
    }
    table
}

#[test]
fn every_print_fmt_of_the_kernel_compiles() {
    let table = table(&Constants::read());
    let failed: Vec<String> = table
        .iter()
        .filter_map(|printer| Some((printer, printer.error()?)))
        .filter(|(printer, _)| !REFUSED.contains(&printer.name()))
        .map(|(printer, error)| format!("{}:{}: {error}", printer.system(), printer.name()))
        .collect();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), table.len(), failed.join("\n"));
    let mut unresolved: BTreeMap<&str, usize> = BTreeMap::new();
    for printer in table.iter() {
        for name in printer.unresolved() {
            *unresolved.entry(name).or_default() += 1;
        }
    }
    println!("{} formats compile; names that BTF does not have: {unresolved:?}", table.len());
}

#[test]
fn a_resolved_format_needs_no_names() {
    let names = Constants::read();
    let mut changed = 0;
    for (system, text) in formats() {
        let resolved = resolve_names(&text, &names);
        let print = |text: &str, names: &dyn Names| {
            let mut table = EventTable::new(Machine::default());
            let printer = table.add(&system, text, names).unwrap();
            let mut out = Vec::new();
            let record: Vec<u8> = (0..200_u8).map(|byte| byte % 7).collect();
            printer.print(&record, &NoSymbols, &mut out);
            (out, printer.unresolved().to_vec())
        };
        // HZ is asked for by a function: no text mentions it.
        let (with_names, unresolved) = print(&text, &names);
        if !text.contains("jiffies_to_msecs") {
            assert_eq!(print(&resolved, &NoNames), (with_names, unresolved), "{resolved}");
        }
        changed += usize::from(resolved != text);
    }
    println!("{changed} formats have names that BTF knows");
}

/// Probes with arguments of all types that kernel/trace/trace_probe.c knows for user space, and stock memory
/// of the kernel behind a `$`. They go away with the value.
struct Probes(String);

impl Probes {
    fn new() -> Self {
        let group = format!("decode_live_{}", std::process::id());
        let arguments = "a=%ax:u8 b=%ax:s32 c=%ax:x64 d=%di:u16 e=+0(%sp):string f=+0(%sp):u32[4] \
                         g=+0(%sp):ustring[2] h=%ax:b4@8/32 i=$comm j=%ip:s64 k=\\5 l=+0(%sp):x8[3]";
        let probes = Self(group);
        probes.write(&format!("p:{0}/entry /proc/self/exe:0x1000 {arguments}\n", probes.0));
        probes.write(&format!("r:{0}/return /proc/self/exe:0x1000 r=$retval:s16\n", probes.0));
        probes
    }

    fn write(&self, line: &str) {
        let path = Path::new(TRACEFS).join("uprobe_events");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{}: {line}: {error}", self.0));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let path = Path::new(TRACEFS).join("uprobe_events");
        for event in ["entry", "return"] {
            let file = OpenOptions::new().append(true).open(&path);
            let _ = file.and_then(|mut file| file.write_all(format!("-:{}/{event}\n", self.0).as_bytes()));
        }
    }
}

#[test]
fn formats_of_probes_compile() {
    let probes = Probes::new();
    let mut table = EventTable::new(Machine::default());
    for event in ["entry", "return"] {
        let text = read(format!("{TRACEFS}/events/{}/{event}/format", probes.0));
        let printer = table.add(&probes.0, &text, &NoNames).unwrap();
        assert_eq!(printer.error(), None, "{text}");
        assert!(printer.unresolved().is_empty(), "{text}");
        // A record of nothing is printed as well.
        printer.print(&[0; 200], &Kernel { symbols: Vec::new(), texts: HashMap::new() }, &mut Vec::new());
    }
}

/// Marsaglia's xorshift: the same numbers each time.
fn random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % limit.max(1) as u64) as usize
}

#[test]
fn changed_formats_are_survived() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let (mut tried, mut understood) = (0, 0);
    for (system, text) in formats() {
        for round in 0..5 {
            let mut bytes = text.clone().into_bytes();
            // Most of them in the print fmt alone, or else few get that far.
            let start = if round == 0 { 0 } else { text.find("print fmt:").unwrap() + 10 };
            for _ in 0..=random(&mut state, 2) {
                let at = start.min(bytes.len()) + random(&mut state, bytes.len().saturating_sub(start));
                let end = (at + random(&mut state, 40)).min(bytes.len());
                match random(&mut state, 3) {
                    0 => drop(bytes.drain(at..end)),
                    1 => {
                        let from = at - random(&mut state, at - start.min(at) + 1).min(200);
                        let copied = bytes[from..end].to_vec();
                        drop(bytes.splice(at..at, copied));
                    }
                    _ => {
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte = b"()[]{}\"%?:*,0129aR\n"[random(&mut state, 19)];
                        }
                    }
                }
            }
            tried += 1;
            let mut table = EventTable::new(Machine::default());
            if let Ok(printer) = table.add(&system, &String::from_utf8_lossy(&bytes), &NoNames) {
                understood += usize::from(printer.error().is_none());
                let record: Vec<u8> =
                    (0..random(&mut state, 300)).map(|_| random(&mut state, 256) as u8).collect();
                let mut out = Vec::new();
                printer.print(&record, &NoSymbols, &mut out);
                printer.print_fields(&record, &mut out);
                assert_eq!(printer.fields(&record).count(), printer.format().fields.len());
            }
        }
    }
    assert!(tried > 5000 && understood > tried / 20, "{understood} of {tried}");
}

/// A tracefs instance that goes away with the value.
struct Instance(PathBuf);

impl Instance {
    fn new() -> Self {
        let path = Path::new(TRACEFS).join(format!("instances/decode_live_{}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("events/enable"), "0");
        // Someone may still be looking into it.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} is left behind", self.0.display());
    }
}

/// Records of a CPU with their times, from the pages of its ring buffer.
fn raw_records(instance: &Instance, cpu: usize) -> Vec<(u64, Vec<u8>)> {
    const O_NONBLOCK: i32 = 0o4000;
    let path = instance.0.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
    let mut file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path).unwrap();
    let mut page = vec![0; 4096];
    let mut found = Vec::new();
    loop {
        match file.read(&mut page) {
            Ok(0) => return found,
            Ok(len) => records_of_page(&page[..len], &mut found),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return found,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

/// include/linux/ring_buffer.h and kernel/trace/ring_buffer.c, rb_event_length and rb_update_write_stamp.
fn records_of_page(page: &[u8], found: &mut Vec<(u64, Vec<u8>)>) {
    let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let mut time = u64_at(0);
    let end = 16 + (u64_at(8) & 0xf_ffff) as usize;
    let mut at = 16;
    while at + 4 <= end {
        let header = u32_at(at);
        let (kind, delta) = (header & 31, u64::from(header >> 5));
        let (start, len) = match kind {
            0 => (at + 8, u32_at(at + 4) as usize - 4),
            1..=28 => (at + 4, kind as usize * 4),
            29 if delta == 0 => return,
            29 => (at + 4, u32_at(at + 4) as usize),
            _ => (at + 4, 4),
        };
        match kind {
            30 => time += u64::from(u32_at(at + 4)) << 27 | delta,
            31 => time = time & !((1 << 59) - 1) | u64::from(u32_at(at + 4)) << 27 | delta,
            29 => time += delta,
            _ => {
                time += delta;
                found.push((time, page[start..start + len].to_vec()));
            }
        }
        at = start + len.next_multiple_of(4);
    }
}

/// Time in microseconds and text of each event of a CPU, as the kernel prints them.
fn kernel_lines(instance: &Instance, cpu: usize) -> Vec<(u64, String)> {
    let text = read(instance.0.join(format!("per_cpu/cpu{cpu}/trace")));
    let marker = format!(" [{cpu:03}] ");
    let mut found: Vec<(u64, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("CPU:")) {
        let parsed = line.split_once(&marker).and_then(|(_, rest)| {
            let (_, rest) = rest.trim_start().split_once(' ')?;
            let (time, text) = rest.trim_start().split_once(": ")?;
            let (seconds, micros) = time.split_once('.')?;
            Some((seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?, text.to_owned()))
        });
        match (parsed, found.last_mut()) {
            (Some(event), _) => found.push(event),
            (None, Some(last)) => {
                last.1.push('\n');
                last.1 += line;
            }
            (None, None) => panic!("{line}"),
        }
    }
    found
}

/// Enables all events but those that fire for each lock or memory access, and probes, which others may have
/// set anywhere.
fn enable(instance: &Instance) {
    const NOISY: [&str; 4] = ["lock", "preemptirq", "maple_tree", "msr"];
    let probes = read(format!("{TRACEFS}/uprobe_events"));
    let is_probe =
        |system: &str| probes.contains(&format!(":{system}/")) || system.starts_with("decode_live_");
    for entry in fs::read_dir(instance.0.join("events")).unwrap() {
        let path = entry.unwrap().path();
        let system = path.file_name().unwrap().to_str().unwrap();
        if path.join("enable").exists() && !NOISY.contains(&system) && !is_probe(system) {
            instance.write(&format!("events/{system}/enable"), "1");
        }
    }
}

/// Makes the kernel do a bit of everything.
fn workload(instance: &Instance, dir: &Path) {
    for round in 0..12 {
        let path = dir.join(format!("file{round}"));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap().len(), 300_000);
        fs::rename(&path, dir.join("renamed")).unwrap();
        fs::remove_file(dir.join("renamed")).unwrap();

        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[1; 5000]).unwrap();
            server.read_exact(&mut [0; 5000]).unwrap();
            // Nobody listens there any more.
            let gone = listener.local_addr().unwrap();
            drop((listener, client, server));
            assert!(TcpStream::connect(gone).is_err());
            let udp = UdpSocket::bind(address).unwrap();
            udp.send_to(b"x", udp.local_addr().unwrap()).unwrap();
            udp.recv(&mut [0; 1]).unwrap();
        }
        let thread = std::thread::Builder::new().name("decode ] worker".into());
        thread.spawn(|| std::thread::sleep(Duration::from_micros(300))).unwrap().join().unwrap();
        let script = "kill -USR1 $$ & sleep 0.01; ls / | head -3 >/dev/null";
        Command::new("sh").args(["-c", script]).status().unwrap();
        // Memory that is touched and given back.
        drop(std::hint::black_box(vec![1_u8; 8 << 20]));
        instance.write("trace_marker", "a marker %s\n");
    }
}

/// What the kernel prints for a system call instead of its `print fmt` (print_syscall_enter and
/// print_syscall_exit of kernel/trace/trace_syscalls.c), without the `0x` that newer kernels put before
/// numbers from 10 on: a test of the typed fields.
fn syscall_text(printer: &Printer, record: &[u8]) -> String {
    let number = |value: &Value<'_>| match *value {
        Value::Signed(value) => value as u64,
        Value::Unsigned(value) | Value::Pointer(value) => value,
        ref other => panic!("{other:?}"),
    };
    if let Some(name) = printer.name().strip_prefix("sys_exit_") {
        let (_, value) = printer.fields(record).find(|(field, _)| field.name == "ret").unwrap();
        return format!("sys_{name} -> {:x}", number(&value.unwrap()));
    }
    let name = printer.name().strip_prefix("sys_enter_").unwrap();
    let mut text = format!("sys_{name}(");
    for (index, (field, value)) in printer.fields(record).skip(1).enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{}: {:x}", field.name, number(&value.unwrap()));
    }
    text + ")"
}

/// Whether the kernel's text is ours. A `?` in ours stands for what no record tells: `vmemmap_base` (a page's
/// address) and `jiffies` (at the time of printing).
fn same(ours: &str, kernels: &str) -> bool {
    let mut parts = ours.split('?');
    let Some(mut rest) = kernels.strip_prefix(parts.next().unwrap()) else { return false };
    for part in parts {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        let Some(after) = rest.strip_prefix(part) else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// The event that a record is of, whether its text is the kernel's, and its text.
fn same_event(table: &EventTable, symbols: &Kernel, record: &[u8], line: &str) -> (String, bool, String) {
    let mut text = Vec::new();
    let printer = table.print(record, symbols, &mut text).unwrap();
    if !printer.is_kernel_stack() {
        // What `report -N` prints.
        let mut plain = Vec::new();
        printer.print_format(record, symbols, &mut plain);
        assert_eq!(plain, text, "{}", printer.name());
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let mut line = std::borrow::Cow::from(line);
    if printer.system() == "syscalls" {
        text = syscall_text(printer, record);
        line = line.replace("0x", "").into();
    } else if printer.system() != "ftrace" {
        text.insert_str(0, &format!("{}: ", printer.name()));
    }
    let same = same(text.trim_end(), line.trim_end());
    (format!("{}:{}", printer.system(), printer.name()), same, text)
}

#[test]
fn texts_are_those_of_the_kernel() {
    let symbols = Kernel::read();
    let table = table(&Constants::read());
    let instance = Instance::new();
    instance.write("buffer_size_kb", "16384");
    // Else %p prints a hash that no reader can know. Linux 6.1 then prints the first %s of most lines as an
    // empty text (its trace_check_vprintf cuts up the format in the buffer that the format is in): this test
    // is for newer kernels.
    instance.write("options/hash-ptr", "0");
    instance.write("trace_clock", "mono");
    let dir = Path::new("/var/tmp").join(format!("decode_live_{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    enable(&instance);
    // An event with a stack behind it.
    instance.write("events/sched/sched_process_exec/trigger", "stacktrace");
    workload(&instance, &dir);
    instance.write("events/sched/sched_process_exec/trigger", "!stacktrace");
    instance.write("tracing_on", "0");
    instance.write("events/enable", "0");
    fs::remove_dir_all(&dir).unwrap();

    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut different: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut unprinted: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut equal = 0;
    let cpus = fs::read_dir(instance.0.join("per_cpu")).unwrap().count();
    for cpu in 0..cpus {
        // In this order: reading the raw records consumes them.
        let lines = kernel_lines(&instance, cpu);
        let records = raw_records(&instance, cpu);
        let mut rest = records.as_slice();
        for (micros, line) in lines {
            // Each line is that of the next record, or of a later one of the same microsecond.
            let time = |record: &(u64, Vec<u8>)| (record.0 + 500) / 1000;
            let earlier = rest.iter().take_while(|record| time(record) < micros).count();
            let found = rest[earlier..]
                .iter()
                .take_while(|record| time(record) == micros)
                .position(|(_, record)| same_event(&table, &symbols, record, &line).1);
            let at = earlier + found.unwrap_or(0);
            for (_, record) in &rest[..at] {
                let (name, _, text) = same_event(&table, &symbols, record, &line);
                unprinted.entry(name).or_insert((0, text)).0 += 1;
            }
            let (_, record) = rest.get(at).unwrap_or_else(|| panic!("no record for {line}"));
            rest = &rest[at + 1..];
            let (name, _, text) = same_event(&table, &symbols, record, &line);
            *counts.entry(name.clone()).or_default() += 1;
            if found.is_some() {
                equal += 1;
            } else {
                let example = || (0, format!("kernel: {line}\n  ours:   {text}"));
                different.entry(name).or_insert_with(example).0 += 1;
            }
        }
    }
    let total: usize = counts.values().sum();
    println!("{total} events of {} kinds, {equal} equal", counts.len());
    println!("records without a line: {unprinted:?}");
    println!("{counts:?}");
    for (name, (count, example)) in &different {
        println!("{name}: {count} of {} differ\n  {example}", counts[name]);
    }
    assert!(total > 5000 && counts.len() > 50, "{total} events of {} kinds", counts.len());
    assert!(different.is_empty(), "{} kinds differ", different.len());
    let unprinted: usize = unprinted.values().map(|(count, _)| count).sum();
    assert!(unprinted <= total / 20, "{unprinted} of {total} records have no line");
}
