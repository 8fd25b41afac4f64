//! Options of trace-cmd that are not here, and what does the same.

/// A command, its options, and what to use instead.
type Substitute = (&'static str, &'static [&'static str], &'static str);

const SUBSTITUTES: [Substitute; 18] = [
    (
        "record",
        &["-p"],
        "--function GLOB records calls as the function tracer does, --function-graph GLOB as the graph tracer",
    ),
    ("record", &["-l", "--module"], "--function GLOB names the functions"),
    ("record", &["-g"], "--function-graph GLOB names the functions, --graph-filter those below them"),
    ("record", &["-n"], "name the functions that are wanted with --function GLOB"),
    ("record", &["-R"], "-f FILTER chooses records, --kernel-stack=EVENT records stacks"),
    ("record", &["-O"], "-T and --user-stack record stacks, --context further fields"),
    ("record", &["-r"], "not needed: the threads that read the rings have nice -20 where permitted"),
    ("record", &["-d", "-D", "-k", "--poll"], "not needed: no ftrace setting is touched"),
    (
        "record",
        &["-S", "-G", "-H", "--profile", "--by-comm"],
        "record sched, irq and syscalls, and analyse the file with `tracer-agent hist`",
    ),
    (
        "record",
        &["-A", "--proxy", "--name"],
        "record on each machine, with -N into files on one of them, and merge the files with `tracer-agent merge`",
    ),
    ("record", &["--func-stack"], "--function GLOB with -T records stacks"),
    ("record", &["--cmdlines-size"], "not needed: the names of all threads are recorded"),
    ("record", &["--temp"], "temporary data is in the directory of -o: choose another one there"),
    ("record", &["--file-version"], "`tracer-agent convert --file-version 6` makes a file of version 6"),
    ("record", &["--user"], "run the command with `sudo -u USER` or `setpriv`"),
    ("report", &["-r"], "-R prints the fields of all events"),
    ("report", &["-n", "-L", "-O", "-V", "--verbose"], "-N prints without plugins, which are built in"),
    (
        "report",
        &["--profile", "-G", "-H", "--by-comm", "--ts2secs", "-T"],
        "`tracer-agent hist` counts and measures",
    ),
];

/// The name of an option, as it was written.
pub(super) fn name(option: &str) -> Option<&str> {
    match option.strip_prefix("--") {
        Some(_) => option.split('=').next(),
        // Its value may follow without a blank.
        None => option.get(..2),
    }
}

/// What to use instead of an option, as it was written.
pub(super) fn of(command: &str, option: &str) -> Option<&'static str> {
    let name = name(option)?;
    let found = SUBSTITUTES.iter().find(|(of, options, _)| *of == command && options.contains(&name));
    found.map(|(.., instead)| *instead)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn options_are_known_however_they_are_written() {
        for written in ["-p", "-pfunction"] {
            assert!(of("record", written).unwrap().contains("--function GLOB"), "{written}");
        }
        assert!(of("record", "--user=me").is_some());
        assert_eq!((of("record", "--nonsense"), of("split", "-p"), of("record", "-")), (None, None, None));
    }

    #[test]
    fn what_is_here_has_no_substitute() {
        let cli = super::super::Cli::command();
        for (command, options, _) in SUBSTITUTES {
            let command = cli.find_subcommand(command).unwrap();
            for option in options {
                let is_it = |arg: &clap::Arg| {
                    arg.get_long().is_some_and(|long| format!("--{long}") == *option)
                        || arg.get_short().is_some_and(|short| format!("-{short}") == *option)
                };
                assert!(!command.get_arguments().any(is_it), "{option}");
            }
        }
    }

    /// More options than fit the eye are under headings.
    #[test]
    fn long_lists_of_options_have_headings() {
        for name in ["record", "convert", "split", "merge", "list", "check", "diff", "export", "info"] {
            let cli = super::super::Cli::command();
            let mut by_heading = std::collections::BTreeMap::<_, usize>::new();
            for arg in cli.find_subcommand(name).unwrap().get_arguments().filter(|arg| !arg.is_positional()) {
                *by_heading.entry(arg.get_help_heading().map(str::to_owned)).or_default() += 1;
            }
            let plain = by_heading.get(&None).copied().unwrap_or_default();
            assert!(plain <= 10, "{name}: {by_heading:?}");
        }
        let record = super::super::Cli::command();
        let record = record.find_subcommand("record").unwrap();
        let heading = |id: &str| {
            record.get_arguments().find(|arg| arg.get_id() == id).and_then(clap::Arg::get_help_heading)
        };
        for (id, expected) in [
            ("events", Some("Events")),
            ("uprobe", Some("Probes")),
            ("kernel_stack", Some("Stacks")),
            ("comms", Some("Tasks and CPUs")),
            ("pids", Some("Tasks and CPUs")),
            ("ring_kb", Some("Buffers")),
            ("output", Some("Output file")),
            ("duration", Some("Begin and end of the recording")),
            ("quiet", None),
        ] {
            assert_eq!(heading(id), expected, "{id}");
        }
    }

    /// Scripts are read by others.
    #[test]
    fn every_short_option_has_a_long_name() {
        for command in super::super::Cli::command().get_subcommands() {
            let short = command.get_arguments().filter(|arg| arg.get_long().is_none());
            // `--kernel-stack` is the long name of -T.
            let lonely: Vec<_> =
                short.filter_map(clap::Arg::get_short).filter(|short| *short != 'T').collect();
            assert!(lonely.is_empty(), "{}: {lonely:?}", command.get_name());
        }
    }
}
