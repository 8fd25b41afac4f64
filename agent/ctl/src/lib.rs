//! The session daemon's client: `tracer-agent ctl COMMAND`, and the same under the name `lttng`.
//!
//! Commands, options, texts and exit codes are those of `lttng` 2.13 (lttng(1)); docs/lttng.md lists the
//! differences.
//!
//! **Data flow:** words of a command line → a verb ([`verbs`]) → requests ([`client::Client`]) over a
//! [`Transport`](client::Transport) → replies → text, XML or JSON.
//!
//! **Guarantees**
//!
//! - A command prints what the daemon returns; tests use invented replies.
//! - A request that fails gives LTTng's exit code for that failure.
//!
//! **Must not know:** how the daemon records; it builds without the recorder.
//!
//! # Example
//!
//! ```no_run
//! use ctl::client::Client;
//! use ctl::socket::{UnixTransport, chosen};
//!
//! let mut daemon = Client::new(Box::new(UnixTransport::new(&chosen(None))?));
//! for session in daemon.sessions()? {
//!     println!("{}", session.name);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`client`] | the requests as methods |
//! | [`socket`] | the connection to the daemon |
//! | `at` | where a command runs: daemon, user's directory, output |
//! | [`verbs`] | the commands |
//! | `text`, `nodes`, `document` | sessions as text, and as XML and JSON |
//! | `saved` | files of sessions |
//! | `address`, `context`, `level`, `units`, `home` | values that users and files contain |

#![forbid(unsafe_code)]

mod address;
mod at;
pub mod client;
mod context;
mod document;
mod home;
mod level;
mod nodes;
mod saved;
pub mod socket;
#[cfg(test)]
mod story;
mod text;
mod units;
pub mod verbs;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(any(test, fuzzing))]
pub use saved::{fuzz_saved, fuzz_session};

use at::{At, COMMAND_ERROR, Form, Name, Reach, Say, UNDEFINED};
use home::Home;
use verbs::{
    activity, channel, context as contexts, create, destroy, event, list, load, map, program, rotate, save,
};
use verbs::{snapshot, track, trigger, view};

/// Names the program to start as session daemon, where no option does (lttng(1)).
const SESSIOND_PATH: &str = "LTTNG_SESSIOND_PATH";

/// Options of all commands.
#[derive(Args, Clone, Debug, Default)]
pub struct General {
    /// Answer as XML: LTTng's machine interface
    #[arg(short, long, value_name = "TYPE", conflicts_with = "json")]
    pub mi: Option<String>,

    /// Answer as JSON, with the content of the machine interface
    #[arg(long)]
    pub json: bool,

    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,

    /// Say more; repeatable
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,

    /// Do not start the session daemon
    #[arg(short, long, conflicts_with = "sessiond_path")]
    pub no_sessiond: bool,

    /// The program to start as session daemon [default: $LTTNG_SESSIOND_PATH, or this one]
    #[arg(long, value_name = "PATH")]
    pub sessiond_path: Option<PathBuf>,

    /// Taken as LTTng takes it: relay daemons are not started
    #[arg(long, value_name = "PATH")]
    pub relayd_path: Option<PathBuf>,

    /// Taken as LTTng takes it: who may use the daemon is its own choice
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,

    /// The daemon's socket [default: $TRACER_AGENT_SOCKET, or /run/tracer-agent/daemon.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl General {
    fn form(&self) -> Form {
        match (&self.mi, self.json) {
            (Some(_), _) => Form::Xml,
            (None, true) => Form::Json,
            (None, false) => Form::Text,
        }
    }

    fn socket(&self) -> PathBuf {
        socket::chosen(self.socket.as_deref())
    }

    /// Root's first command starts the daemon.
    fn starts(&self) -> Option<PathBuf> {
        if self.no_sessiond || !rustix::process::geteuid().is_root() {
            return None;
        }
        let of_environment = || std::env::var_os(SESSIOND_PATH).map(PathBuf::from);
        self.sessiond_path.clone().or_else(of_environment).or_else(|| std::env::current_exe().ok())
    }
}

/// Control recording sessions of the session daemon (tracer-agent daemon)
///
/// The commands are those of LTTng: create a session, enable events, start, stop, destroy. Under the name
/// lttng, by a symbolic link to this program, they write LTTng's format by default instead of trace.dat
/// files. The first command of root starts the daemon if none is there.
#[derive(Args, Debug)]
pub struct CtlArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub general: General,

    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// The command line under the name `lttng`.
#[derive(Parser, Debug)]
#[command(name = "lttng", disable_version_flag = true, disable_help_subcommand = true, max_term_width = 100)]
struct Lttng {
    #[command(flatten)]
    args: CtlArgs,
}

