//! Whether tests find what they are for: each patch in `tests/mutations` takes out something that keeps
//! answers and slices from saying more than records prove, and the metamorphic tests have to fail then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, process, workspace};

/// Recordings that are too large to be copied, which these tests do not read.
const NOT_COPIED: &str = "tests/traces/";

/// Tries each patch on a copy of the files that git knows, as they are.
pub(super) fn run() -> Result {
    let place = workspace::target_dir().join("mutations");
    let mut unfound = Vec::new();
    for patch in patches()? {
        copy_to(&place)?;
        let mut git = Command::new("git");
        // The copy is in the repository's directory, and none of its files.
        git.env("GIT_CEILING_DIRECTORIES", workspace::target_dir()).current_dir(&place);
        process::run(git.args(["apply", "--whitespace=nowarn"]).arg(&patch))?;
        // One that does not compile would seem to be found.
        process::run(&mut tests(&place, &["--no-run"]))?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if process::run(&mut tests(&place, &[])).is_ok() {
            unfound.push(name);
        } else {
            eprintln!("{name}: found");
        }
    }
    if unfound.is_empty() { Ok(()) } else { Err(format!("not found: {}", unfound.join(", ")).into()) }
}

/// The tests, of the crates that have answers and slices.
fn tests(place: &Path, args: &[&str]) -> Command {
    let mut command = process::cargo(["test", "--no-fail-fast", "--lib"]);
    command.args(["-p", "analysis", "-p", "export", "-p", "views", "metamorphic"]).args(args);
    // Copies of the same files elsewhere have the same names.
    command.current_dir(place).env("CARGO_TARGET_DIR", place.join("target"));
    command
}

fn patches() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(workspace::root().join("tests/mutations"))?;
    let mut patches = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    patches.sort();
    Ok(patches)
}

/// Makes a copy. What is the same there keeps its time, and is not compiled once more.
fn copy_to(place: &Path) -> Result {
    let root = workspace::root();
    let files = process::output(Command::new("git").args(["ls-files", "-z"]).current_dir(root))?;
    let files = files.split('\0').filter(|file| !file.is_empty() && !file.starts_with(NOT_COPIED));
    for file in files {
        let (from, to) = (root.join(file), place.join(file));
        // It may have been removed.
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(place))?;
        fs::write(&to, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_applies() {
        let patches = patches().unwrap();
        assert!(!patches.is_empty());
        for patch in patches {
            let mut git = Command::new("git");
            git.args(["apply", "--check"]).arg(&patch).current_dir(workspace::root());
            assert!(git.status().unwrap().success(), "{}", patch.display());
        }
    }
}
