//! Log levels of LTTng's user space tracer (lttng-enable-event(1), `--loglevel`).

/// From the most to the least severe; their numbers are their places.
const NAMES: [&str; 15] = [
    "EMERG",
    "ALERT",
    "CRIT",
    "ERR",
    "WARNING",
    "NOTICE",
    "INFO",
    "DEBUG_SYSTEM",
    "DEBUG_PROGRAM",
    "DEBUG_PROCESS",
    "DEBUG_MODULE",
    "DEBUG_UNIT",
    "DEBUG_FUNCTION",
    "DEBUG_LINE",
    "DEBUG",
];

/// `TRACE_INFO`; a number that has no name stays one.
pub(crate) fn name(level: u8) -> String {
    NAMES.get(usize::from(level)).map_or_else(|| level.to_string(), |name| format!("TRACE_{name}"))
}

/// The number of `TRACE_INFO` or `INFO`.
pub(crate) fn number(name: &str) -> Option<u8> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("TRACE_").unwrap_or(&upper);
    NAMES.iter().position(|known| *known == bare).and_then(|place| u8::try_from(place).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_numbers() {
        assert_eq!((number("TRACE_WARNING"), number("debug")), (Some(4), Some(14)));
        assert_eq!((number("3"), number("TRACE_")), (None, None));
        assert_eq!(name(6), "TRACE_INFO");
        assert!((0..15).all(|level| number(&name(level)) == Some(level)));
    }
}
