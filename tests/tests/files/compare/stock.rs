//! The lines of `report` are those of stock trace-cmd, of all recordings and with each way to print them, but
//! for the differences that docs/report.md lists.

use std::collections::BTreeSet;

use integration_tests::harness::{agent, program};

use super::exports::recording;
use super::recordings::RECORDINGS;

/// The events of which some line differs, by the options: `docs/report.md` says why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("-N", "integers"),
    ("-N", "mm_page_alloc"),
    ("-N", "mm_page_free"),
    ("-N", "named"),
    ("-R", "arrays"),
    ("-R", "bprint"),
    ("-R", "integers"),
    ("-R", "plain"),
    ("-t", "integers"),
    ("-t", "mm_page_alloc"),
    ("-t", "mm_page_free"),
    ("-t", "named"),
];

/// The event of a line.
fn event(line: &str) -> String {
    let (_, rest) = line.split_once("] ").unwrap_or(("", line));
    let rest = rest.split_once(": ").map_or(rest, |(_, rest)| rest);
    rest.trim_start().split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn lines_are_those_of_trace_cmd() {
    let dir = tempfile::tempdir().unwrap();
    let (mut found, mut compared, mut shown) = (BTreeSet::new(), 0, Vec::new());
    for (name, _) in RECORDINGS {
        let file = recording(dir.path(), name);
        for (mode, own) in [("-t", Some("--old-states")), ("-R", None), ("-N", None)] {
            let mut stock = program("/".as_ref(), "trace-cmd", ["report", "-t", mode, "-i"]);
            let mut ours = agent("/".as_ref(), ["report"]);
            ours.args(own).args((mode != "-t").then_some("-t")).arg(mode);
            let [stock, ours] = [stock.arg(&file), ours.arg(&file)].map(|command| {
                let text = command.output().unwrap().stdout;
                let lines =
                    text.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
                lines.filter(|line| !line.starts_with("CPU:")).collect::<Vec<_>>()
            });
            assert!(stock.len() == ours.len() || name == "names", "{name} {mode}");
            for (ours, stock) in ours.iter().zip(&stock) {
                compared += 1;
                if ours != stock {
                    found.insert((mode, event(ours)));
                    shown.push(format!("{name} {mode}:\n {ours}\n {stock}"));
                }
            }
        }
    }
    assert!(compared > 1000);
    let listed = DIFFERENCES.iter().map(|(mode, event)| (*mode, (*event).to_owned())).collect();
    assert_eq!(found, listed, "{}", shown.join("\n"));
}
