//! Numbers in place of names, in the text of a format.
//!
//! The kernel does this itself for enumerators that its source names in TRACE_DEFINE_ENUM
//! (kernel/trace/trace_events.c, trace_event_update_all); many are forgotten, and then no reader of a file
//! can know them. A recorder has the kernel's BTF.

use std::borrow::Cow;

use super::ctype;
use super::token::{Token, TokenKind, tokens};
use crate::symbols::Names;

/// The format text with the value of each name in its `print fmt` that `names` knows. All else stays as it
/// is, to the byte.
pub fn resolve_names<'t>(text: &'t str, names: &dyn Names) -> Cow<'t, str> {
    const START: &str = "print fmt:";
    let Some(start) = text.find(START).map(|at| at + START.len()) else { return Cow::Borrowed(text) };
    let print_fmt = &text[start..];
    // Statement expressions have variables of their own, whose names could be anything.
    if print_fmt.contains("({") {
        return Cow::Borrowed(text);
    }
    // The size of a long decides nothing about where words are.
    let Ok(tokens) = tokens(print_fmt, 8) else { return Cow::Borrowed(text) };
    let mut resolved = String::new();
    let mut done = 0;
    for (index, token) in tokens.iter().enumerate() {
        let TokenKind::Name(name) = token.kind else { continue };
        if !stands_for_a_value(&tokens, index, name) {
            continue;
        }
        let Some(value) = names.value(name) else { continue };
        resolved.push_str(&text[done..start + token.at]);
        if value < 0 {
            resolved.push_str(&format!("({value})"));
        } else {
            resolved.push_str(&value.to_string());
        }
        done = start + token.at + name.len();
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    resolved.push_str(&text[done..]);
    Cow::Owned(resolved)
}

/// Whether a name is one that C would look up as a constant: no member, field, function or type.
fn stands_for_a_value(tokens: &[Token<'_>], index: usize, name: &str) -> bool {
    let before = |distance: usize| index.checked_sub(distance).map(|at| &tokens[at].kind);
    if name == "REC" || name == "NULL" || ctype::starts_type(name) {
        return false;
    }
    let is_type = match before(1) {
        Some(TokenKind::Punct("->" | ".") | TokenKind::Name(_)) => return false,
        // `(name *)`
        Some(TokenKind::Punct("(")) => {
            matches!(tokens[index + 1].kind, TokenKind::Punct("*"))
                && matches!(tokens.get(index + 2).map(|token| &token.kind), Some(TokenKind::Punct(")" | "*")))
        }
        _ => false,
    };
    let takes_a_field = matches!(before(1), Some(TokenKind::Punct("(")))
        && matches!(before(2), Some(TokenKind::Name(function))
            if function.starts_with("__get_") || *function == "__print_dynamic_array" || *function == "sizeof");
    // The last token is the end, so that there is a next one.
    let is_called = matches!(tokens[index + 1].kind, TokenKind::Punct("("));
    !is_type && !takes_a_field && !is_called
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Cow<'_, str> {
        let names = |name: &str| match name {
            "ONE" => Some(1),
            "MINUS" => Some(-2),
            // Names of fields, functions and types that are enumerators somewhere else.
            "name" | "type" | "call" | "some_type" | "d" => Some(99),
            _ => None,
        };
        resolve_names(text, &names)
    }

    #[test]
    fn constants_become_numbers() {
        assert_eq!(
            resolve(
                "name: x\nprint fmt: \"ONE %s\", __print_symbolic(REC->type, { ONE, \"ONE\" }, {MINUS, \"-\"})\n"
            ),
            "name: x\nprint fmt: \"ONE %s\", __print_symbolic(REC->type, { 1, \"ONE\" }, {(-2), \"-\"})\n"
        );
        assert_eq!(resolve("print fmt: \"%d\", (REC->q) & ONE"), "print fmt: \"%d\", (REC->q) & 1");
    }

    #[test]
    fn all_else_stays() {
        for text in [
            "",
            "name: ONE\nfield:ONE",
            "print fmt: \"%s %d\", __get_str(name), REC->type",
            "print fmt: \"%d\", call(3)",
            "print fmt: \"%d\", *(some_type *)REC->x",
            "print fmt: \"%d\", sizeof(struct name)",
            "print fmt: \"%d\", ({ int ONE = 3; ONE; })",
            "print fmt: \"%d, ONE",
        ] {
            assert!(matches!(resolve(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
