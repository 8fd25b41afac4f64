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
//! The texts are part of the agent, so an error in one is a defect, which a test finds.

/// An event's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    /// `name`, which is that of the tracepoint too.
    pub(super) name: &'static str,
    /// Names of the tracepoint's arguments.
    pub(super) args: Vec<&'static str>,
    /// The other thread.
    pub(super) about: Option<Expr>,
    /// Named values, in order.
    pub(super) lets: Vec<(&'static str, Expr)>,
    /// Fields.
    pub(super) fields: Vec<(&'static str, Expr)>,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
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
pub(super) enum Expr {
    Number(i64),
    Name(&'static str),
    /// `.` (false) or `->` (true).
    Member(Box<Expr>, &'static str, bool),
    Index(Box<Expr>, u32),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Complement(Box<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `string(POINTER)` and other built-in functions.
    Call(&'static str, Vec<Expr>),
}

/// What is wrong with a description, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) what: String,
}

/// Reads the descriptions of a file.
pub(super) fn parse(text: &'static str) -> Result<Vec<Definition>, SyntaxError> {
    let mut definitions: Vec<Definition> = Vec::new();
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
            definition.about = Some(expression(text).map_err(error)?);
            continue;
        }
        let (is_let, content) = match content.strip_prefix("let ") {
            Some(rest) => (true, rest),
            None => (false, content),
        };
        let (name, text) =
            content.split_once(" = ").ok_or_else(|| error("expected NAME = EXPRESSION".to_owned()))?;
        let entry = (name.trim(), expression(text).map_err(error)?);
        if is_let { definition.lets.push(entry) } else { definition.fields.push(entry) }
    }
    Ok(definitions)
}

fn header(text: &'static str) -> Result<Definition, String> {
    let (name, rest) = text.split_once('(').ok_or("expected NAME(ARGUMENTS)")?;
    let args = rest.strip_suffix(')').ok_or("expected )")?;
    let args = args.split(',').map(str::trim).filter(|arg| !arg.is_empty()).collect();
    Ok(Definition { name, args, about: None, lets: Vec::new(), fields: Vec::new() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Number(i64),
    Name(&'static str),
    Sign(&'static str),
}

/// Longer signs first.
const SIGNS: [&str; 28] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", ".", ",", "?", ":", "!", "~",
    "*", "/", "%", "+", "-", "<", ">", "&", "^",
];

fn tokens(text: &'static str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            rest = behind;
            tokens.push(if first.is_ascii_digit() {
                Token::Number(number(word)?)
            } else {
                Token::Name(word)
            });
            continue;
        }
        let sign = SIGNS.iter().chain(&["|"]).find(|sign| rest.starts_with(**sign));
        let sign = sign.ok_or_else(|| format!("unexpected {first:?}"))?;
        tokens.push(Token::Sign(sign));
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

fn expression(text: &'static str) -> Result<Expr, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let expr = parser.choice()?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
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

impl Parser {
    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.peek() == SIGNS.iter().find(|known| **known == sign).map(|known| Token::Sign(known));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("expected {sign}, found {:?}", self.peek())) }
    }

    fn choice(&mut self) -> Result<Expr, String> {
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.choice()?;
        self.expect(":")?;
        Ok(Expr::Choice(condition.into(), yes.into(), self.choice()?.into()))
    }

    fn binary(&mut self, level: usize) -> Result<Expr, String> {
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

    fn unary(&mut self) -> Result<Expr, String> {
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

    fn primary(&mut self) -> Result<Expr, String> {
        if self.take("(") {
            let expr = self.choice()?;
            self.expect(")")?;
            return Ok(expr);
        }
        let token = self.peek().ok_or("an expression ends too early")?;
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
            Token::Name(name) => Ok(Expr::Name(name)),
            Token::Sign(sign) => Err(format!("unexpected {sign}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_bind_as_in_c() {
        let name = |name| Expr::Name(name).into();
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
    fn errors_say_where() {
        for (text, line) in
            [("  x = 1", 1), ("e(a)\n  x = (a", 2), ("e(a)\n  x = a a", 2), ("e", 1), ("e()\n x = $", 2)]
        {
            assert_eq!(parse(text).map_err(|error| error.line), Err(line), "{text}");
        }
    }
}
