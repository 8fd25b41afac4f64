//! The language that fast events are described in: an event, its tracepoint's arguments, and what each field
//! of its record is in terms of them, in C's expressions.
//!
//! ```text
//! sched_wakeup(p)
//!     about p->pid
//!     let cpu = p->thread_info.cpu
//!     comm = p->comm
//!     target_cpu = cpu
//!
//! def letter(flags, name) = flags & 1 << enum(req_flag_bits, name)
//!         ? 'F' : 0
//! ```
//!
//! `about` names another thread that a process filter looks at, and `switches to` one that gets the CPU;
//! `let` names a value for the lines below. An event may be described several times, for kernels that differ:
//! the first description that fits is used. `needs` has an expression without a use: the description fits
//! only where its members exist. `def` gives an expression with parameters a name, for all events of the file
//! below it. A line with a deeper indentation than that of fields goes on with the line before it.
//!
//! The texts are part of the agent, so an error in one is a defect, which a test finds. Expressions of probes
//! come from users (`compile::typed`).

/// An event's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition<'t> {
    /// Events that are alike, by their names, which are those of their tracepoints too.
    pub(crate) names: Vec<&'t str>,
    /// Names of the tracepoint's arguments.
    pub(crate) args: Vec<&'t str>,
    /// The other thread.
    pub(crate) about: Option<Expr<'t>>,
    /// Whether the CPU goes from the current thread to the other one.
    pub(crate) is_switch: bool,
    /// What must exist.
    pub(crate) needs: Vec<Expr<'t>>,
    /// Named values, in order.
    pub(crate) lets: Vec<(&'t str, Expr<'t>)>,
    /// Fields.
    pub(crate) fields: Vec<(&'t str, Expr<'t>)>,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
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
pub(crate) enum Expr<'t> {
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

/// An expression with parameters, which is put in where its name is called.
struct Macro<'t> {
    name: &'t str,
    params: Vec<&'t str>,
    body: Expr<'t>,
}

/// A line with its continuations.
struct Line<'t> {
    number: usize,
    indented: bool,
    parts: Vec<&'t str>,
}

/// The indentation from which on a line goes on with the one before it.
const CONTINUED: usize = 8;

fn lines(text: &str) -> Result<Vec<Line<'_>>, SyntaxError> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let content = line.split('#').next().unwrap_or_default().trim_end();
        let part = content.trim_start();
        match content.len() - part.len() {
            _ if part.is_empty() => {}
            CONTINUED.. => match lines.last_mut() {
                Some(last) => last.parts.push(part),
                None => return Err(SyntaxError { line: number, what: "nothing to go on with".to_owned() }),
            },
            indentation => lines.push(Line { number, indented: indentation != 0, parts: vec![part] }),
        }
    }
    Ok(lines)
}

/// Reads the descriptions of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Definition<'_>>, SyntaxError> {
    let mut definitions: Vec<Definition<'_>> = Vec::new();
    let mut macros: Vec<Macro<'_>> = Vec::new();
    for Line { number, indented, mut parts } in lines(text)? {
        let error = |what: String| SyntaxError { line: number, what };
        let first = parts[0];
        if !indented {
            match first.strip_prefix("def ") {
                None => definitions.push(header(first).map_err(error)?),
                Some(rest) => {
                    let (head, body) = named(rest).map_err(error)?;
                    let Definition { names, args: params, .. } = header(head).map_err(error)?;
                    parts[0] = body;
                    let body = joined(&parts, &macros).map_err(|e| error(e.what))?;
                    macros.push(Macro { name: names[0], params, body });
                }
            }
            continue;
        }
        let definition =
            definitions.last_mut().ok_or_else(|| error("a field without an event".to_owned()))?;
        let mut rest = |text| {
            parts[0] = text;
            joined(&parts, &macros).map_err(|e| error(e.what))
        };
        if let Some(text) = first.strip_prefix("about ") {
            definition.about = Some(rest(text)?);
        } else if let Some(text) = first.strip_prefix("switches to ") {
            definition.about = Some(rest(text)?);
            definition.is_switch = true;
        } else if let Some(text) = first.strip_prefix("needs ") {
            let needed = rest(text)?;
            definition.needs.push(needed);
        } else if let Some(text) = first.strip_prefix("let ") {
            let (name, text) = named(text).map_err(error)?;
            definition.lets.push((name, rest(text)?));
        } else {
            let (name, text) = named(first).map_err(error)?;
            definition.fields.push((name, rest(text)?));
        }
    }
    Ok(definitions)
}

/// `NAME = TEXT`.
fn named(text: &str) -> Result<(&str, &str), String> {
    let (name, text) = text.split_once(" =").ok_or("expected NAME = EXPRESSION")?;
    Ok((name.trim(), text.trim_start()))
}

fn header(text: &str) -> Result<Definition<'_>, String> {
    let (names, rest) = text.split_once('(').ok_or("expected NAME(ARGUMENTS)")?;
    let args = rest.strip_suffix(')').ok_or("expected )")?;
    let args = args.split(',').map(str::trim).filter(|arg| !arg.is_empty()).collect();
    let names = names.split(',').map(str::trim).collect();
    let (needs, lets, fields) = (Vec::new(), Vec::new(), Vec::new());
    Ok(Definition { names, args, about: None, is_switch: false, needs, lets, fields })
}

