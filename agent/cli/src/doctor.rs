//! `tracer-agent doctor`: whether this machine can record, and what to do if it cannot.

use std::io::{self, Write};

use serde::Serialize;

use attach::support::check_support;
use attach::{Outcome, Surveyed, survey};
use kernel::btf::Btf;
use kernel::features::{Check, CheckId, Features, Need, Status};
use kernel::tracefs::Tracefs;
use stdx::terminal;

use super::exit::ExitCode;
use super::json_writer::{self, Lines};

/// Check what this machine supports, and say what to do about the rest
///
/// Prints a line for each check. Exits with 0 if events can be recorded. It needs no privileges, but its
/// answers are for the user who runs it: run it as the user who is going to record.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Print JSON: an object with the verdict and an array of checks
    #[arg(long)]
    pub json: bool,
    /// Print every program instead, with the number of instructions that the kernel's verifier processed, or
    /// its error
    #[arg(long, conflicts_with = "json")]
    pub programs: bool,
}

/// What the kernel made of the programs, or why nobody could ask it.
type Programs = Result<Vec<Surveyed>, String>;

/// Checks this machine, prints the answers, and gives the code to exit with.
pub fn run(args: &Args, out: &mut dyn Write) -> io::Result<ExitCode> {
    let programs = programs();
    if args.programs {
        let (text, code) = match &programs {
            Ok(programs) => (listing(programs), ExitCode::Ok),
            Err(why) => (format!("the programs cannot be loaded: {why}\n"), ExitCode::NotPermitted),
        };
        return print(text.as_bytes(), out).map(|()| code);
    }
    let mut checks = Features::probe().checks().to_vec();
    checks.push(fentry(&programs));
    report(&Features::from_checks(checks), &programs, args, out)
}

