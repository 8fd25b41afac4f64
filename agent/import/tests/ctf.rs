//! Traces of other tracers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use import::{Imported, Options, Target, import, open};
use report::TraceFile;

/// A trace with one event of these contexts and fields, whose values are little-endian.
fn trace(dir: &Path, env: &str, event: &str, cpu: u32, values: &[&[u8]]) {
    fs::create_dir_all(dir).unwrap();
    let metadata = format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 32; align = 8; }} := u32;
        typealias integer {{ size = 64; align = 8; }} := u64;
        trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ u32 magic; }}; }};
        env {{ {env} }};
        clock {{ name = mono; freq = 1000000000; }};
        stream {{
            packet.context := struct {{ u32 cpu_id; }};
            event.header := struct {{ integer {{ size = 64; align = 8; map = clock.mono.value; }} timestamp; }};
        }};
        event {{ {event} }};"
    );
    fs::write(dir.join("metadata"), metadata).unwrap();
    let mut bytes = [0xc1fc_1fc1_u32.to_le_bytes(), cpu.to_le_bytes()].concat();
    for (time, values) in (1_u64..).zip(values) {
        bytes.extend(time.to_le_bytes());
        bytes.extend_from_slice(values);
    }
    fs::write(dir.join("stream"), bytes).unwrap();
}

fn imported(dir: &Path) -> (TraceFile<Vec<u8>>, Imported) {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("trace.dat");
    let mut source = open::open(dir, open::Hints::default()).unwrap();
    let target = Target { path: path.clone(), force: false };
    let imported = import(&mut *source, &target, Options::default(), &mut |_| true).unwrap();
    (TraceFile::open("trace.dat", fs::read(path).unwrap()).unwrap(), imported)
}

/// CPU, event and thread of each record, and the names of the event's own fields.
fn records(file: &TraceFile<Vec<u8>>) -> Vec<(u32, String, u64, Vec<String>)> {
    let mut found = Vec::new();
    let mut records = file.reader().records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let printer = file.events().get(record.event_id().unwrap()).unwrap();
        let pid = printer.field(printer.field_index("common_pid").unwrap()).unwrap();
        let fields = printer.format().fields.iter().map(|field| field.name.clone()).collect();
        let name = format!("{}:{}", printer.system(), printer.name());
        found.push((record.cpu, name, pid.number(record.data).unwrap(), fields));
    }
    found
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn threads_are_known_by_the_fields_of_other_tracers() {
    let fields = |text: &str| format!("name = \"sched:e\"; fields := struct {{ {text} }};");
    let context =
        |text: &str| format!("name = e; context := struct {{ {text} }}; fields := struct {{ u32 x; }};");
    let cases: [(String, &[u32], u64, &[&str]); 6] = [
        (fields("u32 perf_tid; u32 perf_pid; u32 x;"), &[7, 8, 9], 7, &["perf_tid", "perf_pid", "x"]),
        (fields("u32 common_pid; u32 pid;"), &[7, 8], 7, &["pid"]),
        (fields("u32 tid; u32 x;"), &[7, 8], 7, &["tid", "x"]),
        (fields("u32 pid; u32 x;"), &[7, 8], 0, &["pid", "x"]),
        (context("u32 vtid; u32 pid;"), &[7, 8, 9], 7, &["x", "ctx_vtid", "ctx_pid"]),
        (context("u32 pid;"), &[7, 8], 7, &["x", "ctx_pid"]),
    ];
    for (event, values, thread, fields) in cases {
        let dir = tempfile::tempdir().unwrap();
        trace(dir.path(), "", &event, 3, &[&words(values)]);
        let (file, _) = imported(dir.path());
        let (cpu, _, pid, names) = records(&file).remove(0);
        assert_eq!(
            (cpu, pid, names),
            (3, thread, fields.iter().map(|&name| name.to_owned()).collect()),
            "{event}"
        );
    }
}

#[test]
fn a_cpu_of_all_ones_is_none() {
    let dir = tempfile::tempdir().unwrap();
    trace(dir.path(), "", "name = e; fields := struct { u32 x; };", u32::MAX, &[&words(&[1]), &words(&[2])]);
    let (file, imported) = imported(dir.path());
    assert_eq!((imported.events, file.reader().cpu_count()), (2, 1));
    let unknown = imported.not_carried.iter().filter(|(what, count)| what.starts_with("CPUs") && *count == 2);
    assert_eq!(unknown.count(), 1);
}

