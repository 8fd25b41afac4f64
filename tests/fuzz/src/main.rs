//! Fuzz targets for everything that reads bytes of somebody else, in one program: `FUZZ_TARGET` says which
//! one it is.
//!
//! Run by `cargo xtask fuzz`, which knows the same names. A panic, an endless loop or too much memory is a
//! finding. With `FUZZ_SEEDS=DIRECTORY` it writes the committed corpus instead.

#![no_main]

mod ctf;
mod piped;
mod seeds;
mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use targets::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(
    init: {
        if let Some(directory) = std::env::var_os("FUZZ_SEEDS") {
            if let Err(error) = seeds::write(directory.as_ref()) {
                eprintln!("the corpus cannot be written: {error}");
                std::process::exit(1);
            }
            std::process::exit(0);
        }
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let target = targets::ALL.iter().find(|(known, _)| *known == name);
        let Some((_, target)) = target else {
            let known: Vec<_> = targets::ALL.iter().map(|(name, _)| *name).collect();
            eprintln!("FUZZ_TARGET={name}: it must be one of {}", known.join(" "));
            std::process::exit(2);
        };
        TARGET.get_or_init(|| *target);
    },
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            target(data);
        }
    }
);
