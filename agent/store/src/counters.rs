//! What is counted of uploads, and of what is deleted here.

use std::collections::BTreeMap;

use serde::Serialize;

use super::failure::Cause;
use super::retention::Retained;

/// What was uploaded, and what was not, since the uploader was started; what waits is what waits now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UploadCounters {
    /// Archives that are not stored yet.
    pub queued_archives: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Archives that were stored, each verified.
    pub stored_archives: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Attempts that have failed, by cause; causes that did not occur are left out.
    pub failures: BTreeMap<Cause, u64>,
    /// Attempts after the first one of an archive.
    pub retries: u64,
    /// Bytes of archives that stores have taken; some more than once.
    pub bytes_sent: u64,
    /// Seconds since the end of the oldest archive that is not stored yet.
    pub oldest_unsent_seconds: Option<u64>,
    /// The last failure, in words and without secrets.
    pub last_error: Option<String>,
    /// Files of the journal that were damaged.
    pub damaged_journals: u64,
    /// Archives that were gone before they were stored.
    pub lost_archives: u64,
    /// Archives that were deleted before they were stored, because the disk was too full.
    pub deleted_unsent_archives: u64,
    /// Their bytes.
    pub deleted_unsent_bytes: u64,
    /// Stored archives that were deleted here.
    pub deleted_archives: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
}

impl UploadCounters {
    /// The same with what was counted before; what waits is what waits now.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.stored_archives += before.stored_archives;
        self.stored_bytes += before.stored_bytes;
        for (cause, count) in &before.failures {
            *self.failures.entry(*cause).or_default() += count;
        }
        self.retries += before.retries;
        self.bytes_sent += before.bytes_sent;
        self.damaged_journals += before.damaged_journals;
        self.lost_archives += before.lost_archives;
        self.deleted_unsent_archives += before.deleted_unsent_archives;
        self.deleted_unsent_bytes += before.deleted_unsent_bytes;
        self.deleted_archives += before.deleted_archives;
        self.deleted_bytes += before.deleted_bytes;
        self.last_error = self.last_error.or_else(|| before.last_error.clone());
        self
    }

    /// The same when nobody uploads any more: nothing waits.
    #[must_use]
    pub fn at_rest(self) -> Self {
        Self { queued_archives: 0, queued_bytes: 0, oldest_unsent_seconds: None, ..self }
    }

    /// Counts what was deleted.
    pub fn count_deleted(&mut self, retained: &Retained) {
        self.deleted_archives += retained.deleted_archives;
        self.deleted_bytes += retained.deleted_bytes;
        self.deleted_unsent_archives += retained.deleted_unsent_archives;
        self.deleted_unsent_bytes += retained.deleted_unsent_bytes;
    }
}
