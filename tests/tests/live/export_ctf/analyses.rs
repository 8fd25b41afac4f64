//! LTTng's analyses of an export.

use super::*;

/// A number of an analysis.
fn told_int(json: &serde_json::Value) -> i128 {
    json.as_i64().unwrap_or_else(|| panic!("{json}")).into()
}

#[test]
fn lttng_analyses_agree_with_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; for f in 1 2 3; do ls / >/dev/null; done; sleep 0.1";
    let events =
        ["-e", "sched", "-e", "task", "-e", "irq", "-e", "raw_syscalls", "--self", "sh", "-c", script];
    record(&events, &file);
    let out = dir.path().join("out");
    export(&file, "lttng", &out).expect(0);
    let (records, lost) = kernel_records(&file);
    assert_eq!(lost, 0);
    let all = || records.values().flatten();
    let (first, last) = (all().map(|r| r.time).min().unwrap(), all().map(|r| r.time).max().unwrap());

    // CPU time of each task: from switch to switch, from the start for those that ran then, and until the end
    // for those that run then.
    let mut merged: Vec<&Kernel> = all().collect();
    merged.sort_by_key(|record| record.time);
    let mut cpu_time: BTreeMap<i128, (u64, Option<u64>)> = BTreeMap::new();
    for record in merged.iter().filter(|record| record.name == "sched_switch") {
        let times = cpu_time.entry(int(record, "prev_pid")).or_insert((0, Some(first)));
        times.0 += times.1.take().map_or(0, |since| record.time - since);
        if int(record, "next_pid") != 0 {
            cpu_time.entry(int(record, "next_pid")).or_insert((0, None)).1 = Some(record.time);
        }
    }
    let usage = &tables(&out, "lttng-cputop-mi", &[])[0];
    let mut compared = 0;
    for row in rows(usage) {
        let (tid, ratio) = (told_int(&row[0]["tid"]), row[3]["value"].as_f64().unwrap());
        let (time, since) = cpu_time.get(&tid).copied().unwrap_or_default();
        let time = time + since.map_or(0, |since| last - since);
        let expected = time as f64 / (last - first) as f64;
        assert!(
            (ratio - expected).abs() <= expected * 0.01 + 1e-4,
            "thread {tid}: {ratio}, not {expected}; it ran {time} ns of {first} .. {last}, at the end since {since:?}; {usage}"
        );
        compared += usize::from(time > 0);
    }
    assert!(compared >= 2, "{usage}");

    // System calls of the threads that were born meanwhile: their CPU is known from their first moment on.
    let born: Vec<i128> =
        all().filter(|r| r.name == "sched_process_fork").map(|r| int(r, "child_pid")).collect();
    // Analyses know who runs by the last switch on the CPU; other tracing programs can make the kernel skip
    // some.
    let mut by_time: Vec<(u32, &Kernel)> =
        records.iter().flat_map(|((_, cpu), records)| records.iter().map(|record| (*cpu, record))).collect();
    by_time.sort_by_key(|(_, record)| record.time);
    let mut running: BTreeMap<u32, i128> = BTreeMap::new();
    let mut entered: std::collections::BTreeSet<i128> = std::collections::BTreeSet::new();
    let mut calls: BTreeMap<i128, u64> = BTreeMap::new();
    for (cpu, record) in by_time {
        match record.name.as_str() {
            "sched_switch" => drop(running.insert(cpu, int(record, "next_pid"))),
            "sys_enter" => entered.extend(running.get(&cpu)),
            "sys_exit" => {
                if let Some(tid) = running.get(&cpu).filter(|tid| entered.remove(*tid)) {
                    *calls.entry(*tid).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let statistics = tables(&out, "lttng-syscallstats-mi", &[]);
    let mut compared = 0;
    for table in &statistics {
        let title = table["class"]["title"].as_str().unwrap_or_default();
        let Some((_, tid)) = title.split_once("TID: ") else { continue };
        let tid: i128 = tid.split(')').next().unwrap().parse().unwrap();
        if born.contains(&tid) {
            let count: u64 = rows(table).iter().map(|row| row[1]["value"].as_u64().unwrap()).sum();
            assert_eq!(calls.get(&tid), Some(&count), "system calls of thread {tid}");
            compared += 1;
        }
    }
    assert!(compared >= 3, "{statistics:?} {born:?}");

    // Interrupts: pairs of entry and exit on one CPU.
    let mut interrupts: BTreeMap<i128, u64> = BTreeMap::new();
    for records in records.values() {
        let mut entered = None;
        for record in records {
            match record.name.as_str() {
                "irq_handler_entry" => entered = Some(int(record, "irq")),
                "irq_handler_exit" if entered.take() == Some(int(record, "irq")) => {
                    *interrupts.entry(int(record, "irq")).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    let mut counted: BTreeMap<i128, u64> = BTreeMap::new();
    for row in tables(&out, "lttng-irqstats-mi", &[]).iter().flat_map(rows) {
        let count = row[1]["value"].as_u64().unwrap_or(0);
        if row[0]["hard"] == true && count > 0 {
            counted.insert(told_int(&row[0]["nr"]), count);
        }
    }
    assert_eq!(counted, interrupts);

    // The longest times between waking and running: from the first time that a thread was woken while it ran
    // nowhere.
    let mut running: BTreeMap<u32, i128> = BTreeMap::new();
    let mut woken: BTreeMap<i128, u64> = BTreeMap::new();
    let mut waits: Vec<(u64, i128)> = Vec::new();
    let mut by_time: Vec<(u32, &Kernel)> =
        records.iter().flat_map(|((_, cpu), records)| records.iter().map(|record| (*cpu, record))).collect();
    by_time.sort_by_key(|(_, record)| record.time);
    for (cpu, record) in by_time {
        match record.name.as_str() {
            "sched_switch" => {
                let next = int(record, "next_pid");
                running.insert(cpu, next);
                waits.extend(woken.remove(&next).map(|since| (record.time - since, next)));
            }
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let thread = int(record, "pid");
                if running.values().all(|other| *other != thread) {
                    woken.entry(thread).or_insert(record.time);
                }
            }
            _ => {}
        }
    }
    waits.sort_by(|one, other| other.cmp(one));
    let longest = &tables(&out, "lttng-schedtop-mi", &[])[0];
    let expected: Vec<u64> = waits.iter().take(rows(longest).len()).map(|(wait, _)| *wait).collect();
    let mut found: Vec<(u64, i128)> = rows(longest)
        .iter()
        .map(|row| (row[2]["value"].as_u64().unwrap(), told_int(&row[5]["tid"])))
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    assert!(found.len() == 10 && found.iter().all(|row| waits.contains(row)), "{found:?}\n{waits:?}");
    assert_eq!(found.iter().map(|(wait, _)| *wait).collect::<Vec<_>>(), expected);
}
