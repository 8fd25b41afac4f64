//! `report` prints the records of the running kernel as the kernel itself does: the same records are read as
//! the text of an instance of tracefs and as pages, which become a trace.dat.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use ftrace_event::name_and_id;
use integration_tests::harness::{agent, program, run};
use integration_tests::tracefs::{self, Event, Instance};
use integration_tests::workload;
use tracedat::reader::Reader;

/// Events that fire for each lock or memory access, and so often that nothing else would be seen.
const NOISY: [&str; 4] = ["lock", "preemptirq", "maple_tree", "msr"];

/// Events that print the address of a variable as a symbol. The kernel names only functions and prints a
/// number; readers, stock ones too, the symbol in front of it.
const NAMES_OF_VARIABLES: [&str; 1] = ["iomap_iter"];

/// A printed event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    micros: u64,
    pid: u32,
    event: String,
    text: String,
}

/// The events of a CPU. A line that is none goes on with the text of the one before: stacks have several.
fn lines(text: &str, cpu: u32) -> Vec<Line> {
    let marker = format!(" [{cpu:03}] ");
    let mut found: Vec<Line> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let parsed = line.split_once(&marker).and_then(|(task, rest)| {
            // The kernel has flags before the time.
            let (time, text) = rest.split_once(": ")?;
            let time = time.rsplit(' ').next()?;
            let (seconds, micros) = time.split_once('.')?;
            let micros = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
            let pid = task.rsplit_once('-')?.1.trim().parse().ok()?;
            let (event, text) = split_event(text);
            Some(Line { micros, pid, event, text })
        });
        match (parsed, found.last_mut()) {
            (Some(line), _) => found.push(line),
            (None, Some(last)) => last.text += &format!(" {}", line.trim()),
            (None, None) => {}
        }
    }
    found.iter_mut().for_each(Line::normalise);
    found
}

/// Name and text of an event. The kernel prints system calls as `sys_openat(dfd: ...)` and `sys_openat ->
/// 0x3` (`print_syscall_enter` and `print_syscall_exit` of kernel/trace/trace_syscalls.c).
fn split_event(text: &str) -> (String, String) {
    if let Some(call) = text.strip_prefix("sys_") {
        if let Some((name, value)) = call.split_once(" -> ") {
            return (format!("sys_exit_{name}"), value.to_owned());
        }
        let name_len = call.find(['(', ':', ' ']).unwrap_or(call.len());
        if call[name_len..].starts_with('(') {
            let arguments = call[name_len + 1..].trim_end();
            return (
                format!("sys_enter_{}", &call[..name_len]),
                arguments.strip_suffix(')').unwrap_or(arguments).to_owned(),
            );
        }
    }
    // These have no name in the kernel's text.
    if text.starts_with("tracing_mark_write: ") {
        return ("print".to_owned(), text.to_owned());
    }
    if text.starts_with("<stack trace>") {
        return ("kernel_stack".to_owned(), String::new());
    }
    let (event, text) = text.split_once(':').unwrap_or((text, ""));
    (event.to_owned(), text.trim_start().to_owned())
}

/// The text with every number in hexadecimal as `#` and its digits. The kernel prints pointers with 16
/// digits, stock readers and we as `0x` and no more digits than it takes, and `(nil)`.
fn pointers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = out.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let (prefix, digits) = match rest.strip_prefix("0x") {
            Some(digits) => (2, digits),
            None => (0, rest),
        };
        let end = digits.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(digits.len());
        let is_hex = end > 0 && digits[..end].bytes().all(|byte| byte.is_ascii_hexdigit());
        if !word && is_hex && (prefix > 0 || end == 16) {
            out.push('#');
            out.push_str(digits[..end].trim_start_matches('0'));
            rest = &digits[end..];
        } else if let Some(after) = rest.strip_prefix("(nil)") {
            out.push('#');
            rest = after;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// The text without the sizes of functions, `/#1570` behind `name+#804`: only the kernel knows them.
fn without_sizes(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_hexdigit();
    let mut parts = text.split("+#");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let offset = part.find(|c: char| !is_digit(c)).unwrap_or(part.len());
        let rest = &part[offset..];
        let rest = rest.strip_prefix("/#").map_or(rest, |size| size.trim_start_matches(is_digit));
        out += &format!("+#{}{rest}", &part[..offset]);
    }
    out
}

impl Line {
    /// Makes equal what is only written in another way.
    fn normalise(&mut self) {
        let text = self.text.trim();
        self.text = if self.event == "kernel_stack" {
            // `=> name` and `=> name+0x11 (ffffffff81000000)`.
            let names = text.split("=> ").skip(1);
            let name = |frame: &str| frame.split([' ', '+']).next().unwrap_or_default().to_owned();
            names.map(name).collect::<Vec<_>>().join(" ")
        } else if self.event.starts_with("sys_") {
            // Numbers are in hexadecimal, with and without 0x and zeros before them.
            let plain = |word: &str| {
                let digits = word.strip_prefix("0x").unwrap_or(word);
                let end = digits.len() - digits.trim_end_matches(',').len();
                let (digits, comma) = digits.split_at(digits.len() - end);
                let short = digits.trim_start_matches('0');
                if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && !digits.is_empty() {
                    format!("{}{comma}", if short.is_empty() { "0" } else { short })
                } else {
                    word.to_owned()
                }
            };
            text.split_whitespace().map(plain).collect::<Vec<_>>().join(" ")
        } else {
            without_sizes(&pointers(text))
        };
    }

