//! Small recordings, and what the viewer is given of them.

use std::io::Cursor;

use super::metamorphic::{inside, number, read};
use super::{FILE, Perfetto};
use ftrace_event::Endian;
use recording::survey::TraceFile;
use recording::{Format as _, Job, NotCarried, Recording};
use stdx::output::Directory;
use tracedat::ledger::{Ledger, LedgerEvent, LedgerSilent, Pause, VERSION};
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::Reader;
use tracedat::{Buffer, Compression, EventSystem, FileOption, OptionId, Section, Setup, Writer, layout};

const PAGE: u32 = 4096;
const COMPAT: i64 = ftrace_event::syscalls::COMPAT;
/// No kernel has such a thread.
const NO_THREAD: u32 = u32::MAX;

/// Events whose fields are `long`, but for the vector of soft interrupts.
const EVENTS: [(&str, &[&str]); 20] = [
    ("raw_syscalls:sys_enter", &["id", "args[6]"]),
    ("raw_syscalls:sys_exit", &["id", "ret"]),
    ("syscalls:sys_enter_openat", &["__syscall_nr", "flags"]),
    ("syscalls:sys_exit_openat", &["__syscall_nr", "ret"]),
    ("syscalls:sys_enter_write", &["__syscall_nr", "fd"]),
    ("syscalls:sys_exit_write", &["__syscall_nr", "ret"]),
    ("syscalls:sys_enter_execve", &["__syscall_nr", "argv"]),
    ("syscalls:sys_exit_execve", &["__syscall_nr", "ret"]),
    ("syscalls:sys_enter_execveat", &["__syscall_nr", "argv"]),
    ("syscalls:sys_exit_execveat", &["__syscall_nr", "ret"]),
    ("syscalls:sys_enter_rt_sigreturn", &["__syscall_nr"]),
    ("syscalls:sys_exit_rt_sigreturn", &["__syscall_nr", "ret"]),
    ("irq:softirq_entry", &["vec"]),
    ("irq:softirq_exit", &["vec"]),
    ("vmscan:mm_vmscan_direct_reclaim_begin", &["order"]),
    ("vmscan:mm_vmscan_direct_reclaim_end", &["nr_reclaimed"]),
    ("sched:sched_process_free", &["pid", "more"]),
    ("ftrace:print", &["ip"]),
    ("ftrace:kernel_stack", &["size", "caller[2]"]),
    ("sched:sched_process_exit", &["pid"]),
];

/// An event, its thread, and its values.
type Made<'m> = (&'m str, u32, &'m [i64]);

fn size(field: &str) -> usize {
    let len = field.split_once('[').map_or(1, |(_, len)| len.trim_end_matches(']').parse().unwrap());
    if field == "vec" { 4 } else { 8 * len }
}

fn format(index: usize) -> (&'static str, String) {
    let (event, fields) = EVENTS[index];
    let (system, name) = event.split_once(':').unwrap();
    let id = if name == "kernel_stack" { 4 } else { 100 + index };
    let mut text = format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    );
    let mut offset = 8;
    for field in fields {
        let (size, of) = (size(field), if *field == "vec" { "int" } else { "long" });
        text += &format!("\tfield:{of} {field};\toffset:{offset};\tsize:{size};\tsigned:1;\n");
        offset += size;
    }
    (system, text + "\nprint fmt: \"\"\n")
}

fn data((event, thread, values): Made<'_>) -> Vec<u8> {
    let index = EVENTS.iter().position(|(of, _)| *of == event).unwrap();
    let id = if event == "ftrace:kernel_stack" { 4 } else { 100 + index as u16 };
    let mut data = [&id.to_le_bytes()[..], &[0; 2], &thread.to_le_bytes()].concat();
    data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    data.resize(8 + EVENTS[index].1.iter().map(|field| size(field)).sum::<usize>(), 0);
    data
}

