//! What the workspace depends on: licences, duplicates, sources and how much of it there is.
//!
//! The rules are in .deny.toml, in the words of cargo-deny, which is run where it is installed. The checks
//! that need no database are also done by these few lines, so that CI has them on any machine, at once and
//! without a network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::{Result, process, workspace};

/// The most packages of others that Cargo.lock may hold. Some 110 of them are of the client of object stores:
/// HTTP/2, TLS, addresses in any script, and what other systems need for that. Another 25 are Arrow, Parquet
/// and SQLite, with their kinds of numbers.
const MOST_PACKAGES: usize = 380;

/// The most packages of others that the recorder with its default features may be built with.
const MOST_IN_DEFAULT_BUILD: usize = 109;

#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    registry: bool,
    local: bool,
}

/// Fails with everything that breaks a rule.
pub(super) fn check() -> Result {
    let rules = fs::read_to_string(workspace::root().join(".deny.toml"))?;
    let (allow, skip) = (list(&rules, "allow"), list(&rules, "skip"));
    let metadata = process::output(&mut process::cargo(["metadata", "--format-version=1", "--locked"]))?;
    let packages = packages(&serde_json::from_str(&metadata)?)?;
    let mut problems = problems(&packages, &allow, &skip);
    let tree =
        ["tree", "--locked", "--package=tracer-agent", "--edges=normal", "--prefix=none", "--format={p}"];
    let in_default = of_others(&process::output(&mut process::cargo(tree))?, &packages);
    if in_default > MOST_IN_DEFAULT_BUILD {
        let text = format!(
            "{in_default} packages in the default build of tracer-agent; {MOST_IN_DEFAULT_BUILD} are allowed: put \
             what needs them behind a feature"
        );
        problems.push(text);
    }
    if !problems.is_empty() {
        return Err(
            format!("dependencies break the rules of .deny.toml:\n  {}", problems.join("\n  ")).into()
        );
    }
    eprintln!(
        "{} packages, {in_default} of them in the default build: licences, duplicates and sources as .deny.toml \
         allows",
        packages.len()
    );
    if process::find("cargo-deny").is_some() {
        process::run(&mut process::cargo(["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
    }
    Ok(())
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    metadata["packages"]
        .as_array()
        .ok_or("cargo metadata has no packages")?
        .iter()
        .map(|package| {
            let source = package["source"].as_str();
            Ok(Package {
                name: text(&package["name"]).ok_or("a package without a name")?,
                version: text(&package["version"]).ok_or("a package without a version")?,
                license: text(&package["license"]),
                registry: source.is_some_and(|source| source.starts_with("registry+")),
                local: source.is_none(),
            })
        })
        .collect()
}

/// How many packages of others `cargo tree` lists, one a line as `NAME vVERSION ...`, some repeatedly.
fn of_others(tree: &str, packages: &[Package]) -> usize {
    let ours: BTreeSet<(&str, &str)> = packages
        .iter()
        .filter(|package| package.local)
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect();
    let listed: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.trim_start_matches('v')))
        })
        .collect();
    listed.difference(&ours).count()
}

fn problems(packages: &[Package], allow: &[&str], skip: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Package { name, version, license, registry, local } in packages {
        match license {
            None => problems.push(format!("{name} {version}: no licence")),
            Some(license) if !permits(license, allow) => {
                problems.push(format!("{name} {version}: licence {license}"));
            }
            Some(_) => {}
        }
        if !registry && !local {
            problems.push(format!("{name} {version}: not from a registry"));
        }
        let skipped = |entry: &&str| {
            *entry == name
                || entry.split_once('@').is_some_and(|(of, start)| of == name && version.starts_with(start))
        };
        if !skip.iter().any(skipped) {
            versions.entry(name).or_default().push(version);
        }
    }
    for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
        problems.push(format!("{name} is there {} times: {}", versions.len(), versions.join(", ")));
    }
    let of_others = packages.iter().filter(|package| !package.local).count();
    if of_others >= MOST_PACKAGES {
        problems.push(format!("{of_others} packages of others; fewer than {MOST_PACKAGES} are allowed"));
    }
    problems
}

/// The strings of `name = [...]` in a TOML file; comments end at the line's end.
fn list<'a>(toml: &'a str, name: &str) -> Vec<&'a str> {
    toml.lines()
        .skip_while(|line| line.split_once('=').is_none_or(|(key, _)| key.trim() != name))
        .scan(false, |ended, line| {
            let line = line.split('#').next().unwrap_or_default();
            let more = !*ended;
            *ended |= line.contains(']');
            more.then_some(line)
        })
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .collect()
}

/// True if a licence expression can be satisfied with the licences in `allow`.
fn permits(expression: &str, allow: &[&str]) -> bool {
    // `/` is how `OR` was written before there were expressions.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest, allow) && rest.is_empty()
}

fn either(words: &mut &[&str], allow: &[&str]) -> bool {
    let mut good = both(words, allow);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        good |= both(words, allow);
    }
    good
}

fn both(words: &mut &[&str], allow: &[&str]) -> bool {
    let mut good = single(words, allow);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        good &= single(words, allow);
    }
    good
}

fn single(words: &mut &[&str], allow: &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let good = either(words, allow);
            match *words {
                [")", rest @ ..] => {
                    *words = rest;
                    good
                }
                _ => false,
            }
        }
        [license, "WITH", exception, rest @ ..] => {
            *words = rest;
            allow.contains(&format!("{license} WITH {exception}").as_str())
        }
        [license, rest @ ..] => {
            *words = rest;
            allow.contains(license)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        let allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(permits(good, &allow), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH x", "", "(MIT", "MIT)", "MIT MIT"] {
            assert!(!permits(bad, &allow), "{bad}");
        }
    }

    #[test]
    fn lists_are_read_across_lines() {
        let toml =
            "[a]\nallow = [\n  \"MIT\", # \"not\" this\n  \"X\",\n]\nskip = [\"syn@2\"]\nother = [\"no\"]\n";
        assert_eq!(list(toml, "allow"), ["MIT", "X"]);
        assert_eq!(list(toml, "skip"), ["syn@2"]);
        assert!(list(toml, "none").is_empty());
    }

    #[test]
    fn packages_of_others_are_counted_once() {
        let package = |name: &str, local: bool| Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            license: None,
            registry: !local,
            local,
        };
        let packages = [package("ours", true), package("theirs", false)];
        let tree = "ours v0.1.0 (/w/ours)\ntheirs v0.1.0\nours v0.1.0 (/w/ours) (*)\n\n\
                    theirs v0.1.0 (*)\ntheirs v0.2.0\nours v0.2.0\n";
        assert_eq!(of_others(tree, &packages), 3);
    }

    #[test]
    fn duplicates_are_found_unless_skipped() {
        let package = |version: &str| Package {
            name: "syn".to_owned(),
            version: version.to_owned(),
            license: Some("MIT".to_owned()),
            registry: true,
            local: false,
        };
        let packages = [package("2.0.1"), package("3.0.9")];
        assert_eq!(problems(&packages, &["MIT"], &[]).len(), 1);
        assert!(problems(&packages, &["MIT"], &["syn@2"]).is_empty());
    }
}
