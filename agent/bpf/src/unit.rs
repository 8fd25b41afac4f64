//! The perf units that make probes, whose numbers each kernel gives anew.

use std::{io, os::fd::OwnedFd};

use super::sys;

/// A perf unit that makes probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit(u32);

impl Unit {
    /// Bit of `config` that asks for the return (`format/retprobe`).
    const RETURN: u64 = 1;
    /// Where the offset of the reference counter is in it (`format/ref_ctr_offset`).
    const COUNTER_SHIFT: u32 = 32;

    fn find(name: &str) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/sys/bus/event_source/devices/{name}/type")).ok()?;
        text.trim().parse().ok().map(Self)
    }

    /// The one for functions of the kernel; `None` if this kernel has none.
    pub fn kprobe() -> Option<Self> {
        Self::find("kprobe")
    }

    /// The one for binaries; `None` if this kernel has none.
    pub fn uprobe() -> Option<Self> {
        Self::find("uprobe")
    }

    /// Opens the event of a probe. `counter` is the offset of its reference counter in the file, or 0.
    pub fn open(self, location: sys::ProbeLocation<'_>, counter: u64, returns: bool) -> io::Result<OwnedFd> {
        let config = counter << Self::COUNTER_SHIFT | if returns { Self::RETURN } else { 0 };
        sys::open_probe(&sys::ProbeEvent { kind: self.0, config, location })
    }
}
