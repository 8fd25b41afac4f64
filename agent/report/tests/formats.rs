//! Records that are made for every format at hand: those of the running kernel, of the recordings in
//! `tests/traces`, and a few of older kernels. The lines of the report are those that stock trace-cmd prints
//! for them.
//!
//! Needs root, a mounted tracefs and trace-cmd 3.1 with libtraceevent 1.7.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

mod made_records;
#[allow(unreachable_pub, reason = "a module of another crate's tests")]
#[path = "../../../tests/src/stock_lines.rs"]
mod stock_lines;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use made_records::{Systems, file_of};
use report::{Report, Style, TraceFile};
use stock_lines::comparable;
use tracedat::reader::Reader;
use traces::{RECORDINGS, recording};

/// The formats of the running kernel, by system.
fn of_this_kernel() -> Systems {
    let mut systems = Systems::new();
    let list = |path: &Path| {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    for system in list(Path::new("/sys/kernel/tracing/events")) {
        let name = system.file_name().unwrap().to_str().unwrap().to_owned();
        for event in list(&system) {
            // A probe of someone else may be gone by now.
            if let Ok(text) = fs::read_to_string(event.join("format")) {
                systems.entry(name.clone()).or_default().push(text);
            }
        }
    }
    systems
}

/// The formats of a file.
fn of_file(bytes: Vec<u8>) -> Systems {
    let reader = Reader::open(bytes).unwrap();
    let mut systems = Systems::new();
    for system in &reader.metadata().systems {
        systems.entry(system.name.clone()).or_default().extend(system.formats.iter().cloned());
    }
    systems
}

/// Formats of kernels that there are no recordings of: smbus of 5.15 to 6.1, disks, and those before 4.6.
fn of_older_kernels() -> Systems {
    let mut systems = Systems::new();
    for part in include_str!("old_formats.txt").split("system: ").skip(1) {
        let (system, text) = part.split_once('\n').unwrap();
        systems.entry(system.to_owned()).or_default().push(text.to_owned());
    }
    systems
}

/// Lines of events, without the heading. `None` if it crashed: it reads as many bytes as a record says.
fn stock(path: &Path, options: &[&str]) -> Option<Vec<String>> {
    let output = Command::new("trace-cmd").arg("report").arg("-i").arg(path).args(options).output().unwrap();
    output.status.code()?;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().skip_while(|line| line.starts_with("cpus=")).map(str::to_owned).collect())
}

/// Both halves of these formats; `None` of a single one.
fn halves(systems: &Systems) -> Option<[Systems; 2]> {
    let all: Vec<_> =
        systems.iter().flat_map(|(name, texts)| texts.iter().map(move |text| (name, text))).collect();
    let (first, second) = all.split_at_checked(all.len() / 2).filter(|(first, _)| !first.is_empty())?;
    Some([first, second].map(|half| {
        let mut systems = Systems::new();
        for (name, text) in half {
            systems.entry((*name).clone()).or_default().push((*text).clone());
        }
        systems
    }))
}

fn ours(path: &Path, style: Style) -> Vec<String> {
    let files = [TraceFile::open("made", fs::read(path).unwrap()).unwrap()];
    let mut out = Vec::new();
    Report::new(&files).style(style).run(&mut out, |_| {}).unwrap();
    String::from_utf8_lossy(&out).lines().map(str::to_owned).collect()
}

/// The lines of each event: some have several.
fn by_event(lines: Vec<String>) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut event = String::new();
    for line in lines {
        // `task-pid [cpu] time: name: text`
        let rest = line.split_once("] ").and_then(|(_, rest)| rest.split_once(": "));
        if let Some((time, rest)) = rest
            && time.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            rest.trim_start().split(':').next().unwrap().clone_into(&mut event);
        }
        found.entry(event.clone()).or_default().push(line);
    }
    found
}

/// Where lines differ, whatever the event: docs/report.md describes each under these words.
struct Kind {
    name: &'static str,
    /// Which events have it.
    applies: fn(&Event) -> bool,
    /// A line without it.
    without: fn(&str) -> String,
}

/// What is known of the events of a name.
#[derive(Default)]
struct Event {
    print_fmt: String,
    is_unresolved: bool,
    /// Stock trace-cmd has no text for it.
    is_unparsed: bool,
}

