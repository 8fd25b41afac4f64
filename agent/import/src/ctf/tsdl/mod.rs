//! TSDL, the language of metadata (CTF 1.8.2, section 7 and appendix C).
//!
//! | module | what |
//! |---|---|
//! | `lexer` | words |
//! | `words` | the words that are next, and what is expected of them |
//! | `scopes` | names of types, and where they are known |
//! | `declaration` | types and fields |
//! | `attributes` | the values of types: sizes, byte orders, encodings |
//! | `blocks` | the blocks `trace`, `env`, `clock`, `stream`, `event` |
//! | `error` | what is wrong, and where |
//!
//! A text is read once, from its beginning to its end. What it costs in memory is a small multiple of the
//! text: types are shared, and nothing is expanded.

mod attributes;
mod blocks;
mod declaration;
mod error;
mod lexer;
mod scopes;
#[cfg(test)]
mod tests;
mod words;

pub use error::{Problem, TsdlError};

use super::schema::Trace;

/// Reads metadata.
///
/// # Errors
/// What is not understood, with its line.
pub(crate) fn parse(text: &str) -> Result<Trace, TsdlError> {
    blocks::parse(text).map_err(|(problem, at)| {
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        TsdlError { at, line, problem }
    })
}
