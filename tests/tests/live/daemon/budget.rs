//! A daemon that has a budget keeps to it, says so, and loses nothing of what it counts.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use integration_tests::{
    daemon::Daemon,
    harness::{Caller, Report, agent, ledger_in_info, name_of, run, wait_for},
    soak, trace_cmd,
};
use serde_json::json;

use super::files;

/// Seconds of a storm. In a long trial it is two minutes.
const STORM: u64 = 30;
/// What the daemon may take.
const BUDGET: f64 = 0.02;

/// Lets the kernel measure all programs, as `bpftool prog profile` users do, until it is dropped.
struct Measured;

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Measured {
    fn begin() -> Self {
        fs::write(STATISTICS, "1").unwrap();
        Self
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = fs::write(STATISTICS, "0");
    }
}

/// What the kernel says that the daemon and its programs have taken, in CPU seconds.
#[derive(Default)]
struct Taken {
    /// Of each program that there was, by its id.
    programs: BTreeMap<u64, u64>,
}

impl Taken {
    fn look(&mut self, daemon: &Daemon) -> f64 {
        let dir = format!("/proc/{}/fdinfo", daemon.pid());
        for entry in fs::read_dir(dir).unwrap().flatten() {
            // It may have been closed meanwhile.
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let number = |key: &str| -> Option<u64> {
                let line = text.lines().find_map(|line| line.strip_prefix(key))?;
                line.trim().parse().ok()
            };
            if let (Some(id), Some(time)) = (number("prog_id:"), number("run_time_ns:")) {
                self.programs.insert(id, time);
            }
        }
        // Of all threads, also those that have ended (proc(5)): user and system time in ticks of 10 ms.
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        ticks as f64 / 100.0 + self.programs.values().sum::<u64>() as f64 / 1e9
    }
}

/// A million system calls in a second, as fast as the machine makes them.
struct Storm(Child);

impl Storm {
    fn begin() -> Self {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null", "bs=1"]).stderr(Stdio::null());
        Self(dd.spawn().unwrap())
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn steps(daemon: &Daemon, step: &str, way: &str) -> f64 {
    let series = format!("tracer_agent_throttle_steps_total{{step=\"{step}\",way=\"{way}\"}}");
    daemon.metric(&series).unwrap_or_default()
}

/// The numbers behind `name=` in the throttle events that the stock reader finds.
fn told(file: &Path) -> Vec<BTreeMap<String, u64>> {
    let text = trace_cmd::report(file, &[]);
    let events = text.lines().filter(|line| line.contains(" throttle: "));
    let fields = |line: &str| {
        let fields = line.split_whitespace().filter_map(|word| word.split_once('='));
        fields.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    };
    events.map(fields).collect()
}

/// Nothing is recorded in a pause, and all that was counted is in the file.
fn is_whole(file: &Path) {
    run(agent(file.parent().unwrap(), ["check"]).arg(file)).expect(0);
    let ledger = ledger_in_info(file);
    let offset = ledger["realtime_offset_ns"].as_i64().unwrap();
    let wall = |time: u64| time.saturating_add_signed(offset);
    let pauses: Vec<(u64, u64)> = ledger["pauses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pause| {
            (wall(pause["from_ns"].as_u64().unwrap()), pause["to_ns"].as_u64().map_or(u64::MAX, wall))
        })
        .collect();
    assert!(!pauses.is_empty(), "{ledger}");
    let text = trace_cmd::report(file, &["-t"]);
    let mut count = 0;
    for line in text.lines().filter(|line| line.contains(": sys_enter_") || line.contains(" throttle: ")) {
        let time = line.split_whitespace().find_map(|word| {
            let (seconds, nanos) = word.strip_suffix(':')?.split_once('.')?;
            Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?)
        });
        let time = time.unwrap_or_else(|| panic!("{line}"));
        // From when its gate was closed on to when it is opened: programs that run at these moments finish.
        let edge = 20_000_000;
        let inside = pauses.iter().any(|&(from, to)| time > from.saturating_add(edge) && time + edge < to);
        assert!(!inside, "{line} is in a pause of {pauses:?}");
        count += 1;
    }
    let recorded: u64 =
        ledger["cpus"].as_array().unwrap().iter().map(|cpu| cpu["recorded"].as_u64().unwrap()).sum();
    assert_eq!(count, recorded, "what the stock reader finds: {ledger}");
}

