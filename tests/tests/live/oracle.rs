//! ftrace is the oracle: a workload is recorded by ftrace and twice by the agent, with programs of the fast
//! lane and without, all at the same time, and each of the two must agree with ftrace event by event, byte by
//! byte, and in the text that stock trace-cmd prints.
//!
//! What may differ, and why:
//!
//! - An event in an interrupt that came while an eBPF program ran is skipped by the kernel (`trace_call_bpf`,
//!   kernel/trace/bpf_trace.c) and counted: the agent may lack at most as many as it reports.
//!   Where tracepoints leave preemption enabled, that is so with an event of a task, too, if another task was
//!   preempted in the program.
//! - Where interrupts fire events at their end, when they no longer count as such but no other can come
//!   (`PREEMPT_RT`), the kernel skips those in the generic lane without counting them, and the ledger says
//!   so.
//! - `common_flags`: whether interrupts are off is unknown to a program outside of hard interrupts and
//!   switches, and is compared where the agent says so; whether a thread shall be rescheduled lazily is not
//!   known at all. "Must reschedule" comes from the preempt count, into which the request of another CPU is
//!   folded only when its interrupt arrives, while ftrace looks at the task's flags too; and it can be set
//!   between the two recorders.
//! - `prev_state` of sched_switch of a dying thread, if its parent reaps it at that moment: zombie or dead.
//! - Copies of strings that system calls are given, which kernels make from 6.19 on. Where the kernel makes
//!   none, the agent is told not to either; where it does, its programs of the generic lane are not shown
//!   them, so these events are compared in the fast lane only.
//! - Bytes that belong to no field, those of a text behind its NUL, and the few fields named in
//!   `pairs::UNSET`: the kernel leaves in them what the buffer held before.

use std::{collections::BTreeMap, path::Path};

use ftrace_event::Location;
use integration_tests::{
    agent::{self, Recording},
    dat::{self, Dat, Record},
    pairs::{self, Pairs, Tally},
    trace_cmd::{self, Line},
    tracefs::{self, Event},
    workload,
};
use kernel::features::tracepoints_are_preemptible;

struct Case<'a> {
    workload: &'a str,
    systems: &'a [&'a str],
    /// Whether interrupts of idle CPUs are compared too.
    idle: bool,
    /// Events that are paired at least so often. Few where an interrupt may hit a thread of somebody else
    /// instead.
    expected: &'a [(&'a str, u64)],
}

/// What ftrace recorded of a workload, and what there is to know about both.
struct Oracle {
    /// Every event by number.
    events: BTreeMap<u16, Event>,
    records: Vec<Record>,
    /// What stock trace-cmd prints of each record.
    lines: Vec<Line>,
    account: workload::Account,
}

fn check(case: &Case<'_>) {
    let dir = tempfile::tempdir().unwrap();
    let scratch = dir.path();
    let events = tracefs::events(case.systems);
    let kernel_copies = events.values().any(has_copies);
    let instance = tracefs::Instance::create("oracle", 65536);
    let mut enabled: Vec<&str> = events.values().map(|event| event.system.as_str()).collect();
    enabled.sort_unstable();
    enabled.dedup();
    enabled.retain(|system| *system != "ftrace");
    let mut args: Vec<String> = ["--compression", "none", "-b", "65536"].map(str::to_owned).into();
    if !kernel_copies {
        args.extend(["--strings", "off"].map(str::to_owned));
    }
    for system in enabled {
        instance.enable(&format!("{system}:*"));
        args.extend(["-e".to_owned(), format!("{system}:*")]);
    }
    let mut command = workload::command(case.workload, scratch);
    // ftrace starts when everything is attached, so that its buffers hold little else.
    command.push(instance.switch().display().to_string());

    // The recording with programs of the fast lane has the other one as its command.
    let generic = Recording { path: scratch.join("generic.dat"), said: String::new() };
    let said = scratch.join("generic.txt");
    let mut both = args.clone();
    both.extend(["sh", "-c", "exec 2> \"$0\" \"$@\""].map(str::to_owned));
    let paths = [&said, &agent::binary(), &generic.path].map(|path| path.display().to_string());
    let [said_to, program, file] = paths;
    both.extend([said_to, program, "record".to_owned(), "--lane".to_owned(), "generic".to_owned()]);
    both.extend(["-o".to_owned(), file]);
    both.extend(args);
    both.extend(command);
    let auto = agent::record(&scratch.join("auto.dat"), &both);
    let generic = Recording { said: std::fs::read_to_string(&said).unwrap(), ..generic };
    instance.stop();
    let pages = instance.pages();
    drop(instance);

    let records: Vec<Record> = pages.iter().flat_map(|(cpu, pages)| dat::records(*cpu, pages)).collect();
    let reference = scratch.join("ftrace.dat");
    tracefs::write_dat(&reference, &events, &pages);
    let lines = printed(&reference, &records, &events);
    let mut oracle = Oracle { events, records, lines, account: workload::Account::read(scratch) };
    println!("--lane auto:");
    compare(case, &oracle, &auto, |_| true);
    println!("--lane generic:");
    let compared = |event: &Event| !has_copies(event);
    oracle.retain(compared);
    compare(case, &oracle, &generic, compared);
}

