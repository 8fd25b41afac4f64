//! Which CPUs there are.

use super::read;
pub use stdx::input::{CpuError, CpuSet};

/// The CPUs of this machine, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Those that can ever be there. Per-CPU memory exists for each of them.
    pub possible: CpuSet,
    /// Those that are plugged in.
    pub present: CpuSet,
    /// Those that run.
    pub online: CpuSet,
}

impl Cpus {
    /// Reads the kernel's lists (`drivers/base/cpu.c`).
    pub fn read() -> Result<Self, CpuError> {
        let list = |path| {
            let text = read::trimmed(path).map_err(|source| CpuError::Read { path, source })?;
            CpuSet::parse_list(&text)
        };
        Ok(Self {
            possible: list("/sys/devices/system/cpu/possible")?,
            present: list("/sys/devices/system/cpu/present")?,
            online: list("/sys/devices/system/cpu/online")?,
        })
    }

    /// The number that per-CPU tables need: one more than the highest possible CPU.
    pub fn table_len(&self) -> usize {
        self.possible.highest().map_or(0, |highest| highest as usize + 1)
    }
}
