//! What [`vm_tests::cost`] measures, run in the guest.
//!
//! - `vm-load KIND COUNT` makes COUNT calls of a kind and prints the processor time that they took, in
//!   nanoseconds
//! - `vm-load clock` prints the time since boot in nanoseconds, which are instructions where the clocks count
//!   them
//! - `vm-load place` prints where in this program's file the function `probed` is

use std::hint::black_box;
use std::process::ExitCode;
use std::{env, fs};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::ClockId;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let printed = match args.as_slice() {
        ["clock"] => Some(nanoseconds(ClockId::Monotonic).to_string()),
        ["place"] => probed_offset().map(|offset| format!("{offset:#x}")),
        [kind, count] => {
            count.parse().ok().and_then(|count| measure(kind, count)).map(|time| time.to_string())
        }
        _ => None,
    };
    let Some(text) = printed else {
        eprintln!("usage: vm-load getppid|open|function COUNT | clock | place");
        return ExitCode::from(2);
    };
    println!("{text}");
    ExitCode::SUCCESS
}

/// The thread's processor time for `count` calls.
fn measure(kind: &str, count: u64) -> Option<i64> {
    let call: fn(u64) = match kind {
        "getppid" => |_| {
            black_box(rustix::process::getppid());
        },
        "open" => |_| {
            let _ = black_box(rustix::fs::openat(CWD, c"/absent/file", OFlags::RDONLY, Mode::empty()));
        },
        "function" => |number| {
            black_box(probed(number, c"a text".as_ptr().cast()));
        },
        _ => return None,
    };
    // The first calls find pages and caches that later ones have.
    (0..count / 10).for_each(call);
    let start = nanoseconds(ClockId::ThreadCPUTime);
    (0..count).for_each(call);
    Some(nanoseconds(ClockId::ThreadCPUTime) - start)
}

fn nanoseconds(clock: ClockId) -> i64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// What probes are at.
#[inline(never)]
extern "C" fn probed(number: u64, text: *const u8) -> u64 {
    black_box((number, text)).0
}

fn probed_offset() -> Option<u64> {
    let address = probed as extern "C" fn(u64, *const u8) -> u64 as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end, from) = (number(start)?, number(end)?, number(words.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + from)
    })
}
