//! Which events that begin something can be joined with those that end it.
//!
//! Analyses join an end with the last beginning of the same thread, CPU, place or address. That is its own as
//! long as one of both is recorded each time: what is not ended yet was begun last, or what was begun has
//! ended. What is told to go on until its end, such as memory that is not given back, needs each end. Where
//! filters or sampling chose beginnings and ends, each on its own, the end that is recorded may be that of
//! another beginning, which is not. Such beginnings are not handed on, or only to be counted: durations,
//! errors of what was begun, what is still there and the like are unknown, and ends have no beginning.

use std::collections::{BTreeMap, BTreeSet};

use super::followed::{Choice, Halves};
use ftrace_event::{EventTable, Printer};
use tracedat::ledger::EventChoice;

/// Events that begin and end something.
struct Pair {
    begins: (&'static str, &'static str),
    ends: &'static [(&'static str, &'static str)],
    /// Fields that both have, with the same value in both.
    same: &'static [&'static str],
    /// Where both fire.
    halves: Halves,
    /// Whether what was begun, and not ended by a record, is told to go on: until the end, or though it was
    /// begun once more. Then each end has to be recorded.
    goes_on: bool,
    /// Whether beginnings are of use by themselves: how much memory is taken, and by whom.
    counts: bool,
}

/// What ends memory of the kernel.
const SLAB_ENDS: &[(&str, &str)] = &[("kmem", "kfree"), ("kmem", "kmem_cache_free")];

/// A name may end with `*`: of the end, that stands for the same as of the beginning.
const PAIRS: &[Pair] = &[
    Pair {
        begins: ("raw_syscalls", "sys_enter"),
        ends: &[("raw_syscalls", "sys_exit"), ("syscalls", "sys_exit_*")],
        same: &["id"],
        halves: Halves::OfThread,
        goes_on: false,
        counts: false,
    },
    Pair {
        begins: ("syscalls", "sys_enter_*"),
        ends: &[("syscalls", "sys_exit_*"), ("raw_syscalls", "sys_exit")],
        same: &["__syscall_nr", "nr"],
        halves: Halves::OfThread,
        goes_on: false,
        counts: false,
    },
    // Of what programs write to trace_marker, some begins and some ends spans.
    Pair {
        begins: ("ftrace", "print"),
        ends: &[("ftrace", "print")],
        same: &[],
        halves: Halves::OfThread,
        goes_on: false,
        counts: false,
    },
    Pair {
        begins: ("irq", "irq_handler_entry"),
        ends: &[("irq", "irq_handler_exit")],
        same: &["irq"],
        halves: Halves::InOneGo,
        goes_on: false,
        counts: false,
    },
    Pair {
        begins: ("irq", "softirq_raise"),
        ends: &[("irq", "softirq_entry")],
        same: &["vec"],
        halves: Halves::OnCpu,
        goes_on: true,
        counts: false,
    },
    Pair {
        begins: ("irq", "softirq_entry"),
        ends: &[("irq", "softirq_exit")],
        same: &["vec"],
        halves: Halves::InOneGo,
        goes_on: false,
        counts: false,
    },
    // A request that is done is not in the queue either.
    Pair {
        begins: ("block", "block_rq_insert"),
        ends: &[("block", "block_rq_issue"), ("block", "block_rq_complete")],
        same: &["dev"],
        halves: Halves::Anywhere,
        goes_on: false,
        counts: false,
    },
    Pair {
        begins: ("block", "block_rq_issue"),
        ends: &[("block", "block_rq_complete")],
        same: &["dev"],
        halves: Halves::EndsInInterrupt,
        goes_on: false,
        counts: false,
    },
    Pair {
        begins: ("lock", "contention_begin"),
        ends: &[("lock", "contention_end")],
        same: &["lock_addr"],
        halves: Halves::OfThread,
        goes_on: true,
        counts: false,
    },
    Pair {
        begins: ("kmem", "mm_page_alloc"),
        ends: &[("kmem", "mm_page_free")],
        same: &["pfn"],
        halves: Halves::Anywhere,
        goes_on: true,
        counts: true,
    },
    Pair {
        begins: ("kmem", "kmalloc*"),
        ends: SLAB_ENDS,
        same: &["ptr"],
        halves: Halves::Anywhere,
        goes_on: true,
        counts: true,
    },
    Pair {
        begins: ("kmem", "kmem_cache_alloc*"),
        ends: SLAB_ENDS,
        same: &["ptr"],
        halves: Halves::Anywhere,
        goes_on: true,
        counts: true,
    },
    Pair {
        begins: ("vmscan", "mm_vmscan_direct_reclaim_begin"),
        ends: &[("vmscan", "mm_vmscan_direct_reclaim_end")],
        same: &[],
        halves: Halves::OfThread,
        goes_on: false,
        counts: false,
    },
    Pair {
        begins: ("vmscan", "mm_vmscan_memcg_reclaim_begin"),
        ends: &[("vmscan", "mm_vmscan_memcg_reclaim_end")],
        same: &[],
        halves: Halves::OfThread,
        goes_on: false,
        counts: false,
    },
];

