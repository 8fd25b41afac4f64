//! `cargo xtask run`

use std::os::unix::process::CommandExt as _;

use super::setup::{Purpose, setup};
use super::{Task, build};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "run",
    args: "-- ARGS...",
    about: "Builds tracer-agent and runs it as root\n\
            Such as: cargo xtask run -- record -e 'sched:*' -o trace.dat sleep 5",
    run,
};

fn run(args: &[String]) -> Result {
    setup(Purpose::Run)?;
    build::build(&[])?;
    let args = args.strip_prefix(&["--".to_owned()]).unwrap_or(args);
    let mut agent = process::as_root(workspace::agent())
        .ok_or("recording needs root, and there is no sudo to become it")?;
    agent.args(args);
    eprintln!("$ {}", process::line(&agent));
    // In the directory of the caller: `-o trace.dat` belongs there.
    Err(format!("{}: {}", process::line(&agent), agent.exec()).into())
}
