//! What lttng-modules calls the kernel's events and fields (`include/instrumentation/events/*.h` of version
//! 2.13).

/// How the events of a system are renamed.
enum Rename {
    /// All get a prefix.
    Prefix(&'static str),
    /// These get a prefix.
    PrefixThese(&'static str, &'static [&'static str]),
    /// Those that begin with the first get the second instead.
    Replace(&'static str, &'static str),
}

use Rename::{Prefix, PrefixThese, Replace};

/// By the kernel's system. The first rule that applies is taken; other events keep their names.
const EVENTS: &[(&str, Rename)] = &[
    ("irq", PrefixThese("irq_", &["softirq_raise", "softirq_entry", "softirq_exit"])),
    ("timer", Replace("hrtimer_", "timer_hrtimer_")),
    ("timer", Replace("itimer_", "timer_itimer_")),
    ("kmem", PrefixThese("kmem_", &["kmalloc", "kmalloc_node", "kfree"])),
    ("kmem", Replace("mm_page_", "kmem_mm_page_")),
    ("net", Replace("netif_", "net_if_")),
    ("net", Replace("napi_", "net_napi_")),
    ("skb", Replace("kfree_skb", "skb_kfree")),
    ("skb", Replace("consume_skb", "skb_consume")),
    ("power", Replace("power_", "power_")),
    (
        "power",
        PrefixThese(
            "power_",
            &[
                "cpu_idle",
                "cpu_frequency",
                "machine_suspend",
                "wakeup_source_activate",
                "wakeup_source_deactivate",
                "clock_enable",
                "clock_disable",
                "clock_set_rate",
            ],
        ),
    ),
    ("clk", Replace("clock_", "power_clock_")),
    ("printk", PrefixThese("printk_", &["console"])),
    ("preemptirq", Prefix("preemptirq_")),
    ("irq_vectors", Prefix("x86_irq_vectors_")),
    ("exceptions", Prefix("x86_exceptions_")),
    (
        "kvm",
        PrefixThese(
            "",
            &[
                "kvm_userspace_exit",
                "kvm_vcpu_wakeup",
                "kvm_set_irq",
                "kvm_ioapic_set_irq",
                "kvm_msi_set_irq",
                "kvm_ack_irq",
                "kvm_mmio",
                "kvm_fpu",
                "kvm_age_page",
                "kvm_try_async_get_page",
                "kvm_async_pf_doublefault",
                "kvm_async_pf_not_present",
                "kvm_async_pf_ready",
                "kvm_async_pf_completed",
                "kvm_halt_poll_ns",
            ],
        ),
    ),
    ("kvm", Replace("kvm_", "kvm_x86_")),
    ("kvm", Prefix("kvm_x86_")),
    ("kvmmmu", Replace("kvm_mmu_", "kvm_mmu_")),
    ("kvmmmu", Prefix("kvm_mmu_")),
    ("compaction", Replace("mm_compaction_", "compaction_")),
    ("vmscan", Replace("mm_shrink_slab_", "mm_vmscan_shrink_slab_")),
    (
        "writeback",
        PrefixThese("writeback_", &["balance_dirty_pages", "global_dirty_state", "bdi_dirty_ratelimit"]),
    ),
    ("asoc", Prefix("asoc_")),
    ("regmap", PrefixThese("regmap_", &["regcache_sync", "regcache_drop_region"])),
    ("btrfs", Replace("btrfs_", "btrfs_")),
    ("btrfs", Replace("__extent_writepage", "btrfs__extent_writepage")),
    ("btrfs", Prefix("btrfs_")),
    ("random", Prefix("random_")),
];

/// Fields of scheduler events that lttng-modules names by the thread they are about.
pub(super) const THREADS: &[(&str, &str)] = &[
    ("pid", "tid"),
    ("prev_pid", "prev_tid"),
    ("next_pid", "next_tid"),
    ("parent_pid", "parent_tid"),
    ("child_pid", "child_tid"),
    ("old_pid", "old_tid"),
];

/// The name that lttng-modules has for an event of the kernel.
pub fn event(system: &str, name: &str) -> String {
    if system == "syscalls" {
        if let Some(call) = name.strip_prefix("sys_enter_") {
            return format!("syscall_entry_{call}");
        }
        if let Some(call) = name.strip_prefix("sys_exit_") {
            return format!("syscall_exit_{call}");
        }
    }
    if system == "raw_syscalls" {
        return format!("raw_syscalls_{name}");
    }
    let rules = EVENTS.iter().filter(|(of, _)| *of == system);
    let renamed = rules.filter_map(|(_, rule)| match rule {
        Prefix(prefix) => Some(format!("{prefix}{name}")),
        PrefixThese(prefix, these) => these.contains(&name).then(|| format!("{prefix}{name}")),
        Replace(from, to) => name.strip_prefix(from).map(|rest| format!("{to}{rest}")),
    });
    renamed.into_iter().next().unwrap_or_else(|| name.to_owned())
}

/// Arguments of system calls that lttng-modules calls something else: call, name, its name
/// (`include/instrumentation/syscalls/headers/{x86-64-,}syscalls_{integers,pointers}{,_override}.h`).
pub(super) const ARGUMENTS: &[(&str, &str, &str)] = &[
    ("clone", "clone_flags", "flags"),
    ("clone", "parent_tidptr", "parent_tid"),
    ("clone", "child_tidptr", "child_tid"),
    ("mmap", "off", "offset"),
    ("pselect6", "tsp", "tvp"),
];

/// The name of an argument of a system call.
pub(super) fn argument<'n>(call: &str, name: &'n str) -> &'n str {
    let renamed = ARGUMENTS.iter().find(|(of, kernel, _)| *of == call && *kernel == name);
    renamed.map_or(name, |(_, _, lttng)| lttng)
}

/// Fields of `sched_process_fork` in imports of LTTng's traces, which name the processes as well.
const PROCESSES: [(&str, &str); 2] = [("parent_tgid", "parent_pid"), ("child_tgid", "child_pid")];

/// The name of a field.
pub(super) fn field<'n>(system: &str, event: &str, name: &'n str) -> &'n str {
    if (system, event) == ("sched", "sched_process_fork")
        && let Some((_, lttng)) = PROCESSES.iter().find(|(imported, _)| *imported == name)
    {
        return lttng;
    }
    let threads = system == "sched" && !event.starts_with("sched_kthread_work");
    let renamed = THREADS.iter().find(|(kernel, _)| threads && *kernel == name);
    renamed.map_or(name, |(_, lttng)| lttng)
}

