//! The committed corpus: a directory per target with a few small inputs in it.
//!
//! Files are made by the project's writer, so that a change of the format changes the corpus. `cargo xtask
//! fuzz --seeds` writes it.

use std::error::Error;
use std::fs;
use std::io::Cursor;
use std::path::Path;

use capture::{ArchiveName, Manifest, RecordedChannel, Spool};
use ftrace_event::{Cmdlines, Endian};
use stdx::output::Output;
use tracedat::initial_state::Host;
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, Compression, EventSystem, FileOption, OptionId, Section, Setup, Writer, layout};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const FORMAT: &str = "name: x\nID: 9\nformat:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;

print fmt: \"%s %d\", __get_str(name), REC->common_pid
";

const LEDGER: &str = "{\"version\":1,\"cpus\":[{\"cpu\":0,\"recorded\":4,\"stored\":3,\"lost\":{\"ring_full\":1}}],\"events\":[]}";

const FILTERS: &[&str] = &[
    "all: a == 1 && b != -3 || !(c & 0xff)",
    "fuzz/all: comm ~ \"ba*\" && name == \"x\"",
    ".*: common_pid > 3 + 4 * 2 || COMM =~ \"^k\"",
    "a == ONE && cpus & CPUS{0-3} && CPU == 1",
    "name.ustring != \"x\" || $uid == 0 || TIMESTAMP < 5",
];

const PRINT_FMTS: &[&str] = &[
    "\"%s %u %-5d %#lx %%\", REC->comm, REC->a, REC->b, REC->c",
    "\"%s %s\", __get_str(name), __print_hex(__get_rel_dynamic_array(bytes), __get_rel_dynamic_array_len(bytes))",
    "\"%s\", __print_symbolic(REC->a, { 1, \"ONE\" }, { 0x2, \"TWO\" })",
    "\"%s\", __print_flags(REC->c & ~3UL, \"|\", { 1 << 2, \"A\" }, { 8, \"B\" })",
    "\"%s %*pbl\", __get_bitmask(cpus), __get_dynamic_array_len(cpus), __get_dynamic_array(cpus)",
    "\"%pI4 %pI6c %pM %pS %*ph\", REC->addr, REC->addr, REC->addr, (void *)REC->c, 4, REC->addr",
    "\"%s\", REC->a > 3 && !REC->b ? \"yes\" : (REC->longs[1] / 7 % 3 == 1) ? \"no\" : \"?\"",
    "\"%s\", __print_array(REC->longs, 2, 8)",
    "\"%c %lld %5.3s\", (char)REC->a, (long long)REC->b, REC->comm",
];

/// Columns of flags, and lines of a latency tracer.
const LATENCY_TEXT: &[u8] = b"#                  _------=> CPU#
#                 / _-----=> irqs-off
#                | / _----=> need-resched
#                || / _---=> hardirq/softirq
#                ||| / _--=> preempt-depth
%%
  <idle>-0       0d.s2    0us+: _raw_spin_lock_irq <-handle_softirqs
    a-b-7       12dNs3   17us : sched_waking: comm=b pid=2 prio=120 target_cpu=000
";

/// A page, and a trace in it.
const SYSTRACE_TEXT: &[u8] = b"<script>
function f() {}
</script>
%%
# tracer: nop
  pool-302   (   71) [005] d..2   612.017446: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=D|K ==> next_comm=b next_pid=2 next_prio=120
</script>
";

/// The same as a text of JavaScript.
const QUOTED_TEXT: &[u8] = b"<body>
%%
# tracer: nop\\n\\
  pool-302   (   71) [005] d..2   612.017446: x: a=1\\n\\
";

const TRACE_TEXT: &[u8] = b"# entries-in-buffer/entries-written: 4/9   #P:2
          <idle>-0       [001] dNh2.  12.304873: sched_switch: prev_comm=swapper prev_pid=0 prev_state=R ==> next_comm=a b next_pid=7
