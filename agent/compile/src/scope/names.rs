//! Patterns of names as an automaton (`agent_ebpf::tracking`).

use agent_ebpf::{COMM_LEN, tracking::STATES};

use super::ScopeError;
use stdx::input::glob;
use stdx::input::glob::Element;

/// A part of the automaton, with as many states as a word has bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// States at the beginning.
    pub(super) begin: u64,
    /// States that stay whatever comes.
    pub(super) stay: u64,
    /// States at the end of a pattern.
    pub(super) end: u64,
    /// For each byte, states that go on to the next one.
    pub(super) go_on: [u64; 256],
    used: u32,
}

/// The automaton of all patterns.
pub(crate) fn automaton(patterns: &[String]) -> Result<Vec<Part>, ScopeError> {
    let mut parts: Vec<Part> = Vec::new();
    for pattern in patterns {
        let elements = glob::elements(&glob::bytes(pattern));
        let characters = elements.iter().filter(|element| **element != Element::Star).count();
        if characters >= COMM_LEN {
            return Err(ScopeError::LongName(pattern.clone()));
        }
        // One more than the characters.
        let states = characters as u32 + 1;
        let free = parts.iter().position(|part| part.used + states <= STATES);
        let part = free.unwrap_or_else(|| {
            parts.push(Part { begin: 0, stay: 0, end: 0, go_on: [0; 256], used: 0 });
            parts.len() - 1
        });
        if let Some(part) = parts.get_mut(part) {
            part.add(&elements);
        }
    }
    Ok(parts)
}

impl Part {
    fn add(&mut self, elements: &[Element]) {
        let mut state = 1_u64 << self.used;
        self.begin |= state;
        self.used += 1;
        for element in elements {
            match element {
                Element::Star => self.stay |= state,
                Element::One(ranges) => {
                    for &(first, last) in ranges {
                        for byte in first..=last {
                            self.go_on[usize::from(byte)] |= state;
                        }
                    }
                    state <<= 1;
                    self.used += 1;
                }
            }
        }
        self.end |= state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `accepts` of the programs.
    fn accepts(parts: &[Part], name: &[u8]) -> bool {
        parts.iter().any(|part| {
            let mut states = part.begin;
            for byte in name.iter().copied().take_while(|byte| *byte != 0) {
                states = (states & part.go_on[usize::from(byte)]) << 1 | states & part.stay;
            }
            states & part.end != 0
        })
    }

    #[test]
    fn names_that_no_thread_has_are_errors() {
        let of = |pattern: &str| automaton(&[pattern.to_owned()]);
        assert!(of("fifteen-letters").is_ok() && of("*fifteen*letters*").is_ok());
        assert!(matches!(of("sixteen--letters"), Err(ScopeError::LongName(_))));
        assert!(matches!(of("????????????????*"), Err(ScopeError::LongName(_))));
    }

    #[test]
    fn an_empty_pattern_is_the_empty_name() {
        let parts = automaton(&[String::new()]).unwrap();
        assert!(accepts(&parts, b"") && !accepts(&parts, b"a"));
        assert!(automaton(&[]).unwrap().is_empty());
    }

    /// All texts of these characters, of so many at most.
    fn texts(characters: &str, longest: usize) -> Vec<String> {
        let mut found = vec![String::new()];
        let mut from = 0;
        for _ in 0..longest {
            let to = found.len();
            for place in from..to {
                found.extend(
                    characters.chars().map(|next| format!("{}{next}", found[place])).collect::<Vec<_>>(),
                );
            }
            from = to;
        }
        found
    }

    #[test]
    fn patterns_have_any_bytes() {
        let parts = automaton(&[r"caf\xe9*".to_owned(), r"[\xe0-\xe8]\x2a".to_owned()]).unwrap();
        for (name, expected) in [
            (&b"caf\xe9 2"[..], true),
            (br"caf\xe9", false),
            (b"\xe8*", true),
            (b"\xe8a", false),
            (b"\xe9*", false),
        ] {
            assert_eq!(accepts(&parts, name), expected, "{name:?}");
        }
        // Each byte counts once.
        assert!(automaton(&[r"fifteen-letter\xff".to_owned()]).is_ok());
    }

    #[test]
    fn an_automaton_accepts_what_one_of_its_patterns_describes() {
        let names = texts("ab", 5);
        let mut patterns = texts("ab*?", 4);
        patterns.extend(["[a-z]b", "[!a]*", "\\*", "a[b", "*[ab][ab]*", "*a*b*a*"].map(str::to_owned));
        for patterns in patterns.chunks(1).chain(patterns.chunks(17)) {
            let parts = automaton(patterns).unwrap();
            for name in &names {
                let expected = patterns.iter().any(|pattern| glob::matches(pattern, name));
                assert_eq!(accepts(&parts, name.as_bytes()), expected, "{patterns:?} {name}");
            }
        }
    }
}
