//! Expressions: C's, with calls of macros in them.

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
    /// `"text"`, what `string` falls back to.
    Text(&'t str),
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

/// An expression with parameters, which is put in where its name is called.
pub(super) struct Macro<'t> {
    pub(super) name: &'t str,
    pub(super) params: Vec<&'t str>,
    pub(super) body: Expr<'t>,
}

/// A macro's body with arguments in the place of its parameters.
fn put_in<'t>(body: &Expr<'t>, params: &[&str], args: &[Expr<'t>]) -> Expr<'t> {
    let inner = |expr: &Expr<'t>| Box::new(put_in(expr, params, args));
    match body {
        Expr::Name(name) => {
            let index = params.iter().position(|param| param == name);
            index.and_then(|index| args.get(index)).unwrap_or(body).clone()
        }
        Expr::Number(_) | Expr::Text(_) => body.clone(),
        Expr::Member(outer, name, arrow) => {
            // A parameter can be a member, too.
            let member = params.iter().position(|param| param == name).and_then(|index| args.get(index));
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
pub(super) const TOKENS_MAX: usize = 256;
/// How deep parentheses, calls and choices are nested.
pub(super) const DEPTH_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Number(i64),
    Name(&'t str),
    Text(&'t str),
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
            Self::Text(text) => write!(out, "\"{text}\""),
            Self::Name(text) | Self::Sign(text) => out.write_str(text),
        }
    }
}

/// The tokens, each with its offset.
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
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, behind) =
                quoted.split_once('"').ok_or_else(|| error("expected \"TEXT\"".to_owned()))?;
            tokens.push((at, Token::Text(text)));
            rest = behind;
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
pub(super) fn joined<'t>(parts: &[&'t str], macros: &[Macro<'t>]) -> Result<Expr<'t>, ExprError> {
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
            Token::Text(text) => Ok(Expr::Text(text)),
            Token::Name(text) | Token::Sign(text) => Ok(Expr::Name(text)),
        }
    }
}
