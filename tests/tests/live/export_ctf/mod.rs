//! Exports to CTF, against babeltrace2, LTTng's analyses and an independent reader.

mod analyses;
mod compare;
mod made_up;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use compare::*;
use made_up::{blob, blob_format, make};

use ftrace_event::{Cmdlines, Endian};
use ftrace_event::{EventTable, Machine, NoNames};
use integration_tests::analyses::{rows, tables};
use integration_tests::babeltrace;
use integration_tests::ctf::{self, Event, Value};
use integration_tests::harness::{Ended, Tmpfs, agent, program, reported, run};
use integration_tests::trace_cmd::stored;
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::Reader;
use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

const FORMATS: [&str; 2] = ["ctf", "lttng"];

fn export(file: &Path, format: &str, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to))
}

/// What babeltrace2 prints of a trace, in the order of the alphabet, and how many lost events it tells of.
/// Other warnings fail.
fn babeltrace(trace: &Path) -> (Vec<String>, u64) {
    let args = ["--clock-cycles", "--no-delta", "--fields=loglevel"];
    let (text, lost) = babeltrace::printed(trace, &args);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    (lines, lost)
}

#[test]
fn stock_recordings_are_read_by_babeltrace() {
    let dir = tempfile::tempdir().unwrap();
    let mut lost = 0;
    for file in stored(dir.path()) {
        for format in FORMATS {
            let (trace, _) = check(&file, format, dir.path());
            let tracer = if format == "ctf" { "\"tracer-agent" } else { "\"lttng-modules" };
            assert_eq!(trace.env["tracer_name"], tracer);
            assert_eq!((trace.env["domain"].as_str(), trace.clock_offset), ("\"kernel", 0));
            assert!(format == "ctf" || trace.env["exporter"].starts_with("\"tracer-agent "));
            lost += trace.losses.values().flatten().map(|loss| loss.2).sum::<u64>();
        }
    }
    assert!(lost > 10_000, "one of them lost events");
}

/// Each packet of a stream, without the UUID of its trace.
fn packets_without_uuid(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let (mut packets, mut rest) = (Vec::new(), bytes.as_slice());
    while !rest.is_empty() {
        let bits = u64::from_le_bytes(rest[56..64].try_into().unwrap());
        let (packet, others) = rest.split_at(bits as usize / 8);
        packets.push([&packet[..4], &packet[20..]].concat());
        rest = others;
    }
    packets
}

#[test]
fn ctf_2_has_the_same_streams() {
    let dir = tempfile::tempdir().unwrap();
    for file in stored(dir.path()) {
        let [one, two] = ["ctf", "ctf2"].map(|format| {
            let out = dir.path().join(format);
            run(agent("/".as_ref(), ["export", "--force", "--format", format]).arg(&file).arg(&out))
                .expect(0);
            out.join("kernel")
        });
        assert_eq!(names(&two), names(&one));
        for name in names(&one).iter().filter(|name| !["index", "metadata"].contains(&&***name)) {
            assert_eq!(
                packets_without_uuid(&two.join(name)),
                packets_without_uuid(&one.join(name)),
                "{name}"
            );
            let index = |of: &Path| fs::read(of.join(format!("index/{name}.idx"))).unwrap();
            assert_eq!(index(&two), index(&one), "{name}");
        }
        let [one, two] = ["ctf", "ctf2"].map(|format| ctf::read(&dir.path().join(format)));
        assert_eq!(two.events, one.events);
        assert_eq!((two.env, two.losses, two.declared), (one.env, one.losses, one.declared));
        assert_eq!((two.clock_offset, two.packets), (one.clock_offset, one.packets));
    }
}

/// Records with the agent.
fn record(args: &[&str], file: &Path) -> Ended {
    run(agent("/".as_ref(), ["record", "-o"]).arg(file).args(args)).expect(0)
}

