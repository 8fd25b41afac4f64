//! Where tests put their temporary files: a directory for each job, which goes when the job has ended,
//! however it ended. Recordings of a storm take gigabytes, and a test that is killed removes nothing itself.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, process};

use crate::workspace::target_dir;

/// A directory of this process. Removed when dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new one.
    pub(super) fn new() -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = all().join(format!("{}-{number}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now, because something still writes there, is swept later.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Not `target/tmp`, where cargo makes a directory for tests of its own.
fn all() -> PathBuf {
    target_dir().join("test-scratch")
}

/// Removes what runs have left that are no more.
pub(super) fn sweep() -> Result<()> {
    let entries = match fs::read_dir(all()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-')).map(|(owner, _)| owner);
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_its_job_and_one_of_a_dead_run_is_swept() {
        let ours = Scratch::new().expect("there is room");
        fs::write(ours.path().join("trace.dat"), "x").expect("there is room");
        // No process has this id: the largest is 2^22.
        let dead = all().join("4194305-0");
        fs::create_dir_all(dead.join("inner")).expect("there is room");
        sweep().expect("they can be read");
        assert!(!dead.exists(), "its run is no more");
        let path = ours.path().to_owned();
        assert!(path.join("trace.dat").exists(), "this one runs");
        drop(ours);
        assert!(!path.exists());
    }
}
