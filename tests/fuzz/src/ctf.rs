//! Traces of CTF: an input is the metadata and up to three files of streams.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use import::ctf::CtfSource;
use import::{Options, Target, import};
use tracedat::check::check;
use tracedat::reader::Reader;

use crate::targets::{SEPARATOR, parts};

/// Imports what there is: the file that is made has no faults, and as many events as the import says.
pub(crate) fn target(data: &[u8]) {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let Ok(dir) = dir else { return };
    let trace = dir.path().join("kernel");
    let parts: [&[u8]; 4] = parts(data);
    if fs::create_dir(&trace).is_err() {
        return;
    }
    for (name, bytes) in ["metadata", "channel0_0", "channel0_1", "other_0_1"].into_iter().zip(parts) {
        if fs::write(trace.join(name), bytes).is_err() {
            return;
        }
    }
    let Ok(mut source) = CtfSource::open(dir.path()) else { return };
    let target = Target { path: dir.path().join("trace.dat"), force: false };
    let options = Options { keep_going: true, ..Options::default() };
    let imported = match import(&mut source, &target, options, &mut |_| true) {
        Ok(imported) => imported,
        Err(_) => {
            assert!(!target.path.exists(), "a refused import leaves a file");
            return;
        }
    };
    let bytes = fs::read(&target.path).unwrap_or_default();
    let report = check(&bytes.as_slice(), NonZeroUsize::new(1));
    assert!(report.is_clean(), "what was imported has faults: {report:?}");
    let reader = Reader::open(bytes.as_slice()).expect("what was imported can be opened");
    let events: u64 = (0..reader.buffers().len()).map(|buffer| reader.count(buffer).events()).sum();
    assert_eq!(events, imported.events);
}

/// Metadata with a field of every kind.
const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := uint8_t;
typealias integer { size = 32; align = 8; } := uint32_t;
typealias integer { size = 64; align = 8; } := unsigned long;
trace { major = 1; minor = 8; byte_order = ORDER; uuid = \"07070707-0707-0707-0707-070707070707\";
packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }; };
env { hostname = \"h\"; domain = \"kernel\"; tracer_name = \"lttng-modules\"; tracer_major = 2; };
clock { name = monotonic; freq = 1000000000; offset = 5; };
typealias integer { size = 27; align = 1; map = clock.monotonic.value; } := uint27_clock_t;
typealias integer { size = 64; align = 8; map = clock.monotonic.value; } := uint64_clock_t;
stream { id = 0;
packet.context := struct { uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end; unsigned long content_size;
unsigned long packet_size; unsigned long packet_seq_num; unsigned long events_discarded; uint32_t cpu_id; };
event.header := struct { enum : integer { size = 5; align = 1; } { compact = 0 ... 30, extended = 31 } id;
variant <id> { struct { uint27_clock_t timestamp; } compact;
struct { uint32_t id; uint64_clock_t timestamp; } extended; } v; } align(8);
event.context := struct { integer { size = 32; signed = 1; } _tid; }; };
event { name = \"sched_switch\"; id = 0; stream_id = 0; fields := struct {
integer { size = 8; encoding = UTF8; } _prev_comm[4]; uint32_t _prev_tid; integer { size = 8; encoding = UTF8; } _next_comm[4];
uint32_t _next_tid; }; };
event { name = \"syscall_entry_execve\"; id = 40; stream_id = 0; context := struct { uint8_t _prio; }; fields := struct {
string _filename; uint32_t __argv_length; string _argv[ __argv_length ];
struct { integer { size = 3; } a; floating_point { exp_dig = 11; mant_dig = 53; } b; } _s;
enum : uint8_t { A, B = 5 ... 7 } _e; integer { size = 16; base = 16; byte_order = be; } _x[2]; }; };
";

