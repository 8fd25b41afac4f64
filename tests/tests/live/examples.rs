//! Every command line that README.md, the documents and the help texts show is run, and prints what they
//! show.
//!
//! In the documents, commands are in fenced blocks of the language `console`: a line that begins with `# ` or
//! `$ ` is a command, the lines after it are what it prints. Each block has a directory of its own. A block
//! under a line `<!-- parsed only: REASON -->` is not run here; its command lines are parsed, as all others
//! are.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use clap::{CommandFactory as _, Parser as _};
use cli::Cli;
use daemon::config::Config;
use integration_tests::harness::{Ended, Marked, Running, agent, agent_path, program, run, wait_for};
use spec::RecordingSpec;
use tracedat::reader::Reader;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The process and the container of the examples.
const PROCESS: &str = "4711";
const CONTAINER: &str = "--container web";
/// Commands whose examples print something, and what each of them prints at least: `hist` a bar or a share.
const PRINTING: [(&str, &[&str]); 5] = [
    ("doctor", &["\n"]),
    ("hist", &["#\n", "%--"]),
    ("info", &["\n"]),
    ("list", &["\n"]),
    ("report", &["\n"]),
];
/// The times of the example of `split`, and what follows them.
const TIMES: &str = "trace.dat 1234.5 1236.0";
/// The times of the example of `analyze`.
const FROM_TO: &str = "--from 1234.5 --to 1235";
/// Examples of help texts that are not run: what they have, and why.
const PARSED_ONLY: [(&str, &str); 9] = [
    ("tracer-agent daemon ", "the daemon would stay when the test has ended"),
    ("tracer-agent health", "it asks the machine's daemon"),
    ("top --session", "it asks the machine's daemon"),
    ("s3://", "there is no object store"),
    ("tracer-agent listen ", "it waits for other machines"),
    ("tracer-agent record -e sched -N ", "there is no other machine"),
    ("tracer-agent ctl ", "the daemon would stay when the test has ended"),
    ("--kprobe ", "not every kernel has kprobes"),
    ("perf:cpu:cycles", "virtual machines lack the processor's counters"),
];

/// A fenced block of commands.
struct Block {
    /// `docs/probes.md:12`
    place: String,
    parsed_only: bool,
    commands: Vec<Shown>,
}

/// A command, and what the document shows of its output.
struct Shown {
    line: String,
    output: Vec<String>,
}

/// The documents, as paths below the root.
fn documents() -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    for entry in fs::read_dir(Path::new(ROOT).join("docs")).unwrap() {
        let name = entry.unwrap().file_name();
        if Path::new(&name).extension().is_some_and(|end| end == "md") {
            files.push(Path::new("docs").join(name));
        }
    }
    files.sort();
    files
}

/// The blocks of commands of all documents.
fn blocks() -> Vec<Block> {
    let blocks = documents().into_iter().flat_map(|file| {
        let text = fs::read_to_string(Path::new(ROOT).join(&file)).unwrap();
        blocks_of(&file.display().to_string(), &text)
    });
    blocks.collect()
}

fn blocks_of(file: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().zip(1..);
    let mut before = "";
    while let Some((line, number)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            before = if line.is_empty() { before } else { line };
            continue;
        };
        let place = format!("{file}:{number}");
        let body: Vec<&str> =
            lines.by_ref().map(|(line, _)| line).take_while(|line| line.trim() != "```").collect();
        match language {
            "console" => {
                let reason = before.strip_prefix("<!-- parsed only: ");
                assert!(reason.is_none_or(|reason| reason.len() > " -->".len()), "{place}: no reason");
                let commands = commands(&place, &body);
                blocks.push(Block { place, parsed_only: reason.is_some(), commands });
            }
            // The only JSON that users write.
            "json" => {
                let spec = RecordingSpec::from_json(body.join("\n").as_bytes());
                assert!(spec.is_ok(), "{place}: {}", spec.unwrap_err());
            }
            // The only TOML, too.
            "toml" => {
                let config = Config::of_text(&body.join("\n"));
                assert!(config.is_ok(), "{place}: {:#?}", config.unwrap_err());
            }
            // Questions to tables, which the test of those asks; and what other programs read.
            "text" | "rust" | "sql" | "yaml" | "python" => {}
            other => {
                let known = "console, json, toml, text, rust, sql, yaml or python";
                panic!("{place}: the language of a block is {known}, not {other:?}")
            }
        }
        before = "";
    }
    blocks
}

