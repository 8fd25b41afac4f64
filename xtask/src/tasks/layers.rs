//! Which modules of the agent may use which: the floors that docs/design.md states.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, workspace};

/// Where the floors are stated: the first block after this heading.
const HEADING: &str = "### Floors";

/// The modules of each floor, the highest first. Those that know each other are one group.
#[derive(Debug, PartialEq, Eq)]
struct Floors(Vec<Vec<Vec<String>>>);

/// Fails with every use of a module that is not below its user.
pub(super) fn check() -> Result {
    let root = workspace::root();
    let floors = Floors::parse(&fs::read_to_string(root.join("docs/design.md"))?)?;
    let source = root.join("agent/src");
    let mut problems = floors.unlike(&modules(&source)?);
    for path in sources(&source)? {
        let inside = path.strip_prefix(&source)?;
        let text = fs::read_to_string(&path)?;
        let found = floors.violations(&module_path(inside), &text);
        problems.extend(
            found.into_iter().map(|(line, what)| format!("agent/src/{}:{line}: {what}", inside.display())),
        );
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("modules do not keep to the floors of docs/design.md:\n  {}", problems.join("\n  ")).into())
}

impl Floors {
    fn parse(document: &str) -> Result<Self> {
        let block = document.split(HEADING).nth(1).and_then(|rest| rest.split("```").nth(1));
        let block = block.ok_or_else(|| format!("docs/design.md has no block under {HEADING:?}"))?;
        let group = |text: &str| text.split('+').map(|name| name.trim().to_owned()).collect();
        // The first line has the language of the block.
        let floors = block.lines().skip(1).filter(|line| !line.trim().is_empty());
        Ok(Self(floors.map(|line| line.split(',').map(group).collect()).collect()))
    }

    /// Modules that are on no floor, and names on floors that are no modules.
    fn unlike(&self, modules: &[String]) -> Vec<String> {
        let named: Vec<&String> = self.0.iter().flatten().flatten().collect();
        let homeless = modules.iter().filter(|module| !named.contains(module));
        let gone = named.iter().filter(|name| !modules.contains(name));
        homeless
            .map(|module| format!("{module} is on no floor"))
            .chain(gone.map(|name| format!("{name} is on a floor, and no module")))
            .collect()
    }

    /// The floor and the group of a module, counted from the top.
    fn find(&self, module: &str) -> Option<(usize, usize)> {
        self.0.iter().enumerate().find_map(|(floor, groups)| {
            let is_in = |group: &Vec<String>| group.iter().any(|name| name == module);
            groups.iter().position(is_in).map(|group| (floor, group))
        })
    }

    fn may_use(&self, user: &str, used: &str) -> bool {
        match (self.find(user), self.find(used)) {
            (Some(user), Some(used)) => used.0 > user.0 || used == user,
            // Not a module of a floor: the crate's root, or what `unlike` tells.
            _ => true,
        }
    }

    /// The lines of a module's text that use what is not below it.
    fn violations(&self, module: &[String], text: &str) -> Vec<(usize, String)> {
        let Some(user) = module.first() else { return Vec::new() };
        let upwards = uses(module.len(), text).into_iter().filter(|(_, used)| !self.may_use(user, used));
        upwards.map(|(line, used)| (line, format!("{user} uses {used}, which is not below it"))).collect()
    }
}

/// The top modules that a text names by paths from the crate's root, with the numbers of the lines.
/// `depth` is how many `super` lead to the root. What is only for tests may look everywhere.
fn uses(depth: usize, text: &str) -> Vec<(usize, String)> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let plain: String =
        text.lines().flat_map(|line| [line.split("//").next().unwrap_or_default(), "\n"]).collect();
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for start in ["crate::", to_root.as_str()] {
        for (at, _) in plain.match_indices(start) {
            let before = plain[..at].trim_end_matches("self::");
            if before.ends_with(|last: char| last.is_alphanumeric() || matches!(last, '_' | ':')) {
                continue;
            }
            let line = plain[..at].matches('\n').count() + 1;
            found.extend(heads(&plain[at + start.len()..]).into_iter().map(|name| (line, name)));
        }
    }
    found
}

/// The first names of a path, or of the paths of a group in braces.
fn heads(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|next| next.is_alphanumeric() || *next == '_').collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut start, mut names) = (0_usize, 0, Vec::new());
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' | b',' if depth == 0 => {
                names.push(word(&group[start..at]));
                start = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// The modules in the crate's root, without the root itself.
fn modules(source: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(source)? {
        let path = entry?.path();
        let is_module = path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()).filter(|_| is_module)
            && !matches!(name, "lib" | "main")
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The sources below a directory, without those that are only tests.
fn sources(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            found.extend(sources(&path)?);
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The path of the module that a file is, from the crate's root.
fn module_path(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !matches!(name.as_str(), "mod" | "lib" | "main")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str =
        "# X\n```text\nother\n```\n### Floors\n\n```text\ncli\nreport, bpf\nevent + tracedat\n```\n";

    fn found(module: &str, text: &str) -> Vec<(usize, String)> {
        Floors::parse(DOCUMENT).unwrap().violations(&module_path(module.as_ref()), text)
    }

    #[test]
    fn the_sources_keep_to_the_floors() {
        check().unwrap();
    }

    #[test]
    fn uses_go_down() {
        for (module, text) in [
            ("cli/hist.rs", "use crate::report::TraceFile;\nuse crate::{bpf, event::{Format, Printer}};"),
            ("event/table.rs", "use crate::tracedat::Endian;\n// crate::cli is above"),
            ("tracedat/check/data.rs", "use super::super::reader;\nlet x = crate::event::Format;"),
            ("report/mod.rs", "use xcrate::cli;\n#[cfg(test)]\nmod tests {\n    use crate::cli;"),
            ("lib.rs", "pub use crate::cli::run;"),
        ] {
            assert_eq!(found(module, text), [], "{module}");
        }
        let upwards = |user: &str, used: &str| format!("{user} uses {used}, which is not below it");
        assert_eq!(found("event/table.rs", "\nuse crate::cli;"), [(2, upwards("event", "cli"))]);
        assert_eq!(
            found("bpf/load.rs", "use crate::{\n    event::{a, b},\n    report,\n    cli::{self},\n};"),
            [(1, upwards("bpf", "report")), (1, upwards("bpf", "cli"))]
        );
        assert_eq!(
            found("tracedat/reader/mod.rs", "super::super::report::x()"),
            [(1, upwards("tracedat", "report"))]
        );
        assert_eq!(found("event/mod.rs", "use super::bpf;"), [(1, upwards("event", "bpf"))]);
    }

    #[test]
    fn every_module_is_on_a_floor() {
        let floors = Floors::parse(DOCUMENT).unwrap();
        let modules = ["cli", "report", "event", "tracedat", "new"].map(str::to_owned);
        assert_eq!(floors.unlike(&modules), ["new is on no floor", "bpf is on a floor, and no module"]);
        assert!(Floors::parse("# X").is_err());
    }
}
