//! The language that fast events are described in: an event, its tracepoint's arguments, and what each field of its record is
//! in terms of them, in C's expressions.
//!
//! ```text
//! sched_wakeup(p)
//!     about p->pid
//!     let cpu = p->thread_info.cpu
//!     comm = p->comm
//!     target_cpu = cpu
//! ```
//!
//! `about` names another thread that a process filter looks at; `let` names a value for the lines below. An event may be
//! described several times, for kernels that differ: the first description that fits is used.
//!
//! The texts are part of the agent, so an error in one is a defect, which a test finds. Expressions of probes come from users
//! (`probe::typed`).

/// An event's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::probe) struct Definition<'t> {
    /// `name`, which is that of the tracepoint too.
    pub(in crate::probe) name: &'t str,
    /// Names of the tracepoint's arguments.
    pub(in crate::probe) args: Vec<&'t str>,
    /// The other thread.
    pub(in crate::probe) about: Option<Expr<'t>>,
    /// Named values, in order.
    pub(in crate::probe) lets: Vec<(&'t str, Expr<'t>)>,
    /// Fields.
    pub(in crate::probe) fields: Vec<(&'t str, Expr<'t>)>,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::probe) enum Op {
    Mul,
    Div,
    Mod,
    Add,
    Sub,
    Lsh,
    Rsh,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Xor,
    Or,
    BothTrue,
    EitherTrue,
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::probe) enum Expr<'t> {
    Number(i64),
    Name(&'t str),
    /// `.` (false) or `->` (true).
    Member(Box<Expr<'t>>, &'t str, bool),
    Index(Box<Expr<'t>>, u32),
    Not(Box<Expr<'t>>),
    Negate(Box<Expr<'t>>),
    Complement(Box<Expr<'t>>),
    Binary(Op, Box<Expr<'t>>, Box<Expr<'t>>),
    Choice(Box<Expr<'t>>, Box<Expr<'t>>, Box<Expr<'t>>),
    /// `string(POINTER)` and other built-in functions.
    Call(&'t str, Vec<Expr<'t>>),
}

/// What is wrong with a description, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) what: String,
}

/// Reads the descriptions of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Definition<'_>>, SyntaxError> {
    let mut definitions: Vec<Definition<'_>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let error = |what: String| SyntaxError { line: number + 1, what };
        let content = line.split('#').next().unwrap_or_default().trim_end();
        if content.is_empty() {
            continue;
        }
        if !content.starts_with(' ') {
            definitions.push(header(content).map_err(error)?);
            continue;
        }
        let definition =
            definitions.last_mut().ok_or_else(|| error("a field without an event".to_owned()))?;
        let content = content.trim_start();
        if let Some(text) = content.strip_prefix("about ") {
            definition.about = Some(expression(text).map_err(|e| error(e.what))?);
            continue;
        }
        let (is_let, content) = match content.strip_prefix("let ") {
            Some(rest) => (true, rest),
            None => (false, content),
        };
        let (name, text) =
            content.split_once(" = ").ok_or_else(|| error("expected NAME = EXPRESSION".to_owned()))?;
        let entry = (name.trim(), expression(text).map_err(|e| error(e.what))?);
        if is_let { definition.lets.push(entry) } else { definition.fields.push(entry) }
    }
    Ok(definitions)
}

fn header(text: &str) -> Result<Definition<'_>, String> {
    let (name, rest) = text.split_once('(').ok_or("expected NAME(ARGUMENTS)")?;
    let args = rest.strip_suffix(')').ok_or("expected )")?;
    let args = args.split(',').map(str::trim).filter(|arg| !arg.is_empty()).collect();
    Ok(Definition { name, args, about: None, lets: Vec::new(), fields: Vec::new() })
}

/// What is wrong with an expression, and where, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::probe) struct ExprError {
    pub(in crate::probe) at: usize,
    pub(in crate::probe) what: String,
}