#[test]
fn a_storm_is_kept_to_the_budget_and_what_is_done_for_it_is_told() {
    let seconds = if soak() > 1 { 120 } else { STORM };
    let text = String::from(
        "[budget]\ncpu = \"2%\"\n\n[[sessions.storm.channels]]\nring_bytes = 4194304\nrules = [{ what = { events = \
         \"syscalls:sys_enter_read\" } }, { what = { events = \"syscalls:sys_enter_write\" } }]\n\n\
         [sessions.others]\nthrottled = false\n[[sessions.others.channels]]\n\
         rules = [{ what = { events = \"sched:sched_process_exec\" }, filter = \"filename ~ \\\"*/none-of-many\\\"\" }]\n",
    );
    let daemon = Daemon::start_configured(&text);
    let _measured = Measured::begin();
    let mut taken = Taken::default();
    let before = taken.look(&daemon);
    let (other, mut others) = (daemon.path().join("none-of-many"), 0);
    fs::copy("/bin/true", &other).unwrap();
    let begin = Instant::now();
    let storm = Storm::begin();
    while begin.elapsed() < Duration::from_secs(seconds) {
        assert!(Command::new(&other).status().unwrap().success());
        others += 1;
        std::thread::sleep(Duration::from_millis(500));
        taken.look(&daemon);
    }
    let ratio = (taken.look(&daemon) - before) / begin.elapsed().as_secs_f64() / BUDGET;
    println!("{ratio:.3} times the budget over {seconds} s");
    assert!(ratio < 1.1, "{ratio} times the budget: {}", daemon.said());
    assert!(steps(&daemon, "part", "taken") >= 1.0, "{}", daemon.said());
    assert!(daemon.metric::<f64>("tracer_agent_throttle_level").unwrap() > 0.0);
    assert!(daemon.has_said("budget: "), "{}", daemon.said());
    let limit: f64 = daemon.metric("tracer_agent_budget_cpu_ratio").unwrap();
    assert!((limit - BUDGET).abs() < 1e-9, "{limit}");
    drop(storm);
    // It comes back, slowly.
    wait_for("more to be recorded", || {
        // Each question is paid for by the budget.
        std::thread::sleep(Duration::from_millis(500));
        (steps(&daemon, "part", "back") >= 1.0).then_some(())
    });
    for name in ["storm", "others"] {
        daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
    }
    let dir = daemon.path().join("state/sessions");
    let mut all = Vec::new();
    for file in files(&dir.join("storm")) {
        is_whole(&file);
        all.extend(told(&file));
    }
    // Each step that was taken or taken back while something was recorded.
    assert!(all.len() >= 2, "{all:?}");
    assert_eq!((all[0]["before"], all[0]["allowed"]), (0, 20_000));
    assert!(
        all[0]["used"] > 20_000 && all.last().unwrap()["after"] < all.last().unwrap()["before"],
        "{all:?}"
    );
    for pair in all.windows(2) {
        assert_eq!(pair[0]["after"], pair[1]["before"], "{all:?}");
    }
    // Who is not throttled has everything.
    let [file] = &files(&dir.join("others"))[..] else { panic!("more than one file") };
    assert_eq!(Report::of(file).count(|line| name_of(line) == "sched_process_exec"), others);
}

#[test]
fn rings_beyond_the_budget_of_memory_are_not_made() {
    let caller = Caller::start();
    let session = |name: &str, bytes: u64| {
        format!(
            "[[sessions.{name}.channels]]\nring_bytes = {bytes}\nrules = [{{ what = {{ events = \"sched:sched_switch\" }}, \
             filter = \"next_pid == {}\" }}]\n",
            caller.pid()
        )
    };
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let text = |of_b: u64| {
        format!("[budget]\nmemory = {}\n", cpus * (2 << 20))
            + &session("a", 1 << 20)
            + &session("b", of_b)
            + &session("c", 1 << 20)
    };
    let daemon = Daemon::start_configured(&text(2 << 20));
    let told = daemon.tell("GET", "/v1/configuration", None)["last"].clone();
    assert_eq!(told["changes"], json!(["session a added", "session c added"]), "{told}");
    let failure = told["failures"][0].as_str().unwrap();
    assert!(failure.starts_with("session b: ") && failure.contains("`budget.memory`"), "{failure}");
    assert_eq!(daemon.ask("GET", "/v1/health/ready", None).0, 503);
    // It gets what the other one had.
    let told = daemon.configure(&text(1 << 20));
    assert_eq!(told["changes"], json!(["session b added", "session c removed"]), "{told}");
    let failure = told["failures"][0].as_str().unwrap();
    assert!(failure.starts_with("session c: "), "{failure}");
}
