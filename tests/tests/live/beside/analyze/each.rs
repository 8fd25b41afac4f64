//! What each of the analyses says it does not know, of made-up recordings that have events for all of them.

use std::path::Path;

use integration_tests::answers::{answer, list, number, text, threads_with};
use integration_tests::harness::{self, run};
use integration_tests::made_up::{Is, MadeUp};
use serde_json::Value;

use crate::analyze::each_analysis;

const ANALYSES: [(&str, &[&str]); 10] =
    each_analysis(&["--event", "sched_waking"], &["--event", "sched", "--weight", "time"]);

const SYSTEMS: [&str; 9] =
    ["sched", "task", "irq", "raw_syscalls", "block", "kmem", "lock", "ftrace", "timer"];

const MS: u64 = 1_000_000;

/// Addresses of functions that nobody knows.
const STACK: [(&str, Is<'static>); 2] =
    [("size", Is::Number(8)), ("caller", Is::Numbers(&[0xffff_ffff_8100_0000; 8]))];

/// A thread begins something of each kind.
fn begins(made: &mut MadeUp, time: u64, (tid, name): (u32, &[u8])) {
    let mut at = |time: u64, event: &str, fields: &[(&str, Is<'_>)]| made.at((time, 0), tid, event, fields);
    at(time, "sched_waking", &[("pid", Is::Number(9))]);
    at(time, "kernel_stack", &STACK);
    let request = [
        ("dev", Is::Number(8 << 20)),
        ("sector", Is::Number(64)),
        ("nr_sector", Is::Number(8)),
        ("bytes", Is::Number(4096)),
        ("rwbs", Is::Text(b"R")),
    ];
    at(time + 1, "block_rq_issue", &request);
    let lock = [("lock_addr", Is::Number(0x5000)), ("flags", Is::Number(32))];
    at(time + 2, "contention_begin", &lock);
    let pages = [("pfn", Is::Number(77)), ("order", Is::Number(1))];
    at(time + 3, "mm_page_alloc", &pages);
    let object =
        [("ptr", Is::Number(0x7000)), ("bytes_req", Is::Number(60)), ("bytes_alloc", Is::Number(64))];
    at(time + 4, "kmalloc", &object);
    let cached =
        [("ptr", Is::Number(0xa000)), ("bytes_req", Is::Number(60)), ("bytes_alloc", Is::Number(64))];
    at(time + 4, "kmem_cache_alloc", &cached);
    // One that nobody frees.
    let kept = [("ptr", Is::Number(0x9000)), ("bytes_req", Is::Number(60)), ("bytes_alloc", Is::Number(64))];
    at(time + 4, "kmalloc", &kept);
    at(time + 5, "irq_handler_entry", &[("irq", Is::Number(9))]);
    at(time + 6, "sys_enter", &[("id", Is::Number(0)), ("args", Is::Numbers(&[5]))]);
    made.switch_names((time + 7, 0), (tid, 1, name), (0, b"swapper/0"));
    made.at((time + 7, 0), tid, "kernel_stack", &STACK);
}

/// It ends all of that, 1 ms later.
fn ends(made: &mut MadeUp, time: u64, (tid, name): (u32, &[u8])) {
    let time = time + MS;
    made.switch_names((time, 0), (0, 0, b"swapper/0"), (tid, name));
    made.at((time, 0), 0, "kernel_stack", &STACK);
    let mut at = |time: u64, event: &str, fields: &[(&str, Is<'_>)]| made.at((time, 0), tid, event, fields);
    at(time + 1, "sys_exit", &[("id", Is::Number(0)), ("ret", Is::Number(100))]);
    at(time + 2, "irq_handler_exit", &[("irq", Is::Number(9))]);
    at(time + 3, "kfree", &[("ptr", Is::Number(0x7000))]);
    at(time + 3, "kmem_cache_free", &[("ptr", Is::Number(0xa000))]);
    at(time + 4, "mm_page_free", &[("pfn", Is::Number(77)), ("order", Is::Number(1))]);
    at(time + 5, "contention_end", &[("lock_addr", Is::Number(0x5000))]);
    let request = [
        ("dev", Is::Number(8 << 20)),
        ("sector", Is::Number(64)),
        ("nr_sector", Is::Number(8)),
        ("rwbs", Is::Text(b"R")),
    ];
    at(time + 6, "block_rq_complete", &request);
    at(time + 7, "sched_waking", &[("pid", Is::Number(9))]);
    at(time + 7, "kernel_stack", &STACK);
}

/// Another thread, which tells that nothing was lost on a CPU that is not the first.
fn is_there(made: &mut MadeUp, time: u64) {
    made.switch_names((time, 1), (0, 0, b"swapper/1"), (9, b"nine"));
    made.at((time, 1), 0, "kernel_stack", &STACK);
}

const SEVEN: (u32, &[u8]) = (7, b"seven");

fn write(dir: &Path, name: &str, make: impl FnOnce(&mut MadeUp)) -> std::path::PathBuf {
    let path = dir.join(name);
    let mut made = MadeUp::new(&SYSTEMS);
    make(&mut made);
    made.write(&path);
    path
}

fn tables(analysis: &str, args: &[&str], file: &Path) -> String {
    let args = [&["analyze", analysis, file.to_str().unwrap()], args].concat();
    run(&mut harness::agent("/".as_ref(), args)).expect(0).out
}

/// A member somewhere in an answer; names of lists stand for the element of the thread, or the first one.
/// 0 where there is none.
fn member<'v>(value: &'v Value, path: &str) -> u64 {
    let found = path.split('.').fold(value, |value, name| {
        let member = &value[name];
        let its = |list: &'v [Value]| list.iter().find(|of| of["tid"] == SEVEN.0).or(list.first());
        member.as_array().map_or(member, |list| its(list).unwrap_or(&Value::Null))
    });
    assert!(found.is_u64() || found.is_null(), "{path} in {value}");
    found.as_u64().unwrap_or(0)
}

#[test]
fn what_lasts_over_a_loss_is_unknown_to_each() {
    let dir = tempfile::tempdir().unwrap();
    let whole = write(dir.path(), "whole.dat", |made| {
        is_there(made, MS / 2);
        begins(made, MS, SEVEN);
        ends(made, MS, SEVEN);
    });
    let lossy = write(dir.path(), "lossy.dat", |made| {
        is_there(made, MS / 2);
        begins(made, MS, SEVEN);
        made.lost(0, 5);
        ends(made, MS, SEVEN);
    });
    for ((analysis, args), (known, unknown)) in ANALYSES.into_iter().zip([
        ("threads.sleep_ns", "threads.unknown_ns"),
        ("threads.times.count", "threads.unknown_ns"),
        // What a CPU did between two samples is not asked.
        ("samples", ""),
        ("all.count", "without_weight"),
        ("calls.times.count", "calls.unmatched"),
        ("devices.operations.times.count", "devices.unmatched"),
        ("irqs.times.count", "irqs.unmatched"),
        ("kernel.locks.times.count", "kernel.unmatched"),
        ("kernel.sum.kept", "kernel.sum.unknown"),
        ("busiest.sleep_ns", "busiest.unknown_ns"),
    ]) {
        let all = answer(analysis, &whole, args);
        assert_eq!(number(&all, "covered.losses"), 0, "{all}");
        let text = tables(analysis, args, &whole);
        assert!(!text.contains("lost"), "{analysis}: {text}");
        let told = answer(analysis, &lossy, args);
        let losses = ["lost_events", "losses", "losses_uncounted"].map(|of| number(&told["covered"], of));
        assert_eq!(losses, [5, 1, 0], "{told}");
        if unknown.is_empty() {
            assert_eq!(member(&told, known), member(&all, known), "{analysis}: {told}");
        } else {
            assert!(member(&told, known) < member(&all, known), "{analysis}: {known} in {told}, {all}");
            assert!(member(&told, unknown) > member(&all, unknown), "{analysis}: {unknown} in {told}, {all}");
        }
        let text = tables(analysis, args, &lossy);
        let line =
            "5 events were lost once; what lasted over such a loss is unknown, and not in the counts\n";
        assert!(text.contains(line), "{analysis}: {text}");
    }
}

#[test]
fn what_two_buffers_have_counts_once_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "two.dat", |made| {
        for buffer in ["", "other"] {
            if !buffer.is_empty() {
                made.buffer(buffer);
            }
            is_there(made, MS / 2);
            begins(made, MS, SEVEN);
            ends(made, MS, SEVEN);
        }
    });
    for (analysis, args) in ANALYSES {
        let mut told = answer(analysis, &file, args);
        let events = number(&told, "covered.events");
        assert!(number(&told, "covered.of_other_buffers") > 0, "{analysis}: {told}");
        for name in ["", "other"] {
            let mut one = answer(analysis, &file, &[args, &["-B", name]].concat());
            assert_eq!(number(&one, "covered.of_other_buffers"), 0, "{analysis}: {one}");
            assert_eq!(number(&one, "covered.events"), events, "{analysis}: {one}");
            // The summary counts records as well.
            for answer in [&mut one, &mut told] {
                let members = answer.as_object_mut().unwrap();
                members.retain(|name, _| !["covered", "events", "other_events"].contains(&name.as_str()));
            }
            assert_eq!(one, told, "{analysis} of -B {name:?}");
        }
        let text = tables(analysis, args, &file);
        assert!(text.contains(" records are in another buffer as well, and not counted twice"), "{text}");
    }
}

#[test]
fn an_id_that_is_used_again_is_another_thread_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "again.dat", |made| {
        for (round, name) in [(0, &b"first"[..]), (1, b"second")] {
            let time = MS + round * 10 * MS;
            let child = [("child_pid", Is::Number(7))];
            made.at((time, 0), 1, "sched_process_fork", &child);
            made.at((time, 0), 1, "task_rename", &[("pid", Is::Number(7)), ("newcomm", Is::Text(name))]);
            made.switch_names((time + 1, 0), (1, 0, b"shell"), (7, name));
            begins(made, time + 2, (7, name));
            ends(made, time + 2, (7, name));
            made.switch_names((time + 2 * MS, 0), (7, 0x10, name), (1, b"shell"));
            made.at((time + 3 * MS, 0), 1, "sched_process_free", &[("pid", Is::Number(7))]);
        }
    });
    // Interrupts are nobody's.
    for (analysis, args) in ANALYSES.into_iter().filter(|(name, _)| *name != "irq") {
        let told = answer(analysis, &file, args);
        let mut names: Vec<&str> = if analysis == "summary" {
            let busiest = list(&told, "busiest").iter().filter(|thread| thread["tid"] == 7);
            busiest.map(|thread| text(thread, "comm")).collect()
        } else {
            threads_with(&told, 7).iter().map(|thread| text(thread, "comm")).collect()
        };
        names.sort_unstable();
        assert_eq!(names, ["first", "second"], "{analysis}: {told}");
    }
}

#[test]
fn each_says_which_events_it_has_not() {
    let dir = tempfile::tempdir().unwrap();
    // One with nothing but an event that says nothing to any of them.
    let file = dir.path().join("none.dat");
    let mut made = MadeUp::new(&["signal"]);
    made.at((MS, 0), 7, "signal_generate", &[]);
    made.write(&file);
    let path = file.to_str().unwrap();
    for (analysis, args) in ANALYSES.into_iter().filter(|(name, args)| *name != "stacks" && args.is_empty()) {
        let events = run(&mut harness::agent("/".as_ref(), ["analyze", analysis, "--events"])).expect(0).out;
        let needs: Vec<&str> = events.lines().skip(1).take_while(|line| line.starts_with("  ")).collect();
        assert!(needs.len() > 2, "{events}");
        let record = format!("tracer-agent record --for {analysis}\n");
        assert!(events.ends_with(&format!("Record with: {record}")), "{events}");
        let ended = run(&mut harness::agent("/".as_ref(), [&["analyze", analysis, path][..], args].concat()));
        if ended.code() == 0 {
            let told = answer(analysis, &file, args);
            let missing = list(&told["covered"], "missing");
            // Calls of each kind that uses files are not told beside all of them.
            let parts = if analysis == "io" { 8 } else { 0 };
            assert_eq!(missing.len(), needs.len() - parts, "{analysis}: {told}");
            let mut lines = needs.into_iter();
            for need in missing {
                let is_its = |line: &str| line.trim_start().starts_with(text(need, "tells"));
                assert!(lines.any(is_its), "{need}");
                let line = format!("\nunknown: {}; the recording has no ", text(need, "tells"));
                assert!(ended.out.contains(&line), "{analysis}: {line}: {}", ended.out);
            }
            assert!(ended.out.contains(&format!("\nall of it is recorded by: {record}")), "{}", ended.out);
        } else {
            let ended = ended.expect(1);
            assert!(needs.iter().any(|line| line.contains("  yes  ")), "{events}");
            ended.says(&[&format!("which {analysis} needs to tell "), &format!("; record with: {record}")]);
        }
    }
    let mut stacks = harness::agent("/".as_ref(), ["analyze", "stacks", "--events"]);
    assert_eq!(
        run(&mut stacks).expect(0).out.trim(),
        "Record with: tracer-agent record -e EVENT -T --user-stack"
    );
}
