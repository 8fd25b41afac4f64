//! Batches of records, between reading and formatting.

/// Some records, one after the other, with their bytes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    pub(super) data: Vec<u8>,
}

/// A record, and what its line needs to know of those before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) timestamp: u64,
    /// Which record it is, counted over all.
    pub(super) number: u64,
    pub(super) cpu: u32,
    /// Index of the buffer.
    pub(super) buffer: u32,
    /// How deep a function is called in others.
    pub(super) indent: u16,
    /// Whether it is selected. The others are only there where stacks need their events.
    pub(super) selected: bool,
    /// Events lost before it, plus one; 1 = some, 0 = none.
    missed: u64,
    /// Time of the line before, 0 = none.
    previous: u64,
    /// Time since its task was woken, plus one; 0 = unknown.
    latency: u64,
    start: u32,
    len: u32,
    leaf_start: u32,
    leaf_len: u32,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.data.clear();
    }

    /// Adds a record, and tells its index.
    #[inline]
    pub(super) fn push(&mut self, mut item: Item, record: &[u8]) -> usize {
        (item.start, item.len) = self.store(record);
        self.items.push(item);
        self.items.len() - 1
    }

    /// Gives a call of a function its return.
    pub(super) fn set_leaf(&mut self, index: usize, record: &[u8]) {
        let (start, len) = self.store(record);
        if let Some(item) = self.items.get_mut(index) {
            (item.leaf_start, item.leaf_len) = (start, len);
        }
    }

    fn store(&mut self, record: &[u8]) -> (u32, u32) {
        // A batch ends long before 4 GB.
        let start = self.data.len() as u32;
        self.data.extend_from_slice(record);
        (start, record.len() as u32)
    }
}

impl Item {
    pub(super) fn new(timestamp: u64, number: u64, cpu: u32, buffer: u32, missed: Option<u64>) -> Self {
        Self {
            timestamp,
            number,
            cpu,
            buffer,
            indent: 0,
            selected: true,
            missed: missed.map_or(0, |missed| missed.saturating_add(1)),
            previous: 0,
            latency: 0,
            start: 0,
            len: 0,
            leaf_start: 0,
            leaf_len: 0,
        }
    }

    /// How many events were lost before it, 0 = not known.
    pub(super) fn missed(&self) -> Option<u64> {
        self.missed.checked_sub(1)
    }

    pub(super) fn previous(&self) -> Option<u64> {
        Some(self.previous).filter(|time| *time != 0)
    }

    pub(super) fn set_previous(&mut self, time: u64) {
        self.previous = time;
    }

    pub(super) fn latency(&self) -> Option<u64> {
        self.latency.checked_sub(1)
    }

    pub(super) fn set_latency(&mut self, latency: u64) {
        self.latency = latency.saturating_add(1);
    }

    #[inline]
    pub(super) fn record<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        data.get(self.start as usize..self.start as usize + self.len as usize).unwrap_or_default()
    }

    /// The return that belongs to a call.
    pub(super) fn leaf<'d>(&self, data: &'d [u8]) -> Option<&'d [u8]> {
        let start = self.leaf_start as usize;
        data.get(start..start + self.leaf_len as usize).filter(|leaf| !leaf.is_empty())
    }
}
