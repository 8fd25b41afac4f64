//! A terminal of tmux, with a shell in it.
#![expect(clippy::missing_panics_doc, reason = "every one of these fails a test by panicking")]

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::harness::{program, run, wait_for};

/// How many there were in this process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A terminal of 110 columns and 30 rows. It is gone when this is dropped.
#[derive(Debug)]
pub struct Terminal {
    name: String,
}

impl Terminal {
    /// Starts a shell in this directory, whose prompt is `$`.
    #[track_caller]
    pub fn start(dir: &Path) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Self { name: format!("tracer-agent-{}-{number}", std::process::id()) };
        let size = ["-x", "110", "-y", "30"];
        let dir = dir.to_str().unwrap_or_else(|| panic!("{} is no text", dir.display()));
        let shell = ["-c", dir, "env", "PS1=$ ", "sh"];
        terminal.tmux(&[&["-f", "/dev/null", "new-session", "-d"][..], &size, &shell].concat());
        terminal.wait_for(|lines| lines[0].starts_with('$'));
        terminal
    }

    /// Runs a command of tmux. Gives what it prints.
    pub fn tmux(&self, args: &[&str]) -> String {
        let mut command = program(Path::new("/"), "tmux", ["-L", &self.name]);
        run(command.args(args).env_remove("TMUX")).expect(0).out
    }

    /// Types keys.
    pub fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"][..], keys].concat());
    }

    /// The lines that are to be seen.
    pub fn lines(&self) -> Vec<String> {
        self.tmux(&["capture-pane", "-p"]).lines().map(str::to_owned).collect()
    }

    /// Waits until the lines that are to be seen are such. Gives them.
    #[track_caller]
    pub fn wait_for(&self, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut last = Vec::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("a text on the terminal", || {
                last = self.lines();
                holds(&last).then(|| last.clone())
            })
        }));
        seen.unwrap_or_else(|_| panic!("it is not there: {last:#?}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = program(Path::new("/"), "tmux", ["-L", &self.name, "kill-server"]);
        let _ = command.output();
    }
}