/// Whether it is a system call whose records have copies of strings.
fn has_copies(event: &Event) -> bool {
    event.system == "syscalls" && event.format.fields.iter().any(|field| field.location != Location::Inline)
}

/// Whether a text behind the fixed part has no NUL: names of files and attributes in `xfs`.
fn has_open_text(event: &Event, record: &Record) -> bool {
    let texts = event.format.fields.iter().filter(|field| field.location != Location::Inline);
    texts.into_iter().any(|field| {
        let word = dat::le_u32(&record.bytes, field.offset as usize) as usize;
        let (start, length) = (word & 0xffff, word >> 16);
        let text = record.bytes.get(start..start + length);
        field.type_text.contains("char") && text.is_some_and(|text| text.last() != Some(&0))
    })
}

/// Keeps the records of these events, each with its line.
fn retain(
    records: &mut Vec<Record>,
    lines: &mut Vec<Line>,
    events: &BTreeMap<u16, Event>,
    compared: impl Fn(&Event) -> bool,
) {
    let mut kept =
        records.iter().map(|record| compared(&events[&record.id()])).collect::<Vec<_>>().into_iter();
    lines.retain(|_| kept.next().unwrap());
    records.retain(|record| compared(&events[&record.id()]));
}

impl Oracle {
    fn retain(&mut self, compared: impl Fn(&Event) -> bool) {
        retain(&mut self.records, &mut self.lines, &self.events, compared);
    }
}

