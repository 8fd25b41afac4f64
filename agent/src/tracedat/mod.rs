//! The trace.dat version 7 file format.
mod compress;
mod endian;
pub mod layout;
pub mod page;
pub use compress::{ChunkCompressor, CompressError, Compression};
pub use endian::Endian;
