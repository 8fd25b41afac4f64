//! Texts as they are found, and the same texts in the records that are made of them.

use std::io::Cursor;

use super::super::{Imported, Options, import_to, read_back::lines};
use super::*;
use ftrace_event::{EventTable, Format, Machine, Meaning, NoNames};
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
            "0 1 3812304873000 sched:sched_switch prev_comm=swapper/1 prev_pid=0 prev_state=R ==> \
             next_comm=opt cgu.06 next_pid=13705 next_prio=120",
            "0 1 3812304974000 sched:sched_switch prev_comm=opt cgu.06 prev_pid=13705 prev_state=R+ ==> \
             next_comm=a [b] next_pid=7 next_prio=-1",
            "0 1 3812304990000 sched:sched_stat_runtime comm=a [b] pid=7 runtime=5 [ns] cpu=003 after 12 lost",
            "0 0 3812305000123 text:tracing_mark_write hello 100% \"world\"",
            "0 1 3812305100000 text:kernel_stack_text <stack trace>\n => one+0x1/0x2\n => two",
            "0 1 3812305200000 syscalls:sys_enter_write sys_write(fd: 1, buf: 7f, count: 5)",
            "0 1 3812305210000 syscalls:sys_exit_write sys_write -> 0x5",
            "0 1 3812305220000 text:function_text vfs_read <-ksys_read",
            "0 1 3812305230000 text:line 0xffffffff81000000: a printk",
            "0 0 3812305240000 sched:sched_stat_runtime comm=x pid=10 runtime=50 [ns] cpu=012",
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
            "1 0 21829259000 raw_syscalls:sys_exit NR 1 = 1",
            "2 0 21829374000 kmem:kmalloc call_site=alloc_bprm+0x46 ptr=0xff4183d6018dea00 bytes_req=416",
            "0 0 21829728000 sched:sched_switch trace-cmd:231 [120] R ==> rcu_preempt:18 [120]",
            "0 0 21829769000 sched:sched_switch rcu_preempt:18 [120] W ==> trace-cmd:231 [120] after 0 lost",
            "2 0 21829980000 kmem:kmalloc call_site=lsm_blob_alloc+0x2d ptr=0xff4183d6011e4720 bytes_req=16",
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

/// Text in the format that tracefs has without any option.
fn nop(lines: &str) -> String {
    format!("# tracer: nop\n#\n{lines}")
}

/// Numbers of a field in the records of an event.
fn numbers(reader: &Reader<Vec<u8>>, event: &str, field: &str, meaning: Meaning) -> Vec<Option<u64>> {
    let mut table = EventTable::new(Machine::default());
    for system in &reader.metadata().systems {
        for format in &system.formats {
            table.add(&system.name, format, &NoNames).unwrap();
        }
    }
    let mut found = Vec::new();
    let mut records = reader.records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let printer = table.of_record(record.data).unwrap();
        if format!("{}:{}", printer.system(), printer.name()) == event {
            found.push(printer.typed(field, meaning).and_then(|field| field.number(record.data)));
        }
    }
    found
}

fn switches(states: &[&str]) -> String {
    let line = |(at, state): (usize, &&str)| {
        format!(
            "  a-1 [000] d..2 1.{at:06}: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state={state} ==> next_comm=b:c next_pid=2 next_prio=120\n"
        )
    };
    nop(&states.iter().enumerate().map(line).collect::<Vec<_>>().concat())
}

#[test]
fn states_are_those_of_the_kernel_whatever_its_letters() {
    for (states, bits) in [
        (&["S", "D", "R", "R+", "X", "Z", "I"][..], &[1, 2, 0, 0x100, 0x10, 0x20, 0x80][..]),
        (&["S", "x", "D|K", "D|W", "Z", "X"], &[1, 0x10, 2, 2, 0x20, 0x10]),
        // What no table prints.
        (&["S", "R|K", "x"], &[1, 0, 0x10]),
    ] {
        let (reader, _) = imported(&switches(states)).unwrap();
        let found = numbers(&reader, "sched:sched_switch", "prev_state", Meaning::State);
        assert_eq!(found, bits.iter().copied().map(Some).collect::<Vec<_>>(), "{states:?}");
        let pids = numbers(&reader, "sched:sched_switch", "next_pid", Meaning::Number);
        assert_eq!(pids, vec![Some(2); states.len()]);
        let texts = lines(&reader);
        assert!(
            texts.iter().zip(states).all(|(line, state)| line.contains(&format!("prev_state={state} ==>")))
        );
    }
}