/// A packet of two events, and another one without any that tells of a loss.
fn stream(little: bool) -> Vec<u8> {
    let u32 = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
    let u64 = |value: u64| if little { value.to_le_bytes() } else { value.to_be_bytes() };
    let packet = |sequence: u64, discarded: u64, events: &[u8]| {
        let mut packet = [&u32(0xc1fc_1fc1)[..], &[7; 16], &u32(0)].concat();
        let bits = (76 + events.len() as u64) * 8;
        for word in [1000 + sequence * 1000, 2000 + sequence * 1000, bits, bits + 32, sequence, discarded] {
            packet.extend_from_slice(&u64(word));
        }
        packet.extend_from_slice(&u32(1));
        packet.extend_from_slice(events);
        packet.extend_from_slice(&[0; 4]);
        packet
    };
    let compact = |id: u32, time: u32| u32(if little { id | time << 5 } else { id << 27 | time });
    let switch = [&compact(0, 1100)[..], &u32(42), b"one\0", &u32(42), b"two\0", &u32(43)].concat();
    let extended = [&[if little { 31 } else { 31 << 3 }][..], &u32(40), &u64(1500), &u32(43), &[20]].concat();
    let fields =
        [&b"/bin/x\0"[..], &u32(2), b"x\0y\0", &[3], &u64(0x3ff8_0000_0000_0000), &[6, 0, 1, 0, 2]].concat();
    [packet(0, 0, &[switch, extended, fields].concat()), packet(1, 9, &[])].concat()
}

