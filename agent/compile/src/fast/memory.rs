//! What descriptions need of the kernel's memory: values that are the same until the next boot, and that
//! neither BTF nor tracefs tells. Each is read when the first event needs it, and becomes constants of
//! programs.
//!
//! An address of the kernel is no secret to who may load programs, but nobody else's business: it goes into
//! programs only, never into a text or a file.

use std::{
    cell::OnceCell,
    fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::fs::FileExt as _,
    },
    sync::Arc,
};

use memmap2::MmapMut;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, pipe_with, vmsplice};

use bpf::peek;
use bpf::peek::{Start, peek};
use kernel::btf::{Btf, BtfError};
use kernel::kallsyms::{Kallsyms, KallsymsError};

/// What there is to know, as far as it was asked for.
#[derive(Debug, Default)]
pub(super) struct KernelMemory {
    pages: OnceCell<Result<PageArray, Arc<MemoryError>>>,
    block_errors: OnceCell<Result<Arc<BlockErrors>, Arc<MemoryError>>>,
}

impl KernelMemory {
    /// Where the array of all `struct page` is.
    pub(super) fn pages(&self, btf: &Btf) -> Result<PageArray, Arc<MemoryError>> {
        self.pages.get_or_init(|| PageArray::find(btf).map_err(|why| Arc::new(why.into()))).clone()
    }

    /// The errors of requests.
    pub(super) fn block_errors(&self) -> Result<Arc<BlockErrors>, Arc<MemoryError>> {
        let read = || BlockErrors::read().map(Arc::new).map_err(|why| Arc::new(why.into()));
        self.block_errors.get_or_init(read).clone()
    }
}

/// Why an event cannot be told what it needs.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Where the array of all pages is.
    #[error("it has page frame numbers, and where the kernel's array of pages is cannot be found: {0}")]
    Pages(#[from] PagesError),
    /// The errors that statuses of requests stand for.
    #[error(
        "it has the error of a request, and the kernel's table of these cannot be read by its symbols: {0}"
    )]
    BlockErrors(#[from] SymbolError),
}

