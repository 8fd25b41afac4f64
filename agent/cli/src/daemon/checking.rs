//! What is wrong in a configuration.

use std::{io::Write as _, path::Path};

use crate::CliError;
use crate::exit::ExitCode;
use daemon::{config::Config, config_schema};
use plan::Plan;
use spec::RotationSpec;

/// Says what is wrong in a configuration, and whether this kernel can record what it says.
pub(super) fn check(path: &Path) -> Result<u8, CliError> {
    let (config, files) = Config::read(path).map_err(|error| CliError::Usage(error.to_string()))?;
    let mut out = std::io::stdout().lock();
    let mut say = |line: &str| writeln!(out, "{line}").map_err(CliError::system("write to standard output"));
    say(&format!(
        "{}: {} read, with {} and {}",
        path.display(),
        counted(files.count(), "file"),
        counted(config.sessions.len(), "session"),
        counted(config.triggers.len(), "trigger")
    ))?;
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        say("whether this kernel can record it is not checked: that takes root")?;
        return Ok(ExitCode::Ok.code());
    }
    let mut all = true;
    for (name, session) in &config.sessions {
        let mut spec = session.spec(1);
        // No file is looked at.
        spec.file.path = "/session".into();
        spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
        spec.channels.iter_mut().for_each(|channel| channel.overwrite = false);
        match Plan::make(&spec) {
            Ok(plan) => {
                let events: usize = plan.options.channels.iter().map(|channel| channel.events.len()).sum();
                say(&format!("session {name}: {} on this kernel", counted(events, "event")))?;
                for note in &plan.notes {
                    say(&format!("session {name}: {note}"))?;
                }
            }
            Err(error) => {
                all = false;
                say(&format!("session {name}: this kernel cannot record it: {error}"))?;
            }
        }
    }
    Ok(if all { ExitCode::Ok } else { ExitCode::Failure }.code())
}

/// Prints the schema of configurations.
pub(super) fn print_schema() -> Result<u8, CliError> {
    let mut out = std::io::stdout();
    out.write_all(config_schema().as_bytes()).map_err(CliError::system("write to standard output"))?;
    Ok(ExitCode::Ok.code())
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
