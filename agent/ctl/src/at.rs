//! Where a command runs: the daemon, the user's directory, and what is said.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::client::{Client, ClientError};
use super::document::{Document, Node};
use super::home::Home;
use super::socket::UnixTransport;
use api::{Code, Domain, Format};
use stdx::terminal::SafeWriter;

/// A command did not do what it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why; nothing where it was said already.
    pub(super) text: Option<String>,
    /// A warning, not an error: what was asked for is so already.
    pub(super) warning: bool,
    /// The process's exit code.
    pub(super) code: u8,
}

/// `CMD_ERROR` of LTTng's exit codes (lttng(1), "EXIT STATUS").
pub(crate) const COMMAND_ERROR: u8 = 1;
/// `CMD_UNDEFINED`.
pub(crate) const UNDEFINED: u8 = 2;
/// `CMD_FATAL`.
pub(crate) const FATAL: u8 = 3;
/// `CMD_WARNING`.
pub(crate) const COMMAND_WARNING: u8 = 4;
/// `CMD_UNSUPPORTED`.
pub(crate) const UNSUPPORTED: u8 = 5;

impl Failure {
    /// An error with LTTng's code for commands that failed.
    pub fn new(text: impl Into<String>) -> Self {
        Self::with(COMMAND_ERROR, text)
    }

    pub fn with(code: u8, text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), warning: false, code }
    }

    /// Something that was said already.
    pub fn said(code: u8) -> Self {
        Self { text: None, warning: false, code }
    }

    /// The daemon's refusal, with the number of its code.
    pub fn numbered(error: &ClientError) -> Self {
        Self::with(error.code().number(), error.text())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.text())
    }
}

/// What a command comes to.
pub(crate) type Done = Result<(), Failure>;

/// How a command answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Texts for people.
    #[default]
    Text,
    /// LTTng's machine interface.
    Xml,
    /// The same as JSON.
    Json,
}

/// Under which name the command was called, with what follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `tracer-agent ctl`.
    Ctl,
    /// `lttng`.
    Lttng,
}

impl Name {
    /// As a user types it.
    pub fn typed(self) -> &'static str {
        match self {
            Self::Ctl => "tracer-agent ctl",
            Self::Lttng => "lttng",
        }
    }

    /// What new sessions write.
    pub fn format(self) -> Format {
        match self {
            Self::Ctl => Format::TraceDat,
            Self::Lttng => Format::Lttng,
        }
    }
}

/// What is said, and to whom.
pub struct Say {
    pub(super) form: Form,
    pub(super) quiet: bool,
    out: Box<dyn Write>,
    err: Box<dyn Write>,
}

impl Say {
    /// To the process's own outputs.
    pub fn standard(form: Form, quiet: bool) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        let (out_terminal, err_terminal) = (out.is_terminal(), err.is_terminal());
        Self {
            form,
            quiet,
            out: Box::new(SafeWriter::new(out, out_terminal).json(form == Form::Json)),
            err: Box::new(SafeWriter::new(err, err_terminal)),
        }
    }

    /// A text for people, which programs do not get. Nobody can be told that an output is closed.
    pub fn print(&mut self, text: &str) {
        if self.form == Form::Text && !self.quiet {
            let _ = self.out.write_all(text.as_bytes());
        }
    }

    /// A line for people.
    pub fn line(&mut self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// What programs get.
    fn document(&mut self, document: &Document) {
        let text = match self.form {
            Form::Text => return,
            Form::Xml => document.xml(),
            Form::Json => document.json(),
        };
        let _ = self.out.write_all(text.as_bytes());
    }

    /// A line of JSON, which is the same for people and programs.
    pub fn told(&mut self, line: &str) {
        if !self.quiet {
            let _ = self.out.write_all(format!("{line}\n").as_bytes());
            let _ = self.out.flush();
        }
    }

    pub fn warning(&mut self, text: &str) {
        self.problem("Warning", text);
    }

    pub fn error(&mut self, text: &str) {
        self.problem("Error", text);
    }

    /// For who looks for what goes wrong (`--verbose`).
    pub fn debug(&mut self, text: &str) {
        self.problem("DBG1", text);
    }

    fn problem(&mut self, kind: &str, text: &str) {
        if !self.quiet {
            let _ = self.err.write_all(format!("{kind}: {text}\n").as_bytes());
        }
    }
}

/// How the daemon is found and started.
#[derive(Clone, Debug)]
pub struct Reach {
    pub(super) socket: PathBuf,
    /// The program to start if nobody listens.
    pub(super) starts: Option<PathBuf>,
}

/// Where a command runs.
pub struct At {
    pub(super) name: Name,
    pub(super) say: Say,
    pub(super) home: Option<Home>,
    /// What programs are told.
    pub(super) output: Vec<Node>,
    reach: Option<Reach>,
    client: Option<Client>,
}

impl At {
    pub fn new(name: Name, say: Say, home: Option<Home>, reach: Reach) -> Self {
        Self { name, say, home, output: Vec::new(), reach: Some(reach), client: None }
    }

    /// The daemon. It is started if need be, once.
    pub fn client(&mut self) -> Result<&mut Client, Failure> {
        if self.client.is_none() {
            let reach = self.reach.take().ok_or_else(|| Failure::new(Code::NoDaemon.text()))?;
            self.client = Some(connect(&reach, &mut self.say)?);
        }
        // It was made above.
        self.client.as_mut().ok_or_else(|| Failure::new(Code::NoDaemon.text()))
    }

