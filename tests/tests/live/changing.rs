//! Events that come and go while a recording goes on: what the library can do.

#[path = "../../../agent/plan/examples/live.rs"]
#[allow(dead_code, reason = "its main is for the example")]
mod live;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use capture::{Session, finish};
use integration_tests::{
    harness::{Caller, Report, agent, files, is_getppid, run, wait_for},
    session::{CALLS, add, calls, events, leave_spool, recorded, rows, spec, start, stop},
    soak,
};
use serde_json::Value;
use spec::{RotationSpec, RuleSpec, What};
use tracedat::Compression;

/// How often something is added or removed.
const CHANGES: usize = 200;
/// How many changes there are in a file.
const IN_A_FILE: usize = 25;

#[test]
fn an_event_is_recorded_from_when_it_is_added_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![events("sched:sched_switch")], 4));
    caller.call(1000);
    add(&mut session, calls());
    caller.call(2000);
    session.remove("", CALLS).unwrap();
    caller.call(4000);
    add(&mut session, calls());
    caller.call(8000);
    assert_eq!(stop(session), file);
    let counted: Vec<Value> = rows(&file, CALLS);
    let counts: Vec<u64> = counted.iter().map(|row| row["recorded"].as_u64().unwrap()).collect();
    assert_eq!(counts, [2000, 8000]);
    let spans: Vec<(bool, bool)> =
        counted.iter().map(|row| (row["since_ns"].is_u64(), row["until_ns"].is_u64())).collect();
    assert_eq!(spans, [(true, true), (true, false)]);
    assert!(rows(&file, "sched:sched_switch")[0]["since_ns"].is_null());
    let stock = Report::of(&file);
    assert_eq!(stock.count(is_getppid), 10_000);
    let info = run(agent(dir.path(), ["info", "t.dat"]).args(Vec::<&str>::new())).expect(0);
    assert!(info.out.contains("raw_syscalls:sys_enter was recorded from "), "{}", info.out);
}

#[test]
fn counts_of_a_recording_that_goes_on_can_be_subtracted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let session = start(&spec(&file, &caller, vec![calls()], 0));
    let begin = session.ledger();
    caller.call(1000);
    let middle = session.ledger();
    caller.call(500);
    let end = session.ledger();
    assert!(begin.time_ns < middle.time_ns && middle.time_ns < end.time_ns);
    let counted = [middle.since(&begin), end.since(&middle), end.clone()];
    assert_eq!(
        counted.map(|counted| (counted.recorded(0, 0), counted.lost())),
        [(1000, 0), (500, 0), (1500, 0)]
    );
    let events: u64 = end.streams.values().map(|counts| counts.events).sum();
    assert_eq!(events, 1500, "the streams have counted the same");
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 1500);
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    #[test]
    fn what_comes_and_goes_disturbs_nothing_else() {
        super::what_comes_and_goes_disturbs_nothing_else();
    }
}

fn what_comes_and_goes_disturbs_nothing_else() {
    // A few changes take as long as other trials.
    let changes = CHANGES * soak().div_ceil(5);
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let mut spec = spec(&dir.path().join("d"), &caller, vec![calls()], 32);
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    let mut session = start(&spec);
    let fired = thread::scope(|scope| {
        let is_over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_over);
        let caller = scope.spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                caller.call(300);
                // What it does is to be read again, by a slower reader.
                thread::sleep(Duration::from_millis(5));
            }
            caller.calls()
        });
        // However the changes end.
        let over = Over(is_over);
        change(&mut session, changes);
        drop(over);
        caller.join().unwrap()
    });
    stop(session);
    let all: Vec<PathBuf> =
        files(&dir.path().join("d")).iter().map(|name| dir.path().join("d").join(name)).collect();
    assert_eq!(all.len(), changes / IN_A_FILE, "{all:?}");
    let mut seen = BTreeSet::new();
    let (mut counted, mut lines) = (0, 0);
    for file in &all {
        counted += recorded(&rows(file, CALLS));
        let stock = Report::of(file);
        lines += stock.count(is_getppid);
        seen.extend(stock.names());
        assert_eq!(stock.dropped, 0, "{}", file.display());
        run(agent(dir.path(), ["check", "-q"]).arg(file)).expect(0);
    }
    assert_eq!((counted, lines), (fired, fired));
    for event in ["sched_switch", "sys_exit", "parent", "sys_enter_read"] {
        assert!(seen.contains(event), "{event} is not among {seen:?}");
    }
}

