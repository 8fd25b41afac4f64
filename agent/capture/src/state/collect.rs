//! The state of this machine at the start of a recording, from /proc and /sys.
//!
//! What cannot be read is left out: a thread that has ended, a file that this kernel has not. Only this
//! process's own view is seen: with `hidepid` mounts, or inside a PID namespace, that is not every thread.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use kernel::clock::ReadClock as _;
use rustix::fs::CWD;

use kernel::cpus::CpuSet;
use kernel::{proc, read};
use spec::TraceClock;
use stdx::escapes;
use tracedat::initial_state::{
    BlockDevice, Cpu, Host, InitialState, Interface, Interrupt, Module, Namespaces, OpenFile, Thread,
};

/// Open files that are listed, at most: naming one takes the kernel about a microsecond.
const MAX_FILES: usize = 20_000;
/// `PF_KTHREAD` of include/linux/sched.h.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Looks at the machine. Ends early, with what it has until then, when `stop` is set.
pub(super) fn collect(clock: TraceClock, stop: &AtomicBool) -> InitialState {
    let mut state = InitialState {
        version: InitialState::VERSION,
        began_ns: clock.now_ns(),
        host: host(),
        cpus: cpus(),
        interrupts: interrupts(),
        modules: modules(),
        interfaces: interfaces(),
        block_devices: block_devices(),
        ..InitialState::default()
    };
    // The tasks come last, and are what takes time.
    let own = std::process::id();
    let processes = proc::processes().unwrap_or_default();
    for &tgid in processes.iter().filter(|tgid| **tgid != own) {
        if stop.load(Ordering::Relaxed) {
            state.cut_short = true;
            break;
        }
        threads_of(tgid, &mut state.threads);
    }
    for &tgid in processes.iter().filter(|tgid| **tgid != own) {
        if stop.load(Ordering::Relaxed) {
            state.cut_short = true;
            break;
        }
        files_of(tgid, &mut state);
    }
    state.ended_ns = clock.now_ns();
    state
}

/// The machine and its kernel.
pub(crate) fn host() -> Host {
    let uname = rustix::system::uname();
    let text = |part: &CStr| part.to_string_lossy().into_owned();
    Host {
        hostname: stdx::host_name(),
        domainname: text(uname.domainname()),
        sysname: text(uname.sysname()),
        release: text(uname.release()),
        version: text(uname.version()),
        machine: text(uname.machine()),
        boot_id: proc::boot_id().unwrap_or_default(),
        product_uuid: read::trimmed("/sys/class/dmi/id/product_uuid").unwrap_or_default(),
    }
}

fn cpus() -> Vec<Cpu> {
    let online = read::trimmed("/sys/devices/system/cpu/online");
    let online = online.ok().and_then(|list| CpuSet::parse_list(&list).ok()).unwrap_or_default();
    let models = cpu_models(&read::file("/proc/cpuinfo").unwrap_or_default());
    let cpu = |id: u32| {
        let dir = format!("/sys/devices/system/cpu/cpu{id}");
        let number = |name: &str| read::trimmed(format!("{dir}/{name}")).ok()?.parse().ok();
        let model = models.get(&id).cloned().unwrap_or_default();
        Cpu {
            id,
            package: number("topology/physical_package_id").unwrap_or(0),
            core: number("topology/core_id").unwrap_or(id),
            node: node_of(Path::new(&dir)),
            ..model
        }
    };
    online.iter().map(cpu).collect()
}

/// The node is in the name of a link.
fn node_of(cpu: &Path) -> Option<u32> {
    let mut names =
        std::fs::read_dir(cpu).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find_map(|name| name.strip_prefix("node")?.parse().ok())
}

