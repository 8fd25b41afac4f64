//! A session daemon of a test. Users send requests with curl, root from this process: tests poll, and
//! starting a client takes many times as long as an answer.

use std::{
    fs::Permissions,
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Ended, Running, agent, program, wait_for},
    http,
    supervisor::Supervisor,
};

/// A group that Debian always has, whose members may have sessions in tests.
pub const GROUP: &str = "games";
/// Its number (Debian Policy, section 9.2.2: ids below 100 are the same everywhere).
pub const GID: u32 = 60;

/// How a daemon ends that has handed its sessions over.
pub const HANDED_OVER: i32 = 117;

/// How long an answer may take to begin, or to go on.
const ANSWER: Duration = Duration::from_mins(2);

/// A user that asks.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// Its number; of the test's own, without an entry in passwd.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Root.
pub const ROOT: User = User { uid: 0, gid: 0 };

/// A daemon with a directory of its own.
#[derive(Debug)]
pub struct Daemon {
    dir: TempDir,
    /// That of its state, where it is not in its own.
    state: Option<PathBuf>,
    /// Options beside those that all have.
    options: Vec<String>,
    /// The mask of new files that it is started with.
    umask: u32,
    /// What its environment has besides: `NAME=VALUE`.
    environment: Vec<String>,
    /// A program that starts it, and that program's arguments.
    starter: Vec<String>,
    /// What keeps descriptors for it.
    supervisor: Option<Supervisor>,
    process: Option<Running>,
}

impl Daemon {
    /// Starts one, and waits until it accepts connections.
    pub fn start() -> Self {
        Self::start_with(&[], 0o022)
    }

    /// The same with more options, and a mask of new files.
    pub fn start_with(options: &[&str], umask: u32) -> Self {
        let mut daemon = Self::new();
        daemon.options = options.iter().map(|&option| option.to_owned()).collect();
        daemon.umask = umask;
        daemon.start_again();
        daemon
    }