/// A line up to its event's name.
fn head(line: &str) -> String {
    let time = line.split_once("] ").and_then(|(_, rest)| rest.split_once(": "));
    let name = time.and_then(|(_, rest)| rest.split_once(':')).map_or(line, |(_, text)| text);
    line[..line.len() - name.len()].to_owned()
}

/// `0x0` and `0x00` as `0` and `0000`.
fn zeros(line: &str) -> String {
    let mut parts = line.split("0x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        if part[..digits].bytes().any(|byte| byte != b'0') {
            text += "0x";
        } else if digits > 1 {
            text += "00";
        }
        text += part;
    }
    text
}

/// Numbers of 32 bits that were extended with their sign.
fn low_halves(line: &str) -> String {
    line.replace("0xffffffff", "0x")
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

const KINDS: [Kind; 14] = [
    Kind {
        name: "`BLOCK_IOPOLL`",
        applies: |event| event.print_fmt.contains("BLOCK_IOPOLL_SOFTIRQ"),
        without: |line| line.replace("[action=BLOCK_IOPOLL]", "[action=0x5]"),
    },
    Kind { name: "`%#x` of 0", applies: |_| true, without: zeros },
    Kind {
        name: "`__print_symbolic` and `__print_flags` of negative numbers",
        applies: |event| event.print_fmt.contains("__print_"),
        without: low_halves,
    },
    Kind {
        name: "`%s` of a pointer",
        applies: |event| event.print_fmt.contains("%s"),
        without: |line| line.replace("(null)", "0").replace("0x", ""),
    },
    Kind {
        name: "`%-8s`",
        applies: |event| {
            event
                .print_fmt
                .split("%-")
                .skip(1)
                .any(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('s'))
        },
        without: squeezed,
    },
    Kind { name: "`%c`", applies: |event| event.print_fmt.contains("%c"), without: head },
    Kind { name: "`%pIS`", applies: |event| event.print_fmt.contains("%pIS"), without: head },
    Kind { name: "`%*pbl`", applies: |event| event.print_fmt.contains("%*pbl"), without: head },
    Kind {
        name: "`__print_array`",
        applies: |event| event.print_fmt.contains("__print_array"),
        without: head,
    },
    Kind {
        name: "`__get_cpumask`",
        applies: |event| event.print_fmt.contains("__get_cpumask"),
        without: head,
    },
    Kind {
        name: "`jiffies_to_msecs`",
        applies: |event| event.print_fmt.contains("jiffies_to_msecs"),
        without: head,
    },
    Kind { name: "names without numbers", applies: |event| event.is_unresolved, without: head },
    Kind { name: "`1ULL <<`", applies: |event| event.print_fmt.contains("ULL <<"), without: head },
    Kind { name: "formats that stock cannot parse", applies: |event| event.is_unparsed, without: head },
];

/// Events whose texts calculate what libtraceevent calculates otherwise, and the text of `bprint`.
const OTHERS: [&str; 14] = [
    "alarmtimer_start",
    "bprint",
    "devlink_hwmsg",
    "ext4_mballoc_alloc",
    "kvm_emulate_insn",
    "kvm_nested_vmenter",
    "kvm_pic_set_irq",
    "kvm_userspace_exit",
    "raid56_read",
    "raid56_write",
    "sock_recv_length",
    "sock_send_length",
    "sys_enter_io_submit",
    "xfs_force_shutdown",
];

/// What was compared, and what differed.
#[derive(Default)]
struct Found {
    lines: usize,
    crashes: usize,
    kinds: BTreeSet<&'static str>,
    wrong: String,
}

impl Found {
    /// Compares two lines of an event.
    fn line(&mut self, event: &Event, name: &str, ours: &str, stock: &str) {
        self.lines += 1;
        let (mut ours_left, mut stock_left) = (comparable(ours), comparable(stock));
        if ours_left == stock_left || OTHERS.contains(&name) {
            return;
        }
        for kind in KINDS.iter().filter(|kind| (kind.applies)(event)) {
            (ours_left, stock_left) = ((kind.without)(&ours_left), (kind.without)(&stock_left));
            if ours_left == stock_left {
                self.kinds.insert(kind.name);
                return;
            }
        }
        self.wrong += &format!(" ours {ours}\nstock {stock}\n");
    }
}

fn compare(systems: &Systems, dir: &Path, found: &mut Found) {
    let path = dir.join("made.dat");
    fs::write(&path, file_of(systems)).unwrap();
    let file = TraceFile::open("made", fs::read(&path).unwrap()).unwrap();
    let mut events: BTreeMap<String, Event> = BTreeMap::new();
    for printer in file.events().iter() {
        let event = events.entry(printer.name().to_owned()).or_default();
        event.print_fmt += &printer.format().print_fmt;
        event.is_unresolved |= !printer.unresolved().is_empty();
    }
    for (options, style) in [
        (&["-t", "-N"][..], Style { full_time: true, plain: true, ..Style::default() }),
        (&["-t"], Style { full_time: true, old_states: true, ..Style::default() }),
        (&["-t", "-R"], Style { full_time: true, raw: true, ..Style::default() }),
    ] {
        let Some(stock) = stock(&path, options) else {
            match halves(systems) {
                Some(halves) => halves.iter().for_each(|half| compare(half, dir, found)),
                None => found.crashes += 1,
            }
            return;
        };
        let (stock, ours) = (by_event(stock), by_event(ours(&path, style)));
        assert_eq!(ours.keys().collect::<Vec<_>>(), stock.keys().collect::<Vec<_>>());
        for (name, stock) in &stock {
            if let Some(event) = events.get_mut(name) {
                let fails = |line: &String| {
                    ["[FAILED TO PARSE]", "<CANT FIND FIELD", "[ARG TYPE NOT FIELD"]
                        .iter()
                        .any(|mark| line.contains(mark))
                };
                event.is_unparsed |= stock.iter().any(fails);
            }
            let ours = &ours[name];
            assert_eq!(ours.len(), stock.len(), "{options:?} {ours:?} {stock:?}");
            for (ours, stock) in ours.iter().zip(stock) {
                found.line(&events[name], name, ours, stock);
            }
        }
    }
}

#[test]
fn lines_of_made_records_are_those_of_trace_cmd() {
    // Those of the recordings first: what is the same in the running kernel is not compared again.
    let mut sources: Vec<_> = RECORDINGS.map(|name| of_file(recording(name))).into();
    sources.push(of_older_kernels());
    sources.push(of_this_kernel());
    let dir = tempfile::tempdir().unwrap();
    let mut compared = BTreeSet::new();
    let mut found = Found::default();
    for mut systems in sources {
        for formats in systems.values_mut() {
            formats.retain(|text| compared.insert(text.clone()));
        }
        if systems.values().any(|formats| !formats.is_empty()) {
            compare(&systems, dir.path(), &mut found);
        }
    }
    println!("{} formats, {} lines, {} crashes of trace-cmd", compared.len(), found.lines, found.crashes);
    assert!(compared.len() > 1000 && found.lines > 10_000 && found.crashes < 20);
    assert!(found.wrong.is_empty(), "{}", found.wrong);
    // Nothing is on the list for a difference that there is none of, and the documentation has all of it.
    // Of one, only new kernels have events.
    found.kinds.insert("`%*pbl`");
    let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(found.kinds, names);
    let docs =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.md")).unwrap();
    let missing: Vec<_> = names.iter().chain(&OTHERS).filter(|name| !docs.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn json_has_the_texts_of_messages_and_fields_of_one_name() {
    let mut systems = of_older_kernels();
    let ftrace = of_file(recording("k6.12-all-mono")).remove("ftrace").unwrap();
    let has_text = |text: &String| text.starts_with("name: bp");
    systems.get_mut("ftrace").unwrap().extend(ftrace.into_iter().filter(has_text));
    let files = [TraceFile::open("made", file_of(&systems)).unwrap()];
    let mut out = Vec::new();
    Report::new(&files).json(true).run(&mut out, |_| {}).unwrap();
    let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let objects: Vec<serde_json::Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let fields = |event: &str| {
        let found: Vec<_> = objects.iter().filter(|object| object["event"] == event).collect();
        assert_eq!(found.len(), made_records::RECORDS, "{event}");
        found[1]["fields"].clone()
    };
    assert_eq!(fields("print")["buf"], "abc");
    // The file has no format strings.
    for event in ["bprint", "bputs"] {
        assert_eq!(fields(event).get("buf"), Some(&serde_json::Value::Null), "{event}");
    }
    let regmap = fields("regcache_sync");
    assert_eq!(regmap["type"], "abc");
    assert!(regmap["type_2"].is_number() && fields("sys_enter_io_submit")["nr_2"].is_number());
    assert_eq!(fields("branch")["func"], "abc");
}