/// Ends the load when it is dropped.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a rule.
type Made = Box<dyn Fn() -> RuleSpec>;

/// Adds and removes events and probes at random, and goes on in another file now and then.
fn change(session: &mut Session, changes: usize) {
    let uprobe = || RuleSpec::new(What::Uprobe("parent=libc.so.6:getppid first=$arg1:u64".to_owned()));
    let filtered = || RuleSpec { filter: Some("first != 1".to_owned()), ..uprobe() };
    let sampled = || RuleSpec { sample: Some(3), ..events("sched:sched_switch") };
    let candidates: [(&str, Made); 8] = [
        ("sched:sched_switch", Box::new(sampled)),
        ("sched:sched_wakeup", Box::new(|| events("sched:sched_wakeup"))),
        ("raw_syscalls:sys_exit", Box::new(|| events("raw_syscalls:sys_exit"))),
        ("syscalls:sys_enter_read", Box::new(|| events("syscalls:sys_enter_read"))),
        ("syscalls:sys_enter_getppid", Box::new(|| events("syscalls:sys_enter_getppid"))),
        ("irq:softirq_entry", Box::new(|| events("irq:softirq_entry"))),
        ("timer:hrtimer_start", Box::new(|| events("timer:hrtimer_start"))),
        ("uprobes:parent", Box::new(uprobe)),
    ];
    let mut there = BTreeSet::new();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for number in 1..=changes {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (event, rule) = &candidates[(random >> 33) as usize % candidates.len()];
        if there.remove(event) {
            session.remove("", event).unwrap();
        } else {
            let rule =
                if *event == "uprobes:parent" && random.is_multiple_of(2) { filtered() } else { rule() };
            add(session, rule);
            there.insert(*event);
        }
        if number.is_multiple_of(IN_A_FILE) && number != changes {
            finish(session.rotate().unwrap()).unwrap();
        }
    }
}

/// The programs of the first are attached as long as the recording goes on.
#[test]
fn a_place_of_a_removed_event_is_another_ones_after_a_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let first = RuleSpec::new(What::Uprobe("parent=libc.so.6:getppid".to_owned()));
    let mut spec = spec(&dir.path().join("d"), &caller, vec![events("raw_syscalls:sys_exit"), first], 1);
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    let mut session = start(&spec);
    caller.call(1000);
    session.remove("", "raw_syscalls:sys_exit").unwrap();
    session.remove("", "uprobes:parent").unwrap();
    let mut made = vec![finish(session.rotate().unwrap()).unwrap().path];
    for rule in [calls(), events("sched:sched_wakeup"), events("sched:sched_switch")] {
        add(&mut session, rule);
    }
    caller.call(2000);
    made.push(stop(session));
    assert_eq!(recorded(&rows(&made[0], "uprobes:parent")), 1000);
    assert_eq!(recorded(&rows(&made[1], CALLS)), 2000);
    let stock = Report::of(&made[1]);
    assert_eq!(stock.count(is_getppid), 2000);
    let names = stock.names();
    assert!(!names.contains("sys_exit") && !names.contains("parent"), "{names:?}");
    assert_eq!(rows(&made[1], "uprobes:parent").len(), 0, "it is over");
}

#[test]
fn what_was_added_is_described_in_a_recovered_recording() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut spec = spec(&file, &caller, vec![calls()], 4);
    spec.channels[0].switch_ns = 1_000_000;
    spec.file.compression = Compression::None;
    let mut session = start(&spec);
    add(&mut session, RuleSpec::new(What::Uprobe("parent=libc.so.6:getppid".to_owned())));
    caller.call(1000);
    // What a killed recorder leaves: the spool as it is before the recording ends.
    wait_for("stored events", || (session.progress().bytes > Some(20_000)).then_some(()));
    leave_spool(&session, &dir.path().join("left.dat.spool"));
    stop(session);
    run(&mut agent(dir.path(), ["recover", "left.dat.spool"])).expect(0);
    let names = Report::of(&dir.path().join("left.dat")).names();
    assert_eq!(names, BTreeSet::from(["parent".to_owned(), "sys_enter".to_owned()]));
}

