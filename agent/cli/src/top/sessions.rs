//! `top --session` and `top --sessions`: how full the rings of the daemon's sessions are, and what they
//! record and lose.
//!
//! | file | subject |
//! |---|---|
//! | `rows` | from what the daemon tells to rows |
//! | `text` | rows as text |
//! | `view` | rows on a terminal |

mod rows;
mod text;
mod view;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{ArgMatches, Args, parser::ValueSource};

use self::{
    rows::{Rows, Table},
    view::View,
};
use super::{Over, Screen, TopArgs, in_batch, on_screen, write};
use crate::record::until;
use crate::record::until::{End, Until};
use crate::signals::Signals;
use crate::{CliError, json_line};
use api::Code;
use ctl::client::{Client, ClientError};
use ctl::socket;
use ctl::socket::UnixTransport;

/// Which sessions, instead of events.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sessions of the daemon")]
pub struct SessionsArgs {
    /// Show how full the rings of this session of the daemon are, and what it records and loses
    #[arg(long, value_name = "NAME", conflicts_with = "sessions")]
    pub session: Option<String>,

    /// Show the sums of all sessions that the daemon tells of
    #[arg(long)]
    pub sessions: bool,

    /// The daemon's socket [default: $TRACER_AGENT_SOCKET, or /run/tracer-agent/daemon.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Whose sessions, as root
    #[arg(long, value_name = "N")]
    pub owner_uid: Option<u32>,
}

/// Options that go with those of sessions, by clap's ids.
const WITH: [&str; 13] = [
    "session",
    "sessions",
    "socket",
    "owner_uid",
    "batch",
    "iterations",
    "rows",
    "color",
    "quiet",
    "json",
    "interval",
    "duration",
    "verbose",
];

/// What the daemon is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// A session, or all of them.
    session: Option<String>,
    socket: PathBuf,
    owner: Option<u32>,
}

impl SessionsArgs {
    /// What is asked for, if it is about sessions.
    pub(super) fn asked(&self, matches: &ArgMatches) -> Result<Option<Asked>, CliError> {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if self.session.is_none() && !self.sessions {
            let of_sessions = [("socket", "--socket"), ("owner_uid", "--owner-uid")];
            return match of_sessions.iter().find(|(id, _)| is_given(id)) {
                Some((_, option)) => {
                    Err(CliError::Usage(format!("{option} goes with --session NAME or --sessions")))
                }
                None => Ok(None),
            };
        }
        let command = TopArgs::augment_args(clap::Command::new("top"));
        let mut ids = command.get_arguments().map(|arg| arg.get_id().as_str());
        if let Some(id) = ids.find(|id| is_given(id) && !WITH.contains(id)) {
            let option =
                if id == "command" { "COMMAND".to_owned() } else { format!("--{}", id.replace('_', "-")) };
            return Err(CliError::Usage(format!(
                "{option} is about events that are counted; --session and --sessions show what sessions of the \
                 daemon record"
            )));
        }
        let socket = socket::chosen(self.socket.as_deref());
        Ok(Some(Asked { session: self.session.clone(), socket, owner: self.owner_uid }))
    }
}

/// Looks at sessions.
struct Looking<'a> {
    asked: &'a Asked,
    client: Client,
    rows: Rows,
}

impl Looking<'_> {
    fn look(&mut self) -> Result<Table, CliError> {
        let Asked { session, owner, .. } = self.asked;
        let usages = match session {
            Some(name) => self.client.usage(*owner, name).map(|usage| vec![usage]),
            None => self.client.usages(*owner),
        };
        let usages = usages.map_err(|error| refused(self.asked, &error))?;
        Ok(self.rows.look(&usages, session.is_none()))
    }
}

fn refused(asked: &Asked, error: &ClientError) -> CliError {
    let name = asked.session.as_deref().unwrap_or_default();
    CliError::daemon(error, || match error.code() {
        Code::NoSession => format!(
            "there is no session {name}; `tracer-agent top --sessions` shows those there are, and as root \
             --owner-uid N names another user's"
        ),
        _ => format!("cannot look at sessions: {}", error.text()),
    })
}

/// Shows them until it is to end.
pub(super) fn run((args, interval): (&TopArgs, Duration), asked: &Asked) -> Result<u8, CliError> {
    // Before the first thread starts, so that no thread takes a signal from the descriptor.
    let signals = Signals::block_others().map_err(CliError::system("block signals"))?;
    signals.block_ends().map_err(CliError::system("block signals"))?;
    let transport = UnixTransport::new(&asked.socket).map_err(CliError::system("ask the daemon"))?;
    let mut looking = Looking { asked, client: Client::new(Box::new(transport)), rows: Rows::default() };
    // Rates are those since a look before; and what is refused is told before anything is drawn.
    let first = looking.look()?;
    let mut until = Until::new(signals, None, Vec::new());
    let deadline = args.record.duration.map(|duration| Instant::now() + Duration::from_nanos(duration));
    if args.is_batch() {
        let mut each = || print(args, &looking.look()?);
        let over = in_batch((&args.shown, interval), &mut each, &mut until, deadline)?;
        if over != Over::Unread {
            print(args, &Table { last: true, ..looking.look()? })?;
        }
    } else {
        let screen = Screen::prepare(args.shown.color.wanted())?;
        let page = View::new(interval, screen.has_colour(), asked.session.is_none(), first);
        let mut look = || looking.look();
        on_screen((&args.shown, interval), &mut look, (&mut until, deadline), (screen, page))?;
    }
    Ok(until::exit_code(End::Asked, until.into_parts().1))
}

fn print(args: &TopArgs, table: &Table) -> Result<bool, CliError> {
    let text = if args.record.maps.json {
        json_line(table)?
    } else {
        format!("{}\n", text::text(table, args.shown.rows))
    };
    write(&text)
}
