//! What processes have mapped where their futexes are.

use std::collections::HashMap;

use super::futex::Place;
use crate::answers::Tid;
use tracedat::option::{ProcMap, ProcMaps};

/// The mappings that a file has of processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    /// Of each process, by their ends. They do not overlap.
    of: HashMap<Tid, Vec<ProcMap>>,
}

impl Mappings {
    pub(super) fn new(processes: impl IntoIterator<Item = ProcMaps>) -> Self {
        let sorted = |mut maps: Vec<ProcMap>| {
            maps.sort_unstable_by_key(|map| map.end);
            maps
        };
        Self { of: processes.into_iter().map(|process| (process.pid, sorted(process.maps))).collect() }
    }

    /// What is mapped at a place, with the offset in it; the first byte has none. `None` if that is not
    /// known: memory without a name, a process of which the file has no mappings, or one that began later
    /// with the same id, or has executed another program since.
    pub(super) fn of(&self, place: Place) -> Option<String> {
        let process = place.process.filter(|process| process.was_before())?;
        let maps = self.of.get(&process.pid)?;
        let map = maps.get(maps.partition_point(|map| map.end <= place.address))?;
        let offset = place.address.checked_sub(map.start)?;
        Some(if offset == 0 { map.path.clone() } else { format!("{}+{offset:#x}", map.path) })
    }
}
