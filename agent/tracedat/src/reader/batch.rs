//! Records in memory of their own, on their way from the thread that reads them to others.

use super::records::Record;
use ftrace_event::endian::Endian;

/// Some records, one after the other, each with what its reader says of it.
#[derive(Debug)]
pub struct Batch<T> {
    items: Vec<Item<T>>,
    /// Their bytes, one behind the other.
    data: Vec<u8>,
}

/// A record whose bytes are in a batch.
#[derive(Clone, Copy, Debug)]
struct Item<T> {
    timestamp: u64,
    missed: Option<u64>,
    reader: u32,
    buffer: u32,
    cpu: u32,
    len: u32,
    endian: Endian,
    said: T,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { items: Vec::new(), data: Vec::new() }
    }
}

impl<T: Copy> Batch<T> {
    /// Appends a record, of whose bytes only the first so many are wanted.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>, kept: usize, said: T) {
        let Record { reader, buffer, cpu, timestamp, missed, data, endian } = *record;
        let data = data.get(..kept).unwrap_or(data);
        self.data.extend_from_slice(data);
        // There are fewer readers and buffers than a file has room for, and records are shorter than a page.
        let (reader, buffer, len) = (reader as u32, buffer as u32, data.len() as u32);
        self.items.push(Item { timestamp, missed, reader, buffer, cpu, len, endian, said });
    }

    /// The records in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Record<'_>, T)> {
        let mut rest = self.data.as_slice();
        self.items.iter().map(move |item| {
            let Item { timestamp, missed, reader, buffer, cpu, len, endian, said } = *item;
            let (data, behind) = rest.split_at_checked(len as usize).unwrap_or((rest, &[]));
            rest = behind;
            let (reader, buffer) = (reader as usize, buffer as usize);
            (Record { reader, buffer, cpu, timestamp, missed, data, endian }, said)
        })
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many bytes they have.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// How much memory they need, in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.data.len() + self.items.len() * size_of::<Item<T>>()
    }

    /// Forgets them, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.data.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_as_they_were() {
        let mut batch = Batch::default();
        let texts = [&b"first"[..], b"", b"third"];
        for (index, data) in texts.into_iter().enumerate() {
            let (timestamp, missed) = (index as u64, (index == 1).then_some(5));
            let (cpu, endian) = (7, Endian::Big);
            let record = Record { reader: 3, buffer: index, cpu, timestamp, missed, data, endian };
            batch.push(&record, 4, index * 2);
        }
        let found: Vec<_> =
            batch.iter().map(|(record, said)| (record.timestamp, record.missed, record.data, said)).collect();
        assert_eq!(found, [(0, None, &b"firs"[..], 0), (1, Some(5), b"", 2), (2, None, b"thir", 4)]);
        assert!(batch.iter().all(|(record, said)| record.reader == 3 && record.buffer * 2 == said));
        assert_eq!((batch.len(), batch.bytes()), (3, 8));
        assert!(batch.size() > 8);
        batch.clear();
        assert_eq!((batch.iter().count(), batch.size()), (0, 0));
    }
}
