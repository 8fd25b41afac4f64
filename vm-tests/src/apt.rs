//! Debian's packages through apt: as the machine is configured, or out of Debian's unstable.
//!
//! Nothing of the machine's own configuration is changed: unstable has a list of sources, package lists and a
//! cache of its own below `target/vm/apt`. Its mirror is the one that the machine has its own release from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kernel::output;
use crate::{Error, target_dir};

/// With these keys Debian signs its archive (package debian-archive-keyring). Where they are not, apt looks
/// among those that it trusts.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How old the lists of unstable may be.
const LISTS_MAX_AGE: Duration = Duration::from_hours(24);

/// The options of every apt command.
#[derive(Debug)]
pub(crate) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// The repositories that the machine is configured for.
    pub(crate) fn of_machine() -> Self {
        // As root, apt downloads as another user where it can and says so where it cannot.
        Self { options: vec!["APT::Sandbox::User=root".to_owned()] }
    }

    /// Debian's unstable, with lists that are not older than a day.
    pub(crate) fn unstable() -> Result<Self, Error> {
        let dir = target_dir().join("vm/apt");
        for needed in ["state/lists/partial", "cache/archives/partial", "parts"] {
            let needed = dir.join(needed);
            fs::create_dir_all(&needed).map_err(Error::io(&needed))?;
        }
        let mut apt = Self::of_machine();
        apt.options.extend(["Acquire::Languages=none".to_owned(), "Acquire::PDiffs=false".to_owned()]);
        let sources = dir.join("unstable.sources");
        for (option, path) in [
            ("Dir::Etc::sourcelist", sources.clone()),
            ("Dir::Etc::sourceparts", dir.join("parts")),
            ("Dir::State", dir.join("state")),
            ("Dir::State::lists", dir.join("state/lists")),
            ("Dir::Cache", dir.join("cache")),
        ] {
            apt.options.push(format!("{option}={}", path.display()));
        }
        // Two processes may want them at once.
        let lock = dir.join("lock");
        let lock_file = File::create(&lock).map_err(Error::io(&lock))?;
        lock_file.lock().map_err(Error::io(&lock))?;
        let stamp = dir.join("updated");
        if !is_fresh(&stamp) {
            fs::write(&sources, unstable_sources(&mirror()?)).map_err(Error::io(&sources))?;
            let targets = "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false";
            // What the machine wants done after its own updates is not for these lists.
            let hooks = dir.join("no-hooks");
            fs::write(&hooks, "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n")
                .map_err(Error::io(&hooks))?;
            let hooks = hooks.display().to_string();
            apt.run("apt-get", &["-q", "-c", &hooks, "-o", targets, "update"], Path::new("/"))?;
            File::create(&stamp).map_err(Error::io(&stamp))?;
        }
        Ok(apt)
    }

    /// What is known of a package.
    pub(crate) fn show(&self, package: &str) -> Result<String, Error> {
        self.run("apt-cache", &["show", "--no-all-versions", package], Path::new("/"))
    }

    /// Downloads packages into a directory that has nothing else.
    pub(crate) fn download(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut args = vec!["-q", "download"];
        args.extend(packages.iter().map(String::as_str));
        self.run("apt-get", &args, dir)?;
        let files = fs::read_dir(dir).map_err(Error::io(dir))?.flatten().map(|entry| entry.path());
        let debs: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "deb")).collect();
        if debs.len() != packages.len() {
            return Err(Error::Host {
                program: "apt-get download".to_owned(),
                why: format!("{} files instead of {}", debs.len(), packages.join(", ")),
            });
        }
        Ok(debs)
    }

    fn run(&self, program: &str, args: &[&str], dir: &Path) -> Result<String, Error> {
        let mut all = Vec::new();
        for option in &self.options {
            all.extend(["-o", option]);
        }
        all.extend(args);
        output(program, &all, dir)
    }
}

fn is_fresh(stamp: &Path) -> bool {
    let modified = stamp.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < LISTS_MAX_AGE))
}

/// Where the machine has Debian from.
fn mirror() -> Result<String, Error> {
    let wanted = ["--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian"];
    let listing = output("apt-get", &[&["indextargets"][..], &wanted].concat(), Path::new("/"))?;
    listing.lines().next().map(str::to_owned).ok_or_else(|| Error::Host {
        program: "apt-get indextargets".to_owned(),
        why: "this machine has no packages of Debian to take a mirror from (`apt-get update` first?)"
            .to_owned(),
    })
}

/// apt's description of unstable (sources.list(5)).
fn unstable_sources(mirror: &str) -> String {
    let mut text =
        format!("Types: deb\nURIs: {mirror}\nSuites: unstable\nComponents: main\nArchitectures: amd64\n");
    if Path::new(KEYRING).exists() {
        text += &format!("Signed-By: {KEYRING}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_asked_for_again_after_a_day() {
        let dir = tempfile::tempdir().expect("a directory");
        let stamp = dir.path().join("updated");
        assert!(!is_fresh(&stamp));
        let file = File::create(&stamp).expect("a file");
        assert!(is_fresh(&stamp));
        file.set_modified(std::time::SystemTime::now() - LISTS_MAX_AGE).expect("a time");
        assert!(!is_fresh(&stamp));
    }
}
