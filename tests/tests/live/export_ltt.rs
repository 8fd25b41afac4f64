//! The exports to the layouts of LTTng before CTF, of a recording made here, and on a disk that is full.

use std::{
    fs::{self, File},
    path::Path,
};

use export::eventdefs::{self, EventDefs};
use export::ltt2008::{self, Lttng2008};
use ftrace_event::Endian;
use integration_tests::{
    eventdefs_reader::{self, Item},
    harness::{Tmpfs, agent, files, run},
    ltt2008_reader::{self, Field},
};
use tracedat::reader::{Reader, Source};

use crate::beside::export_ltt::exported;

#[test]
fn the_state_that_a_recording_began_with() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.dat");
    run(agent(dir.path(), ["record", "-e", "sched", "-o"]).arg(&path).args(["sleep", "0.1"])).expect(0);
    let file = Reader::open(Box::new(File::open(&path).unwrap()) as Box<dyn Source>).unwrap();
    let state = file.initial_state().unwrap().expect("our recordings have a state");
    let (me, parent) = (i128::from(std::process::id()), i128::from(std::os::unix::process::parent_id()));
    let name = fs::read_to_string("/proc/self/comm").unwrap().trim_end().as_bytes().to_vec();
    let loopback = i128::from(u32::from(std::net::Ipv4Addr::LOCALHOST));

    for endian in [Endian::Little, Endian::Big] {
        let options = ltt2008::Options { endian: Some(endian), ..ltt2008::Options::default() };
        let (_dir, out, _) = exported(&file, &Lttng2008::new(options).unwrap());
        let trace = ltt2008_reader::read(&out, false);
        let told = |file: &str, name: &str| {
            let events = &trace.files[&format!("control/{file}_0")].events;
            events.iter().filter(|event| event.name == name).collect::<Vec<_>>()
        };
        let processes = told("processes", "list_process_state");
        assert_eq!(processes.len(), state.threads.len());
        let mine = processes.iter().find(|event| event.number("pid") == me).expect("the test itself");
        assert_eq!((mine.number("parent_pid"), mine.number("tgid")), (parent, me));
        assert_eq!(mine.field("name"), Some(&Field::Text(name.clone())));
        assert_eq!(told("processes", "list_statedump_end").len(), 1);
        assert_eq!(told("interrupts", "list_interrupt").len(), state.interrupts.len());
        assert_eq!(told("modules", "list_module").len(), state.modules.len());
        let addresses = told("network", "list_network_ipv4_interface");
        assert!(addresses.iter().any(|event| {
            event.field("name") == Some(&Field::Text(b"lo".to_vec())) && event.number("address") == loopback
        }));

        let options = eventdefs::Options { endian: Some(endian), ..eventdefs::Options::default() };
        let (_dir, out, _) = exported(&file, &EventDefs::new(options).unwrap());
        let trace = eventdefs_reader::read(&out, false);
        let told = |file: &str, name: &str| {
            let events = &trace.files[&format!("control/{file}")];
            events.iter().filter(|event| event.name == name).collect::<Vec<_>>()
        };
        let processes = told("processes", "state.process");
        assert_eq!(processes.len(), state.threads.len());
        let mine = processes.iter().find(|event| event.data.number("pid") == me).expect("the test itself");
        assert_eq!(
            (mine.data.number("ppid"), mine.data.get("name")),
            (parent, Some(&Item::Text(name.clone())))
        );
        assert_eq!(told("interrupts", "state.interrupt").len(), state.interrupts.len());
        assert_eq!(told("interrupts", "state.module").len(), state.modules.len());
        let addresses = told("interrupts", "state.interface");
        assert!(addresses.iter().any(|event| {
            event.data.get("name") == Some(&Item::Text(b"lo".to_vec()))
                && event.data.number("ipv4") == loopback
        }));
    }
}

#[test]
fn the_command_on_bad_places_and_bad_files() {
    let dir = tempfile::tempdir().unwrap();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let lost = traces.join("k6.12-lost.dat");
    let disk = Tmpfs::mount("size=1m");
    let mut bytes = fs::read(&lost).unwrap();
    let data = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[0];
    let at = (data.offset + data.size / 2) as usize;
    bytes[at..at + 64].fill(0x55);
    fs::write(dir.path().join("damaged.dat"), bytes).unwrap();
    for format in ["lttng-2008", "ltt-eventdefs"] {
        let export = |file: &Path, out: &Path, args: &[&str]| {
            let mut command = agent(dir.path(), ["export", "--format", format]);
            run(command.args(args).arg(file).arg(out))
        };
        // The place is full before the end.
        let ended = export(&lost, &disk.path().join("out"), &[]);
        ended.expect(113).says(&["No space left on device"]);
        assert_eq!(files(disk.path()), [""; 0], "{format}");
        let out = dir.path().join("out");
        export(&dir.path().join("damaged.dat"), &out, &[]).says(&["damaged", "--keep-going"]);
        assert!(!out.exists());
        export(&dir.path().join("damaged.dat"), &out, &["--keep-going"])
            .expect(0)
            .says(&["not carried over"]);
        export(&lost, &out, &[]).says(&["--force"]);
        export(&lost, &out, &["--force", "--block-size", "64K", "--endian", "big"]).expect(0);
        let told = run(&mut agent(dir.path(), ["info", "--json", "out"])).expect(0).out;
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["damage"].as_array().map(Vec::len), Some(0), "{told}");
        let blocks = told["files"].as_array().unwrap();
        assert!(blocks.iter().any(|file| file["name"].as_str().unwrap().contains("cpu")), "{told}");
        for file in blocks {
            let len = fs::metadata(out.join(file["name"].as_str().unwrap())).unwrap().len();
            let (count, size) = (file["blocks"].as_u64().unwrap(), file["block_size"].as_u64().unwrap());
            assert_eq!(count * size, len, "{file}");
            assert!(file["begin"].as_u64() <= file["end"].as_u64(), "{file}");
        }
        let told = run(&mut agent(dir.path(), ["info", "out"])).expect(0).out;
        assert!(told.contains("FILES") && told.contains("cpu"), "{told}");
        export(&lost, &out, &["--force", "--block-size", "5"]).says(&["4096"]);
        fs::remove_dir_all(out).unwrap();
    }
}