#[test]
fn texts_of_other_fields_than_the_kernels_are_no_numbers() {
    let text = nop("  a-1 [000] d..2 1.0: sched_waking: comm=b pid=x prio=120 target_cpu=000\n");
    let (reader, _) = imported(&text).unwrap();
    assert_eq!(numbers(&reader, "sched:sched_waking", "pid", Meaning::Number), [None]);
    assert_eq!(numbers(&reader, "sched:sched_waking", "prio", Meaning::Number), [Some(120)]);
}

#[test]
fn events_of_trace_cmd_and_perf_have_the_kernels_fields() {
    let text = "\
cpus=1
     kworker/0:1-18    [000]     1.000001: sched_switch:         kworker/0:1:18 [120] S ==> a [1]:2:7 [-1]
     kworker/0:1-18    [000]     1.000002: sched_waking:         kworker/u8:3:30 [120] CPU:003
     kworker/0:1-18    [000]     1.000003: sched_wakeup:         b:30 [120] success=1 CPU:001
     kworker/0:1-18    [000]     1.000004: sys_enter:            NR 16 (13, 5401, 7ffc0, 0, 0, ffffffffffffffff)
     kworker/0:1-18    [000]     1.000005: sys_exit:             NR 16 = -25
";
    let (reader, imported) = imported(text).unwrap();
    let number = |event, field| numbers(&reader, event, field, Meaning::Number);
    assert_eq!(number("sched:sched_switch", "prev_pid"), [Some(18)]);
    assert_eq!(number("sched:sched_switch", "next_pid"), [Some(7)]);
    assert_eq!(number("sched:sched_waking", "pid"), [Some(30)]);
    assert_eq!(number("sched:sched_wakeup", "success"), [Some(1)]);
    assert_eq!(number("raw_syscalls:sys_enter", "id"), [Some(16)]);
    assert_eq!(number("raw_syscalls:sys_exit", "ret"), [Some(25_u64.wrapping_neg())]);
    assert_eq!(fields(&reader, "sys_enter"), ["long id", "unsigned long args[6]"]);
    let printed = lines(&reader);
    assert!(printed[0].ends_with("kworker/0:1:18 [120] S ==> a [1]:2:7 [-1]"), "{printed:?}");
    assert!(printed[3].ends_with("NR 16 (13, 5401, 7ffc0, 0, 0, ffffffffffffffff)"), "{printed:?}");
    assert!(imported.not_carried.is_empty());
}

#[test]
fn a_text_that_is_like_no_other_is_a_loss_of_its_event() {
    let mut text = switches(&["S", "D", "S", "S"]);
    text += "  a-1 [000] d..2 1.000007: sched_switch: prev_comm=a prev_\n";
    let (reader, imported) = imported(&text).unwrap();
    assert_eq!(numbers(&reader, "sched:sched_switch", "prev_state", Meaning::State).len(), 4);
    let printed = lines(&reader);
    assert_eq!(printed[4], "0 0 1000007000 text:sched_switch prev_comm=a prev_ after 1 lost");
    let told: Vec<_> = imported.not_carried.iter().collect();
    assert!(told[0].1 == 1 && told[0].0.contains("line 7: prev_comm=a prev_"), "{told:?}");
}

/// Flags and preempt counts of all records.
fn flags(text: &str) -> Vec<(u8, u8)> {
    let (reader, _) = imported(text).unwrap();
    let mut records = reader.records().unwrap();
    let mut found = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        found.push((record.data[2], record.data[3]));
    }
    found
}

#[test]
fn columns_of_flags_are_those_of_the_header() {
    let text = "\
# tracer: nop
#
#                                _-------=> irqs-off
#                               / _------=> need-resched
#                              | / _-----=> need-resched-lazy
#                              || / _----=> hardirq/softirq
#                              ||| / _---=> preempt-depth
#                              |||| / _--=> preempt-lazy-depth
#                              ||||| / _-=> migrate-disable
#                              |||||| /     delay
#           TASK-PID     CPU#  |||||||  TIMESTAMP  FUNCTION
#              | |         |   |||||||      |         |
          bash-7     [000] d..h3..   100.000001: x: a=1
          bash-7     [000] ..Ls..1   100.000002: x: a=2
          bash-7     [000] .N..1.2   100.000003: x: a=3
";
    assert_eq!(flags(text), [(9, 3), (16 | 2, 16), (36, 33)]);
    // Without the lazy columns, the same letters are something else.
    let without = text.replace("#                              | / _-----=> need-resched-lazy\n", "");
    let without = without.replace("#                              |||| / _--=> preempt-lazy-depth\n", "");
    assert_eq!(
        flags(&without.replace("d..h3..", "d.h3.").replace("..Ls..1", "..s.1").replace(".N..1.2", ".N.12"))
            [2],
        (36, 33)
    );
}

