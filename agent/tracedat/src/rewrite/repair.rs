//! What is intact of a damaged file.

use std::collections::BTreeSet;
use std::io::{Seek, Write};

use super::super::layout::{MIN_PAGE_SIZE, is_page_size};
use super::super::reader::{Reader, Source};
use super::convert::Selection;
use super::error::RewriteError;
use super::head::Head;
use super::output::{Beginning, BufferPlan, Inputs, write_file};
use super::stream::Change;
use super::{Compression, FileVersion, Rewritten, Target, Watch};

/// More CPUs than any machine has. Readers take memory for each, used or not.
const MAX_CPUS: u32 = 1 << 16;

/// Writes what is intact of a file, which was opened with [`Reader::open_damaged`]: the metadata that can be
/// read, whole chunks, whole pages, and of damaged pages the events before the damage. Behind every loss is a
/// mark of lost events.
///
/// The new file has the version of the old one, and its compression unless another is given. What was lost is
/// in [`Rewritten::lost`], piece by piece; `notes` are those of opening the file.
///
/// # Errors
/// [`RewriteError::Nothing`] if there is damage and no event can be saved; the source or the output failed.
pub fn repair<S: Source, W: Write + Seek>(
    reader: &Reader<S>,
    notes: Vec<String>,
    compression: Option<Compression>,
    out: W,
    watch: Watch<'_>,
) -> Result<(W, Rewritten), RewriteError> {
    let version = if reader.header().version < 7 { FileVersion::V6 } else { FileVersion::V7 };
    let mut head = Head::read(reader, true)?;
    let mut all: Vec<_> = reader.problems().iter().map(ToString::to_string).collect();
    all.extend(notes);
    all.append(&mut head.notes);
    // What was found to be damaged when the file was opened is often found again where it is read.
    let mut seen = BTreeSet::new();
    all.retain(|note| seen.insert(note.clone()));
    let mut plan: Vec<BufferPlan> = Selection::default().plan(reader);
    for buffer in &mut plan {
        for text in [&mut buffer.name, &mut buffer.clock] {
            cut_at_nul(text, &mut all);
        }
    }
    for text in &mut head.texts {
        for text in [&mut text.buffer, &mut text.clock] {
            cut_at_nul(text, &mut all);
        }
    }
    let mut has_top = false;
    for (number, buffer) in plan.iter_mut().enumerate() {
        if buffer.name.is_empty() && std::mem::replace(&mut has_top, true) {
            // Readers would show the last top buffer only.
            buffer.name = format!("saved-{number}");
            all.push(format!("there are two top buffers; one is called {} now", buffer.name));
        }
        let before = buffer.cpus.len();
        buffer.cpus.retain(|cpu, _| *cpu < MAX_CPUS);
        if buffer.cpus.len() < before {
            all.push(format!(
                "CPUs of buffer {:?} have numbers that no machine has; they are left out",
                buffer.name
            ));
        }
    }
    if head.cpu_count > MAX_CPUS {
        all.push(format!("the number of CPUs, {}, is that of no machine", head.cpu_count));
        head.cpu_count = 1;
    }
    if !is_page_size(head.page_size) {
        let size = head.layout.page_size;
        let size = if is_page_size(size) { size } else { MIN_PAGE_SIZE };
        all.push(format!(
            "the header speaks of pages of {} bytes, which no machine has; it is {size} now",
            head.page_size
        ));
        head.page_size = size;
    }
    let is_damaged = !all.is_empty();
    head.notes = all;
    let inputs = Inputs { readers: &[reader], changes: &[Change::default()], tolerant: true };
    let beginning = Beginning::new(&Target { version, compression }, head, &mut plan, inputs.readers)?;
    let (out, written) = write_file(out, &beginning, &plan, &inputs, watch)?;
    if written.events() == 0 && (is_damaged || !written.lost.is_empty()) {
        let first = written.notes.first().cloned().or_else(|| Some(written.lost.first()?.reason.clone()));
        let first = first.map_or_else(String::new, |first| format!(": {first}"));
        return Err(RewriteError::Nothing(format!("no event can be saved{first}")));
    }
    Ok((out, written))
}

/// In the file, texts end with a NUL.
fn cut_at_nul(text: &mut String, notes: &mut Vec<String>) {
    if let Some(at) = text.find('\0') {
        notes.push(format!("the name {text:?} has a NUL inside, where it ends now"));
        text.truncate(at);
    }
}