/// A macro's body with arguments in the place of its parameters.
fn put_in<'t>(body: &Expr<'t>, params: &[&str], args: &[Expr<'t>]) -> Expr<'t> {
    let inner = |expr: &Expr<'t>| Box::new(put_in(expr, params, args));
    match body {
        Expr::Name(name) => {
            let place = params.iter().position(|param| param == name);
            place.and_then(|place| args.get(place)).unwrap_or(body).clone()
        }
        Expr::Number(_) => body.clone(),
        Expr::Member(outer, name, arrow) => {
            // A parameter can be a member, too.
            let member = params.iter().position(|param| param == name).and_then(|place| args.get(place));
            let name = if let Some(Expr::Name(member)) = member { member } else { name };
            Expr::Member(inner(outer), name, *arrow)
        }
        Expr::Index(outer, index) => Expr::Index(inner(outer), *index),
        Expr::Not(operand) => Expr::Not(inner(operand)),
        Expr::Negate(operand) => Expr::Negate(inner(operand)),
        Expr::Complement(operand) => Expr::Complement(inner(operand)),
        Expr::Binary(op, a, b) => Expr::Binary(*op, inner(a), inner(b)),
        Expr::Choice(a, b, c) => Expr::Choice(inner(a), inner(b), inner(c)),
        Expr::Call(name, called) => {
            Expr::Call(name, called.iter().map(|arg| put_in(arg, params, args)).collect())
        }
    }
}

/// What is wrong with an expression, and where, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExprError {
    pub(crate) at: usize,
    pub(crate) what: String,
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
        if let Some(quoted) = rest.strip_prefix('\'') {
            let &[letter, b'\'', ..] = quoted.as_bytes() else {
                return Err(error("expected 'LETTER'".to_owned()));
            };
            tokens.push((at, Token::Number(letter.into())));
            rest = &quoted[2..];
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
pub(crate) fn expression(text: &str) -> Result<Expr<'_>, ExprError> {
    joined(&[text], &[])
}

/// Reads an expression that goes over several lines and may call macros.
fn joined<'t>(parts: &[&'t str], macros: &[Macro<'t>]) -> Result<Expr<'t>, ExprError> {
    let end = parts.last().map_or(0, |last| last.len());
    let tokens = parts.iter().map(|part| tokens(part)).collect::<Result<Vec<_>, _>>()?.concat();
    let mut parser = Parser { tokens, at: 0, depth: 0, macros };
    let result = parser.choice().and_then(|expr| match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(format!("unexpected {token}")),
    });
    let at = parser.tokens.get(parser.at).map_or(end, |(at, _)| *at);
    result.map_err(|what| ExprError { at, what })
}

struct Parser<'m, 't> {
    tokens: Vec<(usize, Token<'t>)>,
    at: usize,
    depth: usize,
    macros: &'m [Macro<'t>],
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

impl<'t> Parser<'_, 't> {
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
                match self.macros.iter().find(|known| known.name == name) {
                    None => Ok(Expr::Call(name, args)),
                    Some(known) if known.params.len() == args.len() => {
                        Ok(put_in(&known.body, &known.params, &args))
                    }
                    Some(known) => Err(format!("{name} takes {} arguments", known.params.len())),
                }
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
            joined(&["a | b & 3 << 1", "? !c->d.e : 0x10"], &[]),
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
        let text = "# a comment\nwake, up(p, flags)\n    about p->pid\n    let a = flags   # why\n    x = a\n\nfree()\n";
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.len(), 2);
        assert_eq!(
            (parsed[0].names.as_slice(), parsed[0].args.as_slice()),
            (["wake", "up"].as_slice(), ["p", "flags"].as_slice())
        );
        assert_eq!(parsed[0].about, Some(Expr::Member(Expr::Name("p").into(), "pid", true)));
        assert_eq!(parsed[0].lets, [("a", Expr::Name("flags"))]);
        assert_eq!(parsed[0].fields, [("x", Expr::Name("a"))]);
        assert!(parsed[1].args.is_empty());
    }

    #[test]
    fn errors_in_expressions_have_their_place() {
        for (text, at) in [
            ("a+", 2),
            ("a + )", 4),
            ("f(a", 3),
            ("a b", 2),
            ("a->", 3),
            ("a#", 1),
            ("x[y]", 2),
            ("1z", 0),
            ("'ab'", 0),
        ] {
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
    fn macros_are_put_in() {
        let parsed =
            parse("def both(x, y) = x->y1 +\n        y\ne(a)\n    needs a\n    f = both(a, 'B')\n").unwrap();
        let member = Expr::Member(Expr::Name("a").into(), "y1", true);
        assert_eq!(parsed[0].fields[0].1, Expr::Binary(Op::Add, member.into(), Expr::Number(66).into()));
        assert_eq!(parsed[0].needs, [Expr::Name("a")]);
        assert!(parse("def f(x) = x\ne()\n    f = f(1, 2)\n").is_err());
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
