//! Texts as they are found, and the same texts in the records that are made of them.

use std::io::Cursor;

use super::super::{Imported, Options, import_to, read_back::lines};
use super::*;
use ftrace_event::Format;
use stdx::output::Directory;
use tracedat::reader::Reader;

fn imported(text: &str) -> Result<(Reader<Vec<u8>>, Imported), ImportError> {
    let temp = tempfile::tempdir().unwrap();
    let dir = Directory::open(temp.path()).unwrap();
    let read = |mut source: TextTrace| {
        let out = Cursor::new(Vec::new());
        import_to(&mut source, out, &dir, Options::default(), &mut |_| true)
    };
    let (out, imported) = read(TextTrace::open(Box::new(text.as_bytes().to_vec())))?;
    let (begin, rest) = text.as_bytes().split_at(text.len().min(7));
    let (same, _) = read(TextTrace::stream(begin.to_vec(), Box::new(Cursor::new(rest.to_vec()))))?;
    assert!(out.get_ref() == same.get_ref(), "a stream is another file");
    Ok((Reader::open(out.into_inner()).unwrap(), imported))
}

fn fields(reader: &Reader<Vec<u8>>, name: &str) -> Vec<String> {
    let formats = reader.metadata().systems.iter().flat_map(|system| &system.formats);
    let format = formats.map(|text| Format::parse(text).unwrap()).find(|format| format.name == name).unwrap();
    format.fields.iter().map(ToString::to_string).collect()
}

const TRACE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 6/10   #P:4
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
          <idle>-0       [001] dNh2.  3812.304873: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_state=R ==> next_comm=opt cgu.06 next_pid=13705 next_prio=120
      opt cgu.06-13705   [001] d..2.  3812.304974: sched_switch: prev_comm=opt cgu.06 prev_pid=13705 prev_state=R+ ==> next_comm=a [b] next_pid=7 next_prio=-1
CPU:1 [LOST 12 EVENTS]
           a [b]-7       [001] D.Zf3  3812.304990: sched_stat_runtime: comm=a [b] pid=7 runtime=5 [ns] cpu=003
    kworker/0:1H-8       (-------) [000] .....  3812.305000123: tracing_mark_write: hello 100% \"world\"
               x-9       [001] .....  3812.305100: <stack trace>
 => one+0x1/0x2
 => two
               x-9       [001] .....  3812.305200: sys_write(fd: 1, buf: 7f, count: 5)
               x-9       [001] .....  3812.305210: sys_write -> 0x5
               x-9       [001] .....  3812.305220: vfs_read <-ksys_read
               x-9       [001] .....  3812.305230: 0xffffffff81000000: a printk
           x y z-10    [000]  3812.305240: sched_stat_runtime:   comm=x pid=10 runtime=50 [ns] cpu=012
";

#[test]
fn the_text_of_tracefs() {
    let (reader, imported) = imported(TRACE).unwrap();
    assert_eq!(
        lines(&reader),
        [
            "0 1 3812304873000 text:sched_switch prev_comm=swapper/1 prev_pid=0 prev_state=R ==> \
             next_comm=opt cgu.06 next_pid=13705 next_prio=120",
            "0 1 3812304974000 text:sched_switch prev_comm=opt cgu.06 prev_pid=13705 prev_state=R+ ==> \
             next_comm=a [b] next_pid=7 next_prio=-1",
            "0 1 3812304990000 text:sched_stat_runtime comm=a [b] pid=7 runtime=5 [ns] cpu=003 after 12 lost",
            "0 0 3812305000123 text:tracing_mark_write hello 100% \"world\"",
            "0 1 3812305100000 text:kernel_stack_text <stack trace>\n => one+0x1/0x2\n => two",
            "0 1 3812305200000 syscalls:sys_enter_write sys_write(fd: 1, buf: 7f, count: 5)",
            "0 1 3812305210000 syscalls:sys_exit_write sys_write -> 0x5",
            "0 1 3812305220000 text:function_text vfs_read <-ksys_read",
            "0 1 3812305230000 text:line 0xffffffff81000000: a printk",
            "0 0 3812305240000 text:sched_stat_runtime comm=x pid=10 runtime=50 [ns] cpu=012",
        ]
    );
    assert_eq!(
        fields(&reader, "sched_switch"),
        [
            "__data_loc char[] prev_comm",
            "s32 prev_pid",
            "__data_loc char[] prev_state",
            "__data_loc char[] next_comm",
            "s32 next_pid",
            "s32 next_prio"
        ]
    );
    assert_eq!(fields(&reader, "sched_stat_runtime")[3], "s32 cpu");
    assert_eq!(imported.lost, 12);
    let not_carried: Vec<_> = imported.not_carried.iter().collect();
    assert_eq!(not_carried, [("events that were overwritten before the text was made, by its header", 4)]);
    assert_eq!(reader.cpu_count(), 4);
    for (pid, name) in [(13705, "opt cgu.06"), (7, "a [b]"), (8, "kworker/0:1H"), (10, "x y z")] {
        assert_eq!(reader.metadata().cmdlines.get(pid), Some(name.as_bytes()));
    }
    let mut records = reader.records().unwrap();
    let first = records.next_record().unwrap().unwrap();
    // Interrupts off, NEED_RESCHED and PREEMPT_RESCHED, in an interrupt; preemption disabled twice.
    assert_eq!(first.data[2..4], [0x01 | 0x24 | 0x08, 0x02]);
    records.next_record().unwrap();
    let third = records.next_record().unwrap().unwrap();
    assert_eq!(third.data[2..4], [0x01 | 0x80 | 0x48, 0x3f]);
}

