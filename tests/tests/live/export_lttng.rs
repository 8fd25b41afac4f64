//! Every one of LTTng's analyses on exports with LTTng's names, and their figures against the events that
//! they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;

use ftrace_event::{Cmdlines, Endian};
use integration_tests::analyses::{analyse, rows, tables};
use integration_tests::ctf::{self, Event, Value};
use integration_tests::harness::{agent, run};
use serde_json::Value as Json;
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

fn export(file: &Path, to: &Path) {
    run(agent("/".as_ref(), ["export", "--format", "lttng"]).arg(file).arg(to)).expect(0);
}

/// The events of an export in the order of time.
fn events(trace: &Path) -> Vec<Event> {
    let mut events = ctf::read(trace).events;
    events.sort_by_key(|event| event.time);
    events
}

fn field<'e>(event: &'e Event, name: &str) -> &'e Value {
    &event.fields.iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("{name}: {event:?}")).1
}

fn number(event: &Event, name: &str) -> i128 {
    let Value::Number(number, _) = field(event, name) else { panic!("{name}: {event:?}") };
    *number
}

fn text(event: &Event, name: &str) -> String {
    let Value::Text(text) = field(event, name) else { panic!("{name}: {event:?}") };
    String::from_utf8(text.clone()).unwrap()
}

/// A system call as the analyses see it: of the thread that the last switch on the CPU was to.
#[derive(Debug)]
struct Call<'e> {
    tid: i128,
    name: &'e str,
    entry: &'e Event,
    exit: &'e Event,
}

/// What the analyses follow: complete system calls, and pages that were allocated, by thread.
fn follow(events: &[Event]) -> (Vec<Call<'_>>, BTreeMap<i128, u64>) {
    let (mut calls, mut pages) = (Vec::new(), BTreeMap::new());
    let mut running: BTreeMap<u32, i128> = BTreeMap::new();
    let mut entered: BTreeMap<i128, (&str, &Event)> = BTreeMap::new();
    for event in events {
        if event.name == "sched_switch" {
            running.insert(event.cpu, number(event, "next_tid"));
        }
        let Some(&tid) = running.get(&event.cpu) else { continue };
        if let Some(name) = event.name.strip_prefix("syscall_entry_") {
            entered.insert(tid, (name, event));
        } else if event.name.starts_with("syscall_exit_") {
            if let Some((name, entry)) = entered.remove(&tid) {
                calls.push(Call { tid, name, entry, exit: event });
            }
        } else if event.name == "kmem_mm_page_alloc" {
            *pages.entry(tid).or_default() += 1;
        }
    }
    (calls, pages)
}

/// The processes that were born meanwhile and stayed of one thread: their CPU is known from their first
/// moment on, and their files too. Of threads with common files the analyses lose one that is opened in the
/// place of another before that one's `close` is left.
fn born(events: &[Event]) -> BTreeSet<i128> {
    let of = |event: &Event| (number(event, "child_pid"), number(event, "child_tid"));
    let forks: Vec<_> = events.iter().filter(|event| event.name == "sched_process_fork").map(of).collect();
    let shared: BTreeSet<i128> = forks.iter().filter(|(pid, tid)| pid != tid).map(|(pid, _)| *pid).collect();
    forks.iter().filter(|(pid, tid)| pid == tid && !shared.contains(pid)).map(|(_, tid)| *tid).collect()
}

fn int(json: &Json) -> i128 {
    json.as_i64().map(i128::from).or(json.as_u64().map(i128::from)).unwrap_or_else(|| panic!("{json}"))
}

