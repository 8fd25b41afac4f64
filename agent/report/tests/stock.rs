//! The lines of a report are those that stock trace-cmd has printed for the same files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

#[allow(unreachable_pub, reason = "a module of another crate's tests")]
#[path = "../../../tests/src/stock_lines.rs"]
mod stock_lines;
mod traces;

use std::collections::BTreeSet;

use ftrace_event::filter;
use report::{Report, Selection, Style, TraceFile};
use stock_lines::comparable;
use traces::{RECORDINGS, recording, text};

fn printed(files: &[TraceFile<Vec<u8>>; 1], style: Style) -> String {
    let report = Report::new(files).style(style);
    let mut out = report.header().into_bytes();
    let summary = report.run(&mut out, |_| {}).unwrap();
    assert_eq!(summary.damage.count, 0);
    assert_eq!(summary.not_understood, []);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn lines_are_those_of_trace_cmd() {
    let mut compared = 0;
    let mut different = BTreeSet::new();
    for name in RECORDINGS {
        let files = [TraceFile::open(name, recording(name)).unwrap()];
        for (kind, style) in [
            ("report", Style { old_states: true, ..Style::default() }),
            ("raw", Style { raw: true, full_time: true, ..Style::default() }),
            ("noplugin", Style { plain: true, full_time: true, ..Style::default() }),
        ] {
            let Some(expected) = text(name, kind) else {
                assert!(kind != "report", "{name} has no text");
                continue;
            };
            compared += 1;
            let ours = printed(&files, style);
            assert_eq!(ours.lines().count(), expected.lines().count(), "{name} {kind}");
            for (number, (ours, expected)) in ours.lines().zip(expected.lines()).enumerate() {
                assert_eq!(comparable(ours), comparable(expected), "{name} {kind}, line {}", number + 1);
                if ours != expected {
                    different.extend(stock_lines::of_line(ours).map(|(event, ..)| *event));
                }
            }
        }
    }
    assert_eq!(compared, 23);
    // Nothing is on the list for a difference that there is none of.
    let expected =
        ["ma_read", "ma_write", "mm_page_alloc", "mm_page_free", "mm_page_free_batched", "timer_start"];
    assert_eq!(different, expected.into());
}

/// trace-cmd 3.1 prints states by the format with `-N` only.
#[test]
fn task_states_are_those_of_the_recordings_format() {
    let mut seen = BTreeSet::new();
    for name in RECORDINGS {
        let Some(expected) = text(name, "noplugin") else { continue };
        let files = [TraceFile::open(name, recording(name)).unwrap()];
        let ours = printed(&files, Style { full_time: true, ..Style::default() });
        // Stacks have other lines without plugins.
        let switches = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.contains(" sched_switch: ")).map(str::to_owned).collect()
        };
        let (ours, expected) = (switches(&ours), switches(&expected));
        assert_eq!(ours.len(), expected.len());
        for (ours, expected) in ours.iter().zip(&expected) {
            let state = ours.split_once(" ==> ").unwrap().0.rsplit(' ').next().unwrap();
            let formatted = expected.split_once(" prev_state=").unwrap().1.split(' ').next().unwrap();
            assert_eq!(state, formatted, "{name}:\n{ours}\n{expected}");
            seen.insert(state.to_owned());
        }
    }
    // A zombie, an idle thread of the kernel and a task that was preempted: the old table has X, W and R for
    // them.
    assert!(["Z", "I", "R+"].iter().all(|state| seen.contains(*state)), "{seen:?}");
}

#[test]
fn parts_of_a_report_are_lines_of_the_whole() {
    let name = "k6.12-instances";
    let files = [TraceFile::open(name, recording(name)).unwrap()];
    let whole = String::from_utf8({
        let mut out = Vec::new();
        Report::new(&files).run(&mut out, |_| {}).unwrap();
        out
    })
    .unwrap();
    let print = |selection: Selection, threads| {
        let mut out = Vec::new();
        let report = Report::new(&files).select(selection).threads(threads);
        let summary = report.run(&mut out, |_| {}).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(summary.shown as usize, text.lines().count());
        text
    };
    for threads in [1, 2, 7] {
        assert_eq!(print(Selection::default(), threads), whole);
    }
    let lines: Vec<_> = whole.lines().collect();
    let chosen = |keep: &dyn Fn(&str) -> bool| {
        lines.iter().filter(|line| keep(line)).flat_map(|line| [line, "\n"]).collect::<String>()
    };
    let cpu = Selection { cpus: Some([1].into()), ..Selection::default() };
    assert_eq!(print(cpu, 2), chosen(&|line| line.contains("[001]")));
    let limit = Selection { limit: Some(77), ..Selection::default() };
    assert_eq!(print(limit, 2).lines().collect::<Vec<_>>(), lines[..77]);
    let time = |line: &str| {
        let (_, rest) = line.split_once("] ").unwrap();
        rest.split_once(": ").unwrap().0.trim().replace('.', "").parse::<u64>().unwrap()
    };
    let (since, until) = (21_900_000_000, 22_000_000_000);
    let span = Selection { since: Some(since), until: Some(until), ..Selection::default() };
    let between = chosen(&|line| (since..=until).contains(&(time(line) * 1000)));
    assert!(between.lines().count() > 100 && between.lines().count() < lines.len());
    assert_eq!(print(span, 2), between);
    let mut filters = filter::Selection::new(files[0].events());
    filters.add_text("sched_switch: prev_pid == 231", false, files[0].events()).unwrap();
    let filtered = Selection { filters: vec![filters], ..Selection::default() };
    let switches = chosen(&|line| {
        line.contains(" sched_switch: ") && line.contains(":231 [120] ") && !line.ends_with(":231 [120]")
    });
    assert!(switches.lines().count() > 3);
    assert_eq!(print(filtered, 2), switches);
    let pids = Selection { pids: Some([231].into()), ..Selection::default() };
    let of_task = print(pids, 2);
    assert!(of_task.lines().any(|line| line.contains("==> trace-cmd:231 ")));
    assert!(of_task.lines().all(|line| line.contains("231")), "{of_task}");
}

#[test]
fn json_has_the_fields() {
    let name = "k6.12-kprobes";
    let files = [TraceFile::open(name, recording(name)).unwrap()];
    let mut out = Vec::new();
    let summary = Report::new(&files).json(true).run(&mut out, |_| {}).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count() as u64, summary.records);
    let first = text.lines().next().unwrap();
    let expected = concat!(
        r#"{"timestamp":44126646670,"cpu":1,"pid":285,"comm":"w.sh","buffer":"","lost":0,"flags":0,"#,
        r#""preempt_count":0,"system":"kprobes","event":"opens","fields":{"__probe_ip":"0xffffffffa6242060","#,
        r#""dfd":-100,"path":"/tmp/w.sh","flags":557056},"symbols":{"__probe_ip":"do_sys_openat2"}}"#
    );
    assert_eq!(first, expected);
}
