//! What CPUs do, by samples: the tick of each CPU, or any other event that comes regularly.
//!
//! A tick is a timer's interrupt. Its stack has the interrupt's own functions as the innermost ones, which
//! are left out, so that what is left is what was interrupted. A CPU that is idle stops its tick, so that
//! fewer samples than time say so.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{
    Analysis, AnyRecord, At, Event, Frames, FunctionWeight, Names, Need, Pick, Scope, StackWeight, Sum,
    ThreadWeight, Weight,
    stacks::{Tally, flame},
};
use flame::{FlameStacks, Unit};
use report::TraceFile;
use tracedat::reader::Source;

/// The event of a tick.
const TICK: &str = "timer:hrtimer_expire_entry";

/// Its field with the function that the timer calls.
const FUNCTION: &str = "function";

/// The functions of ticks: kernel/time/tick-sched.c, the second up to Linux 6.8.
const TICKS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// Most functions of timers that are remembered.
const MOST_TIMERS: usize = 1 << 12;

/// Whether interrupts begin in a function of the kernel: arch/x86/entry/entry_64.S and
/// arch/x86/include/asm/idtentry.h (the second line up to Linux 5.7), arch/arm64/kernel/entry.S (the same),
/// arch/riscv/kernel/entry.S.
fn is_entry(function: &str) -> bool {
    function.starts_with("asm_sysvec_")
        || matches!(
            function,
            "asm_common_interrupt"
                | "asm_spurious_interrupt"
                | "asm_exc_nmi"
                | "end_repeat_nmi"
                | "apic_timer_interrupt"
                | "ret_from_intr"
                | "common_interrupt"
                | "hyperv_stimer0_callback_vector"
                | "el1h_64_irq"
                | "el1t_64_irq"
                | "el0t_64_irq"
                | "el0t_32_irq"
                | "el1h_64_fiq"
                | "el0t_64_fiq"
                | "el1_irq"
                | "el0_irq"
                | "el0_irq_naked"
                | "handle_exception"
                | "ret_from_exception"
        )
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// `None` if the recording has no such event.
    pick: Option<Pick>,
    /// Which of the timers' functions are ticks. `None` for other samples.
    ticks: Option<HashMap<u64, bool>>,
    tally: Tally,
    cpus: BTreeMap<u32, (u64, u64)>,
    other_timers: u64,
    unknown_timers: u64,
    /// Whether the function of some timer has a symbol.
    has_symbols: bool,
    awaits: Option<u64>,
}

/// What CPUs did, by samples. Where no timer's function has a symbol, nothing is known but how many expired.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuAnswer {
    /// Samples of threads that are asked about, without those of idle CPUs.
    pub samples: Option<u64>,
    /// Of those, the ones without a stack.
    pub without_stack: Option<u64>,
    /// Samples with a stack for which there was no room, of any thread. They are not in `samples`.
    pub others: u64,
    /// Samples in whose kernel stack no interrupt was found: they have the functions of the interrupt, if it
    /// was one.
    pub without_entry: Option<u64>,
    /// Timers that expired and are no ticks.
    pub other_timers: Option<u64>,
    /// Timers of which that is not known: there is no symbol for their function.
    pub unknown_timers: u64,
    /// By CPU, of all threads.
    pub cpus: Option<Vec<CpuSamples>>,
    /// By thread, the most first. A weight is a number of samples.
    pub threads: Option<Vec<ThreadWeight>>,
    /// By function, the one with the most of its own first.
    pub functions: Option<Vec<FunctionWeight>>,
    /// By thread and stack, the most first.
    pub stacks: Option<Vec<StackWeight>>,
}

/// Samples of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuSamples {
    /// Which.
    pub cpu: u32,
    /// Those of threads.
    pub busy: u64,
    /// Those of the idle thread.
    pub idle: u64,
}

