//! `tracer-agent put`: recordings into an object store.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;

use super::{CliError, exit::ExitCode, remote::AccessArgs, tell, temporary::Temporary};
use stdx::quantity::{Bytes, Period};
use store::{Archive, Cause, Event, UploadConfig, Uploader};

/// How long to wait for news before looking whether all is done.
const PATIENCE: Duration = Duration::from_millis(200);

/// Upload recordings to an object store
///
/// Each is stored as URL/SITE/DAY/HOST/SESSION/BEGIN-END-ID.dat, which is printed when it is there and
/// verified. The name is made of what the file is: the same file is never stored twice. A directory is stored
/// as a tar file. While the store cannot be reached or is overloaded, it is tried again without end; what it
/// refuses ends the command.
#[derive(Args, Debug)]
pub struct PutArgs {
    /// trace.dat files, and directories with traces in LTTng's format
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// What the names begin with: s3://BUCKET/PREFIX, gs://, az://, https:// or file:///DIRECTORY
    #[arg(value_name = "URL", required = true)]
    pub url: String,

    /// The session's part of the names
    #[arg(long, value_name = "NAME", default_value = "put")]
    pub session: String,

    /// The site's part of the names
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub site: String,

    /// The directory that says how far each upload is: with it, a command that was interrupted goes on where
    /// it was when it is run again
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Bytes a second of all uploads together: 500K, 10MiB. Default: no limit
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<Bytes>,

    /// Files that are larger are sent in parts of this size, 5MiB to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    pub part_size: Bytes,

    /// The longest time between two attempts
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub max_backoff: Period,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub access: AccessArgs,
}

/// Runs the command.
pub(super) fn run(args: &PutArgs) -> Result<u8, CliError> {
    let access = args.access.access();
    let config = UploadConfig {
        endpoint: access.endpoint,
        region: access.region,
        allow_http: access.allow_http,
        credentials_file: access.credentials_file,
        site: args.site.clone(),
        bandwidth: args.bandwidth,
        part_size: args.part_size,
        max_backoff: args.max_backoff,
        timeout: Period(access.timeout),
        ..UploadConfig::new(&args.url)
    };
    config.check().map_err(CliError::usage)?;
    let mut archives = Vec::new();
    for file in &args.files {
        let archive =
            Archive::at(file, &args.session).map_err(|error| CliError::Failed(error.to_string()))?;
        archives.push(archive);
    }
    if let Some(state) = &args.state {
        return put(args, &config, state, archives);
    }
    let temporary = Temporary::create("put")?;
    put(args, &config, temporary.dir().path(), archives)
}

fn put(args: &PutArgs, config: &UploadConfig, state: &Path, archives: Vec<Archive>) -> Result<u8, CliError> {
    let failed = |error: &dyn std::error::Error| CliError::Failed(error.to_string());
    let (sender, events) = channel();
    let observer = move |event: &Event| {
        // Who listened has ended.
        let _ = sender.send(event.clone());
    };
    let uploader = Uploader::start(config, state, Box::new(observer)).map_err(|error| failed(&error))?;
    for archive in archives {
        uploader.add(archive).map_err(|error| failed(&error))?;
    }
    let code = follow(&uploader, &events);
    // What was stored is nobody's business any more; a later command sees that it is there.
    uploader.forget_stored().map_err(|error| failed(&error))?;
    let left = uploader.counters().queued_archives;
    uploader.stop();
    if left > 0 {
        let again = match args.state {
            Some(_) => "the same command goes on with them",
            None => "the same command tries again; with --state DIR it goes on where it was",
        };
        tell(&format!("tracer-agent: {left} recordings are not stored; {again}"));
    }
    Ok(code.code())
}

/// Tells what happens until everything is stored, or will not be.
fn follow(uploader: &Uploader, events: &Receiver<Event>) -> ExitCode {
    let mut code = ExitCode::Ok;
    let mut told = None;
    loop {
        match events.recv_timeout(PATIENCE) {
            Ok(Event::Stored { url, .. }) => {
                told = None;
                // Nobody has to read it.
                let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{url}\n").as_bytes());
            }
            Ok(Event::Failed { cause, why, .. }) => {
                // The same trouble is told once.
                if told.replace(cause) != Some(cause) {
                    let again = if cause.is_transient() { "; it is tried again" } else { "" };
                    tell(&format!("tracer-agent: {why}{again}"));
                }
                if matches!(cause, Cause::Refused | Cause::LocalFile | Cause::Other) {
                    return ExitCode::Failure;
                }
            }
            Ok(Event::Lost { why, .. }) => {
                tell(&format!("tracer-agent: {why}"));
                code = ExitCode::Failure;
            }
            Ok(Event::Journal { why }) => tell(&format!("tracer-agent: {why}")),
            Err(RecvTimeoutError::Timeout) => {
                if uploader.counters().queued_archives == 0 {
                    return code;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return code,
        }
    }
}
