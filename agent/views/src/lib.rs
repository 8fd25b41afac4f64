//! Recordings as pictures of time: a page of HTML, and the JSON of Chrome's trace viewer.
//!
//! | module | what |
//! |---|---|
//! | [`timeline`] | a timeline in one page of HTML |
//! | [`chrome`] | the JSON that Chrome's trace viewer and Perfetto's open |
//! | `tracks` | threads, CPUs and devices as rows of slices, which both draw |

pub mod chrome;
pub mod timeline;
mod tracks;
