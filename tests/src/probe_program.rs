//! A program whose calls are known, for probes: in C and in Rust, linked in every way.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::binaries::{Link, tool};

/// `main COUNT THREADS`: each thread calls `work` and `named` COUNT times, with a marker of each kind. What
/// is printed is the sum of the calls, so that nothing is optimised away.
const C: &str = r#"
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ unsigned short probed_guarded_semaphore __attribute__((unused, section(".probes")));
__extension__ unsigned short probed_plain_semaphore __attribute__((unused, section(".probes")));

struct inner { long value; const char *name; };
struct outer { int number; struct inner *in; };

__attribute__((noinline)) long work(long n, const char *text, struct outer *o, unsigned char c)
{
    __asm__ volatile("" ::: "memory");
    return n * 2 + c + o->number;
}

__attribute__((noinline)) const char *named(int n)
{
    __asm__ volatile("" ::: "memory");
    return n % 2 ? "odd" : "even";
}

/* Begins with an instruction that the kernel does not run elsewhere, and is never called. */
__asm__(".globl halts\n.type halts, @function\nhalts: hlt\nret\n.size halts, . - halts\n");

static int count;

void *calls(void *unused)
{
    (void)unused;
    struct inner in = { -7, "a name inside" };
    struct outer o = { 5, &in };
    long sum = 0;
    /* Below 0, it does not end. */
    for (int i = 0; count < 0 || i < count; i = (i + 1) & 0x7fffffff) {
        sum += work(i, "some text", &o, 'A' + i % 26);
        sum += *named(i);
        STAP_PROBE3(probed, plain, i, (short)-i, "label");
        if (probed_guarded_semaphore)
            STAP_PROBE2(probed, guarded, (long)i * 3, (unsigned char)i);
    }
    static char big[2000];
    memset(big, 'x', sizeof big - 1);
    sum += work(-1, big, &o, 'z');
    sum += work(-2, (const char *)8, &o, 'z');
    return (void *)sum;
}

int entry(int argc, char **argv)
{
    count = argc > 1 ? atoi(argv[1]) : 3;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t thread[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], 0, calls, 0);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], 0);
    puts("done");
    return 0;
}
#ifndef LIBRARY
int main(int argc, char **argv) { return entry(argc, argv); }
#endif
"#;

/// Calls the library.
const CALLER: &str =
    "int entry(int, char **); int main(int argc, char **argv) { return entry(argc, argv); }\n";

const RUST: &str = r#"
pub mod inner {
    pub struct Counter(pub u64);
    impl Counter {
        #[inline(never)]
        pub fn add(&mut self, amount: u32) -> u64 {
            self.0 += u64::from(std::hint::black_box(amount));
            self.0
        }
    }
}
fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut counter = inner::Counter(0);
    for amount in 0..count {
        counter.add(amount);
    }
    println!("{}", counter.0);
}
"#;

/// A program to run, and the file that has the functions.
#[derive(Clone, Debug)]
pub struct Probed {
    /// What to run.
    pub program: PathBuf,
    /// What to probe.
    pub file: PathBuf,
}

impl Probed {
    /// Runs it: one thread that makes so many calls of each kind.
    pub fn command(&self, count: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args([count.to_string(), "1".to_owned()]);
        command
    }
}

/// Builds the C program in `dir`; a library gets a program that calls it.
#[track_caller]
pub fn build(dir: &Path, link: Link) -> Probed {
    std::fs::write(dir.join("probed.c"), C).unwrap();
    let compile = |flags: &[&str]| {
        tool(dir, "cc", &[&["-O2", "-g", "-pthread", "-Wno-pointer-to-int-cast"], flags].concat())
    };
    match link {
        Link::Pie => compile(&["-fPIE", "-pie", "-o", "probed", "probed.c"]),
        Link::Fixed => compile(&["-fno-pie", "-no-pie", "-o", "probed", "probed.c"]),
        Link::Library => {
            std::fs::write(dir.join("caller.c"), CALLER).unwrap();
            compile(&["-fPIC", "-shared", "-DLIBRARY", "-o", "libprobed.so", "probed.c"]);
            compile(&["-o", "probed", "caller.c", "-L.", "-lprobed", "-Wl,-rpath,$ORIGIN"])
        }
    };
    let file = dir.join(if link == Link::Library { "libprobed.so" } else { "probed" });
    Probed { program: dir.join("probed"), file }
}

/// Builds the Rust program in `dir`.
#[track_caller]
pub fn build_rust(dir: &Path) -> PathBuf {
    std::fs::write(dir.join("probed.rs"), RUST).unwrap();
    tool(dir, "rustc", &["-O", "--edition=2021", "-o", "probed-rust", "probed.rs"]);
    dir.join("probed-rust")
}
