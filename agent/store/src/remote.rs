//! An object that is read by ranges, as a file would be: only what is asked for is fetched, in blocks that
//! are kept for a while.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use object_store::{GetOptions, GetRange, path::Path};
use tokio::runtime::Runtime;

use super::failure::StoreError;
use super::place::{Access, Place, Retries};
use tracedat::reader::Source;

/// What is fetched at least.
const BLOCK: u64 = 256 << 10;
/// What is fetched at most, of what is read one after the other.
const MOST_AT_ONCE: u64 = 16;
/// Blocks that are kept: 64 MiB.
const KEPT: usize = 256;
/// Readers of one file whose progress is watched: one for each CPU.
const MOST_READERS: usize = 64;

/// An object of a store, as the readers of trace files read it. What is kept of it is at most 64 MiB.
pub struct RemoteFile {
    place: Place,
    path: Path,
    size: u64,
    /// Only the object that was opened is read, not one that replaced it.
    e_tag: Option<String>,
    runtime: Runtime,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteFile").field(&self.place.url(&self.path)).finish()
    }
}

#[derive(Default)]
struct Cache {
    blocks: HashMap<u64, Block>,
    /// Counts uses.
    clock: u64,
    /// Where fetches have ended lately, and how many blocks each had.
    ends: Vec<(u64, u64)>,
}

struct Block {
    bytes: Vec<u8>,
    used: u64,
}

impl RemoteFile {
    /// Opens the object at an address.
    ///
    /// # Errors
    /// The address is wrong, there is no such object, or the store cannot be reached.
    pub fn open(url: &str, access: &Access) -> Result<Self, StoreError> {
        let place = Place::open(url, access, Retries::Client)?;
        let path = place.path().clone();
        Self::at(place, path)
    }

    fn at(place: Place, path: Path) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(StoreError::local("start a thread for requests"))?;
        let found = runtime.block_on(place.look(&path))?;
        let url = place.url(&path);
        let missing = || StoreError::local(format!("open {url}"))(io::ErrorKind::NotFound.into());
        let meta = found.ok_or_else(missing)?.meta;
        // A weak one cannot be asked for (RFC 9110, 13.1.1).
        let e_tag = meta.e_tag.filter(|tag| !tag.starts_with("W/"));
        Ok(Self { place, path, size: meta.size, e_tag, runtime, cache: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies bytes of a block that is there.
    fn copy(&self, block: u64, from: usize, buffer: &mut [u8]) -> bool {
        let mut cache = self.lock();
        cache.clock += 1;
        let clock = cache.clock;
        let Some(block) = cache.blocks.get_mut(&block) else { return false };
        block.used = clock;
        match block.bytes.get(from..from + buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return false,
        }
        true
    }

    /// Fetches a block, and those behind it where somebody reads on.
    fn fetch(&self, block: u64) -> io::Result<()> {
        let count = self.lock().how_many(block);
        let start = block * BLOCK;
        let range = start..start.saturating_add(count * BLOCK).min(self.size);
        let bytes = self.runtime.block_on(self.range(range.clone())).map_err(io::Error::other)?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut cache = self.lock();
        for (index, bytes) in bytes.chunks(BLOCK as usize).enumerate() {
            cache.keep(block + index as u64, bytes.to_vec());
        }
        Ok(())
    }

    async fn range(&self, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let failed = || {
            let what = format!("read {}", self.place.url(&self.path));
            StoreError::remote(what, &self.place.filter)
        };
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.e_tag.clone(),
            ..GetOptions::default()
        };
        let result = self.place.store.get_opts(&self.path, options).await.map_err(failed())?;
        Ok(result.bytes().await.map_err(failed())?.to_vec())
    }
}

impl Cache {
    /// How many blocks to fetch from this one on: one, and twice as many each time that somebody goes on
    /// where a fetch has ended.
    fn how_many(&mut self, block: u64) -> u64 {
        let before = self.ends.iter().position(|(end, _)| *end == block);
        let count = before.map_or(1, |at| (self.ends.remove(at).1 * 2).min(MOST_AT_ONCE));
        if self.ends.len() == MOST_READERS {
            self.ends.remove(0);
        }
        self.ends.push((block + count, count));
        count
    }

    fn keep(&mut self, block: u64, bytes: Vec<u8>) {
        if self.blocks.len() >= KEPT
            && let Some(oldest) = self.blocks.iter().min_by_key(|(_, block)| block.used).map(|(at, _)| *at)
        {
            self.blocks.remove(&oldest);
        }
        self.clock += 1;
        self.blocks.insert(block, Block { bytes, used: self.clock });
    }
}

impl Source for RemoteFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !buffer.is_empty() {
            let (block, from) = (offset / BLOCK, (offset % BLOCK) as usize);
            let len = buffer.len().min(BLOCK as usize - from);
            let (here, rest) = std::mem::take(&mut buffer).split_at_mut(len);
            // Others may have pushed it out again.
            while !self.copy(block, from, here) {
                self.fetch(block)?;
            }
            buffer = rest;
            offset += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt as _, PutPayload};

    use super::*;

    fn remote(bytes: &[u8]) -> RemoteFile {
        let (place, store) = Place::in_memory();
        let path = place.below("x.dat");
        super::super::place::block_on(store.put(&path, PutPayload::from(bytes.to_vec()))).unwrap().unwrap();
        RemoteFile::at(place, path).unwrap()
    }

    #[test]
    fn any_range_is_what_the_object_has() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 1000).map(|at| (at * 7 / 3) as u8).collect();
        let file = remote(&bytes);
        assert_eq!(file.size().unwrap(), bytes.len() as u64);
        for (offset, len) in [(0, 10), (BLOCK - 5, 10), (BLOCK * 2 - 1, BLOCK + 2), (0, bytes.len() as u64)] {
            let mut buffer = vec![0; len as usize];
            file.read_exact_at(&mut buffer, offset).unwrap();
            assert!(buffer == bytes[offset as usize..][..len as usize], "{offset}");
        }
        for offset in [bytes.len() as u64 - 1, u64::MAX] {
            let error = file.read_exact_at(&mut [0; 2], offset).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn who_reads_on_gets_more_and_memory_is_bounded() {
        let mut cache = Cache::default();
        let mut block = 0;
        let counts: Vec<_> = (0..6)
            .map(|_| {
                let count = cache.how_many(block);
                block += count;
                count
            })
            .collect();
        assert_eq!(counts, [1, 2, 4, 8, 16, 16]);
        assert_eq!(cache.how_many(5000), 1);
        for block in 0..2000 {
            cache.keep(block, vec![0]);
            cache.how_many(block * 100);
        }
        assert_eq!((cache.blocks.len(), cache.ends.len()), (KEPT, MOST_READERS));
        assert!(cache.blocks.contains_key(&1999) && !cache.blocks.contains_key(&0));
    }
}
