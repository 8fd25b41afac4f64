//! `--debug-programs`: what the eBPF programs say of themselves agrees with what was recorded.

use std::path::{Path, PathBuf};

use integration_tests::{
    agent::beside_test,
    harness::{Caller, Ledger, Marked, agent, program, run, wait_for},
};

const SIGCONT: i32 = libc::SIGCONT;

/// The command with such programs, which `cargo xtask test` builds.
fn talkative() -> PathBuf {
    let path = beside_test("examples/debug_programs");
    assert!(
        path.is_file(),
        "{} is not there: cargo build -p tracer-agent --features debug-programs --example debug_programs",
        path.display()
    );
    path
}

/// Records a caller's system calls, most of them while nothing is read out of the rings, and goes on until
/// the programs have said what is expected. Gives what was said.
fn record(dir: &Path, args: &[&str], expected: &[&str]) -> String {
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let mut command = program(dir, talkative().to_str().unwrap(), ["record"]);
    command.args(["-e", "raw_syscalls:sys_enter", "-P", &pid, "-M", "0-0"]).args(args);
    let recording = Marked::start_as(&mut command, dir.join("recording"));
    recording.agent.hold();
    caller.call(50_000);
    recording.agent.signal(SIGCONT);
    wait_for("what the programs say", || {
        // A few at a time: those that fire before the readers have made room are lost, too.
        caller.call(100);
        expected.iter().all(|text| recording.agent.has_said(text)).then_some(())
    });
    recording.finish().expect(0).err
}

/// The numbers in a line.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|other: char| !other.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_full_ring_is_told_with_the_numbers_of_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let said = record(dir.path(), &["--debug-programs", "-b", "64"], &["the open page was closed at "]);
    let lost = Ledger::of(&dir.path().join("trace.dat")).lost();
    assert!(lost > 40_000, "only {lost} were lost");

    let full: Vec<Vec<u64>> =
        said.lines().filter(|line| line.contains("warn: CPU 0: no page is free")).map(numbers).collect();
    assert_eq!(full[0], [0, 16, 0], "the CPU, the pages of the ring, no loss yet:\n{said}");
    let told: Vec<u64> = full.iter().skip(1).map(|line| line[2]).take_while(|lost| *lost < 32_768).collect();
    let powers: Vec<u64> = (0..15).map(|bits| 1 << bits).collect();
    assert_eq!(told, powers, "losses are told at powers of two:\n{said}");

    let after: Vec<Vec<u64>> =
        said.lines().filter(|line| line.contains("begins after")).map(numbers).collect();
    let sum: u64 = after.iter().map(|line| line[2]).sum();
    assert_eq!(sum, lost, "pages say what was lost before them:\n{said}");
    assert!(said.contains("debug: thread ") && said.contains("its name was noted"), "{said}");
}

#[test]
fn programs_say_nothing_unless_they_are_asked() {
    let dir = tempfile::tempdir().unwrap();
    let said = record(dir.path(), &["-b", "64"], &[]);
    assert!(!said.contains("programs:"), "{said}");
}

#[test]
fn a_command_whose_programs_cannot_say_anything_says_how_to_build_one() {
    let dir = tempfile::tempdir().unwrap();
    let ended =
        run(agent(dir.path(), ["record", "--debug-programs"]).args(["-e", "sched", "true"])).expect(2);
    assert!(ended.err.contains("--features debug-programs"), "{}", ended.err);
    assert!(!dir.path().join("trace.dat").exists());
    let help = run(&mut agent(dir.path(), ["record", "--help"])).expect(0).out;
    assert!(!help.contains("debug-programs"), "{help}");
}
