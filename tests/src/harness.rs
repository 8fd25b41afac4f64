//! Running the built agent, waiting for it, and reading what it wrote with the stock tools.
//!
//! Everything here panics when something is missing: a test that cannot run has not passed.
#![expect(clippy::missing_panics_doc, reason = "every one of these fails a test by panicking")]
#![expect(
    clippy::return_self_not_must_use,
    reason = "checks that are chained; what they return may be dropped"
)]

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::Read as _,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long anything may take before it counts as hung. No test asserts a time; this only ends a test that
/// would wait for ever.
pub const HANG: Duration = Duration::from_mins(2);

/// The built agent: `TRACER_AGENT_BIN`, or the one in the target directory that this test was built into.
pub fn agent_path() -> PathBuf {
    if let Some(path) = std::env::var_os("TRACER_AGENT_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "TRACER_AGENT_BIN names {}, which is no file", path.display());
        return path;
    }
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => panic!("cannot find the test's own executable: {error}"),
    };
    // target/PROFILE/deps/test-HASH
    let found = exe.ancestors().skip(1).take(2).map(|dir| dir.join("tracer-agent")).find(|p| p.is_file());
    match found {
        Some(path) => path,
        None => panic!(
            "no tracer-agent beside {}: build it first (cargo build -p tracer-agent), or set TRACER_AGENT_BIN",
            exe.display()
        ),
    }
}

/// A command line of the agent, started in `dir`.
pub fn agent<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(agent_path());
    // Some machines that run tests have one.
    command.current_dir(dir).args(args).env_remove("NODE_NAME");
    command
}

/// Any other program, started in `dir`.
pub fn program<S: AsRef<OsStr>>(dir: &Path, name: &str, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(dir).args(args);
    command
}

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub out: String,
    /// What it wrote to stderr.
    pub err: String,
}

impl Ended {
    /// The exit code; panics for a process that a signal ended.
    #[track_caller]
    pub fn code(&self) -> i32 {
        match self.status.code() {
            Some(code) => code,
            None => panic!("ended by signal {:?}: {self:?}", self.status.signal()),
        }
    }

    /// Panics unless the exit code is `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Panics unless stderr contains each of `texts`.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.err.contains(text), "stderr lacks {text:?}:\n{}", self.err);
        }
        self
    }
}

/// A process with its output being collected. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: Option<Collected>,
    err: Option<Collected>,
}

/// What a process says, as it comes.
#[derive(Debug)]
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts `command`.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: signal(2) is async-signal-safe. Under nohup(1), hangups would not end what tests start.
        unsafe {
            command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_DFL) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot run {}: {error}", command.get_program().display()),
        };
        let out = child.stdout.take().map(collect);
        let err = child.stderr.take().map(collect);
        Self { child, out, err }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain numbers; the process is our child and has not been waited for, so the id is its own.
        let result = unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        assert_eq!(result, 0, "cannot signal {}", self.child.id());
    }

    /// Stops it, and waits until each of its threads has stopped: the others only follow the one that takes
    /// the signal.
    #[track_caller]
    pub fn hold(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.pid());
        wait_for("stopped threads", || {
            let mut threads = std::fs::read_dir(&tasks).ok()?;
            threads
                .all(|thread| {
                    let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat")));
                    stat.is_ok_and(|stat| {
                        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
                    })
                })
                .then_some(())
        });
    }

    /// Sends a signal, and waits until it was taken: another one of its kind is another request then.
    #[track_caller]
    pub fn signal_and_wait(&self, signal: i32) {
        self.signal(signal);
        let status = format!("/proc/{}/status", self.pid());
        wait_for("a signal to be taken", || {
            let status = std::fs::read_to_string(&status).ok()?;
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"))?;
            let pending = u64::from_str_radix(pending.trim(), 16).ok()?;
            (pending & 1 << (signal - 1) == 0).then_some(())
        });
    }

    /// Waits until it has said something so many times on its standard error output.
    #[track_caller]
    pub fn wait_until_said(&mut self, text: &str, times: usize) {
        wait_for(&format!("the text {text:?}"), || {
            let has_ended = self.has_ended();
            let said = self.err.as_ref().map(Collected::text).unwrap_or_default();
            let is_said = said.matches(text).count() >= times;
            assert!(is_said || !has_ended, "it ended without saying {text:?}: {said}");
            is_said.then_some(())
        });
    }

    /// Whether it has said something on its standard error output.
    pub fn has_said(&self, text: &str) -> bool {
        self.err.as_ref().is_some_and(|err| err.text().contains(text))
    }

    /// What it has said on its standard error output by now.
    pub fn said(&self) -> String {
        self.err.as_ref().map(Collected::text).unwrap_or_default()
    }

    /// What it has written to its standard output by now.
    pub fn written(&self) -> String {
        self.out.as_ref().map(Collected::text).unwrap_or_default()
    }

    /// Waits until it has written something to its standard output.
    #[track_caller]
    pub fn wait_until_out(&mut self, text: &str) {
        wait_for(&format!("the text {text:?}"), || {
            let has_ended = self.has_ended();
            let said = self.out.as_ref().map(Collected::text).unwrap_or_default();
            let is_said = said.contains(text);
            assert!(is_said || !has_ended, "it ended without writing {text:?}: {said}");
            is_said.then_some(())
        });
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let status = wait_for("the end of a process", || self.child.try_wait().ok().flatten());
        Ended { status, out: joined(self.out.take()), err: joined(self.err.take()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail for a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl std::io::Read + Send + 'static) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&bytes);
    let thread = std::thread::spawn(move || {
        let mut part = [0; 4096];
        // What came before an error is still what was said.
        while let Ok(length @ 1..) = from.read(&mut part) {
            to.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..length]);
        }
    });
    Collected { bytes, thread }
}

