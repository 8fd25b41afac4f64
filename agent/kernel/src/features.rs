//! What this kernel, the capabilities of this process and the state of the machine allow, and what to do
//! about the rest.
//!
//! Each [`Check`] asks one question. Most are answered by asking the kernel to do the thing; where doing it
//! would leave a trace (attaching a program), or where only a newer kernel knows the answer, the version
//! decides, and says so.

mod checks;
#[cfg(test)]
mod tests;

pub use self::checks::{has_jit, interrupts_end_with_events, tracepoints_are_preemptible};
use super::privileges::{Capabilities, Capability};
use super::read;
use super::tracefs::Tracefs;
use super::version::KernelVersion;

/// The answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is there.
    Yes,
    /// It is not.
    No,
    /// It is unknown.
    Unknown,
}

/// What a missing feature means for a recording of tracepoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// There is no recording without it, and this user is not allowed to have it.
    Permission,
    /// There is no recording without it, and this kernel or machine does not have it.
    Support,
    /// Recording works, with less.
    Optional,
}

/// Which question a check asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckId {
    /// Is the kernel new enough?
    Kernel,
    /// May this process use eBPF and perf events?
    Privileges,
    /// One capability.
    Capability(Capability),
    /// Does kernel lockdown leave recording possible?
    Lockdown,
    /// Can tracefs be read?
    Tracefs,
    /// Can an eBPF map be made that user space can map?
    BpfMap,
    /// Is there BTF?
    Btf,
    /// Can tracepoint programs have a cookie?
    TracepointCookie,
    /// Can programs read the clock `tai`?
    TaiClock,
    /// Does the kernel count the events that its recursion guard kept from programs?
    RecursionMisses,
    /// Can raw tracepoint programs have a cookie?
    RawTracepointCookie,
    /// Does the kernel compile eBPF programs?
    Jit,
    /// Can enough memory be locked?
    Memlock,
    /// Do users without privileges get to perf events?
    PerfEventParanoid,
    /// Are the addresses of symbols shown?
    KernelSymbols,
    /// Are there kprobes?
    Kprobes,
    /// Are there uprobes?
    Uprobes,
    /// Can ftrace's function files be read?
    FunctionTracing,
    /// Does the kernel take programs at the entry of its functions?
    Fentry,
    /// Can a recording wait for all CPUs with membarrier?
    Membarrier,
}

impl CheckId {
    /// A name for people and scripts, which stays as it is.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Privileges => "privileges",
            Self::Capability(capability) => capability.name(),
            Self::Lockdown => "lockdown",
            Self::Tracefs => "tracefs",
            Self::BpfMap => "bpf",
            Self::Btf => "btf",
            Self::TracepointCookie => "tracepoint-cookie",
            Self::TaiClock => "clock-tai",
            Self::RecursionMisses => "recursion-misses",
            Self::RawTracepointCookie => "raw-tracepoint-cookie",
            Self::Jit => "jit",
            Self::Memlock => "memlock",
            Self::PerfEventParanoid => "perf_event_paranoid",
            Self::KernelSymbols => "kernel-symbols",
            Self::Kprobes => "kprobes",
            Self::Uprobes => "uprobes",
            Self::FunctionTracing => "function-tracing",
            Self::Fentry => "fentry",
            Self::Membarrier => "membarrier",
        }
    }
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which question.
    pub id: CheckId,
    /// The answer.
    pub status: Status,
    /// What a [`Status::No`] means.
    pub need: Need,
    /// What was found.
    pub detail: String,
    /// What to do about a [`Status::No`], if anything can be done.
    pub remedy: Option<String>,
}

impl Check {
    fn new(id: CheckId, need: Need, yes: bool, detail: impl Into<String>) -> Self {
        let status = if yes { Status::Yes } else { Status::No };
        Self { id, status, need, detail: detail.into(), remedy: None }
    }

    fn unknown(id: CheckId, detail: impl Into<String>) -> Self {
        Self { id, status: Status::Unknown, need: Need::Optional, detail: detail.into(), remedy: None }
    }

    fn or(mut self, remedy: impl Into<String>) -> Self {
        if self.status == Status::No {
            self.remedy = Some(remedy.into());
        }
        self
    }

    /// Whether recording is impossible because of this answer.
    pub fn blocks_recording(&self) -> bool {
        self.status == Status::No && self.need != Need::Optional
    }
}

/// What this machine allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    checks: Vec<Check>,
}

impl Features {
    /// Asks every question.
    pub fn probe() -> Self {
        let version = KernelVersion::running();
        let capabilities = Capabilities::of_this_process();
        let tracefs = Tracefs::open();
        let mut all = vec![checks::kernel(version), checks::privileges(&capabilities)];
        if let Ok(capabilities) = &capabilities {
            all.extend(Capability::ALL.map(|capability| checks::one_capability(*capabilities, capability)));
        }
        all.extend([
            checks::lockdown(read::trimmed("/sys/kernel/security/lockdown")),
            checks::tracefs_readable(&tracefs),
            checks::bpf_map(),
            checks::btf_there(),
        ]);
        all.extend(checks::by_version(version));
        all.extend([
            checks::jit(&read::trimmed("/proc/sys/net/core/bpf_jit_enable")),
            checks::memlock(version, capabilities.as_ref().ok().copied()),
            checks::perf_event_paranoid(read::trimmed("/proc/sys/kernel/perf_event_paranoid"), &capabilities),
            checks::kernel_symbols(),
            checks::kprobes(tracefs.as_ref().ok()),
            checks::uprobes(tracefs.as_ref().ok()),
            checks::function_tracing(tracefs.as_ref().ok()),
            checks::membarrier(),
        ]);
        Self { checks: all }
    }

    /// Answers that were found elsewhere: by a test, or on another machine.
    pub fn from_checks(checks: Vec<Check>) -> Self {
        Self { checks }
    }

    /// Every question with its answer, the ones that recording depends on first.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The answer to one question.
    pub fn get(&self, id: CheckId) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }

    /// Whether a feature is there. What is unknown counts as missing.
    pub fn has(&self, id: CheckId) -> bool {
        self.get(id).is_some_and(|check| check.status == Status::Yes)
    }

    /// What keeps this process from recording: nothing, or the checks to show, missing permissions last,
    /// since a kernel that lacks the feature does not get it from more privileges.
    pub fn blockers(&self) -> Vec<&Check> {
        let mut blockers: Vec<&Check> = self.checks.iter().filter(|check| check.blocks_recording()).collect();
        blockers.sort_by_key(|check| check.need == Need::Permission);
        blockers
    }
}
