//! The questions: what is asked of the kernel for each, and what its answer means.

use std::io;

use rustix::thread::{MembarrierCommand, membarrier_query};

use super::super::btf;
use super::super::kallsyms::{Kallsyms, KallsymsError};
use super::super::privileges::{Capabilities, Capability, Lockdown};
use super::super::read;
use super::super::tracefs::{Origin, Tracefs, TracefsError};
use super::super::version::{KernelVersion, OLDEST_SUPPORTED};
use super::{Check, CheckId, Need, Status};

pub(super) fn kernel(version: Option<KernelVersion>) -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match version {
        Some(version) => Check::new(CheckId::Kernel, Need::Support, version >= OLDEST_SUPPORTED, release)
            .or(format!("use a kernel of version {OLDEST_SUPPORTED} or later")),
        None => Check::unknown(CheckId::Kernel, format!("{release} is no version")),
    }
}

pub(super) fn privileges(capabilities: &io::Result<Capabilities>) -> Check {
    let id = CheckId::Privileges;
    let uid = rustix::process::geteuid().as_raw();
    let Ok(capabilities) = capabilities else {
        return Check::unknown(id, "the capabilities of this process cannot be read");
    };
    let lacks: Vec<&str> = [Capability::Bpf, Capability::Perfmon]
        .into_iter()
        .filter(|&capability| !capabilities.has_or_admin(capability))
        .map(Capability::name)
        .collect();
    let detail = match (uid, lacks.is_empty()) {
        (0, true) => "running as root".to_owned(),
        (_, true) => format!("running as user {uid} with the capabilities for eBPF and perf events"),
        (_, false) => format!("running as user {uid} without {}", lacks.join(" and ")),
    };
    Check::new(id, Need::Permission, lacks.is_empty(), detail)
        .or("run as root, or with CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH")
}

pub(super) fn one_capability(capabilities: Capabilities, capability: Capability) -> Check {
    let covered = match capability {
        Capability::Bpf | Capability::Perfmon => capabilities.has_or_admin(capability),
        _ => capabilities.has(capability),
    };
    let detail = match (capabilities.has(capability), covered) {
        (true, _) => "effective",
        (false, true) => "CAP_SYS_ADMIN stands for it",
        (false, false) => "not effective",
    };
    let remedy = match capability {
        Capability::DacReadSearch => "needed by users other than root to read tracefs",
        Capability::SysPtrace => "needed for the address maps of other users' processes",
        Capability::SysAdmin => "needed only where tracefs is not mounted",
        Capability::SysResource => "needed for large buffers on kernels before 5.11 only",
        Capability::Syslog => "needed for the names of kernel functions in stacks",
        Capability::SysNice => {
            "needed to read the rings with nice -20; without it a busy machine loses events sooner: enlarge the rings with -b"
        }
        Capability::Perfmon => "needed to open perf events and to load tracing programs",
        Capability::Bpf => "needed to make maps and to load programs",
    };
    // What is missing blocks in the check of what it is for, not here.
    Check::new(CheckId::Capability(capability), Need::Optional, covered, detail).or(remedy)
}

pub(super) fn lockdown(file: io::Result<String>) -> Check {
    let id = CheckId::Lockdown;
    let text = match file {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::new(id, Need::Permission, true, "not active, or securityfs is not mounted");
        }
        Err(error) => return Check::unknown(id, format!("/sys/kernel/security/lockdown: {error}")),
    };
    match Lockdown::parse(&text) {
        Some(Lockdown::None) => Check::new(id, Need::Permission, true, "none"),
        Some(Lockdown::Integrity) => {
            Check::new(id, Need::Permission, true, "integrity, which allows recording")
        }
        Some(Lockdown::Confidentiality) => {
            Check::new(id, Need::Permission, false, "confidentiality, which forbids to read kernel memory")
                .or("boot with lockdown=integrity, or without lockdown")
        }
        None => Check::unknown(id, format!("not understood: {text}")),
    }
}