impl Collected {
    fn text(&self) -> String {
        text_of(&self.bytes)
    }
}

fn text_of(bytes: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}

fn joined(collected: Option<Collected>) -> String {
    let Some(Collected { bytes, thread }) = collected else { return String::new() };
    let _ = thread.join();
    text_of(&bytes)
}

/// Runs `command` to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    Running::start(command).wait()
}

/// Polls until there is an answer; panics after a very long time. A poll that takes long is followed by a
/// pause as long: what is waited for needs a processor, too.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let poll = Instant::now();
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < HANG, "waited too long for {what}");
        std::thread::sleep(poll.elapsed().max(Duration::from_millis(5)));
    }
}

/// The reader threads of a recorder, and how often each of them has gone to sleep of its own will (proc(5)).
#[track_caller]
pub fn sleeps_of_readers(pid: u32) -> BTreeMap<u32, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a recorder that runs");
    let mut found = BTreeMap::new();
    for task in tasks.flatten() {
        // A thread that has just ended is no reader: they live as long as the recording.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("Name:").is_some_and(|name| name.starts_with("reader-")) {
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok()).expect("a thread id");
            let sleeps = field("voluntary_ctxt_switches:").and_then(|count| count.parse().ok());
            found.insert(tid, sleeps.expect("a number of sleeps"));
        }
    }
    assert!(!found.is_empty(), "process {pid} has no readers");
    found
}

/// Waits until every reader of a recorder has looked at its rings again, after this was called, and waits for
/// something to do. What was recorded before is then in the spool, but for what readers leave in the rings.
#[track_caller]
pub fn wait_for_readers(pid: u32) {
    // epoll_wait, epoll_pwait, epoll_pwait2: a thread sleeps in one of them between two looks, and elsewhere
    // only within a look.
    const WAITS: [&str; 3] = ["232 ", "281 ", "441 "];
    // The first of these sleeps may have begun before; the second is behind a whole look. One more, as a
    // sleep may be interrupted.
    const SLEEPS: u32 = 3;
    let mut seen: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    wait_for("readers that look at their rings", || {
        let before = sleeps_of_readers(pid);
        for (&tid, &sleeps) in &before {
            let call = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
            let entry = seen.entry(tid).or_insert((0, 0));
            if WAITS.iter().any(|wait| call.starts_with(wait)) && entry.0 != sleeps {
                *entry = (sleeps, entry.1 + 1);
            }
        }
        (seen.len() == before.len() && seen.values().all(|&(_, times)| times >= SLEEPS)).then_some(())
    });
}

/// A recording whose command does nothing but say that everything is attached: what the agent starts last.
/// The recording goes on until [`Marked::finish`].
#[derive(Debug)]
pub struct Marked {
    /// The agent.
    pub agent: Running,
    mark: PathBuf,
}

