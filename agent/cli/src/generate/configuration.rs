//! The keys of the daemon's configuration: as a man page of section 5, and as the tables of
//! `docs/configuration.md`.

use std::fmt::Write as _;

use clap_mangen::roff::{Roff, bold, italic, roman};
use daemon::config::{Key, Type, reference};

use crate::PROGRAM;

/// The page `tracer-agent.toml(5)`.
pub(super) fn page() -> String {
    let mut page = Roff::new();
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{PROGRAM}.toml - what the daemon of {PROGRAM} records always"))]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("/etc/tracer-agent/agent.toml")]);
    page.control("br", []);
    page.text([bold("/etc/tracer-agent/conf.d/*.toml")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "The files are TOML, and are read as one, in the order of their names: tables are joined key by key, and \
         of what two say the later one counts. The daemon reads them again when they change, and on SIGHUP. A \
         configuration with a mistake changes nothing; tracer-agent daemon --config FILE --check tells all \
         mistakes with their places.",
    )]);
    for of in reference() {
        page.control("SH", [heading(&of).to_uppercase().as_str()]);
        page.text([roman(&of.about)]);
        if of.is_choice {
            page.text([roman("One of these:")]);
        }
        for key in &of.keys {
            page.control("TP", []);
            let mut head = vec![bold(&key.name)];
            if !key.kind.is_empty() {
                head.extend([roman(": "), italic(&key.kind)]);
            }
            page.text(head);
            page.text([roman(about(key))]);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("tracer-agent-daemon"), roman("(1)")]);
    let title = PROGRAM.to_uppercase();
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH \"{title}.TOML\" \"5\" \"\" \"{PROGRAM} {version}\" \"File Formats\"\n{}", page.to_roff())
}

/// The tables.
pub(super) fn tables() -> String {
    let mut out = String::new();
    for of in reference() {
        let (heading, about) = (heading(&of), &of.about);
        let _ = write!(out, "### {heading}\n\n{about}\n\n");
        if of.is_choice && of.keys.iter().all(|key| key.kind.is_empty() && key.about.is_empty()) {
            let names: Vec<String> = of.keys.iter().map(|key| format!("`{}`", key.name)).collect();
            let _ = write!(out, "One of {}.\n\n", names.join(", "));
            continue;
        }
        let head = if of.is_choice { "one of" } else { "key" };
        let _ = write!(out, "| {head} | value | meaning |\n|---|---|---|\n");
        for key in &of.keys {
            let _ =
                writeln!(out, "| `{}` | {} | {} |", key.name, escaped(&key.kind), escaped(&self::about(key)));
        }
        out.push('\n');
    }
    out
}

fn heading(of: &Type) -> String {
    match of.name.as_str() {
        "Config" => "The whole file".to_owned(),
        name => name.to_owned(),
    }
}

fn about(key: &Key) -> String {
    if key.is_required { format!("{} Required.", key.about) } else { key.about.clone() }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
