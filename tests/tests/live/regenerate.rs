//! The state of the machine, stored again while a recording goes on: what a recovery and the library's users
//! have of it.

use std::fs;

use capture::StateError;
use integration_tests::{
    harness::{Caller, agent, run, wait_for},
    session::{calls, leave_spool, spec, start, stop},
};
use plan::Plan;
use tracedat::initial_state::InitialState;
use tracedat::reader::Reader;

fn states(file: &std::path::Path) -> Vec<InitialState> {
    let reader = Reader::open(fs::File::open(file).unwrap()).unwrap();
    reader.states().map(Result::unwrap).collect()
}

#[test]
fn a_killed_recording_has_the_states_and_names_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let caller = Caller::start();
    let mut session = start(&spec(&dir.path().join("t.dat"), &caller, vec![calls()], 0));
    // The one at the start is complete: who comes later is not in it.
    let first = session.spool_dir().join("state");
    wait_for("the state at the start", || first.exists().then_some(()));
    let late = Caller::named("born-later");
    session.regenerate_state().unwrap();
    session.regenerate_state().unwrap();
    let left = dir.path().join("left.dat.spool");
    leave_spool(&session, &left);
    let file = stop(session);
    assert_eq!(states(&file).len(), 3);

    // Half of the last one, as a machine leaves it that lost its power; and no name of a thread.
    let last = left.join("state.2");
    let length = fs::metadata(&last).unwrap().len();
    fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(length / 2).unwrap();
    fs::OpenOptions::new().write(true).open(left.join("names")).unwrap().set_len(0).unwrap();
    run(&mut agent(dir.path(), ["recover", "left.dat"])).expect(0);
    let recovered = dir.path().join("left.dat");
    let found = states(&recovered);
    assert_eq!(found, states(&file)[..2]);
    let reader = Reader::open(fs::File::open(&recovered).unwrap()).unwrap();
    assert_eq!(reader.metadata().cmdlines.get(late.pid()), Some(&b"born-later"[..]));
}

#[test]
fn only_what_records_has_a_state() {
    let dir = tempfile::tempdir().unwrap();
    let caller = Caller::start();
    let spec = spec(&dir.path().join("t.dat"), &caller, vec![calls()], 0);
    let options = Plan::make(&spec).unwrap().options;
    let mut session = capture::Session::create(options, &mut |_, _| ()).unwrap();
    let refused = |result| assert!(matches!(result, Err(StateError::NotRecording)), "{result:?}");
    refused(session.regenerate_state());
    session.start();
    session.regenerate_state().unwrap();
    session.pause().unwrap();
    refused(session.regenerate_state());
    session.resume().unwrap();
    session.regenerate_state().unwrap();
    session.measure_clock().unwrap();
    assert_eq!(states(&stop(session)).len(), 3);
}
