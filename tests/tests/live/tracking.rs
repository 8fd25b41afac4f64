//! Which threads are recorded, changed while a recording goes on: what the library can do.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use capture::{Session, TrackError, finish};
use integration_tests::{
    harness::{Caller, Report, agent, files, is_getppid, ledger_in_info, run, tid_of, wait_for},
    session::{CALLS, add, calls, events, recorded, rows, spec, start, stop},
};
use spec::Attribute;
use spec::LaneChoice;
use spec::{RecordingSpec, RotationSpec};

/// What [`Caller::by`] gets for a process of this user and group. By path, as guests have busybox's, too.
const OTHER: [&str; 6] = ["/usr/bin/setpriv", "--reuid=4242", "--regid=4343", "--clear-groups", "--", "env"];

/// What a session records of callers, in the initial state of all trackers.
fn tracked(path: &Path, callers: &[&Caller]) -> RecordingSpec {
    let mut spec = spec(path, callers[0], vec![calls()], 0);
    // What others do on this machine is not counted. The callers are where they were born.
    spec.scope.pids = callers.iter().flat_map(|caller| family(caller.pid())).collect();
    spec.scope.changes = true;
    spec.scope.cpus = None;
    spec
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    std::iter::once(pid).chain(children).collect()
}

fn track(session: &mut Session, attribute: Attribute, values: Option<&[&str]>) {
    let values: Option<Vec<String>> = values.map(|of| of.iter().map(|&value| value.to_owned()).collect());
    session.track(plan::tracking(attribute, values.as_deref()).unwrap()).unwrap();
}

/// How many calls are recorded while each of the callers makes its number of them.
fn counted(session: &Session, callers: &mut [&mut Caller], counts: &[u64]) -> u64 {
    let before = session.ledger();
    for (caller, &count) in callers.iter_mut().zip(counts) {
        caller.call(count);
    }
    let counted = session.ledger().since(&before);
    assert_eq!(counted.lost(), 0);
    counted.recorded(0, 0)
}

/// Sets the tracker of an attribute to each of the values in turn, and compares who of the callers is
/// recorded: sums of 1 for the first, 10 for the second, 100 for the third.
fn compare(session: &mut Session, callers: &mut [&mut Caller], steps: &[(Attribute, Option<&[&str]>, u64)]) {
    for &(attribute, values, expected) in steps {
        track(session, attribute, values);
        let calls = counted(session, callers, &[1, 10, 100]);
        assert_eq!(calls, expected, "{attribute}: {values:?}");
    }
}

#[test]
fn what_is_tracked_changes_exactly_when_it_is_said() {
    use Attribute::{Comm, Gid, Pid, Uid};
    let dir = tempfile::tempdir().unwrap();
    for (lane, event) in [(LaneChoice::Fast, "syscalls:sys_enter_getppid"), (LaneChoice::Generic, CALLS)] {
        let file = dir.path().join(format!("{lane}.dat"));
        let (mut one, mut two, mut other) =
            (Caller::named("track-one"), Caller::named("track-two"), Caller::by(&OTHER));
        let mut spec = tracked(&file, &[&one, &two, &other]);
        spec.channels[0].lane = lane;
        if event != CALLS {
            spec.channels[0].rules = vec![events(event)];
        }
        let mut session = start(&spec);
        let (first, both) = (one.pid().to_string(), format!("{} {}", one.pid(), other.pid()));
        let both: Vec<&str> = both.split(' ').collect();
        let mut callers = [&mut one, &mut two, &mut other];
        assert_eq!(counted(&session, &mut callers, &[1, 10, 100]), 111);
        compare(
            &mut session,
            &mut callers,
            &[
                (Pid, Some(&[]), 0),
                (Pid, Some(&[&first]), 1),
                (Pid, Some(&[&first]), 1),
                (Pid, Some(&both), 101),
                // All sets have to hold.
                (Uid, Some(&["0", "1"]), 1),
                (Uid, Some(&["4242"]), 100),
                (Pid, None, 100),
                (Uid, Some(&[]), 0),
                (Uid, None, 111),
                (Gid, Some(&["4343"]), 100),
                (Gid, Some(&["root", "4343"]), 111),
                (Gid, Some(&["root"]), 11),
                (Comm, Some(&["track-*"]), 11),
                (Comm, Some(&["*-tw[a-z]"]), 10),
                (Comm, Some(&["track-one", "?rack-two"]), 11),
                (Comm, Some(&["track-on"]), 0),
                (Comm, None, 11),
                (Gid, None, 111),
            ],
        );
        stop(session);
        let steps = [0, 1, 1, 101, 1, 100, 100, 0, 111, 100, 111, 11, 11, 10, 11, 0, 11, 111, 111];
        let all: u64 = steps.iter().sum();
        let report = Report::of(&file);
        assert_eq!((recorded(&rows(&file, event)), report.events.len() as u64), (all, all));
        let ledger = ledger_in_info(&file).to_string();
        assert!(
            ledger
                .contains("what was tracked, which changed: all threads; then no threads of the processes;"),
            "{ledger}"
        );
    }
}

