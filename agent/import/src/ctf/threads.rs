//! Names of threads.

use std::collections::HashMap;

use crate::Sink;

/// The most threads whose names are kept: as many as Linux has numbers for (`PID_MAX_LIMIT`).
const THREADS_MAX: usize = 1 << 22;
/// Bytes of a name, as in `task_struct`.
const COMM_MAX: usize = 16;

/// The names of threads, as far as events tell them.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Each with the rank of what told it, and when that was.
    names: HashMap<u32, ((u8, u64), Vec<u8>)>,
}

impl Threads {
    /// Notes a name. That of the highest rank stays, of equal ones the latest.
    pub(super) fn name(&mut self, tid: u32, comm: &[u8], rank: (u8, u64)) {
        let comm = comm.get(..COMM_MAX).unwrap_or(comm);
        if comm.is_empty() {
            return;
        }
        let has_room = self.names.len() < THREADS_MAX;
        match self.names.get_mut(&tid) {
            Some(known) if known.0 > rank => {}
            Some(known) if known.1 == comm => known.0 = rank,
            Some(known) => *known = (rank, comm.to_owned()),
            None if has_room => {
                self.names.insert(tid, (rank, comm.to_owned()));
            }
            None => {}
        }
    }

    /// Hands them over.
    pub(super) fn tell(self, sink: &mut Sink<'_>) {
        for (tid, (_, comm)) in self.names {
            // The idle thread of each CPU has the number 0, and a name of its own.
            if tid != 0 {
                sink.task(tid, &comm);
            }
        }
    }
}
