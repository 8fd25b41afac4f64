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

use std::sync::Arc;

use super::known::{Context, Event, Follows, Known, Tid};
use super::threads::TIDS;
use ftrace_event::{EventTable, FieldReader, Meaning, Printer};
use stdx::input::glob;
use tracedat::ledger::UNKNOWN_THREADS;
use tracedat::reader::Record;

/// Most patterns of names that are tried. Recorders take fewer.
const MOST_NAMES: usize = 1 << 10;

/// What a recording says of the threads and CPUs that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is about something else")]
pub(super) struct Choice {
    threads: Chosen,
    /// A thread is recorded from its first moment on, or from that of the recording; it does not become one
    /// of those that are while it runs.
    is_from_begin: bool,
    /// The threads that a recorded one makes are recorded, too.
    has_children: bool,
    /// All CPUs are recorded.
    has_all_cpus: bool,
    /// Processes that are recorded: their first threads.
    processes: Vec<Tid>,
    /// The recorded threads are those whose names match one of these.
    names: Vec<String>,
    /// And not one of these.
    not_names: Vec<String>,
    /// Nothing but these says which threads are recorded.
    is_by_one: bool,
}

/// Where both halves of a pair of events fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halves {
    /// In one thread, or in the interrupt of it.
    OfThread,
    /// The same, and on one CPU.
    InOneGo,
    /// On one CPU, the second one in an interrupt.
    OnCpu,
    /// Anywhere, the second one in an interrupt.
    EndsInInterrupt,
    /// Anywhere, and the second one is recorded of every thread.
    EndsWithAll,
    /// Anywhere.
    Anywhere,
}

/// Which threads are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    All,
    /// All but some.
    Most {
        /// The idle threads are recorded.
        is_idle_in: bool,
    },
    /// Some.
    Some {
        /// None of them is an idle thread.
        is_idle_out: bool,
    },
    /// Of no thread all switches are there: they were chosen by something else, or differently at times.
    Unknown,
}

/// Where a record says whose it is.
#[derive(Clone, Copy, Debug)]
struct Whose {
    pid: FieldReader,
    flags: Option<FieldReader>,
}

/// Which threads a recording follows.
#[derive(Clone, Debug)]
pub struct Followed {
    choice: Arc<Choice>,
    /// By their ids, those that events show. No more than 512 KiB.
    shown: Vec<u64>,
    /// By the events' numbers: of events that are recorded for the current thread alone.
    whose: Arc<[Option<Whose>]>,
}

impl Choice {
    /// From the lines of a ledger, each of which leaves out others.
    pub(super) fn of(only: &[String]) -> Self {
        let (of_cpus, of_threads): (Vec<&String>, Vec<_>) =
            only.iter().partition(|line| line.starts_with("CPUs "));
        let mut choice = Self {
            threads: Chosen::All,
            is_from_begin: true,
            has_children: false,
            has_all_cpus: of_cpus.is_empty(),
            processes: Vec::new(),
            names: Vec::new(),
            not_names: Vec::new(),
            is_by_one: of_threads.len() == 1,
        };
        for line in of_threads {
            choice.add(line);
        }
        if choice.names.len() + choice.not_names.len() > MOST_NAMES {
            (choice.names, choice.not_names) = (Vec::new(), Vec::new());
            choice.threads = Chosen::Unknown;
        }
        choice
    }

    /// The same, or that nothing is known of threads if something else chose them.
    #[must_use]
    pub(super) fn unless(self, are_chosen: bool) -> Self {
        let threads = if are_chosen { Chosen::Unknown } else { self.threads };
        Self { threads, ..self }
    }

    /// Whether both halves of a pair that fires like this are recorded, or none, or the same one each time.
    pub(super) fn joins(&self, halves: Halves) -> bool {
        let by_threads = match self.threads {
            Chosen::All => true,
            Chosen::Most { .. } => halves != Halves::Anywhere,
            Chosen::Some { .. } | Chosen::Unknown => {
                matches!(halves, Halves::OfThread | Halves::InOneGo | Halves::EndsWithAll)
            }
        };
        let is_on_cpu = matches!(halves, Halves::InOneGo | Halves::OnCpu);
        by_threads && (self.has_all_cpus || is_on_cpu)
    }

    /// Whether threads with a name are not recorded.
    pub(super) fn leaves_out(&self, name: &[u8]) -> bool {
        has_name(&self.not_names, name) || !self.names.is_empty() && !has_name(&self.names, name)
    }