/// Whether there are typed probes. The kernel can only be asked by who may load programs.
fn fentry(programs: &Programs) -> Check {
    let supported = match programs {
        Ok(_) => Btf::of_kernel().map(|btf| check_support(&btf)).map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    let (status, detail) = match supported {
        Ok(Ok(())) => (Status::Yes, "the kernel takes programs at the entry of its functions".to_owned()),
        Ok(Err(why)) => (Status::No, why),
        Err(why) => (Status::Unknown, format!("it cannot be tried: {why}")),
    };
    let remedy = "--fentry and --fexit are refused; record tracepoints (-e), kprobes or uprobes instead";
    let remedy = (status == Status::No).then(|| remedy.to_owned());
    Check { id: CheckId::Fentry, status, need: Need::Optional, detail, remedy }
}

fn programs() -> Programs {
    let tracefs = Tracefs::open().map_err(|error| error.to_string())?;
    let btf = Btf::of_kernel().map_err(|error| error.to_string())?;
    survey(&tracefs, &btf).map_err(|error| error.to_string())
}

/// A line for each program: its name and the number, or why there is none.
fn listing(programs: &[Surveyed]) -> String {
    let line = |Surveyed { name, outcome }: &Surveyed| match outcome {
        Outcome::Loaded { verified: Some(verified) } => format!("{name} {verified}\n"),
        Outcome::Loaded { verified: None } => format!("{name} unknown\n"),
        Outcome::Generic(why) => format!("{name} generic: {why}\n"),
        Outcome::Refused { reason, log } => format!("{name} refused: {reason}\n  {log}\n"),
    };
    programs.iter().map(line).collect()
}

/// Prints the answers. A reader that closed its end is no error.
pub fn report(
    features: &Features,
    programs: &Programs,
    args: &Args,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let text = if args.json {
        json_writer::text(&Answers::of(features, programs), Lines::Rows)?.into_bytes()
    } else {
        let mut text = Vec::new();
        plain(features, programs, &mut text)?;
        text
    };
    print(&text, out).map(|()| verdict(features))
}

fn print(text: &[u8], out: &mut dyn Write) -> io::Result<()> {
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Which of the described events have programs of their own, and why the others have none.
fn lanes(programs: &[Surveyed]) -> (usize, Vec<(&str, String)>) {
    let events = programs.iter().filter(|program| program.name.contains(':'));
    let mut slow = Vec::new();
    let mut fast = 0;
    for Surveyed { name, outcome } in events {
        match outcome {
            Outcome::Loaded { .. } => fast += 1,
            Outcome::Generic(why) => slow.push((name.as_str(), why.to_string())),
            Outcome::Refused { reason, .. } => slow.push((name.as_str(), reason.clone())),
        }
    }
    (fast, slow)
}

/// Events of a system that have the same reason, in the order of the first of each.
fn together<'s>(slow: &'s [(&'s str, String)]) -> Vec<(Vec<&'s str>, &'s str)> {
    let system = |event: &'s str| event.split(':').next();
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    for (event, why) in slow {
        let same = |(events, reason): &&mut (Vec<&'s str>, &'s str)| {
            *reason == why && events.first().map(|first| system(first)) == Some(system(event))
        };
        match groups.iter_mut().find(same) {
            Some((events, _)) => events.push(event),
            None => groups.push((vec![event], why)),
        }
    }
    groups
}

/// The code to exit with. What the kernel lacks comes before what this user may not do.
fn verdict(features: &Features) -> ExitCode {
    match features.blockers().first().map(|check| check.need) {
        None => ExitCode::Ok,
        Some(Need::Permission) => ExitCode::NotPermitted,
        Some(Need::Support | Need::Optional) => ExitCode::Unsupported,
    }
}

/// How a line begins.
fn mark(status: Status) -> &'static str {
    match status {
        Status::Yes => "ok",
        Status::No => "no",
        Status::Unknown => "??",
    }
}

fn plain(features: &Features, programs: &Programs, out: &mut impl Write) -> io::Result<()> {
    for Check { id, status, detail, remedy, need: _ } in features.checks() {
        writeln!(out, "{} {}: {}", mark(*status), id.name(), one_line(detail))?;
        if let Some(remedy) = remedy {
            writeln!(out, "   -> {}", one_line(remedy))?;
        }
    }
    match programs {
        Err(why) => writeln!(out, "?? lanes: {}", one_line(why))?,
        Ok(programs) => {
            let (fast, slow) = lanes(programs);
            let all = fast + slow.len();
            writeln!(
                out,
                "ok lanes: {fast} of the {all} events with specialized programs use them on this kernel"
            )?;
            for (events, why) in together(&slow) {
                match events.as_slice() {
                    [one] => writeln!(out, "   {one} takes the generic lane: {}", one_line(why))?,
                    [first, ..] => {
                        let (count, system) = (events.len(), first.split(':').next().unwrap_or(first));
                        writeln!(
                            out,
                            "   {count} events of {system} take the generic lane: {}",
                            one_line(why)
                        )?;
                    }
                    [] => {}
                }
            }
        }
    }
    let blockers = features.blockers();
    if blockers.is_empty() {
        return writeln!(out, "\nEvents can be recorded on this machine.");
    }
    let names: Vec<&str> = blockers.iter().map(|check| check.id.name()).collect();
    writeln!(out, "\nEvents cannot be recorded: {}.", names.join(", "))
}

/// The answers as JSON.
#[derive(Serialize)]
struct Answers<'a> {
    can_record: bool,
    exit_code: u8,
    checks: Vec<Answer<'a>>,
    lanes: Lanes<'a>,
}

/// What a check found.
#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    kind: &'static str,
    status: &'static str,
    required: bool,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'a str>,
}

/// How many events have programs of their own, and why the others have none.
#[derive(Serialize)]
#[serde(untagged)]
enum Lanes<'a> {
    Unknown {
        unknown: &'a str,
    },
    Known {
        fast: usize,
        #[serde(serialize_with = "json_writer::object")]
        generic: Vec<(&'a str, String)>,
    },
}

impl<'a> Answers<'a> {
    fn of(features: &'a Features, programs: &'a Programs) -> Self {
        let code = verdict(features);
        let lanes = match programs {
            Err(why) => Lanes::Unknown { unknown: why },
            Ok(programs) => {
                let (fast, generic) = lanes(programs);
                Lanes::Known { fast, generic }
            }
        };
        Self {
            can_record: code == ExitCode::Ok,
            exit_code: code.code(),
            checks: features.checks().iter().map(Answer::of).collect(),
            lanes,
        }
    }
}

impl<'a> Answer<'a> {
    fn of(Check { id, status, need, detail, remedy }: &'a Check) -> Self {
        Self {
            name: id.name(),
            kind: if matches!(id, CheckId::Capability(_)) { "capability" } else { "feature" },
            status: match status {
                Status::Yes => "yes",
                Status::No => "no",
                Status::Unknown => "unknown",
            },
            required: *need != Need::Optional,
            detail,
            remedy: remedy.as_deref(),
        }
    }
}

