//! A guest: what goes in, what it runs, what comes out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cpio::Archive;
use crate::protocol::{Cmd, End, Frame, PLAN_PATH, Plan};
use crate::qemu::Machine;
use crate::{Error, Kernel, disk, guest, target_dir};

/// A guest to be run. Nothing happens before [`Vm::run`].
#[derive(Debug, Clone)]
pub struct Vm<'k> {
    kernel: &'k Kernel,
    contents: Vec<Content>,
    wanted: Vec<String>,
    disk: Option<String>,
    append: String,
    cpus: u32,
    memory: u32,
    counts_instructions: bool,
    timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
enum Content {
    File { host: PathBuf, guest: String },
    Program { host: PathBuf, guest: String },
    Bytes { guest: String, data: Vec<u8> },
    Agent,
    TraceCmd,
}

/// How a command of the guest went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The command.
    pub command: Cmd,
    /// How it ended.
    pub end: End,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// True for exit code 0.
    pub fn success(&self) -> bool {
        self.end == End::Code(0)
    }

    /// The exit code, if it exited.
    pub fn code(&self) -> Option<i32> {
        match self.end {
            End::Code(code) => Some(code),
            _ => None,
        }
    }

    /// Its standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Its standard output, if it succeeded.
    ///
    /// # Panics
    ///
    /// With everything that is known about the command, if it did not.
    #[track_caller]
    pub fn expect_success(&self) -> String {
        let Self { command, end, .. } = self;
        let (stdout, stderr) = (self.stdout_text(), self.stderr_text());
        assert!(
            self.success(),
            "{:?} ended with {end:?}\n--- stdout ---\n{stdout}\n--- stderr ---\n{stderr}",
            command.args
        );
        stdout
    }
}

/// What a guest did.
#[derive(Debug, Clone)]
pub struct Run {
    /// One for each command, in their order.
    pub outcomes: Vec<Outcome>,
    /// The files that were asked for, by their paths in the guest.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The console: the kernel's messages, and what the commands printed.
    pub console: String,
}

impl<'k> Vm<'k> {
    /// A guest with busybox, 2 processors and 1 GiB.
    pub fn new(kernel: &'k Kernel) -> Self {
        Self {
            kernel,
            contents: Vec::new(),
            wanted: Vec::new(),
            disk: None,
            append: String::new(),
            cpus: 2,
            memory: 1024,
            counts_instructions: false,
            timeout: None,
        }
    }

    /// Adds this workspace's tracer-agent, as `/bin/tracer-agent`.
    #[must_use]
    pub fn agent(self) -> Self {
        self.with(Content::Agent)
    }

    /// Adds the host's trace-cmd with its libraries and plugins.
    #[must_use]
    pub fn trace_cmd(self) -> Self {
        self.with(Content::TraceCmd)
    }

    /// Adds a file of the host.
    #[must_use]
    pub fn file(self, host: impl Into<PathBuf>, guest: &str) -> Self {
        self.with(Content::File { host: host.into(), guest: guest.to_owned() })
    }

    /// Adds a program of the host and the libraries that it needs.
    #[must_use]
    pub fn program(self, host: impl Into<PathBuf>, guest: &str) -> Self {
        self.with(Content::Program { host: host.into(), guest: guest.to_owned() })
    }

    /// Adds a file with this content; it can be executed.
    #[must_use]
    pub fn bytes(self, guest: &str, data: impl Into<Vec<u8>>) -> Self {
        self.with(Content::Bytes { guest: guest.to_owned(), data: data.into() })
    }

    /// Asks for a file of the guest after the last command ([`Run::files`]). It is an error if it cannot be
    /// read.
    #[must_use]
    pub fn bring_back(mut self, guest: &str) -> Self {
        self.wanted.push(guest.to_owned());
        self
    }

    /// Adds a [`disk`] and mounts it at this path before the first command.
    #[must_use]
    pub fn disk(mut self, guest: &str) -> Self {
        self.disk = Some(guest.to_owned());
        self
    }

    /// Adds to the kernel's command line.
    #[must_use]
    pub fn append(mut self, text: &str) -> Self {
        self.append.push(' ');
        self.append.push_str(text);
        self
    }

    /// Processors and memory (in MiB).
    #[must_use]
    pub fn size(mut self, cpus: u32, memory: u32) -> Self {
        (self.cpus, self.memory) = (cpus, memory);
        self
    }

    /// Gives the guest one processor, and clocks that count its instructions, a nanosecond each: what a
    /// thread does has the same length however busy the host is.
    #[must_use]
    pub fn count_instructions(mut self) -> Self {
        (self.cpus, self.counts_instructions) = (1, true);
        self
    }