CPU:1 [LOST 12 EVENTS]
             a b-7       (-------) [001] D.Zf3  12.304990: sched_stat_runtime: comm=a b pid=7 runtime=5 [ns] cpu=003
             a b-7       [001] .....  12.305100: <stack trace>
 => one+0x1/0x2
             a b-7       [001] .....  12.305200: sys_write(fd: 1, buf: 7f, count: 5)
";

const REPORT_TEXT: &[u8] = b"cpus=2
net:             w.sh-231   [000]    21.829259: sys_exit:             NR 1 = 1
                 w.sh-231   [000]    21.829374: kmalloc:              call_site=a+0x46 ptr=0xff41 bytes_req=416
CPU:0 [EVENTS DROPPED]
                 w.sh-231   [000]    21.829980: kmalloc:              call_site=b+0x2d ptr=0xff42 bytes_req=16
";

const SCRIPT_TEXT: &[u8] = b"perf 18440 [000]  35.441342026:   raw_syscalls:sys_exit: NR 16 = 0
my prog 7/8 [001]  35.441351460:   sched:sched_wakeup: comm=x pid=5 target_cpu=001
true    -1 [001]  35.441352:     sched:sched_wakeup: comm=y pid=6 target_cpu=000
";

/// A stream of `perf record`, or with records of simpleperf: an event, its format, the name of a task, two
/// samples, of which one has a call chain, and a loss.
fn perf_stream(endian: Endian, is_simpleperf: bool) -> Vec<u8> {
    let u32s = |values: &[u32]| -> Vec<u8> { values.iter().flat_map(|value| endian.u32(*value)).collect() };
    let u64s = |values: &[u64]| -> Vec<u8> { values.iter().flat_map(|value| endian.u64(*value)).collect() };
    let record = |kind: u32, body: &[u8]| {
        [&endian.u32(kind)[..], &endian.u16(0), &endian.u16(body.len() as u16 + 8), body].concat()
    };
    // Records of simpleperf have sizes of 32 bits, the upper half first.
    let long_record = |kind: u32, body: &[u8]| {
        let size = body.len() as u32 + 8;
        [&endian.u32(kind)[..], &endian.u16((size >> 16) as u16), &endian.u16(size as u16), body].concat()
    };
    // TID, TIME, CALLCHAIN, CPU, RAW, IDENTIFIER.
    let sample_type = 2 | 4 | 32 | 128 | 1024 | 65536;
    let sample_id_all = if endian == Endian::Little { 1 << 18 } else { 1 << 45 };
    let mut attr = [u32s(&[2, 64]), u64s(&[9, 1, sample_type, 0, sample_id_all, 0, 0])].concat();
    attr.truncate(64);
    let long = |text: &str| [&endian.u64(text.len() as u64)[..], text.as_bytes()].concat();
    let formats = [
        b"\x17\x08\x44tracing0.6\0".to_vec(),
        vec![endian.header_byte(), 8],
        u32s(&[4096]),
        [b"header_page\0".to_vec(), long(""), b"header_event\0".to_vec(), long("")].concat(),
        [u32s(&[0, 1]), b"s\0".to_vec(), u32s(&[1]), long(FORMAT)].concat(),
        [u32s(&[0, 0]), long("")].concat(),
    ]
    .concat();
    let kernel = (-128_i64).cast_unsigned();
    let sample = |time: u64, chain: &[u64]| {
        let raw = [&endian.u16(9)[..], &[0, 0], &u32s(&[7, 3 << 16 | 12]), b"ab\0\0\0\0\0\0"].concat();
        let head = [u64s(&[5]), u32s(&[7, 7]), u64s(&[time]), u32s(&[1, 0]), u64s(&[chain.len() as u64])];
        record(9, &[head.concat(), u64s(chain), u32s(&[raw.len() as u32]), raw].concat())
    };
    let end = [u32s(&[7, 7]), u64s(&[15]), u32s(&[1, 0]), u64s(&[5])].concat();
    let descriptions = if is_simpleperf {
        let whole = long_record(32777, &[u32s(&[formats.len() as u32]), formats].concat());
        let pieces = whole.chunks(100).map(|piece| long_record(32772, piece));
        // The end of the pieces, and an id of the event.
        pieces.chain([long_record(32773, &[]), long_record(32774, &u64s(&[1, 0, 5]))]).collect::<Vec<_>>()
    } else {
        vec![record(66, &u32s(&[formats.len() as u32, 0])), formats]
    };
    let magic = u64::from_le_bytes(*b"PERFILE2");
    [
        u64s(&[magic, 16]),
        record(64, &[attr, u64s(&[5])].concat()),
        descriptions.concat(),
        record(3, &[u32s(&[7, 7]), b"worker\0\0".to_vec(), end.clone()].concat()),
        sample(20, &[kernel, 0xffff_ffff_8100_0000]),
        record(2, &[u64s(&[5, 3]), end].concat()),
        sample(15, &[]),
    ]
    .concat()
}

