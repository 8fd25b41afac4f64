//! Locks.

use std::collections::BTreeMap;

use integration_tests::{agent, trace_cmd::Line};
use serde_json::Value;

use super::{
    programs::{HOLD, MAP, compile},
    stock::{Raw, raw},
    told::{Sums, add, answer, number, rows, sum_of, tables, texts, tid},
};

const ROUNDS: u64 = 5;

/// How long the mutex is held from when its waiter is seen to wait, in nanoseconds.
const HELD: u64 = 50_000_000;

/// Waits for futexes by thread and address, and how many there were of all, by stock's text.
fn futex_waits(events: &[Raw]) -> (Sums<(u32, u64)>, u64) {
    let (mut open, mut waits, mut count) = (BTreeMap::new(), Sums::new(), 0);
    for event in events {
        let tid = event.line.pid;
        match event.line.event.as_str() {
            "sys_enter_futex" => {
                let is_wait = matches!(event.number("op") & 0x7f, 0 | 6 | 9 | 11 | 13);
                count += u64::from(is_wait);
                open.insert(tid, is_wait.then(|| (event.number("uaddr"), event.line.time)));
            }
            "sys_exit_futex" => {
                if let Some(Some((address, since))) = open.remove(&tid) {
                    add(&mut waits, (tid, address), event.line.time - since);
                }
            }
            _ => {}
        }
    }
    (waits, count)
}

/// The processes of [`HOLD`]: process, waiter, address of the mutex.
fn held(printed: &str) -> Vec<(u32, u32, String)> {
    let lines = printed.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.to_owned()))
    });
    lines.collect()
}

