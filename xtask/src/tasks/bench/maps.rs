//! `cargo xtask bench maps`: counting in maps beside bpftrace's maps, and beside recording the same events.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use super::load::{self, LoadReport, Workload};
use super::{LOAD_TASK, Ready, file, median, number, run_untraced};
use crate::{Result, process};

/// What is asked, and how each asks it.
struct Question {
    name: &'static str,
    workload: &'static str,
    /// The options of tracer-agent.
    map: &'static [&'static str],
    /// What it records instead.
    events: &'static [&'static str],
    bpftrace: &'static str,
}

const QUESTIONS: &[Question] = &[
    Question {
        name: "switches by thread",
        workload: "pingpong",
        map: &["--count", "sched_switch by next_pid"],
        events: &["sched:sched_switch"],
        bpftrace: "tracepoint:sched:sched_switch { @[args->next_pid] = count(); }",
    },
    Question {
        name: "switches by name",
        workload: "pingpong",
        map: &["--count", "sched_switch by next_comm"],
        events: &["sched:sched_switch"],
        bpftrace: "tracepoint:sched:sched_switch { @[args->next_comm] = count(); }",
    },
    Question {
        name: "time to wake up",
        workload: "pingpong",
        map: &["--time", "sched_waking -> sched_switch key pid=next_pid"],
        events: &["sched:sched_switch", "sched:sched_waking"],
        bpftrace: "tracepoint:sched:sched_waking { @at[args->pid] = nsecs; } \
                   tracepoint:sched:sched_switch /@at[args->next_pid]/ \
                   { @ = hist(nsecs - @at[args->next_pid]); delete(@at[args->next_pid]); }",
    },
    Question {
        name: "calls by number",
        workload: "getppid",
        map: &["--count", "raw_syscalls:sys_enter by id"],
        events: &["raw_syscalls:sys_enter"],
        bpftrace: "tracepoint:raw_syscalls:sys_enter { @[args->id] = count(); }",
    },
    Question {
        name: "numbers by name",
        workload: "getppid",
        map: &["--count", "hist(id) of raw_syscalls:sys_enter by $comm"],
        events: &["raw_syscalls:sys_enter"],
        bpftrace: "tracepoint:raw_syscalls:sys_enter { @[comm] = hist(args->id); }",
    },
    Question {
        name: "one call by process",
        workload: "getppid-one",
        map: &["--count", "syscalls:sys_enter_getppid by $pid"],
        events: &["syscalls:sys_enter_getppid"],
        bpftrace: "tracepoint:syscalls:sys_enter_getppid { @[pid] = count(); }",
    },
];

/// Nanoseconds of its processor time that each event costs the load: counted, recorded, counted by bpftrace.
/// Other processes on the machine do not add to that.
type Added = [f64; 3];

pub(super) fn run(args: &[String]) -> Result {
    let (mut rounds, mut shorter, mut agent) = (9, 1, None);
    let mut left = args.iter();
    while let Some(arg) = left.next() {
        match arg.as_str() {
            "--rounds" => rounds = number(arg, left.next())?,
            "--quick" => (rounds, shorter) = (3, 5),
            "--agent" => agent = Some(file(arg, left.next())?),
            other => return Err(format!("no such option: {other}").into()),
        }
    }
    let Some(ready) = Ready::make("maps", args, agent)? else { return Ok(()) };
    let bpftrace = process::find("bpftrace").ok_or("there is no bpftrace")?;
    print!("{}", table(&measure((rounds, shorter), &ready.agent, &bpftrace, &ready.dir)?));
    Ok(())
}

fn measure(
    (rounds, shorter): (usize, u64),
    agent: &Path,
    bpftrace: &Path,
    dir: &Path,
) -> Result<Vec<(&'static Question, Vec<Added>)>> {
    let mut answers = Vec::new();
    for question in QUESTIONS {
        let workload = load::find(question.workload)?;
        let iterations = (workload.iterations / shorter).max(1);
        let mut all = Vec::new();
        for _ in 0..rounds {
            let added = round(question, workload, iterations, (agent, bpftrace), dir)?;
            let [counted, recorded, other] = added;
            eprintln!(
                "{}: {counted:.0} ns, recorded {recorded:.0} ns, bpftrace {other:.0} ns",
                question.name
            );
            all.push(added);
        }
        answers.push((question, all));
    }
    Ok(answers)
}

fn round(
    question: &Question,
    workload: &Workload,
    iterations: u64,
    (agent, bpftrace): (&Path, &Path),
    dir: &Path,
) -> Result<Added> {
    let report = dir.join("load");
    let program = std::env::current_exe()?;
    let iterations_text = iterations.to_string();
    let mut load = Command::new(&program);
    load.arg(LOAD_TASK.name).args([workload.name, &iterations_text]).arg(&report);
    let untraced = run_untraced(&mut load, &report)?.cpu;
    let words: Vec<_> = [load.get_program()].into_iter().chain(load.get_args()).collect();
    let mut counting = Command::new(agent);
    counting.args(["record", "-q"]).args(question.map).args(&words);
    let mut recording = Command::new(agent);
    recording.args(["record", "-q", "-o"]).arg(dir.join("trace.dat"));
    recording.args(question.events.iter().flat_map(|event| ["-e", event])).args(&words);
    let mut other = Command::new(bpftrace);
    other.args(["-q", "-e", question.bpftrace, "-c"]).arg(words.join(std::ffi::OsStr::new(" ")));
    let events = workload.known_events.map_or(iterations, |known| known(iterations)) as f64;
    let mut added = [0.0; 3];
    for (added, command) in added.iter_mut().zip([&mut counting, &mut recording, &mut other]) {
        let _ = fs::remove_file(&report);
        let log = File::create(dir.join("log"))?;
        command.current_dir(dir).stdin(File::open("/dev/null")?).stderr(log.try_clone()?).stdout(log);
        if !command.status()?.success() {
            let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
            return Err(format!("{}: {}", process::line(command), log.trim()).into());
        }
        let traced = LoadReport::read(&report)?.cpu;
        *added = (traced.as_secs_f64() - untraced.as_secs_f64()) * 1e9 / events;
    }
    Ok(added)
}

/// The medians, and those of the ratios to bpftrace within a round.
fn table(answers: &[(&Question, Vec<Added>)]) -> String {
    let mut text =
        "| question | added ns per event | recorded instead | bpftrace | ratio to bpftrace |\n|---|---|---|---|---|\n"
            .to_owned();
    for (question, rounds) in answers {
        let of = |index: usize| median(rounds.iter().map(|added| added[index]).collect());
        let ratio = median(rounds.iter().map(|[counted, _, other]| counted / other).collect());
        text += &format!("| {} | {:.0} | {:.0} | {:.0} | {ratio:.2} |\n", question.name, of(0), of(1), of(2));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_medians() {
        let rounds = vec![[10.0, 20.0, 100.0], [30.0, 20.0, 100.0], [20.0, 40.0, 50.0]];
        let text = table(&[(&QUESTIONS[0], rounds)]);
        assert!(text.ends_with("| switches by thread | 20 | 20 | 100 | 0.30 |\n"), "{text}");
        for question in QUESTIONS {
            assert!(load::find(question.workload).is_ok());
        }
    }
}