pub(super) fn tracefs_readable(tracefs: &Result<Tracefs, TracefsError>) -> Check {
    let id = CheckId::Tracefs;
    match tracefs {
        Ok(tracefs) => {
            let detail = match tracefs.origin() {
                Origin::Mounted(path) => format!("mounted at {}", path.display()),
                Origin::Private => "mounted nowhere, and mounted for this process alone".to_owned(),
            };
            match tracefs.event_names() {
                Ok(names) => Check::new(id, Need::Support, true, format!("{detail}, {} events", names.len())),
                Err(error) => Check::new(id, need_of(&error), false, error.to_string()),
            }
        }
        Err(error) => {
            let remedy = match error {
                TracefsError::NotMounted(_) => "mount -t tracefs nodev /sys/kernel/tracing",
                TracefsError::NotPermitted(_) => "run as root, or with CAP_DAC_READ_SEARCH",
                TracefsError::LockedDown(_) => "boot with lockdown=integrity, or without lockdown",
                _ => "use a kernel with CONFIG_TRACING and CONFIG_EVENT_TRACING",
            };
            Check::new(id, need_of(error), false, error.to_string()).or(remedy)
        }
    }
}

pub(super) fn need_of(error: &TracefsError) -> Need {
    if error.is_permission() { Need::Permission } else { Need::Support }
}

/// `BPF_MAP_CREATE` and what it takes, from `include/uapi/linux/bpf.h`.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// Makes a map of the kind that the rings are, and throws it away.
pub(super) fn create_mmapable_array() -> io::Result<()> {
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let attributes = MapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        map_flags: BPF_F_MMAPABLE,
    };
    // SAFETY: bpf(2) reads `size_of::<MapCreate>()` bytes at the pointer, which is what is there, and takes
    // the fields after them for zero. The call writes nothing. The descriptor it returns is nobody else's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            std::ptr::from_ref(&attributes),
            size_of::<MapCreate>() as libc::c_long,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for this call.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(result as i32) });
    Ok(())
}

pub(super) fn bpf_map() -> Check {
    bpf_map_check(create_mmapable_array().err())
}

pub(super) fn bpf_map_check(error: Option<io::Error>) -> Check {
    let id = CheckId::BpfMap;
    let Some(error) = error else {
        return Check::new(id, Need::Support, true, "a map that user space can map was made");
    };
    let detail = format!("a map cannot be made: {error}");
    match error.raw_os_error() {
        Some(libc::EPERM) => Check::new(id, Need::Permission, false, detail).or(
            "run as root or with CAP_BPF, outside of user namespaces, with bpf(2) allowed by seccomp; before Linux 5.11 \
             also with RLIMIT_MEMLOCK unlimited",
        ),
        Some(libc::ENOSYS) => {
            Check::new(id, Need::Support, false, detail).or("use a kernel with CONFIG_BPF_SYSCALL")
        }
        _ => Check::new(id, Need::Support, false, detail).or("use a kernel of version 5.15 or later"),
    }
}

pub(super) fn btf_there() -> Check {
    match std::fs::metadata(btf::VMLINUX) {
        Ok(file) => Check::new(CheckId::Btf, Need::Optional, true, format!("{} bytes", file.len())),
        Err(error) => Check::new(CheckId::Btf, Need::Optional, false, format!("{}: {error}", btf::VMLINUX))
            .or("events are recorded without context flags, and -c is refused; use a kernel with CONFIG_DEBUG_INFO_BTF for those"),
    }
}

/// What the version alone shows, because trying it would attach a program somewhere.
pub(super) fn by_version(version: Option<KernelVersion>) -> Vec<Check> {
    let since = |id, need, major, minor, without: &str| {
        let first = KernelVersion::new(major, minor, 0);
        match version {
            Some(version) => {
                let yes = version >= first;
                let detail =
                    if yes { format!("since Linux {first}") } else { format!("needs Linux {first}") };
                Check::new(id, need, yes, detail).or(without)
            }
            None => Check::unknown(id, format!("needs Linux {first}")),
        }
    };
    vec![
        // bpf_perf_link_attach in kernel/bpf/syscall.c.
        since(CheckId::TracepointCookie, Need::Support, 5, 15, "use a newer kernel"),
        // bpf_ktime_get_tai_ns in kernel/bpf/helpers.c.
        since(CheckId::TaiClock, Need::Optional, 6, 1, "record with the clock mono or boot"),
        // bpf_prog_inc_misses_counters, called by trace_call_bpf in kernel/trace/bpf_trace.c.
        since(
            CheckId::RecursionMisses,
            Need::Optional,
            6,
            7,
            "the report cannot tell how many events the kernel's recursion guard kept from the programs",
        ),
        // bpf_raw_tp_link_attach in kernel/bpf/syscall.c takes a cookie.
        since(
            CheckId::RawTracepointCookie,
            Need::Optional,
            6,
            10,
            "one program is loaded for each raw tracepoint",
        ),
    ]
}

