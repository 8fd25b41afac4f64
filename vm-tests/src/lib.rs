//! tracer-agent on other kernels: Debian's, booted in QEMU for the length of one test.
//!
//! ```no_run
//! use vm_tests::{Cmd, Kernel, Vm};
//!
//! # fn main() -> Result<(), vm_tests::Error> {
//! let kernel = Kernel::find("6.12-cloud")?;
//! let run = Vm::new(&kernel)
//!     .agent()
//!     .trace_cmd()
//!     .bring_back("/tmp/trace.dat")
//!     .run(&[Cmd::sh("tracer-agent record -e 'sched:*' -o /tmp/trace.dat sleep 1"), Cmd::sh("trace-cmd report /tmp/trace.dat")])?;
//! assert!(run.outcomes[1].stdout_text().contains("sched_switch"));
//! std::fs::write("trace.dat", &run.files["/tmp/trace.dat"]).expect("keep the file");
//! # Ok(())
//! # }
//! ```
//!
//! A guest is a kernel out of Debian's package and an initramfs made for the run: nothing is shared with the
//! host, there is no network, and a disk only for those that ask for one. `vm-init` ([`protocol`] says how it
//! is spoken to) runs the commands in order and sends what they print, how they end and the wanted files over
//! the second serial port. The first one is the console, which is watched: a kernel that warns, stalls or
//! panics fails the run even if every command succeeded.
//!
//! | module | what it is |
//! |---|---|
//! | `apt` | asks Debian's repositories |
//! | [`kernel`] | finds, downloads and unpacks Debian's kernels |
//! | [`cpio`] | writes the initramfs |
//! | [`disk`] | makes disks |
//! | [`guest`] | the programs that go into it |
//! | [`protocol`] | what host and guest tell each other |
//! | [`qemu`] | one run of QEMU |
//! | [`vm`] | all of it together |
//! | [`cost`] | what recording costs the recorded, in instructions |

mod apt;
pub mod cost;
pub mod cpio;
pub mod disk;
pub mod guest;
pub mod kernel;
pub mod protocol;
pub mod qemu;
pub mod vm;

use std::io;
use std::path::{Path, PathBuf};

pub use kernel::Kernel;
pub use protocol::{Cmd, End};
pub use vm::{Outcome, Run, Vm};

/// Why a guest did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A program of the host is missing or failed.
    #[error("{program}: {why}\n`cargo xtask setup --for test` installs what the VM tests need")]
    Host {
        /// The program.
        program: String,
        /// What it printed, or why it did not start.
        why: String,
    },
    /// No kernel has that name.
    #[error("no kernel matches {wanted:?}; there are {known}")]
    NoSuchKernel {
        /// What was asked for.
        wanted: String,
        /// The names.
        known: String,
    },
    /// The configured package repositories do not have the kernel.
    #[error(
        "none of {packages} is in this machine's package lists as a {series} kernel (`apt-get update` first?)"
    )]
    NoPackage {
        /// The meta packages that were tried.
        packages: String,
        /// The series that was wanted.
        series: &'static str,
    },
    /// The kernel complained.
    #[error("the guest's kernel reported: {line}\n--- console ---\n{console}")]
    Kernel {
        /// The line that counts as a failure.
        line: String,
        /// Everything on the console.
        console: String,
    },
    /// The guest took too long.
    #[error("the guest was not done after {seconds} s\n--- console ---\n{console}")]
    TimedOut {
        /// The limit.
        seconds: u64,
        /// Everything on the console.
        console: String,
    },
    /// The guest ended before it had reported everything.
    #[error("the guest ended early: {why}\n--- console ---\n{console}")]
    Incomplete {
        /// What is missing.
        why: String,
        /// Everything on the console.
        console: String,
    },
}

impl Error {
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The workspace this crate is in.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's target directory, which kernels and guests are kept below.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Makes tests of functions that take a [`Kernel`], each on the kernels whose [modules](module_name) list it:
///
/// ```
/// use vm_tests::{Kernel, on_kernels};
///
/// on_kernels! {
///     k6_1_cloud: [boots],
///     k6_12_cloud: [boots, has_types],
/// }
///
/// fn boots(kernel: &Kernel) {}
///
/// fn has_types(kernel: &Kernel) {}
/// # fn main() {}
/// ```
///
/// Once in a file. `cargo xtask vm --kernel GLOB` runs the modules of some kernels; a test that needs no more
/// than one kernel is a plain `#[test]`. Emulated kernels take their time: `cargo xtask test` runs what
/// differs between kernels on each, and the rest on one; [`soak_on_kernels!`] has the others.
#[macro_export]
macro_rules! on_kernels {
    ($($module:ident: [$($test:ident),+ $(,)?]),+ $(,)?) => {
        $(
            mod $module {
                $(
                    #[test]
                    fn $test() {
                        super::$test(&$crate::kernel_of_module(module_path!()));
                    }
                )+
            }
        )+
    };
}

/// As [`on_kernels!`], for tests that `cargo xtask soak guests` runs, and `cargo xtask test` does not.
#[macro_export]
macro_rules! soak_on_kernels {
    ($($kernels:tt)+) => {
        mod soak {
            use super::*;

            $crate::on_kernels! { $($kernels)+ }
        }
    };
}

/// The kernel of that name.
///
/// # Panics
///
/// With what is missing, if it cannot be had.
#[track_caller]
pub fn kernel_for_test(name: &str) -> Kernel {
    Kernel::find(name).unwrap_or_else(|error| panic!("{error}"))
}

/// The kernel of a module that [`on_kernels!`] makes.
///
/// # Panics
///
/// With what is missing, if it cannot be had.
#[track_caller]
pub fn kernel_of_module(path: &str) -> Kernel {
    let module = path.rsplit("::").next().unwrap_or(path);
    let names = Kernel::names("*").unwrap_or_else(|error| panic!("{error}"));
    let name = names.into_iter().find(|name| module_name(name) == module);
    kernel_for_test(name.unwrap_or_else(|| panic!("no kernel has the module {module}")))
}

/// The module that [`on_kernels!`] makes for a kernel.
pub fn module_name(kernel: &str) -> String {
    let name = kernel.replace(['.', '-'], "_");
    // Nothing is named by a number in the first place.
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("k{name}") } else { name }
}
