//! Nothing disappears: every event that fired is in the file or in the counts of what was lost.

use std::{
    fs,
    mem::offset_of,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use agent_ebpf::{CpuControl, SIDE_BYTES, SIDE_BYTES_PREEMPTIBLE, SIDE_SKIP};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use integration_tests::harness::{
    Caller, Ended, Ledger, Marked, Report, agent, agent_path, cpustat, is_getppid, program, run,
    wait_for_readers,
};

const SIGCONT: i32 = libc::SIGCONT;

/// Records a caller's system calls while the agent is stopped for the first `held` of them, and `free` more
/// after that.
fn record(dir: &Path, args: &[&str], held: u64, free: u64) -> (Ended, u64) {
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let mut all = vec!["-e", "raw_syscalls:sys_enter", "-P", &pid];
    all.extend(args);
    let recording = Marked::start(dir, &all);
    recording.agent.hold();
    caller.call(held);
    recording.agent.signal(SIGCONT);
    for _ in 0..free.div_ceil(1000) {
        caller.call(1000.min(free));
    }
    let ended = recording.finish();
    (ended, caller.calls())
}

/// The column `name` of the summary's last row.
fn summary(ended: &Ended, name: &str) -> u64 {
    let mut lines = ended.err.lines().skip_while(|line| !line.trim_start().starts_with("CPU "));
    let header = lines.next().unwrap_or_else(|| panic!("no table in:\n{}", ended.err));
    let end = header.find(name).unwrap_or_else(|| panic!("no {name} in {header:?}")) + name.len();
    let row = lines.take_while(|line| line.len() >= header.len()).last().expect("a row");
    // Columns are right-aligned and their numbers have a space between thousands: take what is left of the
    // column's end up to two spaces.
    let cell = row[..end].rsplit("  ").next().expect("a cell");
    cell.replace(' ', "").parse().unwrap_or_else(|_| panic!("{cell:?} in {row:?}"))
}

#[test]
fn recorded_and_lost_make_up_what_fired_when_the_reader_is_held_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let (ended, calls) = record(dir.path(), &["-b", "64"], 50_000, 3_000);
    let ended = ended.expect(0);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));

    let (stored, lost) = (report.events.len() as u64, ledger.lost());
    assert!(lost > 40_000, "a ring of 64 KB cannot hold 50 000 events, yet only {lost} were lost");
    assert_eq!(ledger.cpus("stored"), stored, "the ledger counts what the stock reader finds");
    assert_eq!(ledger.cpus("recorded"), stored, "everything in the rings was stored");
    assert_eq!(ledger.events("recorded"), stored);
    assert_eq!(ledger.lost_of_events(), lost, "by event and by CPU the same was lost");
    assert_eq!(ledger.cpus("ring_full"), lost, "and for one cause only");
    assert_eq!(cpustat(&file, "dropped events"), lost);
    assert_eq!(cpustat(&file, "read events"), stored);
    assert_eq!(summary(&ended, "events"), stored, "{}", ended.err);
    assert_eq!(summary(&ended, "lost"), lost, "{}", ended.err);

    // The caller makes a few other calls, to read its orders and to answer; each fired once, recorded or
    // lost.
    let others = report.count(|line| !is_getppid(line));
    let fired = stored + lost;
    assert!(fired >= calls, "{fired} recorded or lost, {calls} calls made");
    let orders = 4;
    assert!(
        fired - calls <= 4 * orders,
        "{fired} recorded or lost, {calls} calls made, {others} others seen"
    );
}

/// The maps of a process: how many elements each has, of how many bytes, and the map.
fn maps_of(pid: u32) -> Vec<(usize, usize, OwnedFd)> {
    let process = Pid::from_raw(pid.cast_signed()).unwrap();
    let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().map(|entry| entry.unwrap().path());
    let map_of = |info: PathBuf| {
        let text = fs::read_to_string(&info).ok()?;
        let number = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
        };
        let (elements, bytes) = (number("max_entries")?, number("value_size")?);
        let descriptor = info.file_name()?.to_str()?.parse().ok()?;
        let map = pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()).ok()?;
        Some((elements, bytes, map))
    };
    infos.filter_map(map_of).collect()
}