#[test]
fn call_stacks_of_lttng_are_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let sequence = |name: &str| format!("u32 __{name}_length; u64 _{name}[ __{name}_length ];");
    let event = format!(
        "name = sched_switch; context := struct {{ u32 _tid; {} {} }}; fields := struct {{ u32 _x; }};",
        sequence("callstack_kernel"),
        sequence("callstack_user")
    );
    let stack = |frames: &[u64]| {
        let bytes = frames.iter().flat_map(|frame| frame.to_le_bytes());
        words(&[frames.len() as u32]).into_iter().chain(bytes).collect::<Vec<u8>>()
    };
    let user: Vec<u64> = (1..=10).collect();
    let values = [words(&[7]), stack(&[0x10, 0x20, u64::MAX]), stack(&user), words(&[1])].concat();
    let empty = [words(&[8]), stack(&[]), stack(&[u64::MAX]), words(&[1])].concat();
    trace(dir.path(), "tracer_name = \"lttng-modules\";", &event, 1, &[&values, &empty]);
    let (file, _) = imported(dir.path());
    let names: Vec<_> = records(&file).into_iter().map(|(_, name, pid, _)| (name, pid)).collect();
    let of = |name: &str, pid| (name.to_owned(), pid);
    let stacks = ["ftrace:kernel_stack", "ftrace:user_stack", "ftrace:user_stack"].map(|name| of(name, 7));
    assert_eq!(names, [&[of("sched:sched_switch", 7)][..], &stacks, &[of("sched:sched_switch", 8)]].concat());
    let mut found = Vec::new();
    let mut records = file.reader().records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let printer = file.events().get(record.event_id().unwrap()).unwrap();
        found.extend(printer.frames(record.data).map(Iterator::collect::<Vec<_>>));
    }
    assert_eq!(found, [vec![0x10, 0x20], (1..=8).collect(), vec![9, 10]]);
}

#[test]
fn names_of_ftrace_are_only_for_what_readers_expect_of_them() {
    let cases = [
        ("kernel_stack", "u32 size; u32 n; u64 caller[ n ];", &[1, 1, 5, 0][..], true),
        ("kernel_stack", "u32 size; u32 n; u32 caller[ n ];", &[1, 1, 5], false),
        ("kernel_stack", "u32 size; u64 caller;", &[1, 5, 0], false),
        ("user_stack", "u32 tgid; u64 caller[ 2 ];", &[1, 5, 0, 6, 0], true),
        ("user_stack", "u32 tgid; string caller;", &[1, 0x0061_6161], false),
        ("bprint", "u64 ip; u64 fmt; u32 n; u32 buf[ n ];", &[1, 0, 2, 0, 1, 7], true),
        ("bprint", "u64 ip; u64 fmt; u32 n; u64 buf[ n ];", &[1, 0, 2, 0, 1, 7, 0], false),
        ("bprint", "u64 ip; string fmt; u32 n; u32 buf[ n ];", &[1, 0, 0x0061_6161, 1, 7], false),
        ("print", "u64 ip; string buf;", &[1, 0, 0x0061_6161], true),
        ("print", "u64 ip; u32 buf;", &[1, 0, 7], false),
        ("print", "u32 ip; string buf;", &[1, 0x0061_6161], false),
        ("bputs", "u64 ip; u64 str;", &[1, 0, 2, 0], true),
        ("bputs", "u64 ip; string str;", &[1, 0, 0x0061_6161], false),
        (
            "func_repeats",
            "u64 ip; u64 parent_ip; u32 count; u32 top_delta_ts; u32 bottom_delta_ts;",
            &[1; 7],
            true,
        ),
        (
            "func_repeats",
            "u64 ip; u64 parent_ip; string count; u32 top_delta_ts; u32 bottom_delta_ts;",
            &[1, 0, 1, 0, 0x0061_6161, 1, 1],
            false,
        ),
    ];
    for (name, fields, values, is_of_ftrace) in cases {
        // In LTTng's layout they have no system.
        for (env, system) in [("", "ftrace:"), ("tracer_name = \"lttng-modules\";", "")] {
            let dir = tempfile::tempdir().unwrap();
            let event = format!("name = \"{system}{name}\"; fields := struct {{ {fields} }};");
            trace(dir.path(), env, &event, 0, &[&words(values)]);
            let (file, _) = imported(dir.path());
            let expected = format!("ftrace:{name}{}", if is_of_ftrace { "" } else { "_2" });
            assert_eq!(records(&file)[0].1, expected, "{fields}");
        }
    }
    // Its text goes to the record's end, as readers find it.
    let dir = tempfile::tempdir().unwrap();
    let event = "name = \"ftrace:print\"; fields := struct { u64 ip; string buf; };";
    trace(dir.path(), "", event, 0, &[&[&1_u64.to_le_bytes()[..], b"hello\0"].concat()]);
    let (file, _) = imported(dir.path());
    let print = file.events().iter().find(|event| event.name() == "print").unwrap();
    let buf = print.format().field("buf").unwrap();
    assert_eq!((buf.offset, buf.size, buf.location), (16, 0, ftrace_event::Location::Inline));
    let mut records = file.reader().records().unwrap();
    let record = records.next_record().unwrap().unwrap();
    assert_eq!(record.data.get(16..22), Some(&b"hello\0"[..]));
}

#[test]
fn traces_that_are_not_taken_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let event = "name = e; fields := struct { u32 x; };";
    for path in
        ["kernel", "ust", "ust/app-4711-20260302-101500", "ust/pid/a-1-20260302-101500", "other/trace"]
    {
        trace(&dir.path().join(path), "", event, 0, &[&words(&[1])]);
    }
    let (_, imported) = imported(dir.path());
    let counts: Vec<u64> = imported
        .not_carried
        .iter()
        .filter(|(what, _)| what.starts_with("traces"))
        .map(|(_, count)| count)
        .collect();
    assert_eq!((imported.events, counts), (1, vec![4]));
    // One of LTTng before 2.1 alone.
    let dir = tempfile::tempdir().unwrap();
    trace(&dir.path().join("ust/app-4711-20260302-101500"), "", event, 0, &[&words(&[1])]);
    assert_eq!(self::imported(dir.path()).1.events, 1);
}
