//! What a filter costs in the kernel, predicate by predicate: `cargo xtask bench filters`. Needs root.
//!
//! Each filter runs as a program by itself on the same record, which it does not take, and the kernel
//! measures it (`BPF_ENABLE_STATS`). What an empty filter takes, mostly the measurement itself, is taken off.
#![expect(clippy::print_stdout, reason = "the figures are for a person")]

use std::error::Error;

use attach::trial::Trial;
use compile::filter::{Facts, Program};
use ftrace_event::EventTable;
use ftrace_event::filter::{Dialect, Filter, ResolveOptions};
use ftrace_event::record::Machine;
use ftrace_event::symbols::NoNames;
use kernel::btf::Btf;
use spec::TraceClock;

/// Runs of a filter in a batch, and batches. The fastest batch counts: what else the machine does only makes
/// them slower.
const RUNS: u32 = 5_000;
const BATCHES: u32 = 7;

const ID: u16 = 77;
const FORMAT: &str = "name: event
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int prio;\toffset:12;\tsize:4;\tsigned:1;
\tfield:u64 state;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char name[16];\toffset:24;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] path;\toffset:40;\tsize:4;\tsigned:0;

print fmt: \"\"
";

/// What is measured: the filter, and what it is an example of.
const FILTERS: [(&str, &str); 19] = [
    ("pid == 1", "a number"),
    ("state & 0x40", "bits"),
    ("pid + prio * 2 == 1", "arithmetic"),
    ("pid == 4711 && prio == 120 && state == 1", "three numbers, of which the first two hold"),
    ("name == \"bash\"", "a text in an array"),
    ("name ~ \"ba*\"", "the beginning of one"),
    ("name ~ \"*sh\"", "wildcards in one"),
    ("path == \"/usr/bin/bash\"", "a text behind the fixed part"),
    ("path ~ \"/home/*\"", "the beginning of one"),
    ("path ~ \"*/bin/*sh\"", "wildcards in one, of 32 characters"),
    ("$tid == 1", "the thread"),
    ("$pid == 1", "the process"),
    ("$uid == 1", "the user"),
    ("$comm == \"bash\"", "the thread's name"),
    ("$comm ~ \"*sh\"", "wildcards in it"),
    ("$cpu == 999", "the CPU"),
    ("$cgroup == 1234567", "the control group"),
    ("$ppid == 1", "the parent"),
    ("$pidns == 1", "the PID namespace"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut table = EventTable::new(Machine::default());
    table.add("bench", FORMAT, &NoNames)?;
    let facts = Facts::new(TraceClock::Mono, Btf::of_kernel().ok().as_ref());
    let record = record();
    let time = |text: &str| -> Result<f64, Box<dyn Error>> {
        let filter = Filter::parse_expression(text, Dialect::Ftrace)?;
        let options = ResolveOptions { live: true, ..ResolveOptions::default() };
        let resolved = filter.resolve(&table, options)?;
        let test = resolved.test(ID).ok_or("the filter is for another event")?;
        let trial = Trial::load(&Program::compile(test, ID, &facts)?)?;
        let mut best = f64::MAX;
        for _ in 0..BATCHES {
            best = best.min(trial.mean_time(&record, RUNS)?);
        }
        Ok(best)
    };
    let nothing = time("0 == 1")?;
    println!("| filter | | ns |\n|---|---|---|");
    println!("| (none) | the measurement | {nothing:.0} |");
    for (filter, meaning) in FILTERS {
        println!("| `{filter}` | {meaning} | {:.0} |", time(filter)? - nothing);
    }
    Ok(())
}

/// A record of 76 bytes: pid 4711, prio 120, the name of a thread, a path.
fn record() -> Vec<u8> {
    const PATH: &[u8; 32] = b"/usr/share/misc/some-file.txt\0\0\0";
    let mut record = ID.to_le_bytes().to_vec();
    record.extend([0, 0]);
    record.extend(4711_u32.to_le_bytes());
    record.extend(4711_u32.to_le_bytes());
    record.extend(120_u32.to_le_bytes());
    record.extend(0_u64.to_le_bytes());
    record.extend(b"kworker/0:1-ev\0\0");
    // Where the path is, and how long.
    record.extend(44_u16.to_le_bytes());
    record.extend(32_u16.to_le_bytes());
    record.extend(PATH);
    record
}