/// A file with these records, 10 ns apart.
fn file(records: &[Made<'_>], ledger: Option<&Ledger>) -> Vec<u8> {
    let (endian, compression) = (Endian::Little, Compression::None);
    let setup = Setup { endian, compression, page_size: PAGE };
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    let header = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits
\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30
\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";
    writer.section(Section::header_info(endian, &layout::header_page_text(PAGE), header).unwrap()).unwrap();
    let formats: Vec<_> = (0..EVENTS.len()).map(format).collect();
    let of = |system: &str| -> Vec<&str> {
        formats.iter().filter(|(of, _)| *of == system).map(|(_, text)| text.as_str()).collect()
    };
    writer.section(Section::ftrace_events(endian, &of("ftrace")).unwrap()).unwrap();
    let systems = ["raw_syscalls", "syscalls", "irq", "vmscan", "sched"].map(|system| (system, of(system)));
    let systems: Vec<_> = systems.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.option(&FileOption::TraceClock("local [mono]".to_owned())).unwrap();
    writer.option(&FileOption::Uname("Linux made 6.12.0 x86_64".to_owned())).unwrap();
    if let Some(ledger) = ledger {
        writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() }).unwrap();
    }
    let mut builder = PageBuilder::new(PAGE as usize, endian).unwrap();
    for (record, time) in records.iter().zip((1000..).step_by(10)) {
        assert!(builder.push(time, &data(*record)).unwrap() != Push::Full);
    }
    let page = builder.finish().unwrap_or_default().to_vec();
    let mut buffer = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: PAGE }).unwrap();
    buffer.write_cpu(0, page.as_slice()).unwrap();
    buffer.finish().unwrap();
    writer.finish().unwrap().into_inner()
}

