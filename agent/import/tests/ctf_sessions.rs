//! Traces of CTF that tracers other than ours write: whose CPU, thread, trace and time events are of.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;
use std::path::Path;

use import::ctf::{CtfOptions, CtfSource};
use import::{ImportError, Imported, Options, import_to};
use report::TraceFile;
use stdx::output::Directory;

/// The metadata of a trace of LTTng: its tracer, domain, the last byte of its UUID, its clock, the contexts
/// and the fields of its one event.
#[derive(Clone, Copy)]
struct Trace<'t> {
    tracer: &'t str,
    uuid: u8,
    clock: &'t str,
    contexts: &'t str,
    event: &'t str,
}

const CLOCK: &str = "uuid = \"12345678-1234-1234-1234-123456789012\"; offset = 1000;";

impl Trace<'_> {
    fn metadata(&self) -> String {
        let Self { tracer, uuid, clock, contexts, event } = self;
        format!(
            "/* CTF 1.8 */
typealias integer {{ size = 8; }} := u8;
typealias integer {{ size = 32; }} := u32;
typealias integer {{ size = 32; signed = true; }} := int;
typealias integer {{ size = 64; }} := u64;
trace {{ major = 1; minor = 8; byte_order = le; uuid = \"00000000-0000-0000-0000-0000000000{uuid:02x}\";
packet.header := struct {{ u32 magic; u8 uuid[16]; }}; }};
env {{ tracer_name = \"{tracer}\"; vpid = 70; procname = \"first\"; }};
clock {{ name = monotonic; {clock} }};
typealias integer {{ size = 64; map = clock.monotonic.value; }} := time;
stream {{ packet.context := struct {{ u64 content_size; u64 packet_size; u64 cpu_id; }};
event.header := struct {{ time timestamp; }}; event.context := struct {{ {contexts} }}; }};
event {{ {event} }};\n"
        )
    }

    /// Writes it into a directory, with a packet of this CPU and UUID, and events: their times, contexts and
    /// fields.
    fn write(&self, dir: &Path, (cpu, uuid): (u64, u8), events: &[(u64, &[u8])]) {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("metadata"), self.metadata()).unwrap();
        let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
        packet.extend([0; 15]);
        packet.push(uuid);
        let content: Vec<u8> =
            events.iter().flat_map(|(time, bytes)| [&time.to_le_bytes(), *bytes].concat()).collect();
        let bits = (20 + 24 + content.len() as u64) * 8;
        for word in [bits, bits, cpu] {
            packet.extend(word.to_le_bytes());
        }
        packet.extend(content);
        std::fs::write(dir.join("channel0_0"), packet).unwrap();
    }
}

const KERNEL: Trace<'_> = Trace {
    tracer: "lttng-modules",
    uuid: 1,
    clock: CLOCK,
    contexts: "int _tid;",
    event: "name = \"sched_wakeup\"; fields := struct { int _tid; };",
};
const PROGRAM: Trace<'_> = Trace {
    tracer: "lttng-ust",
    uuid: 2,
    clock: CLOCK,
    contexts: "int _vpid; int _vtid; integer { size = 8; encoding = UTF8; } _procname[4];",
    event: "name = \"app:step\"; fields := struct { u8 _number; };",
};
const STEP: &[u8] = b"\x46\0\0\0\x47\0\0\0two\0\x05";

fn imported(dir: &Path, options: CtfOptions) -> Result<(TraceFile<Vec<u8>>, Imported), ImportError> {
    let temp = tempfile::tempdir().unwrap();
    let spool = Directory::open(temp.path()).unwrap();
    let mut source = CtfSource::open_with(dir, options)?;
    let out = Cursor::new(Vec::new());
    let (out, imported) = import_to(&mut source, out, &spool, Options::default(), &mut |_| true)?;
    Ok((TraceFile::open("imported", out.into_inner()).unwrap(), imported))
}

