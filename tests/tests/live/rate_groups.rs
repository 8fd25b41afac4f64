//! Limits of rates that each control group has for itself.

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command},
    thread,
};

use capture::{HandOver, Session};
use integration_tests::{
    cgroup::Group,
    harness::{Caller, Ledger, Marked, Report, Running, agent, is_getppid, tid_of},
    session::{CALLS, add, calls, events, rows, spec, start, stop},
};
use spec::{RateBy, RuleSpec};
use stdx::handover::Parcels;

/// How many of these lines there are in each second of the clock.
fn by_second<'a>(lines: impl Iterator<Item = &'a String>) -> BTreeMap<String, u64> {
    let mut seconds = BTreeMap::new();
    for line in lines {
        let time = line.split_once("] ").unwrap().1.trim_start();
        *seconds.entry(time.split_once('.').unwrap().0.to_owned()).or_insert(0) += 1;
    }
    seconds
}

/// The lines of calls that these have made.
fn lines<'a>(report: &'a Report, callers: &[&Caller]) -> Vec<&'a String> {
    let pids: Vec<u32> = callers.iter().map(|caller| caller.pid()).collect();
    report.events.iter().filter(|line| pids.contains(&tid_of(line)) && line.contains("getppid")).collect()
}

#[test]
fn an_overload_of_a_group_leaves_the_others_what_is_theirs() {
    const RATE: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let (loud, calm) = (Group::make("rate-loud"), Group::make("rate-calm"));
    let (mut storm, mut burst, mut quiet) = (Caller::start(), Caller::start(), Caller::start());
    loud.take(&storm);
    loud.take(&burst);
    calm.take(&quiet);
    let pids = [&storm, &burst, &quiet].map(|caller| caller.pid().to_string()).join(",");
    for lane in ["fast", "generic"] {
        let before = [&storm, &burst, &quiet].map(Caller::calls);
        let rate = format!("{RATE}/s");
        let args = ["-P", &pids, "--lane", lane, "-e", "syscalls:sys_enter_getppid", "--rate", &rate];
        let recording =
            Marked::start(dir.path(), &[&args[..], &["--rate-by", "cgroup", "--max-loss", "0"]].concat());
        thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|_| storm.call(10_000)));
            // However long this takes, and wherever a second ends: its own limit has room for all of them,
            // and that of the others is used up before each.
            for _ in 0..RATE - 10 {
                burst.call(2 * RATE);
                quiet.call(1);
            }
        });
        // What was asked for is within --max-loss.
        recording.finish().expect(0);
        let made: Vec<u64> = [&storm, &burst, &quiet]
            .iter()
            .zip(before)
            .map(|(caller, before)| caller.calls() - before)
            .collect();
        let file = dir.path().join("trace.dat");
        let (ledger, report) = (Ledger::of(&file), Report::of(&file));
        assert_eq!(lines(&report, &[&quiet]).len() as u64, RATE - 10, "{lane}");
        let loud = lines(&report, &[&storm, &burst]);
        let seconds = by_second(loud.iter().copied());
        assert!(seconds.values().all(|count| *count <= RATE), "{lane}: {seconds:?}");
        assert!(loud.len() as u64 >= RATE, "{lane}: {seconds:?}");
        // All that is missing is theirs.
        let missing = made[0] + made[1] - loud.len() as u64;
        assert_eq!(ledger.events("rate_limit"), missing, "{lane}");
        assert_eq!(ledger.lost(), missing, "{lane}");
        assert_eq!(ledger.events("recorded") + missing, made.iter().sum::<u64>(), "{lane}");
    }
}

/// A shell in a group that runs this script.
fn shell_in(group: &Group, script: &str) -> Child {
    let script = format!("echo $$ > {}/cgroup.procs; {script}", group.dir().display());
    Command::new("sh").args(["-c", &script]).spawn().unwrap()
}

