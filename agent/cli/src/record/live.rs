//! `record --live`: the answers of an analysis while its events are recorded. Without an analysis, others
//! read what is recorded (`viewers`).
//!
//! They are made of what the recording has stored, as `analyze --live` makes them, by a thread of their own
//! that nobody waits for while the recording goes on.

use std::{
    io::{self, PipeWriter},
    net::SocketAddr,
    os::fd::AsFd as _,
    path::Path,
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use clap::Args;
use rustix::process::nice;

use super::{
    super::{
        CliError,
        analyze::{
            live::{Live, Shown, interval},
            stacks::StacksArgs,
        },
        tell,
    },
    OUTPUT, RecordArgs,
    trace::Format,
};
use analysis::answers::{Scope, Topic};
use lttng_live::parse_bind;
use spec::RecordingSpec;

/// How much later events are stored at most, unless the user says it: the answers come that much later.
pub(super) const SWITCH_NS: u64 = 200_000_000;

/// Most rows of each table, as `analyze` prints them.
const ROWS: usize = 20;

/// How much less urgent the answers are than the recording and the rest of the machine.
const NICE: i32 = 10;

/// How long the last answer may take when the file is finished.
const PATIENCE: Duration = Duration::from_secs(3);

/// Showing answers meanwhile.
#[derive(Args, Debug)]
pub struct LiveArgs {
    /// With --for NAME, print each second, or TIME, what `analyze NAME --live` prints, on a terminal in
    /// place. What the command prints should go elsewhere. Without it, or with --format lttng, ctf or ctf2,
    /// let viewers read the trace while it is written, events at most so late: prints how babeltrace2 does
    /// it. The trace is that of --format lttng where nothing else is said
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = interval,
        help_heading = OUTPUT
    )]
    pub live: Option<u64>,

    /// Where viewers of --live connect to [default: 127.0.0.1:5344, or another port if that is taken].
    /// Whoever can connect can read: without another address, users of this machine
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        value_parser = parse_bind,
        help_heading = OUTPUT
    )]
    pub live_bind: Option<SocketAddr>,
}

/// Whether answers are shown, and not viewers served.
pub(super) fn is_shown(args: &RecordArgs) -> bool {
    args.live.live.is_some() && !args.topics.is_empty() && args.trace.format == Format::Dat
}

/// How late viewers read events at most, if there are viewers.
pub(super) fn of_viewers(args: &RecordArgs) -> Option<u64> {
    args.live.live.filter(|_| !is_shown(args))
}

/// The analysis to show, if one is to be shown, and the length of its intervals.
pub(super) fn wanted(args: &RecordArgs, spec: &RecordingSpec) -> Result<Option<(Topic, u64)>, CliError> {
    if spec.file.live_ns.is_none() && args.live.live_bind.is_some() {
        return Err(CliError::usage("--live-bind is for viewers of --live"));
    }
    let Some(interval) = args.live.live.filter(|_| is_shown(args)) else { return Ok(None) };
    let &[topic] = args.topics.as_slice() else {
        return Err(CliError::usage(
            "--live shows one analysis; use one --for NAME with it, or --format lttng to let viewers read",
        ));
    };
    if spec.rotation.is_some() {
        return Err(CliError::usage(
            "--live shows a recording of one file; --rotate-size and --rotate-time make several",
        ));
    }
    if spec.channels.iter().any(|channel| channel.overwrite) {
        return Err(CliError::usage(
            "--overwrite has its events in memory until the end, so that --live has nothing to show",
        ));
    }
    Ok(Some((topic, interval)))
}

/// The thread that shows the answers.
pub(super) struct Display {
    topic: Topic,
    ended: Receiver<()>,
    /// It ends when this is closed.
    go_on: PipeWriter,
}

impl Display {
    /// Shows an analysis of the recording in this spool, which becomes this file. `None` if that cannot be,
    /// which is no reason not to record.
    pub(super) fn start(wanted: (Topic, u64), of: (&Path, &Path)) -> Option<Self> {
        Self::try_start(wanted, of).map_err(|error| tell(&format!("tracer-agent: --live: {error}"))).ok()
    }

    fn try_start((topic, interval): (Topic, u64), (spool, file): (&Path, &Path)) -> io::Result<Self> {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        let (stop, go_on) = io::pipe()?;
        let live = Live {
            path: spool.to_owned(),
            name: file.display().to_string(),
            topic,
            stacks: StacksArgs::default(),
            scope: Scope::default(),
            limit: ROWS,
            json: false,
            interval,
            is_cumulative: false,
            out: out.into(),
            stop,
        };
        let (end, ended) = channel();
        let show = move || {
            // Linux has it for each thread. Without it the answers are only more in the way.
            let _ = nice(NICE);
            match live.show() {
                Err(error) => tell(&format!("tracer-agent: --live: {error}")),
                // What has its events in memory is refused before.
                Ok(Shown::NotThere | Shown::Finished(_)) => {
                    tell("tracer-agent: --live: the recording was over before it could be shown");
                }
                Ok(Shown::Ended(_)) => {}
            }
            // Nobody may be there any more who wants to know.
            let _ = end.send(());
        };
        std::thread::Builder::new().name("live".to_owned()).spawn(show)?;
        Ok(Self { topic, ended, go_on })
    }

    /// Lets it show the rest, when the file is finished. Whoever does not read it is not waited for.
    pub(super) fn finish(self, file: &Path) {
        let Self { topic, ended, go_on } = self;
        if ended.recv_timeout(PATIENCE).is_err() {
            drop(go_on);
            tell(&format!(
                "tracer-agent: --live has not come to the end; `tracer-agent analyze {} {}` answers about all",
                topic.name(),
                file.display()
            ));
        }
    }
}
