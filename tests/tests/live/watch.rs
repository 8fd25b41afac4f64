//! Watching: being told of events as they fire, through the library.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::AsFd as _,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use capture::watch::{Captured, Match, RuleId, Watch, WatchError, WatchOptions};
use integration_tests::{
    harness::{Caller, Report, is_getppid, program, run, tid_of, wait_for},
    session::{CALLS, calls, events, spec, start, stop},
};
use kernel::clock::ReadClock as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spec::TraceClock;
use spec::{FilterLanguage, RuleSpec, WatchSpec, What};

/// A watch of no rules, of two CPUs also on a large machine.
fn watch() -> Watch {
    let mut options = plan::watch_options(TraceClock::Mono).unwrap();
    (options.cpus, options.ring_pages) = (vec![0, 1], 16);
    Watch::start(options).unwrap()
}

fn rule(rule: RuleSpec, captures: &[&str]) -> WatchSpec {
    WatchSpec { rules: vec![rule], captures: captures.iter().map(|text| text.parse().unwrap()).collect() }
}

fn add(watch: &mut Watch, id: RuleId, spec: &WatchSpec) {
    let (rule, notes) = plan::watch_rule(watch.options(), spec).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    assert!(watch.add(id, rule).unwrap().is_empty());
}

/// The calls that a caller makes.
fn calls_of(caller: &Caller) -> RuleSpec {
    RuleSpec { filter: Some(format!("id == 110 && common_pid == {}", caller.pid())), ..events(CALLS) }
}

/// Waits until the watch may have something to tell.
fn wait(watch: &Watch) {
    let mut fds = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })).unwrap();
}

/// What is told until there are so many matches.
fn take(watch: &mut Watch, count: usize) -> Vec<Match> {
    let mut told = Vec::new();
    while told.len() < count {
        wait(watch);
        watch.take(&mut |one| told.push(one)).unwrap();
    }
    told
}

fn captured(of: &Match) -> BTreeMap<&str, &Captured> {
    of.captured.iter().map(|(name, value)| (&**name, value)).collect()
}

fn now() -> u64 {
    TraceClock::Mono.now_ns()
}

fn nice(pid: u32) -> i32 {
    // SAFETY: takes plain numbers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, pid) }
}

#[test]
fn a_match_says_when_where_and_who_and_has_what_the_rule_captures() {
    let mut watch = watch();
    let mut caller = Caller::named("watched");
    caller.pin(1);
    let captures = ["id", "args[1]", "args", "$ctx.comm", "$ctx.vpid", "$ctx.nice"];
    add(&mut watch, 7, &rule(calls_of(&caller), &captures));
    let before = now();
    caller.call(3);
    let after = now();
    let told = take(&mut watch, 3);
    assert_eq!(told.len(), 3);
    assert!(told.is_sorted_by(|a, b| a.time < b.time));
    for one in &told {
        let pid = caller.pid();
        assert_eq!((one.rule, &*one.event, one.cpu), (7, CALLS, 1));
        assert_eq!((one.pid, one.tid, &one.comm[..]), (pid, pid, &b"watched"[..]));
        assert!((before..=after).contains(&one.time), "{before} {} {after}", one.time);
        let values = captured(one);
        assert_eq!(*values["id"], Captured::Signed(110));
        assert_eq!(*values["$ctx.comm"], Captured::Text(b"watched".to_vec()));
        assert_eq!(*values["$ctx.vpid"], Captured::Signed(pid.into()));
        assert_eq!(*values["$ctx.nice"], Captured::Signed(nice(pid).into()));
        let Captured::Array(args) = values["args"] else { panic!("{values:?}") };
        assert_eq!((args.len(), &args[1]), (6, values["args[1]"]));
    }
    let names: Vec<&str> = told[0].captured.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, captures, "in the order of the rule");
}