/// Fills the side queues of a recorder that is stopped: each has one entry that takes all of it.
fn fill_side_queues(pid: u32) {
    const CONTROL: usize = size_of::<CpuControl>();
    let maps = maps_of(pid);
    let (queues, bytes, side) = maps
        .iter()
        .find(|(_, bytes, _)| [SIDE_BYTES, SIDE_BYTES_PREEMPTIBLE].contains(bytes))
        .expect("the map of the side queues");
    // The high half of a marker is the entry's position and 1.
    let marker = 1_u64 << 32 | u64::from(SIDE_SKIP);
    let mut queue = vec![0; *bytes];
    queue[..8].copy_from_slice(&marker.to_le_bytes());
    for number in 0..*queues {
        bpf::sys::set_element(side.as_fd(), number as u32, &queue).unwrap();
    }
    // All blocks are one element.
    let size = CONTROL * kernel::cpus::Cpus::read().unwrap().table_len();
    let mut control = maps.iter().filter(|(elements, bytes, _)| (*elements, *bytes) == (1, size));
    let (Some((.., control)), None) = (control.next(), control.next()) else { panic!("{maps:?}") };
    let mut blocks = vec![0; size];
    bpf::sys::element(control.as_fd(), 0, &mut blocks).unwrap();
    for block in blocks.chunks_exact_mut(CONTROL) {
        let tail = offset_of!(CpuControl, side_tail);
        block[tail..tail + 8].copy_from_slice(&(queue.len() as u64).to_le_bytes());
    }
    bpf::sys::set_element(control.as_fd(), 0, &blocks).unwrap();
}

#[test]
fn a_full_side_queue_makes_room_for_the_next_event() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let recording = Marked::start(dir.path(), &["-e", "raw_syscalls:sys_enter", "-P", &pid]);
    recording.agent.hold();
    fill_side_queues(recording.agent.pid());
    caller.call(1000);
    recording.agent.signal(SIGCONT);
    recording.finish().expect(0);
    let ledger = Ledger::of(&dir.path().join("trace.dat"));
    assert_eq!(ledger.lost(), 0, "{ledger:?}");
    assert!(ledger.cpus("stored") >= caller.calls(), "{ledger:?}");
}

#[test]
fn a_mark_stands_for_every_lost_event_that_a_later_one_follows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "64", "-s", "1000"];
    let recording = Marked::start(dir.path(), &args);
    for _ in 0..3 {
        recording.agent.hold();
        caller.call(10_000);
        recording.agent.signal(SIGCONT);
        // The agent has made room: these are recorded, the first of them with the mark.
        wait_for_readers(recording.agent.pid());
        caller.call(20);
    }
    recording.finish().expect(0);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    assert!(ledger.lost() > 25_000, "{ledger:?}");
    assert_eq!(report.dropped, ledger.lost());
    assert_eq!(ledger.cpus("stored"), report.events.len() as u64);
}

#[test]
fn losses_at_the_very_end_are_counted_although_no_page_can_be_marked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let recording = Marked::start(dir.path(), &["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "64"]);
    recording.agent.hold();
    caller.call(20_000);
    caller.settle();
    recording.end_command();
    // The agent finds the command ended and closes the gates before a reader looks at the full ring: the
    // caller is silent.
    recording.agent.signal(SIGCONT);
    recording.agent.wait().expect(0);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    assert_eq!(report.dropped, 0);
    let fired = report.events.len() as u64 + ledger.lost();
    assert!((20_000..=20_004).contains(&fired), "{fired}: {ledger:?}");
    assert_eq!(cpustat(&file, "dropped events"), ledger.lost());
}

#[test]
fn nothing_is_lost_and_nothing_marked_when_the_reader_keeps_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let (ended, calls) = record(dir.path(), &[], 0, 20_000);
    ended.expect(0);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    assert_eq!((ledger.lost(), report.dropped), (0, 0));
    assert_eq!(report.count(is_getppid), calls, "every call is in the file, once");
}

#[test]
fn pages_are_stored_with_less_effort_while_much_waits() {
    const CALLS: u64 = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let size = |how: &str| {
        let mut caller = Caller::start();
        caller.pin(0);
        let pid = caller.pid().to_string();
        let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "4096", "--compression", how];
        let recording = Marked::start(dir.path(), &args);
        // Three quarters of the ring.
        recording.agent.hold();
        caller.call(CALLS);
        recording.agent.signal(SIGCONT);
        recording.finish().expect(0);
        assert_eq!(Ledger::of(&file).lost(), 0, "{how}");
        assert_eq!(Report::of(&file).count(is_getppid), CALLS, "{how}");
        fs::metadata(&file).unwrap().len()
    };
    let (always, by_load) = (size("zstd"), size("auto"));
    assert!(by_load > 2 * always, "{always} and {by_load} bytes");
}

