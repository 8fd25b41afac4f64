//! The uprobes of `bench probes`: one function, recorded by each recorder in its own way.
//!
//! trace-cmd records uprobes that tracefs has, so one is defined there for as long as the workload is
//! measured; while nobody records it, the function is as it was. tracer-agent takes the probe as an option.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::Result;

/// The system of the events.
const GROUP: &str = "tracer_agent_bench";
/// The events with their arguments, in the language that both take.
const PROBES: [(&str, &str); 2] = [("hit", "number=%di:u64"), ("text", "number=%di:u64 text=+0(%si):string")];
const DEFINITIONS: &str = "/sys/kernel/tracing/uprobe_events";

/// What the probes are at. The load calls it.
#[inline(never)]
pub(super) extern "C" fn probed(number: u64, text: *const u8) -> u64 {
    black_box((number, text)).0
}

/// Whether an event is one of these.
pub(super) fn is_probe(event: &str) -> bool {
    event.split_once(':').is_some_and(|(group, _)| group == GROUP)
}

/// The option of tracer-agent that records what the event in tracefs does.
pub(super) fn option(event: &str) -> Result<[OsString; 2]> {
    let name = event.split_once(':').map_or(event, |(_, name)| name);
    let (name, arguments) = PROBES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("no probe is called {name}"))?;
    let (file, offset) = attach_point()?;
    let probe = format!("{GROUP}/{name}={}:{offset:#x} {arguments}", file.display());
    Ok(["--uprobe".into(), probe.into()])
}

/// This program's file, and where the function is in it.
fn attach_point() -> io::Result<(PathBuf, u64)> {
    let address = probed as extern "C" fn(u64, *const u8) -> u64 as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end, from) = (number(start)?, number(end)?, number(words.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + from)
    });
    let offset = offset.ok_or_else(|| io::Error::other("this program's code is in no mapping of it"))?;
    Ok((std::env::current_exe()?, offset))
}

/// The events in tracefs, which are removed with this.
#[derive(Debug)]
pub(super) struct Defined(());

impl Defined {
    pub(super) fn define() -> Result<Self> {
        let (file, offset) = attach_point()?;
        let defined = Self(());
        for (name, arguments) in PROBES {
            let text = format!("p:{GROUP}/{name} {}:{offset:#x} {arguments}", file.display());
            change(&text).map_err(|error| format!("{DEFINITIONS}: {text}: {error}"))?;
        }
        Ok(defined)
    }
}

impl Drop for Defined {
    fn drop(&mut self) {
        for (name, _) in PROBES {
            // One that could not be defined is not there.
            let _ = change(&format!("-:{GROUP}/{name}"));
        }
    }
}

fn change(text: &str) -> io::Result<()> {
    File::options().append(true).open(DEFINITIONS)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_in_this_file() {
        let (file, offset) = attach_point().unwrap();
        // It is code that the compiler made: the same in the file as in memory.
        let at = probed as extern "C" fn(u64, *const u8) -> u64 as *const u8;
        // SAFETY: the first bytes of a function of this program.
        let code = unsafe { std::slice::from_raw_parts(at, 8) };
        let offset = usize::try_from(offset).unwrap();
        assert_eq!(&fs::read(file).unwrap()[offset..offset + 8], code);
        assert!(is_probe("tracer_agent_bench:hit") && !is_probe("sched:sched_switch"));
        assert!(option("tracer_agent_bench:hit").is_ok() && option("tracer_agent_bench:x").is_err());
    }
}
