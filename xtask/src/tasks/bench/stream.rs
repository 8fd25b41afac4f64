//! `cargo xtask bench stream`: a session whose events go to a relay daemon of LTTng beside one that stores
//! them on this machine.
//!
//! Each round has a daemon of its own for each way. What is compared is its processor time from the session's
//! start to the end of its stop, when all is where it belongs; the relay daemon's is told beside it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    LOAD_TASK, Ready, file,
    load::{self, LoadReport},
    median, number, run_untraced,
};
use crate::{Result, process};

/// Calls of the load in a full round; each has two events.
const CALLS: u64 = 4_000_000;
/// How long a daemon may take to be there.
const START_MAX: Duration = Duration::from_secs(30);
/// Ticks of a second in `/proc/PID/stat` (`USER_HZ`, which is 100 on every architecture of Linux that we
/// build for).
const TICKS: f64 = 100.0;

/// What one way has cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Events that the load made in a second.
    rate: f64,
    /// Processor time of the session daemon for each event, in nanoseconds.
    daemon_ns: f64,
    /// That of the relay daemon.
    relay_ns: f64,
    /// Events that were lost or are not where they belong.
    missing: u64,
}

/// A process that is killed when it is no longer needed.
pub(super) struct Background(Child);

impl Background {
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        command.stdin(File::open("/dev/null")?).stderr(log.try_clone()?).stdout(log);
        Ok(Self(command.spawn().map_err(|error| format!("{}: {error}", process::line(command)))?))
    }

    /// Its processor time by now, in seconds.
    fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        ticks(&stat).map(|ticks| ticks as f64 / TICKS).ok_or_else(|| "no times in /proc/PID/stat".into())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// `utime` and `stime` of a line of `/proc/PID/stat` (proc_pid_stat(5)).
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

pub(super) fn run(args: &[String]) -> Result {
    let (mut rounds, mut calls, mut agent) = (9, CALLS, None);
    let mut left = args.iter();
    while let Some(arg) = left.next() {
        match arg.as_str() {
            "--rounds" => rounds = number(arg, left.next())?,
            "--quick" => (rounds, calls) = (3, CALLS / 4),
            "--agent" => agent = Some(file(arg, left.next())?),
            other => return Err(format!("no such option: {other}").into()),
        }
    }
    let Some(ready) = Ready::make("stream", args, agent)? else { return Ok(()) };
    let relay = process::find("lttng-relayd").ok_or("there is no lttng-relayd")?;
    print!("{}", table(&measure((rounds, calls), (&ready.agent, &relay), &ready.dir)?));
    Ok(())
}

/// Each round: stored here, and sent.
fn measure(
    (rounds, calls): (usize, u64),
    (agent, relay): (&Path, &Path),
    dir: &Path,
) -> Result<Vec<[Cost; 2]>> {
    let mut all = Vec::new();
    for number in 0..rounds {
        let dir = dir.join(number.to_string());
        fs::create_dir(&dir)?;
        let stored = round(agent, None, calls, &dir.join("stored"))?;
        let sent = round(agent, Some(relay), calls, &dir.join("sent"))?;
        eprintln!("stored: {stored:.0?}\nsent: {sent:.0?}");
        all.push([stored, sent]);
        fs::remove_dir_all(&dir)?;
    }
    Ok(all)
}

