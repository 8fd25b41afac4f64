//! Stock trace-cmd as a reader of our files, and as a recorder to compare with.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// What a run of trace-cmd printed.
#[derive(Debug)]
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
}

/// Runs trace-cmd with these arguments.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Said {
    let output = Command::new("trace-cmd").args(args).output().expect("trace-cmd is installed");
    said(&output)
}

fn said(output: &Output) -> Said {
    Said {
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

/// `trace-cmd report -i PATH ARGS`, which must end well and silently.
///
/// trace-cmd ends with 0 on files that it cannot read, so silence alone proves nothing: callers count lines.
pub fn report(path: &Path, args: &[&str]) -> String {
    let said = report_said(path, args);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "trace-cmd report {args:?} {}", path.display());
    said.out
}

/// `trace-cmd report -i PATH ARGS`, whatever comes of it.
pub fn report_said(path: &Path, args: &[&str]) -> Said {
    run([OsStr::new("report"), "-i".as_ref(), path.as_os_str()]
        .into_iter()
        .chain(args.iter().map(OsStr::new)))
}

/// A printed event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The task's name, as far as the file knows it.
    pub comm: String,
    /// Its thread id.
    pub pid: u32,
    /// CPU.
    pub cpu: u32,
    /// Nanoseconds, if printed with `-t`; otherwise microseconds as nanoseconds.
    pub time: u64,
    /// Name of the event, without its system.
    pub event: String,
    /// The rest of the line.
    pub fields: String,
}

impl Line {
    /// Takes a line of `report` apart: `comm-pid [cpu] seconds.fraction: event: fields`.
    pub fn parse(line: &str) -> Option<Self> {
        // A name may hold anything, digits and brackets too; the CPU is what is followed by a time.
        let (open, rest) = line.match_indices(" [").find_map(|(at, _)| {
            let (cpu, rest) = line[at + 2..].split_once(']')?;
            let cpu: u32 = cpu.parse().ok()?;
            let (stamp, rest) = rest.trim_start().split_once(": ")?;
            // With -l the latency flags stand before the time.
            let stamp = stamp.rsplit(' ').next()?;
            let (seconds, fraction) = stamp.split_once('.')?;
            let scale = 10u64.pow(9u32.checked_sub(fraction.len() as u32)?);
            let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()? * scale;
            Some((at, (cpu, time, rest)))
        })?;
        let (cpu, time, rest) = rest;
        let (comm, pid) = line[..open].trim_end().rsplit_once('-')?;
        let (event, fields) = rest.trim_start().split_once(':')?;
        Some(Self {
            comm: comm.trim_start().to_owned(),
            pid: pid.parse().ok()?,
            cpu,
            time,
            event: event.to_owned(),
            fields: fields.trim().to_owned(),
        })
    }
}

/// Runs `trace-cmd report -i PATH` and shows each line that is an event's to `look`, for reports too long to
/// keep. Returns what trace-cmd complained about.
pub fn each_line(path: &Path, mut look: impl FnMut(&str)) -> String {
    let mut child = Command::new("trace-cmd")
        .args(["report", "-i"])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("trace-cmd is installed");
    let mut complaints = child.stderr.take().unwrap();
    // Read at the same time, so that a full pipe stops neither.
    let complaints = std::thread::spawn(move || std::io::read_to_string(&mut complaints).unwrap());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = Vec::new();
    while out.read_until(b'\n', &mut line).unwrap() != 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\n');
        if is_event(text) {
            look(text);
        }
        line.clear();
    }
    assert!(child.wait().unwrap().success(), "trace-cmd report {}", path.display());
    complaints.join().unwrap()
}

/// Whether trace-cmd prints an event with this line, and not something about the file or about losses.
fn is_event(line: &str) -> bool {
    let about_file = line.starts_with("cpus=") || line.starts_with("version = ") || line.starts_with("CPU ");
    let about_losses = line.starts_with("CPU:") && line.contains("EVENTS DROPPED]");
    !(line.is_empty() || about_file || about_losses)
}

/// How many events a report shows, in whatever form.
pub fn count(report: &str) -> usize {
    report.lines().filter(|line| is_event(line)).count()
}

/// The events of a report. Every line must be one, but those that trace-cmd prints about the file and its
/// losses.
pub fn lines(report: &str) -> Vec<Line> {
    report
        .lines()
        .filter(|line| is_event(line))
        .map(|line| Line::parse(line).unwrap_or_else(|| panic!("not a line of an event: {line:?}")))
        .collect()
}

/// The same where fields may hold texts without an end, which trace-cmd prints with what is behind them: a
/// line that cannot be an event's goes on with the one before it.
pub fn broken_lines(report: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for text in report.lines().filter(|line| is_event(line)) {
        match (Line::parse(text), lines.last_mut()) {
            (Some(line), _) => lines.push(line),
            (None, Some(last)) => last.fields.push_str(text),
            (None, None) => panic!("not a line of an event: {text:?}"),
        }
    }
    lines
}

/// The directory of the files of stock trace-cmd.
fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

fn unpack(packed: &Path, to: &Path) {
    let out = File::create(to).unwrap();
    let ended = Command::new("zcat").arg(packed).stdout(out).status().expect("zcat is installed");
    assert!(ended.success(), "{}", packed.display());
}

/// Puts a file of stock trace-cmd at a path, unpacked.
pub fn take_stored(name: &str, to: &Path) {
    let plain = traces().join(format!("{name}.dat"));
    if plain.exists() {
        fs::copy(plain, to).unwrap();
    } else {
        unpack(&traces().join(format!("{name}.dat.gz")), to);
    }
}

/// The files of stock trace-cmd, unpacked.
pub fn stored(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(traces()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|ending| ending == "dat") {
            files.push(path);
        } else if let Some(name) = name.strip_suffix(".gz").filter(|name| !name.contains(".txt")) {
            let unpacked = dir.join(name);
            unpack(&path, &unpacked);
            files.push(unpacked);
        }
    }
    assert!(files.len() >= 9, "{files:?}");
    files
}