fn commands(place: &str, body: &[&str]) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    for line in body {
        match line.strip_prefix("# ").or_else(|| line.strip_prefix("$ ")) {
            Some(command) => {
                // As it is after `cargo xtask dist`, for root.
                let command = command.strip_prefix("sudo ").unwrap_or(command);
                let line = command.replacen("cargo xtask run -- ", "tracer-agent ", 1);
                commands.push(Shown { line, output: Vec::new() });
            }
            None => match commands.last_mut() {
                Some(command) => command.output.push((*line).to_owned()),
                None => panic!("{place}: a block of commands begins with one, not with {line:?}"),
            },
        }
    }
    assert!(!commands.is_empty(), "{place}: there is no command in it");
    commands
}

/// The examples of the help texts of all commands, and of the program's own.
fn help_examples() -> Vec<String> {
    let program = Cli::command();
    let mut examples = Vec::new();
    for command in program.get_subcommands().chain([&program]) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let (_, lines) = help.split_once("EXAMPLES\n").expect("every command has examples");
        examples.extend(lines.lines().map(|line| line.trim_start().to_owned()));
    }
    examples
}

/// The words of the first command of a line, by the shell itself.
fn words(line: &str) -> Vec<String> {
    let first = line.split(" | ").next().unwrap();
    // Wherever the command's own output goes.
    let script = format!("exec 3>&1; words() {{ printf '%s\\0' \"$@\" >&3; }}; words {first}");
    let scratch = tempfile::tempdir().unwrap();
    let printed = run(&mut program(scratch.path(), "sh", ["-c", &script])).expect(0).out;
    printed.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
}

/// Panics unless a command is there with all options that are given to it.
fn parse(place: &str, line: &str) {
    let words = words(line);
    match &*words[0] {
        "tracer-agent" => {
            Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{place}: {line}: {error}"));
        }
        "cargo" => {
            assert_eq!(words[1], "xtask", "{place}");
            let Some(task) = words.get(2) else { return };
            let tasks = Path::new(ROOT).join("xtask/src/tasks");
            let mut source = [format!("{task}.rs"), format!("{task}/mod.rs")].into_iter();
            let source = source.find_map(|file| fs::read_to_string(tasks.join(file)).ok());
            let source = source.unwrap_or_else(|| panic!("{place}: there is no task {task}"));
            for option in
                words[3..].iter().take_while(|word| *word != "--").filter(|word| word.starts_with("--"))
            {
                assert!(source.contains(&**option), "{place}: the task {task} has no {option}");
            }
        }
        "trace-cmd" | "babeltrace2" | "perf" | "kernelshark" | "stackcollapse-perf.pl" | "cat" => {}
        other => panic!("{place}: nothing is known of {other}"),
    }
}

