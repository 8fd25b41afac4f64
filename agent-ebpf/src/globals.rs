//! Constants that the agent sets before it loads the programs (documented in `agent_ebpf::globals`).
//!
//! They live in `.rodata`, which is frozen before verification: the verifier knows their values and drops the
//! branches that they disable, helpers that an older kernel lacks included.

macro_rules! global {
    ($name:ident, $ty:ty, $get:ident) => {
        #[unsafe(no_mangle)]
        static $name: $ty = 0;

        #[inline(always)]
        pub fn $get() -> $ty {
            // SAFETY: an initialised static, which nobody writes while programs run: the loader has replaced
            // the value that the compiler sees (hence volatile) and has the map frozen.
            unsafe { core::ptr::read_volatile(&raw const $name) }
        }
    };
}

global!(CLOCK, u32, clock);
global!(OVERWRITE, u32, overwrite);
global!(WAKE_EACH, u32, wake_each);
global!(ASKING, u32, asking);
global!(FILTER_TASKS, u32, filter_tasks);
global!(FOLLOW_FORK, u32, follow_fork);
global!(SCOPE, u32, scope);
global!(EVERY_THREAD, u32, every_thread);
global!(THINNED, u32, thinned);
global!(PLACES, u32, places);
global!(RATE_BY_GROUP, u32, rate_by_group);
global!(CHANGING, u32, changing);
global!(EXCLUDES_SELF, u32, excludes_self);
global!(SLOTS, u32, slots);
global!(CONTROL_LEN, u32, control_len);
global!(LEDGER_LEN, u32, ledger_len);
global!(PAGES_LEN, u32, pages_len);
global!(STRING_NOTES_LEN, u32, string_notes_len);
global!(SETS_LEN, u32, sets_len);
global!(TASK_PID, u32, task_pid);
global!(TASK_TGID, u32, task_tgid);
global!(TASK_COMM, u32, task_comm);
global!(TASK_MIGRATION, u32, task_migration);
global!(TASK_MM, u32, task_mm);
global!(TASK_NR_MIGRATIONS, u32, task_nr_migrations);
global!(TASK_LAZY_COUNT, u32, task_lazy_count);
global!(RAW_MIGRATION, u32, raw_migration);
global!(TASK_STATUS, u32, task_status);
global!(COUNTS_COMPAT, u32, counts_compat);
global!(NAMED_ENTER, u32, named_enter);
global!(NAMED_EXIT, u32, named_exit);
global!(NAMED_FLAGS, u32, named_flags);
global!(NAMED_STRINGS, u32, named_strings);
global!(STRING_LIMIT, u32, string_limit);
global!(LATE_STRINGS, u32, late_strings);
global!(RAW_ENTER, u32, raw_enter);
global!(RAW_ENTER_ID, u32, raw_enter_id);
global!(RAW_EXIT, u32, raw_exit);
global!(RAW_EXIT_ID, u32, raw_exit_id);
global!(KERNEL_STACK, u32, kernel_stack);
global!(KERNEL_STACK_ID, u32, kernel_stack_id);
global!(USER_STACK, u32, user_stack);
global!(USER_STACK_ID, u32, user_stack_id);
global!(USER_ENTRY, u32, user_entry);
global!(PREEMPTIBLE, u32, preemptible);
global!(SIDE_BYTES, u32, side_bytes);
global!(RING_SETS, u32, ring_sets);
global!(RING_SETS_BY, u32, ring_sets_by);
global!(ROWS_OF_SET, u32, rows_of_set);
global!(TASK_SIGNAL, u32, task_signal);
global!(SIGNAL_TGID, u32, signal_tgid);
global!(PID_LEVEL, u32, pid_level);
global!(PID_NR, u32, pid_nr);
global!(UPID_SIZE, u32, upid_size);
global!(TASK_CRED, u32, task_cred);
global!(CRED_UID, u32, cred_uid);
global!(CRED_GID, u32, cred_gid);
global!(CRED_USER_NS, u32, cred_user_ns);
global!(USER_NS_UID_MAP, u32, user_ns_uid_map);
global!(USER_NS_GID_MAP, u32, user_ns_gid_map);
global!(ID_MAP_COUNT, u32, id_map_count);
global!(ID_MAP_EXTENTS, u32, id_map_extents);
global!(ID_MAP_REVERSE, u32, id_map_reverse);
global!(OVERFLOW_UID, u32, overflow_uid);
global!(OVERFLOW_GID, u32, overflow_gid);
global!(TASK_CFS_RQ, u32, task_cfs_rq);
global!(CFS_RQ_RQ, u32, cfs_rq_rq);
global!(RQ_CPU, u32, rq_cpu);
global!(AGGREGATE_KEY_WORDS, u32, aggregate_key_words);
global!(AGGREGATE_KEYS_MAX, u32, aggregate_keys);
global!(AGGREGATE_INDEX_LEN, u32, aggregate_index_len);
global!(AGGREGATE_INDEX_MASK, u32, aggregate_index_mask);
global!(AGGREGATE_START_WORDS, u32, aggregate_start_words);
global!(AGGREGATE_STARTS_MASK, u32, aggregate_starts_mask);
global!(RQ_TO_PREEMPT, i64, rq_to_preempt);
global!(INT_HOLDER, u32, int_holder);
global!(PREEMPT_NEED_RESCHED, u32, preempt_need_resched);
global!(FLAG_PREEMPT_RESCHED, u32, flag_preempt_resched);