/// Writes it.
pub(crate) fn write(root: &Path) -> Result {
    for endian in [Endian::Little, Endian::Big] {
        let (name, first) = if endian == Endian::Little { ("little", 0) } else { ("big", 1) };
        put(root, "page", &format!("{name}.page"), &[&[first], page(endian)?.as_slice()].concat())?;
        for compression in [Compression::None, Compression::zstd(1)] {
            let file = trace_file(Setup { endian, compression, page_size: 4096 })?;
            put(root, "file", &format!("{name}-{}.dat", compression.name()), &file)?;
        }
    }
    put(root, "file", "version-6.dat", &version_6()?)?;
    for (number, filter) in FILTERS.iter().enumerate() {
        put(root, "filter", &format!("{number}"), &[filter.as_bytes(), b"\n", &record()].concat())?;
    }
    for (number, print_fmt) in PRINT_FMTS.iter().enumerate() {
        let input = [print_fmt.as_bytes(), b"\n%%\n", &record()].concat();
        put(root, "print", &format!("{number}"), &input)?;
    }
    put(
        root,
        "format",
        "dynamic",
        &[FORMAT.as_bytes(), b"\n%%\n", b"\x09\0\0\0\x07\0\0\0\x0c\0\x03\0ab\0"].concat(),
    )?;
    for option in options() {
        let bytes = [&option.id().0.to_le_bytes(), option.encode(Endian::Little)?.as_slice()].concat();
        put(root, "options", &option.id().0.to_string(), &bytes)?;
    }
    put(root, "sections", "all", &sections()?)?;
    for (name, trace) in crate::ctf::seeds() {
        put(root, "ctf", name, &trace)?;
    }
    for (name, trace) in crate::ctf::seeds_of_fragments() {
        put(root, "ctf2", name, &trace)?;
    }
    put(root, "ledger", "ledger.json", LEDGER.as_bytes())?;
    put(root, "ledger", "state.json", br#"{"version":1,"threads":[{"tid":4,"comm":"x"}],"modules":[]}"#)?;
    put(root, "text", "tracefs", TRACE_TEXT)?;
    put(root, "text", "report", REPORT_TEXT)?;
    put(root, "text", "script", SCRIPT_TEXT)?;
    put(root, "latency", "irqsoff", LATENCY_TEXT)?;
    put(root, "systrace", "page", SYSTRACE_TEXT)?;
    put(root, "systrace", "quoted", QUOTED_TEXT)?;
    put(root, "perf", "stream", &perf_stream(Endian::Little, false))?;
    put(root, "perf", "big-stream", &perf_stream(Endian::Big, false))?;
    put(root, "perf", "simpleperf", &perf_stream(Endian::Little, true))?;
    {
        spool(root)?;
        piped(root)?;
        recorder(root)?;
        put(root, "control", "root", REQUESTS)?;
        put(root, "control", "user", &[b"user\n", REQUESTS].concat())?;
        put(root, "control", "snapshot", SNAPSHOT_REQUESTS)?;
        put(root, "saved", "lttng", include_bytes!("../../../agent/ctl/src/saved/lttng-2.13.9.xml"))?;
        put(root, "saved", "own", OWN_SESSION)?;
        put(root, "live", "all", &viewer(200))?;
        put(root, "live", "pieces", &viewer(7))?;
        for (name, minor) in [("2.4", 4), ("2.8", 8), ("2.11", 11), ("2.13", 13)] {
            put(root, "relayed", name, &relay_daemon(0, 255, minor))?;
        }
        put(root, "relayed", "snapshot", &relay_daemon(1, 255, 13))?;
        put(root, "relayed", "again-in-pieces", &relay_daemon(2, 3, 13))?;
    }
    Ok(())
}

/// The answers of a relay daemon that takes everything, behind how it is asked and how many bytes come at
/// once. With the minor version of its protocol they differ in their lengths.
fn relay_daemon(asked: u8, piece: u8, minor: u32) -> Vec<u8> {
    const OK: [u8; 4] = 10_u32.to_be_bytes();
    const PATH: &[u8] = b"host/session\0";
    let path = [&(PATH.len() as u32).to_be_bytes()[..], PATH].concat();
    let has_chunks = minor >= 11;
    let mut answers = vec![vec![asked, piece, 255], [2_u32.to_be_bytes(), minor.to_be_bytes()].concat()];
    if minor >= 12 {
        answers.push([&OK[..], &1_u64.to_be_bytes()].concat());
    }
    // The session.
    answers.push([&[0; 8][..], &OK].concat());
    if has_chunks {
        answers.push(path.clone());
        if asked & 2 != 0 {
            // The first chunk: begun, closed, there no more.
            answers.extend([OK.to_vec(), [&OK[..], &path].concat(), [&OK[..], &[0]].concat()]);
        }
        answers.push(OK.to_vec());
    }
    // Three streams, which are then shown.
    answers.extend((1..4_u64).map(|handle| [&handle.to_be_bytes()[..], &OK].concat()));
    answers.push(OK.to_vec());
    // Indexes, and what is stored.
    if asked & 1 == 0 {
        answers.extend([OK.to_vec(), OK.to_vec()]);
    }
    answers.extend([vec![0; 4], vec![0; 4]]);
    // Whatever comes next is taken, as far as it has this length.
    answers.extend(std::iter::repeat_n(OK.to_vec(), 64));
    answers.concat()
}

/// A session that writes files, with something of everything.
const REQUESTS: &[u8] = br#"POST /v1/sessions {"name":"s","mode":{"local":{"output":"/t"}},"format":"lttng"}
POST /v1/sessions/s/domains/kernel/channels {"name":"c","attributes":{"event_loss":"overwrite","subbuf_size":5000,"num_subbuf":2,"switch_timer_us":1,"output":"mmap"}}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"sched_*","instrumentation":"tracepoint","filter":"a < 3 && $ctx.pid == 1","exclusions":["x*"]}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"open*","instrumentation":{"syscall":"entry"}}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"k","instrumentation":{"kprobe":{"location":"do_exit+0x10"}}}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"f","instrumentation":{"function":{"location":"vfs_read"}}}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"u","instrumentation":{"user_probe":{"elf":{"path":"/bin/a","symbol":"main"}}}}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"m","instrumentation":{"user_probe":{"sdt":{"path":"/bin/a","provider":"p","name":"n"}}}}
PATCH /v1/sessions/s/domains/kernel/channels/c/rules {"name":"f","kind":"function","enabled":false}
DELETE /v1/sessions/s/domains/kernel/channels/c/rules {"name":"m","instrumentation":{"user_probe":{"sdt":{"path":"/bin/a","provider":"p","name":"n"}}}}
POST /v1/sessions/s/domains/kernel/channels/c/contexts {"contexts":["pid","perf:cpu:cycles","perf:cpu:raw:r3c:x","callstack-kernel","cgroup"]}
POST /v1/sessions/s/domains/user/channels {"name":"u"}
POST /v1/sessions/s/domains/user/channels/u/rules {"name":"app:*","instrumentation":"tracepoint"}
PATCH /v1/sessions/s/domains/user/channels/u {"enabled":false}
POST /v1/sessions/s/domains/kernel/trackers {"attribute":"vpid","values":{"only":["7"]},"add":true}
POST /v1/sessions/s/domains/kernel/trackers {"attribute":"comm","values":{"only":["bash*"]},"add":true}
POST /v1/sessions/s/schedules {"period_us":5}
POST /v1/sessions/s/schedules {"size_bytes":5}
DELETE /v1/sessions/s/schedules {"period_us":5}
POST /v1/sessions/s/start
POST /v1/sessions/s/rotations
POST /v1/sessions/s/stop
"#;