/// Tokens of an expression: more than anybody writes.
const TOKENS_MAX: usize = 256;
/// How deep parentheses, calls and choices are nested.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Number(i64),
    Name(&'t str),
    Sign(&'t str),
}

/// Longer signs first.
const SIGNS: [&str; 28] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", ".", ",", "?", ":", "!", "~",
    "*", "/", "%", "+", "-", "<", ">", "&", "^",
];

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Name(text) | Self::Sign(text) => out.write_str(text),
        }
    }
}

/// The tokens, each with its place.
fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, ExprError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = text.len() - rest.len();
        let error = |what: String| ExprError { at, what };
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if tokens.len() == TOKENS_MAX {
            return Err(error("it is too long".to_owned()));
        }
        let named = rest.strip_prefix('$').unwrap_or(rest);
        if named.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            let end = rest[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (word, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = behind;
            let token = if first.is_ascii_digit() {
                Token::Number(number(word).map_err(error)?)
            } else {
                Token::Name(word)
            };
            tokens.push((at, token));
            continue;
        }
        let sign = SIGNS.iter().chain(&["|"]).find(|sign| rest.starts_with(**sign));
        let sign = sign.ok_or_else(|| error(format!("unexpected {first:?}")))?;
        tokens.push((at, Token::Sign(sign)));
        rest = &rest[sign.len()..];
    }
}

fn number(word: &str) -> Result<i64, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map(u64::cast_signed),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("{word} is no number"))
}

/// Reads an expression.
pub(in crate::probe) fn expression(text: &str) -> Result<Expr<'_>, ExprError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let result = parser.choice().and_then(|expr| match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(format!("unexpected {token}")),
    });
    let at = parser.tokens.get(parser.at).map_or(text.len(), |(at, _)| *at);
    result.map_err(|what| ExprError { at, what })
}

struct Parser<'t> {
    tokens: Vec<(usize, Token<'t>)>,
    at: usize,
    depth: usize,
}

