//! `cargo xtask vm`

use super::Task;
use super::setup::{Purpose, setup};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "vm",
    args: "[--kernel GLOB] [--test NAME | --shell | -- LINE]",
    about: "Runs the VM tests, or a shell or a line of shell in a guest\n\
            GLOB is of 6.1-cloud 6.1-rt 6.12-cloud 6.12-generic 6.12-rt newest-cloud.\n\
            Guests have tracer-agent, trace-cmd and busybox. In a shell, `exit` powers off; so does Ctrl-A X.",
    run,
};

fn run(args: &[String]) -> Result {
    let (mut kernel, mut test, mut shell, mut line) = (None, None, false, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--kernel" => kernel = Some(args.next().ok_or("--kernel wants a name or a glob")?.as_str()),
            "--test" => test = Some(args.next().ok_or("--test wants a name")?.as_str()),
            "--shell" => shell = true,
            "--" => line = Some(args.by_ref().cloned().collect::<Vec<_>>()),
            other => return Err(format!("unexpected argument: {other}").into()),
        }
    }
    setup(Purpose::Test)?;
    if shell {
        return process::run(vm().arg("shell").args(kernel));
    }
    if let Some(line) = line {
        return process::run(vm().arg("run").args(kernel).arg("--").args(line));
    }
    let mut cargo = process::cargo(["test", "--package", "vm-tests", "--tests", "--", "--test-threads=1"]);
    match kernel {
        None => cargo.args(test),
        Some(kernel) => {
            // The tests of a kernel are in a module of its own.
            let modules = process::output(vm().args(["modules", kernel]))?;
            cargo.args(modules.lines().map(|module| format!("{module}::{}", test.unwrap_or_default())))
        }
    };
    process::run(&mut cargo)
}

/// The program of the package `vm-tests` that knows kernels and guests.
pub(super) fn vm() -> std::process::Command {
    process::cargo(["run", "--quiet", "--package", "vm-tests", "--bin", "vm", "--"])
}