#[test]
fn what_cannot_be_added_or_removed_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.dat");
    let mut caller = Caller::start();
    let mut session = start(&spec(&file, &caller, vec![calls()], 1));
    let refused = |session: &Session, rule: RuleSpec| {
        plan::addition(session, "", &[rule]).expect_err("it is refused").to_string()
    };
    assert!(refused(&session, calls()).contains("is recorded already"));
    assert!(refused(&session, events("sched:no_such_event")).contains("no_such_event"));
    let tracer = RuleSpec::new(What::Function("vfs_*".to_owned()));
    assert!(refused(&session, tracer).contains("a function tracer cannot be added"));
    // What need not be there and is not leaves nothing to add.
    let marker = RuleSpec::new(What::Usdt("/no/such/file:app:one".to_owned()));
    let (nothing, notes) =
        plan::addition(&session, "", &[RuleSpec { optional: true, ..marker.clone() }]).unwrap();
    assert_eq!((nothing.events.len(), notes.len()), (0, 1));
    assert_eq!(session.add(nothing).unwrap().len(), 0);
    assert!(refused(&session, marker).contains("/no/such/file"));
    let missing = plan::addition(&session, "other", &[calls()]).expect_err("there is no such channel");
    assert!(missing.to_string().contains("no such channel"), "{missing}");
    let (two, _) = plan::addition(&session, "", &[events("sched:sched_wak*")]).unwrap();
    let no_room = session.add(two).unwrap_err().to_string();
    assert!(no_room.contains("has room for 2 events"), "{no_room}");
    let (one, _) = plan::addition(&session, "", &[events("sched:sched_waking")]).unwrap();
    let probe = || RuleSpec::new(What::Uprobe("parent=libc.so.6:getppid".to_owned()));
    add(&mut session, probe());
    let stale = session.add(one).unwrap_err().to_string();
    assert!(stale.contains("plan them again"), "{stale}");
    assert!(refused(&session, probe()).contains("uprobes:parent is recorded already"));
    let not_there = session.remove("", "sched:sched_switch").unwrap_err().to_string();
    assert!(not_there.contains("no event sched:sched_switch is recorded"), "{not_there}");
    let nowhere = session.remove("other", CALLS).unwrap_err().to_string();
    assert!(nowhere.contains("no such channel"), "{nowhere}");
    caller.call(1000);
    stop(session);
    assert_eq!(recorded(&rows(&file, CALLS)), 1000);

    let mut fixed = start(&spec(&file, &caller, vec![calls()], 0));
    let refused = fixed.remove("", CALLS).unwrap_err().to_string();
    assert!(refused.contains("do not change"), "{refused}");
    let (more, _) = plan::addition(&fixed, "", &[events("sched:sched_waking")]).unwrap();
    let refused = fixed.add(more).unwrap_err().to_string();
    assert!(refused.contains("do not change"), "{refused}");
    caller.call(1000);
    stop(fixed);
    assert_eq!(recorded(&rows(&file, CALLS)), 1000);
}

#[test]
fn the_example_records_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    live::run(dir.path()).unwrap();
    let made = files(dir.path());
    assert_eq!(made.len(), 4, "{made:?}");
    let names = |at: usize| Report::of(&dir.path().join(&made[at])).names();
    let both = BTreeSet::from(["sched_switch".to_owned(), "sched_wakeup".to_owned()]);
    assert_eq!(names(0), both);
    assert_eq!(rows(&dir.path().join(&made[1]), "sched:sched_switch").len(), 1);
    assert!(names(2).is_superset(&both) && names(3).is_superset(&both), "{made:?}");
}
