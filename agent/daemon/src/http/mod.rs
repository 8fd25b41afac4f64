//! Requests and answers: paths, methods and bodies to what the registry does.
//!
//! | file | subject |
//! |---|---|
//! | `routes` | the paths |
//! | `answers` | answers and refusals |
//! | `list` | what there is to record |
//! | `scrape` | metrics and health, over TCP, too |
//! | `openapi` | the description of all this |

mod answers;
mod list;
mod openapi;
mod routes;
mod scrape;

pub(super) use openapi::text as openapi;
pub(super) use routes::{refuse, router};
pub(super) use scrape::serve;