/// A text of the kernel's or of an error on one line of its own.
fn one_line(text: &str) -> String {
    // The verifier's lines may go on one.
    terminal::name(&text.replace(['\n', '\t'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: CheckId, status: Status, need: Need) -> Check {
        let remedy = (status == Status::No).then(|| "do \"this\"".to_owned());
        Check { id, status, need, detail: "found\nthat".to_owned(), remedy }
    }

    fn printed(checks: Vec<Check>, json: bool) -> (ExitCode, String) {
        let mut out = Vec::new();
        let programs = vec![
            Surveyed { name: "a:b".to_owned(), outcome: Outcome::Loaded { verified: Some(7) } },
            Surveyed {
                name: "a:c".to_owned(),
                outcome: Outcome::Refused { reason: "no\nway".to_owned(), log: "1: no way".to_owned() },
            },
            Surveyed { name: "for_all".to_owned(), outcome: Outcome::Loaded { verified: None } },
        ];
        assert_eq!(listing(&programs), "a:b 7\na:c refused: no\nway\n  1: no way\nfor_all unknown\n");
        let args = Args { json, programs: false };
        let code = report(&Features::from_checks(checks), &Ok(programs), &args, &mut out).unwrap();
        (code, String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_check_is_a_line_with_what_to_do_below() {
        let (code, text) = printed(
            vec![
                check(CheckId::Kernel, Status::Yes, Need::Support),
                check(CheckId::Btf, Status::No, Need::Optional),
                check(CheckId::Jit, Status::Unknown, Need::Optional),
            ],
            false,
        );
        assert_eq!(code, ExitCode::Ok);
        assert_eq!(
            text,
            "ok kernel: found that\nno btf: found that\n   -> do \"this\"\n?? jit: found that\n\
            ok lanes: 1 of the 2 events with specialized programs use them on this kernel\n   \
            a:c takes the generic lane: no way\n\n\
            Events can be recorded on this machine.\n"
        );
    }

    #[test]
    fn events_of_a_system_share_a_reason() {
        let slow = ["a:b", "a:c", "b:c", "a:d"].map(|event| (event, "no way".to_owned()));
        let other = [("a:e", "too long".to_owned())];
        let slow = [slow.as_slice(), &other].concat();
        let expected =
            [(vec!["a:b", "a:c", "a:d"], "no way"), (vec!["b:c"], "no way"), (vec!["a:e"], "too long")];
        assert_eq!(together(&slow), expected);
    }

    #[test]
    fn the_exit_code_tells_a_missing_right_from_a_missing_feature() {
        let privileges = check(CheckId::Privileges, Status::No, Need::Permission);
        let kernel = check(CheckId::Kernel, Status::No, Need::Support);
        let (code, text) = printed(vec![privileges.clone()], false);
        assert_eq!(code, ExitCode::NotPermitted);
        assert!(text.ends_with("\nEvents cannot be recorded: privileges.\n"), "{text}");
        let (code, text) = printed(vec![privileges, kernel], false);
        assert_eq!(code, ExitCode::Unsupported);
        assert!(text.ends_with("\nEvents cannot be recorded: kernel, privileges.\n"), "{text}");
    }

    #[test]
    fn json_has_the_verdict_and_every_check() {
        let (code, text) = printed(
            vec![
                check(CheckId::Tracefs, Status::No, Need::Permission),
                check(CheckId::Capability(kernel::privileges::Capability::Bpf), Status::Yes, Need::Optional),
            ],
            true,
        );
        assert_eq!(code, ExitCode::NotPermitted);
        assert_eq!(
            text,
            "{\"can_record\":false,\"exit_code\":110,\"checks\":[\n\
            {\"name\":\"tracefs\",\"kind\":\"feature\",\"status\":\"no\",\"required\":true,\
            \"detail\":\"found\\nthat\",\"remedy\":\"do \\\"this\\\"\"},\n\
            {\"name\":\"CAP_BPF\",\"kind\":\"capability\",\"status\":\"yes\",\"required\":false,\
            \"detail\":\"found\\nthat\"}\n],\"lanes\":{\"fast\":1,\"generic\":{\"a:c\":\"no\\nway\"}}}\n"
        );
    }
}
