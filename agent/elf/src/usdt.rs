//! USDT markers: what `DTRACE_PROBE`, `STAP_PROBE` and their kin of `sys/sdt.h` leave in a binary.
//!
//! Each use of the macro is a `nop` in the code and a note of owner `stapsdt`, type 3, in `.note.stapsdt`
//! (SystemTap wiki, "UserSpaceProbeImplementation"). The note's descriptor is, in the binary's byte order and
//! word size:
//!
//! ```text
//! address of the nop            one word
//! address of .stapsdt.base      one word, as linked: prelink may have moved everything since
//! address of the semaphore      one word, 0 where there is none
//! provider NUL name NUL arguments NUL
//! ```
//!
//! The arguments are separated by blanks, each `SIZE@OPERAND` with the operand in the assembler's syntax; a
//! negative size is a signed value. The semaphore is a 16-bit counter of those who listen; the kernel keeps
//! it with a uprobe when it knows the counter's file offset (`ref_ctr_offset`, since Linux 4.20).

mod argument;

use std::path::Path;

use object::{Endianness, Object as _, ObjectSection as _};

pub use argument::{Argument, ArgumentError, Operand};

use super::{
    BinaryError, OpenBinary,
    file::{Machine, Parsed, READ_MAX, Segments, machine_of, malformed, with_binary},
};

const OWNER: &[u8] = b"stapsdt";
const NOTE_TYPE: u32 = 3;
const SECTION: &str = ".note.stapsdt";
const BASE_SECTION: &str = ".stapsdt.base";

/// One site in the code where a marker stands. An inlined or repeated marker has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Who declared it, such as `libc`.
    pub provider: String,
    /// Its name, such as `setjmp`.
    pub name: String,
    /// The virtual address of its `nop`, as linked.
    pub address: u64,
    /// The `nop`'s offset in the file, which is what the kernel wants.
    pub offset: u64,
    /// Its semaphore, where it has one.
    pub semaphore: Option<Semaphore>,
    /// Where its arguments are at this site, in the assembler's words.
    pub arguments: String,
}

impl Marker {
    /// The arguments, in order.
    pub fn parse_arguments(&self, machine: Machine) -> Result<Vec<Argument>, ArgumentError> {
        argument::parse_all(&self.arguments, machine)
    }
}

/// The counter that a program looks at before it computes a marker's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Semaphore {
    /// Its virtual address, as linked.
    pub address: u64,
    /// Its offset in the file, for `ref_ctr_offset`.
    pub offset: u64,
}

/// A binary that stays open, with its markers: a probe of one of them is in the file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The binary.
    pub binary: OpenBinary,
    /// Its markers.
    pub markers: Markers,
}

/// The markers of one binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markers {
    machine: Machine,
    markers: Vec<Marker>,
}

impl Markers {
    /// Reads the markers of the binary at `path`, ordered by provider, name and address. Most binaries have
    /// none.
    pub fn of(path: &Path) -> Result<Self, BinaryError> {
        Self::of_binary(&OpenBinary::open(path)?)
    }

    /// The same of a binary that is open.
    pub fn of_binary(binary: &OpenBinary) -> Result<Self, BinaryError> {
        Self::of_binary_within(binary, READ_MAX)
    }

    /// The same with so many bytes that are read at most, of which symbols are most.
    pub fn of_binary_within(binary: &OpenBinary, bytes: u64) -> Result<Self, BinaryError> {
        with_binary(binary, bytes, |file, segments| {
            let mut markers = read_notes(binary.path(), file, segments)?;
            markers.sort_by(|a, b| (&a.provider, &a.name, a.address).cmp(&(&b.provider, &b.name, b.address)));
            Ok(Self { machine: machine_of(file), markers })
        })
    }

    /// The processor that the arguments' registers are of.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// All sites of all markers.
    pub fn all(&self) -> &[Marker] {
        &self.markers
    }

    /// About how many bytes of memory they take.
    pub fn size(&self) -> usize {
        let texts = |of: &Marker| of.provider.len() + of.name.len() + of.arguments.len();
        self.markers.iter().map(|of| size_of::<Marker>() + texts(of)).sum()
    }
}

/// The most bytes of the notes: some thousand markers.
const NOTES_MAX: u64 = 4 << 20;

