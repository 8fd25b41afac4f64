//! `cargo xtask golden`

use std::collections::BTreeMap;
use std::fs;

use super::setup::{Purpose, setup};
use super::{Task, build, no_arguments};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "golden",
    args: "",
    about: "Writes tests/golden/verified-insns.txt anew: what each program takes the verifier of this kernel\n\
            Lines of other kernels stay as they are.",
    run,
};

const HEADER: &str = "# kernel, program, instructions that the verifier looked at (or: generic). Written by `cargo xtask golden`.\n";

fn run(args: &[String]) -> Result {
    no_arguments(args)?;
    setup(Purpose::Test)?;
    build::build(&[])?;
    let path = workspace::root().join("tests/golden/verified-insns.txt");
    let mut rows = BTreeMap::new();
    for line in fs::read_to_string(&path).unwrap_or_default().lines().filter(|line| !line.starts_with('#')) {
        if let Some((series, row)) = line.split_once(' ') {
            rows.entry(series.to_owned()).or_insert_with(Vec::new).push(row.to_owned());
        }
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let here: Vec<&str> = release.split('.').take(2).collect();
    let mut agent = process::as_root(workspace::agent())
        .ok_or("loading programs needs root, and there is no sudo to become it")?;
    let listing = process::output(agent.args(["doctor", "--programs"]))?;
    rows.insert(here.join("."), listing.lines().filter_map(row).collect());
    let mut text = HEADER.to_owned();
    for (series, rows) in rows {
        for row in rows {
            text += &format!("{series} {row}\n");
        }
    }
    fs::write(&path, text)?;
    eprintln!("wrote {}", path.display());
    Ok(())
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
    fn rows_have_no_reasons() {
        assert_eq!(row("a:b 12"), Some("a:b 12".to_owned()));
        assert_eq!(row("a:b generic: it has no field c: d"), Some("a:b generic".to_owned()));
        assert_eq!(row("  0: R1=ctx()"), None);
    }
}
