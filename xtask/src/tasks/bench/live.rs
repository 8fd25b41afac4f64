//! `cargo xtask bench live`: how late babeltrace2 prints events that it reads while they are recorded.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    Ready, file, number,
    stream::{Background, free_ports, wait_until},
};
use crate::Result;

/// The live timers that are measured.
const TIMERS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(1)];
/// Events of one measurement, of which there is one each ten milliseconds.
const EVENTS: usize = 1000;

pub(super) fn run(args: &[String]) -> Result {
    let (mut events, mut agent) = (EVENTS, None);
    let mut left = args.iter();
    while let Some(arg) = left.next() {
        match arg.as_str() {
            "--events" => events = number(arg, left.next())?,
            "--quick" => events = EVENTS / 4,
            "--agent" => agent = Some(file(arg, left.next())?),
            other => return Err(format!("no such option: {other}").into()),
        }
    }
    let Some(ready) = Ready::make("live", args, agent)? else { return Ok(()) };
    let measure = |timer: &Duration| {
        let dir = ready.dir.join(timer.as_millis().to_string());
        Ok((*timer, latencies(&ready.agent, *timer, events, &dir)?))
    };
    let measured = TIMERS.iter().map(measure).collect::<Result<Vec<_>>>()?;
    print!("{}", table(&measured));
    Ok(())
}

/// How much later than it happened each event was printed.
fn latencies(agent: &Path, timer: Duration, events: usize, dir: &Path) -> Result<Vec<Duration>> {
    fs::create_dir(dir)?;
    let [port, ..] = free_ports()?;
    // More events than are looked at: the last ones are brought by the end of the recording.
    let load = format!(
        "for (1..{}) {{ getppid; select undef, undef, undef, 0.01 }}",
        events + 100 + timer.as_millis() as usize / 5
    );
    let mut record = Command::new(agent);
    record.arg("record").arg(format!("--live={}ms", timer.as_millis()));
    record.arg(format!("--live-bind=127.0.0.1:{port}")).arg("-o").arg(dir.join("trace"));
    record.args(["-e", "syscalls:sys_enter_getppid", "perl", "-e", &load]);
    let log = dir.join("log");
    let recording = Background::start(&mut record, &log)?;
    let address = || {
        let said = fs::read_to_string(&log).ok()?;
        Some(said.split_whitespace().find(|word| word.starts_with("net://"))?.to_owned())
    };
    wait_until("the recording", || address().is_some())?;
    let address = address().ok_or("the recording does not say how it is read")?;
    let mut reader = Command::new("stdbuf");
    reader.args(["-oL", "babeltrace2", "--clock-seconds", "--input-format=lttng-live", &address]);
    let mut reader = reader.stdin(File::open("/dev/null")?).stdout(Stdio::piped()).spawn()?;
    let printed = reader.stdout.take().ok_or("babeltrace2 has no output")?;
    let mut all = Vec::new();
    for line in BufReader::new(printed).lines() {
        let line = line?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        if line.contains("getppid") {
            all.push(now.saturating_sub(time(&line).ok_or_else(|| format!("no time in {line}"))?));
        }
        if all.len() == events {
            break;
        }
    }
    let _ = reader.kill();
    let _ = reader.wait();
    drop(recording);
    if all.len() < events {
        return Err(format!("babeltrace2 has printed {} of {events} events", all.len()).into());
    }
    Ok(all)
}

/// The time of an event, since 1970: `[1795568870.502763512] ...`.
fn time(line: &str) -> Option<Duration> {
    let (seconds, rest) = line.strip_prefix('[')?.split_once('.')?;
    let (nanoseconds, _) = rest.split_once(']')?;
    Some(Duration::new(seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

fn table(measured: &[(Duration, Vec<Duration>)]) -> String {
    let mut text = "| live timer | events | median latency | 99 % | highest | highest above the timer |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for (timer, latencies) in measured {
        let mut sorted = latencies.clone();
        sorted.sort();
        let at = |percent: usize| {
            let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
            sorted.get(index).copied().unwrap_or_default()
        };
        let above = at(100).as_millis() as i128 - timer.as_millis() as i128;
        let [median, high, highest] = [50, 99, 100].map(|percent| at(percent).as_millis());
        text += &format!(
            "| {} ms | {} | {median} ms | {high} ms | {highest} ms | {above} ms |\n",
            timer.as_millis(),
            sorted.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_that_babeltrace2_prints() {
        let line = "[1795568870.502763512] (+0.000000001) vm syscall_entry_getppid: { cpu_id = 0 }, { }";
        assert_eq!(time(line), Some(Duration::new(1_795_568_870, 502_763_512)));
        assert_eq!(time("syscall"), None);
    }

    #[test]
    fn the_table_has_the_highest() {
        let latencies = (1..=100).map(Duration::from_millis).collect();
        let text = table(&[(Duration::from_millis(100), latencies)]);
        assert!(text.ends_with("| 100 ms | 100 | 51 ms | 100 ms | 100 ms | 0 ms |\n"), "{text}");
    }
}