#[test]
fn the_latency_format() {
    let text = "\
# tracer: irqsoff
#
# irqsoff latency trace v1.1.5 on 5.10.0
# --------------------------------------------------------------------
# latency: 21 us, #4/4, CPU#0 | (M:preempt VP:0, KP:0, SP:0 HP:0 #P:4)
#    -----------------
#                  _------=> CPU#
#                 / _-----=> irqs-off
#                | / _----=> need-resched
#                || / _---=> hardirq/softirq
#                ||| / _--=> preempt-depth
#                |||| /     delay
#  cmd     pid   ||||| time  |   caller
#     \\   /      |||||  \\    |   /
  <idle>-0       0d.s2    0us+: _raw_spin_lock_irq <-handle_softirqs
  a-b 1-70      12dNs3   17us : sched_waking: comm=b pid=2 prio=120 target_cpu=000
  <idle>-0       0dNs3   25us!: <stack trace>
 => handle_softirqs
";
    let (reader, _) = imported(text).unwrap();
    assert_eq!(
        lines(&reader),
        [
            "0 0 0 text:function_text _raw_spin_lock_irq <-handle_softirqs",
            "0 12 17000 sched:sched_waking comm=b pid=2 prio=120 target_cpu=000",
            "0 0 25000 text:kernel_stack_text <stack trace>\n => handle_softirqs",
        ]
    );
    assert_eq!(flags(text), [(0x11, 2), (0x35, 3), (0x35, 3)]);
    assert!(TextTrace::recognise(text.as_bytes()));
    // `report -l`, which has no header.
    let (reader, _) = imported("cpus=2\n   trace-cmd-1868    1d..3 18.000001: x: a=1\n").unwrap();
    assert_eq!(lines(&reader), ["0 1 18000001000 text:x a=1"]);
    assert_eq!(numbers(&reader, "text:x", "common_pid", Meaning::Number), [Some(1868)]);
}

#[test]
fn the_function_graph_is_refused_by_its_name() {
    let text = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n 0)               |  sys_read() {\n 0)   0.5 us      |  }\n";
    assert!(TextTrace::recognise(text.as_bytes()));
    assert!(matches!(imported(text), Err(ImportError::Unsupported(why)) if why.contains("function_graph")));
}