#[test]
fn waits_for_a_mutex_last_as_long_as_it_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "hold", HOLD);
    let file = dir.path().join("trace.dat");
    let mut command = agent::command(["record", "-F", "-c", "-e", "syscalls:sys_enter_futex"]);
    command.args([
        "-e",
        "syscalls:sys_exit_futex",
        "-e",
        "task:task_newtask",
        "-e",
        "sched:sched_process_free",
    ]);
    command
        .args(["-e", "sched:sched_waking", "--user-stack=syscalls:sys_enter_futex", "-o"])
        .arg(&file)
        .arg(&program)
        .args(["2", &ROUNDS.to_string()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let processes = held(&String::from_utf8_lossy(&output.stdout));
    let [(one, _, first), (other, _, second)] = &processes[..] else { panic!("{processes:?}") };
    assert!(one != other && first == second, "{processes:?}");

    let answer = answer("locks", &file, &[]);
    let futexes = &answer["futexes"];
    assert_eq!((number(futexes, "unmatched"), number(futexes, "unfinished")), (0, 0), "{futexes}");
    assert_eq!(number(futexes, "threads_without_process"), 0);
    let worst = rows(futexes, "worst");
    for (process, waiter, address) in &processes {
        let is_it = |lock: &&Value| lock["process"] == *process && lock["address"] == *address;
        let found: Vec<&Value> = rows(futexes, "locks").iter().filter(is_it).collect();
        let [lock] = found[..] else { panic!("{process} {address}: {futexes}") };
        assert_eq!((number(lock, "woken"), number(&lock["times"], "count")), (ROUNDS, ROUNDS), "{lock}");
        assert!(number(&lock["times"], "least_ns") >= HELD, "{lock}");
        assert_eq!(lock["is_shared"], false);
        let [waits] = rows(lock, "waiters") else { panic!("{lock}") };
        // The C library's waiter takes the mutex as one that others may wait for, and calls to wake one as
        // well.
        let wakes = rows(lock, "wakers").first().unwrap_or_else(|| panic!("{lock}"));
        assert_eq!((tid(waits), tid(wakes)), (Some(*waiter), Some(*process)), "{lock}");
        assert_eq!((number(wakes, "calls"), number(wakes, "woken")), (ROUNDS, ROUNDS), "{lock}");
        let longest = worst.iter().find(|wait| tid(wait) == Some(*waiter) && wait["address"] == *address);
        let longest = longest.unwrap_or_else(|| panic!("{futexes}"));
        assert_eq!(
            (texts(longest, "result"), longest["waker_tid"].as_u64()),
            ("woken", Some((*process).into()))
        );
        assert_eq!(number(longest, "wait_ns"), number(&lock["times"], "most_ns"));
    }

    let (expected, count) = futex_waits(&raw(&file));
    let mut told: Sums<(u32, u64)> = Sums::new();
    let mut all = 0;
    for lock in rows(futexes, "locks") {
        all += number(&lock["times"], "count") + number(lock, "open");
        let address = u64::from_str_radix(&texts(lock, "address")[2..], 16).unwrap();
        for waiter in rows(lock, "waiters") {
            told.insert((tid(waiter).unwrap(), address), sum_of(&waiter["times"]));
        }
    }
    assert_eq!(told, expected);
    assert_eq!(all, count);
    assert!(count >= 2 * ROUNDS);

    // The C library has no frame pointers: the function that calls it may be missing in the stack.
    assert_eq!(futexes["has_stacks"], true);
    let callers = rows(futexes, "callers");
    for (process, ..) in &processes {
        let is_it = |of: &&Value| of["process"] == *process && of["function"] != Value::Null;
        let found =
            callers.iter().filter(is_it).map(|of| (texts(of, "function"), of)).find(|(function, of)| {
                ["take", "waiter"].contains(function) && number(&of["times"], "count") == ROUNDS
            });
        assert!(found.is_some(), "{process}: {futexes}");
    }
    let sum = |name| rows(futexes, name).iter().map(|row| number(&row["times"], "count")).sum::<u64>();
    assert_eq!(sum("callers"), sum("locks"));
    let text = tables("locks", &file);
    assert!(text.contains("\nLocks of processes (futexes)"), "{text}");
    assert!(text.contains("\nFunctions of processes that wait for futexes"), "{text}");
    assert!(text.contains("\nLongest waits for futexes"), "{text}");
}

/// Waits for locks of the kernel by address and kind, and by thread, by stock's text.
fn kernel_waits(events: &[Raw]) -> (Sums<(u64, &'static str)>, Sums<Option<u32>>) {
    struct Wait {
        lock: u64,
        kind: &'static str,
        since: u64,
        who: Option<u32>,
    }
    const KINDS: [(u64, &str); 13] = [
        (0, "semaphore"),
        (1, "spinlock"),
        (3, "rwlock_read"),
        (5, "rwlock_write"),
        (2, "rwsem_read"),
        (4, "rwsem_write"),
        (8, "rt_mutex"),
        (10, "rt_read"),
        (12, "rt_write"),
        (18, "percpu_read"),
        (20, "percpu_write"),
        (32, "mutex"),
        (33, "mutex"),
    ];
    let mut open: BTreeMap<(u32, Option<u32>), Vec<Wait>> = BTreeMap::new();
    let (mut locks, mut threads) = (Sums::new(), Sums::new());
    for event in events {
        let Line { pid, cpu, time, .. } = event.line;
        // Every CPU has an idle thread.
        let waits = open.entry((pid, (pid == 0).then_some(cpu))).or_default();
        match event.line.event.as_str() {
            "contention_begin" => {
                let lock = event.number("lock_addr");
                let kind = KINDS.iter().find(|(flags, _)| *flags == event.number("flags")).unwrap().1;
                if !waits.iter().any(|wait| wait.lock == lock && kind == "mutex") {
                    waits.push(Wait { lock, kind, since: time, who: event.thread() });
                }
            }
            "contention_end" => {
                let lock = event.number("lock_addr");
                if let Some(index) = waits.iter().rposition(|wait| wait.lock == lock) {
                    let wait = waits.remove(index);
                    add(&mut locks, (lock, wait.kind), time - wait.since);
                    add(&mut threads, wait.who, time - wait.since);
                }
            }
            _ => {}
        }
    }
    (locks, threads)
}

#[test]
fn waits_for_locks_of_the_kernel_are_those_of_stocks_text() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "map", MAP);
    let file = dir.path().join("trace.dat");
    let options = ["-b", "8192", "-e", "lock:contention_begin", "-e", "lock:contention_end"];
    let stacks = ["--kernel-stack=lock:contention_begin"];
    let command = [program.as_os_str(), "8".as_ref(), "1500".as_ref(), "2".as_ref()];
    agent::record(&file, options.iter().chain(&stacks).map(AsRef::as_ref).chain(command));
    let events = raw(&file);
    let (locks, threads) = kernel_waits(&events);

    let answer = answer("locks", &file, &[]);
    let kernel = &answer["kernel"];
    let told: BTreeMap<(u64, &str), (u64, u64)> = (rows(kernel, "locks").iter())
        .filter(|lock| number(&lock["times"], "count") != 0)
        .map(|lock| {
            let address = u64::from_str_radix(&texts(lock, "address")[2..], 16).unwrap();
            ((address, texts(lock, "kind")), sum_of(&lock["times"]))
        })
        .collect();
    assert_eq!(told, locks);
    let mut by_thread: Sums<Option<u32>> = Sums::new();
    for thread in rows(&answer, "threads") {
        let (count, sum) = sum_of(&thread["kernel"]);
        let of = by_thread.entry(tid(thread)).or_default();
        *of = (of.0 + count, of.1 + sum);
    }
    by_thread.retain(|_, (count, _)| *count != 0);
    assert_eq!(by_thread, threads);

    // The threads of the program wait for the lock of their memory, in functions that map and unmap.
    let of_memory = rows(kernel, "callers").iter().filter(|caller| texts(caller, "kind") == "rwsem_write");
    let functions: Vec<&str> = of_memory.filter_map(|caller| caller["function"].as_str()).collect();
    assert!(functions.iter().any(|function| function.contains("map")), "{functions:?}");
    let is_locking = |name: &&str| name.contains("down_write") || name.starts_with("rwsem_");
    assert!(!functions.iter().any(is_locking), "{functions:?}");
    assert_eq!(kernel["has_stacks"], true);
    let sum =
        |value: &Value, name| rows(value, name).iter().map(|row| number(&row["times"], "count")).sum::<u64>();
    assert_eq!(sum(kernel, "callers"), sum(kernel, "locks"));
    let text = tables("locks", &file);
    assert!(text.contains("\nFunctions of the kernel that wait for locks"), "{text}");
}
