//! What a process that was killed has left of spools under the names that they have for moments: before they
//! get their own, and while they are removed.

use std::{
    ffi::{OsStr, OsString},
    io,
};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::{
    RESERVE, RESERVE_RINGS, SUFFIX, SpoolError,
    lock::{self, Claim, LOCK},
    parse_segment,
};
use crate::finish::moving;
use crate::finish::moving::DRAFT;
use crate::{counts, ctf, pauses, state, symbols, user_symbols};
use stdx::output::Directory;

/// What else is in spools (`docs/architecture.md`, "The spool"); files that are being written have `.new`
/// behind their names.
const FILES: [&str; 13] = [
    "manifest",
    "names",
    LOCK,
    RESERVE,
    RESERVE_RINGS,
    counts::NAME,
    moving::JOURNAL,
    pauses::NAME,
    ctf::PUBLISHED,
    ctf::TRACE,
    state::NAME,
    symbols::NAME,
    user_symbols::MAPPINGS,
];

/// Removes the directories with such names whose processes have ended. Nothing is removed of one that has
/// something that is in no spool: its name may be that of a spool by chance, or because somebody who can
/// write beside it gave it one.
pub(super) fn remove(parent: &Directory) -> Result<(), SpoolError> {
    let names = parent.names().map_err(SpoolError::io("list", parent.path()))?;
    for name in names.iter().filter(|name| process_of(name).is_some_and(has_ended)) {
        match remove_one(parent, name) {
            // Somebody else does the same.
            Err(SpoolError::NotOurs(_) | SpoolError::InUse(_)) => {}
            Err(SpoolError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

fn remove_one(parent: &Directory, name: &OsStr) -> Result<(), SpoolError> {
    let Some(files) = lock::open_ours(parent, name)? else { return Ok(()) };
    let there = files.names().map_err(SpoolError::io("list", files.path()))?;
    if !is_of_spool(&there) {
        return Ok(());
    }
    let claim: Claim = lock::claim(files)?;
    lock::drop_and_remove(parent, name, claim).map_err(SpoolError::io("remove", parent.join(name)))
}

/// The process that gave something such a name: `NAME.spool.removed.PID.N`, `NAME.spool.new.PID.N`.
fn process_of(name: &OsStr) -> Option<Pid> {
    let mut parts = name.to_str()?.rsplitn(4, '.');
    let (number, pid, purpose, of) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    number.parse::<u32>().ok()?;
    let of = of.trim_end_matches(|one: char| one.is_ascii_digit() || one == '.');
    let is_spool = matches!(purpose, "removed" | "new") && of.ends_with(SUFFIX);
    Pid::from_raw(pid.parse().ok().filter(|_| is_spool)?)
}

fn has_ended(process: Pid) -> bool {
    test_kill_process(process) == Err(Errno::SRCH)
}

/// Whether all of these are names of what is in spools. A trace file alone is not: others have that name,
/// too.
fn is_of_spool(names: &[OsString]) -> bool {
    let is_ours = |name: &OsString| {
        let Some(name) = name.to_str() else { return false };
        let name = name.strip_suffix(".new").unwrap_or(name);
        let is_state = name.strip_prefix("state.").is_some_and(|number| number.parse::<u32>().is_ok());
        FILES.contains(&name) || is_state || parse_segment(name).is_some()
    };
    names.iter().all(|name| name == DRAFT || is_ours(name))
        && (names.is_empty() || names.iter().any(|name| name != DRAFT))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The number of a process that has ended.
    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn what_is_left_of_spools_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (ended, running) = (ended(), std::process::id());
        let make = |name: &str, files: &[&str]| {
            fs::create_dir(dir.path().join(name)).unwrap();
            for file in files {
                fs::write(dir.path().join(name).join(file), "x").unwrap();
            }
        };
        make(
            &format!("a.spool.removed.{ended}.0"),
            &["lock", "manifest", "cpu0.0", "channel2-cpu1.3", "state.1"],
        );
        make(&format!("a.spool.1.removed.{ended}.12"), &["counts", "trace.dat", "reserve"]);
        make(&format!("a.spool.new.{ended}.0"), &[]);
        let stays = [
            (format!("a.spool.removed.{running}.0"), "lock"),
            (format!("a.spool.new.{ended}.1"), "thesis"),
            (format!("a.spool.removed.{ended}.1"), "trace.dat"),
            (format!("a.dat.removed.{ended}.0"), "lock"),
            (format!("a.spool.kept.{ended}.0"), "lock"),
            ("a.spool.1".to_owned(), "manifest"),
        ];
        for (name, file) in &stays {
            make(name, &[file]);
        }
        // A link is not followed.
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("lock"), "x").unwrap();
        let link = format!("b.spool.removed.{ended}.0");
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(&link)).unwrap();

        remove(&Directory::open(dir.path()).unwrap()).unwrap();
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected: Vec<String> = stays.into_iter().map(|(name, _)| name).chain([link]).collect();
        expected.sort();
        assert_eq!(left, expected);
        assert!(elsewhere.path().join("lock").exists());
    }
}