/// Whether hard interrupts of the running kernel fire events at their end, when they count as the thread that
/// they interrupted already (`__irq_exit_rcu`, kernel/softirq.c): with `PREEMPT_RT`, and when booted with
/// `threadirqs`, they wake the threads that serve soft interrupts; with `nohz_full`, they may stop the tick.
/// What cannot be read counts as no.
pub fn interrupts_end_with_events() -> bool {
    let version = read::trimmed("/proc/sys/kernel/version").unwrap_or_default();
    let command_line = read::trimmed("/proc/cmdline").unwrap_or_default();
    do_interrupts_end_with_events(&version, &command_line)
}

pub(super) fn do_interrupts_end_with_events(version: &str, command_line: &str) -> bool {
    // init/Makefile makes the version's text.
    version.split_whitespace().any(|word| word == "PREEMPT_RT")
        || command_line.split_whitespace().any(|word| word == "threadirqs" || word.starts_with("nohz_full="))
}

/// Whether programs are compiled. Functions of the kernel can only be called from such.
pub fn has_jit() -> bool {
    jit(&read::trimmed("/proc/sys/net/core/bpf_jit_enable")).status == Status::Yes
}

pub(super) fn jit(file: &io::Result<String>) -> Check {
    let id = CheckId::Jit;
    match file.as_ref().map(String::as_str) {
        Ok("0") => {
            Check::new(id, Need::Optional, false, "programs are interpreted, which is many times slower")
                .or("sysctl net.core.bpf_jit_enable=1")
        }
        Ok(value) => Check::new(id, Need::Optional, true, format!("net.core.bpf_jit_enable is {value}")),
        // CONFIG_BPF_JIT_ALWAYS_ON leaves the file out of some network namespaces, too.
        Err(error) => Check::unknown(id, format!("/proc/sys/net/core/bpf_jit_enable: {error}")),
    }
}

/// Maps count against the limit of locked memory before Linux 5.11, which charges them to the memory cgroup
/// instead.
pub(super) fn memlock(version: Option<KernelVersion>, capabilities: Option<Capabilities>) -> Check {
    let id = CheckId::Memlock;
    if version.is_some_and(|version| version >= KernelVersion::new(5, 11, 0)) {
        return Check::new(id, Need::Optional, true, "maps do not count against the limit since Linux 5.11");
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    match limit.current {
        None => Check::new(id, Need::Optional, true, "unlimited"),
        Some(_) if capabilities.is_some_and(|caps| caps.has(Capability::SysResource)) => {
            Check::new(id, Need::Optional, true, "limited, and this process can raise it")
        }
        Some(bytes) => Check::new(id, Need::Optional, false, format!("limited to {bytes} bytes"))
            .or("ulimit -l unlimited, or CAP_SYS_RESOURCE"),
    }
}

pub(super) fn perf_event_paranoid(
    file: io::Result<String>,
    capabilities: &io::Result<Capabilities>,
) -> Check {
    let id = CheckId::PerfEventParanoid;
    let text = match file {
        Ok(text) => text,
        // kernel/events/core.c: the sysctl is there whenever perf events are.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::new(id, Need::Support, false, "this kernel has no perf events")
                .or("use a kernel with CONFIG_PERF_EVENTS");
        }
        Err(error) => return Check::unknown(id, format!("/proc/sys/kernel/perf_event_paranoid: {error}")),
    };
    let exempt = capabilities.as_ref().is_ok_and(|caps| caps.has_or_admin(Capability::Perfmon));
    let Ok(level) = text.parse::<i64>() else { return Check::unknown(id, format!("not understood: {text}")) };
    match (exempt, level) {
        (true, _) => {
            Check::new(id, Need::Optional, true, format!("{level}, from which this process is exempt"))
        }
        (false, ..=1) => Check::new(id, Need::Optional, true, level.to_string()),
        (false, _) => Check::new(id, Need::Optional, false, level.to_string())
            .or("run as root or with CAP_PERFMON; a lower value is not enough by itself"),
    }
}

