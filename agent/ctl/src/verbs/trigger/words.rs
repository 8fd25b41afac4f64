//! The words of a command line in which options mean something by where they stand: LTTng reads those of
//! triggers so.

use super::super::super::at::Failure;

/// An option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    /// Whether a value belongs to it.
    pub(super) takes: bool,
}

impl Opt {
    /// One with a value.
    pub(crate) const fn with_value(long: &'static str) -> Self {
        Self { long, short: None, takes: true }
    }

    /// The same with a short form.
    pub(crate) const fn short(long: &'static str, short: char) -> Self {
        Self { long, short: Some(short), takes: true }
    }

    /// One without a value.
    pub(crate) const fn flag(long: &'static str, short: Option<char>) -> Self {
        Self { long, short, takes: false }
    }
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// An option with its value, which is empty for one that takes none.
    Option(&'static str, String),
    /// Something else.
    Word(String),
}

/// The words that follow the command.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    all: &'a [String],
    at: usize,
    /// The number and text of the word that came last.
    last: (usize, &'a str),
}

impl<'a> Words<'a> {
    pub(crate) fn new(all: &'a [String]) -> Self {
        Self { all, at: 0, last: (1, "") }
    }

    /// The next word, if it is none of an option that is not known here.
    ///
    /// # Errors
    /// The value of an option is missing.
    pub(crate) fn next(&mut self, known: &[Opt]) -> Result<Option<Item>, Failure> {
        let Some(word) = self.all.get(self.at) else { return Ok(None) };
        let found = if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
            known.iter().find(|of| of.long == name).map(|of| (of, value))
        } else {
            let rest = word.strip_prefix('-').and_then(|rest| Some((rest.chars().next()?, rest)));
            let Some((short, rest)) = rest else {
                self.take();
                return Ok(Some(Item::Word(word.clone())));
            };
            let value = Some(&rest[short.len_utf8()..]).filter(|value| !value.is_empty());
            known.iter().find(|of| of.short == Some(short)).map(|of| (of, value))
        };
        let Some((option, value)) = found else { return Ok(None) };
        self.take();
        let value = match (option.takes, value) {
            (false, _) => String::new(),
            (true, Some(value)) => value.to_owned(),
            (true, None) => match self.all.get(self.at) {
                Some(value) => {
                    self.at += 1;
                    value.clone()
                }
                None => {
                    return Err(
                        self.wrong(&format!("Missing required argument for option `--{}`", option.long))
                    );
                }
            },
        };
        Ok(Some(Item::Option(option.long, value)))
    }

    fn take(&mut self) {
        if let Some(word) = self.all.get(self.at) {
            // The command itself is the first.
            self.last = (self.at + 2, word);
            self.at += 1;
        }
    }

    /// That the last word is wrong.
    pub(crate) fn wrong(&self, why: &str) -> Failure {
        let (number, word) = self.last;
        Failure::new(format!("While parsing argument #{number} (`{word}`): {why}"))
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// The next word is an option that is not known.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        let Some(word) = self.all.get(self.at) else { return Ok(()) };
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name).to_owned();
        self.take();
        Err(self.wrong(&format!("Unknown option `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Opt] = &[Opt::short("name", 'n'), Opt::with_value("url"), Opt::flag("help", Some('h'))];

    fn read(line: &str) -> (Vec<Item>, Result<(), Failure>) {
        let all: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut words = Words::new(&all);
        let mut items = Vec::new();
        loop {
            match words.next(KNOWN) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return (items, words.end()),
                Err(failure) => return (items, Err(failure)),
            }
        }
    }

    #[test]
    fn options_have_several_forms() {
        let name = |value: &str| Item::Option("name", value.to_owned());
        let (items, end) = read("--name=a --name b -nc -n d x -h --url= --name --url");
        let (word, help) = (Item::Word("x".into()), Item::Option("help", String::new()));
        let url = Item::Option("url", String::new());
        assert_eq!(items, [name("a"), name("b"), name("c"), name("d"), word, help, url, name("--url")]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let text = |line| read(line).1.unwrap_err().text.unwrap();
        assert_eq!(text("a --foo=b"), "While parsing argument #3 (`--foo=b`): Unknown option `--foo`");
        let missing = "While parsing argument #2 (`--url`): Missing required argument for option `--url`";
        assert_eq!(text("--url"), missing);
    }
}
