//! `version` and `help`, and the programs that commands call.

use std::path::{Path, PathBuf};

use clap::Args;

use super::super::at::{At, Done, Failure};
use super::super::document::Node;

/// The version of LTTng whose commands these are.
pub(crate) const INTERFACE: &str = "2.13";

/// Show the version
#[derive(Args, Debug)]
pub struct Version {}

impl Version {
    pub fn run(at: &mut At) {
        let version = env!("CARGO_PKG_VERSION");
        let description = "Records kernel events with eBPF.";
        at.say.line(&format!(
            "{} version {version} (tracer-agent, commands of LTTng {INTERFACE})",
            at.name.typed()
        ));
        at.say.line(&format!("\n{description}"));
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
        let mut number = |name| Node::number(name, numbers.next().unwrap_or_default());
        let (major, minor, patch) = (number("major"), number("minor"), number("patchLevel"));
        let parts = vec![
            Node::text("string", version),
            major,
            minor,
            Node::text("commit", ""),
            patch,
            Node::text("name", "tracer-agent"),
            Node::text("description", description),
            Node::text("url", ""),
            Node::text("license", env!("CARGO_PKG_LICENSE")),
        ];
        at.output.push(Node::Parts("version", parts));
    }
}

/// Describe a command
#[derive(Args, Debug)]
pub struct Help {
    /// Command
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

impl Help {
    pub fn run(&self, at: &mut At) -> Done {
        let mut program = super::super::described(at.name);
        let text = match &self.command {
            None => program.render_long_help(),
            Some(name) => match program.find_subcommand_mut(name) {
                Some(command) => command.render_long_help(),
                None => return Err(Failure::new(format!("Unknown command \"{name}\""))),
            },
        };
        at.say.print(&text.to_string());
        Ok(())
    }
}

/// A file as it is given, or that of a program of `PATH`; absolute.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let there = |path: &Path| path.is_file().then(|| std::path::absolute(path).ok()).flatten();
    if name.contains('/') {
        return there(name.as_ref());
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).find_map(|dir| there(&dir.join(name)))
}
