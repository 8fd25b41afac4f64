//! `cargo xtask run`

use std::os::unix::process::CommandExt as _;

use super::setup::{Purpose, setup};
use super::{Task, build};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "run",
    args: "-- COMMAND ARGS...",
    about: "Builds tracer-agent with the features that COMMAND needs, and runs it as root\n\
            Such as: cargo xtask run -- record -e 'sched:*' -o trace.dat sleep 5",
    run,
};

fn run(args: &[String]) -> Result {
    build::announce();
    setup(Purpose::Run)?;
    let args = args.strip_prefix(&["--".to_owned()]).unwrap_or(args);
    build::build(&features(args), &[])?;
    let mut agent = process::as_root(workspace::agent())
        .ok_or("recording needs root, and there is no sudo to become it")?;
    agent.args(args);
    eprintln!("$ {}", process::line(&agent));
    // In the directory of the caller: `-o trace.dat` belongs there.
    Err(format!("{}: {}", process::line(&agent), agent.exec()).into())
}

/// How addresses in object stores begin.
const ADDRESSES: [&str; 7] = ["s3://", "s3a://", "gs://", "az://", "https://", "http://", "file://"];

/// The features of the package `tracer-agent` that a command line needs. Without them its error names them
/// (`agent/cli/src/features.rs`).
fn features(args: &[String]) -> Vec<&'static str> {
    // `help COMMAND` prints the help text of the command.
    let mut words = args.iter().map(String::as_str).skip_while(|word| *word == "help");
    let command = words.next().unwrap_or_default();
    // A recorded command follows `--`.
    let words: Vec<&str> = words.take_while(|word| *word != "--").collect();
    let has = |option: &str| {
        let value = |word: &str| word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='));
        words.iter().any(|word| *word == option || value(word))
    };
    let needs = [
        ("full", matches!(command, "completions" | "generate")),
        ("daemon", matches!(command, "daemon" | "ctl" | "health")),
        ("daemon", command == "top" && (has("--session") || has("--sessions"))),
        ("top", command == "top"),
        ("store", matches!(command, "put" | "get" | "ls")),
        (
            "store",
            matches!(command, "report" | "info" | "export") && words.iter().any(|word| is_address(word)),
        ),
        ("tables", command == "export" && words.iter().any(|word| is_columnar(word))),
        ("debug-programs", matches!(command, "record" | "stream" | "top") && has("--debug-programs")),
    ];
    needs.into_iter().filter(|(_, needed)| *needed).map(|(feature, _)| feature).collect()
}

fn is_address(word: &str) -> bool {
    ADDRESSES.iter().any(|start| word.starts_with(start))
}

/// Whether a word is an export format of tables in columns, or the option with one.
fn is_columnar(word: &str) -> bool {
    matches!(word.strip_prefix("--format=").unwrap_or(word), "parquet" | "sqlite" | "arrow")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<&'static str> {
        features(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_gets_the_features_that_it_needs() {
        for (line, expected) in [
            ("daemon --config agent.toml", &["daemon"][..]),
            ("ctl create mine", &["daemon"]),
            ("health --live", &["daemon"]),
            ("help daemon", &["daemon"]),
            ("top -e sched", &["top"]),
            ("top --session web", &["daemon", "top"]),
            ("top --session=web", &["daemon", "top"]),
            ("top --sessions --batch", &["daemon", "top"]),
            ("put trace.dat s3://traces/lab", &["store"]),
            ("get s3://traces/lab/x.dat", &["store"]),
            ("ls --json s3://traces", &["store"]),
            ("report s3://traces/lab/x.dat", &["store"]),
            ("info --json gs://traces/x.dat", &["store"]),
            ("export --format parquet trace.dat OUT", &["tables"]),
            ("export --format=sqlite trace.dat OUT", &["tables"]),
            ("export --format arrow --table x trace.dat -", &["tables"]),
            ("export --format parquet --partition trace.dat s3://fleet", &["store", "tables"]),
            ("record --debug-programs -e sched", &["debug-programs"]),
            ("completions bash", &["full"]),
            ("generate man DIR", &["full"]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn other_commands_get_the_default_features() {
        for line in [
            "",
            "--help",
            "record -e sched -o trace.dat sleep 5",
            "record -e sched -- agent --debug-programs daemon s3://x",
            "record -e sched curl https://example.org",
            "report trace.dat",
            "export --format csv trace.dat OUT",
            "list --fields",
        ] {
            assert!(of(line).is_empty(), "{line}: {:?}", of(line));
        }
    }
}
