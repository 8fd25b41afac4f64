//! Which threads a recording follows: those of which it has every switch.
//!
//! A recording of some threads has the switches and wakeups of which one side is such a thread, as ftrace
//! records them with `set_event_pid`. Of the thread on the other side it has one record now and then, and
//! what that thread did in between nothing tells: a thread that got a CPU from one that is recorded may have
//! left it, and come back, any number of times. The same goes for the idle threads.
//!
//! Files name the choice, not the threads, which come and go. A thread is taken for a recorded one if the
//! choice names it, or when an event shows it: any event but switches and wakeups is recorded for the current
//! thread alone, and a switch from or to an idle thread that is not recorded is there for the other side.

use super::known::{Event, Follows, Known, Tid};
use super::{recorded::Recorded, state};
use ftrace_event::{EventTable, FieldReader};
use stdx::input::glob;
use tracedat::reader::{Reader, Record, Source};

/// Ids of threads are smaller than this: `PID_MAX_LIMIT` of a machine with 64 bits (include/linux/threads.h).
const TIDS: usize = 1 << 22;

/// What a recording says of the threads and CPUs that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    threads: Chosen,
    /// The threads that a recorded one makes are recorded, too.
    has_children: bool,
    /// All CPUs are recorded.
    has_all_cpus: bool,
    /// Processes that are recorded, unless something else leaves them out: their first threads.
    processes: Vec<Tid>,
    /// The recorded threads are those whose names match one of these, unless something else leaves them out.
    names: Vec<String>,
}

/// Which threads are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    All,
    /// All but some, the idle threads among those that are.
    Most,
    /// Some.
    Some {
        /// None of them is an idle thread.
        is_idle_out: bool,
    },
    /// Of no thread all switches are there: they were chosen by something else.
    Unknown,
}

/// Which threads a recording follows.
#[derive(Clone, Debug)]
pub struct Followed {
    choice: Choice,
    /// By their ids, those that events show. No more than 512 KiB.
    shown: Vec<u64>,
    /// By the events' numbers, whose record it is: of events that are recorded for the current thread alone.
    current: Vec<Option<FieldReader>>,
}

impl Choice {
    /// From the lines of a ledger, each of which leaves out others.
    fn of(only: &[String]) -> Self {
        let mut choice = Self {
            threads: Chosen::All,
            has_children: false,
            has_all_cpus: true,
            processes: Vec::new(),
            names: Vec::new(),
        };
        let (of_cpus, of_threads): (Vec<&String>, Vec<_>) =
            only.iter().partition(|line| line.starts_with("CPUs "));
        choice.has_all_cpus = of_cpus.is_empty();
        if let [line] = of_threads[..] {
            let values = |kind: &str| line.strip_prefix(kind).map(|values| values.split(", "));
            let processes = values("processes ").or_else(|| values("threads of the processes "));
            let number = |value: &str| value.split(' ').next()?.parse().ok();
            choice.processes = processes.into_iter().flatten().filter_map(number).collect();
            choice.names = values("threads named ").into_iter().flatten().map(str::to_owned).collect();
        }
        for line in of_threads {
            choice.has_children |= line.ends_with(" with their children");
            let threads = if line.starts_with("all but ") {
                Chosen::Most
            } else {
                Chosen::Some { is_idle_out: leaves_out_idle(line) }
            };
            choice.threads = choice.threads.and(threads);
        }
        choice
    }
}

impl Chosen {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Some { is_idle_out: one }, Self::Some { is_idle_out: other }) => {
                Self::Some { is_idle_out: one || other }
            }
            (some @ Self::Some { .. }, _) | (_, some @ Self::Some { .. }) => some,
            (Self::Most, _) | (_, Self::Most) => Self::Most,
            (Self::All, Self::All) => Self::All,
        }
    }
}

