//! The functions that stacks go through: addresses of one function are one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::answers::Names;
use ftrace_event::stacks::{UNKNOWN, function};

/// Most functions, and most bytes of their names.
const MOST: usize = 1 << 18;
const MOST_BYTES: usize = 32 << 20;

/// Most addresses whose functions are remembered; those of others are looked up again.
const MOST_ADDRESSES: usize = 1 << 19;

/// Functions by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Functions {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    addresses: HashMap<u64, u32>,
    bytes: usize,
}

impl Functions {
    /// The function that an address is in. `None` if there is no room for it.
    pub(super) fn number(&mut self, address: u64, names: &Names<'_>) -> Option<u32> {
        if let Some(number) = self.addresses.get(&address) {
            return Some(*number);
        }
        let name = function(names.symbols, address);
        let number = self.number_of(&name)?;
        // One without a name may get one while a recording goes on.
        if name != UNKNOWN && self.addresses.len() < MOST_ADDRESSES {
            self.addresses.insert(address, number);
        }
        Some(number)
    }

    fn number_of(&mut self, name: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.names.len() >= MOST || self.bytes + name.len() > MOST_BYTES {
            return None;
        }
        let (number, name) = (self.names.len() as u32, Arc::<str>::from(name));
        self.bytes += name.len();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        Some(number)
    }

    /// The name of one.
    pub(super) fn name(&self, number: u64) -> Arc<str> {
        let name = usize::try_from(number).ok().and_then(|number| self.names.get(number));
        name.map_or_else(|| Arc::from(UNKNOWN), Arc::clone)
    }

    /// Whether half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.names.len() >= MOST / 2 || self.bytes >= MOST_BYTES / 2
    }
}