/// The commands.
#[derive(Subcommand, Debug)]
#[expect(missing_docs, reason = "the arguments' documentation is that of the command")]
pub enum Verb {
    AddContext(contexts::AddContext),
    AddMap(map::AddMap),
    AddTrigger(trigger::AddTrigger),
    Create(create::Create),
    Clear(activity::Clear),
    Destroy(destroy::Destroy),
    DisableChannel(channel::DisableChannel),
    DisableEvent(Box<event::DisableEvent>),
    EnableChannel(Box<channel::EnableChannel>),
    EnableEvent(Box<event::EnableEvent>),
    Help(program::Help),
    List(list::List),
    ListTriggers(trigger::ListTriggers),
    Listen(trigger::Listen),
    Load(load::Load),
    Regenerate(activity::Regenerate),
    RemoveMap(map::RemoveMap),
    RemoveTrigger(trigger::RemoveTrigger),
    Rotate(rotate::Rotate),
    EnableRotation(rotate::EnableRotation),
    DisableRotation(rotate::DisableRotation),
    Save(save::Save),
    SetSession(create::SetSession),
    ShowMaps(map::ShowMaps),
    Snapshot(snapshot::Snapshot),
    Start(activity::Start),
    Status(list::Status),
    Stop(activity::Stop),
    Track(track::Track),
    Untrack(track::Untrack),
    Version(program::Version),
    View(view::View),
}

impl Verb {
    /// Its name in documents, and whether it does something rather than only tell.
    fn document(&self) -> (&'static str, bool) {
        match self {
            Self::AddContext(_) => ("add-context", true),
            Self::AddMap(_) => ("add-map", true),
            Self::AddTrigger(_) => ("add-trigger", true),
            Self::Create(_) => ("create", true),
            Self::Clear(_) => ("clear", true),
            Self::Destroy(_) => ("destroy", true),
            Self::DisableChannel(_) => ("disable-channel", true),
            Self::DisableEvent(_) => ("disable-event", true),
            Self::EnableChannel(_) => ("enable-channel", true),
            Self::EnableEvent(_) => ("enable-event", true),
            Self::Help(_) => ("help", false),
            Self::List(_) | Self::Status(_) => ("list", false),
            // LTTng's document has this name.
            Self::ListTriggers(_) => ("list-trigger", false),
            Self::Listen(_) => ("listen", false),
            Self::Load(_) => ("load", true),
            Self::Regenerate(_) => ("regenerate", true),
            Self::RemoveMap(_) => ("remove-map", true),
            Self::RemoveTrigger(_) => ("remove-trigger", true),
            Self::Rotate(_) => ("rotate", true),
            Self::EnableRotation(_) => ("enable-rotation", true),
            Self::DisableRotation(_) => ("disable-rotation", true),
            Self::Save(_) => ("save", true),
            Self::SetSession(_) => ("set-session", true),
            Self::ShowMaps(_) => ("show-maps", false),
            Self::Snapshot(_) => ("snapshot", true),
            Self::Start(_) => ("start", true),
            Self::Stop(_) => ("stop", true),
            Self::Track(_) => ("track", true),
            Self::Untrack(_) => ("untrack", true),
            Self::Version(_) => ("version", false),
            Self::View(_) => ("view", true),
        }
    }

    fn run(&self, at: &mut At) -> u8 {
        let done = match self {
            Self::AddContext(args) => args.run(at),
            Self::AddMap(args) => args.run(at),
            Self::AddTrigger(args) => args.run(at),
            Self::Create(args) => args.run(at),
            Self::Clear(args) => args.run(at),
            Self::Destroy(args) => args.run(at),
            Self::DisableChannel(args) => args.run(at),
            Self::DisableEvent(args) => args.run(at),
            Self::EnableChannel(args) => args.run(at),
            Self::EnableEvent(args) => args.run(at),
            Self::Help(args) => args.run(at),
            Self::List(args) => args.run(at),
            Self::ListTriggers(args) => args.run(at),
            Self::Listen(args) => {
                let done = args.run(at);
                return at.end_without_document(done);
            }
            Self::Load(args) => args.run(at),
            Self::Regenerate(args) => args.run(at),
            Self::RemoveMap(args) => args.run(at),
            Self::RemoveTrigger(args) => args.run(at),
            Self::Rotate(args) => args.run(at),
            Self::EnableRotation(args) => args.run(at),
            Self::DisableRotation(args) => args.run(at),
            Self::Save(args) => args.run(at),
            Self::SetSession(args) => args.run(at),
            Self::ShowMaps(args) => args.run(at),
            Self::Snapshot(args) => args.run(at),
            Self::Start(args) => args.run(at),
            Self::Status(_) => list::Status::run(at),
            Self::Stop(args) => args.run(at),
            Self::Track(args) => args.run(at),
            Self::Untrack(args) => args.run(at),
            Self::Version(_) => {
                program::Version::run(at);
                Ok(())
            }
            Self::View(args) => args.run(at),
        };
        let (name, changes) = self.document();
        at.end(name, changes, done)
    }
}

/// The description of the command line.
fn described(name: Name) -> clap::Command {
    let mut command = Lttng::command();
    if name == Name::Ctl {
        command = command.name("ctl").bin_name(name.typed());
    }
    command.build();
    command
}