/// Vendor, model and frequency by CPU (arch/x86/kernel/cpu/proc.c).
fn cpu_models(text: &[u8]) -> BTreeMap<u32, Cpu> {
    let text = String::from_utf8_lossy(text);
    let mut cpus: BTreeMap<u32, Cpu> = BTreeMap::new();
    let mut id = 0;
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key.trim() {
            "processor" => id = value.parse().unwrap_or(id),
            "vendor_id" => value.clone_into(&mut cpus.entry(id).or_default().vendor),
            "model name" => value.clone_into(&mut cpus.entry(id).or_default().model),
            "cpu MHz" => {
                let khz = value.parse::<f64>().ok().map(|mhz| (mhz * 1000.0) as u64);
                cpus.entry(id).or_default().khz = khz;
            }
            _ => {}
        }
    }
    cpus
}

fn threads_of(tgid: u32, threads: &mut Vec<Thread>) {
    let namespaces = namespaces(tgid);
    for tid in proc::threads_of(tgid).unwrap_or_default() {
        let dir = format!("/proc/{tgid}/task/{tid}");
        let stat = read::file(format!("{dir}/stat")).ok();
        let Some(mut thread) = stat.and_then(|stat| parse_stat(&stat)) else { continue };
        (thread.tgid, thread.namespaces) = (tgid, namespaces);
        if let Ok(status) = read::file(format!("{dir}/status")) {
            add_status(&mut thread, &status);
        }
        threads.push(thread);
    }
}

/// A name that need not be UTF-8.
fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes)
        .map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

/// Fields of proc_pid_stat(5). The name stands in brackets and may have any of them in it, so that they are
/// counted from the last closing one: 3 state, 4 parent, 9 flags, 22 start in ticks, 39 CPU.
fn parse_stat(stat: &[u8]) -> Option<Thread> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let tid = std::str::from_utf8(stat.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(Thread {
        tid,
        ppid: number(4)? as u32,
        comm: text(proc::task_comm(stat.get(open + 1..close)?)),
        state: (*fields.first()?).to_owned(),
        cpu: number(39)? as u32,
        kernel: number(9)? & PF_KTHREAD != 0,
        start_ns: number(22)?.saturating_mul(tick_ns),
        ..Thread::default()
    })
}

/// Lines of proc_pid_status(5).
fn add_status(thread: &mut Thread, status: &[u8]) {
    let status = String::from_utf8_lossy(status);
    for (key, value) in status.lines().filter_map(|line| line.split_once(':')) {
        let mut numbers = value.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok());
        match key {
            "Uid" => thread.uid = numbers.next().unwrap_or(0),
            "Gid" => thread.gid = numbers.next().unwrap_or(0),
            "NSpid" => thread.tids = numbers.collect(),
            "NStgid" => thread.tgids = numbers.collect(),
            _ => {}
        }
    }
}

fn namespaces(tgid: u32) -> Namespaces {
    let inode = |name: &str| {
        let link = rustix::fs::readlinkat(CWD, format!("/proc/{tgid}/ns/{name}"), Vec::new()).ok()?;
        let link = link.to_str().ok()?;
        link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
    };
    let inode = |name| inode(name).unwrap_or(0);
    Namespaces {
        cgroup: inode("cgroup"),
        ipc: inode("ipc"),
        mnt: inode("mnt"),
        net: inode("net"),
        pid: inode("pid"),
        time: inode("time"),
        user: inode("user"),
        uts: inode("uts"),
    }
}

fn files_of(tgid: u32, state: &mut InitialState) {
    let Ok(dir) = proc::open_dir(CWD, &format!("/proc/{tgid}/fd")) else { return };
    for fd in proc::numbers(dir.as_fd(), ".").unwrap_or_default() {
        if state.files.len() >= MAX_FILES {
            state.files_left_out += 1;
        } else if let Ok(path) = rustix::fs::readlinkat(&dir, fd.to_string(), Vec::new()) {
            state.files.push(OpenFile { tgid, fd, path: escapes::text(path.as_bytes()) });
        }
    }
}

