//! Format `html`: a recording as a timeline in one page that needs nothing else, also no network.
//!
//! | file | subject |
//! |---|---|
//! | `document` | the page: its parts, its policy, blocks of data in it |
//! | `page/` | what the browser runs and shows: HTML, CSS, JavaScript, put together as they are |
//! | `columns` | numbers as bytes |
//! | `levels` | slices by how long they are, and densities of what is too short to be drawn |
//! | `events` | the records with their fields, in blocks |
//! | `blocks` | blocks on their way into the page: threads pack them |
//! | `builder` | hands records on to all of these, and slices that `tracks` makes of them |
//! | `index` | what the page reads first: what there is, and where |
//!
//! **Levels of detail.** A slice is a time in which something goes on in a row: a thread runs, a system call
//! is under way. Slices are stored by how long they are: each level has those that are up to four times as
//! long as the level below. For each level there are also densities: how much of a bucket of time the slices
//! of this level and those below covered, and with what. A view takes the level whose bucket is a few pixels
//! wide: longer slices are drawn as they are, shorter ones as densities. So what has to be drawn depends on
//! the size of the window, not on that of the recording.
//!
//! **Blocks.** All data are in blocks of a few thousand rows, which are compressed (DEFLATE), written in
//! base64 into elements that the browser does not look at, and unpacked when a view needs them. The index is
//! the last of them. The page has no text of the recording outside of them, so none that a browser could take
//! for markup; what the scripts show of it, they show as text. The policy in the head lets the page's own
//! scripts and styles run, by their checksums, and forbids everything else.
//!
//! **Memory.** A block of each kind and level is held while it is filled, and the state of what goes on. Of
//! recordings with more events than [`Options::max_events`] the first ones have all details, and the rest
//! what is longer than the shortest densities, and those; the page says so.

mod blocks;
mod builder;
mod columns;
mod document;
mod events;
mod index;
mod levels;

use self::blocks::{Blocks, Done, Item, Written};
use self::builder::Builder;
use self::document::Document;
use self::events::Packer;
use recording::{Description, ExportError, Format, Job, Recording, create_file};
use stdx::output::Directory;
use stdx::parallel;
use stdx::parallel::HandOn;

/// The name of the file in the directory that it is written in.
const FILE: &str = "timeline.html";

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of so many events all details are in the page.
    pub max_events: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_events: 5_000_000 }
    }
}

/// The format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    options: Options,
}

impl Timeline {
    /// The format with these options.
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Format for Timeline {
    fn name(&self) -> &'static str {
        "html"
    }

    fn file(&self) -> Option<&'static str> {
        Some(FILE)
    }

    fn keeps(&self) -> &'static [Description] {
        // Without those of buffers, which it has of losses only.
        Description::OF_ROWS.split_at(1).1
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let (file, path) = create_file(dir, FILE)?;
        let mut document = Document::begin(file, path)?;
        let plans = builder::plans(recording);
        let mut builder = Builder::new(recording, &plans, self.options);
        let symbols = builder.symbols();
        let packer = Packer { plans: &plans, events: recording.events(), symbols: &*symbols };
        let mut written = Written::default();
        let worker = || |item: Item, hand_on: &mut HandOn<'_, Done>| item.pack(&packer, hand_on);
        let take = |done| written.write(done, &mut document);
        parallel::in_order(job.thread_count(), &worker, take, |items| {
            let mut give = |item| Ok(items.give(item)?);
            let mut blocks = Blocks::new(&mut give);
            recording.each_record_or_gap(job, |seen| builder.take(seen, &mut blocks))?;
            builder.finish(&mut blocks)
        })?;
        document.end(&builder.index(written, job)?)
    }
}