/// Whether a choice of threads leaves out the idle threads for certain. They have process, user and group 0,
/// are in the root of all hierarchies of control groups, and have the names `swapper/0` and so on.
fn leaves_out_idle(line: &str) -> bool {
    const BY_VALUE: [&str; 5] = [
        "threads of the processes ",
        "threads of the users ",
        "threads of the groups ",
        "control groups ",
        "threads named ",
    ];
    if line.starts_with("processes ") || line.starts_with("the command") {
        return true;
    }
    let values = BY_VALUE.into_iter().find_map(|kind| line.strip_prefix(kind));
    let may_be_idle =
        |value: &str| matches!(value, "0" | "/" | "") || glob::matches_bytes(value.as_bytes(), b"swapper/0");
    values.is_some_and(|values| {
        !values.starts_with("with the virtual ids") && !values.split(", ").any(may_be_idle)
    })
}

impl Followed {
    /// What a file says of it.
    pub fn of<S: Source>(reader: &Reader<S>, events: &EventTable) -> Self {
        Recorded::of(reader).followed(events)
    }

    /// Of a recording that has these events, and whose ledger has these lines of what was recorded.
    /// `are_switches_chosen`: whether switches were left out by something else than their threads.
    pub fn new(events: &EventTable, only: &[String], are_switches_chosen: bool) -> Self {
        let mut choice = Choice::of(only);
        if are_switches_chosen {
            choice.threads = Chosen::Unknown;
        }
        let mut current = Vec::new();
        for event in events.iter() {
            let id = usize::from(event.format().id);
            if current.len() <= id {
                current.resize(id + 1, None);
            }
            let is_of_two = matches!(
                (event.system(), event.name()),
                ("sched", "sched_switch" | "sched_waking" | "sched_wakeup" | "sched_wakeup_new")
            );
            // A stack may be that of such an event.
            let is_of_two = is_of_two || event.is_stack();
            let pid = event.field_index("common_pid").and_then(|index| event.field(index));
            current[id] = pid.filter(|_| !is_of_two);
        }
        Self::from((choice, current))
    }

    fn from((choice, current): (Choice, Vec<Option<FieldReader>>)) -> Self {
        let mut followed = Self { choice, shown: Vec::new(), current };
        for tid in followed.choice.processes.clone() {
            followed.show(tid);
        }
        followed
    }

    /// Whether all threads and CPUs were recorded.
    pub fn has_all(&self) -> bool {
        self.choice.threads == Chosen::All && self.choice.has_all_cpus
    }

    /// Looks at a record of any event, known or not, before [`Followed::mark`].
    #[inline]
    pub fn note(&mut self, id: u16, record: &Record<'_>) {
        if self.choice.threads == Chosen::All {
            return;
        }
        let current = self.current.get(usize::from(id)).copied().flatten();
        if let Some(tid) = current.and_then(|field| field.number(record.data)) {
            self.show(tid as Tid);
        }
    }

    /// Notes in an event which of its threads are followed.
    #[inline]
    pub fn mark(&mut self, event: &mut Event<'_>) {
        if self.has_all() {
            return;
        }
        let (current, other) = match &event.known {
            Known::Switch(switch) => {
                if self.choice.threads == (Chosen::Some { is_idle_out: true }) {
                    match (switch.prev, switch.next) {
                        (0, tid) | (tid, 0) => self.show(tid),
                        _ => {}
                    }
                }
                self.is_called(switch.prev, switch.prev_comm);
                self.is_called(switch.next, switch.next_comm);
                (switch.prev, switch.next)
            }
            Known::Wakeup(wakeup) => {
                self.is_called(wakeup.tid, wakeup.comm);
                (event.tid.unwrap_or(0), wakeup.tid)
            }
            Known::Fork { child, .. } | Known::NewTask { child, .. } => {
                let is_thread = matches!(event.known, Known::NewTask { is_thread: true, .. });
                let parent = event.tid.unwrap_or(0);
                self.end(*child);
                if (is_thread || self.choice.has_children) && self.has(parent) {
                    self.show(*child);
                }
                (parent, *child)
            }
            Known::Renamed { tid, .. } | Known::Migrate { tid } | Known::Exec { tid } => {
                (event.tid.unwrap_or(0), *tid)
            }
            Known::Freed { tid } => {
                self.end(*tid);
                (event.tid.unwrap_or(0), *tid)
            }
            _ => (event.tid.unwrap_or(0), event.tid.unwrap_or(0)),
        };
        event.follows = Follows {
            current: self.has(current),
            other: self.has(other),
            every_cpu: self.choice.has_all_cpus,
        };
        if let Known::Switch(switch) = &event.known
            && state::off(switch.prev_state).is_none()
        {
            self.end(switch.prev);
        }
    }

