//! What `kernel` says about the machine that the tests run on. Needs root and tracefs, and fails without.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail as its own lines do")]

use kernel::btf::{Btf, Shape};
use kernel::clock::ReadClock as _;
use kernel::cpus::{CpuError, CpuSet, Cpus};
use kernel::events::{Catalogue, Refusal, Rule, SelectError};
use kernel::features::{Check, CheckId, Features, Status};
use kernel::kallsyms::Kallsyms;
use kernel::proc;
use kernel::tracefs::{Origin, Tracefs};
use kernel::version::KernelVersion;
use spec::EventName;
use spec::TraceClock;

fn catalogue() -> Catalogue {
    Catalogue::read(&Tracefs::open().unwrap()).unwrap()
}

fn include(text: &str) -> Rule {
    Rule::include(text.parse().unwrap())
}

#[test]
fn every_event_has_a_format_and_an_id_of_its_own() {
    let tracefs = Tracefs::open().unwrap();
    let names = tracefs.event_names().unwrap();
    assert!(names.len() > 500, "{}", names.len());
    let formats = tracefs.event_formats(&names).unwrap();
    let mut ids: Vec<u16> = formats.iter().map(|format| format.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), formats.len());
    for format in &formats {
        let first = format.text.lines().next().unwrap();
        assert_eq!(first, format!("name: {}", format.name.name()), "{}", format.name);
        assert!(format.text.contains("print fmt: "), "{}", format.name);
    }
    assert!(formats.iter().any(|format| format.name == EventName::new("sched", "sched_switch")));
    assert!(formats.iter().any(|format| format.name == EventName::new("ftrace", "function")));
}

#[test]
fn the_id_in_the_format_is_the_one_in_the_id_file() {
    let tracefs = Tracefs::open().unwrap();
    let format = tracefs.event_format(&EventName::new("sched", "sched_switch")).unwrap();
    assert_eq!(tracefs.text("events/sched/sched_switch/id").unwrap().trim(), format.id.to_string());
}

#[test]
fn the_other_files_are_there() {
    let tracefs = Tracefs::open().unwrap();
    assert!(tracefs.header_page().unwrap().contains("timestamp"));
    assert!(tracefs.header_event().unwrap().contains("type_len"));
    assert!(tracefs.trace_clock().unwrap().contains("mono"));
    assert!(tracefs.ftrace_formats().unwrap().iter().any(|format| format.name.name() == "print"));
    tracefs.printk_formats().unwrap();
}

#[test]
fn a_private_mount_is_seen_by_nobody() {
    let before = std::fs::read("/proc/self/mountinfo").unwrap();
    let tracefs = Tracefs::mount_privately().unwrap();
    assert_eq!(*tracefs.origin(), Origin::Private);
    assert_eq!(std::fs::read("/proc/self/mountinfo").unwrap(), before);
    let name = EventName::new("sched", "sched_switch");
    let mounted = Tracefs::open().unwrap();
    assert_eq!(tracefs.event_format(&name).unwrap(), mounted.event_format(&name).unwrap());
    assert!(tracefs.event_names().unwrap().contains(&name));
}

#[test]
fn selections_are_what_tracefs_has() {
    let tracefs = Tracefs::open().unwrap();
    let selection = catalogue().select(&[include("sched:*")], false).unwrap();
    let mut chosen: Vec<EventName> = selection.events.into_iter().map(|event| event.name).collect();
    // Someone may have put probes of their own into this group.
    chosen.extend(selection.skipped.into_iter().map(|event| event.name));
    chosen.sort();
    assert_eq!(chosen, tracefs.events_of_system("sched").unwrap());

    let all = catalogue().select(&[include("all")], false).unwrap();
    assert!(all.events.len() > 500);
    assert!(all.skipped.iter().any(|skipped| skipped.reason == Refusal::FtraceInternal));
    assert!(all.events.iter().all(|event| event.name.system() != "ftrace"));
}

