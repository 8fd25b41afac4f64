//! Names of functions: demangled, without their parameters, and those that may have been meant by another.

use std::fmt::{self, Write as _};

use stdx::input::nearest;

/// `ns::function(int, char)` without its parameters. A name such as `operator()(int)` keeps its own
/// parentheses.
pub(super) fn without_parameters(name: &str) -> &str {
    let name = name.strip_suffix(" const").unwrap_or(name);
    if !name.ends_with(')') {
        return name;
    }
    let mut depth = 0_u32;
    for (index, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' if depth == 1 => return &name[..index],
            b'(' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    name
}

/// The longest name that is demangled. Names refer to their own parts, so that some hundred bytes can stand
/// for gigabytes.
const DEMANGLED_MAX: usize = 8 << 10;

/// A text that takes no more than [`DEMANGLED_MAX`].
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > DEMANGLED_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// The name that a Rust or C++ compiler made a symbol of. `None` if it is none of these, or too long.
pub(super) fn demangle(name: &str) -> Option<String> {
    let mut demangled = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // The alternate form leaves the hash out.
        write!(demangled, "{rust:#}").ok()?;
    } else if name.starts_with("_Z") {
        let symbol = cpp_demangle::Symbol::new(name).ok()?;
        symbol.structured_demangle(&mut demangled, &cpp_demangle::DemangleOptions::default()).ok()?;
    } else {
        return None;
    }
    Some(demangled.0)
}

/// At most five of `names` that are most like `wanted`, best first.
pub fn nearest_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(usize, &str)> =
        names.filter_map(|name| Some((nearest::score(wanted, name)?, name))).collect();
    scored.sort_unstable();
    scored.dedup();
    let best = scored.first().map_or(0, |(best, _)| *best);
    scored
        .into_iter()
        .take_while(|(score, _)| *score <= best + 2)
        .take(5)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn names_that_stand_for_much_more_than_they_are_stay_as_they_are() {
        assert_eq!(demangle("_ZN5space3fooEibc").unwrap(), "space::foo(int, bool, char)");
        assert_eq!(demangle("main"), None);
        // Pairs of pairs: each doubles what the one before stands for, which is the second part since then.
        let mut name = "_Z1f1AIiiE".to_owned();
        for round in 0..18 {
            let last = char::from_digit(2 * round, 36).unwrap().to_ascii_uppercase();
            name += &format!("1AIS{last}_S{last}_E");
        }
        assert_eq!(demangle(&name), None, "{name}");
    }
}