/// A directory in which examples run, with the programs that they call.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(agent_path().canonicalize().unwrap(), bin.join("tracer-agent")).unwrap();
        let scratch = Self(dir);
        // What is recorded while nothing happens tells nothing more after seconds.
        scratch.program("sleep", "exec /bin/sleep 0.1");
        // Not every machine has these. Something is built each time: a compiler runs, opens files and
        // allocates memory.
        scratch.program("less", "exec cat");
        scratch.program("make", "exec cc -c hello.c");
        fs::create_dir(scratch.work()).unwrap();
        fs::write(scratch.work().join("hello.c"), "int hello(void) { return 1; }\n").unwrap();
        scratch
    }

    /// Where commands run.
    fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// Where the session daemon is that examples start.
    fn socket(&self) -> PathBuf {
        self.0.path().join("daemon.sock")
    }

    /// A program that stands before others of its name.
    fn program(&self, name: &str, script: &str) {
        let path = self.0.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command line to its end; one that goes on until Ctrl-C gets SIGINT when it records.
    fn run(&self, line: &str) -> Ended {
        let said = self.0.path().join("stderr");
        // What the command before said.
        let _ = fs::remove_file(&said);
        // Without `exec` a signal would be the shell's.
        let exec = if line.contains(" | ") { "" } else { "exec " };
        let line = line.replace(PROCESS, &std::process::id().to_string());
        let line = line.replace(CONTAINER, &format!("--container {}", Container::name()));
        let path = format!("{}:{}", self.0.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec 2>../stderr\n{exec}{line}")])
            .current_dir(self.work())
            .env("PATH", path)
            .env("TRACER_AGENT_SOCKET", self.socket())
            .env("LTTNG_HOME", self.0.path());
        let mut running = Running::start(&mut command);
        // Others end with their command, or when their time has passed.
        let endless = [
            "recording; Ctrl-C stops it",
            "counting; Ctrl-C stops it",
            "processes of -P exit; Ctrl-C stops it",
        ];
        let goes_on = wait_for(&line, || {
            let said = fs::read_to_string(&said).unwrap_or_default();
            let goes_on = endless.iter().any(|text| said.contains(text));
            (goes_on || running.has_ended()).then_some(goes_on)
        });
        if goes_on {
            running.signal(libc::SIGINT);
        }
        let mut ended = running.wait();
        ended.err = fs::read_to_string(&said).unwrap();
        ended
    }
}

impl Drop for Scratch {
    /// Ends the session daemon, if an example has started one.
    fn drop(&mut self) {
        let socket = self.socket();
        let is_daemon = |process: &Path| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|word| word == socket.as_os_str().as_encoded_bytes())
        };
        for process in fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()) {
            if is_daemon(&process) {
                let pid = process.file_name().unwrap().to_str().unwrap();
                run(&mut program("/".as_ref(), "sh", ["-c", &format!("kill {pid}")])).expect(0);
                wait_for("the daemon's end", || (!is_daemon(&process)).then_some(()));
            }
        }
    }
}