#[test]
fn every_analysis_runs_on_a_recording_with_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out, copy) = (dir.path().join("trace.dat"), dir.path().join("out"), dir.path().join("copy"));
    let script =
        format!("ls / >/dev/null; dd if=/etc/services of={} bs=1k conv=fsync 2>/dev/null", copy.display());
    let mut record = agent("/".as_ref(), ["record", "-o"]);
    record.arg(&file);
    for events in ["sched", "task", "irq", "syscalls", "block", "kmem:mm_page_*", "net", "--self"] {
        if events != "--self" {
            record.arg("-e");
        }
        record.arg(events);
    }
    run(record.args(["sh", "-c", &script])).expect(0);
    export(&file, &out);

    let ran = analyse(&out, &[], &[]);
    assert!(ran.len() >= 38, "{:?}", ran.keys());
    for (name, ran) in &ran {
        assert!(ran.code == 0 && !ran.out.trim().is_empty(), "{name}: {ran:?}");
        for text in ["Traceback", "Error:"] {
            assert!(!ran.out.contains(text) && !ran.err.contains(text), "{name}: {ran:?}");
        }
    }

    let events = events(&out);
    let (calls, pages) = follow(&events);
    let born = born(&events);
    let allocated = &tables(&out, "lttng-memtop-mi", &["--limit", "100000"])[0];
    let told: BTreeMap<i128, u64> = rows(allocated)
        .iter()
        .map(|row| (int(&row[0]["tid"]), row[1]["value"].as_u64().unwrap()))
        .filter(|(_, pages)| *pages > 0)
        .collect();
    assert_eq!(told, pages, "pages by thread");

    // The log has each call: when, by whom, and which file.
    let offset = ctf::read(&out).clock_offset;
    let logged = ["openat", "read", "write", "fsync", "close"];
    let log = &tables(&out, "lttng-iolog-mi", &[])[0];
    let mut told = BTreeSet::new();
    for row in rows(log) {
        let name = row[3]["name"].as_str().unwrap();
        let tid = int(&row[5]["tid"]);
        if born.contains(&tid) && logged.contains(&name) {
            let time = |edge: &str| row[0][edge]["value"].as_u64().unwrap() - offset;
            let path = row[6]["path"].as_str().filter(|_| name == "openat" && !row[7].is_null());
            told.insert((time("begin"), time("end"), tid, name.to_owned(), path.map(str::to_owned)));
        }
    }
    let mut expected = BTreeSet::new();
    for call in calls.iter().filter(|call| born.contains(&call.tid) && logged.contains(&call.name)) {
        // What could be opened has a name; an empty one was not in memory when the call began.
        let name = || Some(text(call.entry, "filename")).filter(|name| !name.is_empty());
        let opened = (call.name == "openat" && number(call.exit, "ret") >= 0)
            .then(|| name().unwrap_or_else(|| "unknown".to_owned()));
        expected.insert((call.entry.time, call.exit.time, call.tid, call.name.to_owned(), opened));
    }
    let (more, fewer): (Vec<_>, Vec<_>) =
        (told.difference(&expected).collect(), expected.difference(&told).collect());
    assert!(
        more.is_empty() && fewer.is_empty(),
        "told, not recorded: {more:?}\nrecorded, not told: {fewer:?}"
    );
    assert!(expected.iter().any(|call| call.3 == "fsync") && expected.len() > 100, "{}", expected.len());

    // Bytes that were read and written, by thread: the first table is of what was read, the second of what
    // was written.
    let usage = tables(&out, "lttng-iousagetop-mi", &["--limit", "100000"]);
    for (table, names) in [
        (&usage[0], ["read", "pread64", "readv", "preadv", "recvfrom", "recvmsg"]),
        (&usage[1], ["write", "pwrite64", "writev", "pwritev", "sendto", "sendmsg"]),
    ] {
        let mut bytes: BTreeMap<i128, i128> = BTreeMap::new();
        for call in calls.iter().filter(|call| names.contains(&call.name)) {
            *bytes.entry(call.tid).or_default() += number(call.exit, "ret").max(0);
        }
        let told: BTreeMap<i128, i128> = rows(table)
            .iter()
            .map(|row| (int(&row[0]["tid"]), int(&row[1]["value"])))
            .filter(|(tid, _)| born.contains(tid))
            .collect();
        for tid in &born {
            assert_eq!(told.get(tid).unwrap_or(&0), bytes.get(tid).unwrap_or(&0), "{tid}: {table}");
        }
        let most = told.values().max().unwrap();
        assert!(*most >= i128::from(fs::metadata(&copy).unwrap().len()), "{table}");
    }
}

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// A format of these fields: declaration, offset and size.
fn format(name: &str, id: u16, fields: &[(&str, usize, usize)]) -> String {
    use std::fmt::Write as _;
    let mut text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n");
    for (declaration, offset, size) in fields {
        let signed = u8::from(declaration.starts_with("int") || declaration.starts_with("long"));
        let _ = writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};");
    }
    text + "\nprint fmt: \"\"\n"
}