    fn add(&mut self, line: &str) {
        if line.starts_with("processes ") || line.starts_with("the command") {
            self.has_children |= line.ends_with(" with their children");
            self.threads = self.threads.and(Chosen::Some { is_idle_out: true });
            if self.is_by_one {
                let values = line.strip_prefix("processes ").into_iter().flat_map(|ids| ids.split(", "));
                self.processes = values.filter_map(|id| id.split(' ').next()?.parse().ok()).collect();
            }
            return;
        }
        self.is_from_begin = false;
        if line.starts_with("what was tracked, which changed: ") || line == UNKNOWN_THREADS {
            self.threads = Chosen::Unknown;
            return;
        }
        // A state of what is tracked is one line.
        if line.contains(" and ") {
            self.threads = self.threads.and(Chosen::Some { is_idle_out: false });
            return;
        }
        let (line, are_out) = line.strip_prefix("all but ").map_or((line, false), |line| (line, true));
        let is_idle_other = !may_be_idle(line);
        self.threads = self.threads.and(if are_out {
            Chosen::Most { is_idle_in: is_idle_other }
        } else {
            Chosen::Some { is_idle_out: is_idle_other }
        });
        if let Some(names) = line.strip_prefix("threads named ") {
            let names = names.split(", ").map(str::to_owned);
            if are_out { self.not_names.extend(names) } else { self.names.extend(names) }
        }
    }
}

impl Chosen {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Some { is_idle_out: one }, Self::Some { is_idle_out: other }) => {
                Self::Some { is_idle_out: one || other }
            }
            (Self::Some { is_idle_out }, Self::Most { is_idle_in })
            | (Self::Most { is_idle_in }, Self::Some { is_idle_out }) => {
                Self::Some { is_idle_out: is_idle_out && is_idle_in }
            }
            (Self::Most { is_idle_in: one }, Self::Most { is_idle_in: other }) => {
                Self::Most { is_idle_in: one && other }
            }
            (Self::All, other) | (other, Self::All) => other,
        }
    }
}

/// Whether an idle thread may be one of those that a line is about. They have process, user and group 0, are
/// at the roots of control groups, and have the names `swapper/0` and so on.
fn may_be_idle(line: &str) -> bool {
    let values = |kind: &str| line.strip_prefix(kind).map(|values| values.split(", "));
    let is_number = |value: &str| value.parse::<u32>().is_ok_and(|number| number != 0);
    for kind in ["threads of the processes ", "threads of the users ", "threads of the groups "] {
        if let Some(mut values) = values(kind) {
            return !values.all(is_number);
        }
    }
    if let Some(mut values) = values("control groups ") {
        // A path of the file system may be that of a root.
        return values.any(|path| path.starts_with("/sys/") || path.split('/').all(str::is_empty));
    }
    if let Some(mut values) = values("threads named ") {
        return values.any(|pattern| {
            let literal = pattern.split(['*', '?', '[', '\\']).next().unwrap_or_default();
            let may_go_on = literal.len() < pattern.len();
            literal.starts_with("swapper/") || may_go_on && "swapper/".starts_with(literal)
        });
    }
    true
}

fn has_name(patterns: &[String], name: &[u8]) -> bool {
    patterns.iter().any(|pattern| glob::matches_name(pattern, name))
}

impl Followed {
    /// Of a recording that has these events, and of which this was chosen. `is_of_every_thread`: whether an
    /// event is recorded whatever thread it is of.
    pub(super) fn new(
        events: &EventTable,
        choice: Choice,
        is_of_every_thread: &dyn Fn(&Printer) -> bool,
    ) -> Self {
        let mut whose = Vec::new();
        for event in events.iter() {
            let id = usize::from(event.format().id);
            if whose.len() <= id {
                whose.resize(id + 1, None);
            }
            let is_of_two = matches!(
                (event.system(), event.name()),
                ("sched", "sched_switch" | "sched_waking" | "sched_wakeup" | "sched_wakeup_new")
            );
            // A stack may be that of such an event.
            let may_be_of_others = is_of_two || event.is_stack() || is_of_every_thread(event);
            let field = |name| event.typed(name, Meaning::Number);
            let pid = field("common_pid").filter(|_| !may_be_of_others);
            whose[id] = pid.map(|pid| Whose { pid, flags: field("common_flags") });
        }
        Self::from(choice, whose)
    }

    fn from(choice: Choice, whose: Vec<Option<Whose>>) -> Self {
        let choice = Arc::new(choice);
        let mut followed = Self { choice: Arc::clone(&choice), shown: Vec::new(), whose: whose.into() };
        for tid in &choice.processes {
            followed.show(*tid);
        }
        followed
    }

    /// What says which threads are recorded.
    pub(super) fn choice(&self) -> Arc<Choice> {
        Arc::clone(&self.choice)
    }

    /// Whether all threads and CPUs were recorded.
    pub(super) fn has_all(&self) -> bool {
        self.choice.threads == Chosen::All && self.choice.has_all_cpus
    }