/// What a line looks like whatever its numbers are, and however wide its columns.
fn shape(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let taken = number(rest);
        match taken {
            0 => text.push(first),
            _ => text.push('N'),
        }
        rest = &rest[taken.max(first.len_utf8())..];
    }
    // Units go with the numbers.
    let words = text.split_whitespace().map(|word| match word.trim_end_matches([',', ')']) {
        "KB" | "MB" | "GB" => word.replacen(|unit: char| unit != 'B', "", 1),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The length of the number that a text begins with: `0x7fff`, `29737.598468`, `1 062`; 0 if there is none.
fn number(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(hex) = text.strip_prefix("0x") {
        return 2 + hex.bytes().take_while(u8::is_ascii_hexdigit).count();
    }
    let mut length = digits(text);
    while length > 0 {
        let more = match text.as_bytes().get(length) {
            Some(b'.') => digits(&text[length + 1..]),
            Some(b' ') if digits(&text[length + 1..]) == 3 => 3,
            _ => 0,
        };
        if more == 0 {
            break;
        }
        length += 1 + more;
    }
    length
}

/// Panics unless a command did well, and printed lines like those that are shown.
fn check(place: &str, shown: &Shown, ended: &Ended) {
    let Shown { line, output } = shown;
    assert!(ended.status.success(), "{place}: {line}: {ended:?}");
    let printed: BTreeSet<String> = ended.out.lines().chain(ended.err.lines()).map(shape).collect();
    for expected in output {
        assert!(
            printed.contains(&shape(expected)),
            "{place}: {line}: no line like\n  {expected}\nin\n{}\n{}",
            ended.out,
            ended.err
        );
    }
}

/// A control group that looks like a container's, removed when dropped.
struct Container(PathBuf);

impl Container {
    /// A name of its own: one that was killed leaves its group behind.
    fn name() -> String {
        format!("examples-{}", std::process::id())
    }

    fn start() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let root = mount.expect("cgroup2 is mounted").split(' ').nth(1).unwrap();
        let dir = Path::new(root).join(Self::name());
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn commands_in_documents_do_what_they_show() {
    let _container = Container::start();
    let (mut ran, mut compared) = (0, 0);
    for block in blocks().iter().filter(|block| !block.parsed_only) {
        let scratch = Scratch::new();
        if !block.commands.iter().any(|command| command.line.starts_with("trace-cmd")) {
            // Nothing of ours needs it.
            scratch.program("trace-cmd", "echo there is no trace-cmd here >&2; exit 127");
        }
        for command in &block.commands {
            check(&block.place, command, &scratch.run(&command.line));
            ran += 1;
            compared += command.output.len();
        }
    }
    assert!(ran >= 20 && compared >= 6, "{ran} commands ran, {compared} lines were compared");
}

/// What the examples of help texts read: recordings, parts of one, a damaged one, and what a killed recorder
/// left.
struct Fixtures {
    scratch: Scratch,
    /// The times of the first and the last event of `trace.dat`, as users write them.
    times: (String, String),
}

impl Fixtures {
    fn make() -> Self {
        let scratch = Scratch::new();
        let work = scratch.work();
        for name in ["trace.dat", "guest.dat"] {
            let line = format!(
                "tracer-agent record -e sched -e syscalls -e irq -e kmem:kmalloc -e timer:hrtimer_expire_entry \
                 --kernel-stack=kmalloc,sched_switch,hrtimer_expire_entry -o {name} -q make"
            );
            scratch.run(&line).expect(0);
        }
        let copies = [
            ("trace.dat", &["before.dat", "after.dat", "one.dat", "host.dat"][..]),
            ("guest.dat", &["two.dat"]),
        ];
        for (original, names) in copies {
            for name in names {
                fs::copy(work.join(original), work.join(name)).unwrap();
            }
        }
        run(&mut agent(&work, ["split", "-r", "-s", "0.01", "trace.dat"])).expect(0);
        let sched = ["record", "-q", "-o", "perf.data", "-e", "sched:sched_switch", "-a", "sleep", "0.1"];
        run(&mut program(&work, "/usr/bin/perf", sched)).expect(0);
        let whole = fs::read(work.join("trace.dat")).unwrap();
        // Without its end, as after a full disk: where the data of the CPUs are is not known.
        fs::write(work.join("damaged.dat"), &whole[..whole.len() - 200]).unwrap();

        let killed = Marked::start(&work, &["-e", "sched:sched_switch", "-o", "killed.dat"]);
        killed.agent.signal(libc::SIGKILL);
        killed.end_command();
        killed.agent.wait();
        let reader = Reader::open(File::open(work.join("trace.dat")).unwrap()).unwrap();
        let seconds = |time: u64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
        let (first, last) = reader.span().unwrap();
        Self { scratch, times: (seconds(first), seconds(last)) }
    }

    /// Runs an example in a directory of its own.
    fn run(&self, line: &str) -> Ended {
        let scratch = Scratch::new();
        let mut copy = program(&self.scratch.work(), "cp", ["-r", "-l", "-f", "."]);
        run(copy.arg(scratch.work())).expect(0);
        if line.contains(" recover ") {
            fs::remove_file(scratch.work().join("trace.dat")).unwrap();
            fs::rename(scratch.work().join("killed.dat.spool"), scratch.work().join("trace.dat.spool"))
                .unwrap();
        }
        let (from, to) = &self.times;
        let line = line.replace(TIMES, &format!("trace.dat {from} {to}"));
        scratch.run(&line.replace(FROM_TO, &format!("--from {from} --to {to}")))
    }
}

#[test]
fn examples_of_help_texts_do_what_they_say() {
    let fixtures = Fixtures::make();
    let examples = help_examples();
    let mut parsed_only = BTreeSet::new();
    for line in &examples {
        parse("a help text", line);
        if let Some((part, _)) = PARSED_ONLY.iter().find(|(part, _)| line.contains(part)) {
            parsed_only.insert(part);
            continue;
        }
        let ended = fixtures.run(line);
        check("a help text", &Shown { line: line.clone(), output: Vec::new() }, &ended);
        let command = line.split(' ').nth(1).unwrap();
        if let Some((_, parts)) = PRINTING.iter().find(|(name, _)| *name == command) {
            assert!(parts.iter().any(|part| ended.out.contains(part)), "{line}: {ended:?}");
        }
    }
    for times in [TIMES, FROM_TO] {
        assert!(examples.iter().any(|line| line.contains(times)), "{times}");
    }
    assert_eq!(parsed_only.len(), PARSED_ONLY.len(), "an entry that no example is about");
    assert!(examples.len() >= 30, "{examples:?}");
}

#[test]
fn every_command_line_of_a_document_is_one() {
    let blocks = blocks();
    for block in &blocks {
        for command in &block.commands {
            parse(&block.place, &command.line);
        }
    }
    let run = blocks.iter().filter(|block| !block.parsed_only).count();
    assert!(run >= 8, "only {run} of {} blocks are run", blocks.len());
}

#[test]
fn options_that_stock_tools_do_not_know_are_named_in_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    run(&mut agent(dir.path(), ["record", "-e", "sched:sched_switch", "--user-stack", "-q", "ls"])).expect(0);
    let mentioned = |args: &[&str]| -> BTreeSet<String> {
        let said = run(&mut program(dir.path(), "trace-cmd", args)).expect(0).err;
        said.lines()
            .filter_map(|line| line.trim().strip_prefix("unknown option "))
            .map(str::to_owned)
            .collect()
    };
    let by_convert = mentioned(&["convert", "-i", "trace.dat", "-o", "converted.dat"]);
    assert_eq!(by_convert, mentioned(&["hist", "-i", "trace.dat"]));
    let limits = fs::read_to_string(Path::new(ROOT).join("docs/limits.md")).unwrap();
    let line = limits.lines().find(|line| line.contains("unknown option")).unwrap();
    let named = line.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 5);
    assert_eq!(by_convert, named.map(str::to_owned).collect());
    assert_eq!(mentioned(&["split", "-i", "trace.dat", "-o", "part.dat"]), by_convert);
    let kept = ["converted.dat", "part.dat.1"].map(|file| mentioned(&["hist", "-i", file]));
    assert_eq!(kept, [by_convert, BTreeSet::new()], "convert copies them, split does not");
}

/// The heading's name in links.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut links = 0;
    for file in documents() {
        let file = Path::new(ROOT).join(file);
        let text = fs::read_to_string(&file).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            if link.starts_with("https://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link}", file.display());
            let headings = || fs::read_to_string(&target).unwrap();
            assert!(
                heading.is_empty()
                    || headings().lines().any(|line| {
                        line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading
                    }),
                "{}: {link}",
                file.display()
            );
            links += 1;
        }
    }
    assert!(links > 20, "{links}");
}

