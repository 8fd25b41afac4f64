//! Analyses of recordings of some threads, which have something of others now and then: what threads did that
//! were not recorded is in no row, and nobody runs for longer than the program itself measures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use integration_tests::agent;
use integration_tests::answers::{answer, list, number, text, thread};
use integration_tests::binaries::tool;
use integration_tests::harness::{self, run};
use serde_json::Value;

/// Three threads and one of a child compute for 100 ms each, with pauses, and print their ids and the time
/// that they had a CPU. It begins when its standard input says so.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *computes(void *unused)
{
    static const struct timespec nap = { 0, 10 * 1000 * 1000 };
    for (int round = 0; round < 20; round++) {
        long until = now() + 5 * 1000 * 1000;
        while (now() < until)
            ;
        nanosleep(&nap, NULL);
    }
    dprintf(1, "%ld %ld\n", (long)syscall(SYS_gettid), now());
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    char byte;
    if (read(0, &byte, 1) != 1)
        return 1;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, computes, NULL);
    pid_t child = fork();
    computes(NULL);
    for (int i = 0; child != 0 && i < 2; i++)
        pthread_join(threads[i], NULL);
    return child != 0 && wait(NULL) != child;
}
"#;

/// A process that keeps a CPU busy, and is not recorded.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        Self(Command::new("yes").stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program's threads, with the nanoseconds that they computed.
type Computed = BTreeMap<u32, u64>;

fn computed(said: &str) -> Computed {
    let words = said.lines().map(|line| line.split_once(' ').unwrap());
    words.map(|(tid, time)| (tid.parse().unwrap(), time.parse().unwrap())).collect()
}

/// Records the program, as one that the recorder starts, or as one that runs already.
fn record(dir: &Path, topic: &str, scope: &[&str]) -> Computed {
    let (dat, program) = (dir.join("trace.dat"), dir.join("computes"));
    let _others = [Busy::start(), Busy::start()];
    let args = |scope: &[&str]| -> Vec<String> {
        let fixed = ["-C", "mono", "-b", "32768", "--for", topic];
        fixed.iter().chain(scope).map(|arg| (*arg).to_owned()).collect()
    };
    if scope.contains(&"-F") {
        let line = format!("echo | exec {} > {}", program.display(), dir.join("said").display());
        let mut args = args(scope);
        args.extend(["sh", "-c", &line].map(str::to_owned));
        agent::record(&dat, args);
        return computed(&fs::read_to_string(dir.join("said")).unwrap());
    }
    let mut command = Command::new(&program);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = running.id().to_string();
    let scope: Vec<&str> = scope.iter().map(|word| if *word == "PID" { &pid } else { *word }).collect();
    // The recorder ends with a program of its own, which lets the other one begin and waits for its end: then
    // it is a zombie, which nobody has waited for yet.
    let input = format!("/proc/{pid}/fd/0");
    let mut args = args(&scope);
    args.extend(
        ["sh", "-c", "echo > $1; until grep -q ' Z ' /proc/$0/stat; do sleep 0.05; done", &pid, &input]
            .map(str::to_owned),
    );
    agent::record(&dat, args);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut running.stdout.take().unwrap(), &mut said).unwrap();
    assert!(running.wait().unwrap().success());
    computed(&said)
}

/// Builds the program, and calls `check` with a recording by each kind of scope, and with its threads.
fn each_scope(topic: &str, check: impl Fn(&str, &Path, &Computed)) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(dir.path().join("computes.c"), PROGRAM).unwrap();
    tool(dir.path(), "cc", &["-O1", "-pthread", "-o", "computes", "computes.c"]);
    for scope in [&["-F", "-c"][..], &["-P", "PID", "-c"], &["--comm", "computes"]] {
        let computed = record(dir.path(), topic, scope);
        assert_eq!(computed.len(), 4, "{computed:?}");
        check(&scope.join(" "), &dir.path().join("trace.dat"), &computed);
    }
}

