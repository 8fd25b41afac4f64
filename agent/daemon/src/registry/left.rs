//! What an earlier daemon has left of a session whose trace is a directory.

use std::{io, path::Path};

use capture::open_archives;
use ctf_writer::{KERNEL, UST};
use stdx::output::{Directory, is_own};
use stdx::utc;

/// How many names are tried, of which others may be taken.
const NAMES_MAX: u32 = 1000;

/// Archives the trace that was recorded last in the directory of a session, if there is one, so that the next
/// one can be recorded there. It is complete: nobody records to it or recovers it.
///
/// # Errors
/// The directory is not ours, or cannot be changed.
pub(super) fn archive(output: &Path) -> io::Result<()> {
    let dir = match Directory::open(output) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut left = Vec::new();
    for domain in [KERNEL, UST] {
        match dir.open_dir(domain) {
            Ok(trace) => left.push((domain, trace)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let Some((_, first)) = left.first() else { return Ok(()) };
    if !is_own(&dir)? {
        return Err(io::Error::other("others can write to it"));
    }
    let ended = u64::try_from(first.status()?.st_mtime).unwrap_or_default();
    let place = free_place(&open_archives(&dir)?, ended)?;
    for (domain, _) in &left {
        dir.rename(domain.as_ref(), &place, domain.as_ref())?;
    }
    Ok(())
}

/// A new directory, named by when what comes there has ended.
fn free_place(archives: &Directory, ended: u64) -> io::Result<Directory> {
    let time = utc::date_and_time(ended);
    for number in 0..NAMES_MAX {
        match archives.create_dir(format!("{time}-left-{number}")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    Err(io::Error::other(format!("there are {NAMES_MAX} archives of {time} already")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_recorded_last_is_archived_and_nothing_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("s");
        archive(&output).unwrap();
        assert!(!output.exists());
        for count in 1..=3 {
            fs::create_dir_all(output.join("kernel/index")).unwrap();
            fs::write(output.join("kernel/metadata"), "x").unwrap();
            archive(&output).unwrap();
            archive(&output).unwrap();
            let archived: Vec<_> = fs::read_dir(output.join("archives")).unwrap().flatten().collect();
            assert_eq!(archived.len(), count);
            assert!(archived.iter().all(|of| of.path().join("kernel/metadata").is_file()));
            assert_eq!(fs::read_dir(&output).unwrap().count(), 1, "only archives");
        }
    }
}
