//! Uprobes and markers: values, counts and errors, against ftrace's uprobe events and stock trace-cmd.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    os::fd::AsRawFd as _,
    path::Path,
    process::Stdio,
};

use integration_tests::{
    binaries::{Link, nm, tool},
    harness::{Ended, Ledger, agent, ledger_in_info, program, run},
    probe_program::{Probed, build, build_rust},
    trace_cmd,
};

const TRACEFS: &str = "/sys/kernel/tracing";
/// The arguments that are compared with ftrace: every form of the language but a constant text, which ftrace
/// fails to read in uprobes (6.18).
const ARGUMENTS: &str = "n=%di:s64 text=+0(%si):string number=+0(%dx):s32 value=+0(+8(%dx)):s64 \
    name=+0(+8(+8(%dx))):ustring bits=%cx:b4@4/32 byte=%cx:u8 hex=+0(%dx):x16 comm=$comm five=\\5";

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Records the program with these options into `out.dat`.
fn record(dir: &Path, options: &[&str], program: &Path, arguments: &[&str]) -> Ended {
    let program = program.to_str().unwrap();
    let args = [&["record", "-o", "out.dat"], options, &[program], arguments].concat();
    run(&mut agent(dir, args)).expect(0)
}

/// What stock trace-cmd prints behind the events' names.
fn stock_texts(dir: &Path, event: &str) -> Vec<String> {
    let marker = format!(" {event}: ");
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    let text = |line: &str| line.split_once(&marker).map(|(_, text)| text.trim().to_owned());
    report.lines().filter_map(text).collect()
}

/// The map that a recording with these arguments counts in.
fn count(dir: &Path, args: &[&str]) -> serde_json::Value {
    let ended = run(agent(dir, ["record", "--json"]).args(args)).expect(0);
    let map = ended.out.lines().find(|line| line.starts_with('{')).unwrap();
    serde_json::from_str(map).unwrap()
}

/// Uprobe events of ftrace in an instance of their own.
struct Ftrace {
    group: String,
    events: Vec<String>,
}

impl Ftrace {
    fn define(definitions: &[(&str, String)]) -> Self {
        let group = format!("tatest{}", std::process::id());
        let instance = format!("{TRACEFS}/instances/{group}");
        fs::create_dir(&instance).unwrap();
        let mut this = Self { group, events: Vec::new() };
        for (name, definition) in definitions {
            let (kind, place) = definition.split_once(' ').unwrap();
            let line = format!("{kind}:{}/{name} {place}", this.group);
            let mut file = fs::File::options().append(true).open(format!("{TRACEFS}/uprobe_events")).unwrap();
            file.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
            this.events.push((*name).to_owned());
            fs::write(format!("{instance}/events/{}/{name}/enable", this.group), "1").unwrap();
        }
        this
    }

    /// The texts of an event, with addresses as trace-cmd prints them.
    fn texts(&self, event: &str) -> Vec<String> {
        let trace = fs::read_to_string(format!("{TRACEFS}/instances/{}/trace", self.group)).unwrap();
        let marker = format!(" {event}: ");
        let text = |line: &str| Some(line.split_once(&marker)?.1.trim().to_owned());
        trace.lines().filter(|line| !line.starts_with('#')).filter_map(text).collect()
    }

    fn format(&self, event: &str) -> String {
        fs::read_to_string(format!("{TRACEFS}/events/{}/{event}/format", self.group)).unwrap()
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        for event in &self.events {
            let _ = fs::write(
                format!("{TRACEFS}/instances/{}/events/{}/{event}/enable", self.group, self.group),
                "0",
            );
        }
        let _ = fs::remove_dir(format!("{TRACEFS}/instances/{}", self.group));
        if let Ok(mut file) = fs::File::options().append(true).open(format!("{TRACEFS}/uprobe_events")) {
            for event in &self.events {
                let _ = file.write_all(format!("-:{}/{event}", self.group).as_bytes());
            }
        }
    }
}

/// The text behind the address, which ftrace prints with 0x and, at returns, with other names.
fn arguments_of(text: &str) -> &str {
    text.split_once(") ").map_or("", |(_, arguments)| arguments)
}

fn offset_of(dir: &Path, file: &Path, function: &str) -> u64 {
    let listed = run(&mut agent(dir, ["list", "--symbols", file.to_str().unwrap()])).expect(0).out;
    let line = listed.lines().find(|line| line.split_whitespace().nth(2) == Some(function)).unwrap();
    u64::from_str_radix(line.split_whitespace().next().unwrap().trim_start_matches("0x"), 16).unwrap()
}

