//! The crates that others can use: each has to build from the files of its package alone.

use std::fs;

use serde_json::Value;

use crate::workspace::{root, target_dir};
use crate::{Result, process};

/// Packages the crates that may be published, and builds each from its package. Cargo makes a registry of the
/// packages for that, in which they find each other.
pub(super) fn check() -> Result {
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let names = publishable(&serde_json::from_str(&process::output(&mut process::cargo(metadata))?)?);
    // What is not committed yet is checked, too.
    let mut cargo = process::cargo(["package", "--quiet", "--offline", "--allow-dirty"]);
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
    let dir = target_dir().join("package").join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
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
