//! `cargo xtask crates`: the picture of the crates in `docs/crates.svg`, and their sizes.

mod layout;
mod picture;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Task, no_arguments};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "crates",
    args: "",
    about: "Draws docs/crates.svg, the picture of the crates, and prints the lines of each crate\n\
            `cargo xtask check` fails if the file in the repository is not the one that this task draws.",
    run: |args| {
        no_arguments(args)?;
        let crates = Crates::read()?;
        fs::write(picture_path(), crates.picture())?;
        print!("{}", crates.sizes()?);
        println!("{}", picture_path().display());
        Ok(())
    },
};

/// A library that nearly every crate uses: its arrows would hide the others.
const EVERYWHERE: &str = "tracer-agent-stdx";

/// The crates that stand for the running kernel, and so does whatever depends on one of them.
const KERNEL: [&str; 2] = ["agent-ebpf", "kernel"];

/// Prints the sizes of the crates, and fails if their picture is out of date.
pub(super) fn check() -> Result {
    let crates = Crates::read()?;
    eprint!("{}", crates.sizes()?);
    if fs::read_to_string(picture_path()).is_ok_and(|drawn| drawn == crates.picture()) {
        return Ok(());
    }
    Err("docs/crates.svg does not show the dependencies of the crates: run `cargo xtask crates`".into())
}

fn picture_path() -> PathBuf {
    workspace::root().join("docs/crates.svg")
}

/// The crates of the product: those in `agent` and the eBPF programs, without tools and tests.
struct Crates(BTreeMap<String, Crate>);

struct Crate {
    /// Its folder.
    folder: PathBuf,
    /// The crates of ours that it is built with, without those for its build script and its tests.
    dependencies: BTreeSet<String>,
    /// Whether only a feature of another crate adds it.
    is_optional: bool,
    /// Whether it is a package for others.
    is_library: bool,
}

impl Crates {
    fn read() -> Result<Self> {
        let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
        let metadata = process::output(&mut process::cargo(metadata))?;
        Self::of(&serde_json::from_str(&metadata)?, workspace::root())
    }

    fn of(metadata: &Value, root: &Path) -> Result<Self> {
        let mut crates = BTreeMap::new();
        let mut optional = BTreeSet::new();
        for package in list(&metadata["packages"]) {
            let name = package["name"].as_str().ok_or("a package without a name")?;
            let manifest = package["manifest_path"].as_str().ok_or("a package without a manifest")?;
            let folder = Path::new(manifest).parent().ok_or("a manifest without a folder")?;
            let below = folder.strip_prefix(root).unwrap_or(folder);
            if !below.starts_with("agent") && below != Path::new("agent-ebpf") {
                continue;
            }
            let mut dependencies = BTreeSet::new();
            for dependency in list(&package["dependencies"]).filter(|it| it["kind"].is_null()) {
                let name = dependency["name"].as_str().ok_or("a dependency without a name")?;
                dependencies.insert(name.to_owned());
                if dependency["optional"] == true {
                    optional.insert(name.to_owned());
                }
            }
            let is_library = package["readme"].is_string();
            let folder = folder.to_owned();
            let entry = Crate { folder, dependencies, is_optional: false, is_library };
            crates.insert(name.to_owned(), entry);
        }
        let ours: BTreeSet<String> = crates.keys().cloned().collect();
        for (name, entry) in &mut crates {
            entry.dependencies.retain(|other| ours.contains(other));
            entry.is_optional = optional.contains(name);
        }
        Ok(Self(crates))
    }