/// Compares a recording of the agent with what ftrace recorded.
fn compare(case: &Case<'_>, oracle: &Oracle, recording: &Recording, compared: impl Fn(&Event) -> bool) {
    let Case { workload, systems: _, idle, expected } = case;
    let Oracle { events: all_events, records: ftrace, lines: reference_text, account } = oracle;
    let file = Dat::open(&recording.path);
    let mut ours = file.records();
    assert_eq!(
        ours.len() as u64,
        recording.events(),
        "the summary and the file disagree\n{}",
        recording.said
    );
    for pair in ours.windows(2) {
        assert!(pair[0].cpu != pair[1].cpu || pair[0].time <= pair[1].time, "time went back: {pair:?}");
    }
    let ledger = file.ledger();
    assert_eq!(ledger.lost(), 0, "the rings are large enough\n{}", recording.said);

    let mut our_text = printed(&recording.path, &ours, all_events);
    retain(&mut ours, &mut our_text, all_events, &compared);
    let mut tasks = account.tasks.clone();
    if *idle {
        tasks.insert(0);
    }
    let pairs = Pairs::find(ftrace, &ours, &tasks, account.start, account.end);
    let tallies = pairs::compare(ftrace, &ours, &pairs, all_events);
    let sum = |of: fn(&Tally) -> u64| -> u64 { tallies.values().map(of).sum() };
    let of_lane =
        |lane| tallies.keys().filter(|event| ledger.is_generic(event) == (lane == "generic")).count();
    println!(
        "{workload}: {} kinds of events fired and had programs of their own, {} others",
        of_lane("fast"),
        of_lane("generic")
    );
    println!(
        "{workload}: {} records of ftrace, {} of the agent; {} pairs, {} only ftrace's, {:?} recursion misses; \
         {} pairs differ in flags, {} in preempt count, {} in \"must reschedule\"\n{}",
        ftrace.len(),
        ours.len(),
        pairs.pairs.len(),
        pairs.only_ftrace.len(),
        ledger.recursion_misses(),
        sum(|tally| tally.flags.values().sum()),
        sum(|tally| tally.depths.values().sum()),
        sum(|tally| tally.resched.values().sum()),
        pairs::table(&tallies),
    );

    let name = |record: &Record| (all_events[&record.id()].format.name.clone(), record.clone());
    assert!(
        pairs.only_agent.is_empty(),
        "ftrace did not see {:?}",
        pairs.only_agent.iter().map(|index| name(&ours[*index])).take(5).collect::<Vec<_>>()
    );
    let (uncounted, counted): (Vec<&Record>, Vec<&Record>) = pairs
        .only_ftrace
        .iter()
        .map(|index| &ftrace[*index])
        .partition(|missing| !pairs::in_interrupt(missing) && !tracepoints_are_preemptible());
    // Kernels before 6.7 do not count what they skip; there only the look at each missing event is left.
    let may_lack = ledger.recursion_misses().unwrap_or(u64::MAX);
    assert!(
        counted.len() as u64 <= may_lack,
        "more is missing than the {may_lack} events that the agent reports: {:?}",
        counted.iter().map(|missing| name(missing)).take(5).collect::<Vec<_>>()
    );
    for missing in uncounted {
        let Event { system, format, .. } = &all_events[&missing.id()];
        let may_be = ledger.skips_uncounted() && ledger.is_generic(&format!("{system}:{}", format.name));
        assert!(
            may_be && pairs::is_uninterruptible(missing),
            "an event of a task is missing: {:?}",
            name(missing)
        );
    }
    assert_eq!(pairs::same_order(ftrace, &ours, &pairs), Ok(()));
    for (event, tally) in &tallies {
        assert_eq!(tally.lengths, 0, "{event}: {:?}", tally.example);
        // What others change meanwhile is seldom; a wrong value would be always.
        let is_shared = event.starts_with("xfs:")
            || event.starts_with("btrfs:") && !event.ends_with("_lock")
            || event == "sched:sched_waking";
        let may_change = if is_shared { 2.max(tally.pairs / 4) } else { tally.pairs };
        assert!(tally.changed <= may_change, "{event}: {} of {} pairs", tally.changed, tally.pairs);
        assert!(tally.fields.is_empty(), "{event}: {:?} {:?}", tally.fields, tally.example);
        assert!(tally.flags.is_empty(), "{event}: flags (ftrace, agent): {:x?}", tally.flags);
        assert!(tally.depths.is_empty(), "{event}: preempt counts (ftrace, agent): {:x?}", tally.depths);
    }
    let differences = pairs::values(ftrace, &ours, &pairs, all_events);
    assert!(differences.is_empty(), "as `diff --values` tells it: {differences:?}");
    let left_out: Vec<String> = (all_events.values().filter(|event| !compared(event)))
        .map(|Event { system, format, .. }| format!("{system}:{}", format.name))
        .collect();
    for (event, minimum) in expected.iter().filter(|(event, _)| left_out.iter().all(|name| name != event)) {
        // Those that are missing were found to be counted above.
        let fired = tallies.get(*event).map_or(0, |tally| tally.pairs + tally.lost);
        assert!(fired >= *minimum, "{event}: fired {fired} times, expected {minimum}");
    }

    for (reference, our) in &pairs.pairs {
        let (theirs, our_own) = (&ftrace[*reference], &ours[*our]);
        if pairs::changed_meanwhile(&all_events[&theirs.id()], theirs, our_own) {
            continue;
        }
        let (reference, our) = (&reference_text[*reference], &our_text[*our]);
        if pairs::has_unset_fields(&reference.event) {
            continue;
        }
        // Behind a text without an end trace-cmd prints what the buffer held before.
        if has_open_text(&all_events[&theirs.id()], theirs) {
            continue;
        }
        // Of a copy without bytes trace-cmd prints what is after it, which may be room in one of the two.
        if theirs.bytes.len() != our_own.bytes.len() {
            continue;
        }
        // With the first copy that is no text, trace-cmd -R begins to print all of that field as numbers.
        if has_copies(&all_events[&theirs.id()])
            && [reference, our].iter().any(|line| line.fields.contains("=ARRAY["))
        {
            continue;
        }
        assert_eq!(
            (&reference.event, &reference.fields),
            (&our.event, &our.fields),
            "as trace-cmd prints it"
        );
    }
}

