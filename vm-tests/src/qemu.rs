//! One run of QEMU, from start to power-off, with an eye on the console.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::disk::BAD_SECTOR;

const PROGRAM: &str = "qemu-system-x86_64";

/// One thread for all processors: with a thread for each, TCG lets a processor run the breakpoint of a code
/// patch that another has already completed, and the kernel dies of an `int3` that nobody owns. Kernels patch
/// themselves at boot and whenever a tracepoint or kprobe is switched on; about one boot in twenty was lost
/// to it.
const TCG: &str = "tcg,thread=single";

/// All features that the emulator has: the same instructions in each run.
const CPU: &str = "max";

/// The same, but with instructions that the kernel copies and clears memory with by bytes, which TCG does one
/// by one: without them it takes words.
const CPU_OF_WORDS: &str = "max,-erms,-fsrm";

const APPEND: &str = "console=ttyS0 panic=-1 oops=panic loglevel=7 no_timer_check noirqdebug";

/// Without retpolines, each of which makes three jumps out of one that TCG has to look up. Programs are
/// verified as before, which `mitigations=off` would change.
const DIRECT_JUMPS: &str = "spectre_v2=off";

/// Set to `kvm` or `tcg` to have no other tried.
pub const ENV_ACCEL: &str = "VM_TESTS_ACCEL";

/// How long the kernel may go on writing after a complaint, for the whole of it to be on the console.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a guest may take to its first sign of life before KVM is given up: a kernel that boots at all has
/// printed something by then.
const KVM_SILENCE: Duration = Duration::from_secs(5);

/// KVM turned out not to work, in this process.
static KVM_FAILED: AtomicBool = AtomicBool::new(false);

/// A machine to start.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// The kernel's image.
    pub image: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// The file of its disk, if it has one.
    pub disk: Option<&'a Path>,
    /// Added to the kernel's command line.
    pub append: &'a str,
    /// Processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Whether the machine's clocks count the instructions that it runs: a nanosecond each.
    pub counts_instructions: bool,
}

impl Machine<'_> {
    fn cpu(&self) -> &'static str {
        if self.counts_instructions { CPU } else { CPU_OF_WORDS }
    }

    /// Where instructions are counted, they are those of Debian's configuration.
    fn kernel_arguments(&self) -> String {
        let jumps = if self.counts_instructions { "" } else { DIRECT_JUMPS };
        format!("{APPEND} {jumps} {}", self.append)
    }

    fn command(&self, accel: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-accel", if accel == "tcg" { TCG } else { accel }, "-cpu", self.cpu()])
            .args(["-smp", &self.cpus.to_string(), "-m", &self.memory.to_string()])
            .arg("-kernel")
            .arg(self.image)
            .arg("-initrd")
            .arg(self.initramfs)
            // panic=-1: reboot at once, which -no-reboot turns into the end of QEMU. no_timer_check: at boot
            // the kernel counts timer interrupts during a busy wait and panics when there are too few, which
            // is what an emulator on a busy host delivers. noirqdebug: kernels with PREEMPT_RT serve the
            // serial line in a thread, take the interrupts that the emulated one raises meanwhile for
            // nobody's, and switch it off in the middle of a file.
            .args(["-append", &self.kernel_arguments()]);
        if let Some(disk) = self.disk {
            // Nobody wants it after the run, so nothing has to reach the host's disk.
            let file = format!(
                "file.driver=blkdebug,file.image.driver=file,file.image.filename={},\
                 file.inject-error.0.event=none,file.inject-error.0.iotype=read,\
                 file.inject-error.0.sector={BAD_SECTOR},file.inject-error.0.errno=5,\
                 if=none,id=disk,format=raw,cache=unsafe",
                disk.display()
            );
            command.args(["-drive", &file, "-device", "nvme,drive=disk,serial=disk"]);
        }
        if self.counts_instructions {
            // Without sleep, the clock jumps to the next timer when the machine is idle.
            command.args(["-icount", "shift=0,align=off,sleep=off"]);
        }
        command
    }

    /// Runs until the guest powers off; returns what was on the console. Its second serial port goes to
    /// `results`.
    pub fn run(&self, results: &Path, timeout: Duration) -> Result<String, Error> {
        let accelerators = if self.counts_instructions { vec!["tcg"] } else { accelerators() };
        for accel in accelerators {
            match self.attempt(accel, results, timeout)? {
                Attempt::Ran(console) => return Ok(console),
                Attempt::NoKvm => KVM_FAILED.store(true, Ordering::Relaxed),
            }
        }
        Err(Error::Host { program: PROGRAM.to_owned(), why: "KVM does not work on this machine".to_owned() })
    }

    /// Runs with the terminal as the console, until the guest powers off.
    pub fn interactive(&self) -> Result<(), Error> {
        // A person sees for himself when KVM hangs, so only what is known to work is tried.
        let accel = std::env::var(ENV_ACCEL).unwrap_or_else(|_| "tcg".to_owned());
        let status = self
            .command(&accel)
            .args(["-serial", "mon:stdio"])
            .status()
            .map_err(|error| not_started(&error))?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::Host { program: PROGRAM.to_owned(), why: status.to_string() })
        }
    }

    fn attempt(&self, accel: &str, results: &Path, timeout: Duration) -> Result<Attempt, Error> {
        File::create(results).map_err(Error::io(results))?;
        let mut command = self.command(accel);
        command
            .args(["-serial", "stdio", "-serial", &format!("file:{}", results.display())])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Guard(command.spawn().map_err(|error| not_started(&error))?);
        let (sender, lines) = mpsc::channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.0.stdout.take().map(|pipe| Box::new(pipe) as _),
            child.0.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = Vec::new();
                while stream.read_until(b'\n', &mut line).is_ok_and(|size| size > 0) {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if sender.send(text).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
        drop(sender);

        let started = Instant::now();
        let mut console = Console::default();
        let mut deadline = started + timeout;
        loop {
            let now = Instant::now();
            match lines.recv_timeout(deadline.saturating_duration_since(now).min(Duration::from_millis(200)))
            {
                Ok(line) => {
                    if accel == "kvm" && line.contains("KVM internal error") {
                        return Ok(Attempt::NoKvm);
                    }
                    if console.push(line) {
                        deadline = deadline.min(Instant::now() + LAST_WORDS);
                    }
                }
                // Both pipes are closed: QEMU is gone.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if accel == "kvm" && console.lines.is_empty() && started.elapsed() > KVM_SILENCE {
                        return Ok(Attempt::NoKvm);
                    }
                }
            }
            if Instant::now() >= deadline {
                child.kill();
                let console_text = console.text();
                return Err(match console.complaint {
                    Some(line) => Error::Kernel { line, console: console_text },
                    None => Error::TimedOut { seconds: timeout.as_secs(), console: console_text },
                });
            }
        }
        let status = child.0.wait().map_err(|error| not_started(&error))?;
        let text = console.text();
        if let Some(line) = console.complaint {
            return Err(Error::Kernel { line, console: text });
        }
        if !status.success() {
            if accel == "kvm" {
                return Ok(Attempt::NoKvm);
            }
            return Err(Error::Host { program: PROGRAM.to_owned(), why: format!("{status}\n{text}") });
        }
        Ok(Attempt::Ran(text))
    }
}