#[test]
fn records_and_formats_are_those_of_ftrace() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let place = |function| format!("{}:{:#x}", file.display(), offset_of(dir, &file, function));
    let ftrace = Ftrace::define(&[
        ("work", format!("p {} {ARGUMENTS}", place("work"))),
        ("named", format!("r {} text=+0($retval):string", place("named"))),
    ]);
    let entry = format!("work={}:work {ARGUMENTS}", file.display());
    let exit = format!("named={}:named text=+0($retval):string", file.display());
    record(
        dir,
        &["--uprobe", &entry, "--uretprobe", &exit, "-e", "sched:sched_process_exit"],
        &program,
        &["40"],
    );
    for (event, count) in [("work", 42), ("named", 40)] {
        let (ours, theirs) = (stock_texts(dir, event), ftrace.texts(event));
        assert_eq!(ours.len(), count, "{ours:?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            if ours.contains("xxxx") {
                // ftrace's limit for a text is another one.
                assert!(ours.contains(&"x".repeat(200)), "{ours}");
                continue;
            }
            // The kernel's own printer leaves the quotation marks out, which the format has.
            let theirs_quoted = theirs.replace("=(fault)", "=\"(fault)\"");
            assert_eq!(arguments_of(ours), arguments_of(&theirs_quoted));
            let address = |text: &str| {
                text.trim_start_matches('(').trim_start_matches("0x").chars().take(12).collect::<String>()
            };
            if event == "work" {
                assert_eq!(address(ours), address(theirs));
            }
        }
        assert_eq!(theirs.len(), count);
        // Everything but name and id: offsets, sizes, types, and the text.
        let dump = trace_cmd::run(["dump".as_ref(), "--events".as_ref(), dir.join("out.dat").as_os_str()]);
        let format = ftrace.format(event);
        let body = &format[format.find("format:").unwrap()..];
        assert!(
            dump.out.contains(body.trim_end()),
            "{event}: ftrace has\n{body}\nthe file has\n{}",
            dump.out
        );
    }
    let said = run(&mut agent(dir, ["info", "out.dat"])).expect(0).out;
    assert!(said.contains("uprobes:work") && said.contains("sched:sched_process_exit"), "{said}");
}

#[test]
fn a_text_that_is_cut_is_counted() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Fixed);
    let probe = format!("{}:work text=+0(%si):string", file.display());
    let ended = record(dir, &["--uprobe", &probe], &program, &["5"]);
    assert!(ended.err.contains("strings are truncated in 1 records of uprobes:"), "{}", ended.err);
    let json = run(&mut agent(dir, ["info", "--json", "out.dat"])).expect(0).out;
    assert!(json.contains("\"cut\":1"), "{json}");
}

#[test]
fn every_kind_of_binary_can_be_probed() {
    for link in [Link::Pie, Link::Fixed, Link::Library] {
        let scratch = Scratch::new();
        let dir = scratch.path();
        let Probed { program, file } = build(dir, link);
        if link == Link::Library {
            // The dynamic linker's names are left.
            tool(dir, "strip", &[file.to_str().unwrap()]);
        }
        let work = format!("{}:work n=$arg1 c=$arg4:char", file.display());
        let marker = format!("{}:probed:guarded", file.display());
        let labelled = format!("labelled={}:probed:plain number=arg1 text=+0(arg3):string", file.display());
        record(dir, &["--uprobe", &work, "--usdt", &marker, "--usdt", &labelled], &program, &["4"]);
        let numbers = stock_texts(dir, "guarded");
        let wanted: Vec<String> = (0..4).map(|i| format!("arg1={} arg2={i}", i * 3)).collect();
        assert_eq!(numbers.iter().map(|text| arguments_of(text)).collect::<Vec<_>>(), wanted, "{link:?}");
        let labels = stock_texts(dir, "labelled");
        let wanted: Vec<String> = (0..4).map(|i| format!("number={i:#x} text=\"label\"")).collect();
        assert_eq!(labels.iter().map(|text| arguments_of(text)).collect::<Vec<_>>(), wanted, "{link:?}");
        let report = run(&mut agent(dir, ["report", "out.dat"])).expect(0).out;
        assert!(report.contains("n=0x3 c='D'"), "{link:?}: {report}");
    }
}

#[test]
fn a_method_of_rust_is_probed_by_its_name() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let binary = build_rust(dir);
    let probe = format!("add={}:probed_rust::inner::Counter::add amount=$arg2:u32", binary.display());
    let alternative = probe.replace("probed_rust::", "probed::");
    let known = tool(dir, "nm", &["-C", binary.to_str().unwrap()]);
    let probe = if known.contains("probed_rust::inner") { probe } else { alternative };
    record(dir, &["--uprobe", &probe], &binary, &["5"]);
    let amounts: Vec<String> =
        stock_texts(dir, "add").iter().map(|text| arguments_of(text).to_owned()).collect();
    assert_eq!(amounts, (0..5).map(|i| format!("amount={i}")).collect::<Vec<_>>());
}

