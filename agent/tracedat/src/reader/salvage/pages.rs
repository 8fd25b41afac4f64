//! Pages of a damaged file: what their layout was, and which CPU each is of.

use super::super::super::layout::is_page_size;
use super::super::super::page::{EventCursor, PageLayout};
use super::super::error::ReadError;
use super::super::file::FileHeader;
use super::super::metadata::Metadata;
use super::super::option::CpuExtent;
use super::super::source::Source;
use super::MAX_CPU;

/// The data of CPUs in pages: where time goes back, the next CPU begins.
pub(in super::super) fn page_runs(
    source: &dyn Source,
    start: u64,
    end: u64,
    layout: PageLayout,
) -> Vec<CpuExtent> {
    let size = u64::from(layout.page_size);
    let mut page = vec![0; layout.page_size as usize];
    let mut runs: Vec<CpuExtent> = Vec::new();
    let mut last = None;
    let mut at = start.next_multiple_of(size);
    while at < end && runs.len() < MAX_CPU as usize {
        let len = (end - at).min(size);
        let times = source.read_exact_at(&mut page[..len as usize], at).ok();
        let times = times.and_then(|()| page_times(&page[..len as usize], layout));
        match (times, last) {
            (Some((first, until)), Some(before)) if first >= before => {
                last = Some(until);
                if let Some(run) = runs.last_mut() {
                    run.size = at + len - run.offset;
                }
            }
            (Some((_, until)), _) => {
                last = Some(until);
                runs.push(CpuExtent { cpu: runs.len() as u32, offset: at, size: len });
            }
            // A damaged page is lost; it belongs to the CPU around it.
            (None, _) => {}
        }
        at += size;
    }
    runs
}

/// The layout of the pages as the file has it, or the likeliest one if it does not.
pub(in super::super) fn guessed_layout(
    header: &FileHeader,
    metadata: &mut Metadata,
    problems: &mut Vec<ReadError>,
    notes: &mut Vec<String>,
) -> PageLayout {
    let layout = match PageLayout::parse(header.endian, &metadata.header_page) {
        Ok(layout) => {
            mend_header_page(layout, metadata, problems, notes);
            return layout;
        }
        Err(source) => {
            problems.push(ReadError::Layout { source });
            let size = if is_page_size(header.page_size) { header.page_size } else { 4096 };
            let native = PageLayout::native(header.endian, size);
            if header.long_size == 4 { PageLayout { long_size: 4, data_at: 12, ..native } } else { native }
        }
    };
    notes.push(format!(
        "the layout of pages is lost: they are taken for pages of {} bytes of a {}-bit kernel",
        layout.page_size,
        u32::from(header.long_size) * 8
    ));
    metadata.header_page = layout.header_page_text();
    layout
}

/// Writes the text of the layout again if other readers would not understand it.
pub(super) fn mend_header_page(
    layout: PageLayout,
    metadata: &mut Metadata,
    problems: &mut Vec<ReadError>,
    notes: &mut Vec<String>,
) {
    if let Err(source) = PageLayout::check_characters(&metadata.header_page) {
        problems.push(ReadError::Layout { source });
        notes.push("the text of header_page is written anew from the layout that it tells".to_owned());
        metadata.header_page = layout.header_page_text();
    }
}

/// Times of the first and the last event, if it is a page with events.
fn page_times(page: &[u8], layout: PageLayout) -> Option<(u64, u64)> {
    let header = layout.header(page).ok()?;
    let start = layout.data_at as usize;
    let data = page.get(start..start + header.data_len)?;
    let mut cursor = EventCursor::new(header.timestamp);
    let mut times = None;
    while let Some(event) = cursor.next(data, layout.endian).ok()? {
        times = Some((times.map_or(event.time, |(first, _)| first), event.time));
    }
    times
}
