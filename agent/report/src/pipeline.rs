//! Formats records in several threads and writes the lines in order.
//!
//! The calling thread reads and writes; the others format. The number of batches in flight and the text of
//! each batch are bounded, as records of a hostile file can have very long lines.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use super::batch::{Batch, Item};
use super::feed::Feed;

/// Records of the first batch, so that the first lines come at once; each batch has twice as many as the one
/// before.
const FIRST_BATCH: usize = 32;
/// Records of a batch, at most.
pub(super) const MAX_BATCH: usize = 4096;
/// Bytes of records of a batch, about.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// Bytes of text that a thread makes of a batch. The lines behind are made when they are written.
const MAX_TEXT: usize = 8 << 20;
/// Most threads: each has memory for two batches.
const MAX_THREADS: usize = 16;

/// Prints the line of a record whose bytes are in the data.
pub(super) type Line<'l> = dyn Fn(&mut Vec<u8>, &Item, &[u8]) + Sync + 'l;

/// A batch and its lines.
struct Done {
    number: u64,
    batch: Batch,
    text: Vec<u8>,
    /// The first record whose line is not in the text.
    rest: usize,
    /// How many records were read when it was filled.
    read: u64,
}

/// What a thread tells: lines, or that it came to a bad end.
enum Answer {
    Done(Done),
    Failed,
}

/// Tells the others if this thread panics: they would wait for ever.
struct Watch(Sender<Answer>);

impl Drop for Watch {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(Answer::Failed);
        }
    }
}

/// How many threads make lines, unless told otherwise.
pub(super) fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS)
}

/// Writes the line of every record that `feed` gives. `line` prints one; `after` is called behind every batch
/// that is read, and behind every one that is written.
pub(super) fn run(
    feed: &mut Feed<'_>,
    threads: usize,
    line: &Line<'_>,
    out: &mut dyn Write,
    mut after: impl FnMut(&mut Feed<'_>),
) -> io::Result<()> {
    let (jobs, queue) = mpsc::channel::<Done>();
    let (results, answers) = mpsc::channel::<Answer>();
    let queue = Mutex::new(queue);
    let threads = threads.clamp(1, MAX_THREADS);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (queue, watch) = (&queue, Watch(results.clone()));
            scope.spawn(move || work(queue, &watch, line));
        }
        let mut flow =
            Flow { next: 0, written: 0, waiting: Vec::new(), spare: Vec::new(), size: FIRST_BATCH };
        let result = flow.run(feed, (&jobs, &answers), threads * 2 + 1, line, out, &mut after);
        // The threads end when there is nobody to give them work.
        drop(jobs);
        result
    })
}

/// What the calling thread knows of the batches.
struct Flow {
    /// Number of the next batch to be filled, and of the next to be written.
    next: u64,
    written: u64,
    /// Batches that are done before their turn.
    waiting: Vec<Done>,
    /// Memory to be used again.
    spare: Vec<Done>,
    size: usize,
}

impl Flow {
    fn run(
        &mut self,
        feed: &mut Feed<'_>,
        (jobs, answers): (&Sender<Done>, &Receiver<Answer>),
        in_flight: usize,
        line: &Line<'_>,
        out: &mut dyn Write,
        after: &mut impl FnMut(&mut Feed<'_>),
    ) -> io::Result<()> {
        let failed = || io::Error::other("a formatting thread has failed");
        let mut more = true;
        loop {
            while more && self.next - self.written < in_flight as u64 {
                let mut job = self.spare.pop().unwrap_or_else(|| Done {
                    number: 0,
                    batch: Batch::default(),
                    text: Vec::new(),
                    rest: 0,
                    read: 0,
                });
                more = feed.fill(&mut job.batch, self.size, MAX_BYTES);
                job.read = feed.so_far.records_read;
                after(feed);
                if more {
                    self.size = (self.size * 2).min(MAX_BATCH);
                    job.number = self.next;
                    self.next += 1;
                    jobs.send(job).map_err(|_| failed())?;
                }
                // What is finished goes out before more is read: the first lines, above all.
                while let Ok(Answer::Done(done)) = answers.try_recv() {
                    self.waiting.push(done);
                }
                self.write(feed, line, out, after)?;
            }
            if self.next == self.written {
                feed.so_far.written = feed.so_far.records_read;
                return Ok(());
            }
            match answers.recv() {
                Ok(Answer::Done(done)) => self.waiting.push(done),
                Ok(Answer::Failed) | Err(_) => return Err(failed()),
            }
            self.write(feed, line, out, after)?;
        }
    }

    /// Writes the batches whose turn it is.
    fn write(
        &mut self,
        feed: &mut Feed<'_>,
        line: &Line<'_>,
        out: &mut dyn Write,
        after: &mut impl FnMut(&mut Feed<'_>),
    ) -> io::Result<()> {
        while let Some(at) = self.waiting.iter().position(|done| done.number == self.written) {
            let mut done = self.waiting.swap_remove(at);
            self.written += 1;
            out.write_all(&done.text)?;
            while done.rest < done.batch.items.len() {
                make(&mut done, line);
                out.write_all(&done.text)?;
            }
            feed.so_far.written = done.read;
            after(feed);
            self.spare.push(done);
        }
        Ok(())
    }
}

fn work(queue: &Mutex<Receiver<Done>>, watch: &Watch, line: &Line<'_>) {
    loop {
        let job = queue.lock().ok().and_then(|queue| queue.recv().ok());
        let Some(mut job) = job else { return };
        job.rest = 0;
        make(&mut job, line);
        if watch.0.send(Answer::Done(job)).is_err() {
            return;
        }
    }
}

/// Makes lines from the first that is missing on.
fn make(done: &mut Done, line: &Line<'_>) {
    done.text.clear();
    // One text that was very long must not keep its memory.
    done.text.shrink_to(MAX_TEXT);
    while done.text.len() < MAX_TEXT
        && let Some(item) = done.batch.items.get(done.rest)
    {
        line(&mut done.text, item, &done.batch.data);
        done.rest += 1;
    }
}