/// The formats of an x86-64 kernel: `sched_switch`, and system calls as Linux 6.19 has them, with copies of
/// texts behind the arguments.
fn formats() -> (String, Vec<String>) {
    let number = ("int __syscall_nr", 8, 4);
    let switch = [
        ("char prev_comm[16]", 8, 16),
        ("int prev_pid", 24, 4),
        ("int prev_prio", 28, 4),
        ("long prev_state", 32, 8),
        ("char next_comm[16]", 40, 16),
        ("int next_pid", 56, 4),
        ("int next_prio", 60, 4),
    ];
    let openat = [
        number,
        ("int dfd", 16, 8),
        ("const char * filename", 24, 8),
        ("int flags", 32, 8),
        ("umode_t mode", 40, 8),
        ("__data_loc char[] __filename_val", 48, 4),
    ];
    // Of no call that lttng-modules 2.13 knows.
    let renameat2 = [
        number,
        ("int olddfd", 16, 8),
        ("const char * oldname", 24, 8),
        ("int newdfd", 32, 8),
        ("const char * newname", 40, 8),
        ("unsigned int flags", 48, 8),
        ("__data_loc char[] __oldname_val", 56, 4),
        ("__data_loc char[] __newname_val", 60, 4),
    ];
    let read = [number, ("unsigned int fd", 16, 8), ("char * buf", 24, 8), ("size_t count", 32, 8)];
    // As older kernels have it.
    let unlink = [number, ("const char * pathname", 16, 8)];
    let exit = [number, ("long ret", 16, 8)];
    let calls = vec![
        format("sys_enter_openat", 11, &openat),
        format("sys_exit_openat", 12, &exit),
        format("sys_enter_read", 13, &read),
        format("sys_exit_read", 14, &exit),
        format("sys_enter_renameat2", 15, &renameat2),
        format("sys_exit_renameat2", 16, &exit),
        format("sys_enter_unlink", 17, &unlink),
        format("sys_exit_unlink", 18, &exit),
    ];
    (format("sched_switch", 10, &switch), calls)
}

/// A text that was not in memory when the recorder looked.
const NO_COPY: &str = "\u{0}";

/// A record of a system call's entry or exit, its copies of texts at the end; [`NO_COPY`] has no bytes.
fn call(id: u16, longs: &[u64], texts: &[&str]) -> Vec<u8> {
    let bytes = |text: &str| if text == NO_COPY { Vec::new() } else { [text.as_bytes(), b"\0"].concat() };
    let texts: Vec<Vec<u8>> = texts.iter().map(|text| bytes(text)).collect();
    let mut record = id.to_le_bytes().to_vec();
    record.extend([0, 0, 7, 0, 0, 0]);
    record.extend([0; 8]);
    record.extend(longs.iter().flat_map(|long| long.to_le_bytes()));
    let mut at = record.len() + texts.len() * 4;
    for text in &texts {
        record.extend((at as u32 | (text.len() as u32) << 16).to_le_bytes());
        at += text.len();
    }
    record.extend(texts.concat());
    record
}

fn switch(prev: u32, next: u32) -> Vec<u8> {
    let mut record = vec![10, 0, 0, 0];
    record.extend(prev.to_le_bytes());
    for (tid, rest) in [(prev, 8), (next, 0)] {
        let mut comm = format!("task-{tid}").into_bytes();
        comm.resize(16, 0);
        record.extend(comm);
        record.extend(tid.to_le_bytes());
        record.extend(120_u32.to_le_bytes());
        record.extend(vec![0; rest]);
    }
    record
}