#[test]
fn a_group_that_forks_and_forks_blinds_nobody() {
    const RATE: u64 = 100;
    const ROUNDS: u64 = 30;
    let dir = tempfile::tempdir().unwrap();
    let (loud, calm) = (Group::make("fork-loud"), Group::make("fork-calm"));
    let rate = format!("{RATE}/s");
    let args = ["-e", "sched:sched_process_fork", "--rate", &rate, "--rate-by", "cgroup", "--max-loss", "0"];
    let recording = Marked::start(dir.path(), &args);
    let over = dir.path().join("over");
    // A few at a time, so that the machine has others left.
    let bomb = format!("while [ ! -e {} ]; do (:)& (:)& (:)& (:)& wait; done", over.display());
    let mut bombs = [(); 2].map(|()| shell_in(&loud, &bomb));
    // Both the subshell and the program are forks.
    let script = format!("i=0; while [ $i -lt {ROUNDS} ]; do (:); sleep 0.02; i=$((i+1)); done");
    let mut quiet = shell_in(&calm, &script);
    assert!(quiet.wait().unwrap().success());
    fs::write(over, "").unwrap();
    let loud_pids: Vec<u32> = bombs.iter().map(Child::id).collect();
    for bomb in &mut bombs {
        assert!(bomb.wait().unwrap().success());
    }
    recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    let (ledger, report) = (Ledger::of(&file), Report::of(&file));
    let forks = |pid: u32| {
        let parent = format!(" pid={pid} ");
        report.events.iter().filter(|line| line.contains(&parent)).collect::<Vec<_>>()
    };
    assert_eq!(forks(quiet.id()).len() as u64, 2 * ROUNDS);
    let of_loud = loud_pids.iter().flat_map(|pid| forks(*pid));
    let seconds = by_second(of_loud);
    assert!(seconds.values().all(|count| *count <= RATE), "{seconds:?}");
    assert!(ledger.events("rate_limit") > 0, "it was no overload");
    assert_eq!(ledger.lost(), ledger.events("rate_limit"));
    assert_eq!(ledger.events("recorded"), report.events.len() as u64);
}

#[test]
fn groups_within_groups_have_limits_of_their_own() {
    const RATE: u64 = 10;
    const GROUPS: usize = 12;
    let dir = tempfile::tempdir().unwrap();
    let outer = Group::make("rate-outer");
    let inner: Vec<Group> = (1..GROUPS).map(|number| outer.inside(&number.to_string())).collect();
    let mut callers: Vec<Caller> = (0..GROUPS).map(|_| Caller::start()).collect();
    for (group, caller) in [&outer].into_iter().chain(&inner).zip(&callers) {
        group.take(caller);
    }
    let pids: Vec<String> = callers.iter().map(|caller| caller.pid().to_string()).collect();
    let (pids, filter) = (pids.join(","), format!("id == {}", libc::SYS_getppid));
    for by in ["cgroup", "event"] {
        let args = ["-P", &pids, "-e", CALLS, "-f", &filter, "--rate", "10/s", "--rate-by", by];
        let recording = Marked::start(dir.path(), &args);
        for caller in &mut callers {
            caller.call(5 * RATE);
        }
        recording.finish().expect(0);
        let file = dir.path().join("trace.dat");
        let (ledger, report) = (Ledger::of(&file), Report::of(&file));
        assert_eq!(ledger.events("recorded") + ledger.events("rate_limit"), 5 * RATE * GROUPS as u64);
        assert_eq!(ledger.lost(), ledger.events("rate_limit"));
        if by == "event" {
            let seconds = by_second(report.events.iter());
            assert!(seconds.values().all(|count| *count <= RATE), "{seconds:?}");
            continue;
        }
        for caller in &callers {
            let own = report.events.iter().filter(|line| tid_of(line) == caller.pid() && is_getppid(line));
            let seconds = by_second(own);
            assert!(seconds.values().all(|count| *count <= RATE), "{seconds:?}");
            assert!(seconds.values().sum::<u64>() >= RATE, "{seconds:?}");
        }
    }
    // Those inside of it go first.
    drop(callers);
    drop(inner);
}