/// Fields of any event that are the same in both halves of what a thread does.
const OF_THREAD: [&str; 3] = ["common_pid", "comm", "COMM"];

/// Beginnings that cannot be joined.
#[derive(Clone, Debug, Default)]
pub struct Unjoined {
    /// By the events' numbers, which of `names` it is.
    events: Vec<Option<usize>>,
    names: Vec<Name>,
    /// What was not recorded each time.
    pub unseen: Unseen,
}

/// Halves of pairs that were not recorded each time that they fired, because of filters or sampling, or as
/// nobody asked for them. Of files that do not say what was recorded, all were.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is about something else")]
pub struct Unseen {
    /// Beginnings of system calls.
    pub calls_begin: bool,
    /// Ends of system calls, or of the threads that make them.
    pub calls_end: bool,
    /// Calls of which beginnings were recorded, and no ends.
    pub calls_without_end: BTreeSet<String>,
    /// That a thread runs another program, perhaps under another number.
    pub execs: bool,
    /// Ends of hardware or soft interrupts.
    pub interrupts_end: bool,
}

impl Unseen {
    /// Of a recording of these events, each with whether it was recorded each time.
    pub(super) fn of(recorded: &BTreeMap<&str, bool>) -> Self {
        if recorded.is_empty() {
            return Self::default();
        }
        let has = |event: &str| recorded.contains_key(event);
        let lacks_some = |event: &str| recorded.get(event) == Some(&false);
        let lacks = |event: &str| recorded.get(event) != Some(&true);
        let lacks_calls = |half: &str| {
            let of = recorded.iter().filter_map(|(event, is_whole)| Some((event.split_once(':')?, is_whole)));
            let mut of = of.filter(|((system, _), _)| matches!(*system, "syscalls" | "raw_syscalls"));
            of.any(|((_, name), is_whole)| name.starts_with(half) && !is_whole)
        };
        let (switch, exit) = ("sched:sched_switch", "sched:sched_process_exit");
        let threads_end = (lacks_some(switch) || lacks_some(exit)) && lacks(switch) && lacks(exit);
        let (enter, exit_of_call) = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit");
        // Calls of whose single events there is this half, and the other one is not there.
        let single = |half: &str, other: &str, all_others: &str| -> BTreeSet<String> {
            let calls = recorded.keys().filter_map(|event| event.strip_prefix(half));
            let alone = calls.filter(|call| !has(all_others) && !has(&format!("{other}{call}")));
            alone.map(str::to_owned).collect()
        };
        let (enters, exits) = ("syscalls:sys_enter_", "syscalls:sys_exit_");
        let has_lone_exit = has(exit_of_call) && !has(enter) || !single(exits, enters, enter).is_empty();
        let interrupts =
            [("irq:irq_handler_entry", "irq:irq_handler_exit"), ("irq:softirq_entry", "irq:softirq_exit")];
        Self {
            calls_begin: lacks_calls("sys_enter") || has_lone_exit,
            calls_end: lacks_calls("sys_exit") || threads_end || has(enter) && !has(exit_of_call),
            calls_without_end: single(enters, exits, exit_of_call),
            execs: lacks("sched:sched_process_exec"),
            interrupts_end: interrupts.iter().any(|(begin, end)| has(begin) && lacks(end)),
        }
    }
}

/// An event whose beginnings cannot be joined.
#[derive(Clone, Debug)]
struct Name {
    /// `system:name`.
    text: String,
    /// There was a record of it.
    was_seen: bool,
    /// It is of use by itself.
    counts: bool,
}