#[test]
fn every_event_of_this_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.dat");
    record(&["-e", "all", "ls", "/"], &file);
    for format in FORMATS {
        let (trace, out) = check(&file, format, dir.path());
        assert!(trace.events.len() > 100);
        // The distance of the clocks, which is what makes times absolute.
        let clock = |id| {
            let time = rustix::time::clock_gettime(id);
            i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
        };
        let before = clock(rustix::time::ClockId::Realtime) - clock(rustix::time::ClockId::Monotonic);
        assert!(
            (before - i128::from(trace.clock_offset)).abs() < 1_000_000,
            "{before} {}",
            trace.clock_offset
        );
        let args = ["--clock-seconds", "--clock-gmt", "--no-delta", "--fields=loglevel"];
        let absolute = run(program("/".as_ref(), "babeltrace2", args).arg(&out)).expect(0).out;
        let first = trace.events.iter().map(|event| event.time).min().unwrap() + trace.clock_offset;
        let expected = format!("[{}.{:09}]", first / 1_000_000_000, first % 1_000_000_000);
        assert!(absolute.starts_with(&expected), "{expected} {}", absolute.lines().next().unwrap());
        // Python's reader, on which LTTng's analyses stand.
        let script = "import babeltrace, sys\ntraces = babeltrace.TraceCollection()\n\
                      traces.add_traces_recursive(sys.argv[1], 'ctf')\nprint(next(traces.events).timestamp)";
        let python = run(program("/".as_ref(), "/usr/bin/python3", ["-c", script]).arg(&out)).expect(0).out;
        assert_eq!(python.trim(), first.to_string());
        if format == "lttng" {
            let named =
                |name: &str| trace.events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
            assert_eq!(named("lttng_statedump_start").len(), 1);
            assert_eq!(named("lttng_statedump_end").len(), 1);
            // The state takes longer to look at than `ls` runs, but nothing is known of the time behind the
            // last record.
            let (state, recorded): (Vec<&Event>, Vec<&Event>) =
                trace.events.iter().partition(|event| event.channel == "statedump");
            let times = || recorded.iter().map(|event| event.time);
            let span = times().min().unwrap()..=times().max().unwrap();
            assert!(state.iter().all(|event| span.contains(&event.time)), "{span:?}");
            let own = i128::from(std::process::id());
            let me = named("lttng_statedump_process_state");
            let me = me.iter().find(|event| event.fields[0].1 == Value::Number(own, 10)).unwrap();
            let ppid = std::os::unix::process::parent_id();
            assert_eq!(me.fields[2].1, Value::Number(ppid.into(), 10), "{me:?}");
            assert!(
                named("lttng_statedump_network_interface")
                    .iter()
                    .any(|event| ctf::line(event).contains("\"lo\""))
            );
        }
    }
}

#[test]
fn a_rewrite_by_babeltrace_reads_back_equal() {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-instances.dat");
    for format in FORMATS {
        let (out, again) = (dir.path().join(format), dir.path().join(format!("{format}.again")));
        export(&file, format, &out).expect(0);
        let rewrite = ["--output-format=ctf", "--output"];
        run(program("/".as_ref(), "babeltrace2", rewrite).arg(&again).arg(&out)).expect(0);
        assert_eq!(babeltrace(&out), babeltrace(&again));
    }
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn bad_input_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-lost.dat");
    let out = dir.path().join("out");
    let refuse = |file: &Path, format: &str, code: i32, texts: &[&str]| {
        let before = names(dir.path());
        export(file, format, &out).expect(code).says(texts);
        assert_eq!(names(dir.path()), before, "{texts:?}");
    };
    refuse(&stored, "svg", 2, &["svg", "known: ctf, ctf2, lttng"]);
    refuse(&dir.path().join("none"), "ctf", 1, &["none"]);

    let mut bytes = fs::read(&stored).unwrap();
    let data = Reader::open(File::open(&stored).unwrap()).unwrap().buffers()[0].cpus[0];
    let middle = (data.offset + data.size / 2) as usize;
    bytes[middle..middle + 4000].fill(0xa5);
    let damaged = dir.path().join("damaged.dat");
    fs::write(&damaged, &bytes).unwrap();
    refuse(&damaged, "ctf", 1, &["damaged", "--keep-going"]);
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--keep-going"]).arg(&damaged).arg(&out))
        .expect(0)
        .says(&["not carried over", "damaged"]);
    ctf::read(&out);
    refuse(&stored, "ctf", 114, &["exists", "--force"]);
    fs::remove_dir_all(&out).unwrap();

    let odd = dir.path().join("odd.dat");
    let format = blob_format(1000).replace("size:8", "size:eight");
    make(
        &odd,
        Endian::Little,
        &[format, blob_format(1001)],
        4096,
        &[(
            0,
            vec![
                (5, None, blob(Endian::Little, 1000, b"x", &[], 1)),
                (6, None, blob(Endian::Little, 1001, b"y", &[], 2)),
            ],
        )],
    );
    // An event whose format cannot be used has its bytes.
    export(&odd, "ctf", &out).expect(0);
    assert_eq!(ctf::read(&out).events.len(), 2);

    let full = Tmpfs::mount("size=200k");
    export(&stored, "lttng", &full.path().join("out")).expect(113).says(&["No space left"]);
    assert!(names(full.path()).is_empty());
}

#[test]
fn an_archive_and_an_earlier_export() {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-kprobes.dat");
    let out = dir.path().join("out");
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--tar"]).arg(&file).arg(&out)).expect(0);
    assert_eq!(names(dir.path()), ["out.tar.gz"]);
    run(&mut program(dir.path(), "tar", ["xzf", "out.tar.gz"])).expect(0);
    let unpacked = ctf::read(&out).events;
    // The layout is recognised, and a second export is the same to the byte.
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--force"]).arg(&file).arg(&out)).expect(0);
    assert_eq!(ctf::read(&out).events, unpacked);
    let told = run(agent("/".as_ref(), ["info"]).arg(&out)).expect(0).out;
    for text in ["Common Trace Format", "channel0_0", "tracer-agent"] {
        assert!(told.contains(text), "{told}");
    }
    let told = run(agent("/".as_ref(), ["info", "--json"]).arg(&out)).expect(0).out;
    assert!(
        told.starts_with("{\"traces\":[{\"path\":\"kernel\",\"version\":\"1.8\",\"env\":[[\"hostname\""),
        "{told}"
    );
    run(agent("/".as_ref(), ["info"]).arg(dir.path())).expect(1).says(&["no trace"]);
}
