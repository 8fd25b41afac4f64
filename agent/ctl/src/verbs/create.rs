//! `create` and `set-session`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};

use super::super::address::{Address, Relay, is_relay, shown_place};
use super::super::at::{At, Done, Failure};
use super::super::document::Node;
use super::super::{home, nodes, text};
use super::set_current;
use api::{Code, Format, NewSession, SessionMode, Summary};
use stdx::utc;

/// What `lttng` prints of an address that is none.
pub(super) const UNRECOGNIZED_URL: &str = "Unrecognized URL format.";

/// Create a recording session, which becomes the current one
#[derive(Args, Debug, Default)]
pub struct Create {
    /// Its name [default: auto- and date and time]
    #[arg(value_name = "SESSION")]
    pub name: Option<String>,

    /// The directory to write to [default: one below $LTTNG_HOME/lttng-traces or $HOME/lttng-traces]
    #[arg(short, long, value_name = "DIR", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub output: Option<PathBuf>,

    /// Write nothing
    #[arg(long)]
    pub no_output: bool,

    /// Keep the newest events in memory until a snapshot is taken
    #[arg(long)]
    pub snapshot: bool,

    /// Let viewers read it meanwhile, from the session daemon, or with --set-url=net://HOST from a relay
    /// daemon; microseconds that events wait at most [default: 1000000]. Whoever can connect there can read
    /// it: by default, all users of this machine
    #[arg(long, value_name = "DELAYUS", num_args = 0..=1, default_missing_value = "1000000")]
    pub live: Option<String>,

    /// Where to write or send to: file://DIR, or net://HOST:CONTROL:DATA/DIR, of which HOST is enough. What
    /// is sent is neither encrypted nor authenticated
    #[arg(short = 'U', long, value_name = "URL")]
    pub set_url: Option<String>,

    /// Where the relay daemon takes commands; with --data-url
    #[arg(short = 'C', long, value_name = "URL")]
    pub ctrl_url: Option<String>,

    /// Where the relay daemon takes data; with --ctrl-url
    #[arg(short = 'D', long, value_name = "URL")]
    pub data_url: Option<String>,

    /// Taken and not used: buffers are in memory that no file shows
    #[arg(long, value_name = "DIR")]
    pub shm_path: Option<PathBuf>,

    /// What is written: trace-dat or lttng [default: trace-dat; lttng under the name lttng]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub format: Option<Format>,
}

fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "trace-dat" => Ok(Format::TraceDat),
        "lttng" => Ok(Format::Lttng),
        _ => Err("formats are trace-dat and lttng".to_owned()),
    }
}

/// The name that a session gets, and its name in the default directory.
fn names(given: Option<&str>, seconds: u64) -> (String, String) {
    let now = utc::date_and_time(seconds);
    match given {
        Some(name) => (name.to_owned(), format!("{name}-{now}")),
        None => (format!("auto-{now}"), format!("auto-{now}")),
    }
}

impl Create {
    pub fn run(&self, at: &mut At) -> Done {
        let new = self.session(at, utc::seconds_now())?;
        if self.shm_path.is_some() {
            at.say.warning("--shm-path is not used: buffers are in memory that no file shows");
        }
        let created = at.client()?.create(&new)?;
        let NewSession { mode, snapshot_output, format, .. } = new;
        at.say.print(&told(&created.name, &mode, snapshot_output.as_deref()));
        if let Some(url) = &created.viewers {
            at.say.print(&format!("Viewers read it with babeltrace2 --input-format=lttng-live {url}\n"));
        }
        let summary = Summary { name: created.name, active: false, mode, format, created_at: 0, uid: 0 };
        at.output.push(Node::Parts("session", nodes::summary(&summary)));
        set_current(at, &summary.name)
    }