impl Marked {
    /// Starts `record ARGS` in `dir` and returns when it records.
    #[track_caller]
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        let mark = dir.join(format!("recording.{}", std::process::id()));
        Self::start_in(dir, args, mark)
    }

    /// The same with a mark of the caller's choice, for several recordings in one directory.
    #[track_caller]
    pub fn start_in(dir: &Path, args: &[&str], mark: PathBuf) -> Self {
        let mut command = agent(dir, ["record"]);
        Self::start_as(command.args(args), mark)
    }

    /// The same of a command line that has everything but the command that is run.
    #[track_caller]
    pub fn start_as(command: &mut Command, mark: PathBuf) -> Self {
        let script = r#": >"$1"; while [ -e "$1" ]; do sleep 0.05; done"#;
        command.args(["sh", "-c", script, "sh"]).arg(&mark);
        let mut agent = Running::start(command);
        wait_for("the start of a recording", || (mark.exists() || agent.has_ended()).then_some(()));
        assert!(mark.exists(), "the recording did not start: {:?}", agent.wait());
        Self { agent, mark }
    }

    /// Lets the command end, and the recording with it.
    #[track_caller]
    pub fn finish(self) -> Ended {
        self.end_command();
        self.agent.wait()
    }

    /// Lets the command end.
    #[track_caller]
    pub fn end_command(&self) {
        if let Err(error) = std::fs::remove_file(&self.mark) {
            panic!("cannot remove {}: {error}", self.mark.display());
        }
    }
}

/// A process of ours that waits, calls getppid a number of times when told to, and ends when told to.
#[derive(Debug)]
pub struct Caller {
    process: Child,
    asked: u64,
}

/// Takes a name for itself, if it is given one. Reads numbers; for each calls getppid that often and answers.
/// Perl's getppid is the system call each time.
const CALLER: &str = "$0 = shift if @ARGV; $| = 1; while (<STDIN>) { my $n = $_; for (1..$n) { getppid() } print qq(done\\n) }";

impl Caller {
    /// Starts it.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// Starts one whose thread has this name.
    #[track_caller]
    pub fn named(name: impl AsRef<OsStr>) -> Self {
        Self::start_with(&[], &[name.as_ref()])
    }

    /// Starts one by another program, which gets a command as its last arguments and becomes it or waits for
    /// it: `setpriv --reuid 7`.
    #[track_caller]
    pub fn by(program: &[&str]) -> Self {
        Self::start_with(program, &[])
    }

    #[track_caller]
    fn start_with(by: &[&str], args: &[&OsStr]) -> Self {
        let mut command =
            by.iter().chain(&["perl", "-e", CALLER]).map(OsStr::new).chain(args.iter().copied());
        let process = Command::new(command.next().unwrap_or_else(|| OsStr::new("perl")))
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run perl: {error}"));
        let mut caller = Self { process, asked: 0 };
        // An answer means that it has its final name and has loaded everything.
        caller.call(1);
        caller.asked = 0;
        caller
    }

    /// Its process id; of one that another program waits for, that of this program.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Makes `count` calls and waits until they are done.
    #[track_caller]
    pub fn call(&mut self, count: u64) {
        use std::io::Write as _;
        let (Some(to), Some(from)) = (&mut self.process.stdin, &mut self.process.stdout) else {
            panic!("the pipes to perl are gone")
        };
        writeln!(to, "{count}").unwrap_or_else(|error| panic!("perl is gone: {error}"));
        let mut answer = [0; 5];
        from.read_exact(&mut answer).unwrap_or_else(|error| panic!("perl is gone: {error}"));
        self.asked += count;
    }

    /// Waits until it sleeps: its answer comes just before it asks for the next order, which is a system call
    /// too.
    #[track_caller]
    pub fn settle(&self) {
        let stat = format!("/proc/{}/stat", self.pid());
        wait_for("a caller that waits for its next order", || {
            let stat = std::fs::read_to_string(&stat).ok()?;
            stat.rsplit_once(") ")?.1.starts_with('S').then_some(())
        });
    }

    /// Keeps it on one CPU, so that what it does is one sequence in the file.
    #[track_caller]
    pub fn pin(&self, cpu: usize) {
        // SAFETY: an all-zero set is a valid empty one, and the size is its own.
        let result = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(self.pid().cast_signed(), size_of_val(&set), &raw const set)
        };
        assert_eq!(result, 0, "cannot keep perl on CPU {cpu}");
    }

    /// The calls made since the start.
    pub fn calls(&self) -> u64 {
        self.asked
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends with its input; nothing is left to do about a failure.
        let _ = self.process.wait();
    }
}

