//! Programs whose locks and pages are known, compiled by the machine's own compiler.

use std::{
    fs,
    path::{Path, PathBuf},
};

use integration_tests::binaries::tool;

/// `hold PROCESSES`: each process has a thread that waits `ROUNDS` times for a mutex that its first thread
/// holds for 50 ms more, from when it sees the other one in the futex call. All have their mutex at the same
/// address. What is printed are process, waiter and the mutex's address.
pub(crate) const HOLD: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int go[2], done[2];

static __attribute__((noinline)) void take(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void *waiter(void *unused)
{
    char c = 0;
    (void)unused;
    pid_t tid = syscall(SYS_gettid);
    if (write(done[1], &tid, sizeof tid) != sizeof tid) exit(2);
    while (read(go[0], &c, 1) == 1) {
        take();
        if (write(done[1], &c, 1) != 1) exit(2);
    }
    return 0;
}

/* Whether a thread sleeps in a futex call with the mutex's address. */
static int waits(pid_t tid)
{
    char path[64], text[256] = "", wanted[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
    snprintf(wanted, sizeof wanted, "%d 0x%lx ", SYS_futex, (unsigned long)&mutex);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file)) text[0] = 0;
    if (file) fclose(file);
    return !strncmp(text, wanted, strlen(wanted));
}

static void run(int rounds)
{
    pthread_t thread;
    pid_t tid;
    char c = 0;
    if (pipe(go) || pipe(done) || pthread_create(&thread, 0, waiter, 0)) exit(2);
    if (read(done[0], &tid, sizeof tid) != sizeof tid) exit(2);
    for (int i = 0; i < rounds; i++) {
        struct timespec held = { 0, 50 * 1000 * 1000 }, moment = { 0, 1000 * 1000 };
        pthread_mutex_lock(&mutex);
        if (write(go[1], &c, 1) != 1) exit(2);
        while (!waits(tid)) nanosleep(&moment, 0);
        nanosleep(&held, 0);
        pthread_mutex_unlock(&mutex);
        if (read(done[0], &c, 1) != 1) exit(2);
    }
    close(go[1]);
    pthread_join(thread, 0);
    printf("%d %d %#lx\n", (int)getpid(), (int)tid, (unsigned long)&mutex);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int processes = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 5;
    for (int i = 0; i < processes; i++)
        if (!fork()) { run(rounds); _exit(0); }
    while (wait(0) > 0) {}
    return 0;
}
"#;

/// `map THREADS TIMES PAGES`: each thread maps, writes to and unmaps so many pages so often, so that all of
/// them want the lock of the process's memory.
pub(crate) const MAP: &str = r"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int times;
static long pages;

static void *map(void *unused)
{
    (void)unused;
    for (int i = 0; i < times; i++) {
        char *at = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) exit(2);
        madvise(at, pages * 4096, MADV_NOHUGEPAGE);
        for (long page = 0; page < pages; page++) at[page * 4096] = 1;
        munmap(at, pages * 4096);
    }
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t thread[64];
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    times = argc > 2 ? atoi(argv[2]) : 1;
    pages = argc > 3 ? atol(argv[3]) : 1;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], 0, map, 0)) return 2;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    return 0;
}
";

/// Compiles a program for fixed addresses, whose stacks can be followed.
pub(crate) fn compile(dir: &Path, name: &str, source: &str) -> PathBuf {
    fs::write(dir.join(format!("{name}.c")), source).unwrap();
    let source = format!("{name}.c");
    let options = ["-O2", "-pthread", "-fno-omit-frame-pointer", "-fno-pie", "-no-pie", "-o", name, &source];
    tool(dir, "cc", &options);
    dir.join(name)
}
