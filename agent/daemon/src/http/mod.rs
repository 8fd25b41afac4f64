//! Requests and answers: paths, methods and bodies to what the registry does.
//!
//! | file | subject |
//! |---|---|
//! | `table` | the requests: paths, and what they take and give |
//! | `routes` | what is done for each |
//! | `answers` | answers and refusals |
//! | `connections` | how many connections clients have, and when one ends by itself |
//! | `list` | what there is to record |
//! | `scrape` | metrics and health, over TCP, too |

mod answers;
mod connections;
mod list;
mod routes;
mod scrape;
mod table;

pub(super) use connections::{Place, Room, Watched, Words, refuse_at_once, serve_connection};
pub(super) use routes::{refuse, refuse_others};
pub(super) use scrape::{CONNECTIONS_MAX, excess, serve};
#[cfg(test)]
pub(super) use table::described::Requests;
pub(super) use table::router;
