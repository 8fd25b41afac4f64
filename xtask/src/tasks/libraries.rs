//! The crates that others can use: each has to build from the files of its package alone.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::workspace::{root, target_dir};
use crate::{Result, process};

/// Packages the crates that may be published, and builds each from its package. Cargo makes a registry of the
/// packages for that, in which they find each other.
pub(super) fn check() -> Result {
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let names = publishable(&serde_json::from_str(&process::output(&mut process::cargo(metadata))?)?);
    forget_earlier(&names)?;
    // What is not committed yet is checked, too.
    let mut cargo = process::cargo(["package", "--quiet", "--offline", "--allow-dirty", "--target-dir"]);
    cargo.arg(built());
    // Nobody runs what is built here.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
    for name in &names {
        cargo.args(["--package", name]);
    }
    process::run(&mut cargo)?;
    let mut problems = Vec::new();
    for name in &names {
        problems.extend(missing_files(name)?);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Where the packages are made and built.
fn built() -> PathBuf {
    target_dir().join("libraries")
}

/// Removes what cargo has unpacked and built of earlier packages: it takes those of the same version for the
/// same. A registry of files has no host, which names of directories begin with.
fn forget_earlier(names: &[String]) -> Result {
    if built().exists() {
        fs::remove_dir_all(built())?;
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.ok_or("neither CARGO_HOME nor HOME is set")?.join("registry");
    for kind in ["src", "cache"] {
        let registries = fs::read_dir(registry.join(kind)).into_iter().flatten().flatten();
        for of_files in registries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"-")) {
            for name in names {
                let unpacked = of_files.path().join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
                let packed = unpacked.with_file_name(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
                if unpacked.is_dir() {
                    fs::remove_dir_all(unpacked)?;
                }
                if packed.is_file() {
                    fs::remove_file(packed)?;
                }
            }
        }
    }
    Ok(())
}

/// The names of the packages that their manifests allow to publish.
fn publishable(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["publish"].is_null())
        .filter_map(|package| package["name"].as_str().map(str::to_owned))
        .collect()
}

/// The texts that a package has to bring.
fn missing_files(name: &str) -> Result<Vec<String>> {
    let dir = built().join("package").join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
    let mut problems = Vec::new();
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if fs::read(dir.join(licence)).ok() != Some(fs::read(root().join(licence))?) {
            problems.push(format!("the package {name} has no {licence}, or another one than the workspace"));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_without_a_limit_are_published() {
        let metadata = serde_json::json!({"packages": [
            {"name": "library", "publish": null},
            {"name": "program", "publish": []},
        ]});
        assert_eq!(publishable(&metadata), ["library"]);
    }
}
