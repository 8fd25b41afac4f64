//! Maps that are asked for each record.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A map whose hashes cost little. They are seeded: who chooses the keys cannot make many of them fall
/// together without knowing the process.
pub type FastMap<K, V> = HashMap<K, V, RandomState>;
