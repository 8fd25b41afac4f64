//! Where the traces of a directory are: in itself, or where LTTng has those of a session.
//!
//! | directory | whose trace |
//! |---|---|
//! | `kernel` | the kernel's, and what all share |
//! | `ust/uid/UID/64-bit` | a user's |
//! | `ust/pid/NAME-PID-DATE-TIME` | a process's |
//! | `ust`, `ust/NAME-PID-DATE-TIME` | those of LTTng before 2.1 |
//!
//! A session has them in its own directory, in one of each closed chunk in `archives`, and in directories of
//! the chunk that is open and of snapshots. Links are not followed.

use std::{
    ffi::{OsStr, OsString},
    io,
};

use rustix::fs::FileType;

use super::{ARCHIVES, KERNEL, METADATA, UST};
use stdx::output::Directory;

/// The most traces that are found in a directory.
const TRACES_MAX: usize = 1 << 16;

/// The directory of a trace.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its path in the directory where it was looked for; empty for that itself.
    pub path: String,
    /// The directory with the file `metadata`.
    pub dir: Directory,
}

/// The traces of a directory.
#[derive(Debug, Default)]
pub struct Traces {
    /// In the order of their paths, of which those of archives come first.
    pub found: Vec<Found>,
    /// How many more there are.
    pub left_out: u64,
}

/// Finds them.
pub fn find(dir: &Directory) -> io::Result<Traces> {
    let mut traces = Traces::default();
    walk(dir, &mut |found| {
        if traces.found.len() < TRACES_MAX {
            traces.found.push(found);
        } else {
            traces.left_out += 1;
        }
        true
    })?;
    Ok(traces)
}

/// Whether a directory has traces.
pub fn has_some(dir: &Directory) -> bool {
    let mut has_some = false;
    // What cannot be read has none.
    let _ = walk(dir, &mut |_| {
        has_some = true;
        false
    });
    has_some
}

/// Whether a directory is a trace.
pub fn is_trace(dir: &Directory) -> bool {
    let there = dir.look(METADATA.as_ref()).ok().flatten();
    there.is_some_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::RegularFile)
}

/// Calls `take` for each trace, until it gives `false`. Gives whether it never did.
fn walk(dir: &Directory, take: &mut dyn FnMut(Found) -> bool) -> io::Result<bool> {
    let root = Found { path: String::new(), dir: dir.clone() };
    if is_trace(dir) {
        return Ok(take(root));
    }
    if let Some(archives) = root.below(ARCHIVES) {
        for chunk in archives.directories()? {
            if !chunk.domains(take)? {
                return Ok(false);
            }
        }
    }
    if !root.domains(take)? {
        return Ok(false);
    }
    for part in root.directories()? {
        if is_part(&part.path) && !part.domains(take)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a directory of a session has the name of an open chunk (`20260302T101500+0000-1`) or of a snapshot
/// (`snapshot-1-20260302-101500-0`).
pub fn is_part(name: &str) -> bool {
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((stamp, number)) = name.rsplit_once('-') else { return false };
    if number.is_empty() || !digits(number, number.len()) {
        return false;
    }
    let of_snapshot = stamp.rsplit_once('-').and_then(|(rest, time)| Some((rest.rsplit_once('-')?.1, time)));
    let of_chunk = stamp.split_once('T').map(|(date, rest)| (date, rest.get(..6).unwrap_or_default()));
    of_snapshot.into_iter().chain(of_chunk).any(|(date, time)| digits(date, 8) && digits(time, 6))
}

impl Found {
    /// The directory of this name in it, if there is one.
    fn below(&self, name: impl AsRef<OsStr>) -> Option<Self> {
        let name = name.as_ref();
        let dir = self.dir.open_dir(name).ok()?;
        let name = name.to_string_lossy();
        let path = if self.path.is_empty() { name.into_owned() } else { format!("{}/{name}", self.path) };
        Some(Self { path, dir })
    }

    /// The directories in it, by name.
    fn directories(&self) -> io::Result<impl Iterator<Item = Self>> {
        let mut names: Vec<OsString> = self.dir.names()?;
        names.sort();
        Ok(names.into_iter().filter_map(|name| self.below(name)))
    }

    /// Takes the traces of the kernel, of users and of processes that it has.
    fn domains(&self, take: &mut dyn FnMut(Self) -> bool) -> io::Result<bool> {
        let take = &mut |of: Self| !is_trace(&of.dir) || take(of);
        if !self.below(KERNEL).is_none_or(&mut *take) {
            return Ok(false);
        }
        let Some(ust) = self.below(UST) else { return Ok(true) };
        if is_trace(&ust.dir) && !take(ust.clone()) {
            return Ok(false);
        }
        let of_old = |of: &Self| !["pid", "uid"].iter().any(|name| of.path.ends_with(&format!("/{name}")));
        if !ust.directories()?.filter(of_old).all(&mut *take) {
            return Ok(false);
        }
        if let Some(processes) = ust.below("pid")
            && !processes.directories()?.all(&mut *take)
        {
            return Ok(false);
        }
        let Some(users) = ust.below("uid") else { return Ok(true) };
        for user in users.directories()? {
            // One of each width that programs' addresses have.
            if !user.directories()?.all(&mut *take) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    fn found(dir: &Path) -> Vec<String> {
        let traces = find(&Directory::open(dir).unwrap()).unwrap();
        assert_eq!(has_some(&Directory::open(dir).unwrap()), !traces.found.is_empty());
        traces.found.into_iter().map(|found| found.path).collect()
    }

    fn make(dir: &Path, traces: &[&str]) {
        for trace in traces {
            fs::create_dir_all(dir.join(trace)).unwrap();
            fs::write(dir.join(trace).join("metadata"), "").unwrap();
        }
    }

    #[test]
    fn traces_of_a_session_are_found_where_lttng_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let all = [
            "archives/20260302T101500+0000-20260302T101600+0000-0/kernel",
            "archives/20260302T101500+0000-20260302T101600+0000-0/ust/uid/0/64-bit",
            "kernel",
            "ust",
            "ust/app-4711-20260302-101500",
            "ust/pid/app-4711-20260302-101500",
            "ust/pid/others",
            "ust/uid/0/64-bit",
            "ust/uid/1000/32-bit",
            "20260302T101600+0000-1/ust/uid/0/64-bit",
            "mine-20260302-101500-1/ust/uid/0/64-bit",
            "snapshot-1-20260302-101500-0/kernel",
        ];
        make(dir.path(), &all);
        fs::create_dir_all(dir.path().join("ust/uid/1001/64-bit")).unwrap();
        make(dir.path(), &["other/kernel", "other-1/kernel", "20260302-1/kernel", "archives/kernel"]);
        assert_eq!(found(dir.path()), all);
        assert_eq!(found(&dir.path().join("kernel")), [""]);
        assert_eq!(found(&dir.path().join("ust/uid/1001")), [""; 0]);
    }

    #[test]
    fn links_lead_to_no_traces() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &["elsewhere"]);
        let session = dir.path().join("session");
        fs::create_dir_all(session.join("ust/uid/0")).unwrap();
        symlink(dir.path().join("elsewhere"), session.join("ust/uid/0/64-bit")).unwrap();
        symlink(dir.path().join("elsewhere"), session.join("kernel")).unwrap();
        assert_eq!(found(&session), [""; 0]);
    }
}
