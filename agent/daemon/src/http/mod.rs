//! Requests and answers: paths, methods and bodies to what the registry does.
//!
//! | file | subject |
//! |---|---|
//! | `table` | the requests: paths, and what they take and give |
//! | `routes` | what is done for each |
//! | `answers` | answers and refusals |
//! | `list` | what there is to record |
//! | `scrape` | metrics and health, over TCP, too |

mod answers;
mod list;
mod routes;
mod scrape;
mod table;

pub(super) use routes::refuse;
pub(super) use scrape::serve;
#[cfg(test)]
pub(super) use table::described::Requests;
pub(super) use table::router;