/// The number of getppid, as `report` prints it for `raw_syscalls:sys_enter`.
pub fn is_getppid(line: &str) -> bool {
    let number = line.split_once("sys_enter:").map(|(_, rest)| rest.trim_start());
    number.is_some_and(|rest| rest.starts_with(&format!("NR {} ", libc::SYS_getppid)))
}

/// The lines of `trace-cmd report FILE` that are events, and what it said about missed ones.
#[derive(Debug)]
pub struct Report {
    /// Event lines.
    pub events: Vec<String>,
    /// Sum of all `[N EVENTS DROPPED]`.
    pub dropped: u64,
}

impl Report {
    /// Runs stock trace-cmd on `file`, and panics unless it accepts the file completely.
    #[track_caller]
    pub fn of(file: &Path) -> Self {
        let dir = file.parent().unwrap_or(Path::new("/"));
        let dump = run(program(dir, "trace-cmd", ["dump", "-v", "-i"]).arg(file));
        let dumped = format!("{}{}", dump.out, dump.err);
        assert!(dump.status.success() && dumped.contains("valid trace-cmd file"), "dump -v: {dump:?}");
        let report = run(program(dir, "trace-cmd", ["report", "-i"]).arg(file)).expect(0);
        assert!(report.err.trim().is_empty(), "report complains: {}", report.err);
        let mut events = Vec::new();
        let mut dropped = 0;
        for line in report.out.lines() {
            if line.starts_with("cpus=") || line.starts_with("CPU ") && line.ends_with("is empty") {
                continue;
            }
            if let Some((_, rest)) = line.split_once('[')
                && let Some(count) = rest.strip_suffix(" EVENTS DROPPED]")
            {
                dropped += count.parse::<u64>().unwrap_or_else(|_| panic!("not a number of events: {line}"));
                continue;
            }
            assert!(!line.contains("EVENTS DROPPED"), "a mark without a number: {line}");
            if !line.trim().is_empty() {
                events.push(line.to_owned());
            }
        }
        Self { events, dropped }
    }

    /// How many event lines satisfy `test`.
    pub fn count(&self, test: impl Fn(&str) -> bool) -> u64 {
        self.events.iter().filter(|line| test(line)).count() as u64
    }

    /// The thread ids of the event lines, `NAME-PID [CPU] ...`.
    pub fn tids(&self) -> std::collections::BTreeSet<u32> {
        self.events.iter().map(|line| tid_of(line)).collect()
    }

    /// The event names.
    pub fn names(&self) -> std::collections::BTreeSet<String> {
        self.events.iter().map(|line| name_of(line).to_owned()).collect()
    }
}

/// The thread id of an event line.
#[track_caller]
pub fn tid_of(line: &str) -> u32 {
    let found = line.split_once(" [").and_then(|(task, _)| task.trim().rsplit_once('-'));
    match found.map(|(_, tid)| tid.parse()) {
        Some(Ok(tid)) => tid,
        _ => panic!("no thread id in {line:?}"),
    }
}

/// The event's name in an event line: `NAME-PID [CPU] TIME: EVENT: ...`.
#[track_caller]
pub fn name_of(line: &str) -> &str {
    let behind = line.split_once("] ").map(|(_, rest)| rest);
    match behind.and_then(|rest| rest.split(": ").nth(1)) {
        Some(name) => name.trim().trim_end_matches(':'),
        None => panic!("no event name in {line:?}"),
    }
}

/// The loss ledger that the agent stores in the file.
#[derive(Debug)]
pub struct Ledger {
    cpus: String,
    events: String,
}

impl Ledger {
    /// Finds it in `file`: a JSON text that ends with a NUL.
    #[track_caller]
    pub fn of(file: &Path) -> Self {
        const START: &[u8] = b"{\"version\":3,";
        let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let at = bytes.windows(START.len()).position(|window| window == START);
        let text = at.map(|at| bytes[at..].split(|&b| b == 0).next().unwrap_or_default());
        let text = String::from_utf8_lossy(text.unwrap_or_else(|| panic!("no ledger in {}", file.display())));
        let Some((cpus, events)) = text.split_once("\"events\":") else { panic!("no events in {text}") };
        Self { cpus: cpus.to_owned(), events: events.to_owned() }
    }

