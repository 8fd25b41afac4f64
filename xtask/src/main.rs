//! `cargo xtask TASK`: everything a developer does to tracer-agent but editing it.

mod process;
mod tasks;
mod workspace;

use std::error::Error;
use std::process::ExitCode;

use crate::tasks::TASKS;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    if let Some(error) = tasks::compile_for_fuzzer() {
        eprintln!("the compiler does not start: {error}");
        return ExitCode::FAILURE;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, args)) = args.split_first() else {
        print!("{}", help());
        return ExitCode::SUCCESS;
    };
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("no such task: {name}\n\n{}", help());
        return ExitCode::from(2);
    };
    // What follows `--` is not for the task.
    if args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "-h" || arg == "--help") {
        println!("cargo xtask {} {}\n\n{}", task.name, task.args, task.about);
        return ExitCode::SUCCESS;
    }
    match (task.run)(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help() -> String {
    let tasks: Vec<String> = TASKS
        .iter()
        .filter(|task| !task.about.is_empty())
        .map(|task| {
            let head = format!("{} {}", task.name, task.args);
            format!("  {head:<56} {}", task.about.lines().next().unwrap_or_default())
        })
        .collect();
    format!(
        "Tasks of tracer-agent: cargo xtask TASK\n\n{}\n\n\
         `cargo xtask TASK --help` says more; docs/development.md says why.\n",
        tasks.join("\n")
    )
}