    /// Whether the kernel's line says the same. A `?` of ours stands for what no record tells: `vmemmap_base`
    /// (a page's address) and `jiffies` (at the time of printing).
    fn is(&self, kernels: &Self) -> bool {
        if (self.micros, self.pid, &self.event) != (kernels.micros, kernels.pid, &kernels.event) {
            return false;
        }
        if self.event == "kernel_stack" {
            // Its `print fmt` has eight addresses: no more, and for those that there are not `?`.
            return kernels.text.starts_with(self.text.trim_end_matches([' ', '?']));
        }
        let mut parts = self.text.split('?');
        let Some(mut rest) = kernels.text.strip_prefix(parts.next().unwrap_or_default()) else {
            return false;
        };
        for part in parts {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '#');
            let Some(after) = rest.strip_prefix(part) else { return false };
            rest = after;
        }
        rest.is_empty()
    }
}

/// Enables all events but the noisy ones, and probes, which others may have set anywhere.
fn enable(instance: &Instance) {
    let probes = tracefs::text("uprobe_events");
    for entry in fs::read_dir(Path::new(tracefs::TRACEFS).join("events")).unwrap() {
        let path = entry.unwrap().path();
        let system = path.file_name().unwrap().to_str().unwrap();
        let is_probe = probes.contains(&format!(":{system}/"));
        if path.join("enable").exists() && !NOISY.contains(&system) && !is_probe {
            instance.enable(&format!("{system}:*"));
        }
    }
}

/// All events with the formats that a recording has of them: tracefs leaves names in some whose values no
/// reader of a file can know.
fn with_recorded_formats(dir: &Path) -> BTreeMap<u16, Event> {
    let args = ["record", "-q", "-a", "-e", "task", "-o", "formats.dat", "true"];
    run(&mut agent(dir, args)).expect(0);
    let recording = Reader::open(File::open(dir.join("formats.dat")).unwrap()).unwrap();
    let recorded: BTreeMap<u32, String> = recording
        .metadata()
        .systems
        .iter()
        .flat_map(|system| &system.formats)
        .map(|text| (name_and_id(text).expect(text).1, text.clone()))
        .collect();
    let mut events = tracefs::events(&[]);
    for (id, event) in &mut events {
        if let Some(text) = recorded.get(&u32::from(*id)) {
            event.text.clone_from(text);
        }
    }
    events
}

#[test]
fn texts_are_those_of_the_kernel() {
    let instance = Instance::create("report-live", 16384);
    // Else %p prints a hash that no reader can know. Linux 6.1 then prints the first %s of most lines as an
    // empty text (its trace_check_vprintf cuts up the format in the buffer that the format is in): this test
    // is for newer kernels.
    instance.write("options/hash-ptr", "0");
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    enable(&instance);
    instance.write("events/sched/sched_process_exec/trigger", "stacktrace");
    workload::run("mixed", scratch.path(), Some(&instance.switch()));
    // An event with a stack behind it, and a text from a program.
    run(&mut program(scratch.path(), "ls", ["/"])).expect(0);
    instance.write("trace_marker", "a marker %s\n");
    instance.write("tracing_on", "0");
    instance.write("events/sched/sched_process_exec/trigger", "!stacktrace");
    instance.stop();

    // In this order: reading the pages empties the buffers.
    let kernel: BTreeMap<u32, Vec<Line>> =
        instance.texts().into_iter().map(|(cpu, text)| (cpu, lines(&text, cpu))).collect();
    let file = scratch.path().join("trace.dat");
    let events = with_recorded_formats(scratch.path());
    tracefs::write_dat(&file, &events, &instance.pages());

    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut different: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut unprinted: BTreeMap<String, usize> = BTreeMap::new();
    for (cpu, kernel) in &kernel {
        // Without plugins, which print some events in a way of their own.
        let args = ["report", "-N", "--cpu", &cpu.to_string()];
        let ours = lines(&run(agent("/".as_ref(), args).arg(&file)).expect(0).out, *cpu);
        let mut rest = ours.as_slice();
        for line in kernel {
            *counts.entry(line.event.clone()).or_default() += 1;
            // Each line is that of the next record, or of a later one of the same microsecond.
            let earlier = rest.iter().take_while(|ours| ours.micros < line.micros).count();
            let found = rest[earlier..]
                .iter()
                .take_while(|ours| ours.micros == line.micros)
                .position(|ours| ours.is(line));
            let at = earlier + found.unwrap_or(0);
            for ours in &rest[..at] {
                *unprinted.entry(ours.event.clone()).or_default() += 1;
            }
            let compared = !NAMES_OF_VARIABLES.contains(&&*line.event);
            if found.is_none() && compared {
                let example = || (0, format!("kernel: {line:?}\n  ours:   {:?}", rest.get(at)));
                different.entry(line.event.clone()).or_insert_with(example).0 += 1;
            }
            rest = rest.get(at + 1..).unwrap_or_default();
        }
    }
    let total: usize = counts.values().sum();
    println!("{total} events of {} kinds; records without a line: {unprinted:?}", counts.len());
    for (name, (count, example)) in &different {
        println!("{name}: {count} of {} differ\n  {example}", counts[name]);
    }
    assert!(total > 5000 && counts.len() > 50, "{total} events of {} kinds", counts.len());
    assert!(different.is_empty(), "{} kinds differ", different.len());
    let unprinted: usize = unprinted.values().sum();
    assert!(unprinted <= total / 20, "{unprinted} of {total} records have no line");
}
