//! `health`: whether the daemon is alive and ready.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::Args;

use super::{CliError, exit::ExitCode};
use ctl::client::Client;
use ctl::socket;
use ctl::socket::UnixTransport;

/// How long the daemon may take to answer. It looks at itself for half of that at most.
const LIMIT: Duration = Duration::from_secs(10);

/// Say whether the daemon is alive, and does what its configuration says
///
/// It is alive while its threads answer: if not, it helps to start it anew. It is ready while all configured
/// sessions record, what they record is stored in time, and losses are below their bound. The exit code says
/// whether it is so: 0, or 1 with the reasons; also 1 if the daemon does not answer within 10 seconds.
#[derive(Args, Debug)]
pub struct HealthArgs {
    /// Whether it is alive
    #[arg(long, conflicts_with = "ready")]
    pub live: bool,
    /// Whether it is ready, which is what is asked where nothing is said
    #[arg(long)]
    pub ready: bool,
    /// Print all of it as JSON
    #[arg(long)]
    pub json: bool,
    /// The daemon's socket [default: $TRACER_AGENT_SOCKET, or /run/tracer-agent/daemon.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &HealthArgs, out: &mut impl Write) -> Result<ExitCode, CliError> {
    let path = socket::chosen(args.socket.as_deref());
    let transport = UnixTransport::new(&path).map_err(CliError::system("ask the daemon"))?.within(LIMIT);
    let mut client = Client::new(Box::new(transport));
    let health = client.health().map_err(|error| CliError::daemon(&error, || error.to_string()))?;
    let written = CliError::system("write the answer");
    let (what, is_so) = if args.live { ("alive", health.live) } else { ("ready", health.ready) };
    let code = if is_so { ExitCode::Ok } else { ExitCode::Failure };
    if args.json {
        let text = serde_json::to_string(&health).unwrap_or_default();
        writeln!(out, "{text}").map_err(written)?;
        return Ok(code);
    }
    let told = if is_so { what.to_owned() } else { format!("not {what}: {}", health.reasons.join("; ")) };
    writeln!(out, "{told}").map_err(written)?;
    Ok(code)
}
