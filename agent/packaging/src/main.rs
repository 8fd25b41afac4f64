//! `packaging BINARY OUTDIR`: packages of a static binary. `cargo xtask dist` runs it.
//!
//! `SOURCE_DATE_EPOCH` is the time of everything in them.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use packaging::{Effort, Error, Release, deb, image, rpm};

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let time = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|time| time.parse().ok());
    let ([binary, dir], Some(time)) = (args.as_slice(), time) else {
        eprintln!("usage: SOURCE_DATE_EPOCH=SECONDS packaging BINARY OUTDIR");
        return ExitCode::from(2);
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    match make(&Release { binary: binary.clone(), version, time, effort: Effort::Best }, dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("packaging: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(release: &Release, dir: &Path) -> Result<(), Error> {
    println!("{}", deb::make(release, dir)?.display());
    println!("{}", rpm::make(release, dir)?.display());
    let certificates = Path::new(image::CERTIFICATES);
    let there = certificates.is_file();
    if !there {
        eprintln!("the image has no certificates: {} is not there (ca-certificates)", certificates.display());
    }
    println!("{}", image::make(release, there.then_some(certificates), dir)?.archive.display());
    println!("{}", packaging::manifest(release, dir)?.display());
    Ok(())
}