/// The names of the recorded systems' events in `out.dat`, as stock trace-cmd has them.
fn stock_events(dir: &Path) -> BTreeSet<String> {
    let listed = trace_cmd::run(["dump".as_ref(), "--events".as_ref(), dir.join("out.dat").as_os_str()]).out;
    listed.lines().filter_map(|line| line.trim().strip_prefix("name: ")).map(str::to_owned).collect()
}

#[test]
fn a_pattern_makes_an_event_of_each_function() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let pattern = format!("{}:[nw]*[dk]", file.display());
    let (with_filter, as_one) = (format!("{pattern} n=%di:s32"), format!("both={pattern}"));
    let options = ["--uprobe", &pattern, "--uretprobe", &pattern, "--uprobe", &with_filter, "-f", "n == 3"];
    record(dir, &[&options[..], &["--uprobe", &as_one]].concat(), &program, &["10"]);
    let addresses = |event| stock_texts(dir, event).into_iter().collect::<BTreeSet<_>>();
    for (function, calls) in [("work", 12), ("named", 10)] {
        assert_eq!(stock_texts(dir, function).len(), calls, "{function}");
        assert_eq!(addresses(function).len(), 1, "{function}");
        assert_eq!(stock_texts(dir, &format!("{function}__return")).len(), calls, "{function}");
        // The same functions again: a name is that of one event.
        let filtered = stock_texts(dir, &format!("{function}_1"));
        assert_eq!(filtered.iter().map(|text| arguments_of(text)).collect::<Vec<_>>(), ["n=3"], "{function}");
    }
    assert_ne!(addresses("work"), addresses("named"));
    // With a name it is one event, of both functions.
    let both = stock_texts(dir, "both");
    assert_eq!(both.len(), 22, "{both:?}");
    assert_eq!(addresses("both"), &addresses("work") | &addresses("named"));
}

#[test]
fn a_pattern_finds_the_functions_of_libc() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, .. } = build(dir, Link::Pie);
    record(dir, &["--uprobe", "libc.so.6:put* text=+0(%di):string", "-F"], &program, &["3"]);
    let puts: Vec<String> = stock_texts(dir, "puts");
    assert_eq!(puts.iter().map(|text| arguments_of(text)).collect::<Vec<_>>(), ["text=\"done\""]);
    // What the dynamic linker knows of them, by address: several names of one place are one event.
    let linked = tool(dir, "ldd", &[program.to_str().unwrap()]);
    let libc = linked.lines().find(|line| line.contains("libc.so.6")).unwrap();
    let libc = libc.split_whitespace().nth(2).unwrap();
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tool(dir, "nm", &["-D", "--defined-only", libc]).lines() {
        let [address, kind, name] = line.split_whitespace().collect::<Vec<_>>()[..] else { continue };
        let name = name.split('@').next().unwrap();
        if name.starts_with("put") && ["T", "W", "t"].contains(&kind) {
            places.entry(address.to_owned()).or_default().insert(name.to_owned());
        }
    }
    let events = stock_events(dir);
    assert!(places.len() > 5, "{places:?}");
    for names in places.values() {
        assert_eq!(names.intersection(&events).count(), 1, "{names:?} {events:?}");
    }
    assert!(!events.iter().any(|name| name.contains("cold")), "parts of functions: {events:?}");
}

#[test]
fn what_of_a_pattern_cannot_be_probed_is_left_out() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Library);
    // The kernel looks at the instructions when the file is mapped: here, before the recording.
    let script =
        "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('mapped', flush=True); sys.stdin.read()";
    let mut mapped = std::process::Command::new("python3")
        .args(["-c", script, file.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    mapped.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let some = format!("{}:[hw]*[ks]", file.display());
    let ended = record(dir, &["--uprobe", &some], &program, &["4"]);
    let none = format!("{}:halt*", file.display());
    let refused =
        run(&mut agent(dir, ["record", "-o", "none.dat", "--uprobe", &none, program.to_str().unwrap()]));
    drop(mapped.stdin.take());
    mapped.wait().unwrap();
    assert_eq!(stock_texts(dir, "work").len(), 6);
    assert!(ended.err.contains("not recorded: uprobes:halts"), "{}", ended.err);
    refused.expect(111).says(&["uprobes:halts", "offset may be inside an instruction"]);
}

#[test]
fn a_pattern_makes_an_event_of_each_marker() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let (all, some) =
        (format!("{}:probed:*", file.display()), format!("{}:p*d:*l*n text=+0(arg3):string", file.display()));
    let named = format!("mine/alone={}:probed:gu*", file.display());
    record(dir, &["--usdt", &all, "--usdt", &some, "--usdt", &named], &program, &["4"]);
    assert_eq!(stock_events(dir), ["alone", "guarded", "plain", "plain_1"].map(str::to_owned).into());
    for event in ["guarded", "alone"] {
        let wanted: Vec<String> = (0..4).map(|i| format!("arg1={} arg2={i}", i * 3)).collect();
        let texts = stock_texts(dir, event);
        assert_eq!(texts.iter().map(|text| arguments_of(text)).collect::<Vec<_>>(), wanted, "{event}");
    }
    assert_eq!(stock_texts(dir, "plain").len(), 4);
    let labels = stock_texts(dir, "plain_1");
    assert_eq!(labels.iter().map(|text| arguments_of(text)).collect::<Vec<_>>(), ["text=\"label\""; 4]);
    // Markers that lack what is asked for are left out, as long as there is another.
    let third = format!("{}:probed:* third=arg3", file.display());
    let ended = record(dir, &["--usdt", &third], &program, &["4"]);
    assert_eq!(stock_events(dir), ["plain"].map(str::to_owned).into());
    let note = "not recorded: probed:guarded: `arg3`";
    assert!(ended.err.contains(note) && ended.err.contains("has 2 arguments"), "{}", ended.err);
}

