//! More names than there is room for.

use integration_tests::answers::{list, number};
use integration_tests::harness::{self, run};
use integration_tests::made_up::{Is, MadeUp};

use crate::analyze::hostile::assert_harmless;

/// More memory than an analysis may take for threads, in KiB: for a quarter of a million of them, what is
/// known of each and a row for it.
const ENOUGH: u64 = 1 << 19;

/// Behind each switch: functions that nobody knows.
const STACK: [(&str, Is<'static>); 2] =
    [("size", Is::Number(8)), ("caller", Is::Numbers(&[0xffff_ffff_8100_0000; 8]))];

/// The most memory that a command line of the agent had, in KiB, and what it printed.
fn most_memory(args: &[&str]) -> (u64, String) {
    let program = harness::agent_path();
    let script = "import resource, subprocess, sys
out = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.stdout.flush()
sys.stdout.buffer.write(out)";
    let line = ["-c", script, program.to_str().unwrap()].into_iter().chain(args.iter().copied());
    let out = run(&mut harness::program("/".as_ref(), "python3", line)).expect(0).out;
    let (most, out) = out.split_once('\n').unwrap();
    (most.parse().unwrap(), out.to_owned())
}

#[test]
fn sixteen_megabytes_of_names_are_too_many() {
    const THREADS: u32 = 1_120_000;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("names.dat");
    let mut made = MadeUp::new(&["sched", "ftrace"]);
    let name = |tid: u32| format!("\x1b]<{tid:011}\n").into_bytes();
    assert!(name(1).len() as u32 * THREADS > 16 << 20);
    for tid in 1..THREADS {
        let time = u64::from(tid) * 1000;
        made.switch_names((time, 0), (tid, 1, &name(tid)), (tid + 1, &name(tid + 1)));
        made.at((time, 0), tid, "kernel_stack", &STACK);
    }
    made.write(&file);
    let path = file.to_str().unwrap();
    for analysis in ["sched", "offcpu"] {
        let (most, out) = most_memory(&["analyze", analysis, path, "-n", "100"]);
        println!("{analysis}: {most} KiB");
        assert!(most < ENOUGH, "{analysis}: {most} KiB");
        assert_harmless(&out);
        assert!(out.contains("no room"), "{}", &out[..out.len().min(2000)]);
    }
    for (analysis, args, left_out) in
        [("sched", &[][..], "threads_left_out"), ("stacks", &["--event", "sched_switch"], "others.count")]
    {
        let (most, out) = most_memory(&[&["analyze", analysis, path, "--json"], args].concat());
        println!("{analysis} --json: {most} KiB");
        assert!(most < ENOUGH, "{analysis}: {most} KiB");
        let told: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(number(&told, left_out) > 100_000, "{analysis}");
        assert!(list(&told, "threads").len() > 100_000, "{analysis}");
    }
    let picture = dir.path().join("names.svg");
    let of = ["analyze", "stacks", path, "--event", "sched_switch", "--flame"];
    let (most, _) = most_memory(&[&of[..], &[picture.to_str().unwrap()]].concat());
    println!("names.svg: {most} KiB");
    assert!(most < ENOUGH, "names.svg: {most} KiB");
    let text = std::fs::read_to_string(&picture).unwrap();
    assert!(!text.contains(|c: char| c.is_control() && !c.is_whitespace()));
    // Markup of names is text.
    assert!(text.contains("[other stacks]") && !text.contains("]<0"));
}