    /// The SVG file.
    fn picture(&self) -> String {
        let drawn = |name: &&String| name.as_str() != EVERYWHERE;
        let is_used = |name: &&String| self.0.values().any(|entry| entry.dependencies.contains(*name));
        // Crates without arrows run while others are built or packed.
        let is_tool = |name: &&String| !is_used(name) && self.0[*name].dependencies.is_empty();
        let names: Vec<&str> =
            self.0.keys().filter(drawn).filter(|name| !is_tool(name)).map(String::as_str).collect();
        let reachable: BTreeMap<&str, BTreeSet<&str>> =
            names.iter().map(|name| (*name, self.reachable(name))).collect();
        let number: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
        let mut arrows = Vec::new();
        for name in &names {
            let direct = &self.0[*name].dependencies;
            for to in direct.iter().filter(drawn) {
                // A crate that is not always there does not bring one that is.
                let brings = |by: &&String| by != &to && (!self.0[*by].is_optional || self.0[to].is_optional);
                let is_implied =
                    direct.iter().filter(brings).any(|by| self.reachable(by).contains(to.as_str()));
                if !is_implied {
                    arrows.push((number[name], number[to.as_str()]));
                }
            }
        }
        let boxes: Vec<picture::Box<'_>> = names
            .iter()
            .map(|name| picture::Box {
                name,
                needs_kernel: KERNEL.iter().any(|kernel| name == kernel || reachable[name].contains(kernel)),
                is_optional: self.0[*name].is_optional,
                is_library: self.0[*name].is_library,
            })
            .collect();
        picture::draw(&boxes, &arrows)
    }

    /// All crates of ours that a crate is built with.
    fn reachable<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut open = vec![name];
        while let Some(name) = open.pop() {
            let dependencies = self.0.get(name).into_iter().flat_map(|entry| &entry.dependencies);
            open.extend(dependencies.map(String::as_str).filter(|name| found.insert(*name)));
        }
        found
    }

    /// A line for each crate: the lines of its sources, with comments and unit tests.
    fn sizes(&self) -> Result<String> {
        let mut sizes = Vec::new();
        for (name, entry) in &self.0 {
            sizes.push((lines(&entry.folder.join("src"))?, name));
        }
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let total: usize = sizes.iter().map(|(lines, _)| lines).sum();
        let rows = sizes.iter().map(|(lines, name)| format!("{lines:>8}  {name}\n"));
        Ok(rows.chain([format!("{total:>8}  lines in {} crates\n", sizes.len())]).collect())
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The lines of all Rust sources below a folder.
fn lines(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            count += lines(&path)?;
        } else if path.extension() == Some(OsStr::new("rs")) {
            count += fs::read_to_string(&path)?.lines().count();
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Crates {
        let package = |name: &str, dependencies: Value| {
            let manifest_path = format!("/w/agent/{name}/Cargo.toml");
            serde_json::json!({"name": name, "manifest_path": manifest_path, "dependencies": dependencies})
        };
        let metadata = serde_json::json!({"packages": [
            package("top", serde_json::json!([
                {"name": "middle", "kind": null},
                {"name": "kernel", "kind": null, "optional": true},
                {"name": "serde", "kind": null},
            ])),
            package("middle", serde_json::json!([
                {"name": "kernel", "kind": null},
                {"name": "helper", "kind": "dev"},
            ])),
            package("kernel", serde_json::json!([])),
            package("helper", serde_json::json!([])),
            {"name": "xtask", "manifest_path": "/w/xtask/Cargo.toml", "dependencies": []},
        ]});
        Crates::of(&metadata, Path::new("/w")).expect("well-formed")
    }

    #[test]
    fn tools_foreign_crates_and_dev_dependencies_are_left_out() {
        let Crates(crates) = crates();
        assert_eq!(crates.keys().collect::<Vec<_>>(), ["helper", "kernel", "middle", "top"]);
        assert!(crates["top"].dependencies.iter().eq(["kernel", "middle"]));
        assert!(crates["middle"].dependencies.iter().eq(["kernel"]));
        assert!(crates["kernel"].is_optional && !crates["middle"].is_optional);
    }

    #[test]
    fn implied_arrows_and_tools_are_not_drawn() {
        let picture = crates().picture();
        assert_eq!(picture.matches("<rect class=\"crate").count(), 3);
        assert_eq!(picture.matches("marker-end").count(), 2);
    }
}