impl Cpu {
    /// An analysis of the ticks in a part of a recording.
    pub fn of_ticks<S: Source>(file: &TraceFile<S>, scope: Scope) -> Self {
        Self::new(scope, Pick::of(file, TICK, &Weight::Count).ok(), Some(HashMap::new()))
    }

    /// An analysis of other samples; what they weigh does not matter.
    pub fn of_samples(scope: Scope, pick: Pick) -> Self {
        Self::new(scope, Some(pick), None)
    }

    fn new(scope: Scope, pick: Option<Pick>, ticks: Option<HashMap<u64, bool>>) -> Self {
        Self {
            pick,
            ticks,
            tally: Tally::new(scope, Some(is_entry)),
            cpus: BTreeMap::new(),
            other_timers: 0,
            unknown_timers: 0,
            has_symbols: false,
            awaits: None,
        }
    }

    /// Whether a record is a sample.
    fn is_sample(&mut self, of: &AnyRecord<'_>) -> bool {
        let Some(ticks) = &mut self.ticks else { return true };
        let event = of.events.get(of.id);
        let function =
            event.and_then(|event| event.value(event.field_index(FUNCTION)?, of.record.data)?.ok());
        let Some(address) = function.and_then(|function| function.address()) else {
            self.unknown_timers += 1;
            return false;
        };
        let is_tick = ticks.get(&address).copied().or_else(|| {
            let is_tick = TICKS.contains(&of.names.symbols.lookup(address)?.name);
            if ticks.len() < MOST_TIMERS {
                ticks.insert(address, is_tick);
            }
            Some(is_tick)
        });
        match is_tick {
            Some(true) => {}
            Some(false) => self.other_timers += 1,
            None => self.unknown_timers += 1,
        }
        self.has_symbols |= is_tick.is_some();
        is_tick == Some(true)
    }
}

impl Analysis for Cpu {
    type Answer = CpuAnswer;

    const WANTS_STACKS: bool = true;

    fn look(&mut self, _at: At, event: &Event<'_>) {
        self.awaits = None;
        self.tally.look(event);
    }

    fn picks(&self, id: u16) -> bool {
        self.pick.as_ref().is_some_and(|pick| pick.has(id))
    }

    fn pick(&mut self, at: At, record: &AnyRecord<'_>) -> bool {
        self.awaits = None;
        let Some(tid) = self.pick.as_ref().and_then(|pick| pick.thread_of(record)) else { return false };
        if !self.tally.scope.has(at) {
            return true;
        }
        if !self.is_sample(record) {
            return true;
        }
        let (busy, idle) = self.cpus.entry(at.cpu).or_default();
        if tid == 0 {
            *idle += 1;
        } else {
            *busy += 1;
            self.awaits = self.tally.event(at, tid, Some(1));
        }
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

    fn does_without(&self, need: &Need) -> bool {
        self.ticks.is_none() && need.events == [TICK]
    }

    fn lost(&mut self, _at: At) {
        self.tally.lost();
    }

    fn restart(&mut self, from: u64) {
        self.tally.restart(from);
        self.cpus.values_mut().for_each(|samples| *samples = (0, 0));
        (self.other_timers, self.unknown_timers) = (0, 0);
    }

    fn answer(self, _end: u64, names: &Names<'_>) -> CpuAnswer {
        let told = self.tally.told(names);
        let cpus = self.cpus.into_iter();
        let cpus = cpus.map(|(cpu, (busy, idle))| CpuSamples { cpu, busy, idle }).collect();
        let knows_ticks = self.has_symbols || self.unknown_timers == 0;
        CpuAnswer {
            samples: knows_ticks.then_some(told.all.count),
            without_stack: knows_ticks.then_some(told.without_stack.count),
            others: told.others.count,
            without_entry: knows_ticks.then_some(told.without_entry),
            other_timers: knows_ticks.then_some(self.other_timers),
            unknown_timers: self.unknown_timers,
            cpus: knows_ticks.then_some(cpus),
            threads: knows_ticks.then_some(told.threads),
            functions: knows_ticks.then_some(told.functions),
            stacks: knows_ticks.then_some(told.stacks),
        }
    }
}

impl CpuAnswer {
    /// Its stacks, for a flame graph. Samples of idle CPUs and those without a stack are not in it.
    pub fn flame(&self, title: &str) -> FlameStacks {
        let stacks = self.stacks.as_deref().unwrap_or_default();
        flame(title, Unit::Samples, stacks, Sum { count: self.others, weight: self.others })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Covered, Topic, answer};
    use super::*;
    use report::crafted;
    use report::crafted::{Entry, ev, stack};