    /// One that is not started.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (environment, starter) = (Vec::new(), Vec::new());
        Self {
            dir,
            state: None,
            options: Vec::new(),
            umask: 0o022,
            environment,
            starter,
            supervisor: None,
            process: None,
        }
    }

    /// The same by way of a program that becomes it.
    pub fn start_through(starter: &[String]) -> Self {
        let mut daemon = Self::new();
        daemon.starter = starter.to_vec();
        daemon.start_again();
        daemon
    }

    /// Starts one with a configuration, in a directory of its own.
    pub fn start_configured(text: &str) -> Self {
        Self::new().configured(text)
    }

    /// The same by way of a program that becomes it.
    pub fn start_configured_through(starter: &[String], text: &str) -> Self {
        let mut daemon = Self::new();
        daemon.starter = starter.to_vec();
        daemon.configured(text)
    }

    /// The same, with its state in a directory of somebody else's.
    pub fn start_configured_in(state: &Path, text: &str) -> Self {
        let mut daemon = Self::new();
        daemon.state = Some(state.to_owned());
        daemon.configured(text)
    }

    fn configured(self, text: &str) -> Self {
        let mut daemon = self;
        let config = daemon.config();
        std::fs::create_dir(config.parent().unwrap()).unwrap();
        std::fs::write(&config, text).unwrap();
        daemon.options = vec!["--config".to_owned(), config.to_str().unwrap().to_owned()];
        daemon.start_again();
        daemon
    }

    /// The first file of its configuration.
    pub fn config(&self) -> PathBuf {
        self.path().join("etc/agent.toml")
    }

    /// Changes its configuration, and waits until it was read; gives what has come of it.
    #[track_caller]
    pub fn configure(&self, text: &str) -> Value {
        self.read_after(|| std::fs::write(self.config(), text).unwrap())
    }

    /// Does something on which the configuration is read, and waits for that; gives what has come of it.
    #[track_caller]
    pub fn read_after(&self, act: impl FnOnce()) -> Value {
        let times = |told: &Value| told["reloads"].as_u64().unwrap() + told["refused"].as_u64().unwrap();
        let before = times(&self.tell("GET", "/v1/configuration", None));
        act();
        wait_for("the configuration to be read", || {
            let told = self.tell("GET", "/v1/configuration", None);
            (times(&told) > before).then(|| told["last"].clone())
        })
    }

    /// Starts one for which something keeps descriptors, as systemd does.
    pub fn start_supervised() -> Self {
        Self::start().supervised()
    }

    /// Starts it again, with something that keeps descriptors for it.
    #[must_use]
    pub fn supervised(mut self) -> Self {
        self.end().expect(0);
        self.supervisor = Some(Supervisor::start(self.path()));
        self.start_again();
        self
    }

    /// Starts it again, with a variable in its environment.
    #[track_caller]
    #[must_use]
    pub fn with_environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self.end().expect(0);
        self.start_again();
        self
    }

    /// Gives it more options for its next start.
    pub fn add_options(&mut self, options: &[&str]) {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
    }

    /// Lets it hand its sessions over, and waits until it has ended.
    #[track_caller]
    pub fn let_go(&mut self) -> Ended {
        let process = self.process.take().unwrap();
        process.signal(libc::SIGUSR2);
        process.wait().expect(HANDED_OVER)
    }

    /// The same, and another one goes on.
    #[track_caller]
    pub fn replace(&mut self) {
        self.let_go();
        self.start_again();
    }

    /// What keeps descriptors for it.
    pub fn supervisor(&self) -> &Supervisor {
        self.supervisor.as_ref().unwrap()
    }

    /// What it has said on stderr.
    pub fn said(&self) -> String {
        self.process.as_ref().unwrap().said()
    }

    /// Whether it has said something on stderr.
    pub fn has_said(&self, text: &str) -> bool {
        self.process.as_ref().unwrap().has_said(text)
    }

    /// Starts another one in the place of one that has ended.
    pub fn start_again(&mut self) {
        let state = self.state.clone().unwrap_or_else(|| self.path().join("state"));
        let socket = self.socket();
        let daemon = agent(
            self.path(),
            [
                "daemon",
                "--socket",
                socket.to_str().unwrap(),
                "--state",
                state.to_str().unwrap(),
                "--group",
                GROUP,
            ],
        );
        let mut command = program(self.path(), "sh", ["-c", "umask $0 && exec env \"$@\""]);
        command
            .arg(format!("{:o}", self.umask))
            .args(&self.environment)
            .args(&self.starter)
            .arg(daemon.get_program())
            .args(daemon.get_args());
        command.args(&self.options);
        // Closed here once the process has them.
        let mut passed = Vec::new();
        if let Some(supervisor) = &self.supervisor {
            (command, passed) = supervisor.supervised(&command);
        }
        self.process = Some(Running::start(&mut command));
        drop(passed);
        wait_for("the daemon", || UnixStream::connect(self.socket()).ok());
        // Connections wait until it goes on with earlier sessions, and does what its configuration says.
        let status = self.ask("GET", "/v1/sessions", None).0;
        assert_eq!(status, 200, "the daemon does not answer");
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.path().join("daemon.sock")
    }

    /// A directory in its own for a user.
    pub fn directory_of(&self, user: User, name: &str) -> PathBuf {
        let dir = self.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(user.uid), Some(user.gid)).unwrap();
        dir
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().pid()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        self.process.as_ref().unwrap().signal(signal);
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(libc::SIGKILL);
        process.wait();
    }

    /// Asks it to end, and waits.
    pub fn stop(mut self) -> Ended {
        self.end()
    }

    /// The same, and another one can take its place.
    pub fn end(&mut self) -> Ended {
        let process = self.process.take().unwrap();
        process.signal(libc::SIGTERM);
        process.wait()
    }

    /// Asks as root; gives the status and the answer.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.ask_as(ROOT, method, path, body)
    }

    /// Asks as a user; the status is 0 where there was no answer.
    pub fn ask_as(&self, user: User, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string);
        let (status, answer) = self.request(user, method, path, None, body.as_deref());
        (status, serde_json::from_str(&answer).unwrap_or(Value::Null))
    }

    /// The metrics that a user is told, in OpenMetrics' format or Prometheus' older one.
    #[track_caller]
    pub fn metrics_as(&self, user: User, is_open: bool) -> String {
        let accept = if is_open { "application/openmetrics-text" } else { "text/plain" };
        let (status, answer) = self.request(user, "GET", "/v1/metrics", Some(accept), None);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The status and the body of an answer; 0 where there was none.
    fn request(
        &self,
        user: User,
        method: &str,
        path: &str,
        accept: Option<&str>,
        body: Option<&str>,
    ) -> (u16, String) {
        if user.uid == ROOT.uid && user.gid == ROOT.gid {
            let connection = UnixStream::connect(self.socket());
            let answer = connection.and_then(|mut connection| {
                connection.set_read_timeout(Some(ANSWER))?;
                http::request(&mut connection, method, path, accept, body)
            });
            return answer.unwrap_or_default();
        }
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--unix-socket"]).arg(self.socket());
        curl.args(["--max-time", &ANSWER.as_secs().to_string(), "--request", method]);
        curl.args(["--write-out", "\n%{http_code}"]).arg(format!("http://localhost{path}"));
        if let Some(accept) = accept {
            curl.args(["--header", &format!("accept: {accept}")]);
        }
        if let Some(body) = body {
            curl.args(["--header", "content-type: application/json", "--data", body]);
        }
        // The group first: afterwards there is no right to it.
        let output = curl.gid(user.gid).uid(user.uid).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (answer, status) = text.rsplit_once('\n').unwrap_or(("", "000"));
        (status.parse().unwrap_or(0), answer.to_owned())
    }

    /// The value of a metric as root is told it: of the series of this name, with its labels if it has some.
    #[track_caller]
    pub fn metric<T: FromStr<Err: std::fmt::Debug>>(&self, series: &str) -> Option<T> {
        let text = self.metrics_as(ROOT, false);
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    /// Asks as a user for something that must be done; gives the answer.
    #[track_caller]
    pub fn tell_as(&self, user: User, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, answer) = self.ask_as(user, method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// The same as root.
    #[track_caller]
    pub fn tell(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.tell_as(ROOT, method, path, body)
    }

    /// Makes a session with a channel of the kernel and rules in it.
    #[track_caller]
    pub fn session(&self, user: User, name: &str, output: &Path, rules: &[Value]) {
        let new = serde_json::json!({"name": name, "mode": {"local": {"output": output}}});
        self.tell_as(user, "POST", "/v1/sessions", Some(&new));
        let channels = format!("/v1/sessions/{}/domains/kernel/channels", encoded(name));
        let channel = serde_json::json!({"name": "channel0"});
        self.tell_as(user, "POST", &channels, Some(&channel));
        for rule in rules {
            self.tell_as(user, "POST", &format!("{channels}/channel0/rules"), Some(rule));
        }
    }
}

/// A name as a part of a path in a request (RFC 3986, section 2.1).
pub fn encoded(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let of = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(of).collect()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(libc::SIGTERM);
            process.wait();
        }
    }
}