/// Runs `tracer-agent ctl`; gives the exit code.
pub fn run(args: &CtlArgs) -> u8 {
    let mut say = Say::standard(Form::Text, args.general.quiet);
    finish(args, &mut say, |general| standard(Name::Ctl, general))
}

/// Whether a program is called by LTTng's name.
pub fn is_lttng(program: Option<&OsString>) -> bool {
    program.and_then(|program| Path::new(program).file_name()) == Some(OsStr::new("lttng"))
}

/// Runs `lttng` with what stands behind the program's name.
pub fn run_as_lttng(words: &[OsString]) -> ExitCode {
    let mut say = Say::standard(Form::Text, false);
    run_words(Name::Lttng, words, &mut say, |general| standard(Name::Lttng, general)).into()
}

fn standard(name: Name, general: &General) -> At {
    let say = Say::standard(general.form(), general.quiet);
    let home = Home::find(|variable| std::env::var_os(variable));
    At::new(name, say, home, Reach { socket: general.socket(), starts: general.starts() })
}

fn finish(args: &CtlArgs, say: &mut Say, at: impl FnOnce(&General) -> At) -> u8 {
    if args.general.mi.as_ref().is_some_and(|form| !form.eq_ignore_ascii_case("xml")) {
        say.error("MI output format not supported");
        return MI_NOT_SUPPORTED;
    }
    let mut at = at(&args.general);
    if args.general.verbose > 0 {
        at.say.debug(&format!("the daemon's socket is {}", args.general.socket().display()));
    }
    args.verb.run(&mut at)
}

/// What `lttng` ends with then.
const MI_NOT_SUPPORTED: u8 = 165;

/// Runs a command line as `lttng` does.
fn run_words(name: Name, words: &[OsString], say: &mut Say, at: impl FnOnce(&General) -> At) -> u8 {
    let command = described(name);
    if let Some(text) = listing(&command, words) {
        say.print(&text);
        return 0;
    }
    let all = std::iter::once(OsString::from(name.typed())).chain(words.iter().cloned());
    let parsed = command.clone().try_get_matches_from(all);
    match parsed.and_then(|matches| Lttng::from_arg_matches(&matches)) {
        Ok(lttng) => finish(&lttng.args, say, at),
        Err(error) => refuse(&command, &error, words, say),
    }
}

/// What the options that only list answer: of the program, and of each command.
fn listing(command: &clap::Command, words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map_while(|word| word.to_str()).collect();
    let verb = words.iter().find_map(|word| command.find_subcommand(word));
    match words.iter().find(|word| word.starts_with("--list-") || matches!(**word, "-V" | "--version"))? {
        &"--list-commands" if verb.is_none() => {
            let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            Some(verbs.join("\n") + "\n")
        }
        &"--list-options" => Some(options(verb.unwrap_or(command))),
        &"-V" | &"--version" if verb.is_none() => {
            let (version, of) = (env!("CARGO_PKG_VERSION"), program::INTERFACE);
            Some(format!("{} (tracer-agent {version}, commands of LTTng {of})\n", command.get_name()))
        }
        _ => None,
    }
}

fn options(command: &clap::Command) -> String {
    if let Some(known) = trigger::options(command.get_name()) {
        return known.to_owned();
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_positional());
    let names = arguments.flat_map(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}\n"));
        long.into_iter().chain(argument.get_short().map(|short| format!("-{short}\n")))
    });
    names.collect::<String>() + "--list-options\n"
}

/// Says what is wrong with a command line, as `lttng` does; gives the exit code.
fn refuse(command: &clap::Command, error: &clap::Error, words: &[OsString], say: &mut Say) -> u8 {
    if !error.use_stderr() {
        say.print(&error.render().to_string());
        return 0;
    }
    let verb = words.iter().filter_map(|word| word.to_str()).find_map(|word| command.find_subcommand(word));
    let Some(verb) = verb else {
        return no_command(command, error, words, say);
    };
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        // LTTng knows what `regenerate` can be followed by, as if those were options.
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word)))
            if !word.starts_with('-') && verb.get_name() != "regenerate" =>
        {
            say.error(&format!("Unknown argument: {word}"));
            COMMAND_ERROR
        }
        _ => {
            say.error(&format!("Unrecognized argument used with '{}' command", verb.get_name()));
            UNDEFINED
        }
    }
}

fn no_command(command: &clap::Command, error: &clap::Error, words: &[OsString], say: &mut Say) -> u8 {
    match (error.kind(), words.is_empty()) {
        (ErrorKind::InvalidSubcommand, _) => {
            let wrong = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(word)) => word.as_str(),
                _ => "",
            };
            let program = command.get_name();
            say.line(&format!("{program}: {wrong} is not an {program} command. See '{program} --help'."));
            UNDEFINED
        }
        (_, true) => {
            say.print(&command.clone().render_usage().to_string());
            say.line("");
            COMMAND_ERROR
        }
        _ => {
            say.error(error.to_string().trim_end().trim_start_matches("error: "));
            COMMAND_ERROR
        }
    }
}
