//! Names of frames.

use std::borrow::Cow;

/// What a frame without a name is called.
const NO_NAME: &str = "?";

/// A name as all forms have it. Whoever ran a thread or a program has chosen it, and neither a line, nor a
/// frame, nor what shows it may be at its mercy:
///
/// - control characters, of which a line feed ends a line and most are no part of XML (XML 1.0, 2.2),
///   characters that change the direction of text, and those that Unicode has for no use, become `?`;
/// - `;`, which ends a frame, becomes `:`;
/// - blanks at the ends, where readers remove them, those before a number at the end, which would pass for a
///   weight, and one behind a `#` at the beginning, which would make a comment of a line, become `_`.
///
/// `is_word` is for names without blanks: those of threads, as in folded stacks of other tools.
pub(super) fn clean(name: &str, is_word: bool) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed(NO_NAME);
    }
    if name.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b';') {
        return Cow::Borrowed(name);
    }
    let mut clean: String =
        name.chars().map(|c| if is_word && c == ' ' { '_' } else { visible(c) }).collect();
    let inner = clean.trim_matches(char::is_whitespace);
    if inner.len() != clean.len() {
        let start = clean.len() - clean.trim_start().len();
        let end = clean.trim_end().len().max(start);
        clean =
            clean.char_indices().map(|(at, c)| if (start..end).contains(&at) { c } else { '_' }).collect();
    }
    if clean.starts_with("# ") {
        clean.replace_range(1..2, "_");
    }
    if let Some((at, blank)) = clean.char_indices().rfind(|(_, c)| c.is_whitespace()) {
        let behind = at + blank.len_utf8();
        if clean[behind..].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            clean.replace_range(at..behind, "_");
        }
    }
    Cow::Owned(clean)
}

/// A line of text for people, such as a title.
pub(super) fn line(text: &str) -> String {
    text.chars().map(|c| if c == ';' { c } else { visible(c) }).collect()
}

fn visible(c: char) -> char {
    match c {
        ';' => ':',
        // Bidirectional formatting (Unicode Standard Annex 9, 2.1 to 2.6), lines and paragraphs, and no
        // characters.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        '\u{fdd0}'..='\u{fdef}' => '?',
        c if c.is_control() || c as u32 & 0xfffe == 0xfffe => '?',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_neither_frames_nor_lines() {
        for (name, expected) in [
            ("main", "main"),
            ("", "?"),
            ("a;b\nc\r\td", "a:b?c??d"),
            ("\x1b[2J\u{9b}", "?[2J?"),
            ("\u{202e}cod.exe\u{feff}", "?cod.exe\u{feff}"),
            ("a\u{fffe}\u{1ffff}\u{2028}b\0", "a???b?"),
            ("f(int, char) const", "f(int, char) const"),
            ("f 5", "f_5"),
            ("f 1 2 3.5", "f 1 2_3.5"),
            ("f 1 x 2", "f 1 x_2"),
            (" f ", "_f_"),
            ("\u{a0}\u{3000}", "__"),
            ("f\u{a0}5", "f_5"),
            ("# comment", "#_comment"),
            ("größe ×2", "größe ×2"),
        ] {
            assert_eq!(clean(name, false), expected, "{name:?}");
        }
        assert_eq!(clean("Web Content 1;", true), "Web_Content_1:");
        assert_eq!(line("a;b\x07: 5 s"), "a;b?: 5 s");
    }
}