    /// What is asked of the daemon.
    fn session(&self, at: &At, seconds: u64) -> Result<NewSession, Failure> {
        if self.snapshot && self.live.is_some() {
            return Err(Failure::new("Snapshot and live modes are mutually exclusive."));
        }
        let (name, below) = names(self.name.as_deref(), seconds);
        if name.is_empty() {
            return Err(Failure::new(Code::Invalid.text()));
        }
        if name.contains('/') {
            return Err(Failure::new(Code::SessionName.text()));
        }
        let address = self.address()?;
        let directory = |address: Option<Address>| -> Result<Option<PathBuf>, Failure> {
            match address {
                _ if self.no_output => Ok(None),
                Some(address) => Ok(Some(address.place())),
                None => Ok(Some(at.home()?.traces().join(below))),
            }
        };
        let mut snapshot_output = None;
        let mode = match (&self.live, address) {
            (Some(delay), address) => live(delay, address, || directory(None))?,
            (None, address) if self.snapshot => {
                snapshot_output = directory(address)?;
                SessionMode::Snapshot
            }
            (None, Some(Address::Relay(relay))) => SessionMode::Network { url: relay.url() },
            (None, address) => SessionMode::Local { output: directory(address)? },
        };
        let is_sent = matches!(mode, SessionMode::Network { .. } | SessionMode::Live { .. })
            || snapshot_output.as_ref().is_some_and(|place| is_relay(place));
        // Viewers and relay daemons take nothing else.
        let is_trace = is_sent || matches!(mode, SessionMode::Served { .. });
        let format = self.format.unwrap_or(if is_trace { Format::Lttng } else { at.name.format() });
        let state_by_rule = format == Format::Lttng;
        Ok(NewSession { name: Some(name), mode, snapshot_output, format, state_by_rule })
    }

    /// Where it writes to, if that is said.
    fn address(&self) -> Result<Option<Address>, Failure> {
        let invalid = || Failure::new(UNRECOGNIZED_URL);
        match (&self.output, &self.set_url, &self.ctrl_url, &self.data_url) {
            (Some(path), None, None, None) => local(path).map(Some),
            (None, Some(url), None, None) => Address::parse(url).map(Some).ok_or_else(invalid),
            (None, None, Some(control), Some(data)) => {
                let relay = Relay::of_both(control, data).ok_or_else(invalid)?;
                Ok(Some(Address::Relay(relay)))
            }
            (None, None, None, None) => Ok(None),
            (None, None, _, _) => Err(Failure::new("Both control and data URLs must be specified.")),
            _ => {
                Err(Failure::new("Only one of --output, --set-url, and --ctrl-url with --data-url is given."))
            }
        }
    }
}

fn local(path: &Path) -> Result<Address, Failure> {
    // Nothing is the directory that one is in.
    let path = home::absolute(if path.as_os_str().is_empty() { ".".as_ref() } else { path });
    path.map(Address::Local).map_err(|error| Failure::new(format!("Cannot find the directory: {error}")))
}

/// How it is read meanwhile.
fn live(
    delay: &str,
    address: Option<Address>,
    usual: impl FnOnce() -> Result<Option<PathBuf>, Failure>,
) -> Result<SessionMode, Failure> {
    let timer_us = delay.parse().ok().filter(|delay| *delay > 0);
    let wrong = || Failure::new(format!("Wrong value for --live parameter: {delay}"));
    let timer_us = timer_us.ok_or_else(wrong)?;
    let output = match address {
        Some(Address::Relay(relay)) => return Ok(SessionMode::Live { url: relay.url(), timer_us }),
        Some(Address::Local(path)) => Some(path),
        None => usual()?,
    };
    let none = || Failure::new("A live session has an output: without --no-output");
    Ok(SessionMode::Served { output: output.ok_or_else(none)?, timer_us })
}

/// What is said of a new session.
fn told(name: &str, mode: &SessionMode, snapshots: Option<&Path>) -> String {
    let to = text::output(mode);
    match mode {
        SessionMode::Snapshot => {
            let place =
                snapshots.map(|place| format!("Default snapshot output set to {}\n", shown_place(place)));
            format!(
                "Snapshot session {name} created.\n{}Every channel enabled for this session will be set to \
                 mmap output and default to overwrite mode.\n",
                place.unwrap_or_default()
            )
        }
        SessionMode::Live { timer_us, .. } | SessionMode::Served { timer_us, .. } => format!(
            "Live session {name} created.\nTraces will be output to {to}\nLive timer interval set to \
             {timer_us} us\n"
        ),
        SessionMode::Local { output: None } => format!("Session {name} created.\n"),
        _ => format!("Session {name} created.\nTraces will be output to {to}\n"),
    }
}

/// Make a session the current one
#[derive(Args, Debug)]
pub struct SetSession {
    /// Session
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
}