#[test]
fn a_million_calls_of_four_threads_are_recorded_or_counted() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let (work, marker) =
        (format!("{}:work n=$arg1", file.display()), format!("{}:probed:guarded", file.display()));
    // A small ring, so that there are losses to be counted too.
    let options = ["-b", "64", "--uprobe", &work, "--usdt", &marker];
    record(dir, &options, &program, &["125000", "4"]);
    let file = dir.join("out.dat");
    let ledger = Ledger::of(&file);
    let fired = 4 * 125_000 + 4 * (125_000 + 2);
    assert_eq!(ledger.events("recorded") + ledger.lost_of_events(), fired);
    let report = trace_cmd::count(&trace_cmd::report(&file, &[])) as u64;
    assert_eq!(report, ledger.events("recorded"));
}

#[test]
fn a_file_below_the_root_of_a_process_is_found_through_its_links() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { file, .. } = build(dir, Link::Pie);
    let root = dir.join("root");
    fs::create_dir_all(root.join("opt")).unwrap();
    fs::copy(&file, root.join("opt/probed")).unwrap();
    // Absolute, so that it leads elsewhere outside of the container.
    std::os::unix::fs::symlink("/opt/probed", root.join("link")).unwrap();
    let mut waiting = sleeping_in(dir, &root);
    let probe = format!("/proc/{}/root/link:work", waiting.id());
    record(dir, &["--uprobe", &format!("work={probe}")], &root.join("opt/probed"), &["3"]);
    let _ = waiting.kill();
    let _ = waiting.wait();
    assert_eq!(stock_texts(dir, "work").len(), 5);
}

