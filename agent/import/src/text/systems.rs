//! The systems of the kernel's events, which texts of tracefs do not name.

/// Systems, and the names of their events: those that one system alone has, and that analyses and timelines
/// use. `*` stands for anything.
const SYSTEMS: &[(&str, &[&str])] = &[
    (
        "sched",
        &[
            "sched_switch",
            "sched_waking",
            "sched_wakeup",
            "sched_wakeup_new",
            "sched_migrate_task",
            "sched_process_*",
            "sched_stat_*",
            "sched_pi_setprio",
            "sched_kthread_*",
            "sched_wait_task",
        ],
    ),
    ("task", &["task_newtask", "task_rename"]),
    ("raw_syscalls", &["sys_enter", "sys_exit"]),
    ("syscalls", &["sys_enter_*", "sys_exit_*"]),
    ("irq", &["irq_handler_entry", "irq_handler_exit", "softirq_*", "tasklet_entry", "tasklet_exit"]),
    ("timer", &["timer_*", "hrtimer_*", "tick_stop", "itimer_*"]),
    ("workqueue", &["workqueue_*"]),
    ("block", &["block_rq_*", "block_bio_*"]),
    ("lock", &["contention_begin", "contention_end"]),
    (
        "kmem",
        &[
            "kmalloc",
            "kmalloc_node",
            "kmem_cache_alloc",
            "kmem_cache_alloc_node",
            "kmem_cache_free",
            "kfree",
            "mm_page_*",
            "rss_stat",
        ],
    ),
    ("exceptions", &["page_fault_user", "page_fault_kernel"]),
    ("vmscan", &["mm_vmscan_*"]),
    ("oom", &["mark_victim", "oom_score_adj_update"]),
    ("power", &["cpu_idle", "cpu_frequency", "cpu_frequency_limits", "clock_set_rate", "suspend_resume"]),
    ("signal", &["signal_generate", "signal_deliver"]),
];

/// The system of an event; that of texts if it is not known.
pub(super) fn of(name: &str) -> &'static str {
    let is_it = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    };
    let found = SYSTEMS.iter().find(|(_, names)| names.iter().any(is_it));
    found.map_or(super::SYSTEM, |(system, _)| system)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn only_the_kernels_events_have_a_system() {
        let names = ["sched_switch", "sys_enter", "sys_enter_read", "kfree", "x", "sched_other", "print"];
        let systems = ["sched", "raw_syscalls", "syscalls", "kmem", "text", "text", "text"];
        assert_eq!(names.map(of), systems);
    }
}