/// The lines that trace-cmd prints for these records, in their order.
fn printed(path: &Path, records: &[Record], events: &BTreeMap<u16, Event>) -> Vec<Line> {
    let mut by_cpu: BTreeMap<u32, Vec<Line>> = BTreeMap::new();
    for line in trace_cmd::broken_lines(&trace_cmd::report(path, &["-R", "-t"])) {
        by_cpu.entry(line.cpu).or_default().push(line);
    }
    let mut by_cpu: BTreeMap<_, _> =
        by_cpu.into_iter().map(|(cpu, lines)| (cpu, lines.into_iter())).collect();
    let mut lines = Vec::with_capacity(records.len());
    for record in records {
        let line = by_cpu.get_mut(&record.cpu).and_then(Iterator::next).expect("a line for every record");
        let event = &events[&record.id()].format.name;
        assert_eq!(
            (line.time, line.pid, &*line.event),
            (record.time, record.pid(), event.as_ref()),
            "{}: a line of trace-cmd and the record on the page",
            path.display()
        );
        lines.push(line);
    }
    assert!(by_cpu.into_values().all(|mut lines| lines.next().is_none()), "more lines than records");
    lines
}

#[test]
fn sched() {
    check(&Case {
        workload: "sched",
        systems: &["sched"],
        idle: false,
        expected: &[
            ("sched:sched_switch", 1000),
            ("sched:sched_wakeup", 100),
            ("sched:sched_waking", 1500),
            ("sched:sched_wakeup_new", 20),
            ("sched:sched_process_fork", 20),
            ("sched:sched_process_exec", 20),
            ("sched:sched_process_exit", 20),
            ("sched:sched_process_wait", 20),
        ],
    });
}

#[test]
fn irq() {
    check(&Case {
        workload: "irq",
        systems: &["irq"],
        idle: true,
        expected: &[
            ("irq:softirq_raise", 1000),
            ("irq:softirq_entry", 1000),
            ("irq:softirq_exit", 1000),
            ("irq:irq_handler_entry", 5),
            ("irq:irq_handler_exit", 5),
        ],
    });
}

#[test]
fn timer() {
    check(&Case {
        workload: "timer",
        systems: &["timer"],
        idle: true,
        expected: &[
            ("timer:hrtimer_start", 300),
            ("timer:hrtimer_expire_entry", 20),
            ("timer:hrtimer_expire_exit", 20),
            ("timer:timer_start", 20),
            ("timer:timer_expire_entry", 1),
            ("timer:itimer_state", 4),
            ("timer:itimer_expire", 1),
        ],
    });
}

/// Programs of interrupts on top of those of system calls and of the scheduler: what comes while another one
/// writes goes through the side queue, and must be there, whole and in order.
#[test]
fn nested() {
    check(&Case {
        workload: "nested",
        systems: &["irq", "timer", "sched", "raw_syscalls", "workqueue"],
        idle: true,
        expected: &[
            ("raw_syscalls:sys_enter", 1500),
            ("raw_syscalls:sys_exit", 1500),
            ("irq:softirq_raise", 5),
            // That it expires, too, may hit a thread of somebody else.
            ("timer:hrtimer_start", 1),
        ],
    });
}

#[test]
fn kmem() {
    check(&Case {
        workload: "kmem",
        systems: &["kmem"],
        idle: false,
        expected: &[
            ("kmem:kmalloc", 100),
            ("kmem:kfree", 200),
            ("kmem:kmem_cache_alloc", 500),
            // Some are freed later, by RCU.
            ("kmem:kmem_cache_free", 250),
            ("kmem:mm_page_alloc", 3000),
            ("kmem:mm_page_free", 3000),
            // Batched before 6.2.
            ("kmem:rss_stat", 100),
        ],
    });
}

#[test]
fn raw_syscalls() {
    check(&Case {
        workload: "syscalls",
        systems: &["raw_syscalls"],
        idle: false,
        expected: &[("raw_syscalls:sys_enter", 1500), ("raw_syscalls:sys_exit", 1500)],
    });
}

#[test]
fn syscalls() {
    check(&Case {
        workload: "syscalls",
        systems: &["syscalls"],
        idle: false,
        expected: &[
            // No arguments, and six.
            ("syscalls:sys_enter_getppid", 500),
            ("syscalls:sys_exit_getppid", 500),
            ("syscalls:sys_enter_mmap", 5),
            ("syscalls:sys_enter_openat", 40),
            ("syscalls:sys_exit_openat", 40),
            ("syscalls:sys_enter_rename", 40),
            // With strings of many lengths and kinds, where the kernel copies them.
            ("syscalls:sys_enter_chdir", 60),
            ("syscalls:sys_enter_execve", 4),
            ("syscalls:sys_enter_sendto", 20),
            ("syscalls:sys_enter_fallocate", 1),
        ],
    });
}

