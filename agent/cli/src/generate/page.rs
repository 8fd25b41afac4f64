//! A man page of section 1.
//!
//! `clap_mangen` writes what the command line's description has: name, synopsis, description, options. What
//! stands behind the options in the help text comes after these: a line without indentation is the heading of
//! a section, and the lines of it keep their shape.

use std::io::{self, Write as _};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::PROGRAM;

/// The page of the program, which names those of its commands.
pub(super) fn of_program(command: &Command) -> io::Result<Vec<u8>> {
    let commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let pages: Vec<String> = commands.iter().map(|name| format!("{PROGRAM}-{name}")).collect();
    page(command, true, &pages)
}

/// The page of a command.
pub(super) fn of_command(command: &Command) -> io::Result<Vec<u8>> {
    page(command, false, &[PROGRAM.to_owned()])
}

fn page(command: &Command, has_commands: bool, see_also: &[String]) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let man = Man::new(command.clone());
    let mut out = Vec::new();
    // Without a date, so that the same sources make the same page; `render_title` leaves out what is empty,
    // which moves the rest.
    let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    writeln!(out, ".TH \"{title}\" \"1\" \"\" \"{PROGRAM} {version}\" \"User Commands\"")?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    } else {
        commands_within(command, &mut out)?;
    }
    sections(command, &mut out)?;
    see(see_also, &mut out)?;
    Ok(out)
}

/// The commands of a command, which have no pages of their own.
fn commands_within(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    for (place, within) in command.get_subcommands().enumerate() {
        if place == 0 {
            roff.control("SH", ["COMMANDS"]);
        }
        let about = within.get_about().map(ToString::to_string).unwrap_or_default();
        roff.control("TP", []);
        roff.text([bold(within.get_name())]);
        roff.text([roman(about)]);
    }
    roff.to_writer(out)
}

/// What stands behind the options in the help text.
fn sections(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    let mut open = false;
    for line in text.lines() {
        if line.is_empty() {
            continue;
        }
        if line.starts_with(' ') {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            continue;
        }
        if open {
            roff.control("fi", []);
        }
        roff.control("SH", [line]);
        roff.control("nf", []);
        open = true;
    }
    if open {
        roff.control("fi", []);
    }
    roff.to_writer(out)
}

fn see(pages: &[String], out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    for (place, page) in pages.iter().enumerate() {
        let comma = if place + 1 < pages.len() { "(1), " } else { "(1), trace-cmd(1)" };
        roff.text([bold(page.as_str()), roman(comma)]);
    }
    roff.to_writer(&mut *out)?;
    out.flush()
}