#[test]
fn processes_of_threads_are_kept() {
    let text = nop("\
         pool:71-302   (   71) [005] ....   612.017446: tracing_mark_write: B|71|nextFrame
          server-71    (   71) [000] ....   612.020818: tracing_mark_write: E|71
          <idle>-0     (-----) [003] d..3   612.020900: x: a=1
               y-9     (-----) [003] d..3   612.020910: x: a=1
");
    let (reader, _) = imported(&text).unwrap();
    let state = reader.initial_state().unwrap().unwrap();
    let threads: Vec<_> =
        state.threads.iter().map(|thread| (thread.tid, thread.tgid, &*thread.comm)).collect();
    assert_eq!(threads, [(71, 71, "server"), (302, 71, "pool:71")]);
    assert_eq!((state.began_ns, state.files.len()), (612_017_446_000, 0));
    let (reader, _) = imported("b 7/8 [001] 1.5: a:b: c=1\n").unwrap();
    let state = reader.initial_state().unwrap().unwrap();
    let threads: Vec<_> = state.threads.iter().map(|thread| (thread.tid, thread.tgid)).collect();
    assert_eq!(threads, [(7, 7), (8, 7)]);
    assert!(imported(TRACE).unwrap().0.initial_state().unwrap().is_none());
}

#[test]
fn traces_in_pages_of_systrace() {
    let begin = format!(
        "<!DOCTYPE html>\n<html>\n<script>\n{}</script>\n",
        "function f(a) { b-1 [0]; }\n".repeat(500)
    );
    let trace = "# tracer: nop\n  a-1 [000] d..2 1.000001: x: a=1\n  a-1 [000] d..2 1.000002: x: a=2\n";
    let expected = ["0 0 1000001000 text:x a=1", "0 0 1000002000 text:x a=2"];
    let tag = "<script class=\"trace-data\" type=\"application/text\">";
    let other = format!("{tag}\nUSER PID\nroot 1\n</script>\n");
    let new = format!("{begin}{other}{tag}\n{trace}</script>\n{other}<!-- END -->\n</body>\n</html>\n");
    let quoted = trace.replace('\n', "\\n\\\n");
    let old =
        format!("{begin}<script>\n  var linuxPerfData = \"\\\n{quoted}\\n\";\n</script>\n</body>\n</html>\n");
    for page in [new, old] {
        assert!(TextTrace::recognise(page.as_bytes()));
        let (reader, _) = imported(&page).unwrap();
        assert_eq!(lines(&reader), expected);
    }
}

#[test]
fn losses_in_scripts_of_perf_and_of_ours() {
    let text = "\
# CPU 0: 12 events lost
            perf 18440/18440 [000]  1235.441342026: a:b: c=1
            perf 18440/18440 [001]  1235.441342030: a:b: c=2
# CPU 1: events lost
            perf 18440/18440 [001]  1235.441342040: a:b: c=3
	ffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])
	ffffffffc0001000 [unknown] ([nf_tables])
	ffffffffff600000 [unknown] ([unknown])
	    7f0000001000 main+0x10 (/bin/true)
	               0 [unknown] ([unknown])

            perf 18440 [001]  1235.441342050: PERF_RECORD_LOST lost 7
            perf 18440/18440 [001]  1235.441342060: a:b: c=4
# CPU 0: 5 events lost
";
    let (reader, imported) = imported(text).unwrap();
    assert_eq!(
        lines(&reader),
        [
            "0 0 1235441342026 a:b c=1 after 12 lost",
            "0 1 1235441342030 a:b c=2",
            "0 1 1235441342040 a:b c=3 after 0 lost",
            "0 1 1235441342040 ftrace:kernel_stack <stack trace>\n => 0xffffffff821facd8\n => 0xffffffffc0001000",
            "0 1 1235441342040 ftrace:user_stack <user stack trace>\n => 0xffffffffff600000\n => 0x7f0000001000",
            "0 1 1235441342060 a:b c=4 after 7 lost",
        ]
    );
    assert_eq!(
        stacks(&reader),
        [vec![0xffff_ffff_821f_acd8, 0xffff_ffff_c000_1000], vec![0xffff_ffff_ff60_0000, 0x7f00_0000_1000]]
    );
    assert_eq!((imported.lost, imported.lost_unknown), (24, true));
    assert_eq!(imported.not_carried.iter().collect::<Vec<_>>(), [("names of functions in call chains", 2)]);
}

/// The frames of all stacks.
fn stacks(reader: &Reader<Vec<u8>>) -> Vec<Vec<u64>> {
    let machine = Machine { endian: reader.header().endian, long_size: 8 };
    let mut table = EventTable::new(machine);
    for system in &reader.metadata().systems {
        for format in &system.formats {
            table.add(&system.name, format, &NoNames).unwrap();
        }
    }
    let (mut records, mut found) = (reader.records().unwrap(), Vec::new());
    while let Some(record) = records.next_record().unwrap() {
        let event = table.get(record.event_id().unwrap()).unwrap();
        found.extend(event.frames(record.data).map(Iterator::collect::<Vec<_>>));
    }
    found
}

#[test]
fn a_stack_without_its_event_is_only_a_stack() {
    let text = format!(
        "{}\nswapper 0/0 [002] 1.000000001: ftrace:kernel_stack: \n\t{:16x} [unknown] ([kernel.kallsyms])\n\n",
        escapes::NOTE,
        0x1000
    );
    let (reader, imported) = imported(&text).unwrap();
    assert_eq!((stacks(&reader), imported.kinds, imported.events), (vec![vec![0x1000]], 1, 1));
    let long: String = (0..1025).map(|_| "\tffffffff81000000 f (m)\n").collect();
    let (reader, imported) = self::imported(&format!("a 1/1 [002] 1.0: a:b: c=1\n{long}")).unwrap();
    assert_eq!(stacks(&reader)[0].len(), 1024);
    let counted: Vec<u64> = imported.not_carried.iter().map(|(_, count)| count).collect();
    assert_eq!(counted, [1, 1024]);
}

