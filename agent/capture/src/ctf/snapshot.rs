//! A snapshot as a trace of its own.

use std::{ffi::OsString, io};

use super::{
    CtfOutput, SNAPSHOT, Written,
    followed::{Closed, Followed, Patience},
    ledger, notes,
    parts::{Parts, Place},
};
use crate::follow::{FollowError, Follower};
use crate::{FinishError, Finished, Manifest, Recorded, Spool, Stats};
use recording::{ExportError, sync_tree};
use stdx::output::Directory;
use stdx::utc;

/// How many names are tried for a snapshot, of which others may have the first.
const NAMES_MAX: u64 = 1000;

/// Writes a snapshot beside its spool: under a name of its own, or, as the one number `number` of its
/// recording, counted from 1, under the one that LTTng gives it.
///
/// # Errors
/// It is still in its spool, and nothing is left of the trace.
pub(crate) fn snapshot(
    output: &CtfOutput,
    recorded: Recorded,
    (number, name): (u64, Option<OsString>),
) -> Result<Finished, FinishError> {
    let Recorded { spool, manifest, stats, output: place, .. } = recorded;
    let parent = place.directory();
    let (name, dir) = match name {
        Some(name) => {
            let dir = parent.create_dir(&name).map_err(ExportError::io("create", parent.join(&name)))?;
            (name, dir)
        }
        None => create((output, parent), number, &manifest, &stats)?,
    };
    let (written, mut notes) = match write(output, &dir, &spool, (&manifest, &stats)) {
        Ok(written) => written,
        Err(error) => {
            // It is ours, and incomplete.
            let _ = parent.remove_tree(&name, &dir);
            return Err(error);
        }
    };
    let file_bytes = sync_tree(&dir)?;
    parent.sync();
    if !written.has_less(&spool, &stats, &mut notes) {
        super::remove(spool, &mut notes);
    }
    Ok(Finished { path: parent.join(&name), file_bytes, stats, notes })
}

/// Creates its directory, under the name that LTTng gives it, with the next number that is free.
fn create(
    (output, parent): (&CtfOutput, &Directory),
    number: u64,
    manifest: &Manifest,
    stats: &Stats,
) -> Result<(OsString, Directory), ExportError> {
    let end = stats.covered.map_or(output.begin_ns, |(_, to)| to);
    let taken = utc::compact(end.saturating_add_signed(manifest.realtime_offset));
    // `20260302T101500+0000` as `20260302-101500`.
    let taken = taken.replace('T', "-").replace("+0000", "");
    let first = number.saturating_sub(1);
    let mut last = first;
    loop {
        let name = format!("{SNAPSHOT}-{taken}-{last}");
        match parent.create_dir(&name) {
            Ok(dir) => return Ok((name.into(), dir)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && last - first < NAMES_MAX => {
                last = last.saturating_add(1);
            }
            Err(error) => return Err(ExportError::io("create", parent.join(&name))(error)),
        }
    }
}

fn write(
    output: &CtfOutput,
    dir: &Directory,
    spool: &Spool,
    (manifest, stats): (&Manifest, &Stats),
) -> Result<(Written, Vec<String>), FinishError> {
    let mut followed = Followed::new(Follower::of_spool(spool)?);
    followed.look(Patience::Over)?;
    let Some(head) = followed.head() else {
        return Err(FollowError::Empty { path: spool.dir().to_owned() }.into());
    };
    let known = followed.follower.manifest();
    let spool = (followed.follower.files().clone(), None, 0);
    let place = Place::new((dir.clone(), output.options()), None, spool);
    let shapes = output.options.shapes.in_one_file();
    let mut writer = Parts::create(output, shapes, (head, known), (place, None))?;
    let channels = known.channels.clone();
    followed.put_states(&mut writer)?;
    followed.write(&mut writer, &mut |_, _| Ok(true))?;
    let end = stats.covered.map_or(output.begin_ns, |(_, to)| to);
    let counted = ledger(manifest, &Stats { channels, ..stats.clone() });
    followed.end(&mut writer, &Closed { end, ledger: &counted, manifest })?;
    let notes = notes(&writer.take_not_carried());
    let (events, fell_behind) = (writer.events(), followed.follower.fell_behind());
    Ok((Written { events, fell_behind, is_damaged: false }, notes))
}
