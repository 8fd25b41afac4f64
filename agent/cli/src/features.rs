//! Parts that a build can leave out, and the feature that has each: for the errors of commands, formats and
//! options that need one.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{CliError, substitutes};

/// A feature of the package `tracer-agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    Daemon,
    Store,
    Tables,
    Top,
}

use Feature::{Daemon, Store, Tables, Top};

/// The commands of each feature.
const COMMANDS: [(Feature, &[&str]); 3] =
    [(Daemon, &["daemon", "ctl", "health"]), (Store, &["put", "get", "ls"]), (Top, &["top"])];

/// The export formats of each feature.
const FORMATS: [(Feature, &[&str]); 1] = [(Tables, &["parquet", "sqlite", "arrow"])];

/// The options of each feature in commands of every build, or of another feature.
const OPTIONS: [(Feature, &[&str], &[&str]); 2] = [
    (
        Store,
        &["report", "info", "export"],
        &["--endpoint", "--region", "--allow-http", "--credentials-file", "--request-timeout"],
    ),
    (Daemon, &["top"], &["--session", "--sessions", "--socket", "--owner-uid"]),
];

/// How addresses in object stores begin, as the crate `store` has it, which such a build lacks.
const SCHEMES: [&str; 7] = ["s3://", "s3a://", "gs://", "az://", "https://", "http://", "file://"];

impl Feature {
    /// The feature of a command that this build may not have.
    pub(super) fn of_command(name: &str) -> Option<Self> {
        COMMANDS.iter().find(|(_, names)| names.contains(&name)).map(|(feature, _)| *feature)
    }

    /// The feature of an export format that this build may not have.
    pub(super) fn of_format(name: &str) -> Option<Self> {
        FORMATS.iter().find(|(_, names)| names.contains(&name)).map(|(feature, _)| *feature)
    }

    /// The feature of an option of a command, as it was written.
    fn of_option(command: &str, written: &str) -> Option<Self> {
        let name = substitutes::name(written)?;
        let has = |(_, commands, options): &&(Self, &[&str], &[&str])| {
            commands.contains(&command) && options.contains(&name)
        };
        OPTIONS.iter().find(has).map(|(feature, ..)| *feature)
    }

    /// The feature that a command line needs, if clap refuses it for that reason alone.
    pub(super) fn missing(error: &clap::Error, args: &[OsString]) -> Option<Self> {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        match error.kind() {
            ErrorKind::InvalidSubcommand => Self::of_command(text(ContextKind::InvalidSubcommand)?),
            ErrorKind::UnknownArgument => {
                Self::of_option(args.get(1)?.to_str()?, text(ContextKind::InvalidArg)?)
            }
            _ => None,
        }
    }

    /// Refuses addresses in object stores where this build cannot read them.
    ///
    /// # Errors
    /// One of the paths is such an address.
    pub(super) fn refuse_stores<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), CliError> {
        if cfg!(feature = "store") || !paths.into_iter().any(is_address) {
            return Ok(());
        }
        Err(CliError::Usage(Store.absence()))
    }

    /// The error of a build without it.
    pub(super) fn absence(self) -> String {
        let (part, name) = match self {
            Daemon => ("the session daemon", "daemon"),
            Store => ("object stores", "store"),
            Tables => ("Parquet, Arrow and SQLite", "tables"),
            Top => ("the command top", "top"),
        };
        format!("this tracer-agent was built without {part}; build it with `--features {name}`")
    }
}

/// Whether a path is an address in an object store.
pub(super) fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| SCHEMES.iter().any(|scheme| text.starts_with(scheme)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Arg, ArgAction, Command, CommandFactory as _};

    use super::super::Cli;
    use super::*;

    fn has(feature: Feature) -> bool {
        match feature {
            Daemon => cfg!(feature = "daemon"),
            Store => cfg!(feature = "store"),
            Tables => cfg!(feature = "tables"),
            Top => cfg!(feature = "top"),
        }
    }

    fn missing(command: Command, line: &str) -> Option<Feature> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Feature::missing(&command.try_get_matches_from(&args).unwrap_err(), &args)
    }

    /// A command line without any feature.
    fn bare() -> Command {
        let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
        let report = Command::new("report").arg(json.clone());
        Command::new("tracer-agent").subcommands([report, Command::new("top").arg(json)])
    }

    #[test]
    fn what_is_not_built_in_names_its_feature() {
        for (feature, names) in COMMANDS.into_iter().filter(|(feature, _)| *feature != Top) {
            for name in names {
                for rest in ["", " --help", " x --json"] {
                    let line = format!("tracer-agent {name}{rest}");
                    assert_eq!(missing(bare(), &line), Some(feature), "{line}");
                }
                assert_eq!(missing(bare(), &format!("tracer-agent help {name}")), Some(feature));
            }
        }
        assert_eq!(missing(bare(), "tracer-agent report --endpoint=http://x"), Some(Store));
        assert_eq!(missing(bare(), "tracer-agent top --sessions"), Some(Daemon));
        for line in ["tracer-agent reprot", "tracer-agent report --sessions", "tracer-agent report --josn"] {
            assert_eq!(missing(bare(), line), None, "{line}");
        }
        assert!(Daemon.absence().ends_with("without the session daemon; build it with `--features daemon`"));
    }

    #[test]
    fn this_build_has_the_commands_and_options_of_its_features_only() {
        let cli = Cli::command();
        for (feature, names) in COMMANDS {
            for name in names {
                assert_eq!(cli.find_subcommand(name).is_some(), has(feature), "{name}");
            }
        }
        for (feature, commands, options) in OPTIONS {
            for command in commands.iter().filter_map(|name| cli.find_subcommand(name)) {
                let found: BTreeSet<_> = command.get_arguments().filter_map(Arg::get_long).collect();
                let is_there = |option: &&str| found.contains(option.trim_start_matches('-'));
                assert_eq!(options.iter().all(is_there), has(feature), "{}", command.get_name());
                assert_eq!(options.iter().any(is_there), has(feature), "{}", command.get_name());
            }
        }
    }

    #[test]
    fn addresses_are_refused_where_nothing_reads_them() {
        let refused = |path: &str| Feature::refuse_stores([Path::new("trace.dat"), Path::new(path)]).is_err();
        assert_eq!(refused("s3://bucket/trace.dat"), !cfg!(feature = "store"));
        assert!(!refused("./s3:/trace.dat"));
        #[cfg(feature = "store")]
        assert!(SCHEMES.iter().all(|scheme| store::is_url(scheme)));
    }
}