pub(super) fn kernel_symbols() -> Check {
    let id = CheckId::KernelSymbols;
    match Kallsyms::read() {
        Ok(symbols) => {
            let kptr =
                read::trimmed("/proc/sys/kernel/kptr_restrict").unwrap_or_else(|_| "unknown".to_owned());
            let count = symbols.symbols().count();
            Check::new(id, Need::Optional, true, format!("{count} symbols, kptr_restrict is {kptr}"))
        }
        Err(KallsymsError::Restricted(restriction)) => {
            Check::new(id, Need::Optional, false, "addresses are hidden").or(restriction.to_string())
        }
        Err(error) => Check::new(id, Need::Optional, false, error.to_string())
            .or("stacks are recorded without names; use a kernel with CONFIG_KALLSYMS"),
    }
}

/// Whether the perf PMU of dynamic probes is there (`perf_kprobe` and `perf_uprobe` in
/// `kernel/events/core.c`), or else the file through which tracefs makes them.
pub(super) fn dynamic_probes(
    id: CheckId,
    tracefs: Option<&Tracefs>,
    pmu: &str,
    file: &str,
    option: &str,
) -> Check {
    let path = format!("/sys/bus/event_source/devices/{pmu}/type");
    if let Ok(number) = read::trimmed(&path) {
        return Check::new(id, Need::Optional, true, format!("perf event type {number}"));
    }
    match tracefs {
        Some(tracefs) if tracefs.exists(file) => {
            Check::new(id, Need::Optional, true, format!("tracefs has {file}"))
        }
        _ => Check::new(id, Need::Optional, false, format!("there is no {path}"))
            .or(format!("use a kernel with {option}")),
    }
}

pub(super) fn kprobes(tracefs: Option<&Tracefs>) -> Check {
    dynamic_probes(CheckId::Kprobes, tracefs, "kprobe", "kprobe_events", "CONFIG_KPROBE_EVENTS")
}

pub(super) fn uprobes(tracefs: Option<&Tracefs>) -> Check {
    dynamic_probes(CheckId::Uprobes, tracefs, "uprobe", "uprobe_events", "CONFIG_UPROBE_EVENTS")
}

pub(super) fn function_tracing(tracefs: Option<&Tracefs>) -> Check {
    let (id, file) = (CheckId::FunctionTracing, "available_filter_functions");
    let Some(tracefs) = tracefs else { return Check::unknown(id, "tracefs cannot be read") };
    let remedy = "functions are chosen from the kernel's symbols and BTF instead";
    match read::open_at(std::os::fd::AsFd::as_fd(tracefs), file) {
        Ok(_) => Check::new(id, Need::Optional, true, format!("{file} can be read")),
        Err(error) => Check::new(id, Need::Optional, false, format!("{file}: {error}")).or(remedy),
    }
}

/// `kernel/sched/membarrier.c` leaves the command out where some CPUs run without a tick (`nohz_full`).
pub(super) fn membarrier() -> Check {
    let yes = membarrier_query().contains_command(MembarrierCommand::Global);
    let detail = if yes { "MEMBARRIER_CMD_GLOBAL" } else { "no MEMBARRIER_CMD_GLOBAL, as with nohz_full" };
    Check::new(CheckId::Membarrier, Need::Optional, yes, detail)
        .or("stopping waits a little longer for programs that are still running")
}

/// From here on tracepoints no longer disable preemption (SRCU-fast guards their callbacks,
/// include/linux/tracepoint.h), and programs at raw ones run with migration disabled.
const PREEMPTIBLE_TRACEPOINTS_SINCE: KernelVersion = KernelVersion::new(7, 0, 0);

/// Whether a task that runs a program at a raw tracepoint can be preempted.
pub fn tracepoints_are_preemptible() -> bool {
    KernelVersion::running().is_some_and(|version| version >= PREEMPTIBLE_TRACEPOINTS_SINCE)
}
