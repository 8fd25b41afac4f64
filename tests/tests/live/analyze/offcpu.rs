//! `analyze offcpu` against a program that waits in known ways for known times.

use std::collections::BTreeMap;
use std::path::Path;

use integration_tests::agent;
use integration_tests::answers::{answer, list, number, text};
use integration_tests::binaries::tool;
use integration_tests::hidden::{HiddenEvent, HiddenEvents};
use serde_json::Value;

/// Each thread waits ROUNDS times in one way, and measures how long. A line for each says its name, its id,
/// and the nanoseconds of all its waits.
///
/// The one that has a lock and the one that writes do so after they have slept for a known time; each waits
/// for the other one's next round at a barrier first, so that no wait is missed.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20, NAP = 20 * 1000 * 1000, BLOCK = 4 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t locked, written;
static int pipes[2];

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* The C library has no frame pointers: of who calls it, the caller is found. */
#define NAMED(name, call) \
    static __attribute__((noinline)) void do_##name(void) { call; __asm__ volatile("" ::: "memory"); } \
    __attribute__((noinline)) void name(void) { do_##name(); __asm__ volatile("" ::: "memory"); }

static void must(int holds)
{
    if (!holds)
        abort();
}

static const struct timespec nap = { 0, NAP };
static char byte;
static int file;
static char *block;

NAMED(naps, clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL))
NAMED(takes_the_lock, pthread_mutex_lock(&lock))
NAMED(gives_the_lock, pthread_mutex_unlock(&lock))
NAMED(reads_the_pipe, must(read(pipes[0], &byte, 1) == 1))
NAMED(writes_the_pipe, must(write(pipes[1], "x", 1) == 1))
NAMED(writes_the_disk, must(pwrite(file, block, BLOCK, 0) == BLOCK && fsync(file) == 0))

static void says(const char *name, long waited)
{
    printf("%s %ld %ld\n", name, (long)syscall(SYS_gettid), waited);
    fflush(stdout);
}

static void *sleeper(void *unused)
{
    long waited = 0;
    prctl(PR_SET_NAME, "sleeper");
    for (int round = 0; round < ROUNDS; round++) {
        long start = now();
        naps();
        waited += now() - start;
    }
    says("sleeper", waited);
    return unused;
}

static void *holder(void *unused)
{
    prctl(PR_SET_NAME, "holder");
    for (int round = 0; round < ROUNDS; round++) {
        takes_the_lock();
        pthread_barrier_wait(&locked);
        naps();
        gives_the_lock();
        pthread_barrier_wait(&locked);
    }
    says("holder", 0);
    return unused;
}

static void *locker(void *unused)
{
    long waited = 0;
    prctl(PR_SET_NAME, "locker");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&locked);
        long start = now();
        takes_the_lock();
        waited += now() - start;
        gives_the_lock();
        pthread_barrier_wait(&locked);
    }
    says("locker", waited);
    return unused;
}

static void *writer(void *unused)
{
    prctl(PR_SET_NAME, "writer");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&written);
        naps();
        writes_the_pipe();
    }
    says("writer", 0);
    return unused;
}

static void *reader(void *unused)
{
    long waited = 0;
    prctl(PR_SET_NAME, "reader");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&written);
        long start = now();
        reads_the_pipe();
        waited += now() - start;
    }
    says("reader", waited);
    return unused;
}

/// Waits for the disk are as long as the disk wants: the sum of the time without a CPU is told by the
/// thread's own clocks, of which one runs all the time and the other one only while it has a CPU.
static void *saver(void *path)
{
    struct timespec used[2];
    prctl(PR_SET_NAME, "saver");
    file = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (file < 0 || posix_memalign((void **)&block, 4096, BLOCK) != 0)
        abort();
    memset(block, 7, BLOCK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used[0]);
    long start = now();
    for (int round = 0; round < ROUNDS; round++)
        writes_the_disk();
    long waited = now() - start;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used[1]);
    waited -= (used[1].tv_sec - used[0].tv_sec) * 1000000000L + used[1].tv_nsec - used[0].tv_nsec;
    says("saver", waited);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    pthread_t threads[6];
    void *(*all[])(void *) = { sleeper, holder, locker, writer, reader, saver };
    pthread_barrier_init(&locked, NULL, 2);
    pthread_barrier_init(&written, NULL, 2);
    if (pipe(pipes) != 0)
        abort();
    for (int index = 0; index < 6; index++)
        pthread_create(&threads[index], NULL, all[index], argv[1]);
    for (int index = 0; index < 6; index++)
        pthread_join(threads[index], NULL);
    return 0;
}
"#;

