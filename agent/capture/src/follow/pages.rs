//! The records of pages that are in memory.

use std::ops::Range;

use agent_ebpf::PAGE_SIZE;

use ftrace_event::Endian;
use tracedat::page::{EventCursor, HEADER_LEN, PageError, PageHeader};
use tracedat::reader::sum_of_losses;

/// The next record of a CPU.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// As the page has it.
    pub(crate) time: u64,
    pub(crate) missed: Option<u64>,
    record: Range<usize>,
}

/// Some pages of a CPU, and what of them is read.
#[derive(Debug, Default)]
pub(crate) struct PageRecords {
    pages: Vec<u8>,
    /// Whether there are pages that were not looked at as a whole.
    is_new: bool,
    next_page: usize,
    page_number: u64,
    current: Option<CurrentPage>,
    /// Events lost before empty pages.
    carried: Option<u64>,
}

/// The page that is read.
#[derive(Debug)]
struct CurrentPage {
    data: Range<usize>,
    cursor: EventCursor,
    missed: Option<u64>,
    is_fresh: bool,
}

impl PageRecords {
    /// Forgets the pages, which were read. The next ones go here.
    pub(crate) fn replace(&mut self) -> &mut Vec<u8> {
        self.pages.clear();
        self.next_page = 0;
        self.is_new = true;
        &mut self.pages
    }

    /// Bytes of the pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The bytes of a record.
    pub(crate) fn record(&self, head: &Head) -> &[u8] {
        self.pages.get(head.record.clone()).unwrap_or_default()
    }

    /// The pages that came since this was asked.
    pub(crate) fn new_pages(&mut self) -> impl Iterator<Item = &[u8]> {
        let is_new = std::mem::take(&mut self.is_new);
        self.pages.chunks_exact(PAGE_SIZE).filter(move |_| is_new)
    }

    /// How many pages were begun, of all that have been here.
    pub(crate) fn number(&self) -> u64 {
        self.page_number
    }

    /// The next record, after so many that are passed over; `None` if the pages have none.
    pub(crate) fn advance(&mut self, skip: &mut u64) -> Result<Option<Head>, PageError> {
        loop {
            let Some(page) = &mut self.current else {
                if self.next_page * PAGE_SIZE >= self.pages.len() {
                    return Ok(None);
                }
                self.begin_page()?;
                continue;
            };
            let data = self.pages.get(page.data.clone()).unwrap_or_default();
            match page.cursor.next(data, Endian::Little) {
                Ok(Some(event)) => {
                    let is_first = std::mem::take(&mut page.is_fresh);
                    if *skip != 0 {
                        *skip -= 1;
                        continue;
                    }
                    let missed =
                        if is_first { sum_of_losses(self.carried.take(), page.missed) } else { None };
                    let start = page.data.start + event.start;
                    return Ok(Some(Head { time: event.time, missed, record: start..start + event.len }));
                }
                Ok(None) => {
                    if page.is_fresh {
                        self.carried = sum_of_losses(self.carried, page.missed);
                    }
                    self.current = None;
                }
                Err(source) => {
                    self.current = None;
                    return Err(source);
                }
            }
        }
    }

    fn begin_page(&mut self) -> Result<(), PageError> {
        let start = self.next_page * PAGE_SIZE;
        self.next_page += 1;
        self.page_number += 1;
        let page = self.pages.get(start..start + PAGE_SIZE).unwrap_or_default();
        let header = PageHeader::read(page, Endian::Little)?;
        let data = start + HEADER_LEN..start + HEADER_LEN + header.data_len;
        let cursor = EventCursor::new(header.timestamp);
        self.current = Some(CurrentPage { data, cursor, missed: header.missed, is_fresh: true });
        Ok(())
    }
}
