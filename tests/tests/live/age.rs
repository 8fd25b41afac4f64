//! How old events can be before they are stored.

use std::{fs, path::Path};

use integration_tests::harness::{Caller, Ledger, Marked, Report, agent, is_getppid, program, run, wait_for};

/// Records a few calls of a process that makes none besides.
fn record(dir: &Path, caller: &Caller, timer: &str) -> Marked {
    let pid = caller.pid().to_string();
    Marked::start(
        dir,
        &["-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-P", &pid, "--switch-timer", timer],
    )
}

/// How many of them a copy of the spool has by now. `None` if it was changed while it was copied.
fn stored(dir: &Path) -> Option<u64> {
    let _none_yet = fs::remove_dir_all(dir.join("copy.spool"));
    let _none_yet = fs::remove_file(dir.join("copy.dat"));
    // Files that are complete get another name.
    let copied = run(&mut program(dir, "cp", ["-r", "trace.dat.spool", "copy.spool"]));
    if copied.code() != 0 {
        return None;
    }
    // What is being written while it is copied may make no sense.
    let recovered = run(&mut agent(dir, ["recover", "-o", "copy.dat", "copy.spool"]));
    (recovered.code() == 0).then(|| Report::of(&dir.join("copy.dat")).count(is_getppid))
}

#[test]
fn what_fired_is_stored_while_nothing_else_fires() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let recording = record(dir.path(), &caller, "20ms");
    for (more, calls) in [(7, 7), (5, 12)] {
        caller.call(more);
        wait_for("the calls in the spool", || (stored(dir.path())? == calls).then_some(()));
    }
    recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    assert_eq!((Report::of(&file).count(is_getppid), Ledger::of(&file).lost()), (12, 0));
}

/// Which shows what the timer is for.
#[test]
fn without_the_timer_a_page_is_stored_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let recording = record(dir.path(), &caller, "off");
    caller.call(7);
    assert_eq!(wait_for("a copy of the spool", || stored(dir.path())), 0);
    recording.finish().expect(0);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), 7);
}