#[test]
fn ids_of_namespaces_are_tracked() {
    use Attribute::{Gid, Uid, Vgid, Vpid, Vuid};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut here = Caller::start();
    // A user of its own namespace: 4242 here, 0 there.
    let mut user =
        Caller::by(&[&OTHER[..], &["/usr/bin/unshare", "--user", "--map-root-user", "--"]].concat());
    let mut inner = Caller::by(&["/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--"]);
    let own = here.pid().to_string();
    let mut session = start(&tracked(&file, &[&here, &user, &inner]));
    let mut callers = [&mut here, &mut user, &mut inner];
    compare(
        &mut session,
        &mut callers,
        &[
            (Vpid, Some(&["1"]), 100),
            (Vpid, Some(&[&own]), 1),
            (Vpid, Some(&[&own, "1"]), 101),
            (Vpid, None, 111),
            (Vuid, Some(&["0"]), 111),
            (Vuid, Some(&["4242"]), 0),
            (Uid, Some(&["4242"]), 0),
            (Vuid, Some(&["root"]), 10),
            (Vuid, None, 10),
            (Uid, None, 111),
            (Vgid, Some(&["0"]), 111),
            (Gid, Some(&["0"]), 101),
            (Gid, Some(&["4343"]), 10),
            (Vgid, Some(&["4343"]), 0),
            (Vgid, None, 10),
        ],
    );
    stop(session);
}

#[test]
fn control_groups_are_tracked() {
    use Attribute::Cgroup;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let root = Path::new(mount.expect("cgroup2 is mounted").split(' ').nth(1).unwrap());
    let group = root.join(format!("track-{}", std::process::id()));
    let inside = group.join("inside");
    fs::create_dir_all(&inside).unwrap();
    let (mut one, mut two, mut three) = (Caller::start(), Caller::start(), Caller::start());
    fs::write(group.join("cgroup.procs"), one.pid().to_string()).unwrap();
    fs::write(inside.join("cgroup.procs"), two.pid().to_string()).unwrap();
    let mut session = start(&tracked(&file, &[&one, &two, &three]));
    let mut callers = [&mut one, &mut two, &mut three];
    compare(
        &mut session,
        &mut callers,
        &[
            (Cgroup, Some(&[group.to_str().unwrap()]), 11),
            (Cgroup, Some(&[inside.to_str().unwrap()]), 10),
            (Cgroup, Some(&["/"]), 111),
            (Cgroup, Some(&[]), 0),
            (Cgroup, None, 111),
        ],
    );
    stop(session);
    drop((one, two, three));
    for group in [inside, group] {
        wait_for("the end of a control group", || fs::remove_dir(&group).is_ok().then_some(()));
    }
}

#[test]
fn wakeups_and_switches_count_for_the_other_thread_by_what_is_tracked_now() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let (mut one, mut two) = (Caller::named("track-one"), Caller::named("track-two"));
    let mut spec = tracked(&file, &[&one, &two]);
    spec.scope.pids.clear();
    spec.scope.track.insert(Attribute::Comm, Vec::new());
    spec.channels[0].rules = vec![events("sched:sched_switch"), events("sched:sched_waking")];
    let mut session = start(&spec);
    let mut calls = || {
        for _ in 0..20 {
            one.call(1);
            one.settle();
            two.call(1);
            two.settle();
        }
    };
    calls();
    assert_eq!(session.progress().events, 0, "nothing is tracked");
    // The thread sleeps, and was not seen running since it was to be asked for.
    track(&mut session, Attribute::Comm, Some(&["track-two"]));
    calls();
    track(&mut session, Attribute::Comm, Some(&[]));
    let recorded = session.progress().events;
    calls();
    assert_eq!(session.progress().events, recorded, "nothing is tracked any more");
    stop(session);
    let report = Report::of(&file);
    let woken = report.count(|line| line.contains("sched_waking:") && line.contains("comm=track-two"));
    assert!(woken >= 20, "{woken}");
    assert!(report.events.iter().all(|line| line.contains("track-two")), "{:?}", report.events);
    assert!(report.events.iter().all(|line| !line.contains("track-one")), "{:?}", report.events);
}