/// A session that keeps its newest events.
const SNAPSHOT_REQUESTS: &[u8] = br#"POST /v1/sessions {"mode":"snapshot","snapshot_output":"/s"}
POST /v1/sessions/s/snapshot-outputs {"name":"b","path":"/b","max_size":9}
DELETE /v1/sessions/s/snapshot-outputs/1
POST /v1/sessions/s/domains/kernel/channels {"name":"c"}
POST /v1/sessions/s/start
POST /v1/sessions/s/snapshots {"name":"n","path":"/p","max_size":5}
"#;

/// What `save` writes of what LTTng does not have.
const OWN_SESSION: &[u8] = br#"<?xml version="1.0" encoding="UTF-8"?>
<sessions xmlns:tracer-agent="urn:tracer-agent:session:1">
<session><name>&lt;s&gt;</name>
<domains><domain><type>KERNEL</type><buffer_type>GLOBAL</buffer_type>
<channels><channel><name>c</name><enabled>false</enabled><overwrite_mode>OVERWRITE</overwrite_mode>
<subbuffer_size>65536</subbuffer_size><subbuffer_count>8</subbuffer_count><output_type>MMAP</output_type>
<events><event><name>k</name><enabled>true</enabled><type>PROBE</type><loglevel_type>ALL</loglevel_type>
<attributes><probe_attributes><symbol_name>do_exit</symbol_name><offset>16</offset></probe_attributes></attributes></event>
<event><name>u</name><type>USERSPACE_PROBE</type><attributes><userspace_probe_function_attributes>
<lookup_method>ELF</lookup_method><binary_path>/bin/a</binary_path><function_name>main</function_name>
</userspace_probe_function_attributes></attributes></event>
<event><name>o*</name><type>SYSCALL</type><filter>a &lt; 3</filter><exclusions><exclusion>x</exclusion></exclusions>
<tracer-agent:syscall_part>entry</tracer-agent:syscall_part></event></events>
<contexts><context><perf><type>0</type><config>0</config><name>perf_cpu_cpu_cycles</name></perf></context>
<context><tracer-agent:context>cgroup</tracer-agent:context></context></contexts></channel></channels>
<process_attr_trackers><uid_process_attr_tracker><process_attr_values><uid><name>root</name></uid></process_attr_values>
</uid_process_attr_tracker></process_attr_trackers>
<tracer-agent:trackers><tracer-agent:tracker><tracer-agent:attribute>comm</tracer-agent:attribute>
<tracer-agent:value>bash*</tracer-agent:value></tracer-agent:tracker></tracer-agent:trackers></domain></domains>
<started>false</started><attributes><snapshot_mode>true</snapshot_mode></attributes>
<output><snapshot_outputs><output><name>snapshot-1</name><max_size>0</max_size><consumer_output><enabled>true</enabled>
<destination><path>/t/a</path></destination></consumer_output></output></snapshot_outputs></output>
<tracer-agent:format>trace-dat</tracer-agent:format></session></sessions>
"#;

