//! `cargo xtask golden`

use std::fs;

use super::setup::{Purpose, setup};
use super::{Task, no_arguments, test, vm};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "golden",
    args: "",
    about: "Writes tests/golden/verified-insns.txt anew: what each program takes the verifier,\n\
            on this kernel and in the guests 6.1-cloud, 6.12-cloud and newest-cloud",
    run,
};

const HEADER: &str = "# kernel release, program, instructions that the verifier looked at (or: generic). Written by `cargo xtask golden`.\n";

/// The guests whose figures are kept.
const GUESTS: [&str; 3] = ["6.1-cloud", "6.12-cloud", "newest-cloud"];

/// Prints the kernel's release, which figures are kept by, in front of the list of programs.
const LISTING: &str = "cat /proc/sys/kernel/osrelease && tracer-agent doctor --programs";

fn run(args: &[String]) -> Result {
    no_arguments(args)?;
    setup(Purpose::Test)?;
    let programs = test::static_programs()?;
    let mut agent = process::as_root(programs.join("tracer-agent"))
        .ok_or("loading programs needs root, and there is no sudo to become it")?;
    let here = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut listings = vec![here + &process::output(agent.args(["doctor", "--programs"]))?];
    for guest in GUESTS {
        // With the same programs, instead of building those of a release.
        let mut vm = vm::vm();
        vm.env(test::ENV_STATICS, &programs).args(["run", guest, "--", LISTING]);
        listings.push(process::output(&mut vm)?);
    }
    let mut rows: Vec<String> = listings.iter().flat_map(|listing| golden(listing)).collect();
    rows.sort();
    let path = workspace::root().join("tests/golden/verified-insns.txt");
    fs::write(&path, format!("{HEADER}{}\n", rows.join("\n")))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// The lines of a kernel, whose release is the first line of its listing.
fn golden(listing: &str) -> Vec<String> {
    let (release, programs) = listing.split_once('\n').unwrap_or_default();
    programs.lines().filter_map(row).map(|row| format!("{release} {row}")).collect()
}

/// A line of `doctor --programs` without what differs from build to build.
fn row(line: &str) -> Option<String> {
    let (program, outcome) = line.split_once(' ').filter(|_| !line.starts_with(' '))?;
    let outcome = outcome.split(':').next().unwrap_or(outcome);
    Some(format!("{program} {outcome}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_kernel_and_no_reasons() {
        let listing = "6.1.0-1\na:b 12\na:c generic: it has no field c: d\n  0: R1=ctx()\n";
        assert_eq!(golden(listing), ["6.1.0-1 a:b 12", "6.1.0-1 a:c generic"]);
    }
}
