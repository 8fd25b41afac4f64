//! Filters of `record -f`, sampling and rate limits, against recordings without them.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use integration_tests::harness::{Caller, Ledger, Marked, Report, agent, is_getppid, run, tid_of};

/// Recordings at once beside the one without filters, and how often.
const AGENTS: usize = 7;
const ROUNDS: usize = 6;

/// The events, and comparisons of each; numbers are put for `#`.
const EVENTS: [(&str, &[&str]); 5] = [
    (
        "sched:sched_switch",
        &[
            "next_pid > #",
            "prev_pid != 0",
            "prev_state == #",
            "next_comm ~ \"p*\"",
            "prev_comm ~ \"*er*\"",
            "next_prio < 120",
            "prev_comm != \"perl\"",
            "prev_comm == next_comm",
            "(next_pid & 3) == 1",
        ],
    ),
    (
        "sched:sched_waking",
        &[
            "pid % 2 == 0",
            "comm ~ \"[a-p]*\"",
            "target_cpu == CPUS{0}",
            "prio >= 120",
            "comm == \"perl\"",
            "pid < #",
        ],
    ),
    (
        "sched:sched_process_exec",
        &[
            "filename ~ \"*/true\"",
            "filename == \"/bin/true\"",
            "pid != old_pid",
            "filename ~ \"/bin/*\"",
            "pid % 3 == 0",
        ],
    ),
    (
        "raw_syscalls:sys_exit",
        &[
            "id == #",
            "ret < 0",
            "ret > #",
            "id < 64 && ret == 0",
            "(id & 1) == 0",
            "ret == -2",
            "$tid % 2 == 0",
        ],
    ),
    (
        "task:task_rename",
        &[
            "newcomm ~ \"t*\"",
            "oldcomm == \"perl\"",
            "oldcomm != newcomm",
            "oom_score_adj == 0",
            "pid % 2 == 1",
        ],
    ),
];

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn filter(&mut self, of: &[&str], depth: u32) -> String {
        match self.below(if depth == 0 { 1 } else { 5 }) {
            0 => {
                let number = [0, 1, 3, 9, 59, 100, 257, 1000][self.below(8)];
                format!("({})", of[self.below(of.len())].replace('#', &number.to_string()))
            }
            1 => format!("!{}", self.filter(of, 0)),
            2 => format!("({} && {})", self.filter(of, depth - 1), self.filter(of, depth - 1)),
            _ => format!("({} || {})", self.filter(of, depth - 1), self.filter(of, depth - 1)),
        }
    }
}

/// A process that starts others when it is told to.
struct Starter(Child);

impl Starter {
    fn start() -> Self {
        let script = "$| = 1; while (<STDIN>) { for (1..12) { system($_ % 3 ? '/bin/true' : '/bin/pwd >/dev/null'); } print qq(x) }";
        let perl =
            Command::new("perl").args(["-e", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self(perl.expect("perl"))
    }

    fn go(&mut self) {
        writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
        self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends with its input; nothing is left to do about a failure.
        let _ = self.0.wait();
    }
}

/// The lines of `report` in an order of their own, without times and names of threads, which change while
/// others record on. A thread that ended is a zombie (`Z`) or dead (`X`) in its last switch: its parent reaps
/// it meanwhile on another CPU, and each recording reads `exit_state` at a time of its own
/// (`__trace_sched_switch_state`, include/trace/events/sched.h).
fn lines(file: &Path, args: &[&str]) -> Vec<String> {
    let dir = file.parent().unwrap();
    let report = run(agent(dir, ["report"]).args(args).arg(file)).expect(0);
    let mut lines: Vec<String> = report
        .out
        .lines()
        .filter(|line| !line.starts_with("cpus="))
        .map(|line| {
            let (_, rest) = line.split_once("] ").expect(line);
            format!("{} {}", tid_of(line), rest.split_once(": ").expect(line).1.replace(" X ==> ", " Z ==> "))
        })
        .collect();
    lines.sort_unstable();
    lines
}

#[test]
fn recordings_with_random_filters_side_by_side_have_what_reports_with_them_show() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut kept, mut different) = (0, String::new());
    for _ in 0..ROUNDS {
        let mut starter = Starter::start();
        let pid = starter.0.id().to_string();
        let mut recordings = Vec::new();
        for agent in 0..=AGENTS {
            let mut filters = Vec::new();
            let output = dir.path().join(format!("{agent}.dat"));
            let mut args = vec!["-P", &pid, "-c", "-o", output.to_str().unwrap()];
            if agent != 0 {
                filters.extend(EVENTS.iter().map(|(_, of)| random.filter(of, 2)));
            }
            for (place, (event, _)) in EVENTS.iter().enumerate() {
                args.extend(["-e", event]);
                args.extend(filters.get(place).into_iter().flat_map(|filter| ["-f", filter.as_str()]));
            }
            let mark = dir.path().join(format!("{agent}.mark"));
            let marked = Marked::start_in(dir.path(), &args, mark);
            recordings.push((output.clone(), filters.clone(), marked));
        }
        starter.go();
        drop(starter);
        let mut all = None;
        for (file, filters, marked) in recordings {
            marked.finish().expect(0);
            assert_eq!(Ledger::of(&file).lost(), 0);
            if filters.is_empty() {
                all = Some(file);
                continue;
            }
            let all = all.as_ref().unwrap();
            for ((event, _), filter) in EVENTS.iter().zip(&filters) {
                let in_report = format!("{}: {filter}", event.replace(':', "/"));
                let expected = lines(all, &["-F", &in_report]);
                let only = format!("{}: common_pid >= 0", event.replace(':', "/"));
                let found = lines(&file, &["-F", &only]);
                if found != expected {
                    let apart = found.iter().zip(&expected).find(|(found, expected)| found != expected);
                    let (found, expected) = (found.len(), expected.len());
                    let _ = writeln!(different, "{event} -f '{filter}': {found} for {expected}, {apart:?}");
                }
                kept += found.len();
            }
        }
    }
    assert!(different.is_empty(), "{different}");
    assert!(kept > 1000, "{kept}");
}