fn put(root: &Path, target: &str, name: &str, bytes: &[u8]) -> Result {
    let dir = root.join(target);
    fs::create_dir_all(&dir)?;
    Ok(fs::write(dir.join(name), bytes)?)
}

/// A record of event 9.
fn record() -> Vec<u8> {
    let mut record = vec![9, 0, 0, 0, 42, 0, 0, 0, 12, 0, 6, 0];
    record.extend_from_slice(b"hello\0");
    record
}

/// A page with a loss before it, a long gap and a record with its length in a word of its own.
fn page(endian: Endian) -> Result<Vec<u8>> {
    let mut builder = PageBuilder::new(4096, endian)?;
    builder.missed(3);
    for (time, len) in [(1_000, 18), (2_000, 18), (5_000_000_000, 18), (5_000_000_007, 200)] {
        let mut record = record();
        if endian == Endian::Big {
            record[..2].reverse();
        }
        record.resize(len, 0);
        if builder.push(time, &record)? != Push::Stored {
            return Err("a page that is full".into());
        }
    }
    Ok(builder.finish().ok_or("an empty page")?.to_vec())
}

fn options() -> Vec<FileOption> {
    vec![
        FileOption::TraceClock("local [mono]".into()),
        FileOption::Uname("Linux".into()),
        FileOption::CpuStat("CPU: 0\nentries: 0\nread events: 4\n".into()),
        FileOption::Offset { nanos: 5 },
        FileOption::TraceId(7),
        FileOption::Unknown { id: OptionId::LEDGER, bytes: [LEDGER.as_bytes(), b"\0"].concat() },
    ]
}

