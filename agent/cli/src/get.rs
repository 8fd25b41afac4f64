//! `tracer-agent get`: recordings from an object store.

use std::path::PathBuf;

use clap::Args;

use super::{exit::ExitCode, new_files::NewFileArgs, remote::AccessArgs, tell, units};
use store::download::{Downloaded, download};

/// Download recordings from an object store
///
/// Each becomes a file with the last part of its name. It has that name when all of it is there and its
/// SHA-256 is the one that it was stored with, and begins as its name says; what was interrupted goes on
/// where it was. A trace that is a directory comes as a tar file.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// The objects, as `tracer-agent ls` prints them
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,

    /// The directory to write to
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = ".")]
    pub output: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub access: AccessArgs,
}

/// Runs the command.
pub(super) fn run(args: &GetArgs) -> u8 {
    let access = args.access.access();
    let mut code = ExitCode::Ok;
    for url in &args.urls {
        match download(url, &access, &args.output) {
            Ok(Downloaded { path, bytes, is_verified, .. }) => {
                let doubt = if is_verified { "" } else { "; the store has no checksum to compare it with" };
                tell(&format!("{}: {}{doubt}", path.display(), units::bytes(bytes)));
            }
            Err(error) => {
                tell(&format!("tracer-agent: {error}"));
                code = ExitCode::Failure;
            }
        }
    }
    code.code()
}