/// The stacks of a thread in which it waits in a function of the program.
fn stacks<'a>(told: &'a Value, tid: u64, function: &str) -> Vec<&'a Value> {
    let is_its = |stack: &&Value| {
        number(stack, "tid") == tid
            && list(stack, "user")
                .iter()
                .any(|frame| frame.as_str().is_some_and(|name| name.starts_with(function)))
    };
    list(told, "stacks").iter().filter(is_its).collect()
}

fn sum(stacks: &[&Value], name: &str) -> u64 {
    stacks.iter().map(|stack| number(stack, name)).sum()
}

/// Whether a time is another one but for 2 %.
fn is_near(found: u64, measured: u64) -> bool {
    found.abs_diff(measured) * 50 <= measured
}

#[track_caller]
fn assert_near(found: u64, measured: u64, of: &str) {
    assert!(is_near(found, measured), "{of}: {found} ns, not {measured}");
}

/// Runs the program under `record --for offcpu`, and gives what it said by name: the thread and its waits.
fn record(dir: &Path) -> BTreeMap<String, (u64, u64)> {
    std::fs::write(dir.join("waits.c"), PROGRAM).unwrap();
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"];
    tool(dir, "cc", &[&flags[..], &["-o", "waits", "waits.c"]].concat());
    let path = |name: &str| dir.join(name).display().to_string();
    let line = format!("exec {} {} > {}", path("waits"), path("data"), path("said"));
    agent::record_all(
        &dir.join("trace.dat"),
        ["-C", "mono", "-b", "32768", "--for", "offcpu", "sh", "-c", &line],
    );
    let said = std::fs::read_to_string(dir.join("said")).unwrap();
    let words = said.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(|words| (words[0].to_owned(), (words[1].parse().unwrap(), words[2].parse().unwrap()))).collect()
}

/// The time that the host has taken from this machine's CPUs, in ticks (proc_stat(5), "steal").
fn stolen() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.lines().next().unwrap().split_whitespace().nth(8).unwrap().parse().unwrap()
}

/// Whether a hidden thread gave its CPU to one of these: no program gets that switch, which ends a wait.
fn hides_a_wait(switches: &[HiddenEvent], tids: &[u64]) -> bool {
    switches.iter().any(|switch| {
        let next = switch.fields.split(' ').find_map(|word| word.strip_prefix("next_pid="));
        tids.contains(&next.unwrap().parse().unwrap())
    })
}

/// As [`record`], with the answer, again if something took a CPU away meanwhile that no event tells of: a
/// hidden thread, or the host, by what it says, or by what shows in the saver's time alone. That is a
/// difference of two clocks, of which the CPU's stands still for interrupts and the host. A machine that is
/// never undisturbed is taken as it is in the end.
fn record_undisturbed(dir: &Path) -> (BTreeMap<String, (u64, u64)>, Value) {
    const TRIES: usize = 20;
    for last in (0..TRIES).rev() {
        let before = stolen();
        let hidden = HiddenEvents::start(&["sched:sched_switch"]);
        let said = record(dir);
        let tids: Vec<u64> = said.values().map(|(tid, _)| *tid).collect();
        if hides_a_wait(&hidden.stop(), &tids) && last != 0 {
            continue;
        }
        let told = answer("offcpu", &dir.join("trace.dat"), &[]);
        let (tid, measured) = said["saver"];
        let disk = sum(&stacks(&told, tid, "writes_the_disk"), "times.total_ns");
        if last == 0 || stolen() == before && is_near(disk, measured) {
            return (said, told);
        }
    }
    unreachable!("the last try is taken");
}

