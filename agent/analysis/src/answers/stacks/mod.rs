//! The stacks of any event, weighted.
//!
//! | file | subject |
//! |---|---|
//! | `pick` | which events are counted, and what each weighs |
//! | `functions` | the functions that stacks go through |
//! | `tally` | events counted by thread and stack |
//! | `answer` | what is told at the end |

mod answer;
mod functions;
mod pick;
mod tally;

pub use self::{
    answer::{FunctionWeight, StackWeight, StacksAnswer, ThreadWeight},
    pick::{Pick, Weight},
    tally::Sum,
};
pub(super) use self::{
    answer::{flame, frames},
    tally::Tally,
};
use super::{Analysis, AnyRecord, At, Event, Frames, Names, Scope};

/// The analysis.
#[derive(Clone, Debug)]
pub struct Stacks {
    pick: Pick,
    tally: Tally,
    awaits: Option<u64>,
}

impl Stacks {
    /// An analysis of events in a part of a recording.
    pub fn new(scope: Scope, pick: Pick) -> Self {
        Self { pick, tally: Tally::new(scope, None), awaits: None }
    }
}

impl Analysis for Stacks {
    type Answer = StacksAnswer;

    const WANTS_STACKS: bool = true;

    fn look(&mut self, _at: At, event: &Event<'_>) {
        self.awaits = None;
        self.tally.look(event);
    }

    fn picks(&self, id: u16) -> bool {
        self.pick.has(id)
    }

    fn pick(&mut self, at: At, record: &AnyRecord<'_>) -> bool {
        self.awaits = None;
        let Some(tid) = self.pick.thread_of(record) else { return false };
        self.awaits = if self.pick.is_timed() {
            self.tally.timed(at, tid)
        } else {
            self.tally.event(at, tid, self.pick.weigh(record))
        };
        true
    }

    fn awaits_stack(&self) -> Option<u64> {
        self.awaits
    }

    fn stack(&mut self, of: u64, frames: Frames<'_>) {
        self.tally.stack(of, frames);
    }

    fn stack_ended(&mut self, of: u64, names: &Names<'_>) {
        self.tally.stack_ended(of, names);
    }

    fn lost(&mut self, _at: At) {
        self.tally.lost();
    }

    fn restart(&mut self, from: u64) {
        self.tally.restart(from);
    }