fn exported(records: &[Made<'_>], ledger: Option<&Ledger>) -> (Vec<String>, NotCarried) {
    let file: TraceFile = Reader::open(Box::new(file(records, ledger)) as _).unwrap();
    let job = Job::new(&|_| {});
    let recording = Recording::survey(&file, &job).unwrap();
    let place = tempfile::tempdir().unwrap();
    Perfetto.write(&recording, &Directory::open(place.path()).unwrap(), &job).unwrap();
    let events = read(&std::fs::read(place.path().join(FILE)).unwrap());
    let texts = events.into_iter().map(|event| match event.name {
        "print" if inside(&event.message, 2).is_empty() => "print".to_owned(),
        "print" => String::from_utf8(inside(&event.message, 2)[0].to_vec()).unwrap(),
        "" => format!("({})", std::str::from_utf8(inside(&event.message, 1)[0]).unwrap()),
        name @ ("sys_enter" | "sys_exit") => format!("{name} {}", number(&event.message, 1)),
        name => name.to_owned(),
    });
    (texts.collect(), job.take_not_carried())
}

/// Events in the order of the trace: generic ones in parentheses, markers by their texts.
fn drawn(records: &[Made<'_>]) -> Vec<String> {
    exported(records, None).0
}

/// The ledger of a recording that has each firing of these events, and has no more.
fn ledger(events: &[&str]) -> Ledger {
    let row = |event: &&str| LedgerEvent { event: (*event).to_owned(), ..LedgerEvent::default() };
    let ends = ["sched:sched_process_exit", "sched:sched_process_exec"].map(str::to_owned).to_vec();
    Ledger {
        version: VERSION,
        events: Some(events.iter().map(row).collect()),
        silent: Some(vec![LedgerSilent { channel: String::new(), events: ends }]),
        compat_calls: Some(0),
        ..Ledger::default()
    }
}

const ENTER: &str = "raw_syscalls:sys_enter";
const EXIT: &str = "raw_syscalls:sys_exit";
const STACK: Made<'_> = ("ftrace:kernel_stack", 7, &[2, 1, 1]);

#[test]
fn stacks_are_behind_the_event_that_waited() {
    let (enter, exit) = ((ENTER, 7, &[1][..]), (EXIT, 7, &[1, 0][..]));
    assert_eq!(
        drawn(&[enter, STACK, STACK, exit, STACK]),
        ["sys_enter 1", "(kernel_stack)", "(kernel_stack)", "sys_exit 1", "(kernel_stack)"]
    );
    let softirq = ("irq:softirq_entry", 7, &[4][..]);
    let exit = (EXIT, 7, &[0, 0][..]);
    assert_eq!(
        drawn(&[enter, STACK, softirq, exit]),
        ["(sys_enter)", "(kernel_stack)", "sys_exit 0", "(softirq_entry)"]
    );
}

#[test]
fn a_call_ends_by_the_number_that_it_began_with() {
    let (enter, exit) = ("syscalls:sys_enter_execveat", "syscalls:sys_exit_execve");
    let records = [(enter, 7, &[322, 0][..]), (exit, 7, &[59, 0][..])];
    for ledger in [None, Some(ledger(&[enter, exit, "syscalls:sys_exit_execveat"]))] {
        assert_eq!(exported(&records, ledger.as_ref()).0, ["sys_enter 322", "sys_exit 322"]);
    }
    let records = [(ENTER, 7, &[59, 0][..]), (EXIT, 7, &[COMPAT + 11, 0][..])];
    assert_eq!(drawn(&records), ["sys_enter 59", "sys_exit 59"]);
}

#[test]
fn calls_by_name_end_only_slices_of_theirs() {
    let (enter, exit) =
        (("syscalls:sys_enter_openat", 7, &[-1][..]), ("syscalls:sys_exit_openat", 7, &[-1][..]));
    let ledger = ledger(&[enter.0, exit.0]);
    for ledger in [None, Some(&ledger)] {
        let (texts, _) = exported(&[exit, enter, exit, exit], ledger);
        assert_eq!(texts, ["(sys_exit_openat)", "B|0|openat", "E|0", "(sys_exit_openat)"]);
    }
    let (returns, returned) =
        (("syscalls:sys_enter_rt_sigreturn", 7, &[-1][..]), ("syscalls:sys_exit_rt_sigreturn", 7, &[-1][..]));
    assert_eq!(drawn(&[returns, returned]), ["I|0|rt_sigreturn", "(sys_exit_rt_sigreturn)"]);
    let (write, written) =
        (("syscalls:sys_enter_write", 7, &[-1][..]), ("syscalls:sys_exit_write", 7, &[-1][..]));
    assert_eq!(drawn(&[write, written]), ["B|0|write", "E|0"]);
    // A span may begin in it.
    let marker = ("ftrace:print", 7, &[0][..]);
    assert_eq!(drawn(&[write, marker, written]), ["I|0|write", "print", "(sys_exit_write)"]);
    let (write, written) = ((ENTER, 7, &[COMPAT + 4][..]), (EXIT, 7, &[COMPAT + 4, 0][..]));
    assert_eq!(drawn(&[write, marker, written]), ["I|0|compat_write", "print"]);
    assert_eq!(drawn(&[write, written]), ["B|0|compat_write", "E|0"]);
}

/// The viewer would end another slice of the thread or the CPU.
#[test]
fn an_end_without_its_beginning_is_not_drawn() {
    let (reclaim, reclaimed) =
        ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end");
    let ledger = ledger(&[ENTER, EXIT, reclaim, reclaimed]);
    for ledger in [None, Some(&ledger)] {
        let records = [(ENTER, 7, &[1][..]), (reclaimed, 7, &[1]), (EXIT, 7, &[1])];
        let mut texts = exported(&records, ledger).0;
        texts.sort_unstable();
        assert_eq!(texts, ["(mm_vmscan_direct_reclaim_end)", "sys_enter 1", "sys_exit 1"]);
    }
    let (entry, exit) = ("irq:softirq_entry", "irq:softirq_exit");
    assert_eq!(drawn(&[(entry, 7, &[1]), (exit, 7, &[2])]), ["(softirq_entry)", "(softirq_exit)"]);
    assert_eq!(drawn(&[(entry, 7, &[1]), (exit, 7, &[1])]), ["softirq_entry", "softirq_exit"]);
}

#[test]
fn what_no_thread_ends_is_not_drawn() {
    let reclaim = "vmscan:mm_vmscan_direct_reclaim_begin";
    for ledger in [None, Some(ledger(&[ENTER, EXIT, reclaim, "vmscan:mm_vmscan_direct_reclaim_end"]))] {
        let records = [(ENTER, NO_THREAD, &[1][..]), (reclaim, NO_THREAD, &[1][..])];
        let generic = ["(sys_enter)", "(mm_vmscan_direct_reclaim_begin)"];
        assert_eq!(exported(&records, ledger.as_ref()).0, generic);
    }
}

#[test]
fn a_number_that_another_thread_uses_is_not_freed() {
    let (reclaim, reclaimed) =
        ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end");
    let free = ("sched:sched_process_free", 1, &[7, 0][..]);
    let ledger = ledger(&[ENTER, EXIT, reclaim, reclaimed, free.0]);
    for ledger in [None, Some(&ledger)] {
        for (begin, end) in
            [((ENTER, 7, &[1][..]), (EXIT, 7, &[1][..])), ((reclaim, 7, &[1]), (reclaimed, 7, &[1]))]
        {
            let (mut texts, not_carried) = exported(&[begin, free, end, free], ledger);
            texts.retain(|text| text.contains("free"));
            assert_eq!(texts, ["(sched_process_free)", "sched_process_free"]);
            // The generic event has all fields.
            let lost = not_carried.iter().find(|(what, _)| what.contains("sched_process_free.more"));
            assert_eq!(lost.map(|(_, count)| count), Some(1));
        }
    }
}

#[test]
fn each_call_of_a_32_bit_program_is_counted_once_in_each_half() {
    let records = [
        (ENTER, 7, &[COMPAT + 5][..]),
        (ENTER, 7, &[COMPAT + 6][..]),
        (EXIT, 7, &[COMPAT + 6, 0][..]),
        (EXIT, 7, &[COMPAT + 5, 0][..]),
    ];
    let (texts, not_carried) = exported(&records, None);
    assert_eq!(texts, ["I|0|compat_open", "B|0|compat_close", "E|0"]);
    let lost = not_carried.iter().find(|(what, _)| what.contains("32-bit programs"));
    assert_eq!(lost.map(|(_, count)| count), Some(4));
}

/// The end may be that of another thread that has got the number.
#[test]
fn beginnings_that_were_sampled_are_drawn_where_threads_are_known_to_end() {
    let whole = ledger(&[ENTER, EXIT]);
    let records = [(ENTER, 7, &[1][..]), (EXIT, 7, &[1, 0][..])];
    for (sampled, knows_threads, drawn) in
        [(0, false, "sys_enter 1"), (1, false, "(sys_enter)"), (1, true, "sys_enter 1")]
    {
        let mut ledger = whole.clone();
        ledger.events.as_mut().unwrap()[0].sampled_out = sampled;
        ledger.silent = ledger.silent.filter(|_| knows_threads);
        assert_eq!(exported(&records, Some(&ledger)).0, [drawn, "sys_exit 1"]);
    }
}

/// A beginning without an end is drawn on only where the recording is known to have each end.
#[test]
fn only_a_recording_that_says_so_has_each_end() {
    let is_drawn = |event: &str, ledger: Option<&Ledger>| {
        let number = i64::from(event.starts_with("syscalls:")) * 59;
        let (texts, _) = exported(&[(event, 7, &[number][..])], ledger);
        assert_eq!(texts.len(), 1);
        !texts[0].starts_with('(')
    };
    let exec = "syscalls:sys_enter_execve";
    for (begin, end, is_call) in [
        (ENTER, EXIT, true),
        (exec, "syscalls:sys_exit_execve", true),
        ("irq:softirq_entry", "irq:softirq_exit", false),
        ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end", false),
    ] {
        let whole = ledger(&[begin, end]);
        assert!(is_drawn(begin, Some(&whole)), "{begin}");
        let changed = |change: &dyn Fn(&mut LedgerEvent)| {
            let mut ledger = whole.clone();
            change(&mut ledger.events.as_mut().unwrap()[1]);
            ledger
        };
        let lacking = [
            Ledger::default(),
            ledger(&[begin]),
            changed(&|row| row.until_ns = Some(5)),
            changed(&|row| row.since_ns = Some(5)),
            changed(&|row| row.filter = Some("x == 1".to_owned())),
            changed(&|row| row.sampled_out = 1),
            Ledger { pauses: vec![Pause { from_ns: 1, to_ns: Some(2) }], ..whole.clone() },
            Ledger { only: vec!["CPUs 0".to_owned()], ..whole.clone() },
            Ledger { recursion_misses: Some(1), ..whole.clone() },
        ];
        assert!(!is_drawn(begin, None), "{begin}");
        for (nth, ledger) in lacking.iter().enumerate() {
            assert!(!is_drawn(begin, Some(ledger)), "{begin} {nth}");
        }
        // Threads end calls, and nothing else.
        let threads = Ledger { silent: None, ..whole.clone() };
        assert_eq!(is_drawn(begin, Some(&threads)), !is_call, "{begin}");
        // `execve` of a 32-bit program has no end.
        let compat = Ledger { compat_calls: Some(1), ..whole };
        assert_eq!(is_drawn(begin, Some(&compat)), begin != exec, "{begin}");
    }
}