#[test]
fn texts_and_negative_numbers_are_captured() {
    let mut watch = watch();
    let exec =
        RuleSpec { filter: Some("filename ~ \"*/true\"".to_owned()), ..events("sched:sched_process_exec") };
    add(&mut watch, 1, &rule(exec, &["filename", "pid", "old_pid"]));
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let told = take(&mut watch, 1);
    let exec = told.iter().find(|one| one.pid == pid).unwrap();
    assert_eq!(*captured(exec)["filename"], Captured::Text(b"/bin/true".to_vec()));
    assert_eq!(*captured(exec)["pid"], Captured::Signed(pid.into()));
    // A system call by its name, which is in the generic lane with its contexts, and in LTTng's language.
    let filter = Some("ret < 0".to_owned());
    let failing = RuleSpec { filter, language: FilterLanguage::Lttng, ..events("syscalls:sys_exit_openat") };
    add(&mut watch, 2, &rule(failing, &["ret"]));
    let mut child =
        Command::new("cat").arg("/none/of/it").stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let mut told = Vec::new();
    wait_for("what the child could not open", || {
        watch.take(&mut |one| told.push(one)).unwrap();
        told.iter().any(|one| one.pid == pid && one.rule == 2).then_some(())
    });
    let failed: Vec<&Match> = told.iter().filter(|one| one.pid == pid && one.rule == 2).collect();
    assert!(failed.iter().all(|one| *captured(one)["ret"] == Captured::Signed(-i64::from(libc::ENOENT))));
}

#[test]
fn a_watch_tells_what_a_recording_has() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let session = start(&spec(&file, &caller, vec![calls()], 0));
    let mut watch = Watch::start(session.watch_options().unwrap()).unwrap();
    // The scope is the recording's: others make such calls, too.
    let mut other = Caller::start();
    add(&mut watch, 1, &rule(calls(), &["id"]));
    let mut told = Vec::new();
    for _ in 0..20 {
        caller.call(25);
        other.call(10);
        told.extend(take(&mut watch, 1));
    }
    wait_for("the last match", || {
        watch.take(&mut |one| told.push(one)).unwrap();
        (told.len() == 500).then_some(())
    });
    let counts = watch.counts(1).unwrap();
    assert_eq!((counts.told, counts.untold, counts.waiting), (500, 0, 0));
    drop(watch);
    stop(session);
    let stock = Report::of(&file);
    assert_eq!(stock.count(is_getppid), 500);
    let tids: BTreeSet<u32> = told.iter().map(|one| one.tid).collect();
    assert_eq!(tids, stock.events.iter().filter(|line| is_getppid(line)).map(|line| tid_of(line)).collect());
}

#[test]
fn rules_of_one_event_have_their_own_filters_and_come_and_go() {
    let mut watch = watch();
    let mut callers = [Caller::start(), Caller::start()];
    for (id, caller) in (1..).zip(&callers) {
        add(&mut watch, id, &rule(calls_of(caller), &["id"]));
    }
    callers[0].call(10);
    callers[1].call(20);
    let told = take(&mut watch, 30);
    let of = |told: &[Match], rule| told.iter().filter(|one| one.rule == rule).count();
    assert_eq!((of(&told, 1), of(&told, 2)), (10, 20));
    assert_eq!(watch.rules().collect::<Vec<_>>(), [1, 2]);
    let counts = watch.counts(1).unwrap();
    assert!(counts.filtered >= 20, "the kernel has left out what the other does: {counts:?}");

    let (plan, _) = plan::watch_rule(watch.options(), &rule(calls(), &[])).unwrap();
    assert!(matches!(watch.add(2, plan), Err(WatchError::Taken(2))));
    assert!(matches!(watch.remove(3), Err(WatchError::NoRule(3))));
    // What fired before is told, and nothing after.
    callers[0].call(5);
    let last = watch.remove(1).unwrap();
    callers[0].call(7);
    callers[1].call(1);
    let told = take(&mut watch, 6);
    assert_eq!((of(&told, 1), of(&told, 2)), (5, 1));
    assert_eq!((last.told, last.untold, last.waiting), (15, 0, 0));
    assert_eq!(watch.counts(1), None);
    // The same number again: counts begin again.
    add(&mut watch, 1, &rule(calls_of(&callers[0]), &[]));
    callers[0].call(2);
    assert_eq!(of(&take(&mut watch, 2), 1), 2);
    assert_eq!(watch.counts(1).unwrap().told, 2);
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let watch = watch();
    for (spec, text) in [
        (rule(events("sched:sched_switch"), &["next_pidd"]), "did you mean next_pid?"),
        (rule(events("sched:sched_switch"), &["next_pid[0]"]), "the field is no array"),
        (rule(events("sched:none"), &[]), "no such event"),
        (rule(RuleSpec::new(What::Function("vfs_*".to_owned())), &[]), "function tracer"),
        (WatchSpec { rules: Vec::new(), captures: Vec::new() }, "there is no event to record"),
    ] {
        let refused = plan::watch_rule(watch.options(), &spec).unwrap_err().to_string();
        assert!(refused.contains(text), "{refused}");
    }
    // Of several events, those that have it.
    let (planned, _) =
        plan::watch_rule(watch.options(), &rule(events("sched:sched_sw*"), &["next_pid"])).unwrap();
    assert!(planned.events().any(|event| event == "sched:sched_switch"));
    let mut options = watch.options().clone();
    options.events = 2;
    let mut small = Watch::start(options).unwrap();
    let (planned, _) =
        plan::watch_rule(small.options(), &rule(events("sched:sched_process_*"), &[])).unwrap();
    assert!(matches!(small.add(1, planned), Err(WatchError::NoRoom { capacity: 2, .. })));
}

