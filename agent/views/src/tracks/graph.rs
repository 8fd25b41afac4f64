//! Functions of the kernel that call each other: `funcgraph_entry` and `funcgraph_exit`.

use std::collections::HashMap;

use super::{At, Losses, Part, Row, Sink, Stamp, Thread, Threads};
use analysis::answers::Tid;
use ftrace_event::stacks::symbol;
use ftrace_event::{EventTable, FieldReader, Meaning, Symbols};

/// Most functions inside one another that have rows of their own.
const DEPTH: usize = 64;

/// A function that has not returned.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: u64,
    depth: u64,
    since: u64,
    first: u64,
    losses: Stamp,
}

/// The functions that a thread, or the idle thread of a CPU, is in.
#[derive(Debug, Default)]
pub(super) struct Stack(Vec<Open>);

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    function: u64,
    depth: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    IsCalled,
    /// For how long it ran, if the record says so.
    Returns(Option<u64>),
}

/// Where the fields of an event are.
#[derive(Clone, Copy, Debug)]
struct Fields {
    is_exit: bool,
    function: FieldReader,
    depth: FieldReader,
    times: Option<(FieldReader, FieldReader)>,
}

/// The events of a file.
#[derive(Debug, Default)]
pub(crate) struct GraphEvents {
    by_id: HashMap<u16, Fields>,
}

impl GraphEvents {
    /// Those of a table.
    pub(crate) fn of(events: &EventTable) -> Self {
        let mut by_id = HashMap::new();
        for event in events.iter().filter(|event| event.system() == "ftrace") {
            let is_exit = match event.name() {
                "funcgraph_entry" | "fgraph_retaddr_entry" => false,
                "funcgraph_exit" => true,
                _ => continue,
            };
            let field = |name: &str| event.typed(name, Meaning::Number);
            let times = field("calltime").zip(field("rettime"));
            if let Some((function, depth)) = field("func").zip(field("depth")) {
                by_id.insert(event.format().id, Fields { is_exit, function, depth, times });
            }
        }
        Self { by_id }
    }

    /// Whether an event is one of them.
    pub(crate) fn contains(&self, id: u16) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn read(&self, id: u16, record: &[u8]) -> Option<Call> {
        let fields = self.by_id.get(&id)?;
        let number = |field: FieldReader| field.number(record);
        let time = || fields.times.and_then(|(call, ret)| number(ret)?.checked_sub(number(call)?));
        let (function, depth) = (number(fields.function)?, number(fields.depth)?);
        let what = if fields.is_exit { What::Returns(time()) } else { What::IsCalled };
        Some(Call { function, depth, what })
    }
}

/// The functions that run on idle threads, which all have the id 0.
#[derive(Debug, Default)]
pub(super) struct Graph {
    idle: HashMap<u32, Stack>,
}

impl Graph {
    pub(super) fn look(
        &mut self,
        at: At,
        (tid, call): (Tid, Call),
        threads: &mut Threads,
        losses: &Losses,
        symbols: &dyn Symbols,
        sink: &mut Sink,
    ) {
        let (stack, owner) = if tid == 0 {
            (self.idle.entry(at.cpu).or_default(), Owner::Idle(at.cpu))
        } else {
            let Some((number, thread)) = threads.find(tid, Thread::default) else { return };
            (&mut thread.of.graph, Owner::Thread(number as u32))
        };
        stack.look(at, owner, call, losses, symbols, sink);
    }

    /// The recording ends: what has not returned is told up to there, or to the loss after which it may have.
    pub(super) fn finish(
        &mut self,
        end: u64,
        threads: &mut Threads,
        losses: &Losses,
        symbols: &dyn Symbols,
        sink: &mut Sink,
    ) {
        for (cpu, stack) in std::mem::take(&mut self.idle) {
            stack.finish(Owner::Idle(cpu), end, losses, symbols, sink);
        }
        for (number, thread) in threads.iter_mut().enumerate() {
            let stack = std::mem::take(&mut thread.of.graph);
            stack.finish(Owner::Thread(number as u32), end, losses, symbols, sink);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    Thread(u32),
    Idle(u32),
}

impl Owner {
    /// The row of its functions that are so deep. The last one has all that are deeper.
    fn row(self, depth: u64) -> Row {
        let lane = depth.min(DEPTH as u64) as u32;
        match self {
            Self::Thread(number) => Row::Graph(number, lane),
            Self::Idle(cpu) => Row::IdleGraph(cpu, lane),
        }
    }
}

impl Stack {
    fn look(
        &mut self,
        at: At,
        owner: Owner,
        call: Call,
        losses: &Losses,
        symbols: &dyn Symbols,
        sink: &mut Sink,
    ) {
        let Call { function, depth, what } = call;
        let What::Returns(time) = what else {
            // What is as deep has returned without a record.
            self.0.retain(|open| open.depth < depth);
            if self.0.len() < DEPTH {
                let (since, first) = (at.time, at.event);
                self.0.push(Open { function, depth, since, first, losses: losses.stamp() });
            }
            return;
        };
        let place = self.0.iter().rposition(|open| {
            open.depth == depth && open.function == function && losses.is_known(open.losses)
        });
        let (start, first) = match (place.and_then(|place| self.0.get(place)), time) {
            (Some(open), _) => (open.since, open.first),
            // Its call was not recorded.
            (None, Some(time)) => (at.time.saturating_sub(time), 0),
            (None, None) => return,
        };
        self.0.retain(|open| open.depth < depth);
        let key = label(function, symbols, sink);
        sink.slice(owner.row(depth), Part { start, end: at.time, key, arg: 0, first, last: at.event });
    }

    /// Tells of all that has not returned.
    fn finish(self, owner: Owner, end: u64, losses: &Losses, symbols: &dyn Symbols, sink: &mut Sink) {
        for Open { function, depth, since, first, losses: known } in self.0 {
            let end = losses.since(known, since).map_or(end, |time| time.min(end));
            let key = label(function, symbols, sink);
            sink.slice(owner.row(depth), Part { start: since, end, key, arg: 0, first, last: 0 });
        }
    }
}

/// The name of a function.
fn label(function: u64, symbols: &dyn Symbols, sink: &mut Sink) -> u32 {
    match symbol(symbols, function) {
        Some(symbol) => sink.labels.number(symbol.name),
        None => sink.labels.number(&format!("{function:#x}")),
    }
}