enum Attempt {
    Ran(String),
    NoKvm,
}

/// What to try, in order. A `/dev/kvm` that opens proves little: inside another virtual machine it may run no
/// guest.
fn accelerators() -> Vec<&'static str> {
    match std::env::var(ENV_ACCEL).as_deref() {
        Ok("kvm") => vec!["kvm"],
        Ok("tcg") => vec!["tcg"],
        _ if KVM_FAILED.load(Ordering::Relaxed) || File::options().write(true).open("/dev/kvm").is_err() => {
            vec!["tcg"]
        }
        _ => vec!["kvm", "tcg"],
    }
}

fn not_started(error: &std::io::Error) -> Error {
    Error::Host { program: PROGRAM.to_owned(), why: error.to_string() }
}

/// Ends QEMU when a run is left early.
struct Guard(Child);

impl Guard {
    fn kill(&mut self) {
        // It may have ended by itself; either way it is over.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The console's lines, and the first by which the kernel reported a fault.
#[derive(Debug, Default)]
struct Console {
    lines: VecDeque<String>,
    complaint: Option<String>,
}

impl Console {
    const KEPT: usize = 5000;

    /// Adds a line; true if it is the first fault.
    fn push(&mut self, line: String) -> bool {
        let first = self.complaint.is_none() && is_complaint(&line);
        if first {
            self.complaint = Some(line.clone());
        }
        if self.lines.len() == Self::KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        first
    }

    fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}

/// True for a line by which a kernel reports a fault of its own. Programs write to the same console, so only
/// what follows a time stamp of the kernel counts.
fn is_complaint(line: &str) -> bool {
    const STARTS: [&str; 8] = [
        "Kernel panic",
        "BUG: ",
        "WARNING: ",
        "Oops: ",
        "general protection fault",
        "watchdog: BUG: ",
        "Unable to mount root",
        "Out of memory: ",
    ];
    let Some((_, rest)) = line.split_once('[') else { return false };
    let Some((stamp, message)) = rest.split_once("] ") else { return false };
    if !stamp.trim().split_once('.').is_some_and(|(seconds, part)| is_digits(seconds) && is_digits(part)) {
        return false;
    }
    STARTS.iter().any(|start| message.starts_with(start))
        || (message.starts_with("rcu: INFO: ") && message.contains("stall"))
        || (message.starts_with("INFO: task ") && message.contains(" blocked for more than "))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_kernel_are_seen() {
        for line in [
            "[    1.234567] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
            "[   12.000000] WARNING: CPU: 1 PID: 7 at kernel/trace/trace.c:1 f+0x1/0x2",
            "tail of a program's line[   12.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[   60.100000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[  242.800000] INFO: task sh:42 blocked for more than 120 seconds.",
            "[   30.000000] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [sh:1]",
        ] {
            assert!(is_complaint(line), "{line}");
        }
    }

    #[test]
    fn what_programs_print_is_not_a_fault_of_the_kernel() {
        for line in [
            "WARNING: no such event",
            "[INFO] BUG: not the kernel",
            "[    0.1] Linux version 6.1",
            "see [1] BUG: 7",
            "",
        ] {
            assert!(!is_complaint(line), "{line}");
        }
    }
}