    fn has(&self, tid: Tid) -> bool {
        match (self.choice.threads, tid) {
            (Chosen::All, _) | (Chosen::Most, 0) => true,
            (Chosen::Unknown, _) | (Chosen::Some { .. }, 0) => false,
            (Chosen::Most | Chosen::Some { .. }, _) => {
                self.shown.get(tid as usize / 64).is_some_and(|word| word >> (tid % 64) & 1 != 0)
            }
        }
    }

    /// A record has the name of a thread.
    fn is_called(&mut self, tid: Tid, name: &[u8]) {
        if self.choice.names.is_empty() {
            return;
        }
        if self.choice.names.iter().any(|pattern| glob::matches_bytes(pattern.as_bytes(), name)) {
            self.show(tid);
        } else {
            self.end(tid);
        }
    }

    /// A thread is one of those that were recorded.
    pub(super) fn show(&mut self, tid: Tid) {
        let word = tid as usize / 64;
        if tid == 0 || word >= TIDS / 64 {
            return;
        }
        if word >= self.shown.len() {
            self.shown.resize((word + 1).next_power_of_two(), 0);
        }
        self.shown[word] |= 1 << (tid % 64);
    }

    /// The id is nobody's: who gets it next is another thread.
    fn end(&mut self, tid: Tid) {
        if let Some(word) = self.shown.get_mut(tid as usize / 64) {
            *word &= !(1 << (tid % 64));
        }
    }
}

