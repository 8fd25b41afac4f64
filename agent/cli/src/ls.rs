//! `tracer-agent ls`: archives in an object store.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::{CliError, remote::AccessArgs, units, write_all};
use stdx::quantity::Period;
use stdx::{terminal, utc};
use store::find;
use store::find::{Found, Wanted};

/// List recordings in an object store
///
/// URL is what the names begin with, as whoever uploads has it: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
/// az://CONTAINER/PREFIX, https://HOST/PATH (WebDAV) or file:///DIRECTORY. Times are in UTC. Objects whose
/// names are not those of recordings are left out.
#[derive(Args, Debug)]
pub struct LsArgs {
    /// Where to look
    #[arg(value_name = "URL")]
    pub url: String,

    /// Only of hosts with this name; wildcards as in shells
    #[arg(long, value_name = "PATTERN")]
    pub host: Option<String>,

    /// Only of sessions with this name; wildcards as in shells
    #[arg(long, value_name = "PATTERN")]
    pub session: Option<String>,

    /// Only what ends at this time or later: 2026-03-02, 2026-03-02T10:15:00Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<u64>,

    /// Only what begins before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<u64>,

    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub access: AccessArgs,
}

/// A time, or how long ago it was, in nanoseconds since 1970.
fn moment(text: &str) -> Result<u64, String> {
    let ago = |Period(time)| {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (utc::seconds_now() * 1_000_000_000).saturating_sub(ns)
    };
    utc::parse(text)
        .or_else(|| text.parse::<Period>().ok().map(ago))
        .ok_or_else(|| "write it like 2026-03-02, 2026-03-02T10:15:00Z or 2h".to_owned())
}

/// The answer in JSON.
#[derive(Serialize)]
struct Answer<'a> {
    archives: &'a [Found],
}

/// Runs the command.
pub(super) fn run(args: &LsArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let wanted = Wanted {
        host: args.host.clone(),
        session: args.session.clone(),
        since: args.since,
        until: args.until,
    };
    let found = find::list(&args.url, &args.access.access(), &wanted)
        .map_err(|error| CliError::Failed(error.to_string()))?;
    let text = if args.json {
        super::json_line(&Answer { archives: &found })? + "\n"
    } else {
        found.iter().map(line).collect()
    };
    write_all(out, &text)?;
    Ok(super::exit::ExitCode::Ok.code())
}

fn line(found: &Found) -> String {
    let Found { url, bytes, host, session, begin, end } = found;
    // Whoever may write to the store chooses them.
    let [url, host, session] = [url, host, session].map(|name| terminal::name(name));
    let (begin, end) = (utc::moment(*begin), utc::moment(*end));
    format!("{begin}  {end}  {:>9}  {host}  {session}  {url}\n", units::bytes(*bytes))
}
