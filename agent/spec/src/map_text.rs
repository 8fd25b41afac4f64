//! Maps as they are written on a command line.
//!
//! ```text
//! [FUNCTION of] EVENT[: FILTER] [by KEY,...]
//! [FUNCTION of] EVENT[: FILTER] -> EVENT[: FILTER] key FIELD[=FIELD],... [by KEY,...]
//! ```

use super::{FunctionSpec, MapSpec, PairSpec, RuleSpec, What};

/// What a text lacks to be a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapTextError {
    /// The function.
    #[error(
        "`{0}` is no function: there are count, sum(FIELD), min(FIELD), max(FIELD), avg(FIELD), stats(FIELD), hist(FIELD), lhist(FIELD,MIN,MAX,STEP); of times, without FIELD"
    )]
    Function(String),
    /// The event.
    #[error("{0}")]
    Event(String),
    /// There is nothing where something has to be.
    #[error("there is nothing after `{0}`")]
    Nothing(&'static str),
    /// There are not two events.
    #[error("it has no `->` between two events: 'EVENT -> EVENT key FIELD'")]
    NoArrow,
    /// There is no key.
    #[error(
        "it has no key that the two events have in common: 'EVENT -> EVENT key FIELD', or `key FIELD=FIELD`"
    )]
    NoKey,
    /// There is an arrow.
    #[error("`->` is for times between two events")]
    Arrow,
}

/// A kind of probes, by its name.
type Probe = (&'static str, fn(String) -> What);

/// Kinds of probes that an event can be written as, before their texts.
const PROBES: [Probe; 5] = [
    ("kprobe", What::Kprobe),
    ("kretprobe", What::Kretprobe),
    ("uprobe", What::Uprobe),
    ("uretprobe", What::Uretprobe),
    ("usdt", What::Usdt),
];

impl MapSpec {
    /// Reads a map of events: `[FUNCTION of] EVENT[: FILTER] [by KEY,...]`. Its name is the text.
    ///
    /// # Errors
    /// What is not understood.
    pub fn of_events(text: &str) -> Result<Self, MapTextError> {
        let (function, field, rest) = function(text, false)?;
        let (event, by) = last_clause(rest, " by ");
        if first_outside(event, " -> ").is_some() {
            return Err(MapTextError::Arrow);
        }
        Ok(Self {
            name: text.trim().to_owned(),
            event: rule(event)?,
            from: None,
            pair: Vec::new(),
            by: list(by, "by")?,
            function,
            field,
            max_keys: None,
        })
    }

    /// Reads a list of keys: `KEY,...`.
    ///
    /// # Errors
    /// One is empty.
    pub fn keys_of(text: &str) -> Result<Vec<String>, MapTextError> {
        list(Some(text), "by")
    }

    /// Reads a map of times: `[FUNCTION of] EVENT[: FILTER] -> EVENT[: FILTER] key FIELD[=FIELD],... [by
    /// KEY,...]`. Without a function it has histograms. Its name is the text.
    ///
    /// # Errors
    /// What is not understood.
    pub fn of_times(text: &str) -> Result<Self, MapTextError> {
        let (function, field, rest) = function(text, true)?;
        let (rest, by) = last_clause(rest, " by ");
        let (events, keys) = last_clause(rest, " key ");
        let arrow = first_outside(events, " -> ").ok_or(MapTextError::NoArrow)?;
        let pair = |key: String| {
            let equals = key.match_indices('=').find(|(at, _)| {
                // Of a comparison, a sign has neighbours.
                !key[..*at].ends_with(['=', '!', '<', '>']) && !key[at + 1..].starts_with('=')
            });
            match equals {
                Some((at, _)) => {
                    PairSpec { from: key[..at].trim().to_owned(), to: key[at + 1..].trim().to_owned() }
                }
                None => PairSpec { from: key.clone(), to: key },
            }
        };
        let pair: Vec<PairSpec> = list(keys, "key")?.into_iter().map(pair).collect();
        if pair.is_empty() {
            return Err(MapTextError::NoKey);
        }
        if pair.iter().any(|pair| pair.from.is_empty() || pair.to.is_empty()) {
            return Err(MapTextError::Nothing("key"));
        }
        Ok(Self {
            name: text.trim().to_owned(),
            event: rule(&events[arrow + 4..])?,
            from: Some(rule(&events[..arrow])?),
            pair,
            by: list(by, "by")?,
            function,
            field,
            max_keys: None,
        })
    }
}

/// Takes the function off a text. Gives it with its field, and the rest.
fn function(text: &str, of_times: bool) -> Result<(FunctionSpec, Option<String>, &str), MapTextError> {
    let text = text.trim();
    let default = if of_times { FunctionSpec::Hist } else { FunctionSpec::Count };
    let Some(of) = first_outside(text, " of ") else { return Ok((default, None, text)) };
    let (written, rest) = (text[..of].trim(), &text[of + 4..]);
    let wrong = || MapTextError::Function(written.to_owned());
    let (name, arguments) = match written.split_once('(') {
        Some((name, arguments)) => (name.trim(), arguments.strip_suffix(')').ok_or_else(wrong)?.trim()),
        None => (written, ""),
    };
    let function = match name {
        "count" => FunctionSpec::Count,
        "sum" => FunctionSpec::Sum,
        "min" => FunctionSpec::Min,
        "max" => FunctionSpec::Max,
        "avg" => FunctionSpec::Avg,
        "stats" => FunctionSpec::Stats,
        "hist" => FunctionSpec::Hist,
        "lhist" => {
            let mut numbers = arguments.rsplitn(if of_times { 3 } else { 4 }, ',').map(str::trim);
            let step = numbers.next().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
            let max = numbers.next().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
            let min = numbers.next().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
            let field = numbers.next().unwrap_or_default();
            if field.is_empty() != of_times {
                return Err(wrong());
            }
            let field = Some(field.to_owned()).filter(|field| !field.is_empty());
            return Ok((FunctionSpec::Lhist { min, max, step }, field, rest));
        }
        _ => return Err(wrong()),
    };
    if arguments.is_empty() != (of_times || function == FunctionSpec::Count) {
        return Err(wrong());
    }
    Ok((function, Some(arguments.to_owned()).filter(|field| !field.is_empty()), rest))
}

/// An event with its filter.
fn rule(text: &str) -> Result<RuleSpec, MapTextError> {
    let (event, filter) = match first_outside(text, ": ") {
        Some(at) => (text[..at].trim(), Some(text[at + 2..].trim().to_owned())),
        None => (text.trim(), None),
    };
    if event.is_empty() {
        return Err(MapTextError::Event("it has no event".to_owned()));
    }
    let probe = event.split_once(char::is_whitespace).and_then(|(kind, rest)| {
        let (_, make) = PROBES.iter().find(|(name, _)| *name == kind)?;
        Some(make(rest.trim().to_owned()))
    });
    let what = match probe {
        Some(what) => what,
        None => What::Events(event.parse().map_err(|error| MapTextError::Event(format!("{error}")))?),
    };
    Ok(RuleSpec { filter, ..RuleSpec::new(what) })
}

/// A text before its last clause of this kind, and what is in that.
fn last_clause<'t>(text: &'t str, word: &str) -> (&'t str, Option<&'t str>) {
    match outside(text, word).last() {
        Some(at) => (&text[..at], Some(&text[at + word.len()..])),
        None => (text, None),
    }
}

