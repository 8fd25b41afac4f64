//! What a thread sleeps for, by the functions of the kernel that it sleeps in.

use ftrace_event::stacks::UNKNOWN;
use serde::Serialize;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A CPU: it could run.
    Cpu,
    /// Another thread of its process, by a futex: locks, condition variables, the end of a thread.
    Futex,
    /// A lock of the kernel.
    KernelLock,
    /// A disk, or another block device.
    Disk,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// One of several files: `poll`, `select`, `epoll`.
    Poll,
    /// The time: `nanosleep`, a timer.
    Timer,
    /// The end of a process.
    Child,
    /// A signal.
    Signal,
    /// Memory that is to be found or read back.
    Memory,
    /// A terminal.
    Terminal,
    /// io_uring.
    IoUring,
    /// Work: a thread of the kernel that has none.
    Work,
    /// A grace period of RCU.
    Rcu,
    /// Something else.
    Other,
    /// Its stack was not recorded, or has functions without a symbol and none that says it.
    Unknown,
}

/// Functions whose names begin like this, and what they wait for. The innermost function of a stack that is
/// here decides, so that a pipe's mutex is a lock of the kernel, and a pipe that is waited for is a pipe.
const FUNCTIONS: [(&str, Reason); 63] = [
    ("futex_", Reason::Futex),
    ("__futex_", Reason::Futex),
    ("do_futex", Reason::Futex),
    ("__mutex_lock", Reason::KernelLock),
    ("mutex_lock", Reason::KernelLock),
    ("rwsem_", Reason::KernelLock),
    ("down_", Reason::KernelLock),
    ("__down", Reason::KernelLock),
    ("percpu_rwsem_wait", Reason::KernelLock),
    ("percpu_down_", Reason::KernelLock),
    ("rt_mutex_", Reason::KernelLock),
    ("__rt_mutex_", Reason::KernelLock),
    ("io_schedule", Reason::Disk),
    ("blk_", Reason::Disk),
    ("__blk_", Reason::Disk),
    ("submit_bio_wait", Reason::Disk),
    ("folio_wait_", Reason::Disk),
    ("bit_wait_io", Reason::Disk),
    ("wait_on_buffer", Reason::Disk),
    ("__wait_on_buffer", Reason::Disk),
    ("jbd2_log_wait_commit", Reason::Disk),
    ("jbd2_journal_commit", Reason::Disk),
    ("rq_qos_wait", Reason::Disk),
    ("balance_dirty_pages", Reason::Disk),
    ("wb_wait_for_completion", Reason::Disk),
    ("pipe_", Reason::Pipe),
    ("anon_pipe_", Reason::Pipe),
    ("fifo_open", Reason::Pipe),
    ("wait_for_partner", Reason::Pipe),
    ("sk_wait_data", Reason::Socket),
    ("sk_stream_wait_", Reason::Socket),
    ("inet_csk_accept", Reason::Socket),
    ("inet_csk_wait_", Reason::Socket),
    ("inet_stream_connect", Reason::Socket),
    ("unix_stream_", Reason::Socket),
    ("unix_wait_", Reason::Socket),
    ("__skb_wait_for_more_packets", Reason::Socket),
    ("__skb_recv_", Reason::Socket),
    ("netlink_", Reason::Socket),
    ("vsock_", Reason::Socket),
    ("ep_poll", Reason::Poll),
    ("do_epoll_wait", Reason::Poll),
    ("do_sys_poll", Reason::Poll),
    ("do_poll", Reason::Poll),
    ("do_select", Reason::Poll),
    ("poll_schedule_timeout", Reason::Poll),
    ("do_nanosleep", Reason::Timer),
    ("hrtimer_nanosleep", Reason::Timer),
    ("timerfd_read", Reason::Timer),
    ("msleep", Reason::Timer),
    ("do_wait", Reason::Child),
    ("kernel_wait", Reason::Child),
    ("wait_for_vfork_done", Reason::Child),
    ("do_sigtimedwait", Reason::Signal),
    ("sigsuspend", Reason::Signal),
    ("do_signal_stop", Reason::Signal),
    ("do_swap_page", Reason::Memory),
    ("n_tty_", Reason::Terminal),
    ("io_cqring_wait", Reason::IoUring),
    ("worker_thread", Reason::Work),
    ("kthread_worker_fn", Reason::Work),
    ("smpboot_thread_fn", Reason::Work),
    ("rcu_", Reason::Rcu),
];

impl Reason {
    /// What is waited for in the kernel's functions of a stack, the innermost first.
    pub(super) fn of(mut functions: impl Iterator<Item = impl AsRef<str>>) -> Self {
        let (mut is_there, mut is_named) = (false, true);
        let found = functions.find_map(|function| {
            let function = function.as_ref();
            is_there = true;
            is_named &= function != UNKNOWN;
            FUNCTIONS.iter().find(|(start, _)| function.starts_with(start)).map(|(_, reason)| *reason)
        });
        found.unwrap_or(if is_there && is_named { Self::Other } else { Self::Unknown })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "a CPU",
            Self::Futex => "a futex",
            Self::KernelLock => "a lock of the kernel",
            Self::Disk => "a disk",
            Self::Pipe => "a pipe",
            Self::Socket => "a socket",
            Self::Poll => "poll, select or epoll",
            Self::Timer => "a timer",
            Self::Child => "a process's end",
            Self::Signal => "a signal",
            Self::Memory => "memory",
            Self::Terminal => "a terminal",
            Self::IoUring => "io_uring",
            Self::Work => "work",
            Self::Rcu => "RCU",
            Self::Other => "something else",
            Self::Unknown => "?",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_that_is_known_decides() {
        let of = |functions: &[&str]| Reason::of(functions.iter().copied());
        let sleep = ["__schedule", "schedule", "do_nanosleep", "hrtimer_nanosleep", "do_syscall_64"];
        assert_eq!(of(&sleep), Reason::Timer);
        assert_eq!(of(&["schedule", "__mutex_lock.constprop.0", "pipe_write"]), Reason::KernelLock);
        assert_eq!(of(&["schedule", "io_schedule", "folio_wait_bit_common", "filemap_fault"]), Reason::Disk);
        assert_eq!(of(&["schedule", "some_driver_wait"]), Reason::Other);
        assert_eq!(of(&[]), Reason::Unknown);
    }

    #[test]
    fn functions_without_a_symbol_say_nothing() {
        let of = |functions: &[&str]| Reason::of(functions.iter().copied());
        assert_eq!(of(&[UNKNOWN, UNKNOWN]), Reason::Unknown);
        assert_eq!(of(&["schedule", UNKNOWN, "do_syscall_64"]), Reason::Unknown);
        assert_eq!(of(&["schedule", UNKNOWN, "pipe_read"]), Reason::Pipe);
    }
}