fn trace_file(setup: Setup) -> Result<Vec<u8>> {
    let endian = setup.endian;
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup)?;
    writer.section(Section::header_info(endian, &layout::header_page_text(4096), "")?)?;
    writer.section(Section::event_formats(endian, &[EventSystem { name: "demo", formats: &[FORMAT] }])?)?;
    writer.section(Section::kallsyms(endian, b"ff T symbol\n")?)?;
    writer.section(Section::cmdlines(endian, &Cmdlines::from_iter([(42, "worker")])))?;
    for option in options() {
        writer.option(&option)?;
    }
    for (name, cpus) in [("", [0, 3]), ("named", [1, 2])] {
        let mut buffer = writer.begin_buffer(Buffer { name, clock: "mono", page_size: 4096 })?;
        // One page is enough, and all of them take their place in every input.
        buffer.write_cpu(cpus[usize::from(name.is_empty())], page(endian)?.as_slice())?;
        buffer.finish()?;
    }
    Ok(writer.finish()?.into_inner())
}

/// The same in version 6, which the writer does not write.
fn version_6() -> Result<Vec<u8>> {
    let endian = Endian::Little;
    let mut file = layout::MAGIC.to_vec();
    file.extend_from_slice(b"6\0\0\x08\0\x10\0\0");
    let sized = |file: &mut Vec<u8>, text: &[u8]| {
        file.extend_from_slice(&endian.u64(text.len() as u64));
        file.extend_from_slice(text);
    };
    file.extend_from_slice(b"header_page\0");
    sized(&mut file, layout::header_page_text(4096).as_bytes());
    file.extend_from_slice(b"header_event\0");
    sized(&mut file, b"");
    file.extend_from_slice(b"\0\0\0\0\x01\0\0\0demo\0\x01\0\0\0");
    sized(&mut file, FORMAT.as_bytes());
    file.extend_from_slice(b"\x0c\0\0\0ff T symbol\n\0\0\0\0");
    sized(&mut file, b"42 worker\n");
    file.extend_from_slice(b"\x01\0\0\0options  \0\x05\0\x06\0\0\0Linux\0\0\0flyrecord\0");
    let at = (file.len() as u64 + 16).next_multiple_of(4096);
    file.extend_from_slice(&endian.u64(at));
    file.extend_from_slice(&endian.u64(4096));
    file.resize(at as usize, 0);
    file.extend_from_slice(&page(endian)?);
    Ok(file)
}

fn sections() -> Result<Vec<u8>> {
    let mut formats = b"\x01\0\0\0demo\0\x01\0\0\0".to_vec();
    formats.extend_from_slice(&(FORMAT.len() as u64).to_le_bytes());
    formats.extend_from_slice(FORMAT.as_bytes());
    let names = b"\x0a\0\0\0\0\0\0\042 worker\n";
    let mut all = Vec::new();
    for option in options() {
        let bytes = option.encode(Endian::Little)?;
        all.extend_from_slice(&option.id().0.to_le_bytes());
        all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        all.extend_from_slice(&bytes);
    }
    let parts: [&[u8]; 6] =
        [b"\0\0\0\0", &formats, b"\x0c\0\0\0ff T symbol\n", b"\x0b\0\0\0" as &[u8], names, &all];
    Ok(parts.join(&b"\n%%\n"[..]))
}

