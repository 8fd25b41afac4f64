//! The archives in the directories of sessions. What is still written to is never one of them: it has no
//! name of an archive yet.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::FileType;

use ctf_writer::{ARCHIVES, KERNEL, UST};
use stdx::output::{Directory, is_own};
use store::retention::Held;

/// A snapshot in LTTng's format is written where it stays: one that has changed so shortly ago, in
/// nanoseconds, may not be complete.
const QUIET: u64 = 60_000_000_000;

/// Where archives of a session are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) output: PathBuf,
    /// Whether they are sent.
    pub(super) upload: bool,
    /// Whether they are snapshots.
    pub(super) keeps: bool,
}

/// An archive.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) session: &'a str,
    pub(super) upload: bool,
    pub(super) held: Held,
}

/// Looks for them. Gives what could not be looked at, too.
pub(super) fn look(sessions: &BTreeMap<String, Source>) -> (Vec<Found<'_>>, Vec<String>) {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for (session, source) in sessions {
        let others = || sessions.iter().filter(|(name, _)| *name != session);
        let mut sharing = others().filter(|(_, other)| other.output == source.output);
        // Of a directory that several have, the first one has all.
        if sharing.clone().any(|(name, _)| name < session) {
            continue;
        }
        if let Some((other, _)) = sharing.find(|(_, other)| other.upload != source.upload) {
            problems.push(format!(
                "{} is of the sessions {session} and {other}, of which only one is sent: what is there is neither \
                 looked for nor deleted; give each a directory of its own",
                source.output.display()
            ));
            continue;
        }
        match archives_in(&source.output, source.keeps) {
            Ok(found) => all.extend(found.into_iter().map(|held| {
                let upload = source.upload;
                Found { session, upload, held }
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                problems.push(format!("cannot look for archives in {}: {error}", source.output.display()));
            }
        }
    }
    (all, problems)
}

fn archives_in(path: &Path, keeps: bool) -> io::Result<Vec<Held>> {
    let dir = Directory::open(path)?;
    if !is_own(&dir)? {
        return Err(io::Error::other("others can write to it"));
    }
    let mut found = Vec::new();
    for name in dir.names()? {
        match kind(&dir, &name)? {
            FileType::RegularFile if is_file_of_archive(&name) => {
                // One that has gone is none.
                found.extend(Held::at(&path.join(&name)));
            }
            FileType::Directory if keeps && is_trace(&dir, &name) => {
                found.extend(Held::at(&path.join(&name)).ok().filter(is_quiet));
            }
            _ => {}
        }
    }
    let Ok(archives) = dir.open_dir(ARCHIVES) else { return Ok(found) };
    if is_own(&archives)? {
        let names = archives.names()?;
        let closed = names.iter().filter(|name| is_trace(&archives, name));
        found.extend(closed.filter_map(|name| Held::at(&path.join(ARCHIVES).join(name)).ok()));
    }
    Ok(found)
}

fn is_file_of_archive(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".dat") && !name.as_bytes().starts_with(b".")
}

/// What a name stands for; of one that has gone, nothing that is an archive.
fn kind(dir: &Directory, name: &OsStr) -> io::Result<FileType> {
    Ok(dir.look(name)?.map_or(FileType::Unknown, |there| FileType::from_raw_mode(there.st_mode)))
}

fn is_trace(dir: &Directory, name: &OsStr) -> bool {
    let domains = |of: Directory| [KERNEL, UST].iter().any(|domain| of.open_dir(domain).is_ok());
    dir.open_dir(name).is_ok_and(domains)
}

fn is_quiet(held: &Held) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u128::from(held.end) + u128::from(QUIET) <= now.as_nanos()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn source(output: &Path, upload: bool, keeps: bool) -> Source {
        Source { output: output.to_owned(), upload, keeps }
    }

    fn names(found: &[Found<'_>]) -> Vec<String> {
        let mut names: Vec<String> =
            found.iter().map(|of| of.held.path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn closed_archives_are_found_and_nothing_that_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a.dat", ".b.dat.tmp", ".c.dat", "d.txt"] {
            fs::write(at(name), "x").unwrap();
        }
        for name in [
            "e.dat.spool",
            "f.dat",
            "kernel",
            "20260302T101500+0000-2/kernel",
            "archives/g/kernel",
            "archives/h",
        ] {
            fs::create_dir_all(at(name)).unwrap();
        }
        std::os::unix::fs::symlink("a.dat", at("i.dat")).unwrap();
        let sessions = BTreeMap::from([("s".to_owned(), source(dir.path(), true, false))]);
        let (found, problems) = look(&sessions);
        assert_eq!((names(&found), problems.len()), (vec!["a.dat".to_owned(), "g".to_owned()], 0));
    }

    #[test]
    fn a_directory_that_several_have_is_looked_at_once_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.dat"), "x").unwrap();
        let of = |upload| {
            let sessions = [("s", true), ("t", upload)];
            BTreeMap::from(
                sessions.map(|(name, upload)| (name.to_owned(), source(dir.path(), upload, false))),
            )
        };
        let sessions = of(true);
        let (found, problems) = look(&sessions);
        assert_eq!((found[0].session, found.len(), problems.len()), ("s", 1, 0));
        let sessions = of(false);
        let (found, problems) = look(&sessions);
        assert_eq!((found.len(), problems.len()), (0, 1), "{problems:?}");
        // Nobody else puts something there.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let sessions = of(true);
        assert_eq!(look(&sessions).1.len(), 1);
    }
}