impl Unjoined {
    /// Those of a recording with these events, of which this was recorded, of these threads and CPUs.
    /// `goes_on`: also of pairs that say otherwise, what is begun is told to go on until it is ended.
    pub(super) fn of(events: &EventTable, rows: &[EventChoice], threads: &Choice, goes_on: bool) -> Self {
        let mut unjoined = Self::default();
        for event in events.iter() {
            let name = (event.system(), event.name());
            let Some((pair, part)) = PAIRS.iter().find_map(|pair| Some((pair, matched(pair.begins, name)?)))
            else {
                continue;
            };
            let begins: Vec<_> = rows.iter().filter(|row| is_of(row, event)).collect();
            let ends: Vec<_> = rows.iter().filter(|row| pair.has_end(part, row)).collect();
            let is_end_of_all = pair.ends.iter().any(|end| {
                let mut of_event = rows.iter().filter(|row| is_end(*end, part, row)).peekable();
                of_event.peek().is_some() && of_event.all(|row| row.every_thread)
            });
            let halves = if is_end_of_all { Halves::EndsWithAll } else { pair.halves };
            let are_apart = !threads.joins(halves);
            if are_apart || ends.iter().any(|end| begins.iter().any(|begin| !pair.joins(begin, end, goes_on)))
            {
                unjoined.add(event, pair.counts);
            }
        }
        unjoined
    }

    fn add(&mut self, event: &Printer, counts: bool) {
        let id = usize::from(event.format().id);
        if self.events.len() <= id {
            self.events.resize(id + 1, None);
        }
        self.events[id] = Some(self.names.len());
        let text = format!("{}:{}", event.system(), event.name());
        self.names.push(Name { text, was_seen: false, counts });
    }

    /// Takes the event of a record.
    #[inline]
    pub(super) fn note(&mut self, id: u16) {
        if let Some(index) = self.events.get(usize::from(id)).copied().flatten() {
            self.names[index].was_seen = true;
        }
    }

    /// Whether the beginnings that an event tells of cannot be joined.
    pub fn has(&self, event: &Printer) -> bool {
        self.has_number(event.format().id)
    }

    /// The same by the number of the event.
    #[inline]
    pub(super) fn has_number(&self, id: u16) -> bool {
        self.events.get(usize::from(id)).is_some_and(Option::is_some)
    }

    /// Whether such an event is of no use, as its beginnings cannot be joined.
    pub(super) fn leaves_out(&self, event: &Printer) -> bool {
        let index = self.events.get(usize::from(event.format().id)).copied().flatten();
        index.is_some_and(|index| !self.names[index].counts)
    }

    /// `system:name` of each such event of which there were records.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter().filter(|name| name.was_seen).map(|name| &name.text)
    }
}

impl Pair {
    /// Whether a row is of an event that ends what one with this part of its name begins.
    fn has_end(&self, part: &str, row: &EventChoice) -> bool {
        self.ends.iter().any(|end| is_end(*end, part, row))
    }

    /// Whether each recorded end is that of the last recorded beginning before it.
    fn joins(&self, begin: &EventChoice, end: &EventChoice, goes_on: bool) -> bool {
        let is_ended_by_next = !self.goes_on && !goes_on;
        if !end.is_chosen() || !begin.is_chosen() && is_ended_by_next {
            return true;
        }
        let are_sampled = begin.is_sampled || end.is_sampled;
        let are_same = begin.filter.is_some() && begin.filter == end.filter;
        let fields = begin.filter.as_deref().map(fields).unwrap_or_default();
        !are_sampled
            && are_same
            && fields.iter().all(|field| self.same.contains(field) || OF_THREAD.contains(field))
    }
}

/// Whether it is about this event.
pub(super) fn is_of(row: &EventChoice, event: &Printer) -> bool {
    row.event.split_once(':') == Some((event.system(), event.name()))
}

/// Whether a row is of such an event, which ends what one with this part of its name begins.
fn is_end(end: (&str, &str), part: &str, row: &EventChoice) -> bool {
    let of = row.event.split_once(':').and_then(|name| matched(end, name));
    of.is_some_and(|of| of.is_empty() || part.is_empty() || of == part)
}

/// Whether an event has such a name. Gives what a `*` at its end stands for.
fn matched<'n>(pattern: (&str, &str), (system, name): (&str, &'n str)) -> Option<&'n str> {
    if pattern.0 != system {
        return None;
    }
    match pattern.1.strip_suffix('*') {
        Some(start) => name.strip_prefix(start),
        None => (pattern.1 == name).then_some(""),
    }
}

