//! What recording costs those who are recorded, in instructions.
//!
//! The guest's clocks count its instructions ([`Vm::count_instructions`]), so that a thread's processor time
//! is the number of them that it ran, with the interrupts that came meanwhile: a few in a thousand. No host
//! is too busy for these figures. They say nothing of caches and of what an instruction takes.

use std::fmt;
use std::time::Duration;

use crate::{Cmd, Error, Kernel, Vm, guest};

/// Calls that are measured for each figure.
const CALLS: u64 = 10_000;

/// How long a recording may take: tracer-agent's start is minutes of emulated work for the verifier.
const RECORDING_MAX: Duration = Duration::from_mins(5);

/// What is recorded.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    /// What `vm-load` is told to do.
    load: &'static str,
    event: Event,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// An event of the kernel's.
    Tracepoint(&'static str),
    /// The same by the lane that every event can take.
    Generic(&'static str),
    /// Events of system calls whose records have no copies of strings, as trace-cmd's have none before 6.19.
    WithoutStrings(&'static str),
    /// `p` or `r` at a function of the kernel, and arguments.
    Kprobe(char, &'static str, &'static str),
    /// At the load's own function, with arguments.
    Uprobe(&'static str),
}

const CASES: &[Case] = &[
    Case { name: "sys_enter", load: "getppid", event: Event::Tracepoint("raw_syscalls:sys_enter") },
    Case {
        name: "sys_enter_getppid",
        load: "getppid",
        event: Event::Tracepoint("syscalls:sys_enter_getppid"),
    },
    Case { name: "sys_*_openat", load: "open", event: Event::Tracepoint("syscalls:sys_*_openat") },
    Case {
        name: "sys_*_openat, no strings",
        load: "open",
        event: Event::WithoutStrings("syscalls:sys_*_openat"),
    },
    Case { name: "generic sys_enter", load: "getppid", event: Event::Generic("raw_syscalls:sys_enter") },
    Case { name: "generic sys_exit", load: "getppid", event: Event::Generic("raw_syscalls:sys_exit") },
    Case { name: "kprobe", load: "open", event: Event::Kprobe('p', "do_sys_openat2", "") },
    Case {
        name: "kprobe with arguments",
        load: "open",
        event: Event::Kprobe('p', "do_sys_openat2", "dfd=%di:s32 path=%si:x64 flags=+0(%dx):x64"),
    },
    Case {
        name: "kprobe with a text",
        load: "open",
        event: Event::Kprobe('p', "do_sys_openat2", "path=+0(%si):ustring"),
    },
    Case { name: "kretprobe", load: "open", event: Event::Kprobe('r', "do_sys_openat2", "ret=$retval:s32") },
    Case { name: "uprobe", load: "function", event: Event::Uprobe("number=%di:u64") },
    Case {
        name: "uprobe with a text",
        load: "function",
        event: Event::Uprobe("number=%di:u64 text=+0(%si):string"),
    },
];

/// Instructions of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// What was recorded.
    pub name: &'static str,
    /// While nobody records.
    pub untraced: f64,
    /// Recorded by tracer-agent.
    pub ours: f64,
    /// Recorded by trace-cmd.
    pub theirs: f64,
}

impl Cost {
    /// What tracer-agent adds to a call, as a part of what trace-cmd adds.
    pub fn ratio(&self) -> f64 {
        (self.ours - self.untraced) / (self.theirs - self.untraced)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, untraced, ours, theirs } = self;
        let (ours, theirs) = (ours - untraced, theirs - untraced);
        write!(f, "{name:24} {untraced:>8.0} {ours:>+8.0} {theirs:>+8.0} {:>6.2}", self.ratio())
    }
}

/// The columns of a line of [`Cost`].
pub const HEADER: &str = "instructions             untraced     ours trace-cmd  ratio";

/// Measures every kind of event whose name contains `filter`.
///
/// # Errors
/// The guest, or a command in it.
pub fn measure(kernel: &Kernel, filter: &str) -> Result<Vec<Cost>, Error> {
    let cases: Vec<Case> = CASES.iter().filter(|case| case.name.contains(filter)).copied().collect();
    let commands: Vec<Cmd> = cases.iter().flat_map(Case::commands).collect();
    let load = guest::programs()?.join("vm-load");
    let run =
        Vm::new(kernel).agent().trace_cmd().file(load, "/bin/vm-load").count_instructions().run(&commands)?;
    let failed = |why: String| Error::Host { program: "a guest".to_owned(), why };
    let figures = run.outcomes.iter().map(|outcome| {
        let text = outcome.stdout_text();
        let time = text.lines().find_map(|line| line.parse::<f64>().ok()).filter(|_| outcome.success());
        time.map(|time| time / CALLS as f64).ok_or_else(|| failed(format!("{outcome:?}")))
    });
    let figures = figures.collect::<Result<Vec<f64>, Error>>()?;
    let costs = cases.iter().zip(figures.chunks(3)).filter_map(|(case, figures)| match figures {
        &[untraced, ours, theirs] => Some(Cost { name: case.name, untraced, ours, theirs }),
        _ => None,
    });
    Ok(costs.collect())
}

/// Probes at all functions of a pattern, in the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManyProbes {
    /// Functions that had a probe.
    pub functions: u64,
    /// From the start of tracer-agent to that of the command that it records.
    pub attached: u64,
    /// From the command's end to tracer-agent's.
    pub ended: u64,
}

