//! `manuals OUTDIR`: writes the man pages and completions there. `cargo xtask docs` and `cargo xtask dist`
//! run it.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: manuals OUTDIR");
        return ExitCode::from(2);
    };
    match manuals::write(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manuals: cannot write below {}: {error}", Path::new(&dir).display());
            ExitCode::FAILURE
        }
    }
}
