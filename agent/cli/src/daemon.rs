//! `daemon`: serve recording sessions.

mod checking;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use clap::Args;

use super::{CliError, exit::ExitCode, units};
use daemon::Ended;

/// What the daemon prints when it accepts connections.
const READY: &str = "ready";
/// The variable in which a cluster's manifest gives a pod the name of its node.
const NODE_NAME: &str = "NODE_NAME";

/// Serve recording sessions of several users, which `tracer-agent ctl` and `lttng` control
///
/// The daemon listens on a Unix socket until SIGTERM or SIGINT. Its sessions are then stopped, and their
/// files are finished. On SIGUSR2 it ends for the next daemon to go on with its sessions, while they record:
/// that takes a service of systemd that stores descriptors.
#[derive(Args, Debug)]
pub struct DaemonArgs {
    /// The socket. With systemd's socket activation, that of systemd is used instead
    #[arg(long, value_name = "PATH", default_value = api::DEFAULT_SOCKET)]
    pub socket: PathBuf,

    /// The directory in which the next daemon finds what this one records. Default: /var/lib/tracer-agent,
    /// and one with the name of the socket behind that for another --socket
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Members of this group may have sessions of their own. If there is no such group, only root may
    #[arg(long, value_name = "GROUP", default_value = "tracing")]
    pub group: String,

    /// Members of this group may read the files of root's sessions, and of sessions of its members. Without
    /// it only the owner of a session may
    #[arg(long, value_name = "GROUP")]
    pub read_group: Option<String>,

    /// The most memory for the rings of a user's sessions, on all CPUs together; root may have more.
    /// Default: a quarter of the machine's memory, or of what the control group of the daemon may take
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes)]
    pub user_memory: Option<u64>,

    /// The most file descriptors that the recordings of a user may have open: some 60 for a session with a
    /// channel, and 3 for each event; root may have more. Default: a quarter of what the daemon may open
    #[arg(long, value_name = "N")]
    pub user_descriptors: Option<u64>,

    /// Where viewers of live sessions connect to. The daemon listens there from the first one on. Whoever can
    /// connect reads all of them, without encryption or a question who it is: on the default address, the
    /// users of this machine
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1:5344", value_parser = lttng_live::parse_bind)]
    pub live_bind: SocketAddr,
    /// How much of each session may wait on disk, beside the directory of `--state`, for a relay daemon that
    /// is slow or away; then the oldest data that were not sent give way
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes, default_value = "1G")]
    pub relay_backlog: u64,

    /// What it records always: this file, and those of `conf.d` beside it. They are read again when they
    /// change, and on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What this host is called, in traces, names of archives and labels of metrics. Default: `$NODE_NAME`,
    /// then what the configuration says, then the kernel's name of it, which is the container's in one
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub host: Option<String>,
    /// Say what is wrong in the configuration, with its places, and whether this kernel can record it; then
    /// end
    #[arg(long, requires = "config", conflicts_with = "background")]
    pub check: bool,
    /// Print the JSON Schema of the configuration, and end
    #[arg(long, conflicts_with_all = ["check", "background", "config"])]
    pub schema: bool,

    /// Return when the daemon accepts connections, and serve on in the background
    #[arg(long)]
    pub background: bool,
}

/// Runs the command.
pub(super) fn run(args: &DaemonArgs) -> Result<u8, CliError> {
    if args.schema {
        return checking::print_schema();
    }
    if let Some(path) = args.config.as_ref().filter(|_| args.check) {
        return checking::check(path);
    }
    let options = daemon::Options {
        socket: args.socket.clone(),
        state: state_of(args),
        group: Some(args.group.clone()),
        read_group: args.read_group.clone(),
        user_memory: args.user_memory.map(|kb| kb.saturating_mul(1 << 10)),
        user_descriptors: args.user_descriptors,
        live_bind: args.live_bind,
        relay_backlog: args.relay_backlog.saturating_mul(1 << 10),
        config: args.config.clone(),
        host: host_of(args)?,
    };
    super::limits::raise().map_err(CliError::system("raise the limits of this process"))?;
    if args.background {
        return background(args);
    }
    // Who started this in the background waits for the line; nobody else has to read it.
    let ready = || {
        let _ = writeln!(std::io::stdout(), "{READY}");
    };
    let ended = daemon::run(&options, ready).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(match ended {
        Ended::Stopped => ExitCode::Ok.code(),
        Ended::HandedOver => ExitCode::HandedOver.code(),
    })
}

/// A host's name, as names of archives have it.
fn host_name(text: &str) -> Result<String, &'static str> {
    if daemon::config::is_host_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a host has a name without a slash")
    }
}

/// What the command line or the environment calls this host.
fn host_of(args: &DaemonArgs) -> Result<Option<String>, CliError> {
    let of_environment = || std::env::var(NODE_NAME).ok().filter(|name| !name.is_empty());
    let name = args.host.clone().or_else(of_environment);
    let wrong = |why| CliError::Usage(format!("${NODE_NAME}: {why}"));
    name.map(|name| host_name(&name).map_err(wrong)).transpose()
}

/// The directory of its state.
fn state_of(args: &DaemonArgs) -> PathBuf {
    args.state.clone().unwrap_or_else(|| daemon::default_state(&args.socket))
}

/// Starts the daemon as a process of its own, and waits until it accepts connections or has failed.
fn background(args: &DaemonArgs) -> Result<u8, CliError> {
    let failed = CliError::system("start the daemon");
    let program = std::env::current_exe().map_err(CliError::system("find this program"))?;
    let mut command = Command::new(program);
    command
        .arg("daemon")
        .arg("--socket")
        .arg(&args.socket)
        .arg("--state")
        .arg(state_of(args))
        .arg("--group")
        .arg(&args.group);
    command.arg("--live-bind").arg(args.live_bind.to_string());
    if let Some(group) = &args.read_group {
        command.arg("--read-group").arg(group);
    }
    if let Some(kb) = args.user_memory {
        command.arg("--user-memory").arg(format!("{kb}K"));
    }
    if let Some(descriptors) = args.user_descriptors {
        command.arg("--user-descriptors").arg(descriptors.to_string());
    }
    if let Some(host) = &args.host {
        command.arg("--host").arg(host);
    }
    command.arg("--relay-backlog").arg(format!("{}K", args.relay_backlog));
    if let Some(path) = &args.config {
        // It is another directory's there.
        let path = std::path::absolute(path).map_err(CliError::system("find the configuration"))?;
        command.arg("--config").arg(path);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // Its end comes without a line when the daemon has failed.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line.trim_end() == READY {
        return Ok(ExitCode::Ok.code());
    }
    let status = child.wait().map_err(CliError::system("wait for the daemon"))?;
    // It has said why.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ExitCode::Failure.code()))
}
