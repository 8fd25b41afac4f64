//! CPUs that go and come while a recording runs.

use std::time::Duration;

use vm_tests::{Cmd, Kernel, Vm, on_kernels, soak_on_kernels};

on_kernels! {
    k6_12_cloud: [cpus_go_and_come_while_recording],
}
soak_on_kernels! {
    k6_1_cloud: [cpus_go_and_come_while_recording],
}

/// Takes CPU 2 away, lets the others work, and brings it back, with work pinned to it before and after.
const AWAY_AND_BACK: &str = "\
cpu2=/sys/devices/system/cpu/cpu2/online
work() { taskset -c $1 sh -c 'for i in 1 2 3 4 5 6 7 8; do cat /proc/loadavg > /dev/null; sleep 0.02; done'; }
work 2
echo 0 > $cpu2
work 1
echo 1 > $cpu2
work 2
";

/// Work on CPU 2, which comes online only now.
const COMES: &str = "\
echo 1 > /sys/devices/system/cpu/cpu2/online
taskset -c 2 sh -c 'for i in 1 2 3 4 5 6 7 8; do cat /proc/loadavg > /dev/null; sleep 0.02; done'
";

/// A record, from a line of `report --json`.
struct Record<'a> {
    cpu: u64,
    time: u64,
    flags: u64,
    event: &'a str,
    text: &'a str,
}

fn records(json: &str) -> Vec<Record<'_>> {
    let record = |text| {
        let number = |name| value_of(text, name)?.parse().ok();
        Some(Record {
            cpu: number("cpu")?,
            time: number("timestamp")?,
            flags: number("flags")?,
            event: value_of(text, "event")?.trim_matches('"'),
            text,
        })
    };
    json.lines().map(|line| record(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// What stands behind `"name":` first.
fn value_of<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next().map(str::trim)
}

/// How many events stock trace-cmd shows; its first line is about the file.
fn events_of_stock(report: &str) -> usize {
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    report.lines().count() - 1
}

fn cpus_go_and_come_while_recording(kernel: &Kernel) {
    let limit = Duration::from_mins(4);
    // `sched:*` and `irq:*` have programs of their own, `cpuhp:*` and `rcu:*` go through the generic one.
    let events = "-e 'sched:*' -e 'irq:*' -e 'cpuhp:*' -e 'kmem:mm_page_alloc'";
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .size(3, 1024)
        .bytes("/test/away", AWAY_AND_BACK)
        .bytes("/test/comes", COMES)
        .timeout(Duration::from_mins(12))
        .run(&[
            Cmd::sh(&format!("tracer-agent record {events} -o /tmp/away.dat sh /test/away")).timeout(limit),
            Cmd::sh("trace-cmd report /tmp/away.dat").timeout(limit),
            Cmd::sh("tracer-agent report --ts-check --json /tmp/away.dat").timeout(limit),
            Cmd::sh("tracer-agent info --json /tmp/away.dat").timeout(limit),
            Cmd::sh(&format!(
                "echo 0 > /sys/devices/system/cpu/cpu2/online; \
                 tracer-agent record {events} -M 4 -o /tmp/comes.dat sh /test/comes"
            ))
            .timeout(limit),
            Cmd::sh("trace-cmd report /tmp/comes.dat").timeout(limit),
            Cmd::sh("tracer-agent report --ts-check --json /tmp/comes.dat").timeout(limit),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    for outcome in &run.outcomes {
        outcome.expect_success();
    }
    let [_, stock, away, info, masked, masked_stock, comes] = run.outcomes.as_slice() else {
        panic!("{:?}", run.outcomes)
    };
    for checked in [away, comes] {
        assert_eq!(checked.stderr_text(), "", "time stamps went back");
    }

    let json = away.stdout_text();
    let all = records(&json);
    assert_eq!(events_of_stock(&stock.stdout_text()), all.len());
    // The kernel's own account of when the CPU went and came.
    let steps = all.iter().filter(|it| it.event == "cpuhp_exit" && it.text.contains("\"cpu\":2,\"state\""));
    let steps: Vec<u64> = steps.map(|step| step.time).collect();
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    for event in ["sched_switch", "softirq_entry", "mm_page_alloc"] {
        let mut times = all.iter().filter(|it| it.cpu == 2 && it.event == event).map(|it| it.time);
        assert!(times.any(|time| time < first), "no {event} before CPU 2 went at {first}");
        assert!(times.any(|time| time > last), "no {event} after CPU 2 came at {last}");
    }
    // What fired on it is in the file or counted.
    let info = info.stdout_text();
    assert_eq!(value_of(&info, "events").map(str::parse), Some(Ok(all.len())), "{info}");
    assert_eq!(value_of(&info, "missed_events"), Some("0"), "{info}");

    // The mask names a CPU that is offline: said, and recorded from the moment on when it comes.
    let said = masked.stderr_text();
    assert!(said.contains("CPU 2 is offline"), "{said}");
    let json = comes.stdout_text();
    let of_cpu_2 = records(&json);
    assert_eq!(events_of_stock(&masked_stock.stdout_text()), of_cpu_2.len());
    assert!(of_cpu_2.iter().all(|it| it.cpu == 2), "only CPU 2 was asked for");
    for event in ["sched_switch", "mm_page_alloc"] {
        assert!(of_cpu_2.iter().any(|it| it.event == event), "no {event} on CPU 2");
    }
    // In a soft interrupt the flags say so (0x10): the CPU's preempt count was found, although the CPU was
    // not there at the start.
    let softirqs: Vec<&Record<'_>> = of_cpu_2.iter().filter(|it| it.event == "softirq_entry").collect();
    assert!(!softirqs.is_empty(), "no softirq_entry on CPU 2");
    for softirq in softirqs {
        assert_ne!(softirq.flags & 0x10, 0, "{}", softirq.text);
    }
}