#[test]
fn inlined_functions_are_no_frames() {
    let text = "a 1/1 [002] 1.0: a:b: c=1
\t             a4a main (a.out)
\t             a4a std::__complex_abs (inlined)
\t             a4a std::abs<double> (inlined)
\t        7f12000a __libc_start_main (libc.so.6)\n\n";
    let (reader, _) = imported(text).unwrap();
    assert_eq!(stacks(&reader), [[0xa4a, 0x7f12_000a]]);
}

#[test]
fn what_an_export_does_not_give_to_the_kernel_is_the_processs() {
    let frames = "\t          401000 f (a.out)\n\tffffe00000000123 [unknown] ([unknown])\n\n";
    let event = format!("a 1/1 [002] 1.0: a:b: c=1\n{frames}");
    let (reader, _) = imported(&format!("{}\n{event}", escapes::NOTE)).unwrap();
    assert_eq!(stacks(&reader), [[0x40_1000, 0xffff_e000_0000_0123]]);
    let (reader, _) = imported(&event).unwrap();
    assert_eq!(stacks(&reader).len(), 2, "of perf, whose modules have names of their own");
}

#[test]
fn texts_without_events_are_recordings_without_any_if_they_are_such_texts() {
    let ours = format!("{}\n", escapes::NOTE);
    let lost = format!("{ours}# CPU 3: 9 events lost\n");
    let tracefs = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 0/0   #P:4\n";
    for (text, lost) in [(&*ours, 0), (&*lost, 9), (tracefs, 0), ("cpus=8\n", 0)] {
        let (reader, imported) = imported(text).unwrap();
        assert_eq!((imported.events, imported.lost), (0, lost), "{text}");
        assert_eq!(lines(&reader).len(), 0, "{text}");
    }
    // Events were there.
    let damaged = format!("{ours}\nno event 1.0\n");
    for text in
        ["# entries-in-buffer/entries-written: 3/3   #P:4\n", "cpus=8\nx\n", &damaged, "# a comment\n", ""]
    {
        assert!(matches!(imported(text), Err(ImportError::Damaged { .. })), "{text}");
    }
}

#[test]
fn long_names_of_buffers_stay_apart() {
    let long = "n".repeat(300);
    let text = |names: &[String]| -> String {
        let lines = names
            .iter()
            .map(|name| format!("# tracer-agent: buffer {name}\n  a 1/1 [000] 1.000000001: a:b: c=1\n"));
        std::iter::once(format!("{}\n", escapes::NOTE)).chain(lines).collect()
    };
    let (reader, imported) =
        imported(&text(&[format!("{long}1"), format!("{long}2"), format!("{long}1")])).unwrap();
    let names: Vec<_> = reader.buffers().iter().map(|buffer| &*buffer.name).collect();
    assert_eq!(names, ["", &*format!("{long}1"), &*format!("{long}2")]);
    assert_eq!(lines(&reader).iter().filter(|line| line.starts_with("1 ")).count(), 2);
    assert_eq!(imported.not_carried.iter().count(), 0);
    // Names of 1 MiB in all, and three more.
    let many: Vec<String> = (0..24).map(|number| format!("{number:0>50000}")).collect();
    let (reader, imported) = self::imported(&text(&many)).unwrap();
    assert_eq!(reader.buffers().len(), 1 + (1 << 20) / 50_000);
    let in_top = lines(&reader).iter().filter(|line| line.starts_with("0 ")).count() as u64;
    let counted: Vec<u64> = imported.not_carried.iter().map(|(_, count)| count).collect();
    assert_eq!((in_top, counted), (4, vec![4]));
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

#[test]
fn a_line_is_read_once() {
    use super::line::{Columns, Said};
    // From each of these places to the end there are 2^42 bytes in all.
    for (begin, part) in [("", "1-"), ("", "[1]"), ("", "-1 "), ("", ")[1] 1: "), ("x-1 0d.s2 ", "1-1")] {
        let line = [begin, &part.repeat(1 << 21)].concat();
        assert_eq!(Said::of(line.as_bytes(), &Columns::default()), Said::Other, "{begin}{part}");
    }
}