/// The format by which a spool's user stacks are found.
const USER_STACK: &str = "name: user_stack\nID: 9\nformat:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned int tgid;\toffset:8;\tsize:4;\tsigned:0;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;

print fmt: \"%ps\", (void *)REC->caller[0]
";

/// What a recording leaves behind that was killed: while it ran, with and without compression and with user
/// stacks, and while its data were moved to a disk that was full.
fn spool(root: &Path) -> Result {
    let zstd = Compression::zstd(1);
    for (name, compression, stacks, moved) in [
        ("none", Compression::None, false, false),
        ("zstd", zstd, false, false),
        ("stacks", Compression::None, true, false),
        ("moved", Compression::None, false, true),
    ] {
        let manifest = manifest((compression, stacks), name == "zstd")?;
        let mut names = 42u32.to_le_bytes().to_vec();
        names.extend_from_slice(b"worker\0\0\0\0\0\0\0\0\0\0");
        let pages = page(Endian::Little)?;
        let mut compressor = tracedat::ChunkCompressor::new(compression, Endian::Little)?;
        let data = compressor.compress(&pages)?;
        let state = br#"{"version":1,"threads":[{"tid":4,"comm":"x"}],"modules":[]}"#;
        // The records' bytes, taken for frames: they are in no file.
        let mappings: &[u8] = b"m 6c6c6568 0 ffffffffffffffff 0 - //x\nf 6c6c6569 6c6c6568\nl 1\n";
        // The second page of the first CPU is in the draft only.
        let (first, journal, draft) = if moved {
            ([data, &[0; 4096]].concat(), journal(4096, 100, 4096), [&[0; 100], data].concat())
        } else {
            (data.to_vec(), Vec::new(), Vec::new())
        };
        let mappings = if stacks { mappings } else { b"" };
        let parts: [&[u8]; 10] =
            [&manifest, &names, state, &first, data, mappings, b"ff T symbol\n", &journal, &draft, data];
        put(root, "spool", name, &parts.join(&b"\n%%\n"[..]))?;
    }
    Ok(())
}

/// What describes the events of a recording, as its spool has it.
fn manifest((compression, stacks): (Compression, bool), is_archive: bool) -> Result<Vec<u8>> {
    let manifest = Manifest {
        output: "/nowhere/t.dat".into(),
        archive: is_archive.then_some(ArchiveName { begin_ns: 9, end_ns: None, number: 3 }),
        host: Host { boot_id: "none".into(), ..Host::default() },
        header_page: layout::header_page_text(4096),
        header_event: String::new(),
        ftrace_events: if stacks { vec![USER_STACK.into()] } else { Vec::new() },
        systems: vec![("demo".into(), vec![FORMAT.into()])],
        printk_formats: Vec::new(),
        uname: "Linux".into(),
        trace_clock: "[mono]".into(),
        clock_name: "mono".into(),
        realtime_offset: 5,
        realtime_uncertainty: 1,
        wall_time: true,
        channels: ["", "named"]
            .into_iter()
            .zip(0..)
            .map(|(name, number)| RecordedChannel {
                number,
                name: name.into(),
                overwrite: number == 1,
                ..RecordedChannel::default()
            })
            .collect(),
        only: Vec::new(),
        choices: Vec::new(),
        marks_compat: Some(true),
        is_assumed: false,
        cpu_count: 2,
        trace_id: 7,
        proc_maps: vec![b"1 0 x\n".to_vec()],
        compression,
    };
    let dir = tempfile::tempdir()?;
    let (spool, _) = Spool::create(&Output::at(&dir.path().join("t.dat"))?)?;
    manifest.store(&spool)?;
    Ok(fs::read(spool.file("manifest"))?)
}

