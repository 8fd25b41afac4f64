//! Kernels and guests by hand; `cargo xtask vm` calls it.
//!
//! - `vm fetch [GLOB]` downloads the kernels
//! - `vm shell [GLOB]` boots the first one into a shell, with tracer-agent and trace-cmd
//! - `vm modules GLOB` prints the modules of their tests
//! - `vm cost [GLOB [CASE]]` measures in each what recording costs, in instructions
//! - `vm run [GLOB] -- LINE` runs a line of shell in each and prints what it prints
//! - `vm count [GLOB] -- LINE` does so where clocks count instructions, with `vm-load` in the guest

use std::process::ExitCode;
use std::time::{Duration, Instant};

use vm_tests::{Cmd, Error, Kernel, Vm, guest};

/// How long a line may take: the verifier alone takes minutes for all programs where emulated.
const LINE_MAX: Duration = Duration::from_mins(10);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["fetch"] => fetch("*"),
        ["fetch", glob] => fetch(glob),
        ["modules", glob] => modules(glob),
        ["shell"] => shell("6.12*"),
        ["shell", glob] => shell(glob),
        ["cost"] => cost("*-cloud", ""),
        ["cost", glob] => cost(glob, ""),
        ["cost", glob, case] => cost(glob, case),
        ["run", "--", line @ ..] => run("*", &line.join(" "), false),
        ["run", glob, "--", line @ ..] => run(glob, &line.join(" "), false),
        ["count", "--", line @ ..] => run("*-cloud", &line.join(" "), true),
        ["count", glob, "--", line @ ..] => run(glob, &line.join(" "), true),
        _ => {
            eprintln!(
                "usage: vm fetch [GLOB] | modules GLOB | shell [GLOB] | cost [GLOB [CASE]] | run|count [GLOB] -- LINE"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fetch(glob: &str) -> Result<bool, Error> {
    for kernel in Kernel::matching(glob)? {
        println!("{}: {}", kernel.name, kernel.package);
    }
    Ok(true)
}

/// Where the tests of the kernels are, for `cargo xtask vm --kernel`.
fn modules(glob: &str) -> Result<bool, Error> {
    for name in Kernel::names(glob)? {
        println!("{}", vm_tests::module_name(name));
    }
    Ok(true)
}

fn shell(glob: &str) -> Result<bool, Error> {
    Vm::new(&Kernel::find(glob)?).agent().trace_cmd().shell()?;
    Ok(true)
}

fn cost(glob: &str, case: &str) -> Result<bool, Error> {
    for kernel in Kernel::matching(glob)? {
        println!("{}\n{}", kernel.name, vm_tests::cost::HEADER);
        for cost in vm_tests::cost::measure(&kernel, case)? {
            println!("{cost}");
        }
    }
    Ok(true)
}

fn run(glob: &str, line: &str, counting: bool) -> Result<bool, Error> {
    let mut good = true;
    for kernel in Kernel::matching(glob)? {
        let started = Instant::now();
        let mut vm = Vm::new(&kernel).agent().trace_cmd();
        if counting {
            vm = vm.file(guest::programs()?.join("vm-load"), "/bin/vm-load").count_instructions();
        }
        let run = vm.run(&[Cmd::sh(line).timeout(LINE_MAX)])?;
        for outcome in &run.outcomes {
            print!("{}", outcome.stdout_text());
            eprint!("{}", outcome.stderr_text());
            eprintln!("{}: {:?} in {:.1} s", kernel.name, outcome.end, started.elapsed().as_secs_f64());
            good &= outcome.success();
        }
    }
    Ok(good)
}