    /// The daemon, and who is told what it says.
    pub fn client_and_say(&mut self) -> Result<(&mut Client, &mut Say), Failure> {
        self.client()?;
        let Self { client, say, .. } = self;
        let client = client.as_mut().ok_or_else(|| Failure::new(Code::NoDaemon.text()))?;
        Ok((client, say))
    }

    pub fn home(&self) -> Result<&Home, Failure> {
        self.home.as_ref().ok_or_else(|| Failure::new("There is no home directory: set HOME or LTTNG_HOME"))
    }

    /// The session that is named, or the current one.
    pub fn session(&mut self, named: Option<&str>) -> Result<String, Failure> {
        if let Some(named) = named {
            return Ok(named.to_owned());
        }
        let home = self.home()?;
        if let Some(current) = home.current() {
            return Ok(current);
        }
        let text = format!("Can't find valid lttng config {}", home.config().display());
        self.say.line(&format!("Did you create a session? ({} create <my_session>)", self.name.typed()));
        Err(Failure::new(text))
    }

    /// Says how a command ended, and gives its exit code. `changes`: it does something, and does not only
    /// tell.
    pub fn end(&mut self, command: &'static str, changes: bool, done: Done) -> u8 {
        let success = done.is_ok();
        let code = self.end_without_document(done);
        let output = std::mem::take(&mut self.output);
        self.say.document(&Document { name: command, output, success: changes.then_some(success) });
        code
    }

    /// The same where programs were told all that there is.
    pub fn end_without_document(&mut self, done: Done) -> u8 {
        match done {
            Ok(()) => 0,
            Err(Failure { text, warning, code }) => {
                match text {
                    Some(text) if warning => self.say.warning(&text),
                    Some(text) => self.say.error(&text),
                    None => {}
                }
                code
            }
        }
    }
}

fn connect(reach: &Reach, say: &mut Say) -> Result<Client, Failure> {
    let transport = || UnixTransport::new(&reach.socket).map_err(|error| Failure::new(error.to_string()));
    let mut client = Client::new(Box::new(transport()?));
    let Some(program) = &reach.starts else { return Ok(client) };
    if !matches!(client.daemon(), Err(ClientError::NoDaemon { .. })) {
        return Ok(client);
    }
    say.line("Spawning a session daemon");
    let mut daemon = Command::new(program);
    daemon.args(["daemon", "--background", "--socket"]).arg(&reach.socket);
    daemon.stdin(Stdio::null()).stdout(Stdio::null());
    match daemon.status() {
        Ok(status) if status.success() => Ok(client),
        Ok(status) => Err(Failure::new(format!("The session daemon did not start: {status}"))),
        Err(error) => Err(Failure::new(format!("Cannot start {}: {error}", program.display()))),
    }
}

/// The word for a domain in texts (`lttng_domain_type_str`).
pub(crate) fn word(domain: Domain) -> &'static str {
    match domain {
        Domain::Kernel => "kernel",
        Domain::User => "ust",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::ffi::OsString;
    use std::rc::Rc;

    use super::super::story::Story;
    use super::*;

    /// An output that can be looked at.
    #[derive(Clone, Default)]
    pub(in super::super) struct Heard(Rc<RefCell<Vec<u8>>>);

    impl Heard {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.borrow_mut())).unwrap()
        }
    }

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Commands with a made-up daemon and a home directory of their own.
    pub(in super::super) struct Desk {
        pub(in super::super) dir: tempfile::TempDir,
        pub(in super::super) story: Story,
    }

    /// What a command said.
    #[derive(Debug, PartialEq, Eq)]
    pub(in super::super) struct Said {
        pub(in super::super) code: u8,
        pub(in super::super) out: String,
        pub(in super::super) err: String,
    }

    impl Desk {
        pub(in super::super) fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), story: Story::new() }
        }

        /// With a current session.
        pub(in super::super) fn with_session(name: &str) -> Self {
            let desk = Self::new();
            desk.home().set_current(name).unwrap();
            desk
        }

        pub(in super::super) fn home(&self) -> Home {
            let dir: OsString = self.dir.path().into();
            Home::find(|_| Some(dir.clone())).unwrap()
        }

        /// Runs `lttng LINE`; words are separated by spaces.
        pub(in super::super) fn lttng(&self, line: &str) -> Said {
            self.run(Name::Lttng, line)
        }

        pub(in super::super) fn run(&self, name: Name, line: &str) -> Said {
            let (out, err) = (Heard::default(), Heard::default());
            let say =
                |form, quiet| Say { form, quiet, out: Box::new(out.clone()), err: Box::new(err.clone()) };
            let home = Some(self.home());
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let at = |general: &super::super::General| At {
                name,
                say: say(general.form(), general.quiet),
                home,
                output: Vec::new(),
                reach: None,
                client: Some(self.story.client()),
            };
            let code = super::super::run_words(name, &words, &mut say(Form::Text, false), at);
            Said { code, out: out.take(), err: err.take() }
        }

        /// That a command says this, and ends with this code.
        #[track_caller]
        pub(in super::super) fn says(&self, line: &str, code: u8, out: &str, err: &str) {
            let said = self.lttng(line);
            assert_eq!(said, Said { code, out: out.to_owned(), err: err.to_owned() }, "{line}");
        }
    }
}