#[cfg(test)]
impl Followed {
    /// Of a recording that says this of itself.
    pub(super) fn told(only: &[&str]) -> Self {
        let only: Vec<_> = only.iter().map(|line| (*line).to_owned()).collect();
        Self::from((Choice::of(&only), Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Switch, Wakeup};
    use super::*;

    const SOME: Chosen = Chosen::Some { is_idle_out: false };
    const THREADS: Chosen = Chosen::Some { is_idle_out: true };

    fn event(tid: Tid, known: Known<'_>) -> Event<'_> {
        Event::whole(Some(tid), Context::Thread, known)
    }

    /// What is marked in a switch.
    fn switch(followed: &mut Followed, prev: Tid, prev_state: u64, next: Tid) -> (bool, bool) {
        let switch = Switch { prev, prev_comm: b"", prev_state, next, next_comm: b"" };
        let mut event = event(prev, Known::Switch(switch));
        followed.mark(&mut event);
        (event.follows.current, event.follows.other)
    }

    #[test]
    fn lines_of_a_ledger_say_what_was_chosen() {
        let of = |lines: &[&str]| Followed::told(lines).choice;
        let all = of(&[]);
        assert_eq!((all.threads, all.has_children, all.has_all_cpus), (Chosen::All, false, true));
        assert_eq!(of(&["CPUs 0-3"]), Choice { has_all_cpus: false, ..all.clone() });
        let threads = |lines: &[&str]| of(lines).threads;
        let processes = Choice { threads: THREADS, processes: vec![3, 4], ..all.clone() };
        assert_eq!(of(&["processes 3, 4"]), processes);
        assert_eq!(
            of(&["processes 3, 4 and the command with their children"]),
            Choice { has_children: true, ..processes }
        );
        let with_children = Choice { threads: THREADS, has_children: true, ..all.clone() };
        assert_eq!(of(&["the command with their children"]), with_children);
        let names = vec!["a*".to_owned(), "b".to_owned()];
        assert_eq!(of(&["threads named a*, b"]), Choice { threads: THREADS, names, ..all.clone() });
        assert_eq!(of(&["threads named a*, b", "processes 3"]), Choice { threads: THREADS, ..all });
        assert_eq!(threads(&["all but threads named a*"]), Chosen::Most);
        assert_eq!(threads(&["all but threads of the users 0", "threads named a"]), THREADS);
        for (line, is_idle_out) in [
            ("threads of the users 1000", true),
            ("threads of the users 1000, 0", false),
            ("threads of the groups 5", true),
            ("threads of the groups with the virtual ids 5", false),
            ("control groups /a/b", true),
            ("control groups /", false),
            ("threads named a*, b", true),
            ("threads named s*", false),
            ("no threads of the users", false),
            ("what was tracked, which changed: threads of the users 1; then all threads", false),
        ] {
            assert_eq!(threads(&[line]), Chosen::Some { is_idle_out }, "{line}");
        }
        assert_eq!(threads(&["threads of the users 0", "control groups /a"]), THREADS);
    }

    #[test]
    fn threads_are_followed_from_the_event_on_that_shows_them() {
        let mut followed = Followed::told(&["the command"]);
        assert!(!followed.has_all());
        // One of both was recorded: it is not known which.
        assert_eq!(switch(&mut followed, 7, 0, 8), (false, false));
        followed.show(7);
        assert_eq!(switch(&mut followed, 8, 0, 7), (false, true));
        // An idle thread is none of them: so 9 is.
        assert_eq!(switch(&mut followed, 0, 0, 9), (false, true));
        assert_eq!(switch(&mut followed, 9, 1, 8), (true, false));
        // It ends, and its id is another one's.
        assert_eq!(switch(&mut followed, 9, 0x10, 8), (true, false));
        assert_eq!(switch(&mut followed, 8, 1, 9), (false, false));
        let mut woken = event(8, Known::Wakeup(Wakeup { tid: 7, comm: b"", is_new: false }));
        followed.mark(&mut woken);
        assert_eq!(woken.follows, Follows { current: false, other: true, every_cpu: true });
    }

    #[test]
    fn an_idle_thread_shows_nobody_where_it_may_be_recorded() {
        let mut followed = Followed::told(&["threads of the users 0"]);
        assert_eq!(followed.choice.threads, SOME);
        assert_eq!(switch(&mut followed, 0, 0, 9), (false, false));
        // Where some threads are left out, it is recorded.
        let mut followed = Followed::told(&["all but threads named a"]);
        assert_eq!(switch(&mut followed, 0, 0, 9), (true, false));
        let mut followed = Followed::told(&["CPUs 1"]);
        let mut event = event(7, Known::Migrate { tid: 8 });
        followed.mark(&mut event);
        assert_eq!(event.follows, Follows { every_cpu: false, ..Follows::ALL });
    }

    #[test]
    fn threads_that_the_choice_names_are_followed() {
        let mut followed = Followed::told(&["processes 7, 9"]);
        assert_eq!(switch(&mut followed, 7, 1, 8), (true, false));
        let mut followed = Followed::told(&["threads named a*"]);
        let mut named = |prev_comm, next_comm| {
            let switch = Switch { prev: 7, prev_comm, prev_state: 0, next: 8, next_comm };
            let mut event = event(7, Known::Switch(switch));
            followed.mark(&mut event);
            (event.follows.current, event.follows.other)
        };
        assert_eq!(named(b"ab", b"b"), (true, false));
        assert_eq!(named(b"b", b"a"), (false, true));
    }

    #[test]
    fn children_are_followed_where_the_choice_has_them() {
        let fork = |followed: &mut Followed, parent, child| {
            followed.mark(&mut event(parent, Known::Fork { child, comm: b"" }));
            followed.has(child)
        };
        let mut followed = Followed::told(&["processes 7"]);
        followed.show(7);
        followed.show(8);
        assert!(!fork(&mut followed, 7, 8), "the former one has ended");
        let mut followed = Followed::told(&["processes 7 with their children"]);
        followed.show(7);
        assert!(fork(&mut followed, 7, 8) && fork(&mut followed, 8, 9) && !fork(&mut followed, 5, 9));
    }
}
