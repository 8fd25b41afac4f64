//! A machine with 64 processors: what a recording takes there, and what it costs those that are idle.

use std::{collections::BTreeMap, time::Duration};

use vm_tests::{Cmd, Run, Vm, kernel_for_test};

const CPUS: usize = 64;
/// Those that have something to do: the first ones.
const BUSY: usize = 2;
/// How long the others are watched, in seconds of the guest. A recorder that looked at each of them once in a
/// period of its switch timer would interrupt them as often.
const WATCHED: u64 = 6;
/// KB of each ring.
const RING: u64 = 256;

/// Notes the interrupts of all processors, waits, and notes them again.
const WATCH: &str = "\
cat /proc/interrupts > /tmp/$1.before
sleep $2
cat /proc/interrupts > /tmp/$1.after
";

/// What the recorder has, said by the command that it records.
const TAKEN: &str = "\
echo threads $(ls /proc/$PPID/task | wc -l)
echo descriptors $(ls /proc/$PPID/fd | wc -l)
echo resident_kb $(awk '/^VmRSS/ { print $2 }' /proc/$PPID/status)
echo available_kb $(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
sh /test/watch with $1
for i in 1 2 3 4 5 6 7 8 9 10; do cat /proc/loadavg > /dev/null; done
";

/// How much processor time the recorder has needed when it begins to record, in ticks: for two processors
/// and for all of them, in turns.
const START: &str = "\
for i in 1 2 3; do
  for mask in 3 ffffffffffffffff; do
    tracer-agent record -q -M $mask -e raw_syscalls -b 256K -o /tmp/start.dat \\
      sh -c 'echo '$mask' $(cut -d\" \" -f14,15 /proc/$PPID/stat)'
  done
done
";

/// The interrupts of one kind on each processor, from `/proc/interrupts`.
fn interrupts(text: &str, kind: &str) -> Vec<u64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(kind)).expect("such interrupts");
    let numbers: Vec<u64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    assert_eq!(numbers.len(), CPUS, "{line}");
    numbers
}

/// How often the processors that have nothing to do were asked to call a function meanwhile: the most of
/// nine in ten of them. Others had work of the kernel's after all.
fn asked(files: &BTreeMap<String, Vec<u8>>, name: &str) -> u64 {
    let of = |end: &str| interrupts(&String::from_utf8_lossy(&files[&format!("/tmp/{name}.{end}")]), "CAL:");
    let (before, after) = (of("before"), of("after"));
    let mut all: Vec<u64> =
        before.iter().zip(&after).skip(BUSY).map(|(before, after)| after - before).collect();
    all.sort_unstable();
    all[all.len() * 9 / 10]
}

/// The number behind a word.
fn number(text: &str, name: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// The least processor time of the starts with a mask, in ticks.
fn least(text: &str, mask: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix(mask)?.strip_prefix(' '));
    let ticks = lines.map(|line| line.split(' ').map(|ticks| ticks.parse::<u64>().unwrap()).sum());
    ticks.min().unwrap()
}

#[test]
fn a_recording_of_64_processors_is_bounded_and_leaves_the_idle_ones_alone() {
    let kernel = kernel_for_test("6.12-cloud");
    let limit = Duration::from_mins(8);
    let mut vm = Vm::new(&kernel).agent().trace_cmd().size(CPUS as u32, 3072);
    for (path, script) in [("/test/watch", WATCH), ("/test/taken", TAKEN), ("/test/start", START)] {
        vm = vm.bytes(path, script);
    }
    for name in ["with", "without"] {
        for end in ["before", "after"] {
            vm = vm.bring_back(&format!("/tmp/{name}.{end}"));
        }
    }
    let options = format!("-q -e raw_syscalls -b {RING} -o /tmp/t.dat");
    let commands = [
        format!("taskset -c 0 sh /test/watch without {WATCHED}"),
        "echo available_kb $(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)".to_owned(),
        format!("taskset -c 0 tracer-agent record {options} sh /test/taken {WATCHED}"),
        "tracer-agent check /tmp/t.dat".to_owned(),
        "tracer-agent report /tmp/t.dat | grep -c sys_".to_owned(),
        "trace-cmd report /tmp/t.dat | grep -c sys_".to_owned(),
        "sh /test/start".to_owned(),
    ];
    let commands: Vec<Cmd> = commands.iter().map(|line| Cmd::sh(line).timeout(limit)).collect();
    let Run { outcomes, files, .. } =
        vm.timeout(Duration::from_mins(20)).run(&commands).unwrap_or_else(|error| panic!("{error}"));
    let said: Vec<String> = outcomes.iter().map(|outcome| outcome.expect_success()).collect();
    let [_, before, taken, _, ours, stocks, start] = &said[..] else { panic!("{said:?}") };
    assert_eq!(ours, stocks, "stock trace-cmd reads as many events");

    let rings = RING * CPUS as u64;
    let memory = number(before, "available_kb").saturating_sub(number(taken, "available_kb"));
    let [threads, descriptors, resident] =
        ["threads", "descriptors", "resident_kb"].map(|name| number(taken, name));
    let starts = ["3", "ffffffffffffffff"].map(|mask| least(start, mask));
    println!(
        "threads {threads}, descriptors {descriptors}, resident {resident} KB, in all {memory} KB, rings {rings} KB, \
         processor time of a start with 2 and with {CPUS} rings {starts:?} ticks"
    );
    assert!(threads <= 24, "{threads} threads");
    assert!(descriptors <= 64 + 2 * CPUS as u64, "{descriptors} descriptors");
    // Of a ring, what was written to is resident.
    assert!(resident <= (64 << 10) + rings, "{resident} KB are resident");
    assert!(memory <= (96 << 10) + rings, "{memory} KB less are available");
    assert!(starts[1] <= 3 * starts[0], "a start takes {starts:?} ticks");
    // An interrupt in each period of the switch timer would be as many as seconds.
    let (with, without) = (asked(&files, "with"), asked(&files, "without"));
    assert!(with <= without + WATCHED / 3, "{with} interrupts of an idle processor, {without} without");
}