/// Hands a recording over to this process.
fn pass_on(session: Session) -> Session {
    let parcels = Parcels::new().unwrap();
    session.hand_over().unwrap().send(&parcels).unwrap();
    Session::take_over(HandOver::receive(&parcels).unwrap().unwrap()).unwrap()
}

/// The windows of events that come later are not those of the events that there were, and they go along when
/// another process goes on.
#[test]
fn events_that_are_added_and_handed_over_have_limits_of_groups() {
    const RATE: u32 = 10;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let groups = ["rate-one", "rate-two"].map(Group::make);
    let mut callers = groups.each_ref().map(|group| {
        let caller = Caller::start();
        group.take(&caller);
        caller
    });
    let limited = |event: &str| RuleSpec {
        rate: Some(RATE),
        rate_by: RateBy::Cgroup,
        ..events(&format!("syscalls:{event}"))
    };
    let mut spec = spec(&file, &callers[0], vec![limited("sys_exit_getppid")], 4);
    spec.scope.pids.push(callers[1].pid());
    callers[1].pin(1);
    let mut session = start(&spec);
    let mut call = || callers.iter_mut().for_each(|caller| caller.call(50));
    call();
    let added = RuleSpec { rate: Some(RATE), rate_by: RateBy::Cgroup, ..calls() };
    add(&mut session, added.clone());
    call();
    session.remove("", CALLS).unwrap();
    add(&mut session, added);
    call();
    let mut session = pass_on(session);
    call();
    add(&mut session, limited("sys_enter_getppid"));
    call();
    stop(session);
    let report = Report::of(&file);
    for (event, times) in
        [("syscalls:sys_exit_getppid", vec![5]), (CALLS, vec![1, 3]), ("syscalls:sys_enter_getppid", vec![1])]
    {
        let rows = rows(&file, event);
        assert_eq!(rows.len(), times.len(), "{event}: {rows:?}");
        for (row, times) in rows.iter().zip(times) {
            let (recorded, lost) =
                (row["recorded"].as_u64().unwrap(), row["lost"]["rate_limit"].as_u64().unwrap());
            assert_eq!(recorded + lost, times * 100, "{row}");
            // A limit for both would have had half of it in the first second.
            assert!(recorded >= 2 * u64::from(RATE), "{row}");
        }
        let name = event.split_once(':').unwrap().1;
        for caller in &callers {
            let own = report.events.iter().filter(|line| tid_of(line) == caller.pid() && line.contains(name));
            assert!(own.count() >= RATE as usize, "{event}");
        }
    }
}

#[test]
fn what_is_counted_in_maps_has_limits_of_groups() {
    let dir = tempfile::tempdir().unwrap();
    let spec = r#"{"version": 1, "channels": [], "maps": [{
        "event": {"what": {"events": "raw_syscalls:sys_enter"}, "filter": "id == 110", "rate": 10, "rate_by": "cgroup"},
        "by": ["$pid"], "name": "calls"}]}"#;
    fs::write(dir.path().join("spec.json"), spec).unwrap();
    let groups = ["rate-one", "rate-two"].map(|name| Group::make(&format!("{name}-counted")));
    let mut callers = groups.each_ref().map(|group| {
        let caller = Caller::start();
        group.take(&caller);
        caller
    });
    let mut command = agent(dir.path(), ["record", "--spec", "spec.json"]);
    let mut recording = Running::start(&mut command);
    recording.wait_until_said("counting", 1);
    for caller in &mut callers {
        caller.call(5000);
    }
    recording.signal(libc::SIGINT);
    let ended = recording.wait().expect(0);
    for caller in &callers {
        let mut words = ended.out.lines().map(str::split_whitespace);
        let own =
            words.find_map(|mut words| (words.next()? == caller.pid().to_string()).then(|| words.next()));
        let counted: u64 = own.flatten().expect("the caller has an entry").parse().unwrap();
        assert!((10..5000).contains(&counted), "{}", ended.out);
    }
    assert!(ended.out.contains("beyond the rate"), "{}", ended.out);
}
