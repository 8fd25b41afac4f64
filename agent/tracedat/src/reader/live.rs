//! Records of a recording that goes on.

use super::{ReadError, Record};

/// Records in the order of time, of which more come while they are read.
pub trait LiveRecords {
    /// The next record; `None` if there is none for now.
    ///
    /// # Errors
    /// A damaged page or chunk of one CPU. The next call continues after it.
    fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError>;

    /// Leaves out all records before `timestamp`.
    fn seek(&mut self, timestamp: u64);

    /// Whether there may be more records after those that are there.
    fn goes_on(&self) -> bool;
}
