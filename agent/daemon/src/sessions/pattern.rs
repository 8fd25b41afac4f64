//! Patterns of LTTng, compiled once for all names that they are compared with.

use std::collections::BTreeSet;

/// A pattern: `*` is anything, and a backslash takes the next character literally.
#[derive(Debug)]
pub(super) struct Pattern {
    /// What is between the stars, in order: one part more than there are stars. Only the first and the last
    /// one may be empty.
    parts: Vec<Vec<u8>>,
    /// Bytes of all parts: no shorter text matches.
    length: usize,
}

impl Pattern {
    /// Compiles a text. A backslash at the end stands for itself.
    pub(super) fn new(text: &str) -> Self {
        let mut parts = vec![Vec::new()];
        let mut bytes = text.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let literal = match byte {
                // Stars one after the other are one.
                b'*' if parts.len() > 1 && parts.last().is_some_and(Vec::is_empty) => continue,
                b'*' => {
                    parts.push(Vec::new());
                    continue;
                }
                b'\\' => bytes.next().unwrap_or(b'\\'),
                byte => byte,
            };
            if let Some(last) = parts.last_mut() {
                last.push(literal);
            }
        }
        let length = parts.iter().map(Vec::len).sum();
        Self { parts, length }
    }

    /// The only text that matches, if it has no star.
    fn literal(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether the whole of a text matches. Takes time proportional to the product of the lengths at most,
    /// and none for a pattern that is longer than the text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text = text.as_bytes();
        if text.len() < self.length {
            return false;
        }
        let [first, middle @ .., last] = self.parts.as_slice() else {
            return self.literal() == Some(text);
        };
        let Some(mut rest) =
            text.strip_prefix(first.as_slice()).and_then(|rest| rest.strip_suffix(last.as_slice()))
        else {
            return false;
        };
        // The first place for a part leaves most room to those after it.
        middle.iter().all(|part| {
            let found = rest.windows(part.len()).position(|window| window == part.as_slice());
            found.is_some_and(|at| {
                rest = &rest[at + part.len()..];
                true
            })
        })
    }
}

/// Several patterns, of which one suffices.
#[derive(Debug)]
pub(super) struct Patterns {
    /// Those without stars.
    literals: BTreeSet<Vec<u8>>,
    others: Vec<Pattern>,
}

impl Patterns {
    /// Compiles texts.
    pub(super) fn new(texts: &[String]) -> Self {
        let (mut literals, mut others) = (BTreeSet::new(), Vec::new());
        for pattern in texts.iter().map(|text| Pattern::new(text)) {
            match pattern.literal() {
                Some(literal) => drop(literals.insert(literal.to_owned())),
                None => others.push(pattern),
            }
        }
        Self { literals, others }
    }

    /// Whether one of them matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.literals.contains(text.as_bytes()) || self.others.iter().any(|pattern| pattern.matches(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_anything_and_all_else_is_literal() {
        for (pattern, text, is_match) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("*c", "cb", false),
            ("a*c", "ac", true),
            ("a*c", "abbc", true),
            // What one part takes is not there for the next.
            ("aba*ba", "aba", false),
            ("a*b*a", "aba", true),
            ("a*b*b*a", "aba", false),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "aab", false),
            ("a**c", "abc", true),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"\\", r"\", true),
            (r"a\", r"a\", true),
            (r"\?", "?", true),
            (r"\?", r"\x", false),
            ("a?c", "abc", false),
            ("a?c", "a?c", true),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
            ("*é", "é", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), is_match, "{pattern} {text}");
            let all = [pattern.to_owned(), "x*y*z".to_owned(), "never".to_owned()];
            assert_eq!(Patterns::new(&all).matches(text), is_match, "{pattern} {text} among others");
        }
        assert!(!Patterns::new(&[]).matches(""));
    }

    /// With brackets and question marks escaped, they mean what ftrace's patterns do.
    #[test]
    fn patterns_mean_what_glob_means() {
        let texts = ["", "a", "b", "ab", "ba", "aa", "aab", "aba", "abab", "bbaa", "a*b"];
        let symbols = ["a", "b", "*", r"\*"];
        let mut patterns = vec![String::new()];
        let mut longest = patterns.clone();
        for _ in 0..5 {
            let longer = longest.iter().flat_map(|of| symbols.map(|symbol| format!("{of}{symbol}")));
            longest = longer.collect();
            patterns.extend(longest.iter().cloned());
        }
        assert_eq!(patterns.len(), 1365);
        for (pattern, text) in patterns.iter().flat_map(|pattern| texts.map(|text| (pattern, text))) {
            let meant = stdx::input::glob::matches(pattern, text);
            assert_eq!(Pattern::new(pattern).matches(text), meant, "{pattern} {text}");
        }
    }
}
