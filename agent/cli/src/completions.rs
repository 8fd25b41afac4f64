//! `tracer-agent completions`: scripts that complete command lines in shells.

use clap::CommandFactory as _;

use super::{Cli, PROGRAM};

/// Print the script that completes command lines of tracer-agent in a shell
///
/// The script completes the commands and options of the build that prints it. Packages bring the scripts of
/// all shells; without a package, write the script to the file that the shell reads.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "they are names of shells")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), PROGRAM, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if shell != Shell::Bash {
        return script;
    }
    // clap_complete 4.6 writes the hyphen of a program's name in one way where it sets a command and in
    // another where it reads it, so that no option of a command is found.
    let [set, found] = ["__", "__subcmd__"].map(|hyphen| PROGRAM.replace('-', hyphen));
    script.replace(&found, &set)
}