fn interrupts() -> Vec<Interrupt> {
    // Numbered interrupts have a directory with their handlers only while one is there; sysfs has all of
    // them.
    let Ok(entries) = std::fs::read_dir("/sys/kernel/irq") else {
        return parse_interrupts(&read::file("/proc/interrupts").unwrap_or_default());
    };
    let mut interrupts: Vec<_> = entries
        .filter_map(|entry| {
            let dir = entry.ok()?.path();
            let irq = dir.file_name()?.to_str()?.parse().ok()?;
            let actions = read::trimmed(dir.join("actions")).unwrap_or_default();
            let actions = actions.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            let chip = read::trimmed(dir.join("chip_name")).unwrap_or_default();
            Some(Interrupt { irq, chip, actions })
        })
        .filter(|interrupt: &Interrupt| !interrupt.actions.is_empty())
        .collect();
    interrupts.sort_by_key(|interrupt| interrupt.irq);
    interrupts
}

/// `irq: counts... chip [hwirq-trigger] actions`, one column of counts for each CPU of the first line
/// (`show_interrupts`, kernel/irq/proc.c).
fn parse_interrupts(text: &[u8]) -> Vec<Interrupt> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |line| line.split_ascii_whitespace().count());
    let interrupt = |line: &str| {
        let (irq, rest) = line.split_once(':')?;
        let irq = irq.trim().parse().ok()?;
        let mut words = rest.split_ascii_whitespace().skip(cpus);
        let chip = words.next()?.to_owned();
        // The controller's own number and the trigger.
        let rest: Vec<_> = words.skip(1).collect();
        let actions: Vec<String> = rest.join(" ").split(", ").map(str::to_owned).collect();
        (!rest.is_empty()).then_some(Interrupt { irq, chip, actions })
    };
    lines.filter_map(interrupt).collect()
}

fn modules() -> Vec<Module> {
    parse_modules(&read::file("/proc/modules").unwrap_or_default())
}

/// `name size references users state 0xaddress` (`m_show`, kernel/module/procfs.c).
fn parse_modules(text: &[u8]) -> Vec<Module> {
    let text = String::from_utf8_lossy(text);
    let module = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let size = words.next()?.parse().ok()?;
        let references = words.next()?.parse().unwrap_or(0);
        let address = words.nth(2).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        Some(Module { name, size, references, address: address.unwrap_or(0) })
    };
    text.lines().filter_map(module).collect()
}

fn block_devices() -> Vec<BlockDevice> {
    parse_partitions(&read::file("/proc/partitions").unwrap_or_default())
}

/// `major minor blocks name` after a title (`show_partition`, block/genhd.c).
fn parse_partitions(text: &[u8]) -> Vec<BlockDevice> {
    let text = String::from_utf8_lossy(text);
    let device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (major, minor) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(BlockDevice { major, minor, name: words.nth(1)?.to_owned() })
    };
    text.lines().filter_map(device).collect()
}

fn interfaces() -> Vec<Interface> {
    let addresses = ipv4_addresses();
    let Ok(entries) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    let mut interfaces: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let index = read::trimmed(entry.path().join("ifindex")).ok()?.parse().ok()?;
            let ipv4 = addresses.get(&name).cloned().unwrap_or_default();
            Some(Interface { name, index, ipv4 })
        })
        .collect();
    interfaces.sort_by_key(|interface| interface.index);
    interfaces
}

