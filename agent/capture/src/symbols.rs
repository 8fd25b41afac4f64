//! The kernel's symbols, read while recording: the kernel takes a while to print them, and a stop should not
//! wait for it.
//!
//! On a disk that is nearly full they are not stored: the data have priority. The kernel still has them when
//! the file is made.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    thread::JoinHandle,
};

use super::{Spool, spool::has_room_for};
use kernel::kallsyms::{self, Kallsyms};
use kernel::proc;
use stdx::output::{Directory, own_user};

/// Name of the file in the spool.
pub(super) const NAME: &str = "kallsyms";
/// The fastest level: symbols shrink to a quarter with it.
const LEVEL: i32 = 1;
/// About what the compressed symbols are part of the text: one in so many. For asking whether they have room.
const SHRINKS: u64 = 3;
/// The user that sees what the kernel shows to anybody.
const ROOT: u32 = 0;
/// The longest text that is read back: many times that of any kernel.
const TEXT_MAX: u64 = 256 << 20;

/// Reads the symbols in a thread of its own.
#[derive(Debug)]
pub(super) struct SymbolReader {
    thread: Option<JoinHandle<()>>,
    /// The spool that they are stored in.
    files: Directory,
    /// The stored symbols, opened when they are first asked for: the spool may go.
    stored: Option<io::Result<File>>,
}

impl SymbolReader {
    /// Starts reading into `spool`. A failure leaves no file, and then the trace file has no symbols.
    pub(super) fn start(spool: &Spool) -> Self {
        let files = spool.files().clone();
        let thread = std::thread::Builder::new().name("symbols".into()).spawn(move || {
            if let Some(symbols) = of_owner() {
                store(&files, &symbols.with_sentinel());
            }
        });
        Self { thread: thread.ok(), files: spool.files().clone(), stored: None }
    }

    /// Goes on with a spool that another process has stored them in.
    pub(super) fn stored_in(spool: &Spool) -> Self {
        Self { thread: None, files: spool.files().clone(), stored: None }
    }

    /// Puts the same symbols into another spool: what the first one has, or that the kernel has them.
    pub(super) fn put_into(&mut self, spool: &Spool) {
        self.join();
        let files = spool.files();
        let stored = self.stored.get_or_insert_with(|| self.files.open_file(NAME));
        let copied = stored.as_mut().is_ok_and(|stored| {
            let len = stored.metadata().map_or(0, |meta| meta.len());
            len != 0
                && has_room_for(files, len)
                && files
                    .write_whole(NAME, |to| {
                        stored.rewind()?;
                        io::copy(stored, to).map(drop)
                    })
                    .is_ok()
        });
        if !copied {
            // Without it the symbols are read again only if this process makes the file.
            let _ = files.write_whole(NAME, |_| Ok(()));
        }
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; the trace file then has no symbols.
            let _ = thread.join();
        }
    }
}

/// Waits until the file is there, or will not come: the spool must not be used up or removed before.
impl Drop for SymbolReader {
    fn drop(&mut self) {
        self.join();
    }
}

/// About what `text` takes compressed.
pub(super) fn compressed_len(text: &[u8]) -> u64 {
    text.len() as u64 / SHRINKS
}

/// Stores the symbols, or if the disk has no room to spare, that the kernel has them.
fn store(files: &Directory, text: &[u8]) {
    let stored = has_room_for(files, compressed_len(text)) && write(files, text).is_ok();
    if !stored {
        // Without it the symbols are read again only if this process makes the file.
        let _ = files.write_whole(NAME, |_| Ok(()));
    }
}

/// Stores symbols.
pub(super) fn write(files: &Directory, text: &[u8]) -> io::Result<()> {
    files.write_whole(NAME, |file| {
        let mut encoder = zstd::stream::write::Encoder::new(file, LEVEL)?;
        encoder.write_all(text)?;
        encoder.finish().map(drop)
    })
}

/// The symbols in the spool, or those of the running kernel if they were not stored; none if they could not
/// be had.
pub(super) fn load(spool: &Spool) -> Vec<u8> {
    if is_given_up(spool) { of_kernel() } else { stored(spool) }
}

fn stored(spool: &Spool) -> Vec<u8> {
    stored_in(spool.files()).unwrap_or_default()
}

fn stored_in(files: &Directory) -> io::Result<Vec<u8>> {
    let file = files.open_file(NAME)?;
    let mut text = Vec::new();
    // The length is not believed: memory grows with what comes out.
    zstd::stream::read::Decoder::new(file)?.single_frame().take(TEXT_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The symbols of a recording that goes on; `None` as long as they are not there.
pub(super) fn so_far(files: &Directory, boot_id: &str) -> Option<Vec<u8>> {
    match files.look(NAME.as_ref()) {
        Ok(None) => None,
        Ok(Some(there)) if there.st_size == 0 => Some(of_boot(boot_id)),
        // Without them, addresses are printed as numbers.
        _ => Some(stored_in(files).unwrap_or_default()),
    }
}

/// The kernel's symbols if it is still the same: addresses hold for one boot only.
fn of_boot(boot_id: &str) -> Vec<u8> {
    if proc::boot_id().is_ok_and(|now| now == boot_id) { of_kernel() } else { Vec::new() }
}

/// The kernel's symbols, unless the kernel hides them from the owner of the files: in a session daemon that
/// is a session's user, who has none of the daemon's capabilities.
fn of_owner() -> Option<Kallsyms> {
    let process = rustix::process::geteuid().as_raw();
    if !is_shown(own_user(), process, kallsyms::is_public) {
        return None;
    }
    // Of a process of the owner's, the kernel itself decides.
    Kallsyms::read().ok()
}

fn is_shown(owner: u32, process: u32, is_public: impl FnOnce() -> bool) -> bool {
    owner == ROOT || owner == process || is_public()
}

fn of_kernel() -> Vec<u8> {
    of_owner().map(Kallsyms::with_sentinel).unwrap_or_default()
}

/// Gives the space of symbols that were loaded back. That the file is empty says that the kernel had them.
pub(super) fn give_up(spool: &Spool) {
    // There may be no such file.
    if let Ok(file) = spool.files().open_for_writing(NAME) {
        // A failure shows when the space is needed.
        let _ = file.set_len(0);
    }
}

fn is_given_up(spool: &Spool) -> bool {
    spool.files().open_file(NAME).and_then(|file| file.metadata()).is_ok_and(|file| file.len() == 0)
}

/// The symbols for a recovery. Those that were given up are read again.
pub(super) fn load_again(spool: &Spool, boot_id: &str) -> Vec<u8> {
    if is_given_up(spool) { of_boot(boot_id) } else { stored(spool) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_owner_gets_what_anybody_sees() {
        for (owner, process, public, shown) in [
            (ROOT, ROOT, false, true),
            (1000, 1000, false, true),
            (1000, ROOT, false, false),
            (1000, ROOT, true, true),
            (1000, 998, false, false),
            (ROOT, 998, false, true),
        ] {
            assert_eq!(is_shown(owner, process, || public), shown, "{owner} {process} {public}");
        }
    }
}