#[test]
fn recorded_texts_are_the_names_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, out) = (dir.path().join("made.dat"), dir.path().join("out"));
    let endian = Endian::Little;
    let setup = Setup { endian, page_size: 4096, compression: Compression::None };
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    let mut writer = Writer::create(file, setup).unwrap();
    let (sched, syscalls) = formats();
    let syscalls: Vec<&str> = syscalls.iter().map(String::as_str).collect();
    let systems = [
        EventSystem { name: "sched", formats: &[&sched] },
        EventSystem { name: "syscalls", formats: &syscalls },
    ];
    writer.section(Section::header_info(endian, &layout::header_page_text(4096), "x").unwrap()).unwrap();
    writer.section(Section::ftrace_events(endian, &[]).unwrap()).unwrap();
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.section(Section::kallsyms(endian, b"").unwrap()).unwrap();
    writer.section(Section::printk(endian, b"").unwrap()).unwrap();
    writer.section(Section::cmdlines(endian, &Cmdlines::new())).unwrap();
    let here = -100_i64 as u64;
    let records = [
        switch(0, 7),
        call(11, &[here, 0x7f00, 0, 0], &["/etc/first"]),
        call(12, &[3], &[]),
        call(13, &[3, 0x7f00, 100], &[]),
        call(14, &[90], &[]),
        call(11, &[here, 0x7f00, 0, 0], &["second"]),
        call(12, &[4], &[]),
        call(13, &[4, 0x7f00, 100], &[]),
        call(14, &[5], &[]),
        call(15, &[here, 1, here, 2, 0], &["old", "new"]),
        call(16, &[0], &[]),
        call(17, &[0x7f00], &[]),
        call(18, &[0], &[]),
        call(17, &[0], &[]),
        call(18, &[-14_i64 as u64], &[]),
        call(15, &[here, 1, here, 2, 0], &["", NO_COPY]),
        call(16, &[-2_i64 as u64], &[]),
        switch(7, 0),
    ];
    let mut builder = PageBuilder::new(4096, endian).unwrap();
    for (place, record) in records.iter().enumerate() {
        assert_ne!(builder.push(1_000_000 + place as u64 * 1000, record).unwrap(), Push::Full);
    }
    let mut buffer = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    buffer.write_cpu(0, builder.finish().unwrap()).unwrap();
    buffer.finish().unwrap();
    writer.finish().unwrap();

    let ended = run(agent("/".as_ref(), ["export", "--format", "lttng"]).arg(&path).arg(&out)).expect(0);
    ended.says(&["2  texts that arguments of system calls point to"]);
    let events = events(&out);
    let named = |name: &str| events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
    let names = |event: &Event| event.fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let opened = named("syscall_entry_openat");
    assert_eq!(names(opened[0]), ["dfd", "filename", "flags", "mode"]);
    let opened: Vec<String> = opened.iter().map(|event| text(event, "filename")).collect();
    assert_eq!(opened, ["/etc/first", "second"]);
    let [renamed, without] = named("syscall_entry_renameat2")[..] else { panic!("{events:?}") };
    let texts = (text(without, "oldname"), text(without, "newname"));
    assert_eq!(texts, (String::new(), "unknown".into()), "of no characters, and without a copy");
    assert_eq!(names(renamed), ["olddfd", "oldname", "newdfd", "newname", "flags"]);
    assert_eq!((text(renamed, "oldname"), text(renamed, "newname")), ("old".into(), "new".into()));
    let unlinked: Vec<String> =
        named("syscall_entry_unlink").iter().map(|event| text(event, "pathname")).collect();
    assert_eq!(unlinked, ["unknown", ""], "an address, and none");

    let log: Vec<(String, String, u64)> = rows(&tables(&out, "lttng-iolog-mi", &[])[0])
        .iter()
        .map(|row| {
            let text = |json: &Json| json.as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
            (text(&row[3]["name"]), text(&row[6]["path"]), row[7]["fd"].as_u64().unwrap())
        })
        .collect();
    let expected = [
        ("openat", "/etc/first", 3),
        ("read", "/etc/first", 3),
        ("openat", "second", 4),
        ("read", "second", 4),
    ];
    assert_eq!(log, expected.map(|(call, path, fd)| (call.to_owned(), path.to_owned(), fd)));
    let usage = tables(&out, "lttng-iousagetop-mi", &[]);
    let read =
        usage.iter().find(|table| table["class"]["title"] == "Per-file top I/O operations [read]").unwrap();
    let read: BTreeMap<&str, u64> = rows(read)
        .iter()
        .map(|row| (row[0]["path"].as_str().unwrap(), row[1]["value"].as_u64().unwrap()))
        .collect();
    assert_eq!(read, BTreeMap::from([("/etc/first", 90), ("second", 5)]));
    let latencies = tables(&out, "lttng-iolatencytop-mi", &[]);
    let opens =
        latencies.iter().find(|table| table["class"]["title"] == "Top system call latencies [open]").unwrap();
    let paths: BTreeSet<&str> = rows(opens).iter().map(|row| row[6]["path"].as_str().unwrap()).collect();
    assert_eq!(paths, BTreeSet::from(["/etc/first", "second"]));
}