#[test]
fn who_is_tracked_all_the_time_is_not_disturbed_by_changes() {
    /// Changes while calls are made.
    const CHANGES: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    for rule in [calls(), events("syscalls:sys_enter_getppid")] {
        let (mut caller, other) = (Caller::start(), Caller::start());
        let mut spec = tracked(&dir.path().join("t.dat"), &[&caller, &other]);
        spec.channels[0].rules = vec![rule.clone()];
        let mut session = start(&spec);
        spec.scope.changes = false;
        spec.file.path = dir.path().join("beside.dat");
        let beside = start(&spec);
        let (own, others) = (caller.pid().to_string(), other.pid().to_string());
        let is_over = AtomicBool::new(false);
        let made = thread::scope(|scope| {
            let calls = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    caller.call(300);
                }
                caller.calls()
            });
            for change in 0..CHANGES {
                let both = [own.as_str(), others.as_str()];
                let (attribute, values): (_, Option<&[&str]>) = match change % 4 {
                    0 => (Attribute::Pid, Some(&both[..1])),
                    1 => (Attribute::Pid, Some(&both)),
                    2 => (Attribute::Comm, Some(&["perl", "other"])),
                    _ => (Attribute::Comm, None),
                };
                track(&mut session, attribute, values);
            }
            is_over.store(true, Ordering::Relaxed);
            calls.join().unwrap()
        });
        for session in [session, beside] {
            let counted = session.ledger();
            assert_eq!((counted.recorded(0, 0), counted.lost()), (made, 0), "{rule:?}");
            stop(session);
        }
    }
}

#[test]
fn each_file_of_a_rotation_tells_what_was_tracked_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let mut caller = Caller::start();
    let mut spec = tracked(&path, &[&caller]);
    spec.channels[0].spare_events = 4;
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    let mut session = start(&spec);
    caller.call(100);
    track(&mut session, Attribute::Uid, Some(&["4242"]));
    caller.call(200);
    finish(session.rotate().unwrap()).unwrap();
    // Also of events that come later.
    add(&mut session, events("raw_syscalls:sys_exit"));
    caller.call(400);
    finish(session.rotate().unwrap()).unwrap();
    track(&mut session, Attribute::Uid, None);
    caller.call(800);
    stop(session);
    let files: Vec<String> = files(&path)
        .into_iter()
        .filter(|name| Path::new(name).extension().is_some_and(|of| of == "dat"))
        .collect();
    let told: Vec<(u64, String)> = files
        .iter()
        .map(|name| {
            let file = path.join(name);
            (recorded(&rows(&file, CALLS)), ledger_in_info(&file)["only"].to_string())
        })
        .collect();
    let counts: Vec<u64> = told.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [100, 0, 800]);
    assert!(told[0].1.contains("all threads; then threads of the users 4242"), "{told:?}");
    assert!(told[1].1.contains("\"threads of the users 4242\""), "{told:?}");
    assert!(told[2].1.contains("threads of the users 4242; then all threads"), "{told:?}");
}

#[test]
fn a_recording_that_was_not_said_to_change_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = tracked(&file, &[&caller]);
    spec.scope.changes = false;
    let mut session = start(&spec);
    let tracking = plan::tracking(Attribute::Uid, Some(&[])).unwrap();
    assert!(matches!(session.track(tracking), Err(TrackError::Fixed)));
    caller.call(100);
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 100);
}

#[test]
fn options_choose_by_groups_and_by_ids_of_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let (mut here, mut other) = (Caller::start(), Caller::by(&OTHER));
    let pids = format!("{},{}", here.pid(), other.pid());
    let own = here.pid().to_string();
    for (options, expected) in [
        (&["--gid", "4343"][..], [0, 10]),
        (&["--exclude-gid", "4343"], [1, 0]),
        (&["--vuid", "root,4242"], [1, 10]),
        (&["--vgid", "root"], [1, 0]),
        (&["--vpid", &own], [1, 0]),
        (&["--uid", "root", "--gid", "4343"], [0, 0]),
    ] {
        let args = [&["-e", CALLS, "-P", &pids][..], options].concat();
        let recording = integration_tests::harness::Marked::start(dir.path(), &args);
        here.call(1);
        other.call(10);
        recording.finish().expect(0);
        let report = Report::of(&dir.path().join("trace.dat"));
        let of = |caller: &Caller| report.count(|line| tid_of(line) == caller.pid() && is_getppid(line));
        assert_eq!([of(&here), of(&other)], expected, "{options:?}");
    }
    for (option, said) in [
        ("--gid", "gid: /etc/group has no group none-such"),
        ("--vuid", "vuid: /etc/passwd has no user none-such"),
    ] {
        let ended = run(agent(dir.path(), ["record", "-e", CALLS, option, "none-such"]).arg("true"));
        assert!(ended.code() == 2 && ended.err.contains(said), "{ended:?}");
    }
}