/// Why the array of pages is not found.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// A type or a member.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// Getting a page of this process into a pipe.
    #[error("no page can be put into a pipe: {0}")]
    Pipe(#[source] io::Error),
    /// Where a page of this process is.
    #[error("/proc/self/pagemap cannot be read: {0}")]
    Pagemap(#[source] io::Error),
    /// The frames are not told.
    #[error("/proc/self/pagemap tells no page frame numbers to this process")]
    Hidden,
    /// What a program gave.
    #[error("a program cannot read this process's pipe in the kernel: {0}")]
    Peek(#[source] io::Error),
    /// What was found contradicts itself.
    #[error("what programs see of this process's pages is not that of a single array")]
    NoArray,
    /// Nor by symbols.
    #[error("{own}; nor by the kernel's symbols: {symbol}")]
    NoWay {
        /// Why not by pages of this process.
        own: Box<PagesError>,
        /// Why not by symbols.
        symbol: Box<SymbolError>,
    },
}

/// Why a variable of the kernel is not read by its symbol.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// The symbols.
    #[error(transparent)]
    Symbols(#[from] KallsymsError),
    /// It is not among them.
    #[error("there is no {0} among them (variables are with CONFIG_KALLSYMS_ALL only)")]
    Missing(&'static str),
    /// What a program gave.
    #[error("a program cannot read {0}: {1}")]
    Peek(&'static str, #[source] io::Error),
    /// Its value.
    #[error("{0} is not what it should be: {1}")]
    Value(&'static str, &'static str),
}

/// The array that has a `struct page` for every page frame: `vmemmap` (arch/x86/include/asm/pgtable_64.h),
/// which begins elsewhere at each boot. `page_to_pfn` is a subtraction in it
/// (include/asm-generic/memory_model.h, `CONFIG_SPARSEMEM_VMEMMAP`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PageArray {
    /// The address of frame 0's.
    pub(super) base: u64,
    /// Bytes of a `struct page`.
    pub(super) each: u32,
}

/// Without the address.
impl fmt::Debug for PageArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageArray").field("each", &self.each).finish_non_exhaustive()
    }
}

/// A page: its frame's number, and the address of its `struct page`.
type Pair = (u64, u64);

impl PageArray {
    /// Pages that are compared: their frames are as far apart as it comes, so what is true of all of them is
    /// true of the array.
    const PROBES: usize = 8;
    /// What the array's address is a multiple of: `kernel_randomize_memory` (arch/x86/mm/kaslr.c) moves it in
    /// steps of `PUD_SIZE`, and so are the addresses without that (Documentation/arch/x86/x86_64/mm.rst).
    const ALIGNMENT: u64 = 1 << 30;

    /// The variable with the array's address, and a function that there is only where that is in use
    /// (arch/x86/mm/init_64.c).
    const BASE: &str = "vmemmap_base";
    const POPULATE: &str = "vmemmap_populate";

    /// Finds it by pages of this process: the kernel tells their frames in `/proc/self/pagemap`, and their
    /// `struct page` are what a pipe points to that they were put into. So no symbol is needed, which many
    /// kernels do not have for variables. Frames are not told without `CAP_SYS_ADMIN`: then the symbol it is.
    fn find(btf: &Btf) -> Result<Self, PagesError> {
        let each = btf.size_of(btf.type_named("page")?)?;
        let by_pages = own_pages(btf, Self::PROBES).and_then(|pairs| Self::from_pairs(&pairs, each));
        by_pages.or_else(|own| {
            let no_way = |symbol| PagesError::NoWay { own: Box::new(own), symbol: Box::new(symbol) };
            Self::by_symbol(each).map_err(no_way)
        })
    }

    fn by_symbol(each: u32) -> Result<Self, SymbolError> {
        let symbols = Kallsyms::read()?;
        symbols.address_of(Self::POPULATE).ok_or(SymbolError::Missing(Self::POPULATE))?;
        let address = symbols.address_of(Self::BASE).ok_or(SymbolError::Missing(Self::BASE))?;
        let bytes = peek(Start::Address(address), &[], size_of::<u64>())
            .map_err(|error| SymbolError::Peek(Self::BASE, error))?;
        let base = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        if !Self::can_begin(base) || each == 0 {
            return Err(SymbolError::Value(Self::BASE, "an array of pages does not begin there"));
        }
        Ok(Self { base, each })
    }

    /// Whether it can begin at this address.
    fn can_begin(base: u64) -> bool {
        base.cast_signed() < 0 && base.is_multiple_of(Self::ALIGNMENT)
    }

    /// The array that has all of these pages, if there is one.
    fn from_pairs(pairs: &[Pair], each: u32) -> Result<Self, PagesError> {
        let base_of = |(frame, page): &Pair| {
            frame.checked_mul(each.into()).and_then(|distance| page.checked_sub(distance))
        };
        let base = pairs.first().and_then(base_of).ok_or(PagesError::NoArray)?;
        if !Self::can_begin(base) || each == 0 || !pairs.iter().all(|pair| base_of(pair) == Some(base)) {
            return Err(PagesError::NoArray);
        }
        Ok(Self { base, each })
    }
}

/// Frames and `struct page` of so many pages of this process.
fn own_pages(btf: &Btf, count: usize) -> Result<Vec<Pair>, PagesError> {
    let pipe_error = |error: rustix::io::Errno| PagesError::Pipe(error.into());
    let page = rustix::param::page_size();
    let mut memory = MmapMut::map_anon(count * page).map_err(PagesError::Pipe)?;
    for (number, page) in (1..).zip(memory.chunks_exact_mut(page)) {
        // Each has a page of its own, and none that equals another.
        page[0] = number;
    }
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(pipe_error)?;
    // SAFETY: the memory is mapped until after the pipe is closed, and nothing is given away: the pipe only
    // holds references to the pages.
    let put = unsafe { vmsplice(&writer, &[IoSliceRaw::from_slice_mut(&mut memory)], SpliceFlags::NONBLOCK) };
    if put.map_err(pipe_error)? != count * page {
        return Err(PagesError::Pipe(io::ErrorKind::WriteZero.into()));
    }
    let frames = frames_of(memory.as_ptr().addr() / page, count)?;
    let pages = pages_in_pipe(btf, reader.as_fd(), count)?;
    drop((reader, writer));
    Ok(frames.into_iter().zip(pages).collect())
}

/// The frames of this process's pages from this one on (Documentation/admin-guide/mm/pagemap.rst).
fn frames_of(first: usize, count: usize) -> Result<Vec<u64>, PagesError> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut entries = vec![0; 8 * count];
    let file = File::open("/proc/self/pagemap").map_err(PagesError::Pagemap)?;
    file.read_exact_at(&mut entries, 8 * first as u64).map_err(PagesError::Pagemap)?;
    let (entries, _) = entries.as_chunks();
    let frame = |entry: &[u8; 8]| {
        let entry = u64::from_ne_bytes(*entry);
        // Without CAP_SYS_ADMIN all frames are 0.
        if entry & PRESENT == 0 || entry & FRAME == 0 { Err(PagesError::Hidden) } else { Ok(entry & FRAME) }
    };
    entries.iter().map(frame).collect()
}

