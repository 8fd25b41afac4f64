//! The audit: recordings of all threads beside the kernel's own counters.
//!
//! A program reads the counters, works, and reads them again. The records between the readings are at most
//! what the kernel counted, and those from before the first reading until after the last one are at least
//! that, with all that is known to be missing: events that were lost, those of the recorder's own threads,
//! those that the kernel skipped, and those that fired while a hidden thread had the CPU.

use std::collections::BTreeMap;

use integration_tests::{
    agent,
    harness::{Ledger, ledger_in_info},
    hidden::{HiddenEvent, HiddenEvents},
    trace_cmd,
    workload::{self, Account, counters::Window},
};

/// The events of each counter that is the machine's.
const OF_MACHINE: [&str; 7] = [
    "sched:sched_switch",
    "task:task_newtask",
    "irq:softirq_entry",
    "irq:irq_handler_entry",
    "irq_vectors:local_timer_entry",
    "irq_vectors:reschedule_entry",
    "block:block_rq_complete",
];

/// Those of the counters of the program's first thread.
const OF_THREAD: [&str; 5] = [
    "sched:sched_stat_runtime",
    "exceptions:page_fault_user",
    "exceptions:page_fault_kernel",
    "net:net_dev_queue",
    "net:netif_rx",
];

/// What any load counts.
const ALWAYS: [&str; 10] = [
    "context switches",
    "new tasks",
    "soft interrupt 1",
    "soft interrupt 3",
    "local timer interrupts",
    "own switches",
    "own run time",
    "own page faults",
    "own packets sent",
    "own packets received",
];

/// The counter that an event adds to, and how much; `text` is what the kernel prints of its fields.
fn counted(event: &str, text: &str) -> Option<(String, u64)> {
    let value = |name: &str| {
        let words = text.split_whitespace().filter_map(|word| word.split_once('='));
        words.into_iter().find(|(of, _)| *of == name).map(|(_, value)| value)
    };
    Some(match event {
        "sched_switch" => ("context switches".to_owned(), 1),
        "task_newtask" => ("new tasks".to_owned(), 1),
        "softirq_entry" => (format!("soft interrupt {}", value("vec")?), 1),
        "irq_handler_entry" => (format!("interrupt {}", value("irq")?), 1),
        "local_timer_entry" => ("local timer interrupts".to_owned(), 1),
        "reschedule_entry" => ("reschedule interrupts".to_owned(), 1),
        // `254,0 WS () 4096 + 8 none,0,0 [0]`
        "block_rq_complete" => {
            let (disk, rest) = text.split_once(' ')?;
            let kind = match rest.trim_start_matches('F').chars().next()? {
                'R' => "read",
                'W' => "written",
                _ => return None,
            };
            let sectors = rest.split_once(" + ")?.1.split(' ').next()?;
            (format!("sectors {kind} {disk}"), sectors.parse().ok()?)
        }
        _ => return None,
    })
}

/// The same for the counters of the thread `own`; `pid` is that of the record.
fn counted_of_thread(own: u32, pid: u32, event: &str, text: &str) -> Option<(&'static str, u64)> {
    let words = || text.split_whitespace().filter_map(|word| word.split_once('='));
    let value = |name: &str| words().find(|(of, _)| *of == name).map(|(_, value)| value);
    // Whoever has the CPU accounts the time of the thread that runs.
    if event == "sched_stat_runtime" {
        let is_own = value("pid")? == own.to_string();
        return is_own.then(|| ("own run time", value("runtime").unwrap().parse().unwrap()));
    }
    if pid != own {
        return None;
    }
    Some(match event {
        "sched_switch" => ("own switches", 1),
        "page_fault_user" | "page_fault_kernel" => ("own page faults", 1),
        "net_dev_queue" if value("dev") == Some("lo") => ("own packets sent", 1),
        "netif_rx" if value("dev") == Some("lo") => ("own packets received", 1),
        "sys_enter" => ("own calls", 1),
        _ => return None,
    })
}

/// Sums by the class of events.
type Sums = BTreeMap<String, u64>;

fn add(sums: &mut Sums, class: &str, amount: u64) {
    *sums.entry(class.to_owned()).or_default() += amount;
}

/// What a counter may have more than the records.
#[derive(Debug, Default)]
struct Missing {
    /// By class, in events of hidden threads.
    hidden: Sums,
    /// By event: those of the recorder's own threads.
    own: BTreeMap<String, u64>,
    /// Events that the kernel skipped; `None` where it does not count them.
    skipped: Option<u64>,
}

