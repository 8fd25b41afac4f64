//! `tracer-agent generate`: man pages and parts of documents, made of the definitions in the program.
//!
//! Distributors and `cargo xtask` call it. The help text of the program does not list it, and neither
//! [`Cli::command`](super::Cli) nor the man pages have it.

#[cfg(feature = "daemon")]
mod configuration;
#[cfg(feature = "daemon")]
mod metrics;
mod page;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args as _, Command, CommandFactory as _};

use super::exit::ExitCode;
#[cfg(not(feature = "daemon"))]
use super::features::Feature;
use super::{Cli, CliError, PROGRAM, write_all};

/// The name of the command.
pub(super) const NAME: &str = "generate";

/// Generate man pages and parts of documents
///
/// For distributors: the same program writes the same files, byte for byte. `tracer-agent completions` prints
/// the completions for shells, and `tracer-agent daemon --schema` the JSON Schema of the configuration.
#[derive(clap::Args, Debug)]
pub struct GenerateArgs {
    /// What to generate
    #[command(subcommand)]
    pub output: Output,
}

/// What to generate.
#[derive(clap::Subcommand, Debug)]
pub enum Output {
    /// Write the man pages: of the program, of each command, and of the daemon's configuration
    Man {
        /// The directory. It is created if need be, and files with the names of pages are replaced
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// A document about the session daemon.
    #[command(flatten)]
    Document(Document),
}

/// A document about the session daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum Document {
    /// Print the tables of the configuration's keys, the end of docs/configuration.md
    Config,
    /// Print the table of the metrics, the end of docs/metrics.md
    Metrics,
    /// Print the OpenAPI document of the daemon's requests
    Openapi,
}

/// The command, for the parser.
pub(super) fn parser() -> Command {
    GenerateArgs::augment_args(Command::new(NAME)).hide(true)
}

/// Runs the command.
pub(super) fn run(args: &GenerateArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    match &args.output {
        Output::Man { dir } => man(dir).map_err(|error| {
            CliError::Output(format!("cannot write man pages to {}: {error}", dir.display()))
        }),
        Output::Document(document) => write_all(out, &text(*document)?),
    }?;
    Ok(ExitCode::Ok.code())
}

/// The command line with the names and options of all commands filled in.
pub fn command_line() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes the man pages into a directory, which is created if need be: `tracer-agent.1`, a page for each
/// command, such as `tracer-agent-record.1`, and with the feature `daemon` `tracer-agent.toml.5`.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn man(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let command = command_line();
    fs::write(dir.join(format!("{PROGRAM}.1")), page::of_program(&command)?)?;
    for of in command.get_subcommands() {
        fs::write(dir.join(format!("{PROGRAM}-{}.1", of.get_name())), page::of_command(of)?)?;
    }
    #[cfg(feature = "daemon")]
    fs::write(dir.join(format!("{PROGRAM}.toml.5")), configuration::page())?;
    Ok(())
}

/// The text of a document.
///
/// # Errors
/// This build is without the session daemon.
#[cfg(feature = "daemon")]
pub fn text(document: Document) -> Result<String, CliError> {
    Ok(match document {
        Document::Config => configuration::tables(),
        Document::Metrics => metrics::table(),
        Document::Openapi => daemon::openapi().to_owned(),
    })
}

/// The text of a document.
///
/// # Errors
/// This build is without the session daemon.
#[cfg(not(feature = "daemon"))]
pub fn text(_document: Document) -> Result<String, CliError> {
    Err(CliError::Usage(Feature::Daemon.absence()))
}