/// Whether a time is about what a thread has computed: its CPU clock stops for interrupts, and in a virtual
/// machine while the host takes the CPU.
fn is_about(run: u64, computed: u64) -> bool {
    run >= computed / 2 && run <= computed * 2
}

/// The shell becomes the program: its thread has more than the program measures.
fn is_known(computed: &Computed, row: &Value) -> bool {
    computed.contains_key(&(number(row, "tid") as u32))
        || ["sh", "grep", "sleep"].contains(&text(row, "comm"))
}

#[test]
fn threads_run_as_long_as_they_compute_and_others_are_no_rows() {
    each_scope("sched", |scope, dat, computed| {
        let told = answer("sched", dat, &[]);
        assert_eq!(list(&told["covered"], "only").len(), 1, "{scope}: {}", told["covered"]);
        for (tid, computed) in computed {
            let run = number(thread(&told, *tid), "run_ns");
            assert!(is_about(run, *computed), "{scope}: {tid} ran {run}, not {computed}");
        }
        let others: Vec<_> = list(&told, "threads").iter().filter(|row| !is_known(computed, row)).collect();
        assert!(others.is_empty(), "{scope}: {others:?}");
        let sum = |of: &str, name: &str| list(&told, of).iter().map(|row| number(row, name)).sum::<u64>();
        assert_eq!(sum("cpus", "busy_ns"), sum("threads", "run_ns"), "{scope}");
        assert_eq!(sum("cpus", "idle_ns"), 0, "{scope}");

        // Threads that were not recorded are there, and nothing is known of them.
        let all = answer("sched", dat, &["--all"]);
        let others: Vec<_> = list(&all, "threads").iter().filter(|row| !is_known(computed, row)).collect();
        assert!(!others.is_empty(), "{scope}");
        let known = ["run_ns", "wait_ns", "sleep_ns", "blocked_ns", "stopped_ns"];
        for other in others {
            assert!(known.iter().all(|name| number(other, name) == 0), "{scope}: {other}");
        }

        let summary = answer("summary", dat, &[]);
        assert!(list(&summary, "busiest").iter().all(|row| is_known(computed, row)), "{scope}: {summary}");

        // Who runs on CPUs is the same in pictures.
        let chrome = dat.with_extension("json");
        let mut export = harness::agent("/".as_ref(), ["export", "--force", "--format", "chrome"]);
        run(export.arg(dat).arg(&chrome)).expect(0);
        let trace: Value = serde_json::from_str(&fs::read_to_string(chrome).unwrap()).unwrap();
        let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
        let (mut on_cpus, mut of_threads) = (0.0, 0.0);
        for slice in slices {
            match slice["cat"].as_str() {
                Some("cpu") => on_cpus += slice["dur"].as_f64().unwrap(),
                Some("state") if slice["name"] == "Running" => of_threads += slice["dur"].as_f64().unwrap(),
                _ => {}
            }
        }
        let run = sum("threads", "run_ns") as f64 / 1000.0;
        // Those have switches and wakeups alone as evidence of who runs.
        for drawn in [on_cpus, of_threads] {
            assert!(drawn < run * 1.000_001 + 1.0 && drawn > run / 2.0, "{scope}: {drawn} us, not {run}");
        }
    });
}

#[test]
fn threads_without_a_cpu_are_those_that_were_recorded() {
    each_scope("offcpu", |scope, dat, computed| {
        let told = answer("offcpu", dat, &[]);
        let others: Vec<_> = list(&told, "threads").iter().filter(|row| !is_known(computed, row)).collect();
        assert!(others.is_empty(), "{scope}: {others:?}");
        for tid in computed.keys() {
            // 20 naps of 10 ms.
            let total = number(thread(&told, *tid), "times.total_ns");
            assert!(total >= 200_000_000, "{scope}: {tid} {total}");
        }
    });
}