impl Missing {
    /// The most that a class may lack; `None` if nothing is known of that.
    fn most(&self, class: &str) -> Option<u64> {
        let event = match class {
            "context switches" => "sched:sched_switch",
            "new tasks" => "task:task_newtask",
            "local timer interrupts" => "irq_vectors:local_timer_entry",
            "reschedule interrupts" => "irq_vectors:reschedule_entry",
            "own run time" => "sched:sched_stat_runtime",
            _ if class.starts_with("soft interrupt ") => "irq:softirq_entry",
            _ if class.starts_with("interrupt ") => "irq:irq_handler_entry",
            _ if class.starts_with("sectors ") => "block:block_rq_complete",
            // They fire while the program's thread has the CPU.
            _ => return self.skipped,
        };
        let events = self.own.get(event).copied().unwrap_or(0) + self.skipped?;
        // Nothing says how many sectors, or how much time, an event had that is missing.
        let is_amount = class.starts_with("sectors ") || class == "own run time";
        if is_amount && events > 0 {
            return None;
        }
        Some(events + self.hidden.get(class).copied().unwrap_or(0))
    }
}

mod soak {
    use super::*;

    #[test]
    fn recordings_have_the_events_that_the_kernel_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = Vec::from(["-b", "65536"].map(str::to_owned));
        for event in OF_MACHINE.iter().chain(&OF_THREAD) {
            args.extend(["-e".to_owned(), (*event).to_owned()]);
        }
        args.extend(["-e", "raw_syscalls:sys_enter", "-f", "id == 110"].map(str::to_owned));
        args.extend(workload::command("audited", dir.path()));
        let hidden = HiddenEvents::start(&OF_MACHINE);
        let recording = agent::record(&dir.path().join("trace.dat"), args);
        let hidden = hidden.stop();
        let own = Account::read(dir.path()).started[0];
        assert_eq!(Ledger::of(&recording.path).lost(), 0, "{}", recording.said);

        let windows = Window::read_all(dir.path());
        let (mut within, mut around) = (vec![Sums::new(); windows.len()], vec![Sums::new(); windows.len()]);
        for line in trace_cmd::lines(&trace_cmd::report(&recording.path, &["-t"])) {
            let of_machine = counted(&line.event, &line.fields);
            let of_thread = counted_of_thread(own, line.pid, &line.event, &line.fields);
            let of_thread = of_thread.map(|(class, amount)| (class.to_owned(), amount));
            for (number, window) in windows.iter().enumerate() {
                for (class, amount) in of_machine.iter().chain(&of_thread) {
                    if (window.inner.0..=window.inner.1).contains(&line.time) {
                        add(&mut within[number], class, *amount);
                    }
                    if (window.outer.0..=window.outer.1).contains(&line.time) {
                        add(&mut around[number], class, *amount);
                    }
                }
            }
        }
        let missing = missing(&recording.path, &hidden);
        for ((window, within), around) in windows.iter().zip(&within).zip(&around) {
            check(window, (within, around), &missing);
        }
    }
}

fn missing(file: &std::path::Path, hidden: &[HiddenEvent]) -> Missing {
    let mut missing = Missing::default();
    for event in hidden {
        if let Some((class, amount)) = counted(&event.name, &event.fields) {
            add(&mut missing.hidden, &class, amount);
        }
    }
    let ledger = ledger_in_info(file);
    for row in ledger["events"].as_array().unwrap() {
        let event = row["event"].as_str().unwrap();
        add(&mut missing.own, event, row["own_threads"].as_u64().unwrap_or(0));
    }
    missing.skipped = ledger["recursion_misses"].as_u64();
    missing
}

fn check(window: &Window, (within, around): (&Sums, &Sums), missing: &Missing) {
    let of = |sums: &Sums, class: &str| sums.get(class).copied().unwrap_or(0);
    for (class, &count) in &window.counted {
        let (least, recorded, lacks) = (of(within, class), of(around, class), missing.most(class));
        if count > 0 {
            println!("{class}: {count} counted, {least} to {recorded} recorded, at most {lacks:?} missing");
        }
        assert!(least <= count, "{class}: {least} recorded, {count} counted");
        if let Some(lacks) = lacks {
            assert!(
                count <= recorded + lacks,
                "{class}: {recorded} recorded, {lacks} missing, {count} counted"
            );
        }
    }
    for class in ALWAYS {
        assert!(window.counted[class] > 0, "no {class}: {:?}", window.counted);
    }
    assert_eq!(of(within, "own calls"), workload::counters::CALLS);
}