/// Memory of this process in KB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn in_a_storm_each_match_is_told_or_counted() {
    let mut watch = watch();
    let mut callers = [Caller::start(), Caller::start()];
    for (cpu, caller) in callers.iter().enumerate() {
        caller.pin(cpu);
    }
    for (id, caller) in (0..).zip(&callers) {
        add(&mut watch, id, &rule(calls_of(caller), &["id", "$ctx.comm"]));
    }
    // A reader that comes late: a ring has 16 pages, and a record 40 bytes at least.
    callers[0].call(100_000);
    let mut told = 0_u64;
    watch.take(&mut |_| told += 1).unwrap();
    assert!((1..=16 * 4096 / 40).contains(&told), "{told}");
    let counts = watch.counts(0).unwrap();
    assert_eq!((counts.told, counts.told + counts.untold, counts.waiting), (told, 100_000, 0));

    // One that keeps up as far as it can.
    let before = resident();
    let is_over = AtomicBool::new(false);
    let mut told = [told, 0];
    thread::scope(|scope| {
        let works = callers.each_mut().map(|caller| scope.spawn(move || caller.call(400_000)));
        let is_over = &is_over;
        scope.spawn(move || {
            for work in works {
                work.join().unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            wait(&watch);
            watch.take(&mut |one| told[one.rule as usize] += 1).unwrap();
        }
    });
    wait_for("the last matches", || {
        watch.take(&mut |one| told[one.rule as usize] += 1).unwrap();
        (0..2).all(|id| watch.counts(id).unwrap().waiting == 0).then_some(())
    });
    for (id, caller) in callers.iter().enumerate() {
        let counts = watch.counts(id as u64).unwrap();
        assert_eq!(counts.told, told[id]);
        let skipped = counts.skipped.unwrap();
        let known = counts.told + counts.untold;
        assert!(known <= caller.calls() && known + skipped >= caller.calls(), "{counts:?}");
        eprintln!("{} of {} matches were told", counts.told, caller.calls());
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KB");
}

/// Nobody reads while they match: what there is room for does not depend on who is faster.
#[test]
fn a_rule_that_matches_all_the_time_leaves_places_for_others() {
    const PLACES: u64 = 16;
    let mut watch = watch();
    let mut hot = [Caller::start(), Caller::start()];
    let mut rare = Caller::start();
    for (cpu, caller) in hot.iter().enumerate() {
        caller.pin(cpu);
    }
    rare.pin(0);
    for (id, caller) in (0..).zip(hot.iter().chain([&rare])) {
        add(&mut watch, id, &rule(calls_of(caller), &["id"]));
    }
    for round in 1..=3 {
        for caller in &mut hot {
            caller.call(20_000);
        }
        rare.call(PLACES + 4);
        let mut told = Vec::new();
        wait_for("all matches", || {
            watch.take(&mut |one| told.push(one.rule)).unwrap();
            (0..3).all(|id| watch.counts(id).unwrap().waiting == 0).then_some(())
        });
        assert!(told[..PLACES as usize].iter().all(|id| *id == 2), "they are told first");
        let counts = watch.counts(2).unwrap();
        assert_eq!((counts.told, counts.untold), (round * PLACES, round * 4));
    }
    for (id, caller) in (0..).zip(&hot) {
        let counts = watch.counts(id).unwrap();
        let (known, skipped) = (counts.told + counts.untold, counts.skipped.unwrap());
        assert!(known <= caller.calls() && known + skipped >= caller.calls(), "{counts:?}");
        assert!(counts.told > 3 * PLACES && counts.untold > 0, "{counts:?}");
    }
    // A rule that is alone has more than its own.
    rare.call(4 * PLACES);
    wait_for("all matches", || {
        watch.take(&mut |_| ()).unwrap();
        (watch.counts(2).unwrap().waiting == 0).then_some(())
    });
    assert_eq!(watch.counts(2).unwrap().told, 7 * PLACES);
}

/// With rings that hold more, so that pages are not what a rule lacks.
#[test]
fn a_look_finds_as_many_matches_as_there_are_places() {
    const PLACES: u64 = 8192 + 16;
    let mut options = plan::watch_options(TraceClock::Mono).unwrap();
    (options.cpus, options.ring_pages) = (vec![0], 1024);
    let mut watch = Watch::start(options).unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    add(&mut watch, 0, &rule(calls_of(&caller), &["id"]));
    for round in 1..=3 {
        caller.call(20_000);
        let mut told = 0;
        wait_for("a look", || {
            watch.take(&mut |_| told += 1).unwrap();
            (told != 0).then_some(())
        });
        assert_eq!(told, PLACES, "all of them, and each look gives them back");
        let counts = watch.counts(0).unwrap();
        assert_eq!((counts.told, counts.waiting), (round * PLACES, 0));
        let (known, skipped) = (counts.told + counts.untold, counts.skipped.unwrap());
        assert!(known <= caller.calls() && known + skipped >= caller.calls(), "{counts:?}");
    }
}

#[test]
fn a_rule_that_comes_and_goes_takes_nothing_from_another() {
    let mut watch = watch();
    let mut caller = Caller::start();
    add(&mut watch, 0, &rule(calls_of(&caller), &["id"]));
    let more = ["sched:sched_switch", "syscalls:sys_exit_read", "raw_syscalls:sys_exit", "sched:sched_*"];
    let (mut told, mut others) = (0, 0);
    for round in 0..12 {
        caller.call(50);
        add(&mut watch, 1 + round % 3, &rule(events(more[round as usize % more.len()]), &[]));
        caller.call(50);
        let mut count = |one: Match| if one.rule == 0 { told += 1 } else { others += 1 };
        watch.take(&mut count).unwrap();
        watch.remove(1 + round % 3).unwrap();
    }
    wait_for("the last matches", || {
        watch.take(&mut |one| if one.rule == 0 { told += 1 } else { others += 1 }).unwrap();
        (watch.counts(0).unwrap().waiting == 0).then_some(())
    });
    let counts = watch.counts(0).unwrap();
    assert_eq!((counts.told, counts.untold), (told, 0));
    // Additions keep programs of the generic lane from running; this one is of the fast lane or counted.
    let known = told + counts.skipped.unwrap();
    assert!((1200..=1200 + counts.skipped.unwrap()).contains(&known), "{told} {counts:?}");
    assert!(others > 0);
}

/// A watch of all wakeups has those of its own reader, which wake it again.
#[test]
fn events_that_the_reader_causes_do_not_keep_it_busy() {
    let mut options = plan::watch_options(TraceClock::Mono).unwrap();
    options.exclude_self = false;
    let mut watch = Watch::start(options).unwrap();
    add(&mut watch, 0, &rule(events("sched:sched_wakeup"), &[]));
    add(&mut watch, 1, &rule(events("sched:sched_switch"), &[]));
    let (begin, mut looks, mut told) = (Instant::now(), 0, 0);
    while begin.elapsed() < Duration::from_millis(200) {
        wait(&watch);
        let before = told;
        watch.take(&mut |_| told += 1).unwrap();
        looks += u64::from(told != before);
    }
    let most = begin.elapsed().as_millis() as u64 + 1;
    assert!(looks <= most, "{looks} looks in {most} ms");
    assert!(told > 0);
}

/// Measured, and not asserted.
#[test]
fn a_match_is_told_soon() {
    let mut watch = watch();
    let mut caller = Caller::start();
    add(&mut watch, 0, &rule(calls_of(&caller), &[]));
    let mut latencies = Vec::new();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(3));
        thread::scope(|scope| {
            scope.spawn(|| caller.call(1));
            let told = take(&mut watch, 1);
            latencies.push(now() - told[0].time);
        });
    }
    latencies.sort_unstable();
    eprintln!("from event to match: median {} us, longest {} us", latencies[50] / 1000, latencies[99] / 1000);
    assert_eq!(watch.counts(0).unwrap().told, 100);
}