#[test]
fn waits_are_as_long_as_the_program_measures() {
    // On a disk: what is in memory only has nothing to wait for.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (said, told) = record_undisturbed(dir.path());
    assert_eq!(number(&told, "covered.losses"), 0, "{}", told["covered"]);

    for (name, function, reason, kernel) in [
        ("sleeper", "naps", "timer", "do_nanosleep"),
        ("locker", "takes_the_lock", "futex", "futex_"),
        ("reader", "reads_the_pipe", "pipe", "pipe_read"),
    ] {
        let (tid, measured) = said[name];
        let all = stacks(&told, tid, function);
        assert_near(sum(&all, "times.total_ns"), measured, name);
        // A thread that loses its CPU in between waits for it as well.
        let (waits, others): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|of| of["reason"] == reason);
        assert!(sum(&waits, "times.count") >= 10, "{name}: {waits:?}");
        assert!(others.iter().all(|of| of["reason"] == "cpu"), "{name}: {others:?}");
        for stack in &waits {
            assert_eq!(stack["comm"], name, "{stack}");
            let functions = list(stack, "kernel").iter().map(|frame| frame.as_str().unwrap());
            assert!(functions.into_iter().any(|frame| frame.contains(kernel)), "{name}: {stack}");
            let user: Vec<&str> = list(stack, "user").iter().map(|frame| frame.as_str().unwrap()).collect();
            assert!(user.iter().any(|frame| frame.starts_with(name)), "{name}: {user:?}");
        }
    }

    // The disk's waits are told by reason, whatever the file system does.
    let (tid, measured) = said["saver"];
    let disk = stacks(&told, tid, "writes_the_disk");
    assert_near(sum(&disk, "times.total_ns"), measured, "saver");
    let is_disk = |stack: &&&Value| stack["reason"] == "disk" || stack["reason"] == "kernel_lock";
    let of_disk: Vec<&Value> = disk.iter().filter(is_disk).copied().collect();
    assert!(sum(&of_disk, "times.total_ns") * 2 > sum(&disk, "times.total_ns"), "{disk:?}");
}

#[test]
fn wakers_are_those_that_end_the_waits() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let said = record(dir.path());
    let told = answer("offcpu", &dir.path().join("trace.dat"), &[]);
    let woken_by = |name: &str, function: &str, reason: &str| -> BTreeMap<String, u64> {
        let mut wakers: BTreeMap<String, u64> = BTreeMap::new();
        for stack in stacks(&told, said[name].0, function).iter().filter(|stack| stack["reason"] == reason) {
            for waker in list(stack, "wakers") {
                let first = list(waker, "chain").first().map_or("", |link| text(link, "waker"));
                *wakers.entry(first.to_owned()).or_default() += number(waker, "count");
            }
        }
        wakers
    };
    // Not all of them: a thread may be so late that there is nothing to wait for.
    for (name, function, reason, waker, gives) in [
        ("locker", "takes_the_lock", "futex", "holder", "gives_the_lock"),
        ("reader", "reads_the_pipe", "pipe", "writer", "writes_the_pipe"),
    ] {
        let wakers = woken_by(name, function, reason);
        assert!(wakers.get(waker).is_some_and(|count| *count >= 10), "{name}: {wakers:?}");
        let chains = stacks(&told, said[name].0, function);
        let chains = chains.iter().flat_map(|stack| list(stack, "wakers")).map(|waker| list(waker, "chain"));
        let of_waker: Vec<&[Value]> =
            chains.filter(|chain| chain.first().is_some_and(|link| link["waker"] == waker)).collect();
        for chain in &of_waker {
            assert_eq!(number(&chain[0], "tid"), said[waker].0);
            let user = list(&chain[0], "user").iter().map(|frame| frame.as_str().unwrap());
            assert!(user.into_iter().any(|frame| frame.starts_with(gives)), "{chain:?}");
        }
        // Who ends the wait has slept itself meanwhile, and a timer woke it.
        let by_timer =
            |chain: &&&[Value]| chain.get(1).is_some_and(|link| text(link, "waker").starts_with('['));
        assert!(of_waker.iter().any(|chain| by_timer(&chain)), "{of_waker:?}");
    }
    let timers = woken_by("sleeper", "naps", "timer");
    let interrupts: u64 =
        timers.iter().filter(|(waker, _)| waker.starts_with('[')).map(|(_, count)| count).sum();
    assert!(interrupts >= 10 && timers.len() <= 2, "{timers:?}");
}