#[test]
fn block() {
    let of_journal: &[(&str, u64)] = &[("jbd2:jbd2_handle_start", 50)];
    // The kernel has an entry there for each file system with a journal.
    let has_journal = std::fs::read_dir("/proc/fs/jbd2").is_ok_and(|mut entries| entries.next().is_some());
    // Where the disk has a bad sector. It is read in vain 60 times, but interrupts may hit somebody else:
    // with PREEMPT_RT, threads of their own, always.
    let has_errors = workload::bad_disk().is_some() && !integration_tests::has_preempt_rt();
    let of_errors: &[(&str, u64)] = &[("block:block_rq_error", 1)];
    let expected: &[(&str, u64)] = &[
        ("block:block_bio_queue", 100),
        ("block:block_rq_issue", 100),
        ("block:block_rq_insert", 100),
        ("block:block_bio_backmerge", 1),
        ("block:block_bio_frontmerge", 1),
        ("block:block_dirty_buffer", 300),
        ("ext4:ext4_da_write_begin", 50),
        ("ext4:ext4_unlink_enter", 35),
        ("ext4:ext4_sync_file_enter", 5),
    ];
    check(&Case {
        workload: "block",
        systems: &["block", "ext4", "jbd2"],
        idle: true,
        expected: &[
            expected,
            if has_journal { of_journal } else { &[] },
            if has_errors { of_errors } else { &[] },
        ]
        .concat(),
    });
}

/// So many events that some have programs together.
#[test]
fn file_systems() {
    check(&Case {
        workload: "block",
        systems: &["btrfs", "ext4", "filelock", "jbd2", "writeback", "xfs"],
        idle: false,
        expected: &[
            ("ext4:ext4_da_write_begin", 50),
            ("ext4:ext4_unlink_enter", 35),
            ("ext4:ext4_sync_file_enter", 5),
            ("writeback:writeback_dirty_inode", 20),
        ],
    });
}

/// With the paths that only it takes through the page cache.
#[test]
fn xfs() {
    if !has_file_system("xfs") {
        return;
    }
    check(&Case {
        workload: "xfs",
        systems: &["xfs", "iomap", "filemap", "fs_dax"],
        idle: false,
        expected: &[
            ("xfs:xfs_ilock", 1000),
            ("xfs:xfs_buf_lock", 500),
            ("xfs:xfs_trans_alloc", 200),
            ("xfs:xfs_iext_insert", 50),
            ("xfs:xfs_file_buffered_write", 10),
            ("xfs:xfs_reflink_remap_range", 1),
            ("xfs:xfs_rmap_map", 10),
            ("iomap:iomap_iter", 50),
        ],
    });
}

#[test]
fn btrfs() {
    if !has_file_system("btrfs") {
        return;
    }
    check(&Case {
        workload: "btrfs",
        systems: &["btrfs", "filemap"],
        idle: false,
        expected: &[
            ("btrfs:btrfs_transaction_commit", 1),
            ("btrfs:btrfs_space_reservation", 100),
            ("btrfs:btrfs_set_extent_bit", 50),
            ("btrfs:btrfs_ordered_extent_add", 10),
        ],
    });
}

/// Whether the kernel has a file system, built in or as a module that is loaded.
fn has_file_system(name: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    known.lines().any(|line| line.split_whitespace().last() == Some(name))
}

/// What needs no disk.
#[test]
fn network() {
    check(&Case {
        workload: "mixed",
        systems: &["net", "skb", "sock", "tcp", "task", "signal", "workqueue", "exceptions", "power"],
        idle: false,
        expected: &[
            ("task:task_newtask", 10),
            ("task:task_rename", 5),
            ("net:net_dev_queue", 100),
            ("net:net_dev_xmit", 100),
            ("net:netif_rx", 100),
            ("skb:consume_skb", 100),
            ("signal:signal_generate", 1),
            ("exceptions:page_fault_user", 1),
        ],
    });
}

/// Every other system at once: here the point is the variety of formats.
#[test]
fn others() {
    let compared =
        ["block", "ext4", "ftrace", "irq", "kmem", "raw_syscalls", "sched", "syscalls", "timer", "initcall"];
    let events = tracefs::events(&[]);
    let mut systems: Vec<&str> = events.values().map(|event| event.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    systems.retain(|system| !compared.contains(system));
    check(&Case {
        workload: "mixed",
        systems: &systems,
        idle: false,
        expected: &[
            ("task:task_newtask", 10),
            ("task:task_rename", 5),
            ("net:net_dev_queue", 100),
            ("skb:consume_skb", 100),
            ("writeback:writeback_dirty_inode", 10),
            ("filemap:mm_filemap_add_to_page_cache", 10),
        ],
    });
}