#[test]
fn the_architecture_has_every_crate() {
    let architecture = fs::read_to_string(Path::new(ROOT).join("docs/architecture.md")).unwrap();
    let headings: Vec<&str> = architecture.lines().filter(|line| line.starts_with("### ")).collect();
    let mut crates = 0;
    for entry in fs::read_dir(Path::new(ROOT).join("agent")).unwrap() {
        let path = entry.unwrap().path();
        if path.join("Cargo.toml").exists() {
            let name = format!("`agent/{}`", path.file_name().unwrap().to_str().unwrap());
            let is_there = headings.iter().any(|heading| heading.contains(&name));
            assert!(is_there, "docs/architecture.md has no heading for {}", path.display());
            crates += 1;
        }
    }
    assert!(crates > 10, "{crates}");
}

#[test]
fn shapes_have_no_numbers() {
    assert_eq!(
        shape("trace.dat: 1 062 events in 1.019 s, 18.6 KB (76.0 KB of trace pages)"),
        "trace.dat: N events in N s, N B (N B of trace pages)"
    );
    assert_eq!(shape("  0            450       4.6 MB              0"), "N N N B N");
    assert_eq!(
        shape("  cc-4711 [001] 29737.598468: sys_enter_openat:     dfd: 0xffffff9c, mode: 1."),
        "cc-N [N] N: sys_enter_openat: dfd: N, mode: N."
    );
}