    fn answer(self, _end: u64, names: &Names<'_>) -> StacksAnswer {
        StacksAnswer::of(self.tally.told(names), self.pick.unit().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Covered, Topic, answer};
    use super::*;
    use report::crafted;
    use report::crafted::{Entry, ev, stack};

    const SYMBOLS: &str = "1000 t f1\n2000 t f2\n3000 t f3\n9000 t end\n";
    const IRQ: u8 = 0x08;

    #[expect(clippy::needless_pass_by_value, reason = "each call makes its own")]
    fn ask(entries: &[Entry], events: &str, weight: &str, scope: Scope) -> (StacksAnswer, Covered) {
        let file = crafted::file(entries, SYMBOLS, "1 one\n2 two\n", "[local]");
        let Ok(weight) = weight.parse::<Weight>();
        let pick = Pick::of(&file, events, &weight).unwrap();
        answer(&file, Topic::Stacks, &scope, Stacks::new(scope.clone(), pick), &mut |_| {}).unwrap()
    }

    /// Stacks from the outermost function, with their counts and weights.
    fn stacks(answer: &StacksAnswer) -> Vec<(String, u64, u64)> {
        let text = |of: &StackWeight| {
            let names: Vec<&str> = frames(&of.comm, &of.user, &of.kernel).map(|frame| frame.name).collect();
            (names.join(";"), of.sum.count, of.sum.weight)
        };
        answer.stacks.iter().map(text).collect()
    }

    fn told(all: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        all.iter().map(|(text, count, weight)| ((*text).to_owned(), *count, *weight)).collect()
    }

    /// Each record is one nanosecond after the one before, from 1001 on.
    fn story() -> Vec<Entry> {
        vec![
            ev(1, 0, 7, 0),
            stack(1, 0, &[0x1000, 0x2000]),
            ev(2, 0, 1, 0),
            stack(2, 0, &[0x1004, 0x1008, 0x2000]),
            // Another address of the same function.
            ev(1, 0, 5, 0),
            stack(1, 0, &[0x1010, 0x2010]),
            ev(1, 0, 0, 0),
            // An interrupt, whose stack comes before that of what it interrupted.
            ev(2, 0, 1, 0),
            ev(2, IRQ, 9, 0),
            stack(2, IRQ, &[0x3000]),
            stack(2, 0, &[0x2000]),
        ]
    }

    #[test]
    fn events_are_counted_by_functions() {
        let (answer, covered) = ask(&story(), "ev", "count", Scope::default());
        let expected = [("one;f2;f1", 2, 2), ("two;f2;f1;f1", 1, 1), ("two;f2", 1, 1), ("two;f3", 1, 1)];
        assert_eq!(stacks(&answer), told(&expected));
        assert_eq!((answer.all.count, answer.without_stack.count, covered.events), (6, 1, 6));
        let functions: Vec<_> =
            answer.functions.iter().map(|of| (&*of.name, of.own_weight, of.total_weight)).collect();
        assert_eq!(functions, [("f1", 3, 3), ("f2", 1, 4), ("f3", 1, 1)]);
        let threads: Vec<_> = answer.threads.iter().map(|of| (of.tid, of.sum.count)).collect();
        assert_eq!(threads, [(1, 3), (2, 3)]);
        let flame = answer.flame("title");
        assert_eq!((flame.len(), flame.total()), (4, 5));
    }

    #[test]
    fn filters_and_scopes_choose_events_with_their_stacks() {
        let (answer, _) = ask(&story(), "test:ev: ptr > 4", "count", Scope::default());
        assert_eq!(stacks(&answer), told(&[("one;f2;f1", 2, 2), ("two;f3", 1, 1)]));
        let scope = Scope { from: Some(1005), to: Some(1006), ..Scope::default() };
        assert_eq!(stacks(&ask(&story(), "ev", "count", scope).0), told(&[("one;f2;f1", 1, 1)]));
        let scope = Scope { tids: Some([2].into()), ..Scope::default() };
        assert_eq!(ask(&story(), "ev", "count", scope).0.threads.len(), 1);
        let scope = Scope { names: vec!["o*".to_owned()], ..Scope::default() };
        assert_eq!(stacks(&ask(&story(), "ev", "count", scope).0), told(&[("one;f2;f1", 2, 2)]));
    }

    #[test]
    fn fields_and_times_are_weights() {
        let (answer, _) = ask(&story(), "ev", "ptr", Scope::default());
        assert_eq!(stacks(&answer)[0], ("one;f2;f1".to_owned(), 2, 12));
        assert_eq!((answer.without_weight, answer.unit.name()), (1, "ptr"));
        // 1: at 1001, 1005 and 1007; 2: at 1003, 1008 and 1009. The last ones have no next one.
        let (answer, _) = ask(&story(), "ev", "time", Scope::default());
        let expected = [("one;f2;f1", 2, 6), ("two;f2;f1;f1", 1, 5), ("two;f2", 1, 1)];
        assert_eq!(stacks(&answer), told(&expected));
        assert_eq!((answer.without_weight, answer.all.weight), (2, 12));
        let scope = Scope { from: Some(1004), ..Scope::default() };
        let expected = [("two;f2;f1;f1", 1, 4), ("one;f2;f1", 2, 3), ("two;f2", 1, 1)];
        assert_eq!(stacks(&ask(&story(), "ev", "time", scope).0), told(&expected));
    }

    #[test]
    fn times_and_stacks_end_where_events_were_lost() {
        let mut entries = vec![ev(1, 0, 1, 0), Entry::Lost, stack(1, 0, &[0x1000]), ev(1, 0, 1, 0)];
        entries.extend([stack(1, 0, &[0x2000]), ev(1, 0, 1, 0)]);
        let (answer, covered) = ask(&entries, "ev", "time", Scope::default());
        assert_eq!(stacks(&answer), told(&[("one;f2", 1, 2)]));
        assert_eq!((answer.without_weight, covered.losses), (2, 1));
        let (answer, _) = ask(&entries, "ev", "count", Scope::default());
        assert_eq!((stacks(&answer), answer.without_stack.count), (told(&[("one;f2", 1, 1)]), 2));
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let file = crafted::file(&[], SYMBOLS, "", "[local]");
        for (events, weight, says) in [
            ("nothing", "count", "nothing"),
            ("kernel_stack", "count", "nothing but stacks"),
            ("ev", "pointer", "pointer"),
            ("ev: ptr ==", "count", "ptr =="),
        ] {
            let Ok(weight) = weight.parse::<Weight>();
            let error = Pick::of(&file, events, &weight).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_new_count_begins_with_nothing() {
        let file = crafted::file(&story(), SYMBOLS, "1 one\n", "[local]");
        let pick = Pick::of(&file, "ev", &Weight::Count).unwrap();
        let mut feed = super::super::Feed::new(&file, Scope::default(), Stacks::new(Scope::default(), pick));
        let mut records = file.reader().records().unwrap();
        while let Some(record) = records.next_record().unwrap() {
            feed.take(&file, &record);
            if record.timestamp == 1006 {
                feed.restart(1007);
            }
        }
        let (answer, _) = feed.answer(&file, Topic::Stacks);
        // The stack of the event at 1005 had not ended.
        assert_eq!(answer.all.count, 4);
    }
}