    const SYMBOLS: &str = "1000 t tick\n2000 t asm_sysvec_apic_timer_interrupt\n3000 t vfs_read\n\
                           4000 t asm_exc_page_fault\n5000 t other\n6000 t end\n";

    fn ask(entries: &[Entry], is_ticks: bool) -> (CpuAnswer, Covered) {
        let file = crafted::file(entries, SYMBOLS, "1 one\n", "[local]");
        let scope = Scope::default();
        let cpu = if is_ticks {
            Cpu::of_ticks(&file, scope.clone())
        } else {
            Cpu::of_samples(scope.clone(), Pick::of(&file, "ev", &Weight::Count).unwrap())
        };
        answer(&file, Topic::Cpu, &scope, cpu, &mut |_| {}).unwrap()
    }

    #[test]
    fn the_interrupt_is_no_part_of_what_was_interrupted() {
        let entries = [
            ev(1, 0, 0, 0),
            stack(1, 0, &[0x1000, 0x2000, 0x3000]),
            ev(0, 0, 0, 0),
            stack(0, 0, &[0x1000, 0x2000, 0x5000]),
            // In a process, of which nothing is known.
            ev(1, 0, 0, 0),
            stack(1, 0, &[0x1000, 0x2000]),
            ev(1, 0, 0, 0),
            stack(1, 0, &[0x1004, 0x2004, 0x3004, 0x4000]),
            ev(1, 0, 0, 0),
            stack(1, 0, &[0x5000]),
            ev(1, 0, 0, 0),
        ];
        let (answer, covered) = ask(&entries, false);
        let told = answer.stacks.iter().flatten();
        let stacks: Vec<_> = told.map(|of| (of.kernel.join(";"), of.sum.count)).collect();
        let expected = [("", 1), ("other", 1), ("vfs_read", 1), ("vfs_read;asm_exc_page_fault", 1)];
        assert_eq!(stacks, expected.map(|(text, count)| (text.to_owned(), count)));
        let counts = [answer.samples, answer.without_stack, answer.without_entry];
        assert_eq!(counts, [Some(5), Some(1), Some(1)]);
        assert_eq!(answer.cpus, Some(vec![CpuSamples { cpu: 0, busy: 5, idle: 1 }]));
        assert!(covered.missing.iter().all(|need| !need.is_required), "{covered:?}");
        assert_eq!(answer.flame("").total(), 4);
    }

    #[test]
    fn ticks_are_asked_for_where_there_are_none() {
        let (answer, covered) = ask(&[ev(1, 0, 0, 0)], true);
        assert_eq!(answer.samples, Some(0));
        assert!(covered.missing.iter().any(|need| need.is_required && need.events == [TICK]));
    }

    #[test]
    fn interrupts_begin_in_functions_of_each_machine() {
        for function in
            ["asm_sysvec_apic_timer_interrupt", "asm_common_interrupt", "el1h_64_irq", "handle_exception"]
        {
            assert!(is_entry(function), "{function}");
        }
        for function in
            ["asm_exc_page_fault", "entry_SYSCALL_64_after_hwframe", "el0t_64_sync", "sysvec_apic"]
        {
            assert!(!is_entry(function), "{function}");
        }
    }
}
