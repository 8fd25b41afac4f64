//! The words of metadata (CTF 1.8.2, appendix C.1).

use super::error::Problem;
use crate::ctf::types::NAME_MAX;

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, or a word of the language.
    Word(String),
    /// A number; signs are signs.
    Number(u64),
    /// A literal text, without its quotes and escapes.
    Text(String),
    /// Anything else.
    Sign(&'static str),
    /// Nothing more comes.
    End,
}

impl Token {
    /// For messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", shortened(word)),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("{:?}", shortened(text)),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// The beginning of a text that may be of any length.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

/// The longer ones first.
const SIGNS: &[&str] =
    &["...", ":=", "->", "{", "}", "[", "]", "<", ">", "(", ")", ";", ":", ",", ".", "=", "*", "-", "+"];

/// Gives the words of a text one after the other.
#[derive(Debug)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next word, and how many bytes are before it.
    pub(super) fn token(&mut self) -> Result<(Token, usize), (Problem, usize)> {
        self.space()?;
        let start = self.at;
        let token = self.word().map_err(|problem| (problem, start))?;
        Ok((token, start))
    }

    /// Passes spaces and comments.
    fn space(&mut self) -> Result<(), (Problem, usize)> {
        loop {
            let rest = self.rest();
            let word = rest.trim_start();
            self.at += rest.len() - word.len();
            if word.starts_with("//") {
                self.at += word.find('\n').unwrap_or(word.len());
            } else if let Some(comment) = word.strip_prefix("/*") {
                let len = comment.find("*/").ok_or((Problem::Endless("comment"), self.at))?;
                self.at += len + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> Result<Token, Problem> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first == '"' || first == '\'' {
            return self.literal(first);
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if is_word(first) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let word = rest.get(..len).unwrap_or_default();
            if len > NAME_MAX {
                return Err(Problem::Long(NAME_MAX));
            }
            self.at += len;
            return if first.is_ascii_digit() {
                number(word).map(Token::Number).ok_or_else(|| Problem::Number(shortened(word)))
            } else {
                Ok(Token::Word(word.to_owned()))
            };
        }
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).ok_or(Problem::Character(first))?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    /// A text in quotes.
    fn literal(&mut self, quote: char) -> Result<Token, Problem> {
        let mut text = String::new();
        let rest = self.rest();
        let mut chars = rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + c.len_utf8();
                    return Ok(Token::Text(text));
                }
                '\\' => {
                    let (_, c) = chars.next().ok_or(Problem::Endless("literal"))?;
                    text.push(match c {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'a' => '\u{7}',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'v' => '\u{b}',
                        'x' => code(16, 2, None, &mut chars),
                        '0'..='7' => code(8, 2, c.to_digit(8), &mut chars),
                        '"' | '\'' | '\\' | '?' => c,
                        c => return Err(Problem::Escape(c)),
                    });
                }
                c => text.push(c),
            }
        }
        Err(Problem::Endless("literal"))
    }
}

type Chars<'t> = std::iter::Peekable<std::iter::Skip<std::str::CharIndices<'t>>>;

/// A character by up to so many digits of its number.
fn code(base: u32, most: usize, first: Option<u32>, chars: &mut Chars<'_>) -> char {
    let mut value = first.unwrap_or(0);
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|(_, c)| c.to_digit(base)) else { break };
        value = value * base + digit;
        chars.next();
    }
    char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A number of the language C: decimal, octal or hexadecimal, with a suffix of its size.
fn number(word: &str) -> Option<u64> {
    let (word, base) = match (word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")), word) {
        (Some(hex), _) => (hex, 16),
        (None, word) => match word.strip_prefix('0') {
            Some(octal) if octal.starts_with(|c: char| c.is_ascii_digit()) => (octal, 8),
            _ => (word, 10),
        },
    };
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    if word.len() - digits.len() > 3 || digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, base).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn words(text: &str) -> Result<Vec<Token>, (Problem, usize)> {
        let mut lexer = Lexer::new(text);
        let mut words = Vec::new();
        loop {
            match lexer.token()?.0 {
                Token::End => return Ok(words),
                word => words.push(word),
            }
        }
    }

    #[test]
    fn words_numbers_and_texts() {
        let text = "/* CTF 1.8 */ a_1:=-0x1fUL // rest\n 010 ... 9 \"b\\\"\\n\\x41\\101\\\\\";";
        assert_eq!(
            words(text).unwrap(),
            [
                Token::Word("a_1".to_owned()),
                Token::Sign(":="),
                Token::Sign("-"),
                Token::Number(31),
                Token::Number(8),
                Token::Sign("..."),
                Token::Number(9),
                Token::Text("b\"\nAA\\".to_owned()),
                Token::Sign(";"),
            ]
        );
        assert_eq!(words("18446744073709551615"), Ok(vec![Token::Number(u64::MAX)]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, problem, at) in [
            ("  /* no end", Problem::Endless("comment"), 2),
            ("a \"no end", Problem::Endless("literal"), 2),
            ("a \"no end\\", Problem::Endless("literal"), 2),
            ("\"\\q\"", Problem::Escape('q'), 0),
            ("x 99999999999999999999", Problem::Number("99999999999999999999".to_owned()), 2),
            ("12ab", Problem::Number("12ab".to_owned()), 0),
            ("0x", Problem::Number("0x".to_owned()), 0),
            ("a\u{e9}", Problem::Character('\u{e9}'), 1),
        ] {
            assert_eq!(words(text), Err((problem, at)), "{text}");
        }
    }
}