/// The ids of this kind in the descriptors of this process.
fn bpf_ids(key: &str) -> BTreeSet<u32> {
    let of = |entry: fs::DirEntry| {
        let info = fs::read_to_string(entry.path()).ok()?;
        info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
    };
    fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(|entry| of(entry.unwrap())).collect()
}

/// Bytes of the ring for the programs' messages, which only builds with `debug-programs` have.
const MESSAGES: u64 = 128 << 10;

/// Bytes of the elements of the maps in the descriptors of this process, by their ids.
fn maps() -> BTreeMap<u32, u64> {
    let of = |entry: fs::DirEntry| {
        let info = fs::read_to_string(entry.path()).ok()?;
        let number = |key: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|line| line.trim().parse::<u64>().ok())
        };
        let (value, entries) = (number("value_size")?, number("max_entries")?);
        if (value, entries) == (0, MESSAGES) {
            return None;
        }
        // A ring buffer has no values, and as many entries as bytes.
        Some((u32::try_from(number("map_id")?).ok()?, value.next_multiple_of(8).max(1) * entries))
    };
    fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(|entry| of(entry.unwrap())).collect()
}

#[test]
fn a_watch_takes_the_memory_that_its_options_say() {
    let earlier = maps();
    for (pages, events) in [(16, 1024), (64, 2048)] {
        let mut options = plan::watch_options(TraceClock::Mono).unwrap();
        (options.ring_pages, options.events) = (pages, events);
        let bytes = options.bytes();
        let watch = Watch::start(options).unwrap();
        let now = maps();
        let taken: u64 =
            now.iter().filter(|(id, _)| !earlier.contains_key(*id)).map(|(_, bytes)| bytes).sum();
        assert!(taken.abs_diff(bytes) < 16 << 10, "{taken} bytes, and {bytes} are said");
        drop(watch);
    }
}

