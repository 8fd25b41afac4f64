//! The files of a session: it may make any number of them.

use std::{collections::VecDeque, path::PathBuf};

use serde::{Deserialize, Serialize};

/// How many are known by name.
const KNOWN_MAX: usize = 1024;

/// The newest files of a session, and how many there were before them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Files {
    newest: VecDeque<PathBuf>,
    earlier: u64,
}

impl Files {
    /// One more.
    pub(super) fn add(&mut self, file: PathBuf) {
        if self.newest.len() >= KNOWN_MAX {
            self.newest.pop_front();
            self.earlier += 1;
        }
        self.newest.push_back(file);
    }

    /// These are not there any more.
    pub(super) fn forget(&mut self, files: &[PathBuf]) {
        self.newest.retain(|there| !files.contains(there));
    }

    /// Those that are known, in the order in which they were made, and how many there were before.
    pub(super) fn into_parts(self) -> (Vec<PathBuf>, u64) {
        (self.newest.into(), self.earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ones_are_known() {
        let mut files = Files::default();
        for number in 0..KNOWN_MAX + 3 {
            files.add(number.to_string().into());
        }
        files.forget(&["4".into(), "1".into()]);
        let (newest, earlier) = files.into_parts();
        assert_eq!((newest.len(), earlier), (KNOWN_MAX - 1, 3));
        assert_eq!(newest[..2], [PathBuf::from("3"), "5".into()]);
    }
}