/// The lines that a report has of the events of a file, without blanks that only align them.
fn lines(file: TraceFile<Vec<u8>>) -> Vec<String> {
    let mut out = Vec::new();
    report::Report::new(&[file]).run(&mut out, |_| {}).unwrap();
    let text = String::from_utf8(out).unwrap();
    let of_events = text.lines().filter(|line| line.contains("] "));
    of_events.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// How often what has no place in the file is that, of what has this word in its name.
fn counted(imported: &Imported, word: &str) -> u64 {
    imported.not_carried.iter().filter(|(what, _)| what.contains(word)).map(|(_, count)| count).sum()
}

const BOTH: CtfOptions = CtfOptions { user_space: true, foreign_packets: false };

#[test]
fn programs_are_imported_beside_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, program) = (dir.path().join("kernel"), dir.path().join("ust/uid/0/64-bit"));
    KERNEL.write(&kernel, (1, 1), &[(2000, b"\x07\0\0\0\x08\0\0\0"), (4000, b"\x07\0\0\0\x09\0\0\0")]);
    // Its offset was measured at another time: the clock is the same.
    let clock = CLOCK.replace("1000", "1700");
    let of_program = Trace { clock: &clock, ..PROGRAM };
    of_program.write(&program, (1, 2), &[(3000, STEP)]);
    let other = "name = \"app:other\"; fields := struct { u8 _number; };";
    let second = Trace { uuid: 3, contexts: "", event: other, ..of_program };
    second.write(&dir.path().join("ust/pid/first-70-20260302-101500"), (0, 3), &[(2500, b"\x06")]);
    let (alone, counts) = imported(dir.path(), CtfOptions::default()).unwrap();
    assert_eq!((counts.events, counted(&counts, "traces in the directory")), (2, 2));
    assert_eq!(lines(alone).len(), 2);
    let (file, counts) = imported(dir.path(), BOTH).unwrap();
    assert_eq!((counts.events, counted(&counts, "traces in the directory")), (4, 0));
    // Nobody knows the thread of one without contexts.
    assert_eq!(counted(&counts, "threads of events of programs"), 1);
    let process = file.reader().initial_state().ok().flatten().map(|state| {
        let of = |thread: &tracedat::initial_state::Thread| (thread.tid, thread.tgid);
        state.threads.iter().map(of).collect::<Vec<_>>()
    });
    assert_eq!(process, Some(vec![(70, 70), (71, 70)]));
    let [first, step_of_second, step, last] = &lines(file)[..] else { panic!("four events") };
    assert!(first.starts_with("<...>-7 [001]") && first.ends_with("pid=8"), "{first}");
    assert!(step_of_second.starts_with("<idle>-0 [000]") && step_of_second.ends_with("number=6"));
    assert!(step.starts_with("two-71 [001] 0.000003"), "{step}");
    assert!(
        step.contains(" step: ") && step.contains("number=5") && step.contains("ctx_vpid=70 ctx_vtid=71"),
        "{step}"
    );
    assert!(last.ends_with("pid=9"), "{last}");
}

#[test]
fn events_keep_the_names_that_their_threads_had() {
    let dir = tempfile::tempdir().unwrap();
    let other = b"\x46\0\0\0\x47\0\0\0one\0\x05";
    PROGRAM.write(dir.path(), (0, 2), &[(3000, other), (4000, STEP)]);
    let (file, _) = imported(dir.path(), CtfOptions::default()).unwrap();
    let lines = lines(file);
    let of = |line: &String| {
        (line.starts_with("two-71 "), line.contains("ctx_comm=one"), line.contains("ctx_comm=two"))
    };
    assert_eq!(
        lines.iter().map(of).collect::<Vec<_>>(),
        [(true, true, false), (true, false, true)],
        "{lines:?}"
    );
}

#[test]
fn traces_whose_times_cannot_be_compared_are_no_recording() {
    let dir = tempfile::tempdir().unwrap();
    KERNEL.write(&dir.path().join("kernel"), (0, 1), &[]);
    for (clock, is_known) in
        [("offset = 0;", false), ("offset = 5;", true), ("offset = 0; absolute = true;", true)]
    {
        let program = Trace { clock, ..PROGRAM };
        program.write(&dir.path().join("ust"), (0, 2), &[(9000, STEP)]);
        match imported(dir.path(), BOTH) {
            Ok((_, imported)) => assert_eq!((is_known, imported.events), (true, 1), "{clock}"),
            Err(error) => assert!(!is_known && matches!(error, ImportError::Unsupported(_)), "{error}"),
        }
    }
}

#[test]
fn clocks_that_begin_nobody_knows_when_are_not_those_of_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = Trace { clock: "offset = 0;", ..KERNEL };
    kernel.write(&dir.path().join("kernel"), (0, 1), &[]);
    for clock in ["freq = 3000000000; offset = 0;", "offset = 0; absolute = true;"] {
        Trace { clock, ..PROGRAM }.write(&dir.path().join("ust"), (0, 2), &[(9000, STEP)]);
        assert!(matches!(imported(dir.path(), BOTH), Err(ImportError::Unsupported(_))), "{clock}");
    }
}