#[test]
fn what_a_filter_leaves_out_is_counted_and_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let filter = format!("id == {}", libc::SYS_getppid);
    let (pid, event) = (caller.pid().to_string(), "raw_syscalls:sys_enter");
    let recording = Marked::start(dir.path(), &["-e", event, "-f", &filter, "-P", &pid]);
    caller.call(300);
    let ended = recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    let (report, ledger) = (Report::of(&file), Ledger::of(&file));
    assert_eq!((report.events.len(), report.count(is_getppid)), (300, 300));
    assert_eq!((ledger.events("recorded"), ledger.lost(), report.dropped), (300, 0, 0));
    assert!(
        ledger.events("filtered") > 0 && ended.err.contains("events were left out by filters"),
        "{}",
        ended.err
    );
}

#[test]
fn one_of_so_many_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    let filter = format!("id == {}", libc::SYS_getppid);
    let pid = caller.pid().to_string();
    for lane in ["fast", "generic"] {
        let event = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"][usize::from(lane == "fast")];
        // System calls have no filter of their own in the fast lane.
        let with_filter = ["-f", &filter].into_iter().filter(|_| lane == "generic");
        let args = ["-P", &pid, "--lane", lane, "-e", event, "--sample", "1/10"];
        let args: Vec<&str> = args.into_iter().chain(with_filter).collect();
        let recording = Marked::start(dir.path(), &args);
        caller.call(1000);
        caller.settle();
        recording.finish().expect(0);
        let ledger = Ledger::of(&dir.path().join("trace.dat"));
        let (kept, left) = (ledger.events("recorded"), ledger.events("sampled_out"));
        assert!(kept >= 100 && kept == (kept + left).div_ceil(10), "{lane}: {kept} of {}", kept + left);
        assert_eq!(ledger.lost(), 0);
    }
}

#[test]
fn what_is_beyond_a_rate_is_a_cause_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let (pid, filter) = (caller.pid().to_string(), format!("id == {}", libc::SYS_getppid));
    let args =
        ["-P", &pid, "-e", "raw_syscalls:sys_enter", "-f", &filter, "--rate", "50/s", "--max-loss", "0"];
    let recording = Marked::start(dir.path(), &args);
    caller.call(5000);
    // What was asked for is within --max-loss.
    recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    let (ledger, report) = (Ledger::of(&file), Report::of(&file));
    assert_eq!(ledger.events("recorded") + ledger.events("rate_limit"), 5000);
    assert_eq!(ledger.lost(), ledger.events("rate_limit"));
    let mut seconds = std::collections::BTreeMap::new();
    for line in &report.events {
        let time = line.split_once("] ").unwrap().1.trim_start();
        *seconds.entry(time.split_once('.').unwrap().0.to_owned()).or_insert(0) += 1;
    }
    assert!(!seconds.is_empty() && seconds.values().all(|count| *count <= 50), "{seconds:?}");
}

#[test]
fn filters_that_make_no_sense_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (
            &["-e", "sched_switch", "-f", "nxt_pid == 1"][..],
            "has no field `nxt_pid`; did you mean `next_pid`?",
        ),
        (&["-e", "sched_switch", "-f", "next_pid == \"x\""], "is a number; compare it with a number"),
        (&["-e", "sched_switch", "-f", "next_comm > 1"], "cannot be compared with the number 1"),
        (
            &["-e", "sched_switch", "-f", "next_comm =~ \"x\""],
            "regular expressions (`=~`, `!~`) cannot be evaluated in the kernel",
        ),
        (
            &["-e", "sched_switch", "-f", "common_flags == 1"],
            "`common_flags` is set after the filter is evaluated",
        ),
        (&["-e", "sched_switch", "-f", "next_pid =="], "a field or a value expected"),
        (&["-f", "next_pid == 1", "-e", "sched_switch"], "-f applies to the -e, --for or probe before it"),
        (&["-e", "sched_switch", "--sample", "2/3"], "expected 1/N"),
        (&["-e", "irq", "--rate", "5/s", "-e", "sched_switch", "--rate-by", "cgroup"], "and there is none"),
        (&["-e", "sched_switch", "--rate", "x"], "expected a number of events per second"),
        (
            &["-e", "raw_syscalls:sys_enter", "--lane", "fast", "-f", "id == 1"],
            "all system calls share their programs",
        ),
    ] {
        let ended = run(agent(dir.path(), ["record"]).args(args).arg("true"));
        assert!(ended.code() == 2 && ended.err.contains(said), "{args:?}: {ended:?}");
    }
    assert!(!dir.path().join("trace.dat").exists());
}