/// Records the load in a session, to a relay daemon if there is one.
fn round(agent: &Path, relay: Option<&Path>, calls: u64, dir: &Path) -> Result<Cost> {
    fs::create_dir(dir)?;
    let (socket, trace) = (dir.join("socket"), dir.join("trace"));
    let started = relay.map(|relay| start_relay(relay, &trace, dir)).transpose()?;
    let mut daemon = Command::new(agent);
    daemon.arg("daemon").arg("--socket").arg(&socket).arg("--state").arg(dir.join("state"));
    let daemon = Background::start(&mut daemon, &dir.join("daemon.log"))?;
    wait_until("the session daemon", || std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
    let ctl = |args: &[&str]| {
        let mut command = Command::new(agent);
        command.args(["ctl", "--no-sessiond", "--socket"]).arg(&socket).args(args).env("LTTNG_HOME", dir);
        process::output(&mut command)
    };
    let place = match &started {
        Some((_, [control, data])) => format!("--set-url=net://127.0.0.1:{control}:{data}"),
        None => format!("--set-url=file://{}", trace.display()),
    };
    ctl(&["create", "bench", "--format=lttng", &place])?;
    // So large that nothing is lost where the disk or the relay daemon has to be waited for.
    ctl(&["enable-channel", "--kernel", "--subbuf-size=8M", "--num-subbuf=16", "calls"])?;
    ctl(&["enable-event", "--kernel", "--channel=calls", "--syscall", "getppid"])?;
    let before = (daemon.cpu()?, started.as_ref().map_or(Ok(0.0), |(relay, _)| relay.cpu())?);
    ctl(&["start"])?;
    let load = run_load(calls, &dir.join("load"))?;
    ctl(&["stop"])?;
    let after = (daemon.cpu()?, started.as_ref().map_or(Ok(0.0), |(relay, _)| relay.cpu())?);
    ctl(&["destroy"])?;
    let events = calls.saturating_mul(2);
    let found = calls_in(agent, &trace)?;
    Ok(Cost {
        rate: events as f64 / load.elapsed().as_secs_f64(),
        daemon_ns: (after.0 - before.0) * 1e9 / events as f64,
        relay_ns: (after.1 - before.1) * 1e9 / events as f64,
        missing: events.saturating_sub(found),
    })
}

fn run_load(calls: u64, report: &Path) -> Result<LoadReport> {
    let workload = load::find("getppid-one")?;
    let mut load = Command::new(std::env::current_exe()?);
    load.arg(LOAD_TASK.name).args([workload.name, &calls.to_string()]).arg(report);
    run_untraced(&mut load, report)
}

/// Starts a relay daemon. Gives its ports: of control and data.
fn start_relay(relay: &Path, output: &Path, dir: &Path) -> Result<(Background, [u16; 2])> {
    fs::create_dir(output)?;
    let [control, data, live] = free_ports()?;
    let mut command = Command::new(relay);
    for (option, port) in [("--control-port", control), ("--data-port", data), ("--live-port", live)] {
        command.arg(format!("{option}=tcp://127.0.0.1:{port}"));
    }
    command.arg(format!("--output={}", output.display())).env("LTTNG_HOME", dir);
    let relay = Background::start(&mut command, &dir.join("relay.log"))?;
    wait_until("the relay daemon", || std::net::TcpStream::connect(("127.0.0.1", control)).is_ok())?;
    Ok((relay, [control, data]))
}

/// Ports that nobody listens at. They are different ones, as all are held at one time.
pub(super) fn free_ports() -> Result<[u16; 3]> {
    let listen = || TcpListener::bind(("127.0.0.1", 0));
    let held = [listen()?, listen()?, listen()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

pub(super) fn wait_until(what: &str, is_there: impl Fn() -> bool) -> Result {
    let since = Instant::now();
    while !is_there() {
        if since.elapsed() > START_MAX {
            return Err(format!("{what} does not start").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Events of the channel in all traces that are somewhere in a directory.
fn calls_in(agent: &Path, dir: &Path) -> Result<u64> {
    let mut events = 0;
    for trace in traces(dir)? {
        let told: Value =
            serde_json::from_str(&process::output(Command::new(agent).args(["info", "--json"]).arg(trace))?)?;
        let streams = told["traces"].as_array().into_iter().flatten();
        let streams = streams.flat_map(|trace| trace["streams"].as_array().into_iter().flatten());
        let of_calls =
            streams.filter(|of| of["name"].as_str().is_some_and(|name| name.starts_with("calls_")));
        events += of_calls.filter_map(|of| of["events"].as_u64()).sum::<u64>();
    }
    Ok(events)
}

/// The directories that have a trace of the kernel.
fn traces(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name() == Some(OsStr::new("kernel")) {
            found.push(path);
        } else if path.is_dir() {
            found.extend(traces(&path)?);
        }
    }
    Ok(found)
}

/// The medians, and that of the ratio within a round.
fn table(rounds: &[[Cost; 2]]) -> String {
    let mut text = "| way | events/s | daemon, ns per event | relay daemon, ns per event | missing |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for (index, name) in ["stored here", "sent"].into_iter().enumerate() {
        let of =
            |figure: fn(&Cost) -> f64| median(rounds.iter().map(|round| figure(&round[index])).collect());
        let missing: u64 = rounds.iter().map(|round| round[index].missing).sum();
        text += &format!(
            "| {name} | {:.0} | {:.0} | {:.0} | {missing} |\n",
            of(|cost| cost.rate),
            of(|cost| cost.daemon_ns),
            of(|cost| cost.relay_ns)
        );
    }
    let ratio = median(rounds.iter().map(|[stored, sent]| sent.daemon_ns / stored.daemon_ns).collect());
    text + &format!("\nThe daemon's processor time, sent to stored here: {ratio:.2}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_process_are_found_behind_its_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 25 17 0 0 20 0 1 0 5 6 7\n";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a"), None);
    }

    #[test]
    fn the_table_has_medians() {
        let cost = |daemon_ns| Cost { rate: 2e6, daemon_ns, relay_ns: 30.0, missing: 1 };
        let text = table(&[[cost(10.0), cost(30.0)], [cost(20.0), cost(30.0)], [cost(20.0), cost(40.0)]]);
        assert!(text.contains("| stored here | 2000000 | 20 | 30 | 3 |\n"), "{text}");
        assert!(text.ends_with("sent to stored here: 2.00\n"), "{text}");
    }
}