    /// The limit for the whole run. Without it: the commands' own limits and a minute.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn with(mut self, content: Content) -> Self {
        self.contents.push(content);
        self
    }

    /// Boots, runs the commands one after the other, and powers off.
    pub fn run(&self, commands: &[Cmd]) -> Result<Run, Error> {
        let plan = Plan { commands: commands.to_vec(), files: self.wanted.clone(), ..Plan::default() };
        let limit = self.timeout.unwrap_or_else(|| {
            commands.iter().fold(Duration::from_mins(1), |sum, command| sum.saturating_add(command.timeout))
        });
        let dir = work_dir()?;
        let files = self.files(plan, dir.path())?;
        let results = dir.path().join("results");
        let console = self.machine(&files).run(&results, limit)?;
        receive(&results, commands, &console).map(|(outcomes, files)| Run { outcomes, files, console })
    }

    /// Boots into a shell on the terminal.
    pub fn shell(&self) -> Result<(), Error> {
        let dir = work_dir()?;
        let files = self.files(Plan { shell: true, ..Plan::default() }, dir.path())?;
        self.machine(&files).interactive()
    }

    fn machine<'a>(&'a self, files: &'a Files) -> Machine<'a> {
        Machine {
            image: &self.kernel.image,
            initramfs: &files.initramfs,
            disk: files.disk.as_deref(),
            append: &self.append,
            cpus: self.cpus,
            memory: self.memory,
            counts_instructions: self.counts_instructions,
        }
    }

    /// Makes the files that the machine needs.
    fn files(&self, mut plan: Plan, dir: &Path) -> Result<Files, Error> {
        let mut modules = Vec::new();
        let mut disk = None;
        if self.disk.is_some() {
            modules = disk::modules(self.kernel)?;
            disk = Some(disk::create(dir)?);
        }
        plan.disk.clone_from(&self.disk);
        plan.modules = modules.iter().map(|(name, _)| module_path(name)).collect();
        Ok(Files { initramfs: self.initramfs(&plan, &modules, dir)?, disk })
    }

    fn initramfs(&self, plan: &Plan, modules: &[(String, Vec<u8>)], dir: &Path) -> Result<PathBuf, Error> {
        let mut archive = Archive::new();
        // First, for the first entry of a name is the one that counts.
        archive.file(PLAN_PATH, 0o644, &plan.to_bytes());
        for content in &self.contents {
            match content {
                Content::File { host, guest } => guest::add_file(&mut archive, host, guest)?,
                Content::Program { host, guest } => guest::add_program(&mut archive, host, guest)?,
                Content::Bytes { guest, data } => archive.file(guest, 0o755, data),
                Content::Agent => {
                    guest::add_file(
                        &mut archive,
                        &guest::programs()?.join("tracer-agent"),
                        "/bin/tracer-agent",
                    )?;
                }
                Content::TraceCmd => guest::add_trace_cmd(&mut archive)?,
            }
        }
        for (name, image) in modules {
            archive.file(&module_path(name), 0o644, image);
        }
        guest::add_base(&mut archive)?;
        let path = dir.join("initramfs.cpio");
        fs::write(&path, archive.finish()).map_err(Error::io(&path))?;
        Ok(path)
    }
}

/// What is made for a run.
#[derive(Debug)]
struct Files {
    initramfs: PathBuf,
    disk: Option<PathBuf>,
}

/// Where a guest has a kernel module.
fn module_path(name: &str) -> String {
    format!("/vm/{name}.ko")
}

fn work_dir() -> Result<tempfile::TempDir, Error> {
    let parent = target_dir().join("vm");
    fs::create_dir_all(&parent).map_err(Error::io(&parent))?;
    tempfile::Builder::new().prefix("run-").tempdir_in(&parent).map_err(Error::io(&parent))
}

type Received = (Vec<Outcome>, BTreeMap<String, Vec<u8>>);

fn receive(results: &Path, commands: &[Cmd], console: &str) -> Result<Received, Error> {
    let incomplete = |why: String| Error::Incomplete { why, console: console.to_owned() };
    let mut input = BufReader::new(File::open(results).map_err(Error::io(results))?);
    let mut outcomes = Vec::new();
    let mut files = BTreeMap::new();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut file: Option<String> = None;
    let mut done = false;
    while let Some(frame) = Frame::read(&mut input).map_err(|error| incomplete(error.to_string()))? {
        match frame {
            Frame::Hello => {}
            Frame::Stdout(data) => stdout.extend(data),
            Frame::Stderr(data) => stderr.extend(data),
            Frame::End(end) => {
                let command = commands
                    .get(outcomes.len())
                    .ok_or_else(|| incomplete("it reported more commands than it was given".to_owned()))?
                    .clone();
                let (stdout, stderr) = (std::mem::take(&mut stdout), std::mem::take(&mut stderr));
                outcomes.push(Outcome { command, end, stdout, stderr });
            }
            Frame::File(path) => {
                files.insert(path.clone(), Vec::new());
                file = Some(path);
            }
            Frame::Data(data) => {
                if let Some(content) = file.as_ref().and_then(|path| files.get_mut(path)) {
                    content.extend(data);
                }
            }
            Frame::FileError(why) => return Err(incomplete(why)),
            Frame::Done => done = true,
        }
    }
    if !done {
        let next = commands
            .get(outcomes.len())
            .map_or_else(|| "sending files".to_owned(), |next| format!("{:?}", next.args));
        return Err(incomplete(format!("it got to {next}")));
    }
    Ok((outcomes, files))
}