/// A format with what takes some thought: a state by an expression, flags, names, both kinds of texts, and a
/// field that is not printed.
const FORMAT: &str = "name: made\nID: 77\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:long state;\toffset:24;\tsize:8;\tsigned:1;\n\
    \tfield:u32 flags;\toffset:32;\tsize:4;\tsigned:0;\n\
    \tfield:u32 kind;\toffset:36;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] path;\toffset:40;\tsize:4;\tsigned:0;\n\
    \tfield:int hidden;\toffset:44;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"comm=%s state=%s%s flags=%s kind=%s at=%03d path=%s\", REC->comm, \
    (REC->state & 0xff) ? __print_flags(REC->state & 0xff, \"|\", { 1, \"S\" }, { 2, \"D\" }) : \"R\", \
    REC->state & 0x100 ? \"+\" : \"\", __print_flags(REC->flags, \"|\", { 1, \"A\" }, { 4, \"B\" }), \
    __print_symbolic(REC->kind, { 0, \"zero\" }, { 9, \"nine\" }), REC->kind, __get_str(path)\n";

#[test]
fn records_of_known_formats() {
    let temp = tempfile::tempdir().unwrap();
    let event = temp.path().join("events/mine/made");
    std::fs::create_dir_all(&event).unwrap();
    std::fs::write(event.join("format"), FORMAT).unwrap();
    let formats = Formats::in_directory(temp.path()).unwrap();
    let read = |text: &str| {
        let dir = Directory::open(temp.path()).unwrap();
        let source = TextTrace::open(Box::new(text.as_bytes().to_vec()));
        let mut source = source.with_formats(Some(formats.clone()));
        let out = Cursor::new(Vec::new());
        let (out, _) = import_to(&mut source, out, &dir, Options::default(), &mut |_| true).unwrap();
        Reader::open(out.into_inner()).unwrap()
    };
    let text = "\
a-1 [000] d..1. 1.0: made: comm=x y state=S|D+ flags=A|B|0x10 kind=nine at=009 path=/tmp/a b
b-2 [000] ..... 2.0: made: comm= state=R flags= kind=0x7 at=007 path=
";
    let reader = read(text);
    assert_eq!(
        lines(&reader),
        [
            "0 0 1000000000 mine:made comm=x y state=S|D+ flags=A|B|0x10 kind=nine at=009 path=/tmp/a b",
            "0 0 2000000000 mine:made comm= state=R flags= kind=0x7 at=007 path=",
        ]
    );
    let mut records = reader.records().unwrap();
    let record = records.next_record().unwrap().unwrap();
    assert_eq!(record.data[..8], [77, 0, 1, 1, 1, 0, 0, 0]);
    assert_eq!(
        record.data[24..48],
        [3, 1, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 0, 9, 0, 0, 0, 48, 0, 9, 0, 0, 0, 0, 0]
    );
    // One text that the format does not print, and fields are what the texts have in common.
    let reader = read(&text.replace("at=007", "at=7"));
    assert_eq!(reader.metadata().systems.last().unwrap().name, "text");
    assert!(lines(&reader)[1].contains("kind=0x7 at=7 path="));
}

