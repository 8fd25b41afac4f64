//! Sets of events, by their numbers.

/// Some of the events of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids(Vec<bool>);

impl Ids {
    /// Whether an event is one of them.
    #[inline]
    pub(super) fn contains(&self, id: u16) -> bool {
        self.0.get(usize::from(id)).is_some_and(|is_in| *is_in)
    }

    pub(super) fn insert(&mut self, id: u16) {
        let id = usize::from(id);
        if self.0.len() <= id {
            self.0.resize(id + 1, false);
        }
        self.0[id] = true;
    }
}

impl FromIterator<u16> for Ids {
    fn from_iter<I: IntoIterator<Item = u16>>(ids: I) -> Self {
        let mut all = Self::default();
        ids.into_iter().for_each(|id| all.insert(id));
        all
    }
}
