//! The user's directory: the current session, and where traces and saved sessions are.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `$LTTNG_HOME`, or `$HOME` (lttng(1), "ENVIRONMENT").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(pub PathBuf);

impl Home {
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let of = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        of("LTTNG_HOME").or_else(|| of("HOME")).map(Self)
    }

    /// Where new sessions write, below a directory of their own.
    pub fn traces(&self) -> PathBuf {
        self.0.join("lttng-traces")
    }

    /// Where sessions are saved.
    pub fn saved(&self) -> PathBuf {
        self.0.join(".lttng/sessions")
    }

    /// The file that says which session is the current one.
    pub fn config(&self) -> PathBuf {
        self.0.join(".lttngrc")
    }

    /// The current session.
    pub fn current(&self) -> Option<String> {
        let text = fs::read_to_string(self.config()).ok()?;
        let name = text.lines().find_map(|line| line.trim().strip_prefix("session="))?.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Makes a session the current one. The file is complete at any moment.
    pub fn set_current(&self, session: &str) -> io::Result<()> {
        let new = self.0.join(format!(".lttngrc.{}", std::process::id()));
        let written = fs::write(&new, format!("session={session}\n"));
        let moved = written.and_then(|()| fs::rename(&new, self.config()));
        if moved.is_err() {
            // Nobody looks for it under this name.
            let _ = fs::remove_file(&new);
        }
        moved
    }

    /// Has no current session any more.
    pub fn forget_current(&self) -> io::Result<()> {
        match fs::remove_file(self.config()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A path from where the command was called.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_session_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home(dir.path().to_owned());
        assert_eq!(home.current(), None);
        home.set_current("one").unwrap();
        home.set_current("my session").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(".lttngrc")).unwrap(), "session=my session\n");
        assert_eq!(home.current().as_deref(), Some("my session"));
        home.forget_current().unwrap();
        home.forget_current().unwrap();
        assert_eq!(home.current(), None);
    }

    #[test]
    fn the_home_of_lttng_comes_first() {
        let of =
            |lttng: &'static str| Home::find(|name| Some(if name == "HOME" { "/h" } else { lttng }.into()));
        assert_eq!(of("/l").unwrap().traces(), Path::new("/l/lttng-traces"));
        assert_eq!(of("").unwrap().config(), Path::new("/h/.lttngrc"));
        assert_eq!(Home::find(|_| None), None);
    }
}