/// The names in a filter that are not in quotation marks: those of its fields.
fn fields(filter: &str) -> Vec<&str> {
    let outside = filter.split('"').step_by(2);
    let is_in_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = outside.flat_map(|text| text.split(move |character| !is_in_name(character)));
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::{Machine, NoNames};

    fn row(event: &str, filter: Option<&str>, is_sampled: bool) -> EventChoice {
        let filter = filter.map(str::to_owned);
        EventChoice { event: event.to_owned(), filter, is_sampled, ..EventChoice::default() }
    }

    /// The events of these rows whose beginnings cannot be joined.
    fn unjoined(rows: &[(&str, Option<&str>, u64)]) -> Vec<String> {
        let rows: Vec<_> =
            rows.iter().map(|(event, filter, sampled)| row(event, *filter, *sampled != 0)).collect();
        unjoined_of(&[], &rows)
    }

    /// The same of a recording that says this of its threads and CPUs.
    fn unjoined_of(only: &[&str], rows: &[EventChoice]) -> Vec<String> {
        let formats = rows.iter().zip(100..).map(|(EventChoice { event, .. }, id)| {
            let (system, name) = event.split_once(':').unwrap();
            let text = format!(
                "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                 print fmt: \"\"\n"
            );
            (system.to_owned(), text)
        });
        let formats: Vec<(String, String)> = formats.collect();
        let mut events = EventTable::new(Machine::default());
        for (system, text) in &formats {
            events.add(system, text, &NoNames).unwrap();
        }
        let only: Vec<_> = only.iter().map(|line| (*line).to_owned()).collect();
        let unjoined = Unjoined::of(&events, rows, &Choice::of(&only), false);
        unjoined.names.into_iter().map(|name| name.text).collect()
    }

    #[test]
    fn halves_that_were_not_recorded_each_time() {
        let unseen = |events: &[(&'static str, bool)]| Unseen::of(&events.iter().copied().collect());
        let interrupts = |events: &[(&'static str, bool)]| unseen(events).interrupts_end;
        let (entry, exit) = ("irq:softirq_entry", "irq:softirq_exit");
        assert!(!interrupts(&[]) && !interrupts(&[(entry, true), (exit, true)]));
        assert!(interrupts(&[(entry, true)]) && interrupts(&[(entry, true), (exit, false)]));
        let calls = |events: &[(&'static str, bool)]| {
            let Unseen { calls_begin, calls_end, calls_without_end, .. } = unseen(events);
            (calls_begin, calls_end, calls_without_end.into_iter().collect::<Vec<_>>())
        };
        let (open, opened) = ("syscalls:sys_enter_openat", "syscalls:sys_exit_openat");
        assert_eq!(calls(&[(ENTER, true), (EXIT, true)]), (false, false, vec![]));
        assert_eq!(calls(&[(ENTER, true)]), (false, true, vec![]));
        assert_eq!(calls(&[(EXIT, true)]), (true, false, vec![]));
        assert_eq!(calls(&[(open, true), (EXIT, true)]), (true, false, vec![]));
        assert_eq!(calls(&[(open, true)]), (false, false, vec!["openat".to_owned()]));
        assert_eq!(calls(&[(opened, true)]), (true, false, vec![]));
        assert_eq!(calls(&[(ENTER, false), (EXIT, false)]), (true, true, vec![]));
        // A thread may have ended in its call.
        let (switch, ends) = ("sched:sched_switch", "sched:sched_process_exit");
        let both = [(ENTER, true), (EXIT, true)];
        let calls_end = |of: &[(&'static str, bool)]| unseen(&[&both, of].concat()).calls_end;
        assert!(calls_end(&[(switch, false)]) && calls_end(&[(switch, false), (ends, false)]));
        assert!(!calls_end(&[(switch, false), (ends, true)]) && !calls_end(&[(switch, true)]));
        assert!(unseen(&both).execs && !unseen(&[("sched:sched_process_exec", true)]).execs);
    }

    const ENTER: &str = "raw_syscalls:sys_enter";
    const EXIT: &str = "raw_syscalls:sys_exit";

    #[test]
    fn ends_are_joined_where_one_of_both_is_recorded_each_time() {
        assert_eq!(unjoined(&[(ENTER, None, 0), (EXIT, None, 0)]), [""; 0]);
        assert_eq!(unjoined(&[(ENTER, Some("id == 2"), 0), (EXIT, None, 0)]), [""; 0]);
        assert_eq!(unjoined(&[(ENTER, None, 0), (EXIT, Some("ret < 0"), 0)]), [""; 0]);
        assert_eq!(unjoined(&[(ENTER, Some("id == 2"), 0)]), [""; 0]);
    }

    #[test]
    fn what_chooses_each_on_its_own_lets_none_be_joined() {
        assert_eq!(unjoined(&[(ENTER, Some("id == 2"), 0), (EXIT, Some("ret < 0"), 0)]), [ENTER]);
        assert_eq!(unjoined(&[(ENTER, None, 5), (EXIT, None, 5)]), [ENTER]);
        // The number is the same in both, what is returned is not.
        assert_eq!(unjoined(&[(ENTER, Some("id == 2"), 0), (EXIT, Some("id == 2"), 0)]), [""; 0]);
        let both = Some("id == 2 && comm != \"ret\"");
        assert_eq!(unjoined(&[(ENTER, both, 0), (EXIT, both, 0)]), [""; 0]);
        let lengths = Some("common_preempt_count == 0");
        assert_eq!(unjoined(&[(ENTER, lengths, 0), (EXIT, lengths, 0)]), [ENTER]);
        assert_eq!(
            unjoined(&[("block:block_rq_issue", None, 1), ("block:block_rq_complete", Some("dev == 1"), 0)]),
            ["block:block_rq_issue"]
        );
    }

    #[test]
    fn what_goes_on_until_its_end_is_joined_where_each_end_is_recorded() {
        let pairs = [
            ("irq:softirq_raise", "irq:softirq_entry"),
            ("lock:contention_begin", "lock:contention_end"),
            ("kmem:mm_page_alloc", "kmem:mm_page_free"),
            ("kmem:kmalloc", "kmem:kfree"),
        ];
        for (begin, end) in pairs {
            assert_eq!(unjoined(&[(begin, None, 0), (end, None, 5)]), [begin]);
            assert_eq!(unjoined(&[(begin, None, 0), (end, Some("common_pid == 7"), 0)]), [begin]);
            assert_eq!(unjoined(&[(begin, None, 5), (end, None, 0)]), [""; 0]);
        }
    }

    #[test]
    fn calls_are_joined_by_name() {
        let (open, opened) = ("syscalls:sys_enter_openat", "syscalls:sys_exit_openat");
        let (read, reads) = ("syscalls:sys_enter_read", "syscalls:sys_exit_read");
        let rows =
            [(open, Some("flags == 0"), 0), (opened, Some("ret < 0"), 0), (read, None, 0), (reads, None, 0)];
        assert_eq!(unjoined(&rows), [open]);
        assert_eq!(unjoined(&[(open, Some("flags == 0"), 0), (reads, Some("ret < 0"), 0)]), [""; 0]);
        assert_eq!(unjoined(&[(open, Some("flags == 0"), 0), (EXIT, Some("ret < 0"), 0)]), [open]);
    }

    const INSERT: &str = "block:block_rq_insert";
    const ISSUE: &str = "block:block_rq_issue";
    const COMPLETE: &str = "block:block_rq_complete";

    #[test]
    fn threads_and_cpus_choose_both_halves_only_where_both_fire_there() {
        let names = [
            ENTER,
            EXIT,
            "irq:irq_handler_entry",
            "irq:irq_handler_exit",
            "irq:softirq_raise",
            "irq:softirq_entry",
            "irq:softirq_exit",
            INSERT,
            ISSUE,
            COMPLETE,
            "lock:contention_begin",
            "lock:contention_end",
            "kmem:kmalloc",
            "kmem:kfree",
        ];
        let rows = names.map(|event| row(event, None, false));
        let of = |only: &[&str]| unjoined_of(only, &rows);
        assert_eq!(of(&[]), [""; 0]);
        let of_threads = ["irq:softirq_raise", INSERT, ISSUE, "kmem:kmalloc"];
        assert_eq!(of(&["the command with their children"]), of_threads);
        assert_eq!(of(&["threads named dd"]), of_threads);
        assert_eq!(of(&["all but threads named dd"]), [INSERT, "kmem:kmalloc"]);
        assert_eq!(of(&["CPUs 0"]), [ENTER, INSERT, ISSUE, "lock:contention_begin", "kmem:kmalloc"]);
    }

    #[test]
    fn an_end_that_is_recorded_of_every_thread_ends_what_a_scope_has_begun() {
        let rows = [INSERT, ISSUE, COMPLETE].map(|event| row(event, None, false));
        let mut of_all = rows.clone();
        of_all[2].every_thread = true;
        for only in ["processes 7", "threads named dd", "all but threads named dd"] {
            assert_eq!(unjoined_of(&[only], &of_all), [""; 0], "{only}");
            assert_ne!(unjoined_of(&[only], &rows), [""; 0], "{only}");
        }
        // Another recording of a merged file, or another buffer, has not those of every thread.
        let mixed: Vec<_> = of_all.iter().cloned().chain([row(COMPLETE, None, false)]).collect();
        assert_ne!(unjoined_of(&["processes 7"], &mixed), [""; 0]);
        // Not of every CPU.
        assert_eq!(unjoined_of(&["CPUs 0"], &of_all), [INSERT, ISSUE]);
    }

    #[test]
    fn names_of_fields_are_found_in_filters() {
        assert_eq!(fields("a == 1 && (b_2 & 0x10 || comm ~ \"x y\")"), ["a", "b_2", "comm"]);
        assert_eq!(fields(""), [""; 0]);
    }
}