/// IPv4 addresses by interface.
fn ipv4_addresses() -> BTreeMap<String, Vec<Ipv4Addr>> {
    let mut found: BTreeMap<String, Vec<Ipv4Addr>> = BTreeMap::new();
    let mut list = ptr::null_mut();
    // SAFETY: getifaddrs stores a list that it owns, or fails and stores nothing.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return found;
    }
    let mut at = list;
    // SAFETY: `at` is null or an entry of the list, which is not freed before the loop ends; names are
    // NUL-terminated, and an address of family AF_INET is a sockaddr_in (getifaddrs(3)).
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: as above.
        unsafe {
            if entry.ifa_addr.is_null() || i32::from((*entry.ifa_addr).sa_family) != libc::AF_INET {
                continue;
            }
            let address = ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
            let name = CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
            found.entry(name).or_default().push(Ipv4Addr::from(u32::from_be(address)));
        }
    }
    // SAFETY: the list is that of getifaddrs, and no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_any_name() {
        let stat = b"1301 (a) (b 7) S 1289 1289 14251 0 -1 4194304 103 0 0 0 0 0 0 0 20 0 1 0 220116 3133440 418 1 9 9 \
            1 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0";
        let thread = parse_stat(stat).unwrap();
        assert_eq!((thread.tid, thread.ppid, thread.cpu, thread.kernel), (1301, 1289, 3, false));
        assert_eq!((thread.comm.as_str(), thread.state.as_str()), ("a) (b 7", "S"));
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(thread.start_ns, 220_116 * tick);
        for stat in [&b""[..], b"1 (x", b"1 (x) S 1", b")1("] {
            assert_eq!(parse_stat(stat), None);
        }
    }

    #[test]
    fn status_has_the_numbers_in_all_namespaces() {
        let mut thread = Thread::default();
        add_status(
            &mut thread,
            b"Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\t0\nNStgid:\t70\t1\nNSpid:\t71\t2\n",
        );
        assert_eq!((thread.uid, thread.gid), (1000, 5));
        assert_eq!((thread.tids, thread.tgids), (vec![71, 2], vec![70, 1]));
    }

    #[test]
    fn tables_of_proc() {
        let text = b"           CPU0       CPU1\n  9:    1   2  IO-APIC   9-fasteoi   acpi, i801_smbus\nNMI:  0 0  Non-maskable\n";
        let acpi =
            Interrupt { irq: 9, chip: "IO-APIC".into(), actions: vec!["acpi".into(), "i801_smbus".into()] };
        assert_eq!(parse_interrupts(text), [acpi]);
        let modules = parse_modules(b"nf_tables 311296 2 a,b, Live 0xffffffffc0a10000 (E)\nx y\n");
        let expected =
            Module { name: "nf_tables".into(), size: 311_296, references: 2, address: 0xffff_ffff_c0a1_0000 };
        assert_eq!(modules, [expected]);
        let devices = parse_partitions(b"major minor  #blocks  name\n\n 254        1  268435456 vda1\n");
        assert_eq!(devices, [BlockDevice { major: 254, minor: 1, name: "vda1".into() }]);
        let models = cpu_models(b"processor\t: 1\nvendor_id\t: V\nmodel name\t: M x\ncpu MHz\t\t: 2000.5\n");
        assert_eq!(
            models[&1],
            Cpu { vendor: "V".into(), model: "M x".into(), khz: Some(2_000_500), ..Cpu::default() }
        );
    }

    #[test]
    fn this_machine() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let state = collect(TraceClock::Mono, &AtomicBool::new(false));
        let thread = state.threads.iter().find(|thread| thread.tid == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let thread = thread.unwrap();
        assert_eq!((thread.tgid, thread.ppid, thread.kernel), (child.id(), std::process::id(), false));
        assert_eq!(thread.tids.first(), Some(&child.id()));
        assert!(thread.namespaces.mnt != 0 && thread.namespaces.uts != 0);
        assert!(state.threads.iter().all(|thread| thread.tgid != std::process::id()));
        assert!(state.files.iter().any(|file| file.tgid == child.id() && file.fd == 1));
        assert!(state.interfaces.iter().any(|interface| interface.ipv4.contains(&Ipv4Addr::LOCALHOST)));
        assert!(!state.cpus.is_empty() && !state.cut_short && state.began_ns < state.ended_ns);
        assert!(collect(TraceClock::Mono, &AtomicBool::new(true)).cut_short);
    }
}
