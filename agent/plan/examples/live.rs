//! Records twice for a moment: into a file for each time span, with an event that is added meanwhile; and
//! into memory, with a snapshot. Prints what is in the files. Needs root.
#![expect(clippy::print_stdout, reason = "it is what it is for")]

use std::{error::Error, fs::File, path::Path, thread::sleep, time::Duration};

use capture::{Finished, Session, finish};
use plan::Plan;
use report::{Report, TraceFile};
use spec::{ChannelSpec, RecordingSpec, RotationSpec, RuleSpec, What};

const MOMENT: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    run(Path::new("traces"))
}

/// Records into a directory.
pub(crate) fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
    let rule = |event: &str| Ok::<_, Box<dyn Error>>(vec![RuleSpec::new(What::Events(event.parse()?))]);
    // Room for an event that comes later, and a rotation when the program says so.
    let channel = ChannelSpec { rules: rule("sched:sched_switch")?, spare_events: 1, ..Default::default() };
    let mut spec = RecordingSpec { channels: vec![channel], ..Default::default() };
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..Default::default() });
    spec.file.path = dir.into();
    let mut session = Session::create(Plan::make(&spec)?.options, &mut |_, _| ())?;
    session.start();
    sleep(MOMENT);
    session.add(plan::addition(&session, "", &rule("sched:sched_wakeup")?)?.0)?;
    sleep(MOMENT);
    print(&finish(session.rotate()?)?)?;
    session.remove("", "sched:sched_switch")?;
    sleep(MOMENT);
    session.stop().into_iter().try_for_each(|recorded| print(&finish(recorded)?))?;

    // The newest events only, which are stored when the program says so.
    spec.channels[0] = ChannelSpec { rules: rule("sched")?, overwrite: true, ..Default::default() };
    (spec.rotation, spec.file.path) = (None, dir.join("last.dat"));
    let mut session = Session::create(Plan::make(&spec)?.options, &mut |_, _| ())?;
    session.start();
    sleep(MOMENT);
    print(&finish(session.snapshot()?)?)?;
    session.stop().into_iter().try_for_each(|recorded| print(&finish(recorded)?))
}

fn print(file: &Finished) -> Result<(), Box<dyn Error>> {
    let trace = TraceFile::open("", File::open(&file.path)?)?;
    let mut text = Vec::new();
    Report::new(&[trace]).run(&mut text, |_| ())?;
    let lines = String::from_utf8_lossy(&text).lines().filter(|line| line.contains(": sched_")).count();
    println!("{}: {} events, {lines} lines", file.path.display(), file.stats.stored_events());
    Ok(())
}