/// What commas separate.
fn list(text: Option<&str>, word: &'static str) -> Result<Vec<String>, MapTextError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    if parts.iter().any(String::is_empty) { Err(MapTextError::Nothing(word)) } else { Ok(parts) }
}

fn first_outside(text: &str, word: &str) -> Option<usize> {
    outside(text, word).next()
}

/// Where a word is outside of quotes.
fn outside<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let mut quote = None;
        for c in text[..*at].chars() {
            match quote {
                None if matches!(c, '"' | '\'') => quote = Some(c),
                Some(open) if c == open => quote = None,
                _ => {}
            }
        }
        quote.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_events_are_read() {
        let map =
            MapSpec::of_events("hist(len) of net:net_dev_xmit: name == \"a by b\" by name, $cpu").unwrap();
        assert_eq!((map.function, map.field.as_deref()), (FunctionSpec::Hist, Some("len")));
        assert_eq!(map.by, ["name", "$cpu"]);
        assert_eq!(map.event.filter.as_deref(), Some("name == \"a by b\""));
        assert_eq!(map.event.what.text(), "net:net_dev_xmit");
        let map = MapSpec::of_events("uprobe libc.so.6:malloc size=$arg1:u64: size > 9 by size").unwrap();
        assert_eq!(map.event.what, What::Uprobe("libc.so.6:malloc size=$arg1:u64".to_owned()));
        assert_eq!(
            (map.event.filter.as_deref(), map.by.as_slice()),
            (Some("size > 9"), &["size".to_owned()][..])
        );
        let map = MapSpec::of_events("lhist(prio,-5, 100,5) of sched_waking").unwrap();
        assert_eq!(map.function, FunctionSpec::Lhist { min: -5, max: 100, step: 5 });
        assert_eq!((map.field.as_deref(), map.by.len()), (Some("prio"), 0));
        assert_eq!(MapSpec::of_events("sched_switch").unwrap().function, FunctionSpec::Count);
    }

    #[test]
    fn maps_of_times_are_read() {
        let map = MapSpec::of_times("sched_waking: prio < 100 -> sched_switch key pid=next_pid by next_comm")
            .unwrap();
        assert_eq!(map.from.unwrap().filter.as_deref(), Some("prio < 100"));
        assert_eq!(map.pair, [PairSpec { from: "pid".to_owned(), to: "next_pid".to_owned() }]);
        assert_eq!((map.by, map.function), (vec!["next_comm".to_owned()], FunctionSpec::Hist));
        let map = MapSpec::of_times("stats of a:b -> a:c key $tid").unwrap();
        assert_eq!((map.function, map.pair[0].to.as_str()), (FunctionSpec::Stats, "$tid"));
        let map = MapSpec::of_times("lhist(0,1000,10) of a:b -> a:c key $tid").unwrap();
        assert_eq!(map.function, FunctionSpec::Lhist { min: 0, max: 1000, step: 10 });
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in [
            "",
            "sum of sched_switch",
            "hist(a of b",
            "frob(x) of sched_switch",
            "sched_switch by ",
            "a -> b",
        ] {
            assert!(MapSpec::of_events(text).is_err(), "{text}");
        }
        for text in
            ["sched_switch", "a:b -> a:c", "hist(x) of a:b -> a:c key d", "a:b -> a:c key =", " -> a key b"]
        {
            assert!(MapSpec::of_times(text).is_err(), "{text}");
        }
    }
}
