//! What the programs are to the kernel's verifier: each is loaded, and takes it about as many instructions as
//! last time.
//!
//! `tests/golden/verified-insns.txt` has a line for each kernel and program: the kernel's release, the
//! program, and the number of instructions that the verifier looked at, or `generic` for an event that cannot
//! have a program of its own on that kernel. `cargo xtask golden` writes it anew. A release that it does not
//! know is held against another one of its series, less strictly. On a kernel of no known series, the test is
//! content if every program is loaded and none is far from what the known kernels need.

use std::collections::BTreeMap;

use integration_tests::agent;

static GOLDEN: &str = include_str!("../../golden/verified-insns.txt");

/// How far a number may be off on a kernel that is known, in per cent: compilers differ a little.
const TOLERANCE: u64 = 15;

/// The same for another release of the kernel's series.
const TOLERANCE_IN_SERIES: u64 = 60;

/// How many times as many as for any program on any known kernel it may be on others, where verifiers differ.
const MARGIN: u64 = 4;

#[test]
fn programs_take_the_verifier_as_long_as_last_time() {
    let output = agent::run(["doctor", "--programs"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let found: BTreeMap<&str, &str> = text
        .lines()
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}")))
        .collect();
    assert!(found.len() > 50, "every described event of the kernel has a line: {text}");
    for (program, outcome) in &found {
        assert!(!outcome.starts_with("refused"), "{program}: {outcome}\n{text}");
    }

    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = release.trim();
    let all = GOLDEN.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [kernel, program, outcome] = words[..] else { panic!("{line}") };
        (kernel, program, outcome)
    });
    let nearest = all.clone().map(|row| row.0).filter(|known| series(known) == series(release)).max();
    let (kernel, tolerance) = match nearest {
        Some(nearest) if all.clone().all(|row| row.0 != release) => (nearest, TOLERANCE_IN_SERIES),
        _ => (release, TOLERANCE),
    };
    let golden: BTreeMap<&str, &str> =
        all.clone().filter(|row| row.0 == kernel).map(|(_, program, outcome)| (program, outcome)).collect();
    if golden.is_empty() {
        let most = all.filter_map(|(.., outcome)| outcome.parse::<u64>().ok()).max().unwrap();
        println!("no figures for {release}: programs may take {MARGIN} times {most} instructions");
        for (program, outcome) in &found {
            assert!(
                outcome.parse::<u64>().is_ok_and(|insns| insns <= MARGIN * most)
                    || outcome.starts_with("generic"),
                "{program}: {outcome}"
            );
        }
        return;
    }
    let mut wrong = Vec::new();
    for (program, expected) in &golden {
        let outcome = *found.get(program).unwrap_or(&"missing");
        let numbers = (expected.parse::<u64>().ok(), outcome.parse::<u64>().ok());
        let good = match numbers {
            (Some(expected), Some(found)) => expected.abs_diff(found) * 100 <= expected * tolerance,
            (None, None) => outcome.starts_with(expected),
            _ => false,
        };
        if !good {
            wrong.push(format!("{program}: {outcome}, was {expected}"));
        }
    }
    // Releases of a series may have other events.
    let is_same = kernel == release;
    wrong.retain(|line| is_same || !line.contains(": missing, "));
    let new = found.keys().filter(|program| is_same && !golden.contains_key(*program));
    wrong.extend(new.map(|program| format!("{program}: has no figure yet")));
    assert!(
        wrong.is_empty(),
        "on {release} by the figures of {kernel}; if this is meant, `cargo xtask golden` writes the figures anew:\n{}",
        wrong.join("\n")
    );
}

/// `6.12` of `6.12.95+deb12-cloud-amd64`.
fn series(release: &str) -> Option<&str> {
    let (second, _) = release.match_indices('.').nth(1)?;
    release.get(..second)
}