    /// The sum of a count over all CPUs.
    pub fn cpus(&self, key: &str) -> u64 {
        numbers(&self.cpus, key).iter().sum()
    }

    /// The sum of a count over all events.
    pub fn events(&self, key: &str) -> u64 {
        numbers(&self.events, key).iter().sum()
    }

    /// Everything that was lost, counted by CPU.
    pub fn lost(&self) -> u64 {
        CAUSES.iter().map(|cause| self.cpus(cause)).sum()
    }

    /// Everything that was lost, counted by event.
    pub fn lost_of_events(&self) -> u64 {
        CAUSES.iter().map(|cause| self.events(cause)).sum()
    }
}

/// The ledger of a file, as `info --json` shows it.
#[track_caller]
pub fn ledger_in_info(file: &Path) -> serde_json::Value {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let info = run(agent(dir, ["info", "--json"]).arg(file)).expect(0);
    let info: serde_json::Value = match serde_json::from_str(&info.out) {
        Ok(info) => info,
        Err(error) => panic!("{error}: {}", info.out),
    };
    let ledger =
        info.pointer("/files/0/ledger").or_else(|| info.get("ledger")).unwrap_or_else(|| panic!("{info}"));
    assert!(ledger.is_object(), "{ledger}");
    ledger.clone()
}

/// The causes of loss in the ledger.
const CAUSES: [&str; 5] = ["ring_full", "oversize", "read_fault", "nested", "rate_limit"];

/// All numbers behind `"key":`.
pub fn numbers(json: &str, key: &str) -> Vec<u64> {
    let key = format!("\"{key}\":");
    let values = json.split(&key).skip(1);
    values
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().unwrap_or_else(|_| panic!("no number behind {key}"))
        })
        .collect()
}

/// The values of a line of the CPUSTAT options, over all CPUs: `dropped events: N`.
#[track_caller]
pub fn cpustat(file: &Path, line: &str) -> u64 {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let stat = run(program(dir, "trace-cmd", ["report", "--stat", "-i"]).arg(file)).expect(0);
    let prefix = format!("{line}: ");
    let values: Vec<&str> = stat.out.lines().filter_map(|l| l.strip_prefix(prefix.as_str())).collect();
    assert!(!values.is_empty(), "no {line:?} in:\n{}", stat.out);
    values.iter().map(|value| value.parse::<u64>().unwrap_or_else(|_| panic!("{value}"))).sum()
}

/// The names of files in `dir`, sorted.
#[track_caller]
pub fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// Where the temporary files of a program go that a test looks at: it is made if it is not there.
pub fn temporary(dir: &Path) -> PathBuf {
    let temporary = dir.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    temporary
}

/// Fails if something was left in [`temporary`].
#[track_caller]
pub fn is_clean(dir: &Path) {
    assert_eq!(files(&temporary(dir)), Vec::<String>::new());
}

/// A tmpfs of its own size, unmounted when dropped.
#[derive(Debug)]
pub struct Tmpfs {
    dir: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts one with these options, such as `size=12m`.
    #[track_caller]
    pub fn mount(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary directory: {error}"));
        let mounted =
            run(program(Path::new("/"), "mount", ["-t", "tmpfs", "-o", options, "none"]).arg(dir.path()));
        assert!(mounted.status.success(), "mount: {mounted:?}");
        Self { dir }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Fills it until so many bytes are left, or fewer where others write to it meanwhile.
    #[track_caller]
    pub fn fill_but(&self, left: u64) {
        let free = rustix::fs::statvfs(self.path()).unwrap_or_else(|error| panic!("no free space: {error}"));
        let filler = (free.f_bavail * free.f_frsize).saturating_sub(left);
        match std::fs::write(self.path().join("filler"), vec![1; filler as usize]) {
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
                panic!("cannot fill the disk: {error}");
            }
            _ => {}
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a process that a failed test left behind must not keep the mount in place.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

/// The records of a file, as `report --json` prints them. Losses behind the last record of a
/// CPU, which have lines as well, are left out.
#[track_caller]
pub fn reported(file: &Path) -> Vec<serde_json::Value> {
    let out = run(agent("/".as_ref(), ["report", "--json"]).arg(file)).expect(0).out;
    let lines = out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")));
    lines.filter(|line: &serde_json::Value| line["lost_behind"].is_null()).collect()
}