#[test]
fn files_without_a_cpu_count_their_losses_each() {
    let dir = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */
typealias integer { size = 32; } := u32;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };
stream { packet.context := struct { u32 content_size; u32 packet_size; u32 events_discarded; }; };
event { name = \"e\"; fields := struct { u32 x; }; };\n";
    std::fs::write(dir.path().join("metadata"), metadata).unwrap();
    for (name, lost) in [("a", [40_u32, 100]), ("b", [0, 5])] {
        let packet = |lost: u32| [0xc1fc_1fc1, 20 * 8, 20 * 8, lost, 7].map(u32::to_le_bytes).concat();
        std::fs::write(dir.path().join(name), lost.map(packet).concat()).unwrap();
    }
    let (_, imported) = imported(dir.path(), CtfOptions::default()).unwrap();
    assert_eq!((imported.events, imported.lost), (4, 105));
}

#[test]
fn packets_of_another_uuid_are_read_on_request() {
    let dir = tempfile::tempdir().unwrap();
    KERNEL.write(dir.path(), (0, 9), &[(2000, b"\x07\0\0\0\x08\0\0\0")]);
    let error = imported(dir.path(), CtfOptions::default()).unwrap_err();
    assert!(matches!(error, ImportError::Damaged { .. }), "{error}");
    let options = CtfOptions { foreign_packets: true, ..CtfOptions::default() };
    let (_, foreign) = imported(dir.path(), options).unwrap();
    assert_eq!((foreign.events, counted(&foreign, "UUIDs")), (1, 1));
    KERNEL.write(dir.path(), (0, 1), &[(2000, b"\x07\0\0\0\x08\0\0\0")]);
    let (_, own) = imported(dir.path(), options).unwrap();
    assert_eq!((own.events, counted(&own, "UUIDs")), (1, 0));
}

#[test]
fn cpus_are_numbers_that_machines_have() {
    let dir = tempfile::tempdir().unwrap();
    let event: &[(u64, &[u8])] = &[(2000, b"\x07\0\0\0\x08\0\0\0")];
    for (cpu, expected) in [(3, Some(0)), (0xffff, Some(0)), (0xffff_ffff, Some(1)), (u64::MAX, Some(1))] {
        KERNEL.write(dir.path(), (cpu, 1), event);
        let (file, imported) = imported(dir.path(), CtfOptions::default()).unwrap();
        assert_eq!((imported.events, Some(counted(&imported, "CPUs of events"))), (1, expected), "{cpu:#x}");
        let cpus = if expected == Some(1) { 1 } else { cpu + 1 };
        assert_eq!(u64::from(file.reader().cpu_count()), cpus, "{cpu:#x}");
    }
    for cpu in [0x1_0000, 0xffff_fffe, 0x1_0000_0000, u64::MAX - 1] {
        KERNEL.write(dir.path(), (cpu, 1), event);
        let error = imported(dir.path(), CtfOptions::default()).unwrap_err();
        assert!(matches!(error, ImportError::Damaged { .. }), "{cpu:#x}: {error}");
    }
}

#[test]
fn structures_that_multiply_cost_what_is_written_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut structures = "struct s0 { };\n".to_owned();
    for depth in 1..30 {
        structures += &format!("struct s{depth} {{ struct s{} a; struct s{} b; }};\n", depth - 1, depth - 1);
    }
    let fields = "enum : u8 { small = 0, large = 1 } t; variant <t> { u8 small; struct s29 large; } v;";
    let event = format!("name = \"e\"; fields := struct {{ {fields} }};");
    let trace = Trace { tracer: "", event: &event, ..KERNEL };
    trace.write(dir.path(), (0, 1), &[(2000, b"\x07\0\0\0\0\x05")]);
    let metadata = dir.path().join("metadata");
    // Times are looked for in headers, and fields in events.
    let text = std::fs::read_to_string(&metadata).unwrap();
    let text = text.replace("trace {", &format!("{structures}trace {{"));
    std::fs::write(&metadata, &text).unwrap();
    let (file, counts) = imported(dir.path(), CtfOptions::default()).unwrap();
    assert_eq!(counts.events, 1);
    assert!(lines(file)[0].contains("v=5"), "the field that is there");
    let header = "event.header := struct { time timestamp; struct s29 h; }";
    let header = text.replace("event.header := struct { time timestamp; }", header);
    std::fs::write(&metadata, header).unwrap();
    let error = imported(dir.path(), CtfOptions::default()).unwrap_err();
    assert!(matches!(error, ImportError::Damaged { .. }), "{error}");
}
