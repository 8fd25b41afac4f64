//! `tracer-agent listen`: a listener of trace-cmd, to which other machines send their recordings.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd as _,
    path::PathBuf,
    time::Duration,
};

use super::{
    CliError,
    exit::ExitCode,
    limits,
    new_files::NewFileArgs,
    signals::{Asked, Signals},
    tell, units,
};
use stdx::output::directory_at;
use tracecmd::PortRange;
use tracecmd::receive::{Event, Limits, Listener, Options, Place, Received};

/// Headings of the options in the help text.
const PLACE: &str = "Where to listen";
const FILES: &str = "Files";
const LIMITS: &str = "Limits";

/// Write the recordings that other machines send
///
/// `tracer-agent record -N` and `trace-cmd record -N` connect to it, and each recording becomes a trace.dat
/// file here: trace.ADDRESS:PORT.dat, by where it came from. A file that is there is never replaced: the new
/// one gets a number. A recorder that goes before its end leaves a file with what had come. Ctrl-C ends it:
/// the files of recorders that are still there are finished.
///
/// The protocol has neither encryption nor passwords. So it listens to programs of this machine unless --bind
/// names another address: then whoever reaches the port can write files here, and whoever is on the way can
/// read and change them. Between machines, ssh does both: it passes on the port, and a data port for each CPU
/// of the recorder. On the recording machine:
///
///   ssh -L 12345:localhost:12345 -L 1500:localhost:1500 -L 1501:localhost:1501 COLLECTOR
///
/// and then `record -N localhost:12345 -t`; or -R with the same ports, from the machine that listens. Through
/// ssh go only recordings with -t.
#[derive(clap::Args, Debug)]
pub struct ListenArgs {
    /// Print only what went wrong
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// Port; 0 for any that is free, which is printed
    #[arg(short = 'p', long, value_name = "PORT", help_heading = PLACE)]
    pub port: u32,

    /// Address of this machine to listen at: 0.0.0.0 or :: for all of them [default: 127.0.0.1]
    #[arg(short = 'b', long, value_name = "ADDRESS", conflicts_with = "vsock", help_heading = PLACE)]
    pub bind: Option<IpAddr>,

    /// Listen to virtual machines, or in one to its host, instead of a network
    #[arg(short = 'V', long, help_heading = PLACE)]
    pub vsock: bool,

    /// Ports for the data of CPUs, one for each: the first that are free
    #[arg(
        long,
        value_name = "FIRST-LAST",
        default_value = "1500-6000",
        conflicts_with = "vsock",
        help_heading = PLACE
    )]
    pub data_ports: PortRange,

    /// Directory of the files
    #[arg(short = 'd', long = "directory", value_name = "DIR", default_value = ".", help_heading = FILES)]
    pub directory: PathBuf,

    /// What their names begin with
    #[arg(short = 'o', long = "output", value_name = "NAME", default_value = "trace", help_heading = FILES)]
    pub output: String,

    #[command(flatten, next_help_heading = FILES)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Recorders at one time
    #[arg(
        long,
        value_name = "N",
        default_value_t = Limits::default().clients,
        help_heading = LIMITS
    )]
    pub max_clients: usize,

    /// Bytes of pages of one recording, uncompressed as they come
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16G",
        value_parser = bytes,
        help_heading = LIMITS
    )]
    pub max_data: u64,

    /// Bytes of what describes the events of one recording
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        value_parser = bytes,
        help_heading = LIMITS
    )]
    pub max_metadata: u64,

    /// How long a recorder may take to say what comes
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::period, help_heading = LIMITS)]
    pub greeting_timeout: u64,

    /// How long nothing may come of a recording. On a quiet machine trace-cmd sends nothing for long
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = units::period, help_heading = LIMITS)]
    pub idle_timeout: u64,
}

fn bytes(text: &str) -> Result<u64, String> {
    units::size(text, 1)
}

