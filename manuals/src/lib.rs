//! Man pages and completions for shells, from the description of the command line that the program itself
//! parses by.
//!
//! It is a crate of its own so that building tracer-agent does not wait for what only this needs.
//!
//! ```text
//! OUTDIR/man/tracer-agent.1, tracer-agent-record.1 ..., tracer-agent.toml.5
//!        completions/tracer-agent.bash, _tracer-agent (zsh), tracer-agent.fish
//!        reference/configuration.md, metrics.md, agent.schema.json: parts of the documents in docs
//! ```

mod configuration;
mod metrics;
mod page;

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::{Generator as _, Shell};
use cli::Cli;
use daemon::config::schema;

/// The program's name.
pub const PROGRAM: &str = "tracer-agent";

/// The command line, with the names and options of all commands filled in.
pub fn command() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes everything below a directory, which is made if need be. What was there under the same names is
/// replaced.
///
/// # Errors
/// A directory or file cannot be written.
pub fn write(dir: &Path) -> io::Result<()> {
    let [pages, completions, reference] = ["man", "completions", "reference"].map(|name| dir.join(name));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&reference)?;
    fs::create_dir_all(&completions)?;
    let command = command();
    let commands: Vec<&Command> = command.get_subcommands().collect();
    fs::write(pages.join(format!("{PROGRAM}.1")), page::of_program(&command)?)?;
    for of in &commands {
        fs::write(pages.join(format!("{PROGRAM}-{}.1", of.get_name())), page::of_command(of)?)?;
    }
    fs::write(pages.join(format!("{PROGRAM}.toml.5")), configuration::page())?;
    fs::write(reference.join("configuration.md"), configuration::tables())?;
    fs::write(reference.join("metrics.md"), metrics::table())?;
    let schema = serde_json::to_string_pretty(&schema())?;
    fs::write(reference.join("agent.schema.json"), schema + "\n")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = completions.join(shell.file_name(PROGRAM));
        fs::write(script, completion(shell))?;
    }
    Ok(())
}

/// The script that completes the command line in a shell.
fn completion(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    if shell != Shell::Bash {
        return script;
    }
    // clap_complete 4.6 writes the hyphen of a program's name in one way where it sets a command and in
    // another where it looks for it, so that no option of a command is found.
    let [set, found] = ["__", "__subcmd__"].map(|hyphen| PROGRAM.replace('-', hyphen));
    String::from_utf8_lossy(&script).replace(&found, &set).into_bytes()
}
