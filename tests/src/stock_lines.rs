//! Where lines of `tracer-agent report` are not those of stock trace-cmd 3.1 with libtraceevent 1.7, and why.
//!
//! The tests of the library include this file, too.

/// What is not compared in the lines of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What stands behind these characters, up to the next blank.
    Value(&'static str),
    /// All behind the event's name.
    Text,
}

/// The address is `vmemmap_base` and an offset. The file does not tell it; trace-cmd calculates with 0 or a
/// symbol of that name.
const PAGE: &str = "no address instead of a wrong one";
/// libtraceevent loses the mask before the flags, and calculates with another value.
const TIMER: &str = "the bits that are set instead of all";
/// libtraceevent does not parse these formats, and prints `[FAILED TO PARSE]`.
const UNPARSED: &str = "the text instead of the fields";
/// libtraceevent takes a constant whose value it does not know for -1, and prints its name where no bit is
/// set.
const NO_FLAGS: &str = "nothing where no bit is set";
/// libtraceevent takes `jiffies`, which only the running kernel knows, for 0.
const JIFFIES: &str = "no age instead of a wrong one";
/// libtraceevent calculates another value of `fallback_order < pageblock_order`.
const COMPARISON: &str = "0 or 1";

/// Of a line that differs this is all that may be different.
pub const DIFFERENCES: [(&str, Part, &str); 21] = [
    ("mm_page_alloc", Part::Value("page="), PAGE),
    ("mm_page_free", Part::Value("page="), PAGE),
    ("mm_page_free_batched", Part::Value("page="), PAGE),
    ("mm_page_alloc_zone_locked", Part::Value("page="), PAGE),
    ("mm_page_pcpu_drain", Part::Value("page="), PAGE),
    ("mm_page_alloc_extfrag", Part::Value("page="), PAGE),
    ("mm_page_alloc_extfrag", Part::Value("fragmenting="), COMPARISON),
    ("timer_start", Part::Value("flags="), TIMER),
    ("ma_read", Part::Text, UNPARSED),
    ("ma_write", Part::Text, UNPARSED),
    ("ma_op", Part::Text, UNPARSED),
    ("sb_clear_inode_writeback", Part::Text, NO_FLAGS),
    ("sb_mark_inode_writeback", Part::Text, NO_FLAGS),
    ("writeback_dirty_inode", Part::Value("state="), NO_FLAGS),
    ("writeback_dirty_inode_start", Part::Value("state="), NO_FLAGS),
    ("writeback_mark_inode_dirty", Part::Value("state="), NO_FLAGS),
    ("writeback_single_inode", Part::Value("state="), NO_FLAGS),
    ("writeback_single_inode", Part::Value("age="), JIFFIES),
    ("writeback_single_inode_start", Part::Value("state="), NO_FLAGS),
    ("writeback_single_inode_start", Part::Value("age="), JIFFIES),
    ("writeback_queue_io", Part::Value("older="), JIFFIES),
];

/// The differences that a line may have.
pub fn of_line(line: &str) -> impl Iterator<Item = &'static (&'static str, Part, &'static str)> + use<'_> {
    DIFFERENCES.iter().filter(move |(event, ..)| line.contains(&format!(" {event}: ")))
}

/// A line without what is not compared. In all lines, `0x0` counts as `0`: so the kernel prints `%#x`, where
/// the C library has no prefix for 0.
pub fn comparable(line: &str) -> String {
    let mut text = line.replace("=0x0 ", "=0 ");
    if text.ends_with("=0x0") {
        text.truncate(text.len() - 2);
    }
    for (event, part, _) in of_line(line) {
        let label = format!(" {event}: ");
        let Some(start) = text.find(&label).map(|at| at + label.len()) else { continue };
        match part {
            Part::Text => text.truncate(start),
            Part::Value(name) => {
                let Some(from) = text[start..].find(name).map(|at| start + at + name.len()) else { continue };
                let to = text[from..].find(' ').map_or(text.len(), |at| from + at);
                text.replace_range(from..to, "*");
            }
        }
    }
    text
}
