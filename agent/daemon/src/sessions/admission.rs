//! Whether this machine has what new event rules name.
//!
//! Files of programs are read in a thread of their own, which holds no lock: those on file systems that do
//! not answer (FUSE, or NFS whose server is gone) keep nobody for long.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use super::{
    expand::{World, rules_of_session},
    model::filter_refused,
    recorder::of_system,
};
use api::{Code, ControlError, Domain, EventRule, Format, Instrumentation, UserProbe};
use compile::dynamic::DynamicError;
use compile::probe_filter::ProbeFilterError;
use plan::{PlanError, UnusableFormat, Why};
use spec::{Field, RuleSpec};

/// How long the file of a probe may keep its rule from being added.
const FILE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The most files that may be waited for, by threads whose requests have been answered, too.
const FILES_MAX: usize = 16;

type Answer<T = ()> = Result<T, ControlError>;

/// Looks whether rules can be recorded, before they are rules of a session.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Files that are being read.
    files: Arc<AtomicUsize>,
}

impl Admission {
    /// Whether this machine can record the events of rules that are well-formed. It takes its time. Patterns
    /// with one filter are one: `enable-event --all` has a rule for tracepoints and one for system calls, and
    /// fields that its filter names are of some of them. Rules of the user domain are about programs that may
    /// come, of which nothing is known; those that are switched off are not looked at.
    ///
    /// # Errors
    /// There is no such event, function or marker, the file of a probe is not a program's, or a filter does
    /// not fit.
    pub(crate) fn check(
        &self,
        world: &World,
        (domain, rules): (Domain, &[EventRule]),
        format: Format,
    ) -> Answer {
        let mut groups = BTreeMap::<(Option<&str>, bool), (Vec<RuleSpec>, &Instrumentation)>::new();
        for rule in rules.iter().filter(|rule| domain == Domain::Kernel && rule.enabled) {
            let specs = rules_of_session(world, (domain, rule), format)?;
            let specs = specs.into_iter().map(|(_, spec)| spec);
            if let Instrumentation::UserProbe(UserProbe::Elf { path, .. } | UserProbe::Sdt { path, .. }) =
                &rule.instrumentation
            {
                let specs: Vec<_> = specs.collect();
                let checked = self.apart(FILE_WAIT_MAX, move || plan::check_rules(&specs))?;
                let late = || {
                    let why = format!("{path} was not read within {} s", FILE_WAIT_MAX.as_secs());
                    ControlError::new(Code::Daemon, why)
                };
                let checked = checked.ok_or_else(late)?;
                checked.map_err(|error| refused(&error, &rule.instrumentation))?;
                continue;
            }
            for spec in specs {
                let key = (rule.filter.as_deref(), spec.optional);
                groups.entry(key).or_insert_with(|| (Vec::new(), &rule.instrumentation)).0.push(spec);
            }
        }
        let mut groups = groups.into_values();
        groups.try_for_each(|(specs, of)| plan::check_rules(&specs).map_err(|error| refused(&error, of)))
    }

    /// What a thread of its own gives; `None` if it takes longer than the limit.
    fn apart<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Answer<Option<T>> {
        let place = Place::take(&self.files).ok_or_else(|| {
            let why = format!("{FILES_MAX} files of probes are being read; try again later");
            ControlError::new(Code::Daemon, why)
        })?;
        let (done, result) = mpsc::channel();
        let read = move || {
            let _place = place;
            // Nobody may wait for it any more.
            let _ = done.send(work());
        };
        std::thread::Builder::new().name("check-probe".into()).spawn(read).map_err(of_system)?;
        Ok(result.recv_timeout(limit).ok())
    }
}

/// One of the files that may be read at a time.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count: usize| (count < FILES_MAX).then_some(count + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is said of a rule that cannot be recorded: LTTng's code, and the reason without the place that the
/// rule would have in a recording.
fn refused(error: &PlanError, of: &Instrumentation) -> ControlError {
    if let Why::Filter(error) | Why::Probe(DynamicError::Filter(ProbeFilterError::Filter(error))) =
        &*error.why
    {
        return filter_refused(error);
    }
    let is_filter = matches!(error.at, Field::OfRule { name: "filter", .. });
    let code = match &*error.why {
        Why::Probe(DynamicError::Filter(_))
        | Why::Unusable { reason: UnusableFormat::Filter(_) | UnusableFormat::NeverHolds(_), .. } => {
            Code::Filter
        }
        _ if is_filter => Code::Filter,
        // It is of no rule.
        _ if error.at == Field::Whole => Code::StartKernel,
        Why::Probe(DynamicError::Hook(_)) => Code::EnableKernelEvent,
        Why::Probe(_) if matches!(of, Instrumentation::UserProbe(_)) => Code::UserProbeLocation,
        _ => Code::EnableKernelEvent,
    };
    ControlError::new(code, error.why.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::path::Path;

    use super::*;
    use crate::sessions::KnownPrograms;

    fn world() -> World {
        World::new(Arc::default(), KnownPrograms::default(), Arc::default())
    }

    #[test]
    fn files_that_do_not_answer_keep_nobody() {
        let admission = Admission::default();
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..FILES_MAX {
            let held = Arc::clone(&held);
            let wait = move || held.lock().unwrap().recv().is_err();
            assert_eq!(admission.apart(Duration::ZERO, wait).unwrap(), None);
        }
        let full = admission.apart(Duration::ZERO, || true).unwrap_err();
        assert_eq!(full.code, Code::Daemon);
        drop(release);
        while admission.files.load(Ordering::Relaxed) != 0 {
            std::thread::yield_now();
        }
        assert_eq!(admission.apart(Duration::from_hours(1), || 7).unwrap(), Some(7));
    }

    #[test]
    fn rules_for_programs_are_not_looked_at() {
        let rule = serde_json::json!({"name": "app:*", "instrumentation": "tracepoint", "filter": "a == 1"});
        let rule: EventRule = serde_json::from_value(rule).unwrap();
        let mut rules = [rule];
        assert_eq!(Admission::default().check(&world(), (Domain::User, &rules), Format::Lttng), Ok(()));
        let code = |rules: &[EventRule]| {
            let checked = Admission::default().check(&world(), (Domain::Kernel, rules), Format::Lttng);
            checked.map_err(|error| error.code)
        };
        assert_eq!(code(&rules), Err(Code::NoEvent));
        rules[0].enabled = false;
        assert_eq!(code(&rules), Ok(()));
    }

    #[test]
    fn codes_are_those_of_the_reasons() {
        let probe = Instrumentation::UserProbe(UserProbe::Elf { path: "/a".into(), symbol: "f".into() });
        let code = |name: &'static str, why: Why, of: &Instrumentation| {
            let at = Field::OfRule { channel: 0, rule: 0, name };
            refused(&PlanError { at, why: Box::new(why) }, of).code
        };
        let binary = || {
            let source = std::io::ErrorKind::NotFound.into();
            Why::Probe(elf::BinaryError::Io { path: Path::new("/a").to_owned(), source }.into())
        };
        assert_eq!(code("what", binary(), &probe), Code::UserProbeLocation);
        assert_eq!(code("what", binary(), &Instrumentation::Tracepoint), Code::EnableKernelEvent);
        assert_eq!(code("filter", Why::Wrong("no".into()), &probe), Code::Filter);
        assert_eq!(code("what", Why::Unsupported("no".into()), &probe), Code::EnableKernelEvent);
    }
}
