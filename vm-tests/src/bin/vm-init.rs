//! PID 1 of a guest: mounts what Linux programs expect, runs the plan, reports, powers off.
//!
//! When it cannot do its work it ends, which makes the kernel panic: the host sees that at once.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process_group, setsid};
use rustix::system::{RebootCommand, init_module};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use vm_tests::disk;
use vm_tests::protocol::{Cmd, End, Frame, PLAN_PATH, Plan};

/// How long a pipe may stay open after its command ended: something that the command left behind may hold it.
const LINGER: Duration = Duration::from_secs(1);

/// How long it may take until a drive is there.
const DRIVE_MAX: Duration = Duration::from_mins(1);

const MOUNTS: [(&str, &str); 9] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("tracefs", "/sys/kernel/tracing"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("securityfs", "/sys/kernel/security"),
];

type Port = Arc<Mutex<File>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm-init: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    for (kind, at) in MOUNTS {
        mount(kind, at, kind, MountFlags::empty(), None)
            .map_err(|error| format!("mount {kind} on {at}: {error}"))?;
    }
    let plan = Plan::from_bytes(&fs::read(PLAN_PATH)?)?;
    for module in &plan.modules {
        init_module(&fs::read(module)?, c"").map_err(|error| format!("load {module}: {error}"))?;
    }
    if let Some(path) = &plan.disk {
        mount_disk(path)?;
    }
    if plan.shell {
        shell()?;
    } else {
        let port = open_port()?;
        send(&port, &Frame::Hello)?;
        for command in &plan.commands {
            println!("vm-init: {:?}", command.args);
            let end = execute(command, &port)?;
            println!("vm-init: {end:?}");
            send(&port, &Frame::End(end))?;
        }
        for path in &plan.files {
            send_file(path, &port)?;
        }
        send(&port, &Frame::Done)?;
        tcdrain(&*lock(&port))?;
    }
    println!("vm-init: done");
    tcdrain(io::stdout())?;
    rustix::system::reboot(RebootCommand::PowerOff)?;
    Ok(())
}

fn mount_disk(path: &str) -> Result<(), Box<dyn Error>> {
    // A driver that is a module looks for its drives when it is loaded, and nobody waits for that.
    let until = Instant::now() + DRIVE_MAX;
    while !fs::exists(disk::PARTITION)? {
        if Instant::now() >= until {
            return Err(format!("there is no {}", disk::PARTITION).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    fs::write(disk::SCHEDULER_FILE, disk::SCHEDULER)
        .map_err(|error| format!("{} in {}: {error}", disk::SCHEDULER, disk::SCHEDULER_FILE))?;
    fs::create_dir_all(path).map_err(|error| format!("{path}: {error}"))?;
    mount(disk::PARTITION, path, disk::FILE_SYSTEM, MountFlags::empty(), None)
        .map_err(|error| format!("mount {} on {path}: {error}", disk::PARTITION))?;
    Ok(())
}

/// The second serial port, passing every byte as it is.
fn open_port() -> Result<Port, Box<dyn Error>> {
    let port = OpenOptions::new().write(true).read(true).open("/dev/ttyS1")?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)?;
    Ok(Arc::new(Mutex::new(port)))
}

fn lock(port: &Port) -> std::sync::MutexGuard<'_, File> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(port: &Port, frame: &Frame) -> io::Result<()> {
    frame.write(&mut *lock(port))
}

fn environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", "/bin:/usr/bin:/sbin:/usr/sbin")
        .env("HOME", "/root")
        .env("TERM", "vt100")
        .env("RUST_BACKTRACE", "1")
        .current_dir("/root");
}

fn execute(cmd: &Cmd, port: &Port) -> io::Result<End> {
    let Some((program, args)) = cmd.args.split_first() else {
        send(port, &Frame::Stderr(b"the command is empty\n".to_vec()))?;
        return Ok(End::NotStarted);
    };
    let mut command = Command::new(program);
    environment(&mut command);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            send(port, &Frame::Stderr(format!("{program}: {error}\n").into_bytes()))?;
            return Ok(End::NotStarted);
        }
    };
    let (closed, wait) = mpsc::channel();
    let mut pipes = 0;
    if let Some(pipe) = child.stdout.take() {
        forward(pipe, Frame::Stdout, port, closed.clone());
        pipes += 1;
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, Frame::Stderr, port, closed);
        pipes += 1;
    }
    let status = wait_until(&mut child, Instant::now() + cmd.timeout)?;
    if status.is_none() {
        if let Some(group) = Pid::from_raw(child.id() as i32) {
            // It may have ended in between.
            let _ = kill_process_group(group, Signal::KILL);
        }
        child.wait()?;
    }
    let until = Instant::now() + LINGER;
    for _ in 0..pipes {
        if wait.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
            break;
        }
    }
    Ok(match status {
        None => End::TimedOut,
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code),
            (None, signal) => End::Signal(signal.unwrap_or_default()),
        },
    })
}

/// Polls: PID 1 has nothing better to do, and a signal handler would be more to get wrong.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends what comes out of a pipe to the host and shows it on the console.
fn forward(
    mut pipe: impl Read + Send + 'static,
    frame: fn(Vec<u8>) -> Frame,
    port: &Port,
    closed: mpsc::Sender<()>,
) {
    /// Of each pipe; the host has the rest in its frames.
    const SHOWN: usize = 16 * 1024;
    let port = Arc::clone(port);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        let mut shown = 0;
        while let Ok(size @ 1..) = pipe.read(&mut buffer) {
            let data = &buffer[..size];
            let part = &data[..size.min(SHOWN - shown)];
            shown += part.len();
            // The console is for people; the frames are what counts.
            let _ = io::stdout().write_all(part);
            if send(&port, &frame(data.to_vec())).is_err() {
                break;
            }
        }
        // Nobody waits any more if the pipe was left open too long.
        let _ = closed.send(());
    });
}

fn send_file(path: &str, port: &Port) -> io::Result<()> {
    send(port, &Frame::File(path.to_owned()))?;
    let failed = |error: io::Error| Frame::FileError(format!("{path}: {error}"));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return send(port, &failed(error)),
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(size) => send(port, &Frame::Data(buffer[..size].to_vec()))?,
            Err(error) => return send(port, &failed(error)),
        }
    }
}

/// A shell that owns the console, so that control keys reach what it runs.
fn shell() -> Result<(), Box<dyn Error>> {
    println!("vm-init: `exit` powers the machine off");
    let mut command = Command::new("/bin/busybox");
    environment(&mut command);
    command.args(["setsid", "-c", "busybox", "sh", "-l"]);
    for stream in [Command::stdin, Command::stdout, Command::stderr] {
        stream(&mut command, Stdio::from(OpenOptions::new().read(true).write(true).open("/dev/ttyS0")?));
    }
    // Only a process without a terminal may take one.
    let _ = setsid();
    command.status()?;
    Ok(())
}