/// A process that waits with `root` as its root directory.
fn sleeping_in(dir: &Path, root: &Path) -> std::process::Child {
    use std::os::unix::process::CommandExt as _;
    fs::write(dir.join("wait.c"), "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n").unwrap();
    tool(dir, "cc", &["-static", "-o", "root/wait", "wait.c"]);
    let root = std::ffi::CString::new(root.to_str().unwrap()).unwrap();
    let mut command = std::process::Command::new("/wait");
    // SAFETY: one system call between fork and exec, on memory that is there before.
    unsafe {
        command.pre_exec(move || match libc::chroot(root.as_ptr()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.current_dir("/").spawn().unwrap()
}

/// `record` with this option must end with `code` and say `texts`; nothing is written.
#[track_caller]
fn refused(dir: &Path, option: &str, probe: &str, code: i32, texts: &[&str]) {
    let args = ["record", "-o", "refused.dat", option, probe, "true"];
    run(&mut agent(dir, args)).expect(code).says(texts);
    assert!(!dir.join("refused.dat").exists());
}

#[test]
fn what_cannot_be_probed_is_told() {
    const USAGE: i32 = 2;
    const NO_SUCH: i32 = 112;
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { file, .. } = build(dir, Link::Pie);
    let file = file.to_str().unwrap();
    let uprobe = |place: &str, code, texts: &[&str]| refused(dir, "--uprobe", place, code, texts);
    uprobe("/absent/file:main", NO_SUCH, &["cannot read /absent/file", "No such file"]);
    uprobe(&format!("{file}:wrok"), NO_SUCH, &["no function wrok", "did you mean work?"]);
    uprobe(&format!("{file}:probed_plain_semaphore"), NO_SUCH, &["section .probes", "not executable"]);
    uprobe(&format!("{file}:puts"), NO_SUCH, &["another library"]);
    uprobe(&format!("{file}:0x10"), NO_SUCH, &["0x10 is outside the code of", "offsets in the file are 0x"]);
    uprobe(&format!("{file}:work+0x1000000"), NO_SUCH, &["is outside the code of"]);
    uprobe(&format!("{file}:work n=%edi"), USAGE, &["`%edi` (at character", "no such register", "%di"]);
    uprobe(&format!("{file}:work n=%di:u7"), USAGE, &["`u7`", "no such type"]);
    uprobe(&format!("{file}:work n=$retval"), USAGE, &["`$retval`", "--uretprobe"]);
    uprobe(&format!("{file}:work n=+0(%di"), USAGE, &["bracket"]);
    uprobe(&format!("{file}:work n=%di n=%si"), USAGE, &["another argument with this name"]);
    uprobe(&format!("{file}:work n=%di:string"), USAGE, &["+0(...)"]);
    uprobe(&format!("1x={file}:work"), USAGE, &["`1x`", "does not begin with a digit"]);
    uprobe("work", USAGE, &["PATH:FUNCTION"]);
    uprobe("", USAGE, &["an attach point is missing"]);
    refused(dir, "--uretprobe", &format!("{file}:work+4"), USAGE, &["omit the offset"]);
    refused(
        dir,
        "--uretprobe",
        &format!("{file}:work n=$arg1"),
        USAGE,
        &["no longer available when the function returns"],
    );
    refused(
        dir,
        "--usdt",
        &format!("{file}:probed:pain"),
        NO_SUCH,
        &["no marker probed:pain", "probed:plain"],
    );
    let arguments = ["the marker probed:plain has 3 arguments"];
    refused(dir, "--usdt", &format!("{file}:probed:plain x=arg9"), USAGE, &arguments);
    uprobe(&format!("{file}:wrok*"), NO_SUCH, &["no function of", "matches wrok*", "list --symbols"]);
    let many = ["* matches ", "at most 256 events", "as one event: NAME=PATH:PATTERN"];
    uprobe("libc.so.6:*", USAGE, &many);
    let usdt = |marker: &str, code, texts: &[&str]| {
        refused(dir, "--usdt", &format!("{file}:{marker}"), code, texts);
    };
    usdt("probed:x*", NO_SUCH, &["no marker of", "matches probed:x*", "list --usdt"]);
    usdt("other*:plain", NO_SUCH, &["no marker of", "matches other*:plain"]);
    usdt("probed:* x=arg9", USAGE, &["`arg9`", "has 3 arguments"]);
    refused(
        dir,
        "--usdt",
        &format!("one={file}:probed:*"),
        USAGE,
        &["one name cannot be used for 2 markers"],
    );

    tool(dir, "strip", &["-o", "stripped", file]);
    uprobe("./stripped:work", NO_SUCH, &["no function work", "stripped of its symbols"]);
    fs::write(dir.join("script"), "#!/bin/sh\n").unwrap();
    uprobe("./script:main", NO_SUCH, &["not an ELF binary", "/bin/sh"]);
    // The machine of the ELF header: s390.
    let mut bytes = fs::read(file).unwrap();
    bytes[18] = 22;
    fs::write(dir.join("foreign"), bytes).unwrap();
    uprobe("./foreign:work", NO_SUCH, &["is for another processor", "x86-64"]);

    let same = format!("same={file}:work");
    let args = ["record", "-o", "refused.dat", "--uprobe", &same, "--uprobe", &same, "true"];
    run(&mut agent(dir, args)).expect(USAGE).says(&["another event uprobes:same"]);
}

#[test]
fn arguments_cannot_have_the_names_of_other_fields() {
    const USAGE: i32 = 2;
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { file, .. } = build(dir, Link::Pie);
    let (work, marker) = (format!("{}:work", file.display()), format!("{}:probed:guarded", file.display()));
    for name in ["common_type", "common_pid", "__probe_ip", "__probe_func", "__probe_ret_ip", "ctx_uid"] {
        refused(dir, "--uprobe", &format!("{work} {name}=%di"), USAGE, &[&format!("`{name}=%di`")]);
        refused(dir, "--uretprobe", &format!("{work} {name}=$retval"), USAGE, &[name]);
        refused(dir, "--usdt", &format!("{marker} {name}=arg1"), USAGE, &[&format!("`{name}=arg1`")]);
        refused(dir, "--count", &format!("uprobe {work} {name}=%di by {name}"), USAGE, &[name]);
    }
}

/// A program that calls `memcmp` of the C library as often as it is told, when a byte is there to be read.
const COMPARING: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int main(int count, char **words) {
        int (*volatile compare)(const void *, const void *, size_t) = memcmp;
        char one[64] = "one", other[64] = "other";
        puts("ready");
        fflush(stdout);
        getchar();
        int sum = 0;
        for (int left = atoi(words[count - 1]); left > 0; left--) sum += compare(one, other, 40 + left % 3) != 0;
        printf("%d\n", sum);
        fflush(stdout);
        return getchar() == 'x';
    }
"#;

#[test]
fn a_function_that_chooses_is_the_implementation_of_the_process() {
    const NO_SUCH: i32 = 112;
    const CALLS: usize = 321;
    let scratch = Scratch::new();
    let dir = scratch.path();
    fs::write(dir.join("compare.c"), COMPARING).unwrap();
    tool(dir, "cc", &["-O1", "-o", "compare", "compare.c"]);
    let mut waiting = std::process::Command::new(dir.join("compare"))
        .arg(CALLS.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    waiting.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = waiting.id().to_string();
    // The command lets the process go on, and waits until it has called the function.
    let go = format!("echo >&3; read sum <&4; test $sum = {CALLS}");
    let (to, from) = (waiting.stdin.as_ref().unwrap(), waiting.stdout.as_ref().unwrap());
    let paths = [("3>", to.as_raw_fd()), ("4<", from.as_raw_fd())];
    let redirected = paths.map(|(how, fd)| format!("{how}/proc/{}/fd/{fd}", std::process::id())).join(" ");
    let script = format!("exec {redirected}; {go}");
    let probe = "compare=libc.so.6:memcmp n=%dx:u64";
    let args = ["record", "-o", "out.dat", "--uprobe", probe, "-P", &pid, "sh", "-c", &script];
    run(&mut agent(dir, args)).expect(0);
    let texts = stock_texts(dir, "compare");
    let sizes: BTreeSet<&str> = texts.iter().map(|text| arguments_of(text)).collect();
    assert_eq!((texts.len(), sizes), (CALLS, BTreeSet::from(["n=40", "n=41", "n=42"])));

    // A command that starts later shows nothing.
    let args = ["record", "-o", "none.dat", "--uprobe", probe, "-F", "true"];
    run(&mut agent(dir, args)).expect(NO_SUCH).says(&["memcmp", "IFUNC"]);
    let args = ["record", "-o", "none.dat", "--uprobe", "libc.so.6:memcmp+4", "-P", &pid, "true"];
    run(&mut agent(dir, args)).expect(NO_SUCH).says(&["memcmp", "IFUNC"]);
    // Patterns leave it out.
    let ended = record(dir, &["--uprobe", "libc.so.6:mem[cf]*", "-F"], Path::new("true"), &[]);
    ended.says(&["not recorded: ", "memcmp"]);
    assert!(!stock_events(dir).contains("memcmp"));
    let all = ["record", "-o", "none.dat", "--uprobe", "libc.so.6:memcm*", "-F", "true"];
    run(&mut agent(dir, all)).expect(NO_SUCH).says(&["memcmp"]);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

/// A Go program whose functions return in several ways, on several threads: each of 8 goroutines calls `pick`
/// 300 times, and `grow`, whose 201 nested calls make its stack move, 3 times.
const GOPHER: &str = r#"
package main

import "runtime"

//go:noinline
func pick(n int) int {
	switch {
	case n%3 == 0:
		return n * 2
	case n%3 == 1:
		runtime.Gosched()
		return n + 1000
	}
	return -n
}

//go:noinline
func grow(depth int) int {
	var room [256]byte
	room[depth%256] = byte(depth)
	if depth == 0 {
		return int(room[1])
	}
	return grow(depth-1) + 1
}

func main() {
	sums := make(chan int)
	for g := 0; g < 8; g++ {
		go func() {
			sum := 0
			for n := 0; n < 300; n++ {
				sum += pick(n)
				if n%100 == 0 {
					sum += grow(200)
				}
			}
			sums <- sum
		}()
	}
	total := 0
	for g := 0; g < 8; g++ {
		total += <-sums
	}
	println(total)
}
"#;

/// Builds a program of Go in `dir`.
fn build_go(dir: &Path) -> std::path::PathBuf {
    fs::write(dir.join("gopher.go"), GOPHER).unwrap();
    let mut go = program(dir, "go", ["build", "-o", "gopher", "gopher.go"]);
    go.env("GOCACHE", dir.join("cache")).env("GO111MODULE", "off").env("GOFLAGS", "");
    run(&mut go).expect(0);
    dir.join("gopher")
}

#[test]
fn returns_of_go_are_probed_at_their_instructions() {
    const UNSUPPORTED: i32 = 111;
    const GOROUTINES: usize = 8;
    let scratch = Scratch::new();
    let dir = scratch.path();
    let gopher = build_go(dir);
    let file = gopher.to_str().unwrap();
    let probes = ["picked", "called", "grown"].map(|name| {
        let function = if name == "grown" { "grow" } else { "pick" };
        let argument = if name == "called" { "n=%ax:s64" } else { "result=$retval:s64" };
        format!("{name}={file}:main.{function} {argument}")
    });
    let [picked, called, grown] = &probes;
    let sum = run(&mut program::<&str>(dir, file, [])).expect(0).err;
    let args = ["--uretprobe", picked, "--uprobe", called, "--uretprobe", grown];
    assert!(record(dir, &args, &gopher, &[]).err.contains(sum.trim()), "the program does what it did");
    let values = |event: &str, name: &str| {
        let mut counted = BTreeMap::new();
        for text in stock_texts(dir, event) {
            let value: i64 = text.split_once(&format!("{name}=")).unwrap().1.parse().unwrap();
            *counted.entry(value).or_insert(0) += 1;
        }
        counted
    };
    let result = |n: i64| match n % 3 {
        0 => n * 2,
        1 => n + 1000,
        _ => -n,
    };
    // A call whose stack has to grow first, or that is preempted, begins twice.
    let called = values("called", "n");
    assert!((0..300).all(|n| called.get(&n).is_some_and(|times| *times >= GOROUTINES)), "{called:?}");
    let mut results = BTreeMap::new();
    (0..300).for_each(|n| *results.entry(result(n)).or_insert(0) += GOROUTINES);
    assert_eq!(values("picked", "result"), results);
    assert_eq!(values("grown", "result"), (0..=200).map(|depth| (depth, 3 * GOROUTINES)).collect());
    // The function is the one that returns, and what it returns to is in its caller.
    let functions = nm(dir, &[file]);
    let in_function = |address: u64, name: &str| {
        let next = functions.values().filter(|other| **other > functions[name]).min().unwrap();
        (functions[name]..*next).contains(&address)
    };
    for text in stock_texts(dir, "picked") {
        let addresses = text.trim_start_matches('(').split_once(')').unwrap().0;
        let (function, caller) = addresses.split_once(" <- ").unwrap();
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(number(function), functions["main.pick"], "{text}");
        assert!(in_function(number(caller), "main.main.func1"), "{text}");
    }

    // A pattern, whose functions have an event each, and a count.
    record(dir, &["--uretprobe", &format!("{file}:main.[pg]*")], &gopher, &[]);
    let events = ["main_pick__return", "main_grow__return"].map(|event| stock_texts(dir, event).len());
    assert_eq!(events, [2400, 201 * 3 * GOROUTINES]);
    let counted = format!("uretprobe {picked}");
    assert_eq!(count(dir, &["--count", &counted, file])["entries"][0]["count"], 2400);

    // What is not known to return anywhere is refused.
    refused(dir, "--uretprobe", &format!("{file}:runtime.goexit.abi0"), UNSUPPORTED, &["--force"]);
    tool(dir, "strip", &["-o", "stripped", file]);
    let offset = format!("{}:{:#x}", dir.join("stripped").display(), functions["main.pick"] - 0x40_0000);
    refused(dir, "--uretprobe", &offset, UNSUPPORTED, &["ends", "--force"]);
}

#[test]
fn returns_of_old_go_are_without_their_results() {
    const UNSUPPORTED: i32 = 111;
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { file, .. } = build(dir, Link::Pie);
    // What tells a Go program, without the version that Go 1.18 and later have there; this one is of C.
    fs::write(dir.join("buildinfo"), b"\xff Go buildinf:\x08\0").unwrap();
    let (from, section) = (file.to_str().unwrap(), ".go.buildinfo=buildinfo");
    tool(dir, "objcopy", &["--add-section", section, from, "gopher"]);
    let gopher = dir.join("gopher");
    let probe = format!("back={}:work", gopher.display());
    for asks in ["n=$retval", "text=+0($retval):string"] {
        refused(dir, "--uretprobe", &format!("{probe} {asks}"), UNSUPPORTED, &["$retval"]);
    }
    refused(dir, "--count", &format!("uretprobe {probe} n=$retval by n"), UNSUPPORTED, &["$retval"]);
    for force in [&[][..], &["--force"]] {
        record(dir, &[&["--uretprobe", &probe], force].concat(), &gopher, &["3"]);
        assert_eq!(stock_texts(dir, "back").len(), 5);
    }
    record(dir, &["--uretprobe", &format!("{probe} n=$retval"), "--force"], &gopher, &["3"]);
    assert_eq!(stock_texts(dir, "back").len(), 5);
}

/// `main DEPTH ROUNDS`: calls that are nested so deeply and return; before each round, 40 that are left by a
/// jump.
const DEEP: &str = r"
    #include <setjmp.h>
    #include <stdlib.h>
    static jmp_buf out;
    __attribute__((noinline)) int deep(int n) { return n > 1 ? deep(n - 1) + 1 : 1; }
    __attribute__((noinline)) void leave(int n) { if (n > 1) leave(n - 1); else longjmp(out, 1); }
    int main(int count, char **words) {
        int depth = atoi(words[count - 2]), sum = 0;
        for (int left = atoi(words[count - 1]); left > 0; left--) {
            if (!setjmp(out)) leave(40);
            sum += deep(depth);
        }
        return sum != depth * atoi(words[count - 1]);
    }
";

#[test]
fn returns_that_the_kernel_does_not_report_are_counted() {
    // `MAX_URETPROBE_DEPTH` of Linux.
    const REPORTED: u64 = 64;
    const ROUNDS: u64 = 5;
    let scratch = Scratch::new();
    let dir = scratch.path();
    fs::write(dir.join("deep.c"), DEEP).unwrap();
    tool(dir, "cc", &["-O0", "-o", "deep", "deep.c"]);
    let (file, program) = (dir.join("deep"), dir.join("deep"));
    let file = file.display();
    let (entry, back) = (format!("in={file}:deep"), format!("back={file}:deep n=$retval:u32"));
    let left = format!("left={file}:leave");
    let rounds = ROUNDS.to_string();
    for depth in [1, REPORTED, REPORTED + 1, 100] {
        let missing = depth.saturating_sub(REPORTED);
        for beside in [&[][..], &["--uprobe", &entry], &["--uretprobe", &left]] {
            let context = format!("{depth} {beside:?}");
            let options = [&["--uretprobe", &back], beside].concat();
            record(dir, &options, &program, &[&depth.to_string(), &rounds]);
            let counted = |event: &str| stock_texts(dir, event).len() as u64;
            assert_eq!(counted("back"), (depth - missing) * ROUNDS, "{context}");
            if beside.contains(&entry.as_str()) {
                assert_eq!(counted("in"), depth * ROUNDS, "{context}");
            }
            let ledger = ledger_in_info(&dir.join("out.dat"));
            let events = ledger["events"].as_array().unwrap();
            let lost = |name: &str| {
                let row = events.iter().find(|row| row["event"] == name);
                row.map_or(0, |row| row["lost"]["nested"].as_u64().unwrap())
            };
            assert_eq!(lost("uprobes:back"), missing * ROUNDS, "{context}: {ledger}");
            // Calls that are left by a jump return nowhere.
            assert_eq!(lost("uprobes:left"), 0, "{context}: {ledger}");
        }
    }
    // Of what is left out anyway, nothing is missing.
    record(dir, &["--uretprobe", &back, "--sample", "1/2"], &program, &["66", "10"]);
    let ledger = Ledger::of(&dir.join("out.dat"));
    let sampled = stock_texts(dir, "back").len() as u64 + ledger.lost_of_events();
    assert_eq!(sampled + ledger.events("sampled_out"), 660);
    assert!(sampled < 400, "each CPU begins with one that is in its sample: {sampled}");
    let max = ["record", "-o", "out.dat", "--max-loss", "0", "--uretprobe", &back, "./deep", "65", "1"];
    run(&mut agent(dir, max)).expect(115).says(&["nested"]);
    // A map counts what it was not told of.
    let counted = format!("uretprobe {back}");
    let map = count(dir, &["--count", &counted, "./deep", "100", "3"]);
    assert_eq!((&map["entries"][0]["count"], &map["skipped"]), (&192.into(), &108.into()), "{map}");
}

#[test]
fn a_path_may_have_blanks() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let Probed { program, .. } = build(dir, Link::Pie);
    let odd = dir.join("a b=(c \"d\"");
    fs::copy(&program, &odd).unwrap();
    let quoted = format!("\"{}\"", odd.display().to_string().replace('"', "\\\""));
    let (work, marker) = (format!("work={quoted}:work n=%di:s64"), format!("{quoted}:probed:guarded"));
    record(dir, &["--uprobe", &work, "--usdt", &marker], &odd, &["3"]);
    assert_eq!((stock_texts(dir, "work").len(), stock_texts(dir, "guarded").len()), (5, 3));
}

#[test]
fn lines_for_tracefs_are_translated() {
    const USAGE: i32 = 2;
    let scratch = Scratch::new();
    let ours = "--uprobe 'mine/name=/bin/sh:0x10 n=%di'";
    refused(scratch.path(), "--uprobe", "p:mine/name /bin/sh:0x10 n=%di", USAGE, &[ours]);
}

#[test]
fn a_kernel_without_kprobes_says_so() {
    let scratch = Scratch::new();
    if Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        refused(scratch.path(), "--kprobe", "vfs_raed", 112, &["no function vfs_raed", "vfs_read"]);
    } else {
        refused(scratch.path(), "--kprobe", "vfs_read", 111, &["this kernel has no kprobes", "uprobes"]);
    }
}

#[test]
fn functions_of_the_kernel_are_listed() {
    let scratch = Scratch::new();
    let listed = run(&mut agent(scratch.path(), ["list", "--functions", "vfs_*"])).expect(0).out;
    let names: Vec<&str> = listed.lines().collect();
    assert!(names.contains(&"vfs_read") && names.contains(&"vfs_write"), "{listed}");
    assert!(names.iter().all(|name| name.starts_with("vfs_")), "{listed}");
    let json = run(&mut agent(scratch.path(), ["list", "--functions", "vfs_read", "--json"])).expect(0).out;
    assert_eq!(json.trim(), "[\"vfs_read\"]");
    run(&mut agent(scratch.path(), ["list", "--functions", "no_such_*"]))
        .expect(112)
        .says(&["no traceable function", "no_such_*"]);
}