/// Binary operators by how tightly they bind, the loosest first, as in C.
const LEVELS: [&[(&str, Op)]; 10] = [
    &[("||", Op::EitherTrue)],
    &[("&&", Op::BothTrue)],
    &[("|", Op::Or)],
    &[("^", Op::Xor)],
    &[("&", Op::And)],
    &[("==", Op::Equal), ("!=", Op::NotEqual)],
    &[("<", Op::Less), ("<=", Op::LessEqual), (">", Op::Greater), (">=", Op::GreaterEqual)],
    &[("<<", Op::Lsh), (">>", Op::Rsh)],
    &[("+", Op::Add), ("-", Op::Sub)],
    &[("*", Op::Mul), ("/", Op::Div), ("%", Op::Mod)],
];

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).map(|(_, token)| *token)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.peek() == SIGNS.iter().find(|known| **known == sign).map(|known| Token::Sign(known));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("expected {sign}")) }
    }

    fn choice(&mut self) -> Result<Expr<'t>, String> {
        if self.depth == DEPTH_MAX {
            return Err("it is nested too deep".to_owned());
        }
        self.depth += 1;
        let choice = self.whole_choice()?;
        self.depth -= 1;
        Ok(choice)
    }

    fn whole_choice(&mut self) -> Result<Expr<'t>, String> {
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.choice()?;
        self.expect(":")?;
        Ok(Expr::Choice(condition.into(), yes.into(), self.choice()?.into()))
    }

    fn binary(&mut self, level: usize) -> Result<Expr<'t>, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(Token::Sign(sign)) = self.peek()
            && let Some((_, op)) = operators.iter().find(|(text, _)| *text == sign)
        {
            self.at += 1;
            left = Expr::Binary(*op, left.into(), self.binary(level + 1)?.into());
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr<'t>, String> {
        if self.take("!") {
            return Ok(Expr::Not(self.unary()?.into()));
        }
        if self.take("-") {
            return Ok(Expr::Negate(self.unary()?.into()));
        }
        if self.take("~") {
            return Ok(Expr::Complement(self.unary()?.into()));
        }
        let mut expr = self.primary()?;
        loop {
            let arrow = self.peek() == Some(Token::Sign("->"));
            if arrow || self.peek() == Some(Token::Sign(".")) {
                self.at += 1;
                let Some(Token::Name(name)) = self.peek() else { return Err("expected a member".to_owned()) };
                self.at += 1;
                expr = Expr::Member(expr.into(), name, arrow);
            } else if self.take("[") {
                let Some(Token::Number(index)) = self.peek() else {
                    return Err("expected a constant index".to_owned());
                };
                self.at += 1;
                self.expect("]")?;
                expr = Expr::Index(expr.into(), u32::try_from(index).map_err(|_| "a bad index")?);
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr<'t>, String> {
        if self.take("(") {
            let expr = self.choice()?;
            self.expect(")")?;
            return Ok(expr);
        }
        let token = self.peek().ok_or("the expression ends too early")?;
        if let Token::Sign(sign) = token {
            return Err(format!("unexpected {sign}"));
        }
        self.at += 1;
        match token {
            Token::Number(value) => Ok(Expr::Number(value)),
            Token::Name(name) if self.take("(") => {
                let mut args = Vec::new();
                while !self.take(")") {
                    if !args.is_empty() {
                        self.expect(",")?;
                    }
                    args.push(self.choice()?);
                }
                Ok(Expr::Call(name, args))
            }
            Token::Name(text) | Token::Sign(text) => Ok(Expr::Name(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_bind_as_in_c() {
        let name = |name: &'static str| Expr::Name(name).into();
        assert_eq!(
            expression("a | b & 3 << 1 ? !c->d.e : 0x10"),
            Ok(Expr::Choice(
                Expr::Binary(
                    Op::Or,
                    name("a"),
                    Expr::Binary(
                        Op::And,
                        name("b"),
                        Expr::Binary(Op::Lsh, Expr::Number(3).into(), Expr::Number(1).into()).into()
                    )
                    .into()
                )
                .into(),
                Expr::Not(Expr::Member(Expr::Member(name("c"), "d", true).into(), "e", false).into()).into(),
                Expr::Number(16).into(),
            ))
        );
        assert_eq!(
            expression("f(a, 1)[2]"),
            Ok(Expr::Index(Expr::Call("f", vec![Expr::Name("a"), Expr::Number(1)]).into(), 2))
        );
    }

    #[test]
    fn a_description_has_its_parts() {
        let text =
            "# a comment\nwake(p, flags)\n    about p->pid\n    let a = flags   # why\n    x = a\n\nfree()\n";
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.len(), 2);
        assert_eq!((parsed[0].name, parsed[0].args.as_slice()), ("wake", ["p", "flags"].as_slice()));
        assert_eq!(parsed[0].about, Some(Expr::Member(Expr::Name("p").into(), "pid", true)));
        assert_eq!(parsed[0].lets, [("a", Expr::Name("flags"))]);
        assert_eq!(parsed[0].fields, [("x", Expr::Name("a"))]);
        assert!(parsed[1].args.is_empty());
    }

    #[test]
    fn errors_in_expressions_have_their_place() {
        for (text, at) in
            [("a+", 2), ("a + )", 4), ("f(a", 3), ("a b", 2), ("a->", 3), ("a#", 1), ("x[y]", 2), ("1z", 0)]
        {
            assert_eq!(expression(text).map_err(|error| error.at), Err(at), "{text}");
        }
        assert!(expression(&"(".repeat(TOKENS_MAX + 1)).is_err());
        assert!(expression(&"(".repeat(TOKENS_MAX - 1)).is_err());
        let nested = |depth| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(expression(&nested(DEPTH_MAX - 1)), Ok(Expr::Name("a")));
        assert_eq!(expression(&nested(DEPTH_MAX)).map_err(|error| error.at), Err(DEPTH_MAX));
        assert_eq!(expression("$retval"), Ok(Expr::Name("$retval")));
    }

    #[test]
    fn errors_say_where() {
        for (text, line) in
            [("  x = 1", 1), ("e(a)\n  x = (a", 2), ("e(a)\n  x = a a", 2), ("e", 1), ("e()\n x = $", 2)]
        {
            assert_eq!(parse(text).map_err(|error| error.line), Err(line), "{text}");
        }
    }
}