#[test]
fn overwrite_keeps_the_newest_events_and_counts_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    // On one CPU, so that "the newest" is one sequence.
    caller.pin(0);
    let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "64", "--overwrite", "-M", "1"];
    let recording = Marked::start(dir.path(), &args);
    caller.call(30_000);
    caller.settle();
    let ended = recording.finish().expect(0);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    let stored = report.events.len() as u64;
    let overwritten = ledger.cpus("overwritten");
    assert_eq!(ledger.cpus("stored"), stored);
    assert_eq!(ledger.lost(), 0, "reusing a page is not a loss");
    let fired = stored + overwritten;
    assert!((30_000..=30_008).contains(&fired), "{stored} stored, {overwritten} overwritten");
    assert!(stored >= 500, "a ring of 64 KB holds more than {stored} system calls");
    assert_eq!(summary(&ended, "overwritten"), overwritten);
    assert_eq!(cpustat(&file, "overrun"), overwritten);
    // The last thing the caller did was to write its answer and read its next order, right behind the calls.
    let last = &report.events[report.events.len() - 3..];
    assert!(is_getppid(&last[0]) && !is_getppid(&last[1]) && !is_getppid(&last[2]), "{last:?}");
    assert_eq!(report.dropped, overwritten, "the first page says how much is missing before it");
}

#[test]
fn a_size_cap_is_kept_and_the_newest_events_survive() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    caller.pin(0);
    let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "-m", "256", "-M", "1", "--compression", "none"];
    let recording = Marked::start(dir.path(), &args);
    for _ in 0..30 {
        caller.call(1000);
    }
    recording.finish().expect(0);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    let stored = report.events.len() as u64;
    assert!(ledger.cpus("pages") * 4096 <= 256 * 1024, "{} pages", ledger.cpus("pages"));
    assert!(ledger.cpus("pages") * 4096 >= 128 * 1024, "half of the cap is always there");
    assert_eq!(ledger.lost(), 0);
    assert_eq!(ledger.cpus("stored"), stored);
    assert_eq!(ledger.cpus("recorded"), stored + ledger.cpus("capped"));
    assert!((30_000..=30_200).contains(&ledger.cpus("recorded")), "{ledger:?}");
    assert_eq!(cpustat(&file, "overrun"), ledger.cpus("capped"));
    let last = &report.events[report.events.len() - 3..];
    assert!(is_getppid(&last[0]) && !is_getppid(&last[1]), "the newest are there: {last:?}");
}

#[test]
fn more_losses_than_allowed_are_an_exit_code_that_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let (ended, _) = record(dir.path(), &["-b", "64", "--max-loss", "10"], 30_000, 0);
    let ended = ended.expect(115).says(&["--max-loss allows 10", "ring_full", "raw_syscalls:sys_enter: "]);
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    assert_eq!(ledger.cpus("stored"), report.events.len() as u64, "the file is there all the same");
    assert!(ledger.lost() > 10, "{}", ended.err);

    let (ended, _) = record(dir.path(), &["--max-loss", "0"], 0, 2000);
    ended.expect(0);
}

/// A control group with a limit of memory: of the second version, or of the first where that has the
/// controller.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make(bytes: u64) -> Self {
        let (root, file) = if Path::new("/sys/fs/cgroup/memory").is_dir() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            // The group of this test may be below others that have the controller.
            fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory").unwrap();
            ("/sys/fs/cgroup", "memory.max")
        };
        let path = Path::new(root).join(format!("tracer-agent-test-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let group = Self(path);
        fs::write(group.0.join(file), bytes.to_string()).unwrap();
        group
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What is still in it is on its way out.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// With little memory the agent works, or the kernel ends it and its spool has what was stored: nothing is
/// lost in silence.
#[test]
fn a_limit_of_memory_costs_nothing_in_silence() {
    const CALLS: u64 = 50_000;
    let mut worked = Vec::new();
    for megabytes in [12, 64] {
        let group = MemoryGroup::make(megabytes << 20);
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "echo $$ >{}/cgroup.procs; exec \"$AGENT\" record -e raw_syscalls:sys_enter -F perl -e 'getppid() for 1..{CALLS}'",
            group.0.display()
        );
        let ended = run(program(dir.path(), "sh", ["-c", &script]).env("AGENT", agent_path()));
        let file = dir.path().join("trace.dat");
        match ended.status.code() {
            Some(0) => {
                let (report, ledger) = (Report::of(&file), Ledger::of(&file));
                let found = report.count(is_getppid);
                assert!(found <= CALLS && found + ledger.lost() >= CALLS, "{found}: {ledger:?}");
                assert_eq!(ledger.cpus("stored"), report.events.len() as u64);
                worked.push(megabytes);
            }
            // Refused before anything is recorded, in the words of the C library.
            Some(111) if ended.err.contains(&format!("(os error {})", libc::ENOMEM)) => {
                assert!(!file.exists(), "nothing was recorded");
            }
            Some(code) => panic!("{megabytes} MB: {code}: {}", ended.err),
            // Killed by the kernel, which says so in its log and in the status. What had been stored is
            // there.
            None => {
                assert!(!file.exists(), "no file that is not whole");
                if dir.path().join("trace.dat.spool/manifest").exists() {
                    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
                    Report::of(&file);
                }
            }
        }
    }
    assert!(worked.contains(&64), "64 MB are enough: {worked:?}");
}
