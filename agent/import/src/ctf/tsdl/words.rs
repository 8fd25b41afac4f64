//! The words that are next, and what is expected of them.

use super::error::Problem;
use super::lexer::{Lexer, Token};

/// What is wrong, and how many bytes are before it.
pub(super) type Wrong = (Problem, usize);

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Number(i128),
    Text(String),
    /// Words with dots between them.
    Name(String),
}

impl Word {
    /// For messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("{:?}", super::lexer::shortened(text)),
            Self::Name(name) => super::lexer::shortened(name),
        }
    }
}

/// A text, word by word, with a look at the next one.
#[derive(Debug)]
pub(super) struct Words<'t> {
    lexer: Lexer<'t>,
    next: (Token, usize),
}

impl<'t> Words<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self, Wrong> {
        let mut lexer = Lexer::new(text);
        let next = lexer.token()?;
        Ok(Self { lexer, next })
    }

    /// The next word.
    pub(super) fn peek(&self) -> &Token {
        &self.next.0
    }

    /// Where the next word is.
    pub(super) fn at(&self) -> usize {
        self.next.1
    }

    /// Takes the next word.
    pub(super) fn take(&mut self) -> Result<Token, Wrong> {
        let next = self.lexer.token()?;
        Ok(std::mem::replace(&mut self.next, next).0)
    }

    /// What is wrong with the next word.
    pub(super) fn wrong(&self, problem: Problem) -> Wrong {
        (problem, self.at())
    }

    fn expected(&self, wanted: &'static str) -> Wrong {
        self.wrong(Problem::Expected { wanted, found: self.peek().shown() })
    }

    /// Takes a sign if it is next.
    pub(super) fn take_sign(&mut self, sign: &str) -> Result<bool, Wrong> {
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        if is_next {
            self.take()?;
        }
        Ok(is_next)
    }

    /// Takes a sign, which must be next.
    pub(super) fn sign(&mut self, sign: &'static str) -> Result<(), Wrong> {
        if self.take_sign(sign)? { Ok(()) } else { Err(self.expected(sign)) }
    }

    /// Whether a word is next.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(next) if next == word)
    }

    /// Takes a word of the language if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, Wrong> {
        let is_next = self.is_word(word);
        if is_next {
            self.take()?;
        }
        Ok(is_next)
    }

    /// Takes a name, which must be next.
    pub(super) fn name(&mut self, wanted: &'static str) -> Result<String, Wrong> {
        match self.peek() {
            Token::Word(_) => match self.take()? {
                Token::Word(name) => Ok(name),
                _ => Err(self.expected(wanted)),
            },
            _ => Err(self.expected(wanted)),
        }
    }

    /// Takes names with dots between them.
    pub(super) fn dotted(&mut self, wanted: &'static str) -> Result<String, Wrong> {
        let mut names = self.name(wanted)?;
        while self.take_sign(".")? {
            names.push('.');
            names += &self.name(wanted)?;
        }
        Ok(names)
    }

    /// Takes a number with its sign.
    pub(super) fn number(&mut self, wanted: &'static str) -> Result<i128, Wrong> {
        let negative = self.take_sign("-")?;
        if !negative {
            self.take_sign("+")?;
        }
        let Token::Number(number) = *self.peek() else { return Err(self.expected(wanted)) };
        self.take()?;
        let number = i128::from(number);
        Ok(if negative { -number } else { number })
    }

    /// Takes a text in quotes.
    pub(super) fn text(&mut self, wanted: &'static str) -> Result<String, Wrong> {
        if !matches!(self.peek(), Token::Text(_)) {
            return Err(self.expected(wanted));
        }
        match self.take()? {
            Token::Text(text) => Ok(text),
            _ => Err(self.expected(wanted)),
        }
    }

    /// Takes a value of an attribute.
    pub(super) fn value(&mut self) -> Result<Word, Wrong> {
        match self.peek() {
            Token::Text(_) => Ok(Word::Text(self.text("a value")?)),
            Token::Word(_) => Ok(Word::Name(self.dotted("a value")?)),
            _ => Ok(Word::Number(self.number("a value")?)),
        }
    }
}
