//! What the kernel complains about while a test runs.

use std::{
    fs::File,
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
};

/// The end of the kernel's log at some moment.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
}

impl KernelLog {
    /// Reads from now on.
    pub fn from_now() -> Self {
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .expect("the kernel log can be read");
        file.seek(SeekFrom::End(0)).expect("the kernel log has an end");
        Self { file }
    }

    /// The lines since then that report a defect of the kernel or provoked one.
    pub fn complaints(mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return found,
                Ok(len) => {
                    let line = String::from_utf8_lossy(&record[..len]).into_owned();
                    let signs =
                        ["WARNING", "BUG", "cut here", "Call Trace", "stall", "lockdep", "Oops", "hung task"];
                    if signs.iter().any(|sign| line.contains(sign)) {
                        found.push(line);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return found,
                // Old records were overwritten meanwhile: the next read goes on with the oldest one that is
                // left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) => panic!("the kernel log: {error}"),
            }
        }
    }
}