/// What the first buffers of a pipe that was never read point to (`struct pipe_inode_info`,
/// include/linux/pipe_fs_i.h).
fn pages_in_pipe(btf: &Btf, pipe: BorrowedFd<'_>, count: usize) -> Result<Vec<u64>, PagesError> {
    let of_descriptor = u32::try_from(8 * i64::from(pipe.as_raw_fd())).map_err(|_| PagesError::NoArray)?;
    let each = btf.size_of(btf.type_named("pipe_buffer")?)? as usize;
    let page = btf.member("pipe_buffer.page")?.offset as usize;
    let way = [
        btf.member_offset("task_struct.files")?,
        btf.member_offset("files_struct.fdt")?,
        btf.member_offset("fdtable.fd")?,
        of_descriptor,
        btf.member_offset("file.private_data")?,
        btf.member_offset("pipe_inode_info.bufs")?,
    ];
    let buffers = peek(Start::CurrentTask, &way, count * each).map_err(PagesError::Peek)?;
    let page_of = |buffer: &[u8]| {
        let bytes = buffer.get(page..page + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_ne_bytes).ok_or(PagesError::NoArray)
    };
    buffers.chunks_exact(each).map(page_of).collect()
}

/// The table's name in block/blk-core.c.
const SYMBOL: &str = "blk_errors";

/// The errors that statuses of requests stand for: the table of `blk_status_to_errno` (block/blk-core.c), of
/// entries `{ int errno; const char *name; }`, or as of 7.2 with two texts. Which statuses there are changes
/// between versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockErrors {
    /// By status: 0, or a negative error.
    errors: Vec<i16>,
}

impl BlockErrors {
    /// What `blk_status_to_errno` gives for a status that the table does not have: `-EIO`.
    pub(super) const OTHER: i16 = -5;
    /// `BLK_STS_IOERR` (include/linux/blk_types.h), whose number was always this.
    const IO_ERROR: usize = 10;
    /// Bytes of an entry with one text.
    const SHORT: usize = 16;
    /// Bytes of an entry with two.
    const LONG: usize = 24;
    /// Statuses that there can be at most; Linux 7 has some twenty.
    const MAX: usize = 64;

    fn read() -> Result<Self, SymbolError> {
        let symbols = Kallsyms::read()?;
        let (address, len) = symbols.extent_of(SYMBOL).ok_or(SymbolError::Missing(SYMBOL))?;
        let len =
            usize::try_from(len).ok().filter(|len| (Self::SHORT..=Self::MAX * Self::LONG).contains(len));
        let len = len.ok_or(SymbolError::Value(SYMBOL, "its size is that of something else"))?;
        const { assert!(Self::MAX * Self::LONG <= peek::BYTES_MAX) };
        let bytes =
            peek(Start::Address(address), &[], len).map_err(|error| SymbolError::Peek(SYMBOL, error))?;
        Self::parse(&bytes).map_err(|why| SymbolError::Value(SYMBOL, why))
    }