    /// Looks at a record of any event, known or not, before [`Followed::mark`].
    #[inline]
    pub fn note(&mut self, id: u16, record: &Record<'_>) {
        if self.choice.threads == Chosen::All {
            return;
        }
        let Some(whose) = self.whose.get(usize::from(id)).copied().flatten() else { return };
        // An interrupt is recorded whatever thread it interrupts, where some are left out.
        let flags = whose.flags.and_then(|flags| flags.number(record.data)).unwrap_or(0);
        if Context::of(flags) == Context::Thread
            && let Some(tid) = whose.pid.number(record.data)
        {
            self.show(tid as Tid);
        }
    }

    /// Notes in an event which of its threads are followed.
    #[inline]
    pub fn mark(&mut self, event: &mut Event<'_>) {
        if self.has_all() {
            return;
        }
        let current = event.tid.unwrap_or(0);
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
                (current, wakeup.tid)
            }
            Known::Begins { child, comm, is_thread, is_seen } => {
                // One that was found has had no other beginning, and may be shown by this very record.
                if *is_seen {
                    self.begins(current, *child, comm, *is_thread);
                }
                (current, *child)
            }
            Known::NewTask { child, .. } | Known::Fork { child, .. } => (current, *child),
            Known::Takes { from, to } => {
                if self.has(*from) {
                    self.show(*to);
                }
                self.end(*from);
                (*to, *to)
            }
            Known::Renamed { tid, comm, .. } => {
                if let Some(comm) = comm {
                    self.is_called(*tid, comm);
                }
                (current, *tid)
            }
            Known::Migrate { tid } | Known::Exec { tid, .. } | Known::Ends { tid } => (current, *tid),
            _ => (current, current),
        };
        event.follows = Follows {
            current: self.has(current),
            other: self.has(other),
            every_cpu: self.choice.has_all_cpus,
            from_begin: self.choice.is_from_begin,
            all: false,
        };
        if let Known::Ends { tid } = event.known {
            self.end(tid);
        }
    }

    fn has(&self, tid: Tid) -> bool {
        match (self.choice.threads, tid) {
            (Chosen::All, _) => true,
            (Chosen::Most { is_idle_in }, 0) => is_idle_in,
            (Chosen::Unknown, _) | (Chosen::Some { .. }, 0) => false,
            (Chosen::Most { .. } | Chosen::Some { .. }, _) => {
                self.shown.get(tid as usize / 64).is_some_and(|word| word >> (tid % 64) & 1 != 0)
            }
        }
    }

    /// A thread makes another one.
    fn begins(&mut self, parent: Tid, child: Tid, name: &[u8], is_thread: bool) {
        self.end(child);
        if (is_thread || self.choice.has_children) && self.has(parent) {
            self.show(child);
        }
        self.is_called(child, name);
    }

    /// A record has the name of a thread.
    fn is_called(&mut self, tid: Tid, name: &[u8]) {
        if self.choice.leaves_out(name) {
            self.end(tid);
        } else if self.choice.is_by_one && !self.choice.names.is_empty() {
            self.show(tid);
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
        Self::from(Choice::of(&only), Vec::new())
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
        let of = |lines: &[&str]| Choice::clone(&Followed::told(lines).choice);
        let all = of(&[]);
        assert_eq!((all.threads, all.has_children, all.has_all_cpus), (Chosen::All, false, true));
        assert_eq!(of(&["CPUs 0-3"]), Choice { has_all_cpus: false, ..all });
        let threads = |lines: &[&str]| of(lines).threads;
        let processes = of(&["processes 3, 4"]);
        assert_eq!((processes.threads, &processes.processes[..]), (THREADS, &[3, 4][..]));
        let and_command = of(&["processes 3, 4 and the command with their children"]);
        assert_eq!(and_command, Choice { has_children: true, ..processes });
        let command = of(&["the command with their children"]);
        assert!(command.threads == THREADS && command.has_children && command.is_from_begin);
        let named = of(&["threads named a*, b"]);
        assert_eq!(
            (named.threads, &named.names[..], named.is_by_one),
            (THREADS, &["a*", "b"].map(str::to_owned)[..], true)
        );
        assert!(!of(&["threads named a*, b", "processes 3"]).is_by_one && !named.is_from_begin);
        assert_eq!(of(&["all but threads named a"]).not_names, ["a"]);
        for (line, is_idle_out) in [
            ("threads of the users 1000", true),
            ("threads of the users 1000, 0", false),
            ("threads of the users root", false),
            ("threads of the groups 5", true),
            ("threads of the groups with the virtual ids 5", false),
            ("threads of the processes with the virtual ids 5, 16", false),
            ("control groups /a/b", true),
            ("control groups /", false),
            ("control groups //", false),
            ("control groups /sys/fs/cgroup", false),
            ("threads named a*, b", true),
            ("threads named s*", false),
            ("threads named swapper/1", false),
            ("threads named [a-z]*", false),
            ("no threads of the users", false),
            ("threads of the users 5 and all but threads named x", false),
        ] {
            assert_eq!(threads(&[line]), Chosen::Some { is_idle_out }, "{line}");
            let but = format!("all but {line}");
            if !line.contains(" and ") {
                assert_eq!(threads(&[&but]), Chosen::Most { is_idle_in: is_idle_out }, "{but}");
            }
        }
        assert!(Followed::told(&["threads of the processes with the virtual ids 5, 16"]).shown.is_empty());
        assert_eq!(threads(&["threads of the users 0", "control groups /a"]), THREADS);
        assert_eq!(threads(&["all but threads of the users 0", "threads named a"]), SOME);
        let changed = "what was tracked, which changed: threads of the users 1; then all threads";
        assert_eq!(threads(&[changed]), Chosen::Unknown);
        assert_eq!(threads(&[UNKNOWN_THREADS]), Chosen::Unknown);
        let many = format!("threads named {}", vec!["a"; MOST_NAMES + 1].join(", "));
        assert_eq!(threads(&[&many]), Chosen::Unknown);
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
        followed.mark(&mut event(9, Known::Ends { tid: 9 }));
        assert_eq!(switch(&mut followed, 8, 1, 9), (false, false));
        let mut woken = event(8, Known::Wakeup(Wakeup { tid: 7, comm: b"", is_new: false }));
        followed.mark(&mut woken);
        assert_eq!(woken.follows, Follows { current: false, all: false, ..Follows::ALL });
    }

    #[test]
    fn an_idle_thread_shows_nobody_where_it_may_be_recorded() {
        let mut followed = Followed::told(&["threads of the users 0"]);
        assert_eq!(followed.choice.threads, SOME);
        assert_eq!(switch(&mut followed, 0, 0, 9), (false, false));
        // Where some threads are left out, it is recorded.
        let mut followed = Followed::told(&["all but threads named a"]);
        assert_eq!(switch(&mut followed, 0, 0, 9), (true, false));
        let mut followed = Followed::told(&["all but threads of the users 0"]);
        assert_eq!(switch(&mut followed, 0, 0, 9), (false, false));
        let mut followed = Followed::told(&["CPUs 1"]);
        let mut event = event(7, Known::Migrate { tid: 8 });
        followed.mark(&mut event);
        assert_eq!(event.follows, Follows { every_cpu: false, all: false, ..Follows::ALL });
    }

    /// Ends of requests are recorded of every thread: they show none of the chosen ones.
    #[test]
    fn events_of_every_thread_show_nobody() {
        let format = |id: u16| {
            format!(
                "name: e{id}\nID: {id}\nformat:\n\
                 \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n"
            )
        };
        let mut events = EventTable::new(ftrace_event::Machine::default());
        for id in [1, 2] {
            events.add("s", &format(id), &ftrace_event::NoNames).unwrap();
        }
        let choice = Choice::of(&["the command".to_owned()]);
        let mut followed = Followed::new(&events, choice, &|event| event.name() == "e2");
        for (id, tid) in [(1_u16, 7_u32), (2, 8)] {
            let mut data = [0; 8];
            data[..2].copy_from_slice(&id.to_le_bytes());
            data[4..].copy_from_slice(&tid.to_le_bytes());
            let endian = ftrace_event::Endian::Little;
            let record =
                Record { reader: 0, buffer: 0, cpu: 0, timestamp: 0, missed: None, data: &data, endian };
            followed.note(id, &record);
        }
        assert_eq!((followed.has(7), followed.has(8)), (true, false));
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
        let mut followed = Followed::told(&["all but threads named a*"]);
        followed.show(7);
        followed.mark(&mut event(7, Known::Renamed { tid: 7, comm: Some(b"ab"), before: b"" }));
        assert!(!followed.has(7));
    }

    #[test]
    fn children_are_followed_where_the_choice_has_them() {
        let fork = |followed: &mut Followed, parent, child| {
            let begins = Known::Begins { child, comm: b"", is_thread: false, is_seen: true };
            followed.mark(&mut event(parent, begins));
            followed.has(child)
        };
        let mut followed = Followed::told(&["processes 7"]);
        followed.show(7);
        followed.show(8);
        assert!(!fork(&mut followed, 7, 8), "the former one has ended");
        let mut followed = Followed::told(&["processes 7 with their children"]);
        followed.show(7);
        assert!(fork(&mut followed, 7, 8) && fork(&mut followed, 8, 9) && !fork(&mut followed, 5, 9));
        let mut followed = Followed::told(&["processes 7"]);
        let begins = Known::Begins { child: 8, comm: b"", is_thread: true, is_seen: true };
        followed.mark(&mut event(7, begins));
        assert!(followed.has(8));
        followed.mark(&mut event(9, Known::Takes { from: 8, to: 9 }));
        assert!(!followed.has(8) && followed.has(9));
    }
}