/// What a viewer says that asks for everything once, in pieces of so many bytes.
fn viewer(piece: u8) -> Vec<u8> {
    let mut said = vec![piece];
    let mut ask = |command: u32, words: &[u32]| {
        said.extend((4 * words.len() as u64).to_be_bytes());
        said.extend([command, 0].into_iter().chain(words.iter().copied()).flat_map(u32::to_be_bytes));
    };
    ask(1, &[0, 0, 2, 4, 1]);
    ask(2, &[]);
    ask(8, &[]);
    ask(3, &[0, 1, 0, 0, 2]);
    ask(7, &[0, 1]);
    ask(4, &[0, 3]);
    ask(5, &[0, 3, 0, 0, 4096]);
    ask(6, &[0, 2]);
    ask(9, &[0, 1]);
    said
}

/// Recordings in a pipe: whole ones, with and without compression, and one that was cut off.
fn piped(root: &Path) -> Result {
    use crate::piped::frame;

    for (name, compression, is_cut) in [
        ("none", Compression::None, false),
        ("zstd", Compression::zstd(1), false),
        ("cut", Compression::None, true),
    ] {
        let manifest = manifest((compression, false), false)?;
        let pages = page(Endian::Little)?;
        let mut compressor = tracedat::ChunkCompressor::new(compression, Endian::Little)?;
        let chunk = compressor.compress(&pages)?;
        let stream = |channel: u32, cpu: u32| [channel.to_le_bytes(), cpu.to_le_bytes()].concat();
        let mut frames = vec![
            frame(1, &[&[1], &manifest]),
            frame(1, &[&[3], b"ff T symbol\n"]),
            frame(1, &[&[5], b"fe t function\n"]),
            frame(1, &[&[7], &[1; 16]]),
            frame(2, &[&42_u32.to_le_bytes(), b"worker\0\0\0\0\0\0\0\0\0\0"]),
            frame(3, &[&stream(0, 0), &1000_u64.to_le_bytes(), chunk]),
            frame(3, &[&stream(1, 1), &1000_u64.to_le_bytes(), chunk]),
            frame(4, &[&6_000_000_000_u64.to_le_bytes()]),
        ];
        if !is_cut {
            let (data, len) = (2 * chunk.len() as u64, 2 * chunk.len() as u64 + 5);
            frames.extend([
                frame(5, &[b"begin"]),
                frame(6, &[&stream(0, 0), &(chunk.len() as u64).to_le_bytes()]),
                frame(6, &[&stream(1, 1), &(chunk.len() as u64).to_le_bytes()]),
                frame(7, &[[0, data, 8, len].map(u64::to_le_bytes).as_flattened()]),
            ]);
        }
        put(root, "piped", name, &frames.concat())?;
    }
    Ok(())
}

/// What recorders say to a listener, in both versions of the protocol.
fn recorder(root: &Path) -> Result {
    let message = |command: u32, fixed: &[u32], body: &[u8]| {
        let numbers = [12 + 4 * fixed.len() as u32 + body.len() as u32, command, 4 * fixed.len() as u32];
        let numbers: Vec<u8> = numbers.iter().chain(fixed).flat_map(|number| number.to_be_bytes()).collect();
        [&numbers, body].concat()
    };
    let v3 = |init: Vec<u8>| {
        let messages = [init, message(3, &[], b"a trace file"), message(4, &[], &[]), message(0, &[], &[])];
        [b"-1V3\x00766679\0\0", &messages.concat()[..]].concat()
    };
    put(root, "recorder", "tcp", &v3(message(1, &[2, 4096, 1], b"tcp\0")))?;
    put(root, "recorder", "udp", &v3(message(1, &[1, 4096, 0], b"")))?;
    put(root, "recorder", "later", &[b"-1V4\0", &v3(message(1, &[1, 8192, 1], b"vsock\0"))[..]].concat())?;
    put(root, "recorder", "v1", b"2\x004096\x001\x004\0TCP\0a trace file")
}

/// The journal of a move of `len` bytes at `from` of CPU 0's first segment to `to` in the draft: rows of 64
/// bytes.
fn journal(from: u64, to: u64, len: u64) -> Vec<u8> {
    let mut journal = b"TAMOVED1".to_vec();
    journal.resize(64, 0);
    for number in [0, 0, from, to, len] {
        journal.extend_from_slice(&number.to_le_bytes());
    }
    journal.resize(128, 0);
    journal
}
