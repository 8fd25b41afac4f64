//! The width of comments, which rustfmt leaves alone unless it is a nightly one.

use std::fs;
use std::path::Path;

use crate::{Result, workspace};

/// `max_width` of .rustfmt.toml.
const WIDTH: usize = 110;

/// Fails with every line of a comment that is too wide. Tables and what is fenced off may be: they cannot be
/// broken.
pub(super) fn check() -> Result {
    let mut wide = Vec::new();
    look_into(workspace::root(), &mut wide)?;
    if wide.is_empty() {
        return Ok(());
    }
    Err(format!("comments are wider than {WIDTH} columns:\n  {}", wide.join("\n  ")).into())
}

fn look_into(dir: &Path, wide: &mut Vec<String>) -> Result {
    for entry in fs::read_dir(dir)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if path.is_dir() && !is_hidden && name != "target" {
            look_into(&path, wide)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            wide.extend(too_wide(&text).map(|line| format!("{}:{line}", path.display())));
        }
    }
    Ok(())
}

/// The numbers of the lines, from 1 on.
fn too_wide(text: &str) -> impl Iterator<Item = usize> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let comment = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim_start();
        fenced ^= comment.starts_with("```");
        let is_wide = !fenced && !comment.starts_with('|') && line.chars().count() > WIDTH;
        is_wide.then_some(index + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_broken_is_too_wide() {
        let long = "x ".repeat(60);
        let text = format!(
            "// {long}\n/// | {long}\n//! ```text\n//! {long}\n//! ```\nlet a = \"{long}\";\n//! {long}"
        );
        assert_eq!(too_wide(&text).collect::<Vec<_>>(), [1, 7]);
    }
}