/// Runs the command.
pub(super) fn run(args: &ListenArgs) -> Result<u8, CliError> {
    let signals = Signals::block().map_err(CliError::system("block signals"))?;
    limits::raise().map_err(CliError::system("raise the limits of this process"))?;
    let place = place(args)?;
    let listener = open(args, place)?;
    let port = listener.port().map_err(CliError::system("read the port"))?;
    if place.is_open() {
        tell(
            "tracer-agent: warning: whoever reaches this port can write files here: the protocol has no password and \
             no encryption; `tracer-agent listen --help` says how to use it through ssh",
        );
    }
    if !args.quiet {
        let dir = args.directory.display();
        tell(&format!(
            "tracer-agent: listening at {}; files go to {dir}; Ctrl-C ends it",
            named(place, port)
        ));
    }
    let (stop, go_on) = io::pipe().map_err(CliError::system("create a pipe"))?;
    std::thread::spawn(move || until_second_signal(&signals, go_on));
    let quiet = args.quiet;
    let say = |event: Event<'_>| {
        let is_wrong = match &event {
            Event::Connected(_) => false,
            Event::Received(received) => !received.is_complete(),
            Event::TooMany(_) | Event::Refused(_) => true,
        };
        if is_wrong || !quiet {
            tell(&text(&event));
        }
    };
    listener.run(stop.as_fd(), &say).map_err(CliError::system("wait for recorders"))?;
    Ok(ExitCode::Ok.code())
}

/// What happened, in words.
fn text(event: &Event<'_>) -> String {
    let received = match event {
        Event::Connected(name) => return format!("{name} has connected"),
        Event::TooMany(name) => {
            return format!("{name} was sent away: there are as many recorders as --max-clients allows");
        }
        Event::Refused(error) => return format!("tracer-agent: cannot accept a connection: {error}"),
        Event::Received(received) => received,
    };
    let Received { name, file, ended } = received;
    let mut lines = Vec::new();
    if let Err(error) = ended {
        lines.push(format!("{name}: {error}"));
    }
    match file {
        Ok(file) => {
            let (events, bytes) = (units::count(file.events), units::bytes(file.bytes));
            let what = if ended.is_ok() { "" } else { "what had come: " };
            lines.push(format!("{name}: {what}{events} events, {bytes} in {}", file.path.display()));
            lines.extend(file.notes.iter().map(|note| format!("{name}: {note}")));
        }
        Err(error) => lines.push(format!("{name}: no file: {error}")),
    }
    lines.join("\n")
}

fn place(args: &ListenArgs) -> Result<Place, CliError> {
    if args.vsock {
        return Ok(Place::Vsock(args.port));
    }
    let port = u16::try_from(args.port)
        .map_err(|_| CliError::Usage(format!("-p {}: the last port is 65535", args.port)))?;
    Ok(Place::Ip(args.bind.unwrap_or(Ipv4Addr::LOCALHOST.into()), port))
}

fn named(place: Place, port: u32) -> String {
    match place {
        Place::Ip(IpAddr::V6(address), _) => format!("[{address}]:{port}"),
        Place::Ip(address, _) => format!("{address}:{port}"),
        Place::Vsock(_) => format!("port {port} of vsock"),
    }
}

fn open(args: &ListenArgs, place: Place) -> Result<Listener, CliError> {
    let name = &args.output;
    if name.is_empty() || name.starts_with('.') || name.contains('/') || name.len() > 100 {
        return Err(CliError::Usage(format!(
            "-o {name:?} is no name that files can begin with; -d names their directory"
        )));
    }
    let dir = directory_at(&args.directory).map_err(|error| CliError::Output(format!("-d: {error}")))?;
    // Better now than when the first recorder is there.
    dir.check_writable()
        .map_err(|error| CliError::Output(format!("-d {}: {error}", args.directory.display())))?;
    let limits = Limits {
        clients: args.max_clients,
        data: args.max_data,
        metadata: args.max_metadata,
        greeting: Duration::from_nanos(args.greeting_timeout),
        idle: Duration::from_nanos(args.idle_timeout),
    };
    let options = Options { prefix: name.clone(), ports: args.data_ports, limits };
    Listener::open(place, dir, options)
        .map_err(|error| CliError::Output(format!("cannot listen at {}: {error}", named(place, args.port))))
}

/// The first signal that asks for the end closes the pipe; the second one ends the process.
fn until_second_signal(signals: &Signals, go_on: io::PipeWriter) -> ! {
    let mut go_on = Some(go_on);
    loop {
        if let Asked::End(_) = signals.wait() {
            match go_on.take() {
                Some(pipe) => {
                    drop(pipe);
                    tell("tracer-agent: the files of recorders that are there are being finished");
                }
                None => super::exit_now(ExitCode::Interrupted),
            }
        }
    }
}