#[test]
fn a_mistyped_event_is_guessed() {
    let error = catalogue().select(&[include("sched:sched_swich")], false).unwrap_err().to_string();
    assert!(error.starts_with("no such event sched:sched_swich; did you mean sched:sched_switch"), "{error}");
    let error = catalogue().select(&[include("irq:sched_switch")], false).unwrap_err();
    let SelectError::Unknown(unknown) = error else { panic!("there is no irq:sched_switch") };
    assert_eq!(unknown[0].nearest[0], "sched:sched_switch");
    let error = catalogue().select(&[include("ftrace:function")], false).unwrap_err();
    assert!(matches!(error, SelectError::Refused { reason: Refusal::FtraceInternal, .. }));
}

/// An event made through `uprobe_events`, which goes away with the value.
struct UprobeEvent(String);

impl UprobeEvent {
    fn new(group: &str) -> Self {
        let name = format!("{group}/t{}", std::process::id());
        Self::write(&format!("p:{name} /proc/self/exe:0x1000\n"));
        Self(name)
    }

    fn write(line: &str) {
        use std::io::Write as _;
        let mut file =
            std::fs::OpenOptions::new().append(true).open("/sys/kernel/tracing/uprobe_events").unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for UprobeEvent {
    fn drop(&mut self) {
        Self::write(&format!("-:{}\n", self.0));
    }
}

#[test]
fn a_uprobe_event_in_a_group_of_its_makers_choice_is_recognised() {
    let event = UprobeEvent::new("kernel_live_test");
    let name = EventName::parse(&event.0.replace('/', ":")).unwrap();
    assert_eq!(catalogue().get(&name).unwrap().refusal, Some(Refusal::UprobeEvent));
}

#[test]
fn the_kernels_layout_is_found() {
    let btf = Btf::of_kernel().unwrap();
    for path in ["task_struct.pid", "task_struct.tgid", "rq.cpu"] {
        assert_eq!(btf.member(path).unwrap().size, 4, "{path}");
    }
    assert_eq!(btf.member("task_struct.comm").unwrap().size, 16);
    assert_eq!(btf.member("task_struct.thread_info.flags").unwrap().size, 8);
    btf.member("task_struct.migration_disabled").unwrap();
    let cfs_rq = btf.member("task_struct.se.cfs_rq").unwrap();
    assert_eq!(
        cfs_rq.offset,
        btf.member_offset("task_struct.se").unwrap() + btf.member_offset("sched_entity.cfs_rq").unwrap()
    );
    let target = btf.pointer_target(cfs_rq.type_id).unwrap().unwrap();
    assert_eq!(btf.type_name(target).unwrap(), "cfs_rq");
    let rq = btf.pointer_target(btf.member("cfs_rq.rq").unwrap().type_id).unwrap().unwrap();
    assert_eq!((btf.type_name(rq).unwrap(), btf.shape(rq).unwrap()), ("rq", Shape::Struct));
    let runqueues = btf.percpu_variable("runqueues").unwrap();
    assert_eq!(btf.size_of(runqueues.type_id).unwrap(), runqueues.size);
    assert_eq!(runqueues.size, btf.member("rq").unwrap().size);
    // DEFINE_PER_CPU_SHARED_ALIGNED in kernel/sched/core.c.
    assert_eq!(runqueues.offset % 64, 0);
    #[cfg(target_arch = "x86_64")]
    btf.preempt_count().unwrap();
    assert!(btf.has_function("vfs_read") && !btf.has_function("vfs_reed"));
    assert!(btf.raw_tracepoint("sched_switch").unwrap().args.len() >= 3);
}

#[test]
fn a_damaged_copy_of_the_kernels_btf_is_no_danger() {
    let good = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    for step in 1..40_usize {
        let mut blob = good.clone();
        // Deterministic damage all over the blob, another pattern each time.
        for at in (24 + step * 7..blob.len()).step_by(997 * step) {
            blob[at] = blob[at].wrapping_add((step * 37) as u8);
        }
        if let Ok(btf) = Btf::parse(blob) {
            let _ = btf.member("task_struct.se.cfs_rq");
            let _ = btf.percpu_variable("runqueues");
            let _ = btf.raw_tracepoint("sched_switch");
        }
        assert!(Btf::parse(good[..good.len() / 41 * step].to_vec()).is_err());
    }
}

#[test]
fn symbols_have_addresses_and_an_end() {
    let symbols = Kallsyms::read().unwrap();
    let count = symbols.symbols().count();
    assert!(count > 10_000, "{count}");
    assert_eq!(count, symbols.text().split(|&byte| byte == b'\n').count() - 1, "every line is understood");
    assert!(symbols.with_sentinel().ends_with(b"\n"));
}

#[test]
fn cpus_are_those_of_the_kernel() {
    let cpus = Cpus::read().unwrap();
    assert!(cpus.online.iter().all(|cpu| cpus.possible.contains(cpu) && cpus.present.contains(cpu)));
    assert!(cpus.table_len() >= cpus.online.len() && !cpus.online.is_empty());
    let beyond = format!("0-{}", cpus.table_len());
    assert!(matches!(
        CpuSet::parse_argument(&beyond, &cpus.possible),
        Err(CpuError::NoSuchCpu { cpu, .. }) if cpu as usize == cpus.table_len()
    ));
}

#[test]
fn threads_have_names() {
    let name = "kl-named-thread-with-a-long-name";
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || receive.recv()).unwrap();
    let has_name = |&tid: &u32| proc::comm_of(tid).is_ok_and(|comm| comm == name.as_bytes()[..15]);
    // The name is set by the thread itself, after it was started.
    let tid = loop {
        if let Some(tid) = proc::own_threads().unwrap().into_iter().find(has_name) {
            break tid;
        }
    };
    let all = proc::threads().unwrap();
    let own = all.iter().find(|thread| thread.tid == tid).unwrap();
    assert_eq!((own.tgid, &own.comm[..]), (std::process::id(), &name.as_bytes()[..15]));
    assert!(proc::threads_of(std::process::id()).unwrap().contains(&tid));
    assert!(all.iter().any(|thread| thread.tid == 1));
    let mut tids: Vec<u32> = all.iter().map(|thread| thread.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), all.len());
    send.send(()).unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn the_machine_describes_itself() {
    let maps = String::from_utf8(proc::process_maps(std::process::id()).unwrap()).unwrap();
    let mut lines = maps.lines();
    let head: Vec<&str> = lines.next().unwrap().split(' ').collect();
    assert_eq!(head[0], format!("{:x}", std::process::id()));
    assert_eq!(usize::from_str_radix(head[1], 16).unwrap(), lines.clone().count());
    assert_eq!(head[2], std::env::current_exe().unwrap().to_str().unwrap());
    assert!(lines.all(|line| line.split(' ').count() == 3));
    assert_eq!(proc::uname_text().split(' ').count(), 4);
    assert_eq!(proc::boot_id().unwrap().len(), 36);
    let machine = rustix::system::sysinfo();
    let total = machine.totalram * u64::from(machine.mem_unit);
    assert!((1..=total).contains(&proc::memory_available().unwrap()));
}

#[test]
fn this_machine_can_record() {
    let features = Features::probe();
    assert_eq!(features.blockers(), Vec::<&Check>::new());
    for id in
        [CheckId::Kernel, CheckId::Tracefs, CheckId::BpfMap, CheckId::TracepointCookie, CheckId::Uprobes]
    {
        assert!(features.has(id), "{id:?}: {:?}", features.get(id));
    }
    for check in features.checks() {
        assert!(!check.detail.is_empty());
        assert_eq!(check.remedy.is_some(), check.status == Status::No, "{check:?}");
    }
    assert!(KernelVersion::running().unwrap() >= TraceClock::Mono.since());
}