#[test]
fn a_watch_opens_as_many_descriptors_as_are_said_at_most() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let before = descriptors();
    let mut watch = watch();
    assert!(descriptors() - before <= WatchOptions::FILES);
    let mut most = WatchOptions::FILES;
    for (id, name) in (0..).zip(["sched:sched_*", "syscalls:sys_enter_read", "raw_syscalls:sys_exit"]) {
        let (planned, _) = plan::watch_rule(watch.options(), &rule(events(name), &[])).unwrap();
        most += planned.files();
        watch.add(id, planned).unwrap();
        assert!(descriptors() - before <= most, "{name}");
    }
    for id in 0..3 {
        watch.remove(id).unwrap();
    }
    assert!(descriptors() - before <= WatchOptions::FILES, "those of rules are given back with them");
}

#[test]
fn nothing_is_left_of_a_watch() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let kinds = [("prog", "prog_id"), ("link", "link_id"), ("map", "map_id")];
    let earlier = kinds.map(|(_, key)| bpf_ids(key));
    let mut watch = watch();
    add(&mut watch, 1, &rule(events("sched:sched_switch"), &[]));
    add(&mut watch, 2, &rule(events("syscalls:sys_enter_read"), &[]));
    let used = kinds.map(|(_, key)| bpf_ids(key));
    assert!(used.iter().all(|ids| ids.len() >= 2), "{used:?}");
    watch.remove(2).unwrap();
    drop(watch);
    assert_eq!(descriptors(), before);
    for ((what, _), (ids, earlier)) in kinds.into_iter().zip(used.into_iter().zip(earlier)) {
        for id in ids.difference(&earlier) {
            // The kernel frees them some grace periods after the last reference is gone.
            wait_for(&format!("the kernel to free {what} {id}"), || {
                let args = [what, "show", "id", &id.to_string()];
                let shown = run(&mut program("/".as_ref(), "bpftool", args));
                (!shown.status.success()).then_some(())
            });
        }
    }
}
