//! `cargo xtask bench build`: what building costs, from nothing and after an edit.
//!
//! The figures are CPU and wall time of cargo and all that it starts. Only figures of one run compare: a
//! machine's speed changes. Builds go to a target directory of their own, which is removed at the end; crates
//! are fetched before, so that no network is in the figures.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use super::sys::{self, Usage};
use crate::tasks::setup::{Purpose, setup};
use crate::{Result, process, workspace};

/// Files whose crates are built again after an edit, by the name of the row.
const EDITS: [(&str, &str); 7] = [
    ("ftrace-event", "agent/ftrace-event/src/lib.rs"),
    ("tracedat", "agent/tracedat/src/lib.rs"),
    ("export/perfetto", "agent/export/src/perfetto/mod.rs"),
    ("analysis", "agent/analysis/src/lib.rs"),
    ("capture", "agent/capture/src/lib.rs"),
    ("daemon", "agent/daemon/src/lib.rs"),
    ("cli", "agent/cli/src/lib.rs"),
];

/// All that the binary can have.
const FULL: &str = "--features=full";

/// What a build took.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
}

pub(super) fn run(args: &[String]) -> Result {
    let only: Option<&str> = match args {
        [] => None,
        [only] => Some(only),
        _ => return Err("bench build takes the name of one row at most".into()),
    };
    let wanted = |row: &str| only.is_none_or(|only| row.contains(only));
    setup(Purpose::Run)?;
    process::run(&mut process::cargo(["fetch", "--locked"]))?;
    let target = TargetDir::create()?;
    println!("{:<44} {:>9} {:>9}", "", "CPU s", "wall s");
    if wanted("first command") {
        target.clean()?;
        row(
            "first command: cargo xtask run",
            target.measure(
                &["build", "--package", "xtask"],
                &["build", "--release", "--package", "tracer-agent"],
            )?,
        );
    }
    if wanted("tests") {
        target.clean()?;
        row(
            "all tests",
            target.measure(&["test", "--no-run", "--workspace", "--features=tracer-agent/full"], &[])?,
        );
    }
    let edits = EDITS.map(|(name, path)| (format!("an edit in {name}"), path));
    let edits: Vec<_> = edits.into_iter().filter(|(name, _)| wanted(name)).collect();
    if edits.is_empty() {
        return Ok(());
    }
    let check = ["check", "--package", "tracer-agent", FULL];
    let release = ["build", "--release", "--package", "tracer-agent", FULL];
    for before in [&check[..], &release] {
        target.measure(before, &[])?;
    }
    for (name, path) in edits {
        let _edit = Edit::of(&workspace::root().join(path))?;
        row(&format!("cargo check after {name}"), target.measure(&check, &[])?);
        row(&format!("release build after {name}"), target.measure(&release, &[])?);
    }
    Ok(())
}

fn row(name: &str, cost: Cost) {
    println!("{name:<44} {:>9.1} {:>9.1}", cost.cpu.as_secs_f64(), cost.wall.as_secs_f64());
}

/// A directory for builds, which goes when this does.
struct TargetDir(PathBuf);

impl TargetDir {
    fn create() -> Result<Self> {
        let dir = Self(workspace::target_dir().join("bench-build"));
        dir.clean()?;
        Ok(dir)
    }

    fn clean(&self) -> Result {
        if self.0.exists() {
            fs::remove_dir_all(&self.0)?;
        }
        Ok(fs::create_dir_all(&self.0)?)
    }

    /// Runs cargo with these arguments, then with others unless there are none.
    fn measure(&self, first: &[&str], second: &[&str]) -> Result<Cost> {
        let mut cost = Cost { cpu: Duration::ZERO, wall: Duration::ZERO };
        for args in [first, second].into_iter().filter(|args| !args.is_empty()) {
            let mut cargo: Command = process::cargo(args);
            cargo.args(["--quiet", "--locked", "--offline"]).env("CARGO_TARGET_DIR", &self.0);
            let began = Instant::now();
            let child = cargo.spawn()?;
            let (status, Usage { cpu, .. }) = sys::wait(child.id())?.ok_or("cargo is no child any more")?;
            if !status.success() {
                return Err(format!("{}: {status}", process::line(&cargo)).into());
            }
            cost.cpu += cpu;
            cost.wall += began.elapsed();
        }
        Ok(cost)
    }
}

impl Drop for TargetDir {
    fn drop(&mut self) {
        // It is below the target directory, which is there to be removed.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A line more in a file, until this is dropped. Then it has its former time, too: cargo takes what was built
/// of the edit for the file's, and the next figure is that of its own edit alone.
struct Edit {
    path: PathBuf,
    before: Vec<u8>,
    modified: SystemTime,
}

impl Edit {
    fn of(path: &Path) -> Result<Self> {
        let (before, modified) = (fs::read(path)?, fs::metadata(path)?.modified()?);
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(b"\nconst _: u8 = 0;\n")?;
        Ok(Self { path: path.to_owned(), before, modified })
    }
}

impl Drop for Edit {
    fn drop(&mut self) {
        let restored = fs::write(&self.path, &self.before)
            .and_then(|()| OpenOptions::new().write(true).open(&self.path)?.set_modified(self.modified));
        if let Err(error) = restored {
            eprintln!("{} has a line more than before: {error}", self.path.display());
        }
    }
}
