//! Symbols that a distribution took out of a binary: a separate debug file, or a compressed table inside it.

use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};

use super::file::{Parsed, open_regular};

/// Where distributions install debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// What a `.gnu_debugdata` section may unpack to. Fedora's largest is below 10 MiB.
const MAX_UNPACKED: u64 = 256 << 20;

/// The dictionary that its decompression may take, in KiB. `xz -9` uses 64 MiB.
const MAX_DICTIONARY_KIB: u32 = 128 << 10;

/// The separate debug file of a binary, found as gdb finds it: by build id, then by the name and checksum of
/// `.gnu_debuglink` (gdb manual, "Debugging Information in Separate Files"). `root` is where the binary's own
/// file system begins.
pub(super) fn separate(path: &Path, root: &Path, file: &Parsed<'_>) -> Option<PathBuf> {
    by_build_id(root, file).or_else(|| by_link(path, root, file))
}

fn by_build_id(root: &Path, file: &Parsed<'_>) -> Option<PathBuf> {
    let id = hex(file.build_id().ok()??);
    let (first, rest) = id.split_at_checked(2)?;
    let found = below(root, Path::new(DEBUG_ROOT)).join(format!(".build-id/{first}/{rest}.debug"));
    found.is_file().then_some(found)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn by_link(path: &Path, root: &Path, file: &Parsed<'_>) -> Option<PathBuf> {
    let (name, checksum) = file.gnu_debuglink().ok()??;
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // A name, not a path: the file is untrusted and shall not choose a directory.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let canonical = path.canonicalize().ok()?;
    let dir = canonical.parent()?;
    let inside = dir.strip_prefix(root).unwrap_or(dir);
    let candidates = [dir.join(name), dir.join(".debug").join(name), {
        below(&below(root, Path::new(DEBUG_ROOT)), inside).join(name)
    }];
    candidates.into_iter().find(|candidate| {
        candidate.canonicalize().is_ok_and(|found| found != canonical)
            && checksum_of(candidate).is_ok_and(|found| found == checksum)
    })
}

/// `path` as seen from a root directory that is not necessarily this process's.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The CRC that `.gnu_debuglink` holds, which is zlib's.
fn checksum_of(path: &Path) -> io::Result<u32> {
    let Some(mut file) = open_regular(path)? else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(&buffer[..count]),
        }
    }
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
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_debug_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("x.debug");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(checksum_of(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(checksum_of(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        std::fs::write(dir.path().join("file"), "123456789").unwrap();
        // The check value of zlib's CRC.
        assert_eq!(checksum_of(&dir.path().join("file")).unwrap(), 0xcbf4_3926);
    }
}
