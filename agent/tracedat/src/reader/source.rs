//! Where the bytes of a file come from.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Bytes that can be read at any offset.
///
/// A file that the caller has mapped into memory is read as a slice: pages of uncompressed trace data then
/// are not copied at all. A mapped file must not become shorter while it is read; a [`File`] may.
pub trait Source: Send + Sync {
    /// Number of bytes. It is asked once, when the file is opened; bytes that come later are not seen.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if there are fewer.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// All bytes, where they are in memory.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}

impl std::fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

impl Source for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, offset)
    }
}

impl Source for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A source behind something that points at it, or keeps it.
macro_rules! forward {
    ($({$($generics:tt)*} $pointer:ty),* $(,)?) => {$(
        impl<$($generics)*> Source for $pointer {
            fn size(&self) -> io::Result<u64> {
                (**self).size()
            }

            fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
                (**self).read_exact_at(buffer, offset)
            }

            fn bytes(&self) -> Option<&[u8]> {
                (**self).bytes()
            }
        }
    )*};
}

forward!({S: Source + ?Sized} &S, {S: Source + ?Sized} Box<S>, {S: Source + ?Sized} Arc<S>, {} Vec<u8>);

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_and_memory_give_the_same() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let memory = b"0123456789".to_vec();
        let sources: [&dyn Source; 3] = [&file, &memory, &memory.as_slice()];
        for source in sources {
            assert_eq!(source.size().unwrap(), 10);
            let mut buffer = [0; 4];
            source.read_exact_at(&mut buffer, 6).unwrap();
            assert_eq!(&buffer, b"6789");
            for offset in [7, 10, 11, u64::MAX] {
                let error = source.read_exact_at(&mut buffer, offset).unwrap_err();
                if offset != u64::MAX {
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                }
            }
        }
        assert_eq!(Source::bytes(&memory), Some(memory.as_slice()));
        assert!(Source::bytes(&file).is_none());
    }
}