    /// Reads the bytes up to the next symbol: of the two kinds of tables they can only be one.
    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        Self::parse_entries::<{ Self::SHORT }>(bytes)
            .or_else(|_| Self::parse_entries::<{ Self::LONG }>(bytes))
    }

    /// Reads entries of `LEN` bytes. Behind them there can be zeros, to which the next symbol is aligned.
    fn parse_entries<const LEN: usize>(bytes: &[u8]) -> Result<Self, &'static str> {
        let (entries, rest) = bytes.as_chunks::<LEN>();
        let is_empty = |entry: &[u8]| entry.iter().all(|byte| *byte == 0);
        let end = entries.iter().rposition(|entry| !is_empty(entry)).map_or(0, |last| last + 1);
        if !is_empty(rest) {
            return Err("something else is behind it");
        }
        let errors =
            entries[..end].iter().map(|entry| Self::entry(entry)).collect::<Result<Vec<i16>, _>>()?;
        if errors.first() != Some(&0) || entries.first().is_none_or(|first| is_empty(first)) {
            return Err("its first entry is not that of success");
        }
        if errors.get(Self::IO_ERROR) != Some(&Self::OTHER) {
            return Err("the entry of an I/O error is another");
        }
        if errors.iter().zip(entries).skip(1).any(|(error, entry)| *error == 0 && !is_empty(entry)) {
            return Err("an entry has a name and no error");
        }
        Ok(Self { errors })
    }

    /// An entry's error; one without a name is of a status that there is not.
    fn entry(entry: &[u8]) -> Result<i16, &'static str> {
        // -MAX_ERRNO, include/linux/err.h.
        const LOWEST: i32 = -4095;
        let (error, rest) = entry.split_first_chunk::<4>().ok_or("it is cut")?;
        let (gap, names) = rest.split_first_chunk::<4>().ok_or("it is cut")?;
        if *gap != [0; 4] {
            return Err("an entry has something between its error and its name");
        }
        let (names, _) = names.as_chunks::<8>();
        // Addresses of the kernel are negative.
        let has_names = names.iter().all(|name| i64::from_ne_bytes(*name) < 0);
        match i32::from_ne_bytes(*error) {
            0 if names.iter().all(|name| *name == [0; 8]) => Ok(0),
            _ if !has_names => Err("an entry has an error and no name"),
            error @ LOWEST..=0 => i16::try_from(error).map_err(|_| "an entry has no error"),
            _ => Err("an entry has no error"),
        }
    }

    /// The errors without their sign, four in each word of 16 bits each, the first in the lowest; the last
    /// word is filled up with what statuses without an entry give.
    pub(super) fn words(&self) -> Vec<u64> {
        let word = |four: &[i16]| {
            let errors = four.iter().chain(&[Self::OTHER; 4]).zip([0, 16, 32, 48]);
            errors.fold(0, |word, (error, shift)| word | u64::from(error.unsigned_abs()) << shift)
        };
        self.errors.chunks(4).map(word).collect()
    }

    /// The word of statuses that the table does not have.
    pub(super) fn other_word() -> u64 {
        u64::from(Self::OTHER.unsigned_abs()) * 0x0001_0001_0001_0001
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as it is in memory, with entries of so many bytes and zeros behind it.
    fn table_of(len: usize, errors: &[i32]) -> Vec<u8> {
        let name = 0xffff_ffff_8123_4567_u64.to_ne_bytes();
        let entry = |error: &i32| [&error.to_ne_bytes()[..], &[0; 4], &name.repeat(len / 8 - 1)].concat();
        let mut bytes: Vec<u8> = errors.iter().flat_map(entry).collect();
        bytes.extend([0; 40]);
        bytes
    }

    fn table(errors: &[i32]) -> Vec<u8> {
        table_of(BlockErrors::SHORT, errors)
    }

    const ERRORS: [i32; 13] = [0, -95, -110, -28, -67, -121, -52, -61, -84, -12, -5, -11, -16];

    #[test]
    fn a_table_of_errors_is_read_up_to_its_end() {
        let read = BlockErrors::parse(&table(&ERRORS)).unwrap();
        assert_eq!(read.errors.iter().map(|error| i32::from(*error)).collect::<Vec<_>>(), ERRORS);
        assert_eq!(BlockErrors::parse(&table_of(BlockErrors::LONG, &ERRORS)), Ok(read.clone()));
        let words = read.words();
        assert_eq!(words.len(), 4);
        assert_eq!(words[0], 28 << 48 | 110 << 32 | 95 << 16);
        assert_eq!(words[3], 5 << 48 | 5 << 32 | 5 << 16 | 16);
        assert_eq!(BlockErrors::other_word(), 5 << 48 | 5 << 32 | 5 << 16 | 5);
        // A status that there is not: the kernel gives 0.
        let mut bytes = table(&ERRORS);
        bytes[48..64].fill(0);
        assert_eq!(BlockErrors::parse(&bytes).unwrap().errors[3], 0);
    }

    #[test]
    fn what_is_no_table_of_errors_is_refused() {
        let with = |at: usize, error: i32| {
            let mut errors = ERRORS;
            errors[at] = error;
            BlockErrors::parse(&table(&errors))
        };
        assert!(with(0, -1).is_err());
        assert!(with(10, -6).is_err());
        assert!(with(2, -4096).is_err());
        assert!(with(2, 1).is_err());
        assert!(with(2, 0).is_err());
        assert!(with(12, -4095).is_ok());
        assert!(BlockErrors::parse(&table(&ERRORS[..10])).is_err());
        assert!(BlockErrors::parse(&[]).is_err());
        assert!(BlockErrors::parse(&[0; 512]).is_err());
        for at in [4, 8 + 16, 13 * 16 + 39] {
            let mut bytes = table(&ERRORS);
            if at == 8 + 16 {
                bytes[at..at + 8].fill(0);
            } else {
                bytes[at] = 1;
            }
            assert!(BlockErrors::parse(&bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn pages_are_of_one_array() {
        const BASE: u64 = 0xffff_ea00_4000_0000;
        let page = |frame: u64| (frame, BASE + 64 * frame);
        let pairs = [page(0x1234), page(0x77), page(0x10_0000)];
        assert!(PageArray::from_pairs(&pairs, 64).is_ok_and(|array| array.base == BASE && array.each == 64));
        let refused = |pairs: &[Pair], each| PageArray::from_pairs(pairs, each).is_err();
        assert!(refused(&[], 64));
        assert!(refused(&pairs, 0));
        assert!(refused(&pairs, 56));
        assert!(refused(&[page(1), (2, BASE + 64)], 64));
        assert!(refused(&[(1, BASE + 64 + 4096)], 64));
        assert!(refused(&[(1, (1 << 30) + 64)], 64));
        assert!(refused(&[(u64::MAX, BASE)], 64));
        let array = PageArray { base: BASE, each: 64 };
        assert!(!format!("{array:?} {array:x?}").contains("ea00"));
    }
}
