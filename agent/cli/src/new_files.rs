//! The option about the files that a command creates.

use clap::Args;

use stdx::output::FileMode;

/// Who may read what a command writes.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct NewFileArgs {
    /// Mode of new files, less the umask: a group reads files of mode 0640. Users that may read the files may
    /// also list their directories [default: 0600]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<FileMode>,
}

impl NewFileArgs {
    /// Gives the mode to all files that this process creates from now on.
    pub(super) fn apply(self) {
        self.mode.unwrap_or(FileMode::PRIVATE).set();
    }
}
