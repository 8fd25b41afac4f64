//! Filters, samples and rates behind probes.

use std::{fs, path::Path};

use integration_tests::{
    binaries::Link,
    harness::{Ledger, agent, run},
    probe_program::{Probed, build},
    trace_cmd,
};

const USAGE: i32 = 2;
/// What a probe of `work` records.
const ARGUMENTS: &str = "n=%di:s64 text=+0(%si):string number=+0(%dx):s32 name=+0(+8(+8(%dx))):ustring \
    bits=%cx:b4@4/32 byte=%cx:u8 comm=$comm";

/// How many of an event's records a filter of `report` takes.
fn in_user_space(dir: &Path, event: &str, filter: &str) -> usize {
    let filter = format!("{event}: {filter}");
    let report = run(&mut agent(dir, ["report", "-F", &filter, "out.dat"])).expect(0).out;
    report.lines().filter(|line| line.contains(&format!(" {event}: "))).count()
}

/// Records `probe` once without a filter, as `all`, and once for each of `filters`; the kernel has to choose
/// what user space does.
fn compare(dir: &Path, program: &Path, option: &str, place: &str, filters: &[&str]) {
    let mut args = vec!["record".to_owned(), "-o".into(), "out.dat".into()];
    args.extend([option.to_owned(), format!("all={place}")]);
    for (number, filter) in filters.iter().enumerate() {
        args.extend([option.to_owned(), format!("f{number}={place}"), "-f".into(), (*filter).to_owned()]);
    }
    args.extend([program.to_str().unwrap().to_owned(), "40".into(), "2".into()]);
    run(&mut agent(dir, args)).expect(0);
    let stock = trace_cmd::report(&dir.join("out.dat"), &[]);
    let counted = |event: &str| stock.lines().filter(|line| line.contains(&format!(" {event}: "))).count();
    let all = counted("all");
    assert!(all >= 80, "{all} {stock}");
    for (number, filter) in filters.iter().enumerate() {
        let (kernel, user) = (counted(&format!("f{number}")), in_user_space(dir, "all", filter));
        assert_eq!(kernel, user, "{option} {place} -f '{filter}'");
        assert!(kernel > 0 && kernel < all, "'{filter}' takes {kernel} of {all}: nothing is shown by that");
    }
    // What was left out is counted as such, and is no loss.
    let ledger = Ledger::of(&dir.join("out.dat"));
    let fired = all as u64 * (filters.len() as u64 + 1);
    assert_eq!((ledger.events("recorded") + ledger.events("filtered"), ledger.lost()), (fired, 0));
}

#[test]
fn the_kernel_takes_what_user_space_takes() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let file = file.display();
    let filters = [
        "n == 7",
        "n < 0",
        "n >= 10 && n < 20",
        "text == \"some text\"",
        "text ~ \"*e te*\"",
        "text == \"(fault)\"",
        "!(name ~ \"a*inside\") || n > 30",
        "bits == 5 || byte & 1",
        "n > 5 && text ~ \"some*\" && number == 5 && name == \"a name inside\"",
        "__probe_ip > 0 && byte == 0x41",
    ];
    compare(dir, &program, "--uprobe", &format!("{file}:work {ARGUMENTS}"), &filters);
    compare(
        dir,
        &program,
        "--uretprobe",
        &format!("{file}:named even=+0($retval):string"),
        &["even == \"odd\"", "even ~ \"e*\" && __probe_func != 0"],
    );
    compare(dir, &program, "--usdt", &format!("{file}:probed:guarded"), &["arg1 > 60", "arg2 == 3"]);
}

#[test]
fn filters_know_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let group = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).expect("cgroup2 is mounted");
    let probe = |name: &str| format!("{name}={}:work n=%di:s64 comm=$comm", file.display());
    let here = format!("$cgroup == \"{group}\" && $uid == 0 && $pid != common_pid");
    let elsewhere = format!("$cgroup != \"{group}\"");
    let probes = ["here", "elsewhere", "child", "named"].map(probe);
    let mut args = vec!["record", "-o", "out.dat"];
    let filters = [&here, &elsewhere, "$pid != common_pid && $ppid != 0", "comm == $comm && $comm ~ \"p*d\""];
    for (probe, filter) in probes.iter().zip(filters) {
        args.extend(["--uprobe", probe, "-f", filter]);
    }
    args.extend([program.to_str().unwrap(), "5"]);
    run(&mut agent(dir, args)).expect(0);
    // Calls are made by a thread that is not the process's first.
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    let counts = ["here", "elsewhere", "child", "named"]
        .map(|event| report.lines().filter(|line| line.contains(&format!(" {event}: "))).count());
    assert_eq!(counts, [7, 0, 7, 7], "{report}");
}

#[test]
fn samples_and_rates_count_for_probes() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let probe = |name: &str| format!("{name}={}:work n=%di:s64", file.display());
    let (sampled, limited) = (probe("sampled"), probe("limited"));
    let args =
        ["record", "-o", "out.dat", "-M", "1", "--uprobe", &sampled, "-f", "n >= 0", "--sample", "1/10"];
    let rest =
        ["--uprobe", &limited, "--rate", "3/s", "taskset", "-c", "0", program.to_str().unwrap(), "100"];
    run(&mut agent(dir, args.into_iter().chain(rest))).expect(0);
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    let of = |event: &str| -> Vec<&str> {
        report
            .lines()
            .filter_map(|line| line.split_once(&format!(" {event}: "))?.1.split_once("n="))
            .map(|(_, n)| n)
            .collect()
    };
    assert_eq!(of("sampled"), ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90"]);
    // A second may end in between.
    let limited = of("limited").len();
    assert!((3..102).contains(&limited), "{limited}");
    let lost = Ledger::of(&dir.join("out.dat")).lost_of_events();
    assert_eq!(limited as u64 + lost, 102);
}

#[test]
fn a_filter_that_does_not_fit_its_probe_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Probed { file, .. } = build(dir, Link::Pie);
    let probe = format!("{}:work n=%di:s64 text=+0(%si):string {}", file.display(), texts(4));
    for (filter, texts) in [
        ("m == 1", &["no field `m`", "did you mean `n`?"][..]),
        ("n == \"x\"", &["-f"]),
        ("text > 3", &["text"]),
        ("n == 1 &&", &["expected"]),
        ("text =~ \"a.b\"", &["regular expressions", "report -F"]),
        ("common_flags == 1", &["common_flags"]),
        ("$cgroup == \"/no/such/group\"", &["there is no control group"]),
        (
            "t0 ~ \"*a*\" || t1 ~ \"*a*\" || t2 ~ \"*a*\" || t3 ~ \"*a*\"",
            &["a program has room for 208", "fewer strings"],
        ),
    ] {
        let args = ["record", "-o", "refused.dat", "--uprobe", &probe, "-f", filter, "true"];
        run(&mut agent(dir, args)).expect(USAGE).says(texts);
    }
    let tracer = ["record", "-o", "refused.dat", "--function", "vfs_*", "-f", "ip == 1", "true"];
    run(&mut agent(dir, tracer)).expect(USAGE).says(&["-f applies to the events", "function tracer"]);
    let nothing = ["record", "-o", "refused.dat", "-f", "n == 1", "--uprobe", &probe, "true"];
    run(&mut agent(dir, nothing)).expect(USAGE).says(&["there is none before it"]);
    assert!(!dir.join("refused.dat").exists());
}

/// Arguments that are texts.
fn texts(count: usize) -> String {
    let argument = |number| format!("t{number}=+0(%si):string");
    (0..count).map(argument).collect::<Vec<_>>().join(" ")
}
