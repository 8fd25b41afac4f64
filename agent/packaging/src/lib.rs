//! Packages of a built tracer-agent: for Debian, for distributions with RPM, and as an image for containers.
//!
//! The program is not built here: who calls this has a static binary, so the tests of packages take the one
//! that other tests run. What is made depends on the binary, the version, the time and the files of the
//! workspace alone, so the same package can be made again, byte for byte.
//!
//! Beside the sources are the files that packages have: `deb` and `rpm` (scripts of package managers),
//! `kubernetes`, `systemd`, and the configuration, accounts and directories of the session daemon.
//!
//! | module | what it is |
//! |---|---|
//! | [`layout`] | which files a package has, and where |
//! | [`deb`] | the package for dpkg, by `dpkg-deb` |
//! | [`rpm`] | the package for RPM, by `rpmbuild` |
//! | [`image`] | an image in the layout of the Open Container Initiative |

pub mod deb;
mod error;
pub mod image;
pub mod layout;
pub mod rpm;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use error::Error;

/// The program's name, and the packages'.
pub const NAME: &str = "tracer-agent";

/// What packages say of the program.
const SUMMARY: &str = "Records kernel events with eBPF into trace.dat files";

const DESCRIPTION: &str = "\
tracer-agent records events of the running kernel, probes and system calls
with eBPF, at little cost, into trace.dat files that trace-cmd and KernelShark
open. What fired and is not in the file is counted by CPU, event and cause.
Its session daemon records for several users, controlled with the commands of
LTTng or over HTTP on a local socket.";

/// Who answers for the packages.
const MAINTAINER: &str = "The tracer-agent developers <maintainers@tracer-agent.example>";

/// What is packaged.
#[derive(Clone, Debug)]
pub struct Release {
    /// The program, linked statically. It is run for its man pages and completions.
    pub binary: PathBuf,
    /// Its version, as cargo has it: `0.1.0`, `0.2.0-rc.1`.
    pub version: String,
    /// When it was made, in seconds since 1970: the time of everything in the packages.
    pub time: u64,
    /// How well its packages are compressed.
    pub effort: Effort,
}

/// What compression may cost. The formats are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Packages as small as they get: minutes of a processor for a large program.
    Best,
    /// Packages that are made in seconds, a quarter larger.
    Quick,
}

impl Release {
    /// The version in the order that dpkg and RPM have: what comes before a release has a tilde.
    fn ordered_version(&self) -> String {
        self.version.replacen('-', "~", 1)
    }
}

/// Puts the manifest for Kubernetes into a directory; its path.
///
/// # Errors
/// It cannot be read or written.
pub fn manifest(release: &Release, dir: &Path) -> Result<PathBuf, Error> {
    let from = own("kubernetes/daemonset.yaml");
    let path = dir.join(format!("{NAME}-{}-kubernetes.yaml", release.version));
    fs::copy(&from, &path).map_err(Error::file("copy", &from))?;
    Ok(path)
}

/// The machine that binaries are for, as one of the naming schemes has it.
const DEBIAN_ARCH: &str = "amd64";
const RPM_ARCH: &str = "x86_64";

/// A file of this folder.
fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file at the root of the workspace.
fn of_workspace(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join(name)
}
