//! Threads and interrupts as those who do something.

use super::{
    Context, Event, Names, Scope, Tid,
    threads::{Index, Threads},
};

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Who {
    /// A thread; the index is that of the thread.
    Thread { tid: Tid, index: Index },
    /// An interrupt, whatever thread it interrupted.
    Irq,
    /// A soft interrupt.
    Softirq,
    /// The record does not say, or there is no room for the thread.
    Unknown,
}

impl Who {
    /// Who did what an event is about. A thread that is not known yet is made by `make`.
    pub(super) fn of<T>(event: &Event<'_>, threads: &mut Threads<T>, make: impl FnOnce() -> T) -> Self {
        match (event.context, event.tid) {
            (Context::Irq, _) => Self::Irq,
            (Context::Softirq, _) => Self::Softirq,
            (Context::Thread | Context::Unknown, None) => Self::Unknown,
            // Without flags, all that happens while a thread has the CPU counts for it.
            (Context::Thread | Context::Unknown, Some(tid)) => {
                threads.find(tid, make).map_or(Self::Unknown, |(index, _)| Self::Thread { tid, index })
            }
        }
    }

    /// Who woke a thread. The idle thread wakes by itself only what interrupts of other CPUs have asked it
    /// to. Interrupts wake so often that it is not known where records do not tell them from threads.
    pub(super) fn wakes<T>(event: &Event<'_>, threads: &mut Threads<T>, make: impl FnOnce() -> T) -> Self {
        match (event.context, event.tid) {
            (Context::Thread, Some(0)) => Self::Irq,
            (Context::Unknown, _) => Self::Unknown,
            _ => Self::of(event, threads, make),
        }
    }

    /// Whether it is asked about: of what is no thread, where all threads are.
    pub(super) fn is_asked<T>(self, scope: &Scope, threads: &Threads<T>, names: &Names<'_>) -> bool {
        match self {
            Self::Thread { tid, index } => {
                let seen = threads.get(index).map_or(&[][..], |thread| &thread.name);
                scope.has_thread(tid, names.of_thread(tid, seen))
            }
            Self::Irq | Self::Softirq | Self::Unknown => scope.has_all_threads(),
        }
    }

    /// Its name, and its id if it is a thread.
    pub(super) fn told<T>(self, threads: &Threads<T>, names: &Names<'_>) -> (String, Option<Tid>) {
        match self {
            Self::Thread { tid, index } => {
                let seen = threads.get(index).map_or(&[][..], |thread| &thread.name);
                (names.thread_text(tid, seen), Some(tid))
            }
            Self::Irq => ("[interrupt]".to_owned(), None),
            Self::Softirq => ("[soft interrupt]".to_owned(), None),
            Self::Unknown => ("[unknown]".to_owned(), None),
        }
    }
}
