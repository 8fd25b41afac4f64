//! What a process may do, and what the kernel lets no process do.

use std::io;

use super::read;

/// The capabilities that a recording may need, by their number in `include/uapi/linux/capability.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Capability {
    /// Reads files and directories of others: tracefs belongs to root and has mode 0700.
    DacReadSearch = 2,
    /// Follows `/proc/PID/maps` and `/proc/PID/exe` of others.
    SysPtrace = 19,
    /// Mounts tracefs privately, and stands for the two newer ones below.
    SysAdmin = 21,
    /// Gives threads a nice value below 0: those that read the rings have -20.
    SysNice = 23,
    /// Locks memory beyond the limit, which maps count against before Linux 5.11.
    SysResource = 24,
    /// Sees kernel addresses.
    Syslog = 34,
    /// Opens perf events of the kernel and loads tracing programs.
    Perfmon = 38,
    /// Makes maps and loads programs.
    Bpf = 39,
}

impl Capability {
    /// Every one, in the order in which they are reported.
    pub const ALL: [Self; 8] = [
        Self::Bpf,
        Self::Perfmon,
        Self::SysResource,
        Self::DacReadSearch,
        Self::SysAdmin,
        Self::Syslog,
        Self::SysPtrace,
        Self::SysNice,
    ];

    /// Its name as `setcap` and systemd write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// A set of effective capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Those of the calling thread.
    ///
    /// In a user namespace other than the first they say nothing: loading programs asks for capabilities in
    /// the first (`bpf_capable` in `include/linux/capability.h`), which is why
    /// [`Features::probe`](super::features::Features::probe) makes a map as well.
    pub fn of_this_process() -> io::Result<Self> {
        Ok(Self(rustix::thread::capabilities(None)?.effective.bits()))
    }

    /// A set of these.
    #[cfg(test)]
    pub(super) const fn of(capabilities: &[Capability]) -> Self {
        let mut bits = 0;
        let mut rest = capabilities;
        while let [capability, others @ ..] = rest {
            bits |= 1 << *capability as u8;
            rest = others;
        }
        Self(bits)
    }

    /// Whether a capability is in the set.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }

    /// Whether a capability, or `CAP_SYS_ADMIN` in its place, is in the set: `bpf_capable` and
    /// `perfmon_capable` in `include/linux/capability.h`.
    pub fn has_or_admin(self, capability: Capability) -> bool {
        self.has(capability) || self.has(Capability::SysAdmin)
    }
}

/// The lockdown that the kernel is under (`security/lockdown/lockdown.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lockdown {
    /// There is none.
    None,
    /// The kernel cannot be changed. Recording works.
    Integrity,
    /// The kernel's memory cannot be read either: tracefs, perf and `bpf_probe_read_kernel` are refused
    /// (`LOCKDOWN_TRACEFS`, `LOCKDOWN_PERF`, `LOCKDOWN_BPF_READ_KERNEL`).
    Confidentiality,
}

impl Lockdown {
    /// The running kernel's. Nothing where the kernel has no lockdown or securityfs is not mounted.
    pub fn now() -> Option<Self> {
        Self::parse(&read::trimmed("/sys/kernel/security/lockdown").ok()?)
    }

    /// Reads `none [integrity] confidentiality`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
        match chosen {
            "none" => Some(Self::None),
            "integrity" => Some(Self::Integrity),
            "confidentiality" => Some(Self::Confidentiality),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_of_the_thread() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        let Capabilities(bits) = Capabilities::of_this_process().unwrap();
        assert_eq!(format!("{bits:016x}"), effective);
    }

    #[test]
    fn the_administrator_may_what_newer_capabilities_allow() {
        let admin = Capabilities::of(&[Capability::SysAdmin]);
        assert!(!admin.has(Capability::Bpf) && admin.has_or_admin(Capability::Bpf));
        let bpf = Capabilities::of(&[Capability::Bpf, Capability::DacReadSearch]);
        assert!(bpf.has(Capability::Bpf) && bpf.has(Capability::DacReadSearch));
        assert!(!bpf.has(Capability::SysAdmin) && !bpf.has_or_admin(Capability::Perfmon));
    }
}