impl SetSession {
    pub fn run(&self, at: &mut At) -> Done {
        let name = self.session.clone().ok_or_else(|| Failure::new("Missing session name"))?;
        if !at.client()?.sessions()?.iter().any(|there| there.name == name) {
            return Err(Failure::new(format!("Session '{name}' not found")));
        }
        set_current(at, &name)?;
        at.say.line(&format!("Session set to {name}"));
        at.output.push(Node::Items("sessions", vec![Node::Parts("session", vec![Node::text("name", name)])]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::at::tests::Desk;
    use super::*;
    use api::Created;

    fn created(desk: &mut Desk, name: &str) {
        desk.story
            .answers("POST /v1/sessions", &Created { name: name.to_owned(), output: None, viewers: None });
    }

    #[test]
    fn a_session_writes_where_it_is_told_to() {
        let mut desk = Desk::new();
        created(&mut desk, "a");
        desk.says("create a -o /tmp/x", 0, "Session a created.\nTraces will be output to /tmp/x\n", "");
        assert_eq!(desk.home().current().as_deref(), Some("a"));
        assert_eq!(
            desk.story.asked(),
            ["POST /v1/sessions {\"name\":\"a\",\"mode\":{\"local\":{\"output\":\"/tmp/x\"}},\
              \"snapshot_output\":null,\"format\":\"lttng\",\"state_by_rule\":true}"]
        );
    }

    #[test]
    fn other_modes() {
        let mut desk = Desk::new();
        for _ in 0..3 {
            created(&mut desk, "s");
        }
        let viewers = Some("net://localhost/host/h/s".to_owned());
        desk.story.answers("POST /v1/sessions", &Created { name: "s".to_owned(), output: None, viewers });
        desk.says("create s --no-output", 0, "Session s created.\n", "");
        let snapshot = "Snapshot session s created.\nDefault snapshot output set to /d\nEvery channel enabled \
                        for this session will be set to mmap output and default to overwrite mode.\n";
        desk.says("create s --snapshot -U file:///d", 0, snapshot, "");
        let live = "Live session s created.\nTraces will be output to tcp4://127.0.0.1:5342/ [data: 5343]\nLive \
                    timer interval set to 2000000 us\n";
        desk.says("create --live=2000000 s -U net://127.0.0.1", 0, live, "");
        let served = "Live session s created.\nTraces will be output to /tmp/x\nLive timer interval set to \
                      1000000 us\nViewers read it with babeltrace2 --input-format=lttng-live \
                      net://localhost/host/h/s\n";
        desk.says("create s --live -o /tmp/x", 0, served, "");
        assert_eq!(
            desk.story.asked().last().map(String::as_str),
            Some(
                "POST /v1/sessions {\"name\":\"s\",\"mode\":{\"served\":{\"output\":\"/tmp/x\",\"timer_us\":1000000}},\
                 \"snapshot_output\":null,\"format\":\"lttng\",\"state_by_rule\":true}"
            )
        );
        let nowhere = "Error: A live session has an output: without --no-output\n";
        desk.says("create s --live --no-output", 1, "", nowhere);
    }

    #[test]
    fn wrong_arguments_are_told() {
        let desk = Desk::new();
        desk.says("create a --live x", 1, "", "Error: Wrong value for --live parameter: x\n");
        let both = "Error: Snapshot and live modes are mutually exclusive.\n";
        desk.says("create --snapshot --live", 1, "", both);
        desk.says("create a/b", 1, "", "Error: Invalid character found in session name\n");
        for address in
            ["-U=", "--set-url=", "-U foo://x", "-C= -D=", "-C tcp://1.2.3.4 -D=", "-C= -D tcp://1.2.3.4"]
        {
            let line = format!("create a {address}");
            desk.says(&line, 1, "", "Error: Unrecognized URL format.\n");
        }
        desk.says("create -x", 2, "", "Error: Unrecognized argument used with 'create' command\n");
        desk.says("create a b", 1, "", "Error: Unknown argument: b\n");
        desk.says("create --output", 2, "", "Error: Unrecognized argument used with 'create' command\n");
    }

    #[test]
    fn names_have_the_date() {
        assert_eq!(names(None, 0), ("auto-19700101-000000".into(), "auto-19700101-000000".into()));
        assert_eq!(names(Some("a"), 0), ("a".into(), "a-19700101-000000".into()));
    }
}
