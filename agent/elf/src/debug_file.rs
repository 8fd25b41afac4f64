//! Symbols that a distribution took out of a binary: a separate debug file, or a compressed table inside it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use object::{Object as _, ObjectSection as _};

use super::OpenBinary;
use super::file::Parsed;
use super::open::Found;

/// Where distributions install debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The largest debug file whose checksum is computed, which takes a second; those of browsers have a build
/// id.
const CHECKED_MAX: u64 = 2 << 30;

/// What a `.gnu_debugdata` section may unpack to. Fedora's largest is below 10 MiB.
const MAX_UNPACKED: u64 = 256 << 20;

/// The dictionary that its decompression may take, in KiB. `xz -9` uses 64 MiB.
const MAX_DICTIONARY_KIB: u32 = 128 << 10;

/// The separate debug file of a binary, found as gdb finds it: by build id, then by the name and checksum of
/// `.gnu_debuglink` (gdb manual, "Debugging Information in Separate Files").
pub(super) fn separate(binary: &OpenBinary, file: &Parsed<'_>) -> Option<Found> {
    by_build_id(binary, file).or_else(|| by_link(binary, file))
}

fn by_build_id(binary: &OpenBinary, file: &Parsed<'_>) -> Option<Found> {
    let id = hex(file.build_id().ok()??);
    let (first, rest) = id.split_at_checked(2)?;
    binary.root().open_regular(&Path::new(DEBUG_ROOT).join(format!(".build-id/{first}/{rest}.debug")))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn by_link(binary: &OpenBinary, file: &Parsed<'_>) -> Option<Found> {
    let (name, checksum) = file.gnu_debuglink().ok()??;
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // A name, not a path: the file is untrusted and shall not choose a directory.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let dir = binary.dir_inside()?;
    let installed = Path::new(DEBUG_ROOT).join(dir.strip_prefix("/").unwrap_or(&dir));
    let candidates = [dir.join(name), dir.join(".debug").join(name), installed.join(name)];
    candidates.iter().find_map(|candidate| {
        let mut found = binary.root().open_regular(candidate)?;
        let is_other = found.identity != binary.identity();
        let is_it = is_other && checksum_of(&mut found.file, CHECKED_MAX).ok()? == Some(checksum);
        is_it.then_some(found)
    })
}

/// The CRC that `.gnu_debuglink` holds, which is zlib's; `None` of a file with more than `max` bytes, which
/// may be sparse. The file is at its beginning before and after.
fn checksum_of(file: &mut File, max: u64) -> io::Result<Option<u32>> {
    if file.metadata()?.len() > max {
        return Ok(None);
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    // It may grow meanwhile.
    let mut rest = (&mut *file).take(max);
    loop {
        match rest.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    file.rewind()?;
    Ok(Some(hasher.finalize()))
}

/// The ELF file inside `.gnu_debugdata` (gdb manual, "MiniDebugInfo"): the functions that `.dynsym` has not.
/// None when there is no such section, or nothing sensible in it.
pub(super) fn mini(file: &Parsed<'_>) -> Option<Vec<u8>> {
    let section = file.section_by_name(".gnu_debugdata")?;
    let packed = section.data().ok()?;
    let mut unpacked = Vec::new();
    let reader = lzma_rust2::XzReader::new_mem_limit(packed, false, MAX_DICTIONARY_KIB);
    reader.take(MAX_UNPACKED).read_to_end(&mut unpacked).ok()?;
    Some(unpacked)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn checksums_are_those_of_zlib() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"123456789").unwrap();
        file.rewind().unwrap();
        // The check value of zlib's CRC, twice: the file is at its beginning again.
        let found = [(); 2].map(|()| checksum_of(&mut file, 9).unwrap());
        assert_eq!(found, [Some(0xcbf4_3926); 2]);
        assert_eq!(checksum_of(&mut file, 8).unwrap(), None);
        file.set_len(1 << 42).unwrap();
        assert_eq!(checksum_of(&mut file, CHECKED_MAX).unwrap(), None);
    }
}