#[test]
fn reports_of_trace_cmd() {
    let text = "\
cpus=2
net:             w.sh-231   [000]    21.829259: sys_exit:             NR 1 = 1
 mm:             w.sh-231   [000]    21.829374: kmalloc:              call_site=alloc_bprm+0x46 ptr=0xff4183d6018dea00 bytes_req=416
                 w.sh-231   [000]    21.829728: sched_switch:         trace-cmd:231 [120] R ==> rcu_preempt:18 [120]
CPU:0 [EVENTS DROPPED]
      kworker/0:1-18    [000]    21.829769: sched_switch:         rcu_preempt:18 [120] W ==> trace-cmd:231 [120]
 mm:             w.sh-231   [000]    21.829980: kmalloc:              call_site=lsm_blob_alloc+0x2d ptr=0xff4183d6011e4720 bytes_req=16
";
    let (reader, imported) = imported(text).unwrap();
    let names: Vec<_> = reader.buffers().iter().map(|buffer| buffer.name.as_str()).collect();
    assert_eq!(names, ["", "net", "mm"]);
    assert_eq!(
        lines(&reader),
        [
            "1 0 21829259000 text:sys_exit NR 1 = 1",
            "2 0 21829374000 text:kmalloc call_site=alloc_bprm+0x46 ptr=0xff4183d6018dea00 bytes_req=416",
            "0 0 21829728000 text:sched_switch trace-cmd:231 [120] R ==> rcu_preempt:18 [120]",
            "0 0 21829769000 text:sched_switch rcu_preempt:18 [120] W ==> trace-cmd:231 [120] after 0 lost",
            "2 0 21829980000 text:kmalloc call_site=lsm_blob_alloc+0x2d ptr=0xff4183d6011e4720 bytes_req=16",
        ]
    );
    assert_eq!(fields(&reader, "kmalloc"), ["__data_loc char[] call_site", "u64 ptr", "s32 bytes_req"]);
    assert!(imported.lost_unknown);
    assert_eq!(reader.metadata().cmdlines.get(18), Some(b"kworker/0:1".as_slice()));
}

#[test]
fn scripts_of_perf() {
    let text = "\
            perf 18440 [000]  1235.441342026:                  raw_syscalls:sys_exit: NR 16 = 0
       my prog 7/8 [001]  1235.441351460:       sched:sched_wakeup: comm=x pid=5 target_cpu=001
            true    -1 [001]  1235.441352:     sched:sched_wakeup: comm=y pid=6 target_cpu=000
";
    let (reader, _) = imported(text).unwrap();
    assert_eq!(
        lines(&reader),
        [
            "0 0 1235441342026 raw_syscalls:sys_exit NR 16 = 0",
            "0 1 1235441351460 sched:sched_wakeup comm=x pid=5 target_cpu=001",
            "0 1 1235441352000 sched:sched_wakeup comm=y pid=6 target_cpu=000",
        ]
    );
    assert_eq!(reader.metadata().cmdlines.get(8), Some(b"my prog".as_slice()));
}

#[test]
fn texts_that_differ_from_each_other() {
    let text = |texts: &[&str]| -> String {
        let lines = texts.iter().enumerate();
        lines.map(|(at, text)| format!("a-1 [000] 1.{at:06}: e: {text}\n")).collect::<Vec<_>>().concat()
    };
    for texts in [
        // Names that differ, that come twice, that are within values.
        ["a=1 b=2", "a=1 c=2"],
        ["a=1 a=2", "a=3 a=4"],
        ["a=x=y b=2", "a=1 b=2"],
        ["a= b=", "a=  b= "],
        // Numbers that are not all written in one way.
        ["a=1 b=0x1f c=-5 d=007", "a=01 b=0x01 c=5 d=1234"],
        ["a=18446744073709551615 b=-9223372036854775808", "a=0 b=9223372036854775807"],
        ["a=18446744073709551616 b=-0", "a=-1 b=0"],
        ["a=-1 b=1", "a=18446744073709551615 b=1"],
        // What divides values differs.
        ["a=1, b=2; c=(3) d=4%", "a=1 b=2, c=3) d=4"],
        ["x {a=1,b=[2]} [ns]", "y {a=1,b=[2]} [us]"],
        ["a=caf\u{e9} \u{1f600}", "a=b"],
        ["%s a=%d \\n \"q\"", "%s a=%d \\n \"q\""],
        ["", "a=1"],
    ] {
        let (reader, _) = imported(&text(&texts)).unwrap();
        let found: Vec<_> =
            lines(&reader).iter().map(|line| line[line.find("text:e").unwrap() + 7..].to_owned()).collect();
        assert_eq!(found, texts);
    }
}

#[test]
fn what_is_no_text_of_a_trace() {
    for text in ["", "hello\nworld\n", "# tracer: nop\n", "a-1 [000] time: x\n", "a-1 [0x1] 1.0: e: x\n"] {
        let error = imported(text).map(drop).unwrap_err().to_string();
        assert!(error.contains("TASK-PID [CPU]"), "{text:?}: {error}");
        assert!(!TextTrace::recognise(text.as_bytes()), "{text}");
    }
    assert!(TextTrace::recognise(TRACE.as_bytes()));
    // Lines of any length, and bytes that are no text.
    let long = format!(
        "a-1 [000] 1.0: e: {}\nb-2 [000] 2.0: e: x\u{7}\n{}",
        "x".repeat(200_000),
        "y\n".repeat(90_000)
    );
    let (reader, imported) = imported(&long).unwrap();
    assert_eq!(lines(&reader).len(), 2);
    assert!(imported.not_carried.iter().any(|(what, _)| what.contains("too long")));
}
