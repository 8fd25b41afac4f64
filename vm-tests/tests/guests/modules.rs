//! Events of modules, which have types of their own: on kernels that have ext4 and its journal as modules,
//! all of their events have programs, and records equal ftrace's.

use vm_tests::{Cmd, Kernel, Vm, guest::integration_tests_on_disk, on_kernels, soak_on_kernels};

on_kernels! {
    k6_1_rt: [events_of_modules_have_programs],
    k6_12_generic: [events_of_modules_have_programs, records_of_modules_equal_ftraces],
}
soak_on_kernels! {
    k6_1_rt: [records_of_modules_equal_ftraces],
}

/// The kernel's verifier takes a program for every described event of a module.
fn events_of_modules_have_programs(kernel: &Kernel) {
    let lines = [
        "tracer-agent doctor --programs",
        "tracer-agent record -q -o /tmp/fast.dat --lane fast -e 'ext4:*' -e 'jbd2:*' \
         sh -c 'echo text > /disk/file && sync && rm /disk/file' && tracer-agent report /tmp/fast.dat",
        // Nothing of a module's types is needed where none of its events is recorded; and what is gone has no
        // events any more.
        "umount /disk && rmmod ext4 && tracer-agent record -q -o /tmp/none.dat -e sched_switch true",
    ];
    let commands = lines.map(|line| Cmd::sh(line).timeout(std::time::Duration::from_mins(10)));
    let run = Vm::new(kernel).agent().disk("/disk").run(&commands).unwrap_or_else(|error| panic!("{error}"));
    let texts: Vec<String> = run.outcomes.iter().map(vm_tests::Outcome::expect_success).collect();
    let described = || texts[0].lines().filter(|line| !line.starts_with(' ') && line.contains(':'));
    let has_program = |line: &&str| line.split_once(' ').is_some_and(|(_, it)| it.parse::<u64>().is_ok());
    let (all, fast) = (described().count(), described().filter(has_program).count());
    println!("{}: {fast} of {all} described events have programs", kernel.name);
    let of_modules: Vec<&str> =
        texts[0].lines().filter(|line| line.starts_with("ext4:") || line.starts_with("jbd2:")).collect();
    println!("{}", of_modules.join("\n"));
    assert!(of_modules.len() > 90, "{}", texts[0]);
    let without: Vec<&&str> = of_modules.iter().filter(|line| !has_program(line)).collect();
    assert!(without.is_empty(), "{without:?}");
    for event in ["ext4_da_write_begin", "ext4_allocate_blocks", "jbd2_run_stats", "jbd2_start_commit"] {
        assert!(texts[1].contains(event), "no {event} in\n{}", texts[1]);
    }
}

fn records_of_modules_equal_ftraces(kernel: &Kernel) {
    integration_tests_on_disk(kernel, &[("oracle", &["block"])]);
}