/// Records kprobes at all functions of `pattern`.
///
/// # Errors
/// The guest, or a command in it.
pub fn measure_many(kernel: &Kernel, pattern: &str) -> Result<ManyProbes, Error> {
    let load = guest::programs()?.join("vm-load");
    let line = format!(
        "vm-load clock && tracer-agent record -q -o /tmp/many.dat --kprobe 'many={pattern}' \
         sh -c 'vm-load clock; wc -l < /sys/kernel/tracing/enabled_functions; vm-load clock' && vm-load clock"
    );
    let commands = [Cmd::sh(&line).timeout(RECORDING_MAX)];
    let run = Vm::new(kernel).agent().file(load, "/bin/vm-load").count_instructions().run(&commands)?;
    let outcome = run.outcomes.first().filter(|outcome| outcome.success());
    let text = outcome.map(crate::Outcome::stdout_text).unwrap_or_default();
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    match numbers[..] {
        [start, running, functions, over, end] => Ok(ManyProbes {
            functions,
            attached: running.saturating_sub(start),
            ended: end.saturating_sub(over),
        }),
        _ => Err(Error::Host { program: "a guest".to_owned(), why: format!("{:?}", run.outcomes) }),
    }
}

impl Case {
    /// Untraced, recorded by tracer-agent, recorded by trace-cmd.
    fn commands(&self) -> [Cmd; 3] {
        let load = format!("vm-load {} {CALLS}", self.load);
        let (define, option, event) = match self.event {
            Event::Tracepoint(name) => (String::new(), format!("-e '{name}'"), name.to_owned()),
            Event::Generic(name) => (String::new(), format!("--lane generic -e '{name}'"), name.to_owned()),
            Event::WithoutStrings(name) => {
                (String::new(), format!("--strings off -e '{name}'"), name.to_owned())
            }
            Event::Kprobe(kind, function, arguments) => {
                let option = if kind == 'p' { "--kprobe" } else { "--kretprobe" };
                (
                    format!(
                        "echo '{kind}:cost/theirs {function} {arguments}' > /sys/kernel/tracing/kprobe_events && "
                    ),
                    format!("{option} 'cost/ours={function} {arguments}'"),
                    "cost:theirs".to_owned(),
                )
            }
            Event::Uprobe(arguments) => (
                format!(
                    "echo \"p:cost/theirs /bin/vm-load:$(vm-load place) {arguments}\" > /sys/kernel/tracing/uprobe_events && "
                ),
                format!("--uprobe \"cost/ours=/bin/vm-load:$(vm-load place) {arguments}\""),
                "cost:theirs".to_owned(),
            ),
        };
        let undefine = "; : > /sys/kernel/tracing/kprobe_events; : > /sys/kernel/tracing/uprobe_events";
        [
            // Distributions mount it; kprobes look there for what must not be probed.
            Cmd::sh(&format!("mount -t debugfs debugfs /sys/kernel/debug 2> /dev/null; {load}")),
            // Whatever it leaves behind is gone before the next one is measured.
            Cmd::sh(&format!("tracer-agent record -q -b 8192 -o /tmp/ours.dat {option} {load} && sleep 2"))
                .timeout(RECORDING_MAX),
            Cmd::sh(&format!(
                "{{ {define} trace-cmd record -q -b 8192 -o /tmp/theirs.dat -e '{event}' {load}; }}{undefine}"
            ))
            .timeout(RECORDING_MAX),
        ]
    }
}
