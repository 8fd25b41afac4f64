//! Exports as the text of `perf script`, against what stock perf prints, and as readers of that text read
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use inferno::collapse::Collapse as _;
use inferno::collapse::perf::{Folder, Options};
use integration_tests::folded;
use integration_tests::harness::{agent, agent_path, program, run};

pub(crate) fn export(file: &Path, to: &Path) -> String {
    run(agent("/".as_ref(), ["export", "--force", "--format", "perf-script"]).arg(file).arg(to)).expect(0);
    std::fs::read_to_string(to).unwrap()
}

/// The fields of a line of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'t> {
    comm: &'t str,
    pid: i64,
    pub(crate) tid: i64,
    pub(crate) cpu: u32,
    pub(crate) nanos: u64,
    pub(crate) event: &'t str,
    text: &'t str,
}

/// Takes a line apart as readers do: by the id of the thread, and by colons.
fn line(line: &str) -> Line<'_> {
    let (head, rest) = line.split_once(" [").unwrap_or_else(|| panic!("no CPU: {line}"));
    let (comm, ids) = head.trim_end().rsplit_once(' ').unwrap();
    let (pid, tid) = ids.split_once('/').unwrap();
    let (cpu, rest) = rest.split_once("] ").unwrap();
    let (time, rest) = rest.split_once(": ").unwrap();
    let (seconds, fraction) = time.trim().split_once('.').unwrap();
    assert_eq!(fraction.len(), 9, "{line}");
    let (event, text) = rest.trim_start().split_once(": ").unwrap_or((rest.trim().trim_end_matches(':'), ""));
    Line {
        comm: comm.trim(),
        pid: pid.parse().unwrap(),
        tid: tid.parse().unwrap(),
        cpu: cpu.parse().unwrap(),
        nanos: seconds.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap(),
        event,
        text,
    }
}

/// The lines of records: neither frames, nor what ends them, nor comments.
pub(crate) fn records(text: &str) -> Vec<Line<'_>> {
    let is_record = |line: &&str| !line.is_empty() && !line.starts_with(['\t', '#']);
    text.lines().filter(is_record).map(line).collect()
}

#[test]
fn lines_are_those_of_perf_for_the_same_events() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("trace.dat"), dir.path().join("perf.data"));
    let events = ["sched:sched_process_exec", "sched:sched_process_exit"];
    let mut perf = program(dir.path(), "perf", ["record", "-a", "-q", "-o"]);
    perf.arg(&data).args(events.iter().flat_map(|event| ["-e", event])).arg("--").arg(agent_path());
    perf.args(["record", "-q", "-o"]).arg(&file).args(events.iter().flat_map(|event| ["-e", event]));
    run(perf.args(["sh", "-c", "/bin/true; /bin/echo >/dev/null; /bin/true"])).expect(0);
    let text = export(&file, &dir.path().join("out"));
    let mut script =
        program(dir.path(), "perf", ["script", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace", "-i"]);
    let stock = run(script.arg(&data)).expect(0).out;
    // Perf records longer, and by another clock.
    let stock = records(&stock);
    let mut seen = 0;
    for mine in records(&text) {
        let same = |other: &&Line<'_>| {
            (other.pid, other.tid, other.event, other.text) == (mine.pid, mine.tid, mine.event, mine.text)
        };
        assert!(stock.iter().any(|other| same(&other)), "{mine:?}\n{stock:?}");
        seen += usize::from(mine.event == "sched:sched_process_exec" && mine.comm == "true");
    }
    assert_eq!(seen, 2, "{text}");
    // The columns up to the time are perf's, byte by byte: `true  123/123   [000] `.
    let ours = text.lines().find(|line| line.contains("/bin/true")).unwrap();
    let (width, ids) = (ours.find(|c: char| c != ' ').unwrap(), &ours[17..]);
    assert!(width == 12 && ids.as_bytes()[5] == b'/' || ids.contains('/'), "{ours:?}");
}

#[test]
fn stacks_fold_as_our_own_folded_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "for n in 1 2 3 4 5; do ls /proc >/dev/null; sleep 0.01; done";
    let mut record =
        agent(dir.path(), ["record", "-q", "-T", "--user-stack", "-e", "sched:sched_switch", "-o"]);
    run(record.arg(&file).args(["sh", "-c", script])).expect(0);
    let out = dir.path().join("out");
    let text = export(&file, &out);
    let frames = text.lines().filter(|line| line.starts_with('\t')).count();
    assert!(frames > 100, "{text}");
    // inferno takes what follows an event's name for a frame: it wants `perf script -F -trace`.
    let name = " sched:sched_switch: ";
    let without = text
        .lines()
        .map(|line| line.split_once(name).map_or(line.to_owned(), |(head, _)| format!("{head}{name}")));
    std::fs::write(&out, without.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let mut folder = Folder::from(Options::default());
    let mut lines = Vec::new();
    folder.collapse_file(Some(&out), &mut lines).unwrap();
    let mut theirs = BTreeMap::new();
    for (stack, count) in folded::read(std::str::from_utf8(&lines).unwrap()) {
        let frames: Vec<&str> = stack.split(';').collect();
        *theirs.entry(folded::without_tracing(&frames).join(";")).or_default() += count;
    }
    let ours = folded::read(&run(agent("/".as_ref(), ["report", "--folded"]).arg(&file)).expect(0).out);
    let (theirs, ours) = (of_the_script(theirs), of_the_script(ours));
    assert!(ours.len() > 5 && ours == theirs, "{theirs:?}\n{ours:?}");
}

/// The stacks of the processes of the script. Of others inferno may change names: it cuts the parameters off
/// functions of C++, and leaves out those of anonymous namespaces. Who has no frames has a stack of its name
/// alone there, and none here.
fn of_the_script(stacks: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let is_ours = |stack: &str| ["sh;", "ls;", "sleep;"].iter().any(|name| stack.starts_with(name));
    stacks.into_iter().filter(|(stack, _)| is_ours(stack)).collect()
}
