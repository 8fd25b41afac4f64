//! What is to be known of what a session records.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::sessions::Whose;

/// How many notes are kept of a session. Of more, the oldest ones are not told any more.
const NOTES_MAX: usize = 64;
/// The longest note.
const LENGTH_MAX: usize = 1024;

/// Notes about the recording of a session: the newest ones, each once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RecordingNotes(VecDeque<String>);

impl RecordingNotes {
    /// All of them, in the order in which they came.
    pub(super) fn all(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }

    /// Adds notes; those of a new recording take the place of all that were there. Gives those that are new.
    pub(super) fn add(&mut self, notes: Vec<String>, of: Whose) -> Vec<String> {
        let before = match of {
            Whose::Recording => std::mem::take(&mut self.0),
            Whose::Addition => VecDeque::new(),
        };
        let mut new = Vec::new();
        for mut note in notes {
            note.truncate(note.floor_char_boundary(LENGTH_MAX));
            if self.0.contains(&note) {
                continue;
            }
            if self.0.len() >= NOTES_MAX {
                self.0.pop_front();
            }
            self.0.push_back(note.clone());
            if !before.contains(&note) {
                new.push(note);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(notes: &[&str]) -> Vec<String> {
        notes.iter().map(|note| (*note).to_owned()).collect()
    }

    #[test]
    fn each_note_is_told_once() {
        let mut notes = RecordingNotes::default();
        assert_eq!(notes.add(texts(&["a", "b", "a"]), Whose::Recording), ["a", "b"]);
        assert_eq!(notes.add(texts(&["b", "c"]), Whose::Addition), ["c"]);
        assert_eq!(notes.all(), ["a", "b", "c"]);
        // The same session, recorded anew.
        assert_eq!(notes.add(texts(&["b", "d"]), Whose::Recording), ["d"]);
        assert_eq!(notes.all(), ["b", "d"]);
    }

    #[test]
    fn they_take_so_much_memory_at_most() {
        let mut notes = RecordingNotes::default();
        let many = (0..1000).map(|number| format!("{number}{}", "\u{e9}".repeat(2000))).collect();
        notes.add(many, Whose::Recording);
        let all = notes.all();
        assert_eq!(all.len(), NOTES_MAX);
        assert!(all.iter().all(|note| note.len() <= LENGTH_MAX) && all[0].starts_with("936"));
    }
}