fn read_notes(path: &Path, file: &Parsed<'_>, segments: &Segments) -> Result<Vec<Marker>, BinaryError> {
    let Some(section) = file.section_by_name(SECTION) else { return Ok(Vec::new()) };
    if section.size() > NOTES_MAX {
        return Err(malformed(path, &format!("{SECTION} has more than {NOTES_MAX} bytes")));
    }
    let notes = section.data().map_err(|reason| malformed(path, &format!("{SECTION}: {reason}")))?;
    let base = file.section_by_name(BASE_SECTION).map(|section| section.address());
    let words = Words { endian: file.endianness(), wide: file.is_64() };
    let mut markers = Vec::new();
    let mut cursor = Cursor { bytes: notes, offset: 0 };
    while cursor.offset < notes.len() {
        let offset = cursor.offset;
        let cut = |what: &str| malformed(path, &format!("the note at {offset:#x} of {SECTION} {what}"));
        let (owner, kind, description) =
            cursor.note(words.endian).ok_or_else(|| cut("ends beyond the section"))?;
        if owner.strip_suffix(b"\0").unwrap_or(owner) == OWNER && kind == NOTE_TYPE {
            let note = Note::read(description, words).ok_or_else(|| cut("is cut off"))?;
            let moved = |address: u64| match base {
                Some(base) => address.wrapping_add(base.wrapping_sub(note.base)),
                None => address,
            };
            let address = moved(note.address);
            let offset =
                segments.code_offset(address).ok_or_else(|| cut("has an address outside the code"))?;
            let semaphore = match note.semaphore {
                0 => None,
                linked => {
                    let address = moved(linked);
                    let offset = segments.data_offset(address);
                    let offset = offset.ok_or_else(|| cut("has a semaphore outside the file's data"))?;
                    Some(Semaphore { address, offset })
                }
            };
            let Note { provider, name, arguments, .. } = note;
            markers.push(Marker { provider, name, address, offset, semaphore, arguments });
        }
    }
    Ok(markers)
}

#[derive(Debug, Clone, Copy)]
struct Words {
    endian: Endianness,
    wide: bool,
}

struct Note {
    address: u64,
    base: u64,
    semaphore: u64,
    provider: String,
    name: String,
    arguments: String,
}

impl Note {
    fn read(description: &[u8], words: Words) -> Option<Self> {
        let mut cursor = Cursor { bytes: description, offset: 0 };
        let address = cursor.word(words)?;
        let base = cursor.word(words)?;
        let semaphore = cursor.word(words)?;
        let (provider, name) = (cursor.text()?, cursor.text()?);
        // Without arguments the text is empty, and some assemblers leave its NUL out.
        let arguments = cursor.text().unwrap_or_default();
        Some(Self { address, base, semaphore, provider, name, arguments })
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.offset..self.offset.checked_add(count)?)?;
        self.offset += count;
        Some(taken)
    }

    fn u32(&mut self, endian: Endianness) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(match endian {
            Endianness::Little => u32::from_le_bytes(bytes),
            Endianness::Big => u32::from_be_bytes(bytes),
        })
    }

    fn word(&mut self, words: Words) -> Option<u64> {
        if !words.wide {
            return self.u32(words.endian).map(u64::from);
        }
        let bytes = self.take(8)?.try_into().ok()?;
        Some(match words.endian {
            Endianness::Little => u64::from_le_bytes(bytes),
            Endianness::Big => u64::from_be_bytes(bytes),
        })
    }

    fn text(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.offset..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.offset += length + 1;
        Some(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    /// A note: sizes of owner and descriptor, type, and both, each padded to four bytes (ELF specification,
    /// "Note Section").
    fn note(&mut self, endian: Endianness) -> Option<(&'a [u8], u32, &'a [u8])> {
        let owner = self.u32(endian)? as usize;
        let description = self.u32(endian)? as usize;
        let kind = self.u32(endian)?;
        let owner = self.padded(owner)?;
        Some((owner, kind, self.padded(description)?))
    }

    fn padded(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.take(count)?;
        // The last note's padding may be missing.
        self.offset = self.offset.checked_next_multiple_of(4)?;
        Some(taken)
    }
}