/// Whether a field is a priority, which lttng-modules counts from the lowest real-time priority.
pub(super) fn is_priority(system: &str, name: &str) -> bool {
    system == "sched" && matches!(name, "prio" | "prev_prio" | "next_prio" | "oldprio" | "newprio")
}

#[cfg(test)]
mod tests {
    use super::super::kernel_names::OF_LTTNG;
    use super::*;

    #[test]
    fn events_are_renamed() {
        for (system, name, renamed) in [
            ("sched", "sched_switch", "sched_switch"),
            ("irq", "softirq_entry", "irq_softirq_entry"),
            ("irq", "irq_handler_entry", "irq_handler_entry"),
            ("timer", "hrtimer_start", "timer_hrtimer_start"),
            ("timer", "timer_start", "timer_start"),
            ("kmem", "kfree", "kmem_kfree"),
            ("kmem", "kmem_cache_alloc", "kmem_cache_alloc"),
            ("kmem", "mm_page_alloc", "kmem_mm_page_alloc"),
            ("net", "netif_receive_skb", "net_if_receive_skb"),
            ("net", "net_dev_xmit", "net_dev_xmit"),
            ("skb", "kfree_skb", "skb_kfree"),
            ("power", "cpu_idle", "power_cpu_idle"),
            ("power", "power_domain_target", "power_domain_target"),
            ("syscalls", "sys_enter_openat", "syscall_entry_openat"),
            ("syscalls", "sys_exit_read", "syscall_exit_read"),
            ("irq_vectors", "local_timer_entry", "x86_irq_vectors_local_timer_entry"),
            ("kvm", "kvm_entry", "kvm_x86_entry"),
            ("kvm", "kvm_mmio", "kvm_mmio"),
            ("compaction", "mm_compaction_begin", "compaction_begin"),
            ("writeback", "global_dirty_state", "writeback_global_dirty_state"),
            ("writeback", "writeback_start", "writeback_start"),
            ("btrfs", "add_delayed_ref_head", "btrfs_add_delayed_ref_head"),
        ] {
            assert_eq!(event(system, name), renamed, "{system}:{name}");
        }
        assert_eq!(field("sched", "sched_switch", "prev_pid"), "prev_tid");
        assert_eq!((argument("mmap", "off"), argument("pread64", "off")), ("offset", "off"));
        assert_eq!(field("signal", "signal_generate", "pid"), "pid");
        assert!(is_priority("sched", "next_prio") && !is_priority("net", "prio"));
    }

    #[test]
    fn every_event_of_lttng_modules_has_its_name() {
        assert!(OF_LTTNG.lines().count() > 400);
        for line in OF_LTTNG.lines() {
            let [system, kernel, lttng] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(event(system, kernel), lttng, "{line}");
        }
    }
}