/// The same metadata in CTF 2.
const FRAGMENTS: &str = r#"{"type":"preamble","version":2,"uuid":[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7]}
{"type":"field-class-alias","name":"u8","field-class":{"type":"fixed-length-unsigned-integer","length":8,"alignment":8,"byte-order":"ORDER"}}
{"type":"field-class-alias","name":"u32","field-class":{"type":"fixed-length-unsigned-integer","length":32,"alignment":8,"byte-order":"ORDER"}}
{"type":"field-class-alias","name":"time","field-class":{"type":"fixed-length-unsigned-integer","length":64,"alignment":8,"byte-order":"ORDER","roles":["default-clock-timestamp"]}}
{"type":"field-class-alias","name":"comm","field-class":{"type":"static-length-string","length":4}}
{"type":"trace-class","uid":"t","environment":{"hostname":"h","domain":"kernel","tracer_name":"lttng-modules","tracer_major":2},"packet-header-field-class":{"type":"structure","member-classes":[
{"name":"magic","field-class":{"type":"fixed-length-unsigned-integer","length":32,"alignment":8,"byte-order":"ORDER","roles":["packet-magic-number"]}},
{"name":"uuid","field-class":{"type":"static-length-blob","length":16,"roles":["metadata-stream-uuid"]}},
{"name":"stream_id","field-class":{"type":"fixed-length-unsigned-integer","length":32,"alignment":8,"byte-order":"ORDER","roles":["data-stream-class-id"]}}]}}
{"type":"clock-class","id":"c","name":"monotonic","frequency":1000000000,"origin":"unix-epoch","offset-from-origin":{"seconds":0,"cycles":5}}
{"type":"data-stream-class","id":0,"default-clock-class-id":"c","packet-context-field-class":{"type":"structure","member-classes":[
{"name":"timestamp_begin","field-class":"time"},
{"name":"timestamp_end","field-class":{"type":"fixed-length-unsigned-integer","length":64,"alignment":8,"byte-order":"ORDER","roles":["packet-end-default-clock-timestamp"]}},
{"name":"content_size","field-class":{"type":"fixed-length-unsigned-integer","length":64,"alignment":8,"byte-order":"ORDER","roles":["packet-content-length"]}},
{"name":"packet_size","field-class":{"type":"fixed-length-unsigned-integer","length":64,"alignment":8,"byte-order":"ORDER","roles":["packet-total-length"]}},
{"name":"packet_seq_num","field-class":{"type":"fixed-length-unsigned-integer","length":64,"alignment":8,"byte-order":"ORDER","roles":["packet-sequence-number"]}},
{"name":"events_discarded","field-class":{"type":"fixed-length-unsigned-integer","length":64,"alignment":8,"byte-order":"ORDER","roles":["discarded-event-record-counter-snapshot"]}},
{"name":"cpu_id","field-class":"u32"}]},
"event-record-header-field-class":{"type":"structure","minimum-alignment":8,"member-classes":[
{"name":"id","field-class":{"type":"fixed-length-unsigned-integer","length":5,"byte-order":"ORDER","roles":["event-record-class-id"]}},
{"name":"v","field-class":{"type":"variant","selector-field-location":{"origin":"event-record-header","path":["id"]},"options":[
{"name":"compact","selector-field-ranges":[[0,30]],"field-class":{"type":"structure","member-classes":[{"name":"timestamp","field-class":{"type":"fixed-length-unsigned-integer","length":27,"byte-order":"ORDER","roles":["default-clock-timestamp"]}}]}},
{"name":"extended","selector-field-ranges":[[31,31]],"field-class":{"type":"structure","member-classes":[{"name":"id","field-class":{"type":"fixed-length-unsigned-integer","length":32,"alignment":8,"byte-order":"ORDER","roles":["event-record-class-id"]}},{"name":"timestamp","field-class":"time"}]}}]}}]},
"event-record-common-context-field-class":{"type":"structure","member-classes":[{"name":"tid","field-class":{"type":"fixed-length-signed-integer","length":32,"alignment":8,"byte-order":"ORDER"}}]}}
{"type":"event-record-class","id":0,"name":"sched_switch","payload-field-class":{"type":"structure","member-classes":[
{"name":"prev_comm","field-class":"comm"},{"name":"prev_tid","field-class":"u32"},{"name":"next_comm","field-class":"comm"},{"name":"next_tid","field-class":"u32"}]}}
{"type":"event-record-class","id":40,"name":"syscall_entry_execve","specific-context-field-class":{"type":"structure","member-classes":[{"name":"prio","field-class":"u8"}]},
"payload-field-class":{"type":"structure","member-classes":[
{"name":"filename","field-class":{"type":"null-terminated-string"}},{"name":"_argv_length","field-class":"u32"},
{"name":"argv","field-class":{"type":"dynamic-length-array","length-field-location":{"path":["_argv_length"]},"element-field-class":{"type":"null-terminated-string"}}},
{"name":"s","field-class":{"type":"structure","member-classes":[{"name":"a","field-class":{"type":"fixed-length-boolean","length":3,"byte-order":"ORDER"}},
{"name":"b","field-class":{"type":"optional","selector-field-location":{"path":["a"]},"field-class":{"type":"fixed-length-floating-point-number","length":64,"alignment":8,"byte-order":"ORDER"}}}]}},
{"name":"e","field-class":{"type":"variable-length-unsigned-integer","mappings":{"A":[[0,0]],"B":[[5,7]]}}},
{"name":"x","field-class":{"type":"static-length-array","length":2,"element-field-class":{"type":"fixed-length-unsigned-integer","length":16,"alignment":8,"byte-order":"big-endian","preferred-display-base":16}}}]}}
"#;

/// The committed inputs of CTF 1.8.
pub(crate) fn seeds() -> [(&'static str, Vec<u8>); 2] {
    [("little", true), ("big", false)].map(|(name, little)| {
        let metadata = METADATA.replace("ORDER", if little { "le" } else { "be" });
        (name, seed(&metadata, little))
    })
}

/// Those of CTF 2.
pub(crate) fn seeds_of_fragments() -> [(&'static str, Vec<u8>); 2] {
    [("little", true), ("big", false)].map(|(name, little)| {
        let order = if little { "little-endian" } else { "big-endian" };
        let metadata = format!("\x1e{}", FRAGMENTS.replace("ORDER", order));
        // Each fragment begins at the begin of a line.
        (name, seed(&metadata.replace("\n{\"type\":", "\n\x1e{\"type\":"), little))
    })
}

fn seed(metadata: &str, little: bool) -> Vec<u8> {
    let stream = stream(little);
    [metadata.as_bytes(), &stream].join(SEPARATOR)
}
