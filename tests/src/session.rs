//! Recordings that a test makes through the library.

use std::path::{Path, PathBuf};

use capture::{Session, finish};
use plan::Plan;
use serde_json::Value;
use spec::{ChannelSpec, RecordingSpec, RuleSpec, What};

use crate::harness::{Caller, files, ledger_in_info};

/// The event whose counts are exact, whatever comes and goes beside it.
pub const CALLS: &str = "raw_syscalls:sys_enter";
/// Selects events.
pub fn events(event: &str) -> RuleSpec {
    RuleSpec::new(What::Events(event.parse().unwrap()))
}

/// Selects the calls that a [`Caller`] makes.
pub fn calls() -> RuleSpec {
    RuleSpec { filter: Some("id == 110".to_owned()), ..events(CALLS) }
}

/// What a process does, with room for more events.
pub fn spec(path: &Path, caller: &Caller, rules: Vec<RuleSpec>, spare_events: u32) -> RecordingSpec {
    let channel = ChannelSpec { rules, spare_events, ring_bytes: 32 << 20, ..ChannelSpec::default() };
    let mut spec = RecordingSpec { channels: vec![channel], ..RecordingSpec::default() };
    spec.scope.pids = vec![caller.pid()];
    // Rings of two CPUs, also on a large machine.
    caller.pin(0);
    spec.scope.cpus = Some("0-1".parse().unwrap());
    spec.file.path = path.into();
    spec
}

/// Begins to record.
pub fn start(spec: &RecordingSpec) -> Session {
    let mut session = Session::create(Plan::make(spec).unwrap().options, &mut |_, _| ()).unwrap();
    session.start();
    session
}

/// Adds events to the only channel, all of which the kernel accepts.
pub fn add(session: &mut Session, rule: RuleSpec) {
    let (addition, _) = plan::addition(session, "", &[rule]).unwrap();
    assert!(session.add(addition).unwrap().is_empty());
}

/// Ends a recording. Gives its last file.
pub fn stop(session: Session) -> PathBuf {
    let files: Vec<PathBuf> =
        session.stop().into_iter().map(|recorded| finish(recorded).unwrap().path).collect();
    files.into_iter().next_back().unwrap()
}

/// What the ledger of a file says of an event, each time that it was there.
pub fn rows(file: &Path, event: &str) -> Vec<Value> {
    let ledger = ledger_in_info(file);
    let rows = ledger["events"].as_array().unwrap();
    rows.iter().filter(|row| row["event"] == event).cloned().collect()
}

/// How many records they count.
pub fn recorded(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["recorded"].as_u64().unwrap()).sum()
}

/// Leaves in `left` what a recorder leaves that is killed now.
pub fn leave_spool(session: &Session, left: &Path) {
    std::fs::create_dir(left).unwrap();
    for name in files(session.spool_dir()) {
        if name != "lock" {
            std::fs::copy(session.spool_dir().join(&name), left.join(&name)).unwrap();
        }
    }
}
